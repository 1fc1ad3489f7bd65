"""Attention as separate kernels: a product, a softmax, another product."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fusetui.analysis.why.facts import Facts, Flags, Rows
from fusetui.analysis.why.kernels import Kernels
from fusetui.analysis.why.rule import Claim, Rule, is_worth, most_module, share_of_work
from fusetui.gpu.kernel_names import KernelName
from fusetui.text.figures import duration, plural

PRODUCTS = frozenset(
    {"aten::bmm", "aten::baddbmm", "aten::baddbmm_", "aten::matmul", "aten::einsum"}
)
SIMPLE = ("elementwise", "copy", "fill", "softmax")
FARTHEST = 6  # kernels between a product and the softmax


def find(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    softmax = kernels.flags(is_softmax)
    if not softmax.any():
        return
    between, heads = attention(kernels, softmax)
    if not len(heads):
        return
    at_stake = int(kernels.effective_ns[between].sum())
    module = most_module(facts, kernels.module[heads], kernels.effective_ns[heads])
    yield Claim(
        text=f"Attention runs as separate kernels {plural(len(heads), 'time')}"
        f"{f' in {module}' if module else ''}: between "
        f"the two products, softmax and the kernels around it take {duration(at_stake)} "
        f"({share_of_work(facts, at_stake)}), to write and read scores that a fused kernel keeps "
        "on the chip.",
        at_stake_ns=at_stake,
        rows=tuple(kernels.rows[heads[np.argsort(-kernels.effective_ns[heads])[:5]]].tolist()),
    )


def claimed(facts: Facts) -> Flags:
    """The kernels of the claim, if it is worth a look."""
    kernels = facts.kernels
    found = np.zeros(len(kernels.rows), dtype=np.bool_)
    softmax = kernels.flags(is_softmax)
    if softmax.any():
        found[attention(kernels, softmax)[0]] = True
    return found & is_worth(facts, int(kernels.effective_ns[found].sum()), of_kernels=True)


def is_no_product(kernel: KernelName) -> bool:
    """Whether it is a kernel of another kind; one with an unknown name counts as what its op
    does."""
    return kernel.op not in ("gemm", "gemv")


def is_softmax(kernel: KernelName) -> bool:
    return kernel.op == "softmax" and kernel.pass_ != "bwd" and "ackward" not in kernel.name


def attention(kernels: Kernels, softmax: Flags) -> tuple[Rows, Rows]:
    """The indices of the kernels between the products, and those of the softmaxes."""
    order = kernels.in_order
    product = (kernels.under(PRODUCTS) & ~kernels.flags(is_no_product))[order]
    simple = kernels.flags(lambda kernel: kernel.op in SIMPLE)[order]
    stream, module = kernels.stream[order], kernels.module[order]
    between: list[int] = []
    heads: list[int] = []
    for place in np.flatnonzero(softmax[order]).tolist():
        ends = [_product(place, step, product, simple) for step in (-1, 1)]
        first, last = ends
        if first < 0 or last < 0 or stream[first] != stream[last]:
            continue
        if module[first] == module[last] == module[place]:
            between += range(first + 1, last)
            heads.append(place)
    return order[np.unique(np.array(between, dtype=np.intp))], order[np.array(heads, dtype=np.intp)]


def _product(place: int, step: int, product: Flags, simple: Flags) -> int:
    """The product before or after a softmax, with only simple kernels in between; -1 for none."""
    for at in range(place + step, place + step * (FARTHEST + 2), step):
        if not 0 <= at < len(product):
            return -1
        if product[at]:
            return at
        if not simple[at]:
            return -1
    return -1


RULE = Rule(
    id="unfused-attention",
    title="Attention as separate kernels",
    question="Does attention write its scores to memory?",
    needs="Ops and kernel names.",
    formula="The effective time of the kernels between the two products of an attention under one "
    "module: scale, mask, softmax, casts.",
    remedy='torch.nn.functional.scaled_dot_product_attention (attn_implementation="sdpa" in '
    "transformers); its sums are rounded in another order.",
    thresholds={"farthest": FARTHEST},
    find=find,
    of_kernels=True,
)
