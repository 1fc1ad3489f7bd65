"""Programs that run, in the app: the list of them, and why one was not recorded."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace
from tests.places import ROOT
from tests.tui.driving import SMALL, screen, settled
from tests.tui.prepared import after, opened
from textual.pilot import Pilot
from textual.widgets import Input

from fusetui.attach.processes import Process, process
from fusetui.trace import Trace
from fusetui.trace.model.report import never
from fusetui.tui import saving
from fusetui.tui.app import AppOptions, FusetuiApp
from fusetui.tui.pages import overlays
from fusetui.tui.state import reading
from fusetui.tui.state.offers import make_offers
from fusetui.tui.state.session import ViewSession
from fusetui.tui.state.state import Chooser, Record

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the door is Linux's")
EAGER = str(ROOT / "sample_traces" / "mlp-eager.json.gz")
COMPILED = str(ROOT / "sample_traces" / "mlp-compiled.json.gz")


def test_programs_are_listed_open_doors_first(
    mlp: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    this = process(os.getpid())
    assert this is not None
    found = [
        replace(this, folder=None, pid=1),
        replace(this, folder="", pid=2, rank="3"),
    ]
    monkeypatch.setattr(saving, "with_torch", lambda: found)
    posted: list[Any] = []
    saving.record(Record(), posted.append, never)
    overlay = after(opened(mlp), posted[0]).overlay
    assert isinstance(overlay, Chooser)
    assert [one.pid for one in overlay.programs] == [2, 1]
    assert overlay.summaries[0].startswith("rank 3   door open")
    assert overlay.summaries[1].startswith("door off: started without")
    found.clear()
    saving.record(Record(), posted.append, never)
    assert "fusetui run" in after(opened(mlp), posted[1]).hint


def test_why_a_program_was_not_recorded(mlp: Trace) -> None:
    posted: list[Any] = []
    saving.record(Record(os.getpid()), posted.append, never)
    hint = after(opened(mlp), posted[0]).hint
    assert "does not accept on-demand profiling. Start it with fusetui run" in hint


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[Process]:
    """Two programs that run, as the app finds them."""
    this = process(os.getpid())
    assert this is not None
    found = [replace(this, folder="", pid=1), replace(this, folder="", pid=2)]
    monkeypatch.setattr(saving, "with_torch", lambda: found)
    return found


def choosing() -> FusetuiApp:
    """The app that begins with a list of two traces."""
    return FusetuiApp(AppOptions((EAGER, COMPILED), opened=0))


async def commanded(app: FusetuiApp, pilot: Pilot[int], line: str) -> None:
    await pilot.press("colon", *line, "enter")
    await settled(app, pilot)


async def test_a_command_on_the_first_list_leaves_the_list_there() -> None:
    app = choosing()
    async with app.run_test(size=SMALL) as pilot:
        await settled(app, pilot)
        assert ": run a command" in screen(app)
        for verb in ("step", "save"):
            await commanded(app, pilot, verb)
            assert f"{verb} needs a trace" in screen(app)
            assert "mlp-compiled" in screen(app)
        await pilot.press("colon", *"rec", "escape")
        assert app.state.prompt is None
        await pilot.press("down")
        assert ": run a command" in screen(app)  # the keys again
        assert app.state.overlay is not None


async def test_a_path_typed_on_the_first_list_is_opened() -> None:
    app = choosing()
    async with app.run_test(size=SMALL) as pilot:
        await settled(app, pilot)
        await pilot.press("colon")
        app.screen.query_one(Input).value = f"open {EAGER}"
        await pilot.press("enter")
        await settled(app, pilot)
        assert app.state.overlay is None
        assert len(app.state.sides) == 1


async def test_programs_are_listed_over_the_first_list(programs: list[Process]) -> None:
    app = choosing()
    async with app.run_test(size=SMALL) as pilot:
        await settled(app, pilot)
        await commanded(app, pilot, "record")
        assert "door open" in screen(app)
        assert "as B" not in screen(app)  # there is no A yet
        await pilot.press("escape")
        await settled(app, pilot)
        assert "mlp-compiled" in screen(app)
        assert app.return_value is None
        await commanded(app, pilot, "record")
        programs.clear()
        await commanded(app, pilot, "record")
        assert "No program of yours has loaded torch" in screen(app)
        await pilot.press("escape", "escape")
    assert app.return_value == 0


def test_a_summary_that_comes_late_leaves_the_list_of_programs(
    mlp: Trace, programs: list[Process]
) -> None:
    posted: list[Any] = []
    saving.record(Record(), posted.append, never)
    offers = make_offers(("a.json", "b.json"))
    listed = after(replace(opened(mlp), offers=offers), reading.choose)
    for state in (listed, replace(listed, session=ViewSession())):
        over = after(
            state, posted[0], partial(reading.accept_summary, index=1, text="a summary")
        )
        assert isinstance(over.overlay, Chooser)
        assert [one.pid for one in over.overlay.programs] == [1, 2]
        assert over.overlay.summaries[1].startswith("door open")
    first = after(over, overlays.close).overlay
    assert isinstance(first, Chooser)
    assert first.summaries[1] == "a summary"
