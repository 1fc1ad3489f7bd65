"""Keys that are pressed while the list of a page is computed."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.tui.driving import screen, settled
from tests.tui.explainable import training
from textual.pilot import Pilot

from fusetui.trace import Trace
from fusetui.tui import loading, performing
from fusetui.tui.app import AppOptions, FusetuiApp
from fusetui.tui.background_results import compute_pieces
from fusetui.tui.state.state import Compare

PAGE_OF_KEY = {"4": "diff", "5": "why", "6": "modules"}


class Waiting:
    """What is computed waits until it may come."""

    def __init__(self) -> None:
        self.may_come = threading.Event()

    def compare(self, *words: Any) -> None:
        self.may_come.wait(60)
        loading.compare(*words)

    def pieces(self, *words: Any, **more: Any) -> Iterator[Any]:
        self.may_come.wait(60)
        yield from compute_pieces(*words, **more)


@asynccontextmanager
async def opened(
    trace: Trace, monkeypatch: pytest.MonkeyPatch, page: str
) -> AsyncIterator[tuple[FusetuiApp, Pilot[int], Waiting]]:
    """The app on a page whose list has not come yet."""
    waiting = Waiting()
    work: dict[Any, Any] = performing.WORK
    monkeypatch.setitem(work, Compare, waiting.compare)
    monkeypatch.setattr("fusetui.tui.background_results.compute_pieces", waiting.pieces)
    path = trace.report.path
    app = FusetuiApp(AppOptions((path, path)))
    async with app.run_test(size=(100, 30)) as pilot:
        while not app.state.sides or app.state.comparison is None:
            await pilot.pause(0.01)
        await pilot.press(page)
        assert app.state.page == PAGE_OF_KEY[page]
        yield app, pilot, waiting
        waiting.may_come.set()
        await settled(app, pilot)


@pytest.mark.parametrize("page", ["4", "5", "6"])
async def test_keys_wait_for_the_list_and_then_act(
    mlp: Trace,
    trace_of: Callable[..., Trace],
    monkeypatch: pytest.MonkeyPatch,
    page: str,
) -> None:
    trace = trace_of(training()) if page == "6" else mlp  # which has no modules
    async with opened(trace, monkeypatch, page) as (app, pilot, waiting):
        await pilot.press("j")
        assert "the list is being computed; then: j" in screen(app)
        await pilot.press("j", "k")
        assert "then: j j k" in screen(app)
        waiting.may_come.set()
        await settled(app, pilot)
        await settled(app, pilot)
        assert app.state.list_of(PAGE_OF_KEY[page]).cursor == 1
        assert "being computed" not in screen(app)


async def test_enter_waits_too(mlp: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(mlp, monkeypatch, "4") as (app, pilot, waiting):
        await pilot.press("enter")
        assert app.state.page == "diff"
        waiting.may_come.set()
        await settled(app, pilot)
        await settled(app, pilot)
        assert app.state.page == "timeline"
        assert app.state.session.views[0].selected >= 0


async def test_a_key_without_an_action_does_not_drop_those_that_wait(
    mlp: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(mlp, monkeypatch, "4") as (app, pilot, waiting):
        await pilot.press("j", "f12")
        waiting.may_come.set()
        await settled(app, pilot)
        await settled(app, pilot)
        assert app.state.list_of("diff").cursor == 1


@pytest.mark.parametrize("other", ["3", "question_mark", "slash"])
async def test_another_key_gives_up_those_that_wait(
    mlp: Trace, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """It acts at once, and what was meant for the list acts nowhere else."""
    async with opened(mlp, monkeypatch, "4") as (app, pilot, waiting):
        await pilot.press("j", "enter", other)
        waiting.may_come.set()
        await settled(app, pilot)
        await settled(app, pilot)
        assert app.state.page in ("kernels", "diff")
        assert app.state.list_of("kernels").cursor == 0
        assert app.state.list_of("diff").cursor == 0


async def test_keys_that_are_not_of_the_list_act_at_once(
    mlp: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(mlp, monkeypatch, "4") as (app, pilot, _):
        before = app.state.session.views[0]
        await pilot.press("w")
        assert app.state.session.views[0].span < before.span
