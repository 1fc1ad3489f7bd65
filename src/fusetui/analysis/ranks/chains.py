"""Follows the lateness of a rank back to the work that made it late.

A *chain* begins at a collective for which some rank is late. At every moment it is at a
pair of rows: one of the late rank, and one of a rank that was in time. Both go back
from the start of their collective to the collective before it on the same rank, and
from there to the rank that started that one last. On the way each part of the lateness
is charged to the rank that took longer than its counterpart. Parts that no rank is to
blame for are noted with one of the reasons in `UnchargedReason`.

*Rows* are those of `Matched`: one for each rank's part in a collective.
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
    ProgramPositions,
    last_before,
    preceding,
)
from fusetui.analysis.ranks.waits import Waits
from fusetui.trace.model.arrays import Flags, Floats, Int64s, Rows, begins_runs

MIN_LATENESS_SHARE = 0.01
"""Of the lateness at the collective where the wait is: below it, a chain is over."""
MAX_COLLECTIVES_BACK = 4096
"""Through so many collectives a chain is followed back."""
MAX_OVERLAPPING_COLLECTIVES = 64
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


class UnchargedReason(IntEnum):
    """Why a part of a lateness is charged to no rank."""

    LONGER_TRANSFER = 0  # a transfer took longer
    UNDECIDED = 1  # clocks do not tell, or two chains cannot be compared
    RANK_NOT_GIVEN = 2  # it goes back to a rank that is not given
    PIPELINE_BUBBLE = 3  # it is a wait in a pipeline
    EARLY_ARRIVAL = 4  # the waiting rank arrives early
    WAITING_RANK_ITSELF = 5  # it goes back to the very rank that waits


class LateRanks(msgspec.Struct, frozen=True, eq=False):
    """The ranks that are late for each collective.

    Arrays have the shape [collectives, MAX_LATE_RANKS]. The first column is the rank
    that starts last.
    """

    row: Rows  # of Matched
    is_late: Flags
    is_certain: Flags  # late by more than clocks are uncertain


class RowPairs(msgspec.Struct, frozen=True, eq=False):
    """The rows at which chains are; one entry per pair."""

    chain: Rows  # index of the chain: a collective, and a rank that is late for it
    late_row: Rows  # row of the late rank
    in_time_row: Rows  # row of the rank that was in time
    weight: (
        Floats  # which share of the lateness here is earlier_ns on to that collective
    )

    def __len__(self) -> int:
        return len(self.chain)

    def take(self, selection: Flags | Rows) -> RowPairs:
        """Return the pairs at these indices, or those that are flagged."""
        return RowPairs(
            chain=self.chain[selection],
            late_row=self.late_row[selection],
            in_time_row=self.in_time_row[selection],
            weight=self.weight[selection],
        )

    def at_rows(self, late_row: Rows, in_time_row: Rows) -> RowPairs:
        """Return the same chains at other rows."""
        return RowPairs(
            chain=self.chain,
            late_row=late_row,
            in_time_row=in_time_row,
            weight=self.weight,
        )

    def weighted(self, weight: Floats) -> RowPairs:
        """Return the same pairs with other weights."""
        return msgspec.structs.replace(self, weight=weight)

    def __add__(self, more: RowPairs) -> RowPairs:
        return RowPairs(
            chain=np.concatenate((self.chain, more.chain)),
            late_row=np.concatenate((self.late_row, more.late_row)),
            in_time_row=np.concatenate((self.in_time_row, more.in_time_row)),
            weight=np.concatenate((self.weight, more.weight)),
        )


class _LatenessParts(msgspec.Struct, frozen=True, eq=False):
    """Parts of the lateness of chains, each with its owner; one entry per part."""

    chain: Rows
    culprit: Rows  # as in Shares
    step: Rows  # NO_STEP: none
    ns: Floats  # below 0 where the owner was faster


class _CulpritsOfChains(msgspec.Struct, frozen=True, eq=False):
    """The culprits of each chain, in the order of the chains.

    `chain` and `ns` have one entry for each owner of each chain.
    """

    chain: Rows
    ns: Floats  # in all steps
    index_of_part: Rows  # for each part, the index of its owner in the arrays above


class Shares(msgspec.Struct, frozen=True, eq=False):
    """Who explains which share of the lateness of each chain, in the order of chains.

    There is one entry for each owner and step of a chain.
    """

    chain: Rows
    culprit: Rows  # index of a rank, or the number of ranks plus one of UnchargedReason
    step: Rows  # in which the owner was late, NO_STEP if in none
    share: Floats  # those of a chain add up to 1


class OwnDelays(msgspec.Struct, frozen=True, eq=False):
    """Rows before which a rank was late by its own work, and by how much."""

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
        """Prepare to follow chains.

        Args:
            matched: The collectives of the job.
            waits: Their waits.
            clocks: The clocks of all ranks.
            late_ranks: The ranks that are late for each collective.
            lateness: The lateness of each chain, in ns.
            step_of_row: The step of each row.
            stage_of_rank: The pipeline stage of each rank. Only ranks of the same stage
                do the same work.
        """
        self._matched = matched
        self._waits = waits
        self._late_ranks = late_ranks
        self._lateness = lateness
        self._step = step_of_row
        self._stage = stage_of_rank
        self._parts: list[_LatenessParts] = []
        self._positions = ProgramPositions(matched, waits.start)

        every_row = np.arange(len(matched.rank))
        self._preceding = preceding(matched, waits, every_row, waits.start)
        self._stalling = _stalling_collectives(matched, waits)
        last = self._preceding.last
        self._delaying_collective = _delaying_collectives(matched, waits, last)
        self._unmatched_end = _ends_of_unmatched(matched, waits, clocks, last)
        self._is_certain = _certainly_late_rows(late_ranks, rows=len(matched.rank))
        self._own_delay_ns = np.zeros(len(matched.rank))

    def follow(self, pairs: RowPairs) -> None:
        """Follow chains back to where their lateness is explained.

        They are followed through at most MAX_COLLECTIVES_BACK collectives. What is not
        explained by then is charged to nobody.

        Args:
            pairs: The rows at which the chains begin.
        """
        for _ in range(MAX_COLLECTIVES_BACK):
            pairs = self._go_back_one_collective(pairs)
            if not len(pairs):
                return
        self._charge_nobody(pairs, UnchargedReason.UNDECIDED, self._lateness_of(pairs))

    def own_delays(self) -> OwnDelays:
        """Return where ranks were late by their own work, once chains were followed."""
        rows = np.flatnonzero((self._own_delay_ns > 0) & self._is_certain)
        return OwnDelays(
            row=rows, ns=np.rint(self._own_delay_ns[rows]).astype(np.int64)
        )

    def shares(self) -> Shares:
        """Return who explains which share of each chain, once chains were followed.

        A rank may have been slower in one place and faster in another; such parts cancel.
        What is left of a rank is divided among the steps in which it was late.
        """
        sums = self._summed_parts()
        culprits = _culprits_of_chains(sums)
        share_of_culprit = self._share_of_culprits(culprits.chain, culprits.ns)

        # Divide the share of each owner by how late it was in each step.
        late_ns = np.maximum(sums.ns, 0.0)
        late_ns_of_culprit = np.bincount(
            culprits.index_of_part, weights=late_ns, minlength=len(culprits.chain)
        )
        divisor = np.where(late_ns_of_culprit > 0, late_ns_of_culprit, 1.0)
        share_in_step = (
            share_of_culprit[culprits.index_of_part]
            * late_ns
            / divisor[culprits.index_of_part]
        )

        has_share = share_in_step > 0
        return Shares(
            chain=sums.chain[has_share],
            culprit=sums.culprit[has_share],
            step=sums.step[has_share],
            share=share_in_step[has_share],
        )

    def _summed_parts(self) -> _LatenessParts:
        """Add up all parts by chain, owner and step, and sort them in this order."""
        chain = np.concatenate([parts.chain for parts in self._parts])
        culprit = np.concatenate([parts.culprit for parts in self._parts])
        step = np.concatenate([parts.step for parts in self._parts])
        ns = np.concatenate([parts.ns for parts in self._parts])

        # Combine the three into one integer. Steps are shifted, so that NO_STEP is 0.
        codes = len(self._matched.ranks) + len(UnchargedReason)
        shifted_step = step - NO_STEP
        steps = int(shifted_step.max(initial=0)) + 1
        combined = (chain * codes + culprit) * steps + shifted_step
        combinations, combination_of_part = np.unique(combined, return_inverse=True)

        sum_chain_and_culprit, sum_shifted_step = np.divmod(combinations, steps)
        sum_chain, sum_culprit = np.divmod(sum_chain_and_culprit, codes)
        sum_ns = np.bincount(combination_of_part, ns, len(combinations))
        return _LatenessParts(
            chain=sum_chain,
            culprit=sum_culprit,
            step=sum_shifted_step + NO_STEP,
            ns=sum_ns.astype(np.float64),
        )

    def _share_of_culprits(self, chain: Rows, ns: Floats) -> Floats:
        """Turn the lateness that culprits explain into shares of their chains.

        Args:
            chain: The chain of each owner.
            ns: The lateness that each owner explains.

        Returns:
            A share for each owner. It is 0 if the owner explains at most NOISE_SHARE of
            what the largest one of the chain does. The shares of a chain add up to 1, or
            to 0 if no owner was late.
        """
        largest = np.zeros(len(self._lateness))
        np.maximum.at(largest, chain, ns)
        is_counted = ns > NOISE_SHARE * largest[chain]
        counted_ns = np.where(is_counted, ns, 0.0)

        total = np.bincount(chain, weights=counted_ns, minlength=len(largest))
        divisor = np.where(total > 0, total, 1.0)
        return np.asarray(counted_ns / divisor[chain])

    def _go_back_one_collective(self, pairs: RowPairs) -> RowPairs:
        """Follow chains one collective back.

        The part of the lateness that is explained at these rows is charged.

        Returns:
            The pairs at which the rest goes on.
        """
        pairs = self._drop_finished(pairs)
        pairs = self._drop_after_unmatched(pairs)

        # If compute waited for the same collective on both ranks, it started from there on
        # both, and that end is what to compare with. Otherwise it is the last collective
        # that ended before.
        stalling = self._last_holding_up(pairs, self._stalling)
        is_known = (stalling.late_row != NO_ROW) & (stalling.in_time_row != NO_ROW)
        same_position = self._positions.is_same_position(
            stalling.late_row, stalling.in_time_row
        )
        collective = self._matched.collective_of_row[stalling.late_row]
        is_send = self._matched.point_to_point[collective]
        has_common_stall = is_known & same_position & ~is_send

        pairs_with_stall = pairs.take(has_common_stall)
        after_stall = self._charge_since_stall(
            pairs_with_stall, stalling.take(has_common_stall)
        )
        after_preceding = self._charge_since_preceding(pairs.take(~has_common_stall))
        return self._merge_equal_pairs(after_stall + after_preceding)

    def _merge_equal_pairs(self, pairs: RowPairs) -> RowPairs:
        """Merge pairs of one chain that are at the same rows; their weights are added."""
        # Combine the chain and both rows into one integer.
        rows = len(self._matched.rank)
        combined = (pairs.chain * rows + pairs.late_row) * rows + pairs.in_time_row
        _, first, index_of_pair = np.unique(
            combined, return_index=True, return_inverse=True
        )
        if len(first) == len(combined):
            return pairs

        weight: Floats = np.zeros(len(first))
        np.add.at(weight, index_of_pair, pairs.weight)
        return pairs.take(first).weighted(weight)

    def _drop_finished(self, pairs: RowPairs) -> RowPairs:
        """Drop the pairs at which a chain ends, and charge nobody for their rest.

        A chain ends if the late rank is late no longer, or if its counterpart is of another
        pipeline stage.
        """
        late_ns = self._lateness_of(pairs)
        rank = self._matched.rank
        is_over = late_ns <= MIN_LATENESS_SHARE * self._lateness[pairs.chain]
        same_stage = (
            self._stage[rank[pairs.late_row]] == self._stage[rank[pairs.in_time_row]]
        )
        is_other_stage = ~is_over & ~same_stage

        self._charge_nobody(
            pairs.take(is_over), UnchargedReason.LONGER_TRANSFER, late_ns[is_over]
        )
        self._charge_nobody(
            pairs.take(is_other_stage),
            UnchargedReason.PIPELINE_BUBBLE,
            late_ns[is_other_stage],
        )
        return pairs.take(~is_over & ~is_other_stage)

    def _drop_after_unmatched(self, pairs: RowPairs) -> RowPairs:
        """Drop the pairs of which a rank comes from a collective that is not matched.

        Only what the rank did since that collective is its own. How long it waited there,
        and for whom, is not known.
        """
        late_ns = self._lateness_of(pairs)
        late_end = self._unmatched_end[pairs.late_row]
        in_time_end = self._unmatched_end[pairs.in_time_row]
        late_is_unmatched = late_end > NOT_UNMATCHED
        in_time_is_unmatched = in_time_end > NOT_UNMATCHED

        late_ns_before = late_end - in_time_end
        both_are_unmatched = late_is_unmatched & in_time_is_unmatched
        own_ns = np.where(both_are_unmatched, late_ns - late_ns_before, 0.0)

        is_over = late_is_unmatched | in_time_is_unmatched
        ended = pairs.take(is_over)
        self._charge(ended, own_ns[is_over])
        self._charge_nobody(
            ended, UnchargedReason.RANK_NOT_GIVEN, late_ns[is_over] - own_ns[is_over]
        )
        return pairs.take(~is_over)

    def _charge_since_stall(self, pairs: RowPairs, stalling: RowPairs) -> RowPairs:
        """Charge what took longer since the collective for which compute last waited.

        Both ranks of a pair waited for the same collective, or for two at the same position of
        their programs. What took longer since its end is the late rank's own, whatever else
        ran beside it.

        Args:
            pairs: The pairs.
            stalling: For each pair the rows of these collectives.

        Returns:
            The pairs at which the rest of the lateness goes on.
        """
        end_difference = self._end_difference(stalling)
        self._charge(pairs, self._lateness_of(pairs) - end_difference)

        same = self._is_same_collective(stalling)
        self._charge_nobody(
            stalling.take(same), UnchargedReason.LONGER_TRANSFER, end_difference[same]
        )
        return self._follow_to_last_ranks(stalling.take(~same))

    def _charge_since_preceding(self, pairs: RowPairs) -> RowPairs:
        """Charge what took longer since the last collectives that ended before.

        The late rank is charged, except for what its lateness before these collectives
        explains.

        Returns:
            The pairs at which the rest of the lateness goes on.
        """
        # Before the first collective of a rank there is nothing to follow.
        before = self._last_holding_up(pairs, self._preceding)
        at_begin = (before.late_row == NO_ROW) | (before.in_time_row == NO_ROW)
        beginning = pairs.take(at_begin)
        self._charge(beginning, self._lateness_of(beginning))

        pairs = pairs.take(~at_begin)
        before = before.take(~at_begin)
        late_ns = self._lateness_of(pairs)
        end_difference = self._end_difference(before)
        same = self._is_same_collective(before)

        # If both ranks met in one collective, the rank in time may have computed through
        # it. So much of the lateness was there before.
        computed_ns = self._computed_through(before.in_time_row, pairs.in_time_row)
        computed_ns -= self._computed_through(before.late_row, pairs.late_row)
        earlier_ns = np.where(same, np.clip(computed_ns, 0, late_ns), 0.0)

        self._charge(pairs, late_ns - end_difference - earlier_ns)
        through = self._follow_through(before.take(same), earlier_ns[same])
        self._charge_nobody(
            pairs.take(same), UnchargedReason.LONGER_TRANSFER, end_difference[same]
        )
        return through + self._follow_to_last_ranks(before.take(~same))

    def _last_holding_up(self, pairs: RowPairs, before: Preceding) -> RowPairs:
        """Find the last collective before each row that the row can have waited for.

        All ranks run the same program. If a collective is still running on one rank when
        that rank is ready, it did not hold up the rank. Then it did not hold up the other
        rank at the same position either, even if nothing ran beside it there.

        Args:
            pairs: The pairs.
            before: The collectives that precede each row.

        Returns:
            The pairs at these collectives, NO_ROW where there is none.
        """
        return pairs.at_rows(
            late_row=self._last_over_on_partner(
                pairs.late_row, pairs.in_time_row, before
            ),
            in_time_row=self._last_over_on_partner(
                pairs.in_time_row, pairs.late_row, before
            ),
        )

    def _last_over_on_partner(
        self, rows: Rows, partner_rows: Rows, before: Preceding
    ) -> Rows:
        """Find the last collective before each row that was over on the partner's rank.

        At most MAX_OVERLAPPING_COLLECTIVES collectives are passed over.

        Args:
            rows: Rows of one rank each.
            partner_rows: For each of them the row of the other rank of the pair.
            before: The collectives that precede each row.

        Returns:
            A row for each of `rows`, NO_ROW for none: the last preceding collective that
            was over on the rank of the partner when that one was ready.
        """
        partner_rank = self._matched.rank[partner_rows]
        partner_ready = self._waits.ready[partner_rows]
        last = before.last[rows]
        for _ in range(MAX_OVERLAPPING_COLLECTIVES):
            on_partner = self._positions.row_on_other_rank(partner_rank, last)
            is_known = (last != NO_ROW) & (on_partner != NO_ROW)
            runs_on = is_known & (self._waits.end[on_partner] > partner_ready)
            if not runs_on.any():
                break
            last = np.where(runs_on, before.earlier[last], last)
        return last

    def _computed_through(self, before: Rows, rows: Rows) -> Floats:
        """Measure how much a rank computed while a collective was waiting or running.

        It counts from when the collective was ready until it ended, or until the rank was
        ready for the next one. If the rank was ready for the next one before that end, the
        time in between counts too.

        Args:
            before: The rows of the collectives.
            rows: The rows that follow on the same ranks.

        Returns:
            ns for each row.
        """
        matched = self._matched
        end = self._waits.end[before]
        computed = matched.covered[before] + matched.ahead[before] - matched.ahead[rows]
        ready_early = end - np.minimum(end, self._waits.ready[rows])
        return np.asarray(np.maximum(computed, 0) + ready_early, dtype=np.float64)

    def _follow_through(self, pairs: RowPairs, earlier_ns: Floats) -> RowPairs:
        """Follow a lateness through a collective in which both ranks met.

        The collective did not stop the rank in time, which computed meanwhile. So a part of
        the lateness was there before the collective.

        Args:
            pairs: The rows of that collective.
            earlier_ns: That part, in ns for each pair.

        Returns:
            The pairs at which it goes on. If the late rank was not late there, nobody is
            charged.
        """
        late_ns_before = self._lateness_of(pairs)
        goes_on = (earlier_ns > 0) & (late_ns_before > 0)
        self._charge_nobody(
            pairs.take(~goes_on), UnchargedReason.LONGER_TRANSFER, earlier_ns[~goes_on]
        )

        share = np.minimum(earlier_ns[goes_on] / late_ns_before[goes_on], 1)
        rest = pairs.take(goes_on)
        return rest.weighted(rest.weight * share)

    def _follow_to_last_ranks(self, pairs: RowPairs) -> RowPairs:
        """Follow a lateness from two collectives to the ranks that started them last.

        What a longer transfer explains is charged to nobody, and so is all of a lateness
        whose two collectives cannot be compared.

        Args:
            pairs: The rows of the two collectives, which differ.

        Returns:
            The pairs at the ranks that the two collectives waited for.
        """
        pairs = self._drop_incomparable(pairs)
        end_difference = self._end_difference(pairs)
        late_collective = self._matched.collective_of_row[pairs.late_row]
        in_time_collective = self._matched.collective_of_row[pairs.in_time_row]
        latest = self._waits.last_row
        at_last_ranks = pairs.at_rows(
            late_row=latest[self._delaying_collective[late_collective]],
            in_time_row=latest[self._delaying_collective[in_time_collective]],
        )

        # If a rank of the group is not given, that rank may be the cause of the rest.
        longer_transfer = end_difference - self._lateness_of(at_last_ranks)
        is_whole = self._matched.whole[late_collective]
        self._charge_nobody(
            at_last_ranks.take(~is_whole),
            UnchargedReason.RANK_NOT_GIVEN,
            longer_transfer[~is_whole],
        )
        self._charge_nobody(
            at_last_ranks.take(is_whole),
            UnchargedReason.LONGER_TRANSFER,
            longer_transfer[is_whole],
        )
        return self._split_among_late_ranks(at_last_ranks)

    def _drop_incomparable(self, pairs: RowPairs) -> RowPairs:
        """Drop the pairs whose two collectives cannot be compared; charge nobody for them.

        They cannot if one of them is a send, if they are of different kinds, or if the late
        one ended before all of its ranks had started it.
        """
        waits = self._waits
        end_difference = self._end_difference(pairs)
        late_collective = self._matched.collective_of_row[pairs.late_row]
        in_time_collective = self._matched.collective_of_row[pairs.in_time_row]

        is_send = self._matched.point_to_point
        is_bubble = is_send[late_collective] | is_send[in_time_collective]

        kind = self._positions.kind_of_collective
        other_kind = kind[late_collective] != kind[in_time_collective]
        last_start = waits.start[waits.last_row[late_collective]]
        ends_before_all_start = last_start > waits.end[pairs.late_row]
        is_incomparable = (other_kind | ends_before_all_start) & ~is_bubble

        bubbles = pairs.take(is_bubble)
        self._charge_nobody(
            bubbles, UnchargedReason.PIPELINE_BUBBLE, end_difference[is_bubble]
        )
        incomparable = pairs.take(is_incomparable)
        self._charge_nobody(
            incomparable, UnchargedReason.UNDECIDED, end_difference[is_incomparable]
        )
        return pairs.take(~is_bubble & ~is_incomparable)

    def _split_among_late_ranks(self, pairs: RowPairs) -> RowPairs:
        """Divide pairs among all ranks that are late for the collective of the late rank.

        A pair with several late ranks becomes one pair for each of them, weighted by
        `shares_of_late`. The sum of the gaps times the weights stays as it was.
        """
        late_ns = self._lateness_of(pairs)
        collective = self._matched.collective_of_row[pairs.late_row]
        late_row = self._late_ranks.row[collective]  # [pairs, MAX_LATE_RANKS]
        is_late = self._late_ranks.is_late[collective] & (late_ns > 0)[:, None]

        ready = self._waits.ready
        after = ready[late_row] - ready[pairs.in_time_row][:, None]
        share = shares_of_late(np.where(is_late, after, 0).astype(np.float64))
        is_alone = np.count_nonzero(share, axis=1) <= 1
        share[is_alone] = 0.0

        # Make one pair for each rank that has a share.
        pair, column = np.nonzero(share)
        several = pairs.take(pair)
        weight = several.weight * share[pair, column] * late_ns[pair]
        weight /= after[pair, column]
        at_late_ranks = several.at_rows(
            late_row=late_row[pair, column], in_time_row=several.in_time_row
        )
        return pairs.take(is_alone) + at_late_ranks.weighted(weight)

    def _lateness_of(self, pairs: RowPairs) -> Floats:
        """Return by how many ns the late rank of each pair was ready later."""
        ready = self._waits.ready
        return (ready[pairs.late_row] - ready[pairs.in_time_row]).astype(np.float64)

    def _end_difference(self, pairs: RowPairs) -> Floats:
        """Return by how many ns the collective ended later on the late rank of each pair."""
        end = self._waits.end
        return (end[pairs.late_row] - end[pairs.in_time_row]).astype(np.float64)

    def _is_same_collective(self, pairs: RowPairs) -> Flags:
        """Mark the pairs whose two rows are of one collective."""
        collective_of_row = self._matched.collective_of_row
        return np.asarray(
            collective_of_row[pairs.late_row] == collective_of_row[pairs.in_time_row]
        )

    def _charge(self, pairs: RowPairs, ns: Floats) -> None:
        """Charge the late rank of each pair with a part of the lateness.

        Where clocks do not tell that the rank was late, nobody is charged.

        Args:
            pairs: The pairs.
            ns: The part of each pair.
        """
        nobody = len(self._matched.ranks) + UnchargedReason.UNDECIDED
        is_certain = self._is_certain[pairs.late_row]
        parts = _LatenessParts(
            chain=pairs.chain,
            culprit=np.where(is_certain, self._matched.rank[pairs.late_row], nobody),
            step=np.where(is_certain, self._step[pairs.late_row], NO_STEP),
            ns=ns * pairs.weight,
        )
        self._parts.append(parts)
        np.maximum.at(self._own_delay_ns, pairs.late_row, ns)

    def _charge_nobody(self, pairs: RowPairs, why: UnchargedReason, ns: Floats) -> None:
        """Note a part of the lateness of each pair that no rank is charged with.

        Args:
            pairs: The pairs.
            why: The reason.
            ns: The part of each pair.
        """
        parts = _LatenessParts(
            chain=pairs.chain,
            culprit=np.full(len(pairs), len(self._matched.ranks) + why),
            step=np.full(len(pairs), NO_STEP),
            ns=ns * pairs.weight,
        )
        self._parts.append(parts)


def _culprits_of_chains(parts: _LatenessParts) -> _CulpritsOfChains:
    """Add up the parts of each owner of a chain over all steps.

    Args:
        parts: The parts. Those of one chain and owner are neighbors.
    """
    is_first = begins_runs(parts.chain, parts.culprit)
    culprit_of_part = np.cumsum(is_first) - 1

    chain = parts.chain[is_first]
    ns: Floats = np.zeros(len(chain))
    np.add.at(ns, culprit_of_part, parts.ns)
    return _CulpritsOfChains(chain=chain, ns=ns, index_of_part=culprit_of_part)


def _stalling_collectives(matched: Matched, waits: Waits) -> Preceding:
    """Find the collectives before each row that stopped the compute of their rank.

    They stopped it for at least MIN_STALL_NS, or for half of the time that they lasted.
    """
    lasts_ns = waits.end - waits.ready
    stops_compute = matched.stalled >= np.minimum(MIN_STALL_NS, lasts_ns / 2)
    return preceding(matched, waits, np.flatnonzero(stops_compute), waits.ready)


def _certainly_late_rows(late_ranks: LateRanks, *, rows: int) -> Flags:
    """Mark the rows that are late by more than clocks are uncertain.

    Args:
        late_ranks: The ranks that are late for each collective.
        rows: How many rows there are in all.
    """
    is_certain = np.zeros(rows, dtype=np.bool_)
    is_certain[late_ranks.row[late_ranks.is_late & late_ranks.is_certain]] = True
    return is_certain


def shares_of_late(after: Floats) -> Floats:
    """Divide waits among the ranks that are late.

    Each moment of a wait is shared equally by the ranks that have not arrived yet.

    Args:
        after: How many ns after the begin of the wait each rank arrives, of shape
            [waits, ranks]; 0 or less for a rank that does not count.

    Returns:
        The shares, in the same shape. Shares below NOISE_SHARE of the largest count as
        0. Those of a wait add up to 1, or to 0 if nobody arrives after its begin.
    """
    order = np.argsort(-after, axis=1, kind="stable")
    latest_first = np.maximum(np.take_along_axis(after, order, axis=1), 0.0)
    ns_of_rank = _ns_while_missing(latest_first)

    largest = ns_of_rank.max(axis=1, initial=0.0, keepdims=True)
    counted_ns = np.where(ns_of_rank > NOISE_SHARE * largest, ns_of_rank, 0.0)
    total = counted_ns.sum(axis=1, keepdims=True)
    sorted_shares = counted_ns / np.where(total > 0, total, 1.0)

    # Put the shares back into the order of `after`.
    shares = np.empty_like(sorted_shares)
    np.put_along_axis(shares, order, sorted_shares, axis=1)
    return shares


def _ns_while_missing(latest_first: Floats) -> Floats:
    """Compute for how much of a wait each rank accounts.

    Each moment is shared equally by the ranks that are missing.

    Args:
        latest_first: The arrivals of the ranks in ns after the begin of the wait, those
            that arrive last first; of shape [waits, ranks].

    Returns:
        ns in the same shape.
    """
    waits, ranks = latest_first.shape

    # Between the arrivals of the n-th last rank and of the one before it, n ranks are
    # missing, and each of them accounts for 1/n of that interval.
    missing = 1 + np.arange(ranks)
    begin_of_wait = np.zeros((waits, 1))
    arrival_before = np.append(latest_first[:, 1:], begin_of_wait, axis=1)
    share_of_interval = (latest_first - arrival_before) / missing

    # A rank has a share of every interval up to its arrival.
    earliest_first = share_of_interval[:, ::-1]
    return np.asarray(np.cumsum(earliest_first, axis=1)[:, ::-1])


def _ends_of_unmatched(
    matched: Matched, waits: Waits, clocks: Clocks, before: Rows
) -> Int64s:
    """Find the collectives that are not matched, from which a rank came to a row.

    Args:
        matched: The collectives of the job.
        waits: Their waits.
        clocks: The clocks of all ranks.
        before: For each row the matched row that ended last before it on its rank.

    Returns:
        For each row the end of an unmatched collective of its rank, if that is later
        than the end of `before`; else NOT_UNMATCHED. In ns of the common clock.
    """
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
    is_later = (last != NO_ROW) & (end[last] > matched_end)
    return np.where(is_later, end[last], no_ends)


def _delaying_collectives(matched: Matched, waits: Waits, before: Rows) -> Rows:
    """Find the collective whose last rank really delayed each collective.

    Usually it is the collective itself. If its last rank had it queued behind another
    collective, it is the one that delayed that other one.

    Args:
        matched: The collectives of the job.
        waits: Their waits.
        before: For each row the row that ended last before it on its rank.

    Returns:
        The index of a collective for each collective.
    """
    is_queued = waits.ready[waits.last_row] < waits.start[waits.last_row]
    row_ahead = before[waits.last_row]
    is_behind_another = is_queued & (row_ahead != NO_ROW)

    itself = np.arange(len(matched))
    followed = np.where(is_behind_another, matched.collective_of_row[row_ahead], itself)
    while (followed[followed] != followed).any():
        followed = followed[followed]
    return followed
