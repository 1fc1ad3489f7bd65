"""gelu(x @ gate.T) * (x @ up.T) as one Triton GEMM with the activation in its epilogue.

Neither projection is written to memory: a program keeps one tile of each in registers and writes
their product. The backward pass recomputes both projections, because they were not stored.
"""

# ruff: noqa: N803 (Triton writes constants of a kernel in capitals)

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from .geglu import gate_of, gradients

STAGES = 3
TILES = ((128, 128, 64), (128, 64, 64), (64, 64, 32))
"""(BLOCK_M, BLOCK_N, BLOCK_K), best first; the first that fits into shared memory is used."""


@triton.jit  # type: ignore[untyped-decorator]
def tile_of(  # type: ignore[no-untyped-def]
    program, rows, columns, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr
):
    """The tile of a program: GROUP tiles of one column are adjacent, so that their weights are
    still in the L2 cache."""
    tiles_m, tiles_n = tl.cdiv(rows, BLOCK_M), tl.cdiv(columns, BLOCK_N)
    in_group = GROUP * tiles_n
    first = program // in_group * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    return first + program % in_group % height, program % in_group // height


@triton.jit  # type: ignore[untyped-decorator]
def geglu_gemm_kernel_triton(  # type: ignore[no-untyped-def]
    x_ptr,
    gate_ptr,
    up_ptr,
    out_ptr,
    rows,
    hidden,
    dim,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """One program computes BLOCK_M rows and BLOCK_N features; all matrices are row-major."""
    tile_m, tile_n = tile_of(tl.program_id(0), rows, hidden, BLOCK_M, BLOCK_N, GROUP)
    row = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    column = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    depth = tl.arange(0, BLOCK_K)
    row_inside, column_inside = row < rows, column < hidden
    x_at = x_ptr + row[:, None] * dim + depth[None, :]
    weight_at = column[None, :] * dim + depth[:, None]
    gate = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    up = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, dim, BLOCK_K):
        deep = depth < dim - start
        x = tl.load(x_at + start, mask=row_inside[:, None] & deep[None, :], other=0.0)
        inside = column_inside[None, :] & deep[:, None]
        gate_weight = tl.load(gate_ptr + weight_at + start, mask=inside, other=0.0)
        up_weight = tl.load(up_ptr + weight_at + start, mask=inside, other=0.0)
        gate = tl.dot(x, gate_weight, gate, input_precision=PRECISION)
        up = tl.dot(x, up_weight, up, input_precision=PRECISION)
    share, _ = gate_of(gate)
    product = (gate * share * up).to(out_ptr.dtype.element_ty)
    out_at = out_ptr + row[:, None] * hidden + column[None, :]
    tl.store(out_at, product, mask=row_inside[:, None] & column_inside[None, :])


def precision() -> str:
    """How Triton multiplies float32: exactly, unless torch is set to allow TF32."""
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def project(x: Tensor, gate_weight: Tensor, up_weight: Tensor) -> Tensor:
    """The activated product for x [rows, dim] and weights [hidden, dim], without autograd."""
    x, gate_weight, up_weight = x.contiguous(), gate_weight.contiguous(), up_weight.contiguous()
    (rows, dim), hidden = x.shape, len(gate_weight)
    out = torch.empty(rows, hidden, dtype=x.dtype, device=x.device)
    block_m, block_n, block_k = choose_tile(x.element_size(), shared_bytes(x))
    tiles = triton.cdiv(rows, block_m) * triton.cdiv(hidden, block_n)
    if tiles:
        geglu_gemm_kernel_triton[(tiles,)](
            x,
            gate_weight,
            up_weight,
            out,
            rows,
            hidden,
            dim,
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            BLOCK_K=block_k,
            GROUP=8,
            PRECISION=precision(),
            num_warps=8 if block_m * block_n > 64 * 64 else 4,
            num_stages=STAGES,
        )
    return out


def choose_tile(item_bytes: int, available_bytes: int) -> tuple[int, int, int]:
    """The first of TILES that fits, or the last: a stage holds a tile of x and of two weights."""
    for block_m, block_n, block_k in TILES:
        if (block_m + 2 * block_n) * block_k * item_bytes * STAGES <= available_bytes:
            return block_m, block_n, block_k
    return TILES[-1]


def shared_bytes(tensor: Tensor) -> int:
    """Shared memory per program on the tensor's device, in bytes; 0 on a CPU."""
    if tensor.device.type != "cuda":
        return 0
    properties = torch.cuda.get_device_properties(tensor.device)
    # torch names it since 2.5; every GPU has at least 64 KiB.
    return int(getattr(properties, "shared_memory_per_block_optin", 65_536))


class _GegluGemm(torch.autograd.Function):  # type: ignore[misc]
    """Keeps only the input: two more GEMMs in the backward pass, but two hidden tensors less."""

    @staticmethod
    def forward(context: Any, x: Tensor, gate_weight: Tensor, up_weight: Tensor) -> Tensor:
        context.save_for_backward(x, gate_weight, up_weight)
        return project(x, gate_weight, up_weight)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(context: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        x, gate_weight, up_weight = context.saved_tensors
        grad_gate, grad_up = gradients(grad, x @ gate_weight.t(), x @ up_weight.t())
        grad_x = None
        if context.needs_input_grad[0]:
            grad_x = torch.addmm(grad_gate @ gate_weight, grad_up, up_weight)
        return grad_x, grad_gate.t() @ x, grad_up.t() @ x


def geglu_projections(x: Tensor, gate_weight: Tensor, up_weight: Tensor) -> Tensor:
    """gelu(x @ gate.T) * (x @ up.T) for x [..., dim] and weights [hidden, dim]; supports
    autograd."""
    product: Tensor = _GegluGemm.apply(x.flatten(0, -2), gate_weight, up_weight)
    return product.unflatten(0, x.shape[:-1])
