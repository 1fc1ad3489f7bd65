"""From a row of the trace to the work of its kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from fusetui.gpu.kernel_names import decode
from fusetui.gpu.kernel_names.record import KernelName
from fusetui.gpu.roofline.attainable import attainable, is_assumed
from fusetui.gpu.roofline.attention import attention
from fusetui.gpu.roofline.bounds import Limits, limits
from fusetui.gpu.roofline.conv import conv
from fusetui.gpu.roofline.inputs import Inputs, inputs_of
from fusetui.gpu.roofline.kernels import did_the_work, kernels_beside
from fusetui.gpu.roofline.matmul import matmul
from fusetui.gpu.roofline.model import Amount, Work
from fusetui.gpu.roofline.peaks import BANDWIDTH, Peak, peak_of
from fusetui.gpu.roofline.pointwise import pointwise
from fusetui.gpu.roofline.rowwise import rowwise
from fusetui.gpu.roofline.tiles import Tiles, tiles
from fusetui.trace.layout.devices import device_properties
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id
from fusetui.trace.model.memo import memo

Args = dict[str, Any]

IN_THREADS: Final = ("hipExtModuleLaunchKernel", "hipExtLaunchKernel")
"""Calls whose kernels record their grid in threads instead of blocks."""


class Job(msgspec.Struct, frozen=True):
    """What a kernel computed and what its device allows, independent of the time it took."""

    op: str
    amount: Amount
    tiles: Tiles | None
    limits: Limits = Limits()
    attainable: Limits = Limits()  # see attainable.py
    assumed: bool = False  # the attainable rate of the limit that bounds it was not measured


@memo(64)
def work_of(trace: Trace, row: int) -> Work | None:
    """What the op that launched a kernel computed, and how efficiently the kernel did it.

    None if the op is not known, its shapes were not recorded, or the work cannot be attributed to
    this kernel alone.
    """
    op = int(trace.op[row])
    if trace.role[row] != Role.KERNEL or op < 0:
        return None
    peak = peak_of(properties_of(trace, row))
    job = job_of(trace, row, trace.args_of(op), lambda: trace.args_of(row), peak)
    return None if job is None else work_in(job, int(trace.dur[row]))


def job_of(
    trace: Trace, row: int, op_args: Args, own_args: Callable[[], Args], peak: Peak | None
) -> Job | None:
    """What a kernel computed, from the args of its op and its own; None as in `work_of`."""
    op = trace.name_of(int(trace.op[row]))
    inputs = inputs_of(op, op_args)
    kernel = decode(trace.name_of(row))
    amount = amount_of(inputs, kernel) if inputs else None
    if amount is None or not did_the_work(trace, row, amount.kind):
        return None
    found = Job(op=op, amount=amount, tiles=_tiles(trace, row, amount, kernel, own_args))
    if peak is None:
        return found
    name, reached = trace.name_of(row), attainable(peak)
    near = limits(amount, kernel, name, peak)
    return msgspec.structs.replace(
        found,
        limits=near,
        attainable=limits(amount, kernel, name, reached),
        assumed=is_assumed(peak, BANDWIDTH if near.bound == "memory" else near.kind),
    )


def work_in(job: Job, ns: int) -> Work:
    """The work of a kernel that took `ns` nanoseconds for a job."""
    amount, found, reached = job.amount, job.tiles, job.limits.reached(ns)
    return Work(
        op=job.op,
        kind=amount.kind,
        shapes=amount.shapes,
        ns=ns,
        dtype=amount.dtype,
        m=amount.m,
        n=amount.n,
        k=amount.k,
        batch=amount.batch,
        flop=amount.flop,
        bytes=amount.bytes,
        tiles=found.tiles if found else None,
        sms=found.sms if found else None,
        waves=found.waves if found else None,
        last_wave_empty=found.last_wave_empty if found else None,
        share_of_compute=reached.share_of_compute,
        share_of_bandwidth=reached.share_of_bandwidth,
        bound=reached.bound,
    )


def amount_of(inputs: Inputs, kernel: KernelName | None) -> Amount | None:
    """What an op computes, from its inputs and what the kernel's name says about its part."""
    return (
        matmul(inputs)
        or pointwise(inputs, kernel is not None and kernel.vec is not None)
        or conv(inputs, kernel.pass_ if kernel else None)
        or attention(inputs, _causal(kernel))
        or rowwise(inputs, kernel)
    )


def _causal(kernel: KernelName | None) -> bool | None:
    """None also for a window, which may be causal without the flag of a full mask."""
    return None if kernel is None or kernel.local else kernel.causal


def properties_of(trace: Trace, row: int) -> dict[str, Any]:
    """The properties of the device that ran a GPU row; {} if unknown."""
    return _devices(trace).get(trace.track_of(row).pid, {})


@memo()
def _devices(trace: Trace) -> dict[Id, dict[str, Any]]:
    return device_properties(trace)


def _tiles(
    trace: Trace,
    row: int,
    amount: Amount,
    kernel: KernelName | None,
    own_args: Callable[[], Args],
) -> Tiles | None:
    if amount.kind != "matmul" or kernel is None or _splits_k(trace, row):
        return None
    launch = int(trace.launch[row])
    in_threads = launch >= 0 and trace.name_of(launch) in IN_THREADS
    return tiles(amount, kernel, own_args(), properties_of(trace, row), in_threads)


def _splits_k(trace: Trace, row: int) -> bool:
    """Whether a second kernel of the op adds up partial sums."""
    names = [decode(trace.name_of(k)) for k in kernels_beside(trace, row)]
    return any(name is not None and name.role == "splitk_reduce" for name in names)
