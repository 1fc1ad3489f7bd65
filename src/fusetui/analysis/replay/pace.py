"""How fast a thread works, in a replay: for each ns of its own time as recorded, how many."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fusetui.trace.model.arrays import Floats, Int64s, distinct
from fusetui.trace.model.intervals import Cover


class Pace(NamedTuple):
    """From each of some times to the next one, how long a recorded ns takes; 1 before the first.
    Arrays of shape [n]; times as in Graph."""

    times: Int64s
    rate: Floats

    def until(self, times: Int64s) -> Int64s:
        """How long it works until each time, if it begins at 0. Differences add up exactly."""
        if not len(self.times):
            return times
        lasted = np.diff(self.times) * self.rate[:-1]
        before = np.concatenate(([0.0], np.cumsum(lasted))) + self.times[0]
        place = np.searchsorted(self.times, times, side="right") - 1
        at = np.maximum(place, 0)
        inside = before[at] + (times - self.times[at]) * self.rate[at]
        return np.where(place < 0, times, np.rint(inside)).astype(np.int64)

    def changed(self, cover: Cover, factor: float) -> Pace:
        """As much slower or faster during a cover."""
        times = distinct(np.concatenate((self.times, cover.start, cover.end)))
        place = np.searchsorted(self.times, times, side="right") - 1
        rate = np.append(self.rate, 1.0)[place]
        return Pace(times, np.where(cover.place_of(times) >= 0, rate * factor, rate))


AS_RECORDED = Pace(np.empty(0, dtype=np.int64), np.empty(0))
