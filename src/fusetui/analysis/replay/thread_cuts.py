"""Cuts the time of threads where they wait for others, or others wait for them.

Such cuts are calls that launch work or wait for the device, and handoffs between
threads.

Autograd runs backward on threads of its *engine*, while the thread that asked for it
records no op. That stretch is no time of the asking thread itself: the engine begins
when it does, and the asking thread goes on when the engine has ended.

A thread that asks a data loader with workers for a batch waits until the batch is
ready, or not at all.
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
from fusetui.trace.model.arrays import Int64s, Rows, begins_runs, distinct, ends_runs
from fusetui.trace.model.categories import CPU_LAYERS, Layer, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import Cover, outside, union

FREES = lazy_pattern(r"\A(?:cuda|hip)Free\Z")  # waits for the device
HANDING_NS = 10_000_000
"""Taking over a batch that is ready may take so long (ns): its tensors are opened one
by one. What a call takes beyond that is waiting."""
NO_ROW = -1


class ThreadCuts(msgspec.Struct, frozen=True, eq=False):
    """The cuts of all threads, sorted by thread and time; cuts do not overlap.

    Arrays have one entry per cut unless noted. Times are ns of the file.
    """

    threads: Rows  # per thread: its number as in Trace.thread_of_track
    first: Int64s  # per thread: when it begins
    last: Int64s  # per thread: when it ends
    bounds: Rows  # where the cuts of each thread begin, then their number
    begin: Int64s
    end: Int64s
    kind: NDArray[np.uint8]
    row: Rows  # of the call, -1: none
    # per row of the trace: the cut that this call is, or is part of, else -1
    cut_of_row: Rows
    # [3, handoffs]: the cuts in which a thread waits for another one, in which that one
    # waits to be asked, and with which it has ended
    handoffs: Rows
    # the cuts in which a thread waits for workers that load batches, in order
    batches: Rows


class _Cuts(NamedTuple):
    """Cuts that may overlap; one entry per cut, times in ns of the file."""

    thread: NDArray[np.integer]
    begin: Int64s
    end: Int64s
    kind: NDArray[np.integer]
    row: NDArray[np.integer]

    def __len__(self) -> int:
        return len(self.thread)

    def take(self, indices: Rows) -> _Cuts:
        """Return the cuts at these indices."""
        return _Cuts(
            thread=self.thread[indices],
            begin=self.begin[indices],
            end=self.end[indices],
            kind=self.kind[indices],
            row=self.row[indices],
        )


class _Handoffs(NamedTuple):
    """Stretches in which an engine works while the thread that asked for it is idle.

    One entry per stretch; times are ns of the file.
    """

    asking: Int64s  # the thread that asked
    engine: Int64s  # the thread that works
    idle_since: Int64s
    begin: Int64s
    end: Int64s

    def __len__(self) -> int:
        return len(self.asking)


class _Groups(NamedTuple):
    """Groups of cuts of one thread that overlap, sorted by thread and time.

    Arrays have one entry per group unless noted.
    """

    thread: NDArray[np.integer]
    begin: Int64s
    end: Int64s
    kind: NDArray[np.uint8]
    row: Rows
    of_cut: Rows  # per cut: its group, -1 if it is of another thread


def thread_cuts_of(trace: Trace) -> ThreadCuts:
    """Cut the time of the threads that launch work, or that work for such threads.

    Without a GPU, the busiest thread is cut.
    """
    launches = distinct(trace.launch[trace.gpu_rows]).astype(np.intp)
    launches = launches[launches >= 0]
    launching = _launching_threads(trace, launches)
    handoffs = _handoffs(trace, launching)
    threads = _with_engines(launching, handoffs)

    # The cuts of batches and handoffs come first, where they are found again below.
    batch_cuts = _batch_cuts(trace)
    handoff_cuts = _handoff_cuts(handoffs)
    sources = [
        batch_cuts,
        *handoff_cuts,
        *_call_cuts(trace, launches),
        *_marks(trace),
    ]
    cuts = _concatenated(sources)
    groups = _grouped(cuts, threads)
    bounds = np.searchsorted(groups.thread, np.append(threads, threads[-1:] + 1))

    groups_of_batches, groups_of_handoffs, _ = np.split(
        groups.of_cut, [len(batch_cuts), len(batch_cuts) + 3 * len(handoffs)]
    )
    handoff_groups = groups_of_handoffs.reshape(3, -1)
    lifetimes = _lifetimes(trace, threads, engines=set(handoffs.engine.tolist()))
    lifetimes.extend_to(groups, bounds)
    return ThreadCuts(
        threads=threads,
        first=lifetimes.first,
        last=lifetimes.last,
        bounds=bounds,
        begin=groups.begin,
        end=groups.end,
        kind=groups.kind,
        row=groups.row,
        cut_of_row=_groups_of_rows(cuts, groups, rows=len(trace)),
        handoffs=handoff_groups,
        batches=_batch_groups(groups, groups_of_batches, handoff_groups),
    )


def _with_engines(launching: Rows, handoffs: _Handoffs) -> Rows:
    """Add the threads that ask for backward, and those of engines; ascending."""
    all_threads = np.concatenate((launching, handoffs.asking, handoffs.engine))
    return distinct(all_threads).astype(np.intp)


def _groups_of_rows(cuts: _Cuts, groups: _Groups, *, rows: int) -> Rows:
    """Compute ThreadCuts.cut_of_row.

    Args:
        cuts: All cuts.
        groups: Their groups.
        rows: How many slices the trace has.
    """
    # NO_ROW, of cuts that are no calls, writes to the last entry, which is dropped.
    group_of_row = np.full(rows + 1, -1, dtype=np.intp)
    group_of_row[cuts.row] = groups.of_cut
    return group_of_row[:-1]


def _batch_groups(groups: _Groups, of_batches: Rows, of_handoffs: Rows) -> Rows:
    """Return the groups in which a thread waits for a batch, in order.

    Handoffs to engines are left out, and so are waits that contain a call, because the
    group is then of another kind.

    Args:
        groups: All groups.
        of_batches: The group of each wait for a batch, -1 for none.
        of_handoffs: The groups of handoffs.
    """
    waits = distinct(of_batches)
    waits = waits[(waits >= 0) & ~np.isin(waits, of_handoffs)]
    only_waits: Rows = waits[groups.kind[waits] == Node.HANDOFF]
    return only_waits


def _grouped(cuts: _Cuts, threads: Rows) -> _Groups:
    """Group the cuts of some threads that overlap.

    The largest kind of node in a group becomes its kind; of equal ones the first.
    """
    order = np.lexsort((cuts.end, cuts.begin, cuts.thread))
    order = order[np.isin(cuts.thread[order], threads)]
    sorted_cuts = cuts.take(order)
    group = _overlapping(sorted_cuts)
    first_of_group = np.flatnonzero(np.diff(group, prepend=-1))

    # Sort each group by kind, the largest first.
    by_importance = np.lexsort((-sorted_cuts.kind, group))
    most_important = sorted_cuts.take(by_importance[first_of_group])
    end = sorted_cuts.end
    if len(first_of_group):
        end = np.maximum.reduceat(end, first_of_group)

    group_of_cut = np.full(len(cuts), -1, dtype=np.intp)
    group_of_cut[order] = group
    return _Groups(
        thread=sorted_cuts.thread[first_of_group],
        begin=sorted_cuts.begin[first_of_group],
        end=end,
        kind=most_important.kind.astype(np.uint8),
        row=most_important.row.astype(np.intp),
        of_cut=group_of_cut,
    )


def _launching_threads(trace: Trace, launches: Rows) -> Rows:
    """Return the threads of these launch calls, ascending; without any the busiest."""
    if not len(launches):
        return _busiest(trace)
    return distinct(trace.thread_of_track[trace.track[launches]]).astype(np.intp)


def _concatenated(sources: Sequence[_Cuts]) -> _Cuts:
    """Concatenate cuts, in their order."""
    return _Cuts(
        thread=np.concatenate([cuts.thread for cuts in sources]),
        begin=np.concatenate([cuts.begin for cuts in sources]),
        end=np.concatenate([cuts.end for cuts in sources]),
        kind=np.concatenate([cuts.kind for cuts in sources]),
        row=np.concatenate([cuts.row for cuts in sources]),
    )


def _batch_cuts(trace: Trace) -> _Cuts:
    """Return the waits for batches that workers load."""
    loads = worker_rows(trace)
    begin = trace.start[loads]
    return _rowless_cuts(
        trace.thread_of_track[trace.track[loads]],
        begin=begin,
        end=begin + waits_for_batches(trace, loads),
        kind=Node.HANDOFF,
    )


def _handoff_cuts(handoffs: _Handoffs) -> list[_Cuts]:
    """Return three cuts for each handoff.

    In this order: the asking thread waits, the engine waits to be asked, and the engine
    has ended.
    """
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
    """Return the calls that wait for the device, and the launch calls that do not."""
    waits = np.flatnonzero(activities(trace) == ThreadActivity.SYNC)
    waits = distinct(np.concatenate((waits, trace.rows_named(FREES.search, Role.CALL))))
    only_launch = np.setdiff1d(launches, waits, assume_unique=True)
    return [
        _cuts_of_calls(trace, only_launch, Node.LAUNCH),
        _cuts_of_calls(trace, waits, Node.WAIT),
    ]


def _cuts_of_calls(trace: Trace, rows: Rows, kind: Node) -> _Cuts:
    """Make cuts of one kind from the calls in some rows."""
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
    """Make cuts of one kind that are no calls."""
    return _Cuts(
        thread=thread,
        begin=begin,
        end=end,
        kind=np.full(len(thread), kind),
        row=np.full(len(thread), NO_ROW),
    )


def _marks(trace: Trace) -> list[_Cuts]:
    """Return marks where steps begin and end, and where batches arrive.

    They are on the threads of the annotations.
    """
    steps = steps_of(trace)
    loads = loader_rows(trace)
    return [
        _marks_at(trace, steps.rows, steps.start),
        _marks_at(trace, steps.rows, steps.end),
        _marks_at(trace, loads, trace.end[loads]),
    ]


def _marks_at(trace: Trace, rows: NDArray[np.integer], times: Int64s) -> _Cuts:
    """Make marks at some times, on the threads of some slices."""
    return _rowless_cuts(
        trace.thread_of_track[trace.track[rows]],
        begin=times,
        end=times,
        kind=Node.MARK,
    )


def _overlapping(cuts: _Cuts) -> Rows:
    """Number the groups of cuts of one thread that overlap.

    Args:
        cuts: The cuts, sorted by thread and begin.

    Returns:
        The number of the group of each cut, ascending.
    """
    begins_group = np.ones(len(cuts), dtype=np.bool_)
    for thread in distinct(cuts.thread).tolist():
        bounds = np.searchsorted(cuts.thread, (thread, thread + 1))
        of_thread = slice(*bounds.tolist())
        latest_end = np.maximum.accumulate(cuts.end[of_thread])
        follows_all = cuts.begin[of_thread][1:] >= latest_end[:-1]
        begins_group[of_thread][1:] = follows_all
    return np.cumsum(begins_group) - 1


class _Lifetimes(NamedTuple):
    """When each thread begins and ends, in ns of the file."""

    first: Int64s
    last: Int64s

    def extend_to(self, groups: _Groups, bounds: Rows) -> None:
        """Extend the lifetimes to the cuts of each thread, in place.

        Args:
            groups: The groups of cuts.
            bounds: Where those of each thread begin, then their number.
        """
        for thread, (first_group, next_group) in enumerate(pairwise(bounds.tolist())):
            if next_group == first_group:
                continue
            begin = groups.begin[first_group]
            end = groups.end[next_group - 1]
            self.first[thread] = min(self.first[thread], begin)
            self.last[thread] = max(self.last[thread], end)


def _lifetimes(trace: Trace, threads: Rows, engines: set[int]) -> _Lifetimes:
    """Find the first start and the last end of the slices of each thread.

    Args:
        trace: The trace.
        threads: The threads.
        engines: Those of them that are engines, of which only ops count.
    """
    limits = np.iinfo(np.int64)
    first = np.full(len(threads), limits.max)
    last = np.full(len(threads), limits.min)
    index_of_thread = {thread: index for index, thread in enumerate(threads.tolist())}
    for thread, track in zip(trace.thread_of_track.tolist(), trace.tracks, strict=True):
        layers = (Layer.OPS,) if thread in engines else CPU_LAYERS
        if thread not in index_of_thread or track.layer not in layers or not len(track):
            continue
        index = index_of_thread[thread]
        first[index] = min(first[index], int(trace.start[track.first_row]))
        last[index] = max(last[index], int(trace.end[track.rows].max()))
    return _Lifetimes(first=first, last=last)


def _busiest(trace: Trace) -> Rows:
    """Return the thread with the most time of ops, of a trace without launches.

    Without ops, Python frames decide, then calls, then annotations.
    """
    for role in (Role.OP, Role.PYTHON, Role.CALL, Role.ANNOTATION):
        rows = trace.rows_of(role)
        rows = rows[trace.parent[rows] < 0]
        if len(rows):
            threads = trace.thread_of_track[trace.track[rows]]
            # Slices of no length count too, so each gets one ns more.
            time_of_thread = np.bincount(threads, trace.dur[rows] + 1)
            return np.array([np.argmax(time_of_thread)])
    return np.zeros(0, dtype=np.intp)


def _handoffs(trace: Trace, threads: NDArray[np.integer]) -> _Handoffs:
    """Find what engines do while the threads that asked for it are idle.

    The asking thread is the busiest other thread of the process. There are no handoffs
    if both work at the same time.

    Args:
        trace: The trace.
        threads: The asking thread or the engine must be among these.
    """
    ops, thread_of_op = outermost_work(trace)
    handoffs = [_no_handoffs()]
    for engine, asking in asking_threads(trace).items():
        if asking not in threads and engine not in threads:
            continue
        asking_ops = ops[thread_of_op == asking]
        engine_ops = ops[thread_of_op == engine]
        asking_works = union(trace.start[asking_ops], trace.end[asking_ops])
        engine_works = union(trace.start[engine_ops], trace.end[engine_ops])
        engine_work = _between(idle=outside(asking_works), works=engine_works)
        handoffs.append(engine_work.of_threads(asking=asking, engine=engine))
    return _Handoffs(
        asking=np.concatenate([each.asking for each in handoffs]),
        engine=np.concatenate([each.engine for each in handoffs]),
        idle_since=np.concatenate([each.idle_since for each in handoffs]),
        begin=np.concatenate([each.begin for each in handoffs]),
        end=np.concatenate([each.end for each in handoffs]),
    )


def _no_handoffs() -> _Handoffs:
    """Return handoffs whose arrays are all empty."""
    no_times = np.empty(0, dtype=np.int64)
    return _EngineWork(no_times, no_times, no_times).of_threads(asking=0, engine=0)


class _EngineWork(NamedTuple):
    """Stretches in which an engine works; times in ns of the file."""

    idle_since: Int64s  # since when it did nothing before
    begin: Int64s
    end: Int64s

    def of_threads(self, *, asking: int, engine: int) -> _Handoffs:
        """Return these stretches as handoffs between two threads."""
        count = len(self.begin)
        return _Handoffs(
            asking=np.full(count, asking, dtype=np.int64),
            engine=np.full(count, engine, dtype=np.int64),
            idle_since=self.idle_since,
            begin=self.begin,
            end=self.end,
        )


def _between(*, idle: Cover, works: Cover) -> _EngineWork:
    """Find what an engine does in each interval in which the asking thread is idle.

    Args:
        idle: When the asking thread is idle.
        works: When the engine works.

    Returns:
        One stretch per such interval; none if less than MIN_SHARE_APART of the work is
        in such intervals.
    """
    interval = idle.place_of(works.start)
    is_inside = (interval >= 0) & (works.end <= idle.end[interval])
    inside_ns = (works.end - works.start)[is_inside].sum()
    if inside_ns < MIN_SHARE_APART * works.ns:
        is_inside[:] = False

    # The first and the last piece of work in each interval.
    inside = np.flatnonzero(is_inside)
    first = inside[begins_runs(interval[inside])]
    last = inside[ends_runs(interval[inside])]
    end_before = works.end[first - 1]
    return _EngineWork(
        idle_since=np.where(first > 0, end_before, works.start[first]),
        begin=works.start[first],
        end=works.end[last],
    )
