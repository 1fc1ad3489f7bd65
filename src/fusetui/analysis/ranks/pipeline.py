"""Recognizes pipelines, and compares their ranks and stages.

In a pipeline ranks hand work on by sends and receives. Waiting there is the *bubble* of
the pipeline and nobody's fault, so stages are compared by what they compute in a step.
Ranks that send to one another are a line of stages. Several lines beside each other (of
data or tensor parallelism) have the same stages.

The module also has the rule by which a figure of a rank stands out among all ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.questions.collectives import POINT_TO_POINT
from fusetui.analysis.ranks.caused import MIN_STEP_SHARE
from fusetui.analysis.ranks.clocks import SCALE
from fusetui.analysis.ranks.matching import Matched
from fusetui.analysis.ranks.model import CLASSES, RankSummary, Slow
from fusetui.trace.model.arrays import Flags, Floats, Rows, distinct
from fusetui.trace.model.intervals import union_length

SPAN = CLASSES.index("span")
COMPUTE = CLASSES.index("compute")
EXPOSED = CLASSES.index("exposed_comm")
NOT_OWN = ("span", "idle", "exposed_comm")
"""Classes of an account that are no work of the rank itself, or the sums of others."""
NO_STAGE = -1
"""In place of a stage, for a rank whose stage is not known."""
MAX_DEVIATIONS = 3
"""A figure stands out if it lies more than so many scaled median absolute deviations
from the median."""
MIN_SHARE_OF_STEP = 0.01
"""Differences of less than this share of a step do not matter."""
MIN_RANKS_FOR_DEVIATION = 4
"""With fewer ranks than this, a median absolute deviation says nothing."""


class Pipeline(msgspec.Struct, frozen=True):
    """The pipeline that the sends and receives of a job show.

    Its ranks hand work on from *stage* to stage. The *bubble* is the time in which a
    rank does nothing but wait for work from another stage.
    """

    stage_of: tuple[int | None, ...]  # the stage of each rank, from 0; None if unknown
    stages: int  # how many stages there are, 0 where they are not known
    # the share of a step in sends and receives alone; None without accounts
    bubble: float | None
    slow: tuple[Slow, ...]  # the ranks or stages that hold up the pipeline


def recognize_pipeline(matched: Matched, step_ns: float) -> Pipeline | None:
    """Recognize the pipeline of a job by its sends and receives.

    Args:
        matched: The collectives of the job.
        step_ns: The usual length of a step.

    Returns:
        The pipeline. None if sends and receives take at most half of the time in
        collectives.
    """
    ranks = matched.ranks
    send_ns_of_ranks = [_measure_send_ns(summary) for summary in ranks]
    in_collectives_ns = 0
    for summary in ranks:
        collectives = summary.collectives
        in_collectives_ns += union_length(collectives.start, collectives.end)
    sends_take_most_time = 2 * sum(send_ns_of_ranks) > in_collectives_ns
    if not sends_take_most_time:
        return None

    stage_of = _assign_stages(matched)
    known_stages = [stage for stage in stage_of if stage is not None]
    stage_count = 1 + max(known_stages, default=-1)  # 0 if none is known
    all_have_accounts = all(len(summary.accounts) for summary in ranks)
    if not all_have_accounts:
        return Pipeline(stage_of=stage_of, stages=stage_count, bubble=None, slow=())

    min_ns = MIN_STEP_SHARE * step_ns
    return Pipeline(
        stage_of=stage_of,
        stages=stage_count,
        bubble=_measure_bubble(ranks, send_ns_of_ranks, step_ns),
        slow=tuple(_find_slow_ranks_or_stages(ranks, stage_of, min_ns)),
    )


def _measure_bubble(
    ranks: Sequence[RankSummary], send_ns_of_ranks: Sequence[int], step_ns: float
) -> float:
    """Measure the bubble: the share of a step in which a rank does nothing but send or
    receive.

    Args:
        ranks: The ranks, each with the accounts of its steps.
        send_ns_of_ranks: The time of each rank in sends and receives, in all steps.
        step_ns: The usual length of a step.

    Returns:
        The mean share of all ranks.
    """
    shares: list[float] = []
    for send_ns, summary in zip(send_ns_of_ranks, ranks, strict=True):
        send_ns_per_step = send_ns / max(len(summary.steps), 1)
        # Only communication that nothing else covers leaves the rank without work.
        exposed_ns_per_step = float(np.mean(summary.accounts[:, EXPOSED]))
        shares.append(min(send_ns_per_step, exposed_ns_per_step) / step_ns)
    return float(np.mean(shares))


def _measure_send_ns(summary: RankSummary) -> int:
    """Measure for how many ns a rank was in a send or a receive, counting overlaps
    once."""
    # Collectives have the indices of their names.
    indices_of_sends = []
    for index, name in enumerate(summary.names):
        if name in POINT_TO_POINT:
            indices_of_sends.append(index)

    collectives = summary.collectives
    is_send = np.isin(collectives.name, indices_of_sends)
    return union_length(collectives.start[is_send], collectives.end[is_send])


def _assign_stages(matched: Matched) -> tuple[int | None, ...]:
    """Assign each rank its pipeline stage; None for a rank that is in no line.

    Ranks that send to one another are a line of stages. A stage is the position of the
    rank in its line, counted from the end of the line that has the lower rank. E.g. if
    rank 0 sends to 2, and 2 to 4, their stages are 0, 1 and 2.
    """
    neighbors = _find_neighbors(matched)
    stage_of_rank: dict[int, int] = {}
    for rank in sorted(neighbors):
        is_end_of_line = len(neighbors[rank]) == 1
        is_other_end = rank in stage_of_rank  # of a line that was followed before
        if is_end_of_line and not is_other_end:
            for stage, rank_in_line in enumerate(_follow_line(neighbors, rank)):
                stage_of_rank[rank_in_line] = stage
    return tuple(stage_of_rank.get(summary.rank) for summary in matched.ranks)


def _find_neighbors(matched: Matched) -> dict[int, set[int]]:
    """Find the ranks with which each rank exchanges sends and receives.

    Returns:
        The numbers of the neighbors by the number of each rank. Ranks without any are
        left out.
    """
    neighbors: dict[int, set[int]] = {}
    for name, group in set(zip(matched.names, matched.groups, strict=True)):
        if name.startswith("send_recv ") and len(group.ranks) == 2:
            first, second = group.ranks
            neighbors.setdefault(first, set()).add(second)
            neighbors.setdefault(second, set()).add(first)
    return neighbors


def _follow_line(neighbors: dict[int, set[int]], first: int) -> Sequence[int]:
    """Follow a line of ranks from one end to the other.

    E.g. if rank 0 exchanges data with 2, 2 also with 4, and 4 with nobody else, the
    line from 0 on is 0, 2, 4.

    Args:
        neighbors: The ranks with which each rank exchanges data.
        first: A rank with one neighbor, where the line begins.

    Returns:
        The ranks of the line; none if one of them has more than two neighbors, because
        then it is no line.
    """
    line = [first]
    next_ranks = neighbors[first] - {first}
    while next_ranks:
        if len(next_ranks) > 1:
            return ()
        (next_rank,) = next_ranks
        next_ranks = neighbors[next_rank] - {line[-1], next_rank}
        line.append(next_rank)
    return line


class _OutlierAbove(msgspec.Struct, frozen=True):
    """A value that exceeds the median of the other values."""

    position: int  # its index among the values
    excess: float  # by how much it exceeds that median
    others: float  # that median


def _find_slow_ranks_or_stages(
    ranks: Sequence[RankSummary], stage_of: Sequence[int | None], min_ns: float
) -> Iterator[Slow]:
    """Yield the ranks or the stage that hold up a pipeline.

    These are ranks that compute longer than others of their stage. Failing that, it is
    the rank whose own time is longer; failing that, the stage that computes longest, if
    it stands out.

    Args:
        ranks: The ranks.
        stage_of: The stage of each rank.
        min_ns: The least excess in a step that counts.
    """
    accounts = np.array([np.median(summary.accounts, axis=0) for summary in ranks])
    stages = np.array([NO_STAGE if stage is None else stage for stage in stage_of])
    stage_count = int(stages.max()) + 1  # 0 if no stage is known
    compute_ns = accounts[:, COMPUTE]
    own_ns = accounts[:, SPAN] - accounts[:, EXPOSED]

    slow_by_compute = _find_ranks_above_stage(compute_ns, stages, min_ns)
    if slow_by_compute:
        for slow in slow_by_compute:
            yield _describe_slow_rank(slow, stage_of, stage_count, "compute")
        return

    slow_by_own_time = _find_ranks_above_stage(own_ns, stages, min_ns)
    if slow_by_own_time:
        # If several ranks have a longer own time, but none computes longer, it cannot
        # be told which of them is slow.
        if len(slow_by_own_time) == 1:
            slow = slow_by_own_time[0]
            longest = _find_longest_class(accounts, stages, slow.position)
            yield _describe_slow_rank(slow, stage_of, stage_count, longest)
        return

    if stage_count >= 2:
        yield from _find_slow_stages(ranks, stages, compute_ns, min_ns)


def _find_slow_stages(
    ranks: Sequence[RankSummary], stages: Rows, compute_ns: Floats, min_ns: float
) -> Iterator[Slow]:
    """Yield the stages that compute longer than the others.

    Args:
        ranks: The ranks.
        stages: The stage of each rank. Every stage has a rank.
        compute_ns: How long each rank computes in a step.
        min_ns: The least excess that counts.
    """
    stage_count = int(stages.max()) + 1
    median_ns = [np.median(compute_ns[stages == stage]) for stage in range(stage_count)]
    for slow in _find_values_above_others(np.array(median_ns), min_ns):
        stage = slow.position
        ranks_of_stage = np.flatnonzero(stages == stage).tolist()
        yield Slow(
            index=ranks_of_stage[0],
            stage=stage,
            stages=stage_count,
            like=tuple(ranks[index].rank for index in ranks_of_stage),
            what="compute",
            excess_ns=round(slow.excess),
            others_ns=round(slow.others),
        )


def _describe_slow_rank(
    above: _OutlierAbove,
    stage_of: Sequence[int | None],
    stage_count: int,
    what: str,
) -> Slow:
    """Describe a rank that is slower than the other ranks of its pipeline stage.

    Args:
        above: By how much it is slower. Its position is the index of the rank.
        stage_of: The stage of each rank.
        stage_count: How many stages there are.
        what: In which class of time, such as compute, it takes longer.
    """
    rank = above.position
    return Slow(
        index=rank,
        stage=stage_of[rank],
        stages=stage_count,
        like=(),
        what=what,
        excess_ns=round(above.excess),
        others_ns=round(above.others),
    )


def _find_ranks_above_stage(
    values: Floats, stages: Rows, min_ns: float
) -> list[_OutlierAbove]:
    """Find the ranks whose value exceeds those of the other ranks of their stage.

    If no stage is known, each rank is compared with all others. If some are known, the
    ranks without a stage are left out.

    Args:
        values: A value of each rank, in ns.
        stages: The stage of each rank, NO_STAGE where it is unknown.
        min_ns: The least excess that counts.

    Returns:
        The ranks; their position is the index of the rank.
    """
    stages_to_compare = distinct(stages).tolist()
    if len(stages_to_compare) > 1 and NO_STAGE in stages_to_compare:
        stages_to_compare.remove(NO_STAGE)

    above: list[_OutlierAbove] = []
    for stage in stages_to_compare:
        ranks_of_stage = np.flatnonzero(stages == stage)
        for in_stage in _find_values_above_others(values[ranks_of_stage], min_ns):
            rank = int(ranks_of_stage[in_stage.position])
            above.append(msgspec.structs.replace(in_stage, position=rank))
    return above


def _find_longest_class(accounts: Floats, stages: Rows, rank: int) -> str:
    """Return the kind of time by which a rank exceeds the others of its stage most.

    E.g. "compute", or a kind of idle time such as "launch". Times that are no work of
    the rank itself (NOT_OWN) do not count.

    Args:
        accounts: The median account of each rank, of shape [ranks, CLASSES].
        stages: The stage of each rank.
        rank: The index of the rank.
    """
    is_other = stages == stages[rank]
    is_other[rank] = False
    median_of_others = np.median(accounts[is_other], axis=0)
    excess_ns = (accounts[rank] - median_of_others).tolist()
    excess_of_own_class = {}
    for name, ns in zip(CLASSES, excess_ns, strict=True):
        if name not in NOT_OWN:
            excess_of_own_class[name] = ns
    return max(excess_of_own_class, key=excess_of_own_class.__getitem__)


def _find_values_above_others(values: Floats, min_ns: float) -> Iterator[_OutlierAbove]:
    """Yield the values that exceed the median of the others, the largest first.

    Among MIN_RANKS_FOR_DEVIATION values or more, a value must also exceed the median of
    all by MAX_DEVIATIONS scaled median absolute deviations. Among fewer, only the
    largest is considered. E.g. of 10, 18 and 11 ns it is 18, at position 1, which
    exceeds the median 10.5 of the others by 7.5 ns.

    Args:
        values: The values, in ns.
        min_ns: The least excess that counts.
    """
    if len(values) < 2:
        return

    largest_first = np.argsort(-values, kind="stable").tolist()
    if len(values) < MIN_RANKS_FOR_DEVIATION:
        candidates = largest_first[:1]
    else:
        middle, limit = measure_middle_and_limit(values)
        candidates = [
            index for index in largest_first if values[index] - middle > limit
        ]

    for index in candidates:
        median_of_others = float(np.median(np.delete(values, index)))
        excess = float(values[index]) - median_of_others
        if excess >= min_ns:
            yield _OutlierAbove(position=index, excess=excess, others=median_of_others)


class MiddleAndLimit(NamedTuple):
    """The median of values, and how far from it a value stands out."""

    middle: float
    limit: float


def measure_middle_and_limit(values: Floats) -> MiddleAndLimit:
    """Measure the median, and the distance from it beyond which a value stands out.

    The distance is MAX_DEVIATIONS scaled median absolute deviations. E.g. for 9, 10,
    10, 11 and 30, the median is 10, and the distance 3 * 1.4826 * 1.
    """
    middle = float(np.median(values))
    median_deviation = float(np.median(np.abs(values - middle)))
    limit = MAX_DEVIATIONS * SCALE * median_deviation
    return MiddleAndLimit(middle=middle, limit=limit)


def mark_outliers(values: Floats, step_ns: float) -> Flags:
    """Mark the values that stand out among all.

    They lie further from the median than MAX_DEVIATIONS scaled median absolute
    deviations, and further than MIN_SHARE_OF_STEP of a step. E.g. of 9, 10, 10, 11 and
    30 ns, in steps of 100 ns, only 30 does.

    Args:
        values: The values in ns, nan for an unknown one.
        step_ns: The length of a step.

    Returns:
        One flag per value; none is set if fewer than MIN_RANKS_FOR_DEVIATION are known.
    """
    is_known = ~np.isnan(values)
    if np.count_nonzero(is_known) < MIN_RANKS_FOR_DEVIATION:
        return np.zeros(len(values), dtype=np.bool_)

    middle, limit = measure_middle_and_limit(values[is_known])
    min_distance = max(limit, MIN_SHARE_OF_STEP * step_ns)
    return is_known & (np.abs(values - middle) > min_distance)


def measure_balance(values: Floats) -> float | None:
    """Measure how balanced values are: the mean as a share of the largest value.

    It is 1 if all ranks have the same value, and 0.75 for the values 5 and 10.

    Args:
        values: A value of each rank, nan for an unknown one.

    Returns:
        The share; None if fewer than two values are known, or if all are 0.
    """
    known_values = values[~np.isnan(values)]
    if len(known_values) < 2 or known_values.max() <= 0:
        return None
    return float(known_values.mean() / known_values.max())
