"""The lists of the answer: what took the time of the GPU, why it stood still, and where
a row of them leads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.analysis.questions.groups import Keys
from fusetui.analysis.questions.totals import inside_same_name, kernel_totals, op_totals
from fusetui.analysis.why.idle_time import IdleTime
from fusetui.analysis.why.model import Gap, Why
from fusetui.report.why_answer import covered_by
from fusetui.text.figures import Unit, percent, unit_of
from fusetui.trace.model.arrays import Rows
from fusetui.trace.model.categories import CPU_LAYERS, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id, exact_id
from fusetui.trace.model.intervals import union_length
from fusetui.trace.program.origin import NOWHERE_IN_WORDS, Origins
from fusetui.tui.layout.figure_trees import MOST, ModuleTree, self_times
from fusetui.tui.layout.kinds import SliceKind, kind_of, label_of, narrow

LEAST = 36  # cells of a list
BETWEEN = 2  # cells
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
    return tuple(one for one in lists if one.entries)


def fitting(
    lists: Sequence[AnswerList], width: int, at: AnswerAt | None
) -> Sequence[int]:
    """The lists that fit side by side: the first ones, and that with the cursor, else
    the last."""
    most = max(1, (width + BETWEEN) // (LEAST + BETWEEN))
    if len(lists) <= most:
        return range(len(lists))
    last = at.column if at and at.row >= 0 else 0 if most == 1 else len(lists) - 1
    return [*range(most - 1), max(most - 1, last)]


def moved(
    lists: Sequence[AnswerList], at: AnswerAt, columns: int, rows: int
) -> AnswerAt:
    """The cursor so many lists and rows further, on a row that is there."""
    if not lists:
        return AnswerAt()
    column = max(0, min(at.column, len(lists) - 1))
    row = min(at.row, len(lists[column].entries) - 1)
    column = max(0, min(column + columns, len(lists) - 1))
    row = max(-1, min(row + rows, len(lists[column].entries) - 1))
    return AnswerAt(column, row)


def way_of(lists: Sequence[AnswerList], at: AnswerAt) -> Way:
    at = moved(lists, at, 0, 0)
    return Way("why") if at.row < 0 else lists[at.column].entries[at.row].way


def timed(title: str, found: Iterable[AnswerRow]) -> AnswerList:
    ordered = sorted((one for one in found if one.ns), key=lambda one: -one.ns)[:MOST]
    return AnswerList(title, unit_of(one.ns for one in ordered), tuple(ordered))


def of_name(ns: int, whole_ns: int, role: Role, name: str, way: Way) -> AnswerRow:
    return AnswerRow(
        ns, whole_ns, label_of(int(role), name), way, kind_of(int(role), name)
    )


def _modules(tree: ModuleTree) -> AnswerList:
    """Also what belongs to no module, so that the shares add up, unless there is
    nothing else."""
    own, whole = self_times(tree), tree.gpu_ns
    none = enumerate(tree.none, len(tree.times)) if own else ()
    rows = [
        AnswerRow(ns, whole, narrow(name), Way("module", node))
        for name, ns, node in own
    ]
    rows += [
        AnswerRow(n.gpu_ns, whole, f"({NOWHERE_IN_WORDS[n.why]})", Way("module", node))
        for node, n in none
    ]
    kinds = distinct_kinds(tree)
    return timed(f"GPU time by {' or '.join(kinds) or 'module'}", rows)


def distinct_kinds(tree: ModuleTree) -> list[str]:
    """`module`, `annotation` or both: what the rows of a tree are."""
    kinds = {time.kind for time in tree.times}
    return sorted(kinds, reverse=True)


def _kernels(tree: ModuleTree, trace: Trace) -> AnswerList:
    """Copies too: they are part of the GPU time."""
    rows, whole = list[AnswerRow](), tree.gpu_ns
    for rank, one in enumerate(kernel_totals(trace)[:MOST]):
        rows.append(
            of_name(one.total_ns, whole, Role.KERNEL, one.name, Way("kernel", rank))
        )
    for role in (Role.MEMCPY, Role.MEMSET):
        rows += _of_names(trace, trace.rows_of(role), role, whole)
    return timed("GPU time by kernel", rows)


def _of_names(
    trace: Trace, rows: Rows, role: Role, whole_ns: int
) -> Iterator[AnswerRow]:
    for one in kernel_totals(trace, rows):
        way = Way("slice", longest(trace, one.rows))
        yield of_name(one.total_ns, whole_ns, role, one.name, way)


def longest(trace: Trace, rows: Rows) -> int:
    return int(rows[np.argmax(trace.dur[rows])])


def _gaps(why: Why) -> AnswerList:
    """When they begin stands beside how long they are."""
    begins = unit_of(gap.start_ns for gap in why.gaps)
    largest = max((gap.dur_ns for gap in why.gaps), default=0)
    entries = []
    for n, gap in enumerate(why.gaps):
        begin, text = begins.text(gap.start_ns), narrow(inside(gap))
        entries.append(AnswerRow(gap.dur_ns, largest, text, Way("gap", n), None, begin))
    unit = unit_of(gap.dur_ns for gap in why.gaps)
    return AnswerList("longest gaps", unit, tuple(entries), f"at {begins.name}")


def inside(gap: Gap) -> str:
    """What the CPU was in, by the names that the lanes show; else the kernel that
    follows."""
    roles = {"frame": Role.PYTHON, "op": Role.OP, "annotation": Role.ANNOTATION}
    names = {field: (role, getattr(gap, field)) for field, role in roles.items()}
    short = {
        field: label_of(int(role), name)
        for field, (role, name) in names.items()
        if name
    }
    return covered_by(replace(gap, next=label_of(int(Role.KERNEL), gap.next), **short))


def _by_name(trace: Trace, role: Role, title: str) -> AnswerList:
    """As shares of the time in which any of them ran, as they lie inside each other; a
    slice inside another one of its name adds nothing."""
    rows = trace.rows_of(role)
    outer = rows[~inside_same_name(trace, rows)]
    thread = trace.thread_of_track[trace.track[outer]]
    each = (outer[thread == number] for number in np.unique(thread).tolist())
    whole = sum(union_length(trace.start[own], trace.end[own]) for own in each)
    return timed(title, _of_names(trace, outer, role, whole))


def _ops(trace: Trace) -> Iterator[AnswerRow]:
    """The time in ops, without the slices directly inside them."""
    ops, totals = kernel_totals(trace, trace.rows_of(Role.OP)), op_totals(trace)
    ways = {one.name: Way("slice", longest(trace, one.rows)) for one in ops}
    whole = sum(op.self_ns for op in totals)
    return (
        of_name(op.self_ns, whole, Role.OP, op.name, ways[op.name]) for op in totals
    )


def _threads(why: Why, trace: Trace) -> Iterator[AnswerRow]:
    """How much of each thread's time anything was recorded, from its first slice to its
    last."""
    rows: dict[tuple[Id, Id], int] = {}  # the longest slice of each
    for track in trace.tracks:
        if track.layer in CPU_LAYERS and len(track):
            row = track.first_row + int(np.argmax(trace.dur[track.rows]))
            key = exact_id(track.pid), exact_id(track.tid)
            rows[key] = max(
                rows.get(key, row), row, key=lambda one: int(trace.dur[one])
            )
    for one in why.cpu:
        ns = one.op_ns + one.python_ns + one.wait_ns + one.annotation_ns
        way = Way("slice", rows[one.process, one.thread])
        yield AnswerRow(ns, one.span_ns, narrow(one.label), way)


class AnswerPage(msgspec.Struct, frozen=True, eq=False):
    """Where the time went and why, and the parts of the program."""

    why: Why
    modules: ModuleTree
    lists: tuple[AnswerList, ...]
    kernel_keys: Mapping[str, Keys]  # the groups of kernels, see kernel_table.BYS
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
        return next(
            (n for n, one in enumerate(self.idle or ()) if one.device == pid), -1
        )


# the answer with what findings are worth, among what is kept on a trace
WORTH = "worth"


def working(trace: Trace, what: str) -> str:
    """A sentence for what is not known yet, or will never be."""
    if trace.report.prefix:
        return f"No {what}: only a part of this trace was read"
    return f"Computing {what}..."
