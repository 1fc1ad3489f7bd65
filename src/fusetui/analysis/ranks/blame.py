"""Which rank a wait goes back to: the one that is late by its own work.

The rank that starts a collective last may itself have waited for another one, in another group.
So two chains are followed back from that collective: that of the last rank, and that of a rank
which was there in time, the median of the others. Each goes from a start to the collective before
on the same rank, and from there to the rank that started that one last. Where a stretch of its own
took a rank of the first chain longer than its counterpart of the second, the difference is its
own; a transfer that took longer is nobody's. The chains end where they meet, where something was
not recorded, or where the late one is late no longer. Differences of opposite sign cancel per
rank; what remains divides the wait.
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
"""A rank is charged at most so many times its lateness after the median of the others: what is
beyond that is another rank's being early."""
MIN_STALL_NS = 10_000  # of compute, or half of the collective: then compute waited for its end
NOISE = 0.1  # of the largest part of a lateness: smaller parts are no reason
TRANSFER, UNTOLD, OUTSIDE, BUBBLE = range(4)
"""What no rank is charged with: a longer transfer; one of several ranks that clocks do not tell
apart, or chains that cannot be compared; a rank that is not given; a wait in a pipeline."""
NOBODY = 4


class Charges(msgspec.Struct, frozen=True, eq=False):
    """Waits of ranks, each with the rank that it goes back to; arrays of shape [charges]."""

    row: Rows  # of Matched: the rank that waits, and where
    owner: Rows  # index of the rank that is charged
    ns: Floats
    own: Rows  # rows before which a rank was late by its own work
    own_ns: Int64s  # by so much, beside a rank that was in time
    lost: Floats  # [NOBODY]: ns of waits that no rank is charged with


class _Pairs(msgspec.Struct, frozen=True, eq=False):
    """Where two chains are: rows of the late one and of the one in time; arrays of shape [n]."""

    wait: Rows  # the collective that is waited in
    late: Rows
    other: Rows
    weight: Floats  # how much of the lateness here is carried on to that collective

    def some(self, which: Flags) -> _Pairs:
        return _Pairs(*(column[which] for column in msgspec.structs.astuple(self)))

    def __add__(self, more: _Pairs) -> _Pairs:
        both = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(more), strict=True)
        return _Pairs(*map(np.concatenate, both))


def charges_of(
    matched: Matched, waits: Waits, clocks: Clocks, stage_of: Sequence[int | None]
) -> Charges:
    """Charges every wait that clocks tell to the ranks that it goes back to. `stage_of`: of each
    rank of a pipeline, else (); where stages differ, so does the work."""
    ranks = len(matched.ranks)
    none = np.empty(0, dtype=np.intp)
    asked = none if clocks.refused else np.flatnonzero(~matched.point_to_point)
    late, usual = waits.latest[asked], waits.usual[asked]
    lateness = (waits.start[late] - waits.start[usual]).astype(np.float64)
    # What was queued behind another collective started late because that one ended late.
    counted = (lateness > 0) & (waits.ready[late] == waits.start[late])
    pairs = _Pairs(asked, late, usual, np.ones(len(asked))).some(counted)
    if not len(pairs.wait):
        return Charges(none, none, np.empty(0), none, none, np.zeros(NOBODY))
    limit = np.zeros(len(matched))
    limit[pairs.wait] = lateness[counted]
    stages = [-1 - n if stage is None else stage for n, stage in enumerate(stage_of)] or [0] * ranks
    chains = _Chains(matched, waits, clocks, limit, np.array(stages))
    chains.follow(pairs)
    wait, owner, share = chains.shares()
    last = matched.rank[waits.latest[matched.of_row]]
    amount: Floats = np.minimum(waits.alone, EARLY * limit[matched.of_row])
    unsure = waits.wait <= clocks.resolution_of(matched.rank, last)
    amount[unsure | matched.point_to_point[matched.of_row]] = 0
    rows = np.flatnonzero(amount > 0)
    first, until = (np.searchsorted(wait, matched.of_row[rows], side) for side in ("left", "right"))
    counts = until - first
    row = np.repeat(rows, counts)
    at = ranges(first, counts)
    ns: Floats = np.asarray(amount[row] * share[at], dtype=np.float64)
    whom = np.maximum(owner[at] - ranks, -1) + 1
    lost = np.asarray(np.bincount(whom, weights=ns, minlength=NOBODY + 1)[1:], dtype=np.float64)
    kept = (owner[at] < ranks) & (owner[at] != matched.rank[row])
    return Charges(row[kept], owner[at][kept], ns[kept], *chains.own(), lost)


class _Chains:
    """Follows the two chains of every collective at once."""

    def __init__(
        self, matched: Matched, waits: Waits, clocks: Clocks, lateness: Floats, stages: Rows
    ) -> None:
        self._matched, self._waits, self._lateness = matched, waits, lateness
        self._stage = stages  # only ranks of the same one do the same work
        self._parts: list[tuple[Rows, Rows, Floats]] = []  # collective, owner, ns
        # A number per collective, equal for those of one name, size and number of ranks.
        keys = list(zip(matched.names, matched.bytes.tolist(), matched.size.tolist(), strict=True))
        numbers = {key: n for n, key in enumerate(dict.fromkeys(keys))}
        self._kind = np.array([numbers[key] for key in keys], dtype=np.intp)
        begin = int(min(waits.start.min(), waits.ready.min()))
        ends, starts, ready = waits.end - begin, waits.start - begin, waits.ready - begin
        everything = np.arange(len(matched.rank))
        self._before = _latest(matched.rank, ends, everything, matched.rank, starts)
        lasts = waits.end - waits.ready
        binds = matched.stalled >= np.minimum(MIN_STALL_NS, lasts / 2)
        self._released_by = _latest(matched.rank, ends, np.flatnonzero(binds), matched.rank, ready)
        self._place = _places_of_kinds(matched, self._kind, waits.start)
        self._root = _roots(matched, waits, self._before)
        self._loose = _loose(matched, waits, clocks, self._before)
        self._told = waits.last >= 0
        self._own = np.zeros(len(matched.rank))

    def own(self) -> tuple[Rows, Int64s]:
        """Rows before which ranks were late by their own work, and by how much."""
        rows = np.flatnonzero((self._own > 0) & self._told[self._matched.of_row])
        return rows, np.rint(self._own[rows]).astype(np.int64)

    def shares(self) -> tuple[Rows, Rows, Floats]:
        """What explains a lateness: collective (in order), owner and share; shares add up to 1."""
        wait, owner, ns = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        owners = len(self._matched.ranks) + NOBODY
        distinct, which = np.unique(wait * owners + owner, return_inverse=True)
        net = np.bincount(which, weights=ns, minlength=len(distinct))
        wait, owner = np.divmod(distinct, owners)
        largest = np.zeros(int(wait.max(initial=-1)) + 1)
        np.maximum.at(largest, wait, net)
        kept = net > NOISE * largest[wait]
        wait, owner, net = wait[kept], owner[kept], net[kept]
        return wait, owner, net / np.bincount(wait, weights=net, minlength=len(largest))[wait]

    def follow(self, pairs: _Pairs) -> None:
        for _ in range(MOST_BACK):
            pairs = self._back(pairs)
            if not len(pairs.wait):
                return
        self._nobody(pairs, UNTOLD, self._gap(pairs))

    def _back(self, pairs: _Pairs) -> _Pairs:
        """What is explained here, and where the rest of it goes on."""
        gap, rank = self._gap(pairs), self._matched.rank
        over = gap <= LATE_NO_LONGER * self._lateness[pairs.wait]
        unlike = ~over & (self._stage[rank[pairs.late]] != self._stage[rank[pairs.other]])
        self._nobody(pairs.some(over), TRANSFER, gap[over])
        self._nobody(pairs.some(unlike), BUBBLE, gap[unlike])
        pairs, gap = pairs.some(~over & ~unlike), gap[~over & ~unlike]
        pairs, gap = self._after_loose(pairs, gap)
        pairs, gap, released = self._since_release(pairs, gap)
        late, other = self._before[pairs.late], self._before[pairs.other]
        begins = (late < 0) | (other < 0)
        self._charge(pairs.some(begins), gap[begins])
        pairs, gap, late, other = pairs.some(~begins), gap[~begins], late[~begins], other[~begins]
        one, two = self._matched.of_row[late], self._matched.of_row[other]
        left = (self._waits.end[late] - self._waits.end[other]).astype(np.float64)
        passed = self._computed_through(other, pairs.other)
        passed -= self._computed_through(late, pairs.late)
        same = one == two
        carried = np.where(same, np.clip(passed, 0, gap), 0.0)
        self._charge(pairs, gap - left - carried)
        before = _Pairs(pairs.wait, late, other, pairs.weight)
        through = self._through(before.some(same), carried[same])
        self._nobody(pairs.some(same), TRANSFER, left[same])
        across = self._across(before.some(~same), one[~same], two[~same], left[~same])
        return released + through + across

    def _since_release(self, pairs: _Pairs, gap: Floats) -> tuple[_Pairs, Floats, _Pairs]:
        """Where the compute of both ranks last waited for the same collective, or for ones at the
        same place of their programs, what took longer since its end is the late rank's own,
        whatever ran beside it. The pairs where that is not so, their gaps, and where the rest of
        the others goes on."""
        late, other = self._released_by[pairs.late], self._released_by[pairs.other]
        known = (late >= 0) & (other >= 0)
        one, two = self._matched.of_row[late], self._matched.of_row[other]
        alike = (self._kind[one] == self._kind[two]) & (self._place[late] == self._place[other])
        alike &= known & ~self._matched.point_to_point[one]
        some, late, other = pairs.some(alike), late[alike], other[alike]
        one, two = one[alike], two[alike]
        left = (self._waits.end[late] - self._waits.end[other]).astype(np.float64)
        self._charge(some, gap[alike] - left)
        same = one == two
        self._nobody(some.some(same), TRANSFER, left[same])
        before = _Pairs(some.wait, late, other, some.weight).some(~same)
        rest = self._across(before, one[~same], two[~same], left[~same])
        return pairs.some(~alike), gap[~alike], rest

    def _computed_through(self, before: Rows, row: Rows) -> Floats:
        """ns that a rank computed from when the collective before was ready to its end, or to when
        this one was ready, if that was earlier; less by as much as it was ready before that end."""
        matched, waits = self._matched, self._waits
        computed = matched.covered[before] + matched.ahead[before] - matched.ahead[row]
        early = waits.end[before] - np.minimum(waits.end[before], waits.ready[row])
        return np.asarray(np.maximum(computed, 0) + early, dtype=np.float64)

    def _after_loose(self, pairs: _Pairs, gap: Floats) -> tuple[_Pairs, Floats]:
        """Where a rank comes from a collective that is not matched, what it did since then alone
        is its own; how long it waited there, and for whom, is not known."""
        late, other = self._loose[pairs.late], self._loose[pairs.other]
        found = (late > 0) | (other > 0)
        some, both = pairs.some(found), (late > 0) & (other > 0)
        own = np.where(both, gap - (late - other), 0.0)[found]
        self._charge(some, own)
        self._nobody(some, OUTSIDE, gap[found] - own)
        return pairs.some(~found), gap[~found]

    def _through(self, pairs: _Pairs, carried: Floats) -> _Pairs:
        """A collective in which both met, but that did not stop the one in time, which computed
        meanwhile: so much of the lateness was there before it."""
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
        found = _Pairs(pairs.wait[goes_on], late, other, pairs.weight[goes_on])
        moved = left[goes_on] - self._gap(found)
        self._nobody(found.some(missing), OUTSIDE, moved[missing])
        self._nobody(found.some(~missing), TRANSFER, moved[~missing])
        return found

    def _gap(self, pairs: _Pairs) -> Floats:
        ready = self._waits.ready
        return (ready[pairs.late] - ready[pairs.other]).astype(np.float64)

    def _charge(self, pairs: _Pairs, ns: Floats) -> None:
        """To the late rank, or to nobody where clocks do not tell that it was last."""
        ranks, rank = len(self._matched.ranks), self._matched.rank[pairs.late]
        told = self._told[self._matched.of_row[pairs.late]]
        self._parts.append((pairs.wait, np.where(told, rank, ranks + UNTOLD), ns * pairs.weight))
        np.maximum.at(self._own, pairs.late, ns)

    def _nobody(self, pairs: _Pairs, why: int, ns: Floats) -> None:
        owner = np.full(len(pairs.wait), len(self._matched.ranks) + why)
        self._parts.append((pairs.wait, owner, ns * pairs.weight))


def _loose(matched: Matched, waits: Waits, clocks: Clocks, before: Rows) -> Int64s:
    """For each row, when a collective that is not matched ended on its rank, if that is after the
    end of the row before; else 0."""
    none = np.zeros(len(matched.rank), dtype=np.int64)
    if not len(matched.loose_rank):
        return none
    end = clocks.common(matched.loose_rank, matched.loose_end)
    begin = min(int(waits.start.min()), int(end.min()))
    every = np.arange(len(end))
    found = _latest(matched.loose_rank, end - begin, every, matched.rank, waits.start - begin)
    since = np.where(before >= 0, waits.end[before], begin)
    return np.where((found >= 0) & (end[found] > since), end[found], none)


def _latest(own: Rows, ends: Int64s, among: Rows, rank: Rows, starts: Int64s) -> Rows:
    """For each start the last of the ends `among` those given that is on the same rank and not
    after it; -1 for none."""
    if not len(among):
        return np.full(len(starts), -1, dtype=np.intp)
    span = int(max(ends.max(), starts.max())) + 1
    keys = own[among] * span + ends[among]
    order = np.argsort(keys, kind="stable")
    at = np.searchsorted(keys[order], rank * span + starts, "right") - 1
    found = among[order[np.maximum(at, 0)]]
    return np.where((at >= 0) & (own[found] == rank), found, -1)


def _places_of_kinds(matched: Matched, kind: Rows, start: Int64s) -> Rows:
    """For each row, how many collectives of its kind its rank started before."""
    order = np.lexsort((start, kind[matched.of_row], matched.rank))
    kinds = int(kind.max(initial=0)) + 1
    places = np.empty(len(order), dtype=np.intp)
    places[order] = ordinals((matched.rank * kinds + kind[matched.of_row])[order])
    return places


def _roots(matched: Matched, waits: Waits, before: Rows) -> Rows:
    """For each collective itself; or where its last rank had it queued behind another one, the
    root of that one, whose end it followed."""
    queued = waits.ready[waits.latest] < waits.start[waits.latest]
    ahead = before[waits.latest]
    root = np.arange(len(matched))
    root = np.where(queued & (ahead >= 0), matched.of_row[ahead], root)
    while (root[root] != root).any():
        root = root[root]
    return root


LEAST = 0.02  # of a step: nobody who holds up others for less is called a straggler
QUARTER = 25  # percent of the steps in which a straggler may be in time
ALMOST_ALL = 0.8  # of the waiting in steps in which a rank is late: then it is that rank's
AS_LONG = 0.1
"""The others are the ranks that wait for it at least this part as long as the one that waits
longest: in a job of many groups not everyone is held up."""


class Caused(msgspec.Struct, frozen=True, eq=False):
    """How long others wait for each rank: the mean over those that do, in ns."""

    total: Int64s  # [ranks]
    waiters: Int64s  # [ranks]
    by_step: Floats  # [ranks, steps]
    is_late: Flags  # [ranks, steps]: by at least LEAST of a step
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
    step = steps.of_row[charges.row]
    kept_in = kept & (step >= 0)
    at = charges.owner[kept_in] * count + step[kept_in]
    sums = np.bincount(at, weights=charges.ns[kept_in], minlength=ranks * count)
    by_step: Floats = np.asarray(sums, dtype=np.float64).reshape(ranks, count) / waiters[:, None]
    total = np.bincount(charges.owner[kept], weights=charges.ns[kept], minlength=ranks) / waiters
    mean, least = by_step.sum(axis=1) / count, LEAST * steps.length_ns
    is_late: Flags = np.asarray((by_step >= least) & (by_step > 0))
    in_late_steps = np.where(is_late, by_step, 0.0).sum(axis=1)
    # By enough in at least three of four steps, or almost all of the waiting in late steps.
    often: Flags = (np.percentile(by_step, QUARTER, axis=1) if ranks else mean) >= least
    alone = (in_late_steps > 0) & (in_late_steps >= ALMOST_ALL * in_late_steps.sum())
    straggles: Flags = (mean >= least) & (mean > 0) & (often | alone)
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
