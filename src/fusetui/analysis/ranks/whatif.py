"""Estimates the gain of changes for a job.

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
from fusetui.analysis.ranks.clocks import Clocks
from fusetui.analysis.ranks.facts import JobFacts
from fusetui.analysis.ranks.ideal import MAX_REPLAY_ERROR
from fusetui.analysis.ranks.joint_replay import (
    ChangedTimes,
    CollectiveArrivals,
    replay_job,
)
from fusetui.analysis.ranks.matching import make_step_keys
from fusetui.analysis.ranks.model import RankSummary
from fusetui.analysis.ranks.rank_graphs import (
    JobGraphs,
    NoAnswerError,
    RankChange,
    Why,
    build_graphs,
    drop_removed_collectives,
)
from fusetui.analysis.replay.apply import is_range
from fusetui.analysis.replay.changes import (
    NoMatchError,
    Unsynced,
    WrongChangeError,
    parse_change,
)
from fusetui.analysis.replay.graph import Graph, Times
from fusetui.analysis.replay.times import measure_step_bounds
from fusetui.analysis.replay.whatif import UNKNOWN, StepEffect, differ_notably
from fusetui.trace.layout.steps import labels_of, launched_bounds_of_job, step_launched
from fusetui.trace.model.arrays import Flags, Int64s, ends_runs, summed
from fusetui.trace.model.quantiles import lower_median

ALL_WAIT = SYNCHRONOUS | {"all_to_all"}
"""Collectives that end on no rank before all ranks have arrived."""
CHANGE_OF_RANK = re.compile(r"\s*(?P<rank>\d+)\s*:(?P<change>.+)", re.DOTALL)
"""A change of one rank, such as `2:loader`."""

Of = Literal["step", "span"]


class RankThen(msgspec.Struct, frozen=True):
    """How a rank arrives at collectives before and after the changes.

    A wait is the time from the arrival of the rank at a collective to the last arrival
    of any rank.
    """

    rank: int
    is_changed: bool
    last_before: int  # at how many collectives it arrives last
    last_after: int
    waits_before_ns: int  # the sum of its waits
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
    """How ranks arrive at collectives; arrays have one entry per rank."""

    last_count: Int64s  # at how many it arrives last, as far as clocks can tell
    waits_ns: Int64s  # the sum over all collectives from its arrival to the last one


def estimate_changes(
    facts: JobFacts, texts: Sequence[str], *, cached: bool = True
) -> JobWhatIf:
    """Estimate what changes are worth to a job.

    Args:
        facts: The ranks of the job, and what was computed from them.
        texts: The changes, as the user wrote them.
        cached: Whether to open traces through the cache.

    Returns:
        The effect of the changes; or why there is no answer.

    Raises:
        WrongChangeError: For a text that is no change, or changes nothing.
        TraceError: For a rank whose file is gone.
    """
    summaries = facts.matched.ranks
    changes = parse_changes(texts, tuple(summary.rank for summary in summaries))
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
        _check_summaries(facts)
        return _replay_and_compare(facts, changes, no_answer, cached)
    except NoAnswerError as reason:
        return msgspec.structs.replace(no_answer, why_not=reason.why)


def parse_changes(texts: Sequence[str], ranks: Sequence[int]) -> tuple[RankChange, ...]:
    """Parse changes: `2:loader` is a change of rank 2 only, `loader` one of all ranks.

    Args:
        texts: The changes, as the user wrote them.
        ranks: The ranks of the job.

    Raises:
        WrongChangeError: For a text that is no change, and for a change of the device,
            whose effect is a range.
        NoMatchError: For a rank that is not in `ranks`.
    """
    changes: list[RankChange] = []
    for text in texts:
        rank = None
        change_text = text
        of_one_rank = CHANGE_OF_RANK.fullmatch(text)
        if of_one_rank is not None:
            rank = int(of_one_rank["rank"])
            change_text = of_one_rank["change"]
            if rank not in ranks:
                raise NoMatchError(f"There is no rank {rank}.")
        change = RankChange(rank=rank, text=text, change=parse_change(change_text))
        changes.append(change)

    if is_range([change.change for change in changes]):
        raise WrongChangeError(
            "The gain of another device is not estimated for a job: it is a range."
        )
    return tuple(changes)


def _check_summaries(facts: JobFacts) -> None:
    """Check all conditions of an answer that need no trace to be opened.

    Raises:
        NoAnswerError: If the summaries show that there cannot be an answer.
    """
    # All ranks, and all of their collectives, must be known.
    matched = facts.matched
    if not facts.job.is_whole:
        raise NoAnswerError("not_whole")
    is_damaged = any(summary.damage for summary in matched.ranks)
    if is_damaged or matched.unmatched.any():
        raise NoAnswerError("unmatched")
    if not len(matched):
        raise NoAnswerError("no_collectives")
    if matched.no_group or not matched.has_all_ranks.all():
        raise NoAnswerError("unmatched")

    # The replay lets every rank of a collective wait for every other one. A broadcast
    # lets its root go on.
    if not matched.mark_named(ALL_WAIT).all():
        raise NoAnswerError("not_all_wait")
    if facts.clocks.refused:
        raise NoAnswerError("clocks")

    keys_of_ranks = [make_step_keys(summary) for summary in matched.ranks]
    have_same_steps = all(keys == keys_of_ranks[0] for keys in keys_of_ranks)
    if not have_same_steps:
        raise NoAnswerError("steps")

    # Ranks of one host share its clock, whatever its offset is.
    has_several_hosts = len(facts.clocks.hosts.names) > 1
    all_are_bounded = np.isfinite(facts.clocks.uncertainty).all()
    if has_several_hosts and not all_are_bounded:
        raise NoAnswerError("uncertain")
    if _estimate_uncertainty_ns(facts) > MAX_REPLAY_ERROR * facts.steps.length_ns:
        raise NoAnswerError("uncertain")


def _estimate_uncertainty_ns(facts: JobFacts) -> float:
    """Return by how many ns imprecise clocks may shift the end of a step.

    A step passes through all of its collectives one after the other. At each of them,
    two clocks may be off by the largest uncertainty.
    """
    steps = max(len(facts.steps.names), 1)
    collectives_per_step = len(facts.matched) / steps
    largest_uncertainty_ns = float(facts.clocks.uncertainty.max())
    return 2 * largest_uncertainty_ns * collectives_per_step


def _replay_and_compare(
    facts: JobFacts, changes: Sequence[RankChange], no_answer: JobWhatIf, cached: bool
) -> JobWhatIf:
    """Replay the job with and without the changes, and compare the two.

    Args:
        facts: The ranks of the job, and what was computed from them.
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
    graphs = build_graphs(facts, changes, cached=cached)
    job = _replay_before_and_after(graphs, changes)

    residual_share = max(
        *(rank.residual_share for rank in graphs.ranks),
        job.before.residual_share,
        job.after.residual_share,
    )
    if residual_share > UNKNOWN:
        return msgspec.structs.replace(
            no_answer, residual_share=residual_share, why_not="not_understood"
        )

    summaries = facts.matched.ranks
    lengths = _measure_step_lengths(facts.clocks, graphs, job)
    arrivals_before = _sum_arrivals(
        facts.clocks, graphs.arrivals, job.before.arrived, rank_count=len(summaries)
    )
    arrivals_after = _sum_arrivals(
        facts.clocks, job.remaining, job.after.arrived, rank_count=len(summaries)
    )
    uncertainty_ns = round(_estimate_uncertainty_ns(facts))

    # It is not recorded when the workers of a data loader have its batches. That does
    # not matter if the change is that nobody waits for them.
    never_waits = "loader_never_waits" in graphs.notes
    batches_unknown = lengths.depend_on_batches and not never_waits
    notes = graphs.notes
    if batches_unknown:
        notes = (*notes, "batches_unknown")

    is_exact = residual_share == 0 and uncertainty_ns == 0
    saves_at_most = _is_upper_bound(changes, graphs, is_exact=is_exact)
    is_bound = saves_at_most or never_waits or batches_unknown

    return msgspec.structs.replace(
        no_answer,
        residual_share=residual_share,
        # All ranks have the same steps, so the names of the first rank will do.
        steps=_list_step_effects(summaries[0].steps, lengths),
        before_ns=lengths.before_ns,
        after_ns=lengths.after_ns,
        ranks=_compare_rank_effects(
            summaries, graphs, before=arrivals_before, after=arrivals_after
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


def _replay_before_and_after(
    graphs: JobGraphs, changes: Sequence[RankChange]
) -> _ReplayedJob:
    """Replay a job without and with changes.

    Args:
        graphs: The graphs of all ranks, without and with the changes.
        changes: The changes.

    Raises:
        NoAnswerError: If collectives wait for each other in a circle, or if the replay
            without changes does not give exactly the recorded times.
        WrongChangeError: For a change of a collective on some of its ranks only.
    """
    before = replay_job(graphs.graphs, graphs.arrivals)
    if before is None:
        raise NoAnswerError("not_replayed")
    for graph, replayed_times in zip(graphs.graphs, before.times, strict=True):
        if not np.array_equal(replayed_times, graph.recorded):
            raise NoAnswerError("not_replayed")

    has_changes_of_one = any(change.rank is not None for change in changes)
    remaining = drop_removed_collectives(graphs, has_changes_of_one=has_changes_of_one)
    after = replay_job(graphs.changed_graphs, remaining)
    if after is None:
        raise NoAnswerError("not_replayed")
    return _ReplayedJob(before=before, after=after, remaining=remaining)


class _StepLengths(msgspec.Struct, frozen=True, eq=False):
    """The lengths of the steps of a job, in ns; arrays have one entry per step."""

    before: Int64s
    after: Int64s
    in_median: Flags  # which steps count in the medians
    before_ns: int  # the median before the changes
    after_ns: int  # the median after the changes
    # whether the result differs if the workers of a data loader have their batches as
    # late as the recording allows
    depend_on_batches: bool


def _measure_step_lengths(
    clocks: Clocks, graphs: JobGraphs, job: _ReplayedJob
) -> _StepLengths:
    """Compute how long the steps of a job take before and after the changes.

    Args:
        clocks: The clocks of all ranks.
        graphs: The graphs of all ranks.
        job: The replays of the job without and with the changes.
    """
    recorded = [graph.recorded for graph in graphs.graphs]
    ends_before = _find_ends_of_steps(clocks, graphs, recorded, graphs.graphs)
    ends_after = _find_ends_of_steps(
        clocks, graphs, job.after.times, graphs.changed_graphs
    )
    before = step_launched(ends_before)
    after = step_launched(ends_after)
    with_late_batches = _measure_steps_with_late_batches(
        clocks, graphs, job.remaining, after
    )

    # The first step does not follow the end of another one, so it counts only if it is
    # the only one.
    in_median = np.ones(len(before), dtype=np.bool_)
    if len(before) > 1:
        in_median[0] = False
    after_ns = lower_median(after[in_median])
    with_late_batches_ns = lower_median(with_late_batches[in_median])
    return _StepLengths(
        before=before,
        after=after,
        in_median=in_median,
        before_ns=lower_median(before[in_median]),
        after_ns=after_ns,
        depend_on_batches=differ_notably(after_ns, with_late_batches_ns),
    )


def _is_upper_bound(
    changes: Sequence[RankChange], graphs: JobGraphs, *, is_exact: bool
) -> bool:
    """Return whether no job with these changes can save more than the replay does.

    That is so if the changes only remove waits and nothing was inferred. A removed wait
    may bring other delays that the replay does not know of, but no further gain.

    Args:
        changes: The changes.
        graphs: The graphs of all ranks.
        is_exact: Whether all of the job is understood, and its clocks are exact.
    """
    only_remove_waits = all(isinstance(change.change, Unsynced) for change in changes)
    all_are_certain = all(rank.is_certain for rank in graphs.ranks)
    return only_remove_waits and is_exact and all_are_certain


def _measure_steps_with_late_batches(
    clocks: Clocks,
    graphs: JobGraphs,
    remaining: CollectiveArrivals,
    steps_after: Int64s,
) -> Int64s:
    """Compute how long steps would be if batches were ready as late as possible.

    When the worker of a data loader has a batch ready is not recorded, only when the
    batch was taken. The result is compared with that for batches as early as possible.

    Args:
        clocks: The clocks of all ranks.
        graphs: The graphs of all ranks.
        remaining: The collectives that are left after the changes.
        steps_after: The lengths of steps with batches as early as possible. They are
            returned if no rank loads batches, or if the replay is circular.

    Returns:
        ns per step.
    """
    changed_graphs = graphs.changed_graphs
    some_load_batches = any(len(graph.batches.node) for graph in changed_graphs)
    if not some_load_batches:
        return steps_after
    late = replay_job(changed_graphs, remaining, late=True)
    if late is None:
        return steps_after
    ends = _find_ends_of_steps(clocks, graphs, late.times, changed_graphs)
    return step_launched(ends)


def _list_step_effects(
    names: Sequence[str], lengths: _StepLengths
) -> tuple[StepEffect, ...]:
    """List the length of each step before and after the changes.

    Args:
        names: The names of the steps as recorded; () in a job without steps.
        lengths: The lengths of the steps.
    """
    effects: list[StepEffect] = []
    for step, name in enumerate(labels_of(names)):
        effect = StepEffect(
            name=name,
            before_ns=int(lengths.before[step]),
            after_ns=int(lengths.after[step]),
            in_median=bool(lengths.in_median[step]),
        )
        effects.append(effect)
    return tuple(effects)


def _compare_rank_effects(
    summaries: Sequence[RankSummary],
    graphs: JobGraphs,
    *,
    before: _ArrivalSums,
    after: _ArrivalSums,
) -> tuple[RankThen, ...]:
    """Compare how each rank arrives at collectives before and after the changes.

    Args:
        summaries: The ranks.
        graphs: Their graphs.
        before: How each rank arrives without the changes.
        after: How it arrives with them.

    Returns:
        One entry per rank, in the order of `summaries`.
    """
    effects: list[RankThen] = []
    for index, (summary, rank) in enumerate(zip(summaries, graphs.ranks, strict=True)):
        effect = RankThen(
            rank=summary.rank,
            is_changed=rank.is_changed,
            last_before=int(before.last_count[index]),
            last_after=int(after.last_count[index]),
            waits_before_ns=int(before.waits_ns[index]),
            waits_after_ns=int(after.waits_ns[index]),
        )
        effects.append(effect)
    return tuple(effects)


def _find_ends_of_steps(
    clocks: Clocks,
    graphs: JobGraphs,
    times: Sequence[Times],
    replayed_graphs: Sequence[Graph],
) -> Int64s:
    """Return when the job begins its first step, and when it has ended each step.

    The rule is that of `steps.launched_bounds_of_job`.

    Args:
        clocks: The clocks of all ranks.
        graphs: The graphs of all ranks.
        times: The replayed times of each rank.
        replayed_graphs: The graph of each rank that these are times of: with the
            changes or without.

    Returns:
        The begin and the ends, one time more than steps, in ns.
    """
    bounds_of_ranks: list[Int64s] = []
    for index, rank in enumerate(graphs.ranks):
        recorded = measure_step_bounds(rank.graph, rank.graph.recorded, rank.ends)
        replayed = measure_step_bounds(replayed_graphs[index], times[index], rank.ends)

        # The drift of a clock is known at recorded times only. So the recorded bounds
        # are put on the common clock, and the replayed ones are shifted by as much.
        origin_ns = rank.graph.origin_ns + rank.epoch_ns
        rank_of_bound = np.full(len(recorded), index)
        recorded_common = clocks.to_common_clock(rank_of_bound, recorded + origin_ns)
        shift = recorded_common - recorded
        bounds_of_ranks.append(replayed + shift)
    return launched_bounds_of_job(bounds_of_ranks)


def _sum_arrivals(
    clocks: Clocks, arrivals: CollectiveArrivals, arrived: Int64s, *, rank_count: int
) -> _ArrivalSums:
    """Count how often each rank arrives last, and add up its waits.

    E.g. ranks that arrive at a collective at 3, 5 and 9 ns wait 6, 4 and 0 ns.

    Args:
        clocks: The clocks of all ranks.
        arrivals: The collectives, one row for each rank that takes part.
        arrived: When the rank of each row arrives, in ns on the clock of its graph.
        rank_count: How many ranks the job has.
    """
    common_arrived = arrived + arrivals.to_common_ns
    waits_ns = arrivals.find_last_arrivals(arrived) - common_arrived

    # Sort the rows of each collective by arrival; its last two rows arrive last.
    by_arrival = np.lexsort((common_arrived, arrivals.collective_of_row))
    last_position = np.flatnonzero(ends_runs(arrivals.collective_of_row))
    last_row = by_arrival[last_position]
    second_last_row = by_arrival[last_position - 1]

    # Which of the two is last is known if they are further apart than clocks are
    # uncertain.
    last_rank = arrivals.rank[last_row]
    second_last_rank = arrivals.rank[second_last_row]
    lead_ns = common_arrived[last_row] - common_arrived[second_last_row]
    resolution_ns = clocks.resolution_of(last_rank, second_last_rank)
    is_known = lead_ns > resolution_ns
    return _ArrivalSums(
        last_count=np.bincount(last_rank[is_known], minlength=rank_count),
        waits_ns=summed(arrivals.rank, waits_ns, rank_count),
    )
