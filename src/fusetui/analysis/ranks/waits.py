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
from fusetui.analysis.ranks.model import UNKNOWN_BYTES, KindOfCollective
from fusetui.trace.model.arrays import (
    NO_ROW,
    Flags,
    Int64s,
    Rows,
    begins_runs,
    group_numbers,
    running_max,
    summed,
    value_before,
)
from fusetui.trace.model.grouping import by_key
from fusetui.trace.model.quantiles import median

UNKNOWN = -1
"""In place of a rank or a time that cannot be known, because clocks are imprecise."""


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

    @property
    def is_queued(self) -> Flags:
        """Per row: whether it was ready before its start, and so had to queue."""
        return np.asarray(self.ready < self.start)


def measure_waits(matched: Matched, clocks: Clocks) -> Waits:
    """Compute how long each rank waits in each collective, and for which rank.

    E.g. ranks that start a collective at 0, 3 and 10 ns wait 10, 7 and 0 ns in it, for
    the last one. If the clocks are refused, times of two ranks cannot be compared, and
    all waits are 0.

    Args:
        matched: The collectives of the job; a row is one rank's part in one.
        clocks: The clocks of all ranks.
    """
    start = clocks.to_common_clock(matched.rank, matched.start)
    end = clocks.to_common_clock(matched.rank, matched.end)
    ready_before_start_ns = matched.start - matched.ready
    ready = start - ready_before_start_ns
    if not len(matched):
        return _make_empty_waits(start, end)

    starters = _find_starters(matched, start)
    last_row = starters.last_row
    last_start = start[last_row]

    # A rank waits from its own start to the last one, but no longer than its part of
    # the collective lasts.
    until_last_start_ns = matched.for_each_row(last_start) - start
    wait_ns = np.clip(until_last_start_ns, 0, end - start)
    if clocks.refused:
        wait_ns = np.zeros_like(wait_ns)

    is_last_known = _mark_known_last(matched, clocks, start, starters)
    return Waits(
        start=start,
        end=end,
        ready=ready,
        wait_ns=wait_ns,
        idle_wait_ns=_measure_idle_waits(
            matched, last_row, start=start, ready=ready, end=end, wait_ns=wait_ns
        ),
        last_row=last_row,
        median_row=starters.median_row,
        last_rank=np.where(is_last_known, matched.rank[last_row], UNKNOWN),
        transfer_ns=_measure_transfers(matched, clocks, end, last_start),
    )


class _Starters(msgspec.Struct, frozen=True, eq=False):
    """The rows in which ranks start each collective; one entry per collective."""

    last_row: Rows  # that starts last
    second_last_row: Rows  # that starts last but one
    # Whose start is the median of all but the last one, the earlier one of two.
    median_row: Rows


def _find_starters(matched: Matched, start: Int64s) -> _Starters:
    """Find the rows that start each collective last, and in the middle.

    E.g. of rows that start at 0, 3, 5 and 10 ns: last that at 10, before it that at 5,
    and in the middle of all but the last one that at 3.

    Args:
        matched: The collectives. Each has at least two rows, one for each rank, which
            are neighbors.
        start: The start of each row, on the common clock.
    """
    # The rows of a collective stay where they are, but in the order of their starts.
    by_start = np.lexsort((start, matched.collective_of_row))
    first_position = matched.first[:-1]
    last_position = matched.first[1:] - 1
    rows_but_last = matched.counts - 1
    middle_position = first_position + (rows_but_last - 1) // 2
    return _Starters(
        last_row=by_start[last_position],
        second_last_row=by_start[last_position - 1],
        median_row=by_start[middle_position],
    )


def _mark_known_last(
    matched: Matched, clocks: Clocks, start: Int64s, starters: _Starters
) -> Flags:
    """Decide for which collectives it is known which rank starts last.

    The last two starts must lie further apart than the clocks of their ranks are
    uncertain. It is never known for sends and receives.

    Args:
        matched: The collectives; a row is one rank's part in one.
        clocks: The clocks of all ranks.
        start: The start of each row, on the common clock.
        starters: The rows that start each collective last.

    Returns:
        One flag per collective.
    """
    last_row = starters.last_row
    second_last_row = starters.second_last_row
    lead_ns = start[last_row] - start[second_last_row]
    resolution_ns = clocks.resolution_of(
        matched.rank[last_row], matched.rank[second_last_row]
    )
    is_comparable = ~matched.point_to_point & (not clocks.refused)
    return np.asarray((lead_ns > resolution_ns) & is_comparable)


def _make_empty_waits(start: Int64s, end: Int64s) -> Waits:
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


def _measure_idle_waits(
    matched: Matched,
    last_row: Rows,
    *,
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
        matched: The collectives; a row is one rank's part in one of them.
        last_row: Per collective the row that starts last.
        start: The start of each row, in ns of the common clock.
        ready: When the inputs of each row were computed.
        end: The end of each row.
        wait_ns: The wait of each row.

    Returns:
        The lost time of each row, in ns.
    """
    # Compute stands still for the last `stalled` ns of a collective.
    stalled_ns = np.minimum(matched.stalled, matched.end - matched.start)
    still_since = end - stalled_ns

    last_rank_still_since = matched.for_each_row(still_since[last_row])
    still_earlier_ns = last_rank_still_since - still_since
    last_start = matched.for_each_row(start[last_row])
    ready_earlier_ns = last_start - ready

    lost_ns = np.minimum(still_earlier_ns, ready_earlier_ns)
    lost_ns = np.clip(lost_ns, 0, stalled_ns)
    lost_ns = np.where(wait_ns > 0, lost_ns, 0)
    return _remove_overlaps(matched.rank, begin=still_since, length=lost_ns)


def _remove_overlaps(rank: Rows, *, begin: Int64s, length: Int64s) -> Int64s:
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
    by_begin = np.lexsort((begin, rank))  # first by rank
    sorted_begin = begin[by_begin]
    sorted_end = sorted_begin + length[by_begin]

    begins_rank = begins_runs(rank[by_begin])
    latest_end = running_max(sorted_end, group_numbers(begins_rank))
    counted_until = value_before(latest_end, begins_rank, missing=sorted_begin)

    # An interval keeps what lies behind all intervals before it.
    kept_begin = np.maximum(sorted_begin, counted_until)
    kept_ns = np.empty_like(length)
    kept_ns[by_begin] = np.maximum(sorted_end - kept_begin, 0)
    return kept_ns


def _measure_transfers(
    matched: Matched, clocks: Clocks, end: Int64s, last_start: Int64s
) -> Int64s:
    """Measure how long the data of each collective moves.

    That is the time from the last start to the median end. It is unknown if the clocks
    are not precise enough for it, and if a rank of the group was not given, because
    that rank may have started later. E.g. with the last start at 10 ns and ends at 14,
    15 and 17 ns, it is 5 ns.

    Args:
        matched: The collectives; a row is one rank's part in one of them.
        clocks: The clocks of all ranks.
        end: The end of each row, in ns of the common clock.
        last_start: The last start of each collective.

    Returns:
        ns per collective, UNKNOWN where it is unknown.
    """
    # Sorted by collective and end, the median is the mean of the two in the middle.
    by_end = np.lexsort((end, matched.collective_of_row))
    sorted_end = end[by_end]
    first_position = matched.first[:-1]
    lower_middle = sorted_end[first_position + (matched.counts - 1) // 2]
    upper_middle = sorted_end[first_position + matched.counts // 2]
    median_end = (lower_middle + upper_middle) // 2
    transfer_ns = median_end - last_start

    # A start and an end may each be off by the uncertainty of a clock.
    reference = np.full(len(matched.rank), clocks.reference)
    resolution_of_row = clocks.resolution_of(matched.rank, reference)
    resolution_ns = matched.over_ranks(np.maximum, resolution_of_row)
    is_precise = transfer_ns > 2 * resolution_ns

    is_known = matched.has_all_ranks & is_precise & (not clocks.refused)
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


def sum_by_rank(matched: Matched, waits: Waits) -> SumsOfRanks:
    """Add up the collectives and the waits of each rank.

    Sends and receives do not count as collectives; waits in them are added up on their
    own.

    Args:
        matched: The collectives of the job; a row is one rank's part in one.
        waits: The waits in these collectives.
    """
    rank_count = len(matched.ranks)
    is_send = matched.for_each_row(matched.point_to_point)
    is_collective = ~is_send
    rank_of_collectives = matched.rank[is_collective]
    known_last_ranks = waits.last_rank[waits.last_rank != UNKNOWN]
    return SumsOfRanks(
        collectives=np.bincount(rank_of_collectives, minlength=rank_count),
        last_count=np.bincount(known_last_ranks, minlength=rank_count),
        waited_ns=summed(
            rank_of_collectives, waits.idle_wait_ns[is_collective], rank_count
        ),
        bubble_ns=summed(
            matched.rank[is_send], waits.idle_wait_ns[is_send], rank_count
        ),
        worst_row=_find_worst_rows(matched, waits, is_collective),
    )


def _find_worst_rows(matched: Matched, waits: Waits, is_counted: Flags) -> Rows:
    """Find the row with the longest wait of each rank.

    Args:
        matched: The collectives; a row is one rank's part in one of them.
        waits: Their waits.
        is_counted: Which rows to consider; one flag per row.

    Returns:
        A row per rank, NO_ROW for a rank that never waits. Of equal waits it is the
        first row.
    """
    waiting_rows = np.flatnonzero((waits.wait_ns > 0) & is_counted)

    # Sort them by rank, those of a rank by their waits; then each first one is wanted.
    rank = matched.rank[waiting_rows]
    wait_ns = waits.wait_ns[waiting_rows]
    longest_first = np.lexsort((-wait_ns, rank))
    sorted_rows = waiting_rows[longest_first]
    is_first_of_rank = begins_runs(rank[longest_first])
    worst_of_ranks = sorted_rows[is_first_of_rank]

    worst_row = np.full(len(matched.ranks), NO_ROW, dtype=np.intp)
    worst_row[matched.rank[worst_of_ranks]] = worst_of_ranks
    return worst_row


def summarize_kinds(matched: Matched, waits: Waits) -> tuple[KindOfCollective, ...]:
    """Summarize the collectives of each name, process group and size.

    The wait of such a kind is the sum of the mean waits of its collectives: two
    all-reduces, in which two ranks wait 0 and 4, and 2 and 0 ns, have waits of 2 + 1 =
    3 ns.

    Args:
        matched: The collectives of the job.
        waits: The waits in these collectives.

    Returns:
        The summaries, those with the longest waits first.
    """
    if not len(matched):
        return ()
    wait_of_all_ranks = matched.over_ranks(np.add, waits.wait_ns)
    mean_wait_ns = wait_of_all_ranks // matched.counts

    kinds = list(
        zip(matched.names, matched.groups, matched.bytes.tolist(), strict=True)
    )
    collectives_of_kind = by_key(range(len(kinds)), kinds.__getitem__)
    summaries: list[KindOfCollective] = []
    for collectives in collectives_of_kind.values():
        wait_ns = int(mean_wait_ns[collectives].sum())
        summaries.append(_summarize_kind(matched, waits, collectives, wait_ns))
    summaries.sort(key=lambda summary: -summary.wait_ns)
    return tuple(summaries)


def _summarize_kind(
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
    recorded_bytes = int(matched.bytes[first])
    size_bytes = recorded_bytes if recorded_bytes != UNKNOWN_BYTES else None

    # A transfer is unknown where clocks are imprecise; the median is of the others.
    transfers = waits.transfer_ns[collectives]
    known_transfers = transfers[transfers != UNKNOWN]
    transfer_ns = median(known_transfers) if len(known_transfers) else None

    # The algbw and busbw of nccl-tests, in bytes per second.
    algorithm_rate = None
    bus_rate = None
    if transfer_ns and size_bytes:
        algorithm_rate = size_bytes / transfer_ns * 1e9
        factor = bus_factor(name, group.size) if group.size else None
        if factor is not None:
            bus_rate = algorithm_rate * factor

    return KindOfCollective(
        name=name,
        group=group.description or group.name,
        ranks=group.size,
        given=int(matched.counts[collectives].max()),
        bytes=size_bytes,
        count=len(collectives),
        wait_ns=wait_ns,
        transfer_ns=transfer_ns,
        algorithm_bytes_per_s=algorithm_rate,
        bus_bytes_per_s=bus_rate,
    )
