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
    KernelWork,
    Keys,
    module_keys,
    without_group,
)
from fusetui.analysis.questions.totals import Spread, self_ns, spreads
from fusetui.gpu.kernel_names import decode
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
    kind_of,
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
        """What is added up of each group, in ns; shape [groups]."""
        before = np.concatenate(([0], np.cumsum(self.amounts)))
        return np.diff(before[self.begins])

    @cached_property
    def units(self) -> Mapping[str, Unit]:
        """By column; the durations of one launch have the same unit, so that they can
        be compared."""
        spread = [self.figures(name).tolist() for name in SPREAD]
        of_launch = common_unit(spread, MAX_TIME_CELLS)
        total = unit_of(self.totals.tolist())
        return {"total": total, **dict.fromkeys(SPREAD, of_launch)}

    @cached_property
    def sums_of_work(self) -> WorkSums:
        """What is known of the work of each group, nan where nothing is."""
        if self.work is None or not len(self):
            nothing = np.full(len(self), np.nan)
            return WorkSums(*(nothing,) * len(WorkSums._fields))
        place = np.searchsorted(self.work.rows, self.rows)
        flop, flop_ns = self._known_sums(self.work.flop[place])
        moved, moved_ns = self._known_sums(self.work.bytes[place])
        least_ns, share_ns = self._known_sums(self.work.least_ns[place])
        return WorkSums(
            flop=flop,
            flop_ns=flop_ns,
            bytes=moved,
            bytes_ns=moved_ns,
            least_ns=least_ns,
            share_ns=share_ns,
        )

    def _known_sums(self, amounts: Floats) -> tuple[Floats, Floats]:
        """The sums of an amount of each kernel, and of the durations of the kernels for
        which it is known; nan for groups for which it is known of none."""
        is_known = ~np.isnan(amounts)
        durations = self.trace.dur[self.rows]
        starts = self.begins[:-1]
        has_any = np.logical_or.reduceat(is_known, starts)
        sums = np.add.reduceat(np.nan_to_num(amounts), starts)
        known_ns = np.add.reduceat(np.where(is_known, durations, 0), starts)
        return np.where(has_any, sums, np.nan), np.where(has_any, known_ns, np.nan)

    @cached_property
    def has_work(self) -> bool:
        """Whether any figure of WORK is known of any group."""
        return any(not np.isnan(self.figures(name)).all() for name in WORK)

    def figures(self, sort: str) -> Int64s | Floats:
        """A figure of each group: a time in ns, the count, or how well the device was
        used, nan where that is not known; shape [groups]."""
        if sort == "total":
            return self.totals
        if sort in WORK:
            return self._rates(sort)
        field = sort if sort == "count" else f"{sort}_ns"
        values = [getattr(spread, field) for spread in self.spreads]
        return np.array(values, dtype=np.int64)

    def _rates(self, name: str) -> Floats:
        """The share of peak of each group, or so many units of work per second; those
        of no work are not known, as in `fusetui kernels`."""
        sums = self.sums_of_work
        if name == OF_PEAK:
            return _divided(sums.least_ns, sums.share_ns)
        if name == "TFLOP/s":
            amount, ns = sums.flop, sums.flop_ns
        else:
            amount, ns = sums.bytes, sums.bytes_ns
        amount_per_s = _divided(np.where(amount > 0, amount, np.nan), ns) * NS
        return amount_per_s / UNIT_OF_RATE[name]

    @cached_property
    def whole_ns(self) -> int:
        return int(self.totals.sum())

    def rows_of(self, group: int) -> Rows:
        """The kernels of a group, in order of time."""
        return self.rows[self.begins[group] : self.begins[group + 1]]

    def longest(self, group: int) -> int:
        return longest(self.trace, self.rows_of(group))

    def label(self, group: int) -> str:
        """What the kernels of a group have in common, printable, a cell a character."""
        fields = self.fields(int(self.numbers[group]))
        if self.by == "name":
            return label_of(int(self.role), fields["name"])
        if self.by == "module" and fields["why"]:
            return f"({NOWHERE_IN_WORDS[fields['why']]})"
        if self.by == "shape":
            name = label_of(int(self.role), fields["name"])
            return narrow(f"{name}  {_shape(fields)}")
        values = [str(value) for value in fields.values() if value is not None]
        # of a stream: the number of its device, then its own
        if values:
            return narrow(" stream ".join(values))
        return f"({without_group(self.by)})"

    def full_name(self, group: int) -> str:
        """The name as the trace has it, else the label."""
        fields = self.fields(int(self.numbers[group]))
        return str(fields.get("name") or self.label(group))

    def kind(self, group: int) -> SliceKind:
        return kind_of(int(self.role), self.trace.name_of(self.longest(group)))

    @memo(len(SORTS))
    def order(self, sort: str) -> Rows:
        """The groups, the largest first, names in order of the alphabet; steps by total
        in order of time."""
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
        """The groups in this order; only those whose name or label has all of some
        words, in any case."""
        order = self.order(sort)
        parts = words.lower().split()
        if not parts:
            return order
        texts = self._searchable_texts
        has_words = [all(part in texts[group] for part in parts) for group in order]
        return order[np.array(has_words, dtype=np.bool_)]

    @cached_property
    def _searchable_texts(self) -> list[str]:
        """Of each group the texts in which words are looked for, in lower case."""
        return [
            f"{self.full_name(group)} {self.label(group)}".lower()
            for group in range(len(self))
        ]


def _divided(amount: Floats, ns: Floats) -> Floats:
    """An amount by a time, nan where the time is 0 or not known."""
    return amount / np.where(ns > 0, ns, np.nan)


@memo()
def keys_of(trace: Trace) -> Mapping[str, Keys]:
    """The groups of all kernels by each of BYS that needs no answer."""
    return keys_with(trace, None, None)


def keys_with(
    trace: Trace, known: Jobs | None, origins: Origins | None
) -> Mapping[str, Keys]:
    """The groups of all kernels by each of BYS, as far as they are known."""
    rows = trace.rows_of(Role.KERNEL)
    if not len(rows):
        return {}
    jobs = known or _unknown_jobs(rows)
    keys: dict[str, Keys] = {}
    for by, group in GROUPINGS.items():
        if by not in LATER:
            keys[by] = group(trace, jobs)
    if known and origins:
        keys["shape"] = GROUPINGS["shape"](trace, known)
        keys["module"] = _module_keys(trace, rows, origins)
    return keys


def _module_keys(trace: Trace, kernels: Rows, origins: Origins) -> Keys:
    """Kernels by module; those of no module by the reason, as on the page of modules."""
    by_module = module_keys(trace, kernels, origins)
    credit = origins.credit(origins.regions, kernels)
    which_of_reason = unclaimed_by_reason(trace, kernels, credit)
    number = by_module.number.copy()
    why_of_number: dict[int, Nowhere] = {}
    for why, which in which_of_reason.items():
        new_number = int(by_module.number.max(initial=0)) + 1 + len(why_of_number)
        why_of_number[new_number] = why
        number[which] = new_number

    def fields(number: int) -> dict[str, Any]:
        """The module, or why there is none."""
        why = why_of_number.get(number)
        if why is not None:
            return {"module": None, "why": why}
        return {**by_module.fields(number), "why": None}

    return Keys(number, fields)


def _unknown_jobs(rows: Rows) -> Jobs:
    """The jobs of kernels of which nothing is known."""
    of_kernel = np.full(len(rows), -1, dtype=np.int32)
    return Jobs(rows, of_kernel, (), NO_ARGS, NO_ARGS)


def table_of(
    trace: Trace,
    keys: Mapping[str, Keys],
    view: KernelView,
    work: KernelWork | None = None,
) -> KernelTable:
    """The kernels by `view.by`, else by name where these groups are not known. On a
    trace without any: the events of another accelerator by name, else CPU ops by name
    and self time."""
    kernels = trace.rows_of(Role.KERNEL)
    if not len(kernels):
        return _table_without_kernels(trace)
    by = view.by if view.by in keys else "name"
    kept = np.ones(len(kernels), dtype=np.bool_)
    for only in view.only:
        kept &= keys[only.by].number == only.number
    kept_keys = Keys(keys[by].number[kept], keys[by].fields)
    return _table(trace, Role.KERNEL, by, kernels[kept], kept_keys, trace.dur, work)


def _table_without_kernels(trace: Trace) -> KernelTable:
    """The events of an accelerator that is no GPU, else CPU ops; by name."""
    accelerator, _ = other_accelerator(trace)
    role = Role.DEVICE if accelerator else Role.OP
    rows = trace.rows_of(role)
    by_name = Keys(trace.name[rows], lambda number: {"name": trace.names[number]})
    ns_of_row = trace.dur if accelerator else self_ns(trace)
    return _table(trace, role, "name", rows, by_name, ns_of_row)


def _table(
    trace: Trace,
    role: Role,
    by: str,
    rows: Rows,
    keys: Keys,
    ns_of_row: Int64s,
    work: KernelWork | None = None,
) -> KernelTable:
    """The rows in groups of equal keys, [rows]; `ns_of_row`: what is added up of each
    row of the trace."""
    groups = grouped(keys.number, trace.start[rows])
    has_rows = len(rows) > 0
    in_order = rows[groups.order]
    return KernelTable(
        trace=trace,
        by=by,
        role=role,
        rows=in_order,
        begins=groups.begins if has_rows else np.zeros(1, dtype=np.intp),
        spreads=tuple(spreads(keys.number, trace.dur[rows])) if has_rows else (),
        amounts=ns_of_row[in_order],
        numbers=groups.keys,
        fields=keys.fields,
        work=work,
    )


def _shape(fields: Mapping[str, Any]) -> str:
    """The op of a kernel and the shapes of its inputs that are tensors: `mm 8x4 4x2`."""
    shapes = []
    for dims in fields.get("shapes") or ():
        if isinstance(dims, list) and dims:
            shapes.append("x".join(str(dim) for dim in dims))
    op = str(fields.get("op") or "").removeprefix("aten::")
    return f"{op} {' '.join(shapes)}".strip()


def decoded_texts(name: str) -> tuple[str, ...]:
    """Kind, tile, layout, dtype, stages and architecture; blank when the name does not
    say."""
    decoded = decode(name)
    if decoded is None:
        return ("",) * 6
    sizes = (decoded.tile_m, decoded.tile_n, decoded.tile_k)
    tile = "x".join(str(size) for size in sizes if size is not None)
    values = (
        decoded.op,
        tile,
        decoded.layout,
        decoded.dtype_a or decoded.dtype,
        decoded.stages,
        decoded.arch,
    )
    return tuple(str(value or "") for value in values)
