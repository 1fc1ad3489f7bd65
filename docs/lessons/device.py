"""The GPU of the lessons, and the launch figures that Kineto computes for it."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod

from docs.lessons.tensors import rounded_up

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

_SMS = 108
_WARP_THREADS = 32
_SM_THREADS = 2048
_SM_REGISTERS = 65536
_SM_SHARED_BYTES = 167936
_MAX_SM_BLOCKS = 32
_SM_PARTITIONS = 4  # each has its own registers and warps
_REGISTER_UNIT = 256  # in which a warp gets registers
_SHARED_UNIT = 128  # bytes, in which a block gets shared memory
_SYSTEM_SHARED_BYTES = 1024  # of each block, which CUDA uses itself
_DEFAULT_SHARED_LIMIT = 49152  # bytes of a block that has not opted in to more
_NO_LIMIT = 2**31 - 1


@dataclass(frozen=True)
class Launch:
    """The launch configuration of a kernel: `registers` per thread, and `shared`
    memory per block in bytes."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: int
    shared: int = 0

    @property
    def threads(self) -> int:
        return prod(self.block)

    @property
    def warps(self) -> int:
        return -(-self.threads // _WARP_THREADS)

    @property
    def blocks_per_sm(self) -> float:
        return _float32(prod(self.grid) / _SMS)

    @property
    def warps_per_sm(self) -> float:
        return _float32(self.blocks_per_sm * self.threads / _WARP_THREADS)


@dataclass(frozen=True)
class Occupancy:
    """The occupancy of a launch, computed like
    cudaOccMaxActiveBlocksPerMultiprocessor in CUDA's cuda_occupancy.h.

    Kineto leaves the limit of dynamic shared memory at its default of 48 KiB. For a
    kernel that opted in to more, it therefore computes 0 blocks and an occupancy of
    0 %, which differs from the actual value.
    """

    launch: Launch

    @property
    def registers_of_warp(self) -> int:
        return rounded_up(self.launch.registers * _WARP_THREADS, _REGISTER_UNIT)

    @property
    def shared_of_block(self) -> int:
        """Shared memory of a block in bytes."""
        return rounded_up(self.launch.shared + _SYSTEM_SHARED_BYTES, _SHARED_UNIT)

    @property
    def limits(self) -> dict[str, int]:
        """Number of blocks that fit into each resource of an SM, in the order of
        Kineto."""
        partition_registers = _SM_REGISTERS // _SM_PARTITIONS
        partition_warps = partition_registers // self.registers_of_warp
        by_shared_memory = 0
        if self.launch.shared <= _DEFAULT_SHARED_LIMIT:
            by_shared_memory = _SM_SHARED_BYTES // self.shared_of_block
        return {
            "WARPS": _SM_THREADS // _WARP_THREADS // self.launch.warps,
            "REGS": _SM_PARTITIONS * partition_warps // self.launch.warps,
            "SMEM": by_shared_memory,
            "BLOCKS": _MAX_SM_BLOCKS,
        }

    @property
    def blocks(self) -> int:
        """Number of blocks that fit on one SM."""
        return min(self.limits.values())

    @property
    def percent(self) -> int:
        """Value of `est. achieved occupancy %`."""
        blocks = min(float(self.blocks), self.launch.blocks_per_sm)
        return int(0.5 + 100 * blocks * self.launch.threads / _SM_THREADS)

    def as_args(self) -> dict[str, object]:
        """Return the value of `occupancy` in the args of a kernel event."""
        limits = self.limits
        limiting = [name for name, limit in limits.items() if limit == self.blocks]
        return {
            "activeBlocksPerMultiprocessor": self.blocks,
            "limitingFactors": "|".join(limiting),
            "blockLimitRegs": limits["REGS"],
            "blockLimitSharedMem": limits["SMEM"],
            "blockLimitWarps": limits["WARPS"],
            "blockLimitBlocks": limits["BLOCKS"],
            "blockLimitBarriers": _NO_LIMIT,
            "allocatedRegistersPerBlock": self.registers_of_warp * self.launch.warps,
            "allocatedSharedMemPerBlock": self.shared_of_block,
        }


def _float32(number: float) -> float:
    """Round a number to a C float, as Kineto does."""
    return float(struct.unpack("f", struct.pack("f", number))[0])
