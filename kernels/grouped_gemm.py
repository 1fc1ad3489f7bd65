"""n GEMMs of one shape as one Triton kernel: out[g] = a[g] @ b[g] + bias[g], for any
strides.

Strided access is the point: the n inputs are interleaved in x [batch, n, in], and so
are the n results, so nothing is transposed, stacked or copied.
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
from .inputs import cast_for_product, check_inputs
from .tiles import (
    FEWER_WARPS,
    QUANTUM,
    TABLES,
    Tile,
    architecture,
    block_size,
    choose,
    padded,
    precision,
    precision_name,
    reads_only_depth,
    register_limit,
    run_of_store,
    warps_at_most,
    whole,
)
from .tuning import tuned


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
    """One program computes a tile [BLOCK_M, BLOCK_N] of one group: axis 0 tiles, axis 1
    groups. Rows and columns beyond the end wrap around; what they give is not stored,
    or stored in the padding of a row. WHOLE: BLOCK_K divides the depth, so the loop
    needs no masks."""
    group = tl.program_id(1).to(tl.int64)
    tiles_n = tl.cdiv(columns, BLOCK_N)
    row = (tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    first = (tl.program_id(0) % tiles_n * BLOCK_N).to(tl.int64)
    column = first + tl.arange(0, BLOCK_N)
    step = tl.arange(0, BLOCK_K).to(tl.int64)
    a_at = (
        a_ptr
        + group * a_group
        + (row % rows)[:, None] * a_row
        + step[None, :] * a_column
    )
    b_at = (
        b_ptr
        + group * b_group
        + step[:, None] * b_row
        + (column % columns)[None, :] * b_column
    )
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
        out_at,
        tile,
        row,
        rows,
        out_row,
        first,
        out_columns,
        out_column,
        BLOCK_M,
        BLOCK_N,
        RUN,
    )


def grouped_gemm(
    a: Tensor, b: Tensor, out: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Fills and returns out [n, rows, columns] from a [n, rows, depth] and b [n, depth,
    columns].

    `out` may have more columns than `b`: what is in those is undefined. `bias` is [n,
    columns], contiguous. No autograd. Block sizes follow the shapes in powers of two,
    so a new shape recompiles the kernel only if it needs other block sizes. Raises
    ValueError for tensors that do not fit.
    """
    _check_groups(a, b, out, bias)
    if reads_only_depth(a):
        a, b = whole(a, QUANTUM), whole(b.transpose(1, 2), QUANTUM).transpose(1, 2)
    (groups, rows, depth), columns = a.shape, b.shape[2]
    # The largest power of two that divides the depth; if that is too small, one that
    # covers it.
    largest = choose(TABLES.grouped, a)
    block_k = min(depth & -depth, largest.k)
    block_k = block_k if block_k >= QUANTUM else block_size(depth, largest.k)
    block_m, block_n = block_size(rows, largest.m), block_size(columns, largest.n)
    is_largest = (block_m, block_n) == (largest.m, largest.n)
    warps = min(
        largest.warps if is_largest else FEWER_WARPS,
        warps_at_most(block_m, block_n, block_k, a),
    )
    best = largest._replace(m=block_m, n=block_n, k=block_k, warps=warps)

    def launch(tile: Tile) -> None:
        tiles = triton.cdiv(rows, tile.m) * triton.cdiv(columns, tile.n)
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
            out.shape[2],
            HAS_BIAS=bias is not None,
            WHOLE=depth % tile.k == 0,
            BLOCK_M=tile.m,
            BLOCK_N=tile.n,
            BLOCK_K=tile.k,
            PRECISION=precision(a),
            RUN=run_of_store(a, min(tile.m, tile.n)),
            num_warps=tile.warps,
            num_stages=tile.stages,
            **register_limit(a),
        )

    with torch.cuda.device_of(a):
        sizes = f"groups={groups} rows<={block_m} columns={columns} depth={depth}"
        key = f"grouped_gemm {architecture(a)} {precision_name(a)} {sizes}"
        launch(tuned(key, best, launch))
    return out


def _check_groups(a: Tensor, b: Tensor, out: Tensor, bias: Tensor | None) -> None:
    """Raises ValueError unless the tensors are those of n products."""
    shapes: dict[str, tuple[int | str, ...]] = {
        "a": ("n", "rows", "depth"),
        "b": ("n", "depth", "columns"),
        "out": ("n", "rows", "columns or more"),
    }
    check_inputs("grouped_gemm", shapes, a=a, b=b, out=out)
    groups, _, columns = b.shape
    if out.shape[2] < columns:
        raise ValueError(
            f"grouped_gemm: out has {out.shape[2]} columns, fewer than {columns} of b"
        )
    if bias is not None:
        check_inputs(
            "grouped_gemm", {"a": a.shape, "bias": (groups, columns)}, a=a, bias=bias
        )
        if not bias.is_contiguous():
            raise ValueError("grouped_gemm: bias is not contiguous")


class _PartitionedLinear(torch.autograd.Function):  # type: ignore[misc]
    """Forward and both gradients are the same grouped GEMM with different strides.
    Sizes that are no multiple of 16 are padded once, so that every row is aligned to 16
    bytes."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")  # type: ignore[untyped-decorator]
    def forward(context: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        x, rows = whole(x, QUANTUM), whole(weight, QUANTUM)
        context.save_for_backward(x, weight)
        out = x.new_empty(*x.shape[:2], padded(bias.shape[1]))
        grouped_gemm(x.transpose(0, 1), rows.transpose(1, 2), out.transpose(0, 1), bias)
        return out[..., : bias.shape[1]]

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")  # type: ignore[untyped-decorator]
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
    """out[:, i] = x[:, i] @ weight[i].T + bias[i]; supports autograd. x is [batch, n,
    in], weight [n, out, in], bias [n, out]; the result is [batch, n, out]. Under
    autocast all are cast to its dtype. Raises ValueError for tensors that do not
    fit."""
    x, weight, bias = cast_for_product(x, weight, bias)
    shapes = {
        "x": ("batch", "n", "in"),
        "weight": ("n", "out", "in"),
        "bias": ("n", "out"),
    }
    check_inputs("partitioned_linear", shapes, x=x, weight=weight, bias=bias)
    out: Tensor = _PartitionedLinear.apply(x, weight, bias.contiguous())
    return out
