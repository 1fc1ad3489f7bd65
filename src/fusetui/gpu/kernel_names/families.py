"""All naming families in the order in which they are asked."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from fusetui.gpu.kernel_names import (
    aten_elementwise,
    aten_other,
    aten_reduce,
    attention,
    ck,
    copies,
    cub,
    cublas,
    cublas_aux,
    cudnn,
    cutlass2,
    cutlass3,
    cutlass3_cxx,
    deep_gemm,
    libraries,
    miopen,
    nccl,
    nvjet,
    other,
    tensile,
    triton_inductor,
    triton_kernels,
    trtllm_gen,
    xmma,
    xpu,
)
from fusetui.gpu.kernel_names.model import KernelName

Family = tuple[tuple[str, ...], Callable[[str], KernelName | None]]

# The first family that knows a name decides. Families with a fixed beginning come first, then those
# that read C++ scopes, last the ones that look at single words. A family is asked only about names
# with one of its beginnings; none given means any name.
_FAMILIES: Final[tuple[Family, ...]] = (
    (("void at::", "at::"), aten_elementwise.decode),
    (("triton_", "cpp_", "graph_"), triton_inductor.decode),
    (("Mem",), copies.decode),
    (("nccl", "void nccl", "rccl", "void rccl", "msccl", "void msccl"), nccl.decode),
    ((), cublas.decode),
    (("sm",), xmma.decode),
    ((), cutlass2.decode),
    (("nvjet_",), nvjet.decode),
    (("cutlass3x_",), cutlass3.decode),
    (("Cijk_", "Custom_Cijk_"), tensile.decode),
    (("void at::", "at::"), aten_reduce.decode),
    (("bmm_", "gemm_"), trtllm_gen.decode),
    ((), miopen.decode),
    ((), attention.decode),
    (("cutlass", "void cutlass"), cutlass3_cxx.decode),
    ((), cudnn.decode),
    ((), cub.decode),
    ((), ck.decode),
    ((), xpu.decode),
    ((), aten_other.decode),
    ((), deep_gemm.decode),
    ((), libraries.decode),
    ((), cublas_aux.decode),
    ((), triton_kernels.decode),
    ((), other.decode),
)


def decode_body(name: str) -> KernelName | None:
    """The record of the first family that knows a name."""
    for beginnings, family in _candidates(name[:1]):
        if not beginnings or name.startswith(beginnings):
            found = family(name)
            if found is not None:
                return found
    return None


@lru_cache(maxsize=256)
def _candidates(first: str) -> tuple[Family, ...]:
    """The families, in order, whose names may begin with this character."""
    return tuple(
        (beginnings, family)
        for beginnings, family in _FAMILIES
        if not beginnings or any(text.startswith(first) for text in beginnings)
    )
