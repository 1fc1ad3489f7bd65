"""One key shows everything as when it was opened, and undo takes that back."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from tests.tui.driving import opened as running
from tests.tui.driving import screen
from tests.tui.prepared import after, at, do, drawn, opened
from tests.tui.test_registry import with_path

from fusetui.trace import Trace
from fusetui.tui.state import moving
from fusetui.tui.state.action import Run
from fusetui.tui.state.state import Size, State
from fusetui.tui.view_store import KeptView, collect_view

LINEAR = at("aten::linear")
CHANGES: dict[str, list[Run]] = {
    "zoom": [LINEAR, *do("zoom-to")],
    "folds": [LINEAR, *do("fold")],
    "unfolded": do("unfold-all"),
    "hidden": [LINEAR, *do("hide")],
    "pinned": [LINEAR, *do("pin")],
    "sorted": do("sort"),
    "selection": [LINEAR],
    "range": [LINEAR, *do("range", "next", "range")],
    "scrolled": do("page-down"),
    "path": [with_path],
    "mark": [partial(moving.set_mark, letter="a", note="slow")],
}


def looks(state: State) -> str:
    """The screen without its last line."""
    return drawn(state).rpartition("\n")[0]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("sides", [1, 2])
def test_every_change_is_reset(mlp: Trace, change: str, sides: int) -> None:
    first = after(opened(*[mlp] * sides, size=Size(80, 24)), *do("timeline"))
    changed = after(first, *CHANGES[change])
    now = after(changed, *do("reset"))
    assert now.session.views == first.session.views
    assert now.tops == first.tops
    assert not now.session.bookmarks
    assert now.session.time_range is None
    assert not now.on_path
    assert looks(now) == looks(first)


def test_undo_brings_back_the_views_and_the_marks(mlp: Trace) -> None:
    state = after(
        opened(mlp), LINEAR, *do("zoom-to"), *CHANGES["mark"], *do("zoom-out")
    )
    now = after(state, *do("reset"))
    assert "without 1 mark" in now.hint
    back = after(now, *do("undo"))
    assert back.session.views == state.session.views
    assert back.session.bookmarks == state.session.bookmarks


def test_marks_come_back_although_one_moved_and_reset_again(mlp: Trace) -> None:
    state = after(opened(mlp), *CHANGES["mark"], *do("reset", "zoom-in", "reset"))
    assert not state.session.bookmarks
    assert after(state, *do("undo", "undo", "undo")).session.bookmarks


def test_a_mark_set_since_a_reset_is_not_replaced_by_undo(mlp: Trace) -> None:
    state = after(opened(mlp), *CHANGES["mark"], *do("reset"))
    state = after(state, partial(moving.set_mark, letter="a", note="new"))
    assert after(state, *do("undo")).session.bookmarks["a"].note == "new"


def test_nothing_of_a_trace_is_kept_after_a_reset(mlp: Trace) -> None:
    state = after(opened(mlp), LINEAR, *do("zoom-to", "hide"), *CHANGES["mark"])
    assert collect_view(state) != KeptView()
    assert collect_view(after(state, *do("reset"))) == KeptView()


def test_where_nothing_changed_it_says_so(mlp: Trace) -> None:
    state = opened(mlp)
    now = after(state, *do("reset"))
    assert "as it was when opened" in now.hint
    assert now.session is state.session


async def test_the_key_works_on_another_screen_than_at_first(
    path: str, tmp_path: Path
) -> None:
    async with running([path], (80, 24)) as (app, pilot):
        await pilot.resize_terminal(100, 30)
        await pilot.pause()
        before = screen(app)
        await pilot.press("w", "d", "j", "space", "I", "0")
        await pilot.pause()
        assert screen(app).splitlines()[:-1] == before.splitlines()[:-1]
