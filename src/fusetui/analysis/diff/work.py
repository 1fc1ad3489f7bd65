"""Collects the pieces of work in the steps of a trace.

A *piece* is one GPU event or, in a trace without a GPU, one CPU op that computes
something. A *lane* is a stream or a CPU thread.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from fusetui.analysis.diff.windows import (
    TraceSteps,
    exclude_unusual_steps,
    find_steps,
    make_single_step,
    measure_steps_on_gpu,
)
from fusetui.analysis.questions.busy import communicates, measure_any_busy_ns
from fusetui.analysis.questions.computing import find_computing_ops
from fusetui.analysis.questions.launches import LAUNCHES, mark_graph_calls
from fusetui.text.figures import count, plural
from fusetui.trace.model.arrays import NO_ROW, Flags, Int64s, Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.sorted_arrays import positions_of, slice_between

NO_STEP = -1
"""The index of the step of what belongs to no step."""


class Work(msgspec.Struct, frozen=True, eq=False):
    """Every piece of work in the steps of a trace that are compared.

    Pieces are sorted by step, then by lane, then by start. Arrays have one entry per
    piece.
    """

    trace: Trace
    label: str  # the name of the trace in notes
    gpu: bool  # pieces are GPU events; else CPU ops that compute something
    steps: TraceSteps  # the steps
    row: Rows  # row of the event in the trace
    step_of_piece: Rows  # the index of its step
    lane: Rows
    op: Rows  # row of the innermost CPU op around the launch, NO_ROW for none
    ns: Int64s  # the duration
    # Of each step, its position among all steps of the trace, used or not.
    positions_in_trace: tuple[int, ...]
    steps_in_trace: int  # how many steps the trace has, used or not

    def keep_steps(self, steps: Sequence[int]) -> Work:
        """Return the work of some of the steps; a note says that others are excluded.

        If all steps are kept, it is the same object, without a note. `steps` are the
        indices of the steps to keep, ascending.
        """
        if len(steps) == len(self.steps):
            return self

        step_of_piece = _renumber_steps(self.step_of_piece, steps, len(self.steps))
        is_kept = step_of_piece != NO_STEP
        left_out = plural(len(self.steps) - len(steps), "step")
        note = f"{self.label}: {left_out} excluded to match the other trace"
        return msgspec.structs.replace(
            self,
            steps=self.steps.select(np.array(steps, dtype=np.intp), note),
            row=self.row[is_kept],
            step_of_piece=step_of_piece[is_kept],
            lane=self.lane[is_kept],
            op=self.op[is_kept],
            ns=self.ns[is_kept],
            positions_in_trace=tuple(self.positions_in_trace[step] for step in steps),
        )

    def with_lanes(self, lane: Rows) -> Work:
        """Return the same work on other lanes (streams), sorted anew.

        Args:
            lane: The new lane of each kernel or copy.
        """
        position_in_file = self.trace.order[self.row]
        start = self.trace.start[self.row]
        # np.lexsort sorts by its last key first.
        order = np.lexsort((position_in_file, start, lane, self.step_of_piece))
        return msgspec.structs.replace(
            self,
            row=self.row[order],
            step_of_piece=self.step_of_piece[order],
            lane=lane[order],
            op=self.op[order],
            ns=self.ns[order],
        )

    def slice_of_step(self, step: int) -> slice:
        """Return the pieces of the step with this index, as a slice of the arrays."""
        return slice_between(self.step_of_piece, step, step + 1)


def _renumber_steps(
    step_indices: Rows, kept_steps: Rows | Sequence[int], steps: int
) -> Rows:
    """Turn indices of steps into indices among the steps that are kept.

    >>> _renumber_steps(np.array([0, 1, 2, NO_STEP]), [1, 2], steps=3).tolist()
    [-1, 0, 1, -1]

    Args:
        step_indices: Indices among all steps, NO_STEP for none.
        kept_steps: The indices of the steps that are kept, ascending.
        steps: How many steps there are in all.

    Returns:
        Indices among the kept steps; NO_STEP for other steps and for none.
    """
    # One entry more than there are steps: the last one is that of index -1, NO_STEP.
    new_index = np.full(steps + 1, NO_STEP, dtype=np.intp)
    new_index[kept_steps] = np.arange(len(kept_steps))
    return new_index[step_indices]


class WorkOfBothSides(msgspec.Struct, frozen=True, eq=False):
    """The work of two traces in the steps that are compared."""

    a: Work
    b: Work


def keep_common_steps(a: Work, b: Work) -> WorkOfBothSides:
    """Leave out the steps that only one of two traces uses.

    A step that the other trace left out, as warm-up for example, has no counterpart. If
    the traces do not have equally many steps in all, or use none in common, both stay
    as they are.
    """
    common = set(a.positions_in_trace) & set(b.positions_in_trace)
    if a.steps_in_trace != b.steps_in_trace or not common:
        return WorkOfBothSides(a=a, b=b)
    return WorkOfBothSides(
        a=a.keep_steps(_find_steps_at_positions(a, common)),
        b=b.keep_steps(_find_steps_at_positions(b, common)),
    )


def _find_steps_at_positions(work: Work, positions: set[int]) -> list[int]:
    """Return the indices of the steps that have these positions in their trace."""
    return [
        step
        for step, position in enumerate(work.positions_in_trace)
        if position in positions
    ]


def collect_work(
    trace: Trace, label: str, step_by: str | None = None, *, by_ops: bool = False
) -> Work:
    """Collect the work of a trace by step: its GPU events, or the CPU ops that compute.

    If no GPU event lies in the steps that were found, the whole trace is one step.

    Args:
        trace: A trace.
        label: The name of the trace in notes.
        step_by: The annotations that match it are the steps; see `find_steps`.
        by_ops: Whether the work is CPU ops even if there are GPU events.

    Raises:
        NoStepsError: If no annotation matches `step_by`.
    """
    is_gpu_work = len(trace.gpu_rows) > 0 and not by_ops
    steps = find_steps(trace, label, step_by)
    if is_gpu_work:
        steps = measure_steps_on_gpu(trace, label, steps)

    work = _collect_work_in_steps(trace, label, steps, is_gpu_work)
    may_choose_steps = not steps.is_named and not steps.is_whole_trace
    if is_gpu_work and may_choose_steps and not len(work.row):
        # All GPU events lie outside of the steps that were found.
        single_step = make_single_step(trace, label)
        return _collect_work_in_steps(trace, label, single_step, is_gpu_work)
    return work


def lacks_gpu_events(trace: Trace) -> bool:
    """Return whether calls of the trace launch GPU work, but it has no GPU event."""
    if len(trace.gpu_rows):
        return False
    launch_calls = trace.rows_named(LAUNCHES.search, Role.CALL)
    return len(launch_calls) > 0


def _collect_work_in_steps(
    trace: Trace, label: str, steps: TraceSteps, gpu: bool
) -> Work:
    """Collect the work in these steps, but for those that are cut off or cold.

    A note of the steps tells how many GPU events belong to no step.

    Args:
        trace: A trace.
        label: The name of the trace in notes.
        steps: Its steps.
        gpu: Whether the work is GPU events; else CPU ops that compute something.
    """
    all_work = _assign_work_to_steps(trace, steps, gpu)
    if gpu and not steps.is_whole_trace:
        note = _describe_events_without_step(trace, all_work.step, steps.is_gpu_time)
        if note:
            notes = (*steps.notes, f"{label}: {note}")
            steps = msgspec.structs.replace(steps, notes=notes)

    has_step = all_work.step != NO_STEP
    pieces_by_step = np.bincount(all_work.step[has_step], minlength=len(steps))
    used_steps = exclude_unusual_steps(steps, pieces_by_step, label)
    positions_in_trace = positions_of(steps.start, used_steps.start)

    used_step_of_row = _renumber_steps(all_work.step, positions_in_trace, len(steps))
    is_used = used_step_of_row != NO_STEP
    rows = all_work.rows[is_used]
    lane = trace.thread_of_track[trace.track[rows]].astype(np.intp)
    unsorted_work = Work(
        trace=trace,
        label=label,
        gpu=gpu,
        steps=used_steps,
        row=rows,
        step_of_piece=used_step_of_row[is_used],
        lane=lane,
        op=trace.op[rows].astype(np.intp) if gpu else rows,
        ns=trace.dur[rows],
        positions_in_trace=tuple(positions_in_trace.tolist()),
        steps_in_trace=len(steps),
    )
    return unsorted_work.with_lanes(lane)


class _WorkWithSteps(msgspec.Struct, frozen=True, eq=False):
    """Pieces of work and the steps that they belong to."""

    rows: Rows  # rows of the trace, one per piece
    step: Rows  # the index of the step of each piece, NO_STEP for none


def _assign_work_to_steps(trace: Trace, steps: TraceSteps, gpu: bool) -> _WorkWithSteps:
    """Determine the step that each GPU event, or each CPU op that computes, belongs to.

    A GPU event belongs to the step in which it was launched. Where steps are measured
    on the GPU, it is the step in which the event begins. A CPU op belongs to the step
    in which it begins. GPU events whose launch was not recorded are left out.
    """
    rows = trace.gpu_rows if gpu else find_computing_ops(trace)
    if steps.is_whole_trace:
        return _WorkWithSteps(rows=rows, step=np.zeros(len(rows), dtype=np.intp))

    # The start of these rows says to which step each of `rows` belongs.
    deciding_rows = rows
    if gpu and not steps.is_gpu_time:
        rows = rows[trace.launch[rows] != NO_ROW]
        deciding_rows = trace.launch[rows].astype(np.intp)
    return _WorkWithSteps(
        rows=rows, step=steps.step_of_calls(trace.start[deciding_rows])
    )


def _describe_events_without_step(
    trace: Trace, step_of_row: Rows, is_gpu_time: bool
) -> str:
    """Say how many GPU events belong to no step, and why.

    Where steps are of the time of the GPU, these are the events outside of all steps.
    Else they are the events whose launch was not recorded, wherever they ran. What was
    launched between two steps is not counted.

    Args:
        trace: A trace.
        step_of_row: The index of the step of each GPU event, NO_STEP for none.
        is_gpu_time: Whether steps are of the time of the GPU.

    Returns:
        `12 of 2,000 GPU events are in no step, because ...`; "" for none.
    """
    if is_gpu_time:
        left_out = int((step_of_row == NO_STEP).sum())
        why = "outside the model passes"
    else:
        left_out = int((trace.launch[trace.gpu_rows] == NO_ROW).sum())
        launch = "its launch was" if left_out == 1 else "their launches were"
        why = f"in no step, because {launch} not recorded"
    if not left_out:
        return ""
    are = "is" if left_out == 1 else "are"
    return f"{count(left_out)} of {count(len(trace.gpu_rows))} GPU events {are} {why}"


def is_launched_by_graph(work: Work, rows: Rows) -> Flags:
    """Return for each row whether its event was launched by a CUDA graph.

    Args:
        work: The work of a trace; without GPU events, nothing was launched by a graph.
        rows: Rows of the trace.
    """
    if not work.gpu:
        return np.zeros(len(rows), dtype=np.bool_)
    launch = work.trace.launch[rows]
    has_launch = launch != NO_ROW
    is_graph_call = mark_graph_calls(work.trace)
    return np.asarray(has_launch & is_graph_call[launch])


def measure_hidden_time(trace: Trace, rows: Rows) -> Int64s:
    """Return for how long computing kernels run during each GPU event (ns).

    It is 0 for events that are computing kernels themselves. Kernels of communication
    do not count as computing.

    Args:
        trace: A trace.
        rows: Rows of GPU events, of any shape.

    Returns:
        Times in the shape of `rows`.
    """
    kernels = trace.rows_of(Role.KERNEL)
    computing_kernels = kernels[~communicates(trace, kernels)]
    computes = np.zeros(len(trace), dtype=np.bool_)
    computes[computing_kernels] = True
    hidden_ns = np.zeros(rows.shape, dtype=np.int64)
    is_other = ~computes[rows]
    if not is_other.any():
        return hidden_ns

    other_rows = rows[is_other]
    hidden_ns[is_other] = measure_any_busy_ns(
        trace, computing_kernels, trace.start[other_rows], trace.end[other_rows]
    )
    return hidden_ns
