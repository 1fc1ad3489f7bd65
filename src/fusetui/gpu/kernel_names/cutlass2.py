"""CUTLASS 2.x kernels: `cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_32x1_tn_align8`.

Documented by the generator: NVIDIA/cutlass python/cutlass_library/gemm_operation.py,
conv2d_operation.py and the name tables in library.py. The names stand alone or inside
`void cutlass::Kernel2<X>(X::Params)`. relu, gelu, dgelu, drelu, bgrada, bgradb and forwardCompat
are additions of cuBLAS.

    cutlass_[{cc}_]{class}_[{C}_]{acc}{mma}[{math}]gemm[_{epilogue}][_{A}]_{M}x{N}[_{K}x{stages}]
        _{layout}_align{n}
    cutlass_{class}_[{C}_]{acc}{mma}{fprop|dgrad|wgrad}_{variant}[_{A}]_{M}x{N}_{K}x{stages}
        _{nhwc|...}[_unity_stride]_align{n}
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from fusetui.gpu.kernel_names.cxx import SCOPE
from fusetui.gpu.kernel_names.record import KernelName, build, explain, explain_tokens, gemm_label
from fusetui.gpu.kernel_names.vocabulary import (
    ACCUMULATORS,
    CUTLASS,
    MMA_SHAPES,
    accumulator_meaning,
    from_capability,
    layout_meaning,
    mma_meaning,
)

_TYPE = "|".join(sorted(CUTLASS, key=len, reverse=True))
_WRAPPER = re.compile(rf"(?:void )?(?:{SCOPE}cutlass::Kernel2?<)?{SCOPE}(?=cutlass_)")
_BODY = re.compile(
    r"cutlass_(?:(?P<cc>\d{2,3})_)?(?P<class>wmma_tensorop|s?p?tensorop|simt)_"
    rf"(?:(?P<c>{_TYPE})_)?(?P<acc>g[cz]|[shdicz])?(?P<mma>\d{{1,6}})?"
    rf"(?P<math>tf32|bf16|f16|fastaccum|xor|and)?"
    r"(?P<kind>gemm|fprop|dgrad|wgrad)(?P<mid>(?:_[A-Za-z0-9]+)*?)"
    r"_(?P<m>\d{1,4})x(?P<n>\d{1,4})(?:_(?P<k>\d{1,4})x(?P<stages>\d{1,3}))?"
    r"_(?P<layout>[ntch]{2}|n?[a-z0-9]*hw[a-z0-9]*)(?P<stride>_unity_stride)?_align(?P<align>\d{1,3})"
)
_EPILOGUES: Final = frozenset({"relu", "gelu", "drelu", "dgelu", "bgrada", "bgradb", "bias"})

_MEANINGS: Final = {
    "cc": "built for sm_{}; later devices run it too",
    "c": "the result is stored as {}",
    "math": "the operands are converted to {} on the way into the multiplication",
    "m": "output tile of one block: {} rows",
    "n": "output tile of one block: {} columns",
    "k": "each pipeline stage holds {} of K",
    "stages": "pipeline stages in flight: {}",
    "stride": "only for stride 1",
    "align": "operands are aligned to {} elements",
}
_CLASSES: Final = {
    "simt": "ordinary cores multiply",
    "tensorop": "tensor cores multiply",
    "wmma_tensorop": "tensor cores multiply, through the wmma interface",
    "sptensorop": "tensor cores multiply a sparse matrix",
}
_KINDS: Final = {
    "gemm": "a matrix product",
    "fprop": "the forward pass of a convolution",
    "dgrad": "a convolution's gradient of the data",
    "wgrad": "a convolution's gradient of the weight",
}
_WORDS: Final = {
    "forwardCompat": "probably the variant that later generations may run",
    "planar": "complex numbers with real and imaginary parts in planes of their own",
    "bgrada": "probably also sums the gradient of the bias over A",
    "bgradb": "probably also sums the gradient of the bias over B",
    "dgelu": "probably can apply the gradient of GELU when it stores",
    "drelu": "probably can apply the gradient of ReLU when it stores",
    "gelu": "can apply a GELU when it stores",
    "relu": "can apply a ReLU when it stores; plain matrix products run it too",
    "analytic": "computes each address: any convolution",
    "optimized": "steps through memory with precomputed offsets",
}


def decode(name: str) -> KernelName | None:
    """The record of a CUTLASS 2.x kernel, bare or inside cutlass::Kernel or Kernel2."""
    wrapper = _WRAPPER.match(name)
    return decode_at(name, wrapper.end(), "cutlass2") if wrapper else None


def decode_at(name: str, start: int, family: str) -> KernelName | None:
    """The record of the procedural name at `start`; cuDNN wraps such names in its namespaces."""
    match = _BODY.match(name, start)
    if match is None:
        return None
    fields = _fields(match)
    parts = explain(match, _MEANINGS) + explain_tokens(name, match.span("mid"), _mid_meaning)
    parts += [
        (*match.span("class"), _CLASSES.get(match["class"], "which units multiply")),
        (*match.span("acc"), accumulator_meaning(match["acc"]) if match["acc"] else ""),
        (*match.span("mma"), mma_meaning(match["mma"] or "")),
        (*match.span("kind"), _KINDS[match["kind"]]),
        (*match.span("layout"), _layout_text(match)),
    ]
    words = [match["mid"].split("_")[1] if match["kind"] != "gemm" and match["mid"] else None]
    words += [None if not fields["align"] else f"a{fields['align']}"]
    words += [word for word in ("wmma", "simt") if match["class"].startswith(word)]
    words += ["planar" if "_planar" in match["mid"] else None]
    short = gemm_label(fields.get("pass_") or "gemm", fields, *words)
    return build(name, family, short, parts, **fields)


def _fields(match: re.Match[str]) -> dict[str, Any]:
    gemm = match["kind"] == "gemm"
    epilogue = [word for word in match["mid"].split("_") if word in _EPILOGUES]
    return {
        "op": "gemm" if gemm else "conv",
        **({} if gemm else {"pass_": match["kind"]}),
        **from_capability(match["cc"]),
        **_types(match),
        "mma": MMA_SHAPES.get(match["mma"] or ""),
        "tile_m": int(match["m"]),
        "tile_n": int(match["n"]),
        "tile_k": int(match["k"]) if match["k"] else None,
        "stages": int(match["stages"]) if match["stages"] else None,
        "layout": match["layout"],
        "align": int(match["align"]),
        "epilogue": "_".join(epilogue) or None,
    }


def _types(match: re.Match[str]) -> dict[str, str | None]:
    """C and A are printed only if they differ from the accumulator; planar types are per plane."""
    if match["acc"] is None or "_planar" in match["mid"]:
        return {}
    acc = ACCUMULATORS[match["acc"]]
    given = [CUTLASS[word] for word in match["mid"].split("_") if word in CUTLASS]
    math = _math(match, given)
    operand = given[0] if given else _implied_operand(match, acc)
    return {
        "dtype_a": operand,
        "dtype_b": given[1] if len(given) > 1 else operand,
        "dtype_acc": acc,
        "dtype_out": CUTLASS.get(match["c"] or "", acc),
        "math": math,
    }


def _implied_operand(match: re.Match[str], acc: str) -> str | None:
    """Tensor cores do not multiply fp32 or int32: without a type only TF32 data is certain."""
    fp32_data = match["mma"] in (None, "1688") or match["math"]
    return None if acc == "int32" or (acc == "fp32" and not fp32_data) else acc


def _math(match: re.Match[str], given: list[str]) -> str | None:
    """1688 with fp32 accumulation and no operand type is TF32 arithmetic on fp32 data."""
    if match["math"]:
        return CUTLASS.get(match["math"])
    plain = match["acc"] == "s" and match["mma"] == "1688" and not given
    return "tf32" if plain and match["kind"] == "gemm" else None


@lru_cache(maxsize=1024)
def _mid_meaning(word: str) -> str | None:
    return f"A and B are {CUTLASS[word]}" if word in CUTLASS else _WORDS.get(word)


def _layout_text(match: re.Match[str]) -> str:
    if match["kind"] == "gemm":
        return layout_meaning(match["layout"])
    return f"the tensors are stored as {match['layout']}"
