"""Who waits for whom: on each rank, a collective waits from its own start to the last
rank's. Its bandwidth counts once all ranks have arrived (see
questions/collectives.py)."""

from __future__ import annotations

import msgspec
import numpy as np

from fusetui.analysis.questions.collectives import bus_factor
from fusetui.analysis.ranks.clocks import Clocks
from fusetui.analysis.ranks.matching import Matched
from fusetui.analysis.ranks.model import KindOfCollective
from fusetui.trace.model.arrays import Int64s, Rows, summed
from fusetui.trace.model.grouping import by_key

UNTOLD = -1


class Waits(msgspec.Struct, frozen=True, eq=False):
    """Times on the common clock; see Matched for the shapes."""

    start: Int64s  # [rows]
    end: Int64s  # [rows]
    ready: Int64s  # [rows]: see Collectives
    wait: Int64s  # [rows]: never longer than the collective itself
    # [rows]: what of it neither compute nor an earlier wait of the same rank covers
    alone: Int64s
    latest: Rows  # [collectives]: the row that starts last
    # [collectives]: the row in the middle of the others, the earlier one of two
    usual: Rows
    # [collectives]: index of the rank that starts last, UNTOLD if clocks do not tell
    last: Rows
    # [collectives]: from the last start to the median end, UNTOLD if not known
    transfer: Int64s


def waits_of(matched: Matched, clocks: Clocks) -> Waits:
    start = clocks.common(matched.rank, matched.start)
    end = clocks.common(matched.rank, matched.end)
    ready = start - (matched.start - matched.ready)
    first, counts = matched.first[:-1], matched.counts
    if not len(matched):
        return Waits(start, end, start, start, start, first, first, first, start)
    by_start = np.lexsort((start, matched.of_row))
    latest, second = by_start[matched.first[1:] - 1], by_start[matched.first[1:] - 2]
    lead = start[latest] - start[second]
    told = lead > clocks.resolution_of(matched.rank[latest], matched.rank[second])
    told &= ~matched.point_to_point & (not clocks.refused)
    wait = np.clip(np.repeat(start[latest], counts) - start, 0, end - start)
    if clocks.refused:  # then nothing that compares two ranks is believed
        wait = np.zeros_like(wait)
    return Waits(
        start=start,
        end=end,
        ready=ready,
        wait=wait,
        alone=_alone(matched, latest, start, ready, end, wait),
        latest=latest,
        usual=by_start[first + (counts - 2) // 2],
        last=np.where(told, matched.rank[latest], UNTOLD),
        transfer=_transfer(matched, clocks, end, start[latest]),
    )


def _alone(
    matched: Matched,
    latest: Rows,
    start: Int64s,
    ready: Int64s,
    end: Int64s,
    wait: Int64s,
) -> Int64s:
    """For how many ns a rank stands still, because of each collective, before the rank
    that starts it last does. That one computes while the data moves if it can. A rank
    that has nothing to compute meanwhile waits no longer than the last one arrives
    after it was ready itself. Of waits in several groups at once the earlier one has
    the moment."""
    rank = matched.rank
    stalled = np.minimum(matched.stalled, matched.end - matched.start)
    still = end - stalled
    last_is_still = np.repeat(still[latest], matched.counts)
    last_arrives = np.repeat(start[latest], matched.counts)
    until_last_is_still = np.minimum(last_is_still - still, last_arrives - ready)
    wait = np.where(wait > 0, np.clip(until_last_is_still, 0, stalled), 0)
    order = np.lexsort((still, rank))
    span = int((still + wait).max() - still.min()) + 1
    own = rank[order] * span
    begin = own + still[order] - still.min()
    until = begin + wait[order]
    waited = np.maximum.accumulate(np.concatenate((own[:1], until[:-1])))
    found = np.empty_like(wait)
    found[order] = np.maximum(until - np.maximum(begin, waited), 0)
    return found


def _transfer(
    matched: Matched, clocks: Clocks, end: Int64s, last_start: Int64s
) -> Int64s:
    """Only where the whole group is given: another rank may have started later."""
    by_end = end[np.lexsort((end, matched.of_row))]
    first, counts = matched.first[:-1], matched.counts
    middle = (by_end[first + (counts - 1) // 2] + by_end[first + counts // 2]) // 2
    ns = middle - last_start
    blur = np.maximum.reduceat(
        clocks.resolution_of(
            matched.rank, np.full(len(matched.rank), clocks.reference)
        ),
        first,
    )
    known = matched.whole & (ns > 2 * blur) & (not clocks.refused)
    return np.where(known, ns, UNTOLD)


class OfRanks(msgspec.Struct, frozen=True, eq=False):
    """Sums over the collectives of each rank, sends and receives aside; arrays of shape
    [ranks]."""

    collectives: Int64s
    last: Int64s  # how often it starts last
    waited: Int64s
    bubble: Int64s  # how long it waited in sends and receives
    worst: Rows  # the row of its longest wait, -1 if it never waits


def sums_of_ranks(matched: Matched, waits: Waits) -> OfRanks:
    ranks = len(matched.ranks)
    moves = matched.point_to_point[matched.of_row]
    waited, bubble = (
        summed(matched.rank[of], waits.alone[of], ranks) for of in (~moves, moves)
    )
    worst = np.full(ranks, -1, dtype=np.intp)
    # of equals the first
    by_wait = np.lexsort((-np.arange(len(waits.wait)), waits.wait))
    by_wait = by_wait[(waits.wait[by_wait] > 0) & ~moves[by_wait]]
    worst[matched.rank[by_wait]] = by_wait
    collectives = np.bincount(matched.rank[~moves], minlength=ranks)
    last = np.bincount(waits.last[waits.last >= 0], minlength=ranks)
    return OfRanks(collectives, last, waited, bubble, worst)


def kinds_of(matched: Matched, waits: Waits) -> tuple[KindOfCollective, ...]:
    """The kinds of collectives with the longest waits first."""
    if not len(matched):
        return ()
    each = np.add.reduceat(waits.wait, matched.first[:-1]) // matched.counts
    keys = list(zip(matched.names, matched.groups, matched.bytes.tolist(), strict=True))
    found = []
    for (name, group, size), some in by_key(range(len(keys)), keys.__getitem__).items():
        transfer = waits.transfer[some]
        known = transfer[transfer > 0]
        ns = int(np.median(known)) if len(known) else None
        rate = size / ns * 1e9 if ns and size > 0 else None
        factor = bus_factor(name, group.size) if group.size else None
        one = KindOfCollective(
            name=name,
            group=group.description or group.name,
            ranks=group.size,
            given=int(matched.counts[some].max()),
            bytes=size if size >= 0 else None,
            count=len(some),
            wait_ns=int(each[some].sum()),
            transfer_ns=ns,
            algorithm_bytes_per_s=rate,
            bus_bytes_per_s=rate * factor
            if rate is not None and factor is not None
            else None,
        )
        found.append(one)
    return tuple(sorted(found, key=lambda kind: -kind.wait_ns))
