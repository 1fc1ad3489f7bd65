"""What the name of a GPU kernel says: decode(name) gives a KernelName, or None for an
unknown name.

One module for each naming family, each a pure function of the name.
docs/kernel-names.md has the vocabulary of the fields and how to add a family.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Final

import msgspec

from .record import DecodedName, KernelName, Part

__all__ = ["KernelName", "Part", "decode", "decoded", "short_name"]

# Kernel names are ASCII; the longest seen in a trace has some 5,000 characters.
_MAX_NAME: Final = 65_536

# More than any trace was seen to have: with fewer, passes over all names would forget
# each before it is asked for again.
_MOST_NAMES: Final = 1 << 20


@lru_cache(maxsize=_MOST_NAMES)
def decode(name: str) -> KernelName | None:
    """What the name determines, or None if no family recognizes it.

    >>> decode("ampere_sgemm_128x64_tn").tile_m
    128
    """
    if not name.isascii() or len(name) > _MAX_NAME:
        return None
    # what ROCm's tools append
    body = name.removesuffix(" [clone .kd]").removesuffix(".kd")
    asked = (
        family
        for begins, family in _families()
        if not begins or body.startswith(begins)
    )
    found = next(filter(None, (family(body) for family in asked)), None)
    if found is None or body is name:
        return found
    return msgspec.structs.replace(found, name=name)


@cache
def _families() -> tuple[
    tuple[tuple[str, ...], Callable[[str], KernelName | None]], ...
]:
    """The first family that knows a name decides. Those with a fixed beginning come
    first, then those that read C++ scopes, last the ones that look at single words. A
    family is asked only about names with one of its beginnings; none given means any
    name."""
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
        (("void at::", "at::"), aten.decode_elementwise),
        (("triton_", "cpp_", "graph_"), triton.decode_inductor),
        (("Mem",), transfers.decode_copy),
        (
            ("nccl", "void nccl", "rccl", "void rccl", "msccl", "void msccl"),
            transfers.decode_nccl,
        ),
        ((), cublas.decode_tuned),
        (("sm",), cudnn.decode_xmma),
        ((), cutlass.decode2),
        (("nvjet_",), cublas.decode_nvjet),
        (("cutlass3x_",), cutlass.decode3),
        (("Cijk_", "Custom_Cijk_"), rocm.decode_tensile),
        (("void at::", "at::"), aten.decode_reduction),
        (("bmm_", "gemm_"), fp8.decode_trtllm),
        ((), rocm.decode_miopen),
        ((), attention.decode),
        (
            ("void cutlass::device_kernel<", "cutlass::device_kernel<"),
            cutlass.decode_cxx,
        ),
        (("void cutlass::Kernel", "cutlass::Kernel"), cutlass.decode_cxx2),
        ((), cudnn.decode),
        ((), libraries.decode_cub),
        ((), rocm.decode_ck),
        ((), aten.decode_xpu),
        ((), aten.decode_other),
        ((), fp8.decode_deep_gemm),
        ((), libraries.decode),
        ((), cublas.decode_small),
        ((), triton.decode_written),
        ((), libraries.decode_other),
    )


def decoded(name: str) -> DecodedName:
    """What `decode --json` has of any name, also of one of no known family."""
    return decode(name) or DecodedName(
        name=name, short=short_name(name), family=None, parts=()
    )


@lru_cache(maxsize=_MOST_NAMES)
def short_name(name: str) -> str:
    """A short readable text for any name: at most 48 characters, no control characters.

    >>> short_name("void my::kernel<int, 4>(int*)")
    'my::kernel'
    """
    from .cxx import base_text

    found = decode(name)
    return found.short if found is not None and found.short else base_text(name)
