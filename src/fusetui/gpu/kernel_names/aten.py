"""ATen: its loops (elementwise kernels and reductions), and its other kernels: softmax,
normalization, indexing, sorting, concatenation, foreach.

Documented by pytorch/pytorch aten/src/ATen/native/cuda (CUDALoops.cuh, Loops.cuh,
Reduce.cuh; for instance PersistentSoftmax.cuh and MultiTensorApply.cuh), whose kernels
carry their C++ names:

    void at::native::vectorized_elementwise_kernel<4, Functor, ...>(...)
    void at::native::reduce_kernel<max_threads, output_vec,
        ReduceOp<scalar, ops, index, out, vt0[, input_vec]> >(...)

vectorized is contiguous with a vector width, unrolled contiguous but often with a type
cast, the plain elementwise_kernel strided. The functor is a named struct or a lambda
whose enclosing function is the operator; the numbers of nested lambdas mean nothing
outside the source file. Kernels of Intel GPUs, ATen's in at::native::xpu and oneDNN's,
follow pytorch's torch-xpu-ops; no public trace of a real device was found to check
them.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from fusetui.text.patterns import late

from .cxx import (
    SCOPE,
    Signature,
    argument_texts,
    base_of,
    callee_text,
    signature,
    split_args,
)
from .record import (
    KernelName,
    Meanings,
    build,
    dtype_words,
    explain,
    fields_of,
    op_by,
    spaced,
)
from .vocabulary import CXX_TYPE, cxx_type

_NUMBER = r"(?:\(\w+\))?"
_ELEMENTWISE = late(
    rf"(?:void )?at::native::{SCOPE}(?P<kernel>\w*elementwise_\w*kernel\w*)<"
    rf"(?:{_NUMBER}(?P<first>\d{{1,6}}), |(?:float|double), )?(?:{_NUMBER}(?P<second>\d{{1,6}}), )?"
    rf"(?:(?:void )?at::native::{SCOPE}"
    r"(?:gpu_kernel_impl\w*|type_specialized_\w+<\d{1,6}>::apply)<)?"
    rf"(?:void )?(?P<functor>{SCOPE}(?P<word>\w+))"
)
_OPERANDS = late(
    rf"<(?P<dtype_a>{CXX_TYPE}), (?P<dtype_b>{CXX_TYPE}), (?P<dtype_out>{CXX_TYPE}), "
)
_ONE_TYPE = late(rf"<({CXX_TYPE}) ?>")
_FIRST_TYPE = late(rf"<(?:(?:true|false), )?({CXX_TYPE})[,>]")
_LAMBDA_TYPES = late(rf"[{{\[]lambda\((?:bool, )?({CXX_TYPE})[,)]")
_ACCESSED = late(r"(\w+)<(?:(?:true|false), )?(?:at::native::)?OpaqueType<(\d{1,6})>")
_POINTER = late(rf"&\(?(?:void )?(?P<function>{SCOPE}(?P<word>\w+))")
_LAUNCHERS = ("gpu_kernel", "opmath_", "launch_", "legacy_")
"""Functions of ATen that apply the functor, which is their first template argument."""

_WITH_SCALAR: Final = {
    "AUnaryFunctor": "one operand is a scalar",
    "BUnaryFunctor": "one operand is a scalar",
    "BinaryFunctor": "two tensors",
}
_KINDS: Final = {
    "vectorized_elementwise_kernel": "contiguous tensors, read in vectors",
    "vectorized_templated_elementwise_kernel": "contiguous tensors of mixed types, in vectors",
    "unrolled_elementwise_kernel": "contiguous tensors, often with a cast of the type",
    "elementwise_kernel": "strided tensors",
    "elementwise_kernel_manual_unroll": "strided tensors",
}
_AFFIXES = late(
    r"^CUDAFunctor(?:OnSelf|OnOther)?_|_?(?:cuda_kernel|kernel_cuda|kernel_impl|CUDAKernelImpl"
    r"|KernelImplInternal|kernel|[fF]unctor|impl|cuda)$"
)
_HUMPS = late(r"(?<=[a-z])(?=[A-Z])")
_REDUCTION = late(
    r"(?:void )?at::native::(?P<kernel>reduce_kernel)<(?:\(\w+\))?(?P<threads>\d{1,6}), "
    rf"(?:\(\w+\))?(?P<vec>\d{{1,6}}), {SCOPE}(?P<reduce>ReduceOp)<"
)
_WRAPPED = late(rf"{SCOPE}func_wrapper_t<[\w:]+(?: char| int| long)?(?:<\w+>)?, ")
_ADDRESS = late(r"&(?=[\w(])")
_REDUCTION_MEANINGS: Final = {
    "kernel": "a reduction of ATen",
    "threads": "at most {} threads in a block",
    "vec": "{} outputs for each thread",
}
_ARGUMENTS = (
    "type of the input",
    "how values are combined",
    "type of an index",
    "type stored",
)


def decode_elementwise(name: str) -> KernelName | None:
    match = _ELEMENTWISE.match(name) if "elementwise_" in name[:100] else None
    if match is None:
        return None
    fields = _elementwise_fields(name, match)
    short = _elementwise_short(name, match, fields)
    vectorized = match["kernel"].startswith("vectorized")
    meanings: Meanings = {
        "kernel": lambda text: _KINDS.get(text, "an elementwise loop of ATen"),
        "first": f"{{}} {'elements in one vector load' if vectorized else 'threads'}",
        "second": "{} elements for each thread",
        "word": lambda text: _WITH_SCALAR.get(
            text, "what is computed for each element"
        ),
    }
    return build(name, "aten-elementwise", short, explain(match, meanings), **fields)


def _elementwise_fields(name: str, match: re.Match[str]) -> dict[str, Any]:
    kernel, end = match["kernel"], match.end()
    word: str = match["word"]
    functor: str | None = word
    fields: dict[str, Any] = {}
    if word.startswith("__nv_"):
        functor, end = _applied(name, match.start("functor"))
    if functor in _WITH_SCALAR:
        operands = _OPERANDS.match(name, end)
        # PyTorch 1.x wrote only the wrapped functor: BUnaryFunctor<AddFunctor<long> >.
        functor, end = _applied(name, operands.end() if operands else end + 1)
        fields = fields_of(operands, cxx_type) if operands else {}
    one_type = _ONE_TYPE.match(name, end)
    if one_type and not fields:
        fields["dtype"] = cxx_type(one_type[1])
    op = _operation(kernel, functor)
    if op in ("index", "rng"):
        return {"op": op}
    if kernel.startswith("vectorized") and match["first"]:
        fields["vec"] = int(match["first"])
    return {"op": op, "functor": functor, **fields}


def _applied(name: str, start: int) -> tuple[str | None, int]:
    """The functor at `start` and where its name ends; a wrapped lambda is named after
    the function that it is in, and if that only launches a kernel, after the functor
    that it was given."""
    if name.startswith("__nv_", start):
        if (pointer := _POINTER.search(name, start, start + 1500)) is None:
            return None, start
        start = pointer.start("function")
        if pointer["word"].startswith(_LAUNCHERS) and name.startswith(
            "<", pointer.end()
        ):
            start = pointer.end() + 1
    word = base_of(name, start)
    return word, name.find(word, start) + len(word) if word else start


def _operation(kernel: str, functor: str | None) -> str | None:
    """What the loop does. Pieces of a normalization are left open: the name does not
    say which."""
    if "index" in kernel or "scatter" in kernel:
        return "index"
    if kernel.startswith("distribution"):
        return "rng"
    low = (functor or "").lower().replace("_", "")
    if low.startswith(("batchnorm", "groupnorm", "layernorm")):
        return None
    copies = low.endswith("copykernelcuda") or functor == "copy_device_to_device"
    return "fill" if functor == "FillFunctor" else "copy" if copies else "elementwise"


@lru_cache(maxsize=1024)
def operation_word(functor: str) -> str:
    """The name of a functor without the affixes that every functor has.

    >>> operation_word("direct_copy_kernel_cuda"), operation_word("CUDAFunctor_add")
    ('direct_copy', 'add')
    """
    word = _AFFIXES.sub("", _AFFIXES.sub("", functor)) or functor
    return _HUMPS.sub("_", word).lower()


def _elementwise_short(name: str, match: re.Match[str], fields: dict[str, Any]) -> str:
    if fields.get("op") in ("index", "rng"):
        return _opaque_short(name, match, fields["op"])
    word = operation_word(fields.get("functor") or match["word"])
    dtype = fields.get("dtype") or dtype_words(
        fields.get("dtype_a"), fields.get("dtype_b"), fields.get("dtype_out")
    )
    if dtype is None and not match["word"].startswith("__nv_"):
        found = _LAMBDA_TYPES.search(name, match.end(), match.end() + 300)
        dtype = cxx_type(found[1]) if found else None
    if match["word"] == "AUnaryFunctor" or "FunctorOnOther" in match["word"]:
        word = f"scalar {word}"
    elif match["word"] == "BUnaryFunctor" or "FunctorOnSelf" in match["word"]:
        word = f"{word} scalar"
    return spaced(word, dtype, _access(name, match, fields))


def _opaque_short(name: str, match: re.Match[str], op: str) -> str:
    """Copies of opaque bytes name only the size of the type: `index_put 4B`."""
    if accessed := _ACCESSED.search(name, match.start("functor"), match.end() + 300):
        return f"{operation_word(accessed[1]).lstrip('_')} {accessed[2]}B"
    one_type = _FIRST_TYPE.match(name, match.end())
    dtype = cxx_type(one_type[1]) if one_type else None
    return f"{op} {operation_word(match['word']).lstrip('_')} {dtype or ''}".rstrip()


def _access(name: str, match: re.Match[str], fields: dict[str, Any]) -> str | None:
    if "vec" in fields:
        return f"x{fields['vec']}"
    if match["kernel"].startswith("unrolled"):
        return (
            "cast"
            if "LoadWithCast" in name[match.end() : match.end() + 600]
            else "unrolled"
        )
    if not match["kernel"].startswith("elementwise_kernel") or not match["second"]:
        return None
    more = " nocast" if "nocast" in match[0] else ""
    return f"strided {match['first']}x{match['second']}{more}"


def decode_reduction(name: str) -> KernelName | None:
    if (match := _REDUCTION.match(name)) is None:
        return None
    spans, _ = split_args(name, match.end(), limit=8)
    args = [name[slice(*span)] for span in spans]
    fields: dict[str, Any] = {"op": "reduction"}
    if len(args) >= 4:
        fields |= {"dtype_a": cxx_type(args[0]), "dtype_out": cxx_type(args[3])}
        fields["functor"] = _combined(args[1])
    word = operation_word((fields.get("functor") or "reduce").removesuffix("Ops"))
    dtype = dtype_words(fields.get("dtype_a"), None, fields.get("dtype_out"))
    each = f".{args[4]}" if len(args) > 4 and args[4].isdigit() else ""
    short = spaced("reduce", word, dtype, f"{match['threads']}x{match['vec']}{each}")
    parts = explain(match, _REDUCTION_MEANINGS)
    parts += [(*span, text) for span, text in zip(spans, _ARGUMENTS, strict=False)]
    return build(name, "aten-reduce", short, parts, **fields)


def _combined(text: str) -> str | None:
    """The operator: a struct, or what func_wrapper_t wraps (a struct, a lambda, an
    address)."""
    wrapped = _WRAPPED.match(text)
    start = wrapped.end() if wrapped else 0
    if text.startswith("__nv_hdl_wrapper", start):
        pointer = _ADDRESS.search(text, start)
        return base_of(text, pointer.end()) if pointer else None
    return base_of(text, start)


_FREE_BASES = late(
    r"cunn_\w+|softmax_warp_(?:forward|backward)|elementwise_kernel_with_index"
    r"|indexing_backward_kernel\w*"
)
_OPERATIONS: Final = {
    "softmax": r"softmax|SoftMax",
    "loss": r"NLLCriterion|nll_loss|_loss_",
    "copy": r"CatArrayBatchedCopy",
    "norm": r"batch_norm|layer_norm|group_norm|LayerNorm|GroupNorm|GammaBetaBackward|RowwiseMoments"
    r"|cuCompute(?:Part)?GradGammaBeta"
    r"|Compute(?:Backward)?FusedParams|ComputeInternalGradients",
    "rng": r"dropout|distribution_",
    "upsample": r"upsample_",
    "pool": r"_pool_|_pool\dd_|max_pool|avg_pool|average_pool|AdaptiveAvgPool|AdaptiveMaxPool",
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
# Functors whose struct name says nothing without the operator beside it stay out of the
# field.
_NAMED_FUNCTORS = late(
    r"(?:Unary|Binary|Pointwise|Ternary)Op\w*Functor|Fused\w+Functor"
)
_TYPE_ARGUMENT = late(r"<([\w: ]+?(?:<\w+>)?)[,>]")
_XPU_FUNCTOR = late(r"at::native::xpu::(\w+Functor\w*)")


def decode_other(name: str) -> KernelName | None:
    if (sign := signature(name)) is None:
        return None
    free = sign.scope in ("", "(anonymous namespace)::") and _FREE_BASES.fullmatch(
        sign.base
    )
    of_xpu = sign.scope.startswith("at::native::xpu::")
    if not free and (of_xpu or not sign.scope.startswith("at::")):
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


def _direction(op: str | None, base: str) -> str | None:
    if op in _NO_DIRECTION:
        return None
    backward = _BACKWARD.search(base) is not None
    if op == "conv":
        return "wgrad" if "grad_weight" in base else "dgrad" if backward else "fprop"
    return "bwd" if backward else "fwd" if _FORWARD.search(base) else None


def _decode_foreach(name: str, sign: Signature) -> KernelName:
    """Depth is the number of tensor lists; the functor says what is done to each
    element."""
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
        return build(
            name, "xpu", f"onednn {name[:40]}", [(0, len(name), "a kernel of oneDNN")]
        )
    if (sign := signature(name)) is None or not sign.scope.startswith(
        "at::native::xpu::"
    ):
        return None
    functor = _XPU_FUNCTOR.search(name, sign.end, sign.end + 200)
    op = "elementwise" if "ElementwiseKernel" in sign.base else None
    parts = [(sign.start, sign.end, "a kernel of ATen for Intel GPUs")]
    return build(name, "xpu", functor[1] if functor else sign.base, parts, op=op)
