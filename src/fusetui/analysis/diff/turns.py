"""Two traces whose steps took turns: each step is compared with the one next to it in time."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.diff.pieces import Work
from fusetui.analysis.diff.windows import Windows

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]

FEW_ROUNDS = 6
"""With fewer the signed-rank test can reject nothing at 5 %: of five signs all are alike in 2 of 32
cases."""

EXACT = 100
"""Up to so many rounds the distribution is counted out; beyond, it is normal."""

TAIL = 0.025
Z = 1.959964

BASE = "baseTimeNanoseconds"
"""The key of a file that says when its clock began."""


def take_turns(a: Work, b: Work) -> bool:
    """Did the n-th step of both sides run next to each other, in either order, for every n?

    So it is when both were taken out of one profile; never when the traces are of two processes,
    whose steps would overlap, or of two clocks.
    """
    one, other = a.windows, b.windows
    if len(one) != len(other) or len(one) < 2 or one.whole or other.whole:
        return False
    if a.trace.keys.get(BASE) != b.trace.keys.get(BASE):
        return False
    return _apart(one, other)


def _apart(a: Windows, b: Windows) -> bool:
    within = (a.end <= b.start) | (b.end <= a.start)
    between = np.maximum(a.end, b.end)[:-1] <= np.minimum(a.start, b.start)[1:]
    return bool(within.all() and between.all())


def log_ratios(a: Int64s, b: Int64s) -> Floats:
    """One for each round in which both took time."""
    known = (a > 0) & (b > 0)
    found: Floats = np.log(b[known] / a[known])
    return found


def signed_rank_interval(differences: Floats) -> tuple[float, float, float] | None:
    """The low end, the middle and the high end of the interval of 95 % for the center of paired
    differences: all shifts that Wilcoxon's signed-rank test does not reject. None with fewer than
    FEW_ROUNDS.

    It takes for granted only that a difference is as likely to be x as -x where nothing changed,
    which turns in random order see to, whatever the noise is. The middle is the estimate of Hodges
    and Lehmann, the median of the means of any two.
    (E. L. Lehmann, Nonparametrics, 1975: chapter 4)
    """
    count = rejected(len(differences))
    if not count:
        return None
    first, second = np.triu_indices(len(differences))
    means = np.sort((differences[first] + differences[second]) / 2)
    return float(means[count - 1]), float(np.median(means)), float(means[-count])


@cache
def rejected(size: int) -> int:
    """How many of the sorted means lie outside of the interval on either side."""
    if size > EXACT:
        total = size * (size + 1)
        return max(1, int(total / 4 - Z * math.sqrt(total * (2 * size + 1) / 24)))
    ways = np.ones(1)
    for rank in range(1, size + 1):  # the coefficients of the product of 1 + q ** rank
        more = np.zeros(len(ways) + rank)
        more[: len(ways)] += ways
        more[rank:] += ways
        ways = more
    return int(np.count_nonzero(np.cumsum(ways) / ways.sum() <= TAIL)) if size else 0
