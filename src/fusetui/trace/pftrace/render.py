"""The events of one stretch as JSON, as Kineto writes them."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import orjson

from fusetui.trace.model.arrays import Int64s
from fusetui.trace.model.ids import Id
from fusetui.trace.model.raw import Lane
from fusetui.trace.pftrace.columns import Columns
from fusetui.trace.pftrace.index import EACH, PacketIndex
from fusetui.trace.pftrace.scan import TracePiece, scan
from fusetui.trace.pftrace.tables import EXPORTER, Tables, key_and_text
from fusetui.trace.pftrace.wire import Repeated, decoded
from fusetui.trace.read.document_text import label_text, micros
from fusetui.trace.read.elements import DEEPEST, TOO_DEEP

Fields = list[tuple[int, int, bytes]]
# args that are kept decoded, and bytes of the longest of them
KEPT, LONGEST = 1 << 15, 1 << 10
OWN = {
    **{
        key: key
        for key in ("correlation", "priority", "queued", "channel", "channel_type")
    },
    **{
        key: key
        for key in ("graph id", "graph node id", "bytes", "value", "memory kind")
    },
    **{"device id": "device", "context id": "context", "stream id": "stream"},
}
"""What torch writes first of an event of a GPU, and what Kineto calls it: numbers, as
text."""
ZEROS = {
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
"""What torch leaves out where it is 0."""
OF_NCCL = ("count", "root", "n_channels", "n_warps", "seq", "rank")
"""Of a collective, these are numbers; torch writes all that it notes of an event as
text."""
NOTE = "gpu_user_annotation"
LAUNCH = {
    "registers_per_thread": "registers per thread",
    "shared_mem_dynamic": "dynamic shared memory",
}
"""Kineto's `shared memory` also has the static part, which is not in the file."""


class SliceArgs(dict[bytes, bytes]):
    """Args of slices as JSON, by their bytes: equal ones are decoded once."""

    def __missing__(self, data: bytes) -> bytes:
        try:
            text = _member([*decoded(data)], DEEPEST)
        except ValueError:
            text = b'"unreadable":"a damaged arg"'
        if len(data) <= LONGEST:
            if len(self) >= KEPT:
                self.clear()
            self[data] = text
        return text

    def texts(self, data: bytes, args: Repeated, count: int) -> Iterator[bytes]:
        """The args of `count` slices."""
        return (
            b",".join([self[arg] for arg in some])
            for some in grouped(data, args, count)
        )


def grouped(data: bytes, found: Repeated, count: int) -> Iterator[list[bytes]]:
    """The fields of each of `count` messages."""
    ends = (found.at + found.value).tolist()
    parts = [data[at:end] for at, end in zip(found.at.tolist(), ends, strict=True)]
    bounds = np.searchsorted(found.message, np.arange(count + 1)).tolist()
    return (parts[first:last] for first, last in pairwise(bounds))


def gpu_args(
    kind: str,
    lane: tuple[Id, Id],
    launch: bytes,
    extras: Sequence[bytes],
    tables: Tables,
) -> dict[str, Any]:
    """The args of an event of a GPU.

    What torch writes itself ends with the name of the process; the keys of an
    annotation or of a collective follow, which may be any, also one that torch has
    written before.
    """
    own: dict[str, Any] = dict.fromkeys(ZEROS.get(kind, ()), 0)
    noted: dict[str, Any] = {}
    is_own = True
    for key, text in map(key_and_text, extras):
        if is_own and key in OWN:
            own[OWN[key]] = _number(text)
        elif not is_own or tables.exporter.get(key) != text:
            noted[key] = text
        is_own = is_own and key != EXPORTER[-1]
    if "func" in noted:
        noted |= {key: _number(noted[key]) for key in OF_NCCL if key in noted}
    stream = own.get("stream", lane[1])
    own = {} if kind == NOTE else own | {"device": lane[0], "stream": lane[1]}
    if stream != lane[1]:  # the lane has a name of its own
        own["original_stream"] = stream
    own |= _launch(launch, tables.arg_names)
    return own | {
        f"{key} (annotation)" if key in own else key: noted[key] for key in noted
    }


def _launch(launch: bytes, names: Mapping[int, str]) -> dict[str, Any]:
    """Grid, block and so on; torch leaves out zeros."""
    found: dict[str, Any] = {}
    try:
        for number, _, part in decoded(launch):
            inner = {field: value for field, value, _ in decoded(part)}
            if number in (1, 2):
                axes = [inner.get(axis, 0) for axis in (1, 2, 3)]
                found["grid" if number == 1 else "block"] = axes
            elif number == 3 and (name := LAUNCH.get(names.get(inner.get(1, 0), ""))):
                found[name] = inner.get(4, 0)
    except ValueError:
        return {"unreadable": "launch"}
    return dict.fromkeys(LAUNCH.values(), 0) | found if found else {}


def _member(found: Fields, levels: int) -> bytes:
    """The name and the value of a debug annotation. Raises ValueError."""
    name = next((part for number, _, part in found if number == 10), b"")
    return b"%s:%s" % (orjson.dumps(_text(name)), _value(found, levels))


def _value(found: Fields, levels: int) -> bytes:
    """torch writes an empty list or dict as an annotation without a value."""
    if not levels:
        return orjson.dumps(TOO_DEEP)
    for number, value, part in found:
        if number in SCALARS:
            return SCALARS[number](value, part)
    inner = [
        (number, [*decoded(part)]) for number, _, part in found if number in (11, 12)
    ]
    if any(number == 11 for number, _ in inner):
        members = (_member(each, levels - 1) for number, each in inner if number == 11)
        return b"{%s}" % b",".join(members)
    return b"[%s]" % b",".join(_value(each, levels - 1) for _, each in inner)


def json_float(value: float) -> bytes:
    """JSON has no numbers for what is not finite."""
    return orjson.dumps(value if math.isfinite(value) else str(value))


SCALARS: dict[int, Callable[[int, bytes], bytes]] = {
    2: lambda value, part: b"true" if value else b"false",
    3: lambda value, part: b"%d" % value,
    4: lambda value, part: b"%d" % (value - (1 << 64) if value >> 63 else value),
    5: lambda value, part: (
        json_float(*struct.unpack("<d", part)) if len(part) == 8 else b"null"
    ),
    6: lambda value, part: orjson.dumps(_text(part)),
}
"""The value of a debug annotation, by the number of its field
(debug_annotation.proto)."""


def _number(text: str) -> int | str:
    digits = text.removeprefix("-")
    return (
        int(text)
        if digits.isascii() and digits.isdecimal() and len(text) < 20
        else text
    )


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


# the number of the first arrow between nodes of graphs, as torch has it
FIRST_FLOW = 1 << 40


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
        self._args = SliceArgs()

    def write(self, number: int) -> Iterable[bytes]:
        """The elements of one stretch."""
        events = len(self._layout.bounds)
        if number == 0:
            return map(label_text, self._columns.labels)
        if number < events:
            return self._events(number - 1)
        return self._flows((number - events) * EACH)

    def _events(self, number: int) -> list[bytes]:
        start, end = self._layout.places[number].tolist()
        piece = scan(bytes(self.part(start, end)), start)
        begin, stage = self._layout.firsts[number].tolist()
        texts = [
            *self._slices(piece, begin),
            *self._stages(piece, stage),
            *self._values(piece),
        ]
        at = np.concatenate((piece.begins.at, piece.stages.at, piece.counters.at))
        return [texts[row] for row in np.argsort(at, kind="stable").tolist()]

    def _slices(self, piece: TracePiece, first: int) -> Iterator[bytes]:
        count = len(piece.begins.at)
        here = slice(first, first + count)
        has_end, dur = (
            self._layout.has_end[here].tolist(),
            self._layout.dur[here].tolist(),
        )
        heads = self._heads(here, piece.begins.time)
        args = self._args.texts(piece.data, piece.begins.args, count)
        for head, ended, ns, arg in zip(heads, has_end, dur, args, strict=True):
            if ended:
                yield b'{"ph":"X",%s,"dur":%s,"args":{%s}}' % (
                    head,
                    micros(max(ns, 0)),
                    arg,
                )
            else:
                yield b'{"ph":"i",%s,"s":"t","args":{%s}}' % (head, arg)

    def _stages(self, piece: TracePiece, first: int) -> Iterator[bytes]:
        columns, stages = self._columns, piece.stages
        first += self._layout.begins
        here = slice(first, first + len(stages.at))
        sizes = (stages.dur, stages.launch, stages.launch_size)
        arrays = (columns.category[here], columns.written[here], *sizes)
        each = zip(*(array.tolist() for array in arrays), strict=True)
        extra = grouped(piece.data, stages.extra, len(stages.at))
        rows = zip(self._heads(here, stages.time), each, extra, strict=True)
        for head, (category, thread, dur, at, size), extras in rows:
            kind, lane = columns.categories[category], columns.threads[thread][:2]
            launch = piece.data[at : at + size] if at >= 0 else b""
            args = orjson.dumps(gpu_args(kind, lane, launch, extras, self._tables))
            yield b'{"ph":"X",%s,"dur":%s,"args":%s}' % (head, micros(dur), args)

    def _heads(self, here: slice, time: Int64s) -> Iterator[bytes]:
        """Category, name, lane and start of some slices."""
        columns = self._columns
        arrays = (columns.category[here], columns.name[here], columns.written[here])
        starts = (time - self._tables.base).tolist()
        rows = zip(*(array.tolist() for array in arrays), starts, strict=True)
        for category, name, thread, start in rows:
            cat = columns.categories[category]
            named = b'"cat":%s,' % orjson.dumps(cat) if cat else b""
            text, where = (
                orjson.dumps(columns.names[name]),
                place(columns.threads[thread], start),
            )
            yield b'%s"name":%s,%s' % (named, text, where)

    def _values(self, piece: TracePiece) -> Iterator[bytes]:
        found, tables = piece.counters, self._tables
        times, values = found.time - tables.base, found.bits.view(np.float64)
        arrays = (found.descriptor, found.id, times, found.bits, values, found.is_whole)
        rows = zip(*(array.tolist() for array in arrays), strict=True)
        for descriptor, number, time, whole, value, is_whole in rows:
            gpu, names = tables.counters.get(descriptor, ("?", {}))
            yield (
                b'{"ph":"C","name":%s,"pid":"GPU %s Counters","ts":%s,"args":{"":%s}}'
                % (
                    orjson.dumps(names.get(number, f"counter {number}")),
                    str(gpu).encode(),
                    micros(time),
                    b"%d" % whole if is_whole else json_float(value),
                )
            )

    def _flows(self, first: int) -> Iterator[bytes]:
        """Both ends of each arrow: from the end of one node to the begin of another."""
        flows, here = self._layout.flows, slice(first, first + EACH)
        leaving = self._ends(flows.source[here], flows.leaves[here])
        arriving = self._ends(flows.target[here], flows.arrives[here])
        for number, (one, other) in enumerate(
            zip(leaving, arriving, strict=True), first
        ):
            for phase, end, more in (b"s", one, b""), (b"f", other, b',"bp":"e"'):
                text = b'{"ph":"%s","id":%d,%s,"cat":"ac2g","name":"ac2g"%s}'
                yield text % (phase, FIRST_FLOW + number, end, more)

    def _ends(self, rows: Int64s, time: Int64s) -> Iterator[bytes]:
        thread = self._columns.written[self._layout.begins + rows]
        start = (time - self._tables.base).tolist()
        for of, ns in zip(thread.tolist(), start, strict=True):
            yield place(self._columns.threads[of], ns)


def place(lane: Lane, ns: int) -> bytes:
    """Where something is, and when."""
    pid, tid, _ = lane
    return b'"pid":%s,"tid":%s,"ts":%s' % (
        orjson.dumps(pid),
        orjson.dumps(tid),
        micros(ns),
    )
