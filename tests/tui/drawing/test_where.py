"""A line says where the program was: in which module, else in which function."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.tui.mixed import mixed
from tests.tui.prepared import after, do, opened

from fusetui.trace import Trace
from fusetui.tui.drawing.lane_lines import draw_program_location_line
from fusetui.tui.drawing.schemes import ASCII, UNICODE
from fusetui.tui.layout.frame import find_row_at
from fusetui.tui.layout.places import places
from fusetui.tui.layout.view import Place
from fusetui.tui.state.state import Size, State

Make = Callable[..., Trace]


@pytest.fixture
def state(trace_of: Make) -> State:
    return opened(trace_of(mixed(1)), size=Size(80, 24))


def where(state: State) -> Place:
    (place,) = [p for p in places(state.side, state.view) if p.where]
    return place


def test_the_deepest_that_covers_enough(state: State) -> None:
    """A step of 1 ms: Net_0 from 100 to 800 us, and its forward in it, in a loop in
    main."""
    runs = draw_program_location_line(state.side, state.view, where(state), 20, UNICODE)
    assert [text for text, _ in runs] == ["  ", "▏Net_0        ", "▏   "]


def test_module_line_is_filled_with_letters_without_colors(state: State) -> None:
    runs = draw_program_location_line(state.side, state.view, where(state), 20, ASCII)
    assert "".join(text for text, _ in runs) == "yy|Net_0 yyyyyyy|yyy"


def test_a_click_on_the_line_above_the_lanes_selects_the_module_there(
    state: State,
) -> None:
    row = find_row_at(state.side, state.view, where(state), 20, 10)
    assert state.side.trace.name_of(row) == "nn.Module: Net_0"


def test_module_line_marks_the_selection(state: State) -> None:
    chosen = after(state, *do("down", "down"))
    assert state.side.trace.name_of(chosen.view.selected) == "nn.Module: Net_0"
    runs = draw_program_location_line(
        chosen.side, chosen.view, where(chosen), 20, UNICODE
    )
    assert [text for text, token in runs if token == "selection"] == ["▸Net_0        "]
    assert len(places(chosen.side, chosen.view)) == len(places(state.side, state.view))


def test_the_line_below_it_is_the_next(state: State) -> None:
    below = after(state, *do("down", "down", "down"))
    assert state.side.trace.name_of(below.view.selected) == "aten::op"


def test_folding_goes_through_the_frames(state: State) -> None:
    chosen = after(state, *do("down", "down"))
    lanes = {p.lane for p in places(state.side, state.view) if p.where}

    def lines(now: State) -> int:
        return sum(
            p.lane in lanes and p.line is not None for p in places(now.side, now.view)
        )

    folds = [chosen]
    for _ in range(3):
        folds.append(after(folds[-1], *do("fold")))
    assert [lines(now) for now in folds] == [1, 4, 5, 1]  # two frames span the window
