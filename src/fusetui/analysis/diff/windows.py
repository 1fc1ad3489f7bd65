"""Finds the steps of a trace to compare, or treats the whole trace as one step.

A step is a stretch of time. It need not be the one in which its work is launched.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui import Error
from fusetui.analysis.questions.server_steps import find_server_steps
from fusetui.analysis.serving.passes import Pass, find_passes, measure_busy_interval
from fusetui.text.figures import plural
from fusetui.trace.layout.steps import (
    MIN_SHARE_OF_WORK,
    PROFILED,
    StepLength,
    by_launch_time,
    launched_bounds,
    model_pass,
    steps_of,
)
from fusetui.trace.model.arrays import (
    Int64s,
    Rows,
    begins_runs,
    distinct,
    numbers_of_sized_groups,
    reduce_groups,
)
from fusetui.trace.model.categories import GPU_ROLES, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import NO_INTERVAL, Cover
from fusetui.trace.model.sorted_arrays import positions_of

MAX_SHARE_IN_ENQUEUING_STEPS = 0.01
"""Steps only enqueue work if at most this share of the time of their work runs before
they end."""

MIN_STEPS_WITH_COLD = 3
"""Fewer steps do not tell whether the first one is cold."""

MIN_RATIO_OF_COLD = 1.5
"""A first step longer than this times the median of the others is a warm-up."""


class TraceSteps(msgspec.Struct, frozen=True, eq=False):
    """The steps of a trace as disjoint stretches [start, end) in order of time."""

    start: Int64s  # ns, one per step
    end: Int64s
    length: StepLength  # what the length of each is
    is_whole_trace: bool = False  # one step has all of the work
    is_named: bool = False  # the file or the user says what a step is
    # The steps are of the time of a GPU: work belongs to the step in which it ran.
    is_gpu_time: bool = False
    # When the CPU launched the work of each step, where that is not within the step.
    launching: Cover | None = None
    notes: tuple[str, ...] = ()  # for the reader of the diff
    labels: tuple[str, ...] = ()  # the number of each, `#k` where the trace prints none

    def __len__(self) -> int:
        return len(self.start)

    @property
    def dur(self) -> Int64s:
        """The length of each step in ns.

        `length` tells which time of the step that is.
        """
        return self.end - self.start

    def select(self, steps: NDArray[np.integer], note: str) -> TraceSteps:
        """Return some of the steps.

        Args:
            steps: The indices of the steps to keep, ascending.
            note: Why the others are left out, for the reader of the diff; "" for none.
        """
        launching = self.launching
        if launching is not None:
            launching = Cover(start=launching.start[steps], end=launching.end[steps])
        return msgspec.structs.replace(
            self,
            start=self.start[steps],
            end=self.end[steps],
            launching=launching,
            notes=(*self.notes, note) if note else self.notes,
            labels=tuple(self.labels[step] for step in steps.tolist()),
        )

    def index_of(self, times: Int64s) -> Rows:
        """Return the index of the step that each time (ns) lies in, or NO_INTERVAL."""
        return Cover(self.start, self.end).place_of(times)

    def step_of_calls(self, times: Int64s) -> Rows:
        """Return the index of the step that calls at these times belong to.

        It is NO_INTERVAL for calls between steps. The times are of the CPU, in ns.
        """
        if self.launching is not None:
            return self.launching.place_of(times)
        return self.index_of(times)


class NoStepsError(Error):
    """No annotation of a trace matches what was asked for."""


def find_steps(trace: Trace, label: str, step_by: str | None = None) -> TraceSteps:
    """Find the steps of a trace.

    These are the steps that the file names; in a trace of a server, the passes of its
    model; else what repeats in the trace like a step. If there are none, the whole
    trace is one step.

    Args:
        trace: A trace.
        label: The name of the trace in notes.
        step_by: The annotations that match it are the steps instead; see `steps_of`.

    Raises:
        NoStepsError: If no annotation matches `step_by`.
    """
    steps = steps_of(trace, step_by)
    if step_by is not None and not len(steps):
        raise NoStepsError(f"{label} has no annotation that matches {step_by}.")

    is_named = step_by is not None or steps.by == PROFILED
    if not is_named:
        server_passes = _find_server_passes(trace, label)
        if server_passes is not None:
            return server_passes
    if not len(steps):
        return make_single_step(trace, label)

    what = f"the time {steps.by}" if steps.are_iterations else f"each `{steps.by}`"
    note = _describe_steps(label, what)
    prefix = "" if steps.printed else "#"
    return TraceSteps(
        start=steps.start,
        end=steps.end,
        length=StepLength.WALL,
        is_named=is_named,
        notes=() if is_named else (note,),
        labels=tuple(f"{prefix}{number}" for number in steps.numbers),
    )


def _describe_steps(label: str, what: str) -> str:
    """Write the note that says what counts as a step if the file names no steps.

    `what` is the subject of the sentence.
    """
    return f"{label}: no ProfilerStep annotations; {what} counts as a step"


def _find_server_passes(trace: Trace, label: str) -> TraceSteps | None:
    """Take the passes of the model of an inference server as steps.

    A step then tells what a token costs. A single pass lasts from its begin to the end
    of all that its step launched. Of several passes, each lasts from the end of the
    previous step's work to the end of its own. The first of them is left out, because
    no step ended before it.

    Returns:
        The steps. None if the trace is of no server, or if passes overlap. Also None if
        the steps hold little of the time of the GPU.
    """
    is_server = bool(find_server_steps(trace).requested)
    if not is_server:
        return None
    with_model = [step for step in find_passes(trace) if len(step.model_rows)]
    if not with_model or _do_passes_overlap(trace, with_model):
        return None

    gpu_rows = trace.gpu_rows
    if len(with_model) == 1:
        server_steps = _make_step_of_single_pass(trace, label, with_model[0])
    else:
        server_steps = _make_steps_of_passes(trace, label, with_model)
        # The work of the first step, which is left out, does not count.
        gpu_rows = gpu_rows[trace.start[gpu_rows] >= server_steps.start[0]]
    if not _hold_most_of_time(trace, server_steps, gpu_rows):
        return None
    return server_steps


def _do_passes_overlap(trace: Trace, steps: Sequence[Pass]) -> bool:
    """Return whether the model of a step begins before the previous one has ended."""
    model_passes = [model_pass(trace, step.model_rows) for step in steps]
    return any(
        later.begin_ns < earlier.end_ns for earlier, later in pairwise(model_passes)
    )


def _make_step_of_single_pass(trace: Trace, label: str, step: Pass) -> TraceSteps:
    """Return the times of the only step of a server.

    It lasts from the begin of its model to the end of the last GPU event that the step
    launched.
    """
    begin_ns = model_pass(trace, step.model_rows).begin_ns
    end_ns = measure_busy_interval(trace, step.launched_rows).end_ns
    what = "the model pass plus all later work of its server step"
    return TraceSteps(
        start=np.array([begin_ns], dtype=np.int64),
        end=np.array([end_ns], dtype=np.int64),
        length=StepLength.SPAN,
        is_gpu_time=True,
        notes=(_describe_steps(label, what),),
        labels=("#1",),
    )


def _make_steps_of_passes(
    trace: Trace, label: str, steps: Sequence[Pass]
) -> TraceSteps:
    """Return the times of the steps of a server, without the first one.

    Each lasts from the end of the previous step's work to the end of its own.

    Args:
        trace: A trace of a server.
        label: The name of the trace in notes.
        steps: The steps that run a model, at least two.
    """
    rows_by_step = [step.launched_rows for step in steps]
    launched_by_step = [len(rows) for rows in rows_by_step]
    wall_ends = [step.start_ns + step.dur_ns for step in steps]
    # Step n lasts from bounds[n] to bounds[n + 1]. The first one is left out, because
    # no work ends before it.
    bounds = launched_bounds(
        wall_bounds=np.array([steps[0].start_ns, *wall_ends], dtype=np.int64),
        work_end=trace.end[np.concatenate(rows_by_step)],
        step_of_work=numbers_of_sized_groups(np.array(launched_by_step)),
    )
    what = (
        "each server step with a model pass, measured from the end of the previous "
        "step,"
    )
    return TraceSteps(
        start=bounds[1:-1],
        end=bounds[2:],
        length=StepLength.LAUNCHED,
        is_gpu_time=True,
        notes=(_describe_steps(label, what),),
        labels=tuple(f"#{number}" for number in range(2, len(steps) + 1)),
    )


def _hold_most_of_time(trace: Trace, steps: TraceSteps, rows: Rows) -> bool:
    """Return whether MIN_SHARE_OF_WORK of the time of some events is in steps.

    Args:
        trace: A trace.
        steps: Its steps.
        rows: Rows of events. An event is in the step in which it begins.
    """
    durations_ns = trace.dur[rows]
    is_in_step = steps.index_of(trace.start[rows]) != NO_INTERVAL
    time_in_steps_ns = durations_ns[is_in_step].sum()
    return bool(time_in_steps_ns >= MIN_SHARE_OF_WORK * durations_ns.sum())


def make_single_step(trace: Trace, label: str) -> TraceSteps:
    """Take the whole trace as one step.

    The step goes from the first to the last op, runtime call or GPU event. There is no
    step if the trace has none of these.

    Args:
        trace: A trace.
        label: The name of the trace in notes.
    """
    rows = trace.rows_of(Role.OP, Role.CALL, *GPU_ROLES)
    if not len(rows):
        no_times = np.zeros(0, dtype=np.int64)
        return TraceSteps(
            start=no_times,
            end=no_times,
            length=StepLength.SPAN,
            is_whole_trace=True,
            notes=(f"{label}: no GPU events and no CPU ops",),
        )

    start = trace.start[rows].min()
    end = max(trace.end[rows].max(), start + 1)  # no step is empty
    remedy = "to use annotations as steps: --step-by PATTERN"
    note = f"{label}: no steps found; the whole trace counts as one step ({remedy})"
    return TraceSteps(
        start=np.array([start]),
        end=np.array([end]),
        length=StepLength.SPAN,
        is_whole_trace=True,
        notes=(note,),
        labels=("#1",),
    )


def measure_steps_on_gpu(trace: Trace, label: str, steps: TraceSteps) -> TraceSteps:
    """Measure steps by the time of the GPU where they only enqueue work for it.

    The wall time of such a step is only the time of launching its work. So each step
    then lasts from the end of the previous step's work to the end of its own. The first
    step is left out unless it is the only one, because no step ended before it.

    Returns:
        The steps as they are if they do more than enqueue work, or if the GPU runs them
        in another order.
    """
    if steps.is_whole_trace or steps.is_gpu_time:
        return steps

    all_rows, launched_ns = by_launch_time(trace)
    step_of_launch = steps.index_of(launched_ns)
    has_step = step_of_launch != NO_INTERVAL
    rows = all_rows[has_step]
    step_of_row = step_of_launch[has_step]
    if not len(rows) or not _do_steps_only_enqueue(trace, steps, rows, step_of_row):
        return steps
    if not _do_steps_run_in_order(trace, rows, step_of_row):
        return steps
    return _measure_between_work_ends(trace, label, steps, rows, step_of_row)


def _measure_between_work_ends(
    trace: Trace, label: str, steps: TraceSteps, rows: Rows, step_of_row: Rows
) -> TraceSteps:
    """Let each step last from the end of the previous step's work to that of its own.

    Args:
        trace: A trace.
        label: The name of the trace in notes.
        steps: Its steps. Those that launch no work are left out.
        rows: Rows of GPU events that steps launched; at least one.
        step_of_row: The index of the step that launched each of them, ascending.
    """
    launching_steps = distinct(step_of_row)
    first_start = steps.start[launching_steps[0]]
    # Step n lasts from bounds[n] to bounds[n + 1].
    bounds = launched_bounds(
        wall_bounds=np.append(first_start, steps.end[launching_steps]),
        work_end=trace.end[rows],
        step_of_work=positions_of(launching_steps, step_of_row),
    )
    if len(launching_steps) > 1:  # no work ends before the first step
        launching_steps = launching_steps[1:]
        bounds = bounds[1:]

    note = (
        f"{label}: GPU work runs after its step ends, so a step (launched) lasts from "
        "the end of the previous step's work to the end of its own"
    )
    selected = steps.select(launching_steps, note)
    return msgspec.structs.replace(
        selected,
        start=bounds[:-1],
        end=bounds[1:],
        length=StepLength.LAUNCHED,
        launching=Cover(start=selected.start, end=selected.end),
    )


def _do_steps_run_in_order(trace: Trace, rows: Rows, step_of_row: Rows) -> bool:
    """Return whether the GPU begins the work of each step after that of the one before.

    Args:
        trace: A trace.
        rows: Rows of GPU events, sorted by the time of their launch.
        step_of_row: The index of the step of each of these events, ascending.
    """
    first_of_step = np.flatnonzero(begins_runs(step_of_row))
    earliest_start = reduce_groups(np.minimum, trace.start[rows], first_of_step)
    return bool((earliest_start[1:] > earliest_start[:-1]).all())


def _do_steps_only_enqueue(
    trace: Trace, steps: TraceSteps, rows: Rows, step_of_row: Rows
) -> bool:
    """Return whether hardly any work runs before the end of the step that launched it.

    Of several steps, the first one does not count: the GPU had nothing to do yet.

    Args:
        trace: A trace.
        steps: Its steps.
        rows: Rows of GPU events.
        step_of_row: The index of the step that launched each of these events.
    """
    is_counted = step_of_row > step_of_row.min()
    if not is_counted.any():  # there is only one step
        is_counted[:] = True
    counted_rows = rows[is_counted]
    step_end = steps.end[step_of_row[is_counted]]

    end_within_step = np.minimum(trace.end[counted_rows], step_end)
    time_within_step = np.maximum(end_within_step - trace.start[counted_rows], 0)
    total_ns = int(trace.dur[counted_rows].sum())
    return bool(time_within_step.sum() <= MAX_SHARE_IN_ENQUEUING_STEPS * total_ns)


def exclude_unusual_steps(steps: TraceSteps, pieces: Int64s, label: str) -> TraceSteps:
    """Leave out the steps that the profiler cut off, then cold first steps.

    A step is cut off if it has less than half as many pieces of work as the median
    step. The first step is cold if it took more than MIN_RATIO_OF_COLD times the median
    of those after it. Then the next one may be cold too, and so on, as long as
    MIN_STEPS_WITH_COLD steps remain, the one in question included.

    Args:
        steps: The steps of a trace.
        pieces: How many pieces of work each step has.
        label: The name of the trace in notes.
    """
    return _exclude_cold_steps(_exclude_cut_off_steps(steps, pieces, label), label)


def _exclude_cut_off_steps(steps: TraceSteps, pieces: Int64s, label: str) -> TraceSteps:
    """Leave out the steps that the profiler cut off, with a note that says how many.

    Those are the steps with less than half as many pieces of work as the median step.

    Args:
        steps: The steps of a trace.
        pieces: How many pieces of work each step has.
        label: The name of the trace in the note.
    """
    if not len(pieces):
        return steps
    complete_steps = np.flatnonzero(2 * pieces >= np.median(pieces))
    if len(complete_steps) in (0, len(steps)):
        return steps
    cut_off = plural(len(steps) - len(complete_steps), "step")
    note = f"{label}: {cut_off} with less than half of the usual work excluded"
    return steps.select(complete_steps, note)


def _exclude_cold_steps(steps: TraceSteps, label: str) -> TraceSteps:
    """Leave out the first steps if they are warm-up, with a note that says why.

    A first step is warm-up if it took more than MIN_RATIO_OF_COLD times the median of
    those after it. Then the next one is looked at in the same way, and so on, as long
    as MIN_STEPS_WITH_COLD steps remain, the one in question included. So durations of
    900, 500, 100, 100 and 100 ns lose the first two, and 900 and 100 ns lose none.
    """
    durations = steps.dur
    cold = 0  # how many of the first steps are warm-up
    while len(durations) - cold >= MIN_STEPS_WITH_COLD:
        later_steps = durations[cold + 1 :]
        if durations[cold] <= MIN_RATIO_OF_COLD * np.median(later_steps):
            break
        cold += 1
    if not cold:
        return steps

    if cold == 1:
        why = f"first step excluded as warm-up, {_describe_ratio_of_first(durations)}"
    else:
        longer = "each much longer than most later steps"
        why = f"first {cold} steps excluded as warm-up, {longer}"
    return steps.select(np.arange(cold, len(durations)), f"{label}: {why}")


def _describe_ratio_of_first(durations: Int64s) -> str:
    """Say how long the first step took, as a multiple of the later ones.

    Args:
        durations: The durations of the steps in order of time, at least two.
    """
    usual_ns = float(np.median(durations[1:]))
    if not usual_ns:
        return "because the median of the others is 0"
    return f"{durations[0] / usual_ns:.1f} times as long as the median of the others"
