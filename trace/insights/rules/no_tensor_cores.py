"""float32 products on the plain cores of a device that has tensor cores."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fusetui.trace.insights.facts import Facts
from fusetui.trace.insights.kernels import Flags, Int64s, Kernels
from fusetui.trace.insights.rule import CannotTell, Claim, Rule
from fusetui.trace.insights.wording import share_of_span
from fusetui.trace.kernel_names import KernelName
from fusetui.trace.roofline.peaks import Peak
from fusetui.trace.text.figures import count, duration

PLAIN = ("sgemm", "scudnn", "simt")
"""What cuBLAS, cuDNN and CUTLASS call kernels of the plain float32 cores."""


def find(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    plain = kernels.flags(is_plain)
    if not plain.any():
        return
    if kernels.peak is None:
        raise CannotTell(
            "a device of the table of peaks", "deviceProperties, as torch 1.12 and later"
        )
    faster = _faster(kernels.peak)
    if faster is None:
        return
    kind, ratio = faster
    each = kernels.effective_ns[plain]
    ns, at_stake = int(each.sum()), int((each - _least_ns(kernels, plain, ratio)).sum())
    yield Claim(
        text=f"{count(int(np.count_nonzero(plain)))} float32 products take {duration(ns)} "
        f"({share_of_span(facts, ns)}) on the plain cores; this device multiplies {kind} "
        f"{1 / ratio:.0f} times as fast.",
        at_stake_ns=at_stake,
        rows=kernels.heaviest(plain),
        why_likely="Small products gain less.",
    )


def _least_ns(kernels: Kernels, plain: Flags, ratio: float) -> Int64s:
    """The same work at the faster rate, but no faster than its bytes can be moved."""
    each = kernels.effective_ns[plain]
    memory = kernels.of_jobs(lambda job: job.limits.memory_ns)[plain]
    least = np.maximum(each * ratio, np.nan_to_num(memory))
    found: Int64s = np.minimum(np.ceil(least).astype(np.int64), each)
    return found


def is_plain(kernel: KernelName) -> bool:
    """A GEMM or convolution of float32 whose name says that no tensor core is used."""
    if kernel.op not in ("gemm", "conv") or "fp32" not in (kernel.dtype_a, kernel.dtype):
        return False
    no_cores = kernel.math is None and kernel.mma is None
    return no_cores and any(word in kernel.name for word in PLAIN)


def _faster(peak: Peak) -> tuple[str, float] | None:
    """TF32, else bfloat16, and the plain rate as a share of its rate."""
    plain = peak.flop_per_s("fp32")
    for kind, name in (("tf32", "TF32"), ("bf16", "bfloat16")):
        rate = peak.flop_per_s(kind)
        if plain and rate and rate > plain:
            return name, plain / rate
    return None


RULE = Rule(
    id="no-tensor-cores",
    title="float32 without tensor cores",
    question="Do matrix products run on the plain cores although the device has tensor cores for "
    "them?",
    needs="Kernel names, and a device whose rates are known.",
    formula="The time of float32 GEMMs and convolutions on plain cores, minus that of the same "
    "work at the device's TF32 (else bfloat16) rate by the data sheet, or at its bandwidth if, by "
    "the shapes, that takes longer.",
    remedy='torch.set_float32_matmul_precision("high") uses TF32: inputs are rounded to 10 bits of '
    "mantissa. autocast to bfloat16 rounds to 7.",
    thresholds={},
    find=find,
)
