"""The kernels of a trace in groups, sorted by any figure; without kernels, the events
of another accelerator, or else the CPU ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.groups import (
    GROUPINGS,
    Grouping,
    KernelWork,
    group_by_module,
    name_missing_group,
)
from fusetui.analysis.questions.totals import (
    Spread,
    measure_self_ns,
    summarize_durations,
)
from fusetui.gpu.kernel_names import decode
from fusetui.gpu.kinds import legend_kind, searched_kinds
from fusetui.gpu.roofline.inputs import NS
from fusetui.gpu.roofline.many import Jobs
from fusetui.text.figures import Unit, common_unit, unit_of
from fusetui.trace.layout.devices import other_accelerator
from fusetui.trace.model.arrays import Int64s, Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.events import Arguments
from fusetui.trace.model.grouping import grouped
from fusetui.trace.model.memo import memo
from fusetui.trace.program.modules import unclaimed_by_reason
from fusetui.trace.program.origin import NOWHERE_IN_WORDS, Nowhere, Origins
from fusetui.tui.layout.answer import longest
from fusetui.tui.layout.kinds import (
    SliceKind,
    classify_slice,
    label_of,
    narrow,
)

# of groups
BYS: Final = ("name", "kind", "library", "op", "shape", "module", "stream", "step")
SPREAD: Final = ("median", "min", "max")  # durations of one launch
MAX_TIME_CELLS: Final = 8
LATER: Final = ("shape", "module")  # those that are known only once the answer is
OF_PEAK: Final = "of peak"
UNIT_OF_RATE: Final = {"TFLOP/s": 1e12, "GB/s": 1e9}  # per second
WORK: Final = (OF_PEAK, *UNIT_OF_RATE)  # how well the device was used, where known
SORTS: Final = ("total", "count", *SPREAD, *WORK, "name")
IN_LEGEND: Final = {"elementwise": "pointwise"}
"""Kinds of decoded names, with the word that the legend has for the same."""
Floats = NDArray[np.float64]
NO_ARGS: Final = Arguments(np.empty(0, dtype=np.int32), ())


class Only(msgspec.Struct, frozen=True):
    """The kernels of one group alone."""

    by: str
    number: int
    label: str


class KernelView(msgspec.Struct, frozen=True):
    """What the page shows of them."""

    by: str = "name"
    sort: str = "total"
    only: tuple[Only, ...] = ()
    words: str = ""  # of the groups that are listed: each has all of these words
    shows_work: bool = False  # the columns of WORK in place of those of durations


class WorkSums(NamedTuple):
    """Of each group the sums of what is known, nan where nothing is: FLOP, bytes and
    the least time, each with the durations of the kernels for which it is known;
    arrays of shape [groups]."""

    flop: Floats
    flop_ns: Floats
    bytes: Floats
    bytes_ns: Floats
    least_ns: Floats
    share_ns: Floats


class KernelTable(msgspec.Struct, frozen=True, eq=False, dict=True):
    """A row for each group; `of[n]` is the index of the group of kernel n of `rows`."""

    trace: Trace
    by: str
    role: Role
    rows: Rows  # in order of time
    begins: Rows  # group n has rows[begins[n]:begins[n + 1]]
    spreads: tuple[Spread, ...]
    amounts: Int64s  # what is added up: the durations; of CPU ops their self time
    numbers: NDArray[np.integer]  # of each group, in the keys of `by`
    fields: Callable[[int], dict[str, Any]]
    work: KernelWork | None = None  # None until it is known, and of what are no kernels

    def __len__(self) -> int:
        return len(self.spreads)

    @cached_property
    def totals(self) -> Int64s:
        """The total time of each group in ns; shape [groups]. For CPU ops it is their
        self time."""
        # the total of a group is the difference of running sums at its boundaries
        sum_before = np.concatenate(([0], np.cumsum(self.amounts)))
        return np.diff(sum_before[self.begins])

    @cached_property
    def units(self) -> Mapping[str, Unit]:
        """The unit of each column of times. The durations of one launch share a unit,
        so that they can be compared."""
        launch_times = [self.figures(name).tolist() for name in SPREAD]
        launch_unit = common_unit(launch_times, MAX_TIME_CELLS)
        total_unit = unit_of(self.totals.tolist())
        return {"total": total_unit, **dict.fromkeys(SPREAD, launch_unit)}

    @cached_property
    def sums_of_work(self) -> WorkSums:
        """The work done by each group of kernels: floating-point operations, bytes
        moved, and the least possible time. A figure that is known of no kernel of a
        group is nan."""
        if self.work is None or not len(self):
            unknown = np.full(len(self), np.nan)
            return WorkSums(
                flop=unknown,
                flop_ns=unknown,
                bytes=unknown,
                bytes_ns=unknown,
                least_ns=unknown,
                share_ns=unknown,
            )
        work_index = np.searchsorted(self.work.rows, self.rows)
        flop, flop_ns = self._sum_known(self.work.flop[work_index])
        moved, moved_ns = self._sum_known(self.work.bytes[work_index])
        least_ns, share_ns = self._sum_known(self.work.least_ns[work_index])
        return WorkSums(
            flop=flop,
            flop_ns=flop_ns,
            bytes=moved,
            bytes_ns=moved_ns,
            least_ns=least_ns,
            share_ns=share_ns,
        )

    def _sum_known(self, amounts: Floats) -> tuple[Floats, Floats]:
        """Return two sums for each group: of a figure, and of the durations of the
        kernels for which it is known.

        `amounts` has the figure of each kernel, nan where it is not known. Both sums
        are nan for a group without any known figure. The durations of other kernels are
        excluded, so that a rate computed from both sums is right.
        """
        is_known = ~np.isnan(amounts)
        durations = self.trace.dur[self.rows]
        group_starts = self.begins[:-1]
        # reduceat combines the values from each start up to the next one
        has_any = np.logical_or.reduceat(is_known, group_starts)
        sums = np.add.reduceat(np.nan_to_num(amounts), group_starts)
        known_ns = np.add.reduceat(np.where(is_known, durations, 0), group_starts)
        return np.where(has_any, sums, np.nan), np.where(has_any, known_ns, np.nan)

    @cached_property
    def has_work(self) -> bool:
        """Whether the work of any group is known, so that its columns can be shown."""
        return any(not np.isnan(self.figures(name)).all() for name in WORK)

    def figures(self, sort: str) -> Int64s | Floats:
        """Return a column of the table: the figure named `sort` of each group; shape
        [groups].

        It is a time in ns, the number of kernels, or a rate of work. A rate is nan
        where it is not known.
        """
        if sort == "total":
            return self.totals
        if sort in WORK:
            return self._rates(sort)
        spread_field = sort if sort == "count" else f"{sort}_ns"
        values = [getattr(spread, spread_field) for spread in self.spreads]
        return np.array(values, dtype=np.int64)

    def _rates(self, name: str) -> Floats:
        """Return how well each group of kernels used the device; shape [groups].

        `name` is "of peak" (a share), "TFLOP/s" or "GB/s". The rate is nan for groups
        whose work is not known. A group with no work of this kind also has nan, not 0.
        """
        sums = self.sums_of_work
        if name == OF_PEAK:
            return _divide(sums.least_ns, sums.share_ns)
        if name == "TFLOP/s":
            work_done = sums.flop
            known_ns = sums.flop_ns
        else:
            work_done = sums.bytes
            known_ns = sums.bytes_ns
        # a rate of 0 would look like a slow kernel
        work_or_unknown = np.where(work_done > 0, work_done, np.nan)
        work_per_second = _divide(work_or_unknown, known_ns) * NS
        return work_per_second / UNIT_OF_RATE[name]

    @cached_property
    def whole_ns(self) -> int:
        return int(self.totals.sum())

    def rows_of(self, group: int) -> Rows:
        """Return the kernels of a group as rows of the trace, in order of time."""
        return self.rows[self.begins[group] : self.begins[group + 1]]

    def longest(self, group: int) -> int:
        return longest(self.trace, self.rows_of(group))

    def label(self, group: int) -> str:
        """Return what the kernels of a group have in common, such as a name, a module
        or a stream. Kernels outside of all modules have the reason in parentheses. All
        characters are printable and one cell wide."""
        fields = self.fields(int(self.numbers[group]))
        if self.by == "name":
            return label_of(int(self.role), fields["name"])
        if self.by == "module" and fields["why"]:
            return f"({NOWHERE_IN_WORDS[fields['why']]})"
        if self.by == "shape":
            name = label_of(int(self.role), fields["name"])
            return narrow(f"{name}  {_format_op_and_shapes(fields)}")
        values = [str(value) for value in fields.values() if value is not None]
        # of a stream: the number of its device, then its own
        if values:
            return narrow(" stream ".join(values))
        return f"({name_missing_group(self.by)})"

    def full_name(self, group: int) -> str:
        """Return the name of a group's kernels as it is in the trace. If groups are not
        made by name, return the label."""
        fields = self.fields(int(self.numbers[group]))
        return str(fields.get("name") or self.label(group))

    def kind(self, group: int) -> SliceKind:
        return classify_slice(int(self.role), self.trace.name_of(self.longest(group)))

    @memo(len(SORTS))
    def order(self, sort: str) -> Rows:
        """Return the groups sorted by a column, the largest first.

        Names are sorted alphabetically. Steps sorted by total time stay in order of
        time. Groups without a known rate come last.
        """
        if sort == "name":
            labels = [self.label(group) for group in range(len(self))]
            by_label = sorted(range(len(self)), key=labels.__getitem__)
            return np.array(by_label, dtype=np.intp)
        if self.by == "step" and sort == "total":
            return np.arange(len(self))
        if sort in WORK:  # what is not known comes last
            return np.argsort(-np.nan_to_num(self.figures(sort), nan=-1), kind="stable")
        return np.argsort(-self.figures(sort), kind="stable")

    @memo(8)
    def listed(self, sort: str, words: str) -> Rows:
        """Return the sorted groups that match a filter: those whose name or label
        contains all words of `words`. Case does not matter, and no words match all
        groups."""
        order = self.order(sort)
        search_words = words.lower().split()
        if not search_words:
            return order
        has_words = []
        for group in order:
            text = self._searchable_texts[group]
            has_words.append(all(word in text for word in search_words))
        return order[np.array(has_words, dtype=np.bool_)]

    @cached_property
    def _searchable_texts(self) -> list[str]:
        """The text of each group in which the filter searches, in lower case: its name
        and label, and of a kernel its kinds and library, such as `kind:gemm`."""
        texts = []
        for group in range(len(self)):
            name = self.full_name(group)
            text = f"{name} {self.label(group)}"
            if self.by == "name" and self.role is Role.KERNEL:
                kinds = sorted(f"kind:{kind}" for kind in searched_kinds(name))
                text += f" {' '.join(kinds)} library:{_find_library(name)}"
            texts.append(text.lower())
        return texts


def _divide(amount: Floats, ns: Floats) -> Floats:
    """Divide an amount by a time in ns. The result is nan where the time is 0 or nan."""
    return amount / np.where(ns > 0, ns, np.nan)


@memo()
def keys_of(trace: Trace) -> Mapping[str, Grouping]:
    """Return the groups of all kernels by each grouping that needs no further analysis,
    such as name, kind and stream. Shapes and modules follow later."""
    return group_kernels_fully(trace, None, None)


def group_kernels_fully(
    trace: Trace, known: Jobs | None, origins: Origins | None
) -> Mapping[str, Grouping]:
    """Return the groups of all kernels by each grouping whose facts are known.

    Args:
        trace: The trace with the kernels.
        known: The shapes that each kernel worked on; None until computed.
        origins: The module that each kernel comes from; None until computed.

    Returns:
        Groupings by the name of the grouping; empty in a trace without kernels.
    """
    rows = trace.rows_of(Role.KERNEL)
    if not len(rows):
        return {}
    jobs = known or _make_unknown_jobs(rows)
    keys: dict[str, Grouping] = {}
    for by, group in GROUPINGS.items():
        if by not in LATER:
            keys[by] = group(trace, jobs)
    if known and origins:
        keys["shape"] = GROUPINGS["shape"](trace, known)
        keys["module"] = _group_by_module(trace, rows, origins)
    return keys


def _group_by_module(trace: Trace, kernels: Rows, origins: Origins) -> Grouping:
    """Return the groups of kernels by module. Kernels that belong to no module are
    grouped by the reason, as on the page of modules.

    Args:
        trace: The trace with the kernels.
        kernels: Their rows.
        origins: The module that each kernel comes from.

    Returns:
        The number of the group of each kernel, and the fields of each group: its
        module, or the reason why there is none.
    """
    by_module = group_by_module(trace, kernels, origins)
    credit = origins.credit(origins.regions, kernels)
    which_of_reason = unclaimed_by_reason(trace, kernels, credit)
    number = by_module.number.copy()
    why_of_number: dict[int, Nowhere] = {}
    for why, kernels_of_reason in which_of_reason.items():
        # above the numbers of all modules and of earlier reasons
        new_number = int(by_module.number.max(initial=0)) + 1 + len(why_of_number)
        why_of_number[new_number] = why
        number[kernels_of_reason] = new_number

    def fields(number: int) -> dict[str, Any]:
        """The module, or why there is none."""
        why = why_of_number.get(number)
        if why is not None:
            return {"module": None, "why": why}
        return {**by_module.identify(number), "why": None}

    return Grouping(number=number, identify=fields)


def _make_unknown_jobs(rows: Rows) -> Jobs:
    """Return a stand-in for the jobs of kernels (their ops and shapes) until these are
    known."""
    job_of_kernel = np.full(len(rows), -1, dtype=np.int32)
    return Jobs(rows, job_of_kernel, (), NO_ARGS, NO_ARGS)


def build_table(
    trace: Trace,
    keys: Mapping[str, Grouping],
    view: KernelView,
    work: KernelWork | None = None,
) -> KernelTable:
    """Build the table of kernels, with a row for each group.

    Kernels are grouped by `view.by`, or by name until that grouping is known. Only
    kernels in the groups of `view.only` count. A trace without kernels gives a table of
    other device events, or else of CPU ops by self time.

    Args:
        trace: The trace with the kernels.
        keys: The group of each kernel, by the name of the grouping.
        view: The grouping and the filters.
        work: The work of each kernel; None until it is known.
    """
    kernels = trace.rows_of(Role.KERNEL)
    if not len(kernels):
        return _build_table_of_other_work(trace)
    by = view.by if view.by in keys else "name"
    is_kept = np.ones(len(kernels), dtype=np.bool_)
    for filter_group in view.only:
        is_kept &= keys[filter_group.by].number == filter_group.number
    kept_keys = Grouping(number=keys[by].number[is_kept], identify=keys[by].identify)
    return _build_table(
        trace, Role.KERNEL, by, kernels[is_kept], kept_keys, trace.dur, work
    )


def _build_table_of_other_work(trace: Trace) -> KernelTable:
    """Build the table for a trace without GPU kernels: events of another accelerator by
    name, or else CPU ops by name and self time."""
    accelerator, _ = other_accelerator(trace)
    role = Role.DEVICE if accelerator else Role.OP
    rows = trace.rows_of(role)
    by_name = Grouping(
        number=trace.name[rows],
        identify=lambda number: {"name": trace.names[number]},
    )
    ns_of_row = trace.dur if accelerator else measure_self_ns(trace)
    return _build_table(trace, role, "name", rows, by_name, ns_of_row)


def _build_table(
    trace: Trace,
    role: Role,
    by: str,
    rows: Rows,
    keys: Grouping,
    ns_of_row: Int64s,
    work: KernelWork | None = None,
) -> KernelTable:
    """Build a table with a row for each distinct key.

    Args:
        trace: The trace with the slices.
        role: What the slices are, such as kernels or ops.
        by: The name of the grouping.
        rows: The slices.
        keys: The group of each slice, and the fields of each group.
        ns_of_row: What is added up of each row of the trace.
        work: The work of each kernel; None until it is known.
    """
    groups = grouped(keys.number, trace.start[rows])
    has_rows = len(rows) > 0
    grouped_rows = rows[groups.order]
    return KernelTable(
        trace=trace,
        by=by,
        role=role,
        rows=grouped_rows,
        begins=groups.begins if has_rows else np.zeros(1, dtype=np.intp),
        spreads=tuple(summarize_durations(keys.number, trace.dur[rows]))
        if has_rows
        else (),
        amounts=ns_of_row[grouped_rows],
        numbers=groups.keys,
        fields=keys.identify,
        work=work,
    )


def _format_op_and_shapes(fields: Mapping[str, Any]) -> str:
    """Return the op that launched a kernel and the shapes of its input tensors, such as
    `mm 8x4 4x2`. Inputs that are not tensors are left out."""
    shapes = []
    for dims in fields.get("shapes") or ():
        if isinstance(dims, list) and dims:
            shapes.append("x".join(str(dim) for dim in dims))
    op = str(fields.get("op") or "").removeprefix("aten::")
    return f"{op} {' '.join(shapes)}".strip()


def _find_library(name: str) -> str:
    """Return the library that the name of a kernel comes from; "" for none that is
    known."""
    decoded = decode(name)
    return decoded.family if decoded else ""


def describe_kernel_name(name: str) -> tuple[str, ...]:
    """Return what the name of a kernel says about it: kind, tile, layout, data type,
    stages and architecture.

    Each of the six texts is "" if the name does not say, but for the kind: it is that
    of the legend, then a more exact word where there is one, such as `gemm: conv`.
    """
    kind = legend_kind(name)
    decoded = decode(name)
    if decoded is None:
        return (kind, "", "", "", "", "")
    exact_kind = IN_LEGEND.get(decoded.op or "", decoded.op)
    if exact_kind and exact_kind != kind:
        kind = f"{kind}: {exact_kind}"
    sizes = (decoded.tile_m, decoded.tile_n, decoded.tile_k)
    tile = "x".join(str(size) for size in sizes if size is not None)
    values = (
        kind,
        tile,
        decoded.layout,
        decoded.dtype_a or decoded.dtype,
        decoded.stages,
        decoded.arch,
    )
    return tuple(str(value or "") for value in values)
