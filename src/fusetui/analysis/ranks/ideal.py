"""Estimates how long a step would take if late ranks were as fast as the others.

In this model every rank alternates between *stretches* of its own work and collectives
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
from fusetui.analysis.ranks.matching import Matched, RankJob, make_step_keys
from fusetui.analysis.ranks.model import JointStepChange, MeanStepChange, Straggler
from fusetui.analysis.ranks.waits import Waits
from fusetui.trace.layout.steps import step_wall, step_wall_of_job
from fusetui.trace.model.arrays import Int64s
from fusetui.trace.model.quantiles import medians

MAX_REPLAY_ERROR = 0.01
"""A replay of what was recorded may differ from the recording by this share of a step.
Collectives may overlap other work for as large a share of all steps."""
OVERLAP = "collectives overlap other work or step boundaries"


class ReplayableStep(msgspec.Struct, frozen=True, eq=False):
    """One step of all ranks, split into stretches of work and collectives between them.

    Every rank has the same number of stretches, one more than the step has collectives.
    """

    # [stretches, ranks]: how long each rank works in each stretch. The first stretch
    # counts from when the first rank begins the step; the last one follows the last
    # collective.
    stretch_ns: Int64s
    # [stretches - 1, ranks]: from the last start of a collective to each rank's end
    transfer_ns: Int64s
    recorded_ns: float  # the length of the step, as step_wall_of_job defines it


class ReplayableSteps(msgspec.Struct, frozen=True, eq=False):
    """The steps of a job in a form that can be replayed; or why there is none."""

    steps: tuple[ReplayableStep, ...] = ()  # in their order; none if they are refused
    refusal: str = ""  # why they cannot be replayed, as the rest of a sentence; or ""


def split_into_replayable_steps(
    job: RankJob, matched: Matched, waits: Waits
) -> ReplayableSteps:
    """Split the steps of a job into stretches of work and collectives.

    That is refused unless every rank takes part in every collective of a step and works
    only between them, because only then a step follows from its stretches.
    """
    refusal = _explain_refusal(job, matched)
    if refusal:
        return ReplayableSteps(refusal=refusal)
    steps = _split_steps(matched, waits)
    return ReplayableSteps(steps=tuple(steps), refusal="" if steps else OVERLAP)


def _explain_refusal(job: RankJob, matched: Matched) -> str:
    """Explain why the steps of a job cannot be replayed, as the rest of a sentence; ""
    if they may be."""
    # All ranks and all of their collectives must be known.
    ranks = matched.ranks
    if not job.is_whole or len(ranks) < 2:
        return "not all ranks of the job are given"
    is_damaged = any(summary.damage for summary in ranks)
    if is_damaged or matched.unmatched.any():
        return "not every collective could be matched"
    if _is_step_with_cut_collective(matched):
        return "a collective of a step is cut off at the start or end of a recording"
    all_take_part = (matched.counts == len(ranks)).all()
    if not all_take_part:
        return "some collectives involve only some of the ranks"

    keys_of_ranks = [make_step_keys(summary) for summary in ranks]
    have_same_steps = all(keys == keys_of_ranks[0] for keys in keys_of_ranks)
    has_steps = bool(keys_of_ranks[0])
    if not has_steps or not have_same_steps:
        return "the ranks do not have the same steps"

    # Collectives must not overlap compute, because then a wait need not delay anything.
    all_steps_ns = 0.0
    for summary in ranks:
        all_steps_ns += float(step_wall(summary.step_start, summary.step_end).sum())
    overlapping_ns = matched.covered.sum()
    return OVERLAP if overlapping_ns > MAX_REPLAY_ERROR * all_steps_ns else ""


def _is_step_with_cut_collective(matched: Matched) -> bool:
    """Return whether a collective that a recording cuts reaches into any step."""
    for rank, collective in zip(
        matched.cut_rank.tolist(), matched.cut_row.tolist(), strict=True
    ):
        summary = matched.ranks[rank]
        start = summary.collectives.start[collective]
        end = summary.collectives.end[collective]
        overlaps_step = (summary.step_start < end) & (summary.step_end > start)
        if overlaps_step.any():
            return True
    return False


def _split_steps(matched: Matched, waits: Waits) -> list[ReplayableStep]:
    """Split the steps of a job in which every rank takes part in every collective.

    Args:
        matched: The collectives of the job; a row is one rank's part in one.
        waits: The waits in these collectives, with all times on the common clock.

    Returns:
        The steps in their order; none if a collective crosses the border of a step, or
        overlaps a stretch of work.
    """
    # Tables of shape [collectives, ranks], on the common clock.
    rank_count = len(matched.ranks)
    by_collective_and_rank = np.lexsort((matched.rank, matched.collective_of_row))
    start = waits.start[by_collective_and_rank].reshape(-1, rank_count)
    end = waits.end[by_collective_and_rank].reshape(-1, rank_count)

    # Shift the borders of steps to the common clock. The shift of a rank changes only
    # if its clock drifts, so that of its first collective will do.
    shift_of_row = waits.start - matched.start
    shift = shift_of_row[by_collective_and_rank].reshape(-1, rank_count)
    first_shift = shift[0] if len(shift) else np.zeros(rank_count, dtype=np.int64)
    own_begins = np.stack([summary.step_start for summary in matched.ranks], axis=1)
    own_ends = np.stack([summary.step_end for summary in matched.ranks], axis=1)
    step_begins = own_begins + first_shift
    step_ends = own_ends + first_shift

    steps: list[ReplayableStep] = []
    for step_begin, step_end in zip(step_begins, step_ends, strict=True):
        is_inside = ((start >= step_begin) & (end <= step_end)).all(axis=1)
        overlaps = ((start < step_end) & (end > step_begin)).any(axis=1)
        crosses_border = overlaps & ~is_inside
        if crosses_border.any():
            return []
        step = _split_step(
            step_begin, step_end, starts=start[is_inside], ends=end[is_inside]
        )
        if step is None:
            return []
        steps.append(step)
    return steps


def _split_step(
    step_begin: Int64s, step_end: Int64s, *, starts: Int64s, ends: Int64s
) -> ReplayableStep | None:
    """Split one step into stretches of work and collectives.

    A stretch is the time in which a rank works: from the begin of the step, or the end
    of a collective, to the start of the next collective, or to the end of the step.

    Args:
        step_begin: When each rank begins the step, in ns of the common clock.
        step_end: When each rank ends it.
        starts: The starts of its collectives, of shape [collectives, ranks].
        ends: Their ends, in the same shape.

    Returns:
        The step; None if a collective starts before the one before it has ended.
    """
    stretch_begins = np.vstack((step_begin, ends))
    stretch_ends = np.vstack((starts, step_end))
    stretch_ns = stretch_ends - stretch_begins
    collectives_overlap = (stretch_ns < 0).any()
    if collectives_overlap:
        return None

    # A rank that begins the step late has a longer first stretch.
    stretch_ns[0] += step_begin - step_begin.min()

    # Data moves from when the last rank has started a collective.
    last_starts = starts.max(axis=1, keepdims=True)
    return ReplayableStep(
        stretch_ns=stretch_ns,
        transfer_ns=np.maximum(ends - last_starts, 0),
        recorded_ns=step_wall_of_job(step_begin, step_end),
    )


def estimate_step_without_delays(
    matched: Matched, replay: ReplayableSteps, rank: int
) -> MeanStepChange | None:
    """Estimate the mean step if one late rank were as fast as the others.

    Each stretch of its work between two collectives is then at most as long as the
    median of the same stretch on the other ranks.

    Args:
        matched: The collectives of the job.
        replay: The steps of the job, if they can be replayed.
        rank: The index of the late rank.

    Returns:
        The change. None if the steps cannot be replayed, or if replaying what was
        recorded does not give the recorded steps.
    """
    if replay.refusal:
        return None
    means = _replay_mean_steps(replay.steps, [rank])
    if means is None:
        return None
    return MeanStepChange(
        rank=matched.ranks[rank].rank,
        step_ns=round(means.recorded_ns),
        replayed_ns=round(means.replayed_ns),
        would_be_ns=round(means.would_be_ns),
    )


def estimate_step_without_stragglers(
    matched: Matched, replay: ReplayableSteps, stragglers: Sequence[Straggler]
) -> JointStepChange | None:
    """Estimate the mean step if all stragglers were as fast as the other ranks.

    Args:
        matched: The collectives of the job.
        replay: The steps of the job, if they can be replayed.
        stragglers: The ranks that hold up the job, with the change if each of them
            alone were as fast as the others.

    Returns:
        The change. None unless there are several stragglers with an estimate each, and
        fixing all of them saves MIN_STEP_SHARE of a step more than fixing the best one.
    """
    changes = []
    for straggler in stragglers:
        if straggler.what_if is None:  # it cannot be part of a joint estimate
            return None
        changes.append(straggler.what_if)
    if replay.refusal or len(changes) < 2:
        return None

    late_ranks = {change.rank for change in changes}
    late_indices = []
    for index, summary in enumerate(matched.ranks):
        if summary.rank in late_ranks:
            late_indices.append(index)
    nobody_is_in_time = len(late_indices) == len(matched.ranks)
    if nobody_is_in_time:
        return None
    means = _replay_mean_steps(replay.steps, late_indices)
    if means is None:
        return None

    best_alone_ns = min(change.would_be_ns for change in changes)
    saved_more_ns = best_alone_ns - means.would_be_ns
    if saved_more_ns < MIN_STEP_SHARE * means.recorded_ns:
        return None
    return JointStepChange(
        ranks=tuple(sorted(late_ranks)),
        step_ns=round(means.recorded_ns),
        would_be_ns=round(means.would_be_ns),
    )


class _MeanSteps(msgspec.Struct, frozen=True):
    """The mean length of all steps, as step_wall_of_job defines a length."""

    recorded_ns: float
    replayed_ns: float  # with all stretches as recorded
    would_be_ns: float  # with the stretches of late ranks as short as those of others


def _replay_mean_steps(
    steps: Sequence[ReplayableStep], late_indices: Sequence[int]
) -> _MeanSteps | None:
    """Replay steps with and without the delays of some ranks.

    Without its delays, each stretch of a late rank is at most as long as the median of
    the same stretch on the other ranks. It is never made longer.

    Args:
        steps: The steps of the job.
        late_indices: The indices of the late ranks.

    Returns:
        The mean steps; None if replaying what was recorded does not give the recorded
        steps within MAX_REPLAY_ERROR.
    """
    recorded_ns: list[float] = []
    replayed_ns: list[float] = []
    would_be_ns: list[float] = []
    for step in steps:
        without_delays = _shorten_stretches(step.stretch_ns, late_indices)
        recorded_ns.append(step.recorded_ns)
        replayed_ns.append(_replay_step(step.stretch_ns, step.transfer_ns))
        would_be_ns.append(_replay_step(without_delays, step.transfer_ns))

    means = _MeanSteps(
        recorded_ns=float(np.mean(recorded_ns)),
        replayed_ns=float(np.mean(replayed_ns)),
        would_be_ns=float(np.mean(would_be_ns)),
    )
    error_ns = abs(means.replayed_ns - means.recorded_ns)
    if error_ns > MAX_REPLAY_ERROR * means.recorded_ns:
        return None
    return means


def _shorten_stretches(stretch_ns: Int64s, late_indices: Sequence[int]) -> Int64s:
    """Make late ranks as fast as the median of the others.

    E.g. a stretch of 9 ns of the late rank becomes 4 ns, if the others take 3, 4 and 7
    ns; one of 2 ns stays as it is.

    Args:
        stretch_ns: How long each rank works in each stretch, of shape [stretches,
            ranks].
        late_indices: The indices of the late ranks.

    Returns:
        ns in the same shape.
    """
    others_ns = np.delete(stretch_ns, late_indices, axis=1)
    median_of_others_ns = medians(others_ns.T)
    shortened_ns = stretch_ns.copy()
    shortened_ns[:, late_indices] = np.minimum(
        stretch_ns[:, late_indices], median_of_others_ns[:, None]
    )
    return shortened_ns


def _replay_step(stretch_ns: Int64s, transfer_ns: Int64s) -> float:
    """Replay a step, and return when its ranks end it on average.

    Each rank works for a stretch, then waits until all ranks have arrived at the
    collective, then for the transfer. E.g. two ranks work 3 and 5 ns, transfer for 1
    ns, and work 2 and 2 ns: both end at 5 + 1 + 2 = 8 ns.

    Args:
        stretch_ns: The stretches of each rank, as in ReplayableStep.
        transfer_ns: The transfers between them, as in ReplayableStep.

    Returns:
        ns after the first rank begins the step.
    """
    time_of_rank = stretch_ns[0].astype(np.float64)
    for next_stretch, transfer in zip(stretch_ns[1:], transfer_ns, strict=True):
        all_arrived = time_of_rank.max()
        time_of_rank = all_arrived + transfer + next_stretch
    return float(time_of_rank.mean())
