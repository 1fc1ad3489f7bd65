"""Triton kernels: those that TorchInductor generates (with its C++ for the CPU), and
hand-written.

Documented by pytorch/pytorch torch/_inductor/codegen/triton.py and codegen/cpp.py
(define_kernel), utils.py (get_fused_kernel_name) and wrapper_benchmark.py (the kernel
categories):

    triton_{category}_fused[_{operators}]_{number}      [graph_{n}_]cpp_fused[_{operators}]_{number}

The number counts the kernels of one graph and changes from run to run. The operators
are the sorted, distinct names, joined with underscores. They contain underscores
themselves, so the list is split with the help of ATen's operators, longest first; words
that no operator explains belong to a custom operator, which must end where the order
goes on ascending.

The name of a hand-written kernel is that of the Python function. Some say more by
convention: `_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1_swiglu` (triton-lang
triton_kernels) and AITER's `..._BLOCK_SIZE_M_16_BLOCK_SIZE_N_64_...`. A plain function
name does not distinguish Triton from other Python compilers, so only the conventions of
public Triton libraries count (Liger, flash-linear-attention, triton_kernels, AITER, the
attention and experts of vLLM and SGLang).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from fusetui.text.patterns import late
from fusetui.trace.model.grouping import by_key
from fusetui.trace.model.op_names import aten_ops

from .record import (
    MAX_SHORT,
    KernelName,
    Part,
    build,
    explain,
    fields_of,
    gemm_label,
    op_by,
)

_TRITON = late(
    r"triton_(?P<category>[a-z]{3})_fused(?:_(?P<ops>\w*?))?_(?P<number>\d{1,9})"
    r"(?:_(?P<signature>\d{1,9}d[\dcde]*))?"
)
_TEMPLATES: Final = (
    (late(r"flex_(?:attention|decoding)\w*"), "attention"),
    (late(r"\w*convolution\w*"), "conv"),
    (late(r"(?:add|b|badd)?(?:add)?mm|\w*_(?:grouped_)?mm|mm_plus_mm"), "gemm"),
)
"""The operator that a template computes; whatever else is in its name is fused to
it."""
_UNNAMED = late(r"triton_(?:_\d[\dcde]*)?|triton_mm(?:_\d{1,9})?")
_CPP = late(
    r"(?:graph_(?P<graph>\d{1,9})_)?(?P<category>cpp)_fused(?:_(?P<ops>\w*?))?_(?P<number>\d{1,9})"
)
_CATEGORIES: Final = {
    "poi": ("pointwise", "pointwise: each output depends on one place of the inputs"),
    "red": (
        "reduction",
        "a reduction that loops over its row; pointwise work may be fused in",
    ),
    "per": ("persistent_reduction", "a reduction whose row fits one block"),
    "tem": (
        "template",
        "a template: matrix product or flex attention, with what is fused to it",
    ),
    "for": ("foreach", "foreach: many small tensors in one launch"),
    "spl": ("split_scan", "a scan that is split over blocks"),
    "unk": (None, "of unknown category"),
    "cpp": ("cpp", "compiled C++ for the CPU"),
}


_KIND_OF_CATEGORY: Final = {
    "pointwise": "elementwise",
    "reduction": "reduction",
    "persistent_reduction": "reduction",
    "split_scan": "scan",
}
"""What a kernel of a category does, whatever is fused into it; a template, see
above."""


def decode_inductor(name: str) -> KernelName | None:
    if not name.startswith("triton_"):
        match = _CPP.fullmatch(name) if "cpp_fused" in name[:40] else None
        return _record(name, "inductor-cpp", match) if match else None
    match = _TRITON.fullmatch(name)
    if match is not None and match["category"] in _CATEGORIES:
        return _record(name, "inductor-triton", match)
    if _UNNAMED.fullmatch(name) is None:
        return None
    part = (0, len("triton_"), "a kernel of Inductor; unique_kernel_names was off")
    op = "gemm" if name.startswith("triton_mm") else None
    return build(name, "inductor-triton", name[:MAX_SHORT], [part], op=op)


def _record(name: str, family: str, match: re.Match[str]) -> KernelName:
    category, text = _CATEGORIES[match["category"]]
    ops = (split_ops(match["ops"]) or None) if match["ops"] else None
    parts: list[Part] = [(*match.span("category"), text)]
    start = match.start("ops")
    for op in ops or ():
        parts.append(
            (start, start + len(op), f"operator {op[:80]}; the list is alphabetical")
        )
        start += len(op) + 1
    parts.append(
        (*match.span("number"), "counts the kernels of one graph; differs between runs")
    )
    does = _KIND_OF_CATEGORY.get(category or "")
    if category == "template":
        fit = (
            of for pattern, of in _TEMPLATES if any(map(pattern.fullmatch, ops or ()))
        )
        does = next(fit, None)
    short = _short(match["category"], ops, match["number"])
    return build(
        name, family, short, parts, op=does, kernel_category=category, fused_ops=ops
    )


def _short(category: str, ops: tuple[str, ...] | None, number: str) -> str:
    """`gelu*mul (fused #4)`, where 4 is the number of the kernel in its graph.
    Operators that only rename a tensor are dropped first."""
    tail = f"({category} {number})" if category != "poi" else f"(fused #{number})"
    if not ops:
        return f"inductor {tail}"
    words = [op for op in ops if op not in _VIEWS] or list(ops)
    shown = "*".join(words)
    room = MAX_SHORT - len(tail) - 1
    if len(shown) > room:
        shown = shown[: room - 2] + ".."
    return f"{shown} {tail}"


_VIEWS: Final = frozenset(
    {
        "_unsafe_view",
        "alias",
        "as_strided",
        "detach",
        "expand",
        "permute",
        "reshape",
        "select",
        "slice",
        "split",
        "split_with_sizes",
        "squeeze",
        "t",
        "transpose",
        "unbind",
        "unsqueeze",
        "view",
    }
)

_MAX_CUSTOM: Final = 64
_MAX_TEXT: Final = 600

_FIRST_WORD = late("_*[a-z0-9]+")


def _by_first_word() -> dict[str, tuple[str, ...]]:
    """Operators that begin with the same word, the longest first."""
    found = by_key(aten_ops(), lambda op: (_FIRST_WORD.match(op) or [op])[0])
    return {
        word: tuple(sorted(ops, key=len, reverse=True)) for word, ops in found.items()
    }


_BY_FIRST_WORD: Final = _by_first_word()

_Split = tuple[tuple[int, int, int, int], tuple[str, ...]]
"""What a split costs (custom operators, those that begin with a known one, their
letters, operators), and its operators."""


@lru_cache(maxsize=4096)
def split_ops(text: str) -> tuple[str, ...]:
    """The operators of a joined list, in the alphabetical order of the name.

    Empty for a text that is too long and contains custom operators.

    >>> split_ops("_unsafe_view_gelu_mul")
    ('_unsafe_view', 'gelu', 'mul')
    """
    return _greedy(text) or (_best(text) if len(text) <= _MAX_TEXT else ())


def _ends(text: str, start: int) -> list[int]:
    """Where an operator that begins at `start` may end: before an underscore or at the
    end."""
    limit = min(len(text), start + _MAX_CUSTOM)
    ends = [
        at for at in range(start + 1, limit) if text[at] == "_" and at + 1 < len(text)
    ]
    return [*ends, len(text)] if limit == len(text) else ends


def _greedy(text: str) -> tuple[str, ...]:
    """The split into longest known operators, or nothing if it fails or is not
    ascending."""
    ops: list[str] = []
    at, size = 0, len(text)
    while at < size:
        if (op := _longest(text, at)) is None or (ops and op <= ops[-1]):
            return ()
        ops.append(op)
        at += len(op) + 1
    return tuple(ops)


def _longest(text: str, start: int) -> str | None:
    """The longest operator in the text at `start`, up to an underscore or the end."""
    word = _FIRST_WORD.match(text, start)
    for op in _BY_FIRST_WORD.get(word[0], ()) if word else ():
        end = start + len(op)
        if text.startswith(op, start) and (end == len(text) or text[end] == "_"):
            return op
    return None


def _best(text: str) -> tuple[str, ...]:
    """The ascending split with the fewest custom operators and the fewest letters in
    them. Works from the end: best[start][op] is the cheapest split of text[start:] that
    begins with op."""
    best: dict[int, list[_Split]] = {len(text) + 1: [((0, 0, 0, 0), ())]}
    for start in range(len(text) - 1, -1, -1):
        if not start or text[start - 1] == "_":
            splits = (
                _extend(text[start:end], best.get(end + 1, []))
                for end in _ends(text, start)
            )
            best[start] = sorted(filter(None, splits))
    return best[0][0][1] if best.get(0) else (text,)


def _extend(op: str, rests: list[_Split]) -> _Split | None:
    """`op` before the cheapest rest that begins with a later name."""
    for (custom, odd, letters, count), ops in rests:
        if ops and op >= ops[0]:
            continue
        if op in aten_ops():
            return (custom, odd, letters, count + 1), (op, *ops)
        # A custom operator begins with the name of its library, hardly with another
        # operator.
        odd += op.partition("_")[0] in aten_ops()
        return (custom + 1, odd, letters + len(op), count + 1), (op, *ops)
    return None


_IDENTIFIER = late(r"[A-Za-z_]\w*")
_OGS_TYPE = r"(?:mx)?[a-wyz]+\d{1,6}(?:e\d[a-wyz0-9]*)?"
_OGS = late(
    rf"_(?:p_)?matmul_ogs_(?P<layouts>[A-Z]{{3}})_(?P<dtype_out>{_OGS_TYPE})x(?P<dtype_a>{_OGS_TYPE})x"
    rf"(?P<dtype_b>{_OGS_TYPE})_(?P<tile_m>\d{{1,4}})x(?P<tile_n>\d{{1,4}})x(?P<tile_k>\d{{1,4}})"
    r"x(?P<split>\d{1,4})(?:_(?P<epilogue>[a-z]\w*))?"
)
_OGS_TYPES: Final = {
    "fp32": "fp32",
    "fp16": "fp16",
    "bf16": "bf16",
    "fp8e4nv": "fp8_e4m3",
    "fp8e4b8": "fp8_e4m3fnuz",
    "fp8e5": "fp8_e5m2",
    "fp8e5b16": "fp8_e5m2fnuz",
    "mxfp4": "mxfp4_e2m1",
}
_OGS_MEANINGS: Final = {
    "layouts": "layouts of the result, A and B",
    "dtype_out": "type of the result: {}",
    "dtype_a": "type of A: {}",
    "dtype_b": "type of B: {}",
    "tile_m": "output tile: {} rows",
    "tile_n": "output tile: {} columns",
    "split": "K is split {} ways (1: not split)",
    "epilogue": "{}: fused into the store",
}
_BLOCKS: Final = tuple(late(rf"BLOCK_SIZE_{axis}_(\d{{1,5}})(?=_|$)") for axis in "MNK")
# Liger and others mark the direction; the rest are prefixes and suffixes of one library
# each.
_HABITS = late(
    r"_\w*(?:fwd|bwd|forward|backward)_kernel\w*"
    r"|liger_\w+|_jsd_kernel|_kldiv_\w+|_fused_\w+|sage_\w+|triton_\w+"
    r"|_attn_(?:fwd|bwd)\w*|attn_(?:fwd|bwd)\w*|kernel_unified_attention_\w+"
    r"|_?matmul_kernel\w*|\w*_matmul|_(?:p_)?matmul_ogs\w*"
    r"|(?:chunk|fused_recurrent|fused_chunk|recompute|prepare)_\w*(?:fwd|bwd)_kernel\w*"
    r"|merge_\d{1,6}x\d{1,6}_to_\w+|_combined_routing\w*|_sum_bitmatrix\w*"
    r"|_?per_token_(?:group_)?quant_\w+|(?:act|weight)_(?:de)?quant_kernel"
    r"|awq_(?:gemm|dequantize)_kernel"
    r"|fused_moe_kernel(?:_gptq_awq)?|_fwd_(?:grouped_)?kernel_stage[12]|_triton_rope"
    r"|_topk_(?:forward|backward)\w*|\w+_kernel_triton|\w*BLOCK_SIZE_[MN]_\d{1,6}\w*"
)
_OPERATIONS: Final = {
    "gemm": r"matmul|gemm|_mm_",
    "attention": r"attn_(?:fwd|bwd)|attention|^_fwd_\w*kernel_stage[12]$",
    "moe": r"^fused_moe_kernel",
    "rope": r"^_triton_rope$",
    "loss": r"cross_entropy|_jsd_|_kldiv_",
    "elementwise": r"swiglu|geglu|silu_and_mul|gelu_and_mul",
    "norm": r"layer_?norm|rms_?norm|group_norm",
    "quant": r"^_?(?:per_token_(?:group_)?|act_|weight_|sage_|awq_)(?:de)?quant",
}
_WAYS: Final = {"fwd": "fwd|forward", "bwd": "bwd|backward"}


def decode_written(name: str) -> KernelName | None:
    """The record of a hand-written Triton kernel that follows a public library's
    convention."""
    if _IDENTIFIER.fullmatch(name) is None:
        return None
    if (match := _OGS.fullmatch(name)) is None:
        return _decode_plain(name) if _HABITS.fullmatch(name) else None
    fields = {
        "op": "gemm",
        **fields_of(match, _OGS_TYPES.get),
        "epilogue": match["epilogue"],
    }
    fields["split_k"] = int(match["split"]) if int(match["split"]) > 1 else None
    short = gemm_label("gemm", fields, "ogs", match["layouts"])
    return build(name, "triton", short, explain(match, _OGS_MEANINGS), **fields)


def _decode_plain(name: str) -> KernelName:
    stem = name.partition("_BLOCK_SIZE")[0].partition("_GROUP_")[0]
    op = op_by(_OPERATIONS, stem)
    fields: dict[str, Any] = {"op": op}
    sizes = [size for pattern in _BLOCKS if (size := pattern.search(name))]
    if op == "gemm" and len(sizes) == len(_BLOCKS):
        fields |= zip(
            ("tile_m", "tile_n", "tile_k"),
            (int(size[1]) for size in sizes),
            strict=True,
        )
    if op in ("attention", "elementwise", "norm"):
        fields["pass_"] = op_by(_WAYS, stem)
    parts = [(*size.span(1), "tile size of one block") for size in sizes]
    short = gemm_label("gemm", fields, stem.strip("_")) if parts else stem.strip("_")
    return build(
        name, "triton", short, parts or [(0, len(stem), "a Triton function")], **fields
    )
