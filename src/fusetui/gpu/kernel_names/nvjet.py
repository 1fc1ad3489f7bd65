"""nvjet kernels of cuBLAS (Hopper and later): `nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN`.

NVIDIA does not document the scheme; tile, stages, cluster and layout were checked against the grids
of real launches only for a few kernels, so every reading here is reverse-engineered.

    nvjet_[sm{cc}_]{types}_{M}x{N}_{K}x{stages}_{cx}x{cy}_[2cta_]{v|h}_{bz|badd}[_coopA|_coopB]
        [_bias][_splitK][...]_{ABC}
"""

from __future__ import annotations

import re
from typing import Any, Final

from fusetui.gpu.kernel_names import arch
from fusetui.gpu.kernel_names.model import KernelName
from fusetui.gpu.kernel_names.parts import build, explain, explain_tokens
from fusetui.gpu.kernel_names.text import gemm_label

_NAME = re.compile(
    r"nvjet_(?:sm(?P<cc>\d{2,3})_)?(?P<types>[a-z]{3}|[a-z]{5})_(?P<m>\d{1,4})x(?P<n>\d{1,4})"
    r"_(?P<k>\d{1,4})x(?P<stages>\d{1,3})_(?P<cluster>\d{1,6}x\d{1,6})"
    r"(?P<rest>(?:_[A-Za-z0-9]+)*)_(?P<layout>[NT]{3})"
)
_HEAD = re.compile(r"nvjet_sm(\d{2,3})_")
# o (fp4) and d (fp64) rest on patterns alone and settle nothing.
_LETTERS: Final = {"h": "fp16", "t": "bf16", "s": "fp32", "q": "fp8"}
_EPILOGUES: Final = frozenset({"bias", "relu", "gelu", "drelu", "dgelu", "aux", "bgrada", "bgradb"})
_MEANINGS: Final = {
    "cc": "built for compute capability {}",
    "types": "{}: types of A/B, sums, D or of A, B, C, sums, D (h fp16, t bf16, s fp32, q fp8)",
    "m": "output tile of one block: {} rows (cuBLAS counts by columns)",
    "n": "output tile of one block: {} columns",
    "k": "each pipeline stage holds {} of K",
    "stages": "pipeline stages in flight: {}",
    "cluster": "cluster of {} blocks",
    "layout": "{}: the transposes of A, B and C",
}
_WORDS: Final = {
    "2cta": "two blocks share one instruction",
    "v": "probably walks the tiles down the columns",
    "h": "probably walks the tiles along the rows",
    "bz": "probably beta is 0: C is not read",
    "badd": "probably C is added",
    "coopA": "probably two warp groups share a tile along A",
    "coopB": "probably two warp groups share a tile along B",
    "bias": "can add a bias when it stores",
    "splitK": "K is split over blocks; a splitKreduce_kernel follows",
}


def decode(name: str) -> KernelName | None:
    """The record of an nvjet matrix product."""
    if not name.startswith("nvjet_"):
        return None
    match = _NAME.fullmatch(name)
    if match is None:
        return _decode_head(name)
    fields = _fields(match)
    parts = explain(match, _MEANINGS) + explain_tokens(name, *match.span("rest"), _WORDS.get)
    words = [word for word in match["rest"].split("_") if word in ("2cta", "splitK", "badd")]
    short = gemm_label("gemm", fields, fields["cluster"], *words)
    return build(name, "nvjet", short, parts, **fields)


def _decode_head(name: str) -> KernelName:
    """Later libraries have other forms (`nvjet_sm121_tst_mma_128x128x64_3_...`): target only."""
    head = _HEAD.match(name)
    target = arch.from_capability(head[1] if head else None)
    parts = [(0, 5, "a matrix product of cuBLAS")]
    return build(name, "nvjet", name.removeprefix("nvjet_"), parts, op="gemm", **target)


def _fields(match: re.Match[str]) -> dict[str, Any]:
    words = match["rest"].split("_")
    return {
        "op": "gemm",
        **arch.from_capability(match["cc"]),
        **_types(match["types"]),
        "tile_m": int(match["m"]),
        "tile_n": int(match["n"]),
        "tile_k": int(match["k"]),
        "stages": int(match["stages"]),
        "cluster": match["cluster"],
        "layout": match["layout"][:2].lower(),
        "split_k": True if "splitK" in words else None,
        "epilogue": "_".join(word for word in words if word in _EPILOGUES) or None,
    }


def _types(letters: str) -> dict[str, str | None]:
    first, second = letters[0], letters[0 if len(letters) == 3 else 1]
    found = (first, second, letters[-2], letters[-1])
    keys = ("dtype_a", "dtype_b", "dtype_acc", "dtype_out")
    return {key: _LETTERS.get(letter) for key, letter in zip(keys, found, strict=True)}
