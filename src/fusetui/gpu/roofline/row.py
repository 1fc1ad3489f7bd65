"""Finds the work of the kernel in a row of the trace, if it did the work of its op, and
describes it in one line."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from fusetui.gpu.kernel_names import decode
from fusetui.gpu.kernel_names.record import KernelName
from fusetui.gpu.kernel_names.vocabulary import from_capability
from fusetui.gpu.kernel_roles import role_of_kernel
from fusetui.gpu.roofline.bounds import Limits, Tiles, limits, tiles
from fusetui.gpu.roofline.inputs import NS, Amount, Inputs, inputs_of
from fusetui.gpu.roofline.peaks import BANDWIDTH, Peak, attainable, is_assumed, peak_of
from fusetui.gpu.roofline.pointwise import pointwise, rowwise
from fusetui.gpu.roofline.products import attention, conv, matmul
from fusetui.text.figures import count, percent, plural, quantity, significant
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.layout.devices import device_properties
from fusetui.trace.model.arrays import NO_ROW, Int32s, Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.joined import is_joined
from fusetui.trace.model.memo import memo
from fusetui.trace.model.sorted_arrays import slice_between

Args = dict[str, Any]

IN_THREADS: Final = ("hipExtModuleLaunchKernel", "hipExtLaunchKernel")
"""Calls whose kernels record their grid in threads instead of blocks."""

_PRODUCTS: Final = ("gemm", "gemv", "conv")
_OPS_OF_WORK: Final = {
    "matmul": _PRODUCTS,
    "conv": _PRODUCTS,
    "attention": ("attention",),
    "elementwise": ("elementwise", "copy", "fill"),
}
"""Which kernels, by the field `op` of their names, can do a kind of work."""

_AROUND_ATTENTION: Final = lazy_pattern(
    r"dot_do_o|convert_d[qkv]|combine|[Pp]reprocess|[Pp]ostprocess"
)
"""Steps before and after the products of attention."""


class KernelJob(msgspec.Struct, frozen=True):
    """The work of a kernel and the limits of its device for such work.

    It does not depend on the time that the kernel took, so kernels can share it.
    """

    amount: Amount
    tiles: Tiles | None
    limits: Limits = Limits()  # by the peak rates of the data sheet
    # The same with the rates that programs attain in practice, see peaks.attainable.
    attainable: Limits = Limits()
    # Whether the attainable rate of the limit that bounds it is assumed, not measured.
    assumed: bool = False


@memo(64)
def work_of(trace: Trace, row: int) -> KernelJob | None:
    """Return the work of the kernel in a row.

    Returns None if its op is unknown, if no shapes were recorded, and if the work of
    the op cannot be attributed to this kernel alone.
    """
    op = int(trace.op[row])
    if trace.role[row] != Role.KERNEL or op == NO_ROW:
        return None

    return job_of(
        trace,
        row,
        op_args=trace.args_of(op),
        own_args=lambda: trace.args_of(row),
        peak=peak_of(find_device_properties(trace, row)),
    )


def job_of(
    trace: Trace,
    row: int,
    op_args: Args,
    own_args: Callable[[], Args],
    peak: Peak | None,
) -> KernelJob | None:
    """Compute the work of a kernel and the limits of its device for it.

    Args:
        trace: The trace.
        row: The kernel.
        op_args: The args of the op that launched it.
        own_args: Reads the args of the kernel. Only matrix products need them.
        peak: The peaks of its device. If they are unknown (None), the limits are empty.

    Returns:
        The job; None in the cases that `work_of` lists.
    """
    op = int(trace.op[row])
    inputs = inputs_of(trace.name_of(op), op_args)
    if inputs is None:
        return None

    name = trace.name_of(row)
    kernel = decode(name)
    amount = compute_amount(inputs, kernel)
    if amount is None or not _does_work_of_op(trace, row, amount.kind):
        return None

    tiles_of_job = None
    if amount.kind == "matmul" and kernel is not None:
        tiles_of_job = _count_tiles(trace, row, amount, kernel, own_args)
    if peak is None:
        return KernelJob(amount=amount, tiles=tiles_of_job)

    limits_by_sheet = limits(amount, kernel, name, peak)
    is_bound_by_memory = limits_by_sheet.bound == "memory"
    bounding_rate = BANDWIDTH if is_bound_by_memory else limits_by_sheet.kind
    return KernelJob(
        amount=amount,
        tiles=tiles_of_job,
        limits=limits_by_sheet,
        attainable=limits(amount, kernel, name, attainable(peak)),
        assumed=is_assumed(peak, bounding_rate),
    )


def compute_amount(inputs: Inputs, kernel: KernelName | None) -> Amount | None:
    """Compute the arithmetic and traffic of an op from its inputs.

    Where an op takes several kernels, the name of the kernel tells which part of the op
    it did.

    Args:
        inputs: The op with its recorded inputs.
        kernel: The decoded name of the kernel; None for a name that no decoder knows.

    Returns:
        The amount; None for an op, or for shapes, that no formula covers.
    """
    reads_contiguous = kernel is not None and kernel.vec is not None
    # A sliding window may be causal although the name does not say so.
    is_causal = None if kernel is None or kernel.local else kernel.causal
    return (
        matmul(inputs)
        or pointwise(inputs, reads_contiguous)
        or conv(inputs, kernel.pass_ if kernel else None)
        or attention(inputs, is_causal)
        or rowwise(inputs, kernel)
    )


def find_device_properties(trace: Trace, row: int) -> dict[str, Any]:
    """Return the properties of the device that ran a GPU event; {} if unknown."""
    return device_properties(trace).get(trace.track_of(row).pid, {})


def _count_tiles(
    trace: Trace,
    row: int,
    amount: Amount,
    kernel: KernelName,
    own_args: Callable[[], Args],
) -> Tiles | None:
    """Count the output tiles of a kernel that computes a matrix product.

    A tile is the part of the result that one block computes. If a second kernel of the
    op adds up partial sums, a tile has several blocks, and the result is None.

    Args:
        trace: The trace.
        row: The row of the kernel.
        amount: The work of the op, with the sizes of the product.
        kernel: The decoded name of the kernel.
        own_args: Reads the args of the kernel.
    """
    for name in _list_kernels_of_op(trace, row):
        if role_of_kernel(name).adds_up_parts:
            return None

    launch = int(trace.launch[row])
    has_launch = launch != NO_ROW
    return tiles(
        amount,
        kernel,
        args=own_args(),
        properties=find_device_properties(trace, row),
        in_threads=has_launch and trace.name_of(launch) in IN_THREADS,
    )


def _does_work_of_op(trace: Trace, row: int, kind: str) -> bool:
    """Return whether a kernel is the one that did the actual work of its op.

    Copies, fills, reductions of split-K and other helpers did not. A graph launch runs
    many kernels under one op, which says nothing about any of them. In the backward op
    of a convolution each gradient has a kernel of its own.

    Args:
        trace: The trace.
        row: The kernel.
        kind: The kind of work of the op, as in `Amount.kind`.

    Returns:
        True if it did; False also if that is uncertain.
    """
    if trace.role[row] != Role.KERNEL:
        return False
    requesting_call = int(trace.asked[row])
    has_call = requesting_call != NO_ROW
    if has_call and "graph" in trace.name_of(requesting_call).lower():
        return False

    kernel = decode(trace.name_of(row))
    if kind in ("softmax", "norm"):
        # Each of their kernels counts with its own pass over the tensors.
        return kernel is not None and kernel.op == kind

    kernels_of_op = _list_kernels_of_op(trace, row)
    is_alone = len(kernels_of_op) == 1
    if kernel is None or kernel.op is None:
        # A single kernel whose name is not understood did what its op does.
        return is_alone and kind != "elementwise"
    if not _does_kind_of_work(kernel, kind):
        return False
    return is_alone or _is_only_candidate(kernel, kernels_of_op, kind)


def _is_only_candidate(kernel: KernelName, kernels_of_op: list[str], kind: str) -> bool:
    """Return whether no other kernel of an op may have done the same work.

    Elementwise ops give False: any of their kernels may have done it.

    Args:
        kernel: One kernel of the op, which may have done it.
        kernels_of_op: The names of all kernels of the op, this one included.
        kind: The kind of work of the op.
    """
    if kind == "elementwise":
        return False

    candidates = 0
    for name in kernels_of_op:
        candidate = decode(name)
        if candidate is None or not _does_kind_of_work(candidate, kind):
            continue
        # The gradients of a convolution have a kernel each.
        may_be_same_pass = candidate.pass_ is None or candidate.pass_ == kernel.pass_
        if kind != "conv" or may_be_same_pass:
            candidates += 1
    return candidates == 1


def _does_kind_of_work(kernel: KernelName, kind: str) -> bool:
    """Return whether a kernel does a kind of work itself, rather than help with it."""
    if kernel.op not in _OPS_OF_WORK[kind]:
        return False
    if role_of_kernel(kernel.name).adds_up_parts:
        return False
    return kind != "attention" or not _AROUND_ATTENTION.search(kernel.name)


def _list_kernels_of_op(trace: Trace, row: int) -> list[str]:
    """List the names of all kernels that the op around a kernel launched itself.

    The kernel itself is among them. For an op that was captured in a CUDA graph, only
    the kernels of the same replay count.

    Args:
        trace: The trace.
        row: The row of the kernel.
    """
    kernels = _sort_kernels_by_op(trace)
    op = trace.op[row]
    rows_of_op = kernels.rows[slice_between(kernels.ops, op, op + 1)]

    if is_joined(trace, row):
        is_same_replay = trace.launch[rows_of_op] == trace.launch[row]
        rows_of_op = rows_of_op[is_same_replay]
    return [trace.name_of(kernel_row) for kernel_row in rows_of_op.tolist()]


class _KernelsByOp(NamedTuple):
    """All kernels of a trace, sorted by their op."""

    ops: Int32s  # the op of each kernel, ascending; -1 for none
    rows: Rows


@memo()
def _sort_kernels_by_op(trace: Trace) -> _KernelsByOp:
    """Sort the kernels of a trace by their op; kernels of one op stay in order."""
    rows = trace.rows_of(Role.KERNEL)
    sorted_rows = rows[np.argsort(trace.op[rows], kind="stable")]
    return _KernelsByOp(ops=trace.op[sorted_rows], rows=sorted_rows)


_RATE_DIGITS: Final = 3
"""How many digits rates have: they are based on estimates of the work."""

_BETWEEN_SHAPES: Final = {"matmul": " x ", "conv": " * "}
"""What stands between the shapes of the operands, by kind of work; else a comma."""

_NOTABLE_SHARE: Final = 0.05
"""If at least this share of a device is left idle, a sentence says so."""


def describe_work(trace: Trace, row: int) -> str:
    """Describe the work of a kernel and its rates in one line.

    It reads `[8192, 768] x [768, 3072] 38.7 GFLOP 204 TFLOP/s 65 % of peak 1,536 tiles,
    ...`. Unknown figures are left out. Returns "" if nothing is known.

    Args:
        trace: The trace.
        row: The row of the kernel.
    """
    job = work_of(trace, row)
    if job is None:
        return ""
    duration_ns = int(trace.dur[row])
    is_bound_by_memory = job.limits.bound == "memory" and duration_ns > 0

    separator = _BETWEEN_SHAPES.get(job.amount.kind, ", ")
    shape_texts = [str(list(shape)) for shape in job.amount.shapes]
    flop_texts = _format_amount_and_rate(job.amount.flop, duration_ns, "FLOP")
    # Bytes are shown if memory is the limit, or if they are all that is known.
    byte_texts = []
    if is_bound_by_memory or not flop_texts:
        byte_texts = _format_amount_and_rate(job.amount.bytes, duration_ns, "B")

    share_text = ""
    share = job.limits.share(duration_ns)
    if share is not None:
        of_peak = "of peak bandwidth" if is_bound_by_memory else "of peak"
        share_text = f"{percent(share, 1)} {of_peak}"

    texts = [separator.join(shape_texts), *flop_texts, *byte_texts]
    texts += [share_text, describe_tiles(job.tiles)]
    return "   ".join(text for text in texts if text)


def remarks(trace: Trace, row: int) -> tuple[str, ...]:
    """Name what is unusual about a kernel, in sentences; most kernels have none.

    Unusual are a kernel that was built for another generation of GPUs, and a matrix
    product that leaves multiprocessors idle.
    """
    if trace.role[row] != Role.KERNEL:
        return ()
    properties = find_device_properties(trace, row)
    sentences = []

    kernel = decode(trace.name_of(row))
    built_for = kernel.arch_name if kernel else None
    generation = device_generation(properties)
    if built_for and generation and built_for != generation:
        some_kernel = f"{_choose_article(built_for)} {built_for} kernel"
        some_gpu = f"{_choose_article(generation)} {generation} GPU"
        sentences.append(f"{some_kernel} on {some_gpu}")

    job = work_of(trace, row)
    if job is not None and job.tiles is not None:
        unit = "CU" if _is_amd(properties) else "SM"
        sentences.append(_describe_idle_units(job.tiles, unit))
    return tuple(sentence for sentence in sentences if sentence)


def describe_tiles(tiles: Tiles | None) -> str:
    """Describe tiles and waves, as in `1,536 tiles, 14.2 waves, the last 22 % full`.

    Only the number of tiles is given where the waves are unknown; "" without tiles.
    """
    if tiles is None:
        return ""
    tile_text = plural(tiles.tiles, "tile")
    if tiles.waves is None or tiles.last_wave_empty is None:
        return tile_text
    if tiles.last_wave_empty == 0:
        return f"{tile_text}, {plural(round(tiles.waves), 'full wave')}"

    full_share = percent(1 - tiles.last_wave_empty, 1)
    if tiles.waves < 1:
        return f"{tile_text}, one wave, {full_share} full"
    if tiles.waves < 999.5:
        wave_count = significant(tiles.waves, _RATE_DIGITS)
    else:  # this rounds to 1,000 or more, where three digits would hide some waves
        wave_count = count(round(tiles.waves))
    return f"{tile_text}, {wave_count} waves, the last {full_share} full"


def _format_amount_and_rate(number: int | None, ns: int, unit: str) -> list[str]:
    """Return the texts of an amount and of its rate: `38.7 GFLOP`, `204 TFLOP/s`.

    >>> _format_amount_and_rate(2_000_000, ns=1_000, unit="FLOP")
    ['2 MFLOP', '2 TFLOP/s']

    Args:
        number: The amount; no texts are returned if it is unknown (None) or 0.
        ns: The time that it took; without one there is no rate.
        unit: The unit of the amount.
    """
    if not number:
        return []
    texts = [quantity(number, unit, _RATE_DIGITS)]
    if ns > 0:
        texts.append(quantity(number * NS / ns, f"{unit}/s", _RATE_DIGITS))
    return texts


def _describe_idle_units(tiles: Tiles, unit: str) -> str:
    """Describe multiprocessors that a matrix product leaves idle; "" if few are.

    Args:
        tiles: The tiles of the product.
        unit: What the maker of the device calls a multiprocessor.
    """
    if tiles.waves is None or not tiles.sms:
        return ""

    idle_units = tiles.sms - tiles.tiles
    if idle_units > _NOTABLE_SHARE * tiles.sms:
        tile_text = plural(tiles.tiles, "tile")
        leave = "leaves" if tiles.tiles == 1 else "leave"
        unit_text = plural(tiles.sms, unit)
        return f"{tile_text} {leave} {count(idle_units)} of {unit_text} idle"

    # All waves but the last are full.
    unused_share = (tiles.last_wave_empty or 0.0) / math.ceil(tiles.waves)
    if tiles.waves <= 1 or unused_share < _NOTABLE_SHARE:
        return ""
    unused = percent(unused_share, 1)
    return f"the last wave leaves {unused} of the {unit}s' time unused"


def device_generation(properties: dict[str, Any]) -> str | None:
    """Return the generation of a device, such as `Hopper` or `CDNA3`.

    It follows from the compute capability and the maker. The maker matters, because AMD
    writes 9.0 for several generations, and that is the number of Hopper too.

    Returns None if it was not recorded, is unknown or is ambiguous.

    >>> nvidia = {"sharedMemPerMultiprocessor": 233472}  # only CUDA writes it
    >>> device_generation({**nvidia, "computeMajor": 9, "computeMinor": 0})
    'Hopper'
    """
    major = properties.get("computeMajor")
    minor = properties.get("computeMinor")
    capability_digits = f"{major}{minor}"
    if _is_amd(properties):
        return _AMD_GENERATIONS.get(capability_digits)
    if _is_nvidia(properties):
        return from_capability(capability_digits).get("arch_name")
    return None


_AMD_GENERATIONS: Final = {"94": "CDNA3", "95": "CDNA4"}
"""Generations by the digits of their compute capability. Capabilities that ROCm writes
for several generations are left out."""


def _is_amd(properties: dict[str, Any]) -> bool:
    """Return whether a device is AMD's, by a property that only ROCm writes.

    Its name may be empty.
    """
    return "maxSharedMemoryPerMultiProcessor" in properties


def _is_nvidia(properties: dict[str, Any]) -> bool:
    """Return whether a device is NVIDIA's, by a property that only CUDA writes."""
    return "sharedMemPerMultiprocessor" in properties


def _choose_article(noun: str) -> str:
    """Return the article of a noun: `an` before a vowel, else `a`."""
    return "an" if noun[0] in "AEIOU" else "a"
