"""Which CPU ops of a trace compute something: the pieces of work if there is no GPU;
and the number of kernels of each kind in a step, or without a GPU, of such ops."""

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

    def named(test: Callable[[str], bool]) -> Flags:
        return trace.named(test)[trace.name]

    real = (trace.role == Role.OP) & named(
        lambda n: not (is_metadata(n) or is_frame(n))
    )
    helps = real & named(lambda name: stem(name) in HELPERS)
    works = real & ~helps & ~_twins(trace)
    alone = (_inside(trace, works) == 0) & named(lambda name: "::" in name)
    whole = named(lambda name: stem(name) in WHOLE)
    computes = works & (whole | alone | (_inside(trace, real) == 0))
    computes &= ~within(trace, np.flatnonzero(computes))
    helps &= ~within(trace, np.flatnonzero(computes)) & (_inside(trace, real) == 0)
    return np.flatnonzero(computes | helps)


def within(trace: Trace, rows: Rows) -> Flags:
    """For each row of the trace, whether it lies inside one of these rows, at any
    depth."""
    change = np.zeros(len(trace) + 1, dtype=np.int64)
    np.add.at(change, rows + 1, 1)
    np.subtract.at(change, trace.end_row[rows], 1)
    return np.cumsum(change[:-1]) > 0


def _inside(trace: Trace, flags: Flags) -> NDArray[np.int64]:
    """For each row, how many of the flagged rows lie inside it, at any depth."""
    before = np.concatenate(([0], np.cumsum(flags, dtype=np.int64)))
    return before[trace.end_row] - before[1:]


def _twins(trace: Trace) -> Flags:
    """For each row, whether the op around it has the same name except for the in-place
    suffix."""
    numbers: dict[str, int] = {}
    twin = [numbers.setdefault(stem(name), len(numbers)) for name in trace.names]
    of_row = np.array(twin or [0])[trace.name]
    over = np.where(trace.parent >= 0, trace.op[trace.parent], -1)
    found: Flags = (over >= 0) & (of_row[over] == of_row) & (trace.role == Role.OP)
    return found


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
        found = self.found(kind)
        total, steps = sum(found), max(len(found), 1)
        return total // steps if total % steps == 0 else round(total / steps, 2)

    def first(self, count: int) -> Tallies:
        """Only the first `count` steps."""
        return Tallies(self.steps[:count], self.on_gpu, self.tallies[:count])


def tallies(trace: Trace) -> Tallies:
    """Counts every step of a trace. Kernels, memcpys and memsets belong to the step
    that launched them, CPU ops (those of `computing_ops`) to the one in which they
    start."""
    steps, rows = steps_of(trace), trace.gpu_rows
    groups, on_gpu = launched_in_steps(trace), len(rows) > 0
    if not on_gpu:
        rows = computing_ops(trace)
        rows = rows[np.argsort(trace.start[rows], kind="stable")]
        groups = tuple(rows[own] for own in steps.slices_of(trace.start[rows]))
    counted = tuple(_tally(trace, own) for own in groups or [rows])
    return Tallies(tuple(labels_of(steps.names)), on_gpu, counted)


def _tally(trace: Trace, rows: Rows) -> Counter[str]:
    names = np.stack([trace.name[rows], trace.role[rows]])
    kinds, counts = np.unique(names, axis=1, return_counts=True)
    tally: Counter[str] = Counter()
    for name, role, count in zip(*kinds.tolist(), counts.tolist(), strict=True):
        for kind in kinds_of(Role(role), trace.names[name]):
            tally[kind] += count
    return tally
