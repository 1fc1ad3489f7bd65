"""Follows the lateness of a rank back to the work that made it late.

A rank may start a collective late because it had itself waited for another rank in an
earlier collective. So its lateness is followed back in time, collective by collective.
One such path back is called a *chain*: it belongs to one rank that is late for one
collective.

At every moment a chain is at a *pair* of rows: one of the late rank, and one of a rank
that was in time, with which the late one is compared. (A *row*, as in `Matched`, is one
rank's part in one collective.) Both rows go back from the start of their collective to
the collective before it on the same rank, and from there to the rank that started that
one last. On the way, each part of the lateness is *charged* to a *culprit*: to the rank
that took longer for its own work than its counterpart, or, if no rank is to blame, to
one of the reasons in `UnchargedReason`.

Example: rank 2 starts an all-reduce 9 ms after the others. 4 ms of that it computed
longer than the rank in time since the collective before: these are charged to rank 2.
It was already 5 ms late out of the collective before, which rank 0 had started last:
the chain goes on there with rank 0.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec
import numpy as np

from fusetui.analysis.ranks.clocks import Clocks
from fusetui.analysis.ranks.matching import Matched
from fusetui.analysis.ranks.programs import (
    Preceding,
    ProgramPositions,
    find_last_end_before,
    find_preceding,
)
from fusetui.analysis.ranks.waits import Waits
from fusetui.trace.model.arrays import (
    NO_ROW,
    Flags,
    Floats,
    Int64s,
    Rows,
    begins_runs,
    distinct_rows,
    group_numbers,
)

MIN_LATENESS_SHARE = 0.01
"""A chain ends where the late rank is late by no more than this share of its lateness
at the collective where the chain begins."""
MAX_COLLECTIVES_BACK = 4096
"""A chain is followed back through at most so many collectives."""
MAX_OVERLAPPING_COLLECTIVES = 64
"""At most so many collectives that were still running, and so held up nobody, are
skipped on the way back to one that did."""
MIN_STALL_NS = 10_000
"""Compute is taken to have waited for a collective if it stood still for so long before
its end, or for half of a shorter collective."""
NOISE_SHARE = 0.1
"""Parts of a lateness, shares of a wait, and delays of steps that are smaller than this
share of the largest one are noise."""
MAX_LATE_RANKS = 4
"""The wait for one collective is divided between at most so many ranks: those that
arrive last."""
LAST_RANK_COLUMN = 0
"""The column of tables of shape [collectives, MAX_LATE_RANKS] that has the rank that
arrives last. The columns after it have the ranks that arrive before that one."""
NO_STEP = -1
NO_UNMATCHED_END = 0
"""In place of the end of an unmatched collective, for rows that do not follow one."""


class UnchargedReason(IntEnum):
    """Why a part of a lateness, or of a wait, is charged to no rank."""

    LONGER_TRANSFER = 0  # the data of a collective took longer to move
    UNDECIDED = 1  # clocks are too imprecise, or two collectives cannot be compared
    RANK_NOT_GIVEN = 2  # it goes back to a rank whose trace is not given
    PIPELINE_BUBBLE = 3  # it is a wait in a send or receive of a pipeline
    EARLY_ARRIVAL = 4  # the waiting rank was early, rather than the other one late
    WAITING_RANK_ITSELF = 5  # it goes back to the very rank that waits


def encode_reason(reason: UnchargedReason, *, rank_count: int) -> int:
    """Encode the reason why no rank is to blame as a number for an array of culprits.

    Such an array has the index of a rank where that rank is to blame. The codes of the
    reasons follow behind those indices: with 8 ranks, the reason 2 has the code 10.

    Args:
        reason: Why no rank is to blame.
        rank_count: The number of ranks of the job.
    """
    return rank_count + reason


class LateRanks(msgspec.Struct, frozen=True, eq=False):
    """The ranks that are late for each collective.

    Arrays have the shape [collectives, MAX_LATE_RANKS]. The ranks of a collective stand
    in the order of their starts, the last one (LAST_RANK_COLUMN) first.
    """

    row: Rows  # the row of Matched of the rank in this collective
    is_late: Flags  # False: the rank is not late, and the row is to be ignored
    is_certain: Flags  # late by more than the clocks are uncertain


class RowPairs(msgspec.Struct, frozen=True, eq=False):
    """The pairs of rows at which chains are; each array has one entry per pair.

    A chain is the path back from one rank that is late for one collective. It has
    several pairs at once after it came to a collective with several late ranks.
    """

    chain: Rows  # the index of the chain of the pair
    late_row: Rows  # row of Matched of the rank that was late
    in_time_row: Rows  # row of Matched of the rank that was in time
    # how many ns of the chain's lateness each ns by which this late row is late stands
    # for; 1 where the chain begins
    weight: Floats

    def __len__(self) -> int:
        return len(self.chain)

    @property
    def is_complete(self) -> Flags:
        """Whether each pair has both rows, and NO_ROW in place of neither."""
        return np.asarray((self.late_row != NO_ROW) & (self.in_time_row != NO_ROW))

    def take(self, selection: Flags | Rows) -> RowPairs:
        """Return the pairs at these indices, or those that are flagged."""
        return RowPairs(
            chain=self.chain[selection],
            late_row=self.late_row[selection],
            in_time_row=self.in_time_row[selection],
            weight=self.weight[selection],
        )

    def at_rows(self, late_row: Rows, in_time_row: Rows) -> RowPairs:
        """Return the same pairs at other rows, each a late row and one in time."""
        return msgspec.structs.replace(self, late_row=late_row, in_time_row=in_time_row)

    def weighted(self, weight: Floats) -> RowPairs:
        """Return the same pairs with other weights, one for each pair."""
        return msgspec.structs.replace(self, weight=weight)

    def __add__(self, other: RowPairs) -> RowPairs:
        return RowPairs(
            chain=np.concatenate((self.chain, other.chain)),
            late_row=np.concatenate((self.late_row, other.late_row)),
            in_time_row=np.concatenate((self.in_time_row, other.in_time_row)),
            weight=np.concatenate((self.weight, other.weight)),
        )


class _ChargedLateness(msgspec.Struct, frozen=True, eq=False):
    """Parts of the lateness of chains, each with its culprit; one entry per part."""

    chain: Rows  # the index of the chain
    culprit: Rows  # index of a rank, or the `encode_reason` of a reason
    step: Rows  # the step in which the culprit was late, NO_STEP for none
    ns: Floats  # below 0 where the culprit was faster than its counterpart


class _CulpritsOfChains(msgspec.Struct, frozen=True, eq=False):
    """Each culprit of each chain once, sorted by chain.

    `chain` and `ns` have one entry for each combination of a chain and a culprit.
    """

    chain: Rows
    ns: Floats  # how much of the chain's lateness the culprit explains, in all steps
    # for each part of _ChargedLateness, the index of its culprit in the arrays above
    index_of_part: Rows


class Shares(msgspec.Struct, frozen=True, eq=False):
    """Which culprit explains which share of the lateness of each chain.

    There is one entry for each chain, culprit and step, sorted by chain.
    """

    chain: Rows
    culprit: Rows  # index of a rank, or the `encode_reason` of a reason
    step: Rows  # the step in which the culprit was late, NO_STEP for none
    share: Floats  # from 0 to 1; the shares of a chain add up to 1


class OwnDelays(msgspec.Struct, frozen=True, eq=False):
    """How late ranks became by their own work, and before which collectives."""

    row: Rows  # row of Matched: the late rank, at the collective that follows the work
    ns: Int64s  # how much longer the work took than that of a rank in time


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
        """Prepare to follow chains.

        Args:
            matched: The collectives of the job; a row is one rank's part in one.
            waits: The waits in these collectives.
            clocks: The clocks of all ranks.
            late_ranks: The ranks that are late for each collective.
            lateness: For each chain by how many ns its rank was late where it begins.
            step_of_row: The index of the step of each row of `matched`.
            stage_of_rank: The pipeline stage of each rank. Only ranks of the same stage
                do the same work, so only these are compared.
        """
        self._matched = matched
        self._waits = waits
        self._late_ranks = late_ranks
        self._lateness = lateness
        self._step = step_of_row
        self._stage = stage_of_rank
        self._parts: list[_ChargedLateness] = []
        self._positions = ProgramPositions(matched, waits.start)

        # What is known of each row: the collectives before it, and what delayed it.
        every_row = np.arange(len(matched.rank))
        self._preceding = find_preceding(
            matched, waits, among=every_row, begins=waits.start
        )
        self._stalling = _find_stalling_collectives(matched, waits)
        last = self._preceding.last
        self._delaying_collective = _find_delaying_collectives(matched, waits, last)
        self._unmatched_end = _find_ends_of_unmatched(matched, waits, clocks, last)
        self._is_certain = _mark_certainly_late_rows(late_ranks, rows=len(matched.rank))
        self._own_delay_ns = np.zeros(len(matched.rank))

    def follow(self, pairs: RowPairs) -> None:
        """Follow chains back until all of their lateness is charged.

        A chain is the path back from a rank that is late for a collective: to the
        collective before, to the rank that started that one last, and so on. On the
        way, each part of the lateness is charged to who caused it; `compute_shares` and
        `list_own_delays` return these parts. After MAX_COLLECTIVES_BACK (4096)
        collectives, what is left is charged to nobody, as UNDECIDED.

        Args:
            pairs: The pairs of rows at which the chains begin, one for each chain.
        """
        for _ in range(MAX_COLLECTIVES_BACK):
            pairs = self._go_back_one_collective(pairs)
            if not len(pairs):
                return
        self._charge_nobody(
            pairs, UnchargedReason.UNDECIDED, self._measure_lateness(pairs)
        )

    def list_own_delays(self) -> OwnDelays:
        """Return how late ranks became by their own work, and before which collectives.

        To be called after `follow`. Delays that are smaller than the clocks are
        uncertain are left out.
        """
        is_delayed = self._own_delay_ns > 0
        rows = np.flatnonzero(is_delayed & self._is_certain)
        whole_ns = np.rint(self._own_delay_ns[rows]).astype(np.int64)
        return OwnDelays(row=rows, ns=whole_ns)

    def compute_shares(self) -> Shares:
        """Return which culprit explains which share of the lateness of each chain.

        To be called after `follow`. A chain follows the lateness of one rank back to
        the ranks that caused it, its culprits. If such a rank was 5 ms slower in one
        stretch of work and 2 ms faster in another one, it explains 3 ms. The share that
        this is of the chain's lateness is divided among the steps in which the rank was
        late.
        """
        sums = self._sum_charged_parts()
        culprits = _sum_by_culprit(sums)
        share_of_culprit = self._compute_culprit_shares(culprits.chain, culprits.ns)

        # In steps in which a culprit was faster it is not late, so these get no share.
        culprit_of_sum = culprits.index_of_part
        late_ns = np.maximum(sums.ns, 0.0)
        late_ns_of_culprit = np.bincount(
            culprit_of_sum, weights=late_ns, minlength=len(culprits.chain)
        )
        divisor = np.where(late_ns_of_culprit > 0, late_ns_of_culprit, 1.0)
        share_in_step = (
            share_of_culprit[culprit_of_sum] * late_ns / divisor[culprit_of_sum]
        )

        has_share = share_in_step > 0
        return Shares(
            chain=sums.chain[has_share],
            culprit=sums.culprit[has_share],
            step=sums.step[has_share],
            share=share_in_step[has_share],
        )

    def _sum_charged_parts(self) -> _ChargedLateness:
        """Add up the parts of lateness of each chain, culprit and step.

        E.g. two parts of 3 and 4 ms, for which rank 2 is to blame in the same chain and
        the same step, become one of 7 ms.

        Returns:
            The sums, sorted by chain, then by culprit, then by step.
        """
        chain = np.concatenate([parts.chain for parts in self._parts])
        culprit = np.concatenate([parts.culprit for parts in self._parts])
        step = np.concatenate([parts.step for parts in self._parts])
        ns = np.concatenate([parts.ns for parts in self._parts])

        first_part, sum_of_part = distinct_rows((chain, culprit, step))
        sum_ns = np.bincount(sum_of_part, weights=ns, minlength=len(first_part))
        return _ChargedLateness(
            chain=chain[first_part],
            culprit=culprit[first_part],
            step=step[first_part],
            ns=sum_ns.astype(np.float64),
        )

    def _compute_culprit_shares(self, chain: Rows, ns: Floats) -> Floats:
        """Turn the ns that culprits explain into shares of the lateness of their
        chains.

        Culprits that explain at most NOISE_SHARE of what the largest culprit of the
        chain explains count as noise. E.g. 6, 3, 1 and 0.5 ns of one chain become the
        shares 0.6, 0.3, 0.1 and 0.

        Args:
            chain: The index of the chain of each culprit.
            ns: How much of that chain's lateness the culprit explains.

        Returns:
            A share for each culprit. The shares of a chain add up to 1, or to 0 if none
            of its culprits was late.
        """
        chain_count = len(self._lateness)
        largest_ns_of_chain = np.zeros(chain_count)
        np.maximum.at(largest_ns_of_chain, chain, ns)
        max_noise_ns = NOISE_SHARE * largest_ns_of_chain[chain]
        counted_ns = np.where(ns > max_noise_ns, ns, 0.0)

        total_ns_of_chain = np.bincount(
            chain, weights=counted_ns, minlength=chain_count
        )
        total_ns = total_ns_of_chain[chain]
        divisor = np.where(total_ns > 0, total_ns, 1.0)
        return np.asarray(counted_ns / divisor)

    def _go_back_one_collective(self, pairs: RowPairs) -> RowPairs:
        """Go from a collective for which a rank is late to the collective before it.

        Each pair is a late rank and a rank in time, with which it is compared. What the
        late rank took longer between the two collectives is charged to it. Where it was
        late already when it left the collective before, that is left to be explained.

        Args:
            pairs: The rows of both ranks in the collective.

        Returns:
            The rows at which the rest of the lateness has to be explained.
        """
        pairs = self._drop_finished(pairs)
        pairs = self._drop_after_unmatched(pairs)

        # Compute stood still for some collective before. If that is the same one of the
        # program on both ranks, their work is compared from its end on.
        stalling = self._find_last_holding_up(pairs, self._stalling)
        is_same_position = self._positions.is_same_position(
            stalling.late_row, stalling.in_time_row
        )
        collective = self._matched.collective_of_row[stalling.late_row]
        is_send = self._matched.point_to_point[collective]
        has_common_stall = stalling.is_complete & is_same_position & ~is_send
        after_stall = self._charge_since_stall(
            pairs.take(has_common_stall), stalling.take(has_common_stall)
        )

        # If not, it is compared from the end of the last collective before, whether
        # compute waited for that one or not.
        after_preceding = self._charge_since_preceding(pairs.take(~has_common_stall))
        return self._merge_equal_pairs(after_stall + after_preceding)

    def _merge_equal_pairs(self, pairs: RowPairs) -> RowPairs:
        """Merge the pairs of one chain that are at the same two rows, adding up their
        weights.

        Without this, a chain that passes collectives with several late ranks would have
        more and more pairs.
        """
        first_pair, group_of_pair = distinct_rows(
            (pairs.chain, pairs.late_row, pairs.in_time_row)
        )
        all_differ = len(first_pair) == len(pairs)
        if all_differ:
            return pairs
        weight = np.bincount(group_of_pair, weights=pairs.weight)
        return pairs.take(first_pair).weighted(weight.astype(np.float64))

    def _drop_finished(self, pairs: RowPairs) -> RowPairs:
        """Drop the pairs of ranks that need not be compared any further.

        A pair is a rank that was late for a collective and one that was in time. They
        need no further comparison where the first one is late no longer: what is left
        is then due to a longer transfer. They cannot be compared where they are of
        different pipeline stages, because these do different work. Nobody is charged
        for either.

        Returns:
            The other pairs.
        """
        late_ns = self._measure_lateness(pairs)
        min_late_ns = MIN_LATENESS_SHARE * self._lateness[pairs.chain]
        is_late_no_longer = late_ns <= min_late_ns
        self._charge_nobody(
            pairs.take(is_late_no_longer),
            UnchargedReason.LONGER_TRANSFER,
            late_ns[is_late_no_longer],
        )

        late_stage = self._stage[self._matched.rank[pairs.late_row]]
        in_time_stage = self._stage[self._matched.rank[pairs.in_time_row]]
        is_other_stage = ~is_late_no_longer & (late_stage != in_time_stage)
        self._charge_nobody(
            pairs.take(is_other_stage),
            UnchargedReason.PIPELINE_BUBBLE,
            late_ns[is_other_stage],
        )
        return pairs.take(~is_late_no_longer & ~is_other_stage)

    def _drop_after_unmatched(self, pairs: RowPairs) -> RowPairs:
        """Drop the pairs where one of the ranks came out of an unmatched collective.

        A collective is unmatched if it was not found on the other ranks. How long the
        rank waited there, and for whom, is not known, so the lateness before it is
        charged to nobody. If both ranks came out of one, the lateness that arose since
        then is known, and is charged to the late rank.

        Returns:
            The other pairs.
        """
        late_end = self._unmatched_end[pairs.late_row]
        in_time_end = self._unmatched_end[pairs.in_time_row]
        late_is_unmatched = late_end != NO_UNMATCHED_END
        in_time_is_unmatched = in_time_end != NO_UNMATCHED_END

        late_ns = self._measure_lateness(pairs)
        late_ns_before = late_end - in_time_end
        both_are_unmatched = late_is_unmatched & in_time_is_unmatched
        own_ns = np.where(both_are_unmatched, late_ns - late_ns_before, 0.0)

        is_dropped = late_is_unmatched | in_time_is_unmatched
        dropped = pairs.take(is_dropped)
        self._charge(dropped, own_ns[is_dropped])
        unexplained_ns = late_ns[is_dropped] - own_ns[is_dropped]
        self._charge_nobody(dropped, UnchargedReason.RANK_NOT_GIVEN, unexplained_ns)
        return pairs.take(~is_dropped)

    def _charge_since_stall(self, pairs: RowPairs, stalling: RowPairs) -> RowPairs:
        """Charge the lateness that arose since compute waited for a collective.

        The compute of both ranks of a pair stood still until the same collective of the
        program had ended. What took longer since then is the late rank's own work,
        whatever other collectives ran beside it.

        Args:
            pairs: The rows of a late rank and of a rank in time, at the same
                collective.
            stalling: For each pair the rows of the collective that stalled compute, on
                the late rank and on the rank in time. They may be of one collective, or
                of two that are at the same position of the program in different groups.

        Returns:
            The pairs at which the rest of the lateness has to be explained.
        """
        end_difference = self._measure_end_difference(stalling)
        late_ns_since_then = self._measure_lateness(pairs) - end_difference
        self._charge(pairs, late_ns_since_then)

        # One collective ended at different times on its ranks: that is its transfer.
        is_same = self._is_same_collective(stalling)
        self._charge_nobody(
            stalling.take(is_same),
            UnchargedReason.LONGER_TRANSFER,
            end_difference[is_same],
        )
        return self._follow_to_last_ranks(stalling.take(~is_same))

    def _charge_since_preceding(self, pairs: RowPairs) -> RowPairs:
        """Charge the lateness that arose since the last collective before each row.

        The late rank is charged with it, except for the lateness that it had before
        that collective already.

        Args:
            pairs: The rows of a late rank and of a rank in time, at the same
                collective.

        Returns:
            The pairs at which the rest of the lateness has to be explained.
        """
        # Before the first collective of a rank there is nothing to follow.
        preceding = self._find_last_holding_up(pairs, self._preceding)
        has_preceding = preceding.is_complete
        beginning = pairs.take(~has_preceding)
        self._charge(beginning, self._measure_lateness(beginning))

        pairs = pairs.take(has_preceding)
        preceding = preceding.take(has_preceding)
        late_ns = self._measure_lateness(pairs)
        end_difference = self._measure_end_difference(preceding)
        is_same = self._is_same_collective(preceding)
        earlier_ns = self._measure_earlier_lateness(pairs, preceding)
        earlier_ns = np.where(is_same, earlier_ns, 0.0)
        self._charge(pairs, late_ns - end_difference - earlier_ns)

        # One collective ended at different times on its ranks: that is its transfer.
        self._charge_nobody(
            pairs.take(is_same),
            UnchargedReason.LONGER_TRANSFER,
            end_difference[is_same],
        )
        through_same = self._follow_through(
            preceding.take(is_same), earlier_ns[is_same]
        )
        return through_same + self._follow_to_last_ranks(preceding.take(~is_same))

    def _measure_earlier_lateness(self, pairs: RowPairs, preceding: RowPairs) -> Floats:
        """Measure how late a rank was already before a collective in which both took
        part.

        A collective makes its ranks equally late, unless the rank in time did not stop
        for it but computed through it. By as much as that rank computed more than the
        late one meanwhile, the late rank was late before.

        Args:
            pairs: The rows of a late rank and of a rank in time, at the same
                collective.
            preceding: For each pair the rows of the collective before.

        Returns:
            ns per pair, from 0 to the lateness of the pair.
        """
        computed_in_time = self._measure_compute_during(
            preceding.in_time_row, pairs.in_time_row
        )
        computed_late = self._measure_compute_during(preceding.late_row, pairs.late_row)
        computed_more_ns = computed_in_time - computed_late
        return np.clip(computed_more_ns, 0, self._measure_lateness(pairs))

    def _find_last_holding_up(self, pairs: RowPairs, before: Preceding) -> RowPairs:
        """Find the last collective before each row for which its rank can have waited.

        A collective that is still running on a rank when that rank is ready for the
        next one did not hold that rank up. As all ranks run the same program, it did
        not hold up the other rank of the pair either, even if nothing ran beside it
        there.

        Args:
            pairs: The rows of a late rank and of a rank in time, with which it is
                compared.
            before: The collectives to choose from: those that precede each row.

        Returns:
            The same pairs at the rows of these collectives, NO_ROW where there is none.
        """
        late_row = self._find_last_over_on_partner(
            pairs.late_row, pairs.in_time_row, before
        )
        in_time_row = self._find_last_over_on_partner(
            pairs.in_time_row, pairs.late_row, before
        )
        return pairs.at_rows(late_row=late_row, in_time_row=in_time_row)

    def _find_last_over_on_partner(
        self, rows: Rows, partner_rows: Rows, before: Preceding
    ) -> Rows:
        """Find the last collective before each row that was over on the partner's rank.

        The partner of a row is a rank with which its rank is compared. A collective
        counts as over if the same collective of the program, on the rank of the
        partner, had ended when that rank was ready for the partner's collective.

        Args:
            rows: Rows of one rank each.
            partner_rows: The partner of each of them.
            before: The collectives to choose from: those that precede each row.

        Returns:
            The row of a preceding collective for each of `rows`, NO_ROW for none. At
            most MAX_OVERLAPPING_COLLECTIVES are skipped because they are not over.
        """
        partner_rank = self._matched.rank[partner_rows]
        partner_ready = self._waits.ready[partner_rows]
        last_row = before.last[rows]

        # Go back by one collective at a time, where the last one is not over.
        for _ in range(MAX_OVERLAPPING_COLLECTIVES):
            on_partner = self._positions.find_on_other_rank(partner_rank, last_row)
            is_known = (last_row != NO_ROW) & (on_partner != NO_ROW)
            end_on_partner = self._waits.end[on_partner]  # of any row for NO_ROW
            is_still_running = is_known & (end_on_partner > partner_ready)
            if not is_still_running.any():
                break
            one_earlier = before.earlier[last_row]
            last_row = np.where(is_still_running, one_earlier, last_row)
        return last_row

    def _measure_compute_during(self, rows: Rows, next_rows: Rows) -> Floats:
        """Measure how much a rank computed while a collective waited or ran.

        Compute counts from when the collective was ready to start until it ended, or
        until the rank was ready for its next collective if that came later. If the rank
        was ready for the next one before this one ended, it was ahead by the time in
        between, which counts too.

        Args:
            rows: The rows of the collectives.
            next_rows: For each of them the row of the next collective of the same rank.

        Returns:
            ns for each row.
        """
        matched = self._matched
        before_start_ns = matched.ahead[rows]
        before_next_start_ns = matched.ahead[next_rows]
        computed_ns = matched.covered[rows] + before_start_ns - before_next_start_ns

        end = self._waits.end[rows]
        next_ready = self._waits.ready[next_rows]
        ready_early_ns = np.maximum(end - next_ready, 0)
        return np.asarray(np.maximum(computed_ns, 0) + ready_early_ns, dtype=np.float64)

    def _follow_through(self, pairs: RowPairs, earlier_ns: Floats) -> RowPairs:
        """Follow a lateness through a collective in which both ranks took part.

        The rank in time computed through the collective, so a part of the lateness
        arose before it and has to be explained there. E.g. 4 of 9 ns arose before, and
        the late rank started the collective 8 ns late: each ns of these 8 then stands
        for half a ns of the part, so its weight is halved.

        Args:
            pairs: The rows of both ranks in that collective.
            earlier_ns: For each pair the part of the lateness that arose before.

        Returns:
            The pairs at which that part has to be explained. Where the late rank was
            not late for the collective, nobody is charged with the part, and the chain
            ends.
        """
        late_ns_before = self._measure_lateness(pairs)
        goes_on = (earlier_ns > 0) & (late_ns_before > 0)
        self._charge_nobody(
            pairs.take(~goes_on), UnchargedReason.LONGER_TRANSFER, earlier_ns[~goes_on]
        )

        followed_pairs = pairs.take(goes_on)
        weight_ratio = np.minimum(earlier_ns[goes_on] / late_ns_before[goes_on], 1)
        return followed_pairs.weighted(followed_pairs.weight * weight_ratio)

    def _follow_to_last_ranks(self, pairs: RowPairs) -> RowPairs:
        """Follow a lateness from two collectives to the ranks that started them last.

        The late rank came out of one collective, the rank in time out of another one,
        which ended earlier. That is because the ranks of the first one started later,
        or because its transfer took longer. E.g. the first one ended 9 ms later, and
        its last rank started it 7 ms later: the chain goes on with these 7 ms, and 2 ms
        of longer transfer are charged to nobody.

        Args:
            pairs: The rows of the two collectives, which differ.

        Returns:
            The pairs at the ranks that started the two collectives last. Pairs whose
            collectives cannot be compared are dropped.
        """
        pairs = self._drop_incomparable(pairs)
        late_collective = self._matched.collective_of_row[pairs.late_row]
        in_time_collective = self._matched.collective_of_row[pairs.in_time_row]
        at_last_ranks = pairs.at_rows(
            late_row=self._find_delaying_rows(late_collective),
            in_time_row=self._find_delaying_rows(in_time_collective),
        )
        ended_later_ns = self._measure_end_difference(pairs)
        started_later_ns = self._measure_lateness(at_last_ranks)
        longer_transfer_ns = ended_later_ns - started_later_ns

        # If a rank of the group is not given, it may have started even later. Then the
        # difference is not certain to be one of transfers.
        has_all_ranks = self._matched.has_all_ranks[late_collective]
        self._charge_nobody(
            at_last_ranks.take(~has_all_ranks),
            UnchargedReason.RANK_NOT_GIVEN,
            longer_transfer_ns[~has_all_ranks],
        )
        self._charge_nobody(
            at_last_ranks.take(has_all_ranks),
            UnchargedReason.LONGER_TRANSFER,
            longer_transfer_ns[has_all_ranks],
        )
        return self._split_among_late_ranks(at_last_ranks)

    def _find_delaying_rows(self, collectives: Rows) -> Rows:
        """Return for each of some collectives the row of the rank that delayed it.

        That is the rank that started it last, or that started the collective last
        behind which it was queued.
        """
        return self._waits.last_row[self._delaying_collective[collectives]]

    def _drop_incomparable(self, pairs: RowPairs) -> RowPairs:
        """Drop the pairs whose two collectives cannot be compared, charging nobody.

        A pair is a late rank and one in time, which came out of different collectives.
        Waits in sends and receives are the bubble of a pipeline. Collectives of other
        names, sizes or numbers of ranks take other times. And if a collective ended on
        the late rank before all of its ranks had started it, its times are wrong.

        Returns:
            The other pairs.
        """
        waits = self._waits
        late_collective = self._matched.collective_of_row[pairs.late_row]
        in_time_collective = self._matched.collective_of_row[pairs.in_time_row]

        is_send = self._matched.point_to_point
        is_bubble = is_send[late_collective] | is_send[in_time_collective]

        kind = self._positions.kind_of_collective
        differ_in_kind = kind[late_collective] != kind[in_time_collective]
        last_start = waits.start[waits.last_row[late_collective]]
        ends_before_all_start = waits.end[pairs.late_row] < last_start
        is_incomparable = ~is_bubble & (differ_in_kind | ends_before_all_start)

        end_difference = self._measure_end_difference(pairs)
        self._charge_nobody(
            pairs.take(is_bubble),
            UnchargedReason.PIPELINE_BUBBLE,
            end_difference[is_bubble],
        )
        self._charge_nobody(
            pairs.take(is_incomparable),
            UnchargedReason.UNDECIDED,
            end_difference[is_incomparable],
        )
        return pairs.take(~is_bubble & ~is_incomparable)

    def _split_among_late_ranks(self, pairs: RowPairs) -> RowPairs:
        """Split pairs whose collective has several late ranks into one pair for each.

        A pair is at the rank that started a collective last. If other ranks were late
        for that collective too, each of them gets a pair whose weight is its share of
        the delay (`divide_waits`). The sum of the lateness times the weights stays the
        same.
        """
        late_ns = self._measure_lateness(pairs)
        collective = self._matched.collective_of_row[pairs.late_row]

        # Tables of shape [pairs, MAX_LATE_RANKS].
        late_row = self._late_ranks.row[collective]
        is_late = self._late_ranks.is_late[collective] & (late_ns > 0)[:, None]
        ready = self._waits.ready
        arrives_after_ns = ready[late_row] - ready[pairs.in_time_row][:, None]
        arrives_after_ns = np.where(is_late, arrives_after_ns, 0)
        share = divide_waits(arrives_after_ns.astype(np.float64))

        # Pairs with one late rank stay as they are.
        is_split = np.count_nonzero(share, axis=1) > 1
        pair, column = np.nonzero((share > 0) & is_split[:, None])
        new_pairs = pairs.take(pair)
        share_of_new = share[pair, column]
        late_ns_of_new = arrives_after_ns[pair, column]
        weight = new_pairs.weight * share_of_new * late_ns[pair] / late_ns_of_new
        at_late_ranks = new_pairs.at_rows(
            late_row=late_row[pair, column], in_time_row=new_pairs.in_time_row
        )
        return pairs.take(~is_split) + at_late_ranks.weighted(weight)

    def _measure_lateness(self, pairs: RowPairs) -> Floats:
        """Return for each pair how many ns later the late rank was ready than the
        other.

        A rank is ready for a collective when the inputs of the collective are computed.
        """
        ready = self._waits.ready
        return (ready[pairs.late_row] - ready[pairs.in_time_row]).astype(np.float64)

    def _measure_end_difference(self, pairs: RowPairs) -> Floats:
        """Return for each pair how many ns later the late rank's collective ended."""
        end = self._waits.end
        return (end[pairs.late_row] - end[pairs.in_time_row]).astype(np.float64)

    def _is_same_collective(self, pairs: RowPairs) -> Flags:
        """Mark the pairs whose two rows are of one and the same collective."""
        collective = self._matched.collective_of_row
        is_same = collective[pairs.late_row] == collective[pairs.in_time_row]
        return np.asarray(is_same)

    def _charge(self, pairs: RowPairs, ns: Floats) -> None:
        """Charge the late rank of each pair with a part of the lateness.

        The part is by how much the late rank took longer for its own work. Where the
        clocks are too imprecise to say that the rank was late, nobody is charged.

        Args:
            pairs: The rows of a late rank and of a rank in time, with which it is
                compared.
            ns: For each pair how much longer the late rank took for its work than the
                rank in time; below 0 if it was faster.
        """
        rank = self._matched.rank[pairs.late_row]
        step = self._step[pairs.late_row]
        is_certain = self._is_certain[pairs.late_row]
        nobody = encode_reason(
            UnchargedReason.UNDECIDED, rank_count=len(self._matched.ranks)
        )

        parts = _ChargedLateness(
            chain=pairs.chain,
            culprit=np.where(is_certain, rank, nobody),
            step=np.where(is_certain, step, NO_STEP),
            ns=ns * pairs.weight,
        )
        self._parts.append(parts)

        # Several pairs may have the same late row; its largest delay is kept.
        np.maximum.at(self._own_delay_ns, pairs.late_row, ns)

    def _charge_nobody(
        self, pairs: RowPairs, reason: UnchargedReason, ns: Floats
    ) -> None:
        """Note a part of the lateness of each pair that no rank is charged with.

        Args:
            pairs: The rows of a late rank and of a rank in time, with which it is
                compared.
            reason: Why no rank is to blame.
            ns: How large the part is, for each pair.
        """
        culprit = encode_reason(reason, rank_count=len(self._matched.ranks))
        parts = _ChargedLateness(
            chain=pairs.chain,
            culprit=np.full(len(pairs), culprit),
            step=np.full(len(pairs), NO_STEP),
            ns=ns * pairs.weight,
        )
        self._parts.append(parts)


def _sum_by_culprit(parts: _ChargedLateness) -> _CulpritsOfChains:
    """Add up how many ns of the lateness of a chain each culprit explains, over all
    steps.

    Args:
        parts: The parts of the lateness. Those of one chain and culprit are neighbors.
    """
    is_first = begins_runs(parts.chain, parts.culprit)
    culprit_of_part = group_numbers(is_first)

    chain = parts.chain[is_first]
    ns: Floats = np.zeros(len(chain))
    np.add.at(ns, culprit_of_part, parts.ns)
    return _CulpritsOfChains(chain=chain, ns=ns, index_of_part=culprit_of_part)


def _find_stalling_collectives(matched: Matched, waits: Waits) -> Preceding:
    """Find the collectives before each row for which the compute of its rank waited.

    Compute is taken to have waited for a collective if it stood still for at least
    MIN_STALL_NS before its end, or for half of the time that the collective lasted.

    Returns:
        For each row the last such collective that ended before it was ready, and for
        each of those the one before it.
    """
    lasts_ns = waits.end - waits.ready
    min_stall_ns = np.minimum(MIN_STALL_NS, lasts_ns / 2)
    stalling_rows = np.flatnonzero(matched.stalled >= min_stall_ns)
    return find_preceding(matched, waits, among=stalling_rows, begins=waits.ready)


def _mark_certainly_late_rows(late_ranks: LateRanks, *, rows: int) -> Flags:
    """Mark the rows whose rank is late by more than the clocks are uncertain.

    A row is one rank in one collective, as in the table `Matched`.

    Args:
        late_ranks: The ranks that are late for each collective.
        rows: How many rows there are in all.
    """
    certainly_late = late_ranks.row[late_ranks.is_late & late_ranks.is_certain]
    is_certain = np.zeros(rows, dtype=np.bool_)
    is_certain[certainly_late] = True
    return is_certain


def divide_waits(arrival_after_ns: Floats) -> Floats:
    """Divide each wait among the ranks that arrive after it began.

    Each moment of a wait is shared equally by the ranks that have not arrived yet. If
    one rank arrives after 10 ns and another one after 30 ns, the first accounts for 5
    ns and the second for 5 + 20 ns: the shares are 1/6 and 5/6.

    Args:
        arrival_after_ns: How many ns after the begin of the wait each rank arrives, of
            shape [waits, ranks]; 0 or less for a rank that does not count.

    Returns:
        The shares, in the same shape. Shares below NOISE_SHARE of the largest count as
        0. Those of a wait add up to 1, or to 0 if nobody arrives after its begin.
    """
    # The helper wants the rank that arrives last in the first column.
    latest_first = np.argsort(-arrival_after_ns, axis=1, kind="stable")
    sorted_arrivals = np.take_along_axis(arrival_after_ns, latest_first, axis=1)
    sorted_ns = _measure_shared_ns(np.maximum(sorted_arrivals, 0.0))

    largest_ns = sorted_ns.max(axis=1, initial=0.0, keepdims=True)
    counted_ns = np.where(sorted_ns > NOISE_SHARE * largest_ns, sorted_ns, 0.0)
    total_ns = counted_ns.sum(axis=1, keepdims=True)
    sorted_shares = counted_ns / np.where(total_ns > 0, total_ns, 1.0)

    # Put the shares back into the order of the arguments.
    shares = np.empty_like(sorted_shares)
    np.put_along_axis(shares, latest_first, sorted_shares, axis=1)
    return shares


def _measure_shared_ns(latest_first: Floats) -> Floats:
    """Compute for how many ns of a wait each rank that arrives late accounts.

    Each moment of the wait is shared equally by the ranks that are still missing. E.g.
    for ranks that arrive after 30 and 10 ns: 5 + 20 and 5 ns.

    Args:
        latest_first: When each rank arrives, in ns after the begin of the wait; of
            shape [waits, ranks], the rank that arrives last in the first column.

    Returns:
        ns in the same shape.
    """
    waits, ranks = latest_first.shape

    # Split the wait at each arrival. Before the last one, 1 rank is missing; before the
    # last but one, 2 are missing, and each of them accounts for half of that interval.
    begin_of_wait = np.zeros((waits, 1))
    previous_arrival = np.append(latest_first[:, 1:], begin_of_wait, axis=1)
    interval_ns = latest_first - previous_arrival
    missing_ranks = np.arange(1, ranks + 1)
    share_of_interval_ns = interval_ns / missing_ranks

    # A rank has a share of every interval up to its arrival: add from the right.
    earliest_first = share_of_interval_ns[:, ::-1]
    sums_ns = np.cumsum(earliest_first, axis=1)
    return np.asarray(sums_ns[:, ::-1])


def _find_ends_of_unmatched(
    matched: Matched, waits: Waits, clocks: Clocks, before: Rows
) -> Int64s:
    """Find the rows that directly follow an unmatched collective of their rank.

    Args:
        matched: The collectives of the job, matched and unmatched.
        waits: The waits in the matched collectives.
        clocks: The clocks of all ranks.
        before: For each row the matched row that ended last before it on its rank.

    Returns:
        For each row the end of the last unmatched collective before it, if that ended
        after the matched collective `before`; else NO_UNMATCHED_END. In ns of the
        common clock.
    """
    no_ends = np.full(len(matched.rank), NO_UNMATCHED_END, dtype=np.int64)
    if not len(matched.unshared_rank):
        return no_ends

    # Times are counted from the first one, because `find_last_end_before` takes none
    # below 0.
    unmatched_end = clocks.to_common_clock(matched.unshared_rank, matched.unshared_end)
    first_ns = min(int(waits.start.min()), int(unmatched_end.min()))
    last_unmatched = find_last_end_before(
        end_ranks=matched.unshared_rank,
        ends=unmatched_end - first_ns,
        among=np.arange(len(unmatched_end)),
        ranks=matched.rank,
        begins=waits.start - first_ns,
    )

    # A row without a matched collective before it gets the first time of all.
    has_matched = before != NO_ROW
    last_matched_end = np.where(has_matched, waits.end[before], first_ns)
    has_unmatched = last_unmatched != NO_ROW
    last_unmatched_end = unmatched_end[last_unmatched]
    is_later = has_unmatched & (last_unmatched_end > last_matched_end)
    return np.where(is_later, last_unmatched_end, no_ends)


def _find_delaying_collectives(matched: Matched, waits: Waits, before: Rows) -> Rows:
    """Find for each collective the one whose last rank really delayed it.

    Usually that is the collective itself. But its last rank may have had it queued
    behind another collective. Then the rank was ready, and the other collective is to
    blame, or the one behind which that was queued in turn. E.g. if 2 is queued behind
    1, and 1 behind 0, the result is 0, 0, 0.

    Args:
        matched: The collectives of the job; a row is one rank's part in one.
        waits: The waits in these collectives.
        before: For each row the row that ended last before it on its rank, NO_ROW for
            none.

    Returns:
        The index of a collective for each collective.
    """
    last_row = waits.last_row
    row_before = before[last_row]
    is_behind_another = waits.is_queued[last_row] & (row_before != NO_ROW)

    itself = np.arange(len(matched))
    collective_before = matched.collective_of_row[row_before]
    delaying = np.where(is_behind_another, collective_before, itself)

    # Each round takes twice as many steps back, so that this many rounds are enough for
    # any queue. Imprecise clocks can make collectives queue in a circle, which has no
    # end.
    for _ in range(len(matched).bit_length()):
        delaying = delaying[delaying]
    return delaying
