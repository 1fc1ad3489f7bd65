"""Determines which limit of the device bounds a kernel, and which share of it the
kernel reached.

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
"""If work moves at most this many times the size of the cache, a part of its data may
come from the cache, and memory is no limit."""

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
    """The least times that a device needs for some work, by the roofline model.

    A time is None if it is unknown.
    """

    compute_ns: float | None = None
    memory_ns: float | None = None
    # the data may come from the cache, so memory is not a limit
    cached: bool = False
    bound: str | None = None  # which limit bounds the work: compute or memory
    kind: str | None = None  # the kind of arithmetic

    @property
    def least_ns(self) -> float | None:
        """The least time (ns) that the device needs, by the limit that bounds the work.

        It is None if the bound is unknown, and for work bound by memory whose data may
        come from the cache.
        """
        if self.bound == "compute":
            return self.compute_ns
        if self.bound == "memory" and not self.cached:
            return self.memory_ns
        return None

    def share(self, ns: int) -> float | None:
        """Return what share of the attainable rate was reached; 1.0 is the roof.

        Args:
            ns: How long the work took.

        Returns:
            The share. None if the limit is unknown, and for work that was faster than
            memory can deliver, since its data then came from the cache.
        """
        least_ns = self.least_ns
        if ns <= 0 or least_ns is None:
            return None
        is_from_cache = self.bound == "memory" and ns < least_ns
        return None if is_from_cache else least_ns / ns


def limits(amount: Amount, kernel: KernelName | None, name: str, peak: Peak) -> Limits:
    """Compute the least times that a device needs for some work, by the roofline model.

    Args:
        amount: The arithmetic and memory traffic of the work.
        kernel: The decoded name of the kernel that did it; None if it is unknown.
        name: The full name of that kernel.
        peak: The peak rates of the device.

    Returns:
        The times for arithmetic and for memory traffic, and which of them bounds the
        work. A time is None if it is unknown. The compute time is None too for
        algorithms that need fewer products than the plain sum (Winograd, FFT).
    """
    kind = determine_arithmetic(amount.dtype, kernel, peak)
    flop_per_s = peak.flop_per_s(kind)
    needs_fewer_products = _FEWER_PRODUCTS.search(name) is not None
    compute_ns = None
    if amount.flop and flop_per_s and not needs_fewer_products:
        compute_ns = amount.flop / flop_per_s * NS

    memory_ns = None
    if amount.bytes and peak.bytes_per_s:
        memory_ns = amount.bytes / peak.bytes_per_s * NS

    max_cached_bytes = _CACHED_AMOUNT * peak.cache_bytes
    return Limits(
        compute_ns=compute_ns,
        memory_ns=memory_ns,
        cached=amount.bytes is not None and amount.bytes <= max_cached_bytes,
        bound=_find_bound(amount, compute_ns=compute_ns, memory_ns=memory_ns),
        kind=kind,
    )


def determine_arithmetic(
    dtype: str | None, kernel: KernelName | None, peak: Peak
) -> str | None:
    """Determine which of the peak rates of a device a kernel uses, such as `tf32`.

    The dtype of its inputs alone does not tell: inputs in fp32 may be multiplied as
    tf32, and products in fp16 may be accumulated in fp16 or fp32. The name of the
    kernel has to say it. Formats below 16 bits run at the rate of the wider operand.

    Args:
        dtype: The dtype of the inputs; None if it is unknown.
        kernel: The decoded name of the kernel; None if it is unknown.
        peak: The peak rates of the device.

    Returns:
        A key of `Peak.teraflops`; None if it cannot be told.
    """
    if kernel is None or dtype is None:
        return None
    if kernel.math is not None:
        return _KIND_OF_MATH.get(kernel.math)
    if dtype in ("fp32", "fp64"):
        return _arithmetic_of_wide_inputs(dtype, kernel)
    if dtype in ("fp16", "bf16") and _multiplies_half_on_plain_cores(kernel):
        # The data sheets give the plain rate only for sums in the same dtype.
        return f"{dtype}_plain" if kernel.dtype_acc == dtype else None

    is_faster_with_fp16_sums = "fp16_acc16" in peak.teraflops
    if dtype == "fp16" and is_faster_with_fp16_sums:
        return _KIND_BY_SUMS_OF_FP16.get(kernel.dtype_acc or "")

    arithmetic = _kind_of_operands(dtype, kernel)
    if arithmetic == "fp8" and is_faster_with_fp16_sums and kernel.dtype_acc != "fp32":
        # The data sheets of these devices give the rate of fp8 with sums in fp32.
        return None
    return arithmetic


def _arithmetic_of_wide_inputs(dtype: str, kernel: KernelName) -> str | None:
    """Return the arithmetic of a kernel with inputs in fp32 or fp64.

    It is `fp32` or `fp64` on plain cores, `fp32_matrix` or `fp64_matrix` on matrix
    cores, and `tf32` if the inputs are rounded to it.

    Returns None if the name of the kernel does not tell.
    """
    # Convolutions of cuDNN name tf32 as the dtype of an operand.
    if dtype == "fp32" and kernel.dtype_a == "tf32":
        return "tf32"

    # Names of kernels for matrix cores give the size of a matrix instruction.
    uses_matrix_cores = kernel.mma_mn is not None or kernel.mma is not None
    if uses_matrix_cores:
        return f"{dtype}_matrix"
    uses_plain_cores = _PLAIN_CORES[dtype].search(kernel.name) is not None
    return dtype if uses_plain_cores else None


def _multiplies_half_on_plain_cores(kernel: KernelName) -> bool:
    """Return whether a kernel for 16-bit inputs runs without matrix cores.

    Its name then has `hgemm` or `simt`, and no size of a matrix instruction.
    """
    has_matrix_instruction = kernel.mma is not None
    return not has_matrix_instruction and _PLAIN_HALF.search(kernel.name) is not None


def _kind_of_operands(dtype: str, kernel: KernelName) -> str:
    """Return the arithmetic of a kernel by the formats of its operands.

    Args:
        dtype: The dtype of the inputs.
        kernel: The decoded name of the kernel.

    Returns:
        The format of the wider operand (`fp8`, `fp6` or `fp4`) if both are below 16
        bits; `fp8` for inputs of any fp8 format; else the dtype of the inputs.
    """
    bits_a = _bits_of_narrow_format(kernel.dtype_a)
    bits_b = _bits_of_narrow_format(kernel.dtype_b)
    if bits_a is not None and bits_b is not None:
        wider_bits = max(bits_a, bits_b)  # mxfp4 times mxfp8 runs at the rate of fp8
        return f"fp{wider_bits}"
    return "fp8" if dtype.startswith("fp8") else dtype


def _bits_of_narrow_format(dtype: str | None) -> int | None:
    """Return the bits of a format below 16 bits: 8 for `fp8_e4m3`.

    Returns None for any other dtype. The bits of the exponent may follow after an
    underscore.
    """
    base_format = (dtype or "").split("_")[0]
    return _NARROW_FORMAT_BITS.get(base_format)


def runs_on_plain_cores(kernel: KernelName) -> bool:
    """Return whether a kernel multiplies float32 without tensor cores, by its name.

    It is False for kernels that are no GEMM or convolution, and where the name does not
    say it.
    """
    if kernel.op not in ("gemm", "conv"):
        return False
    if "fp32" not in (kernel.dtype_a, kernel.dtype):
        return False
    if kernel.math is not None or kernel.mma is not None:
        return False
    return _PLAIN_CORES["fp32"].search(kernel.name) is not None


def _find_bound(
    amount: Amount, *, compute_ns: float | None, memory_ns: float | None
) -> str | None:
    """Return what bounds some work: `compute` or `memory`; None if unknown.

    This is the roofline model. It is the one with the longer least time. Elementwise
    work, softmax and norms count as bound by memory. A convolution whose bytes are
    unknown counts as bound by compute.

    Args:
        amount: The work; its kind decides.
        compute_ns: The least time for the arithmetic; None if unknown.
        memory_ns: The least time for the memory traffic; None if unknown.
    """
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
    """The output tiles of a matrix product, and how they fill the device in waves.

    A wave is one block in every slot of the device.
    """

    tiles: int  # of all matrices of the batch
    sms: int | None = None  # multiprocessors or compute units of the device
    waves: float | None = None  # a fraction where the last wave is not full
    # the share of the slots of the last wave without a tile: from 0 to below 1
    last_wave_empty: float | None = None


def tiles(
    amount: Amount,
    kernel: KernelName | None,
    args: dict[str, Any],
    properties: dict[str, Any],
    in_threads: bool,
) -> Tiles | None:
    """Count the output tiles of a matrix product, and the waves in which they run.

    A tile is the part of the result that one block computes. A wave is one block in
    every slot of the device.

    Args:
        amount: The sizes of the product.
        kernel: The decoded name of the kernel, which has the size of its tile.
        args: The args of the kernel, with its launch configuration.
        properties: The `deviceProperties` of its device.
        in_threads: Whether the grid in `args` counts threads instead of blocks.

    Returns:
        The tiles. None unless the launch grid confirms their number. The waves are None
        if it is unknown how many blocks a multiprocessor holds.
    """
    if kernel is None or kernel.op != "gemm" or kernel.split_k or kernel.stream_k:
        return None

    tile_count = _count_confirmed_tiles(amount, kernel, blocks_of(args, in_threads))
    if tile_count is None:
        return None

    sms = _parse_natural_number(properties.get("numSms"))
    if not sms:
        return Tiles(tiles=tile_count)

    blocks_per_sm = count_resident_blocks(args, properties)
    if blocks_per_sm is None:
        if tile_count > sms:
            return Tiles(tiles=tile_count, sms=sms)
        blocks_per_sm = 1  # any multiprocessor holds one, so all tiles run at once

    slots = sms * blocks_per_sm
    waves = _divide_rounding_up(tile_count, slots)
    empty_slots = waves * slots - tile_count
    return Tiles(
        tiles=tile_count,
        sms=sms,
        waves=tile_count / slots,
        last_wave_empty=empty_slots / slots,
    )


def _count_confirmed_tiles(
    amount: Amount, kernel: KernelName, grid: tuple[int, int, int] | None
) -> int | None:
    """Count the output tiles of a matrix product if its launch grid confirms them.

    A tile is the part of the result that one block computes, so the grid has to have
    one block per tile.

    Args:
        amount: The sizes of the product.
        kernel: The decoded name of the kernel, which has the size of its tile.
        grid: The launch grid in blocks; None if it is unknown.

    Returns:
        The number of tiles. None if a size is unknown, or if the grid does not confirm
        the number. None too if the grid fits another number of tiles that lie the other
        way round.
    """
    if not (amount.m and amount.n and amount.batch and kernel.tile_m and kernel.tile_n):
        return None
    if grid is None:
        return None

    # The libraries are column-major, so the m of a tile runs along the n of PyTorch.
    tiles_along_n = _divide_rounding_up(amount.n, kernel.tile_m)
    tiles_along_m = _divide_rounding_up(amount.m, kernel.tile_n)
    tile_count = tiles_along_n * tiles_along_m * amount.batch
    if not _does_grid_match_tiles(
        grid,
        tiles_along_n=tiles_along_n,
        tiles_along_m=tiles_along_m,
        batch=amount.batch,
        is_cutlass=kernel.family.startswith("cutlass"),
    ):
        return None

    # A row-major kernel would have tiles that lie the other way round. If the grid fits
    # these too, and they are another number, it is not known which number is right.
    turned_along_m = _divide_rounding_up(amount.m, kernel.tile_m)
    turned_along_n = _divide_rounding_up(amount.n, kernel.tile_n)
    turned_count = turned_along_m * turned_along_n * amount.batch
    is_ambiguous = turned_count != tile_count and turned_count == math.prod(grid)
    return None if is_ambiguous else tile_count


def _divide_rounding_up(number: int, divisor: int) -> int:
    """Divide and round up: 7 by 4 gives 2. The divisor is positive."""
    return (number + divisor - 1) // divisor


def blocks_of(args: dict[str, Any], in_threads: bool) -> tuple[int, int, int] | None:
    """Return the launch grid of a kernel in blocks.

    >>> blocks_of({"grid": [8, 2, 1], "block": [128, 1, 1]}, in_threads=False)
    (8, 2, 1)
    >>> blocks_of({"grid": [1024, 1, 1], "block": [128, 1, 1]}, in_threads=True)
    (8, 1, 1)

    Args:
        args: The args of the kernel.
        in_threads: Whether its arg `grid` counts threads, as that of some HIP calls
            does, instead of blocks.

    Returns:
        The grid as (x, y, z). None if it was not recorded, and if a grid in threads is
        not a multiple of the block.
    """
    grid = _parse_triple(args.get("grid"))
    if grid is None or not in_threads:
        return grid

    block = _parse_triple(args.get("block"))
    if block is None:
        return None
    grid_x, grid_y, grid_z = grid
    block_x, block_y, block_z = block
    if grid_x % block_x or grid_y % block_y or grid_z % block_z:
        return None
    return grid_x // block_x, grid_y // block_y, grid_z // block_z


def count_resident_blocks(
    args: dict[str, Any], properties: dict[str, Any]
) -> int | None:
    """Return how many blocks of a kernel an NVIDIA multiprocessor holds at once.

    Four resources each allow some number of blocks: the limit of blocks, threads,
    registers and shared memory. The least of these counts, as in the CUDA occupancy
    rules.

    Args:
        args: The args of the kernel, with its launch configuration.
        properties: The `deviceProperties` of its device.

    Returns:
        The number of blocks. None if an arg or a property is missing, if the limit of
        blocks is unknown, and if not even one block fits.
    """
    block = _read_block_needs(args)
    sm = _read_multiprocessor(properties)
    if block is None or sm is None:
        return None

    block_limits = [sm.max_blocks, sm.threads // (block.warps * _WARP_THREADS)]

    if block.thread_registers > 0:
        # A warp gets whole units of registers, all from one partition of the SM.
        units_per_warp = _divide_rounding_up(
            block.thread_registers * _WARP_THREADS, _REGISTER_UNIT
        )
        units_per_partition = sm.registers // _PARTITIONS // _REGISTER_UNIT
        warps_per_partition = units_per_partition // units_per_warp
        block_limits.append(warps_per_partition * _PARTITIONS // block.warps)

    shared_bytes_per_block = block.shared_bytes + sm.reserved_bytes
    if shared_bytes_per_block > 0:
        block_limits.append(sm.shared_bytes // shared_bytes_per_block)

    resident_blocks = min(block_limits)
    return resident_blocks if resident_blocks > 0 else None


class _BlockNeeds(NamedTuple):
    """The resources that one block of a kernel takes."""

    warps: int
    thread_registers: int
    """The registers of each thread."""
    shared_bytes: int


class _Multiprocessor(NamedTuple):
    """The resources that a multiprocessor (SM) shares among its blocks."""

    max_blocks: int
    threads: int
    registers: int
    shared_bytes: int
    reserved_bytes: int
    """Shared memory that the system takes for each block."""


def _read_block_needs(args: dict[str, Any]) -> _BlockNeeds | None:
    """Read from the args of a kernel which resources one of its blocks needs.

    These are warps, registers per thread, and bytes of shared memory. Returns None if
    an arg is missing.
    """
    block = _parse_triple(args.get("block"))
    thread_registers = _parse_natural_number(args.get("registers per thread"))
    shared_bytes = _parse_natural_number(args.get("shared memory"))
    if block is None or thread_registers is None or shared_bytes is None:
        return None
    return _BlockNeeds(
        warps=_divide_rounding_up(math.prod(block), _WARP_THREADS),
        thread_registers=thread_registers,
        shared_bytes=shared_bytes,
    )


def _read_multiprocessor(properties: dict[str, Any]) -> _Multiprocessor | None:
    """Read which resources a multiprocessor of an NVIDIA device has.

    These are threads, registers, shared memory (bytes), and the limit of blocks by
    compute capability. Returns None if a property is missing, or if the limit of blocks
    is unknown.
    """
    threads = _parse_natural_number(properties.get("maxThreadsPerMultiprocessor"))
    registers = _parse_natural_number(properties.get("regsPerMultiprocessor"))
    shared_bytes = _parse_natural_number(properties.get("sharedMemPerMultiprocessor"))
    if threads is None or registers is None or shared_bytes is None:
        return None

    major = _parse_natural_number(properties.get("computeMajor"))
    capability = f"{major}.{properties.get('computeMinor')}"
    max_blocks = _MAX_BLOCKS_PER_SM.get(capability)
    if major is None or max_blocks is None:
        return None

    return _Multiprocessor(
        max_blocks=max_blocks,
        threads=threads,
        registers=registers,
        shared_bytes=shared_bytes,
        reserved_bytes=_RESERVED_BYTES_SINCE_8 if major >= 8 else 0,
    )


def _does_grid_match_tiles(
    grid: tuple[int, int, int],
    *,
    tiles_along_n: int,
    tiles_along_m: int,
    batch: int,
    is_cutlass: bool,
) -> bool:
    """Return whether a launch grid has one block for each tile of each matrix.

    The grid of a kernel of CUTLASS may be rounded up, so that some blocks have no tile.

    Args:
        grid: The launch grid (x, y, z) in blocks.
        tiles_along_n: The tiles of one matrix along n.
        tiles_along_m: The tiles of one matrix along m.
        batch: How many matrices are multiplied.
        is_cutlass: Whether the kernel is one of CUTLASS.
    """
    # With one matrix, a third dimension of the grid would be parts of K.
    if batch == 1 and grid[2] > 1:
        return False
    if math.prod(grid) == tiles_along_n * tiles_along_m * batch:
        return True
    if not is_cutlass:
        return False

    # CUTLASS may lay 2, 4 or 8 rows of tiles side by side (a swizzle): along m or n.
    for swizzle in _SWIZZLES:
        along_m = tiles_along_m * swizzle, _divide_rounding_up(tiles_along_n, swizzle)
        along_n = tiles_along_n * swizzle, _divide_rounding_up(tiles_along_m, swizzle)
        if grid in ((*along_m, batch), (*along_n, batch)):
            return True
    return False


def _parse_triple(value: object) -> tuple[int, int, int] | None:
    """Return a recorded list of three positive integers as (x, y, z), else None.

    >>> _parse_triple([8, 2, 1]), _parse_triple([8])
    ((8, 2, 1), None)
    """
    if not isinstance(value, list) or len(value) != 3:
        return None
    if not all(_parse_natural_number(size) for size in value):
        return None
    x, y, z = value
    return x, y, z


def _parse_natural_number(value: object) -> int | None:
    """Return a recorded value if it is an integer from 0 up; None for anything else."""
    return value if isinstance(value, int) and value >= 0 else None
