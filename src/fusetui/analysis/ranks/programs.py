"""The order of the collectives on each rank, and what is the same place in the programs
of two ranks."""

from __future__ import annotations

import msgspec
import numpy as np

from fusetui.analysis.ranks.matching import Matched
from fusetui.analysis.ranks.waits import Waits
from fusetui.trace.model.arrays import Flags, Int64s, Rows, ordinals

NO_ROW = -1


class Preceding(msgspec.Struct, frozen=True, eq=False):
    """Of some collectives those that ended before others began, rank by rank; arrays of
    shape [rows], NO_ROW for none."""

    last: Rows  # the last one that ended before each row began
    earlier: Rows  # the one that ended before each of them


def preceding(matched: Matched, waits: Waits, among: Rows, begins: Int64s) -> Preceding:
    """For each row of Matched the last of the rows `among` that ended on its rank
    before it began; and for each of `among` the one that ended before it. `begins`: of
    each row, in ns of the common clock."""
    first_ns = int(min(begins.min(), waits.end.min()))
    last = last_before(
        end_ranks=matched.rank,
        ends=waits.end - first_ns,
        among=among,
        ranks=matched.rank,
        begins=begins - first_ns,
    )
    by_end = among[np.lexsort((waits.end[among], matched.rank[among]))]
    is_same_rank = matched.rank[by_end[1:]] == matched.rank[by_end[:-1]]
    earlier = np.full(len(matched.rank), NO_ROW, dtype=np.intp)
    earlier[by_end[1:][is_same_rank]] = by_end[:-1][is_same_rank]
    return Preceding(last=last, earlier=earlier)


def last_before(
    *, end_ranks: Rows, ends: Int64s, among: Rows, ranks: Rows, begins: Int64s
) -> Rows:
    """For each of the `begins` the place in `ends` of the last end that is on the same
    rank and not after it; NO_ROW for none. Only the places `among` are considered.
    `end_ranks`: of each end; `ranks`: of each begin. No time is below 0."""
    if not len(among):
        return np.full(len(begins), NO_ROW, dtype=np.intp)
    # all ranks on one axis, one after the other
    rank_span = int(max(ends.max(), begins.max())) + 1
    end_on_axis = end_ranks[among] * rank_span + ends[among]
    begin_on_axis = ranks * rank_span + begins
    by_end = np.argsort(end_on_axis, kind="stable")
    ended = np.searchsorted(end_on_axis[by_end], begin_on_axis, "right")
    last_place = np.maximum(ended - 1, 0)
    last = among[by_end[last_place]]
    is_of_rank = (ended > 0) & (end_ranks[last] == ranks)
    return np.where(is_of_rank, last, NO_ROW)


class Programs:
    """What the ranks run: the n-th collective of a kind is the same place of the
    program on all of them."""

    def __init__(self, matched: Matched, starts: Int64s) -> None:
        """`starts` in ns of the common clock, of each row."""
        self.kind_of_collective = _kinds(matched)
        """A number per collective, equal for those of one name, size and number of
        ranks."""
        self._kind = self.kind_of_collective[matched.of_row]
        self._kinds = int(self._kind.max(initial=0)) + 1
        key = matched.rank * self._kinds + self._kind
        self._order = np.lexsort((starts, key))
        every_key = np.arange(len(matched.ranks) * self._kinds + 1)
        self._first = np.searchsorted(key[self._order], every_key)
        self.place = np.empty(len(key), dtype=np.intp)
        """Of each row: how many collectives of its kind its rank started before."""
        self.place[self._order] = ordinals(key[self._order])

    def is_same_place(self, rows: Rows, other_rows: Rows) -> Flags:
        """Whether each of these rows is at the same place of the program as the
        other."""
        same_kind = self._kind[rows] == self._kind[other_rows]
        return np.asarray(same_kind & (self.place[rows] == self.place[other_rows]))

    def row_on(self, ranks: Rows, rows: Rows) -> Rows:
        """The rows of these ranks at the same places of the program as these; NO_ROW
        for none."""
        key = ranks * self._kinds + self._kind[rows]
        place = self._first[key] + self.place[rows]
        exists = place < self._first[key + 1]
        return np.where(exists, self._order[np.where(exists, place, 0)], NO_ROW)


def _kinds(matched: Matched) -> Rows:
    """See Programs.kind_of_collective."""
    numbers: dict[tuple[str, int, int], int] = {}
    kinds = []
    for name, size_bytes, ranks in zip(
        matched.names, matched.bytes.tolist(), matched.size.tolist(), strict=True
    ):
        kinds.append(numbers.setdefault((name, size_bytes, ranks), len(numbers)))
    return np.array(kinds, dtype=np.intp)
