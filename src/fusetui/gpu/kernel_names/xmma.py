"""xmma kernels of cuBLAS and cuDNN: `sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x64x32_...`.

NVIDIA does not document the scheme. Tile and stages agree with the shared memory of real kernels,
`tensor16x8x16` with their machine code; the rest follows from patterns and says probably.

    sm{cc}_xmma_gemm_{A D types}_{mma types}_{epilogue type}_{ab}_{c}_tilesize{M}x{N}x{K}...
    sm{cc}_xmma_{fprop|dgrad|wgrad}_implicit_gemm..._{types}_{filter}_{tensor layout}_tilesize...
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from fusetui.text.patterns import late

from .record import KernelName, build, epilogue_of, explain, fields_of, gemm_label
from .vocabulary import CUTLASS, layout_meaning

_TYPES: Final = {**CUTLASS, "i8": "int8", "i32": "int32"}
_COMPLEX: Final = ("cbf16", "ctf32", "cf16", "cf32", "cf64")
_TYPE = "|".join(sorted((*_TYPES, *_COMPLEX), key=len, reverse=True))
_HEAD = late(r"sm(?P<cc>\d{2,3})_xmma_(?:gemm|(?P<pass>fprop|dgrad|wgrad)_implicit_gemm)(?=_)")
_NAME = late(
    _HEAD.pattern + r"(?P<variant>(?:_(?:indexed|wo_smem|gaussian))*)"
    rf"_(?P<ad>(?:{_TYPE})+)_(?P<mma>(?:{_TYPE})+)_(?P<epilogue>{_TYPE})"
    r"_(?P<ab>[a-z]+)_(?P<c>[a-z]+)_tilesize(?P<tile_m>\d{1,4})x(?P<tile_n>\d{1,4})x(?P<tile_k>\d{1,4})"
    r"(?P<rest>(?:_[A-Za-z0-9]+)*)"
)
_SPLIT_TYPES = late(_TYPE)
_SEARCHED: Final = {
    "stages": late(r"_stage(\d{1,3})(?=_|$)"),
    "mma": late(r"_tensor(\d{1,6}x\d{1,6}x\d{1,6})(?=_|$)"),
    "cluster": late(r"_cgasize(\d{1,6}x\d{1,6}x\d{1,6})(?=_|$)"),
}

_MEANINGS: Final = {
    "pass": "{}: fprop is forward, dgrad gives the gradient of the data, wgrad of the weight",
    "ad": "{}: the types of A (and B when it differs) and of the result",
    "mma": "{}: the types that are multiplied, then the type of the sums",
    "epilogue": "{}: probably the type of alpha and beta",
}


def decode(name: str) -> KernelName | None:
    """The record of an xmma matrix product or convolution, or of its split-K second pass."""
    if "_xmma_" not in name[:12]:
        return None
    match = _NAME.match(name)
    if match is None and (head := _HEAD.match(name)):
        op = "conv" if head["pass"] else "gemm"
        fields = {**fields_of(head), "pass_": head["pass"]}
        return build(name, "xmma", f"{op} sm{head['cc']} xmma", op=op, **fields)
    if match is None:
        return None
    fields = _fields(match)
    parts = explain(match, _MEANINGS, _rest_meaning)
    parts.append((*match.span("ab"), _layout_text(match)))
    segment = "_segment_k_on" in name
    words = ("segment-k" if segment else None, *match["variant"].replace("wo_smem", "").split("_"))
    word = ("reduce " if fields.get("role") else "") + (match["pass"] or "gemm")
    return build(name, "xmma", gemm_label(word, fields, *words), parts, **fields)


def _fields(match: re.Match[str]) -> dict[str, Any]:
    rest = match["rest"]
    found = {key: pattern.search(rest) for key, pattern in _SEARCHED.items()}
    texts: dict[str, Any] = {key: hit[1] for key, hit in found.items() if hit}
    second_pass = "_execute_split_k_kernel" in rest
    return {
        "op": "reduction" if second_pass else "conv" if match["pass"] else "gemm",
        "pass_": match["pass"],
        **fields_of(match),
        **_types(match),
        **texts,
        **({"stages": int(texts["stages"])} if "stages" in texts else {}),
        "layout": None if match["pass"] else match["ab"],
        "epilogue": epilogue_of(rest),
        **({"split_k": True, "role": "splitk_reduce"} if second_pass else {}),
    }


def _types(match: re.Match[str]) -> dict[str, str | None]:
    """Complex operands are left open; in separate planes, the accumulator is per plane."""
    stored = _SPLIT_TYPES.findall(match["ad"])
    multiplied = _SPLIT_TYPES.findall(match["mma"])
    if any(word in _COMPLEX for word in (*stored, *multiplied)):
        planar = "_planar_complex" in match["rest"]
        return {"dtype_acc": _TYPES.get(multiplied[-1])} if planar else {}
    if len(stored) < 2 or len(multiplied) < 2:
        return {}
    math = _TYPES[multiplied[0]]
    return {
        "dtype_a": _TYPES[stored[0]],
        "dtype_b": _TYPES[stored[-2]],
        "dtype_out": _TYPES[stored[-1]],
        "dtype_acc": _TYPES[multiplied[-1]],
        "math": math if math != _TYPES[stored[0]] else None,
    }


def _layout_text(match: re.Match[str]) -> str:
    if match["pass"]:
        return f"{match['ab']}, then {match['c']}: probably how filter and tensors are stored"
    known = match["ab"] if set(match["ab"]) <= set("ntch") and len(match["ab"]) > 1 else None
    return layout_meaning(known) if known else "layout of A and B"


_PREFIXES: Final = (
    ("stage", "pipeline stages in flight: {}"),
    ("tensor", "tensor-core instruction {}"),
    ("cgasize", "cluster of {} blocks"),
    ("warpgroupsize", "warp groups of a block: {}; Hopper's asynchronous tensor cores"),
    ("warpsize", "warps of a block: {}"),
    ("aligna", "probably loads of A are aligned to {} elements"),
    ("alignc", "probably stores of C are aligned to {} elements"),
)
_WORDS: Final = {
    "bias": "can add a bias when it stores",
    "relu": "can apply a ReLU when it stores",
    "gelu": "can apply a GELU when it stores",
    "dgelu": "probably can apply the gradient of GELU",
    "aux": "probably reads or writes a second tensor for the backward pass",
    "split": "split_k: the second pass, which adds up the partial sums; no multiplication",
    "segment": "segment_k: probably a stream-K-like mode, on or off",
    "ffma": "ordinary cores, no tensor cores",
    "strided": "for strides above 1",
}


@lru_cache(maxsize=1024)
def _rest_meaning(word: str) -> str | None:
    for prefix, text in _PREFIXES:
        if word.startswith(prefix) and word[len(prefix) :][:1].isdigit():
            return text.format(word[len(prefix) :])
    return _WORDS.get(word)
