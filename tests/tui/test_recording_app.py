"""`:record` and `:again` in the app, driven by keys, with a real program that computes
late."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.places import ROOT
from tests.tui.driving import opened, screen, settled
from textual.pilot import Pilot

from fusetui.tui.app import FusetuiApp

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch"),
    pytest.mark.skipif(sys.platform != "linux", reason="the door is Linux's"),
]
LATE = """
import os, time, torch
torch.set_num_threads(1)
model, x = torch.nn.Linear(8, 8), torch.randn(4, 8)
print("begun", flush=True)
while not os.path.exists("go"):
    time.sleep(0.05)
while not os.path.exists("stop"):
    model(x).sum().backward()
    time.sleep(0.01)
"""
SAMPLE = str(ROOT / "sample_traces" / "linear-compiled.json.gz")
LONGEST_S = 200.0  # that the program may take on a busy machine until it is recorded


async def typed(pilot: Pilot[int], command: str) -> None:
    await pilot.press(
        "colon", *("space" if key == " " else key for key in command), "enter"
    )


async def seen(app: FusetuiApp, pilot: Pilot[int], text: str) -> None:
    """Waits until a person sees this text."""
    async with asyncio.timeout(LONGEST_S):
        while text not in screen(app):
            await asyncio.sleep(0.05)
            await pilot.pause()


@pytest.mark.slow  # the attempts to record take most of a minute
async def test_a_late_program_is_recorded_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What happens meanwhile is on the last line; `:again` shows the diff."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "late.py").write_text(LATE)
    with tempfile.TemporaryDirectory(dir="/tmp") as sock:
        door = {
            "KINETO_USE_DAEMON": "1",
            "KINETO_IPC_SOCKET_DIR": sock,
            "KINETO_LOG_LEVEL": "99",
        }
        with subprocess.Popen(
            [sys.executable, "late.py"], env=os.environ | door, stdout=subprocess.PIPE
        ) as child:
            try:
                assert child.stdout is not None
                assert child.stdout.readline() == b"begun\n"
                async with opened([SAMPLE], size=(160, 50)) as (app, pilot):
                    await typed(pilot, f"record {child.pid}")
                    await seen(app, pilot, "It ran no operations in that time. Attempt")
                    Path("go").touch()
                    for _ in range(3):
                        await settled(app, pilot)
                    (first,) = app.state.paths
                    assert first.endswith(f"_{child.pid}.json")
                    names = {str(name) for name in app.state.side.trace.names}
                    assert "aten::linear" in names
                    await typed(pilot, "again")
                    for _ in range(3):
                        await settled(app, pilot)
                    assert app.state.paths[0] == first
                    assert len(app.state.sides) == 2
                    assert all(Path(path).is_file() for path in app.state.paths)
                assert child.poll() is None
            finally:
                Path("stop").touch()
                child.kill()
