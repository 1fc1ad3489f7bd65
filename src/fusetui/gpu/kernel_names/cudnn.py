"""cuDNN kernels (convolutions, normalization, attention, layout copies), and xmma ones
of it and of cuBLAS: `sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x64x32_...`.

Names of hand-tuned convolutions are the twins of cuBLAS's (cublas.py):
`cudnn_infer_volta_scudnn_128x64_relu_small_nn_v1`. NVIDIA does not document them. cuDNN
also bundles CUTLASS 2.x convolutions in namespaces of its own (cutlass.py).

Nor is the scheme of xmma documented. Tile and stages agree with the shared memory of
real kernels, `tensor16x8x16` with their machine code; the rest follows from patterns
and says probably.

    sm{cc}_xmma_gemm_{A D types}_{mma types}_{epilogue
    type}_{ab}_{c}_tilesize{M}x{N}x{K}...
    sm{cc}_xmma_{fprop|dgrad|wgrad}_implicit_gemm..._{types}_{filter}_{tensor
    layout}_tilesize...
"""

from __future__ import annotations

import re
from typing import Any, Final

from fusetui.text.patterns import late

from . import cutlass
from .cxx import SCOPE, argument_texts, callee_text, signature
from .record import (
    KernelName,
    build,
    epilogue_of,
    explain,
    fields_of,
    gemm_label,
    op_by,
)
from .vocabulary import CUTLASS, GENERATION, cxx_type, layout_meaning

_TYPES: Final = {**CUTLASS, "i8": "int8", "i32": "int32"}
_COMPLEX: Final = ("cbf16", "ctf32", "cf16", "cf32", "cf64")
_XMMA_TYPE = "|".join(sorted((*_TYPES, *_COMPLEX), key=len, reverse=True))
_XMMA_HEAD = late(
    r"sm(?P<cc>\d{2,3})_xmma_(?:gemm|(?P<pass>fprop|dgrad|wgrad)_implicit_gemm)(?=_)"
)
_XMMA = late(
    _XMMA_HEAD.pattern + r"(?P<variant>(?:_(?:indexed|wo_smem|gaussian))*)"
    rf"_(?P<ad>(?:{_XMMA_TYPE})+)_(?P<multiplied>(?:{_XMMA_TYPE})+)_(?P<epilogue>{_XMMA_TYPE})"
    r"_(?P<ab>[a-z]+)_(?P<c>[a-z]+)_tilesize(?P<tile_m>\d{1,4})x(?P<tile_n>\d{1,4})x(?P<tile_k>\d{1,4})"
    r"(?P<rest>(?:_[A-Za-z0-9]+)*)"
)
_SPLIT_TYPES = late(_XMMA_TYPE)
_SEARCHED: Final = (
    late(r"_stage(?P<stages>\d{1,3})(?=_|$)"),
    late(r"_tensor(?P<mma>\d{1,6}x\d{1,6}x\d{1,6})(?=_|$)"),
    late(r"_cgasize(?P<cluster>\d{1,6}x\d{1,6}x\d{1,6})(?=_|$)"),
)

_XMMA_MEANINGS: Final = {
    "pass": "{}: fprop is forward, dgrad gives the gradient of the data, wgrad of the weight",
    "ad": "{}: the types of A (and B when it differs) and of the result",
    "multiplied": "{}: the types that are multiplied, then the type of the sums",
    "epilogue": "{}: probably the type of alpha and beta",
}


def decode_xmma(name: str) -> KernelName | None:
    match = _XMMA.match(name)
    if match is None and (head := _XMMA_HEAD.match(name)):
        op = "conv" if head["pass"] else "gemm"
        fields = {**fields_of(head), "pass_": head["pass"]}
        return build(name, "xmma", f"{op} sm{head['cc']} xmma", op=op, **fields)
    if match is None:
        return None
    fields = _xmma_fields(match)
    parts = explain(match, _XMMA_MEANINGS, _rest_meaning)
    parts.append((*match.span("ab"), _layout_text(match)))
    segment = "_segment_k_on" in name
    words = (
        "segment-k" if segment else None,
        *match["variant"].replace("wo_smem", "").split("_"),
    )
    word = ("reduce " if fields.get("role") else "") + (match["pass"] or "gemm")
    return build(name, "xmma", gemm_label(word, fields, *words), parts, **fields)


def _xmma_fields(match: re.Match[str]) -> dict[str, Any]:
    rest = match["rest"]
    second_pass = "_execute_split_k_kernel" in rest
    fields = {
        "op": "reduction" if second_pass else "conv" if match["pass"] else "gemm",
        "pass_": match["pass"],
        **fields_of(match),
        **_xmma_types(match),
        "layout": None if match["pass"] else match["ab"],
        "epilogue": epilogue_of(rest),
        **({"split_k": True, "role": "splitk_reduce"} if second_pass else {}),
    }
    for hit in filter(None, (pattern.search(rest) for pattern in _SEARCHED)):
        fields |= fields_of(hit)
    return fields


def _xmma_types(match: re.Match[str]) -> dict[str, str | None]:
    """Complex operands are left open; in separate planes, the accumulator is per
    plane."""
    stored = _SPLIT_TYPES.findall(match["ad"])
    multiplied = _SPLIT_TYPES.findall(match["multiplied"])
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
    known = (
        match["ab"]
        if set(match["ab"]) <= set("ntch") and len(match["ab"]) > 1
        else None
    )
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
_XMMA_WORDS: Final = {
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


def _rest_meaning(word: str) -> str | None:
    for prefix, text in _PREFIXES:
        if word.startswith(prefix) and word[len(prefix) :][:1].isdigit():
            return text.format(word[len(prefix) :])
    return _XMMA_WORDS.get(word)


_TUNED = late(
    rf"(?:_5x_cudnn_|cudnn_(?:infer_|train_)?)?(?P<arch>{GENERATION})_"
    r"(?:(?P<out>fp16|bf16|int8|fp32)_)?(?P<acc>[shid])(?P<mma>\d{1,6})?cudnn"
    r"(?:_(?P<a>fp16|bf16|int8))?(?P<mid>(?:_[A-Za-z]\w*?)?)_(?P<tile_m>\d{1,4})"
    r"x(?P<tile_n>\d{1,4})(?P<rest>(?:_[A-Za-z0-9]+)*)"
)
_SDPA = late(
    r"cudnn_generated_\w*?sdpa_sm(?P<cc>\d{2,3})_flash_(?P<pass>fprop|bprop)(?P<rest>\w*)"
)
# cuDNN 7: `Volta_hmma_implicit_gemm_fprop_fp32_nhwc_128x128x64x1_1x3x3x0x1`.
_IMPLICIT = late(
    r"(?P<arch>Volta|Turing|Ampere)_\w{1,12}_implicit_gemm_(?P<pass>fprop|dgrad|wgrad)_\w+"
)
_CUTLASS = late(rf"(?:void )?cutlass_\w*cudnn\w*::(?:Kernel2?|device_kernel)<{SCOPE}")
_IN_CUTLASS: Final = {"conv": r"::conv::|ImplicitGemm", "gemm": r"::gemm::|[Gg]emm"}
_MEANINGS: Final = {
    "arch": "built for the {} generation",
    "acc": "{}: the type of the sums (s fp32, h fp16)",
}
_PASS: Final = {"pass": "{}: the pass"}
_WORDS: Final = {
    "relu": "probably can apply a ReLU when it stores",
    "winograd": "the Winograd algorithm: fewer multiplications for small filters",
    "splitK": "the sum is split over blocks",
    "stridedB": "probably reads the second operand with strides",
}
_VARIANTS: Final = frozenset(
    {
        "splitK",
        "stridedB",
        "small",
        "medium",
        "large",
        "interior",
        "xregs",
        "nhwc",
    }
)

# What the base name of a C++ kernel says: a piece of it, op and pass.
_OPERATIONS: Final = {
    "bn_fw": "norm.fwd",
    "bn_bw": "norm.bwd",
    "ToNhwcKernel": "copy",
    "ToNchwKernel": "copy",
    "wgrad_alg": "conv.wgrad",
    "wgrad2d_": "conv.wgrad",
    "dgrad_alg": "conv.dgrad",
    "dgrad_engine": "conv.dgrad",
    "dgrad2d_": "conv.dgrad",
    "fft2d_": "conv",
    "im2col4d_": "copy",
    "flip_filter": "copy",
    "scalePackedTensor_": "elementwise",
    "convolve_sgemm": "conv",
    "conv2d_grouped_direct": "conv.fprop",
    "pooling_fw": "pool.fwd",
    "pooling_bw": "pool.bwd",
    "softmax_fw": "softmax.fwd",
    "softmax_bw": "softmax.bwd",
}
_SCOPES: Final = ("cudnn::", "cask_", "cudnn_", "cutlass_cudnn", "cutlass__5x")
_BASES: Final = (
    "fft2d_",
    "im2col4d_",
    "flip_filter",
    "nchwTo",
    "nhwcTo",
    "wgrad_alg",
    "wgrad2d_",
    "dgrad",
    "bn_fw",
    "bn_bw",
)


def decode(name: str) -> KernelName | None:
    if "cudnn" in name[:40]:
        if match := _TUNED.fullmatch(name):
            return _tuned(name, match)
        if match := _SDPA.fullmatch(name):
            return _attention(name, match)
        if match := _CUTLASS.match(name):
            return _in_cutlass(name, match)
    elif match := _IMPLICIT.fullmatch(name):
        short, parts = (
            name.replace("_implicit_gemm", ""),
            explain(match, {**_MEANINGS, **_PASS}),
        )
        fields = {"op": "conv", "pass_": match["pass"], "arch_name": match["arch"]}
        return build(name, "cudnn", short, parts, **fields)
    return _decode_cxx(name)


def _tuned(name: str, match: re.Match[str]) -> KernelName:
    words = [*match["mid"].split("_"), *match["rest"].split("_")]
    plain = match["acc"] == "s" and not (match["out"] or match["a"] or match["mma"])
    algo = "winograd" if "winograd" in words else None
    fields: dict[str, Any] = {
        "op": "conv",
        **fields_of(match),
        **({"dtype_a": "fp32", "dtype_acc": "fp32"} if plain else {}),
        "algo": algo,
        "split_k": True if "splitK" in words else None,
        "epilogue": "relu" if "relu" in words else None,
    }
    parts = explain(match, _MEANINGS, _WORDS.get)
    shown = [word for word in match["rest"].split("_") if word in _VARIANTS]
    return build(
        name, "cudnn", gemm_label("conv", fields, algo, *shown), parts, **fields
    )


def _attention(name: str, match: re.Match[str]) -> KernelName:
    cluster = re.search(r"_cga(\d{1,6}x\d{1,6}x\d{1,6})", match["rest"])
    way, tail = (
        "fwd" if match["pass"] == "fprop" else "bwd",
        match["rest"].rpartition("knob_")[2],
    )
    fields = {"op": "attention", "pass_": way, **fields_of(match)}
    fields["cluster"] = cluster[1] if cluster else None
    short = f"attention {way} cudnn sm{match['cc']} {tail}"
    return build(name, "cudnn", short, explain(match, _PASS), **fields)


def _in_cutlass(name: str, match: re.Match[str]) -> KernelName:
    if found := cutlass.decode2_at(name, match.end(), "cudnn"):
        return found
    if "ReduceSplitK<" in name[match.end() : match.end() + 80]:
        return build(
            name, "cudnn", "splitk-reduce of conv", op="reduction", role="splitk_reduce"
        )
    op = op_by(_IN_CUTLASS, name[match.start() : match.end() + 160])
    return build(name, "cudnn", f"cudnn {name[match.end() :][:40]}", op=op)


def _decode_cxx(name: str) -> KernelName | None:
    if (sign := signature(name)) is None:
        return None
    base = sign.base
    own = base.startswith(_BASES) or "convolve_sgemm" in base
    if not own and not sign.scope.startswith(_SCOPES):
        return None
    meaning = next((what for piece, what in _OPERATIONS.items() if piece in base), "")
    op, _, direction = meaning.partition(".")
    fields: dict[str, Any] = {"op": op or None, "pass_": direction or None}
    if sign.mangled and "ImplicitGemmConvolution" in name[:160]:
        fields["op"] = "conv"
    if "winograd" in (sign.scope + base).lower():
        fields |= {"op": "conv", "algo": "winograd"}
    # a transform of the FFT convolution, from or to frequencies
    if base.startswith("fft2d_"):
        fields["algo"] = "fft"
    # what an engine multiplies: `dgrad_engine<float, 512, ...>`
    if fields["op"] == "conv":
        fields["dtype_a"] = next(map(cxx_type, argument_texts(name, sign, 1)), None)
    short = callee_text(name, sign, base.replace("_kernel", "").removesuffix("Kernel"))
    return build(
        name, "cudnn", short, [(sign.start, sign.end, "a kernel of cuDNN")], **fields
    )
