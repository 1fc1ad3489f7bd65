"""Computes the work of many kernels at once.

A *job* is the work of one kernel: its FLOP, its bytes, its limits. Most kernels of a
trace repeat the job of another one, so each distinct job is computed only once. Two
kernels have the same job if their names, devices and launch configurations are equal,
and if the ops that launched them have equal names and inputs and launched kernels of
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
from fusetui.trace.model.arrays import (
    NO_ROW,
    at,
    distinct,
    distinct_rows,
    run_bounds,
    used_ids,
)
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
from fusetui.trace.model.sorted_arrays import position_of, positions_of

Rows = NDArray[np.intp]
Int64s = NDArray[np.int64]

KEPT_AS: Final = "inputs"
"""The key under which what `jobs` reads of args is remembered with the events."""

INPUTS: Final = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
"""The args of an op that are its inputs."""

NO_JOB: Final = -1
"""The number of the job of a kernel whose job is not known."""

NO_ARGS: Final = -1
"""In place of the index of distinct args: none were recorded, or they do not matter."""

_NO_NAME: Final = -1
"""In place of the number of a name: there is no launch call."""

LAUNCH: Final = ("grid", "block", "registers per thread", "shared memory")
"""The args of a kernel that are its launch configuration."""


class Jobs(msgspec.Struct, frozen=True, eq=False):
    """The jobs of all kernels of a trace; arrays have one entry per kernel."""

    rows: Rows  # the kernels, as rows of the trace
    number: NDArray[np.int32]  # the index in `distinct` of each kernel's job, or NO_JOB
    distinct: tuple[KernelJob, ...]
    inputs: Arguments
    """The recorded inputs of the op of each kernel: INPUTS."""
    launches: Arguments
    """The launch configuration of each kernel: LAUNCH."""

    def of_each(
        self, value: Callable[[KernelJob], float | None]
    ) -> NDArray[np.float64]:
        """Look up a figure of the job of each kernel.

        Args:
            value: Computes the figure of a job; None if it is unknown.

        Returns:
            One figure per kernel; nan where it is unknown.
        """
        figures = [value(job) for job in self.distinct]
        figure_of_job = np.array(figures, dtype=np.float64)  # None becomes nan
        return at(figure_of_job, self.number, missing=np.nan)


def jobs(trace: Trace, overrides: Mapping[str, float] = NO_PEAKS) -> Jobs:
    """Find the jobs of all kernels: their work, and the limits of the device for it.

    This reads the args of the kernels and of the ops that launched them from the file.

    Args:
        trace: The trace.
        overrides: Peak figures that override those of the table (`peaks.peak_of`).
    """
    rows = trace.rows_of(Role.KERNEL)
    inputs_of_distinct_ops, launches = arguments_of(
        trace.elements, make_args_questions(trace, rows), KEPT_AS
    )
    inputs = _spread_over_ops(trace.op[rows], inputs_of_distinct_ops)

    # Only kernels whose op has recorded inputs have a job. The launch configuration is
    # a part of it only where it determines tiles.
    has_inputs = inputs.number != NO_ARGS
    launch_number = np.where(_has_named_tile(trace, rows), launches.number, NO_ARGS)
    kernels = _KernelArgs(
        rows=rows[has_inputs],
        inputs=inputs,
        input_number=inputs.number[has_inputs],
        launches=launches,
        launch_number=launch_number[has_inputs],
    )
    groups = _group_equal_kernels(trace, kernels)
    job_of_group = _compute_job_of_each(trace, kernels, groups.first, overrides)
    job_numbers = _number_jobs(job_of_group)

    job_number = np.full(len(rows), NO_JOB, dtype=np.int32)
    job_number[has_inputs] = job_numbers[groups.group_of_kernel]
    return Jobs(
        rows=rows,
        number=job_number,
        distinct=tuple(job for job in job_of_group if job is not None),
        inputs=inputs,
        launches=launches,
    )


def _number_jobs(jobs_or_none: list[KernelJob | None]) -> NDArray[np.int32]:
    """Number the jobs of a list from 0 on; None gets NO_JOB."""
    is_known = np.array([job is not None for job in jobs_or_none], dtype=np.bool_)
    numbers = np.full(len(jobs_or_none), NO_JOB, dtype=np.int32)
    numbers[is_known] = np.arange(np.count_nonzero(is_known))
    return numbers


class _KernelArgs(NamedTuple):
    """The args of the kernels whose ops have recorded inputs.

    Arrays have one entry per such kernel.
    """

    rows: Rows
    inputs: Arguments
    input_number: NDArray[np.int32]
    """The index of the op's inputs in `inputs.distinct`."""
    launches: Arguments
    launch_number: NDArray[np.int32]
    """The index of the launch configuration in `launches.distinct`; NO_ARGS
    where it does not matter."""


def _compute_job_of_each(
    trace: Trace, kernels: _KernelArgs, wanted: Rows, overrides: Mapping[str, float]
) -> list[KernelJob | None]:
    """Compute the jobs of some kernels: their work, and the limits of the device for it.

    Args:
        trace: The trace.
        kernels: The kernels with recorded inputs.
        wanted: Which of these kernels, as indices into the arrays of `kernels`.
        overrides: Peak figures that override those of the table.

    Returns:
        One job for each of `wanted`; None where the work is unknown.
    """
    devices = find_peaks_of_devices(trace, overrides)
    peak_by_device = {device.device: device.peak for device in devices}

    job_of_each = []
    for kernel in wanted.tolist():
        row = int(kernels.rows[kernel])
        inputs = _read_args(INPUTS, kernels.inputs, kernels.input_number[kernel])
        launch = _read_args(LAUNCH, kernels.launches, kernels.launch_number[kernel])
        job = job_of(
            trace,
            row,
            op_args=inputs,
            own_args=partial(dict, launch),
            peak=peak_by_device[trace.track_of(row).pid],
        )
        job_of_each.append(job)
    return job_of_each


class DevicePeak(msgspec.Struct, frozen=True):
    """A device that ran kernels, with its peak rates as far as they are known."""

    device: Id
    name: str | None  # None if the file does not say
    peak: Peak | None


def find_peaks_of_devices(
    trace: Trace, overrides: Mapping[str, float] = NO_PEAKS
) -> tuple[DevicePeak, ...]:
    """List the devices that ran a kernel, in the order of their lanes.

    Args:
        trace: The trace.
        overrides: Peak figures that override those of the table (`peaks.peak_of`).
    """
    tracks = distinct(trace.track[trace.rows_of(Role.KERNEL)]).tolist()
    devices = dict.fromkeys(trace.tracks[track].pid for track in tracks)  # ordered set

    properties_by_device = device_properties(trace)
    peaks = []
    for device in devices:
        properties = properties_by_device.get(device, {})
        name = properties.get("name")
        peak = DevicePeak(
            device=device,
            name=name if isinstance(name, str) and name != "" else None,
            peak=peak_of(properties, overrides),
        )
        peaks.append(peak)
    return tuple(peaks)


def has_known_share(trace: Trace, jobs: Jobs) -> NDArray[np.bool_]:
    """Return for each kernel whether its share of the attainable rate is known.

    A kernel that was faster than memory can deliver has no share, because its data came
    from the cache.

    Returns:
        One flag per kernel, in the order of `jobs.rows`.
    """
    duration_ns = trace.dur[jobs.rows]
    least_ns = jobs.of_each(lambda job: job.limits.least_ns)
    memory_flag = jobs.of_each(lambda job: 1.0 if job.limits.bound == "memory" else 0.0)

    is_limit_known = ~np.isnan(least_ns)
    is_from_cache = (memory_flag == 1.0) & (duration_ns < least_ns)
    has_share: NDArray[np.bool_] = (duration_ns > 0) & is_limit_known & ~is_from_cache
    return has_share


def read_inputs_of_ops(trace: Trace, ops: NDArray[np.integer]) -> Arguments:
    """Read the recorded inputs (INPUTS) of some ops.

    Args:
        trace: The trace.
        ops: Rows of ops, -1 for none; they may repeat.

    Returns:
        The inputs of each of `ops`.
    """
    distinct_ops = distinct(ops[ops != NO_ROW])
    inputs_of_distinct = arguments(trace.elements, trace.order[distinct_ops], INPUTS)
    return _spread_over_ops(ops, inputs_of_distinct)


def _spread_over_ops(ops: NDArray[np.integer], of_distinct: Arguments) -> Arguments:
    """Repeat the args of distinct ops for each occurrence of an op.

    Args:
        ops: Rows of ops, -1 for none; they may repeat.
        of_distinct: The args of the distinct ops, in ascending order of their rows.

    Returns:
        The args of each of `ops`; `number` is NO_ARGS where there is no op.
    """
    has_op = ops != NO_ROW
    op_rows = ops[has_op]
    number = np.full(len(ops), NO_ARGS, dtype=np.int32)
    number[has_op] = of_distinct.number[positions_of(distinct(op_rows), op_rows)]
    return Arguments(number, of_distinct.texts)


def make_args_questions(trace: Trace, rows: Rows) -> tuple[ArgsQuestion, ArgsQuestion]:
    """Return which args the jobs of some kernels depend on, as two questions.

    A question is the positions of events in the file and the names of the args to read.

    Args:
        trace: The trace.
        rows: The rows of the kernels.

    Returns:
        The question for the INPUTS of the ops of these kernels, and the question for
        the LAUNCH configurations of the kernels themselves.
    """
    op_of_kernel = trace.op[rows]
    distinct_ops = distinct(op_of_kernel[op_of_kernel != NO_ROW])
    inputs_question = (trace.order[distinct_ops], INPUTS)
    launches_question = (trace.order[rows], LAUNCH)
    return inputs_question, launches_question


def _has_named_tile(trace: Trace, rows: Rows) -> NDArray[np.bool_]:
    """Return which kernels are matrix products with the size of a tile in the name.

    Returns one flag for each of `rows`.
    """
    name_of_row = trace.name[rows]
    has_tile = np.zeros(len(trace.names), dtype=np.bool_)  # of each name
    for name in used_ids(name_of_row):
        kernel = decode(trace.names[name])
        if kernel is not None and kernel.op == "gemm":
            has_tile[name] = bool(kernel.tile_m)
    return has_tile[name_of_row]


class _KernelGroups(NamedTuple):
    """Kernels grouped by equal work."""

    first: Rows  # the index of the first kernel of each group
    group_of_kernel: Rows  # the number of the group of each kernel


def _group_equal_kernels(trace: Trace, kernels: _KernelArgs) -> _KernelGroups:
    """Group the kernels that do the same work on the same device.

    Kernels of a group have equal names, ops, inputs, launch configurations, devices and
    launch calls. Their ops also launched the same set of kernels.
    """
    rows = kernels.rows
    if not len(rows):
        return _KernelGroups(first=rows, group_of_kernel=rows)

    launch = trace.launch[rows]
    has_launch = launch != NO_ROW
    first, group_of_kernel = distinct_rows(
        (
            trace.name[rows],
            trace.name[trace.op[rows]],
            kernels.input_number,
            kernels.launch_number,
            trace.process_of_track[trace.track[rows]],
            np.where(has_launch, trace.name[launch], _NO_NAME),
            _number_kernel_sets(trace, rows),
        )
    )
    return _KernelGroups(first=first, group_of_kernel=group_of_kernel)


def _number_kernel_sets(trace: Trace, rows: Rows) -> Int64s:
    """Number some kernels by the set of kernels that their op launched.

    Two kernels get the same number if their calls of an op launched kernels of the same
    names, each equally often. Each replay of a CUDA graph counts as a call of its own.

    Args:
        trace: The trace.
        rows: The rows of the kernels.

    Returns:
        One number for each of `rows`.
    """
    kernels = trace.rows_of(Role.KERNEL)
    call_of_kernel = _number_op_calls(trace, kernels)
    name_of_kernel = trace.name[kernels]

    # Lay the kernels of each call side by side, sorted by name, so that equal sets
    # become equal runs of names.
    order = np.lexsort((name_of_kernel, call_of_kernel))
    call_bounds = run_bounds(call_of_kernel[order])
    set_of_call = _number_runs(name_of_kernel[order], call_bounds)

    set_of_kernel = set_of_call[call_of_kernel]
    return set_of_kernel[positions_of(kernels, rows)]


def _number_runs(values: NDArray[np.int32], bounds: Rows) -> Int64s:
    """Number runs of values so that equal runs have equal numbers.

    >>> values = np.array([7, 8, 5, 7, 8], dtype=np.int32)
    >>> _number_runs(values, bounds=np.array([0, 2, 3, 5])).tolist()
    [1, 0, 1]

    Args:
        values: The values of all runs.
        bounds: Where each run begins, and the length of `values`.

    Returns:
        One number per run.
    """
    first = bounds[:-1]
    length_of_run = np.diff(bounds)
    numbers = np.zeros(len(first), dtype=np.int64)
    next_number = 0
    for length in distinct(length_of_run).tolist():
        runs = np.flatnonzero(length_of_run == length)
        # One column with the first value of each run, one with the second, and so on:
        # runs of one length are equal if their rows of this table are equal.
        columns = [values[first[runs] + nth] for nth in range(length)]
        _, number_among_these = distinct_rows(columns)
        numbers[runs] = next_number + number_among_these
        next_number += int(number_among_these.max()) + 1
    return numbers


def _number_op_calls(trace: Trace, rows: Rows) -> Rows:
    """Number kernels by the call of an op that launched them, from 0 on.

    An op that was captured in a CUDA graph counts as called by each replay.

    Args:
        trace: The trace.
        rows: The rows of the kernels.

    Returns:
        The number of the call for each of `rows`.
    """
    # A kernel of a replayed graph was requested by the captured call, but launched by
    # the launch of the graph.
    is_replayed = trace.asked[rows] != trace.launch[rows]
    graph_launch = np.where(is_replayed, trace.launch[rows], NO_ROW)
    _, call_of_kernel = distinct_rows((trace.op[rows], graph_launch))
    return call_of_kernel


def count_blocks_of_each(trace: Trace, jobs: Jobs) -> Int64s:
    """Return with how many blocks each kernel was launched; 0 where it is unknown.

    Returns:
        One count per kernel, in the order of `jobs.rows`.
    """
    launches = jobs.launches
    configurations = [
        _read_args(LAUNCH, launches, number) for number in range(len(launches.distinct))
    ]
    if_in_blocks = _count_blocks(configurations, in_threads=False)
    if_in_threads = _count_blocks(configurations, in_threads=True)
    return np.where(
        _is_grid_in_threads(trace, jobs.rows),
        at(if_in_threads, launches.number, missing=0),
        at(if_in_blocks, launches.number, missing=0),
    )


def _is_grid_in_threads(trace: Trace, rows: Rows) -> NDArray[np.bool_]:
    """Return for each kernel whether its grid is recorded in threads.

    Otherwise it is in blocks; the launch call decides. Some calls of HIP do. Kernels
    without a recorded launch give False.
    """
    name_counts_threads = trace.named(lambda name: name in IN_THREADS)
    launch = trace.launch[rows]
    has_launch = launch != NO_ROW
    in_threads: NDArray[np.bool_] = has_launch & name_counts_threads[trace.name[launch]]
    return in_threads


def _count_blocks(configurations: list[dict[str, Any]], in_threads: bool) -> Int64s:
    """Return how many blocks each launch configuration has; 0 where it is unknown."""
    counts = []
    for configuration in configurations:
        grid = blocks_of(configuration, in_threads)
        counts.append(0 if grid is None else math.prod(grid))
    return np.array(counts, dtype=np.int64)


def find_launch_configuration(jobs: Jobs, row: int) -> dict[str, Any]:
    """Return the launch configuration of a kernel, by the names of its args (LAUNCH).

    Returns an empty dict if it is unknown, and for rows that are no kernels.
    """
    kernel = position_of(jobs.rows, row)
    is_kernel = kernel < len(jobs.rows) and jobs.rows[kernel] == row
    if not is_kernel:
        return {}
    return _read_args(LAUNCH, jobs.launches, jobs.launches.number[kernel])


def _read_args(
    names: tuple[str, ...], recorded: Arguments, number: int | np.integer
) -> dict[str, Any]:
    """Return the args with an index in `recorded.distinct`, by name; {} for NO_ARGS.

    Args:
        names: The names of the args.
        recorded: The texts of the args that were read, each combination once.
        number: The index of a combination.
    """
    if number == NO_ARGS:
        return {}
    texts = recorded.distinct[number]
    return {name: parsed(text) for name, text in zip(names, texts, strict=True)}


def read_inputs_by_op(trace: Trace, ops: NDArray[np.integer]) -> dict[int, Inputs]:
    """Read the recorded inputs of some ops.

    Args:
        trace: The trace.
        ops: Rows of ops.

    Returns:
        The inputs by row, of the ops that have any.
    """
    if not len(ops):
        return {}

    recorded = arguments(trace.elements, trace.order[ops], INPUTS)
    args_by_number: dict[int, dict[str, Any]] = {NO_ARGS: {}}
    for number in range(len(recorded.distinct)):  # equal args are decoded once
        args_by_number[number] = _read_args(INPUTS, recorded, number)

    inputs_by_row = {}
    for op, number in zip(ops.tolist(), recorded.number.tolist(), strict=True):
        inputs = inputs_of(trace.name_of(op), args_by_number[number])
        if inputs is not None:
            inputs_by_row[op] = inputs
    return inputs_by_row
