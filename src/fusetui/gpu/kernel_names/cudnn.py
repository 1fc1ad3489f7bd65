"""cuDNN kernels: convolutions, normalization, attention and layout copies.

Names of hand-tuned convolutions are the twins of cuBLAS's (cublas.py):
`cudnn_infer_volta_scudnn_128x64_relu_small_nn_v1`. NVIDIA does not document them. cuDNN also
bundles CUTLASS 2.x convolutions in namespaces of its own (cutlass.py).
"""

from __future__ import annotations

import re
from typing import Any, Final

from fusetui.gpu.kernel_names import cutlass
from fusetui.gpu.kernel_names.cxx import SCOPE, Signature, callee_text, signature, split_args
from fusetui.gpu.kernel_names.record import KernelName, build, explain, explain_tokens, gemm_label
from fusetui.gpu.kernel_names.vocabulary import (
    GENERATION,
    MMA_SHAPES,
    cxx_type,
    from_capability,
    from_word,
)

_TUNED = re.compile(
    rf"(?:_5x_cudnn_|cudnn_(?:infer_|train_)?)?(?P<arch>{GENERATION})_"
    r"(?:(?P<out>fp16|bf16|int8|fp32)_)?(?P<acc>[shid])(?P<mma>\d{1,6})?cudnn"
    r"(?:_(?P<a>fp16|bf16|int8))?(?P<mid>(?:_[A-Za-z]\w*?)?)_(?P<m>\d{1,4})x(?P<n>\d{1,4})"
    r"(?P<rest>(?:_[A-Za-z0-9]+)*)"
)
_SDPA = re.compile(
    r"cudnn_generated_\w*?sdpa_sm(?P<cc>\d{2,3})_flash_(?P<pass>fprop|bprop)(?P<rest>\w*)"
)
_IMPLICIT = re.compile(
    r"(?P<arch>Volta|Turing|Ampere)_\w{1,12}_implicit_gemm_(?P<pass>fprop|dgrad|wgrad)_\w+"
)
_CLUSTER = re.compile(r"_cga(?P<cluster>\d{1,6}x\d{1,6}x\d{1,6})")
_CUTLASS = re.compile(rf"(?:void )?cutlass_\w*cudnn\w*::(?:Kernel2?|device_kernel)<{SCOPE}")
_IN_CUTLASS: Final = (
    (re.compile(r"::conv::|ImplicitGemm"), "conv"),
    (re.compile(r"::gemm::|[Gg]emm"), "gemm"),
)
_MEANINGS: Final = {
    "arch": "built for the {} generation",
    "acc": "{}: the type of the sums (s fp32, h fp16)",
    "m": "output tile of one block: {} rows",
    "n": "output tile of one block: {} columns",
}
_WORDS: Final = {
    "relu": "probably can apply a ReLU when it stores",
    "winograd": "the Winograd algorithm: fewer multiplications for small filters",
    "splitK": "the sum is split over blocks",
    "stridedB": "probably reads the second operand with strides",
}

# What the base name of a C++ kernel says: (a piece of it, op, pass).
_OPERATIONS: Final = (
    ("bn_fw", "norm", "fwd"),
    ("bn_bw", "norm", "bwd"),
    ("ToNhwcKernel", "copy", None),
    ("ToNchwKernel", "copy", None),
    ("wgrad_alg", "conv", "wgrad"),
    ("wgrad2d_", "conv", "wgrad"),
    ("dgrad_alg", "conv", "dgrad"),
    ("dgrad_engine", "conv", "dgrad"),
    ("dgrad2d_", "conv", "dgrad"),
    ("convolve_sgemm", "conv", None),
    ("conv2d_grouped_direct", "conv", "fprop"),
    ("pooling_fw", "pool", "fwd"),
    ("pooling_bw", "pool", "bwd"),
    ("softmax_fw", "softmax", "fwd"),
    ("softmax_bw", "softmax", "bwd"),
)
_OWN_BASES: Final = (
    "fft2d_",
    "nchwTo",
    "nhwcTo",
    "wgrad_alg",
    "wgrad2d_",
    "dgrad",
    "bn_fw",
    "bn_bw",
)


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
    fields = {"op": "conv", "pass_": match["pass"], "arch_name": match["arch"]}
    parts = explain(match, {"arch": _MEANINGS["arch"], "pass": "{}: the pass"})
    return build(name, "cudnn", name.replace("_implicit_gemm", ""), parts, **fields)


def _decode_tuned(name: str) -> KernelName | None:
    match = _TUNED.fullmatch(name)
    if match is None:
        return None
    fields = _tuned_fields(match)
    parts = explain(match, _MEANINGS)
    for group in ("mid", "rest"):
        parts += explain_tokens(name, match.span(group), _WORDS.get)
    words = [word for word in match["rest"].split("_") if word in _VARIANTS]
    return build(name, "cudnn", gemm_label("conv", fields, fields["algo"], *words), parts, **fields)


_VARIANTS: Final = frozenset(
    {"splitK", "stridedB", "small", "medium", "large", "interior", "xregs", "nhwc"}
)


def _tuned_fields(match: re.Match[str]) -> dict[str, Any]:
    words = {*match["mid"].split("_"), *match["rest"].split("_")}
    plain = match["acc"] == "s" and not (match["out"] or match["a"] or match["mma"])
    return {
        "op": "conv",
        **from_word(match["arch"]),
        "mma": MMA_SHAPES.get(match["mma"] or ""),
        "tile_m": int(match["m"]),
        "tile_n": int(match["n"]),
        "dtype_a": "fp32" if plain else None,
        "dtype_acc": "fp32" if plain else None,
        "algo": "winograd" if "winograd" in words else None,
        "split_k": True if "splitK" in words else None,
        "epilogue": "relu" if "relu" in words else None,
    }


def _decode_attention(name: str) -> KernelName | None:
    match = _SDPA.fullmatch(name)
    if match is None:
        return None
    cluster = _CLUSTER.search(match["rest"])
    direction = "fwd" if match["pass"] == "fprop" else "bwd"
    parts = explain(match, {"cc": "built for compute capability {}", "pass": "{}: the pass"})
    fields = {"pass_": direction, "cluster": cluster["cluster"] if cluster else None}
    short = f"attention {direction} cudnn sm{match['cc']} {match['rest'].rpartition('knob_')[2]}"
    return build(
        name, "cudnn", short, parts, op="attention", **from_capability(match["cc"]), **fields
    )


def _decode_cutlass(name: str) -> KernelName | None:
    match = _CUTLASS.match(name)
    if match is None:
        return None
    found = cutlass.decode2_at(name, match.end(), "cudnn")
    if found is not None:
        return found
    if "ReduceSplitK<" in name[match.end() : match.end() + 80]:
        fields = {"op": "reduction", "role": "splitk_reduce"}
        return build(name, "cudnn", "splitk-reduce of conv", [], **fields)
    head = name[match.start() : match.end() + 160]
    op = next((op for pattern, op in _IN_CUTLASS if pattern.search(head)), None)
    return build(name, "cudnn", f"cudnn {name[match.end() :][:40]}", [], op=op)


def _decode_cxx(name: str) -> KernelName | None:
    sign = signature(name)
    if sign is None:
        return None
    inside = sign.scope.startswith(("cudnn::", "cask_", "cudnn_", "cutlass_cudnn", "cutlass__5x"))
    if not inside and not (sign.base.startswith(_OWN_BASES) or "convolve_sgemm" in sign.base):
        return None
    op, direction = _operation(sign.base)
    if sign.mangled and "ImplicitGemmConvolution" in name[:160]:
        op = "conv"
    fields: dict[str, Any] = {"op": op, "pass_": direction}
    if "winograd" in sign.scope.lower() or "winograd" in sign.base.lower():
        fields |= {"op": "conv", "algo": "winograd"}
    if fields["op"] == "conv":
        fields["dtype_a"] = _first_type(name, sign)
    parts = [(sign.start, sign.end, "a kernel of cuDNN")]
    short = callee_text(name, sign, sign.base.replace("_kernel", "").removesuffix("Kernel"))
    return build(name, "cudnn", short, parts, **fields)


def _first_type(name: str, sign: Signature) -> str | None:
    """The element type that an engine multiplies, its first template argument:
    `dgrad_engine<float, 512, ...>`."""
    if sign.args < 0 or sign.mangled:
        return None
    spans, _ = split_args(name, sign.args, limit=1)
    return cxx_type(name[slice(*spans[0])]) if spans else None


def _operation(base: str) -> tuple[str | None, str | None]:
    return next(((op, way) for piece, op, way in _OPERATIONS if piece in base), (None, None))
