"""ChargedWaits each wait to the rank that is to blame for it: one that is late by its own work.

The rank that starts a collective last may itself have waited for another rank, in
another process group. So chains.py follows it back, beside a rank that was in time (the
median of the others): from the start of a collective to the collective before on the
same rank, and from there to the rank that started that one last. If the late rank took
longer for some work than its counterpart, the difference is its own. A transfer that
took longer is nobody's. The two meet at some point, or something was not recorded, or
the late rank is late no longer. Differences of opposite sign cancel per rank, and what
remains divides the wait.

If several ranks are late for one collective, each of them has a chain of its own. Each
moment of a wait is shared equally by the ranks that have not arrived yet
(`shares_of_late`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from fusetui.analysis.ranks.chains import (
    MAX_LATE_RANKS,
    NOISE_SHARE,
    Chains,
    LateRanks,
    OwnDelays,
    RowPairs,
    Shares,
    UnchargedReason,
    shares_of_late,
)
from fusetui.analysis.ranks.clocks import Clocks
from fusetui.analysis.ranks.matching import Matched, StepsOfRows
from fusetui.analysis.ranks.waits import Waits
from fusetui.trace.model.arrays import Flags, Floats, Rows
from fusetui.trace.model.intervals import ranges

MAX_CHARGE_PER_LATENESS = 2
"""A rank is charged at most so many times its lateness after the median of the others:
what is beyond that is another rank's being early."""
NO_CHAIN = -1
NO_ROWS = np.empty(0, dtype=np.intp)


class ChargedWaits(msgspec.Struct, frozen=True, eq=False):
    """Waits of ranks, split among the ranks that are to blame; one entry per part.

    Charged and uncharged parts together are the waits outside of sends and receives.
    """

    row: Rows  # of Matched: the rank that waits, and where
    culprit: Rows  # index of the rank that is charged
    step: Rows  # in which the owner was late by its own work, NO_STEP if in none
    ns: Floats
    own_delays: OwnDelays  # beside a rank that was in time
    uncharged_ns: Floats  # [UnchargedReason]: ns of waits that no rank is charged with


def charge_waits(
    matched: Matched,
    waits: Waits,
    clocks: Clocks,
    steps: StepsOfRows,
    stages: Sequence[int | None],
) -> ChargedWaits:
    """Charge every wait to the ranks that are to blame for it.

    Waits that are too short for the precision of the clocks are not charged.

    Args:
        matched: The collectives of the job.
        waits: Their waits.
        clocks: The clocks of all ranks.
        steps: The steps of the job.
        stages: The stage of each rank of a pipeline, empty for other jobs. Ranks of
            different stages do different work.
    """
    stage_of_rank = _stages_of_ranks(stages, ranks=len(matched.ranks))
    late_ranks = _late_ranks(matched, waits, clocks, stage_of_rank)

    # A collective that was queued behind another one started late because that one
    # ended late, so it has no chain of its own.
    is_counted = ~matched.point_to_point & (not clocks.refused)
    is_queued = waits.ready[waits.last_row] < waits.start[waits.last_row]
    has_chains = is_counted & late_ranks.is_late[:, 0] & ~is_queued
    chain_starts = _start_chains(waits, late_ranks, has_chains)
    if not len(chain_starts.pairs):
        return _nothing_charged()

    chains = Chains(
        matched,
        waits,
        clocks,
        late_ranks=late_ranks,
        lateness=chain_starts.lateness,
        step_of_row=steps.step_of_row,
        stage_of_rank=stage_of_rank,
    )
    chains.follow(chain_starts.pairs)

    chargeable = _chargeable(
        matched,
        waits,
        clocks,
        is_counted=is_counted,
        is_queued=is_queued,
        max_ns=_max_charges(chain_starts, has_chains),
    )
    split = _split_among_late_ranks(
        matched, waits, late_ranks, chargeable.ns, chain_starts.chain_of_late_rank
    )
    return _charge_culprits(
        matched,
        split,
        chains.shares(),
        uncharged_ns=chargeable.uncharged_ns,
        own_delays=chains.own_delays(),
    )


def _max_charges(chain_starts: _ChainStarts, has_chains: Flags) -> Floats:
    """Return how much of a wait for each collective can be charged at most, in ns.

    The lateness of its last rank limits it. It is 0 for collectives without chains.
    """
    last_chain = chain_starts.chain_of_late_rank[has_chains, 0]
    max_ns = np.zeros(len(has_chains))
    max_ns[has_chains] = MAX_CHARGE_PER_LATENESS * chain_starts.lateness[last_chain]
    return max_ns


def _nothing_charged() -> ChargedWaits:
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


def _stages_of_ranks(stages: Sequence[int | None], ranks: int) -> Rows:
    """Number the ranks so that those of one pipeline stage have the same number.

    A rank whose stage is unknown gets a number of its own, below 0.

    Args:
        stages: The stage of each rank, None where it is unknown; empty for a job that
            is no pipeline, all of whose ranks get the number 0.
        ranks: How many ranks there are.
    """
    if not stages:
        return np.zeros(ranks, dtype=np.intp)
    numbers = []
    for rank, stage in enumerate(stages):
        numbers.append(-1 - rank if stage is None else stage)
    return np.array(numbers, dtype=np.intp)


def _late_ranks(
    matched: Matched, waits: Waits, clocks: Clocks, stage_of_rank: Rows
) -> LateRanks:
    """Find the ranks that are late for each collective, the last one first.

    A rank is late if it starts after the usual rank, by at least NOISE_SHARE of what
    the last rank does. Besides the last rank itself, only ranks of its stage count that
    did not have the collective queued.
    """
    last = _last_starters(matched, waits)
    row = last.row
    usual = np.broadcast_to(waits.median_row[:, None], row.shape)
    lateness = waits.start[row] - waits.start[usual]
    exceeds_noise = lateness >= NOISE_SHARE * lateness[:, :1]
    may_count = _may_count_as_late(matched, waits, stage_of_rank, row)
    is_late = last.exists & (lateness > 0) & exceeds_noise & may_count

    # The uncertainty of the order is the largest between any late rank and the usual
    # one.
    resolution = clocks.resolution_of(matched.rank[row], matched.rank[usual])
    resolution_of_late = np.where(is_late, resolution, 0.0)
    largest_resolution = resolution_of_late.max(axis=1, initial=0.0, keepdims=True)
    is_comparable = ~matched.point_to_point & (not clocks.refused)
    is_certain = (lateness > largest_resolution) & is_comparable[:, None]
    return LateRanks(row=row, is_late=is_late, is_certain=np.asarray(is_certain))


def _may_count_as_late(
    matched: Matched, waits: Waits, stage_of_rank: Rows, row: Rows
) -> Flags:
    """Mark the ranks that may count as late for a collective.

    These are the last rank, and ranks of its stage that did not have the collective
    queued.

    Args:
        matched: The collectives of the job.
        waits: Their waits.
        stage_of_rank: The stage of each rank.
        row: The last rows of each collective, of shape [collectives, MAX_LATE_RANKS].

    Returns:
        Flags in the shape of `row`.
    """
    stage = stage_of_rank[matched.rank[row]]
    is_same_stage = stage == stage[:, :1]
    is_queued = waits.ready[row] < waits.start[row]
    is_last = np.arange(MAX_LATE_RANKS) == 0
    return np.asarray((is_same_stage & ~is_queued) | is_last)


class _LastStarters(msgspec.Struct, frozen=True, eq=False):
    """The ranks that start each collective last, the last one first.

    Arrays have the shape [collectives, MAX_LATE_RANKS].
    """

    row: Rows  # of Matched
    exists: Flags  # whether there are so many ranks beside the first one


def _last_starters(matched: Matched, waits: Waits) -> _LastStarters:
    """Find the ranks that start each collective last, never the one that starts first."""
    by_start = np.lexsort((waits.start, matched.collective_of_row))
    nth_last = np.arange(MAX_LATE_RANKS)
    exists = nth_last < matched.counts[:, None] - 1

    # Positions in `by_start`; where there are not so many ranks, the first stands in.
    first_position = matched.first[:-1, None]
    last_position = matched.first[1:, None] - 1
    position = np.where(exists, last_position - nth_last, first_position)
    return _LastStarters(row=by_start[position], exists=exists)


class _ChainStarts(msgspec.Struct, frozen=True, eq=False):
    """The rows at which chains begin."""

    pairs: RowPairs  # chain n is pair n
    lateness: Floats  # of each chain, in ns after the usual rank
    # [collectives, MAX_LATE_RANKS]: indices of chains, NO_CHAIN for none
    chain_of_late_rank: Rows


def _start_chains(
    waits: Waits, late_ranks: LateRanks, has_chains: Flags
) -> _ChainStarts:
    """Begin a chain for each late rank of a collective, beside the usual rank.

    Args:
        waits: The waits of all collectives.
        late_ranks: The ranks that are late for each collective.
        has_chains: Which collectives have chains.
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
    lateness = waits.start[pairs.late_row] - waits.start[pairs.in_time_row]
    return _ChainStarts(
        pairs=pairs,
        lateness=lateness.astype(np.float64),
        chain_of_late_rank=chain_of_late_rank,
    )


class _Chargeable(msgspec.Struct, frozen=True, eq=False):
    """How much of each wait can be charged to the ranks that are late."""

    ns: Floats  # [rows]
    uncharged_ns: Floats  # [UnchargedReason]: ns of the rest


def _chargeable(
    matched: Matched,
    waits: Waits,
    clocks: Clocks,
    *,
    is_counted: Flags,
    is_queued: Flags,
    max_ns: Floats,
) -> _Chargeable:
    """Determine how much of each wait can be charged.

    It is what neither compute nor an earlier wait covers, up to a limit. It is 0 where
    clocks do not tell whether the rank waited at all.

    Args:
        matched: The collectives of the job.
        waits: Their waits.
        clocks: The clocks of all ranks.
        is_counted: Which collectives count.
        is_queued: Which collectives their last rank had queued behind another one.
        max_ns: The limit of each collective.
    """
    collective_of_row = matched.collective_of_row
    last_rank = matched.rank[waits.last_row[collective_of_row]]
    is_uncertain = waits.wait_ns <= clocks.resolution_of(matched.rank, last_rank)
    waited = np.where(is_counted[collective_of_row], waits.idle_wait_ns, 0).astype(
        np.float64
    )
    ns = np.where(is_uncertain, 0.0, np.minimum(waited, max_ns[collective_of_row]))

    is_after_queued = is_queued[collective_of_row]
    beyond_limit = (waited - ns)[~is_uncertain & ~is_after_queued]
    uncharged = np.zeros(len(UnchargedReason))
    uncharged[UnchargedReason.UNDECIDED] = waited[is_uncertain].sum()
    uncharged[UnchargedReason.LONGER_TRANSFER] = waited[
        ~is_uncertain & is_after_queued
    ].sum()
    uncharged[UnchargedReason.EARLY_ARRIVAL] = beyond_limit.sum()
    return _Chargeable(ns=np.asarray(ns), uncharged_ns=uncharged)


class _SplitWaits(msgspec.Struct, frozen=True, eq=False):
    """Waits, split among the ranks that are late for the collective.

    There is one entry per part.
    """

    row: Rows  # of Matched: the rank that waits
    chain: Rows  # of a late rank
    ns: Floats


def _split_among_late_ranks(
    matched: Matched,
    waits: Waits,
    late_ranks: LateRanks,
    ns: Floats,
    chain_of_late_rank: Rows,
) -> _SplitWaits:
    """Divide each wait among the ranks that arrive after it (`shares_of_late`).

    Args:
        matched: The collectives of the job.
        waits: Their waits.
        late_ranks: The ranks that are late for each collective.
        ns: What can be charged of the wait of each row.
        chain_of_late_rank: The chain of each late rank of a collective, as in _ChainStarts.
    """
    rows = np.flatnonzero(ns > 0)
    collective = matched.collective_of_row[rows]
    late_start = waits.start[late_ranks.row[collective]]  # [rows, MAX_LATE_RANKS]
    arrival_after_ns = late_start - waits.start[rows][:, None]
    after_of_late = np.where(late_ranks.is_late[collective], arrival_after_ns, 0)
    share = shares_of_late(after_of_late.astype(np.float64))

    wait, column = np.nonzero(share)
    waiting_rows = rows[wait]
    return _SplitWaits(
        row=waiting_rows,
        chain=chain_of_late_rank[matched.collective_of_row[waiting_rows], column],
        ns=ns[waiting_rows] * share[wait, column],
    )


def _charge_culprits(
    matched: Matched,
    split: _SplitWaits,
    shares: Shares,
    *,
    uncharged_ns: Floats,
    own_delays: OwnDelays,
) -> ChargedWaits:
    """Divide each part of a wait among the owners of its chain.

    A part whose chain nothing explains is UNTOLD. A part that the waiting rank owns is
    ITSELF. Both are added to a copy of `uncharged`.

    Args:
        matched: The collectives of the job.
        split: The parts of waits, with their chains.
        shares: The owners of each chain, with their shares.
        uncharged: What is not charged for other reasons.
        own_delays: Passed on.
    """
    # One entry for each owner of the chain of each part.
    first = np.searchsorted(shares.chain, split.chain, "left")
    end = np.searchsorted(shares.chain, split.chain, "right")
    culprits_of_part = end - first
    share_index = ranges(first, culprits_of_part)
    row = np.repeat(split.row, culprits_of_part)
    ns = np.repeat(split.ns, culprits_of_part) * shares.share[share_index]

    # Owners from the number of ranks on are reasons of UnchargedReason.
    ranks = len(matched.ranks)
    culprit = shares.culprit[share_index]
    culprit = np.where(
        culprit == matched.rank[row],
        ranks + UnchargedReason.WAITING_RANK_ITSELF,
        culprit,
    )
    is_charged = culprit < ranks
    reason = culprit[~is_charged] - ranks

    all_uncharged = uncharged_ns.copy()
    all_uncharged[UnchargedReason.UNDECIDED] += split.ns[culprits_of_part == 0].sum()
    all_uncharged += np.bincount(
        reason, weights=ns[~is_charged], minlength=len(UnchargedReason)
    )
    return ChargedWaits(
        row=row[is_charged],
        culprit=culprit[is_charged],
        step=shares.step[share_index][is_charged],
        ns=np.asarray(ns[is_charged], dtype=np.float64),
        own_delays=own_delays,
        uncharged_ns=all_uncharged,
    )
