"""What a session becomes when more of its trace was read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from fusetui.trace import Trace
from fusetui.tui.layout.lanes import ALL, build_lanes
from fusetui.tui.layout.view import make_sides
from fusetui.tui.state.session import (
    Hits,
    ViewSession,
    carry_session,
    find_same_rows,
    start,
)

LINES = 20  # for the lanes of each side

Make = Callable[..., Any]


@pytest.fixture
def part(trace_of: Make, event: Make) -> Trace:
    """Two threads; the first slice starts at 100 us."""
    found: Trace = trace_of([event("a", 100, 10, tid=1), event("b", 120, 10, tid=2)])
    return found


@pytest.fixture
def more(trace_of: Make, event: Make) -> Trace:
    """Beside them a third thread, which begins first and so comes first."""
    events = [
        event("a", 100, 10, tid=1),
        event("b", 120, 10, tid=2),
        event("c", 40, 5, tid=3),
    ]
    found: Trace = trace_of(events)
    return found


def now(session: ViewSession, trace: Trace) -> ViewSession:
    return carry_session(session, make_sides([trace], ["more"]))


@pytest.fixture
def session(part: Trace) -> ViewSession:
    return start(make_sides([part], ["part"]), LINES)


def test_rows_are_found_by_their_place_in_the_file(part: Trace, more: Trace) -> None:
    rows = find_same_rows(part, more, [0, 1, -1])
    assert [more.name_of(rows[row]) for row in (0, 1)] == ["a", "b"]
    assert rows[-1] == -1


def test_selection_and_marks_stay_when_more_is_read(
    session: ViewSession, more: Trace
) -> None:
    chosen = replace(session.selected(0, 1), marked=(frozenset({0, 1}),))
    after = now(chosen, more)
    assert more.name_of(after.views[0].selected) == "b"
    assert {more.name_of(row) for row in after.marked[0]} == {"a", "b"}


def test_a_window_keeps_its_times_though_zero_is_earlier(
    session: ViewSession, more: Trace
) -> None:
    zoomed = session.moved(0, replace(session.views[0], begin=5_000, end=15_000))
    after = now(zoomed, more)
    assert (after.views[0].begin, after.views[0].end) == (65_000, 75_000)
    assert (after.undo().views[0].begin, after.undo().views[0].end) == (0, 90_000)


def test_lanes_keep_their_folds(session: ViewSession, more: Trace) -> None:
    view, more_lanes = session.views[0], build_lanes(more)
    folded = session.moved(0, replace(view, folds=(view.folds[0], ALL)))
    assert now(folded, more).views[0].folds == (
        more_lanes[0].some,
        more_lanes[1].some,
        ALL,
    )


def test_a_table_s_rows_are_forgotten(session: ViewSession, more: Trace) -> None:
    hits = Hits("a", 0, np.array([0]), 0)
    assert now(replace(session, hits=hits), more).hits is None


def test_a_search_is_made_again(session: ViewSession, more: Trace) -> None:
    hits = Hits("b", 0, np.array([1]), 0, searched=True)
    after = now(replace(session, hits=hits), more).hits
    assert after is not None
    assert more.name_of(after.row) == "b"
