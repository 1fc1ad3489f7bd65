"""The tile that a Triton GEMM uses on each GPU.

`tiles.json` has the best tile that compiles clean, for each architecture and precision:
nothing is spilled, and its shared memory fits. benchmarks/triton_code.py writes it,
which compiles the candidates and reads the machine code.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import torch
from torch import Tensor
from torch.nn import functional

QUANTUM = 16
"""Triton only knows whether 16 divides a size or a stride: then it loads 16 bytes at
once."""

FEWER_WARPS = 4
"""Of a block that is smaller than the tile of its GPU, at most."""


class Tile(NamedTuple):
    """The tile [m, n] of the output that a block computes, `k` elements of depth at a
    time; the block's warps, the stages of its pipeline, and the shared memory of the
    compiled kernel in bytes."""

    m: int
    n: int
    k: int
    warps: int
    stages: int
    shared: int


Table = Mapping[str, Mapping[str, Tile]]
"""Tiles by architecture, such as `sm_80` or `gfx942`, and then by `precision_name`."""


class TileTables(msgspec.Struct):
    """The tiles of both GEMMs: those of geglu.py and of grouped_gemm.py."""

    geglu: dict[str, dict[str, Tile]]
    grouped: dict[str, dict[str, Tile]]


TABLES = msgspec.json.decode(
    Path(__file__).with_name("tiles.json").read_bytes(), type=TileTables
)


def choose(table: Table, tensor: Tensor) -> Tile:
    """Return the tile for the GPU and the dtype of a tensor. A GPU that the table lacks
    takes the tile of a similar one."""
    known_architecture = nearest(table, architecture(tensor))
    return table[known_architecture][precision_name(tensor)]


def shrink_to_rows(tile: Tile, rows: int, tensor: Tensor) -> Tile:
    """Return the tile with fewer rows if all rows fit into them, a power of two. A
    decode step has few rows, and what a tile computes beyond them is thrown away."""
    block_m = choose_block_size(rows, tile.m)
    if block_m == tile.m:
        return tile
    warps = min(FEWER_WARPS, limit_warps(block_m, tile.n, tile.k, tensor))
    return tile._replace(m=block_m, warps=warps)


def choose_block_size(size: int, largest: int) -> int:
    """Return the smallest power of two that is not less than `size`. It is at least 16,
    the minimum of `tl.dot`, and at most `largest`."""
    power_of_two = 1 << max(size - 1, 0).bit_length()
    return max(QUANTUM, min(power_of_two, largest))


def limit_warps(m: int, n: int, k: int, tensor: Tensor) -> int:
    """Return the most warps with which each thread still moves 16 bytes of the smallest
    of three blocks. The blocks are [m, k], [k, n] and [m, n]; the result is at least 1.
    """
    smallest_bytes = min(m * k, k * n, m * n) * tensor.element_size()
    return max(int(smallest_bytes) // count_warp_bytes(tensor), 1)


def architecture(tensor: Tensor) -> str:
    """Return the architecture of the tensor's GPU, such as `sm_90` or `gfx942`. On a
    CPU, where the kernels are interpreted, it is that of an A100."""
    if tensor.device.type != "cuda":
        return "sm_80"
    properties = torch.cuda.get_device_properties(tensor.device)
    if torch.version.hip:
        return str(properties.gcnArchName).partition(":")[0]
    return f"sm_{properties.major}{properties.minor}"


def nearest(table: Table, wanted: str) -> str:
    """Return the architecture of the table whose tiles an architecture takes. That is
    itself, or the newest one of NVIDIA that is not newer, or the oldest of all.

    An AMD GPU that is not in the table takes the first one of AMD by name.
    """
    if wanted in table:
        return wanted
    if not wanted.startswith("sm_"):
        return min(name for name in table if name.startswith("gfx"))
    numbers = [_sm_number(name) for name in table if name.startswith("sm_")]
    older = [number for number in numbers if number <= _sm_number(wanted)]
    return f"sm_{max(older, default=min(numbers))}"


def _sm_number(architecture: str) -> int:
    """90 for `sm_90`."""
    return int(architecture.removeprefix("sm_"))


def has_tf32(architecture: str) -> bool:
    """Return whether an architecture multiplies TF32, or XF32 as AMD's is called. Of
    AMD, only gfx942 does."""
    return architecture == "gfx942" or not architecture.startswith("gfx")


def precision(tensor: Tensor) -> str:
    """Return how Triton multiplies float32: `tf32` if torch allows it and the GPU has
    it, otherwise `ieee`, which is exact."""
    allows_tf32 = torch.get_float32_matmul_precision() != "highest"
    return "tf32" if allows_tf32 and has_tf32(architecture(tensor)) else "ieee"


def precision_name(tensor: Tensor) -> str:
    """Return the precision of products of a tensor: `bf16`, `fp16` or `fp32` by its
    dtype, or `tf32` for float32 that Triton multiplies so."""
    if tensor.dtype == torch.float32:
        return "fp32" if precision(tensor) == "ieee" else "tf32"
    return {torch.bfloat16: "bf16", torch.float16: "fp16"}[tensor.dtype]


def reads_only_depth(tensor: Tensor) -> bool:
    """Return whether the matrix instructions read operands only along the depth of a
    product, as WGMMA does with TF32. Any other layout would be copied word by word, so
    it is copied once before."""
    is_tf32 = precision_name(tensor) == "tf32"
    return is_tf32 and architecture(tensor) in ("sm_90", "sm_100", "sm_103")


def run_of_store(tensor: Tensor, narrowest: int) -> int:
    """Return how many adjacent sums a thread must be given to write 16 bytes at once:
    8, or 1 where Triton does so by itself. It is the RUN of `geglu.store_tile`.

    `narrowest` is the smaller side of a block. The matrix instructions of CDNA leave 4
    adjacent sums to a thread (AMD matrix instruction calculator). These are 8 bytes in
    a 16-bit format, and Triton writes them from there. On gfx950 it exchanges the sums
    of the instructions for 32 rows and columns, but not those of the smaller ones.
    """
    gpu = architecture(tensor)
    has_four_sums = gpu in ("gfx908", "gfx90a", "gfx940", "gfx941", "gfx942")
    has_four_sums |= gpu == "gfx950" and narrowest < 32
    return 8 if has_four_sums and tensor.element_size() == 2 else 1


def register_limit(tensor: Tensor) -> Mapping[str, int]:
    """Return options for a launch: `{"maxnreg": 255}`, as many registers as a thread
    can have, for float32 from sm_90 on. Otherwise there are none.

    Without it, ptxas spills a value of some loops so that one more block fits into a
    multiprocessor, although it has registers left.
    """
    gpu = architecture(tensor)
    is_new = gpu.startswith("sm_") and _sm_number(gpu) >= 90
    return {"maxnreg": 255} if is_new and tensor.dtype == torch.float32 else {}


def count_warp_bytes(tensor: Tensor) -> int:
    """Return how many bytes a warp moves at once: 16 for each of its threads, of which
    AMD has 64 and NVIDIA 32."""
    threads = 64 if architecture(tensor).startswith("gfx") else 32
    return 16 * threads


def padded(size: int) -> int:
    """The size rounded up to a multiple of 16."""
    return size + -size % QUANTUM


def whole(tensor: Tensor, *steps: int) -> Tensor:
    """Return the tensor, contiguous, with zeros at the end of its last axes, so that
    their sizes are multiples of `steps`. It is copied only if that is needed."""
    padding: list[int] = []  # as torch takes it: before and after, last axis first
    for size, step in zip(reversed(tensor.shape), reversed(steps), strict=False):
        padding += [0, -size % step]
    if any(padding):
        tensor = functional.pad(tensor, padding)
    return tensor.contiguous()
