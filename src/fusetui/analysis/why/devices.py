"""Find the gaps in which a device runs nothing, and divide each of them among idle
reasons.

Several devices lie on one time axis: whatever is asked about each of them is
computed for all devices of an axis together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.busy import communicates
from fusetui.analysis.questions.note import find_whole_trace
from fusetui.analysis.why.model import IDLE, DeviceAccount
from fusetui.analysis.why.thread_activity import (
    SharedAxis,
    ThreadActivity,
    Threads,
    group_calls_by_axis,
)
from fusetui.trace.model.arrays import (
    NO_ROW,
    Flags,
    Int32s,
    Int64s,
    Rows,
    last_at_or_before,
    prefix_sums,
    reduce_groups,
)
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.grouping import grouped
from fusetui.trace.model.ids import Id, exact_id
from fusetui.trace.model.intervals import FOREVER, Cover, joined, order_by_start, union
from fusetui.trace.model.sorted_arrays import count_below, positions_of

Reasons = tuple[Int64s, ...]
"""How long each gap lasted for each reason of IDLE, in ns; one array of shape [gaps]
each.

A reason that does not occur takes no memory.
"""

_INDEX_OF_REASON: Final = {reason: index for index, reason in enumerate(IDLE)}
UNLINKED: Final = _INDEX_OF_REASON["unlinked"]
"""The index of a reason in IDLE, as are the constants that follow."""
GRAPH: Final = _INDEX_OF_REASON["graph"]
HOST: Final = _INDEX_OF_REASON["host_sync"]
"""The index of the first ThreadActivity in IDLE; the others follow in their order."""
LAUNCH_CALL: Final = _INDEX_OF_REASON["launch_call"]
LAUNCH_LATENCY: Final = _INDEX_OF_REASON["launch_latency"]
QUEUED: Final = _INDEX_OF_REASON["queued"]
AFTER: Final = _INDEX_OF_REASON["after"]


HOST_REASONS: Final = tuple(IDLE)[HOST:LAUNCH_CALL]
"""What a thread did before it launched, in the order of ThreadActivity."""


def name_reasons(ns_in_order: Sequence[int]) -> dict[str, int]:
    """Return the reasons of some idle time with their times, without zeros.

    >>> name_reasons([0] * (len(IDLE) - 1) + [50])
    {'after': 50}

    Args:
        ns_in_order: The time of each reason, in the order of IDLE.
    """
    ns_of_reason = {}
    for reason, ns in zip(IDLE, ns_in_order, strict=True):
        if ns:
            ns_of_reason[reason] = ns

    return ns_of_reason


class Gaps(msgspec.Struct, frozen=True, eq=False):
    """Idle time of devices, in order of device and time; arrays of shape [gaps], in ns.

    The *wait for the launch* is the part of a gap from its begin until the call begins
    that launches the next event. It is empty unless the gap `has_own_launch`.
    """

    begin: Int64s
    end: Int64s
    event: Int32s
    """The GPU event that ends the gap, as a row of the trace."""
    before: Int32s
    """The event that ended last before the gap, as a row of the trace; -1 for none."""
    launch: Int32s
    """The call that launched `event`, as a row of the trace; -1 if it is not known."""
    in_graph: Flags
    """Whether that call launched earlier events of the device too."""
    call_begin: Int64s
    """When the call begins, which ends the wait for the launch; `begin` without one."""
    call_end: Int64s
    """The end of the call as far as it lies in the gap; `begin` if it has none of its
    own."""

    def __len__(self) -> int:
        return len(self.begin)

    def select(self, selected: Rows | slice | Flags) -> Gaps:
        """Return some of the gaps, chosen by indices, a slice or one flag per gap."""
        return Gaps(
            begin=self.begin[selected],
            end=self.end[selected],
            event=self.event[selected],
            before=self.before[selected],
            launch=self.launch[selected],
            in_graph=self.in_graph[selected],
            call_begin=self.call_begin[selected],
            call_end=self.call_end[selected],
        )

    def followed_by(self, later: Gaps) -> Gaps:
        """Return these gaps and after them some others."""
        return Gaps(
            begin=np.concatenate((self.begin, later.begin)),
            end=np.concatenate((self.end, later.end)),
            event=np.concatenate((self.event, later.event)),
            before=np.concatenate((self.before, later.before)),
            launch=np.concatenate((self.launch, later.launch)),
            in_graph=np.concatenate((self.in_graph, later.in_graph)),
            call_begin=np.concatenate((self.call_begin, later.call_begin)),
            call_end=np.concatenate((self.call_end, later.call_end)),
        )

    def clip_to_window(self, begin_ns: int, end_ns: int) -> Gaps:
        """Return the gaps that lie at least partly in a window, clipped to it."""
        is_inside = (self.begin < end_ns) & (self.end > begin_ns)
        return self.select(np.flatnonzero(is_inside)).clip(begin_ns, end_ns)

    def clip(self, begin: Int64s | int, end: Int64s | int) -> Gaps:
        """Cut off what lies before `begin` or after `end`.

        Args:
            begin: In ns of the file; one time for all gaps, or one for each.
            end: Likewise.
        """
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
    def has_launch(self) -> Flags:
        """Tell of which gaps the launch of the next event is known."""
        is_known: Flags = self.launch != NO_ROW
        return is_known

    @property
    def has_own_launch(self) -> Flags:
        """Tell which gaps end with the first event that a known call launched.

        The replay of a graph launches many events: only the first of them has the
        launch for its own.
        """
        return self.has_launch & ~self.in_graph


NO_DEVICE: Final = -1
"""Stands for no device in columns of device indices."""
MIN_GAPS_FOR_LATENCY: Final = 20
"""From fewer gaps than these, no usual launch latency is derived."""


class DeviceIdentity(NamedTuple):
    """The process id and the name of a device.

    The name is "" if the file does not tell it.
    """

    pid: Id
    name: str


class ReasonInterval(msgspec.Struct, frozen=True, eq=False):
    """When one reason holds in each gap; shape [gaps], in ns of the file."""

    holds: Flags
    """Whether it holds at all in the gap. If not, the times mean nothing."""
    begin: Int64s
    end: Int64s


class LaunchingCalls(msgspec.Struct, frozen=True, eq=False):
    """The calls that launched events on each device; arrays of shape [calls].

    A call counts only if it began before the event started.
    """

    key: Int64s
    """A number for the device and the call, ascending; see Devices._make_call_keys."""
    first_start_ns: Int64s
    """The first start of the events that the call launched on the device."""


class BusyTimes(msgspec.Struct, frozen=True, eq=False):
    """How long devices ran something in some windows; arrays of shape [windows]."""

    compute_ns: Int64s
    exposed_comm_ns: Int64s
    exposed_copy_ns: Int64s
    hidden_comm_ns: Int64s
    hidden_copy_ns: Int64s


class BusyCovers(msgspec.Struct, frozen=True, eq=False):
    """When devices run something, as covers on their axis."""

    compute: Cover
    comm: Cover
    copy: Cover
    compute_or_comm: Cover
    any: Cover


class Devices(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Devices that have events and fit on one time axis.

    A *device index* is the index of a device in `named`.
    """

    trace: Trace
    threads: tuple[Threads, ...]
    identities: Sequence[DeviceIdentity]
    index_of_track: Int32s
    """The index of the device whose events each track has, NO_DEVICE for none; shape
    [tracks]."""
    are_merged: bool = False
    """Whether all devices stand for one, of which it does not matter what they run."""

    def __len__(self) -> int:
        return len(self.identities)

    def find_device_indices(self, rows: NDArray[np.integer]) -> Int32s:
        """Return the index of the device on which each GPU event ran."""
        index: Int32s = self.index_of_track[self.trace.track[rows]]
        return index

    def convert_to_axis(self, device: NDArray[np.integer], times: Int64s) -> Int64s:
        """Convert times of the file to times on the axis that the devices share.

        A single device shares its axis with no other: its times stay as they are.

        Args:
            device: The index of the device of each time.
            times: In ns of the file.
        """
        if len(self) == 1:
            return times
        return SharedAxis(self.trace).convert_from_file(device, times)

    def place_events(self, rows: NDArray[np.integer]) -> tuple[Int64s, Int64s]:
        """Return the starts and the ends of GPU events on the axis."""
        start = self.convert_to_axis(
            self.find_device_indices(rows), self.trace.start[rows]
        )
        return start, start + self.trace.dur[rows]

    @cached_property
    def events(self) -> Int32s:
        """Return all GPU events by device and start; of equal starts the longest first."""
        rows = self.trace.gpu_rows.astype(np.int32)
        is_of_device = self.find_device_indices(rows) != NO_DEVICE
        if not is_of_device.all():  # usually it is all, and a copy may be large
            rows = rows[is_of_device]

        start, end = self.place_events(rows)
        return rows[order_by_start(start, end)]

    @cached_property
    def _first_events(self) -> Int32s:
        """Return the event of each device that starts first, as a row of the trace."""
        device_of_event = self.find_device_indices(self.events)
        return self.events[positions_of(device_of_event, np.arange(len(self)))]

    @cached_property
    def begin_ns(self) -> Int64s:
        """Return the first start of the events of each device, in ns of the file."""
        return self.trace.start[self._first_events]

    @cached_property
    def end_ns(self) -> Int64s:
        """Return the last end of the events of each device, in ns of the file."""
        devices = np.arange(len(self))
        first_of_device = positions_of(self.find_device_indices(self.events), devices)
        return reduce_groups(np.maximum, self.trace.end[self.events], first_of_device)

    @cached_property
    def gaps(self) -> Gaps:
        """Find the gaps between the first and the last event of each device."""
        trace = self.trace
        events = self.events
        start, end = self.place_events(events)

        # An event ends a gap if all events before it have ended when it starts. The axis
        # also has a hole between two devices, which is no gap.
        latest_end = np.maximum.accumulate(end, out=end)
        ends_gap = np.flatnonzero(start[1:] > latest_end[:-1]) + 1
        device = self.find_device_indices(events[ends_gap])
        device_before = self.find_device_indices(events[ends_gap - 1])
        ends_gap = ends_gap[device == device_before]
        event_after = events[ends_gap]

        # The event that ended last is the first one at which the latest end is reached.
        event_before = events[positions_of(latest_end, latest_end[ends_gap - 1])]
        del start, end, latest_end  # large

        return self._make_gaps(
            begin=trace.end[event_before],
            end=trace.start[event_after],
            event=event_after,
            before=event_before,
        )

    def find_lead_gaps(self, begin_ns: int) -> Gaps:
        """Return the time from a moment until the first event of each device, as gaps.

        A device that has started by that moment has no such gap.

        Args:
            begin_ns: The moment, in ns of the file.
        """
        starts_later = self.begin_ns > begin_ns
        first = self._first_events[starts_later]
        return self._make_gaps(
            begin=np.full(len(first), begin_ns, dtype=np.int64),
            end=self.trace.start[first],
            event=first,
            before=np.full_like(first, NO_ROW),
        )

    def find_gaps_with_lead(self, begin_ns: int) -> Gaps:
        """Return the gaps of `lead`, and after them all others."""
        return self.find_lead_gaps(begin_ns).followed_by(self.gaps)

    def _make_gaps(
        self, *, begin: Int64s, end: Int64s, event: Int32s, before: Int32s
    ) -> Gaps:
        """Make gaps from their bounds, and add the calls that launched the events that
        end them.

        All times are in ns of the file. A call that starts after its event does not
        count, because the clocks then differ; such a gap has launch -1. So has a gap
        whose launch was not recorded.
        """
        trace = self.trace
        launch = trace.launch[event]
        # The event cannot start before its launch: the clocks of CPU and GPU differ.
        launch[trace.start[launch] > end] = NO_ROW
        in_graph = self._were_launched_after_others(event, launch, end)

        has_own_launch = (launch != NO_ROW) & ~in_graph
        call_begin = np.where(
            has_own_launch, np.maximum(trace.start[launch], begin), begin
        )
        call_end = np.where(
            has_own_launch, np.clip(trace.end[launch], call_begin, end), begin
        )

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

    def _were_launched_after_others(
        self, event: Int32s, launch: Int32s, end: Int64s
    ) -> Flags:
        """Tell which events were launched by a call that had launched others before.

        Only others on the same device count, and only if they started before `end`.

        Args:
            event: GPU events, as rows of the trace.
            launch: The call that launched each event, -1 if it is not known.
            end: A time for each event, in ns of the file.
        """
        has_launch = launch != NO_ROW
        calls = self._launching_calls
        key = self._make_call_keys(event[has_launch], launch[has_launch])
        first_start_ns = calls.first_start_ns[positions_of(calls.key, key)]

        launched_others = np.zeros(len(event), dtype=np.bool_)
        launched_others[has_launch] = first_start_ns < end[has_launch]
        return launched_others

    def _make_call_keys(self, events: Int32s, calls: Int32s) -> Int64s:
        """Return one number for each pair of a device and a launch call.

        Calls are rows of the trace, so they are less than the number of its rows.

        Args:
            events: GPU events, as rows of the trace; they determine the device.
            calls: The call that launched each event, as a row of the trace.
        """
        device = self.find_device_indices(events).astype(np.int64)
        rows_of_trace = len(self.trace)
        return device * rows_of_trace + calls

    @cached_property
    def _launching_calls(self) -> LaunchingCalls:
        """Find the calls that launched events on each device.

        A call that starts after its event does not count.
        """
        trace = self.trace
        calls = trace.launch[self.events]
        is_known = calls != NO_ROW
        is_in_order = trace.start[calls] <= trace.start[self.events]
        counts = is_known & is_in_order

        # Events are in order of start, so the first of a call is the earliest.
        events = self.events[counts]
        events_of_calls = grouped(self._make_call_keys(events, calls[counts]))
        return LaunchingCalls(
            key=events_of_calls.keys,
            first_start_ns=trace.start[events[events_of_calls.first]],
        )

    @cached_property
    def latency_ns(self) -> Int64s:
        """Return the usual launch latency of each device in ns; shape [devices].

        The *launch latency* is the delay from the start of a launch call to the start
        of its event when the queue was empty. The usual one is the lower quartile over
        the gaps during which the call began, and 0 if there are too few of them. For a
        part of a trace it is that of the whole trace.
        """
        whole = find_whole_trace(self.trace)
        if whole is None:
            return self.find_lower_quartile_latency(self.gaps, MIN_GAPS_FOR_LATENCY)

        latency_of_pid = whole.launch_latency_usual_ns
        latencies = [
            latency_of_pid.get(str(device.pid), 0) for device in self.identities
        ]
        return np.array(latencies, dtype=np.int64)

    def find_lower_quartile_latency(self, gaps: Gaps, fewest: int) -> Int64s:
        """Return the lower quartile of the launch latency over some gaps, in ns.

        Of 8 latencies it is the third smallest: a quarter of all are smaller.

        Args:
            gaps: Only those count during which the launch call began.
            fewest: A device with fewer such gaps gets 0.

        Returns:
            One latency for each device; shape [devices].
        """
        begins_in_gap = gaps.call_begin > gaps.begin
        delay_ns = (gaps.end - gaps.call_begin)[begins_in_gap]
        device = self.find_device_indices(gaps.event[begins_in_gap])

        by_device = grouped(device, then_by=delay_ns)
        quarter = by_device.begins[:-1] + by_device.counts // 4
        lower_quartile_ns = delay_ns[by_device.order[quarter]]

        has_enough = by_device.counts >= fewest
        latency_ns = np.zeros(len(self), dtype=np.int64)
        latency_ns[by_device.keys[has_enough]] = lower_quartile_ns[has_enough]
        return latency_ns

    @cached_property
    def reasons(self) -> Reasons:
        """Return how long each of `gaps` lasted for each reason."""
        return self.divide_among_reasons(self.gaps)

    def divide_among_reasons(self, gaps: Gaps) -> Reasons:
        """Divide the time of some gaps of these devices among the reasons for being
        idle.

        Args:
            gaps: Gaps, or parts of gaps.

        Returns:
            One array for each reason in IDLE, of shape [gaps], in ns. Together they
                add up to the length of each gap.
        """
        zeros = np.broadcast_to(np.int64(0), len(gaps))  # takes no memory
        ns_of_reasons: list[Int64s] = [zeros for _ in IDLE]
        for reason, interval in self.find_reason_intervals(gaps).items():
            if interval.holds.any():
                length_ns = interval.end - interval.begin
                ns_of_reasons[reason] = np.where(interval.holds, length_ns, 0)

        for gap_indices, ns_of_activities in self._measure_activities(gaps):
            for reason, ns in enumerate(ns_of_activities, start=HOST):
                if ns.any():
                    ns_of_gaps = np.array(ns_of_reasons[reason])  # a writable copy
                    ns_of_gaps[gap_indices] = ns
                    ns_of_reasons[reason] = ns_of_gaps

        return tuple(ns_of_reasons)

    def _measure_activities(self, gaps: Gaps) -> Iterator[tuple[Rows, Int64s]]:
        """Yield what the launching threads did from the begin of each gap to its launch
        call.

        There is one result for each axis of threads that launched after any of these
        gaps. Each result has the indices of its gaps among `gaps`, and ns of shape
        [ThreadActivity, these gaps].
        """
        until_launch_ns = gaps.call_begin - gaps.begin
        for threads, gap_indices, on_axis in group_calls_by_axis(
            self.trace, self.threads, gaps.launch, until_launch_ns > 0
        ):
            begin = on_axis(gaps.begin)
            end = on_axis(gaps.call_begin)
            ns_of_activities = threads.divide_among_activities(begin, end)

            # The axis ends with the trace. Nothing was recorded outside of it.
            outside_ns = until_launch_ns[gap_indices] - (end - begin)
            ns_of_activities[ThreadActivity.NOTHING] += outside_ns
            yield gap_indices, ns_of_activities

    def find_reason_intervals(self, gaps: Gaps) -> dict[int, ReasonInterval]:
        """Return when each reason for idle time holds, for reasons that hold once in a
        gap.

        An interval is a part of a gap, which may be empty. What the CPU did before the
        launch is left out, because those reasons alternate within a gap.

        Returns:
            The intervals by the index of the reason in IDLE, with one entry per gap.
        """
        latency_ns = self.latency_ns[self.find_device_indices(gaps.event)]
        usual_start = self.trace.start[gaps.launch] + latency_ns
        expected_start = np.clip(usual_start, gaps.call_end, gaps.end)
        has_own_launch = gaps.has_own_launch

        return {
            UNLINKED: ReasonInterval(
                holds=~gaps.has_launch, begin=gaps.begin, end=gaps.end
            ),
            GRAPH: ReasonInterval(holds=gaps.in_graph, begin=gaps.begin, end=gaps.end),
            LAUNCH_CALL: ReasonInterval(
                holds=has_own_launch, begin=gaps.call_begin, end=gaps.call_end
            ),
            LAUNCH_LATENCY: ReasonInterval(
                holds=has_own_launch, begin=gaps.call_end, end=expected_start
            ),
            QUEUED: ReasonInterval(
                holds=has_own_launch, begin=expected_start, end=gaps.end
            ),
        }

    def find_idle_time(self, window: tuple[int, int] | None) -> tuple[Gaps, Reasons]:
        """Return the gaps in a window, and how long each lasted for which reason.

        Gaps are clipped to the window, and the time in it before the first event of a
        device is a gap too.

        Args:
            window: The begin and end, in ns of the file; None for the whole trace, in
                which that time is no gap.
        """
        if window is None:
            return self.gaps, self.reasons

        begin_ns, end_ns = window
        gaps = self.find_gaps_with_lead(begin_ns)
        by_device = np.argsort(self.find_device_indices(gaps.event), kind="stable")
        gaps_inside = gaps.select(by_device).clip_to_window(begin_ns, end_ns)

        return gaps_inside, self.divide_among_reasons(gaps_inside)

    @cached_property
    def spans(self) -> list[DeviceAccount]:
        """Return the account of each device from its first start to its last end."""
        return self.account_for_windows(
            np.arange(len(self)), self.begin_ns, self.end_ns
        )

    def account_for_windows(
        self, device: Rows, begin: Int64s, end: Int64s
    ) -> list[DeviceAccount]:
        """Account for the time of devices in some windows.

        Args:
            device: The index of the device of each window.
            begin: The begins of the windows, in ns of the file.
            end: Their ends, none of which is before its begin.
        """
        idle_ns = self._measure_idle_until(device, end) - self._measure_idle_until(
            device, begin
        )

        # A window may begin before the first event of its device or end after the last.
        first_start = self.begin_ns[device]
        begins_early = np.flatnonzero(begin < first_start)
        if len(begins_early):
            lead_end = np.minimum(end, first_start)[begins_early]
            idle_ns[:, begins_early] += self._measure_lead_idle(
                device[begins_early], begin[begins_early], lead_end
            )

        after_last_event = np.maximum(begin, self.end_ns[device])
        idle_ns[AFTER] = np.maximum(end - after_last_event, 0)

        busy = self._measure_busy_times(
            self.convert_to_axis(device, begin), self.convert_to_axis(device, end)
        )
        return self._accounts(device, end - begin, busy, idle_ns)

    def _accounts(
        self, device_of_window: Rows, span_ns: Int64s, busy: BusyTimes, idle_ns: Int64s
    ) -> list[DeviceAccount]:
        """Make the records of some windows from their figures.

        Args:
            device_of_window: The index of the device of each window.
            span_ns: The length of each window.
            busy: What ran in each window.
            idle_ns: How long the device was idle, of shape [IDLE, windows].
        """
        busy_ns = busy.compute_ns + busy.exposed_comm_ns + busy.exposed_copy_ns
        all_idle_ns = span_ns - busy_ns
        reasons_ns = idle_ns.T.tolist()  # a list for each window
        accounts = []
        for window, device in enumerate(device_of_window.tolist()):
            accounts.append(
                DeviceAccount(
                    device=exact_id(self.identities[device].pid),
                    name=self.identities[device].name,
                    span_ns=int(span_ns[window]),
                    compute_ns=int(busy.compute_ns[window]),
                    exposed_comm_ns=int(busy.exposed_comm_ns[window]),
                    exposed_copy_ns=int(busy.exposed_copy_ns[window]),
                    idle_ns=int(all_idle_ns[window]),
                    hidden_comm_ns=int(busy.hidden_comm_ns[window]),
                    hidden_copy_ns=int(busy.hidden_copy_ns[window]),
                    launch_latency_usual_ns=int(self.latency_ns[device]),
                    idle=name_reasons(reasons_ns[window]),
                )
            )

        return accounts

    def _measure_busy_times(self, begin: Int64s, end: Int64s) -> BusyTimes:
        """Measure what runs in some windows [begin, end), given as times on the axis.

        Communication is exposed where nothing computes, and copies where nothing
        computes or communicates.
        """
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
        """Return when the devices compute, communicate and copy.

        Several devices as one only compute and copy: what is exposed on one of them may
        be hidden by another.
        """
        events = self.events
        is_kernel = self.trace.role[events] == Role.KERNEL
        is_comm = communicates(self.trace, events)
        if self.are_merged:
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
        """Return the time in which any of some GPU events runs, as disjoint intervals.

        The events are rows of the trace, and the intervals are times on the axis that
        the devices share.
        """
        start, end = self.place_events(events)
        return union(start, end)

    def _measure_idle_until(self, device: Rows, times: Int64s) -> Int64s:
        """Measure how long devices had been idle for each reason before some times.

        The time before the first event of a device does not count.

        Args:
            device: The index of the device of each time.
            times: In ns of the file.

        Returns:
            ns, of shape [IDLE, times]; 0 where no gap of the device has begun.
        """
        gaps = self.gaps
        device_of_gap = self.find_device_indices(gaps.event)
        begins = self.convert_to_axis(device_of_gap, gaps.begin)

        # For each time the first gap of its device, and the last one begun by then. It
        # is one of an earlier device if no gap of the device has begun.
        last_begun = last_at_or_before(begins, self.convert_to_axis(device, times))
        first_of_device = count_below(device_of_gap, device)
        after_gap = np.flatnonzero(last_begun >= first_of_device)  # indices of `times`
        first_gap = first_of_device[after_gap]
        last_gap = last_begun[after_gap]

        # The last gap may still go on: only the part before the time counts.
        last_gaps = gaps.select(last_gap).clip(-FOREVER, times[after_gap])
        last_gap_ns = self.divide_among_reasons(last_gaps)

        idle_ns = np.zeros((len(IDLE), len(times)), dtype=np.int64)
        for reason, ns_of_gap in enumerate(self.reasons):
            ns_before_gap = prefix_sums(ns_of_gap)
            earlier_gaps_ns = ns_before_gap[last_gap] - ns_before_gap[first_gap]
            idle_ns[reason, after_gap] = earlier_gaps_ns + last_gap_ns[reason]

        return idle_ns

    def _measure_lead_idle(self, device: Rows, begin: Int64s, end: Int64s) -> Int64s:
        """Measure how long devices were idle for each reason before their first events.

        Args:
            device: The index of the device of each interval.
            begin: The begins of the intervals, in ns of the file.
            end: Their ends, no later than the first event of the device.

        Returns:
            ns, of shape [IDLE, intervals].
        """
        lead = self.find_lead_gaps(int(begin.min()))  # one gap for each device
        lead_of_interval = lead.select(
            positions_of(self.find_device_indices(lead.event), device)
        )
        intervals = lead_of_interval.clip(begin, end)
        return np.stack(self.divide_among_reasons(intervals))
