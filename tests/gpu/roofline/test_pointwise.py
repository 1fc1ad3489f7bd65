"""Elementwise ops: bytes by shape, type and stride."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusetui.gpu.roofline.pointwise import broadcast, promoted
from fusetui.gpu.roofline.row import work_of

Make = Callable[..., Any]
VECTOR = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "at::detail::Array<char*, 3> >(int, at::native::CUDAFunctor_add<float>, "
    "at::detail::Array<char*, 3>)"
)
STRIDED = (
    "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl<"
    "at::native::CUDAFunctor_add<float> >(at::TensorIteratorBase&, "
    "at::native::CUDAFunctor_add<float> const&)::{lambda(int)#1}>(int, at::native::gpu_kernel_impl<"
    "at::native::CUDAFunctor_add<float> >(at::TensorIteratorBase&, "
    "at::native::CUDAFunctor_add<float> const&)::{lambda(int)#1})"
)


@pytest.fixture
def moved(op_trace: Make) -> Callable[..., int | None]:
    """The bytes of an op that launched one elementwise kernel; None also without any
    work."""

    def make(op: str, *inputs: Any, kernel: str = VECTOR, **more: Any) -> int | None:
        trace = op_trace(op, inputs, kernel, **more)
        work = work_of(trace, int(trace.gpu_rows[0]))
        return work.amount.bytes if work else None

    return make


def test_elementwise_bytes_are_inputs_and_result_with_their_types(
    moved: Make, tensor: Make, scalar: Make
) -> None:
    a, one = tensor(100, 30), scalar("1")
    assert moved("aten::gelu", a) == 2 * 2 * 3000
    assert moved("aten::add", a, a, one) == 3 * 2 * 3000
    assert moved("aten::add", a, tensor(30), one) == 2 * (3000 + 30 + 3000)
    assert moved("aten::mul", a, tensor(100, 30, kind="float")) == 3000 * (2 + 4 + 4)
    assert moved("aten::mul_", a, tensor(100, 30, kind="float")) == 3000 * (2 + 4 + 2)
    assert moved("aten::mul", a, ([], "double", "")) == 2 * 2 * 3000
    assert moved("aten::eq", a, a) == 3000 * (2 + 2 + 1)
    assert moved("aten::fill_", a, one) == 2 * 3000
    assert moved("aten::copy_", tensor(100, 30, kind="float"), a) == 3000 * (4 + 2)
    assert moved("aten::threshold_backward", a, a, one) == 3 * 2 * 3000


def test_unknown_is_none(moved: Make, tensor: Make, scalar: Make) -> None:
    whole = tensor(100, kind="long int")
    assert moved("aten::nonesuch", tensor(3)) is None
    assert moved("aten::exp", whole) is None  # a float of a type not recorded
    assert moved("aten::add", whole, scalar("0.5")) is None
    assert moved("aten::gelu", tensor(100, kind="c10::Odd")) is None
    assert moved("aten::add", tensor(3), tensor(4), scalar("1")) is None
    assert (
        moved("aten::gelu", tensor(100), kernel="void softmax_warp_forward<float>(p)")
        is None
    )


def test_given_results_have_their_own_type(moved: Make, tensor: Make) -> None:
    assert moved("aten::neg", tensor(10), tensor(10, kind="float")) == 10 * (2 + 4)


def test_an_expanded_input_is_read_once(moved: Make, tensor: Make) -> None:
    a, steps = tensor(100, 30, kind="float"), {"Input Strides": [[0, 1], [30, 1], []]}
    number = (None, "Scalar", "1")
    assert moved("aten::add", a, a, number, kernel=STRIDED, more=steps) == 4 * (
        30 + 3000 + 3000
    )


def test_without_strides_only_contiguous_kernels_settle_it(
    moved: Make, tensor: Make
) -> None:
    a, none = tensor(100, 30, kind="float"), {"Input Strides": None}
    number = (None, "Scalar", "1")
    assert moved("aten::add", a, a, number, more=none) == 4 * 9000
    assert moved("aten::add", a, a, number, kernel=STRIDED, more=none) is None


shapes = st.lists(st.integers(1, 3), min_size=1, max_size=4).map(tuple)


@pytest.mark.torch
@settings(deadline=None)  # the first example imports torch
@given(shapes, shapes)
def test_broadcast_shape_is_that_of_torch(
    a: tuple[int, ...], b: tuple[int, ...]
) -> None:
    torch = pytest.importorskip("torch")
    try:
        expected = tuple(torch.broadcast_shapes(a, b))
    except RuntimeError:
        expected = None
    assert broadcast([a, b]) == expected


NAMES = {
    "bool": "bool",
    "uint8": "uint8",
    "int8": "int8",
    "int64": "int64",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "fp64": "float64",
}


@pytest.mark.torch
@settings(deadline=None)  # the first example imports torch
@given(st.sampled_from(list(NAMES)), st.sampled_from(list(NAMES)))
def test_promoted_type_is_that_of_torch(a: str, b: str) -> None:
    torch = pytest.importorskip("torch")
    found = promoted([a, b])
    if found is not None:
        types = (getattr(torch, NAMES[name]) for name in (a, b))
        assert torch.promote_types(*types) == getattr(torch, NAMES[found])
