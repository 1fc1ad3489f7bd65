"""Which rank a wait goes back to: the one that is late by its own work.

The rank that starts a collective last may itself have waited for another one, in
another group. So two chains are followed back from that collective: that of the last
rank, and that of a rank which was there in time, the median of the others. Each goes
from a start to the collective before on the same rank, and from there to the rank that
started that one last. Where a stretch of its own took a rank of the first chain longer
than its counterpart of the second, the difference is its own; a transfer that took
longer is nobody's. The chains end where they meet, where something was not recorded, or
where the late one is late no longer. Differences of opposite sign cancel per rank; what
remains divides the wait. See chains.py.

Where several ranks are late for one collective, each of them has a chain of its own,
and each moment of a wait is shared equally by those that have not arrived yet (see
`shares_of_late`).
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
    Pairs,
    Shares,
    Uncharged,
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


class Charges(msgspec.Struct, frozen=True, eq=False):
    """Waits of ranks, each with the ranks that it goes back to; arrays of shape
    [charges]. All that is charged and all that is not add up to the waits outside sends
    and receives."""

    row: Rows  # of Matched: the rank that waits, and where
    owner: Rows  # index of the rank that is charged
    step: Rows  # in which the owner was late by its own work, NO_STEP if in none
    ns: Floats
    own_delays: OwnDelays  # beside a rank that was in time
    uncharged: Floats  # [Uncharged]: ns of waits that no rank is charged with


def charges_of(
    matched: Matched,
    waits: Waits,
    clocks: Clocks,
    steps: StepsOfRows,
    stage_of: Sequence[int | None],
) -> Charges:
    """Charges every wait that clocks tell to the ranks that it goes back to.
    `stage_of`: of each rank of a pipeline, else (); where stages differ, so does the
    work."""
    stage_of_rank = _stages_of_ranks(stage_of, ranks=len(matched.ranks))
    late_ranks = _late_ranks(matched, waits, clocks, stage_of_rank)
    is_counted = ~matched.point_to_point & (not clocks.refused)
    # what was queued behind another collective started late because that one ended late
    is_queued = waits.ready[waits.latest] < waits.start[waits.latest]
    has_chains = is_counted & late_ranks.is_late[:, 0] & ~is_queued
    heads = _heads(waits, late_ranks, has_chains)
    if not len(heads.pairs):
        return _nothing_charged()
    chains = Chains(
        matched,
        waits,
        clocks,
        late_ranks=late_ranks,
        lateness=heads.lateness,
        step_of_row=steps.of_row,
        stage_of_rank=stage_of_rank,
    )
    chains.follow(heads.pairs)
    chargeable = _chargeable(
        matched,
        waits,
        clocks,
        is_counted=is_counted,
        is_queued=is_queued,
        max_ns=_max_charges(heads, has_chains),
    )
    divided = _divided_between_late_ranks(
        matched, waits, late_ranks, chargeable.ns, heads.chain_of
    )
    return _charged(
        matched,
        divided,
        chains.shares(),
        uncharged=chargeable.uncharged,
        own_delays=chains.own_delays(),
    )


def _max_charges(heads: _Heads, has_chains: Flags) -> Floats:
    """How much of a wait for each collective can be charged at most (ns): by the
    lateness of its last rank, 0 where it has no chains. Shape [collectives]."""
    last_chain = heads.chain_of[has_chains, 0]
    max_ns = np.zeros(len(has_chains))
    max_ns[has_chains] = MAX_CHARGE_PER_LATENESS * heads.lateness[last_chain]
    return max_ns


def _nothing_charged() -> Charges:
    """The charges of a job in which nobody waits for a late rank."""
    no_delays = OwnDelays(row=NO_ROWS, ns=np.empty(0, dtype=np.int64))
    return Charges(
        row=NO_ROWS,
        owner=NO_ROWS,
        step=NO_ROWS,
        ns=np.empty(0),
        own_delays=no_delays,
        uncharged=np.zeros(len(Uncharged)),
    )


def _stages_of_ranks(stage_of: Sequence[int | None], ranks: int) -> Rows:
    """A number for each rank, equal for those of one stage; a rank whose stage is not
    known has one of its own, below 0."""
    if not stage_of:
        return np.zeros(ranks, dtype=np.intp)
    numbers = []
    for rank, stage in enumerate(stage_of):
        numbers.append(-1 - rank if stage is None else stage)
    return np.array(numbers, dtype=np.intp)


def _late_ranks(
    matched: Matched, waits: Waits, clocks: Clocks, stage_of_rank: Rows
) -> LateRanks:
    """The ranks that are late for each collective, at most MAX_LATE_RANKS, the last one
    first. Late is a rank that starts after the usual one, by at least NOISE_SHARE of
    what the last one does. Beside the last one itself only ranks of its stage count,
    and none that was queued."""
    last = _last_to_start(matched, waits)
    row = last.row
    usual = np.broadcast_to(waits.usual[:, None], row.shape)
    lateness = waits.start[row] - waits.start[usual]
    exceeds_noise = lateness >= NOISE_SHARE * lateness[:, :1]
    may_count = _may_count_as_late(matched, waits, stage_of_rank, row)
    is_late = last.exists & (lateness > 0) & exceeds_noise & may_count

    # clocks leave open as much as between any of the late ranks and the usual one
    resolution = clocks.resolution_of(matched.rank[row], matched.rank[usual])
    of_late_ranks = np.where(is_late, resolution, 0.0)
    largest_resolution = of_late_ranks.max(axis=1, initial=0.0, keepdims=True)
    can_be_told = ~matched.point_to_point & (not clocks.refused)
    is_told = (lateness > largest_resolution) & can_be_told[:, None]
    return LateRanks(row=row, is_late=is_late, is_told=np.asarray(is_told))


def _may_count_as_late(
    matched: Matched, waits: Waits, stage_of_rank: Rows, row: Rows
) -> Flags:
    """Which of the last ranks of a collective are the last one itself, or of its stage
    and were not queued. `row`: of `_LastToStart`; so is the shape of the result."""
    stage = stage_of_rank[matched.rank[row]]
    is_same_stage = stage == stage[:, :1]
    is_queued = waits.ready[row] < waits.start[row]
    is_last = np.arange(MAX_LATE_RANKS) == 0
    return np.asarray((is_same_stage & ~is_queued) | is_last)


class _LastToStart(msgspec.Struct, frozen=True, eq=False):
    """The ranks that start each collective last, the last one first; arrays of shape
    [collectives, MAX_LATE_RANKS]."""

    row: Rows  # of Matched
    exists: Flags  # whether there are so many ranks beside the first one


def _last_to_start(matched: Matched, waits: Waits) -> _LastToStart:
    """The last ranks of each collective, but for the one that starts it first."""
    by_start = np.lexsort((waits.start, matched.of_row))
    places = np.arange(MAX_LATE_RANKS)
    exists = places < matched.counts[:, None] - 1
    first_place = matched.first[:-1, None]
    last_place = matched.first[1:, None] - 1
    place = np.where(exists, last_place - places, first_place)
    return _LastToStart(row=by_start[place], exists=exists)


class _Heads(msgspec.Struct, frozen=True, eq=False):
    """Where the chains begin."""

    pairs: Pairs  # chain n is pair n
    lateness: Floats  # [chains]: ns after the usual rank
    # [collectives, MAX_LATE_RANKS]: numbers of chains, NO_CHAIN for none
    chain_of: Rows


def _heads(waits: Waits, late_ranks: LateRanks, has_chains: Flags) -> _Heads:
    """A chain for each late rank of the collectives that have some (`has_chains`: of
    each collective), beside the usual rank."""
    collective, place = np.nonzero(late_ranks.is_late & has_chains[:, None])
    pairs = Pairs(
        chain=np.arange(len(collective)),
        late=late_ranks.row[collective, place],
        in_time=waits.usual[collective],
        weight=np.ones(len(collective)),
    )
    chain_of = np.full(late_ranks.row.shape, NO_CHAIN)
    chain_of[collective, place] = pairs.chain
    lateness = waits.start[pairs.late] - waits.start[pairs.in_time]
    return _Heads(pairs=pairs, lateness=lateness.astype(np.float64), chain_of=chain_of)


class _Chargeable(msgspec.Struct, frozen=True, eq=False):
    """What of each wait can be charged to the ranks that are late for its
    collective."""

    ns: Floats  # [rows]
    uncharged: Floats  # [Uncharged]: ns of the rest


def _chargeable(
    matched: Matched,
    waits: Waits,
    clocks: Clocks,
    *,
    is_counted: Flags,
    is_queued: Flags,
    max_ns: Floats,
) -> _Chargeable:
    """What of each wait can be charged: all that neither compute nor an earlier wait
    covers, at most `max_ns`; 0 where clocks do not tell whether there was one.
    `is_counted`, `is_queued` and `max_ns` are of each collective."""
    of_row = matched.of_row
    last_rank = matched.rank[waits.latest[of_row]]
    is_unsure = waits.wait <= clocks.resolution_of(matched.rank, last_rank)
    waited = np.where(is_counted[of_row], waits.alone, 0).astype(np.float64)
    ns = np.where(is_unsure, 0.0, np.minimum(waited, max_ns[of_row]))
    is_after_queued = is_queued[of_row]
    uncharged = np.zeros(len(Uncharged))
    uncharged[Uncharged.UNTOLD] = waited[is_unsure].sum()
    uncharged[Uncharged.TRANSFER] = waited[~is_unsure & is_after_queued].sum()
    beyond_limit = (waited - ns)[~is_unsure & ~is_after_queued]
    uncharged[Uncharged.EARLIER] = beyond_limit.sum()
    return _Chargeable(ns=np.asarray(ns), uncharged=uncharged)


class _DividedWaits(msgspec.Struct, frozen=True, eq=False):
    """Waits, each divided between the ranks that are late for its collective; arrays of
    shape [parts]."""

    row: Rows  # of Matched: the rank that waits
    chain: Rows  # of a late rank
    ns: Floats


def _divided_between_late_ranks(
    matched: Matched, waits: Waits, late_ranks: LateRanks, ns: Floats, chain_of: Rows
) -> _DividedWaits:
    """The wait at each row, `ns`, divided between the ranks that arrive after it at its
    collective, as `shares_of_late` says. `chain_of`: see _Heads."""
    rows = np.flatnonzero(ns > 0)
    collective = matched.of_row[rows]
    late_start = waits.start[late_ranks.row[collective]]  # [rows, MAX_LATE_RANKS]
    after = late_start - waits.start[rows][:, None]
    after_of_late = np.where(late_ranks.is_late[collective], after, 0)
    share = shares_of_late(after_of_late.astype(np.float64))
    wait, place = np.nonzero(share)
    waiting_rows = rows[wait]
    return _DividedWaits(
        row=waiting_rows,
        chain=chain_of[matched.of_row[waiting_rows], place],
        ns=ns[waiting_rows] * share[wait, place],
    )


def _charged(
    matched: Matched,
    divided: _DividedWaits,
    shares: Shares,
    *,
    uncharged: Floats,
    own_delays: OwnDelays,
) -> Charges:
    """The charges for each part of a wait, divided between the owners of its chain.
    Parts of a chain that nothing explains are UNTOLD, those that the waiting rank owns
    itself ITSELF; both are added to a copy of `uncharged`."""
    first = np.searchsorted(shares.chain, divided.chain, "left")
    stop = np.searchsorted(shares.chain, divided.chain, "right")
    counts = stop - first
    place = ranges(first, counts)
    row = np.repeat(divided.row, counts)
    ns = np.repeat(divided.ns, counts) * shares.share[place]
    ranks = len(matched.ranks)
    owner = shares.owner[place]
    owner = np.where(owner == matched.rank[row], ranks + Uncharged.ITSELF, owner)
    is_charged = owner < ranks
    reason = owner[~is_charged] - ranks  # one of Uncharged
    every_uncharged = uncharged.copy()
    every_uncharged[Uncharged.UNTOLD] += divided.ns[counts == 0].sum()
    every_uncharged += np.bincount(
        reason, weights=ns[~is_charged], minlength=len(Uncharged)
    )
    return Charges(
        row=row[is_charged],
        owner=owner[is_charged],
        step=shares.step[place][is_charged],
        ns=np.asarray(ns[is_charged], dtype=np.float64),
        own_delays=own_delays,
        uncharged=every_uncharged,
    )
