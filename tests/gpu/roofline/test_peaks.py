"""The table of peaks, and which of its figures a kernel is compared with."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fusetui.gpu.kernel_names import decode
from fusetui.gpu.roofline.bounds import determine_arithmetic, limits
from fusetui.gpu.roofline.inputs import Amount
from fusetui.gpu.roofline.peaks import BANDWIDTH, KINDS, PEAKS, Peak, peak_of


def device(name: str, sms: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "numSms": sms, **more}


@pytest.mark.parametrize(
    ("name", "sms", "bf16", "bandwidth"),
    [
        ("NVIDIA A100-SXM4-40GB", 108, 312.0, 1555),
        ("NVIDIA A100-SXM4-80GB", 108, 312.0, 2039),
        ("NVIDIA A100 80GB PCIe", 108, 312.0, 1935),
        ("NVIDIA H100 80GB HBM3", 132, 989.4, 3352),
        ("NVIDIA H100 PCIe", 114, 756.0, 2039),
        ("NVIDIA H200", 132, 989.4, 4800),
        ("NVIDIA GH200 480GB", 132, 989.4, 4000),
        ("NVIDIA B200", 148, 2250.0, 8000),
        ("NVIDIA A10G", 80, 70.0, 600),
        ("NVIDIA GeForce RTX 4090", 128, 165.2, 1008),
        ("AMD Instinct MI300X", 304, 1307.4, 5325),
        ("AMD Instinct MI300X VF", 304, 1307.4, 5325),
        ("AMD Instinct MI210", 104, 181.0, 1638.4),
    ],
)
def test_known_data_center_gpus_have_bf16_rate_and_bandwidth(
    name: str, sms: int, bf16: float, bandwidth: float
) -> None:
    peak = peak_of(device(name, sms))
    assert peak is not None
    assert (peak.teraflops["bf16"], peak.gigabytes_per_s) == (bf16, bandwidth)


@pytest.mark.parametrize(
    ("name", "sms", "fp16", "bandwidth"),
    [
        ("NVIDIA GeForce RTX 3070", 46, 40.6, 448),
        ("NVIDIA GeForce RTX 3080", 68, 59.5, 760),
        ("NVIDIA GeForce RTX 4080", 76, 97.5, 716.8),
        ("NVIDIA GeForce RTX 4080 Laptop GPU", 58, 67.7, 432),
        ("NVIDIA RTX A4000", 48, 76.7, 448),
        ("NVIDIA RTX A5000", 64, 111.1, 768),
        ("NVIDIA RTX A6000", 84, 154.8, 768),
        ("NVIDIA RTX 6000 Ada Generation", 142, 364.2, 960),
        ("Tesla P100-PCIE-16GB", 56, 18.7, 732),
        ("GeForce RTX 2070", 36, 31.5, 448),
        ("NVIDIA GeForce RTX 2070 SUPER", 40, 36.2, 448),
        ("NVIDIA GeForce RTX 2080", 46, 42.4, 448),
    ],
)
def test_known_workstation_gpus_have_fp16_rate_and_bandwidth(
    name: str, sms: int, fp16: float, bandwidth: float
) -> None:
    peak = peak_of(device(name, sms))
    assert peak is not None
    assert (peak.teraflops["fp16"], peak.gigabytes_per_s) == (fp16, bandwidth)


@pytest.mark.parametrize(
    ("size", "known"), [(12_487_294_976, True), (8_589_934_592, False)]
)
def test_an_rtx_3060_with_8_gb_has_slower_memory(size: int, known: bool) -> None:
    found = peak_of(device("NVIDIA GeForce RTX 3060", 28, totalGlobalMem=size))
    assert (found is not None) is known


def test_fp16_rate_of_rtx_tensor_cores_is_twice_or_four_times_fp32() -> None:
    """With sums in fp32 on Ampere and Ada; of workstation cards they are four times as
    fast, and TF32 twice."""
    for peak in PEAKS:
        if peak.pattern.startswith(r"\bRTX") and "tf32" in peak.teraflops:
            rates, is_geforce = peak.teraflops, "fp16_acc16" in peak.teraflops
            assert rates["fp16"] / rates["fp32"] == pytest.approx(
                2 if is_geforce else 4, rel=0.01
            )
            assert rates["tf32"] / rates["fp32"] == pytest.approx(
                1 if is_geforce else 2, rel=0.01
            )


FP32_CORES_OF_TURING = 64  # of a multiprocessor
FP32_CORES = 128  # of Ampere for graphics, Ada and Blackwell
BOOST_GHZ = {
    r"\bRTX 5090$": 2.407,
    r"\bRTX 4090$": 2.52,
    r"\bRTX 4080$": 2.505,
    r"\bRTX 4080 Laptop GPU$": 2.28,
    r"\bRTX 6000 Ada\b": 2.505,
    r"\bRTX 3090$": 1.695,
    r"\bRTX 3080$": 1.71,
    r"\bRTX 3070$": 1.725,
    r"\bRTX 3060$": 1.777,
    r"\bRTX A6000$": 1.8,
    r"\bRTX A5000$": 1.695,
    r"\bRTX A4000$": 1.56,
    r"\bRTX 2080 Ti$": 1.635,
    r"\bRTX 2080$": 1.8,
    r"\bRTX 2070$": 1.71,
    r"\bRTX 2070 SUPER$": 1.77,
}
"""The clocks of the makers' tables, of which their rates are made."""

RTX_PEAKS = [peak for peak in PEAKS if peak.pattern.startswith(r"\bRTX")]


@pytest.mark.parametrize("peak", RTX_PEAKS, ids=lambda peak: peak.pattern)
def test_rates_of_rtx_follow_from_their_clocks(peak: Peak) -> None:
    """Two operations for each core and clock, and the tensor cores in proportion: eight
    times as fast with sums in fp16 on Turing, and four times later, all dense."""
    is_turing = peak.pattern.startswith(r"\bRTX 20")
    cores = peak.sms * (FP32_CORES_OF_TURING if is_turing else FP32_CORES)
    rates = peak.teraflops
    fp32 = cores * 2 * BOOST_GHZ[peak.pattern] / 1000
    assert rates["fp32"] == pytest.approx(fp32, rel=0.01)
    assert rates["fp16_plain"] == pytest.approx(
        fp32 * (2 if is_turing else 1), rel=0.01
    )
    fastest = fp32 * (8 if is_turing else 4)
    assert rates.get("fp16_acc16", rates["fp16"]) == pytest.approx(fastest, rel=0.01)
    if "int8" in rates:
        assert rates["int8"] == pytest.approx(2 * fastest, rel=0.01)


def test_fp8_of_geforce_is_as_fast_as_fp16_with_sums_in_fp16() -> None:
    with_fp8 = [peak for peak in RTX_PEAKS if "fp8" in peak.teraflops]
    assert len(with_fp8) == 5
    for peak in with_fp8:
        rates = peak.teraflops
        expected = rates.get("fp16_acc16", 2 * rates["fp16"])
        assert rates["fp8"] == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(
    ("name", "sms"),
    [
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 16),
        ("NVIDIA GeForce RTX 3060 Laptop GPU", 30),
        ("NVIDIA GeForce RTX 3080", 70),
        ("AMD Instinct MI300X", 38),
        ("NVIDIA GH200 144G HBM3e", 132),
        ("NVIDIA GeForce RTX 4090 D", 114),
        ("NVIDIA A100-PG509-200", 108),  # 40 or 80 GB: the memory decides
        ("AMD Radeon Graphics", 104),
        ("", 304),
    ],
)
def test_mig_slices_and_wrong_sm_counts_have_no_peak(name: str, sms: int) -> None:
    assert peak_of(device(name, sms)) is None
    assert peak_of({}) is None


@pytest.mark.parametrize(
    ("compute", "sms", "memory", "name"),
    [
        ((9, 4), 304, 206_141_652_992, "AMD Instinct MI300X"),
        ((9, 4), 304, 274_861_129_728, "AMD Instinct MI325X"),
        ((9, 4), 304, 100_000_000_000, None),
        ((9, 4), 38, 206_141_652_992, None),
        ((9, 0), 304, 206_141_652_992, None),
    ],
)
def test_device_without_a_name_is_known_by_capability_sms_and_memory(
    compute: tuple[int, int], sms: int, memory: int, name: str | None
) -> None:
    """As ROCm records it at times."""
    major, minor = compute
    known = {"computeMajor": major, "computeMinor": minor, "totalGlobalMem": memory}
    found = peak_of(device("", sms, **known))
    assert (found.device if found else None) == name


def test_memory_settles_what_the_name_does_not() -> None:
    size = 42_505_273_344
    assert (
        peak_of(device("NVIDIA A100-PG509-200", 108, totalGlobalMem=size)) is not None
    )


def test_given_figures_are_used_instead_of_those_of_the_table() -> None:
    peak = peak_of(
        device("NVIDIA A100-SXM4-80GB", 108), {"bf16": 250e12, BANDWIDTH: 1.5e12}
    )
    assert peak is not None
    assert (peak.flop_per_s("bf16"), peak.flop_per_s("tf32")) == (250e12, 156e12)
    assert peak.bytes_per_s == 1.5e12


def test_given_figures_make_a_device_known() -> None:
    peak = peak_of(device("NVIDIA GH200 144G HBM3e", 132), {"bf16": 800e12})
    assert peak is not None
    assert (peak.flop_per_s("bf16"), peak.flop_per_s("fp8"), peak.bytes_per_s) == (
        800e12,
        None,
        None,
    )
    assert peak.cache_bytes == max(entry.cache_bytes for entry in PEAKS)


def test_the_table_is_sound() -> None:
    assert len({peak.pattern for peak in PEAKS}) == len(PEAKS)
    for peak in PEAKS:
        re.compile(peak.pattern)
        assert peak.teraflops.keys() <= set(KINDS)
        assert peak.sms > 0
        assert 100 < peak.gigabytes_per_s < 10_000
        rates = peak.teraflops
        wide = [rates.get(kind, 0) for kind in ("fp64", "fp32", "tf32", "fp16", "fp8")]
        assert [w for w in wide if w] == sorted(w for w in wide if w)


A100 = PEAKS[[p.pattern for p in PEAKS].index(r"\bA100-SXM4-80GB\b")]
RTX = PEAKS[[p.pattern for p in PEAKS].index(r"\bRTX 3090$")]


MXFP4_BY_MXFP8 = (
    "bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_16dp256b_rM_TN_"
    "transOut_schedP2x1x2x3_biasM_bN_tmaOpt_clmp_dynBatch_sm100f"
)


@pytest.mark.parametrize(
    ("dtype", "name", "kind"),
    [
        ("fp32", "ampere_sgemm_128x64_tn", "fp32"),
        ("fp32", "cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4", "tf32"),
        (
            "fp32",
            "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x128x32_"
            "stage5_warpsize2x2x1_g1_tensor16x8x8_execute_kernel_cudnn_infer",
            "tf32",
        ),
        ("fp32", "void gemmSN_TN_kernel<float, 128, 16, 2, 4, 8, 9, false>(p)", None),
        ("bf16", "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", "bf16"),
        ("fp8_e4m3", "nvjet_qst_128x256_64x4_2x1_v_bz_TNT", "fp8"),
        ("fp16", "ampere_hgemm_256x128_tn", "fp16_plain"),
        ("fp16", "cutlass_80_simt_hgemm_128x128_8x4_nn_align1", "fp16_plain"),
        # sums in fp32: neither
        ("fp16", "cutlass_80_simt_sgemm_128x128_8x4_nn_align1", None),
        ("fp16", "volta_h884gemm_128x64_tn", "fp16"),
        ("uint8", MXFP4_BY_MXFP8, "fp8"),
        ("bf16", "some_kernel", None),
        (None, "ampere_sgemm_128x64_tn", None),
    ],
)
def test_kernel_name_and_dtype_decide_the_kind_of_arithmetic(
    dtype: str | None, name: str, kind: str | None
) -> None:
    assert determine_arithmetic(dtype, decode(name), A100) == kind


def test_sums_in_fp16_are_another_peak_on_some_devices() -> None:
    name = "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn"
    half = name.replace("fp16_s16816gemm_fp16", "h16816gemm")
    assert determine_arithmetic("fp16", decode(name), RTX) == "fp16"
    assert determine_arithmetic("fp16", decode(half), RTX) == "fp16_acc16"
    assert determine_arithmetic("fp16", decode(half), A100) == "fp16"


SGEMM = "ampere_sgemm_128x64_tn"


def share(flop: int, size: int, ns: int) -> Any:
    amount = Amount(kind="matmul", shapes=(), dtype="fp32", flop=flop, bytes=size)
    found = limits(amount, decode(SGEMM), SGEMM, A100)
    return found.bound, found.share(ns)


FP8_GEMM = (
    "cutlass3x_sm90_tensorop_{sums}64x128x32gemm_e4m3_e4m3_{acc}_bf16_bf16_128x128x128_1x1x1_0_tnn"
    "_align16"
)


@pytest.mark.parametrize(
    ("sums", "acc", "on_geforce"), [("s", "f32", "fp8"), ("h", "f16", None)]
)
def test_fp8_of_geforce_needs_sums_in_fp32(
    sums: str, acc: str, on_geforce: str | None
) -> None:
    """Those in fp16 are twice as fast there, and nowhere else."""
    kernel = decode(FP8_GEMM.format(sums=sums, acc=acc))
    geforce = peak_of(device("NVIDIA GeForce RTX 4090", 128))
    workstation = peak_of(device("NVIDIA RTX 6000 Ada Generation", 142))
    assert geforce is not None
    assert workstation is not None
    assert determine_arithmetic("fp8_e4m3", kernel, geforce) == on_geforce
    assert determine_arithmetic("fp8_e4m3", kernel, workstation) == "fp8"


def test_a_gemm_on_plain_cores_is_held_against_their_peak() -> None:
    amount = Amount(
        kind="matmul", shapes=(), dtype="fp16", flop=39 * 10**12, bytes=10**9
    )
    name = "ampere_hgemm_256x128_tn"
    found = limits(amount, decode(name), name, A100)
    assert found.compute_ns == pytest.approx(0.5 * 10**9)


def test_longer_of_compute_and_memory_time_is_the_bound() -> None:
    half = share(flop=9_750 * 10**9, size=10**9, ns=10**9)
    assert half == ("compute", pytest.approx(0.5))
    half = share(flop=10**9, size=1_019_500_000_000, ns=10**9)
    assert half == ("memory", pytest.approx(0.5))
    assert share(1, 1, 0)[1] is None


def test_traffic_that_may_come_from_the_cache_has_no_share_of_bandwidth() -> None:
    assert share(flop=1000, size=40 * 2**20, ns=10**6) == ("memory", None)
    assert share(flop=1000, size=10**9, ns=400_000) == ("memory", None)
