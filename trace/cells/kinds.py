"""How much of each cell slices of which kind take: prefix sums per kind, made once per line."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Places = NDArray[np.intp]
Numbers = NDArray[np.uint8]
"""A kind of slice as a number; what it means is known to the caller."""


class OfKind(msgspec.Struct, frozen=True, eq=False):
    """The slices of a line that are of one kind, shape [n]."""

    kind: int
    place: NDArray[np.int32]  # of each on the line
    before: Int64s  # ns of those before each, and of all; shape [n + 1]

    def until(self, places: NDArray[np.int32]) -> Int64s:
        """ns of those before some places on the line; were they int64, numpy would copy ours."""
        return self.before[self.place.searchsorted(places)]


def by_kind(kind: Numbers, length: Int64s) -> tuple[OfKind, ...]:
    """The slices of a line by kind; nothing when all of them are of one kind."""
    numbers = np.flatnonzero(np.bincount(kind)).tolist()
    if len(numbers) < 2:
        return ()
    return tuple(_of_kind(number, np.flatnonzero(kind == number), length) for number in numbers)


def within(kinds: tuple[OfKind, ...], after: Places, over: Int64s, last: Numbers) -> Int64s:
    """ns of each kind in each cell, shape [kinds, cells].

    `after`: how many slices of the line start before each border. `over`: how far the last of them
    reaches beyond the border, and `last`: its kind. All of shape [cells + 1].
    """
    places = after.astype(np.int32)
    found = np.array([one.until(places) for one in kinds])
    numbers = np.array([one.kind for one in kinds])
    found -= (numbers[:, None] == last) * over
    amounts: Int64s = found[:, 1:] - found[:, :-1]
    return amounts


def _of_kind(number: int, places: Places, length: Int64s) -> OfKind:
    before = np.concatenate(([0], np.cumsum(length[places])))
    return OfKind(number, places.astype(np.int32), before)
