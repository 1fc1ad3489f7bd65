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

from fusetui.trace.model.arrays import Flags, Int32s, Int64s, Rows
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
    """Arrays of shape [rows of the track]; parents and ends count from the track's
    first row."""

    depth: Int32s
    parent: Int32s  # -1: none
    end_row: Int32s  # one past the last row of the subtree


def nest(start: Int64s, end: Int64s) -> Nesting:
    """The tree of the slices of one track, which nest perfectly and are sorted by
    (start, -duration)."""
    if nested is not None:
        return _compiled(np.array([0, len(start)]), start, end).tree
    rows = np.arange(len(start))
    first_after = np.searchsorted(start, end, side="left")
    end_row = np.maximum(rows + 1, first_after)
    ending_at_row = np.bincount(end_row, minlength=len(start) + 1)
    ended_by_row = np.cumsum(ending_at_row)[:-1]
    depth = rows - ended_by_row  # the slices before that are still open
    return Nesting(
        depth=depth.astype(np.int32),
        parent=_parents(depth),
        end_row=end_row.astype(np.int32),
    )


def nest_tracks(bounds: Int64s, start: Int64s, end: Int64s) -> Nesting:
    """The trees of all tracks; rows count from the first row of the trace.

    Track n has the rows from bounds[n] up to bounds[n + 1]. They nest perfectly and are
    sorted by (start, -duration).
    """
    if nested is not None:
        return _compiled(bounds, start, end).tree
    # as if nothing were nested
    nesting = Nesting(
        depth=np.zeros(len(start), dtype=np.int32),
        parent=np.full(len(start), -1, dtype=np.int32),
        end_row=np.arange(1, len(start) + 1, dtype=np.int32),
    )
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


def _set_tree(nesting: Nesting, rows: Rows, tree: Nesting) -> None:
    """Sets these rows of `nesting` to a tree that counts its rows from 0. The rows of
    one track are neighbors in both."""
    first_rows = rows - np.arange(len(rows))  # what a number in the tree lacks
    has_parent = tree.parent >= 0
    nesting.depth[rows] = tree.depth
    nesting.parent[rows] = np.where(has_parent, rows[tree.parent], -1)
    nesting.end_row[rows] = tree.end_row + first_rows


class _CompiledNesting(NamedTuple):
    """What nested.c computes."""

    tree: Nesting  # rows count from the first of all
    crossing: Rows  # rows that are not inside their parent


def _compiled(
    bounds: Int64s, start: Int64s, end: Int64s, call: Flags | None = None
) -> _CompiledNesting:
    """The trees of all tracks, by nested.c. `bounds` are those of nest_tracks, `call`
    that of arrange."""
    rows = len(start)
    if call is None:
        call = np.zeros(rows, dtype=np.bool_)
    tree = Nesting(
        depth=np.empty(rows, dtype=np.int32),
        parent=np.empty(rows, dtype=np.int32),
        end_row=np.empty(rows, dtype=np.int32),
    )
    is_crossing = np.empty(rows, dtype=np.bool_)
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
    """Rows in order of depth, and of equal depth in their own order."""

    rows: Rows
    bounds: list[int]  # the rows of depth d are rows[bounds[d] : bounds[d + 1]]


def rows_by_depth(depth: Int32s | Int64s) -> RowsByDepth:
    """The indices of `depth`, in a stable order of its values."""
    deepest = int(depth.max(initial=-1))
    fits_16_bits = deepest < 1 << 15
    keys = depth.astype(np.int16) if fits_16_bits else depth  # sorts in linear time
    order = np.argsort(keys, kind="stable")
    depths = np.arange(deepest + 2, dtype=keys.dtype)
    bounds = np.searchsorted(keys[order], depths)
    return RowsByDepth(rows=order, bounds=bounds.tolist())


def arrange(start: Int64s, end: Int64s, call: Flags, flat: bool) -> Int32s:
    """The sub-row of each row, 0 where nothing crosses; rows are sorted by (start,
    -duration).

    `flat`: slices may not lie inside each other either (kernels of one stream). `call`
    marks runtime calls: two with equal times are neighbors, not parent and child.
    """
    subrow = np.zeros(len(start), dtype=np.int32)
    crossing = _crossing_rows(start, end, call, flat)
    if not len(crossing):
        return subrow
    # a cluster: consecutive rows that overlap each other, directly or through others
    latest_end = np.maximum.accumulate(end)
    begins_cluster = start[1:] >= latest_end[:-1]
    first_rows = np.flatnonzero(begins_cluster) + 1
    bounds = np.concatenate(([0], first_rows, [len(start)]))
    cluster_of_crossing = np.searchsorted(bounds, crossing, side="right") - 1
    for cluster in np.flatnonzero(np.bincount(cluster_of_crossing)).tolist():
        rows = slice(int(bounds[cluster]), int(bounds[cluster + 1]))
        columns = start[rows].tolist(), end[rows].tolist(), call[rows].tolist()
        subrow[rows] = first_fit(map(Slice, *columns), flat)
    return subrow


def _crossing_rows(start: Int64s, end: Int64s, call: Flags, flat: bool) -> Rows:
    """The rows that cannot be where they are if all rows are on one sub-row; see
    `arrange`."""
    if flat:
        return _rows_begun_early(start, end)
    if nested is not None:
        return _compiled(np.array([0, len(start)]), start, end, call).crossing
    tree = nest(start, end)
    inner = np.flatnonzero(tree.parent >= 0)
    outer = tree.parent[inner]
    ends_later = end[inner] > end[outer]
    same_times = (start[inner] == start[outer]) & (end[inner] == end[outer])
    are_equal_calls = call[inner] & call[outer] & same_times
    return inner[ends_later | are_equal_calls]


def _rows_begun_early(start: Int64s, end: Int64s) -> Rows:
    """The rows that begin before an earlier one has ended."""
    latest_end = np.maximum.accumulate(end)
    begins_early = start[1:] < latest_end[:-1]
    return np.flatnonzero(begins_early) + 1


def _parents(depth: Int64s) -> Int32s:
    """For each row the last earlier row that is one level less deep; -1 for those of
    depth 0. `depth` is that of properly nested rows: before one of depth n there is one
    of depth n - 1."""
    parent = np.full(len(depth), -1, dtype=np.int32)
    rows, bounds = rows_by_depth(depth)
    if not len(rows):
        return parent
    # By depth, then by row, as the rows are: in ascending order.
    keys = depth[rows] * len(depth) + rows
    outermost_count = bounds[1]
    inner = rows[outermost_count:]
    # What the key of an inner row would be one level up: its parent is the last before.
    keys_one_level_up = keys[outermost_count:] - len(depth)
    places_of_parents = np.searchsorted(keys, keys_one_level_up) - 1
    parent[inner] = rows[places_of_parents]
    return parent


UNLIMITED_ROOM = 1 << 65  # more room than any slice needs
NO_ROOM = -UNLIMITED_ROOM


class Slice(NamedTuple):
    """A slice for which a sub-row is looked for."""

    start: int  # ns
    end: int  # ns
    call: bool  # is a runtime call


def first_fit(slices: Iterable[Slice], flat: bool) -> list[int]:
    """The sub-row of each slice: the first one that it fits in. Slices are sorted by
    (start, -duration); see `arrange` for what fits.

    The room of a sub-row is twice the end of its innermost open slice, and one more,
    unless that is a call that starts now. A slice needs twice its end, a call one more.
    So a slice fits if it ends no later, and a call with equal times does not.
    """
    subrows = _OpenSubrows(flat)
    return [subrows.place(slice_) for slice_ in slices]


class _OpenSubrows:
    """The slices that are open at a time, by sub-row."""

    def __init__(self, flat: bool) -> None:
        """`flat`: see `arrange`."""
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
        """Opens a slice on the first sub-row that it fits in, which is returned. It
        starts no earlier than the one before."""
        if slice_.start != self._now:
            self._advance(slice_.start)
        # also between slices with equal starts: one without duration ends at once
        self._close_ended()
        subrow = self._rooms.first(2 * slice_.end + slice_.call)
        self._open.setdefault(subrow, []).append(slice_)
        heappush(self._ends, (slice_.end, subrow))
        self._set_room(subrow)
        if slice_.call:
            self._with_fresh_call.append(subrow)
        return subrow

    def _advance(self, now: int) -> None:
        """Goes on to the time `now`, at which no call has started yet."""
        self._now = now
        while self._with_fresh_call:
            self._set_room(self._with_fresh_call.pop())

    def _close_ended(self) -> None:
        """Closes the slices that have ended by now."""
        while self._ends and self._ends[0][0] <= self._now:
            _, subrow = heappop(self._ends)
            open_slices = self._open[subrow]
            while open_slices and open_slices[-1].end <= self._now:
                open_slices.pop()
            self._set_room(subrow)

    def _set_room(self, subrow: int) -> None:
        """Sets the room of a sub-row from its open slices; see `first_fit`."""
        open_slices = self._open[subrow]
        if not open_slices:
            room = UNLIMITED_ROOM
        elif self._flat:
            room = NO_ROOM
        else:
            innermost = open_slices[-1]
            is_fresh_call = innermost.call and innermost.start == self._now
            room = 2 * innermost.end + (not is_fresh_call)
        self._rooms.set(subrow, room)


class FirstFit:
    """The rooms of sub-rows, all UNLIMITED_ROOM at first, with a fast search for the
    first one that is large enough.

    A binary tree in a list: node n has the children 2n and 2n + 1 and holds the larger
    of them. The leaves are the rooms.
    """

    def __init__(self) -> None:
        self._leaves = 4
        self._tree = [UNLIMITED_ROOM] * (2 * self._leaves)

    def first(self, need: int) -> int:
        """The smallest index whose room is at least `need`."""
        if self._tree[1] < need:
            self._double()
        node = 1
        while node < self._leaves:
            left = 2 * node
            node = left if self._tree[left] >= need else left + 1
        return node - self._leaves

    def _double(self) -> None:
        """Doubles the number of leaves; the new ones are UNLIMITED_ROOM."""
        old_leaves = self._tree[self._leaves :]
        new_leaves = [UNLIMITED_ROOM] * self._leaves
        self._leaves *= 2
        inner_nodes = [UNLIMITED_ROOM] * self._leaves
        tree = [*inner_nodes, *old_leaves, *new_leaves]
        for node in range(self._leaves - 1, 0, -1):
            tree[node] = max(tree[2 * node], tree[2 * node + 1])
        self._tree = tree

    def set(self, index: int, room: int) -> None:
        """Sets the room of a sub-row."""
        tree = self._tree
        node = index + self._leaves
        tree[node] = room
        while node > 1:
            node //= 2
            larger = max(tree[2 * node], tree[2 * node + 1])
            if tree[node] == larger:
                return
            tree[node] = larger
