"""Which of many intervals, sorted by start, contains a time: the last one that does."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Places = NDArray[np.intp]


class Reach:
    """Finds the last of some intervals that contains a time; `end` is sorted by the starts.

    A tree of maxima: level n holds the latest end of each 2**n neighbors. So each answer takes
    O(log n), even if the intervals do not nest.
    """

    def __init__(self, end: Int64s) -> None:
        self._levels = [end]
        while len(self._levels[-1]) > 1:
            below = self._levels[-1]
            even = len(below) // 2 * 2
            pairs = below[:even].reshape(-1, 2).max(axis=1)
            self._levels.append(np.concatenate((pairs, below[even:])))

    def last(self, until: Places, times: Int64s) -> Places:
        """The last index that is not after `until` and whose interval ends after the time; -1 for
        none. All three have the same shape; `until` may be -1."""
        node, level = self._climbed(until, times)
        for number in range(int(level.max(initial=0)), 0, -1):
            here = np.flatnonzero(level >= number)
            ends, right = self._levels[number - 1], 2 * node[here] + 1
            node[here] = np.where(ends[right] > times[here], right, right - 1)
        return node

    def _climbed(self, until: Places, times: Int64s) -> tuple[Places, Places]:
        """The last node that contains no interval after `until` but one that ends after the time:
        its index in its level, -1 for none, and that level."""
        node, level = np.full(len(until), -1, dtype=np.intp), np.zeros(len(until), dtype=np.intp)
        before = until.astype(np.intp) + 1  # nodes of the level that contain none after `until`
        active = np.flatnonzero(before > 0)
        for number, ends in enumerate(self._levels):
            last = before[active] - 1
            found = (last % 2 == 0) & (ends[last] > times[active])
            node[active[found]], level[active[found]] = last[found], number
            active = active[~found]
            before[active] //= 2
            active = active[before[active] > 0]
        return node, level
