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


class Counted(NamedTuple):
    """Sorted, disjoint intervals [start, end) in ns, of which each counts several times; arrays of
    shape [n]."""

    start: Int64s
    end: Int64s
    number: Int64s

    def within(self, begin: Int64s, end: Int64s) -> Int64s:
        """How much of it lies in each [begin, end) (ns); shape of `begin`."""
        times = np.concatenate((begin, end))
        both = covered_until(self.start, self.end, times, self.number)
        covered: Int64s = both[len(begin) :] - both[: len(begin)]
        return covered

    def only(self, cover: Cover) -> Counted:
        """The parts of it that lie in a cover."""
        (start, end), place = pieces(self, cover)
        return Counted(start, end, self.number[place])


def counted(start: Int64s, end: Int64s) -> Counted:
    """Where any of these intervals lie, and how many of them; they may be in any order."""
    times = np.concatenate((start, end))
    order = np.argsort(times, kind="stable")
    times, number = times[order], np.cumsum(np.where(order < len(start), 1, -1))[:-1]
    kept = (number > 0) & (times[1:] > times[:-1])
    return Counted(times[:-1][kept], times[1:][kept], number[kept])


def pieces(stretches: Cover | Counted, cover: Cover) -> tuple[Cover, Places]:
    """The pieces of some stretches inside a cover, and the stretch of each piece. The stretches may
    be in any order, and overlap."""
    first = np.searchsorted(cover.end, stretches.start, side="right")
    last = np.searchsorted(cover.start, stretches.end, side="left")
    sizes = np.where(stretches.end > stretches.start, last - first, 0)
    stretch = np.repeat(np.arange(len(sizes)), sizes)
    part = np.arange(len(stretch)) - np.repeat(np.cumsum(sizes) - sizes - first, sizes)
    start = np.maximum(stretches.start[stretch], cover.start[part])
    return Cover(start, np.minimum(stretches.end[stretch], cover.end[part])), stretch


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
