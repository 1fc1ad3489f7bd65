"""What stays the same of a name, what an op or kernel does by its name, how two names differ."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Final

from fusetui.gpu.kernel_names import decode
from fusetui.gpu.kernel_names.record import KernelName
from fusetui.gpu.kinds import kind_of_kernel, kind_of_op
from fusetui.text.cutting import clip
from fusetui.text.printable import printable
from fusetui.trace.model.op_names import stem, words

_COUNTER = re.compile(r"_\d+(?:_\d+d[\dcde]*)?\Z")
_NUMBERED = re.compile(r"triton_|(?:graph_\d+_)?cpp_fused")
_GRAPH = re.compile(r"\Agraph_\d+_")
_REGION = re.compile(r"\A(Torch-Compiled Region).*", re.DOTALL)
_CALL = re.compile(r"\A## Call CompiledFxGraph .*", re.DOTALL)

_PAIRED: Final = words("gemm conv attention norm softmax comm moe rope quant embedding")
"""Kinds of work of which two kernels can be paired; any other is of too many sorts."""

_TRANSFORM = re.compile(r"winograd_nonfused::|generateWinogradTiles")
"""Winograd's changes of basis, before and after the products."""

_DOT = re.compile(r"\bdot_kernel<")
"""The product of two vectors, whose parts another kernel adds up."""

_MOVES: Final = ("memset", "memcpy", "copy", "fill")
_MAIN: Final = ("gemm", "gemv", "conv", "attention")
_ACTIVATION = re.compile(r"act_and_mul|silu_and_mul|gelu_and_mul", re.IGNORECASE)


@cache
def identity(name: str) -> str:
    """A kernel's name without what changes when the same program is compiled or profiled again.

    >>> identity("triton_poi_fused_gelu_mul_3")
    'triton_poi_fused_gelu_mul'
    """
    name = name.removesuffix(".kd")
    if _NUMBERED.match(name):
        return _GRAPH.sub("", _COUNTER.sub("", name))
    return name


@cache
def dispatch_name(name: str) -> str:
    """A CPU slice's name without frame numbers and graph hashes."""
    name = _REGION.sub(r"\1", name)
    return _CALL.sub("## Call CompiledFxGraph ##", name)


@cache
def decoded(name: str) -> KernelName | None:
    """`decode`, once per name."""
    return decode(name)


@cache
def work_class(op: str, kernel: str) -> str:
    """The kind of work, where that is enough to pair two kernels; else ""."""
    known = decoded(kernel)
    if known is not None and ((part(kernel) == "helper" and helps(kernel)) or known.fused_ops):
        return ""
    own = _paired(kind_of_kernel(kernel))
    if known is not None and known.op is not None and not own:
        return ""
    words = "act_and_mul" if _ACTIVATION.search(kernel) else ""
    return _class_of_op(stem(op)) or own or words


def _class_of_op(stem: str) -> str:
    found, backward = _paired(kind_of_op(stem)), "backward" in stem
    if found == "conv":
        return "conv backward" if backward else found
    return found if found == "gemm" or (found == "attention" and not backward) else ""


def _paired(kind: str | None) -> str:
    kind = "gemm" if kind == "gemv" else kind
    return kind if kind in _PAIRED else ""


@cache
def part(kernel: str) -> str:
    """What part of its op a kernel is: `main` for the product or convolution itself, else the kind
    of helper (offsets, a change of layout, a reduction of split-K); "" when its name is unknown."""
    known = decoded(kernel)
    if known is None or known.family == "unknown":
        return ""
    if adds_up_parts(kernel) or known.op is None or _TRANSFORM.search(kernel):
        return "helper"
    return "main" if known.op in _MAIN or _DOT.search(kernel) else known.op


@cache
def adds_up_parts(kernel: str) -> bool:
    """Whether it is the reduction of split-K."""
    known = decoded(kernel)
    return known is not None and known.role == "splitk_reduce"


@cache
def helps(kernel: str) -> bool:
    """Whether it is no work by itself, but helps the main kernel of an op: a fill, a copy, and
    whatever of a library of products or convolutions is neither."""
    known = decoded(kernel)
    if known is None:
        return False
    library = known.family in ("cudnn", "miopen") or known.family.startswith("cublas")
    own = part(kernel) not in ("main", "norm", "")
    return adds_up_parts(kernel) or (library and own) or known.op in _MOVES


def shared_start(a: Sequence[str], b: Sequence[str]) -> int:
    """The length of the common prefix of two sequences."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((n for n, (x, y) in pairs if x != y), min(len(a), len(b)))


_FIELDS: Final = """layout=layout, arch=, dtype_a=, dtype_b=B in, dtype_acc=sums in, dtype_out=out,
    dtype=, math=math, stages=stages, mma=MMA, mma_mn=MMA, align=align, cluster=cluster,
    split_k=split-K, stream_k=stream-K, role=role, epilogue=epilogue, pass_=pass, head_dim=head dim,
    causal=causal, functor=, vec=vector, kernel_category=, collective=, redop=, algo=, proto=,
    direction="""
"""Fields of a decoded name and what to call them; "" where the values speak for themselves."""

_LABELS: Final = dict(field.strip().split("=") for field in _FIELDS.split(","))
_WORDS = re.compile(r"\w+|\W")
_SHOWN = 5
_MAX_NAME = 40


@cache
def differences(a: str, b: str) -> str:
    """`tile 128x128 -> 128x256, layout nn -> tn`; short names where decoding finds no
    difference."""
    one, other = decoded(a), decoded(b)
    if one is not None and other is not None:
        found = _decoded_differences(one, other)
        if found:
            return ", ".join(found[:_SHOWN])
        if one.short != other.short:
            return f"{printable(one.short)} -> {printable(other.short)}"
        return _where_names_differ(a, b)
    shorts = _short(a, one), _short(b, other)
    return f"{shorts[0]} -> {shorts[1]}" if shorts[0] != shorts[1] else _where_names_differ(a, b)


def _decoded_differences(one: KernelName, other: KernelName) -> list[str]:
    """Only what both names determine: an unknown field is no difference."""
    found = []
    if one.family != other.family:
        found.append(f"{one.family} -> {other.family}")
    if one.op != other.op and one.op and other.op:
        found.append(f"{one.op} -> {other.op}")
    tiles = _tile(one), _tile(other)
    if all(tiles) and tiles[0] != tiles[1]:
        found.append(f"tile {tiles[0]} -> {tiles[1]}")
    for field, label in _LABELS.items():
        before, after = getattr(one, field), getattr(other, field)
        if before != after and before is not None and after is not None:
            change = f"{printable(str(before))} -> {printable(str(after))}"
            found.append(f"{label} {change}".strip())
    # the second operand's dtype adds nothing when it changes as the first one's does
    echoes = {f"B in {text}" for text in found}
    return [text for text in dict.fromkeys(found) if text not in echoes]


def _where_names_differ(a: str, b: str) -> str:
    """The stretch in which two names differ, in whole words."""
    words_a, words_b = _WORDS.findall(a), _WORDS.findall(b)
    first = shared_start(words_a, words_b)
    rest_a, rest_b = words_a[first:], words_b[first:]
    last = shared_start(rest_a[::-1], rest_b[::-1])
    before, after = ("".join(rest[: len(rest) - last]) for rest in (rest_a, rest_b))
    if max(len(before), len(after)) > _MAX_NAME:
        return "the decoded parts agree, the full names do not"
    return f"in its name: {printable(before) or 'nothing'} -> {printable(after) or 'nothing'}"


def _tile(name: KernelName) -> str:
    sizes = (name.tile_m, name.tile_n, name.tile_k)
    return "x".join(str(size) for size in sizes if size is not None)


def _short(name: str, known: KernelName | None) -> str:
    return clip(printable(known.short if known is not None else name), _MAX_NAME)
