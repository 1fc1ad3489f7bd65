"""Medians, intervals and what counts as noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]

FEW_STEPS = 5
"""A verdict needs this many steps on each side. n samples enclose the true median with a
probability of 1 - 2**(1 - n): 94 % for five, 88 % for four (too few for 95 %)."""

CONFIDENCE = 95
"""The confidence level of an interval, in percent; see interval.py."""

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


def beyond_noise(a: Int64s, b: Int64s, resolution_ns: int) -> NDArray[np.bool_]:
    """Per column of two sample arrays, shapes [steps, items]: whether the change is more than
    noise.

    The medians differ by more than 5 %, 100 ns and the tick of the clock, and the middle halves of
    the samples do not overlap.
    """
    of_a, of_b = median(a), median(b)
    floor = np.maximum(np.maximum(of_a, of_b) * FLOOR_PERCENT // 100, FLOOR_NS)
    far = np.abs(of_b - of_a) > np.maximum(floor, resolution_ns)
    (low_a, high_a), (low_b, high_b) = middle_half(a), middle_half(b)
    apart: NDArray[np.bool_] = far & ((low_a > high_b) | (low_b > high_a))
    return apart


def resolution(samples: Int64s) -> int:
    """The tick of the clock (ns): 1000 in files with whole microseconds, 0 when finer."""
    return 1000 if samples.size and not (samples % 1000).any() else 0
