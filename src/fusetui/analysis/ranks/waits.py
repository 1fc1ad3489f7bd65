"""Determines which rank waits for which.

A collective waits on a rank from its own start to the start on the last rank. Only then
does data move, so its bandwidth counts from there (questions/collectives.py).

*Rows* are those of `Matched`: one for each rank that takes part in a collective. The
rows of one collective are neighbors.
"""

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

UNKNOWN = -1
"""In place of a rank or a time that cannot be known, because clocks are imprecise."""
NO_ROW = -1
"""In place of a row of Matched, where there is none."""


class Waits(msgspec.Struct, frozen=True, eq=False):
    """The waits of all ranks. Times are ns of the common clock.

    An array has one entry per row of `Matched` (one rank's part in one collective) or
    one entry per collective, as noted.
    """

    start: Int64s  # per row
    end: Int64s  # per row
    ready: Int64s  # per row: when its inputs were computed, as in Collectives
    # per row: from its start to the last start, in ns; at most its own length
    wait_ns: Int64s
    # per row: the part of the wait, in ns, in which the rank computes nothing and no
    # earlier collective makes it wait
    idle_wait_ns: Int64s
    last_row: Rows  # per collective: the row that starts last
    # per collective: the row whose start is the median of all but the last one, the
    # earlier one of two
    median_row: Rows
    # per collective: index of the rank that starts last, UNKNOWN if the clocks are too
    # imprecise
    last_rank: Rows
    # per collective: ns from the last start to the median end, UNKNOWN if the clocks
    # are too imprecise
    transfer_ns: Int64s


def waits_of(matched: Matched, clocks: Clocks) -> Waits:
    """Compute how long each rank waits in each collective, and for which rank.

    If the clocks are refused, times of two ranks cannot be compared, and all waits are
    0.

    Args:
        matched: The collectives of the job.
        clocks: The clocks of all ranks.
    """
    start = clocks.common(matched.rank, matched.start)
    end = clocks.common(matched.rank, matched.end)
    ready = start - (matched.start - matched.ready)
    if not len(matched):
        return _no_waits(start, end)

    # Sort rows by collective, then by start: the last row of a collective starts last.
    # Every collective has at least two rows.
    by_start = np.lexsort((start, matched.collective_of_row))
    last_row = by_start[matched.first[1:] - 1]
    second_last_row = by_start[matched.first[1:] - 2]
    others = matched.counts - 1
    middle_of_others = matched.first[:-1] + (others - 1) // 2

    last_start = start[last_row]
    last_start_of_row = np.repeat(last_start, matched.counts)
    wait_ns = np.clip(last_start_of_row - start, 0, end - start)
    if clocks.refused:
        wait_ns = np.zeros_like(wait_ns)

    is_last_known = _is_last_known(matched, clocks, start, last_row, second_last_row)
    return Waits(
        start=start,
        end=end,
        ready=ready,
        wait_ns=wait_ns,
        idle_wait_ns=_idle_waits(matched, last_row, start, ready, end, wait_ns),
        last_row=last_row,
        median_row=by_start[middle_of_others],
        last_rank=np.where(is_last_known, matched.rank[last_row], UNKNOWN),
        transfer_ns=_transfer_ns(matched, clocks, end, last_start),
    )


def _is_last_known(
    matched: Matched,
    clocks: Clocks,
    start: Int64s,
    last_row: Rows,
    second_last_row: Rows,
) -> Flags:
    """Decide for which collectives it is known which rank starts last.

    The last two starts must lie further apart than the clocks of their ranks are
    uncertain. It is never known for sends and receives.

    Args:
        matched: The collectives.
        clocks: The clocks of all ranks.
        start: The start of each row, on the common clock.
        last_row: Per collective the row that starts last.
        second_last_row: Per collective the row that starts last but one.

    Returns:
        One flag per collective.
    """
    lead_ns = start[last_row] - start[second_last_row]
    resolution_ns = clocks.resolution_of(
        matched.rank[last_row], matched.rank[second_last_row]
    )
    is_comparable = ~matched.point_to_point & (not clocks.refused)
    return np.asarray((lead_ns > resolution_ns) & is_comparable)


def _no_waits(start: Int64s, end: Int64s) -> Waits:
    """Return the waits of a job without collectives, all of whose arrays are empty."""
    no_rows = np.empty(0, dtype=np.intp)
    return Waits(
        start=start,
        end=end,
        ready=start,
        wait_ns=start,
        idle_wait_ns=start,
        last_row=no_rows,
        median_row=no_rows,
        last_rank=no_rows,
        transfer_ns=start,
    )


def _idle_waits(
    matched: Matched,
    last_row: Rows,
    start: Int64s,
    ready: Int64s,
    end: Int64s,
    wait_ns: Int64s,
) -> Int64s:
    """Compute how long each rank stands still because another rank starts late.

    A rank may compute while a collective waits, so not all of a wait is lost. Lost is
    the time by which its compute stands still earlier than that of the rank that starts
    last. If it has nothing to compute, the loss is at most the time from when it was
    ready itself to that last start. A moment in which several collectives wait counts
    for the one that began to stand still first.

    Args:
        matched: The collectives.
        last_row: Per collective the row that starts last.
        start: The start of each row, in ns of the common clock.
        ready: When the inputs of each row were computed.
        end: The end of each row.
        wait_ns: The wait of each row.

    Returns:
        The lost time of each row, in ns.
    """
    # Compute stands still for the last `stalled` ns of a collective.
    stalled = np.minimum(matched.stalled, matched.end - matched.start)
    still_since = end - stalled

    last_still_since = np.repeat(still_since[last_row], matched.counts)
    last_start = np.repeat(start[last_row], matched.counts)
    still_before_last = last_still_since - still_since
    ready_before_last = last_start - ready

    most_ns = np.minimum(still_before_last, ready_before_last)
    lost_ns = np.where(wait_ns > 0, np.clip(most_ns, 0, stalled), 0)
    return _without_overlaps(matched.rank, still_since, lost_ns)


def _without_overlaps(rank: Rows, begin: Int64s, length: Int64s) -> Int64s:
    """Shorten overlapping intervals of a rank so that no moment counts twice.

    A moment counts for the interval that began first. E.g. of the intervals from 0 to
    10 and from 6 to 15 ns, the second keeps 5 ns.

    Args:
        rank: The index of the rank of each interval.
        begin: The begin of each interval, in ns.
        length: The length of each interval, in ns.

    Returns:
        What is left of each length, in ns.
    """
    order = np.lexsort((begin, rank))

    # Lay the times of all ranks on one axis, one rank after the other, so that
    # intervals of different ranks do not overlap.
    first_ns = begin.min()
    rank_span = int((begin + length).max() - first_ns) + 1
    rank_begin = rank[order] * rank_span
    interval_begin = rank_begin + begin[order] - first_ns
    interval_end = interval_begin + length[order]

    # The latest end of all intervals before this one.
    end_before = np.concatenate((rank_begin[:1], interval_end[:-1]))
    covered_until = np.maximum.accumulate(end_before)

    uncovered = np.empty_like(length)
    uncovered_begin = np.maximum(interval_begin, covered_until)
    uncovered[order] = np.maximum(interval_end - uncovered_begin, 0)
    return uncovered


def _transfer_ns(
    matched: Matched, clocks: Clocks, end: Int64s, last_start: Int64s
) -> Int64s:
    """Measure how long the data of each collective moves.

    That is the time from the last start to the median end. It is unknown if the clocks
    are not precise enough for it, and if a rank of the group was not given, because
    that rank may have started later.

    Args:
        matched: The collectives.
        clocks: The clocks of all ranks.
        end: The end of each row, in ns of the common clock.
        last_start: The last start of each collective.

    Returns:
        ns per collective, UNKNOWN where it is unknown.
    """
    # The median end: rows sorted by collective and end, then the two in the middle.
    by_end = end[np.lexsort((end, matched.collective_of_row))]
    first = matched.first[:-1]
    lower_middle = by_end[first + (matched.counts - 1) // 2]
    upper_middle = by_end[first + matched.counts // 2]
    transfer_ns = (lower_middle + upper_middle) // 2 - last_start

    # A start and an end may each be off by the uncertainty of a clock.
    reference = np.full(len(matched.rank), clocks.reference)
    resolution_of_row = clocks.resolution_of(matched.rank, reference)
    resolution_ns = np.maximum.reduceat(resolution_of_row, first)
    is_precise = transfer_ns > 2 * resolution_ns

    is_known = matched.whole & is_precise & (not clocks.refused)
    return np.where(is_known, transfer_ns, UNKNOWN)


class SumsOfRanks(msgspec.Struct, frozen=True, eq=False):
    """Sums over the collectives of each rank; arrays have one entry per rank.

    Waits are those in which the rank stands still (`Waits.idle_wait_ns`). Sends and
    receives count in `bubble_ns` only.
    """

    collectives: Int64s  # in how many it takes part
    last_count: Int64s  # in how many of them it is known to start last
    waited_ns: Int64s  # how long it waited in them
    bubble_ns: Int64s  # how long it waited in sends and receives
    # the row of its longest wait by Waits.wait_ns, NO_ROW if it never waits
    worst_row: Rows


def sums_of_ranks(matched: Matched, waits: Waits) -> SumsOfRanks:
    """Add up the collectives and the waits of each rank.

    Args:
        matched: The collectives of the job.
        waits: The waits in these collectives.
    """
    ranks = len(matched.ranks)
    is_send = matched.point_to_point[matched.collective_of_row]
    is_collective = ~is_send
    known_last_ranks = waits.last_rank[waits.last_rank != UNKNOWN]
    return SumsOfRanks(
        collectives=np.bincount(matched.rank[is_collective], minlength=ranks),
        last_count=np.bincount(known_last_ranks, minlength=ranks),
        waited_ns=summed(
            matched.rank[is_collective], waits.idle_wait_ns[is_collective], ranks
        ),
        bubble_ns=summed(matched.rank[is_send], waits.idle_wait_ns[is_send], ranks),
        worst_row=_worst_rows(matched, waits, is_collective),
    )


def _worst_rows(matched: Matched, waits: Waits, is_counted: Flags) -> Rows:
    """Find the row with the longest wait of each rank.

    Args:
        matched: The collectives.
        waits: Their waits.
        is_counted: Which rows to consider; one flag per row.

    Returns:
        A row per rank, NO_ROW for a rank that never waits. Of equal waits it is the
        first row.
    """
    worst = np.full(len(matched.ranks), NO_ROW, dtype=np.intp)

    # Sort by wait; among equal waits put the first row last.
    descending_row = -np.arange(len(waits.wait_ns))
    by_wait = np.lexsort((descending_row, waits.wait_ns))
    is_wait = (waits.wait_ns > 0) & is_counted
    by_wait = by_wait[is_wait[by_wait]]

    # Each rank is assigned many times; its last assignment has the longest wait.
    worst[matched.rank[by_wait]] = by_wait
    return worst


def kinds_of(matched: Matched, waits: Waits) -> tuple[KindOfCollective, ...]:
    """Summarize the collectives of each name, process group and size.

    Args:
        matched: The collectives of the job.
        waits: The waits in these collectives.

    Returns:
        The summaries, those with the longest waits first.
    """
    if not len(matched):
        return ()
    wait_of_collective = np.add.reduceat(waits.wait_ns, matched.first[:-1])
    mean_wait_of_rank = wait_of_collective // matched.counts

    keys = list(zip(matched.names, matched.groups, matched.bytes.tolist(), strict=True))
    kinds: list[KindOfCollective] = []
    for collectives in by_key(range(len(keys)), keys.__getitem__).values():
        wait_ns = int(mean_wait_of_rank[collectives].sum())
        kinds.append(_kind(matched, waits, collectives, wait_ns))
    kinds.sort(key=lambda kind: -kind.wait_ns)
    return tuple(kinds)


def _kind(
    matched: Matched, waits: Waits, collectives: Sequence[int], wait_ns: int
) -> KindOfCollective:
    """Summarize the collectives of one name, process group and size.

    Args:
        matched: All collectives.
        waits: The waits in them.
        collectives: The indices of those to summarize; at least one.
        wait_ns: The sum of their mean waits.

    Returns:
        The summary. Its rates are None if no transfer or no size is known.
    """
    first = collectives[0]
    name = matched.names[first]
    group = matched.groups[first]
    size_bytes = int(matched.bytes[first])

    transfers = waits.transfer_ns[collectives]
    known_transfers = transfers[transfers > 0]  # an unknown one is UNKNOWN, below 0
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
        given=int(matched.counts[collectives].max()),
        bytes=size_bytes if size_bytes >= 0 else None,
        count=len(collectives),
        wait_ns=wait_ns,
        transfer_ns=transfer_ns,
        algorithm_bytes_per_s=algorithm_rate,
        bus_bytes_per_s=bus_rate,
    )
