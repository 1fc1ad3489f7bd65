"""Kernels per step by kind, counted in small hand-written traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fusetui.analysis.questions.computing import count_kinds_by_step
from fusetui.gpu.kinds import kinds
from fusetui.trace import Trace

Event = dict[str, Any]
Open = Callable[..., Trace]

GELU = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl("
    "at::TensorIteratorBase&, at::native::GeluType)::{lambda()#1}::operator()() const::"
    "{lambda()#4}::operator()() const::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul> >"
    "(int, at::native::GeluCUDAKernelImpl, std::array<char*, 2ul>)"
)


def step(number: int, ts: int, **more: Any) -> Event:
    plain = {"ph": "X", "cat": "user_annotation", "pid": 1, "tid": 1, "dur": 100}
    return {**plain, "name": f"ProfilerStep#{number}", "ts": ts, **more}


def test_cpu_ops_belong_to_the_step_in_which_they_start(
    trace_of: Open, event: Callable[..., Event]
) -> None:
    steps = step(1, 0), step(2, 100)
    ops = [event("aten::mm", ts, 5) for ts in (0, 50, 99, 100)]
    counted = count_kinds_by_step(trace_of([*steps, *ops]))
    assert counted.steps == ("ProfilerStep#1", "ProfilerStep#2")
    assert not counted.on_gpu
    assert counted.counts_of_kind("kernels") == counted.counts_of_kind("gemm") == (3, 1)
    assert counted.mean_per_step("gemm") == 2
    assert counted.first_steps(1).mean_per_step("gemm") == 3


def test_kernels_belong_to_the_step_that_launched_them(
    trace_of: Open, launched: Callable[..., list[Event]]
) -> None:
    events = [*launched(1, 10, 50), *launched(2, 20, 150), *launched(3, 110, 170)]
    counted = count_kinds_by_step(trace_of([step(1, 0), step(2, 100), *events]))
    assert counted.on_gpu
    assert counted.counts_of_kind("kernels") == (2, 1)
    assert counted.mean_per_step("kernels") == 1.5


def test_on_a_gpu_ops_do_not_count(
    trace_of: Open, event: Callable[..., Event], launched: Callable[..., list[Event]]
) -> None:
    counted = count_kinds_by_step(
        trace_of([step(1, 0), event("aten::mm", 5, 20), *launched(1, 10, 50)])
    )
    assert counted.counts_of_kind("kernels") == (1,)


def test_copies_and_sets_are_no_kernels(
    trace_of: Open, event: Callable[..., Event]
) -> None:
    place = {"pid": 0, "tid": 7}
    categories = ("kernel", "gpu_memcpy", "gpu_memcpy", "gpu_memset")
    events = [event("k", 10 * n, cat=cat, **place) for n, cat in enumerate(categories)]
    counted = count_kinds_by_step(trace_of(events))
    assert counted.steps == ()
    assert [
        counted.counts_of_kind(kind) for kind in ("kernels", "memcpy", "memset")
    ] == [
        (1,),
        (2,),
        (1,),
    ]


def test_steps_on_gpu_lanes_are_not_steps(
    trace_of: Open, event: Callable[..., Event]
) -> None:
    twin = step(1, 0, cat="gpu_user_annotation", pid=0, tid=7)
    assert (
        len(
            count_kinds_by_step(
                trace_of([step(1, 0), twin, event("aten::mm", 5)])
            ).steps
        )
        == 1
    )


def test_an_empty_trace_has_nothing(trace_of: Open) -> None:
    assert count_kinds_by_step(trace_of([])).mean_per_step("kernels") == 0


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::mm", "gemm"),
        ("aten::addmm", "gemm"),
        ("aten::addmm_", "gemm"),
        ("mkldnn::_linear_pointwise", "unknown"),
        ("aten::gelu", "pointwise"),
        ("aten::native_layer_norm", "norm"),
        ("aten::sum", "reduction"),
        ("aten::cat", "copy"),
        ("graph_0_cpp_fused_gelu_mul_0", "pointwise"),
        ("graph_1_cpp_fused_native_layer_norm_tanh_2", "reduction"),
        ("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT", "gemm"),
        ("triton_poi_fused_gelu_mul_0", "pointwise"),
        ("triton_per_fused_native_layer_norm_0", "reduction"),
        (GELU, "pointwise"),
        ("geglu_forward_kernel_triton", "pointwise"),
        ("geglu_gemm_kernel_triton", "gemm"),
        ("grouped_gemm_kernel_triton", "gemm"),
        ("my_kernel", "unknown"),
        ("aten::" + "_linear" * 20_000 + "!", "unknown"),
        ("cpp_fused_" + "1" * 20_000 + "!", "unknown"),
    ],
)
def test_a_kernel_counts_as_its_kind(name: str, kind: str) -> None:
    assert kind in kinds(name)
