"""Percentiles, means and sums of groups, against numpy on each group alone."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fusetui.analysis.questions.totals import summarize_durations
from fusetui.trace.model.grouping import grouped

PAIRS = st.lists(st.tuples(st.integers(-2, 4), st.integers(0, 10**9)), max_size=60)


@given(PAIRS)
def test_spreads_of_groups_equal_numpy_on_each_alone(
    pairs: list[tuple[int, int]],
) -> None:
    keys = np.array([key for key, _ in pairs], dtype=np.int64)
    dur = np.array([value for _, value in pairs], dtype=np.int64)
    found = summarize_durations(keys, dur)
    assert len(found) == len(np.unique(keys))
    for key, spread in zip(np.unique(keys), found, strict=True):
        own = dur[keys == key]
        assert (spread.count, spread.total_ns) == (len(own), own.sum())
        assert (spread.min_ns, spread.max_ns) == (own.min(), own.max())
        assert spread.mean_ns == own.sum() // len(own)
        for percent, ns in (
            (10, spread.p10_ns),
            (50, spread.median_ns),
            (90, spread.p90_ns),
        ):
            exact = float(np.percentile(own, percent))
            assert math.floor(exact - 1e-3) <= ns <= math.floor(exact + 1e-3)


def test_spread_of_five_values_has_percentiles_by_hand() -> None:
    (spread,) = summarize_durations(
        np.zeros(5, dtype=np.int64), np.array([40, 10, 20, 30, 50])
    )
    assert (spread.p10_ns, spread.median_ns, spread.p90_ns) == (14, 30, 46)


def test_places_of_a_group_in_the_order_given() -> None:
    groups = grouped(np.array([7, 3, 7, 3, 7]), np.array([5, 9, 1, 2, 3]))
    assert groups.keys.tolist() == [3, 7]
    assert [groups.members(n).tolist() for n in range(2)] == [[3, 1], [2, 4, 0]]
    assert groups.sums(np.array([1, 10, 100, 1000, 10_000])).tolist() == [1010, 10_101]
