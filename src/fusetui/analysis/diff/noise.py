"""Whether the same kernel takes longer by more than chance: the interval of a row."""

from __future__ import annotations

import math
from functools import cache
from typing import Final

import msgspec
import numpy as np

from fusetui.analysis.diff.statistics import (
    ENOUGH,
    FLOOR_PERCENT,
    far_apart,
    median,
    wider,
)
from fusetui.trace.model.arrays import Flags, Floats, Int64s

LEVEL = 0.05  # how likely it is that any row of a diff is told where nothing changed

PRIOR = 2
"""What other pieces vary by counts as much as so many steps of the row itself: by
chance, a few samples may lie closer together than they usually do."""

MOST_CLASSES, LEAST_PIECES = 8, 32
"""Other pieces are those of about the same length, in so many classes of as many pieces
each: what takes 5 us may vary by a third where what takes 1 ms varies by 1 %."""

# so many pieces vary by no more than is taken for the usual variance
MOST_PIECES = 0.75
# both sides vary together where their differences, step by step, vary by so much less
TOGETHER = 4

ALONE, NEARLY_ALL, FEWEST = 6, 0.9, 5
"""With one step on each side, a row has to lie so many times as far from the median row
as nearly all rows do, and these within the floor; of fewer rows, none is told."""

_NONE: Final = np.zeros(0)

# degrees of freedom: from here on, Student's distribution is taken as that of so many
LARGE = 200


class Noise(msgspec.Struct, frozen=True, eq=False):
    """What the rows of a diff vary by where nothing changed."""

    # of each class of pieces by length, the longest excepted; shape [classes - 1]
    longest: Floats
    # of the logarithm of their times from step to step; shape [classes]
    variance: Floats
    rows: int  # that are judged: the level is that of all together
    # the n-th steps of both sides vary together: `variance` is of differences
    paired: bool = False
    # what a logarithm has to change by, with one step on each side
    alone: float = math.inf


def noise_of(a: Int64s, b: Int64s, *, same_steps: bool = False) -> Noise:
    """From the samples of pieces that are the same kernel on both sides, [steps,
    pieces], in ns.

    `same_steps`: the n-th of A belongs to the n-th of B, as where steps took turns or
    where one trace was made from the other. Whether they do vary together, the samples
    tell.
    """
    rows = a.shape[1]
    if not rows:
        return Noise(_NONE, np.zeros(1), 1)
    x, y = _logs(a), _logs(b)
    squares, free, _ = _within(x, y, paired=False)
    if not free:
        apart = np.abs(y - x - np.median(y - x))[0]
        usual = _share(apart, NEARLY_ALL)
        steady = rows >= FEWEST and 100 * usual <= FLOOR_PERCENT
        return Noise(
            _NONE, np.zeros(1), rows, alone=ALONE * usual if steady else math.inf
        )
    if same_steps and len(a) == len(b):
        of_differences, freedom, _ = _within(x, y, paired=True)
        if TOGETHER * of_differences.sum() / freedom < 2 * squares.sum() / free:
            return Noise(*_by_length(x, of_differences / freedom), rows, paired=True)
    return Noise(*_by_length(x, squares / free), rows)


def _by_length(x: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """The classes of pieces, and what most pieces of each vary by."""
    length = np.median(x, axis=0)
    classes = max(1, min(MOST_CLASSES, len(length) // LEAST_PIECES))
    parts = np.array_split(np.argsort(length, kind="stable"), classes)
    longest = np.array([length[part[-1]] for part in parts[:-1]])
    return longest, np.array([_share(variance[part], MOST_PIECES) for part in parts])


def beyond_noise(
    a: Int64s, b: Int64s, resolution_ns: int, noise: Noise | None = None
) -> Flags:
    """Per column of two sample arrays, [steps, items] in ns: whether the change is more
    than noise: the two are far apart, and the interval of B / A excludes 1.

    That is Student's, of logarithms, at a level of 5 % for all rows together
    (Bonferroni). Its variance is that of the row's steps, averaged with the usual one
    (G. K. Smyth, Linear models and empirical Bayes methods, 2004), and that of rounding
    to the tick of the clock.
    """
    paired = noise is not None and noise.paired
    found = far_apart(a, b, resolution_ns, paired=paired)
    if found.any():
        noise = noise_of(a, b) if noise is None else noise
        columns = np.flatnonzero(found)
        found[columns] = _excludes_one(
            a[:, columns], b[:, columns], resolution_ns, noise
        )
    return found


def _excludes_one(a: Int64s, b: Int64s, tick: int, noise: Noise) -> Flags:
    x, y = _logs(a), _logs(b)
    change = (
        np.median(y - x, axis=0)
        if noise.paired
        else np.median(y, axis=0) - np.median(x, 0)
    )
    squares, free, per_step = _within(x, y, paired=noise.paired)
    if not free:
        return np.abs(change) > noise.alone
    usual = noise.variance[np.searchsorted(noise.longest, np.median(x, axis=0))]
    rounded = sum(tick**2 / 12 / np.maximum(median(side), 1) ** 2 for side in (a, b))
    variance = (PRIOR * usual + squares) / (PRIOR + free) + rounded / (
        1 if noise.paired else 2
    )
    margin = _student(PRIOR + free, LEVEL / noise.rows) * np.sqrt(variance * per_step)
    found = np.abs(change) > margin
    for n in np.flatnonzero(found) if max(len(x), len(y)) >= ENOUGH else ():
        samples = [y[:, n] - x[:, n]] if noise.paired else [x[:, n], y[:, n]]
        found[n] = abs(change[n]) > margin[n] * max(map(wider, samples))
    return found


def _within(x: Floats, y: Floats, *, paired: bool) -> tuple[Floats, int, float]:
    """Per column: the sum of squares around the mean of each side, or of the
    differences; their degrees of freedom; the variance of the change for a variance of
    1."""
    sides = [y - x] if paired else [x, y]
    squares = sum(((side - side.mean(axis=0)) ** 2).sum(axis=0) for side in sides)
    free = sum(len(side) - 1 for side in sides)
    return np.asarray(squares), free, sum(1 / len(side) for side in sides)


def _logs(samples: Int64s) -> Floats:
    return np.log(np.maximum(samples, 1))


def _share(values: Floats, share: float) -> float:
    """What this share of them do not exceed."""
    return float(np.quantile(values, share, method="lower"))


@cache
def _student(free: int, level: float) -> float:
    """The two-sided point of Student's distribution, for whole degrees of freedom."""
    low, high = 0.0, 1.0
    while _outside(high, free) > level:
        high *= 2
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if _outside(middle, free) > level else (low, middle)
    return high


def _outside(t: float, free: int) -> float:
    """The probability of more than t in either direction (Abramowitz and Stegun,
    Handbook of Mathematical Functions, 26.7.3 and 26.7.4)."""
    free = min(free, LARGE)
    angle = math.atan(t / math.sqrt(free))
    odd = free % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for n in range(2 + odd, free + 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (n - 1) / n
    inside = math.sin(angle) * total
    return 1 - (2 / math.pi * (angle + inside) if odd else inside)
