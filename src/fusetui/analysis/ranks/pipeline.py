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

SPAN, COMPUTE, EXPOSED = (
    CLASSES.index(name) for name in ("span", "compute", "exposed_comm")
)


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
    spans = [_in_sends(one) for one in matched.ranks]
    every = (one.collectives for one in matched.ranks)
    if 2 * sum(spans) <= sum(union_length(own.start, own.end) for own in every):
        return None
    stage_of = _stages(matched)
    stages = max((stage + 1 for stage in stage_of if stage is not None), default=0)
    if not all(len(one.accounts) for one in matched.ranks):
        return Pipeline(stage_of, stages, None, ())
    accounts = np.array([np.median(one.accounts, axis=0) for one in matched.ranks])
    shares = [
        min(span / max(len(one.steps), 1), float(np.mean(one.accounts[:, EXPOSED])))
        / step_ns
        for span, one in zip(spans, matched.ranks, strict=True)
    ]
    slow = tuple(
        _slow(
            accounts,
            [one.rank for one in matched.ranks],
            stage_of,
            MIN_STEP_SHARE * step_ns,
        )
    )
    return Pipeline(stage_of, stages, float(np.mean(shares)), slow)


def _in_sends(one: RankSummary) -> int:
    """For how many ns of its steps a rank was in a send or a receive."""
    moves = np.array([name in POINT_TO_POINT for name in one.names] or [False])
    which = moves[one.collectives.name]
    return union_length(one.collectives.start[which], one.collectives.end[which])


def _stages(matched: Matched) -> tuple[int | None, ...]:
    """The place of each rank in its line, the end with the lowest rank first."""
    near: dict[int, set[int]] = {}
    for name, group in set(zip(matched.names, matched.groups, strict=True)):
        if name.startswith("send_recv ") and len(group.ranks) == 2:
            for one, other in itertools.permutations(group.ranks):
                near.setdefault(one, set()).add(other)
    place: dict[int, int] = {}
    for first in sorted(near):
        if len(near[first]) == 1 and first not in place:
            place.update({rank: n for n, rank in enumerate(_line(near, first))})
    return tuple(place.get(one.rank) for one in matched.ranks)


def _line(near: dict[int, set[int]], first: int) -> Sequence[int]:
    """The ranks from one end of a line to the other; () if it is none."""
    line = [first]
    while len(ahead := near[line[-1]] - set(line[-2:])) == 1:
        line += ahead
    return () if ahead else line


def _slow(
    accounts: Floats, ranks: Sequence[int], stage_of: Sequence[int | None], least: float
) -> Iterator[Slow]:
    """Ranks that compute longer than others of their stage, or else whose own time is
    longer; else the stage that computes longest, if that stands out. `accounts` [ranks,
    CLASSES]."""
    places = np.array([-1 if stage is None else stage for stage in stage_of])
    stages = int(places.max()) + 1
    compute, own = accounts[:, COMPUTE], accounts[:, SPAN] - accounts[:, EXPOSED]
    by_compute, by_own = (
        list(_in_stages(values, places, least)) for values in (compute, own)
    )
    for rank, excess, others in by_compute or (by_own if len(by_own) == 1 else []):
        what = "compute" if by_compute else _longer(accounts, places, rank)
        yield Slow(rank, stage_of[rank], stages, (), what, round(excess), round(others))
    if by_compute or by_own or stages < 2:
        return
    middle = np.array([np.median(compute[places == stage]) for stage in range(stages)])
    for stage, excess, others in _above(middle, least):
        own_ranks = np.flatnonzero(places == stage).tolist()
        like = tuple(ranks[n] for n in own_ranks)
        yield Slow(
            own_ranks[0], stage, stages, like, "compute", round(excess), round(others)
        )


def _in_stages(
    values: Floats, places: Rows, least: float
) -> Iterator[tuple[int, float, float]]:
    """Ranks that exceed those of their stage; of all ranks where stages are not
    known."""
    for stage in np.unique(places).tolist():
        ranks = np.flatnonzero(places == stage)
        if stage >= 0 or places.max() < 0:
            for at, excess, others in _above(values[ranks], least):
                yield int(ranks[at]), excess, others


def _longer(accounts: Floats, places: Rows, rank: int) -> str:
    """The class of which a rank has most beyond the others of its stage."""
    others = np.flatnonzero((places == places[rank]) & (np.arange(len(places)) != rank))
    more = accounts[rank] - np.median(accounts[others], axis=0)
    counted = [
        n
        for n, name in enumerate(CLASSES)
        if name not in ("span", "idle", "exposed_comm")
    ]
    return CLASSES[max(counted, key=lambda n: float(more[n]))]


def _above(values: Floats, least: float) -> Iterator[tuple[int, float, float]]:
    """Values that exceed the median of the others by at least `least`, and, of four or
    more, the median of all by 3 scaled median absolute deviations; the largest
    first."""
    if len(values) < 2:
        return
    middle, limit = middle_and_limit(values)
    few = len(values) < FEWEST
    for at in np.argsort(-values, kind="stable")[: 1 if few else None].tolist():
        others = float(np.median(np.delete(values, at)))
        if values[at] - others >= least and (few or values[at] - middle > limit):
            yield at, float(values[at]) - others, others


LIMIT = 3  # scaled median absolute deviations
MATTERS = 0.01  # of a step: less is no difference that matters
FEWEST = 4  # ranks


def middle_and_limit(values: Floats) -> tuple[float, float]:
    """The median, and how far from it a value stands out."""
    middle = float(np.median(values))
    return middle, LIMIT * SCALE * float(np.median(np.abs(values - middle)))


def outliers(values: Floats, step: float) -> Flags:
    """Which values lie more than 3 scaled median absolute deviations, and more than 1 %
    of a step (ns), from the median; none of fewer than 4. nan is a value that is not
    known."""
    known = values[~np.isnan(values)]
    if len(known) < FEWEST:
        return np.zeros(len(values), dtype=np.bool_)
    middle, limit = middle_and_limit(known)
    return np.nan_to_num(np.abs(values - middle)) > max(limit, MATTERS * step)


def balance(values: Floats) -> float | None:
    """The mean as a share of the largest: 1 when all ranks have equally much; None if
    not known."""
    known = values[~np.isnan(values)]
    return (
        float(known.mean() / known.max())
        if len(known) > 1 and known.max() > 0
        else None
    )
