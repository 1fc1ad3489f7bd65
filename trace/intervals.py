"""Unions of time intervals, in integers: busy times that count nothing twice."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]


def union(start: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """Intervals in any order, shape [n] -> starts and ends of their union, sorted, disjoint."""
    if not len(start):
        return start, end
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    latest = np.maximum.accumulate(end)
    first = np.concatenate(([True], start[1:] > latest[:-1]))
    last = np.concatenate((first[1:], [True]))
    return start[first], latest[last]


def union_length(start: Int64s, end: Int64s) -> int:
    """The length of the union in the unit of the input."""
    starts, ends = union(start, end)
    return int((ends - starts).sum())


def covered_until(starts: Int64s, ends: Int64s, times: Int64s) -> Int64s:
    """How much of a union (as `union` gives it) lies before each time; shape of `times`."""
    if not len(starts):
        return np.zeros(len(times), dtype=np.int64)
    before = np.concatenate(([0], np.cumsum(ends - starts)))
    index = np.searchsorted(starts, times, side="right") - 1
    inside = np.maximum(index, 0)
    partial = np.clip(times - starts[inside], 0, ends[inside] - starts[inside])
    return np.where(index < 0, 0, before[inside] + partial)
