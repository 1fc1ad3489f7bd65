"""The last of many intervals that contains a time, compared with looking at each."""

from __future__ import annotations

import numpy as np
import pytest

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
