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
from fusetui.trace.model.arrays import Flags, Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.op_names import HELPERS, WHOLE, is_frame, is_metadata, stem


def computing_ops(trace: Trace) -> Rows:
    """The rows of the ops that correspond to kernels; none lies inside another one.
    These are the innermost ops, except for views, allocations, and the frames of
    autograd and torch.compile. A copy or fill that an op calls is part of it, and so is
    its twin (the `aten::mul` in an `aten::mul_`). So `aten::linear` counts once: as the
    `aten::addmm` in it, which copies the bias itself."""

    def has_name(test: Callable[[str], bool]) -> Flags:
        return trace.named(test)[trace.name]

    is_work = (trace.role == Role.OP) & has_name(_may_compute)
    is_helper = is_work & has_name(lambda name: stem(name) in HELPERS)
    is_own_work = is_work & ~is_helper & ~_twins(trace)
    is_innermost = _count_inside(trace, is_work) == 0
    has_only_helpers = _count_inside(trace, is_own_work) == 0
    is_op_of_library = has_name(lambda name: "::" in name)
    is_whole = has_name(lambda name: stem(name) in WHOLE)
    computes = is_own_work & (
        is_whole | is_innermost | (has_only_helpers & is_op_of_library)
    )
    computes &= ~within(trace, np.flatnonzero(computes))
    is_inside = within(trace, np.flatnonzero(computes))
    helps_alone = is_helper & is_innermost & ~is_inside
    return np.flatnonzero(computes | helps_alone)


def _may_compute(name: str) -> bool:
    return not (is_metadata(name) or is_frame(name))


def within(trace: Trace, rows: Rows) -> Flags:
    """For each row of the trace, whether it lies inside one of these rows, at any
    depth."""
    change = np.zeros(len(trace) + 1, dtype=np.int64)
    np.add.at(change, rows + 1, 1)
    np.subtract.at(change, trace.end_row[rows], 1)
    return np.cumsum(change[:-1]) > 0


def _count_inside(trace: Trace, flags: Flags) -> NDArray[np.int64]:
    """For each row, how many of the flagged rows lie inside it, at any depth."""
    flagged_before = np.concatenate(([0], np.cumsum(flags, dtype=np.int64)))
    return flagged_before[trace.end_row] - flagged_before[1:]


def _twins(trace: Trace) -> Flags:
    """For each row, whether the op around it has the same name except for the in-place
    suffix."""
    numbers: dict[str, int] = {}
    stem_of_name = [
        numbers.setdefault(stem(name), len(numbers)) for name in trace.names
    ]
    stem_of_row = np.array(stem_of_name or [0])[trace.name]
    outer_op = np.where(trace.parent >= 0, trace.op[trace.parent], -1)
    has_same_stem = (outer_op >= 0) & (stem_of_row[outer_op] == stem_of_row)
    is_twin: Flags = has_same_stem & (trace.role == Role.OP)
    return is_twin


class Tallies(msgspec.Struct, frozen=True):
    """How often each kind occurs: per step, or once for a trace without steps."""

    steps: tuple[str, ...]
    on_gpu: bool  # otherwise CPU ops are counted
    tallies: tuple[Counter[str], ...]

    def found(self, kind: str) -> tuple[int, ...]:
        """The count of a kind in each step."""
        return tuple(tally[kind] for tally in self.tallies)

    def per_step(self, kind: str) -> float:
        """The mean over the steps, rounded to two digits; an integer if all are
        equal."""
        counts = self.found(kind)
        total = sum(counts)
        steps = max(len(counts), 1)
        return total // steps if total % steps == 0 else round(total / steps, 2)

    def first(self, count: int) -> Tallies:
        """Only the first `count` steps."""
        return Tallies(
            steps=self.steps[:count],
            on_gpu=self.on_gpu,
            tallies=self.tallies[:count],
        )


def tallies(trace: Trace) -> Tallies:
    """Counts every step of a trace. Kernels, memcpys and memsets belong to the step
    that launched them, CPU ops (those of `computing_ops`) to the one in which they
    start."""
    steps = steps_of(trace)
    on_gpu = len(trace.gpu_rows) > 0
    if on_gpu:
        rows = trace.gpu_rows
        rows_of_steps = launched_in_steps(trace)
    else:
        ops = computing_ops(trace)
        rows = ops[np.argsort(trace.start[ops], kind="stable")]
        rows_of_steps = tuple(rows[part] for part in steps.slices_of(trace.start[rows]))
    return Tallies(
        steps=tuple(labels_of(steps.names)),
        on_gpu=on_gpu,
        tallies=tuple(_tally(trace, part) for part in rows_of_steps or [rows]),
    )


def _tally(trace: Trace, rows: Rows) -> Counter[str]:
    """How often each kind occurs among the rows."""
    names_and_roles = np.stack([trace.name[rows], trace.role[rows]])
    distinct, counts = np.unique(names_and_roles, axis=1, return_counts=True)
    names, roles = distinct.tolist()
    tally: Counter[str] = Counter()
    for name, role, count in zip(names, roles, counts.tolist(), strict=True):
        for kind in kinds_of(Role(role), trace.names[name]):
            tally[kind] += count
    return tally
