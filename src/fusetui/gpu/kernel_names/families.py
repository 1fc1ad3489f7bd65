"""All naming families in the order in which they are asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from . import aten, attention, cublas, cudnn, cutlass, fp8_gemm, libraries, rocm, transfers, triton
from .record import KernelName

Family = tuple[tuple[str, ...], Callable[[str], KernelName | None]]

# The first family that knows a name decides. Families with a fixed beginning come first, then those
# that read C++ scopes, last the ones that look at single words. A family is asked only about names
# with one of its beginnings; none given means any name.
_FAMILIES: Final[tuple[Family, ...]] = (
    (("void at::", "at::"), aten.decode_elementwise),
    (("triton_", "cpp_", "graph_"), triton.decode_inductor),
    (("Mem",), transfers.decode_copy),
    (("nccl", "void nccl", "rccl", "void rccl", "msccl", "void msccl"), transfers.decode_nccl),
    ((), cublas.decode_tuned),
    (("sm",), cudnn.decode_xmma),
    ((), cutlass.decode2),
    (("nvjet_",), cublas.decode_nvjet),
    (("cutlass3x_",), cutlass.decode3),
    (("Cijk_", "Custom_Cijk_"), rocm.decode_tensile),
    (("void at::", "at::"), aten.decode_reduction),
    (("bmm_", "gemm_"), fp8_gemm.decode_trtllm),
    ((), rocm.decode_miopen),
    ((), attention.decode),
    (("cutlass", "void cutlass"), cutlass.decode_cxx),
    ((), cudnn.decode),
    ((), libraries.decode_cub),
    ((), rocm.decode_ck),
    ((), aten.decode_xpu),
    ((), aten.decode_other),
    ((), fp8_gemm.decode_deep_gemm),
    ((), libraries.decode),
    ((), cublas.decode_small),
    ((), triton.decode_written),
    ((), libraries.decode_other),
)


def decode_body(name: str) -> KernelName | None:
    """The record of the first family that knows a name."""
    for beginnings, family in _FAMILIES:
        if not beginnings or name.startswith(beginnings):
            found = family(name)
            if found is not None:
                return found
    return None
