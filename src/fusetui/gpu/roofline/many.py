"""The work of many kernels; equal jobs are computed only once.

Two kernels have the same job if their names, devices and launch configurations are
equal, the ops that launched them have equal names and inputs, and launched kernels of
the same names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

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
    with_inputs = np.flatnonzero(inputs.number >= 0)
    # a launch configuration matters only for tiles
    tiled_launch = np.where(_has_tiles(trace, rows), launches.number, -1)
    args = _KernelArgs(
        rows=rows[with_inputs],
        inputs=inputs,
        input_number=inputs.number[with_inputs],
        launches=launches,
        launch_number=tiled_launch[with_inputs],
    )
    first, alike = _alike(trace, args.rows, args.input_number, args.launch_number)
    number_of_alike, distinct_jobs = _distinct_jobs(trace, args, first, given)
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


class _KernelArgs(NamedTuple):
    """The args of kernels whose ops have recorded inputs; arrays of shape [kernels]."""

    rows: Rows
    inputs: Arguments
    input_number: NDArray[np.int32]
    """The place of the op's inputs in `inputs.distinct`."""
    launches: Arguments
    launch_number: NDArray[np.int32]
    """The place of the launch configuration in `launches.distinct`; -1 where it does
    not matter."""


def _distinct_jobs(
    trace: Trace, args: _KernelArgs, places: Rows, given: Mapping[str, float]
) -> tuple[NDArray[np.int32], list[KernelJob]]:
    """For each of the kernels at these places the number of its job, -1 for none; and
    these jobs."""
    peaks = {device.device: device.peak for device in peaks_of_devices(trace, given)}
    numbers = np.full(len(places), -1, dtype=np.int32)
    distinct_jobs: list[KernelJob] = []
    for n, place in enumerate(places.tolist()):
        row = int(args.rows[place])
        launch = _args(LAUNCH, args.launches, int(args.launch_number[place]))
        job = job_of(
            trace,
            row,
            op_args=_args(INPUTS, args.inputs, int(args.input_number[place])),
            own_args=partial(dict, launch),
            peak=peaks[trace.track_of(row).pid],
        )
        if job is not None:
            numbers[n] = len(distinct_jobs)
            distinct_jobs.append(job)
    return numbers, distinct_jobs


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
    devices = dict.fromkeys(trace.tracks[track].pid for track in tracks)  # ordered set
    properties_of_devices = device_properties(trace)
    peaks = []
    for device in devices:
        properties = properties_of_devices.get(device, {})
        name = properties.get("name")
        has_name = isinstance(name, str) and name != ""
        peak = DevicePeak(
            device=device,
            name=name if has_name else None,
            peak=peak_of(properties, given),
        )
        peaks.append(peak)
    return tuple(peaks)


def share_known(trace: Trace, jobs: Jobs) -> NDArray[np.bool_]:
    """Which kernels have a known share of peak, shape [rows]; not those that were faster
    than memory can deliver, from the cache: see `Limits.share`."""
    taken_ns = trace.dur[jobs.rows]
    least_ns = jobs.of_each(lambda job: job.limits.least_ns)
    has_limit = (taken_ns > 0) & ~np.isnan(least_ns)
    is_by_memory = jobs.of_each(lambda job: float(job.limits.bound == "memory"))
    is_from_cache = (is_by_memory == 1) & (least_ns > taken_ns)
    has_share: NDArray[np.bool_] = has_limit & ~is_from_cache
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
    ops = ops[ops >= 0]
    about_ops = (trace.order[ops], INPUTS)
    about_kernels = (trace.order[rows], LAUNCH)
    return about_ops, about_kernels


def _has_tiles(trace: Trace, rows: Rows) -> NDArray[np.bool_]:
    """Which kernels are matrix products whose name has the size of a tile; shape
    [rows]."""
    name_of_row = trace.name[rows]
    names = np.flatnonzero(np.bincount(name_of_row))
    has_tile = np.zeros(len(trace.names), dtype=np.bool_)
    for name in names.tolist():
        kernel = decode(trace.names[name])
        if kernel is not None and kernel.op == "gemm" and kernel.tile_m:
            has_tile[name] = True
    return has_tile[name_of_row]


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
    set_of_owner = _numbers_of_runs(names_by_owner, first_of_owner, kernel_counts)
    return set_of_owner[np.searchsorted(owners, _owner(trace, rows))]


def _numbers_of_runs(
    values: NDArray[np.int32], first: Rows, counts: NDArray[np.integer]
) -> Int64s:
    """A number for each run of values, equal for equal runs; shape [runs]. `first`: the
    place where each begins; `counts`: how many values it has."""
    # Runs of one length are equal if all columns are equal: the first value of each
    # run, the second value of each, and so on.
    numbers = np.zeros(len(first), dtype=np.int64)
    next_number = 0
    for length in distinct(counts).tolist():
        of_length = np.flatnonzero(counts == length)
        columns = [values[first[of_length] + nth] for nth in range(length)]
        number_among_these = distinct_rows(columns)[1]
        numbers[of_length] = next_number + number_among_these
        next_number += int(number_among_these.max()) + 1
    return numbers


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
    if_in_blocks = _block_counts(configurations, in_threads=False)
    if_in_threads = _block_counts(configurations, in_threads=True)
    return np.where(
        _grids_are_in_threads(trace, jobs.rows),
        if_in_threads[launches.number],
        if_in_blocks[launches.number],
    )


def _grids_are_in_threads(trace: Trace, rows: Rows) -> NDArray[np.bool_]:
    """Whether the call that launched each kernel records its grid in threads instead of
    blocks; shape [rows]."""
    # a trace may be without names
    counts_threads = np.array([name in IN_THREADS for name in trace.names] or [False])
    launch = trace.launch[rows]
    in_threads: NDArray[np.bool_] = counts_threads[trace.name[launch]] & (launch >= 0)
    return in_threads


def _block_counts(configurations: list[dict[str, Any]], in_threads: bool) -> Int64s:
    """The blocks of each launch configuration, 0 where that is not known."""
    counts = []
    for configuration in configurations:
        grid = blocks_of(configuration, in_threads)
        counts.append(0 if grid is None else math.prod(grid))
    return np.array(counts)


def launch_of(jobs: Jobs, row: int) -> dict[str, Any]:
    """The launch configuration of the kernel in a row, as LAUNCH names its args; {} if
    it is not known or the row is no kernel."""
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
    numbers = range(len(recorded.distinct))
    distinct_args = [_args(INPUTS, recorded, number) for number in numbers]
    inputs_by_row = {}
    for op, number in zip(ops.tolist(), recorded.number.tolist(), strict=True):
        if number < 0:
            continue
        inputs = inputs_of(trace.name_of(op), distinct_args[number])
        if inputs is not None:
            inputs_by_row[op] = inputs
    return inputs_by_row
