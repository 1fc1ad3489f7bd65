"""The kernels of a trace in groups, all or those of some groups, sorted by any
figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.groups import GROUPINGS, Keys, module_keys
from fusetui.analysis.questions.totals import Spread, grouped, self_ns, spreads
from fusetui.gpu.kernel_names import decode
from fusetui.gpu.roofline.many import Jobs
from fusetui.text.figures import Unit, common_unit, unit_of
from fusetui.trace.model.arrays import Int64s, Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.events import Arguments
from fusetui.trace.model.memo import memo
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
SORTS: Final = ("total", "count", "median", "min", "max", "name")
UNKNOWN: Final = "(none)"
OUTSIDE_MODULES: Final = f"({NOWHERE_IN_WORDS[Nowhere.OUTSIDE]})"
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

    def __len__(self) -> int:
        return len(self.spreads)

    @cached_property
    def totals(self) -> Int64s:
        """Of each group, ns."""
        before = np.concatenate(([0], np.cumsum(self.amounts)))
        return np.diff(before[self.begins])

    @cached_property
    def units(self) -> Mapping[str, Unit]:
        """By column; the durations of one launch have the same unit, so that they can
        be compared."""
        spread = [self.figures(name).tolist() for name in SPREAD]
        of_launch = common_unit(spread, MAX_TIME_CELLS)
        return {
            "total": unit_of(self.totals.tolist()),
            **dict.fromkeys(SPREAD, of_launch),
        }

    def figures(self, sort: str) -> Int64s:
        """Of each group: times in ns, and the count."""
        if sort == "total":
            return self.totals
        name = sort if sort == "count" else f"{sort}_ns"
        return np.array([getattr(one, name) for one in self.spreads], dtype=np.int64)

    @cached_property
    def whole_ns(self) -> int:
        return int(self.totals.sum())

    def rows_of(self, group: int) -> Rows:
        return self.rows[self.begins[group] : self.begins[group + 1]]

    def longest(self, group: int) -> int:
        return longest(self.trace, self.rows_of(group))

    def label(self, group: int) -> str:
        """What the kernels of a group have in common, printable, a cell a character."""
        fields = self.fields(int(self.numbers[group]))
        if self.by == "name":
            return label_of(int(self.role), fields["name"])
        if self.by == "shape":
            return narrow(
                f"{label_of(int(self.role), fields['name'])}  {_shape(fields)}"
            )
        known = [str(value) for value in fields.values() if value is not None]
        if known:
            return narrow(" stream ".join(known))
        return OUTSIDE_MODULES if self.by == "module" else UNKNOWN

    def full_name(self, group: int) -> str:
        """The name as the trace has it, else the label."""
        return str(
            self.fields(int(self.numbers[group])).get("name") or self.label(group)
        )

    def kind(self, group: int) -> SliceKind:
        return kind_of(int(self.role), self.trace.name_of(self.longest(group)))

    @memo(len(SORTS))
    def order(self, sort: str) -> Rows:
        """The groups, the largest first, names in order of the alphabet."""
        if sort == "name":
            labels = [self.label(n) for n in range(len(self))]
            return np.array(
                sorted(range(len(self)), key=labels.__getitem__), dtype=np.intp
            )
        if self.by == "step" and sort == "total":
            return np.arange(len(self))
        return np.argsort(-self.figures(sort), kind="stable")


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
    jobs = known or Jobs(
        rows, np.full(len(rows), -1, dtype=np.int32), (), NO_ARGS, NO_ARGS
    )
    quick = (by for by in GROUPINGS if by not in LATER)
    found: dict[str, Keys] = {by: GROUPINGS[by](trace, jobs) for by in quick}
    if known and origins:
        found["shape"] = GROUPINGS["shape"](trace, known)
        found["module"] = module_keys(trace, rows, origins)
    return found


def table_of(trace: Trace, keys: Mapping[str, Keys], view: KernelView) -> KernelTable:
    """The kernels by `view.by`; on a trace without any: CPU ops by name and self
    time."""
    role = Role.KERNEL if len(trace.rows_of(Role.KERNEL)) else Role.OP
    rows, kept = trace.rows_of(role), np.ones(len(trace.rows_of(role)), dtype=np.bool_)
    if role is Role.KERNEL:
        for only in view.only:
            kept &= keys[only.by].number == only.number
        by, amounts = view.by if view.by in keys else "name", trace.dur
        own = keys[by]
    else:
        by, amounts = "name", self_ns(trace)
        own = Keys(trace.name[rows], lambda n: {"name": trace.names[n]})
    rows, number = rows[kept], own.number[kept]
    groups = grouped(number, trace.start[rows])
    found = tuple(spreads(number, trace.dur[rows])) if len(rows) else ()
    begins, rows = (
        groups.begins if found else np.zeros(1, dtype=np.intp),
        rows[groups.order],
    )
    amounts = amounts[rows]
    return KernelTable(
        trace, by, role, rows, begins, found, amounts, groups.keys, own.fields
    )


def _shape(fields: Mapping[str, Any]) -> str:
    shapes = (
        one for one in fields.get("shapes") or () if isinstance(one, list) and one
    )
    dims = " ".join("x".join(map(str, shape)) for shape in shapes)
    return f"{str(fields.get('op') or '').removeprefix('aten::')} {dims}".strip()


def decoded_texts(name: str) -> tuple[str, ...]:
    """Kind, tile, layout, dtype, stages and architecture; blank when the name does not
    say."""
    if (found := decode(name)) is None:
        return ("",) * 6
    tile = (str(n) for n in (found.tile_m, found.tile_n, found.tile_k) if n is not None)
    dtype = found.dtype_a or found.dtype
    texts = (found.op, "x".join(tile), found.layout, dtype, found.stages, found.arch)
    return tuple(str(text or "") for text in texts)
