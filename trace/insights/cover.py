"""Unions of intervals of time, how much of them lies in others, and which interval is innermost."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.layout.reach import Reach
from fusetui.trace.model.intervals import covered_until, distinct, union

Int64s = NDArray[np.int64]
Places = NDArray[np.intp]
Flags = NDArray[np.bool_]


class Cover(NamedTuple):
    """Sorted, disjoint intervals [start, end) in ns; arrays of shape [n]."""

    start: Int64s
    end: Int64s

    def within(self, begin: Int64s, end: Int64s) -> Int64s:
        """How much of it lies in each [begin, end) (ns); shape of `begin`."""
        both = covered_until(self.start, self.end, np.concatenate((begin, end)))
        covered: Int64s = both[len(begin) :] - both[: len(begin)]
        return covered

    def place_of(self, times: Int64s) -> Places:
        """Which interval each time lies in, -1 for none."""
        if not len(self.start):
            return np.full(len(times), -1, dtype=np.intp)
        place = np.searchsorted(self.start, times, side="right") - 1
        return np.where((place >= 0) & (times < self.end[place]), place, -1)


FOREVER = np.iinfo(np.int64).max
NOTHING = Cover(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def cover_of(start: Int64s, end: Int64s) -> Cover:
    """The time that these intervals cover; they may be in any order."""
    return Cover(*union(start, end))


def joined(*covers: Cover) -> Cover:
    """The time that any of them covers."""
    covers = tuple(cover for cover in covers if len(cover.start)) or (NOTHING,)
    if len(covers) == 1:
        return covers[0]
    return cover_of(
        np.concatenate([cover.start for cover in covers]),
        np.concatenate([cover.end for cover in covers]),
    )


def outside(a: Cover) -> Cover:
    """All other time."""
    end, begin = np.append(a.start, FOREVER), np.concatenate(([-FOREVER], a.end))
    return Cover(begin, end)


def shared(intervals: Cover, begin: Int64s, end: Int64s) -> Int64s:
    """How much of some intervals lies in each [begin, end) (ns); shape of `begin`. They may be in
    any order, and what several of them cover counts for each."""
    # the sum of max(t - x, 0) over the starts x, minus that over the ends, is what lies before t;
    # it may be larger than 64 bits, but the difference of two is exact
    until = np.zeros((2, len(begin)), dtype=np.int64)
    for found, times in zip(until, (begin, end), strict=True):
        for sign, edges in ((1, np.sort(intervals.start)), (-1, np.sort(intervals.end))):
            before = edges.searchsorted(times)
            found += sign * (before * times - np.concatenate(([0], np.cumsum(edges)))[before])
    both: Int64s = until[1] - until[0]
    return both


def common(a: Cover, b: Cover) -> Cover:
    """The intersection of two covers."""
    parts, inside = _divided(a, b)
    return Cover(parts.start[inside], parts.end[inside])


def without(a: Cover, b: Cover) -> Cover:
    """The difference of two covers."""
    parts, inside = _divided(a, b)
    return Cover(parts.start[~inside], parts.end[~inside])


def _divided(a: Cover, b: Cover) -> tuple[Cover, Flags]:
    """The first one, cut wherever the second begins or ends, and which parts lie in the second."""
    edges = distinct(np.concatenate((*a, *b)))
    begin, end = edges[:-1], edges[1:]
    own = a.within(begin, end) > 0
    parts = Cover(begin[own], end[own])
    return parts, b.within(*parts) > 0


def innermost(start: Int64s, end: Int64s) -> tuple[Int64s, Places]:
    """Which interval is the innermost from each of the returned times to the next, -1 for none.

    The intervals are sorted by (start, -duration). Innermost is the one that started last, the
    shortest of several that started together.
    """
    times = distinct(np.concatenate((start, end)))
    last = np.searchsorted(start, times, side="right") - 1
    return times, Reach(end).last(last, times)
