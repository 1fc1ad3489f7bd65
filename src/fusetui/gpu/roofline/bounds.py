"""Which limit of the device bounds a kernel, and what share of it was reached.

The roofline model (Williams, Waterman, Patterson, 2009): a kernel takes at least flop /
peak FLOP/s and at least bytes / peak bytes/s. The longer of these times is the bound,
and its share of the time taken is the share of peak.

Output tiles of a matrix product, and how they fill the device in waves: a kernel with
tiles of tile_m x tile_n computes ceil(M / tile_m) * ceil(N / tile_n) of them for each
matrix. cuBLAS and hipBLASLt are column-major: they compute the transposed product, so
tile_m runs along the N of PyTorch and tile_n along its M. The count is reported only if
the launch grid confirms it: one block for each tile, or the rounded grid of CUTLASS
(GemmIdentityThreadblockSwizzle). Persistent kernels, split-K and clusters have other
grids, for which nothing is reported.

A wave is one block in every slot of the device (NVIDIA, Matrix Multiplication
Background User's Guide: tile and wave quantization; Nsight Compute: waves per SM). How
many blocks an SM holds depends on registers, shared memory and threads (CUDA occupancy
rules). If that is unknown, waves are counted only if all tiles fit on the SMs at once.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

import msgspec

from fusetui.gpu.kernel_names.record import KernelName
from fusetui.gpu.roofline.inputs import NS, Amount
from fusetui.gpu.roofline.peaks import Peak
from fusetui.text.patterns import late

# Algorithms that need fewer products than the plain sum: their share of peak would
# mislead.
_FEWER_PRODUCTS: Final = late(r"winograd|fft|Sp3AsmConv", re.IGNORECASE)
_PLAIN_CORES: Final = {
    "fp32": late(
        r"sgemm|scudnn|_simt_|_ffma_|[dw]grad(?:_alg\d)?_engine|[dw]grad2d_alg\d|convolve_sgemm"
    ),
    "fp64": late(r"dgemm"),
}
"""What cuBLAS, cuDNN and CUTLASS call kernels of the plain cores."""
_PLAIN_HALF: Final = late(r"(?:^|_)hgemm_|_simt_")
_IN_CACHE: Final = 2  # times the size of the cache
_MATH: Final = {"tf32": "tf32", "bf16": "bf16", "fp16": "fp16", "f16": "fp16"}
_BITS: Final = {
    "fp4": 4,
    "mxfp4": 4,
    "nvfp4": 4,
    "fp6": 6,
    "mxfp6": 6,
    "fp8": 8,
    "mxfp8": 8,
}


# kinds of work of which only the bytes count
BY_MEMORY: Final = ("elementwise", "softmax", "norm")


class Limits(msgspec.Struct, frozen=True):
    """The minimum times (ns) that a device needs for some work; None if unknown.
    `cached`: so much of the data may come from the cache that memory is not a limit."""

    compute_ns: float | None = None
    memory_ns: float | None = None
    cached: bool = False
    bound: str | None = None  # compute or memory
    kind: str | None = None  # of arithmetic

    @property
    def least_ns(self) -> float | None:
        if self.bound == "memory":
            return None if self.cached else self.memory_ns
        return self.compute_ns if self.bound == "compute" else None

    def share(self, ns: int) -> float | None:
        """How close work of `ns` nanoseconds came to what bounds it: 1.0 is the roof.
        None too for what came faster than memory can deliver: from the cache."""
        least = self.least_ns
        if ns <= 0 or least is None or (self.bound == "memory" and least > ns):
            return None
        return least / ns


def limits(amount: Amount, kernel: KernelName | None, name: str, peak: Peak) -> Limits:
    """The limits of the device for this work; `name` is that of the kernel."""
    compute = memory = None
    kind = arithmetic(amount.dtype, kernel, peak)
    rate = peak.flop_per_s(kind)
    if amount.flop and rate and not _FEWER_PRODUCTS.search(name):
        compute = amount.flop / rate * NS
    if amount.bytes and peak.bytes_per_s:
        memory = amount.bytes / peak.bytes_per_s * NS
    cached = amount.bytes is not None and amount.bytes <= _IN_CACHE * peak.cache_bytes
    return Limits(compute, memory, cached, _bound(amount, compute, memory), kind)


def arithmetic(dtype: str | None, kernel: KernelName | None, peak: Peak) -> str | None:
    """Which arithmetic of the table a kernel uses for inputs of this type; None if
    undetermined. fp32 inputs may be multiplied as tf32 or fp32, and fp16 products may
    be accumulated in fp16: the kernel's name has to say so. Formats below 16 bits run
    at the rate of the wider operand."""
    if kernel is None or dtype is None:
        return None
    if kernel.math is not None:
        return _MATH.get(kernel.math)
    if dtype == "fp32" and kernel.dtype_a == "tf32":  # how cuDNN's convolutions say it
        return "tf32"
    if dtype in ("fp32", "fp64"):
        if kernel.mma_mn is not None or kernel.mma is not None:
            return f"{dtype}_matrix"
        return dtype if _PLAIN_CORES[dtype].search(kernel.name) else None
    if (
        dtype in ("fp16", "bf16")
        and kernel.mma is None
        and _PLAIN_HALF.search(kernel.name)
    ):
        return f"{dtype}_plain" if kernel.dtype_acc == dtype else None
    if dtype == "fp16" and "fp16_acc16" in peak.teraflops:
        return {"fp16": "fp16_acc16", "fp32": "fp16"}.get(kernel.dtype_acc or "")
    words = [(dtype or "").split("_")[0] for dtype in (kernel.dtype_a, kernel.dtype_b)]
    if all(word in _BITS for word in words):  # mxfp4 x mxfp8 runs as fp8
        return f"fp{max(_BITS[word] for word in words)}"
    return "fp8" if dtype.startswith("fp8") else dtype


def on_plain_cores(kernel: KernelName) -> bool:
    """A GEMM or convolution of float32 whose name says that it uses no tensor core."""
    if kernel.op not in ("gemm", "conv") or "fp32" not in (
        kernel.dtype_a,
        kernel.dtype,
    ):
        return False
    no_cores = kernel.math is None and kernel.mma is None
    return no_cores and _PLAIN_CORES["fp32"].search(kernel.name) is not None


def _bound(amount: Amount, compute: float | None, memory: float | None) -> str | None:
    if amount.kind in BY_MEMORY:
        return "memory" if memory is not None else None
    if amount.kind == "conv" and memory is None:
        return "compute" if compute is not None else None  # the bound of its FLOP
    if compute is None or memory is None:
        return None
    return "compute" if compute >= memory else "memory"


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
# bytes of shared memory that the system reserves for each block
_RESERVED_SINCE_8: Final = 1024


class Tiles(msgspec.Struct, frozen=True):
    """Tiles of all matrices. A wave is what the device holds at once, `waves` a
    fraction; `last_wave_empty` is the share of the last one without a tile, from 0 to
    below 1."""

    tiles: int
    sms: int | None = None  # multiprocessors or compute units of the device
    waves: float | None = None
    last_wave_empty: float | None = None


def tiles(
    amount: Amount,
    kernel: KernelName | None,
    args: dict[str, Any],
    properties: dict[str, Any],
    in_threads: bool,
) -> Tiles | None:
    """The tiles of a matmul; `in_threads`: the grid in `args` counts threads, not
    blocks."""
    if kernel is None or kernel.op != "gemm" or kernel.split_k or kernel.stream_k:
        return None
    if not (amount.m and amount.n and amount.batch and kernel.tile_m and kernel.tile_n):
        return None
    along_n, along_m = -(-amount.n // kernel.tile_m), -(-amount.m // kernel.tile_n)
    count = along_n * along_m * amount.batch
    other = -(-amount.m // kernel.tile_m) * -(-amount.n // kernel.tile_n) * amount.batch
    grid = blocks_of(args, in_threads)
    if grid is None or not _confirms(
        grid, along_n, along_m, amount.batch, kernel.family
    ):
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
    """How many blocks of a kernel one NVIDIA SM holds at once; None if that is
    undetermined. The minimum that threads, registers and shared memory allow."""
    block = _triple(args.get("block"))
    limits = [_whole(properties.get(key)) for key in _LIMITS]
    needs = [_whole(args.get(key)) for key in ("registers per thread", "shared memory")]
    major = _whole(properties.get("computeMajor"))
    most = _MOST_BLOCKS.get(f"{major}.{properties.get('computeMinor')}")
    if (
        block is None
        or most is None
        or major is None
        or None in limits
        or None in needs
    ):
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
    """Whether there is a block for each tile, launched directly or with CUTLASS's
    swizzle."""
    if batch == 1 and grid[2] > 1:
        # with one matrix, a third dimension of the grid would be parts of K
        return False
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
