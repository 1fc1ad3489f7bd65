"""Kernels of CUTLASS: procedural names of 2.x and 3.x, and raw C++ of 3.x.

Documented by NVIDIA/cutlass: python/cutlass_library (gemm_operation.py,
conv2d_operation.py, the name tables in library.py), media/docs/cpp/profiler.md and, for
`void cutlass::device_kernel<...>`, include/cutlass/gemm/dispatch_policy.hpp (stages,
cluster shape, schedule); vLLM's wrappers by vllm-project/vllm
csrc/quantization/w8a8/cutlass/c3x/. Names of 2.x stand alone or inside `void
cutlass::Kernel2<X>(X::Params)`. bias, relu, gelu, dgelu, drelu, bgrada, bgradb, aux,
scalemax, epiVs16n and forwardCompat are additions of cuBLAS.

    cutlass_[{cc}_]{class}_[{C}_]{acc}{mma}[{math}]gemm[_{epilogue}][_{A}]_{M}x{N}[_{K}x{stages}]
        _{layout}_align{n}
    cutlass_{class}_[{C}_]{acc}{mma}{fprop|dgrad|wgrad}_{variant}[_{A}]_{M}x{N}_{K}x{stages}
        _{nhwc|...}[_unity_stride]_align{n}
    cutlass3x_sm{cc}_{class}_{acc}{mma}gemm_[block_scaled_]{A}_{B}_{acc}_{C}_{D}_{M}x{N}x{K}
        [_{cluster}]_{stages}_{ABC}_align{n}{suffixes}
    vllm::cutlass_3x_gemm<In, Out, Epilogue, TileShape, ClusterShape, ...>
    vllm::cutlass_3x_gemm_fp8_blockwise<Out, gM, gN, gK, TileShape, ClusterShape, ...>
"""

from __future__ import annotations

import re
from typing import Any, Final

from fusetui.text.patterns import lazy_pattern

from .cxx import SCOPE, make_cute_tuple_pattern
from .record import (
    KernelName,
    Meanings,
    build,
    explain,
    fields_of,
    find_epilogue,
    gemm_label,
)
from .vocabulary import (
    ACCUMULATORS,
    CUTLASS,
    CXX_TYPE,
    accumulator_meaning,
    cxx_type,
    explain_layout,
    explain_mma,
)

_TYPE = "|".join(sorted(CUTLASS, key=len, reverse=True))
_WRAPPER = lazy_pattern(rf"(?:void )?(?:{SCOPE}cutlass::Kernel2?<)?{SCOPE}(?=cutlass_)")
_MANGLED_WRAPPER = lazy_pattern(
    r"_ZN\d{1,3}cutlass\w{0,40}?\d{1,3}Kernel2?I\d{1,4}(?=cutlass_)"
)
_BODY = lazy_pattern(
    r"cutlass_(?:(?P<cc>\d{2,3})_)?(?P<class>wmma_tensorop|s?p?tensorop|simt)_"
    rf"(?:(?P<c>{_TYPE})_)?(?P<acc>g[cz]|[shdicz])?(?P<mma>\d{{1,6}})?"
    rf"(?P<math>tf32|bf16|f16|fastaccum|xor|and)?"
    r"(?P<kind>gemm|fprop|dgrad|wgrad)(?P<rest>(?:_[A-Za-z0-9]+)*?)_(?P<tile_m>\d{1,4})"
    r"x(?P<tile_n>\d{1,4})(?:_(?P<tile_k>\d{1,4})x(?P<stages>\d{1,3}))?"
    r"_(?P<layout>[ntch]{2}|n?[a-z0-9]*hw[a-z0-9]*)(?![A-Za-z0-9])(?P<stride>_unity_stride)?"
    r"(?:_align(?P<align>\d{1,3}))?"
)
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
_MEANINGS: Meanings = {
    "cc": "built for sm_{}; later devices run it too",
    "class": lambda text: _CLASSES.get(text, "which units multiply"),
    "c": "the result is stored as {}",
    "acc": accumulator_meaning,
    "mma": explain_mma,
    "math": "the operands are converted to {} on the way into the multiplication",
    "kind": _KINDS.__getitem__,
    "tile_k": "each pipeline stage holds {} of K",
    "layout": lambda text: (
        f"the tensors are stored as {text}" if "hw" in text else explain_layout(text)
    ),
    "stride": "only for stride 1",
}
_WORDS: Final = {
    **{word: f"A and B are {dtype}" for word, dtype in CUTLASS.items()},
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

_TYPE3 = r"[a-z][a-z0-9]*"
_HEAD3 = lazy_pattern(r"cutlass3x_sm(?P<cc>\d{2,3})[af]?_[a-z]+_(?P<unparsed>\w+)")
_NAME3 = lazy_pattern(
    r"cutlass3x_sm(?P<cc>\d{2,3})[af]?_(?P<class>[a-z]+)_(?P<acc>[shdicz](?=\d|gemm))?"
    r"(?P<mma>\d{1,4}x\d{1,4}x\d{1,4}|\d{1,6})?(?:_?(?P<math>\d?x?[a-z]{1,8}\d{0,3}))??"
    r"gemm_(?P<scaled>block_scaled_)?"
    rf"(?P<dtype_a>{_TYPE3})_(?P<dtype_b>{_TYPE3})_(?P<dtype_acc>{_TYPE3})_(?P<c>{_TYPE3})"
    rf"_(?P<dtype_out>{_TYPE3})"
    r"_(?P<tile_m>\d{1,4})x(?P<tile_n>\d{1,4})x(?P<tile_k>\d{1,4})"
    r"(?:_(?P<cluster>\d{1,6}x\d{1,6}x\d{1,6}))?"
    r"_(?P<stages>\d{1,3})_(?P<layout>[ntch]{2})[ntch]_align(?P<align>\d{1,3})(?P<rest>\w*)"
)
_BLOCK_SCALED_FORMATS: Final = {
    ("ue8m0", "e4m3"): "mxfp8",
    ("ue8m0", "e5m2"): "mxfp8",
    ("ue8m0", "f8"): "mxfp8",
    ("ue8m0", "e2m1"): "mxfp4",
    ("ue4m3", "e2m1"): "nvfp4",
}
"""What elements that share scales of a type are called."""


def _describe_type(text: str) -> str:
    """Describe the type of a 3.x name in words.

    For elements that share scales, the name of the format is added, if it has one.

    >>> _describe_type("ue8m0xe4m3")
    'ue8m0xe4m3, which is e4m3 with ue8m0 scales (mxfp8)'
    """
    scale_type, _, element_type = text.rpartition("x")
    if not scale_type:
        return text

    description = f"{text}, which is {element_type} with {scale_type} scales"
    format_name = _BLOCK_SCALED_FORMATS.get((scale_type, element_type))
    return f"{description} ({format_name})" if format_name else description


_AUTOMATIC: Final = "the number of pipeline stages is chosen automatically"
_OUTPUT: Final = {"tile_m": "output tile: {} rows", "tile_n": "output tile: {} columns"}
_MEANINGS3: Meanings = {
    **_OUTPUT,
    "cc": "needs compute capability {}",
    "class": "{}: which units multiply (tensorop: tensor cores, bs: block scaled, simt: ordinary)",
    "acc": "{}: the type of the sums (s fp32, h fp16, d fp64, i int32, c complex)",
    "mma": explain_mma,
    "math": "{}: the arithmetic, when the operands are converted on the way in",
    "scaled": "each block of the operands has its own scale",
    "dtype_a": lambda text: f"type of A: {_describe_type(text)}",
    "dtype_b": lambda text: f"type of B: {_describe_type(text)}",
    "dtype_acc": "type of the sums: {}",
    "c": "type of the added C: {}",
    "dtype_out": lambda text: f"type of the result: {_describe_type(text)}",
    "stages": lambda text: (
        _AUTOMATIC if text == "0" else f"pipeline stages in flight: {text}"
    ),
    "layout": explain_layout,
}
_WORDS3: Final = {
    "1sm": "one SM computes a tile",
    "2sm": "a pair of SMs shares one instruction: each holds half of its rows",
    "pingpong": "two warp groups take turns: one multiplies while the other stores",
    "cooperative": "two warp groups share one tile",
    "stream": "stream_k: the work is split evenly over the SMs, also along K",
    "ptr": "ptr_array: the operands come as arrays of pointers",
    "bias": "can add a bias when it stores",
    "relu": "can apply a ReLU when it stores",
    "gelu": "can apply a GELU when it stores",
    "aux": "probably stores a second tensor for the backward pass",
    "scalemax": "probably also records the largest value, for scaling",
}

_TILE = make_cute_tuple_pattern("tile_m", "tile_n", "tile_k")
_CLUSTER = make_cute_tuple_pattern("x", "y", "z")
_SHAPED: Final = (
    lazy_pattern(
        rf"vllm::cutlass_3x_gemm\w*<(?P<dtype_a>{CXX_TYPE}), (?P<dtype_out>{CXX_TYPE}), [\w:]+, "
        rf"{_TILE}, {_CLUSTER}"
    ),
    lazy_pattern(
        rf"vllm::cutlass_3x_gemm\w*<(?P<dtype_out>{CXX_TYPE}), (?:\d{{1,6}}, ){{3}}{_TILE}, "
        rf"{_CLUSTER}"
    ),
    lazy_pattern(
        rf"MainloopSm(?P<cc>\d{{2,3}})\w*<(?:\(int\))?(?P<stages>\d{{1,3}}), (?:\d{{1,6}}, )*"
        rf"{_CLUSTER}[^>]*(?:>[^>]*)?>, {_TILE}"
    ),
)
"""C++ names of 3.x that have the shape of the tile; the first that is found counts."""

_ATTENTION = lazy_pattern(r"[Ff]mha|FMHA|[Aa]ttention|Mla[A-Z]")
_GEMM = lazy_pattern(
    r"machete::Machete|GemmUniversal|GemmKernel|gemm::kernel::|grouped_gemm"
)
_MAX_TARGET_CHARACTERS: Final = 40
"""Of the name of the class that `device_kernel` runs, as it is shown."""

_SHAPED_MEANINGS: Meanings = {
    **_OUTPUT,
    "dtype_a": "type of A and B",
    "dtype_out": "type of the result",
    "x": "cluster of {} blocks along M",
    "y": "cluster of {} blocks along N",
}


def decode2(name: str) -> KernelName | None:
    """Decode a procedural name of CUTLASS 2.x.

    The name stands alone or inside of `cutlass::Kernel2<...>`. Returns None for any
    other name.

    >>> decode2("cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_nn_align1").short
    'gemm bf16 256x128 nn sm75 a1'
    """
    wrapper = _WRAPPER.match(name) or _MANGLED_WRAPPER.match(name)
    if wrapper is None:
        return None

    family = "cudnn" if "cudnn" in wrapper[0] else "cutlass2"
    return decode2_at(name, wrapper.end(), family)


def decode2_at(name: str, start: int, family: str) -> KernelName | None:
    """Decode the procedural name of CUTLASS 2.x that begins at one position of a name.

    Args:
        name: The full name of the kernel.
        start: The index in `name` at which the procedural name begins.
        family: The family of the record, `cutlass2`, or `cudnn` where cuDNN wraps such
            a name in its namespaces.

    Returns:
        The record; None if no such name begins there.
    """
    match = _BODY.match(name, start)
    if match is None:
        return None

    is_gemm = match["kind"] == "gemm"
    fields: dict[str, Any] = {
        "op": "gemm" if is_gemm else "conv",
        "pass_": None if is_gemm else match["kind"],
        **_read_types_of_2x(match),
        **fields_of(match),
        "epilogue": find_epilogue(match["rest"]),
    }
    short = gemm_label(match["kind"], fields, *_list_variants_of_2x(match))
    return build(name, family, short, explain(match, _MEANINGS, _WORDS.get), **fields)


def _list_variants_of_2x(match: re.Match[str]) -> list[str]:
    """List the words that end the short text of a procedural name of CUTLASS 2.x.

    They are the variant of a convolution, the alignment (`a8` for 8 elements), the
    instruction if it is not the usual one, and `planar`, if the parts of complex
    numbers lie in separate planes.
    """
    words = []
    variant, *_ = match["rest"].strip("_").split("_")
    is_conv = match["kind"] != "gemm"
    if is_conv:
        words.append(variant)
    align = int(match["align"] or 0)
    if align > 0:
        words.append(f"a{align}")
    for instruction in ("wmma", "simt"):
        if match["class"].startswith(instruction):
            words.append(instruction)
    if "_planar" in match["rest"]:
        words.append("planar")
    return words


def _read_types_of_2x(match: re.Match[str]) -> dict[str, str | None]:
    """Determine the types of a procedural name of CUTLASS 2.x.

    The types of the result and of the operands are in the name only if they differ
    from that of the sums. Tensor cores multiply neither fp32 nor int32, so the
    operands of such a kernel are unknown if the name has no type for them. There is
    one exception: instruction 1688 with sums in fp32 is TF32 arithmetic on fp32
    data.

    Returns:
        `dtype_a`, `dtype_b`, `dtype_acc`, `dtype_out` and `math`, each None if it is
        not certain. Empty if the type of the sums is missing or complex numbers lie
        in planes.
    """
    if match["acc"] is None or "_planar" in match["rest"]:
        return {}

    acc = ACCUMULATORS[match["acc"]]
    words = match["rest"].split("_")
    operand_types = [CUTLASS[word] for word in words if word in CUTLASS]

    math = CUTLASS.get(match["math"] or "")
    is_tf32_form = acc == "fp32" and match["mma"] == "1688" and match["kind"] == "gemm"
    if is_tf32_form and not match["math"] and not operand_types:
        math = "tf32"

    # Plain cores read fp32, and tensor cores do by way of TF32.
    can_read_fp32 = match["mma"] in (None, "1688") or match["math"] is not None
    is_operand_certain = acc != "int32" and (acc != "fp32" or can_read_fp32)
    if operand_types:
        dtype_a: str | None = operand_types[0]
    else:
        dtype_a = acc if is_operand_certain else None

    return {
        "dtype_a": dtype_a,
        "dtype_b": operand_types[1] if len(operand_types) > 1 else dtype_a,
        "dtype_acc": acc,
        "dtype_out": CUTLASS.get(match["c"] or "", acc),
        "math": math,
    }


def decode3(name: str) -> KernelName | None:
    """Decode a procedural name of CUTLASS 3.x.

    Such a name begins like
    `cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_void_bf16_128x128x64_...`.
    If only its beginning is understood, the record has the target. Returns None for
    any other name.
    """
    match = _NAME3.fullmatch(name)
    if match is None:
        return _decode3_head(name)

    options = match["rest"].split("_")
    epilogue = find_epilogue(match["rest"])
    is_stream_k = "_stream_k" in match["rest"]
    stages = int(match["stages"])
    fields = {
        "op": "gemm",
        "math": CUTLASS.get(match["math"] or ""),
        **fields_of(match, _translate_type_of_3x),
        "stages": stages if stages > 0 else None,  # 0: chosen automatically
        "stream_k": True if is_stream_k else None,
    }

    variants = [option for option in options if option in ("1sm", "2sm", "pingpong")]
    stream_k_word = "stream-k" if is_stream_k else None
    short = gemm_label("gemm", fields, *variants, stream_k_word, epilogue)
    parts = explain(match, _MEANINGS3, _WORDS3.get)
    return build(name, "cutlass3", short, parts, epilogue=epilogue, **fields)


def _translate_type_of_3x(word: str) -> str | None:
    """Return our name of an element type in a 3.x name, such as `bf16`.

    Of elements with shared scales (`ue8m0xe4m3`) it is the type of the elements, which
    comes last. Returns None for complex and unknown types.
    """
    return CUTLASS.get(word.rpartition("x")[2])


def _decode3_head(name: str) -> KernelName | None:
    """Decode a 3.x name of which only the beginning is understood.

    The record has the target and that the kernel is a matrix product. The short text
    has all that follows the class of the instruction as it is. Returns None if the
    name does not say that it is a product.
    """
    head = _HEAD3.fullmatch(name)
    if head is None:
        return None

    is_product = "gemm" in head["unparsed"]
    if not is_product:
        return None
    short = f"gemm sm{head['cc']} {head['unparsed']}"
    parts = explain(head, _MEANINGS3)
    return build(name, "cutlass3", short, parts, op="gemm", **fields_of(head))


def decode_cxx(name: str) -> KernelName:
    """Decode a kernel of CUTLASS 3.x that was written as C++.

    The name begins with `void cutlass::device_kernel<`. If it does not have the shape
    of the tile, at most the operation is known.
    """
    searched = name[:_MAX_CXX_CHARACTERS]
    for pattern in _SHAPED:
        match = pattern.search(searched)
        if match is not None:
            return _build_shaped_record(name, match)

    op = None
    if _ATTENTION.search(searched):
        op = "attention"
    elif _GEMM.search(searched):
        op = "gemm"

    # The class that the kernel runs is the first template argument.
    _, _, arguments = searched.partition("<")
    class_name, *_ = re.split("[<>]", arguments, maxsplit=1)
    short = f"{op or 'cutlass'} {_shorten_qualified_name(class_name)}"
    return build(name, "cutlass3", short, op=op)


_CXX2 = lazy_pattern(
    r"(?:void )?cutlass::Kernel2?<(?:cutlass::)?(?P<scope>gemm|conv)::kernel::(?P<kernel>\w{1,80})<"
)
_MAX_CXX_CHARACTERS: Final = 3000
"""Of a C++ name, as far as it is searched."""

_MAX_TILE_CHARACTERS = 200
"""From the kernel's name to its tile."""

_THREADBLOCK = lazy_pattern(
    r"::threadblock::(?:ImplicitGemm|Mma)\w{0,40}<cutlass::gemm::GemmShape<"
    r"(?P<tile_m>\d{1,4}), ?(?P<tile_n>\d{1,4}), ?(?P<tile_k>\d{1,4})>"
)


def _build_shaped_record(name: str, match: re.Match[str]) -> KernelName:
    """Build the record of a C++ name of 3.x whose tile and cluster are known.

    Args:
        name: The full name of the kernel.
        match: The match of a pattern that has the shapes of the tile (`tile_m`, ...)
            and of the cluster (`x`, `y`, `z`). A and B have the same type.
    """
    fields = fields_of(match, cxx_type)
    cluster = f"{match['x']}x{match['y']}x{match['z']}"
    is_blockwise = "blockwise" in name[:_MAX_CXX_CHARACTERS]
    dtype_b = fields.get("dtype_a")
    return build(
        name,
        "cutlass3",
        short=gemm_label(
            "gemm", fields, cluster, "blockwise" if is_blockwise else None
        ),
        parts=explain(match, _SHAPED_MEANINGS),
        op="gemm",
        dtype_b=dtype_b,
        cluster=cluster,
        **fields,
    )


def decode_cxx2(name: str) -> KernelName | None:
    """Decode a kernel of CUTLASS 2.x that was written as C++.

    Such a kernel has no procedural name but one that begins like
    `void cutlass::Kernel<cutlass::gemm::kernel::Gemm<cutlass::gemm::threadblock::...`.
    Returns None for any other name.
    """
    match = _CXX2.match(name)
    if match is None:
        return None

    kernel = match["kernel"]
    op = _classify_kernel_class(match["scope"], kernel)
    search_end = match.end() + _MAX_TILE_CHARACTERS
    tile = _THREADBLOCK.search(name, match.end("kernel"), search_end)
    if op is None or tile is None:
        return build(name, "cutlass2", f"{op or 'cutlass'} {kernel}", op=op)

    fields = fields_of(tile)
    short = gemm_label(op, fields, kernel)
    return build(name, "cutlass2", short, explain(tile, _OUTPUT), op=op, **fields)


def _classify_kernel_class(scope: str, kernel: str) -> str | None:
    """Say what a class of `cutlass::gemm` or `cutlass::conv` computes.

    >>> _classify_kernel_class("cutlass::gemm::kernel::", "GemmUniversal")
    'gemm'

    Args:
        scope: `gemm` or `conv`.
        kernel: The name of the class.

    Returns:
        `gemm`, `gemv` or `conv`; None for a helper.
    """
    if scope == "conv":
        return "conv" if "Convolution" in kernel else None
    if "Gemm" in kernel:
        return "gemm"
    return "gemv" if "Gemv" in kernel else None


def _shorten_qualified_name(target: str) -> str:
    """Shorten a qualified name to as many inner names as 40 characters hold.

    The innermost name is always kept.

    >>> _shorten_qualified_name("a::some_long_namespace::another_namespace::Kernel")
    'another_namespace::Kernel'
    """
    shortened, *outer_scopes = reversed(target.split("::"))
    for scope in outer_scopes:
        longer = f"{scope}::{shortened}"
        if len(longer) > _MAX_TARGET_CHARACTERS:
            break
        shortened = longer

    return shortened
