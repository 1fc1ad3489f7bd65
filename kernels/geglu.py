"""gelu(gate) * up as one Triton kernel, and its gradient as another; gelu in its tanh
form. And gelu(x @ gate.T) * (x @ up.T) as one Triton GEMM with the activation in its
epilogue.

Each input is read once and each result written once; the arithmetic is float32 for any
dtype. Needs triton and a GPU. With TRITON_INTERPRET=1 the same arithmetic runs on a
CPU, for tests.

Neither projection of the GEMM is written to memory: a program keeps one tile of each in
registers and writes their product. The backward pass recomputes both projections, as
they were not stored.

The element count of the elementwise kernels is not specialized, so they are not
recompiled for other shapes. A mask over a count of unknown divisibility would make
every load scalar; therefore only the last block is masked.
"""

# ruff: noqa: N803 (Triton writes constants of a kernel in capitals)

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from .inputs import cast_for_product, check_inputs, promoted
from .tiles import (
    TABLES,
    Tile,
    architecture,
    choose,
    for_rows,
    padded,
    precision,
    precision_name,
    run_of_store,
    whole,
)
from .tuning import tuned

BLOCK, BLOCK_AMD = 1024, 2048
"""Elements per program: with Triton's 4 warps, each thread loads 16 bytes of bfloat16
at once. A warp of AMD has 64 threads instead of 32."""


@triton.jit
def gate_of(x):  # type: ignore[no-untyped-def]
    """(gelu(x) / x, its inner derivative): tanh(z) = 2 * sigmoid(2 * z) - 1 saves half
    the work. gelu(x) = x * sigmoid(2 * z) with 2 * z = 1.5957... * (x + 0.044715 *
    x^3); the second value is the derivative of 2 * z by x."""
    squared = x * x
    share = tl.sigmoid(1.5957691216057308 * x * (1 + 0.044715 * squared))
    return share, 1.5957691216057308 * (1 + 0.134145 * squared)


@triton.jit
def _multiply(gate_ptr, up_ptr, out_ptr, offsets, inside):  # type: ignore[no-untyped-def]
    gate = tl.load(gate_ptr + offsets, mask=inside).to(tl.float32)
    up = tl.load(up_ptr + offsets, mask=inside).to(tl.float32)
    share, _ = gate_of(gate)
    tl.store(
        out_ptr + offsets, (gate * share * up).to(out_ptr.dtype.element_ty), mask=inside
    )


@triton.jit
def _differentiate(  # type: ignore[no-untyped-def]
    grad_ptr, gate_ptr, up_ptr, grad_gate_ptr, grad_up_ptr, offsets, inside
):
    grad = tl.load(grad_ptr + offsets, mask=inside).to(tl.float32)
    gate = tl.load(gate_ptr + offsets, mask=inside).to(tl.float32)
    up = tl.load(up_ptr + offsets, mask=inside).to(tl.float32)
    share, inner = gate_of(gate)
    slope = share + gate * share * (1 - share) * inner
    grad_gate = (grad * up * slope).to(grad_gate_ptr.dtype.element_ty)
    grad_up = (grad * gate * share).to(grad_up_ptr.dtype.element_ty)
    tl.store(grad_gate_ptr + offsets, grad_gate, mask=inside)
    tl.store(grad_up_ptr + offsets, grad_up, mask=inside)


@triton.jit(do_not_specialize=["count"])  # type: ignore[untyped-decorator]
def geglu_forward_kernel_triton(gate_ptr, up_ptr, out_ptr, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """One program computes BLOCK elements."""
    first = tl.program_id(0).to(tl.int64) * BLOCK
    offsets = first + tl.arange(0, BLOCK)
    if first + BLOCK <= count:
        _multiply(gate_ptr, up_ptr, out_ptr, offsets, None)
    else:
        _multiply(gate_ptr, up_ptr, out_ptr, offsets, offsets < count)


@triton.jit(do_not_specialize=["count"])  # type: ignore[untyped-decorator]
def geglu_backward_kernel_triton(  # type: ignore[no-untyped-def]
    grad_ptr, gate_ptr, up_ptr, grad_gate_ptr, grad_up_ptr, count, BLOCK: tl.constexpr
):
    """One program computes both gradients of BLOCK elements."""
    first = tl.program_id(0).to(tl.int64) * BLOCK
    offsets = first + tl.arange(0, BLOCK)
    if first + BLOCK <= count:
        _differentiate(
            grad_ptr, gate_ptr, up_ptr, grad_gate_ptr, grad_up_ptr, offsets, None
        )
    else:
        _differentiate(
            grad_ptr,
            gate_ptr,
            up_ptr,
            grad_gate_ptr,
            grad_up_ptr,
            offsets,
            offsets < count,
        )


def multiply(gate: Tensor, up: Tensor) -> Tensor:
    """gelu(gate) * up without autograd, in the layout of `gate` if that is dense.
    Raises ValueError unless both are alike."""
    check_inputs("multiply", _like(gate, "gate", "up"), gate=gate, up=up)
    out = torch.empty_like(gate)
    _launch(geglu_forward_kernel_triton, _laid_out(gate, out), _laid_out(up, out), out)
    return out


def gradients(grad: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of `gate` and `up`, from that of the product. Raises ValueError
    unless all are alike."""
    wanted = _like(gate, "gate", "up", "grad")
    check_inputs("gradients", wanted, gate=gate, up=up, grad=grad)
    grad_gate, grad_up = torch.empty_like(gate), torch.empty_like(gate)
    inputs = [_laid_out(tensor, grad_gate) for tensor in (grad, gate, up)]
    _launch(geglu_backward_kernel_triton, *inputs, grad_gate, grad_up)
    return grad_gate, grad_up


def _like(tensor: Tensor, *names: str) -> dict[str, torch.Size]:
    """The shape of a tensor for all of these names."""
    return dict.fromkeys(names, tensor.shape)


class _GeluMul(torch.autograd.Function):  # type: ignore[misc]
    """Keeps both inputs, which the preceding GEMMs produced anyway, and no other
    tensor."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")  # type: ignore[untyped-decorator]
    def forward(context: Any, gate: Tensor, up: Tensor) -> Tensor:
        context.save_for_backward(gate, up)
        return multiply(gate, up)

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")  # type: ignore[untyped-decorator]
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(context: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        return gradients(grad, *context.saved_tensors)


def gelu_mul(gate: Tensor, up: Tensor) -> Tensor:
    """gelu(gate) * up for two tensors of equal shape, dtype and device; supports
    autograd.

    Any dense layout is processed in memory order; a non-dense tensor is copied first.
    Triton compiles each kernel once per dtype, and once more for a view whose offset is
    not a multiple of 16 bytes. Under autocast two dtypes become the wider one. Raises
    ValueError if the tensors differ, are empty, or have a dtype that the kernels do not
    know.
    """
    gate, up = promoted(gate, up)
    check_inputs("gelu_mul", _like(gate, "gate", "up"), gate=gate, up=up)
    product: Tensor = _GeluMul.apply(gate, up)
    return product


def _laid_out(tensor: Tensor, like: Tensor) -> Tensor:
    """The tensor with the strides of `like`, which is dense; copied only if they
    differ."""
    if tensor.stride() == like.stride():
        return tensor
    return torch.empty_like(like, dtype=tensor.dtype).copy_(tensor)


def _launch(kernel: Any, *tensors: Tensor) -> None:
    """Runs an elementwise kernel over tensors of equal layout, on their GPU."""
    count = tensors[0].numel()
    block = BLOCK_AMD if architecture(tensors[0]).startswith("gfx") else BLOCK
    with torch.cuda.device_of(tensors[0]):
        kernel[(triton.cdiv(count, block),)](*tensors, count, BLOCK=block)


@triton.jit  # type: ignore[untyped-decorator]
def tile_of(  # type: ignore[no-untyped-def]
    program,
    rows,
    columns,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    GROUP: tl.constexpr,
):
    """The tile of a program: GROUP of one column are adjacent, so weights stay in the
    L2 cache."""
    tiles_m, tiles_n = tl.cdiv(rows, BLOCK_M), tl.cdiv(columns, BLOCK_N)
    in_group = GROUP * tiles_n
    first = program // in_group * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    return first + program % in_group % height, program % in_group // height


@triton.jit  # type: ignore[untyped-decorator]
def store_tile(  # type: ignore[no-untyped-def]
    out_ptr,
    tile,
    row,
    rows,
    row_stride,
    first_column,
    columns,
    column_stride,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    RUN: tl.constexpr,
):
    """Writes what is inside of a tile [BLOCK_M, BLOCK_N] of a matrix [rows, columns].
    With a RUN of 1, Triton chooses how. Otherwise the tile is [BLOCK_M, BLOCK_N / RUN,
    RUN], and Triton exchanges values in shared memory, so that each thread has RUN
    adjacent ones to write."""
    at, inside = out_ptr + row * row_stride, row < rows
    if RUN == 1:
        column = first_column + tl.arange(0, BLOCK_N)
        at = at[:, None] + column[None, :] * column_stride
        tl.store(at, tile, mask=inside[:, None] & (column < columns)[None, :])
    else:
        # A sum of ranges, because Triton forgets of a reshaped range what is adjacent
        # in it.
        run = first_column + RUN * tl.arange(0, BLOCK_N // RUN)
        column = run[:, None] + tl.arange(0, RUN)[None, :]
        at = at[:, None, None] + (column * column_stride)[None, :, :]
        inside = inside[:, None, None] & (column < columns)[None, :, :]
        tl.store(at, tl.reshape(tile, (BLOCK_M, BLOCK_N // RUN, RUN)), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def geglu_gemm_kernel_triton(  # type: ignore[no-untyped-def]
    x_ptr,
    gate_ptr,
    up_ptr,
    out_ptr,
    rows,
    hidden,
    dim,
    out_row,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    PRECISION: tl.constexpr,
    RUN: tl.constexpr,
):
    """One program computes BLOCK_M rows and BLOCK_N features; all matrices are
    row-major. BLOCK_K must divide `dim`, so the loop needs no masks: rows and features
    beyond the end wrap around, and what they give is not stored, or stored in the
    padding of a row."""
    tile_m, tile_n = tile_of(tl.program_id(0), rows, hidden, BLOCK_M, BLOCK_N, GROUP)
    row = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    column = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    depth = tl.arange(0, BLOCK_K)
    x_at = x_ptr + (row % rows)[:, None] * dim + depth[None, :]
    weight_at = (column % hidden)[None, :] * dim + depth[:, None]
    gate_at, up_at = gate_ptr + weight_at, up_ptr + weight_at
    gate = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    up = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, dim, BLOCK_K):
        x = tl.load(x_at)
        gate = tl.dot(x, tl.load(gate_at), gate, input_precision=PRECISION)
        up = tl.dot(x, tl.load(up_at), up, input_precision=PRECISION)
        x_at += BLOCK_K
        gate_at += BLOCK_K
        up_at += BLOCK_K
    share, _ = gate_of(gate)
    product = (gate * share * up).to(out_ptr.dtype.element_ty)
    first = (tile_n * BLOCK_N).to(tl.int64)
    store_tile(
        out_ptr, product, row, rows, out_row, first, out_row, 1, BLOCK_M, BLOCK_N, RUN
    )


def project(x: Tensor, gate_weight: Tensor, up_weight: Tensor) -> Tensor:
    """The activated product for x [rows, dim] and weights [hidden, dim], without
    autograd. If the tile does not divide `dim`, the inputs are padded with zeros first.
    The rows of the result are padded to a multiple of 16 elements; the padding is not
    part of the result. Raises ValueError for tensors that do not fit."""
    _check_projections("project", x, gate_weight, up_weight)
    (rows, dim), hidden = x.shape, len(gate_weight)
    best = for_rows(choose(TABLES.geglu, x), rows, x)
    out = torch.empty(rows, padded(hidden), dtype=x.dtype, device=x.device)
    padded_inputs = [whole(matrix, best.k) for matrix in (x, gate_weight, up_weight)]

    def launch(tile: Tile) -> None:
        tiles = triton.cdiv(rows, tile.m) * triton.cdiv(hidden, tile.n)
        geglu_gemm_kernel_triton[(tiles,)](
            *padded_inputs,
            out,
            rows,
            hidden,
            padded_inputs[0].shape[1],
            out.stride(0),
            BLOCK_M=tile.m,
            BLOCK_N=tile.n,
            BLOCK_K=tile.k,
            GROUP=8,
            PRECISION=precision(x),
            RUN=run_of_store(x, min(tile.m, tile.n)),
            num_warps=tile.warps,
            num_stages=tile.stages,
        )

    with torch.cuda.device_of(x):
        sizes = f"rows<={best.m} hidden={hidden} dim={dim}"
        key = f"geglu_gemm {architecture(x)} {precision_name(x)} {sizes}"
        launch(tuned(key, best, launch))
    return out[:, :hidden]


def _check_projections(
    op: str, x: Tensor, gate_weight: Tensor, up_weight: Tensor
) -> None:
    """Raises ValueError unless x is [..., dim] and both weights are [hidden, dim], all
    alike."""
    shapes = {
        "x": ("...", "dim"),
        "gate_weight": ("hidden", "dim"),
        "up_weight": ("hidden", "dim"),
    }
    check_inputs(op, shapes, x=x, gate_weight=gate_weight, up_weight=up_weight)


class _GegluGemm(torch.autograd.Function):  # type: ignore[misc]
    """Keeps only the input: two more GEMMs in the backward pass, but two hidden tensors
    less."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")  # type: ignore[untyped-decorator]
    def forward(
        context: Any, x: Tensor, gate_weight: Tensor, up_weight: Tensor
    ) -> Tensor:
        context.save_for_backward(x, gate_weight, up_weight)
        return project(x, gate_weight, up_weight)

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")  # type: ignore[untyped-decorator]
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(context: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        x, gate_weight, up_weight = context.saved_tensors
        grad_gate, grad_up = gradients(grad, x @ gate_weight.t(), x @ up_weight.t())
        grad_x = None
        if context.needs_input_grad[0]:
            grad_x = torch.addmm(grad_gate @ gate_weight, grad_up, up_weight)
        return grad_x, grad_gate.t() @ x, grad_up.t() @ x


def geglu_projections(x: Tensor, gate_weight: Tensor, up_weight: Tensor) -> Tensor:
    """gelu(x @ gate.T) * (x @ up.T) for x [..., dim], weights [hidden, dim]; with
    autograd. Under autocast all are cast to its dtype. Raises ValueError for tensors
    that do not fit."""
    x, gate_weight, up_weight = cast_for_product(x, gate_weight, up_weight)
    _check_projections("geglu_projections", x, gate_weight, up_weight)
    product: Tensor = _GegluGemm.apply(
        x.reshape(-1, x.shape[-1]), gate_weight, up_weight
    )
    return product.unflatten(0, x.shape[:-1]) if x.dim() > 1 else product.squeeze(0)
