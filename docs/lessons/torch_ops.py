"""The calls and kernels of PyTorch ops on a CUDA device."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from docs.lessons.device import Launch
from docs.lessons.figures import DOWN, GATE_UP, GELU, LINEAR, MUL, Figure
from docs.lessons.machine import Machine
from docs.lessons.tensors import Tensor

_GATE_UP_NAME = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
_DOWN_NAME = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn"
_LINEAR_NAME = "cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_32x1_tn_align8"
"""Published, like the names of the Triton and Liger kernels; those below are PyTorch's
own."""

_GELU_FUNCTOR = (
    "at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda()#1}"
    "::operator()() const::{lambda()#4}::operator()() const::{lambda(c10::BFloat16)#1}"
)
_MUL_FUNCTOR = (
    "at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, "
    "at::native::binary_internal::MulFunctor<float> >"
)


def _elementwise(functor: str, operands: int) -> str:
    """Return the name of PyTorch's elementwise kernel for a functor; `operands`
    counts the inputs and the output."""
    arrays = f"std::array<char*, {operands}ul>"
    return (
        f"void at::native::vectorized_elementwise_kernel<4, {functor}, {arrays} >"
        f"(int, {functor}, {arrays})"
    )


GELU_NAME = _elementwise(_GELU_FUNCTOR, operands=2)
MUL_NAME = _elementwise(_MUL_FUNCTOR, operands=3)

_POINTWISE_THREADS = 128
_POINTWISE_ELEMENTS = 512  # of a block: 4 for each thread


class _Gemm(NamedTuple):
    """A cuBLAS kernel, its time, and its launch configuration."""

    name: str
    time: Figure
    launch: Launch


# Registers are those of the same or a sibling kernel in public traces. Shared memory of
# the two GEMMs is stages * (tile m + tile n) * tile k * 2 bytes; their tiles cover the
# output.
_GEMMS = {
    (768, 3072): _Gemm(
        name=_GATE_UP_NAME,
        time=GATE_UP,
        launch=Launch(
            grid=(24, 64, 1),
            block=(128, 1, 1),
            registers=230,
            shared=5 * (128 + 128) * 32 * 2,
        ),
    ),
    (3072, 768): _Gemm(
        name=_DOWN_NAME,
        time=DOWN,
        launch=Launch(
            grid=(6, 32, 1),
            block=(256, 1, 1),
            registers=230,
            shared=3 * (128 + 256) * 64 * 2,
        ),
    ),
    (32, 64): _Gemm(
        name=_LINEAR_NAME,
        time=LINEAR,
        launch=Launch(
            grid=(2, 32, 1),
            block=(128, 1, 1),
            registers=88,
            shared=4608,
        ),
    ),
}
"""By the shape of the second matrix, [in, out]."""


def launch_gemm(machine: Machine, weight: Tensor) -> None:
    """Query the occupancy and launch a GEMM, like cuBLAS. `weight` is the second
    matrix, [in, out]."""
    in_features, out_features = weight.shape
    gemm = _GEMMS[in_features, out_features]
    machine.query_occupancy()
    machine.launch(gemm.name, gemm.time, gemm.launch)


def launch_pointwise(
    machine: Machine, name: str, time: Figure, numel: int, registers: int
) -> None:
    """Launch PyTorch's elementwise kernel for `numel` elements."""
    launch = Launch(
        grid=(numel // _POINTWISE_ELEMENTS, 1, 1),
        block=(_POINTWISE_THREADS, 1, 1),
        registers=registers,
    )
    machine.launch(name, time, launch)


def transposed(machine: Machine, weight: Tensor) -> Tensor:
    """Call aten::t, a view without a kernel."""
    view = weight.t()
    with machine.op("aten::t", weight), machine.op("aten::transpose", weight, 0, 1):
        machine.leaf("aten::as_strided", weight, view.shape, view.strides, None)
    return view


def linear(machine: Machine, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Call aten::linear. With a bias it calls addmm, with x [rows, in], and
    otherwise matmul, with x [batch, sequence, in]. `weight` is [out, in]."""
    with machine.op("aten::linear", x, weight, bias):
        matrix = transposed(machine, weight)
        if bias is None:
            return _matmul(machine, x, matrix)
        return addmm(machine, bias, x, matrix)


def addmm(machine: Machine, bias: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """Call aten::addmm, which adds the bias in the epilogue of a single GEMM."""
    with machine.op("aten::addmm", bias, x, weight, 1, 1):
        out = machine.empty(x.shape[0], weight.shape[1])
        launch_gemm(machine, weight)
    return out


def addmm_out(
    machine: Machine, bias: Tensor, x: Tensor, weight: Tensor, out: Tensor
) -> None:
    with machine.op("aten::addmm", bias, x, weight, 1, 1, out):
        launch_gemm(machine, weight)


def mm_out(machine: Machine, x: Tensor, weight: Tensor, out: Tensor) -> None:
    with machine.op("aten::mm", x, weight, out):
        launch_gemm(machine, weight)


def gelu(machine: Machine, x: Tensor) -> Tensor:
    with machine.op("aten::gelu", x, "tanh"):
        out = machine.empty(*x.shape)
        launch_pointwise(machine, GELU_NAME, GELU, prod(x.shape), registers=30)
    return out


def mul(machine: Machine, a: Tensor, b: Tensor) -> Tensor:
    with machine.op("aten::mul", a, b):
        out = machine.empty(*a.shape)
        launch_pointwise(machine, MUL_NAME, MUL, prod(a.shape), registers=24)
    return out


def view(machine: Machine, x: Tensor, *shape: int) -> Tensor:
    machine.leaf("aten::view", x, shape)
    return x.view(*shape)


def _matmul(machine: Machine, x: Tensor, weight: Tensor) -> Tensor:
    """Call aten::matmul with x [batch, sequence, in] and weight [in, out]: one GEMM
    over all rows."""
    batch, sequence, in_features = x.shape
    rows = batch * sequence
    out_features = weight.shape[1]
    out_shape = (batch, sequence, out_features)
    with machine.op("aten::matmul", x, weight):
        with machine.op("aten::reshape", x, (rows, in_features)):
            flat = view(machine, x, rows, in_features)
        with machine.op("aten::mm", flat, weight):
            out = machine.empty(rows, out_features)
            launch_gemm(machine, weight)
        machine.leaf("aten::_unsafe_view", out, out_shape)
    return out.view(*out_shape)
