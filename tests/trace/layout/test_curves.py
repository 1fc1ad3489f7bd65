"""What the cells of a counter show, compared with looking at every value."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fusetui.timeline.cells import edges
from fusetui.trace.layout.counters import (
    MAX_SCANNED_SAMPLES,
    Counter,
    Curve,
    curve_of,
    values,
)

samples = st.lists(
    st.tuples(st.integers(0, 90), st.integers(-9, 9)), min_size=1, max_size=40
)


def curve(pairs: list[tuple[int, int]]) -> Curve:
    pairs = sorted(pairs, key=lambda pair: pair[0])
    time = np.array([t for t, _ in pairs], dtype=np.int64)
    value = np.array([v for _, v in pairs], dtype=np.float64)
    return curve_of(Counter("counters", "c", "", None, time, value))


def test_cell_of_a_counter_shows_its_largest_value_else_the_last() -> None:
    found = values(curve([(10, 1), (12, 7), (19, 3)]), edges(0, 40, 4))
    assert np.isnan(found[0])
    assert found[1:].tolist() == [7.0, 3.0, 3.0]


@given(
    samples,
    st.integers(-5, 95),
    st.integers(1, 80),
    st.integers(1, 30),
    st.sampled_from([0, 4, MAX_SCANNED_SAMPLES]),
)
def test_cells_of_a_counter_equal_a_slow_search(
    pairs: list[tuple[int, int]], begin: int, dur: int, width: int, max_scanned: int
) -> None:
    shown = curve(pairs)
    borders = edges(begin, begin + dur, width)
    known = list(
        zip(shown.counter.time.tolist(), shown.counter.value.tolist(), strict=True)
    )
    for n, found in enumerate(values(shown, borders, max_scanned).tolist()):
        inside = [v for t, v in known if borders[n] <= t < borders[n + 1]]
        before = [v for t, v in known if t < borders[n]]
        wanted = max(inside) if inside else before[-1] if before else None
        assert (None if np.isnan(found) else found) == wanted
