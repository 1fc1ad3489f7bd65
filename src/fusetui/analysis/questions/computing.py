"""Which CPU ops of a trace compute something: the pieces of work if there is no GPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.arrays import Flags, Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.op_names import HELPERS, WHOLE, is_frame, is_metadata, stem


def computing_ops(trace: Trace) -> Rows:
    """The rows of the ops that correspond to kernels; none lies inside another one.

    These are the innermost ops, except for views, allocations, and the frames of autograd and
    torch.compile. A copy or fill that an op calls is part of it, and so is its twin (the
    `aten::mul` in an `aten::mul_`). So `aten::linear` counts once: as the `aten::addmm` in it,
    which copies the bias itself.
    """

    def named(test: Callable[[str], bool]) -> Flags:
        flags: Flags = trace.named(test)[trace.name]
        return flags

    real = (trace.role == Role.OP) & named(lambda n: not (is_metadata(n) or is_frame(n)))
    helps = real & named(lambda name: stem(name) in HELPERS)
    works = real & ~helps & ~_twins(trace)
    alone = (_inside(trace, works) == 0) & named(lambda name: "::" in name)
    whole = named(lambda name: stem(name) in WHOLE)
    computes = works & (whole | alone | (_inside(trace, real) == 0))
    computes &= ~within(trace, np.flatnonzero(computes))
    helps &= ~within(trace, np.flatnonzero(computes)) & (_inside(trace, real) == 0)
    return np.flatnonzero(computes | helps)


def within(trace: Trace, rows: Rows) -> Flags:
    """For each row of the trace, whether it lies inside one of these rows, at any depth."""
    change = np.zeros(len(trace) + 1, dtype=np.int64)
    np.add.at(change, rows + 1, 1)
    np.subtract.at(change, trace.end_row[rows], 1)
    found: Flags = np.cumsum(change[:-1]) > 0
    return found


def _inside(trace: Trace, flags: Flags) -> NDArray[np.int64]:
    """For each row, how many of the flagged rows lie inside it, at any depth."""
    before = np.concatenate(([0], np.cumsum(flags, dtype=np.int64)))
    found: NDArray[np.int64] = before[trace.end_row] - before[1:]
    return found


def _twins(trace: Trace) -> Flags:
    """For each row, whether the op around it has the same name except for the in-place suffix."""
    numbers: dict[str, int] = {}
    twin = [numbers.setdefault(stem(name), len(numbers)) for name in trace.names]
    of_row = np.array(twin or [0])[trace.name]
    over = np.where(trace.parent >= 0, trace.op[trace.parent], -1)
    found: Flags = (over >= 0) & (of_row[over] == of_row) & (trace.role == Role.OP)
    return found
