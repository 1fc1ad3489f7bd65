"""`y` on every page."""

from __future__ import annotations

import json

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
    ("keys", "row"),
    [
        (
            ["3", "j"],
            {"name": GELU, "total_ns": "220000", "count": "2", "max_ns": "110000"},
        ),
        (["2"], {"name": "thread 1", "level": "0"}),
        (["2", "j"], {"name": "aten::linear", "level": "1", "count": "4"}),
        (["4"], {"names_a": json.dumps([GEMM]), "change_ns": "0"}),
    ],
    ids=["kernels", "a thread", "op tree", "diff"],
)
async def test_y_copies_a_row_of_every_table_as_tsv(
    path: str, keys: list[str], row: dict[str, str]
) -> None:
    """As TSV: the names of the columns, then the row with all of its name and exact
    figures."""
    async with opened([path, path]) as (app, pilot):
        await pilot.press("1", *keys, "y")
        copied = [line.split("\t") for line in app.clipboard.split("\n")]
        assert len(copied) == 2
        assert row.items() <= dict(zip(*copied, strict=True)).items()
        assert "copied: " in screen(app)


async def test_the_side_that_had_the_focus_last_is_copied(path: str) -> None:
    async with opened([path, path]) as (app, pilot):
        await pilot.press("1", "tab", "slash", *"Gelu", "enter", "y")
        first, second = app.state.session.views
        assert app.clipboard.startswith(GELU)
        assert first.selected < 0 <= second.selected
