"""The kernels of experts, by their own names or those of their ops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.analysis.servers import GEMM, call, cpu, gpu, opened

from fusetui.analysis.serving.experts import describe_experts
from fusetui.trace import Trace

Event = dict[str, Any]
GROUPED = "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1"


def layer(number: int, ns: int, kernel: str, op: str) -> list[Event]:
    """A norm, and a product of experts of so many ns."""
    at = 100 * number
    return [
        cpu(op, at, 50),
        call("hipLaunchKernel", at + 1, 2, 2 * number),
        gpu("my_rms_norm", at + 10, 1, 2 * number),
        call("hipLaunchKernel", at + 20, 2, 2 * number + 1),
        gpu(kernel, at + 30, ns / 1000, 2 * number + 1),
    ]


def layers(
    tmp_path: Path, *ns: int, kernel: str = GROUPED, op: str = "my::layer"
) -> Trace:
    events = [
        event for n, own in enumerate(ns, 1) for event in layer(n, own, kernel, op)
    ]
    return opened(tmp_path / "a.json", events)


def test_the_longest_run_against_the_median(tmp_path: Path) -> None:
    trace = layers(tmp_path, 10_000, 11_000, 19_000, 12_000)
    found = describe_experts(trace, trace.gpu_rows)
    assert found is not None
    assert (found.name, found.kernels, found.runs) == (GROUPED, 4, 4)
    assert (found.median_ns, found.max_ns, found.slowest) == (11_000, 19_000, 3)
    assert found.total_ns == 52_000
    assert found.share == pytest.approx(52 / 56)


def test_products_under_an_op_of_experts_are_those_of_experts(tmp_path: Path) -> None:
    trace = layers(
        tmp_path, 10_000, 11_000, 12_000, kernel=GEMM, op="vllm::moe_forward"
    )
    found = describe_experts(trace, trace.gpu_rows)
    assert found is not None
    assert (found.name, found.kernels) == (GEMM, 3)  # not the norms


def test_other_products_are_not_of_experts(tmp_path: Path) -> None:
    trace = layers(tmp_path, 10_000, 11_000, 12_000, kernel=GEMM)
    assert describe_experts(trace, trace.gpu_rows) is None


def test_two_runs_cannot_be_compared(tmp_path: Path) -> None:
    trace = layers(tmp_path, 10_000, 11_000)
    assert describe_experts(trace, trace.gpu_rows) is None
