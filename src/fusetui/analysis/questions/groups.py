"""Groups kernels by name, op, shape and so on, with their work; and CPU ops by name, or
by name with the shapes and types of their inputs.

A grouping of kernels is an entry of GROUPINGS: its name, and a function that takes the
trace and the jobs of its kernels and returns their `Keys`. `arguments.KERNELS_BY` has
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

from fusetui.analysis.questions.busy import effective_ns
from fusetui.analysis.questions.totals import Spread, op_sums, spreads
from fusetui.gpu.kernel_names import KernelName, decode
from fusetui.gpu.kinds import legend_kind
from fusetui.gpu.roofline.inputs import type_of
from fusetui.gpu.roofline.many import Jobs, inputs_of_ops, share_known
from fusetui.trace.layout.steps import labels_of, launched_in_steps, steps_of
from fusetui.trace.model.arrays import Flags, Int64s, Rows, distinct, distinct_rows
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

    # See busy.effective_ns; less than the total if kernels of a stream overlap.
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


def op_groups(trace: Trace, by: str = "name") -> tuple[OpGroup, ...]:
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
    recorded = _op_groups_of(trace, by, trace.rows_of(Role.OP))
    is_captured_op = (trace.role == Role.CAPTURED) & (trace.source_role == Role.OP)
    captured = []
    no_times = dict.fromkeys(TIMES, 0)
    for group in _op_groups_of(trace, by, np.flatnonzero(is_captured_op)):
        if group.gpu_ns:
            captured.append(replace(group, captured=True, self_ns=0, **no_times))

    recorded.sort(key=lambda op: (-op.total_ns, _identity(op)))
    captured.sort(key=lambda op: (-op.gpu_ns, _identity(op)))
    return (*recorded, *captured)


def _identity(group: Group) -> str:
    """Return the key by which groups of equal times are sorted."""
    return str([getattr(group, name) for name in IDENTITY])


def _op_groups_of(trace: Trace, by: str, rows: Rows) -> list[OpGroup]:
    """Group some ops by `name` or `shape`, in no particular order."""
    if not len(rows):
        return []
    inputs = input_keys(inputs_of_ops(trace, rows)) if by == "shape" else None
    columns: list[NDArray[np.integer]] = [trace.name[rows]]
    if inputs:
        columns.append(inputs.number)
    first_of_group, group_of_row = distinct_rows(columns)

    durations = spreads(group_of_row, trace.dur[rows])
    sums = op_sums(trace, rows, grouped(group_of_row, trace.start[rows]))
    groups = []
    for first, durations_of_group, sums_of_group in zip(
        first_of_group, durations, sums, strict=True
    ):
        fields: dict[str, Any] = {"name": trace.name_of(int(rows[first]))}
        if inputs:
            fields |= inputs.fields(int(inputs.number[first]))
        fields |= asdict(durations_of_group)
        fields |= sums_of_group
        groups.append(OpGroup(**fields))
    return groups


_MAX_LIST_LEVELS: Final = 4  # the inputs, a list of tensors, a shape


def input_keys(inputs: Arguments) -> Keys:
    """Return the grouping by the shapes and types of the inputs of ops.

    Strides and values do not matter. The number is -1 if nothing was recorded.

    Args:
        inputs: The args `many.INPUTS` of the ops.
    """
    number_of_texts: dict[tuple[bytes, bytes], int] = {}
    # Ops without args have the number -1, which finds the last entry.
    number_of_args = np.full(len(inputs.distinct) + 1, -1, dtype=np.int32)
    for index, (dims, types, *_) in enumerate(inputs.distinct):
        if dims or types:
            new_number = len(number_of_texts)
            number_of_args[index] = number_of_texts.setdefault(
                (dims, types), new_number
            )
    distinct_texts = [*number_of_texts, (b"", b"")]  # the last one is that of -1

    def fields(number: int) -> dict[str, Any]:
        """Return `shapes` and `dtypes` as lists; None if nothing was recorded."""
        dims_text, types_text = distinct_texts[number]
        return {
            "shapes": _plain_list(parsed(dims_text)),
            "dtypes": _type_words(_plain_list(parsed(types_text))),
        }

    return Keys(number=number_of_args[inputs.number], fields=fields)


def _plain_list(value: Any) -> list[Any] | None:
    """Return a list as JSON can hold it (see `_plain`); None for anything else."""
    plain: list[Any] | None = _plain(value) if isinstance(value, list) else None
    return plain


def _type_words(types: list[Any] | None) -> list[Any] | None:
    """Replace element types by our names; other words, such as `Scalar`, stay."""
    if not types:
        return types
    names = []
    for word in types:
        name = type_of(word) if isinstance(word, str) else None
        names.append(name or word)
    return names


def _plain(value: Any, levels: int = _MAX_LIST_LEVELS) -> Any:
    """Return a recorded value as JSON can hold it.

    Integers that a double cannot represent become text. What is nested deeper than
    lists of tensors becomes None.
    """
    if isinstance(value, list):
        return [_plain(inner, levels - 1) for inner in value] if levels else None
    if isinstance(value, int):
        return exact_id(value)
    return value if isinstance(value, str | float) else None


class Keys(msgspec.Struct, frozen=True, eq=False):
    """A grouping: the number of the group of each kernel, and what identifies a group."""

    number: NDArray[np.integer]  # one per kernel
    fields: Callable[[int], dict[str, Any]]  # of the group with a number


def kernel_groups(
    trace: Trace, jobs: Jobs, by: str = "name"
) -> tuple[KernelGroup, ...]:
    """Group all kernels.

    Args:
        trace: The trace.
        jobs: The jobs of all kernels.
        by: One of GROUPINGS.

    Returns:
        The groups, the largest total first; steps in time order.
    """
    rows = jobs.rows
    if not len(rows):
        return ()
    keys = GROUPINGS[by](trace, jobs)
    by_key = grouped(keys.number, trace.start[rows])
    effective = effective_ns(trace)[np.isin(trace.gpu_rows, rows)]
    durations = spreads(keys.number, trace.dur[rows])
    work = _work_of_groups(trace, jobs, effective, by_key)

    groups = []
    for number, durations_of_group, work_of_group in zip(
        by_key.keys.tolist(), durations, work, strict=True
    ):
        identity = keys.fields(number)
        group = KernelGroup(**identity, **asdict(durations_of_group), **work_of_group)
        groups.append(group)
    if by != "step":
        groups.sort(key=lambda group: (-group.total_ns, _identity(group)))
    return tuple(groups)


def _by_name(trace: Trace, jobs: Jobs) -> Keys:
    """Group kernels by name."""
    return Keys(
        number=trace.name[jobs.rows],
        fields=lambda name: {"name": trace.names[name]},
    )


def _by_op(trace: Trace, jobs: Jobs) -> Keys:
    """Group kernels by the innermost op around their launch.

    The number is that of the name of the op, -1 for none.
    """
    op = trace.op[jobs.rows]
    return Keys(
        number=np.where(op >= 0, trace.name[op], -1),
        fields=lambda name: {"op": trace.names[name] if name >= 0 else None},
    )


def _by_shape(trace: Trace, jobs: Jobs) -> Keys:
    """Group kernels by name, op, and the shapes and types of the inputs of the op."""
    name_of_kernel = trace.name[jobs.rows]
    ops = _by_op(trace, jobs)
    inputs = input_keys(jobs.inputs)
    first_of_group, group_of_kernel = distinct_rows(
        (name_of_kernel, ops.number, inputs.number)
    )

    def fields(group: int) -> dict[str, Any]:
        """Return the name, the op and the inputs of the first kernel of a group."""
        kernel = first_of_group[group]
        name = {"name": trace.names[int(name_of_kernel[kernel])]}
        op = ops.fields(int(ops.number[kernel]))
        return name | op | inputs.fields(int(inputs.number[kernel]))

    return Keys(number=group_of_kernel, fields=fields)


def _by_module(trace: Trace, jobs: Jobs) -> Keys:
    """Group kernels by module; see `module_keys`."""
    return module_keys(trace, jobs.rows, origins(trace))


def module_keys(trace: Trace, kernels: Rows, found: Origins) -> Keys:
    """Group kernels by the kind of module, or the annotation, that they work for.

    Args:
        trace: The trace.
        kernels: The kernels.
        found: Where the work of the trace comes from.
    """
    return _by_label(trace, module_of(found, kernels), "module", label_of)


def _by_kind(trace: Trace, jobs: Jobs) -> Keys:
    """Group kernels by their kind, as the legend of the timeline shows it."""
    return _by_label(trace, jobs.rows, "kind", legend_kind)


def _by_library(trace: Trace, jobs: Jobs) -> Keys:
    """Group kernels by their library, as far as their names show it."""
    return _by_label(trace, jobs.rows, "family", _family_of)


def _family_of(name: str) -> str | None:
    """Return the naming scheme of a kernel; None if it is not recognized."""
    kernel = decode(name)
    return kernel.family if kernel else None


def _by_label(
    trace: Trace,
    rows: NDArray[np.integer],
    field: str,
    label: Callable[[str], str | None],
) -> Keys:
    """Group rows by a label that follows from their names.

    Args:
        trace: The trace.
        rows: The rows; -1 has no label.
        field: The name of the field that has the label.
        label: Returns the label of a name.
    """
    number_of_label: dict[str | None, int] = {}
    number_of_name = np.full(len(trace.names), -1, dtype=np.int64)
    for name in distinct(trace.name[rows[rows >= 0]]).tolist():
        label_of_name = label(trace.names[name])
        number = number_of_label.setdefault(label_of_name, len(number_of_label))
        number_of_name[name] = number

    labels = [*number_of_label, None]
    no_label = len(number_of_label)
    return Keys(
        number=np.where(rows >= 0, number_of_name[trace.name[rows]], no_label),
        fields=lambda number: {field: labels[number]},
    )


def _by_stream(trace: Trace, jobs: Jobs) -> Keys:
    """Group kernels by stream; sub-rows of a stream are combined.

    The number is that of the stream as in Trace.thread_of_track.
    """

    def fields(thread: int) -> dict[str, Any]:
        """Return the device and the stream."""
        track = trace.first_track(thread)
        return {"device": exact_id(track.pid), "stream": exact_id(track.tid)}

    thread = trace.thread_of_track[trace.track[jobs.rows]]
    return Keys(number=thread, fields=fields)


def _by_step(trace: Trace, jobs: Jobs) -> Keys:
    """Group kernels by the step that launched them; None if no step did."""
    names = [*labels_of(steps_of(trace).names), None]
    no_step = len(names) - 1
    step_of_row = np.full(len(trace), no_step, dtype=np.int64)
    for step, launched in enumerate(launched_in_steps(trace)):
        step_of_row[launched] = step
    return Keys(
        number=step_of_row[jobs.rows], fields=lambda step: {"step": names[step]}
    )


GROUPINGS: Final[dict[str, Callable[[Trace, Jobs], Keys]]] = {
    "name": _by_name,
    "op": _by_op,
    "shape": _by_shape,
    "module": _by_module,
    "kind": _by_kind,
    "library": _by_library,
    "family": _by_library,
    "stream": _by_stream,
    "step": _by_step,
}


def without_group(by: str) -> str:
    """Return what kernels that no group claims are called: `no op`."""
    return "unrecognized name" if by == "library" else f"no {by}"


def _work_of_groups(
    trace: Trace, jobs: Jobs, effective_ns: Int64s, groups: Groups
) -> Iterator[dict[str, Any]]:
    """Yield the fields of KernelGroup about the work of each group.

    Args:
        trace: The trace.
        jobs: The jobs of the kernels.
        effective_ns: The effective time of each kernel.
        groups: The groups of kernels.
    """
    dur = trace.dur[jobs.rows]
    effective = groups.sums(effective_ns).tolist()
    flop = _known_amounts(jobs, groups, dur, "flop")
    moved = _known_amounts(jobs, groups, dur, "bytes")
    shares = _shares_of_peak(trace, jobs, effective_ns, groups)
    waves = _mean_waves(jobs, groups)
    for group in range(len(groups)):
        yield {
            "effective_ns": effective[group],
            "flop": flop[group].amount,
            "flop_ns": flop[group].ns,
            "bytes": moved[group].amount,
            "bytes_ns": moved[group].ns,
            "share_of_peak": shares[group].of_durations,
            "share_of_peak_effective": shares[group].of_effective,
            "share_ns": shares[group].ns,
            "bound": shares[group].bound,
            "waves": waves[group],
        }


class KernelWork(msgspec.Struct, frozen=True, eq=False):
    """The work of each kernel; one entry per kernel, nan where it is not known."""

    rows: Rows
    flop: NDArray[np.float64]
    bytes: NDArray[np.float64]  # that it must at least read and write
    # The shortest time that the peak rates of the device allow; only of kernels whose
    # share of peak is known.
    least_ns: NDArray[np.float64]


def work_of_each(trace: Trace, jobs: Jobs) -> KernelWork:
    """Return the work of each kernel, of which `kernel_groups` returns sums.

    Args:
        trace: The trace.
        jobs: The jobs of the kernels: what each has to compute, as far as it is known.
    """
    least_ns = jobs.of_each(lambda job: job.limits.least_ns)
    return KernelWork(
        rows=jobs.rows,
        flop=jobs.of_each(lambda job: job.amount.flop),
        bytes=jobs.of_each(lambda job: job.amount.bytes),
        least_ns=np.where(share_known(trace, jobs), least_ns, np.nan),
    )


class _ShareOfPeak(NamedTuple):
    """How near to the peak rates of the device the kernels of a group come.

    A share is the least time that these rates allow, divided by the time that the
    kernels took: 0.5 if half the time would have been enough. Only the kernels count
    for which it is known; the shares are None if there is none.
    """

    ns: int  # the durations of these kernels
    of_durations: float | None
    of_effective: float | None  # of their effective times (busy.effective_ns); up to 1
    bound: str | None  # what limits all of them, see `_common_bound`


def _shares_of_peak(
    trace: Trace, jobs: Jobs, effective_ns: Int64s, groups: Groups
) -> list[_ShareOfPeak]:
    """Compute how near to the peak rates of the device each group of kernels comes.

    Args:
        trace: The trace.
        jobs: The jobs of the kernels: what each has to compute, as far as it is known.
        effective_ns: The effective time of each kernel, see busy.effective_ns.
        groups: The groups of kernels.
    """
    is_known = share_known(trace, jobs)
    is_memory_bound = jobs.of_each(lambda job: float(job.limits.bound == "memory")) == 1
    least_ns = jobs.of_each(lambda job: job.limits.least_ns)
    least = _sums_where(groups, least_ns, is_known)
    ns = _sums_where(groups, trace.dur[jobs.rows], is_known)
    effective = _sums_where(groups, effective_ns, is_known)
    kernels = _counts(groups, is_known)
    bound_by_memory = _counts(groups, is_known & is_memory_bound)

    shares = []
    for group in range(len(groups)):
        of_effective = None
        if effective[group]:
            of_effective = min(1.0, least[group] / effective[group])
        share = _ShareOfPeak(
            ns=ns[group],
            of_durations=least[group] / ns[group] if ns[group] else None,
            of_effective=of_effective,
            bound=_common_bound(kernels[group], bound_by_memory[group]),
        )
        shares.append(share)
    return shares


def _mean_waves(jobs: Jobs, groups: Groups) -> list[float | None]:
    """Return the mean waves of the kernels of each group for which they are known."""
    waves = jobs.of_each(lambda job: job.tiles.waves if job.tiles else None)
    is_known = ~np.isnan(waves)
    sums = _sums_where(groups, waves, is_known)
    counts = _counts(groups, is_known)
    means = []
    for total, count in zip(sums, counts, strict=True):
        means.append(total / count if count else None)
    return means


def _sums_where(groups: Groups, amount: NDArray[Any], where: Flags) -> list[Any]:
    """Add up the amounts of the flagged kernels of each group."""
    sums: list[Any] = groups.sums(np.where(where, amount, 0)).tolist()
    return sums


def _counts(groups: Groups, where: Flags) -> list[int]:
    """Count the flagged kernels of each group."""
    counts: list[int] = groups.sums(where.astype(np.int64)).tolist()
    return counts


def _common_bound(kernels: int, bound_by_memory: int) -> str | None:
    """Return what limits all kernels of a group.

    Args:
        kernels: For how many kernels it is known.
        bound_by_memory: How many of them are limited by memory.

    Returns:
        `compute` or `memory`; None if it differs, or is known for no kernel.
    """
    if not kernels:
        return None
    if bound_by_memory == 0:
        return "compute"
    return "memory" if bound_by_memory == kernels else None


class _KnownAmount(NamedTuple):
    """The FLOP or bytes of the kernels of a group for which they are known."""

    amount: float | None  # None if they are known for no kernel
    ns: int  # the durations of these kernels


def _known_amounts(
    jobs: Jobs, groups: Groups, dur: Int64s, what: Literal["flop", "bytes"]
) -> list[_KnownAmount]:
    """Add up the FLOP or the bytes of the kernels of each group, where they are known.

    E.g. a group of three kernels, two of which have 4 GFLOP and take 2 us each, has 8
    GFLOP in 4 us. A sum above 2^53, as those of FLOP may be, is rounded to a double.

    Args:
        jobs: The jobs of the kernels.
        groups: The groups of kernels.
        dur: The duration of each kernel.
        what: Which amount.
    """
    amounts = [getattr(job.amount, what) for job in jobs.distinct]
    amounts.append(None)  # of kernels without a job, whose number is -1
    is_known_amount = np.array([amount is not None for amount in amounts])
    # Python's integers are exact; sums of int64 could overflow.
    amount_or_zero = np.array([amount or 0 for amount in amounts], dtype=object)
    is_known = is_known_amount[jobs.number]
    sums = groups.sums(amount_or_zero[jobs.number]).tolist()
    counts = _counts(groups, is_known)
    ns_sums = _sums_where(groups, dur, is_known)

    known_amounts = []
    for total, count, ns in zip(sums, counts, ns_sums, strict=True):
        rounded = total if total <= LARGEST else float(total)
        amount = rounded if count else None
        known_amounts.append(_KnownAmount(amount=amount, ns=ns))
    return known_amounts
