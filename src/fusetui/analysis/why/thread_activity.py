"""Determine the activity of launching threads at each moment: waits, calls, ops or
Python.

At each moment, the innermost slice of a thread counts, by its kind. A runtime or driver
call counts before ops and Python frames, and these before an annotation. Of an op and a
frame the one that started later counts, so that a wrapper explains only what it does
itself. The kind of a slice follows from its role and its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from functools import cached_property, partial
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.why.backward_threads import LentWork
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.model.arrays import (
    NO_ROW,
    Flags,
    Int64s,
    Rows,
    at,
    last_at_or_before,
)
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import (
    FOREVER,
    NO_INTERVAL,
    Cover,
    EnclosingIndex,
    are_alone,
    common,
    innermost,
    joined,
    order_by_start,
    pieces,
    ranges,
    union,
    without,
)
from fusetui.trace.model.memo import memo
from fusetui.trace.model.sorted_arrays import count_below, count_between

MAX_AXIS_NS: Final = 1 << 62
"""The latest time on an axis: the sum of two such times fits into 64 bits."""


class SharedAxis:
    """A time axis on which the recordings of several threads lie one behind the other.

    One pass of numpy over such an axis serves all threads (or devices) at once, and a
    search finds nothing of another thread. In a trace that lasts 1,000 ns, a slice that
    the thread with index 2 begins after 30 ns begins at 2 * 1,001 + 30 on the axis.
    """

    def __init__(self, trace: Trace) -> None:
        """Prepare an axis on which the times of several threads lie one after another.

        Each thread takes as much room as the whole trace is long, in ns.
        """
        self.begin_ns = trace.begin_ns
        self.end_ns = trace.end_ns
        self.length = self.end_ns - self.begin_ns + 1
        # How many threads fit: all of them, unless times are so far apart that no
        # clock produces them.
        self.capacity = max(1, MAX_AXIS_NS // self.length)

    def convert_from_file(self, thread: NDArray[np.integer], times: Int64s) -> Int64s:
        """Convert times of the file to times on the axis.

        The axis puts the whole time of each thread after that of the thread before, so
        that one sorted array can hold all of them.

        Args:
            thread: The index of the thread of each time: 0, 1, ...
            times: In ns of the file. A time outside of the trace counts as its begin or
                end, so that it does not become a time of another thread.
        """
        on_axis: Int64s = np.clip(times, self.begin_ns, self.end_ns)
        on_axis += thread.astype(np.int64) * self.length - self.begin_ns
        return on_axis

    def compute_file_offsets(self, on_axis: Int64s) -> Int64s:
        """Return what to subtract from each time on the axis to get that of the file."""
        return on_axis // self.length * self.length - self.begin_ns


class ThreadActivity(IntEnum):
    """What a thread does at a moment.

    Of several activities at the same time, one of the first of LAYERS counts, and in it
    the innermost slice.
    """

    SYNC = 0  # waits until the device is done
    ALLOC = 1  # allocates or frees memory
    CALL = 2  # is in any other runtime or driver call
    OP = 3
    PYTHON = 4
    ANNOTATION = 5
    NOTHING = 6  # nothing was recorded


ACTIVITIES_OF_CALLS = (ThreadActivity.SYNC, ThreadActivity.ALLOC, ThreadActivity.CALL)
LAYERS = (
    ACTIVITIES_OF_CALLS,
    (ThreadActivity.PYTHON, ThreadActivity.OP),
    (ThreadActivity.ANNOTATION,),
)
"""The activities in layers, the one that counts first in front.

In a layer the innermost slice counts. Of several with the same bounds it is the one of
the last activity of the layer.
"""
WORK_LAYERS = LAYERS[:-1]
"""The layers without that of annotations, which surround work and are none."""
ACTIVITY_OF_ROLE = {
    Role.CALL: ThreadActivity.CALL,
    Role.OP: ThreadActivity.OP,
    Role.PYTHON: ThreadActivity.PYTHON,
    Role.ANNOTATION: ThreadActivity.ANNOTATION,
}

SYNC_CALLS = lazy_pattern(r"Synchronize|\A[a-z]+Memcpy(?!.*Async)")
"""Matches calls that wait for the device, including copies that block.

Sets are not among them: they are asynchronous except on memory of the host (CUDA
runtime API, "API synchronization behavior").
"""

ALLOC_CALLS = lazy_pattern(
    r"Malloc|Free|HostAlloc|HostRegister|HostUnregister|MemAlloc|MemHostAlloc|MemCreate|MemRelease"
    r"|MemMap|MemUnmap|MemAddress|MemSetAccess|MemPool"
)
"""Matches calls that allocate, map or free memory."""
COPIES_LATER = lazy_pattern(r"Memcpy.*Async")
"""Matches calls that copy asynchronously."""
PAGEABLE = lazy_pattern(r"Pageable")
"""Matches copies from or to pageable memory.

Even an asynchronous call for such a copy may block (the same page of CUDA).
"""


def classify_rows(trace: Trace) -> NDArray[np.int8]:
    """Classify each row of a trace by its role and name.

    Returns:
        The ThreadActivity of each row, NOTHING for all that is not a slice of a CPU
        thread; shape [slices].
    """
    activity_of_role = [
        ACTIVITY_OF_ROLE.get(role, ThreadActivity.NOTHING) for role in Role
    ]
    activity: NDArray[np.int8] = np.array(activity_of_role, dtype=np.int8)[trace.role]

    calls = np.flatnonzero(activity == ThreadActivity.CALL)
    activity[calls[trace.matching(calls, ALLOC_CALLS.search)]] = ThreadActivity.ALLOC
    activity[calls[trace.matching(calls, SYNC_CALLS.search)]] = ThreadActivity.SYNC

    # An asynchronous copy of pageable memory may wait for the device too.
    is_other_call = activity[calls] == ThreadActivity.CALL
    copies = calls[is_other_call & _find_pageable_copies(trace)[calls]]
    may_block = trace.matching(copies, COPIES_LATER.search)
    activity[copies[may_block]] = ThreadActivity.SYNC

    return activity


def _find_pageable_copies(trace: Trace) -> Flags:
    """Tell which rows are calls that launched a copy from or to pageable memory.

    Returns flags of shape [slices].
    """
    events = trace.gpu_rows
    launched_events = events[trace.launch[events] != NO_ROW]
    is_pageable_copy = trace.matching(launched_events, PAGEABLE.search)
    copies = launched_events[is_pageable_copy]

    launches_copy = np.zeros(len(trace), dtype=np.bool_)
    launches_copy[trace.launch[copies]] = True
    return launches_copy


class Slices(NamedTuple):
    """Slices on a time axis, sorted by start, of equal starts the longest first.

    All arrays have shape [n]; `rows` are rows of the trace, `start` and `end` are
    times on the axis in ns.
    """

    rows: Rows
    start: Int64s
    end: Int64s

    def select(self, selected: Flags | Rows) -> Slices:
        """Return some of the slices.

        Args:
            selected: One flag per slice, or indices into the slices.
        """
        indices = selected
        if selected.dtype == np.bool_:
            indices = np.flatnonzero(selected)
        return Slices(
            rows=self.rows[indices], start=self.start[indices], end=self.end[indices]
        )

    def select_begun_in(self, cover: Cover) -> tuple[Slices, Rows]:
        """Find the slices that start inside a cover.

        Returns:
            The slices, one interval of the cover after the other, and how many slices
            start in each interval.
        """
        first = count_below(self.start, cover.start)
        counts = count_between(self.start, cover.start, cover.end)
        return self.select(ranges(first, counts)), counts

    def cut_innermost_parts(self) -> Slices:
        """Cut the slices so that each part belongs to the slice that is innermost then.

        The parts do not overlap and are in order. A slice may have several parts, or
        none if others inside it cover it wholly. If row 1 lasts from 0 to 9 ns and row
        2, inside it, from 3 to 5 ns, the parts are these:

        >>> slices = Slices(np.array([1, 2]), np.array([0, 3]), np.array([9, 5]))
        >>> parts = slices.cut_innermost_parts()
        >>> parts.rows.tolist(), parts.start.tolist(), parts.end.tolist()
        ([1, 2, 1], [0, 3, 5], [3, 5, 9])
        """
        # Most slices meet no other one and are their own part. One without a length has
        # no part, so it is left to `innermost`.
        has_length = self.end > self.start
        is_alone = are_alone(self.start, self.end) & has_length
        alone = self.select(is_alone)
        others = self.select(~is_alone)

        # Slice `innermost_index[n]` is the innermost one from `times[n]` to the next.
        times, innermost_index = innermost(others.start, others.end)
        is_covered = innermost_index[:-1] != NO_INTERVAL
        covered = np.flatnonzero(is_covered)
        if not len(covered):
            return alone

        parts_of_others = Slices(
            rows=others.rows[innermost_index[covered]],
            start=times[covered],
            end=times[covered + 1],
        )
        return merge_slices((alone, parts_of_others))

    @property
    def are_in_order(self) -> bool:
        """Whether the slices are in the order that the class promises."""
        starts_earlier = self.start[1:] < self.start[:-1]
        starts_together = self.start[1:] == self.start[:-1]
        ends_later = self.end[1:] > self.end[:-1]
        belongs_before = starts_earlier | (starts_together & ends_later)
        return not belongs_before.any()

    def select_touching(self, begin: Int64s, end: Int64s) -> Slices:
        """Return the slices that lie at least partly in one of some intervals.

        Args:
            begin: The begins of the intervals as times on the axis, in any order.
            end: The ends, which do not belong to the intervals; shape of `begin`.
        """
        # Of disjoint intervals, only one matters to a slice: the first that ends after
        # the slice starts. It touches the slice if it begins before the slice ends.
        intervals = union(begin, end)

        # The slices are in order of their starts, so those with one such interval are
        # neighbors. After the last interval there is none, or one that never begins.
        slices_before_end = count_below(self.start, intervals.end)
        bounds = np.concatenate(([0], slices_before_end, [len(self.start)]))
        begin_of_interval = np.append(intervals.start, FOREVER)
        begin_for_slice = np.repeat(begin_of_interval, np.diff(bounds))

        return self.select(begin_for_slice < self.end)


def merge_slices(slices: Sequence[Slices]) -> Slices:
    """Merge several records of slices into one, in the order that Slices promises.

    Slices with the same bounds stay in the order of the records.
    """
    rows = np.concatenate([record.rows for record in slices])
    start = np.concatenate([record.start for record in slices])
    end = np.concatenate([record.end for record in slices])

    order = order_by_start(start, end)
    return Slices(rows=rows[order], start=start[order], end=end[order])


class Threads(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Some threads of a trace, on one time axis; see SharedAxis."""

    trace: Trace
    kinds: NDArray[np.int8]  # the ThreadActivity of each row; see activities
    tracks: Flags  # True for the tracks of these threads; shape [tracks]
    are_all_threads: bool  # the trace has no other threads than these
    loan: Loan | None = None  # work of other threads that counts for these

    @cached_property
    def _index_of_track(self) -> Int64s:
        """Return the index on the axis of the thread of each track; shape [tracks]."""
        index = np.zeros(len(self.tracks), dtype=np.int64)
        threads = self.trace.thread_of_track[self.tracks]
        _, index_of_thread = np.unique(threads, return_inverse=True)
        index[self.tracks] = index_of_thread
        return index

    def convert_to_axis(self, tracks: NDArray[np.integer], times: Int64s) -> Int64s:
        """Return the times on the axis of some times of these threads.

        Args:
            tracks: A track of the thread of each time.
            times: In ns of the file; see SharedAxis.convert_from_file for times outside the trace.
        """
        return SharedAxis(self.trace).convert_from_file(
            self._index_of_track[tracks], times
        )

    def cut_intervals(self, intervals: Cover, cover: Cover) -> Cover:
        """Return the parts of some intervals that lie in a cover of the file's time.

        Args:
            intervals: On the axis. Of a cover that counts its intervals, the counts
                stay.
            cover: In ns of the file.

        Returns:
            The parts, on the axis.
        """
        # Move the intervals to times of the file, cut them, and move the parts back.
        offset_ns = SharedAxis(self.trace).compute_file_offsets(intervals.start)
        in_file = Cover(
            start=intervals.start - offset_ns,
            end=intervals.end - offset_ns,
            number=intervals.number,
        )
        parts, interval_of_part = pieces(in_file, cover)

        offset_of_part_ns = offset_ns[interval_of_part]
        return Cover(
            start=parts.start + offset_of_part_ns,
            end=parts.end + offset_of_part_ns,
            number=parts.number,
        )

    @memo(len(ThreadActivity))
    def find_slices(self, kind: ThreadActivity) -> Slices:
        """Return the slices of one kind of activity, with those that are lent."""
        if self.loan is not None:
            own_slices = self.loan.borrowers.find_slices(kind)
            lent_slices = self._select_lent_slices(self.loan.lent_work, kind)
            if not len(lent_slices.rows):
                return own_slices
            return merge_slices([own_slices, lent_slices])

        rows = self.select_own_rows(np.flatnonzero(self.kinds == kind))
        start, end = self.place_slices(rows)
        slices = Slices(rows=rows, start=start, end=end)
        if slices.are_in_order:  # usually, and sorting is slow
            return slices

        return merge_slices([slices])

    def _select_lent_slices(self, lent: LentWork, kind: ThreadActivity) -> Slices:
        """Return the lent slices of one kind, placed on the axis at the waiting
        threads.

        Lent slices are the work of one thread that counts for another thread which
        waits for it.
        """
        is_of_kind = self.kinds[lent.rows] == kind
        is_lent_to_these = self.tracks[lent.track]
        is_wanted = is_of_kind & is_lent_to_these
        rows = lent.rows[is_wanted]
        start = self.convert_to_axis(lent.track[is_wanted], self.trace.start[rows])
        return Slices(rows=rows, start=start, end=start + self.trace.dur[rows])

    def select_own_rows(self, rows: Rows) -> Rows:
        """Return those of some rows that are slices of these threads."""
        if self.are_all_threads:
            return rows
        return rows[self.tracks[self.trace.track[rows]]]

    def place_slices(self, rows: Rows) -> tuple[Int64s, Int64s]:
        """Return the starts and the ends of slices of these threads, on the axis.

        Args:
            rows: The slices, as rows of the trace.
        """
        axis = SharedAxis(self.trace)
        offset_of_track = self._index_of_track * axis.length - axis.begin_ns
        start: Int64s = offset_of_track[self.trace.track[rows]]
        start += self.trace.start[rows]
        end = start + self.trace.dur[rows]

        return start, end

    @cached_property
    def covers(self) -> tuple[Cover, ...]:
        """Return when these threads are in each activity, in the order of ThreadActivity.

        If an op runs from 0 to 100 ns and calls cudaMalloc from 20 to 50 ns, the cover
        of ALLOC is [20, 50), and that of OP is [0, 20) and [50, 100).

        Returns:
            Disjoint times on the axis. There are none for NOTHING, which is the rest.
        """
        if self.loan is not None:
            return self._add_lent_covers(
                self.loan.borrowers.covers, self.loan.lent_work
            )

        annotations = _cover_slices(self.find_slices(ThreadActivity.ANNOTATION))
        frames = _cover_slices(self.find_slices(ThreadActivity.PYTHON))
        slices_of_calls = [self.find_slices(kind) for kind in ACTIVITIES_OF_CALLS]
        parts_of_calls = _cut_innermost(slices_of_calls)
        calls = [self._cover_kind(parts_of_calls, kind) for kind in ACTIVITIES_OF_CALLS]
        ops = self._find_innermost_ops()

        # Each activity counts only outside of those that count before it.
        any_call = joined(*calls)
        call_or_op = joined(any_call, ops)
        call_op_or_frame = joined(call_or_op, frames)

        return (
            *calls,
            without(ops, any_call),
            without(frames, call_or_op),
            without(annotations, call_op_or_frame),
        )

    def _add_lent_covers(
        self, own: tuple[Cover, ...], lent: LentWork
    ) -> tuple[Cover, ...]:
        """Return the covers of these threads with what is lent.

        Lent work meets no op and no call of the threads themselves, so it only takes
        time from their frames and annotations.

        Args:
            own: The covers of the threads without what is lent; see covers.
        """
        slices_of_calls = [
            self._select_lent_slices(lent, kind) for kind in ACTIVITIES_OF_CALLS
        ]
        parts_of_calls = _cut_innermost(slices_of_calls)
        any_lent_call = _cover_slices(parts_of_calls)
        time_of_ops = _cover_slices(self._select_lent_slices(lent, ThreadActivity.OP))
        lent_ops = without(time_of_ops, any_lent_call)
        lent_work = joined(any_lent_call, lent_ops)

        covers = list(own)
        for kind in ACTIVITIES_OF_CALLS:
            covers[kind] = joined(own[kind], self._cover_kind(parts_of_calls, kind))

        covers[ThreadActivity.OP] = joined(own[ThreadActivity.OP], lent_ops)
        for kind in (ThreadActivity.PYTHON, ThreadActivity.ANNOTATION):
            covers[kind] = without(own[kind], lent_work)

        return tuple(covers)

    def divide_among_activities(self, begin: Int64s, end: Int64s) -> Int64s:
        """Divide intervals of the axis among the activities.

        Args:
            begin: The begins of the intervals, as times on the axis.
            end: The ends; shape of `begin`.

        Returns:
            ns of shape [ThreadActivity, intervals], which add up to the length of each
            interval, exactly.
        """
        recorded_ns = [cover.within(begin, end) for cover in self.covers]
        nothing_ns = (end - begin) - np.sum(recorded_ns, axis=0)
        return np.stack([*recorded_ns, nothing_ns])

    def _find_innermost_ops(self) -> Cover:
        """Return the time in which the innermost op started no earlier than the
        innermost frame.

        The times lie on the axis of the threads. Only a Python frame that starts inside
        an op can start later than that op. There are few such frames, so only their
        surroundings are examined.
        """
        ops = self.find_slices(ThreadActivity.OP)
        frames = self.find_slices(ThreadActivity.PYTHON)
        in_ops = _cover_slices(ops)
        frames_in_ops, frame_counts = frames.select_begun_in(in_ops)
        if not len(frames_in_ops.rows):
            return in_ops

        has_frames = frame_counts > 0
        with_frames = Cover(in_ops.start[has_frames], in_ops.end[has_frames])
        ops_around_frames, _ = ops.select_begun_in(with_frames)
        innermost = _cut_innermost([frames_in_ops, ops_around_frames])
        frames_innermost = self._cover_kind(innermost, ThreadActivity.PYTHON)

        return without(in_ops, common(with_frames, frames_innermost))

    def _cover_kind(self, slices: Slices, kind: ThreadActivity) -> Cover:
        """Return the time in which any of some slices runs that is of one kind."""
        is_of_kind = self.kinds[slices.rows] == kind
        return _cover_slices(slices.select(is_of_kind))


class Loan(msgspec.Struct, frozen=True, eq=False):
    """Work of other threads that counts for some threads while they wait for it."""

    lent_work: LentWork
    borrowers: Threads
    """The threads for which it counts, without that work."""


def _cut_innermost(slices: Sequence[Slices]) -> Slices:
    """Merge some records of slices, and cut them so that no two parts overlap.

    At each moment, the innermost of all slices remains.
    """
    merged = merge_slices(slices)
    overlaps = (merged.start[1:] < merged.end[:-1]).any()
    return merged.cut_innermost_parts() if overlaps else merged


def _cover_slices(slices: Slices) -> Cover:
    """Return the time in which any of some slices runs."""
    return union(slices.start, slices.end)


class CallsOnAxis(NamedTuple):
    """Those of some launch calls whose threads are on one axis."""

    threads: Threads
    call_indices: Rows
    """Which of the given calls these are, as indices into them."""
    on_axis: Callable[[Int64s], Int64s]
    """Return the times on the axis of times of these calls.

    It takes a time for each call that was given, in ns of the file, and returns one
    place for each of `call_indices`.
    """


def group_calls_by_axis(
    trace: Trace,
    threads: Sequence[Threads],
    launch: NDArray[np.integer],
    selected: Flags,
) -> Iterator[CallsOnAxis]:
    """Divide some launch calls among the axes on which their threads lie.

    An axis puts the times of several threads one after another. What is asked about the
    threads of many calls is then computed for one axis after the other. Axes without
    any of the calls are left out.

    Args:
        threads: The threads, by the axis that they lie on.
        launch: The rows of the calls, -1 for an unknown call.
        selected: True for the calls that count; shape of `launch`. Unknown ones never
            do.
    """
    is_wanted = selected & (launch != NO_ROW)
    track = trace.track[launch]  # means nothing where the launch is not known
    for threads_of_axis in threads:
        is_of_axis = is_wanted & threads_of_axis.tracks[track]
        indices = np.flatnonzero(is_of_axis)
        if len(indices):
            yield CallsOnAxis(
                threads=threads_of_axis,
                call_indices=indices,
                on_axis=partial(
                    _place_on_axis, threads_of_axis, track[indices], indices
                ),
            )


def _place_on_axis(
    threads: Threads, tracks: NDArray[np.integer], indices: Rows, times: Int64s
) -> Int64s:
    """Convert some times of the file to times on the axis of their threads.

    Args:
        tracks: A track of the thread of each selected time.
        indices: Which of `times` are converted.
        times: In ns of the file.
    """
    return threads.convert_to_axis(tracks, times[indices])


def find_waiting_calls(
    trace: Trace, threads: Sequence[Threads], launch: NDArray[np.integer], times: Int64s
) -> Rows:
    """Find the call in which the thread of each launch was waiting at a moment.

    Args:
        threads: All threads, by the axis that they lie on.
        launch: The rows of launch calls, -1 for an unknown one.
        times: The moment for each launch, in ns of the file.

    Returns:
        The innermost call that waits for the device, as a row for each launch; NO_ROW
        if the thread is in no such call.
    """
    waiting_calls = np.full(len(launch), NO_ROW, dtype=np.intp)
    is_known = launch != NO_ROW
    for calls in group_calls_by_axis(trace, threads, launch, is_known):
        waits = calls.threads.find_slices(ThreadActivity.SYNC)
        moments = calls.on_axis(times)
        last_begun = last_at_or_before(waits.start, moments)
        innermost_wait = EnclosingIndex(waits.end).last(last_begun, moments)
        waiting_calls[calls.call_indices] = at(
            waits.rows, innermost_wait, missing=NO_ROW
        )

    return waiting_calls
