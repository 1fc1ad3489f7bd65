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

from fusetui.analysis.questions.groups import Keys
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
from fusetui.trace.model.categories import Role
from fusetui.trace.model.memo import memo
from fusetui.tui.drawing.details import details_height
from fusetui.tui.drawing.picture import Rows, Said, row_parts, text
from fusetui.tui.drawing.schemes import TEXT, Glyphs, Styled, glyphs_for, share_bar
from fusetui.tui.layout.answer import working
from fusetui.tui.layout.kernel_table import (
    BYS,
    OF_PEAK,
    SORTS,
    SPREAD,
    WORK,
    KernelTable,
    KernelView,
    Only,
    decoded_texts,
    keys_of,
    table_of,
)
from fusetui.tui.layout.kinds import narrow
from fusetui.tui.layout.text_layout import ListColumn, titles
from fusetui.tui.layout.view import Side
from fusetui.tui.pages.page import (
    ListPage,
    Pane,
    next_of,
    page_table,
    slice_details,
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
        ("kind", 11),
        ("tile", 11),
        ("layout", 6),
        ("dtype", 6),
        ("stages", 6),
        ("arch", 6),
    )
)
"""What the name of a kernel says: see decoded_texts."""


class KernelsPage(ListPage):
    """Enter shows the longest of a group in the timeline, n and N the others."""

    name, title, key = NAME, "Kernels", "3"
    short = "Kern"
    help = "grouped by name, kind, library, op, shape, module, stream or step"
    hints = (
        "help keys; row-down/row-up move; show go to longest; narrow drill in; "
        "group-by group by; search search; sort-right/sort-left sort; kernel-columns columns; "
        "instances instances; copy copy"
    )

    def rows(self, state: State) -> Rows:
        """A row for each group, the largest first."""
        table = shown_table(state)
        view = state.kernels
        glyphs = glyphs_for(state.ascii_only)
        order = shown_groups(state)
        columns = _columns(table, view)

        def formatted(index: int, width: int) -> list[Styled]:
            """The row of one group."""
            group = int(order[index])
            texts = [*_figures(table, group, glyphs)]
            if _has_work_columns(table):
                texts += _work_texts(table, group)
            if _has_decoded_columns(table):
                texts += decoded_texts(table.full_name(group))
            texts.append(table.label(group))
            token = table.kind(group).token + TEXT
            return row_parts(columns, texts, width, last=token)

        return Rows(
            identity=(table, view),
            count=len(order),
            titles=lambda width: titles(columns, width),
            format=formatted,
        )

    def led_to(self, state: State, rank: int) -> State:
        """All kernels by name, the cursor on the one with this rank by total time."""
        now = replace(state, kernels=KernelView())
        list_state = replace(now.list_of(self.name), cursor=rank)
        return now.with_list(self.name, list_state)

    def chosen(self, state: State, index: int) -> State:
        """Enter: the longest of the group in the timeline."""
        return search.shown(state, self.hits(state))

    def subject(self, state: State) -> int:
        """The longest of the group under the cursor; -1 for none."""
        group = self.group(state)
        return shown_table(state).longest(group) if group >= 0 else -1

    def changed_part(self, state: State) -> str | None:
        """The kind or library of a group. Other groups than those of kernels by name
        are not the kernels of one change."""
        table = shown_table(state)
        group = self.group(state)
        if table.role is not Role.KERNEL or table.by == "name" or group < 0:
            return None
        if table.by not in CHANGED_BY:
            return ""
        value = table.fields(int(table.numbers[group])).get(CHANGED_BY[table.by])
        return f"{table.by}:{value}" if value else ""

    def above(self, state: State, size: Size) -> Sequence[Pane]:
        """How many groups of how many slices are listed, of which groups alone, and
        what their shares are of."""
        table = shown_table(state)
        what = WHAT[table.role]
        line = f" {_counts(table, what)}"
        for only in state.kernels.only:
            line += f"   only {only.by} {only.label}"
        words = state.kernels.words.strip()
        if words:
            listed = f"{count(len(shown_groups(state)))} of {count(len(table))}"
            line += f"   {listed} with {narrow(printable(words))}"
        whole = duration(table.whole_ns)
        line += f"   share of the {whole} of {what.time}"
        line = clip(line, size.width, glyphs_for(state.ascii_only).ellipsis)
        return (Pane(1, text([Said(line, "plain")])),)

    def below(self, state: State, size: Size) -> Sequence[Pane]:
        """A few lines about the longest of the group under the cursor."""
        row = self.subject(state)
        if row >= 0:
            picture = slice_details(state, row, "longest instance")
        elif state.kernels.words:
            picture = text([Said("no row has these words")])
        else:
            picture = text([Said("this trace has neither kernels nor CPU ops")])
        return (Pane(details_height(size.height), picture),)

    def follow(self, before: State, state: State) -> State:
        """All groups of the longer trace, the cursor on the one with the name that it
        was on."""
        state = replace(state, kernels=replace(state.kernels, only=()))
        if self.name not in before.lists:
            return state
        group_before = self.group(before)
        cursor = 0
        if group_before >= 0:
            name = shown_table(before).full_name(group_before)
            cursor = _row_of(state, name)
        list_state = replace(before.list_of(self.name), cursor=cursor)
        return state.with_list(self.name, list_state)

    def table(self, state: State, rows: Sequence[int] | None = None) -> Table:
        """As `fusetui kernels --format` has it; of kinds, and of CPU ops, as the page
        has them."""
        table = shown_table(state)
        order = shown_groups(state)
        groups = order if rows is None else order[[*rows]]
        total = f"{WHAT[table.role].total}_ns"
        figures = {
            total: table.totals[groups],
            "share": table.totals[groups] / max(1, table.whole_ns),
            "count": table.figures("count")[groups],
        }
        for figure in SPREAD:
            figures[f"{figure}_ns"] = table.figures(figure)[groups]
        if _has_work_columns(table):
            figures |= _work_of_table(table, groups)
        texts = _names_of_groups(table, groups.tolist())
        return page_table(self.name, texts, **figures)

    def group(self, state: State) -> int:
        """The group under the cursor; -1 for none."""
        order = shown_groups(state)
        if not len(order):
            return -1
        cursor = state.list_of(self.name).cursor
        return int(order[min(cursor, len(order) - 1)])

    def hits(self, state: State) -> Hits:
        """The slices of the group under the cursor, at the longest."""
        table = shown_table(state)
        group = self.group(state)
        rows = table.rows_of(group)
        at = int((rows == table.longest(group)).argmax())
        return Hits(table.full_name(group), state.active, rows, at)


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


def _counts(table: KernelTable, what: What) -> str:
    """`4 distinct kernels, 15 launches`, or `kernels by module: 3 groups, 15
    launches`."""
    each = plural(len(table.rows), what.run)
    if table.by == "name":
        return f"{plural(len(table), f'distinct {what.one}')}, {each}"
    return f"{what.many} by {table.by}: {plural(len(table), 'group')}, {each}"


PAGE = KernelsPage()


def known_keys(side: Side) -> Mapping[str, Keys]:
    """The groups of kernels, see kernel_table.BYS; by shape and module only once the
    answer is known."""
    answer = side.insight.answer
    return answer.kernel_keys if answer else keys_of(side.trace)


def shown_table(state: State) -> KernelTable:
    """The groups that the page shows of the active side."""
    return _table(state.side, state.kernels.by, state.kernels.only)


def shown_groups(state: State) -> NDArray[np.intp]:
    """The groups of the table that are listed, in their order: those with the words
    that were typed."""
    return shown_table(state).listed(state.kernels.sort, state.kernels.words)


@memo(8)
def _table(side: Side, by: str, only: tuple[Only, ...]) -> KernelTable:
    answer = side.insight.answer
    work = answer.kernel_work if answer else None
    return table_of(side.trace, known_keys(side), KernelView(by, only=only), work)


def _row_of(state: State, name: str) -> int:
    """The row of the group with this name; 0 where there is none."""
    table = shown_table(state)
    for row, group in enumerate(shown_groups(state).tolist()):
        if table.full_name(group) == name:
            return row
    return 0


def _names_of_groups(table: KernelTable, groups: Sequence[int]) -> dict[str, list[Any]]:
    """The columns of a saved table that name groups: a list for each field."""
    fields = [table.fields(int(table.numbers[group])) for group in groups]
    columns = {}
    for name in fields[0] if fields else ():
        columns[name] = [of_group.get(name) for of_group in fields]
    return columns


def _figures(table: KernelTable, group: int, glyphs: Glyphs) -> list[str]:
    """The total of a group, its share of the whole with its bar, its count, and its
    median, least and longest."""
    total = int(table.totals[group])
    spread = table.spreads[group]
    return [
        table.units["total"].text(total),
        percent(total, table.whole_ns),
        share_bar(total, table.whole_ns, BAR_CELLS, glyphs),
        count(spread.count),
        table.units["median"].text(spread.median_ns),
        table.units["min"].text(spread.min_ns),
        table.units["max"].text(spread.max_ns),
    ]


def _work_texts(table: KernelTable, group: int) -> list[str]:
    """How well a group used its device; empty where that is not known."""
    texts = []
    for name in WORK:
        figure = float(table.figures(name)[group])
        if isnan(figure):
            texts.append("")
        elif name == OF_PEAK:
            texts.append(percent(figure, 1))
        else:
            texts.append(_rate_text(figure))
    return texts


def _rate_text(rate: float) -> str:
    """With RATE_DIGITS digits, or from 1,000 on without a fraction."""
    return count(round(rate)) if rate >= 1000 else significant(rate, RATE_DIGITS)


def _work_of_table(table: KernelTable, groups: NDArray[np.intp]) -> dict[str, Any]:
    """The same in full, by column of a saved table."""
    sums = table.sums_of_work
    return {
        "share_of_peak": table.figures(OF_PEAK)[groups],
        "flop": sums.flop[groups],
        "flop_ns": sums.flop_ns[groups],
        "bytes": sums.bytes[groups],
        "bytes_ns": sums.bytes_ns[groups],
    }


def _has_decoded_columns(table: KernelTable) -> bool:
    """Whether there are columns for what the names of kernels say."""
    return table.by == "name" and table.role is Role.KERNEL


def _has_work_columns(table: KernelTable) -> bool:
    """Whether there are columns for how well kernels used the device."""
    return table.role is Role.KERNEL


def _columns(table: KernelTable, view: KernelView) -> Sequence[ListColumn]:
    """The columns of a table; that by which it is sorted has a star."""
    what = WHAT[table.role]
    shows_work = view.shows_work and _has_work_columns(table)
    from_width_of_times = MIN_CELLS_WITH_ALL if shows_work else 0

    def title(sort: str, text: str = "") -> str:
        return f"{text or sort}*" if sort == view.sort else text or sort

    def with_unit(sort: str, text: str = "") -> str:
        return title(sort, f"{text or sort} {table.units[sort].name}")

    columns = [
        ListColumn(with_unit("total", what.total), 10),
        ListColumn("share", 7),
        ListColumn("", BAR_CELLS, left=True, from_width=90),
        ListColumn(title("count"), 7),
        ListColumn(with_unit("median"), 11, from_width=from_width_of_times),
        ListColumn(with_unit("min"), 9, from_width=max(110, from_width_of_times)),
        ListColumn(with_unit("max"), 9, from_width=max(110, from_width_of_times)),
    ]
    if _has_work_columns(table):
        from_width = 0 if shows_work else MIN_CELLS_WITH_ALL
        columns += [ListColumn(title(name), 8, from_width=from_width) for name in WORK]
    if _has_decoded_columns(table):
        columns += DECODED_COLUMNS
    titles_of_groups = {"name": what.one, "module": "module or annotation"}
    name = titles_of_groups.get(table.by, table.by)
    columns.append(ListColumn(title("name", name), 0, left=True))
    return columns


def _with_view(state: State, view: KernelView) -> State:
    """Another view, the cursor on the first row."""
    return replace(state, kernels=view, hint="").with_list(NAME)


def group_by(state: State) -> State:
    """Grouped by the next of BYS, or a sentence while these groups are not known."""
    if not len(state.side.trace.rows_of(Role.KERNEL)):
        return told(state, _no_kernels(shown_table(state)))
    by = next_of(BYS, state.kernels.by)
    now = _with_view(state, replace(state.kernels, by=by))
    if by in known_keys(state.side):
        return now
    return told(now, working(state.side.trace, f"kernels by {by}"))


def narrow_to(state: State) -> State:
    """Only the kernels of the group under the cursor, by name."""
    table = shown_table(state)
    group = PAGE.group(state)
    if table.role is not Role.KERNEL:
        return told(state, _no_kernels(table))
    if group < 0 or table.by == "name":
        return told(
            state, "Only groups can be drilled into; by name, each row is one kernel"
        )
    only = Only(table.by, int(table.numbers[group]), table.label(group))
    only_now = (*state.kernels.only, only)
    view = replace(state.kernels, by="name", only=only_now, words="")
    return _with_view(state, view)


def ask_for_words(state: State) -> State:
    """Asks for the words of the rows that are listed."""
    return replace(state, prompt=Prompt.ROWS, typed=state.kernels.words)


def with_words(state: State, words: str) -> State:
    """Only the rows that have all of some words; all for ""."""
    if words == state.kernels.words:
        return state
    return _with_view(state, replace(state.kernels, words=words))


def widen(state: State) -> State:
    """All rows, where words were typed; else the groups among which the last one was
    chosen."""
    if state.kernels.words:
        return with_words(state, "")
    if not state.kernels.only:
        return told(state, "all of them are shown")
    *only, last = state.kernels.only
    view = replace(state.kernels, by=last.by, only=tuple(only))
    return _with_view(state, view)


def _no_kernels(table: KernelTable) -> str:
    """What the page shows instead of groups of kernels."""
    what = WHAT[table.role].many
    return f"this trace has no GPU kernels: its {what} are shown by name"


def sort(state: State, by: int) -> State:
    """Sorted by the next figure that is known, or for -1 by the one before; its column
    is shown."""
    table = shown_table(state)
    sorts = [name for name in SORTS if name not in WORK or table.has_work]
    view = replace(state.kernels, sort=next_of(sorts, state.kernels.sort, by))
    if view.sort in WORK:
        view = replace(view, shows_work=True)
    elif view.sort in SPREAD:
        view = replace(view, shows_work=False)
    return replace(state, kernels=view).with_list(NAME)


def switch_columns(state: State) -> State:
    """The columns of how well kernels used the device in place of their durations, or
    back; a sentence where nothing is known of that."""
    table = shown_table(state)
    if table.role is not Role.KERNEL:
        return told(state, _no_kernels(table))
    if not table.has_work:
        if not state.side.insight.answer:
            return told(state, working(state.side.trace, "the work of kernels"))
        return told(state, NO_WORK)
    shows_work = not state.kernels.shows_work
    hidden = SPREAD if shows_work else WORK
    sort = "total" if state.kernels.sort in hidden else state.kernels.sort
    view = replace(state.kernels, shows_work=shows_work, sort=sort)
    return replace(state, kernels=view, hint="")


NO_WORK = (
    "FLOP and bytes are known of no kernel here; record_shapes=True records the inputs"
)

_action = partial(action, section="In the kernels", where=on(NAME))
KernelsPage.actions = (
    _action(
        name="group-by",
        title="Group by",
        written="t",
        help="name, kind, library, op, shape, module, ...",
        run=group_by,
    ),
    _action(
        name="narrow",
        title="Only these",
        written="space l right",
        help="the kernels of the group, by name",
        run=narrow_to,
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
        written="&",
        help="only those that have all words that are typed",
        run=ask_for_words,
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
