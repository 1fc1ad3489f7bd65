"""Matrix products of narrow types: generated kernels of TensorRT-LLM, and DeepSeek's
DeepGEMM.

Fields of the former agree with NVIDIA/TensorRT-LLM
cpp/tensorrt_llm/kernels/trtllmGenKernels/
batchedGemm/trtllmGen_bmm_export/KernelMetaInfo.h; the latter are documented by
deepseek-ai/DeepGEMM deep_gemm/include/deep_gemm/impls/. The places of its template
arguments change between releases: they are read only where the first argument has the
type and the list the length of a known form, and otherwise left open.

    bmm_{C}_{A}{B}[_cast{type}]_{acc}_[...]t{M}x{N}x{K}[u2][_s{stages}]_et{epilogue tile}_m{mma}
        _{cga|c}{cluster}_..._sm{cc}
    sm90_fp8_gemm_1d2d_impl<major, M, N, K, groups, BM, BN, BK, swizzle x3, stages, ...>
    sm90_bf16_gemm_impl<majA, majB, M, N, K, groups, BM, BN, BK, swizzle x3, stages, ...>
    sm90_tf32_hc_prenorm_gemm_impl<N, K, BM, BN, BK, splits, swizzle, stages, threads x2>
    sm100_fp8_fp4_gemm_1d1d_impl<majA, majB, granA, granB, M, N, K, BM, BN, BK, groups,
        swizzle x3, stages, ...>
    fp8_gemm_kernel<N, K, BM, BN, BK, ..., stages, ...>
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from fusetui.text.patterns import lazy_pattern

from .cxx import TemplateArgument, signature, split_args
from .record import KernelName, Part, build, explain, fields_of, gemm_label
from .vocabulary import explain_layout, from_capability

TRTLLM_TYPES: Final = {
    "Bfloat16": "bf16",
    "Fp16": "fp16",
    "Fp32": "fp32",
    "MxE4m3": "mxfp8_e4m3",
    "MxE2m1": "mxfp4_e2m1",
    "MxInt4": "mxint4",
    "E4m3": "fp8_e4m3",
    "E5m2": "fp8_e5m2",
    "E2m1": "fp4_e2m1",
}
_TYPE = "|".join(TRTLLM_TYPES)
_TRTLLM = lazy_pattern(
    rf"(?:bmm|gemm)_(?P<dtype_out>{_TYPE})_(?P<dtype_a>{_TYPE})(?P<dtype_b>{_TYPE})?"
    rf"(?:_cast(?P<cast>{_TYPE}))?_(?P<dtype_acc>{_TYPE})"
    r"(?P<between>(?:_[A-Za-z]\w*?)??)_t(?P<tile_m>\d{1,4})x(?P<tile_n>\d{1,4})"
    r"x(?P<tile_k>\d{1,4})(?P<unroll>u2)?(?:_s(?P<stages>\d{1,3}))?"
    r"_et(?P<store>\d{1,6}x\d{1,6})_m(?P<mma>\d{1,6}x\d{1,6}x\d{1,6})"
    r"_c(?:ga)?(?P<cluster>\d{1,6}x\d{1,6}x\d{1,6})(?P<rest>(?:_[A-Za-z0-9]+)*)"
    r"_sm(?P<cc>\d{2,3})[af]?"
)
_DYNAMIC_BATCH: Final = "the batch sizes are known only at run time"
_MEANINGS: Final = {
    "dtype_out": "type of the result: {}",
    "dtype_a": "type of A: {}",
    "dtype_b": "type of B: {}",
    "cast": "the operands are converted to {} on the way into the multiplication",
    "dtype_acc": "type of the sums: {}",
    "tile_m": "output tile: {} rows",
    "tile_n": "output tile: {} columns",
    "unroll": "the loop over K is unrolled twice",
    "store": "tile of one store: {}",
    "mma": "tensor-core instruction {}",
}
_WORDS: Final = {
    "dynBatch": _DYNAMIC_BATCH,
    "dynB": _DYNAMIC_BATCH,
    "dsFp8": "block-scaled fp8",
    "swiGlu": "the activation SwiGLU is fused in",
    "transOut": "the result is stored transposed",
    "TN": explain_layout("tn"),
    "NT": explain_layout("nt"),
    "NN": explain_layout("nn"),
    "TT": explain_layout("tt"),
}
_SCHEDULE = lazy_pattern(r"sch(?:ed)?(?P<kind>[PS])")
_SCHEDULES: Final = {"P": "persistent blocks", "S": "one block for each tile"}


def _explain_word(word: str) -> str | None:
    """Explain a word behind the cluster of a product of TensorRT-LLM.

    Later releases write `schP` in place of `schedP`, and numbers behind it. Returns
    None if the meaning is not known.
    """
    schedule = _SCHEDULE.match(word)
    if schedule:
        return _SCHEDULES[schedule["kind"]]

    return _WORDS.get(word)


class _ArgumentForm(NamedTuple):
    """Where a kernel of DeepGEMM has its sizes among the template arguments.

    A position counts the arguments from 0.
    """

    first_argument: str  # a pattern that the first argument matches
    min_arguments: int  # how many arguments a kernel of this form has at least
    # The positions of the sizes of the tile, and of the stages, by field of KernelName.
    tile_positions: Mapping[str, int]
    # Those of the sizes of the problem, by letter. A size of 0 means any.
    problem_positions: Mapping[str, int]
    dtype: str | None = None  # the type of A and B; None if it varies


_MAJOR: Final = r"\(cute::UMMA::Major\)\d"
_NUMBER: Final = r"\d{1,6}u?"
_PRENORM: Final = _ArgumentForm(
    first_argument=_NUMBER,
    min_arguments=10,
    tile_positions={"tile_m": 2, "tile_n": 3, "tile_k": 4, "stages": 7},
    problem_positions={"N": 0, "K": 1},
)
_FORMS: Final = {
    "sm90_fp8_gemm_1d2d_impl": _ArgumentForm(
        first_argument=_MAJOR,
        min_arguments=18,
        tile_positions={"tile_m": 5, "tile_n": 6, "tile_k": 7, "stages": 11},
        problem_positions={"M": 1, "N": 2, "K": 3},
        dtype="fp8_e4m3",
    ),
    "sm100_fp8_fp4_gemm_1d1d_impl": _ArgumentForm(
        first_argument=_MAJOR,
        min_arguments=18,
        tile_positions={"tile_m": 7, "tile_n": 8, "tile_k": 9, "stages": 14},
        problem_positions={"M": 4, "N": 5, "K": 6},
    ),
    "fp8_gemm_kernel": _ArgumentForm(
        first_argument=_NUMBER,
        min_arguments=13,
        tile_positions={"tile_m": 2, "tile_n": 3, "tile_k": 4, "stages": 8},
        problem_positions={"N": 0, "K": 1},
        dtype="fp8_e4m3",
    ),
    "sm90_bf16_gemm_impl": _ArgumentForm(
        first_argument=_MAJOR,
        min_arguments=20,
        tile_positions={"tile_m": 6, "tile_n": 7, "tile_k": 8, "stages": 12},
        problem_positions={"M": 2, "N": 3, "K": 4},
        dtype="bf16",
    ),
    "sm90_tf32_hc_prenorm_gemm_impl": _PRENORM,
    "sm100_tf32_hc_prenorm_gemm_impl": _PRENORM,
}
"""The known forms, by the base name of the kernel."""

_SIZE_MEANINGS: Final = {
    "tile_m": "output tile: rows",
    "tile_n": "output tile: columns",
    "tile_k": "each step takes this much of K",
    "stages": "pipeline stages in flight",
}


def decode_trtllm(name: str) -> KernelName | None:
    """Decode the name of a matrix product of TensorRT-LLM.

    Such a name begins like `bmm_Bfloat16_E2m1E2m1_Fp32_t128x16x512_`. Returns None for
    any other name.
    """
    match = _TRTLLM.match(name)
    if match is None:
        return None

    fields = {"op": "gemm", **fields_of(match, TRTLLM_TYPES.get)}
    fields["dtype_b"] = fields["dtype_b"] or fields["dtype_a"]
    fields["math"] = TRTLLM_TYPES.get(match["cast"])
    fields["epilogue"] = "swiglu" if "_swiGlu" in match["rest"] else None

    options = match["rest"].split("_")
    schedules = [option for option in options if option.startswith("sch")]
    first_word = "bmm" if name.startswith("bmm_") else "gemm"
    short = gemm_label(first_word, fields, match["unroll"], *schedules)
    parts = explain(match, _MEANINGS, _explain_word)
    return build(name, "trtllm-gen", short, parts, **fields)


def decode_deep_gemm(name: str) -> KernelName | None:
    """Decode the name of a DeepGEMM kernel.

    Such a name begins like `void deep_gemm::sm90_fp8_gemm_1d2d_impl<`. Returns None for
    any other name.
    """
    sign = signature(name)
    if sign is None or not sign.scope.startswith("deep_gemm::"):
        return None

    is_product = "gemm" in sign.base
    kernel = "a matrix product" if is_product else "a kernel"
    parts = [sign.explain_base(f"{kernel} of DeepGEMM")]

    fields: dict[str, Any] = {"op": "gemm" if is_product else None}
    target = re.match(r"sm(\d{2,3})_", sign.base)
    if target:
        fields |= from_capability(target[1])

    form = _FORMS.get(sign.base)
    if form is not None and sign.has_arguments:
        arguments = split_args(name, sign.args).arguments
        if _has_form(arguments, form):
            fields |= _read_sizes(arguments, form)
            parts += _explain_sizes(arguments, form)
            if form.dtype is not None:
                fields["dtype_a"] = form.dtype
                fields["dtype_b"] = form.dtype
                # Only kernels for a named target are known to add up in fp32.
                fields["dtype_acc"] = "fp32" if target else None

    variant = sign.base.removesuffix("_impl").removesuffix("_kernel")
    if is_product:
        short = gemm_label("gemm", fields, variant)
    else:
        short = f"deep_gemm {variant}"
    return build(name, "deep-gemm", short, parts, **fields)


def _read_sizes(
    arguments: list[TemplateArgument], form: _ArgumentForm
) -> dict[str, int | None]:
    """Read the sizes of a kernel of a known form from its template arguments.

    Returns:
        `tile_m`, `tile_n`, `tile_k` and `stages`; a 0 becomes None.
    """
    sizes = {}
    for field, position in form.tile_positions.items():
        size = int(arguments[position].text.rstrip("u"))
        sizes[field] = size if size > 0 else None
    return sizes


def _explain_sizes(
    arguments: list[TemplateArgument], form: _ArgumentForm
) -> list[Part]:
    """Explain the sizes of the tile and of the problem among the template arguments.

    Args:
        arguments: The template arguments.
        form: Where the sizes are among them.
    """
    parts = []
    for field, position in form.tile_positions.items():
        argument = arguments[position]
        parts.append((argument.start, argument.end, _SIZE_MEANINGS[field]))

    for letter, position in form.problem_positions.items():
        argument = arguments[position]
        meaning = f"{letter} of the products that it is built for; 0 is any"
        parts.append((argument.start, argument.end, meaning))
    return parts


def _has_form(arguments: list[TemplateArgument], form: _ArgumentForm) -> bool:
    """Return whether template arguments fit the known form of a kernel.

    There must be enough of them, the first one must be of the right sort, and the sizes
    must be numbers.
    """
    if len(arguments) < form.min_arguments:
        return False
    if not re.fullmatch(form.first_argument, arguments[0].text):
        return False
    size_arguments = [arguments[position] for position in form.tile_positions.values()]
    return all(re.fullmatch(_NUMBER, argument.text) for argument in size_arguments)
