"""Medians and percentiles, with a name for each rule.

They differ in what they give for an even count. A **lower median** is one of the
values, so that the slice, the step or the layer that has it can be shown; so is an
**upper median**, and a percentile by the **nearest rank**. A **percentile** is
interpolated between the two nearest values, as with numpy's "linear" method, and
rounded down; so the **median** is the mean of the middle two, rounded down.

Of integers the answer is an integer. Values are of shape [n], in any order unless a
function says otherwise, and there is at least one (IndexError). Of floats (ratios,
logarithms, offsets of clocks) `numpy.median` is the median.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fusetui.trace.model.arrays import Floats, Int64s, Rows, begins_runs, ends_runs


def lower_median(values: Int64s | Sequence[int]) -> int:
    """The lower median: the middle value, or of an even count the smaller of the two in
    the middle."""
    return int(np.sort(values)[(len(values) - 1) // 2])


def lower_median_index(values: Int64s | Sequence[int]) -> int:
    """Return the index of the lower median; equal values count in their order.

    >>> lower_median_index([30, 10, 20, 40])
    2
    """
    order = np.argsort(values, kind="stable")
    return int(order[(len(order) - 1) // 2])


def upper_median(values: Int64s) -> int:
    """The upper median: the middle value, or of an even count the larger of the two in
    the middle."""
    return int(np.sort(values)[len(values) // 2])


def median(values: Int64s | Sequence[int]) -> int:
    """The median: the middle value, or of an even count the mean of the two in the
    middle, rounded down."""
    return percentile(values, 50)


def medians(samples: Int64s) -> Int64s:
    """Return the median of each column, rounded down.

    >>> medians(np.array([[1, 10], [4, 20]])).tolist()
    [2, 15]

    Args:
        samples: The samples along the first axis; at least one.
    """
    ordered = np.sort(samples, axis=0)
    lower = ordered[(len(samples) - 1) // 2]
    upper = ordered[len(samples) // 2]
    return np.asarray((lower + upper) // 2)


def medians_of_groups(values: Floats, group: Rows, groups: int) -> Floats:
    """Return the median of the values of each group, not rounded.

    >>> medians_of_groups(np.array([1.0, 9.0, 2.0]), np.array([0, 2, 0]), groups=3)
    array([1.5, nan, 9. ])

    Args:
        values: The values, in any order.
        group: The number of the group of each value.
        groups: How many groups there are. The median of one without values is nan.
    """
    order = np.lexsort((values, group))
    ordered_values = values[order]
    ordered_groups = group[order]
    first = np.flatnonzero(begins_runs(ordered_groups))
    last = np.flatnonzero(ends_runs(ordered_groups))
    # the two middle values, which are one if their number is odd
    lower = ordered_values[(first + last) // 2]
    upper = ordered_values[(first + last + 1) // 2]
    medians = np.full(groups, np.nan)
    medians[ordered_groups[first]] = (lower + upper) / 2
    return medians


def percentile(values: Int64s | Sequence[int], percent: int) -> int:
    """Return a percentile, interpolated between the two nearest values, rounded down.

    >>> percentile([40, 10, 20, 30], 50), percentile([40, 10, 20, 30], 90)
    (25, 37)
    """
    firsts = np.array([0])
    counts = np.array([len(values)])
    return int(percentiles_of_runs(np.sort(values), firsts, counts, percent)[0])


def percentiles_of_runs(
    ascending: Int64s, firsts: Rows, counts: Rows, percent: int
) -> Int64s:
    """Return the percentile of each of several runs of values, rounded down.

    >>> values = np.array([10, 20, 7])
    >>> percentiles_of_runs(values, np.array([0, 2]), np.array([2, 1]), 50).tolist()
    [15, 7]

    Args:
        ascending: The values of all runs; ascending within each run.
        firsts: The index at which each run begins.
        counts: How many values each run has; at least one.
        percent: Which percentile, from 0 to 100.
    """
    if not len(counts):
        return np.empty(0, dtype=np.int64)
    places, hundredths = np.divmod((counts - 1) * percent, 100)
    below = firsts + places
    above = np.minimum(below + 1, firsts + counts - 1)
    percentiles: Int64s = (
        ascending[below] + (ascending[above] - ascending[below]) * hundredths // 100
    )
    return percentiles


def lower_quantile(values: Floats | Int64s, share: float) -> float:
    """The largest of the values that is not above the interpolated quantile. But for
    rounding, at least `share` of all values lie at or below it."""
    return float(np.quantile(values, share, method="lower"))


def nearest_rank(values: Int64s | Sequence[int], percent: int) -> int:
    """Return the smallest value that at least `percent` of all do not exceed.

    >>> nearest_rank([40, 10, 20, 30], 50), nearest_rank([40, 10, 20, 30], 51)
    (20, 30)
    """
    rank = -(-percent * len(values) // 100)  # rounded up; the first value has rank 1
    return int(np.sort(values)[max(rank, 1) - 1])
