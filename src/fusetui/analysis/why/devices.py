"""Devices on one line of time: whatever is asked of each is computed for all of them
together; and the stretches of time in which they run nothing, and why each of them
lasted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import astuple
from numpy.typing import NDArray

from fusetui.analysis.questions.busy import communicates
from fusetui.analysis.questions.note import whole_of
from fusetui.analysis.why.model import IDLE, DeviceAccount
from fusetui.analysis.why.thread_activity import (
    ThreadActivity,
    Threads,
    TimeLine,
    launching,
)
from fusetui.trace.model.arrays import Flags, Int32s, Int64s, Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id, exact_id
from fusetui.trace.model.intervals import FOREVER, Cover, joined, union

Reasons = tuple[Int64s, ...]
"""How long each gap lasted for each reason of IDLE (ns); a reason that does not occur
takes no memory."""

_PLACES: Final = {name: place for place, name in enumerate(IDLE)}
UNLINKED: Final = _PLACES["unlinked"]
GRAPH: Final = _PLACES["graph"]
HOST: Final = _PLACES["host_sync"]
"""The places of reasons in IDLE; at HOST the kinds of ThreadActivity begin, in their order."""
LAUNCH_CALL: Final = _PLACES["launch_call"]
LAUNCH_LATENCY: Final = _PLACES["launch_latency"]
QUEUED: Final = _PLACES["queued"]
AFTER: Final = _PLACES["after"]


class Gaps(msgspec.Struct, frozen=True, eq=False):
    """Idle time of devices, in order of device and time; arrays of shape [gaps], times
    in ns."""

    begin: Int64s
    end: Int64s
    event: Int32s
    """The row of the GPU event that ends it."""
    before: Int32s
    """The row of the event that ended last before it, -1 for none."""
    launch: Int32s
    """The row of the call that launched the event, -1 where it is not known."""
    in_graph: Flags
    """Whether the call launched earlier events of the device too."""
    call_begin: Int64s
    """The end of the host part: when the call begins; `begin` unless plain."""
    call_end: Int64s
    """The end of the call, if it lies in the gap; likewise."""

    def __len__(self) -> int:
        return len(self.begin)

    def only(self, which: Rows | slice | Flags) -> Gaps:
        """Some of the gaps, by places or flags."""
        return Gaps(*(column[which] for column in astuple(self)))

    def within(self, begin_ns: int, end_ns: int) -> Gaps:
        """The gaps that lie at least partly in a window, clipped to it."""
        is_inside = (self.begin < end_ns) & (self.end > begin_ns)
        return self.only(np.flatnonzero(is_inside)).clipped(begin_ns, end_ns)

    def clipped(self, begin: Int64s | int, end: Int64s | int) -> Gaps:
        """The gaps without what lies before `begin` or after `end` (ns of the file),
        times for all, or for each of them."""
        clipped_begin = np.clip(begin, self.begin, self.end)
        clipped_end = np.clip(end, self.begin, self.end)
        return msgspec.structs.replace(
            self,
            begin=clipped_begin,
            end=clipped_end,
            call_begin=np.clip(self.call_begin, clipped_begin, clipped_end),
            call_end=np.clip(self.call_end, clipped_begin, clipped_end),
        )

    @property
    def plain(self) -> Flags:
        """Which gaps are neither unlinked nor within a graph."""
        return (self.launch >= 0) & ~self.in_graph


def events_in_order(trace: Trace, rows: Int32s, start: Int64s) -> Int32s:
    """The rows of GPU events by `start` (ns, of each); of those that start together,
    the longest first, then the first row. `rows` may be changed in place."""
    is_in_order = (start[1:] >= start[:-1]).all()
    if not is_in_order:
        order = np.argsort(start, kind="stable")
        rows = rows[order]
        start = start[order]
    is_same_as_next = start[1:] == start[:-1]
    if is_same_as_next.any():
        is_tied = np.append(is_same_as_next, False)
        is_tied[1:] |= is_same_as_next
        tied = rows[is_tied]
        order_of_tied = np.lexsort((tied, -trace.dur[tied], start[is_tied]))
        rows[is_tied] = tied[order_of_tied]
    return rows


MIN_GAPS_FOR_LATENCY: Final = 20
"""The fewest gaps from which the usual launch latency is derived."""


class Named(NamedTuple):
    """A device; the name is blank where the file does not tell it."""

    pid: Id
    name: str


class Stretch(msgspec.Struct, frozen=True, eq=False):
    """When a reason holds in each gap; arrays of shape [gaps], ns of the file."""

    holds: Flags
    """Whether it does at all; else the times mean nothing."""
    begin: Int64s
    end: Int64s


class LaunchingCalls(msgspec.Struct, frozen=True, eq=False):
    """The calls that launched events on each device, before these started; arrays of
    shape [calls]."""

    key: Int64s
    """See Devices._key; sorted."""
    first_start_ns: Int64s
    """The first start of the events that it launched on the device."""


class BusyTime(NamedTuple):
    """What a device did in one window."""

    compute_ns: int
    exposed_comm_ns: int
    exposed_copy_ns: int
    hidden_comm_ns: int
    hidden_copy_ns: int


class BusyTimes(msgspec.Struct, frozen=True, eq=False):
    """What devices did in some windows; arrays of shape [windows]."""

    compute_ns: Int64s
    exposed_comm_ns: Int64s
    exposed_copy_ns: Int64s
    hidden_comm_ns: Int64s
    hidden_copy_ns: Int64s

    def by_window(self) -> list[BusyTime]:
        """The times of each window."""
        columns = [column.tolist() for column in astuple(self)]
        return [BusyTime(*times) for times in zip(*columns, strict=True)]


class BusyCovers(msgspec.Struct, frozen=True, eq=False):
    """When devices run something, on their line."""

    compute: Cover
    comm: Cover
    copy: Cover
    compute_or_comm: Cover
    any: Cover


class Devices(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Devices that have events, and fit on one line of time; a number is a place among
    them."""

    trace: Trace
    threads: tuple[Threads, ...]
    named: Sequence[Named]
    index_of_track: Int32s
    """Of the device whose events are on it, -1 for none; shape [tracks]."""
    as_one: bool = False
    """All of them stand for one, and it does not matter what they run."""

    def __len__(self) -> int:
        return len(self.named)

    def number(self, rows: NDArray[np.integer]) -> Int32s:
        """Of the device on which each GPU event ran."""
        number: Int32s = self.index_of_track[self.trace.track[rows]]
        return number

    def on_line(self, number: NDArray[np.integer], times: Int64s) -> Int64s:
        """Where times (ns of the file) of these devices lie (see TimeLine.at); for a
        single device the times themselves."""
        if len(self) == 1:
            return times
        return TimeLine(self.trace).at(number, times)

    def bounds_on(self, rows: NDArray[np.integer]) -> tuple[Int64s, Int64s]:
        """Starts and ends of GPU events on the line."""
        start = self.on_line(self.number(rows), self.trace.start[rows])
        return start, start + self.trace.dur[rows]

    @cached_property
    def events(self) -> Int32s:
        """The rows of all GPU events by device and start; of those that start together,
        the longest first."""
        rows = self.trace.gpu_rows.astype(np.int32)
        is_of_device = self.number(rows) >= 0
        if not is_of_device.all():
            rows = rows[is_of_device]
        start, _ = self.bounds_on(rows)
        return events_in_order(self.trace, rows, start)

    @cached_property
    def _firsts(self) -> Rows:
        """Where the events of each device begin, then their number; shape [devices +
        1]."""
        return self.number(self.events).searchsorted(np.arange(len(self) + 1))

    @cached_property
    def begin_ns(self) -> Int64s:
        """The first start of each device's events (ns of the file)."""
        return self.trace.start[self.events[self._firsts[:-1]]]

    @cached_property
    def end_ns(self) -> Int64s:
        """The last end of each device's events (ns of the file)."""
        return np.maximum.reduceat(self.trace.end[self.events], self._firsts[:-1])

    @cached_property
    def gaps(self) -> Gaps:
        """The gaps between the first and the last event of each device."""
        trace = self.trace
        events = self.events
        start, end = self.bounds_on(events)
        latest_end = np.maximum.accumulate(end, out=end)
        ends_gap = np.flatnonzero(start[1:] > latest_end[:-1]) + 1
        device = self.number(events[ends_gap])
        device_before = self.number(events[ends_gap - 1])
        ends_gap = ends_gap[device == device_before]
        place_of_last = latest_end.searchsorted(latest_end[ends_gap - 1])
        del start, end, latest_end  # large
        last = events[place_of_last]
        event = events[ends_gap]
        return self._linked(
            begin=trace.end[last], end=trace.start[event], event=event, before=last
        )

    def lead(self, begin_ns: int) -> Gaps:
        """The time from `begin_ns` until each device starts; none if that is before
        `begin_ns`."""
        starts_later = self.begin_ns > begin_ns
        first = self.events[self._firsts[:-1]][starts_later]
        return self._linked(
            begin=np.full(len(first), begin_ns, dtype=np.int64),
            end=self.trace.start[first],
            event=first,
            before=np.full_like(first, -1),
        )

    def with_lead(self, begin_ns: int) -> Gaps:
        """The gaps, after those of `lead`."""
        lead = self.lead(begin_ns)
        columns: dict[str, Any] = {}
        for name in Gaps.__struct_fields__:
            columns[name] = np.concatenate(
                (getattr(lead, name), getattr(self.gaps, name))
            )
        return Gaps(**columns)

    def _linked(
        self, *, begin: Int64s, end: Int64s, event: Int32s, before: Int32s
    ) -> Gaps:
        """Gaps with the calls that ended them. A call that starts after its event does
        not count: the clocks differ."""
        trace = self.trace
        launch = trace.launch[event]
        launch[trace.start[launch] > end] = -1
        in_graph = self._launched_others_before(event, launch, end)
        is_plain = (launch >= 0) & ~in_graph
        launch_begin_ns = np.maximum(trace.start[launch], begin)
        call_begin = np.where(is_plain, launch_begin_ns, begin)
        launch_end_ns = np.clip(trace.end[launch], call_begin, end)
        call_end = np.where(is_plain, launch_end_ns, begin)
        return Gaps(
            begin=begin,
            end=end,
            event=event,
            before=before,
            launch=launch,
            in_graph=in_graph,
            call_begin=call_begin,
            call_end=call_end,
        )

    def _launched_others_before(
        self, event: Int32s, launch: Int32s, end: Int64s
    ) -> Flags:
        """Whether the call that launched each event (-1 for none) had launched another
        one on its device that started before `end` (ns of the file)."""
        has_launch = launch >= 0
        launching = self._launching_calls
        key = self._key(event[has_launch], launch[has_launch])
        first_start_ns = launching.first_start_ns[launching.key.searchsorted(key)]
        launched_before = has_launch.copy()
        launched_before[has_launch] = first_start_ns < end[has_launch]
        return launched_before

    def _key(self, events: Int32s, calls: Int32s) -> Int64s:
        """A number for each device and call."""
        return self.number(events).astype(np.int64) * len(self.trace) + calls

    @cached_property
    def _launching_calls(self) -> LaunchingCalls:
        """The calls that launched events on each device; a call that starts after its
        event does not count."""
        trace = self.trace
        events = self.events[trace.launch[self.events] >= 0]
        calls = trace.launch[events]
        is_before = trace.start[calls] <= trace.start[events]
        events = events[is_before]
        key = self._key(events, calls[is_before])
        # events are in order, so the first of a call is the earliest
        distinct_key, first = np.unique(key, return_index=True)
        return LaunchingCalls(
            key=distinct_key, first_start_ns=trace.start[events[first]]
        )

    @cached_property
    def latency_ns(self) -> Int64s:
        """The usual delay from the start of a launch call to that of its event, when
        the queue was empty (ns, of shape [devices]): on each device the lower quartile
        over the gaps during which the call began; 0 if there are too few. Of a part of
        a trace that of the whole."""
        whole = whole_of(self.trace)
        if whole is None:
            return self.latency_of(self.gaps, MIN_GAPS_FOR_LATENCY)
        latency_of_pid = whole.launch_latency_usual_ns
        latencies = [latency_of_pid.get(str(device.pid), 0) for device in self.named]
        return np.array(latencies, dtype=np.int64)

    def latency_of(self, gaps: Gaps, fewest: int) -> Int64s:
        """The lower quartile of the delay from the start of a launch call to that of its
        event, over the gaps during which the call began (ns, of shape [devices]); 0 for
        a device with fewer than `fewest` such gaps."""
        begins_in_gap = gaps.call_begin > gaps.begin
        delay_ns = (gaps.end - gaps.call_begin)[begins_in_gap]
        number = self.number(gaps.event[begins_in_gap])
        sorted_delay_ns = delay_ns[np.lexsort((delay_ns, number))]
        counts = np.bincount(number, minlength=len(self))
        first_of_device = np.cumsum(counts) - counts
        lower_quartile = first_of_device + counts // 4
        has_enough = counts >= fewest
        latency_ns = np.zeros(len(self), dtype=np.int64)
        latency_ns[has_enough] = sorted_delay_ns[lower_quartile[has_enough]]
        return latency_ns

    @cached_property
    def reasons(self) -> Reasons:
        """How long each of `gaps` lasted for which reason."""
        return self.reasons_of(self.gaps)

    def reasons_of(self, gaps: Gaps) -> Reasons:
        """How long each gap of these devices, or part of one, lasted for which reason:
        they add up to its length."""
        columns = [np.broadcast_to(np.int64(0), len(gaps)) for _ in IDLE]
        for reason, stretch in self.stretches(gaps).items():
            if stretch.holds.any():
                length_ns = stretch.end - stretch.begin
                columns[reason] = np.where(stretch.holds, length_ns, 0)
        for places, activity_ns in self._activities_in(gaps):
            for reason, ns in enumerate(activity_ns, HOST):
                if ns.any():
                    columns[reason] = np.array(columns[reason])
                    columns[reason][places] = ns
        return tuple(columns)

    def _activities_in(self, gaps: Gaps) -> Iterator[tuple[Rows, Int64s]]:
        """What the launching threads did in the host parts of gaps: for each line of
        threads the places of its gaps, and ns of shape [ThreadActivity, these gaps]."""
        host_part_ns = gaps.call_begin - gaps.begin
        for threads, places, on_line in launching(
            self.trace, self.threads, gaps.launch, host_part_ns > 0
        ):
            begin = on_line(gaps.begin)
            end = on_line(gaps.call_begin)
            activity_ns = threads.split(begin, end)
            # Nothing was recorded outside the trace, which the line does not have.
            outside_ns = host_part_ns[places] - (end - begin)
            activity_ns[ThreadActivity.NOTHING] += outside_ns
            yield places, activity_ns

    def stretches(self, gaps: Gaps) -> dict[int, Stretch]:
        """When each reason that holds for one stretch of a gap does, by its place in
        IDLE."""
        latency_ns = self.latency_ns[self.number(gaps.event)]
        usual_start = self.trace.start[gaps.launch] + latency_ns
        due = np.clip(usual_start, gaps.call_end, gaps.end)
        is_unlinked = gaps.launch < 0
        is_plain = gaps.plain
        return {
            UNLINKED: Stretch(holds=is_unlinked, begin=gaps.begin, end=gaps.end),
            GRAPH: Stretch(holds=gaps.in_graph, begin=gaps.begin, end=gaps.end),
            LAUNCH_CALL: Stretch(
                holds=is_plain, begin=gaps.call_begin, end=gaps.call_end
            ),
            LAUNCH_LATENCY: Stretch(holds=is_plain, begin=gaps.call_end, end=due),
            QUEUED: Stretch(holds=is_plain, begin=due, end=gaps.end),
        }

    def idle_in(self, window: tuple[int, int] | None) -> tuple[Gaps, Reasons]:
        """The gaps; in a window [begin, end) (ns of the file) the parts that lie in it,
        and the time before the first event of a device is a gap too."""
        if window is None:
            return self.gaps, self.reasons
        begin_ns, end_ns = window
        gaps = self.with_lead(begin_ns)
        by_device = np.argsort(self.number(gaps.event), kind="stable")
        inside = gaps.only(by_device).within(begin_ns, end_ns)
        return inside, self.reasons_of(inside)

    @cached_property
    def spans(self) -> list[DeviceAccount]:
        """The account of each device from the first start to the last end of its
        events."""
        return self.at(np.arange(len(self)), self.begin_ns, self.end_ns)

    def at(self, number: Rows, begin: Int64s, end: Int64s) -> list[DeviceAccount]:
        """The account of each window [begin, end) (ns of the file) of a device, where
        begin <= end; three arrays of one shape."""
        idle_ns = self._idle_until(number, end) - self._idle_until(number, begin)
        first_start = self.begin_ns[number]
        begins_early = np.flatnonzero(begin < first_start)
        if len(begins_early):
            until = np.minimum(end, first_start)[begins_early]
            idle_ns[:, begins_early] += self._idle_before(
                number[begins_early], begin[begins_early], until
            )
        after_last_event = np.maximum(begin, self.end_ns[number])
        idle_ns[AFTER] = np.maximum(end - after_last_event, 0)
        busy = self._busy(self.on_line(number, begin), self.on_line(number, end))
        return self._accounts(number, end - begin, busy, idle_ns)

    def _accounts(
        self, number: Rows, span_ns: Int64s, busy: BusyTimes, idle_ns: Int64s
    ) -> list[DeviceAccount]:
        """The account of each window. `idle_ns`: of shape [IDLE, windows]."""
        busy_ns = busy.compute_ns + busy.exposed_comm_ns + busy.exposed_copy_ns
        # lists, because reading single figures of arrays is slow
        spans = span_ns.tolist()
        idle = (span_ns - busy_ns).tolist()
        idle_by_reason = idle_ns.T.tolist()
        latency = self.latency_ns.tolist()
        busy_of_windows = busy.by_window()
        accounts = []
        for window, device in enumerate(number.tolist()):
            busy_of_window = busy_of_windows[window]
            reasons = zip(IDLE, idle_by_reason[window], strict=True)
            accounts.append(
                DeviceAccount(
                    device=exact_id(self.named[device].pid),
                    name=self.named[device].name,
                    span_ns=spans[window],
                    compute_ns=busy_of_window.compute_ns,
                    exposed_comm_ns=busy_of_window.exposed_comm_ns,
                    exposed_copy_ns=busy_of_window.exposed_copy_ns,
                    idle_ns=idle[window],
                    hidden_comm_ns=busy_of_window.hidden_comm_ns,
                    hidden_copy_ns=busy_of_window.hidden_copy_ns,
                    launch_latency_usual_ns=latency[device],
                    idle={reason: ns for reason, ns in reasons if ns},
                )
            )
        return accounts

    def _busy(self, begin: Int64s, end: Int64s) -> BusyTimes:
        """What runs in [begin, end) on the line."""
        covers = self._covers
        compute_ns = covers.compute.within(begin, end)
        comm_ns = covers.comm.within(begin, end)
        copy_ns = covers.copy.within(begin, end)
        compute_or_comm_ns = covers.compute_or_comm.within(begin, end)
        exposed_comm_ns = compute_or_comm_ns - compute_ns
        exposed_copy_ns = covers.any.within(begin, end) - compute_or_comm_ns
        return BusyTimes(
            compute_ns=compute_ns,
            exposed_comm_ns=exposed_comm_ns,
            exposed_copy_ns=exposed_copy_ns,
            hidden_comm_ns=comm_ns - exposed_comm_ns,
            hidden_copy_ns=copy_ns - exposed_copy_ns,
        )

    @cached_property
    def _covers(self) -> BusyCovers:
        """When the devices compute, communicate and copy. As one device they only
        compute and copy."""
        events = self.events
        is_kernel = self.trace.role[events] == Role.KERNEL
        is_comm = communicates(self.trace, events)
        if self.as_one:
            is_comm = np.zeros_like(is_comm)
        compute = self._cover(events[is_kernel & ~is_comm])
        comm = self._cover(events[is_comm])
        copy = self._cover(events[~is_kernel & ~is_comm])
        compute_or_comm = joined(compute, comm)
        return BusyCovers(
            compute=compute,
            comm=comm,
            copy=copy,
            compute_or_comm=compute_or_comm,
            any=joined(compute_or_comm, copy),
        )

    def _cover(self, events: Int32s) -> Cover:
        """When any of these events runs, on the line."""
        start, end = self.bounds_on(events)
        return union(start, end)

    def _idle_until(self, number: Rows, times: Int64s) -> Int64s:
        """How long each of these devices was idle for which reason before a time (ns of
        the file); ns, of shape [IDLE, times]."""
        gaps = self.gaps
        device_of_gap = self.number(gaps.event)
        begins = self.on_line(device_of_gap, gaps.begin)
        times_on_line = self.on_line(number, times)
        last_gap = begins.searchsorted(times_on_line, side="right") - 1
        first_gap = device_of_gap.searchsorted(number)
        has_gap = np.flatnonzero(last_gap >= first_gap)  # one has begun
        last_gap = last_gap[has_gap]
        first_gap = first_gap[has_gap]
        last_gaps = gaps.only(last_gap).clipped(-FOREVER, times[has_gap])
        last_gap_ns = self.reasons_of(last_gaps)
        idle_ns = np.zeros((len(IDLE), len(times)), dtype=np.int64)
        for reason, ns in enumerate(self.reasons):
            before = np.concatenate(([0], np.cumsum(ns)))
            earlier_gaps_ns = before[last_gap] - before[first_gap]
            idle_ns[reason, has_gap] = earlier_gaps_ns + last_gap_ns[reason]
        return idle_ns

    def _idle_before(self, number: Rows, begin: Int64s, end: Int64s) -> Int64s:
        """How long each of these devices was idle for which reason from begin to end
        (ns of the file), both before its first event; ns, of shape [IDLE, times]."""
        lead = self.lead(int(begin.min()))
        of_device = lead.only(self.number(lead.event).searchsorted(number))
        return np.stack(self.reasons_of(of_device.clipped(begin, end)))
