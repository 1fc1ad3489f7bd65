"""The steps of a trace that are compared, or all of it as one step."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui import Error
from fusetui.analysis.questions.server_steps import server_steps
from fusetui.analysis.serving.passes import interval_of, passes
from fusetui.text.figures import plural
from fusetui.trace.layout.steps import MIN_SHARE_OF_WORK, PROFILED, steps_of
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

LAST_NS = np.iinfo(np.int64).max


class Windows(msgspec.Struct, frozen=True, eq=False):
    """Disjoint stretches [start, end) in order of time (ns), and how they were
    found."""

    start: Int64s
    end: Int64s
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
        notes = (f"{label}: no ProfilerStep; {what} is taken as a step",)
    labels = tuple(
        f"{number}" if steps.printed else f"#{number}" for number in steps.numbers
    )
    return Windows(
        start=steps.start, end=steps.end, named=named, notes=notes, labels=labels
    )


def _passes_of_server(trace: Trace, label: str) -> Windows | None:
    """From the first kernel of each pass of the model to that of the next, so that a
    step is what a token costs; the last pass, whose next is not there, only if it is
    the only one: then up to the end of all that its step launched, the LM head after a
    graph included. None unless they hold most of the GPU's time, the last pass aside."""
    if not server_steps(trace).asked:
        return None
    with_model = [each for each in passes(trace) if len(each.model)]
    if not with_model:
        return None
    intervals = [interval_of(trace, each.model) for each in with_model]
    begin = np.array([interval.begin_ns for interval in intervals], dtype=np.int64)
    end = np.array([interval.end_ns for interval in intervals], dtype=np.int64)
    if (begin[1:] < end[:-1]).any():
        return None
    if len(with_model) == 1:
        what = "the pass of the model, with all that follows in its step,"
        until_ns = interval_of(trace, with_model[0].rows).end_ns
        until = end = np.array([until_ns], dtype=np.int64)
    else:
        what = "each pass of the model, up to the next,"
        begin, until = begin[:-1], begin[1:]
    of_server = Windows(
        start=begin,
        end=until,
        of_gpu=True,
        notes=(f"{label}: no ProfilerStep; {what} is taken as a step",),
        labels=tuple(f"#{number}" for number in range(1, len(begin) + 1)),
    )
    return of_server if _hold_most(trace, of_server, before_ns=int(end[-1])) else None


def _hold_most(trace: Trace, windows: Windows, *, before_ns: int) -> bool:
    """Whether windows hold most of the GPU's time. What begins after the last of them and
    before `before_ns`, the pass whose next was not recorded, counts on neither side."""
    rows = trace.gpu_rows
    start = trace.start[rows]
    dur_ns = trace.dur[rows]
    is_early = start < before_ns
    is_inside = is_early & (windows.index_of(start) >= 0)
    is_last_pass = is_early & (start >= windows.end[-1])
    counted_ns = dur_ns[~is_last_pass].sum()
    return bool(dur_ns[is_inside].sum() >= MIN_SHARE_OF_WORK * counted_ns)


def whole_trace(trace: Trace, label: str) -> Windows:
    """From the first to the last op, runtime call or GPU event."""
    rows = trace.rows_of(Role.OP, Role.CALL, *GPU_ROLES)
    if not len(rows):
        note = f"{label}: holds neither GPU events nor CPU ops"
        nothing = np.zeros(0, dtype=np.int64)
        return Windows(start=nothing, end=nothing, whole=True, notes=(note,))
    start, end = trace.start[rows].min(), trace.end[rows].max()
    remedy = "--step-by PATTERN takes annotations as steps"
    note = f"{label}: no steps found; the whole trace is taken as one step ({remedy})"
    return Windows(
        start=np.array([start]),
        end=np.array([max(end, start + 1)]),
        whole=True,
        notes=(note,),
        labels=("#1",),
    )


def in_time_of_gpu(trace: Trace, label: str, steps: Windows) -> Windows:
    """The same steps in the time of the GPU where they only enqueue its work, so that
    their lengths are those of launching it.

    Each is then from the first start of what it launched to that of the next; the last
    one, whose next is not there, only if it is the only one: then up to the end of all
    that it launched. As they are where the GPU runs the steps in another order.
    """
    if steps.whole or steps.of_gpu:
        return steps
    rows = trace.gpu_rows[trace.launch[trace.gpu_rows] >= 0]
    step_of_row = steps.index_of(trace.start[trace.launch[rows]])
    is_in_step = step_of_row >= 0
    rows, step_of_row = rows[is_in_step], step_of_row[is_in_step]
    launching = np.unique(step_of_row)
    if not len(launching) or not _only_enqueue(trace, steps, rows, step_of_row):
        return steps
    begin = np.full(len(steps), LAST_NS)
    end = np.full(len(steps), -LAST_NS)
    np.minimum.at(begin, step_of_row, trace.start[rows])
    np.maximum.at(end, step_of_row, trace.end[rows])
    begin, end = begin[launching], end[launching]
    if (np.diff(begin) <= 0).any():
        return steps
    if len(launching) > 1:
        launching, begin, end = launching[:-1], begin[:-1], begin[1:]
    what = "the GPU runs what its steps launch after they have ended"
    note = f"{label}: {what}; a step is from the first GPU event of one to that of the next"
    kept = steps.only(launching, note)
    return msgspec.structs.replace(
        kept,
        start=begin,
        end=end,
        launching=Cover(start=kept.start, end=kept.end),
    )


def _only_enqueue(trace: Trace, steps: Windows, rows: Rows, step_of_row: Rows) -> bool:
    """Whether hardly any work runs before the end of the step that launched it. Of
    several steps the first one does not count, in which the GPU had nothing to do
    yet."""
    is_later = step_of_row > step_of_row.min()
    if is_later.any():
        rows, step_of_row = rows[is_later], step_of_row[is_later]
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
    note = f"{label}: {cut_off} left out, with less than half of the usual work"
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
