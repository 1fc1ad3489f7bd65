"""How the durations of groups of rows are distributed, in integer ns."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.arrays import Int64s, Rows


class Spread(msgspec.Struct, frozen=True):
    """Statistics of at least one duration in nanoseconds, rounded down to integers.

    Percentiles are interpolated between the two nearest durations, as with numpy's "linear" method;
    the median of an even count is the mean of the middle two.
    """

    count: int
    total_ns: int
    mean_ns: int
    min_ns: int
    p10_ns: int
    median_ns: int
    p90_ns: int
    max_ns: int


class Groups(msgspec.Struct, frozen=True, eq=False):
    """Indices into columns, sorted by group: group n has `order[begins[n]:begins[n + 1]]`."""

    order: Rows
    begins: Rows
    keys: NDArray[np.integer]  # the number shared by a group, ascending

    def __len__(self) -> int:
        return len(self.keys)

    def places(self, number: int) -> Rows:
        return self.order[self.begins[number] : self.begins[number + 1]]

    def sums(self, amount: Int64s) -> Int64s:
        """A column added up by group."""
        before = np.concatenate(([0], np.cumsum(amount[self.order])))
        found: Int64s = np.diff(before[self.begins])
        return found


def grouped(keys: NDArray[np.integer], within: Int64s) -> Groups:
    """Indices grouped by equal keys and sorted by `within`; both of shape [n]."""
    order = np.lexsort((within, keys))
    ordered = keys[order]
    cuts = np.flatnonzero(np.diff(ordered)) + 1
    firsts = np.concatenate(([0], cuts)) if len(keys) else cuts
    return Groups(order, np.append(firsts, len(keys)), ordered[firsts])


def spreads(keys: NDArray[np.integer], dur: Int64s) -> list[Spread]:
    """The spread of each group of equal keys, in the order of the keys."""
    groups = grouped(keys, dur)
    count = np.diff(groups.begins)
    total = groups.sums(dur)
    sorted_dur, first = dur[groups.order], groups.begins[:-1]
    columns = (
        count,
        total,
        total // np.maximum(count, 1),
        *(percentile(sorted_dur, first, count, percent) for percent in (0, 10, 50, 90, 100)),
    )
    return [Spread(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def percentile(dur: Int64s, first: Rows, count: Rows, percent: int) -> Int64s:
    """The percentile of each run of sorted durations, `count` of them from `first` on."""
    if not len(count):
        return dur
    place, part = np.divmod((count - 1) * percent, 100)
    low = first + place
    high = np.minimum(low + 1, first + count - 1)
    found: Int64s = dur[low] + (dur[high] - dur[low]) * part // 100
    return found
