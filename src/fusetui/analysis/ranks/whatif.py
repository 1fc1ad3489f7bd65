"""Estimates what changes would be worth to a job.

The trace of each rank is replayed with the changes. Each collective ends for all of its
ranks when the last of them has arrived, plus its transfer.

There is an answer only if all ranks are given, every collective was matched and makes
all ranks wait for all, and clocks are known well enough. Replaying without a change
also has to give exactly what was recorded.
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
from fusetui.analysis.ranks.joint_replay import (
    ChangedTimes,
    CollectiveArrivals,
    replay_job,
)
from fusetui.analysis.ranks.matching import step_keys
from fusetui.analysis.ranks.rank_graphs import (
    JobGraphs,
    NoAnswerError,
    RankChange,
    Why,
    arrivals_after_changes,
    graphs_of,
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
    """A rank before and after the changes.

    Waits are the sum of the times from its arrivals at collectives to the last
    arrivals.
    """

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


class _ArrivalSums(msgspec.Struct, frozen=True, eq=False):
    """How ranks arrive at collectives; one entry per rank."""

    last: Int64s  # how often a rank arrives last, as far as clocks tell
    waits_ns: Int64s  # of all its arrivals, until the last one


def job_whatif(
    facts: JobFacts, texts: Sequence[str], *, cached: bool = True
) -> JobWhatIf:
    """Estimate what changes are worth to a job.

    Args:
        facts: The facts of the job.
        texts: The changes, as the user wrote them.
        cached: Whether to open traces through the cache.

    Returns:
        The effect of the changes; or why there is no answer.

    Raises:
        WrongChangeError: For a text that is no change, or changes nothing.
        TraceError: For a rank whose file is gone.
    """
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
    """Parse changes; `2:loader` is a change of rank 2 only, `loader` one of all ranks.

    Args:
        texts: The changes, as the user wrote them.
        ranks: The ranks of the job.

    Raises:
        WrongChangeError: For a text that is no change.
        NoMatchError: For a rank that is not in `ranks`.
    """
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
    """Check what can be checked without opening traces.

    Raises:
        NoAnswerError: If the summaries show that there cannot be an answer.
    """
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
    """Return by how many ns the uncertainty of clocks may shift the end of a step.

    At each collective on the path of the step, two clocks may be off.
    """
    steps = max(len(facts.steps.names), 1)
    collectives_per_step = len(facts.matched) / steps
    return 2 * float(facts.clocks.uncertainty.max()) * collectives_per_step


def _answer(
    facts: JobFacts, changes: Sequence[RankChange], no_answer: JobWhatIf, cached: bool
) -> JobWhatIf:
    """Replay the job with and without the changes, and compare the two.

    Args:
        facts: The facts of the job.
        changes: The changes.
        no_answer: The answer to fill in.
        cached: Whether to open traces through the cache.

    Returns:
        The answer; with a reason instead, if too much of the time of some rank is not
        understood.

    Raises:
        NoAnswerError: If the traces show that there cannot be an answer.
        WrongChangeError: For a change that changes nothing.
    """
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
    arrivals_before = _arrival_sums(facts, graphs.arrivals, job.before.arrived)
    arrivals_after = _arrival_sums(facts, job.remaining, job.after.arrived)
    uncertainty_ns = round(_uncertainty_ns(facts))

    # The result is a bound rather than an estimate if nothing in it is uncertain, or if
    # it depends on when a data loader has its batches.
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
        ranks=_rank_effects(
            facts, graphs, before=arrivals_before, after=arrivals_after
        ),
        inferred_waits=sum(graph.inferred_waits for graph in graphs.graphs),
        uncertainty_ns=uncertainty_ns,
        certainty="bound" if is_bound else "estimate",
        notes=notes,
    )


class _ReplayedJob(msgspec.Struct, frozen=True, eq=False):
    """The replays of a job without and with changes."""

    before: ChangedTimes
    after: ChangedTimes
    remaining: CollectiveArrivals  # the collectives that are left after the changes


def _replayed_job(graphs: JobGraphs, changes: Sequence[RankChange]) -> _ReplayedJob:
    """Replay a job without and with changes.

    Raises:
        NoAnswerError: If a replay ends in a circle, or if the replay without changes is
            not the recording.
        WrongChangeError: For a change of a collective on some of its ranks only.
    """
    before = replay_job(graphs.graphs, graphs.arrivals)
    recorded = [graph.recorded for graph in graphs.graphs]
    if before is None or not all(map(np.array_equal, before.times, recorded)):
        raise NoAnswerError("not_replayed")

    has_changes_of_one = any(change.rank is not None for change in changes)
    remaining = arrivals_after_changes(graphs, has_changes_of_one=has_changes_of_one)
    after = replay_job(graphs.changed_graphs, remaining)
    if after is None:
        raise NoAnswerError("not_replayed")
    return _ReplayedJob(before=before, after=after, remaining=remaining)


class _Lengths(msgspec.Struct, frozen=True, eq=False):
    """The lengths of the steps of a job, in ns; arrays have one entry per step."""

    before: Int64s
    after: Int64s
    in_median: Flags  # which steps count in the medians
    before_ns: int  # medians
    after_ns: int
    depend_on_batches: bool  # on when workers of a data loader have them


def _lengths(facts: JobFacts, graphs: JobGraphs, job: _ReplayedJob) -> _Lengths:
    """Compute how long the steps of a job take before and after the changes."""
    recorded = [graph.recorded for graph in graphs.graphs]
    ends_before = _ends_of_steps(facts, graphs, recorded, graphs.graphs)
    ends_after = _ends_of_steps(facts, graphs, job.after.times, graphs.changed_graphs)
    before = step_launched(ends_before)
    after = step_launched(ends_after)
    with_late_batches = _steps_with_late_batches(facts, graphs, job.remaining, after)

    # The first step does not follow the end of another one, so it counts only if it is
    # the only one.
    in_median = np.ones(len(before), dtype=np.bool_)
    in_median[0] = len(before) == 1
    after_ns = lower_median(after[in_median])
    with_late_batches_ns = lower_median(with_late_batches[in_median])
    return _Lengths(
        before=before,
        after=after,
        in_median=in_median,
        before_ns=lower_median(before[in_median]),
        after_ns=after_ns,
        depend_on_batches=differs(after_ns, with_late_batches_ns),
    )


def _is_bound(
    changes: Sequence[RankChange], graphs: JobGraphs, *, is_exact: bool
) -> bool:
    """Return whether no job with these changes can save more than the replay.

    That holds if the changes only remove waits, and if nothing was inferred.

    Args:
        changes: The changes.
        graphs: The graphs of all ranks.
        is_exact: Whether all of the job is understood, and its clocks are exact.
    """
    only_remove_waits = all(
        isinstance(change_of_rank.change, Unsynced) for change_of_rank in changes
    )
    all_are_certain = all(rank.is_certain for rank in graphs.ranks)
    return only_remove_waits and is_exact and all_are_certain


def _steps_with_late_batches(
    facts: JobFacts,
    graphs: JobGraphs,
    remaining: CollectiveArrivals,
    steps_after: Int64s,
) -> Int64s:
    """Compute how long steps would be if batches were ready as late as possible.

    Args:
        facts: The facts of the job.
        graphs: The graphs of all ranks.
        remaining: The collectives that are left after the changes.
        steps_after: The lengths with batches as recorded; they are returned if no rank
            loads any.

    Returns:
        ns per step.
    """
    changed = graphs.changed_graphs
    if not any(len(graph.batches.node) for graph in changed):
        return steps_after
    late = replay_job(changed, remaining, late=True)
    if late is None:
        return steps_after
    return step_launched(_ends_of_steps(facts, graphs, late.times, changed))


def _step_effects(facts: JobFacts, lengths: _Lengths) -> tuple[StepEffect, ...]:
    """List each step before and after; none in a job without steps."""
    names = labels_of(facts.matched.ranks[0].steps)
    if not names:
        return ()
    effects: list[StepEffect] = []
    for name, before_ns, after_ns, is_counted in zip(
        names,
        lengths.before.tolist(),
        lengths.after.tolist(),
        lengths.in_median.tolist(),
        strict=True,
    ):
        effect = StepEffect(
            name=name, before_ns=before_ns, after_ns=after_ns, in_median=is_counted
        )
        effects.append(effect)
    return tuple(effects)


def _rank_effects(
    facts: JobFacts, graphs: JobGraphs, *, before: _ArrivalSums, after: _ArrivalSums
) -> tuple[RankThen, ...]:
    """Compare how each rank arrives at collectives before and after the changes."""
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
    """Return when the job begins its first step, and when it has ended each step.

    See `steps.launched_bounds_of_job`.

    Args:
        facts: The facts of the job.
        graphs: The graphs of all ranks.
        times: The replayed times of each rank.
        replayed_graphs: The graph of each rank that these are times of.

    Returns:
        One time more than steps, in ns.
    """
    bounds_of_ranks: list[Int64s] = []
    for index, (rank, own_times, graph) in enumerate(
        zip(graphs.ranks, times, replayed_graphs, strict=True)
    ):
        # Recorded bounds are put on the common clock. Replayed ones are shifted alike.
        recorded = bounds_of(rank.graph, rank.graph.recorded, rank.ends)
        origin_ns = rank.graph.origin_ns + rank.epoch_ns
        rank_of_bound = np.full(len(recorded), index)
        common = facts.clocks.common(rank_of_bound, recorded + origin_ns)
        replayed_bounds = bounds_of(graph, own_times, rank.ends)
        bounds_of_ranks.append(replayed_bounds + common - recorded)
    return launched_bounds_of_job(bounds_of_ranks)


def _arrival_sums(
    facts: JobFacts, arrivals: CollectiveArrivals, arrived: Int64s
) -> _ArrivalSums:
    """Count how often each rank arrives last, and add up its waits.

    Args:
        facts: The facts of the job.
        arrivals: The collectives.
        arrived: When each row of `arrivals` arrives, in ns on the clock of its graph.
    """
    ranks = len(facts.matched.ranks)
    common = arrived + arrivals.to_common_ns
    waits_ns = arrivals.last_arrival_ns(arrived) - common

    # Sort the rows of each collective by arrival; its last two rows arrive last.
    by_arrival = np.lexsort((common, arrivals.collective_of_row))
    first = arrivals.first_rows
    next_first = np.append(first[1:], len(common))[: len(first)]
    last = by_arrival[next_first - 1]
    second_last = by_arrival[next_first - 2]

    last_rank = arrivals.rank[last]
    resolution = facts.clocks.resolution_of(last_rank, arrivals.rank[second_last])
    is_known = common[last] - common[second_last] > resolution
    return _ArrivalSums(
        last=np.bincount(last_rank[is_known], minlength=ranks),
        waits_ns=summed(arrivals.rank, waits_ns, ranks),
    )
