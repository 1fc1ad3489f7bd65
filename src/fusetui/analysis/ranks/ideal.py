"""Estimates how long a step would take if late ranks were as fast as the others.

In this model every rank alternates between *stretches* of its stretch_ns work and collectives
in which all ranks meet. A late rank gets the stretches of the median of the others.

The estimate is given only if all ranks of the group are given, every collective was
matched, and stretches do not overlap collectives. Replaying what was recorded also has
to give the recorded steps within 1 %.
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
    """A step of all ranks, as stretches of work between collectives; in ns."""

    # [stretches, ranks]: the last one follows the last collective; the first one counts
    # from when the first rank begins the step
    stretch_ns: Int64s
    # [stretches - 1, ranks]: from the last start of a collective to each rank's end
    transfer_ns: Int64s
    recorded_ns: float  # its step_wall_of_job


def replayable(
    job: RankJob, matched: Matched, waits: Waits
) -> list[ReplayableStep] | str:
    """Split the steps of a job into stretches and collectives.

    Returns:
        The steps in their order; or why they cannot be replayed, as the rest of a
        sentence.
    """
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

    all_steps_ns = 0.0
    for summary in matched.ranks:
        all_steps_ns += float(step_wall(summary.step_start, summary.step_end).sum())
    if matched.covered.sum() > MAX_REPLAY_ERROR * all_steps_ns:
        return OVERLAP
    return _steps(matched, waits) or OVERLAP


def _cut_in_a_step(matched: Matched) -> bool:
    """Return whether a collective that a recording cuts reaches into any step."""
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
    """Split the steps of a job in which every rank takes part in every collective.

    Returns None if a collective crosses the border of a step, or overlaps a stretch.
    """
    # Tables of shape [collectives, ranks], on the common clock.
    ranks = len(matched.ranks)
    by_collective = np.lexsort((matched.rank, matched.collective_of_row))
    start = waits.start[by_collective].reshape(-1, ranks)
    end = waits.end[by_collective].reshape(-1, ranks)

    # Shift the borders of steps to the common clock. The shift of a rank changes only
    # if its clock drifts, so that of its first collective will do.
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
        step = _step(begin, until, starts=start[is_inside], ends=end[is_inside])
        if step is None:
            return None
        steps.append(step)
    return steps


def _step(
    begin: Int64s, until: Int64s, *, starts: Int64s, ends: Int64s
) -> ReplayableStep | None:
    """Split one step into stretches and collectives.

    Args:
        begin: When each rank begins the step, in ns of the common clock.
        until: When each rank ends it.
        starts: The starts of its collectives, of shape [collectives, ranks].
        ends: Their ends, in the same shape.

    Returns:
        The step; None if a collective starts before the one before it has ended.
    """
    stretch_ends = np.concatenate((starts, until[None]))
    stretch_begins = np.concatenate((begin[None], ends))
    stretch_ns = stretch_ends - stretch_begins
    if (stretch_ns < 0).any():
        return None

    stretch_ns[0] += begin - begin.min()
    last_starts = starts.max(axis=1, keepdims=True)
    return ReplayableStep(
        stretch_ns=stretch_ns,
        transfer_ns=np.maximum(ends - last_starts, 0),
        recorded_ns=step_wall_of_job(begin, until),
    )


def if_ordinary(
    matched: Matched, steps: Sequence[ReplayableStep], rank: int
) -> MeanStepChange | None:
    """Estimate the mean step if one rank were as fast as the others.

    Args:
        matched: The collectives of the job.
        steps: The steps of the job.
        rank: The index of the rank.

    Returns:
        The change; None if replaying what was recorded does not give the recorded
        steps.
    """
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
    """Estimate the mean step if all stragglers were as fast as the others.

    Args:
        matched: The collectives of the job.
        replay: The steps of the job; or why they cannot be replayed.
        stragglers: The ranks that hold up the job.

    Returns:
        The change. None unless it saves MIN_STEP_SHARE of a step more than fixing the
        best single one.
    """
    changes: list[MeanStepChange] = []
    for straggler in stragglers:
        if straggler.what_if is not None:
            changes.append(straggler.what_if)
    if isinstance(replay, str) or len(changes) < 2 or len(changes) < len(stragglers):
        return None

    late_numbers = {change.rank for change in changes}
    late_indices = []
    for index, summary in enumerate(matched.ranks):
        if summary.rank in late_numbers:
            late_indices.append(index)
    nobody_is_in_time = len(late_indices) == len(matched.ranks)
    if nobody_is_in_time:
        return None

    means = _mean_steps(replay, late_indices)
    if means is None:
        return None
    best_alone_ns = min(change.would_be_ns for change in changes)
    saved_more_ns = best_alone_ns - means.would_be_ns
    if saved_more_ns < MIN_STEP_SHARE * means.recorded_ns:
        return None
    return JointStepChange(
        ranks=tuple(sorted(late_numbers)),
        step_ns=round(means.recorded_ns),
        would_be_ns=round(means.would_be_ns),
    )


class _MeanSteps(msgspec.Struct, frozen=True):
    """The mean length (step_wall_of_job) of all steps."""

    recorded_ns: float
    replayed_ns: float  # replayed without a change
    would_be_ns: float  # replayed with a change


def _mean_steps(
    steps: Sequence[ReplayableStep], late: Sequence[int]
) -> _MeanSteps | None:
    """Replay steps with and without the delays of some ranks.

    With the change, each stretch of a late rank is at most as long as the median of the
    other ranks' stretches.

    Args:
        steps: The steps of the job.
        late: The indices of the late ranks.

    Returns:
        The mean steps; None if replaying what was recorded does not give the recorded
        steps within MAX_REPLAY_ERROR.
    """
    recorded: list[float] = []
    replayed: list[float] = []
    would_be: list[float] = []
    for step in steps:
        stretches_of_others = np.delete(step.stretch_ns, late, axis=1)
        median_of_others = medians(stretches_of_others.T)
        changed = step.stretch_ns.copy()
        changed[:, late] = np.minimum(
            step.stretch_ns[:, late], median_of_others[:, None]
        )

        recorded.append(step.recorded_ns)
        replayed.append(_mean_end(step.stretch_ns, step.transfer_ns))
        would_be.append(_mean_end(changed, step.transfer_ns))

    means = _MeanSteps(
        recorded_ns=float(np.mean(recorded)),
        replayed_ns=float(np.mean(replayed)),
        would_be_ns=float(np.mean(would_be)),
    )
    error_ns = abs(means.replayed_ns - means.recorded_ns)
    if error_ns > MAX_REPLAY_ERROR * means.recorded_ns:
        return None
    return means


def _mean_end(stretch_ns: Int64s, transfer_ns: Int64s) -> float:
    """Return when ranks end a step on average, in ns after the first one begins it.

    Args:
        stretch_ns: The stretches of each rank, as in ReplayableStep.
        transfer_ns: The transfers between them, as in ReplayableStep.
    """
    now = stretch_ns[0].astype(np.float64)  # of each rank
    for next_stretch, transfer_ns_of_rank in zip(
        stretch_ns[1:], transfer_ns, strict=True
    ):
        all_arrived = now.max()
        now = all_arrived + transfer_ns_of_rank + next_stretch
    return float(now.mean())
