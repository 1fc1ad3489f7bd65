"""Work that takes longer than the device needs for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.kernels import Kernels
from fusetui.analysis.why.model import LISTED_DEVICE, Shorter
from fusetui.analysis.why.rule import Claim, Rule, claimed_by, of_work, subject
from fusetui.analysis.why.rules.products import (
    alignment,
    few_blocks,
    is_unaligned,
    no_tensor_cores,
)
from fusetui.analysis.why.rules.separate_attention import unfused_attention
from fusetui.gpu.kernel_names import KernelName, decode, short_name
from fusetui.gpu.roofline.row import KernelJob
from fusetui.text.figures import count, duration, percent, plural, significant
from fusetui.text.patterns import late
from fusetui.text.printable import printable
from fusetui.trace.layout.devices import device_properties
from fusetui.trace.model.arrays import Flags, distinct

NEAR = 0.75  # of what is attainable
SHORTEST_NS = 10_000
KINDS = ("matmul", "conv", "attention", "softmax", "norm")
MULTIPLE = 64  # what tiles of products divide into
NHWC = late(r"nhwc", re.IGNORECASE)
LIBRARIES = (
    "a newer {nvidia:cuBLAS or cuDNN|amd:hipBLASLt or MIOpen|intel:oneDNN|:library}"
    '{compile:, or torch.compile(mode="max-autotune"), which measures several kernels}'
)
CAUSES = (alignment, few_blocks, no_tensor_cores, unfused_attention)
"""Rules that name the cause: what they claim is theirs."""


@Rule(
    needs=("input shapes", LISTED_DEVICE),
    remedy="Other sizes or layouts (multiples of 64, contiguous inputs, channels_last), another "
    f"backend of attention{{torch2: (torch.nn.attention.sdpa_kernel)}}, {LIBRARIES}.",
    thresholds={"near": NEAR, "shortest_ns": SHORTEST_NS},
    of_kernels=True,
)
def far_from_peak(facts: Facts) -> Iterator[Claim]:
    kernels, bound = facts.kernels, facts.kernels.bounded.bound_ns
    far = (bound >= 0) & (NEAR * kernels.effective_ns > bound) & ~kernels.tried
    far &= (kernels.effective_ns >= SHORTEST_NS) & kernels.alone
    far &= kernels.of_jobs(lambda job: float(job.amount.kind in KINDS)) == 1
    far = far & ~claimed_by(facts, *CAUSES) if far.any() else far
    taken, least, number = kernels.ns(far), int(bound[far].sum()), int(far.sum())
    one = number == 1
    if taken:
        yield Claim(
            text=f"{subject(number, 'kernel', 'take')} {of_work(facts, taken)} and "
            f"{'reaches' if one else 'reach'} an estimated {percent(least, taken)} of what is "
            f"attainable for {'its' if one else 'their'} shapes{_most(facts, far)}.",
            at_stake_ns=taken - least,
            wanted=Shorter(kernels.rows[far], kernels.bounded.at_stake_ns[far]),
            kernels=far,
            remedy=_remedy(facts, far),
            why_likely="Less may be attainable for this shape than for the best one.",
        )


def _most(facts: Facts, far: Flags) -> str:
    kernels = facts.kernels
    name, own = kernels.mainly(far, kernels.bounded.at_stake_ns)
    if int(far.sum()) == 1:
        return f": {name}"
    taken, least = kernels.ns(own), int(kernels.bounded.bound_ns[own].sum())
    times = f"{count(int(own.sum()))} x {name}"
    return f", most of all {times}, {duration(taken)} at {percent(least, taken)}"


def _remedy(facts: Facts, far: Flags) -> str:
    """What there is for the kinds of work of the claim: no sizes and layouts that it
    has."""
    kernels, names = facts.kernels, facts.trace.names
    numbers = distinct(kernels.job_numbers[far]).tolist()
    amounts = [kernels.jobs.distinct[number].amount for number in numbers]
    kinds = {amount.kind for amount in amounts}
    sides = [
        side
        for one in amounts
        if one.kind == "matmul"
        for side in (one.m, one.n, one.k)
    ]
    is_conv = far & (kernels.of_jobs(lambda job: float(job.amount.kind == "conv")) == 1)
    layouts = distinct(facts.trace.name[kernels.rows[is_conv]]).tolist()
    ways = {
        f"sizes that are multiples of {MULTIPLE}": any(
            side and side % MULTIPLE for side in sides
        ),
        "the memory format channels_last": any(
            not NHWC.search(names[name]) for name in layouts
        ),
        "another backend of attention{torch2: (torch.nn.attention.sdpa_kernel)}": (
            "attention" in kinds
        ),
        "contiguous inputs": bool(kinds & {"softmax", "norm"}),
        LIBRARIES: bool(kinds & {"matmul", "conv"}),
    }
    text = ", ".join(way for way, fits in ways.items() if fits)
    return f"{text[0].upper()}{text[1:]}."


OLD = " built for an earlier generation of GPUs"
FAR = 2  # times the bound
SM = late(r"sm(\d{1,3})\d\Z")
# compute capabilities that have the matrix instructions of an earlier one
NATIVE = {12: 8}


@Rule(
    needs=("input shapes", LISTED_DEVICE),
    remedy="A newer {nvidia:cuBLAS or cuDNN|:library}, aligned sizes and contiguous inputs"
    '{compile:; or torch.compile(mode="max-autotune"), which measures several kernels}.',
    thresholds={"far": FAR},
    of_kernels=True,
)
def old_architecture(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    majors = {_native(known) for known in device_properties(facts.trace).values()}
    if len(majors) != 1 or None in majors:
        return
    (major,) = majors
    # Alone on the device, bound by arithmetic and far from that bound; but not where
    # the alignment forbids other kernels.
    by_arithmetic = (
        kernels.of_jobs(lambda job: float(job.limits.bound == "compute")) == 1
    )
    slow = by_arithmetic & (kernels.effective_ns >= FAR * kernels.bounded.bound_ns)
    slow &= (
        (kernels.bounded.bound_ns >= 0) & kernels.alone & ~kernels.flags(is_unaligned)
    )
    old = (
        slow
        & ~kernels.tried
        & kernels.flags(lambda kernel: _built_for(kernel) < (major or 0))
    )
    newer = kernels.flags(lambda kernel: _built_for(kernel) == major)
    old &= np.isin(_dtypes(kernels), _dtypes(kernels)[newer])
    taken, least, number = (
        kernels.ns(old),
        int(kernels.bounded.bound_ns[old].sum()),
        int(old.sum()),
    )
    if taken:
        yield Claim(
            text=f"{subject(number, 'kernel', 'take', OLD)} {of_work(facts, taken)} and "
            f"{'reaches' if number == 1 else 'reach'} {percent(least, taken)} of what is "
            f"attainable{_most(facts, old)}; others of the same type in this trace are built for "
            "this one.",
            at_stake_ns=taken - least,
            wanted=Shorter(kernels.rows[old], kernels.bounded.at_stake_ns[old]),
            kernels=old,
            part_of="far-from-peak"
            if claimed_by(facts, far_from_peak)[old].all()
            else None,
            why_likely="There may be no newer kernel for these shapes and layouts.",
        )


def _native(properties: dict[str, Any]) -> int | None:
    """The first number of the compute capability whose instructions a device has; None
    for a device of another maker, or if it is not known."""
    major = properties.get("computeMajor")
    if type(major) is not int or "NVIDIA" not in str(properties.get("name")):
        return None
    return NATIVE.get(major, major)


def _built_for(kernel: KernelName) -> int:
    """Likewise what a kernel was built for; a large number if its name does not
    tell."""
    found = SM.match(kernel.arch or "")
    return NATIVE.get(int(found[1]), int(found[1])) if found else 1_000


def _dtypes(kernels: Kernels) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A number per element type that a kernel multiplies, by its name."""
    trace, numbers = kernels.trace, dict[str | None, int]()
    table = np.zeros(len(trace.names), dtype=np.int64)
    for name in distinct(trace.name[kernels.rows]).tolist():
        kernel = decode(trace.names[name])
        dtype = (kernel.dtype_a or kernel.dtype) if kernel else None
        table[name] = numbers.setdefault(dtype, len(numbers))
    return table[trace.name[kernels.rows]]


MOSTLY = 0.5  # of the places of a wave
MOST_WAVES = 4


@Rule(
    needs=("input shapes", "launch configurations", LISTED_DEVICE),
    remedy="Other sizes of the batch or of a layer, or a kernel with other tiles"
    '{compile: (torch.compile(mode="max-autotune") measures several)}, split-K or stream-K.',
    thresholds={"mostly": MOSTLY, "most_waves": MOST_WAVES},
    of_kernels=True,
)
def tail_wave(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    waves = kernels.of_jobs(_waves)
    tailed = ~np.isnan(waves) & (kernels.bounded.bound_ns >= 0) & kernels.alone
    tailed &= ~kernels.tried
    if not tailed.any():
        return
    lost = kernels.effective_ns[tailed] * (1 - waves[tailed] / np.ceil(waves[tailed]))
    at_stake = np.minimum(lost.astype(np.int64), kernels.bounded.at_stake_ns[tailed])
    saved = int(at_stake.sum())
    row = kernels.heaviest(tailed)[0]
    name = printable(short_name(facts.trace.name_of(row)))
    most = significant(float(waves[np.searchsorted(kernels.rows, row)]), 3)
    yield Claim(
        text=f"The last wave of tiles is mostly empty in {plural(int(tailed.sum()), 'product')} of "
        f"{of_work(facts, kernels.ns(tailed))}: {most} waves in {name}. Full waves "
        f"would save an estimated {duration(saved)}.",
        at_stake_ns=saved,
        wanted=Shorter(kernels.rows[tailed], at_stake),
        kernels=tailed,
        part_of="far-from-peak"
        if claimed_by(facts, far_from_peak)[tailed].all()
        else None,
        why_likely="Blocks do not run in lockstep: the last wave overlaps the one before it.",
    )


def _waves(job: KernelJob) -> float | None:
    """Of a product bound by arithmetic, between one and MOST_WAVES, the last one mostly
    empty."""
    tiles = job.tiles
    if tiles is None or tiles.waves is None or tiles.last_wave_empty is None:
        return None
    fits = job.limits.bound == "compute" and 1 < tiles.waves <= MOST_WAVES
    return tiles.waves if fits and tiles.last_wave_empty > MOSTLY else None
