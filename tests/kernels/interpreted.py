"""The arithmetic of our Triton kernels in Triton's interpreter, at sizes, strides and dtypes that
hypothesis chooses, against float64. test_triton.py runs all of them; a single one:

    TRITON_INTERPRET=1 python -P tests/kernels/interpreted.py PROPERTY
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import torch
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import gelu
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from fusetui import kernels
from fusetui.kernels import tiles
from fusetui.kernels.geglu import geglu_projections, gelu_mul
from fusetui.kernels.grouped_gemm import partitioned_linear

Function = Callable[..., Tensor]
EXAMPLES = int(os.environ.get("FUSETUI_EXAMPLES", "30")) // 4
OF_PRODUCTS = (EXAMPLES + 1) // 2  # each in all dtypes
ALLOWED = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""The largest error, as a share of the largest value: as in capture/check.py."""
SIZES = st.integers(1, 70)
DTYPES = st.sampled_from(tuple(ALLOWED))
GPUS = st.sampled_from(("sm_80", "gfx942"))
"""Two that differ in their tiles and in how a tile is stored."""
SEEDS = st.integers(0, 2**16)


def laid_out(data: st.DataObject, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """A random tensor: contiguous, transposed, part of a larger one, or not aligned."""
    way = data.draw(st.sampled_from(("contiguous", "transposed", "part", "shifted")))
    if way == "transposed":
        return torch.randn(*reversed(shape)).to(dtype).permute(*reversed(range(len(shape))))
    if way == "part":
        return torch.randn(*shape[:-1], shape[-1] + 3).to(dtype)[..., 2:-1]
    if way == "shifted":
        count = torch.Size(shape).numel()
        return torch.randn(count + 1).to(dtype)[1:].reshape(shape)
    return torch.randn(*shape).to(dtype)


def multiply_bfloat16() -> None:
    """The interpreter keeps bfloat16 as integers, and would multiply those. Tensor cores multiply
    exactly and add in float32: that is the product of the same matrices in float32."""
    product = InterpreterBuilder.create_dot

    def widened(builder: InterpreterBuilder, matrix: TensorHandle) -> TensorHandle:
        is_kept_as_integers = matrix.dtype.scalar == tl.bfloat16
        return builder.create_fp_ext(matrix, tl.float32) if is_kept_as_integers else matrix

    def create_dot(builder: InterpreterBuilder, a: Any, b: Any, *rest: Any) -> TensorHandle:
        return product(builder, widened(builder, a), widened(builder, b), *rest)

    InterpreterBuilder.create_dot = create_dot


def everything(function: Function, tensors: Sequence[Tensor], gradient: Tensor) -> list[Tensor]:
    """The result and the gradients of all inputs, in float64."""
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    result = function(*leaves)
    gradients = torch.autograd.grad(result, leaves, gradient.to(result.dtype))
    return [tensor.double() for tensor in (result.detach(), *gradients)]


def compare(function: Function, reference: Function, *tensors: Tensor) -> None:
    """Both on the same values; gradients of those that float64 computes."""
    exact = [tensor.double() for tensor in tensors]
    gradient = torch.randn(reference(*exact).shape).to(tensors[0].dtype)
    wanted = everything(reference, exact, gradient)
    for got, want in zip(everything(function, tensors, gradient), wanted, strict=True):
        assert got.shape == want.shape
        if want.numel():
            assert (got - want).abs().max() <= ALLOWED[tensors[0].dtype] * max(want.abs().max(), 1)


def geglu(gate: Tensor, up: Tensor) -> Tensor:
    """The reference."""
    return gelu(gate, approximate="tanh") * up


def linears(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The reference."""
    return torch.einsum("bni,noi->bno", x, weight) + bias


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.data(), st.lists(SIZES, min_size=1, max_size=3), DTYPES, SEEDS)
def pointwise(data: st.DataObject, shape: list[int], dtype: torch.dtype, seed: int) -> None:
    """gelu(gate) * up."""
    torch.manual_seed(seed)
    gate, up = (laid_out(data, shape, dtype) for _ in range(2))
    compare(gelu_mul, geglu, gate, up)


@settings(max_examples=OF_PRODUCTS, deadline=None)
@given(st.data(), SIZES, SIZES, SIZES, GPUS, SEEDS)
def gemm(data: st.DataObject, rows: int, dim: int, hidden: int, gpu: str, seed: int) -> None:
    """gelu(x @ gate.T) * (x @ up.T)."""
    torch.manual_seed(seed)

    def reference(x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
        return geglu(x @ gate.t(), x @ up.t())

    for dtype in ALLOWED:
        x = laid_out(data, (1, rows, dim), dtype)
        weights = [laid_out(data, (hidden, dim), dtype) / 8 for _ in range(2)]
        with patch.object(tiles, "architecture", lambda _: gpu):
            compare(geglu_projections, reference, x, *weights)


@settings(max_examples=OF_PRODUCTS, deadline=None)
@given(st.data(), SIZES, st.integers(1, 3), SIZES, SIZES, GPUS, SEEDS)
def grouped(
    data: st.DataObject, batch: int, n: int, ins: int, outs: int, gpu: str, seed: int
) -> None:
    """n linear layers at once."""
    torch.manual_seed(seed)
    for dtype in ALLOWED:
        x = laid_out(data, (batch, n, ins), dtype)
        weight = laid_out(data, (n, outs, ins), dtype) / 4
        bias = laid_out(data, (n, outs), dtype)
        with patch.object(tiles, "architecture", lambda _: gpu):
            compare(partitioned_linear, linears, x, weight, bias)


def layouts() -> None:
    """A product has the layout of its gate, and nothing has no product."""
    columns = torch.randn(9, 5).t()
    assert gelu_mul(columns, columns).stride() == columns.stride()
    assert gelu_mul(torch.ones(0), torch.ones(0)).shape == (0,)
    assert (
        partitioned_linear(torch.ones(0, 2, 3), torch.ones(2, 4, 3), torch.ones(2, 4)).numel() == 0
    )


def variants() -> None:
    """The modules that need a GPU give their model's own result."""
    for workload in map(kernels.get, ("mlp", "partitioned-linear")):
        shapes = {axis: 17 + number for number, axis in enumerate(workload.gpu_shapes)}
        model, inputs = workload.model(shapes), workload.inputs(shapes)
        for name, variant in workload.variants.items():
            if variant.needs_gpu and name != "liger":
                torch.testing.assert_close(variant.build(model)(*inputs), model(*inputs))


PROPERTIES = {
    "pointwise": pointwise,
    "gemm": gemm,
    "grouped": grouped,
    "layouts": layouts,
    "variants": variants,
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="overflow encountered in exp")
    multiply_bfloat16()
    for name in sys.argv[1:] or PROPERTIES:
        PROPERTIES[name]()
