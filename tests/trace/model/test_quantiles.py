"""Medians and percentiles, beside the standard library and numpy."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetui.trace.model.quantiles import (
    lower_median,
    lower_median_index,
    lower_quantile,
    median,
    medians,
    medians_of_groups,
    nearest_rank,
    percentile,
    percentiles_of_runs,
    upper_median,
)

VALUES = st.lists(st.integers(0, 10**12), min_size=1, max_size=40)


@given(VALUES)
def test_medians_are_those_of_the_standard_library(values: list[int]) -> None:
    assert lower_median(values) == statistics.median_low(values)
    assert upper_median(np.array(values)) == statistics.median_high(values)
    assert median(values) == int(statistics.median(values))


@given(VALUES, st.integers(0, 100))
def test_percentiles_are_those_of_numpy_within_a_hundredth(
    values: list[int], percent: int
) -> None:
    exact = float(np.percentile(values, percent))
    assert exact - 1.01 < percentile(values, percent) <= exact + 0.01


@given(VALUES, st.integers(0, 100))
def test_the_nearest_rank_is_the_least_value_that_reaches_the_share(
    values: list[int], percent: int
) -> None:
    found = nearest_rank(values, percent)
    reaching = [
        value
        for value in values
        if 100 * sum(other <= value for other in values) >= percent * len(values)
    ]
    assert found == min(reaching)


def test_the_middle_of_an_even_count() -> None:
    values = [40, 10, 31, 20]
    assert lower_median(values) == 20
    assert upper_median(np.array(values)) == 31
    assert median(values) == 25


def test_the_index_of_the_lower_median_among_equal_values() -> None:
    assert lower_median_index([7, 5, 5, 5, 9]) == 3
    assert lower_median_index([5, 5]) == 0


def test_percentiles_of_five_values_by_hand() -> None:
    values = [40, 10, 20, 30, 50]
    assert [percentile(values, n) for n in (0, 10, 50, 90, 100)] == [10, 14, 30, 46, 50]
    assert [nearest_rank(values, n) for n in (0, 10, 50, 90, 100)] == [
        10,
        10,
        30,
        50,
        50,
    ]


def test_percentiles_of_runs() -> None:
    ascending = np.array([10, 20, 5, 7, 8, 8])
    firsts = np.array([0, 2])
    counts = np.array([2, 4])
    assert percentiles_of_runs(ascending, firsts, counts, 50).tolist() == [15, 7]
    no_runs = np.empty(0, dtype=np.intp)
    assert percentiles_of_runs(ascending, no_runs, no_runs, 50).tolist() == []


def test_no_values_have_no_median() -> None:
    no_values = np.empty(0, dtype=np.int64)
    for rule in (lower_median, upper_median, median):
        with pytest.raises(IndexError):
            rule(no_values)


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 99)), min_size=1))
def test_medians_of_columns_are_rounded_down(rows: list[tuple[int, int]]) -> None:
    """Rounded down, also below zero."""
    expected = [
        math.floor(statistics.median(column)) for column in zip(*rows, strict=True)
    ]
    assert medians(np.array(rows)).tolist() == expected


def test_the_median_of_each_group_is_not_rounded() -> None:
    values = np.array([4.0, 1.0, 9.0, 2.0, 7.0])
    found = medians_of_groups(values, np.array([2, 0, 2, 0, 2]), groups=4)
    assert found[[0, 2]].tolist() == [1.5, 7.0]
    assert np.isnan(found[[1, 3]]).all()


def test_the_lower_quantile_is_one_of_the_values() -> None:
    assert lower_quantile(np.array([30, 10, 20, 40]), 0.5) == 20.0
    assert lower_quantile(np.array([30, 10, 20, 40]), 0.99) == 30.0
