"""Unions of intervals, against counting points one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fusetui.trace.model.intervals import covered_until, union, union_length

pairs = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=12)


def arrays(intervals: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    start = np.array([first for first, _ in intervals], dtype=np.int64)
    length = np.array([length for _, length in intervals], dtype=np.int64)
    return start, start + length


def points(intervals: list[tuple[int, int]]) -> set[int]:
    return {point for first, length in intervals for point in range(first, first + length)}


def test_examples() -> None:
    starts, ends = union(np.array([5, 0, 2, 9]), np.array([6, 3, 4, 9]))
    assert list(zip(starts, ends, strict=True)) == [(0, 4), (5, 6), (9, 9)]
    assert union_length(np.array([0, 4]), np.array([4, 8])) == 8
    assert union_length(np.empty(0, np.int64), np.empty(0, np.int64)) == 0


def test_exact_where_floats_are_not() -> None:
    big = 2**61
    assert union_length(np.array([0, big]), np.array([big, big + 1])) == big + 1


@given(pairs)
def test_union(intervals: list[tuple[int, int]]) -> None:
    start, end = arrays(intervals)
    starts, ends = union(start, end)
    assert union_length(start, end) == len(points(intervals))
    assert (starts[1:] > ends[:-1]).all()
    assert points([(int(a), int(b - a)) for a, b in zip(starts, ends, strict=True)]) == points(
        intervals
    )


@given(pairs, st.lists(st.integers(-5, 60), max_size=8))
def test_covered_until(intervals: list[tuple[int, int]], times: list[int]) -> None:
    found = covered_until(*union(*arrays(intervals)), np.array(times, dtype=np.int64))
    busy = points(intervals)
    assert found.tolist() == [sum(point < time for point in busy) for time in times]
