"""Rules about slow products and convolutions whose cause is visible in names and
launches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.kernels import Kernels
from fusetui.analysis.why.model import LISTED_DEVICE, ReducedDurations
from fusetui.analysis.why.needs import PROPERTIES, find_properties_to_record
from fusetui.analysis.why.remedies import find_tags
from fusetui.analysis.why.rule import (
    CannotTellError,
    Claim,
    Rule,
    format_share_of_work,
    format_subject,
    is_large_enough,
)
from fusetui.gpu.kernel_names import KernelName
from fusetui.gpu.roofline.bounds import runs_on_plain_cores
from fusetui.gpu.roofline.many import NO_JOB
from fusetui.gpu.roofline.peaks import Peak, tensor_core_types
from fusetui.text.figures import count, duration, plural
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.layout.devices import device_properties
from fusetui.trace.model.arrays import Flags, Int64s
from fusetui.trace.model.sorted_arrays import position_of

MAX_UNALIGNED_ELEMENTS: Final = 2
"""A product that loads this many elements at a time, or fewer, is not aligned.

That is below 16 bytes for every type.
"""
_WIDE_TYPES: Final = ("fp64", "c64", "c128")
"""Types of 8 bytes or more, of which CUTLASS loads one element at a time."""
_PLAIN_CORES: Final = "_simt_"
"""What names of products on plain cores contain.

CUTLASS builds products of wide types, and those on plain cores, for one element at a
time only: their names say align1 however the tensors are aligned.
"""


@Rule(
    remedy="Pad sizes (vocabulary, sequence length, layer width) to multiples of 8 "
    "for 16-bit types, or of 4 for float32.",
    thresholds={"unaligned": MAX_UNALIGNED_ELEMENTS},
    of_kernels=True,
)
def alignment(facts: Facts) -> Iterator[Claim]:
    """Report matrix products whose kernels read few elements at a time.

    They do so because their tensors are not aligned to 16 bytes. At stake is how much
    longer they take than the attainable rate allows. Where the work of no such product
    is known, it is only a note, and only if they take long enough.
    """
    kernels = facts.kernels
    unaligned = kernels.match_names(is_unaligned) & ~kernels.is_trial
    taken_ns = kernels.add_up_ns(unaligned)
    if not taken_ns:
        return

    product_count = int(unaligned.sum())
    text = (
        f"{format_subject(product_count, 'matrix product', 'take')} "
        f"{format_share_of_work(facts, taken_ns)} in kernels for tensors that are not "
        f"16-byte aligned{_describe_longest_product(kernels, unaligned)}"
    )
    known_ns = kernels.add_up_ns(unaligned & kernels.bounds.is_known)
    if known_ns:
        of_known = ""
        if known_ns != taken_ns:
            of_known = (
                f", judging by the {duration(known_ns)} of products whose work is known"
            )

        spared_ns = kernels.bounds.excess_ns[unaligned]
        at_stake_ns = int(spared_ns.sum())

        yield Claim(
            text=f"{text}. At the attainable rate, these products would take an estimated "
            f"{duration(at_stake_ns)} less{of_known}.",
            at_stake_ns=at_stake_ns,
            wanted=ReducedDurations(kernels.rows[unaligned], spared_ns),
            kernels=unaligned,
            why_likely="Alignment may not be the only reason why these products are slow.",
        )
    elif is_large_enough(facts, taken_ns, of_kernels=True):
        yield Claim(text=f"{text}.", kernels=unaligned)


def is_unaligned(kernel: KernelName) -> bool:
    """Whether a kernel is a matrix product for unaligned tensors, by its name.

    It loads at most MAX_UNALIGNED_ELEMENTS elements at a time, although kernels of its
    kind can load more.
    """
    if kernel.op != "gemm" or kernel.align is None:
        return False
    can_load_more = (
        kernel.dtype_acc not in _WIDE_TYPES and _PLAIN_CORES not in kernel.name
    )
    return kernel.align <= MAX_UNALIGNED_ELEMENTS and can_load_more


def _describe_longest_product(kernels: Kernels, is_selected: Flags) -> str:
    """Describe the product with the most time among the selected kernels.

    The text is `, the longest being 12 times 141 x 512 by 512 x 30,522`, or `: ` and the
    product if there is only one. It is "" where the shape is not known.
    """
    longest_row = kernels.choose_longest_rows(is_selected)[0]
    longest_kernel = position_of(kernels.rows, longest_row)
    job = kernels.job_indices[longest_kernel]
    if job == NO_JOB:
        return ""

    amount = kernels.jobs.distinct[job].amount
    if not (amount.m and amount.n and amount.k):
        return ""

    left = f"{count(amount.m)} x {count(amount.k)}"
    right = f"{count(amount.k)} x {count(amount.n)}"
    products_at_once = amount.batch or 1
    times = f"{count(products_at_once)} times " if products_at_once > 1 else ""

    before = ": " if int(is_selected.sum()) == 1 else ", the longest being "

    return f"{before}{times}{left} by {right}"


USE_FLOAT16: Final = (
    "Use torch.autocast('cuda', dtype=torch.float16){scaler: with "
    "torch.amp.GradScaler|training: with torch.cuda.amp.GradScaler}. float16 rounds "
    "inputs to a 10-bit mantissa{training:; without loss scaling, small gradients "
    "vanish|:; values beyond 65,504 overflow}."
)
"""The remedy where there is neither TF32 nor bfloat16."""
USE_BFLOAT16: Final = (
    "Use autocast with bfloat16, which rounds inputs to a 7-bit mantissa."
)
"""The remedy where TF32 is no faster."""
REMEDY_OF_TYPE: Final = {"float16": USE_FLOAT16, "bfloat16": USE_BFLOAT16}
"""The remedy that uses a type; for TF32 it is that of the rule."""


def _format_speedup(ratio: float) -> str:
    """Write how many times as fast something is: `twice as fast`, `8 times as fast`."""
    times = round(ratio)
    return "twice as fast" if times == 2 else f"{times} times as fast"


@Rule(
    needs=(LISTED_DEVICE,),
    remedy='To use TF32, call torch.set_float32_matmul_precision("high"){nvidia: or, for '
    "convolutions, set torch.backends.cudnn.allow_tf32 = True}. TF32 rounds inputs to a 10-bit "
    "mantissa; autocast to bfloat16 rounds them to 7 bits.",
    of_kernels=True,
)
def no_tensor_cores(facts: Facts) -> Iterator[Claim]:
    """Report products in float32 on plain cores where tensor cores are faster.

    Attention in float32 is reported likewise. At stake is the difference to the faster
    rate. A device that is not listed has at most a note; see _report_unlisted_device.
    """
    kernels = facts.kernels
    plain = _find_plain_products(kernels)
    if kernels.peak is None:
        if plain.any():
            yield from _report_unlisted_device(facts, plain)
        return

    yield from _report_float32_attention(facts, kernels.peak)
    if not plain.any():
        return

    faster = _find_faster_type(kernels.peak)
    if faster is not None:
        plain_rate = kernels.peak.flop_per_s("fp32") or 0
        ratio = plain_rate / faster.flop_per_s
        spared_ns = _estimate_spared_ns(kernels, plain, ratio)
        products = format_subject(int(plain.sum()), "float32 matrix product", "take")

        yield Claim(
            text=f"{products} "
            f"{format_share_of_work(facts, kernels.add_up_ns(plain))} without using tensor "
            f"cores. Matrix multiplication in {faster.name} is {_format_speedup(1 / ratio)} on "
            "this device.",
            at_stake_ns=int(spared_ns.sum()),
            wanted=ReducedDurations(kernels.rows[plain], spared_ns),
            kernels=plain,
            remedy=REMEDY_OF_TYPE.get(faster.name),
            why_likely="Small matrix products gain less.",
        )


def _find_plain_products(kernels: Kernels) -> Flags:
    """Tell which kernels are GEMMs or convolutions in float32 without tensor cores.

    Convolutions are left out if others of the trace use TF32: there cuDNN may use it
    too, and has chosen these kernels.
    """
    plain: Flags = kernels.match_names(runs_on_plain_cores) & ~kernels.is_trial
    convolutions = kernels.match_names(_is_convolution)
    uses_tf32 = convolutions & kernels.match_names(_names_tf32)
    if uses_tf32.any():
        plain &= ~convolutions

    return plain


def _is_convolution(kernel: KernelName) -> bool:
    """Whether a kernel is a convolution, by its name."""
    return kernel.op == "conv"


def _names_tf32(kernel: KernelName) -> bool:
    """Whether the name of a kernel says that it uses TF32."""
    return "tf32" in kernel.name


def _estimate_spared_ns(kernels: Kernels, is_selected: Flags, ratio: float) -> Int64s:
    """Estimate how much less time some kernels would take at a faster rate.

    No kernel becomes faster than its bytes can be moved.

    Args:
        is_selected: True for the kernels.
        ratio: The present rate as a share of the faster one.

    Returns:
        ns for each selected kernel.
    """
    taken_ns = kernels.effective_ns[is_selected]
    memory_ns = kernels.compute_from_jobs(lambda job: job.limits.memory_ns)[is_selected]
    moving_ns = np.nan_to_num(memory_ns)
    computing_ns = taken_ns * ratio
    least_ns = np.ceil(np.maximum(computing_ns, moving_ns)).astype(np.int64)
    spared_ns: Int64s = np.maximum(taken_ns - least_ns, 0)

    return spared_ns


FLOAT32_ATTENTION: Final = lazy_pattern(r"fmha_cutlass[FB]_f32_\w*_sm(?P<arch>\d+)")
"""Matches memory-efficient attention of PyTorch in float32.

FlashAttention and cuDNN have no float32.
"""
SPLIT_FROM_ARCH: Final = 80
"""From this architecture on, these kernels multiply on tensor cores.

Each float32 product becomes SPLIT_PRODUCTS of TF32 (OpMultiplyAddFastF32 of CUTLASS, in
mem_eff_attention/gemm_kernel_utils.h). Before it, they multiply on the plain cores.
"""
SPLIT_PRODUCTS: Final = 3


def _report_float32_attention(facts: Facts, peak: Peak) -> Iterator[Claim]:
    """Report attention in float32 on plain cores, and that on tensor cores.

    Either is reported only where tensor cores multiply a type of 16 bits faster. At
    stake is the difference to that rate.
    """
    faster = _find_faster_16_bit_type(peak)
    if faster is None:
        return

    fp32_rate = peak.flop_per_s("fp32") or 0
    yield from _report_slow_attention(
        facts, faster, fp32_rate, "without using tensor cores", is_split=False
    )

    split_rate = (peak.flop_per_s("tf32") or 0) / SPLIT_PRODUCTS
    how = (
        f"on tensor cores, which compute each float32 product as {SPLIT_PRODUCTS} "
        "TF32 products"
    )
    yield from _report_slow_attention(facts, faster, split_rate, how, is_split=True)


def _report_slow_attention(
    facts: Facts, faster: FasterType, rate: float, how: str, *, is_split: bool
) -> Iterator[Claim]:
    """Report attention in float32 that multiplies at one rate.

    There is no claim if no kernel does, or if the faster type is no faster.

    Args:
        faster: The type to which the kernels are compared.
        rate: The rate in FLOP/s.
        how: How the kernels multiply, in words.
        is_split: Whether they multiply on tensor cores.
    """
    kernels = facts.kernels
    attention = kernels.match_names(_make_attention_test(is_split=is_split))
    if not attention.any() or not 0 < rate < faster.flop_per_s:
        return

    ratio = rate / faster.flop_per_s
    spared_ns = _estimate_spared_ns(kernels, attention, ratio)
    takes = format_subject(int(attention.sum()), "float32 attention kernel", "take")
    rounding = REMEDY_OF_TYPE[faster.name]
    flash = "{torch2: With 16-bit inputs, scaled_dot_product_attention can also use FlashAttention.}"

    yield Claim(
        text=f"{takes} "
        f"{format_share_of_work(facts, kernels.add_up_ns(attention))} {how}. Matrix "
        f"multiplication in {faster.name} is {_format_speedup(1 / ratio)} on this device.",
        at_stake_ns=int(spared_ns.sum()),
        wanted=ReducedDurations(kernels.rows[attention], spared_ns),
        kernels=attention,
        remedy=f"{rounding}{flash}",
        why_likely="Attention also computes a softmax, which would not get faster.",
    )


def _make_attention_test(*, is_split: bool) -> Callable[[KernelName], bool]:
    """Make the test whether a kernel is attention in float32, by its name.

    Args:
        is_split: Whether tensor cores must multiply for it, or must not.
    """

    def matches(kernel: KernelName) -> bool:
        match = FLOAT32_ATTENTION.search(kernel.name)
        if match is None:
            return False
        on_tensor_cores = int(match["arch"]) >= SPLIT_FROM_ARCH
        return on_tensor_cores == is_split

    return matches


class FasterType(NamedTuple):
    """An element type that tensor cores multiply faster than the plain cores do."""

    name: str
    """TF32, bfloat16 or float16."""
    flop_per_s: float
    """The rate by the data sheet."""


def _find_faster_16_bit_type(peak: Peak) -> FasterType | None:
    """Return the type of 16 bits for which tensor cores are faster.

    It is bfloat16, else float16; None if neither is faster.
    """
    for kind, name in (("bf16", "bfloat16"), ("fp16", "float16")):
        rate = peak.flop_per_s(kind) or 0
        plain_rate = peak.flop_per_s(f"{kind}_plain") or 0
        if rate > plain_rate:
            return FasterType(name, flop_per_s=rate)

    return None


def _report_unlisted_device(facts: Facts, plain: Flags) -> Iterator[Claim]:
    """Note float32 products on plain cores of a device whose peak rates are not listed.

    The compute capability of the device tells which types its tensor cores multiply.
    There is no note about a device without tensor cores.

    Args:
        plain: True for the kernels on plain cores.

    Raises:
        CannotTellError: How much faster the tensor cores are is not known. Raised after
            the note.
    """
    kernels = facts.kernels
    devices = [*device_properties(facts.trace).values()]
    types_of_devices = {tensor_core_types(properties) for properties in devices}
    are_alike = len(types_of_devices) == 1
    multiplied = types_of_devices.pop() if are_alike else None
    if multiplied is None or "nvidia" not in find_tags(facts):
        raise CannotTellError(LISTED_DEVICE, find_properties_to_record(facts.trace))

    if not multiplied:  # no tensor cores
        return

    taken_ns = kernels.add_up_ns(plain)
    if is_large_enough(facts, taken_ns, of_kernels=True):
        first = devices[0]
        capability = f"{first['computeMajor']}.{first['computeMinor']}"
        products = format_subject(int(plain.sum()), "float32 matrix product", "take")

        yield Claim(
            text=f"{products} {format_share_of_work(facts, taken_ns)} without using tensor cores. "
            f"The tensor cores of this device (compute capability {capability}) "
            f"multiply {' and '.join(multiplied)}. The speedup is unknown, "
            "because the peak rates of this device are unknown.",
            kernels=plain,
            remedy=USE_FLOAT16 if multiplied == ("float16",) else None,
        )

    raise CannotTellError(LISTED_DEVICE, find_properties_to_record(facts.trace))


def _find_faster_type(peak: Peak) -> FasterType | None:
    """Return the type that tensor cores multiply faster than plain cores do float32.

    It is TF32, else bfloat16, else float16. It must also be faster than the type itself
    on plain cores. None where no type is faster, or where the rate of float32 is not
    known.
    """
    fp32_rate = peak.flop_per_s("fp32")
    if fp32_rate is None:
        return None

    for kind, name in (("tf32", "TF32"), ("bf16", "bfloat16"), ("fp16", "float16")):
        rate = peak.flop_per_s(kind) or 0
        plain_rate = peak.flop_per_s(f"{kind}_plain") or 0
        if rate > max(fp32_rate, plain_rate):
            return FasterType(name, flop_per_s=rate)

    return None


SHORTEST_NS: Final = 20_000
"""A shorter kernel is not worth a look."""
MAX_BLOCKS_PER_SM: Final = 0.75
"""A kernel has few blocks with this many for each multiprocessor, or fewer."""
LEAST_SHARE: Final = 0.05
"""The kernels with few blocks are worth a finding from this share of all kernels' time
on."""
MIN_SHARE_OF_BANDWIDTH: Final = 0.5
"""From this share of the bandwidth of the data sheet on, a kernel keeps the memory
busy."""

USE_LARGER_BATCHES: Final = (
    "Use larger batches, or an implementation of this op that splits its work into "
    "more blocks."
)
"""The remedy for other kernels."""
FOR_PRODUCTS: Final = (
    "Use larger batches or, for matrix products with a small output, split-K or "
    "stream-K."
)
"""The remedy for products."""
FOR_BATCH_NORMS: Final = (
    "Use larger batches. For a batch norm with few channels, use channels_last or "
    "another implementation."
)
"""The remedy for batch norms."""


@Rule(
    needs=("launch configurations", "the number of multiprocessors"),
    remedy="Use larger batches, split-K or stream-K for matrix products with a small "
    "output, channels_last for batch norms with few channels, or another "
    "implementation.",
    thresholds={
        "shortest_ns": SHORTEST_NS,
        "few": MAX_BLOCKS_PER_SM,
        "least_share": LEAST_SHARE,
        "busy_memory": MIN_SHARE_OF_BANDWIDTH,
    },
    of_kernels=True,
)
def few_blocks(facts: Facts) -> Iterator[Claim]:
    """Report long kernels that leave a quarter of the multiprocessors without a block.

    At stake is the share of their time that equals the share of idle multiprocessors.
    It is no more than what they take longer than the device needs for their work.

    Raises:
        CannotTellError: The number of multiprocessors is not recorded.
    """
    kernels = facts.kernels
    has_blocks = bool((kernels.blocks > 0).any())
    has_multiprocessors = bool((kernels.multiprocessors > 0).any())
    if has_blocks and not has_multiprocessors:
        raise CannotTellError("the number of multiprocessors", PROPERTIES)

    has_few = _find_kernels_with_few_blocks(kernels)
    taken_ns = kernels.add_up_ns(has_few)
    if not taken_ns:
        return

    # No more than by the rates of the data sheet, where these are known.
    ns = kernels.effective_ns[has_few]
    idle_share = 1 - kernels.blocks[has_few] / kernels.multiprocessors[has_few]
    data_sheet_ns = np.maximum(kernels.bounds.least_ns[has_few], 0)
    spared_ns = np.minimum(ns * idle_share, ns - data_sheet_ns)
    at_stake_ns = int(spared_ns.sum())

    yield Claim(
        text=f"{format_subject(int(has_few.sum()), 'kernel', 'leave')} at least a "
        "quarter of the multiprocessors idle for "
        f"{format_share_of_work(facts, taken_ns)}: "
        f"{_describe_blocks(kernels, has_few)}. Using all multiprocessors "
        f"would save at most {duration(at_stake_ns)}.",
        at_stake_ns=at_stake_ns,
        wanted=ReducedDurations(kernels.rows[has_few], spared_ns.astype(np.int64)),
        kernels=has_few,
        remedy=_choose_few_blocks_remedy(kernels, has_few),
        why_likely="It may not be possible to split the work of one block.",
        is_little=taken_ns < LEAST_SHARE * kernels.add_up_ns(kernels.is_kernel),
    )


def _describe_blocks(kernels: Kernels, has_few: Flags) -> str:
    """Describe the blocks of the kernel name with the most time among some kernels.

    The text is `64 to 128 blocks on 304 in NAME`, or `in 50 x NAME` if there are
    others.
    """
    dominant = kernels.find_dominant_name(has_few, kernels.effective_ns)
    blocks = kernels.blocks[dominant.has_name]
    fewest = int(blocks.min())
    most = int(blocks.max())
    blocks_text = plural(most, "block")
    if fewest != most:
        blocks_text = f"{count(fewest)} to {blocks_text}"

    multiprocessors = count(int(kernels.multiprocessors[dominant.has_name].max()))
    has_others = not (dominant.has_name == has_few).all()
    times = f"{count(int(dominant.has_name.sum()))} x " if has_others else ""

    return (
        f"{blocks_text} on {multiprocessors} multiprocessors in "
        f"{times}{dominant.short_name}"
    )


def _choose_few_blocks_remedy(kernels: Kernels, has_few: Flags) -> str:
    """Choose what helps where few blocks run.

    It is the remedy for products or for batch norms if these take more than half of the
    time, else the one for anything.
    """
    half_ns = kernels.add_up_ns(has_few) / 2
    products_ns = kernels.add_up_ns(has_few & kernels.match_names(_is_product))
    if products_ns > half_ns:
        return FOR_PRODUCTS

    batch_norms_ns = kernels.add_up_ns(has_few & kernels.match_names(_is_batch_norm))
    if batch_norms_ns > half_ns:
        return FOR_BATCH_NORMS

    return USE_LARGER_BATCHES


def _is_product(kernel: KernelName) -> bool:
    """Whether a kernel is a product or a convolution, by its name."""
    return kernel.op in ("gemm", "conv")


def _is_batch_norm(kernel: KernelName) -> bool:
    """Whether a kernel is a batch norm, by its name."""
    return "batch_norm" in kernel.name or "BatchNorm" in kernel.name


def _find_kernels_with_few_blocks(kernels: Kernels) -> Flags:
    """Tell which kernels are long, run alone and have few blocks; one flag per kernel.

    Kernels that keep the memory busy are left out; see _find_memory_bound_kernels.
    """
    is_known = kernels.blocks > 0
    is_below_limit = kernels.blocks <= MAX_BLOCKS_PER_SM * kernels.multiprocessors
    is_long = kernels.effective_ns >= SHORTEST_NS

    has_few: Flags = is_known & is_below_limit & is_long
    has_few &= kernels.is_compute & kernels.runs_alone & ~kernels.is_trial
    has_few &= ~_find_memory_bound_kernels(kernels)

    return has_few


def _find_memory_bound_kernels(kernels: Kernels) -> Flags:
    """Tell which kernels are bound by memory and keep the memory busy.

    They move their bytes at MIN_SHARE_OF_BANDWIDTH of the bandwidth or more, so more
    blocks would not make them faster. One flag per kernel.
    """
    is_bound_by_memory = kernels.match_jobs(lambda job: job.limits.bound == "memory")
    moving_ns = np.nan_to_num(
        kernels.compute_from_jobs(lambda job: job.limits.memory_ns)
    )
    keeps_memory_busy = moving_ns >= MIN_SHARE_OF_BANDWIDTH * kernels.effective_ns

    return np.asarray(is_bound_by_memory & keeps_memory_busy)
