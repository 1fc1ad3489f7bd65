"""What the cells of a lane show, compared with looking at every slice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fusetui.timeline.cells import (
    SEVERAL,
    DepthRows,
    cells,
    edges,
    find_nearest_slice,
    row_covering_window,
)
from fusetui.trace import Trace

Make = Callable[..., Any]
kernels = st.lists(
    st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=1, max_size=12
)


def stream(event: Make, gaps: list[tuple[int, int]]) -> list[dict[str, Any]]:
    """Kernels one after another; each pair is a gap before and a duration, in us."""
    found: list[dict[str, Any]] = []
    at = 0
    for gap, dur in gaps:
        found.append(event(f"k{len(found)}", at + gap, dur, cat="kernel", pid=0, tid=7))
        at += gap + dur
    return found


def test_edges_divide_a_window_into_cells() -> None:
    assert edges(10, 30, 4).tolist() == [10, 15, 20, 25, 30]
    assert edges(0, 7, 2).tolist() == [0, 3, 7]
    assert edges(2**60, 2**60 + 10, 5)[-1] == 2**60 + 10


def test_edges_that_lines_share_cannot_be_written_to() -> None:
    shared = edges(0, 7, 2)
    with pytest.raises(ValueError, match="read-only"):
        shared[0] = 1


def test_lane_has_a_line_for_each_depth(trace_of: Make, event: Make) -> None:
    trace = trace_of(
        [event("a", 0, 10), event("b", 1, 3), event("c", 5, 3), event("d", 20, 1)]
    )
    lines = DepthRows(trace, trace.tracks[:1])
    assert [[trace.name_of(row) for row in line.rows] for line in lines] == [
        ["a", "d"],
        ["b", "c"],
    ]


def test_the_longest_slice_is_shown(trace_of: Make, event: Make) -> None:
    trace = trace_of(stream(event, [(0, 1), (0, 5), (0, 2), (2, 10)]))
    (line,) = DepthRows(trace, trace.tracks[:1])
    found = cells(line, edges(0, 20_000, 2))
    assert [trace.name_of(row) for row in found.row] == ["k1", "k3"]
    assert found.count.tolist() == [3, 1]
    assert found.covered.tolist() == [8_000, 10_000]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kernels, st.integers(-5, 60), st.integers(1, 80), st.integers(1, 30))
def test_cells_show_what_looking_at_every_slice_shows(
    trace_of: Make,
    event: Make,
    gaps: list[tuple[int, int]],
    begin: int,
    dur: int,
    width: int,
) -> None:
    trace: Trace = trace_of(stream(event, gaps))
    (line,) = DepthRows(trace, trace.tracks[:1])
    borders = edges(begin * 1000, (begin + dur) * 1000, width)
    found = cells(line, borders)
    for cell in range(width):
        first, last = int(borders[cell]), int(borders[cell + 1])
        touching = [row for row in range(len(trace)) if trace.start[row] < last]
        touching = [row for row in touching if trace.end[row] > first]
        longest = max((int(trace.dur[row]) for row in touching), default=None)
        overlap = [min(int(trace.end[row]), last) - max(int(trace.start[row]), first)
                   for row in touching]  # fmt: skip
        assert found.count[cell] == len(touching)
        assert found.covered[cell] == sum(overlap)
        assert (found.row[cell] == -1) == (not touching)
        if touching:
            assert trace.dur[found.row[cell]] == longest


def test_slice_near_a_time_is_the_nearest(trace_of: Make, event: Make) -> None:
    trace = trace_of(stream(event, [(10, 5), (5, 5)]))
    (line,) = DepthRows(trace, trace.tracks[:1])
    assert [find_nearest_slice(line, at * 1000) for at in (0, 12, 16, 19, 22, 99)] == [
        0,
        0,
        0,
        1,
        1,
        1,
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kernels, st.integers(-5, 60), st.integers(1, 12), st.integers(1, 30))
def test_a_window_without_borders_looks_the_same_in_every_cell(
    trace_of: Make,
    event: Make,
    gaps: list[tuple[int, int]],
    begin: int,
    dur: int,
    width: int,
) -> None:
    (line,) = DepthRows(trace := trace_of(stream(event, gaps)), trace.tracks[:1])
    found = row_covering_window(line, begin * 1000, (begin + dur) * 1000)
    if found != SEVERAL:
        shown = cells(line, edges(begin * 1000, (begin + dur) * 1000, width))
        assert set(shown.row.tolist()) == {found}
