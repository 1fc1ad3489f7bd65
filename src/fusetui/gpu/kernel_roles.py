"""The role of a kernel within its op, from its name.

A kernel does the work of its op itself, or helps with it. There is one record for each
name, which is made once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from fusetui.gpu.kernel_names import KernelName, decode
from fusetui.gpu.kinds import MAX_NAMES_KEPT, kind_of_kernel
from fusetui.text.patterns import lazy_pattern

_BASIS_CHANGES: Final = lazy_pattern(r"winograd_nonfused::|generateWinogradTiles")
"""Changes of basis before and after the products of Winograd's algorithm."""

# the product of two vectors, whose parts another adds up
_DOT_PRODUCTS: Final = lazy_pattern(r"\bdot_kernel<")
_MOVING_OPS: Final = ("memset", "memcpy", "copy", "fill")
_MAIN_OPS: Final = ("gemm", "gemv", "conv", "attention")
_HELPING_LIBRARIES: Final = ("cudnn", "miopen")
_BLAS_PREFIX: Final = "cublas"
"""Libraries of products and convolutions, whose other kernels help with these."""


class KernelRole(msgspec.Struct, frozen=True):
    """What a kernel is, by its name, and the part that it has in the work of its
    op."""

    decoded: KernelName | None
    """What its name determines; None if no family recognizes it."""
    kind: str | None
    """The kind of its work as of `kinds.kind_of_kernel`; None if the name does not say
    it."""
    part: str
    """`main` for the product, convolution or attention itself; `helper` for what is
    around it (offsets, a change of basis, a reduction of split-K); the kind of any
    other work; "" when the name is unknown."""
    is_helper: bool
    """It is no work by itself, but helps the main kernel of an op: a fill, a copy, and
    whatever of a library of products or convolutions is neither."""
    adds_up_parts: bool
    """It is the reduction of split-K."""


@lru_cache(maxsize=MAX_NAMES_KEPT)
def role_of_kernel(name: str) -> KernelRole:
    """Return the role of a kernel with this name.

    >>> role_of_kernel("ampere_sgemm_128x64_tn").part
    'main'
    """
    kernel = decode(name)
    kind = kind_of_kernel(name)
    if kernel is None:
        return KernelRole(
            decoded=None, kind=kind, part="", is_helper=False, adds_up_parts=False
        )

    adds_up_parts = kernel.role == "splitk_reduce"
    part = "helper" if adds_up_parts else _part_of_kernel(kernel)
    return KernelRole(
        decoded=kernel,
        kind=kind,
        part=part,
        is_helper=adds_up_parts or _is_helper(kernel, part),
        adds_up_parts=adds_up_parts,
    )


def _part_of_kernel(kernel: KernelName) -> str:
    """Return which part a kernel has in the work of its op: KernelRole.part.

    It is `main` for the product, convolution or attention itself, and `helper` for what
    prepares it. For any other work it is the kind of that work. A reduction of split-K
    must have been recognized before.
    """
    if kernel.op is None or kernel.algo == "fft":
        return "helper"
    if _BASIS_CHANGES.search(kernel.name):
        return "helper"
    if kernel.op in _MAIN_OPS or _DOT_PRODUCTS.search(kernel.name):
        return "main"
    return kernel.op


def _is_helper(kernel: KernelName, part: str) -> bool:
    """Return whether a kernel only helps another kernel of its op.

    A kernel that moves data does. So does a kernel of a library of products or
    convolutions that is neither the main kernel nor a norm.

    Args:
        kernel: The decoded name of the kernel.
        part: Its part, as in KernelRole.part.
    """
    if kernel.op in _MOVING_OPS:
        return True
    is_of_blas = kernel.family.startswith(_BLAS_PREFIX)
    is_of_product_library = is_of_blas or kernel.family in _HELPING_LIBRARIES
    works_by_itself = part in ("main", "norm")
    return is_of_product_library and not works_by_itself
