"""The rule unfused-attention: attention that writes its scores to memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.kernels import Kernels, choose_heaviest_rows
from fusetui.analysis.why.rule import (
    Claim,
    Rule,
    format_share_of_work,
    name_dominant_module,
)
from fusetui.gpu.kernel_names import KernelName
from fusetui.text.figures import plural
from fusetui.trace.model.arrays import Flags, Rows, distinct

PRODUCT_OPS: Final = frozenset(
    {
        "aten::bmm",
        "aten::baddbmm",
        "aten::baddbmm_",
        "aten::matmul",
        "aten::einsum",
    }
)
"""Ops of the two products of an attention."""
_BETWEEN_PRODUCTS: Final = ("elementwise", "copy", "fill", "softmax")
"""What kernels do that may lie between the two products."""
MAX_KERNELS_TO_PRODUCT: Final = 6
"""How many kernels may lie between a product and the softmax."""


@Rule(
    needs=("CPU ops",),
    remedy="{torch2:Use|:Update to torch 2.0 and use} "
    'torch.nn.functional.scaled_dot_product_attention (attn_implementation="sdpa" in '
    "transformers). Results may differ slightly, because this function sums in a different order.",
    thresholds={"farthest": MAX_KERNELS_TO_PRODUCT},
    of_kernels=True,
)
def unfused_attention(facts: Facts) -> Iterator[Claim]:
    """Report attention that runs as separate kernels.

    At stake is the time of the kernels between the two products.
    """
    kernels = facts.kernels
    attention = find_separate_attention(kernels)
    if attention is None:
        return

    softmaxes = attention.softmaxes
    at_stake_ns = kernels.add_up_ns(attention.between)
    is_between = np.zeros(len(kernels.rows), dtype=np.bool_)
    is_between[attention.between] = True

    times = "once"
    if len(softmaxes) > 1:
        times = plural(len(softmaxes), "time")

    yield Claim(
        text=f"Attention runs as separate kernels {times}"
        f"{name_dominant_module(kernels, softmaxes, ' in ')}. The softmax and the kernels around it take "
        f"{format_share_of_work(facts, at_stake_ns)}; a fused kernel would keep the scores on the chip.",
        at_stake_ns=at_stake_ns,
        wanted=kernels.make_removal(attention.between),
        rows=choose_heaviest_rows(
            kernels.rows[softmaxes], kernels.effective_ns[softmaxes]
        ),
        kernels=is_between,
    )


class SeparateAttention(msgspec.Struct, frozen=True, eq=False):
    """Attention that runs as separate kernels; indices into Kernels."""

    between: Rows
    """All kernels between the two products of an attention, by stream and start."""
    softmaxes: Rows
    """Those among them that are a softmax: one for each attention."""


def _is_forward_softmax(kernel: KernelName) -> bool:
    """Whether a kernel is a softmax of the forward pass, by its name."""
    is_backward = kernel.pass_ == "bwd" or "ackward" in kernel.name
    return kernel.op == "softmax" and not is_backward


def _is_no_product(kernel: KernelName) -> bool:
    """Whether the name of a kernel says that it is something else than a product."""
    return kernel.op not in ("gemm", "gemv")


def _may_lie_between(kernel: KernelName) -> bool:
    """Whether a kernel may lie between the products of an attention, by its name."""
    return kernel.op in _BETWEEN_PRODUCTS


def find_separate_attention(kernels: Kernels) -> SeparateAttention | None:
    """Find attention that runs as a product, a softmax and another product.

    The three run on one stream in one module, maybe with kernels between them, such as
    a mask or dropout.

    Returns:
        Each softmax, and all kernels between the two products of any softmax. None if
        there is no softmax between two products.
    """
    is_softmax = kernels.match_names(_is_forward_softmax)
    if not is_softmax.any():
        return None

    # A kernel with an unknown name counts as what its op does.
    order = kernels.stream_order
    is_product = kernels.mark_launched_by_ops(PRODUCT_OPS) & ~kernels.match_names(
        _is_no_product
    )
    around = _Surroundings(
        is_product=is_product[order],
        may_lie_between=kernels.match_names(_may_lie_between)[order],
        stream=kernels.stream[order],
        module=kernels.module_row[order],
    )

    between: list[int] = []
    softmaxes: list[int] = []
    for softmax in np.flatnonzero(is_softmax[order]).tolist():
        products = around.find_products_around(softmax)
        if products is not None:
            between += range(products.first + 1, products.last)
            softmaxes.append(softmax)

    if not softmaxes:
        return None

    return SeparateAttention(
        between=order[distinct(np.array(between, dtype=np.intp))],
        softmaxes=order[np.array(softmaxes, dtype=np.intp)],
    )


class _Products(NamedTuple):
    """The two products of an attention, as indices in stream order."""

    first: int
    last: int


class _Surroundings(NamedTuple):
    """What tells which kernels are of one attention; shape [kernels], in stream order."""

    is_product: Flags
    may_lie_between: Flags
    stream: NDArray[np.integer]
    module: Rows

    def find_products_around(self, softmax: int) -> _Products | None:
        """Find the products around a softmax, of its module and on one stream.

        Args:
            softmax: The index of the softmax in stream order.

        Returns:
            None if it has none.
        """
        first = self._find_next_product(softmax, step=-1)
        last = self._find_next_product(softmax, step=1)
        if first is None or last is None or self.stream[first] != self.stream[last]:
            return None

        module = self.module[softmax]
        if self.module[first] != module or self.module[last] != module:
            return None
        return _Products(first=first, last=last)

    def _find_next_product(self, softmax: int, step: int) -> int | None:
        """Find the product before or after a softmax.

        At most MAX_KERNELS_TO_PRODUCT kernels may lie between them, and only simple
        ones (`may_lie_between`).

        Args:
            softmax: The index of the softmax in stream order.
            step: -1 for the product before, 1 for the one after.

        Returns:
            Its index in stream order; None if there is no such product.
        """
        for distance in range(1, MAX_KERNELS_TO_PRODUCT + 2):
            index = softmax + step * distance
            if not 0 <= index < len(self.is_product):
                return None
            if self.is_product[index]:
                return index
            if not self.may_lie_between[index]:
                return None

        return None
