"""Variants that take turns in one profile."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Answer
from fusetui.capture.command import capture
from fusetui.capture.errors import CaptureError
from fusetui.capture.options import ROUNDS, Options
from fusetui.trace import open_trace

pytest.importorskip("torch", reason="capture runs torch")
pytestmark = pytest.mark.torch

recorder = pytest.importorskip("fusetui.capture.recorder")
SECONDS = 1e-9


def test_turn_orders_are_mirrored_so_that_no_variant_comes_first_more_often() -> None:
    rounds = recorder.turn_order(["a", "b", "c"], 30)
    assert len(rounds) == 30
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    assert all(
        one == other[::-1] for one, other in zip(rounds[::2], rounds[1::2], strict=True)
    )
    assert len({tuple(one) for one in rounds}) > 2


def event(
    name: str, ts: float, dur: float, cat: str = "cpu_op", **args: Any
) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": cat, "ts": ts, "dur": dur, "args": args}


def divided(events: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    document = json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()
    found = recorder.divide_by_variant(document, [["a", "b"], ["b", "a"]])
    return {name: json.loads(text)["traceEvents"] for name, text in found.items()}


STEPS = [
    event(f"ProfilerStep#{n + 2}", 100.0 * n, 90.0, "user_annotation") for n in range(4)
]


def test_events_belong_to_the_variant_whose_turn_it_was() -> None:
    ops = [event(f"op{n}", 100.0 * n + 5, 10.0) for n in range(4)]
    between = event("between", 95.0, 2.0)
    meta = {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}
    found = divided([meta, between, *ops, *STEPS])
    names = {side: [e["name"] for e in events] for side, events in found.items()}
    assert names["a"] == [
        "process_name",
        "op0",
        "op3",
        "ProfilerStep#0",
        "ProfilerStep#1",
    ]
    assert names["b"] == [
        "process_name",
        "op1",
        "op2",
        "ProfilerStep#0",
        "ProfilerStep#1",
    ]


def test_gpu_work_belongs_to_the_step_that_launched_it() -> None:
    call = event("cudaLaunchKernel", 80.0, 2.0, "cuda_runtime", correlation=7)
    late = event("kernel", 103.0, 2.0, "kernel", correlation=7)
    found = divided([call, late, *STEPS])
    assert "kernel" in [e["name"] for e in found["a"]]
    assert "kernel" not in [e["name"] for e in found["b"]]


def test_3_recorded_steps_where_4_were_planned_are_refused() -> None:
    with pytest.raises(ValueError, match="3 steps, not 4"):
        divided(STEPS[:3])


def test_a_comparison_has_a_trace_for_each_variant_fit_for_a_verdict(
    code: Path, tmp_path: Path, fast_timing: None, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    capture(f"{code}:build", Options(device="cpu", compare=True, seconds=SECONDS), out)
    record = json.loads((out / "run.json").read_text())
    assert record["profiled_steps"] == ROUNDS
    paths = [out / f"{name}.json.gz" for name in ("function", "pair")]
    assert sorted(out.iterdir()) == sorted([*paths, out / "run.json"])
    for path in paths:
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        names = Counter(e["name"] for e in events if e.get("ph") == "X")
        assert [names[f"ProfilerStep#{n}"] for n in range(ROUNDS)] == [1] * ROUNDS
        assert names["aten::mm"] == ROUNDS
    found = diff(*(open_trace(str(path)) for path in paths))
    assert found.step.turns
    assert found.verdict.answer is not Answer.CANNOT_TELL
    assert f"fusetui diff {out}" in capsys.readouterr().out


def test_a_single_variant_cannot_be_compared(code: Path, tmp_path: Path) -> None:
    options = Options(["fine"], "cpu", compare=True, seconds=SECONDS)
    with pytest.raises(CaptureError, match="--compare needs two variants that run"):
        capture(f"{code}:broken", options, tmp_path / "run")
    assert not (tmp_path / "run").exists()
