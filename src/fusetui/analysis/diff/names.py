"""What stays the same of a name, what an op or kernel does by its name, how two names
differ."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Final

from fusetui.gpu.kernel_names import decode
from fusetui.gpu.kernel_names.record import KernelName, tile_words
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
"""Changes of basis before and after the products: Winograd's, and Fourier
transforms."""

# the product of two vectors, whose parts another adds up
_DOT = re.compile(r"\bdot_kernel<")
_MOVES: Final = ("memset", "memcpy", "copy", "fill")
_MAIN: Final = ("gemm", "gemv", "conv", "attention")
_ACTIVATION = re.compile(r"act_and_mul|silu_and_mul|gelu_and_mul", re.IGNORECASE)


@cache
def identity(name: str) -> str:
    """A kernel's name without what changes when the same program is compiled or
    profiled again.

    >>> identity("triton_poi_fused_gelu_mul_3")
    'triton_poi_fused_gelu_mul'
    """
    name = name.removesuffix(".kd")
    return _GRAPH.sub("", _COUNTER.sub("", name)) if _NUMBERED.match(name) else name


@cache
def dispatch_name(name: str) -> str:
    """A CPU slice's name without frame numbers and graph hashes."""
    return _CALL.sub("## Call CompiledFxGraph ##", _REGION.sub(r"\1", name))


@cache
def work_class(op: str, kernel: str) -> str:
    """The kind of work, where that is enough to pair two kernels; else ""."""
    known = decode(kernel)
    if known is not None and (
        (part(kernel) == "helper" and helps(kernel)) or known.fused_ops
    ):
        return ""
    own = _paired(kind_of_kernel(kernel))
    if known is not None and known.op is not None and not own:
        return ""
    of_op, backward = _paired(kind_of_op(stem(op))), "backward" in stem(op)
    if of_op == "conv":
        return "conv backward" if backward else of_op
    if of_op == "gemm" or (of_op == "attention" and not backward):
        return of_op
    return own or ("act_and_mul" if _ACTIVATION.search(kernel) else "")


def _paired(kind: str | None) -> str:
    kind = "gemm" if kind == "gemv" else kind
    return kind if kind in _PAIRED else ""


@cache
def part(kernel: str) -> str:
    """What part of its op a kernel is: `main` for the product or convolution itself,
    else the kind of helper (offsets, a change of layout, a reduction of split-K); ""
    when its name is unknown."""
    known = decode(kernel)
    if known is None or known.family == "unknown":
        return ""
    is_transform = known.algo == "fft" or _TRANSFORM.search(kernel)
    if adds_up_parts(kernel) or known.op is None or is_transform:
        return "helper"
    return "main" if known.op in _MAIN or _DOT.search(kernel) else known.op


@cache
def adds_up_parts(kernel: str) -> bool:
    """Whether it is the reduction of split-K."""
    known = decode(kernel)
    return known is not None and known.role == "splitk_reduce"


@cache
def helps(kernel: str) -> bool:
    """Whether it is no work by itself, but helps the main kernel of an op: a fill, a
    copy, and whatever of a library of products or convolutions is neither."""
    known = decode(kernel)
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
"""Fields of a decoded name and what to call them; "" where the values speak for
themselves."""

_LABELS: Final = dict(field.strip().split("=") for field in _FIELDS.split(","))
_WORDS = re.compile(r"\w+|\W")
_SHOWN = 5
_MAX_NAME = 40


@cache
def differences(a: str, b: str) -> str:
    """`tile 128x128 -> 128x256, layout nn -> tn`; short names where decoding tells
    nothing."""
    one, other = decode(a), decode(b)
    before, after = (
        printable(of.short if of else name) for of, name in ((one, a), (other, b))
    )
    if one is None or other is None:
        before, after = clip(before, _MAX_NAME), clip(after, _MAX_NAME)
    elif found := _decoded_differences(one, other):
        return ", ".join(found[:_SHOWN])
    return f"{before} -> {after}" if before != after else _where_names_differ(a, b)


def _decoded_differences(one: KernelName, other: KernelName) -> list[str]:
    """Only what both names determine: an unknown field is no difference."""
    values = [
        ("", one.family, other.family),
        ("", one.op, other.op),
        ("tile", *(tile_words(of.tile_m, of.tile_n, of.tile_k) for of in (one, other))),
        *(
            (label, getattr(one, field), getattr(other, field))
            for field, label in _LABELS.items()
        ),
    ]
    found = [
        f"{label} {printable(str(before))} -> {printable(str(after))}".strip()
        for label, before, after in values
        if before != after and None not in (before, after)
    ]
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
