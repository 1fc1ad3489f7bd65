"""The kernels page: kernels in groups, or, without a GPU, the events of another
accelerator or CPU ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import isnan
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui.analysis.questions.groups import Grouping
from fusetui.text.cutting import clip
from fusetui.text.figures import (
    RATE_DIGITS,
    count,
    duration,
    percent,
    plural,
    significant,
)
from fusetui.text.printable import printable
from fusetui.trace.model.arrays import NO_ROW
from fusetui.trace.model.categories import Role
from fusetui.trace.model.memo import memo
from fusetui.tui.drawing.details import details_height
from fusetui.tui.drawing.picture import Rows, Said, style_row, text
from fusetui.tui.drawing.schemes import (
    TEXT,
    Glyphs,
    Styled,
    choose_glyphs,
    draw_share_bar,
)
from fusetui.tui.layout.answer import explain_missing_result
from fusetui.tui.layout.kernel_table import (
    BYS,
    OF_PEAK,
    SORTS,
    SPREAD,
    WORK,
    KernelTable,
    KernelView,
    Only,
    build_table,
    describe_kernel_name,
    keys_of,
)
from fusetui.tui.layout.kinds import narrow
from fusetui.tui.layout.text_layout import ListColumn, titles
from fusetui.tui.layout.view import Side
from fusetui.tui.pages.page import (
    ListPage,
    Pane,
    cycle_name,
    make_page_table,
    make_slice_details,
    sort_actions,
)
from fusetui.tui.state import search
from fusetui.tui.state.action import action, on
from fusetui.tui.state.session import Hits
from fusetui.tui.state.state import Prompt, Size, State, told

if TYPE_CHECKING:
    from fusetui.tables.public import Table

NAME = "kernels"
MIN_CELLS_WITH_DECODED = 150  # of a screen that shows what a name says in columns
MIN_CELLS_WITH_ALL = 180  # of a screen that shows both durations and WORK
BAR_CELLS = 10
CHANGED_BY = {"kind": "kind", "library": "family"}
"""The groups that a change of `whatif` names, with the field that has its value."""
DECODED_COLUMNS = tuple(
    ListColumn(title, cells, left=True, from_width=MIN_CELLS_WITH_DECODED)
    for title, cells in (
        ("kind", 18),
        ("tile", 11),
        ("layout", 6),
        ("dtype", 6),
        ("stages", 6),
        ("arch", 6),
    )
)
"""What the name of a kernel says: see describe_kernel_name."""


class KernelsPage(ListPage):
    """Enter shows the longest of a group in the timeline, n and N the others."""

    name, title, key = NAME, "Kernels", "3"
    short = "Kern"
    help = "grouped by name, kind, library, op, shape, module, stream or step"
    hints = (
        "help help; row-down/row-up move; show go to longest; narrow drill in; "
        "group-by group by; filter-rows filter; sort-right/sort-left sort; kernel-columns columns; "
        "instances instances; copy copy"
    )

    def rows(self, state: State) -> Rows:
        """Return a row for each group of kernels, in the order of the sorted column."""
        table = shown_table(state)
        view = state.kernels
        glyphs = choose_glyphs(state.ascii_only)
        listed_groups = shown_groups(state)
        columns = _columns(table, view)

        def format_row(index: int, width: int) -> list[Styled]:
            """The row of one group."""
            group = int(listed_groups[index])
            texts = _format_figures(table, group, glyphs)
            if _has_work_columns(table):
                texts += _format_work(table, group)
            if _has_decoded_columns(table):
                texts += describe_kernel_name(table.full_name(group))
            texts.append(table.label(group))
            token = table.kind(group).token + TEXT
            return style_row(columns, texts, width, last=token)

        return Rows(
            identity=(table, view),
            count=len(listed_groups),
            titles=lambda width: titles(columns, width),
            format=format_row,
        )

    def led_to(self, state: State, rank: int) -> State:
        """Return the state that lists all kernels by name, with the cursor on row
        `rank` by total time."""
        unfiltered_state = replace(state, kernels=KernelView())
        list_state = replace(unfiltered_state.list_of(self.name), cursor=rank)
        return unfiltered_state.with_list(self.name, list_state)

    def chosen(self, state: State, index: int) -> State:
        """Carry out Enter: show the longest kernel of the group in the timeline."""
        return search.shown(state, self.hits(state))

    def subject(self, state: State) -> int:
        """Return the row (in the trace) of the longest kernel of the group under the
        cursor; -1 for none."""
        group = self.group(state)
        return shown_table(state).longest(group) if group >= 0 else -1

    def changed_part(self, state: State) -> str | None:
        """Return what a what-if change would name for the group under the cursor: a
        kind or a library of kernels.

        It is "" for groups that no change can name. It is None for kernels by name,
        where the slice under the cursor decides.
        """
        table = shown_table(state)
        group = self.group(state)
        if table.role is not Role.KERNEL or table.by == "name" or group < 0:
            return None
        if table.by not in CHANGED_BY:
            return ""
        value = table.fields(int(table.numbers[group])).get(CHANGED_BY[table.by])
        return f"{table.by}:{value}" if value else ""

    def above(self, state: State, size: Size) -> Sequence[Pane]:
        """Return the line above the list: how many groups and launches it has, its
        filters, and what the shares are of."""
        table = shown_table(state)
        what = WHAT[table.role]
        line = f" {_describe_counts(table, what)}"
        for kept_group in state.kernels.only:
            line += f"   only {kept_group.by} {kept_group.label}"
        words = state.kernels.words.strip()
        if words:
            listed = f"{count(len(shown_groups(state)))} of {count(len(table))}"
            line += f"   {listed} with {narrow(printable(words))}"
        whole_time = duration(table.whole_ns)
        line += f"   share of the {whole_time} of {what.time}"
        line = clip(line, size.width, choose_glyphs(state.ascii_only).ellipsis)
        return (Pane(1, text([Said(line, "plain")])),)

    def below(self, state: State, size: Size) -> Sequence[Pane]:
        """Return the pane below the list, about the longest kernel of the group under
        the cursor, or why no row is listed."""
        row = self.subject(state)
        if row != NO_ROW:
            picture = make_slice_details(state, row, "longest instance")
        elif state.kernels.words:
            picture = text([Said("no row contains these words")])
        else:
            picture = text([Said("this trace has neither kernels nor CPU ops")])
        return (Pane(details_height(size.height), picture),)

    def follow(self, before: State, state: State) -> State:
        """Return the state after more of the trace was read: all groups are listed, and
        the cursor stays on the group with the same name."""
        all_listed = replace(state, kernels=replace(state.kernels, only=()))
        if self.name not in before.lists:
            return all_listed
        group_before = self.group(before)
        cursor = 0
        if group_before >= 0:
            name = shown_table(before).full_name(group_before)
            cursor = _find_row_of_name(all_listed, name)
        list_state = replace(before.list_of(self.name), cursor=cursor)
        return all_listed.with_list(self.name, list_state)

    def table(self, state: State, rows: Sequence[int] | None = None) -> Table:
        """Return the groups as a table to save, with the columns of `fusetui kernels
        --format`. Groups by kind and of CPU ops have those of the page. `rows` selects
        rows of the list; None takes all."""
        table = shown_table(state)
        listed_groups = shown_groups(state)
        groups = listed_groups if rows is None else listed_groups[[*rows]]
        total_title = f"{WHAT[table.role].total}_ns"
        figures = {
            total_title: table.totals[groups],
            "share": table.totals[groups] / max(1, table.whole_ns),
            "count": table.figures("count")[groups],
        }
        for figure in SPREAD:
            figures[f"{figure}_ns"] = table.figures(figure)[groups]
        if _has_work_columns(table):
            figures |= _work_columns(table, groups)
        texts = _list_group_names(table, groups.tolist())
        return make_page_table(self.name, texts, **figures)

    def group(self, state: State) -> int:
        """Return the number of the group under the cursor; -1 for an empty list."""
        listed_groups = shown_groups(state)
        if not len(listed_groups):
            return -1
        cursor = state.list_of(self.name).cursor
        return int(listed_groups[min(cursor, len(listed_groups) - 1)])

    def hits(self, state: State) -> Hits:
        """Return all slices of the group under the cursor as hits of a search, at the
        longest of them. n and N then go to the others."""
        table = shown_table(state)
        group = self.group(state)
        rows = table.rows_of(group)
        index_of_longest = int((rows == table.longest(group)).argmax())
        return Hits(table.full_name(group), state.active, rows, index_of_longest)


class What(NamedTuple):
    """What the rows are of: one of them and many, each time that it ran, what is added
    up, and the title of its column."""

    one: str
    many: str
    run: str
    time: str
    total: str


WHAT = {
    Role.KERNEL: What("kernel", "kernels", "launch", "kernel time", "total"),
    Role.DEVICE: What("device event", "device events", "event", "device time", "total"),
    Role.OP: What("CPU op", "CPU ops", "call", "self time", "self"),
}


def _describe_counts(table: KernelTable, what: What) -> str:
    """Return how many groups a table has and of how many launches.

    4 distinct kernels, 15 launches
    kernels by module: 3 groups, 15 launches
    """
    launches = plural(len(table.rows), what.run)
    if table.by == "name":
        return f"{plural(len(table), f'distinct {what.one}')}, {launches}"
    return f"{what.many} by {table.by}: {plural(len(table), 'group')}, {launches}"


PAGE = KernelsPage()


def known_groupings(side: Side) -> Mapping[str, Grouping]:
    """Return the ways in which kernels can be grouped, by their names (see
    kernel_table.BYS). Grouping by shape and module is only there once the analysis of
    the trace is done."""
    answer = side.insight.answer
    return answer.kernel_keys if answer else keys_of(side.trace)


def shown_table(state: State) -> KernelTable:
    """Return the table of kernel groups that the page shows for the active trace."""
    return _make_kernel_table(state.side, state.kernels.by, state.kernels.only)


def shown_groups(state: State) -> NDArray[np.intp]:
    """Return the numbers of the groups that are listed, in their order. Typed words
    leave only the groups whose names have them."""
    return shown_table(state).listed(state.kernels.sort, state.kernels.words)


@memo(8)
def _make_kernel_table(side: Side, by: str, only: tuple[Only, ...]) -> KernelTable:
    """Return the kernels of a side in groups by `by`, and only those in the groups of
    `only`. The last 8 tables are kept."""
    answer = side.insight.answer
    work = answer.kernel_work if answer else None
    return build_table(
        side.trace, known_groupings(side), KernelView(by, only=only), work
    )


def _find_row_of_name(state: State, name: str) -> int:
    """Return the row of the list whose group has this full name; 0 where there is none."""
    table = shown_table(state)
    for row, group in enumerate(shown_groups(state).tolist()):
        if table.full_name(group) == name:
            return row
    return 0


def _list_group_names(
    table: KernelTable, groups: Sequence[int]
) -> dict[str, list[Any]]:
    """Return the text columns of a saved table that name its groups, by column title.
    Each has one value per group."""
    fields = [table.fields(int(table.numbers[group])) for group in groups]
    columns = {}
    for name in fields[0] if fields else ():
        columns[name] = [of_group.get(name) for of_group in fields]
    return columns


def _format_figures(table: KernelTable, group: int, glyphs: Glyphs) -> list[str]:
    """Return the texts of a group's figures: total, share of the whole, bar, count,
    median, least and greatest duration."""
    total_ns = int(table.totals[group])
    spread = table.spreads[group]
    return [
        table.units["total"].text(total_ns),
        percent(total_ns, table.whole_ns),
        draw_share_bar(total_ns, table.whole_ns, BAR_CELLS, glyphs),
        count(spread.count),
        table.units["median"].text(spread.median_ns),
        table.units["min"].text(spread.min_ns),
        table.units["max"].text(spread.max_ns),
    ]


def _format_work(table: KernelTable, group: int) -> list[str]:
    """Return texts that say how well a group of kernels used its device: its share of
    the peak, TFLOP/s and GB/s. A figure that is not known gives ""."""
    texts = []
    for name in WORK:
        figure = float(table.figures(name)[group])
        if isnan(figure):
            texts.append("")
        elif name == OF_PEAK:
            texts.append(percent(figure, 1))
        else:
            texts.append(_format_rate(figure))
    return texts


def _format_rate(rate: float) -> str:
    """Return a rate with RATE_DIGITS significant digits, or from 1,000 on as a whole
    number."""
    return count(round(rate)) if rate >= 1000 else significant(rate, RATE_DIGITS)


def _work_columns(table: KernelTable, groups: NDArray[np.intp]) -> dict[str, Any]:
    """Return the columns of a saved table that say how well groups of kernels used
    their device: share of the peak, FLOP and bytes, with the times over which these are
    known (ns)."""
    sums = table.sums_of_work
    return {
        "share_of_peak": table.figures(OF_PEAK)[groups],
        "flop": sums.flop[groups],
        "flop_ns": sums.flop_ns[groups],
        "bytes": sums.bytes[groups],
        "bytes_ns": sums.bytes_ns[groups],
    }


def _has_decoded_columns(table: KernelTable) -> bool:
    """Return whether the table has columns for what kernel names encode, such as tile
    and dtype. It has where each group is one kernel name."""
    return table.by == "name" and table.role is Role.KERNEL


def _has_work_columns(table: KernelTable) -> bool:
    """Return whether the table has columns for how well kernels used the device. Only
    kernels do, not CPU ops."""
    return table.role is Role.KERNEL


def _columns(table: KernelTable, view: KernelView) -> Sequence[ListColumn]:
    """Return the columns of a table of groups. The title of the column by which it is
    sorted has a star. Columns of little use on a narrow screen have the width from
    which they are shown."""
    what = WHAT[table.role]

    def starred(text: str, sort: str) -> str:
        return f"{text}*" if sort == view.sort else text

    def with_unit(text: str, sort: str) -> str:
        return starred(f"{text} {table.units[sort].name}", sort)

    # on a narrow screen there is room for durations or for work, not for both
    shows_work = view.shows_work and _has_work_columns(table)
    width_for_times = MIN_CELLS_WITH_ALL if shows_work else 0
    width_for_work = 0 if shows_work else MIN_CELLS_WITH_ALL
    # the median says more than the least and the greatest duration
    width_for_extremes = max(110, width_for_times)
    columns = [
        ListColumn(with_unit(what.total, "total"), 10),
        ListColumn("share", 7),
        ListColumn("", BAR_CELLS, left=True, from_width=90),
        ListColumn(starred("count", "count"), 7),
        ListColumn(with_unit("median", "median"), 11, from_width=width_for_times),
        ListColumn(with_unit("min", "min"), 9, from_width=width_for_extremes),
        ListColumn(with_unit("max", "max"), 9, from_width=width_for_extremes),
    ]
    if _has_work_columns(table):
        for name in WORK:
            columns.append(
                ListColumn(starred(name, name), 8, from_width=width_for_work)
            )
    if _has_decoded_columns(table):
        columns += DECODED_COLUMNS
    group_title = _title_of_groups(table.by, what)
    columns.append(ListColumn(starred(group_title, "name"), 0, left=True))
    return columns


def _title_of_groups(by: str, what: What) -> str:
    """Return the title of the column that names each group, such as "kernel" where
    each group is one kernel name, or "library"."""
    if by == "name":
        return what.one
    if by == "module":
        return "module or annotation"
    return by


def _show_view(state: State, view: KernelView) -> State:
    """Return the state with another view of the kernels, and the cursor on the first
    row."""
    return replace(state, kernels=view, hint="").with_list(NAME)


def group_by_next(state: State) -> State:
    """Group the kernels by the next property: name, kind, library and so on. While
    these groups are not known yet, a message says so."""
    if not len(state.side.trace.rows_of(Role.KERNEL)):
        return told(state, _explain_no_kernels(shown_table(state)))
    by = cycle_name(BYS, state.kernels.by)
    grouped_state = _show_view(state, replace(state.kernels, by=by))
    if by in known_groupings(state.side):
        return grouped_state
    return told(
        grouped_state, explain_missing_result(state.side.trace, f"kernels by {by}")
    )


def show_only_group(state: State) -> State:
    """List only the kernels of the group under the cursor, by name. Groups can only be
    entered where they are not single kernels already; a message says so otherwise."""
    table = shown_table(state)
    group = PAGE.group(state)
    if table.role is not Role.KERNEL:
        return told(state, _explain_no_kernels(table))
    if group < 0 or table.by == "name":
        return told(
            state, "Only groups can be drilled into; by name, each row is one kernel"
        )
    entered_group = Only(table.by, int(table.numbers[group]), table.label(group))
    entered_groups = (*state.kernels.only, entered_group)
    view = replace(state.kernels, by="name", only=entered_groups, words="")
    return _show_view(state, view)


def open_word_filter(state: State) -> State:
    """Open the input line for words that narrow the list to rows that have them."""
    return replace(state, prompt=Prompt.ROWS, typed=state.kernels.words)


def filter_by_words(state: State, words: str) -> State:
    """Return the state with only the rows that have all of `words`; "" lists all rows
    again."""
    if words == state.kernels.words:
        return state
    return _show_view(state, replace(state.kernels, words=words))


def widen(state: State) -> State:
    """Undo the last narrowing of the list: first the typed words, then the group that
    was entered last."""
    if state.kernels.words:
        return filter_by_words(state, "")
    if not state.kernels.only:
        return told(state, "all of them are shown")
    *remaining_groups, last = state.kernels.only
    view = replace(state.kernels, by=last.by, only=tuple(remaining_groups))
    return _show_view(state, view)


def _explain_no_kernels(table: KernelTable) -> str:
    """Return a sentence that says what is listed instead, in a trace without GPU
    kernels."""
    what = WHAT[table.role].many
    return f"this trace has no GPU kernels: its {what} are shown by name"


def sort(state: State, by: int) -> State:
    """Sort by the next column (`by` 1) or the one before (-1). Columns without known
    figures are passed over, and the column comes into sight."""
    table = shown_table(state)
    sortable_columns = [name for name in SORTS if name not in WORK or table.has_work]
    view = replace(
        state.kernels, sort=cycle_name(sortable_columns, state.kernels.sort, by)
    )
    if view.sort in WORK:
        view = replace(view, shows_work=True)
    elif view.sort in SPREAD:
        view = replace(view, shows_work=False)
    return replace(state, kernels=view).with_list(NAME)


def switch_columns(state: State) -> State:
    """Show how well kernels used the device in place of their durations, or back. Where
    that is not known, a message says why."""
    table = shown_table(state)
    if table.role is not Role.KERNEL:
        return told(state, _explain_no_kernels(table))
    if not table.has_work:
        is_analyzed = state.side.insight.answer is not None
        if is_analyzed:
            return told(state, NO_WORK)
        reason = explain_missing_result(state.side.trace, "the work of kernels")
        return told(state, reason)
    shows_work = not state.kernels.shows_work
    hidden_columns = SPREAD if shows_work else WORK
    view = replace(state.kernels, shows_work=shows_work)
    if view.sort in hidden_columns:
        view = replace(view, sort="total")
    return replace(state, kernels=view, hint="")


NO_WORK = (
    "FLOP and bytes of these kernels are unknown; record_shapes=True records the inputs"
)

_action = partial(action, section="In the kernels", where=on(NAME))
KernelsPage.actions = (
    _action(
        name="group-by",
        title="Group by",
        written="t",
        help="name, kind, library, op, shape, module, ...",
        run=group_by_next,
    ),
    _action(
        name="narrow",
        title="Only these",
        written="space l right",
        help="the kernels of the group, by name",
        run=show_only_group,
    ),
    _action(
        name="widen",
        title="All again",
        written="h left",
        help="back to the groups",
        run=widen,
    ),
    _action(
        name="filter-rows",
        title="Rows with words",
        written="/ &",
        help="only rows that contain all the words; kind:gemm library:cutlass",
        run=open_word_filter,
    ),
    _action(
        name="kernel-columns",
        title="Other columns",
        written="%",
        help="of peak, TFLOP/s and GB/s, or durations",
        run=switch_columns,
    ),
    *sort_actions(_action, "", sort, said="its title has a star"),
)
