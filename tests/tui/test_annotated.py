"""Replayed kernels with the modules that annotations name, in the app."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.analysis.serving.servers import Server, save
from tests.tui.driving import LARGE, opened, screen, selected, settled

from fusetui.tui import registry

SERVER = Server(hip=False)


@pytest.fixture
def annotated(tmp_path: Path) -> str:
    step = SERVER.step(4, 0, 1)
    for n, event in enumerate(step[2:], 1):
        event["args"] |= {"graph id": 5, "graph node id": n, "name": f"L.{min(n, 3)}"}
    return str(save(tmp_path / "replay.json", step))


async def test_it_is_told(annotated: str) -> None:
    async with opened([annotated], LARGE) as (app, _):
        text = screen(app)
    assert "modules of replayed kernels by annotations" in text
    assert "captured" not in text


async def test_modules_and_the_details_of_a_kernel(annotated: str) -> None:
    """Times that nobody recorded are not shown."""
    async with opened([annotated], LARGE) as (app, pilot):
        await pilot.press("6")
        line = next(line for line in screen(app).splitlines() if "L.*" in line)
        assert "100 %" in line
        await pilot.press("enter")
        await settled(app, pilot)
        assert selected(app) in {launch.kernel for launch in SERVER.launches(4)}
        assert "in L > L." in screen(app)
        app.do(registry.details)
        await settled(app, pilot)
        text = screen(app)
    own = [line.strip(" │|") for line in text.splitlines() if "module L" in line]
    assert len(own) == 2
    assert all(line.split()[0] == "module" and len(line.split()) == 2 for line in own)
    assert "captured by" not in text
