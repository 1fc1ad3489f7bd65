"""The last of many intervals that contains a time, compared with looking at each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetui.trace.layout.reach import Reach


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 100])
def test_any_intervals(size: int) -> None:
    random = np.random.default_rng(size)
    end = random.integers(0, 50, size)
    until = np.repeat(np.arange(-1, size), 60)
    times = np.tile(np.arange(-5, 55), size + 1)
    slowly = [
        max((n for n in range(last + 1) if end[n] > time), default=-1)
        for last, time in zip(until.tolist(), times.tolist(), strict=True)
    ]
    assert Reach(end).last(until, times).tolist() == slowly


def test_no_intervals() -> None:
    nothing = np.empty(0, dtype=np.int64)
    assert Reach(nothing).last(np.array([-1]), np.array([3])).tolist() == [-1]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=20), st.integers(-1, 19), st.integers(0, 9))
def test_one_time(end: list[int], until: int, time: int) -> None:
    until = min(until, len(end) - 1)
    later = [n for n in range(until + 1) if end[n] > time]
    found = Reach(np.array(end)).last(np.array([until]), np.array([time]))
    assert found.tolist() == [max(later, default=-1)]
