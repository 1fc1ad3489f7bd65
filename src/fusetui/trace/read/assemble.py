"""Joins the chunks of a document, in order, into a single set of columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.arrays import Int32s, Int64s, each
from fusetui.trace.model.errors import CannotReadError, NotATraceError
from fusetui.trace.model.events import EVERYWHERE, Stretch
from fusetui.trace.model.raw import Raw, Thread
from fusetui.trace.model.report import Prefix, Report, Skipped
from fusetui.trace.read.batch import MOST_LISTED
from fusetui.trace.read.body import Body, Keys, Tail, tail_of
from fusetui.trace.read.chunks import CUT_SHORT, Chunk
from fusetui.trace.read.document_text import text_of
from fusetui.trace.read.elements import Elements
from fusetui.trace.read.events import PHASES_OF_SAMPLES
from fusetui.trace.read.foreign import JAX_REMARK, is_of_jax
from fusetui.trace.read.gather import ChunkColumns, Interner, Mark, gather
from fusetui.trace.read.memory import memory_left
from fusetui.trace.read.source import Source

BYTES_PER_SLICE = 200  # of memory, in addition to the chunks
MIN_CHECKED_SLICES = 1_000_000  # fewer always fit into memory
MAX_DURATIONS_NS = 2.0**62
"""146 years. A larger sum of durations does not fit the figures, and no trace has
it."""

COLUMNS_WITHOUT_TABLE = ("start", "dur", "correlation", "external_id", "order")
BEGIN_OF = {"E": "B", "e": "b", "F": "S"}
"""Phases that end a slice, with those that begin one."""


def assemble(
    source: Source, body: Body, chunks: Sequence[Chunk], prefix: Prefix | None = None
) -> Raw:
    """Raises NotATraceError if it is none, and CannotReadError if memory does not suffice.

    `prefix` is given if chunks are missing.
    """
    columns = [chunk.columns for chunk in chunks] or [gather([])]
    _check_memory(source.path, columns)
    tail = _tail(source, body, chunks)
    phases = sum((part.phases for part in columns), Counter[str]())
    if body.bare and not phases:
        raise _not_of_events(source.path, _skipped(chunks, tail))

    first_events = np.cumsum([0, *(chunk.events for chunk in chunks[:-1])])
    joined = _joined(columns, first_events)
    dur = joined["dur"]
    negative_durations = int((dur < 0).sum())
    np.maximum(dur, 0, out=dur)
    labels = tuple(chain.from_iterable(part.labels for part in columns))
    keys_after = tail.keys if tail else Keys()
    keys = {**body.head.values, **keys_after.values}
    report = msgspec.structs.replace(
        _report(source, body, chunks, tail),
        phases=phases,
        complete=_is_complete(source, body, chunks, tail) and prefix is None,
        negative_durations=negative_durations,
        prefix=prefix,
        remarks=(JAX_REMARK,) if is_of_jax(keys, labels) else (),
    )
    raw = Raw(
        report=report,
        elements=Elements(text_of(source), [_stretch(chunk) for chunk in chunks]),
        labels=labels,
        keys=keys,
        **joined,
    )
    marks = _marks(columns, first_events)
    if marks:
        raw = with_pairs(raw, marks)
    check_durations(source.path, raw.dur)
    return raw


def _not_of_events(path: str, skipped: Sequence[Skipped]) -> NotATraceError:
    """That a JSON list has no events, with the first reason why."""
    why = ""
    if skipped:
        why = f": see byte {skipped[0].byte} ({skipped[0].reason})"
    return NotATraceError(f"{path} is a JSON list, but not of trace events{why}.")


def _report(
    source: Source, body: Body, chunks: Sequence[Chunk], tail: Tail | None
) -> Report:
    """The counts of the elements of all chunks; `assemble` adds those of slices."""
    last = chunks[-1] if chunks else None
    unread = _count_of_unread(tail)
    events = sum(chunk.events for chunk in chunks) + unread
    unreadable = sum(chunk.unreadable for chunk in chunks) + unread
    damaged_keys = [body.head.damaged, tail.keys.damaged if tail else ""]
    return Report(
        path=source.path,
        bytes=source.size,
        events=events,
        phases=Counter(),
        unreadable=unreadable,
        skipped=_skipped(chunks, tail)[:MOST_LISTED],
        complete=False,
        cut=source.cut,
        negative_durations=0,
        too_damaged=last.end if last and last.too_damaged else -1,
        damaged_keys=tuple(filter(None, damaged_keys)),
    )


def _marks(columns: Sequence[ChunkColumns], first_events: Int64s) -> list[Mark]:
    """The begins and ends of all chunks, by their index in traceEvents; `first_events`
    has that of the first element of each chunk."""
    marks: list[Mark] = []
    for part, first in zip(columns, first_events.tolist(), strict=True):
        for mark in part.marks:
            marks.append(msgspec.structs.replace(mark, order=mark.order + first))
    return marks


def _tail(source: Source, body: Body, chunks: Sequence[Chunk]) -> Tail | None:
    """What stands behind the events; None if their list is not closed."""
    if not chunks or chunks[-1].after == -1:
        return None
    return tail_of(source.document, chunks[-1].after, body.bare)


def _skipped(chunks: Sequence[Chunk], tail: Tail | None) -> tuple[Skipped, ...]:
    """The unreadable elements that are listed. What is not read behind the events
    counts as one more element."""
    skipped = list(chain.from_iterable(chunk.skipped for chunk in chunks))
    if tail and _count_of_unread(tail):
        skipped.append(Skipped(byte=tail.unread, reason=tail.what))
    return tuple(skipped)


def _count_of_unread(tail: Tail | None) -> int:
    """1 if something behind the events is not read, else 0."""
    return 1 if tail and tail.unread >= 0 else 0


def _is_complete(
    source: Source, body: Body, chunks: Sequence[Chunk], tail: Tail | None
) -> bool:
    """Whether the document ends as it should, and is not cut. The closing bracket of a
    bare list may be missing, as Chrome accepts it."""
    if source.cut is not None:
        return False
    last = chunks[-1] if chunks else None
    if last and last.skipped and last.skipped[-1].reason == CUT_SHORT:
        # It seems to end within an element, whatever looks like the end of the list.
        return False
    if tail:
        return tail.closed
    is_damaged = last is not None and bool(last.unreadable or last.too_damaged)
    return body.bare and not is_damaged


def check_durations(path: str, dur: Int64s) -> None:
    """Raises NotATraceError if their sum (ns) is larger than that of any trace."""
    if float(dur.sum(dtype=np.float64)) > MAX_DURATIONS_NS:
        raise NotATraceError(
            f"{path} is not a trace of one run: its durations exceed 146 years."
        )


def _check_memory(path: str, columns: Sequence[ChunkColumns]) -> None:
    """Raises CannotReadError if memory does not suffice, rather than being killed by the
    system."""
    slices = sum(len(part.start) for part in columns)
    if slices <= MIN_CHECKED_SLICES:
        return
    needed = slices * BYTES_PER_SLICE
    left = memory_left()
    if needed > left:
        raise CannotReadError(
            f"{path} has {slices:,} slices, which take {needed / 1e9:.1f} GB of memory, "
            f"and {left / 1e9:.1f} GB are left."
        )


def _joined(columns: Sequence[ChunkColumns], first_events: Int64s) -> dict[str, Any]:
    """The tables and the columns of all chunks as one each, by their names in Raw.
    `first_events`: the index in traceEvents of the first element of each chunk."""
    names, name = _merged(columns, "names", "name")
    categories, category = _merged(columns, "categories", "category")
    threads, thread = _merged(columns, "threads", "thread")
    tasks = {}
    for column in COLUMNS_WITHOUT_TABLE:
        parts = [getattr(part, column) for part in columns]
        tasks[column] = partial(np.concatenate, parts)
    slice_counts = [len(part.start) for part in columns]
    joined = each(tasks, sum(slice_counts))
    joined["order"] += np.repeat(first_events, slice_counts)
    return {
        "names": names,
        "name": name,
        "categories": categories,
        "category": category,
        "threads": threads,
        "thread": thread,
        **joined,
    }


def _merged(
    columns: Sequence[ChunkColumns], table: str, column: str
) -> tuple[Any, Int32s]:
    """One table from those of all chunks, and a column of numbers into it."""
    merged = Interner()
    parts = []
    for part in columns:
        new_numbers = merged.ids(getattr(part, table))
        parts.append(new_numbers[getattr(part, column)])
    return tuple(merged), np.concatenate(parts)


def _stretch(chunk: Chunk) -> Stretch:
    """What is remembered of a chunk, to find its events again."""
    is_list = chunk.places is None and not chunk.unreadable
    return Stretch(
        start=chunk.start,
        end=chunk.end,
        events=chunk.events,
        samples=sum(chunk.columns.phases[phase] for phase in PHASES_OF_SAMPLES),
        places=chunk.places,
        reach=chunk.columns.reach if is_list else EVERYWHERE,
    )


# Slices that are written as two events


class Pair(NamedTuple):
    """A slice that is written as two events."""

    begin: Mark
    end_ns: int


class _PairedMarks(NamedTuple):
    """The slices of begins and ends."""

    pairs: list[Pair]  # in the order of their begins
    unfinished: int  # those without an end
    unmatched_ends: int


def with_pairs(raw: Raw, marks: Sequence[Mark]) -> Raw:
    """`raw` with the slices that are written as two events, after the others, in the
    order of their begins."""
    paired = _paired(marks)
    begins = [pair.begin for pair in paired.pairs]
    durations = [pair.end_ns - pair.begin.time for pair in paired.pairs]
    none = np.full(len(begins), -1, np.int64)
    names = Interner.of(raw.names)
    categories = Interner.of(raw.categories)
    threads = Interner.of(raw.threads)
    added_columns: dict[str, NDArray[Any]] = {
        "start": np.array([begin.time for begin in begins], np.int64),
        "dur": np.array(durations, np.int64),
        "name": names.ids(begin.name for begin in begins),
        "category": categories.ids(begin.category for begin in begins),
        "thread": threads.ids((*_thread(begin), None) for begin in begins),
        "correlation": none,
        "external_id": none,
        "order": np.array([begin.order for begin in begins], np.int64),
    }
    columns: dict[str, NDArray[Any]] = {}
    for name, added in added_columns.items():
        columns[name] = np.concatenate([getattr(raw, name), added])
    report = msgspec.structs.replace(
        raw.report,
        unfinished=paired.unfinished,
        unmatched_ends=paired.unmatched_ends,
    )
    return msgspec.structs.replace(
        raw,
        report=report,
        names=tuple(names),
        categories=tuple(categories),
        threads=tuple(threads),
        **columns,
    )


def _paired(marks: Sequence[Mark]) -> _PairedMarks:
    """The slices of these marks.

    B and E are paired per thread like brackets; the others by category and id. They are
    taken in time order, so the order in the file does not matter. One without an end is
    shown up to the last mark; its args are those of its begin.
    """
    open_marks: dict[tuple[object, ...], list[Mark]] = {}
    pairs: list[Pair] = []
    unmatched_ends = 0
    for mark in sorted(marks, key=lambda mark: (mark.time, mark.order)):
        stack = open_marks.setdefault(_pairing_key(mark), [])
        if mark.phase not in BEGIN_OF:
            stack.append(mark)
        elif stack:
            pairs.append(Pair(begin=stack.pop(), end_ns=mark.time))
        else:
            unmatched_ends += 1
    unfinished = list(chain.from_iterable(open_marks.values()))
    last_ns = max(mark.time for mark in marks)
    pairs += [Pair(begin=mark, end_ns=last_ns) for mark in unfinished]
    pairs.sort(key=lambda pair: pair.begin.order)
    return _PairedMarks(
        pairs=pairs, unfinished=len(unfinished), unmatched_ends=unmatched_ends
    )


def _pairing_key(mark: Mark) -> tuple[object, ...]:
    """What a begin and its end have in common."""
    kind = BEGIN_OF.get(mark.phase, mark.phase)
    if kind == "B":
        return kind, mark.thread
    process = mark.thread[0]
    name = mark.name if kind == "S" else ""
    return kind, mark.category, mark.key, process, name


def _thread(begin: Mark) -> Thread:
    """The lane of a slice. Slices with an id may cross those of their thread, so they
    get a lane of their own."""
    if begin.phase == "B":
        return begin.thread
    process = begin.thread[0]
    return process, f"{begin.category or begin.name} (async)"
