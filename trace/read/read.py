"""Puts the chunks of a document together into one set of columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.errors import NotATrace
from fusetui.trace.read.chunks import CHUNK, Chunk, Skipped, cut_points, read_chunk
from fusetui.trace.read.document import Body, find_body, tail_keys
from fusetui.trace.read.elements import Elements, Stretch
from fusetui.trace.read.gather import Interner, Label, Thread
from fusetui.trace.read.parallel import decode_all
from fusetui.trace.read.source import Source, open_source

Progress = Callable[[int, int], None]
"""Called with (bytes read, bytes in all) after each chunk."""


@dataclass(frozen=True, eq=False)
class Raw:
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


def read(path: str, progress: Progress | None = None) -> Raw:
    """Read a trace file. Raises CannotRead or NotATrace with one plain sentence."""
    source = open_source(path)
    body = find_body(source)
    chunks = read_chunks(source.data, body.start, progress)
    return _assemble(source, body, chunks)


def read_chunks(
    data: Any, start: int, progress: Progress | None = None, size: int = CHUNK
) -> list[Chunk]:
    """All chunks from the byte after the opening bracket to the end of the array.

    Chunks are decoded in any order, then put together in order: where one does not decode, or the
    one before overran its end, the events are read one by one until both agree again.
    """
    points = cut_points(data, start, size)
    cuts = list(pairwise(points))
    report = progress or _silent
    decoded = decode_all(data, cuts[:-1], lambda byte: report(byte, len(data)))
    chunks: list[Chunk] = []
    position = start
    for (begin, end), chunk in zip_longest(cuts, decoded):
        if position >= end:
            continue
        if chunk is None or position != begin:
            chunk = read_chunk(data, position, end)
        chunks.append(chunk)
        position = chunk.end
        if chunk.after != -1:
            break
    report(len(data), len(data))
    return chunks


def _silent(done: int, total: int) -> None:
    """Nobody wants to know."""


def _assemble(source: Source, body: Body, chunks: Sequence[Chunk]) -> Raw:
    columns = [chunk.columns for chunk in chunks]
    events = sum(chunk.events for chunk in chunks)
    phases = sum((c.phases for c in columns), Counter[str]())
    skipped = tuple(skip for chunk in chunks for skip in chunk.skipped)
    if body.bare and events == len(skipped):
        raise NotATrace(f"{source.path} is a JSON list, but not of trace events.")
    keys, complete = _tail(source, body, chunks)
    names, name = _merge([(c.names, c.name) for c in columns])
    categories, category = _merge([(c.categories, c.category) for c in columns])
    threads, thread = _merge([(c.threads, c.thread) for c in columns])
    dur = _joined([c.dur for c in columns], np.int64)
    return Raw(
        source=source,
        elements=Elements(source.data, [_stretch(chunk) for chunk in chunks]),
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
        order=_joined(_global_orders(chunks), np.int64),
        keys={**body.head, **keys},
        events=events,
        skipped=skipped,
        complete=complete and source.cut is None,
        negative=int((dur < 0).sum()),
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


def _merge(tables: Sequence[tuple[list[Any], NDArray[np.int32]]]) -> tuple[Any, NDArray[np.int32]]:
    """Tables of each chunk and ids into them -> one table and ids into it."""
    merged = Interner()
    parts = [merged.ids(table)[ids] for table, ids in tables]
    return tuple(merged), _joined(parts, np.int32)


def _global_orders(chunks: Sequence[Chunk]) -> list[NDArray[np.int64]]:
    orders: list[NDArray[np.int64]] = []
    before = 0
    for chunk in chunks:
        orders.append(chunk.columns.order + before)
        before += chunk.events
    return orders


def _joined(parts: Sequence[NDArray[Any]], dtype: type) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0, dtype=dtype)
