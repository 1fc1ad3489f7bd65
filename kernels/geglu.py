"""The gated activation of an MLP in Triton, with gelu in its tanh form.

- `gelu_mul`: gelu(gate) * up as one elementwise kernel, and its gradient as another.
- `geglu_projections`: gelu(x @ gate.T) * (x @ up.T) as one GEMM with the activation in
  its epilogue.

Needs triton and a GPU. With TRITON_INTERPRET=1 the same arithmetic runs on a CPU, for
tests. The arithmetic is float32 for any dtype.

The elementwise kernels read each input once and write each result once. Their element
count is not specialized, so they are not recompiled for other shapes. A mask over a
count of unknown divisibility would make every load scalar; therefore only the last
block is masked.

The GEMM does not write the projections to memory: a program keeps one tile of each in
registers and writes their product. So the backward pass computes both again.
"""

# ruff: noqa: N803 (Triton writes constants of a kernel in capitals)

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from .inputs import cast_for_product, check_inputs, promote_dtypes
from .tiles import (
    TABLES,
    Tile,
    architecture,
    choose,
    padded,
    precision,
    precision_name,
    run_of_store,
    shrink_to_rows,
    whole,
)
from .tuning import tuned

BLOCK_NVIDIA = 1024
BLOCK_AMD = 2048
"""Elements per program: with Triton's 4 warps, each thread loads 16 bytes of bfloat16
at once. A warp of AMD has 64 threads instead of 32."""


@triton.jit
def sigmoid_and_slope(x):  # type: ignore[no-untyped-def]
    """(s, d) with gelu(x) = x * s, and s * (1 - s) * d as the derivative of s.

    gelu(x) = x * (1 + tanh(z)) / 2 with z = sqrt(2 / pi) * (x + 0.044715 * x^3). As
    tanh(z) = 2 * sigmoid(2 * z) - 1, that is x * sigmoid(2 * z), which takes half the
    work: s = sigmoid(2 * z), and d is the derivative of 2 * z by x. The constants are
    2 * sqrt(2 / pi) and 3 * 0.044715.
    """
    squared = x * x
    sigmoid = tl.sigmoid(1.5957691216057308 * x * (1 + 0.044715 * squared))
    slope = 1.5957691216057308 * (1 + 0.134145 * squared)
    return sigmoid, slope


@triton.jit
def _multiply(gate_ptr, up_ptr, out_ptr, offsets, inside):  # type: ignore[no-untyped-def]
    """Writes gelu(gate) * up for the elements at `offsets`; `inside` is the mask, None
    for all."""
    gate = tl.load(gate_ptr + offsets, mask=inside).to(tl.float32)
    up = tl.load(up_ptr + offsets, mask=inside).to(tl.float32)
    sigmoid, _ = sigmoid_and_slope(gate)
    product = (gate * sigmoid * up).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + offsets, product, mask=inside)


@triton.jit
def _differentiate(  # type: ignore[no-untyped-def]
    grad_ptr, gate_ptr, up_ptr, grad_gate_ptr, grad_up_ptr, offsets, inside
):
    """Writes the gradients of gate and up for the elements at `offsets`; `inside` is
    the mask, None for all."""
    grad = tl.load(grad_ptr + offsets, mask=inside).to(tl.float32)
    gate = tl.load(gate_ptr + offsets, mask=inside).to(tl.float32)
    up = tl.load(up_ptr + offsets, mask=inside).to(tl.float32)
    sigmoid, slope = sigmoid_and_slope(gate)
    gelu_slope = sigmoid + gate * sigmoid * (1 - sigmoid) * slope
    grad_gate = (grad * up * gelu_slope).to(grad_gate_ptr.dtype.element_ty)
    grad_up = (grad * gate * sigmoid).to(grad_up_ptr.dtype.element_ty)
    tl.store(grad_gate_ptr + offsets, grad_gate, mask=inside)
    tl.store(grad_up_ptr + offsets, grad_up, mask=inside)


@triton.jit(do_not_specialize=["count"])  # type: ignore[untyped-decorator]
def geglu_forward_kernel_triton(gate_ptr, up_ptr, out_ptr, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """One program computes BLOCK elements of gelu(gate) * up; `count` is the number of
    all."""
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
    """One program computes both gradients of BLOCK elements; `count` is the number of
    all."""
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
    """Return gelu(gate) * up without autograd, in the layout of `gate` if that is
    dense. Raises ValueError unless both tensors have equal shape, dtype and device."""
    check_inputs("multiply", _require_same_shape(gate, "gate", "up"), gate=gate, up=up)
    out = torch.empty_like(gate)
    gate = _match_layout(out, gate)
    up = _match_layout(out, up)
    _launch_elementwise(geglu_forward_kernel_triton, gate, up, out)
    return out


def gradients(grad: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient of `gate` and that of `up`, from `grad`, the gradient of the
    product. Raises ValueError unless all tensors have equal shape, dtype and device."""
    shapes = _require_same_shape(gate, "gate", "up", "grad")
    check_inputs("gradients", shapes, gate=gate, up=up, grad=grad)
    grad_gate = torch.empty_like(gate)
    grad_up = torch.empty_like(gate)
    _launch_elementwise(
        geglu_backward_kernel_triton,
        _match_layout(grad_gate, grad),
        _match_layout(grad_gate, gate),
        _match_layout(grad_gate, up),
        grad_gate,
        grad_up,
    )
    return grad_gate, grad_up


def _require_same_shape(tensor: Tensor, *names: str) -> dict[str, torch.Size]:
    """Return for `check_inputs` that all these names have the shape of a tensor."""
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
        gate, up = context.saved_tensors
        return gradients(grad, gate, up)


def gelu_mul(gate: Tensor, up: Tensor) -> Tensor:
    """Return gelu(gate) * up for two tensors of equal shape, dtype and device; supports
    autograd.

    Any dense layout is processed in memory order, and a tensor that is not dense is
    copied first. Triton compiles each kernel once per dtype, and once more for a view
    whose offset is not a multiple of 16 bytes. Under autocast two dtypes become the
    wider one. Raises ValueError if the tensors differ, are empty, or have a dtype that
    the kernels do not know.
    """
    gate, up = promote_dtypes(gate, up)
    check_inputs("gelu_mul", _require_same_shape(gate, "gate", "up"), gate=gate, up=up)
    product: Tensor = _GeluMul.apply(gate, up)
    return product


def _match_layout(dense: Tensor, tensor: Tensor) -> Tensor:
    """Return the tensor with the strides of `dense`; it is copied only if it has
    others."""
    if tensor.stride() == dense.stride():
        return tensor
    return torch.empty_like(dense, dtype=tensor.dtype).copy_(tensor)


def _launch_elementwise(kernel: Any, *tensors: Tensor) -> None:
    """Run an elementwise kernel over tensors of equal layout, on their GPU. All tensors
    have as many elements as the first one."""
    count = tensors[0].numel()
    is_amd = architecture(tensors[0]).startswith("gfx")
    block = BLOCK_AMD if is_amd else BLOCK_NVIDIA
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
    """(row, column) of the tile that a program computes, in tiles.

    Programs that follow each other compute GROUP tiles of one column, one below the
    other, then the tiles beside them: the weights of a column stay in the L2 cache.
    """
    tiles_m = tl.cdiv(rows, BLOCK_M)
    tiles_n = tl.cdiv(columns, BLOCK_N)
    tiles_of_group = GROUP * tiles_n
    first_row = program // tiles_of_group * GROUP
    rows_of_group = tl.minimum(tiles_m - first_row, GROUP)  # fewer in the last group
    position = program % tiles_of_group
    return first_row + position % rows_of_group, position // rows_of_group


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
    """Writes a tile [BLOCK_M, BLOCK_N] into a matrix [rows, columns], without what lies
    outside of it. `row` are the BLOCK_M rows of the tile.

    With a RUN of 1, Triton chooses how. Otherwise the tile is written as [BLOCK_M,
    BLOCK_N / RUN, RUN], for which Triton exchanges values in shared memory, so that
    each thread has RUN adjacent ones to write.
    """
    row_at = out_ptr + row * row_stride
    is_row = row < rows
    if RUN == 1:
        column = first_column + tl.arange(0, BLOCK_N)
        at = row_at[:, None] + column[None, :] * column_stride
        tl.store(at, tile, mask=is_row[:, None] & (column < columns)[None, :])
    else:
        # A sum of two ranges: of a reshaped range, Triton does not know which values
        # are adjacent.
        run = first_column + RUN * tl.arange(0, BLOCK_N // RUN)
        column = run[:, None] + tl.arange(0, RUN)[None, :]
        at = row_at[:, None, None] + (column * column_stride)[None, :, :]
        is_inside = is_row[:, None, None] & (column < columns)[None, :, :]
        runs = tl.reshape(tile, (BLOCK_M, BLOCK_N // RUN, RUN))
        tl.store(at, runs, mask=is_inside)


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
    """One program computes BLOCK_M rows and BLOCK_N features of the product for x
    [rows, dim] and weights [hidden, dim]; all matrices are row-major.

    BLOCK_K must divide `dim`, and rows and features beyond the end wrap around, so the
    loop needs no masks. The results of those beyond the end are not stored, or stored
    in the padding of a row, which is `out_row` elements long.
    """
    tile_m, tile_n = tile_of(tl.program_id(0), rows, hidden, BLOCK_M, BLOCK_N, GROUP)
    row = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    column = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    depth = tl.arange(0, BLOCK_K)
    x_at = x_ptr + (row % rows)[:, None] * dim + depth[None, :]
    weight_at = (column % hidden)[None, :] * dim + depth[:, None]
    gate_at = gate_ptr + weight_at
    up_at = up_ptr + weight_at

    gate = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    up = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, dim, BLOCK_K):
        x = tl.load(x_at)
        gate = tl.dot(x, tl.load(gate_at), gate, input_precision=PRECISION)
        up = tl.dot(x, tl.load(up_at), up, input_precision=PRECISION)
        x_at += BLOCK_K
        gate_at += BLOCK_K
        up_at += BLOCK_K

    sigmoid, _ = sigmoid_and_slope(gate)
    store_tile(
        out_ptr,
        (gate * sigmoid * up).to(out_ptr.dtype.element_ty),
        row,
        rows,
        row_stride=out_row,
        first_column=(tile_n * BLOCK_N).to(tl.int64),
        columns=out_row,
        column_stride=1,
        BLOCK_M=BLOCK_M,
        BLOCK_N=BLOCK_N,
        RUN=RUN,
    )


def project(x: Tensor, gate_weight: Tensor, up_weight: Tensor) -> Tensor:
    """Return gelu(x @ gate.T) * (x @ up.T) without autograd, of shape [rows, hidden]. x
    is [rows, dim], and both weights are [hidden, dim].

    If the tile does not divide `dim`, the inputs are padded with zeros first. The
    result is a view: its rows in memory are padded to a multiple of 16 elements. Raises
    ValueError for tensors that do not fit.
    """
    _check_projections("project", x, gate_weight, up_weight)
    rows, dim = x.shape
    hidden = len(gate_weight)
    default_tile = shrink_to_rows(choose(TABLES.geglu, x), rows, x)
    out = torch.empty(rows, padded(hidden), dtype=x.dtype, device=x.device)
    whole_x = whole(x, default_tile.k)
    whole_gate = whole(gate_weight, default_tile.k)
    whole_up = whole(up_weight, default_tile.k)

    def launch(tile: Tile) -> None:
        """Runs the kernel with this tile."""
        tiles = triton.cdiv(rows, tile.m) * triton.cdiv(hidden, tile.n)
        geglu_gemm_kernel_triton[(tiles,)](
            whole_x,
            whole_gate,
            whole_up,
            out,
            rows,
            hidden,
            whole_x.shape[1],
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
        sizes = f"rows<={default_tile.m} hidden={hidden} dim={dim}"
        key = f"geglu_gemm {architecture(x)} {precision_name(x)} {sizes}"
        launch(tuned(key, default_tile, launch))

    return out[:, :hidden]


def _check_projections(
    op: str, x: Tensor, gate_weight: Tensor, up_weight: Tensor
) -> None:
    """Raise ValueError unless x is [..., dim] and both weights are [hidden, dim], all
    of one dtype and on one device."""
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
        """Return the gradients of x, None if it is not wanted, and of both weights. The
        projections are computed again, as they were not kept."""
        x, gate_weight, up_weight = context.saved_tensors
        gate = x @ gate_weight.t()
        up = x @ up_weight.t()
        grad_gate, grad_up = gradients(grad, gate, up)
        grad_x = None
        if context.needs_input_grad[0]:
            grad_x = torch.addmm(grad_gate @ gate_weight, grad_up, up_weight)
        return grad_x, grad_gate.t() @ x, grad_up.t() @ x


def geglu_projections(x: Tensor, gate_weight: Tensor, up_weight: Tensor) -> Tensor:
    """Return gelu(x @ gate.T) * (x @ up.T), of shape [..., hidden]; supports autograd.
    x is [..., dim], and both weights are [hidden, dim]. Under autocast all are cast to
    its dtype. Raises ValueError for tensors that do not fit."""
    x, gate_weight, up_weight = cast_for_product(x, gate_weight, up_weight)
    _check_projections("geglu_projections", x, gate_weight, up_weight)
    rows = x.reshape(-1, x.shape[-1])
    product: Tensor = _GegluGemm.apply(rows, gate_weight, up_weight)
    if x.dim() == 1:
        return product.squeeze(0)
    return product.unflatten(0, x.shape[:-1])
