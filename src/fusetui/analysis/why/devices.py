"""Devices on one line of time: whatever is asked of each is computed for all of them
together; and the stretches of time in which they run nothing, and why each of them
lasted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import astuple
from numpy.typing import NDArray

from fusetui.analysis.questions.busy import communicates
from fusetui.analysis.questions.note import whole_of
from fusetui.analysis.why.host import Host, Threads, TimeLine, launching
from fusetui.analysis.why.model import IDLE, DeviceAccount
from fusetui.trace.model.arrays import Flags, Int32s, Int64s, Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id, exact_id
from fusetui.trace.model.intervals import FOREVER, Cover, joined, union

Reasons = tuple[Int64s, ...]
"""How long each gap lasted for each reason of IDLE (ns); a reason that does not occur
takes no memory."""

UNLINKED, GRAPH, HOST = 0, 1, 2  # places in IDLE; at HOST the kinds of Host begin
LAUNCH_CALL, LAUNCH_LATENCY, QUEUED, AFTER = 9, 10, 11, 12


class Gaps(msgspec.Struct, frozen=True, eq=False):
    """Idle time of devices, in order of device and time; arrays of shape [gaps], times
    in ns."""

    begin: Int64s
    end: Int64s
    event: Int32s  # the row of the GPU event that ends it
    before: Int32s  # the row of the event that ended last before it, -1 for none
    # the row of the call that launched the event, -1 where it is not known
    launch: Int32s
    in_graph: Flags  # the call launched earlier events of the device too
    # the end of the host part: when the call begins; `begin` unless plain
    called: Int64s
    returned: Int64s  # the end of the call, if it lies in the gap; likewise

    def __len__(self) -> int:
        return len(self.begin)

    def only(self, which: Rows | slice | Flags) -> Gaps:
        return Gaps(*(column[which] for column in astuple(self)))

    def within(self, begin_ns: int, end_ns: int) -> Gaps:
        """Those that lie at least partly in a window, clipped to it."""
        inside = np.flatnonzero((self.begin < end_ns) & (self.end > begin_ns))
        return self.only(inside).clipped(begin_ns, end_ns)

    def clipped(self, begin: Int64s | int, end: Int64s | int) -> Gaps:
        begin, end = (np.clip(times, self.begin, self.end) for times in (begin, end))
        called, returned = (
            np.clip(one, begin, end) for one in (self.called, self.returned)
        )
        return msgspec.structs.replace(
            self, begin=begin, end=end, called=called, returned=returned
        )

    @property
    def plain(self) -> Flags:
        """Which gaps are neither unlinked nor within a graph."""
        return (self.launch >= 0) & ~self.in_graph


def events_in_order(trace: Trace, rows: Int32s, start: Int64s) -> Int32s:
    """GPU events by `start`; of those that start together, the longest first."""
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        rows, start = rows[order], start[order]
    equal = start[1:] == start[:-1]
    if equal.any():
        among = np.concatenate((equal, [False])) | np.concatenate(([False], equal))
        few = rows[among]
        rows[among] = few[np.lexsort((few, -trace.dur[few], start[among]))]
    return rows


FEWEST = 20  # the fewest gaps from which the usual launch latency is derived


class Named(NamedTuple):
    """A device; the name is blank where the file does not tell it."""

    pid: Id
    name: str


class Devices(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Devices that have events, and fit on one line of time; a number is a place among
    them."""

    trace: Trace
    threads: tuple[Threads, ...]
    named: Sequence[Named]
    # of the device whose events are on it, -1 for none; shape [tracks]
    number_of_track: Int32s
    # all of them stand for one, and it does not matter what they run
    as_one: bool = False

    def __len__(self) -> int:
        return len(self.named)

    def number(self, rows: NDArray[np.integer]) -> Int32s:
        """Of the device on which each GPU event ran."""
        found: Int32s = self.number_of_track[self.trace.track[rows]]
        return found

    def on_line(self, number: NDArray[np.integer], times: Int64s) -> Int64s:
        """Where times (ns of the file) of these devices lie (see Line.at)."""
        return times if len(self) == 1 else TimeLine(self.trace).at(number, times)

    def bounds_on(self, rows: NDArray[np.integer]) -> tuple[Int64s, Int64s]:
        start = self.on_line(self.number(rows), self.trace.start[rows])
        return start, start + self.trace.dur[rows]

    @cached_property
    def events(self) -> Int32s:
        """The rows of all GPU events by device and start; of those that start together,
        the longest first."""
        trace = self.trace
        rows = trace.gpu_rows.astype(np.int32)
        own = self.number(rows) >= 0
        rows = rows if own.all() else rows[own]
        return events_in_order(trace, rows, self.bounds_on(rows)[0])

    @cached_property
    def _firsts(self) -> Rows:
        """Where the events of each device begin, then their number; shape [devices +
        1]."""
        return self.number(self.events).searchsorted(np.arange(len(self) + 1))

    @cached_property
    def begin_ns(self) -> Int64s:
        return self.trace.start[self.events[self._firsts[:-1]]]

    @cached_property
    def end_ns(self) -> Int64s:
        return np.maximum.reduceat(self.trace.end[self.events], self._firsts[:-1])

    @cached_property
    def gaps(self) -> Gaps:
        """Between the first and the last event of each device."""
        trace, events = self.trace, self.events
        start, end = self.bounds_on(events)
        latest = np.maximum.accumulate(end, out=end)
        ending = np.flatnonzero(start[1:] > latest[:-1]) + 1
        ending = ending[self.number(events[ending]) == self.number(events[ending - 1])]
        last = events[latest.searchsorted(latest[ending - 1])]
        del start, end, latest
        return self._linked(
            trace.end[last], trace.start[events[ending]], events[ending], last
        )

    def lead(self, begin_ns: int) -> Gaps:
        """The time from `begin_ns` until each device starts; none if that is before
        `begin_ns`."""
        first = self.events[self._firsts[:-1]][self.begin_ns > begin_ns]
        begins = np.full(len(first), begin_ns, dtype=np.int64)
        return self._linked(
            begins, self.trace.start[first], first, np.full_like(first, -1)
        )

    def with_lead(self, begin_ns: int) -> Gaps:
        both = zip(astuple(self.lead(begin_ns)), astuple(self.gaps), strict=True)
        return Gaps(*map(np.concatenate, both))

    def _linked(
        self, begin: Int64s, end: Int64s, event: Int32s, before: Int32s
    ) -> Gaps:
        """Gaps with the calls that ended them. A call that starts after its event does
        not count: the clocks differ."""
        launch = self.trace.launch[event]
        launch[self.trace.start[launch] > end] = -1
        in_graph = launch >= 0
        keys, began = self._began
        at = keys.searchsorted(self._key(event[in_graph], launch[in_graph]))
        in_graph[in_graph] = began[at] < end[in_graph]
        plain = (launch >= 0) & ~in_graph
        called = np.where(plain, np.maximum(self.trace.start[launch], begin), begin)
        returned = np.where(plain, np.clip(self.trace.end[launch], called, end), begin)
        return Gaps(begin, end, event, before, launch, in_graph, called, returned)

    def _key(self, events: Int32s, calls: Int32s) -> Int64s:
        return self.number(events).astype(np.int64) * len(self.trace) + calls

    @cached_property
    def _began(self) -> tuple[Int64s, Int64s]:
        """Each call that launched events on a device, by its key, and the first start
        of those."""
        trace = self.trace
        launched = self.events[trace.launch[self.events] >= 0]
        calls = trace.launch[launched]
        known = trace.start[calls] <= trace.start[launched]
        launched, calls = launched[known], calls[known]
        keys, first = np.unique(self._key(launched, calls), return_index=True)
        # events are in order: the earliest of each
        return keys, trace.start[launched[first]]

    @cached_property
    def latency_ns(self) -> Int64s:
        """The usual delay from the start of a launch call to that of its event, when
        the queue was empty: on each device the lower quartile over the gaps during
        which the call began; 0 if there are too few. Of a part of a trace that of the
        whole."""
        if whole := whole_of(self.trace):
            known = whole.launch_latency_usual_ns
            return np.array(
                [known.get(str(one.pid), 0) for one in self.named], dtype=np.int64
            )
        return self.latency_of(self.gaps, FEWEST)

    def latency_of(self, gaps: Gaps, fewest: int) -> Int64s:
        """Likewise over some gaps, of which each device needs so many."""
        during = gaps.called > gaps.begin
        delays, number = (
            (gaps.end - gaps.called)[during],
            self.number(gaps.event[during]),
        )
        delays = delays[np.lexsort((delays, number))]
        count = np.bincount(number, minlength=len(self))
        enough = count >= fewest
        found = np.zeros(len(self), dtype=np.int64)
        found[enough] = delays[(np.cumsum(count) - count + count // 4)[enough]]
        return found

    @cached_property
    def reasons(self) -> Reasons:
        return self.reasons_of(self.gaps)

    def reasons_of(self, gaps: Gaps) -> Reasons:
        """How long each gap of these devices, or part of one, lasted for which reason:
        they add up to its length."""
        found = [np.broadcast_to(np.int64(0), len(gaps)) for _ in IDLE]
        for reason, (which, begin, end) in self.stretches(gaps).items():
            if which.any():
                found[reason] = np.where(which, end - begin, 0)
        waits = gaps.called > gaps.begin
        for line, own, placed in launching(
            self.trace, self.threads, gaps.launch, waits
        ):
            first, last = placed(gaps.begin), placed(gaps.called)
            split = line.split(first, last)
            # Outside the trace there is nothing.
            split[Host.NOTHING] += (gaps.called - gaps.begin)[own] - (last - first)
            for reason, part in enumerate(split, HOST):
                if part.any():
                    found[reason] = np.array(found[reason])
                    found[reason][own] = part
        return tuple(found)

    def stretches(self, gaps: Gaps) -> dict[int, tuple[Flags, Int64s, Int64s]]:
        """For the reasons that hold for one stretch of a gap: which gaps have it, and
        from when to when it holds."""
        due = self.trace.start[gaps.launch] + self.latency_ns[self.number(gaps.event)]
        due, plain = np.clip(due, gaps.returned, gaps.end), gaps.plain
        return {
            UNLINKED: (gaps.launch < 0, gaps.begin, gaps.end),
            GRAPH: (gaps.in_graph, gaps.begin, gaps.end),
            LAUNCH_CALL: (plain, gaps.called, gaps.returned),
            LAUNCH_LATENCY: (plain, gaps.returned, due),
            QUEUED: (plain, due, gaps.end),
        }

    def idle_in(self, window: tuple[int, int] | None) -> tuple[Gaps, Reasons]:
        """The gaps; in a window [begin, end) (ns of the file) the parts that lie in it,
        and the time before the first event of a device is a gap too."""
        if window is None:
            return self.gaps, self.reasons
        every = self.with_lead(window[0])
        inside = every.only(np.argsort(self.number(every.event), kind="stable")).within(
            *window
        )
        return inside, self.reasons_of(inside)

    @cached_property
    def spans(self) -> list[DeviceAccount]:
        """The account of each device from the first start to the last end of its
        events."""
        return self.at(np.arange(len(self)), self.begin_ns, self.end_ns)

    def at(self, number: Rows, begin: Int64s, end: Int64s) -> list[DeviceAccount]:
        """The account of each window [begin, end) (ns of the file) of a device, where
        begin <= end; three arrays of one shape."""
        first, last = self.begin_ns[number], self.end_ns[number]
        idle = self._idle_until(number, end) - self._idle_until(number, begin)
        early = np.flatnonzero(begin < first)
        if len(early):
            until = np.minimum(end, first)[early]
            idle[:, early] += self._idle_before(number[early], begin[early], until)
        idle[AFTER] = np.maximum(end - np.maximum(begin, last), 0)
        busy, span = (
            self._busy(self.on_line(number, begin), self.on_line(number, end)),
            end - begin,
        )
        columns = (number, span, *busy[:3], span - busy[:3].sum(axis=0), *busy[3:])
        found = []
        for figures, why in zip(
            np.stack(columns).T.tolist(), idle.T.tolist(), strict=True
        ):
            n, whole, compute, comm, copy, rest, behind, hidden = figures
            times = (
                whole,
                compute,
                comm,
                copy,
                rest,
                behind,
                hidden,
                int(self.latency_ns[n]),
            )
            reasons = {name: ns for name, ns in zip(IDLE, why, strict=True) if ns}
            device, name = exact_id(self.named[n].pid), self.named[n].name
            found.append(DeviceAccount(device, name, *times, reasons))
        return found

    def _busy(self, begin: Int64s, end: Int64s) -> Int64s:
        """Compute, exposed communication, exposed copies, hidden communication and
        hidden copies of times on the line; shape [5, times]."""
        compute, comm, copy, both, every = (
            cover.within(begin, end) for cover in self._covers
        )
        exposed = both - compute, every - both
        return np.stack((compute, *exposed, comm - exposed[0], copy - exposed[1]))

    @cached_property
    def _covers(self) -> tuple[Cover, ...]:
        """Compute; communication; copies; the first two; all three."""
        events = self.events
        kernel = self.trace.role[events] == Role.KERNEL
        moves = communicates(self.trace, events) & (not self.as_one)
        parts = (events[own] for own in (kernel & ~moves, moves, ~kernel & ~moves))
        compute, comm, copy = (union(*self.bounds_on(rows)) for rows in parts)
        both = joined(compute, comm)
        return compute, comm, copy, both, joined(both, copy)

    def _idle_until(self, number: Rows, times: Int64s) -> Int64s:
        """How long a device was idle for which reason before each time (ns), [IDLE,
        times]."""
        gaps, found = self.gaps, np.zeros((len(IDLE), len(times)), dtype=np.int64)
        begins = self.on_line(self.number(gaps.event), gaps.begin)
        at = np.searchsorted(begins, self.on_line(number, times), side="right") - 1
        first = self.number(gaps.event).searchsorted(number)  # of its device
        started = np.flatnonzero(at >= first)
        at, first = at[started], first[started]
        part = self.reasons_of(gaps.only(at).clipped(-FOREVER, times[started]))
        for reason, column in enumerate(self.reasons):
            before = np.concatenate(([0], np.cumsum(column)))
            found[reason, started] = before[at] - before[first] + part[reason]
        return found

    def _idle_before(self, number: Rows, begin: Int64s, end: Int64s) -> Int64s:
        """Likewise from begin to end, both before the first event of the device."""
        lead = self.lead(int(begin.min()))
        whole = lead.only(self.number(lead.event).searchsorted(number))
        return np.stack(self.reasons_of(whole.clipped(begin, end)))
