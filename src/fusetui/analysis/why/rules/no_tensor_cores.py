"""float32 products on the plain cores of a device that has tensor cores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.kernels import Flags, Int64s, Kernels
from fusetui.analysis.why.rule import CannotTell, Claim, Rule, is_worth, share_of_work
from fusetui.gpu.roofline.bounds import on_plain_cores
from fusetui.gpu.roofline.peaks import Peak
from fusetui.text.figures import duration, plural

HALF = (
    "torch.autocast('cuda', dtype=torch.float16) with torch.amp.GradScaler: inputs are rounded to "
    "10 bits of mantissa, and small gradients vanish without its loss scaling."
)
"""The remedy where there is neither TF32 nor bfloat16."""


class Faster(NamedTuple):
    name: str
    ratio: float  # the plain rate as a share of its rate
    remedy: str | None = None  # instead of the rule's own


def find(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    plain = plain_of(kernels)
    if not plain.any():
        return
    if kernels.peak is None:
        raise CannotTell(
            "a device of the table of peaks", "deviceProperties, as torch 1.12 and later"
        )
    faster = _faster(kernels.peak)
    if faster is None:
        return
    each = kernels.effective_ns[plain]
    ns, at_stake = int(each.sum()), int((each - _least_ns(kernels, plain, faster.ratio)).sum())
    number = int(np.count_nonzero(plain))
    yield Claim(
        text=f"{plural(number, 'float32 product')} {'takes' if number == 1 else 'take'} "
        f"{duration(ns)} "
        f"({share_of_work(facts, ns)}) on the plain cores; this device multiplies {faster.name} "
        f"{1 / faster.ratio:.0f} times as fast.",
        at_stake_ns=at_stake,
        rows=kernels.heaviest(plain),
        remedy=faster.remedy,
        why_likely="Small products gain less.",
    )


def claimed(facts: Facts) -> Flags:
    """The kernels of the claim, if it is worth a look."""
    kernels = facts.kernels
    found = plain_of(kernels)
    faster = _faster(kernels.peak) if kernels.peak is not None else None
    if faster is None or not found.any():
        return np.zeros_like(found)
    saved = kernels.effective_ns[found] - _least_ns(kernels, found, faster.ratio)
    return found & is_worth(facts, int(saved.sum()), of_kernels=True)


def plain_of(kernels: Kernels) -> Flags:
    """The products on plain cores; no convolutions where others use TF32: then cuDNN may use it,
    and has chosen these kernels."""
    plain = kernels.flags(on_plain_cores)
    convolutions = kernels.flags(lambda kernel: kernel.op == "conv")
    allowed = (convolutions & kernels.flags(lambda kernel: "tf32" in kernel.name)).any()
    return plain & ~convolutions if allowed else plain


def _least_ns(kernels: Kernels, plain: Flags, ratio: float) -> Int64s:
    """The same work at the faster rate, but no faster than its bytes can be moved."""
    each = kernels.effective_ns[plain]
    memory = kernels.of_jobs(lambda job: job.limits.memory_ns)[plain]
    least = np.maximum(each * ratio, np.nan_to_num(memory))
    found: Int64s = np.minimum(np.ceil(least).astype(np.int64), each)
    return found


def _faster(peak: Peak) -> Faster | None:
    """TF32, else bfloat16, else float16 on tensor cores."""
    plain = peak.flop_per_s("fp32")
    for kind, name in (("tf32", "TF32"), ("bf16", "bfloat16"), ("fp16", "float16")):
        rate = peak.flop_per_s(kind) or 0
        if plain and rate > max(plain, peak.flop_per_s(f"{kind}_plain") or 0):
            return Faster(name, plain / rate, HALF if kind == "fp16" else None)
    return None


RULE = Rule(
    id="no-tensor-cores",
    title="float32 without tensor cores",
    question="Do matrix products run on the plain cores although the device has tensor cores for "
    "them?",
    needs="Kernel names, and a device of the table of peaks.",
    formula="The time of float32 GEMMs and convolutions on plain cores, minus that of the same "
    "work at the device's TF32 (else bfloat16, else float16) rate by the data sheet, or at its "
    "bandwidth if, by the shapes, that takes longer.",
    remedy='torch.set_float32_matmul_precision("high") uses TF32'
    "{nvidia: (torch.backends.cudnn.allow_tf32 for convolutions)}: inputs are rounded to 10 bits "
    "of mantissa. autocast to bfloat16 rounds to 7.",
    thresholds={},
    silent="Convolutions on plain cores beside others in TF32 are cuDNN's choice.",
    find=find,
    of_kernels=True,
)
