"""`y` on every page."""

from __future__ import annotations

import pytest
from tests.tui.conftest import GELU, GEMM
from tests.tui.driving import opened, screen


async def test_the_selected_slice_is_copied(path: str) -> None:
    async with opened([path]) as (app, pilot):
        await pilot.press("slash", *"gemm", "enter", "y")
        assert app.clipboard == f"{GEMM}   start 60000 ns   duration 180000 ns"
        assert f"copied: {GEMM}" in screen(app)


async def test_with_nothing_selected_the_clipboard_stays_as_it_is(path: str) -> None:
    async with opened([path]) as (app, pilot):
        app.copy_to_clipboard("mine")
        await pilot.press("y")
        assert app.clipboard == "mine"
        assert "nothing is selected, so nothing was copied" in screen(app)


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        (["3", "j"], GELU),
        (["2"], "thread 1"),
        (["2", "j"], "aten::linear"),
        (["4"], f"{GEMM}"),
    ],
    ids=["kernels", "a thread", "op tree", "diff"],
)
async def test_lists_copy_full_names(path: str, keys: list[str], names: str) -> None:
    async with opened([path, path]) as (app, pilot):
        await pilot.press("1", *keys, "y")
        assert app.clipboard == names


async def test_the_side_that_had_the_focus_last_is_copied(path: str) -> None:
    async with opened([path, path]) as (app, pilot):
        await pilot.press("1", "tab", "slash", *"Gelu", "enter", "y")
        first, second = app.state.session.views
        assert app.clipboard.startswith(GELU)
        assert first.selected < 0 <= second.selected
