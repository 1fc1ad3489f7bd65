"""What a rank was doing while the others waited for it: its account beside the median rank's.

A cause is told only if it lies in what was recorded: when a rank was late already where its window
begins, or what it did differently explains less than half of its delay, it is not.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.ranks.blame import Charges
from fusetui.analysis.ranks.clocks import Clocks
from fusetui.analysis.ranks.matching import Matched
from fusetui.analysis.ranks.model import CLASSES, RankSummary, unpacked

Int64s = NDArray[np.int64]
Rows = NDArray[np.intp]
MOST_PEERS = 64  # ranks whose median is compared with; of more, these are chosen evenly
COMPUTE = CLASSES.index("compute")
MOST_OF_IT = 1.1  # of a delay: what takes longer went on beside it, and is no reason
ENOUGH = 0.5  # of a delay


class Excess(msgspec.Struct, frozen=True):
    """What took longer than on the median of the other ranks, over all collectives it was late
    for."""

    kind: str  # class, annotation, op or frame
    name: str
    ns: int


class Reason(msgspec.Struct, frozen=True):
    """Why a rank is late. late_ns = outside_ns + inside_ns."""

    late_ns: int  # by its own work, beside a rank that was in time, over all collectives
    outside_ns: int  # of those for which it was late already where its window begins
    inside_ns: int
    begins_after_ns: int | None  # where outside: its begin after the earliest other's
    begins_after_rank: int | None
    has_step: bool  # whether that begin is a step's
    excess: tuple[Excess, ...]  # the largest first


def reason_of(matched: Matched, charges: Charges, clocks: Clocks, rank: int) -> Reason:
    """What `rank`, an index, did before the collectives for which it was late by its own work."""
    found = _Reason(matched, clocks, rank)
    mine = matched.rank[charges.own] == rank
    for row, late in zip(charges.own[mine].tolist(), charges.own_ns[mine].tolist(), strict=True):
        found.add(row, late)
    return found.result()


class _Reason:
    def __init__(self, matched: Matched, clocks: Clocks, rank: int) -> None:
        self._matched = matched
        self._clocks = clocks
        self._rank = rank
        self._inside = self._outside = 0
        self._begins: tuple[int, int] | None = None
        self._has_step = False
        self._excess: dict[tuple[str, str], int] = {}
        self._previous = _previous(matched)
        self._earlier = _earlier(matched, rank)
        self._places = {rank: _places(matched.ranks[rank])}
        self._accounts: dict[int, Int64s] = {}

    def add(self, own: int, late: int) -> None:
        place = self._matched.of_row[own]
        rows = np.arange(self._matched.first[place], self._matched.first[place + 1])
        others = rows[self._matched.rank[rows] != self._rank]
        if self._matched.row[own] == self._earlier and self._was_late(own, others, late):
            self._outside += late
            return
        self._inside += late
        chosen = np.unique(np.linspace(0, len(others) - 1, MOST_PEERS).astype(np.intp))
        self._compare(own, others[chosen])

    def result(self) -> Reason:
        most = MOST_OF_IT * max(self._inside, 1)
        excess = sorted(
            (item for item in self._excess.items() if item[1] <= most), key=lambda item: -item[1]
        )
        return Reason(
            late_ns=self._inside + self._outside,
            outside_ns=self._outside,
            inside_ns=self._inside,
            begins_after_ns=self._begins[0] if self._begins else None,
            begins_after_rank=self._begins[1] if self._begins else None,
            has_step=self._has_step,
            excess=tuple(Excess(kind, name, ns) for (kind, name), ns in excess if ns > 0)[:8],
        )

    def _was_late(self, own: int, others: Rows, late: int) -> bool:
        """Whether most of the delay was there already where the recording begins."""
        matched, clocks = self._matched, self._clocks
        rows = np.append(own, others)
        begins = [_begin(matched.ranks[matched.rank[row]], int(matched.start[row])) for row in rows]
        stepped = all(is_step for _, is_step in begins)
        times = [
            ns if stepped else matched.ranks[matched.rank[row]].begin_ns
            for (ns, _), row in zip(begins, rows, strict=True)
        ]
        common = clocks.common(matched.rank[rows], np.array(times, dtype=np.int64))
        carried = int(common[0]) - int(np.median(common[1:]))
        if carried < ENOUGH * late:
            return False
        first = int(np.argmin(common[1:]))
        rank = matched.ranks[matched.rank[others[first]]].rank
        self._begins, self._has_step = (int(common[0] - common[1:][first]), rank), stepped
        return True

    def _compare(self, own: int, others: Rows) -> None:
        matched = self._matched
        before = [self._before(row) for row in others.tolist()]
        mine = self._before(own)
        if mine is not None and all(one is not None for one in before):
            more = mine - np.median(np.array(before), axis=0).astype(np.int64)
            for name, ns in zip(CLASSES[1:], more[1:].tolist(), strict=True):
                if name != "idle":
                    self._count("class", name, ns)
        known = [self._of(int(matched.rank[row])).get(int(matched.row[row])) for row in others]
        theirs = [one for one in known if one is not None]
        if len(theirs) < len(known):  # kept are those of the longest stretches alone
            return
        for key, ns in self._of(self._rank).get(int(matched.row[own]), {}).items():
            self._count(*key, ns - int(np.median([one.get(key, 0) for one in theirs])))

    def _before(self, row: int) -> Int64s | None:
        """The account of the time before a collective; None without a GPU."""
        rank = int(self._matched.rank[row])
        if rank not in self._accounts:
            self._accounts[rank] = unpacked(self._matched.ranks[rank].collectives.before)
        found = self._accounts[rank]
        if not len(found):
            return None
        own: Int64s = found[self._matched.row[row]].copy()
        before = self._previous[row]  # what ran beside the collective before counts too
        own[COMPUTE] += self._matched.covered[before] if before >= 0 else 0
        return own

    def _of(self, rank: int) -> dict[int, dict[tuple[str, str], int]]:
        if rank not in self._places:
            self._places[rank] = _places(self._matched.ranks[rank])
        return self._places[rank]

    def _count(self, kind: str, name: str, ns: int) -> None:
        self._excess[kind, name] = self._excess.get((kind, name), 0) + ns


def _previous(matched: Matched) -> Rows:
    """For each row, that of the collective before it on the same rank, -1 for none."""
    order = np.lexsort((matched.row, matched.rank))
    found = np.full(len(order), -1, dtype=np.intp)
    same = np.diff(matched.rank[order]) == 0
    found[order[1:][same]] = order[:-1][same]
    return found


def _earlier(matched: Matched, rank: int) -> int:
    """The first collective of a rank that others took part in, by its number."""
    rows = matched.row[matched.rank == rank]
    return int(rows.min()) if len(rows) else -1


def _begin(one: RankSummary, start: int) -> tuple[int, bool]:
    """Where the step of a moment begins, else where the window does; and whether it is a step."""
    at = int(np.searchsorted(one.step_start, start, side="right")) - 1
    return (int(one.step_start[at]), True) if at >= 0 else (one.begin_ns, False)


def _places(one: RankSummary) -> dict[int, dict[tuple[str, str], int]]:
    found: dict[int, dict[tuple[str, str], int]] = {}
    for place in one.places:
        found.setdefault(place.number, {})[place.kind, place.name] = place.ns
    return found


def slower_kernels(one: RankSummary, others: Sequence[RankSummary]) -> float | None:
    """How much longer the same kernels take than on the median of the others: 0.18 for 18 %. Of
    names that ran equally often everywhere; None if there are none, or if they do not take
    longer."""
    chosen = [others[n] for n in np.unique(np.linspace(0, len(others) - 1, MOST_PEERS, dtype=int))]
    theirs = [{k.name: k for k in other.kernels if not k.communicates} for other in chosen]
    own = total = 0.0
    for kernel in one.kernels:
        same = [known[kernel.name] for known in theirs if kernel.name in known]
        if len(same) == len(theirs) and all(k.count == kernel.count for k in same):
            own += kernel.total_ns
            total += float(np.median([k.total_ns for k in same]))
    return own / total - 1 if total and own > total else None
