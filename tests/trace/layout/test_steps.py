"""Steps, and the GPU work that each launched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fusetui.trace.layout.steps import by_launch_time, steps

Make = Callable[..., Any]


def step(event: Make, number: int, ts: int, dur: int, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = event(f"ProfilerStep#{number}", ts, dur, cat="user_annotation", **more)
    return made


def test_no_steps(trace_of: Make, event: Make) -> None:
    assert steps(trace_of([event("note", cat="user_annotation")])) == ()


def test_kernels_belong_to_the_step_that_launched_them(
    trace_of: Make, event: Make, launched: Make
) -> None:
    trace = trace_of(
        [
            step(event, 4, 100, 100),
            step(event, 3, 0, 100),
            *launched(1, 50, 150),  # runs during the next step
            *launched(2, 99, 170),
            *launched(3, 100, 190),  # the first moment of step 4
            *launched(4, 250, 260),  # after the last
        ]
    )
    found = steps(trace)
    assert [(s.name, s.start_ns, s.dur_ns) for s in found] == [
        ("ProfilerStep#3", 0, 100_000),
        ("ProfilerStep#4", 100_000, 100_000),
    ]
    assert [[int(trace.start[row]) for row in s.gpu_rows] for s in found] == [
        [150_000, 170_000],
        [190_000],
    ]


def test_the_thread_with_most_steps(trace_of: Make, event: Make) -> None:
    twin = step(event, 1, 0, 10, tid=99)
    on_gpu = event("ProfilerStep#1", 0, 10, cat="gpu_user_annotation", pid=0, tid=7)
    trace = trace_of([twin, on_gpu, step(event, 1, 0, 10), step(event, 2, 10, 10)])
    assert [s.name for s in steps(trace)] == ["ProfilerStep#1", "ProfilerStep#2"]


def test_by_launch_time(trace_of: Make, launched: Make) -> None:
    trace = trace_of([*launched(1, 20, 30), *launched(2, 5, 60)])
    rows, called = by_launch_time(trace)
    assert trace.start[rows].tolist() == [60_000, 30_000]
    assert called.tolist() == [5000, 20_000]
