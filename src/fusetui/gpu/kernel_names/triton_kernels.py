"""Hand-written Triton kernels: the name is that of the Python function.

Some names say more by convention: `_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1_swiglu`
(triton-lang triton_kernels, make_matmul_repr) and AITER's
`..._BLOCK_SIZE_M_16_BLOCK_SIZE_N_64_...`. A plain function name does not distinguish Triton from
other Python compilers, so only the naming conventions of public Triton libraries count (Liger,
flash-linear-attention, triton_kernels, AITER, the attention and experts of vLLM and SGLang).
"""

from __future__ import annotations

import re
from typing import Any, Final

from fusetui.gpu.kernel_names.record import (
    KernelName,
    build,
    explain,
    gemm_label,
    op_by,
)

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_OGS_TYPE = r"(?:mx)?[a-wyz]+\d{1,6}(?:e\d[a-wyz0-9]*)?"
_OGS = re.compile(
    rf"_(?:p_)?matmul_ogs_(?P<layouts>[A-Z]{{3}})_(?P<out>{_OGS_TYPE})x(?P<a>{_OGS_TYPE})x"
    rf"(?P<b>{_OGS_TYPE})"
    r"_(?P<m>\d{1,4})x(?P<n>\d{1,4})x(?P<k>\d{1,4})x(?P<split>\d{1,4})(?:_(?P<epilogue>[a-z]\w*))?"
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
_BLOCKS: Final = tuple(re.compile(rf"BLOCK_SIZE_{axis}_(\d{{1,5}})(?=_|$)") for axis in "MNK")
# Liger and others mark the direction; the rest are prefixes and suffixes of one library each.
_HABITS = re.compile(
    "|".join(
        (
            r"_\w*(?:fwd|bwd|forward|backward)_kernel\w*",
            r"liger_\w+|_jsd_kernel|_kldiv_\w+|_fused_\w+|sage_\w+|triton_\w+",
            r"_attn_(?:fwd|bwd)\w*|attn_(?:fwd|bwd)\w*|kernel_unified_attention_\w+",
            r"_?matmul_kernel\w*|\w*_matmul|_(?:p_)?matmul_ogs\w*",
            r"(?:chunk|fused_recurrent|fused_chunk|recompute|prepare)_\w*(?:fwd|bwd)_kernel\w*",
            r"merge_\d{1,6}x\d{1,6}_to_\w+|_combined_routing\w*|_sum_bitmatrix\w*",
            r"_?per_token_(?:group_)?quant_\w+|(?:act|weight)_(?:de)?quant_kernel",
            r"awq_(?:gemm|dequantize)_kernel",
            r"fused_moe_kernel(?:_gptq_awq)?|_fwd_(?:grouped_)?kernel_stage[12]|_triton_rope",
            r"_topk_(?:forward|backward)\w*|\w+_kernel_triton|\w*BLOCK_SIZE_[MN]_\d{1,6}\w*",
        )
    )
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
_WITH_PASS: Final = ("attention", "elementwise", "norm")
_MEANINGS: Final = {
    "layouts": "layouts of the result, A and B",
    "out": "type of the result: {}",
    "a": "type of A: {}",
    "b": "type of B: {}",
    "m": "output tile: {} rows",
    "n": "output tile: {} columns",
    "k": "each step takes {} of K",
    "split": "K is split {} ways (1: not split)",
    "epilogue": "{}: fused into the store",
}


def decode(name: str) -> KernelName | None:
    """The record of a hand-written Triton kernel that follows a public library's convention."""
    if _IDENTIFIER.fullmatch(name) is None:
        return None
    match = _OGS.fullmatch(name)
    if match is not None:
        return _decode_ogs(name, match)
    if _HABITS.fullmatch(name) is None:
        return None
    return _decode_plain(name)


def _decode_ogs(name: str, match: re.Match[str]) -> KernelName:
    fields: dict[str, Any] = {
        "op": "gemm",
        "dtype_out": _OGS_TYPES.get(match["out"]),
        "dtype_a": _OGS_TYPES.get(match["a"]),
        "dtype_b": _OGS_TYPES.get(match["b"]),
        "tile_m": int(match["m"]),
        "tile_n": int(match["n"]),
        "tile_k": int(match["k"]),
        "split_k": int(match["split"]) if int(match["split"]) > 1 else None,
        "epilogue": match["epilogue"],
    }
    short = gemm_label("gemm", fields, "ogs", match["layouts"])
    return build(name, "triton", short, explain(match, _MEANINGS), **fields)


def _decode_plain(name: str) -> KernelName:
    stem = name.partition("_BLOCK_SIZE")[0].partition("_GROUP_")[0]
    op = op_by(_OPERATIONS, stem)
    fields: dict[str, Any] = {"op": op}
    sizes = [pattern.search(name) for pattern in _BLOCKS]
    if op == "gemm" and all(sizes):
        tile = [int(size[1]) for size in sizes if size]
        fields |= dict(zip(("tile_m", "tile_n", "tile_k"), tile, strict=True))
    if op in _WITH_PASS:
        fields["pass_"] = _direction(stem)
    parts = [(*size.span(1), "tile size of one block") for size in sizes if size]
    short = gemm_label("gemm", fields, stem.strip("_")) if parts else stem.strip("_")
    return build(name, "triton", short, parts or [(0, len(stem), "a Triton function")], **fields)


def _direction(stem: str) -> str | None:
    if "fwd" in stem or "forward" in stem:
        return "fwd"
    return "bwd" if "bwd" in stem or "backward" in stem else None
