"""Pipelines: ranks that hand work on by sends and receives.

Waiting there is the pipeline's bubble and nobody's fault, so stages are compared by
what they compute in a step. Ranks that send to one another are a line of stages;
several lines beside each other (of data or tensor parallelism) have the same stages.
And which figures of ranks stand out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

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


class Pipeline(msgspec.Struct, frozen=True):
    """What sends and receives say about a job."""

    stage_of: tuple[int | None, ...]  # [ranks]
    stages: int  # 0 where they are not known
    # the share of a step in sends and receives alone; None without accounts
    bubble: float | None
    slow: tuple[Slow, ...]


def pipeline_of(matched: Matched, step_ns: float) -> Pipeline | None:
    """None where sends and receives take at most half of the time in collectives: no
    pipeline."""
    ranks = matched.ranks
    in_sends_ns = [_in_sends_ns(summary) for summary in ranks]
    in_collectives_ns = [
        union_length(summary.collectives.start, summary.collectives.end)
        for summary in ranks
    ]
    if 2 * sum(in_sends_ns) <= sum(in_collectives_ns):
        return None
    stage_of = _stages(matched)
    stages = max((stage + 1 for stage in stage_of if stage is not None), default=0)
    if not all(len(summary.accounts) for summary in ranks):
        return Pipeline(stage_of=stage_of, stages=stages, bubble=None, slow=())
    shares: list[float] = []
    for sends_ns, summary in zip(in_sends_ns, ranks, strict=True):
        sends_a_step = sends_ns / max(len(summary.steps), 1)
        exposed_a_step = float(np.mean(summary.accounts[:, EXPOSED]))
        shares.append(min(sends_a_step, exposed_a_step) / step_ns)
    return Pipeline(
        stage_of=stage_of,
        stages=stages,
        bubble=float(np.mean(shares)),
        slow=tuple(_slow(ranks, stage_of, MIN_STEP_SHARE * step_ns)),
    )


def _in_sends_ns(summary: RankSummary) -> int:
    """For how long a rank was in a send or a receive."""
    sends = np.array([name in POINT_TO_POINT for name in summary.names] or [False])
    collectives = summary.collectives
    is_send = sends[collectives.name]
    return union_length(collectives.start[is_send], collectives.end[is_send])


def _stages(matched: Matched) -> tuple[int | None, ...]:
    """The place of each rank in its line, the end with the lowest rank first."""
    neighbors: dict[int, set[int]] = {}
    for name, group in set(zip(matched.names, matched.groups, strict=True)):
        if name.startswith("send_recv ") and len(group.ranks) == 2:
            for rank, other in itertools.permutations(group.ranks):
                neighbors.setdefault(rank, set()).add(other)
    stages: dict[int, int] = {}
    for first in sorted(neighbors):
        is_end = len(neighbors[first]) == 1
        if is_end and first not in stages:
            for stage, rank in enumerate(_line(neighbors, first)):
                stages[rank] = stage
    return tuple(stages.get(summary.rank) for summary in matched.ranks)


def _line(neighbors: dict[int, set[int]], first: int) -> Sequence[int]:
    """The ranks from one end of a line to the other; () if it is none."""
    line = [first]
    ahead = neighbors[first] - {first}
    while len(ahead) == 1:
        line += ahead
        ahead = neighbors[line[-1]] - set(line[-2:])
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
    for one in by_compute:
        yield _slow_rank(one, stage_of, stage_count, "compute")
    if not by_compute and len(by_own_time) == 1:
        (one,) = by_own_time
        longest = _longest_class(accounts, stages, one.place)
        yield _slow_rank(one, stage_of, stage_count, longest)
    if by_compute or by_own_time or stage_count < 2:
        return
    medians = [np.median(compute[stages == stage]) for stage in range(stage_count)]
    for one in _exceeding(np.array(medians), min_ns):
        of_stage = np.flatnonzero(stages == one.place).tolist()
        yield Slow(
            index=of_stage[0],
            stage=one.place,
            stages=stage_count,
            like=tuple(ranks[index].rank for index in of_stage),
            what="compute",
            excess_ns=round(one.excess),
            others_ns=round(one.others),
        )


def _slow_rank(
    one: _Exceeding, stage_of: Sequence[int | None], stage_count: int, what: str
) -> Slow:
    return Slow(
        index=one.place,
        stage=stage_of[one.place],
        stages=stage_count,
        like=(),
        what=what,
        excess_ns=round(one.excess),
        others_ns=round(one.others),
    )


def _exceeding_in_stages(
    values: Floats, stages: Rows, min_ns: float
) -> list[_Exceeding]:
    """Ranks that exceed those of their stage; of all ranks where stages are not
    known."""
    none_is_known = stages.max() == NO_STAGE
    exceeding: list[_Exceeding] = []
    for stage in np.unique(stages).tolist():
        if stage == NO_STAGE and not none_is_known:
            continue
        ranks = np.flatnonzero(stages == stage)
        for one in _exceeding(values[ranks], min_ns):
            rank = int(ranks[one.place])
            exceeding.append(msgspec.structs.replace(one, place=rank))
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
    largest_first = np.argsort(-values, kind="stable").tolist()
    for place in largest_first[:1] if are_few else largest_first:
        others = float(np.median(np.delete(values, place)))
        stands_out = are_few or values[place] - middle > limit
        if values[place] - others >= min_ns and stands_out:
            excess = float(values[place]) - others
            yield _Exceeding(place=place, excess=excess, others=others)


def middle_and_limit(values: Floats) -> tuple[float, float]:
    """The median, and how far from it a value stands out."""
    middle = float(np.median(values))
    return middle, MAX_DEVIATIONS * SCALE * float(np.median(np.abs(values - middle)))


def outliers(values: Floats, step: float) -> Flags:
    """Which values lie more than 3 scaled median absolute deviations, and more than 1 %
    of a step (ns), from the median; none of fewer than 4. nan is a value that is not
    known."""
    known = values[~np.isnan(values)]
    if len(known) < MIN_RANKS_FOR_DEVIATION:
        return np.zeros(len(values), dtype=np.bool_)
    middle, limit = middle_and_limit(known)
    return np.nan_to_num(np.abs(values - middle)) > max(limit, MIN_SHARE_OF_STEP * step)


def balance(values: Floats) -> float | None:
    """The mean as a share of the largest: 1 when all ranks have equally much; None if
    not known."""
    known = values[~np.isnan(values)]
    return (
        float(known.mean() / known.max())
        if len(known) > 1 and known.max() > 0
        else None
    )
