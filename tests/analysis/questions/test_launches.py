"""What launching cost the CPU, thread by thread, and the replays of CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.corpus.files import corpus_path

from fusetui.analysis.questions.launches import (
    find_launch_calls,
    list_graph_replays,
    summarize_launches_by_thread,
)
from fusetui.trace import open_trace

Make = Callable[..., Any]


def call(
    event: Make, name: str, ts: int, dur: int, number: int = 0, **more: Any
) -> dict[str, Any]:
    found: dict[str, Any] = event(
        name, ts, dur, cat="cuda_runtime", args={"correlation": number}, **more
    )
    return found


def kernel(event: Make, number: int, ts: int, dur: int, **more: Any) -> dict[str, Any]:
    place = {"cat": "kernel", "pid": 0, "tid": 7, **more}
    found: dict[str, Any] = event("k", ts, dur, args={"correlation": number}, **place)
    return found


def test_launch_calls_are_summed_by_thread_and_name(
    trace_of: Make, event: Make
) -> None:
    trace = trace_of(
        [
            event("aten::mm", 0, 100),
            call(event, "cudaLaunchKernel", 10, 4, 1),
            call(event, "cudaLaunchKernel", 20, 6, 2),
            call(event, "cudaMemcpyAsync", 30, 20, 3),
            call(event, "cudaStreamSynchronize", 60, 30),
            call(event, "cudaLaunchKernel", 0, 5, 4, tid=2),
            *(kernel(event, n, 200 + 10 * n, 5) for n in (1, 2, 4)),
            event(
                "Memcpy",
                300,
                5,
                cat="gpu_memcpy",
                pid=0,
                tid=7,
                args={"correlation": 3},
            ),
        ]
    )
    first, second = summarize_launches_by_thread(trace)
    assert (first.process, first.thread, first.span_ns) == (1, 1, 100_000)
    assert (first.count, first.total_ns, first.events) == (3, 30_000, 3)
    assert (first.mean_ns, first.max_ns) == (10_000, 20_000)
    assert [(c.name, c.count, c.total_ns) for c in first.calls] == [
        ("cudaMemcpyAsync", 1, 20_000),
        ("cudaLaunchKernel", 2, 10_000),
    ]
    assert (second.thread, second.count, second.span_ns) == (2, 1, 5_000)


def test_p99_of_launch_calls_is_the_slowest_of_a_hundred(
    trace_of: Make, event: Make
) -> None:
    calls = [call(event, "cudaLaunchKernel", 1000 * n, n) for n in range(1, 102)]
    (thread,) = summarize_launches_by_thread(trace_of(calls))
    assert (thread.p99_ns, thread.max_ns) == (100_000, 101_000)


def test_a_call_in_a_call_counts_once(trace_of: Make, event: Make) -> None:
    inner = event("cuLaunchKernel", 12, 3, cat="cuda_driver", args={"correlation": 1})
    trace = trace_of(
        [call(event, "cudaLaunchKernel", 10, 8, 1), inner, kernel(event, 1, 50, 5)]
    )
    (thread,) = summarize_launches_by_thread(trace)
    assert (thread.count, thread.total_ns, thread.events) == (1, 8_000, 1)


def test_a_call_without_an_event_counts_by_its_name(
    trace_of: Make, event: Make
) -> None:
    names = [
        "cudaLaunchKernel",
        "cudaLaunchHostFunc",
        "cudaMalloc",
        "hipExtModuleLaunchKernel",
    ]
    trace = trace_of([call(event, name, 10 * n, 5) for n, name in enumerate(names)])
    rows, events = find_launch_calls(trace)
    assert [trace.name_of(row) for row in rows.tolist()] == [names[0], names[3]]
    assert events.tolist() == [0, 0]


def test_a_replay_is_a_unit(trace_of: Make, event: Make) -> None:
    """Three kernels and a copy of one launch: 30 us from first to last, 20 us of it
    busy."""
    trace = trace_of(
        [
            call(event, "cudaGraphLaunch", 0, 9, 1),
            kernel(event, 1, 10, 5),
            kernel(event, 1, 12, 8, tid=8),
            event(
                "Memcpy", 25, 5, cat="gpu_memcpy", pid=0, tid=7, args={"correlation": 1}
            ),
            kernel(event, 1, 35, 5),
            call(event, "cudaGraphLaunch", 100, 9, 2),
            kernel(event, 2, 110, 5),
        ]
    )
    first, second = list_graph_replays(trace)
    assert (first.call_ns, first.device, first.events, first.kernels) == (
        9_000,
        0,
        4,
        3,
    )
    assert (first.start_ns, first.span_ns, first.busy_ns) == (10_000, 30_000, 20_000)
    assert (second.events, second.span_ns) == (1, 5_000)


def test_a_graph_on_two_devices_is_a_replay_on_each(
    trace_of: Make, event: Make
) -> None:
    trace = trace_of(
        [
            call(event, "hipGraphLaunch", 0, 9, 1),
            kernel(event, 1, 10, 5),
            kernel(event, 1, 10, 7, pid=9),
        ]
    )
    assert [(r.device, r.busy_ns) for r in list_graph_replays(trace)] == [
        (0, 5_000),
        (9, 7_000),
    ]


def test_many_kernels_of_one_plain_call_are_no_replay(
    trace_of: Make, event: Make
) -> None:
    kernels = [kernel(event, 1, 10 * n, 5) for n in (1, 2, 3)]
    trace = trace_of([call(event, "cudaLaunchKernel", 0, 5, 1), *kernels])
    assert list_graph_replays(trace) == ()
    (thread,) = summarize_launches_by_thread(trace)
    assert (thread.count, thread.events) == (1, 3)


def test_trace_without_launches_has_no_calls_and_no_replays(
    trace_of: Make, event: Make
) -> None:
    trace = trace_of([event("aten::add", 0, 5)])
    assert not summarize_launches_by_thread(trace)
    assert not list_graph_replays(trace)


def kernels_of_replays(path: Path) -> list[int]:
    """Of each replay of a graph, whose kernels are those that its call launched; and
    every linked event is an event of a thread."""
    trace = open_trace(str(path))
    found = list_graph_replays(trace)
    for call in {replay.call for replay in found}:
        launched = trace.named(call.__eq__)[trace.name[trace.launch]]
        of_call = sum(replay.kernels for replay in found if replay.call == call)
        assert of_call == int((launched & (trace.launch >= 0)).sum())
    events = sum(thread.events for thread in summarize_launches_by_thread(trace))
    assert events == int((trace.launch[trace.gpu_rows] >= 0).sum())
    return [replay.kernels for replay in found]


def test_replays_have_their_known_kernels() -> None:
    assert kernels_of_replays(corpus_path("serving")) == [13] * 3
