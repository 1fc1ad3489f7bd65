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

from fusetui.trace.model.arrays import Floats, Int64s, Rows


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


def medians(samples: Int64s) -> Int64s:
    """The median of each column: of shape [samples, ...], along the first axis."""
    ordered = np.sort(samples, axis=0)
    lower = ordered[(len(samples) - 1) // 2]
    upper = ordered[len(samples) // 2]
    return np.asarray((lower + upper) // 2)


def medians_of_groups(values: Floats, group: Rows, groups: int) -> Floats:
    """The median of the values of each group, not rounded; nan where it is empty.
    `group`: the number of the group of each value, 0 <= group < groups."""
    order = np.lexsort((values, group))
    ordered_values = values[order]
    ordered_groups = group[order]
    first = np.flatnonzero(np.diff(ordered_groups, prepend=-1))
    last = np.append(first[1:], len(order)) - 1
    # the two middle values, which are one if their number is odd
    lower = ordered_values[(first + last) // 2]
    upper = ordered_values[(first + last + 1) // 2]
    medians = np.full(groups, np.nan)
    medians[ordered_groups[first]] = (lower + upper) / 2
    return medians


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


def lower_quantile(values: Floats | Int64s, share: float) -> float:
    """One of the values: the largest that is not above the interpolated quantile, so
    that at least `share` of all lie at or below it but for rounding."""
    return float(np.quantile(values, share, method="lower"))


def nearest_rank(values: Int64s | Sequence[int], percent: int) -> int:
    """One of the values: the least that `percent` of all do not exceed."""
    rank = -(-percent * len(values) // 100)  # rounded up; the first value has rank 1
    return int(np.sort(values)[max(rank, 1) - 1])
