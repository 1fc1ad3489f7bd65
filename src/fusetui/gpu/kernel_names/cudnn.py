"""cuDNN kernels (convolutions, normalization, attention, layout copies), and xmma
kernels of cuDNN and cuBLAS:
`sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x64x32_...`.

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
from typing import Any, Final, NamedTuple

from fusetui.text.patterns import lazy_pattern

from . import cutlass
from .cxx import (
    SCOPE,
    Signature,
    callee_text,
    element_type,
    read_arguments,
    signature,
)
from .record import (
    KernelName,
    build,
    explain,
    explain_group,
    fields_of,
    find_epilogue,
    find_first_op,
    gemm_label,
)
from .vocabulary import CUTLASS, GENERATION, cxx_type, explain_layout

_TYPES: Final = {**CUTLASS, "i8": "int8", "i32": "int32"}
_COMPLEX: Final = ("cbf16", "ctf32", "cf16", "cf32", "cf64")
_XMMA_TYPE = "|".join(sorted((*_TYPES, *_COMPLEX), key=len, reverse=True))
_XMMA_HEAD = lazy_pattern(
    r"sm(?P<cc>\d{2,3})_xmma_(?:gemm|(?P<pass>fprop|dgrad|wgrad)_implicit_gemm)(?=_)"
)
_XMMA = lazy_pattern(
    _XMMA_HEAD.pattern + r"(?P<variant>(?:_(?:indexed|wo_smem|gaussian))*)"
    rf"_(?P<ad>(?:{_XMMA_TYPE})+)_(?P<multiplied>(?:{_XMMA_TYPE})+)_(?P<epilogue>{_XMMA_TYPE})"
    r"_(?P<ab>[a-z]+)_(?P<c>[a-z]+)_tilesize(?P<tile_m>\d{1,4})x(?P<tile_n>\d{1,4})x(?P<tile_k>\d{1,4})"
    r"(?P<rest>(?:_[A-Za-z0-9]+)*)"
)
_SPLIT_TYPES = lazy_pattern(_XMMA_TYPE)
_OPTIONS: Final = (
    lazy_pattern(r"_stage(?P<stages>\d{1,3})(?=_|$)"),
    lazy_pattern(r"_tensor(?P<mma>\d{1,6}x\d{1,6}x\d{1,6})(?=_|$)"),
    lazy_pattern(r"_cgasize(?P<cluster>\d{1,6}x\d{1,6}x\d{1,6})(?=_|$)"),
)
"""What is searched for in the rest of an xmma name."""

_XMMA_MEANINGS: Final = {
    "pass": "{}: fprop is forward, dgrad gives the gradient of the data, wgrad of the weight",
    "ad": "{}: the types of A (and B when it differs) and of the result",
    "multiplied": "{}: the types that are multiplied, then the type of the sums",
    "epilogue": "{}: probably the type of alpha and beta",
}


def decode_xmma(name: str) -> KernelName | None:
    """Decode the name of an xmma kernel of cuDNN or cuBLAS.

    Such a name is `sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x64x32_...`. If
    only its beginning is understood, the record has the target and the operation.
    Returns None for any other name.
    """
    match = _XMMA.match(name)
    if match is None:
        return _decode_xmma_head(name)

    fields = _read_xmma_fields(match)
    parts = explain(match, _XMMA_MEANINGS, _explain_word)
    parts.append(explain_group(match, "ab", _explain_layout(match)))

    is_second_pass = "role" in fields
    operation = match["pass"] or "gemm"
    has_segments = "_segment_k_on" in name
    variants = match["variant"].replace("wo_smem", "").split("_")
    short = gemm_label(
        f"reduce {operation}" if is_second_pass else operation,
        fields,
        "segment-k" if has_segments else None,
        *variants,
    )
    return build(name, "xmma", short, parts, **fields)


def _decode_xmma_head(name: str) -> KernelName | None:
    """Decode an xmma name of which only the beginning is understood.

    Returns None for any other name.
    """
    head = _XMMA_HEAD.match(name)
    if head is None:
        return None

    op = "conv" if head["pass"] else "gemm"
    short = f"{op} sm{head['cc']} xmma"
    return build(name, "xmma", short, op=op, pass_=head["pass"], **fields_of(head))


def _read_xmma_fields(match: re.Match[str]) -> dict[str, Any]:
    """Determine the fields of an xmma kernel.

    The second pass of a product whose K is split only adds up. Its fields say that
    it is a reduction.
    """
    options = match["rest"]
    is_conv = match["pass"] is not None
    fields = {
        "op": "conv" if is_conv else "gemm",
        "pass_": match["pass"],
        **fields_of(match),
        **_read_xmma_types(match),
        "layout": None if is_conv else match["ab"],
        "epilogue": find_epilogue(options),
    }
    for pattern in _OPTIONS:
        option = pattern.search(options)
        if option:
            fields |= fields_of(option)

    is_second_pass = "_execute_split_k_kernel" in options
    if is_second_pass:
        fields["op"] = "reduction"
        fields["split_k"] = True
        fields["role"] = "splitk_reduce"
    return fields


def _read_xmma_types(match: re.Match[str]) -> dict[str, str | None]:
    """Determine the types of an xmma kernel.

    Returns:
        `dtype_a`, `dtype_b`, `dtype_out`, `dtype_acc`, and `math` if the operands are
        converted before they are multiplied. Empty if the types cannot be read or
        the operands are complex. Complex numbers in separate planes have only
        `dtype_acc`, the type of each plane.
    """
    stored_words = _SPLIT_TYPES.findall(match["ad"])
    multiplied_words = _SPLIT_TYPES.findall(match["multiplied"])

    is_complex = any(word in _COMPLEX for word in stored_words + multiplied_words)
    if is_complex and "_planar_complex" in match["rest"]:
        return {"dtype_acc": _TYPES.get(multiplied_words[-1])}
    if is_complex or len(stored_words) < 2 or len(multiplied_words) < 2:
        return {}

    # `f16f32` is A and the result, `f16bf16f32` A, B and the result.
    *operand_words, out_word = stored_words
    dtype_a = _TYPES[operand_words[0]]
    multiplied_type = _TYPES[multiplied_words[0]]
    return {
        "dtype_a": dtype_a,
        "dtype_b": _TYPES[operand_words[-1]],
        "dtype_out": _TYPES[out_word],
        "dtype_acc": _TYPES[multiplied_words[-1]],
        "math": None if multiplied_type == dtype_a else multiplied_type,
    }


def _explain_layout(match: re.Match[str]) -> str:
    """Explain the letters of A and B; of a convolution those of filter and tensors."""
    letters = match["ab"]
    if match["pass"]:
        both = f"{letters}, then {match['c']}"
        return f"{both}: probably how filter and tensors are stored"

    are_blas_letters = len(letters) > 1 and set(letters) <= set("ntch")
    return explain_layout(letters) if are_blas_letters else "layout of A and B"


_NUMBERED_WORDS: Final = {
    "stage": "pipeline stages in flight: {}",
    "tensor": "tensor-core instruction {}",
    "cgasize": "cluster of {} blocks",
    "warpgroupsize": "warp groups of a block: {}; Hopper's asynchronous tensor cores",
    "warpsize": "warps of a block: {}",
    "aligna": "probably loads of A are aligned to {} elements",
    "alignc": "probably stores of C are aligned to {} elements",
}
"""Words that end in numbers, without these."""

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


def _explain_word(word: str) -> str | None:
    """Explain a word behind the tile of an xmma name.

    Returns None if the meaning is not known.
    """
    for prefix, meaning in _NUMBERED_WORDS.items():
        number = word.removeprefix(prefix)
        begins_with_digit = number[:1].isdigit()
        if word.startswith(prefix) and begins_with_digit:
            return meaning.format(number)
    return _XMMA_WORDS.get(word)


_TUNED = lazy_pattern(
    rf"(?:_5x_cudnn_|cudnn_(?:infer_|train_)?)?(?P<arch>{GENERATION})_"
    r"(?:(?P<out>fp16|bf16|int8|fp32)_)?(?P<acc>[shid])(?P<mma>\d{1,6})?cudnn"
    r"(?:_(?P<a>fp16|bf16|int8))?(?P<mid>(?:_[A-Za-z]\w*?)?)_(?P<tile_m>\d{1,4})"
    r"x(?P<tile_n>\d{1,4})(?P<rest>(?:_[A-Za-z0-9]+)*)"
)
_SDPA = lazy_pattern(
    r"cudnn_generated_\w*?sdpa_sm(?P<cc>\d{2,3})_flash_(?P<pass>fprop|bprop)(?P<rest>\w*)"
)
# cuDNN 7: `Volta_hmma_implicit_gemm_fprop_fp32_nhwc_128x128x64x1_1x3x3x0x1`.
_IMPLICIT = lazy_pattern(
    r"(?P<arch>Volta|Turing|Ampere)_\w{1,12}_implicit_gemm_(?P<pass>fprop|dgrad|wgrad)_\w+"
)
_CUTLASS = lazy_pattern(
    rf"(?:void )?cutlass_\w*cudnn\w*::(?:Kernel2?|device_kernel)<{SCOPE}"
)
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
_SHOWN_VARIANTS: Final = (
    "splitK",
    "stridedB",
    "small",
    "medium",
    "large",
    "interior",
    "xregs",
    "nhwc",
)
"""Words of a hand-tuned convolution's name that are shown."""


class _CxxKernel(NamedTuple):
    """What a cuDNN kernel with a C++ name does."""

    op: str | None  # None: the name does not say it
    pass_: str | None = None  # None: the operation has no passes


_CXX_KERNELS: Final = {
    "bn_fw": _CxxKernel("norm", "fwd"),
    "bn_bw": _CxxKernel("norm", "bwd"),
    "ToNhwcKernel": _CxxKernel("copy"),
    "ToNchwKernel": _CxxKernel("copy"),
    "wgrad_alg": _CxxKernel("conv", "wgrad"),
    "wgrad2d_": _CxxKernel("conv", "wgrad"),
    "dgrad_alg": _CxxKernel("conv", "dgrad"),
    "dgrad_engine": _CxxKernel("conv", "dgrad"),
    "dgrad2d_": _CxxKernel("conv", "dgrad"),
    "fft2d_": _CxxKernel("conv"),
    "im2col4d_": _CxxKernel("copy"),
    "flip_filter": _CxxKernel("copy"),
    "scalePackedTensor_": _CxxKernel("elementwise"),
    "convolve_sgemm": _CxxKernel("conv"),
    "conv2d_grouped_direct": _CxxKernel("conv", "fprop"),
    "pooling_fw": _CxxKernel("pool", "fwd"),
    "pooling_bw": _CxxKernel("pool", "bwd"),
    "softmax_fw": _CxxKernel("softmax", "fwd"),
    "softmax_bw": _CxxKernel("softmax", "bwd"),
}
"""What the base name of a C++ kernel says, by a piece of it; the first that is found
counts."""

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
    """Decode the name of a kernel of cuDNN.

    Returns None for a kernel of another library.

    >>> decode("volta_scudnn_128x64_relu_small_nn_v1").short
    'conv fp32 128x64 volta relu small'
    """
    if "cudnn" in name[:40]:
        tuned = _TUNED.fullmatch(name)
        if tuned:
            return _build_hand_tuned_record(name, tuned)
        sdpa = _SDPA.fullmatch(name)
        if sdpa:
            return _build_attention_record(name, sdpa)
        in_cutlass = _CUTLASS.match(name)
        if in_cutlass:
            return _build_bundled_cutlass_record(name, in_cutlass)
    else:
        implicit = _IMPLICIT.fullmatch(name)
        if implicit:
            return _build_implicit_record(name, implicit)

    return _decode_cxx(name)


def _build_implicit_record(name: str, match: re.Match[str]) -> KernelName:
    """Build the record of a convolution of cuDNN 7.

    It runs as a matrix product, so the name begins like
    `Volta_hmma_implicit_gemm_fprop_fp32_nhwc_`.
    """
    return build(
        name,
        "cudnn",
        short=name.replace("_implicit_gemm", ""),
        parts=explain(match, {**_MEANINGS, **_PASS}),
        op="conv",
        pass_=match["pass"],
        arch_name=match["arch"],
    )


def _build_hand_tuned_record(name: str, match: re.Match[str]) -> KernelName:
    """Build the record of a hand-tuned convolution.

    The name is `volta_scudnn_128x64_relu_small_nn_v1`, for instance. Sums in fp32 imply
    operands in fp32 only if the name has neither another type nor a tensor-core
    instruction.
    """
    words_before_tile = match["mid"].split("_")
    words_behind_tile = match["rest"].split("_")
    words = words_before_tile + words_behind_tile
    algo = "winograd" if "winograd" in words else None
    fields: dict[str, Any] = {
        "op": "conv",
        **fields_of(match),
        "algo": algo,
        "split_k": True if "splitK" in words else None,
        "epilogue": "relu" if "relu" in words else None,
    }

    has_fp32_sums = match["acc"] == "s"
    names_other_type = match["out"] or match["a"]
    uses_tensor_cores = match["mma"] is not None
    if has_fp32_sums and not names_other_type and not uses_tensor_cores:
        fields["dtype_a"] = "fp32"
        fields["dtype_acc"] = "fp32"

    variants = [word for word in words_behind_tile if word in _SHOWN_VARIANTS]
    short = gemm_label("conv", fields, algo, *variants)
    parts = explain(match, _MEANINGS, _WORDS.get)
    return build(name, "cudnn", short, parts, **fields)


def _build_attention_record(name: str, match: re.Match[str]) -> KernelName:
    """Build the record of an attention kernel that cuDNN generated.

    The name is
    `cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_...`. What
    follows after `knob_` are settings of the generator; the short text ends with them.
    """
    options = match["rest"]
    pass_ = "fwd" if match["pass"] == "fprop" else "bwd"
    cluster = re.search(r"_cga(\d{1,6}x\d{1,6}x\d{1,6})", options)
    *_, knobs = options.split("knob_")
    return build(
        name,
        "cudnn",
        short=f"attention {pass_} cudnn sm{match['cc']} {knobs}",
        parts=explain(match, _PASS),
        op="attention",
        pass_=pass_,
        cluster=cluster[1] if cluster else None,
        **fields_of(match),
    )


def _build_bundled_cutlass_record(name: str, match: re.Match[str]) -> KernelName:
    """Build the record of a CUTLASS kernel that cuDNN bundles.

    Args:
        name: The full name of the kernel.
        match: The match of `_CUTLASS`. It ends where the name inside of `Kernel<...>`
            begins, which is a procedural one (see cutlass.py) or one of C++.
    """
    inner_start = match.end()
    procedural = cutlass.decode2_at(name, inner_start, "cudnn")
    if procedural:
        return procedural

    if "ReduceSplitK<" in name[inner_start : inner_start + 80]:
        short = "splitk-reduce of conv"
        return build(name, "cudnn", short, op="reduction", role="splitk_reduce")

    op = find_first_op(_IN_CUTLASS, name[: inner_start + 160])
    shown_class = name[inner_start : inner_start + 40]
    return build(name, "cudnn", f"cudnn {shown_class}", op=op)


def _read_cxx_types(name: str, sign: Signature, op: str | None) -> dict[str, Any]:
    """Determine the types of a kernel with a C++ name.

    Returns:
        `dtype` for a copy. `dtype_a` for a convolution, whose first template argument
        it is (`dgrad_engine<float, 512, ...>`). Empty for other kernels.
    """
    if op == "copy":
        return {"dtype": element_type(name, sign)}

    first_argument = read_arguments(name, sign, limit=1)
    if op == "conv" and first_argument:
        return {"dtype_a": cxx_type(first_argument[0])}
    return {}


def _decode_cxx(name: str) -> KernelName | None:
    """Decode the C++ name of a kernel of cuDNN.

    Returns None if neither its namespace nor its base name is one of cuDNN.
    """
    sign = signature(name)
    if sign is None:
        return None

    base = sign.base
    has_known_base = base.startswith(_BASES) or "convolve_sgemm" in base
    if not has_known_base and not sign.scope.startswith(_SCOPES):
        return None

    kernel = _find_cxx_kernel(base)
    op = kernel.op
    algo = None
    if sign.mangled and "ImplicitGemmConvolution" in name[:160]:
        op = "conv"
    if "winograd" in f"{sign.scope}{base}".lower():
        op = "conv"
        algo = "winograd"
    if base.startswith("fft2d_"):  # from or to the frequencies of a convolution
        algo = "fft"

    shown_base = base.replace("_kernel", "").removesuffix("Kernel")
    return build(
        name,
        "cudnn",
        short=callee_text(name, sign, shown_base),
        parts=[sign.explain_base("a kernel of cuDNN")],
        op=op,
        pass_=kernel.pass_,
        algo=algo,
        **_read_cxx_types(name, sign, op),
    )


def _find_cxx_kernel(base: str) -> _CxxKernel:
    """Return what a cuDNN kernel does, by a word in its base name."""
    for word, kernel in _CXX_KERNELS.items():
        if word in base:
            return kernel
    return _CxxKernel(op=None)
