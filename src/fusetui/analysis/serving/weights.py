"""What the matrix products of a step have to read and compute, from recorded or joined shapes."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.gpu.kernel_names import decode
from fusetui.gpu.roofline.inputs import Inputs, inputs_of
from fusetui.gpu.roofline.many import INPUTS
from fusetui.gpu.roofline.products import matmul
from fusetui.trace.model.arguments import arguments, parsed
from fusetui.trace.model.arrays import Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace

WEIGHTS = {
    **dict.fromkeys(("aten::mm", "aten::linear", "aten::_scaled_mm", "aten::_int_mm"), 1),
    "aten::addmm": 2,
}
"""The position of the weights of each product; aten::bmm multiplies activations."""
PRODUCTS = ("gemm", "gemv", "moe")


class Product(msgspec.Struct, frozen=True):
    """What one matrix product reads of weights, and computes."""

    op: str  # "" where the configuration tells it
    bytes: int
    flop: int
    dtype: str


class Products(msgspec.Struct, frozen=True):
    """The products of some kernels; each op counts once, however many kernels it launched."""

    known: int  # products whose weights are known
    each: tuple[Product, ...]  # the known ones
    shapes: tuple[tuple[int, int], ...]  # K and N of the known ones, distinct
    rows: int | None  # M of more than half of them: tokens
    unknown: int  # kernels of products, by their name, whose weights are not known
    dtypes: frozenset[str] = frozenset()  # of all products, as far as names tell
    source: Literal["shapes", "config"] = "shapes"

    @property
    def weight_bytes(self) -> int:
        return sum(one.bytes for one in self.each)

    @property
    def flop(self) -> dict[str, int]:
        """Of the known ones, by element type."""
        found: Counter[str] = Counter()
        for one in self.each:
            found[one.dtype] += one.flop
        return {dtype: flop for dtype, flop in found.items() if flop}


def products_of(trace: Trace, kernels: Rows) -> Products:
    """The products that some kernels, of one pass of the model, compute."""
    kernels = kernels[trace.role[kernels] == Role.KERNEL]
    ops, names = trace.op[kernels], trace.name[kernels]
    decoded = {name: decode(trace.names[name]) for name in np.unique(names).tolist()}
    named = {name: one for name, one in decoded.items() if one and one.op in PRODUCTS}
    asked = np.unique(ops[ops >= 0])
    asked = asked[[trace.name_of(op) in WEIGHTS for op in asked.tolist()]]
    own = []
    rows: Counter[int] = Counter()
    shapes: set[tuple[int, int]] = set()
    each: list[Product] = []
    for op, inputs in inputs_by_op(trace, asked).items():
        product, weights = matmul(inputs), inputs.tensor(WEIGHTS[inputs.op])
        read = weights.bytes if weights and len(weights.shape) == 2 else None
        if product is not None and read is not None:
            own.append(op)
            each.append(Product(inputs.op, read, product.flop or 0, product.dtype or ""))
            rows[product.m or 0] += 1
            shapes.add((product.k or 0, product.n or 0))
    most, count = rows.most_common(1)[0] if rows else (0, 0)
    dtypes = {dtype for one in named.values() for dtype in (one.dtype_a, one.dtype_b) if dtype}
    return Products(
        known=len(own),
        each=tuple(each),
        shapes=tuple(sorted(shapes)),
        rows=most if 2 * count > len(own) else None,
        unknown=int((np.isin(names, list(named)) & ~np.isin(ops, own)).sum()),
        dtypes=frozenset(dtypes),
    )


def inputs_by_op(trace: Trace, ops: NDArray[np.integer]) -> dict[int, Inputs]:
    """The recorded inputs of each of these ops (rows) that has any."""
    if not len(ops):
        return {}
    given = arguments(trace.elements, trace.order[ops], INPUTS)
    args = [
        {name: parsed(text) for name, text in zip(INPUTS, texts, strict=True)}
        for texts in given.distinct
    ]
    found = {}
    for op, number in zip(ops.tolist(), given.number.tolist(), strict=True):
        inputs = inputs_of(trace.name_of(op), args[number]) if number >= 0 else None
        if inputs is not None:
            found[op] = inputs
    return found
