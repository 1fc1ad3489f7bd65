"""Which step each collective of a rank belongs to, numbered alike on all ranks."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.ranks.matching import Matched, step_keys

Rows = NDArray[np.intp]


class StepsOfRows(msgspec.Struct, frozen=True, eq=False):
    """The steps of a job, and of each row of Matched the step in which it was issued."""

    names: tuple[str, ...]  # () for a job without steps
    of_row: Rows  # number of the step, -1 before the first; 0 in a job without steps
    length_ns: float  # the median over steps and ranks; without steps that of the windows


def steps_of(matched: Matched) -> StepsOfRows:
    """The steps of a job, in their order."""
    names: dict[object, str] = {}
    for one in matched.ranks:
        for key, name in zip(step_keys(one), one.steps, strict=True):
            names.setdefault(key, name)
    places = {key: place for place, key in enumerate(names)}
    of_row = np.zeros(len(matched.rank), dtype=np.intp)
    order = np.argsort(matched.rank, kind="stable")
    bounds = np.searchsorted(matched.rank[order], np.arange(len(matched.ranks) + 1))
    for rank, one in enumerate(matched.ranks if names else ()):
        own = order[bounds[rank] : bounds[rank + 1]]
        issued = one.collectives.issued[matched.row[own]]
        at = np.searchsorted(one.step_start, issued, side="right") - 1
        columns = np.array([*(places[key] for key in step_keys(one)), -1])
        of_row[own] = columns[at]
    lengths = [one.step_end - one.step_start for one in matched.ranks if one.steps] or [
        np.array([one.end_ns - one.begin_ns]) for one in matched.ranks
    ]
    length = float(np.median(np.concatenate(lengths))) if lengths else 0.0
    return StepsOfRows(tuple(names.values()), of_row, length)
