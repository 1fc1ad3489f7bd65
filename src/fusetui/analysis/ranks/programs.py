"""The order of collectives on each rank, and which rows are at the same position in the
program.

All ranks run the same program. So the n-th collective of a *kind* (those of one name,
size and number of ranks) is at the same position of the program on every rank, even if
different process groups run it.
"""

from __future__ import annotations

import msgspec
import numpy as np

from fusetui.analysis.ranks.matching import Matched
from fusetui.analysis.ranks.waits import Waits
from fusetui.trace.model.arrays import (
    NO_ROW,
    Flags,
    Int64s,
    Rows,
    at,
    begins_runs,
    last_at_or_before,
    prefix_sums,
    rank_of_each,
    value_before,
)


class Preceding(msgspec.Struct, frozen=True, eq=False):
    """Which collectives of the same rank ended before others began.

    Arrays have one entry per row of Matched, and hold rows of Matched.
    """

    last: Rows  # the one that ended last before the row began, NO_ROW for none
    # of the rows that may precede others: the one that ended before it, NO_ROW for none
    earlier: Rows


def find_preceding(
    matched: Matched, waits: Waits, *, among: Rows, begins: Int64s
) -> Preceding:
    """Find the collectives that ended before each row began, on the same rank.

    A row is one rank in one collective, as in the table `matched`.

    Args:
        matched: The collectives of the job.
        waits: The waits in these collectives, with all times on the common clock.
        among: The rows that may precede others; all others are passed over.
        begins: When each row of `matched` began, in ns of the common clock.

    Returns:
        For each row the last of `among` that had ended when the row began; and for each
        of `among` the one that ended before it on the same rank. NO_ROW for none.
    """
    # Times are counted from the first one, because `find_last_end_before` takes none
    # below 0.
    first_ns = int(min(begins.min(), waits.end.min()))
    last_row = find_last_end_before(
        end_ranks=matched.rank,
        ends=waits.end - first_ns,
        among=among,
        ranks=matched.rank,
        begins=begins - first_ns,
    )

    # Sorted by rank and end, each row follows the one that ended before it.
    order = np.lexsort((waits.end[among], matched.rank[among]))
    by_end = among[order]
    begins_rank = begins_runs(matched.rank[by_end])
    row_before = np.full(len(matched.rank), NO_ROW, dtype=np.intp)
    row_before[by_end] = value_before(by_end, begins_rank, missing=NO_ROW)
    return Preceding(last=last_row, earlier=row_before)


def find_last_end_before(
    *, end_ranks: Rows, ends: Int64s, among: Rows, ranks: Rows, begins: Int64s
) -> Rows:
    """Find for each begin the last end on the same rank that is not after it.

    E.g. with the ends 3, 5 and 9 ns of one rank, the begin 7 ns gives the index 1.

    Args:
        end_ranks: The index of the rank of each end.
        ends: The ends, in ns; none is below 0.
        among: Which ends to consider, as indices into `ends`.
        ranks: The index of the rank of each begin.
        begins: The begins, in ns; none is below 0.

    Returns:
        For each begin an index into `ends`, NO_ROW for none.
    """
    if not len(among):
        return np.full(len(begins), NO_ROW, dtype=np.intp)

    # Lay the times of all ranks on one axis, one rank after the other, so that one
    # sorted array can be searched for all ranks at once.
    last_time = int(max(ends.max(), begins.max()))
    ns_per_rank = last_time + 1
    end_on_axis = end_ranks[among] * ns_per_rank + ends[among]
    begin_on_axis = ranks * ns_per_rank + begins

    by_end = np.argsort(end_on_axis, kind="stable")
    sorted_ends = among[by_end]
    position = last_at_or_before(end_on_axis[by_end], begin_on_axis)
    last_end = at(sorted_ends, position, missing=NO_ROW)

    # The last end on the axis may be that of the rank before.
    is_of_rank = (last_end != NO_ROW) & (end_ranks[last_end] == ranks)
    return np.where(is_of_rank, last_end, NO_ROW)


class ProgramPositions:
    """Finds the rows of different ranks that are at the same position of the program.

    The position of a row is how many collectives of its kind its rank started before.
    A kind has one name, size and number of ranks.
    """

    def __init__(self, matched: Matched, starts: Int64s) -> None:
        """Number the collectives of each kind on each rank.

        Args:
            matched: The collectives of the job; a row is one rank's part in one.
            starts: The start of each row, in ns of the common clock.
        """
        self.kind_of_collective = _number_kinds(matched)
        """A number per collective, equal for those of one name, size and number of
        ranks."""
        self._kind = self.kind_of_collective[matched.collective_of_row]
        rank_count = len(matched.ranks)
        kinds = int(self._kind.max(initial=0)) + 1

        # Sort the rows by rank, kind and start. What is at position 3 of a rank and a
        # kind is then found 3 rows behind the first one of that rank and kind.
        self._sorted_rows = np.lexsort((starts, self._kind, matched.rank))
        row_count = np.zeros((rank_count, kinds), dtype=np.intp)
        np.add.at(row_count, (matched.rank, self._kind), 1)
        self._row_count = row_count
        """How many rows each rank has of each kind, of shape [ranks, kinds]."""

        rows_before = prefix_sums(row_count.reshape(-1))
        self._first_index = rows_before[:-1].reshape(rank_count, kinds)
        """Where these begin in `_sorted_rows`, in the same shape."""

        first_of_row = self._first_index[matched.rank, self._kind]
        self.position = rank_of_each(self._sorted_rows) - first_of_row
        """For each row how many collectives of its kind its rank started before."""

    def is_same_position(self, rows: Rows, other_rows: Rows) -> Flags:
        """Mark the pairs of rows that are at the same position of the program.

        Args:
            rows: One row of each pair.
            other_rows: The other row of each pair.
        """
        is_same_kind = self._kind[rows] == self._kind[other_rows]
        is_same_count = self.position[rows] == self.position[other_rows]
        return np.asarray(is_same_kind & is_same_count)

    def find_on_other_rank(self, ranks: Rows, rows: Rows) -> Rows:
        """Find the rows that are at the same positions of the program on other ranks.

        E.g. for the third all-reduce of 4 MB of a rank, it is the third one of that
        size on the other rank.

        Args:
            ranks: For each of `rows` the index of the rank to look on.
            rows: The rows. For NO_ROW the result means nothing.

        Returns:
            A row of each of `ranks`, NO_ROW where that rank does not get so far.
        """
        kind = self._kind[rows]
        position = self.position[rows]
        exists = position < self._row_count[ranks, kind]
        sorted_index = self._first_index[ranks, kind] + position
        # Where there is no such row, any one is looked up and then replaced.
        row = self._sorted_rows[np.where(exists, sorted_index, 0)]
        return np.where(exists, row, NO_ROW)


def _number_kinds(matched: Matched) -> Rows:
    """Number the kinds of collectives: those of one name, size and number of ranks.

    Returns:
        For each collective the number of its kind, from 0 in the order of occurrence.
    """
    number_of_kind: dict[tuple[str, int, int], int] = {}
    numbers = []
    kinds = zip(
        matched.names, matched.bytes.tolist(), matched.size.tolist(), strict=True
    )
    for kind in kinds:
        numbers.append(number_of_kind.setdefault(kind, len(number_of_kind)))
    return np.array(numbers, dtype=np.intp)
