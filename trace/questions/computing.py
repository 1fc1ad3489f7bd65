"""Which CPU ops of a trace compute something: the pieces of work where there is no GPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.op_names import HELPERS, WHOLE, is_frame, is_metadata, stem

Rows = NDArray[np.intp]
Flags = NDArray[np.bool_]


def computing_ops(trace: Trace) -> Rows:
    """The rows of the ops that a person would call kernels; none lies inside another one.

    They are the innermost ops, after views, allocations, and the frames of autograd and
    torch.compile were left out. What an op calls to copy or to fill is a part of it, and so is its
    twin (the `aten::mul` in an `aten::mul_`). So `aten::linear` counts once: as the `aten::addmm`
    in it, which copies the bias for itself.
    """
    real = (trace.role == Role.OP) & _named(trace, lambda n: not (is_metadata(n) or is_frame(n)))
    helps = real & _named(trace, lambda name: stem(name) in HELPERS)
    works = real & ~helps & ~_twins(trace)
    alone = (_inside(trace, works) == 0) & _named(trace, lambda name: "::" in name)
    whole = _named(trace, lambda name: stem(name) in WHOLE)
    computes = works & (whole | alone | (_inside(trace, real) == 0))
    computes &= ~within(trace, np.flatnonzero(computes))
    helps &= ~within(trace, np.flatnonzero(computes)) & (_inside(trace, real) == 0)
    return np.flatnonzero(computes | helps)


def within(trace: Trace, rows: Rows) -> Flags:
    """Per row of the trace: does it lie inside one of these rows, at any distance."""
    change = np.zeros(len(trace) + 1, dtype=np.int64)
    np.add.at(change, rows + 1, 1)
    np.subtract.at(change, trace.end_row[rows], 1)
    found: Flags = np.cumsum(change[:-1]) > 0
    return found


def _inside(trace: Trace, flags: Flags) -> NDArray[np.int64]:
    """Per row: how many of the flagged rows lie inside it, at any distance."""
    before = np.concatenate(([0], np.cumsum(flags, dtype=np.int64)))
    found: NDArray[np.int64] = before[trace.end_row] - before[1:]
    return found


def _twins(trace: Trace) -> Flags:
    """Per row: does the op around it bear its name, but for the mark of in-place twins."""
    numbers: dict[str, int] = {}
    twin = [numbers.setdefault(stem(name), len(numbers)) for name in trace.names]
    of_row = np.array(twin or [0])[trace.name]
    over = np.where(trace.parent >= 0, trace.op[trace.parent], -1)
    found: Flags = (over >= 0) & (of_row[over] == of_row) & (trace.role == Role.OP)
    return found


def _named(trace: Trace, test: Callable[[str], bool]) -> Flags:
    """Per row: does its name pass the test, which is made once per name."""
    return np.array([test(name) for name in trace.names] or [False])[trace.name]
