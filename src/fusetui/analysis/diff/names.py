"""What stays the same of a name from run to run, and what an op or kernel does by its name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Final

from fusetui.gpu.kernel_names import decode
from fusetui.gpu.kernel_names.model import KernelName
from fusetui.trace.model.op_names import stem, words

_COUNTER = re.compile(r"_\d+(?:_\d+d[\dcde]*)?\Z")
_NUMBERED = re.compile(r"triton_|(?:graph_\d+_)?cpp_fused")
_GRAPH = re.compile(r"\Agraph_\d+_")
_REGION = re.compile(r"\A(Torch-Compiled Region).*", re.DOTALL)
_CALL = re.compile(r"\A## Call CompiledFxGraph .*", re.DOTALL)

_CLASSES: Final = {
    "gemm": """mm addmm bmm baddbmm addbmm matmul linear _scaled_mm _int_mm _addmm_activation
        _linear_pointwise mkldnn_linear _mkl_linear _weight_int4pack_mm""",
    "conv": """convolution _convolution conv1d conv2d conv3d cudnn_convolution miopen_convolution
        mkldnn_convolution _convolution_pointwise convolution_overrideable""",
    "conv backward": """convolution_backward mkldnn_convolution_backward
        cudnn_convolution_backward_input cudnn_convolution_backward_weight""",
    "attention": """scaled_dot_product_attention _flash_attention_forward _flash_attn_forward
        _efficient_attention_forward _scaled_dot_product_flash_attention
        _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention
        _scaled_dot_product_flash_attention_for_cpu""",
}
_BY_STEM: Final = {stem: found for found, stems in _CLASSES.items() for stem in stems.split()}
_BY_KERNEL: Final = {
    "gemm": "gemm",
    "gemv": "gemm",
    **{op: op for op in words("conv attention norm softmax comm moe rope quant embedding")},
}
_TRANSFORM = re.compile(r"winograd_nonfused::|generateWinogradTiles")
"""Winograd's changes of basis, before and after the products."""

_DOT = re.compile(r"\bdot_kernel<")
"""The product of two vectors, whose parts another kernel adds up."""

_MOVES: Final = ("memset", "memcpy", "copy", "fill")
_MAIN: Final = ("gemm", "gemv", "conv", "attention")
_BY_WORD: Final = (
    (re.compile(r"rms_?norm|layer_?norm", re.IGNORECASE), "norm"),
    (re.compile(r"rope_|rotary", re.IGNORECASE), "rope"),
    (re.compile(r"attention|attn|fmha|flash_(?:fwd|bwd)", re.IGNORECASE), "attention"),
    (re.compile(r"act_and_mul|silu_and_mul|gelu_and_mul", re.IGNORECASE), "act_and_mul"),
)
"""Words in names of hand-written kernels that no decoder knows."""


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
    if known is not None and known.op is not None:
        found = _BY_KERNEL.get(known.op, "")
        return _BY_STEM.get(stem(op), found) if found else ""
    return _BY_STEM.get(stem(op)) or next((c for word, c in _BY_WORD if word.search(kernel)), "")


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
