"""What threads do that others wait for, or that waits for others: calls that launch
work or wait for the device, and handoffs between the thread of a program and those that
run backward.

Backward is run by threads of the engine while the thread that asked for it records no
op. Such a stretch is no time of its own: the engine begins when it does, and it goes on
when they have ended.

A thread that asks a data loader with workers for a batch waits until that is ready, or
not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.loaders import (
    loader_rows,
    waits_for_batches,
    worker_rows,
)
from fusetui.analysis.replay.graph import Node
from fusetui.analysis.why.backward_threads import (
    MIN_SHARE_APART,
    asking_threads,
    outermost_work,
)
from fusetui.analysis.why.thread_activity import ThreadActivity, activities
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.layout.steps import steps_of
from fusetui.trace.model.arrays import Int64s, Rows, distinct
from fusetui.trace.model.categories import CPU_LAYERS, Layer, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import Cover, outside, union

FREES = lazy_pattern(r"\A(?:cuda|hip)Free\Z")  # waits for the device
HANDING_NS = 10_000_000
"""Taking over a batch that is ready may take so long (ns): its tensors are opened one
by one. What a call takes beyond that is waiting."""
NO_ROW = -1


class ThreadCuts(msgspec.Struct, frozen=True, eq=False):
    """What cuts the time of threads, by thread and time, disjoint; arrays of shape
    [cuts], times in ns of the file."""

    threads: Rows  # as in Trace.thread_of_track; shape [threads]
    first: Int64s  # when each begins and ends
    last: Int64s
    bounds: Rows  # where the cuts of each begin, then their number
    begin: Int64s
    end: Int64s
    kind: NDArray[np.uint8]
    row: Rows  # of the call, -1: none
    # of each call the cut that it is, or is part of, else -1; shape [slices]
    cut_of_row: Rows
    # the cuts in which a thread waits for another one, in which that waits for being
    # asked, and with which it has ended; shape [3, handoffs]
    handoffs: Rows
    # the cuts in which a thread waits for workers that load batches, in order
    batches: Rows


class _Cuts(NamedTuple):
    """Cuts that may overlap; arrays of shape [cuts]."""

    thread: NDArray[np.integer]
    begin: Int64s
    end: Int64s
    kind: NDArray[np.integer]
    row: NDArray[np.integer]

    def __len__(self) -> int:
        return len(self.thread)

    def take(self, places: Rows) -> _Cuts:
        return _Cuts(
            thread=self.thread[places],
            begin=self.begin[places],
            end=self.end[places],
            kind=self.kind[places],
            row=self.row[places],
        )


class _Handoffs(NamedTuple):
    """What threads of the engine do while the threads that asked for it do nothing;
    arrays of shape [handoffs], times in ns."""

    asking: Int64s
    engine: Int64s
    idle_since: Int64s
    begin: Int64s
    end: Int64s

    def __len__(self) -> int:
        return len(self.asking)


class _Groups(NamedTuple):
    """Cuts of one thread that overlap are one group. Arrays of shape [groups], by
    thread and time, but the last."""

    thread: NDArray[np.integer]
    begin: Int64s
    end: Int64s
    kind: NDArray[np.uint8]
    row: Rows
    of_cut: Rows  # the group of each cut, -1: of another thread; shape [cuts]


def thread_cuts_of(trace: Trace) -> ThreadCuts:
    """The threads that launch work, or run what those ask for; without a GPU, the
    busiest."""
    launches = distinct(trace.launch[trace.gpu_rows]).astype(np.intp)
    launches = launches[launches >= 0]
    threads = _launching_threads(trace, launches)
    handoffs = _handoffs(trace, threads)
    threads = distinct(np.concatenate((threads, handoffs.asking, handoffs.engine)))
    threads = threads.astype(np.intp)

    # the first ones are found again by their places: batches, then handoffs
    batch_cuts = _batch_cuts(trace)
    sources = [
        batch_cuts,
        *_handoff_cuts(handoffs),
        *_call_cuts(trace, launches),
        *_marks(trace),
    ]
    cuts = _concatenated(sources)
    groups = _grouped(cuts, threads)
    bounds = np.searchsorted(groups.thread, np.append(threads, threads[-1:] + 1))

    cut_of_row = np.full(len(trace) + 1, -1, dtype=np.intp)  # the last is of NO_ROW
    cut_of_row[cuts.row] = groups.of_cut
    handoff_end = len(batch_cuts) + 3 * len(handoffs)
    of_handoffs = groups.of_cut[len(batch_cuts) : handoff_end].reshape(3, -1)
    batches = distinct(groups.of_cut[: len(batch_cuts)])
    batches = batches[(batches >= 0) & ~np.isin(batches, of_handoffs)]
    # of another kind is a wait in which a call lies
    batches = batches[groups.kind[batches] == Node.HANDOFF]

    first, last = _lifetimes(trace, threads, engines=set(handoffs.engine.tolist()))
    for place, (first_cut, next_cut) in enumerate(pairwise(bounds.tolist())):
        if next_cut > first_cut:
            first[place] = min(first[place], groups.begin[first_cut])
            last[place] = max(last[place], groups.end[next_cut - 1])
    return ThreadCuts(
        threads=threads,
        first=first,
        last=last,
        bounds=bounds,
        begin=groups.begin,
        end=groups.end,
        kind=groups.kind,
        row=groups.row,
        cut_of_row=cut_of_row[:-1],
        handoffs=of_handoffs,
        batches=batches,
    )


def _grouped(cuts: _Cuts, threads: Rows) -> _Groups:
    """The cuts of some threads in groups, of which the largest kind of node counts, of
    equal ones the first."""
    order = np.lexsort((cuts.end, cuts.begin, cuts.thread))
    order = order[np.isin(cuts.thread[order], threads)]
    sorted_cuts = cuts.take(order)
    group = _overlapping(sorted_cuts)
    first_of_group = np.flatnonzero(np.diff(group, prepend=-1))
    by_importance = np.lexsort((-sorted_cuts.kind, group))
    most_important = by_importance[first_of_group]
    end = sorted_cuts.end
    if len(first_of_group):
        end = np.maximum.reduceat(end, first_of_group)
    group_of_cut = np.full(len(cuts), -1, dtype=np.intp)
    group_of_cut[order] = group
    return _Groups(
        thread=sorted_cuts.thread[first_of_group],
        begin=sorted_cuts.begin[first_of_group],
        end=end,
        kind=sorted_cuts.kind[most_important].astype(np.uint8),
        row=sorted_cuts.row[most_important].astype(np.intp),
        of_cut=group_of_cut,
    )


def _launching_threads(trace: Trace, launches: Rows) -> Rows:
    if not len(launches):
        return _busiest(trace)
    return distinct(trace.thread_of_track[trace.track[launches]]).astype(np.intp)


def _concatenated(sources: Sequence[_Cuts]) -> _Cuts:
    return _Cuts(*(np.concatenate(column) for column in zip(*sources, strict=True)))


def _batch_cuts(trace: Trace) -> _Cuts:
    """The waits for batches that workers load."""
    loads = worker_rows(trace)
    begin = trace.start[loads]
    return _rowless_cuts(
        trace.thread_of_track[trace.track[loads]],
        begin=begin,
        end=begin + waits_for_batches(trace, loads),
        kind=Node.HANDOFF,
    )


def _handoff_cuts(handoffs: _Handoffs) -> list[_Cuts]:
    """In this order: the asking thread waits, the engine waits to be asked, the engine
    has ended."""
    return [
        _rowless_cuts(
            handoffs.asking,
            begin=handoffs.begin,
            end=handoffs.end,
            kind=Node.HANDOFF,
        ),
        _rowless_cuts(
            handoffs.engine,
            begin=handoffs.idle_since,
            end=handoffs.begin,
            kind=Node.HANDOFF,
        ),
        _rowless_cuts(
            handoffs.engine, begin=handoffs.end, end=handoffs.end, kind=Node.MARK
        ),
    ]


def _call_cuts(trace: Trace, launches: Rows) -> list[_Cuts]:
    """Calls that wait for the device, and launch calls that do not."""
    waits = np.flatnonzero(activities(trace) == ThreadActivity.SYNC)
    waits = distinct(np.concatenate((waits, trace.rows_named(FREES.search, Role.CALL))))
    only_launch = np.setdiff1d(launches, waits, assume_unique=True)
    return [
        _cuts_of_calls(trace, only_launch, Node.LAUNCH),
        _cuts_of_calls(trace, waits, Node.WAIT),
    ]


def _cuts_of_calls(trace: Trace, rows: Rows, kind: Node) -> _Cuts:
    return _Cuts(
        thread=trace.thread_of_track[trace.track[rows]],
        begin=trace.start[rows],
        end=trace.end[rows],
        kind=np.full(len(rows), kind),
        row=rows,
    )


def _rowless_cuts(
    thread: NDArray[np.integer], *, begin: Int64s, end: Int64s, kind: Node
) -> _Cuts:
    return _Cuts(
        thread=thread,
        begin=begin,
        end=end,
        kind=np.full(len(thread), kind),
        row=np.full(len(thread), NO_ROW),
    )


def _marks(trace: Trace) -> list[_Cuts]:
    """Where steps begin and end, on the thread of their annotations, and where batches
    arrive."""
    steps = steps_of(trace)
    loads = loader_rows(trace)
    return [
        _marks_at(trace, steps.rows, steps.start),
        _marks_at(trace, steps.rows, steps.end),
        _marks_at(trace, loads, trace.end[loads]),
    ]


def _marks_at(trace: Trace, rows: NDArray[np.integer], times: Int64s) -> _Cuts:
    """On the threads of these slices."""
    return _rowless_cuts(
        trace.thread_of_track[trace.track[rows]],
        begin=times,
        end=times,
        kind=Node.MARK,
    )


def _overlapping(cuts: _Cuts) -> Rows:
    """The number of the group of each cut; those of one thread that overlap are one
    group. They are sorted by thread and begin."""
    begins_group = np.ones(len(cuts), dtype=np.bool_)
    for thread in distinct(cuts.thread).tolist():
        bounds = np.searchsorted(cuts.thread, (thread, thread + 1))
        of_thread = slice(*bounds.tolist())
        end_so_far = np.maximum.accumulate(cuts.end[of_thread])
        follows_all = cuts.begin[of_thread][1:] >= end_so_far[:-1]
        begins_group[of_thread][1:] = follows_all
    return np.cumsum(begins_group) - 1


def _lifetimes(trace: Trace, threads: Rows, engines: set[int]) -> tuple[Int64s, Int64s]:
    """The first start and the last end of each thread; of an engine, those of its
    ops."""
    limits = np.iinfo(np.int64)
    first = np.full(len(threads), limits.max)
    last = np.full(len(threads), limits.min)
    places = {thread: place for place, thread in enumerate(threads.tolist())}
    for thread, track in zip(trace.thread_of_track.tolist(), trace.tracks, strict=True):
        layers = (Layer.OPS,) if thread in engines else CPU_LAYERS
        if thread not in places or track.layer not in layers or not len(track):
            continue
        place = places[thread]
        first[place] = min(first[place], int(trace.start[track.first_row]))
        last[place] = max(last[place], int(trace.end[track.rows].max()))
    return first, last


def _busiest(trace: Trace) -> Rows:
    """Of a trace without launches the thread with the most time of ops, or of
    frames."""
    for role in (Role.OP, Role.PYTHON, Role.CALL, Role.ANNOTATION):
        rows = trace.rows_of(role)
        rows = rows[trace.parent[rows] < 0]
        if len(rows):
            threads = trace.thread_of_track[trace.track[rows]]
            # one ns more for each: slices of no length count too
            time_of_thread = np.bincount(threads, trace.dur[rows] + 1)
            return np.array([np.argmax(time_of_thread)])
    return np.zeros(0, dtype=np.intp)


def _handoffs(trace: Trace, threads: NDArray[np.integer]) -> _Handoffs:
    """What each thread of an engine does while the busiest other thread of its process
    does nothing. None where both work at the same time."""
    ops, thread_of_op = outermost_work(trace)
    rows: list[tuple[int, int, int, int, int]] = []
    for engine, asking in asking_threads(trace).items():
        if asking not in threads and engine not in threads:
            continue
        asking_ops = ops[thread_of_op == asking]
        engine_ops = ops[thread_of_op == engine]
        asking_is_idle = outside(union(trace.start[asking_ops], trace.end[asking_ops]))
        engine_works = union(trace.start[engine_ops], trace.end[engine_ops])
        for idle_since, begin, end in _between(asking_is_idle, engine_works):
            rows.append((asking, engine, idle_since, begin, end))
    return _Handoffs(*np.array(rows, dtype=np.int64).reshape(-1, 5).T)


def _between(idle: Cover, works: Cover) -> list[tuple[int, int, int]]:
    """What the engine does in each stretch in which the asking thread is idle: since
    when it did nothing, its begin and its end."""
    stretch = idle.place_of(works.start)
    is_inside = (stretch >= 0) & (works.end <= idle.end[stretch])
    inside_ns = (works.end - works.start)[is_inside].sum()
    places = np.flatnonzero(is_inside)
    if not len(places) or inside_ns < MIN_SHARE_APART * works.ns:
        return []
    first_of_stretch = np.flatnonzero(np.diff(stretch[places], prepend=-1))
    last_of_stretch = np.append(first_of_stretch[1:], len(places)) - 1
    firsts = places[first_of_stretch]
    lasts = places[last_of_stretch]
    idle_since = np.where(firsts > 0, works.end[firsts - 1], works.start[firsts])
    begin = works.start[firsts]
    end = works.end[lasts]
    return list(zip(idle_since.tolist(), begin.tolist(), end.tolist(), strict=True))
