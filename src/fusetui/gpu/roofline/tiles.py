"""Output tiles of a matrix product, and how they fill the device in waves.

A kernel with tiles of tile_m x tile_n computes ceil(M / tile_m) * ceil(N / tile_n) of them for each
matrix. cuBLAS and hipBLASLt are column-major: they compute the transposed product, so tile_m runs
along the N of PyTorch and tile_n along its M. The count is reported only if the launch grid
confirms it: one block for each tile, or the rounded grid of CUTLASS
(GemmIdentityThreadblockSwizzle). Persistent kernels, split-K and clusters have other grids, for
which nothing is reported.

A wave is one block in every slot of the device (NVIDIA, Matrix Multiplication Background User's
Guide: tile and wave quantization; Nsight Compute: waves per SM). How many blocks an SM holds
depends on registers, shared memory and threads (CUDA occupancy rules). If that is unknown, waves
are counted only if all tiles fit on the SMs at once.
"""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from fusetui.gpu.kernel_names.record import KernelName
from fusetui.gpu.roofline.inputs import Amount

_SWIZZLES: Final = (1, 2, 4, 8)

# CUDA C++ programming guide, compute capabilities: resident blocks per SM.
_MOST_BLOCKS: Final = {
    **dict.fromkeys(("7.0", "8.0", "9.0", "10.0", "10.3"), 32),
    **dict.fromkeys(("8.9", "12.0"), 24),
    **dict.fromkeys(("7.5", "8.6"), 16),
}
_LIMITS: Final = (
    "maxThreadsPerMultiprocessor",
    "regsPerMultiprocessor",
    "sharedMemPerMultiprocessor",
)
_REGISTER_UNIT: Final = 256  # registers are allocated to warps in units of this size
_PARTITIONS: Final = 4  # of an SM, each with its share of the registers
_RESERVED_SINCE_8: Final = 1024  # bytes of shared memory that the system reserves for each block


class Tiles(msgspec.Struct, frozen=True):
    """Tiles of all matrices; `waves` as a fraction, `last_wave_empty` a share from 0 to below 1."""

    tiles: int
    sms: int | None = None
    waves: float | None = None
    last_wave_empty: float | None = None


def tiles(
    amount: Amount,
    kernel: KernelName | None,
    args: dict[str, Any],
    properties: dict[str, Any],
    in_threads: bool,
) -> Tiles | None:
    """The tiles of a matmul; `in_threads`: the grid in `args` counts threads, not blocks."""
    if kernel is None or kernel.op != "gemm" or kernel.split_k or kernel.stream_k:
        return None
    if not (amount.m and amount.n and amount.batch and kernel.tile_m and kernel.tile_n):
        return None
    along_n, along_m = -(-amount.n // kernel.tile_m), -(-amount.m // kernel.tile_n)
    count = along_n * along_m * amount.batch
    other = -(-amount.m // kernel.tile_m) * -(-amount.n // kernel.tile_n) * amount.batch
    grid = blocks_of(args, in_threads)
    if grid is None or not _confirms(grid, along_n, along_m, amount.batch, kernel.family):
        return None
    if math.prod(grid) == other != count:
        return None  # the other orientation fits better
    sms = _whole(properties.get("numSms")) or None
    resident = resident_blocks(args, properties)
    if sms is None or (resident is None and count > sms):
        return Tiles(count, sms)
    places = sms * (resident or 1)  # how many blocks the device holds at once
    return Tiles(count, sms, count / places, (-count % places) / places)


def blocks_of(args: dict[str, Any], in_threads: bool) -> tuple[int, int, int] | None:
    """The launch grid in blocks; some HIP calls record it in threads."""
    grid, block = _triple(args.get("grid")), _triple(args.get("block"))
    if grid is None or not in_threads:
        return grid
    if block is None or any(g % b for g, b in zip(grid, block, strict=True)):
        return None
    return grid[0] // block[0], grid[1] // block[1], grid[2] // block[2]


def resident_blocks(args: dict[str, Any], properties: dict[str, Any]) -> int | None:
    """How many blocks of a kernel one NVIDIA SM holds at once; None if that is undetermined. The
    minimum that threads, registers and shared memory allow."""
    block = _triple(args.get("block"))
    limits = [_whole(properties.get(key)) for key in _LIMITS]
    needs = [_whole(args.get(key)) for key in ("registers per thread", "shared memory")]
    major = _whole(properties.get("computeMajor"))
    most = _MOST_BLOCKS.get(f"{major}.{properties.get('computeMinor')}")
    if block is None or most is None or major is None or None in limits or None in needs:
        return None
    threads, registers, shared = (number or 0 for number in limits)
    per_thread, memory = (number or 0 for number in needs)
    warps = -(-math.prod(block) // 32)
    per_warp = -(-per_thread * 32 // _REGISTER_UNIT) * _REGISTER_UNIT
    memory += _RESERVED_SINCE_8 if major >= 8 else 0
    fits = [most, threads // (warps * 32)]
    if per_warp:
        fits.append(registers // _PARTITIONS // per_warp * _PARTITIONS // warps)
    fits += [shared // memory] if memory else []
    return min(fits) or None


def _confirms(
    grid: tuple[int, int, int], along_n: int, along_m: int, batch: int, family: str
) -> bool:
    """Whether there is a block for each tile, launched directly or with CUTLASS's swizzle."""
    if batch == 1 and grid[2] > 1:
        return False  # with one matrix, a third dimension of the grid would be parts of K
    if math.prod(grid) == along_n * along_m * batch:
        return True
    if not family.startswith("cutlass"):
        return False
    pairs = ((along_m, along_n), (along_n, along_m))
    swizzled = {(a * s, -(-b // s), batch) for a, b in pairs for s in _SWIZZLES}
    return grid in swizzled


def _triple(value: object) -> tuple[int, int, int] | None:
    whole = [n for n in value if _whole(n)] if isinstance(value, list) else []
    return (whole[0], whole[1], whole[2]) if len(whole) == 3 else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None
