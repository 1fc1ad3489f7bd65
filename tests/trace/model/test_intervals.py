"""Sets of intervals, against a slow count of every moment."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetui.trace.model.intervals import (
    EnclosingIndex,
    common,
    covered_until,
    innermost,
    joined,
    union,
    union_length,
    without,
)

Spans = list[tuple[int, int]]
pairs = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=12)


def arrays(intervals: Spans) -> tuple[np.ndarray, np.ndarray]:
    start = np.array([first for first, _ in intervals], dtype=np.int64)
    length = np.array([length for _, length in intervals], dtype=np.int64)
    return start, start + length


def points(intervals: Spans) -> set[int]:
    return {
        point for first, length in intervals for point in range(first, first + length)
    }


def test_union_of_intervals_by_hand() -> None:
    starts, ends, _ = union(np.array([5, 0, 2, 9]), np.array([6, 3, 4, 9]))
    assert list(zip(starts, ends, strict=True)) == [(0, 4), (5, 6), (9, 9)]
    assert union_length(np.array([0, 4]), np.array([4, 8])) == 8
    assert union_length(np.empty(0, np.int64), np.empty(0, np.int64)) == 0


def test_exact_where_floats_are_not() -> None:
    big = 2**61
    assert union_length(np.array([0, big]), np.array([big, big + 1])) == big + 1


@given(pairs)
def test_union_of_intervals_equals_counting_moments(intervals: Spans) -> None:
    start, end = arrays(intervals)
    starts, ends, _ = union(start, end)
    assert union_length(start, end) == len(points(intervals))
    assert (starts[1:] > ends[:-1]).all()
    assert points(
        [(int(a), int(b - a)) for a, b in zip(starts, ends, strict=True)]
    ) == points(intervals)


@given(pairs, st.lists(st.integers(-5, 60), max_size=8))
def test_covered_until_equals_counting_moments(
    intervals: Spans, times: list[int]
) -> None:
    found = covered_until(
        *union(*arrays(intervals))[:2], np.array(times, dtype=np.int64)
    )
    busy = points(intervals)
    assert found.tolist() == [sum(point < time for point in busy) for time in times]


def bounds(found: Spans) -> tuple[np.ndarray, np.ndarray]:
    both = np.array(found, dtype=np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


spans = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=12).map(
    lambda found: sorted(
        ((a, a + n) for a, n in found), key=lambda one: (one[0], -one[1])
    )
)


@given(spans, spans, st.integers(-2, 45), st.integers(0, 45))
def test_cover_within_windows_equals_counting_moments(
    one: Spans, two: Spans, at: int, length: int
) -> None:
    cover = joined(union(*bounds(one)), union(*bounds(two)))
    moments = range(at, at + length)
    covered = sum(any(a <= t < b for a, b in (*one, *two)) for t in moments)
    assert cover.within(np.array([at]), np.array([at + length])).tolist() == [covered]


@given(spans, spans)
def test_common_and_without_equal_counting_moments(one: Spans, two: Spans) -> None:
    a, b = union(*bounds(one)), union(*bounds(two))
    every = np.arange(-1, 45)
    both, rest = (
        found.within(every, every + 1).tolist()
        for found in (common(a, b), without(a, b))
    )
    inside = [[any(s <= t < e for s, e in part) for t in every] for part in (one, two)]
    assert both == [x and y for x, y in zip(*inside, strict=True)]
    assert rest == [x and not y for x, y in zip(*inside, strict=True)]


@given(spans)
def test_innermost_interval_at_any_moment_equals_a_slow_search(found: Spans) -> None:
    start, end = bounds(found)
    times, inner = innermost(start, end)
    for moment in range(-1, 45):
        part = int(times.searchsorted(moment, side="right")) - 1
        around = [n for n, (a, b) in enumerate(found) if a <= moment < b]
        assert (inner[part] if part >= 0 else -1) == max(around, default=-1)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 100])
def test_enclosing_index_equals_a_slow_search(size: int) -> None:
    random = np.random.default_rng(size)
    end = random.integers(0, 50, size)
    until = np.repeat(np.arange(-1, size), 60)
    times = np.tile(np.arange(-5, 55), size + 1)
    slowly = [
        max((n for n in range(last + 1) if end[n] > time), default=-1)
        for last, time in zip(until.tolist(), times.tolist(), strict=True)
    ]
    assert EnclosingIndex(end).last(until, times).tolist() == slowly


def test_enclosing_index_of_no_intervals_finds_nothing() -> None:
    nothing = np.empty(0, dtype=np.int64)
    assert EnclosingIndex(nothing).last(np.array([-1]), np.array([3])).tolist() == [-1]


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=20),
    st.integers(-1, 19),
    st.integers(0, 9),
)
def test_enclosing_index_at_one_time_equals_a_slow_search(
    end: list[int], until: int, time: int
) -> None:
    until = min(until, len(end) - 1)
    later = [n for n in range(until + 1) if end[n] > time]
    found = EnclosingIndex(np.array(end)).last(np.array([until]), np.array([time]))
    assert found.tolist() == [max(later, default=-1)]
