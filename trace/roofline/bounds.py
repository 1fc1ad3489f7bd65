"""Which limit of the device binds a kernel, and what share of it was reached.

The roofline model (Williams, Waterman, Patterson, 2009): a kernel takes at least flop / peak FLOP/s
and at least bytes / peak bytes/s; the longer time is the limit that binds, and its share of the
time taken is the share of peak.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from fusetui.trace.kernel_names.model import KernelName
from fusetui.trace.roofline.model import NS, Amount
from fusetui.trace.roofline.peaks import Peak

# Algorithms that need fewer products than the plain sum: their share of peak would mislead.
_FEWER_PRODUCTS: Final = re.compile(r"winograd|fft|Sp3AsmConv", re.IGNORECASE)
_PLAIN_CORES: Final = {"fp32": re.compile(r"sgemm|scudnn"), "fp64": re.compile(r"dgemm")}
_IN_CACHE: Final = 2  # times its size
_MATH: Final = {"tf32": "tf32", "bf16": "bf16", "fp16": "fp16", "f16": "fp16"}


class Roof(msgspec.Struct, frozen=True):
    """Shares are of the peak, 1.0 is all of it. None when a peak or an amount is unknown."""

    share_of_compute: float | None = None
    share_of_bandwidth: float | None = None
    bound: str | None = None


def roof(amount: Amount, kernel: KernelName | None, name: str, ns: int, peak: Peak) -> Roof:
    """How near a kernel of `ns` nanoseconds came to the limits of its device."""
    if ns <= 0:
        return Roof()
    least_compute = least_memory = None
    rate = peak.flop_per_s(arithmetic(amount.dtype, kernel, peak))
    if amount.flop and rate and not _FEWER_PRODUCTS.search(name):
        least_compute = amount.flop / rate
    if amount.bytes:
        least_memory = amount.bytes / peak.bytes_per_s
    return Roof(
        share_of_compute=None if least_compute is None else least_compute * NS / ns,
        share_of_bandwidth=_from_memory(amount, least_memory, ns, peak),
        bound=_bound(amount, least_compute, least_memory),
    )


def arithmetic(dtype: str | None, kernel: KernelName | None, peak: Peak) -> str | None:
    """Which arithmetic of the table a kernel uses on inputs of this type; None if unsettled.

    fp32 inputs may be multiplied as tf32 or as they are, and fp16 sums may be kept in fp16: the
    kernel's name has to say so.
    """
    if kernel is None or dtype is None:
        return None
    if kernel.math is not None:
        return _MATH.get(kernel.math)
    if dtype in ("fp32", "fp64"):
        if kernel.mma_mn is not None or kernel.mma is not None:
            return f"{dtype}_matrix"
        return dtype if _PLAIN_CORES[dtype].search(kernel.name) else None
    if dtype == "fp16" and "fp16_acc16" in peak.teraflops:
        return {"fp16": "fp16_acc16", "fp32": "fp16"}.get(kernel.dtype_acc or "")
    return "fp8" if dtype.startswith("fp8") else dtype


def _from_memory(amount: Amount, least: float | None, ns: int, peak: Peak) -> float | None:
    """The share of bandwidth, unless much of the data may have come from the cache instead.

    That is so up to twice the size of the cache, and certain when it came faster than memory can
    deliver.
    """
    if least is None or amount.bytes is None or amount.bytes <= _IN_CACHE * peak.cache_bytes:
        return None
    share = least * NS / ns
    return share if share <= 1 else None


def _bound(amount: Amount, compute: float | None, memory: float | None) -> str | None:
    if amount.kind == "elementwise":
        return "memory" if memory is not None else None
    if compute is None or memory is None:
        return None
    return "compute" if compute >= memory else "memory"
