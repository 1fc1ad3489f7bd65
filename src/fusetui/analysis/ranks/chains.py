"""Follows the lateness of a rank back to the work that made it late.

A chain is a pair of rows at a time: where the late rank is, and where a rank that was
in time is. From a start each goes to the collective before on the same rank, and from
there to the rank that started that one last. On the way each part of the lateness is
charged to the rank that took longer, or to nobody, for one of the reasons in
`Uncharged`.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec
import numpy as np

from fusetui.analysis.ranks.clocks import Clocks
from fusetui.analysis.ranks.matching import Matched
from fusetui.analysis.ranks.programs import (
    NO_ROW,
    Preceding,
    Programs,
    last_before,
    preceding,
)
from fusetui.analysis.ranks.waits import Waits
from fusetui.trace.model.arrays import Flags, Floats, Int64s, Rows, begins_runs

MIN_LATENESS_SHARE = 0.01
"""Of the lateness at the collective where the wait is: below it, a chain is over."""
MAX_COLLECTIVES_BACK = 4096
"""Through so many collectives a chain is followed back."""
MAX_COLLECTIVES_BESIDE = 64
"""So many collectives that run beside one another on a rank are passed over."""
MIN_STALL_NS = 10_000
"""Of compute, or half of the collective: then compute waited for its end."""
NOISE_SHARE = 0.1
"""Of the largest: smaller parts of a lateness, shares of a wait and delays of steps are
noise."""
MAX_LATE_RANKS = 4
"""Between so many ranks the wait for one collective is divided: those that arrive
last."""
NO_STEP = -1
NOT_UNMATCHED = 0
"""In place of a time: no collective that is not matched ended there."""


class Uncharged(IntEnum):
    """What no rank is charged with."""

    TRANSFER = 0  # a longer transfer
    UNTOLD = 1  # what clocks do not tell, or chains that cannot be compared
    OUTSIDE = 2  # a rank that is not given
    BUBBLE = 3  # a wait in a pipeline
    EARLIER = 4  # a rank that waits because it arrives early
    ITSELF = 5  # a delay that goes back to the very rank that waits


class LateRanks(msgspec.Struct, frozen=True, eq=False):
    """The ranks that are late for each collective; arrays of shape [collectives,
    MAX_LATE_RANKS], of which the first column is the rank that starts last."""

    row: Rows  # of Matched
    is_late: Flags
    is_told: Flags  # by more than clocks leave open


class Pairs(msgspec.Struct, frozen=True, eq=False):
    """Where chains are; arrays of shape [pairs]."""

    chain: Rows  # number of the chain: a collective, and a rank that is late for it
    late: Rows  # row of the late rank
    in_time: Rows  # row of the rank that was in time
    weight: Floats  # how much of the lateness here is carried on to that collective

    def __len__(self) -> int:
        return len(self.chain)

    def take(self, which: Flags | Rows) -> Pairs:
        """The pairs at these places, or where the flag is set."""
        return Pairs(
            chain=self.chain[which],
            late=self.late[which],
            in_time=self.in_time[which],
            weight=self.weight[which],
        )

    def moved(self, late: Rows, in_time: Rows) -> Pairs:
        """The same chains at other rows."""
        return Pairs(chain=self.chain, late=late, in_time=in_time, weight=self.weight)

    def weighted(self, weight: Floats) -> Pairs:
        """The same pairs with other weights."""
        return msgspec.structs.replace(self, weight=weight)

    def __add__(self, more: Pairs) -> Pairs:
        return Pairs(
            chain=np.concatenate((self.chain, more.chain)),
            late=np.concatenate((self.late, more.late)),
            in_time=np.concatenate((self.in_time, more.in_time)),
            weight=np.concatenate((self.weight, more.weight)),
        )


class _Pieces(msgspec.Struct, frozen=True, eq=False):
    """Pieces of the lateness of chains; arrays of shape [pieces]."""

    chain: Rows
    owner: Rows  # as in Shares
    step: Rows  # NO_STEP: none
    ns: Floats  # below 0 where the owner was faster


class _OwnersOfChains(msgspec.Struct, frozen=True, eq=False):
    """The owners of each chain, in the order of the chains; arrays of shape [owners of
    all chains]."""

    chain: Rows
    ns: Floats  # in all steps
    number: Rows  # of each piece, the place of its owner here; shape [pieces]


class Shares(msgspec.Struct, frozen=True, eq=False):
    """What explains the lateness of each chain, in the order of the chains; arrays of
    shape [shares]."""

    chain: Rows
    owner: Rows  # index of a rank, or the number of ranks plus one of Uncharged
    step: Rows  # in which the owner was late, NO_STEP if in none
    share: Floats  # those of a chain add up to 1


class OwnDelays(msgspec.Struct, frozen=True, eq=False):
    """Rows before which a rank was late by its own work; arrays of shape [delays]."""

    row: Rows
    ns: Int64s


class Chains:
    """Follows all chains of a job at once."""

    def __init__(
        self,
        matched: Matched,
        waits: Waits,
        clocks: Clocks,
        *,
        late_ranks: LateRanks,
        lateness: Floats,
        step_of_row: Rows,
        stage_of_rank: Rows,
    ) -> None:
        """`lateness`: of each chain, in ns. Only ranks of the same stage do the same
        work."""
        self._matched = matched
        self._waits = waits
        self._late_ranks = late_ranks
        self._lateness = lateness
        self._step = step_of_row
        self._stage = stage_of_rank
        self._pieces: list[_Pieces] = []
        self._programs = Programs(matched, waits.start)

        every_row = np.arange(len(matched.rank))
        self._ended = preceding(matched, waits, every_row, waits.start)
        self._released = _releasing(matched, waits)
        last = self._ended.last
        self._followed = _followed_collectives(matched, waits, last)
        self._unmatched_end = _ends_of_unmatched(matched, waits, clocks, last)
        self._is_told = _told_rows(late_ranks, rows=len(matched.rank))
        self._own_ns = np.zeros(len(matched.rank))

    def follow(self, pairs: Pairs) -> None:
        """Follows these pairs back to where their lateness is explained, at most
        through MAX_COLLECTIVES_BACK collectives; what is not explained then is
        charged to nobody."""
        for _ in range(MAX_COLLECTIVES_BACK):
            pairs = self._back(pairs)
            if not len(pairs):
                return
        self._charge_nobody(pairs, Uncharged.UNTOLD, self._gap(pairs))

    def own_delays(self) -> OwnDelays:
        """Where ranks were late by their own work, after all chains were followed."""
        rows = np.flatnonzero((self._own_ns > 0) & self._is_told)
        return OwnDelays(row=rows, ns=np.rint(self._own_ns[rows]).astype(np.int64))

    def shares(self) -> Shares:
        """The shares of ranks, and of Uncharged, in the lateness of each chain, after
        all chains were followed. Parts of opposite sign cancel per rank; what is left
        of a rank goes to the steps in which it was late, and not early."""
        in_step = self._added_up()
        owners = _owners_of_chains(in_step)
        share = self._share_of_owners(owners.chain, owners.ns)

        late_in_step = np.maximum(in_step.ns, 0.0)
        late_in_all = np.bincount(
            owners.number, weights=late_in_step, minlength=len(owners.chain)
        )
        divisor = np.where(late_in_all > 0, late_in_all, 1.0)
        share_of_owner = share[owners.number]
        share_in_step = share_of_owner * late_in_step / divisor[owners.number]
        is_kept = share_in_step > 0
        return Shares(
            chain=in_step.chain[is_kept],
            owner=in_step.owner[is_kept],
            step=in_step.step[is_kept],
            share=share_in_step[is_kept],
        )

    def _added_up(self) -> _Pieces:
        """The sums of the pieces of each owner in each chain and step, in the order of
        chains, owners and steps."""
        chain = np.concatenate([pieces.chain for pieces in self._pieces])
        owner = np.concatenate([pieces.owner for pieces in self._pieces])
        step = np.concatenate([pieces.step for pieces in self._pieces])
        ns = np.concatenate([pieces.ns for pieces in self._pieces])

        # one number stands for all three; steps count from 0 in it, NO_STEP is the first
        owners = len(self._matched.ranks) + len(Uncharged)
        step_from_0 = step - NO_STEP
        steps = int(step_from_0.max(initial=0)) + 1
        key = (chain * owners + owner) * steps + step_from_0
        keys, place = np.unique(key, return_inverse=True)
        chain_and_owner, sum_step_from_0 = np.divmod(keys, steps)
        sum_chain, sum_owner = np.divmod(chain_and_owner, owners)
        return _Pieces(
            chain=sum_chain,
            owner=sum_owner,
            step=sum_step_from_0 + NO_STEP,
            ns=np.bincount(place, ns, len(keys)).astype(np.float64),
        )

    def _share_of_owners(self, chain: Rows, ns: Floats) -> Floats:
        """The share of each owner in its chain, from the ns of each: 0 where that is at
        most NOISE_SHARE of the largest of the chain; those of a chain add up to 1, or
        to 0 where no owner was late. `chain` and `ns`: [owners of all chains]."""
        largest = np.zeros(len(self._lateness))
        np.maximum.at(largest, chain, ns)
        is_counted = ns > NOISE_SHARE * largest[chain]
        counted = np.where(is_counted, ns, 0.0)
        total = np.bincount(chain, weights=counted, minlength=len(largest))
        divisor = np.where(total > 0, total, 1.0)
        return np.asarray(counted / divisor[chain])

    def _back(self, pairs: Pairs) -> Pairs:
        """One step back: charges what of the lateness is explained at these rows, and
        returns the pairs at which the rest of it goes on."""
        pairs = self._without_ended(pairs)
        pairs = self._without_unmatched(pairs)
        releases = self._cannot_be_passed_over(pairs, self._released)
        is_known = (releases.late != NO_ROW) & (releases.in_time != NO_ROW)
        same_place = self._programs.is_same_place(releases.late, releases.in_time)
        collective = self._matched.of_row[releases.late]
        sends = self._matched.point_to_point[collective]
        is_released = is_known & same_place & ~sends
        released = pairs.take(is_released)
        since_release = self._since_release(released, releases.take(is_released))
        since_end = self._since_end(pairs.take(~is_released))
        return self._merged(since_release + since_end)

    def _merged(self, pairs: Pairs) -> Pairs:
        """These pairs, but only one of those of a chain that are at the same rows, with
        the sum of their weights."""
        rows = len(self._matched.rank)
        # one number stands for the chain and both rows
        key = (pairs.chain * rows + pairs.late) * rows + pairs.in_time
        _, first, place = np.unique(key, return_index=True, return_inverse=True)
        if len(first) == len(key):
            return pairs
        weight: Floats = np.zeros(len(first))
        np.add.at(weight, place, pairs.weight)
        return pairs.take(first).weighted(weight)

    def _without_ended(self, pairs: Pairs) -> Pairs:
        """The pairs but those that end here: the late rank is late no longer, or the
        other one is of another stage."""
        gap = self._gap(pairs)
        rank = self._matched.rank
        is_over = gap <= MIN_LATENESS_SHARE * self._lateness[pairs.chain]
        same_stage = self._stage[rank[pairs.late]] == self._stage[rank[pairs.in_time]]
        is_unlike = ~is_over & ~same_stage
        self._charge_nobody(pairs.take(is_over), Uncharged.TRANSFER, gap[is_over])
        self._charge_nobody(pairs.take(is_unlike), Uncharged.BUBBLE, gap[is_unlike])
        return pairs.take(~is_over & ~is_unlike)

    def _without_unmatched(self, pairs: Pairs) -> Pairs:
        """The pairs but those of which a rank comes from a collective that is not
        matched: what it did since then alone is its own; how long it waited there, and
        for whom, is not known."""
        gap = self._gap(pairs)
        late_end = self._unmatched_end[pairs.late]
        in_time_end = self._unmatched_end[pairs.in_time]
        of_late = late_end > NOT_UNMATCHED
        of_in_time = in_time_end > NOT_UNMATCHED
        gap_before = late_end - in_time_end
        own_ns = np.where(of_late & of_in_time, gap - gap_before, 0.0)
        ends = of_late | of_in_time
        ended = pairs.take(ends)
        self._charge(ended, own_ns[ends])
        self._charge_nobody(ended, Uncharged.OUTSIDE, gap[ends] - own_ns[ends])
        return pairs.take(~ends)

    def _since_release(self, pairs: Pairs, releases: Pairs) -> Pairs:
        """Charges pairs of ranks whose compute last waited for the same collective, or
        for ones at the same place of their programs (`releases`, one for each pair):
        what took longer since the end of that is the late rank's own, whatever ran
        beside it. Returns the pairs at which the rest goes on."""
        ends_apart = self._ends_apart(releases)
        self._charge(pairs, self._gap(pairs) - ends_apart)
        same = self._is_same_collective(releases)
        self._charge_nobody(releases.take(same), Uncharged.TRANSFER, ends_apart[same])
        return self._across(releases.take(~same))

    def _since_end(self, pairs: Pairs) -> Pairs:
        """Charges what took longer since the last collectives that ended before these
        rows to the late rank, without what the lateness of before explains. Returns the
        pairs at which the rest goes on."""
        before = self._cannot_be_passed_over(pairs, self._ended)
        at_begin = (before.late == NO_ROW) | (before.in_time == NO_ROW)
        beginning = pairs.take(at_begin)
        self._charge(beginning, self._gap(beginning))

        pairs = pairs.take(~at_begin)
        before = before.take(~at_begin)
        gap = self._gap(pairs)
        ends_apart = self._ends_apart(before)
        same = self._is_same_collective(before)
        passed = self._computed_through(before.in_time, pairs.in_time)
        passed -= self._computed_through(before.late, pairs.late)
        carried = np.where(same, np.clip(passed, 0, gap), 0.0)
        self._charge(pairs, gap - ends_apart - carried)
        through = self._through(before.take(same), carried[same])
        self._charge_nobody(pairs.take(same), Uncharged.TRANSFER, ends_apart[same])
        return through + self._across(before.take(~same))

    def _cannot_be_passed_over(self, pairs: Pairs, before: Preceding) -> Pairs:
        """For both rows of each pair the last collective before it that it can have
        waited for, NO_ROW for none.

        All ranks run the same program. What is not over on one rank when that one is
        ready has not held up the other rank at the same place either, even if nothing
        ran beside it there."""
        return pairs.moved(
            late=self._last_that_holds_up(pairs.late, pairs.in_time, before),
            in_time=self._last_that_holds_up(pairs.in_time, pairs.late, before),
        )

    def _last_that_holds_up(
        self, rows: Rows, twin_rows: Rows, before: Preceding
    ) -> Rows:
        """For each of `rows` the last of `before` that was over on the rank of its twin
        when that one was ready; NO_ROW for none. At most MAX_COLLECTIVES_BESIDE are
        passed over."""
        twin_rank = self._matched.rank[twin_rows]
        twin_ready = self._waits.ready[twin_rows]
        last = before.last[rows]
        for _ in range(MAX_COLLECTIVES_BESIDE):
            on_twin = self._programs.row_on(twin_rank, last)
            is_known = (last != NO_ROW) & (on_twin != NO_ROW)
            runs_on = is_known & (self._waits.end[on_twin] > twin_ready)
            if not runs_on.any():
                break
            last = np.where(runs_on, before.earlier[last], last)
        return last

    def _computed_through(self, before: Rows, rows: Rows) -> Floats:
        """For each of `rows` the ns that its rank computed from when the collective
        `before` it was ready, until the end of that, or until the row was ready, if
        that was earlier; plus the ns by which it was ready before that end."""
        matched = self._matched
        end = self._waits.end[before]
        computed = matched.covered[before] + matched.ahead[before] - matched.ahead[rows]
        ready_early = end - np.minimum(end, self._waits.ready[rows])
        return np.asarray(np.maximum(computed, 0) + ready_early, dtype=np.float64)

    def _through(self, pairs: Pairs, carried: Floats) -> Pairs:
        """The pairs at which a lateness goes on through a collective in which both
        ranks met, but that did not stop the one in time, which computed meanwhile: so
        much of the lateness was there before it (`carried`, ns of each pair). What was
        not there before is charged to nobody."""
        gap_before = self._gap(pairs)
        goes_on = (carried > 0) & (gap_before > 0)
        self._charge_nobody(pairs.take(~goes_on), Uncharged.TRANSFER, carried[~goes_on])
        share = np.minimum(carried[goes_on] / gap_before[goes_on], 1)
        rest = pairs.take(goes_on)
        return rest.weighted(rest.weight * share)

    def _across(self, pairs: Pairs) -> Pairs:
        """The pairs at which a lateness goes on at the ranks that the collectives of
        these pairs, two different ones, waited for: those that started them last. What
        a longer transfer explains, and all of it where the two cannot be compared, is
        charged to nobody."""
        pairs = self._comparable(pairs)
        ends_apart = self._ends_apart(pairs)
        of_late = self._matched.of_row[pairs.late]
        of_in_time = self._matched.of_row[pairs.in_time]
        latest = self._waits.latest
        at_last_ranks = pairs.moved(
            late=latest[self._followed[of_late]],
            in_time=latest[self._followed[of_in_time]],
        )
        longer_transfer = ends_apart - self._gap(at_last_ranks)
        is_whole = self._matched.whole[of_late]
        self._charge_nobody(
            at_last_ranks.take(~is_whole),
            Uncharged.OUTSIDE,
            longer_transfer[~is_whole],
        )
        self._charge_nobody(
            at_last_ranks.take(is_whole),
            Uncharged.TRANSFER,
            longer_transfer[is_whole],
        )
        return self._divided(at_last_ranks)

    def _comparable(self, pairs: Pairs) -> Pairs:
        """The pairs but those whose two collectives cannot be compared, which end
        here: one sends from rank to rank, they are of different kinds, or the late one
        ended before all its ranks had started it."""
        waits = self._waits
        ends_apart = self._ends_apart(pairs)
        of_late = self._matched.of_row[pairs.late]
        of_in_time = self._matched.of_row[pairs.in_time]
        sends = self._matched.point_to_point
        is_bubble = sends[of_late] | sends[of_in_time]
        kind = self._programs.kind_of_collective
        other_kind = kind[of_late] != kind[of_in_time]
        last_start = waits.start[waits.latest[of_late]]
        ends_before_all_start = last_start > waits.end[pairs.late]
        is_strange = (other_kind | ends_before_all_start) & ~is_bubble
        bubbles = pairs.take(is_bubble)
        self._charge_nobody(bubbles, Uncharged.BUBBLE, ends_apart[is_bubble])
        strange = pairs.take(is_strange)
        self._charge_nobody(strange, Uncharged.UNTOLD, ends_apart[is_strange])
        return pairs.take(~is_bubble & ~is_strange)

    def _divided(self, pairs: Pairs) -> Pairs:
        """These pairs, but where several ranks are late for the collective of the late
        rank, one pair for each of them instead, weighted by `shares_of_late`. The sum
        of the gaps times the weights stays as it was."""
        gap = self._gap(pairs)
        collective = self._matched.of_row[pairs.late]
        late_row = self._late_ranks.row[collective]  # [pairs, MAX_LATE_RANKS]
        is_late = self._late_ranks.is_late[collective] & (gap > 0)[:, None]
        ready = self._waits.ready
        after = ready[late_row] - ready[pairs.in_time][:, None]
        share = shares_of_late(np.where(is_late, after, 0).astype(np.float64))
        is_alone = np.count_nonzero(share, axis=1) <= 1
        share[is_alone] = 0.0

        # one pair for each rank that has a share
        number, column = np.nonzero(share)
        several = pairs.take(number)
        weight = several.weight * share[number, column] * gap[number]
        weight /= after[number, column]
        at_late_ranks = several.moved(
            late=late_row[number, column], in_time=several.in_time
        )
        return pairs.take(is_alone) + at_late_ranks.weighted(weight)

    def _gap(self, pairs: Pairs) -> Floats:
        """By how many ns the late rank was ready later."""
        ready = self._waits.ready
        return (ready[pairs.late] - ready[pairs.in_time]).astype(np.float64)

    def _ends_apart(self, pairs: Pairs) -> Floats:
        """By how many ns the collective ended later on the late rank."""
        end = self._waits.end
        return (end[pairs.late] - end[pairs.in_time]).astype(np.float64)

    def _is_same_collective(self, pairs: Pairs) -> Flags:
        """Which pairs are of two rows of one collective."""
        of_row = self._matched.of_row
        return np.asarray(of_row[pairs.late] == of_row[pairs.in_time])

    def _charge(self, pairs: Pairs, ns: Floats) -> None:
        """Charges these ns of each pair to the late rank, or to nobody (UNTOLD) where
        clocks do not tell that it was late."""
        nobody = len(self._matched.ranks) + Uncharged.UNTOLD
        is_told = self._is_told[pairs.late]
        pieces = _Pieces(
            chain=pairs.chain,
            owner=np.where(is_told, self._matched.rank[pairs.late], nobody),
            step=np.where(is_told, self._step[pairs.late], NO_STEP),
            ns=ns * pairs.weight,
        )
        self._pieces.append(pieces)
        np.maximum.at(self._own_ns, pairs.late, ns)

    def _charge_nobody(self, pairs: Pairs, why: Uncharged, ns: Floats) -> None:
        """Notes that these ns of each pair are charged to no rank."""
        pieces = _Pieces(
            chain=pairs.chain,
            owner=np.full(len(pairs), len(self._matched.ranks) + why),
            step=np.full(len(pairs), NO_STEP),
            ns=ns * pairs.weight,
        )
        self._pieces.append(pieces)


def _owners_of_chains(pieces: _Pieces) -> _OwnersOfChains:
    """The sums of these pieces over all steps. Pieces of a chain and owner follow each
    other."""
    is_first = begins_runs(pieces.chain, pieces.owner)
    number = np.cumsum(is_first) - 1
    chain = pieces.chain[is_first]
    ns: Floats = np.zeros(len(chain))
    np.add.at(ns, number, pieces.ns)
    return _OwnersOfChains(chain=chain, ns=ns, number=number)


def _releasing(matched: Matched, waits: Waits) -> Preceding:
    """The collectives before each row that stopped the compute of their rank: for
    MIN_STALL_NS, or half of the time that they lasted."""
    lasts_ns = waits.end - waits.ready
    stops_compute = matched.stalled >= np.minimum(MIN_STALL_NS, lasts_ns / 2)
    return preceding(matched, waits, np.flatnonzero(stops_compute), waits.ready)


def _told_rows(late_ranks: LateRanks, *, rows: int) -> Flags:
    """Which of this many rows of Matched are late by more than clocks leave open."""
    is_told = np.zeros(rows, dtype=np.bool_)
    is_told[late_ranks.row[late_ranks.is_late & late_ranks.is_told]] = True
    return is_told


def shares_of_late(after: Floats) -> Floats:
    """The shares of late ranks in a wait, [n, ranks]: each moment of it is shared
    equally by those that have not arrived yet.

    `after` [n, ranks]: how long after the begin of a wait each of them arrives, 0 or
    less for a rank that does not count. Shares below NOISE_SHARE of the largest count
    as 0; those of a wait add up to 1, or to 0 where nobody arrives after its begin.
    """
    order = np.argsort(-after, axis=1, kind="stable")
    latest_first = np.maximum(np.take_along_axis(after, order, axis=1), 0.0)
    ns_of_rank = _missing_ns(latest_first)
    largest = ns_of_rank.max(axis=1, initial=0.0, keepdims=True)
    counted = np.where(ns_of_rank > NOISE_SHARE * largest, ns_of_rank, 0.0)
    total = counted.sum(axis=1, keepdims=True)
    sorted_shares = counted / np.where(total > 0, total, 1.0)
    shares = np.empty_like(sorted_shares)
    np.put_along_axis(shares, order, sorted_shares, axis=1)
    return shares


def _missing_ns(latest_first: Floats) -> Floats:
    """How many ns of a wait each rank accounts for, if each moment is shared equally by
    the ranks that are missing. `latest_first` and result: [n, ranks], the arrivals of
    the ranks after the begin of the wait, those that arrive last first."""
    waits, ranks = latest_first.shape
    # before the arrival of the n-th last rank and after that of the one before it, n
    # are missing
    missing = 1 + np.arange(ranks)
    begin_of_wait = np.zeros((waits, 1))
    arrival_before = np.append(latest_first[:, 1:], begin_of_wait, axis=1)
    share_of_interval = (latest_first - arrival_before) / missing
    # a rank has a share of every interval up to its arrival
    earliest_first = share_of_interval[:, ::-1]
    return np.asarray(np.cumsum(earliest_first, axis=1)[:, ::-1])


def _ends_of_unmatched(
    matched: Matched, waits: Waits, clocks: Clocks, before: Rows
) -> Int64s:
    """For each row, when a collective that is not matched ended on its rank (ns), if
    that is after the end of `before`, the row that ended last before it; else
    NOT_UNMATCHED."""
    no_ends = np.full(len(matched.rank), NOT_UNMATCHED, dtype=np.int64)
    if not len(matched.unshared_rank):
        return no_ends
    end = clocks.common(matched.unshared_rank, matched.unshared_end)
    first_ns = min(int(waits.start.min()), int(end.min()))
    last = last_before(
        end_ranks=matched.unshared_rank,
        ends=end - first_ns,
        among=np.arange(len(end)),
        ranks=matched.rank,
        begins=waits.start - first_ns,
    )
    matched_end = np.where(before != NO_ROW, waits.end[before], first_ns)
    is_after = (last != NO_ROW) & (end[last] > matched_end)
    return np.where(is_after, end[last], no_ends)


def _followed_collectives(matched: Matched, waits: Waits, before: Rows) -> Rows:
    """For each collective the one that it followed: itself, or where its last rank had
    it queued behind another collective, the one that that one followed. `before`: of
    each row, the last row that ended before it."""
    is_queued = waits.ready[waits.latest] < waits.start[waits.latest]
    ahead = before[waits.latest]
    itself = np.arange(len(matched))
    followed = np.where(is_queued & (ahead != NO_ROW), matched.of_row[ahead], itself)
    while (followed[followed] != followed).any():
        followed = followed[followed]
    return followed
