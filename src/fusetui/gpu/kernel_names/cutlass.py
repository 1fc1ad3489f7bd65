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

from fusetui.text.patterns import late

from .cxx import SCOPE, cute_tuple
from .record import (
    KernelName,
    Meanings,
    build,
    epilogue_of,
    explain,
    fields_of,
    gemm_label,
)
from .vocabulary import (
    ACCUMULATORS,
    CUTLASS,
    CXX_TYPE,
    accumulator_meaning,
    cxx_type,
    layout_meaning,
    mma_meaning,
)

_TYPE = "|".join(sorted(CUTLASS, key=len, reverse=True))
_WRAPPER = late(rf"(?:void )?(?:{SCOPE}cutlass::Kernel2?<)?{SCOPE}(?=cutlass_)")
_MANGLED_WRAPPER = late(
    r"_ZN\d{1,3}cutlass\w{0,40}?\d{1,3}Kernel2?I\d{1,4}(?=cutlass_)"
)
_BODY = late(
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
    "mma": mma_meaning,
    "math": "the operands are converted to {} on the way into the multiplication",
    "kind": _KINDS.__getitem__,
    "tile_k": "each pipeline stage holds {} of K",
    "layout": lambda text: (
        f"the tensors are stored as {text}" if "hw" in text else layout_meaning(text)
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
_HEAD3 = late(r"cutlass3x_sm(?P<cc>\d{2,3})[af]?_[a-z]+_(?P<after>\w+)")
_NAME3 = late(
    r"cutlass3x_sm(?P<cc>\d{2,3})[af]?_(?P<class>[a-z]+)_(?P<acc>[shdicz](?=\d|gemm))?"
    r"(?P<mma>\d{1,4}x\d{1,4}x\d{1,4}|\d{1,6})?(?:_?(?P<math>\d?x?[a-z]{1,8}\d{0,3}))??"
    r"gemm_(?P<scaled>block_scaled_)?"
    rf"(?P<dtype_a>{_TYPE3})_(?P<dtype_b>{_TYPE3})_(?P<dtype_acc>{_TYPE3})_(?P<c>{_TYPE3})"
    rf"_(?P<dtype_out>{_TYPE3})"
    r"_(?P<tile_m>\d{1,4})x(?P<tile_n>\d{1,4})x(?P<tile_k>\d{1,4})"
    r"(?:_(?P<cluster>\d{1,6}x\d{1,6}x\d{1,6}))?"
    r"_(?P<stages>\d{1,3})_(?P<layout>[ntch]{2})[ntch]_align(?P<align>\d{1,3})(?P<rest>\w*)"
)
_AUTOMATIC: Final = "the number of pipeline stages is chosen automatically"
_OUTPUT: Final = {"tile_m": "output tile: {} rows", "tile_n": "output tile: {} columns"}
_MEANINGS3: Meanings = {
    **_OUTPUT,
    "cc": "needs compute capability {}",
    "class": "{}: which units multiply (tensorop: tensor cores, bs: block scaled, simt: ordinary)",
    "acc": "{}: the type of the sums (s fp32, h fp16, d fp64, i int32, c complex)",
    "mma": "tensor-core instruction {}",
    "math": "{}: the arithmetic, when the operands are converted on the way in",
    "scaled": "each block of the operands has its own scale",
    "dtype_a": "type of A: {}",
    "dtype_b": "type of B: {}",
    "dtype_acc": "type of the sums: {}",
    "c": "type of the added C: {}",
    "dtype_out": "type of the result: {}",
    "stages": lambda text: (
        _AUTOMATIC if text == "0" else f"pipeline stages in flight: {text}"
    ),
    "layout": layout_meaning,
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

_TILE = cute_tuple("tile_m", "tile_n", "tile_k")
_CLUSTER = cute_tuple("x", "y", "z")
_SHAPED: Final = tuple(
    late(pattern)
    for pattern in (
        rf"vllm::cutlass_3x_gemm\w*<(?P<dtype_a>{CXX_TYPE}), (?P<dtype_out>{CXX_TYPE}), [\w:]+, "
        rf"{_TILE}, {_CLUSTER}",
        rf"vllm::cutlass_3x_gemm\w*<(?P<dtype_out>{CXX_TYPE}), (?:\d{{1,6}}, ){{3}}{_TILE}, "
        rf"{_CLUSTER}",
        rf"MainloopSm(?P<cc>\d{{2,3}})\w*<(?:\(int\))?(?P<stages>\d{{1,3}}), (?:\d{{1,6}}, )*"
        rf"{_CLUSTER}[^>]*(?:>[^>]*)?>, {_TILE}",
    )
)
_ATTENTION = late(r"[Ff]mha|FMHA|[Aa]ttention|Mla[A-Z]")
_GEMM = late(r"machete::Machete|GemmUniversal|GemmKernel|gemm::kernel::|grouped_gemm")
_LONGEST_TARGET: Final = 40
_SHAPED_MEANINGS: Meanings = {
    **_OUTPUT,
    "dtype_a": "type of A and B",
    "dtype_out": "type of the result",
    "x": "cluster of {} blocks along M",
    "y": "cluster of {} blocks along N",
}


def decode2(name: str) -> KernelName | None:
    wrapper = _WRAPPER.match(name) or _MANGLED_WRAPPER.match(name)
    if wrapper is None:
        return None
    return decode2_at(
        name, wrapper.end(), "cudnn" if "cudnn" in wrapper[0] else "cutlass2"
    )


def decode2_at(name: str, start: int, family: str) -> KernelName | None:
    """The record of the procedural name at `start`; cuDNN wraps such names in its
    namespaces."""
    if (match := _BODY.match(name, start)) is None:
        return None
    kind, middle = match["kind"], match["rest"].split("_")
    fields: dict[str, Any] = (
        {"op": "gemm"} if kind == "gemm" else {"op": "conv", "pass_": kind}
    )
    fields |= {
        **_types2(match),
        **fields_of(match),
        "epilogue": epilogue_of(match["rest"]),
    }
    words = [middle[1] if kind != "gemm" and match["rest"] else None]
    words += [f"a{fields['align']}" if fields.get("align") else None]
    words += [word for word in ("wmma", "simt") if match["class"].startswith(word)]
    words += ["planar" if "_planar" in match["rest"] else None]
    short = gemm_label(fields.get("pass_") or "gemm", fields, *words)
    return build(name, family, short, explain(match, _MEANINGS, _WORDS.get), **fields)


def _types2(match: re.Match[str]) -> dict[str, str | None]:
    """C and A are printed only if they differ from the accumulator; planar types are
    per plane. 1688 with fp32 accumulation and no operand type is TF32 arithmetic on
    fp32 data. Tensor cores do not multiply fp32 or int32: without a type only TF32 data
    is certain."""
    if match["acc"] is None or "_planar" in match["rest"]:
        return {}
    acc, mma, math = (
        ACCUMULATORS[match["acc"]],
        match["mma"],
        CUTLASS.get(match["math"] or ""),
    )
    given = [CUTLASS[word] for word in match["rest"].split("_") if word in CUTLASS]
    if not match["math"] and (match["acc"], mma, match["kind"]) == (
        "s",
        "1688",
        "gemm",
    ):
        math = None if given else "tf32"
    fp32_data = mma in (None, "1688") or match["math"]
    unknown = acc == "int32" or (acc == "fp32" and not fp32_data)
    operand = given[0] if given else None if unknown else acc
    return {
        "dtype_a": operand,
        "dtype_b": given[1] if len(given) > 1 else operand,
        "dtype_acc": acc,
        "dtype_out": CUTLASS.get(match["c"] or "", acc),
        "math": math,
    }


def decode3(name: str) -> KernelName | None:
    """The record of a procedural 3.x name:
    `cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_void_bf16_128x128x64_..._align8_...`."""
    match = _NAME3.fullmatch(name)
    if match is None:
        if (head := _HEAD3.fullmatch(name)) is None or "gemm" not in head["after"]:
            return None
        short, parts = f"gemm sm{head['cc']} {head['after']}", explain(head, _MEANINGS3)
        return build(name, "cutlass3", short, parts, op="gemm", **fields_of(head))
    words = match["rest"].split("_")
    fields = {
        "op": "gemm",
        "math": CUTLASS.get(match["math"] or ""),
        # A scale type precedes its element type: ue8m0xe4m3. Complex types are left
        # open.
        **fields_of(match, lambda word: CUTLASS.get(word.rpartition("x")[2])),
        "stages": int(match["stages"]) or None,
        "epilogue": epilogue_of(match["rest"]),
        "stream_k": True if "_stream_k" in match["rest"] else None,
    }
    more = [word for word in words if word in ("1sm", "2sm", "pingpong")]
    more += ["stream-k"] if fields["stream_k"] else []
    short = gemm_label("gemm", {**fields, "epilogue": None}, *more, fields["epilogue"])
    return build(
        name, "cutlass3", short, explain(match, _MEANINGS3, _WORDS3.get), **fields
    )


def decode_cxx(name: str) -> KernelName:
    head = name[:3000]
    match = next(
        (found for pattern in _SHAPED if (found := pattern.search(head))), None
    )
    if match is None:
        op = (
            "attention"
            if _ATTENTION.search(head)
            else "gemm"
            if _GEMM.search(head)
            else None
        )
        target = head.partition("<")[2].partition(">")[0].partition("<")[0]
        return build(name, "cutlass3", f"{op or 'cutlass'} {_inner(target)}", op=op)
    fields = {"op": "gemm", **fields_of(match, cxx_type)}
    fields |= {
        "dtype_b": fields.get("dtype_a"),
        "cluster": "x".join(match.group("x", "y", "z")),
    }
    words = (fields["cluster"], "blockwise" if "blockwise" in head else None)
    short = gemm_label("gemm", fields, *words)
    return build(name, "cutlass3", short, explain(match, _SHAPED_MEANINGS), **fields)


_CXX2 = late(
    r"(?:void )?cutlass::Kernel2?<(?:cutlass::)?(?P<scope>gemm|conv)::kernel::(?P<kernel>\w{1,80})<"
)
MAX_TILE_CHARACTERS = 200  # from the kernel's name to its tile
_THREADBLOCK = late(
    r"::threadblock::(?:ImplicitGemm|Mma)\w{0,40}<cutlass::gemm::GemmShape<"
    r"(?P<tile_m>\d{1,4}), ?(?P<tile_n>\d{1,4}), ?(?P<tile_k>\d{1,4})>"
)


def decode_cxx2(name: str) -> KernelName | None:
    """The record of a kernel of 2.x that was written as C++ and has no procedural name:
    `void
    cutlass::Kernel<cutlass::gemm::kernel::Gemm<cutlass::gemm::threadblock::MmaPipelined<
    cutlass::gemm::GemmShape<128, 128, 32>, ...`."""
    match = _CXX2.match(name)
    if match is None:
        return None
    kernel = match["kernel"]
    if match["scope"] == "conv":
        op = "conv" if "Convolution" in kernel else None
    else:
        op = "gemm" if "Gemm" in kernel else "gemv" if "Gemv" in kernel else None
    block = _THREADBLOCK.search(
        name, match.end() - 1, match.end() + MAX_TILE_CHARACTERS
    )
    if op is None or block is None:
        return build(name, "cutlass2", f"{op or 'cutlass'} {kernel}", op=op)
    fields = {"op": op, **fields_of(block)}
    short = gemm_label(op, fields, kernel)
    return build(name, "cutlass2", short, explain(block, _OUTPUT), **fields)


def _inner(target: str) -> str:
    """As many of the innermost names of a scope as 40 characters hold, at least one.

    >>> _inner("a::some_long_namespace::another_namespace::Kernel")
    'another_namespace::Kernel'
    """
    found, *outer = reversed(target.split("::"))
    for scope in outer:
        if len(scope) + 2 + len(found) > _LONGEST_TARGET:
            break
        found = f"{scope}::{found}"
    return found
