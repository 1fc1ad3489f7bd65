"""Tiles and waves: reported only if the launch grid confirms them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetui.gpu.kernel_names import decode
from fusetui.gpu.roofline.bounds import blocks_of, count_resident_blocks, tiles
from fusetui.gpu.roofline.inputs import Amount

A100 = {
    "name": "NVIDIA A100-SXM4-80GB",
    "numSms": 108,
    "computeMajor": 8,
    "computeMinor": 0,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerMultiprocessor": 65536,
    "sharedMemPerMultiprocessor": 167936,
}
ONE_A_SM = {"block": [256, 1, 1], "registers per thread": 230, "shared memory": 81920}
CUBLAS = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn"
CUTLASS = (
    "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>"
    "(cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4::Params)"
)


def product(m: int, n: int, batch: int = 1) -> Amount:
    return Amount(kind="matmul", shapes=(), m=m, n=n, k=64, batch=batch)


def found(amount: Amount, name: str, grid: list[int], **more: Any) -> Any:
    args = {**ONE_A_SM, "grid": grid, **more}
    return tiles(amount, decode(name), args, A100, in_threads=False)


def test_tiles_by_sms_are_waves_and_the_last_one_has_empty_places() -> None:
    # N = 3072 in 24 tiles of 128, M = 8192 in 32 tiles of 256
    work = found(product(8192, 3072), CUBLAS, [24, 32, 1])
    assert (work.tiles, work.sms) == (768, 108)
    assert work.waves == pytest.approx(768 / 108)
    assert work.last_wave_empty == pytest.approx(1 - (768 - 7 * 108) / 108)


def test_full_waves_have_no_empty_place() -> None:
    work = found(product(256, 128 * 216), CUBLAS, [216, 1, 1])
    assert (work.waves, work.last_wave_empty) == (2.0, 0.0)


def test_a_wave_is_what_the_device_holds() -> None:
    two = {"registers per thread": 120, "shared memory": 40960}
    work = found(product(8192, 3072), CUBLAS, [24, 32, 1], **two)
    assert work.waves == pytest.approx(768 / 216)


def test_the_tile_lies_along_the_output_features() -> None:
    # 300 x 1000: 8 x 2 tiles of 128 (along N) x 256 (along M); the other way it would
    # be 3 x 4
    assert found(product(300, 1000), CUBLAS, [8, 2, 1]).tiles == 16
    assert found(product(300, 1000), CUBLAS, [3, 4, 1]) is None


def test_swizzled_grid_of_cutlass_counts_padded_tiles() -> None:
    # 1024 x 2880: 12 tiles of 256 along N, 16 of 64 along M, launched as (16 * 8,
    # ceil(12 / 8))
    assert found(product(1024, 2880), CUTLASS, [128, 2, 1]).tiles == 192
    assert found(product(1024, 2880), CUBLAS, [128, 2, 1]) is None


@pytest.mark.parametrize(
    "grid", [[108, 1, 1], [24, 32, 4], [24, 33, 1], [0, 1, 1], [24, 32], None, "24"]
)
def test_another_grid_says_nothing(grid: Any) -> None:
    assert found(product(8192, 3072), CUBLAS, grid) is None


def test_split_k_says_nothing() -> None:
    name = "nvjet_tst_128x256_64x4_2x1_v_bz_splitK_TNT"
    assert found(product(8192, 3072), name, [24, 32, 1]) is None
    assert (
        found(product(8192, 3072), name.replace("splitK_", ""), [24, 32, 1]).tiles
        == 768
    )


def test_unknown_residency_counts_waves_only_below_one() -> None:
    gone = {"registers per thread": None}
    assert found(product(8192, 3072), CUBLAS, [24, 32, 1], **gone).waves is None
    assert found(product(256, 128 * 54), CUBLAS, [54, 1, 1], **gone).waves == 0.5


def test_grid_in_threads_is_divided_by_the_block() -> None:
    args = {"grid": [512, 4, 1], "block": [256, 1, 1]}
    assert blocks_of(args, in_threads=True) == (2, 4, 1)
    assert blocks_of(args, in_threads=False) == (512, 4, 1)
    assert (
        blocks_of({"grid": [500, 4, 1], "block": [256, 1, 1]}, in_threads=True) is None
    )


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks"),
    [
        (256, 128, 0, 2),  # registers: 16 warps hold 65,536
        (256, 230, 81920, 1),
        (128, 32, 0, 16),  # threads
        (32, 16, 0, 32),  # the most blocks
        (128, 32, 55296, 2),  # 54 KiB and 1 KiB each of 164 KiB
        (64, 20, 0, 32),
    ],
)
def test_registers_threads_and_shared_memory_limit_resident_blocks(
    threads: int, registers: int, shared: int, blocks: int
) -> None:
    args = {
        "block": [threads, 1, 1],
        "registers per thread": registers,
        "shared memory": shared,
    }
    assert count_resident_blocks(args, A100) == blocks
    assert count_resident_blocks(args, {**A100, "computeMinor": 3}) is None


sizes = st.integers(1, 5000)


@given(sizes, sizes, st.integers(1, 8))
def test_tiles_cover_the_output(m: int, n: int, batch: int) -> None:
    along_n, along_m = -(-n // 128), -(-m // 256)
    work = found(product(m, n, batch), CUBLAS, [along_n, along_m, batch])
    if work is None:  # the other orientation fits as well
        return
    assert work.tiles * 128 * 256 >= m * n * batch
    assert 0 <= work.last_wave_empty < 1
    whole = work.waves + work.last_wave_empty
    assert whole == pytest.approx(round(whole))
