"""Medians and percentiles of integers: the rules, each with a name.

They differ in what they give for an even count. A **lower median** is one of the
values, so that the slice, the step or the layer that has it can be shown; so is an
**upper median**, and a percentile by the **nearest rank**. A **percentile** is
interpolated between the two nearest values, as with numpy's "linear" method, and
rounded down; so the **median** is the mean of the middle two, rounded down.

The answer is an integer everywhere. Values are of shape [n], in any order unless a
function says otherwise, and there is at least one (IndexError).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fusetui.trace.model.arrays import Int64s, Rows


def lower_median(values: Int64s | Sequence[int]) -> int:
    """One of the values: the middle one, of an even count the lower of the middle
    two."""
    return int(np.sort(values)[(len(values) - 1) // 2])


def lower_median_index(values: Int64s | Sequence[int]) -> int:
    """The index of the lower median; equal values count in their order."""
    order = np.argsort(values, kind="stable")
    return int(order[(len(order) - 1) // 2])


def upper_median(values: Int64s) -> int:
    """One of the values: the middle one, of an even count the upper of the middle
    two."""
    return int(np.sort(values)[len(values) // 2])


def median(values: Int64s | Sequence[int]) -> int:
    """The middle value, of an even count the mean of the middle two, rounded down."""
    return percentile(values, 50)


def percentile(values: Int64s | Sequence[int], percent: int) -> int:
    """Interpolated between the two nearest values, rounded down."""
    firsts = np.array([0])
    counts = np.array([len(values)])
    return int(percentiles_of_runs(np.sort(values), firsts, counts, percent)[0])


def percentiles_of_runs(
    ascending: Int64s, firsts: Rows, counts: Rows, percent: int
) -> Int64s:
    """The percentile of each run of values: `counts[n]` of them from `firsts[n]` on,
    which ascend within the run. Shape [runs]; interpolated, rounded down."""
    if not len(counts):
        return np.empty(0, dtype=np.int64)
    places, hundredths = np.divmod((counts - 1) * percent, 100)
    below = firsts + places
    above = np.minimum(below + 1, firsts + counts - 1)
    percentiles: Int64s = (
        ascending[below] + (ascending[above] - ascending[below]) * hundredths // 100
    )
    return percentiles


def nearest_rank(values: Int64s | Sequence[int], percent: int) -> int:
    """One of the values: the least that `percent` of all do not exceed."""
    rank = -(-percent * len(values) // 100)  # rounded up; the first value has rank 1
    return int(np.sort(values)[max(rank, 1) - 1])
