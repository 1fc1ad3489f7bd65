"""The matrix products of one pass of a model: what they have to read of weights and to
compute, by recorded or joined shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from fusetui.gpu.kernel_names import KernelName, decode
from fusetui.gpu.roofline.many import inputs_by_op
from fusetui.gpu.roofline.products import matmul
from fusetui.trace.model.arrays import Integers, Rows, distinct
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace

PLACE_OF_WEIGHTS = {
    "aten::mm": 1,
    "aten::linear": 1,
    "aten::_scaled_mm": 1,
    "aten::_int_mm": 1,
    "aten::addmm": 2,
}
"""Which input of each product is its weights; aten::bmm multiplies activations."""

PRODUCT_KINDS = ("gemm", "gemv", "moe")
"""The kinds of kernels (`KernelName.op`) that compute matrix products."""


class Product(msgspec.Struct, frozen=True):
    """What one matrix product reads of weights, and computes."""

    op: str  # "" where the configuration tells it
    bytes: int
    flop: int
    dtype: str


class WeightShape(NamedTuple):
    """The matrix of weights of a product [m, k] x [k, n]."""

    k: int
    n: int


class Products(msgspec.Struct, frozen=True):
    """The products of some kernels; each op counts once, however many kernels it
    launched."""

    known: int  # products whose weights are known
    each: tuple[Product, ...]  # the known ones
    shapes: tuple[WeightShape, ...]  # of the known ones, distinct, in order
    rows: int | None  # M of more than half of them: tokens
    unknown: int  # kernels of products, by their name, whose weights are not known
    dtypes: frozenset[str] = frozenset()  # of all products, as far as names tell
    source: Literal["shapes", "config"] = "shapes"

    @property
    def weight_bytes(self) -> int:
        return sum(product.bytes for product in self.each)

    @property
    def flop(self) -> dict[str, int]:
        """Of the known ones, by element type."""
        flop_by_dtype: Counter[str] = Counter()
        for product in self.each:
            flop_by_dtype[product.dtype] += product.flop
        return {dtype: flop for dtype, flop in flop_by_dtype.items() if flop}


def products_of(trace: Trace, kernels: Rows) -> Products:
    """The products that some kernels, of one pass of the model, compute."""
    kernels = kernels[trace.role[kernels] == Role.KERNEL]
    names = trace.name[kernels]
    ops = trace.op[kernels]
    product_names = _product_names(trace, distinct(names).tolist())
    known = _shaped_products(trace, ops)
    is_product = np.isin(names, list(product_names))
    is_known = np.isin(ops, [shaped.op for shaped in known])
    return Products(
        known=len(known),
        each=tuple(shaped.product for shaped in known),
        shapes=tuple(sorted({shaped.weights for shaped in known})),
        rows=_rows_of_most(known),
        unknown=int((is_product & ~is_known).sum()),
        dtypes=_operand_types(product_names.values()),
    )


def _product_names(trace: Trace, names: Iterable[int]) -> dict[int, KernelName]:
    """What the names of kernels say, of those that compute products; by their
    numbers."""
    product_names = {}
    for number in names:
        decoded = decode(trace.names[number])
        if decoded is not None and decoded.op in PRODUCT_KINDS:
            product_names[number] = decoded
    return product_names


def _operand_types(names: Iterable[KernelName]) -> frozenset[str]:
    dtypes = set()
    for name in names:
        dtypes |= {name.dtype_a, name.dtype_b}
    return frozenset(dtype for dtype in dtypes if dtype)


class _ShapedProduct(NamedTuple):
    """A product whose weights are known: [m, k] x [k, n]; a size is 0 if it is not
    known."""

    op: int  # the row of its op
    m: int
    weights: WeightShape
    product: Product


def _shaped_products(trace: Trace, ops: Integers) -> list[_ShapedProduct]:
    """Of the ops of some kernels (rows, -1 for none) the products whose weights are one
    matrix of a known type."""
    product_ops = [
        op
        for op in distinct(ops).tolist()
        if op >= 0 and trace.name_of(op) in PLACE_OF_WEIGHTS
    ]
    inputs_of_ops = inputs_by_op(trace, np.array(product_ops, dtype=np.intp))
    shaped_products = []
    for op, inputs in inputs_of_ops.items():
        amount = matmul(inputs)
        weights = inputs.tensor(PLACE_OF_WEIGHTS[inputs.op])
        if amount is None or weights is None or len(weights.shape) != 2:
            continue
        if weights.bytes is None:
            continue
        shaped_products.append(
            _ShapedProduct(
                op=op,
                m=amount.m or 0,
                weights=WeightShape(k=amount.k or 0, n=amount.n or 0),
                product=Product(
                    op=inputs.op,
                    bytes=weights.bytes,
                    flop=amount.flop or 0,
                    dtype=amount.dtype or "",
                ),
            )
        )
    return shaped_products


def _rows_of_most(products: Sequence[_ShapedProduct]) -> int | None:
    """M of more than half of the products."""
    counts = Counter(shaped.m for shaped in products)
    for m, count in counts.most_common(1):
        if 2 * count > len(products):
            return m
    return None
