"""Medians, and how many steps a verdict takes."""

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


def resolution(samples: Int64s) -> int:
    """The tick of the clock (ns): 1000 in files with whole microseconds, 0 when finer."""
    return 1000 if samples.size and not (samples % 1000).any() else 0
