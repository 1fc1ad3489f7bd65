"""Divides the time of threads at the points where they wait for others, or others wait
for them.

A *cut* is a stretch or a moment of a thread that a replay has to treat by itself,
because it depends on something else or something else depends on it:

* a call that launches GPU work, or waits for the device;
* a *handoff*, during which a thread waits for the work of another thread;
* a *mark*: where a step begins or ends, or a batch arrives.

What lies between two cuts is the thread's own time.

There are handoffs in two cases. Autograd runs backward on threads of its *engine*,
while the thread that asked for it records no op: the engine begins when the asking
thread becomes idle, and the asking thread goes on when the engine has ended. And a
thread that asks a data loader with workers for a batch waits until the batch is ready,
or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.loaders import (
    estimate_batch_waits,
    find_loader_calls,
    find_worker_loader_calls,
)
from fusetui.analysis.replay.graph import Node
from fusetui.analysis.why.backward_threads import (
    MIN_SHARE_APART,
    find_asking_threads,
    find_outermost_work,
)
from fusetui.analysis.why.thread_activity import ThreadActivity, classify_rows
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.layout.steps import steps_of
from fusetui.trace.model.arrays import (
    NO_ROW,
    Int64s,
    Rows,
    begins_runs,
    distinct,
    ends_runs,
    group_numbers,
    heaviest_id,
    numbers_of_sized_groups,
    reduce_groups,
    running_max,
    value_before,
)
from fusetui.trace.model.categories import CPU_LAYERS, Layer, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import NO_INTERVAL, Cover, outside, union

FREES = lazy_pattern(r"\A(?:cuda|hip)Free\Z")
"""The calls that free device memory. They wait for the device first."""
HANDING_NS = 10_000_000
"""How long it may take to take over a batch that is ready, because its tensors are
opened one by one. If a call for a batch takes longer, the rest is certainly waiting."""
NO_GROUP = -1


class ThreadCuts(msgspec.Struct, frozen=True, eq=False):
    """The cuts of all threads that are replayed, sorted by thread and time.

    Cuts of a thread do not overlap: what overlaps is one cut. Arrays have one entry per
    cut unless noted. Times are ns of the file.
    """

    threads: Rows  # per thread: its number, as in Trace.thread_of_track
    first: Int64s  # per thread: when it begins
    last: Int64s  # per thread: when it ends
    # The cuts of thread t are those from bounds[t] on, up to bounds[t + 1].
    bounds: Rows
    begin: Int64s
    end: Int64s
    kind: NDArray[np.uint8]  # LAUNCH, WAIT, HANDOFF or MARK, see Node
    row: Rows  # the call, a row of the trace; NO_ROW of handoffs and marks
    # Per row of the trace: the cut that this call is, or is part of; -1 of all others.
    cut_of_row: Rows
    handoffs: HandoffCuts
    batches: Rows  # the cuts in which a thread waits for a batch, in order

    @property
    def thread_of_cut(self) -> Rows:
        """For each cut the index of its thread in `threads`."""
        return numbers_of_sized_groups(np.diff(self.bounds))


class HandoffCuts(NamedTuple):
    """The handoffs of work to engines, which run backward for another thread.

    There is one entry per handoff. The values are indices of cuts.
    """

    asking_waits: Rows  # in which the thread waits that asked for the work
    engine_waits: Rows  # in which the engine waits to be asked
    engine_is_done: Rows  # at which the engine has ended the work


class _Cuts(NamedTuple):
    """Cuts before those that overlap are merged; times are ns of the file.

    There is one entry per cut. The fields are as in ThreadCuts; `thread` is the number
    of the thread, as in Trace.thread_of_track.
    """

    thread: NDArray[np.integer]
    begin: Int64s
    end: Int64s
    kind: NDArray[np.integer]
    row: NDArray[np.integer]

    def __len__(self) -> int:
        return len(self.thread)

    def take(self, indices: Rows) -> _Cuts:
        """Return the cuts at some indices, in the order of the indices."""
        return _Cuts(
            thread=self.thread[indices],
            begin=self.begin[indices],
            end=self.end[indices],
            kind=self.kind[indices],
            row=self.row[indices],
        )


class _Handoffs(NamedTuple):
    """Stretches in which an engine works while the thread that asked for it is idle.

    There is one entry per stretch. Threads are numbers as in Trace.thread_of_track.
    Times are ns of the file.
    """

    asking: Int64s  # the thread that asked
    engine: Int64s  # the thread that works
    idle_since: Int64s  # since when the engine had been idle before
    begin: Int64s  # when the engine begins
    end: Int64s  # when it has ended

    def __len__(self) -> int:
        return len(self.asking)


class _Groups(NamedTuple):
    """Groups of overlapping cuts of one thread, sorted by thread and time.

    Each group becomes one cut of ThreadCuts. Arrays have one entry per group unless
    noted; the fields are as in _Cuts.
    """

    thread: NDArray[np.integer]
    begin: Int64s
    end: Int64s
    kind: NDArray[np.uint8]
    row: Rows
    of_cut: Rows  # per cut: its group; NO_GROUP if its thread is not replayed


def find_thread_cuts(trace: Trace) -> ThreadCuts:
    """Cut the time of threads where they depend on others, or others on them.

    A *cut* is a call that launches GPU work or waits for it, a wait for another thread,
    or a mark such as the begin of a step. E.g. a thread from 0 to 100 us with a launch
    call from 40 to 45 us has one cut, and own time before and behind it. Only threads
    count that launch work, or that work for such threads; in a trace without GPU work
    it is the busiest thread.
    """
    launch_of_event = trace.launch[trace.gpu_rows]
    known_launches = launch_of_event[launch_of_event != NO_ROW]
    launches = distinct(known_launches).astype(np.intp)
    launching = _find_launching_threads(trace, launches)
    handoffs = _find_handoffs(trace, launching)
    threads = _list_replayed_threads(launching, handoffs)

    # Merge the cuts of all sources that overlap. The first source is waits for batches,
    # and the next three are the handoffs.
    sources = [
        _make_batch_cuts(trace),
        *_make_handoff_cuts(handoffs),
        *_make_call_cuts(trace, launches),
        *_make_marks(trace),
    ]
    cuts = _join_cuts(sources)
    groups = _group_overlapping(cuts, threads)
    groups_of_sources = _split_by_source(groups.of_cut, sources)
    groups_of_batches = groups_of_sources[0]
    handoff_groups = HandoffCuts(
        asking_waits=groups_of_sources[1],
        engine_waits=groups_of_sources[2],
        engine_is_done=groups_of_sources[3],
    )

    # A number behind the last thread ends the bounds; empty if there are no threads.
    behind_last_thread = threads[-1:] + 1
    bounds = np.searchsorted(groups.thread, np.append(threads, behind_last_thread))

    lifetimes = _find_lifetimes(trace, threads, engines=set(handoffs.engine.tolist()))
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
        cut_of_row=_look_up_groups(cuts, groups, rows=len(trace)),
        handoffs=handoff_groups,
        batches=_find_batch_groups(groups, groups_of_batches, handoff_groups),
    )


def _split_by_source(groups_of_cuts: Rows, sources: Sequence[_Cuts]) -> list[Rows]:
    """Split what was found for each of several joined cuts by where the cuts came from.

    E.g. values for 2 + 3 cuts from two sources become an array of 2 and one of 3.

    Args:
        groups_of_cuts: A value for each cut, those of the first source first.
        sources: The sources, in order.
    """
    ends = np.cumsum([len(source) for source in sources])
    return np.split(groups_of_cuts, ends[:-1])


def _list_replayed_threads(launching: Rows, handoffs: _Handoffs) -> Rows:
    """List all threads that are replayed, ascending.

    An engine is a thread that runs backward for another one.

    Args:
        launching: The threads that launch work.
        handoffs: The work of engines. Both the engines and the threads that ask for
            their work are replayed as well.
    """
    all_threads = np.concatenate((launching, handoffs.asking, handoffs.engine))
    return distinct(all_threads).astype(np.intp)


def _look_up_groups(cuts: _Cuts, groups: _Groups, *, rows: int) -> Rows:
    """Look up which group of overlapping cuts each call of the trace is part of.

    Returns one group per row of the trace, NO_GROUP for rows that are no such calls.

    Args:
        cuts: All cuts.
        groups: Their groups.
        rows: How many rows the trace has.
    """
    # Cuts that are no calls have NO_ROW, which is -1. They write into an extra entry at
    # the end, which is left out of the result.
    group_of_row = np.full(rows + 1, NO_GROUP, dtype=np.intp)
    group_of_row[cuts.row] = groups.of_cut
    return group_of_row[:-1]


def _find_batch_groups(
    groups: _Groups, of_batches: Rows, of_handoffs: HandoffCuts
) -> Rows:
    """Find the groups of cuts in which a thread only waits for a batch, in order.

    Groups that are also a handoff to an autograd engine are left out. So are groups
    with a call in them: they are launches or waits for the device.

    Args:
        groups: All groups of overlapping cuts.
        of_batches: For each wait for a batch the index of its group, or NO_GROUP.
        of_handoffs: The groups of handoffs to engines.
    """
    waits = distinct(of_batches[of_batches != NO_GROUP])
    is_of_engine = np.isin(waits, np.concatenate(of_handoffs))
    # A call is of a larger kind, and gives its kind to the group.
    has_no_call = groups.kind[waits] == Node.HANDOFF
    only_waits: Rows = waits[~is_of_engine & has_no_call]
    return only_waits


def _group_overlapping(cuts: _Cuts, threads: Rows) -> _Groups:
    """Merge the cuts of some threads that overlap into groups.

    The cut of the largest kind (see Node) gives the group its kind and row; of equal
    kinds the first one does. E.g. a step that begins (MARK) during a launch call
    (LAUNCH) is one group with it, of the kind LAUNCH and with the row of the call.

    Args:
        cuts: All cuts.
        threads: The threads whose cuts are grouped.
    """
    # The last key counts first: by thread, then by begin, then by end.
    all_by_time = np.lexsort((cuts.end, cuts.begin, cuts.thread))
    is_of_threads = np.isin(cuts.thread[all_by_time], threads)
    by_time = all_by_time[is_of_threads]
    sorted_cuts = cuts.take(by_time)
    group = _number_overlapping(sorted_cuts)
    first_of_group = np.flatnonzero(begins_runs(group))

    largest_kind_first = np.lexsort((-sorted_cuts.kind, group))
    most_important = sorted_cuts.take(largest_kind_first[first_of_group])

    group_of_cut = np.full(len(cuts), NO_GROUP, dtype=np.intp)
    group_of_cut[by_time] = group
    return _Groups(
        thread=sorted_cuts.thread[first_of_group],
        begin=sorted_cuts.begin[first_of_group],
        end=reduce_groups(np.maximum, sorted_cuts.end, first_of_group),
        kind=most_important.kind.astype(np.uint8),
        row=most_important.row.astype(np.intp),
        of_cut=group_of_cut,
    )


def _find_launching_threads(trace: Trace, launches: Rows) -> Rows:
    """Find the threads that launch GPU work, ascending.

    If nothing is launched, the busiest thread is returned instead.

    Args:
        trace: The trace.
        launches: The rows of the launch calls.
    """
    if not len(launches):
        return _find_busiest_thread(trace)
    return distinct(trace.thread_of_track[trace.track[launches]]).astype(np.intp)


def _join_cuts(sources: Sequence[_Cuts]) -> _Cuts:
    """Concatenate several tables of cuts into one, in their order."""
    return _Cuts(
        thread=np.concatenate([cuts.thread for cuts in sources]),
        begin=np.concatenate([cuts.begin for cuts in sources]),
        end=np.concatenate([cuts.end for cuts in sources]),
        kind=np.concatenate([cuts.kind for cuts in sources]),
        row=np.concatenate([cuts.row for cuts in sources]),
    )


def _make_batch_cuts(trace: Trace) -> _Cuts:
    """Make a cut for each stretch in which a thread waits for a batch that workers
    load."""
    loads = find_worker_loader_calls(trace)
    begin = trace.start[loads]
    return _make_rowless_cuts(
        trace.thread_of_track[trace.track[loads]],
        begin=begin,
        end=begin + estimate_batch_waits(trace, loads),
        kind=Node.HANDOFF,
    )


def _make_handoff_cuts(handoffs: _Handoffs) -> list[_Cuts]:
    """Return the cuts of handoffs to engines, in the order of HandoffCuts.

    First come the waits of the asking threads, then those of the engines for being
    asked, and last the moments at which the engines have ended.
    """
    asking_thread_waits = _make_rowless_cuts(
        handoffs.asking,
        begin=handoffs.begin,
        end=handoffs.end,
        kind=Node.HANDOFF,
    )
    engine_waits = _make_rowless_cuts(
        handoffs.engine,
        begin=handoffs.idle_since,
        end=handoffs.begin,
        kind=Node.HANDOFF,
    )
    engine_is_done = _make_rowless_cuts(
        handoffs.engine, begin=handoffs.end, end=handoffs.end, kind=Node.MARK
    )
    return [asking_thread_waits, engine_waits, engine_is_done]


def _make_call_cuts(trace: Trace, launches: Rows) -> list[_Cuts]:
    """Make cuts of the calls that wait for the device, and of the launch calls that do
    not.

    Args:
        trace: The trace.
        launches: The rows of all launch calls. Some, such as a copy that returns when
            it is done, also wait.
    """
    synchronizations = np.flatnonzero(classify_rows(trace) == ThreadActivity.SYNC)
    frees = trace.rows_named(FREES.search, Role.CALL)
    waits = distinct(np.concatenate((synchronizations, frees)))
    only_launch = np.setdiff1d(launches, waits, assume_unique=True)
    return [
        _make_cuts_of_calls(trace, only_launch, Node.LAUNCH),
        _make_cuts_of_calls(trace, waits, Node.WAIT),
    ]


def _make_cuts_of_calls(trace: Trace, rows: Rows, kind: Node) -> _Cuts:
    """Make a cut of one kind from each of some calls, which are rows of the trace."""
    return _Cuts(
        thread=trace.thread_of_track[trace.track[rows]],
        begin=trace.start[rows],
        end=trace.end[rows],
        kind=np.full(len(rows), kind),
        row=rows,
    )


def _make_rowless_cuts(
    thread: NDArray[np.integer], *, begin: Int64s, end: Int64s, kind: Node
) -> _Cuts:
    """Make cuts of one kind that are no calls, such as waits for a batch.

    Args:
        thread: The thread of each cut.
        begin: When each cut begins, in ns of the file.
        end: When each cut ends.
        kind: The kind of all of them.
    """
    return _Cuts(
        thread=thread,
        begin=begin,
        end=end,
        kind=np.full(len(thread), kind),
        row=np.full(len(thread), NO_ROW),
    )


def _make_marks(trace: Trace) -> list[_Cuts]:
    """Make marks where steps begin, where they end, and where batches arrive.

    A mark lies on the thread of the annotation that says so. It lets a replay tell when
    the thread gets there.
    """
    steps = steps_of(trace)
    loads = find_loader_calls(trace)
    return [
        _make_marks_at(trace, steps.rows, steps.start),
        _make_marks_at(trace, steps.rows, steps.end),
        _make_marks_at(trace, loads, trace.end[loads]),
    ]


def _make_marks_at(trace: Trace, rows: NDArray[np.integer], times: Int64s) -> _Cuts:
    """Make marks, cuts without a length, on the threads of some slices.

    Args:
        trace: The trace.
        rows: The slices.
        times: The time of each mark, one per slice, in ns of the file.
    """
    return _make_rowless_cuts(
        trace.thread_of_track[trace.track[rows]],
        begin=times,
        end=times,
        kind=Node.MARK,
    )


def _number_overlapping(cuts: _Cuts) -> Rows:
    """Number the groups of cuts of one thread that overlap.

    E.g. 0, 0 and 1 for cuts from 0 to 10, from 5 to 8 and from 10 to 12 ns.

    Args:
        cuts: The cuts, sorted by thread and begin.

    Returns:
        The number of the group of each cut: 0, 1, ..., ascending.
    """
    begins_thread = begins_runs(cuts.thread)
    latest_end = running_max(cuts.end, group_numbers(begins_thread))
    latest_end_before = value_before(latest_end, begins_thread, missing=cuts.begin)
    return group_numbers(cuts.begin >= latest_end_before)


class _Lifetimes(NamedTuple):
    """When each thread begins and ends; one entry per thread, in ns of the file."""

    first: Int64s
    last: Int64s

    def extend_to(self, groups: _Groups, bounds: Rows) -> None:
        """Extend the lifetimes in place, such that all cuts lie within them.

        Args:
            groups: The groups of cuts.
            bounds: See ThreadCuts.bounds.
        """
        for thread, (first_group, next_group) in enumerate(pairwise(bounds.tolist())):
            has_cuts = next_group > first_group
            if has_cuts:
                begin = groups.begin[first_group]
                end = groups.end[next_group - 1]
                self.first[thread] = min(self.first[thread], begin)
                self.last[thread] = max(self.last[thread], end)


def _find_lifetimes(trace: Trace, threads: Rows, engines: set[int]) -> _Lifetimes:
    """Find the first start and the last end of the slices of each thread.

    An engine is a thread that runs backward for another one.

    Args:
        trace: The trace.
        threads: The numbers of the threads, as in Trace.thread_of_track.
        engines: Those of them that are engines. Only their ops count, as they do for
            handoffs (see find_outermost_work).

    Returns:
        Times in ns of the file. A thread without slices gets the greatest possible
        number as its first time and the least one as its last.
    """
    # Any time is before the greatest number, and after the least one.
    limits = np.iinfo(np.int64)
    first = np.full(len(threads), limits.max)
    last = np.full(len(threads), limits.min)

    index_of_thread = {thread: index for index, thread in enumerate(threads.tolist())}
    for thread, track in zip(trace.thread_of_track.tolist(), trace.tracks, strict=True):
        counted_layers = (Layer.OPS,) if thread in engines else CPU_LAYERS
        index = index_of_thread.get(thread)
        if index is None or track.layer not in counted_layers or not len(track):
            continue
        # Slices are sorted by start, but an earlier one may end later.
        first[index] = min(first[index], int(trace.start[track.first_row]))
        last[index] = max(last[index], int(trace.end[track.rows].max()))
    return _Lifetimes(first=first, last=last)


def _find_busiest_thread(trace: Trace) -> Rows:
    """Find the busiest thread of a trace in which nothing is launched.

    It is the thread with the most time of ops. In a trace without ops, Python frames
    decide, or else calls, or else annotations.

    Returns:
        One thread; none if the trace has no slices of threads.
    """
    for role in (Role.OP, Role.PYTHON, Role.CALL, Role.ANNOTATION):
        rows = trace.rows_of(role)
        is_outermost = trace.parent[rows] == NO_ROW
        outermost = rows[is_outermost]
        if not len(outermost):
            continue

        # Slices of no length count too, so each gets one ns more.
        ns_of_slice = trace.dur[outermost] + 1
        thread_of_slice = trace.thread_of_track[trace.track[outermost]]
        return np.array([heaviest_id(thread_of_slice, ns_of_slice)])
    return np.zeros(0, dtype=np.intp)


def _find_handoffs(trace: Trace, threads: NDArray[np.integer]) -> _Handoffs:
    """Find what engines do while the threads that asked for it are idle.

    An engine is a thread that runs backward for another one. Who asked is not recorded:
    the busiest other thread of the process is taken. There are no handoffs if that
    thread works at the same time as the engine.

    Args:
        trace: The trace.
        threads: The threads that launch work. An engine is left out if neither it nor
            the thread that asks for its work is one of them.
    """
    ops, thread_of_op = find_outermost_work(trace)
    handoffs = [_make_empty_handoffs()]
    for engine, asking in find_asking_threads(trace).items():
        if asking not in threads and engine not in threads:
            continue
        asking_ops = ops[thread_of_op == asking]
        engine_ops = ops[thread_of_op == engine]
        asking_works = union(trace.start[asking_ops], trace.end[asking_ops])
        engine_works = union(trace.start[engine_ops], trace.end[engine_ops])
        engine_work = _find_work_while_idle(
            engine_works=engine_works, asking_is_idle=outside(asking_works)
        )
        handoffs.append(engine_work.make_handoffs(asking=asking, engine=engine))
    return _join_handoffs(handoffs)


def _join_handoffs(several: Sequence[_Handoffs]) -> _Handoffs:
    """Concatenate several tables of handoffs into one, in their order."""
    return _Handoffs(
        asking=np.concatenate([handoffs.asking for handoffs in several]),
        engine=np.concatenate([handoffs.engine for handoffs in several]),
        idle_since=np.concatenate([handoffs.idle_since for handoffs in several]),
        begin=np.concatenate([handoffs.begin for handoffs in several]),
        end=np.concatenate([handoffs.end for handoffs in several]),
    )


def _make_empty_handoffs() -> _Handoffs:
    """Return handoffs whose arrays are all empty."""
    no_times = np.empty(0, dtype=np.int64)
    return _EngineWork(no_times, no_times, no_times).make_handoffs(asking=0, engine=0)


class _EngineWork(NamedTuple):
    """Stretches in which an engine works; one entry per stretch, in ns of the file."""

    idle_since: Int64s  # since when the engine did nothing before
    begin: Int64s
    end: Int64s

    def make_handoffs(self, *, asking: int, engine: int) -> _Handoffs:
        """Make handoffs of these stretches: work that one thread asked another one to
        do.

        Args:
            asking: The thread that asked for the work.
            engine: The thread that did it.
        """
        count = len(self.begin)
        return _Handoffs(
            asking=np.full(count, asking, dtype=np.int64),
            engine=np.full(count, engine, dtype=np.int64),
            idle_since=self.idle_since,
            begin=self.begin,
            end=self.end,
        )


def _find_work_while_idle(*, engine_works: Cover, asking_is_idle: Cover) -> _EngineWork:
    """Find what an engine does in each interval in which the asking thread is idle.

    An engine is a thread that runs backward for another one. If less than
    MIN_SHARE_APART of its work lies in such intervals, the two threads work side by
    side, and neither waits for the other.

    Args:
        engine_works: When the engine works.
        asking_is_idle: When the asking thread is idle.

    Returns:
        One stretch per interval in which the engine works, from the begin of its first
        work to the end of its last.
    """
    interval = asking_is_idle.place_of(engine_works.start)
    ends_in_interval = engine_works.end <= asking_is_idle.end[interval]
    is_inside = (interval != NO_INTERVAL) & ends_in_interval
    work_ns = engine_works.end - engine_works.start
    inside_ns = work_ns[is_inside].sum()
    if inside_ns < MIN_SHARE_APART * engine_works.ns:
        is_inside[:] = False

    # The first and the last stretch of work in each interval.
    inside = np.flatnonzero(is_inside)
    interval_of_inside = interval[inside]
    first = inside[begins_runs(interval_of_inside)]
    last = inside[ends_runs(interval_of_inside)]

    # Before its very first work, an engine has not been idle: it was not there.
    begin = engine_works.start[first]
    has_work_before = first > 0
    idle_since = np.where(has_work_before, engine_works.end[first - 1], begin)
    return _EngineWork(idle_since=idle_since, begin=begin, end=engine_works.end[last])
