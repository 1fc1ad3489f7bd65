"""Slow products and convolutions with a cause that the kernel names and launches
tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.kernels import Kernels
from fusetui.analysis.why.model import LISTED_DEVICE, Shorter
from fusetui.analysis.why.needs import PROPERTIES, properties_asked
from fusetui.analysis.why.remedies import tags_of
from fusetui.analysis.why.rule import (
    CannotTell,
    Claim,
    Rule,
    is_worth,
    of_work,
    subject,
)
from fusetui.gpu.kernel_names import KernelName
from fusetui.gpu.roofline.bounds import on_plain_cores
from fusetui.gpu.roofline.peaks import Peak, tensor_core_types
from fusetui.text.figures import count, duration, plural
from fusetui.text.patterns import late
from fusetui.trace.layout.devices import device_properties
from fusetui.trace.model.arrays import Flags, Int64s

UNALIGNED = 2  # elements per load or fewer: below 16 bytes for every type
WIDE = ("fp64", "c64", "c128")
PLAIN = "_simt_"
"""CUTLASS builds products of wide types, and those on plain cores, for one element at a
time only: their names say align1 however the tensors are aligned."""


@Rule(
    remedy="Pad sizes to multiples of 8 (16-bit types) or 4 (float32): the vocabulary, the length "
    "of the sequence, the width of a layer.",
    thresholds={"unaligned": UNALIGNED},
    of_kernels=True,
)
def alignment(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    unaligned = kernels.flags(is_unaligned) & ~kernels.tried
    taken, at_stake = (
        kernels.ns(unaligned),
        int(kernels.bounded.at_stake_ns[unaligned].sum()),
    )
    known = kernels.ns(unaligned & (kernels.bounded.bound_ns >= 0))
    if not taken:
        return
    text = (
        f"{subject(int(unaligned.sum()), 'matrix product', 'take')} {of_work(facts, taken)} in "
        f"kernels for tensors that are not aligned to 16 bytes{_shape(kernels, unaligned)}"
    )
    if known:
        those = "it" if int(unaligned.sum()) == 1 else "they"
        those = (
            those
            if known == taken
            else f"{duration(known)} of it, whose work is known,"
        )
        yield Claim(
            text=f"{text}; at the attainable rate {those} would take an estimated "
            f"{duration(at_stake)} less.",
            at_stake_ns=at_stake,
            wanted=Shorter(
                kernels.rows[unaligned], kernels.bounded.at_stake_ns[unaligned]
            ),
            kernels=unaligned,
            why_likely="The alignment may not be the only reason that they are slow.",
        )
    elif is_worth(facts, taken, of_kernels=True):
        yield Claim(text=f"{text}.", kernels=unaligned)


def is_unaligned(kernel: KernelName) -> bool:
    """Its name says how few elements it loads at a time, and kernels of its kind can
    load more."""
    few = kernel.op == "gemm" and kernel.align is not None and kernel.align <= UNALIGNED
    return few and kernel.dtype_acc not in WIDE and PLAIN not in kernel.name


def _shape(kernels: Kernels, which: Flags) -> str:
    number = kernels.job_numbers[kernels.rows.searchsorted(kernels.heaviest(which)[0])]
    amount = kernels.jobs.distinct[number].amount if number >= 0 else None
    if amount is None or not (amount.m and amount.n and amount.k):
        return ""
    shape = f"{count(amount.m)} x {count(amount.k)} by {count(amount.k)} x {count(amount.n)}"
    batch = f"{count(amount.batch)} times " if amount.batch and amount.batch > 1 else ""
    return f", most of all {batch}{shape}"


HALF = (
    "torch.autocast('cuda', dtype=torch.float16){scaler: with torch.amp.GradScaler|training: with "
    "torch.cuda.amp.GradScaler}: inputs are rounded to 10 bits of mantissa"
    "{training:, and small gradients vanish without its loss scaling|:, and values beyond 65,504 "
    "overflow}."
)
"""The remedy where there is neither TF32 nor bfloat16."""
BFLOAT16 = "autocast to bfloat16: inputs are rounded to 7 bits of mantissa."
"""Where TF32 is no faster."""


@Rule(
    needs=(LISTED_DEVICE,),
    remedy='torch.set_float32_matmul_precision("high") uses TF32'
    "{nvidia: (torch.backends.cudnn.allow_tf32 for convolutions)}: inputs are rounded to 10 bits "
    "of mantissa. autocast to bfloat16 rounds to 7.",
    of_kernels=True,
)
def no_tensor_cores(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    plain = _products_on_plain_cores(kernels)
    if kernels.peak is None:
        if plain.any():
            yield from _by_compute_capability(facts, plain)
        return
    yield from _float32_attention(facts, kernels.peak)
    if not plain.any():
        return
    name, ratio = _faster(kernels.peak)
    if name:
        each = _spared_ns(kernels, plain, ratio)
        yield Claim(
            text=f"{subject(int(plain.sum()), 'float32 product', 'take')} "
            f"{of_work(facts, kernels.ns(plain))} on the plain cores; this device multiplies "
            f"{name} {1 / ratio:.0f} times as fast.",
            at_stake_ns=int(each.sum()),
            wanted=Shorter(kernels.rows[plain], each),
            kernels=plain,
            remedy={"float16": HALF, "bfloat16": BFLOAT16}.get(name),
            why_likely="Small products gain less.",
        )


def _products_on_plain_cores(kernels: Kernels) -> Flags:
    plain = kernels.flags(on_plain_cores)
    convolutions = kernels.flags(lambda one: one.op == "conv")
    if (convolutions & kernels.flags(lambda one: "tf32" in one.name)).any():
        plain &= ~convolutions  # where TF32 is allowed, cuDNN has chosen these kernels
    return plain & ~kernels.tried


def _spared_ns(kernels: Kernels, which: Flags, ratio: float) -> Int64s:
    """What each of some kernels takes longer than the same work at a faster rate, of
    which the rate that it has is `ratio`; but no faster than its bytes can be moved."""
    taken_ns = kernels.effective_ns[which]
    memory_ns = np.nan_to_num(kernels.of_jobs(lambda job: job.limits.memory_ns)[which])
    least_ns = np.ceil(np.maximum(taken_ns * ratio, memory_ns)).astype(np.int64)
    spared_ns: Int64s = np.maximum(taken_ns - least_ns, 0)
    return spared_ns


FLOAT32_ATTENTION = late(r"fmha_cutlass[FB]_f32_\w*_sm(?P<arch>\d+)")
"""Memory-efficient attention of PyTorch; FlashAttention and cuDNN have no float32."""
SPLIT_FROM_ARCH = 80
"""From this architecture on, these kernels multiply on tensor cores, each float32
product as SPLIT_PRODUCTS of TF32 (OpMultiplyAddFastF32 of CUTLASS, in
mem_eff_attention/gemm_kernel_utils.h); before it, on the plain cores."""
SPLIT_PRODUCTS = 3


def _float32_attention(facts: Facts, peak: Peak) -> Iterator[Claim]:
    """Attention in float32, on the plain cores or on tensor cores, where these multiply
    16-bit types faster."""
    kernels = facts.kernels
    for is_split in (False, True):
        own_rate = peak.flop_per_s("tf32" if is_split else "fp32") or 0
        if is_split:
            own_rate /= SPLIT_PRODUCTS
        name, rate = _of_16_bits(peak)
        attention = kernels.flags(_is_float32_attention(is_split=is_split))
        if not attention.any() or not 0 < own_rate < rate:
            continue
        ratio = own_rate / rate
        each = _spared_ns(kernels, attention, ratio)
        how = (
            f"in tensor cores, which multiply float32 as {SPLIT_PRODUCTS} products of TF32"
            if is_split
            else "on the plain cores"
        )
        rounding = HALF if name == "float16" else BFLOAT16
        flash = "{torch2: In 16 bits scaled_dot_product_attention can also use FlashAttention.}"
        yield Claim(
            text=f"{subject(int(attention.sum()), 'float32 attention kernel', 'take')} "
            f"{of_work(facts, kernels.ns(attention))} {how}; this device multiplies {name} "
            f"{1 / ratio:.0f} times as fast.",
            at_stake_ns=int(each.sum()),
            wanted=Shorter(kernels.rows[attention], each),
            kernels=attention,
            remedy=f"{rounding}{flash}",
            why_likely="Attention also computes a softmax, which gains nothing.",
        )


def _is_float32_attention(*, is_split: bool) -> Callable[[KernelName], bool]:
    def matches(kernel: KernelName) -> bool:
        found = FLOAT32_ATTENTION.search(kernel.name)
        if found is None:
            return False
        return (int(found["arch"]) >= SPLIT_FROM_ARCH) == is_split

    return matches


def _of_16_bits(peak: Peak) -> tuple[str, float]:
    """bfloat16, else float16, and its rate on tensor cores (FLOP/s); ("", 0.0) for
    none."""
    for kind, name in (("bf16", "bfloat16"), ("fp16", "float16")):
        rate = peak.flop_per_s(kind) or 0
        if rate > (peak.flop_per_s(f"{kind}_plain") or 0):
            return name, rate
    return "", 0.0


def _by_compute_capability(facts: Facts, plain: Flags) -> Iterator[Claim]:
    """A note about a device that the table of peaks lacks. Raises CannotTell, except of
    a device without tensor cores: how much faster they are is unknown."""
    kernels, trace = facts.kernels, facts.trace
    devices = device_properties(trace)
    types = {tensor_core_types(properties) for properties in devices.values()}
    if len(types) != 1 or None in types or "nvidia" not in tags_of(facts):
        raise CannotTell(LISTED_DEVICE, properties_asked(facts))
    (multiplied,) = types
    if not multiplied:
        return
    taken_ns = kernels.ns(plain)
    if is_worth(facts, taken_ns, of_kernels=True):
        first = next(iter(devices.values()))
        capability = f"{first['computeMajor']}.{first['computeMinor']}"
        products = subject(int(plain.sum()), "float32 product", "take")
        yield Claim(
            text=f"{products} {of_work(facts, taken_ns)} on the plain cores; the tensor cores of "
            f"this device (compute capability {capability}) multiply {' and '.join(multiplied)}. "
            "How much faster they are is unknown: the table of peaks does not have this device.",
            kernels=plain,
            remedy=HALF if multiplied == ("float16",) else None,
        )
    raise CannotTell(LISTED_DEVICE, properties_asked(facts))


def _faster(peak: Peak) -> tuple[str, float]:
    """TF32, else bfloat16, else float16 on tensor cores, and the plain rate as a share
    of its rate; ("", 1.0) where none is faster."""
    plain = peak.flop_per_s("fp32")
    for kind, name in (("tf32", "TF32"), ("bf16", "bfloat16"), ("fp16", "float16")):
        rate = peak.flop_per_s(kind) or 0
        if plain and rate > max(plain, peak.flop_per_s(f"{kind}_plain") or 0):
            return name, plain / rate
    return "", 1.0


SHORTEST_NS = 20_000
FEW = 0.75  # blocks for each multiprocessor
LEAST_SHARE = 0.05  # of the time of all kernels
BUSY_MEMORY = 0.5  # of the bandwidth of the data sheet

LARGER = "Larger batches, or another implementation of this op, which divides its work further."
OF_WORK: Final[dict[str, Callable[[KernelName], object]]] = {
    "Larger batches; for products with a small output split-K or stream-K.": (
        lambda kernel: kernel.op in ("gemm", "conv")
    ),
    "Larger batches; for a batch norm with few channels channels_last, or another implementation "
    "of it.": lambda kernel: "batch_norm" in kernel.name or "BatchNorm" in kernel.name,
}
"""Remedies, and the kernels that they are for."""


@Rule(
    needs=("launch configurations", "the number of multiprocessors"),
    remedy="Larger batches; split-K or stream-K for products with a small output; for a batch norm "
    "with few channels channels_last; else another implementation.",
    thresholds={
        "shortest_ns": SHORTEST_NS,
        "few": FEW,
        "least_share": LEAST_SHARE,
        "busy_memory": BUSY_MEMORY,
    },
    of_kernels=True,
)
def few_blocks(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    if (kernels.blocks > 0).any() and not (kernels.sms > 0).any():
        raise CannotTell("the number of multiprocessors", PROPERTIES)
    few = _candidates(kernels)
    taken = kernels.ns(few)
    if not taken:
        return
    ns, least = kernels.effective_ns[few], kernels.bounded.least_ns[few]
    # No more than by the rates of the data sheet, where these are known.
    each = np.minimum(
        ns * (1 - kernels.blocks[few] / kernels.sms[few]), ns - np.maximum(least, 0)
    )
    at_stake = int(each.sum())
    yield Claim(
        text=f"{subject(int(few.sum()), 'kernel', 'leave')} a quarter of the multiprocessors or "
        f"more without a block while nothing else runs, for {of_work(facts, taken)}: "
        f"{_widest(kernels, few)}. Blocks on all of the multiprocessors would save "
        f"{duration(at_stake)} at most.",
        at_stake_ns=at_stake,
        wanted=Shorter(kernels.rows[few], each.astype(np.int64)),
        kernels=few,
        remedy=_remedy(kernels, few),
        why_likely="What one block does may not be divisible.",
        is_little=taken < LEAST_SHARE * kernels.ns(kernels.is_kernel),
    )


def _widest(kernels: Kernels, few: Flags) -> str:
    """`64 to 128 blocks on 304 in NAME`, of the name with the most time; `in 50 x NAME`
    if there are others."""
    name, own = kernels.mainly(few, kernels.effective_ns)
    least, most = int(kernels.blocks[own].min()), int(kernels.blocks[own].max())
    blocks = "" if least == most else f"{count(least)} to "
    times = "" if (own == few).all() else f"{count(int(own.sum()))} x "
    sms = count(int(kernels.sms[own].max()))
    return f"{blocks}{plural(most, 'block')} on {sms} in {times}{name}"


def _remedy(kernels: Kernels, few: Flags) -> str:
    ns = {
        text: kernels.ns(few & kernels.flags(matches))
        for text, matches in OF_WORK.items()
    }
    most = max(ns, key=lambda text: ns[text])
    return most if 2 * ns[most] > kernels.ns(few) else LARGER


def _candidates(kernels: Kernels) -> Flags:
    """Without those that memory keeps busy: they move their bytes at half of its
    bandwidth."""
    least = np.nan_to_num(kernels.of_jobs(lambda job: job.limits.memory_ns))
    bound = kernels.of_jobs(lambda job: float(job.limits.bound == "memory")) == 1
    by_memory = bound & (BUSY_MEMORY * kernels.effective_ns <= least)
    fits = (kernels.blocks > 0) & (kernels.blocks <= FEW * kernels.sms)
    long = kernels.effective_ns >= SHORTEST_NS
    own = kernels.computes & ~kernels.tried
    found: Flags = own & ~by_memory & fits & long & kernels.alone
    return found
