"""The deepest slice that covers enough of a cell, compared with looking at every
slice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fusetui.timeline import cells as module
from fusetui.timeline.cells import deepest_rows, edges
from fusetui.trace import Trace

Make = Callable[..., Any]


def names(trace: Trace, begin: int, end: int, width: int, least: int = 0) -> list[str]:
    """Times in us."""
    borders = edges(begin * 1000, end * 1000, width)
    found = deepest_rows(trace, trace.tracks[0], borders, least * 1000)
    return [trace.name_of(row) if row >= 0 else "" for row in found.tolist()]


def test_the_innermost_that_covers_half_of_a_cell(trace_of: Make, event: Make) -> None:
    trace = trace_of(
        [event("main", 0, 40), event("load", 10, 10), event("seek", 12, 4)]
    )
    assert names(trace, 0, 50, 5) == ["main", "load", "main", "main", ""]
    assert names(trace, 12, 16, 1) == ["seek"]


def test_many_short_calls_are_the_one_around_them(trace_of: Make, event: Make) -> None:
    calls = [event(f"f{n}", 4 * n, 3) for n in range(10)]
    trace = trace_of([event("loop", 0, 40), *calls])
    assert names(trace, 0, 40, 2) == ["loop", "loop"]


def test_short_ones_are_passed_over(trace_of: Make, event: Make) -> None:
    trace = trace_of(
        [event("main", 0, 40), event("load", 10, 20), event("seek", 10, 10)]
    )
    assert names(trace, 0, 40, 4) == ["main", "seek", "load", "main"]
    assert names(trace, 0, 40, 4, least=20) == ["main", "load", "load", "main"]
    assert names(trace, 0, 40, 4, least=1000) == ["main"] * 4


def test_a_nest_of_any_depth_is_given_up(
    trace_of: Make, event: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_CLIMBED_LEVELS", 3)
    trace = trace_of([event(f"f{n}", n, 40 - 2 * n) for n in range(20)])
    assert names(trace, 0, 400, 4)[0] == ""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(1, 30)), min_size=1, max_size=12
    ),
    st.integers(1, 40),
    st.integers(1, 20),
)
def test_deepest_slice_of_each_cell_is_that_of_a_slow_search(
    trace_of: Make, event: Make, spans: list[tuple[int, int]], dur: int, width: int
) -> None:
    trace = trace_of(
        [event(f"f{n}", ts, length) for n, (ts, length) in enumerate(spans)]
    )
    track = trace.tracks[0]
    borders = edges(0, dur * 1000, width)
    for cell, row in enumerate(deepest_rows(trace, track, borders).tolist()):
        begin, end = int(borders[cell]), int(borders[cell + 1])
        middle = (begin + end) // 2
        covering = [
            n
            for n in range(track.first_row, track.end_row)
            if 2 * (min(int(trace.end[n]), end) - max(int(trace.start[n]), begin))
            >= end - begin
        ]
        # One that covers exactly the first half does not reach beyond the middle:
        # another one may.
        beyond = [n for n in covering if int(trace.end[n]) > middle]
        assert row in covering or (row == -1 and not beyond)
        if beyond:
            assert trace.depth[row] >= max(int(trace.depth[n]) for n in beyond)
