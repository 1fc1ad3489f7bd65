"""Totals by name, self time, and the GPU time under an op."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

from fusetui.analysis.questions.totals import (
    measure_self_ns,
    sum_gpu_work_under_rows,
    sum_kernels_by_name,
    sum_ops_by_name,
)

Make = Callable[..., Any]


def test_kernel_totals_are_sorted_with_count_and_sum(
    trace_of: Make, event: Make
) -> None:
    durations = [3, 1, 2, 4]
    kernels = [
        event("k", 10 * n, dur, cat="kernel", pid=0, tid=7)
        for n, dur in enumerate(durations)
    ]
    other = event("big", 100, 99, cat="Kernel", pid=0, tid=7)
    copy = event("Memcpy", 300, 500, cat="gpu_memcpy", pid=0, tid=7)
    big, small = sum_kernels_by_name(trace_of([*kernels, other, copy]))
    assert (big.name, big.count, big.total_ns) == ("big", 1, 99_000)
    assert (small.count, small.total_ns) == (4, 10_000)
    assert (small.min_ns, small.median_ns, small.max_ns) == (1000, 2500, 4000)
    assert len(small.rows) == 4


def test_equal_totals_come_by_name(trace_of: Make, event: Make) -> None:
    kernels = [
        event(name, 0, 5, cat="kernel", pid=0, tid=n) for n, name in enumerate("zab")
    ]
    assert [total.name for total in sum_kernels_by_name(trace_of(kernels))] == [
        "a",
        "b",
        "z",
    ]


def test_names_without_number_take_little_memory(trace_of: Make, event: Make) -> None:
    """Only the totals that are looked at are made."""
    names = 20_000
    kernels = [
        event(f"kernel {n}", 10 * n, 5, cat="kernel", pid=0, tid=7)
        for n in range(names)
    ]
    trace = trace_of(kernels)
    tracemalloc.start()
    totals = sum_kernels_by_name(trace)
    largest = totals[:5]
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(totals), totals.total_ns) == (names, 5_000 * names)
    assert [total.name for total in largest[:2]] == ["kernel 0", "kernel 1"]
    assert peak_bytes < 350 * names


def test_empty_trace_has_no_totals(trace_of: Make) -> None:
    trace = trace_of([])
    assert not sum_kernels_by_name(trace)
    assert not sum_ops_by_name(trace)


def test_recursion_counts_once(trace_of: Make, event: Make, launched: Make) -> None:
    trace = trace_of(
        [
            event("aten::to", 0, 100),
            event("aten::copy", 10, 80),
            event("aten::to", 20, 60),
            *launched(1, 30, 200, dur=7),
        ]
    )
    totals = {op.name: op for op in sum_ops_by_name(trace)}
    outer = totals["aten::to"]
    assert (outer.count, outer.total_ns) == (2, 100_000)
    assert outer.self_ns == (100 - 80 + 60 - 2) * 1000
    assert (outer.gpu_ns, outer.kernels) == (7000, 1)
    assert totals["aten::copy"].self_ns == 20_000
    assert totals["aten::copy"].gpu_ns == 7000


def test_gpu_time_under_an_op_is_that_of_all_it_launched(
    trace_of: Make, event: Make, launched: Make
) -> None:
    ops = [event("outer", 0, 100), event("inner", 10, 20), event("idle", 50, 5)]
    copy_call = event(
        "cudaMemcpyAsync", 40, 2, cat="cuda_runtime", args={"correlation": 8}
    )
    copy = event(
        "Memcpy", 400, 50, cat="gpu_memcpy", pid=0, tid=7, args={"correlation": 8}
    )
    trace = trace_of([*ops, *launched(1, 12, 200), copy_call, copy])
    gpu_ns, kernels = sum_gpu_work_under_rows(trace)
    rows = {trace.name_of(n): n for n in range(len(trace))}
    assert gpu_ns[[rows["outer"], rows["inner"], rows["idle"]]].tolist() == [
        60_000,
        10_000,
        0,
    ]
    assert kernels[[rows["outer"], rows["inner"]]].tolist() == [1, 1]


def test_self_time_excludes_children(trace_of: Make, event: Make) -> None:
    trace = trace_of(
        [event("a", 0, 10), event("b", 1, 3), event("c", 2, 1), event("d", 5, 5)]
    )
    assert measure_self_ns(trace).tolist() == [2000, 2000, 1000, 5000]
