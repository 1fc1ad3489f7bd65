"""Which sub-row each of several overlapping slices gets: the first one with room for it.

Finding it takes logarithmic time in the number of sub-rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import NamedTuple

EMPTY = 1 << 65  # more room than any slice needs
FULL = -EMPTY


class Slice(NamedTuple):
    start: int  # ns
    end: int
    call: bool


def first_fit(slices: Iterable[Slice], flat: bool) -> list[int]:
    """Sub-rows of slices sorted by (start, -duration). See nesting.arrange for what fits.

    The room of a sub-row is twice the end of its innermost slice, and one more, unless an equal
    call may not lie in it.
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
            _close(open_[number], now)
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


def _close(inner: list[Slice], now: int) -> None:
    while inner and inner[-1].end <= now:
        inner.pop()


def _room(inner: list[Slice], now: int, flat: bool) -> int:
    if not inner:
        return EMPTY
    top = inner[-1]
    return FULL if flat else 2 * top.end + (not (top.call and top.start == now))


class Rooms:
    """Numbers, all EMPTY at first, with a fast search for the first one that is large enough.

    A binary tree in a list: node n has the children 2n and 2n + 1 and holds the larger of them.
    """

    def __init__(self) -> None:
        self._leaves = 4
        self._tree = [EMPTY] * (2 * self._leaves)

    def first(self, need: int) -> int:
        """The smallest index whose number is at least `need`."""
        if self._tree[1] < need:
            self._grow()
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

    def _grow(self) -> None:
        leaves = self._tree[self._leaves :] + [EMPTY] * self._leaves
        self._leaves *= 2
        self._tree = [EMPTY] * self._leaves + leaves
        for node in range(self._leaves - 1, 0, -1):
            self._tree[node] = max(self._tree[2 * node], self._tree[2 * node + 1])
