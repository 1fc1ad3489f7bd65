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
from fusetui.trace.model.arrays import Flags, Int64s, Rows, prefix_sums
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

    def has_name(test: Callable[[str], bool]) -> Flags:
        """Mark the rows of the trace whose name passes a test."""
        return trace.named(test)[trace.name]

    is_work = (trace.role == Role.OP) & has_name(_may_compute)
    is_copy_or_fill = is_work & has_name(lambda name: stem(name) in HELPERS)
    is_own_work = is_work & ~is_copy_or_fill & ~_mark_parts_of_in_place_ops(trace)

    is_innermost = _count_inside(trace, is_work) == 0
    calls_only_helpers = _count_inside(trace, is_own_work) == 0
    is_op_of_library = has_name(lambda name: "::" in name)
    counts_as_whole = has_name(lambda name: stem(name) in WHOLE)
    is_piece_of_work = is_own_work & (
        counts_as_whole | is_innermost | (calls_only_helpers & is_op_of_library)
    )
    is_piece_of_work &= ~mark_inside(trace, np.flatnonzero(is_piece_of_work))

    # A copy or fill that belongs to no other op is a piece of work itself.
    belongs_to_work = mark_inside(trace, np.flatnonzero(is_piece_of_work))
    copies_or_fills_alone = is_copy_or_fill & is_innermost & ~belongs_to_work
    return np.flatnonzero(is_piece_of_work | copies_or_fills_alone)


def _may_compute(name: str) -> bool:
    """Return whether an op of this name is no view, allocation or frame."""
    return not (is_metadata(name) or is_frame(name))


def mark_inside(trace: Trace, rows: Rows) -> Flags:
    """Mark the slices that lie inside one of some slices, at any depth.

    Args:
        trace: The trace.
        rows: The slices around them. They are marked themselves only if they lie inside
            another one.

    Returns:
        A flag for each row of the trace.
    """
    # The subtree of row n has the rows up to before end_row[n]. Walking over all rows,
    # a subtree opens behind its row and closes at its end.
    change_of_open = np.zeros(len(trace) + 1, dtype=np.int64)
    np.add.at(change_of_open, rows + 1, 1)
    np.subtract.at(change_of_open, trace.end_row[rows], 1)
    open_subtrees = np.cumsum(change_of_open[:-1])
    return open_subtrees > 0


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
    number_of_stem: dict[str, int] = {}
    stem_of_name = [
        number_of_stem.setdefault(stem(name), len(number_of_stem))
        for name in trace.names
    ]
    stem_of_row = np.array(stem_of_name or [0])[trace.name]
    outer_op = np.where(trace.parent >= 0, trace.op[trace.parent], -1)
    has_same_stem = (outer_op >= 0) & (stem_of_row[outer_op] == stem_of_row)
    is_part: Flags = has_same_stem & (trace.role == Role.OP)
    return is_part


class Tallies(msgspec.Struct, frozen=True):
    """How many kernels, or CPU ops, of each kind each step of a trace has."""

    steps: tuple[str, ...]  # the names of the steps; () for a trace without any
    on_gpu: bool  # otherwise CPU ops are counted
    # One per step, or one for a trace without steps: the count of each kind, such as
    # `gemm`. What is of several kinds counts in each of them.
    tallies: tuple[Counter[str], ...]

    def found(self, kind: str) -> tuple[int, ...]:
        """Return the count of a kind in each step."""
        return tuple(tally[kind] for tally in self.tallies)

    def per_step(self, kind: str) -> float:
        """Return the mean count of a kind over the steps.

        E.g. 4 for the counts 4, 4 and for 3, 5; but 3.67 for 3, 4, 4: it is an integer
        if it can be, and else rounded to two digits.
        """
        counts = self.found(kind)
        total = sum(counts)
        steps = max(len(counts), 1)
        return total // steps if total % steps == 0 else round(total / steps, 2)

    def first(self, count: int) -> Tallies:
        """Return the tallies of the first `count` steps only."""
        return Tallies(
            steps=self.steps[:count],
            on_gpu=self.on_gpu,
            tallies=self.tallies[:count],
        )


def tallies(trace: Trace) -> Tallies:
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
    return Tallies(
        steps=tuple(labels_of(steps.names)),
        on_gpu=on_gpu,
        tallies=tuple(_count_kinds(trace, part) for part in rows_of_steps or [rows]),
    )


def _count_kinds(trace: Trace, rows: Rows) -> Counter[str]:
    """Count the slices of each kind of work, such as `gemm`. A slice of several kinds
    counts in each of them."""
    names_and_roles = np.stack([trace.name[rows], trace.role[rows]])
    distinct, counts = np.unique(names_and_roles, axis=1, return_counts=True)
    names, roles = distinct.tolist()
    tally: Counter[str] = Counter()
    for name, role, count in zip(names, roles, counts.tolist(), strict=True):
        for kind in kinds_of(Role(role), trace.names[name]):
            tally[kind] += count
    return tally
