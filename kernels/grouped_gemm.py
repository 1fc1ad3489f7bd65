"""Several GEMMs of one shape as one Triton kernel: out[g] = a[g] @ b[g] + bias[g], for
any strides.

Any strides, because the n inputs are interleaved in x [batch, n, in], and so are the n
results: nothing is transposed, stacked or copied.
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
    choose,
    choose_block_size,
    limit_warps,
    padded,
    precision,
    precision_name,
    reads_only_depth,
    register_limit,
    run_of_store,
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
    """One program computes a tile [BLOCK_M, BLOCK_N] of one group; axis 0 of the grid
    has the tiles, axis 1 the groups.

    `a_group`, `a_row` and `a_column` are the strides of a, and so for b and out. `out`
    has `out_columns` columns, at least as many as b. Rows and columns beyond the end
    wrap around, and their results are not stored, or stored in the padding of a row.
    WHOLE: BLOCK_K divides the depth, so the loop needs no masks.
    """
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
            a = tl.load(a_at)
            b = tl.load(b_at)
        else:
            is_inside = step < depth - start
            a = tl.load(a_at, mask=is_inside[None, :], other=0.0)
            b = tl.load(b_at, mask=is_inside[:, None], other=0.0)
        total = tl.dot(a, b, total, input_precision=PRECISION)
        a_at += BLOCK_K * a_column
        b_at += BLOCK_K * b_row

    if HAS_BIAS:
        bias = tl.load(bias_ptr + group * columns + column % columns)
        total += bias.to(tl.float32)[None, :]

    store_tile(
        out_ptr + group * out_group,
        total.to(out_ptr.dtype.element_ty),
        row,
        rows,
        row_stride=out_row,
        first_column=first,
        columns=out_columns,
        column_stride=out_column,
        BLOCK_M=BLOCK_M,
        BLOCK_N=BLOCK_N,
        RUN=RUN,
    )


def grouped_gemm(
    a: Tensor, b: Tensor, out: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Compute out[g] = a[g] @ b[g] + bias[g] into `out`, and return `out`; without
    autograd.

    `a` is [n, rows, depth], `b` [n, depth, columns] and `out` [n, rows, columns] with
    any strides; `bias` is [n, columns], contiguous. `out` may have more columns than
    `b`: those are undefined afterwards. Block sizes follow the shapes in powers of two,
    so a new shape recompiles the kernel only if it needs other block sizes. Raises
    ValueError for tensors that do not fit.
    """
    _check_groups(a, b, out, bias)

    if reads_only_depth(a):
        a = whole(a, QUANTUM)
        b = whole(b.transpose(1, 2), QUANTUM).transpose(1, 2)

    groups, rows, depth = a.shape
    columns = b.shape[2]
    default_tile = _choose_tile(rows, columns, depth, a)

    def launch(tile: Tile) -> None:
        """Runs the kernel with this tile."""
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
        sizes = (
            f"groups={groups} rows<={default_tile.m} columns={columns} depth={depth}"
        )
        key = f"grouped_gemm {architecture(a)} {precision_name(a)} {sizes}"
        launch(tuned(key, default_tile, launch))

    return out


def _choose_tile(rows: int, columns: int, depth: int, tensor: Tensor) -> Tile:
    """Return the tile for products of this size: that of the GPU and the dtype of
    `tensor`, with no side larger than the product needs."""
    largest = choose(TABLES.grouped, tensor)
    block_m = choose_block_size(rows, largest.m)
    block_n = choose_block_size(columns, largest.n)

    # The largest power of two that divides the depth, so that the loop needs no masks;
    # if that is too small, one that covers the depth.
    block_k = min(depth & -depth, largest.k)
    if block_k < QUANTUM:
        block_k = choose_block_size(depth, largest.k)

    is_largest = (block_m, block_n) == (largest.m, largest.n)
    warps = min(
        largest.warps if is_largest else FEWER_WARPS,
        limit_warps(block_m, block_n, block_k, tensor),
    )
    return largest._replace(m=block_m, n=block_n, k=block_k, warps=warps)


def _check_groups(a: Tensor, b: Tensor, out: Tensor, bias: Tensor | None) -> None:
    """Raise ValueError unless the tensors are those of n products. `a` is [n, rows,
    depth], `b` is [n, depth, columns], and `out` has at least as many columns as `b`.
    """
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
    """The result and both gradients are the same grouped GEMM with different strides.
    Sizes that are no multiple of 16 are padded once, so that every row is aligned to 16
    bytes."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")  # type: ignore[untyped-decorator]
    def forward(context: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Return the product of each group, of shape [rows, n, outs]. The input is kept
        padded, for the backward pass."""
        x = whole(x, QUANTUM)
        context.save_for_backward(x, weight)
        batch, n, _ = x.shape
        outs = bias.shape[1]
        out = x.new_empty(batch, n, padded(outs))
        grouped_gemm(
            a=x.transpose(0, 1),
            b=whole(weight, QUANTUM).transpose(1, 2),
            out=out.transpose(0, 1),
            bias=bias,
        )
        return out[..., :outs]

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")  # type: ignore[untyped-decorator]
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(context: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        """Return the gradients of x, None if it is not wanted, of the weight and of the
        bias."""
        x, weight = context.saved_tensors
        n, outs, ins = weight.shape

        whole_grad = whole(grad, QUANTUM)
        grad_x = None
        if context.needs_input_grad[0]:
            grad_x = torch.empty_like(x)
            grouped_gemm(
                a=whole_grad.transpose(0, 1),
                b=whole(weight, QUANTUM, QUANTUM),
                out=grad_x.transpose(0, 1),
            )
            grad_x = grad_x[..., :ins]

        grad_weight = weight.new_empty(n, padded(outs), padded(ins))
        grouped_gemm(
            a=whole_grad.permute(1, 2, 0),
            b=x.transpose(0, 1),
            out=grad_weight,
        )
        grad_bias = grad.sum(0)
        return grad_x, grad_weight[:, :outs, :ins], grad_bias


def partitioned_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return n linear layers, out[:, i] = x[:, i] @ weight[i].T + bias[i]; supports
    autograd.

    x is [batch, n, in], weight [n, out, in] and bias [n, out]; the result is [batch, n,
    out]. Under autocast all are cast to its dtype. Raises ValueError for tensors that
    do not fit.
    """
    x, weight, bias = cast_for_product(x, weight, bias)
    shapes = {
        "x": ("batch", "n", "in"),
        "weight": ("n", "out", "in"),
        "bias": ("n", "out"),
    }
    check_inputs("partitioned_linear", shapes, x=x, weight=weight, bias=bias)
    out: Tensor = _PartitionedLinear.apply(x, weight, bias.contiguous())
    return out
