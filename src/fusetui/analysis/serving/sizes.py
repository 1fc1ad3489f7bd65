"""For how many requests or tokens each graph was captured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from fusetui.analysis.serving.captures import Capture
from fusetui.gpu.roofline.inputs import inputs_of
from fusetui.gpu.roofline.many import INPUTS
from fusetui.gpu.roofline.matmul import matmul
from fusetui.trace.model.arguments import arguments, parsed
from fusetui.trace.model.columns import Trace

PRODUCTS = ("aten::mm", "aten::addmm", "aten::_scaled_mm")
HALF = 0.5
TOKENS = ("FULL", "PIECEWISE")  # modes of vLLM
REQUESTS = ("DECODE", "")


class Size(msgspec.Struct, frozen=True):
    """How much a graph was captured for; None for what is not known."""

    requests: int | None = None
    tokens: int | None = None


def sizes(there: Trace, whole: Sequence[Capture]) -> list[Size]:
    """The size of each capture.

    An annotation around the capture counts tokens in vLLM, and in a decode of SGLang requests; in
    other modes of SGLang, some versions count requests and some tokens. The rows of most of the
    matrix products count tokens.
    """
    return [_size(there, capture) for capture in whole]


def _size(there: Trace, capture: Capture) -> Size:
    size = capture.size
    if size is None:
        return Size(tokens=_tokens(there, capture))
    if capture.mode.startswith(TOKENS):
        return Size(tokens=size)
    if capture.mode in REQUESTS:
        return Size(requests=size)
    tokens = _tokens(there, capture)
    if not tokens or tokens % max(size, 1):
        return Size(tokens=tokens)
    return Size(requests=None if tokens == size else size, tokens=tokens)


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
