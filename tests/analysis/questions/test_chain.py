"""From a kernel back to the program, and forward again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fusetui.analysis.questions.chain import (
    find_launch_chain,
    find_launched_gpu_rows,
    measure_launch_latency_ns,
    measure_queue_delay_ns,
    sum_launched_gpu_rows,
)
from fusetui.trace import Trace

Make = Callable[..., Any]


def row(trace: Trace, name: str) -> int:
    return next(n for n in range(len(trace)) if trace.name_of(n) == name)


def test_launch_chain_of_a_kernel_goes_to_call_op_and_annotation(
    trace_of: Make, event: Make, launched: Make
) -> None:
    note = event("mlp_fwd", 0, 100, cat="user_annotation")
    trace = trace_of([note, event("aten::mm", 5, 30), *launched(1, 10, 20)])
    names = [trace.name_of(n) for n in find_launch_chain(trace, row(trace, "k"))]
    assert names == ["cudaLaunchKernel", "aten::mm", "mlp_fwd"]
    under = find_launched_gpu_rows(trace, row(trace, "aten::mm"))
    assert [trace.name_of(int(n)) for n in under] == ["k"]


def test_launch_not_recorded(trace_of: Make, event: Make) -> None:
    trace = trace_of([event("k", cat="kernel", pid=0, tid=7)])
    assert find_launch_chain(trace, 0) == []
    assert measure_launch_latency_ns(trace, 0) is None
    assert measure_queue_delay_ns(trace, 0) is None


def test_launch_latency_and_queue_delay_add_up_before_a_kernel(
    trace_of: Make, launched: Make
) -> None:
    trace = trace_of(
        [*launched(1, 0, 10, dur=40, name="a"), *launched(2, 20, 50, name="b")]
    )
    assert measure_launch_latency_ns(trace, row(trace, "b")) == 30_000
    # behind a, from the call's end on
    assert measure_queue_delay_ns(trace, row(trace, "b")) == 28_000
    assert measure_queue_delay_ns(trace, row(trace, "a")) == 0


def test_kernels_launched_during_an_annotation_are_listed(
    trace_of: Make, event: Make, launched: Make
) -> None:
    """A call of another thread, one before it and one at its end do not count."""
    inside = [*launched(1, 10, 40, dur=5), *launched(2, 20, 60, dur=7, name="b")]
    early, late = launched(3, 0, 80), launched(4, 30, 90)
    other = [
        {**one, "tid": 2} if one["cat"] == "cuda_runtime" else one
        for one in launched(5, 12, 70)
    ]
    note = event("note", 10, 20, cat="user_annotation")
    trace = trace_of([note, *inside, *early, *late, *other])
    under = find_launched_gpu_rows(trace, row(trace, "note"))
    assert [trace.name_of(int(n)) for n in under] == ["k", "b"]
    assert sum_launched_gpu_rows(trace, row(trace, "note")) == (2, 2, 12_000)


def test_sums_are_those_of_the_events(
    trace_of: Make, event: Make, launched: Make
) -> None:
    ops = [event(f"op{n}", 10 * n, 9) for n in range(5)]
    trace = trace_of(
        [*ops, *(e for n in range(5) for e in launched(n + 1, 10 * n + 1, 100 + n))]
    )
    for op in range(5):
        under = find_launched_gpu_rows(trace, row(trace, f"op{op}"))
        ns = int(trace.dur[under].sum())
        assert sum_launched_gpu_rows(trace, row(trace, f"op{op}")) == (
            len(under),
            len(under),
            ns,
        )
