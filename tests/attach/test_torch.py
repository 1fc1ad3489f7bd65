"""With a real program: what was asked for is in the trace, and the program is not
changed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import orjson
import pytest

from fusetui import cli
from fusetui.attach import recording

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch"),
    pytest.mark.skipif(sys.platform != "linux", reason="the door is Linux's"),
]
LOOP = """
import time, torch
torch.set_num_threads(1)
model, x = torch.nn.Linear(8, 8), torch.randn(4, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
end, begun = time.time() + 60, False
while time.time() < end:
    optimizer.zero_grad(); model(x).sum().backward(); optimizer.step(); time.sleep(0.01)
    begun or print("begun", flush=True)
    begun = True
"""


def test_recorded_program_has_three_steps_with_shapes_and_stacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # it says itself when it has begun
    monkeypatch.setattr(recording, "IMPORTING_S", 0.0)
    program, out = tmp_path / "train.py", tmp_path / "out"
    program.write_text(LOOP)
    with tempfile.TemporaryDirectory(dir="/tmp") as sock:
        door = {
            "KINETO_USE_DAEMON": "1",
            "KINETO_IPC_SOCKET_DIR": sock,
            "KINETO_LOG_LEVEL": "99",
        }
        with subprocess.Popen(
            [sys.executable, str(program)],
            env=os.environ | door,
            stdout=subprocess.PIPE,
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"begun\n"
            wish = ["--steps", "3", "--with", "shapes,stack", "--out", str(out)]
            assert cli.run(["record", "--pid", str(child.pid), *wish]) == 0
            assert child.poll() is None
            child.kill()
    (trace,) = out.iterdir()
    assert trace.name == f"train_{child.pid}.json"
    events = orjson.loads(trace.read_bytes())["traceEvents"]
    assert [one["name"] for one in events].count("Optimizer.step#SGD.step") == 3
    forward = [one for one in events if one["name"] == "aten::linear"]
    assert len(forward) == 3
    assert forward[0]["args"]["Input Dims"] == [[4, 8], [8, 8], [8]]
    assert any(
        "train.py" in one["name"]
        for one in events
        if one.get("cat") == "python_function"
    )
