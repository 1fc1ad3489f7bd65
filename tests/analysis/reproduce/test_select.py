"""Calls are found by op, kernel, row, module, and by their time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.recorded_ops import Event, kernel, op, tensor

from fusetui.analysis.reproduce.model import CallKind, Refusal
from fusetui.analysis.reproduce.select import (
    NothingToReproduceError,
    call_of_slice,
    calls_of_kernel,
    calls_of_module,
    calls_of_op,
    most_expensive_calls,
)
from fusetui.trace import Trace

TraceOf = Callable[..., Trace]
DEVICES = [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132}]
SMALL, LARGE = (tensor(8, 8), tensor(8, 8)), (tensor(64, 64), tensor(64, 64))


def products() -> list[Event]:
    """Three products of two sizes, each launching a kernel; one in a linear layer."""
    return [
        op("aten::mm", *SMALL, ts=0),
        *kernel("small_gemm", 1, 1, dur=5),
        op("aten::mm", *SMALL, ts=20),
        *kernel("small_gemm", 21, 2, dur=7),
        op("aten::linear", *LARGE, ts=40, dur=20),
        op("aten::mm", *LARGE, ts=45),
        *kernel("large_gemm", 46, 3, dur=50),
    ]


@pytest.fixture
def trace(trace_of: TraceOf) -> Trace:
    return trace_of(products(), deviceProperties=DEVICES)


@pytest.mark.parametrize("name", ["mm", "aten::mm"])
def test_by_op_the_largest_total_first(trace: Trace, name: str) -> None:
    large, small = calls_of_op(trace, name)
    assert (large.count, large.total_ns, large.kernels) == (1, 50_000, ("large_gemm",))
    assert (small.count, small.total_ns, small.median_ns) == (2, 12_000, 5_000)
    assert small.device == "NVIDIA H100 80GB HBM3"
    assert small.cost.flop == 2 * 8**3


def test_by_kernel_the_op_that_launched_it(trace: Trace) -> None:
    (call,) = calls_of_kernel(trace, "large")
    assert (call.op, call.kind) == ("aten::mm", CallKind.OP)


def test_a_kernel_without_an_op_has_no_script(
    trace_of: TraceOf, launched: Callable[..., list[Event]]
) -> None:
    (call,) = calls_of_kernel(trace_of(launched(1, 0, 5)), "k")
    assert call.refusal is Refusal.NO_OP


def test_by_row_of_an_op_a_launch_or_a_kernel(trace: Trace) -> None:
    names = [trace.name_of(row) for row in range(len(trace))]
    for name in ("small_gemm", "aten::mm"):
        call = call_of_slice(trace, names.index(name))
        assert (call.op, call.count) == ("aten::mm", 2)


def test_the_most_expensive_ones_by_their_own_time(trace: Trace) -> None:
    """The linear layer launches nothing itself."""
    calls = most_expensive_calls(trace, 10)
    assert [(call.op, call.own_ns) for call in calls] == [
        ("aten::mm", 50_000),
        ("aten::mm", 12_000),
    ]
    assert len(most_expensive_calls(trace, 1)) == 1


def test_by_module_its_outermost_ops_in_order(trace_of: TraceOf) -> None:
    module = {"cat": "python_function", "name": "nn.Module: Net_0", "ph": "X"}
    frame = {**module, "pid": 1, "tid": 1, "ts": 15, "dur": 60}
    found = calls_of_module(trace_of([frame, *products()]), "Net_*")
    assert found.name == "Net_0"
    assert [found.calls[number].op for number in found.order] == [
        "aten::mm",
        "aten::linear",
    ]


@pytest.mark.parametrize(
    ("find", "asked", "sentence"),
    [
        (calls_of_op, "aten::relu", "No op of this trace is named aten::relu"),
        (calls_of_kernel, "nothing", "No kernel of this trace matches nothing"),
        (calls_of_module, "Net", "No module or annotation of this trace is named Net"),
        (call_of_slice, 999, "There is no row 999"),
    ],
)
def test_what_is_not_there(
    trace: Trace, find: Callable[..., Any], asked: object, sentence: str
) -> None:
    with pytest.raises(NothingToReproduceError, match=sentence):
        find(trace, asked)


def test_a_backward_node_by_the_op_that_created_it(trace_of: TraceOf) -> None:
    forward = {"Sequence number": 3, "Fwd thread id": 0}
    backward = {"Sequence number": 3, "Fwd thread id": 1}
    trace = trace_of(
        [
            op("aten::mm", *SMALL, ts=0, **forward),
            op("MmBackward0", tensor(8, 8), ts=20, **backward),
            op("aten::mm", *SMALL, ts=22, dur=3),
        ]
    )
    (call,) = calls_of_op(trace, "MmBackward0")
    assert (call.kind, call.op, call.node) == (
        CallKind.BACKWARD,
        "aten::mm",
        "MmBackward0",
    )
    assert [inner.name for inner in call.inner] == ["aten::mm"]
    assert [gradient.shape for gradient in call.gradients] == [(8, 8)]


def test_a_backward_node_without_its_forward_op(trace_of: TraceOf) -> None:
    (call,) = calls_of_op(trace_of([op("MmBackward0", tensor(8, 8))]), "MmBackward0")
    assert call.refusal is Refusal.NO_FORWARD


def test_a_compiled_kernel_is_told_apart(trace_of: TraceOf) -> None:
    events = [op("triton_poi_fused_0", tensor(8)), *kernel("triton_poi_fused_0", 1, 1)]
    (call,) = calls_of_kernel(trace_of(events), "triton")
    assert call.kind is CallKind.COMPILED
