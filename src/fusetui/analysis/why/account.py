"""Compute the breakdown of the time of each device and CPU thread.

Every ns of a span, of a step or of a window is in one class, such as compute or idle;
see the records in model.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.collectives import ON_CPU
from fusetui.analysis.why.backward_threads import find_lent_work
from fusetui.analysis.why.devices import NO_DEVICE, DeviceIdentity, Devices
from fusetui.analysis.why.model import DeviceAccount, ThreadAccount
from fusetui.analysis.why.thread_activity import (
    Loan,
    SharedAxis,
    ThreadActivity,
    Threads,
    classify_rows,
)
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.layout.devices import device_properties
from fusetui.trace.model.arrays import (
    Int64s,
    Rows,
    distinct,
    reduce_groups,
)
from fusetui.trace.model.categories import CPU_LAYERS, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.grouping import grouped
from fusetui.trace.model.ids import Id, exact_id
from fusetui.trace.model.intervals import Cover, common, union
from fusetui.trace.model.memo import memo
from fusetui.trace.model.sorted_arrays import slice_between


class Accounts(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The devices of a trace that ran GPU work, in the order of their lanes.

    All answers of `why` start from it. Each part is computed when it is first needed.
    """

    trace: Trace

    @cached_property
    def kinds(self) -> NDArray[np.int8]:
        """Return the ThreadActivity of each row of the trace; shape [slices]."""
        return classify_rows(self.trace)

    @cached_property
    def threads(self) -> tuple[Threads, ...]:
        """Return all CPU threads with a recorded slice, on as many axes as they need."""
        trace = self.trace
        recorded_threads = self._recorded_threads
        fit_on_axis = SharedAxis(trace).capacity
        is_only_axis = len(recorded_threads) <= fit_on_axis

        axes = []
        for first in range(0, len(recorded_threads), fit_on_axis):
            threads_of_axis = recorded_threads[first : first + fit_on_axis]
            tracks = np.isin(trace.thread_of_track, threads_of_axis)
            axes.append(Threads(trace, self.kinds, tracks, is_only_axis))

        return tuple(axes)

    @property
    def _recorded_threads(self) -> NDArray[np.integer]:
        """Return the indices of the threads that have a slice of some ThreadActivity."""
        row_has_activity = self.kinds != ThreadActivity.NOTHING
        first_rows = np.array(
            [track.first_row for track in self.trace.tracks], dtype=np.intp
        )
        has_activity = reduce_groups(np.logical_or, row_has_activity, first_rows)

        return distinct(self.trace.thread_of_track[has_activity])

    @cached_property
    def launchers(self) -> tuple[Threads, ...]:
        """Return the axes of `threads`, with the work that they wait for on other
        threads.

        Findings about late launches use them. While a thread waits for autograd's
        engine, what the engine does counts as work of the thread. That is what delays
        its next launch. The accounts of threads leave this out, because it is the time
        of another thread.
        """
        lent = find_lent_work(self.trace)
        if not len(lent.rows):
            return self.threads

        axes = []
        for threads in self.threads:
            is_lent_to = threads.tracks[lent.track].any()
            if is_lent_to:
                loan = Loan(lent_work=lent, borrowers=threads)
                axes.append(msgspec.structs.replace(threads, loan=loan))
            else:
                axes.append(threads)

        return tuple(axes)

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """Return each device of all axes, in the order of their lanes."""
        devices = []
        for of_axis in self.devices_by_axis:
            for device_index in range(len(of_axis)):
                devices.append(Device(of_axis, device_index))

        return tuple(devices)

    @cached_property
    def devices_by_axis(self) -> tuple[Devices, ...]:
        """Return all devices, on as many time axes as they need."""
        return self._make_axes([*self._processes])

    def select_devices(self, pid: str | None) -> tuple[Devices, ...]:
        """Return the devices with a process id, as the user wrote it.

        Args:
            pid: The id as text; None for all devices.

        Returns:
            () if there is no such device; `devices_by_axis` itself if all devices have the id.
        """
        if pid is None:
            return self.devices_by_axis

        processes = []
        for process, device in self._processes.items():
            if str(device.pid) == pid:
                processes.append(process)

        if len(processes) == len(self._processes):
            return self.devices_by_axis
        return self._make_axes(processes)

    def merge_devices(self) -> Devices:
        """Return all devices as if they were one, so that it is idle only when all are.

        It has the name of the first device. There must be at least one.
        """
        first_device = next(iter(self._processes.values()))
        index_of_track = np.zeros(len(self.trace.tracks), dtype=np.int32)
        return Devices(
            self.trace, self.launchers, [first_device], index_of_track, are_merged=True
        )

    @cached_property
    def _processes(self) -> dict[int, DeviceIdentity]:
        """Return the devices by their index among all processes of the trace."""
        trace = self.trace
        properties = device_properties(trace)
        tracks_with_events = np.flatnonzero(np.bincount(trace.track[trace.gpu_rows]))

        device_of_process: dict[int, DeviceIdentity] = {}
        for track in tracks_with_events.tolist():
            pid = trace.tracks[track].pid
            recorded_name = properties.get(pid, {}).get("name")
            name = recorded_name if isinstance(recorded_name, str) else ""
            process = int(trace.process_of_track[track])
            device_of_process[process] = DeviceIdentity(pid=pid, name=name)

        return device_of_process

    def _make_axes(self, processes: Sequence[int]) -> tuple[Devices, ...]:
        """Put some devices on as many time axes as they need.

        An axis holds the times of several devices one after another. Only so many fit
        as keep its times within 64 bits.

        Args:
            processes: The indices of the devices among all processes.
        """
        trace = self.trace
        fit_on_axis = SharedAxis(trace).capacity

        axes = []
        for first in range(0, len(processes), fit_on_axis):
            processes_of_axis = processes[first : first + fit_on_axis]
            index_of_process = np.full(len(trace.tracks) + 1, NO_DEVICE, dtype=np.int32)
            index_of_process[processes_of_axis] = np.arange(len(processes_of_axis))
            devices = Devices(
                trace,
                self.launchers,
                identities=[self._processes[process] for process in processes_of_axis],
                index_of_track=index_of_process[trace.process_of_track],
            )
            axes.append(devices)

        return tuple(axes)


@memo()
def get_accounts(trace: Trace) -> Accounts:
    """Return the accounts of a trace, which are kept for the next call."""
    return Accounts(trace)


def find_axis(trace: Trace, thread: int) -> Iterator[tuple[Threads, int]]:
    """Yield the axis of a thread, if it has one, and the offset of its times there.

    The offset is by how much times of this thread on the axis are larger than times of
    the file, in ns.

    Args:
        thread: The index of the thread.
    """
    for threads in get_accounts(trace).threads:
        tracks = np.flatnonzero(threads.tracks & (trace.thread_of_track == thread))
        if len(tracks):
            begin = threads.convert_to_axis(tracks[:1], np.array([trace.begin_ns]))
            yield threads, int(begin[0]) - trace.begin_ns


class Device(NamedTuple):
    """One device: its index among all devices whose events share its time axis."""

    axis: Devices
    index_on_axis: int

    @property
    def pid(self) -> Id:
        """Return the process id under which the trace has the device."""
        return self.axis.identities[self.index_on_axis].pid

    @property
    def span(self) -> DeviceAccount:
        """Return the account from the first start to the last end of its events."""
        return self.axis.spans[self.index_on_axis]

    def account_for_windows(self, begin: Int64s, end: Int64s) -> list[DeviceAccount]:
        """Return the account of each of some windows of the device.

        Args:
            begin: The begins of the windows, in ns of the file.
            end: Their ends, none of which is before its begin.
        """
        return self.axis.account_for_windows(
            np.full(len(begin), self.index_on_axis), begin, end
        )

    @property
    def gap_positions(self) -> slice:
        """Return where the gaps of the device are among those of its axis."""
        device_of_gap = self.axis.find_device_indices(self.axis.gaps.event)
        return slice_between(device_of_gap, self.index_on_axis, self.index_on_axis + 1)


WAITING_FUNCTIONS: Final = lazy_pattern(
    r"<built-in (?:method|function) (?:acquire|sleep|select|poll|wait\w*|recv\w*|accept)\b"
    r"|<method '(?:acquire|poll|wait\w*|recv\w*|accept)' of"
)
"""Matches frames of functions that wait for a lock, a time, a process or a socket."""


def account_for_cpu_threads(
    accounts: Accounts, window: tuple[int, int] | None = None
) -> tuple[ThreadAccount, ...]:
    """Account for the time of each CPU thread, in the order of the lanes.

    Args:
        window: The begin and end, in ns of the file, of the part that counts; None for
            the whole time of each thread.
    """
    account_of_track: dict[int, ThreadAccount] = {}
    for threads in accounts.threads:
        account_of_track.update(_account_for_threads(accounts.trace, threads, window))

    return tuple(account_of_track[track] for track in sorted(account_of_track))


def _account_for_threads(
    trace: Trace, threads: Threads, window: tuple[int, int] | None
) -> dict[int, ThreadAccount]:
    """Account for the time of each thread of an axis.

    Args:
        window: See account_for_cpu_threads.

    Returns:
        The accounts by the first track of each thread.
    """
    spans = _find_thread_spans(trace, threads)
    begin_ns = spans.begin_ns
    end_ns = spans.end_ns
    if window is not None:
        window_begin_ns, window_end_ns = window
        begin_ns = np.clip(begin_ns, window_begin_ns, window_end_ns)
        end_ns = np.clip(end_ns, window_begin_ns, window_end_ns)

    times = _measure_thread_times(
        trace,
        threads,
        begin=threads.convert_to_axis(spans.track, begin_ns),
        end=threads.convert_to_axis(spans.track, end_ns),
    )

    accounts = {}
    for thread, first_track in enumerate(spans.track.tolist()):
        track = trace.tracks[first_track]
        annotation_ns = int(times.annotation_ns[thread])
        accounts[first_track] = ThreadAccount(
            process=exact_id(track.pid),
            thread=exact_id(track.tid),
            label=track.label,
            span_ns=int(end_ns[thread] - begin_ns[thread]),
            op_ns=int(times.op_ns[thread]),
            python_ns=int(times.python_ns[thread]),
            wait_ns=int(times.wait_ns[thread]),
            nothing_ns=annotation_ns + int(times.unrecorded_ns[thread]),
            annotation_ns=annotation_ns,
            collective_ns=int(times.collective_ns[thread]),
        )

    return accounts


class _ThreadTimes(msgspec.Struct, frozen=True, eq=False):
    """What some threads did in an interval each (ns); arrays of shape [threads].

    All but `collective_ns`, which is a part of `wait_ns`, add up to the interval.
    """

    op_ns: Int64s
    """In ops and in runtime calls that do not wait."""
    python_ns: Int64s
    wait_ns: Int64s
    annotation_ns: Int64s
    """While nothing but an annotation was recorded."""
    unrecorded_ns: Int64s
    """While not even an annotation was recorded."""
    collective_ns: Int64s


def _measure_thread_times(
    trace: Trace, threads: Threads, begin: Int64s, end: Int64s
) -> _ThreadTimes:
    """Divide an interval of each thread by what the thread did.

    A frame of a function that waits counts as waiting, and so does the annotation of a
    collective, which lasts until the collective is done.

    Args:
        begin: The begin of the interval of each thread, as a time on the axis.
        end: Its end, likewise.
    """
    split_ns = threads.divide_among_activities(begin, end)
    call_ns = split_ns[ThreadActivity.ALLOC] + split_ns[ThreadActivity.CALL]
    sync_ns = split_ns[ThreadActivity.SYNC]

    in_waiting_frames = common(
        threads.covers[ThreadActivity.PYTHON], cover_waiting_frames(trace, threads)
    )
    frame_wait_ns = in_waiting_frames.within(begin, end)

    in_collectives = common(
        threads.covers[ThreadActivity.ANNOTATION], _cover_collectives(trace, threads)
    )
    collective_ns = in_collectives.within(begin, end)

    return _ThreadTimes(
        op_ns=call_ns + split_ns[ThreadActivity.OP],
        python_ns=split_ns[ThreadActivity.PYTHON] - frame_wait_ns,
        wait_ns=sync_ns + frame_wait_ns + collective_ns,
        annotation_ns=split_ns[ThreadActivity.ANNOTATION] - collective_ns,
        unrecorded_ns=split_ns[ThreadActivity.NOTHING],
        collective_ns=collective_ns,
    )


class ThreadSpans(msgspec.Struct, frozen=True, eq=False):
    """When each CPU thread of an axis runs; ns of the file, arrays of shape [threads]."""

    track: Rows
    """The first track of each thread."""
    begin_ns: Int64s
    end_ns: Int64s


def _find_thread_spans(trace: Trace, axis: Threads) -> ThreadSpans:
    """Find the first start and the last end of the slices of each thread of an axis.

    The threads are in the order of their indices.
    """
    # Rows of a track are in order of their starts, but not of their ends.
    first_row = np.array([track.first_row for track in trace.tracks])
    begin_ns_of_track = trace.start[first_row]
    end_ns_of_track = reduce_groups(np.maximum, trace.end, first_row)
    is_on_cpu = np.array([track.layer in CPU_LAYERS for track in trace.tracks])

    # A thread may have several tracks.
    tracks = np.flatnonzero(axis.tracks & is_on_cpu)
    tracks_by_thread = grouped(trace.thread_of_track[tracks])
    ordered_tracks = tracks[tracks_by_thread.order]
    first_of_thread = tracks_by_thread.begins[:-1]

    return ThreadSpans(
        track=ordered_tracks[first_of_thread],
        begin_ns=reduce_groups(
            np.minimum, begin_ns_of_track[ordered_tracks], first_of_thread
        ),
        end_ns=reduce_groups(
            np.maximum, end_ns_of_track[ordered_tracks], first_of_thread
        ),
    )


def _cover_collectives(trace: Trace, threads: Threads) -> Cover:
    """Return the time in which a collective runs on the CPU, on the axis.

    Its annotation lasts until it is done.
    """
    annotations = threads.find_slices(ThreadActivity.ANNOTATION)
    are_collectives = trace.matching(annotations.rows, ON_CPU.match)
    collectives = annotations.select(are_collectives)

    return union(collectives.start, collectives.end)


def cover_waiting_frames(trace: Trace, threads: Threads) -> Cover:
    """Return the time in which the innermost Python frame is one that waits.

    Such frames match WAITING_FUNCTIONS. What a waiting function itself calls does not count as
    waiting. The time is on the axis of the threads.
    """
    frames = threads.select_own_rows(
        trace.rows_named(WAITING_FUNCTIONS.search, Role.PYTHON)
    )
    start, end = threads.place_slices(frames)
    time_of_frames = union(start, end)

    # Only frames that start during a waiting frame can be innermost in it.
    frames_within, _ = threads.find_slices(ThreadActivity.PYTHON).select_begun_in(
        time_of_frames
    )
    innermost = frames_within.cut_innermost_parts()
    does_wait = trace.matching(innermost.rows, WAITING_FUNCTIONS.search)
    waits = innermost.select(does_wait)

    return union(waits.start, waits.end)
