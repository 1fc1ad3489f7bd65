"""What changes would be worth to a job: the trace of each rank is replayed with them, and each
collective ends for all of its ranks when the last of them has arrived, plus its transfer.

There is an answer only where all ranks are given, every collective was matched and makes all ranks
wait for all, clocks are known well enough, and the same replay without a change is the recording.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec
import numpy as np

from fusetui.analysis.questions.collectives import SYNCHRONOUS
from fusetui.analysis.ranks.changing import (
    Abstain,
    Asked,
    Meetings,
    RankGraph,
    Why,
    asked_of,
    left_of,
    parts_of,
    replayed,
)
from fusetui.analysis.ranks.matching import step_keys
from fusetui.analysis.ranks.stragglers import CLOSE, JobFacts
from fusetui.analysis.replay.changes import Unsynced
from fusetui.analysis.replay.graph import Graph, Times
from fusetui.analysis.replay.replay import bounds_of
from fusetui.analysis.replay.whatif import UNKNOWN, StepEffect, median
from fusetui.trace.layout.steps import labels_of
from fusetui.trace.model.arrays import Int64s, summed

ALL_WAIT = SYNCHRONOUS | {"all_to_all"}


class RankThen(msgspec.Struct, frozen=True):
    """How a rank fares before and after. Waits are from each of its arrivals at a collective to
    the last one, all of them."""

    rank: int
    is_changed: bool
    last_before: int  # at how many collectives it arrives last
    last_after: int
    waits_before_ns: int
    waits_after_ns: int


class JobWhatIf(msgspec.Struct, frozen=True):
    """The answer. A step is from when the last rank has ended the one before to when the last one
    has ended it. `before_ns` and `after_ns` are medians as in WhatIf. No answer: see `why_not`."""

    changes: tuple[str, ...]
    of: Literal["step", "span"]
    why_not: Why
    steps: tuple[StepEffect, ...]
    before_ns: int | None
    after_ns: int | None
    collectives: int
    ranks: tuple[RankThen, ...]
    residual_share: float  # the largest of those of all ranks, and of the job before and after
    inferred_waits: int
    uncertainty_ns: int  # of the step, from that of the clocks
    certainty: Literal["bound", "estimate"]
    notes: tuple[str, ...]  # see Note


def job_whatif(facts: JobFacts, texts: Sequence[str], *, cached: bool = True) -> JobWhatIf:
    """What changes are worth. Raises WrongChange, and TraceError for a rank that is gone."""
    ranks = tuple(one.rank for one in facts.matched.ranks)
    asked = asked_of(texts, ranks)
    nothing = JobWhatIf(
        changes=tuple(texts),
        of="step" if any(one.steps for one in facts.matched.ranks) else "span",
        why_not="",
        steps=(),
        before_ns=None,
        after_ns=None,
        collectives=len(facts.matched),
        ranks=(),
        residual_share=0.0,
        inferred_waits=0,
        uncertainty_ns=0,
        certainty="estimate",
        notes=(),
    )
    try:
        _check(facts)
        return _answer(facts, asked, nothing, cached)
    except Abstain as reason:
        return msgspec.structs.replace(nothing, why_not=reason.why)


def _check(facts: JobFacts) -> None:
    """Raises Abstain where what summaries say does not settle it."""
    job, matched, clocks = facts.job, facts.matched, facts.clocks
    keys = [step_keys(one) for one in matched.ranks]
    several = len(clocks.hosts.names) > 1
    reasons: tuple[tuple[Why, bool], ...] = (
        ("not_whole", not job.is_whole),
        ("unmatched", any(one.damage for one in matched.ranks) or bool(matched.unmatched.any())),
        ("no_collectives", not len(matched)),
        ("unmatched", bool(matched.no_group) or not bool(matched.whole.all())),
        ("not_all_wait", not bool(matched.named(ALL_WAIT).all())),
        ("clocks", bool(clocks.refused)),
        ("steps", any(own != keys[0] for own in keys)),
        ("uncertain", several and not bool(np.isfinite(clocks.half).all())),
    )
    for why, holds in reasons:
        if holds:
            raise Abstain(why)
    if _uncertainty(facts) > CLOSE * facts.steps.length_ns:
        raise Abstain("uncertain")


def _uncertainty(facts: JobFacts) -> float:
    """By how much clocks may shift a step: by two of them at each collective on its path."""
    steps = max(len(facts.steps.names), 1)
    return 2 * float(facts.clocks.half.max()) * len(facts.matched) / steps


def _answer(facts: JobFacts, asked: Sequence[Asked], nothing: JobWhatIf, cached: bool) -> JobWhatIf:
    parts, meetings, notes = parts_of(facts, asked, cached)
    recorded = [part.graph.recorded for part in parts]
    same = replayed([part.graph for part in parts], meetings)
    if same is None or not all(map(np.array_equal, same.times, recorded)):
        raise Abstain("not_replayed")
    left = left_of(parts, meetings, any(each.rank is not None for each in asked))
    found = replayed([part.made for part in parts], left)
    if found is None:
        raise Abstain("not_replayed")
    shares = (*(part.residual_share for part in parts), same.residual_share, found.residual_share)
    nothing = msgspec.structs.replace(nothing, residual_share=max(shares))
    if max(shares) > UNKNOWN:
        return msgspec.structs.replace(nothing, why_not="not_understood")
    before = _bounds(facts, parts, recorded, [part.graph for part in parts])
    after = _bounds(facts, parts, found.times, [part.made for part in parts])
    old, new = np.diff(before), np.diff(after)
    names = labels_of(facts.matched.ranks[0].steps)
    counted = [len(old) == 1, *[True] * (len(old) - 1)]  # before the first none ended
    steps = zip(names, old.tolist(), new.tolist(), counted, strict=True) if names else ()
    bounds = all(isinstance(each.change, Unsynced) for each in asked)
    certain = all(part.is_certain for part in parts) and not max(shares)
    uncertainty = round(_uncertainty(facts))
    return msgspec.structs.replace(
        nothing,
        steps=tuple(StepEffect(*one) for one in steps),
        before_ns=median(old[counted]),
        after_ns=median(new[counted]),
        ranks=tuple(_ranks(facts, parts, (meetings, same.arrived), (left, found.arrived))),
        inferred_waits=sum(part.graph.inferred_waits for part in parts),
        uncertainty_ns=uncertainty,
        certainty="bound" if bounds and certain and not uncertainty else "estimate",
        notes=notes,
    )


def _bounds(
    facts: JobFacts, parts: Sequence[RankGraph], times: Sequence[Times], graphs: Sequence[Graph]
) -> Int64s:
    """When the first rank begins the first step, then when the last one has ended each."""
    found = []
    for rank, (part, own, graph) in enumerate(zip(parts, times, graphs, strict=True)):
        recorded = bounds_of(part.graph, part.graph.recorded, part.ends)
        begin = part.graph.origin_ns + part.epoch_ns
        common = facts.clocks.common(np.full(len(recorded), rank), recorded + begin)
        found.append(bounds_of(graph, own, part.ends) + common - recorded)
    bounds = np.stack(found)
    return np.append(bounds[:, 0].min(), bounds[:, 1:].max(axis=0))


Arrived = tuple[Meetings, Int64s]


def _ranks(
    facts: JobFacts, parts: Sequence[RankGraph], before: Arrived, after: Arrived
) -> Iterator[RankThen]:
    was, then = (_arrivals(facts, *one) for one in (before, after))
    columns = (column.tolist() for column in (was[0], then[0], was[1], then[1]))
    for part, one, *told in zip(parts, facts.matched.ranks, *columns, strict=True):
        yield RankThen(one.rank, part.is_changed, *told)


def _arrivals(facts: JobFacts, meetings: Meetings, arrived: Int64s) -> tuple[Int64s, Int64s]:
    """How often each rank arrives last, as far as clocks tell, and how long it waits."""
    ranks = len(facts.matched.ranks)
    common = arrived + meetings.shift
    waited = summed(meetings.rank, meetings.last(arrived) - common, ranks)
    first = meetings.first
    order = np.lexsort((common, meetings.of_row))
    ends = np.append(first[1:], len(common))[: len(first)] - 1
    last, second = order[ends], order[ends - 1]
    sure = common[last] - common[second] > facts.clocks.resolution_of(
        meetings.rank[last], meetings.rank[second]
    )
    return np.bincount(meetings.rank[last[sure]], minlength=ranks), waited
