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
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.why.backward_threads import Lent
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.model.arrays import Flags, Int64s, Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import (
    FOREVER,
    Cover,
    Reach,
    common,
    innermost,
    joined,
    pieces,
    ranges,
    union,
    without,
)
from fusetui.trace.model.memo import memo

FARTHEST = 1 << 62  # ns on one line of time


class TimeLine:
    """Number n has the stretch [n * length, (n + 1) * length) of the line."""

    def __init__(self, trace: Trace) -> None:
        """`most`: how many fit; all, unless times are so far apart that no clock
        produces them."""
        self.begin_ns, self.end_ns = trace.begin_ns, trace.end_ns
        self.length = self.end_ns - self.begin_ns + 1
        self.most = max(1, FARTHEST // self.length)

    def at(self, number: NDArray[np.integer], times: Int64s) -> Int64s:
        """Where times (ns of the file) lie on the line. A time outside the trace lies
        at its border, where no other number has anything."""
        placed: Int64s = np.clip(times, self.begin_ns, self.end_ns)
        placed += number.astype(np.int64) * self.length - self.begin_ns
        return placed

    def since(self, places: Int64s) -> Int64s:
        return places // self.length * self.length - self.begin_ns


class Host(IntEnum):
    """What a thread does. Of several at the same time, one of the first of LAYERS
    counts: its innermost slice."""

    SYNC = 0  # waits until the device is done
    ALLOC = 1
    CALL = 2  # any other runtime or driver call
    OP = 3
    PYTHON = 4
    ANNOTATION = 5
    NOTHING = 6  # nothing was recorded


CALLS = (Host.SYNC, Host.ALLOC, Host.CALL)
LAYERS = (CALLS, (Host.PYTHON, Host.OP), (Host.ANNOTATION,))
"""Kinds among which the innermost slice counts; of several with the same bounds, that
of the last kind."""
KINDS = {
    role: Host[role.name] for role in (Role.CALL, Role.OP, Role.PYTHON, Role.ANNOTATION)
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


def host_kinds(trace: Trace) -> NDArray[np.int8]:
    """The Host of each row by role and name, NOTHING for all that is not a slice of a
    CPU thread; shape [slices]."""
    by_role = np.array([KINDS.get(role, Host.NOTHING) for role in Role], dtype=np.int8)
    found: NDArray[np.int8] = by_role[trace.role]
    calls = np.flatnonzero(found == Host.CALL)
    found[calls[trace.matching(calls, ALLOC.search)]] = Host.ALLOC
    found[calls[trace.matching(calls, SYNC.search)]] = Host.SYNC
    events = trace.gpu_rows[trace.launch[trace.gpu_rows] >= 0]
    copying = np.zeros(len(trace), dtype=np.bool_)
    copying[trace.launch[events[trace.matching(events, PAGEABLE.search)]]] = True
    calls = calls[copying[calls] & (found[calls] == Host.CALL)]
    found[calls[trace.matching(calls, COPIES_LATER.search)]] = Host.SYNC
    return found


class Slices(NamedTuple):
    """Slices on a line of time, by (start, -duration); arrays of shape [n], times in
    ns."""

    rows: Rows
    start: Int64s
    end: Int64s

    def only(self, which: Flags | Rows) -> Slices:
        # once, for all three
        which = np.flatnonzero(which) if which.dtype == np.bool_ else which
        return Slices(self.rows[which], self.start[which], self.end[which])

    def begun_in(self, cover: Cover) -> tuple[Slices, Rows]:
        """The slices that start inside a cover, and how many do in each of its
        intervals."""
        first, last = (self.start.searchsorted(times) for times in cover[:2])
        return self.only(ranges(first, last - first)), last - first

    def parts(self) -> Slices:
        """When each is the innermost one: parts that do not overlap, in order."""
        # those that meet no other are their own part, and are most
        alone = self.end > self.start
        alone[1:] &= np.maximum.accumulate(self.end)[:-1] <= self.start[1:]
        alone[:-1] &= self.end[:-1] <= self.start[1:]
        rest = self.only(~alone)
        times, inner = innermost(rest.start, rest.end)
        inside = np.flatnonzero(inner[:-1] >= 0)
        found = Slices(rest.rows[inner[inside]], times[inside], times[inside + 1])
        return together((self.only(alone), found)) if len(inside) else self.only(alone)

    def touching(self, begin: Int64s, end: Int64s) -> Slices:
        """The slices that lie at least partly in one of some stretches."""
        # Of n stretches that ended before a slice starts: whether n + 1 begin before it
        # ends.
        ended = np.append(self.start.searchsorted(np.sort(end)), len(self.start))
        begun = np.repeat(np.append(np.sort(begin), FOREVER), np.diff(ended, prepend=0))
        return self.only(begun < self.end)


def together(slices: Sequence[Slices]) -> Slices:
    """Slices of several kinds as one; of those with the same bounds, in the order of
    the kinds. Fast for a few sorted parts, which np.lexsort is not."""
    rows, start, end = map(np.concatenate, zip(*slices, strict=True))
    order = np.argsort(start, kind="stable")
    same = np.diff(start[order]) == 0
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    some = order[tied]
    order[tied] = some[np.lexsort((start[some] - end[some], start[some]))]
    return Slices(rows[order], start[order], end[order])


class Threads(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Some threads of a trace, on one line of time."""

    trace: Trace
    kinds: NDArray[np.int8]  # see host_kinds
    tracks: Flags  # which belong to the threads; shape [tracks]
    alone: bool  # there are no other threads
    # what others do while one of these waits for them counts as its own
    lent: Lent | None = None
    # the same threads without `lent`, whose work is shared
    alike: Threads | None = None

    @cached_property
    def _number(self) -> Int64s:
        found = np.zeros(len(self.tracks), dtype=np.int64)
        threads = self.trace.thread_of_track[self.tracks]
        found[self.tracks] = np.unique(threads, return_inverse=True)[1]
        return found

    def on_line(self, tracks: NDArray[np.integer], times: Int64s) -> Int64s:
        """Where times (ns of the file) of the threads of these tracks lie (see
        Line.at)."""
        return TimeLine(self.trace).at(self._number[tracks], times)

    def parts(self, stretches: Cover, cover: Cover) -> Cover:
        """The parts of stretches of the line that lie in a cover in times of the
        file."""
        since = TimeLine(self.trace).since(stretches.start)
        own = Cover(stretches.start - since, stretches.end - since, stretches.number)
        found, place = pieces(own, cover)
        return Cover(found.start + since[place], found.end + since[place], found.number)

    @memo(len(Host))
    def slices(self, kind: Host) -> Slices:
        """The slices of one kind."""
        if self.lent is not None and self.alike is not None:
            own = self.alike.slices(kind)
            lent = self._lent(self.lent, kind)
            return together([own, lent]) if len(lent.rows) else own
        rows = self.own(np.flatnonzero(self.kinds == kind))
        found = Slices(rows, *self.bounds(rows))
        start, end = found.start, found.end
        longer_later = (start[1:] == start[:-1]) & (end[1:] > end[:-1])
        in_order = not ((start[1:] < start[:-1]) | longer_later).any()
        return found if in_order else together([found])

    def _lent(self, lent: Lent, kind: Host) -> Slices:
        """Likewise, at the places of the threads that wait."""
        own = (self.kinds[lent.rows] == kind) & self.tracks[lent.track]
        rows, track = lent.rows[own], lent.track[own]
        start = self.on_line(track, self.trace.start[rows])
        return Slices(rows, start, start + self.trace.dur[rows])

    def own(self, rows: Rows) -> Rows:
        return rows if self.alone else rows[self.tracks[self.trace.track[rows]]]

    def bounds(self, rows: Rows) -> tuple[Int64s, Int64s]:
        """Starts and ends of slices of these threads on the line."""
        line = TimeLine(self.trace)
        start = (self._number * line.length - line.begin_ns).take(
            self.trace.track[rows]
        )
        start += self.trace.start[rows]
        return start, start + self.trace.dur[rows]

    @cached_property
    def covers(self) -> tuple[Cover, ...]:
        """When each kind counts, in the order of Host; disjoint, without NOTHING."""
        if self.lent is not None and self.alike is not None:
            return self._with_lent(self.alike.covers, self.lent)
        notes, frames = (
            union(*self.slices(k)[1:]) for k in (Host.ANNOTATION, Host.PYTHON)
        )
        calls = self._innermost([self.slices(kind) for kind in CALLS], CALLS)
        called, ops = joined(*calls), self._ops()
        busy = joined(called, ops)
        noted = without(notes, joined(busy, frames))
        return *calls, without(ops, called), without(frames, busy), noted

    def _with_lent(self, own: tuple[Cover, ...], lent: Lent) -> tuple[Cover, ...]:
        """The covers of these threads with what is lent: that meets no op and no call
        of theirs."""
        lent_calls = self._innermost([self._lent(lent, kind) for kind in CALLS], CALLS)
        lent_called = joined(*lent_calls)
        lent_ops = without(union(*self._lent(lent, Host.OP)[1:]), lent_called)
        lent_busy = joined(lent_called, lent_ops)
        *own_calls, own_ops, own_frames, own_notes = own
        calls = [joined(*both) for both in zip(own_calls, lent_calls, strict=True)]
        ops = joined(own_ops, lent_ops)
        return (
            *calls,
            ops,
            without(own_frames, lent_busy),
            without(own_notes, lent_busy),
        )

    def split(self, begin: Int64s, end: Int64s) -> Int64s:
        """For how long each kind counts in each [begin, end) on the line; shape [Host,
        stretches]. The kinds of a stretch add up to its length, exactly."""
        found = np.stack(
            [cover.within(begin, end) for cover in self.covers] + [end - begin]
        )
        found[Host.NOTHING] -= found[: Host.NOTHING].sum(axis=0)
        return found

    def _ops(self) -> Cover:
        """The time in which the innermost op started no earlier than any frame. Only
        frames that start inside an op can start later than the innermost one, and there
        are few of them."""
        ops, frames = self.slices(Host.OP), self.slices(Host.PYTHON)
        whole = union(*ops[1:])
        inside, counts = frames.begun_in(whole)
        if not len(inside.rows):
            return whole
        part = Cover(whole.start[counts > 0], whole.end[counts > 0])
        found = self._innermost([inside, ops.begun_in(part)[0]], (Host.PYTHON,))
        return without(whole, common(part, *found))

    def _innermost(
        self, slices: Sequence[Slices], kinds: Sequence[Host]
    ) -> tuple[Cover, ...]:
        """The time in which a slice of each kind is the innermost one of these."""
        every = together(slices)
        rows, start, end = (
            every.parts() if (every.start[1:] < every.end[:-1]).any() else every
        )
        found = self.kinds[rows]
        return tuple(union(start[found == kind], end[found == kind]) for kind in kinds)


def launching(
    trace: Trace, threads: Sequence[Threads], launch: NDArray[np.integer], which: Flags
) -> Iterator[tuple[Threads, Rows, Callable[[Int64s], Int64s]]]:
    """Which of some launch calls (rows, -1 for none; those where `which` says so) are
    on each line, if any, and what places times (ns of the file, one for each call) on
    it."""
    track = trace.track[np.maximum(launch, 0)]
    for line in threads:
        own = np.flatnonzero(which & (launch >= 0) & line.tracks[track])
        if len(own):
            yield line, own, partial(_placed, line, track[own], own)


def _placed(
    line: Threads, tracks: NDArray[np.integer], own: Rows, times: Int64s
) -> Int64s:
    return line.on_line(tracks, times[own])


def running(
    trace: Trace, threads: Sequence[Threads], launch: NDArray[np.integer], times: Int64s
) -> Rows:
    """The innermost call that waits for the device in which the thread of each launch
    call is at a time (ns of the file), -1 for none."""
    found = np.full(len(launch), -1, dtype=np.intp)
    for line, own, placed in launching(trace, threads, launch, launch >= 0):
        slices, at = line.slices(Host.SYNC), placed(times)
        place = Reach(slices.end).last(
            slices.start.searchsorted(at, side="right") - 1, at
        )
        found[own] = np.append(slices.rows, -1)[place]
    return found
