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

from .geglu import store_tile
from .tiles import (
    QUANTUM,
    TABLES,
    bytes_of_warp,
    choose,
    padded,
    precision,
    reads_only_depth,
    register_limit,
    run_of_store,
    whole,
)


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
    out_columns,
    HAS_BIAS: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
    RUN: tl.constexpr,
):
    """One program computes a tile [BLOCK_M, BLOCK_N] of one group: axis 0 tiles, axis 1 groups.
    Rows and columns beyond the end wrap around; what they give is not stored, or stored in the
    padding of a row. WHOLE: BLOCK_K divides the depth, so the loop needs no masks."""
    group = tl.program_id(1).to(tl.int64)
    tiles_n = tl.cdiv(columns, BLOCK_N)
    row = (tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    first = (tl.program_id(0) % tiles_n * BLOCK_N).to(tl.int64)
    column = first + tl.arange(0, BLOCK_N)
    step = tl.arange(0, BLOCK_K).to(tl.int64)
    a_at = a_ptr + group * a_group + (row % rows)[:, None] * a_row + step[None, :] * a_column
    b_at = b_ptr + group * b_group + step[:, None] * b_row + (column % columns)[None, :] * b_column
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, depth, BLOCK_K):
        if WHOLE:
            a, b = tl.load(a_at), tl.load(b_at)
        else:
            deep = step < depth - start
            a = tl.load(a_at, mask=deep[None, :], other=0.0)
            b = tl.load(b_at, mask=deep[:, None], other=0.0)
        total = tl.dot(a, b, total, input_precision=PRECISION)
        a_at += BLOCK_K * a_column
        b_at += BLOCK_K * b_row
    if HAS_BIAS:
        bias = tl.load(bias_ptr + group * columns + column % columns)
        total += bias.to(tl.float32)[None, :]
    tile, out_at = total.to(out_ptr.dtype.element_ty), out_ptr + group * out_group
    store_tile(
        out_at, tile, row, rows, out_row, first, out_columns, out_column, BLOCK_M, BLOCK_N, RUN
    )


def grouped_gemm(a: Tensor, b: Tensor, out: Tensor, bias: Tensor | None = None) -> Tensor:
    """Fills and returns out [n, rows, columns] from a [n, rows, depth] and b [n, depth, columns].

    `out` may have more columns than `b`: what is in those is undefined. `bias` is [n, columns],
    contiguous. No autograd. Block sizes follow the shapes in powers of two, so a new shape
    recompiles the kernel only if it needs other block sizes.
    """
    if reads_only_depth(a):
        a, b = whole(a, QUANTUM), whole(b.transpose(1, 2), QUANTUM).transpose(1, 2)
    (groups, rows, depth), columns = a.shape, b.shape[2]
    tile = choose(TABLES.grouped, a)
    block_m, block_n = block_size(rows, tile.m), block_size(columns, tile.n)
    # The largest power of two that divides the depth; if that is too small, one that covers it.
    block_k = min(depth & -depth, tile.k)
    block_k = block_k if block_k >= QUANTUM else block_size(depth, tile.k)
    smallest = min(block_m * block_k, block_k * block_n, block_m * block_n)
    most_warps = max(smallest * a.element_size() // bytes_of_warp(a), 1)
    tiles = triton.cdiv(rows, block_m) * triton.cdiv(columns, block_n)
    if tiles and groups:
        warps = min(tile.warps if block_m * block_n == tile.m * tile.n else 4, most_warps)
        tensors = (a, b, b if bias is None else bias, out)
        sizes = (rows, columns, depth, *a.stride(), *b.stride(), *out.stride(), out.shape[2])
        blocks = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
        how = {"PRECISION": precision(a), "RUN": run_of_store(a, min(block_m, block_n))}
        how |= {"HAS_BIAS": bias is not None, "WHOLE": depth % block_k == 0, **register_limit(a)}
        how |= {"num_warps": warps, "num_stages": tile.stages}
        grouped_gemm_kernel_triton[(tiles, groups)](*tensors, *sizes, **blocks, **how)
    return out


def block_size(size: int, largest: int) -> int:
    """The power of two that covers a size, from 16, the minimum of `tl.dot`, up to `largest`."""
    return max(QUANTUM, min(int(triton.next_power_of_2(size)), largest))


class _PartitionedLinear(torch.autograd.Function):  # type: ignore[misc]
    """Forward and both gradients are the same grouped GEMM with different strides. Sizes that are
    no multiple of 16 are padded once, so that every row is aligned to 16 bytes."""

    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        x, rows = whole(x, QUANTUM), whole(weight, QUANTUM)
        context.save_for_backward(x, weight)
        out = x.new_empty(*x.shape[:2], padded(bias.shape[1]))
        grouped_gemm(x.transpose(0, 1), rows.transpose(1, 2), out.transpose(0, 1), bias)
        return out[..., : bias.shape[1]]

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(context: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        x, weight = context.saved_tensors
        (_, outs, ins), grads = weight.shape, whole(grad, QUANTUM)
        grad_x = None
        if context.needs_input_grad[0]:
            grad_x = torch.empty_like(x)
            rows = whole(weight, QUANTUM, QUANTUM)
            grouped_gemm(grads.transpose(0, 1), rows, grad_x.transpose(0, 1))
            grad_x = grad_x[..., :ins]
        grad_weight = weight.new_empty(len(weight), padded(outs), padded(ins))
        grouped_gemm(grads.permute(1, 2, 0), x.transpose(0, 1), grad_weight)
        return grad_x, grad_weight[:, :outs, :ins], grad.sum(0)


def partitioned_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """out[:, i] = x[:, i] @ weight[i].T + bias[i]; supports autograd. x is [batch, n, in], weight
    [n, out, in], bias [n, out]; the result is [batch, n, out]."""
    out: Tensor = _PartitionedLinear.apply(x, weight, bias.contiguous())
    return out
