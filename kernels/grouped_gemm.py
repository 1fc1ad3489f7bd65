"""n GEMMs of one shape as one Triton kernel: out[g] = a[g] @ b[g] + bias[g], for any strides.

Strided access is the point: the n inputs are interleaved in x [batch, n, in], and so are the n
results, so nothing is transposed, stacked or copied.
"""

# ruff: noqa: N803 (Triton writes constants of a kernel in capitals)

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from .geglu_gemm import precision

DEPTH_BYTES = 128
"""BLOCK_K in bytes: with tiles of 128 and three stages, 96 KiB of shared memory, which every GPU
since Ampere has."""


@triton.jit  # type: ignore[untyped-decorator]
def grouped_gemm_kernel_triton(  # type: ignore[no-untyped-def]
    a_ptr,
    b_ptr,
    bias_ptr,
    out_ptr,
    rows,
    columns,
    depth,
    a_group,
    a_row,
    a_column,
    b_group,
    b_row,
    b_column,
    out_group,
    out_row,
    out_column,
    HAS_BIAS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """One program computes a tile [BLOCK_M, BLOCK_N] of one group: axis 0 tiles, axis 1 groups."""
    group = tl.program_id(1).to(tl.int64)
    tiles_n = tl.cdiv(columns, BLOCK_N)
    row = (tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    column = (tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_inside, column_inside = row < rows, column < columns
    step = tl.arange(0, BLOCK_K).to(tl.int64)
    a_at = a_ptr + group * a_group + row[:, None] * a_row + step[None, :] * a_column
    b_at = b_ptr + group * b_group + step[:, None] * b_row + column[None, :] * b_column
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, depth, BLOCK_K):
        deep = step < depth - start
        a = tl.load(a_at, mask=row_inside[:, None] & deep[None, :], other=0.0)
        b = tl.load(b_at, mask=deep[:, None] & column_inside[None, :], other=0.0)
        total = tl.dot(a, b, total, input_precision=PRECISION)
        a_at += BLOCK_K * a_column
        b_at += BLOCK_K * b_row
    if HAS_BIAS:
        bias = tl.load(bias_ptr + group * columns + column, mask=column_inside, other=0.0)
        total += bias.to(tl.float32)[None, :]
    out_at = out_ptr + group * out_group + row[:, None] * out_row + column[None, :] * out_column
    inside = row_inside[:, None] & column_inside[None, :]
    tl.store(out_at, total.to(out_ptr.dtype.element_ty), mask=inside)


def grouped_gemm(a: Tensor, b: Tensor, out: Tensor, bias: Tensor | None = None) -> Tensor:
    """Fills and returns out [n, rows, columns] from a [n, rows, depth] and b [n, depth, columns].

    `bias` is [n, columns], contiguous. No autograd. Block sizes follow the shapes in powers of two,
    so a new shape recompiles the kernel only if it needs other block sizes.
    """
    (groups, rows, depth), columns = a.shape, b.shape[2]
    block_m, block_n = block_size(rows, 128), block_size(columns, 128)
    tiles = triton.cdiv(rows, block_m) * triton.cdiv(columns, block_n)
    if tiles and groups:
        grouped_gemm_kernel_triton[(tiles, groups)](
            a,
            b,
            b if bias is None else bias,
            out,
            rows,
            columns,
            depth,
            *a.stride(),
            *b.stride(),
            *out.stride(),
            HAS_BIAS=bias is not None,
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            BLOCK_K=block_size(depth, DEPTH_BYTES // a.element_size()),
            PRECISION=precision(),
            num_warps=8 if block_m * block_n > 64 * 128 else 4,
        )
    return out


def block_size(size: int, largest: int) -> int:
    """The power of two that covers a size, from 16, the minimum of `tl.dot`, up to `largest`."""
    return max(16, min(int(triton.next_power_of_2(size)), largest))


class _PartitionedLinear(torch.autograd.Function):  # type: ignore[misc]
    """Forward and both gradients are the same grouped GEMM with different strides."""

    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        context.save_for_backward(x, weight)
        out = x.new_empty(x.shape[0], *bias.shape)
        grouped_gemm(x.transpose(0, 1), weight.transpose(1, 2), out.transpose(0, 1), bias)
        return out

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(context: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        x, weight = context.saved_tensors
        grad_x = None
        if context.needs_input_grad[0]:
            grad_x = torch.empty_like(x)
            grouped_gemm(grad.transpose(0, 1), weight, grad_x.transpose(0, 1))
        grad_weight = torch.empty_like(weight)
        grouped_gemm(grad.permute(1, 2, 0), x.transpose(0, 1), grad_weight)
        return grad_x, grad_weight, grad.sum(0)


def partitioned_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """out[:, i] = x[:, i] @ weight[i].T + bias[i]; supports autograd.

    x is [batch, n, in], weight [n, out, in], bias [n, out]; the result is [batch, n, out].
    """
    out: Tensor = _PartitionedLinear.apply(x, weight, bias.contiguous())
    return out
