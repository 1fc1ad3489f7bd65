"""What stays the same of a name from run to run, and what an op or kernel does by its name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Final

from fusetui.gpu.kernel_names import decode
from fusetui.gpu.kernel_names.model import KernelName
from fusetui.gpu.kinds import kind_of_kernel, kind_of_op
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
