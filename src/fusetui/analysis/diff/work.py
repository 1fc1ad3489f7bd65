"""The work in the steps of a trace."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from fusetui.analysis.diff.windows import (
    Windows,
    in_time_of_gpu,
    whole_trace,
    windows,
    without_odd,
)
from fusetui.analysis.questions.busy import any_busy_ns, communicates
from fusetui.analysis.questions.computing import computing_ops
from fusetui.analysis.questions.launches import LAUNCHES, graph_calls
from fusetui.text.figures import count, plural
from fusetui.trace.model.arrays import Flags, Int64s, Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace


class Work(msgspec.Struct, frozen=True, eq=False):
    """Every piece of work in the windows that are compared, sorted by (window, lane,
    start); arrays of shape [pieces]. A lane is a stream, or a CPU thread in traces
    without a GPU."""

    trace: Trace
    label: str  # the name of the trace in notes
    gpu: bool  # pieces are GPU events; else CPU ops that compute something
    windows: Windows
    row: Rows  # of the event
    window_of_piece: Rows  # the number of its window, ascending
    lane: Rows
    op: Rows  # the row of the innermost CPU op, -1 for none
    ns: Int64s  # its duration
    places: tuple[int, ...]  # of each window among all of the trace, from 0
    windows_in_trace: int  # how many these are

    def only(self, kept_windows: Sequence[int]) -> Work:
        """The work of some of its windows, with a note that the others were left out as
        on the other side."""
        if len(kept_windows) == len(self.windows):
            return self
        window = _renumbered(self.window_of_piece, kept_windows, len(self.windows))
        is_kept = window >= 0
        left_out = plural(len(self.windows) - len(kept_windows), "step")
        note = f"{self.label}: {left_out} left out, to match the other side"
        return msgspec.structs.replace(
            self,
            windows=self.windows.only(np.array(kept_windows, dtype=np.intp), note),
            row=self.row[is_kept],
            window_of_piece=window[is_kept],
            lane=self.lane[is_kept],
            op=self.op[is_kept],
            ns=self.ns[is_kept],
            places=tuple(self.places[number] for number in kept_windows),
        )

    def with_lanes(self, lane: Rows) -> Work:
        """The same pieces on other lanes, sorted anew; `lane` has the shape
        [pieces]."""
        place_in_file = self.trace.order[self.row]
        start = self.trace.start[self.row]
        order = np.lexsort((place_in_file, start, lane, self.window_of_piece))
        return msgspec.structs.replace(
            self,
            row=self.row[order],
            window_of_piece=self.window_of_piece[order],
            lane=lane[order],
            op=self.op[order],
            ns=self.ns[order],
        )

    def slice_of_window(self, number: int) -> slice:
        """The pieces of the window with this number, as a slice of the arrays."""
        first, last = np.searchsorted(self.window_of_piece, [number, number + 1])
        return slice(int(first), int(last))


def _renumbered(numbers: Rows, kept: Rows | Sequence[int], windows: int) -> Rows:
    """Numbers of windows (-1 for none) as places among the windows that are kept, -1
    for the others and for none. There are `windows` in all."""
    places = np.full(windows + 1, -1, dtype=np.intp)  # the last one is that of -1
    places[kept] = np.arange(len(kept))
    return places[numbers]


class WorkOfBothSides(msgspec.Struct, frozen=True, eq=False):
    """The work of two traces in the steps that are compared."""

    a: Work
    b: Work


def with_common_steps(a: Work, b: Work) -> WorkOfBothSides:
    """Both sides with only the steps that both use, if the traces have equally many
    steps in all and some of them are common: a step that the other side left out has no
    counterpart. Else both as they are."""
    common = {*a.places} & {*b.places}
    if a.windows_in_trace != b.windows_in_trace or not common:
        return WorkOfBothSides(a=a, b=b)
    only_a = a.only(_numbers_of_places(a, common))
    only_b = b.only(_numbers_of_places(b, common))
    return WorkOfBothSides(a=only_a, b=only_b)


def _numbers_of_places(work: Work, places: set[int]) -> list[int]:
    """The numbers of the windows of a side that are at these places among all steps of
    its trace."""
    return [number for number, place in enumerate(work.places) if place in places]


def work_of(
    trace: Trace, label: str, step_by: str | None = None, *, by_ops: bool = False
) -> Work:
    """The work of a trace in its steps; `label` is its name in notes. The whole trace is
    one step if no GPU event lies in the steps that were found.

    `step_by`: annotations that are the steps (see `windows`); raises NoStepsError if
    the trace has none. `by_ops`: the work is CPU ops that compute something, even if
    there are GPU events.
    """
    gpu = len(trace.gpu_rows) > 0 and not by_ops
    steps = windows(trace, label, step_by)
    if gpu:
        steps = in_time_of_gpu(trace, label, steps)
    work = _in_windows(trace, label, steps, gpu)
    if len(work.row) or steps.named or steps.whole or not gpu:
        return work
    # all GPU events lie outside of the steps
    return _in_windows(trace, label, whole_trace(trace, label), gpu)


def lacks_gpu_events(trace: Trace) -> bool:
    """Whether the trace has calls that launch GPU work, but no GPU event."""
    if len(trace.gpu_rows):
        return False
    return len(trace.rows_named(LAUNCHES.search, Role.CALL)) > 0


def _in_windows(trace: Trace, label: str, steps: Windows, gpu: bool) -> Work:
    """The work of these steps, without steps that were cut off or are cold
    (`without_odd`)."""
    placed = _placed(trace, steps, gpu)
    note = ""
    if gpu and not steps.whole:
        note = _left_out(trace, placed.step, steps.of_gpu)
    if note:
        notes = (*steps.notes, f"{label}: {note}")
        steps = msgspec.structs.replace(steps, notes=notes)
    pieces = np.bincount(placed.step[placed.step >= 0], minlength=len(steps))
    used = without_odd(steps, pieces, label)
    kept = np.searchsorted(steps.start, used.start)
    window_of_row = _renumbered(placed.step, kept, len(steps))
    rows = placed.rows[window_of_row >= 0]
    window = window_of_row[window_of_row >= 0]
    lane = trace.thread_of_track[trace.track[rows]].astype(np.intp)
    order = np.lexsort((trace.order[rows], trace.start[rows], lane, window))
    rows = rows[order]
    return Work(
        trace=trace,
        label=label,
        gpu=gpu,
        windows=used,
        row=rows,
        window_of_piece=window[order],
        lane=lane[order],
        op=trace.op[rows].astype(np.intp) if gpu else rows,
        ns=trace.dur[rows],
        places=tuple(kept.tolist()),
        windows_in_trace=len(steps),
    )


class _Placed(msgspec.Struct, frozen=True, eq=False):
    """Pieces of work; arrays of shape [pieces]."""

    rows: Rows
    step: Rows  # the number of the step that each belongs to, -1 for none


def _placed(trace: Trace, steps: Windows, gpu: bool) -> _Placed:
    """All work of a trace with its steps. A GPU event belongs to the step in which it
    was launched, or, in steps of the GPU's time, to that in which it begins; a CPU op
    to that in which it begins."""
    rows = trace.gpu_rows if gpu else computing_ops(trace)
    if steps.whole:
        return _Placed(rows=rows, step=np.zeros(len(rows), dtype=np.intp))
    placed_by = rows  # the rows whose start says to which step each of `rows` belongs
    if gpu and not steps.of_gpu:
        rows = rows[trace.launch[rows] >= 0]
        placed_by = trace.launch[rows].astype(np.intp)
    return _Placed(rows=rows, step=steps.step_of_calls(trace.start[placed_by]))


def _left_out(trace: Trace, step_of_row: Rows, of_gpu: bool) -> str:
    """`12 of 2,000 GPU events belong to no step, because ...`; "" for none.

    Where steps are of the GPU's time (`of_gpu`), these are the rows whose `step_of_row`
    is -1. Else they are the GPU events whose launch was not recorded, which belong to no
    step wherever they ran; what was launched between steps is not counted.
    """
    if of_gpu:
        left_out = int((step_of_row < 0).sum())
        why = "lie outside the passes of the model"
    else:
        left_out = int((trace.launch[trace.gpu_rows] < 0).sum())
        why = "belong to no step, because their launch was not recorded"
    if not left_out:
        return ""
    return f"{count(left_out)} of {count(len(trace.gpu_rows))} GPU events {why}"


def is_launched_by_graph(work: Work, rows: Rows) -> Flags:
    """Whether the launch of a graph launched each of these rows; shape [rows]."""
    if not work.gpu:
        return np.zeros(len(rows), dtype=np.bool_)
    launch = work.trace.launch[rows]
    return np.asarray((launch >= 0) & graph_calls(work.trace)[launch])


def hidden_behind_compute(trace: Trace, rows: Rows) -> Int64s:
    """How long any kernel computes during each GPU event (ns), in the shape of `rows`; 0
    for events that are such kernels themselves. Communication does not compute."""
    kernels = trace.rows_of(Role.KERNEL)
    kernels = kernels[~communicates(trace, kernels)]
    computes = np.zeros(len(trace), dtype=np.bool_)
    computes[kernels] = True
    if computes[rows].all():
        return np.zeros(rows.shape, dtype=np.int64)
    flat = rows.ravel()
    behind_ns = any_busy_ns(trace, kernels, trace.start[flat], trace.end[flat])
    return np.where(computes[flat], 0, behind_ns).reshape(rows.shape)
