"""A click selects what is drawn beneath it; the wheel scrolls what it is over."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.snapshots import trained
from tests.tui.conftest import mlp_events
from tests.tui.driving import opened as app_opened
from tests.tui.driving import selected
from tests.tui.explainable import slice_, training
from tests.tui.prepared import (
    after,
    do,
    drawn,
    dumps_of_two_groups,
    explained,
    opened,
    remembered,
)
from textual.events import MouseMove

from fusetui.trace import Trace
from fusetui.tui.drawing.canvas import Click, Drag, Turn
from fusetui.tui.layout.frame import divide_timeline
from fusetui.tui.layout.lanes import Arrangement
from fusetui.tui.pages.page import Page
from fusetui.tui.registry import PAGES
from fusetui.tui.screen_layout import moused
from fusetui.tui.state.offers import RankedJob
from fusetui.tui.state.state import Size

STREAM = 10  # the line of the only stream, at 100x30
LABELS = 18  # cells left of the time axis


async def test_a_click_on_a_kernel_selects_it(path: str) -> None:
    async with app_opened([path]) as (app, pilot):
        await pilot.click(offset=(LABELS + 8, STREAM))
        await pilot.pause()
        assert "gemm" in selected(app)


def test_a_click_on_the_minimap_goes_there(mlp: Trace) -> None:
    state = after(opened(mlp), *do("zoom-in", "zoom-in", "start"))
    there = after(state, partial(moused, y=2, done=Click(95)))
    assert there.view.begin > state.view.begin
    assert there.view.span == state.view.span


def test_a_click_on_the_other_side_makes_it_active(mlp: Trace) -> None:
    state = after(opened(mlp, mlp), *do("timeline"))
    assert after(state, partial(moused, y=17, done=Click(50))).active == 1


def test_click_on_the_legend_does_not_show_hidden_lanes(
    trace_of: Callable[..., Trace],
) -> None:
    """The line of what is hidden may be just below the last lane on the screen, where the
    legend is."""
    streams = [
        slice_(f"k{stream}_{run}", "kernel", 10 * run, 5, 0, 7 + stream)
        for stream in range(30)
        for run in range(3)
    ]
    state = opened(trace_of([*streams, *mlp_events()]))
    arranged = Arrangement(hidden=frozenset({0}))
    session = state.session.moved(0, replace(state.view, arranged=arranged))
    bottom = after(
        replace(state, session=session), partial(moused, y=10, done=Turn(3, 500))
    )
    one_line_up = after(bottom, partial(moused, y=10, done=Turn(3, -1)))
    lines = drawn(one_line_up).split("\n")
    legend = next(y for y, line in enumerate(lines) if line.startswith("GPU time"))
    clicked = after(one_line_up, partial(moused, y=legend, done=Click(60)))
    assert clicked.view.arranged.hidden == {0}


def test_click_on_a_row_moves_the_cursor(mlp: Trace) -> None:
    state = after(opened(mlp), *do("kernels"), partial(moused, y=6, done=Click(5)))
    assert state.list_of("kernels").cursor == 2


def test_the_wheel_scrolls_the_lanes_and_leaves_the_selection(mlp: Trace) -> None:
    low = after(opened(mlp, size=Size(100, 14)), *do("unfold-all", "down"))
    state = after(low, partial(moused, y=4, done=Turn(3, 3)))
    assert state.tops[0] > low.tops[0]
    assert state.view.selected == low.view.selected
    assert after(state, *do("down")).tops[0] < state.tops[0]


def test_a_click_closes_the_open_prompt(mlp: Trace) -> None:
    state = after(opened(mlp), *do("search"), partial(moused, y=9, done=Click(50)))
    assert state.prompt is None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_click_on_the_bar_brings_the_page(
    mlp: Trace, page: Page, tmp_path: Path
) -> None:
    job = RankedJob(("rank0.json", "rank1.json"))
    state = replace(opened(mlp, mlp, size=Size(120, 24)), job=job)
    state = replace(state, hang=dumps_of_two_groups(tmp_path))
    state = remembered(state, trained(tmp_path))
    at = drawn(state).split("\n")[0].index(f"{page.key} {page.title}")
    assert after(state, partial(moused, y=0, done=Click(at))).page == page.name


def test_a_page_that_needs_more_says_so(mlp: Trace) -> None:
    state = opened(mlp)
    at = drawn(state).index("4 Diff")
    assert "needs two" in after(state, partial(moused, y=0, done=Click(at))).hint


def test_the_wheel_zooms_about_the_time_beneath_it(mlp: Trace) -> None:
    state = opened(mlp)
    x = LABELS + 20
    near = after(state, partial(moused, y=STREAM, done=Turn(x, -3)))
    division = divide_timeline(100, 20)
    assert near.view.span < state.view.span
    assert division.time(near.view, x) == pytest.approx(
        division.time(state.view, x), rel=1e-3
    )
    assert (
        after(near, partial(moused, y=STREAM, done=Turn(x, 3))).view.span
        > near.view.span
    )


def test_shift_and_the_wheel_move_the_window(mlp: Trace) -> None:
    state = after(opened(mlp), *do("zoom-in"))
    there = after(state, partial(moused, y=STREAM, done=Turn(50, 3, shifted=True)))
    assert there.view.begin > state.view.begin
    assert there.view.span == state.view.span


async def test_drag_over_lanes_selects_a_range(path: str) -> None:
    async with app_opened([path]) as (app, pilot):
        await pilot.mouse_down(offset=(LABELS + 10, STREAM))
        await pilot.hover(offset=(LABELS + 30, STREAM))
        app.screen._forward_event(moved(LABELS + 30, STREAM))
        await pilot.mouse_up(offset=(LABELS + 30, STREAM))
        await pilot.pause()
        found = app.state.session.time_range
        assert found is not None
        assert found.ended
        assert app.state.view.selected < 0


def moved(x: int, y: int) -> MouseMove:
    """The mouse moved with its left button down."""
    return MouseMove(None, x, y, 1, 0, 1, False, False, False, x, y)


def test_a_drag_backwards_is_the_same_range(mlp: Trace) -> None:
    there = after(opened(mlp), partial(moused, y=STREAM, done=Drag(30, 60, ended=True)))
    back = after(opened(mlp), partial(moused, y=STREAM, done=Drag(60, 30, ended=True)))
    assert there.session.time_range == back.session.time_range is not None


@pytest.mark.parametrize(
    ("hint", "at", "changed"),
    [("w/s zoom", 0, "w"), ("w/s zoom", 2, "s"), ("? help", 0, "?")],
)
def test_a_click_on_a_hint_does_what_its_key_does(
    mlp: Trace, hint: str, at: int, changed: str
) -> None:
    state = after(opened(mlp), *do("zoom-in"))
    x = drawn(state).split("\n")[-1].index(hint) + at
    there = after(state, partial(moused, y=state.size.height - 1, done=Click(x)))
    if changed == "?":
        assert there.overlay is not None
    else:
        assert (there.view.span < state.view.span) == (changed == "w")


def test_the_keys_after_a_sentence_can_be_clicked(
    trace_of: Callable[..., Trace],
) -> None:
    state = after(explained(opened(trace_of(training()))), *do("next-gap"))
    x = drawn(state).split("\n")[-1].index("e the next longest")
    second = after(state, partial(moused, y=state.size.height - 1, done=Click(x)))
    assert second.hint.startswith("gap 2 of")
    beside = after(state, partial(moused, y=state.size.height - 1, done=Click(2)))
    assert beside.hint == state.hint


def test_a_hint_that_is_not_shown_is_not_clicked(mlp: Trace) -> None:
    state = opened(mlp, size=Size(60, 18))
    line = drawn(state).split("\n")[-1]
    end = len(line.rstrip())
    assert end < 58
    for x in range(end + 1, 60):
        assert after(state, partial(moused, y=17, done=Click(x))) is state
