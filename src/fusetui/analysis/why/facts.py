"""What the rules need to know about a trace, computed once, on first use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from msgspec.structs import astuple
from numpy.typing import NDArray

from fusetui.analysis.questions.launches import graph_calls
from fusetui.analysis.questions.loaders import loader_rows
from fusetui.analysis.why.account import Accounts
from fusetui.analysis.why.cpu_compute import COMPUTES_SHARE, cpu_compute_rows
from fusetui.analysis.why.devices import HOST, Devices, Gaps, Reasons
from fusetui.analysis.why.host import CALLS, Host, Threads, launching
from fusetui.analysis.why.kernels import Kernels, the_most
from fusetui.analysis.why.model import IDLE
from fusetui.analysis.why.warming import (
    TIMES,
    Once,
    StepIntervals,
    slow_first_step,
    step_intervals,
    warm_up,
)
from fusetui.text.patterns import late
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

NO_ROWS: Rows = np.empty(0, dtype=np.intp)


COMPILER = late(
    r"\(dynamo_timed\)\Z"
    r"|torch/_dynamo/convert_frame\.py\(\d+\): (?:_compile|compile_inner)\Z"
    r"|torch/_inductor/compile_fx\.py\(\d+\): compile_fx"
    r"|triton/compiler/compiler\.py\(\d+\): compile\Z"
)
"""Annotations of torch/_dynamo/utils.py (dynamo_timed), and frames of Dynamo, Inductor
and Triton that run only when something is compiled."""


COMPILED = late(r"\Atriton_[a-z]{3}_fused")
"""How the names begin that Inductor gives to the kernels that it generates."""
COMPILING_NS = 100_000_000  # unrecorded time; in less of it nothing is compiled


class Facts:
    """A trace, or the window [begin_ns, end_ns) of it. The time in a window before the
    first event of a device is a gap; for a whole trace it is not."""

    def __init__(
        self,
        accounts: Accounts,
        lines: Sequence[Devices] | None = None,
        window: tuple[int, int] | None = None,
        called: str = "the time",
    ) -> None:
        """`lines`: only these devices. `called`: what the window is for a reader."""
        self.accounts, self.trace = accounts, accounts.trace
        self.lines = tuple(accounts.lines if lines is None else lines)
        self.devices = [device for line in self.lines for device in line.named]
        self.window, self.called = window, called
        self.begin_ns, self.end_ns = window or (self.trace.begin_ns, self.trace.end_ns)

    @cached_property
    def gpu_rows(self) -> Rows:
        """GPU events that run in the window, in the order of the trace."""
        rows = self.trace.gpu_rows
        if sum(len(line.events) for line in self.lines) < len(rows):
            rows = np.sort(
                np.concatenate([NO_ROWS, *(line.events for line in self.lines)])
            )
        return self.inside(rows)

    def inside(self, rows: Rows) -> Rows:
        return rows[
            (self.trace.end[rows] > self.begin_ns)
            & (self.trace.start[rows] < self.end_ns)
        ]

    @cached_property
    def steady(self) -> Facts:
        """These facts, or where the first step is much longer than the others, those of
        the GPU work after it: what the rules about kernels look at."""
        times = self.step_intervals
        if self.window or times is None or not slow_first_step(self.spans, times):
            return self
        begin_ns = int(times.end[0])
        ends = self.trace.end[self.gpu_rows[self.trace.end[self.gpu_rows] > begin_ns]]
        if not len(ends):
            return self
        after = "the time after the first step"
        return Facts(self.accounts, self.lines, (begin_ns, int(ends.max())), after)

    @cached_property
    def kernels(self) -> Kernels:
        return Kernels(self.trace, self.gpu_rows, self.begin_ns, self.end_ns)

    @cached_property
    def span_ns(self) -> int:
        """Of each device from its first to its last event, or the window, added up;
        without a device, what was recorded."""
        if not self.devices:
            return self.end_ns - self.begin_ns
        if self.window:
            return len(self.devices) * (self.end_ns - self.begin_ns)
        return sum(int((line.end_ns - line.begin_ns).sum()) for line in self.lines)

    @cached_property
    def whole(self) -> Cover:
        """The window, or all that was recorded."""
        return Cover(np.array([self.begin_ns]), np.array([self.end_ns]))

    @cached_property
    def idle(self) -> Idle:
        parts: list[list[NDArray[Any]]] = []
        devices = 0
        for line in self.lines:
            gaps, why = line.idle_in(self.window)
            parts.append([*astuple(gaps), line.number(gaps.event) + devices, *why])
            devices += len(line)
        each: Sequence[Any] = (
            parts[0] if parts else [NO_ROWS.astype(np.int32)] * (9 + len(IDLE))
        )
        if len(parts) > 1:
            each = [np.concatenate(column) for column in zip(*parts, strict=True)]
        return Idle(*[*each[:9], tuple(each[9:])])

    def idle_during(self, rows: Rows) -> int:
        """How long the devices were idle while any of these rows ran on any thread that
        launches (ns), whichever thread launched next; without the warm-up."""
        cover = without(self.while_launching(rows), self.warming)
        return int(cover.within(self.idle.begin, self.idle.end).sum())

    @cached_property
    def launching(self) -> Flags:
        """Which tracks belong to a thread that launches GPU work; shape [tracks]."""
        trace = self.trace
        calls = trace.launch[trace.gpu_rows]
        thread = trace.thread_of_track
        return np.isin(thread, thread[trace.track[calls[calls >= 0]]])

    def while_launching(self, rows: Rows) -> Cover:
        """The time that these rows cover on any of the threads that launch."""
        rows = rows[self.launching[self.trace.track[rows]]]
        return union(self.trace.start[rows], self.trace.end[rows])

    def host_under(self, cover: Cover) -> Int64s:
        """What the launching threads did in the host parts of the gaps during a cover
        (times of the file): ns, of shape [Host, gaps]."""
        idle = self.idle
        found = np.zeros((len(Host), len(idle)), dtype=np.int64)
        if not len(cover.start):
            return found
        for line, own, placed in self.launched(idle.called > idle.begin):
            edges = placed(idle.begin), placed(idle.called)
            # each wholly in a gap, or outside
            parts = line.parts(counted(*edges), cover)
            until = np.pad(
                line.split(parts.start, parts.end).cumsum(axis=1), ((0, 0), (1, 0))
            )
            first, last = (parts.start.searchsorted(times) for times in edges)
            found[:, own] = until[:, last] - until[:, first]
        return found

    @cached_property
    def spans(self) -> Steps:
        """The steps of the whole trace."""
        return steps_of(self.trace)

    @cached_property
    def step_intervals(self) -> StepIntervals | None:
        """When each of these runs, as far as that is known; see
        warming.step_intervals."""
        return step_intervals(self.trace, self.spans)

    @cached_property
    def warm_up(self) -> tuple[tuple[Once, Cover], ...]:
        """What happens once, and when; see warming.warm_up."""
        return warm_up(
            self.trace,
            kinds=self.accounts.kinds,
            launching=self.launching,
            spans=self.spans,
            times=self.step_intervals,
            compiling=self.compiler_rows,
        )

    @cached_property
    def warming(self) -> Cover:
        return joined(NOTHING, *(cover for _, cover in self.warm_up))

    def late_under(self, cover: Cover) -> int:
        """How long the devices waited for a launch, or inside one, during a cover
        (ns)."""
        return int(cover.within(self.idle.begin, self.idle.returned).sum())

    @cached_property
    def explained(self) -> Cover:
        """The time that data-loading, recompilation, warm-up and first-compiled-kernels
        claim."""
        idle, first = self.idle, self.before_first_runs
        compiling = union(idle.begin[first], idle.called[first])
        return joined(self._claimed_by_slices, compiling)

    @cached_property
    def _claimed_by_slices(self) -> Cover:
        return joined(self.loading, self.compiling, self.warming)

    @cached_property
    def before_first_runs(self) -> Rows:
        """The gaps that end with the first run of a kernel that torch.compile
        generated, and in which a compiler probably ran unrecorded: long ones, compared
        with those before later runs of that kernel too, for most of which nothing was
        recorded of the launching thread."""
        trace, idle = self.trace, self.idle
        events = idle.event
        is_compiled = trace.matching(events, COMPILED.match) & (
            trace.role[events] == Role.KERNEL
        )
        places = np.flatnonzero(is_compiled)
        if not len(places):  # what was recorded in the gaps does not matter
            return NO_ROWS
        unrecorded_ns = self.unclaimed_ns[Host.NOTHING] + self._in_steps_alone_ns
        all_runs = trace.rows_of(Role.KERNEL)
        all_runs = all_runs[np.isin(trace.name[all_runs], trace.name[events[places]])]
        all_runs = all_runs[np.argsort(trace.start[all_runs], kind="stable")]
        first_runs = all_runs[np.unique(trace.name[all_runs], return_index=True)[1]]
        is_first = np.isin(events[places], first_runs)
        longest_later_ns = np.zeros(len(trace.names), dtype=np.int64)
        later = places[~is_first]
        np.maximum.at(longest_later_ns, trace.name[events[later]], unrecorded_ns[later])
        first = places[is_first]
        is_long = unrecorded_ns[first] >= COMPILING_NS
        is_long &= (
            unrecorded_ns[first] >= TIMES * longest_later_ns[trace.name[events[first]]]
        )
        is_long &= 2 * unrecorded_ns[first] > idle.host[:, first].sum(axis=0)
        found: Rows = first[is_long]
        return found

    @cached_property
    def _in_steps_alone_ns(self) -> Int64s:
        """For how long a step is all that was recorded of the launching thread in the
        host part of each gap (ns, of shape [gaps]): its annotation encloses work, but
        is none."""
        annotations = self.inside(self.trace.rows_of(Role.ANNOTATION))
        others = annotations[~np.isin(annotations, self.spans.rows)]
        in_annotations = self.unclaimed_ns[Host.ANNOTATION]
        in_others = self.host_under(self.while_launching(others))[Host.ANNOTATION]
        return np.asarray(np.maximum(in_annotations - in_others, 0), dtype=np.int64)

    @cached_property
    def unclaimed_ns(self) -> Int64s:
        """The host parts of gaps, [Host, gaps], without data loading, recorded
        compilation and warm-up."""
        found: Int64s = self.idle.host - self.host_under(self._claimed_by_slices)
        return found

    @cached_property
    def late(self) -> Int64s:
        """The host parts of gaps except synchronization and allocation, minus what is
        explained; see host_under."""
        found: Int64s = (self.idle.host - self.host_under(self.explained)) * LATE[
            :, None
        ]
        return found

    @cached_property
    def computing_ns(self) -> Int64s:
        """For how long the launching thread computed on the CPU in the host part of
        each gap, without what is explained (ns, of shape [gaps]); see cpu_compute."""
        idle, rows = self.idle, cpu_compute_rows(self.trace)
        found = np.zeros(len(idle), dtype=np.int64)
        if not len(rows):
            return found
        for line, own, placed in self.launched(idle.called > idle.begin):
            edges = placed(idle.begin), placed(idle.called)
            computing = union(*line.bounds(line.own(rows)))
            parts = line.parts(counted(*edges), outside(self.explained))
            until = np.pad(computing.within(parts.start, parts.end).cumsum(), (1, 0))
            first, last = (parts.start.searchsorted(times) for times in edges)
            found[own] = until[last] - until[first]
        return found

    @cached_property
    def computing_gaps(self) -> Flags:
        """The gaps of whose host part the launching thread spent at least
        COMPUTES_SHARE computing on the CPU: tensors in the memory of the host stand
        between two launches."""
        least_ns = COMPUTES_SHARE * self.late.sum(axis=0)
        found: Flags = (self.computing_ns >= least_ns) & (self.computing_ns > 0)
        return found

    @cached_property
    def busy_cpu(self) -> Flags:
        """The gaps in which the launching thread did other work than to launch: it
        computed on the CPU, or their `late` part is longer than a sequence of ops
        takes, and not made of many small slices; without the set-up."""
        idle, late_ns = self.idle, self.late.sum(axis=0)
        long, slices = (
            (late_ns > WORK_NS) & (idle.launch >= 0),
            np.zeros(len(idle), dtype=np.int64),
        )
        for line, own, placed in self.launched(long):
            edges = placed(idle.begin), placed(idle.called)
            for kind in (*CALLS, Host.OP, Host.PYTHON):
                slices[own] += np.diff(
                    line.slices(kind).start.searchsorted(edges), axis=0
                )[0]
        found: Flags = long & ((late_ns > SLICE_NS * slices) | (late_ns > LONG_WORK_NS))
        return (found | self.computing_gaps) & ~self.set_up

    @cached_property
    def is_late(self) -> bool:
        """Whether the GPU waits for launches for a considerable part of the span, both
        without the warm-up and the set-up."""
        late = (self.idle.host - self.host_under(self.warming))[LATE]
        set_up_ns = int(late[:, self.set_up].sum())
        late_ns = int(late.sum()) - set_up_ns
        span_ns = self.span_ns - self.late_under(self.warming) - set_up_ns
        return late_ns >= CPU_BOUND * span_ns > 0

    @cached_property
    def set_up(self) -> Flags:
        """Without steps, the gaps before the first kernel of a device, between the
        copies and sets that prepare the work; none where a device runs no kernel."""
        trace, events = self.trace, self.idle.event
        kernels = trace.rows_of(Role.KERNEL)
        if len(self.spans) or not len(kernels):
            return np.zeros(len(events), dtype=np.bool_)
        first_ns = np.full(len(trace.tracks) + 1, -FOREVER)
        device = trace.process_of_track[trace.track[kernels]]
        first_ns[device] = FOREVER
        np.minimum.at(first_ns, device, trace.start[kernels])
        of_gap = trace.process_of_track[trace.track[events]]
        found: Flags = self.idle.end <= first_ns[of_gap]
        return found

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
        replays = (calls >= 0) & graph_calls(self.trace)[calls]
        return 2 * int(np.count_nonzero(replays)) >= len(calls) > 0

    def launched(
        self, which: Flags | None = None
    ) -> Iterator[tuple[Threads, Rows, Callable[[Int64s], Int64s]]]:
        """Which gaps (of some) end with a launch from each line of threads; see
        host.launching."""
        launch = self.idle.launch
        known = launch >= 0 if which is None else which
        return launching(self.trace, self.accounts.launchers, launch, known)

    @cached_property
    def compiler_rows(self) -> Rows:
        """The slices in which something is compiled, on any thread."""
        return self.trace.rows_named(
            COMPILER.search, Role.ANNOTATION, Role.OP, Role.PYTHON
        )

    @cached_property
    def loading(self) -> Cover:
        return self.while_launching(loader_rows(self.trace))

    @cached_property
    def compiling(self) -> Cover:
        return self.while_launching(self.compiler_rows)

    @cached_property
    def has_launches(self) -> bool:
        return bool((self.trace.launch[self.gpu_rows] >= 0).any())

    @cached_property
    def has_stacks(self) -> bool:
        return bool((self.trace.role == Role.PYTHON).any())

    def heaviest(self, rows: Rows) -> tuple[int, ...]:
        """The rows under which the devices waited longest, as evidence."""
        waits = self.waited_for(rows)
        return the_most(rows[waits > 0], waits[waits > 0])

    def waited_for(self, rows: Rows) -> Int64s:
        """How long the devices were idle under each of these rows of the threads that
        launched next (ns)."""
        waits = np.zeros(len(rows), dtype=np.int64)
        for line, _, placed in self.launched():
            own = np.flatnonzero(line.tracks[self.trace.track[rows]])
            cover = union(placed(self.idle.begin), placed(self.idle.end))
            waits[own] = cover.within(*line.bounds(rows[own]))
        return waits


# of the span; from this share on, a GPU counts as waiting for launches
CPU_BOUND = 0.10
WORK_NS = 5_000_000
"""A longer gap is not due to launching, unless many slices begin in it."""
SLICE_NS = 200_000
"""Of a gap that is due to launching: no more for each slice that begins in it."""
LONG_WORK_NS = 50_000_000
"""A longer gap is not due to launching, whatever begins in it."""
LATE = np.array([kind not in (Host.SYNC, Host.ALLOC) for kind in Host])
"""What a thread that launches too late is doing: neither waiting nor allocating."""


class Idle(Gaps, frozen=True, eq=False):
    """The gaps of devices within the window, clipped to it."""

    device: Int32s  # a number, in order
    reasons: Reasons

    def ns(self, *names: str) -> Int64s:
        found: Int64s = np.stack(
            [self.reasons[[*IDLE].index(name)] for name in names]
        ).sum(axis=0)
        return found

    @property
    def host(self) -> Int64s:
        """How long each gap lasted for what the launching thread did, [Host, gaps]."""
        return np.stack(self.reasons[HOST : HOST + len(Host)])
