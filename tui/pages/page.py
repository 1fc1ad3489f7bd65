"""The definition of a page: a name, a key, and four functions of the state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui.text.cutting import clip
from fusetui.text.figures import count, plural
from fusetui.text.printable import printable
from fusetui.tui.drawing.canvas import Drag, Turn
from fusetui.tui.drawing.details import details
from fusetui.tui.drawing.picture import (
    ListPicture,
    Picture,
    Rows,
    TextPicture,
    ruled,
    scrolled,
)
from fusetui.tui.drawing.schemes import glyphs_for
from fusetui.tui.layout.kinds import narrow
from fusetui.tui.layout.view import Side
from fusetui.tui.state import search
from fusetui.tui.state.action import Action, a_trace, action, nothing
from fusetui.tui.state.screen import size_of
from fusetui.tui.state.state import (
    COPIED,
    Details,
    Outcome,
    Overlay,
    Size,
    State,
    told,
)

if TYPE_CHECKING:
    from fusetui.tables.public import Table

T = TypeVar("T")
ROW = "row"  # what a table copies
NO_MORE = "No details for this row."


class Pane(msgspec.Struct, frozen=True, eq=False):
    """A part of a page: its picture, its lines, and what the mouse does there."""

    height: int
    picture: Picture
    # (state, x, y in the pane)
    pointed: Callable[[State, int, int], Outcome] | None = None
    wheeled: Callable[[State, Turn], Outcome] | None = None
    dragged: Callable[[State, Drag], Outcome] | None = None


class Page(ABC):
    """Keeps nothing itself: everything that it shows is in the State."""

    name: ClassVar[str]
    title: ClassVar[str]
    short: ClassVar[str] = ""  # the title in a narrow bar of pages, if it is another
    key: ClassVar[str]
    help: ClassVar[str]
    hints: ClassVar[str]
    narrow_hints: ClassVar[str] = ""  # the hints on a narrow screen, if they are others
    """The last line of the screen, what matters most first, with `; ` between: `down/up
    line` names two actions, whose keys are shown, and says what they do."""
    copies: ClassVar[str] = "name"  # what each line of `copied` is
    actions: ClassVar[tuple[Action, ...]] = ()  # keys of this page alone

    @abstractmethod
    def show(self, state: State, size: Size) -> Sequence[Pane]:
        """The panes from top to bottom; together as high as `size`."""

    def ask(self, state: State) -> Outcome | None:
        """What is worked out before the page can come to the front, which it then does
        itself."""
        return None

    def open(self, state: State) -> Outcome:
        """Called when the page comes to the front, after the state names it."""
        return state

    def follow(self, before: State, state: State) -> State:
        """Called when more of the open traces was read: what the user looks at
        stays."""
        return state

    def scroll(self, before: State, state: State, size: Size) -> State:
        """Called after every change while it is in front: keeps the cursor in sight."""
        return state

    def copied(self, state: State) -> str:
        """What the cursor is on, printable; "" if it is on nothing."""
        return ""

    def table(self, state: State, rows: Sequence[int] | None = None) -> Table | None:
        """These rows of its list, or all, with figures in full; None where there are
        none, for the reason `why_no_table`."""
        return None

    def why_no_table(self, state: State) -> str:
        """Why there is nothing to save."""
        return "this table is not known yet"

    def table_name(self, state: State) -> str:
        """What a file of the table is called at first, without its ending."""
        return self.name

    def subject(self, state: State) -> int:
        """The row of the active side that the page describes, and that Enter shows; -1
        for none."""
        return -1

    def change(self, state: State) -> str:
        """The change of `whatif` that the row under the cursor is about; "" for
        none."""
        return ""

    def changed_part(self, state: State) -> str | None:
        """What a change of `whatif` would name for the row under the cursor, such as
        `kind:gemm`; "" where no change names it, and None where the slice that the row
        is about decides."""
        return None

    def described(self, state: State) -> Overlay | str:
        """Everything about what the page describes, or a sentence where there is no
        more."""
        row = self.subject(state)
        return Details(state.side, row) if row >= 0 else NO_MORE

    def takes_key(self, state: State) -> bool:
        """Whether its key brings it to the front; else another page with this key
        comes."""
        return True

    def missing(self, state: State) -> str:
        """Why the page cannot be shown; "" if it can. Asked where `has` is true."""
        return ""

    def has(self, state: State) -> bool:
        """Whether what the page is about is open."""
        return bool(state.sides)

    def why_not(self, state: State) -> str:
        """Why the page cannot be shown; "" if it can."""
        return self.missing(state) if self.has(state) else a_trace(state)


def slice_details(state: State, row: int, title: str) -> TextPicture:
    """A few lines about a slice of the active side."""
    side, glyphs = state.side, glyphs_for(state.ascii_only)
    lines = partial(details, side, row, glyphs=glyphs)
    return ruled((side, row, state.unpacked), title, glyphs.rule, lines)


class ListPage(Page):
    """A list with a cursor, between panes of fixed heights."""

    copies = ROW

    @abstractmethod
    def rows(self, state: State) -> Rows:
        """What the list shows; called for every key, so it must be cheap."""

    @abstractmethod
    def chosen(self, state: State, index: int) -> Outcome:
        """Enter on a row."""

    def above(self, state: State, size: Size) -> Sequence[Pane]:
        """The panes above the list."""
        return ()

    def below(self, state: State, size: Size) -> Sequence[Pane]:
        """The panes below the list."""
        return ()

    def under_cursor(self, state: State, items: Sequence[T]) -> T | None:
        """The item in the row under the cursor; None for an empty list. `items`: what
        stands in each row."""
        if not items:
            return None
        return items[self._cursor(state, len(items))]

    def _cursor(self, state: State, count: int) -> int:
        """The row under the cursor in a list of `count` rows; -1 for an empty list."""
        return min(state.list_of(self.name).cursor, count - 1)

    def copied(self, state: State) -> str:
        """The row under the cursor as TSV, below the names of its columns."""
        cursor = self._cursor(state, self.rows(state).count)
        if cursor < 0:
            return ""
        table = self.table(state, (cursor,))
        if table is None:
            return ""
        from fusetui.tables.files import tsv_lines  # rarely needed

        text = "".join(tsv_lines(table))
        return clip(text[:-1], MAX_COPIED_CHARS)  # without the last line break

    def moved(self, state: State) -> State:
        """Called when the cursor has moved to another row."""
        return state

    def show(self, state: State, size: Size) -> Sequence[Pane]:
        """The list between its panes, with the lines that these leave."""
        above = self.above(state, size)
        below = self.below(state, size)
        others = sum(pane.height for pane in (*above, *below))
        list_state = state.list_of(self.name)
        picture = ListPicture(
            rows=self.rows(state),
            cursor=list_state.cursor,
            top=list_state.top,
            ellipsis=glyphs_for(state.ascii_only).ellipsis,
        )

        def pointed(state: State, x: int, y: int) -> State:
            index = picture.index_at(y)
            return state if index < 0 else self.at_row(state, index)

        def wheeled(state: State, turn: Turn) -> State:
            cursor = state.list_of(self.name).cursor
            return self.at_row(state, cursor + turn.lines)

        height = max(0, size.height - others)
        return (*above, Pane(height, picture, pointed, wheeled), *below)

    def at_row(self, state: State, index: int) -> State:
        """The cursor on a row, or on the nearest existing one."""
        list_state = state.list_of(self.name)
        last = self.rows(state).count - 1
        index = max(0, min(index, last))
        if index == list_state.cursor:
            return state
        now = state.with_list(self.name, replace(list_state, cursor=index))
        return self.moved(now)

    def paged(self, state: State, rows: int) -> State:
        """The cursor a screen of rows further down, or up."""
        return self.at_row(state, state.list_of(self.name).cursor + rows)

    def scroll(self, before: State, state: State, size: Size) -> State:
        """The cursor on an existing row, and the list scrolled so that it is in
        sight."""
        list_state = state.list_of(self.name)
        cursor = max(0, self._cursor(state, self.rows(state).count))
        top = scrolled(cursor, list_state.top, self.room(state, size))
        if cursor == list_state.cursor and top == list_state.top:
            return state
        return state.with_list(self.name, replace(list_state, cursor=cursor, top=top))

    def room(self, state: State, size: Size) -> int:
        """How many rows of the list are on the screen, at least one."""
        others = (*self.above(state, size), *self.below(state, size))
        line_of_titles = 1
        lines = size.height - sum(pane.height for pane in others)
        return max(1, lines - line_of_titles)


LISTS = "In the lists"
BEYOND_ANY_LIST = 1 << 60  # rows
FindList = Callable[[State], ListPage | None]
"""Finds the list that receives the keys; None for none."""


def list_actions(find: FindList) -> tuple[Action, ...]:
    """The actions of lists; the argument finds the list that receives the keys."""
    listed = partial(
        action, section=LISTS, where=lambda s: find(s) is not None, needs=nothing
    )
    return (
        *_list_moves(find, listed),
        listed(
            name="show",
            title="Show",
            written="enter",
            help="the row in the timeline; open a trace",
            run=partial(_choose, find),
        ),
        listed(
            name="instances",
            title="Instances",
            written="T",
            help="what the row leads to, as a list",
            run=partial(_list_instances, find),
        ),
    )


def _list_moves(find: FindList, listed: Callable[..., Action]) -> tuple[Action, ...]:
    """The actions that move the cursor of a list; `listed` makes actions of lists."""
    move = partial(_move_in_list, find)
    return (
        listed(
            name="row-down",
            title="Row down",
            written="j down",
            help="the next row",
            run=partial(move, rows=1),
        ),
        listed(
            name="row-up",
            title="Row up",
            written="k up",
            help="the row before",
            run=partial(move, rows=-1),
        ),
        listed(
            name="rows-down",
            title="Page of rows down",
            written="pagedown",
            help="a screen of rows down",
            run=partial(move, screens=1),
        ),
        listed(
            name="rows-up",
            title="Page of rows up",
            written="pageup",
            help="a screen of rows up",
            run=partial(move, screens=-1),
        ),
        listed(
            name="first",
            title="First row",
            written="g home",
            help="of the list",
            run=partial(move, rows=-BEYOND_ANY_LIST),
        ),
        listed(
            name="last",
            title="Last row",
            written="G end",
            help="of the list",
            run=partial(move, rows=BEYOND_ANY_LIST),
        ),
    )


def _move_in_list(
    find: FindList, state: State, rows: int = 0, screens: int = 0
) -> State:
    """The cursor of the list so many rows and screens of rows further down."""
    page = find(state)
    if page is None:
        return state
    if screens:
        # one row of the screen before stays in sight
        rows_of_screen = page.room(state, size_of(state)) - 1
        return page.paged(state, screens * max(1, rows_of_screen))
    return page.at_row(state, state.list_of(page.name).cursor + rows)


def _choose(find: FindList, state: State) -> Outcome:
    """What Enter does on the row under the cursor; nothing in an empty list."""
    page = find(state)
    if page is None:
        return state
    if not page.rows(state).count:
        return told(state, "the list is empty")
    return page.chosen(state, state.list_of(page.name).cursor)


def _list_instances(find: FindList, state: State) -> Outcome:
    """The slices that Enter would lead to, as a list; else what was searched for."""
    outcome = _choose(find, state)
    hits = outcome.session.hits if isinstance(outcome, State) else None
    if hits is None or hits is state.session.hits or not find(state):
        return search.list_hits(state)
    return search.listed(state, hits)


def sort_actions(
    make: Callable[..., Action],
    prefix: str,
    sort: Callable[[State, int], Outcome],
    keys: str = ">",
    said: str = "marked *",
) -> tuple[Action, Action]:
    """Sorted by the next column of a table, or the one before; `make` makes actions of
    its page."""
    return (
        make(
            name=f"{prefix}sort-right",
            title="Sort by the next column",
            written=keys,
            help=said,
            run=lambda state: sort(state, 1),
        ),
        make(
            name=f"{prefix}sort-left",
            title="Sort by the one before",
            written="<",
            help="marked *",
            run=lambda state: sort(state, -1),
        ),
    )


def next_of(names: Sequence[str], now: str, by: int = 1) -> str:
    """The name `by` places after one of them; the first follows the last."""
    index = names.index(now) + by
    return names[index % len(names)]


MAX_COPIED_CHARS = 50_000  # terminals drop much longer clipboard texts
MAX_HINT_CHARS = 1000  # of a text that was copied; no hint shows more


def slice_text(side: Side, row: int) -> str:
    """The full name of a slice, its start as on the ruler, and its duration; exact."""
    trace = side.trace
    start_ns = int(trace.start[row]) - side.origin
    times = f"   start {start_ns} ns   duration {int(trace.dur[row])} ns"
    room = MAX_COPIED_CHARS - len(times)
    return clip(printable(trace.name_of(row)), room) + times


def page_table(
    name: str,
    texts: Mapping[str, Sequence[Any]],
    **figures: NDArray[Any] | Sequence[int | None],
) -> Table:
    """What names the rows of a page, then their figures, shape [rows]; None of a list
    is none, and so is nan."""
    from fusetui.tables.public import Table  # rarely needed
    from fusetui.tables.table import ColumnSpec, TableColumn, column_of

    columns = []
    for title, values in texts.items():
        columns.append(column_of(ColumnSpec(title, "text", ""), values))
    for title, numbers in figures.items():
        if isinstance(numbers, np.ndarray) and np.isnan(numbers).any():
            known = [None if np.isnan(number) else number for number in numbers]
            columns.append(column_of(ColumnSpec(title, "float", "", True), known))
        elif isinstance(numbers, np.ndarray):
            columns.append(TableColumn(title, numbers))
        else:
            columns.append(column_of(ColumnSpec(title, "int", "", True), numbers))
    return Table(name, tuple(columns))


def what_was_copied(text: str, noun: str = "name") -> str:
    """One sentence about a copied text, on one line; `noun`: what each of its lines
    is."""
    if not text:
        return "nothing is selected, so nothing was copied"
    lines = text.split("\n")
    if noun == ROW:  # below the names of its columns
        lines = [lines[-1].replace("\t", "  ")]
    what = COPIED
    if len(lines) > 1:
        what += f" {plural(len(lines), noun)}"
    if len(text) >= MAX_COPIED_CHARS:
        what += f" (the first {count(MAX_COPIED_CHARS)} characters)"
    return f"{what}: {narrow(lines[0][:MAX_HINT_CHARS])}"
