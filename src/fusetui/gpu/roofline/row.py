"""From a row of the trace to the work of its kernel, if that did the work of its op,
and to a line for users."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

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
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.joined import is_joined
from fusetui.trace.model.memo import memo

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
    """What a kernel computed and what its device allows, independent of the time it
    took."""

    amount: Amount
    tiles: Tiles | None
    limits: Limits = Limits()
    attainable: Limits = Limits()  # see peaks.py
    # the attainable rate of the limit that bounds it was not measured
    assumed: bool = False


@memo(64)
def work_of(trace: Trace, row: int) -> KernelJob | None:
    """What the op that launched a kernel computed. None if the op is not known, its
    shapes were not recorded, or the work cannot be attributed to this kernel alone."""
    op = int(trace.op[row])
    if trace.role[row] != Role.KERNEL or op < 0:
        return None
    peak = peak_of(properties_of(trace, row))
    return job_of(trace, row, trace.args_of(op), lambda: trace.args_of(row), peak)


def job_of(
    trace: Trace,
    row: int,
    op_args: Args,
    own_args: Callable[[], Args],
    peak: Peak | None,
) -> KernelJob | None:
    """What the kernel in a row computed, and the limits of its device for that; None as
    in `work_of`. `op_args` are the args of its op, `own_args` reads those of the kernel
    (only a matrix product needs them), and `peak` is that of the device: None if it is
    not known, and then the limits are empty."""
    inputs = inputs_of(trace.name_of(int(trace.op[row])), op_args)
    if inputs is None:
        return None
    name = trace.name_of(row)
    kernel = decode(name)
    amount = amount_of(inputs, kernel)
    if amount is None or not _did_the_work(trace, row, amount.kind):
        return None
    tiles_of_job = _tiles(trace, row, amount, own_args)
    if peak is None:
        return KernelJob(amount=amount, tiles=tiles_of_job)
    limits_by_sheet = limits(amount, kernel, name, peak)
    is_by_memory = limits_by_sheet.bound == "memory"
    bounding_kind = BANDWIDTH if is_by_memory else limits_by_sheet.kind
    return KernelJob(
        amount=amount,
        tiles=tiles_of_job,
        limits=limits_by_sheet,
        attainable=limits(amount, kernel, name, attainable(peak)),
        assumed=is_assumed(peak, bounding_kind),
    )


def amount_of(inputs: Inputs, kernel: KernelName | None) -> Amount | None:
    """What an op computes, from its inputs and from what the name of its kernel says
    about the part of it that the kernel did; None for an op or shapes that no formula
    covers. `kernel` is None for a name that no decoder knows."""
    reads_contiguous = kernel is not None and kernel.vec is not None
    # A window may be causal without the flag of a full mask.
    causal = None if kernel is None or kernel.local else kernel.causal
    return (
        matmul(inputs)
        or pointwise(inputs, reads_contiguous)
        or conv(inputs, kernel.pass_ if kernel else None)
        or attention(inputs, causal)
        or rowwise(inputs, kernel)
    )


def properties_of(trace: Trace, row: int) -> dict[str, Any]:
    """The properties of the device that ran a GPU row; {} if unknown."""
    return device_properties(trace).get(trace.track_of(row).pid, {})


def _tiles(
    trace: Trace, row: int, amount: Amount, own_args: Callable[[], Args]
) -> Tiles | None:
    """The tiles of a matrix product, see `bounds.tiles`; None for other work, for a
    name that says nothing, and where a second kernel of the op adds up partial sums:
    then a tile has several blocks."""
    kernel = decode(trace.name_of(row))
    if amount.kind != "matmul" or kernel is None:
        return None
    if any(role_of_kernel(name).adds_up_parts for name in _kernels_of_op(trace, row)):
        return None
    launch = int(trace.launch[row])
    in_threads = launch >= 0 and trace.name_of(launch) in IN_THREADS
    return tiles(amount, kernel, own_args(), properties_of(trace, row), in_threads)


def _did_the_work(trace: Trace, row: int, kind: str) -> bool:
    """Whether this is the one kernel that did the op's actual work; False also if that
    is uncertain.

    Memcpys, memsets, split-K reductions and other helpers do not count. A graph launch
    runs many kernels under one op, which says nothing about any of them. In the
    backward op of a convolution each gradient has a kernel of its own.
    """
    if trace.role[row] != Role.KERNEL:
        return False
    launch = int(trace.asked[row])
    if launch >= 0 and "graph" in trace.name_of(launch).lower():
        return False
    kernel = decode(trace.name_of(row))
    if kind in ("softmax", "norm"):
        # each kernel is counted with its own pass
        return kernel is not None and kernel.op == kind
    siblings = _kernels_of_op(trace, row)
    is_alone = len(siblings) == 1
    if kernel is None or kernel.op is None:
        # a single kernel whose name is not understood did what its op does
        return is_alone and kind != "elementwise"
    if not _is_main(kernel, kind):
        return False
    return is_alone or _is_only_main(kernel, siblings, kind)


def _is_only_main(kernel: KernelName, siblings: list[str], kind: str) -> bool:
    """Whether of several kernels of an op, of which `kernel` is one, no other may have
    done the same work. `siblings`: the names of all of them."""
    if kind == "elementwise":
        return False
    mains = 0
    for name in siblings:
        sibling = decode(name)
        if sibling is None or not _is_main(sibling, kind):
            continue
        if kind != "conv" or sibling.pass_ in (None, kernel.pass_):
            mains += 1
    return mains == 1


def _is_main(kernel: KernelName, kind: str) -> bool:
    """Whether a kernel does a kind of work itself, rather than to help with it."""
    if kernel.op not in _OPS_OF_WORK[kind]:
        return False
    if role_of_kernel(kernel.name).adds_up_parts:
        return False
    return kind != "attention" or not _AROUND_ATTENTION.search(kernel.name)


def _kernels_of_op(trace: Trace, row: int) -> list[str]:
    """The names of the kernels that the op of a kernel launched itself, this one
    included; of an op that was captured, in the same replay."""
    ops, rows = _kernels_by_op(trace)
    op = trace.op[row]
    first = np.searchsorted(ops, op)
    last = np.searchsorted(ops, op + 1)
    kernels = rows[first:last]
    if is_joined(trace, row):
        kernels = kernels[trace.launch[kernels] == trace.launch[row]]
    return [trace.name_of(kernel) for kernel in kernels.tolist()]


@memo()
def _kernels_by_op(trace: Trace) -> tuple[NDArray[np.int32], NDArray[np.intp]]:
    """The op of each kernel, sorted (-1 for none), and the row of that kernel; two
    arrays of shape [kernels]."""
    rows = trace.rows_of(Role.KERNEL)
    order = np.argsort(trace.op[rows], kind="stable")
    return trace.op[rows][order], rows[order]


_RATE_DIGITS: Final = 3
"""Of figures that are based on estimates."""

_BETWEEN_SHAPES: Final = {"matmul": " x ", "conv": " * "}
"""Commas elsewhere."""

_NOTABLE_SHARE: Final = 0.05
"""Of the device's time, lost to an unfilled last wave."""


def describe(trace: Trace, row: int) -> str:
    """`[8192, 768] x [768, 3072] 38.7 GFLOP 204 TFLOP/s 65 % of peak 1,536 tiles, ...`.
    One line; unknown figures are left out, "" if nothing is known."""
    job = work_of(trace, row)
    if job is None:
        return ""
    ns = int(trace.dur[row])
    amount = job.amount
    is_by_memory = job.limits.bound == "memory" and ns > 0
    separator = _BETWEEN_SHAPES.get(amount.kind, ", ")
    texts = [separator.join(str(list(shape)) for shape in amount.shapes)]
    flop_texts = _amount_and_rate(amount.flop, ns, "FLOP")
    texts += flop_texts
    # bytes if memory is the limit or all that is known
    if is_by_memory or not flop_texts:
        texts += _amount_and_rate(amount.bytes, ns, "B")
    share = job.limits.share(ns)
    if share is not None:
        of_peak = "of peak bandwidth" if is_by_memory else "of peak"
        texts.append(f"{percent(share, 1)} {of_peak}")
    texts.append(tiles_text(job.tiles))
    return "   ".join(text for text in texts if text)


def remarks(trace: Trace, row: int) -> tuple[str, ...]:
    """What is unusual about a kernel, in words; () for most."""
    if trace.role[row] != Role.KERNEL:
        return ()
    properties = properties_of(trace, row)
    sentences = []
    kernel = decode(trace.name_of(row))
    built_for = kernel.arch_name if kernel else None
    device = device_generation(properties)
    if built_for and device and built_for != device:
        sentences.append(
            f"{_article(built_for)} {built_for} kernel"
            f" on {_article(device)} {device} GPU"
        )
    job = work_of(trace, row)
    if job and job.tiles:
        idle = _idle_text(job.tiles, unit="CU" if _is_amd(properties) else "SM")
        if idle:
            sentences.append(idle)
    return tuple(sentences)


def tiles_text(tiles: Tiles | None) -> str:
    """`1,536 tiles, 14.2 waves, the last 22 % full`; only the number of tiles where the
    waves are not known, "" without tiles."""
    if tiles is None:
        return ""
    text = plural(tiles.tiles, "tile")
    waves = tiles.waves
    if waves is None or tiles.last_wave_empty is None:
        return text
    if not tiles.last_wave_empty:
        return f"{text}, {plural(round(waves), 'full wave')}"
    full = percent(1 - tiles.last_wave_empty, 1)
    if waves < 1:
        return f"{text}, one wave, {full} full"
    is_large = waves >= 999.5  # three digits would hide some
    number = count(round(waves)) if is_large else significant(waves, _RATE_DIGITS)
    return f"{text}, {number} waves, the last {full} full"


def _amount_and_rate(number: int | None, ns: int, unit: str) -> list[str]:
    """The texts of an amount and of how much that is per second, as `38.7 GFLOP` and
    `204 TFLOP/s`; without the second one if `ns` is 0, [] if the amount is 0 or not
    known."""
    if not number:
        return []
    texts = [quantity(number, unit, _RATE_DIGITS)]
    if ns > 0:
        texts.append(quantity(number * NS / ns, f"{unit}/s", _RATE_DIGITS))
    return texts


def _idle_text(tiles: Tiles, unit: str) -> str:
    """Idle multiprocessors, or a last wave so empty that it costs a notable share of
    time; "" for neither. `unit`: what the maker calls a multiprocessor."""
    if tiles.waves is None or not tiles.sms:
        return ""
    idle = tiles.sms - tiles.tiles
    if idle > _NOTABLE_SHARE * tiles.sms:
        leave = "leaves" if tiles.tiles == 1 else "leave"
        some_tiles = plural(tiles.tiles, "tile")
        return f"{some_tiles} {leave} {count(idle)} of {plural(tiles.sms, unit)} idle"
    unused = (tiles.last_wave_empty or 0.0) / math.ceil(tiles.waves)
    if tiles.waves <= 1 or unused < _NOTABLE_SHARE:
        return ""
    return f"the last wave leaves {percent(unused, 1)} of the {unit}s' time unused"


def device_generation(properties: dict[str, Any]) -> str | None:
    """The generation of a device, such as `Hopper` or `CDNA3`, by its compute
    capability; None for one that is not recorded, unknown or ambiguous. AMD writes 9.0
    for several generations, which is Hopper's number too: so the maker must be known."""
    capability = f"{properties.get('computeMajor')}{properties.get('computeMinor')}"
    if _is_amd(properties):
        return _AMD_GENERATIONS.get(capability)
    if _is_nvidia(properties):
        return from_capability(capability).get("arch_name")
    return None


_AMD_GENERATIONS: Final = {"94": "CDNA3", "95": "CDNA4"}
"""Generations by the digits of the compute capabilities that ROCm writes, those of
which it writes for one generation only."""


def _is_amd(properties: dict[str, Any]) -> bool:
    """Whether a device is AMD's, by a property that only ROCm writes: its name may be
    empty."""
    return "maxSharedMemoryPerMultiProcessor" in properties


def _is_nvidia(properties: dict[str, Any]) -> bool:
    """Whether a device is NVIDIA's, by a property that only CUDA writes."""
    return "sharedMemPerMultiprocessor" in properties


def _article(noun: str) -> str:
    """`an` before a vowel, else `a`."""
    return "an" if noun[0] in "AEIOU" else "a"
