"""The stretches of time of a trace that are compared: its steps, or all of it as one step."""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui.analysis.serving.passes import interval_of, passes
from fusetui.analysis.serving.steps import server_steps
from fusetui.text.figures import plural
from fusetui.trace.layout.steps import MOST, PROFILED, Steps, place_in, steps_of
from fusetui.trace.model.arrays import Int64s, Rows
from fusetui.trace.model.categories import GPU_ROLES, Role
from fusetui.trace.model.columns import Trace

NO_TIME = "since the others take no time at the median"
COLD = 1.5  # a first step longer than this times the median of the others is a warm-up


class Windows(msgspec.Struct, frozen=True, eq=False):
    """Disjoint stretches [start, end) in order of time (ns), and how they were found."""

    start: Int64s
    end: Int64s
    whole: bool = False  # the trace has no steps: one window holds all of its work
    of_gpu: bool = False  # stretches of a GPU's time: work belongs to that in which it ran
    notes: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()  # the number of each, `#k` where the trace prints none
    places: tuple[int, ...] = ()  # of each among all that were found, from 0; () where all are used
    found: int = 0  # how many these are; 0 where all are used

    def __len__(self) -> int:
        return len(self.start)

    @property
    def dur(self) -> Int64s:
        return self.end - self.start

    def only(self, keep: NDArray[np.integer], note: str) -> Windows:
        """Those kept, and why the others were not."""
        left = np.arange(len(self))[keep].tolist()
        return replace(
            self,
            start=self.start[keep],
            end=self.end[keep],
            notes=(*self.notes, note) if note else self.notes,
            labels=tuple(self.labels[n] for n in left),
            places=tuple(self.all_places[n] for n in left),
            found=self.all_found,
        )

    @property
    def all_places(self) -> tuple[int, ...]:
        return self.places if self.found else tuple(range(len(self)))

    @property
    def all_found(self) -> int:
        return self.found or len(self)

    def index_of(self, times: Int64s) -> Rows:
        """The window that each time lies in, -1 for none."""
        return place_in(self.start, self.end, times)


class NoStepsError(ValueError):
    """No annotation of a trace matches what was asked for."""


def windows(trace: Trace, label: str, step_by: str | None = None) -> Windows:
    """The steps of the trace, of a server each pass of its model; without any, everything.

    `step_by`: the annotations that match it instead (see `steps_of`); NoStepsError if none does.
    """
    steps = steps_of(trace, step_by)
    if step_by is not None and not len(steps):
        raise NoStepsError(f"{label} has no annotation like {step_by}.")
    named = step_by is not None or steps.by == PROFILED
    passes_ = None if named else _served(trace, label)
    if passes_ is not None:
        return passes_
    if not len(steps):
        return _whole(trace, label)
    what = f"the time {steps.by}" if steps.are_iterations else f"each `{steps.by}`"
    note = f"{label}: no ProfilerStep; {what} is taken as a step"
    notes = () if named else (note,)
    return Windows(steps.start, steps.end, notes=notes, labels=_labels(steps))


def _labels(steps: Steps) -> tuple[str, ...]:
    return tuple(f"{n}" if steps.printed else f"#{n}" for n in steps.numbers)


def _served(trace: Trace, label: str) -> Windows | None:
    """From the first kernel of each pass of the model to that of the next, so that a step is what a
    token costs; the last pass, whose next is not there, only if it is the only one. None unless
    they hold most of the GPU's time."""
    if not len(server_steps(trace)):
        return None
    ran = [interval_of(trace, one.model) for one in passes(trace) if len(one.model)]
    begin = np.array([one.begin_ns for one in ran], dtype=np.int64)
    end = np.array([one.end_ns for one in ran], dtype=np.int64)
    if not len(ran) or (begin[1:] < end[:-1]).any():
        return None
    start, until = (begin, end) if len(ran) == 1 else (begin[:-1], begin[1:])
    what = "the pass of the model" if len(ran) == 1 else "each pass of the model, up to the next,"
    note = f"{label}: no ProfilerStep; {what} is taken as a step"
    labels = tuple(f"#{n}" for n in range(1, len(start) + 1))
    found = Windows(start, until, of_gpu=True, notes=(note,), labels=labels)
    rows = trace.gpu_rows[trace.start[trace.gpu_rows] < end[-1]]
    inside = found.index_of(trace.start[rows]) >= 0
    most = MOST * trace.dur[trace.gpu_rows].sum()
    return found if trace.dur[rows[inside]].sum() >= most else None


def without_odd(found: Windows, items: Int64s, label: str) -> Windows:
    """Leaves out steps that the profiler cut off, and cold first steps; `items` counts the work.

    Cut off: less than half as many items as the median step. Cold: the first of at least three
    steps, when it took more than 1.5 times the median of the others.
    """
    full = np.flatnonzero(2 * items >= np.median(items)) if len(items) else np.arange(0)
    if 0 < len(full) < len(found):
        cut = plural(len(found) - len(full), "step")
        found = found.only(full, f"{label}: {cut} left out, with less than half of the usual work")

    def usual(first: int) -> float:
        return float(np.median(found.dur[first + 1 :]))

    cold = 0
    while len(found) - cold >= 3 and found.dur[cold] > COLD * usual(cold):
        cold += 1
    if not cold:
        return found
    why = f"first {cold} steps left out as cold, each much longer than most of those after it"
    if cold == 1:
        times = f"{found.dur[0] / usual(0):.1f} times as long as" if usual(0) else ""
        longer = f"{times} the median of the others" if times else NO_TIME
        why = f"first step left out as cold, {longer}"
    return found.only(np.arange(cold, len(found)), f"{label}: {why}")


def _whole(trace: Trace, label: str) -> Windows:
    """From the first to the last op, runtime call or GPU event."""
    rows = trace.rows_of(Role.OP, Role.CALL, *GPU_ROLES)
    if not len(rows):
        nothing = np.zeros(0, dtype=np.int64)
        note = f"{label}: holds neither GPU events nor CPU ops"
        return Windows(nothing, nothing, whole=True, notes=(note,))
    note = (
        f"{label}: no steps found; the whole trace is taken as one step (--step-by PATTERN takes "
        "annotations as steps)"
    )
    start, end = trace.start[rows].min(), trace.end[rows].max()
    span = np.array([start]), np.array([max(end, start + 1)])
    return Windows(*span, whole=True, notes=(note,), labels=("#1",))
