"""The lists of the answer: what took the GPU time, why the GPU was idle, and where each
row leads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.analysis.questions.groups import KernelWork, Keys
from fusetui.analysis.questions.totals import kernel_totals, op_totals, outermost
from fusetui.analysis.why.idle_time import IdleTime
from fusetui.analysis.why.model import Gap, Why
from fusetui.report.why_answer import covered_by
from fusetui.text.figures import Unit, percent, unit_of
from fusetui.trace.model.arrays import Rows
from fusetui.trace.model.categories import CPU_LAYERS, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id, exact_id
from fusetui.trace.program.origin import NOWHERE_IN_WORDS, Origins
from fusetui.tui.layout.figure_trees import MAX_NAMES, ModuleTree, self_times
from fusetui.tui.layout.kinds import SliceKind, kind_of, label_of, narrow

MIN_LIST_CELLS = 36
BETWEEN_CELLS = 2  # two lists
SHARE = "share"


class Way(NamedTuple):
    """Where a row leads: to a `module` by its node, a `kernel` by its place among all
    by total time, a `slice` by its row, a `gap` by its place among those of the answer,
    or all of `why`."""

    to: str
    at: int = -1


class AnswerRow(msgspec.Struct, frozen=True):
    """One row of a list: a time, the whole that its bar is a share of, what it is of,
    where it leads, and what stands beside the time instead of its share."""

    ns: int
    whole_ns: int
    text: str
    way: Way
    kind: SliceKind | None = None
    instead: str = ""

    @property
    def aside(self) -> str:
        return self.instead or percent(self.ns, self.whole_ns)


class AnswerList(msgspec.Struct, frozen=True):
    """The times of a list have one unit; `aside` is that of the second figures."""

    title: str
    unit: Unit
    entries: tuple[AnswerRow, ...]
    aside: str = SHARE


class AnswerAt(msgspec.Struct, frozen=True):
    """Where the cursor is: a row of a list; row -1 is the verdict above all lists."""

    column: int = 0
    row: int = -1


def answer_lists(why: Why, tree: ModuleTree, trace: Trace) -> tuple[AnswerList, ...]:
    """GPU time by module and by kernel, and the longest gaps; without a GPU, time by
    name of device events, ops and annotations, and by thread. None of them is empty."""
    if why.devices:
        lists = [_modules(tree), _kernels(tree, trace), _gaps(why)]
    else:
        lists = [
            _by_name(trace, Role.DEVICE, "device time by name"),
            timed("self time by CPU op", _ops(trace)),
            _by_name(trace, Role.ANNOTATION, "time in annotations"),
            timed("time by CPU thread", _threads(why, trace)),
        ]
    return tuple(answer_list for answer_list in lists if answer_list.entries)


def fitting(
    lists: Sequence[AnswerList], width: int, at: AnswerAt | None
) -> Sequence[int]:
    """The indices of the lists that fit side by side in `width` cells, at least one: the
    first ones, and that with the cursor, else the last; if one fits and no list has the
    cursor, the first. The cursor may stand beyond lists that have become fewer; then it
    is taken to be in the last."""
    fit_count = (width + BETWEEN_CELLS) // (MIN_LIST_CELLS + BETWEEN_CELLS)
    fit_count = max(1, fit_count)
    if len(lists) <= fit_count:
        return range(len(lists))
    if at and at.row >= 0:
        last = min(at.column, len(lists) - 1)
    elif fit_count == 1:
        last = 0
    else:
        last = len(lists) - 1
    return [*range(fit_count - 1), max(fit_count - 1, last)]


def moved(
    lists: Sequence[AnswerList], at: AnswerAt, columns: int, rows: int
) -> AnswerAt:
    """The cursor so many lists and rows further, on a row that is there. The cursor may
    stand beyond lists that have become shorter; it moves from their ends."""
    if not lists:
        return AnswerAt()
    last_column = len(lists) - 1
    column_before = max(0, min(at.column, last_column))
    row_before = min(at.row, _last_row(lists[column_before]))
    column = max(0, min(column_before + columns, last_column))
    row = min(row_before + rows, _last_row(lists[column]))
    return AnswerAt(column, max(-1, row))


def _last_row(answer_list: AnswerList) -> int:
    return len(answer_list.entries) - 1


def way_of(lists: Sequence[AnswerList], at: AnswerAt) -> Way:
    """Where the row under the cursor leads; from the verdict to all of `why`."""
    at = moved(lists, at, columns=0, rows=0)
    if at.row < 0:
        return Way("why")
    return lists[at.column].entries[at.row].way


def timed(title: str, rows: Iterable[AnswerRow]) -> AnswerList:
    """A list of the rows that have any time, the longest first, at most MAX_NAMES."""
    with_time = [row for row in rows if row.ns]
    with_time.sort(key=lambda row: -row.ns)
    longest = tuple(with_time[:MAX_NAMES])
    return AnswerList(title, unit_of(row.ns for row in longest), longest)


def of_name(ns: int, whole_ns: int, role: Role, name: str, way: Way) -> AnswerRow:
    """A row for all slices of one name and role."""
    return AnswerRow(
        ns=ns,
        whole_ns=whole_ns,
        text=label_of(int(role), name),
        way=way,
        kind=kind_of(int(role), name),
    )


def _modules(tree: ModuleTree) -> AnswerList:
    """GPU time by module. Also what belongs to no module, so that the shares add up,
    unless there is nothing else."""
    rows = []
    for module in self_times(tree):
        way = Way("module", module.node)
        rows.append(AnswerRow(module.ns, tree.gpu_ns, narrow(module.name), way))
    if rows:
        for node, unclaimed in enumerate(tree.none, start=len(tree.times)):
            text = f"({NOWHERE_IN_WORDS[unclaimed.why]})"
            way = Way("module", node)
            rows.append(AnswerRow(unclaimed.gpu_ns, tree.gpu_ns, text, way))
    kinds = " or ".join(distinct_kinds(tree)) or "module"
    return timed(f"GPU time by {kinds}", rows)


def distinct_kinds(tree: ModuleTree) -> list[str]:
    """`module`, `annotation` or both: what the rows of a tree are."""
    kinds = {time.kind for time in tree.times}
    return sorted(kinds, reverse=True)


def _kernels(tree: ModuleTree, trace: Trace) -> AnswerList:
    """GPU time by kernel. Copies too: they are part of the GPU time."""
    rows: list[AnswerRow] = []
    for rank, kernel in enumerate(kernel_totals(trace)[:MAX_NAMES]):
        way = Way("kernel", rank)
        rows.append(
            of_name(kernel.total_ns, tree.gpu_ns, Role.KERNEL, kernel.name, way)
        )
    for role in (Role.MEMCPY, Role.MEMSET):
        rows += _of_names(trace, trace.rows_of(role), role, tree.gpu_ns)
    return timed("GPU time by kernel", rows)


def _of_names(
    trace: Trace, rows: Rows, role: Role, whole_ns: int
) -> Iterator[AnswerRow]:
    """A row for each name of some slices of a role, which leads to the longest of
    them."""
    for total in kernel_totals(trace, rows):
        way = Way("slice", longest(trace, total.rows))
        yield of_name(total.total_ns, whole_ns, role, total.name, way)


def longest(trace: Trace, rows: Rows) -> int:
    """The longest of some rows."""
    return int(rows[np.argmax(trace.dur[rows])])


def _gaps(why: Why) -> AnswerList:
    """The longest gaps. When they begin stands beside how long they are."""
    begin_unit = unit_of(gap.start_ns for gap in why.gaps)
    longest_ns = max((gap.dur_ns for gap in why.gaps), default=0)
    entries = []
    for index, gap in enumerate(why.gaps):
        entries.append(
            AnswerRow(
                ns=gap.dur_ns,
                whole_ns=longest_ns,
                text=narrow(inside(gap)),
                way=Way("gap", index),
                instead=begin_unit.text(gap.start_ns),
            )
        )
    return AnswerList(
        title="longest gaps",
        unit=unit_of(gap.dur_ns for gap in why.gaps),
        entries=tuple(entries),
        aside=f"at {begin_unit.name}",
    )


def inside(gap: Gap) -> str:
    """What the CPU was in, by the names that the lanes show; else the kernel that
    follows."""
    labels = {"next": label_of(int(Role.KERNEL), gap.next)}
    if gap.frame:
        labels["frame"] = label_of(int(Role.PYTHON), gap.frame)
    if gap.op:
        labels["op"] = label_of(int(Role.OP), gap.op)
    if gap.annotation:
        labels["annotation"] = label_of(int(Role.ANNOTATION), gap.annotation)
    return covered_by(replace(gap, **labels))


def _by_name(trace: Trace, role: Role, title: str) -> AnswerList:
    """Time by name of the slices of a role, as shares of the time in which any of them
    ran, because they lie inside each other; a slice inside another one of its name adds
    nothing."""
    outer = outermost(trace, trace.rows_of(role))
    return timed(title, _of_names(trace, outer.rows, role, outer.any_ran_ns))


def _ops(trace: Trace) -> Iterator[AnswerRow]:
    """The time in ops by name, without the slices directly inside them."""
    ways = {}
    for op in kernel_totals(trace, trace.rows_of(Role.OP)):
        ways[op.name] = Way("slice", longest(trace, op.rows))
    totals = op_totals(trace)
    whole_ns = sum(op.self_ns for op in totals)
    for op_total in totals:
        yield of_name(
            op_total.self_ns, whole_ns, Role.OP, op_total.name, ways[op_total.name]
        )


def _threads(why: Why, trace: Trace) -> Iterator[AnswerRow]:
    """How much of each thread's time anything was recorded, from its first slice to its
    last. A row leads to the longest slice of its thread."""
    longest_rows = _longest_of_threads(trace)
    for thread in why.cpu:
        yield AnswerRow(
            ns=thread.op_ns + thread.python_ns + thread.wait_ns + thread.annotation_ns,
            whole_ns=thread.span_ns,
            text=narrow(thread.label),
            way=Way("slice", longest_rows[thread.process, thread.thread]),
        )


def _longest_of_threads(trace: Trace) -> dict[tuple[Id, Id], int]:
    """The longest slice of each CPU thread, by its process and thread ids."""
    longest_rows: dict[tuple[Id, Id], int] = {}
    for track in trace.tracks:
        if track.layer not in CPU_LAYERS or not len(track):
            continue
        row = track.first_row + int(np.argmax(trace.dur[track.rows]))
        thread = exact_id(track.pid), exact_id(track.tid)
        row_before = longest_rows.get(thread, row)
        is_longer = trace.dur[row] > trace.dur[row_before]
        longest_rows[thread] = row if is_longer else row_before
    return longest_rows


class AnswerPage(msgspec.Struct, frozen=True, eq=False):
    """Where the time went and why, and the parts of the program."""

    why: Why
    modules: ModuleTree
    lists: tuple[AnswerList, ...]
    kernel_keys: Mapping[str, Keys]  # the groups of kernels, see kernel_table.BYS
    kernel_work: KernelWork
    origins: Origins


class Insight(msgspec.Struct, frozen=True, eq=False):
    """None until known; the idle time is known before the answer."""

    idle: tuple[IdleTime, ...] | None = None  # of each device
    answer: AnswerPage | None = None

    @property
    def origins(self) -> Origins | None:
        return self.answer.origins if self.answer else None

    def device(self, pid: Id) -> int:
        """The index of a device among those with idle time, -1 if it is not known."""
        for index, idle in enumerate(self.idle or ()):
            if idle.device == pid:
                return index
        return -1


# the answer with what findings are worth, among what is kept on a trace
WORTH = "worth"


def working(trace: Trace, what: str) -> str:
    """A sentence for what is not known yet, or will never be."""
    if trace.report.prefix:
        return f"No {what}: only a part of this trace was read"
    return f"Computing {what}..."
