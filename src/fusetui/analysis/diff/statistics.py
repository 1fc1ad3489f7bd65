"""Medians, means, intervals of ratios, and the steps that represent all, from durations
alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Flags, Floats, Int64s, Rows
from fusetui.trace.model.quantiles import median, medians

FEW_STEPS = 5
"""A verdict needs this many steps on each side. n samples enclose the true median with
a probability of 1 - 2**(1 - n): 94 % for five, 88 % for four (too few for 95 %)."""

FEW_ROUNDS = 6
"""A verdict on steps that took turns needs this many: the signed-rank test rejects
nothing at 5 % of five, because 2 of 32 signs are all alike."""

CONFIDENCE = 95  # the confidence level of an interval, in percent

TAIL = 0.025
"""The share of the distribution that the interval leaves out on each side."""

NORMAL_POINT = 1.959964  # the two-sided 5 % point of the normal distribution

FLOOR_PERCENT, FLOOR_NS = 5, 100
"""A change of a kernel below either floor is noise: clocks of GPUs tick in up to tens
of ns."""

MICROSECOND_NS = 1000

STEPS_FOR_CORRELATION = 10
"""With fewer steps, how one depends on the one before is not estimated."""

STEPS_FOR_TREND = 4  # with fewer, no trend is significant

MAX_EXACT_STEPS = 60
"""Up to so many steps on a side, the distribution of the rank test is counted out;
beyond, it is normal."""

MAX_EXACT_ROUNDS = 100  # the same for the signed-rank test

MAX_SHARE_OFF = 0.005
"""The mean time of the usual steps is within this share of the median."""

MIN_USUAL_STEPS = 3
"""At least so many steps are chosen of FEW_STEPS or more: the times of single pieces in
one or two steps are chance."""


def mean(samples: Int64s) -> Int64s:
    """The mean along the first axis, in whole numbers, halves rounded away from zero; 0
    of no samples."""
    count = max(1, len(samples))
    total = samples.sum(axis=0)
    magnitude = (2 * np.abs(total) + count) // (2 * count)
    return np.asarray(np.sign(total) * magnitude)


class MiddleHalf(msgspec.Struct, frozen=True, eq=False):
    """The least and the greatest of the middle half of samples, along the first
    axis."""

    low: Int64s
    high: Int64s

    def overlaps(self, other: MiddleHalf) -> Flags:
        """Whether the two have a value in common, for each column."""
        return np.asarray((self.low <= other.high) & (other.low <= self.high))


def middle_half(samples: Int64s) -> MiddleHalf:
    """The middle half of samples, along the first axis; of fewer than five samples,
    that is all of them."""
    ordered = np.sort(samples, axis=0)
    last = len(samples) - 1
    return MiddleHalf(low=ordered[last // 4], high=ordered[last - last // 4])


def midmean(samples: Int64s) -> Int64s:
    """The mean of the middle half of samples along the first axis, in whole numbers."""
    ordered = np.sort(samples, axis=0)
    last = len(samples) - 1
    return mean(ordered[last // 4 : last - last // 4 + 1])


def far_apart(
    a: Int64s, b: Int64s, resolution_ns: int, *, paired: bool = False
) -> Flags:
    """Whether, for each column of samples [steps, columns] (ns), the medians of the two
    sides differ by more than FLOOR_PERCENT, FLOOR_NS and a tick of the clock, and their
    middle halves do not overlap; shape [columns].

    `paired`: the n-th steps of both sides vary together. Then it is enough that every
    step of B takes longer than that of A, or every one less long, by as much at the
    median: a step that is slow on both sides makes the times of all steps overlap.
    """
    median_a = medians(a)
    median_b = medians(b)
    share_ns = np.maximum(median_a, median_b) * FLOOR_PERCENT // 100
    floor_ns = np.maximum(share_ns, max(FLOOR_NS, resolution_ns))
    is_far = np.abs(median_b - median_a) > floor_ns
    is_far &= ~middle_half(a).overlaps(middle_half(b))
    if paired:
        changes_ns = b - a
        always_longer = (changes_ns > 0).all(axis=0)
        always_shorter = (changes_ns < 0).all(axis=0)
        is_large = np.abs(medians(changes_ns)) > floor_ns
        is_far |= (always_longer | always_shorter) & is_large
    return np.asarray(is_far)


def resolution(*samples: Int64s) -> int:
    """The tick of the clocks (ns): 1000 if all times of any of these samples are whole
    microseconds, 0 when finer."""
    for of_side in samples:
        if of_side.size and not (of_side % MICROSECOND_NS).any():
            return MICROSECOND_NS
    return 0


class Interval(msgspec.Struct, frozen=True):
    """How long a step of B takes, divided by how long one of A takes."""

    ratio: float
    low: float | None = None  # of the interval at CONFIDENCE; None with too few steps
    high: float | None = None
    # by how much the run drifted from its first to its last step, as a share: see `drift`
    drift_a: float = 0.0
    drift_b: float = 0.0


def ratio_interval(a: Int64s, b: Int64s) -> Interval:
    """The interval of B / A by the rank test of Mann, Whitney and Wilcoxon: all ratios
    that it does not reject at 5 %, widened by the drift of the runs and by the
    correlation of successive steps.

    `a`, `b`: durations in order of time; four on each side are enough to reject any
    ratio. (E. L. Lehmann, Nonparametrics, 1975: chapter 2.) The drift of a run shows
    how much a run at another time may differ, whatever is compared.
    """
    ratio = median(b) / max(1, median(a))
    before = a[a > 0]
    after = b[b > 0]
    if not len(before) or not len(after):
        return Interval(ratio=ratio)
    rejected = _rejected_ratios(len(before), len(after))
    if not rejected:
        return Interval(ratio=ratio)
    ratios = np.sort((after[None, :] / before[:, None]).ravel())
    center = float(np.median(ratios))
    lowest = float(ratios[rejected - 1])
    highest = float(ratios[len(ratios) - rejected])
    widening = max(widening_of(before), widening_of(after))
    low = center * (lowest / center) ** widening
    high = center * (highest / center) ** widening
    drift_a = drift(before)
    drift_b = drift(after)
    largest_drift = max(abs(drift_a), abs(drift_b))
    low *= max(0.0, 1 - largest_drift)
    high *= 1 + largest_drift
    return Interval(
        ratio=ratio,
        low=min(low, ratio),
        high=max(high, ratio),
        drift_a=drift_a,
        drift_b=drift_b,
    )


def paired_interval(a: Int64s, b: Int64s) -> Interval:
    """The interval of B / A where the n-th step of A ran next to the n-th of B (a
    round): by Wilcoxon's signed-rank test of the logarithms of their ratios, widened by
    the correlation of successive rounds. Durations in order of time, equally many.

    It takes for granted only that a difference is as likely to be x as -x where nothing
    changed, which turns in random order see to, whatever the noise is. The ratio is the
    estimate of Hodges and Lehmann, the median of the means of any two. (E. L. Lehmann,
    Nonparametrics, 1975: chapter 4)
    """
    drift_a = drift(a)
    drift_b = drift(b)
    takes_time = (a > 0) & (b > 0)
    logs = np.log(b[takes_time] / a[takes_time])
    rejected = rejected_rounds(len(logs))
    if not rejected:
        ratio = float(np.exp(np.median(logs))) if len(logs) else 1.0
        return Interval(ratio=ratio, drift_a=drift_a, drift_b=drift_b)
    first, second = np.triu_indices(len(logs))
    means = np.sort((logs[first] + logs[second]) / 2)
    center = float(np.median(means))
    lowest = float(means[rejected - 1])
    highest = float(means[-rejected])
    widening = widening_of(logs)
    low = center + (lowest - center) * widening
    high = center + (highest - center) * widening
    return Interval(
        ratio=math.exp(center),
        low=math.exp(low),
        high=math.exp(high),
        drift_a=drift_a,
        drift_b=drift_b,
    )


def drift(durations: Int64s) -> float:
    """How much longer the last step took than the first, as a share of the median step:
    by the median slope of all pairs of steps (Theil and Sen). 0 where Kendall's test at
    5 % finds no trend. `durations`: in order of time."""
    steps = len(durations)
    if steps < STEPS_FOR_TREND:
        return 0.0
    earlier, later = np.triu_indices(steps, 1)
    rises_ns = durations[later] - durations[earlier]
    more_rises_than_falls = abs(int(np.sign(rises_ns).sum()))
    spread = (steps * (steps - 1) * (2 * steps + 5) / 18) ** 0.5
    has_trend = (more_rises_than_falls - 1) / spread >= NORMAL_POINT
    if more_rises_than_falls <= 1 or not has_trend:
        return 0.0
    slope = float(np.median(rises_ns / (later - earlier)))
    rise_ns = slope * (steps - 1)
    return rise_ns / float(np.median(durations))


def widening_of(samples: Int64s | Floats) -> float:
    """The factor, at least 1, by which an interval that takes steps for independent has
    to be wider where slow steps follow slow ones: n steps are worth n (1 - r) / (1 + r)
    independent ones, where r is the correlation of successive ranks. 1 if r is not
    significant or negative. `samples`: in order of time."""
    steps = len(samples)
    if steps < STEPS_FOR_CORRELATION:
        return 1.0
    mean_rank = (steps - 1) / 2
    ranks = np.argsort(np.argsort(samples, kind="stable")) - mean_rank
    covariance = (ranks[1:] * ranks[:-1]).sum()
    correlation = float(covariance / (ranks * ranks).sum())
    if correlation * math.sqrt(steps) < NORMAL_POINT:
        return 1.0
    return math.sqrt((1 + correlation) / (1 - correlation))


@cache
def _rejected_ratios(steps_a: int, steps_b: int) -> int:
    """How many of all ratios of a step of B to one of A, sorted, lie below the interval;
    as many lie above it. 0 with too few steps for an interval."""
    if max(steps_a, steps_b) <= MAX_EXACT_STEPS:
        return _in_tail(_orders_by_inversions(steps_a, steps_b))
    ratios = steps_a * steps_b
    spread = math.sqrt(ratios * (steps_a + steps_b + 1) / 12)
    return max(1, int(ratios / 2 - NORMAL_POINT * spread))


@cache
def rejected_rounds(rounds: int) -> int:
    """How many of the means of any two of so many differences, sorted, lie below the
    interval; as many lie above it. 0 for fewer than FEW_ROUNDS."""
    if rounds > MAX_EXACT_ROUNDS:
        total = rounds * (rounds + 1)
        spread = math.sqrt(total * (2 * rounds + 1) / 24)
        return max(1, int(total / 4 - NORMAL_POINT * spread))
    ways = np.ones(1)
    for rank in range(1, rounds + 1):
        # the coefficients of the product of 1 + q ** rank
        zeros = np.zeros(rank)
        ways = np.append(ways, zeros) + np.append(zeros, ways)
    return _in_tail(ways)


def _in_tail(ways: Floats) -> int:
    """How many of the first outcomes of a test have together a probability of at most
    TAIL. `ways`: in how many equally likely ways each outcome comes about."""
    return int(np.count_nonzero(np.cumsum(ways) / ways.sum() <= TAIL))


def _orders_by_inversions(steps_a: int, steps_b: int) -> Floats:
    """In how many orders of the steps of two sides there are 0, 1, ... inversions: the
    coefficients of the Gaussian binomial; shape [steps_a * steps_b + 1]."""
    largest = steps_a * steps_b
    ways = np.zeros(largest + 1)
    ways[0] = 1.0
    for n in range(1, steps_a + 1):
        product = ways.copy()
        if steps_b + n <= largest:  # times 1 - q ** (steps_b + n)
            product[steps_b + n :] -= ways[: -(steps_b + n)]
        for power in range(n, len(product)):  # divided by 1 - q ** n
            product[power] += product[power - n]
        ways = product
    return ways


class UsualSteps(msgspec.Struct, frozen=True, eq=False):
    """The steps of each side over which its figures are means."""

    a: Rows
    b: Rows


def usual_steps(
    durations_a: Int64s, durations_b: Int64s, alike_a: Rows, alike_b: Rows
) -> UsualSteps:
    """The steps of each side over which every figure is a mean, so that parts add up to
    the whole.

    `durations_*` are those of all steps (ns), `alike_*` the steps that do the usual
    work. Of these, as many as possible around the median step whose mean is the median;
    where these are fewer than `_min_usual_steps`, those around it whose mean is nearest
    to the median. The same steps on both sides, where the two have equally many and the
    same ones will do.
    """
    a = _alike_steps(durations_a, alike_a)
    b = _alike_steps(durations_b, alike_b)
    around_a = _around_median([a], alike_a)
    around_b = _around_median([b], alike_b)
    if len(durations_a) == len(durations_b):
        common = np.intersect1d(alike_a, alike_b)
        around_both = _around_median([a, b], common)
        is_enough = len(around_both) >= _min_usual_steps(common)
        if is_enough and 2 * len(around_both) > min(len(around_a), len(around_b)):
            return UsualSteps(a=around_both, b=around_both)
    if len(around_a) < _min_usual_steps(alike_a):
        around_a = _nearest_to_median(a, alike_a)
    if len(around_b) < _min_usual_steps(alike_b):
        around_b = _nearest_to_median(b, alike_b)
    return UsualSteps(a=around_a, b=around_b)


class _AlikeSteps(msgspec.Struct, frozen=True, eq=False):
    """The steps of a side, with the median of those that do the usual work."""

    durations: Int64s  # of all steps, ns; shape [steps]
    median_ns: float
    distance: Floats  # from the median, as a share of it; shape [steps]


def _alike_steps(durations: Int64s, alike: Rows) -> _AlikeSteps:
    """The steps of a side. `alike`: those that do the usual work."""
    median_ns = median_of_usual_work(durations, alike)
    distance = np.abs(durations - median_ns) / max(median_ns, 1.0)
    return _AlikeSteps(durations=durations, median_ns=median_ns, distance=distance)


def median_of_usual_work(durations: Int64s, alike: Rows) -> float:
    """The median length of the steps that do the usual work (`alike`), if these are more
    than half of all steps, else of all steps (ns); 0 without steps."""
    are_most = 2 * len(alike) > len(durations)
    of_usual_work = durations[alike] if are_most else durations
    return float(np.median(of_usual_work)) if len(of_usual_work) else 0.0


def _min_usual_steps(alike: Rows) -> int:
    """How many of these steps are chosen at least: MIN_USUAL_STEPS of FEW_STEPS or more,
    else one; 0 of none."""
    return MIN_USUAL_STEPS if len(alike) >= FEW_STEPS else min(1, len(alike))


def _around_median(sides: Sequence[_AlikeSteps], alike: Rows) -> Rows:
    """As many of the alike steps as possible, nearest to the median first, whose mean is
    the median on each of these sides, up to MAX_SHARE_OFF; ascending, empty if there
    are none such."""
    if not len(alike):
        return alike
    distance = np.sum([side.distance for side in sides], axis=0)
    nearest_first = alike[np.argsort(distance[alike], kind="stable")]
    counts = np.arange(1, len(nearest_first) + 1)
    is_median = np.ones(len(nearest_first), dtype=np.bool_)
    for side in sides:
        means = np.cumsum(side.durations[nearest_first]) / counts
        off_ns = np.abs(means - side.median_ns)
        is_median &= off_ns <= MAX_SHARE_OFF * max(side.median_ns, 1)
    if not is_median.any():
        return nearest_first[:0]
    most = int(np.flatnonzero(is_median)[-1]) + 1
    return np.sort(nearest_first[:most])


def _nearest_to_median(side: _AlikeSteps, alike: Rows) -> Rows:
    """Those first of the alike steps, nearest to the median first, whose mean is the
    nearest to the median; at least `_min_usual_steps` of them, ascending. There is at
    least one alike step."""
    nearest_first = alike[np.argsort(side.distance[alike], kind="stable")]
    counts = np.arange(1, len(nearest_first) + 1)
    means = np.cumsum(side.durations[nearest_first]) / counts
    fewest = _min_usual_steps(alike)
    off_ns = np.abs(means - side.median_ns)[fewest - 1 :]
    most = fewest + int(np.argmin(off_ns))
    return np.sort(nearest_first[:most])
