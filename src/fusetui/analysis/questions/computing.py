"""Finds the CPU ops that compute something, which are the work in traces without a GPU;
and counts the kernels, or such ops, of each kind in a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.gpu.kinds import kinds_of
from fusetui.trace.layout.steps import labels_of, launched_in_steps, steps_of
from fusetui.trace.model.arrays import (
    NO_ROW,
    Flags,
    Int64s,
    Rows,
    distinct_rows,
    inside_ranges,
    prefix_sums,
)
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.op_names import HELPERS, WHOLE, is_frame, is_metadata, stem


def find_computing_ops(trace: Trace) -> Rows:
    """Find the CPU ops that correspond to a kernel each, as pieces of work.

    These are the innermost ops, but not views, allocations, and the frames of autograd
    and torch.compile. What an op calls to do its own work does not count beside it:
    neither a copy or fill, nor the out-of-place form of the same op (`aten::mul` inside
    `aten::mul_`). So `aten::linear` counts once, as the `aten::addmm` in it, which
    copies the bias itself.

    Returns:
        Rows of the trace, ascending. None of them lies inside another one.
    """
    may_compute = (trace.role == Role.OP) & _mark_names(trace, _may_compute)
    is_copy_or_fill = may_compute & _mark_names(trace, _is_copy_or_fill)
    is_helper = is_copy_or_fill | _mark_parts_of_in_place_ops(trace)
    is_main_op = may_compute & ~is_helper

    is_innermost = _count_inside(trace, may_compute) == 0
    calls_only_helpers = _count_inside(trace, is_main_op) == 0
    is_op_of_library = _mark_names(trace, _has_namespace)
    counts_as_whole = _mark_names(trace, _counts_as_whole)
    is_candidate = is_main_op & (
        counts_as_whole | is_innermost | (calls_only_helpers & is_op_of_library)
    )
    # Of candidates inside one another, the outer one counts.
    is_work = is_candidate & ~mark_inside(trace, np.flatnonzero(is_candidate))

    # A copy or fill that belongs to no other op is a piece of work itself.
    belongs_to_work = mark_inside(trace, np.flatnonzero(is_work))
    is_lone_copy_or_fill = is_copy_or_fill & is_innermost & ~belongs_to_work
    return np.flatnonzero(is_work | is_lone_copy_or_fill)


def _mark_names(trace: Trace, test: Callable[[str], bool]) -> Flags:
    """Mark the rows of the trace whose name passes a test."""
    return trace.named(test)[trace.name]


def _is_copy_or_fill(name: str) -> bool:
    """Return whether an op of this name copies or fills, such as `aten::copy_`."""
    return stem(name) in HELPERS


def _counts_as_whole(name: str) -> bool:
    """Return whether an op of this name is one piece of work, whatever it calls."""
    return stem(name) in WHOLE


def _has_namespace(name: str) -> bool:
    """Return whether a name is that of an op of a library, such as `aten::add`."""
    return "::" in name


def _may_compute(name: str) -> bool:
    """Return whether an op of this name is no view, allocation or frame."""
    return not (is_metadata(name) or is_frame(name))


def mark_inside(trace: Trace, rows: Rows) -> Flags:
    """Mark the slices that lie inside one of some slices, at any depth.

    E.g. the op and the call in a module, if the module is one of the slices.

    Args:
        trace: The trace.
        rows: The slices around them. They are marked themselves only if they lie inside
            another one.

    Returns:
        A flag for each row of the trace.
    """
    # The slices inside row n are those from n + 1 to before end_row[n].
    return inside_ranges(rows + 1, trace.end_row[rows], count=len(trace))


def _count_inside(trace: Trace, flags: Flags) -> NDArray[np.int64]:
    """Count for each slice the flagged slices inside it, at any depth.

    Args:
        trace: The trace.
        flags: A flag for each row of the trace. That of a slice itself does not count.
    """
    # The slices inside row n are those from n + 1 to before end_row[n].
    flagged_before: Int64s = prefix_sums(flags)
    return flagged_before[trace.end_row] - flagged_before[1:]


def _mark_parts_of_in_place_ops(trace: Trace) -> Flags:
    """Mark the ops that an in-place op calls to do its work, such as `aten::mul` inside
    `aten::mul_`.

    The op directly around them has the same name, apart from the underscore at the end.

    Returns:
        A flag for each row of the trace.
    """
    number_by_stem: dict[str, int] = {}
    stem_of_name = []
    for name in trace.names:
        next_number = len(number_by_stem)
        stem_of_name.append(number_by_stem.setdefault(stem(name), next_number))
    # At least one entry, because an empty array would be one of floats.
    stem_of_row = np.array(stem_of_name or [0])[trace.name]

    outer_op = np.where(trace.parent != NO_ROW, trace.op[trace.parent], NO_ROW)
    has_same_stem = stem_of_row[outer_op] == stem_of_row
    is_op = trace.role == Role.OP
    is_part: Flags = is_op & (outer_op != NO_ROW) & has_same_stem
    return is_part


class Tallies(msgspec.Struct, frozen=True):
    """How many kernels, or CPU ops, of each kind each step of a trace has."""

    steps: tuple[str, ...]  # the names of the steps; () for a trace without any
    on_gpu: bool  # otherwise CPU ops are counted
    # One per step, or one for a trace without steps: the count of each kind, such as
    # `gemm`. What is of several kinds counts in each of them.
    tallies: tuple[Counter[str], ...]

    def counts_of_kind(self, kind: str) -> tuple[int, ...]:
        """Return the count of a kind in each step."""
        return tuple(tally[kind] for tally in self.tallies)

    def mean_per_step(self, kind: str) -> float:
        """Return the mean count of a kind over the steps.

        E.g. 4 for the counts 4, 4 and for 3, 5; but 3.67 for 3, 4, 4: it is an integer
        if it can be, and else rounded to two digits.
        """
        counts = self.counts_of_kind(kind)
        total = sum(counts)
        steps = max(len(counts), 1)
        if total % steps == 0:
            return total // steps
        return round(total / steps, 2)

    def first_steps(self, count: int) -> Tallies:
        """Return the tallies of the first `count` steps only."""
        return Tallies(
            steps=self.steps[:count],
            on_gpu=self.on_gpu,
            tallies=self.tallies[:count],
        )


def count_kinds_by_step(trace: Trace) -> Tallies:
    """Count the kernels, copies and sets of each step by kind, or else its CPU ops.

    A GPU event belongs to the step that launched it. If a trace has none, the ops of
    `find_computing_ops` count, each in the step in which it starts.
    """
    steps = steps_of(trace)
    on_gpu = len(trace.gpu_rows) > 0
    if on_gpu:
        rows = trace.gpu_rows
        rows_of_steps = launched_in_steps(trace)
    else:
        ops = find_computing_ops(trace)
        rows = ops[np.argsort(trace.start[ops], kind="stable")]
        rows_of_steps = tuple(rows[part] for part in steps.slices_of(trace.start[rows]))
    counted_parts = rows_of_steps or [rows]  # without steps, the whole trace
    return Tallies(
        steps=tuple(labels_of(steps.names)),
        on_gpu=on_gpu,
        tallies=tuple(_count_kinds(trace, part) for part in counted_parts),
    )


def _count_kinds(trace: Trace, rows: Rows) -> Counter[str]:
    """Count the slices of each kind of work, such as `gemm`. A slice of several kinds
    counts in each of them."""
    columns = (trace.name[rows], trace.role[rows])
    first_of_pair, pair_of_row = distinct_rows(columns)
    counts = np.bincount(pair_of_row, minlength=len(first_of_pair))
    tally: Counter[str] = Counter()
    for row, count in zip(rows[first_of_pair].tolist(), counts.tolist(), strict=True):
        for kind in kinds_of(Role(trace.role[row]), trace.name_of(row)):
            tally[kind] += count
    return tally
