"""Which slice lies inside which, for slices of one track.

A slice is inside another when it neither starts before nor ends after it. A slice that ends at the
start of the next one does not contain it, whatever its length. Slices that overlap only partly
get sub-rows (`arrange`); what is left on one sub-row nests perfectly, so that depths,
parents and subtrees are plain numpy.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.first_fit import Slice, first_fit

Int64s = NDArray[np.int64]
DEEPEST = np.iinfo(np.int16).max - 2


class Nesting(msgspec.Struct, frozen=True, eq=False):
    """Arrays of shape [rows of the track]; parents and ends count from the track's first row."""

    depth: NDArray[np.int16]  # 32767 also for what is deeper
    parent: NDArray[np.int32]  # -1: none
    end_row: NDArray[np.int32]  # one past the last row of the subtree


def nest(start: Int64s, end: Int64s) -> Nesting:
    """Rows sorted by (start, -duration) that nest perfectly -> their tree."""
    rows = np.arange(len(start))
    ends = np.maximum(rows + 1, np.searchsorted(start, end, side="left"))
    depth = rows - np.cumsum(np.bincount(ends, minlength=len(start) + 1))[:-1]  # open before each
    shown = np.minimum(depth, np.iinfo(np.int16).max).astype(np.int16)
    return Nesting(shown, _parents(depth), ends.astype(np.int32))


def arrange(
    start: Int64s, end: Int64s, call: NDArray[np.bool_], flat: bool
) -> tuple[NDArray[np.int32], Nesting | None]:
    """The sub-row of each row, 0 where nothing overlaps partly; rows sorted by (start, -duration).
    And the tree of the rows, where it is known already because all of them nest.

    `flat`: nothing may lie inside another slice either (kernels of one stream). `call` marks
    runtime calls: two with equal times are neighbours, not parent and child.
    """
    subrow = np.zeros(len(start), dtype=np.int32)
    tree = None if flat else nest(start, end)
    crossing = _crossing(start, end, call, tree.parent) if tree else _overlapping(start, end)
    if not len(crossing):
        return subrow, tree
    for first, last in _clusters(start, end, crossing):
        rows = slice(first, last)
        slices = map(Slice, start[rows].tolist(), end[rows].tolist(), call[rows].tolist())
        subrow[rows] = first_fit(slices, flat)
    return subrow, None


def _parents(depth: Int64s) -> NDArray[np.int32]:
    """The last earlier row one level up, or -1."""
    parent = np.full(len(depth), -1, dtype=np.int32)
    if not len(depth):
        return parent
    deepest = int(depth.max())
    small = depth.astype(np.int16) if deepest <= DEEPEST else depth  # sorts in linear time
    by_depth = np.argsort(small, kind="stable").astype(np.int32)
    bounds = np.searchsorted(small[by_depth], np.arange(deepest + 2, dtype=small.dtype))
    for level in range(1, len(bounds) - 1):
        upper = by_depth[bounds[level - 1] : bounds[level]]
        here = by_depth[bounds[level] : bounds[level + 1]]
        if len(upper):
            parent[here] = upper[np.maximum(np.searchsorted(upper, here) - 1, 0)]
    return parent


def _overlapping(start: Int64s, end: Int64s) -> Int64s:
    """Rows that begin before an earlier one has ended."""
    latest = np.maximum.accumulate(end) if len(end) else end
    return np.flatnonzero(start[1:] < latest[:-1]) + 1


def _crossing(
    start: Int64s, end: Int64s, call: NDArray[np.bool_], parent: NDArray[np.int32]
) -> Int64s:
    """Rows that are not inside their parent; empty when the whole track nests perfectly."""
    inside = np.flatnonzero(parent >= 0)
    over = parent[inside]
    tie = call[inside] & call[over] & (start[inside] == start[over]) & (end[inside] == end[over])
    crossing: Int64s = inside[(end[inside] > end[over]) | tie]
    return crossing


def _clusters(start: Int64s, end: Int64s, crossing: Int64s) -> list[tuple[int, int]]:
    """Stretches of rows [first, last) that overlap each other and hold a crossing row."""
    latest = np.maximum.accumulate(end)
    firsts = np.concatenate(([0], np.flatnonzero(start[1:] >= latest[:-1]) + 1, [len(start)]))
    hit = np.flatnonzero(np.bincount(np.searchsorted(firsts, crossing, side="right") - 1))
    return list(zip(firsts[hit].tolist(), firsts[hit + 1].tolist(), strict=True))
