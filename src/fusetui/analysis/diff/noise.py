"""Whether the same kernel takes longer by more than chance: the interval of a row.

The specification, which benchmarks/diff_noise.py simulates by dealing the steps of one
recording out to two sides:

* A row is reported only if the two sides are far apart (`statistics.far_apart`) and the
  interval of B / A excludes 1: Student's, of the logarithms of its times.
* Of all diffs of equal runs, LEVEL have any row that is reported: each row is judged at
  this level divided by the number of rows (Bonferroni).
* The variance of a row is that of its own steps, averaged with the usual one of pieces
  of about its length, which counts as PRIOR_STEPS degrees of freedom (G. K. Smyth,
  Linear models and empirical Bayes methods, 2004), and that of rounding to the tick of
  the clock.
* Where the n-th steps of both sides vary together, their differences are judged.
* From STEPS_FOR_CORRELATION on, the interval is wider where slow steps follow slow
  ones.
* With one step on each side, a row has to stand out among all rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Final

import msgspec
import numpy as np

from fusetui.analysis.diff.statistics import (
    FLOOR_PERCENT,
    STEPS_FOR_CORRELATION,
    far_apart,
    widening_of,
)
from fusetui.trace.model.arrays import Flags, Floats, Int64s
from fusetui.trace.model.quantiles import lower_quantile, medians

LEVEL = 0.05
"""How likely it is that a diff reports any row where nothing changed."""

PRIOR_STEPS = 2
"""What other pieces vary by counts as much as so many steps of the row itself: by
chance, a few samples may lie closer together than they usually do."""

MAX_CLASSES, MIN_PIECES_OF_CLASS = 8, 32
"""Other pieces are those of about the same length, in so many classes of as many pieces
each: what takes 5 us may vary by a third where what takes 1 ms varies by 1 %."""

SHARE_OF_PIECES = 0.75
"""So many pieces of a class vary by no more than its usual variance."""

MIN_RATIO_OF_VARIANCES = 4
"""Both sides vary together where their differences, step by step, vary by so much
less than they would otherwise."""

MIN_RATIO_TO_OTHERS, SHARE_OF_ROWS, MIN_ROWS = 6, 0.9, 5
"""With one step on each side, a row has to lie so many times as far from the median row
as this share of all rows does, and these within the floor; of fewer rows, none is
told."""

MAX_DEGREES_OF_FREEDOM = 200
"""From here on, Student's distribution is taken as that of so many."""

_BISECTIONS = 50  # each halves the interval in which a point of the distribution lies

_NO_BOUNDS: Final = np.zeros(0)
_NO_VARIANCE: Final = np.zeros(1)


class Noise(msgspec.Struct, frozen=True, eq=False):
    """What the rows of a diff vary by where nothing changed."""

    rows: int
    """How many rows are judged: the level is that of all together."""
    longest: Floats = _NO_BOUNDS
    """The logarithm of the time of the longest piece of each class of pieces by length,
    but the last class; shape [classes - 1]."""
    variance: Floats = _NO_VARIANCE
    """The usual variance of the logarithm of the times of a piece from step to step;
    shape [classes]."""
    paired: bool = False
    """The n-th steps of both sides vary together: `variance` is of differences."""
    min_change: float = math.inf
    """By how much the logarithm of a time has to change, with one step on each side."""


def noise_of(a: Int64s, b: Int64s, *, same_steps: bool = False) -> Noise:
    """The noise of a diff, by the samples (ns) of pieces that are the same kernel on both
    sides: `a` of shape [steps of A, pieces], `b` of shape [steps of B, pieces].

    `same_steps`: the n-th step of A belongs to the n-th of B, as where steps took turns
    or where one trace was made from the other. The samples decide whether the two vary
    together (`Noise.paired`).
    """
    rows = a.shape[1]
    if not rows:
        return Noise(rows=1)
    log_a = _logs(a)
    log_b = _logs(b)
    separate = _variation(log_a, log_b, paired=False)
    if not separate.freedom:  # one step on each side
        return Noise(rows=rows, min_change=_min_change_of_one_step(log_a, log_b))
    paired = False
    variance = separate.squares / separate.freedom
    if same_steps and len(a) == len(b):
        together = _variation(log_a, log_b, paired=True)
        variance_of_differences = together.squares / together.freedom
        # independent sides would have differences of twice the variance
        expected = 2 * variance.sum()
        if MIN_RATIO_OF_VARIANCES * variance_of_differences.sum() < expected:
            paired = True
            variance = variance_of_differences
    return _by_length(log_a, variance, paired)


def _min_change_of_one_step(log_a: Floats, log_b: Floats) -> float:
    """How far the logarithm of the time of a row has to change with one step on each
    side: MIN_RATIO_TO_OTHERS times as far as SHARE_OF_ROWS do. Infinite where that is
    beyond the floor or the rows are too few, so that none can be told from noise. Both
    arguments have the shape [1, rows]."""
    changes = (log_b - log_a)[0]
    distances = np.abs(changes - np.median(changes))
    usual = lower_quantile(distances, SHARE_OF_ROWS)
    if len(distances) < MIN_ROWS or 100 * usual > FLOOR_PERCENT:
        return math.inf
    return MIN_RATIO_TO_OTHERS * usual


def _by_length(log_a: Floats, variance: Floats, paired: bool) -> Noise:
    """The noise of pieces that are divided into classes by their length. The variance of
    a class is the one that SHARE_OF_PIECES of its pieces do not exceed. `log_a`: shape
    [steps, pieces]; `variance`: shape [pieces]."""
    length = np.median(log_a, axis=0)
    classes = len(length) // MIN_PIECES_OF_CLASS
    classes = max(1, min(MAX_CLASSES, classes))
    parts = np.array_split(np.argsort(length, kind="stable"), classes)
    return Noise(
        rows=len(length),
        longest=np.array([length[part[-1]] for part in parts[:-1]]),
        variance=np.array(
            [lower_quantile(variance[part], SHARE_OF_PIECES) for part in parts]
        ),
        paired=paired,
    )


def beyond_noise(
    a: Int64s, b: Int64s, resolution_ns: int, noise: Noise | None = None
) -> Flags:
    """Whether the change of each column of samples is more than noise; shape [items].
    `a` and `b`: ns, of shape [steps, items]; `resolution_ns`: the tick of the clock.
    `noise`: that of the diff; None for that of these columns alone."""
    paired = noise is not None and noise.paired
    is_changed = far_apart(a, b, resolution_ns, paired=paired)
    if not is_changed.any():
        return is_changed
    if noise is None:
        noise = noise_of(a, b)
    columns = np.flatnonzero(is_changed)
    is_changed[columns] = _excludes_one(
        a[:, columns], b[:, columns], resolution_ns, noise
    )
    return is_changed


def _excludes_one(a: Int64s, b: Int64s, tick_ns: int, noise: Noise) -> Flags:
    """Whether the interval of B / A of each column excludes 1; shape [columns]. See the
    specification above."""
    log_a = _logs(a)
    log_b = _logs(b)
    if noise.paired:
        samples = [log_b - log_a]
        change = np.median(samples[0], axis=0)
    else:
        samples = [log_a, log_b]
        change = np.median(log_b, axis=0) - np.median(log_a, axis=0)
    variation = _variation(log_a, log_b, paired=noise.paired)
    if not variation.freedom:
        return np.abs(change) > noise.min_change
    class_of_column = np.searchsorted(noise.longest, np.median(log_a, axis=0))
    usual_squares = PRIOR_STEPS * noise.variance[class_of_column]
    freedom = PRIOR_STEPS + variation.freedom
    variance = (usual_squares + variation.squares) / freedom
    # the rounding of both sides is in each difference, and in the mean of two times
    variance += _rounding(a, b, tick_ns) / (1 if noise.paired else 2)
    standard_error = np.sqrt(variance * variation.of_change)
    margin = student_point(freedom, LEVEL / noise.rows) * standard_error
    excludes = np.abs(change) > margin
    if max(len(log_a), len(log_b)) >= STEPS_FOR_CORRELATION:
        excludes = _excludes_when_wider(change, margin, excludes, samples)
    return excludes


def _excludes_when_wider(
    change: Floats, margin: Floats, excludes: Flags, samples: Sequence[Floats]
) -> Flags:
    """Which of the intervals that exclude 1 still do when they are as much wider as
    the correlation of successive steps demands. `samples`: of shape [steps, columns];
    the others of shape [columns]."""
    still_excludes = excludes.copy()
    for column in np.flatnonzero(excludes).tolist():
        widening = max(widening_of(sample[:, column]) for sample in samples)
        still_excludes[column] = abs(change[column]) > margin[column] * widening
    return still_excludes


def _rounding(a: Int64s, b: Int64s, tick_ns: int) -> Floats:
    """The variance of the logarithms by rounding to the tick, of both sides
    together."""
    of_a = tick_ns**2 / 12 / np.maximum(medians(a), 1) ** 2
    of_b = tick_ns**2 / 12 / np.maximum(medians(b), 1) ** 2
    return np.asarray(of_a + of_b)


class _Variation(msgspec.Struct, frozen=True, eq=False):
    """How much samples of shape [steps, columns] vary within the sides, or how much
    their differences do."""

    squares: Floats  # the sum of squares around the means; shape [columns]
    freedom: int  # degrees of freedom
    of_change: float  # the variance of the change for a variance of 1


def _variation(log_a: Floats, log_b: Floats, *, paired: bool) -> _Variation:
    """How much logarithms of shape [steps, columns] vary: those of each side around
    their means or, if `paired`, the differences of the n-th steps."""
    samples = [log_b - log_a] if paired else [log_a, log_b]
    squares = np.zeros(log_a.shape[1])
    freedom = 0
    of_change = 0.0
    for sample in samples:
        squares = squares + ((sample - sample.mean(axis=0)) ** 2).sum(axis=0)
        freedom += len(sample) - 1
        of_change += 1 / len(sample)
    return _Variation(squares=squares, freedom=freedom, of_change=of_change)


def _logs(samples: Int64s) -> Floats:
    """The logarithms of times (ns), 0 for a time of 0."""
    return np.log(np.maximum(samples, 1))


@cache
def student_point(freedom: int, level: float) -> float:
    """The point that Student's distribution, with so many whole degrees of freedom,
    exceeds in either direction with the probability `level`; by bisection. More than
    MAX_DEGREES_OF_FREEDOM are taken for so many."""
    low = 0.0
    high = 1.0
    while _probability_outside(high, freedom) > level:
        high *= 2
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if _probability_outside(middle, freedom) > level:
            low = middle
        else:
            high = middle
    return high


def _probability_outside(t: float, freedom: int) -> float:
    """The probability that Student's distribution lies more than t from 0 (Abramowitz
    and Stegun, Handbook of Mathematical Functions, 26.7.3 for odd degrees of freedom
    and 26.7.4 for even ones)."""
    freedom = min(freedom, MAX_DEGREES_OF_FREEDOM)
    angle = math.atan(t / math.sqrt(freedom))
    is_odd = freedom % 2 == 1
    term = math.cos(angle) if is_odd else 1.0
    total = 0.0
    for n in range(3 if is_odd else 2, freedom + 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (n - 1) / n
    inside = math.sin(angle) * total
    if is_odd:
        inside = 2 / math.pi * (angle + inside)
    return 1 - inside
