"""What a counter shows in W cells for a window of time: O(W log n) for n samples."""

from __future__ import annotations

import msgspec
import numpy as np

from fusetui.trace.layout.counters import Counter
from fusetui.trace.model.arrays import Floats, Int64s

AT_ONCE = 1 << 14  # number of samples that are searched linearly, which takes a few microseconds


class Curve(msgspec.Struct, frozen=True, eq=False):
    """A counter, and the largest of every two, four, eight, ... neighboring values."""

    counter: Counter
    levels: tuple[Floats, ...]  # shapes [n], [n // 2], [n // 4], ...
    largest: float  # of all values


def curve_of(counter: Counter) -> Curve:
    """Computed once per counter."""
    levels = [counter.value]
    while len(levels[-1]) > 1:
        below = levels[-1][: len(levels[-1]) // 2 * 2]
        levels.append(np.maximum(below[::2], below[1::2]))
    return Curve(counter, tuple(levels), float(counter.value.max()))


def values(curve: Curve, borders: Int64s, at_once: int = AT_ONCE) -> Floats:
    """The largest value in each cell, else the last one before it; nan before the first.

    `borders` are the W + 1 edges of the cells in ns (see raster.edges); the result has shape [W].
    The samples of a cell are halved until at most `at_once` are left.
    """
    time, value = curve.counter.time, curve.counter.value
    at = np.searchsorted(time, borders, side="left")
    first, last = at[:-1], at[1:]
    held = np.where(first > 0, value[np.maximum(first - 1, 0)], np.nan)
    return np.where(last > first, _largest(curve.levels, first, last, at_once), held)


def _largest(levels: tuple[Floats, ...], first: Int64s, last: Int64s, at_once: int) -> Floats:
    """The largest value in each [first, last); -inf if that is empty.

    The lower levels are used only at both ends of a range.
    """
    found = np.full(len(first), -np.inf)
    for level in levels:
        if last[-1] - first[0] <= at_once:
            cells = np.flatnonzero(first < last)
            if len(cells):
                cuts = np.stack([first[cells], last[cells]], axis=1).ravel()
                largest = np.maximum.reduceat(level[: cuts[-1]], cuts[:-1])[::2]
                found[cells] = np.maximum(found[cells], largest)
            break
        for odd, at in ((first % 2 == 1, first), (last % 2 == 1, last - 1)):
            cells = np.flatnonzero((first < last) & odd)
            found[cells] = np.maximum(found[cells], level[at[cells]])
        first, last = (first + 1) // 2, last // 2
    return found
