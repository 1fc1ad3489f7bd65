"""Sets of intervals of time: unions, in which nothing counts twice, how much of one
lies in another, and which of many intervals contains a time; and many small tracks at
once: one numpy call for each of 100,000 tracks would take a minute."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fusetui.trace.model.arrays import Int64s, Rows, distinct

MAX_SMALL_TRACK_ROWS = 64
"""A track with more rows is worth a call of numpy of its own."""
MIN_COMBINED_TRACKS = 500
"""So many small tracks, and more, are worth being combined."""


def overlapping_tracks(bounds: Int64s, start: Int64s, end: Int64s) -> Rows:
    """The tracks in which a slice starts before the previous one has ended; in all
    others nothing is nested. Track n has the rows [bounds[n], bounds[n + 1])."""
    starts_early = np.flatnonzero(start[1:] < end[:-1]) + 1  # rows
    # the first row of a track has none before it on its track
    first_early = np.searchsorted(starts_early, bounds[:-1], side="right")
    end_early = np.searchsorted(starts_early, bounds[1:], side="left")
    return np.flatnonzero(end_early > first_early)


def small_tracks(bounds: Int64s, tracks: Rows) -> Rows:
    """Those of the tracks that are to be combined; none if there are few."""
    small = tracks[np.diff(bounds)[tracks] <= MAX_SMALL_TRACK_ROWS]
    return small if len(small) > MIN_COMBINED_TRACKS else small[:0]


def rows_of_tracks(bounds: Int64s, tracks: Rows) -> tuple[Rows, Rows]:
    """The rows of these tracks in one list, and the bounds of the tracks in it: where
    each begins, then the length of the list."""
    sizes = np.diff(bounds)[tracks]
    bounds_in_list = np.concatenate(([0], np.cumsum(sizes)))
    return ranges(bounds[tracks], sizes), bounds_in_list


def ranges(first: Rows, sizes: Rows) -> Rows:
    """The numbers from each `first` on, so many of each, one after the other.

    >>> ranges(np.array([5, 20]), np.array([2, 3])).tolist()
    [5, 6, 20, 21, 22]
    """
    begins_at = np.cumsum(sizes) - sizes  # of each range in the result
    numbers: Rows = np.arange(sizes.sum()) + np.repeat(first - begins_at, sizes)
    return numbers


def as_one_track(bounds: Rows, start: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """Starts and ends as small integers that keep the order within each track, with
    each track after the previous one: as if all slices were on one track. Track n has
    the slices [bounds[n], bounds[n + 1])."""
    track_of_slice = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    times = np.concatenate((start, end))
    track = np.concatenate((track_of_slice, track_of_slice))
    order = np.lexsort((times, track))
    is_new_time = np.diff(times[order]) != 0
    is_new_track = np.diff(track[order]) != 0
    number_in_order = np.cumsum(is_new_time | is_new_track)
    number = np.empty(len(times), dtype=np.int64)
    number[order] = np.concatenate(([0], number_in_order))
    return number[: len(start)], number[len(start) :]


class Cover(NamedTuple):
    """Sorted, disjoint intervals [start, end) in ns; arrays of shape [n]."""

    start: Int64s
    end: Int64s
    number: Int64s | int = 1  # how often each counts

    @property
    def ns(self) -> int:
        """The length of all intervals, each counted once."""
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
    is_sorted = not (start[1:] < start[:-1]).any()
    if not is_sorted:
        order = np.argsort(start, kind="stable")
        start = start[order]
        end = end[order]
    latest_end = np.maximum.accumulate(end)
    begins_behind_gap = start[1:] > latest_end[:-1]
    is_first = np.concatenate(([True], begins_behind_gap))
    is_last = np.concatenate((begins_behind_gap, [True]))
    return Cover(start[is_first], latest_end[is_last])


def union_length(start: Int64s, end: Int64s) -> int:
    """The length of the union, in the unit of the input."""
    return union(start, end).ns


def union_length_of_each(begins: Rows, start: Int64s, end: Int64s) -> int:
    """The total length of the unions of several lists of intervals.

    List n has the intervals [begins[n], begins[n + 1]).
    """
    if len(begins) - 1 > MIN_COMBINED_TRACKS:
        start_number, end_number = as_one_track(begins, start, end)
        time_of_number = np.zeros(int(end_number.max()) + 1, dtype=np.int64)
        time_of_number[start_number] = start
        time_of_number[end_number] = end
        numbers = union(start_number, end_number)
        return Cover(time_of_number[numbers.start], time_of_number[numbers.end]).ns
    length = 0
    for first, last in pairwise(begins.tolist()):
        length += union_length(start[first:last], end[first:last])
    return length


def covered_until(
    starts: Int64s, ends: Int64s, times: Int64s, number: Int64s | int = 1
) -> Int64s:
    """How much of a union (as returned by `union`) lies before each time; shape of
    `times`. `number`: how often each interval counts."""
    if not len(starts):
        return np.zeros(times.shape, dtype=np.int64)
    until_end_of_each = np.cumsum((ends - starts) * number)
    until_start_of_each = np.concatenate(([0], until_end_of_each))
    last_begun = np.searchsorted(starts, times, side="right") - 1
    interval = np.maximum(last_begun, 0)
    length = ends[interval] - starts[interval]
    within_interval = np.clip(times - starts[interval], 0, length)
    within_interval *= number if isinstance(number, int) else number[interval]
    covered = until_start_of_each[interval] + within_interval
    return np.where(last_begun < 0, 0, covered)


def joined(*covers: Cover) -> Cover:
    """The time that any of them covers."""
    not_empty = [cover for cover in covers if len(cover.start)]
    if not not_empty:
        return NOTHING
    if len(not_empty) == 1:
        return not_empty[0]
    starts = np.concatenate([cover.start for cover in not_empty])
    ends = np.concatenate([cover.end for cover in not_empty])
    return union(starts, ends)


def outside(a: Cover) -> Cover:
    """All other time."""
    return Cover(np.append(-FOREVER, a.end), np.append(a.start, FOREVER))


def counted(start: Int64s, end: Int64s) -> Cover:
    """Where any of these intervals lie, and how many of them; they may be in any
    order."""
    times = np.concatenate((start, end))
    order = np.argsort(times, kind="stable")
    times = times[order]
    change = np.where(order < len(start), 1, -1)
    open_after = np.cumsum(change)[:-1]  # intervals that are open after each time
    is_covered = (open_after > 0) & (times[1:] > times[:-1])
    return Cover(
        start=times[:-1][is_covered],
        end=times[1:][is_covered],
        number=open_after[is_covered],
    )


def pieces(stretches: Cover, cover: Cover) -> tuple[Cover, Rows]:
    """The pieces of some stretches inside a cover, and the stretch of each piece. The
    stretches may be in any order, and overlap."""
    # the intervals of the cover that each stretch touches: [first, end)
    first = np.searchsorted(cover.end, stretches.start, side="right")
    end = np.searchsorted(cover.start, stretches.end, side="left")
    counts = np.where(stretches.end > stretches.start, end - first, 0)
    stretch = np.repeat(np.arange(len(counts)), counts)  # of each piece, as below
    interval = ranges(first, counts)
    number = stretches.number
    cut = Cover(
        start=np.maximum(stretches.start[stretch], cover.start[interval]),
        end=np.minimum(stretches.end[stretch], cover.end[interval]),
        number=number if isinstance(number, int) else number[stretch],
    )
    return cut, stretch


def common(a: Cover, b: Cover) -> Cover:
    """The time that both cover; each moment counts once."""
    cut, _ = pieces(a, b)
    is_not_empty = cut.start < cut.end
    return Cover(cut.start[is_not_empty], cut.end[is_not_empty])


def without(a: Cover, b: Cover) -> Cover:
    """The time that `a` covers and `b` does not; each moment counts once."""
    return common(a, outside(b))


def innermost(start: Int64s, end: Int64s) -> tuple[Int64s, Rows]:
    """Which interval is the innermost from each of the returned times to the next, -1
    for none.

    The intervals are sorted by (start, -duration). Innermost is the one that started
    last, the shortest of several that started together.
    """
    times = distinct(np.concatenate((start, end)))
    last_begun = np.searchsorted(start, times, side="right") - 1
    return times, EnclosingIndex(end).last(last_begun, times)


class EnclosingIndex:
    """Finds the last of some intervals that contains a time. The intervals are in order
    of their starts; `end` has their ends.

    A tree of maxima: level n holds the latest end of each 2**n neighbors. So each
    answer takes O(log n), even if the intervals do not nest.
    """

    def __init__(self, end: Int64s) -> None:
        """`end` has the end of each interval; the intervals are in order of their
        starts."""
        self._levels = [end]
        below = end
        while len(below) > 1:
            even_length = len(below) // 2 * 2
            later_of_pairs = below[:even_length].reshape(-1, 2).max(axis=1)
            without_neighbor = below[even_length:]
            level = np.concatenate((later_of_pairs, without_neighbor))
            self._levels.append(level)
            below = level

    def last(self, until: Rows, times: Int64s) -> Rows:
        """For each pair of an index and a time: the last interval that is not after the
        index `until` and ends after the time; -1 for none. All three arrays have the
        same shape; `until` may be -1."""
        node, level_of_node = self._climb(until, times)
        highest = int(level_of_node.max(initial=0))
        for level in range(highest, 0, -1):
            descending = np.flatnonzero(level_of_node >= level)
            later_child = 2 * node[descending] + 1
            end_of_later = self._levels[level - 1][later_child]
            is_in_later = end_of_later > times[descending]
            node[descending] = np.where(is_in_later, later_child, later_child - 1)
        return node

    def _climb(self, until: Rows, times: Int64s) -> tuple[Rows, Rows]:
        """For each pair the last node that contains no interval after `until` but one
        that ends after the time: its index in its level, -1 for none; and that
        level."""
        node_of_pair = np.full(len(until), -1, dtype=np.intp)
        level_of_pair = np.zeros(len(until), dtype=np.intp)
        climbing = np.flatnonzero(until >= 0)  # the pairs without a node so far
        node = until[climbing].astype(np.intp)  # where each of them is on this level
        time = times[climbing]
        for level, ends in enumerate(self._levels):
            ends_later = ends[node] > time
            arrived = climbing[ends_later]
            node_of_pair[arrived] = node[ends_later]
            level_of_pair[arrived] = level
            # to the last node of the next level that contains none after this node
            climbs = ~ends_later & (node > 0)
            climbing = climbing[climbs]
            node = (node[climbs] + 1) // 2 - 1
            time = time[climbs]
        return node_of_pair, level_of_pair
