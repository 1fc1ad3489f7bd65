"""Unions of integer time intervals: busy times in which nothing counts twice."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.small_tracks import MANY, as_one

Int64s = NDArray[np.int64]


def distinct(values: Int64s) -> Int64s:
    """Each value once, sorted. numpy.unique hashes them first (numpy 2.3), which is slower where
    few are equal."""
    found = np.sort(values)
    new = np.ones(len(found), dtype=np.bool_)
    new[1:] = found[1:] != found[:-1]
    return found[new]


def union(start: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """The union of intervals in any order, shape [n]: sorted, disjoint starts and ends."""
    if not len(start):
        return start, end
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    latest = np.maximum.accumulate(end)
    first = np.concatenate(([True], start[1:] > latest[:-1]))
    last = np.concatenate((first[1:], [True]))
    return start[first], latest[last]


def union_length(start: Int64s, end: Int64s) -> int:
    """The length of the union, in the unit of the input."""
    starts, ends = union(start, end)
    return int((ends - starts).sum())


def union_length_of_each(begins: NDArray[np.intp], start: Int64s, end: Int64s) -> int:
    """The total length of the unions of several lists of intervals.

    List n is [begins[n], begins[n + 1]) of the intervals.
    """
    if len(begins) - 1 > MANY:
        first, last = as_one(begins, start, end)
        times = np.zeros(int(last.max()) + 1, dtype=np.int64)
        times[first], times[last] = start, end
        starts, ends = union(first, last)
        return int((times[ends] - times[starts]).sum())
    return sum(union_length(start[a:b], end[a:b]) for a, b in pairwise(begins.tolist()))


def covered_until(starts: Int64s, ends: Int64s, times: Int64s, number: Int64s | int = 1) -> Int64s:
    """How much of a union (as returned by `union`) lies before each time; shape of `times`.
    `number`: how often each interval counts."""
    if not len(starts):
        return np.zeros(len(times), dtype=np.int64)
    before = np.concatenate(([0], np.cumsum((ends - starts) * number)))
    index = np.searchsorted(starts, times, side="right") - 1
    inside = np.maximum(index, 0)
    partial = np.clip(times - starts[inside], 0, ends[inside] - starts[inside])
    partial *= number if isinstance(number, int) else number[inside]
    return np.where(index < 0, 0, before[inside] + partial)
