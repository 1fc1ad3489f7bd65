"""Sets of time intervals: their union, their intersection, and the interval that
contains a time.

Traces can have 100,000 tracks with a few slices each. One numpy call for each of them
would take a minute, so functions here can treat many small tracks as if they were one
(`as_one_track`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fusetui.trace.model.arrays import (
    Flags,
    Int64s,
    Rows,
    begins_runs,
    distinct,
    ends_runs,
    group_numbers,
    last_at_or_before,
    numbers_of_sized_groups,
    prefix_sums,
)

MAX_SMALL_TRACK_ROWS = 64
"""A track with more rows is worth a call of numpy of its own."""
MIN_COMBINED_TRACKS = 500
"""Small tracks are combined if there are more of them than this."""

NO_INTERVAL = -1
"""The index of an interval where there is none."""


def overlapping_tracks(bounds: Int64s, start: Int64s, end: Int64s) -> Rows:
    """Find the tracks in which some slice starts before the previous one has ended.

    Only these tracks need nesting; in all others every slice is a root.

    >>> start = np.array([0, 10, 0, 5])  # two tracks of two slices
    >>> overlapping_tracks(np.array([0, 2, 4]), start, start + 10).tolist()
    [1]

    Args:
        bounds: Where tracks begin: track n has the rows [bounds[n], bounds[n + 1]).
        start: The start of each row; ascending within a track.
        end: The end of each row.

    Returns:
        The indices of these tracks, ascending.
    """
    rows_that_overlap = np.flatnonzero(start[1:] < end[:-1]) + 1

    # The first row of a track is compared with the last one of another track, so only
    # the rows after it count.
    overlaps_until_first_row = np.searchsorted(
        rows_that_overlap, bounds[:-1], side="right"
    )
    overlaps_until_last_row = np.searchsorted(
        rows_that_overlap, bounds[1:], side="left"
    )
    return np.flatnonzero(overlaps_until_last_row > overlaps_until_first_row)


def small_tracks(bounds: Int64s, tracks: Rows) -> Rows:
    """Choose the tracks that are worth combining into one.

    Args:
        bounds: Where tracks begin: track n has the rows [bounds[n], bounds[n + 1]).
        tracks: The indices of the tracks to choose from.

    Returns:
        The tracks with at most MAX_SMALL_TRACK_ROWS rows. None at all if there are too
        few of them for combining to save time.
    """
    rows_of_track = np.diff(bounds)
    small = tracks[rows_of_track[tracks] <= MAX_SMALL_TRACK_ROWS]
    is_worth_it = len(small) > MIN_COMBINED_TRACKS
    return small if is_worth_it else small[:0]


def rows_of_tracks(bounds: Int64s, tracks: Rows) -> tuple[Rows, Rows]:
    """List the rows of some tracks, one track after the other.

    >>> rows, bounds = rows_of_tracks(np.array([0, 2, 5, 9]), np.array([0, 2]))
    >>> rows.tolist(), bounds.tolist()
    ([0, 1, 5, 6, 7, 8], [0, 2, 6])

    Args:
        bounds: Where tracks begin: track n has the rows [bounds[n], bounds[n + 1]).
        tracks: The indices of the tracks.

    Returns:
        The rows, and the bounds of the tracks in this list, in the same form as
        `bounds`.
    """
    sizes = np.diff(bounds)[tracks]
    return ranges(bounds[tracks], sizes), prefix_sums(sizes)


def ranges(first: Rows, sizes: Rows) -> Rows:
    """Concatenate many ranges of integers.

    >>> ranges(np.array([5, 20]), np.array([2, 3])).tolist()
    [5, 6, 20, 21, 22]

    Args:
        first: The first integer of each range.
        sizes: How many integers each range has.
    """
    # In the result, range n begins at index sizes[0] + ... + sizes[n - 1]. What its
    # integers exceed their index by is the same for all of them.
    index_of_first = np.cumsum(sizes) - sizes
    excess = np.repeat(first - index_of_first, sizes)
    integers: Rows = np.arange(sizes.sum()) + excess
    return integers


def order_by_start(start: Int64s, end: Int64s) -> Rows:
    """Sort intervals by start; of those that start together, the longest comes first.

    So an interval comes before those inside it. Equal ones keep their order. Where most
    intervals are sorted already, this is much faster than np.lexsort.

    >>> start, end = np.array([5, 0, 0]), np.array([6, 3, 9])
    >>> order_by_start(start, end).tolist()
    [2, 1, 0]

    Returns:
        The indices of the intervals in that order.
    """
    order = np.argsort(start, kind="stable")

    # Sort again, by length, only those that start together.
    ascending = start[order]
    is_tied = ~(begins_runs(ascending) & ends_runs(ascending))
    positions = np.flatnonzero(is_tied)
    tied = order[positions]
    negative_length = start[tied] - end[tied]
    order[positions] = tied[np.lexsort((negative_length, start[tied]))]
    return order


def are_alone(start: Int64s, end: Int64s) -> Flags:
    """Mark the intervals that overlap no other one.

    Intervals that only touch do not overlap.

    >>> start, end = np.array([0, 5, 6, 9]), np.array([5, 8, 7, 12])
    >>> are_alone(start, end).tolist()
    [True, False, False, True]

    Args:
        start: The start of each interval, ascending.
        end: The end of each interval.
    """
    latest_end = np.maximum.accumulate(end)
    starts_after_all_before = np.append(True, latest_end[:-1] <= start[1:])
    ends_before_next = np.append(end[:-1] <= start[1:], True)
    is_alone: Flags = starts_after_all_before & ends_before_next
    return is_alone[: len(start)]  # one too long without an interval


def as_one_track(bounds: Rows, start: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """Replace times by small integers that lay all tracks end to end.

    Within a track the integers have the same order as the times. All integers of a
    track are larger than those of the track before it. So a function for one track can
    treat all of them in one call.

    >>> start = np.array([100, 150, 120])  # two slices of one track, one of another
    >>> starts, ends = as_one_track(np.array([0, 2, 3]), start, start + 50)
    >>> starts.tolist(), ends.tolist()
    ([0, 1, 3], [1, 2, 4])

    Args:
        bounds: Where tracks begin: track n has the slices [bounds[n], bounds[n + 1]).
        start: The start of each slice; at least one.
        end: The end of each slice.

    Returns:
        An integer for each start, and one for each end.
    """
    track_of_slice = numbers_of_sized_groups(np.diff(bounds))
    track = np.concatenate((track_of_slice, track_of_slice))
    times = np.concatenate((start, end))
    by_track_and_time = np.lexsort((times, track))
    is_new = begins_runs(track[by_track_and_time], times[by_track_and_time])

    integers = np.empty(len(times), dtype=np.int64)
    integers[by_track_and_time] = group_numbers(is_new)
    return integers[: len(start)], integers[len(start) :]


class Cover(NamedTuple):
    """A set of time: sorted, disjoint intervals [start, end) in ns, of shape [n].

    `number` is how often each interval counts, which matters where time is summed over
    several threads or devices.
    """

    start: Int64s
    end: Int64s
    number: Int64s | int = 1

    @property
    def ns(self) -> int:
        """The length of all intervals together; time that several cover counts once."""
        return int((self.end - self.start).sum())

    def within(self, begin: Int64s, end: Int64s) -> Int64s:
        """Measure how much of this set lies in each of the windows [begin, end).

        The set [10, 20), [30, 40) has 5 ns in the window [0, 15), and 15 in [15, 40).

        Args:
            begin: The begin of each window, in ns.
            end: The end of each window, in ns.

        Returns:
            The covered time in ns, in the shape of `begin`.
        """
        covered_before, covered_until_end = covered_until(
            self.start, self.end, np.stack((begin, end)), self.number
        )
        covered: Int64s = covered_until_end - covered_before
        return covered

    def shifted(self, ns: int) -> Cover:
        """Return this set moved by some ns, to later times if that is above 0."""
        return Cover(self.start + ns, self.end + ns, self.number)

    def only(self, cover: Cover) -> Cover:
        """Return the parts of this set that lie in another one."""
        return pieces(self, cover)[0]

    def place_of(self, times: Int64s) -> Rows:
        """Find the interval that contains each time; NO_INTERVAL where none does.

        In the set [10, 20), [30, 40), the times 10, 20 and 35 give 0, -1 and 1.
        """
        if not len(self.start):
            return np.full(len(times), NO_INTERVAL, dtype=np.intp)

        last_started = last_at_or_before(self.start, times)
        has_started = last_started >= 0
        is_still_open = times < self.end[last_started]
        return np.where(has_started & is_still_open, last_started, NO_INTERVAL)


FOREVER = np.iinfo(np.int64).max
NOTHING = Cover(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def union(start: Int64s, end: Int64s) -> Cover:
    """Return the time that at least one of the intervals covers.

    >>> covered = union(np.array([30, 0, 5]), np.array([40, 10, 20]))
    >>> covered.start.tolist(), covered.end.tolist()
    ([0, 30], [20, 40])

    Args:
        start: The start of each interval, in any order.
        end: The end of each interval.
    """
    if not len(start):
        return Cover(start, end)

    is_sorted = not (start[1:] < start[:-1]).any()
    if not is_sorted:
        order = np.argsort(start, kind="stable")
        start = start[order]
        end = end[order]

    # A new interval of the union begins where a start lies behind all earlier ends.
    latest_end = np.maximum.accumulate(end)
    follows_gap = start[1:] > latest_end[:-1]
    is_first = np.concatenate(([True], follows_gap))
    is_last = np.concatenate((follows_gap, [True]))
    return Cover(start[is_first], latest_end[is_last])


def union_length(start: Int64s, end: Int64s) -> int:
    """Return how much time the intervals cover together, in the unit of the input."""
    return union(start, end).ns


def union_length_of_each(begins: Rows, start: Int64s, end: Int64s) -> int:
    """Add up the lengths of the unions of several lists of intervals.

    If the first list has [0, 10) and [5, 20), and the second has [5, 10), the sum is
    20 + 5 = 25: time that two lists cover counts twice.

    Args:
        begins: Where lists begin: list n has the intervals
            [begins[n], begins[n + 1]).
        start: The start of each interval.
        end: The end of each interval.
    """
    if len(begins) - 1 > MIN_COMBINED_TRACKS:
        # Make one union of all lists, then turn its integers back into times.
        start_integer, end_integer = as_one_track(begins, start, end)
        time_of_integer = np.zeros(int(end_integer.max()) + 1, dtype=np.int64)
        time_of_integer[start_integer] = start
        time_of_integer[end_integer] = end
        in_integers = union(start_integer, end_integer)
        in_ns = Cover(
            start=time_of_integer[in_integers.start],
            end=time_of_integer[in_integers.end],
        )
        return in_ns.ns

    length = 0
    for first, last in pairwise(begins.tolist()):
        length += union_length(start[first:last], end[first:last])
    return length


def covered_until(
    starts: Int64s, ends: Int64s, times: Int64s, number: Int64s | int = 1
) -> Int64s:
    """Measure how much of a set of intervals lies before each time.

    >>> starts, ends = np.array([10, 30]), np.array([20, 40])
    >>> covered_until(starts, ends, np.array([5, 12, 25, 99])).tolist()
    [0, 2, 10, 20]

    Args:
        starts: The starts of sorted, disjoint intervals, as `union` returns them.
        ends: Their ends.
        times: Any times, of any shape.
        number: How often each interval counts.

    Returns:
        The covered time before each of `times`, in the shape of `times`.
    """
    if not len(starts):
        return np.zeros(times.shape, dtype=np.int64)

    covered_until_start: Int64s = prefix_sums((ends - starts) * number)

    # The last interval that has started at each time. Where none has, the first one
    # stands in, and the result is set to zero at the end.
    last_started = last_at_or_before(starts, times)
    interval = np.maximum(last_started, 0)

    length = ends[interval] - starts[interval]
    covered_of_interval = np.clip(times - starts[interval], 0, length)
    covered_of_interval *= number if isinstance(number, int) else number[interval]

    covered = covered_until_start[interval] + covered_of_interval
    return np.where(last_started < 0, 0, covered)


def joined(*covers: Cover) -> Cover:
    """Return the time that at least one of the sets covers."""
    not_empty = [cover for cover in covers if len(cover.start)]
    if not not_empty:
        return NOTHING
    if len(not_empty) == 1:
        return not_empty[0]

    starts = np.concatenate([cover.start for cover in not_empty])
    ends = np.concatenate([cover.end for cover in not_empty])
    return union(starts, ends)


def outside(cover: Cover) -> Cover:
    """Return the complement of a set: all time that it does not cover.

    That of [10, 20) is from -FOREVER to 10, and from 20 to FOREVER.
    """
    return Cover(
        start=np.append(-FOREVER, cover.end),
        end=np.append(cover.start, FOREVER),
    )


def counted(start: Int64s, end: Int64s) -> Cover:
    """Return the time that intervals cover, with how many of them cover it.

    >>> covered = counted(np.array([0, 5]), np.array([10, 20]))
    >>> covered.start.tolist(), covered.end.tolist(), covered.number.tolist()
    ([0, 5, 10], [5, 10, 20], [1, 2, 1])

    Args:
        start: The start of each interval, in any order.
        end: The end of each interval.

    Returns:
        Intervals whose `number` is how many of the given intervals contain them. Each
        ends where that number changes.
    """
    times = np.concatenate((start, end))
    order = np.argsort(times, kind="stable")
    times = times[order]

    # Walk over all starts and ends: each start opens an interval, each end closes one.
    is_start = order < len(start)
    open_intervals = np.cumsum(np.where(is_start, 1, -1))

    # Between two neighboring times the number of open intervals is constant.
    open_between = open_intervals[:-1]
    is_covered = (open_between > 0) & (times[1:] > times[:-1])
    return Cover(
        start=times[:-1][is_covered],
        end=times[1:][is_covered],
        number=open_between[is_covered],
    )


def pieces(stretches: Cover, cover: Cover) -> tuple[Cover, Rows]:
    """Cut stretches of time to the parts that lie inside a set.

    >>> stretches = Cover(np.array([0, 15]), np.array([18, 40]))
    >>> parts, stretch = pieces(stretches, Cover(np.array([10, 30]), np.array([20, 35])))
    >>> parts.start.tolist(), parts.end.tolist(), stretch.tolist()
    ([10, 15, 30], [18, 20, 35], [0, 1, 1])

    Args:
        stretches: Intervals that may overlap, in any order.
        cover: The set to cut them to.

    Returns:
        The parts, and for each part the index of the stretch that it was cut from.
    """
    # Each stretch touches a contiguous range of the intervals of `cover`.
    first_touched = np.searchsorted(cover.end, stretches.start, side="right")
    end_touched = np.searchsorted(cover.start, stretches.end, side="left")
    is_empty = stretches.end <= stretches.start
    parts_of_stretch = np.where(is_empty, 0, end_touched - first_touched)

    # One entry per part: the stretch and the interval that it is the overlap of.
    stretch = numbers_of_sized_groups(parts_of_stretch)
    interval = ranges(first_touched, parts_of_stretch)

    number = stretches.number
    parts = Cover(
        start=np.maximum(stretches.start[stretch], cover.start[interval]),
        end=np.minimum(stretches.end[stretch], cover.end[interval]),
        number=number if isinstance(number, int) else number[stretch],
    )
    return parts, stretch


def common(a: Cover, b: Cover) -> Cover:
    """Return the time that both sets cover; each moment counts once."""
    overlap, _ = pieces(a, b)
    is_not_empty = overlap.start < overlap.end
    return Cover(overlap.start[is_not_empty], overlap.end[is_not_empty])


def without(a: Cover, b: Cover) -> Cover:
    """Return the time that `a` covers and `b` does not; each moment counts once."""
    return common(a, outside(b))


def innermost(start: Int64s, end: Int64s) -> tuple[Int64s, Rows]:
    """Find out which interval is the innermost at each moment.

    The innermost one is the interval that started last. Of several that started
    together it is the shortest.

    >>> times, interval = innermost(np.array([0, 10]), np.array([50, 20]))
    >>> times.tolist(), interval.tolist()
    ([0, 10, 20, 50], [0, 1, 0, -1])

    Args:
        start: The start of each interval, ascending; of equal starts the longest
            interval first.
        end: The end of each interval.

    Returns:
        The times at which the innermost interval may change, ascending; and the index
        of the innermost interval from each of them to the next, NO_INTERVAL for none.
    """
    times = distinct(np.concatenate((start, end)))
    last_started = last_at_or_before(start, times)
    return times, EnclosingIndex(end).last(last_started, times)


class EnclosingIndex:
    """Finds the last of some intervals that contains a time, in O(log n).

    The intervals are in the order of their starts, and need not nest. The index is a
    tree of maxima: level n has the latest end of each 2**n neighboring intervals.
    """

    def __init__(self, end: Int64s) -> None:
        """Build the tree.

        Args:
            end: The end of each interval, in the order of their starts.
        """
        self._levels = [end]
        below = end
        while len(below) > 1:
            even_length = len(below) // 2 * 2
            later_end_of_pairs = below[:even_length].reshape(-1, 2).max(axis=1)
            without_neighbor = below[even_length:]
            level = np.concatenate((later_end_of_pairs, without_neighbor))
            self._levels.append(level)
            below = level

    def last(self, until: Rows, times: Int64s) -> Rows:
        """Find the last interval up to an index that ends after a time.

        If intervals 0 to 2 end at 90, 20 and 30, the last one up to index 2 that ends
        after 25 is 2, and after 40 it is 0.

        Args:
            until: The indices up to which to search, inclusive; -1 finds nothing.
            times: The time for each of these indices.

        Returns:
            The index of an interval for each pair; NO_INTERVAL where there is none.
        """
        node, level_of_node = self._climb(until, times)

        # Go down again, to the later child wherever that one ends after the time.
        highest_level = int(level_of_node.max(initial=0))
        for level in range(highest_level, 0, -1):
            descending = np.flatnonzero(level_of_node >= level)
            later_child = 2 * node[descending] + 1
            end_of_later_child = self._levels[level - 1][later_child]
            is_in_later_child = end_of_later_child > times[descending]
            node[descending] = np.where(is_in_later_child, later_child, later_child - 1)
        return node

    def _climb(self, until: Rows, times: Int64s) -> tuple[Rows, Rows]:
        """Find the last node of the tree in which an interval ends after the time.

        A node with intervals after the index `until` does not qualify.

        Returns:
            For each pair the index of the node in its level, NO_INTERVAL for none, and
            that level.
        """
        node_of_pair = np.full(len(until), NO_INTERVAL, dtype=np.intp)
        level_of_pair = np.zeros(len(until), dtype=np.intp)

        # The pairs that are still without a node; the node that each of them has
        # reached on this level; and their times.
        climbing = np.flatnonzero(until >= 0)
        node = until[climbing].astype(np.intp)
        time = times[climbing]

        for level, ends in enumerate(self._levels):
            ends_later = ends[node] > time
            arrived = climbing[ends_later]
            node_of_pair[arrived] = node[ends_later]
            level_of_pair[arrived] = level

            # Climb to the last node of the next level that has nothing behind this one.
            climbs = ~ends_later & (node > 0)
            climbing = climbing[climbs]
            node = (node[climbs] + 1) // 2 - 1
            time = time[climbs]
        return node_of_pair, level_of_pair
