"""The table of slices beside the events of the file, read by Python's own json."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from fusetui.tables.sources import trace_table
from fusetui.trace import open_trace

Make = Callable[..., Any]


def test_slices_are_the_events(any_trace: Path) -> None:
    """Name, category, start, duration and correlation of each complete event with a
    lane."""
    document = json.loads(gzip.decompress(any_trace.read_bytes()), parse_float=Decimal)
    events = [
        one for one in document["traceEvents"] if one.get("ph") == "X" and "dur" in one
    ]
    if {one["ph"] for one in document["traceEvents"]} & {"B", "E"}:
        pytest.skip("has events that begin and end on their own")
    first = min(int(one["ts"] * 1000) for one in events)
    wanted = Counter(
        (
            one["name"],
            one.get("cat", ""),
            int(one["ts"] * 1000) - first,
            int(one["dur"] * 1000),
        )
        for one in events
    )
    rows = trace_table("slices", open_trace(str(any_trace)))
    found = Counter(
        (row["name"], row["category"], row["start_ns"], row["dur_ns"]) for row in rows
    )
    assert found == wanted


def test_kernels_are_the_events(any_trace: Path) -> None:
    """The count and the sum of the durations of each name."""
    document = json.loads(gzip.decompress(any_trace.read_bytes()), parse_float=Decimal)
    counts, sums = Counter[str](), Counter[str]()
    for one in document["traceEvents"]:
        if one.get("ph") == "X" and one.get("cat", "").lower() == "kernel":
            counts[one["name"]] += 1
            sums[one["name"]] += int(one["dur"] * 1000)
    rows = [*trace_table("kernels", open_trace(str(any_trace)))]
    assert {row["name"]: row["count"] for row in rows} == counts
    assert {row["name"]: row["total_ns"] for row in rows} == sums


def test_slice_row_has_op_step_launch_and_lane(
    trace_of: Make, event: Make, launched: Make
) -> None:
    step = event("ProfilerStep#7", 0, 100, cat="user_annotation")
    gemm = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
    op = event("aten::mm", 5, 20)
    rows = [
        *trace_table("slices", trace_of([step, op, *launched(1, 10, 120, 30, gemm)]))
    ]
    of = {row["name"]: row for row in rows}
    call, kernel = of["cudaLaunchKernel"], of[gemm]
    assert rows[kernel["launch"]] == call
    assert rows[call["parent"]] == of["aten::mm"]
    assert (kernel["op"], kernel["step"], kernel["kernel_op"]) == (
        "aten::mm",
        7,
        "gemm",
    )
    assert (kernel["device"], kernel["stream"], kernel["thread"]) == ("0", "7", None)
    assert (call["process"], call["thread"], call["stream"]) == ("1", "1", None)
    assert (call["launch"], call["family"], of["ProfilerStep#7"]["parent"]) == (
        None,
        None,
        None,
    )
    assert (kernel["start_ns"], kernel["dur_ns"]) == (120_000, 30_000)
