"""cuDNN kernels: convolutions, normalization, attention and layout copies.

Names of hand-tuned convolutions are the twins of cuBLAS's (cublas.py):
`cudnn_infer_volta_scudnn_128x64_relu_small_nn_v1`. NVIDIA does not document them. cuDNN also
bundles CUTLASS 2.x convolutions in namespaces of its own (cutlass.py).
"""

from __future__ import annotations

import re
from typing import Any, Final

from fusetui.text.patterns import late

from . import cutlass
from .cxx import SCOPE, argument_texts, callee_text, signature
from .record import KernelName, build, explain, explain_tokens, fields_of, gemm_label, op_by
from .vocabulary import GENERATION, MMA_SHAPES, cxx_type, from_word, named

_TUNED = late(
    rf"(?:_5x_cudnn_|cudnn_(?:infer_|train_)?)?(?P<arch>{GENERATION})_"
    r"(?:(?P<out>fp16|bf16|int8|fp32)_)?(?P<acc>[shid])(?P<mma>\d{1,6})?cudnn"
    r"(?:_(?P<a>fp16|bf16|int8))?(?P<mid>(?:_[A-Za-z]\w*?)?)_(?P<tile_m>\d{1,4})"
    r"x(?P<tile_n>\d{1,4})(?P<rest>(?:_[A-Za-z0-9]+)*)"
)
_SDPA = late(r"cudnn_generated_\w*?sdpa_sm(?P<cc>\d{2,3})_flash_(?P<pass>fprop|bprop)(?P<rest>\w*)")
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
_VARIANTS: Final = named("splitK stridedB small medium large interior xregs nhwc")

# What the base name of a C++ kernel says: a piece of it, op and pass.
_OPERATIONS: Final = named(
    """bn_fw=norm.fwd bn_bw=norm.bwd ToNhwcKernel=copy ToNchwKernel=copy wgrad_alg=conv.wgrad
    wgrad2d_=conv.wgrad dgrad_alg=conv.dgrad dgrad_engine=conv.dgrad dgrad2d_=conv.dgrad
    convolve_sgemm=conv conv2d_grouped_direct=conv.fprop pooling_fw=pool.fwd pooling_bw=pool.bwd
    softmax_fw=softmax.fwd softmax_bw=softmax.bwd"""
)
_SCOPES: Final = ("cudnn::", "cask_", "cudnn_", "cutlass_cudnn", "cutlass__5x")
_BASES: Final = tuple(named("fft2d_ nchwTo nhwcTo wgrad_alg wgrad2d_ dgrad bn_fw bn_bw"))


def decode(name: str) -> KernelName | None:
    """The record of a cuDNN kernel that is not an xmma one."""
    if "cudnn" in name[:40]:
        found = _decode_tuned(name) or _decode_attention(name) or _decode_cutlass(name)
        if found is not None:
            return found
    return _decode_cxx(name) or _decode_implicit(name)


def _decode_implicit(name: str) -> KernelName | None:
    """cuDNN 7: `Volta_hmma_implicit_gemm_fprop_fp32_nhwc_128x128x64x1_1x3x3x0x1`."""
    match = _IMPLICIT.fullmatch(name)
    if match is None:
        return None
    short, parts = name.replace("_implicit_gemm", ""), explain(match, {**_MEANINGS, **_PASS})
    fields = {"op": "conv", "pass_": match["pass"], "arch_name": match["arch"]}
    return build(name, "cudnn", short, parts, **fields)


def _decode_tuned(name: str) -> KernelName | None:
    match = _TUNED.fullmatch(name)
    if match is None:
        return None
    words = [*match["mid"].split("_"), *match["rest"].split("_")]
    plain = match["acc"] == "s" and not (match["out"] or match["a"] or match["mma"])
    algo = "winograd" if "winograd" in words else None
    fields: dict[str, Any] = {
        "op": "conv",
        **from_word(match["arch"]),
        "mma": MMA_SHAPES.get(match["mma"] or ""),
        **fields_of(match),
        **({"dtype_a": "fp32", "dtype_acc": "fp32"} if plain else {}),
        "algo": algo,
        "split_k": True if "splitK" in words else None,
        "epilogue": "relu" if "relu" in words else None,
    }
    parts = explain(match, _MEANINGS, _WORDS.get)
    parts += explain_tokens(name, match.span("mid"), _WORDS.get)
    shown = [word for word in match["rest"].split("_") if word in _VARIANTS]
    return build(name, "cudnn", gemm_label("conv", fields, algo, *shown), parts, **fields)


def _decode_attention(name: str) -> KernelName | None:
    match = _SDPA.fullmatch(name)
    if match is None:
        return None
    cluster = re.search(r"_cga(\d{1,6}x\d{1,6}x\d{1,6})", match["rest"])
    fields: dict[str, Any] = {
        "op": "attention",
        "pass_": "fwd" if match["pass"] == "fprop" else "bwd",
        "cluster": cluster[1] if cluster else None,
        **fields_of(match),
    }
    tail = match["rest"].rpartition("knob_")[2]
    short = f"attention {fields['pass_']} cudnn sm{match['cc']} {tail}"
    return build(name, "cudnn", short, explain(match, _PASS), **fields)


def _decode_cutlass(name: str) -> KernelName | None:
    match = _CUTLASS.match(name)
    if match is None:
        return None
    found = cutlass.decode2_at(name, match.end(), "cudnn")
    if found is not None:
        return found
    if "ReduceSplitK<" in name[match.end() : match.end() + 80]:
        short = "splitk-reduce of conv"
        return build(name, "cudnn", short, op="reduction", role="splitk_reduce")
    op = op_by(_IN_CUTLASS, name[match.start() : match.end() + 160])
    return build(name, "cudnn", f"cudnn {name[match.end() :][:40]}", op=op)


def _decode_cxx(name: str) -> KernelName | None:
    sign = signature(name)
    if sign is None:
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
    if fields["op"] == "conv":  # what an engine multiplies: `dgrad_engine<float, 512, ...>`
        fields["dtype_a"] = next(map(cxx_type, argument_texts(name, sign, 1)), None)
    parts = [(sign.start, sign.end, "a kernel of cuDNN")]
    short = callee_text(name, sign, base.replace("_kernel", "").removesuffix("Kernel"))
    return build(name, "cudnn", short, parts, **fields)
