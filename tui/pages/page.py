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
from fusetui.trace.model.arrays import NO_ROW
from fusetui.tui.drawing.canvas import Drag, Turn
from fusetui.tui.drawing.details import details
from fusetui.tui.drawing.picture import (
    ListPicture,
    Picture,
    Rows,
    TextPicture,
    make_ruled_picture,
    scroll_to_cursor,
)
from fusetui.tui.drawing.schemes import choose_glyphs
from fusetui.tui.layout.kinds import narrow
from fusetui.tui.layout.view import Side
from fusetui.tui.state import search
from fusetui.tui.state.action import Action, action, nothing, why_no_trace
from fusetui.tui.state.screen import active_size
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
        """Return the panes of the page from top to bottom; their heights add up to the
        height of `size`."""

    def ask(self, state: State) -> Outcome | None:
        """Return the state and effect that start background work the page needs before
        it can be shown, or None. When the work is done, the page comes to the front by
        itself."""
        return None

    def open(self, state: State) -> Outcome:
        """Return the state after the page came to the front. It is called once the
        state names this page."""
        return state

    def follow(self, before: State, state: State) -> State:
        """Return the state after more of the open traces was read, with what the user
        looks at kept. `before` is the state on the shorter traces."""
        return state

    def scroll(self, before: State, state: State, size: Size) -> State:
        """Return the state scrolled so that the cursor is in sight. It is called after
        every change while this page is in front."""
        return state

    def copied(self, state: State) -> str:
        """Return the text that copying puts into the clipboard: what the cursor is on,
        in printable characters. It is empty where the cursor is on nothing."""
        return ""

    def table(self, state: State, rows: Sequence[int] | None = None) -> Table | None:
        """Return the list of the page as a table to save, with exact figures; only
        `rows` of it, unless that is None. Where there is no table, the result is None,
        and `why_no_table` gives the reason."""
        return None

    def why_no_table(self, state: State) -> str:
        """Return a sentence that says why the page has no table to save."""
        return "this table is not ready yet"

    def table_name(self, state: State) -> str:
        """Return the suggested file name of a saved table, without its ending."""
        return self.name

    def subject(self, state: State) -> int:
        """Return the row of the slice that the page describes and that Enter shows, in
        the trace of the active side. It is -1 for none."""
        return -1

    def change(self, state: State) -> str:
        """Return the what-if change that the row under the cursor is about, such as
        `kind:gemm x0.8`. It is empty for none."""
        return ""

    def changed_part(self, state: State) -> str | None:
        """Return what a what-if change would name for the row under the cursor, such as
        `kind:gemm`.

        It is empty where no change can name the row, and None where the slice that the
        row is about decides.
        """
        return None

    def described(self, state: State) -> Overlay | str:
        """Return the overlay with all details of the slice that the page describes, or
        a sentence where there are none."""
        row = self.subject(state)
        return Details(state.side, row) if row != NO_ROW else NO_MORE

    def slice_with_source(self, state: State) -> Details | None:
        """Return the slice whose source code the user may ask for, or None. It is the
        one that `described` gives."""
        overlay_or_reason = self.described(state)
        if isinstance(overlay_or_reason, Details):
            return overlay_or_reason
        return None

    def takes_key(self, state: State) -> bool:
        """Return whether pressing the key of the page brings this page to the front.
        Otherwise another page with the same key comes."""
        return True

    def awaits(self, state: State) -> bool:
        """Return whether the list of the page is being computed, so that keys that act
        on its rows have to wait."""
        return False

    def missing(self, state: State) -> str:
        """Return why the page cannot be shown, or "" if it can. It is only called where
        `has` is true."""
        return ""

    def has(self, state: State) -> bool:
        """Return whether what the page shows is open: by default, whether any trace is."""
        return bool(state.sides)

    def why_not(self, state: State) -> str:
        """Return a sentence that says why the page cannot be shown, or "" if it can."""
        return self.missing(state) if self.has(state) else why_no_trace(state)


def make_slice_details(state: State, row: int, title: str) -> TextPicture:
    """Return a picture with a few lines about the slice in `row` of the active side,
    below a rule with `title`."""
    side = state.side
    glyphs = choose_glyphs(state.ascii_only)
    draw_lines = partial(details, side, row, glyphs=glyphs)
    identity = (side, row, state.unpacked)
    return make_ruled_picture(identity, title, glyphs.rule, draw_lines)


class ListPage(Page):
    """A list with a cursor, between panes of fixed heights."""

    copies = ROW

    @abstractmethod
    def rows(self, state: State) -> Rows:
        """Return the rows of the list. It is called for every key, so it must be cheap."""

    @abstractmethod
    def chosen(self, state: State, index: int) -> Outcome:
        """Return the outcome of Enter on the row at `index`."""

    def above(self, state: State, size: Size) -> Sequence[Pane]:
        """Return the panes above the list, from top to bottom; none by default."""
        return ()

    def below(self, state: State, size: Size) -> Sequence[Pane]:
        """Return the panes below the list, from top to bottom; none by default."""
        return ()

    def under_cursor(self, state: State, items: Sequence[T]) -> T | None:
        """Return the item that belongs to the row under the cursor. `items` has one
        item per row; for an empty list the result is None."""
        if not items:
            return None
        return items[self._cursor_row(state, len(items))]

    def _cursor_row(self, state: State, count: int) -> int:
        """Return the row under the cursor in a list of `count` rows; -1 for an empty
        list."""
        return min(state.list_of(self.name).cursor, count - 1)

    def copied(self, state: State) -> str:
        """Return the row under the cursor as tab-separated text, below the names of the
        columns. It is empty where there is no row or no table, and cut to what a
        clipboard takes."""
        cursor = self._cursor_row(state, self.rows(state).count)
        if cursor < 0:
            return ""
        table = self.table(state, (cursor,))
        if table is None:
            return ""
        from fusetui.tables.files import tsv_lines  # rarely needed

        tsv_text = "".join(tsv_lines(table))
        return clip(tsv_text[:-1], MAX_COPIED_CHARS)  # without the last line break

    def moved(self, state: State) -> State:
        """Return the state after the cursor has moved to another row. Pages override it
        to react."""
        return state

    def show(self, state: State, size: Size) -> Sequence[Pane]:
        """Return the panes above the list, the list itself, and those below it. The
        list gets the lines that the other panes leave."""
        above = self.above(state, size)
        below = self.below(state, size)
        lines_of_others = sum(pane.height for pane in (*above, *below))
        list_state = state.list_of(self.name)
        picture = ListPicture(
            rows=self.rows(state),
            cursor=list_state.cursor,
            top=list_state.top,
            ellipsis=choose_glyphs(state.ascii_only).ellipsis,
        )

        def on_click(state: State, x: int, y: int) -> State:
            index = picture.index_at(y)
            is_on_row = index >= 0
            return self.at_row(state, index) if is_on_row else state

        def on_wheel(state: State, turn: Turn) -> State:
            cursor = state.list_of(self.name).cursor
            return self.at_row(state, cursor + turn.lines)

        height = max(0, size.height - lines_of_others)
        return (*above, Pane(height, picture, on_click, on_wheel), *below)

    def at_row(self, state: State, index: int) -> State:
        """Return the state with the cursor on the row at `index`, or on the nearest one
        that exists."""
        list_state = state.list_of(self.name)
        last_row = self.rows(state).count - 1
        index = max(0, min(index, last_row))
        if index == list_state.cursor:
            return state
        moved_state = state.with_list(self.name, replace(list_state, cursor=index))
        return self.moved(moved_state)

    def paged(self, state: State, rows: int) -> State:
        """Return the state with the cursor `rows` rows further down, or up where
        negative. Lists of text override it to scroll."""
        return self.at_row(state, state.list_of(self.name).cursor + rows)

    def scroll(self, before: State, state: State, size: Size) -> State:
        """Return the state with the cursor on a row that exists and the list scrolled
        so that it is in sight."""
        list_state = state.list_of(self.name)
        cursor = max(0, self._cursor_row(state, self.rows(state).count))
        first_row = scroll_to_cursor(cursor, list_state.top, self.room(state, size))
        if cursor == list_state.cursor and first_row == list_state.top:
            return state
        return state.with_list(
            self.name, replace(list_state, cursor=cursor, top=first_row)
        )

    def room(self, state: State, size: Size) -> int:
        """Return how many rows of the list fit on the screen, at least one. The panes
        around the list and its line of titles are taken off."""
        other_panes = (*self.above(state, size), *self.below(state, size))
        line_of_titles = 1
        list_lines = size.height - sum(pane.height for pane in other_panes)
        return max(1, list_lines - line_of_titles)


LISTS = "In the lists"
BEYOND_ANY_LIST = 1 << 60  # rows
FindList = Callable[[State], ListPage | None]
"""Finds the list that receives the keys; None for none."""


def list_actions(find: FindList) -> tuple[Action, ...]:
    """Return the actions that all lists share. `find` returns the list that receives
    the keys, or None."""
    listed = partial(
        action, section=LISTS, where=lambda s: find(s) is not None, needs=nothing
    )
    return (
        *_list_move_actions(find, listed),
        listed(
            name="show",
            title="Show",
            written="enter",
            help="the row in the timeline; open a trace",
            run=partial(_choose_row, find),
        ),
        listed(
            name="instances",
            title="Instances",
            written="T",
            help="what the row leads to, as a list",
            run=partial(_list_instances, find),
        ),
    )


def _list_move_actions(
    find: FindList, listed: Callable[..., Action]
) -> tuple[Action, ...]:
    """Return the actions that move the cursor of a list: by a row, by a screen, and to
    either end. `listed` makes an action that applies where a list has the keys."""
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
            help="the previous row",
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
    """Return the state with the cursor moved down by `rows` plus `screens` screens of
    rows; negative numbers move up."""
    page = find(state)
    if page is None:
        return state
    if screens:
        # one row of the screen before stays in sight
        rows_of_screen = page.room(state, active_size(state)) - 1
        return page.paged(state, screens * max(1, rows_of_screen))
    return page.at_row(state, state.list_of(page.name).cursor + rows)


def _choose_row(find: FindList, state: State) -> Outcome:
    """Carry out Enter on the row under the cursor. An empty list says so; without a
    list nothing happens."""
    page = find(state)
    if page is None:
        return state
    if not page.rows(state).count:
        return told(state, "the list is empty")
    return page.chosen(state, state.list_of(page.name).cursor)


def _list_instances(find: FindList, state: State) -> Outcome:
    """Open a list of the slices that Enter on this row would lead to, such as all
    launches of a kernel. Where Enter leads to no slices, the list has the hits of the
    last search."""
    outcome = _choose_row(find, state)
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
    """Return the two actions that sort a table by the next column or the one before.

    `make` makes actions of the page, and `prefix` starts their names. `sort` gets the
    state and +1 or -1. `keys` and `said` are the keys and the help of the first.
    """
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


def cycle_name(names: Sequence[str], now: str, by: int = 1) -> str:
    """Return the name that stands `by` places after `now` in `names`; the first follows
    the last. `now` must be one of the names."""
    index = names.index(now) + by
    return names[index % len(names)]


MAX_COPIED_CHARS = 50_000  # terminals drop much longer clipboard texts
MAX_HINT_CHARS = 1000  # of a text that was copied; no hint shows more


def format_slice(side: Side, row: int) -> str:
    """Return the full name of a slice, its exact start (ns, as on the ruler) and its
    exact duration (ns), for the clipboard. A long name is cut."""
    trace = side.trace
    start_ns = int(trace.start[row]) - side.origin
    times = f"   start {start_ns} ns   duration {int(trace.dur[row])} ns"
    name_chars = MAX_COPIED_CHARS - len(times)
    return clip(printable(trace.name_of(row)), name_chars) + times


def make_page_table(
    name: str,
    texts: Mapping[str, Sequence[Any]],
    **figures: NDArray[Any] | Sequence[int | None],
) -> Table:
    """Return a table to save from columns of texts, which name its rows, and columns of
    figures, of shape [rows]. A figure that is None or nan is missing in the table."""
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


def describe_copy(text: str, noun: str = "name") -> str:
    """Return one sentence, on one line, about a text that was copied. `noun` says what
    each line of it is; an empty text means that nothing was selected."""
    if not text:
        return "nothing is selected, so nothing was copied"
    lines = text.split("\n")
    if noun == ROW:  # below the names of its columns
        lines = [lines[-1].replace("\t", "  ")]
    sentence = COPIED
    if len(lines) > 1:
        sentence += f" {plural(len(lines), noun)}"
    if len(text) >= MAX_COPIED_CHARS:
        sentence += f" (the first {count(MAX_COPIED_CHARS)} characters)"
    return f"{sentence}: {narrow(lines[0][:MAX_HINT_CHARS])}"
