"""What sort of work a piece is, for the sums of a diff: products, copies, communication, ..."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Final

from fusetui.analysis.diff.items import Items
from fusetui.gpu.kinds import kinds_of
from fusetui.trace.model.categories import Role

SORTS: Final = {
    "attention": "attention",
    "conv": "convolution",
    "gemm": "GEMM",
    "gemv": "GEMM",
    "moe": "mixture of experts",
    "comm": "communication",
    "memcpy": "copy",
    "memset": "fill",
    "norm": "norm",
    "softmax": "softmax",
    "embedding": "embedding",
    "optimizer": "optimizer",
    "reduction": "reduction",
    "copy": "copy",
    "fill": "fill",
    "foreach": "pointwise",
    "pointwise": "pointwise",
    "triton": "pointwise",
}
"""Kinds of kernels and what they are called here; of several, the first one counts."""

OTHER: Final = "other"
_RANK: Final = {sort: n for n, sort in enumerate(dict.fromkeys(SORTS.values()))}


def sorts(items: Items) -> list[str]:
    """Per item: one of the values of SORTS, or `other`."""
    roles = items.trace.role[items.row].tolist()
    names = zip(roles, items.names, items.op_names, strict=True)
    return [_sort(role, kernel, op) for role, kernel, op in names]


def of_all(found: Iterable[str]) -> str:
    """The sort of several pieces that belong together: attention, even if products are part of
    it."""
    return min(found, key=lambda sort: _RANK.get(sort, len(_RANK)), default=OTHER)


@cache
def _sort(role: int, kernel: str, op: str) -> str:
    """By the kernel, else by the op that launched it."""
    found = _named(role, kernel)
    return _named(int(Role.OP), op) if found == OTHER and op.startswith("aten::") else found


def _named(role: int, name: str) -> str:
    kinds = kinds_of(Role(role), name)
    return next((called for kind, called in SORTS.items() if kind in kinds), OTHER)
