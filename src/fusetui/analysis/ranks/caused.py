"""How long the others wait for each rank, in which steps, and which ranks hold up the
job."""

from __future__ import annotations

import msgspec
import numpy as np

from fusetui.analysis.ranks.blame import Charges
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


class Caused(msgspec.Struct, frozen=True, eq=False):
    """How long others wait for each rank: the mean over those that do, in ns."""

    total: Int64s  # [ranks]
    waiters: Int64s  # [ranks]
    # [ranks, steps]: by the step in which the rank was late by its own work
    by_step: Floats
    # [ranks, steps]: by at least MIN_STEP_SHARE of a step, and NOISE_SHARE of the
    # rank's largest
    is_late: Flags
    straggles: Flags  # [ranks]: who holds up the others
    every_step: Floats  # [steps]: for whomever, the mean over the other ranks


def caused_by(matched: Matched, charges: Charges, steps: StepsOfRows) -> Caused:
    """How long others wait for each rank, in all and in each step, and which ranks hold
    up the job, from what they are charged with."""
    ranks = len(matched.ranks)
    step_count = max(len(steps.names), 1)
    is_of_waiter = _is_of_waiter(matched, charges)
    waiters = _waiters(matched, charges, is_of_waiter)
    charged_ns = np.where(is_of_waiter, charges.ns, 0.0)
    total = np.bincount(charges.owner, weights=charged_ns, minlength=ranks)
    mean_total = total / waiters
    sums_by_step = _sums_by_step(charges, is_of_waiter, ranks, step_count)
    by_step = sums_by_step / waiters[:, None]

    min_ns = MIN_STEP_SHARE * steps.length_ns
    is_late = _is_late(by_step, min_ns)
    in_a_step = charges.step >= 0
    every_step = np.bincount(
        charges.step[in_a_step], weights=charges.ns[in_a_step], minlength=step_count
    )
    other_ranks = max(ranks - 1, 1)
    return Caused(
        total=np.rint(mean_total).astype(np.int64),
        waiters=waiters,
        by_step=np.asarray(by_step),
        is_late=is_late,
        straggles=_straggles(by_step, is_late, min_ns),
        every_step=np.asarray(every_step / other_ranks, dtype=np.float64),
    )


def _sums_by_step(
    charges: Charges, is_counted: Flags, ranks: int, steps: int
) -> Floats:
    """The ns that are charged to each rank in each step, [ranks, steps], of the charges
    that count and in which their owner was late in a step."""
    counted = is_counted & (charges.step >= 0)
    # the place in a table of [ranks, steps], row by row
    place = charges.owner[counted] * steps + charges.step[counted]
    sums = np.bincount(place, weights=charges.ns[counted], minlength=ranks * steps)
    return sums.astype(np.float64).reshape(ranks, steps)


def _is_of_waiter(matched: Matched, charges: Charges) -> Flags:
    """Whether each charge is of a rank that waits for its owner at least MIN_WAIT_SHARE
    as long as the one that waits longest."""
    ranks = len(matched.ranks)
    key = charges.owner * ranks + matched.rank[charges.row]
    owner_and_waiter, place = np.unique(key, return_inverse=True)
    owner = owner_and_waiter // max(ranks, 1)
    waited_ns = np.bincount(place, weights=charges.ns, minlength=len(owner_and_waiter))
    longest_ns = np.zeros(ranks)
    np.maximum.at(longest_ns, owner, waited_ns)
    is_waiter = waited_ns >= MIN_WAIT_SHARE * longest_ns[owner]
    return np.asarray(is_waiter[place])


def _waiters(matched: Matched, charges: Charges, is_of_waiter: Flags) -> Int64s:
    """How many ranks wait for each rank, at least 1."""
    ranks = len(matched.ranks)
    owner = charges.owner[is_of_waiter]
    waiter = matched.rank[charges.row[is_of_waiter]]
    distinct = np.unique(owner * ranks + waiter)
    counts = np.bincount(distinct // max(ranks, 1), minlength=ranks)
    return np.maximum(counts, 1)


def _is_late(by_step: Floats, min_ns: float) -> Flags:
    """In which steps a rank is late, shape [ranks, steps]: others wait at least
    `min_ns` for it, and NOISE_SHARE of what they wait for it in its worst step."""
    largest = by_step.max(axis=1, initial=0.0, keepdims=True)
    is_noise = by_step < NOISE_SHARE * largest
    return np.asarray((by_step >= min_ns) & (by_step > 0) & ~is_noise)


def _straggles(by_step: Floats, is_late: Flags, min_ns: float) -> Flags:
    """Which ranks hold up the others, shape [ranks]: those for which others wait
    `min_ns` in a mean step, and that are late by as much in at least three of four
    steps, or in steps that have almost all of the waiting for late ranks. `by_step` and
    `is_late`: [ranks, steps]."""
    ranks, step_count = by_step.shape
    if not ranks:
        return np.zeros(0, dtype=np.bool_)
    mean_ns = by_step.sum(axis=1) / step_count
    is_enough = (mean_ns >= min_ns) & (mean_ns > 0)
    usually_ns = np.percentile(by_step, STEPS_IN_TIME_PERCENT, axis=1)
    is_often_late = usually_ns >= min_ns

    for_late_ranks = np.where(is_late, by_step, 0.0).sum(axis=0)  # [steps]
    in_own_late_steps = np.where(is_late, for_late_ranks, 0.0).sum(axis=1)  # [ranks]
    min_in_late_steps = MIN_SHARE_OF_LATE_STEPS * for_late_ranks.sum()
    has_late_steps = in_own_late_steps > 0
    has_most = has_late_steps & (in_own_late_steps >= min_in_late_steps)
    return np.asarray(is_enough & (is_often_late | has_most))
