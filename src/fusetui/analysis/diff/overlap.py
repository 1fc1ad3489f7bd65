"""Communication and copies that ran while kernels computed, and so did not make the step longer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fusetui.gpu.kinds import is_collective
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import covered_until, union

Int64s = NDArray[np.int64]
Rows = NDArray[np.intp]


def behind_compute(trace: Trace, rows: Rows) -> Int64s:
    """How long any kernel computes during each of these GPU events (ns), in the shape of `rows`; 0
    for kernels that compute."""
    computes, starts, ends = _compute(trace)
    if computes[rows].all():
        return np.zeros(rows.shape, dtype=np.int64)
    flat = rows.ravel()
    until = covered_until(starts, ends, trace.end[flat])
    behind = until - covered_until(starts, ends, trace.start[flat])
    return np.where(computes[flat], 0, behind).reshape(rows.shape)


def _compute(trace: Trace) -> tuple[NDArray[np.bool_], Int64s, Int64s]:
    """Which rows are kernels that do not communicate, and the union of their times."""
    kernels = trace.rows_of(Role.KERNEL)
    named = np.zeros(len(trace.names), dtype=np.bool_)
    for number in np.unique(trace.name[kernels]).tolist():
        named[number] = not is_collective(trace.names[number])
    kernels = kernels[named[trace.name[kernels]]]
    computes = np.zeros(len(trace), dtype=np.bool_)
    computes[kernels] = True
    return computes, *union(trace.start[kernels], trace.end[kernels])
