"""Sets of intervals of time: unions, in which nothing counts twice, how much of one
lies in another, and which of many intervals contains a time; and many small tracks at
once: one numpy call for each of 100,000 tracks would take a minute."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fusetui.trace.model.arrays import Int64s, Rows, distinct

SMALL = 64  # rows of a track that are not worth a call of their own
MANY = 500  # small tracks that are worth being combined


def overlapping(bounds: Int64s, start: Int64s, end: Int64s) -> Rows:
    """The tracks in which a slice starts before the previous one has ended; in all
    others nothing is nested. Track n has the rows [bounds[n], bounds[n + 1])."""
    early = np.flatnonzero(start[1:] < end[:-1]) + 1
    first = np.searchsorted(early, bounds[:-1], side="right")
    return np.flatnonzero(np.searchsorted(early, bounds[1:], side="left") > first)


def small_ones(bounds: Int64s, tracks: Rows) -> Rows:
    """Those of the tracks that are combined; none if there are few."""
    small = tracks[np.diff(bounds)[tracks] <= SMALL]
    return small if len(small) > MANY else small[:0]


def rows_of(bounds: Int64s, tracks: Rows) -> tuple[Rows, Rows]:
    """The rows of these tracks, and where each track begins in that list, then its
    length."""
    sizes = np.diff(bounds)[tracks]
    return ranges(bounds[tracks], sizes), np.concatenate(([0], np.cumsum(sizes)))


def ranges(first: Rows, sizes: Rows) -> Rows:
    """The numbers from each `first` on, so many of each, one after the other."""
    found: Rows = np.arange(sizes.sum()) + np.repeat(
        first - (np.cumsum(sizes) - sizes), sizes
    )
    return found


def as_one(begins: Rows, start: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """Starts and ends as small integers that keep the order within each track, with
    each track after the previous one: as if all slices were on one track."""
    own = np.repeat(np.arange(len(begins) - 1), np.diff(begins))
    times, track = np.concatenate((start, end)), np.concatenate((own, own))
    order = np.lexsort((times, track))
    later = (np.diff(times[order]) != 0) | (np.diff(track[order]) != 0)
    number = np.empty(len(times), dtype=np.int64)
    number[order] = np.concatenate(([0], np.cumsum(later)))
    return number[: len(start)], number[len(start) :]


class Cover(NamedTuple):
    """Sorted, disjoint intervals [start, end) in ns; arrays of shape [n]."""

    start: Int64s
    end: Int64s
    number: Int64s | int = 1  # how often each counts

    @property
    def ns(self) -> int:
        return int((self.end - self.start).sum())

    def within(self, begin: Int64s, end: Int64s) -> Int64s:
        """How much of it lies in each [begin, end) (ns); shape of `begin`."""
        before, until = covered_until(
            self.start, self.end, np.stack((begin, end)), self.number
        )
        covered: Int64s = until - before
        return covered

    def only(self, cover: Cover) -> Cover:
        """The parts of it that lie in a cover."""
        return pieces(self, cover)[0]

    def place_of(self, times: Int64s) -> Rows:
        """Which interval each time lies in, -1 for none."""
        if not len(self.start):
            return np.full(len(times), -1, dtype=np.intp)
        place = np.searchsorted(self.start, times, side="right") - 1
        return np.where((place >= 0) & (times < self.end[place]), place, -1)


FOREVER = np.iinfo(np.int64).max
NOTHING = Cover(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def union(start: Int64s, end: Int64s) -> Cover:
    """The time that intervals cover, which may be in any order; shape [n]."""
    if not len(start):
        return Cover(start, end)
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    latest = np.maximum.accumulate(end)
    first = np.concatenate(([True], start[1:] > latest[:-1]))
    last = np.concatenate((first[1:], [True]))
    return Cover(start[first], latest[last])


def union_length(start: Int64s, end: Int64s) -> int:
    """The length of the union, in the unit of the input."""
    return union(start, end).ns


def union_length_of_each(begins: Rows, start: Int64s, end: Int64s) -> int:
    """The total length of the unions of several lists of intervals.

    List n is [begins[n], begins[n + 1]) of the intervals.
    """
    if len(begins) - 1 > MANY:
        first, last = as_one(begins, start, end)
        times = np.zeros(int(last.max()) + 1, dtype=np.int64)
        times[first], times[last] = start, end
        found = union(first, last)
        return Cover(times[found.start], times[found.end]).ns
    return sum(union_length(start[a:b], end[a:b]) for a, b in pairwise(begins.tolist()))


def covered_until(
    starts: Int64s, ends: Int64s, times: Int64s, number: Int64s | int = 1
) -> Int64s:
    """How much of a union (as returned by `union`) lies before each time; shape of
    `times`. `number`: how often each interval counts."""
    if not len(starts):
        return np.zeros(times.shape, dtype=np.int64)
    before = np.concatenate(([0], np.cumsum((ends - starts) * number)))
    index = np.searchsorted(starts, times, side="right") - 1
    inside = np.maximum(index, 0)
    partial = np.clip(times - starts[inside], 0, ends[inside] - starts[inside])
    partial *= number if isinstance(number, int) else number[inside]
    return np.where(index < 0, 0, before[inside] + partial)


def joined(*covers: Cover) -> Cover:
    """The time that any of them covers."""
    covers = tuple(cover for cover in covers if len(cover.start)) or (NOTHING,)
    starts, ends = ([cover[side] for cover in covers] for side in (0, 1))
    return (
        union(np.concatenate(starts), np.concatenate(ends))
        if len(covers) > 1
        else covers[0]
    )


def outside(a: Cover) -> Cover:
    """All other time."""
    return Cover(np.append(-FOREVER, a.end), np.append(a.start, FOREVER))


def counted(start: Int64s, end: Int64s) -> Cover:
    """Where any of these intervals lie, and how many of them; they may be in any
    order."""
    times = np.concatenate((start, end))
    order = np.argsort(times, kind="stable")
    times, number = times[order], np.cumsum(np.where(order < len(start), 1, -1))[:-1]
    kept = (number > 0) & (times[1:] > times[:-1])
    return Cover(times[:-1][kept], times[1:][kept], number[kept])


def pieces(stretches: Cover, cover: Cover) -> tuple[Cover, Rows]:
    """The pieces of some stretches inside a cover, and the stretch of each piece. The
    stretches may be in any order, and overlap."""
    first = np.searchsorted(cover.end, stretches.start, side="right")
    last = np.searchsorted(cover.start, stretches.end, side="left")
    sizes = np.where(stretches.end > stretches.start, last - first, 0)
    stretch = np.repeat(np.arange(len(sizes)), sizes)
    part = ranges(first, sizes)
    start = np.maximum(stretches.start[stretch], cover.start[part])
    end = np.minimum(stretches.end[stretch], cover.end[part])
    number = stretches.number
    return Cover(
        start, end, number if isinstance(number, int) else number[stretch]
    ), stretch


def common(a: Cover, b: Cover) -> Cover:
    start, end, _ = pieces(a, b)[0]
    return Cover(start[start < end], end[start < end])


def without(a: Cover, b: Cover) -> Cover:
    return common(a, outside(b))


def innermost(start: Int64s, end: Int64s) -> tuple[Int64s, Rows]:
    """Which interval is the innermost from each of the returned times to the next, -1
    for none.

    The intervals are sorted by (start, -duration). Innermost is the one that started
    last, the shortest of several that started together.
    """
    times = distinct(np.concatenate((start, end)))
    last = np.searchsorted(start, times, side="right") - 1
    return times, Reach(end).last(last, times)


class Reach:
    """Finds the last of some intervals that contains a time; `end` is sorted by the
    starts.

    A tree of maxima: level n holds the latest end of each 2**n neighbors. So each
    answer takes O(log n), even if the intervals do not nest.
    """

    def __init__(self, end: Int64s) -> None:
        self._levels = [end]
        while len(self._levels[-1]) > 1:
            below = self._levels[-1]
            even = len(below) // 2 * 2
            pairs = below[:even].reshape(-1, 2).max(axis=1)
            self._levels.append(np.concatenate((pairs, below[even:])))

    def last(self, until: Rows, times: Int64s) -> Rows:
        """The last index that is not after `until` and whose interval ends after the
        time; -1 for none. All three have the same shape; `until` may be -1."""
        node, level = self._climbed(until, times)
        for number in range(int(level.max(initial=0)), 0, -1):
            here = np.flatnonzero(level >= number)
            ends, right = self._levels[number - 1], 2 * node[here] + 1
            node[here] = np.where(ends[right] > times[here], right, right - 1)
        return node

    def _climbed(self, until: Rows, times: Int64s) -> tuple[Rows, Rows]:
        """The last node that contains no interval after `until` but one that ends after
        the time: its index in its level, -1 for none, and that level."""
        node, level = (
            np.full(len(until), -1, dtype=np.intp),
            np.zeros(len(until), dtype=np.intp),
        )
        left = np.flatnonzero(until >= 0)
        # last: of the nodes of the level
        last, times = until[left].astype(np.intp), times[left]
        for number, ends in enumerate(self._levels):
            found = ends[last] > times
            node[left[found]], level[left[found]] = last[found], number
            # to the last node above that contains none after `last`
            going = ~found & (last > 0)
            left, last, times = left[going], (last[going] + 1) // 2 - 1, times[going]
        return node, level
