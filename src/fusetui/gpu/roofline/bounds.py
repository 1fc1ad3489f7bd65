"""Which limit of the device bounds a kernel, and what share of it was reached.

The roofline model (Williams, Waterman, Patterson, 2009): a kernel takes at least flop / peak FLOP/s
and at least bytes / peak bytes/s. The longer of these times is the bound, and its share of the time
taken is the share of peak.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from fusetui.gpu.kernel_names.record import KernelName
from fusetui.gpu.roofline.inputs import NS, Amount
from fusetui.gpu.roofline.peaks import Peak
from fusetui.text.patterns import late

# Algorithms that need fewer products than the plain sum: their share of peak would mislead.
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
_BITS: Final = {"fp4": 4, "mxfp4": 4, "nvfp4": 4, "fp6": 6, "mxfp6": 6, "fp8": 8, "mxfp8": 8}


BY_MEMORY: Final = ("elementwise", "softmax", "norm")  # kinds of work of which only the bytes count


class Limits(msgspec.Struct, frozen=True):
    """The minimum times (ns) that a device needs for some work; None if unknown. `cached`: so much
    of the data may come from the cache that memory is not a limit."""

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

    def shares(self, ns: int) -> dict[str, Any]:
        """What bounds work of `ns` nanoseconds, and how close it came to each limit (1.0: all of a
        peak); nothing for 0 ns. The keys are those of `KernelWork`."""
        if ns <= 0:
            return {}
        memory = None if self.memory_ns is None or self.cached else self.memory_ns / ns
        return {
            "bound": self.bound,
            "share_of_compute": None if self.compute_ns is None else self.compute_ns / ns,
            # What came faster than memory can deliver came from the cache.
            "share_of_bandwidth": None if memory is not None and memory > 1 else memory,
        }


def limits(amount: Amount, kernel: KernelName | None, name: str, peak: Peak) -> Limits:
    """The limits of the device for this work; `name` is that of the kernel."""
    compute = memory = None
    kind = arithmetic(amount.dtype, kernel, peak)
    rate = peak.flop_per_s(kind)
    if amount.flop and rate and not _FEWER_PRODUCTS.search(name):
        compute = amount.flop / rate * NS
    if amount.bytes and peak.bytes_per_s:
        memory = amount.bytes / peak.bytes_per_s * NS
    return Limits(
        compute_ns=compute,
        memory_ns=memory,
        cached=amount.bytes is not None and amount.bytes <= _IN_CACHE * peak.cache_bytes,
        bound=_bound(amount, compute, memory),
        kind=kind,
    )


def arithmetic(dtype: str | None, kernel: KernelName | None, peak: Peak) -> str | None:
    """Which arithmetic of the table a kernel uses for inputs of this type; None if undetermined.
    fp32 inputs may be multiplied as tf32 or fp32, and fp16 products may be accumulated in fp16: the
    kernel's name has to say so. Formats below 16 bits run at the rate of the wider operand."""
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
    if dtype in ("fp16", "bf16") and kernel.mma is None and _PLAIN_HALF.search(kernel.name):
        return f"{dtype}_plain" if kernel.dtype_acc == dtype else None
    if dtype == "fp16" and "fp16_acc16" in peak.teraflops:
        return {"fp16": "fp16_acc16", "fp32": "fp16"}.get(kernel.dtype_acc or "")
    return _narrow(kernel) or ("fp8" if dtype.startswith("fp8") else dtype)


def on_plain_cores(kernel: KernelName) -> bool:
    """A GEMM or convolution of float32 whose name says that it uses no tensor core."""
    if kernel.op not in ("gemm", "conv") or "fp32" not in (kernel.dtype_a, kernel.dtype):
        return False
    no_cores = kernel.math is None and kernel.mma is None
    return no_cores and _PLAIN_CORES["fp32"].search(kernel.name) is not None


def _narrow(kernel: KernelName) -> str | None:
    """The rate of two operands below 16 bits: mxfp4 x mxfp8 runs as fp8."""
    words = [(dtype or "").split("_")[0] for dtype in (kernel.dtype_a, kernel.dtype_b)]
    if any(word not in _BITS for word in words):
        return None
    return f"fp{max(_BITS[word] for word in words)}"


def _bound(amount: Amount, compute: float | None, memory: float | None) -> str | None:
    if amount.kind in BY_MEMORY:
        return "memory" if memory is not None else None
    if amount.kind == "conv" and memory is None:
        return "compute" if compute is not None else None  # the bound of its FLOP
    if compute is None or memory is None:
        return None
    return "compute" if compute >= memory else "memory"
