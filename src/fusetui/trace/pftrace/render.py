"""Writes a range of events as JSON, in the format of Kineto."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import orjson

from fusetui.trace.model.arrays import Int64s
from fusetui.trace.model.ids import Id
from fusetui.trace.model.raw import Lane
from fusetui.trace.pftrace.columns import Columns
from fusetui.trace.pftrace.index import STRETCH_EVENTS, PacketIndex
from fusetui.trace.pftrace.scan import TracePiece, scan
from fusetui.trace.pftrace.tables import EXPORTER, GpuCounters, Tables, key_and_text
from fusetui.trace.pftrace.wire import Repeated, decoded
from fusetui.trace.read.document_text import label_text, micros
from fusetui.trace.read.elements import DEEPEST, TOO_DEEP

DecodedFields = Sequence[tuple[int, int, bytes]]
"""Of one message; see `decoded`."""
MAX_KEPT_ARGS = 1 << 15
MAX_KEPT_ARG_BYTES = 1 << 10
FIRST_FLOW = 1 << 40
"""The number of the first arrow between nodes of graphs, as torch has it."""

ARG_OF_EXTRA = {
    "correlation": "correlation",
    "priority": "priority",
    "queued": "queued",
    "channel": "channel",
    "channel_type": "channel_type",
    "graph id": "graph id",
    "graph node id": "graph node id",
    "bytes": "bytes",
    "value": "value",
    "memory kind": "memory kind",
    "device id": "device",
    "context id": "context",
    "stream id": "stream",
}
"""What torch writes first of an event of a GPU, and what Kineto calls it: numbers, as
text."""
ARGS_WITHOUT_ZERO = {
    "kernel": ("correlation", "priority", "queued", "channel", "channel_type"),
    "gpu_memcpy": ("correlation", "bytes", "channel", "channel_type"),
    "gpu_memset": (
        "correlation",
        "bytes",
        "value",
        "memory kind",
        "channel",
        "channel_type",
    ),
    "graph_event_node": ("correlation",),
    "graph_host_node": ("correlation",),
}
"""By category: what torch leaves out where it is 0."""
NUMBERS_OF_COLLECTIVES = ("count", "root", "n_channels", "n_warps", "seq", "rank")
"""Torch writes all that it notes of an event as text; of a collective, these are
numbers."""
NOTE = "gpu_user_annotation"

LAUNCH_GRID, LAUNCH_BLOCK, LAUNCH_ARG = 1, 2, 3
"""Fields of a launch (gpu_render_stage_event.proto)."""
AXES = (1, 2, 3)  # fields of a grid or a block
LAUNCH_ARG_NAME, LAUNCH_ARG_VALUE = 1, 4
ARG_OF_LAUNCH = {
    "registers_per_thread": "registers per thread",
    "shared_mem_dynamic": "dynamic shared memory",
}
"""Kineto's `shared memory` also has the static part, which is not in the file."""

MEMBER_NAME, MEMBERS, ITEMS = 10, 11, 12
"""Fields of a debug annotation (debug_annotation.proto): its name, and what a dict and
a list hold, which are debug annotations. SCALARS has the fields of other values."""


def args_texts(data: bytes, args: Repeated, count: int) -> Iterator[bytes]:
    """Yield the args of each of `count` slices as text: the members of a JSON object,
    without its braces. `args` says where in `data` the debug annotations of each slice
    are."""
    for args_of_slice in grouped(data, args, count):
        yield b",".join([_arg_text(arg) for arg in args_of_slice])


def _arg_text(data: bytes) -> bytes:
    """A debug annotation as a member of a JSON object: its name in quotes, a colon and
    its value."""
    if len(data) > MAX_KEPT_ARG_BYTES:
        # long ones rarely repeat, and would fill the cache
        return _decode_arg(data)
    return _kept_arg(data)


def _decode_arg(data: bytes) -> bytes:
    """Decode a debug annotation into a member of a JSON object. A damaged one becomes a
    member `unreadable` that says so."""
    try:
        return _format_member([*decoded(data)], DEEPEST)
    except ValueError:
        return b'"unreadable":"a damaged arg"'


_kept_arg = lru_cache(maxsize=MAX_KEPT_ARGS)(_decode_arg)
"""Most args of a trace are equal to another one."""


def grouped(data: bytes, parts: Repeated, count: int) -> Iterator[list[bytes]]:
    """Yield for each of `count` messages the list of the bytes of its repeated field.
    `parts` says where in `data` each field is, in the order of the messages. The list
    of a message without such a field is empty."""
    starts = parts.at.tolist()
    ends = (parts.at + parts.value).tolist()
    contents = [data[start:end] for start, end in zip(starts, ends, strict=True)]
    messages = np.arange(count + 1)
    bounds = np.searchsorted(parts.message, messages).tolist()
    for first, end in pairwise(bounds):
        yield contents[first:end]


def gpu_args(
    kind: str,
    lane: tuple[Id, Id],
    launch: bytes,
    extras: Sequence[bytes],
    tables: Tables,
) -> dict[str, Any]:
    """The args of one GPU event, by name.

    The args that torch writes itself come first, then the launch configuration. The
    args that an annotation or a collective noted follow. If a name is already taken,
    the word `(annotation)` is appended to it.

    Args:
        kind: The category of the event, such as `kernel`.
        lane: Its device and its stream, or the name of a lane for display.
        launch: The message with the launch configuration; may be empty.
        extras: The messages with other data of the event.
        tables: The texts that messages refer to by number.
    """
    of_torch, noted = _divide_extras(kind, extras, tables)
    device, lane_stream = lane
    stream = of_torch.get("stream", lane_stream)
    args: dict[str, Any] = {}
    # torch writes neither device nor stream of an annotation
    if kind != NOTE:
        args = {**of_torch, "device": device, "stream": lane_stream}
    if stream != lane_stream:  # the lane has a name of its own
        args["original_stream"] = stream
    args.update(_decode_launch(launch, tables.arg_names))
    noted_args: dict[str, Any] = {}
    for key, value in noted.items():
        name = f"{key} (annotation)" if key in args else key
        noted_args[name] = value
    return args | noted_args


def _divide_extras(
    kind: str, extras: Sequence[bytes], tables: Tables
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Divide the extra data of a GPU event into the args that torch writes itself and
    the noted ones.

    The first have the names that Kineto gives them; they are 0 where torch omits zeros.
    The noted ones come from an annotation or a collective. The key of the exporter
    separates the two.
    """
    of_torch: dict[str, Any] = dict.fromkeys(ARGS_WITHOUT_ZERO.get(kind, ()), 0)
    noted: dict[str, Any] = {}
    is_of_torch = True
    for key, text in map(key_and_text, extras):
        if is_of_torch and key in ARG_OF_EXTRA:
            of_torch[ARG_OF_EXTRA[key]] = _parse_integer(text)
        elif not is_of_torch or tables.exporter.get(key) != text:
            noted[key] = text
        if key == EXPORTER[-1]:
            is_of_torch = False
    is_collective = "func" in noted
    if is_collective:
        for key in NUMBERS_OF_COLLECTIVES:
            if key in noted:
                noted[key] = _parse_integer(noted[key])
    return of_torch, noted


def _decode_launch(launch: bytes, names: Mapping[int, str]) -> dict[str, Any]:
    """The configuration of a launch: `grid`, `block`, registers and dynamic shared
    memory, by the name of the arg.

    {} if the launch contains none of them. torch omits zeros, so the last two are 0 if
    they are missing. A damaged launch gives {"unreadable": "launch"}.
    """
    args: dict[str, Any] = {}
    try:
        for number, _, part in decoded(launch):
            values = {field: value for field, value, _ in decoded(part)}
            if number == LAUNCH_GRID:
                args["grid"] = [values.get(axis, 0) for axis in AXES]
            elif number == LAUNCH_BLOCK:
                args["block"] = [values.get(axis, 0) for axis in AXES]
            elif number == LAUNCH_ARG:
                written_name = names.get(values.get(LAUNCH_ARG_NAME, 0), "")
                if written_name in ARG_OF_LAUNCH:
                    arg = ARG_OF_LAUNCH[written_name]
                    args[arg] = values.get(LAUNCH_ARG_VALUE, 0)
    except ValueError:
        return {"unreadable": "launch"}
    if not args:
        return {}
    return dict.fromkeys(ARG_OF_LAUNCH.values(), 0) | args


def _format_member(fields: DecodedFields, levels: int) -> bytes:
    """A debug annotation as a JSON member: its name in quotes, a colon and its value.
    At most `levels` levels of nesting are written. Raises ValueError if it is damaged.
    """
    name = b""
    for number, _, part in fields:
        if number == MEMBER_NAME:
            name = part
            break
    return b"%s:%s" % (orjson.dumps(_decode_text(name)), _value(fields, levels))


def _value(fields: DecodedFields, levels: int) -> bytes:
    """The value of a debug annotation as JSON: a scalar, an object or a list.

    At most `levels` levels of nesting are written; TOO_DEEP stands for what is deeper.
    torch writes an empty list or dict as an annotation without a value: that gives [].
    Raises ValueError if a message is damaged.
    """
    if not levels:
        return orjson.dumps(TOO_DEEP)
    for number, value, part in fields:
        if number in SCALARS:
            return SCALARS[number](value, part)
    members = []
    items = []
    for number, _, part in fields:
        if number == MEMBERS:
            members.append(list(decoded(part)))
        elif number == ITEMS:
            items.append(list(decoded(part)))
    levels_inside = levels - 1
    if members:
        written = [_format_member(member, levels_inside) for member in members]
        return b"{%s}" % b",".join(written)
    written = [_value(item, levels_inside) for item in items]
    return b"[%s]" % b",".join(written)


def json_float(value: float) -> bytes:
    """A number as JSON. An infinity and NaN, which JSON cannot express, become texts."""
    return orjson.dumps(value if math.isfinite(value) else str(value))


def _json_bool(value: int, _part: bytes) -> bytes:
    """The JSON of a boolean field. The value of a varint is the first argument, the
    bytes of other fields are the second."""
    return b"true" if value else b"false"


def _json_unsigned(value: int, _part: bytes) -> bytes:
    """The JSON of an unsigned integer field."""
    return b"%d" % value


def _json_signed(value: int, _part: bytes) -> bytes:
    """The JSON of a signed integer field, whose 64 bits arrive as an unsigned number."""
    is_negative = value >> 63
    return b"%d" % (value - (1 << 64) if is_negative else value)


def _json_double(_value: int, part: bytes) -> bytes:
    """The JSON of a double field; `null` if it does not have eight bytes."""
    if len(part) != 8:
        return b"null"
    return json_float(*struct.unpack("<d", part))


def _json_text(_value: int, part: bytes) -> bytes:
    """The JSON of a text field; invalid UTF-8 becomes U+FFFD."""
    return orjson.dumps(_decode_text(part))


SCALARS: dict[int, Callable[[int, bytes], bytes]] = {
    2: _json_bool,
    3: _json_unsigned,
    4: _json_signed,
    5: _json_double,
    6: _json_text,
}
"""The value of a debug annotation, by the number of its field
(debug_annotation.proto)."""


def _parse_integer(text: str) -> int | str:
    """The integer that a decimal text stands for, or the text itself if it is not one.
    Texts of 20 characters and more stay texts, because they may not fit into 64 bits.
    """
    digits = text.removeprefix("-")
    is_integer = digits.isascii() and digits.isdecimal() and len(text) < 20
    return int(text) if is_integer else text


def _decode_text(data: bytes) -> str:
    """Decode UTF-8; invalid bytes become U+FFFD."""
    return data.decode("utf-8", "replace")


class PacketWriter:
    """Writes stretches: first the labels, then the events, then the arrows between
    nodes."""

    def __init__(
        self, index: PacketIndex, columns: Columns, part: Callable[[int, int], bytes]
    ) -> None:
        self._layout = index.layout
        self._tables = index.tables
        self._columns = columns
        self.part = part

    def write(self, number: int) -> Iterable[bytes]:
        """The elements of one stretch as JSON texts.

        A stretch is a range of the document that is written at once. Stretch 0 has the
        labels of processes and threads. Stretches of events follow, then stretches of
        flow arrows.
        """
        stretches_of_events = len(self._layout.bounds) - 1
        if number == 0:
            return map(label_text, self._columns.labels)
        if number <= stretches_of_events:
            return self._events(number - 1)
        return self._flows((number - stretches_of_events - 1) * STRETCH_EVENTS)

    def _events(self, number: int) -> list[bytes]:
        """The events of one stretch of events as JSON, in the order of their packets.
        `number` counts the stretches of events from 0."""
        start, end = self._layout.places[number].tolist()
        piece = scan(bytes(self.part(start, end)), start)
        first_begin, first_stage = self._layout.firsts[number].tolist()
        texts = [
            *self._slices(piece, first_begin),
            *self._stages(piece, first_stage),
            *self._values(piece),
        ]
        at = np.concatenate((piece.begins.at, piece.stages.at, piece.counters.at))
        return [texts[row] for row in np.argsort(at, kind="stable").tolist()]

    def _slices(self, piece: TracePiece, first: int) -> Iterator[bytes]:
        """Yield the JSON of each slice that begins in a piece of the file.

        `first` is the number of the first of them among all begins. A begin without an
        end becomes an instant event.
        """
        count = len(piece.begins.at)
        rows = slice(first, first + count)
        columns_of_slices = zip(
            self._heads(rows, piece.begins.time),
            self._layout.has_end[rows].tolist(),
            self._layout.dur[rows].tolist(),
            args_texts(piece.data, piece.begins.args, count),
            strict=True,
        )
        for head, has_end, dur, args in columns_of_slices:
            if has_end:
                dur_text = micros(max(dur, 0))
                yield b'{"ph":"X",%s,"dur":%s,"args":{%s}}' % (head, dur_text, args)
            else:
                yield b'{"ph":"i",%s,"s":"t","args":{%s}}' % (head, args)

    def _stages(self, piece: TracePiece, first: int) -> Iterator[bytes]:
        """Yield the JSON of each GPU event, called a render stage, in a piece of the
        file. `first` is the number of the first of them among all stages."""
        columns = self._columns
        stages = piece.stages
        first_row = self._layout.begins + first
        rows = slice(first_row, first_row + len(stages.at))
        columns_of_stages = zip(
            self._heads(rows, stages.time),
            columns.category[rows].tolist(),
            columns.written[rows].tolist(),
            stages.dur.tolist(),
            stages.launch.tolist(),
            stages.launch_size.tolist(),
            grouped(piece.data, stages.extra, len(stages.at)),
            strict=True,
        )
        for head, category, thread, dur, at, size, extras in columns_of_stages:
            args = gpu_args(
                kind=columns.categories[category],
                lane=columns.threads[thread][:2],
                launch=piece.data[at : at + size] if at >= 0 else b"",
                extras=extras,
                tables=self._tables,
            )
            yield b'{"ph":"X",%s,"dur":%s,"args":%s}' % (
                head,
                micros(dur),
                orjson.dumps(args),
            )

    def _heads(self, rows: slice, time: Int64s) -> Iterator[bytes]:
        """Yield the members that all slices have: category, name, lane and start time.
        `time` has the starts in ns; the category is left out if it is empty."""
        columns = self._columns
        columns_of_slices = zip(
            columns.category[rows].tolist(),
            columns.name[rows].tolist(),
            columns.written[rows].tolist(),
            (time - self._tables.base).tolist(),
            strict=True,
        )
        for category_number, name, thread, start in columns_of_slices:
            category = columns.categories[category_number]
            cat = b'"cat":%s,' % orjson.dumps(category) if category else b""
            yield b'%s"name":%s,%s' % (
                cat,
                orjson.dumps(columns.names[name]),
                place(columns.threads[thread], start),
            )

    def _values(self, piece: TracePiece) -> Iterator[bytes]:
        """Yield a JSON counter event for each counter value in a piece of the file."""
        counters = piece.counters
        columns_of_values = zip(
            counters.descriptor.tolist(),
            counters.id.tolist(),
            (counters.time - self._tables.base).tolist(),
            counters.bits.tolist(),
            counters.bits.view(np.float64).tolist(),
            counters.is_whole.tolist(),
            strict=True,
        )
        for descriptor, number, time, integer, double, is_whole in columns_of_values:
            described = self._tables.counters.get(descriptor)
            name = orjson.dumps(_counter_name(described, number))
            gpu = b"%d" % described.gpu if described else b"?"
            value = b"%d" % integer if is_whole else json_float(double)
            yield (
                b'{"ph":"C","name":%s,"pid":"GPU %s Counters","ts":%s,"args":{"":%s}}'
                % (name, gpu, micros(time), value)
            )

    def _flows(self, first: int) -> Iterator[bytes]:
        """Yield the JSON of at most STRETCH_EVENTS flow arrows, from number `first` on.

        Each arrow is two events: phase `s` at the end of the slice that it leaves,
        phase `f` at the begin of the other. Both are named `ac2g`, like the arrows of
        torch from a launch to its kernel. `bp: e` binds an end to the slice around it.
        """
        flows = self._layout.flows
        rows = slice(first, first + STRETCH_EVENTS)
        leaving = self._flow_ends(flows.source[rows], flows.leaves[rows])
        arriving = self._flow_ends(flows.target[rows], flows.arrives[rows])
        number = FIRST_FLOW + first
        for source, target in zip(leaving, arriving, strict=True):
            yield (
                b'{"ph":"s","id":%d,%s,"cat":"ac2g","name":"ac2g"}' % (number, source)
            )
            yield (
                b'{"ph":"f","id":%d,%s,"cat":"ac2g","name":"ac2g","bp":"e"}'
                % (number, target)
            )
            number += 1

    def _flow_ends(self, stages: Int64s, time: Int64s) -> Iterator[bytes]:
        """Yield the lane and the time of one end of each arrow, as members of a JSON
        object. `stages` has the GPU events that the arrows touch, `time` the times in
        ns."""
        threads = self._columns.written[self._layout.begins + stages].tolist()
        times = (time - self._tables.base).tolist()
        for thread, ns in zip(threads, times, strict=True):
            yield place(self._columns.threads[thread], ns)


def _counter_name(described: GpuCounters | None, number: int) -> str:
    """The name of the counter with this number in its descriptor, `counter 7` if that
    has no name for it. `described` is None if the file lacks the descriptor."""
    unnamed = f"counter {number}"
    return described.names.get(number, unnamed) if described else unnamed


def place(lane: Lane, ns: int) -> bytes:
    """The lane and the time of an event as members of a JSON object: `pid`, `tid` and
    `ts` in microseconds. `ns` is the time in ns."""
    pid, tid, _ = lane
    return b'"pid":%s,"tid":%s,"ts":%s' % (
        orjson.dumps(pid),
        orjson.dumps(tid),
        micros(ns),
    )
