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
from typing import Any, Final, NamedTuple

import msgspec

from fusetui.gpu.kernel_names.record import KernelName
from fusetui.gpu.roofline.inputs import NS, Amount
from fusetui.gpu.roofline.peaks import Peak
from fusetui.text.patterns import lazy_pattern

# Algorithms that need fewer products than the plain sum: their share of peak would
# mislead.
_FEWER_PRODUCTS: Final = lazy_pattern(r"winograd|fft|Sp3AsmConv", re.IGNORECASE)
_PLAIN_CORES: Final = {
    "fp32": lazy_pattern(
        r"sgemm|scudnn|_simt_|_ffma_|[dw]grad(?:_alg\d)?_engine|[dw]grad2d_alg\d|convolve_sgemm"
    ),
    "fp64": lazy_pattern(r"dgemm"),
}
"""What cuBLAS, cuDNN and CUTLASS call kernels of the plain cores."""

_PLAIN_HALF: Final = lazy_pattern(r"(?:^|_)hgemm_|_simt_")
_CACHED_AMOUNT: Final = 2
"""Times the size of the cache: of at most so many bytes, a part may come from it."""

_KIND_OF_MATH: Final = {
    "tf32": "tf32",
    "bf16": "bf16",
    "fp16": "fp16",
    "f16": "fp16",
}
"""Kinds of arithmetic, by the field `math` of a kernel's name."""

_KIND_BY_SUMS_OF_FP16: Final = {
    "fp16": "fp16_acc16",
    "fp32": "fp16",
}
"""The arithmetic of fp16 on devices that are faster with sums in fp16, by the type of
the sums."""

_NARROW_FORMAT_BITS: Final = {
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
        """The time that the limit implies which bounds the work."""
        if self.bound == "compute":
            return self.compute_ns
        if self.bound == "memory" and not self.cached:
            return self.memory_ns
        return None

    def share(self, ns: int) -> float | None:
        """How close work of `ns` nanoseconds came to what bounds it: 1.0 is the roof.
        None too for what came faster than memory can deliver: from the cache."""
        least_ns = self.least_ns
        if ns <= 0 or least_ns is None:
            return None
        if self.bound == "memory" and least_ns > ns:
            return None
        return least_ns / ns


def limits(amount: Amount, kernel: KernelName | None, name: str, peak: Peak) -> Limits:
    """The least times that a device with these peaks needs for this work, and which of
    them bounds it. `kernel` is what the kernel's name determines, `name` the whole of
    it. The compute time of an algorithm with fewer products (Winograd, FFT) is None."""
    kind = arithmetic(amount.dtype, kernel, peak)
    flop_per_s = peak.flop_per_s(kind)
    compute_ns = None
    if amount.flop and flop_per_s and not _FEWER_PRODUCTS.search(name):
        compute_ns = amount.flop / flop_per_s * NS
    memory_ns = None
    if amount.bytes and peak.bytes_per_s:
        memory_ns = amount.bytes / peak.bytes_per_s * NS
    cached_bytes = _CACHED_AMOUNT * peak.cache_bytes
    return Limits(
        compute_ns=compute_ns,
        memory_ns=memory_ns,
        cached=amount.bytes is not None and amount.bytes <= cached_bytes,
        bound=_bound(amount, compute_ns, memory_ns),
        kind=kind,
    )


def arithmetic(dtype: str | None, kernel: KernelName | None, peak: Peak) -> str | None:
    """Which arithmetic of the table a kernel uses for inputs of this type; None if
    undetermined. fp32 inputs may be multiplied as tf32 or fp32, and fp16 products may
    be accumulated in fp16: the kernel's name has to say so. Formats below 16 bits run
    at the rate of the wider operand."""
    if kernel is None or dtype is None:
        return None
    if kernel.math is not None:
        return _KIND_OF_MATH.get(kernel.math)
    if dtype == "fp32" and kernel.dtype_a == "tf32":  # how cuDNN's convolutions say it
        return "tf32"
    if dtype in ("fp32", "fp64"):
        if kernel.mma_mn is not None or kernel.mma is not None:
            return f"{dtype}_matrix"
        return dtype if _PLAIN_CORES[dtype].search(kernel.name) else None
    if dtype in ("fp16", "bf16"):
        if kernel.mma is None and _PLAIN_HALF.search(kernel.name):
            return f"{dtype}_plain" if kernel.dtype_acc == dtype else None
        if dtype == "fp16" and "fp16_acc16" in peak.teraflops:
            return _KIND_BY_SUMS_OF_FP16.get(kernel.dtype_acc or "")
    narrow = _narrow_kind(dtype, kernel)
    is_faster_in_fp16 = "fp16_acc16" in peak.teraflops
    if narrow == "fp8" and is_faster_in_fp16 and kernel.dtype_acc != "fp32":
        return None  # the sheet's figure is that of sums in fp32
    return narrow


def _narrow_kind(dtype: str, kernel: KernelName) -> str:
    """The arithmetic by the formats of the operands: if both are below 16 bits, that of
    the wider one (`fp8`, `fp6`, `fp4`), else `fp8` for inputs of any fp8 format and the
    type of the inputs for all others."""
    bits_a = _narrow_bits(kernel.dtype_a)
    bits_b = _narrow_bits(kernel.dtype_b)
    if bits_a is not None and bits_b is not None:  # mxfp4 x mxfp8 runs as fp8
        return f"fp{max(bits_a, bits_b)}"
    return "fp8" if dtype.startswith("fp8") else dtype


def _narrow_bits(dtype: str | None) -> int | None:
    """The bits of a format below 16 bits, with or without the bits of its exponent
    (`fp8_e4m3`); None for any other type."""
    return _NARROW_FORMAT_BITS.get((dtype or "").split("_")[0])


def on_plain_cores(kernel: KernelName) -> bool:
    """Whether a kernel is a GEMM or convolution of float32 whose name says that it uses
    no tensor core."""
    if kernel.op not in ("gemm", "conv"):
        return False
    if "fp32" not in (kernel.dtype_a, kernel.dtype):
        return False
    if kernel.math is not None or kernel.mma is not None:
        return False
    return _PLAIN_CORES["fp32"].search(kernel.name) is not None


def _bound(
    amount: Amount, compute_ns: float | None, memory_ns: float | None
) -> str | None:
    """Which of the two least times bounds the work: `compute` or `memory`, the longer
    one; None if that is not known. Of elementwise work, softmax and norms only memory
    counts. A convolution whose bytes are not known counts as bound by its FLOP."""
    if amount.kind in BY_MEMORY:
        return "memory" if memory_ns is not None else None
    if amount.kind == "conv" and memory_ns is None:
        return "compute" if compute_ns is not None else None
    if compute_ns is None or memory_ns is None:
        return None
    return "compute" if compute_ns >= memory_ns else "memory"


_SWIZZLES: Final = (1, 2, 4, 8)

# CUDA C++ programming guide, compute capabilities
_MAX_BLOCKS_PER_SM: Final = {
    "7.0": 32,
    "7.5": 16,
    "8.0": 32,
    "8.6": 16,
    "8.9": 24,
    "9.0": 32,
    "10.0": 32,
    "10.3": 32,
    "12.0": 24,
}
"""Resident blocks, by compute capability."""

_WARP_THREADS: Final = 32

_REGISTER_UNIT: Final = 256
"""Registers are allocated to warps in units of this size."""

_PARTITIONS: Final = 4
"""Of an SM, each with its share of the registers."""

_RESERVED_BYTES_SINCE_8: Final = 1024
"""Shared memory that the system reserves for each block, from compute capability 8.0
on."""


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
    """The tiles of a matmul; None unless the grid confirms their number.

    `args` are those of the kernel, `properties` those of the device. `in_threads`: the
    grid in `args` counts threads, not blocks."""
    if kernel is None or kernel.op != "gemm" or kernel.split_k or kernel.stream_k:
        return None
    count = _confirmed_tiles(amount, kernel, blocks_of(args, in_threads))
    if count is None:
        return None
    sms = _whole(properties.get("numSms")) or None
    resident = resident_blocks(args, properties)
    if sms is None or (resident is None and count > sms):
        return Tiles(tiles=count, sms=sms)
    blocks_per_wave = sms * (resident or 1)
    empty_in_last_wave = -count % blocks_per_wave
    return Tiles(
        tiles=count,
        sms=sms,
        waves=count / blocks_per_wave,
        last_wave_empty=empty_in_last_wave / blocks_per_wave,
    )


def _confirmed_tiles(
    amount: Amount, kernel: KernelName, grid: tuple[int, int, int] | None
) -> int | None:
    """The number of tiles of a product, by its sizes and the tile in the name of the
    kernel; None if these are not known, if the grid (in blocks) does not confirm the
    number, or if it fits better to tiles that lie the other way."""
    if not (amount.m and amount.n and amount.batch and kernel.tile_m and kernel.tile_n):
        return None
    along_n = _ceil_div(amount.n, kernel.tile_m)
    along_m = _ceil_div(amount.m, kernel.tile_n)
    if grid is None:
        return None
    if not _confirms(grid, along_n, along_m, amount.batch, kernel.family):
        return None
    count = along_n * along_m * amount.batch
    turned_along_m = _ceil_div(amount.m, kernel.tile_m)
    turned_along_n = _ceil_div(amount.n, kernel.tile_n)
    turned_count = turned_along_m * turned_along_n * amount.batch
    fits_turned = math.prod(grid) == turned_count
    if fits_turned and turned_count != count:
        return None
    return count


def _ceil_div(number: int, divisor: int) -> int:
    """number / divisor, rounded up."""
    return -(-number // divisor)


def blocks_of(args: dict[str, Any], in_threads: bool) -> tuple[int, int, int] | None:
    """The launch grid (x, y, z) of a kernel in blocks, by its args; None if that was
    not recorded. `in_threads`: its arg `grid` counts threads, as that of some HIP calls
    does. Then the arg `block` must divide it, else the result is None too."""
    grid = _triple(args.get("grid"))
    if grid is None or not in_threads:
        return grid
    block = _triple(args.get("block"))
    if block is None:
        return None
    for threads, block_threads in zip(grid, block, strict=True):
        if threads % block_threads:
            return None
    return grid[0] // block[0], grid[1] // block[1], grid[2] // block[2]


def resident_blocks(args: dict[str, Any], properties: dict[str, Any]) -> int | None:
    """How many blocks of a kernel one NVIDIA SM holds at once: the least of what its
    limit of blocks, its threads, registers and shared memory allow. None if an arg of
    the kernel or a property of the device is missing or the limit of blocks is unknown,
    and if not even one block fits."""
    block = _block_needs(args)
    sm = _multiprocessor(properties)
    if block is None or sm is None:
        return None
    fitting = [sm.max_blocks, sm.threads // (block.warps * _WARP_THREADS)]
    register_units = _ceil_div(block.thread_registers * _WARP_THREADS, _REGISTER_UNIT)
    warp_registers = register_units * _REGISTER_UNIT
    if warp_registers:
        partition_registers = sm.registers // _PARTITIONS
        partition_warps = partition_registers // warp_registers
        fitting.append(partition_warps * _PARTITIONS // block.warps)
    shared_bytes = block.shared_bytes + sm.reserved_bytes
    if shared_bytes:
        fitting.append(sm.shared_bytes // shared_bytes)
    return min(fitting) or None


class _BlockNeeds(NamedTuple):
    """What one block of a kernel needs."""

    warps: int
    thread_registers: int
    """Of each thread."""
    shared_bytes: int


class _Multiprocessor(NamedTuple):
    """What an SM has for all its blocks."""

    max_blocks: int
    threads: int
    registers: int
    shared_bytes: int
    reserved_bytes: int
    """Shared memory that the system takes for each block."""


def _block_needs(args: dict[str, Any]) -> _BlockNeeds | None:
    """What a block needs by the args of its kernel; None if one is missing."""
    block = _triple(args.get("block"))
    thread_registers = _whole(args.get("registers per thread"))
    shared_bytes = _whole(args.get("shared memory"))
    if block is None or thread_registers is None or shared_bytes is None:
        return None
    warps = _ceil_div(math.prod(block), _WARP_THREADS)
    return _BlockNeeds(warps, thread_registers, shared_bytes)


def _multiprocessor(properties: dict[str, Any]) -> _Multiprocessor | None:
    """What an SM has by the properties of its device; None if one is missing, or if the
    limit of blocks is unknown."""
    threads = _whole(properties.get("maxThreadsPerMultiprocessor"))
    registers = _whole(properties.get("regsPerMultiprocessor"))
    shared_bytes = _whole(properties.get("sharedMemPerMultiprocessor"))
    major = _whole(properties.get("computeMajor"))
    capability = f"{major}.{properties.get('computeMinor')}"
    max_blocks = _MAX_BLOCKS_PER_SM.get(capability)
    if threads is None or registers is None or shared_bytes is None:
        return None
    if major is None or max_blocks is None:
        return None
    return _Multiprocessor(
        max_blocks=max_blocks,
        threads=threads,
        registers=registers,
        shared_bytes=shared_bytes,
        reserved_bytes=_RESERVED_BYTES_SINCE_8 if major >= 8 else 0,
    )


def _confirms(
    grid: tuple[int, int, int], along_n: int, along_m: int, batch: int, family: str
) -> bool:
    """Whether a grid has one block for each of `along_n` x `along_m` tiles of each
    matrix of the batch: launched as they are or, by CUTLASS, with its swizzle, which
    lays 2, 4 or 8 rows of tiles side by side."""
    if batch == 1 and grid[2] > 1:
        # with one matrix, a third dimension of the grid would be parts of K
        return False
    if math.prod(grid) == along_n * along_m * batch:
        return True
    if not family.startswith("cutlass"):
        return False
    for along_x, along_y in ((along_m, along_n), (along_n, along_m)):
        for swizzle in _SWIZZLES:
            if grid == (along_x * swizzle, _ceil_div(along_y, swizzle), batch):
                return True
    return False


def _triple(value: object) -> tuple[int, int, int] | None:
    """A recorded list of three positive integers, as (x, y, z); None for anything
    else."""
    if not isinstance(value, list) or len(value) != 3:
        return None
    if not all(_whole(size) for size in value):
        return None
    x, y, z = value
    return x, y, z


def _whole(value: object) -> int | None:
    """A recorded integer that is not negative; None for anything else."""
    return value if isinstance(value, int) and value >= 0 else None
