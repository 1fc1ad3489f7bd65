"""How long each rank waited in each step: what the strip of the app's page shows."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.ranks.answer import Found
from fusetui.trace.ranks.matching import step_keys

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
    """A wait belongs to the step in which its rank issued the collective."""
    ranks = found.matched.ranks
    names: dict[object, str] = {}
    for one in ranks:
        for key, name in zip(step_keys(one), one.steps, strict=True):
            names.setdefault(key, name)
    places = {key: place for place, key in enumerate(names)}
    waited = np.zeros((len(ranks), max(len(names), 1)), dtype=np.int64)
    for rank, one in enumerate(ranks):
        own = found.matched.rank == rank
        waits = found.waits.wait[own]
        if not names:
            waited[rank, 0] = waits.sum()
        elif one.steps:
            issued = one.collectives.issued[found.matched.row[own]]
            at = np.searchsorted(one.step_start, issued, side="right") - 1
            columns = np.array([places[key] for key in step_keys(one)])[at]
            np.add.at(waited[rank], columns[at >= 0], waits[at >= 0])
    return Strip(tuple(one.rank for one in ranks), tuple(names.values()) or (ALL,), waited)
