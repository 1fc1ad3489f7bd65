"""Computes how long the other ranks wait for each rank, and which ranks hold up the job."""

from __future__ import annotations

import msgspec
import numpy as np

from fusetui.analysis.ranks.blame import ChargedWaits
from fusetui.analysis.ranks.chains import NOISE_SHARE
from fusetui.analysis.ranks.matching import Matched, StepsOfRows
from fusetui.trace.model.arrays import Flags, Floats, Int64s

MIN_STEP_SHARE = 0.02
"""Of a step: nobody who holds up others for less is called a straggler."""
STEPS_IN_TIME_PERCENT = 25
"""Of the steps: in so many a straggler may be in time."""
MIN_SHARE_OF_LATE_STEPS = 0.8
"""Of the waiting in steps in which any rank is late: where so much of it lies in the
steps in which one rank is late, that rank straggles, alone or with others that are late
in the same steps."""
MIN_WAIT_SHARE = 0.1
"""The others are the ranks that wait for it at least this part as long as the one that
waits longest: in a job of many groups not everyone is held up."""


class CausedWaits(msgspec.Struct, frozen=True, eq=False):
    """How long other ranks wait for each rank.

    Waits are means over the ranks that wait for it, in ns.
    """

    mean_ns: Int64s  # [ranks]
    waiter_count: Int64s  # [ranks]: how many ranks wait for it
    # [ranks, steps]: by the step in which the rank was late by its own work
    mean_ns_by_step: Floats
    # [ranks, steps]: by at least MIN_STEP_SHARE of a step, and NOISE_SHARE of the
    # rank's largest
    is_late_in_step: Flags
    is_straggler: Flags  # [ranks]: who holds up the others
    mean_wait_of_step_ns: Floats  # [steps]: for whomever, the mean over the other ranks


def caused_by(
    matched: Matched, charged: ChargedWaits, steps: StepsOfRows
) -> CausedWaits:
    """Compute from the charges how long others wait for each rank, and who straggles.

    Args:
        matched: The collectives of the job.
        charged: The waits that each rank is charged with.
        steps: The steps of the job.
    """
    ranks = len(matched.ranks)
    step_count = max(len(steps.names), 1)
    is_notable = _is_by_notable_waiter(matched, charged)
    waiters = _waiters(matched, charged, is_notable)

    charged_ns = np.where(is_notable, charged.ns, 0.0)
    total = np.bincount(charged.culprit, weights=charged_ns, minlength=ranks)
    mean_total = total / waiters
    sums_by_step = _sums_by_step(charged, is_notable, ranks, step_count)
    by_step = sums_by_step / waiters[:, None]

    min_ns = MIN_STEP_SHARE * steps.length_ns
    is_late = _is_late(by_step, min_ns)

    has_step = charged.step >= 0
    ns_of_step = np.bincount(
        charged.step[has_step], weights=charged.ns[has_step], minlength=step_count
    )
    other_ranks = max(ranks - 1, 1)
    return CausedWaits(
        mean_ns=np.rint(mean_total).astype(np.int64),
        waiter_count=waiters,
        mean_ns_by_step=np.asarray(by_step),
        is_late_in_step=is_late,
        is_straggler=_is_straggler(by_step, is_late, min_ns),
        mean_wait_of_step_ns=np.asarray(ns_of_step / other_ranks, dtype=np.float64),
    )


def _sums_by_step(
    charged: ChargedWaits, is_counted: Flags, ranks: int, steps: int
) -> Floats:
    """Add up the charges of each rank in each step.

    Args:
        charged: The charged. Those without a step are left out.
        is_counted: Which charges count; one flag per charge.
        ranks: How many ranks there are.
        steps: How many steps there are.

    Returns:
        ns of shape [ranks, steps].
    """
    counted = is_counted & (charged.step >= 0)

    # np.bincount sums over one index, so a cell of the table is numbered row by row.
    cell = charged.culprit[counted] * steps + charged.step[counted]
    sums = np.bincount(cell, weights=charged.ns[counted], minlength=ranks * steps)
    return sums.astype(np.float64).reshape(ranks, steps)


def _is_by_notable_waiter(matched: Matched, charged: ChargedWaits) -> Flags:
    """Mark the charges of ranks that wait notably for the charged rank.

    A rank does if it waits at least MIN_WAIT_SHARE as long as the rank that waits
    longest for the same one.

    Returns:
        One flag per charge.
    """
    ranks = len(matched.ranks)
    pair = charged.culprit * ranks + matched.rank[charged.row]
    distinct_pairs, pair_of_charge = np.unique(pair, return_inverse=True)

    culprit = distinct_pairs // max(ranks, 1)
    waited_ns = np.bincount(
        pair_of_charge, weights=charged.ns, minlength=len(distinct_pairs)
    )
    longest_ns = np.zeros(ranks)
    np.maximum.at(longest_ns, culprit, waited_ns)
    is_waiter = waited_ns >= MIN_WAIT_SHARE * longest_ns[culprit]
    return np.asarray(is_waiter[pair_of_charge])


def _waiters(matched: Matched, charged: ChargedWaits, is_notable: Flags) -> Int64s:
    """Count the ranks that wait for each rank; at least 1, so that it can divide."""
    ranks = len(matched.ranks)
    culprit = charged.culprit[is_notable]
    waiter = matched.rank[charged.row[is_notable]]
    distinct_pairs = np.unique(culprit * ranks + waiter)
    counts = np.bincount(distinct_pairs // max(ranks, 1), minlength=ranks)
    return np.maximum(counts, 1)


def _is_late(by_step: Floats, min_ns: float) -> Flags:
    """Mark the steps in which each rank is late.

    Others must wait for it at least `min_ns`, and at least NOISE_SHARE of what they
    wait for it in its worst step.

    Args:
        by_step: How long others wait for each rank, of shape [ranks, steps].
        min_ns: The least wait that counts.

    Returns:
        Flags of the same shape.
    """
    worst_step = by_step.max(axis=1, initial=0.0, keepdims=True)
    is_noise = by_step < NOISE_SHARE * worst_step
    return np.asarray((by_step >= min_ns) & (by_step > 0) & ~is_noise)


def _is_straggler(by_step: Floats, is_late: Flags, min_ns: float) -> Flags:
    """Mark the ranks that hold up the others.

    Others wait for such a rank `min_ns` in a mean step. In addition it is late by as
    much in at least three of four steps, or its late steps have almost all of the
    waiting for late ranks.

    Args:
        by_step: How long others wait for each rank, of shape [ranks, steps].
        is_late: The steps in which each rank is late, in the same shape.
        min_ns: The least wait that counts.

    Returns:
        One flag per rank.
    """
    ranks, step_count = by_step.shape
    if not ranks:
        return np.zeros(0, dtype=np.bool_)

    mean_ns = by_step.sum(axis=1) / step_count
    is_enough = (mean_ns >= min_ns) & (mean_ns > 0)
    quarter_ns = np.percentile(by_step, STEPS_IN_TIME_PERCENT, axis=1)
    is_often_late = quarter_ns >= min_ns

    # How much of the waiting for late ranks falls into the late steps of each rank.
    late_ns_of_step = np.where(is_late, by_step, 0.0).sum(axis=0)
    ns_in_late_steps = np.where(is_late, late_ns_of_step, 0.0).sum(axis=1)
    min_in_late_steps = MIN_SHARE_OF_LATE_STEPS * late_ns_of_step.sum()
    has_late_steps = ns_in_late_steps > 0
    has_most = has_late_steps & (ns_in_late_steps >= min_in_late_steps)
    return np.asarray(is_enough & (is_often_late | has_most))
