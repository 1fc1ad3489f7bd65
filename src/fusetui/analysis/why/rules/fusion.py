"""Kernels whose work one kernel could do."""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import IntEnum

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.why.causes import module_text
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.kernels import Kernels, by_text, the_most
from fusetui.analysis.why.rule import (
    CannotTell,
    Claim,
    Rule,
    is_worth,
    most_module,
    of_work,
)
from fusetui.gpu.kernel_names import KernelName
from fusetui.gpu.roofline.inputs import inputs_of
from fusetui.gpu.roofline.many import INPUTS
from fusetui.gpu.roofline.pointwise import broadcast
from fusetui.text.figures import count, plural
from fusetui.trace.model.arrays import Flags, Floats, Int64s, Rows, distinct
from fusetui.trace.model.events import parsed
from fusetui.trace.model.memo import memo

OPS = ("elementwise", "copy", "reduction", "fill", "index")
SHORTEST_NS = 2_000
NS = 1_000_000_000
INTO = "aten::copy_"  # writes its first input
OWN = "aten::"  # inputs of other ops are not those of each kernel that they launch
UNKNOWN = -1


class InputSize(IntEnum):
    """What is known of the op of a kernel by its inputs; UNKNOWN without shapes."""

    ALL = 0  # bytes of all tensors
    LARGEST = 1  # bytes of the largest
    FIRST = 2  # bytes of the first
    SECOND = 3  # bytes of the second, 0 for none
    RESULT = 4  # elements of the broadcast shape
    GIVEN = 5  # elements of the first, the second and the third


WIDTH = InputSize.GIVEN + 3


class Runs(msgspec.Struct, frozen=True, eq=False):
    """Runs of at least two kernels, as indices into Kernels.in_order; arrays of shape
    [runs]."""

    begin: Rows
    end: Rows
    ns: Int64s  # effective
    module: Rows
    least_ns: Int64s  # that one kernel for each would take, or UNKNOWN
    # the share of their bytes that one kernel for each would move, or NaN
    moved: Floats
    # by their shapes each kernel can work on the result of the one before
    are_chains: bool

    @property
    def saved_ns(self) -> Int64s:
        return np.where(self.least_ns >= 0, np.maximum(self.ns - self.least_ns, 0), 0)

    @property
    def is_known(self) -> bool:
        return bool((self.least_ns >= 0).any())


@Rule(
    needs=("CPU ops", "annotations", "Python frames and modules"),
    remedy="{compile:torch.compile fuses such runs; a|:A} fused norm, activation or rotary "
    "embedding does it by hand.",
    thresholds={"shortest_ns": SHORTEST_NS},
    of_kernels=True,
)
def fusable_run(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    if not kernels.flags(is_pointwise).any():
        return
    if not (kernels.module >= 0).any():
        raise CannotTell(
            "modules or annotations",
            "record_function"
            if facts.has_stacks
            else "with_stack=True, or record_function",
        )
    runs = runs_of(kernels)
    number, inside = len(runs.ns), int((runs.end - runs.begin).sum())
    if not number:
        return
    first = kernels.rows[kernels.in_order[runs.begin]]
    at_stake, taken = int(runs.saved_ns.sum()), int(runs.ns.sum())
    kinds = by_text(facts.trace, runs.module, runs.ns, module_text)
    text = (
        f"{plural(number, 'run')} of pointwise kernels, {count(inside)} in all, "
        f"{'takes' if number == 1 else 'take'} {of_work(facts, taken)}"
    )
    most = max(kinds, key=lambda kind: kinds[kind][1])
    if 2 * kinds[most][1] > taken:
        text += f", most of it in {most}"
    if runs.is_known:
        which = np.zeros(len(kernels.rows), dtype=np.bool_)
        which[kernels.in_order] = inside_of(runs.begin, runs.end, len(which))
        yield Claim(
            text=f"{text}. One kernel for each run has to read its first inputs and to write its "
            f"last output: at most, that saves {of_work(facts, at_stake)}.",
            at_stake_ns=at_stake,
            wanted="fuse",
            rows=the_most(first, runs.saved_ns),
            kernels=which,
            why_likely="Other inputs of a run, and results that are used again later, must be "
            "read and written too.",
        )
    elif is_worth(facts, taken, of_kernels=True):
        yield Claim(
            text=f"{text}. {_without(kernels, runs)}", rows=the_most(first, runs.ns)
        )


def inside_of(begin: Rows, end: Rows, number: int) -> Flags:
    """Which of so many indices lie in any of these ranges."""
    opened, closed = (
        np.bincount(edges, minlength=number + 1) for edges in (begin, end)
    )
    return np.cumsum(opened - closed)[:-1] > 0


def is_pointwise(kernel: KernelName) -> bool:
    """PyTorch's own kernels that make one pass over their tensors, without those fused
    already."""
    return kernel.op in OPS and kernel.family.startswith("aten")


@memo()
def runs_of(kernels: Kernels) -> Runs:
    """Neighbors on a stream under one module or annotation, at least two of which read
    something. Where shapes are known, the size of an input of each is that of the
    result of the one before, and none repeats what the one before does to a single
    tensor. Those of an optimizer work on many tensors that have nothing to do with each
    other."""
    order = kernels.in_order
    ns, module = kernels.effective_ns[order], kernels.module[order]
    wanted = (kernels.flags(is_pointwise) & ~kernels.in_optimizer)[order] & (
        module >= 0
    )
    stream = kernels.stream[order]
    copies = kernels.under(frozenset({INTO}))[order]  # write their first input
    reduces = kernels.flags(lambda kernel: kernel.op == "reduction")[order]
    sizes = _sizes(kernels, copies)
    are_chains = bool((wanted & (sizes[InputSize.RESULT] >= 0)).any())
    joined = (
        wanted[1:]
        & wanted[:-1]
        & (module[1:] == module[:-1])
        & (stream[1:] == stream[:-1])
    )
    if are_chains:
        joined &= _follows(sizes, reduces) & ~_repeats(kernels, sizes, copies)
    begin = np.flatnonzero(np.concatenate((wanted[:1], wanted[1:] & ~joined)))
    end = np.flatnonzero(np.concatenate((wanted[:-1] & ~joined, wanted[-1:]))) + 1
    reads = _before(kernels.flags(lambda kernel: kernel.op != "fill")[order])
    several = reads[end] - reads[begin] >= 2
    begin, end = begin[several], end[several]
    total = _before(ns)
    written = np.where(
        reduces, 0, np.where(copies, sizes[InputSize.FIRST], sizes[InputSize.LARGEST])
    )
    least = _least_ns(kernels, sizes, written, begin, end)
    moved = _moved(sizes, written, begin, end)
    return Runs(
        begin, end, total[end] - total[begin], module[begin], least, moved, are_chains
    )


def _follows(sizes: Int64s, reduces: Flags) -> Flags:
    """Whether each kernel but the first can take what the one before it wrote: by the
    number of elements, of which a reduction leaves a part."""
    before, given = sizes[InputSize.RESULT, :-1], sizes[InputSize.GIVEN :, 1:]
    part = (given > 1) & (given < before) & (before % np.maximum(given, 1) == 0)
    same = (given >= 0) & (given == before)
    found: Flags = np.where(reduces[:-1], part, same).any(axis=0)
    return found


def _repeats(kernels: Kernels, sizes: Int64s, copies: Flags) -> Flags:
    """Whether each kernel but the first does to one tensor what the one before it did,
    as to several tensors one after another."""
    op = kernels.trace.op[kernels.rows[kernels.in_order]]
    number, name = kernels.inputs.number[kernels.in_order], kernels.trace.name[op]
    one = (sizes[InputSize.GIVEN + 1] < 0) | copies
    found: Flags = one[1:] & (number[1:] == number[:-1]) & (name[1:] == name[:-1])
    return found


def _before(amounts: NDArray[np.generic]) -> Int64s:
    """The sum before each index, and the total; shape [n + 1]."""
    return np.concatenate(([0], np.cumsum(amounts, dtype=np.int64)))


def _least_ns(
    kernels: Kernels, sizes: Int64s, written: Int64s, begin: Rows, end: Rows
) -> Int64s:
    """How long one kernel for each run would take at least (ns), or UNKNOWN. It reads
    the inputs of the first kernel, or the largest tensor of a later one if that is
    more; and it writes the output of the last one, whose size is taken for that of its
    largest input."""
    rate = kernels.peak.bytes_per_s if kernels.peak else None
    if not rate or not len(begin):
        return np.full(len(begin), UNKNOWN, dtype=np.int64)
    edges = np.stack((begin, end), axis=1).reshape(-1)
    largest = np.maximum.reduceat(np.append(sizes[InputSize.LARGEST], UNKNOWN), edges)[
        ::2
    ]
    first, last = sizes[InputSize.ALL, begin], written[end - 1]
    least = np.maximum((np.maximum(first, largest) + last) / rate * NS, SHORTEST_NS)
    return np.where((first >= 0) & (last >= 0), np.rint(least), UNKNOWN).astype(
        np.int64
    )


def _moved(sizes: Int64s, written: Int64s, begin: Rows, end: Rows) -> Floats:
    """The share of the bytes of each run that stays if what a kernel hands to the next
    one is neither written nor read; NaN where bytes are not known."""
    read = sizes[InputSize.ALL]
    known = _before((read >= 0) & (written >= 0))
    every, handed = (
        _before(np.maximum(read, 0) + np.maximum(written, 0)),
        _before(written),
    )
    whole = every[end] - every[begin]
    stays = whole - 2 * (handed[end - 1] - handed[begin])
    sure = (known[end] - known[begin] == end - begin) & (whole > 0) & (stays > 0)
    return np.where(sure, stays / np.maximum(whole, 1), np.nan)


def _sizes(kernels: Kernels, copies: Flags) -> Int64s:
    """For each kernel in order, what its op reads and writes; shape [WIDTH,
    kernels]."""
    trace, inputs = kernels.trace, kernels.inputs
    unknown = (UNKNOWN,) * WIDTH
    table = np.array(
        [*(_of_inputs(texts) for texts in inputs.distinct), unknown], dtype=np.int64
    )
    found: Int64s = table[inputs.number[kernels.in_order]].T.copy()
    op = trace.op[kernels.rows[kernels.in_order]]
    own = np.array([name.startswith(OWN) for name in trace.names] or [False])
    found[:, (op < 0) | ~own[trace.name[op]]] = UNKNOWN
    found[: InputSize.FIRST, copies] = found[InputSize.SECOND, copies]
    found[InputSize.RESULT, copies] = found[InputSize.GIVEN, copies]
    found[InputSize.GIVEN, copies] = UNKNOWN
    return found


def _of_inputs(texts: tuple[bytes, ...]) -> tuple[int, ...]:
    """What an op reads and writes, see Size."""
    args = {name: parsed(text) for name, text in zip(INPUTS, texts, strict=True)}
    dims = args.get("Input Dims")
    parts = inputs_of(
        "", {"Input Dims": dims[0] if isinstance(dims, list) and dims else None}
    )
    # of a list of tensors, whose types are not recorded
    if parts and None not in parts.dims:
        elements = [math.prod(shape) for shape in parts.dims if shape is not None]
        return (
            *(UNKNOWN,) * InputSize.RESULT,
            sum(elements),
            *[*elements, *(UNKNOWN,) * 3][:3],
        )
    given = inputs_of("", args)
    tensors = [given.tensor(place) for place in range(len(given.dims))] if given else []
    shapes = [tensor.shape for tensor in tensors if tensor is not None]
    sizes = [tensor.bytes for tensor in tensors if tensor is not None]
    known = [size for size in sizes if size is not None]
    if not known or len(known) < len(sizes):
        return (UNKNOWN,) * WIDTH
    common = broadcast(shapes)
    result = UNKNOWN if common is None else math.prod(common)
    elements = [*map(math.prod, shapes), *(UNKNOWN,) * 3][:3]
    return (sum(known), max(known), known[0], (*known, 0)[1], result, *elements)


def _without(kernels: Kernels, runs: Runs) -> str:
    if runs.are_chains:
        lacking = "shapes" if kernels.peak else "a device whose bandwidth is known"
        return f"One kernel could do each run; without {lacking}, what that would save is unknown."
    return (
        "Without shapes it is not known which of them work on the same data, nor what one kernel "
        "for each run would save."
    )


PRODUCTS = frozenset(
    {"aten::bmm", "aten::baddbmm", "aten::baddbmm_", "aten::matmul", "aten::einsum"}
)
SIMPLE = ("elementwise", "copy", "fill", "softmax")
FARTHEST = 6  # kernels between a product and the softmax


@Rule(
    needs=("CPU ops",),
    remedy="{torch2:|:After an update to torch 2.0: }"
    'torch.nn.functional.scaled_dot_product_attention (attn_implementation="sdpa" in '
    "transformers); its sums are rounded in another order.",
    thresholds={"farthest": FARTHEST},
    of_kernels=True,
)
def unfused_attention(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    between, heads = attention(kernels)
    if not len(heads):
        return
    at_stake = kernels.ns(between)
    yield Claim(
        text=f"Attention runs as separate kernels {plural(len(heads), 'time')}"
        f"{most_module(kernels, heads, ' in ')}: between the two products, softmax and the kernels "
        f"around it take {of_work(facts, at_stake)}, to write and read scores that a fused kernel "
        "keeps on the chip.",
        at_stake_ns=at_stake,
        wanted=kernels.without(between),
        rows=tuple(
            kernels.rows[heads[np.argsort(-kernels.effective_ns[heads])[:5]]].tolist()
        ),
        kernels=np.isin(np.arange(len(kernels.rows)), between),
    )


def attention(kernels: Kernels) -> tuple[Rows, Rows]:
    """The indices of the kernels between the products, and those of the softmaxes."""
    none = np.empty(0, dtype=np.intp)
    softmax = kernels.flags(lambda one: one.op == "softmax" and one.pass_ != "bwd")
    softmax &= ~kernels.flags(lambda one: "ackward" in one.name)
    if not softmax.any():
        return none, none
    order = kernels.in_order
    # One with an unknown name counts as what its op does.
    others = kernels.flags(lambda kernel: kernel.op not in ("gemm", "gemv"))
    product = (kernels.under(PRODUCTS) & ~others)[order]
    simple = kernels.flags(lambda kernel: kernel.op in SIMPLE)[order]
    stream, module = kernels.stream[order], kernels.module[order]
    between: list[int] = []
    heads: list[int] = []
    for place in np.flatnonzero(softmax[order]).tolist():
        first, last = (_product(place, step, product, simple) for step in (-1, 1))
        same = first >= 0 <= last and stream[first] == stream[last]
        if same and module[first] == module[last] == module[place]:
            between += range(first + 1, last)
            heads.append(place)
    return order[distinct(np.array(between, dtype=np.intp))], order[
        np.array(heads, dtype=np.intp)
    ]


def _product(place: int, step: int, product: Flags, simple: Flags) -> int:
    """The product before or after a softmax, with only simple kernels in between; -1
    for none."""
    for at in range(place + step, place + step * (FARTHEST + 2), step):
        if not 0 <= at < len(product) or not (product[at] or simple[at]):
            return -1
        if product[at]:
            return at
    return -1
