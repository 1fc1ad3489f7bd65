"""Tensors that a fused kernel does not pass through memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from fusetui.analysis.diff.items import Items
from fusetui.text.figures import size
from fusetui.trace.model.op_names import stem, words

_POINTWISE: Final = words(
    """abs add clamp clamp_min cos div erf exp gelu hardtanh leaky_relu log mish mul neg pow
    reciprocal relu rsqrt rsub sigmoid silu sin softplus sqrt sub tanh where"""
)
"""Ops whose result has the shape of their inputs, broadcast."""

_BYTES: Final = {
    "double": 8,
    "float": 4,
    "c10::bfloat16": 2,
    "c10::half": 2,
    "bfloat16": 2,
    "half": 2,
}


def saved(items: Items, members: Sequence[int]) -> str:
    """`[8192, 3072] bfloat16 between them (50.33 MB) ...`; "" unless all but the last are known.

    Of n pointwise pieces in a row, n - 1 results are passed on; a kernel that does them all need
    not write these and read them back, unless something else wants them.
    """
    found = [_result(items, member) for member in sorted(members)[:-1]]
    if not found or None in found:
        return ""
    known = [result for result in found if result is not None]
    passed = sum(math.prod(shape) * _BYTES[dtype] for shape, dtype in known)
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
    if len(dtypes) != 1 or not dtypes <= _BYTES.keys():
        return None
    return _broadcast([dims[n] for n in tensors]), dtypes.pop()


def _is_shape(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(n, int) for n in value)


def _broadcast(shapes: Sequence[list[int]]) -> list[int]:
    """The larger of the sizes of each dimension, counted from the last."""
    rank = max(map(len, shapes))
    padded = [[1] * (rank - len(shape)) + shape for shape in shapes]
    return [max(sizes) for sizes in zip(*padded, strict=True)]
