"""The CPU ops around a piece of work, and the tensors that they pass on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

from fusetui.analysis.diff.items import Items
from fusetui.analysis.questions.collectives import element_size
from fusetui.text.figures import size
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.op_names import is_compiler, stem, words

_ALIKE: Final = {
    word: frozenset(alike.split())
    for alike in (
        "copy _to_copy clone to contiguous convert_element_type",
        "fill zero zeros ones full zeros_like ones_like full_like",
        "batch_norm native_batch_norm cudnn_batch_norm miopen_batch_norm _native_batch_norm_legit"
        " _native_batch_norm_legit_functional _native_batch_norm_legit_no_training",
        "softmax _softmax _safe_softmax prepare_softmax_online",
        "dropout native_dropout bernoulli rand inductor_random",
        "max_pool2d_with_indices _low_memory_max_pool_with_offsets",
        "cat stack",
    )
    for word in alike.split()
}
"""Names under which the compiler knows the ops that run eagerly."""

_POINTWISE: Final = words(
    """abs add clamp clamp_min cos div erf exp gelu hardtanh leaky_relu log mish mul neg pow
    reciprocal relu rsqrt rsub sigmoid silu sin softplus sqrt sub tanh where"""
)
"""Ops whose result has the shape of their inputs, broadcast."""

_FLOATS: Final = words("double float c10::bfloat16 c10::half bfloat16 half")


def known_names(trace: Trace, op: int) -> frozenset[str]:
    """Every name under which a compiler may list this work: of its op, and of those around."""
    stems: set[str] = set()
    while op >= 0:
        if trace.source_role[op] == Role.OP and not is_compiler(trace.name_of(op)):
            stems.add(stem(trace.name_of(op)))
        op = int(trace.parent[op])
    return frozenset(stems.union(*(_ALIKE.get(word, ()) for word in stems)))


def numel(items: Items, item: int) -> int | None:
    """Elements of the op's first tensor, from its recorded shapes; None when there are none."""
    op = int(items.op[item])
    dims = items.trace.args_of(op).get("Input Dims") if op >= 0 else None
    shapes = filter(_is_shape, dims if isinstance(dims, list) else ())
    return next((math.prod(shape) for shape in shapes), None)


def saved(items: Items, members: Sequence[int]) -> str:
    """`[8192, 3072] bfloat16 between them (50.33 MB) ...`; "" unless all but the last are known.

    Of n pointwise pieces in a row, n - 1 results are passed on; a kernel that does them all need
    not write these and read them back, unless something else wants them.
    """
    found = [_result(items, member) for member in sorted(members)[:-1]]
    known = [result for result in found if result is not None]
    if not found or len(known) < len(found):
        return ""
    passed = sum(math.prod(shape) * element_size(dtype) for shape, dtype in known)
    if len({(tuple(shape), dtype) for shape, dtype in known}) > 1:
        return f"{size(passed)} between them may stay in registers"
    shape, dtype = known[0]
    times = f"{len(known)} x " if len(known) > 1 else ""
    name = dtype.removeprefix("c10::")
    return f"{times}{shape} {name} between them ({size(passed)}) may stay in registers"


def _result(items: Items, member: int) -> tuple[list[int], str] | None:
    """Shape and dtype of the result of a pointwise op, from its recorded inputs."""
    op = int(items.op[member])
    if op < 0 or stem(items.op_names[member]) not in _POINTWISE:
        return None
    args = items.trace.args_of(op)
    dims, types = args.get("Input Dims"), args.get("Input type")
    if not isinstance(dims, list) or not isinstance(types, list) or len(types) != len(dims):
        return None
    tensors = [n for n, shape in enumerate(dims) if _is_shape(shape)]
    dtypes = {str(types[n]).lower() for n in tensors}
    if len(dtypes) != 1 or not dtypes <= _FLOATS:
        return None
    # the larger of the sizes of each dimension, counted from the last
    sizes = zip_longest(*(reversed(dims[n]) for n in tensors), fillvalue=1)
    return [max(of) for of in sizes][::-1], dtypes.pop()


def _is_shape(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(n, int) for n in value)
