"""Rules about kernels that take longer than the device needs for their work."""

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
    find_claimed_kernels,
    format_share_of_work,
    format_subject,
)
from fusetui.analysis.why.rules.products import (
    alignment,
    few_blocks,
    is_unaligned,
    no_tensor_cores,
)
from fusetui.analysis.why.rules.separate_attention import unfused_attention
from fusetui.gpu.kernel_names import KernelName, decode, short_name
from fusetui.gpu.roofline.inputs import Amount
from fusetui.gpu.roofline.row import KernelJob
from fusetui.text.figures import count, duration, percent, plural, significant
from fusetui.text.patterns import lazy_pattern
from fusetui.text.printable import printable
from fusetui.trace.layout.devices import device_properties
from fusetui.trace.model.arrays import Flags, Floats, Int64s, distinct
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.sorted_arrays import position_of

MIN_BOUND_SHARE_OF_TIME: Final = 0.75
"""A kernel is near its bound if the bound is at least this share of its time."""
SHORTEST_NS: Final = 10_000
"""A shorter kernel is not worth a look."""
_KINDS_WITH_KNOWN_BOUND: Final = frozenset(
    {"matmul", "conv", "attention", "softmax", "norm"}
)
"""The kinds of work whose bound is known well enough."""
TILE_MULTIPLE: Final = 64
"""Sizes that are multiples of this divide into the tiles of products."""
_NHWC: Final = lazy_pattern(r"nhwc", re.IGNORECASE)
"""Matches names of convolutions that read the layout NHWC."""
LIBRARIES: Final = (
    "a newer {nvidia:cuBLAS or cuDNN|amd:hipBLASLt or MIOpen|intel:oneDNN|:library}"
    '{compile:, or torch.compile(mode="max-autotune"), which benchmarks several kernels}'
)
"""The remedy for products and convolutions."""
RULES_NAMING_CAUSES: Final = (alignment, few_blocks, no_tensor_cores, unfused_attention)
"""Rules that name the cause of slow kernels: what they claim belongs to them."""


@Rule(
    needs=("input shapes", LISTED_DEVICE),
    remedy="Use other sizes or layouts (multiples of 64, contiguous inputs, channels_last), "
    f"another attention backend{{torch2: (torch.nn.attention.sdpa_kernel)}}, {{compile:|:or }}"
    f"{LIBRARIES}.",
    thresholds={"near": MIN_BOUND_SHARE_OF_TIME, "shortest_ns": SHORTEST_NS},
    of_kernels=True,
)
def far_from_peak(facts: Facts) -> Iterator[Claim]:
    """Report kernels that take much longer than what is attainable for their work.

    They are those for which no other rule names the cause. At stake is the difference,
    added up.
    """
    kernels = facts.kernels
    is_far = _find_far_kernels(kernels)
    if is_far.any():
        is_far &= ~find_claimed_kernels(facts, *RULES_NAMING_CAUSES)

    taken_ns = kernels.add_up_ns(is_far)
    if not taken_ns:
        return

    attainable_ns = int(kernels.bounds.bound_ns[is_far].sum())
    kernel_count = int(is_far.sum())
    reaches = "reaches" if kernel_count == 1 else "reach"
    takes = "takes" if kernel_count == 1 else "take"
    shapes = "its shape" if kernel_count == 1 else "their shapes"
    excess_ns = kernels.bounds.excess_ns[is_far]

    yield Claim(
        text=f"{plural(kernel_count, 'kernel')} {reaches} an estimated "
        f"{percent(attainable_ns, taken_ns)} of the attainable rate for {shapes} and "
        f"{takes} {format_share_of_work(facts, taken_ns)}{_describe_longest_name(facts.kernels, is_far)}.",
        at_stake_ns=taken_ns - attainable_ns,
        wanted=ReducedDurations(kernels.rows[is_far], excess_ns),
        kernels=is_far,
        remedy=_choose_far_remedy(facts, is_far),
        why_likely="The attainable rate may be lower for this shape.",
    )


def _find_far_kernels(kernels: Kernels) -> Flags:
    """Tell which kernels take much longer than their bound; one flag per kernel.

    They do work of _KINDS_WITH_KNOWN_BOUND, alone on the device, and not as a try of a
    search for algorithms.
    """
    taken_ns = kernels.effective_ns
    bounds = kernels.bounds
    is_above_bound = MIN_BOUND_SHARE_OF_TIME * taken_ns > bounds.bound_ns
    is_far: Flags = bounds.is_known & is_above_bound
    is_far &= taken_ns >= SHORTEST_NS
    is_far &= kernels.runs_alone & ~kernels.is_trial
    is_far &= kernels.match_jobs(lambda job: job.amount.kind in _KINDS_WITH_KNOWN_BOUND)

    return is_far


def _describe_longest_name(kernels: Kernels, is_selected: Flags) -> str:
    """Describe the kernels of the name with the most at stake among selected ones.

    The text is `. Most of this time is in 12 x NAME (3 ms, 40 % of the attainable
    rate)`, or `. The largest part` if it is no more than half. For a single kernel it is
    only `: NAME`.
    """
    dominant = kernels.find_dominant_name(is_selected, kernels.bounds.excess_ns)
    if int(is_selected.sum()) == 1:
        return f": {dominant.short_name}"

    run_count = count(int(dominant.has_name.sum()))
    taken_ns = kernels.add_up_ns(dominant.has_name)
    attainable_ns = int(kernels.bounds.bound_ns[dominant.has_name].sum())
    reached = percent(attainable_ns, taken_ns)
    kernels_text = f"{run_count} x {dominant.short_name}"
    is_majority = 2 * taken_ns > kernels.add_up_ns(is_selected)
    part = "Most" if is_majority else "The largest part"

    return (
        f". {part} of this time is in {kernels_text} ({duration(taken_ns)}, {reached} of the "
        "attainable rate)"
    )


def _choose_far_remedy(facts: Facts, is_far: Flags) -> str:
    """Choose what can help with the kernels of the claim.

    Only what there is for their kinds of work is named, and no sizes or layouts that
    they have already.
    """
    kernels = facts.kernels
    jobs = distinct(kernels.job_indices[is_far]).tolist()
    amounts = [kernels.jobs.distinct[job].amount for job in jobs]
    kinds = {amount.kind for amount in amounts}

    ways = []
    if any(_has_odd_sizes(amount) for amount in amounts):
        ways.append(f"sizes that are multiples of {TILE_MULTIPLE}")

    if _has_other_layouts(facts, is_far):
        ways.append("memory_format=torch.channels_last")

    if "attention" in kinds:
        ways.append(
            "another attention backend{torch2: (torch.nn.attention.sdpa_kernel)}"
        )

    if kinds & {"softmax", "norm"}:
        ways.append("contiguous inputs")

    if kinds & {"matmul", "conv"}:
        ways.append(LIBRARIES)

    if len(ways) == 1:
        return f"Use {ways[0]}."
    if ways[-1] == LIBRARIES:  # an alternative with an "or" where there is a compiler
        return f"Use {', '.join(ways[:-1])}, {{compile:|:or }}{LIBRARIES}."
    return f"Use {', '.join(ways[:-1])}, or {ways[-1]}."


def _has_odd_sizes(amount: Amount) -> bool:
    """Whether a matrix product has a size that tiles do not divide."""
    if amount.kind != "matmul":
        return False
    sizes = (amount.m, amount.n, amount.k)  # 0 or None if not known
    return any(size and size % TILE_MULTIPLE != 0 for size in sizes)


def _has_other_layouts(facts: Facts, is_selected: Flags) -> bool:
    """Whether a convolution among selected kernels has another layout than NHWC.

    The names of the kernels tell.
    """
    kernels = facts.kernels
    convolutions = is_selected & kernels.match_jobs(
        lambda job: job.amount.kind == "conv"
    )
    name_indices = distinct(facts.trace.name[kernels.rows[convolutions]])
    names = [facts.trace.names[index] for index in name_indices.tolist()]

    return any(not _NHWC.search(name) for name in names)


_BUILT_FOR_EARLIER_GPU: Final = " built for an earlier generation of GPUs"
MIN_RATIO_TO_BOUND: Final = 2
"""A kernel is slow if it takes this many times its bound or more."""
_SM: Final = lazy_pattern(r"sm(\d{1,3})\d\Z")
"""Matches the architecture in a kernel name, such as sm80, with the major capability.
"""
_NATIVE: Final = {12: 8}
"""Compute capabilities that have the matrix instructions of an earlier one."""


@Rule(
    needs=("input shapes", LISTED_DEVICE),
    remedy="Use a newer {nvidia:cuBLAS or cuDNN|:library}, aligned sizes and contiguous inputs"
    '{compile:, or torch.compile(mode="max-autotune"), which benchmarks several kernels}.',
    thresholds={"far": MIN_RATIO_TO_BOUND},
    of_kernels=True,
)
def old_architecture(facts: Facts) -> Iterator[Claim]:
    """Report slow kernels that were built for an earlier generation of GPUs.

    Others of the same element type in the trace were built for the generation of the
    device. At stake is how much longer the old ones take than is attainable. There is
    no claim where the devices are of several generations, or not of NVIDIA.
    """
    kernels = facts.kernels
    major = _find_common_generation(facts.trace)
    if major is None:
        return

    is_old = _find_slow_by_arithmetic(kernels) & _find_earlier_builds(kernels, major)
    taken_ns = kernels.add_up_ns(is_old)
    if not taken_ns:
        return

    attainable_ns = int(kernels.bounds.bound_ns[is_old].sum())
    kernel_count = int(is_old.sum())
    reaches = "reaches" if kernel_count == 1 else "reach"
    excess_ns = kernels.bounds.excess_ns[is_old]

    yield Claim(
        text=f"{format_subject(kernel_count, 'kernel', 'take', _BUILT_FOR_EARLIER_GPU)} "
        f"{format_share_of_work(facts, taken_ns)} and {reaches} "
        f"{percent(attainable_ns, taken_ns)} of the attainable "
        f"rate{_describe_longest_name(facts.kernels, is_old)}. Other kernels of the same type in "
        "this trace are built for this GPU.",
        at_stake_ns=taken_ns - attainable_ns,
        wanted=ReducedDurations(kernels.rows[is_old], excess_ns),
        kernels=is_old,
        part_of=_name_enclosing_finding(facts, is_old),
        why_likely="There may be no newer kernel for these shapes and layouts.",
    )


def _find_common_generation(trace: Trace) -> int | None:
    """Return the major compute capability of all devices; see _find_native_capability.

    None if they differ, or if it is not known.
    """
    devices = device_properties(trace).values()
    majors = {_find_native_capability(properties) for properties in devices}
    if len(majors) != 1:
        return None

    return majors.pop()


def _find_earlier_builds(kernels: Kernels, major: int) -> Flags:
    """Tell which kernels were built for an earlier generation than others.

    Args:
        major: The major compute capability of the device, for which others of the same
            element type must have been built.

    Returns:
        One flag per kernel.
    """
    is_earlier = kernels.match_names(lambda kernel: _find_build_target(kernel) < major)
    is_of_device = kernels.match_names(
        lambda kernel: _find_build_target(kernel) == major
    )
    element_type = _number_element_types(kernels)
    has_newer_of_type = np.isin(element_type, element_type[is_of_device])

    return is_earlier & has_newer_of_type


def _find_slow_by_arithmetic(kernels: Kernels) -> Flags:
    """Tell which kernels are bound by arithmetic and take far too long.

    They run alone on the device. Kernels whose tensors are not aligned are left out:
    there are no others for such tensors. One flag per kernel.
    """
    bounds = kernels.bounds
    is_bound_by_compute = kernels.match_jobs(lambda job: job.limits.bound == "compute")
    takes_long = kernels.effective_ns >= MIN_RATIO_TO_BOUND * bounds.bound_ns
    is_slow: Flags = is_bound_by_compute & bounds.is_known & takes_long
    is_slow &= kernels.runs_alone & ~kernels.is_trial
    is_slow &= ~kernels.match_names(is_unaligned)

    return is_slow


def _name_enclosing_finding(facts: Facts, is_selected: Flags) -> str | None:
    """Return `far-from-peak` if that rule claims all selected kernels too, else None."""
    is_claimed = find_claimed_kernels(facts, far_from_peak)[is_selected].all()
    return "far-from-peak" if is_claimed else None


def _find_native_capability(properties: dict[str, Any]) -> int | None:
    """Return the major compute capability whose instructions a device has.

    None for a device of another maker than NVIDIA, or if it is not known.
    """
    major = properties.get("computeMajor")
    if type(major) is not int or "NVIDIA" not in str(properties.get("name")):
        return None
    return _NATIVE.get(major, major)


def _find_build_target(kernel: KernelName) -> int:
    """Return the major compute capability whose instructions a kernel uses.

    The name of the kernel tells. If it does not, this is 1,000, more than any.
    """
    match = _SM.match(kernel.arch or "")
    if match is None:
        return 1_000

    major = int(match[1])
    return _NATIVE.get(major, major)


def _number_element_types(kernels: Kernels) -> Int64s:
    """Number the element types that kernels multiply, by their names.

    Returns:
        One number per kernel, equal for kernels of the same type.
    """
    trace = kernels.trace

    index_of_dtype: dict[str | None, int] = {}
    dtype_of_name = np.zeros(len(trace.names), dtype=np.int64)
    for name in distinct(trace.name[kernels.rows]).tolist():
        kernel = decode(trace.names[name])
        dtype = None
        if kernel is not None:
            dtype = kernel.dtype_a or kernel.dtype
        dtype_of_name[name] = index_of_dtype.setdefault(dtype, len(index_of_dtype))

    dtype_of_kernel: Int64s = dtype_of_name[trace.name[kernels.rows]]
    return dtype_of_kernel


MIN_SHARE_EMPTY: Final = 0.5
"""The last wave is mostly empty if more than this share of it is."""
MAX_WAVES: Final = 4
"""With more waves than these, the last one does not matter."""


@Rule(
    needs=("input shapes", "launch configurations", LISTED_DEVICE),
    remedy="Change the batch or layer size, or use a kernel with another tile size"
    '{compile: (torch.compile(mode="max-autotune") benchmarks several)}, split-K or stream-K.',
    thresholds={"mostly": MIN_SHARE_EMPTY, "most_waves": MAX_WAVES},
    of_kernels=True,
)
def tail_wave(facts: Facts) -> Iterator[Claim]:
    """Report products whose last wave of tiles is mostly empty.

    A device computes as many tiles of a product at a time (a wave) as it has room for.
    With 2.1 waves, nine tenths of the third one are empty. At stake is the time of the
    empty part, but no more than what the product takes longer than is attainable.
    """
    kernels = facts.kernels
    waves = kernels.compute_from_jobs(_count_waves_with_tail)  # nan for other jobs
    has_tail = ~np.isnan(waves) & kernels.bounds.is_known
    has_tail &= kernels.runs_alone & ~kernels.is_trial
    if not has_tail.any():
        return

    saved_ns = _estimate_saved_ns(kernels, has_tail, waves[has_tail])
    at_stake_ns = int(saved_ns.sum())
    longest_row = kernels.choose_longest_rows(has_tail)[0]
    longest_kernel = position_of(kernels.rows, longest_row)
    longest_waves = float(waves[longest_kernel])
    name = printable(short_name(facts.trace.name_of(longest_row)))
    products = plural(int(has_tail.sum()), "product")

    yield Claim(
        text="The last wave of tiles is mostly empty in "
        f"{products} of {format_share_of_work(facts, kernels.add_up_ns(has_tail))}: "
        f"{significant(longest_waves, 3)} waves in {name}. Full waves would save an estimated "
        f"{duration(at_stake_ns)}.",
        at_stake_ns=at_stake_ns,
        wanted=ReducedDurations(kernels.rows[has_tail], saved_ns),
        kernels=has_tail,
        part_of=_name_enclosing_finding(facts, has_tail),
        why_likely="Blocks do not run in lockstep: the last wave overlaps the one before it.",
    )


def _estimate_saved_ns(kernels: Kernels, is_selected: Flags, waves: Floats) -> Int64s:
    """Estimate how much less selected kernels would take if their last wave were full.

    It is no more than they take longer than is attainable.

    Args:
        is_selected: True for the selected kernels.
        waves: The number of waves of each selected kernel.

    Returns:
        ns for each selected kernel.
    """
    busy_share = waves / np.ceil(waves)
    empty_ns = (kernels.effective_ns[is_selected] * (1 - busy_share)).astype(np.int64)
    return np.minimum(empty_ns, kernels.bounds.excess_ns[is_selected])


def _count_waves_with_tail(job: KernelJob) -> float | None:
    """Return the number of waves of a product whose last one is mostly empty.

    The product must be bound by arithmetic and have more than one wave, but no more
    than MAX_WAVES. None for any other job.
    """
    tiles = job.tiles
    if tiles is None or tiles.waves is None or tiles.last_wave_empty is None:
        return None

    has_few_waves = 1 < tiles.waves <= MAX_WAVES
    is_mostly_empty = tiles.last_wave_empty > MIN_SHARE_EMPTY
    if job.limits.bound == "compute" and has_few_waves and is_mostly_empty:
        return tiles.waves

    return None
