"""The parts of one pass of a model: its matrix products, and what they have to read and
compute by recorded or joined shapes; its layers; and what the experts of a mixture
took.

The kernels of a pass repeat for each layer, between a beginning and an end of their
own. The period is the shortest one that explains at least half of the sequence; of
equal kernels in every layer no other claim is made. Layers that differ in turn (a
window and full attention) count as one. The sequence is that of the starts, or if
nothing repeats in it, that of the file: on AMD devices some times are wrong.

A trace does not count the tokens of each expert. But the same product, with as many
tokens, runs once in each layer: where it takes longer, more experts were routed to, or
their tokens were less even.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.gpu.kernel_names import decode
from fusetui.gpu.roofline.many import inputs_by_op
from fusetui.gpu.roofline.products import matmul
from fusetui.trace.model.arrays import Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace

WEIGHTS = {
    **dict.fromkeys(
        ("aten::mm", "aten::linear", "aten::_scaled_mm", "aten::_int_mm"), 1
    ),
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
    """The products of some kernels; each op counts once, however many kernels it
    launched."""

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
    own, each, sizes = [], [], []
    for op, inputs in inputs_by_op(trace, asked).items():
        product, weights = matmul(inputs), inputs.tensor(WEIGHTS[inputs.op])
        read = weights.bytes if weights and len(weights.shape) == 2 else None
        if product is not None and read is not None:
            own.append(op)
            each.append(
                Product(inputs.op, read, product.flop or 0, product.dtype or "")
            )
            sizes.append((product.m or 0, product.k or 0, product.n or 0))
    most, count = next(iter(Counter(m for m, _, _ in sizes).most_common(1)), (0, 0))
    dtypes = {
        dtype for one in named.values() for dtype in (one.dtype_a, one.dtype_b) if dtype
    }
    return Products(
        known=len(own),
        each=tuple(each),
        shapes=tuple(sorted({(k, n) for _, k, n in sizes})),
        rows=most if 2 * count > len(own) else None,
        unknown=int((np.isin(names, list(named)) & ~np.isin(ops, own)).sum()),
        dtypes=frozenset(dtypes),
    )


FEWEST = 3  # repetitions, or runs of one product
HALF = 0.5  # of the kernels
MOST_PERIODS = 64  # that are tried
SLOWER = 0.05  # than the median: a layer that is worth a word


class ModelLayer(msgspec.Struct, frozen=True):
    """One layer; its number counts from 1."""

    number: int
    dur_ns: int  # of all its kernels
    start_ns: int  # of its first kernel, from the beginning of the trace


class Layers(msgspec.Struct, frozen=True):
    """`count` repetitions of `kernels` kernels; `others` kernels come before and after
    them."""

    count: int
    kernels: int
    others: int
    total_ns: int  # of all layers
    others_ns: int
    median_ns: int  # of a layer; of an even count the lower one
    slow: tuple[ModelLayer, ...]  # more than SLOWER above the median, the slowest first


def layers_of(trace: Trace, rows: Rows) -> Layers | None:
    """The layers of a pass with these GPU events; None if nothing repeats."""
    kernels = rows[trace.role[rows] == Role.KERNEL]
    for order in (trace.start[kernels], trace.order[kernels]):
        rows = kernels[np.lexsort((kernels, order))]
        if (found := repetition(trace.name[rows])) is not None:
            return _layers(trace, rows, *found)
    return None


def _layers(trace: Trace, rows: Rows, first: int, period: int, count: int) -> Layers:
    inside = rows[first : first + period * count].reshape(count, period)
    each = trace.dur[inside].sum(axis=1)
    begin = trace.start[inside[:, 0]] - trace.begin_ns
    median = int(np.sort(each)[(count - 1) // 2])
    slow = [
        n
        for n in np.argsort(-each, kind="stable").tolist()
        if each[n] > (1 + SLOWER) * median
    ]
    return Layers(
        count=count,
        kernels=period,
        others=len(rows) - inside.size,
        total_ns=int(each.sum()),
        others_ns=int(trace.dur[rows].sum() - each.sum()),
        median_ns=median,
        slow=tuple(ModelLayer(n + 1, int(each[n]), int(begin[n])) for n in slow),
    )


def repetition(names: NDArray[np.integer]) -> tuple[int, int, int] | None:
    """Where the longest repetition begins, its period, and how often it repeats."""
    best: tuple[int, int, int] | None = None
    for period in _periods(names):
        same = np.concatenate(([False], names[period:] == names[:-period], [False]))
        begins, ends = np.flatnonzero(np.diff(same)).reshape(-1, 2).T
        if not len(begins):
            continue
        longest = int(np.argmax(ends - begins))
        count = (int(ends[longest] - begins[longest]) + period) // period
        enough = count >= FEWEST and count * period > HALF * len(names)
        if enough and (best is None or count * period > best[1] * best[2] + period):
            best = (int(begins[longest]), period, count)
    return best


def _periods(names: NDArray[np.integer]) -> list[int]:
    """Distances between neighboring kernels of one name, for the name that recurs least
    often but often enough: every period is the sum of such distances."""
    numbers, counts = np.unique(names, return_counts=True)
    often = counts >= FEWEST
    found: set[int] = set()
    for number in numbers[often][np.argsort(counts[often], kind="stable")].tolist():
        found |= set(np.diff(np.flatnonzero(names == number)).tolist())
        if len(found) >= MOST_PERIODS:
            break
    return sorted(found)[:MOST_PERIODS]


NAMED = re.compile(r"moe|expert|matmul_ogs|group(?:ed)?_?gemm", re.IGNORECASE)
"""Kernels and ops of experts, in vLLM, SGLang, Triton's kernels, TensorRT-LLM and
DeepGEMM."""
LONGEST_NAME = 400


class Experts(msgspec.Struct, frozen=True):
    """The kernels of experts in one pass, products and routing; `name` is that of the
    one with the largest total, and the figures after it are those of its runs."""

    kernels: int
    total_ns: int
    share: float  # of the durations of all kernels of the pass
    name: str
    runs: int
    median_ns: int  # of an even count the lower one
    max_ns: int
    slowest: int  # which run is the longest, from 1, in order of time


def experts_of(trace: Trace, rows: Rows) -> Experts | None:
    """Of a pass with these GPU events; None if none is known to be of experts."""
    kernels = rows[trace.role[rows] == Role.KERNEL]
    kernels = kernels[np.argsort(trace.start[kernels], kind="stable")]
    # A kernel is of experts by its own name, or if it is a product, by that of its op.
    ops = np.where(trace.op[kernels] >= 0, trace.name[trace.op[kernels]], -1)
    pairs, which = np.unique(
        np.stack((trace.name[kernels], ops)), axis=1, return_inverse=True
    )
    told = np.array(
        [_of_experts(trace, *pair) for pair in pairs.T.tolist()], dtype=np.bool_
    )
    own = kernels[told[which.reshape(-1)]]
    if not len(own):
        return None
    numbers, which = np.unique(trace.name[own], return_inverse=True)
    longest = int(np.bincount(which, weights=trace.dur[own]).argmax())
    runs = trace.dur[own[which == longest]]
    if len(runs) < FEWEST:
        return None
    spent, total = int(trace.dur[own].sum()), int(trace.dur[kernels].sum())
    return Experts(
        kernels=len(own),
        total_ns=spent,
        share=spent / total if total else 0.0,
        name=trace.names[int(numbers[longest])],
        runs=len(runs),
        median_ns=int(np.sort(runs)[(len(runs) - 1) // 2]),
        max_ns=int(runs.max()),
        slowest=int(runs.argmax()) + 1,
    )


def _of_experts(trace: Trace, kernel: int, op: int) -> bool:
    decoded = decode(trace.names[kernel])
    if decoded is None or decoded.op not in PRODUCTS:
        return False
    words = [trace.names[name] for name in (kernel, op) if name >= 0]
    return decoded.op == "moe" or any(
        NAMED.search(word, 0, LONGEST_NAME) for word in words
    )
