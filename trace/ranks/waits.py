"""Who waits for whom: on each rank, a collective waits from its own start to the last rank's."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.ranks.clocks import Clocks
from fusetui.trace.ranks.matching import Matched

Int64s = NDArray[np.int64]
Rows = NDArray[np.intp]
UNTOLD = -1


class Waits(msgspec.Struct, frozen=True, eq=False):
    """Times on the common clock; see Matched for the shapes."""

    start: Int64s  # [rows]
    end: Int64s  # [rows]
    wait: Int64s  # [rows]: never longer than the collective itself
    last: Rows  # [collectives]: index of the rank that starts last, UNTOLD if clocks do not tell
    lead: Int64s  # [collectives]: from the second last start to the last one
    late: Int64s  # [collectives]: from the median start of the others to the last one
    transfer: Int64s  # [collectives]: from the last start to the median end, UNTOLD if not known


def waits_of(matched: Matched, clocks: Clocks) -> Waits:
    start = clocks.common(matched.rank, matched.start)
    end = clocks.common(matched.rank, matched.end)
    first, counts = matched.first[:-1], matched.counts
    if not len(matched):
        none = np.empty(0, dtype=np.int64)
        return Waits(start, end, start, first, none, none, none)
    by_start = np.lexsort((start, matched.of_row))
    latest, second = by_start[matched.first[1:] - 1], by_start[matched.first[1:] - 2]
    last_start = start[latest]
    lead = last_start - start[second]
    told = lead > clocks.resolution_of(matched.rank[latest], matched.rank[second])
    wait = np.clip(np.repeat(last_start, counts) - start, 0, end - start)
    return Waits(
        start=start,
        end=end,
        wait=wait,
        last=np.where(told, matched.rank[latest], UNTOLD),
        lead=lead,
        late=last_start - _middle_of_others(start[by_start], first, counts),
        transfer=_transfer(matched, clocks, end, last_start),
    )


def _middle_of_others(ordered: Int64s, first: Rows, counts: Rows) -> Int64s:
    """The median of all starts but the last; `ordered` has those of each collective in order."""
    others = counts - 1
    found: Int64s = (ordered[first + (others - 1) // 2] + ordered[first + others // 2]) // 2
    return found


def _transfer(matched: Matched, clocks: Clocks, end: Int64s, last_start: Int64s) -> Int64s:
    """Only where the whole group is given: another rank may have started later."""
    by_end = end[np.lexsort((end, matched.of_row))]
    first, counts = matched.first[:-1], matched.counts
    middle = (by_end[first + (counts - 1) // 2] + by_end[first + counts // 2]) // 2
    ns = middle - last_start
    blur = np.maximum.reduceat(
        clocks.resolution_of(matched.rank, np.full(len(matched.rank), clocks.reference)), first
    )
    found: Int64s = np.where(matched.whole & (ns > 2 * blur), ns, UNTOLD)
    return found


class OfRanks(msgspec.Struct, frozen=True, eq=False):
    """Sums over the collectives of each rank; arrays of shape [ranks]."""

    collectives: Int64s
    last: Int64s  # how often it starts last
    caused: Int64s  # how long the others waited in those collectives: the mean over the others
    waited: Int64s
    worst: Rows  # the row of its longest wait, -1 if it never waits


def sums_of_ranks(matched: Matched, waits: Waits) -> OfRanks:
    ranks = len(matched.ranks)
    told = np.flatnonzero(waits.last >= 0)
    caused = np.zeros(ranks, dtype=np.int64)
    if len(told):
        total = np.add.reduceat(waits.wait, matched.first[:-1])[told]
        np.add.at(caused, waits.last[told], total // (matched.counts[told] - 1))
    waited = np.zeros(ranks, dtype=np.int64)
    np.add.at(waited, matched.rank, waits.wait)
    worst = np.full(ranks, -1, dtype=np.intp)
    by_wait = np.lexsort((-np.arange(len(waits.wait)), waits.wait))  # of equals the first
    by_wait = by_wait[waits.wait[by_wait] > 0]
    worst[matched.rank[by_wait]] = by_wait
    return OfRanks(
        collectives=np.bincount(matched.rank, minlength=ranks),
        last=np.bincount(waits.last[told], minlength=ranks),
        caused=caused,
        waited=waited,
        worst=worst,
    )
