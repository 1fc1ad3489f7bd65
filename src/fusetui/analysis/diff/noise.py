"""Decides whether a kernel takes longer by more than chance.

This is the specification, which benchmarks/diff_noise.py simulates by dealing the steps
of one recording out to two sides:

* A row is reported only if the two sides are far apart (`statistics.are_far_apart`) and the
  interval of B / A excludes 1. It is Student's interval, of the logarithms of its
  times.
* Of all diffs of equal runs, only a share of FALSE_ALARM_PROBABILITY reports any row.
  So each row is judged at this level divided by the number of rows (Bonferroni).
* The variance of a row is that of its own steps, averaged with the usual variance of
  kernels of about its length, which counts as PRIOR_STEPS degrees of freedom (G. K.
  Smyth, Linear models and empirical Bayes methods, 2004). The variance of rounding to
  the tick of the clock is added.
* Where the n-th steps of both sides vary together, their differences are judged.
* From MIN_STEPS_FOR_CORRELATION steps on, the interval is wider where slow steps follow
  slow ones.
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
    MIN_STEPS_FOR_CORRELATION,
    are_far_apart,
    compute_widening,
)
from fusetui.trace.model.arrays import Flags, Floats, Int64s
from fusetui.trace.model.quantiles import lower_quantile, medians
from fusetui.trace.model.sorted_arrays import count_below

FALSE_ALARM_PROBABILITY = 0.05
"""How likely it is that a diff reports any row where nothing changed."""

PRIOR_STEPS = 2
"""The usual variance of other kernels counts as much as this many steps of the row
itself: by chance, a few samples may lie closer together than they usually do."""

MAX_CLASSES, MIN_KERNELS_OF_CLASS = 8, 32
"""Other kernels are those of about the same length, in up to so many classes of at
least so many kernels: what takes 5 us may vary by a third where what takes 1 ms varies
by 1 %."""

SHARE_OF_PIECES = 0.75
"""This share of the kernels of a class varies by no more than its usual variance."""

MIN_RATIO_OF_VARIANCES = 4
"""Both sides vary together where the variance of their differences, step by step, is
this many times less than it would be otherwise."""

MIN_RATIO_TO_OTHERS, SHARE_OF_ROWS, MIN_ROWS = 6, 0.9, 5
"""With one step on each side, a row has to lie so many times as far from the median row
as this share of all rows does, and these have to be within the floor. Of fewer rows
than the last number, none is reported."""

MAX_DEGREES_OF_FREEDOM = 200
"""Beyond this, Student's distribution is taken as that of this many degrees."""

_BISECTIONS = 50  # each halves the interval in which a point of the distribution lies

_NO_BOUNDS: Final = np.zeros(0)
_NO_VARIANCE: Final = np.zeros(1)


class Noise(msgspec.Struct, frozen=True, eq=False):
    """How much the rows of a diff vary where nothing changed."""

    rows: int
    """How many rows are judged: the level is that of all together."""
    class_bounds: Floats = _NO_BOUNDS
    """The logarithm of the time of the longest kernel of each class by length, but for
    the last class; shape [classes - 1], ascending."""
    usual_variance: Floats = _NO_VARIANCE
    """The usual variance of the logarithm of the times of a kernel from step to step;
    one per class."""
    paired: bool = False
    """The n-th steps of both sides vary together: `usual_variance` is of differences."""
    min_log_change: float = math.inf
    """By how much the logarithm of a time has to change, with one step on each side."""


def estimate_noise(a: Int64s, b: Int64s, *, same_steps: bool = False) -> Noise:
    """Estimate how much the times of kernels vary by chance, from unchanged kernels.

    Args:
        a: Times of A in ns, [steps of A, kernels].
        b: Times of B in ns, [steps of B, kernels], of the same kernels.
        same_steps: Whether the n-th step of A belongs to the n-th step of B, as where
            steps took turns or where one trace was made from the other. The samples
            decide whether the two vary together (`Noise.paired`).
    """
    _, rows = a.shape
    if not rows:
        return Noise(rows=1)

    log_a = _take_logs(a)
    log_b = _take_logs(b)
    separate = _measure_variation(log_a, log_b, paired=False)
    if not separate.degrees_of_freedom:  # one step on each side
        return Noise(
            rows=rows, min_log_change=_compute_min_change_of_one_step(log_a, log_b)
        )

    variance = separate.sum_of_squares / separate.degrees_of_freedom
    if same_steps and len(a) == len(b):
        differences = _measure_variation(log_a, log_b, paired=True)
        variance_of_differences = (
            differences.sum_of_squares / differences.degrees_of_freedom
        )
        # Differences of two independent sides would have twice the variance.
        expected_if_independent = 2 * variance.sum()
        actual = variance_of_differences.sum()
        if MIN_RATIO_OF_VARIANCES * actual < expected_if_independent:
            return _estimate_noise_by_length(
                log_a, variance_of_differences, paired=True
            )
    return _estimate_noise_by_length(log_a, variance, paired=False)


def _compute_min_change_of_one_step(log_a: Floats, log_b: Floats) -> float:
    """Return how much a row has to change to be reported with one step on each side.

    It has to change MIN_RATIO_TO_OTHERS times as much, beside the change that all rows
    have, as SHARE_OF_ROWS of the rows do.

    Args:
        log_a: The logarithms of the times of A, [1, rows].
        log_b: The logarithms of the times of B, [1, rows].

    Returns:
        A change of the logarithm. It is infinite if that is beyond the floor or if the
        rows are too few: then no row can be told from noise.
    """
    (changes,) = log_b - log_a
    distances = np.abs(changes - np.median(changes))
    usual_distance = lower_quantile(distances, SHARE_OF_ROWS)
    if len(distances) < MIN_ROWS or 100 * usual_distance > FLOOR_PERCENT:
        return math.inf
    return MIN_RATIO_TO_OTHERS * usual_distance


def _estimate_noise_by_length(
    log_a: Floats, variance: Floats, *, paired: bool
) -> Noise:
    """Determine how much the times of kernels usually vary, by their length.

    Kernels are divided into classes of about the same length. The usual variance of a
    class is the one that SHARE_OF_PIECES of its kernels do not exceed.

    Args:
        log_a: The logarithms of the times of A, [steps, kernels].
        variance: The variance of each kernel.
        paired: Whether the variance is that of differences between the n-th steps of A
            and B.
    """
    log_length = np.median(log_a, axis=0)  # of the time of each kernel
    full_classes = len(log_length) // MIN_KERNELS_OF_CLASS
    classes = max(1, min(MAX_CLASSES, full_classes))
    shortest_first = np.argsort(log_length, kind="stable")

    longest_of_class = []
    usual_variance_of_class = []
    for kernels in np.array_split(shortest_first, classes):
        longest_of_class.append(log_length[kernels[-1]])
        usual_variance_of_class.append(
            lower_quantile(variance[kernels], SHARE_OF_PIECES)
        )
    return Noise(
        rows=len(log_length),
        class_bounds=np.array(longest_of_class[:-1]),  # the last class has no bound
        usual_variance=np.array(usual_variance_of_class),
        paired=paired,
    )


def is_beyond_noise(
    a: Int64s, b: Int64s, resolution_ns: int, noise: Noise | None = None
) -> Flags:
    """Return for each column of times whether its change is more than noise.

    Args:
        a: Times of A in ns, [steps of A, columns].
        b: Times of B in ns, [steps of B, columns].
        resolution_ns: The tick of the clock.
        noise: The noise of the whole comparison; None to estimate it from these
            columns.
    """
    paired = noise is not None and noise.paired
    is_changed = are_far_apart(a, b, resolution_ns, paired=paired)
    if not is_changed.any():
        return is_changed

    if noise is None:
        noise = estimate_noise(a, b)
    # Only columns that are clearly different are worth an interval.
    columns = np.flatnonzero(is_changed)
    is_changed[columns] = _does_interval_exclude_one(
        a[:, columns], b[:, columns], resolution_ns, noise
    )
    return is_changed


def _does_interval_exclude_one(
    a: Int64s, b: Int64s, tick_ns: int, noise: Noise
) -> Flags:
    """Return for each column of times whether the interval of B / A excludes 1.

    The interval is that of Student's t test on logarithms. Its variance averages that
    of the column with the usual one of kernels of its length. All rows of the
    comparison together are to give a false alarm with FALSE_ALARM_PROBABILITY.

    Args:
        a: Times of A in ns, [steps of A, columns].
        b: Times of B in ns, [steps of B, columns].
        tick_ns: The tick of the clock.
        noise: The noise of the comparison.
    """
    log_a = _take_logs(a)
    log_b = _take_logs(b)
    if noise.paired:
        differences = log_b - log_a
        samples = [differences]
        change = np.median(differences, axis=0)
    else:
        samples = [log_a, log_b]
        change = np.median(log_b, axis=0) - np.median(log_a, axis=0)

    variation = _measure_variation(log_a, log_b, paired=noise.paired)
    if not variation.degrees_of_freedom:  # one step on each side
        return np.abs(change) > noise.min_log_change

    variance = _average_with_usual_variance(log_a, variation, noise)
    # A difference has the rounding of both times. Of separate times, each has its own,
    # so the variance is that of one of them on average.
    rounding_variance = _compute_rounding_variance(a, b, tick_ns)
    variance += rounding_variance if noise.paired else rounding_variance / 2

    standard_error = np.sqrt(variance * variation.change_factor)
    level_of_column = FALSE_ALARM_PROBABILITY / noise.rows
    margin = compute_student_point(
        PRIOR_STEPS + variation.degrees_of_freedom, level_of_column
    )
    margin_of_column = margin * standard_error
    excludes = np.abs(change) > margin_of_column
    if max(len(log_a), len(log_b)) < MIN_STEPS_FOR_CORRELATION:
        return excludes
    return _do_wider_intervals_exclude_one(
        change=change, margin=margin_of_column, excludes=excludes, samples=samples
    )


def _average_with_usual_variance(
    log_a: Floats, variation: _Variation, noise: Noise
) -> Floats:
    """Return the variance of each column, averaged with that of kernels of its length.

    A few samples may lie closer together by chance than they usually do. So the usual
    variance counts as much as PRIOR_STEPS samples.

    Args:
        log_a: The logarithms of the times of A, [steps, columns].
        variation: How much the samples of each column vary.
        noise: The usual variance of kernels by their length.
    """
    log_length = np.median(log_a, axis=0)
    # A kernel is in class n if n classes have shorter kernels only.
    class_of_column = count_below(noise.class_bounds, log_length)
    usual_variance = noise.usual_variance[class_of_column]
    squares = PRIOR_STEPS * usual_variance + variation.sum_of_squares
    return np.asarray(squares / (PRIOR_STEPS + variation.degrees_of_freedom))


def _do_wider_intervals_exclude_one(
    *, change: Floats, margin: Floats, excludes: Flags, samples: Sequence[Floats]
) -> Flags:
    """Return which intervals still exclude 1 when correlated steps widen them.

    Args:
        change: The change of each column.
        margin: Half of the length of the interval of each column.
        excludes: Whether each interval excludes 1 as it is.
        samples: Arrays of shape [steps, columns]: the logarithms of each side, or their
            differences.
    """
    still_excludes = excludes.copy()
    for column in np.flatnonzero(excludes).tolist():
        widening = max(compute_widening(sample[:, column]) for sample in samples)
        still_excludes[column] = abs(change[column]) > margin[column] * widening
    return still_excludes


def _compute_rounding_variance(a: Int64s, b: Int64s, tick_ns: int) -> Floats:
    """Return the variance that rounding to the tick adds to the logarithms of a column.

    It is the sum of the variances of A and of B. A rounded time is off by an amount
    whose variance is a twelfth of the square of the tick. Of its logarithm, that is
    divided by the square of the time.
    """
    variance_ns2 = tick_ns**2 / 12
    variance_a = variance_ns2 / np.maximum(medians(a), 1) ** 2
    variance_b = variance_ns2 / np.maximum(medians(b), 1) ** 2
    return np.asarray(variance_a + variance_b)


class _Variation(msgspec.Struct, frozen=True, eq=False):
    """How much samples vary within each side, or how much their differences vary."""

    sum_of_squares: Floats  # around the means, one per column
    degrees_of_freedom: int  # 0 with one step on each side
    # The variance of the change from A to B is that of one sample times this factor.
    change_factor: float


def _measure_variation(log_a: Floats, log_b: Floats, *, paired: bool) -> _Variation:
    """Measure how much samples vary around their means.

    Args:
        log_a: The logarithms of the times of A, [steps of A, columns].
        log_b: The logarithms of the times of B, [steps of B, columns].
        paired: Whether to measure the differences of the n-th steps instead of the
            samples of each trace.
    """
    samples_of_each = [log_b - log_a] if paired else [log_a, log_b]
    sum_of_squares = np.zeros(log_a.shape[1])
    degrees_of_freedom = 0
    change_factor = 0.0
    for samples in samples_of_each:
        deviations = samples - samples.mean(axis=0)
        sum_of_squares += (deviations**2).sum(axis=0)
        degrees_of_freedom += len(samples) - 1  # the mean takes one of them
        change_factor += 1 / len(samples)  # the variance of the mean of the samples
    return _Variation(
        sum_of_squares=sum_of_squares,
        degrees_of_freedom=degrees_of_freedom,
        change_factor=change_factor,
    )


def _take_logs(samples: Int64s) -> Floats:
    """Return the logarithms of times in ns; 0 for a time of 0."""
    return np.log(np.maximum(samples, 1))


@cache
def compute_student_point(freedom: int, level: float) -> float:
    """Return the two-sided point of Student's t distribution for a significance level.

    A value lies farther from 0 than the point, in either direction, with the
    probability `level`. The point is found by bisection.

        >>> round(compute_student_point(10, 0.05), 3)
        2.228

    Args:
        freedom: The degrees of freedom. More than MAX_DEGREES_OF_FREEDOM count as that.
        level: A probability.
    """
    low = 0.0
    high = 1.0
    while _compute_probability_outside(high, freedom) > level:
        high *= 2
    # The point is between `low` and `high`; halve that interval again and again.
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if _compute_probability_outside(middle, freedom) > level:
            low = middle
        else:
            high = middle
    return high


def _compute_probability_outside(t: float, freedom: int) -> float:
    """Return the probability that Student's distribution lies more than t from 0.

    The sums are those of Abramowitz and Stegun, Handbook of Mathematical Functions:
    26.7.3 for odd degrees of freedom, 26.7.4 for even ones.
    """
    freedom = min(freedom, MAX_DEGREES_OF_FREEDOM)
    angle = math.atan(t / math.sqrt(freedom))
    is_odd = freedom % 2 == 1
    term = math.cos(angle) if is_odd else 1.0
    total = 0.0
    for n in range(3 if is_odd else 2, freedom + 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (n - 1) / n

    probability_inside = math.sin(angle) * total
    if is_odd:
        probability_inside = 2 / math.pi * (angle + probability_inside)
    return 1 - probability_inside
