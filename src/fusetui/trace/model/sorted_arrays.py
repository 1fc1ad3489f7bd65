"""Looks values up in sorted arrays. arrays.py has the two look-ups that every command
needs: last_at_or_before and equal_ranges.

In all functions `ascending` is sorted, its values may repeat, and it may be empty.
Look-ups take O(log n) each.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.arrays import Flags, Rows

BEFORE_ALL = -1
"""The index that a look-up gives for a value before all others."""


def positions_of(ascending: NDArray[Any], values: NDArray[Any]) -> Rows:
    """Find values that are in the array; of equal ones, the first.

    >>> positions_of(np.array([3, 5, 5, 9]), np.array([9, 5])).tolist()
    [3, 1]
    """
    positions: Rows = ascending.searchsorted(values)
    return positions


def position_of(ascending: NDArray[Any], value: int | np.integer) -> int:
    """Find one value that is in the array; of equal ones, the first."""
    return int(ascending.searchsorted(value))


def is_in(ascending: NDArray[Any], values: NDArray[Any]) -> Flags:
    """Mark the values that are in the array.

    np.isin does the same, but sorts both again.

    >>> is_in(np.array([3, 5, 9]), np.array([5, 6, 12])).tolist()
    [True, False, False]
    """
    if not len(ascending):
        return np.zeros(len(values), dtype=np.bool_)
    first_not_less = ascending.searchsorted(values)
    candidate = np.minimum(first_not_less, len(ascending) - 1)
    is_equal: Flags = ascending[candidate] == values
    return is_equal


def last_before(ascending: NDArray[Any], values: NDArray[Any]) -> Rows:
    """Find the last element that is less than each value.

    >>> last_before(np.array([10, 20, 20, 30]), np.array([10, 20, 99])).tolist()
    [-1, 0, 3]

    Returns:
        An index for each value; BEFORE_ALL where no element is less.
    """
    last: Rows = ascending.searchsorted(values) - 1
    return last


def count_below(ascending: NDArray[Any], values: NDArray[Any]) -> Rows:
    """Count the elements that are less than each value.

    >>> count_below(np.array([10, 20, 20, 30]), np.array([20, 25])).tolist()
    [1, 3]
    """
    count: Rows = ascending.searchsorted(values)
    return count


def count_until(ascending: NDArray[Any], values: NDArray[Any]) -> Rows:
    """Count the elements that are less than each value or equal to it.

    >>> count_until(np.array([10, 20, 20, 30]), np.array([20, 25])).tolist()
    [3, 3]
    """
    count: Rows = ascending.searchsorted(values, side="right")
    return count


def count_between(
    ascending: NDArray[Any], begin: NDArray[Any], end: NDArray[Any]
) -> Rows:
    """Count the elements in each of some ranges [begin, end) of values.

    >>> begin, end = np.array([20, 0]), np.array([30, 10])
    >>> count_between(np.array([10, 20, 20, 30]), begin, end).tolist()
    [2, 0]

    Args:
        begin: The begin of each range.
        end: Its end, which is not less. It does not belong to the range.
    """
    return count_below(ascending, end) - count_below(ascending, begin)


def slice_between(
    ascending: NDArray[Any], begin: int | np.integer, end: int | np.integer
) -> slice:
    """Return where the elements in one range [begin, end) of values are.

    >>> slice_between(np.array([10, 20, 20, 30]), 20, 30)
    slice(1, 3, None)
    """
    return slice(position_of(ascending, begin), position_of(ascending, end))


def slices_of_ids(ascending: NDArray[np.integer], count: int) -> list[slice]:
    """Return where the elements are that equal each of the ids 0, 1, ..., `count` - 1.

    >>> slices_of_ids(np.array([0, 0, 2]), count=3)
    [slice(0, 2, None), slice(2, 2, None), slice(2, 3, None)]
    """
    edges = ascending.searchsorted(np.arange(count + 1)).tolist()
    return [slice(begin, end) for begin, end in pairwise(edges)]
