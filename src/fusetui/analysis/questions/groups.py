"""Groups kernels by name, op, shape and so on, with their work; and CPU ops by name, or
by name with the shapes and types of their inputs.

A grouping of kernels is an entry of GROUPINGS: its name, and a function that takes the
trace and the jobs of its kernels and returns a `Grouping`. `arguments.KERNELS_BY` has
the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from fusetui.analysis.questions.busy import measure_effective_ns
from fusetui.analysis.questions.totals import Spread, sum_op_groups, summarize_durations
from fusetui.gpu.kernel_names import KernelName, decode
from fusetui.gpu.kinds import legend_kind
from fusetui.gpu.roofline.inputs import dtype_of_profiler_type
from fusetui.gpu.roofline.many import Jobs, has_known_share, read_inputs_of_ops
from fusetui.trace.layout.steps import labels_of, launched_in_steps, steps_of
from fusetui.trace.model.arrays import (
    NO_ROW,
    Flags,
    Int64s,
    Rows,
    distinct,
    distinct_rows,
)
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.events import Arguments, parsed
from fusetui.trace.model.grouping import Groups, grouped
from fusetui.trace.model.ids import LARGEST, Id, exact_id
from fusetui.trace.program.origin import Origins, module_of, origins
from fusetui.trace.program.regions import label_of


class Group(Spread, frozen=True):
    """A group of kernels or ops: what identifies it, and its durations.

    Only the fields by which they are grouped are set; UNSET fields are left out of
    JSON.
    """

    name: str | UnsetType = UNSET
    op: str | UnsetType | None = UNSET
    shapes: list[Any] | UnsetType | None = UNSET
    dtypes: list[Any] | UnsetType | None = UNSET
    module: str | UnsetType | None = UNSET
    kind: str | UnsetType = UNSET
    family: str | UnsetType | None = UNSET
    device: Id | UnsetType = UNSET
    stream: Id | UnsetType = UNSET
    step: str | UnsetType | None = UNSET
    captured: bool | UnsetType = UNSET


IDENTITY = tuple(
    name for name in Group.__struct_fields__ if name not in Spread.__struct_fields__
)
TIMES = tuple(name for name in Spread.__struct_fields__ if name != "count")


class OpGroup(Group, frozen=True, kw_only=True):
    """A group of ops; `total_ns` leaves out ops inside another op of the group."""

    self_ns: int
    gpu_ns: int
    kernels: int


class KernelGroup(Group, frozen=True, kw_only=True):
    """A group of kernels; `decoded` only of one name."""

    # What is known of the work is None where it is known for none of them. A share of
    # peak is the least time that the peak rates of the device allow, over all kernels
    # for which it is known, divided by the time that they took: by their durations, or
    # their effective ones (at most 1).

    # See busy.measure_effective_ns; less than the total if kernels of a stream overlap.
    effective_ns: int
    flop: float | None  # of all kernels whose FLOP are known
    flop_ns: int  # the durations of those
    bytes: float | None  # least traffic of the kernels for which it is known
    bytes_ns: int
    share_of_peak: float | None
    share_of_peak_effective: float | None
    share_ns: int  # the durations of the kernels whose share is known
    # the limiting resource, if it is the same for all
    bound: Literal["compute", "memory"] | None
    waves: float | None  # the mean
    decoded: KernelName | UnsetType | None = UNSET


def group_ops(trace: Trace, by: str = "name") -> tuple[OpGroup, ...]:
    """Group all CPU ops by name, or by name and the shapes of their inputs.

    Ops that were captured with a CUDA graph follow, if a graph replayed their kernels.
    They did not run in this trace, so their times are 0, but the times of their kernels
    are of this trace.

    Args:
        trace: The trace.
        by: `name` or `shape`.

    Returns:
        The groups of recorded ops, the largest total first; then those of captured ops,
        the largest GPU time first.
    """
    recorded = _group_given_ops(trace, by, trace.rows_of(Role.OP))
    recorded.sort(key=lambda op: (-op.total_ns, _sort_key_of_group(op)))

    is_captured_op = (trace.role == Role.CAPTURED) & (trace.source_role == Role.OP)
    captured = []
    no_times = dict.fromkeys(TIMES, 0)
    for group in _group_given_ops(trace, by, np.flatnonzero(is_captured_op)):
        was_replayed = group.gpu_ns > 0
        if was_replayed:
            captured.append(replace(group, captured=True, self_ns=0, **no_times))
    captured.sort(key=lambda op: (-op.gpu_ns, _sort_key_of_group(op)))
    return (*recorded, *captured)


def _sort_key_of_group(group: Group) -> str:
    """Return the text by which groups with equal times are sorted. It consists of the
    fields that tell groups apart, such as name and shapes."""
    return str([getattr(group, name) for name in IDENTITY])


def _group_given_ops(trace: Trace, by: str, rows: Rows) -> list[OpGroup]:
    """Group CPU ops by their names, or by their names and the shapes of their inputs.

    Args:
        trace: The trace.
        by: `name` or `shape`.
        rows: The ops.

    Returns:
        The groups in no particular order; [] without ops.
    """
    if not len(rows):
        return []
    columns: list[NDArray[np.integer]] = [trace.name[rows]]
    inputs = None
    if by == "shape":
        inputs = group_by_inputs(read_inputs_of_ops(trace, rows))
        columns.append(inputs.number)
    first_of_group, group_of_row = distinct_rows(columns)

    durations = summarize_durations(group_of_row, trace.dur[rows])
    sums = sum_op_groups(trace, rows, grouped(group_of_row, trace.start[rows]))
    groups = []
    for first, durations_of_group, sums_of_group in zip(
        first_of_group, durations, sums, strict=True
    ):
        inputs_of_group = {}
        if inputs:
            inputs_of_group = inputs.identify(int(inputs.number[first]))
        statistics = asdict(durations_of_group)
        # Unlike the sum of all durations, this leaves out ops inside another op.
        statistics["total_ns"] = sums_of_group.total_ns
        group = OpGroup(
            name=trace.name_of(int(rows[first])),
            self_ns=sums_of_group.self_ns,
            gpu_ns=sums_of_group.gpu_ns,
            kernels=sums_of_group.kernels,
            **inputs_of_group,
            **statistics,
        )
        groups.append(group)
    return groups


_MAX_LIST_LEVELS: Final = 4  # the inputs, a list of tensors, a shape
_NO_INPUTS: Final = -1
"""The number of the group of ops for which no inputs were recorded."""
_NO_OP: Final = -1
"""The number of the group of kernels that no op launched."""


def group_by_inputs(inputs: Arguments) -> Grouping:
    """Return the grouping by the shapes and types of the inputs of ops.

    Strides and values do not matter. The number is -1 if nothing was recorded.

    Args:
        inputs: The args `many.INPUTS` of the ops.
    """
    number_by_texts: dict[tuple[bytes, bytes], int] = {}
    # Ops without args have the number -1, which finds the last entry.
    number_of_args = np.full(len(inputs.distinct) + 1, _NO_INPUTS, dtype=np.int32)
    for index, (dims, types, *_) in enumerate(inputs.distinct):
        if dims or types:
            next_number = len(number_by_texts)
            number = number_by_texts.setdefault((dims, types), next_number)
            number_of_args[index] = number
    distinct_texts = list(number_by_texts)

    def identify(number: int) -> dict[str, Any]:
        """Return `shapes` and `dtypes` as lists; None if nothing was recorded."""
        if number == _NO_INPUTS:
            return {"shapes": None, "dtypes": None}
        dims_text, types_text = distinct_texts[number]
        return {
            "shapes": _to_json_list(parsed(dims_text)),
            "dtypes": _rename_types(_to_json_list(parsed(types_text))),
        }

    return Grouping(number=number_of_args[inputs.number], identify=identify)


def _to_json_list(value: Any) -> list[Any] | None:
    """Return a list as JSON can hold it (see `_to_json_value`); None for anything else."""
    if not isinstance(value, list):
        return None
    plain: list[Any] = _to_json_value(value)
    return plain


def _rename_types(types: list[Any] | None) -> list[Any] | None:
    """Replace the recorded types of inputs by shorter names: `fp32` for `float`.

    Words that are no element types, such as `Scalar`, stay. None and [] are returned
    unchanged.
    """
    if not types:
        return types
    short_names = []
    for word in types:
        name = dtype_of_profiler_type(word) if isinstance(word, str) else None
        short_names.append(name or word)
    return short_names


def _to_json_value(value: Any, levels: int = _MAX_LIST_LEVELS) -> Any:
    """Return a recorded value in the form in which it is written as JSON.

    Integers that a double cannot represent become text. Lists that are nested deeper
    than lists of tensors become None, and so does any other kind of value.

    Args:
        value: The value.
        levels: How many lists may be nested in it.
    """
    if isinstance(value, list):
        if not levels:
            return None
        return [_to_json_value(inner, levels - 1) for inner in value]
    if isinstance(value, int):
        return exact_id(value)
    if isinstance(value, str | float):
        return value
    return None


class Grouping(msgspec.Struct, frozen=True, eq=False):
    """Numbers that say to which group each kernel or op belongs, and what identifies a
    group."""

    number: NDArray[np.integer]  # the number of the group of each kernel or op
    # Returns for the number of a group the fields that identify it, such as its name.
    identify: Callable[[int], dict[str, Any]]


def group_kernels(
    trace: Trace, jobs: Jobs, by: str = "name"
) -> tuple[KernelGroup, ...]:
    """Group all kernels by one property, and summarize their times and work.

    Args:
        trace: The trace.
        jobs: The kernels, with what each of them has to compute, as far as it is
            known.
        by: The property: one of GROUPINGS, such as `name` or `stream`.

    Returns:
        The groups, the largest total first; steps in time order; () without
        kernels.
    """
    rows = jobs.rows
    if not len(rows):
        return ()
    grouping = GROUPINGS[by](trace, jobs)
    members = grouped(grouping.number, trace.start[rows])
    durations = summarize_durations(grouping.number, trace.dur[rows])
    is_kernel = np.isin(trace.gpu_rows, rows)
    effective = measure_effective_ns(trace)[is_kernel]
    work = _describe_work_of_groups(trace, jobs, effective, members)

    groups = []
    for number, durations_of_group, work_of_group in zip(
        members.keys.tolist(), durations, work, strict=True
    ):
        group = KernelGroup(
            **grouping.identify(number), **asdict(durations_of_group), **work_of_group
        )
        groups.append(group)
    if by != "step":
        groups.sort(key=lambda group: (-group.total_ns, _sort_key_of_group(group)))
    return tuple(groups)


def _group_by_name(trace: Trace, jobs: Jobs) -> Grouping:
    """Group kernels by their names. The number of a group is the index of the name in
    the trace."""
    return Grouping(
        number=trace.name[jobs.rows],
        identify=lambda name: {"name": trace.names[name]},
    )


def _group_by_op(trace: Trace, jobs: Jobs) -> Grouping:
    """Group kernels by the innermost op around their launch.

    The number is that of the name of the op, -1 for none.
    """

    def identify(name: int) -> dict[str, Any]:
        """Return the name of the op; None for none."""
        return {"op": None if name == _NO_OP else trace.names[name]}

    op = trace.op[jobs.rows]
    return Grouping(
        number=np.where(op != NO_ROW, trace.name[op], _NO_OP), identify=identify
    )


def _group_by_shape(trace: Trace, jobs: Jobs) -> Grouping:
    """Group kernels by their name, the op that launched them, and the op's inputs.

    Kernels of a group agree in all three. Of inputs only the shapes and types count.

    Args:
        trace: The trace.
        jobs: The kernels, with the recorded inputs of their ops.
    """
    by_name = _group_by_name(trace, jobs)
    by_op = _group_by_op(trace, jobs)
    by_inputs = group_by_inputs(jobs.inputs)
    first_of_group, group_of_kernel = distinct_rows(
        (by_name.number, by_op.number, by_inputs.number)
    )

    def identify(group: int) -> dict[str, Any]:
        """Return the name, the op and the inputs of the first kernel of a group."""
        kernel = first_of_group[group]
        fields: dict[str, Any] = {}
        for grouping in (by_name, by_op, by_inputs):
            fields |= grouping.identify(int(grouping.number[kernel]))
        return fields

    return Grouping(number=group_of_kernel, identify=identify)


def _group_by_module(trace: Trace, jobs: Jobs) -> Grouping:
    """Group kernels by module; see `group_by_module`."""
    return group_by_module(trace, jobs.rows, origins(trace))


def group_by_module(trace: Trace, kernels: Rows, work_origins: Origins) -> Grouping:
    """Group kernels by the kind of module, or the annotation, that they work for.

    Args:
        trace: The trace.
        kernels: The kernels.
        work_origins: Where the work of the trace comes from.
    """
    return _group_by_label(trace, module_of(work_origins, kernels), "module", label_of)


def _group_by_kind(trace: Trace, jobs: Jobs) -> Grouping:
    """Group kernels by their kind, as the legend of the timeline shows it."""
    return _group_by_label(trace, jobs.rows, "kind", legend_kind)


def _group_by_library(trace: Trace, jobs: Jobs) -> Grouping:
    """Group kernels by their library, as far as their names show it."""
    return _group_by_label(trace, jobs.rows, "family", _recognize_family)


def _recognize_family(name: str) -> str | None:
    """Return the naming scheme that the name of a kernel follows, such as that of
    cutlass. Returns None if it is not recognized."""
    kernel = decode(name)
    return kernel.family if kernel else None


def _group_by_label(
    trace: Trace,
    rows: NDArray[np.integer],
    field: str,
    label: Callable[[str], str | None],
) -> Grouping:
    """Group rows by a label that follows from their names.

    Args:
        trace: The trace.
        rows: The rows; NO_ROW (-1) has no label.
        field: The name of the field that has the label.
        label: Returns the label of a name.
    """
    has_row = rows != NO_ROW
    number_by_label: dict[str | None, int] = {}
    number_of_name = np.zeros(len(trace.names), dtype=np.int64)
    for name in distinct(trace.name[rows[has_row]]).tolist():
        label_of_name = label(trace.names[name])
        next_number = len(number_by_label)
        number_of_name[name] = number_by_label.setdefault(label_of_name, next_number)

    no_label = len(number_by_label)
    labels = [*number_by_label, None]
    return Grouping(
        number=np.where(has_row, number_of_name[trace.name[rows]], no_label),
        identify=lambda number: {field: labels[number]},
    )


def _group_by_stream(trace: Trace, jobs: Jobs) -> Grouping:
    """Group kernels by the stream on which they ran.

    Overlapping kernels of a stream are drawn in several rows; all of these are one
    stream. The number of a group is that of the stream in Trace.thread_of_track.
    """

    def identify(thread: int) -> dict[str, Any]:
        """Return the device and the stream."""
        track = trace.first_track(thread)
        return {"device": exact_id(track.pid), "stream": exact_id(track.tid)}

    thread = trace.thread_of_track[trace.track[jobs.rows]]
    return Grouping(number=thread, identify=identify)


def _group_by_step(trace: Trace, jobs: Jobs) -> Grouping:
    """Group kernels by the step, such as a training step, that launched them. Kernels
    that no step launched are the group None."""
    names = labels_of(steps_of(trace).names)
    no_step = len(names)
    names_or_none = [*names, None]
    step_of_row = np.full(len(trace), no_step, dtype=np.int64)
    for step, launched in enumerate(launched_in_steps(trace)):
        step_of_row[launched] = step
    return Grouping(
        number=step_of_row[jobs.rows],
        identify=lambda step: {"step": names_or_none[step]},
    )


GROUPINGS: Final[dict[str, Callable[[Trace, Jobs], Grouping]]] = {
    "name": _group_by_name,
    "op": _group_by_op,
    "shape": _group_by_shape,
    "module": _group_by_module,
    "kind": _group_by_kind,
    "library": _group_by_library,
    "family": _group_by_library,
    "stream": _group_by_stream,
    "step": _group_by_step,
}


def name_missing_group(by: str) -> str:
    """Return how the kernels that belong to no group are called, for a way of grouping:
    `no op` for `op`."""
    return "unrecognized name" if by == "library" else f"no {by}"


def _describe_work_of_groups(
    trace: Trace, jobs: Jobs, effective_times: Int64s, groups: Groups
) -> Iterator[dict[str, Any]]:
    """Yield for each group of kernels the fields of KernelGroup about their work.

    These are the FLOP and bytes of the kernels, and how near they come to the peak
    rates.

    Args:
        trace: The trace.
        jobs: The kernels, with what each of them has to compute.
        effective_times: For how long each kernel runs while no earlier one of its
            stream does, in ns.
        groups: The groups of kernels.
    """
    dur = trace.dur[jobs.rows]
    for effective, flop, moved, share, waves in zip(
        groups.sums(effective_times).tolist(),
        _sum_known_amounts(jobs, groups, dur, "flop"),
        _sum_known_amounts(jobs, groups, dur, "bytes"),
        _compute_shares_of_peak(trace, jobs, effective_times, groups),
        _average_waves(jobs, groups),
        strict=True,
    ):
        yield {
            "effective_ns": effective,
            "flop": flop.amount,
            "flop_ns": flop.ns,
            "bytes": moved.amount,
            "bytes_ns": moved.ns,
            "share_of_peak": share.of_durations,
            "share_of_peak_effective": share.of_effective,
            "share_ns": share.ns,
            "bound": share.bound,
            "waves": waves,
        }


class KernelWork(msgspec.Struct, frozen=True, eq=False):
    """The work of each kernel; one entry per kernel, nan where it is not known."""

    rows: Rows
    flop: NDArray[np.float64]
    bytes: NDArray[np.float64]  # that it must at least read and write
    # The shortest time that the peak rates of the device allow; only of kernels whose
    # share of peak is known.
    least_ns: NDArray[np.float64]


def describe_work_of_kernels(trace: Trace, jobs: Jobs) -> KernelWork:
    """Return the FLOP, bytes and other figures of the work of each kernel.

    `group_kernels` returns the sums of these.

    Args:
        trace: The trace.
        jobs: The kernels, with what each of them has to compute, as far as it is
            known.
    """
    least_ns = jobs.of_each(lambda job: job.limits.least_ns)
    return KernelWork(
        rows=jobs.rows,
        flop=jobs.of_each(lambda job: job.amount.flop),
        bytes=jobs.of_each(lambda job: job.amount.bytes),
        least_ns=np.where(has_known_share(trace, jobs), least_ns, np.nan),
    )


class _ShareOfPeak(NamedTuple):
    """How near to the peak rates of the device the kernels of a group come.

    A share is the least time that these rates allow, divided by the time that the
    kernels took: 0.5 if half the time would have been enough. Only the kernels count
    for which it is known; the shares are None if there is none.
    """

    ns: int  # the durations of these kernels
    of_durations: float | None
    of_effective: (
        float | None
    )  # of their effective times (busy.measure_effective_ns); up to 1
    bound: str | None  # what limits all of them, see `_find_common_bound`


def _compute_shares_of_peak(
    trace: Trace, jobs: Jobs, effective_times: Int64s, groups: Groups
) -> list[_ShareOfPeak]:
    """Compute how near to the peak rates of the device each group of kernels comes.

    E.g. 0.5 for kernels that took 10 us, but at the peak rates would take 5 us.

    Args:
        trace: The trace.
        jobs: The jobs of the kernels: what each has to compute, as far as it is known.
        effective_times: The effective time of each kernel, see busy.measure_effective_ns.
        groups: The groups of kernels.
    """
    is_known = has_known_share(trace, jobs)
    is_memory_bound = jobs.of_each(lambda job: float(job.limits.bound == "memory")) == 1
    least_ns = jobs.of_each(lambda job: job.limits.least_ns)
    shares = []
    for least, took, took_effectively, kernels, bound_by_memory in zip(
        _sum_flagged(groups, least_ns, is_known),
        _sum_flagged(groups, trace.dur[jobs.rows], is_known),
        _sum_flagged(groups, effective_times, is_known),
        _count_flagged(groups, is_known),
        _count_flagged(groups, is_known & is_memory_bound),
        strict=True,
    ):
        of_effective = None
        if took_effectively:
            # Effective times leave out overlap, in which kernels may work already.
            of_effective = min(1.0, least / took_effectively)
        share = _ShareOfPeak(
            ns=took,
            of_durations=least / took if took else None,
            of_effective=of_effective,
            bound=_find_common_bound(kernels, bound_by_memory),
        )
        shares.append(share)
    return shares


def _average_waves(jobs: Jobs, groups: Groups) -> list[float | None]:
    """Return how many waves the kernels of each group need on average.

    A *wave* is as many thread blocks as the device can run at once. Only kernels for
    which the number is known count. The mean is None for a group without any.
    """
    waves = jobs.of_each(lambda job: job.tiles.waves if job.tiles else None)
    is_known = ~np.isnan(waves)
    sums = _sum_flagged(groups, waves, is_known)
    counts = _count_flagged(groups, is_known)
    means = []
    for sum_of_group, count in zip(sums, counts, strict=True):
        means.append(sum_of_group / count if count else None)
    return means


def _sum_flagged(groups: Groups, amount: NDArray[Any], is_counted: Flags) -> list[Any]:
    """Add up an amount of the flagged kernels of each group.

    Args:
        groups: The groups of kernels.
        amount: The amount of each kernel.
        is_counted: A flag for each kernel: whether it counts.
    """
    sums: list[Any] = groups.sums(np.where(is_counted, amount, 0)).tolist()
    return sums


def _count_flagged(groups: Groups, is_counted: Flags) -> list[int]:
    """Count the flagged kernels of each group; there is a flag for each kernel."""
    counts: list[int] = groups.sums(is_counted.astype(np.int64)).tolist()
    return counts


def _find_common_bound(kernels: int, bound_by_memory: int) -> str | None:
    """Return what limits the speed of all kernels of a group, if it is the same for
    all.

    Args:
        kernels: For how many kernels of the group the limit is known.
        bound_by_memory: How many of these are limited by memory.

    Returns:
        `compute` or `memory`; None if it differs, or is known for no kernel.
    """
    if not kernels:
        return None
    if bound_by_memory == 0:
        return "compute"
    if bound_by_memory == kernels:
        return "memory"
    return None


class _KnownAmount(NamedTuple):
    """The FLOP or bytes of the kernels of a group for which they are known."""

    amount: float | None  # None if they are known for no kernel
    ns: int  # the durations of these kernels


def _sum_known_amounts(
    jobs: Jobs, groups: Groups, dur: Int64s, what: Literal["flop", "bytes"]
) -> list[_KnownAmount]:
    """Add up the FLOP or the bytes of the kernels of each group, where they are known.

    E.g. a group of three kernels, two of which have 4 GFLOP and take 2 us each, has 8
    GFLOP in 4 us. A sum above 2^53, as those of FLOP may be, is rounded to a double.

    Args:
        jobs: The kernels, with what each of them has to compute.
        groups: The groups of kernels.
        dur: The duration of each kernel.
        what: Which amount is added up.
    """
    amount_of_job = [getattr(job.amount, what) for job in jobs.distinct]
    amount_of_job.append(None)  # of kernels without a job, whose number is -1
    is_known_of_job = np.array([amount is not None for amount in amount_of_job])
    # Python's integers are exact; sums of int64 could overflow.
    known_or_zero = np.array([amount or 0 for amount in amount_of_job], dtype=object)

    is_known = is_known_of_job[jobs.number]
    sums = groups.sums(known_or_zero[jobs.number]).tolist()
    counts = _count_flagged(groups, is_known)
    ns_sums = _sum_flagged(groups, dur, is_known)
    known_amounts = []
    for sum_of_group, count, ns in zip(sums, counts, ns_sums, strict=True):
        rounded = sum_of_group if sum_of_group <= LARGEST else float(sum_of_group)
        known_amounts.append(_KnownAmount(amount=rounded if count else None, ns=ns))
    return known_amounts
