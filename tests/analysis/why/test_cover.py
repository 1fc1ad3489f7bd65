"""Covers and innermost intervals, against a slow count of every moment."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fusetui.analysis.why.cover import cover_of, innermost, joined

Spans = list[tuple[int, int]]
spans = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=12).map(
    lambda found: sorted(((a, a + n) for a, n in found), key=lambda one: (one[0], -one[1]))
)


def arrays(found: Spans) -> tuple[np.ndarray, np.ndarray]:
    both = np.array(found, dtype=np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


@given(spans, spans, st.integers(-2, 45), st.integers(0, 45))
def test_cover(one: Spans, two: Spans, at: int, length: int) -> None:
    cover = joined(cover_of(*arrays(one)), cover_of(*arrays(two)))
    moments = range(at, at + length)
    covered = sum(any(a <= t < b for a, b in (*one, *two)) for t in moments)
    assert cover.within(np.array([at]), np.array([at + length])).tolist() == [covered]


@given(spans)
def test_innermost(found: Spans) -> None:
    start, end = arrays(found)
    times, inner = innermost(start, end)
    for moment in range(-1, 45):
        part = int(times.searchsorted(moment, side="right")) - 1
        around = [n for n, (a, b) in enumerate(found) if a <= moment < b]
        assert (inner[part] if part >= 0 else -1) == max(around, default=-1)
