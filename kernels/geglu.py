"""gelu(gate) * up as one Triton kernel, and its gradient as another; gelu in its tanh form.

Each input is read once and each result written once; the arithmetic is float32 for any dtype.
Needs triton and a GPU. With TRITON_INTERPRET=1 the same arithmetic runs on a CPU, for tests.

The element count is not specialized, so the kernels are not recompiled for other shapes. A mask
over a count of unknown divisibility would make every load scalar; therefore only the last block is
masked.
"""

# ruff: noqa: N803 (Triton writes constants of a kernel in capitals)

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import tiles

BLOCK, BLOCK_AMD = 1024, 2048
"""Elements per program: with Triton's 4 warps, each thread loads 16 bytes of bfloat16 at once. A
warp of AMD has 64 threads instead of 32."""


@triton.jit
def gate_of(x):  # type: ignore[no-untyped-def]
    """(gelu(x) / x, its inner derivative): tanh(z) = 2 * sigmoid(2 * z) - 1 saves half the work.
    gelu(x) = x * sigmoid(2 * z) with 2 * z = 1.5957... * (x + 0.044715 * x^3); the second value is
    the derivative of 2 * z by x."""
    squared = x * x
    share = tl.sigmoid(1.5957691216057308 * x * (1 + 0.044715 * squared))
    return share, 1.5957691216057308 * (1 + 0.134145 * squared)


@triton.jit
def _multiply(gate_ptr, up_ptr, out_ptr, offsets, inside):  # type: ignore[no-untyped-def]
    gate = tl.load(gate_ptr + offsets, mask=inside).to(tl.float32)
    up = tl.load(up_ptr + offsets, mask=inside).to(tl.float32)
    share, _ = gate_of(gate)
    tl.store(out_ptr + offsets, (gate * share * up).to(out_ptr.dtype.element_ty), mask=inside)


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
        _differentiate(grad_ptr, gate_ptr, up_ptr, grad_gate_ptr, grad_up_ptr, offsets, None)
    else:
        _differentiate(
            grad_ptr, gate_ptr, up_ptr, grad_gate_ptr, grad_up_ptr, offsets, offsets < count
        )


def multiply(gate: Tensor, up: Tensor) -> Tensor:
    """gelu(gate) * up without autograd, in the layout of `gate` if that is dense."""
    out = torch.empty_like(gate)
    _launch(geglu_forward_kernel_triton, _laid_out(gate, out), _laid_out(up, out), out)
    return out


def gradients(grad: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of `gate` and `up`, from that of the product."""
    grad_gate, grad_up = torch.empty_like(gate), torch.empty_like(gate)
    inputs = [_laid_out(tensor, grad_gate) for tensor in (grad, gate, up)]
    _launch(geglu_backward_kernel_triton, *inputs, grad_gate, grad_up)
    return grad_gate, grad_up


class _GeluMul(torch.autograd.Function):  # type: ignore[misc]
    """Keeps both inputs, which the preceding GEMMs produced anyway, and no other tensor."""

    @staticmethod
    def forward(context: Any, gate: Tensor, up: Tensor) -> Tensor:
        context.save_for_backward(gate, up)
        return multiply(gate, up)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(context: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        return gradients(grad, *context.saved_tensors)


def gelu_mul(gate: Tensor, up: Tensor) -> Tensor:
    """gelu(gate) * up for two tensors of equal shape and dtype; supports autograd.

    Any dense layout is processed in memory order; a non-dense tensor is copied first. Triton
    compiles each kernel once per dtype, and once more for a view whose offset is not a multiple of
    16 bytes. Raises ValueError if shapes or dtypes differ.
    """
    if gate.shape != up.shape or gate.dtype != up.dtype:
        raise ValueError(f"gate is {gate.dtype} {gate.shape}, up is {up.dtype} {up.shape}")
    product: Tensor = _GeluMul.apply(gate, up)
    return product


def _laid_out(tensor: Tensor, like: Tensor) -> Tensor:
    """The tensor with the strides of `like`, which is dense; copied only if they differ."""
    if tensor.stride() == like.stride():
        return tensor
    return torch.empty_like(like, dtype=tensor.dtype).copy_(tensor)


def _launch(kernel: Any, *tensors: Tensor) -> None:
    """Runs an elementwise kernel over tensors of equal layout; empty ones have no grid."""
    count = tensors[0].numel()
    block = BLOCK_AMD if tiles.architecture(tensors[0]).startswith("gfx") else BLOCK
    if count:
        kernel[(triton.cdiv(count, block),)](*tensors, count, BLOCK=block)
