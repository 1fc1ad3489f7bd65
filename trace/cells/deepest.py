"""The deepest slice of a nest that covers enough of each cell: O(W log n + W depth)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.columns import Trace, Track

Int64s = NDArray[np.int64]
Rows = NDArray[np.int32]

ENOUGH = 2
"""A slice covers enough of a cell with 1 / ENOUGH of it. Slices of a track nest, so at most one of
each depth does, and it is open in the middle of the cell."""
MOST = 1000
"""Levels that are looked at, from the innermost slice on."""


def deepest(trace: Trace, track: Track, borders: Int64s, least_ns: int = 0) -> Rows:
    """The row of each cell, or -1; shape [cells] for the cells + 1 borders in ns of the file.

    Slices shorter than `least_ns` are passed over for those around them, if there are any.
    """
    begin, end = borders[:-1], borders[1:]
    middle, size = (begin + end) // 2, np.maximum(end - begin, 1)
    at = np.searchsorted(trace.start[track.rows], middle, side="right") - 1
    row = np.where(at >= 0, at + track.first_row, -1).astype(np.int32)
    cells = np.flatnonzero(row >= 0)  # those whose slice is not found yet
    for _ in range(MOST):
        found = row[cells]
        inside = np.minimum(trace.end[found], end[cells])
        inside -= np.maximum(trace.start[found], begin[cells])
        over = trace.parent[found]
        little = (trace.dur[found] < least_ns) & (over >= 0)
        little |= ENOUGH * inside < size[cells]
        cells, over = cells[little], over[little]
        row[cells] = over
        cells = cells[over >= 0]
        if not len(cells):
            return row
    row[cells] = -1
    return row
