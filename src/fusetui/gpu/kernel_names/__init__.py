"""Decodes the names of GPU kernels: the operation, types and tiles.

`decode(name)` returns a KernelName, or None for an unknown name. Each naming family has
a module with pure functions of the name. docs/kernel-names.md has the vocabulary of the
fields and says how to add a family.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Final, NamedTuple

import msgspec

from .record import DecodedName, KernelName, Part

__all__ = ["KernelName", "Part", "decode", "decoded", "short_name"]

# Kernel names are ASCII; the longest seen in a trace has some 5,000 characters.
_MAX_NAME_CHARACTERS: Final = 65_536

# More than any trace was seen to have: with fewer, passes over all names would forget
# each before it is asked for again.
_MAX_NAMES_KEPT: Final = 1 << 20

Decoder = Callable[[str], KernelName | None]
"""What decodes the names of one family: a name without ROCm's suffix to its record, or
None if it is of another family."""


@lru_cache(maxsize=_MAX_NAMES_KEPT)
def decode(name: str) -> KernelName | None:
    """Say what the name of a GPU kernel determines.

    Returns None if no family recognizes the name.

    >>> decode("ampere_sgemm_128x64_tn").tile_m
    128
    """
    if not name.isascii() or len(name) > _MAX_NAME_CHARACTERS:
        return None

    # ROCm's tools append this to names.
    name_without_suffix = name.removesuffix(" [clone .kd]").removesuffix(".kd")
    kernel = _decode_by_first_family(name_without_suffix)
    if kernel is not None and name_without_suffix != name:
        return msgspec.structs.replace(kernel, name=name)
    return kernel


def _decode_by_first_family(body: str) -> KernelName | None:
    """Return the record of the first family that knows a name; None if none does.

    Args:
        body: The name of the kernel without ROCm's suffix.
    """
    for family in _families():
        if body.startswith(family.beginnings):
            kernel = family.decode(body)
            if kernel is not None:
                return kernel

    return None


class Family(NamedTuple):
    """Names that one library or compiler makes, and what decodes them."""

    beginnings: tuple[str, ...]
    """How these names begin; ANY_NAME if that does not tell."""
    decode: Decoder


ANY_NAME: Final = ("",)
NCCL_BEGINNINGS: Final = (
    "nccl",
    "void nccl",
    "rccl",
    "void rccl",
    "msccl",
    "void msccl",
)
CUTLASS3_BEGINNINGS: Final = (
    "void cutlass::device_kernel<",
    "cutlass::device_kernel<",
)


@cache
def _families() -> tuple[Family, ...]:
    """List all families of kernel names, in the order in which they are tried.

    The order matters, because the first family that knows a name decides. Families with
    a fixed beginning come first, then those that read C++ scopes, last the ones that
    look at single words.
    """
    from . import (
        aten,
        attention,
        cublas,
        cudnn,
        cutlass,
        fp8,
        libraries,
        rocm,
        transfers,
        triton,
    )

    return (
        Family(("void at::", "at::"), aten.decode_elementwise),
        Family(("triton_", "cpp_", "graph_"), triton.decode_inductor),
        Family(("Mem",), transfers.decode_copy),
        Family(NCCL_BEGINNINGS, transfers.decode_nccl),
        Family(ANY_NAME, cublas.decode_tuned),
        Family(("sm",), cudnn.decode_xmma),
        Family(ANY_NAME, cutlass.decode2),
        Family(("nvjet_",), cublas.decode_nvjet),
        Family(("cutlass3x_",), cutlass.decode3),
        Family(("Cijk_", "Custom_Cijk_"), rocm.decode_tensile),
        Family(("void at::", "at::"), aten.decode_reduction),
        Family(("bmm_", "gemm_"), fp8.decode_trtllm),
        Family(ANY_NAME, rocm.decode_miopen),
        Family(ANY_NAME, attention.decode),
        Family(CUTLASS3_BEGINNINGS, cutlass.decode_cxx),
        Family(("void cutlass::Kernel", "cutlass::Kernel"), cutlass.decode_cxx2),
        Family(ANY_NAME, cudnn.decode),
        Family(ANY_NAME, libraries.decode_cub),
        Family(ANY_NAME, rocm.decode_ck),
        Family(ANY_NAME, aten.decode_xpu),
        Family(ANY_NAME, aten.decode_other),
        Family(ANY_NAME, fp8.decode_deep_gemm),
        Family(ANY_NAME, libraries.decode),
        Family(ANY_NAME, cublas.decode_small),
        Family(ANY_NAME, triton.decode_written),
        Family(ANY_NAME, libraries.decode_other),
    )


def decoded(name: str) -> DecodedName:
    """Return what `decode --json` prints about a name.

    For a name of no known family, all fields but the name and the short text are None.
    """
    kernel = decode(name)
    if kernel is not None:
        return kernel
    return DecodedName(name=name, short=short_name(name), family=None, parts=())


@lru_cache(maxsize=_MAX_NAMES_KEPT)
def short_name(name: str) -> str:
    """Return a short readable text for the name of any kernel.

    It has at most 48 characters and no control characters. Lists and charts show it.

    >>> short_name("void my::kernel<int, 4>(int*)")
    'my::kernel'
    """
    from .cxx import base_text

    kernel = decode(name)
    if kernel is None or kernel.short == "":
        return base_text(name)
    return kernel.short
