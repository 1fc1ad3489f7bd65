"""Kernels grouped by name, op, shape and so on, with the work that they needed; and CPU
ops by name, or by name with the shapes and types of their inputs.

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
from fusetui.analysis.questions.totals import Groups, Spread, grouped, op_sums, spreads
from fusetui.gpu.kernel_names import KernelName, decode
from fusetui.gpu.kinds import legend_kind
from fusetui.gpu.roofline.inputs import type_of
from fusetui.gpu.roofline.many import Jobs, inputs_of_ops, share_known
from fusetui.trace.layout.steps import labels_of, launched_in_steps, steps_of
from fusetui.trace.model.arrays import Flags, Int64s, Rows, distinct, distinct_rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.events import Arguments, parsed
from fusetui.trace.model.ids import LARGEST, Id, exact_id
from fusetui.trace.program.origin import Origins, module_of, origins
from fusetui.trace.program.regions import label_of


class Group(Spread, frozen=True):
    """What identifies a group of kernels or ops, whichever it is grouped by; then its
    durations."""

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
    # peak is the least time that the limits allow, over all kernels for which it is
    # known, divided by the time that they took: by their durations, or their effective
    # ones (at most 1).
    # see busy.effective_ns; less than the total if kernels of a stream overlap
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
    """All CPU ops grouped by `name` or `shape`, the largest total first; then those
    that were captured and launched replayed kernels."""
    recorded = _op_groups_of(trace, by, trace.rows_of(Role.OP))
    is_captured_op = (trace.role == Role.CAPTURED) & (trace.source_role == Role.OP)
    captured = []
    for group in _op_groups_of(trace, by, np.flatnonzero(is_captured_op)):
        # their times are not of this trace, but those of their kernels are
        if group.gpu_ns:
            captured.append(
                replace(group, captured=True, self_ns=0, **dict.fromkeys(TIMES, 0))
            )
    recorded.sort(key=lambda op: (-op.total_ns, _identity(op)))
    captured.sort(key=lambda op: (-op.gpu_ns, _identity(op)))
    return (*recorded, *captured)


def _identity(group: Group) -> str:
    """By which groups of equal times are in order."""
    return str([getattr(group, name) for name in IDENTITY])


def _op_groups_of(trace: Trace, by: str, rows: Rows) -> list[OpGroup]:
    """These ops, grouped by `name` or `shape`, in no particular order."""
    if not len(rows):
        return []
    inputs = input_keys(inputs_of_ops(trace, rows)) if by == "shape" else None
    columns: list[NDArray[np.integer]] = [trace.name[rows]]
    if inputs:
        columns.append(inputs.number)
    first, number = distinct_rows(columns)
    all_spreads = spreads(number, trace.dur[rows])
    sums = op_sums(trace, rows, grouped(number, trace.start[rows]))
    groups = []
    for place, spread, sums_of_group in zip(first, all_spreads, sums, strict=True):
        fields: dict[str, Any] = {"name": trace.name_of(int(rows[place]))}
        if inputs:
            fields |= inputs.fields(int(inputs.number[place]))
        fields |= asdict(spread)
        fields |= sums_of_group
        groups.append(OpGroup(**fields))
    return groups


_MAX_LIST_LEVELS: Final = 4  # the inputs, a list of tensors, a shape


def input_keys(inputs: Arguments) -> Keys:
    """By the shapes and types of the inputs of ops, -1 if nothing was recorded; strides
    and values do not matter. The args are those of `many.INPUTS`."""
    numbers: dict[tuple[bytes, bytes], int] = {}
    # the last element is that of -1
    of_args = np.full(len(inputs.distinct) + 1, -1, dtype=np.int32)
    for number, (dims, types, *_) in enumerate(inputs.distinct):
        if dims or types:
            of_args[number] = numbers.setdefault((dims, types), len(numbers))
    distinct_texts = [*numbers, (b"", b"")]  # the last is that of -1

    def fields(number: int) -> dict[str, Any]:
        """`shapes` and `dtypes` as in JSON: lists, None if nothing was recorded."""
        dims_text, types_text = distinct_texts[number]
        return {
            "shapes": _plain_list(parsed(dims_text)),
            "dtypes": _type_words(_plain_list(parsed(types_text))),
        }

    return Keys(number=of_args[inputs.number], fields=fields)


def _plain_list(value: Any) -> list[Any] | None:
    plain: list[Any] | None = _plain(value) if isinstance(value, list) else None
    return plain


def _type_words(types: list[Any] | None) -> list[Any] | None:
    """Our names of element types; other words, such as `Scalar`, unchanged."""
    if not types:
        return types
    return [
        (type_of(word) or word) if isinstance(word, str) else word for word in types
    ]


def _plain(value: Any, levels: int = _MAX_LIST_LEVELS) -> Any:
    """Integers that a double cannot represent as text; None for anything nested deeper
    than lists of tensors."""
    if isinstance(value, list):
        return [_plain(inner, levels - 1) for inner in value] if levels else None
    if isinstance(value, int):
        return exact_id(value)
    return value if isinstance(value, str | float) else None


class Keys(msgspec.Struct, frozen=True, eq=False):
    """`number[n]` is the group of kernel n; `fields` maps a number to what identifies
    the group."""

    number: NDArray[np.integer]
    fields: Callable[[int], dict[str, Any]]


def kernel_groups(
    trace: Trace, jobs: Jobs, by: str = "name"
) -> tuple[KernelGroup, ...]:
    """All kernels grouped by one of GROUPINGS, the largest total first; steps in time
    order. `jobs`: of all kernels."""
    rows = jobs.rows
    if not len(rows):
        return ()
    keys = GROUPINGS[by](trace, jobs)
    by_key = grouped(keys.number, trace.start[rows])
    effective = effective_ns(trace)[np.isin(trace.gpu_rows, rows)]
    all_spreads = spreads(keys.number, trace.dur[rows])
    work = _work_of_groups(trace, jobs, effective, by_key)
    groups = [
        KernelGroup(**keys.fields(number), **asdict(spread), **work_of_group)
        for number, spread, work_of_group in zip(
            by_key.keys.tolist(), all_spreads, work, strict=True
        )
    ]
    if by != "step":
        groups.sort(key=lambda group: (-group.total_ns, _identity(group)))
    return tuple(groups)


def _by_name(trace: Trace, jobs: Jobs) -> Keys:
    return Keys(
        number=trace.name[jobs.rows],
        fields=lambda name: {"name": trace.names[name]},
    )


def _by_op(trace: Trace, jobs: Jobs) -> Keys:
    """By the innermost op around the launch."""
    op = trace.op[jobs.rows]
    return Keys(
        number=np.where(op >= 0, trace.name[op], -1),
        fields=lambda name: {"op": trace.names[name] if name >= 0 else None},
    )


def _by_shape(trace: Trace, jobs: Jobs) -> Keys:
    """By name, and by the op with the shapes and types of its inputs."""
    inputs = input_keys(jobs.inputs)
    name = trace.name[jobs.rows]
    op = _by_op(trace, jobs).number
    first, number = distinct_rows((name, op, inputs.number))

    def fields(group: int) -> dict[str, Any]:
        place = first[group]
        op_name = int(op[place])
        return {
            "name": trace.names[int(name[place])],
            "op": trace.names[op_name] if op_name >= 0 else None,
            **inputs.fields(int(inputs.number[place])),
        }

    return Keys(number=number, fields=fields)


def _by_module(trace: Trace, jobs: Jobs) -> Keys:
    return module_keys(trace, jobs.rows, origins(trace))


def module_keys(trace: Trace, kernels: Rows, found: Origins) -> Keys:
    """By the kind of module, or the annotation, that the work of some kernels belongs
    to; `found`: where the work of the trace comes from."""
    return _by_label(trace, module_of(found, kernels), "module", label_of)


def _by_kind(trace: Trace, jobs: Jobs) -> Keys:
    """By the kind of work, as the legend of the timeline shows it."""
    return _by_label(trace, jobs.rows, "kind", legend_kind)


def _by_library(trace: Trace, jobs: Jobs) -> Keys:
    """By the library, as far as the naming scheme shows it."""
    return _by_label(trace, jobs.rows, "family", _family_of)


def _family_of(name: str) -> str | None:
    kernel = decode(name)
    return kernel.family if kernel else None


def _by_label(
    trace: Trace,
    rows: NDArray[np.integer],
    field: str,
    label: Callable[[str], str | None],
) -> Keys:
    """By what the names of these rows say; None for -1."""
    numbers: dict[str | None, int] = {}
    of_name = np.full(len(trace.names), -1, dtype=np.int64)
    for name in distinct(trace.name[rows[rows >= 0]]).tolist():
        of_name[name] = numbers.setdefault(label(trace.names[name]), len(numbers))
    labels = [*numbers, None]
    no_label = len(numbers)
    return Keys(
        number=np.where(rows >= 0, of_name[trace.name[rows]], no_label),
        fields=lambda number: {field: labels[number]},
    )


def _by_stream(trace: Trace, jobs: Jobs) -> Keys:
    """By stream; its sub-rows are combined."""

    def fields(thread: int) -> dict[str, Any]:
        track = trace.first_track(thread)
        return {"device": exact_id(track.pid), "stream": exact_id(track.tid)}

    thread = trace.thread_of_track[trace.track[jobs.rows]]
    return Keys(number=thread, fields=fields)


def _by_step(trace: Trace, jobs: Jobs) -> Keys:
    """By the step that launched the kernel; None if no step did."""
    names = [*labels_of(steps_of(trace).names), None]
    no_step = len(names) - 1
    step_of_row = np.full(len(trace), no_step, dtype=np.int64)
    for number, launched in enumerate(launched_in_steps(trace)):
        step_of_row[launched] = number
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


def _work_of_groups(
    trace: Trace, jobs: Jobs, effective_ns: Int64s, groups: Groups
) -> Iterator[dict[str, Any]]:
    """The fields of KernelGroup from `effective_ns` on, of each group of the kernels of
    `jobs`."""
    dur = trace.dur[jobs.rows]
    has_share = share_known(trace, jobs)
    is_memory_bound = jobs.of_each(lambda job: float(job.limits.bound == "memory")) == 1
    waves = jobs.of_each(lambda job: job.tiles.waves if job.tiles else None)
    has_waves = ~np.isnan(waves)
    least_ns = jobs.of_each(lambda job: job.limits.least_ns)

    def sums(amount: NDArray[Any], where: Flags) -> list[Any]:
        """The amounts of the kernels for which they are known, by group."""
        by_group: list[Any] = groups.sums(np.where(where, amount, 0)).tolist()
        return by_group

    effective_sums = groups.sums(effective_ns).tolist()
    least_sums = sums(least_ns, has_share)
    share_sums = sums(dur, has_share)
    effective_share_sums = sums(effective_ns, has_share)
    share_counts = groups.sums(has_share.astype(np.int64)).tolist()
    memory_bound = has_share & is_memory_bound
    memory_counts = groups.sums(memory_bound.astype(np.int64)).tolist()
    wave_sums = sums(waves, has_waves)
    wave_counts = groups.sums(has_waves.astype(np.int64)).tolist()
    flop = _known_amounts(jobs, groups, dur, "flop")
    moved = _known_amounts(jobs, groups, dur, "bytes")
    for n in range(len(groups)):
        share_ns = share_sums[n]
        effective_share_ns = effective_share_sums[n]
        share = least_sums[n] / share_ns if share_ns else None
        effective_share = None
        if effective_share_ns:
            effective_share = min(1.0, least_sums[n] / effective_share_ns)
        yield {
            "effective_ns": effective_sums[n],
            "flop": flop[n].amount,
            "flop_ns": flop[n].ns,
            "bytes": moved[n].amount,
            "bytes_ns": moved[n].ns,
            "share_of_peak": share,
            "share_of_peak_effective": effective_share,
            "share_ns": share_ns,
            "bound": _common_bound(share_counts[n], memory_counts[n]),
            "waves": wave_sums[n] / wave_counts[n] if wave_counts[n] else None,
        }


def _common_bound(kernels: int, by_memory: int) -> str | None:
    """What limits all kernels of a group; None if it is not the same, or not known of
    any."""
    if not kernels:
        return None
    if by_memory == 0:
        return "compute"
    return "memory" if by_memory == kernels else None


class _KnownAmount(NamedTuple):
    """FLOP or bytes of the kernels of a group for which they are known."""

    amount: float | None  # None: of no kernel
    ns: int  # the durations of these kernels


def _known_amounts(
    jobs: Jobs, groups: Groups, dur: Int64s, what: Literal["flop", "bytes"]
) -> list[_KnownAmount]:
    """Of each group. A sum that is larger than 2^53, as those of FLOP may be, is
    rounded to a double."""
    amounts = [getattr(job.amount, what) for job in jobs.distinct]
    # the last entry is that of number -1
    is_known = np.array(
        [*(amount is not None for amount in amounts), False], dtype=np.bool_
    )[jobs.number]
    exact = np.array([*(amount or 0 for amount in amounts), 0], dtype=object)
    sums = groups.sums(exact[jobs.number]).tolist()
    counts = groups.sums(is_known.astype(np.int64)).tolist()
    ns_sums = groups.sums(np.where(is_known, dur, 0)).tolist()
    known_amounts = []
    for total, count, ns in zip(sums, counts, ns_sums, strict=True):
        rounded = total if total <= LARGEST else float(total)
        amount = rounded if count else None
        known_amounts.append(_KnownAmount(amount=amount, ns=ns))
    return known_amounts
