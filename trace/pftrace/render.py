"""The events of one stretch as JSON, as Kineto writes them.

Written where somebody looks at them. Equal args of slices are decoded once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import orjson

from fusetui.trace.model.ids import Id
from fusetui.trace.model.raw import Label
from fusetui.trace.pftrace.columns import Columns
from fusetui.trace.pftrace.index import EACH, Index
from fusetui.trace.pftrace.scan import Piece, scan
from fusetui.trace.pftrace.tables import EXPORTER, key_and_text
from fusetui.trace.pftrace.wire import Repeated, decoded
from fusetui.trace.read.elements import DEEPEST, TOO_DEEP

FieldList = list[tuple[int, int, bytes]]
KEPT, LONGEST = 1 << 15, 1 << 10  # args that are kept decoded, and bytes of the longest of them
FIRST_FLOW = 1 << 40  # the number of the first arrow between nodes of graphs, as torch has it
NUMBERS = {
    "device id": "device",
    "context id": "context",
    "stream id": "stream",
    "correlation": "correlation",
    **dict.fromkeys(("priority", "queued", "channel", "channel_type", "bytes", "value")),
    **dict.fromkeys(("memory kind", "graph id", "graph node id")),
}
"""What torch writes of an event first, as text, and what Kineto calls it where that differs."""
ZEROS = {
    "kernel": ("correlation", "priority", "queued", "channel", "channel_type"),
    "gpu_memcpy": ("correlation", "bytes", "channel", "channel_type"),
    "gpu_memset": ("correlation", "bytes", "value", "memory kind", "channel", "channel_type"),
    "graph_event_node": ("correlation",),
    "graph_host_node": ("correlation",),
}
"""What torch leaves out where it is 0."""
LAUNCH = {
    "registers_per_thread": "registers per thread",
    "shared_mem_dynamic": "dynamic shared memory",
}


class Writer:
    """Writes stretches: first the labels, then the events, then the arrows between nodes."""

    def __init__(self, index: Index, columns: Columns, part: Callable[[int, int], bytes]) -> None:
        self._index = index
        self._columns = columns
        self._part = part
        self._base = index.tables.base
        self._args = _Known()

    def warm(self) -> bytes:
        """Makes the document available."""
        return self._part(0, 0)

    def write(self, number: int) -> bytes:
        """The elements of one stretch."""
        if number == 0:
            return b",\n".join(map(label_text, self._columns.labels))
        if number < len(self._index.bounds):
            return b",\n".join(self._events(number - 1))
        first = (number - len(self._index.bounds)) * EACH
        return b",\n".join(self._flows(first))

    def _events(self, number: int) -> list[bytes]:
        index = self._index
        start, end = index.places[number].tolist()
        piece = scan(bytes(self._part(start, end)), start)
        first = int(np.searchsorted(index.order[0], index.bounds[number]))
        stage = int(np.searchsorted(index.order[1], index.bounds[number]))
        texts = [*self._slices(piece, first), *self._stages(piece, stage), *self._values(piece)]
        at = np.concatenate((piece.begins.at, piece.stages.at, piece.counters.at))
        return [texts[row] for row in np.argsort(at, kind="stable").tolist()]

    def _slices(self, piece: Piece, first: int) -> Iterator[bytes]:
        index, columns, begins = self._index, self._columns, piece.begins
        here = slice(first, first + len(begins.at))
        args = self._args.texts(piece.data, begins.args, len(begins.at))
        rows = zip(
            columns.name[here].tolist(),
            columns.category[here].tolist(),
            columns.thread[here].tolist(),
            (begins.time - self._base).tolist(),
            index.dur[here].tolist(),
            index.has_end[here].tolist(),
            args,
            strict=True,
        )
        for name, category, thread, time, dur, has_end, arg in rows:
            form = b'"X"' if has_end else b'"i"'
            more = b',"dur":%s' % _us(max(dur, 0)) if has_end else b',"s":"t"'
            yield _event(
                form,
                columns.categories[category],
                columns.names[name],
                columns.threads[thread][:2],
                time,
                more,
                arg,
            )

    def _stages(self, piece: Piece, first: int) -> Iterator[bytes]:
        columns, stages = self._columns, piece.stages
        first += len(self._index.begins.at)
        here = slice(first, first + len(stages.at))
        extras = _grouped(piece.data, stages.extra, len(stages.at))
        rows = zip(
            columns.name[here].tolist(),
            columns.category[here].tolist(),
            columns.thread[here].tolist(),
            (stages.time - self._base).tolist(),
            stages.dur.tolist(),
            stages.launch.tolist(),
            stages.launch_size.tolist(),
            extras,
            strict=True,
        )
        for name, category, thread, time, dur, at, size, extra in rows:
            kind = columns.categories[category]
            launch = piece.data[at : at + size] if at >= 0 else b""
            lane = columns.threads[thread][:2]
            args = self._gpu_args(kind, lane, launch, extra)
            yield _event(
                b'"X"',
                kind,
                columns.names[name],
                lane,
                time,
                b',"dur":%s' % _us(dur),
                _dumps(args)[1:-1],
            )

    def _gpu_args(
        self, kind: str, lane: tuple[Id, Id], launch: bytes, extras: Sequence[bytes]
    ) -> dict[str, Any]:
        own: dict[str, Any] = {"device": lane[0], "context": None, "stream": lane[1]}
        own |= dict.fromkeys(ZEROS.get(kind, ()), 0)
        noted: dict[str, Any] = {}
        is_own = True
        for extra in extras:
            key, text = key_and_text(extra)
            if is_own and key in NUMBERS:
                own[NUMBERS[key] or key] = _number(text)
            elif is_own and (
                key in EXPORTER or (kind == "graph_host_node" and key.startswith("host fn"))
            ):
                if self._index.tables.exporter.get(key) != text:
                    noted[key] = text
            else:
                noted[key] = text
            is_own = is_own and key != EXPORTER[-1]
        if own["stream"] != lane[1]:  # a lane that has a name
            own["original_stream"], own["stream"] = own["stream"], lane[1]
        if kind == "gpu_user_annotation":
            own = {key: own[key] for key in ("original_stream",) if key in own}
        own |= self._launch(launch)
        more = {f"{key} (annotation)" if key in own else key: noted[key] for key in noted}
        return {key: value for key, value in own.items() if value is not None} | more

    def _launch(self, launch: bytes) -> dict[str, Any]:
        """What a launch says of grid, block and so on; torch leaves out zeros."""
        found: dict[str, Any] = {}
        try:
            for number, _, part in decoded(launch):
                inner = {field: value for field, value, _ in decoded(part)}
                if number in (1, 2):
                    sizes = [inner.get(axis, 0) for axis in (1, 2, 3)]
                    found["grid" if number == 1 else "block"] = sizes
                elif number == 3:
                    name = LAUNCH.get(self._index.tables.arg_names.get(inner.get(1, 0), ""))
                    if name:
                        found[name] = inner.get(4, 0)
        except ValueError:
            return {"unreadable": "launch"}
        if found:
            found = dict.fromkeys(LAUNCH.values(), 0) | found
        return found

    def _values(self, piece: Piece) -> Iterator[bytes]:
        counters, tables = piece.counters, self._index.tables
        rows = zip(
            counters.descriptor.tolist(),
            counters.id.tolist(),
            (counters.time - self._base).tolist(),
            counters.bits.tolist(),
            counters.bits.view(np.float64).tolist(),
            counters.is_whole.tolist(),
            strict=True,
        )
        for descriptor, number, time, whole, value, is_whole in rows:
            gpu, names = tables.counters.get(descriptor, ("?", {}))
            pid = _dumps(f"GPU {gpu} Counters")
            name = _dumps(names.get(number, f"counter {number}"))
            yield b'{"ph":"C","name":%s,"pid":%s,"ts":%s,"args":{"":%s}}' % (
                name,
                pid,
                _us(time),
                _float(value) if not is_whole else b"%d" % whole,
            )

    def _flows(self, first: int) -> Iterator[bytes]:
        """Both ends of each arrow: from the end of one node to the begin of another."""
        index, columns = self._index, self._columns
        source = index.flows.source[first : first + EACH]
        target = index.flows.target[first : first + EACH]
        begins = len(index.begins.at)
        rows = zip(
            range(first + FIRST_FLOW, first + FIRST_FLOW + EACH),
            columns.thread[begins + source].tolist(),
            (index.stages.time[source] + index.stages.dur[source] - self._base).tolist(),
            columns.thread[begins + target].tolist(),
            (index.stages.time[target] - self._base).tolist(),
            strict=False,
        )
        for number, *both in rows:
            for form, thread, time in ((b"s", *both[:2]), (b"f", *both[2:])):
                pid, tid, _ = columns.threads[thread]
                yield (
                    b'{"ph":"%s","id":%d,"pid":%s,"tid":%s,"ts":%s,"cat":"ac2g","name":"ac2g"%s}'
                    % (
                        form,
                        number,
                        _dumps(pid),
                        _dumps(tid),
                        _us(time),
                        b"" if form == b"s" else b',"bp":"e"',
                    )
                )


class _Known(dict[bytes, bytes]):
    """Args of slices as JSON, by their bytes."""

    def __missing__(self, data: bytes) -> bytes:
        try:
            text = _arg(data)
        except ValueError:
            text = b'"unreadable":"a damaged arg"'
        if len(data) <= LONGEST:
            if len(self) >= KEPT:
                self.clear()
            self[data] = text
        return text

    def texts(self, data: bytes, args: Repeated, count: int) -> Iterator[bytes]:
        for some in _grouped(data, args, count):
            yield b",".join([self[arg] for arg in some])


def _grouped(data: bytes, found: Repeated, count: int) -> Iterator[list[bytes]]:
    """The fields of each of `count` messages."""
    ends = (found.at + found.value).tolist()
    parts = [data[at:end] for at, end in zip(found.at.tolist(), ends, strict=True)]
    bounds = np.searchsorted(found.message, np.arange(count + 1)).tolist()
    for first, last in pairwise(bounds):
        yield parts[first:last]


def _arg(data: bytes) -> bytes:
    """One debug annotation: its key and its value. Raises ValueError."""
    return _member([*decoded(data)], DEEPEST)


def _member(found: FieldList, levels: int) -> bytes:
    names = [part for number, _, part in found if number == 10]
    return b"%s:%s" % (_dumps(_text(names[-1]) if names else ""), _value(found, levels))


def _value(found: FieldList, levels: int) -> bytes:
    """torch writes an empty list or dict as an annotation without a value."""
    if not levels:
        return _dumps(TOO_DEEP)
    scalars = [SCALARS[number](value, part) for number, value, part in found if number in SCALARS]
    if scalars:
        return scalars[0]
    inner = [(number, [*decoded(part)]) for number, _, part in found if number in (11, 12)]
    if any(number == 11 for number, _ in inner):
        members = (_member(each, levels - 1) for number, each in inner if number == 11)
        return b"{%s}" % b",".join(members)
    return b"[%s]" % b",".join(_value(each, levels - 1) for _, each in inner)


def _signed(value: int) -> bytes:
    return b"%d" % (value - (1 << 64) if value >> 63 else value)


def _double(part: bytes) -> bytes:
    return _float(struct.unpack("<d", part)[0]) if len(part) == 8 else b"null"


SCALARS: dict[int, Callable[[int, bytes], bytes]] = {
    2: lambda value, part: b"true" if value else b"false",
    3: lambda value, part: b"%d" % value,
    4: lambda value, part: _signed(value),
    5: lambda value, part: _double(part),
    6: lambda value, part: _dumps(_text(part)),
    7: lambda value, part: b"%d" % value,
    9: lambda value, part: _dumps(_text(part)),
}
"""The value of a debug annotation, by the number of its field (debug_annotation.proto)."""


def _number(text: str) -> int | str:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() and len(text) < 20 else text


def _float(value: float) -> bytes:
    """JSON has no numbers for what is not finite."""
    return orjson.dumps(value) if np.isfinite(value) else _dumps(str(value))


def _event(
    form: bytes, category: str, name: str, lane: tuple[Id, Id], time: int, more: bytes, args: bytes
) -> bytes:
    cat = b'"cat":%s,' % _dumps(category) if category else b""
    return b'{"ph":%s,%s"name":%s,"pid":%s,"tid":%s,"ts":%s%s,"args":{%s}}' % (
        form,
        cat,
        _dumps(name),
        _dumps(lane[0]),
        _dumps(lane[1]),
        _us(time),
        more,
        args,
    )


def label_text(label: Label) -> bytes:
    """A label as the metadata event that it is in JSON."""
    key = {"process_labels": "labels"}.get(
        label.kind, "sort_index" if "sort" in label.kind else "name"
    )
    event = {"ph": "M", "name": label.kind, "pid": label.pid, "tid": label.tid, "ts": 0}
    return _dumps(event | {"args": {key: label.value}})


def _us(time: int) -> bytes:
    """Nanoseconds as microseconds."""
    whole, rest = divmod(abs(time), 1000)
    return b"%s%d.%03d" % (b"-" if time < 0 else b"", whole, rest)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _dumps(value: Any) -> bytes:
    return orjson.dumps(value)
