"""Replays that one can do in one's head. Times are in us; a launch call takes 2, and
its kernel starts 5 after that begins, or as soon as the one before it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.analysis.replay.conftest import Ask
from tests.analysis.replay.events import Event, call, host, kernel, launched, step

from fusetui.analysis.replay.apply import describe_kernels
from fusetui.analysis.replay.build import build_graph
from fusetui.analysis.replay.changes import (
    NoMatchError,
    WrongChangeError,
    parse_change,
)
from fusetui.analysis.replay.graph import Node
from fusetui.analysis.replay.replay import replay
from fusetui.analysis.replay.whatif import whatif
from fusetui.analysis.why.rules.fusion import find_fusable_runs
from fusetui.sample_traces import lessons
from fusetui.trace.load import open_trace

Us = Callable[..., tuple[float, float | None]]


def host_bound() -> list[Event]:
    """Five ops of 20, each launches a kernel of 3 at its end: the GPU waits. All ends
    at 103."""
    events = []
    for n in range(5):
        at = 20 * n
        events += [host("aten::add", at, 20), *launched(at + 15, at + 20, 3, n + 1)]
    return events


def gpu_bound() -> list[Event]:
    """Five launches at 0, 4, ..., of kernels of 50 that follow each other from 5 on, to
    255."""
    events = [host("aten::mm", 0, 20)]
    for n in range(5):
        events += launched(4 * n, 5 + 50 * n, 50, n + 1)
    return events


def test_kernels_that_wait_for_the_host(us: Us) -> None:
    """Only the last one is at the end."""
    assert us(host_bound(), "kernel:k x0") == (103, 100)


def test_op_change_shortens_host_time_and_keeps_launch_calls(us: Us) -> None:
    """An op takes half of its 18; the launch call in it stays at 2: 4 * 11 + 7.5 + 5 +
    3."""
    events = host_bound()
    assert us(events, "op:aten::add x0.5") == (103, 4 * 11 + 7.5 + 5 + 3)


def test_kernels_that_wait_for_each_other(us: Us) -> None:
    assert us(gpu_bound(), "kernel:k x0.5") == (255, 5 + 5 * 25)


def test_kernel_change_to_a_fixed_duration_sets_it(us: Us) -> None:
    assert us(gpu_bound(), "kernel:k 40us") == (255, 5 + 5 * 40)


def test_much_shorter_kernels_make_the_host_the_limit(us: Us) -> None:
    """The last kernel starts 5 after its launch at 16, and ends 1 later; the host ends
    at 20."""
    assert us(gpu_bound(), "kernel:k 1us") == (255, 22)


def test_several_changes_multiply(us: Us) -> None:
    assert us(gpu_bound(), "kernel:k x0.5", "kernel:k x0.5") == (255, 5 + 5 * 12.5)


def synced() -> list[Event]:
    """A kernel 7-57; the host waits for it until 60, works until 100, and launches
    another."""
    return [
        *launched(2, 7, 50, 1),
        call("cudaStreamSynchronize", 10, 50, 9),
        host("aten::item", 60, 40),
        *launched(100, 105, 50, 2),
    ]


def test_a_wait_in_the_middle(us: Us) -> None:
    """The wait ends with the kernel at 32 + 3, then 40 of the op, 5, and the other
    kernel; the trace begins at 2."""
    assert us(synced(), "kernel:k x0.5") == (153, (32 + 3 - 2) + 40 + 5 + 25)


def test_no_sync_change_leaves_the_call_its_own_time(us: Us) -> None:
    """The call takes the 3 that it took to return: at 13, 53, and the kernel from 58
    on."""
    assert us(synced(), "no-sync:cudaStreamSynchronize") == (153, 58 + 50 - 2)


def test_an_op_goes_with_its_kernels(us: Us) -> None:
    """Two ops of 20 with kernels of 100, one after the other: 10 + 5 + 200."""
    events = [
        host("aten::add", 0, 20),
        *launched(10, 15, 100, 1),
        host("aten::mul", 20, 20),
        *launched(30, 115, 100, 2),
    ]
    assert us(events, "op:aten::add x0") == (215, 10 + 5 + 100)
    assert us(events, "op:aten::mul x0") == (215, 115)


def test_change_of_an_op_keeps_what_lies_between_its_children(us: Us) -> None:
    """What lies between the children of an op is its own."""
    events = [
        host("aten::linear", 0, 100),
        host("aten::t", 10, 20),
        host("aten::mm", 60, 20),
    ]
    assert us(events, "op:aten::t x0") == (100, 80)
    assert us(events, "op:aten::linear x0.5") == (100, 50)
    assert us(events, "op:aten::t x0", "op:aten::linear x0.5") == (100, 40)


def test_exact_names_come_first(us: Us) -> None:
    events = [host("aten::mm", 0, 100), host("aten::mm_out", 100, 50)]
    assert us(events, "op:aten::mm x0") == (150, 50)
    assert us(events, "op:mm x0") == (150, 0)


def test_python_change_shortens_time_between_ops(us: Us) -> None:
    """Between ops and calls, where no frames were recorded."""
    events = [host("aten::mm", 0, 100), host("aten::mm", 150, 100)]
    assert us(events, "python x0.5") == (250, 225)


def test_time_between_ops_on_the_backward_thread_is_no_python(us: Us) -> None:
    """Thread 2 runs backward 30-130, of which 30-50 and 60-130 are ops; thread 1 waits
    for it. The 10 before it, and the 10 after it, are thread 1's own."""
    node = "autograd::engine::evaluate_function: MmBackward0"
    events = [event for event in backward() if event["name"] != node]
    for event in events:
        if event["name"] == "cudaLaunchKernel" and event["ts"] == 120:
            event["tid"] = 2
    events += [host(node, 30, 20, tid=2), host(node, 60, 70, tid=2)]
    assert us(events, "python x0") == (165, 145)


def test_python_change_keeps_ops_and_waits_inside_frames(us: Us) -> None:
    """A frame of 100 with an op of 40 in it, then one that waits for 50: a lock is as
    it was."""
    frames = [host("a.py(1): f", 0, 100, "python_function"), host("aten::mm", 20, 40)]
    events = [*frames, host("<built-in method acquire of", 100, 50, "python_function")]
    assert us(events, "python x0.5") == (150, 120)
    assert us(events, "python:a.py x0.5") == (150, 100)


def test_op_change_applies_to_runtime_calls(us: Us) -> None:
    events = [
        host("aten::empty", 0, 10),
        call("cudaMalloc", 10, 30),
        *launched(50, 55, 50, 1),
    ]
    assert us(events, "op:cudaMalloc x0.5") == (105, 90)
    freed = [
        *launched(0, 5, 50, 1),
        call("cudaFree", 10, 100, 2),
        *launched(120, 125, 50, 3),
    ]
    assert us(freed, "op:cudaFree x0") == (175, 5 + 50 + 50)


def two_streams() -> list[Event]:
    """A kernel of 100 on stream 7; one of stream 8 waits for it by an event until
    106."""
    on_8 = {"tid": 8, "args": {"correlation": 2, "device": 0, "stream": 8}}
    waits = {
        "stream": 8,
        "wait_on_stream": 7,
        "wait_on_cuda_event_record_corr_id": 3,
        "correlation": 4,
    }
    return [
        *launched(0, 5, 100, 1),
        call("cudaEventRecord", 4, 1, 3),
        call("cudaStreamWaitEvent", 6, 1, 4),
        host("Stream Wait Event", 6, 1, "cuda_sync", pid=0, tid=8, args=waits),
        *launched(10, 106, 10, 2, **on_8),
    ]


def test_event_between_streams_still_orders_their_work(us: Us) -> None:
    """1 from the event to the start stays."""
    assert us(two_streams(), "kernel:k x0.5") == (116, 5 + 50 + 1 + 5)


def test_an_event_that_is_not_recorded(us: Us) -> None:
    """It is inferred from the call, of the first of a stream too; without that nothing
    is known of most of the time."""
    events = [event for event in two_streams() if event["cat"] != "cuda_sync"]
    assert us(events, "kernel:k x0.5") == (116, 5 + 50 + 1 + 5)
    events = [event for event in events if event["name"] != "cudaStreamWaitEvent"]
    assert us(events, "kernel:k x0.5")[1] is None


def test_items_that_overlap_on_a_stream(us: Us) -> None:
    """Programmatic dependent launch: the second starts 20 before the first ends, and
    works 30 after that."""
    events = [*launched(0, 5, 100, 1, name="a"), *launched(4, 85, 50, 2, name="b")]
    assert us(events, "kernel:a x0.5") == (135, 5 + 50 - 20 + 50)
    assert us(events, "kernel:b x0") == (135, 105)


def test_a_residual_goes_with_its_cause(us: Us) -> None:
    """3 that nothing explains between two kernels go with the first of them."""
    first = [host("aten::add", 0, 4), *launched(0, 5, 500, 1)]
    events = [*first, host("aten::mul", 4, 10), *launched(6, 508, 500, 2)]
    events += [*launched(9, 1008, 500, 3), *launched(11, 1508, 500, 4)]
    assert us(events, "op:aten::add x0") == (2008, 2 + 5 + 1500)
    assert us(events, "kernel:/./ x0.5") == (2008, 5 + 250 + 3 + 750)


def full_queue() -> list[Event]:
    """Room for two: from the third on, a launch call lasts until a kernel of 100
    ends."""
    events = [*launched(0, 5, 100, 1), *launched(2, 105, 100, 2)]
    for n in range(6):
        at = 4 if not n else 6 + 100 * n
        events.append(call("cudaLaunchKernel", at, 106 + 100 * n - at, 3 + n))
        events.append(kernel(205 + 100 * n, 100, 3 + n))
    return [*events, host("aten::item", 606, 600)]


def test_launch_into_a_full_queue_waits_for_room(us: Us) -> None:
    """The last launch returns 1 after the sixth of eight kernels has ended; then 600 of
    an op."""
    assert us(full_queue(), "kernel:k x0.5") == (1206, 5 + 6 * 50 + 1 + 600)


def test_long_launch_calls_keep_their_own_time(trace_of: Callable[..., Any]) -> None:
    graph = build_graph(trace_of(gpu_bound()))
    calls = graph.nodes(Node.LAUNCH)
    assert (graph.source[1, calls] == 0).all()


def backward() -> list[Event]:
    """Forward 0-20 on thread 1, backward 30-130 on thread 2, which thread 1 waits for,
    then an optimizer 140-160."""
    node = "autograd::engine::evaluate_function: MmBackward0"
    return [
        host("aten::mm", 0, 20),
        *launched(10, 15, 10, 1),
        host(node, 30, 100, tid=2),
        *launched(120, 125, 10, 2),
        host("aten::add_", 140, 20),
        *launched(150, 155, 10, 3),
    ]


def test_backward_runs_on_a_thread_of_its_own(us: Us) -> None:
    events = backward()
    for event in events:
        if event["name"] == "cudaLaunchKernel" and event["ts"] == 120:
            event["tid"] = 2
    assert us(events, "op:/MmBackward/ x0.5") == (165, 165 - (90 + 8) / 2)
    assert us(events, "op:aten::mm x0") == (165, 145)


def looped() -> list[Event]:
    """Three steps of 100: 60 to load a batch, an op of 40, and a kernel that ends with
    it."""
    events = []
    for n in range(3):
        at = 100 * n
        loads = host("enumerate(DataLoader)#X.__next__", at, 60, "user_annotation")
        events += [step(n, at, 100), loads, host("aten::mm", at + 60, 40)]
        events += launched(at + 70, at + 75, 25, n + 1)
    return events


def test_op_change_reports_the_median_step(asked: Ask) -> None:
    found = asked(looped(), "op:aten::mm x0.5")
    assert found.of == "step"
    assert [one.before_ns for one in found.steps] == [100_000] * 3
    assert found.after_ns == 81_000  # the launch call keeps its 2


def test_loader_change_moves_loading_beside_the_thread(us: Us) -> None:
    """The loader is the limit then; with two workers every second batch is, each 80
    apart."""
    assert us(looped(), "loader") == (100, 60)


def test_a_single_batch_tells_nothing_of_a_loader(us: Us) -> None:
    with pytest.raises(WrongChangeError, match="Only one batch is loaded"):
        us(looped()[: len(looped()) // 3], "loader")


def test_loader_with_three_workers_hides_loading(asked: Ask) -> None:
    found = asked(looped(), "loader:workers=3")
    assert [one.after_ns for one in found.steps] == [100_000, 40_000, 40_000]


def test_graph_change_replaces_launches_by_one_call(us: Us) -> None:
    """One call of 10, as nothing tells what it takes, then five kernels from 5 on."""
    assert us(gpu_bound(), "graph") == (255, 255)
    assert us(host_bound(), "graph") == (103, 15 + 10 + 5 + 5)


def test_a_graph_cannot_wait(us: Us) -> None:
    with pytest.raises(
        WrongChangeError, match="cudaStreamSynchronize runs between its launches"
    ):
        us(synced(), "graph")


@pytest.mark.parametrize(
    "change",
    [
        "kernel:nothing x0.5",
        "op:nothing x0",
        "module:M x0",
        "comm x0",
        "overlap",
        "loader",
        "fuse",
    ],
)
def test_change_that_matches_nothing_is_refused(us: Us, change: str) -> None:
    with pytest.raises(NoMatchError, match=r"\.$"):
        us(gpu_bound(), change)


@pytest.mark.parametrize(
    "text", ["", "kernel:k", "kernel:k x-1", "loader:workers=0", "op:a 4us"]
)
def test_text_that_is_no_change_is_refused(text: str) -> None:
    with pytest.raises(WrongChangeError):
        parse_change(text)


def test_replay_without_a_change_equals_the_recording(
    trace_of: Callable[..., Any],
) -> None:
    trace = trace_of([*host_bound(), *two_streams()])
    graph = build_graph(trace)
    assert replay(graph).end.tolist() == graph.ended.tolist()


def test_workers_do_not_hurry(us: Us) -> None:
    """Three batches: the first is there after 10 us, the thread waits for the others
    for 90 and 100 ms, so that a faster op only waits longer, but for the last one."""
    events = []
    for at, lasted in ((0, 10), (60, 90_000), (90_110, 100_000)):
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        events += [
            host(name, at, lasted, "user_annotation"),
            host("aten::mm", at + lasted, 50),
        ]
    assert us(events, "op:aten::mm x0.5") == (190_160, 190_135)


def test_fuse_of_an_event_that_is_no_kernel_finds_nothing() -> None:
    """Event 0 is no kernel of the three fusable runs of the trace."""
    trace = open_trace(str(lessons.path("mlp-eager")))
    assert len(find_fusable_runs(describe_kernels(trace)).ns) == 3
    with pytest.raises(NoMatchError, match="with event 0"):
        whatif(trace, ["fuse:0"])
