"""Small operations on arrays."""

from __future__ import annotations

import doctest

import numpy as np

from fusetui.trace.model import arrays
from fusetui.trace.model.arrays import (
    last_at_or_before,
    numbers_of_sized_groups,
    prefix_sums,
    reduce_groups,
)

NOTHING = np.empty(0, dtype=np.int64)


def test_the_examples_hold() -> None:
    results = doctest.testmod(arrays)
    assert results.attempted > 5
    assert not results.failed


def test_groups_without_rows() -> None:
    no_groups = np.empty(0, dtype=np.intp)
    assert reduce_groups(np.add, NOTHING, no_groups).tolist() == []
    assert numbers_of_sized_groups(no_groups).tolist() == []


def test_sums_of_a_range_are_differences() -> None:
    values = np.random.default_rng(7).integers(-50, 50, 40)
    sums = prefix_sums(values)
    assert prefix_sums(NOTHING).tolist() == [0]
    for begin, end in ((0, 40), (3, 3), (10, 25)):
        assert sums[end] - sums[begin] == values[begin:end].sum()


def test_flags_are_counted() -> None:
    assert prefix_sums(np.array([True, False, True])).tolist() == [0, 1, 1, 2]


def test_nothing_lies_before_an_empty_column() -> None:
    assert last_at_or_before(NOTHING, np.array([3, 4])).tolist() == [-1, -1]
