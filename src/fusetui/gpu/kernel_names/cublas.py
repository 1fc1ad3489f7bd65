"""Kernels of cuBLAS: hand-tuned ones, nvjet (Hopper and later), and small ones.

NVIDIA does not document the schemes (NVIDIA/TensorRT-LLM issue 1541). Of the
hand-tuned, tile, stages, instruction and operand types agree with the machine code and
the shared memory of real kernels; `stages_64x3` is explained in an NVIDIA developer
forum thread (297449). Of nvjet, tile, stages, cluster and layout were checked against
the grids of real launches of a few kernels. What rests on patterns alone says probably.
The small ones have plain C++ names; what each does was checked against the ops that
launched it.

    {arch}_[{out}_]{acc}{mma}gemm[_{in}]_{M}x{N}[_sliced{a}x{b}][_ldg{n}][_relu][_f2f]
        [_stages_{K}x{S}][_lower|_upper]_{AB}[_v1]
    nvjet_[sm{cc}_]{types}_{M}x{N}_{K}x{stages}_{cx}x{cy}_[2cta_]{v|h}_{bz|badd}[_coopA|_coopB]
        [_bias][_splitK][...]_{ABC}
"""

from __future__ import annotations

import re
from typing import Any, Final

from fusetui.text.patterns import lazy_pattern

from . import vocabulary
from .cxx import Signature, callee_text, signature, split_args
from .record import (
    KernelName,
    Meanings,
    Part,
    build,
    explain,
    fields_of,
    find_epilogue,
    gemm_label,
)

_TYPE = "|".join(vocabulary.CUBLAS_WORDS)
_TUNED = lazy_pattern(
    rf"(?:trt_)?(?P<arch>{vocabulary.GENERATION})_(?:(?P<out>{_TYPE})_)?"
    rf"(?P<acc>g[cz]|[shdicz])(?P<mma>\d{{1,6}})?gemm(?:_(?P<a>{_TYPE}))?_(?P<tile_m>\d{{1,4}})"
    r"x(?P<tile_n>\d{1,4})(?P<rest>(?:_[a-z0-9]+)*)_(?P<layout>[ntch]{2})(?:_v\d{1,6})?"
)
_STAGES = lazy_pattern(r"_stages_(?P<tile_k>\d{1,4})x(?P<stages>\d{1,3})(?:_|$)")
_TUNED_MEANINGS: Meanings = {
    "arch": "built for the {} generation",
    "out": "the result is stored as {}",
    "a": "A and B are {}",
    "tile_m": "output tile of one block: {} rows of C (cuBLAS counts by columns)",
    "tile_n": "output tile of one block: {} columns of C",
    "acc": vocabulary.accumulator_meaning,
    "mma": vocabulary.explain_mma,
    "layout": vocabulary.explain_layout,
}
_SHOWN_VARIANTS: Final = ("lower", "upper", "sliced")
_TUNED_WORDS: Final = {
    "relu": "can apply a ReLU when it stores; plain matrix products run it too",
    "f2f": "probably converts the sums to the output type when it stores",
    "stages": "a software pipeline: the slice of K of one stage x the number of stages",
    "lower": "probably writes the lower triangle only",
    "upper": "probably writes the upper triangle only",
}

_NVJET = lazy_pattern(
    r"nvjet_(?:sm(?P<cc>\d{2,3})_)?(?P<types>[a-z]{3}|[a-z]{5})_(?P<tile_m>\d{1,4})"
    r"x(?P<tile_n>\d{1,4})_(?P<tile_k>\d{1,4})x(?P<stages>\d{1,3})_(?P<cluster>\d{1,6}x\d{1,6})"
    r"(?P<rest>(?:_[A-Za-z0-9]+)*)_(?P<layout>[NT]{3})"
)
# o (fp4) and d (fp64) rest on patterns alone and settle nothing.
_NVJET_TYPES: Final = {"h": "fp16", "t": "bf16", "s": "fp32", "q": "fp8"}
_NVJET_MEANINGS: Final = {
    "types": "{}: types of A/B, sums, D or of A, B, C, sums, D (h fp16, t bf16, s fp32, q fp8)",
    "tile_m": "output tile of one block: {} rows (cuBLAS counts by columns)",
    "tile_k": "each pipeline stage holds {} of K",
    "layout": "{}: the transposes of A, B and C",
}
_NVJET_WORDS: Final = {
    "2cta": "two blocks share one instruction",
    "v": "probably walks the tiles down the columns",
    "h": "probably walks the tiles along the rows",
    "bz": "probably beta is 0: C is not read",
    "badd": "probably C is added",
    "coopA": "probably two warp groups share a tile along A",
    "coopB": "probably two warp groups share a tile along B",
    "bias": "can add a bias when it stores",
    "splitK": "K is split over blocks; a splitKreduce_kernel follows",
    "Avec32UE8M0": "probably A has a UE8M0 scale for 32 elements (mxfp8)",
    "Bvec32UE8M0": "probably B has a UE8M0 scale for 32 elements (mxfp8)",
    "Avec16UE4M3": "probably A has a UE4M3 scale for 16 elements (nvfp4)",
    "Bvec16UE4M3": "probably B has a UE4M3 scale for 16 elements (nvfp4)",
}

_VECTOR_TILE = lazy_pattern(
    r"(?P<acc>[sdchz])gemm_(?P<tile_m>\d{1,4})x(?P<tile_n>\d{1,4})x(?P<tile_k>\d{1,4})"
    r"_(?P<layout>[NTC]{2})(?P<vec>_vec)?"
)
_GEMV = lazy_pattern(r"gemv(?:\d[TN]|NSP|[TN])\w*_kernel\w*")
_SMALL_N = lazy_pattern(r"gemmSN_(?P<layout>[NT]{2})_kernel\w*")
_LARGE_K = lazy_pattern(r"(?P<acc>[sdchz])gemm_largek_")
_SMALL = lazy_pattern(r"(?:magma_[sdchz]gemm|gemmk1_kernel|gemmSN_)\w*")
_TENSOR = lazy_pattern(
    rf"cublasGemvTensor(?:Strided)?Batched<"
    rf"(?P<const>const )?(?P<dtype>{vocabulary.CXX_TYPE}|float2|double2)(?P<const_behind> const)? ?>"
)
_COMPLEX: Final = {"float2": "c64", "double2": "c128"}
_SMALL_OPS: Final = {
    "gemv": "a matrix times a vector",
    "gemm": "a matrix product of a special shape",
    "reduction": "a dot product or a sum",
}
"""What a small kernel does, by the field `op` of its name."""


def decode_tuned(name: str) -> KernelName | None:
    """Decode the name of a hand-tuned matrix product of cuBLAS.

    Such a name is `ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_..._tn`. Returns None
    for any other name.

    >>> decode_tuned("volta_sgemm_64x64_nt").short
    'gemm fp32 64x64 nt volta'
    """
    match = _TUNED.fullmatch(name)
    if match is None:
        return None

    options = match["rest"]  # such as `_ldg8_relu_stages_64x3`
    fields = {"op": "gemm", **fields_of(match), **_read_tuned_types(match)}
    fields["epilogue"] = "relu" if "_relu" in options else None
    stages = _STAGES.search(options)
    if stages:
        fields |= fields_of(stages)

    parts = explain(match, _TUNED_MEANINGS, _explain_tuned_word)
    variants = [word for word in options.split("_") if word.startswith(_SHOWN_VARIANTS)]
    uses_three_products = match["acc"].startswith("g")  # for one of complex numbers
    short = gemm_label("gemm3m" if uses_three_products else "gemm", fields, *variants)
    return build(name, "cublas-legacy", short, parts, **fields)


def _read_tuned_types(match: re.Match[str]) -> dict[str, str | None]:
    """Determine the element types of a hand-tuned kernel.

    The name has the type of the sums, and may have that of the operands. If it has
    none, fp16, fp64 and complex sums imply operands of their own type. fp32 sums do so
    only without a tensor-core instruction. Of complex products, a type in the name does
    not say what is multiplied. The result has the type of the sums unless the name has
    another one. With int32 sums it is then not known.

    Returns:
        `dtype_a`, `dtype_b`, `dtype_acc` and `dtype_out`, each None if the name does
            not determine it.
    """
    acc = vocabulary.ACCUMULATORS[match["acc"]]
    is_complex = acc.startswith("c")
    uses_tensor_cores = match["mma"] is not None

    named_operand = vocabulary.CUBLAS_WORDS.get(match["a"] or "")
    if named_operand is not None:
        operand = None if is_complex else named_operand
    elif acc == "fp32":
        operand = None if uses_tensor_cores else "fp32"
    else:
        operand = None if acc == "int32" else acc

    named_out = vocabulary.CUBLAS_WORDS.get(match["out"] or "")
    out_by_sums = None if acc == "int32" else acc
    return {
        "dtype_a": operand,
        "dtype_b": operand,
        "dtype_acc": acc,
        "dtype_out": named_out or out_by_sums,
    }


def _explain_tuned_word(word: str) -> str | None:
    """Explain a word behind the tile of a hand-tuned kernel.

    `64x3`, behind `stages`, is the slice of K and the number of stages. Returns None
    if the meaning is not known.

    >>> _explain_tuned_word("64x3")
    'each stage holds 64 of K; 3 stages in flight'
    """
    if word.startswith("ldg"):
        elements = word.removeprefix("ldg")
        return f"probably loads {elements} elements at a time from memory"
    if word.startswith("sliced"):
        return "probably splits K between the warps of a block as well"

    depth, _, stages = word.partition("x")
    if depth and stages:
        return f"each stage holds {depth} of K; {stages} stages in flight"
    return _TUNED_WORDS.get(word)


def decode_nvjet(name: str) -> KernelName | None:
    """Decode the name of an nvjet matrix product.

    Such a name is `nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN`. Of later forms
    (`nvjet_sm121_tst_mma_128x128x64_3_...`) only the target is read.

    >>> decode_nvjet("nvjet_tst_256x8_64x6_2x1_v_bz_TNT").short
    'gemm bf16 256x8x64 tn s6 2x1'
    """
    match = _NVJET.fullmatch(name)
    if match is None:
        return _build_later_nvjet_record(name)

    options = match["rest"].split("_")
    layout_of_a_and_b = match["layout"][:2]  # the third letter is that of C
    fields = {
        "op": "gemm",
        **fields_of(match),
        **_read_nvjet_types(match["types"]),
        "layout": layout_of_a_and_b.lower(),
        "split_k": True if "splitK" in options else None,
        "epilogue": find_epilogue(match["rest"]),
    }

    parts = explain(match, _NVJET_MEANINGS, _NVJET_WORDS.get)
    variants = [option for option in options if option in ("2cta", "splitK", "badd")]
    short = gemm_label("gemm", fields, match["cluster"], *variants)
    return build(name, "nvjet", short, parts, **fields)


def _build_later_nvjet_record(name: str) -> KernelName:
    """Build the record of an nvjet name of a form that is not understood.

    It is a matrix product. The target is known if the name has one.
    """
    capability, *_ = name.removeprefix("nvjet_sm").split("_")
    return build(
        name,
        "nvjet",
        short=name.removeprefix("nvjet_"),
        parts=[(0, len("nvjet"), "a matrix product of cuBLAS")],
        op="gemm",
        **vocabulary.from_capability(capability),
    )


def _read_nvjet_types(letters: str) -> dict[str, str | None]:
    """Determine the types of an nvjet kernel.

    >>> _read_nvjet_types("tst")
    {'dtype_a': 'bf16', 'dtype_b': 'bf16', 'dtype_acc': 'fp32', 'dtype_out': 'bf16'}

    Args:
        letters: Three letters are the types of A and B, the sums and D; five are those
            of A, B, C, the sums and D.

    Returns:
        `dtype_a`, `dtype_b`, `dtype_acc` and `dtype_out`, each None for an unknown
        letter.
    """
    types = [_NVJET_TYPES.get(letter) for letter in letters]
    if len(types) == 3:
        dtype_a, dtype_acc, dtype_out = types
        dtype_b = dtype_a
    else:
        dtype_a, dtype_b, _dtype_c, dtype_acc, dtype_out = types
    return {
        "dtype_a": dtype_a,
        "dtype_b": dtype_b,
        "dtype_acc": dtype_acc,
        "dtype_out": dtype_out,
    }


def decode_small(name: str) -> KernelName | None:
    """Decode the name of a small kernel of cuBLAS.

    Such kernels multiply a matrix and a vector, compute products of special shapes or
    dot products, add up the parts of a split K, or help. Returns None for a kernel of
    another library.

    >>> name = "void gemv2T_kernel_val<int, float, float, 128, 16, false>(int)"
    >>> decode_small(name).short
    'gemv2T_val fp32 128.16.n'
    """
    sign = signature(name)
    fields = None if sign is None else _read_small_fields(name, sign)
    if sign is None or fields is None:
        return None

    short = callee_text(name, sign, _begin_small_short(sign, fields))
    parts = [_explain_small_name(sign, fields)]
    return build(name, "cublas-aux", short, parts, **fields)


def _begin_small_short(sign: Signature, fields: dict[str, Any]) -> str:
    """Return what the short text of a small kernel begins with.

    It is the base name without `_kernel`. The second pass of a split K is
    `splitk-reduce`. Kernels of the namespace gemvx are `gemvx`, because their base name
    is only `kernel`.
    """
    adds_up_partial_sums = fields.get("role") == "splitk_reduce"
    if adds_up_partial_sums:
        return "splitk-reduce"
    if _is_gemvx(sign):
        return "gemvx"
    return sign.base.replace("_kernel", "")


def _explain_small_name(sign: Signature, fields: dict[str, Any]) -> Part:
    """Explain one part of the name of a small kernel.

    It is the two letters of the layout where the base name has them
    (`sgemm_32x32x32_NT_vec`), else the whole base name.
    """
    layout = fields.get("layout")
    if layout is not None:
        underscore = sign.start + sign.base.index(f"_{layout.upper()}")
        start = underscore + 1
        return start, start + len(layout), vocabulary.explain_layout(layout)

    if fields.get("role") == "splitk_reduce":
        return sign.explain_base("adds up the partial sums of a split K")
    if "op" in fields:
        return sign.explain_base(_SMALL_OPS[fields["op"]])
    return sign.explain_base("a helper of cuBLAS")


def _is_gemvx(sign: Signature) -> bool:
    """Return whether a kernel is one of `internal::gemvx::kernel<...>`.

    These multiply a matrix by a vector.
    """
    return sign.base == "kernel" and sign.scope.endswith("gemvx::")


def _make_single_type_fields(letter: str) -> dict[str, str]:
    """Return the types of a product that computes everything in one type.

    >>> _make_single_type_fields("d")
    {'dtype_a': 'fp64', 'dtype_b': 'fp64', 'dtype_acc': 'fp64', 'dtype_out': 'fp64'}

    Args:
        letter: The BLAS letter before `gemm`: `s` is fp32.

    Returns:
        `dtype_a`, `dtype_b`, `dtype_acc` and `dtype_out`.
    """
    dtype = vocabulary.ACCUMULATORS[letter]
    return {
        "dtype_a": dtype,
        "dtype_b": dtype,
        "dtype_acc": dtype,
        "dtype_out": dtype,
    }


def _read_tensor_types(name: str, sign: Signature) -> dict[str, str | None]:
    """Determine the types of a small product from the tensors among its arguments.

    Tensors are written as `cublasGemvTensorBatched<float const>`. Those that the kernel
    reads are const, and the one that it writes is not.

    Returns:
        `dtype_a`, `dtype_b` and `dtype_out`. Empty unless there are tensors that are
        read and exactly one that is written.
    """
    if not sign.has_arguments:
        return {}

    read_types: list[str | None] = []
    written_types: list[str | None] = []
    list_end = split_args(name, sign.args).end
    for tensor in _TENSOR.finditer(name, sign.args, list_end):
        cxx_name = tensor["dtype"]
        dtype = _COMPLEX.get(cxx_name) or vocabulary.cxx_type(cxx_name)
        is_const = tensor["const"] or tensor["const_behind"]
        types = read_types if is_const else written_types
        types.append(dtype)

    if not read_types or len(written_types) != 1:
        return {}
    return {
        "dtype_a": read_types[0],
        "dtype_b": read_types[-1],
        "dtype_out": written_types[0],
    }


def _read_small_fields(name: str, sign: Signature) -> dict[str, Any] | None:
    """Determine the fields of a small kernel of cuBLAS.

    Returns:
        The fields; empty for a helper, None for a kernel of another library.
    """
    base = sign.base
    if base == "splitKreduce_kernel":
        return {"op": "reduction", "role": "splitk_reduce"}

    # gemv2T_kernel_val
    if _GEMV.fullmatch(base) or _is_gemvx(sign):
        return {"op": "gemv", **_read_tensor_types(name, sign)}

    # sgemm_32x32x32_NT_vec
    vector_tile = _VECTOR_TILE.fullmatch(base)
    if vector_tile:
        return {
            "op": "gemm",
            "layout": vector_tile["layout"].lower(),
            **_make_single_type_fields(vector_tile["acc"]),
            "tile_m": int(vector_tile["tile_m"]),
            "tile_n": int(vector_tile["tile_n"]),
            "tile_k": int(vector_tile["tile_k"]),
        }

    # gemmSN_TN_kernel
    small_n = _SMALL_N.fullmatch(base)
    if small_n:
        layout = small_n["layout"].lower()
        return {"op": "gemm", "layout": layout, **_read_tensor_types(name, sign)}

    # sgemm_largek_lds64
    large_k = _LARGE_K.match(base)
    if large_k:
        return {"op": "gemm", **_make_single_type_fields(large_k["acc"])}

    # gemmk1_kernel
    if _SMALL.fullmatch(base):
        return {"op": "gemm", **_read_tensor_types(name, sign)}

    if base in ("dot_kernel", "reduce_1Block_kernel") and sign.has_arguments:
        return {"op": "reduction"}
    return {} if _is_helper(name, sign) else None


def _is_helper(name: str, sign: Signature) -> bool:
    """Return whether a kernel belongs to cuBLAS although its name says no operation.

    cuBLAS passes structures named after it to its kernels. Wrappers of other libraries
    do not.
    """
    in_scope = sign.scope in ("", "cublasLt::", "epilogue::impl::")
    has_cublas_parameter = re.search(r"[( <]cublas", name) is not None
    return in_scope and not sign.mangled and has_cublas_parameter
