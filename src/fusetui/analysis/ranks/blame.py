"""Charges each wait to the ranks that caused it: those whose own work made them late.

To *charge* a wait to a rank means to count it as caused by that rank, its *culprit*. The
rank that starts a collective last may itself have waited for another rank, in another
process group. So chains.py follows each late rank back through the collectives before,
comparing it with a rank that was in time (the median of the others). Such a path back
is a *chain*. If the late rank took longer for some work than its counterpart, the
difference is charged to it. A transfer that took longer is charged to nobody. The chain
ends where both ranks come out of the same collective, where something was not recorded,
or where the late rank is late no longer. Differences of opposite sign cancel per rank,
and what remains says how the wait is divided between the culprits.

If several ranks are late for one collective, each of them has a chain of its own. Each
moment of a wait is shared equally by the ranks that have not arrived yet
(`divide_waits`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from fusetui.analysis.ranks.chains import (
    LAST_RANK_COLUMN,
    MAX_LATE_RANKS,
    NOISE_SHARE,
    Chains,
    LateRanks,
    OwnDelays,
    RowPairs,
    Shares,
    UnchargedReason,
    divide_waits,
    encode_reason,
)
from fusetui.analysis.ranks.clocks import Clocks
from fusetui.analysis.ranks.matching import Matched, StepsOfRows
from fusetui.analysis.ranks.waits import Waits
from fusetui.trace.model.arrays import (
    Flags,
    Floats,
    Rows,
    equal_ranges,
    numbers_of_sized_groups,
)
from fusetui.trace.model.intervals import ranges

MAX_CHARGE_PER_LATENESS = 2
"""A wait for a rank is charged up to so many times the lateness of that rank after the
median of the others. What is longer is waited because the waiting rank was early."""
NO_CHAIN = -1
NO_ROWS = np.empty(0, dtype=np.intp)


class ChargedWaits(msgspec.Struct, frozen=True, eq=False):
    """The waits of all ranks, divided among the ranks that are to blame for them.

    The first four arrays have one entry for each part of a wait. Charged and uncharged
    parts together are all waits outside of sends and receives.
    """

    # row of Matched: the rank that waits, and the collective in which it does
    row: Rows
    culprit: Rows  # index of the rank that is to blame for this part
    step: Rows  # in which the culprit was late by its own work, NO_STEP if in none
    ns: Floats  # how long the part is
    own_delays: OwnDelays  # how late ranks became by their own work, and where
    uncharged_ns: Floats  # [UnchargedReason]: waits for which no rank is to blame


def charge_waits(
    matched: Matched,
    waits: Waits,
    clocks: Clocks,
    steps: StepsOfRows,
    stages: Sequence[int | None],
) -> ChargedWaits:
    """Charge every wait to the ranks that are to blame for it.

    E.g. rank 0 waits 9 ms for rank 2. Rank 2 computed 4 ms longer than the others, and
    had itself waited 5 ms for rank 1: so 4 ms are charged to rank 2 and 5 ms to rank 1.
    Waits that are too short for the precision of the clocks are charged to nobody.

    Args:
        matched: The collectives of the job; a row is one rank's part in one.
        waits: The waits of the ranks in these collectives.
        clocks: The clocks of all ranks.
        steps: The steps of the job.
        stages: The stage of each rank of a pipeline, empty for other jobs. Ranks of
            different stages do different work, so they are not compared.
    """
    stage_of_rank = _number_stages(stages, rank_count=len(matched.ranks))
    late_ranks = _find_late_ranks(matched, waits, clocks, stage_of_rank)

    # A collective that was queued behind another one started late because that one
    # ended late, so it has no chain of its own.
    is_counted = ~matched.point_to_point & (not clocks.refused)
    is_queued = waits.is_queued[waits.last_row]
    has_late_rank = late_ranks.is_late[:, LAST_RANK_COLUMN]
    has_chains = is_counted & has_late_rank & ~is_queued
    chain_starts = _start_chains(waits, late_ranks, has_chains)
    if not len(chain_starts.pairs):
        return _make_empty_charges()

    # Follow each late rank back to the work that made it late.
    chains = Chains(
        matched,
        waits,
        clocks,
        late_ranks=late_ranks,
        lateness=chain_starts.lateness_ns,
        step_of_row=steps.step_of_row,
        stage_of_rank=stage_of_rank,
    )
    chains.follow(chain_starts.pairs)

    # Divide each wait first among the ranks that are late, then among their culprits.
    chargeable = _measure_chargeable_waits(
        matched,
        waits,
        clocks,
        is_counted=is_counted,
        is_queued=is_queued,
        max_ns=_limit_charges(waits, has_chains),
    )
    split = _split_among_late_ranks(
        matched, waits, late_ranks, chargeable.ns, chain_starts.chain_of_late_rank
    )
    return _charge_culprits(
        matched,
        split,
        chains.compute_shares(),
        uncharged_ns=chargeable.uncharged_ns,
        own_delays=chains.list_own_delays(),
    )


def _limit_charges(waits: Waits, has_chains: Flags) -> Floats:
    """Compute how many ns of a wait for each collective can be charged at most.

    If the rank that starts the collective last is 1 ms late, it can be blamed for a
    wait of 1 ms, or of MAX_CHARGE_PER_LATENESS ms at most.

    Args:
        waits: The waits in all collectives.
        has_chains: Which collectives count; one flag per collective.

    Returns:
        ns per collective; 0 for a collective that does not count.
    """
    lateness_ns = waits.start[waits.last_row] - waits.start[waits.median_row]
    return np.where(has_chains, MAX_CHARGE_PER_LATENESS * lateness_ns, 0.0)


def _make_empty_charges() -> ChargedWaits:
    """Return the charges of a job in which nobody waits for a late rank."""
    no_delays = OwnDelays(row=NO_ROWS, ns=np.empty(0, dtype=np.int64))
    return ChargedWaits(
        row=NO_ROWS,
        culprit=NO_ROWS,
        step=NO_ROWS,
        ns=np.empty(0),
        own_delays=no_delays,
        uncharged_ns=np.zeros(len(UnchargedReason)),
    )


def _number_stages(stages: Sequence[int | None], rank_count: int) -> Rows:
    """Give each rank a number that it shares with the ranks of its pipeline stage.

    E.g. the stages (0, 1, None, None) become 0, 1, -3 and -4: a rank whose stage is
    unknown gets a number of its own, below 0, because it cannot be compared with any.

    Args:
        stages: The stage of each rank, None where it is unknown. Empty for a job that
            is no pipeline; all of its ranks get the number 0.
        rank_count: How many ranks there are.
    """
    if not stages:
        return np.zeros(rank_count, dtype=np.intp)
    numbers = []
    for rank, stage in enumerate(stages):
        number_of_its_own = -1 - rank
        numbers.append(number_of_its_own if stage is None else stage)
    return np.array(numbers, dtype=np.intp)


def _find_late_ranks(
    matched: Matched, waits: Waits, clocks: Clocks, stage_of_rank: Rows
) -> LateRanks:
    """Find the ranks that are late for each collective, the last one first.

    A rank is late if it starts after the median rank. It must be late by at least
    NOISE_SHARE of the lateness of the last rank. Besides the last rank itself, only
    ranks of its stage count that did not have the collective queued
    (`_mark_possibly_late`).

    Args:
        matched: The collectives of the job; a row is one rank's part in one.
        waits: The waits in these collectives.
        clocks: The clocks of all ranks.
        stage_of_rank: The pipeline stage of each rank.
    """
    # Tables of shape [collectives, MAX_LATE_RANKS].
    last_starters = _find_last_starters(matched, waits)
    late_row = last_starters.row
    median_row = np.broadcast_to(waits.median_row[:, None], late_row.shape)
    lateness_ns = waits.start[late_row] - waits.start[median_row]
    lateness_of_last_ns = lateness_ns[:, [LAST_RANK_COLUMN]]
    exceeds_noise = lateness_ns >= NOISE_SHARE * lateness_of_last_ns
    may_be_late = last_starters.exists & _mark_possibly_late(
        matched, waits, stage_of_rank, late_row
    )
    is_late = may_be_late & (lateness_ns > 0) & exceeds_noise

    # The lateness is certain if it exceeds the largest uncertainty between any late
    # rank of the collective and the median rank.
    resolution = clocks.resolution_of(matched.rank[late_row], matched.rank[median_row])
    resolution_of_late = np.where(is_late, resolution, 0.0)
    largest_resolution = resolution_of_late.max(axis=1, initial=0.0, keepdims=True)
    is_comparable = ~matched.point_to_point & (not clocks.refused)
    is_certain = (lateness_ns > largest_resolution) & is_comparable[:, None]
    return LateRanks(row=late_row, is_late=is_late, is_certain=np.asarray(is_certain))


def _mark_possibly_late(
    matched: Matched, waits: Waits, stage_of_rank: Rows, row: Rows
) -> Flags:
    """Mark the ranks that may count as late for a collective.

    The last rank always may. Another rank may if it is of the same pipeline stage,
    because it does the same work, and if it did not have the collective queued behind
    another one, because it was ready before it started.

    Args:
        matched: The collectives of the job; a row is one rank's part in one.
        waits: The waits in these collectives.
        stage_of_rank: The stage of each rank.
        row: The rows of the ranks that start each collective last, of shape
            [collectives, MAX_LATE_RANKS].

    Returns:
        Flags in the shape of `row`.
    """
    stage = stage_of_rank[matched.rank[row]]
    stage_of_last = stage[:, [LAST_RANK_COLUMN]]
    may_be_late = (stage == stage_of_last) & ~waits.is_queued[row]
    may_be_late[:, LAST_RANK_COLUMN] = True
    return np.asarray(may_be_late)


class _LastStarters(msgspec.Struct, frozen=True, eq=False):
    """The ranks that start each collective last, the last one first.

    Arrays have the shape [collectives, MAX_LATE_RANKS]. The rank that starts a
    collective first is not among them.
    """

    row: Rows  # row of Matched
    # False: the collective has no such rank, and the row is to be ignored
    exists: Flags


def _find_last_starters(matched: Matched, waits: Waits) -> _LastStarters:
    """Find the MAX_LATE_RANKS ranks that start each collective last, the last one
    first.

    The rank that starts a collective first is left out: somebody has to wait for the
    others.
    """
    # The rows of a collective stay where they are, but in the order of their starts.
    by_start = np.lexsort((waits.start, matched.collective_of_row))
    first_position = matched.first[:-1, None]
    last_position = matched.first[1:, None] - 1

    # Go back from the last position; the rank at the first one does not count.
    steps_back = np.arange(MAX_LATE_RANKS)
    position = last_position - steps_back
    exists = position > first_position
    row = by_start[np.maximum(position, first_position)]
    return _LastStarters(row=row, exists=exists)


class _ChainStarts(msgspec.Struct, frozen=True, eq=False):
    """Where chains begin: each at a rank that is late for a collective.

    A chain is the path back from such a rank to the work that made it late.
    """

    pairs: RowPairs  # the late row and the median row; chain n begins at pair n
    # of each chain: by how many ns the late row starts later than the median row
    lateness_ns: Floats
    # [collectives, MAX_LATE_RANKS], as in LateRanks: the index of the chain of each
    # late rank, NO_CHAIN for none
    chain_of_late_rank: Rows


def _start_chains(
    waits: Waits, late_ranks: LateRanks, has_chains: Flags
) -> _ChainStarts:
    """Begin a chain for each late rank of a collective.

    A *chain* follows that rank back to the work that made it late, comparing it with a
    rank that was in time: that whose start is the median of the others. E.g. for a
    collective with starts at 0, 2, 3 and 9 ns, the rank that starts at 9 has a chain,
    next to the rank that starts at 2, with a lateness of 7 ns.

    Args:
        waits: The waits in all collectives.
        late_ranks: The ranks that are late for each collective.
        has_chains: Which collectives have chains; one flag per collective.
    """
    collective, column = np.nonzero(late_ranks.is_late & has_chains[:, None])
    pairs = RowPairs(
        chain=np.arange(len(collective)),
        late_row=late_ranks.row[collective, column],
        in_time_row=waits.median_row[collective],
        weight=np.ones(len(collective)),
    )
    chain_of_late_rank = np.full(late_ranks.row.shape, NO_CHAIN)
    chain_of_late_rank[collective, column] = pairs.chain
    lateness_ns = waits.start[pairs.late_row] - waits.start[pairs.in_time_row]
    return _ChainStarts(
        pairs=pairs,
        lateness_ns=lateness_ns.astype(np.float64),
        chain_of_late_rank=chain_of_late_rank,
    )


class _ChargeableWaits(msgspec.Struct, frozen=True, eq=False):
    """How much of each wait can be charged to the ranks that are late."""

    ns: Floats  # one per row of Matched
    uncharged_ns: Floats  # [UnchargedReason]: the rest of the waits, by its reason


def _measure_chargeable_waits(
    matched: Matched,
    waits: Waits,
    clocks: Clocks,
    *,
    is_counted: Flags,
    is_queued: Flags,
    max_ns: Floats,
) -> _ChargeableWaits:
    """Measure how much of each wait can be charged to the ranks that are late.

    That is the time in which the waiting rank neither computes nor waits in an earlier
    collective (`Waits.idle_wait_ns`), up to a limit. It is 0 where the wait is no
    longer than the clocks are uncertain.

    Args:
        matched: The collectives of the job; a row is one rank's part in one.
        waits: The waits in these collectives.
        clocks: The clocks of all ranks.
        is_counted: Which collectives count; one flag per collective.
        is_queued: Which collectives their last rank had queued behind another one.
        max_ns: The limit of each collective, 0 for a queued one.
    """
    is_counted_row = matched.for_each_row(is_counted)
    idle_ns = np.where(is_counted_row, waits.idle_wait_ns, 0).astype(np.float64)

    last_rank = matched.for_each_row(matched.rank[waits.last_row])
    resolution_ns = clocks.resolution_of(matched.rank, last_rank)
    is_uncertain = waits.wait_ns <= resolution_ns
    limited_ns = np.minimum(idle_ns, matched.for_each_row(max_ns))
    chargeable_ns = np.where(is_uncertain, 0.0, limited_ns)
    rest_ns = idle_ns - chargeable_ns

    # The rest of every wait has one reason.
    is_queued_row = matched.for_each_row(is_queued)
    is_after_queued = ~is_uncertain & is_queued_row
    is_too_early = ~is_uncertain & ~is_queued_row
    uncharged_ns = np.zeros(len(UnchargedReason))
    uncharged_ns[UnchargedReason.UNDECIDED] = rest_ns[is_uncertain].sum()
    uncharged_ns[UnchargedReason.LONGER_TRANSFER] = rest_ns[is_after_queued].sum()
    uncharged_ns[UnchargedReason.EARLY_ARRIVAL] = rest_ns[is_too_early].sum()
    return _ChargeableWaits(ns=np.asarray(chargeable_ns), uncharged_ns=uncharged_ns)


class _SplitWaits(msgspec.Struct, frozen=True, eq=False):
    """Waits, divided among the ranks that are late for the collective.

    There is one entry for each combination of a waiting rank and a late rank.
    """

    row: Rows  # row of Matched: the rank that waits
    chain: Rows  # the index of the chain of the late rank
    ns: Floats  # the part of the wait for which the late rank accounts


def _split_among_late_ranks(
    matched: Matched,
    waits: Waits,
    late_ranks: LateRanks,
    ns: Floats,
    chain_of_late_rank: Rows,
) -> _SplitWaits:
    """Divide each wait among the late ranks that arrive after it began.

    Each moment is shared equally by those that have not arrived yet: if a rank waits 10
    ms, and late ranks arrive 4 and 10 ms after it, the first of them accounts for 2 ms
    and the last one for 2 + 6 ms.

    Args:
        matched: The collectives of the job; a row is one rank's part in one.
        waits: The waits in these collectives.
        late_ranks: The ranks that are late for each collective.
        ns: How much of the wait of each row can be charged.
        chain_of_late_rank: The chain of each late rank, as in _ChainStarts.
    """
    waiting_rows = np.flatnonzero(ns > 0)
    collective = matched.collective_of_row[waiting_rows]
    wait_begin = waits.start[waiting_rows]

    # Tables of shape [waiting rows, MAX_LATE_RANKS].
    late_start = waits.start[late_ranks.row[collective]]
    is_late = late_ranks.is_late[collective]
    arrives_after_ns = np.where(is_late, late_start - wait_begin[:, None], 0)
    share = divide_waits(arrives_after_ns.astype(np.float64))
    part_ns = ns[waiting_rows][:, None] * share
    chain = chain_of_late_rank[collective]

    # Keep the parts that are not empty.
    has_share = share > 0
    row = np.broadcast_to(waiting_rows[:, None], share.shape)
    return _SplitWaits(
        row=row[has_share], chain=chain[has_share], ns=part_ns[has_share]
    )


class _CulpritPairs(msgspec.Struct, frozen=True, eq=False):
    """Each part of a wait with each culprit of its chain; one entry per pair."""

    part: Rows  # the index of the part in _SplitWaits
    share: Rows  # the index of the culprit in Shares


def _pair_with_culprits(split: _SplitWaits, shares: Shares) -> _CulpritPairs:
    """Pair each part of a wait with all culprits of its chain: the ranks to blame for
    it.

    A chain follows the lateness of one rank back to the ranks that caused it. E.g.
    parts of the chains 7 and 8, of which 7 has two culprits (the entries 3 and 4 of
    `shares`) and 8 has one (entry 5): the parts 0, 0, 1 with the shares 3, 4, 5.

    Args:
        split: The parts of waits.
        shares: The culprits of each chain, sorted by chain.
    """
    entries = equal_ranges(shares.chain, split.chain)
    culprits_of_part = entries.end - entries.first
    return _CulpritPairs(
        part=numbers_of_sized_groups(culprits_of_part),
        share=ranges(entries.first, culprits_of_part),
    )


def _charge_culprits(
    matched: Matched,
    split: _SplitWaits,
    shares: Shares,
    *,
    uncharged_ns: Floats,
    own_delays: OwnDelays,
) -> ChargedWaits:
    """Charge each part of a wait to the culprits of its chain: the ranks to blame for
    it.

    E.g. a part of 10 ms whose chain has the culprits 1 (share 0.7) and 2 (0.3) becomes
    7 ms charged to rank 1 and 3 ms charged to rank 2. A part whose chain has no culprit
    is uncharged as UNDECIDED. If the culprit is the waiting rank itself, its share is
    uncharged as WAITING_RANK_ITSELF.

    Args:
        matched: The collectives of the job; a row is one rank's part in one.
        split: The parts of waits, each with the chain of the late rank.
        shares: The culprits of each chain, with their shares, sorted by chain.
        uncharged_ns: The waits that are uncharged for other reasons. What is uncharged
            here is added to a copy of it.
        own_delays: How late ranks became by their own work; it is passed on.
    """
    pairs = _pair_with_culprits(split, shares)
    row = split.row[pairs.part]
    ns = split.ns[pairs.part] * shares.share[pairs.share]
    step = shares.step[pairs.share]

    # A culprit is the index of a rank. The numbers from `ranks` on stand for the
    # reasons why no rank is to blame, see encode_reason.
    rank_count = len(matched.ranks)
    culprit = shares.culprit[pairs.share].copy()
    is_itself = culprit == matched.rank[row]
    culprit[is_itself] = encode_reason(
        UnchargedReason.WAITING_RANK_ITSELF, rank_count=rank_count
    )
    is_charged = culprit < rank_count
    reason = culprit[~is_charged] - rank_count

    has_culprit = np.zeros(len(split.row), dtype=np.bool_)
    has_culprit[pairs.part] = True
    all_uncharged_ns = uncharged_ns.copy()
    all_uncharged_ns[UnchargedReason.UNDECIDED] += split.ns[~has_culprit].sum()
    all_uncharged_ns += np.bincount(
        reason, weights=ns[~is_charged], minlength=len(UnchargedReason)
    )
    return ChargedWaits(
        row=row[is_charged],
        culprit=culprit[is_charged],
        step=step[is_charged],
        ns=np.asarray(ns[is_charged], dtype=np.float64),
        own_delays=own_delays,
        uncharged_ns=all_uncharged_ns,
    )
