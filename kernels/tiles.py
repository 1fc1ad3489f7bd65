"""Which tile a Triton GEMM uses on which GPU: the best of those that compile clean.

`tiles.json` is written by benchmarks/triton_code.py, which compiles the candidates and
reads the machine code. A tile is clean if nothing is spilled and its shared memory
fits.
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
"""Triton knows of a size or a stride only whether 16 divides it: then it loads 16 bytes
at once."""


FEWER_WARPS = 4
"""Of a block that is smaller than its tile could be."""


class Tile(NamedTuple):
    """Rows, columns and depth of a block's tile, its warps, the stages of its pipeline,
    and the shared memory that the compiled kernel uses, in bytes."""

    m: int
    n: int
    k: int
    warps: int
    stages: int
    shared: int


Table = Mapping[str, Mapping[str, Tile]]
"""Tiles by architecture, such as sm_80 or gfx942, and by the name of a precision."""


class TileTables(msgspec.Struct):
    """The tiles of both GEMMs."""

    geglu: dict[str, dict[str, Tile]]
    grouped: dict[str, dict[str, Tile]]


TABLES = msgspec.json.decode(
    Path(__file__).with_name("tiles.json").read_bytes(), type=TileTables
)


def choose(table: Table, tensor: Tensor) -> Tile:
    """The tile for the tensor's device and dtype."""
    return table[nearest(table, architecture(tensor))][precision_name(tensor)]


def for_rows(tile: Tile, rows: int, tensor: Tensor) -> Tile:
    """The tile with no more rows than a power of two needs to cover them: a decode step
    has few, and what a tile computes beyond them is thrown away."""
    height = block_size(rows, tile.m)
    if height == tile.m:
        return tile
    warps = min(FEWER_WARPS, warps_at_most(height, tile.n, tile.k, tensor))
    return tile._replace(m=height, warps=warps)


def block_size(size: int, largest: int) -> int:
    """The power of two that covers a size, from 16, the minimum of `tl.dot`, up to
    `largest`."""
    power = 1 << max(size - 1, 0).bit_length()
    return max(QUANTUM, min(power, largest))


def warps_at_most(m: int, n: int, k: int, tensor: Tensor) -> int:
    """With how many warps each thread still has 16 bytes of the smallest block to
    move."""
    smallest = min(m * k, k * n, m * n)
    return max(int(smallest * tensor.element_size()) // bytes_of_warp(tensor), 1)


def architecture(tensor: Tensor) -> str:
    """The architecture of the tensor's GPU: `sm_90`, `gfx942`; on a CPU, that of an
    A100."""
    if tensor.device.type != "cuda":
        return "sm_80"
    properties = torch.cuda.get_device_properties(tensor.device)
    if torch.version.hip:
        return str(properties.gcnArchName).partition(":")[0]
    return f"sm_{properties.major}{properties.minor}"


def nearest(table: Table, found: str) -> str:
    """The last architecture of the table that is not newer; the oldest of an unknown
    AMD GPU."""
    if found in table:
        return found
    if not found.startswith("sm_"):
        return min(name for name in table if name.startswith("gfx"))
    known = sorted(int(name[3:]) for name in table if name.startswith("sm_"))
    older = [number for number in known if number <= int(found[3:])]
    return f"sm_{max(older, default=known[0])}"


def has_tf32(found: str) -> bool:
    """Whether an architecture multiplies TF32, or XF32 as AMD's is called."""
    return found == "gfx942" or not found.startswith("gfx")


def precision(tensor: Tensor) -> str:
    """How Triton multiplies float32: exactly, unless torch allows TF32 and the GPU has
    any."""
    exact = torch.get_float32_matmul_precision() == "highest"
    return "ieee" if exact or not has_tf32(architecture(tensor)) else "tf32"


def precision_name(tensor: Tensor) -> str:
    """`bf16`, `fp16`, `fp32`, or `tf32` if torch allows it."""
    if tensor.dtype == torch.float32:
        return "fp32" if precision(tensor) == "ieee" else "tf32"
    return {torch.bfloat16: "bf16", torch.float16: "fp16"}[tensor.dtype]


def reads_only_depth(tensor: Tensor) -> bool:
    """Whether the matrix instructions read operands only along the depth of a product,
    as WGMMA does with TF32: any other layout would be copied word by word, so it is
    copied once before."""
    is_tf32 = precision_name(tensor) == "tf32"
    return is_tf32 and architecture(tensor) in ("sm_90", "sm_100", "sm_103")


def run_of_store(tensor: Tensor, narrowest: int) -> int:
    """How many adjacent sums a thread must be given to write 16 bytes; 1 where Triton
    does so.

    `narrowest` is the smaller side of a block. The matrix instructions of CDNA leave 4
    adjacent sums to a thread (AMD matrix instruction calculator), 8 bytes in a 16-bit
    format, and Triton writes them from there; on gfx950 it swaps those of the
    instructions for 32 rows and columns.
    """
    found = architecture(tensor)
    is_short = found in ("gfx908", "gfx90a", "gfx940", "gfx941", "gfx942")
    is_short |= found == "gfx950" and narrowest < 32
    return 8 if is_short and tensor.element_size() == 2 else 1


def register_limit(tensor: Tensor) -> Mapping[str, int]:
    """Triton's option with as many registers as a thread can have, where ptxas is given
    it. From sm_90 on ptxas spills a value of some loops in float32 so that one more
    block fits into a multiprocessor, although it has registers left; an explicit limit
    keeps it from that."""
    found = architecture(tensor)
    is_new = found.startswith("sm_") and int(found[3:]) >= 90
    return {"maxnreg": 255} if is_new and tensor.dtype == torch.float32 else {}


def bytes_of_warp(tensor: Tensor) -> int:
    """What a warp moves at once: 16 bytes for each of its threads."""
    return 16 * (64 if architecture(tensor).startswith("gfx") else 32)


def padded(size: int) -> int:
    """The size rounded up to the quantum."""
    return size + -size % QUANTUM


def whole(tensor: Tensor, *steps: int) -> Tensor:
    """The tensor, contiguous, with zeros after its last axes, so that their sizes are
    multiples of the steps; a copy only where that is needed."""
    extra = [
        -size % step
        for size, step in zip(reversed(tensor.shape), reversed(steps), strict=False)
    ]
    if any(extra):
        tensor = functional.pad(
            tensor, [after for more in extra for after in (0, more)]
        )
    return tensor.contiguous()
