"""Keys that are pressed while the first trace is read."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.tui.driving import screen, selected, settled
from textual.pilot import Pilot
from textual.worker import WorkerCancelled

from fusetui.trace import Trace, open_trace
from fusetui.tui.app import AppOptions, FusetuiApp

Starting = Callable[..., Any]


@pytest.fixture
def starting(mlp: Trace, monkeypatch: pytest.MonkeyPatch) -> Starting:
    """The app, whose trace is read only when the function that comes with it is
    called."""
    may_read = threading.Event()

    def slowly(*words: Any, **more: Any) -> Trace:
        may_read.wait(60)
        return open_trace(*words, **more)

    monkeypatch.setattr("fusetui.tui.loading.open_trace", slowly)

    @asynccontextmanager
    async def run(
        typed: str = "",
    ) -> AsyncIterator[tuple[FusetuiApp, Pilot[int], Starting]]:
        app = FusetuiApp(AppOptions((mlp.report.path,), typed=typed))
        async with app.run_test(size=(100, 30)) as pilot:

            async def read() -> None:
                may_read.set()
                await settled(app, pilot)
                await settled(app, pilot)

            yield app, pilot, read
            may_read.set()

    return run


async def test_a_key_waits_for_the_trace(starting: Starting) -> None:
    async with starting() as (app, pilot, read):
        await pilot.press("3")
        assert not app.state.sides
        await read()
        assert app.state.page == "kernels"


async def test_a_text_waits_with_the_key_that_asks_for_it(starting: Starting) -> None:
    """Also letters that do something themselves; Enter is Ctrl+j as long as the
    terminal is not the app's."""
    async with starting() as (app, pilot, read):
        await pilot.press(*"/gelu", "ctrl+j")
        await read()
        assert app.state.session.hits is not None
        assert app.state.session.hits.what == "gelu"
        assert "gelu" in selected(app)


async def test_keys_typed_before_the_start_are_obeyed(starting: Starting) -> None:
    async with starting("3j") as (app, _, read):
        await read()
        assert (app.state.page, app.state.list_of("kernels").cursor) == ("kernels", 1)


async def test_keys_that_need_no_trace_work_while_it_is_read(
    starting: Starting,
) -> None:
    async with starting() as (app, pilot, _):
        await pilot.press("w", "question_mark")
        assert "help   Esc closes" in screen(app)
        await pilot.press("escape", "q")
    assert app.return_value == 0


async def test_of_a_trace_that_cannot_be_read_no_key_is_left(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    app = FusetuiApp(AppOptions((str(tmp_path / "a.json"),), typed="3"))
    async with app.run_test(size=(100, 30)) as pilot:
        with suppress(WorkerCancelled):  # the app ends
            await settled(app, pilot)
        assert app.state.page == "timeline"
