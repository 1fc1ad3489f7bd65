"""Matrix products: sizes, operations, bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusetui.gpu.roofline.inputs import Amount, Inputs, inputs_of
from fusetui.gpu.roofline.products import matmul
from fusetui.gpu.roofline.row import KernelJob, work_of
from fusetui.trace import Trace

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
Make = Callable[..., Any]


def work(trace: Trace, number: int = 0) -> Amount | None:
    return found.amount if (found := job(trace, number)) else None


def job(trace: Trace, number: int = 0) -> KernelJob | None:
    return work_of(trace, int(trace.gpu_rows[number]))


def test_mm_counts_sizes_flop_and_bytes(op_trace: Make, tensor: Make) -> None:
    done = job(
        op_trace("aten::mm", [tensor(8192, 768), tensor(768, 3072)], GEMM, us=190)
    )
    assert done is not None
    found = done.amount
    assert (found.m, found.n, found.k, found.batch) == (8192, 3072, 768, 1)
    assert found.flop == 2 * 8192 * 3072 * 768
    assert found.bytes == 2 * (8192 * 768 + 768 * 3072 + 8192 * 3072)
    assert done.limits.bound == "compute"
    assert done.limits.share(190_000) == pytest.approx(found.flop / 190e-6 / 312e12)


def test_addmm_reads_its_bias_unless_beta_is_zero(
    op_trace: Make, tensor: Make, scalar: Make
) -> None:
    for beta, bias in (("1", 2 * 30), ("0", 0)):
        inputs = [tensor(30), tensor(10, 20), tensor(20, 30), scalar(beta), scalar("1")]
        found = work(op_trace("aten::addmm", inputs, GEMM))
        assert found is not None
        assert found.flop == 2 * 10 * 20 * 30
        assert found.bytes == 2 * (200 + 600 + 300) + bias


def test_bmm_counts_each_matrix_of_the_batch(op_trace: Make, tensor: Make) -> None:
    found = work(op_trace("aten::bmm", [tensor(4, 10, 20), tensor(4, 20, 30)], GEMM))
    assert found is not None
    assert (found.batch, found.flop) == (4, 4 * 2 * 10 * 20 * 30)
    assert found.bytes == 4 * 2 * (200 + 600 + 300)


def test_one_matrix_for_the_whole_batch_is_read_once(
    op_trace: Make, tensor: Make
) -> None:
    strides = {"Input Strides": [[200, 20, 1], [0, 30, 1]]}
    inputs = [tensor(4, 10, 20), tensor(4, 20, 30)]
    found = work(op_trace("aten::bmm", inputs, GEMM, more=strides))
    assert found is not None
    assert found.bytes == 2 * (800 + 600 + 1200)
    done = job(op_trace("aten::bmm", inputs, GEMM, more={"Input Strides": None}))
    assert done is not None
    assert (done.amount.bytes, done.limits.bound) == (None, None)
    assert done.amount.flop == 48_000


def test_linear_has_its_weight_transposed(op_trace: Make, tensor: Make) -> None:
    inputs = [tensor(2, 5, 20), tensor(30, 20), tensor(30)]
    found = work(op_trace("aten::linear", inputs, GEMM))
    assert found is not None
    assert (found.m, found.n, found.k, found.batch) == (10, 30, 20, 1)
    assert found.bytes == 2 * (200 + 600 + 30 + 300)


def test_scaled_mm_writes_the_type_asked_for(
    op_trace: Make, tensor: Make, scalar: Make
) -> None:
    fp8, one = "c10::Float8_e4m3fn", tensor(1, 1, kind="float")
    inputs = [tensor(16, 32, kind=fp8), tensor(32, 64, kind=fp8), one, one]
    none = (None, "", "")
    found = work(op_trace("aten::_scaled_mm", [*inputs, none, none, scalar("15")], "k"))
    assert found is not None
    assert found.bytes == 16 * 32 + 32 * 64 + 4 + 4 + 2 * 16 * 64
    found = work(op_trace("aten::_scaled_mm", [*inputs, none, none, scalar("99")], "k"))
    assert found is not None
    assert (found.bytes, found.flop) == (None, 2 * 16 * 32 * 64)


@pytest.mark.parametrize(
    ("a", "b"), [((3, 4), (5, 6)), ((3, 4), (4,)), ((2, 3, 4), (3, 4, 5)), ((), (4, 5))]
)
def test_shapes_that_do_not_fit(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    assert matmul(recorded("aten::matmul", a, b)) is None


def test_an_unknown_type_settles_operations_but_no_bytes(
    op_trace: Make, tensor: Make
) -> None:
    inputs = [tensor(3, 4, kind="c10::Odd"), tensor(4, 5, kind="c10::Odd")]
    done = job(op_trace("aten::mm", inputs, GEMM))
    assert done is not None
    assert (done.amount.flop, done.amount.bytes, done.limits.bound) == (120, None, None)


def test_complex_products_are_not_counted_as_real_ones(
    op_trace: Make, tensor: Make
) -> None:
    kind = "c10::complex<float>"
    found = work(
        op_trace("aten::mm", [tensor(3, 4, kind=kind), tensor(4, 5, kind=kind)], GEMM)
    )
    assert found is not None
    assert (found.flop, found.m) == (None, 3)


sizes = st.integers(1, 500)


@pytest.mark.torch
@settings(deadline=None)  # the first example imports torch
@given(sizes, sizes, sizes, sizes)
def test_bmm_flop_is_that_of_torch_flop_counter(
    batch: int, m: int, n: int, k: int
) -> None:
    counter = pytest.importorskip("torch.utils.flop_counter")
    found = matmul(recorded("aten::bmm", (batch, m, k), (batch, k, n)))
    assert found is not None
    assert found.flop == counter.bmm_flop((batch, m, k), (batch, k, n))


def recorded(op: str, *shapes: tuple[int, ...]) -> Inputs:
    types = ["float"] * len(shapes)
    found = inputs_of(
        op, {"Input Dims": [list(s) for s in shapes], "Input type": types}
    )
    assert found is not None
    return found
