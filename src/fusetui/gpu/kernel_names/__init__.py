"""What the name of a GPU kernel says: decode(name) gives a KernelName, or None for an unknown name.

One module for each naming family, each a pure function of the name. docs/kernel-names.md has the
vocabulary of the fields and how to add a family.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import msgspec

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
from fusetui.gpu.kernel_names.model import KernelName, Part
from fusetui.gpu.kernel_names.unknown import base_text

__all__ = ["KernelName", "Part", "decode", "short_name"]

Decoder = Callable[[str], KernelName | None]
Family = tuple[tuple[str, ...], Decoder]

# Kernel names are ASCII; the longest seen in a trace has some 5,000 characters.
_MAX_NAME: Final = 65_536

# More than any trace was seen to have: with fewer, passes over all names would forget each before
# it is asked for again.
_MOST_NAMES: Final = 1 << 20

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


@lru_cache(maxsize=_MOST_NAMES)
def decode(name: str) -> KernelName | None:
    """What the name determines, or None if no family recognizes it.

    >>> decode("ampere_sgemm_128x64_tn").tile_m
    128
    """
    if not name.isascii() or len(name) > _MAX_NAME:
        return None
    body = _without_suffix(name)
    for beginnings, family in _candidates(body[:1]):
        if beginnings and not body.startswith(beginnings):
            continue
        found = family(body)
        if found is not None:
            return found if body is name else msgspec.structs.replace(found, name=name)
    return None


@lru_cache(maxsize=256)
def _candidates(first: str) -> tuple[Family, ...]:
    """The families, in order, whose names may begin with this character."""
    return tuple(
        (beginnings, family)
        for beginnings, family in _FAMILIES
        if not beginnings or any(text.startswith(first) for text in beginnings)
    )


def _without_suffix(name: str) -> str:
    """ROCm's tools append `.kd` (kernel descriptor), also as `[clone .kd]`."""
    return name.removesuffix(" [clone .kd]").removesuffix(".kd")


@lru_cache(maxsize=_MOST_NAMES)
def short_name(name: str) -> str:
    """A short readable text for any name: at most 48 characters, no control characters.

    >>> short_name("void my::kernel<int, 4>(int*)")
    'my::kernel'
    """
    found = decode(name)
    return found.short if found is not None and found.short else base_text(name)
