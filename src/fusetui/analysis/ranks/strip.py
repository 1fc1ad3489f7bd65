"""How long each rank waited in each step: what the strip of the app's page shows."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.ranks.answer import Found

ALL = "all"
"""The only step of a job without steps."""


class Strip(msgspec.Struct, frozen=True, eq=False):
    """`waited` [ranks, steps] in ns; `ranks` are their numbers, ascending."""

    ranks: tuple[int, ...]
    steps: tuple[str, ...]
    waited: NDArray[np.int64]

    def shares(self, rank: int, width: int) -> tuple[float, ...]:
        """The waits of a rank in at most `width` places, the longest of those that share one, as
        shares of the longest wait of all."""
        row = self.waited[self.ranks.index(rank)]
        count = min(width, len(row))
        most = max(int(self.waited.max(initial=0)), 1)
        if not count:
            return ()
        first = np.arange(count) * len(row) // count
        return tuple((np.maximum.reduceat(row, first) / most).tolist())


def strip_of(found: Found) -> Strip:
    """A wait belongs to the step in which its rank issued the collective; those in sends and
    receives are not counted."""
    matched = found.matched
    steps = found.steps
    counted = (steps.of_row >= 0) & ~matched.point_to_point[matched.of_row]
    waited = np.zeros((len(matched.ranks), max(len(steps.names), 1)), dtype=np.int64)
    places = matched.rank[counted], steps.of_row[counted]
    np.add.at(waited, places, found.waits.alone[counted])
    return Strip(tuple(one.rank for one in matched.ranks), steps.names or (ALL,), waited)
