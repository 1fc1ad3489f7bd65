"""Texts that the fields of an event may have: usual ones, odd ones, and what JSON does
not know."""

from __future__ import annotations

import json
from random import Random

NUMBERS = (
    *(
        "0",
        "-0",
        "1",
        "-1",
        "7",
        "1.5",
        "-2.25",
        "0.0005",
        "0.0015",
        "1e3",
        "1E5",
        "1e-400",
    ),
    *(
        "1e400",
        "-1e400",
        "1e1000000",
        "NaN",
        "Infinity",
        "-Infinity",
        "2147483648",
        "-2147483649",
    ),
    *(
        "9007199254740993",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775809",
    ),
    *(
        "18446744073709551616",
        "2305843009213693",
        "2305843009213694",
        "99999999999999999999",
    ),
    *("4611686018427387", "8796093022208", "8796093022208.001", "1712195495519689.047"),
)
STRINGS = (
    *(
        '""',
        '"a"',
        '"X"',
        '"M"',
        '"B"',
        '"E"',
        '"C"',
        '"i"',
        '"é"',
        '"\\u00e9"',
        '"\\ud83d\\ude00"',
    ),
    *(
        '"\\ud800"',
        '"\\udfff\\ud800"',
        '"\\u0000"',
        '"\\u001b]0;P\\u0007"',
        '"\\u202ea\\u200b"',
    ),
    *(
        '"},{\\"ph\\":\\"X\\""',
        '"]"',
        '"["',
        '"}{"',
        '"\\\\"',
        '"\\""',
        '"\\\\\\""',
        '"\\/"',
        '"\\n"',
    ),
    *(
        '"12"',
        '" 1.5 "',
        '"1e3"',
        '"nan"',
        '"inf"',
        '"1_0"',
        '"٣"',
        '"0x10"',
        '"true"',
        '"null"',
    ),
    *(
        '"kernel"',
        '"cpu_op"',
        '"cuda_runtime"',
        '"user_annotation"',
        '"ProfilerStep#1"',
        '"[memory]"',
    ),
    *(
        '"traceEvents"',
        '"\\"traceEvents\\": ["',
        '"thread 7 (main)"',
        '"stream 7"',
        '"GPU 0"',
    ),
)
OTHERS = (
    *(
        "null",
        "true",
        "false",
        "[]",
        "{}",
        "[1,[2,{}]]",
        '{"a":{"b":[]}}',
        "[null]",
        '[""]',
    ),
    *(
        '{"ph":"X","ts":1}',
        '[{"ph":"X","ts":1},{"ph":"X","ts":2}]',
        '{"name":"x"}',
        '{"":""}',
    ),
)
UNKNOWN = (  # to JSON; some writers use the first of them
    *(
        "nan",
        "-nan",
        "inf",
        "-inf",
        "0x262ca50",
        "ncclFloat32",
        "None",
        "True",
        "undefined",
        "'a'",
    ),
    *(
        "+1",
        ".5",
        "1.",
        "01",
        "1e",
        "--1",
        '"a"b"',
        '"\\x41"',
        '"\\u12"',
        "[1,]",
        '{"a":1,}',
    ),
    *(
        '"C:\\new\\path"',
        '"say /"hi/""',
        '"a\nb"',
        '"a\x1bb"',
        "",
        '{"a"}',
        "{1:2}",
        "[1 2]",
    ),
)
KEYS = (
    *(
        "ph",
        "ts",
        "dur",
        "name",
        "cat",
        "pid",
        "tid",
        "args",
        "id",
        "id2",
        "scope",
        "bp",
        "s",
    ),
    *(
        "tts",
        "tdur",
        "x y",
        "External id",
        "correlation",
        "",
        '\\"',
        "\\u0070h",
        "é",
        "\\ud800",
    ),
)
ARGS = (
    *(
        "correlation",
        "External id",
        "external id",
        "name",
        "labels",
        "sort_index",
        "grid",
        "block",
    ),
    *(
        "Input Dims",
        "Input type",
        "Input Strides",
        "Concrete Inputs",
        "Sequence number",
        "stream",
    ),
    *(
        "device",
        "registers per thread",
        "shared memory",
        "est. achieved occupancy %",
        "Ev Idx",
    ),
    *(
        "Python id",
        "Python parent id",
        "Total Allocated",
        "Total Reserved",
        "Device Type",
        "bytes",
    ),
    *(
        "Device Id",
        "Call stack",
        "Module Hierarchy",
        "Collective name",
        "In msg nelems",
        "dtype",
    ),
)
NAMES = (
    *(
        "aten::mm",
        "aten::linear",
        "aten::addmm",
        "aten::copy_",
        "aten::empty",
        "aten::conv2d",
    ),
    *(
        "aten::_scaled_dot_product_flash_attention",
        "aten::add_",
        "autograd::engine::evaluate",
    ),
    *(
        "nn.Module: Linear_0",
        "torch/nn/modules/linear.py(125): forward",
        "<built-in method mm>",
    ),
    *(
        "cudaLaunchKernel",
        "cuLaunchKernel",
        "cudaGraphLaunch",
        "hipLaunchKernel",
        "cudaMemcpyAsync",
    ),
    *(
        "ProfilerStep#3",
        "Optimizer.step#SGD.step",
        "Context Sync",
        "Iteration Start: PyTorch",
    ),
    "CompiledFxGraph",
)
KERNELS = (
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute",
    "cutlass_80_tensorop_s1688gemm_128x256_16x3_nn_align4",
    "nvjet_tst_128x160_64x6_2x1_v_bz_TNT",
    "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_MI16x16x1_SN",
    "triton_poi_fused_add_gelu_mul_0",
    "triton_red_fused_native_layer_norm_3",
    "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false>, false, true>",
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
    "at::detail::Array<char*, 1> >(int, at::native::FillFunctor<float>)",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps> >",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, long, int> >",
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>",
    "Memcpy HtoD (Pageable -> Device)",
    "Memcpy PtoP (Device -> Device)",
    "Memset (Device)",
    "kernel_unknown_7",
)


def number(rnd: Random) -> str:
    return rnd.choice(NUMBERS) if rnd.random() < 0.6 else str(rnd.randint(-5, 50))


def value(rnd: Random, levels: int = 3) -> str:
    """Any value that JSON knows."""
    share = rnd.random()
    if share < 0.35:
        return number(rnd)
    if share < 0.7:
        return rnd.choice(STRINGS)
    if share < 0.9 or not levels:
        return rnd.choice(OTHERS)
    if share < 0.95:
        return (
            "["
            + ",".join(value(rnd, levels - 1) for _ in range(rnd.randint(0, 4)))
            + "]"
        )
    return object_of(rnd, levels - 1)


def object_of(rnd: Random, levels: int = 3) -> str:
    names = (
        rnd.choice(ARGS if rnd.random() < 0.5 else KEYS)
        for _ in range(rnd.randint(0, 5))
    )
    return "{" + ",".join(f'"{name}":{value(rnd, levels)}' for name in names) + "}"


def nested(rnd: Random) -> str:
    """Levels that Python's reader, or ours, takes or just does not take."""
    levels = rnd.choice((3, 60, 70, 300, 1030, 3000, 20_000))
    begin, end = rnd.choice((("[", "]"), ('{"a":', "}"), ('[{"ph":', "}]")))
    return begin * levels + "1" + end * levels


def quoted(text: str, rnd: Random) -> str:
    return json.dumps(text, ensure_ascii=rnd.random() < 0.5)
