"""Kernels per step, counted in small traces written by hand."""

import json
from typing import Any

import pytest

from fusetui.capture.count import kernels_of

STEP = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#2", "ts": 0, "dur": 100}


def op(name: str, ts: float, dur: float, tid: int = 1) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "tid": tid, "ts": ts, "dur": dur}


def kernel(name: str) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": name, "tid": 7, "ts": 0, "dur": 1}


def count(*events: dict[str, Any], device_kind: str = "cpu") -> float:
    return kernels_of(json.dumps({"traceEvents": events}), device_kind).per_step


def test_an_op_that_calls_another_counts_once() -> None:
    assert count(STEP, op("aten::linear", 0, 10), op("aten::mm", 2, 8)) == 1


def test_ops_side_by_side_count_each() -> None:
    assert count(STEP, op("aten::gelu", 0, 4), op("aten::mul", 4, 4)) == 2


def test_views_and_allocations_do_not_count() -> None:
    assert count(STEP, op("aten::t", 0, 1), op("aten::empty", 2, 1), op("aten::mm", 4, 1)) == 1


def test_an_op_with_only_views_inside_is_a_compute_op() -> None:
    assert count(STEP, op("aten::mm", 0, 10), op("aten::resolve_conj", 1, 1)) == 1


def test_the_frames_of_torch_compile_do_not_count() -> None:
    assert (
        count(STEP, op("TorchDynamo Cache Lookup", 0, 1), op("graph_0_cpp_fused_mul_0", 2, 1)) == 1
    )


def test_threads_are_nested_each_for_itself() -> None:
    assert count(STEP, op("aten::mm", 0, 10, tid=1), op("aten::mm", 2, 3, tid=2)) == 2


def test_on_a_gpu_kernels_count_and_ops_do_not() -> None:
    assert count(STEP, op("aten::mm", 0, 10), kernel("a"), kernel("b"), device_kind="cuda") == 2


def test_steps_on_gpu_lanes_are_not_steps() -> None:
    twin = {**STEP, "cat": "gpu_user_annotation"}
    assert count(STEP, twin, op("aten::mm", 0, 1)) == 1


def test_unequal_steps_give_a_fraction() -> None:
    assert count(STEP, {**STEP, "name": "ProfilerStep#3"}, op("aten::mm", 0, 1)) == 0.5


def test_neighbours_one_nanosecond_apart_stay_neighbours() -> None:
    first, second = op("aten::mul", 4365912618404.96, 0.001), op("aten::add", 4365912618404.961, 1)
    assert count(STEP, first, second) == 2


def test_the_copy_of_a_bias_is_a_part_of_the_product() -> None:
    ops = op("aten::linear", 0, 10), op("aten::addmm", 1, 8), op("aten::copy_", 2, 3)
    assert count(STEP, *ops, op("aten::copy_", 11, 1)) == 2


@pytest.mark.parametrize("name", ["MmBackward0", "detach", "torch::autograd::AccumulateGrad"])
def test_the_frames_of_autograd_do_not_count(name: str) -> None:
    assert count(STEP, op(name, 0, 10), op("aten::mm", 20, 1)) == 1
