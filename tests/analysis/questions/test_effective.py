"""Effective durations: what a kernel took of its stream when it overlaps its
predecessor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fusetui.analysis.questions.busy import measure_effective_ns, measure_work_busy_ns
from fusetui.trace import Trace, open_trace

Make = Callable[..., Any]


def kernels(event: Make, *spans: tuple[int, int, int]) -> list[Any]:
    return [
        event(f"k{n}", ts, dur, cat="kernel", pid=0, tid=stream)
        for n, (ts, dur, stream) in enumerate(spans)
    ]


def by_name(trace: Trace) -> dict[str, int]:
    names = [trace.name_of(row) for row in trace.gpu_rows.tolist()]
    return dict(zip(names, measure_effective_ns(trace).tolist(), strict=True))


def test_alone_it_is_the_duration(trace_of: Make, event: Make) -> None:
    trace = trace_of(kernels(event, (0, 10, 7), (5, 10, 8)))
    assert by_name(trace) == {"k0": 10_000, "k1": 10_000}


def test_effective_duration_excludes_overlap_with_the_predecessor(
    trace_of: Make, event: Make
) -> None:
    """k1 waits for k0; k2 ends before k1 does; k3 is free again."""
    trace = trace_of(
        kernels(event, (0, 10, 7), (8, 10, 7), (9, 3, 7), (30, 5, 7), (9, 4, 8))
    )
    assert by_name(trace) == {
        "k0": 10_000,
        "k1": 8_000,
        "k2": 0,
        "k3": 5_000,
        "k4": 4_000,
    }


def test_together_the_longest_counts(trace_of: Make, event: Make) -> None:
    trace = trace_of(kernels(event, (0, 4, 7), (0, 10, 7)))
    assert by_name(trace) == {"k0": 0, "k1": 10_000}


def test_a_stream_adds_up_to_its_busy_time(any_trace: Path) -> None:
    trace = open_trace(str(any_trace))
    stream = trace.thread_of_track[trace.track[trace.gpu_rows]]
    effective = measure_effective_ns(trace)
    for number in np.unique(stream):
        own = stream == number
        assert effective[own].sum() == measure_work_busy_ns(trace, trace.gpu_rows[own])
