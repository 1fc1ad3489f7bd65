"""Kernels grouped by name, op, shape and so on, with the work that they needed; and CPU
ops by name, or by name with the shapes and types of their inputs.

A grouping of kernels is an entry of GROUPINGS: its name, and a function that takes the
trace and the jobs of its kernels and returns their `Keys`. `arguments.KERNELS_BY` has
the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from fusetui.analysis.questions.busy import effective_ns
from fusetui.analysis.questions.totals import Groups, Spread, grouped, op_sums, spreads
from fusetui.gpu.kernel_names import KernelName, decode
from fusetui.gpu.roofline.inputs import type_of
from fusetui.gpu.roofline.many import Jobs, inputs_of_ops, share_known
from fusetui.trace.layout.steps import labels_of, launched_in_steps, steps_of
from fusetui.trace.model.arrays import Int64s, Rows, distinct, distinct_rows
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
    """A group of ops; `total_ns` is without those inside another one of the group."""

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
    recorded = _groups(trace, by, trace.rows_of(Role.OP))
    taken = np.flatnonzero(
        (trace.role == Role.CAPTURED) & (trace.source_role == Role.OP)
    )
    captured = []
    for group in _groups(trace, by, taken):
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


def _groups(trace: Trace, by: str, rows: Rows) -> list[OpGroup]:
    if not len(rows):
        return []
    given = input_keys(inputs_of_ops(trace, rows)) if by == "shape" else None
    keys = (trace.name[rows], *([given.number] if given else []))
    first, number = distinct_rows(keys)
    found = []
    sums = op_sums(trace, rows, grouped(number, trace.start[rows]))
    for place, spread, own in zip(
        first, spreads(number, trace.dur[rows]), sums, strict=True
    ):
        fields = {"name": trace.name_of(int(rows[place])), **asdict(spread), **own}
        fields |= given.fields(int(given.number[place])) if given else {}
        found.append(OpGroup(**fields))
    return found


DEEPEST = 4  # levels of lists: the inputs, a list of tensors, a shape


def input_keys(found: Arguments) -> Keys:
    """By the shapes and types of the inputs of ops, -1 if nothing was recorded; strides
    and values do not matter. The args are those of `many.INPUTS`."""
    numbers: dict[tuple[bytes, bytes], int] = {}
    # the last element is that of -1
    of_args = np.full(len(found.distinct) + 1, -1, dtype=np.int32)
    for number, (dims, types, *_) in enumerate(found.distinct):
        if dims or types:
            of_args[number] = numbers.setdefault((dims, types), len(numbers))
    distinct = [*numbers, (b"", b"")]  # the last is that of -1

    def fields(number: int) -> dict[str, Any]:
        """`shapes` and `dtypes` as in JSON: lists, None if nothing was recorded."""
        each = map(parsed, distinct[number])
        dims, types = (
            _plain(value) if isinstance(value, list) else None for value in each
        )
        # our names of element types; other words, such as `Scalar`, unchanged
        words = types and [
            (type_of(w) or w) if isinstance(w, str) else w for w in types
        ]
        return {"shapes": dims, "dtypes": words}

    return Keys(of_args[found.number], fields)


def _plain(value: Any, levels: int = DEEPEST) -> Any:
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
    trace: Trace, known: Jobs, by: str = "name"
) -> tuple[KernelGroup, ...]:
    """All kernels grouped by one of GROUPINGS, the largest total first; steps in time
    order. `known` are the jobs of all kernels."""
    rows = known.rows
    if not len(rows):
        return ()
    keys = GROUPINGS[by](trace, known)
    groups = grouped(keys.number, trace.start[rows])
    each = effective_ns(trace)[np.isin(trace.gpu_rows, rows)]
    all_spreads = spreads(keys.number, trace.dur[rows])
    work = _work_of_groups(trace, known, each, groups)
    found = [
        KernelGroup(**keys.fields(number), **asdict(spread), **own)
        for number, spread, own in zip(
            groups.keys.tolist(), all_spreads, work, strict=True
        )
    ]
    if by != "step":
        found.sort(key=lambda one: (-one.total_ns, _identity(one)))
    return tuple(found)


def _by_op(trace: Trace, known: Jobs) -> Keys:
    """By the innermost op around the launch."""
    op = trace.op[known.rows]
    number = np.where(op >= 0, trace.name[op], -1)
    return Keys(number, lambda n: {"op": trace.names[n] if n >= 0 else None})


def _by_shape(trace: Trace, known: Jobs) -> Keys:
    """By name, and by the op with the shapes and types of its inputs."""
    given = input_keys(known.inputs)
    op = _by_op(trace, known).number
    columns = (trace.name[known.rows], op, given.number)
    first, number = distinct_rows(columns)

    def fields(group: int) -> dict[str, Any]:
        name, op, shapes = (int(column[first[group]]) for column in columns)
        return {
            "name": trace.names[name],
            "op": trace.names[op] if op >= 0 else None,
            **given.fields(shapes),
        }

    return Keys(number, fields)


def module_keys(trace: Trace, kernels: Rows, found: Origins) -> Keys:
    """By the kind of module, or the annotation, that the work of some kernels belongs
    to."""
    return _by_label(trace, module_of(found, kernels), "module", label_of)


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
    number = np.where(rows >= 0, of_name[trace.name[rows]], len(numbers))
    return Keys(number, lambda n: {field: labels[n]})


def _by_stream(trace: Trace, known: Jobs) -> Keys:
    """By stream; its sub-rows are combined."""

    def fields(thread: int) -> dict[str, Any]:
        track = trace.first_track(thread)
        return {"device": exact_id(track.pid), "stream": exact_id(track.tid)}

    return Keys(trace.thread_of_track[trace.track[known.rows]], fields)


def _by_step(trace: Trace, known: Jobs) -> Keys:
    """By the step that launched the kernel; None if no step did."""
    names = [*labels_of(steps_of(trace).names), None]
    of_row = np.full(len(trace), len(names) - 1, dtype=np.int64)
    for number, launched in enumerate(launched_in_steps(trace)):
        of_row[launched] = number
    return Keys(of_row[known.rows], lambda n: {"step": names[n]})


GROUPINGS: Final[dict[str, Callable[[Trace, Jobs], Keys]]] = {
    "name": lambda trace, known: Keys(
        trace.name[known.rows], lambda n: {"name": trace.names[n]}
    ),
    "op": _by_op,
    "shape": _by_shape,
    "module": lambda trace, known: module_keys(trace, known.rows, origins(trace)),
    "family": lambda trace, known: _by_label(  # which usually means the library
        trace, known.rows, "family", lambda name: getattr(decode(name), "family", None)
    ),
    "stream": _by_stream,
    "step": _by_step,
}


def _work_of_groups(
    trace: Trace, known: Jobs, effective_ns: Int64s, groups: Groups
) -> Iterator[dict[str, Any]]:
    """The fields of KernelGroup from `effective_ns` on, of each group of the kernels of
    `known`."""
    dur = trace.dur[known.rows]
    near = share_known(trace, known)
    waves = known.of_each(lambda job: job.tiles.waves if job.tiles else None)
    tiled = ~np.isnan(waves)
    memory = known.of_each(lambda job: float(job.limits.bound == "memory")) == 1
    amounts: tuple[tuple[NDArray[np.bool_] | bool, NDArray[Any] | int], ...] = (
        (near, known.of_each(lambda job: job.limits.least_ns)),
        (near, dur),
        (near, effective_ns),
        (near, 1),
        (near & memory, 1),
        (tiled, waves),
        (tiled, 1),
        (True, effective_ns),
    )
    sums = [
        groups.sums(np.where(where, amount, 0)).tolist() for where, amount in amounts
    ]
    flop, moved = (_amounts(known, groups, dur, what) for what in ("flop", "bytes"))
    for n, (
        least_ns,
        share_ns,
        own_ns,
        shares,
        by_memory,
        wave,
        tiles,
        whole_ns,
    ) in enumerate(zip(*sums, strict=True)):
        yield {
            "effective_ns": whole_ns,
            "flop": flop[n][0],
            "flop_ns": flop[n][1],
            "bytes": moved[n][0],
            "bytes_ns": moved[n][1],
            "share_of_peak": least_ns / share_ns if share_ns else None,
            "share_of_peak_effective": min(1.0, least_ns / own_ns) if own_ns else None,
            "share_ns": share_ns,
            "bound": {0: "compute", shares: "memory"}.get(by_memory)
            if shares
            else None,
            "waves": wave / tiles if tiles else None,
        }


def _amounts(
    known: Jobs, groups: Groups, dur: Int64s, what: str
) -> list[tuple[float | None, int]]:
    """FLOP or bytes of each group, and the durations behind them; rounded to a double
    if it is larger than 2^53, as sums of FLOP may be."""
    amount = [getattr(job.amount, what) for job in known.distinct]
    has = np.array([*(value is not None for value in amount), False], dtype=np.bool_)[
        known.number
    ]
    exact = np.array([*(value or 0 for value in amount), 0], dtype=object)[known.number]
    columns = exact, has.astype(np.int64), np.where(has, dur, 0)
    each = zip(*(groups.sums(column).tolist() for column in columns), strict=True)
    return [
        ((work if work <= LARGEST else float(work)) if jobs else None, ns)
        for work, jobs, ns in each
    ]
