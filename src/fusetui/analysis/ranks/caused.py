"""Computes how long the other ranks wait for each rank, and which ranks delay the
job."""

from __future__ import annotations

import msgspec
import numpy as np

from fusetui.analysis.ranks.blame import ChargedWaits
from fusetui.analysis.ranks.chains import NO_STEP, NOISE_SHARE
from fusetui.analysis.ranks.matching import Matched, StepsOfRows
from fusetui.trace.model.arrays import Flags, Floats, Int64s, distinct_rows

MIN_STEP_SHARE = 0.02
"""A rank for which others wait less than this share of a step is no straggler."""
STEPS_IN_TIME_PERCENT = 25
"""A rank that is in time in more than this percentage of the steps is a straggler only
if its late steps have almost all of the waiting (MIN_SHARE_OF_LATE_STEPS)."""
MIN_SHARE_OF_LATE_STEPS = 0.8
"""A rank that is late in few steps is a straggler if at least this share of all waiting
for late ranks lies in these steps."""
MIN_WAIT_SHARE = 0.1
"""A rank is counted among those that wait for another one only if it waits at least this
share of what the rank that waits longest does. In a job of many process groups not
everyone is held up, and a mean over all ranks would hide the delay."""


class CausedWaits(msgspec.Struct, frozen=True, eq=False):
    """How long other ranks wait for each rank.

    Waits are in ns, and are means over the ranks that wait notably for the rank
    (MIN_WAIT_SHARE).
    """

    mean_ns: Int64s  # [ranks]: in the whole trace
    waiter_count: Int64s  # [ranks]: how many ranks wait notably for it, at least 1
    # [ranks, steps]: by the step in which the rank was late by its own work
    mean_ns_by_step: Floats
    is_late_in_step: Flags  # [ranks, steps]: whether others wait for it notably long
    is_straggler: Flags  # [ranks]: whether it holds up the others
    # [steps]: the waits for whichever rank, as a mean over all ranks but one
    mean_wait_of_step_ns: Floats


def measure_caused_waits(
    matched: Matched, charged: ChargedWaits, steps: StepsOfRows
) -> CausedWaits:
    """Compute how long other ranks wait for each rank, and which ranks are stragglers.

    E.g. if ranks 0 and 1 wait 4 and 6 ms for rank 2, and rank 3 only 0.1 ms, which is
    not notable, then rank 2 caused waits of 5 ms, the mean of the 2 that wait notably.

    Args:
        matched: The collectives of the job.
        charged: The waits in these collectives, each charged to the rank that is to
            blame for it.
        steps: The steps of the job.
    """
    rank_count = len(matched.ranks)
    step_count = max(len(steps.names), 1)
    is_notable = _mark_notable_waits(matched, charged)
    waiter_count = _count_notable_waiters(matched, charged, is_notable)

    # Waits for each rank, in the whole trace and by step.
    notable_ns = np.where(is_notable, charged.ns, 0.0)
    total_ns = np.bincount(charged.culprit, weights=notable_ns, minlength=rank_count)
    mean_ns = total_ns / waiter_count
    total_ns_by_step = _sum_waits_by_step(charged, is_notable, rank_count, step_count)
    mean_ns_by_step = total_ns_by_step / waiter_count[:, None]

    min_ns = MIN_STEP_SHARE * steps.length_ns
    is_late_in_step = _mark_late_steps(mean_ns_by_step, min_ns)
    return CausedWaits(
        mean_ns=np.rint(mean_ns).astype(np.int64),
        waiter_count=waiter_count,
        mean_ns_by_step=np.asarray(mean_ns_by_step),
        is_late_in_step=is_late_in_step,
        is_straggler=_mark_stragglers(mean_ns_by_step, is_late_in_step, min_ns),
        mean_wait_of_step_ns=_measure_waits_of_steps(charged, rank_count, step_count),
    )


def _measure_waits_of_steps(
    charged: ChargedWaits, rank_count: int, step_count: int
) -> Floats:
    """Measure how long ranks wait in each step, whichever rank is to blame.

    It is the mean over all ranks but one, because somebody has to be last.

    Args:
        charged: The waits. Those whose culprit was late in no step are left out.
        rank_count: How many ranks there are.
        step_count: How many steps there are.

    Returns:
        ns per step.
    """
    has_step = charged.step != NO_STEP
    total_ns = np.bincount(
        charged.step[has_step], weights=charged.ns[has_step], minlength=step_count
    )
    waiting_ranks = max(rank_count - 1, 1)
    return np.asarray(total_ns / waiting_ranks, dtype=np.float64)


def _sum_waits_by_step(
    charged: ChargedWaits, is_counted: Flags, rank_count: int, step_count: int
) -> Floats:
    """Add up the waits that each rank causes by being late in each step.

    Args:
        charged: The waits, each charged to the rank that is to blame for it. Those
            whose culprit was late in no step are left out.
        is_counted: Which of these waits count; one flag for each.
        rank_count: How many ranks there are.
        step_count: How many steps there are.

    Returns:
        ns of shape [ranks, steps].
    """
    counted = is_counted & (charged.step != NO_STEP)
    culprit = charged.culprit[counted]
    step = charged.step[counted]
    total_ns = np.zeros((rank_count, step_count))
    np.add.at(total_ns, (culprit, step), charged.ns[counted])
    return total_ns


def _mark_notable_waits(matched: Matched, charged: ChargedWaits) -> Flags:
    """Mark the waits of ranks that wait notably long for the rank that is to blame.

    A rank does if it waits for that rank, in all, at least MIN_WAIT_SHARE as long as
    the rank that waits longest for the same one. E.g. if ranks wait 9, 4 and 0.1 ms for
    rank 2, the waits of the third are not notable.

    Args:
        matched: The collectives of the job; a row is one rank's part in one.
        charged: The waits, each charged to the rank that is to blame for it.

    Returns:
        One flag for each of the charged waits.
    """
    # Add up the waits of each pair of a rank that is to blame and one that waits.
    waiting_rank = matched.rank[charged.row]
    first_of_pair, pair_of_wait = distinct_rows((charged.culprit, waiting_rank))
    ns_of_pair = np.bincount(
        pair_of_wait, weights=charged.ns, minlength=len(first_of_pair)
    )

    # Compare each pair with the longest one for the same rank.
    culprit_of_pair = charged.culprit[first_of_pair]
    longest_ns_for_rank = np.zeros(len(matched.ranks))
    np.maximum.at(longest_ns_for_rank, culprit_of_pair, ns_of_pair)
    min_ns_of_pair = MIN_WAIT_SHARE * longest_ns_for_rank[culprit_of_pair]
    is_notable_pair = ns_of_pair >= min_ns_of_pair
    return np.asarray(is_notable_pair[pair_of_wait])


def _count_notable_waiters(
    matched: Matched, charged: ChargedWaits, is_notable: Flags
) -> Int64s:
    """Count for each rank how many ranks wait notably long for it.

    Args:
        matched: The collectives of the job; a row is one rank's part in one.
        charged: The waits, each charged to the rank that is to blame for it.
        is_notable: Which of these waits are of ranks that wait notably long.

    Returns:
        A count per rank. It is at least 1, so that means can be divided by it.
    """
    culprit = charged.culprit[is_notable]
    waiting_rank = matched.rank[charged.row[is_notable]]
    first_of_pair, _ = distinct_rows((culprit, waiting_rank))
    counts = np.bincount(culprit[first_of_pair], minlength=len(matched.ranks))
    return np.maximum(counts, 1)


def _mark_late_steps(mean_ns_by_step: Floats, min_ns: float) -> Flags:
    """Mark the steps in which each rank is late.

    A rank is late in a step if others wait for it at least `min_ns`, and at least
    NOISE_SHARE of what they wait for it in its worst step. The second rule keeps a rank
    with one long pause from being called late in other steps too. E.g. with `min_ns` 2
    and waits of (50, 4, 1, 8) ns, it is late in the first and in the last step.

    Args:
        mean_ns_by_step: How long others wait for each rank, of shape [ranks, steps].
        min_ns: The least wait that counts.

    Returns:
        Flags of the same shape.
    """
    worst_step = mean_ns_by_step.max(axis=1, initial=0.0, keepdims=True)
    is_noise = mean_ns_by_step < NOISE_SHARE * worst_step
    is_long_enough = mean_ns_by_step >= min_ns

    # `min_ns` may be 0, and nobody waits for most ranks.
    is_waited_for = mean_ns_by_step > 0
    return np.asarray(is_long_enough & is_waited_for & ~is_noise)


def _mark_stragglers(
    mean_ns_by_step: Floats, is_late_in_step: Flags, min_ns: float
) -> Flags:
    """Mark the ranks that hold up the others.

    Others wait for such a rank at least `min_ns` in the mean step. In addition, one of
    two holds: they wait that long in at least three of four steps, or the steps in
    which it is late have at least 80 % (MIN_SHARE_OF_LATE_STEPS) of all waiting for
    late ranks. E.g. with `min_ns` 2, waits of (3, 3, 3, 0) ns in four steps mark a
    rank by the first rule, and (0, 0, 0, 20) by the second, if no other rank is late.

    Args:
        mean_ns_by_step: How long others wait for each rank, of shape [ranks, steps].
        is_late_in_step: In which steps each rank is late, in the same shape.
        min_ns: The least wait that counts.

    Returns:
        One flag per rank.
    """
    ranks, step_count = mean_ns_by_step.shape
    if not ranks:
        return np.zeros(0, dtype=np.bool_)

    mean_ns = mean_ns_by_step.sum(axis=1) / step_count
    is_long_enough = (mean_ns >= min_ns) & (mean_ns > 0)

    # If the 25th percentile is long enough, at most a quarter of the steps is in time.
    quarter_ns = np.percentile(mean_ns_by_step, STEPS_IN_TIME_PERCENT, axis=1)
    is_late_in_most_steps = quarter_ns >= min_ns

    # Compare the waiting in the late steps of each rank with that in all steps.
    late_ns_by_step = np.where(is_late_in_step, mean_ns_by_step, 0.0)
    late_ns_of_step = late_ns_by_step.sum(axis=0)
    ns_in_own_late_steps = np.where(is_late_in_step, late_ns_of_step, 0.0).sum(axis=1)
    min_share_ns = MIN_SHARE_OF_LATE_STEPS * late_ns_of_step.sum()
    is_late_when_it_matters = (ns_in_own_late_steps > 0) & (
        ns_in_own_late_steps >= min_share_ns
    )
    is_often_enough = is_late_in_most_steps | is_late_when_it_matters
    return np.asarray(is_long_enough & is_often_enough)
