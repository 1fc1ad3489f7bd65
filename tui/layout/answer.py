"""The lists of the answer: what took the time of the GPU, why it stood still, and where a row of
them leads."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from fusetui.trace.insights.model import Gap, Why
from fusetui.trace.insights.telling import covered_by
from fusetui.trace.model.categories import Role
from fusetui.trace.questions.totals import KernelTotal
from fusetui.trace.text.figures import duration
from fusetui.trace.text.units import unit_of
from fusetui.tui.layout.kinds import Kind, kind_of, label_of, narrow
from fusetui.tui.layout.modules import MOST, ModuleTree, self_times

LEAST = 36  # cells of a list
BETWEEN = 2  # cells
BUILT_IN = re.compile(r"<built-in (?:function|method) (\w+)[^>]*>")
WORD = r"\1"


class ToModule(msgspec.Struct, frozen=True):
    """A node of the module tree."""

    node: int


class ToKernel(msgspec.Struct, frozen=True):
    """A kernel, by its place among all by total time."""

    rank: int


class ToGap(msgspec.Struct, frozen=True):
    """One of the gaps of the answer."""

    gap: Gap


class ToWhy(msgspec.Struct, frozen=True):
    """All of the answer."""


Way = ToModule | ToKernel | ToGap | ToWhy


class Entry(msgspec.Struct, frozen=True):
    """One row of a list: a time, the whole that its bar is a share of, and what it is of."""

    figure: str
    ns: int
    whole_ns: int
    text: str
    way: Way
    kind: Kind | None = None


class AnswerList(msgspec.Struct, frozen=True):
    """The times of a list have one unit, which the title names."""

    title: str
    unit: str
    entries: tuple[Entry, ...]
    has_shares: bool = True


class AnswerAt(msgspec.Struct, frozen=True):
    """Where the cursor is: a row of a list; row -1 is the verdict above all lists."""

    column: int = 0
    row: int = -1


def answer_lists(
    why: Why, tree: ModuleTree, kernels: Sequence[KernelTotal]
) -> tuple[AnswerList, ...]:
    """GPU time by module and by kernel, and the longest gaps; none of them is empty."""
    found = _modules(tree), _kernels(tree, kernels[:MOST]), _gaps(why)
    return tuple(one for one in found if one.entries)


def fitting(lists: Sequence[AnswerList], width: int, at: AnswerAt | None) -> Sequence[int]:
    """The lists that fit side by side: the first ones, and that with the cursor, else the last."""
    most = max(1, (width + BETWEEN) // (LEAST + BETWEEN))
    if len(lists) <= most:
        return range(len(lists))
    last = at.column if at and at.row >= 0 else 0 if most == 1 else len(lists) - 1
    return [*range(most - 1), max(most - 1, last)]


def list_width(width: int, count: int) -> int:
    """The cells of each of so many lists."""
    return max(1, (width - BETWEEN * (count - 1)) // max(1, count))


def moved(lists: Sequence[AnswerList], at: AnswerAt, columns: int, rows: int) -> AnswerAt:
    """The cursor so many lists and rows further, on a row that is there."""
    if not lists:
        return AnswerAt()
    column = max(0, min(at.column, len(lists) - 1))
    row = min(at.row, len(lists[column].entries) - 1)
    column = max(0, min(column + columns, len(lists) - 1))
    row = max(-1, min(row + rows, len(lists[column].entries) - 1))
    return AnswerAt(column, row)


def way_of(lists: Sequence[AnswerList], at: AnswerAt) -> Way:
    """Where a row leads."""
    at = moved(lists, at, 0, 0)
    return ToWhy() if at.row < 0 else lists[at.column].entries[at.row].way


def _modules(tree: ModuleTree) -> AnswerList:
    times = self_times(tree)
    unit = unit_of(time.ns for time in times)
    entries = tuple(
        Entry(unit.text(time.ns), time.ns, tree.gpu_ns, narrow(time.name), ToModule(time.node))
        for time in times
    )
    return AnswerList("GPU time by module", unit.name, entries)


def _kernels(tree: ModuleTree, kernels: Sequence[KernelTotal]) -> AnswerList:
    unit, role = unit_of(kernel.total_ns for kernel in kernels), int(Role.KERNEL)
    entries = tuple(
        Entry(
            unit.text(kernel.total_ns),
            kernel.total_ns,
            tree.gpu_ns,
            label_of(role, kernel.name),
            ToKernel(rank),
            kind_of(role, kernel.name),
        )
        for rank, kernel in enumerate(kernels)
    )
    return AnswerList("by kernel", unit.name, entries)


def _gaps(why: Why) -> AnswerList:
    unit = unit_of(gap.dur_ns for gap in why.gaps)
    longest = max((gap.dur_ns for gap in why.gaps), default=0)
    entries = tuple(
        Entry(
            unit.text(gap.dur_ns),
            gap.dur_ns,
            longest,
            narrow(f"at {duration(gap.start_ns - why.base_ns)} {inside(gap)}"),
            ToGap(gap),
        )
        for gap in why.gaps
    )
    return AnswerList("longest gaps", unit.name, entries, has_shares=False)


def inside(gap: Gap) -> str:
    """What the CPU was in, a built-in function by its bare name; else the kernel that follows."""
    short = replace(gap, next=label_of(int(Role.KERNEL), gap.next))
    return BUILT_IN.sub(WORD, covered_by(short))
