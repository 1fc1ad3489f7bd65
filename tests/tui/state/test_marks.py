"""Marks: a letter for a window and a selection."""

from __future__ import annotations

from msgspec.structs import replace
from tests.finding import find
from tests.tui.driving import opened, screen, selected, settled

from fusetui.trace import Trace
from fusetui.tui.layout.moves import zoom_to_selection
from fusetui.tui.layout.view import Side, View, make_sides
from fusetui.tui.state.session import start

LINES = 20  # for the lanes of each side


def test_a_mark_holds_when_the_trace_counts_from_elsewhere(
    mlp: Trace, side: Side
) -> None:
    session = (
        start((side,), LINES)
        .selected(0, int(find(mlp, "gelu")[0]))
        .with_bookmark("a", 0)
    )
    shown = session.views[0]
    later = start((Side(mlp, side.lanes, side.origin + 500, ""),), LINES)
    found = replace(later, bookmarks=session.bookmarks).at_bookmark("a").views[0]
    assert found.begin == shown.begin - 500
    assert (found.span, found.selected) == (shown.span, shown.selected)


def test_going_to_a_mark_can_be_undone(side: Side, view: View) -> None:
    first = start((side,), LINES).with_bookmark("a", 0)
    moved = first.moved(0, zoom_to_selection(side, view))
    there = moved.at_bookmark("a")
    assert there.views == first.views
    assert there.undo().views == moved.views


def test_marks_stay_with_their_trace_when_sides_are_swapped(mlp: Trace) -> None:
    session = start(make_sides([mlp, mlp], ["a", "b"]), LINES).with_bookmark("b", 1)
    assert session.swapped().bookmarks["b"].side == 0


async def test_mark_key_goes_back_to_window_and_selection(path: str) -> None:
    async with opened([path]) as (app, pilot):
        await pilot.press("slash", *"gemm", "enter", "z", "m", "a")
        assert "mark a is set" in screen(app)
        marked = app.state.view
        await pilot.press("0", "slash", *"mul", "enter", "3", "1", "apostrophe")
        assert "go to the mark (Esc cancels): a" in screen(app)
        await pilot.press("a")
        assert app.state.view == marked
        await pilot.press("u")
        assert "mul" in selected(app)


async def test_while_a_letter_is_awaited_no_key_moves_anything(path: str) -> None:
    async with opened([path]) as (app, pilot):
        before = app.state.view
        await pilot.press("m", "w", "m", "plus", "m", "escape", "m", "left")
        assert app.state.view == before
        assert "cancelled" in screen(app)


async def test_a_mark_that_is_not_there(path: str) -> None:
    async with opened([path]) as (app, pilot):
        await pilot.press("apostrophe")
        assert "no mark is set" in screen(app)
        await pilot.press("m", "a", "apostrophe", "b")
        assert "there is no mark b" in screen(app)


async def test_a_mark_of_one_side_is_found_from_the_other(path: str) -> None:
    async with opened([path, path]) as (app, pilot):
        await pilot.press(
            "1", "tab", "slash", *"gelu", "enter", "m", "b", "escape", "shift+tab"
        )
        await pilot.press("apostrophe", "b")
        await settled(app, pilot)
        first, second = app.state.session.views
        assert app.state.active == 1
        assert first.selected < 0 <= second.selected
