"""The CPU ops around a piece of work."""

from __future__ import annotations

import math
from functools import cache
from typing import Final

from fusetui.analysis.diff.items import Items
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.op_names import is_compiler, stem

_OP: Final = int(Role.OP)  # looking up a member of an enum is slow
_COPIES: Final = ("copy", "_to_copy", "clone", "to", "contiguous", "convert_element_type")
_FILLS: Final = ("fill", "zero", "zeros", "ones", "full", "zeros_like", "ones_like", "full_like")
_BATCH_NORM: Final = (
    "batch_norm",
    "native_batch_norm",
    "cudnn_batch_norm",
    "miopen_batch_norm",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit_no_training",
)
_SOFTMAX: Final = ("softmax", "_softmax", "_safe_softmax", "prepare_softmax_online")
_DROPOUT: Final = ("dropout", "native_dropout", "bernoulli", "rand", "inductor_random")
_POOL: Final = ("max_pool2d_with_indices", "_low_memory_max_pool_with_offsets")
_ALIKE: Final = {
    word: frozenset(words)
    for words in (_COPIES, _FILLS, _BATCH_NORM, _SOFTMAX, _DROPOUT, _POOL, ("cat", "stack"))
    for word in words
}
"""Names under which the compiler knows the ops that run eagerly."""


def around(trace: Trace, op: int) -> list[int]:
    """The rows of an op and of those around it on its thread, innermost first, without wrappers."""
    rows: list[int] = []
    while op >= 0:
        if trace.source_role[op] == _OP and not is_compiler(trace.name_of(op)):
            rows.append(op)
        op = int(trace.parent[op])
    return rows


def known_as(items: Items, item: int) -> frozenset[str]:
    """Every name under which a compiler may list this work: of its op, and of those around."""
    return known_names(items.trace, int(items.op[item]))


def known_names(trace: Trace, op: int) -> frozenset[str]:
    """The same for the row of an op."""
    return _with_aliases(frozenset(stem(trace.name_of(row)) for row in around(trace, op)))


def numel(items: Items, item: int) -> int | None:
    """Elements of the op's first tensor, from its recorded shapes; None when there are none."""
    shape = first_shape(items, item)
    return math.prod(shape) if shape else None


def first_shape(items: Items, item: int) -> list[int]:
    """The first input that has a shape; [] when shapes were not recorded."""
    op = int(items.op[item])
    dims = items.trace.args_of(op).get("Input Dims") if op >= 0 else None
    for shape in dims if isinstance(dims, list) else []:
        if isinstance(shape, list) and shape and all(isinstance(n, int) for n in shape):
            return shape
    return []


@cache
def _with_aliases(stems: frozenset[str]) -> frozenset[str]:
    return stems.union(*(_ALIKE.get(word, ()) for word in stems))
