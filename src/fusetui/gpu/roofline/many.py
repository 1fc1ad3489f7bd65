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
from fusetui.trace.model.arrays import at, distinct, distinct_rows, used_ids
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
from fusetui.trace.model.sorted_arrays import positions_of, slice_between

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
    inputs_of_ops_read, launches = arguments_of(
        trace.elements, make_args_questions(trace, rows), KEPT_AS
    )
    inputs = _spread_over_ops(trace.op[rows], inputs_of_ops_read)

    # Only kernels whose op has recorded inputs have a job. The launch configuration is
    # a part of it only where it determines tiles.
    has_inputs = np.flatnonzero(inputs.number != NO_ARGS)
    launch_number = np.where(_has_named_tile(trace, rows), launches.number, NO_ARGS)
    args = _KernelArgs(
        rows=rows[has_inputs],
        inputs=inputs,
        input_number=inputs.number[has_inputs],
        launches=launches,
        launch_number=launch_number[has_inputs],
    )

    first_of_class, class_of_kernel = _group_equal_kernels(
        trace, args.rows, args.input_number, args.launch_number
    )
    job_of_class, distinct_jobs = _compute_distinct_jobs(
        trace, args, first_of_class, overrides
    )

    job_of_kernel = np.full(len(rows), NO_JOB, dtype=np.int32)
    if len(first_of_class):
        job_of_kernel[has_inputs] = job_of_class[class_of_kernel]
    return Jobs(
        rows=rows,
        number=job_of_kernel,
        distinct=tuple(distinct_jobs),
        inputs=inputs,
        launches=launches,
    )


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


def _compute_distinct_jobs(
    trace: Trace, args: _KernelArgs, kernels: Rows, overrides: Mapping[str, float]
) -> tuple[NDArray[np.int32], list[KernelJob]]:
    """Compute the jobs of some kernels that all differ.

    A job is the work of a kernel and the limits of the device for it.

    Args:
        trace: The trace.
        args: The kernels with recorded inputs.
        kernels: Which of them to compute, as indices into the arrays of `args`.
        overrides: Peak figures that override those of the table.

    Returns:
        For each of `kernels` the index of its job, or NO_JOB; and the jobs.
    """
    peaks = {
        device.device: device.peak for device in find_peaks_of_devices(trace, overrides)
    }
    job_of_kernel = np.full(len(kernels), NO_JOB, dtype=np.int32)
    distinct_jobs: list[KernelJob] = []
    for nth, kernel in enumerate(kernels.tolist()):
        row = int(args.rows[kernel])
        inputs = _read_args(INPUTS, args.inputs, int(args.input_number[kernel]))
        launch = _read_args(LAUNCH, args.launches, int(args.launch_number[kernel]))
        job = job_of(
            trace,
            row,
            op_args=inputs,
            own_args=partial(dict, launch),
            peak=peaks[trace.track_of(row).pid],
        )
        if job is not None:
            job_of_kernel[nth] = len(distinct_jobs)
            distinct_jobs.append(job)
    return job_of_kernel, distinct_jobs


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

    properties_of_devices = device_properties(trace)
    peaks = []
    for device in devices:
        properties = properties_of_devices.get(device, {})
        name = properties.get("name")
        has_name = isinstance(name, str) and name != ""
        peak = DevicePeak(
            device=device,
            name=name if has_name else None,
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
    taken_ns = trace.dur[jobs.rows]
    least_ns = jobs.of_each(lambda job: job.limits.least_ns)
    has_limit = (taken_ns > 0) & ~np.isnan(least_ns)

    is_bound_by_memory = jobs.of_each(lambda job: float(job.limits.bound == "memory"))
    is_from_cache = (is_bound_by_memory == 1) & (least_ns > taken_ns)
    has_share: NDArray[np.bool_] = has_limit & ~is_from_cache
    return has_share


def read_inputs_of_ops(trace: Trace, ops: NDArray[np.integer]) -> Arguments:
    """Read the recorded inputs (INPUTS) of some ops.

    Args:
        trace: The trace.
        ops: Rows of ops, -1 for none; they may repeat.

    Returns:
        The inputs of each of `ops`.
    """
    distinct_ops = distinct(ops[ops >= 0])
    inputs_of_distinct = arguments(trace.elements, trace.order[distinct_ops], INPUTS)
    return _spread_over_ops(ops, inputs_of_distinct)


def _spread_over_ops(ops: NDArray[np.integer], of_distinct: Arguments) -> Arguments:
    """Spread what was read of the distinct ops over all ops.

    Args:
        ops: Rows of ops, -1 for none; they may repeat.
        of_distinct: What was read of the distinct ops, ascending, without -1.

    Returns:
        The same for each of `ops`; `number` is NO_ARGS where there is no op.
    """
    distinct_ops, index_of_op = np.unique(ops, return_inverse=True)
    number = np.full(len(distinct_ops), NO_ARGS, dtype=np.int32)
    number[distinct_ops >= 0] = of_distinct.number
    return Arguments(number[index_of_op], of_distinct.texts)


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
    ops = distinct(trace.op[rows])
    ops = ops[ops >= 0]
    inputs_question = (trace.order[ops], INPUTS)
    launches_question = (trace.order[rows], LAUNCH)
    return inputs_question, launches_question


def _has_named_tile(trace: Trace, rows: Rows) -> NDArray[np.bool_]:
    """Return which kernels are matrix products with the size of a tile in the name.

    Returns one flag for each of `rows`.
    """
    name_of_row = trace.name[rows]
    name_has_tile = np.zeros(len(trace.names), dtype=np.bool_)
    for name in used_ids(name_of_row):
        kernel = decode(trace.names[name])
        if kernel is not None and kernel.op == "gemm" and kernel.tile_m:
            name_has_tile[name] = True
    return name_has_tile[name_of_row]


def _group_equal_kernels(
    trace: Trace,
    rows: Rows,
    inputs: NDArray[np.int32],
    launch_configuration: NDArray[np.int32],
) -> tuple[Rows, Rows]:
    """Group the kernels that have the same job: the same work on the same device.

    Kernels of a group have equal names, ops, inputs, launch configurations, devices and
    launch calls. Their ops also launched the same set of kernels.

    Args:
        trace: The trace.
        rows: The rows of the kernels.
        inputs: The number of the distinct inputs of each kernel's op.
        launch_configuration: The number of each kernel's distinct launch configuration,
            NO_ARGS where it does not matter.

    Returns:
        For each group the index in `rows` of its first kernel, and for each kernel the
        number of its group.
    """
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
            _number_kernel_sets(trace, rows),
        )
    )


def _number_kernel_sets(trace: Trace, rows: Rows) -> Int64s:
    """Number the kernels by the set of kernels that their op launched.

    Two kernels get the same number if their calls of an op launched kernels of the same
    names, each equally often. Each replay of a CUDA graph counts as a call of its own.

    Returns:
        One number for each of `rows`.
    """
    kernels = trace.rows_of(Role.KERNEL)
    owner_of_kernel = _number_owners(trace, kernels)
    name_of_kernel = trace.name[kernels]

    # Lay the kernels of each owner side by side, sorted by name, so that equal sets
    # become equal runs of names.
    by_owner = np.lexsort((name_of_kernel, owner_of_kernel))
    owners, first_of_owner, kernels_of_owner = np.unique(
        owner_of_kernel[by_owner], return_index=True, return_counts=True
    )
    set_of_owner = _number_runs(
        name_of_kernel[by_owner], first_of_owner, kernels_of_owner
    )

    return set_of_owner[positions_of(owners, _number_owners(trace, rows))]


def _number_runs(
    values: NDArray[np.int32], first: Rows, counts: NDArray[np.integer]
) -> Int64s:
    """Number runs of values so that equal runs have equal numbers.

    >>> values = np.array([7, 8, 5, 7, 8], dtype=np.int32)
    >>> _number_runs(values, np.array([0, 2, 3]), np.array([2, 1, 2])).tolist()
    [1, 0, 1]

    Args:
        values: The values of all runs.
        first: The index in `values` at which each run begins.
        counts: How many values each run has.

    Returns:
        One number per run.
    """
    # Runs of one length are equal if all their columns are equal: the first value of
    # each run, the second value of each, and so on.
    numbers = np.zeros(len(first), dtype=np.int64)
    next_number = 0
    for length in distinct(counts).tolist():
        runs = np.flatnonzero(counts == length)
        columns = [values[first[runs] + nth] for nth in range(length)]
        _, number_among_these = distinct_rows(columns)
        numbers[runs] = next_number + number_among_these
        next_number += int(number_among_these.max()) + 1
    return numbers


def _number_owners(trace: Trace, rows: Rows) -> Int64s:
    """Number the kernels so that those of one call of an op have the same number.

    An op that was captured in a CUDA graph owns the kernels of each replay separately.

    Returns:
        One number for each of `rows`.
    """
    # A kernel of a replayed graph was requested by the captured call, but launched by
    # the launch of the graph.
    is_replayed = trace.asked[rows] != trace.launch[rows]
    replay = np.where(is_replayed, trace.launch[rows] + 1, 0)
    replays_per_op = len(trace) + 1
    return trace.op[rows].astype(np.int64) * replays_per_op + replay


def count_blocks_of_each(trace: Trace, jobs: Jobs) -> Int64s:
    """Return with how many blocks each kernel was launched; 0 where it is unknown.

    Returns:
        One count per kernel, in the order of `jobs.rows`.
    """
    launches = jobs.launches
    configurations = [
        _read_args(LAUNCH, launches, n) for n in range(len(launches.distinct))
    ]
    configurations.append({})  # of kernels without a recorded one, whose number is -1

    blocks_of_grid = _count_blocks(configurations, in_threads=False)
    blocks_of_grid_in_threads = _count_blocks(configurations, in_threads=True)
    return np.where(
        _is_grid_in_threads(trace, jobs.rows),
        blocks_of_grid_in_threads[launches.number],
        blocks_of_grid[launches.number],
    )


def _is_grid_in_threads(trace: Trace, rows: Rows) -> NDArray[np.bool_]:
    """Return for each kernel whether its grid is recorded in threads.

    Otherwise it is in blocks; the launch call decides. Some calls of HIP do. Kernels
    without a recorded launch give False.
    """
    # A trace may be without names.
    counts_threads = np.array([name in IN_THREADS for name in trace.names] or [False])
    launch = trace.launch[rows]
    has_launch = launch >= 0
    in_threads: NDArray[np.bool_] = counts_threads[trace.name[launch]] & has_launch
    return in_threads


def _count_blocks(configurations: list[dict[str, Any]], in_threads: bool) -> Int64s:
    """Return how many blocks each launch configuration has; 0 where it is unknown."""
    counts = []
    for configuration in configurations:
        grid = blocks_of(configuration, in_threads)
        counts.append(0 if grid is None else math.prod(grid))
    return np.array(counts)


def find_launch_configuration(jobs: Jobs, row: int) -> dict[str, Any]:
    """Return the launch configuration of a kernel, by the names of its args (LAUNCH).

    Returns an empty dict if it is unknown, and for rows that are no kernels.
    """
    of_row = slice_between(jobs.rows, row, row + 1)
    if of_row.start == of_row.stop:
        return {}
    return _read_args(LAUNCH, jobs.launches, int(jobs.launches.number[of_row.start]))


def _read_args(
    names: tuple[str, ...], recorded: Arguments, number: int
) -> dict[str, Any]:
    """Return the args with an index in `recorded.distinct`, by name; {} for -1.

    Args:
        names: The names of the args.
        recorded: The texts of the args that were read, each combination once.
        number: The index of a combination, -1 for none.
    """
    if number < 0:
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

    # Equal args are decoded once.
    recorded = arguments(trace.elements, trace.order[ops], INPUTS)
    numbers = range(len(recorded.distinct))
    distinct_args = [_read_args(INPUTS, recorded, number) for number in numbers]

    inputs_by_row = {}
    for op, number in zip(ops.tolist(), recorded.number.tolist(), strict=True):
        if number < 0:
            continue
        inputs = inputs_of(trace.name_of(op), distinct_args[number])
        if inputs is not None:
            inputs_by_row[op] = inputs
    return inputs_by_row
