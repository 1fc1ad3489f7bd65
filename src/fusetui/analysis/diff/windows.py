"""The steps of a trace that are compared, or all of it as one step."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui import Error
from fusetui.analysis.questions.server_steps import server_steps
from fusetui.analysis.serving.passes import Pass, busy_interval, passes
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
from fusetui.trace.model.arrays import Flags, Int64s, Rows
from fusetui.trace.model.categories import GPU_ROLES, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import Cover

MAX_SHARE_IN_ENQUEUING_STEPS = 0.01
"""Steps only enqueue work of which no larger share of the time runs before they end."""

MIN_STEPS_WITH_COLD = 3
"""Fewer steps do not tell whether the first one is cold."""

MIN_RATIO_OF_COLD = 1.5
"""A first step longer than this times the median of the others is a warm-up."""


class Windows(msgspec.Struct, frozen=True, eq=False):
    """Disjoint stretches [start, end) in order of time (ns), and how they were
    found."""

    start: Int64s
    end: Int64s
    length: StepLength  # what the length of each is
    whole: bool = False  # the trace has no steps: one window holds all of its work
    named: bool = False  # the file or the user says what a step is
    # stretches of a GPU's time: work belongs to that in which it ran
    of_gpu: bool = False
    # when the CPU launched their work, where that is other time than that of the steps
    launching: Cover | None = None
    notes: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()  # the number of each, `#k` where the trace prints none

    def __len__(self) -> int:
        return len(self.start)

    @property
    def dur(self) -> Int64s:
        """The length of each (ns), which is what `length` says."""
        return self.end - self.start

    def only(self, keep: NDArray[np.integer], note: str) -> Windows:
        """The windows with the numbers `keep`, ascending; `note` says why the others are
        left out."""
        launching = self.launching
        if launching is not None:
            launching = Cover(start=launching.start[keep], end=launching.end[keep])
        return msgspec.structs.replace(
            self,
            start=self.start[keep],
            end=self.end[keep],
            launching=launching,
            notes=(*self.notes, note) if note else self.notes,
            labels=tuple(self.labels[n] for n in keep.tolist()),
        )

    def index_of(self, times: Int64s) -> Rows:
        """The number of the window that each time (ns) lies in, -1 for none."""
        return Cover(self.start, self.end).place_of(times)

    def step_of_calls(self, times: Int64s) -> Rows:
        """The number of the step to which calls at these times of the CPU (ns) belong,
        -1 for none."""
        if self.launching is not None:
            return self.launching.place_of(times)
        return self.index_of(times)


class NoStepsError(Error):
    """No annotation of a trace matches what was asked for."""


def windows(trace: Trace, label: str, step_by: str | None = None) -> Windows:
    """The steps of a trace: those that the file names or, in a trace of a server, the
    passes of its model, else those that were found in it. The whole trace is one step
    where there are none. `label` is the name of the trace in notes.

    `step_by`: the annotations that match it are the steps instead (see `steps_of`);
    raises NoStepsError if none does.
    """
    steps = steps_of(trace, step_by)
    if step_by is not None and not len(steps):
        raise NoStepsError(f"{label} has no annotation like {step_by}.")
    named = step_by is not None or steps.by == PROFILED
    if not named:
        of_server = _passes_of_server(trace, label)
        if of_server is not None:
            return of_server
    if not len(steps):
        return whole_trace(trace, label)
    notes: tuple[str, ...] = ()
    if not named:
        what = f"the time {steps.by}" if steps.are_iterations else f"each `{steps.by}`"
        notes = (_note_of_steps(label, what),)
    prefix = "" if steps.printed else "#"
    return Windows(
        start=steps.start,
        end=steps.end,
        length=StepLength.WALL,
        named=named,
        notes=notes,
        labels=tuple(f"{prefix}{number}" for number in steps.numbers),
    )


def _note_of_steps(label: str, what: str) -> str:
    """What the steps of a trace are, which the file does not name."""
    return f"{label}: no ProfilerStep; {what} is taken as a step"


def _passes_of_server(trace: Trace, label: str) -> Windows | None:
    """The steps of a server that run a model, so that a step is what a token costs.

    A single one begins with its pass of the model, and ends with all that its step
    launched, the LM head after a graph included. Of several each is as long as
    `step_launched` says, but for the first one, before which none ended. None unless
    they hold most of the GPU's time, the first one aside, or if passes overlap.
    """
    if not server_steps(trace).asked:
        return None
    with_model = [each for each in passes(trace) if len(each.model)]
    if not with_model or _do_overlap(trace, with_model):
        return None
    if len(with_model) == 1:
        of_server = _single_pass(trace, label, with_model[0])
        counts_from_ns = 0
    else:
        of_server = _several_passes(trace, label, with_model)
        counts_from_ns = int(of_server.start[0])
    return of_server if _hold_most(trace, of_server, counts_from_ns) else None


def _do_overlap(trace: Trace, steps: Sequence[Pass]) -> bool:
    """Whether the pass of the model of a step begins before that of the one before has
    ended."""
    model_passes = [model_pass(trace, step.model) for step in steps]
    pairs = pairwise(model_passes)
    return any(later.begin_ns < earlier.end_ns for earlier, later in pairs)


def _single_pass(trace: Trace, label: str, step: Pass) -> Windows:
    """The only step of a server as a window, from the begin of its pass of the model."""
    begin_ns = model_pass(trace, step.model).begin_ns
    end_ns = busy_interval(trace, step.rows).end_ns
    what = "the pass of the model, with all that follows in its step,"
    return Windows(
        start=np.array([begin_ns], dtype=np.int64),
        end=np.array([end_ns], dtype=np.int64),
        length=StepLength.SPAN,
        of_gpu=True,
        notes=(_note_of_steps(label, what),),
        labels=("#1",),
    )


def _several_passes(trace: Trace, label: str, steps: Sequence[Pass]) -> Windows:
    """The steps of a server but for the first one, as windows. `steps`: those that run
    a model."""
    launched = [step.rows for step in steps]
    wall_ends = [step.start_ns + step.dur_ns for step in steps]
    launched_by_step = [len(rows) for rows in launched]
    bounds = launched_bounds(
        wall_bounds=np.array([steps[0].start_ns, *wall_ends], dtype=np.int64),
        work_end=trace.end[np.concatenate(launched)],
        step_of_work=np.repeat(np.arange(len(steps)), launched_by_step),
    )
    what = "each step with a pass of the model, from the end of the one before,"
    return Windows(
        start=bounds[1:-1],
        end=bounds[2:],
        length=StepLength.LAUNCHED,
        of_gpu=True,
        notes=(_note_of_steps(label, what),),
        labels=tuple(f"#{number}" for number in range(2, len(steps) + 1)),
    )


def _hold_most(trace: Trace, windows: Windows, counts_from_ns: int) -> bool:
    """Whether windows hold most of the GPU's time. What begins before `counts_from_ns`,
    when the first step has ended, counts on neither side."""
    rows = trace.gpu_rows
    rows = rows[trace.start[rows] >= counts_from_ns]
    dur_ns = trace.dur[rows]
    is_inside = windows.index_of(trace.start[rows]) >= 0
    return bool(dur_ns[is_inside].sum() >= MIN_SHARE_OF_WORK * dur_ns.sum())


def whole_trace(trace: Trace, label: str) -> Windows:
    """The whole trace as one step, from the first to the last op, runtime call or GPU
    event; no window without any. `label`: the name of the trace in notes."""
    rows = trace.rows_of(Role.OP, Role.CALL, *GPU_ROLES)
    if not len(rows):
        no_times = np.zeros(0, dtype=np.int64)
        return Windows(
            start=no_times,
            end=no_times,
            length=StepLength.SPAN,
            whole=True,
            notes=(f"{label}: holds neither GPU events nor CPU ops",),
        )
    start = trace.start[rows].min()
    end = trace.end[rows].max()
    remedy = "--step-by PATTERN takes annotations as steps"
    note = f"{label}: no steps found; the whole trace counts as one step ({remedy})"
    return Windows(
        start=np.array([start]),
        end=np.array([max(end, start + 1)]),
        length=StepLength.SPAN,
        whole=True,
        notes=(note,),
        labels=("#1",),
    )


def in_time_of_gpu(trace: Trace, label: str, steps: Windows) -> Windows:
    """The same steps by `step_launched` where they only enqueue work, so that their
    wall times are those of launching it.

    The first one, before which none ended, is left out unless it is the only one. The
    steps stay as they are where the GPU runs them in another order.
    """
    if steps.whole or steps.of_gpu:
        return steps
    rows, called_ns = by_launch_time(trace)
    step_of_row = steps.index_of(called_ns)
    rows = rows[step_of_row >= 0]
    step_of_row = step_of_row[step_of_row >= 0]
    launching, launching_of_row = np.unique(step_of_row, return_inverse=True)
    if not len(launching) or not _only_enqueue(trace, steps, rows, step_of_row):
        return steps
    if not _run_in_order(trace, rows, launching_of_row):
        return steps
    bounds = launched_bounds(
        wall_bounds=np.append(steps.start[launching[:1]], steps.end[launching]),
        work_end=trace.end[rows],
        step_of_work=launching_of_row,
    )
    first = 1 if len(launching) > 1 else 0
    what = "the GPU runs the work of a step after the step has ended"
    until = "from the end of the previous step's work to the end of its own"
    note = f"{label}: {what}; a step (launched) is {until}"
    kept = steps.only(launching[first:], note)
    return msgspec.structs.replace(
        kept,
        start=bounds[:-1][first:],
        end=bounds[1:][first:],
        length=StepLength.LAUNCHED,
        launching=Cover(start=kept.start, end=kept.end),
    )


def _run_in_order(trace: Trace, rows: Rows, step_of_row: Rows) -> bool:
    """Whether the GPU begins the work of each step after that of the step before;
    `step_of_row` holds 0, 1, ... in the order of the rows, without a hole."""
    by_step = np.flatnonzero(np.diff(step_of_row, prepend=-1))
    first_start = np.minimum.reduceat(trace.start[rows], by_step)
    return bool((np.diff(first_start) > 0).all())


def _only_enqueue(trace: Trace, steps: Windows, rows: Rows, step_of_row: Rows) -> bool:
    """Whether hardly any work runs before the end of the step that launched it. Of
    several steps the first one does not count, in which the GPU had nothing to do
    yet."""
    is_later = step_of_row > step_of_row.min()
    if is_later.any():
        rows = rows[is_later]
        step_of_row = step_of_row[is_later]
    last_inside_ns = np.minimum(trace.end[rows], steps.end[step_of_row])
    inside_ns = np.maximum(last_inside_ns - trace.start[rows], 0).sum()
    share = inside_ns / max(1, int(trace.dur[rows].sum()))
    return bool(share <= MAX_SHARE_IN_ENQUEUING_STEPS)


def without_odd(steps: Windows, pieces: Int64s, label: str) -> Windows:
    """The steps without those that the profiler cut off, then without cold first steps.
    `pieces`: how many pieces of work each step has; shape [steps].

    Cut off: less than half as many pieces as the median step has. Cold: one first step
    after the other, as long as it took more than MIN_RATIO_OF_COLD times the median of
    those after it and MIN_STEPS_WITH_COLD steps remain, itself included.
    """
    return _without_cold(_without_cut_off(steps, pieces, label), label)


def _without_cut_off(steps: Windows, pieces: Int64s, label: str) -> Windows:
    """See `without_odd`."""
    if not len(pieces):
        return steps
    is_complete: Flags = 2 * pieces >= np.median(pieces)
    complete = np.flatnonzero(is_complete)
    if not 0 < len(complete) < len(steps):
        return steps
    cut_off = plural(len(steps) - len(complete), "step")
    note = f"{label}: {cut_off} with less than half of the usual work left out"
    return steps.only(complete, note)


def _without_cold(steps: Windows, label: str) -> Windows:
    """See `without_odd`."""
    durations = steps.dur
    cold = 0
    while len(durations) - cold >= MIN_STEPS_WITH_COLD:
        usual_ns = np.median(durations[cold + 1 :])
        if durations[cold] <= MIN_RATIO_OF_COLD * usual_ns:
            break
        cold += 1
    if not cold:
        return steps
    if cold == 1:
        why = f"first step left out as cold, {_ratio_of_first(durations)}"
    else:
        longer = "each much longer than most of those after it"
        why = f"first {cold} steps left out as cold, {longer}"
    return steps.only(np.arange(cold, len(durations)), f"{label}: {why}")


def _ratio_of_first(durations: Int64s) -> str:
    """`3.2 times as long as the median of the others`, of the first step."""
    usual_ns = float(np.median(durations[1:]))
    if not usual_ns:
        return "since the others take no time at the median"
    return f"{durations[0] / usual_ns:.1f} times as long as the median of the others"
