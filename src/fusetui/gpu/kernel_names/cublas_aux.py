"""Small kernels of cuBLAS: matrix-vector products, the second pass of split-K, dot products.

Their base names and template arguments are plain C++; what each does was checked against the ops
that launched it.
"""

from __future__ import annotations

import re
from typing import Any, Final

from fusetui.gpu.kernel_names.callee import callee_text
from fusetui.gpu.kernel_names.cxx import Signature, signature
from fusetui.gpu.kernel_names.dtypes import layout_meaning
from fusetui.gpu.kernel_names.model import KernelName
from fusetui.gpu.kernel_names.parts import build

_GEMV = re.compile(r"gemv(?:\d[TN]|NSP|[TN])\w*_kernel\w*")
_SMALL_N = re.compile(r"gemmSN_(?P<layout>[NT]{2})_kernel\w*")
_GEMM = re.compile(r"(?:magma_[sdchz]gemm|[sdchz]gemm_largek_|gemmk1_kernel|gemmSN_)\w*")

_MEANINGS: Final = {
    "gemv": "a matrix times a vector",
    "gemm": "a matrix product of a special shape",
    "reduction": "a dot product or a sum",
    None: "a helper of cuBLAS",
}


def decode(name: str) -> KernelName | None:
    """The record of a small cuBLAS kernel."""
    sign = signature(name)
    if sign is None:
        return None
    fields = _fields(sign)
    if fields is None:
        if not _mentions_cublas(name, sign):
            return None
        fields = {}
    role = fields.get("role")
    text = "adds up the partial sums of a split K" if role else _MEANINGS[fields.get("op")]
    parts = [(sign.start, sign.end, text)]
    if "layout" in fields:
        span = (sign.start + len("gemmSN_"), sign.start + len("gemmSN_") + 2)
        parts = [(*span, layout_meaning(fields["layout"]))]
    return build(name, "cublas-aux", _short(name, sign, fields), parts, **fields)


def _fields(sign: Signature) -> dict[str, Any] | None:
    base = sign.base
    if base == "splitKreduce_kernel":
        return {"op": "reduction", "role": "splitk_reduce"}
    if _GEMV.fullmatch(base) or (base == "kernel" and sign.scope.endswith("gemvx::")):
        return {"op": "gemv"}
    match = _SMALL_N.fullmatch(base)
    if match is not None:
        return {"op": "gemm", "layout": match["layout"].lower()}
    if _GEMM.fullmatch(base):
        return {"op": "gemm"}
    sums = base in ("dot_kernel", "reduce_1Block_kernel") and sign.args > 0
    return {"op": "reduction"} if sums else None


def _mentions_cublas(name: str, sign: Signature) -> bool:
    """cuBLAS passes structures named after it to its kernels; wrappers of other libraries do
    not."""
    own = sign.scope in ("", "cublasLt::", "epilogue::impl::") and not sign.mangled
    return own and ("(cublas" in name or " cublas" in name or "<cublas" in name)


def _short(name: str, sign: Signature, fields: dict[str, Any]) -> str:
    word = "splitk-reduce" if fields.get("role") else sign.base.replace("_kernel", "")
    return callee_text(name, sign, "gemvx" if word == "kernel" else word)
