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

from fusetui.trace.model.arrays import Int32s, Int64s, each, prefix_sums
from fusetui.trace.model.errors import CannotReadError, NotATraceError
from fusetui.trace.model.events import EVERYWHERE, Stretch
from fusetui.trace.model.raw import Raw, Thread
from fusetui.trace.model.report import Prefix, Report, Skipped
from fusetui.trace.read.batch import MOST_LISTED
from fusetui.trace.read.body import Body, Keys, Tail, read_tail
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
    """Join the decoded chunks of a document into one set of columns.

    Args:
        source: The document. Raises CannotReadError if the columns would not fit into
            memory.
        body: Where its events begin, and the keys before them.
        chunks: The chunks in order, without a gap. May be empty.
        prefix: How much of the document the chunks are, if they are not all of it.

    Raises NotATraceError if the document has no events, or impossible times.
    """
    columns = [chunk.columns for chunk in chunks] or [gather([])]
    _check_memory(source.path, columns)
    tail = _read_tail(source, body, chunks)
    phases: Counter[str] = Counter()
    for part in columns:
        phases += part.phases
    if body.bare and not phases:
        raise _no_events_error(source.path, _list_unreadable(chunks, tail))

    first_events = _first_events(chunks)
    joined = _join_columns(columns, first_events)
    negative_durations = _raise_to_zero(joined["dur"])
    labels = tuple(chain.from_iterable(part.labels for part in columns))
    keys_after_events = tail.keys if tail else Keys()
    keys = {**body.head.values, **keys_after_events.values}
    report = msgspec.structs.replace(
        _count_elements(source, body, chunks, tail),
        phases=phases,
        complete=_is_complete(source, body, chunks, tail) and prefix is None,
        negative_durations=negative_durations,
        prefix=prefix,
        remarks=(JAX_REMARK,) if is_of_jax(keys, labels) else (),
    )
    raw = Raw(
        report=report,
        elements=Elements(text_of(source), [_make_stretch(chunk) for chunk in chunks]),
        labels=labels,
        keys=keys,
        **joined,
    )
    marks = _number_marks(columns, first_events)
    if marks:
        raw = with_pairs(raw, marks)
    check_durations(source.path, raw.dur)
    return raw


def _first_events(chunks: Sequence[Chunk]) -> Int64s:
    """Return the index in traceEvents of the first element of each chunk.

    Chunks of 100, 80 and 90 elements give [0, 100, 180]. Without chunks it is [0], for
    the empty columns that then stand for the document.
    """
    counts_before_last = [chunk.events for chunk in chunks[:-1]]
    return prefix_sums(np.array(counts_before_last, dtype=np.int64))


def _raise_to_zero(durations: Int64s) -> int:
    """Replace negative durations by zero, in place, and return how many there were."""
    negative = int((durations < 0).sum())
    np.maximum(durations, 0, out=durations)
    return negative


def _no_events_error(path: str, skipped: Sequence[Skipped]) -> NotATraceError:
    """Make the error that a JSON list has no events, with the place and the reason of
    the first element that is none."""
    why = ""
    if skipped:
        why = f": see byte {skipped[0].byte} ({skipped[0].reason})"
    return NotATraceError(f"{path} is a JSON list, but not of trace events{why}.")


def _count_elements(
    source: Source, body: Body, chunks: Sequence[Chunk], tail: Tail | None
) -> Report:
    """Count the elements of all chunks, and the unreadable ones among them.

    What only the slices tell is not in it yet: phases, completeness, negative
    durations.

    Args:
        source: The document.
        body: Where its events begin.
        chunks: The chunks in order.
        tail: What stands behind the events; None if their list is not closed.
    """
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
        skipped=_list_unreadable(chunks, tail)[:MOST_LISTED],
        complete=False,
        cut=source.cut,
        negative_durations=0,
        too_damaged=last.end if last and last.too_damaged else -1,
        damaged_keys=tuple(filter(None, damaged_keys)),
    )


def _number_marks(columns: Sequence[ChunkColumns], first_events: Int64s) -> list[Mark]:
    """Return the begin and end events of all chunks, numbered by traceEvents.

    A mark has the number of its element within the chunk. If the chunk begins with
    element 100, mark 7 becomes mark 107.

    Args:
        columns: The columns of each chunk.
        first_events: The index in traceEvents of the first element of each chunk.
    """
    marks: list[Mark] = []
    for part, first in zip(columns, first_events.tolist(), strict=True):
        for mark in part.marks:
            marks.append(msgspec.structs.replace(mark, order=mark.order + first))
    return marks


def _read_tail(source: Source, body: Body, chunks: Sequence[Chunk]) -> Tail | None:
    """Read what stands behind the events: keys, or what is not read. None if the list
    of events is not closed."""
    if not chunks or chunks[-1].after == -1:
        return None
    return read_tail(source.document, chunks[-1].after, body.bare)


def _list_unreadable(chunks: Sequence[Chunk], tail: Tail | None) -> tuple[Skipped, ...]:
    """The unreadable elements that are listed. Anything behind the events that is not
    read counts as one more."""
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
    """Tell whether the document ends as it should.

    An object has to be closed. The closing bracket of a plain list may be missing, as
    programs that append events leave it out and Chrome accepts it, if nothing in the
    last chunk is damaged.
    """
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
    """Raise NotATraceError if durations (ns) add up to more than MAX_DURATIONS_NS.

    Sums of them would not fit into 64 bits.
    """
    if float(dur.sum(dtype=np.float64)) > MAX_DURATIONS_NS:
        raise NotATraceError(
            f"{path} is not a trace of one run: its durations exceed 146 years."
        )


def _check_memory(path: str, columns: Sequence[ChunkColumns]) -> None:
    """Raise CannotReadError if the columns will not fit into memory.

    Otherwise the system would end the process, without a word. A trace takes about
    BYTES_PER_SLICE for each slice.
    """
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


def _join_columns(
    columns: Sequence[ChunkColumns], first_events: Int64s
) -> dict[str, Any]:
    """Concatenate the columns of all chunks, with one table of names for all.

    Args:
        columns: The columns of each chunk; at least one.
        first_events: The index in traceEvents of the first element of each chunk.

    Returns:
        The tables (`names`, `categories`, `threads`) and the columns, as Raw has them.
    """
    names, name = _merge_tables(columns, "names", "name")
    categories, category = _merge_tables(columns, "categories", "category")
    threads, thread = _merge_tables(columns, "threads", "thread")
    tasks = {}
    for column in COLUMNS_WITHOUT_TABLE:
        parts = [getattr(part, column) for part in columns]
        tasks[column] = partial(np.concatenate, parts)
    slice_counts = [len(part.start) for part in columns]
    joined = each(tasks, sum(slice_counts))
    # chunks number their elements from 0
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


def _merge_tables(
    columns: Sequence[ChunkColumns], table: str, column: str
) -> tuple[Any, Int32s]:
    """Merge the tables of all chunks, and renumber the column that points into them.

    The tables ("a", "b") and ("b", "c") with the columns [0, 1] and [0, 1] become the
    table ("a", "b", "c") and the column [0, 1, 1, 2].

    Args:
        columns: The columns of each chunk.
        table: The name of the table in ChunkColumns: "names".
        column: The name of the column that has indices into it: "name".
    """
    merged = Interner()
    parts = []
    for part in columns:
        new_numbers = merged.ids(getattr(part, table))
        parts.append(new_numbers[getattr(part, column)])
    return tuple(merged), np.concatenate(parts)


def _make_stretch(chunk: Chunk) -> Stretch:
    """Return what is remembered of a chunk, so that its events can be read again."""
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
    """Add the slices that are written as a begin event and an end event.

    Args:
        raw: The slices that are written as one event each.
        marks: The begins and ends, in any order.

    Returns:
        All slices: first those of `raw`, then the added ones in the order of their
        begins. The report counts begins without an end and ends without a begin.
    """
    paired = _pair_marks(marks)
    names = Interner.of(raw.names)
    categories = Interner.of(raw.categories)
    threads = Interner.of(raw.threads)
    added_columns = _columns_of_pairs(paired.pairs, names, categories, threads)
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


def _columns_of_pairs(
    pairs: Sequence[Pair], names: Interner, categories: Interner, threads: Interner
) -> dict[str, NDArray[Any]]:
    """Return the columns of Raw for these slices.

    Args:
        pairs: The slices.
        names: The table of names, which new names are added to; likewise the others.
        categories: The table of categories.
        threads: The table of threads.
    """
    begins = [pair.begin for pair in pairs]
    durations = [pair.end_ns - pair.begin.time for pair in pairs]
    unknown = np.full(len(begins), -1, np.int64)
    return {
        "start": np.array([begin.time for begin in begins], np.int64),
        "dur": np.array(durations, np.int64),
        "name": names.ids(begin.name for begin in begins),
        "category": categories.ids(begin.category for begin in begins),
        "thread": threads.ids((*_lane_of_pair(begin), None) for begin in begins),
        "correlation": unknown,
        "external_id": unknown,
        "order": np.array([begin.order for begin in begins], np.int64),
    }


def _pair_marks(marks: Sequence[Mark]) -> _PairedMarks:
    """Pair each end event with its begin event.

    An end closes the last open begin that has the same `_pairing_key`, as brackets do:
    B at 10, B at 20, E at 30, E at 40 on one thread are the slices 10 to 40 and 20 to
    30. A begin without an end is a slice up to the last mark of the file.

    Args:
        marks: The begins and ends in any order, at least one. Their times decide.
    """
    open_marks: dict[tuple[object, ...], list[Mark]] = {}
    pairs: list[Pair] = []
    unmatched_ends = 0
    for mark in sorted(marks, key=lambda mark: (mark.time, mark.order)):
        stack = open_marks.setdefault(_pairing_key(mark), [])
        is_begin = mark.phase not in BEGIN_OF
        if is_begin:
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
    """Return what a begin event and its end event have in common.

    B and E have their thread; b and e their category, id, process and name; the old S
    and F the same without the name, which only S has.
    """
    kind = BEGIN_OF.get(mark.phase, mark.phase)
    if kind == "B":
        return kind, mark.thread
    process = mark.thread[0]
    name = mark.name if kind == "S" else ""
    return kind, mark.category, mark.key, process, name


def _lane_of_pair(begin: Mark) -> Thread:
    """Return the process and the lane of a slice that begins with this event.

    Slices with an id (phases b and S) may overlap those of their thread without
    nesting, so they get a lane of their own: `cuda (async)`, by their category.
    """
    if begin.phase == "B":
        return begin.thread
    process = begin.thread[0]
    return process, f"{begin.category or begin.name} (async)"
