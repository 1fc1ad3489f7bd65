"""The interval of how many times as long a step of B takes, from few steps a side."""

from __future__ import annotations

import math
from functools import cache

import msgspec
import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]

TAIL = 0.025
"""The interval leaves out so much of the distribution on either side."""

ENOUGH = 10
"""Of fewer steps nothing is told of how one depends on the one before."""

EXACT = 60
"""Up to so many steps a side the distribution is counted out; beyond, it is normal."""

Z = 1.959964
"""Of the normal distribution: 5 % lie farther out, on both sides together."""


class Interval(msgspec.Struct, frozen=True):
    """B / A: [low, high], and how much each run drifted from its first to its last step."""

    low: float
    high: float
    drift_a: float
    drift_b: float


def ratio_interval(a: Int64s, b: Int64s) -> Interval | None:
    """The interval of B / A that the rank test of Mann, Whitney and Wilcoxon gives: all ratios that
    it does not reject at 5 %, widened by the drift of the runs, and where a step tells of the next.

    `a`, `b`: durations in order of time. None with so few steps that no ratio can be rejected, from
    four steps a side on. (E. L. Lehmann, Nonparametrics, 1975: chapter 2.) A run that drifts tells
    how far another one, made at another time, may be off, whatever is compared.
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
    (Theil and Sen); 0 where the order of the steps may be chance (Kendall's test, at 5 %)."""
    size = len(durations)
    first, last = np.triu_indices(size, 1)
    rises = np.sign(durations[last] - durations[first]).sum() if size > 3 else 0
    spread = (size * (size - 1) * (2 * size + 5) / 18) ** 0.5
    if abs(int(rises)) <= 1 or (abs(int(rises)) - 1) / spread < Z:
        return 0.0
    slopes = (durations[last] - durations[first]) / (last - first)
    return float(np.median(slopes)) * (size - 1) / float(np.median(durations))


def wider(samples: NDArray[np.int64] | NDArray[np.float64]) -> float:
    """By how much an interval is too narrow where slow steps follow slow ones: n steps tell no more
    than n (1 - r) / (1 + r) that know nothing of each other, r the correlation of their ranks. 1
    where r may be chance."""
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
    """How many of the sorted ratios lie outside of the interval on either side, less none."""
    if min(a, b) == 0:
        return 0
    if max(a, b) > EXACT:
        return max(1, int(a * b / 2 - Z * math.sqrt(a * b * (a + b + 1) / 12)))
    ways = _ways(a, b)
    below = np.cumsum(ways) / ways.sum()
    return int(np.count_nonzero(below <= TAIL))


def _ways(a: int, b: int) -> NDArray[np.float64]:
    """In how many orders of a and b steps each number of pairs is turned round: the coefficients
    of the Gaussian binomial."""
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
