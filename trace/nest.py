"""Which slice lies inside which, for slices of one track.

A slice is inside another when it neither starts before nor ends after it. A slice that ends at the
start of the next one does not contain it, whatever its length. Slices that overlap only partly
get sub-rows (`assign_subrows`); what is left on one sub-row nests perfectly, so that depths,
parents and subtrees are plain numpy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Nesting:
    """Arrays of shape [rows of the track]; parents and ends count from the track's first row."""

    depth: NDArray[np.int16]
    parent: NDArray[np.int32]  # -1: none
    end_row: NDArray[np.int32]  # one past the last row of the subtree


def nest(start: Int64s, end: Int64s) -> Nesting:
    """Rows sorted by (start, -duration) that nest perfectly -> their tree."""
    depth = _open_before(start, end)
    parent = _parents(depth)
    rows = np.arange(len(start))
    ends = np.maximum(rows + 1, np.searchsorted(start, end, side="left"))
    return Nesting(depth.astype(np.int16), parent, ends.astype(np.int32))


def assign_subrows(
    start: Int64s, end: Int64s, call: NDArray[np.bool_], flat: bool
) -> NDArray[np.int32]:
    """The sub-row of each row, 0 where nothing overlaps partly; rows sorted by (start, -duration).

    `flat`: nothing may lie inside another slice either (kernels of one stream). `call` marks
    runtime calls: two with equal times are neighbours, not parent and child.
    """
    subrow = np.zeros(len(start), dtype=np.int32)
    for first, last in _clusters(start, end, _crossing(start, end, call, flat)):
        subrow[first:last] = _greedy(start[first:last], end[first:last], call[first:last], flat)
    return subrow


def _open_before(start: Int64s, end: Int64s) -> Int64s:
    """How many earlier rows are still open at the start of each row."""
    rows = np.arange(len(start))
    ended = np.searchsorted(np.sort(end), start, side="right")
    empty = np.concatenate(([0], np.cumsum(end == start)))
    same_start_end = np.searchsorted(start, start, side="right")
    not_yet = empty[same_start_end] - empty[rows]  # empty slices at this start, from this row on
    before: Int64s = rows - (ended - not_yet)
    return before


def _parents(depth: Int64s) -> NDArray[np.int32]:
    """The last earlier row one level up, or -1."""
    parent = np.full(len(depth), -1, dtype=np.int32)
    if not len(depth):
        return parent
    by_depth = np.argsort(depth, kind="stable").astype(np.int32)
    bounds = np.searchsorted(depth[by_depth], np.arange(int(depth.max()) + 2))
    for level in range(1, len(bounds) - 1):
        upper = by_depth[bounds[level - 1] : bounds[level]]
        here = by_depth[bounds[level] : bounds[level + 1]]
        if len(upper):
            parent[here] = upper[np.maximum(np.searchsorted(upper, here) - 1, 0)]
    return parent


def _crossing(start: Int64s, end: Int64s, call: NDArray[np.bool_], flat: bool) -> Int64s:
    """Rows that cannot stay where they are; empty when the whole track nests perfectly."""
    if flat:
        latest = np.maximum.accumulate(end) if len(end) else end
        return np.flatnonzero(start[1:] < latest[:-1]) + 1
    parent = _parents(_open_before(start, end))
    inside = np.flatnonzero(parent >= 0)
    over = parent[inside]
    tie = call[inside] & call[over] & (start[inside] == start[over]) & (end[inside] == end[over])
    crossing: Int64s = inside[(end[inside] > end[over]) | tie]
    return crossing


def _clusters(start: Int64s, end: Int64s, crossing: Int64s) -> list[tuple[int, int]]:
    """Stretches of rows [first, last) that overlap each other and hold a crossing row."""
    if not len(crossing):
        return []
    latest = np.maximum.accumulate(end)
    firsts = np.concatenate(([0], np.flatnonzero(start[1:] >= latest[:-1]) + 1, [len(start)]))
    hit = np.unique(np.searchsorted(firsts, crossing, side="right") - 1)
    return list(zip(firsts[hit].tolist(), firsts[hit + 1].tolist(), strict=True))


def _greedy(start: Int64s, end: Int64s, call: NDArray[np.bool_], flat: bool) -> list[int]:
    """Each row onto the first sub-row where it fits, in order."""
    stacks: list[list[tuple[int, int, bool]]] = []
    found: list[int] = []
    for first, last, is_call in zip(start.tolist(), end.tolist(), call.tolist(), strict=True):
        row = (first, last, is_call)
        place = next((n for n, s in enumerate(stacks) if _fits(s, row, flat)), len(stacks))
        if place == len(stacks):
            stacks.append([])
        stacks[place].append(row)
        found.append(place)
    return found


def _fits(stack: list[tuple[int, int, bool]], row: tuple[int, int, bool], flat: bool) -> bool:
    """Pops what has ended; true when the row may lie on or in what is left."""
    while stack and stack[-1][1] <= row[0]:
        stack.pop()
    if not stack:
        return True
    top = stack[-1]
    return not flat and row[1] <= top[1] and not (row == top and row[2])
