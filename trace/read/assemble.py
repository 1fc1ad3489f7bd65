"""The chunks of a document, in order -> one set of columns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.errors import NotATrace
from fusetui.trace.read.chunks import Chunk, Skipped
from fusetui.trace.read.document import Body, tail_keys
from fusetui.trace.read.elements import Elements, Stretch
from fusetui.trace.read.events import PHASES_OF_SAMPLES
from fusetui.trace.read.gather import ChunkColumns, Interner, Label, Mark, Thread
from fusetui.trace.read.pairs import Pairs, pair
from fusetui.trace.read.source import Source
from fusetui.trace.read.text import text_of
from fusetui.trace.read.watch import Part
from fusetui.trace.threads import each

SECOND = re.compile(rb'[\]}]\s*([\[{]\s*(?:\{|"[^"]*"\s*:))')


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
    part: Part | None  # what was read, when it was not read to its end
    negative: int  # durations below zero, shown as zero
    unfinished: int  # begin events (ph B, b, S) without an end
    unmatched: int  # end events without a begin


def assemble(source: Source, body: Body, chunks: Sequence[Chunk], part: Part | None = None) -> Raw:
    """Raises NotATrace for a list of other things. `part` is told when chunks are missing."""
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
    joined = _joined_columns(columns)
    dur = joined["dur"]
    negative = int((dur < 0).sum())
    raw = Raw(
        source=source,
        elements=Elements(text_of(source), [_stretch(chunk) for chunk in chunks]),
        phases=phases,
        names=names,
        categories=categories,
        threads=threads,
        labels=tuple(label for c in columns for label in c.labels),
        start=joined["start"],
        dur=np.maximum(dur, 0, out=dur),
        name=name,
        category=category,
        thread=thread,
        correlation=joined["correlation"],
        external_id=joined["external_id"],
        order=_global_order(chunks),
        keys={**body.head, **keys},
        events=events,
        skipped=skipped,
        complete=complete and source.cut is None and part is None,
        part=part,
        negative=negative,
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
    samples = sum(chunk.columns.phases[phase] for phase in PHASES_OF_SAMPLES)
    return Stretch(chunk.start, chunk.end, chunk.events, chunk.places, samples)


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


def _joined_columns(columns: Sequence[ChunkColumns]) -> dict[str, NDArray[Any]]:
    """The int64 columns of all chunks that mean the same everywhere."""

    def joined(name: str) -> NDArray[Any]:
        return _joined([getattr(part, name) for part in columns], np.int64)

    rows = sum(len(part.start) for part in columns)
    names = ("start", "dur", "correlation", "external_id")
    return each({name: partial(joined, name) for name in names}, rows)


def _global_order(chunks: Sequence[Chunk]) -> NDArray[np.int64]:
    order = _joined([chunk.columns.order for chunk in chunks], np.int64)
    end = 0
    for chunk, first in zip(chunks, _firsts(chunks), strict=True):
        begin, end = end, end + len(chunk.columns.order)
        order[begin:end] += first
    return order


def _global_marks(chunks: Sequence[Chunk]) -> Iterator[Mark]:
    for chunk, first in zip(chunks, _firsts(chunks), strict=True):
        for mark in chunk.columns.marks:
            yield msgspec.structs.replace(mark, order=mark.order + first)


def _joined(parts: Sequence[NDArray[Any]], dtype: type) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0, dtype=dtype)
