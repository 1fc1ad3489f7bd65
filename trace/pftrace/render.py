"""The events of one stretch as JSON, as Kineto writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import orjson

from fusetui.trace.model.arrays import Int64s
from fusetui.trace.model.raw import Lane
from fusetui.trace.pftrace.args import SliceArgs, gpu_args, grouped, json_float
from fusetui.trace.pftrace.columns import Columns
from fusetui.trace.pftrace.index import EACH, PacketIndex
from fusetui.trace.pftrace.scan import TracePiece, scan
from fusetui.trace.read.rendered import label_text, micros

FIRST_FLOW = 1 << 40  # the number of the first arrow between nodes of graphs, as torch has it
BETWEEN = b",\n"
Row = tuple[Any, ...]


class PacketWriter:
    """Writes stretches: first the labels, then the events, then the arrows between nodes."""

    def __init__(
        self, index: PacketIndex, columns: Columns, part: Callable[[int, int], bytes]
    ) -> None:
        self._layout = index.layout
        self._tables = index.tables
        self._columns = columns
        self._part = part
        self._args = SliceArgs()

    def warm(self) -> bytes:
        """Makes the document available."""
        return self._part(0, 0)

    def write(self, number: int) -> bytes:
        """The elements of one stretch."""
        events = len(self._layout.bounds)
        if number == 0:
            return BETWEEN.join(map(label_text, self._columns.labels))
        if number < events:
            return BETWEEN.join(self._events(number - 1))
        return BETWEEN.join(self._flows((number - events) * EACH))

    def _events(self, number: int) -> list[bytes]:
        start, end = self._layout.places[number].tolist()
        piece = scan(bytes(self._part(start, end)), start)
        begin, stage = self._layout.firsts[number].tolist()
        texts = [*self._slices(piece, begin), *self._stages(piece, stage), *self._values(piece)]
        at = np.concatenate((piece.begins.at, piece.stages.at, piece.counters.at))
        return [texts[row] for row in np.argsort(at, kind="stable").tolist()]

    def _slices(self, piece: TracePiece, first: int) -> Iterator[bytes]:
        count = len(piece.begins.at)
        here = slice(first, first + count)
        has_end, dur = self._layout.has_end[here].tolist(), self._layout.dur[here].tolist()
        heads = self._heads(here, piece.begins.time)
        args = self._args.texts(piece.data, piece.begins.args, count)
        for head, ended, ns, arg in zip(heads, has_end, dur, args, strict=True):
            if ended:
                yield b'{"ph":"X",%s,"dur":%s,"args":{%s}}' % (head, micros(max(ns, 0)), arg)
            else:
                yield b'{"ph":"i",%s,"s":"t","args":{%s}}' % (head, arg)

    def _stages(self, piece: TracePiece, first: int) -> Iterator[bytes]:
        columns, stages = self._columns, piece.stages
        first += self._layout.begins
        here = slice(first, first + len(stages.at))
        rows = zip(
            self._heads(here, stages.time),
            columns.category[here].tolist(),
            columns.thread[here].tolist(),
            stages.dur.tolist(),
            stages.launch.tolist(),
            stages.launch_size.tolist(),
            grouped(piece.data, stages.extra, len(stages.at)),
            strict=True,
        )
        for head, category, thread, dur, at, size, extras in rows:
            kind, lane = columns.categories[category], columns.threads[thread][:2]
            launch = piece.data[at : at + size] if at >= 0 else b""
            args = orjson.dumps(gpu_args(kind, lane, launch, extras, self._tables))
            yield b'{"ph":"X",%s,"dur":%s,"args":%s}' % (head, micros(dur), args)

    def _heads(self, here: slice, time: Int64s) -> Iterator[bytes]:
        """Category, name, lane and start of some slices."""
        columns = self._columns
        rows = zip(
            columns.category[here].tolist(),
            columns.name[here].tolist(),
            columns.thread[here].tolist(),
            (time - self._tables.base).tolist(),
            strict=True,
        )
        for category, name, thread, start in rows:
            cat = columns.categories[category]
            named = b'"cat":%s,' % orjson.dumps(cat) if cat else b""
            yield b'%s"name":%s,%s' % (
                named,
                orjson.dumps(columns.names[name]),
                place(columns.threads[thread], start),
            )

    def _values(self, piece: TracePiece) -> Iterator[bytes]:
        counters, tables = piece.counters, self._tables
        rows = zip(
            counters.descriptor.tolist(),
            counters.id.tolist(),
            (counters.time - tables.base).tolist(),
            counters.bits.tolist(),
            counters.bits.view(np.float64).tolist(),
            counters.is_whole.tolist(),
            strict=True,
        )
        for descriptor, number, time, whole, value, is_whole in rows:
            gpu, names = tables.counters.get(descriptor, ("?", {}))
            yield b'{"ph":"C","name":%s,"pid":"GPU %s Counters","ts":%s,"args":{"":%s}}' % (
                orjson.dumps(names.get(number, f"counter {number}")),
                str(gpu).encode(),
                micros(time),
                b"%d" % whole if is_whole else json_float(value),
            )

    def _flows(self, first: int) -> Iterator[bytes]:
        """Both ends of each arrow: from the end of one node to the begin of another."""
        flows, here = self._layout.flows, slice(first, first + EACH)
        leaving = self._ends(flows.source[here], flows.leaves[here])
        arriving = self._ends(flows.target[here], flows.arrives[here])
        for number, (one, other) in enumerate(zip(leaving, arriving, strict=True), first):
            both = (b"s", one, b""), (b"f", other, b',"bp":"e"')
            for phase, end, more in both:
                text = b'{"ph":"%s","id":%d,%s,"cat":"ac2g","name":"ac2g"%s}'
                yield text % (phase, FIRST_FLOW + number, end, more)

    def _ends(self, rows: Int64s, time: Int64s) -> Iterator[bytes]:
        thread = self._columns.thread[self._layout.begins + rows]
        start = (time - self._tables.base).tolist()
        for of, ns in zip(thread.tolist(), start, strict=True):
            yield place(self._columns.threads[of], ns)


def place(lane: Lane, ns: int) -> bytes:
    """Where something is, and when."""
    pid, tid, _ = lane
    return b'"pid":%s,"tid":%s,"ts":%s' % (orjson.dumps(pid), orjson.dumps(tid), micros(ns))
