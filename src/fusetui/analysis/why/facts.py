"""What the rules need to know about a trace, computed once, on first use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Final

import msgspec
import numpy as np
from msgspec.structs import asdict

from fusetui.analysis.questions.launches import graph_calls
from fusetui.analysis.questions.loaders import loader_rows
from fusetui.analysis.why.account import Accounts
from fusetui.analysis.why.cpu_compute import COMPUTES_SHARE, cpu_compute_rows
from fusetui.analysis.why.devices import HOST, Devices, Gaps, Reasons
from fusetui.analysis.why.kernels import Kernels, heaviest_rows
from fusetui.analysis.why.model import IDLE
from fusetui.analysis.why.thread_activity import (
    ACTIVITIES_OF_CALLS,
    CallsOnLine,
    ThreadActivity,
    Threads,
    launching,
)
from fusetui.analysis.why.warming import (
    TIMES,
    StepIntervals,
    WarmUpPiece,
    slow_first_step,
    step_intervals,
    warm_up,
)
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.layout.steps import Steps, steps_of
from fusetui.trace.model.arrays import Flags, Int32s, Int64s, Rows
from fusetui.trace.model.categories import Role
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

NO_ROWS: Final[Rows] = np.empty(0, dtype=np.intp)


COMPILER: Final = lazy_pattern(
    r"\(dynamo_timed\)\Z"
    r"|torch/_dynamo/convert_frame\.py\(\d+\): (?:_compile|compile_inner)\Z"
    r"|torch/_inductor/compile_fx\.py\(\d+\): compile_fx"
    r"|triton/compiler/compiler\.py\(\d+\): compile\Z"
)
"""Annotations of torch/_dynamo/utils.py (dynamo_timed), and frames of Dynamo, Inductor
and Triton that run only when something is compiled."""


COMPILED: Final = lazy_pattern(r"\Atriton_[a-z]{3}_fused")
"""How the names begin that Inductor gives to the kernels that it generates."""
COMPILING_NS: Final = 100_000_000
"""Of unrecorded time; in less of it nothing is compiled."""


class Facts:
    """A trace, or the window [begin_ns, end_ns) of it. The time in a window before the
    first event of a device is a gap; for a whole trace it is not."""

    def __init__(
        self,
        accounts: Accounts,
        lines: Sequence[Devices] | None = None,
        window: tuple[int, int] | None = None,
        window_name: str = "the time",
    ) -> None:
        """`lines`: only these devices. `window_name`: what the window is for a reader."""
        self.accounts = accounts
        self.trace = accounts.trace
        self.lines = tuple(accounts.lines if lines is None else lines)
        self.devices = [device for line in self.lines for device in line.named]
        self.window = window
        self.window_name = window_name
        self.begin_ns, self.end_ns = window or (self.trace.begin_ns, self.trace.end_ns)

    @cached_property
    def gpu_rows(self) -> Rows:
        """GPU events of these devices that run in the window, in the order of the
        trace."""
        rows = self.trace.gpu_rows
        events_of_lines = [line.events for line in self.lines]
        if sum(map(len, events_of_lines)) < len(rows):
            rows = np.sort(np.concatenate([NO_ROWS, *events_of_lines]))
        return self.rows_in_window(rows)

    def rows_in_window(self, rows: Rows) -> Rows:
        """The rows that lie at least partly in the window."""
        ends_after_begin = self.trace.end[rows] > self.begin_ns
        starts_before_end = self.trace.start[rows] < self.end_ns
        inside: Rows = rows[ends_after_begin & starts_before_end]
        return inside

    @cached_property
    def steady(self) -> Facts:
        """These facts, or where the first step is much longer than the others, those of
        the GPU work after it: what the rules about kernels look at."""
        times = self.step_intervals
        if self.window or times is None or not slow_first_step(self.steps, times):
            return self
        begin_ns = int(times.end[0])
        last_end_ns = int(self.trace.end[self.gpu_rows].max(initial=begin_ns))
        if last_end_ns <= begin_ns:
            return self
        return Facts(
            self.accounts,
            self.lines,
            window=(begin_ns, last_end_ns),
            window_name="the time after the first step",
        )

    @cached_property
    def kernels(self) -> Kernels:
        """The GPU events of the window as Kernels."""
        return Kernels(self.trace, self.gpu_rows, self.begin_ns, self.end_ns)

    @cached_property
    def span_ns(self) -> int:
        """The spans of all devices added up (ns): of each from its first to its last
        event, or the window. Without a device it is what was recorded."""
        recorded_ns = self.end_ns - self.begin_ns
        if not self.devices:
            return recorded_ns
        if self.window:
            return len(self.devices) * recorded_ns
        spans_ns = 0
        for line in self.lines:
            spans_ns += int((line.end_ns - line.begin_ns).sum())
        return spans_ns

    @cached_property
    def whole_time(self) -> Cover:
        """The window, or all that was recorded."""
        return Cover(np.array([self.begin_ns]), np.array([self.end_ns]))

    @cached_property
    def idle(self) -> Idle:
        """The gaps of all these devices, one device after the other."""
        idle_of_lines = []
        devices_before = 0
        for line in self.lines:
            gaps, reasons = line.idle_in(self.window)
            device = line.number(gaps.event) + devices_before
            idle_of_lines.append(Idle.from_gaps(gaps, device=device, reasons=reasons))
            devices_before += len(line)
        return Idle.joined(idle_of_lines)

    def idle_during(self, rows: Rows) -> int:
        """How long the devices were idle while any of these rows ran on any thread that
        launches (ns), whichever thread launched next; without the warm-up."""
        cover = without(self.cover_on_launching_threads(rows), self.warm_up_cover)
        return int(cover.within(self.idle.begin, self.idle.end).sum())

    @cached_property
    def launching_tracks(self) -> Flags:
        """Which tracks belong to a thread that launches GPU work; shape [tracks]."""
        trace = self.trace
        calls = trace.launch[trace.gpu_rows]
        calls = calls[calls >= 0]
        launching_threads = trace.thread_of_track[trace.track[calls]]
        return np.isin(trace.thread_of_track, launching_threads)

    def cover_on_launching_threads(self, rows: Rows) -> Cover:
        """The time that these rows cover on any of the threads that launch."""
        rows = rows[self.launching_tracks[self.trace.track[rows]]]
        return union(self.trace.start[rows], self.trace.end[rows])

    def host_ns_during(self, cover: Cover) -> Int64s:
        """What the launching threads did in the host parts of the gaps during a cover
        (times of the file): ns, of shape [ThreadActivity, gaps]."""
        activity_ns = np.zeros((len(ThreadActivity), len(self.idle)), dtype=np.int64)
        if not len(cover.start):
            return activity_ns
        for host in self._host_parts(cover):
            ns_of_parts = host.line.split(host.parts.start, host.parts.end)
            activity_ns[:, host.gaps] = host.sums(ns_of_parts)
        return activity_ns

    def _host_parts(self, cover: Cover) -> Iterator[HostPieces]:
        """The host parts of the gaps during a cover, for each line of threads."""
        idle = self.idle
        for line, gaps, on_line in self.gaps_by_thread_line(
            idle.call_begin > idle.begin
        ):
            begin = on_line(idle.begin)
            end = on_line(idle.call_begin)
            # each part lies wholly in a gap, or outside
            parts = line.parts(counted(begin, end), cover)
            yield HostPieces(
                line=line,
                gaps=gaps,
                parts=parts,
                first=parts.start.searchsorted(begin),
                last=parts.start.searchsorted(end),
            )

    @cached_property
    def steps(self) -> Steps:
        """The steps of the whole trace."""
        return steps_of(self.trace)

    @cached_property
    def step_intervals(self) -> StepIntervals | None:
        """When each of these runs, as far as that is known; see
        warming.step_intervals."""
        return step_intervals(self.trace, self.steps)

    @cached_property
    def warm_up_pieces(self) -> tuple[WarmUpPiece, ...]:
        """What happens once, and when; see warming.warm_up."""
        return warm_up(
            self.trace,
            kinds=self.accounts.kinds,
            launching=self.launching_tracks,
            steps=self.steps,
            times=self.step_intervals,
            compiling=self.compiler_rows,
        )

    @cached_property
    def warm_up_cover(self) -> Cover:
        """The time of the warm-up (ns of the file)."""
        return joined(NOTHING, *(piece.cover for piece in self.warm_up_pieces))

    def late_ns_during(self, cover: Cover) -> int:
        """How long the devices waited for a launch, or inside one, during a cover
        (ns)."""
        return int(cover.within(self.idle.begin, self.idle.call_end).sum())

    @cached_property
    def explained_cover(self) -> Cover:
        """The time that data-loading, recompilation, warm-up and first-compiled-kernels
        claim."""
        idle = self.idle
        first = self.before_first_runs
        compiling = union(idle.begin[first], idle.call_begin[first])
        return joined(self._claimed_by_slices, compiling)

    @cached_property
    def _claimed_by_slices(self) -> Cover:
        """The time that data-loading, recompilation and warm-up claim."""
        return joined(self.loading_cover, self.compiling_cover, self.warm_up_cover)

    @cached_property
    def before_first_runs(self) -> Rows:
        """The gaps that end with the first run of a kernel that torch.compile
        generated, and in which a compiler probably ran unrecorded: long ones, compared
        with those before later runs of that kernel too, for most of which nothing was
        recorded of the launching thread."""
        idle = self.idle
        gaps = self._before_compiled_kernels
        if not len(gaps):  # what was recorded in the gaps does not matter
            return NO_ROWS
        name = self.trace.name[idle.event]
        unrecorded_ns = (
            self.unclaimed_host_ns[ThreadActivity.NOTHING] + self._in_steps_alone_ns
        )
        is_first = np.isin(idle.event[gaps], self._first_runs_of(name[gaps]))
        longest_later_ns = np.zeros(len(self.trace.names), dtype=np.int64)
        later = gaps[~is_first]
        np.maximum.at(longest_later_ns, name[later], unrecorded_ns[later])

        first = gaps[is_first]
        first_ns = unrecorded_ns[first]
        host_ns = idle.host_ns[:, first].sum(axis=0)
        compiles = first_ns >= COMPILING_NS
        compiles &= first_ns >= TIMES * longest_later_ns[name[first]]
        compiles &= 2 * first_ns > host_ns
        with_compiler: Rows = first[compiles]
        return with_compiler

    @property
    def _before_compiled_kernels(self) -> Rows:
        """The gaps that end with a kernel that torch.compile generated."""
        events = self.idle.event
        is_kernel = self.trace.role[events] == Role.KERNEL
        is_generated = self.trace.matching(events, COMPILED.match)
        return np.flatnonzero(is_kernel & is_generated)

    def _first_runs_of(self, names: Int32s) -> Rows:
        """The first kernel of each of these names."""
        trace = self.trace
        kernels = trace.rows_of(Role.KERNEL)
        kernels = kernels[np.isin(trace.name[kernels], names)]
        by_start = kernels[np.argsort(trace.start[kernels], kind="stable")]
        _, first_of_name = np.unique(trace.name[by_start], return_index=True)
        return by_start[first_of_name]

    @cached_property
    def _in_steps_alone_ns(self) -> Int64s:
        """For how long a step is all that was recorded of the launching thread in the
        host part of each gap (ns, of shape [gaps]): its annotation encloses work, but
        is none."""
        annotations = self.rows_in_window(self.trace.rows_of(Role.ANNOTATION))
        others = annotations[~np.isin(annotations, self.steps.rows)]
        under_others_ns = self.host_ns_during(self.cover_on_launching_threads(others))
        in_annotations_ns = self.unclaimed_host_ns[ThreadActivity.ANNOTATION]
        in_steps_ns = in_annotations_ns - under_others_ns[ThreadActivity.ANNOTATION]
        return np.asarray(np.maximum(in_steps_ns, 0), dtype=np.int64)

    @cached_property
    def unclaimed_host_ns(self) -> Int64s:
        """The host parts of gaps, [ThreadActivity, gaps], without data loading, recorded
        compilation and warm-up."""
        claimed_ns = self.host_ns_during(self._claimed_by_slices)
        unclaimed_ns: Int64s = self.idle.host_ns - claimed_ns
        return unclaimed_ns

    @cached_property
    def late_host_ns(self) -> Int64s:
        """The host parts of gaps except synchronization and allocation, minus what is
        explained; see host_under."""
        left_ns = self.idle.host_ns - self.host_ns_during(self.explained_cover)
        late_ns: Int64s = left_ns * LATE_ACTIVITIES[:, None]
        return late_ns

    @cached_property
    def computing_ns(self) -> Int64s:
        """For how long the launching thread computed on the CPU in the host part of
        each gap, without what is explained (ns, of shape [gaps]); see cpu_compute."""
        computing_ns = np.zeros(len(self.idle), dtype=np.int64)
        rows = cpu_compute_rows(self.trace)
        if not len(rows):
            return computing_ns
        for host in self._host_parts(outside(self.explained_cover)):
            start, end = host.line.bounds(host.line.own(rows))
            computing = union(start, end)
            ns_of_parts = computing.within(host.parts.start, host.parts.end)
            computing_ns[host.gaps] = host.sums(ns_of_parts)
        return computing_ns

    @cached_property
    def has_cpu_compute(self) -> Flags:
        """The gaps of whose host part the launching thread spent at least
        COMPUTES_SHARE computing on the CPU: tensors in the memory of the host stand
        between two launches."""
        least_ns = COMPUTES_SHARE * self.late_host_ns.sum(axis=0)
        computes: Flags = (self.computing_ns >= least_ns) & (self.computing_ns > 0)
        return computes

    @cached_property
    def has_other_cpu_work(self) -> Flags:
        """The gaps in which the launching thread did other work than to launch: it
        computed on the CPU, or their `late` part is longer than a sequence of ops
        takes, and not made of many small slices; without the set-up."""
        late_ns = self.late_host_ns.sum(axis=0)
        is_launched = self.idle.launch >= 0
        is_long = is_launched & (late_ns > WORK_NS)
        launching_takes_ns = SLICE_NS * self._slices_begun(is_long)
        has_few_slices = late_ns > launching_takes_ns
        is_very_long = late_ns > LONG_WORK_NS
        has_other_work = is_long & (has_few_slices | is_very_long)
        is_busy: Flags = has_other_work | self.has_cpu_compute
        return is_busy & ~self.is_set_up_gap

    def _slices_begun(self, which: Flags) -> Int64s:
        """How many ops, calls and frames of the launching thread begin in the host part
        of the gaps of `which`; shape [gaps], 0 for others."""
        idle = self.idle
        begun = np.zeros(len(idle), dtype=np.int64)
        for line, gaps, on_line in self.gaps_by_thread_line(which):
            begin = on_line(idle.begin)
            end = on_line(idle.call_begin)
            for kind in _RECORDED_WORK:
                start = line.slices(kind).start
                begun[gaps] += start.searchsorted(end) - start.searchsorted(begin)
        return begun

    @cached_property
    def is_late(self) -> bool:
        """Whether the GPU waits for launches for a considerable part of the span
        (CPU_BOUND), both without the warm-up and the set-up."""
        steady_ns = self.idle.host_ns - self.host_ns_during(self.warm_up_cover)
        late_ns_of_gap = steady_ns[LATE_ACTIVITIES].sum(axis=0)
        set_up_ns = int(late_ns_of_gap[self.is_set_up_gap].sum())
        late_ns = int(late_ns_of_gap.sum()) - set_up_ns
        warming_ns = self.late_ns_during(self.warm_up_cover)
        span_ns = self.span_ns - warming_ns - set_up_ns
        return late_ns >= CPU_BOUND * span_ns > 0

    @cached_property
    def is_set_up_gap(self) -> Flags:
        """Without steps, the gaps before the first kernel of a device, between the
        copies and sets that prepare the work; none where a device runs no kernel."""
        trace = self.trace
        events = self.idle.event
        kernels = trace.rows_of(Role.KERNEL)
        if len(self.steps) or not len(kernels):
            return np.zeros(len(events), dtype=np.bool_)
        device_of_kernel = trace.process_of_track[trace.track[kernels]]
        first_kernel_ns = np.full(len(trace.tracks) + 1, -FOREVER)  # no kernel
        first_kernel_ns[device_of_kernel] = FOREVER
        np.minimum.at(first_kernel_ns, device_of_kernel, trace.start[kernels])
        device_of_gap = trace.process_of_track[trace.track[events]]
        is_before: Flags = self.idle.end <= first_kernel_ns[device_of_gap]
        return is_before

    @cached_property
    def is_profiled(self) -> bool:
        """Whether stacks were recorded while the GPU waited for launches: then CPU
        times include those of the profiler."""
        return self.has_stacks and self.is_late

    @cached_property
    def is_replayed(self) -> bool:
        """Whether at least half of the GPU events were launched by replays of CUDA
        graphs."""
        calls = self.trace.launch[self.gpu_rows]
        is_replay = graph_calls(self.trace)[calls] & (calls >= 0)
        replays = int(np.count_nonzero(is_replay))
        return 2 * replays >= len(calls) > 0

    def gaps_by_thread_line(self, which: Flags | None = None) -> Iterator[CallsOnLine]:
        """The gaps of `which` (all without it) that end with a known launch, for each
        line of threads: the places of the gaps, and where times of theirs lie on the
        line. See thread_activity.launching."""
        launch = self.idle.launch
        has_launch = launch >= 0 if which is None else which
        return launching(self.trace, self.accounts.launchers, launch, has_launch)

    @cached_property
    def compiler_rows(self) -> Rows:
        """The slices in which something is compiled, on any thread."""
        return self.trace.rows_named(
            COMPILER.search, Role.ANNOTATION, Role.OP, Role.PYTHON
        )

    @cached_property
    def loading_cover(self) -> Cover:
        """When a thread that launches fetches a batch from a data loader."""
        return self.cover_on_launching_threads(loader_rows(self.trace))

    @cached_property
    def compiling_cover(self) -> Cover:
        """When a thread that launches compiles something, as far as it was recorded."""
        return self.cover_on_launching_threads(self.compiler_rows)

    @cached_property
    def has_launches(self) -> bool:
        """Whether the launch of any GPU event is known."""
        return bool((self.trace.launch[self.gpu_rows] >= 0).any())

    @cached_property
    def has_stacks(self) -> bool:
        """Whether any Python frame was recorded."""
        return bool((self.trace.role == Role.PYTHON).any())

    def longest_waited_for(self, rows: Rows) -> tuple[int, ...]:
        """The rows under which the devices waited longest, as evidence."""
        waited_ns = self.waited_for(rows)
        is_waited_for = waited_ns > 0
        return heaviest_rows(rows[is_waited_for], waited_ns[is_waited_for])

    def waited_for(self, rows: Rows) -> Int64s:
        """How long the devices were idle under each of these rows of the threads that
        launched next (ns, shape of `rows`); 0 for rows of other threads."""
        waited_ns = np.zeros(len(rows), dtype=np.int64)
        for line, _, on_line in self.gaps_by_thread_line():
            gaps = union(on_line(self.idle.begin), on_line(self.idle.end))
            is_of_line = line.tracks[self.trace.track[rows]]
            start, end = line.bounds(rows[is_of_line])
            waited_ns[is_of_line] = gaps.within(start, end)
        return waited_ns


CPU_BOUND: Final = 0.10
"""Of the span; from this share on, a GPU counts as waiting for launches."""
WORK_NS: Final = 5_000_000
"""A longer gap is not due to launching, unless many slices begin in it."""
SLICE_NS: Final = 200_000
"""Of a gap that is due to launching: no more for each slice that begins in it."""
LONG_WORK_NS: Final = 50_000_000
"""A longer gap is not due to launching, whatever begins in it."""
LATE_ACTIVITIES: Final = np.array(
    [kind not in (ThreadActivity.SYNC, ThreadActivity.ALLOC) for kind in ThreadActivity]
)
"""What a thread that launches too late is doing: neither waiting nor allocating; shape
[ThreadActivity]."""
_RECORDED_WORK: Final = (
    *ACTIVITIES_OF_CALLS,
    ThreadActivity.OP,
    ThreadActivity.PYTHON,
)


class HostPieces(msgspec.Struct, frozen=True, eq=False):
    """The parts of the host parts of gaps that lie in a cover, on one line of
    threads."""

    line: Threads
    gaps: Rows
    """Those that end with a launch from the line."""
    parts: Cover
    """In order; each lies in one gap, or outside of all."""
    first: Rows
    """The first part of each gap; shape of `gaps`."""
    last: Rows
    """One more than its last part."""

    def sums(self, ns_of_parts: Int64s) -> Int64s:
        """A figure of the parts, of shape [..., parts], added up for each gap; shape
        [..., gaps]."""
        before_first = np.zeros((*ns_of_parts.shape[:-1], 1), dtype=np.int64)
        up_to_each = ns_of_parts.cumsum(axis=-1)
        sum_before = np.concatenate((before_first, up_to_each), axis=-1)
        of_gaps: Int64s = sum_before[..., self.last] - sum_before[..., self.first]
        return of_gaps


class Idle(Gaps, frozen=True, eq=False):
    """The gaps of devices within the window, clipped to it."""

    device: Int32s
    """A number, in order."""
    reasons: Reasons

    @classmethod
    def from_gaps(cls, gaps: Gaps, device: Int32s, reasons: Reasons) -> Idle:
        return cls(**asdict(gaps), device=device, reasons=reasons)

    @classmethod
    def joined(cls, parts: Sequence[Idle]) -> Idle:
        """The gaps of several records, one after the other; there may be none."""
        if not parts:
            return cls._empty()
        if len(parts) == 1:
            return parts[0]
        columns: dict[str, Any] = {}
        for name in cls._columns():
            columns[name] = np.concatenate([getattr(part, name) for part in parts])
        reasons = []
        for reason in range(len(IDLE)):
            reasons.append(np.concatenate([part.reasons[reason] for part in parts]))
        return cls(**columns, reasons=tuple(reasons))

    @classmethod
    def _empty(cls) -> Idle:
        """No gap at all."""
        no_rows = NO_ROWS.astype(np.int32)
        columns: dict[str, Any] = dict.fromkeys(cls._columns(), no_rows)
        no_ns = NO_ROWS.astype(np.int64)
        return cls(**columns, reasons=(no_ns,) * len(IDLE))

    @staticmethod
    def _columns() -> tuple[str, ...]:
        """The fields that are arrays of shape [gaps]."""
        return (*Gaps.__struct_fields__, "device")

    def ns_of_reasons(self, *names: str) -> Int64s:
        """How long each gap lasted for some reasons, by their names in IDLE (ns)."""
        all_names = list(IDLE)
        columns = [self.reasons[all_names.index(name)] for name in names]
        total_ns: Int64s = np.stack(columns).sum(axis=0)
        return total_ns

    @property
    def host_ns(self) -> Int64s:
        """How long each gap lasted for what the launching thread did, [ThreadActivity, gaps]."""
        return np.stack(self.reasons[HOST : HOST + len(ThreadActivity)])
