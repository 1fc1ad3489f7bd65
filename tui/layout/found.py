"""What a search found, grouped by name: the count is there while a person still types."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.columns import Trace

MOST = 50  # names that are listed
NOTHING = np.empty(0, dtype=np.intp)


class NameFound(msgspec.Struct, frozen=True):
    """All hits of one name."""

    role: int
    name: str
    count: int
    ns: int  # their durations added up


class Found(msgspec.Struct, frozen=True, eq=False):
    """The hits in order of time; `share` of those that may be hits was looked at."""

    text: str
    rows: NDArray[np.intp] = NOTHING
    names: tuple[NameFound, ...] = ()  # the longest first, at most MOST
    names_count: int = 0
    ns: int = 0
    share: float = 1.0
    wrong: str = ""  # a sentence: the text is no query

    @property
    def is_done(self) -> bool:
        return self.share == 1.0


def found_of(trace: Trace, text: str, rows: NDArray[np.intp], share: float = 1.0) -> Found:
    """The hits by name."""
    numbers, first, inverse = np.unique(trace.name[rows], return_index=True, return_inverse=True)
    sums = np.zeros(len(numbers), dtype=np.int64)
    np.add.at(sums, inverse, trace.dur[rows])
    counts = np.bincount(inverse, minlength=len(numbers))
    names = tuple(
        NameFound(
            int(trace.role[rows[first[n]]]), trace.names[numbers[n]], int(counts[n]), int(sums[n])
        )
        for n in np.argsort(-sums, kind="stable")[:MOST].tolist()
    )
    return Found(text, rows, names, len(numbers), int(sums.sum()), share)
