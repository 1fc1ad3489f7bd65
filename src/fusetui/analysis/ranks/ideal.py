"""What a step would take if late ranks were as fast as the others between their
collectives.

Every rank is a chain: a stretch of its own, a collective in which all meet, the next
stretch. The replay is believed only where the whole group is given, every collective
was matched, stretches do not overlap collectives, and replaying what was recorded gives
the recorded steps within 1 %.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from fusetui.analysis.ranks.caused import MIN_STEP_SHARE
from fusetui.analysis.ranks.matching import Matched, RankJob, step_keys
from fusetui.analysis.ranks.model import JointStepChange, MeanStepChange, Straggler
from fusetui.analysis.ranks.waits import Waits
from fusetui.trace.layout.steps import step_wall, step_wall_of_job
from fusetui.trace.model.arrays import Int64s
from fusetui.trace.model.quantiles import medians

MAX_REPLAY_ERROR = 0.01
"""Of a step: so much a replay of what was recorded may differ from it, and so much of
the steps collectives may overlap other work."""
OVERLAP = "collectives overlap other work or the borders of steps"


class ReplayableStep(msgspec.Struct, frozen=True, eq=False):
    """A step of all ranks as stretches between collectives; ns."""

    # [stretches, ranks]: the last one follows the last collective; the first one counts
    # from when the first rank begins the step
    own: Int64s
    # [stretches - 1, ranks]: from the last start of a collective to each rank's end
    transfer: Int64s
    recorded_ns: float  # its step_wall_of_job


def replayable(
    job: RankJob, matched: Matched, waits: Waits
) -> list[ReplayableStep] | str:
    """The steps of the job in their order; or why they cannot be replayed, as the rest
    of a sentence."""
    ranks = len(matched.ranks)
    if not job.is_whole or ranks < 2:
        return "not all ranks of the job are given"
    is_damaged = any(summary.damage for summary in matched.ranks)
    if is_damaged or matched.unmatched.any():
        return "not every collective could be matched"
    if _cut_in_a_step(matched):
        return "the beginning or the end of a recording cuts a collective of a step"
    if not (matched.counts == ranks).all():
        return "some collectives are of a part of the ranks only"
    keys = [step_keys(summary) for summary in matched.ranks]
    if not keys[0] or any(keys_of_rank != keys[0] for keys_of_rank in keys):
        return "the ranks do not have the same steps"
    steps_ns = 0.0  # of all ranks
    for summary in matched.ranks:
        steps_ns += float(step_wall(summary.step_start, summary.step_end).sum())
    if matched.covered.sum() > MAX_REPLAY_ERROR * steps_ns:
        return OVERLAP
    return _steps(matched, waits) or OVERLAP


def _cut_in_a_step(matched: Matched) -> bool:
    """Whether a collective that a recording cuts reaches into a step of any rank."""
    for rank, row in zip(
        matched.cut_rank.tolist(), matched.cut_row.tolist(), strict=True
    ):
        summary = matched.ranks[rank]
        start = summary.collectives.start[row]
        end = summary.collectives.end[row]
        if ((summary.step_start < end) & (summary.step_end > start)).any():
            return True
    return False


def _steps(matched: Matched, waits: Waits) -> list[ReplayableStep] | None:
    """The steps of a job in which every rank takes part in every collective; None where
    a collective crosses the border of a step, or overlaps a stretch."""
    ranks = len(matched.ranks)
    by_collective = np.lexsort((matched.rank, matched.of_row))
    start = waits.start[by_collective].reshape(-1, ranks)
    end = waits.end[by_collective].reshape(-1, ranks)
    # from the clock of each rank to the common one; the same for all collectives but
    # for drifts, so that of the first one will do for the borders of steps
    shift = (waits.start - matched.start)[by_collective].reshape(-1, ranks)
    first_shift = shift[0] if len(shift) else np.zeros(ranks, dtype=np.int64)
    own_begins = np.stack([summary.step_start for summary in matched.ranks], axis=1)
    own_ends = np.stack([summary.step_end for summary in matched.ranks], axis=1)
    step_begins = own_begins + first_shift
    step_ends = own_ends + first_shift
    steps: list[ReplayableStep] = []
    for begin, until in zip(step_begins, step_ends, strict=True):
        is_inside = (start >= begin).all(axis=1) & (end <= until).all(axis=1)
        touches = ((start < until) & (end > begin)).any(axis=1)
        if (touches & ~is_inside).any():
            return None
        step = _step(begin, until, start[is_inside], end[is_inside])
        if step is None:
            return None
        steps.append(step)
    return steps


def _step(
    begin: Int64s, until: Int64s, starts: Int64s, ends: Int64s
) -> ReplayableStep | None:
    """A step from when each rank begins it until it ends it, both of shape [ranks],
    with the starts and ends of its collectives, [collectives, ranks]; ns of the common
    clock. None if a collective starts before the one before it has ended."""
    stretch_ends = np.concatenate((starts, until[None]))
    stretch_begins = np.concatenate((begin[None], ends))
    own = stretch_ends - stretch_begins
    if (own < 0).any():
        return None
    own[0] += begin - begin.min()
    last_starts = starts.max(axis=1, keepdims=True)
    return ReplayableStep(
        own=own,
        transfer=np.maximum(ends - last_starts, 0),
        recorded_ns=step_wall_of_job(begin, until),
    )


def if_ordinary(
    matched: Matched, steps: Sequence[ReplayableStep], rank: int
) -> MeanStepChange | None:
    """The mean step_wall_of_job if `rank`, an index, were as fast as the others. None if
    replaying what was recorded does not give what was recorded."""
    means = _mean_steps(steps, [rank])
    if means is None:
        return None
    return MeanStepChange(
        rank=matched.ranks[rank].rank,
        step_ns=round(means.recorded_ns),
        replayed_ns=round(means.replayed_ns),
        would_be_ns=round(means.would_be_ns),
    )


def if_all_ordinary(
    matched: Matched,
    replay: Sequence[ReplayableStep] | str,
    stragglers: Sequence[Straggler],
) -> JointStepChange | None:
    """The mean step_wall_of_job if all stragglers were as fast as the others. None
    unless that saves MIN_STEP_SHARE of a step more than fixing the best one."""
    changes: list[MeanStepChange] = []
    for straggler in stragglers:
        if straggler.what_if is not None:
            changes.append(straggler.what_if)
    if isinstance(replay, str) or len(changes) < 2 or len(changes) < len(stragglers):
        return None
    numbers = {change.rank for change in changes}
    late = []
    for index, summary in enumerate(matched.ranks):
        if summary.rank in numbers:
            late.append(index)
    if len(late) == len(matched.ranks):
        return None
    means = _mean_steps(replay, late)
    if means is None:
        return None
    best_alone_ns = min(change.would_be_ns for change in changes)
    saved_more_ns = best_alone_ns - means.would_be_ns
    if saved_more_ns < MIN_STEP_SHARE * means.recorded_ns:
        return None
    return JointStepChange(
        ranks=tuple(sorted(numbers)),
        step_ns=round(means.recorded_ns),
        would_be_ns=round(means.would_be_ns),
    )


class _MeanSteps(msgspec.Struct, frozen=True):
    """The mean step_wall_of_job of all steps."""

    recorded_ns: float
    replayed_ns: float  # as it was recorded
    would_be_ns: float  # with a change


def _mean_steps(
    steps: Sequence[ReplayableStep], late: Sequence[int]
) -> _MeanSteps | None:
    """The mean step as recorded, as replayed, and with the stretches of the `late`
    ranks (indices) at most as long as the median of the others'. None if replaying what
    was recorded does not give what was recorded."""
    recorded: list[float] = []
    replayed: list[float] = []
    would_be: list[float] = []
    for step in steps:
        others = np.delete(step.own, late, axis=1)
        median_of_others = medians(others.T)
        changed = step.own.copy()
        changed[:, late] = np.minimum(step.own[:, late], median_of_others[:, None])
        recorded.append(step.recorded_ns)
        replayed.append(_mean_end(step.own, step.transfer))
        would_be.append(_mean_end(changed, step.transfer))
    means = _MeanSteps(
        recorded_ns=float(np.mean(recorded)),
        replayed_ns=float(np.mean(replayed)),
        would_be_ns=float(np.mean(would_be)),
    )
    error_ns = abs(means.replayed_ns - means.recorded_ns)
    if error_ns > MAX_REPLAY_ERROR * means.recorded_ns:
        return None
    return means


def _mean_end(own: Int64s, transfer: Int64s) -> float:
    """When the ranks end a step on average, in ns after the first of them begins it.
    `own` and `transfer`: see ReplayableStep."""
    now = own[0].astype(np.float64)
    for stretch, moved in zip(own[1:], transfer, strict=True):
        now = now.max() + moved + stretch
    return float(now.mean())
