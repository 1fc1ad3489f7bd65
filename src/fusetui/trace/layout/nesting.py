"""Which slice lies inside which, for slices of one track.

A slice is inside another if it neither starts before nor ends after it. A slice that
ends where the next one starts does not contain it, whatever its length. Slices that
overlap without nesting get sub-rows (`arrange`); the slices of one sub-row nest
perfectly, so depths, parents and subtrees are computed with plain numpy.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Any, NamedTuple

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Flags, Int32s, Int64s, Rows
from fusetui.trace.model.intervals import as_one, overlapping, rows_of, small_ones

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
    """Rows sorted by (start, -duration) that nest perfectly -> their tree."""
    if nested is not None:
        return _compiled(np.array([0, len(start)]), start, end)[0]
    rows = np.arange(len(start))
    ends = np.maximum(rows + 1, np.searchsorted(start, end, side="left"))
    # open before each
    depth = rows - np.cumsum(np.bincount(ends, minlength=len(start) + 1))[:-1]
    return Nesting(depth.astype(np.int32), _parents(depth), ends.astype(np.int32))


def nest_tracks(bounds: Int64s, start: Int64s, end: Int64s) -> Nesting:
    """The trees of all tracks; rows count from the first row of the trace.

    Track n has those from bounds[n] on; sorted by (start, -duration), they nest
    perfectly.
    """
    if nested is not None:
        return _compiled(bounds, start, end)[0]
    parent = np.full(len(start), -1, dtype=np.int32)
    end_row = np.arange(1, len(start) + 1, dtype=np.int32)
    depth = np.zeros(len(start), dtype=np.int32)

    def put(rows: slice | Rows, first: Any, tree: Nesting, parents: Any) -> None:
        parent[rows] = np.where(tree.parent >= 0, parents, -1)
        end_row[rows] = tree.end_row + first
        depth[rows] = tree.depth

    tangled = overlapping(bounds, start, end)
    small = small_ones(bounds, tangled)
    if len(small):
        rows, begins = rows_of(bounds, small)
        tree = nest(*as_one(begins, start[rows], end[rows]))
        first = rows - np.arange(len(rows))
        put(rows, first, tree, rows[tree.parent])
    for track in np.setdiff1d(tangled, small, assume_unique=True).tolist():
        here = slice(int(bounds[track]), int(bounds[track + 1]))
        tree = nest(start[here], end[here])
        put(here, here.start, tree, tree.parent + here.start)
    return Nesting(depth, parent, end_row)


def _compiled(
    bounds: Int64s, start: Int64s, end: Int64s, call: Flags | None = None
) -> tuple[Nesting, Rows]:
    """The trees of all tracks, by nested.c, and the rows that are not inside their
    parent."""
    calls = np.zeros(len(start), dtype=np.bool_) if call is None else call
    tree = Nesting(*(np.empty(len(start), dtype=np.int32) for _ in range(3)))
    crossing = np.empty(len(start), dtype=np.bool_)
    flat = np.ascontiguousarray
    given = flat(bounds), flat(start), flat(end), flat(calls)
    nested.trees(*given, tree.depth, tree.parent, tree.end_row, crossing)
    return tree, np.flatnonzero(crossing)


def rows_by_depth(depth: Int32s | Int64s) -> tuple[Rows, list[int]]:
    """Rows in a stable order of depth; the rows of depth d are [bounds[d], bounds[d +
    1])."""
    deepest = int(depth.max(initial=-1))
    # sorts in linear time
    small = depth.astype(np.int16) if deepest < 1 << 15 else depth
    order = np.argsort(small, kind="stable")
    return order, np.searchsorted(
        small[order], np.arange(deepest + 2, dtype=small.dtype)
    ).tolist()


def arrange(start: Int64s, end: Int64s, call: Flags, flat: bool) -> Int32s:
    """The sub-row of each row, 0 where nothing crosses; rows are sorted by (start,
    -duration).

    `flat`: slices may not lie inside each other either (kernels of one stream). `call`
    marks runtime calls: two with equal times are neighbors, not parent and child.
    """
    subrow = np.zeros(len(start), dtype=np.int32)
    if flat:  # rows that begin before an earlier one has ended
        crossing = np.flatnonzero(start[1:] < np.maximum.accumulate(end)[:-1]) + 1
    elif nested is not None:
        _, crossing = _compiled(np.array([0, len(start)]), start, end, call)
    else:  # rows that are not inside their parent
        tree = nest(start, end)
        inside = np.flatnonzero(tree.parent >= 0)
        over = tree.parent[inside]
        same = (start[inside] == start[over]) & (end[inside] == end[over])
        crossing = inside[
            (end[inside] > end[over]) | (call[inside] & call[over] & same)
        ]
    if not len(crossing):
        return subrow
    # Runs of rows that overlap each other, of which one crosses.
    latest = np.maximum.accumulate(end)
    firsts = np.concatenate(
        ([0], np.flatnonzero(start[1:] >= latest[:-1]) + 1, [len(start)])
    )
    hit = np.flatnonzero(
        np.bincount(np.searchsorted(firsts, crossing, side="right") - 1)
    )
    for rows in map(slice, firsts[hit].tolist(), firsts[hit + 1].tolist()):
        slices = map(
            Slice, start[rows].tolist(), end[rows].tolist(), call[rows].tolist()
        )
        subrow[rows] = first_fit(slices, flat)
    return subrow


def _parents(depth: Int64s) -> Int32s:
    """The last earlier row one level up, or -1."""
    parent = np.full(len(depth), -1, dtype=np.int32)
    order, bounds = rows_by_depth(depth)
    keys = depth[order] * len(depth) + order  # sorted
    inner = slice(bounds[1] if len(bounds) > 1 else 0, None)
    found = np.searchsorted(keys, keys[inner] - len(depth)) - 1
    parent[order[inner]] = order[np.maximum(found, 0)]
    return parent


EMPTY = 1 << 65  # more room than any slice needs
FULL = -EMPTY


class Slice(NamedTuple):
    start: int  # ns
    end: int
    call: bool


def first_fit(slices: Iterable[Slice], flat: bool) -> list[int]:
    """Sub-rows of slices sorted by (start, -duration). See nesting.arrange for what
    fits.

    The room of a sub-row is twice the end of its innermost slice, and one more, unless
    an equal call may not lie in it.
    """
    rooms = Rooms()
    open_: dict[int, list[Slice]] = {}
    ends: list[tuple[int, int]] = []
    fresh: list[int] = []  # sub-rows whose innermost slice is a call that starts now
    found: list[int] = []
    now = FULL
    for slice_ in slices:
        if slice_.start != now:
            now = slice_.start
            while fresh:
                number = fresh.pop()
                rooms.set(number, _room(open_[number], now, flat))
        while ends and ends[0][0] <= now:
            _, number = heappop(ends)
            while open_[number] and open_[number][-1].end <= now:
                open_[number].pop()
            rooms.set(number, _room(open_[number], now, flat))
        number = rooms.first(2 * slice_.end + slice_.call)
        inner = open_.setdefault(number, [])
        inner.append(slice_)
        heappush(ends, (slice_.end, number))
        rooms.set(number, _room(inner, now, flat))
        if slice_.call:
            fresh.append(number)
        found.append(number)
    return found


def _room(inner: list[Slice], now: int, flat: bool) -> int:
    if not inner:
        return EMPTY
    top = inner[-1]
    return FULL if flat else 2 * top.end + (not (top.call and top.start == now))


class Rooms:
    """Numbers, all EMPTY at first, with a fast search for the first one that is large
    enough.

    A binary tree in a list: node n has the children 2n and 2n + 1 and holds the larger
    of them.
    """

    def __init__(self) -> None:
        self._leaves = 4
        self._tree = [EMPTY] * (2 * self._leaves)

    def first(self, need: int) -> int:
        """The smallest index whose number is at least `need`."""
        if self._tree[1] < need:  # twice the leaves
            leaves = self._tree[self._leaves :] + [EMPTY] * self._leaves
            self._leaves *= 2
            self._tree = [EMPTY] * self._leaves + leaves
            for node in range(self._leaves - 1, 0, -1):
                self._tree[node] = max(self._tree[2 * node], self._tree[2 * node + 1])
        node = 1
        while node < self._leaves:
            node *= 2
            node += self._tree[node] < need
        return node - self._leaves

    def set(self, index: int, room: int) -> None:
        tree = self._tree
        node = index + self._leaves
        tree[node] = room
        while node > 1:
            node //= 2
            larger = max(tree[2 * node], tree[2 * node + 1])
            if tree[node] == larger:
                return
            tree[node] = larger
