"""The critical path in rows that add up, and what has time to spare. Times are in
us."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.analysis.replay.conftest import Ask
from tests.analysis.replay.events import call, host, kernel, launched, step
from tests.analysis.replay.test_changes import (
    gpu_bound,
    host_bound,
    looped,
    synced,
    two_streams,
)

from fusetui.analysis.replay.apply import apply_changes
from fusetui.analysis.replay.build import build_graph
from fusetui.analysis.replay.changes import parse_change
from fusetui.analysis.replay.graph import Node
from fusetui.analysis.replay.path import Path, path
from fusetui.analysis.replay.replay import replay
from fusetui.analysis.replay.route import measure_slack
from fusetui.analysis.replay.times import (
    compute_slice_times,
    find_step_ends,
    measure_step_bounds,
)
from fusetui.trace import Trace

Make = Callable[..., Trace]


def rows(found: Path) -> dict[tuple[str, str], float]:
    assert sum(row.ns for row in found.rows) == found.span_ns
    return {(row.kind, row.what): row.ns / 1000 for row in found.rows}


def test_critical_path_of_a_host_bound_trace_is_ops_and_launches(
    trace_of: Make,
) -> None:
    """15 of the last op before its launch, then 5 of latency and the kernel."""
    found = path(trace_of(host_bound()))
    assert rows(found) == {
        ("host", "aten::add"): 4 * 18 + 15,
        ("launch", "cudaLaunchKernel"): 4 * 2,
        ("launch", ""): 5,
        ("kernel", "k"): 3,
    }


def test_critical_path_of_a_gpu_bound_trace_is_its_kernels(trace_of: Make) -> None:
    assert rows(path(trace_of(gpu_bound()))) == {
        ("launch", ""): 5,
        ("kernel", "k"): 250,
    }


def test_a_path_through_a_wait(trace_of: Make) -> None:
    assert rows(path(trace_of(synced()))) == {
        ("launch", ""): 10,
        ("kernel", "k"): 100,
        ("wait", "cudaStreamSynchronize"): 3,
        ("host", "aten::item"): 40,
    }


def test_critical_path_counts_overlapping_work_once(trace_of: Make) -> None:
    events = [*launched(0, 5, 100, 1, name="a"), *launched(4, 85, 50, 2, name="b")]
    assert rows(path(trace_of(events))) == {
        ("launch", ""): 5,
        ("kernel", "a"): 80,
        ("kernel", "b"): 50,
    }


def test_critical_path_lists_unexplained_time(trace_of: Make) -> None:
    """A kernel that waits 400 for nothing that was recorded, after one that tells the
    latency."""
    events = [*launched(0, 5, 10, 1), *launched(20, 425, 100, 2)]
    found = path(trace_of(events))
    assert rows(found)["residual", ""] == 400
    assert found.residual_share == pytest.approx(400 / 525)


def test_critical_path_with_many_names_keeps_its_sum_in_12_rows(trace_of: Make) -> None:
    events = [host("aten::mm", 0, 20)]
    for n in range(30):
        events += launched(n, 5 + 50 * n, 50 - n % 2, n + 1, name=f"k{n}")
    found = path(trace_of(events))
    assert len(found.rows) == 12
    assert sum(row.ns for row in found.rows) == found.span_ns
    assert {row.kind for row in found.rows} == {"kernel", "launch", "residual"}


def test_critical_path_shows_own_time_of_ops_and_unrecorded_time(
    trace_of: Make,
) -> None:
    """An op that contains another one: what lies between is its own; then nothing."""
    events = [
        host("aten::linear", 0, 100),
        host("aten::mm", 20, 30),
        host("aten::t", 150, 10),
    ]
    assert rows(path(trace_of(events))) == {
        ("host", "aten::linear"): 70,
        ("host", "aten::mm"): 30,
        ("host", "aten::t"): 10,
        ("host", ""): 50,
    }


def test_time_to_spare_of_a_slice(trace_of: Make) -> None:
    """Of two streams that end at 105 and 65, behind which nothing waits."""
    trace = trace_of([*launched(0, 5, 100, 1), *launched(4, 15, 50, 2, tid=8)])
    graph = build_graph(trace)
    slack = measure_slack(graph, graph.recorded)
    items = graph.nodes(Node.GPU_TASK)
    assert sorted(slack[items].tolist()) == [0, 40_000]


def test_time_to_spare_of_a_family(trace_of: Make) -> None:
    """Two kernels of 10 and 30 on a stream that ends at 60, beside one of 100 to
    105."""
    name = "ampere_sgemm_128x64_nn"
    events = [*launched(0, 5, 100, 1)]
    events += [
        *launched(4, 10, 10, 2, tid=8, name=name),
        *launched(8, 30, 30, 3, tid=8, name=name),
    ]
    found = {
        one.what: one.ns for one in path(trace_of(events)).slack if one.kind == "kernel"
    }
    assert found["k"] == 0
    assert found["gemm"] == pytest.approx(55_000, abs=10_000)


def test_steps_end_with_their_work(trace_of: Make) -> None:
    events = [
        step(1, 0, 50),
        step(2, 50, 50),
        *launched(10, 15, 60, 1),
        *launched(60, 75, 5, 2),
    ]
    trace = trace_of(events)
    graph = build_graph(trace)
    bounds = measure_step_bounds(graph, graph.recorded, find_step_ends(trace, graph))
    assert bounds.tolist() == [0, 75_000, 100_000]


def test_where_slices_would_be(trace_of: Make) -> None:
    """The second op starts when the first, which takes half the time, has ended."""
    trace = trace_of([host("aten::mm", 0, 100), host("aten::add", 100, 20)])
    graph, _ = apply_changes(
        trace, build_graph(trace), [parse_change("op:aten::mm x0.5")]
    )
    start, end = compute_slice_times(trace, graph, replay(graph))
    assert start.tolist() == [0, 50_000]
    assert end.tolist() == [50_000, 70_000]


def test_limit_after_a_change_is_the_path_of_the_replay(asked: Ask) -> None:
    """The loader takes 60 of each 60; of the steps but the first, the path begins with
    an op."""
    found = asked(looped(), "loader")
    assert found.limit[0].kind == "host"
    assert found.limit[0].what.startswith("enumerate(DataLoader)")
    assert found.limit[0].share > 0.5


def test_change_of_one_step_reports_that_step_alone(asked: Ask) -> None:
    found = asked(looped(), "op:aten::mm x0.5", step=2)
    assert [one.name for one in found.steps] == ["ProfilerStep#2"]
    assert found.after_ns == 81_000


def test_inferred_waits_are_counted(asked: Ask) -> None:
    assert asked(synced(), "kernel:k x1").inferred_waits == 1
    assert asked(two_streams(), "kernel:k x1").inferred_waits == 0


def test_a_wait_for_the_device_is_known(asked: Ask) -> None:
    events = [*launched(0, 5, 50, 1), call("cudaDeviceSynchronize", 10, 50, 9)]
    found = asked([*events, kernel(5, 20, 1, tid=8)], "kernel:k x0.5")
    assert found.inferred_waits == 0
    assert found.after_ns == 35_000
