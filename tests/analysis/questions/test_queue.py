"""The launch queue: at any time, how many GPU events were launched and had not
ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.corpus.fixtures import any_of

from fusetui.analysis.questions.launches import measure_queues, summarize_queue
from fusetui.trace import Trace, open_trace
from fusetui.trace.layout.counters import Counter

Make = Callable[..., Any]


def pairs(counter: Counter) -> list[tuple[int, float]]:
    return list(zip(counter.time.tolist(), counter.value.tolist(), strict=True))


def test_two_kernels_wait(trace_of: Make, launched: Make) -> None:
    trace = trace_of(
        [*launched(1, 0, 10, 5), *launched(2, 4, 15, 5), *launched(3, 30, 31, 4)]
    )
    (queue,) = measure_queues(trace)
    assert (queue.group, queue.label) == ("launch queue", "GPU 0 queue")
    expected = [(0, 1), (4, 2), (15, 1), (20, 0), (30, 1), (35, 0)]
    assert pairs(queue) == [(1000 * us, value) for us, value in expected]
    found = summarize_queue(queue)
    assert (found.most, found.empty_ns, found.span_ns) == (2, 10_000, 35_000)
    assert found.mean == pytest.approx((4 + 2 * 11 + 5 + 5) / 35)


def test_a_graph_is_in_at_once(trace_of: Make, event: Make) -> None:
    link = {"args": {"correlation": 1}}
    nodes = [
        event("k", 10 + 5 * n, 5, cat="kernel", pid=0, tid=7, **link) for n in range(3)
    ]
    (queue,) = measure_queues(
        trace_of([event("cudaGraphLaunch", 0, 8, cat="cuda_runtime", **link), *nodes])
    )
    assert pairs(queue) == [(0, 3), (15_000, 2), (20_000, 1), (25_000, 0)]


def test_an_event_before_its_call_never_makes_it_negative(
    trace_of: Make, launched: Make
) -> None:
    (queue,) = measure_queues(trace_of(launched(1, 100, 50, 10)))
    assert pairs(queue) == [(50_000, 1), (60_000, 0)]


def test_trace_without_links_has_no_launch_queue(trace_of: Make, event: Make) -> None:
    assert (
        measure_queues(trace_of([event("k", 0, 5, cat="kernel", pid=0, tid=7)])) == ()
    )


any_trace = any_of("training", "graphs", "annotated-graph")


def test_as_counted_at_each_time(any_trace: Path) -> None:
    trace = open_trace(str(any_trace))
    for queue in measure_queues(trace):
        assert queue.value[-1] == 0
        assert (np.diff(queue.time) > 0).all()
        for time, value in pairs(queue)[:: max(1, len(queue.time) // 100)]:
            assert value == slowly(trace, queue.label, time)


def slowly(trace: Trace, label: str, time: int) -> int:
    """Events of the device that are in at `time`: launched by then, and ending
    later."""
    found = 0
    for row in trace.gpu_rows.tolist():
        call = int(trace.launch[row])
        if call >= 0 and label == f"GPU {trace.track_of(row).pid} queue":
            found += min(trace.start[call], trace.start[row]) <= time < trace.end[row]
    return found
