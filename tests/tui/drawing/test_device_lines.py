"""The line of why a GPU was idle."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace
from tests.tui.explainable import training
from tests.tui.prepared import after, do, drawn, explained, opened

from fusetui.analysis.why.model import IDLE
from fusetui.trace import Trace
from fusetui.tui.drawing.schemes import DARK, UNICODE
from fusetui.tui.drawing.timeline import draw_idle_line
from fusetui.tui.layout.view import View

Make = Callable[..., Trace]


def test_every_reason_has_a_letter_and_a_color_of_its_own() -> None:
    colors = {
        token: pair for token, pair in DARK.colors.items() if token.startswith("idle.")
    }
    assert {token.removeprefix("idle.") for token in colors} == set(IDLE)
    letters = {reason.letter for reason in IDLE.values()}
    assert len(letters) == len(set(colors.values())) == len(IDLE)


def line(trace: Trace, begin_us: int, end_us: int, width: int) -> str:
    side = after(opened(trace), explained).side
    (idle,) = side.insight.idle or ()
    view = View(1000 * begin_us, 1000 * end_us)
    return "".join(text for text, _ in draw_idle_line(side, view, idle, width, UNICODE))


def test_a_block_is_named_where_there_is_room(trace_of: Make) -> None:
    assert line(trace_of(training()), 0, 600, 60).startswith(" Python ")


def test_a_narrow_block_has_its_letter(trace_of: Make) -> None:
    assert line(trace_of(training()), 0, 600, 3) == "ppp"


def test_a_busy_stretch_is_blank_and_a_busy_cell_has_a_bar(trace_of: Make) -> None:
    trace = trace_of(training())
    assert line(trace, 670, 730, 10) == " " * 10  # a kernel runs from 660 to 740
    assert line(trace, 660, 750, 1) == "▁"  # 10 us of 90 are idle


def test_the_line_is_there_before_it_is_known(trace_of: Make) -> None:
    """So that no lane moves when it is."""
    before = opened(trace_of(training()))
    lines, later = (
        drawn(before).split("\n"),
        drawn(after(before, explained)).split("\n"),
    )
    at = next(n for n, text in enumerate(lines) if text.strip() == "idle reason")
    lanes = range(
        next(n for n, text in enumerate(lines) if "nothing selected" in text) - 1
    )
    assert [n for n in lanes if later[n] != lines[n]] == [at]


def test_a_selected_gap_is_drawn_as_selected(trace_of: Make) -> None:
    state = after(opened(trace_of(training())), explained, *do("next-gap"))
    (idle,) = state.side.insight.idle or ()
    parts = draw_idle_line(state.side, state.view, idle, 60, UNICODE)
    assert "selection" in [token for _, token in parts]
    other = draw_idle_line(state.side, replace(state.view, gap=None), idle, 60, UNICODE)
    assert "selection" not in [token for _, token in other]
