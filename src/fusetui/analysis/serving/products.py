"""Lists the matrix products of a model pass, with the weights that they read and the
FLOP that they compute, from recorded or joined shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from fusetui.gpu.kernel_names import KernelName, decode
from fusetui.gpu.roofline.many import read_inputs_by_op
from fusetui.gpu.roofline.products import matmul
from fusetui.trace.model.arrays import Integers, Rows, distinct
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace

WEIGHTS_INPUT_OF_OP = {
    "aten::mm": 1,
    "aten::linear": 1,
    "aten::_scaled_mm": 1,
    "aten::_int_mm": 1,
    "aten::addmm": 2,
}
"""The position of the weights among the inputs of each op that is a product with
weights. aten::bmm is none: it multiplies activations."""

PRODUCT_KINDS = ("gemm", "gemv", "moe")
"""The kinds of kernels (`KernelName.op`) that compute matrix products."""


class Product(msgspec.Struct, frozen=True):
    """One matrix product: the weights that it reads and what it computes."""

    op: str  # "" where the configuration tells it
    bytes: int  # of the weights
    flop: int
    dtype: str


class WeightShape(NamedTuple):
    """The shape of the weights of a product [m, k] x [k, n]."""

    k: int
    n: int


class Products(msgspec.Struct, frozen=True):
    """The matrix products of some kernels.

    Each op counts once, however many kernels it launched.
    """

    known: int  # products whose weights are known
    each: tuple[Product, ...]  # the known products
    shapes: tuple[WeightShape, ...]  # of the known products, distinct, in order
    dominant_m: int | None  # M of more than half of the known products: tokens
    unknown: int  # kernels that are products by their name, but of unknown weights
    dtypes: frozenset[str] = frozenset()  # of all products, as far as names tell
    source: Literal["shapes", "config"] = "shapes"

    @property
    def weight_bytes(self) -> int:
        """The bytes of the weights of all known products."""
        return sum(product.bytes for product in self.each)

    @property
    def flop(self) -> dict[str, int]:
        """The FLOP of the known products, by element type; no type has 0."""
        flop_by_dtype: Counter[str] = Counter()
        for product in self.each:
            flop_by_dtype[product.dtype] += product.flop
        return {dtype: flop for dtype, flop in flop_by_dtype.items() if flop}


def find_products(trace: Trace, kernels: Rows) -> Products:
    """Return the matrix products that the kernels of one pass of the model compute.

    The weights of a product are known if the op that launched it recorded its shapes.
    Other products are only counted.

    Args:
        trace: The trace of the server.
        kernels: The GPU events of the pass; those that are no kernels are
            ignored.
    """
    kernels = kernels[trace.role[kernels] == Role.KERNEL]
    name_indices = trace.name[kernels]
    ops = trace.op[kernels]
    product_names = _decode_product_names(trace, distinct(name_indices).tolist())
    known_products = _find_shaped_products(trace, ops)

    is_product = np.isin(name_indices, list(product_names))
    is_known = np.isin(ops, [shaped.op for shaped in known_products])
    return Products(
        known=len(known_products),
        each=tuple(shaped.product for shaped in known_products),
        shapes=tuple(sorted({shaped.weights for shaped in known_products})),
        dominant_m=_find_dominant_m(known_products),
        unknown=int((is_product & ~is_known).sum()),
        dtypes=_collect_operand_types(product_names.values()),
    )


def _decode_product_names(
    trace: Trace, name_indices: Iterable[int]
) -> dict[int, KernelName]:
    """Decode those kernel names that are of matrix products, by their indices."""
    product_names = {}
    for name_index in name_indices:
        decoded = decode(trace.names[name_index])
        if decoded is not None and decoded.op in PRODUCT_KINDS:
            product_names[name_index] = decoded
    return product_names


def _collect_operand_types(names: Iterable[KernelName]) -> frozenset[str]:
    """Collect the element types of the operands, as far as these kernel names tell."""
    dtypes = set()
    for name in names:
        dtypes |= {name.dtype_a, name.dtype_b}
    return frozenset(dtype for dtype in dtypes if dtype)


class _ShapedProduct(NamedTuple):
    """A product [m, k] x [k, n] whose weights are known.

    A size is 0 if it is not known.
    """

    op: int  # the row of its op
    m: int
    weights: WeightShape
    product: Product


def _find_shaped_products(trace: Trace, ops: Integers) -> list[_ShapedProduct]:
    """Return the products among some ops whose weights are one matrix of a known type.

    Args:
        trace: The trace of the server.
        ops: The rows of the ops that launched kernels; -1 for a kernel without one.
    """
    known_ops = distinct(ops[ops >= 0]).tolist()
    product_ops = [op for op in known_ops if trace.name_of(op) in WEIGHTS_INPUT_OF_OP]

    inputs_of_ops = read_inputs_by_op(trace, np.array(product_ops, dtype=np.intp))
    shaped_products = []
    for op, inputs in inputs_of_ops.items():
        amount = matmul(inputs)
        weights = inputs.tensor(WEIGHTS_INPUT_OF_OP[inputs.op])
        if amount is None or weights is None or weights.bytes is None:
            continue
        if len(weights.shape) != 2:  # no matrix
            continue

        product = Product(
            op=inputs.op,
            bytes=weights.bytes,
            flop=amount.flop or 0,
            dtype=amount.dtype or "",
        )
        shaped = _ShapedProduct(
            op=op,
            m=amount.m or 0,
            weights=WeightShape(k=amount.k or 0, n=amount.n or 0),
            product=product,
        )
        shaped_products.append(shaped)
    return shaped_products


def _find_dominant_m(products: Sequence[_ShapedProduct]) -> int | None:
    """Return the number of rows (m) that more than half of the matrix products have.

    A product of an m x k and a k x n matrix has m rows, one for each token. Returns
    None if no number is that frequent.
    """
    products_by_m = Counter(shaped.m for shaped in products)
    for m, product_count in products_by_m.items():
        if product_count > len(products) / 2:
            return m
    return None
