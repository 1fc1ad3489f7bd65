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
from typing import Any, Final, NamedTuple

from fusetui.text.patterns import lazy_pattern
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

_TRITON = lazy_pattern(
    r"triton_(?P<category>[a-z]{3})_fused(?:_(?P<ops>\w*?))?_(?P<number>\d{1,9})"
    r"(?:_(?P<signature>\d{1,9}d[\dcde]*))?"
)
_TEMPLATES: Final = (
    (lazy_pattern(r"flex_(?:attention|decoding)\w*"), "attention"),
    (lazy_pattern(r"\w*convolution\w*"), "conv"),
    (lazy_pattern(r"(?:add|b|badd)?(?:add)?mm|\w*_(?:grouped_)?mm|mm_plus_mm"), "gemm"),
)
"""The operator that a template computes; whatever else is in its name is fused to
it."""

_UNNAMED = lazy_pattern(r"triton_(?:_\d[\dcde]*)?|triton_mm(?:_\d{1,9})?")
_CPP = lazy_pattern(
    r"(?:graph_(?P<graph>\d{1,9})_)?(?P<category>cpp)_fused(?:_(?P<ops>\w*?))?_(?P<number>\d{1,9})"
)


class _Category(NamedTuple):
    """A category of Inductor's kernels."""

    name: str | None  # ours; None for a kernel of unknown category
    meaning: str  # in words, for the legend


_CATEGORIES: Final = {
    "poi": _Category(
        "pointwise", "pointwise: each output depends on one place of the inputs"
    ),
    "red": _Category(
        "reduction",
        "a reduction that loops over its row; pointwise work may be fused in",
    ),
    "per": _Category("persistent_reduction", "a reduction whose row fits one block"),
    "tem": _Category(
        "template",
        "a template: matrix product or flex attention, with what is fused to it",
    ),
    "for": _Category("foreach", "foreach: many small tensors in one launch"),
    "spl": _Category("split_scan", "a scan that is split over blocks"),
    "unk": _Category(None, "of unknown category"),
    "cpp": _Category("cpp", "compiled C++ for the CPU"),
}
"""Inductor's categories, by the letters in the names."""

_KIND_OF_CATEGORY: Final = {
    "pointwise": "elementwise",
    "reduction": "reduction",
    "persistent_reduction": "reduction",
    "split_scan": "scan",
}
"""What a kernel of a category does, whatever is fused into it; for templates, see
_TEMPLATES."""


def decode_inductor(name: str) -> KernelName | None:
    """Decode the name of a kernel that Inductor generated.

    Returns None for any other name.

    >>> decode_inductor("triton_poi_fused_add_mul_0").short
    'add*mul (fused #0)'
    """
    if not name.startswith("triton_"):
        match = _CPP.fullmatch(name) if "cpp_fused" in name[:40] else None
        return _inductor_record(name, "inductor-cpp", match) if match else None

    match = _TRITON.fullmatch(name)
    if match is not None and match["category"] in _CATEGORIES:
        return _inductor_record(name, "inductor-triton", match)

    if _UNNAMED.fullmatch(name) is None:
        return None

    # The name of such a kernel does not say which operators it computes.
    part = (0, len("triton_"), "a kernel of Inductor; unique_kernel_names was off")
    op = "gemm" if name.startswith("triton_mm") else None
    return build(name, "inductor-triton", name[:MAX_SHORT], [part], op=op)


def _inductor_record(name: str, family: str, match: re.Match[str]) -> KernelName:
    """Build the record of a kernel of Inductor.

    Args:
        name: The full name of the kernel.
        family: `inductor-triton` or `inductor-cpp`.
        match: The match of `_TRITON` or `_CPP`: the category, the operators that are
            fused in the kernel, and its number.
    """
    category = _CATEGORIES[match["category"]]
    ops = split_ops(match["ops"]) if match["ops"] else ()

    parts: list[Part] = [(*match.span("category"), category.meaning)]
    start = match.start("ops")
    for op in ops:
        end = start + len(op)
        parts.append((start, end, f"operator {op[:80]}; the list is alphabetical"))
        start = end + 1

    number_meaning = "counts the kernels of one graph; differs between runs"
    parts.append((*match.span("number"), number_meaning))

    if category.name == "template":
        kind = _kind_of_template(ops)
    else:
        kind = _KIND_OF_CATEGORY.get(category.name or "")

    return build(
        name,
        family,
        _inductor_label(match["category"], ops, match["number"]),
        parts,
        op=kind,
        kernel_category=category.name,
        fused_ops=ops or None,
    )


def _kind_of_template(ops: tuple[str, ...]) -> str | None:
    """Say what a template of Inductor computes, by the operators in its name.

    Returns `attention`, `conv` or `gemm`; None if no operator is one of these.
    """
    for pattern, kind in _TEMPLATES:
        if any(pattern.fullmatch(op) for op in ops):
            return kind
    return None


def _inductor_label(category: str, ops: tuple[str, ...], number: str) -> str:
    """Compose the short text of a kernel of Inductor.

    It is `gelu*mul (fused #4)` for a pointwise kernel and `sum (red 4)` for others.
    Operators that only rename a tensor are left out if there are others. A long list of
    operators is cut.

    >>> _inductor_label("poi", ("add", "mul"), "0")
    'add*mul (fused #0)'

    Args:
        category: The three letters of the category.
        ops: The operators that are fused in the kernel.
        number: The number of the kernel in its graph.
    """
    suffix = f"(fused #{number})" if category == "poi" else f"({category} {number})"
    if not ops:
        return f"inductor {suffix}"

    shown_ops = [op for op in ops if op not in _VIEWS] or list(ops)
    shown = "*".join(shown_ops)

    max_characters = MAX_SHORT - len(suffix) - 1
    if len(shown) > max_characters:
        shown = shown[: max_characters - 2] + ".."

    return f"{shown} {suffix}"


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

_MAX_CUSTOM_CHARACTERS: Final = 64
"""Of a custom operator's name."""

_MAX_LIST_CHARACTERS: Final = 600
"""Of a list that contains custom operators; a longer one is not split."""

_FIRST_WORD = lazy_pattern("_*[a-z0-9]+")


def _by_first_word() -> dict[str, tuple[str, ...]]:
    """Group the known operators by their first word, the longest operators first."""
    groups = by_key(aten_ops(), lambda op: (_FIRST_WORD.match(op) or [op])[0])
    return {
        word: tuple(sorted(ops, key=len, reverse=True)) for word, ops in groups.items()
    }


_BY_FIRST_WORD: Final = _by_first_word()


class _Split(NamedTuple):
    """One way to split a joined list of operators.

    Splits are compared as tuples, and the least one is the cheapest. So the order of
    the fields is that of their weights.
    """

    custom: int  # the number of custom operators
    misleading: int  # how many of these begin with a known operator
    custom_letters: int  # the letters of all custom operators
    length: int  # the number of all operators
    ops: tuple[str, ...]


@lru_cache(maxsize=4096)
def split_ops(text: str) -> tuple[str, ...]:
    """Split a joined list of operators, as Inductor writes it in the name of a kernel.

    Args:
        text: The operators in alphabetical order, joined by underscores. They have
            underscores themselves.

    Returns:
        The operators in the same order. Empty for a text that is too long and
        contains custom operators.

    >>> split_ops("_unsafe_view_gelu_mul")
    ('_unsafe_view', 'gelu', 'mul')
    """
    ops = _split_greedily(text)
    if ops or len(text) > _MAX_LIST_CHARACTERS:
        return ops

    return _cheapest_split(text)


def _operator_ends(text: str, start: int) -> list[int]:
    """List the indices at which an operator that begins at `start` may end, ascending.

    They are those of underscores, and the end of the text. None is farther away than
    _MAX_CUSTOM_CHARACTERS.
    """
    limit = min(len(text), start + _MAX_CUSTOM_CHARACTERS)

    ends = []
    for end in range(start + 1, limit):
        is_last = end + 1 == len(text)  # a list does not end with an underscore
        if text[end] == "_" and not is_last:
            ends.append(end)

    if limit == len(text):
        ends.append(limit)

    return ends


def _split_greedily(text: str) -> tuple[str, ...]:
    """Split a list into known operators, each time taking the longest one.

    Returns nothing if that fails or the operators are not in alphabetical order.

    >>> _split_greedily("add_mul_relu")
    ('add', 'mul', 'relu')
    """
    ops: list[str] = []
    start = 0
    while start < len(text):
        op = _longest_operator(text, start)
        if op is None or (ops and op <= ops[-1]):
            return ()
        ops.append(op)
        start += len(op) + 1

    return tuple(ops)


def _longest_operator(text: str, start: int) -> str | None:
    """Return the longest known operator that begins at `start`.

    It must end with an underscore behind it or with the text. Returns None if there is
    none.

    >>> _longest_operator("native_layer_norm_add", 0)
    'native_layer_norm'
    """
    word = _FIRST_WORD.match(text, start)
    if word is None:
        return None

    for op in _BY_FIRST_WORD.get(word[0], ()):
        end = start + len(op)
        if text.startswith(op, start) and (end == len(text) or text[end] == "_"):
            return op

    return None


def _cheapest_split(text: str) -> tuple[str, ...]:
    """Split a list that contains custom operators.

    Of all splits in alphabetical order, the cheapest has the fewest custom operators
    and the fewest letters in them. If there is no such split, the whole text is one
    operator.

    >>> _cheapest_split("add_native_layer_norm")
    ('add', 'native_layer_norm')
    """
    # Work from the end: splits_at[start] has, for each operator that may begin
    # there, the cheapest split of text[start:] that begins with it. The cheapest of
    # these splits comes first.
    nothing = _Split(custom=0, misleading=0, custom_letters=0, length=0, ops=())
    splits_at: dict[int, list[_Split]] = {len(text) + 1: [nothing]}
    for start in range(len(text) - 1, -1, -1):
        if start and text[start - 1] != "_":
            continue

        splits = []
        for end in _operator_ends(text, start):
            split = _prepend_operator(text[start:end], splits_at.get(end + 1, []))
            if split is not None:
                splits.append(split)
        splits_at[start] = sorted(splits)

    if not splits_at.get(0):
        return (text,)

    return splits_at[0][0].ops


def _prepend_operator(op: str, following_splits: list[_Split]) -> _Split | None:
    """Put an operator before the cheapest split that may follow it.

    The list is alphabetical, so the operators of that split must come later.

    Args:
        op: The operator.
        following_splits: The splits of the text behind it, the cheapest first.

    Returns:
        The longer split; None if no split may follow.
    """
    for following in following_splits:
        if following.ops and op >= following.ops[0]:
            continue

        longer = following._replace(
            length=following.length + 1, ops=(op, *following.ops)
        )
        if op in aten_ops():
            return longer

        # A custom operator begins with the name of its library, hardly with another
        # operator.
        begins_with_operator = op.partition("_")[0] in aten_ops()
        return longer._replace(
            custom=following.custom + 1,
            misleading=following.misleading + begins_with_operator,
            custom_letters=following.custom_letters + len(op),
        )

    return None


_IDENTIFIER = lazy_pattern(r"[A-Za-z_]\w*")
_OGS_TYPE = r"(?:mx)?[a-wyz]+\d{1,6}(?:e\d[a-wyz0-9]*)?"
_OGS = lazy_pattern(
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
_BLOCK_SIZES: Final = {
    "tile_m": lazy_pattern(r"BLOCK_SIZE_M_(\d{1,5})(?=_|$)"),
    "tile_n": lazy_pattern(r"BLOCK_SIZE_N_(\d{1,5})(?=_|$)"),
    "tile_k": lazy_pattern(r"BLOCK_SIZE_K_(\d{1,5})(?=_|$)"),
}
# Liger and others mark the direction; the rest are prefixes and suffixes of one library
# each.
_CONVENTIONS = lazy_pattern(
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
_PASSES: Final = {"fwd": "fwd|forward", "bwd": "bwd|backward"}


def decode_written(name: str) -> KernelName | None:
    """Decode the name of a hand-written Triton kernel.

    It must follow the convention of a public library. Returns None for any other name.

    >>> decode_written("_dyt_fwd_kernel").short
    'dyt_fwd_kernel'
    """
    if _IDENTIFIER.fullmatch(name) is None:
        return None

    match = _OGS.fullmatch(name)
    if match is None:
        return _decode_plain(name) if _CONVENTIONS.fullmatch(name) else None

    split = int(match["split"])
    fields = {
        "op": "gemm",
        **fields_of(match, _OGS_TYPES.get),
        "epilogue": match["epilogue"],
        "split_k": split if split > 1 else None,
    }

    short = gemm_label("gemm", fields, "ogs", match["layouts"])
    return build(name, "triton", short, explain(match, _OGS_MEANINGS), **fields)


def _decode_plain(name: str) -> KernelName:
    """Decode a Triton kernel that is named like a function.

    AITER's names end in sizes, `..._BLOCK_SIZE_M_16_BLOCK_SIZE_N_64_...`. They are the
    tile of a product if all three are there.
    """
    stem = name.partition("_BLOCK_SIZE")[0].partition("_GROUP_")[0]
    op = op_by(_OPERATIONS, stem)

    fields: dict[str, Any] = {"op": op}
    if op in ("attention", "elementwise", "norm"):
        fields["pass_"] = op_by(_PASSES, stem)

    tile: dict[str, int] = {}
    parts: list[Part] = []
    for field, pattern in _BLOCK_SIZES.items():
        size = pattern.search(name)
        if size:
            tile[field] = int(size[1])
            parts.append((*size.span(1), "tile size of one block"))

    if not parts:
        parts = [(0, len(stem), "a Triton function")]
        return build(name, "triton", stem.strip("_"), parts, **fields)

    if op == "gemm" and len(tile) == len(_BLOCK_SIZES):
        fields |= tile

    short = gemm_label("gemm", fields, stem.strip("_"))
    return build(name, "triton", short, parts, **fields)
