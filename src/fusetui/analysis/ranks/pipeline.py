"""Pipelines: ranks that hand work on by sends and receives.

Waiting there is the pipeline's bubble and nobody's fault, so stages are compared by
what they compute in a step. Ranks that send to one another are a line of stages;
several lines beside each other (of data or tensor parallelism) have the same stages.
And which figures of ranks stand out.
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
from fusetui.trace.model.arrays import Flags, Floats, Rows
from fusetui.trace.model.intervals import union_length

SPAN = CLASSES.index("span")
COMPUTE = CLASSES.index("compute")
EXPOSED = CLASSES.index("exposed_comm")
NOT_OWN = ("span", "idle", "exposed_comm")
"""Classes that are no work of the rank itself, or the sums of others."""
NO_STAGE = -1
MAX_DEVIATIONS = 3
"""Scaled median absolute deviations: beyond them a figure stands out."""
MIN_SHARE_OF_STEP = 0.01
"""Of a step: less is no difference that matters."""
MIN_RANKS_FOR_DEVIATION = 4
"""Of fewer ranks, a median absolute deviation says nothing."""


class Pipeline(msgspec.Struct, frozen=True):
    """What sends and receives say about a job."""

    stage_of: tuple[int | None, ...]  # [ranks]
    stages: int  # 0 where they are not known
    # the share of a step in sends and receives alone; None without accounts
    bubble: float | None
    slow: tuple[Slow, ...]


def pipeline_of(matched: Matched, step_ns: float) -> Pipeline | None:
    """What sends and receives say about a job; None where they take at most half of the
    time in collectives: that is no pipeline. `step_ns`: the usual length of a step."""
    ranks = matched.ranks
    in_sends_ns = [_in_sends_ns(summary) for summary in ranks]
    in_collectives_ns = 0
    for summary in ranks:
        collectives = summary.collectives
        in_collectives_ns += union_length(collectives.start, collectives.end)
    if 2 * sum(in_sends_ns) <= in_collectives_ns:
        return None
    stage_of = _stages(matched)
    stages = max((stage + 1 for stage in stage_of if stage is not None), default=0)
    if not all(len(summary.accounts) for summary in ranks):
        return Pipeline(stage_of=stage_of, stages=stages, bubble=None, slow=())
    return Pipeline(
        stage_of=stage_of,
        stages=stages,
        bubble=_bubble(ranks, in_sends_ns, step_ns),
        slow=tuple(_slow(ranks, stage_of, MIN_STEP_SHARE * step_ns)),
    )


def _bubble(
    ranks: Sequence[RankSummary], in_sends_ns: Sequence[int], step_ns: float
) -> float:
    """The share of a step in which a rank does nothing but send or receive, the mean of
    all ranks. `in_sends_ns`: of each rank, in all steps."""
    shares: list[float] = []
    for sends_ns, summary in zip(in_sends_ns, ranks, strict=True):
        sends_a_step = sends_ns / max(len(summary.steps), 1)
        exposed_a_step = float(np.mean(summary.accounts[:, EXPOSED]))
        shares.append(min(sends_a_step, exposed_a_step) / step_ns)
    return float(np.mean(shares))


def _in_sends_ns(summary: RankSummary) -> int:
    """For how long a rank was in a send or a receive."""
    # one entry at least, so that it can be indexed where there are no collectives
    is_send_by_name = np.array(
        [name in POINT_TO_POINT for name in summary.names] or [False]
    )
    collectives = summary.collectives
    is_send = is_send_by_name[collectives.name]
    return union_length(collectives.start[is_send], collectives.end[is_send])


def _stages(matched: Matched) -> tuple[int | None, ...]:
    """The stage of each rank: its place in its line, counted from the end with the
    lower rank; None for a rank that is in no line."""
    neighbors = _neighbors(matched)
    stages: dict[int, int] = {}
    for first in sorted(neighbors):
        is_end = len(neighbors[first]) == 1
        if is_end and first not in stages:
            for stage, rank in enumerate(_line(neighbors, first)):
                stages[rank] = stage
    return tuple(stages.get(summary.rank) for summary in matched.ranks)


def _neighbors(matched: Matched) -> dict[int, set[int]]:
    """The ranks with which each rank exchanges sends and receives, by its number."""
    neighbors: dict[int, set[int]] = {}
    for name, group in set(zip(matched.names, matched.groups, strict=True)):
        if name.startswith("send_recv ") and len(group.ranks) == 2:
            first, second = group.ranks
            neighbors.setdefault(first, set()).add(second)
            neighbors.setdefault(second, set()).add(first)
    return neighbors


def _line(neighbors: dict[int, set[int]], first: int) -> Sequence[int]:
    """The ranks from one end of a line, `first`, to the other; () if one of them has
    more than two neighbors, so that it is no line."""
    line = [first]
    ahead = neighbors[first] - {first}
    while len(ahead) == 1:
        line += ahead
        behind_and_itself = set(line[-2:])
        ahead = neighbors[line[-1]] - behind_and_itself
    return () if ahead else line


class _Exceeding(msgspec.Struct, frozen=True):
    """A value that exceeds the median of the others."""

    place: int  # among the values
    excess: float
    others: float  # that median


def _slow(
    ranks: Sequence[RankSummary], stage_of: Sequence[int | None], min_ns: float
) -> Iterator[Slow]:
    """Ranks that compute longer than others of their stage, or else whose own time is
    longer; else the stage that computes longest, if that stands out."""
    accounts = np.array([np.median(summary.accounts, axis=0) for summary in ranks])
    stages = np.array([NO_STAGE if stage is None else stage for stage in stage_of])
    stage_count = int(stages.max()) + 1
    compute = accounts[:, COMPUTE]
    own_time = accounts[:, SPAN] - accounts[:, EXPOSED]
    by_compute = _exceeding_in_stages(compute, stages, min_ns)
    by_own_time = _exceeding_in_stages(own_time, stages, min_ns)
    for slow in by_compute:
        yield _slow_rank(slow, stage_of, stage_count, "compute")
    # Where several ranks have a longer own time, but none computes longer, which of
    # them is slow cannot be told.
    if not by_compute and len(by_own_time) == 1:
        (slow,) = by_own_time
        longest = _longest_class(accounts, stages, slow.place)
        yield _slow_rank(slow, stage_of, stage_count, longest)
    if not by_compute and not by_own_time and stage_count >= 2:
        yield from _slow_stages(ranks, stages, compute, min_ns)


def _slow_stages(
    ranks: Sequence[RankSummary], stages: Rows, compute: Floats, min_ns: float
) -> Iterator[Slow]:
    """The stages that compute longer than the others by at least `min_ns`. `stages`,
    `compute`: of each rank; every stage has a rank."""
    stage_count = int(stages.max()) + 1
    medians = [np.median(compute[stages == stage]) for stage in range(stage_count)]
    for slow_stage in _exceeding(np.array(medians), min_ns):
        of_stage = np.flatnonzero(stages == slow_stage.place).tolist()
        yield Slow(
            index=of_stage[0],
            stage=slow_stage.place,
            stages=stage_count,
            like=tuple(ranks[index].rank for index in of_stage),
            what="compute",
            excess_ns=round(slow_stage.excess),
            others_ns=round(slow_stage.others),
        )


def _slow_rank(
    exceeding: _Exceeding, stage_of: Sequence[int | None], stage_count: int, what: str
) -> Slow:
    """A rank, whose index is the place of `exceeding`, that is slow by the class
    `what`."""
    return Slow(
        index=exceeding.place,
        stage=stage_of[exceeding.place],
        stages=stage_count,
        like=(),
        what=what,
        excess_ns=round(exceeding.excess),
        others_ns=round(exceeding.others),
    )


def _exceeding_in_stages(
    values: Floats, stages: Rows, min_ns: float
) -> list[_Exceeding]:
    """The ranks (`place` is their index) whose value exceeds those of the others of
    their stage by at least `min_ns`; where no stage is known, those of all others.
    `values` and `stages`: of each rank."""
    none_is_known = stages.max() == NO_STAGE
    exceeding: list[_Exceeding] = []
    for stage in np.unique(stages).tolist():
        if stage == NO_STAGE and not none_is_known:
            continue
        ranks = np.flatnonzero(stages == stage)
        for in_stage in _exceeding(values[ranks], min_ns):
            rank = int(ranks[in_stage.place])
            exceeding.append(msgspec.structs.replace(in_stage, place=rank))
    return exceeding


def _longest_class(accounts: Floats, stages: Rows, rank: int) -> str:
    """The class of which a rank has most beyond the others of its stage."""
    is_other = (stages == stages[rank]) & (np.arange(len(stages)) != rank)
    excess = accounts[rank] - np.median(accounts[is_other], axis=0)
    counted = [place for place, name in enumerate(CLASSES) if name not in NOT_OWN]
    return CLASSES[max(counted, key=lambda place: float(excess[place]))]


def _exceeding(values: Floats, min_ns: float) -> Iterator[_Exceeding]:
    """Values that exceed the median of the others by at least `min_ns`, and, of
    MIN_RANKS_FOR_DEVIATION or more, the median of all by MAX_DEVIATIONS scaled median
    absolute deviations; the largest first. Of fewer, at most the largest."""
    if len(values) < 2:
        return
    middle, limit = middle_and_limit(values)
    are_few = len(values) < MIN_RANKS_FOR_DEVIATION
    candidates = np.argsort(-values, kind="stable").tolist()  # the largest first
    if are_few:
        candidates = candidates[:1]
    for place in candidates:
        others = float(np.median(np.delete(values, place)))
        excess = float(values[place]) - others
        stands_out = are_few or values[place] - middle > limit
        if excess >= min_ns and stands_out:
            yield _Exceeding(place=place, excess=excess, others=others)


class MiddleAndLimit(NamedTuple):
    """The median of values, and how far from it a value stands out."""

    middle: float
    limit: float


def middle_and_limit(values: Floats) -> MiddleAndLimit:
    """The median, and the distance from it beyond which a value stands out:
    MAX_DEVIATIONS scaled median absolute deviations."""
    middle = float(np.median(values))
    median_deviation = float(np.median(np.abs(values - middle)))
    limit = MAX_DEVIATIONS * SCALE * median_deviation
    return MiddleAndLimit(middle=middle, limit=limit)


def outliers(values: Floats, step_ns: float) -> Flags:
    """Which values (ns, nan where not known) lie further from the median than
    MAX_DEVIATIONS scaled median absolute deviations, and than MIN_SHARE_OF_STEP of a
    step; none if fewer than MIN_RANKS_FOR_DEVIATION are known."""
    known = values[~np.isnan(values)]
    if len(known) < MIN_RANKS_FOR_DEVIATION:
        return np.zeros(len(values), dtype=np.bool_)
    middle, limit = middle_and_limit(known)
    distance = np.nan_to_num(np.abs(values - middle))  # 0 where not known
    return distance > max(limit, MIN_SHARE_OF_STEP * step_ns)


def balance(values: Floats) -> float | None:
    """The mean as a share of the largest: 1 when all ranks have equally much. nan is a
    value that is not known; None if fewer than two are known, or all are 0."""
    known = values[~np.isnan(values)]
    if len(known) < 2 or known.max() <= 0:
        return None
    return float(known.mean() / known.max())
