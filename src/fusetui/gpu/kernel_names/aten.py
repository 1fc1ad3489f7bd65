"""ATen kernels: its loops (elementwise kernels and reductions), softmax, normalization,
indexing, sorting, concatenation and foreach.

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
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from fusetui.text.patterns import compiled, lazy_pattern

from .cxx import (
    SCOPE,
    Signature,
    callee_text,
    element_type,
    read_arguments,
    read_base_name,
    signature,
    split_args,
)
from .record import (
    KernelName,
    Meanings,
    Part,
    build,
    dtype_words,
    explain,
    explain_group,
    fields_of,
    find_first_op,
    spaced,
)
from .vocabulary import CXX_TYPE, cxx_type

_NUMBER = r"(?:\(\w+\))?"
_ELEMENTWISE = lazy_pattern(
    rf"(?:void )?at::native::{SCOPE}(?P<kernel>\w*elementwise_\w*kernel\w*)<"
    rf"(?:{_NUMBER}(?P<first>\d{{1,6}}), |(?:float|double), )?(?:{_NUMBER}(?P<second>\d{{1,6}}), )?"
    rf"(?:(?:void )?at::native::{SCOPE}"
    r"(?:gpu_kernel_impl\w*|type_specialized_\w+<\d{1,6}>::apply)<)?"
    rf"(?:void )?(?P<functor>{SCOPE}(?P<word>\w+))"
)
_OPERANDS = lazy_pattern(
    rf"<(?P<dtype_a>{CXX_TYPE}), (?P<dtype_b>{CXX_TYPE}), (?P<dtype_out>{CXX_TYPE}), "
)
_ONE_TYPE = lazy_pattern(rf"<({CXX_TYPE}) ?>")
_FIRST_TYPE = lazy_pattern(rf"<(?:(?:true|false), )?({CXX_TYPE})[,>]")
_LAMBDA = lazy_pattern(r"[{\[]lambda\(([\w:<>, ]+)\)")
_FUNCTION_TYPE = lazy_pattern(r", [\w:<>]+ \(([\w:<>, ]+)\)(?=[,>])")
_COPIED_BYTES = lazy_pattern(
    r"(?P<function>\w+)<(?:(?:true|false), )?(?:at::native::)?OpaqueType<(?P<bytes>\d{1,6})>"
)
_POINTER = lazy_pattern(rf"&\(?(?:void )?(?P<function>{SCOPE}(?P<word>\w+))")
_LAUNCHERS = ("gpu_kernel", "opmath_", "launch_", "legacy_")
"""Functions of ATen that apply the functor, which is their first template argument."""

_EACH_ELEMENT: Final = "what is computed for each element"
_OPERAND_MEANINGS: Final = {
    "dtype_a": "type of the first operand",
    "dtype_b": "type of the second operand",
    "dtype_out": "type of the result",
}

_BINARY_FUNCTORS: Final = {
    "AUnaryFunctor": "one operand is a scalar",
    "BUnaryFunctor": "one operand is a scalar",
    "BinaryFunctor": "two tensors",
}
"""Wrappers of the functor of a binary operator, and what it is given."""

_LOOPS: Final = {
    "vectorized_elementwise_kernel": "contiguous tensors, read in vectors",
    "vectorized_templated_elementwise_kernel": "contiguous tensors of mixed types, in vectors",
    "unrolled_elementwise_kernel": "contiguous tensors, often with a cast of the type",
    "elementwise_kernel": "strided tensors",
    "elementwise_kernel_manual_unroll": "strided tensors",
}
"""What each elementwise loop is for."""

_LOOP_OVER_INDICES: Final = "elementwise_kernel_with_index"

_AFFIXES = lazy_pattern(
    r"^CUDAFunctor(?:OnSelf|OnOther)?_|_?(?:cuda_kernel|kernel_cuda|kernel_impl|CUDAKernelImpl"
    r"|KernelImplInternal|kernel|[fF]unctor|impl|cuda)$"
)
_HUMPS = lazy_pattern(r"(?<=[a-z])(?=[A-Z])")
_REDUCTION = lazy_pattern(
    r"(?:void )?at::native::(?P<kernel>reduce_kernel)<(?:\(\w+\))?(?P<threads>\d{1,6}), "
    rf"(?:\(\w+\))?(?P<vec>\d{{1,6}}), {SCOPE}(?P<reduce>ReduceOp)<"
)
_WRAPPED = lazy_pattern(
    rf"{SCOPE}func_wrapper_t<[\w:]+(?: char| int| long)?(?:<\w+>)?, "
)
_ADDRESS = lazy_pattern(r"&(?=[\w(])")
_REDUCTION_MEANINGS: Final = {
    "kernel": "a reduction of ATen",
    "threads": "at most {} threads in a block",
    "vec": "{} outputs for each thread",
}
_REDUCE_OP_ARGUMENTS = (
    "type of the input",
    "how values are combined",
    "type of an index",
    "type stored",
    "values that a thread reads before it combines them",
    "elements in one vector load",
)
"""The template arguments of ReduceOp; older releases lack the last ones."""

_MIN_REDUCE_OP_ARGUMENTS: Final = 4

_VALUES_PER_READ: Final = 4
"""The index of the values that a thread reads among the arguments of ReduceOp."""

_MAX_FUNCTOR_CHARACTERS: Final = 1500
"""From a wrapped lambda to the function that it is in."""


def decode_elementwise(name: str) -> KernelName | None:
    """Decode the name of an elementwise loop of ATen.

    Such a name begins like `void at::native::vectorized_elementwise_kernel<4, ...`.
    Returns None for any other name, also for loops over indices, which
    `decode_other` handles.
    """
    if "elementwise_" not in name[:100]:  # searching is faster than matching
        return None

    match = _ELEMENTWISE.match(name)
    if match is None or match["kernel"] == _LOOP_OVER_INDICES:
        return None

    fields = _read_elementwise_fields(name, match)
    parts = explain(match, _meanings_of_loop(match["kernel"]))
    if match["word"] in _BINARY_FUNCTORS:
        parts += _explain_binary_functor(name, match.end(), fields.get("functor"))
    else:
        one_type = _ONE_TYPE.match(name, match.end())
        if one_type:
            parts.append(explain_group(one_type, 1, "type of an element"))

    short = _compose_elementwise_short(name, match, fields)
    return build(name, "aten-elementwise", short, parts, **fields)


def _meanings_of_loop(loop: str) -> Meanings:
    """Return the meanings of the groups of `_ELEMENTWISE`.

    Args:
        loop: The name of the loop. It decides what its first number is.
    """
    is_vectorized = loop.startswith("vectorized")
    return {
        "kernel": _LOOPS.get(loop, "an elementwise loop of ATen"),
        "first": "{} elements in one vector load" if is_vectorized else "{} threads",
        "second": "{} elements for each thread",
        "word": lambda functor: _BINARY_FUNCTORS.get(functor, _EACH_ELEMENT),
    }


def _explain_binary_functor(name: str, start: int, operator: str | None) -> list[Part]:
    """Explain the template arguments of the functor of a binary operator.

    These are the types of its operands and the operator itself.

    Args:
        name: The full name of the kernel.
        start: The index at which the arguments begin.
        operator: The name of the operator; None if it is not known.

    Returns:
        The explained parts. Empty if the types cannot be read.
    """
    operands = _OPERANDS.match(name, start)
    if operands is None or operator is None:
        return []

    parts = explain(operands, _OPERAND_MEANINGS)
    operator_start = name.find(operator, operands.end())
    is_found = operator_start >= 0
    if is_found:
        operator_end = operator_start + len(operator)
        parts.append((operator_start, operator_end, _EACH_ELEMENT))
    return parts


def _read_elementwise_fields(name: str, match: re.Match[str]) -> dict[str, Any]:
    """Determine the fields of an elementwise loop.

    Returns:
        `op`, what the loop does, and `functor`, what it computes. The functor of a
        binary operator adds `dtype_a`, `dtype_b` and `dtype_out`, any other adds a
        single `dtype`. A vectorized loop adds `vec`. If the loop copies opaque bytes
        or draws random numbers, only `op` is returned: its functor says nothing.
    """
    functor = _Functor(match["word"], match.end())
    if match["word"].startswith("__nv_"):  # a wrapped lambda, which hides the functor
        functor = _find_functor(name, match.start("functor"))

    operands = None
    if functor.name in _BINARY_FUNCTORS:  # the operator is among its arguments
        operands = _OPERANDS.match(name, functor.end)
        # PyTorch 1.x wrote only the operator: BUnaryFunctor<AddFunctor<long> >.
        operator_start = operands.end() if operands else functor.end + len("<")
        functor = _find_functor(name, operator_start)

    op = _classify_elementwise_loop(match["kernel"], functor.name)
    if op in ("index", "rng"):
        return {"op": op}

    one_type = _ONE_TYPE.match(name, functor.end)
    if operands:
        types = fields_of(operands, cxx_type)
    elif one_type:
        types = {"dtype": cxx_type(one_type[1])}
    else:
        types = {"dtype": _find_lambda_type(_extract_functor(name, match))}

    fields = {"op": op, "functor": functor.name, **types}
    if match["kernel"].startswith("vectorized") and match["first"]:
        fields["vec"] = int(match["first"])
    return fields


class _Functor(NamedTuple):
    """The functor of a loop, or the function that its lambda is named after."""

    name: str | None  # None: it has none
    end: int  # the index behind the name in the full name of the kernel


def _find_functor(name: str, start: int) -> _Functor:
    """Find the name of the functor that is written at one position.

    A wrapped lambda has no name. It is named after the function that contains it,
    or, if that function only launches kernels, after the functor that the function
    received.

    Args:
        name: The full name of the kernel.
        start: The position at which the functor begins.
    """
    functor_start = start
    if name.startswith("__nv_", start):
        pointer = _POINTER.search(name, start, start + _MAX_FUNCTOR_CHARACTERS)
        if pointer is None:
            return _Functor(None, start)
        is_launcher = pointer["word"].startswith(_LAUNCHERS)
        has_arguments = name.startswith("<", pointer.end())
        if is_launcher and has_arguments:
            functor_start = pointer.end() + len("<")
        else:
            functor_start = pointer.start("function")

    functor = read_base_name(name, functor_start)
    if functor is None:
        return _Functor(None, functor_start)
    return _Functor(functor, name.index(functor, functor_start) + len(functor))


def _extract_functor(name: str, match: re.Match[str]) -> str:
    """Return the functor of an elementwise loop with its template arguments.

    Returns "" if the list of arguments that contains the functor cannot be read.
    """
    first_argument = split_args(name, match.start("functor"), limit=1).arguments
    return first_argument[0].text if first_argument else ""


def _find_lambda_type(functor: str) -> str | None:
    """Return the element type that all parameters of a lambda have in common.

    Of nested lambdas the innermost one counts. A `bool` next to other types is a
    mask and is ignored. Returns None if the functor is no lambda, if its types
    differ, or if they are not types of elements.

    >>> _find_lambda_type("clamp(at::TensorIterator&)::{lambda()#1}::{lambda(float, float)#2}")
    'fp32'
    """
    # a wrapped lambda (`__nv_hdl_wrapper_t`) is written with the type of a function
    pattern = _FUNCTION_TYPE if functor.startswith("__nv_") else _LAMBDA
    parameter_lists = pattern.findall(functor)
    if not parameter_lists:
        return None

    innermost = parameter_lists[-1]  # it is written behind those around it
    types = set(innermost.split(", "))
    if len(types) > 1:
        types.discard("bool")
    return cxx_type(types.pop()) if len(types) == 1 else None


def _classify_elementwise_loop(kernel: str, functor: str | None) -> str | None:
    """Say what an elementwise loop does.

    >>> _classify_elementwise_loop("vectorized_elementwise_kernel", "FillFunctor")
    'fill'
    >>> _classify_elementwise_loop("vectorized_elementwise_kernel", "AddFunctor")
    'elementwise'

    Returns:
        `index`, `rng`, `fill` or `copy`, and `elementwise` for any other functor.
        None for a step of a normalization: the name does not say which step.
    """
    if "index" in kernel or "scatter" in kernel:
        return "index"

    if kernel.startswith("distribution"):
        return "rng"

    if functor == "FillFunctor":
        return "fill"
    if functor == "copy_device_to_device":
        return "copy"

    letters = (functor or "").lower().replace("_", "")
    if letters.endswith("copykernelcuda"):
        return "copy"
    is_norm = letters.startswith(("batchnorm", "groupnorm", "layernorm"))
    return None if is_norm else "elementwise"


@lru_cache(maxsize=1024)
def operation_word(functor: str) -> str:
    """Return the name of a functor without the prefixes and suffixes of its kind.

    >>> operation_word("direct_copy_kernel_cuda"), operation_word("CUDAFunctor_add")
    ('direct_copy', 'add')
    """
    without_one_affix = _AFFIXES.sub("", functor)
    without_two_affixes = _AFFIXES.sub("", without_one_affix)
    word = without_two_affixes or functor

    snake_case = _HUMPS.sub("_", word)
    return snake_case.lower()


def _compose_elementwise_short(
    name: str, match: re.Match[str], fields: dict[str, Any]
) -> str:
    """Compose the short text of an elementwise loop.

    It says what is computed, of which type, and how the tensors are read: `add bf16 x4`
    or `scalar mul fp32 strided 128x4`. `fields` holds what was read from the name, such
    as `op`, `functor` and `dtype`.
    """
    if fields.get("op") in ("index", "rng"):
        return _compose_opaque_short(name, match, fields["op"])

    outer_functor = match["word"]
    operation = operation_word(fields.get("functor") or outer_functor)
    if outer_functor == "AUnaryFunctor" or "FunctorOnOther" in outer_functor:
        operation = f"scalar {operation}"  # the first operand is a number: 2 - x
    elif outer_functor == "BUnaryFunctor" or "FunctorOnSelf" in outer_functor:
        operation = f"{operation} scalar"  # the second operand is a number: x - 2

    operand_types = dtype_words(
        fields.get("dtype_a"), fields.get("dtype_b"), fields.get("dtype_out")
    )
    return spaced(
        operation,
        fields.get("dtype") or operand_types,
        _describe_access(name, match, fields.get("vec")),
    )


def _compose_opaque_short(name: str, match: re.Match[str], op: str) -> str:
    """Compose the short text of a loop whose functor has no telling name.

    A copy of opaque bytes shows the function and the size of an element, as
    `index_put 4B`. Any other loop shows `op`, the loop and the type, if there is one.
    """
    search_end = match.end() + _MAX_ACCESSOR_CHARACTERS
    copied = _COPIED_BYTES.search(name, match.start("functor"), search_end)
    if copied:
        function = operation_word(copied["function"]).lstrip("_")
        return f"{function} {copied['bytes']}B"

    function = operation_word(match["word"]).lstrip("_")
    first_type = _FIRST_TYPE.match(name, match.end())
    dtype = cxx_type(first_type[1]) if first_type else None
    return spaced(op, function, dtype)


_MAX_ACCESSOR_CHARACTERS: Final = 300
"""Behind the functor, in which the function and the size of opaque bytes stand."""
_MAX_LOADER_CHARACTERS: Final = 600
"""Behind the functor, in which the way of loading stands."""


def _describe_access(
    name: str, match: re.Match[str], vector_elements: int | None
) -> str | None:
    """Say how an elementwise loop reads its tensors.

    Args:
        name: The full name of the kernel.
        match: The match of `_ELEMENTWISE` in this name.
        vector_elements: How many elements one load has; None if the loop has no
            vectors.

    Returns:
        `x4` for vectors of 4 elements, `cast`, `unrolled`, or `strided 128x4`: the
        threads of a block times the elements of each thread. None if the name does
        not tell.
    """
    if vector_elements is not None:
        return f"x{vector_elements}"

    loop = match["kernel"]
    if loop.startswith("unrolled"):
        search_end = match.end() + _MAX_LOADER_CHARACTERS
        has_cast = "LoadWithCast" in name[match.end() : search_end]
        return "cast" if has_cast else "unrolled"

    if not loop.startswith("elementwise_kernel") or not match["second"]:
        return None
    never_casts = "nocast" in match[0]
    sizes = f"{match['first']}x{match['second']}"
    return spaced("strided", sizes, "nocast" if never_casts else None)


def decode_reduction(name: str) -> KernelName | None:
    """Decode the name of a reduction of ATen.

    Such a name begins like `void at::native::reduce_kernel<512, 1, ...ReduceOp<...`.
    Returns None for any other name.
    """
    match = _REDUCTION.match(name)
    if match is None:
        return None

    arguments = split_args(name, match.end(), limit=8).arguments
    argument_texts = [argument.text for argument in arguments]
    fields = _read_reduce_op_fields(argument_texts)

    parts = explain(match, _REDUCTION_MEANINGS)
    # There are fewer arguments than meanings in older releases of torch.
    for argument, meaning in zip(arguments, _REDUCE_OP_ARGUMENTS, strict=False):
        parts.append((argument.start, argument.end, meaning))

    # most threads of a block x outputs of a thread . values read before they are combined
    sizes = f"{match['threads']}x{match['vec']}"
    if len(arguments) > _VALUES_PER_READ and arguments[_VALUES_PER_READ].text.isdigit():
        sizes += f".{arguments[_VALUES_PER_READ].text}"

    functor = fields.get("functor") or "reduce"
    short = spaced(
        "reduce",
        operation_word(functor.removesuffix("Ops")),
        dtype_words(fields.get("dtype_a"), None, fields.get("dtype_out")),
        sizes,
    )
    return build(name, "aten-reduce", short, parts, op="reduction", **fields)


def _read_reduce_op_fields(arguments: list[str]) -> dict[str, str | None]:
    """Determine the fields of a reduction from the template arguments of ReduceOp.

    >>> _read_reduce_op_fields(["half", "at::native::MaxOps<half>", "unsigned int", "float"])
    {'dtype_a': 'fp16', 'dtype_out': 'fp32', 'dtype_acc': None, 'functor': 'MaxOps'}

    Returns:
        `dtype_a`, `dtype_out`, `dtype_acc` and `functor`, each None if it is not
        known. Empty if there are too few arguments; see `_REDUCE_OP_ARGUMENTS`.
    """
    if len(arguments) < _MIN_REDUCE_OP_ARGUMENTS:
        return {}

    input_type, operator, _index_type, stored_type, *_ = arguments
    functor = _find_combining_operator(operator)
    accumulator_type = None
    if functor is not None:
        accumulator_type = _find_accumulator_type(operator, functor)
    return {
        "dtype_a": cxx_type(input_type),
        "dtype_out": cxx_type(stored_type),
        "dtype_acc": accumulator_type,
        "functor": functor,
    }


def _find_combining_operator(text: str) -> str | None:
    """Return the name of the operator with which a reduction combines values.

    >>> _find_combining_operator("at::native::MaxOps<float>")
    'MaxOps'

    Args:
        text: The second template argument of ReduceOp: a struct, or `func_wrapper_t`
            around a struct, a lambda or the address of a function.

    Returns:
        The name without namespaces and arguments; None if the operator has no name.
    """
    wrapper = _WRAPPED.match(text)
    operator_start = wrapper.end() if wrapper else 0
    is_lambda = text.startswith("__nv_hdl_wrapper", operator_start)
    if not is_lambda:
        return read_base_name(text, operator_start)

    # A lambda is named after the function that it comes from.
    address = _ADDRESS.search(text, operator_start)
    return read_base_name(text, address.end()) if address else None


_SECOND_OF_SEVERAL: Final = {1: 0, 2: 1, 3: 1}
_ACCUMULATOR_PLACES: Final[Mapping[str, Mapping[int, int]]] = {
    "MeanOps": {2: 0, 4: 1},
    "NormOps": _SECOND_OF_SEVERAL,
    "NormZeroOps": _SECOND_OF_SEVERAL,
    "NormOneOps": _SECOND_OF_SEVERAL,
    "NormTwoOps": _SECOND_OF_SEVERAL,
    "AbsMinOps": _SECOND_OF_SEVERAL,
    "AbsMaxOps": _SECOND_OF_SEVERAL,
    "NanSumOps": {1: 0, 2: 0},
    "MinMaxOps": {3: 1},
    "WelfordOps": {4: 1, 5: 1},
    "sum_functor": {3: 1},
    "nansum_functor": {3: 1},
    "prod_functor": {3: 1},
    "MaxNanFunctor": {1: 0},
    "MinNanFunctor": {1: 0},
    "ReductionAddOp": {1: 0},
    "ReductionMulOp": {1: 0},
}
"""Where an operator has the type of what it adds up (`acc_t`) among its template
arguments, by how many these are: older releases have fewer (SharedReduceOps.h,
ReduceSumProdKernel.cu, ReduceMaxValuesKernel.cu, sparse/cuda/SparseCsrTensorMath.cu)."""


def _find_accumulator_type(operator: str, functor: str) -> str | None:
    """Return the element type in which the operator of a reduction adds up.

    Args:
        operator: The operator with its template arguments.
        functor: The name of the operator alone.

    Returns:
        The type; None if the operator is unknown, or if this release of torch has
        another number of arguments than the releases that are known.
    """
    if functor not in _ACCUMULATOR_PLACES or f"{functor}<" not in operator:
        return None

    list_start = operator.index(f"{functor}<") + len(f"{functor}<")
    arguments = split_args(operator, list_start).arguments
    type_index = _ACCUMULATOR_PLACES[functor].get(len(arguments))
    return None if type_index is None else cxx_type(arguments[type_index].text)


_UNQUALIFIED_BASES = lazy_pattern(
    r"cunn_\w+|softmax_warp_(?:forward|backward)|indexing_backward_kernel\w*"
)
"""Kernels of ATen that are in no namespace of it."""

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
"""Words of the base name by the op that they imply; the first that is found counts."""

_OPS_WITHOUT_PASS: Final = ("rng", "copy", "sort", "scan", "index", None)
_FORWARD = lazy_pattern(
    r"[Ff]orward|updateOutput|collect_statistics|transform_input|_out_frame|vectorized_layer_norm"
)
_BACKWARD = lazy_pattern(
    r"[Bb]ackward|updateGradInput|grad_input|InternalGradients|gradinput"
)
_DROPPED_SUFFIX = lazy_pattern(r"_?(?:CUDA)?[kK]ernel$|_out_frame$")
_OPTIMIZERS = lazy_pattern(r"Adam|Sgd|SGD|Adagrad|Lamb|LAMB")
# Functors whose struct name says nothing without the operator beside it stay out of the
# field.
_NAMED_FUNCTORS = lazy_pattern(
    r"(?:Unary|Binary|Pointwise|Ternary)Op\w*Functor|Fused\w+Functor"
)
_FUNCTOR_TYPES = lazy_pattern(
    rf"<(?P<dtype>{CXX_TYPE})(?:, (?P<source>{CXX_TYPE}))?(?=[, >])"
)
_XPU_FUNCTOR = lazy_pattern(r"at::native::xpu::(\w+Functor\w*)")


def decode_other(name: str) -> KernelName | None:
    """Decode the name of any other kernel of ATen for NVIDIA and AMD GPUs.

    These are softmax, normalization, indexing and many more. Returns None for
    kernels of other libraries and of Intel GPUs.
    """
    sign = signature(name)
    if sign is None:
        return None

    if sign.base == _LOOP_OVER_INDICES:
        return _decode_index_loop(name, sign)

    if not _is_aten(sign):
        return None
    if sign.base == "multi_tensor_apply_kernel":
        return _decode_foreach(name, sign)

    op = find_first_op(_OPERATIONS, sign.base)
    return build(
        name,
        "aten-other",
        short=callee_text(name, sign, _DROPPED_SUFFIX.sub("", sign.base)),
        parts=[sign.explain_base(f"a kernel of ATen: {op or 'a helper'}")],
        op=op,
        pass_=_determine_pass(op, sign.base),
        **_read_template_types(name, sign),
    )


def _is_aten(sign: Signature) -> bool:
    """Return whether a kernel is one of ATen for NVIDIA and AMD GPUs, by its name."""
    if sign.scope.startswith("at::"):
        return not sign.scope.startswith("at::native::xpu::")  # Intel GPUs

    # Few kernels of ATen are outside of its namespaces.
    is_unqualified = sign.scope in ("", "(anonymous namespace)::")
    return is_unqualified and _UNQUALIFIED_BASES.fullmatch(sign.base) is not None


_OPERAND_AND_SUMS: Final = ("dtype_a", "dtype_acc")
_TYPE_ARGUMENTS: Final = {
    r"softmax_warp_(?:forward|backward)": ("dtype_a", "dtype_out", "dtype_acc"),
    r"cunn_SoftMaxForward\w*": ("dtype_a", "dtype_acc", "dtype_out"),
    r"cunn_SoftMaxBackward\w*": ("dtype_out", "dtype_acc", "dtype_a"),
    r"vectorized_layer_norm_\w+|layer_norm_grad_input_\w+": _OPERAND_AND_SUMS,
    r"LayerNormForwardCUDAKernel|RowwiseMomentsCUDAKernel": _OPERAND_AND_SUMS,
    r"GammaBetaBackward\w+|cuCompute(?:Part)?GradGammaBeta": _OPERAND_AND_SUMS,
}
"""What the types among the template arguments of a kernel are, in their order, by its
name (PersistentSoftmax.cuh, SoftMax.cu, layer_norm_kernel.cu)."""


def _read_template_types(name: str, sign: Signature) -> dict[str, str | None]:
    """Read the element types among the template arguments of a kernel.

    The kernels in `_TYPE_ARGUMENTS` have several types in a known order, and each
    becomes a field such as `dtype_a`. Such a kernel with another number of types gets
    no field. Every other kernel has only the field `dtype`, which is None unless there
    is exactly one element type.
    """
    for base_pattern, type_fields in _TYPE_ARGUMENTS.items():
        if not compiled(base_pattern).fullmatch(sign.base):
            continue
        types = [cxx_type(argument) for argument in read_arguments(name, sign)]
        element_types = [dtype for dtype in types if dtype is not None]
        if len(element_types) != len(type_fields):
            return {}
        return dict(zip(type_fields, element_types, strict=True))

    return {"dtype": element_type(name, sign)}


def _decode_index_loop(name: str, sign: Signature) -> KernelName | None:
    """Decode a kernel that computes each element from its index.

    `elementwise_kernel_with_index<index type, functor>` of RangeFactories.cu runs
    arange, linspace and logspace. The functor is a lambda of that operator. Its
    parameter is the index, so the type of the elements is not known.
    """
    arguments = read_arguments(name, sign, limit=2)
    functor = read_base_name(arguments[1]) if len(arguments) > 1 else None

    operation = "elementwise"
    parts = [sign.explain_base("an elementwise loop of ATen over indices")]
    if functor:
        operation = operation_word(functor.removesuffix("_out")) or operation
        functor_start = name.index(functor, sign.args)
        functor_end = functor_start + len(functor)
        parts.append((functor_start, functor_end, _EACH_ELEMENT))

    return build(
        name,
        "aten-other",
        short=f"{operation} of index",
        parts=parts,
        op="elementwise",
        functor=functor,
    )


def _determine_pass(op: str | None, base: str) -> str | None:
    """Say to which pass of training a kernel belongs.

    Args:
        op: What the kernel does, as in the field `op`.
        base: The base name of the kernel.

    Returns:
        `fwd` or `bwd`; of a convolution `fprop`, `dgrad` or `wgrad`. None if the
        operation has no passes or the name does not say which one it is.
    """
    if op in _OPS_WITHOUT_PASS:
        return None

    is_backward = _BACKWARD.search(base) is not None
    if op == "conv" and "grad_weight" in base:
        return "wgrad"
    if op == "conv":
        return "dgrad" if is_backward else "fprop"
    if is_backward:
        return "bwd"
    return "fwd" if _FORWARD.search(base) else None


def _decode_foreach(name: str, sign: Signature) -> KernelName:
    """Decode the name of a kernel that works on lists of tensors in one launch.

    The name is `multi_tensor_apply_kernel<Metadata<depth>, Functor<type, ...>,
    Operator, ...>`, where the depth is the number of lists and the functor says
    what is done to each element. The field `op` is `optimizer` or `foreach`.
    """
    if not sign.has_arguments:
        return build(name, "aten-other", "foreach", op="foreach")

    parts = [sign.explain_base("one launch for many tensors")]
    arguments = split_args(name, sign.args, limit=4).arguments
    if len(arguments) < 2:
        return build(name, "aten-other", "foreach", parts, op="foreach")

    _metadata, functor, *arguments_behind = arguments
    parts.append((functor.start, functor.end, "what is done to each element"))
    functor_name = read_base_name(functor.text) or ""
    op = "optimizer" if _OPTIMIZERS.search(functor_name) else "foreach"
    types = _read_foreach_types(functor.text)
    short = spaced(
        op,
        functor_name.removesuffix("Functor"),
        _find_foreach_operator([argument.text for argument in arguments_behind]),
        _format_foreach_types(types),
    )

    # Other functors only apply an operator; their name says nothing.
    is_telling = _NAMED_FUNCTORS.fullmatch(functor_name) is not None
    return build(
        name,
        "aten-other",
        short,
        parts,
        op=op,
        functor=functor_name if is_telling else None,
        **types,
    )


def _format_foreach_types(types: dict[str, str | None]) -> str | None:
    """Write the types of a foreach functor as one text.

    It is `fp32`, or `bf16->fp32` for a functor that copies.
    """
    dtype = types.get("dtype")
    if dtype:
        return dtype
    return dtype_words(types.get("dtype_a"), None, types.get("dtype_out"))


def _read_foreach_types(functor: str) -> dict[str, str | None]:
    """Determine the types of a foreach functor.

    >>> _read_foreach_types("at::native::BinaryOpScalarFunctor<float, 1>")
    {'dtype': 'fp32'}

    Returns:
        `dtype`, or `dtype_a` and `dtype_out` of a copy, which has a type for each
        (`CopyFunctor<target, source, ...>` in ForeachBinaryOpList.cu). Empty if the
        functor has no element type.
    """
    types = _FUNCTOR_TYPES.search(functor)
    if types is None:
        return {}

    if types["source"] is None:
        return {"dtype": cxx_type(types["dtype"])}

    return {
        "dtype_a": cxx_type(types["source"]),
        "dtype_out": cxx_type(types["dtype"]),
    }


def _find_foreach_operator(arguments: list[str]) -> str | None:
    """Return the operator that a general foreach functor applies.

    The arguments are the template arguments behind the functor: `std::plus<float>`
    gives `plus`. Returns None if no argument is a class.
    """
    for argument in arguments:
        is_class = "::" in argument or argument[:1].isupper()
        operator = read_base_name(argument) if is_class else None
        if operator is not None:
            return operator
    return None


def decode_xpu(name: str) -> KernelName | None:
    """Decode the name of a kernel for Intel GPUs, of ATen or of oneDNN.

    Returns None for any other name.
    """
    if name == "gemm_kernel" or name.startswith("gen_conv"):
        part = (0, len(name), "a kernel of oneDNN")
        return build(name, "xpu", f"onednn {name[:40]}", [part])

    sign = signature(name)
    if sign is None or not sign.scope.startswith("at::native::xpu::"):
        return None

    functor = _XPU_FUNCTOR.search(name, sign.end, sign.end + 200)
    is_elementwise = "ElementwiseKernel" in sign.base
    return build(
        name,
        "xpu",
        short=functor[1] if functor else sign.base,
        parts=[sign.explain_base("a kernel of ATen for Intel GPUs")],
        op="elementwise" if is_elementwise else None,
    )
