"""From a kernel back to the program, and forward again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fusetui.trace import Trace
from fusetui.trace.questions.chain import (
    launch_chain,
    launch_latency_ns,
    launched_under,
    queue_delay_ns,
)

Make = Callable[..., Any]


def row(trace: Trace, name: str) -> int:
    return next(n for n in range(len(trace)) if trace.name_of(n) == name)


def test_chain(trace_of: Make, event: Make, launched: Make) -> None:
    note = event("mlp_fwd", 0, 100, cat="user_annotation")
    trace = trace_of([note, event("aten::mm", 5, 30), *launched(1, 10, 20)])
    names = [trace.name_of(n) for n in launch_chain(trace, row(trace, "k"))]
    assert names == ["cudaLaunchKernel", "aten::mm", "mlp_fwd"]
    under = launched_under(trace, row(trace, "aten::mm"))
    assert [trace.name_of(int(n)) for n in under] == ["k"]


def test_launch_not_recorded(trace_of: Make, event: Make) -> None:
    trace = trace_of([event("k", cat="kernel", pid=0, tid=7)])
    assert launch_chain(trace, 0) == []
    assert launch_latency_ns(trace, 0) is None
    assert queue_delay_ns(trace, 0) is None


def test_latency_and_queue(trace_of: Make, launched: Make) -> None:
    trace = trace_of([*launched(1, 0, 10, dur=40, name="a"), *launched(2, 20, 50, name="b")])
    assert launch_latency_ns(trace, row(trace, "b")) == 30_000
    assert queue_delay_ns(trace, row(trace, "b")) == 28_000  # behind a, from the call's end on
    assert queue_delay_ns(trace, row(trace, "a")) == 0
