"""The kind that each cell shows, compared with adding up every slice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fusetui.timeline.cells import (
    NO_SLICE,
    SEVERAL,
    DepthRow,
    DepthRows,
    cells,
    edges,
    row_shown_by_cell,
)
from fusetui.trace import Trace

Make = Callable[..., Any]
Slice = tuple[int, int, int]
"""A gap before it and its duration in us, and its kind."""
slices = st.lists(
    st.tuples(st.integers(0, 9), st.integers(1, 9), st.integers(0, 3)),
    min_size=1,
    max_size=12,
)


def line_of(trace_of: Make, event: Make, found: list[Slice]) -> tuple[Trace, DepthRow]:
    """Kernels one after another on one line."""
    events, at = [], 0
    for number, (gap, dur, _) in enumerate(found):
        events.append(event(f"k{number}", at + gap, dur, cat="kernel", pid=0, tid=7))
        at += gap + dur
    trace = trace_of(events)
    kinds = np.array([kind for *_, kind in found], dtype=np.uint8)
    (line,) = DepthRows(trace, trace.tracks, kinds)
    return trace, line


def test_a_cell_is_of_the_kind_with_the_most_time_in_it(
    trace_of: Make, event: Make
) -> None:
    """Not of the longest slice: one of 4 us beside three of 2 us."""
    _, line = line_of(trace_of, event, [(0, 4, 1), (0, 2, 2), (0, 2, 2), (0, 2, 2)])
    found = cells(line, edges(0, 10_000, 1))
    assert found.kind.tolist() == [2]
    assert found.row.tolist() == [SEVERAL]


def test_the_longest_slice_stands_for_a_cell_of_its_kind(
    trace_of: Make, event: Make
) -> None:
    trace, line = line_of(trace_of, event, [(0, 4, 1), (0, 2, 2), (0, 1, 2)])
    found = cells(line, edges(0, 10_000, 1))
    assert found.kind.tolist() == [1]
    assert trace.name_of(int(found.row[0])) == "k0"


def test_a_slice_counts_with_what_lies_in_the_cell(trace_of: Make, event: Make) -> None:
    """The first of 8 us has only 2 us in the second cell."""
    _, line = line_of(trace_of, event, [(0, 8, 1), (0, 3, 2)])
    assert cells(line, edges(0, 12_000, 2)).kind.tolist() == [1, 2]


def test_clicked_cell_selects_the_slice_that_it_shows(
    trace_of: Make, event: Make
) -> None:
    trace, line = line_of(trace_of, event, [(0, 4, 1), (0, 2, 2), (0, 3, 2)])
    assert trace.name_of(row_shown_by_cell(line, 0, 9_000)) == "k2"
    assert row_shown_by_cell(line, 20_000, 30_000) == NO_SLICE


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(slices, st.integers(-5, 60), st.integers(1, 80), st.integers(1, 30))
def test_kind_of_each_cell_is_that_of_adding_up_every_slice(
    trace_of: Make, event: Make, found: list[Slice], begin: int, dur: int, width: int
) -> None:
    trace, line = line_of(trace_of, event, found)
    borders = edges(begin * 1000, (begin + dur) * 1000, width)
    shown = cells(line, borders)
    for cell in range(width):
        first, last = int(borders[cell]), int(borders[cell + 1])
        times = [0] * 4
        for row, (*_, kind) in enumerate(found):
            inside = min(int(trace.end[row]), last) - max(int(trace.start[row]), first)
            times[kind] += max(0, inside)
        kind = int(shown.kind[cell])
        assert max(times) == (times[kind] if kind != NO_SLICE else 0)
