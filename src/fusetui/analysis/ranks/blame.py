"""Which rank a wait goes back to: the one that is late by its own work.

The rank that starts a collective last may itself have waited for another one, in
another group. So two chains are followed back from that collective: that of the last
rank, and that of a rank which was there in time, the median of the others. Each goes
from a start to the collective before on the same rank, and from there to the rank that
started that one last. Where a stretch of its own took a rank of the first chain longer
than its counterpart of the second, the difference is its own; a transfer that took
longer is nobody's. The chains end where they meet, where something was not recorded, or
where the late one is late no longer. Differences of opposite sign cancel per rank; what
remains divides the wait.

Where several ranks are late for one collective, each of them has a chain of its own,
and each moment of a wait is shared equally by those that have not arrived yet (see
`shares_of_late`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from fusetui.analysis.ranks.clocks import Clocks
from fusetui.analysis.ranks.matching import Matched, StepsOfRows
from fusetui.analysis.ranks.waits import Waits
from fusetui.trace.model.arrays import Flags, Floats, Int64s, Rows, ordinals
from fusetui.trace.model.intervals import ranges

LATE_NO_LONGER = 0.01  # of the lateness at the collective where the wait is
MOST_BACK = 4096  # collectives that a chain is followed back through
EARLY = 2
"""A rank is charged at most so many times its lateness after the median of the others:
what is beyond that is another rank's being early."""
# of compute, or half of the collective: then compute waited for its end
MIN_STALL_NS = 10_000
NOISE = 0.1
"""Of the largest: smaller parts of a lateness, shares of a wait and delays of steps are
noise."""
# of one collective that a wait is divided between: those that arrive last
MAX_LATE_RANKS = 4
NOBODY = 6
TRANSFER, UNTOLD, OUTSIDE, BUBBLE, EARLIER, ITSELF = range(NOBODY)
"""What no rank is charged with: a longer transfer; what clocks do not tell, or chains
that cannot be compared; a rank that is not given; a wait in a pipeline; waits of a rank
that arrives early, beyond EARLY; a delay that goes back to the very rank that waits."""
MAX_BESIDE = 64  # collectives that run beside one another on a rank
NO_STEP = -1


class Charges(msgspec.Struct, frozen=True, eq=False):
    """Waits of ranks, each with the ranks that it goes back to; arrays of shape
    [charges]. All that is charged and all that is lost add up to the waits outside
    sends and receives."""

    row: Rows  # of Matched: the rank that waits, and where
    owner: Rows  # index of the rank that is charged
    step: Rows  # in which the owner was late by its own work, NO_STEP if in none
    ns: Floats
    own: Rows  # rows before which a rank was late by its own work
    own_ns: Int64s  # by so much, beside a rank that was in time
    lost: Floats  # [NOBODY]: ns of waits that no rank is charged with


class _Pairs(msgspec.Struct, frozen=True, eq=False):
    """Where two chains are: rows of the late one and of the one in time; arrays of
    shape [n]."""

    chain: Rows  # number of the chain: a collective, and a rank that is late for it
    late: Rows
    other: Rows
    weight: Floats  # how much of the lateness here is carried on to that collective

    def some(self, which: Flags) -> _Pairs:
        return _Pairs(*(column[which] for column in msgspec.structs.astuple(self)))

    def at(self, places: Rows) -> _Pairs:
        return _Pairs(*(column[places] for column in msgspec.structs.astuple(self)))

    def __add__(self, more: _Pairs) -> _Pairs:
        both = zip(
            msgspec.structs.astuple(self), msgspec.structs.astuple(more), strict=True
        )
        return _Pairs(*map(np.concatenate, both))


class _LateRanks(msgspec.Struct, frozen=True, eq=False):
    """The ranks that are late for each collective; arrays of shape [collectives,
    MAX_LATE_RANKS], of which the first column is the rank that starts last."""

    row: Rows  # of Matched
    is_late: Flags
    is_told: Flags  # by more than clocks leave open


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
    none = np.empty(0, dtype=np.intp)
    counted = ~matched.point_to_point & (not clocks.refused)
    number_of_stages = [
        -1 - n if stage is None else stage for n, stage in enumerate(stage_of)
    ]
    stages = np.array(number_of_stages or [0] * len(matched.ranks))
    late = _late_ranks(matched, waits, clocks, stages)
    # What was queued behind another collective started late because that one ended
    # late.
    is_queued = waits.ready[waits.latest] < waits.start[waits.latest]
    has_chains = counted & late.is_late[:, 0] & ~is_queued
    collective, place = np.nonzero(late.is_late & has_chains[:, None])
    if not len(collective):
        return Charges(none, none, none, np.empty(0), none, none, np.zeros(NOBODY))
    late_row, usual = late.row[collective, place], waits.usual[collective]
    lateness: Floats = np.asarray(
        waits.start[late_row] - waits.start[usual], dtype=np.float64
    )
    chain_of = np.full(late.row.shape, -1)
    chain_of[collective, place] = np.arange(len(collective))
    chains = _Chains(matched, waits, clocks, late, lateness, steps.of_row, stages)
    chains.follow(
        _Pairs(np.arange(len(collective)), late_row, usual, np.ones(len(collective)))
    )

    limit = np.zeros(len(matched))
    limit[has_chains] = EARLY * lateness[chain_of[has_chains, 0]]
    last = matched.rank[waits.latest[matched.of_row]]
    unsure = waits.wait <= clocks.resolution_of(matched.rank, last)
    alone = np.where(counted[matched.of_row], waits.alone, 0).astype(np.float64)
    amount: Floats = np.where(unsure, 0.0, np.minimum(alone, limit[matched.of_row]))
    lost = np.zeros(NOBODY)
    after_queued = is_queued[matched.of_row]
    lost[UNTOLD] = alone[unsure].sum()
    lost[TRANSFER] = alone[~unsure & after_queued].sum()
    lost[EARLIER] = (alone - amount)[~unsure & ~after_queued].sum()

    rows = np.flatnonzero(amount > 0)
    share = _shares_of_waits(matched, waits, late, rows)
    which, place = np.nonzero(share)
    rows, amounts = rows[which], amount[rows[which]] * share[which, place]
    found = chains.shares()
    chain = chain_of[matched.of_row[rows], place]
    first, until = (
        np.searchsorted(found.chain, chain, side) for side in ("left", "right")
    )
    counts = until - first
    lost[UNTOLD] += amounts[counts == 0].sum()
    at = ranges(first, counts)
    row = np.repeat(rows, counts)
    ns: Floats = np.asarray(
        np.repeat(amounts, counts) * found.share[at], dtype=np.float64
    )
    owner, step = found.owner[at], found.step[at]
    ranks = len(matched.ranks)
    owner = np.where(owner == matched.rank[row], ranks + ITSELF, owner)
    kept = owner < ranks
    lost += np.bincount(owner[~kept] - ranks, weights=ns[~kept], minlength=NOBODY)
    own, own_ns = chains.own()
    return Charges(
        row=row[kept],
        owner=owner[kept],
        step=step[kept],
        ns=ns[kept],
        own=own,
        own_ns=own_ns,
        lost=lost,
    )


def _late_ranks(
    matched: Matched, waits: Waits, clocks: Clocks, stages: Rows
) -> _LateRanks:
    """Late is a rank that starts after the usual one, by at least NOISE of what the
    last one does. Beside the last one itself only ranks of its stage count, and none
    that was queued."""
    by_start = np.lexsort((waits.start, matched.of_row))
    places = np.arange(MAX_LATE_RANKS)
    exists = places < matched.counts[:, None] - 1
    row = by_start[
        np.where(exists, matched.first[1:, None] - 1 - places, matched.first[:-1, None])
    ]
    usual = waits.usual[:, None]
    lateness = waits.start[row] - waits.start[usual]
    is_queued = waits.ready[row] < waits.start[row]
    is_late = exists & (lateness > 0) & (lateness >= NOISE * lateness[:, :1])
    rank = matched.rank
    stage = stages[rank[row]]
    is_late &= (~is_queued & (stage == stage[:, :1])) | (places == 0)
    unknown = clocks.resolution_of(rank[row], np.broadcast_to(rank[usual], row.shape))
    of_collective = np.where(is_late, unknown, 0.0).max(
        axis=1, initial=0.0, keepdims=True
    )
    is_told = (lateness > of_collective) & ~matched.point_to_point[:, None]
    return _LateRanks(row, is_late, np.asarray(is_told & (not clocks.refused)))


def _shares_of_waits(
    matched: Matched, waits: Waits, late: _LateRanks, rows: Rows
) -> Floats:
    """Of the wait at each row the shares of the ranks that are late for its collective;
    of shape [rows, MAX_LATE_RANKS]."""
    collective = matched.of_row[rows]
    after = waits.start[late.row[collective]] - waits.start[rows, None]
    return shares_of_late(
        np.where(late.is_late[collective], after, 0).astype(np.float64)
    )


def shares_of_late(after: Floats) -> Floats:
    """The shares of late ranks in a wait: each moment of it is shared equally by those
    that have not arrived yet. `after` [n, ranks]: how long after the begin of a wait
    each of them arrives, 0 or less for a rank that does not count. Shares below NOISE
    of the largest count as 0; those of a wait add up to 1, or to 0 where nobody arrives
    after its begin."""
    order = np.argsort(-after, axis=1, kind="stable")
    latest_first = np.maximum(np.take_along_axis(after, order, axis=1), 0.0)
    # Before the arrival of the n-th last rank and after that of the one before it, n
    # are missing.
    missing = 1 + np.arange(after.shape[1])
    earlier = np.append(latest_first[:, 1:], np.zeros((len(after), 1)), axis=1)
    each = (latest_first - earlier) / missing
    own = np.cumsum(each[:, ::-1], axis=1)[:, ::-1]
    own = np.where(own > NOISE * own.max(axis=1, initial=0.0, keepdims=True), own, 0.0)
    total = own.sum(axis=1, keepdims=True)
    shares = np.empty_like(own)
    np.put_along_axis(shares, order, own / np.where(total > 0, total, 1.0), axis=1)
    return shares


class _Shares(msgspec.Struct, frozen=True, eq=False):
    """What explains the lateness of each chain, in the order of the chains; arrays of
    shape [n]."""

    chain: Rows
    # index of a rank, or the number of ranks and what no rank is charged with
    owner: Rows
    step: Rows  # in which the owner was late, NO_STEP if in none
    share: Floats  # those of a chain add up to 1


class _Chains:
    """Follows the two chains of every collective at once."""

    def __init__(
        self,
        matched: Matched,
        waits: Waits,
        clocks: Clocks,
        late: _LateRanks,
        lateness: Floats,
        step_of_row: Rows,
        stages: Rows,
    ) -> None:
        """`lateness`: of each chain, in ns."""
        self._matched, self._waits, self._lateness = matched, waits, lateness
        self._late, self._step = late, step_of_row
        self._stage = stages  # only ranks of the same one do the same work
        # chain, owner, step, ns
        self._parts: list[tuple[Rows, Rows, Rows, Floats]] = []
        # A number per collective, equal for those of one name, size and number of
        # ranks.
        keys = list(
            zip(
                matched.names,
                matched.bytes.tolist(),
                matched.size.tolist(),
                strict=True,
            )
        )
        numbers = {key: n for n, key in enumerate(dict.fromkeys(keys))}
        self._kind = np.array([numbers[key] for key in keys], dtype=np.intp)
        begin = int(min(waits.start.min(), waits.ready.min()))
        ends, starts, ready = (
            waits.end - begin,
            waits.start - begin,
            waits.ready - begin,
        )
        everything = np.arange(len(matched.rank))
        self._before = _latest(matched.rank, ends, everything, matched.rank, starts)
        lasts = waits.end - waits.ready
        binds = matched.stalled >= np.minimum(MIN_STALL_NS, lasts / 2)
        self._released_by = _latest(
            matched.rank, ends, np.flatnonzero(binds), matched.rank, ready
        )
        self._ends_before = _previous_end(matched, waits, everything)
        self._releases_before = _previous_end(matched, waits, np.flatnonzero(binds))
        self._programs = _Programs(matched, self._kind[matched.of_row], waits.start)
        self._root = _roots(matched, waits, self._before)
        self._loose = _loose(matched, waits, clocks, self._before)
        self._told = np.zeros(len(matched.rank), dtype=np.bool_)
        self._told[late.row[late.is_late & late.is_told]] = True
        self._own = np.zeros(len(matched.rank))

    def own(self) -> tuple[Rows, Int64s]:
        """Rows before which ranks were late by their own work, and by how much."""
        rows = np.flatnonzero((self._own > 0) & self._told)
        return rows, np.rint(self._own[rows]).astype(np.int64)

    def shares(self) -> _Shares:
        """What explains each lateness. Parts of opposite sign cancel per rank; what is
        left of a rank goes to the steps in which it was late, and not early."""
        chain, owner, step, ns = (
            np.concatenate(column) for column in zip(*self._parts, strict=True)
        )
        owners = len(self._matched.ranks) + NOBODY
        steps = int(step.max(initial=NO_STEP)) - NO_STEP + 1
        key = (chain * owners + owner) * steps + step - NO_STEP
        distinct, which = np.unique(key, return_inverse=True)
        in_step = np.bincount(which, weights=ns, minlength=len(distinct))
        of_owner, step = np.divmod(distinct, steps)
        known, which = np.unique(of_owner, return_inverse=True)
        net = np.bincount(which, weights=in_step, minlength=len(known))
        late_in_step = np.maximum(in_step, 0.0)
        late_in_all = np.bincount(which, weights=late_in_step, minlength=len(known))

        chain = known // owners
        largest = np.zeros(len(self._lateness))
        np.maximum.at(largest, chain, net)
        net = np.where(net > NOISE * largest[chain], net, 0.0)
        total = np.bincount(chain, weights=net, minlength=len(largest))
        share = net / np.where(total[chain] > 0, total[chain], 1.0)
        each = (
            share[which]
            * late_in_step
            / np.where(late_in_all > 0, late_in_all, 1.0)[which]
        )
        kept = each > 0
        chain, owner = np.divmod(of_owner[kept], owners)
        return _Shares(
            chain=chain, owner=owner, step=step[kept] + NO_STEP, share=each[kept]
        )

    def follow(self, pairs: _Pairs) -> None:
        for _ in range(MOST_BACK):
            pairs = self._back(pairs)
            if not len(pairs.chain):
                return
        self._nobody(pairs, UNTOLD, self._gap(pairs))

    def _back(self, pairs: _Pairs) -> _Pairs:
        """What is explained here, and where the rest of it goes on."""
        gap, rank = self._gap(pairs), self._matched.rank
        over = gap <= LATE_NO_LONGER * self._lateness[pairs.chain]
        unlike = ~over & (
            self._stage[rank[pairs.late]] != self._stage[rank[pairs.other]]
        )
        self._nobody(pairs.some(over), TRANSFER, gap[over])
        self._nobody(pairs.some(unlike), BUBBLE, gap[unlike])
        pairs, gap = pairs.some(~over & ~unlike), gap[~over & ~unlike]
        pairs, gap = self._after_loose(pairs, gap)
        pairs, gap, released = self._since_release(pairs, gap)
        late, other = self._not_refuted(pairs, self._before, self._ends_before)
        begins = (late < 0) | (other < 0)
        self._charge(pairs.some(begins), gap[begins])
        pairs, gap, late, other = (
            pairs.some(~begins),
            gap[~begins],
            late[~begins],
            other[~begins],
        )
        one, two = self._matched.of_row[late], self._matched.of_row[other]
        left = (self._waits.end[late] - self._waits.end[other]).astype(np.float64)
        passed = self._computed_through(other, pairs.other)
        passed -= self._computed_through(late, pairs.late)
        same = one == two
        carried = np.where(same, np.clip(passed, 0, gap), 0.0)
        self._charge(pairs, gap - left - carried)
        before = _Pairs(pairs.chain, late, other, pairs.weight)
        through = self._through(before.some(same), carried[same])
        self._nobody(pairs.some(same), TRANSFER, left[same])
        across = self._across(before.some(~same), one[~same], two[~same], left[~same])
        return self._merged(released + through + across)

    def _merged(self, pairs: _Pairs) -> _Pairs:
        """The pairs of a chain that are at the same place as one."""
        rows = len(self._matched.rank)
        key = (pairs.chain * rows + pairs.late) * rows + pairs.other
        _, first, which = np.unique(key, return_index=True, return_inverse=True)
        if len(first) == len(key):
            return pairs
        weight = np.bincount(which, weights=pairs.weight, minlength=len(first))
        return msgspec.structs.replace(pairs.at(first), weight=weight)

    def _since_release(
        self, pairs: _Pairs, gap: Floats
    ) -> tuple[_Pairs, Floats, _Pairs]:
        """Where the compute of both ranks last waited for the same collective, or for
        ones at the same place of their programs, what took longer since its end is the
        late rank's own, whatever ran beside it. The pairs where that is not so, their
        gaps, and where the rest of the others goes on."""
        late, other = self._not_refuted(pairs, self._released_by, self._releases_before)
        known = (late >= 0) & (other >= 0)
        one, two = self._matched.of_row[late], self._matched.of_row[other]
        place = self._programs.place
        alike = (self._kind[one] == self._kind[two]) & (place[late] == place[other])
        alike &= known & ~self._matched.point_to_point[one]
        some, late, other = pairs.some(alike), late[alike], other[alike]
        one, two = one[alike], two[alike]
        left = (self._waits.end[late] - self._waits.end[other]).astype(np.float64)
        self._charge(some, gap[alike] - left)
        same = one == two
        self._nobody(some.some(same), TRANSFER, left[same])
        before = _Pairs(some.chain, late, other, some.weight).some(~same)
        rest = self._across(before, one[~same], two[~same], left[~same])
        return pairs.some(~alike), gap[~alike], rest

    def _not_refuted(
        self, pairs: _Pairs, last_before: Rows, earlier: Rows
    ) -> tuple[Rows, Rows]:
        """For the late and the other row of each pair the last collective before it
        that it can have waited for, -1 for none; `last_before` of each row, and of that
        one the `earlier` one.

        All ranks run the same program. What is not over on one rank when that one is
        ready has not held up the other rank at the same place either, even if nothing
        ran beside it there."""
        late = self._skipped(pairs.late, pairs.other, last_before, earlier)
        other = self._skipped(pairs.other, pairs.late, last_before, earlier)
        return late, other

    def _skipped(self, own: Rows, twin: Rows, last_before: Rows, earlier: Rows) -> Rows:
        """The collectives before these rows `own` but those that were not over on the
        ranks of their twins when these were ready."""
        rank, ready = self._matched.rank[twin], self._waits.ready[twin]
        before = last_before[own]
        for _ in range(MAX_BESIDE):
            there = self._programs.row_on(rank, before)
            goes_on = (before >= 0) & (there >= 0) & (self._waits.end[there] > ready)
            if not goes_on.any():
                break
            before = np.where(goes_on, earlier[before], before)
        return before

    def _computed_through(self, before: Rows, row: Rows) -> Floats:
        """ns that a rank computed from when the collective before was ready to its end,
        or to when this one was ready, if that was earlier; less by as much as it was
        ready before that end."""
        matched, waits = self._matched, self._waits
        computed = matched.covered[before] + matched.ahead[before] - matched.ahead[row]
        early = waits.end[before] - np.minimum(waits.end[before], waits.ready[row])
        return np.asarray(np.maximum(computed, 0) + early, dtype=np.float64)

    def _after_loose(self, pairs: _Pairs, gap: Floats) -> tuple[_Pairs, Floats]:
        """Where a rank comes from a collective that is not matched, what it did since
        then alone is its own; how long it waited there, and for whom, is not known."""
        late, other = self._loose[pairs.late], self._loose[pairs.other]
        found = (late > 0) | (other > 0)
        some, both = pairs.some(found), (late > 0) & (other > 0)
        own = np.where(both, gap - (late - other), 0.0)[found]
        self._charge(some, own)
        self._nobody(some, OUTSIDE, gap[found] - own)
        return pairs.some(~found), gap[~found]

    def _through(self, pairs: _Pairs, carried: Floats) -> _Pairs:
        """A collective in which both met, but that did not stop the one in time, which
        computed meanwhile: so much of the lateness was there before it."""
        was = self._gap(pairs)
        goes_on = (carried > 0) & (was > 0)
        self._nobody(pairs.some(~goes_on), TRANSFER, carried[~goes_on])
        share = np.minimum(carried[goes_on] / was[goes_on], 1)
        rest = pairs.some(goes_on)
        return msgspec.structs.replace(rest, weight=rest.weight * share)

    def _across(self, pairs: _Pairs, one: Rows, two: Rows, left: Floats) -> _Pairs:
        """To the ranks that these two collectives waited for."""
        waits, sends = self._waits, self._matched.point_to_point
        bubble = sends[one] | sends[two]
        strange = (self._kind[one] != self._kind[two]) & ~bubble
        strange |= (waits.start[waits.latest[one]] > waits.end[pairs.late]) & ~bubble
        self._nobody(pairs.some(bubble), BUBBLE, left[bubble])
        self._nobody(pairs.some(strange), UNTOLD, left[strange])
        goes_on = ~bubble & ~strange
        missing = ~self._matched.whole[one[goes_on]]
        late = waits.latest[self._root[one[goes_on]]]
        other = waits.latest[self._root[two[goes_on]]]
        found = _Pairs(pairs.chain[goes_on], late, other, pairs.weight[goes_on])
        moved = left[goes_on] - self._gap(found)
        self._nobody(found.some(missing), OUTSIDE, moved[missing])
        self._nobody(found.some(~missing), TRANSFER, moved[~missing])
        return self._divided(found)

    def _divided(self, pairs: _Pairs) -> _Pairs:
        """Instead of the rank that starts a collective last all that are late for it:
        see `shares_of_late`. The sum of their gaps by their weights stays as it was."""
        gap = self._gap(pairs)
        collective = self._matched.of_row[pairs.late]
        late_row = self._late.row[collective]
        is_late = self._late.is_late[collective] & (gap > 0)[:, None]
        after = self._waits.ready[late_row] - self._waits.ready[pairs.other, None]
        share = shares_of_late(np.where(is_late, after, 0).astype(np.float64))
        is_alone = np.count_nonzero(share, axis=1) <= 1
        which, place = np.nonzero(np.where(is_alone[:, None], 0.0, share))
        several = pairs.at(which)
        weight = several.weight * share[which, place] * gap[which] / after[which, place]
        several = msgspec.structs.replace(
            several, late=late_row[which, place], weight=weight
        )
        return pairs.some(is_alone) + several

    def _gap(self, pairs: _Pairs) -> Floats:
        ready = self._waits.ready
        return (ready[pairs.late] - ready[pairs.other]).astype(np.float64)

    def _charge(self, pairs: _Pairs, ns: Floats) -> None:
        """To the late rank, or to nobody where clocks do not tell that it was late."""
        ranks, rank = len(self._matched.ranks), self._matched.rank[pairs.late]
        told = self._told[pairs.late]
        owner = np.where(told, rank, ranks + UNTOLD)
        step = np.where(told, self._step[pairs.late], NO_STEP)
        self._parts.append((pairs.chain, owner, step, ns * pairs.weight))
        np.maximum.at(self._own, pairs.late, ns)

    def _nobody(self, pairs: _Pairs, why: int, ns: Floats) -> None:
        owner = np.full(len(pairs.chain), len(self._matched.ranks) + why)
        step = np.full(len(pairs.chain), NO_STEP)
        self._parts.append((pairs.chain, owner, step, ns * pairs.weight))


def _loose(matched: Matched, waits: Waits, clocks: Clocks, before: Rows) -> Int64s:
    """For each row, when a collective that is not matched ended on its rank, if that is
    after the end of the row before; else 0."""
    none = np.zeros(len(matched.rank), dtype=np.int64)
    if not len(matched.loose_rank):
        return none
    end = clocks.common(matched.loose_rank, matched.loose_end)
    begin = min(int(waits.start.min()), int(end.min()))
    every = np.arange(len(end))
    found = _latest(
        matched.loose_rank, end - begin, every, matched.rank, waits.start - begin
    )
    since = np.where(before >= 0, waits.end[before], begin)
    return np.where((found >= 0) & (end[found] > since), end[found], none)


def _latest(own: Rows, ends: Int64s, among: Rows, rank: Rows, starts: Int64s) -> Rows:
    """For each start the last of the ends `among` those given that is on the same rank
    and not after it; -1 for none."""
    if not len(among):
        return np.full(len(starts), -1, dtype=np.intp)
    span = int(max(ends.max(), starts.max())) + 1
    keys = own[among] * span + ends[among]
    order = np.argsort(keys, kind="stable")
    at = np.searchsorted(keys[order], rank * span + starts, "right") - 1
    found = among[order[np.maximum(at, 0)]]
    return np.where((at >= 0) & (own[found] == rank), found, -1)


def _previous_end(matched: Matched, waits: Waits, among: Rows) -> Rows:
    """For each of the rows `among` those given the one of the same rank that ended
    before it; -1 for none, and for all other rows."""
    order = among[np.lexsort((waits.end[among], matched.rank[among]))]
    is_same_rank = matched.rank[order[1:]] == matched.rank[order[:-1]]
    previous = np.full(len(matched.rank), -1, dtype=np.intp)
    previous[order[1:][is_same_rank]] = order[:-1][is_same_rank]
    return previous


class _Programs:
    """What ranks run, which is the same on all: the n-th collective of a kind."""

    def __init__(self, matched: Matched, kind: Rows, start: Int64s) -> None:
        """`kind`: of each row."""
        self._kind = kind
        self._kinds = int(kind.max(initial=0)) + 1
        key = matched.rank * self._kinds + kind
        self._order = np.lexsort((start, key))
        numbers = np.arange(len(matched.ranks) * self._kinds + 1)
        self._first = np.searchsorted(key[self._order], numbers)
        self.place = np.empty(len(key), dtype=np.intp)
        """Of each row: how many collectives of its kind its rank started before."""
        self.place[self._order] = ordinals(key[self._order])

    def row_on(self, rank: Rows, row: Rows) -> Rows:
        """The rows of these ranks at the same place of the program as these; -1 for
        none."""
        key = rank * self._kinds + self._kind[row]
        at = self._first[key] + self.place[row]
        exists = at < self._first[key + 1]
        return np.where(exists, self._order[np.where(exists, at, 0)], -1)


def _roots(matched: Matched, waits: Waits, before: Rows) -> Rows:
    """For each collective itself; or where its last rank had it queued behind another
    one, the root of that one, whose end it followed."""
    queued = waits.ready[waits.latest] < waits.start[waits.latest]
    ahead = before[waits.latest]
    root = np.arange(len(matched))
    root = np.where(queued & (ahead >= 0), matched.of_row[ahead], root)
    while (root[root] != root).any():
        root = root[root]
    return root


LEAST = 0.02  # of a step: nobody who holds up others for less is called a straggler
QUARTER = 25  # percent of the steps in which a straggler may be in time
ALMOST_ALL = 0.8
"""Of the waiting in steps in which any rank is late: where so much of it lies in the
steps in which one rank is late, that rank straggles, alone or with others that are late
in the same steps."""
AS_LONG = 0.1
"""The others are the ranks that wait for it at least this part as long as the one that
waits longest: in a job of many groups not everyone is held up."""


class Caused(msgspec.Struct, frozen=True, eq=False):
    """How long others wait for each rank: the mean over those that do, in ns."""

    total: Int64s  # [ranks]
    waiters: Int64s  # [ranks]
    # [ranks, steps]: by the step in which the rank was late by its own work
    by_step: Floats
    # [ranks, steps]: by at least LEAST of a step, and NOISE of the rank's largest
    is_late: Flags
    straggles: Flags  # [ranks]: who holds up the others
    every_step: Floats  # [steps]: for whomever, the mean over the other ranks


def caused_by(matched: Matched, charges: Charges, steps: StepsOfRows) -> Caused:
    ranks, count = len(matched.ranks), max(len(steps.names), 1)
    key = charges.owner * ranks + matched.rank[charges.row]
    pairs, which = np.unique(key, return_inverse=True)
    owner = pairs // max(ranks, 1)
    waited = np.bincount(which, weights=charges.ns, minlength=len(pairs))
    longest = np.zeros(ranks)
    np.maximum.at(longest, owner, waited)
    counted = waited >= AS_LONG * longest[owner]
    waiters = np.maximum(np.bincount(owner[counted], minlength=ranks), 1)
    kept = counted[which]
    step = charges.step
    kept_in = kept & (step >= 0)
    at = charges.owner[kept_in] * count + step[kept_in]
    sums = np.bincount(at, weights=charges.ns[kept_in], minlength=ranks * count)
    by_step: Floats = (
        np.asarray(sums, dtype=np.float64).reshape(ranks, count) / waiters[:, None]
    )
    total = (
        np.bincount(charges.owner[kept], weights=charges.ns[kept], minlength=ranks)
        / waiters
    )
    mean, least = by_step.sum(axis=1) / count, LEAST * steps.length_ns
    largest = by_step.max(axis=1, initial=0.0, keepdims=True)
    is_noise = by_step < NOISE * largest
    is_late: Flags = np.asarray((by_step >= least) & (by_step > 0) & ~is_noise)
    for_late_ranks = np.where(is_late, by_step, 0.0).sum(axis=0)  # [steps]
    in_own_late_steps = np.where(is_late, for_late_ranks, 0.0).sum(axis=1)
    # By enough in at least three of four steps, or almost all of the waiting in late
    # steps.
    often: Flags = (np.percentile(by_step, QUARTER, axis=1) if ranks else mean) >= least
    covers = (in_own_late_steps > 0) & (
        in_own_late_steps >= ALMOST_ALL * for_late_ranks.sum()
    )
    straggles: Flags = (mean >= least) & (mean > 0) & (often | covers)
    inside = step >= 0
    every = np.bincount(step[inside], weights=charges.ns[inside], minlength=count)
    every_step: Floats = np.asarray(every / max(ranks - 1, 1), dtype=np.float64)
    return Caused(
        total=np.rint(total).astype(np.int64),
        waiters=waiters,
        by_step=by_step,
        is_late=is_late,
        straggles=straggles,
        every_step=every_step,
    )
