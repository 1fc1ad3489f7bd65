"""With a real program: what was asked for is in the trace, and the program is not changed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import orjson
import pytest

from fusetui import cli

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch"),
    pytest.mark.skipif(sys.platform != "linux", reason="the door is Linux's"),
]
LOOP = """
import sys, time, torch
from pathlib import Path
torch.set_num_threads(1)
model, x = torch.nn.Linear(8, 8), torch.randn(4, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
end = time.time() + 60
while time.time() < end and not list(Path(sys.argv[1]).glob("*.json")):
    optimizer.zero_grad(); model(x).sum().backward(); optimizer.step(); time.sleep(0.01)
sys.exit(5)
"""


def test_run_records_three_steps_with_shapes_and_stacks(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(LOOP)
    out = tmp_path / "out"
    line = ["run", "--steps", "3", "--with", "shapes,stack", "--out", str(out), "--"]
    assert cli.run([*line, sys.executable, str(program), str(out)]) == 5
    (trace,) = out.iterdir()
    events = orjson.loads(trace.read_bytes())["traceEvents"]
    assert [one["name"] for one in events].count("Optimizer.step#SGD.step") == 3
    forward = [one for one in events if one["name"] == "aten::linear"]
    assert len(forward) == 3
    assert forward[0]["args"]["Input Dims"] == [[4, 8], [8, 8], [8]]
    assert any("train.py" in one["name"] for one in events if one.get("cat") == "python_function")
