"""Work that takes longer than the device needs for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.kernels import Kernels
from fusetui.analysis.why.model import LISTED_DEVICE, ReducedDurations
from fusetui.analysis.why.rule import (
    Claim,
    Rule,
    claimed_by,
    counted_subject,
    share_of_work,
)
from fusetui.analysis.why.rules.products import (
    alignment,
    few_blocks,
    is_unaligned,
    no_tensor_cores,
)
from fusetui.analysis.why.rules.separate_attention import unfused_attention
from fusetui.gpu.kernel_names import KernelName, short_name
from fusetui.gpu.kernel_roles import role_of_kernel
from fusetui.gpu.roofline.inputs import Amount
from fusetui.gpu.roofline.row import KernelJob
from fusetui.text.figures import count, duration, percent, plural, significant
from fusetui.text.patterns import lazy_pattern
from fusetui.text.printable import printable
from fusetui.trace.layout.devices import device_properties
from fusetui.trace.model.arrays import Flags, Floats, Int64s, distinct

NEAR_BOUND: Final = 0.75
"""Of the time of a kernel, for its bound: one that reaches it is near."""
SHORTEST_NS: Final = 10_000
_KINDS: Final = frozenset({"matmul", "conv", "attention", "softmax", "norm"})
TILE_MULTIPLE: Final = 64
"""What tiles of products divide into."""
_NHWC: Final = lazy_pattern(r"nhwc", re.IGNORECASE)
LIBRARIES: Final = (
    "a newer {nvidia:cuBLAS or cuDNN|amd:hipBLASLt or MIOpen|intel:oneDNN|:library}"
    '{compile:, or torch.compile(mode="max-autotune"), which measures several kernels}'
)
CAUSES: Final = (alignment, few_blocks, no_tensor_cores, unfused_attention)
"""Rules that name the cause: what they claim is theirs."""


@Rule(
    needs=("input shapes", LISTED_DEVICE),
    remedy="Other sizes or layouts (multiples of 64, contiguous inputs, channels_last), another "
    f"backend of attention{{torch2: (torch.nn.attention.sdpa_kernel)}}, {LIBRARIES}.",
    thresholds={"near": NEAR_BOUND, "shortest_ns": SHORTEST_NS},
    of_kernels=True,
)
def far_from_peak(facts: Facts) -> Iterator[Claim]:
    """One claim about the kernels that take much longer than what is attainable for
    their work, and for which no other rule names the cause. At stake is the difference,
    added up."""
    kernels = facts.kernels
    far = _far(kernels)
    if far.any():
        far &= ~claimed_by(facts, *CAUSES)
    taken_ns = kernels.total_ns(far)
    if not taken_ns:
        return
    least_ns = int(kernels.bounded.bound_ns[far].sum())
    number = int(far.sum())
    reaches = "reaches" if number == 1 else "reach"
    shapes = "its shape" if number == 1 else "their shapes"
    yield Claim(
        text=f"{plural(number, 'kernel')} {reaches} an estimated "
        f"{percent(least_ns, taken_ns)} of the attainable rate for {shapes}, in "
        f"{share_of_work(facts, taken_ns)}{_longest_name(facts, far)}.",
        at_stake_ns=taken_ns - least_ns,
        wanted=ReducedDurations(kernels.rows[far], kernels.bounded.at_stake_ns[far]),
        kernels=far,
        remedy=_remedy(facts, far),
        why_likely="The attainable rate may be lower for this shape.",
    )


def _far(kernels: Kernels) -> Flags:
    """Which kernels do work of _KINDS alone on the device and take much longer than
    their bound; shape [kernels]."""
    taken_ns = kernels.effective_ns
    bound_ns = kernels.bounded.bound_ns  # -1 for an unknown one
    far: Flags = (bound_ns >= 0) & (NEAR_BOUND * taken_ns > bound_ns)
    far &= ~kernels.tried & kernels.alone
    far &= taken_ns >= SHORTEST_NS
    return far & _of_kinds(kernels, _KINDS)


def _of_kinds(kernels: Kernels, kinds: frozenset[str]) -> Flags:
    """Which kernels do work of these kinds, by their jobs; shape [kernels]."""
    is_kind: Flags = (
        kernels.figures_of_jobs(lambda job: float(job.amount.kind in kinds)) == 1
    )
    return is_kind


def _longest_name(facts: Facts, which: Flags) -> str:
    """`, most of all 12 x NAME, 3 ms at 40 %`: the kernels of the name with the most at
    stake, their time and what they reach. Of a single kernel only `: NAME`."""
    kernels = facts.kernels
    dominant = kernels.dominant_name(which, kernels.bounded.at_stake_ns)
    name, of_name = dominant.short_name, dominant.has_name
    if int(which.sum()) == 1:
        return f": {name}"
    number = count(int(of_name.sum()))
    taken_ns = kernels.total_ns(of_name)
    least_ns = int(kernels.bounded.bound_ns[of_name].sum())
    reached = percent(least_ns, taken_ns)
    return f". Most of that is {number} x {name}: {duration(taken_ns)} at {reached}"


def _remedy(facts: Facts, far: Flags) -> str:
    """What can help with the kernels of the claim: only what there is for their kinds
    of work, and no sizes or layouts that they have already."""
    kernels = facts.kernels
    numbers = distinct(kernels.job_indices[far]).tolist()
    amounts = [kernels.jobs.distinct[number].amount for number in numbers]
    kinds = {amount.kind for amount in amounts}
    ways = []
    if any(_has_odd_sizes(amount) for amount in amounts):
        ways.append(f"sizes that are multiples of {TILE_MULTIPLE}")
    if _has_other_layouts(facts, far):
        ways.append("the memory format channels_last")
    if "attention" in kinds:
        ways.append(
            "another backend of attention{torch2: (torch.nn.attention.sdpa_kernel)}"
        )
    if kinds & {"softmax", "norm"}:
        ways.append("contiguous inputs")
    if kinds & {"matmul", "conv"}:
        ways.append(LIBRARIES)
    text = ", ".join(ways)
    return f"{text[0].upper()}{text[1:]}."


def _has_odd_sizes(amount: Amount) -> bool:
    """Whether a matrix product has a size that tiles do not divide."""
    if amount.kind != "matmul":
        return False
    sizes = [size for size in (amount.m, amount.n, amount.k) if size]
    return any(size % TILE_MULTIPLE != 0 for size in sizes)


def _has_other_layouts(facts: Facts, which: Flags) -> bool:
    """Whether a convolution among these kernels has another layout than NHWC, by its
    name."""
    kernels = facts.kernels
    convolutions = which & _of_kinds(kernels, frozenset({"conv"}))
    numbers = distinct(facts.trace.name[kernels.rows[convolutions]])
    names = [facts.trace.names[number] for number in numbers.tolist()]
    return any(not _NHWC.search(name) for name in names)


_OLD: Final = " built for an earlier generation of GPUs"
FAR_TIMES: Final = 2
"""Times the bound."""
_SM: Final = lazy_pattern(r"sm(\d{1,3})\d\Z")
_NATIVE: Final = {12: 8}
"""Compute capabilities that have the matrix instructions of an earlier one."""


@Rule(
    needs=("input shapes", LISTED_DEVICE),
    remedy="A newer {nvidia:cuBLAS or cuDNN|:library}, aligned sizes and contiguous inputs"
    '{compile:; or torch.compile(mode="max-autotune"), which measures several kernels}.',
    thresholds={"far": FAR_TIMES},
    of_kernels=True,
)
def old_architecture(facts: Facts) -> Iterator[Claim]:
    """One claim about slow kernels that were built for an earlier generation of GPUs
    than the device, while others of the same element type were built for this one. At
    stake is how much longer they take than is attainable. None where the devices are of
    several generations, or not of NVIDIA."""
    kernels = facts.kernels
    major = _common_generation(facts)
    if major is None:
        return
    old = _slow_by_arithmetic(kernels) & _built_earlier(kernels, major)
    taken_ns = kernels.total_ns(old)
    if not taken_ns:
        return
    least_ns = int(kernels.bounded.bound_ns[old].sum())
    number = int(old.sum())
    reaches = "reaches" if number == 1 else "reach"
    yield Claim(
        text=f"{counted_subject(number, 'kernel', 'take', _OLD)} {share_of_work(facts, taken_ns)} and "
        f"{reaches} {percent(least_ns, taken_ns)} of the attainable "
        f"rate{_longest_name(facts, old)}. Others of the same type in this trace are built for "
        "this one.",
        at_stake_ns=taken_ns - least_ns,
        wanted=ReducedDurations(kernels.rows[old], kernels.bounded.at_stake_ns[old]),
        kernels=old,
        part_of=_part_of_far(facts, old),
        why_likely="There may be no newer kernel for these shapes and layouts.",
    )


def _common_generation(facts: Facts) -> int | None:
    """The major compute capability of all devices, see _native; None if they differ, or
    if it is not known."""
    devices = device_properties(facts.trace).values()
    majors = {_native(properties) for properties in devices}
    if len(majors) != 1:
        return None
    return majors.pop()


def _built_earlier(kernels: Kernels, major: int) -> Flags:
    """Which kernels were built for an earlier major compute capability than this, while
    others of their element type were built for this one; shape [kernels]."""
    is_earlier = kernels.flags(lambda kernel: _built_for(kernel) < major)
    is_of_this = kernels.flags(lambda kernel: _built_for(kernel) == major)
    dtypes = _dtypes(kernels)
    has_newer = np.isin(dtypes, dtypes[is_of_this])
    return is_earlier & has_newer


def _slow_by_arithmetic(kernels: Kernels) -> Flags:
    """Which kernels run alone on the device, are bound by arithmetic and take FAR_TIMES
    their bound or more; without those whose tensors are not aligned, for which there
    are no others. Shape [kernels]."""
    bound_ns = kernels.bounded.bound_ns  # -1 for an unknown one
    slow: Flags = _are_bound_by_compute(kernels) & (bound_ns >= 0)
    slow &= kernels.effective_ns >= FAR_TIMES * bound_ns
    slow &= kernels.alone & ~kernels.tried
    slow &= ~kernels.flags(is_unaligned)
    return slow


def _are_bound_by_compute(kernels: Kernels) -> Flags:
    """Which kernels are bound by arithmetic, by their jobs; shape [kernels]."""
    is_bound: Flags = (
        kernels.figures_of_jobs(lambda job: float(job.limits.bound == "compute")) == 1
    )
    return is_bound


def _part_of_far(facts: Facts, which: Flags) -> str | None:
    """far-from-peak, if it claims all of these kernels too."""
    is_claimed = claimed_by(facts, far_from_peak)[which].all()
    return "far-from-peak" if is_claimed else None


def _native(properties: dict[str, Any]) -> int | None:
    """The first number of the compute capability whose instructions a device has; None
    for a device of another maker, or if it is not known."""
    major = properties.get("computeMajor")
    if type(major) is not int or "NVIDIA" not in str(properties.get("name")):
        return None
    return _NATIVE.get(major, major)


def _built_for(kernel: KernelName) -> int:
    """The major compute capability whose instructions a kernel uses, by its name;
    1,000, more than any, if its name does not tell."""
    match = _SM.match(kernel.arch or "")
    if match is None:
        return 1_000
    major = int(match[1])
    return _NATIVE.get(major, major)


def _dtypes(kernels: Kernels) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A number for each kernel, shape [kernels]: equal for those that multiply the same
    element type by their names."""
    trace = kernels.trace
    number_of_dtype: dict[str | None, int] = {}
    number_of_name = np.zeros(len(trace.names), dtype=np.int64)
    for name in distinct(trace.name[kernels.rows]).tolist():
        kernel = role_of_kernel(trace.names[name]).decoded
        dtype = None
        if kernel is not None:
            dtype = kernel.dtype_a or kernel.dtype
        number = number_of_dtype.setdefault(dtype, len(number_of_dtype))
        number_of_name[name] = number
    return number_of_name[trace.name[kernels.rows]]


MOSTLY_EMPTY: Final = 0.5
"""Of the places of the last wave."""
MAX_WAVES: Final = 4


@Rule(
    needs=("input shapes", "launch configurations", LISTED_DEVICE),
    remedy="Other sizes of the batch or of a layer, or a kernel with other tiles"
    '{compile: (torch.compile(mode="max-autotune") measures several)}, split-K or stream-K.',
    thresholds={"mostly": MOSTLY_EMPTY, "most_waves": MAX_WAVES},
    of_kernels=True,
)
def tail_wave(facts: Facts) -> Iterator[Claim]:
    """One claim about the products whose last wave of tiles is mostly empty. At stake
    is the time of the empty places, but no more than what the product takes longer than
    is attainable."""
    kernels = facts.kernels
    waves = kernels.figures_of_jobs(_waves_with_empty_last)
    has_tail = ~np.isnan(waves) & (kernels.bounded.bound_ns >= 0)
    has_tail &= kernels.alone & ~kernels.tried
    if not has_tail.any():
        return
    saved_ns = _saved_by_full_waves_ns(kernels, has_tail, waves[has_tail])
    at_stake_ns = int(saved_ns.sum())
    longest_row = kernels.longest_rows(has_tail)[0]
    longest_waves = float(waves[np.searchsorted(kernels.rows, longest_row)])
    name = printable(short_name(facts.trace.name_of(longest_row)))
    yield Claim(
        text="The last wave of tiles is mostly empty in "
        f"{plural(int(has_tail.sum()), 'product')} of {share_of_work(facts, kernels.total_ns(has_tail))}: "
        f"{significant(longest_waves, 3)} waves in {name}. Full waves would save an estimated "
        f"{duration(at_stake_ns)}.",
        at_stake_ns=at_stake_ns,
        wanted=ReducedDurations(kernels.rows[has_tail], saved_ns),
        kernels=has_tail,
        part_of=_part_of_far(facts, has_tail),
        why_likely="Blocks do not run in lockstep: the last wave overlaps the one before it.",
    )


def _saved_by_full_waves_ns(kernels: Kernels, which: Flags, waves: Floats) -> Int64s:
    """How much less some kernels would take if their last wave were full (ns), but no
    more than they take longer than is attainable. `waves`: of each of them."""
    busy_share = waves / np.ceil(waves)
    empty_ns = (kernels.effective_ns[which] * (1 - busy_share)).astype(np.int64)
    return np.minimum(empty_ns, kernels.bounded.at_stake_ns[which])


def _waves_with_empty_last(job: KernelJob) -> float | None:
    """The waves of a product bound by arithmetic, between one and MAX_WAVES, if the
    last one is mostly empty; None for any other job."""
    tiles = job.tiles
    if tiles is None or tiles.waves is None or tiles.last_wave_empty is None:
        return None
    has_few_waves = 1 < tiles.waves <= MAX_WAVES
    is_mostly_empty = tiles.last_wave_empty > MOSTLY_EMPTY
    if job.limits.bound == "compute" and has_few_waves and is_mostly_empty:
        return tiles.waves
    return None
