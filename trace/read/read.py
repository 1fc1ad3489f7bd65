"""Puts the chunks of a document together into one set of columns."""

from __future__ import annotations

import gc
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import accumulate
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.errors import NotATrace
from fusetui.trace.read.chunks import CELL, Chunk, Skipped
from fusetui.trace.read.document import Body, find_body, tail_keys
from fusetui.trace.read.elements import Elements, Stretch
from fusetui.trace.read.gather import Interner, Label, Mark, Thread
from fusetui.trace.read.mend import read_stretch
from fusetui.trace.read.pairs import Pairs, pair
from fusetui.trace.read.salvage import Patience
from fusetui.trace.read.source import Source, document, likely_size, open_stored, room_for
from fusetui.trace.read.team import Team

SECOND = re.compile(rb'[\]}]\s*([\[{]\s*(?:\{|"[^"]*"\s*:))')
Progress = Callable[[int, int], None]
"""Called with (bytes read, bytes in all) after each chunk."""


class Raw(msgspec.Struct, frozen=True, eq=False):
    """The slices of a file in file order, before tracks, nesting and links. Arrays are [slices]."""

    source: Source
    elements: Elements
    phases: Counter[str]
    names: tuple[str, ...]
    categories: tuple[str, ...]
    threads: tuple[Thread, ...]
    labels: tuple[Label, ...]
    start: NDArray[np.int64]  # ns
    dur: NDArray[np.int64]  # ns, never negative
    name: NDArray[np.int32]
    category: NDArray[np.int32]
    thread: NDArray[np.int32]
    correlation: NDArray[np.int64]
    external_id: NDArray[np.int64]
    order: NDArray[np.int64]  # place in traceEvents
    keys: dict[str, Any]  # the other top-level keys
    events: int
    skipped: tuple[Skipped, ...]
    complete: bool
    negative: int  # durations below zero, shown as zero
    unfinished: int  # begin events (ph B, b, S) without an end
    unmatched: int  # end events without a begin


def read(path: str, progress: Progress | None = None) -> Raw:
    """Read a trace file. Raises CannotRead or NotATrace with one plain sentence."""
    report = progress or _silent
    stored = open_stored(path)
    with without_collector(), closing(stored.file), closing(room_for(stored)) as room:
        with Team(room.fileno(), likely_size(stored), CELL) as team:
            source = document(stored, room, team.release)
            body = find_body(source)
            size = len(source.data)
            team.release(size, whole=True)
            decoded = team.decoded(lambda cells: report(min(cells * CELL, size), size))
        chunks = list(joined(source.data, body.start, decoded, lambda at: report(at, size)))
    report(size, size)
    return _assemble(source, body, chunks)


def joined(
    data: Any, start: int, decoded: Mapping[int, Chunk], slowly: Callable[[int], None]
) -> Iterator[Chunk]:
    """All chunks from the byte after the opening bracket to the end of the array, in order.

    Where no decoded chunk begins, the events are read the slow way up to the next one that does;
    then `slowly` is called with the byte that was reached.
    """
    begins = sorted(decoded)
    patience = Patience()
    position = start
    while position < len(data):
        known = decoded.get(position)
        following = bisect_right(begins, position)
        stop = begins[following] if following < len(begins) else len(data)
        for chunk in (known,) if known else read_stretch(data, position, stop, patience):
            yield chunk
            position = chunk.end
            if chunk.after != -1:
                return
            if not known:
                slowly(position)


def _silent(*_: int) -> None:
    """Nobody wants to know."""


@contextmanager
def without_collector() -> Iterator[None]:
    """Millions of new objects without a cycle among them: looking for one is half of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _assemble(source: Source, body: Body, chunks: Sequence[Chunk]) -> Raw:
    columns = [chunk.columns for chunk in chunks]
    second = _second(source, chunks)
    events = sum(chunk.events for chunk in chunks) + len(second)
    phases = sum((c.phases for c in columns), Counter[str]())
    skipped = (*(skip for chunk in chunks for skip in chunk.skipped), *second)
    if body.bare and not phases.total() - phases[""]:
        raise NotATrace(f"{source.path} is a JSON list, but not of trace events.")
    keys, complete = _tail(source, body, chunks)
    names, name = _merge([(c.names, c.name) for c in columns])
    categories, category = _merge([(c.categories, c.category) for c in columns])
    threads, thread = _merge([(c.threads, c.thread) for c in columns])
    orders = _global_orders(chunks)
    dur = _joined([c.dur for c in columns], np.int64)
    raw = Raw(
        source=source,
        elements=Elements(lambda: source.data, [_stretch(chunk) for chunk in chunks]),
        phases=phases,
        names=names,
        categories=categories,
        threads=threads,
        labels=tuple(label for c in columns for label in c.labels),
        start=_joined([c.start for c in columns], np.int64),
        dur=np.maximum(dur, 0),
        name=name,
        category=category,
        thread=thread,
        correlation=_joined([c.correlation for c in columns], np.int64),
        external_id=_joined([c.external_id for c in columns], np.int64),
        order=_joined(orders, np.int64),
        keys={**body.head, **keys},
        events=events,
        skipped=skipped,
        complete=complete and source.cut is None,
        negative=int((dur < 0).sum()),
        unfinished=0,
        unmatched=0,
    )
    marks = list(_global_marks(chunks))
    return with_pairs(raw, pair(marks)) if marks else raw


def with_pairs(raw: Raw, pairs: Pairs) -> Raw:
    """The slices that are written as two events, behind the others."""
    more = pairs.slices
    tables = [Interner({key: n for n, key in enumerate(t)}) for t in (raw.names, raw.categories)]
    threads = Interner({key: n for n, key in enumerate(raw.threads)})
    none = np.full(len(more), -1, dtype=np.int64)
    dur = np.array([p.dur for p in more], np.int64)

    def grown(column: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate([column, new])

    return msgspec.structs.replace(
        raw,
        start=grown(raw.start, np.array([p.start for p in more], np.int64)),
        dur=grown(raw.dur, dur),
        name=grown(raw.name, tables[0].ids(p.name for p in more)),
        category=grown(raw.category, tables[1].ids(p.category for p in more)),
        thread=grown(raw.thread, threads.ids(p.thread for p in more)),
        correlation=grown(raw.correlation, none),
        external_id=grown(raw.external_id, none),
        order=grown(raw.order, np.array([p.order for p in more], np.int64)),
        names=tuple(tables[0]),
        categories=tuple(tables[1]),
        threads=tuple(threads),
        unfinished=pairs.unfinished,
        unmatched=pairs.ends,
    )


def _stretch(chunk: Chunk) -> Stretch:
    return Stretch(chunk.start, chunk.end, chunk.events, chunk.places)


def _tail(source: Source, body: Body, chunks: Sequence[Chunk]) -> tuple[dict[str, Any], bool]:
    after = chunks[-1].after if chunks else -1
    if after == -1:  # a bare array may lack its bracket, an object may not
        return {}, body.bare and not (chunks and chunks[-1].skipped)
    if body.bare:
        return {}, True
    return tail_keys(bytes(source.data[after:]))


def _second(source: Source, chunks: Sequence[Chunk]) -> tuple[Skipped, ...]:
    """A trace behind the trace is not read, but told about."""
    after = chunks[-1].after if chunks else -1
    found = SECOND.search(source.data, after - 1) if after != -1 else None
    return (Skipped(found.start(1), "a second trace begins here"),) if found else ()


def _merge(tables: Sequence[tuple[list[Any], NDArray[np.int32]]]) -> tuple[Any, NDArray[np.int32]]:
    """Tables of each chunk and ids into them -> one table and ids into it."""
    merged = Interner()
    parts = [merged.ids(table)[ids] for table, ids in tables]
    return tuple(merged), _joined(parts, np.int32)


def _firsts(chunks: Sequence[Chunk]) -> list[int]:
    """The place in traceEvents of the first element of each chunk."""
    return list(accumulate((chunk.events for chunk in chunks), initial=0))[:-1]


def _global_orders(chunks: Sequence[Chunk]) -> list[NDArray[np.int64]]:
    return [c.columns.order + first for c, first in zip(chunks, _firsts(chunks), strict=True)]


def _global_marks(chunks: Sequence[Chunk]) -> Iterator[Mark]:
    for chunk, first in zip(chunks, _firsts(chunks), strict=True):
        for mark in chunk.columns.marks:
            yield msgspec.structs.replace(mark, order=mark.order + first)


def _joined(parts: Sequence[NDArray[Any]], dtype: type) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0, dtype=dtype)
