"""Replayed kernels with the ops of their capture, in the app."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.analysis.servers import Server, save
from tests.tui.driving import LARGE, opened, screen, selected, settled

from fusetui.trace.model.joined import Joined
from fusetui.trace.model.report import never
from fusetui.tui import loading, registry
from fusetui.tui.app import AppOptions, FusetuiApp
from fusetui.tui.layout.view import Side

SERVER = Server()


def pair(tmp_path: Path) -> str:
    save(tmp_path / "capture.json", SERVER.capture(4))
    return str(
        save(tmp_path / "replay.json", SERVER.step(4, 0, 1), SERVER.step(4, 500, 2))
    )


async def test_a_capture_beside_it_is_found_and_told(tmp_path: Path) -> None:
    async with opened([pair(tmp_path)], LARGE) as (app, _):
        text = screen(app)
    assert "kernels of graphs as captured" in text
    assert "In 2 of 2 graph replays, 26 events take their op, module and shapes" in text
    assert "captured on" not in text  # no lane of another trace


async def test_the_op_tree_has_the_captured_ops(tmp_path: Path) -> None:
    async with opened([pair(tmp_path)], LARGE) as (app, pilot):
        await pilot.press("2")
        assert "captured on thread 1" in screen(app)
        line = next(line for line in screen(app).splitlines() if "aten::mm" in line)
        assert line.split()[:3] == ["60.00", "59", "%"]


async def test_enter_on_a_captured_op_shows_a_kernel_that_replays_it(
    tmp_path: Path,
) -> None:
    async with opened([pair(tmp_path)], LARGE) as (app, pilot):
        await pilot.press("2")
        await pilot.press("j", "enter")
        await settled(app, pilot)
        assert selected(app) == SERVER.product


@pytest.mark.parametrize("keys", [("6", "j", "j", "enter"), ("8", "j", "j", "enter")])
async def test_enter_on_a_captured_module_or_frame(
    tmp_path: Path, keys: tuple[str, ...]
) -> None:
    """What was captured is not in the timeline: a kernel that replays it is."""
    async with opened([pair(tmp_path)], LARGE) as (app, pilot):
        await pilot.press(*keys)
        await settled(app, pilot)
        state = app.state
        row = state.view.selected
        assert row < 0 or row < state.side.trace.recorded()


async def test_details_of_a_captured_op_show_its_shapes(tmp_path: Path) -> None:
    async with opened([pair(tmp_path)], LARGE) as (app, pilot):
        await pilot.press("2", "j")
        app.do(registry.details)
        await settled(app, pilot)
        assert "[[4, 64], [64, 64]]" in screen(app)


def sides_of(answer: Any) -> tuple[Side, ...]:
    """Those that a thread has read, all or a part."""
    if isinstance(answer, loading.TracesLoaded):
        return answer.sides
    return tuple(getattr(answer, "keywords", {}).get("sides", ()))


def test_the_trace_is_shown_before_its_capture_is_read(tmp_path: Path) -> None:
    posted: list[Any] = []
    loading.load([pair(tmp_path)], posted.append, never)
    shown = [sides_of(one) for one in posted if sides_of(one)]
    assert [isinstance(sides[0].trace, Joined) for sides in shown] == [False, True]


def test_without_a_capture_it_is_shown_once(tmp_path: Path) -> None:
    posted: list[Any] = []
    loading.load(
        [str(save(tmp_path / "a.json", SERVER.step(4, 0, 1)))], posted.append, never
    )
    assert [type(one) for one in posted if sides_of(one)] == [loading.TracesLoaded]


async def test_a_named_capture_that_does_not_fit_is_told(tmp_path: Path) -> None:
    path = save(tmp_path / "replay.json", SERVER.step(4, 0, 1))
    other = save(tmp_path / "other.json", Server(layers=5).capture(4))
    app = FusetuiApp(AppOptions((str(path),), captured_by=(str(other),)))
    async with app.run_test(size=LARGE) as pilot:
        await settled(app, pilot)
        assert "1 graph replay cannot be joined" in screen(app)
