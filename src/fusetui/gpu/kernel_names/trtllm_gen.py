"""TensorRT-LLM's generated batched matrix products: `bmm_Bfloat16_E2m1E2m1_Fp32_t128x16x512_...`.

Field meanings agree with NVIDIA/TensorRT-LLM cpp/tensorrt_llm/kernels/trtllmGenKernels/batchedGemm/
trtllmGen_bmm_export/KernelMetaInfo.h.

    bmm_{C}_{A}{B}_{acc}_[...]t{M}x{N}x{K}[u2][_s{stages}]_et{epilogue tile}_m{mma}
        _{cga|c}{cluster}_..._sm{cc}
"""

from __future__ import annotations

import re
from typing import Any, Final

from fusetui.gpu.kernel_names.record import KernelName, build, explain, explain_tokens, gemm_label
from fusetui.gpu.kernel_names.vocabulary import from_capability

_TYPES: Final = {
    "Bfloat16": "bf16",
    "Fp16": "fp16",
    "Fp32": "fp32",
    "MxE4m3": "mxfp8_e4m3",
    "MxE2m1": "mxfp4_e2m1",
    "E4m3": "fp8_e4m3",
    "E5m2": "fp8_e5m2",
    "E2m1": "fp4_e2m1",
}
_TYPE = "|".join(_TYPES)
_NAME = re.compile(
    rf"(?:bmm|gemm)_(?P<out>{_TYPE})_(?P<a>{_TYPE})(?P<b>{_TYPE})?_(?P<acc>{_TYPE})"
    r"(?P<between>(?:_[A-Za-z]\w*?)??)_t(?P<m>\d{1,4})x(?P<n>\d{1,4})x(?P<k>\d{1,4})(?P<unroll>u2)?"
    r"(?:_s(?P<stages>\d{1,3}))?_et(?P<store>\d{1,6}x\d{1,6})_m(?P<mma>\d{1,6}x\d{1,6}x\d{1,6})"
    r"_c(?:ga)?(?P<cluster>\d{1,6}x\d{1,6}x\d{1,6})(?P<rest>(?:_[A-Za-z0-9]+)*)_sm(?P<cc>\d{2,3})[af]?"
)
_MEANINGS: Final = {
    "out": "type of the result: {}",
    "a": "type of A: {}",
    "b": "type of B: {}",
    "acc": "type of the sums: {}",
    "m": "output tile: {} rows",
    "n": "output tile: {} columns",
    "k": "each step takes {} of K",
    "unroll": "the loop over K is unrolled twice",
    "stages": "pipeline stages in flight: {}",
    "store": "tile of one store: {}",
    "mma": "tensor-core instruction {}",
    "cluster": "cluster of {} blocks",
    "cc": "built for compute capability {}",
}
_WORDS: Final = {
    "schedP": "persistent blocks",
    "schedS": "one block for each tile",
    "dynBatch": "the sizes of the batches are known at run time only",
    "dsFp8": "block-scaled fp8",
    "swiGlu": "the activation SwiGLU is fused in",
    "transOut": "the result is stored transposed",
}


def decode(name: str) -> KernelName | None:
    """The record of a generated batched matrix product of TensorRT-LLM."""
    if not name.startswith(("bmm_", "gemm_")):
        return None
    match = _NAME.match(name)
    if match is None:
        return None
    fields = _fields(match)
    parts = explain(match, _MEANINGS) + explain_tokens(name, match.span("rest"), _WORDS.get)
    words = [word for word in match["rest"].split("_") if word.startswith("sch")]
    short = gemm_label(name.partition("_")[0], fields, match["unroll"], *words)
    return build(name, "trtllm-gen", short, parts, **fields)


def _fields(match: re.Match[str]) -> dict[str, Any]:
    return {
        "op": "gemm",
        **from_capability(match["cc"]),
        "dtype_a": _TYPES[match["a"]],
        "dtype_b": _TYPES[match["b"] or match["a"]],
        "dtype_acc": _TYPES[match["acc"]],
        "dtype_out": _TYPES[match["out"]],
        "tile_m": int(match["m"]),
        "tile_n": int(match["n"]),
        "tile_k": int(match["k"]),
        "mma": match["mma"],
        "stages": int(match["stages"]) if match["stages"] else None,
        "cluster": match["cluster"],
        "epilogue": "swiglu" if "_swiGlu" in match["rest"] else None,
    }
