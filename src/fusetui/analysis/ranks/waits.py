"""Who waits for whom: on each rank, a collective waits from its own start to the last
rank's. Its bandwidth counts once all ranks have arrived (see
questions/collectives.py)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from fusetui.analysis.questions.collectives import bus_factor
from fusetui.analysis.ranks.clocks import Clocks
from fusetui.analysis.ranks.matching import Matched
from fusetui.analysis.ranks.model import KindOfCollective
from fusetui.trace.model.arrays import Flags, Int64s, Rows, summed
from fusetui.trace.model.grouping import by_key
from fusetui.trace.model.quantiles import median

UNTOLD = -1  # in place of a rank or a time that clocks do not tell
NO_ROW = -1


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
    """Who waits for whom at each collective; nobody for anybody where clocks are
    refused."""
    start = clocks.common(matched.rank, matched.start)
    end = clocks.common(matched.rank, matched.end)
    ready = start - (matched.start - matched.ready)
    if not len(matched):
        return _no_waits(start, end)
    # rows by collective and within one by start, so that its last one starts last;
    # every collective has at least two
    by_start = np.lexsort((start, matched.of_row))
    latest = by_start[matched.first[1:] - 1]
    second = by_start[matched.first[1:] - 2]
    middle_of_others = matched.first[:-1] + (matched.counts - 2) // 2
    last_start = start[latest]
    wait = np.clip(np.repeat(last_start, matched.counts) - start, 0, end - start)
    if clocks.refused:  # then nothing that compares two ranks is believed
        wait = np.zeros_like(wait)
    is_told = _is_last_told(matched, clocks, start, latest, second)
    return Waits(
        start=start,
        end=end,
        ready=ready,
        wait=wait,
        alone=_alone(matched, latest, start, ready, end, wait),
        latest=latest,
        usual=by_start[middle_of_others],
        last=np.where(is_told, matched.rank[latest], UNTOLD),
        transfer=_transfer(matched, clocks, end, last_start),
    )


def _is_last_told(
    matched: Matched, clocks: Clocks, start: Int64s, latest: Rows, second: Rows
) -> Flags:
    """Whether clocks tell which rank starts each collective last; never of sends and
    receives. `latest`, `second`: the rows that start last and last but one."""
    lead_ns = start[latest] - start[second]
    resolution = clocks.resolution_of(matched.rank[latest], matched.rank[second])
    can_be_told = ~matched.point_to_point & (not clocks.refused)
    return np.asarray((lead_ns > resolution) & can_be_told)


def _no_waits(start: Int64s, end: Int64s) -> Waits:
    """The waits of a job without collectives; `start` and `end` are empty."""
    no_rows = np.empty(0, dtype=np.intp)
    return Waits(
        start=start,
        end=end,
        ready=start,
        wait=start,
        alone=start,
        latest=no_rows,
        usual=no_rows,
        last=no_rows,
        transfer=start,
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
    stalled = np.minimum(matched.stalled, matched.end - matched.start)
    still_since = end - stalled
    last_is_still = np.repeat(still_since[latest], matched.counts)
    last_arrives = np.repeat(start[latest], matched.counts)
    still_before_last = last_is_still - still_since
    ready_before_last = last_arrives - ready
    longest = np.minimum(still_before_last, ready_before_last)
    stands_still = np.where(wait > 0, np.clip(longest, 0, stalled), 0)
    return _once_a_moment(matched.rank, still_since, stands_still)


def _once_a_moment(rank: Rows, begin: Int64s, length: Int64s) -> Int64s:
    """The lengths of these intervals without what an interval of the same rank covers
    that began earlier; arrays of shape [rows], in ns."""
    order = np.lexsort((begin, rank))
    # all ranks on one axis, one after the other
    first_ns = begin.min()
    rank_span = int((begin + length).max() - first_ns) + 1
    rank_begin = rank[order] * rank_span
    since = rank_begin + begin[order] - first_ns
    until = since + length[order]
    earlier_until = np.concatenate((rank_begin[:1], until[:-1]))
    covered_until = np.maximum.accumulate(earlier_until)
    uncovered = np.empty_like(length)
    uncovered[order] = np.maximum(until - np.maximum(since, covered_until), 0)
    return uncovered


def _transfer(
    matched: Matched, clocks: Clocks, end: Int64s, last_start: Int64s
) -> Int64s:
    """For each collective the ns from the last start to the median end; UNTOLD where
    clocks are not precise enough for it, or not the whole group is given, of which
    another rank may have started later. `last_start`: of each collective."""
    by_end = end[np.lexsort((end, matched.of_row))]
    first = matched.first[:-1]
    lower_middle = by_end[first + (matched.counts - 1) // 2]
    upper_middle = by_end[first + matched.counts // 2]
    transfer_ns = (lower_middle + upper_middle) // 2 - last_start
    reference = np.full(len(matched.rank), clocks.reference)
    resolution = clocks.resolution_of(matched.rank, reference)
    of_collective = np.maximum.reduceat(resolution, first)
    is_precise = transfer_ns > 2 * of_collective
    is_known = matched.whole & is_precise & (not clocks.refused)
    return np.where(is_known, transfer_ns, UNTOLD)


class SumsOfRanks(msgspec.Struct, frozen=True, eq=False):
    """Sums over the collectives of each rank. Sends and receives count in `bubble`
    alone. Arrays of shape [ranks]; waits are those of Waits.alone, in ns."""

    collectives: Int64s  # in how many it takes part
    last: Int64s  # how often clocks tell that it starts last
    waited: Int64s
    bubble: Int64s  # how long it waited in sends and receives
    # the row of its longest wait by Waits.wait, NO_ROW if it never waits
    worst: Rows


def sums_of_ranks(matched: Matched, waits: Waits) -> SumsOfRanks:
    """In how many collectives each rank takes part, how often it starts last, how long
    it waits in them and in sends and receives, and the row of its longest wait."""
    ranks = len(matched.ranks)
    is_send = matched.point_to_point[matched.of_row]
    is_collective = ~is_send
    # UNTOLD for all sends and receives
    last_ranks = waits.last[waits.last != UNTOLD]
    return SumsOfRanks(
        collectives=np.bincount(matched.rank[is_collective], minlength=ranks),
        last=np.bincount(last_ranks, minlength=ranks),
        waited=summed(matched.rank[is_collective], waits.alone[is_collective], ranks),
        bubble=summed(matched.rank[is_send], waits.alone[is_send], ranks),
        worst=_worst_rows(matched, waits, is_collective),
    )


def _worst_rows(matched: Matched, waits: Waits, is_counted: Flags) -> Rows:
    """For each rank its row with the longest wait, of equal waits the first row; NO_ROW
    for a rank that never waits. Only rows that `is_counted` are considered."""
    worst = np.full(len(matched.ranks), NO_ROW, dtype=np.intp)
    later_first = -np.arange(len(waits.wait))
    by_wait = np.lexsort((later_first, waits.wait))
    is_wait = (waits.wait > 0) & is_counted
    by_wait = by_wait[is_wait[by_wait]]
    # the last assignment to a rank stays, which is that of its longest wait
    worst[matched.rank[by_wait]] = by_wait
    return worst


def kinds_of(matched: Matched, waits: Waits) -> tuple[KindOfCollective, ...]:
    """The collectives by name, group and size, those with the longest waits first."""
    if not len(matched):
        return ()
    sums = np.add.reduceat(waits.wait, matched.first[:-1])
    mean_waits = sums // matched.counts
    keys = list(zip(matched.names, matched.groups, matched.bytes.tolist(), strict=True))
    kinds: list[KindOfCollective] = []
    for places in by_key(range(len(keys)), keys.__getitem__).values():
        wait_ns = int(mean_waits[places].sum())
        kinds.append(_kind(matched, waits, places, wait_ns))
    kinds.sort(key=lambda kind: -kind.wait_ns)
    return tuple(kinds)


def _kind(
    matched: Matched, waits: Waits, places: Sequence[int], wait_ns: int
) -> KindOfCollective:
    """What is told of the collectives at these places, which are of one kind; rates are
    None where no transfer or no size is known. `wait_ns`: their mean waits, added."""
    name = matched.names[places[0]]
    group = matched.groups[places[0]]
    size_bytes = int(matched.bytes[places[0]])
    transfers = waits.transfer[places]
    known_transfers = transfers[transfers > 0]
    transfer_ns = median(known_transfers) if len(known_transfers) else None
    algorithm_rate = None
    bus_rate = None
    if transfer_ns and size_bytes > 0:
        algorithm_rate = size_bytes / transfer_ns * 1e9
        factor = bus_factor(name, group.size) if group.size else None
        if factor is not None:
            bus_rate = algorithm_rate * factor
    return KindOfCollective(
        name=name,
        group=group.description or group.name,
        ranks=group.size,
        given=int(matched.counts[places].max()),
        bytes=size_bytes if size_bytes >= 0 else None,
        count=len(places),
        wait_ns=wait_ns,
        transfer_ns=transfer_ns,
        algorithm_bytes_per_s=algorithm_rate,
        bus_bytes_per_s=bus_rate,
    )
