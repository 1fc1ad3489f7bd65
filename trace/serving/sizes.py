"""For how many requests or tokens each graph was captured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from fusetui.trace.model.arguments import arguments, parsed
from fusetui.trace.model.columns import Trace
from fusetui.trace.roofline.inputs import inputs_of
from fusetui.trace.roofline.many import INPUTS
from fusetui.trace.roofline.matmul import matmul
from fusetui.trace.serving.captures import Capture

PRODUCTS = ("aten::mm", "aten::addmm", "aten::_scaled_mm")
HALF = 0.5


def sizes(there: Trace, whole: Sequence[Capture]) -> tuple[list[int | None], bool]:
    """The size of each capture, and whether it counts tokens instead of requests.

    An annotation around the capture counts requests. Without any, the rows of most of the matrix
    products count tokens. Where neither says it, the size is None.
    """
    named = [capture.size for capture in whole]
    if any(size is not None for size in named):
        return named, False
    return [_tokens(there, capture) for capture in whole], True


def _tokens(there: Trace, capture: Capture) -> int | None:
    """The number of rows that more than half of the products of the graph have."""
    ops = np.unique(there.op[capture.calls])
    ops = ops[ops >= 0]
    ops = ops[np.array([there.name_of(op) in PRODUCTS for op in ops.tolist()], dtype=np.bool_)]
    if not len(ops):
        return None
    found = arguments(there.elements, there.order[ops], INPUTS)
    rows: Counter[int | None] = Counter()
    for op, number in zip(ops.tolist(), found.number.tolist(), strict=True):
        texts = found.distinct[number] if number >= 0 else (b"",) * len(INPUTS)
        given = {name: parsed(text) for name, text in zip(INPUTS, texts, strict=True)}
        inputs = inputs_of(there.name_of(op), given)
        product = matmul(inputs) if inputs else None
        rows[product.m if product else None] += 1
    size, count = rows.most_common(1)[0]
    return size if count > HALF * len(ops) else None
