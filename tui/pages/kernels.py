"""The kernels page: kernels in groups, or CPU ops where no GPU worked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from fusetui.analysis.questions.groups import Keys
from fusetui.text.figures import count, duration, percent, plural
from fusetui.trace.model.categories import Role
from fusetui.trace.model.memo import memo
from fusetui.tui.drawing.details import details_height
from fusetui.tui.drawing.picture import Rows, Said, row_parts, text
from fusetui.tui.drawing.schemes import TEXT, Styled, glyphs_for, share_bar
from fusetui.tui.layout.answer import working
from fusetui.tui.layout.kernel_table import (
    BYS,
    SORTS,
    SPREAD,
    KernelTable,
    KernelView,
    Only,
    decoded_texts,
    keys_of,
    table_of,
)
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
from fusetui.tui.state.state import Size, State, told

if TYPE_CHECKING:
    from fusetui.tables.public import Table

NAME = "kernels"
WIDE = 150  # cells of a screen that shows what a name says in columns
BAR = 10


class KernelsPage(ListPage):
    """Enter shows the longest of a group in the timeline, n and N the others."""

    name, title, key = NAME, "Kernels", "3"
    is_table = True
    help = "grouped by name, kind, library, op, shape, module, stream or step"
    hints = (
        "help keys; row-down/row-up move; show go to longest; group-by group by; "
        "narrow drill in; sort-right/sort-left sort; instances instances; copy copy"
    )

    def rows(self, state: State) -> Rows:
        table, view, glyphs = (
            shown_table(state),
            state.kernels,
            glyphs_for(state.ascii_only),
        )
        order, columns = table.order(view.sort), _columns(table, view)

        def row(index: int, width: int) -> list[Styled]:
            group = int(order[index])
            units, one, total = (
                table.units,
                table.spreads[group],
                int(table.totals[group]),
            )
            texts = [
                units["total"].text(total),
                percent(total, table.whole_ns),
                share_bar(total, table.whole_ns, BAR, glyphs),
                count(one.count),
                *(units[name].text(getattr(one, f"{name}_ns")) for name in SPREAD),
                *(decoded_texts(table.full_name(group)) if len(columns) > 8 else ()),
                table.label(group),
            ]
            return row_parts(columns, texts, width, last=table.kind(group).token + TEXT)

        return Rows(
            (table, view), len(table), lambda width: titles(columns, width), row
        )

    def led_to(self, state: State, rank: int) -> State:
        state = replace(state, kernels=KernelView())
        return state.with_list(
            self.name, replace(state.list_of(self.name), cursor=rank)
        )

    def chosen(self, state: State, index: int) -> State:
        return search.shown(state, self.hits(state))

    def subject(self, state: State) -> int:
        table, group = shown_table(state), self.group(state)
        return table.longest(group) if group >= 0 else -1

    def above(self, state: State, size: Size) -> Sequence[Pane]:
        table, view = shown_table(state), state.kernels
        what, time = (
            ("CPU ops", "self") if table.role is Role.OP else ("kernels", "kernel")
        )
        only = "".join(f"   only {one.by} {one.label}" for one in view.only)
        about = f" {_counts(table, what)}{only}"
        share = f"   share of the {duration(table.whole_ns)} of {time} time"
        return (Pane(1, text([Said(about + share, "plain")])),)

    def below(self, state: State, size: Size) -> Sequence[Pane]:
        said = "this trace has neither kernels nor CPU ops"
        row, height = self.subject(state), details_height(size.height)
        found = (
            slice_details(state, row, "longest instance")
            if row >= 0
            else text([Said(said)])
        )
        return (Pane(height, found),)

    def follow(self, before: State, state: State) -> State:
        state = replace(state, kernels=replace(state.kernels, only=()))
        if self.name not in before.lists:
            return state
        new, group = shown_table(state), self.group(before)
        labels = [new.full_name(int(n)) for n in new.order(state.kernels.sort)]
        name = shown_table(before).full_name(group) if group >= 0 else ""
        cursor = labels.index(name) if name in labels else 0
        return state.with_list(
            self.name, replace(before.list_of(self.name), cursor=cursor)
        )

    def table(self, state: State, rows: Sequence[int] | None = None) -> Table:
        """As `fusetui kernels --format` has it; of kinds, and of CPU ops, as the page
        has them."""
        found = shown_table(state)
        order = found.order(state.kernels.sort)
        groups = order if rows is None else order[[*rows]]
        fields = [found.fields(int(found.numbers[group])) for group in groups]
        texts = {
            name: [one.get(name) for one in fields] for name in (fields or [{}])[0]
        }
        total = "self_ns" if found.role is Role.OP else "total_ns"
        figures = {
            total: found.totals[groups],
            "share": found.totals[groups] / max(1, found.whole_ns),
            "count": found.figures("count")[groups],
            **{f"{one}_ns": found.figures(one)[groups] for one in SPREAD},
        }
        return page_table(self.name, texts, **figures)

    def group(self, state: State) -> int:
        order = shown_table(state).order(state.kernels.sort)
        at = min(state.list_of(self.name).cursor, len(order) - 1)
        return int(order[at]) if len(order) else -1

    def hits(self, state: State) -> Hits:
        table, group = shown_table(state), self.group(state)
        rows = table.rows_of(group)
        at = int((rows == table.longest(group)).argmax())
        return Hits(table.full_name(group), state.active, rows, at)


def _counts(table: KernelTable, what: str) -> str:
    """`4 distinct kernels, 15 launches`, or `kernels by module: 3 groups, 15
    launches`. `what`: kernels or CPU ops."""
    each = plural(len(table.rows), "call" if table.role is Role.OP else "launch")
    if table.by == "name":
        one = what.removesuffix("s")
        return f"{plural(len(table), f'distinct {one}')}, {each}"
    return f"{what} by {table.by}: {plural(len(table), 'group')}, {each}"


PAGE = KernelsPage()


def known_keys(side: Side) -> Mapping[str, Keys]:
    """By shape and module only once the answer is known."""
    answer = side.insight.answer
    return answer.kernel_keys if answer else keys_of(side.trace)


def shown_table(state: State) -> KernelTable:
    return _table(state.side, state.kernels.by, state.kernels.only)


@memo(8)
def _table(side: Side, by: str, only: tuple[Only, ...]) -> KernelTable:
    return table_of(side.trace, known_keys(side), KernelView(by, only=only))


def _columns(table: KernelTable, view: KernelView) -> Sequence[ListColumn]:
    units, is_op = table.units, table.role is Role.OP

    def title(sort: str, text: str = "") -> str:
        text = text or f"{sort} {units[sort].name}"
        return f"{text}*" if sort == view.sort else text

    columns = [
        ListColumn(title("total", f"self {units['total'].name}" * is_op), 10),
        ListColumn("share", 7),
        ListColumn("", BAR, left=True, from_width=90),
        ListColumn(title("count", "count"), 7),
        ListColumn(title("median"), 11),
        *(ListColumn(title(sort), 9, from_width=110) for sort in ("min", "max")),
    ]
    if table.by == "name" and not is_op:
        named = (
            ("kind", 11),
            ("tile", 11),
            ("layout", 6),
            ("dtype", 6),
            ("stages", 6),
            ("arch", 6),
        )
        columns += [
            ListColumn(text, cells, left=True, from_width=WIDE) for text, cells in named
        ]
    what = "CPU op" if is_op else "kernel" if table.by == "name" else table.by
    return [*columns, ListColumn(title("name", what), 0, left=True)]


def _with_view(state: State, view: KernelView) -> State:
    return replace(state, kernels=view, hint="").with_list(NAME)


def group_by(state: State) -> State:
    if not len(state.side.trace.rows_of(Role.KERNEL)):
        return told(state, "this trace has no kernels: its CPU ops are shown by name")
    by = next_of(BYS, state.kernels.by)
    now = _with_view(state, replace(state.kernels, by=by))
    if by in known_keys(state.side):
        return now
    return told(now, working(state.side.trace, f"kernels by {by}"))


def narrow_to(state: State) -> State:
    table, group = shown_table(state), PAGE.group(state)
    if table.role is Role.OP:
        return told(state, "this trace has no kernels: its CPU ops are shown by name")
    if group < 0 or table.by == "name":
        return told(
            state, "Only groups can be drilled into; by name, each row is one kernel"
        )
    only = Only(table.by, int(table.numbers[group]), table.label(group))
    return _with_view(
        state, KernelView("name", state.kernels.sort, (*state.kernels.only, only))
    )


def widen(state: State) -> State:
    if not state.kernels.only:
        return told(state, "all of them are shown")
    *only, last = state.kernels.only
    return _with_view(state, KernelView(last.by, state.kernels.sort, tuple(only)))


def sort(state: State, by: int) -> State:
    view = replace(state.kernels, sort=next_of(SORTS, state.kernels.sort, by))
    return replace(state, kernels=view).with_list(NAME)


_action = partial(action, section="In the kernels", where=on(NAME))
_ONLY = "the kernels of the group, by name"
KernelsPage.actions = (
    _action(
        "group-by",
        "Group by",
        "t",
        "name, kind, library, op, shape, module, ...",
        group_by,
    ),
    _action("narrow", "Only these", "space l right", _ONLY, narrow_to),
    _action("widen", "All again", "h left", "back to the groups", widen),
    *sort_actions(_action, "", sort, said="its title has a star"),
)
