"""cuBLAS hand-tuned kernels: `ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn`.

NVIDIA does not document the scheme (NVIDIA/TensorRT-LLM issue 1541). Tile, stages, instruction and
operand types agree with the machine code and the shared memory of real kernels; `stages_64x3` is
explained in an NVIDIA developer forum thread (297449). What rests on patterns alone says probably.

    {arch}_[{out}_]{acc}{mma}gemm[_{in}]_{M}x{N}[_sliced{a}x{b}][_ldg{n}][_relu][_f2f]
        [_stages_{K}x{S}][_lower|_upper]_{AB}[_v1]
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from fusetui.gpu.kernel_names import arch
from fusetui.gpu.kernel_names.dtypes import (
    ACCUMULATORS,
    CUBLAS_WORDS,
    MMA_SHAPES,
    accumulator_meaning,
    layout_meaning,
    mma_meaning,
)
from fusetui.gpu.kernel_names.model import KernelName
from fusetui.gpu.kernel_names.parts import build, explain, explain_tokens
from fusetui.gpu.kernel_names.text import gemm_label

_TYPE = "|".join(CUBLAS_WORDS)
_NAME = re.compile(
    rf"(?:trt_)?(?P<arch>{arch.WORD_PATTERN})_(?:(?P<out>{_TYPE})_)?"
    rf"(?P<acc>g[cz]|[shdicz])(?P<mma>\d{{1,6}})?gemm(?:_(?P<a>{_TYPE}))?"
    r"_(?P<m>\d{1,4})x(?P<n>\d{1,4})(?P<rest>(?:_[a-z0-9]+)*)_(?P<layout>[ntch]{2})(?:_v\d{1,6})?"
)
_STAGES = re.compile(r"_stages_(?P<k>\d{1,4})x(?P<stages>\d{1,3})(?:_|$)")

_MEANINGS: Final = {
    "arch": "built for the {} generation",
    "out": "the result is stored as {}",
    "a": "A and B are {}",
    "m": "output tile of one block: {} rows of C (cuBLAS counts by columns)",
    "n": "output tile of one block: {} columns of C",
}
_VARIANTS: Final = ("lower", "upper", "sliced")
_WORDS: Final = {
    "relu": "can apply a ReLU when it stores; plain matrix products run it too",
    "f2f": "probably converts the sums to the output type when it stores",
    "stages": "a software pipeline: the slice of K of one stage x the number of stages",
    "lower": "probably writes the lower triangle only",
    "upper": "probably writes the upper triangle only",
}


def decode(name: str) -> KernelName | None:
    """The record of a hand-tuned cuBLAS kernel name."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    fields = _fields(match)
    parts = explain(match, _MEANINGS) + explain_tokens(name, *match.span("rest"), _rest_meaning)
    parts += [
        (*match.span("acc"), accumulator_meaning(match["acc"])),
        (*match.span("mma"), mma_meaning(match["mma"] or "")),
        (*match.span("layout"), layout_meaning(match["layout"])),
    ]
    extra = [word for word in match["rest"].split("_") if word.startswith(_VARIANTS)]
    word = "gemm3m" if match["acc"][0] == "g" else "gemm"
    return build(name, "cublas-legacy", gemm_label(word, fields, *extra), parts, **fields)


def _fields(match: re.Match[str]) -> dict[str, Any]:
    stages = _STAGES.search(match["rest"])
    return {
        "op": "gemm",
        **arch.from_word(match["arch"]),
        **_types(match),
        "mma": MMA_SHAPES.get(match["mma"] or ""),
        "tile_m": int(match["m"]),
        "tile_n": int(match["n"]),
        "tile_k": int(stages["k"]) if stages else None,
        "stages": int(stages["stages"]) if stages else None,
        "layout": match["layout"],
        "epilogue": "relu" if "_relu" in match["rest"] else None,
    }


def _types(match: re.Match[str]) -> dict[str, str | None]:
    """The name gives the input type, or the accumulator implies it; s with an MMA does not."""
    acc = ACCUMULATORS[match["acc"]]
    given = CUBLAS_WORDS.get(match["a"] or "")
    real = acc[0] != "c"
    operand = given if real else (None if given else acc)
    if real and given is None and (acc in ("fp16", "fp64") or (acc == "fp32" and not match["mma"])):
        operand = acc
    out = CUBLAS_WORDS.get(match["out"] or "") or (None if acc == "int32" else acc)
    return {"dtype_a": operand, "dtype_b": operand, "dtype_acc": acc, "dtype_out": out}


@lru_cache(maxsize=1024)
def _rest_meaning(word: str) -> str | None:
    if word.startswith("ldg"):
        return f"probably loads {word[3:]} elements at a time from memory"
    if word.startswith("sliced"):
        return "probably splits K between the warps of a block as well"
    if "x" in word[1:-1]:
        depth, _, stages = word.partition("x")
        return f"each stage holds {depth} of K; {stages} stages in flight"
    return _WORDS.get(word)
