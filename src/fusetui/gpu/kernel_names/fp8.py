"""Matrix products of narrow types: TensorRT-LLM's generated ones, and DeepGEMM of
DeepSeek.

Fields of the former agree with NVIDIA/TensorRT-LLM
cpp/tensorrt_llm/kernels/trtllmGenKernels/
batchedGemm/trtllmGen_bmm_export/KernelMetaInfo.h; the latter are documented by
deepseek-ai/DeepGEMM deep_gemm/include/deep_gemm/impls/. The places of its template
arguments change between releases: they are read only where the first argument has the
type and the list the length of a known form, and otherwise left open.

    bmm_{C}_{A}{B}_{acc}_[...]t{M}x{N}x{K}[u2][_s{stages}]_et{epilogue tile}_m{mma}
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
from typing import Any, Final, NamedTuple

from fusetui.text.patterns import late

from .cxx import Span, signature, split_args
from .record import KernelName, Part, build, explain, fields_of, gemm_label
from .vocabulary import from_capability

TRTLLM_TYPES: Final = {
    "Bfloat16": "bf16",
    "Fp16": "fp16",
    "Fp32": "fp32",
    "MxE4m3": "mxfp8_e4m3",
    "MxE2m1": "mxfp4_e2m1",
    "E4m3": "fp8_e4m3",
    "E5m2": "fp8_e5m2",
    "E2m1": "fp4_e2m1",
}
_TYPE = "|".join(TRTLLM_TYPES)
_TRTLLM = late(
    rf"(?:bmm|gemm)_(?P<dtype_out>{_TYPE})_(?P<dtype_a>{_TYPE})(?P<dtype_b>{_TYPE})?"
    rf"_(?P<dtype_acc>{_TYPE})"
    r"(?P<between>(?:_[A-Za-z]\w*?)??)_t(?P<tile_m>\d{1,4})x(?P<tile_n>\d{1,4})"
    r"x(?P<tile_k>\d{1,4})(?P<unroll>u2)?(?:_s(?P<stages>\d{1,3}))?"
    r"_et(?P<store>\d{1,6}x\d{1,6})_m(?P<mma>\d{1,6}x\d{1,6}x\d{1,6})"
    r"_c(?:ga)?(?P<cluster>\d{1,6}x\d{1,6}x\d{1,6})(?P<rest>(?:_[A-Za-z0-9]+)*)"
    r"_sm(?P<cc>\d{2,3})[af]?"
)
_MEANINGS: Final = {
    "dtype_out": "type of the result: {}",
    "dtype_a": "type of A: {}",
    "dtype_b": "type of B: {}",
    "dtype_acc": "type of the sums: {}",
    "tile_m": "output tile: {} rows",
    "tile_n": "output tile: {} columns",
    "unroll": "the loop over K is unrolled twice",
    "store": "tile of one store: {}",
    "mma": "tensor-core instruction {}",
}
_WORDS: Final = {
    "schedP": "persistent blocks",
    "schedS": "one block for each tile",
    "dynBatch": "the sizes of the batches are known at run time only",
    "dsFp8": "block-scaled fp8",
    "swiGlu": "the activation SwiGLU is fused in",
    "transOut": "the result is stored transposed",
}


class _Form(NamedTuple):
    first: str  # the form of the first argument
    places: tuple[int, ...]  # of tile and stages
    least: int  # arguments
    dtype: str | None = None


_MAJOR: Final = r"\(cute::UMMA::Major\)\d"
_NUMBER: Final = r"\d{1,6}u?"
_PRENORM: Final = _Form(_NUMBER, (2, 3, 4, 7), 10)
_FORMS: Final = {
    "sm90_fp8_gemm_1d2d_impl": _Form(_MAJOR, (5, 6, 7, 11), 18, "fp8_e4m3"),
    "sm100_fp8_fp4_gemm_1d1d_impl": _Form(_MAJOR, (7, 8, 9, 14), 18),
    "fp8_gemm_kernel": _Form(_NUMBER, (2, 3, 4, 8), 13, "fp8_e4m3"),
    "sm90_bf16_gemm_impl": _Form(_MAJOR, (6, 7, 8, 12), 20, "bf16"),
    "sm90_tf32_hc_prenorm_gemm_impl": _PRENORM,
    "sm100_tf32_hc_prenorm_gemm_impl": _PRENORM,
}
_FORM_FIELDS: Final = {
    "tile_m": "output tile: rows",
    "tile_n": "output tile: columns",
    "tile_k": "each step takes this much of K",
    "stages": "pipeline stages in flight",
}


def decode_trtllm(name: str) -> KernelName | None:
    """The record of a product of TensorRT-LLM:
    `bmm_Bfloat16_E2m1E2m1_Fp32_t128x16x512_...`."""
    if (match := _TRTLLM.match(name)) is None:
        return None
    fields = {"op": "gemm", **fields_of(match, TRTLLM_TYPES.get)}
    fields["dtype_b"] = fields["dtype_b"] or fields["dtype_a"]
    fields["epilogue"] = "swiglu" if "_swiGlu" in match["rest"] else None
    words = [word for word in match["rest"].split("_") if word.startswith("sch")]
    short = gemm_label(name.partition("_")[0], fields, match["unroll"], *words)
    return build(
        name, "trtllm-gen", short, explain(match, _MEANINGS, _WORDS.get), **fields
    )


def decode_deep_gemm(name: str) -> KernelName | None:
    """The record of a DeepGEMM kernel: `void
    deep_gemm::sm90_fp8_gemm_1d2d_impl<...>(...)`."""
    if (sign := signature(name)) is None or not sign.scope.startswith("deep_gemm::"):
        return None
    spans: list[Span] = split_args(name, sign.args)[0] if sign.args > 0 else []
    target = re.match(r"sm(\d{2,3})_", sign.base)
    op = "gemm" if "gemm" in sign.base else None
    fields: dict[str, Any] = {
        "op": op,
        **from_capability(target[1] if target else None),
    }
    what = "a matrix product" if op else "a kernel"
    parts: list[Part] = [(sign.start, sign.end, f"{what} of DeepGEMM")]
    form, texts = _FORMS.get(sign.base), [name[slice(*span)] for span in spans]
    fits = form and len(texts) >= form.least and re.fullmatch(form.first, texts[0])
    if (
        form
        and fits
        and all(re.fullmatch(_NUMBER, texts[place]) for place in form.places)
    ):
        for place, (key, meaning) in zip(
            form.places, _FORM_FIELDS.items(), strict=True
        ):
            fields[key] = int(texts[place].rstrip("u")) or None
            parts.append((*spans[place], meaning))
        if form.dtype:
            fields |= {"dtype_a": form.dtype, "dtype_b": form.dtype}
            fields |= {"dtype_acc": "fp32"} if target else {}
    tail = sign.base.removesuffix("_impl").removesuffix("_kernel")
    short = gemm_label("gemm", fields, tail) if op else f"deep_gemm {tail}"
    return build(name, "deep-gemm", short, parts, **fields)
