"""What fusetui reads from the traces of simulated programs is what the programs did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.replay.invented import KINDS, invented
from tests.analysis.replay.programs import Item, Launch, Own, op, program, steps
from tests.analysis.replay.recording import gpu, write
from tests.analysis.replay.simulator import CALL, Slice, simulate

from fusetui.cli import run as command_line


def asked(
    path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> dict[str, Any]:
    assert command_line([command, str(path), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def union(run: list[Slice]) -> int:
    """Time in which an item runs, counted apart from fusetui."""
    busy = until = 0
    for one in sorted(gpu(run), key=lambda one: one.start):
        busy += max(0, one.end - max(one.start, until))
        until = max(until, one.end)
    return busy


@pytest.mark.parametrize("kind", KINDS)
def test_a_recording_says_what_happened(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = simulate(invented(kind, 1))
    summary = asked(write(run, tmp_path / "invented.json"), "summary", capsys)
    items = gpu(run)
    span = max(one.end for one in items) - min(one.start for one in items)
    assert summary["complete"]
    assert summary["events_skipped"] == 0
    assert summary["gpu_events"] == summary["gpu_events_linked"] == len(items)
    assert summary["gpu_span_ns"] == span
    assert summary["gpu_busy_ns"] == union(run)
    assert summary["gpu_idle_ns"] == span - union(run)
    assert [step["kernels"] for step in summary["steps"]] == [
        sum(
            one.kind == "kernel" and call.start >= note.start and call.start < note.end
            for call in run
            if call.kind == CALL
            for one in items
            if one.link == call.link
        )
        for note in run
        if note.name.startswith("ProfilerStep")
    ]


def test_the_usual_latency_is_the_one_of_the_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = simulate(invented("mixed", 1))
    (device,) = asked(write(run, tmp_path / "a.json"), "why", capsys)["devices"]
    assert device["launch_latency_usual_ns"] == 4000
    assert sum(device["idle"].values()) == device["idle_ns"]


def test_a_gap_is_what_its_thread_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second kernel is launched at 56 us; until then the first op works for 40 us
    after its launch, and the second for 10. The gap begins when the first kernel ends,
    at 9 us."""
    ops = (
        op("a", Launch(Item("k", 5000), 6000), Own(40_000)),
        op("b", Own(10_000), Launch(Item("l", 5000), 6000)),
    )
    path = write(simulate(program(*steps(ops))), tmp_path / "a.json")
    (gap,) = asked(path, "gaps", capsys)["gaps"]
    assert gap["dur_ns"] == 51_000
    assert gap["idle"] == {"host_op": 47_000, "launch_call": 4000}
    assert gap["op"] == "a"
