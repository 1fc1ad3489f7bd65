"""What the threads that launch were doing: at each moment the innermost slice, by its
kind.

A runtime or driver call counts before ops and Python frames, and these before an
annotation. Of an op and a frame the one that started later counts, so that a wrapper
explains only what it does itself. The kind of a slice is that of its role.
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
from fusetui.trace.model.arrays import Flags, Int64s, Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import (
    FOREVER,
    Cover,
    EnclosingIndex,
    common,
    innermost,
    joined,
    pieces,
    ranges,
    union,
    without,
)
from fusetui.trace.model.memo import memo

MAX_PLACE_NS: Final = 1 << 62
"""On one line of time: a sum of two such places fits into 64 bits."""


class TimeLine:
    """One line of time on which several threads (or devices) of a trace lie one behind
    the other, so that one pass of numpy serves all: number n has the stretch
    [n * length, (n + 1) * length). Places on it are in ns."""

    def __init__(self, trace: Trace) -> None:
        self.begin_ns = trace.begin_ns
        self.end_ns = trace.end_ns
        self.length = self.end_ns - self.begin_ns + 1
        # how many fit; all, unless times are so far apart that no clock produces them
        self.most = max(1, MAX_PLACE_NS // self.length)

    def at(self, number: NDArray[np.integer], times: Int64s) -> Int64s:
        """Where times (ns of the file) of the threads with these numbers lie on the
        line. A time outside the trace lies at its boundary, where no other number has
        anything."""
        places: Int64s = np.clip(times, self.begin_ns, self.end_ns)
        places += number.astype(np.int64) * self.length - self.begin_ns
        return places

    def since(self, places: Int64s) -> Int64s:
        """What to subtract from places on the line for times of the file."""
        return places // self.length * self.length - self.begin_ns


class ThreadActivity(IntEnum):
    """What a thread does. Of several at the same time, one of the first of LAYERS
    counts: its innermost slice."""

    SYNC = 0  # waits until the device is done
    ALLOC = 1
    CALL = 2  # any other runtime or driver call
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
"""Kinds among which the innermost slice counts; of several with the same bounds, that
of the last kind."""
ACTIVITY_OF_ROLE = {
    Role.CALL: ThreadActivity.CALL,
    Role.OP: ThreadActivity.OP,
    Role.PYTHON: ThreadActivity.PYTHON,
    Role.ANNOTATION: ThreadActivity.ANNOTATION,
}

SYNC = lazy_pattern(r"Synchronize|\A[a-z]+Memcpy(?!.*Async)")
"""Calls that wait for the device, including blocking copies, but not sets, which are
asynchronous except on memory of the host: CUDA runtime API, "API synchronization
behavior"."""

ALLOC = lazy_pattern(
    r"Malloc|Free|HostAlloc|HostRegister|HostUnregister|MemAlloc|MemHostAlloc|MemCreate|MemRelease"
    r"|MemMap|MemUnmap|MemAddress|MemSetAccess|MemPool"
)
COPIES_LATER = lazy_pattern(r"Memcpy.*Async")
PAGEABLE = lazy_pattern(r"Pageable")
"""An asynchronous copy from or to pageable memory may block as well (same page)."""


def activities(trace: Trace) -> NDArray[np.int8]:
    """The ThreadActivity of each row by role and name, NOTHING for all that is not a
    slice of a CPU thread; shape [slices]."""
    of_roles = [ACTIVITY_OF_ROLE.get(role, ThreadActivity.NOTHING) for role in Role]
    activity: NDArray[np.int8] = np.array(of_roles, dtype=np.int8)[trace.role]
    calls = np.flatnonzero(activity == ThreadActivity.CALL)
    activity[calls[trace.matching(calls, ALLOC.search)]] = ThreadActivity.ALLOC
    activity[calls[trace.matching(calls, SYNC.search)]] = ThreadActivity.SYNC
    is_other_call = activity[calls] == ThreadActivity.CALL
    copies = calls[is_other_call & _copy_pageable_memory(trace)[calls]]
    may_block = trace.matching(copies, COPIES_LATER.search)
    activity[copies[may_block]] = ThreadActivity.SYNC
    return activity


def _copy_pageable_memory(trace: Trace) -> Flags:
    """Which rows are calls that launched a copy from or to pageable memory; shape
    [slices]."""
    events = trace.gpu_rows
    events = events[trace.launch[events] >= 0]
    copies = events[trace.matching(events, PAGEABLE.search)]
    launches_copy = np.zeros(len(trace), dtype=np.bool_)
    launches_copy[trace.launch[copies]] = True
    return launches_copy


class Slices(NamedTuple):
    """Slices on a line of time, by (start, -duration); arrays of shape [n], times in
    ns."""

    rows: Rows
    start: Int64s
    end: Int64s

    def only(self, which: Flags | Rows) -> Slices:
        """Some of them, by flags or places."""
        places = np.flatnonzero(which) if which.dtype == np.bool_ else which
        return Slices(
            rows=self.rows[places], start=self.start[places], end=self.end[places]
        )

    def begun_in(self, cover: Cover) -> tuple[Slices, Rows]:
        """The slices that start inside a cover, and how many do in each of its
        intervals."""
        first = self.start.searchsorted(cover.start)
        last = self.start.searchsorted(cover.end)
        counts = last - first
        return self.only(ranges(first, counts)), counts

    def parts(self) -> Slices:
        """When each is the innermost one: parts that do not overlap, in order. A slice
        may have several parts, or none."""
        # Most slices meet no other one and are their own part.
        is_alone = self._meet_no_other()
        alone = self.only(is_alone)
        others = self.only(~is_alone)
        times, innermost_place = innermost(others.start, others.end)
        is_covered = innermost_place[:-1] >= 0
        covered = np.flatnonzero(is_covered)
        if not len(covered):
            return alone
        parts_of_others = Slices(
            rows=others.rows[innermost_place[covered]],
            start=times[covered],
            end=times[covered + 1],
        )
        return merged_slices((alone, parts_of_others))

    def _meet_no_other(self) -> Flags:
        """Which slices have a length and overlap no other one; shape [n]."""
        latest_end = np.maximum.accumulate(self.end)
        starts_after_all = latest_end[:-1] <= self.start[1:]
        ends_before_next = self.end[:-1] <= self.start[1:]
        is_alone = self.end > self.start
        is_alone[1:] &= starts_after_all
        is_alone[:-1] &= ends_before_next
        return is_alone

    def _are_in_order(self) -> bool:
        """Whether the slices are sorted by (start, -duration)."""
        starts_earlier = self.start[1:] < self.start[:-1]
        starts_together = self.start[1:] == self.start[:-1]
        ends_later = self.end[1:] > self.end[:-1]
        is_before = starts_earlier | (starts_together & ends_later)
        return not is_before.any()

    def touching(self, begin: Int64s, end: Int64s) -> Slices:
        """The slices that lie at least partly in one of some stretches [begin, end), in
        any order."""
        # If n stretches end before a slice starts, it touches one exactly if n + 1 of
        # them begin before it ends. `slices_before`: how many slices start before each
        # end, so that those between two of its elements have the same n.
        slices_before = self.start.searchsorted(np.sort(end))
        slices_before = np.append(slices_before, len(self.start))
        begin_in_order = np.append(np.sort(begin), FOREVER)
        next_begin = np.repeat(begin_in_order, np.diff(slices_before, prepend=0))
        return self.only(next_begin < self.end)


def merged_slices(slices: Sequence[Slices]) -> Slices:
    """Slices of several kinds as one, by (start, -duration); of those with the same
    bounds, in the order of the kinds. Fast for a few sorted parts, which np.lexsort is
    not."""
    rows = np.concatenate([part.rows for part in slices])
    start = np.concatenate([part.start for part in slices])
    end = np.concatenate([part.end for part in slices])
    order = np.argsort(start, kind="stable")
    is_tied = _equals_a_neighbor(start[order])
    places_of_tied = np.flatnonzero(is_tied)
    tied = order[places_of_tied]
    negative_length = start[tied] - end[tied]
    longest_first = np.lexsort((negative_length, start[tied]))
    order[places_of_tied] = tied[longest_first]
    return Slices(rows=rows[order], start=start[order], end=end[order])


def _equals_a_neighbor(values: Int64s) -> Flags:
    """Whether each value equals the one before it or the one behind it; shape [n]."""
    equals_next = np.diff(values) == 0
    equals_any: Flags = np.append(equals_next, False)
    equals_any |= np.append(False, equals_next)
    return equals_any


class Threads(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Some threads of a trace, on one line of time."""

    trace: Trace
    kinds: NDArray[np.int8]  # see activities
    tracks: Flags  # which belong to the threads; shape [tracks]
    alone: bool  # there are no other threads
    # what others do while one of these waits for them counts as its own
    lent: LentWork | None = None
    # the same threads without `lent`, whose work is shared
    alike: Threads | None = None

    @cached_property
    def _number(self) -> Int64s:
        """The number of the thread of each track on the line; shape [tracks]."""
        number = np.zeros(len(self.tracks), dtype=np.int64)
        threads = self.trace.thread_of_track[self.tracks]
        number[self.tracks] = np.unique(threads, return_inverse=True)[1]
        return number

    def on_line(self, tracks: NDArray[np.integer], times: Int64s) -> Int64s:
        """Where times (ns of the file) of the threads of these tracks lie (see
        TimeLine.at)."""
        return TimeLine(self.trace).at(self._number[tracks], times)

    def parts(self, stretches: Cover, cover: Cover) -> Cover:
        """The parts of stretches of the line that lie in a cover in times of the
        file."""
        line_to_file_ns = TimeLine(self.trace).since(stretches.start)
        in_file = Cover(
            stretches.start - line_to_file_ns,
            stretches.end - line_to_file_ns,
            stretches.number,
        )
        parts, stretch = pieces(in_file, cover)
        file_to_line_ns = line_to_file_ns[stretch]
        return Cover(
            parts.start + file_to_line_ns, parts.end + file_to_line_ns, parts.number
        )

    @memo(len(ThreadActivity))
    def slices(self, kind: ThreadActivity) -> Slices:
        """The slices of one kind, with those that are lent."""
        if self.lent is not None and self.alike is not None:
            return self._with_lent_slices(self.alike.slices(kind), self.lent, kind)
        rows = self.own(np.flatnonzero(self.kinds == kind))
        start, end = self.bounds(rows)
        slices = Slices(rows=rows, start=start, end=end)
        if slices._are_in_order():
            return slices
        return merged_slices([slices])

    def _with_lent_slices(
        self, slices: Slices, lent: LentWork, kind: ThreadActivity
    ) -> Slices:
        """The slices of these threads of one kind, with those that are lent."""
        lent_slices = self._lent_slices(lent, kind)
        if not len(lent_slices.rows):
            return slices
        return merged_slices([slices, lent_slices])

    def _lent_slices(self, lent: LentWork, kind: ThreadActivity) -> Slices:
        """The lent slices of one kind, at the places of the threads that wait."""
        is_wanted = (self.kinds[lent.rows] == kind) & self.tracks[lent.track]
        rows = lent.rows[is_wanted]
        start = self.on_line(lent.track[is_wanted], self.trace.start[rows])
        return Slices(rows=rows, start=start, end=start + self.trace.dur[rows])

    def own(self, rows: Rows) -> Rows:
        """The rows that are of these threads."""
        if self.alone:
            return rows
        return rows[self.tracks[self.trace.track[rows]]]

    def bounds(self, rows: Rows) -> tuple[Int64s, Int64s]:
        """Starts and ends of slices of these threads on the line."""
        line = TimeLine(self.trace)
        offset_of_track = self._number * line.length - line.begin_ns
        start = offset_of_track.take(self.trace.track[rows])
        start += self.trace.start[rows]
        end = start + self.trace.dur[rows]
        return start, end

    @cached_property
    def covers(self) -> tuple[Cover, ...]:
        """When each kind counts, in the order of ThreadActivity; disjoint, without
        NOTHING."""
        if self.lent is not None and self.alike is not None:
            return self._covers_with_lent(self.alike.covers, self.lent)
        annotations = _union(self.slices(ThreadActivity.ANNOTATION))
        frames = _union(self.slices(ThreadActivity.PYTHON))
        slices_of_calls = [self.slices(kind) for kind in ACTIVITIES_OF_CALLS]
        calls = self._innermost(slices_of_calls, ACTIVITIES_OF_CALLS)
        any_call = joined(*calls)
        ops = self._when_ops_are_innermost()
        call_or_op = joined(any_call, ops)
        call_op_or_frame = joined(call_or_op, frames)
        return (
            *calls,
            without(ops, any_call),
            without(frames, call_or_op),
            without(annotations, call_op_or_frame),
        )

    def _covers_with_lent(
        self, own: tuple[Cover, ...], lent: LentWork
    ) -> tuple[Cover, ...]:
        """The covers of these threads (`own`) with what is lent: that meets no op and
        no call of theirs."""
        slices_of_calls = [
            self._lent_slices(lent, kind) for kind in ACTIVITIES_OF_CALLS
        ]
        lent_calls = self._innermost(slices_of_calls, ACTIVITIES_OF_CALLS)
        any_lent_call = joined(*lent_calls)
        slices_of_ops = _union(self._lent_slices(lent, ThreadActivity.OP))
        lent_ops = without(slices_of_ops, any_lent_call)
        lent_work = joined(any_lent_call, lent_ops)
        *own_calls, own_ops, own_frames, own_annotations = own
        calls = [joined(*both) for both in zip(own_calls, lent_calls, strict=True)]
        return (
            *calls,
            joined(own_ops, lent_ops),
            without(own_frames, lent_work),
            without(own_annotations, lent_work),
        )

    def split(self, begin: Int64s, end: Int64s) -> Int64s:
        """For how long each kind counts in each [begin, end) on the line (ns); shape
        [ThreadActivity, stretches]. The kinds of a stretch add up to its length,
        exactly."""
        recorded_ns = [cover.within(begin, end) for cover in self.covers]
        nothing_ns = (end - begin) - np.sum(recorded_ns, axis=0)
        return np.stack([*recorded_ns, nothing_ns])

    def _when_ops_are_innermost(self) -> Cover:
        """The time in which the innermost op started no earlier than any frame. Only
        frames that start inside an op can start later than the innermost one, and there
        are few of them."""
        ops = self.slices(ThreadActivity.OP)
        in_ops = _union(ops)
        frames_in_ops, counts = self.slices(ThreadActivity.PYTHON).begun_in(in_ops)
        if not len(frames_in_ops.rows):
            return in_ops
        with_frames = Cover(in_ops.start[counts > 0], in_ops.end[counts > 0])
        ops_around_frames, _ = ops.begun_in(with_frames)
        (frames_innermost,) = self._innermost(
            [frames_in_ops, ops_around_frames], (ThreadActivity.PYTHON,)
        )
        return without(in_ops, common(with_frames, frames_innermost))

    def _innermost(
        self, slices: Sequence[Slices], kinds: Sequence[ThreadActivity]
    ) -> tuple[Cover, ...]:
        """The time in which a slice of each kind is the innermost one of all these
        slices."""
        parts = merged_slices(slices)
        overlaps = (parts.start[1:] < parts.end[:-1]).any()
        if overlaps:
            parts = parts.parts()
        kind_of_part = self.kinds[parts.rows]
        return tuple(_union(parts.only(kind_of_part == kind)) for kind in kinds)


def _union(slices: Slices) -> Cover:
    return union(slices.start, slices.end)


class CallsOnLine(NamedTuple):
    """Those of some launch calls whose threads are on one line."""

    threads: Threads
    places: Rows  # among all calls that were given
    on_line: Callable[[Int64s], Int64s]
    """Where times (ns of the file, one for each call that was given) of these calls lie
    on the line; of the shape of `places`."""


def launching(
    trace: Trace, threads: Sequence[Threads], launch: NDArray[np.integer], which: Flags
) -> Iterator[CallsOnLine]:
    """Some launch calls, by the lines that their threads are on; lines without any are
    left out. `launch`: their rows, -1 for none; those where `which` says so."""
    track = trace.track[np.maximum(launch, 0)]
    for line in threads:
        places = np.flatnonzero(which & (launch >= 0) & line.tracks[track])
        if len(places):
            yield CallsOnLine(
                threads=line,
                places=places,
                on_line=partial(_on_line, line, track[places], places),
            )


def _on_line(
    line: Threads, tracks: NDArray[np.integer], places: Rows, times: Int64s
) -> Int64s:
    return line.on_line(tracks, times[places])


def waiting_calls_at(
    trace: Trace, threads: Sequence[Threads], launch: NDArray[np.integer], times: Int64s
) -> Rows:
    """The innermost call that waits for the device in which the thread of each launch
    call is at a time (ns of the file), -1 for none. `launch`: rows, -1 for none."""
    waiting = np.full(len(launch), -1, dtype=np.intp)
    for line, places, on_line in launching(trace, threads, launch, launch >= 0):
        waits = line.slices(ThreadActivity.SYNC)
        places_on_line = on_line(times)
        last_begun = waits.start.searchsorted(places_on_line, side="right") - 1
        innermost_wait = EnclosingIndex(waits.end).last(last_begun, places_on_line)
        # the appended -1 is at place -1: in no call
        waiting[places] = np.append(waits.rows, -1)[innermost_wait]
    return waiting
