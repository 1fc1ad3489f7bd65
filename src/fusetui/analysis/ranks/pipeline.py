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
    if 2 * sum(send_ns_of_ranks) <= in_collectives_ns:
        return None

    stage_of = _assign_stages(matched)
    stages = max((stage + 1 for stage in stage_of if stage is not None), default=0)
    if not all(len(summary.accounts) for summary in ranks):
        return Pipeline(stage_of=stage_of, stages=stages, bubble=None, slow=())
    return Pipeline(
        stage_of=stage_of,
        stages=stages,
        bubble=_measure_bubble(ranks, send_ns_of_ranks, step_ns),
        slow=tuple(
            _find_slow_ranks_or_stages(ranks, stage_of, MIN_STEP_SHARE * step_ns)
        ),
    )


def _measure_bubble(
    ranks: Sequence[RankSummary], send_ns_of_ranks: Sequence[int], step_ns: float
) -> float:
    """Measure the bubble: the share of a step in which a rank does nothing but send or
    receive.

    Args:
        ranks: The ranks.
        send_ns_of_ranks: The time of each rank in sends and receives, in all steps.
        step_ns: The usual length of a step.

    Returns:
        The mean share of all ranks.
    """
    shares: list[float] = []
    for sends_ns, summary in zip(send_ns_of_ranks, ranks, strict=True):
        sends_per_step = sends_ns / max(len(summary.steps), 1)
        exposed_per_step = float(np.mean(summary.accounts[:, EXPOSED]))
        shares.append(min(sends_per_step, exposed_per_step) / step_ns)
    return float(np.mean(shares))


def _measure_send_ns(summary: RankSummary) -> int:
    """Measure for how many ns a rank was in a send or a receive, counting overlaps
    once."""
    # A rank may have no collectives, but numpy cannot index an empty list.
    is_send_name = np.array(
        [name in POINT_TO_POINT for name in summary.names] or [False]
    )
    collectives = summary.collectives
    is_send = is_send_name[collectives.name]
    return union_length(collectives.start[is_send], collectives.end[is_send])


def _assign_stages(matched: Matched) -> tuple[int | None, ...]:
    """Assign each rank its pipeline stage; None for a rank that is in no line.

    Ranks that send to one another are a line of stages. A stage is the position of the
    rank in its line, counted from the end of the line that has the lower rank.
    """
    neighbors = _find_neighbors(matched)
    stages: dict[int, int] = {}
    for first in sorted(neighbors):
        is_end_of_line = len(neighbors[first]) == 1
        if is_end_of_line and first not in stages:
            for stage, rank in enumerate(_follow_line(neighbors, first)):
                stages[rank] = stage
    return tuple(stages.get(summary.rank) for summary in matched.ranks)


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

    Args:
        neighbors: The ranks with which each rank exchanges data.
        first: A rank with one neighbor, where the line begins.

    Returns:
        The ranks of the line; none if one of them has more than two neighbors, because
        then it is no line.
    """
    line = [first]
    next_ranks = neighbors[first] - {first}
    while len(next_ranks) == 1:
        line += next_ranks
        previous_and_current = set(line[-2:])
        next_ranks = neighbors[line[-1]] - previous_and_current
    return () if next_ranks else line


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
    stage_count = int(stages.max()) + 1
    compute = accounts[:, COMPUTE]
    own_time = accounts[:, SPAN] - accounts[:, EXPOSED]

    by_compute = _find_ranks_above_stage(compute, stages, min_ns)
    by_own_time = _find_ranks_above_stage(own_time, stages, min_ns)
    for slow in by_compute:
        yield _describe_slow_rank(slow, stage_of, stage_count, "compute")

    # If several ranks have a longer own time, but none computes longer, it cannot be
    # told which of them is slow.
    if not by_compute and len(by_own_time) == 1:
        (slow,) = by_own_time
        longest = _find_longest_class(accounts, stages, slow.position)
        yield _describe_slow_rank(slow, stage_of, stage_count, longest)

    if not by_compute and not by_own_time and stage_count >= 2:
        yield from _find_slow_stages(ranks, stages, compute, min_ns)


def _find_slow_stages(
    ranks: Sequence[RankSummary], stages: Rows, compute: Floats, min_ns: float
) -> Iterator[Slow]:
    """Yield the stages that compute longer than the others.

    Args:
        ranks: The ranks.
        stages: The stage of each rank. Every stage has a rank.
        compute: How long each rank computes in a step, in ns.
        min_ns: The least excess that counts.
    """
    stage_count = int(stages.max()) + 1
    medians = [np.median(compute[stages == stage]) for stage in range(stage_count)]
    for slow_stage in _find_values_above_others(np.array(medians), min_ns):
        ranks_of_stage = np.flatnonzero(stages == slow_stage.position).tolist()
        yield Slow(
            index=ranks_of_stage[0],
            stage=slow_stage.position,
            stages=stage_count,
            like=tuple(ranks[index].rank for index in ranks_of_stage),
            what="compute",
            excess_ns=round(slow_stage.excess),
            others_ns=round(slow_stage.others),
        )


def _describe_slow_rank(
    exceeding: _OutlierAbove,
    stage_of: Sequence[int | None],
    stage_count: int,
    what: str,
) -> Slow:
    """Describe a slow rank.

    Args:
        exceeding: The excess of the rank, whose index is its position.
        stage_of: The stage of each rank.
        stage_count: How many stages there are.
        what: The class of its account that is longer.
    """
    return Slow(
        index=exceeding.position,
        stage=stage_of[exceeding.position],
        stages=stage_count,
        like=(),
        what=what,
        excess_ns=round(exceeding.excess),
        others_ns=round(exceeding.others),
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
    no_stage_is_known = stages.max() == NO_STAGE
    exceeding: list[_OutlierAbove] = []
    for stage in distinct(stages).tolist():
        if stage == NO_STAGE and not no_stage_is_known:
            continue
        ranks = np.flatnonzero(stages == stage)
        for in_stage in _find_values_above_others(values[ranks], min_ns):
            rank = int(ranks[in_stage.position])
            exceeding.append(msgspec.structs.replace(in_stage, position=rank))
    return exceeding


def _find_longest_class(accounts: Floats, stages: Rows, rank: int) -> str:
    """Return the kind of time by which a rank exceeds the others of its stage most.

    E.g. "compute", or a kind of idle time such as "launch". Times that are no work of
    the rank itself (NOT_OWN) do not count.

    Args:
        accounts: The median account of each rank, of shape [ranks, CLASSES].
        stages: The stage of each rank.
        rank: The index of the rank.
    """
    is_other = (stages == stages[rank]) & (np.arange(len(stages)) != rank)
    excess_ns = accounts[rank] - np.median(accounts[is_other], axis=0)
    excess_of_class = dict(zip(CLASSES, excess_ns.tolist(), strict=True))
    own_classes = [name for name in CLASSES if name not in NOT_OWN]
    return max(own_classes, key=excess_of_class.__getitem__)


def _find_values_above_others(values: Floats, min_ns: float) -> Iterator[_OutlierAbove]:
    """Yield the values that exceed the median of the others, the largest first.

    Among MIN_RANKS_FOR_DEVIATION values or more, a value must also exceed the median of
    all by MAX_DEVIATIONS scaled median absolute deviations. Among fewer, only the
    largest is considered.

    Args:
        values: The values, in ns.
        min_ns: The least excess that counts.
    """
    if len(values) < 2:
        return

    middle, limit = measure_middle_and_limit(values)
    are_few = len(values) < MIN_RANKS_FOR_DEVIATION
    largest_first = np.argsort(-values, kind="stable").tolist()
    candidates = largest_first[:1] if are_few else largest_first
    for index in candidates:
        others = float(np.median(np.delete(values, index)))
        excess = float(values[index]) - others
        stands_out = are_few or values[index] - middle > limit
        if excess >= min_ns and stands_out:
            yield _OutlierAbove(position=index, excess=excess, others=others)


class MiddleAndLimit(NamedTuple):
    """The median of values, and how far from it a value stands out."""

    middle: float
    limit: float


def measure_middle_and_limit(values: Floats) -> MiddleAndLimit:
    """Measure the median, and the distance from it beyond which a value stands out.

    The distance is MAX_DEVIATIONS scaled median absolute deviations.
    """
    middle = float(np.median(values))
    median_deviation = float(np.median(np.abs(values - middle)))
    limit = MAX_DEVIATIONS * SCALE * median_deviation
    return MiddleAndLimit(middle=middle, limit=limit)


def outliers(values: Floats, step_ns: float) -> Flags:
    """Mark the values that stand out among all.

    They lie further from the median than MAX_DEVIATIONS scaled median absolute
    deviations, and further than MIN_SHARE_OF_STEP of a step.

    Args:
        values: The values in ns, nan for an unknown one.
        step_ns: The length of a step.

    Returns:
        One flag per value; none is set if fewer than MIN_RANKS_FOR_DEVIATION are known.
    """
    known_values = values[~np.isnan(values)]
    if len(known_values) < MIN_RANKS_FOR_DEVIATION:
        return np.zeros(len(values), dtype=np.bool_)
    middle, limit = measure_middle_and_limit(known_values)
    distance = np.nan_to_num(np.abs(values - middle))  # 0 for unknown values
    return distance > max(limit, MIN_SHARE_OF_STEP * step_ns)


def balance(values: Floats) -> float | None:
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
