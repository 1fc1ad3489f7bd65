"""What a counter shows in W cells for a window of time: O(W log n) for n samples."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.counters import Counter

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]


class Curve(msgspec.Struct, frozen=True, eq=False):
    """A counter, and the largest of every two, four, eight ... neighbouring values."""

    counter: Counter
    levels: tuple[Float64s, ...]  # shapes [n], [n // 2], [n // 4], ...

    @property
    def largest(self) -> float:
        """Of all values."""
        return float(self.counter.value.max())


def curve_of(counter: Counter) -> Curve:
    """Computed once per counter."""
    levels = [counter.value]
    while len(levels[-1]) > 1:
        below = levels[-1][: len(levels[-1]) // 2 * 2]
        levels.append(np.maximum(below[::2], below[1::2]))
    return Curve(counter, tuple(levels))


def values(curve: Curve, borders: Int64s) -> Float64s:
    """The largest value in each cell, else the last one before it; nan before the first.

    `borders` are the W + 1 edges of the cells in ns (see raster.edges); the result has shape [W].
    """
    time, value = curve.counter.time, curve.counter.value
    at = np.searchsorted(time, borders, side="left")
    first, last = at[:-1], at[1:]
    held = np.where(first > 0, value[np.maximum(first - 1, 0)], np.nan)
    return np.where(last > first, _largest(curve.levels, first, last), held)


def _largest(levels: tuple[Float64s, ...], first: Int64s, last: Int64s) -> Float64s:
    """The largest value in each [first, last); -inf where that is empty.

    From each level only what sticks out at both ends of a stretch is taken, the rest from the next.
    """
    found = np.full(len(first), -np.inf)
    for level in levels:
        _take(found, level, np.flatnonzero((first < last) & (first % 2 == 1)), first)
        _take(found, level, np.flatnonzero((first < last) & (last % 2 == 1)), last - 1)
        first, last = (first + 1) // 2, last // 2
        if not (first < last).any():
            break
    return found


def _take(found: Float64s, level: Float64s, cells: NDArray[np.intp], at: Int64s) -> None:
    found[cells] = np.maximum(found[cells], level[at[cells]])
