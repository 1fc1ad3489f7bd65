"""The other kernels of ATen: softmax, normalization, indexing, sorting, concatenation, foreach.

Documented by pytorch/pytorch aten/src/ATen/native/cuda, whose kernels carry their C++ names, for
instance softmax_warp_forward<in, out, acc, log2_elements, ...> (PersistentSoftmax.cuh) and
multi_tensor_apply_kernel<TensorListMetadata<depth>, Functor, ...> (MultiTensorApply.cuh). Kernels
of Intel GPUs, ATen's in at::native::xpu and oneDNN's, follow pytorch's torch-xpu-ops; no public
trace of a real device was found to check them.
"""

from __future__ import annotations

from typing import Any, Final

from fusetui.text.patterns import late

from .cxx import Signature, argument_texts, base_of, callee_text, signature, split_args
from .record import KernelName, build, op_by, spaced
from .vocabulary import cxx_type

_FREE_BASES = late(
    r"cunn_\w+|softmax_warp_(?:forward|backward)|elementwise_kernel_with_index"
    r"|indexing_backward_kernel\w*"
)
_OPERATIONS: Final = {
    "softmax": r"softmax|SoftMax",
    "loss": r"NLLCriterion|nll_loss|_loss_",
    "copy": r"CatArrayBatchedCopy",
    "norm": r"batch_norm|layer_norm|group_norm|LayerNorm|GroupNorm|GammaBetaBackward|RowwiseMoments"
    r"|Compute(?:Backward)?FusedParams|ComputeInternalGradients",
    "rng": r"dropout|distribution_",
    "upsample": r"upsample_",
    "pool": r"_pool_|_pool\dd_|max_pool|avg_pool|AdaptiveAvgPool|AdaptiveMaxPool",
    "conv": r"conv_depthwise",
    "embedding": r"EmbeddingBag|embedding_",
    "sort": r"SortKVInPlace|gatherTopK|computeBlockwiseWithinKCounts|sort_postprocess"
    r"|segmented_sort",
    "scan": r"_scan_|scan_(?:inner|outer)most",
    "index": r"index(?:Select|Func|ing|_)|vectorized_gather|scatter_gather",
}
_NO_DIRECTION: Final = ("rng", "copy", "sort", "scan", "index", None)
_FORWARD = late(
    r"[Ff]orward|updateOutput|collect_statistics|transform_input|_out_frame|vectorized_layer_norm"
)
_BACKWARD = late(r"[Bb]ackward|updateGradInput|grad_input|InternalGradients|gradinput")
_SHORTER = late(r"_?(?:CUDA)?[kK]ernel$|_out_frame$")
_OPTIMIZERS = late(r"Adam|Sgd|SGD|Adagrad|Lamb|LAMB")
# Functors whose struct name says nothing without the operator beside it stay out of the field.
_NAMED_FUNCTORS = late(r"(?:Unary|Binary|Pointwise|Ternary)Op\w*Functor|Fused\w+Functor")
_TYPE_ARGUMENT = late(r"<([\w: ]+?(?:<\w+>)?)[,>]")
_XPU_FUNCTOR = late(r"at::native::xpu::(\w+Functor\w*)")


def decode(name: str) -> KernelName | None:
    """The record of any kernel of ATen that is neither an elementwise loop nor a reduction."""
    sign = signature(name)
    if sign is None or not _is_aten(sign):
        return None
    if sign.base == "multi_tensor_apply_kernel":
        return _decode_foreach(name, sign)
    op = op_by(_OPERATIONS, sign.base)
    fields: dict[str, Any] = {"op": op, "pass_": _direction(op, sign.base)}
    if sign.base == "softmax_warp_forward":
        types = map(cxx_type, argument_texts(name, sign, 3))
        fields |= zip(("dtype_a", "dtype_out", "dtype_acc"), types, strict=False)
    parts = [(sign.start, sign.end, f"a kernel of ATen: {op or 'a helper'}")]
    short = callee_text(name, sign, _SHORTER.sub("", sign.base))
    return build(name, "aten-other", short, parts, **fields)


def _is_aten(sign: Signature) -> bool:
    if sign.scope in ("", "(anonymous namespace)::"):
        return _FREE_BASES.fullmatch(sign.base) is not None
    return sign.scope.startswith("at::") and not sign.scope.startswith("at::native::xpu::")


def _direction(op: str | None, base: str) -> str | None:
    if op in _NO_DIRECTION:
        return None
    backward = _BACKWARD.search(base) is not None
    if op == "conv":
        return "wgrad" if "grad_weight" in base else "dgrad" if backward else "fprop"
    return "bwd" if backward else "fwd" if _FORWARD.search(base) else None


def _decode_foreach(name: str, sign: Signature) -> KernelName:
    """Depth is the number of tensor lists; the functor says what is done to each element."""
    if sign.args < 0:
        return build(name, "aten-other", "foreach", op="foreach")
    spans, _ = split_args(name, sign.args, limit=4)
    _, given, *rest = [*(name[slice(*span)] for span in spans), "", ""]
    functor, dtype = base_of(given) or "", _TYPE_ARGUMENT.search(given)
    operators = (base_of(text) for text in rest if "::" in text or text[:1].isupper())
    op = "optimizer" if _OPTIMIZERS.search(functor) else "foreach"
    short = spaced(
        op,
        functor.removesuffix("Functor"),
        next(filter(None, operators), None),
        cxx_type(dtype[1]) if dtype else None,
    )
    parts = [(sign.start, sign.end, "one launch for many tensors")]
    parts += [(*span, "what is done to each element") for span in spans[1:2]]
    known = functor if _NAMED_FUNCTORS.fullmatch(functor) else None
    return build(name, "aten-other", short, parts, op=op, functor=known)


def decode_xpu(name: str) -> KernelName | None:
    if name == "gemm_kernel" or name.startswith("gen_conv"):
        return build(name, "xpu", f"onednn {name[:40]}", [(0, len(name), "a kernel of oneDNN")])
    sign = signature(name)
    if sign is None or not sign.scope.startswith("at::native::xpu::"):
        return None
    functor = _XPU_FUNCTOR.search(name, sign.end, sign.end + 200)
    op = "elementwise" if "ElementwiseKernel" in sign.base else None
    parts = [(sign.start, sign.end, "a kernel of ATen for Intel GPUs")]
    return build(name, "xpu", functor[1] if functor else sign.base, parts, op=op)
