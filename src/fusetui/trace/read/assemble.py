"""Joins the chunks of a document, in order, into one set of columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.arrays import Int32s, Int64s, each
from fusetui.trace.model.errors import CannotReadError, NotATraceError
from fusetui.trace.model.events import EVERYWHERE, Stretch
from fusetui.trace.model.raw import Raw, Thread
from fusetui.trace.model.report import Prefix, Report, Skipped
from fusetui.trace.read.batch import MOST_LISTED
from fusetui.trace.read.body import Body, Keys, tail_of
from fusetui.trace.read.chunks import CUT_SHORT, Chunk
from fusetui.trace.read.document_text import text_of
from fusetui.trace.read.elements import Elements
from fusetui.trace.read.events import PHASES_OF_SAMPLES
from fusetui.trace.read.foreign import JAX_REMARK, is_of_jax
from fusetui.trace.read.gather import ChunkColumns, Interner, Mark, gather
from fusetui.trace.read.memory import memory_left
from fusetui.trace.read.source import Source

BYTES_A_SLICE = 200  # bytes of memory, in addition to the chunks
MANY = 1_000_000  # slices; fewer always fit
LONGEST_SUM_NS = 2.0**62
"""In ns (146 years). A larger sum of durations does not fit the figures, and no trace
has it."""


# columns of all chunks
UNTRANSLATED = ("start", "dur", "correlation", "external_id", "order")
# Phases that end a slice, with those that begin one
ENDS = {"E": "B", "e": "b", "F": "S"}


def assemble(
    source: Source, body: Body, chunks: Sequence[Chunk], prefix: Prefix | None = None
) -> Raw:
    """Raises NotATraceError if it is none, and CannotReadError if memory does not
    suffice.

    `prefix` is given if chunks are missing.
    """
    columns = [chunk.columns for chunk in chunks] or [gather([])]
    _check_memory(source.path, columns)
    last = chunks[-1] if chunks else None
    closed = last is not None and last.after != -1
    tail = tail_of(source.document, last.after, body.bare) if last and closed else None
    after = tail.keys if tail else Keys()
    unread = (Skipped(tail.unread, tail.what),) if tail and tail.unread >= 0 else ()
    events = sum(chunk.events for chunk in chunks) + len(unread)
    phases = sum((c.phases for c in columns), Counter[str]())
    skipped = (*chain.from_iterable(chunk.skipped for chunk in chunks), *unread)
    if body.bare and not phases:
        why = f": see byte {skipped[0].byte} ({skipped[0].reason})" if skipped else ""
        raise NotATraceError(
            f"{source.path} is a JSON list, but not of trace events{why}."
        )
    names, name = _merge(columns, "names", "name")
    categories, category = _merge(columns, "categories", "category")
    threads, thread = _merge(columns, "threads", "thread")
    parts = {key: [getattr(c, key) for c in columns] for key in UNTRANSLATED}
    work = {key: partial(np.concatenate, part) for key, part in parts.items()}
    joined = each(work, sum(map(len, parts["start"])))
    dur, order = joined["dur"], joined["order"]
    firsts = np.cumsum([0, *(chunk.events for chunk in chunks[:-1])])  # in traceEvents
    order += np.repeat(firsts, [len(c.order) for c in columns])
    # or closed
    whole = body.bare and not (last and (last.unreadable or last.too_damaged))
    labels = tuple(label for c in columns for label in c.labels)
    keys = {**body.head.values, **after.values}
    report = Report(
        path=source.path,
        bytes=source.size,
        events=events,
        phases=phases,
        unreadable=sum(chunk.unreadable for chunk in chunks) + len(unread),
        skipped=skipped[:MOST_LISTED],
        complete=(tail.closed if tail else whole)
        and not _ends_within_element(last)
        and source.cut is None
        and prefix is None,
        cut=source.cut,
        negative_durations=int((dur < 0).sum()),
        prefix=prefix,
        too_damaged=last.end if last and last.too_damaged else -1,
        damaged_keys=tuple(filter(None, (body.head.damaged, after.damaged))),
        remarks=(JAX_REMARK,) if is_of_jax(keys, labels) else (),
    )
    raw = Raw(
        report=report,
        elements=Elements(text_of(source), [_stretch(chunk) for chunk in chunks]),
        names=names,
        categories=categories,
        threads=threads,
        labels=labels,
        start=joined["start"],
        dur=np.maximum(dur, 0, out=dur),
        name=name,
        category=category,
        thread=thread,
        correlation=joined["correlation"],
        external_id=joined["external_id"],
        order=order,
        keys=keys,
    )
    marks = [
        msgspec.structs.replace(mark, order=mark.order + first)
        for chunk, first in zip(columns, firsts.tolist(), strict=True)
        for mark in chunk.marks
    ]
    raw = with_pairs(raw, marks) if marks else raw
    check_durations(source.path, raw.dur)
    return raw


def _ends_within_element(last: Chunk | None) -> bool:
    """Whether the file seems to end within an element, whatever looks like the end of
    the list in it."""
    return bool(last and last.skipped and last.skipped[-1].reason == CUT_SHORT)


def check_durations(path: str, dur: Int64s) -> None:
    """Raises NotATraceError if their sum (ns) is larger than that of any trace."""
    if float(dur.sum(dtype=np.float64)) > LONGEST_SUM_NS:
        raise NotATraceError(
            f"{path} is not a trace of one run: its durations exceed 146 years."
        )


def _check_memory(path: str, columns: Sequence[ChunkColumns]) -> None:
    """Raises CannotReadError if memory does not suffice, rather than being killed by
    the system."""
    rows = sum(len(part.start) for part in columns)
    needed = rows * BYTES_A_SLICE
    if rows > MANY and needed > (left := memory_left()):
        raise CannotReadError(
            f"{path} has {rows:,} slices, which take {needed / 1e9:.1f} GB of memory, and "
            f"{left / 1e9:.1f} GB are left."
        )


def with_pairs(raw: Raw, marks: Sequence[Mark]) -> Raw:
    """The slices that are written as two events, after the others, in the order of
    their begins.

    B and E are paired per thread like brackets; the others by category and id. They are
    taken in time order, so the order in the file does not matter. One without an end is
    shown up to the last mark; its args are those of its begin.
    """
    stacks: dict[tuple[object, ...], list[Mark]] = {}
    pairs: list[tuple[Mark, int]] = []
    unmatched = 0
    for mark in sorted(marks, key=lambda m: (m.time, m.order)):
        stack = stacks.setdefault(_key(mark), [])
        if mark.phase not in ENDS:
            stack.append(mark)
        elif stack:
            pairs.append((stack.pop(), mark.time))
        else:
            unmatched += 1
    last = max(mark.time for mark in marks)
    still_open = [(mark, last) for mark in chain.from_iterable(stacks.values())]
    pairs = sorted([*pairs, *still_open], key=lambda pair: pair[0].order)
    counts = {"unfinished": len(still_open), "unmatched_ends": unmatched}
    begins = [begin for begin, _ in pairs]
    names, categories, threads = (
        Interner({key: n for n, key in enumerate(table)})
        for table in (raw.names, raw.categories, raw.threads)
    )
    more: dict[str, NDArray[Any]] = {
        "start": np.array([begin.time for begin in begins], np.int64),
        "dur": np.array([end - begin.time for begin, end in pairs], np.int64),
        "name": names.ids(begin.name for begin in begins),
        "category": categories.ids(begin.category for begin in begins),
        "thread": threads.ids((*_thread(begin), None) for begin in begins),
        "correlation": np.full(len(pairs), -1, np.int64),
        "external_id": np.full(len(pairs), -1, np.int64),
        "order": np.array([begin.order for begin in begins], np.int64),
    }
    return msgspec.structs.replace(
        raw,
        **{
            name: np.concatenate([getattr(raw, name), new])
            for name, new in more.items()
        },
        names=tuple(names),
        categories=tuple(categories),
        threads=tuple(threads),
        report=msgspec.structs.replace(raw.report, **counts),
    )


def _key(mark: Mark) -> tuple[object, ...]:
    kind = ENDS.get(mark.phase, mark.phase)
    if kind == "B":
        return kind, mark.thread
    return (
        kind,
        mark.category,
        mark.key,
        mark.thread[0],
        mark.name if kind == "S" else "",
    )


def _thread(begin: Mark) -> Thread:
    """Slices with an id may cross those of their thread, so they get a lane of their
    own."""
    pid, tid = begin.thread
    return (
        (pid, tid)
        if begin.phase == "B"
        else (pid, f"{begin.category or begin.name} (async)")
    )


def _stretch(chunk: Chunk) -> Stretch:
    samples = sum(chunk.columns.phases[phase] for phase in PHASES_OF_SAMPLES)
    is_good = chunk.places is None and not chunk.unreadable
    reach = chunk.columns.reach if is_good else EVERYWHERE
    return Stretch(chunk.start, chunk.end, chunk.events, samples, chunk.places, reach)


def _merge(
    columns: Sequence[ChunkColumns], table: str, column: str
) -> tuple[Any, Int32s]:
    """Merges the tables of all chunks: one table, and the ids into it."""
    merged = Interner()
    parts = [
        merged.ids(getattr(part, table))[getattr(part, column)] for part in columns
    ]
    return tuple(merged), np.concatenate(parts)
