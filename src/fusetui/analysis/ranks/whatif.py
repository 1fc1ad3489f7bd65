"""What changes would be worth to a job: the trace of each rank is replayed with them,
and each collective ends for all of its ranks when the last of them has arrived, plus
its transfer.

There is an answer only where all ranks are given, every collective was matched and
makes all ranks wait for all, clocks are known well enough, and the same replay without
a change is the recording.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from fusetui.analysis.questions.collectives import SYNCHRONOUS
from fusetui.analysis.ranks.facts import JobFacts
from fusetui.analysis.ranks.ideal import MAX_REPLAY_ERROR
from fusetui.analysis.ranks.matching import step_keys
from fusetui.analysis.ranks.meeting import ChangedTimes, Meetings, replayed
from fusetui.analysis.ranks.rank_graphs import (
    JobGraphs,
    NoAnswerError,
    RankChange,
    Why,
    graphs_of,
    remaining_meetings,
)
from fusetui.analysis.replay.apply import is_range
from fusetui.analysis.replay.changes import (
    NoMatchError,
    Unsynced,
    WrongChangeError,
    parse_change,
)
from fusetui.analysis.replay.graph import Graph, Times
from fusetui.analysis.replay.times import bounds_of
from fusetui.analysis.replay.whatif import UNKNOWN, StepEffect, differs
from fusetui.trace.layout.steps import labels_of, launched_bounds_of_job, step_launched
from fusetui.trace.model.arrays import Flags, Int64s, summed
from fusetui.trace.model.quantiles import lower_median

ALL_WAIT = SYNCHRONOUS | {"all_to_all"}
CHANGE_OF_RANK = re.compile(r"\s*(?P<rank>\d+)\s*:(?P<change>.+)", re.DOTALL)

Of = Literal["step", "span"]


class RankThen(msgspec.Struct, frozen=True):
    """A rank before and after the change. Waits are the sum of the times from its
    arrivals at collectives to the last arrivals."""

    rank: int
    is_changed: bool
    last_before: int  # at how many collectives it arrives last
    last_after: int
    waits_before_ns: int
    waits_after_ns: int


class JobWhatIf(msgspec.Struct, frozen=True):
    """The effect of changes on a job. Steps are those of the job, and their length
    is step_launched. `before_ns` and `after_ns` are medians as in WhatIf, or None
    without an answer; `why_not` has the reason."""

    changes: tuple[str, ...]
    of: Of
    why_not: Why
    steps: tuple[StepEffect, ...]
    before_ns: int | None
    after_ns: int | None
    collectives: int
    ranks: tuple[RankThen, ...]
    # the largest of those of all ranks, and of the job before and after
    residual_share: float
    inferred_waits: int
    uncertainty_ns: int  # of the step, from that of the clocks
    certainty: Literal["bound", "estimate"]
    notes: tuple[str, ...]  # see Note


class _Arrivals(msgspec.Struct, frozen=True, eq=False):
    """How ranks arrive at collectives; arrays of shape [ranks]."""

    last: Int64s  # how often a rank arrives last, as far as clocks tell
    waits_ns: Int64s  # of all its arrivals, until the last one


def job_whatif(
    facts: JobFacts, texts: Sequence[str], *, cached: bool = True
) -> JobWhatIf:
    """What changes are worth. Raises WrongChangeError, and TraceError for a rank that
    is gone."""
    summaries = facts.matched.ranks
    changes = changes_of(texts, tuple(summary.rank for summary in summaries))
    has_steps = any(summary.steps for summary in summaries)
    no_answer = JobWhatIf(
        changes=tuple(texts),
        of="step" if has_steps else "span",
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
        return _answer(facts, changes, no_answer, cached)
    except NoAnswerError as reason:
        return msgspec.structs.replace(no_answer, why_not=reason.why)


def changes_of(texts: Sequence[str], ranks: Sequence[int]) -> tuple[RankChange, ...]:
    """The changes that these texts name; `2:loader` is of rank 2 alone, `loader` of all.
    Raises WrongChangeError, and NoMatchError for a rank that is not in `ranks`."""
    changes: list[RankChange] = []
    for text in texts:
        match = CHANGE_OF_RANK.fullmatch(text)
        rank = None if match is None else int(match["rank"])
        if rank is not None and rank not in ranks:
            raise NoMatchError(f"There is no rank {rank}.")
        change = parse_change(text if match is None else match["change"])
        changes.append(RankChange(rank=rank, text=text, change=change))
    if is_range([change_of_rank.change for change_of_rank in changes]):
        untold = "What another device would be worth to a job is not told"
        raise WrongChangeError(f"{untold}: it is a range.")
    return tuple(changes)


def _check(facts: JobFacts) -> None:
    """Raises NoAnswerError where what summaries say does not settle it."""
    job = facts.job
    matched = facts.matched
    clocks = facts.clocks
    is_damaged = any(summary.damage for summary in matched.ranks)
    if not job.is_whole:
        raise NoAnswerError("not_whole")
    if is_damaged or matched.unmatched.any():
        raise NoAnswerError("unmatched")
    if not len(matched):
        raise NoAnswerError("no_collectives")
    if matched.no_group or not matched.whole.all():
        raise NoAnswerError("unmatched")
    if not matched.named(ALL_WAIT).all():
        raise NoAnswerError("not_all_wait")
    if clocks.refused:
        raise NoAnswerError("clocks")
    keys = [step_keys(summary) for summary in matched.ranks]
    if any(keys_of_rank != keys[0] for keys_of_rank in keys):
        raise NoAnswerError("steps")
    has_several_hosts = len(clocks.hosts.names) > 1
    if has_several_hosts and not np.isfinite(clocks.uncertainty).all():
        raise NoAnswerError("uncertain")
    if _uncertainty_ns(facts) > MAX_REPLAY_ERROR * facts.steps.length_ns:
        raise NoAnswerError("uncertain")


def _uncertainty_ns(facts: JobFacts) -> float:
    """By how much clocks may shift a step: by two of them at each collective on its
    path."""
    steps = max(len(facts.steps.names), 1)
    return 2 * float(facts.clocks.uncertainty.max()) * len(facts.matched) / steps


def _answer(
    facts: JobFacts, changes: Sequence[RankChange], no_answer: JobWhatIf, cached: bool
) -> JobWhatIf:
    """The answer, made from `no_answer`; that with a reason if too much of the time of
    some rank is not understood. Raises NoAnswerError and WrongChangeError."""
    graphs = graphs_of(facts, changes, cached=cached)
    job = _replayed_job(graphs, changes)
    residual_share = max(
        *(rank.residual_share for rank in graphs.ranks),
        job.before.residual_share,
        job.after.residual_share,
    )
    if residual_share > UNKNOWN:
        return msgspec.structs.replace(
            no_answer, residual_share=residual_share, why_not="not_understood"
        )
    lengths = _lengths(facts, graphs, job)
    arrivals_before = _arrivals(facts, graphs.meetings, job.before.arrived)
    arrivals_after = _arrivals(facts, job.remaining, job.after.arrived)
    uncertainty_ns = round(_uncertainty_ns(facts))
    never_waits = "loader_never_waits" in graphs.notes
    batches_unknown = lengths.depend_on_batches and not never_waits
    is_exact = not residual_share and not uncertainty_ns
    is_bound = _is_bound(changes, graphs, is_exact=is_exact)
    is_bound = is_bound or never_waits or batches_unknown
    notes = (*graphs.notes, "batches_unknown") if batches_unknown else graphs.notes
    return msgspec.structs.replace(
        no_answer,
        residual_share=residual_share,
        steps=_step_effects(facts, lengths),
        before_ns=lengths.before_ns,
        after_ns=lengths.after_ns,
        ranks=_ranks_then(facts, graphs, before=arrivals_before, after=arrivals_after),
        inferred_waits=sum(graph.inferred_waits for graph in graphs.graphs),
        uncertainty_ns=uncertainty_ns,
        certainty="bound" if is_bound else "estimate",
        notes=notes,
    )


class _ReplayedJob(msgspec.Struct, frozen=True, eq=False):
    """The replays of a job with and without changes."""

    before: ChangedTimes
    after: ChangedTimes
    remaining: Meetings  # the collectives that are left after the changes


def _replayed_job(graphs: JobGraphs, changes: Sequence[RankChange]) -> _ReplayedJob:
    """Replays a job with and without changes. Raises NoAnswerError if one of them ends
    in a circle, or if the one without changes is not the recording; WrongChangeError
    for a change of a collective on some of its ranks."""
    before = replayed(graphs.graphs, graphs.meetings)
    recorded = [graph.recorded for graph in graphs.graphs]
    if before is None or not all(map(np.array_equal, before.times, recorded)):
        raise NoAnswerError("not_replayed")
    has_changes_of_one = any(change.rank is not None for change in changes)
    remaining = remaining_meetings(graphs, has_changes_of_one=has_changes_of_one)
    after = replayed(graphs.changed_graphs, remaining)
    if after is None:
        raise NoAnswerError("not_replayed")
    return _ReplayedJob(before=before, after=after, remaining=remaining)


class _Lengths(msgspec.Struct, frozen=True, eq=False):
    """How long the steps of a job take, in ns; arrays of shape [steps]."""

    before: Int64s
    after: Int64s
    in_median: Flags  # which steps count in the medians
    before_ns: int  # medians
    after_ns: int
    depend_on_batches: bool  # on when workers of a data loader have them


def _lengths(facts: JobFacts, graphs: JobGraphs, job: _ReplayedJob) -> _Lengths:
    """How long the steps of a job take before and after the changes."""
    recorded = [graph.recorded for graph in graphs.graphs]
    ends_before = _ends_of_steps(facts, graphs, recorded, graphs.graphs)
    ends_after = _ends_of_steps(facts, graphs, job.after.times, graphs.changed_graphs)
    before = step_launched(ends_before)
    after = step_launched(ends_after)
    latest = _latest_steps(facts, graphs, job.remaining, after)
    in_median = np.ones(len(before), dtype=np.bool_)
    in_median[0] = len(before) == 1  # before the first step none has ended
    after_ns = lower_median(after[in_median])
    latest_ns = lower_median(latest[in_median])
    return _Lengths(
        before=before,
        after=after,
        in_median=in_median,
        before_ns=lower_median(before[in_median]),
        after_ns=after_ns,
        depend_on_batches=differs(after_ns, latest_ns),
    )


def _is_bound(
    changes: Sequence[RankChange], graphs: JobGraphs, *, is_exact: bool
) -> bool:
    """Whether no job with these changes can save more than the replay: they only remove
    waits, and nothing was inferred or is not understood (`is_exact`: of the job)."""
    only_remove_waits = all(
        isinstance(change_of_rank.change, Unsynced) for change_of_rank in changes
    )
    is_certain = all(rank.is_certain for rank in graphs.ranks)
    return only_remove_waits and is_exact and is_certain


def _latest_steps(
    facts: JobFacts, graphs: JobGraphs, remaining: Meetings, steps_after: Int64s
) -> Int64s:
    """How long steps would be if batches were ready as late as may be: [steps]; as long
    as `steps_after` where no rank loads any."""
    changed = graphs.changed_graphs
    if not any(len(graph.batches.node) for graph in changed):
        return steps_after
    late = replayed(changed, remaining, late=True)
    if late is None:
        return steps_after
    return step_launched(_ends_of_steps(facts, graphs, late.times, changed))


def _step_effects(facts: JobFacts, lengths: _Lengths) -> tuple[StepEffect, ...]:
    """Each step before and after; () in a job without steps."""
    names = labels_of(facts.matched.ranks[0].steps)
    if not names:
        return ()
    effects: list[StepEffect] = []
    for name, before_ns, after_ns, counted in zip(
        names,
        lengths.before.tolist(),
        lengths.after.tolist(),
        lengths.in_median.tolist(),
        strict=True,
    ):
        effect = StepEffect(
            name=name, before_ns=before_ns, after_ns=after_ns, in_median=counted
        )
        effects.append(effect)
    return tuple(effects)


def _ranks_then(
    facts: JobFacts, graphs: JobGraphs, *, before: _Arrivals, after: _Arrivals
) -> tuple[RankThen, ...]:
    """How each rank arrives at collectives before and after, in the order of the
    ranks."""
    ranks: list[RankThen] = []
    for index, (summary, rank) in enumerate(
        zip(facts.matched.ranks, graphs.ranks, strict=True)
    ):
        then = RankThen(
            rank=summary.rank,
            is_changed=rank.is_changed,
            last_before=int(before.last[index]),
            last_after=int(after.last[index]),
            waits_before_ns=int(before.waits_ns[index]),
            waits_after_ns=int(after.waits_ns[index]),
        )
        ranks.append(then)
    return tuple(ranks)


def _ends_of_steps(
    facts: JobFacts,
    graphs: JobGraphs,
    times: Sequence[Times],
    replayed_graphs: Sequence[Graph],
) -> Int64s:
    """When the job begins its first step and when it has ended each, see
    steps.launched_bounds_of_job: [steps + 1]. `times` are those of the replayed
    graphs, of each rank."""
    bounds_of_ranks: list[Int64s] = []
    for index, (rank, own_times, graph) in enumerate(
        zip(graphs.ranks, times, replayed_graphs, strict=True)
    ):
        recorded = bounds_of(rank.graph, rank.graph.recorded, rank.ends)
        origin_ns = rank.graph.origin_ns + rank.epoch_ns
        index_of_bound = np.full(len(recorded), index)
        common = facts.clocks.common(index_of_bound, recorded + origin_ns)
        bounds = bounds_of(graph, own_times, rank.ends)
        bounds_of_ranks.append(bounds + common - recorded)
    return launched_bounds_of_job(bounds_of_ranks)


def _arrivals(facts: JobFacts, meetings: Meetings, arrived: Int64s) -> _Arrivals:
    """How ranks arrive at collectives. `arrived`: when each row of `meetings` does, in
    ns on the clock of its rank's graph."""
    ranks = len(facts.matched.ranks)
    common = arrived + meetings.shift
    waits_ns = meetings.last(arrived) - common
    by_arrival = np.lexsort((common, meetings.of_row))
    first = meetings.first
    next_first = np.append(first[1:], len(common))[: len(first)]
    last = by_arrival[next_first - 1]
    second = by_arrival[next_first - 2]
    last_rank = meetings.rank[last]
    resolution = facts.clocks.resolution_of(last_rank, meetings.rank[second])
    is_told = common[last] - common[second] > resolution
    return _Arrivals(
        last=np.bincount(last_rank[is_told], minlength=ranks),
        waits_ns=summed(meetings.rank, waits_ns, ranks),
    )
