"""The lists of the answer: what took the GPU time, why the GPU was idle, and where each
row leads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.analysis.questions.groups import Grouping, KernelWork
from fusetui.analysis.questions.totals import (
    drop_nested_rows,
    sum_kernels_by_name,
    sum_ops_by_name,
)
from fusetui.analysis.why.idle_time import IdleTime
from fusetui.analysis.why.model import Gap, Why
from fusetui.report.why_answer import describe_cover
from fusetui.text.figures import Unit, percent, unit_of
from fusetui.trace.model.arrays import NO_ROW, Rows
from fusetui.trace.model.categories import CPU_LAYERS, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id, exact_id
from fusetui.trace.program.origin import NOWHERE_IN_WORDS, Origins
from fusetui.tui.layout.figure_trees import (
    MAX_NAMES,
    ModuleTree,
    sum_self_times_by_name,
)
from fusetui.tui.layout.kinds import SliceKind, classify_slice, label_of, narrow

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
        """The text beside the time of a row: its share of the whole, unless the row has
        another text."""
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


def build_answer_lists(
    why: Why, tree: ModuleTree, trace: Trace
) -> tuple[AnswerList, ...]:
    """Return the lists of the answer page, without empty ones.

    With a GPU they are the GPU time by module and by kernel, and the longest gaps.
    Without one they are the times of device events, CPU ops, annotations and threads.
    `why` is the breakdown of the time, and `tree` the modules with their GPU time.
    """
    if why.devices:
        lists = [_list_modules(tree), _list_kernels(tree, trace), _list_gaps(why)]
    else:
        lists = [
            _list_times_by_name(trace, Role.DEVICE, "device time by name"),
            make_sorted_list("self time by CPU op", _make_op_rows(trace)),
            _list_times_by_name(trace, Role.ANNOTATION, "time in annotations"),
            make_sorted_list("time by CPU thread", _make_thread_rows(why, trace)),
        ]
    return tuple(answer_list for answer_list in lists if answer_list.entries)


def choose_visible_lists(
    lists: Sequence[AnswerList], width: int, at: AnswerAt | None
) -> Sequence[int]:
    """Return the indices of the lists to show side by side in `width` cells; at least
    one.

    If some do not fit, the first ones are shown, and as the last one the list with the
    cursor. Without a cursor (`at` is None, or its row is -1) it is the last list. If
    there is room for one list only, it is then the first. A cursor beyond the last list
    counts as being in it, because lists may vanish.
    """
    # the last list needs no space behind it
    fit_count = (width + BETWEEN_CELLS) // (MIN_LIST_CELLS + BETWEEN_CELLS)
    fit_count = max(1, fit_count)
    if len(lists) <= fit_count:
        return range(len(lists))
    if at and at.row != NO_ROW:
        last_shown = min(at.column, len(lists) - 1)
    elif fit_count == 1:
        last_shown = 0
    else:
        last_shown = len(lists) - 1
    return [*range(fit_count - 1), max(fit_count - 1, last_shown)]


def moved(
    lists: Sequence[AnswerList], at: AnswerAt, columns: int, rows: int
) -> AnswerAt:
    """Return the cursor after moving by some lists (`columns`) and rows, within the
    lists.

    Row -1 is the line above all lists. If lists have become shorter than the position
    of the cursor, it moves from their ends. Without any list the result is the default
    position.
    """
    if not lists:
        return AnswerAt()
    last_column = len(lists) - 1
    column_before = max(0, min(at.column, last_column))
    row_before = min(at.row, _find_last_row(lists[column_before]))
    column = max(0, min(column_before + columns, last_column))
    row = min(row_before + rows, _find_last_row(lists[column]))
    return AnswerAt(column, max(-1, row))


def _find_last_row(answer_list: AnswerList) -> int:
    """Return the index of the last row of a list."""
    return len(answer_list.entries) - 1


def find_target(lists: Sequence[AnswerList], at: AnswerAt) -> Way:
    """Return where the row under the cursor leads when it is opened, such as a module,
    a kernel or a gap. The line above all lists leads to the page of all findings
    ("why")."""
    at = moved(lists, at, columns=0, rows=0)
    if at.row == NO_ROW:
        return Way("why")
    return lists[at.column].entries[at.row].way


def make_sorted_list(title: str, rows: Iterable[AnswerRow]) -> AnswerList:
    """Return a list of the rows with any time, the longest first. At most MAX_NAMES
    rows are kept. One unit of time serves the whole list."""
    with_time = [row for row in rows if row.ns]
    with_time.sort(key=lambda row: -row.ns)
    longest = tuple(with_time[:MAX_NAMES])
    return AnswerList(title, unit_of(row.ns for row in longest), longest)


def make_name_row(ns: int, whole_ns: int, role: Role, name: str, way: Way) -> AnswerRow:
    """Return a row for all slices with one name and role.

    Args:
        ns: Their time in ns.
        whole_ns: The time that is 100 % in this list.
        role: What they are, such as kernels or ops.
        name: Their name in the trace.
        way: Where the row leads when it is opened.
    """
    return AnswerRow(
        ns=ns,
        whole_ns=whole_ns,
        text=label_of(int(role), name),
        way=way,
        kind=classify_slice(int(role), name),
    )


def _list_modules(tree: ModuleTree) -> AnswerList:
    """Return the list of GPU time by module or annotation.

    GPU work that belongs to none of them gets rows with the reason, so that the shares
    add up to 100 %. If there are no modules at all, the list is empty.
    """
    module_rows = []
    for module in sum_self_times_by_name(tree):
        way = Way("module", module.node)
        module_rows.append(AnswerRow(module.ns, tree.gpu_ns, narrow(module.name), way))
    if module_rows:
        for node, unclaimed in enumerate(tree.none, start=len(tree.times)):
            reason_text = f"({NOWHERE_IN_WORDS[unclaimed.why]})"
            way = Way("module", node)
            module_rows.append(
                AnswerRow(unclaimed.gpu_ns, tree.gpu_ns, reason_text, way)
            )
    kinds_text = " or ".join(distinct_kinds(tree)) or "module"
    return make_sorted_list(f"GPU time by {kinds_text}", module_rows)


def distinct_kinds(tree: ModuleTree) -> list[str]:
    """Return what the nodes of a module tree are: `module`, `annotation`, both, or
    nothing in an empty tree."""
    kinds = {time.kind for time in tree.times}
    return sorted(kinds, reverse=True)


def _list_kernels(tree: ModuleTree, trace: Trace) -> AnswerList:
    """Return the list of GPU time by GPU event. Copies and fills of memory are included,
    because the shares are of the whole GPU time."""
    kernel_rows: list[AnswerRow] = []
    for rank, kernel in enumerate(sum_kernels_by_name(trace)[:MAX_NAMES]):
        way = Way("kernel", rank)
        kernel_rows.append(
            make_name_row(kernel.total_ns, tree.gpu_ns, Role.KERNEL, kernel.name, way)
        )
    for role in (Role.MEMCPY, Role.MEMSET):
        kernel_rows += _make_name_rows(trace, trace.rows_of(role), role, tree.gpu_ns)
    return make_sorted_list("GPU time by event", kernel_rows)


def _make_name_rows(
    trace: Trace, rows: Rows, role: Role, whole_ns: int
) -> Iterator[AnswerRow]:
    """Generate a row for each name of some slices with one role. A row leads to the
    longest slice of its name. `whole_ns` is the time that is 100 %."""
    for total in sum_kernels_by_name(trace, rows):
        way = Way("slice", longest(trace, total.rows))
        yield make_name_row(total.total_ns, whole_ns, role, total.name, way)


def longest(trace: Trace, rows: Rows) -> int:
    """Return the row with the longest duration among some rows of a trace, which must
    not be empty. The first one is returned if several are equally long."""
    return int(rows[np.argmax(trace.dur[rows])])


def _list_gaps(why: Why) -> AnswerList:
    """Return the list of the longest gaps, in which the GPU was idle. Each row has the
    length of a gap, what the CPU did in it, and the time when it began in place of a
    share."""
    begin_unit = unit_of(gap.start_ns for gap in why.gaps)
    longest_ns = max((gap.dur_ns for gap in why.gaps), default=0)
    gap_rows = []
    for index, gap in enumerate(why.gaps):
        gap_rows.append(
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
        entries=tuple(gap_rows),
        aside=f"at {begin_unit.name}",
    )


def inside(gap: Gap) -> str:
    """Return what the CPU did during a gap in the work of the GPU.

    The text names the frame, op, module and annotation that covered most of it, in the
    short form of the timeline. If none is known, it is `before` and the kernel that
    ended the gap.
    """
    short_names = {"next": label_of(int(Role.KERNEL), gap.next)}
    if gap.frame:
        short_names["frame"] = label_of(int(Role.PYTHON), gap.frame)
    if gap.op:
        short_names["op"] = label_of(int(Role.OP), gap.op)
    if gap.annotation:
        short_names["annotation"] = label_of(int(Role.ANNOTATION), gap.annotation)
    return describe_cover(replace(gap, **short_names))


def _list_times_by_name(trace: Trace, role: Role, title: str) -> AnswerList:
    """Return the list of the times of slices with one role, by name.

    Slices may contain each other, so shares are of the time during which any of them
    ran on its thread. A slice inside another one of the same name is not counted again.
    """
    outer = drop_nested_rows(trace, trace.rows_of(role))
    return make_sorted_list(
        title, _make_name_rows(trace, outer.rows, role, outer.any_ran_ns)
    )


def _make_op_rows(trace: Trace) -> Iterator[AnswerRow]:
    """Generate a row for the self time of each CPU op, by name. Self time leaves out
    the slices directly inside an op. A row leads to the longest call of its op."""
    ways = {}
    for op in sum_kernels_by_name(trace, trace.rows_of(Role.OP)):
        ways[op.name] = Way("slice", longest(trace, op.rows))
    totals = sum_ops_by_name(trace)
    whole_ns = sum(op.self_ns for op in totals)
    for op_total in totals:
        yield make_name_row(
            op_total.self_ns, whole_ns, Role.OP, op_total.name, ways[op_total.name]
        )


def _make_thread_rows(why: Why, trace: Trace) -> Iterator[AnswerRow]:
    """Generate a row for each CPU thread: how much of its time is covered by recorded
    slices. The whole is the time from the first slice of the thread to its last. A row
    leads to the longest slice of its thread."""
    longest_rows = _find_longest_of_threads(trace)
    for thread in why.cpu:
        yield AnswerRow(
            ns=thread.op_ns + thread.python_ns + thread.wait_ns + thread.annotation_ns,
            whole_ns=thread.span_ns,
            text=narrow(thread.label),
            way=Way("slice", longest_rows[thread.process, thread.thread]),
        )


def _find_longest_of_threads(trace: Trace) -> dict[tuple[Id, Id], int]:
    """Return the longest slice of each CPU thread, by the ids of its process and
    thread. A thread has several tracks, one for each layer, all of which count."""
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
    kernel_keys: Mapping[str, Grouping]  # the groups of kernels, see kernel_table.BYS
    kernel_work: KernelWork
    origins: Origins


class Insight(msgspec.Struct, frozen=True, eq=False):
    """None until known; the idle time is known before the answer."""

    idle: tuple[IdleTime, ...] | None = None  # of each device
    answer: AnswerPage | None = None

    @property
    def origins(self) -> Origins | None:
        """The modules and frames that work comes from; None until the answer is known."""
        return self.answer.origins if self.answer else None

    def device(self, pid: Id) -> int:
        """Return the index of a device in `idle`, given its id; -1 if its idle time is
        not known."""
        for index, idle in enumerate(self.idle or ()):
            if idle.device == pid:
                return index
        return -1


# the answer with what findings are worth, among what is kept on a trace
WORTH = "worth"


def explain_missing_result(trace: Trace, what: str) -> str:
    """Return a sentence that says why a result is not shown: it is still being
    computed, or cannot be, because only a part of the trace was read. `what` names the
    result."""
    if trace.report.prefix:
        return f"No {what}: only a part of this trace was read"
    return f"Computing {what}..."
