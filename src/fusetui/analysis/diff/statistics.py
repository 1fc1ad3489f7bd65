"""Medians, and the intervals of ratios from a few steps on each side."""

from __future__ import annotations

import math
from functools import cache

import msgspec
import numpy as np

from fusetui.trace.model.columns import Floats, Int64s

FEW_STEPS = 5
"""A verdict needs this many steps on each side. n samples enclose the true median with a
probability of 1 - 2**(1 - n): 94 % for five, 88 % for four (too few for 95 %)."""

CONFIDENCE = 95  # the confidence level of an interval, in percent; see interval.py

FLOOR_PERCENT = 5
FLOOR_NS = 100
"""A change of a kernel below either floor is noise: clocks of GPUs tick in up to tens of ns."""


def median(samples: Int64s) -> Int64s:
    """Along the first axis; of an even count the mean of the middle two, rounded down."""
    ordered = np.sort(samples, axis=0)
    middle: Int64s = (ordered[(len(samples) - 1) // 2] + ordered[len(samples) // 2]) // 2
    return middle


def middle_half(samples: Int64s) -> tuple[Int64s, Int64s]:
    """Least and greatest of the middle half along the first axis; of all for fewer than four."""
    ordered = np.sort(samples, axis=0)
    last = len(samples) - 1
    return ordered[last // 4], ordered[last - last // 4]


def resolution(samples: Int64s) -> int:
    """The tick of the clock (ns): 1000 in files with whole microseconds, 0 when finer."""
    return 1000 if samples.size and not (samples % 1000).any() else 0


TAIL = 0.025  # the share of the distribution that the interval leaves out on each side
ENOUGH = 10  # with fewer steps, how one depends on the one before is not estimated

EXACT = 60
"""Up to this many steps per side the distribution is exact; beyond, it is approximated as
normal."""

Z = 1.959964  # the two-sided 5 % point of the normal distribution


class Interval(msgspec.Struct, frozen=True):
    """B / A: [low, high], and how much each run drifted from its first to its last step."""

    low: float
    high: float
    drift_a: float
    drift_b: float


def ratio_interval(a: Int64s, b: Int64s) -> Interval | None:
    """The interval of B / A by the rank test of Mann, Whitney and Wilcoxon: all ratios that it does
    not reject at 5 %, widened by the drift of the runs and by the correlation of successive steps.

    `a`, `b`: durations in order of time. None if there are too few steps to reject any ratio; four
    on each side are enough. (E. L. Lehmann, Nonparametrics, 1975: chapter 2.) The drift of a run
    shows how much a run at another time may differ, whatever is compared.
    """
    before, after = a[a > 0], b[b > 0]
    count = _rejected(len(before), len(after))
    if not count:
        return None
    ratios = np.sort((after[None, :] / before[:, None]).ravel())
    low, high = float(ratios[count - 1]), float(ratios[len(ratios) - count])
    center, by = float(np.median(ratios)), max(wider(before), wider(after))
    low, high = center * (low / center) ** by, center * (high / center) ** by
    drift_a, drift_b = drift(before), drift(after)
    apart = max(abs(drift_a), abs(drift_b))
    return Interval(low * (1 - apart) if apart < 1 else 0.0, high * (1 + apart), drift_a, drift_b)


def drift(durations: Int64s) -> float:
    """How much longer the last step took than the first, as a share, by the median of all slopes
    (Theil and Sen); 0 where Kendall's test at 5 % finds no trend."""
    size = len(durations)
    first, last = np.triu_indices(size, 1)
    rises = np.sign(durations[last] - durations[first]).sum() if size > 3 else 0
    spread = (size * (size - 1) * (2 * size + 5) / 18) ** 0.5
    if abs(int(rises)) <= 1 or (abs(int(rises)) - 1) / spread < Z:
        return 0.0
    slopes = (durations[last] - durations[first]) / (last - first)
    return float(np.median(slopes)) * (size - 1) / float(np.median(durations))


def wider(samples: Int64s | Floats) -> float:
    """The factor by which an interval is too narrow where slow steps follow slow ones: n steps are
    worth n (1 - r) / (1 + r) independent ones, where r is the correlation of successive ranks. 1 if
    r is not significant."""
    size = len(samples)
    if size < ENOUGH:
        return 1.0
    ranks = np.argsort(np.argsort(samples, kind="stable")) - (size - 1) / 2
    found = float((ranks[1:] * ranks[:-1]).sum() / (ranks * ranks).sum())
    if found * math.sqrt(size) < Z:
        return 1.0
    return math.sqrt((1 + found) / (1 - found))


@cache
def _rejected(a: int, b: int) -> int:
    """How many of the sorted ratios lie below the interval, and as many above it."""
    if min(a, b) == 0:
        return 0
    if max(a, b) > EXACT:
        return max(1, int(a * b / 2 - Z * math.sqrt(a * b * (a + b + 1) / 12)))
    ways = _ways(a, b)
    below = np.cumsum(ways) / ways.sum()
    return int(np.count_nonzero(below <= TAIL))


def _ways(a: int, b: int) -> Floats:
    """The number of orders of a and b steps with each number of inversions: the coefficients of the
    Gaussian binomial."""
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
