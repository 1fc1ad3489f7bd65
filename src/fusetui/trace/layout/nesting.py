"""Determines which slice is inside which, for the slices of one track.

A slice is inside another if it neither starts before nor ends after it. A slice that
ends where the next one starts does not contain it, whatever its length. Slices that
overlap without nesting get sub-rows (`arrange`); the slices of one sub-row nest
perfectly, so depths, parents and subtrees are computed with plain numpy.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.trace.model.arrays import (
    NO_ROW,
    Flags,
    Int32s,
    Int64s,
    Rows,
    distinct,
    last_at_or_before,
)
from fusetui.trace.model.intervals import (
    as_one_track,
    overlapping_tracks,
    rows_of_tracks,
    small_tracks,
)

try:
    from fusetui.trace.layout import nested as nested  # tests ask whether there is one
except ImportError:  # it could not be compiled where this was installed
    nested = None  # type: ignore[assignment]


class Nesting(msgspec.Struct, frozen=True, eq=False):
    """The tree of slices that nest, one entry per slice. Rows are numbered from the
    first slice that was given."""

    depth: Int32s
    parent: Int32s  # -1: none
    end_row: Int32s  # one past the last row of the subtree


def nest(start: Int64s, end: Int64s) -> Nesting:
    """Compute which slice of one track lies inside which.

    The slices [0, 100], [10, 40], [20, 30] and [50, 60] get the depths [0, 1, 2, 1],
    the parents [-1, 0, 1, 0], and the subtrees end before the rows [4, 3, 3, 4].

    Args:
        start: The start of each slice in ns. Slices are sorted by start, those with
            equal starts by descending duration.
        end: The end of each slice. Two slices either nest or do not overlap.
    """
    if nested is not None:
        return _nest_compiled(np.array([0, len(start)]), start, end).tree
    rows = np.arange(len(start))
    # The subtree of a slice ends at the first slice that starts at its end or later;
    # that of a slice without duration may not end at the slice itself.
    first_after = np.searchsorted(start, end, side="left")
    end_row = np.maximum(rows + 1, first_after)

    # All earlier slices contain a slice, except those whose subtree ended before it.
    subtrees_ending_at_row = np.bincount(end_row, minlength=len(start) + 1)
    subtrees_ended_by_row = np.cumsum(subtrees_ending_at_row)[:-1]
    depth = rows - subtrees_ended_by_row
    return Nesting(
        depth=depth.astype(np.int32),
        parent=_find_parents(depth),
        end_row=end_row.astype(np.int32),
    )


def nest_tracks(bounds: Int64s, start: Int64s, end: Int64s) -> Nesting:
    """Compute for all tracks of a trace which slice lies inside which.

    It is `nest` for each track, but parents and ends of subtrees are rows of the trace.

    Args:
        bounds: Track n has the rows [bounds[n], bounds[n + 1]).
        start: The start of each row in ns; ordered within a track as in `nest`.
        end: The end of each row.
    """
    if nested is not None:
        return _nest_compiled(bounds, start, end).tree
    nesting = _without_nesting(len(start))
    overlapping = overlapping_tracks(bounds, start, end)
    small = small_tracks(bounds, overlapping)
    if len(small):
        rows, bounds_in_rows = rows_of_tracks(bounds, small)
        starts, ends = as_one_track(bounds_in_rows, start[rows], end[rows])
        _set_tree(nesting, rows, nest(starts, ends))
    large = np.setdiff1d(overlapping, small, assume_unique=True)
    for track in large.tolist():
        rows = np.arange(bounds[track], bounds[track + 1])
        _set_tree(nesting, rows, nest(start[rows], end[rows]))
    return nesting


def _without_nesting(count: int) -> Nesting:
    """Return the tree of `count` slices of which none lies inside another."""
    return Nesting(
        depth=np.zeros(count, dtype=np.int32),
        parent=np.full(count, -1, dtype=np.int32),
        end_row=np.arange(1, count + 1, dtype=np.int32),
    )


def _set_tree(nesting: Nesting, rows: Rows, tree: Nesting) -> None:
    """Copy the tree of some rows into that of the whole trace, in place.

    If `rows` is [7, 8] and the second slice of `tree` has the parent 0 and its subtree
    ends before 2, then row 8 gets the parent 7 and its subtree ends before row 9.

    Args:
        nesting: The tree of the trace, which is changed.
        rows: The rows of the trace; those of a track are consecutive.
        tree: Their tree, in which they are numbered from 0.
    """
    # A subtree does not leave its track, so what has to be added to a number from
    # `tree` is the same at its end as at its first row.
    row_minus_number = rows - np.arange(len(rows))
    has_parent = tree.parent != NO_ROW
    nesting.depth[rows] = tree.depth
    nesting.parent[rows] = np.where(has_parent, rows[tree.parent], -1)
    nesting.end_row[rows] = tree.end_row + row_minus_number


class _CompiledNesting(NamedTuple):
    """What nested.c computes."""

    tree: Nesting  # rows count from the first of all
    crossing: Rows  # rows that are not inside their parent


def _nest_compiled(
    bounds: Int64s, start: Int64s, end: Int64s, call: Flags | None = None
) -> _CompiledNesting:
    """Call the C code of nested.c, which nests the slices of all tracks in one pass.

    Args:
        bounds: Track n has the rows [bounds[n], bounds[n + 1]).
        start: The start of each row in ns; ordered within a track as in `nest`.
        end: The end of each row.
        call: Which rows are runtime calls (see `arrange`); none if left out.
    """
    rows = len(start)
    if call is None:
        call = np.zeros(rows, dtype=np.bool_)
    tree = Nesting(
        depth=np.empty(rows, dtype=np.int32),
        parent=np.empty(rows, dtype=np.int32),
        end_row=np.empty(rows, dtype=np.int32),
    )
    is_crossing = np.empty(rows, dtype=np.bool_)
    # It fills the last four arrays.
    nested.trees(
        np.ascontiguousarray(bounds),
        np.ascontiguousarray(start),
        np.ascontiguousarray(end),
        np.ascontiguousarray(call),
        tree.depth,
        tree.parent,
        tree.end_row,
        is_crossing,
    )
    return _CompiledNesting(tree=tree, crossing=np.flatnonzero(is_crossing))


class RowsByDepth(NamedTuple):
    """Rows sorted by depth, those of equal depth in ascending order."""

    rows: Rows
    bounds: list[int]  # the rows of depth d are rows[bounds[d] : bounds[d + 1]]


def rows_by_depth(depth: Int32s | Int64s) -> RowsByDepth:
    """Sort rows by depth.

    >>> rows_by_depth(np.array([0, 1, 2, 1, 0]))
    RowsByDepth(rows=array([0, 4, 1, 3, 2]), bounds=[0, 2, 4, 5])

    Args:
        depth: The depth of each row, from 0 on. May be empty.

    Returns:
        The rows by depth, those of equal depth in ascending order, and where each depth
        begins; `bounds` is [0] if there are no rows.
    """
    deepest = int(depth.max(initial=-1))
    fits_16_bits = deepest < 1 << 15
    keys = depth.astype(np.int16) if fits_16_bits else depth  # sorts in linear time
    order = np.argsort(keys, kind="stable")
    depths = np.arange(deepest + 2, dtype=keys.dtype)
    bounds = np.searchsorted(keys[order], depths)
    return RowsByDepth(rows=order, bounds=bounds.tolist())


def arrange(start: Int64s, end: Int64s, call: Flags, flat: bool) -> Int32s:
    """Distribute the slices of a thread or stream so that those of a sub-row nest.

    The slices [0, 50], [10, 20] and [40, 60] get the sub-rows [0, 0, 1]: the second
    lies inside the first, the third only overlaps it. With `flat` they get [0, 1, 1].

    Args:
        start: The start of each slice in ns. Slices are sorted by start, those with
            equal starts by descending duration.
        end: The end of each slice.
        call: Which slices are runtime calls. Of two with equal start and end neither
            contains the other, so they get different sub-rows.
        flat: Whether slices of a sub-row may not even nest (kernels of a stream).

    Returns:
        The sub-row of each slice: the first in which it fits.
    """
    subrow = np.zeros(len(start), dtype=np.int32)
    crossing = _rows_that_do_not_fit(start, end, call, flat)
    if not len(crossing):
        return subrow

    # Only a slice that overlaps, directly or through others, one that does not fit can
    # have to move. Such clusters are short, so a loop over their slices is fast enough.
    cluster_bounds = _bounds_of_clusters(start, end)
    cluster_of_crossing = last_at_or_before(cluster_bounds, crossing)
    for cluster in distinct(cluster_of_crossing).tolist():
        first, after = cluster_bounds[cluster : cluster + 2].tolist()
        rows = slice(first, after)
        columns = start[rows].tolist(), end[rows].tolist(), call[rows].tolist()
        subrow[rows] = first_fit(map(Slice, *columns), flat)
    return subrow


def _bounds_of_clusters(start: Int64s, end: Int64s) -> Rows:
    """Divide slices into clusters that do not overlap each other.

    The slices [0, 20], [10, 30], [30, 40] have the bounds [0, 2, 3]: the first two
    overlap, the third starts when they have ended.

    Args:
        start: The start of each slice in ns, ascending; at least one.
        end: The end of each slice.

    Returns:
        The first slice of each cluster, then the number of slices.
    """
    latest_end = np.maximum.accumulate(end)
    begins_cluster = start[1:] >= latest_end[:-1]
    first_slices = np.flatnonzero(begins_cluster) + 1
    return np.concatenate(([0], first_slices, [len(start)]))


def _rows_that_do_not_fit(start: Int64s, end: Int64s, call: Flags, flat: bool) -> Rows:
    """Find the slices that cannot stay if all slices are in one sub-row.

    Of [0, 50], [10, 20] and [40, 60] it is the last; with `flat` the last two. The
    arguments are those of `arrange`; the result is ascending.
    """
    if flat:
        return _rows_begun_early(start, end)
    if nested is not None:
        return _nest_compiled(np.array([0, len(start)]), start, end, call).crossing
    tree = nest(start, end)
    inner = np.flatnonzero(tree.parent != NO_ROW)
    outer = tree.parent[inner]
    ends_later = end[inner] > end[outer]
    same_times = (start[inner] == start[outer]) & (end[inner] == end[outer])
    are_equal_calls = call[inner] & call[outer] & same_times
    return inner[ends_later | are_equal_calls]


def _rows_begun_early(start: Int64s, end: Int64s) -> Rows:
    """Find the slices that start before some earlier slice has ended.

    Of [0, 50], [10, 20], [40, 60] and [60, 70] these are the rows [1, 2]. `start` is
    ascending.
    """
    latest_end = np.maximum.accumulate(end)
    begins_early = start[1:] < latest_end[:-1]
    return np.flatnonzero(begins_early) + 1


def _find_parents(depth: Int64s) -> Int32s:
    """Find the parent of each row of a tree from the depths of its rows.

    It is the last earlier row that is one level less deep: for the depths
    [0, 1, 2, 1, 0] the parents are [-1, 0, 1, 0, -1].

    Args:
        depth: The depth of each row, each parent before its children. May be empty.
    """
    parent = np.full(len(depth), -1, dtype=np.int32)
    rows, bounds = rows_by_depth(depth)
    if not len(rows):
        return parent
    root_count = bounds[1]
    inner = rows[root_count:]

    # One number for depth and row makes a single binary search of it: the parent of
    # row r with depth d is the last row whose number is below that of (d - 1, r).
    # `rows` is sorted by depth, then by row, so its numbers ascend.
    numbers = depth[rows] * len(depth) + rows
    numbers_one_level_up = numbers[root_count:] - len(depth)
    index_of_parent = np.searchsorted(numbers, numbers_one_level_up) - 1
    parent[inner] = rows[index_of_parent]
    return parent


UNLIMITED_ROOM = 1 << 65
"""The room of a sub-row without open slices: more than any slice needs, which is twice
a time in 64 bits (see `_room_inside`)."""
NO_ROOM = -UNLIMITED_ROOM


class Slice(NamedTuple):
    """A slice for which a sub-row is looked for."""

    start: int  # ns
    end: int  # ns
    call: bool  # is a runtime call


def first_fit(slices: Iterable[Slice], flat: bool) -> list[int]:
    """Give each slice the first sub-row in which it fits.

    A slice fits in a sub-row without open slices, and, unless `flat`, inside its
    innermost open slice if it ends no later; but a runtime call does not fit inside
    another one with the same start and end.

    The slices [0, 50], [10, 20] and [40, 60] get [0, 0, 1].

    Args:
        slices: The slices by start, those with equal starts by descending duration.
        flat: Whether slices of a sub-row may not nest.
    """
    subrows = _OpenSubrows(flat)
    return [subrows.place(slice_) for slice_ in slices]


class _OpenSubrows:
    """The slices that are open at a time, by sub-row."""

    def __init__(self, flat: bool) -> None:
        """Start without open slices. With `flat`, no slice may lie inside another in
        the same sub-row."""
        self._flat = flat
        self._now = NO_ROOM  # ns: the start of the last slice
        self._rooms = FirstFit()
        self._open: dict[int, list[Slice]] = {}  # of each sub-row, outer ones first
        self._ends: list[
            tuple[int, int]
        ] = []  # a heap of (end of a slice, its sub-row)
        # sub-rows whose innermost slice is a call that starts now
        self._with_fresh_call: list[int] = []

    def place(self, slice_: Slice) -> int:
        """Open a slice in the first sub-row in which it fits, and return the sub-row.

        It starts no earlier than the slice before it.
        """
        if slice_.start != self._now:
            self._advance(slice_.start)
        # also between slices with equal starts: one without duration ends at once
        self._close_ended()
        subrow = self._rooms.first(_room_needed(slice_))
        self._open.setdefault(subrow, []).append(slice_)
        heappush(self._ends, (slice_.end, subrow))
        self._update_room(subrow)
        if slice_.call:
            self._with_fresh_call.append(subrow)
        return subrow

    def _advance(self, now: int) -> None:
        """Go on to the time `now` (ns), at which no call has started yet."""
        self._now = now
        while self._with_fresh_call:
            self._update_room(self._with_fresh_call.pop())

    def _close_ended(self) -> None:
        """Remove from their sub-rows the slices that have ended by now."""
        while self._ends and self._ends[0][0] <= self._now:
            _, subrow = heappop(self._ends)
            open_slices = self._open[subrow]
            while open_slices and open_slices[-1].end <= self._now:
                open_slices.pop()
            self._update_room(subrow)

    def _update_room(self, subrow: int) -> None:
        """Compute the room of a sub-row anew after its open slices have changed."""
        open_slices = self._open[subrow]
        if not open_slices:
            room = UNLIMITED_ROOM
        elif self._flat:
            room = NO_ROOM
        else:
            room = _room_inside(open_slices[-1], self._now)
        self._rooms.set(subrow, room)


def _room_needed(slice_: Slice) -> int:
    """Return how much room a sub-row must have for a slice, see `_room_inside`.

    A slice that ends at 30 needs 60, a runtime call that ends at 30 needs 61.
    """
    return 2 * slice_.end + slice_.call


def _room_inside(innermost: Slice, now: int) -> int:
    """Return the room of a sub-row whose innermost open slice is this one.

    Room is twice a time, plus one, so that one comparison of integers decides both
    whether a slice ends in time and whether a call may be inside a call. If `innermost`
    ends at 30, the room is 61: enough for everything that ends by 30. If it is a call
    that starts now, the room is 60: not enough for a call that ends at 30 too.
    """
    is_fresh_call = innermost.call and innermost.start == now
    return 2 * innermost.end + (not is_fresh_call)


class FirstFit:
    """How much room each sub-row has (see `_room_inside`), with a fast search for the
    first one that has enough. All have UNLIMITED_ROOM at first.

    A binary tree in a list: node n has the children 2n and 2n + 1 and holds the larger
    of them. The leaves are the rooms.
    """

    def __init__(self) -> None:
        """Start with empty sub-rows, which have unlimited room."""
        self._leaves = 4
        self._tree = [UNLIMITED_ROOM] * (2 * self._leaves)

    def first(self, need: int) -> int:
        """Return the index of the first sub-row with a room of at least `need`.

        If the rooms are [10, 60, 90] and then unlimited, 50 gives 1, and 100 gives 3.
        """
        root = 1
        if self._tree[root] < need:
            self._double()
        node = root
        while node < self._leaves:
            left = 2 * node
            node = left if self._tree[left] >= need else left + 1
        return node - self._leaves

    def _double(self) -> None:
        """Double the number of sub-rows; the new ones have UNLIMITED_ROOM."""
        old_leaves = self._tree[self._leaves :]
        new_leaves = [UNLIMITED_ROOM] * self._leaves
        self._leaves *= 2
        inner_nodes = [UNLIMITED_ROOM] * self._leaves
        tree = [*inner_nodes, *old_leaves, *new_leaves]
        for node in range(self._leaves - 1, 0, -1):
            tree[node] = max(tree[2 * node], tree[2 * node + 1])
        self._tree = tree

    def set(self, index: int, room: int) -> None:
        """Set the room of a sub-row, and correct the nodes above its leaf.

        It stops at the first node whose maximum stays the same: nothing above changes.
        """
        tree = self._tree
        node = index + self._leaves
        tree[node] = room
        while node > 1:
            node //= 2
            larger = max(tree[2 * node], tree[2 * node + 1])
            if tree[node] == larger:
                return
            tree[node] = larger
