"""Several times of their own (of threads, of devices) end to end on one line of time, so that a
question about many takes as few passes of numpy as one about a single one."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.columns import Trace

Int64s = NDArray[np.int64]

FARTHEST = 1 << 62  # ns on one line of time


class Line(msgspec.Struct, frozen=True):
    """Number n has the stretch [n * length, (n + 1) * length) of the line."""

    begin_ns: int
    end_ns: int

    @property
    def length(self) -> int:
        return self.end_ns - self.begin_ns + 1

    @property
    def most(self) -> int:
        """How many fit: all, unless times are so far apart that no clock produces them."""
        return max(1, FARTHEST // self.length)

    def at(self, number: NDArray[np.integer], times: Int64s) -> Int64s:
        """Where times (ns of the file) lie on the line.

        A time outside the trace lies at its border, where no other number has anything.
        """
        placed: Int64s = np.clip(times, self.begin_ns, self.end_ns)
        placed += number.astype(np.int64) * self.length - self.begin_ns
        return placed

    def since(self, places: Int64s) -> Int64s:
        """How much farther these places of the line are than the times of the file there."""
        return places // self.length * self.length - self.begin_ns


def line_of(trace: Trace) -> Line:
    """For times of this trace."""
    return Line(trace.begin_ns, trace.end_ns)
