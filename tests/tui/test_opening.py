"""While a trace is read: its first lanes, what Escape keeps, and what stays when more
arrives.

A gate stands for a large file: it shows a part, and the rest only when the test lets it
through.
"""

from __future__ import annotations

import asyncio
import json
from asyncio import timeout
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import pytest
from tests.tui.conftest import mlp_events
from tests.tui.driving import named
from textual.pilot import Pilot

from fusetui.trace import CannotReadError, Trace, open_trace
from fusetui.trace.model.errors import NothingReadError
from fusetui.trace.model.report import Prefix, Progress, Stop, never, silent
from fusetui.tui.app import AppOptions, FusetuiApp
from fusetui.tui.layout.view import times
from fusetui.tui.pages.tree import TREE
from fusetui.tui.state.state import Chooser

SIZE = (100, 30)
PATIENCE = 30  # seconds until a test that waits in vain fails
MB = 1_000_000
Matches = Callable[[str, str], None]


class Gate:
    """Takes the place of open_trace."""

    def __init__(self, part: Trace | None, whole: Trace) -> None:
        self._part = part
        self._whole = whole
        self.opens = Event()
        self.fails = ""  # what is wrong with the rest of the file
        self.past = ""  # the path of a trace that is not kept waiting
        self.waiting = Event()  # something is being read that is kept waiting

    def open_trace(
        self,
        path: str,
        progress: Progress = silent,
        *,
        stop: Stop = never,
        preview: Callable[[Trace], None] | None = None,
    ) -> Trace:
        if progress is silent:  # for the list to choose from
            return self._whole
        progress(340 * MB, 1000 * MB)
        if path == self.past:
            return self._whole
        if self._part and preview:
            preview(self._part)
        self.waiting.set()
        while not self.opens.wait(0.05):
            progress(350 * MB, 1000 * MB)
            if stop() and self._part is None:
                raise NothingReadError
            if stop() and self._part:
                return self._part
        if self.fails:
            raise CannotReadError(self.fails)
        return self._whole


def trace_of(tmp_path: Path, events: list[dict[str, Any]]) -> Trace:
    path = tmp_path / f"{len(events)}.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return open_trace(str(path))


@pytest.fixture
def whole(tmp_path: Path) -> Trace:
    return trace_of(tmp_path, mlp_events(4))


@pytest.fixture
def part(tmp_path: Path) -> Trace:
    """The first two of four steps."""
    trace = trace_of(tmp_path, mlp_events(2))
    report = msgspec.structs.replace(
        trace.report, complete=False, prefix=Prefix(340 * MB, 1000 * MB)
    )
    return msgspec.structs.replace(trace, report=report)


@pytest.fixture
def gate(part: Trace, whole: Trace, monkeypatch: pytest.MonkeyPatch) -> Gate:
    made = Gate(part, whole)
    monkeypatch.setattr("fusetui.tui.loading.open_trace", made.open_trace)
    return made


@pytest.fixture
def shut(whole: Trace, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """A gate that shows no part."""
    made = Gate(None, whole)
    monkeypatch.setattr("fusetui.tui.loading.open_trace", made.open_trace)
    return made


@asynccontextmanager
async def reading(
    *paths: str, opened: int = 2
) -> AsyncIterator[tuple[FusetuiApp, Pilot[int]]]:
    app = FusetuiApp(AppOptions(paths or ("big.json",), opened))
    async with app.run_test(size=SIZE) as pilot:
        yield app, pilot


async def lanes(app: FusetuiApp, pilot: Pilot[int]) -> None:
    """Until the first lanes are there."""
    async with timeout(PATIENCE):
        while not app.state.sides:
            await pilot.pause(0.03)
    await pilot.pause()


async def done(app: FusetuiApp, pilot: Pilot[int]) -> None:
    """Until nothing is read any more, and the head says so."""
    async with timeout(PATIENCE):
        while app.state.reading or screen(app).lstrip().startswith(
            ("reading", "stopping")
        ):
            await pilot.pause(0.03)
    await pilot.pause()


def screen(app: FusetuiApp) -> str:
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


async def test_first_lanes_are_shown_while_the_rest_is_read(
    gate: Gate, matches_screen: Matches
) -> None:
    async with reading() as (app, pilot):
        await lanes(app, pilot)
        shown = screen(app)
        assert "shown: what was read so far" in shown
        assert "Esc stop and keep what was read" in shown
        await pilot.press("escape")
        await done(app, pilot)
        matches_screen("part-100x30", screen(app))


@pytest.mark.parametrize("page", ["1", "2", "3"])
async def test_escape_while_reading_keeps_the_part_that_was_read(
    gate: Gate, part: Trace, page: str
) -> None:
    async with reading() as (app, pilot):
        await lanes(app, pilot)
        await pilot.press(page, "escape")
        await done(app, pilot)
        assert app.state.side.trace is part
        assert "only the first 340 MB of 1 GB were read" in screen(app)
        assert "GPU busy 9" not in screen(app)
        assert "Esc stop" not in screen(app)


async def test_view_stays_when_more_is_read(gate: Gate, whole: Trace) -> None:
    async with reading() as (app, pilot):
        await lanes(app, pilot)
        await pilot.press("slash", *"gelu", "enter", "w", "w", "space")
        side, view = app.state.side, app.state.view
        place = side.trace.order[view.selected]
        gate.opens.set()
        await done(app, pilot)
        after = app.state.view
        assert app.state.side.trace is whole
        assert whole.order[after.selected] == place
        assert times(app.state.side, after.selected) == times(side, view.selected)
        assert (after.begin, after.end, after.folds) == (
            view.begin,
            view.end,
            view.folds,
        )
        await pilot.press("u", "u", "u")
        assert app.state.view.span > view.span


async def test_a_window_over_everything_stays_one(gate: Gate, whole: Trace) -> None:
    async with reading() as (app, pilot):
        await lanes(app, pilot)
        gate.opens.set()
        await done(app, pilot)
        assert (app.state.view.begin, app.state.view.end) == (
            0,
            whole.end_ns - whole.begin_ns,
        )
        assert "shown: what" not in screen(app)


async def test_a_search_while_reading_finds_hits_that_were_read_later(
    gate: Gate,
) -> None:
    async with reading() as (app, pilot):
        await lanes(app, pilot)
        await pilot.press("slash", *"gelu", "enter")
        gate.opens.set()
        await done(app, pilot)
        await pilot.press("n")
        assert "2 of 8: gelu" in screen(app)


async def test_the_kernels_page_stays_on_its_kernel(gate: Gate) -> None:
    async with reading() as (app, pilot):
        await lanes(app, pilot)
        await pilot.press("3", "j")
        before = screen(app).splitlines()
        gate.opens.set()
        await done(app, pilot)
        line = next(line for line in screen(app).splitlines() if line.startswith(">"))
        assert "gelu" in line.lower()
        assert line not in before  # it counts the later ones too
        assert app.state.page == "kernels"


async def test_merged_ops_stay_open(gate: Gate) -> None:
    async with reading() as (app, pilot):
        await lanes(app, pilot)
        await pilot.press("2", "j", "space", "j")
        before = named(TREE, app.state)
        gate.opens.set()
        await done(app, pilot)
        assert named(TREE, app.state) == before == "aten::mm"


async def test_open_nodes_stay_open(gate: Gate) -> None:
    async with reading() as (app, pilot):
        await lanes(app, pilot)
        await pilot.press("2", "t", "t", "g", "j", "space")
        before = screen(app).splitlines()
        gate.opens.set()
        await done(app, pilot)
        after = screen(app).splitlines()
        assert app.state.page == "tree"
        assert [line.split()[-2:] for line in after[4:9]] == [
            line.split()[-2:]
            for line in before[4:9]  # whether it is open, and its name
        ]
        assert len([line for line in after if "aten::" in line]) > 9


async def test_a_search_may_be_typed_while_more_arrives(gate: Gate) -> None:
    async with reading() as (app, pilot):
        await lanes(app, pilot)
        await pilot.press("slash", *"ge")
        gate.opens.set()
        await done(app, pilot)
        await pilot.press(*"lu", "enter")
        assert "gelu" in app.state.side.trace.name_of(app.state.view.selected)


async def test_escape_before_anything_was_read_leaves(shut: Gate) -> None:
    async with reading() as (app, pilot):
        await pilot.press("escape")
        async with timeout(PATIENCE):
            while app.return_value is None:
                await pilot.pause(0.03)
    assert app.return_value == 0


async def test_escape_before_anything_was_read_leads_back_to_the_choice(
    shut: Gate,
) -> None:
    async with reading("a.json", "b.json", opened=0) as (app, pilot):
        await pilot.press("enter")
        await pilot.press("escape")
        await done(app, pilot)
        assert isinstance(app.state.overlay, Chooser)


async def test_a_file_that_fails_later_loses_nothing(gate: Gate, part: Trace) -> None:
    gate.fails = "the disk is full."
    async with reading() as (app, pilot):
        await lanes(app, pilot)
        gate.opens.set()
        await done(app, pilot)
        assert app.state.side.trace is part
        assert "only the first 340 MB of 1 GB were read" in screen(app)
        assert "the disk is full." in screen(app)


async def test_q_leaves_at_once(gate: Gate) -> None:
    async with reading() as (app, pilot):
        await lanes(app, pilot)
        await pilot.press("q")
    assert app.return_value == 0


async def test_stopped_opening_names_files_that_were_not_begun(
    gate: Gate, part: Trace
) -> None:
    async with reading("a.json", "b.json") as (app, pilot):
        await pilot.press("escape")
        await done(app, pilot)
        assert [side.trace for side in app.state.sides] == [part]
        assert "not read: b.json" in screen(app)


async def test_a_part_beside_a_whole_trace_is_not_compared(gate: Gate) -> None:
    gate.past = "a.json"
    async with reading("a.json", "b.json") as (app, pilot):
        await asyncio.to_thread(gate.waiting.wait, PATIENCE)
        await pilot.press("escape")
        await done(app, pilot)
        assert len(app.state.sides) == 2
        assert "only the first 340 MB of 1 GB" in screen(app).splitlines()[2]
        await pilot.press("4")
        assert "Diff needs two fully loaded traces: fusetui open A B" in screen(app)
        await pilot.press("x")
        assert "only the first 340 MB of 1 GB" in screen(app).splitlines()[1]
