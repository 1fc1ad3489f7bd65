"""CUTLASS 3.x kernels by their procedural name:
`cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_void_bf16_128x128x64_1x1x1_0_tnn_align8_...`.

Documented by NVIDIA/cutlass python/cutlass_library/gemm_operation.py (extended_name_3x) and
media/docs/cpp/profiler.md. bias, relu, gelu, aux, scalemax, epiVs16n are additions of cuBLAS.

    cutlass3x_sm{cc}_{class}_{acc}{mma}gemm_[block_scaled_]{A}_{B}_{acc}_{C}_{D}_{M}x{N}x{K}
        [_{cluster}]_{stages}_{ABC}_align{n}{suffixes}
"""

from __future__ import annotations

import re
from typing import Any, Final

from fusetui.gpu.kernel_names.record import KernelName, build, explain, explain_tokens, gemm_label
from fusetui.gpu.kernel_names.vocabulary import CUTLASS, MMA_SHAPES, from_capability, layout_meaning

_TYPE = r"[a-z][a-z0-9]*"
_HEAD = re.compile(r"cutlass3x_sm(?P<cc>\d{2,3})[af]?_(?P<class>[a-z]+)_(?P<rest>\w+)")
_NAME = re.compile(
    r"cutlass3x_sm(?P<cc>\d{2,3})[af]?_(?P<class>[a-z]+)_(?P<acc>[shdicz](?=\d|gemm))?"
    r"(?P<mma>\d{1,4}x\d{1,4}x\d{1,4}|\d{1,6})?(?:_?(?P<math>\d?x?[a-z]{1,8}\d{0,3}))??"
    r"gemm_(?P<scaled>block_scaled_)?"
    rf"(?P<a>{_TYPE})_(?P<b>{_TYPE})_(?P<sum>{_TYPE})_(?P<c>{_TYPE})_(?P<d>{_TYPE})"
    r"_(?P<m>\d{1,4})x(?P<n>\d{1,4})x(?P<k>\d{1,4})(?:_(?P<cluster>\d{1,6}x\d{1,6}x\d{1,6}))?"
    r"_(?P<stages>\d{1,3})_(?P<layout>[ntch]{2})[ntch]_align(?P<align>\d{1,3})(?P<rest>\w*)"
)
_EPILOGUES: Final = frozenset(
    {"bias", "relu", "gelu", "drelu", "dgelu", "aux", "scalemax", "bgrada", "bgradb"}
)
_MEANINGS: Final = {
    "cc": "needs compute capability {}",
    "class": "{}: which units multiply (tensorop: tensor cores, bs: block scaled, simt: ordinary)",
    "acc": "{}: the type of the sums (s fp32, h fp16, d fp64, i int32, c complex)",
    "mma": "tensor-core instruction {}",
    "math": "{}: the arithmetic, when the operands are converted on the way in",
    "scaled": "each block of the operands has its own scale",
    "a": "type of A: {}",
    "b": "type of B: {}",
    "sum": "type of the sums: {}",
    "c": "type of the added C: {}",
    "d": "type of the result: {}",
    "m": "output tile: {} rows",
    "n": "output tile: {} columns",
    "k": "each step takes {} of K",
    "cluster": "cluster of {} blocks",
    "align": "operands are aligned to {} elements",
}
_WORDS: Final = {
    "1sm": "one SM computes a tile",
    "2sm": "a pair of SMs shares one instruction: each holds half of its rows",
    "pingpong": "two warp groups take turns: one multiplies while the other stores",
    "cooperative": "two warp groups share one tile",
    "stream": "stream_k: the work is split evenly over the SMs, also along K",
    "ptr": "ptr_array: the operands come as arrays of pointers",
    "bias": "can add a bias when it stores",
    "relu": "can apply a ReLU when it stores",
    "gelu": "can apply a GELU when it stores",
    "aux": "probably stores a second tensor for the backward pass",
    "scalemax": "probably also records the largest value, for scaling",
}


def decode(name: str) -> KernelName | None:
    """The record of a procedural CUTLASS 3.x name."""
    if not name.startswith("cutlass3x_"):
        return None
    match = _NAME.fullmatch(name)
    if match is None:
        return _decode_head(name)
    fields = _fields(match)
    parts = explain(match, _MEANINGS) + explain_tokens(name, match.span("rest"), _WORDS.get)
    parts += [
        (*match.span("layout"), layout_meaning(match["layout"])),
        (*match.span("stages"), _stages_text(match["stages"])),
    ]
    more = [word for word in match["rest"].split("_") if word in ("1sm", "2sm", "pingpong")]
    more += ["stream-k"] if fields["stream_k"] else []
    short = gemm_label("gemm", {**fields, "epilogue": None}, *more, fields["epilogue"])
    return build(name, "cutlass3", short, parts, **fields)


def _decode_head(name: str) -> KernelName | None:
    match = _HEAD.fullmatch(name)
    if match is None or "gemm" not in match["rest"]:
        return None
    fields = from_capability(match["cc"])
    short = f"gemm sm{match['cc']} {match['rest']}"
    return build(
        name, "cutlass3", short, explain(match, {"cc": _MEANINGS["cc"]}), op="gemm", **fields
    )


def _fields(match: re.Match[str]) -> dict[str, Any]:
    words = match["rest"].split("_")
    mma = match["mma"] or ""
    return {
        "op": "gemm",
        **from_capability(match["cc"]),
        **_types(match),
        "math": CUTLASS.get(match["math"] or ""),
        "mma": mma if "x" in mma else MMA_SHAPES.get(mma),
        "tile_m": int(match["m"]),
        "tile_n": int(match["n"]),
        "tile_k": int(match["k"]),
        "cluster": match["cluster"],
        "stages": int(match["stages"]) or None,
        "layout": match["layout"],
        "align": int(match["align"]),
        "epilogue": "_".join(word for word in words if word in _EPILOGUES) or None,
        "stream_k": True if "_stream_k" in match["rest"] else None,
    }


def _types(match: re.Match[str]) -> dict[str, str | None]:
    """A scale type precedes its element type: ue8m0xe4m3. Complex types are left open."""
    found = {key: match[group].rpartition("x")[2] for key, group in _TYPE_GROUPS.items()}
    return {key: CUTLASS.get(word) for key, word in found.items()}


_TYPE_GROUPS: Final = {"dtype_a": "a", "dtype_b": "b", "dtype_acc": "sum", "dtype_out": "d"}


def _stages_text(stages: str) -> str:
    if stages == "0":
        return "the number of pipeline stages is chosen automatically"
    return f"pipeline stages in flight: {stages}"
