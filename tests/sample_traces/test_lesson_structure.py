"""Lessons have the structure of recorded traces: the same keys for each kind of
event."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from docs.lessons.device import Launch, Occupancy

from fusetui import sample_traces
from fusetui.sample_traces import lessons

Keys = dict[tuple[str, ...], set[str]]
OF_KERNELS_SINCE_2026 = {
    "occupancy",
    "graph id",
    "graph node id",
    "channel",
    "channel_type",
}


@cache
def document(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return found


def kind(event: Mapping[str, Any]) -> tuple[str, ...]:
    named = event["name"] if event["ph"] in "Mi" else ""
    return event["ph"], event.get("cat", ""), named


def keys(path: Path) -> tuple[Keys, Keys]:
    """By the kind of event: its keys, and those of its args; of ops with shapes."""
    own: Keys = defaultdict(set)
    args: Keys = defaultdict(set)
    for event in document(path)["traceEvents"]:
        if event.get("cat") != "cpu_op" or "Input Dims" in event["args"]:
            own[kind(event)] |= event.keys()
            args[kind(event)] |= event.get("args", {}).keys()
    return own, args


KERNEL_ARGS = {
    *("External id", "queued", "device", "context", "stream", "correlation"),
    *("registers per thread", "shared memory", "blocks per SM", "warps per SM"),
    *("grid", "block", "est. achieved occupancy %"),
}
"""What Kineto writes of a kernel in any year."""
MEMORY_ARGS = {
    *("Total Reserved", "Total Allocated", "Bytes", "Addr"),
    *("Device Id", "Device Type", "Ev Idx"),
}


@pytest.mark.parametrize("name", lessons.names())
def test_kernels_and_memory_have_the_args_that_kineto_writes(name: str) -> None:
    _, args = keys(lessons.path(name))
    assert args["X", "kernel", ""] - OF_KERNELS_SINCE_2026 == KERNEL_ARGS
    assert args["i", "cpu_instant_event", "[memory]"] - {"finished"} == MEMORY_ARGS


@pytest.mark.parametrize("cat", ["user_annotation", "cpu_op", "Trace"])
def test_ops_are_written_as_torch_writes_them_here(cat: str) -> None:
    """Key after key as in the samples, which this version of torch recorded."""
    ours = _first(document(lessons.path("mlp-eager")), cat)
    real = _first(document(sample_traces.path("mlp-eager")), cat)
    assert list(ours) == list(real)
    assert list(ours["args"]) == list(real["args"])


def _first(trace: dict[str, Any], cat: str) -> dict[str, Any]:
    found: dict[str, Any] = next(e for e in trace["traceEvents"] if e.get("cat") == cat)
    return found


def test_the_ops_of_a_step_are_those_that_torch_records() -> None:
    """Apart from `resolve_conj`, which only a CPU's product calls. The sample was
    recorded when the workload ran gelu before the second product, so the order is not
    compared."""
    lesson = _ops(document(lessons.path("mlp-eager")))
    sample = _ops(document(sample_traces.path("mlp-eager")))
    assert Counter(lesson) == Counter(op for op in sample if op != "aten::resolve_conj")


def _ops(trace: dict[str, Any]) -> list[str]:
    """Of the first step, in the order of their starts."""
    events = trace["traceEvents"]
    step = next(e for e in events if e["name"].startswith("ProfilerStep"))
    ops = [
        e
        for e in events
        if e.get("cat") == "cpu_op" and e["ts"] < step["ts"] + step["dur"]
    ]
    return [e["name"] for e in sorted(ops, key=lambda e: (e["ts"], -e["dur"]))]


@pytest.mark.parametrize(
    ("launch", "blocks", "warps", "percent"),
    [
        (Launch((8192, 1, 1), (128, 1, 1), 28), 75.851852, 303.40741, 100),
        (Launch((5936, 1, 1), (128, 1, 1), 40), 54.962963, 219.85185, 75),
        (Launch((512, 1, 1), (128, 1, 1), 40), 4.740741, 18.962963, 30),
        (Launch((63, 1, 1), (128, 1, 1), 22), 0.583333, 2.333333, 4),
    ],
    ids=lambda value: str(value.grid[0]) if isinstance(value, Launch) else "",
)
def test_occupancy_is_what_kineto_wrote_of_the_same_launch_on_an_a100(
    launch: Launch, blocks: float, warps: float, percent: int
) -> None:
    assert launch.blocks_per_sm == pytest.approx(blocks, abs=1e-6)
    assert launch.warps_per_sm == pytest.approx(warps, rel=1e-6)
    assert Occupancy(launch).percent == percent


def test_more_shared_memory_than_the_default_counts_as_no_occupancy() -> None:
    """As Kineto writes it of such kernels; the GPU runs two of these blocks on an
    SM."""
    found = Occupancy(Launch((24, 64, 1), (128, 1, 1), 230, 81920))
    assert found.percent == 0
    assert found.as_args()["limitingFactors"] == "SMEM"
