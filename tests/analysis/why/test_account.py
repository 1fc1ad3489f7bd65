"""The account of devices, by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fusetui.analysis.why.account import Accounts, account_for_cpu_threads
from fusetui.analysis.why.idle_time import list_longest_gaps
from fusetui.analysis.why.model import DeviceAccount
from fusetui.trace import Trace

Make = Callable[..., Any]


def call(
    name: str, ts: float, dur: float, number: int = 0, **more: Any
) -> dict[str, Any]:
    plain = {"ph": "X", "cat": "cuda_runtime", "pid": 1, "tid": 1, "ts": ts, "dur": dur}
    return {**plain, "name": name, "args": {"correlation": number}, **more}


def kernel(
    ts: float, dur: float, number: int = 0, name: str = "k", **more: Any
) -> dict[str, Any]:
    return call(name, ts, dur, number, **{"cat": "kernel", "pid": 0, "tid": 7, **more})


def only(trace: Trace) -> DeviceAccount:
    (device,) = Accounts(trace).devices
    return device.span


def idle(trace: Trace) -> dict[str, int]:
    return only(trace).idle


def test_time_is_compute_then_exposed_communication_then_exposed_copies_then_idle(
    trace_of: Make,
) -> None:
    """Compute 0-10, NCCL 5-20, a copy 15-30, a copy between devices 40-45, a set
    44-50."""
    copies: dict[str, Any] = {"cat": "gpu_memcpy", "tid": 8}
    account = only(
        trace_of(
            [
                kernel(0, 10),
                kernel(5, 15, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL", tid=9),
                kernel(15, 15, name="Memcpy HtoD (Pinned -> Device)", **copies),
                kernel(40, 5, name="Memcpy PtoP (Device -> Device)", **copies),
                kernel(44, 6, name="Memset (Device)", cat="gpu_memset", tid=8),
            ]
        )
    )
    assert account.span_ns == 50_000
    assert (account.compute_ns, account.exposed_comm_ns) == (10_000, 10_000 + 5_000)
    assert (account.exposed_copy_ns, account.idle_ns) == (10_000 + 5_000, 10_000)
    assert (account.hidden_comm_ns, account.hidden_copy_ns) == (5_000, 5_000 + 1_000)


def test_gap_before_an_event_without_an_earlier_call_is_unlinked(
    trace_of: Make,
) -> None:
    """No call, or one that starts after the event: clocks that differ."""
    launched_late = [call("cudaLaunchKernel", 25, 1, 3), kernel(24, 1, 3)]
    assert idle(trace_of([kernel(0, 10), kernel(20, 1), *launched_late])) == {
        "unlinked": 10_000 + 3_000
    }


def test_gap_between_nodes_of_one_graph_is_graph(trace_of: Make) -> None:
    nodes = [kernel(0, 10, 1), kernel(12, 10, 1), kernel(25, 1, 1)]
    assert idle(trace_of([call("cudaGraphLaunch", 0, 30, 1), *nodes])) == {
        "graph": 5_000
    }


def test_gap_is_host_until_the_call_then_launch_call_then_queued(
    trace_of: Make,
) -> None:
    """Nothing recorded until 15, the call until 18, then queued; one gap has no
    lambda."""
    trace = trace_of(
        [kernel(0, 10), call("cudaLaunchKernel", 15, 3, 1), kernel(30, 5, 1)]
    )
    assert idle(trace) == {
        "host_nothing": 5_000,
        "launch_call": 3_000,
        "queued": 12_000,
    }


def test_launch_latency_is_the_lower_quartile_of_24_gaps(trace_of: Make) -> None:
    """24 gaps; from call to kernel it takes 5, 6, 7 or 8 us, a quarter each: the one at
    24 // 4."""
    events = [kernel(0, 1)]
    for n in range(24):
        ts = 100 * (n + 1)
        events += [
            call("cudaLaunchKernel", ts, 1, n + 1),
            kernel(ts + 5 + n % 4, 1, n + 1),
        ]
    account = only(trace_of(events))
    assert account.launch_latency_usual_ns == 6_000
    assert account.idle["launch_latency"] == 6 * (4_000 + 5_000 + 5_000 + 5_000)
    assert account.idle["queued"] == 6 * (1_000 + 2_000)


@pytest.mark.parametrize("gaps", [19, 20])
def test_few_gaps_tell_no_latency(trace_of: Make, gaps: int) -> None:
    events = [kernel(0, 1)]
    for n in range(1, gaps + 1):
        events += [call("cudaLaunchKernel", 100 * n, 1, n), kernel(100 * n + 9, 1, n)]
    assert only(trace_of(events)).launch_latency_usual_ns == (
        9_000 if gaps == 20 else 0
    )


def test_host_part_of_a_gap_is_divided_by_the_innermost_activity(
    trace_of: Make, event: Make
) -> None:
    """10-60 us: an annotation, a frame, an op, a frame that it calls, and runtime
    calls."""
    trace = trace_of(
        [
            kernel(0, 10),
            event("note", 10, 40, cat="user_annotation"),
            event("model.py(1): f", 15, 30, cat="python_function"),
            event("aten::mul", 20, 15),
            event("model.py(9): hook", 21, 3, cat="python_function"),
            call("cudaMalloc", 25, 5),
            call("cudaDeviceSynchronize", 40, 2),
            event("noise", 40, 20, cat="overhead"),
            event("aten::mul", 10, 50, tid=2),  # another thread
            call("cudaLaunchKernel", 60, 5, 1),
            kernel(65, 1, 1),
        ]
    )
    assert idle(trace) == {
        "host_annotation": 5_000 + 5_000,
        "host_python": 5_000 + 5_000 + 3_000 + 3_000,
        "host_op": 1_000 + 1_000 + 5_000,
        "host_alloc": 5_000,
        "host_sync": 2_000,
        "host_nothing": 10_000,
        "launch_call": 5_000,
    }


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("cudaStreamSynchronize", "host_sync"),
        ("hipMemcpyWithStream", "host_sync"),
        ("cuMemcpyDtoH_v2", "host_sync"),
        ("cudaMemset", "host_call"),
        ("cudaMemcpyAsync", "host_call"),
        ("cudaMemsetAsync", "host_call"),
        ("cudaGraphAddMemcpyNode", "host_call"),
        ("cudaFree", "host_alloc"),
        ("hipHostMalloc", "host_alloc"),
        ("cuMemCreate", "host_alloc"),
        ("cuMemMap", "host_alloc"),
        ("cudaHostRegister", "host_alloc"),
        ("cudaMemGetInfo", "host_call"),
        ("cudaEventQuery", "host_call"),
    ],
)
def test_runtime_calls_are_sync_allocation_or_other_by_name(
    trace_of: Make, name: str, reason: str
) -> None:
    events = [kernel(0, 10), call(name, 10, 10), call("cudaLaunchKernel", 20, 1, 1)]
    assert idle(trace_of([*events, kernel(21, 1, 1)])) == {
        reason: 10_000,
        "launch_call": 1_000,
    }


@pytest.mark.parametrize(
    ("memory", "reason"), [("Pageable", "host_sync"), ("Pinned", "host_call")]
)
def test_copy_from_pageable_memory_counts_as_a_synchronization(
    trace_of: Make, memory: str, reason: str
) -> None:
    copy = kernel(0, 10, 5, f"Memcpy HtoD ({memory} -> Device)", cat="gpu_memcpy")
    events = [
        call("cudaMemcpyAsync", 0, 20, 5),
        copy,
        call("cudaLaunchKernel", 20, 1, 1),
    ]
    assert idle(trace_of([*events, kernel(21, 1, 1)])) == {
        reason: 10_000,
        "launch_call": 1_000,
    }


def test_nested_runtime_calls_count_as_the_innermost(trace_of: Make) -> None:
    """A synchronization inside an allocation inside another call."""
    calls = [
        call("cudaSetDevice", 10, 20),
        call("cudaFree", 10, 15),
        call("cudaSynchronize", 12, 3),
    ]
    launch = [call("cudaLaunchKernel", 30, 1, 1), kernel(31, 1, 1)]
    assert idle(trace_of([kernel(0, 10), *calls, *launch])) == {
        "host_alloc": 2_000 + 10_000,
        "host_sync": 3_000,
        "host_call": 5_000,
        "launch_call": 1_000,
    }


@pytest.mark.parametrize(
    ("frame", "op", "reasons"),
    [
        # an op calls Python
        ((12, 6), (10, 10), {"host_op": 4_000, "host_python": 6_000}),
        ((10, 10), (12, 6), {"host_op": 6_000, "host_python": 4_000}),
        # together: the shorter
        ((10, 4), (10, 10), {"host_op": 6_000, "host_python": 4_000}),
        ((10, 10), (10, 4), {"host_op": 4_000, "host_python": 6_000}),
        ((10, 10), (10, 10), {"host_op": 10_000}),
    ],
)
def test_inner_one_of_op_and_frame_counts(
    trace_of: Make,
    event: Make,
    frame: tuple[int, int],
    op: tuple[int, int],
    reasons: dict[str, int],
) -> None:
    """`frame`, `op`: start and duration, us."""
    events = [
        event("a.py(1): f", *frame, cat="python_function"),
        event("aten::mul", *op),
    ]
    launch = [call("cudaLaunchKernel", 20, 1, 1), kernel(21, 1, 1)]
    assert idle(trace_of([kernel(0, 10), *events, *launch])) == {
        **reasons,
        "launch_call": 1_000,
    }


@pytest.mark.parametrize(
    "name",
    [
        "ProfilerStep#1",
        "Optimizer.step#SGD.step",
        "Optimizer.zero_grad#SGD.zero_grad",
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        "DataLoader",
        "DistributedDataParallel.forward",
        "## forward ##",
    ],
)
def test_ranges_of_2021_are_no_ops(trace_of: Make, event: Make, name: str) -> None:
    events = [event(name, 0, 40, cat="Operator"), call("cudaLaunchKernel", 20, 1, 1)]
    assert idle(trace_of([kernel(0, 10), *events, kernel(21, 1, 1)])) == {
        "host_annotation": 10_000,
        "launch_call": 1_000,
    }


def test_an_event_of_no_length_ends_a_gap(trace_of: Make) -> None:
    graph = [call("cudaLaunchKernel", 12, 1, 1), kernel(15, 0, 1)]
    assert idle(trace_of([kernel(0, 10), *graph, kernel(20, 1)])) == {
        "host_nothing": 2_000,
        "launch_call": 1_000,
        "queued": 2_000,
        "unlinked": 5_000,
    }


def over(trace: Trace, *windows: tuple[int, int]) -> list[DeviceAccount]:
    begin, end = 1000 * np.array(windows).T
    return Accounts(trace).devices[0].account_for_windows(begin, end)


def test_gap_across_a_step_boundary_counts_on_both_sides(
    trace_of: Make, event: Make
) -> None:
    """The gap from 10 to 30: an op until 22, the call until 28, then queued."""
    launch = [
        event("aten::a", 5, 17),
        call("cudaLaunchKernel", 22, 6, 1),
        kernel(30, 5, 1),
    ]
    trace = trace_of([kernel(0, 10), *launch])
    assert [one.idle for one in over(trace, (0, 20), (20, 25), (25, 35))] == [
        {"host_op": 10_000},
        {"host_op": 2_000, "launch_call": 3_000},
        {"launch_call": 3_000, "queued": 2_000},
    ]


def test_time_before_the_first_event_is_host_and_after_the_last_is_end(
    trace_of: Make, event: Make
) -> None:
    launch = [
        event("aten::a", 0, 50),
        call("cudaLaunchKernel", 40, 5, 1),
        kernel(60, 10, 1),
    ]
    before, all_, after = over(trace_of(launch), (10, 30), (10, 100), (80, 100))
    assert before.idle == {"host_op": 20_000}
    assert all_.idle == {
        "host_op": 30_000,
        "launch_call": 5_000,
        "queued": 15_000,
        "after": 30_000,
    }
    assert after.idle == {"after": 20_000}
    assert [one.compute_ns for one in (before, all_, after)] == [0, 10_000, 0]


def test_a_window_that_begins_before_the_trace(trace_of: Make, event: Make) -> None:
    """Nothing was recorded then; what another thread did later is none of it."""
    other = [event("aten::a", 20, 10, tid=3), event("aten::b", 25, 5, tid=4)]
    launch = [call("cudaLaunchKernel", 30, 1, 1), kernel(31, 1, 1)]
    (account,) = over(trace_of([*other, *launch]), (5, 32))
    assert account.idle == {"host_nothing": 25_000, "launch_call": 1_000}


def test_devices_have_accounts_of_their_own(trace_of: Make) -> None:
    """A call that launches on two devices is in no graph."""
    trace = trace_of(
        [
            call("launchOnBoth", 5, 1, 1),
            *(kernel(0, 1, pid=device) for device in (0, 1)),
            *(kernel(10 + device, 1, 1, pid=device) for device in (0, 1)),
        ],
        deviceProperties=[{"id": 0, "name": "A"}, {"id": 1, "name": "B"}],
    )
    found = [device.span for device in Accounts(trace).devices]
    assert [(one.device, one.name) for one in found] == [(0, "A"), (1, "B")]
    assert [one.idle["queued"] for one in found] == [4_000, 5_000]


def test_trace_without_gpu_events_has_no_devices(trace_of: Make, event: Make) -> None:
    assert Accounts(trace_of([event()])).devices == ()


# Against the slow computation.


def in_backward(*frames: dict[str, Any]) -> list[dict[str, Any]]:
    """Thread 1 launches at 0 and at 98; between these a node of the engine frees memory
    on thread 2 for 40 us, and computes for 6 us."""
    op: dict[str, Any] = {"cat": "cpu_op", "tid": 2}
    return [
        call("aten::forward", 0, 4, cat="cpu_op"),
        call("cudaLaunchKernel", 0, 1, 1),
        kernel(5, 5, 1),
        *frames,
        call("autograd::engine::evaluate_function: MulBackward0", 20, 50, **op),
        call("aten::mul", 22, 3, **op),
        call("hipFree", 26, 40, tid=2),
        call("cudaLaunchKernel", 98, 1, 2),
        kernel(100, 5, 2),
    ]


def test_a_thread_that_waits_for_backward_does_what_the_engine_does(
    trace_of: Make,
) -> None:
    """The host part is from 10 to 98."""
    trace = trace_of(in_backward())
    found = idle(trace)
    assert found["host_alloc"] == 40_000
    assert found["host_op"] == 50_000 - 40_000
    assert found["host_nothing"] == 88_000 - 50_000
    (gap,) = list_longest_gaps(Accounts(trace).devices_by_axis).gaps
    assert gap.op == "autograd::engine::evaluate_function: MulBackward0"
    waiting, engine = account_for_cpu_threads(Accounts(trace))
    assert (waiting.op_ns, engine.op_ns) == (4_000 + 1_000, 50_000)


def test_the_engine_counts_before_the_frame_that_waits_for_it(trace_of: Make) -> None:
    name = "<built-in method run_backward of torch._C._EngineBase object at 0x7f>"
    found = idle(trace_of(in_backward(call(name, 12, 78, cat="python_function"))))
    assert found["host_alloc"] == 40_000
    assert found["host_op"] == 50_000 - 40_000
    assert found["host_python"] == 78_000 - 50_000


@pytest.mark.parametrize(
    "other",
    [
        call("aten::sort", 15, 60, cat="cpu_op"),  # thread 1 does not wait
        # nor here
        call("<built-in method run_backward of o>", 80, 5, cat="python_function"),
        call(
            "autograd::engine::evaluate_function: AddBackward0",
            20,
            50,
            cat="cpu_op",
            tid=3,
        ),
    ],
)
def test_parallel_work_of_threads_is_not_taken_for_waiting_on_backward(
    trace_of: Make, other: dict[str, Any]
) -> None:
    """Work at the same time, backward at another time, or two threads of the engine."""
    assert "host_alloc" not in idle(trace_of(in_backward(other)))


def before_backward(*others: dict[str, Any]) -> list[dict[str, Any]]:
    """Thread 1 launches at 0, computes for 40 us, of which it frees memory for 25 us,
    and asks for backward; the engine launches at 98, 6 us after it has begun."""
    op: dict[str, Any] = {"cat": "cpu_op"}
    return [
        call("aten::forward", 0, 4, **op),
        call("cudaLaunchKernel", 0, 1, 1),
        kernel(5, 5, 1),
        call("aten::loss", 30, 40, **op),
        call("hipFree", 32, 25),
        *others,
        call("autograd::engine::evaluate_function: MulBackward0", 92, 50, tid=2, **op),
        {**call("cudaLaunchKernel", 98, 1, 2), "tid": 2},
        kernel(100, 5, 2),
    ]


def test_an_engine_that_is_not_asked_does_what_the_other_thread_does(
    trace_of: Make,
) -> None:
    """The host part is from 10 to 98: the engine waits for the loss, as the GPU
    does."""
    trace = trace_of(before_backward())
    found = idle(trace)
    assert found["host_alloc"] == 25_000
    assert found["host_op"] == 40_000 - 25_000 + 6_000
    assert found["host_nothing"] == 88_000 - 46_000
    (gap,) = list_longest_gaps(Accounts(trace).devices_by_axis).gaps
    assert gap.op == "aten::loss"
    waiting, engine = account_for_cpu_threads(Accounts(trace))
    assert (waiting.op_ns, engine.op_ns) == (44_000, 50_000)


@pytest.mark.parametrize(
    "other",
    [
        call("aten::sort", 75, 60, cat="cpu_op"),  # thread 1 goes on beside the engine
        call(
            "autograd::engine::evaluate_function: AddBackward0",
            10,
            15,
            cat="cpu_op",
            tid=3,
        ),
    ],
)
def test_parallel_work_of_the_engine_is_not_taken_for_waiting(
    trace_of: Make, other: dict[str, Any]
) -> None:
    assert "host_alloc" not in idle(trace_of(before_backward(other)))


def test_a_gap_before_backward_names_the_wait_that_drained_it(trace_of: Make) -> None:
    """The loss is read from 6 to 90, before the engine is asked; without backward on
    thread 2, nothing says that its launch waits for that."""
    wait = call("cudaStreamSynchronize", 6, 84)
    node = call(
        "autograd::engine::evaluate_function: MulBackward0", 92, 9, tid=2, cat="cpu_op"
    )
    work = [
        call("aten::forward", 0, 4, cat="cpu_op"),
        call("cudaLaunchKernel", 0, 1, 1),
        kernel(5, 5, 1),
        wait,
        {**call("cudaLaunchKernel", 98, 1, 2), "tid": 2},
        kernel(100, 5, 2),
    ]
    for op, drained_by in (
        (node, "cudaStreamSynchronize"),
        ({**node, "name": "aten::other"}, None),
    ):
        (gap,) = list_longest_gaps(Accounts(trace_of([*work, op])).devices_by_axis).gaps
        assert gap.drained_by == drained_by
