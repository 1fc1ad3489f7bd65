"""The work of many kernels; equal jobs are computed only once.

Two kernels have the same job if their names, devices and launch configurations are
equal, the ops that launched them have equal names and inputs, and launched kernels of
the same names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.gpu.kernel_names import decode
from fusetui.gpu.roofline.bounds import blocks_of
from fusetui.gpu.roofline.inputs import Inputs, inputs_of
from fusetui.gpu.roofline.peaks import NO_PEAKS, Peak, peak_of
from fusetui.gpu.roofline.row import IN_THREADS, KernelJob, job_of
from fusetui.trace.layout.devices import device_properties
from fusetui.trace.model.arrays import distinct, distinct_rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.events import (
    ArgsQuestion,
    Arguments,
    arguments,
    arguments_of,
    parsed,
)
from fusetui.trace.model.ids import Id

Rows = NDArray[np.intp]
Int64s = NDArray[np.int64]

KEPT_AS: Final = "inputs"
INPUTS: Final = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
LAUNCH: Final = ("grid", "block", "registers per thread", "shared memory")


class Jobs(msgspec.Struct, frozen=True, eq=False):
    """`number[n]` is the index in `distinct` of the job of `rows[n]`, -1 if it is not
    known."""

    rows: Rows
    number: NDArray[np.int32]
    distinct: tuple[KernelJob, ...]
    inputs: Arguments
    """The recorded inputs of the op of each row: INPUTS."""
    launches: Arguments
    """The launch configuration of each row: LAUNCH."""

    def of_each(
        self, value: Callable[[KernelJob], float | None]
    ) -> NDArray[np.float64]:
        """A figure of each row, by its job; nan if it is not known. Shape [rows]."""
        found = [value(job) for job in self.distinct]
        table = np.array([*found, None], dtype=np.float64)  # None becomes nan
        return table[self.number]


def jobs(trace: Trace, given: Mapping[str, float] = NO_PEAKS) -> Jobs:
    """The jobs of all kernels, in their order. `given` are figures of the devices that
    override those of the table, see `peaks.peak_of`. Reads the args of the kernels and
    of the ops that launched them."""
    rows = trace.rows_of(Role.KERNEL)
    inputs, launches = arguments_of(trace.elements, args_asked(trace, rows), KEPT_AS)
    inputs = _of_each(trace.op[rows], inputs)
    number = np.full(len(rows), -1, dtype=np.int32)
    places = np.flatnonzero(inputs.number >= 0)
    tiled = np.where(_has_tiles(trace, rows), launches.number, -1)[places]
    first, same = _alike(trace, rows[places], inputs.number[places], tiled)
    peaks = {found.device: found.peak for found in peaks_of_devices(trace, given)}
    distinct: list[KernelJob] = []
    known = np.full(len(first), -1, dtype=np.int32)
    for n, place in enumerate(first.tolist()):
        row = int(rows[places[place]])
        op_args = _args(INPUTS, inputs, int(inputs.number[places[place]]))
        launch = _args(LAUNCH, launches, int(tiled[place]))
        job = job_of(
            trace, row, op_args, partial(dict, launch), peaks[trace.track_of(row).pid]
        )
        if job is not None:
            known[n] = len(distinct)
            distinct.append(job)
    number[places] = known[same] if len(first) else -1
    return Jobs(rows, number, tuple(distinct), inputs, launches)


class DevicePeak(msgspec.Struct, frozen=True):
    """What is known about one device that has kernels."""

    device: Id
    name: str | None  # None if the file does not say
    peak: Peak | None


def peaks_of_devices(
    trace: Trace, given: Mapping[str, float] = NO_PEAKS
) -> tuple[DevicePeak, ...]:
    """Every device that ran a kernel, in lane order."""
    tracks = distinct(trace.track[trace.rows_of(Role.KERNEL)]).tolist()
    properties = device_properties(trace)
    found = []
    for pid in dict.fromkeys(trace.tracks[track].pid for track in tracks):
        own = properties.get(pid, {})
        name = own.get("name")
        known = name if isinstance(name, str) and name else None
        found.append(DevicePeak(pid, known, peak_of(own, given)))
    return tuple(found)


def share_known(trace: Trace, found: Jobs) -> NDArray[np.bool_]:
    """For which kernels the share of peak is known, shape [rows]; see
    `Limits.reached`."""
    least = found.of_each(lambda job: job.limits.least_ns)
    by_memory = found.of_each(lambda job: float(job.limits.bound == "memory")) == 1
    ns = trace.dur[found.rows]
    near: NDArray[np.bool_] = (ns > 0) & ~np.isnan(least) & (~by_memory | (least <= ns))
    return near


def inputs_of_ops(trace: Trace, ops: NDArray[np.integer]) -> Arguments:
    """The recorded inputs (INPUTS) of each of these ops; `ops` are rows, -1 for
    none."""
    return _of_each(
        ops, arguments(trace.elements, trace.order[distinct(ops[ops >= 0])], INPUTS)
    )


def _of_each(ops: NDArray[np.integer], found: Arguments) -> Arguments:
    """From what was read of distinct ops, in their order, to that of each op; -1 has
    none."""
    asked, place = np.unique(ops, return_inverse=True)
    number = np.full(len(asked), -1, dtype=np.int32)
    number[asked >= 0] = found.number
    return Arguments(number[place], found.texts)


def args_asked(trace: Trace, rows: Rows) -> tuple[ArgsQuestion, ArgsQuestion]:
    """What is read of their args and of their ops': indices in traceEvents, and names
    of args."""
    ops = distinct(trace.op[rows])
    return (trace.order[ops[ops >= 0]], INPUTS), (trace.order[rows], LAUNCH)


def _has_tiles(trace: Trace, rows: Rows) -> NDArray[np.bool_]:
    counted = np.zeros(len(trace.names), dtype=np.bool_)
    for name in np.flatnonzero(np.bincount(trace.name[rows])).tolist():
        kernel = decode(trace.names[name])
        counted[name] = (
            kernel is not None and kernel.op == "gemm" and bool(kernel.tile_m)
        )
    return counted[trace.name[rows]]


def _alike(
    trace: Trace, rows: Rows, inputs: NDArray[np.int32], own: NDArray[np.int32]
) -> tuple[Rows, Rows]:
    """The first index of each job, and the number of each row's job."""
    if not len(rows):
        return rows, rows
    launch = trace.launch[rows]
    call, op = np.where(launch >= 0, trace.name[launch], -1), trace.name[trace.op[rows]]
    process = trace.process_of_track[trace.track[rows]]
    return distinct_rows(
        (trace.name[rows], op, inputs, own, process, call, _beside(trace, rows))
    )


def _beside(trace: Trace, rows: Rows) -> Int64s:
    """A number per kernel, equal for those whose ops launched the same kernel names
    equally often; an op that was captured did so once for each replay."""
    kernels = trace.rows_of(Role.KERNEL)
    owner, name = _owner(trace, kernels), trace.name[kernels]
    order = np.lexsort((name, owner))
    owners, first, counts = np.unique(
        owner[order], return_index=True, return_counts=True
    )
    number = np.zeros(len(owners), dtype=np.int64)
    names, used = name[order], 0
    for count in distinct(counts).tolist():
        which = np.flatnonzero(counts == count)
        sets = [names[first[which] + n] for n in range(count)]
        number[which] = used + distinct_rows(sets)[1]
        used = int(number[which].max()) + 1
    return number[np.searchsorted(owners, _owner(trace, rows))]


def _owner(trace: Trace, rows: Rows) -> Int64s:
    """A number per kernel, equal for those of one op, and of one replay of it."""
    replay = np.where(
        trace.asked[rows] != trace.launch[rows], trace.launch[rows] + 1, 0
    )
    return trace.op[rows].astype(np.int64) * (len(trace) + 1) + replay


def blocks_of_each(trace: Trace, found: Jobs) -> Int64s:
    """How many blocks each kernel was launched with, 0 where that is not known; shape
    [rows]."""
    args = [
        _args(LAUNCH, found.launches, n) for n in range(len(found.launches.distinct))
    ]
    tables = [
        np.array([math.prod(blocks_of(own, in_threads) or (0,)) for own in [*args, {}]])
        for in_threads in (False, True)
    ]
    by_thread = np.array([name in IN_THREADS for name in trace.names] or [False])
    launch = trace.launch[found.rows]
    in_threads = (launch >= 0) & by_thread[trace.name[launch]]
    return np.where(
        in_threads, *(table[found.launches.number] for table in tables[::-1])
    )


def launch_of(found: Jobs, row: int) -> dict[str, Any]:
    """The launch configuration of a kernel by its keys, see LAUNCH; empty if it is not
    known."""
    place = int(np.searchsorted(found.rows, row))
    is_there = place < len(found.rows) and found.rows[place] == row
    return _args(
        LAUNCH, found.launches, int(found.launches.number[place]) if is_there else -1
    )


def _args(names: tuple[str, ...], found: Arguments, number: int) -> dict[str, Any]:
    if number < 0:
        return {}
    return {
        name: parsed(text)
        for name, text in zip(names, found.distinct[number], strict=True)
    }


def inputs_by_op(trace: Trace, ops: NDArray[np.integer]) -> dict[int, Inputs]:
    """The recorded inputs of each of these ops (rows) that has any."""
    if not len(ops):
        return {}
    given = arguments(trace.elements, trace.order[ops], INPUTS)
    args = [
        dict(zip(INPUTS, map(parsed, texts), strict=True)) for texts in given.distinct
    ]
    found = {}
    for op, number in zip(ops.tolist(), given.number.tolist(), strict=True):
        inputs = inputs_of(trace.name_of(op), args[number]) if number >= 0 else None
        if inputs is not None:
            found[op] = inputs
    return found
