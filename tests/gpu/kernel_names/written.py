"""A corpus of kernel names that we compose ourselves, by the public rules of each
family.

Each writer composes a name from what the kernel is, so it is certain what the name
determines: these fields and no others. The writers share nothing with the decoders but
the vocabulary of the fields in docs/kernel-names.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple


class Written(NamedTuple):
    """A name and all fields that it determines, including the family."""

    name: str
    fields: Mapping[str, Any]


TILES = ((64, 64), (128, 64), (256, 128))
BLAS = ("nn", "nt", "tn")
FUNCTORS = (("CUDAFunctor_add", "elementwise", 3), ("FillFunctor", "fill", 1))


def types(a: str, acc: str, out: str) -> dict[str, str]:
    return {"dtype_a": a, "dtype_b": a, "dtype_acc": acc, "dtype_out": out}


def tile(m: int, n: int, k: int | None = None) -> dict[str, int]:
    return {"tile_m": m, "tile_n": n} | ({} if k is None else {"tile_k": k})


def target(arch: str, name: str) -> dict[str, str]:
    return {"arch": arch, "arch_name": name}


def cublas() -> Iterator[Written]:
    """Tensor-core products with a pipeline, and plain ones of one type."""
    gemm = {"family": "cublas-legacy", "op": "gemm", **target("sm80", "Ampere")}
    words = {"bf16": "bf16", "fp16": "fp16"}
    for (word, dtype), (m, n), ab, relu in product(
        words.items(), TILES, BLAS, (False, True)
    ):
        middle = "ldg8_relu_f2f" if relu else "ldg8_f2f"
        yield Written(
            f"ampere_{word}_s16816gemm_{word}_{m}x{n}_{middle}_stages_32x5_{ab}",
            gemm
            | types(dtype, "fp32", dtype)
            | tile(m, n, 32)
            | {"stages": 5, "layout": ab, "mma": "16x8x16"}
            | ({"epilogue": "relu"} if relu else {}),
        )
    for (letter, dtype), (m, n), ab in product(
        {"s": "fp32", "d": "fp64"}.items(), TILES, BLAS
    ):
        yield Written(
            f"ampere_{letter}gemm_{m}x{n}_{ab}",
            gemm | types(dtype, dtype, dtype) | tile(m, n) | {"layout": ab},
        )


def cutlass2() -> Iterator[Written]:
    """python/cutlass_library/gemm_operation.py of CUTLASS, bare and as cuBLAS wraps
    it."""
    for (word, dtype), (m, n), ab, wrapped in product(
        {"f16": "fp16", "bf16": "bf16"}.items(), TILES, BLAS, (False, True)
    ):
        body = f"cutlass_80_tensorop_{word}_s16816gemm_{word}_{m}x{n}_32x3_{ab}_align8"
        yield Written(
            f"void cutlass::Kernel2<{body}>({body}::Params)" if wrapped else body,
            {"family": "cutlass2", "op": "gemm", "align": 8, "stages": 3, "layout": ab}
            | target("sm80", "Ampere")
            | types(dtype, "fp32", dtype)
            | tile(m, n, 32)
            | {"mma": "16x8x16"},
        )


def cutlass3() -> Iterator[Written]:
    """The procedural names of CUTLASS 3: A, B, accumulator, C, D; tile; cluster;
    layouts of A, B, C."""
    for (word, dtype), (m, n), ab, schedule in product(
        {"f16": "fp16", "bf16": "bf16"}.items(),
        TILES,
        BLAS,
        ("pingpong", "cooperative"),
    ):
        yield Written(
            f"cutlass3x_sm90_tensorop_s64x{n}x16gemm_{word}_{word}_f32_{word}_{word}_{m}x{n}x64"
            f"_2x1x1_0_{ab}n_align8_warpspecialized_{schedule}_epi_tma",
            {
                "family": "cutlass3",
                "op": "gemm",
                "align": 8,
                "layout": ab,
                "cluster": "2x1x1",
            }
            | target("sm90", "Hopper")
            | types(dtype, "fp32", dtype)
            | tile(m, n, 64)
            | {"mma": f"64x{n}x16"},
        )


def xmma() -> Iterator[Written]:
    for (word, dtype), (m, n), ab, bias in product(
        {"f16": "fp16", "bf16": "bf16"}.items(), TILES, BLAS, (False, True)
    ):
        yield Written(
            f"sm80_xmma_gemm_{word}{word}_{word}f32_f32_{ab}_n_tilesize{m}x{n}x32_stage4_warpsize"
            f"2x2x1_tensor16x8x16{'_bias' if bias else ''}_execute_kernel__5x_cublas",
            {
                "family": "xmma",
                "op": "gemm",
                "stages": 4,
                "layout": ab,
                "mma": "16x8x16",
            }
            | target("sm80", "Ampere")
            | types(dtype, "fp32", dtype)
            | tile(m, n, 32)
            | ({"epilogue": "bias"} if bias else {}),
        )


def nvjet() -> Iterator[Written]:
    for (letters, dtype), (m, n), ab, split in product(
        {"hsh": "fp16", "tst": "bf16"}.items(), TILES, BLAS, (False, True)
    ):
        yield Written(
            f"nvjet_sm90_{letters}_{m}x{n}_64x4_2x1_v_bz{'_splitK' if split else ''}_{ab.upper()}N",
            {
                "family": "nvjet",
                "op": "gemm",
                "stages": 4,
                "layout": ab,
                "cluster": "2x1",
            }
            | target("sm90", "Hopper")
            | types(dtype, "fp32", dtype)
            | tile(m, n, 64)
            | ({"split_k": True} if split else {}),
        )


def tensile() -> Iterator[Written]:
    """The solution names of Tensile: A is stored as ilk or read transposed as lik."""
    layouts = {"Ailk_Bljk": "nn", "Ailk_Bjlk": "nt", "Alik_Bljk": "tn"}
    for (letters, dtype), (m, n), (letter, ab), (isa, name) in product(
        {"HHS": "fp16", "BBS": "bf16"}.items(),
        TILES,
        layouts.items(),
        {"90a": "CDNA2", "942": "CDNA3"}.items(),
    ):
        yield Written(
            f"Cijk_{letter}_{letters}_BH_MT{m}x{n}x32_MI16x16x16x1_SN_ISA{isa}",
            {"family": "tensile", "op": "gemm", "layout": ab, "mma": "16x16x16"}
            | target(f"gfx{isa}", name)
            | types(dtype, "fp32", dtype)
            | tile(m, n, 32),
        )


def inductor() -> Iterator[Written]:
    """`triton_{kind}_fused_{operators, sorted}_{number}` of torch/_inductor."""
    kinds = {"poi": "pointwise", "red": "reduction", "per": "persistent_reduction"}
    fused = (
        ("add",),
        ("gelu", "mul"),
        ("add", "native_layer_norm"),
        ("_to_copy", "mul", "sum"),
        ("_softmax", "div", "masked_fill"),
        ("add", "silu_backward"),
    )
    for ops, number in product(fused, (0, 17)):
        name = f"fused_{'_'.join(ops)}_{number}"
        found = {"fused_ops": list(ops)}
        for word, kind in kinds.items():
            op = {"op": "elementwise" if word == "poi" else "reduction"}
            yield Written(
                f"triton_{word}_{name}",
                {"family": "inductor-triton", "kernel_category": kind} | found | op,
            )
        yield Written(
            f"graph_2_cpp_{name}",
            {"family": "inductor-cpp", "kernel_category": "cpp"} | found,
        )


def aten() -> Iterator[Written]:
    """Templates of ATen/native/cuda: CUDALoops.cuh and Reduce.cuh."""
    words = {
        "float": "fp32",
        "c10::Half": "fp16",
        "c10::BFloat16": "bf16",
        "double": "fp64",
    }
    for (word, dtype), vec in product(words.items(), (2, 4)):
        for functor, op, arrays in (
            ("CUDAFunctor_add", "elementwise", 3),
            ("FillFunctor", "fill", 1),
        ):
            functor_of = f"at::native::{functor}<{word}>"
            array = f"std::array<char*, {arrays}ul>"
            yield Written(
                f"void at::native::vectorized_elementwise_kernel<{vec}, {functor_of}, {array} >"
                f"(int, {functor_of}, {array})",
                {"family": "aten-elementwise", "op": op, "functor": functor}
                | {"dtype": dtype, "vec": vec},
            )
        ops = f"at::native::MeanOps<{word}, float, float, {word}>"
        reduce = f"at::native::ReduceOp<{word}, {ops}, unsigned int, {word}, 4, {vec}>"
        yield Written(
            f"void at::native::reduce_kernel<512, 1, {reduce} >({reduce})",
            {"family": "aten-reduce", "op": "reduction", "functor": "MeanOps"}
            | {"dtype_a": dtype, "dtype_acc": "fp32", "dtype_out": dtype},
        )


def flash_attention() -> Iterator[Written]:
    """The traits of FlashAttention 2: head, rows and columns of a tile, warps, and the
    type.

    The flags of the kernel begin with Is_dropout and Is_causal.
    """
    for head, (word, dtype), causal in product(
        (32, 64, 128, 192),
        {"half_t": "fp16", "bfloat16_t": "bf16"}.items(),
        (False, True),
    ):
        sizes = f"{head}, 128, 64, 4"
        traits = (
            f"Flash_fwd_kernel_traits<{sizes}, false, false, cutlass::{word}, "
            f"Flash_kernel_traits<{sizes}, cutlass::{word}> >"
        )
        yield Written(
            f"void pytorch_flash::flash_fwd_kernel<{traits}, false, {str(causal).lower()}, false, "
            "false, true, true, false>(pytorch_flash::Flash_fwd_params)",
            {"family": "flash-attn", "op": "attention", "pass": "fwd", "head_dim": head}
            | {"dtype_a": dtype, "causal": causal}
            | tile(128, 64),
        )


def nccl() -> Iterator[Written]:
    """src/device/generate.py of NCCL; what only moves data names no operation and no
    type."""
    words = {"f32": "fp32", "bf16": "bf16", "f16": "fp16"}
    calls = {"AllReduce": "all_reduce", "ReduceScatter": "reduce_scatter"}
    end = "(ncclDevKernelArgsStorage<4096ul>)"
    for (call, collective), redop, (word, dtype), algo in product(
        calls.items(), ("Sum", "MinMax"), words.items(), ("RING", "TREE")
    ):
        yield Written(
            f"ncclDevKernel_{call}_{redop}_{word}_{algo}_LL{end}",
            {
                "family": "nccl",
                "op": "comm",
                "collective": collective,
                "redop": redop.lower(),
            }
            | {"dtype": dtype, "algo": algo.lower(), "proto": "ll"},
        )
    for call, collective in {
        "AllGather": "all_gather",
        "Broadcast": "broadcast",
    }.items():
        yield Written(
            f"ncclDevKernel_{call}_RING_LL{end}",
            {"family": "nccl", "op": "comm", "collective": collective}
            | {"algo": "ring", "proto": "ll"},
        )


def copies() -> Iterator[Written]:
    """Kineto's words for copies and fills."""
    kinds = {"Pageable": "H", "Pinned": "H", "Device": "D"}
    for (source, a), (sink, b) in product(kinds.items(), repeat=2):
        yield Written(
            f"Memcpy {a}to{b} ({source} -> {sink})",
            {"family": "memcpy", "op": "memcpy", "direction": f"{a}to{b}"},
        )
    for where in kinds:
        yield Written(f"Memset ({where})", {"family": "memset", "op": "memset"})


WRITERS = (
    cublas,
    cutlass2,
    cutlass3,
    xmma,
    nvjet,
    tensile,
    inductor,
    aten,
    flash_attention,
    nccl,
    copies,
)


def corpus() -> list[Written]:
    """All names of all writers."""
    return [written for writer in WRITERS for written in writer()]
