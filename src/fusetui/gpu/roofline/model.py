"""The records of this package: what an op computes, and how efficiently a kernel did it."""

from __future__ import annotations

import msgspec

NS = 1_000_000_000

Shape = tuple[int, ...]


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """What one op computes, judging only by its recorded inputs. `flop` counts floating-point
    operations, `bytes` the minimum traffic: every input read once and every output written once.
    `dtype` is the element type of what is multiplied or moved."""

    kind: str  # matmul, conv, attention, elementwise, softmax or norm
    shapes: tuple[Shape, ...]
    dtype: str | None = None
    m: int | None = None
    n: int | None = None
    k: int | None = None
    batch: int | None = None
    flop: int | None = None
    bytes: int | None = None


class KernelWork(Amount, frozen=True, kw_only=True):
    """The work of one kernel. Whatever depends on an unknown input is None. The output of a matmul
    is [batch, m, n], each element a sum of k products. A wave is what the device holds at once;
    `last_wave_empty` is the share of the last one without a tile."""

    op: str
    ns: int
    tiles: int | None = None
    sms: int | None = None  # multiprocessors or compute units of the device
    waves: float | None = None
    last_wave_empty: float | None = None
    share_of_compute: float | None = None
    share_of_bandwidth: float | None = None
    bound: str | None = None  # compute or memory

    @property
    def flop_per_s(self) -> float | None:
        """Achieved FLOP/s over the kernel's own duration."""
        return self.flop * NS / self.ns if self.flop and self.ns > 0 else None

    @property
    def bytes_per_s(self) -> float | None:
        """Achieved bytes/s, for the minimum traffic and the kernel's own duration."""
        return self.bytes * NS / self.ns if self.bytes and self.ns > 0 else None

    @property
    def share_of_peak(self) -> float | None:
        """The share of the limit that bounds it: 1.0 is the roof."""
        if self.bound == "memory":
            return self.share_of_bandwidth
        return self.share_of_compute if self.bound == "compute" else None
