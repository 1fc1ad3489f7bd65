"""The other kernels of ATen: softmax, normalization, indexing, sorting, concatenation, foreach.

Documented by pytorch/pytorch aten/src/ATen/native/cuda, whose kernels carry their C++ names, for
instance softmax_warp_forward<in, out, acc, log2_elements, ...> (PersistentSoftmax.cuh) and
multi_tensor_apply_kernel<TensorListMetadata<depth>, Functor, ...> (MultiTensorApply.cuh). Kernels
of Intel GPUs, ATen's in at::native::xpu and oneDNN's, follow pytorch's torch-xpu-ops; no public
trace of a real device was found to check them.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from fusetui.gpu.kernel_names.cxx import Signature, base_of, callee_text, signature, split_args
from fusetui.gpu.kernel_names.record import KernelName, Part, build, op_by, rules
from fusetui.gpu.kernel_names.vocabulary import cxx_type

_FREE_BASES = re.compile(
    r"cunn_\w+|softmax_warp_(?:forward|backward)|elementwise_kernel_with_index"
    r"|indexing_backward_kernel\w*"
)

_OPERATIONS: Final = rules(
    (r"softmax|SoftMax", "softmax"),
    (r"NLLCriterion|nll_loss|_loss_", "loss"),
    (r"CatArrayBatchedCopy", "copy"),
    (
        r"batch_norm|layer_norm|group_norm|LayerNorm|GroupNorm|GammaBetaBackward|RowwiseMoments",
        "norm",
    ),
    (r"Compute(?:Backward)?FusedParams|ComputeInternalGradients", "norm"),
    (r"dropout|distribution_", "rng"),
    (r"upsample_", "upsample"),
    (r"_pool_|_pool\dd_|max_pool|avg_pool|AdaptiveAvgPool|AdaptiveMaxPool", "pool"),
    (r"conv_depthwise", "conv"),
    (r"EmbeddingBag|embedding_", "embedding"),
    (
        r"SortKVInPlace|gatherTopK|computeBlockwiseWithinKCounts|sort_postprocess|segmented_sort",
        "sort",
    ),
    (r"_scan_|scan_(?:inner|outer)most", "scan"),
    (r"index(?:Select|Func|ing|_)|vectorized_gather|scatter_gather", "index"),
)
_NO_DIRECTION: Final = ("rng", "copy", "sort", "scan", "index", None)
_FORWARD = re.compile(
    r"[Ff]orward|updateOutput|collect_statistics|transform_input|_out_frame|vectorized_layer_norm"
)
_BACKWARD = re.compile(r"[Bb]ackward|updateGradInput|grad_input|InternalGradients|gradinput")
_WEIGHT = re.compile(r"grad_weight")
_XPU_FUNCTOR = re.compile(r"at::native::xpu::(\w+Functor\w*)")
_OPTIMIZERS = re.compile(r"Adam|Sgd|SGD|Adagrad|Lamb|LAMB")
# Functors whose struct name says nothing without the operator beside it stay out of the field.
_NAMED_FUNCTORS = re.compile(r"(?:Unary|Binary|Pointwise|Ternary)Op\w*Functor|Fused\w+Functor")


def decode(name: str) -> KernelName | None:
    """The record of any kernel of ATen that is neither an elementwise loop nor a reduction."""
    sign = signature(name)
    if sign is None or not _is_aten(name, sign):
        return None
    if sign.base == "multi_tensor_apply_kernel":
        return _decode_foreach(name, sign)
    op, direction = _meaning(sign.base)
    fields: dict[str, Any] = {"op": op, "pass_": direction, **_softmax_types(name, sign)}
    parts: list[Part] = [(sign.start, sign.end, f"a kernel of ATen: {op or 'a helper'}")]
    return build(
        name, "aten-other", callee_text(name, sign, _SHORTER.sub("", sign.base)), parts, **fields
    )


def _is_aten(name: str, sign: Signature) -> bool:
    scope = sign.scope
    if scope.startswith("at::"):
        return not scope.startswith("at::native::xpu::")
    return scope in ("", "(anonymous namespace)::") and bool(_FREE_BASES.fullmatch(sign.base))


@lru_cache(maxsize=512)
def _meaning(base: str) -> tuple[str | None, str | None]:
    op = op_by(_OPERATIONS, base)
    if op in _NO_DIRECTION:
        return op, None
    if op == "conv":
        way = "wgrad" if _WEIGHT.search(base) else "dgrad" if _BACKWARD.search(base) else "fprop"
        return op, way
    if _BACKWARD.search(base):
        return op, "bwd"
    return op, "fwd" if _FORWARD.search(base) else None


def _softmax_types(name: str, sign: Signature) -> dict[str, str | None]:
    """softmax_warp_forward<in, out, acc, ...>."""
    if sign.base != "softmax_warp_forward" or sign.args < 0 or sign.mangled:
        return {}
    spans, _ = split_args(name, sign.args, limit=3)
    types = [cxx_type(name[start:end]) for start, end in spans]
    return dict(zip(("dtype_a", "dtype_out", "dtype_acc"), types, strict=False))


def _decode_foreach(name: str, sign: Signature) -> KernelName:
    """Depth is the number of tensor lists; the functor says what is done to each element."""
    if sign.args < 0:
        return build(name, "aten-other", "foreach", [], op="foreach")
    spans, _ = split_args(name, sign.args, limit=4)
    texts = [name[start:end] for start, end in spans]
    functor = base_of(texts[1]) if len(texts) > 1 else None
    optimizer = functor is not None and _OPTIMIZERS.search(functor) is not None
    parts = [(sign.start, sign.end, "one launch for many tensors")]
    parts += [(*span, "what is done to each element") for span in spans[1:2]]
    return build(
        name,
        "aten-other",
        _foreach_short(texts, functor or "", optimizer),
        parts,
        op="optimizer" if optimizer else "foreach",
        functor=functor if functor and _NAMED_FUNCTORS.fullmatch(functor) else None,
    )


def _foreach_short(texts: list[str], functor: str, optimizer: bool) -> str:
    operators = (base_of(text) for text in texts[2:] if "::" in text or text[:1].isupper())
    words = ["optimizer" if optimizer else "foreach", functor.removesuffix("Functor")]
    words += [next((word for word in operators if word), "")]
    words += [_type_words(texts[1]) if len(texts) > 1 else ""]
    return " ".join(word for word in words if word)


_TYPE_ARG = re.compile(r"<([\w: ]+?(?:<\w+>)?)[,>]")


def _type_words(text: str) -> str:
    match = _TYPE_ARG.search(text)
    return (cxx_type(match[1]) or "") if match else ""


_SHORTER = re.compile(r"_?(?:CUDA)?[kK]ernel$|_out_frame$")


def decode_xpu(name: str) -> KernelName | None:
    """The record of a kernel of an Intel GPU."""
    if name == "gemm_kernel" or name.startswith("gen_conv"):
        return build(name, "xpu", f"onednn {name[:40]}", [(0, len(name), "a kernel of oneDNN")])
    sign = signature(name)
    if sign is None or not sign.scope.startswith("at::native::xpu::"):
        return None
    functor = _XPU_FUNCTOR.search(name, sign.end, sign.end + 200)
    op = "elementwise" if "ElementwiseKernel" in sign.base else None
    parts = [(sign.start, sign.end, "a kernel of ATen for Intel GPUs")]
    return build(name, "xpu", functor[1] if functor else sign.base, parts, op=op)
