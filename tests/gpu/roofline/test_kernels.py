"""Which kernel of an op did its work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fusetui.gpu.roofline.row import work_of

Make = Callable[..., Any]
GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
REDUCE = (
    "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, "
    "__nv_bfloat16, false, false, false>(cublasLt::cublasSplitKParams<float>, float const*)"
)
FILL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
    "at::detail::Array<char*, 1> >(int, at::native::FillFunctor<float>, "
    "at::detail::Array<char*, 1>)"
)

HUGE = [[2**62] * 30, [2**62] * 30]


@pytest.fixture
def attributed(op_trace: Make, tensor: Make) -> Callable[..., list[bool]]:
    """For each kernel under one product, whether it gets the work of the op."""

    def make(*kernels: str, **more: Any) -> list[bool]:
        trace = op_trace("aten::mm", [tensor(64, 32), tensor(32, 16)], *kernels, **more)
        return [work_of(trace, int(row)) is not None for row in trace.gpu_rows]

    return make


def test_the_only_kernel_of_an_op_did_its_work_unless_it_fills(
    attributed: Make,
) -> None:
    assert attributed(GEMM) == [True]
    assert attributed("a_kernel_of_our_own") == [True]
    assert attributed(FILL) == [False]


def test_the_product_among_helpers_did_the_work_of_its_op(attributed: Make) -> None:
    assert attributed(GEMM, REDUCE) == [True, False]
    assert attributed(FILL, GEMM, "helper") == [False, True, False]


def test_no_one_when_it_is_not_certain(attributed: Make) -> None:
    assert attributed(GEMM, GEMM) == [False, False]
    assert attributed("helper", "another") == [False, False]


def test_graph_launches_say_nothing(attributed: Make) -> None:
    assert attributed(GEMM, call="cudaGraphLaunch") == [False]
    assert attributed(GEMM, call="hipGraphLaunch") == [False]


def test_no_shapes_no_work(op_trace: Make, tensor: Make) -> None:
    inputs = [tensor(64, 32), tensor(32, 16)]
    for dims in (
        None,
        [],
        "[[64, 32], [32, 16]]",
        [3, 4],
        [[64, -2], [32, 16]],
        [["a"], {}],
        HUGE,
    ):
        trace = op_trace("aten::mm", inputs, GEMM, more={"Input Dims": dims})
        assert work_of(trace, int(trace.gpu_rows[0])) is None


def test_cpu_rows_have_none(op_trace: Make, tensor: Make) -> None:
    trace = op_trace("aten::mm", [tensor(64, 32), tensor(32, 16)], GEMM)
    assert [work_of(trace, row) for row in range(2)] == [None, None]
