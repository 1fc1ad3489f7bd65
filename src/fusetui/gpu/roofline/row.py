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
from fusetui.gpu.roofline.bounds import Limits, Tiles, limits, tiles
from fusetui.gpu.roofline.inputs import NS, Amount, Inputs, inputs_of
from fusetui.gpu.roofline.peaks import BANDWIDTH, Peak, attainable, is_assumed, peak_of
from fusetui.gpu.roofline.pointwise import pointwise, rowwise
from fusetui.gpu.roofline.products import attention, conv, matmul
from fusetui.text.figures import count, percent, plural, quantity, significant
from fusetui.text.patterns import late
from fusetui.trace.layout.devices import device_properties
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.joined import is_joined
from fusetui.trace.model.memo import memo

Args = dict[str, Any]

IN_THREADS: Final = ("hipExtModuleLaunchKernel", "hipExtLaunchKernel")
"""Calls whose kernels record their grid in threads instead of blocks."""

_PRODUCTS: Final = ("gemm", "gemv", "conv")
_MAIN: Final = {
    "matmul": _PRODUCTS,
    "conv": _PRODUCTS,
    "attention": ("attention",),
    "elementwise": ("elementwise", "copy", "fill"),
}
# Steps before and after the products of attention.
_AROUND: Final = late(r"dot_do_o|convert_d[qkv]|combine|[Pp]reprocess|[Pp]ostprocess")


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
    """What a kernel computed, from the args of its op and its own; None as in
    `work_of`."""
    inputs, name = (
        inputs_of(trace.name_of(int(trace.op[row])), op_args),
        trace.name_of(row),
    )
    kernel = decode(name)
    amount = amount_of(inputs, kernel) if inputs else None
    if amount is None or not _did_the_work(trace, row, amount.kind):
        return None
    known = amount, _tiles(trace, row, amount, own_args)
    if peak is None:
        return KernelJob(*known)
    near, reached = (
        limits(amount, kernel, name, one) for one in (peak, attainable(peak))
    )
    assumed = is_assumed(peak, BANDWIDTH if near.bound == "memory" else near.kind)
    return KernelJob(*known, near, reached, assumed)


def amount_of(inputs: Inputs, kernel: KernelName | None) -> Amount | None:
    """What an op computes, from its inputs and what the kernel's name says about its
    part."""
    # A window may be causal without the flag of a full mask.
    causal = None if kernel is None or kernel.local else kernel.causal
    return (
        matmul(inputs)
        or pointwise(inputs, kernel is not None and kernel.vec is not None)
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
    """None too where a second kernel of the op adds up partial sums."""
    kernel = decode(trace.name_of(row))
    if amount.kind != "matmul" or kernel is None:
        return None
    if any(
        name is not None and name.role == "splitk_reduce"
        for name in _beside(trace, row)
    ):
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
    launch, own = int(trace.asked[row]), decode(trace.name_of(row))
    by_graph = launch >= 0 and "graph" in trace.name_of(launch).lower()
    if trace.role[row] != Role.KERNEL or by_graph:
        return False
    op = own.op if own else None
    if kind in ("softmax", "norm"):
        return op == kind  # each kernel is counted with its own pass
    kernels, is_main = _beside(trace, row), own is not None and _is_main(own, kind)
    if len(kernels) == 1:
        return is_main or (op is None and kind != "elementwise")
    if own is None or not is_main or kind == "elementwise":
        return False
    mains = [name for name in kernels if name is not None and _is_main(name, kind)]
    same = [name for name in mains if kind != "conv" or name.pass_ in (None, own.pass_)]
    return len(same) == 1


def _is_main(kernel: KernelName, kind: str) -> bool:
    if kernel.op not in _MAIN[kind] or kernel.role is not None:
        return False
    return kind != "attention" or not _AROUND.search(kernel.name)


def _beside(trace: Trace, row: int) -> list[KernelName | None]:
    """The kernels that its op launched itself; of an op that was captured, in the same
    replay."""
    ops, rows = _kernels_by_op(trace)
    op = trace.op[row]
    kernels = rows[np.searchsorted(ops, op) : np.searchsorted(ops, op + 1)]
    if is_joined(trace, row):
        kernels = kernels[trace.launch[kernels] == trace.launch[row]]
    return [decode(trace.name_of(kernel)) for kernel in kernels.tolist()]


@memo()
def _kernels_by_op(trace: Trace) -> tuple[NDArray[np.int32], NDArray[np.intp]]:
    """Ops, sorted, and the row of the kernel of each; arrays of shape [kernels]."""
    rows = trace.rows_of(Role.KERNEL)
    order = np.argsort(trace.op[rows], kind="stable")
    return trace.op[rows][order], rows[order]


DIGITS: Final = 3  # of figures that are based on estimates
_BETWEEN: Final = {"matmul": " x ", "conv": " * "}  # shapes; commas elsewhere
# share of the device's time that is lost to an unfilled last wave
_NOTABLE: Final = 0.05


def describe(trace: Trace, row: int) -> str:
    """`[8192, 768] x [768, 3072] 38.7 GFLOP 204 TFLOP/s 65 % of peak 1,536 tiles, ...`.
    One line; unknown figures are left out, "" if nothing is known."""
    job, ns = work_of(trace, row), int(trace.dur[row])
    if job is None:
        return ""
    by_memory, share = job.limits.bound == "memory" and ns > 0, job.limits.share(ns)
    of_peak = (
        ""
        if share is None
        else f"{percent(share, 1)} of peak{' bandwidth' * by_memory}"
    )
    amount = job.amount
    shapes = _BETWEEN.get(amount.kind, ", ").join(
        str(list(shape)) for shape in amount.shapes
    )
    rates = _rate(amount.flop, ns, "FLOP")
    if by_memory or not rates:  # bytes if memory is the limit or all that is known
        rates += _rate(amount.bytes, ns, "B")
    return "   ".join(filter(None, (shapes, *rates, of_peak, tiles_text(job.tiles))))


def remarks(trace: Trace, row: int) -> tuple[str, ...]:
    """What is unusual about a kernel, in words; () for most."""
    if trace.role[row] != Role.KERNEL:
        return ()
    properties = properties_of(trace, row)
    kernel, unit = decode(trace.name_of(row)), "CU" if _is_amd(properties) else "SM"
    device, named = device_generation(properties), kernel.arch_name if kernel else None
    job, found = work_of(trace, row), []
    if named and device and named != device:
        found.append(
            f"{_article(named)} {named} kernel on {_article(device)} {device} GPU"
        )
    if job and job.tiles and (last := _last_wave(job.tiles, unit)):
        found.append(last)
    return tuple(found)


def tiles_text(tiles: Tiles | None) -> str:
    """`1,536 tiles, 14.2 waves, the last 22 % full`."""
    if tiles is None:
        return ""
    text, waves = plural(tiles.tiles, "tile"), tiles.waves
    if waves is None or tiles.last_wave_empty is None:
        return text
    if not tiles.last_wave_empty:
        return f"{text}, {plural(round(waves), 'full wave')}"
    full = percent(1 - tiles.last_wave_empty, 1)
    if waves < 1:
        return f"{text}, one wave, {full} full"
    number = count(round(waves)) if waves >= 999.5 else significant(waves, DIGITS)
    return f"{text}, {number} waves, the last {full} full"


def _rate(number: int | None, ns: int, unit: str) -> list[str]:
    """An amount, and how much of it each second."""
    rate = (
        [quantity(number * NS / ns, f"{unit}/s", DIGITS)] if number and ns > 0 else []
    )
    return [quantity(number, unit, DIGITS), *rate] if number else []


def _last_wave(tiles: Tiles, unit: str) -> str:
    """Idle multiprocessors, or a last wave so empty that it costs a notable share of
    time."""
    if tiles.waves is None or not tiles.sms:
        return ""
    idle = tiles.sms - tiles.tiles
    if idle > _NOTABLE * tiles.sms:
        some, of = plural(tiles.tiles, "tile"), plural(tiles.sms, unit)
        return f"{some} {'leaves' if tiles.tiles == 1 else 'leave'} {count(idle)} of {of} idle"
    unused = (tiles.last_wave_empty or 0.0) / math.ceil(tiles.waves)
    if tiles.waves <= 1 or unused < _NOTABLE:
        return ""
    return f"the last wave leaves {percent(unused, 1)} of the {unit}s' time unused"


def device_generation(properties: dict[str, Any]) -> str | None:
    """The generation of a device by its compute capability; None if that is ambiguous.
    AMD writes 9.0 for several generations, which is Hopper's number too."""
    version = f"{properties.get('computeMajor')}{properties.get('computeMinor')}"
    if _is_amd(properties):
        return {"94": "CDNA3", "95": "CDNA4"}.get(version)
    if "sharedMemPerMultiprocessor" not in properties:
        return None
    return from_capability(version).get("arch_name")


def _is_amd(properties: dict[str, Any]) -> bool:
    """Known from a property that only ROCm writes; names may be empty."""
    return "maxSharedMemoryPerMultiProcessor" in properties


def _article(noun: str) -> str:
    return "an" if noun[0] in "AEIOU" else "a"
