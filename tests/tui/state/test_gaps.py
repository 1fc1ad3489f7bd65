"""Gaps of a GPU: going to them, and what is said about the one that is selected."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from tests.tui.explainable import training
from tests.tui.prepared import after, at, do, drawn, explained, opened

from fusetui.analysis.why.model import IDLE
from fusetui.trace import Trace
from fusetui.tui import screen_layout
from fusetui.tui.drawing.canvas import Click
from fusetui.tui.drawing.range_lines import (
    describe_gap_with_legend,
    format_idle_legend,
    list_idle_letters,
)
from fusetui.tui.drawing.schemes import UNICODE
from fusetui.tui.drawing.timeline import find_visible_idle_reasons
from fusetui.tui.layout.frame import divide_timeline
from fusetui.tui.layout.view import find_gap_times, find_selected_times
from fusetui.tui.pages.overlays import OVERLAYS
from fusetui.tui.pages.timeline import TimelinePage
from fusetui.tui.state.state import Size, State

Make = Callable[..., Trace]


@pytest.fixture
def known(trace_of: Make) -> State:
    return after(opened(trace_of(training())), explained)


def length(state: State) -> int:
    assert state.view.gap is not None
    begin, end = find_gap_times(state.side, state.view.gap) or (0, 0)
    return end - begin


def test_next_gap_goes_to_shorter_gaps_and_back(known: State) -> None:
    lengths = []
    state = known
    for _ in range(3):
        state = after(state, *do("next-gap"))
        lengths.append(length(state))
    assert lengths == sorted(lengths, reverse=True)
    assert length(after(state, *do("previous-gap"))) == lengths[1]


def test_a_gap_is_in_sight_and_undo_goes_back(known: State) -> None:
    state = after(known, *do("zoom-in", "zoom-in", "next-gap"))
    begin, end = find_selected_times(state.side, state.view) or (0, 0)
    assert state.view.begin <= begin < end <= state.view.end
    assert after(state, *do("undo")).view.gap is None


@pytest.mark.parametrize("size", [Size(60, 18), Size(80, 24), Size(120, 35)], ids=str)
def test_the_letters_are_explained_also_beside_a_gap(
    trace_of: Make, size: Size
) -> None:
    state = after(opened(trace_of(training()), size=size), explained, *do("next-gap"))
    assert "idle reasons:   p Python" in drawn(state)


def legend(state: State) -> str:
    """The line below the timeline that explains the letters of idle reasons."""
    (line,) = [line for line in drawn(state).splitlines() if "idle reasons:" in line]
    return line.strip()


def windowed(state: State, begin: int, end: int) -> State:
    """The timeline shows this window."""
    return replace(state, session=state.session.windowed(0, begin, end))


def test_the_letters_in_the_window_are_explained(known: State) -> None:
    """Also below the summary, while nothing is selected."""
    whole = replace(known, size=Size(200, 50))
    assert "o CPU op" in legend(whole)
    assert "c launch call" in legend(whole)
    gap = after(whole, *do("next-gap")).view.gap
    assert gap
    times = find_gap_times(known.side, gap)
    assert times
    in_gap = windowed(whole, times[0] + 400_000, times[0] + 500_000)
    assert legend(in_gap) == "idle reasons:   p Python"
    selected = after(whole, *do("next-gap"))
    assert "o CPU op" in legend(selected)
    longest_alone = windowed(selected, times[0] + 400_000, times[0] + 500_000)
    assert legend(longest_alone) == "idle reasons:   p Python"


def test_letters_in_the_lane_are_explained_before_the_colors_of_bars(
    known: State,
) -> None:
    whole = replace(known, size=Size(80, 24))
    cells = divide_timeline(80, 24).width
    visible = find_visible_idle_reasons(whole.side, whole.view, cells, UNICODE)
    listed = list_idle_letters(whole.side, whole.view, 80, UNICODE)
    shorts = [text[2:] for text in listed]
    in_cells = {IDLE[name].short for name in visible.in_cells}
    in_bars = {IDLE[name].short for name in visible.in_bars} - in_cells
    assert in_cells
    assert in_bars
    assert {*shorts[: len(in_cells)]} == in_cells
    assert {*shorts[len(in_cells) :]} == in_bars


def test_a_window_without_idle_time_explains_all_letters(known: State) -> None:
    whole = replace(known, size=Size(200, 50))
    kernel = int(whole.side.trace.gpu_rows[0])
    begin = int(whole.side.trace.start[kernel]) - whole.side.origin
    busy = windowed(whole, begin + 10_000, begin + 20_000)
    assert "p Python" in legend(busy)
    assert "o CPU op" in legend(busy)


LETTERS_OF_REASONS = [f"{reason.letter} {reason.short}" for reason in IDLE.values()]


@pytest.mark.parametrize("width", range(30, 300, 7))
def test_a_legend_says_that_letters_are_left_out(width: int) -> None:
    line = format_idle_legend(LETTERS_OF_REASONS, width, UNICODE.ellipsis)
    left_out = [text for text in LETTERS_OF_REASONS if text not in line]
    assert len(line) <= width
    assert line.endswith("…") == bool(left_out)


def test_a_gap_that_is_cut_says_so(known: State) -> None:
    view = after(known, *do("next-gap")).view
    assert view.gap
    lines = [
        line.text
        for line in describe_gap_with_legend(known.side, view, view.gap, 80, 5, UNICODE)
    ]
    assert len(lines) == 5
    assert lines[3].endswith("…")
    assert lines[4].startswith(" idle reasons:")


def test_the_details_say_why(known: State) -> None:
    text = drawn(after(known, *do("next-gap")))
    assert "gap 1 of 5 by length" in text
    assert "not launched yet: Python ran" in text
    assert "the CPU was in zoom_shift zoom.py:7" in text
    over = after(known, *do("next-gap", "details"))
    assert OVERLAYS.rows(over).count > 3
    copied = TimelinePage().copied(after(known, *do("next-gap")))
    assert copied.startswith("idle for ")


def test_range_of_a_selected_gap_is_the_gap(known: State) -> None:
    state = after(known, *do("next-gap", "range", "range"))
    found = state.session.time_range
    assert found is not None
    assert found.end - found.begin == length(state)


def test_a_slice_takes_the_place_of_a_gap(known: State) -> None:
    state = after(known, *do("next-gap"), at("aten::mm"))
    assert state.view.gap is None
    assert after(known, *do("next-gap", "deselect")).view.gap is None
    assert after(known, *do("next-gap", "down")).view.selected >= 0


def test_a_click_on_the_line_selects_the_gap_there(known: State) -> None:
    lines = drawn(known).split("\n")
    y = next(n for n, line in enumerate(lines) if line.startswith("idle reason"))
    gutter = divide_timeline(known.size.width, known.size.height).gutter
    x = next(
        x for x in range(gutter + 40, len(lines[y])) if lines[y][x : x + 3] != "   "
    )
    there = after(known, lambda state: screen_layout.moused(state, y, Click(x + 1)))
    assert there.view.gap is not None
    begin, end = find_selected_times(there.side, there.view) or (0, 0)
    assert begin < known.view.span * (x + 2 - gutter) // (known.size.width - gutter)
    assert end > known.view.span * (x - gutter) // (known.size.width - gutter)


def test_before_it_is_known_a_sentence_says_so(trace_of: Make) -> None:
    state = after(opened(trace_of(training())), *do("next-gap"))
    assert "Computing GPU idle time" in state.hint


def test_next_gap_without_a_gpu_says_so(
    trace_of: Make, event: Callable[..., dict[str, object]]
) -> None:
    state = after(
        opened(trace_of([event("aten::mm", 0, 10)])), explained, *do("next-gap")
    )
    assert state.hint == "No GPU in this trace"
