"""Medians, means, intervals of ratios, and the steps that represent all, from durations
alone."""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np

from fusetui.trace.model.arrays import Flags, Floats, Int64s, Rows

FEW_STEPS = 5
"""A verdict needs this many steps on each side. n samples enclose the true median with
a probability of 1 - 2**(1 - n): 94 % for five, 88 % for four (too few for 95 %)."""

CONFIDENCE = 95  # the confidence level of an interval, in percent

FLOOR_PERCENT, FLOOR_NS = 5, 100
"""A change of a kernel below either floor is noise: clocks of GPUs tick in up to tens
of ns."""


def median(samples: Int64s) -> Int64s:
    """Along the first axis; of an even count the mean of the middle two, rounded
    down."""
    ordered = np.sort(samples, axis=0)
    return np.asarray(
        (ordered[(len(samples) - 1) // 2] + ordered[len(samples) // 2]) // 2
    )


def middle_half(samples: Int64s) -> tuple[Int64s, Int64s]:
    """Least and greatest of the middle half along the first axis; of all for fewer than
    four."""
    ordered = np.sort(samples, axis=0)
    last = len(samples) - 1
    return ordered[last // 4], ordered[last - last // 4]


def midmean(samples: Int64s) -> Int64s:
    """The mean of the middle half along the first axis; of all for fewer than four."""
    last = len(samples) - 1
    return mean(np.sort(samples, axis=0)[last // 4 : last - last // 4 + 1])


def far_apart(
    a: Int64s, b: Int64s, resolution_ns: int, *, paired: bool = False
) -> Flags:
    """The medians differ by more than 5 %, 100 ns and a tick; the middle halves do not
    overlap.

    `paired`: the n-th steps of both sides vary together. Then it is enough that every
    step of B takes longer than that of A, or every one less long, by as much at the
    median: a step that is slow on both sides makes the times of all steps overlap.
    """
    median_a, median_b = median(a), median(b)
    floor_ns = np.maximum(median_a, median_b) * FLOOR_PERCENT // 100
    floor_ns = np.maximum(floor_ns, max(FLOOR_NS, resolution_ns))
    (low_a, high_a), (low_b, high_b) = middle_half(a), middle_half(b)
    are_halves_apart = (low_a > high_b) | (low_b > high_a)
    is_far = (np.abs(median_b - median_a) > floor_ns) & are_halves_apart
    if paired:
        changes_ns = b - a
        is_in_every_step = (changes_ns > 0).all(axis=0) | (changes_ns < 0).all(axis=0)
        is_far |= (np.abs(median(changes_ns)) > floor_ns) & is_in_every_step
    return np.asarray(is_far)


def resolution(*samples: Int64s) -> int:
    """The tick of the clocks (ns): 1000 in a file with whole microseconds, 0 when
    finer."""
    return 1000 if any(of.size and not (of % 1000).any() for of in samples) else 0


TAIL = 0.025  # the share of the distribution that the interval leaves out on each side
ENOUGH = 10  # with fewer steps, how one depends on the one before is not estimated
# the signed-rank test rejects nothing at 5 % of five: 2 of 32 signs are all alike
FEW_ROUNDS = 6
# up to so many, the distribution is counted out; beyond, it is normal
EXACT_ROUNDS = 100
EXACT = 60  # the same for steps per side
Z = 1.959964  # the two-sided 5 % point of the normal distribution


class Interval(NamedTuple):
    """B / A: `ratio` within [low, high], None with too few steps; and by how much each
    run drifted from its first to its last step."""

    ratio: float
    low: float | None = None
    high: float | None = None
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
    ratio = int(median(b)) / max(1, int(median(a)))
    before, after = a[a > 0], b[b > 0]
    count = _rejected(len(before), len(after)) if len(before) and len(after) else 0
    if not count:
        return Interval(ratio)
    ratios = np.sort((after[None, :] / before[:, None]).ravel())
    low, high = float(ratios[count - 1]), float(ratios[len(ratios) - count])
    center, by = float(np.median(ratios)), max(wider(before), wider(after))
    low, high = center * (low / center) ** by, center * (high / center) ** by
    drifts = drift(before), drift(after)
    apart = max(map(abs, drifts))
    low, high = low * (1 - apart) if apart < 1 else 0.0, high * (1 + apart)
    return Interval(ratio, min(low, ratio), max(high, ratio), *drifts)


def paired_interval(a: Int64s, b: Int64s) -> Interval:
    """The same where the n-th step of A ran next to the n-th of B: by Wilcoxon's
    signed-rank test of the logarithms, widened by the correlation of successive rounds.

    It takes for granted only that a difference is as likely to be x as -x where nothing
    changed, which turns in random order see to, whatever the noise is. The ratio is the
    estimate of Hodges and Lehmann, the median of the means of any two. (E. L. Lehmann,
    Nonparametrics, 1975: chapter 4)
    """
    known, drifts = (a > 0) & (b > 0), (drift(a), drift(b))
    logs = np.log(b[known] / a[known])
    count = rejected_rounds(len(logs))
    if not count:
        ratio = float(np.exp(np.median(logs))) if len(logs) else 1.0
        return Interval(ratio, None, None, *drifts)
    first, second = np.triu_indices(len(logs))
    means = np.sort((logs[first] + logs[second]) / 2)
    center, by = float(np.median(means)), wider(logs)
    low, high = (center + (float(means[n]) - center) * by for n in (count - 1, -count))
    return Interval(math.exp(center), math.exp(low), math.exp(high), *drifts)


def drift(durations: Int64s) -> float:
    """How much longer the last step took than the first, as a share, by the median of
    all slopes (Theil and Sen); 0 where Kendall's test at 5 % finds no trend."""
    size = len(durations)
    first, last = np.triu_indices(size, 1)
    rises = (
        abs(int(np.sign(durations[last] - durations[first]).sum())) if size > 3 else 0
    )
    spread = (size * (size - 1) * (2 * size + 5) / 18) ** 0.5
    if rises <= 1 or (rises - 1) / spread < Z:
        return 0.0
    slopes = (durations[last] - durations[first]) / (last - first)
    return float(np.median(slopes)) * (size - 1) / float(np.median(durations))


def wider(samples: Int64s | Floats) -> float:
    """The factor by which an interval is too narrow where slow steps follow slow ones:
    n steps are worth n (1 - r) / (1 + r) independent ones, where r is the correlation
    of successive ranks. 1 if r is not significant."""
    size = len(samples)
    if size < ENOUGH:
        return 1.0
    ranks = np.argsort(np.argsort(samples, kind="stable")) - (size - 1) / 2
    found = float((ranks[1:] * ranks[:-1]).sum() / (ranks * ranks).sum())
    return 1.0 if found * math.sqrt(size) < Z else math.sqrt((1 + found) / (1 - found))


@cache
def _rejected(a: int, b: int) -> int:
    """How many of the sorted ratios lie below the interval, and as many above it."""
    if max(a, b) > EXACT:
        return max(1, int(a * b / 2 - Z * math.sqrt(a * b * (a + b + 1) / 12)))
    return _in_tail(_ways(a, b))


@cache
def rejected_rounds(size: int) -> int:
    """The same for the means of any two of so many differences; 0 for fewer than
    FEW_ROUNDS."""
    if size > EXACT_ROUNDS:
        total = size * (size + 1)
        return max(1, int(total / 4 - Z * math.sqrt(total * (2 * size + 1) / 24)))
    ways = np.ones(1)
    for rank in range(1, size + 1):  # the coefficients of the product of 1 + q ** rank
        zeros = np.zeros(rank)
        ways = np.append(ways, zeros) + np.append(zeros, ways)
    return _in_tail(ways)


def _in_tail(ways: Floats) -> int:
    """How many of the outcomes of a test, in order, leave no more than TAIL below
    them."""
    return int(np.count_nonzero(np.cumsum(ways) / ways.sum() <= TAIL))


def _ways(a: int, b: int) -> Floats:
    """The orders of a and b steps by inversions: the coefficients of the Gaussian
    binomial."""
    found = np.zeros(a * b + 1)
    found[0] = 1.0
    for n in range(1, a + 1):
        more = found.copy()
        if b + n <= a * b:  # times 1 - q ** (b + n)
            more[b + n :] -= found[: -(b + n)]
        for place in range(n, len(more)):  # divided by 1 - q ** n
            more[place] += more[place - n]
        found = more
    return found


WITHIN = 0.005  # the mean time of the chosen steps is within this share of the median
MIN_USUAL_STEPS = 3
"""At least so many steps are chosen of FEW_STEPS or more: the times of single pieces in
one or two steps are chance."""


def usual_steps(
    a: Int64s, b: Int64s, alike_a: Rows, alike_b: Rows
) -> tuple[Rows, Rows]:
    """The steps of each side over which every figure is a mean, so that parts add up to
    the whole.

    `a` and `b` are the durations of all steps (ns), `alike_*` the steps that do the
    usual work. Of these, as many as possible around the median step whose mean is the
    median; where these are fewer than `_fewest`, those around it whose mean is nearest
    to the median. The same steps on both sides, where the two have equally many and the
    same ones will do.
    """
    medians = np.array([middle(a, alike_a), middle(b, alike_b)])
    away = [np.abs(of - m) / max(m, 1.0) for of, m in zip((a, b), medians, strict=True)]
    of_a = _around_median(a[None], medians[:1], alike_a, away[0])
    of_b = _around_median(b[None], medians[1:], alike_b, away[1])
    if len(a) == len(b):
        common = np.intersect1d(alike_a, alike_b)
        both = _around_median(np.stack([a, b]), medians, common, away[0] + away[1])
        if len(both) >= _fewest(common) and 2 * len(both) > min(len(of_a), len(of_b)):
            return both, both
    if len(of_a) < _fewest(alike_a):
        of_a = _nearest_to_median(a, medians[0], alike_a, away[0])
    if len(of_b) < _fewest(alike_b):
        of_b = _nearest_to_median(b, medians[1], alike_b, away[1])
    return of_a, of_b


def _fewest(alike: Rows) -> int:
    """How many of these steps are chosen at least: of fewer than FEW_STEPS the median
    one."""
    return MIN_USUAL_STEPS if len(alike) >= FEW_STEPS else min(1, len(alike))


def _nearest_to_median(
    durations: Int64s, median: float, alike: Rows, distance: Floats
) -> Rows:
    """Of the alike steps, nearest to the median first, as many as have the mean that is
    nearest to the median; at least `_fewest`."""
    order = alike[np.argsort(distance[alike], kind="stable")]
    means = np.cumsum(durations[order]) / np.arange(1, len(order) + 1)
    fewest = _fewest(alike)
    off = np.abs(means - median)[fewest - 1 :]
    return np.sort(order[: fewest + int(np.argmin(off))])


def mean(samples: Int64s) -> Int64s:
    """Along the first axis, in whole numbers, halves away from zero; 0 of none."""
    count = max(1, len(samples))
    total = samples.sum(axis=0)
    return np.asarray(np.sign(total) * ((2 * np.abs(total) + count) // (2 * count)))


def middle(durations: Int64s, alike: Rows) -> float:
    """The median step: of those that do the usual work, where these are most of
    them."""
    of = durations[alike] if 2 * len(alike) > len(durations) else durations
    return float(np.median(of)) if len(of) else 0.0


def _around_median(
    durations: Int64s, medians: Floats, alike: Rows, distance: Floats
) -> Rows:
    """The most of the alike steps, nearest to the median first, whose mean is the
    median on each side; `durations`: [sides, steps]. Empty when there are none."""
    if not len(alike):
        return alike
    order = alike[np.argsort(distance[alike], kind="stable")]
    means = np.cumsum(durations[:, order], axis=1) / np.arange(1, len(order) + 1)
    wanted = medians[:, None]
    near = (np.abs(means - wanted) <= WITHIN * np.maximum(wanted, 1)).all(axis=0)
    most = int(np.flatnonzero(near)[-1]) + 1 if near.any() else 0
    return np.sort(order[:most])
