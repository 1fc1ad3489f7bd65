"""Which part of its work a program did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fusetui.trace import Trace
from fusetui.trace.program.origin import Phase, origins, phase_of, phases

Make = Callable[..., Any]


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("## forward ##", Phase.FORWARD),
        ("## forward:over_arch ##", Phase.FORWARD),
        ("Model Forward Pass", Phase.FORWARD),
        ("## backward ##", Phase.BACKWARD),
        ("forward-backward", None),  # both
        ("Optimizer.step#SGD.step", Phase.OPTIMIZER),
        ("Optimizer.zero_grad#SGD.zero_grad", Phase.OPTIMIZER),
        ("execute_context_1(888_788544)_generation_0(0)", Phase.PREFILL),
        ("execute_32_context_0(sq0sk0sqsq0)_generation_32(sq32)", Phase.DECODE),
        ("execute_context_2(70)_generation_32(32)", Phase.MIXED),
        ("execute_context_0(0)_generation_0(0)", None),
        ("step[DECODE bs=32]", Phase.DECODE),
        ("step[EXTEND bs=1 toks=512]", Phase.PREFILL),
        ("step[IDLE]", None),
        ("capture_32_DECODE", Phase.DECODE),
        ("prefill", Phase.PREFILL),
        ("decode step", Phase.DECODE),
        ("vae decode", None),
        ("## decoder fp8 None ##", None),
        ("## sparse_data_dist ##", None),
    ],
)
def test_annotation_name_decides_the_phase(name: str, phase: Phase | None) -> None:
    assert phase_of(name) == phase


def found(trace: Trace) -> dict[str, int]:
    return {str(one.phase): one.gpu_ns for one in phases(origins(trace))}


def on(thread: int, launched: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**launched[0], "tid": thread}, launched[1]]


def test_autograd_ops_and_annotations_decide_the_phase_together(
    trace_of: Make, event: Make, launched: Make
) -> None:
    ahead = {"args": {"Sequence number": 5, "Fwd thread id": 0}}
    back = {"args": {"Sequence number": 5, "Fwd thread id": 1}, "tid": 2}
    note = {"cat": "user_annotation"}
    events = [
        event("aten::addmm", 0, 10, **ahead),
        *launched(1, 5, 200, dur=1),
        event("## backward ##", 20, 60, **note),
        *launched(2, 25, 210, dur=2),
        event("AddmmBackward0", 30, 10, **back),
        *on(2, launched(3, 35, 220, dur=4)),
        *on(2, launched(4, 45, 230, dur=8)),  # on the thread of autograd, under no op
        event("Optimizer.step#SGD.step", 100, 10, **note),
        *launched(5, 105, 240, dur=16),
        *launched(6, 120, 260, dur=32),
        event("before", 1, 64, cat="kernel", pid=0, tid=8, args={"correlation": 99}),
    ]
    assert found(trace_of(events)) == {
        "forward": 1_000,
        "backward": 14_000,
        "optimizer": 16_000,
        "other": 32_000,
        "launch not recorded": 64_000,
    }


def test_modules_go_forward(trace_of: Make, event: Make, launched: Make) -> None:
    events = [
        event("nn.Module: Net_0", 0, 20, cat="python_function"),
        *launched(1, 5, 200),
    ]
    assert found(trace_of(events)) == {"forward": 10_000}
    batch = event("step[DECODE bs=32]", 0, 30, cat="user_annotation")
    assert found(trace_of([batch, *events])) == {"decode": 10_000}


def test_work_launched_under_forward_ranges_is_not_backward(
    trace_of: Make, event: Make, launched: Make
) -> None:
    """The thread that runs a backward op launches other ops too, and work under no
    op."""
    events = [
        event("## forward ##", 0, 40, cat="user_annotation"),
        event("aten::mm", 0, 10),
        *launched(1, 5, 200, dur=1),
        *launched(2, 25, 210, dur=2),
        event("MmBackward0", 50, 10, args={"Sequence number": 5, "Fwd thread id": 1}),
        *launched(3, 55, 220, dur=4),
        *launched(4, 70, 230, dur=8),
    ]
    assert found(trace_of(events)) == {
        "forward": 3_000,
        "backward": 4_000,
        "other": 8_000,
    }


def test_a_module_that_begins_inside_a_backward_op_is_recomputed(
    trace_of: Make, event: Make, launched: Make
) -> None:
    events = [
        event("ReluBackward0", 0, 40),
        event("nn.Module: Conv2d_0", 5, 20, cat="python_function"),
        event("aten::conv2d", 8, 10),
        *launched(1, 10, 200, dur=7),
        *launched(2, 30, 220, dur=5),
    ]
    assert found(trace_of(events)) == {"backward": 5_000, "recompute": 7_000}
