"""The GPU of the lessons, and what Kineto computes of a launch on it."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod

A100 = {
    "id": 0,
    "name": "NVIDIA A100-SXM4-80GB",
    "totalGlobalMem": 84987740160,
    "computeMajor": 8,
    "computeMinor": 0,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerBlock": 65536,
    "warpSize": 32,
    "sharedMemPerBlock": 49152,
    "numSms": 108,
    "regsPerMultiprocessor": 65536,
    "sharedMemPerBlockOptin": 166912,
    "sharedMemPerMultiprocessor": 167936,
}
"""`deviceProperties` as Kineto writes it."""

_SMS, _WARP, _THREADS = 108, 32, 2048
_REGISTERS, _SHARED, _DEFAULT_SHARED = 65536, 167936, 49152
_PARTITIONS = 4  # of an SM: each has its own registers and warps
_REGISTER_UNIT, _SHARED_UNIT, _SYSTEM_SHARED = 256, 128, 1024
_MOST_BLOCKS = 32
_NO_LIMIT = 2**31 - 1


@dataclass(frozen=True)
class Launch:
    """How a kernel is launched; `shared` in bytes."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: int
    shared: int = 0

    @property
    def threads(self) -> int:
        return prod(self.block)

    @property
    def warps(self) -> int:
        return -(-self.threads // _WARP)

    @property
    def blocks_per_sm(self) -> float:
        return _float32(prod(self.grid) / _SMS)

    @property
    def warps_per_sm(self) -> float:
        return _float32(self.blocks_per_sm * self.threads / _WARP)


@dataclass(frozen=True)
class Occupancy:
    """What cudaOccMaxActiveBlocksPerMultiprocessor of CUDA's cuda_occupancy.h finds for
    a launch.

    Kineto leaves the limit of dynamic shared memory at its default of 48 KiB, so a
    kernel that opted in to more gets 0 blocks, and 0 % of occupancy: not what the GPU
    did.
    """

    launch: Launch

    @property
    def registers_of_warp(self) -> int:
        return _up(self.launch.registers * _WARP, _REGISTER_UNIT)

    @property
    def shared_of_block(self) -> int:
        return _up(self.launch.shared + _SYSTEM_SHARED, _SHARED_UNIT)

    @property
    def limits(self) -> dict[str, int]:
        """Blocks on one SM by what they need, in the order in which Kineto names it."""
        warps = _PARTITIONS * (_REGISTERS // _PARTITIONS // self.registers_of_warp)
        fits = self.launch.shared <= _DEFAULT_SHARED
        return {
            "WARPS": _THREADS // _WARP // self.launch.warps,
            "REGS": warps // self.launch.warps,
            "SMEM": _SHARED // self.shared_of_block if fits else 0,
            "BLOCKS": _MOST_BLOCKS,
        }

    @property
    def blocks(self) -> int:
        return min(self.limits.values())

    @property
    def percent(self) -> int:
        """`est. achieved occupancy %`."""
        blocks = min(float(self.blocks), self.launch.blocks_per_sm)
        return int(0.5 + 100 * blocks * self.launch.threads / _THREADS)

    def as_args(self) -> dict[str, object]:
        limits = self.limits
        return {
            "activeBlocksPerMultiprocessor": self.blocks,
            "limitingFactors": "|".join(
                k for k, v in limits.items() if v == self.blocks
            ),
            "blockLimitRegs": limits["REGS"],
            "blockLimitSharedMem": limits["SMEM"],
            "blockLimitWarps": limits["WARPS"],
            "blockLimitBlocks": limits["BLOCKS"],
            "blockLimitBarriers": _NO_LIMIT,
            "allocatedRegistersPerBlock": self.registers_of_warp * self.launch.warps,
            "allocatedSharedMemPerBlock": self.shared_of_block,
        }


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def _float32(number: float) -> float:
    """Kineto computes in float."""
    return float(struct.unpack("f", struct.pack("f", number))[0])
