"""Means, medians, intervals of ratios, and the steps that represent all steps.

Everything here is computed from durations alone. Arrays of samples have the shape
[steps] or [steps, columns], where a column is a piece of work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Flags, Floats, Int64s, Rows, rank_of_each
from fusetui.trace.model.quantiles import median, medians

MIN_STEPS_FOR_VERDICT = 5
"""A verdict needs this many steps on each side. n samples enclose the true median with
a probability of 1 - 2**(1 - n): 94 % for five, 88 % for four (too few for 95 %)."""

MIN_ROUNDS_FOR_VERDICT = 6
"""A verdict on steps that took turns needs this many rounds: the signed-rank test
rejects nothing at 5 % of five, because 2 of 32 signs are all alike."""

CONFIDENCE = 95  # the confidence level of an interval, in percent

TAIL_PROBABILITY = 0.025
"""The share of the distribution that the interval leaves out on each side."""

NORMAL_POINT = 1.959964  # the two-sided 5 % point of the normal distribution

FLOOR_PERCENT, FLOOR_NS = 5, 100
"""A change of a kernel below either floor is noise: clocks of GPUs tick in up to tens
of ns."""

MICROSECOND_NS = 1000

MIN_STEPS_FOR_CORRELATION = 10
"""With fewer steps, the correlation of successive steps is not estimated."""

MIN_STEPS_FOR_TREND = 4  # with fewer, no trend is significant

MAX_EXACT_STEPS = 60
"""Up to this many steps on a side, the distribution of the rank test is counted out;
beyond, it is taken as normal."""

MAX_EXACT_ROUNDS = 100
"""Up to this many rounds, the distribution of the signed-rank test is counted out."""

MAX_SHARE_OFF = 0.005
"""The mean time of the usual steps is within this share of the median."""

MIN_USUAL_STEPS = 3
"""At least this many steps are usual of MIN_STEPS_FOR_VERDICT or more: the times of
single pieces in one or two steps are chance."""


def mean(samples: Int64s) -> Int64s:
    """Return the mean over the first axis, rounded to whole numbers.

    Halves are rounded away from zero. The mean of no samples is 0.

    >>> mean(np.array([[10, -1], [11, -2]])).tolist()  # two columns
    [11, -2]
    """
    count = max(1, len(samples))
    total = samples.sum(axis=0)
    magnitude = (2 * np.abs(total) + count) // (2 * count)
    return np.asarray(np.sign(total) * magnitude)


class MiddleHalf(msgspec.Struct, frozen=True, eq=False):
    """The least and the greatest of the middle half of samples, one per column."""

    low: Int64s
    high: Int64s

    def overlaps(self, other: MiddleHalf) -> Flags:
        """Return for each column whether the two have a value in common."""
        return np.asarray((self.low <= other.high) & (other.low <= self.high))


def find_middle_half(samples: Int64s) -> MiddleHalf:
    """Return the range of the middle half of samples over the first axis.

    Of fewer than five samples, that is the range of all of them. There must be at least
    one.

    >>> find_middle_half(np.array([[1], [10], [11], [12], [900]]))
    MiddleHalf(low=array([10]), high=array([12]))
    """
    ordered = np.sort(samples, axis=0)
    last = len(samples) - 1
    left_out = last // 4  # at each end
    return MiddleHalf(low=ordered[left_out], high=ordered[last - left_out])


def compute_midmean(samples: Int64s) -> Int64s:
    """Return the mean of the middle half of samples over the first axis, rounded.

    >>> compute_midmean(np.array([1, 10, 11, 12, 900])).tolist()
    11
    """
    ordered = np.sort(samples, axis=0)
    left_out = (len(samples) - 1) // 4  # at each end
    return mean(ordered[left_out : len(samples) - left_out])


def are_far_apart(
    a: Int64s, b: Int64s, resolution_ns: int, *, paired: bool = False
) -> Flags:
    """Return for each column whether the times of A and B are clearly different.

    They are if their medians differ by more than the floor, and their middle halves do
    not overlap. The floor is the largest of FLOOR_PERCENT of the larger median, FLOOR_NS
    and a tick of the clock.

    If the steps are paired, it is also enough that every step of B takes longer than
    that of A (or every one less long), and that the median change is above the floor.
    This is because a step that is slow on both sides makes the times of all steps
    overlap.

    >>> a, b = np.array([[50_000], [51_000]]), np.array([[90_000], [91_000]])
    >>> are_far_apart(a, b, resolution_ns=0).tolist(), are_far_apart(a, a, 0).tolist()
    ([True], [False])

    Args:
        a: Samples of A in ns, [steps, columns].
        b: Samples of B in ns, with the same columns.
        resolution_ns: The tick of the clock.
        paired: Whether the n-th steps of both sides vary together.
    """
    median_a = medians(a)
    median_b = medians(b)
    share_ns = np.maximum(median_a, median_b) * FLOOR_PERCENT // 100
    floor_ns = np.maximum(share_ns, max(FLOOR_NS, resolution_ns))

    is_large = np.abs(median_b - median_a) > floor_ns
    is_apart = ~find_middle_half(a).overlaps(find_middle_half(b))
    is_far = is_large & is_apart
    if paired:
        changes_ns = b - a
        is_always_longer = (changes_ns > 0).all(axis=0)
        is_always_shorter = (changes_ns < 0).all(axis=0)
        is_large_change = np.abs(medians(changes_ns)) > floor_ns
        is_far |= (is_always_longer | is_always_shorter) & is_large_change
    return np.asarray(is_far)


def detect_tick_ns(*samples: Int64s) -> int:
    """Return the tick of the clocks in ns: 1000, or 0 if it is finer.

    Args:
        samples: Times in ns, one array per clock. If all times of one of them are whole
            microseconds, its clock ticks in microseconds.
    """
    for times_ns in samples:
        are_whole_microseconds = (times_ns % MICROSECOND_NS == 0).all()
        if times_ns.size and are_whole_microseconds:
            return MICROSECOND_NS
    return 0


class Interval(msgspec.Struct, frozen=True):
    """How long a step of B takes, divided by how long a step of A takes."""

    ratio: float
    low: float | None = None  # of the interval at CONFIDENCE; None with too few steps
    high: float | None = None
    # How much longer the last step of a run took than its first, as a share: see
    # `drift`.
    drift_a: float = 0.0
    drift_b: float = 0.0


def estimate_ratio_interval(a: Int64s, b: Int64s) -> Interval:
    """Estimate the ratio B / A of two separate runs, with its interval.

    The interval has all ratios that the rank test of Mann, Whitney and Wilcoxon does
    not reject at 5 % (E. L. Lehmann, Nonparametrics, 1975: chapter 2). It is widened by
    the correlation of successive steps, and by the drift of the runs, which shows how
    much a run at another time may differ whatever is compared.

    Args:
        a: Durations of the steps of A in order of time, in ns. Four steps on each side
            are enough to reject any ratio.
        b: Durations of the steps of B.
    """
    ratio = median(b) / max(1, median(a))
    durations_a = a[a > 0]
    durations_b = b[b > 0]
    if not len(durations_a) or not len(durations_b):
        return Interval(ratio=ratio)
    rejected = _count_rejected_ratios(len(durations_a), len(durations_b))
    if not rejected:
        return Interval(ratio=ratio)

    # The ratio of each step of B to each step of A. The interval leaves out the
    # `rejected` least and the `rejected` greatest of them.
    ratios = np.sort(np.divide.outer(durations_b, durations_a).ravel())
    center = float(np.median(ratios))
    lowest = float(ratios[rejected - 1])
    highest = float(ratios[-rejected])

    # Each end of the interval is moved away from its center, by the logarithm.
    widening = max(compute_widening(durations_a), compute_widening(durations_b))
    low = center * (lowest / center) ** widening
    high = center * (highest / center) ** widening

    drift_a = estimate_drift(durations_a)
    drift_b = estimate_drift(durations_b)
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


def estimate_paired_interval(a: Int64s, b: Int64s) -> Interval:
    """Estimate the ratio B / A of steps that took turns, with its interval.

    The n-th step of A ran next to the n-th step of B, which is a *round*. The interval
    has all ratios that Wilcoxon's signed-rank test of the logarithms of the ratios of
    rounds does not reject at 5 %, and is widened by the correlation of successive
    rounds. The ratio is the estimate of Hodges and Lehmann, the median of the means of
    any two rounds (E. L. Lehmann, Nonparametrics, 1975: chapter 4).

    The test only assumes that a difference is as likely to be x as -x where nothing
    changed. Turns in random order see to that, whatever the noise is.

    Args:
        a: Durations of the steps of A in order of time, in ns.
        b: Durations of the steps of B, equally many.
    """
    drift_a = estimate_drift(a)
    drift_b = estimate_drift(b)
    takes_time = (a > 0) & (b > 0)
    logs = np.log(b[takes_time] / a[takes_time])
    rejected = count_rejected_rounds(len(logs))
    if not rejected:
        ratio = float(np.exp(np.median(logs))) if len(logs) else 1.0
        return Interval(ratio=ratio, drift_a=drift_a, drift_b=drift_b)

    # The mean of each two rounds, a round with itself included. The interval leaves out
    # the `rejected` least and the `rejected` greatest of them.
    first, second = np.triu_indices(len(logs))
    means = np.sort((logs[first] + logs[second]) / 2)
    center = float(np.median(means))
    lowest = float(means[rejected - 1])
    highest = float(means[-rejected])

    widening = compute_widening(logs)
    low = center + (lowest - center) * widening
    high = center + (highest - center) * widening
    return Interval(
        ratio=math.exp(center),
        low=math.exp(low),
        high=math.exp(high),
        drift_a=drift_a,
        drift_b=drift_b,
    )


def estimate_drift(durations: Int64s) -> float:
    """Estimate how much longer the last step took than the first.

    The slope is the median slope of all pairs of steps (Theil and Sen).

    >>> estimate_drift(np.array([100, 101, 102, 103, 104, 105, 106, 107, 108, 109]))
    0.0861244019138756

    Args:
        durations: The durations of the steps in order of time.

    Returns:
        A share of the median step; 0 where Kendall's test at 5 % finds no trend.
    """
    steps = len(durations)
    if steps < MIN_STEPS_FOR_TREND:
        return 0.0

    # All pairs of an earlier and a later step.
    earlier, later = np.triu_indices(steps, 1)
    rises_ns = durations[later] - durations[earlier]

    # Kendall's test: how many more pairs rise than fall, or the reverse. The 1 is the
    # correction for a count that is compared with a continuous distribution.
    surplus_of_one_sign = abs(int(np.sign(rises_ns).sum()))
    standard_deviation = math.sqrt(steps * (steps - 1) * (2 * steps + 5) / 18)
    has_trend = (surplus_of_one_sign - 1) / standard_deviation >= NORMAL_POINT
    if not has_trend:
        return 0.0

    slope_ns = float(np.median(rises_ns / (later - earlier)))
    rise_ns = slope_ns * (steps - 1)
    return rise_ns / float(np.median(durations))


def compute_widening(samples: Int64s | Floats) -> float:
    """Return the factor by which correlated steps widen an interval, at least 1.

    Intervals take steps for independent. Where slow steps follow slow ones, n steps are
    worth only n (1 - r) / (1 + r) independent ones; r is the correlation of successive
    ranks. The factor is 1 if r is negative or not significant.

    >>> compute_widening(np.array([5, 9] * 10)), round(compute_widening(np.arange(20)), 2)
    (1.0, 3.51)

    Args:
        samples: Times or differences in order of time.
    """
    steps = len(samples)
    if steps < MIN_STEPS_FOR_CORRELATION:
        return 1.0

    mean_rank = (steps - 1) / 2
    centered_ranks = rank_of_each(np.argsort(samples, kind="stable")) - mean_rank
    covariance = (centered_ranks[1:] * centered_ranks[:-1]).sum()
    correlation = float(covariance / (centered_ranks**2).sum())
    is_significant = correlation * math.sqrt(steps) >= NORMAL_POINT
    if not is_significant:
        return 1.0
    return math.sqrt((1 + correlation) / (1 - correlation))


@cache
def _count_rejected_ratios(steps_a: int, steps_b: int) -> int:
    """Return how many of all ratios lie below the interval; as many lie above it.

    There is a ratio for each step of B and each step of A. Returns 0 if there are too
    few steps for an interval.

    >>> _count_rejected_ratios(3, 3), _count_rejected_ratios(4, 4), _count_rejected_ratios(10, 10)
    (0, 1, 24)
    """
    if max(steps_a, steps_b) <= MAX_EXACT_STEPS:
        return _count_outcomes_in_tail(_count_orders_by_inversions(steps_a, steps_b))
    # The statistic of the rank test is about normal, with this mean and deviation.
    ratios = steps_a * steps_b
    expected = ratios / 2
    standard_deviation = math.sqrt(ratios * (steps_a + steps_b + 1) / 12)
    return max(1, int(expected - NORMAL_POINT * standard_deviation))


@cache
def count_rejected_rounds(rounds: int) -> int:
    """Return how many means of two rounds lie below the interval; as many lie above.

    Returns 0 for fewer than MIN_ROUNDS_FOR_VERDICT rounds.

    >>> [count_rejected_rounds(rounds) for rounds in (5, 6, 10, 20)]
    [0, 1, 9, 53]
    """
    if rounds > MAX_EXACT_ROUNDS:
        # The statistic of the test is about normal, with this mean and deviation.
        expected = rounds * (rounds + 1) / 4
        variance = rounds * (rounds + 1) * (2 * rounds + 1) / 24
        return max(1, int(expected - NORMAL_POINT * math.sqrt(variance)))

    # ways[s]: in how many ways signs can be chosen so that positive ranks add up to s.
    ways = np.ones(1)
    for rank in range(1, rounds + 1):
        no_ways = np.zeros(rank)
        with_negative_rank = np.append(ways, no_ways)  # the sums stay as they are
        with_positive_rank = np.append(no_ways, ways)  # the sums are larger by the rank
        ways = with_negative_rank + with_positive_rank
    return _count_outcomes_in_tail(ways)


def _count_outcomes_in_tail(ways: Floats) -> int:
    """Count the first outcomes of a test that together have at most TAIL_PROBABILITY.

    >>> _count_outcomes_in_tail(np.array([1.0, 1.0, 98.0]))  # 1 %, then 2 %, then 100 %
    2

    Args:
        ways: For each outcome, in order, in how many equally likely ways it comes
            about.
    """
    probability_so_far = np.cumsum(ways) / ways.sum()
    return int(np.count_nonzero(probability_so_far <= TAIL_PROBABILITY))


def _count_orders_by_inversions(steps_a: int, steps_b: int) -> Floats:
    """Count the orders of the steps of two sides by their number of inversions.

    The counts are the coefficients of a Gaussian binomial.

    >>> _count_orders_by_inversions(2, 2).tolist()  # aabb has no inversion, bbaa has 4
    [1.0, 1.0, 2.0, 1.0, 1.0]

    Returns:
        In how many orders there are 0, 1, ... inversions; [steps_a * steps_b + 1].
    """
    most_inversions = steps_a * steps_b
    ways = np.zeros(most_inversions + 1)
    ways[0] = 1.0
    for n in range(1, steps_a + 1):
        # Multiply the polynomial by 1 - q ** (steps_b + n).
        product = ways.copy()
        if steps_b + n <= most_inversions:
            product[steps_b + n :] -= ways[: -(steps_b + n)]
        # Divide it by 1 - q ** n.
        for power in range(n, len(product)):
            product[power] += product[power - n]
        ways = product
    return ways


class UsualSteps(msgspec.Struct, frozen=True, eq=False):
    """The indices of the steps of each side over which its figures are means."""

    a: Rows
    b: Rows


def choose_steps_to_average(
    durations_a: Int64s, durations_b: Int64s, same_work_a: Rows, same_work_b: Rows
) -> UsualSteps:
    """Choose the steps of A and of B over which every figure is a mean.

    Medians of parts would not add up to the median of the whole. So each figure is a
    mean over steps whose mean duration is the median duration. As many steps as
    possible are chosen, around the median. If these are too few, steps around the
    median are chosen whose mean is nearest to it.

    If A and B have equally many steps, the same steps are chosen in both. This must not
    cost either of them more than half of its steps.

    Args:
        durations_a: The durations of all steps of A in ns.
        durations_b: The durations of all steps of B in ns.
        same_work_a: The indices of the steps of A that do the usual work.
        same_work_b: The same of B.
    """
    a = _measure_distances(durations_a, same_work_a)
    b = _measure_distances(durations_b, same_work_b)

    # Empty where no number of steps around the median has about the median as its mean.
    around_a = _choose_around_median([a], same_work_a)
    around_b = _choose_around_median([b], same_work_b)

    if len(durations_a) == len(durations_b):
        same_work_in_both = np.intersect1d(same_work_a, same_work_b)
        around_both = _choose_around_median([a, b], same_work_in_both)
        is_enough = len(around_both) >= _compute_min_usual_steps(same_work_in_both)
        if is_enough and 2 * len(around_both) > min(len(around_a), len(around_b)):
            return UsualSteps(a=around_both, b=around_both)

    if len(around_a) < _compute_min_usual_steps(same_work_a):
        around_a = _choose_nearest_to_median(a, same_work_a)
    if len(around_b) < _compute_min_usual_steps(same_work_b):
        around_b = _choose_nearest_to_median(b, same_work_b)
    return UsualSteps(a=around_a, b=around_b)


class _StepDistances(msgspec.Struct, frozen=True, eq=False):
    """How far all steps of a side are from the median of those with usual work."""

    durations: Int64s  # of all steps, ns
    median_ns: float  # of the steps with usual work
    distance: Floats  # of each step from that median, as a share of it


def _measure_distances(durations: Int64s, same_work: Rows) -> _StepDistances:
    """Measure how far each step is from the median of the steps that do the usual work.

    `same_work` has the indices of these steps, and `durations` has all steps in ns.
    """
    median_ns = compute_median_of_usual_work(durations, same_work)
    distance = np.abs(durations - median_ns) / max(median_ns, 1.0)
    return _StepDistances(durations=durations, median_ns=median_ns, distance=distance)


def compute_median_of_usual_work(durations: Int64s, same_work: Rows) -> float:
    """Return the median duration of the steps that do the usual work.

    If these are at most half of all steps, it is the median of all steps. Without steps
    it is 0.

    Args:
        durations: The durations of all steps in ns.
        same_work: The indices of the steps that do the usual work.
    """
    are_most = 2 * len(same_work) > len(durations)
    counted = durations[same_work] if are_most else durations
    return float(np.median(counted)) if len(counted) else 0.0


def _compute_min_usual_steps(candidates: Rows) -> int:
    """Return over how many of some steps a mean has to be taken, at least.

    That is MIN_USUAL_STEPS of MIN_STEPS_FOR_VERDICT or more, one of fewer, and 0 of
    none.
    """
    if len(candidates) >= MIN_STEPS_FOR_VERDICT:
        return MIN_USUAL_STEPS
    return min(1, len(candidates))


def _choose_around_median(sides: Sequence[_StepDistances], candidates: Rows) -> Rows:
    """Choose as many steps as possible whose mean duration is the median.

    Steps are added by their distance from the median, the nearest first. Their mean may
    be off by MAX_SHARE_OFF. With two traces, this has to hold in both.

    Args:
        sides: The traces for which the same steps are chosen; one or two.
        candidates: The indices of the steps to choose from.

    Returns:
        Indices of steps, ascending; empty if no number of steps has such a mean.
    """
    if not len(candidates):
        return candidates

    distance = np.sum([side.distance for side in sides], axis=0)
    nearest_first = candidates[np.argsort(distance[candidates], kind="stable")]

    # One entry per number of steps: the nearest one, the nearest two, and so on.
    numbers_of_steps = np.arange(1, len(nearest_first) + 1)
    is_mean_near = np.ones(len(nearest_first), dtype=np.bool_)
    for side in sides:
        means = np.cumsum(side.durations[nearest_first]) / numbers_of_steps
        off_ns = np.abs(means - side.median_ns)
        is_mean_near &= off_ns <= MAX_SHARE_OFF * max(side.median_ns, 1)
    most_steps = numbers_of_steps[is_mean_near].max(initial=0)
    return np.sort(nearest_first[:most_steps])


def _choose_nearest_to_median(side: _StepDistances, candidates: Rows) -> Rows:
    """Choose the steps around the median duration whose mean is nearest to it.

    Steps are taken in the order of their distance from the median, as long as that
    brings the mean nearer. Of 98, 100, 101 and 140 ns, with a median of 100 ns, these
    are the first three (mean 99.7). At least `_compute_min_usual_steps` are chosen.

    Args:
        side: The durations of the steps of a trace, and their distances from the
            median.
        candidates: The indices of the steps to choose from, at least one.

    Returns:
        Indices of steps, ascending.
    """
    nearest_first = candidates[np.argsort(side.distance[candidates], kind="stable")]
    # One entry per number of steps: the nearest one, the nearest two, and so on.
    numbers_of_steps = np.arange(1, len(nearest_first) + 1)
    means = np.cumsum(side.durations[nearest_first]) / numbers_of_steps
    off_ns = np.abs(means - side.median_ns)

    # Too few steps are no choice, however near their mean is.
    off_ns[numbers_of_steps < _compute_min_usual_steps(candidates)] = np.inf
    best_number = numbers_of_steps[off_ns.argmin()]
    return np.sort(nearest_first[:best_number])
