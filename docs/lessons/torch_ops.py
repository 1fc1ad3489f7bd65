"""What ops of PyTorch call when they run on a CUDA device, and the kernels they
launch."""

from __future__ import annotations

from docs.lessons.device import Launch
from docs.lessons.figures import DOWN, GATE_UP, GELU, LINEAR, MUL, Figure
from docs.lessons.machine import Machine
from docs.lessons.tensors import Argument, Tensor

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
    arrays = f"std::array<char*, {operands}ul>"
    return (
        f"void at::native::vectorized_elementwise_kernel<4, {functor}, {arrays} >"
        f"(int, {functor}, {arrays})"
    )


GELU_NAME, MUL_NAME = _elementwise(_GELU_FUNCTOR, 2), _elementwise(_MUL_FUNCTOR, 3)

_PER_BLOCK = 512  # elements: 128 threads, 4 each
# Registers are those of the same or a sibling kernel in public traces. Shared memory of
# the two GEMMs is stages * (tile m + tile n) * tile k * 2 bytes; their tiles cover the
# output.
_GEMMS: dict[tuple[int, int], tuple[str, Figure, Launch]] = {
    (768, 3072): (
        _GATE_UP_NAME,
        GATE_UP,
        Launch((24, 64, 1), (128, 1, 1), 230, 5 * 256 * 32 * 2),
    ),
    (3072, 768): (
        _DOWN_NAME,
        DOWN,
        Launch((6, 32, 1), (256, 1, 1), 230, 3 * 384 * 64 * 2),
    ),
    (32, 64): (_LINEAR_NAME, LINEAR, Launch((2, 32, 1), (128, 1, 1), 88, 4608)),
}
"""By the shape of the second matrix."""


def launch_gemm(m: Machine, weight: Tensor) -> None:
    """cuBLAS asks how many blocks fit, then launches. `weight` is the second matrix,
    [in, out]."""
    name, time, launch = _GEMMS[weight.shape[0], weight.shape[1]]
    m.query_occupancy()
    m.launch(name, time, launch)


def launch_pointwise(
    m: Machine, name: str, time: Figure, numel: int, registers: int
) -> None:
    m.launch(name, time, Launch((numel // _PER_BLOCK, 1, 1), (128, 1, 1), registers))


def transposed(m: Machine, weight: Tensor) -> Tensor:
    """aten::t: a view, so no kernel."""
    view = weight.t()
    with m.op("aten::t", weight), m.op("aten::transpose", weight, 0, 1):
        m.leaf("aten::as_strided", weight, view.shape, view.strides, None)
    return view


def linear(m: Machine, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """aten::linear: addmm with a bias on a matrix, else matmul."""
    with m.op("aten::linear", x, weight, bias):
        view = transposed(m, weight)
        return _matmul(m, x, view) if bias is None else addmm(m, bias, x, view)


def addmm(m: Machine, bias: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """The bias is added in the GEMM's epilogue: one kernel."""
    with m.op("aten::addmm", bias, x, weight, 1, 1):
        out = m.empty(x.shape[0], weight.shape[1])
        launch_gemm(m, weight)
    return out


def addmm_out(m: Machine, bias: Tensor, x: Tensor, weight: Tensor, out: Tensor) -> None:
    with m.op("aten::addmm", bias, x, weight, 1, 1, out):
        launch_gemm(m, weight)


def mm_out(m: Machine, x: Tensor, weight: Tensor, out: Tensor) -> None:
    with m.op("aten::mm", x, weight, out):
        launch_gemm(m, weight)


def gelu(m: Machine, x: Tensor) -> Tensor:
    with m.op("aten::gelu", x, "tanh"):
        out = m.empty(*x.shape)
        launch_pointwise(m, GELU_NAME, GELU, x.nbytes // 2, registers=30)
    return out


def mul(m: Machine, a: Tensor, b: Tensor) -> Tensor:
    with m.op("aten::mul", a, b):
        out = m.empty(*a.shape)
        launch_pointwise(m, MUL_NAME, MUL, a.nbytes // 2, registers=24)
    return out


def view(m: Machine, x: Tensor, *shape: int) -> Tensor:
    m.leaf("aten::view", x, shape)
    return x.view(*shape)


def _matmul(m: Machine, x: Tensor, weight: Tensor) -> Tensor:
    rows, out_features = x.shape[0] * x.shape[1], weight.shape[1]
    with m.op("aten::matmul", x, weight):
        arguments: tuple[Argument, ...] = (x, (rows, x.shape[2]))
        with m.op("aten::reshape", *arguments):
            flat = view(m, x, rows, x.shape[2])
        with m.op("aten::mm", flat, weight):
            out = m.empty(rows, out_features)
            launch_gemm(m, weight)
        shape = (*x.shape[:2], out_features)
        m.leaf("aten::_unsafe_view", out, shape)
    return out.view(*shape)
