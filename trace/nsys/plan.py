"""How an export is divided: each table into batches of rows by their rowids, so that where a batch
is follows from the file alone."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.nsys.database import Export
from fusetui.trace.nsys.tables import EventTable, shown, sound

ROWS, MOST = 1 << 12, 1 << 16  # of a batch, where rowids have no gaps; batches of a table
LAST = 2**63 - 1


class Batches(msgspec.Struct, frozen=True):
    """The batches of one table: the rowids from `first` on, `rows` in each but the last, which has
    all further ones."""

    source: EventTable
    first: int
    rows: int
    count: int
    readable: str  # the condition for a row to be an event

    def bounds(self, number: int) -> tuple[int, int]:
        """The first and the last rowid."""
        begin = self.first + number * self.rows
        return begin, LAST if number == self.count - 1 else begin + self.rows - 1

    def counts(self, row: NDArray[np.int64]) -> list[int]:
        """How many of some rows are in each batch."""
        place = (row.view(np.uint64) - np.uint64(self.first % 2**64)) // np.uint64(self.rows)
        most = np.minimum(place, np.uint64(self.count - 1)).astype(np.int64)
        return np.bincount(most, minlength=self.count).tolist()  # type: ignore[no-any-return]


def plan(db: Export, sources: Sequence[EventTable]) -> list[Batches]:
    """The tables that have rows."""
    found = []
    for source in sources:
        ends = (db.rows(source.table, (f"{end}(rowid)",)) for end in ("min", "max"))
        (first,), (last,) = (next(end, (None,)) for end in ends)
        if first is None:
            continue
        span = max((LAST if last is None else last) - first, 0)
        rows = max(ROWS, span // MOST + 1)
        readable = f"{shown(db, source)} and {sound(source)}"
        found.append(Batches(source, first, rows, span // rows + 1, readable))
    return found
