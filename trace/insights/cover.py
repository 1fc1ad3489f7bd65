"""Stretches of time that something covers, how much of them lies where, and what is innermost."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.intervals import covered_until, distinct, union

Int64s = NDArray[np.int64]
Places = NDArray[np.intp]


class Cover(NamedTuple):
    """Sorted, disjoint intervals [start, end) in ns; arrays of shape [n]."""

    start: Int64s
    end: Int64s

    def within(self, begin: Int64s, end: Int64s) -> Int64s:
        """How much of it lies in each [begin, end) (ns); shape of `begin`."""
        both = covered_until(self.start, self.end, np.concatenate((begin, end)))
        covered: Int64s = both[len(begin) :] - both[: len(begin)]
        return covered


NOTHING = Cover(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def cover_of(start: Int64s, end: Int64s) -> Cover:
    """The time that these intervals cover; they come in any order."""
    return Cover(*union(start, end))


def joined(*covers: Cover) -> Cover:
    """What any of them covers."""
    return cover_of(
        np.concatenate([cover.start for cover in covers]),
        np.concatenate([cover.end for cover in covers]),
    )


class Reach:
    """Answers which of some intervals, at a time, started last; `end` is in order of starts.

    A tree of maxima: level n holds the latest end of each 2**n neighbours. So the answer costs
    log n whatever the intervals are.
    """

    def __init__(self, end: Int64s) -> None:
        self._levels = [end]
        while len(self._levels[-1]) > 1:
            below = self._levels[-1]
            above = below[::2].copy()
            np.maximum(above[: len(below) // 2], below[1::2], out=above[: len(below) // 2])
            self._levels.append(above)

    def last(self, until: Places, times: Int64s) -> Places:
        """The last place that is not after `until` and whose interval ends after the time; -1 for
        none. All three have the same shape; `until` may be -1."""
        place, level = self._climb(until, times)
        for number in range(len(self._levels) - 1, 0, -1):
            inside = np.flatnonzero((level == number) & (place >= 0))
            right = 2 * place[inside] + 1
            below = self._levels[number - 1]
            known = np.minimum(right, len(below) - 1)
            reaches = (right < len(below)) & (below[known] > times[inside])
            place[inside] = np.where(reaches, right, right - 1)
            level[inside] = number - 1
        return place

    def _climb(self, until: Places, times: Int64s) -> tuple[Places, Places]:
        """The lowest node whose intervals are not after `until` and one of which ends after the
        time, as its place in its level."""
        place, level = until.copy(), np.zeros(len(until), dtype=np.intp)
        active = np.flatnonzero(place >= 0)
        for number, ends in enumerate(self._levels):
            here = place[active]
            missed = ends[here] <= times[active]
            sibling = missed & (here % 2 == 1)
            sibling[sibling] = ends[here[sibling] - 1] > times[active[sibling]]
            here = np.where(sibling, here - 1, here)
            found = ~missed | sibling
            place[active], level[active] = here, number
            active, here = active[~found], here[~found]
            place[active] = here // 2 - 1
            active = active[place[active] >= 0]
            if not len(active):
                break
        return place, level


def innermost(start: Int64s, end: Int64s) -> tuple[Int64s, Places]:
    """Which interval is the innermost from each of the returned times to the next, -1 for none.

    The intervals are sorted by (start, -duration). Innermost is the one that started last, the
    shortest of several that started together.
    """
    times = distinct(np.concatenate((start, end)))
    last = np.searchsorted(start, times, side="right") - 1
    return times, Reach(end).last(last, times)
