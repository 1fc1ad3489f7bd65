"""Compute, once and on first use, the facts that several rules need about a trace.

`Facts` stands for a trace or for a window of it. Each rule of rules/ gets one, and asks
it for the gaps of the devices, what the launching threads did before each launch, the
kernels, and the time that other rules explain already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final

import msgspec
import numpy as np

from fusetui.analysis.questions.launches import mark_graph_calls
from fusetui.analysis.questions.loaders import find_loader_calls
from fusetui.analysis.why.account import Accounts
from fusetui.analysis.why.cpu_compute import COMPUTES_SHARE, find_cpu_compute_ops
from fusetui.analysis.why.devices import (
    HOST,
    LAUNCH_CALL,
    DeviceIdentity,
    Devices,
    Gaps,
    Reasons,
)
from fusetui.analysis.why.kernels import Kernels, choose_heaviest_rows
from fusetui.analysis.why.model import IDLE
from fusetui.analysis.why.thread_activity import (
    ACTIVITIES_OF_CALLS,
    CallsOnAxis,
    ThreadActivity,
    Threads,
    group_calls_by_axis,
)
from fusetui.analysis.why.warming import (
    MIN_RATIO_TO_LATER_CALLS,
    StepIntervals,
    WarmUpPiece,
    find_step_intervals,
    find_warm_up_pieces,
    is_first_step_slow,
)
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.layout.steps import Steps, steps_of
from fusetui.trace.model.arrays import (
    NO_ROW,
    Flags,
    Int32s,
    Int64s,
    Rows,
    sums_of_ranges,
)
from fusetui.trace.model.categories import Role
from fusetui.trace.model.grouping import grouped
from fusetui.trace.model.intervals import (
    FOREVER,
    NOTHING,
    Cover,
    counted,
    joined,
    outside,
    union,
    without,
)
from fusetui.trace.model.sorted_arrays import count_below, count_between

NO_ROWS: Final[Rows] = np.empty(0, dtype=np.intp)


COMPILER: Final = lazy_pattern(
    r"\(dynamo_timed\)\Z"
    r"|torch/_dynamo/convert_frame\.py\(\d+\): (?:_compile|compile_inner)\Z"
    r"|torch/_inductor/compile_fx\.py\(\d+\): compile_fx"
    r"|triton/compiler/compiler\.py\(\d+\): compile\Z"
)
"""Matches slices that run only while something is compiled.

These are annotations of torch/_dynamo/utils.py (dynamo_timed), and frames of Dynamo,
Inductor and Triton.
"""


COMPILED: Final = lazy_pattern(r"\Atriton_[a-z]{3}_fused")
"""Matches the beginning of the names that Inductor gives to the kernels it generates.
"""
COMPILING_NS: Final = 100_000_000
"""With less unrecorded time than this, nothing was compiled."""


class Facts:
    """What is known about a trace, or about a window [begin_ns, end_ns) of it.

    In a window, the time before the first event of a device counts as a gap; in a whole
    trace it does not. Times are in ns of the file unless a docstring says otherwise.
    Arrays of shape [gaps] are in the order of `gaps`.
    """

    def __init__(
        self,
        accounts: Accounts,
        devices_by_axis: Sequence[Devices] | None = None,
        window: tuple[int, int] | None = None,
        window_name: str = "the time",
    ) -> None:
        """Prepare the facts; nothing is computed yet.

        Args:
            accounts: The devices and threads of the trace.
            devices_by_axis: The devices that count, by time axis; None for all devices.
            window: The begin and end of the window; None for the whole trace.
            window_name: What a sentence calls the window, such as "the time".
        """
        self.accounts = accounts
        self.trace = accounts.trace
        self.devices_by_axis = tuple(
            accounts.devices_by_axis if devices_by_axis is None else devices_by_axis
        )
        self.devices: list[DeviceIdentity] = []
        for devices in self.devices_by_axis:
            self.devices.extend(devices.identities)
        self.window = window
        self.window_name = window_name
        self.begin_ns, self.end_ns = window or (self.trace.begin_ns, self.trace.end_ns)

    @cached_property
    def gpu_rows(self) -> Rows:
        """Return the GPU events of these devices that run in the window.

        They are in the order of the trace.
        """
        rows = self.trace.gpu_rows
        events_of_axes = [devices.events for devices in self.devices_by_axis]
        event_count = sum(len(events) for events in events_of_axes)
        if event_count < len(rows):  # the trace has other devices too
            rows = np.sort(np.concatenate([NO_ROWS, *events_of_axes]))

        return self.select_rows_in_window(rows)

    def select_rows_in_window(self, rows: Rows) -> Rows:
        """Return those of some rows that lie at least partly in the window."""
        ends_after_begin = self.trace.end[rows] > self.begin_ns
        starts_before_end = self.trace.start[rows] < self.end_ns
        in_window: Rows = rows[ends_after_begin & starts_before_end]
        return in_window

    @cached_property
    def steady_facts(self) -> Facts:
        """Return the facts that rules about kernels look at.

        If the first step is much longer than the others, its kernels are not typical:
        then these are the facts of the GPU work after it. Otherwise, and if a window
        was asked about, they are these facts themselves.
        """
        intervals = self.step_intervals
        if self.window or intervals is None:
            return self
        if not is_first_step_slow(self.steps, intervals):
            return self

        begin_ns = int(intervals.end[0])
        last_end_ns = int(self.trace.end[self.gpu_rows].max(initial=begin_ns))
        if last_end_ns <= begin_ns:  # no GPU work comes after it
            return self

        return Facts(
            self.accounts,
            self.devices_by_axis,
            window=(begin_ns, last_end_ns),
            window_name="the time after the first step",
        )

    @cached_property
    def kernels(self) -> Kernels:
        """Return the GPU events of the window, with what is known about each."""
        return Kernels(self.trace, self.gpu_rows, self.begin_ns, self.end_ns)

    @cached_property
    def span_ns(self) -> int:
        """Return the time that shares of findings refer to, added up over the devices.

        Of each device this is the time from its first to its last event, or the window.
        Without a device it is the time of the recording.
        """
        recorded_ns = self.end_ns - self.begin_ns
        if not self.devices:
            return recorded_ns
        if self.window:
            return len(self.devices) * recorded_ns

        span_ns = 0
        for devices in self.devices_by_axis:
            span_ns += int((devices.end_ns - devices.begin_ns).sum())

        return span_ns

    @cached_property
    def whole_time(self) -> Cover:
        """Return the window, or the whole recording, as a cover of one interval."""
        return Cover(np.array([self.begin_ns]), np.array([self.end_ns]))

    @cached_property
    def gaps(self) -> IdleGaps:
        """Return the gaps of all these devices, one device after the other.

        A gap is a time in which a device runs nothing, clipped to the window. Its
        device is an index over the devices of all axes.
        """
        gaps_of_axes = []
        devices_before = 0
        for devices in self.devices_by_axis:
            gaps, reasons = devices.find_idle_time(self.window)
            device = devices.find_device_indices(gaps.event) + devices_before
            gaps_of_axes.append(
                IdleGaps.from_gaps(gaps, device=device, reasons=reasons)
            )
            devices_before += len(devices)

        return IdleGaps.concatenate(gaps_of_axes)

    def measure_idle_during(self, rows: Rows) -> int:
        """Measure how long the devices were idle while some slices ran, in ns.

        Rules use it for the cost of a cause such as the data loader. A slice counts on
        any thread that launches GPU work, whichever thread launched next. The warm-up
        does not count: it is a finding of its own.

        Args:
            rows: The slices, as rows of the trace.
        """
        cover = without(self.cover_launching_threads(rows), self.warm_up_time)
        return int(cover.within(self.gaps.begin, self.gaps.end).sum())

    @cached_property
    def launching_tracks(self) -> Flags:
        """Tell which tracks belong to a thread that launches GPU work; shape [tracks]."""
        trace = self.trace
        launch = trace.launch[trace.gpu_rows]
        recorded_calls = launch[launch != NO_ROW]
        launching_threads = trace.thread_of(recorded_calls)
        return np.isin(trace.thread_of_track, launching_threads)

    def cover_launching_threads(self, rows: Rows) -> Cover:
        """Return the time in which any of some slices runs on a thread that launches."""
        rows = rows[self.launching_tracks[self.trace.track[rows]]]
        return union(self.trace.start[rows], self.trace.end[rows])

    def measure_activities_during(self, cover: Cover) -> Int64s:
        """Measure what the launching threads did before late launches, during some
        time.

        Args:
            cover: The time that counts: disjoint intervals, in ns of the file.

        Returns:
            ns of each activity from the begin of each gap until the call begins that
                launches the next event; shape [ThreadActivity, gaps].
        """
        activity_ns = np.zeros((len(ThreadActivity), len(self.gaps)), dtype=np.int64)
        if not len(cover.start):
            return activity_ns

        for waits in self._cut_waits_for_launches(cover):
            ns_of_parts = waits.threads.divide_among_activities(
                waits.parts.start, waits.parts.end
            )
            activity_ns[:, waits.gap_indices] = waits.add_up_by_gap(ns_of_parts)

        return activity_ns

    def _cut_waits_for_launches(self, cover: Cover) -> Iterator[WaitsForLaunches]:
        """Yield the wait for the launch in each gap, as far as it lies in a cover.

        It goes from the begin of the gap to the call that launches the next event. A
        cover is a set of disjoint intervals, here in ns of the file. There is one
        record for each axis of threads with such gaps.
        """
        gaps = self.gaps
        is_launched_late = gaps.call_begin > gaps.begin
        for threads, gap_indices, on_axis in self.group_gaps_by_axis(is_launched_late):
            begin = on_axis(gaps.begin)
            end = on_axis(gaps.call_begin)

            # Cut at the edges of all gaps, so that each part lies wholly in a gap or
            # outside of it: gaps of several devices may overlap.
            parts = threads.cut_intervals(counted(begin, end), cover)
            yield WaitsForLaunches(
                threads=threads,
                gap_indices=gap_indices,
                parts=parts,
                first_part=count_below(parts.start, begin),
                after_last_part=count_below(parts.start, end),
            )

    @cached_property
    def steps(self) -> Steps:
        """Return the steps of the whole trace, also if the facts are those of a window."""
        return steps_of(self.trace)

    @cached_property
    def step_intervals(self) -> StepIntervals | None:
        """Return when each step runs, None if that is not known.

        See warming.step_intervals.
        """
        return find_step_intervals(self.trace, self.steps)

    @cached_property
    def warm_up_pieces(self) -> tuple[WarmUpPiece, ...]:
        """Return what the program does only once, and when; see warming.warm_up."""
        return find_warm_up_pieces(
            self.trace,
            kinds=self.accounts.kinds,
            launching=self.launching_tracks,
            steps=self.steps,
            intervals=self.step_intervals,
            compiling=self.compiler_rows,
        )

    @cached_property
    def warm_up_time(self) -> Cover:
        """Return the time of the whole warm-up."""
        return joined(NOTHING, *(piece.cover for piece in self.warm_up_pieces))

    def measure_waits_during(self, cover: Cover) -> int:
        """Measure how long the devices waited for a launch during some time, in ns.

        Both the wait until the launch call and the call itself count.
        """
        return int(cover.within(self.gaps.begin, self.gaps.call_end).sum())

    @cached_property
    def explained_time(self) -> Cover:
        """Return the time that other rules explain, which host-bound leaves out.

        These rules are data-loading, recompilation, warm-up and first-compiled-kernels.
        """
        gaps = self.gaps
        before_first_run = self.gaps_before_first_runs
        compiling = union(
            gaps.begin[before_first_run], gaps.call_begin[before_first_run]
        )

        return joined(self._time_claimed_by_slices, compiling)

    @cached_property
    def _time_claimed_by_slices(self) -> Cover:
        """Return the time that data-loading, recompilation and warm-up claim."""
        return joined(self.loading_time, self.compiling_time, self.warm_up_time)

    @cached_property
    def gaps_before_first_runs(self) -> Rows:
        """Find the gaps in which a compiler probably ran without being recorded.

        Each of them ends with the first run of a kernel that torch.compile generated.
        The kernel was probably compiled in the gap if three conditions hold. The
        launching thread has at least COMPILING_NS of unrecorded time in it. That is
        many times more than before later runs of the same kernel. And it is more than
        half of the time until the launch.

        Returns:
            Indices of gaps.
        """
        before_compiled = self._gaps_before_compiled_kernels
        if not len(before_compiled):  # then the costly figures below are not needed
            return NO_ROWS

        kernels = self.gaps.event[before_compiled]
        first_runs = self._find_first_runs(self.trace.name[kernels])
        is_first_run = np.isin(kernels, first_runs)
        first_gaps = before_compiled[is_first_run]
        later_gaps = before_compiled[~is_first_run]

        first_ns = self._unrecorded_ns[first_gaps]
        later_ns = self._find_longest_unrecorded(later_gaps, like=first_gaps)
        until_launch_ns = self.gaps.activity_ns[:, first_gaps].sum(axis=0)
        is_long = first_ns >= COMPILING_NS
        is_unusual = first_ns >= MIN_RATIO_TO_LATER_CALLS * later_ns
        is_most = 2 * first_ns > until_launch_ns
        probably_compiles = is_long & is_unusual & is_most

        return np.asarray(first_gaps[probably_compiles])

    @cached_property
    def _unrecorded_ns(self) -> Int64s:
        """Measure how long nothing but steps was recorded before each launch.

        What other findings claim does not count. Returns ns, of shape [gaps].
        """
        nothing_ns = self.unclaimed_activity_ns[ThreadActivity.NOTHING]
        unrecorded_ns: Int64s = nothing_ns + self._only_step_ns
        return unrecorded_ns

    def _find_longest_unrecorded(self, gap_indices: Rows, like: Rows) -> Int64s:
        """Find the longest unrecorded time before runs of the same kernels.

        Args:
            gap_indices: The gaps before the runs.
            like: The gaps before other runs, for each of which there is a result.

        Returns:
            The longest time (ns) of the gaps whose kernel has the same name; 0 without
                such a gap.
        """
        kernel_name = self.trace.name[self.gaps.event]  # of the event after each gap
        longest_ns_of_name = np.zeros(len(self.trace.names), dtype=np.int64)
        np.maximum.at(
            longest_ns_of_name,
            kernel_name[gap_indices],
            self._unrecorded_ns[gap_indices],
        )
        longest_ns: Int64s = longest_ns_of_name[kernel_name[like]]
        return longest_ns

    @property
    def _gaps_before_compiled_kernels(self) -> Rows:
        """Find the gaps that end with a kernel that torch.compile generated."""
        events = self.gaps.event
        is_kernel = self.trace.role[events] == Role.KERNEL
        is_generated = self.trace.matching(events, COMPILED.match)
        return np.flatnonzero(is_kernel & is_generated)

    def _find_first_runs(self, names: Int32s) -> Rows:
        """Find the earliest kernel of each of some names.

        Args:
            names: Indices into the names of the trace; repetitions do not matter.

        Returns:
            Rows of the trace, in the order of the names. A name without a kernel
                has none.
        """
        trace = self.trace
        kernels = trace.rows_of(Role.KERNEL)
        kernels = kernels[np.isin(trace.name[kernels], names)]
        by_name = grouped(trace.name[kernels], then_by=trace.start[kernels])

        return kernels[by_name.first]

    @cached_property
    def _only_step_ns(self) -> Int64s:
        """Measure how long only a step was recorded in each gap, until its launch call.

        The annotation of a step encloses work but is no work itself, so this time
        counts as unrecorded. Returns ns, of shape [gaps].
        """
        annotations = self.select_rows_in_window(self.trace.rows_of(Role.ANNOTATION))
        others = annotations[~np.isin(annotations, self.steps.rows)]
        during_others_ns = self.measure_activities_during(
            self.cover_launching_threads(others)
        )

        in_annotations_ns = self.unclaimed_activity_ns[ThreadActivity.ANNOTATION]
        in_other_annotations_ns = during_others_ns[ThreadActivity.ANNOTATION]
        in_steps_ns = in_annotations_ns - in_other_annotations_ns

        return np.asarray(np.maximum(in_steps_ns, 0), dtype=np.int64)

    @cached_property
    def unclaimed_activity_ns(self) -> Int64s:
        """Measure the time from the begin of each gap to its launch that nothing
        claims.

        Left out are data loading, recorded compilation and the warm-up, for which
        slices were recorded. Returns ns of each activity in each gap, of shape
        [ThreadActivity, gaps].
        """
        claimed_ns = self.measure_activities_during(self._time_claimed_by_slices)
        unclaimed_ns: Int64s = self.gaps.activity_ns - claimed_ns
        return unclaimed_ns

    @cached_property
    def late_activity_ns(self) -> Int64s:
        """Measure what kept the CPU in each gap from launching, as far as it is
        unexplained.

        Waiting for the device and allocating memory do not count: they have rules of
        their own. What `explained_time` holds does not count either, such as data
        loading and the warm-up.

        Returns:
            ns of each activity in each gap, of shape [ThreadActivity, gaps].
        """
        unexplained_ns = self.gaps.activity_ns - self.measure_activities_during(
            self.explained_time
        )
        late_activity_ns: Int64s = np.where(LATE_ACTIVITIES[:, None], unexplained_ns, 0)
        return late_activity_ns

    @cached_property
    def late_ns(self) -> Int64s:
        """Measure how long the CPU was late with the launch after each gap.

        It is the sum of `late_activity_ns` over the activities; shape [gaps].
        """
        late_ns: Int64s = self.late_activity_ns.sum(axis=0)
        return late_ns

    @cached_property
    def computing_ns(self) -> Int64s:
        """Measure how long the launching thread computed on the CPU before each launch.

        Only the time from the begin of a gap to the launch call counts, and only where
        no other rule explains it. Which ops compute on the CPU is decided by
        `find_cpu_compute_ops`.

        Returns:
            ns, of shape [gaps].
        """
        computing_ns = np.zeros(len(self.gaps), dtype=np.int64)
        rows = find_cpu_compute_ops(self.trace)
        if not len(rows):
            return computing_ns

        for waits in self._cut_waits_for_launches(outside(self.explained_time)):
            start, end = waits.threads.place_slices(waits.threads.select_own_rows(rows))
            computing = union(start, end)
            ns_of_parts = computing.within(waits.parts.start, waits.parts.end)
            computing_ns[waits.gap_indices] = waits.add_up_by_gap(ns_of_parts)

        return computing_ns

    @cached_property
    def is_mostly_computing(self) -> Flags:
        """Tell in which gaps the launching thread mostly computed on the CPU.

        That is so from COMPUTES_SHARE of the late time on: the rest usually prepares
        tensors in the memory of the host for the same ops. Shape [gaps].
        """
        is_any = self.computing_ns > 0
        is_enough = self.computing_ns >= COMPUTES_SHARE * self.late_ns
        computes: Flags = is_any & is_enough
        return computes

    @cached_property
    def has_other_cpu_work(self) -> Flags:
        """Tell in which gaps the launching thread did other work than launching.

        Such a gap is a case for the rule cpu-work, and no other gap is: host-bound is
        about the rest. The thread computed on the CPU, or the late time is longer than
        a sequence of ops takes and not made of many small slices. The set-up of the
        program does not count. Shape [gaps].
        """
        is_long = self.gaps.has_launch & (self.late_ns > WORK_NS)

        launching_takes_ns = SLICE_NS * self._count_begun_slices(is_long)
        has_few_slices = self.late_ns > launching_takes_ns
        is_very_long = self.late_ns > LONG_WORK_NS
        is_work = is_long & (has_few_slices | is_very_long)

        is_busy: Flags = is_work | self.is_mostly_computing
        return is_busy & ~self.is_set_up_gap

    def _count_begun_slices(self, is_counted: Flags) -> Int64s:
        """Count the ops, calls and frames that begin in some gaps until the launch call.

        Args:
            is_counted: True for the gaps that count; shape [gaps].

        Returns:
            A number for each gap, 0 for gaps that do not count; shape [gaps].
        """
        gaps = self.gaps
        slices_of_gap = np.zeros(len(gaps), dtype=np.int64)
        for threads, gap_indices, on_axis in self.group_gaps_by_axis(is_counted):
            begin = on_axis(gaps.begin)
            end = on_axis(gaps.call_begin)
            for kind in _RECORDED_WORK:
                start = threads.find_slices(kind).start
                slices_of_gap[gap_indices] += count_between(start, begin, end)

        return slices_of_gap

    @cached_property
    def is_cpu_bound(self) -> bool:
        """Whether the GPU waits for launches for MIN_SHARE_CPU_BOUND of the span or
        longer.

        The warm-up and the set-up count neither as waiting nor as part of the span.
        """
        without_warm_up_ns = self.gaps.activity_ns - self.measure_activities_during(
            self.warm_up_time
        )
        late_ns_of_gap = without_warm_up_ns[LATE_ACTIVITIES].sum(axis=0)

        set_up_ns = int(late_ns_of_gap[self.is_set_up_gap].sum())
        late_ns = int(late_ns_of_gap.sum()) - set_up_ns
        warm_up_ns = self.measure_waits_during(self.warm_up_time)
        span_ns = self.span_ns - warm_up_ns - set_up_ns

        return span_ns > 0 and late_ns >= MIN_SHARE_CPU_BOUND * span_ns

    @cached_property
    def is_set_up_gap(self) -> Flags:
        """Tell which gaps lie between the copies that prepare the work of a program.

        These are the gaps before the first kernel of a device, in a trace without
        steps. There are none on a device that runs no kernel. Shape [gaps].
        """
        trace = self.trace
        events = self.gaps.event
        kernels = trace.rows_of(Role.KERNEL)
        if len(self.steps) or not len(kernels):
            return np.zeros(len(events), dtype=np.bool_)

        # In a trace, a device is a process. No gap ends before -FOREVER, so a device
        # without a kernel has no such gap.
        process_of_kernel = trace.process_of(kernels)
        first_kernel_ns = np.full(len(trace.tracks) + 1, -FOREVER)  # by process
        first_kernel_ns[process_of_kernel] = FOREVER
        np.minimum.at(first_kernel_ns, process_of_kernel, trace.start[kernels])

        process_of_gap = trace.process_of(events)
        is_before: Flags = self.gaps.end <= first_kernel_ns[process_of_gap]
        return is_before

    @cached_property
    def is_slowed_by_stacks(self) -> bool:
        """Whether Python stacks were recorded while the GPU waited for launches.

        Then CPU times include the work of the profiler, and findings say so.
        """
        return self.has_stacks and self.is_cpu_bound

    @cached_property
    def is_mostly_replayed(self) -> bool:
        """Whether replays of CUDA graphs launched at least half of the GPU events."""
        launch = self.trace.launch[self.gpu_rows]
        if not len(launch):
            return False

        is_known = launch != NO_ROW
        is_replay = is_known & mark_graph_calls(self.trace)[launch]
        replayed_events = int(np.count_nonzero(is_replay))
        return 2 * replayed_events >= len(launch)

    def group_gaps_by_axis(
        self, is_counted: Flags | None = None
    ) -> Iterator[CallsOnAxis]:
        """Yield, for each axis of threads, the indices of the gaps that belong to it.

        An axis puts the times of several threads one after another, so that they can be
        searched at once. A gap belongs to the axis of the thread that launched the GPU
        event after it. Gaps whose next launch is unknown belong to none.

        Args:
            is_counted: True for the gaps that count; None for all. Shape [gaps].
        """
        if is_counted is None:
            is_counted = self.gaps.has_launch
        return group_calls_by_axis(
            self.trace, self.accounts.launchers, self.gaps.launch, is_counted
        )

    @cached_property
    def compiler_rows(self) -> Rows:
        """Return the slices in which something is compiled, on any thread."""
        return self.trace.rows_named(
            COMPILER.search, Role.ANNOTATION, Role.OP, Role.PYTHON
        )

    @cached_property
    def loading_time(self) -> Cover:
        """Return when a thread that launches fetches a batch from a data loader."""
        return self.cover_launching_threads(find_loader_calls(self.trace))

    @cached_property
    def compiling_time(self) -> Cover:
        """Return when a thread that launches compiles something, as far as recorded."""
        return self.cover_launching_threads(self.compiler_rows)

    @cached_property
    def has_launches(self) -> bool:
        """Whether the launch of any GPU event is known."""
        return bool((self.trace.launch[self.gpu_rows] != NO_ROW).any())

    @cached_property
    def has_stacks(self) -> bool:
        """Whether any Python frame was recorded."""
        return bool((self.trace.role == Role.PYTHON).any())

    def choose_longest_waited_for(self, rows: Rows) -> tuple[int, ...]:
        """Choose the slices during which the devices were idle longest, as evidence.

        Args:
            rows: The slices to choose from, as rows of the trace.

        Returns:
            Some of these rows, the longest idle time first. Empty if no device waited.
        """
        waited_ns = self.measure_idle_of_each(rows)
        is_waited_for = waited_ns > 0
        return choose_heaviest_rows(rows[is_waited_for], waited_ns[is_waited_for])

    def measure_idle_of_each(self, rows: Rows) -> Int64s:
        """Measure how long the devices were idle while each of some slices ran.

        Only gaps count that end with a launch by the thread of the slice. A slice on a
        thread that launches nothing gets 0.

        Args:
            rows: The slices, as rows of the trace.

        Returns:
            ns, of the shape of `rows`.
        """
        waited_ns = np.zeros(len(rows), dtype=np.int64)
        for threads, _, on_axis in self.group_gaps_by_axis():
            idle_time = union(on_axis(self.gaps.begin), on_axis(self.gaps.end))
            is_of_axis = threads.tracks[self.trace.track[rows]]
            start, end = threads.place_slices(rows[is_of_axis])
            waited_ns[is_of_axis] = idle_time.within(start, end)

        return waited_ns


MIN_SHARE_CPU_BOUND: Final = 0.10
"""From this share of the span on, a GPU counts as waiting for launches."""
WORK_NS: Final = 5_000_000
"""A longer gap is not due to launching, unless many slices begin in it."""
SLICE_NS: Final = 200_000
"""What launching takes at most for each slice that begins in a gap."""
LONG_WORK_NS: Final = 50_000_000
"""A longer gap is not due to launching, whatever begins in it."""
LATE_ACTIVITIES: Final = np.array(
    [kind not in (ThreadActivity.SYNC, ThreadActivity.ALLOC) for kind in ThreadActivity]
)
"""True for what a thread does that launches late: neither waiting nor allocating.

Shape [ThreadActivity].
"""
_RECORDED_WORK: Final = (
    *ACTIVITIES_OF_CALLS,
    ThreadActivity.OP,
    ThreadActivity.PYTHON,
)


class WaitsForLaunches(msgspec.Struct, frozen=True, eq=False):
    """The time until the launch calls of some gaps, cut to a cover, on one axis.

    All times are times on the axis of the threads.
    """

    threads: Threads
    gap_indices: Rows
    """The gaps that end with a launch of these threads, as indices into Facts.gaps."""
    parts: Cover
    """In order. Each part lies wholly in one gap, or outside of all."""
    first_part: Rows
    """The index of the first part of each gap; shape of `gap_indices`."""
    after_last_part: Rows
    """One more than the index of the last part of each gap; shape of `gap_indices`."""

    def add_up_by_gap(self, ns_of_parts: Int64s) -> Int64s:
        """Add up a figure of the parts for each gap.

        Args:
            ns_of_parts: The figure, of shape [..., parts].

        Returns:
            The sums, of shape [..., gaps].
        """
        return sums_of_ranges(ns_of_parts, self.first_part, self.after_last_part)


class IdleGaps(Gaps, frozen=True, eq=False):
    """The gaps of several devices, clipped to the window."""

    device: Int32s
    """The index of the device of each gap, ascending; shape [gaps]."""
    reasons: Reasons
    """How long each gap lasted for each reason; see devices.Reasons."""

    @classmethod
    def from_gaps(cls, gaps: Gaps, device: Int32s, reasons: Reasons) -> IdleGaps:
        """Make the record of some gaps, their devices and their reasons."""
        return cls(
            begin=gaps.begin,
            end=gaps.end,
            event=gaps.event,
            before=gaps.before,
            launch=gaps.launch,
            in_graph=gaps.in_graph,
            call_begin=gaps.call_begin,
            call_end=gaps.call_end,
            device=device,
            reasons=reasons,
        )

    @classmethod
    def concatenate(cls, parts: Sequence[IdleGaps]) -> IdleGaps:
        """Concatenate the gaps of several records, of which there may be none."""
        if not parts:
            return cls._empty()

        gaps: Gaps = parts[0]
        device = parts[0].device
        reasons = parts[0].reasons
        for part in parts[1:]:
            gaps = gaps.followed_by(part)
            device = np.concatenate((device, part.device))
            reasons = tuple(map(np.append, reasons, part.reasons))

        return cls.from_gaps(gaps, device=device, reasons=reasons)

    @classmethod
    def _empty(cls) -> IdleGaps:
        """Make the record without any gap."""
        no_ns = np.empty(0, dtype=np.int64)
        no_rows = np.empty(0, dtype=np.int32)
        return cls(
            begin=no_ns,
            end=no_ns,
            event=no_rows,
            before=no_rows,
            launch=no_rows,
            in_graph=np.empty(0, dtype=np.bool_),
            call_begin=no_ns,
            call_end=no_ns,
            device=no_rows,
            reasons=(no_ns,) * len(IDLE),
        )

    def add_up_reasons(self, *names: str) -> Int64s:
        """Add up how long each gap lasted for some reasons, in ns.

        Args:
            names: The reasons, as keys of IDLE.
        """
        all_names = list(IDLE)
        columns = [self.reasons[all_names.index(name)] for name in names]
        total_ns: Int64s = np.stack(columns).sum(axis=0)

        return total_ns

    @property
    def activity_ns(self) -> Int64s:
        """Return what the launching thread did in each gap, in ns.

        Its shape is [ThreadActivity, gaps].
        """
        return np.stack(self.reasons[HOST:LAUNCH_CALL])
