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
"""The key under which what `jobs` reads of args is remembered with the events."""

INPUTS: Final = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
"""The args of an op that are its inputs."""

LAUNCH: Final = ("grid", "block", "registers per thread", "shared memory")
"""The args of a kernel that are its launch configuration."""


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
        by_job = [value(job) for job in self.distinct]
        # None becomes nan; the last entry is that of number -1
        table = np.array([*by_job, None], dtype=np.float64)
        return table[self.number]


def jobs(trace: Trace, given: Mapping[str, float] = NO_PEAKS) -> Jobs:
    """The jobs of all kernels, in their order. `given` are figures of the devices that
    override those of the table, see `peaks.peak_of`. Reads the args of the kernels and
    of the ops that launched them."""
    rows = trace.rows_of(Role.KERNEL)
    inputs_of_ops_read, launches = arguments_of(
        trace.elements, args_asked(trace, rows), KEPT_AS
    )
    inputs = _of_each(trace.op[rows], inputs_of_ops_read)
    peaks = {device.device: device.peak for device in peaks_of_devices(trace, given)}
    with_inputs = np.flatnonzero(inputs.number >= 0)
    # a launch configuration matters only for tiles
    tiled_launch = np.where(_has_tiles(trace, rows), launches.number, -1)[with_inputs]
    first, alike = _alike(
        trace, rows[with_inputs], inputs.number[with_inputs], tiled_launch
    )
    distinct_jobs: list[KernelJob] = []
    number_of_alike = np.full(len(first), -1, dtype=np.int32)
    for n, place in enumerate(first.tolist()):
        row_place = with_inputs[place]
        row = int(rows[row_place])
        launch = _args(LAUNCH, launches, int(tiled_launch[place]))
        job = job_of(
            trace,
            row,
            op_args=_args(INPUTS, inputs, int(inputs.number[row_place])),
            own_args=partial(dict, launch),
            peak=peaks[trace.track_of(row).pid],
        )
        if job is not None:
            number_of_alike[n] = len(distinct_jobs)
            distinct_jobs.append(job)
    number = np.full(len(rows), -1, dtype=np.int32)
    if len(first):
        number[with_inputs] = number_of_alike[alike]
    return Jobs(
        rows=rows,
        number=number,
        distinct=tuple(distinct_jobs),
        inputs=inputs,
        launches=launches,
    )


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
    properties_of_devices = device_properties(trace)
    peaks = []
    for device in dict.fromkeys(trace.tracks[track].pid for track in tracks):
        properties = properties_of_devices.get(device, {})
        name = properties.get("name")
        peaks.append(
            DevicePeak(
                device=device,
                name=name if isinstance(name, str) and name else None,
                peak=peak_of(properties, given),
            )
        )
    return tuple(peaks)


def share_known(trace: Trace, jobs: Jobs) -> NDArray[np.bool_]:
    """For which kernels the share of peak is known, shape [rows]; see
    `Limits.share`."""
    ns = trace.dur[jobs.rows]
    least_ns = jobs.of_each(lambda job: job.limits.least_ns)
    is_by_memory = jobs.of_each(lambda job: float(job.limits.bound == "memory")) == 1
    has_limit = (ns > 0) & ~np.isnan(least_ns)
    has_share: NDArray[np.bool_] = has_limit & (~is_by_memory | (least_ns <= ns))
    return has_share


def inputs_of_ops(trace: Trace, ops: NDArray[np.integer]) -> Arguments:
    """The recorded inputs (INPUTS) of each of these ops; `ops` are rows, -1 for
    none."""
    events = trace.order[distinct(ops[ops >= 0])]
    return _of_each(ops, arguments(trace.elements, events, INPUTS))


def _of_each(ops: NDArray[np.integer], of_distinct: Arguments) -> Arguments:
    """What was recorded of each of these ops (rows, -1 for none), from what was read of
    the distinct ones in their order; `number` is -1 for op -1."""
    distinct_ops, place = np.unique(ops, return_inverse=True)
    number = np.full(len(distinct_ops), -1, dtype=np.int32)
    number[distinct_ops >= 0] = of_distinct.number
    return Arguments(number[place], of_distinct.texts)


def args_asked(trace: Trace, rows: Rows) -> tuple[ArgsQuestion, ArgsQuestion]:
    """Two questions for `arguments_of`: INPUTS of the ops of some kernels, and LAUNCH
    of the kernels themselves. Each is (indices in traceEvents, names of args)."""
    ops = distinct(trace.op[rows])
    return (trace.order[ops[ops >= 0]], INPUTS), (trace.order[rows], LAUNCH)


def _has_tiles(trace: Trace, rows: Rows) -> NDArray[np.bool_]:
    """Which kernels have names that say the size of a product's tile, shape [rows]."""
    of_name = np.zeros(len(trace.names), dtype=np.bool_)
    for name in np.flatnonzero(np.bincount(trace.name[rows])).tolist():
        kernel = decode(trace.names[name])
        if kernel is not None and kernel.op == "gemm" and kernel.tile_m:
            of_name[name] = True
    return of_name[trace.name[rows]]


def _alike(
    trace: Trace,
    rows: Rows,
    inputs: NDArray[np.int32],
    launch_configuration: NDArray[np.int32],
) -> tuple[Rows, Rows]:
    """Which kernels have the same job, see the head of this module: the first index in
    `rows` of each job, shape [jobs], and the number of the job of each row, shape
    [rows]. `inputs` and `launch_configuration` are numbers of distinct args, -1 for
    none."""
    if not len(rows):
        return rows, rows
    launch = trace.launch[rows]
    call_name = np.where(launch >= 0, trace.name[launch], -1)
    return distinct_rows(
        (
            trace.name[rows],
            trace.name[trace.op[rows]],
            inputs,
            launch_configuration,
            trace.process_of_track[trace.track[rows]],
            call_name,
            _kernel_sets(trace, rows),
        )
    )


def _kernel_sets(trace: Trace, rows: Rows) -> Int64s:
    """A number for each of these kernels, shape [rows]: equal numbers where their
    owners (see `_owner`) launched kernels of the same names, each equally often."""
    kernels = trace.rows_of(Role.KERNEL)
    owner = _owner(trace, kernels)
    name = trace.name[kernels]
    by_owner = np.lexsort((name, owner))
    names_by_owner = name[by_owner]  # those of one owner side by side, and sorted
    owners, first_of_owner, kernel_counts = np.unique(
        owner[by_owner], return_index=True, return_counts=True
    )
    # Owners with equally many kernels have equal sets if all columns are equal: the
    # first name of each owner, the second name of each, and so on.
    set_of_owner = np.zeros(len(owners), dtype=np.int64)
    next_set = 0
    for kernel_count in distinct(kernel_counts).tolist():
        places = np.flatnonzero(kernel_counts == kernel_count)
        first = first_of_owner[places]
        columns = [names_by_owner[first + nth] for nth in range(kernel_count)]
        _, set_among_these = distinct_rows(columns)
        set_of_owner[places] = next_set + set_among_these
        next_set += int(set_among_these.max()) + 1
    return set_of_owner[np.searchsorted(owners, _owner(trace, rows))]


def _owner(trace: Trace, rows: Rows) -> Int64s:
    """A number for each of these kernels, shape [rows]: equal for the kernels of one
    op. An op that was captured in a graph owns the kernels of each replay apart from
    those of the others."""
    # of a kernel of a replayed graph, the captured call asked for it, and another one
    # launched it: that of the graph
    is_replayed = trace.asked[rows] != trace.launch[rows]
    replay = np.where(is_replayed, trace.launch[rows] + 1, 0)
    return trace.op[rows].astype(np.int64) * (len(trace) + 1) + replay


def blocks_of_each(trace: Trace, jobs: Jobs) -> Int64s:
    """How many blocks each kernel was launched with, 0 where that is not known; shape
    [rows]."""
    launches = jobs.launches
    configurations = [_args(LAUNCH, launches, n) for n in range(len(launches.distinct))]
    configurations.append({})  # of number -1
    blocks_by_grid = _block_counts(configurations, in_threads=False)
    blocks_by_threads = _block_counts(configurations, in_threads=True)
    # a trace may be without names
    counts_threads = np.array([name in IN_THREADS for name in trace.names] or [False])
    launch = trace.launch[jobs.rows]
    in_threads = (launch >= 0) & counts_threads[trace.name[launch]]
    return np.where(
        in_threads,
        blocks_by_threads[launches.number],
        blocks_by_grid[launches.number],
    )


def _block_counts(configurations: list[dict[str, Any]], in_threads: bool) -> Int64s:
    """The blocks of each launch configuration, 0 where that is not known."""
    counts = []
    for configuration in configurations:
        grid = blocks_of(configuration, in_threads)
        counts.append(0 if grid is None else math.prod(grid))
    return np.array(counts)


def launch_of(jobs: Jobs, row: int) -> dict[str, Any]:
    """The launch configuration of a kernel by its keys, see LAUNCH; empty if it is not
    known."""
    place = int(np.searchsorted(jobs.rows, row))
    if place == len(jobs.rows) or jobs.rows[place] != row:
        return {}
    return _args(LAUNCH, jobs.launches, int(jobs.launches.number[place]))


def _args(names: tuple[str, ...], recorded: Arguments, number: int) -> dict[str, Any]:
    """The values of the distinct args of this number, by name; {} for -1."""
    if number < 0:
        return {}
    texts = recorded.distinct[number]
    return {name: parsed(text) for name, text in zip(names, texts, strict=True)}


def inputs_by_op(trace: Trace, ops: NDArray[np.integer]) -> dict[int, Inputs]:
    """The recorded inputs of each of these ops (rows) that has any."""
    if not len(ops):
        return {}
    recorded = arguments(trace.elements, trace.order[ops], INPUTS)
    distinct_args = [
        _args(INPUTS, recorded, number) for number in range(len(recorded.distinct))
    ]
    inputs_by_row = {}
    for op, number in zip(ops.tolist(), recorded.number.tolist(), strict=True):
        if number < 0:
            continue
        inputs = inputs_of(trace.name_of(op), distinct_args[number])
        if inputs is not None:
            inputs_by_row[op] = inputs
    return inputs_by_row
