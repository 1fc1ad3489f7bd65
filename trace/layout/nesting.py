"""Which slice lies inside which, for slices of one track.

A slice is inside another if it neither starts before nor ends after it. A slice that ends where the
next one starts does not contain it, whatever its length. Slices that overlap without nesting get
sub-rows (`arrange`); the slices of one sub-row nest perfectly, so depths, parents and subtrees are
computed with plain numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.layout.first_fit import Slice, first_fit
from fusetui.trace.model.small_tracks import as_one, overlapping, rows_of, small_ones

Int64s = NDArray[np.int64]
Depths = NDArray[np.int32]
DEEP = 1000  # levels from which on they are not processed one by one


class Nesting(msgspec.Struct, frozen=True, eq=False):
    """Arrays of shape [rows of the track]; parents and ends count from the track's first row."""

    depth: Depths
    parent: NDArray[np.int32]  # -1: none
    end_row: NDArray[np.int32]  # one past the last row of the subtree


def nest(start: Int64s, end: Int64s) -> Nesting:
    """Rows sorted by (start, -duration) that nest perfectly -> their tree."""
    rows = np.arange(len(start))
    ends = np.maximum(rows + 1, np.searchsorted(start, end, side="left"))
    depth = rows - np.cumsum(np.bincount(ends, minlength=len(start) + 1))[:-1]  # open before each
    return Nesting(depth.astype(np.int32), _parents(depth), ends.astype(np.int32))


def nest_tracks(
    bounds: Int64s, start: Int64s, end: Int64s, known: Mapping[int, Nesting]
) -> Nesting:
    """The trees of all tracks; rows count from the first row of the trace.

    Track n has the rows [bounds[n], bounds[n + 1]), sorted by (start, -duration), which nest
    perfectly; the trees of some tracks may be given.
    """
    parent = np.full(len(start), -1, dtype=np.int32)
    end_row = np.arange(1, len(start) + 1, dtype=np.int32)
    depth = np.zeros(len(start), dtype=np.int32)

    def put(rows: slice | NDArray[np.intp], first: Any, tree: Nesting, parents: Any) -> None:
        parent[rows] = np.where(tree.parent >= 0, parents, -1)
        end_row[rows] = tree.end_row + first
        depth[rows] = tree.depth

    nested = overlapping(bounds, start, end)
    small = np.setdiff1d(small_ones(bounds, nested), np.fromiter(known, np.intp, len(known)))
    if len(small):
        rows, begins = rows_of(bounds, small)
        tree = nest(*as_one(begins, start[rows], end[rows]))
        first = rows - np.arange(len(rows))
        put(rows, first, tree, rows[tree.parent])
    for track in np.setdiff1d(nested, small).tolist():
        here = slice(int(bounds[track]), int(bounds[track + 1]))
        tree = known.get(track) or nest(start[here], end[here])
        put(here, here.start, tree, tree.parent + here.start)
    return Nesting(depth, parent, end_row)


def rows_by_depth(depth: Depths | Int64s) -> tuple[NDArray[np.intp], list[int]]:
    """Rows sorted by depth, stable within a depth, and the bounds: the rows of depth d are
    [bounds[d], bounds[d + 1])."""
    deepest = int(depth.max(initial=-1))
    small = depth.astype(np.int16) if deepest < 1 << 15 else depth  # sorts in linear time
    order = np.argsort(small, kind="stable")
    bounds = np.searchsorted(small[order], np.arange(deepest + 2, dtype=small.dtype))
    return order, bounds.tolist()


def arrange(
    start: Int64s, end: Int64s, call: NDArray[np.bool_], flat: bool
) -> tuple[NDArray[np.int32], Nesting | None]:
    """The sub-row of each row, 0 where nothing overlaps without nesting; rows are sorted by (start,
    -duration). Also the tree of the rows, if it is known because all of them nest.

    `flat`: slices may not lie inside each other either (kernels of one stream). `call` marks
    runtime calls: two with equal times are neighbors, not parent and child.
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
    order, bounds = rows_by_depth(depth)
    by_depth = order.astype(np.int32)
    if len(bounds) > DEEP:
        return _deep_parents(depth, by_depth, parent)
    for level in range(1, len(bounds) - 1):
        upper = by_depth[bounds[level - 1] : bounds[level]]
        here = by_depth[bounds[level] : bounds[level + 1]]
        if len(upper):
            parent[here] = upper[np.maximum(np.searchsorted(upper, here) - 1, 0)]
    return parent


def _deep_parents(
    depth: Int64s, by_depth: NDArray[np.int32], parent: NDArray[np.int32]
) -> NDArray[np.int32]:
    """The same for all levels at once, which is slower if there are few."""
    inner = np.flatnonzero(depth > 0)
    keys = depth[by_depth] * len(depth) + by_depth
    found = np.searchsorted(keys, (depth[inner] - 1) * len(depth) + inner) - 1
    parent[inner] = by_depth[np.maximum(found, 0)]
    return parent


def _overlapping(start: Int64s, end: Int64s) -> Int64s:
    """Rows that begin before an earlier one has ended."""
    latest = np.maximum.accumulate(end) if len(end) else end
    return np.flatnonzero(start[1:] < latest[:-1]) + 1


def _crossing(
    start: Int64s, end: Int64s, call: NDArray[np.bool_], parent: NDArray[np.int32]
) -> Int64s:
    """Rows that are not inside their parent; empty if the whole track nests perfectly."""
    inside = np.flatnonzero(parent >= 0)
    over = parent[inside]
    tie = call[inside] & call[over] & (start[inside] == start[over]) & (end[inside] == end[over])
    crossing: Int64s = inside[(end[inside] > end[over]) | tie]
    return crossing


def _clusters(start: Int64s, end: Int64s, crossing: Int64s) -> list[tuple[int, int]]:
    """Ranges of rows [first, last) that overlap each other and contain a crossing row."""
    latest = np.maximum.accumulate(end)
    firsts = np.concatenate(([0], np.flatnonzero(start[1:] >= latest[:-1]) + 1, [len(start)]))
    hit = np.flatnonzero(np.bincount(np.searchsorted(firsts, crossing, side="right") - 1))
    return list(zip(firsts[hit].tolist(), firsts[hit + 1].tolist(), strict=True))
