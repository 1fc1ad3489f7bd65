"""Who holds up the job, and what such a rank did while the others waited: its account
beside the median rank's.

A cause is told only if it lies in what was recorded: when a rank was late already where
its window begins, or what it did differently explains less than half of its delay, it
is not.

What a step would take if one rank were as fast as the others between its collectives is
replayed. Every rank is a chain: a stretch of its own, a collective in which all meet,
the next stretch. The replay is believed only where the whole group is given, every
collective was matched, stretches do not overlap collectives, and replaying what was
recorded gives the recorded steps within 1 %.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.ranks.blame import (
    BUBBLE,
    LEAST,
    OUTSIDE,
    TRANSFER,
    UNTOLD,
    Caused,
    Charges,
)
from fusetui.analysis.ranks.clocks import Clocks
from fusetui.analysis.ranks.matching import Matched, RankJob, StepsOfRows, step_keys
from fusetui.analysis.ranks.model import (
    CLASSES,
    Excess,
    JobVerdict,
    JointStepChange,
    LateStep,
    MeanStepChange,
    Place,
    PlacesBefore,
    RankSummary,
    Reason,
    Straggler,
    StragglerCause,
    unpacked,
)
from fusetui.analysis.ranks.pipeline import Pipeline
from fusetui.analysis.ranks.waits import OfRanks, Waits
from fusetui.trace.model.arrays import Int64s, Rows

MOST = 5  # stragglers
MOST_PEERS = 64  # ranks whose median is compared with; of more, these are chosen evenly
COMPUTE = CLASSES.index("compute")
MOST_OF_IT = 1.1
"""Work explains at most so many times the delay of its own collective. What takes
longer than so many times the whole delay went on beside it, and is no reason at all."""
ENOUGH = 0.5  # of a delay
MOST_REASONS = 8
WHY = {
    TRANSFER: "transfers of other collectives take longer on some of them",
    UNTOLD: "clocks do not tell which of several ranks was last, or their work cannot be compared",
    OUTSIDE: "it goes back to ranks that are not given",
    BUBBLE: "it goes back to sends and receives of a pipeline",
}


class JobFacts(msgspec.Struct, frozen=True, eq=False):
    """Everything that was found out about a job."""

    job: RankJob
    matched: Matched
    clocks: Clocks
    waits: Waits
    steps: StepsOfRows
    sums: OfRanks
    charges: Charges
    caused: Caused
    pipeline: Pipeline | None
    replay: list[ReplayableStep] | str


def stragglers_of(facts: JobFacts) -> Iterator[Straggler]:
    """Ranks that hold up others, the worst first; else those slower than their like in
    a line."""
    order = np.argsort(-facts.caused.total, kind="stable").tolist()
    late = [rank for rank in order if facts.caused.straggles[rank]][:MOST]
    for rank in late:
        yield _held_up(facts, rank)
    for slow in (facts.pipeline.slow if facts.pipeline else ())[: MOST - len(late)]:
        if slow.index not in late:
            total = slow.excess_ns * len(facts.matched.ranks[slow.index].steps)
            excess = (Excess("class", slow.what, total),)
            reason = Reason(total, 0, total, None, None, False, excess)
            yield _straggler(
                facts, slow.index, "inside", reason, stage=slow.stage, slow=slow
            )


def _held_up(facts: JobFacts, rank: int) -> Straggler:
    ranks, replay = facts.matched.ranks, facts.replay
    reason = reason_of(facts, rank)
    largest = reason.excess[0].ns if reason.excess else 0
    cause: StragglerCause = (
        "inside" if largest >= ENOUGH * reason.inside_ns else "untold"
    )
    if reason.outside_ns > reason.inside_ns:
        cause = "outside"
    others = [other for other in ranks if other is not ranks[rank]]
    slower = slower_kernels(ranks[rank], others) if cause == "inside" else None
    replayed = None if isinstance(replay, str) else what_if(facts.matched, replay, rank)
    names, by_step = facts.steps.names, facts.caused.by_step[rank]
    late_steps = tuple(
        LateStep(names[step], round(float(by_step[step])))
        for step in (
            np.flatnonzero(facts.caused.is_late[rank]).tolist() if names else ()
        )
    )
    return _straggler(
        facts,
        rank,
        cause,
        reason,
        stage=None,
        slower=slower,
        what_if=replayed,
        late_steps=late_steps,
    )


def _straggler(
    facts: JobFacts, rank: int, cause: StragglerCause, reason: Reason, **more: Any
) -> Straggler:
    return Straggler(
        rank=facts.matched.ranks[rank].rank,
        last_count=int(facts.sums.last[rank]),
        of=int(facts.sums.collectives[rank]),
        caused_ns=int(facts.caused.total[rank]),
        waiters=int(facts.caused.waiters[rank]),
        cause=cause,
        reason=reason,
        **more,
    )


def verdict_of(facts: JobFacts, stragglers: Sequence[Straggler]) -> JobVerdict:
    """What else is to say of who is late: why nobody is named, where that is so; what
    it would save to fix all that are named."""
    stages = facts.pipeline.stages if facts.pipeline else None
    if stragglers:
        return JobVerdict(stages, if_all=_if_all(facts, stragglers))
    if not len(facts.matched) or facts.clocks.refused:
        return JobVerdict(stages)
    every, least = facts.caused.every_step, LEAST * facts.steps.length_ns
    if every.mean() >= least:
        in_turn = int((facts.caused.by_step.max(axis=1) >= least).sum())
        return JobVerdict(stages, "in turn", tuple(every.tolist()), in_turn)
    # Waits that go back to nobody, by the reason; ns of the mean rank.
    others = max(len(facts.matched.ranks) - 1, 1)
    lost = facts.charges.lost[list(WHY)] / (others * len(every))
    worst = int(np.argmax(lost))
    if lost[worst] >= least:
        why = list(WHY.values())[worst]
        return JobVerdict(stages, "untold", (float(lost[worst]),), why=why)
    return JobVerdict(stages, "nobody")


def reason_of(facts: JobFacts, rank: int) -> Reason:
    """What `rank`, an index, did before the collectives for which it was late by its
    own work, in the steps in which it holds up the others."""
    matched, charges, clocks = facts.matched, facts.charges, facts.clocks
    meanwhile = _Meanwhile(matched)
    longer: Counter[Place] = Counter()
    explains: Counter[Place] = Counter()
    inside = outside = 0
    begins: tuple[int | None, int | None, bool] = None, None, False
    earliest = matched.row[matched.rank == rank].min(initial=np.iinfo(np.intp).max)
    step = facts.steps.of_row[charges.own]
    in_late_step = facts.caused.is_late[rank][np.maximum(step, 0)] & (step >= 0)
    mine = (matched.rank[charges.own] == rank) & in_late_step
    for row, late in zip(
        charges.own[mine].tolist(), charges.own_ns[mine].tolist(), strict=True
    ):
        place = matched.of_row[row]
        rows = np.arange(matched.first[place], matched.first[place + 1])
        others = rows[matched.rank[rows] != rank]
        if matched.row[row] == earliest and (
            was := _was_late(matched, clocks, row, others, late)
        ):
            outside += late
            begins = was
            continue
        inside += late
        for key, ns in meanwhile.more(row, others[_evenly(len(others))].tolist()):
            longer[key] += ns
            explains[key] += min(ns, round(MOST_OF_IT * late))
    most = MOST_OF_IT * max(inside, 1)
    reasons = [
        Excess(kind=kind, name=name, ns=ns)
        for (kind, name), ns in explains.items()
        if ns > 0 and longer[kind, name] <= most
    ]
    reasons.sort(key=lambda reason: -reason.ns)
    begins_after_ns, begins_after_rank, has_step = begins
    return Reason(
        late_ns=inside + outside,
        outside_ns=outside,
        inside_ns=inside,
        begins_after_ns=begins_after_ns,
        begins_after_rank=begins_after_rank,
        has_step=has_step,
        excess=tuple(reasons[:MOST_REASONS]),
    )


def _evenly(count: int) -> Rows:
    """At most MOST_PEERS of so many."""
    return np.unique(np.linspace(0, count - 1, MOST_PEERS).astype(np.intp))


def _was_late(
    matched: Matched, clocks: Clocks, own: int, others: Rows, late: int
) -> tuple[int, int, bool] | None:
    """If most of the delay was there already where the recording begins: its begin
    after the earliest other's, in ns, that rank, and whether these are begins of
    steps."""
    rows = np.append(own, others)
    ranks = [matched.ranks[n] for n in matched.rank[rows].tolist()]
    starts = zip(ranks, matched.start[rows].tolist(), strict=True)
    steps = [
        int(np.searchsorted(one.step_start, start, "right")) - 1
        for one, start in starts
    ]
    stepped = min(steps) >= 0
    times = [
        int(one.step_start[step]) if stepped else one.begin_ns
        for one, step in zip(ranks, steps, strict=True)
    ]
    common = clocks.common(matched.rank[rows], np.array(times, dtype=np.int64))
    if int(common[0]) - int(np.median(common[1:])) < ENOUGH * late:
        return None
    first = 1 + int(np.argmin(common[1:]))
    return int(common[0] - common[first]), ranks[first].rank, stepped


class _Meanwhile:
    """What ranks did before their collectives, unpacked once for each rank."""

    def __init__(self, matched: Matched) -> None:
        self._matched = matched
        self._accounts: dict[int, Int64s] = {}
        self._places: dict[int, dict[int, PlacesBefore]] = {}
        order = np.lexsort((matched.row, matched.rank))
        same = np.diff(matched.rank[order]) == 0
        # row before it on the same rank
        self._previous = np.full(len(order), -1, dtype=np.intp)
        self._previous[order[1:][same]] = order[:-1][same]

    def more(self, own: int, others: Sequence[int]) -> Iterator[tuple[Place, int]]:
        """What took longer before `own` than before the median of the others; or
        shorter."""
        mine, before = self._account(own), [self._account(row) for row in others]
        theirs = [one for one in before if one is not None]
        if mine is not None and len(theirs) == len(others):
            more = mine - np.median(np.array(theirs), axis=0).astype(np.int64)
            for name, ns in zip(CLASSES[1:], more[1:].tolist(), strict=True):
                if name != "idle":
                    yield ("class", name), ns
        places_of_others = []
        for row in others:
            places = self._places_before(row)
            if places is None:  # kept are those of the longest stretches alone
                return
            places_of_others.append(places)
        own_places = self._places_before(own)
        if own_places is None:
            return
        in_any = dict.fromkeys(own_places.ns)
        for places in places_of_others:
            in_any |= dict.fromkeys(places.ns)
        for place in in_any:
            usual_ns = np.median([each.at_most(place) for each in places_of_others])
            yield place, own_places.at_least(place) - int(usual_ns)

    def _account(self, row: int) -> Int64s | None:
        """None without a GPU."""
        rank = int(self._matched.rank[row])
        if rank not in self._accounts:
            self._accounts[rank] = unpacked(
                self._matched.ranks[rank].collectives.before, len(CLASSES)
            )
        if not len(self._accounts[rank]):
            return None
        own: Int64s = self._accounts[rank][self._matched.row[row]].copy()
        # what ran since the inputs of that one were computed counts
        before = self._previous[row]
        if before >= 0:
            own[COMPUTE] += self._matched.covered[before] + self._matched.ahead[before]
            own[COMPUTE] -= self._matched.ahead[row]
        return own

    def _places_before(self, row: int) -> PlacesBefore | None:
        rank = int(self._matched.rank[row])
        if rank not in self._places:
            self._places[rank] = self._matched.ranks[rank].places.before()
        return self._places[rank].get(int(self._matched.row[row]))


def slower_kernels(one: RankSummary, others: Sequence[RankSummary]) -> float | None:
    """How much longer the same kernels take than on the median of the others: 0.18 for
    18 %. Of names that ran equally often everywhere; None if there are none, or if they
    do not take longer."""
    chosen = [others[n] for n in _evenly(len(others)).tolist()]
    theirs = [
        {k.name: k for k in other.kernels if not k.communicates} for other in chosen
    ]
    own = total = 0.0
    for kernel in one.kernels:
        same = [known[kernel.name] for known in theirs if kernel.name in known]
        if len(same) == len(theirs) and all(k.count == kernel.count for k in same):
            own += kernel.total_ns
            total += float(np.median([k.total_ns for k in same]))
    return own / total - 1 if total and own > total else None


CLOSE = 0.01  # of a step
OVERLAP = "collectives overlap other work or the borders of steps"


class ReplayableStep(NamedTuple):
    """`own` [stretches, ranks], the last of which follows the last collective;
    `transfer` [stretches - 1, ranks], from the last start to each rank's end; and the
    recorded mean length."""

    own: Int64s
    transfer: Int64s
    recorded: float


def replayable(
    job: RankJob, matched: Matched, waits: Waits
) -> list[ReplayableStep] | str:
    """The steps, or why they cannot be replayed: the rest of a sentence."""
    ranks = len(matched.ranks)
    if not job.is_whole or ranks < 2:
        return "not all ranks of the job are given"
    if any(one.damage for one in matched.ranks) or matched.unmatched.any():
        return "not every collective could be matched"
    if _cut_in_a_step(matched):
        return "the beginning or the end of a recording cuts a collective of a step"
    if not (matched.counts == ranks).all():
        return "some collectives are of a part of the ranks only"
    keys = [step_keys(one) for one in matched.ranks]
    if not keys[0] or any(own != keys[0] for own in keys):
        return "the ranks do not have the same steps"
    spans = sum(float((one.step_end - one.step_start).sum()) for one in matched.ranks)
    if matched.covered.sum() > CLOSE * spans:
        return OVERLAP
    return _steps(matched, waits) or OVERLAP


def _cut_in_a_step(matched: Matched) -> bool:
    """Whether a collective that a recording cuts reaches into a step of any rank."""
    for rank, row in zip(
        matched.cut_rank.tolist(), matched.cut_row.tolist(), strict=True
    ):
        one = matched.ranks[rank]
        start, end = one.collectives.start[row], one.collectives.end[row]
        if ((one.step_start < end) & (one.step_end > start)).any():
            return True
    return False


def what_if(
    matched: Matched, steps: Sequence[ReplayableStep], rank: int
) -> MeanStepChange | None:
    """`rank` is an index. None if replaying what was recorded does not give what was
    recorded."""
    found = _mean_steps(steps, [rank])
    if found is None:
        return None
    return MeanStepChange(
        rank=matched.ranks[rank].rank,
        step_ns=round(found.recorded),
        replayed_ns=round(found.replayed),
        would_be_ns=round(found.would_be),
    )


def _if_all(facts: JobFacts, stragglers: Sequence[Straggler]) -> JointStepChange | None:
    """None unless fixing all stragglers saves LEAST of a step more than fixing the best
    one."""
    one_fixed = [one.what_if for one in stragglers if one.what_if is not None]
    if (
        isinstance(facts.replay, str)
        or len(one_fixed) < 2
        or len(one_fixed) < len(stragglers)
    ):
        return None
    numbers = {one.rank for one in one_fixed}
    late = [n for n, one in enumerate(facts.matched.ranks) if one.rank in numbers]
    if len(late) == len(facts.matched.ranks):
        return None
    found = _mean_steps(facts.replay, late)
    best = min(one.would_be_ns for one in one_fixed)
    if found is None or best - found.would_be < LEAST * found.recorded:
        return None
    return JointStepChange(
        ranks=tuple(sorted(numbers)),
        step_ns=round(found.recorded),
        would_be_ns=round(found.would_be),
    )


class _MeanSteps(NamedTuple):
    """The mean step in ns: as recorded, replayed, and replayed with a change."""

    recorded: float
    replayed: float
    would_be: float


def _mean_steps(
    steps: Sequence[ReplayableStep], late: Sequence[int]
) -> _MeanSteps | None:
    """With the stretches of these ranks (indices) as long as the median of the others'.
    None if replaying what was recorded does not give what was recorded."""
    each = []
    for own, transfer, recorded in steps:
        of_others = np.median(np.delete(own, late, axis=1), axis=1).astype(np.int64)
        better = own.copy()
        better[:, late] = np.minimum(own[:, late], of_others[:, None])
        each.append((recorded, _mean_end(own, transfer), _mean_end(better, transfer)))
    recorded, replayed, would_be = map(float, np.mean(each, axis=0))
    if abs(replayed - recorded) > CLOSE * recorded:
        return None
    return _MeanSteps(recorded, replayed, would_be)


def _mean_end(own: Int64s, transfer: Int64s) -> float:
    """The mean end of the ranks in a step that all begin at 0 but for what `own[0]`
    says."""
    now = own[0].astype(np.float64)
    for stretch, moved in zip(own[1:], transfer, strict=True):
        now = now.max() + moved + stretch
    return float(now.mean())


def _steps(matched: Matched, waits: Waits) -> list[ReplayableStep] | None:
    ranks = len(matched.ranks)
    order = np.lexsort((matched.rank, matched.of_row))
    start, end = (times[order].reshape(-1, ranks) for times in (waits.start, waits.end))
    shift = (waits.start - matched.start)[order].reshape(-1, ranks)
    usual = shift[0] if len(shift) else np.zeros(ranks, dtype=np.int64)
    begins = np.stack([one.step_start for one in matched.ranks], axis=1) + usual
    ends = np.stack([one.step_end for one in matched.ranks], axis=1) + usual
    found = []
    for begin, until in zip(begins, ends, strict=True):
        inside = (start >= begin).all(axis=1) & (end <= until).all(axis=1)
        if (((start < until) & (end > begin)).any(axis=1) & ~inside).any():
            return None
        first, last = start[inside], end[inside]
        own = np.concatenate((first, until[None])) - np.concatenate((begin[None], last))
        if (own < 0).any():
            return None
        own[0] += begin - begin.min()
        transfer = np.maximum(last - first.max(axis=1, keepdims=True), 0)
        found.append(ReplayableStep(own, transfer, float((until - begin.min()).mean())))
    return found
