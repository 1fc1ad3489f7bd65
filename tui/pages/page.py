"""What a page is: a name, a key, and four functions of the state."""

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
from fusetui.tui.state.state import COPIED, Details, Outcome, Overlay, Size, State

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
    key: ClassVar[str]
    help: ClassVar[str]
    hints: ClassVar[str]
    """The last line of the screen, what matters most first, with `; ` between: `down/up
    line` names two actions, whose keys are shown, and says what they do."""
    copies: ClassVar[str] = "name"  # what each line of `copied` is
    is_table: ClassVar[bool] = False  # whether `table` gives one
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
        """These rows of its list, or all, with figures in full; None where the page is
        no table."""
        return None

    def subject(self, state: State) -> int:
        """The row of the active side that the page describes, and that Enter shows; -1
        for none."""
        return -1

    def change(self, state: State) -> str:
        """The change of `whatif` that the row under the cursor is about; "" for
        none."""
        return ""

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
        return ()

    def below(self, state: State, size: Size) -> Sequence[Pane]:
        return ()

    def under_cursor(self, state: State, found: Sequence[T]) -> T | None:
        """The one of these, which stand in its rows."""
        cursor = min(state.list_of(self.name).cursor, len(found) - 1)
        return found[cursor] if found else None

    def copied(self, state: State) -> str:
        """The row under the cursor as TSV, below the names of its columns."""
        cursor = min(state.list_of(self.name).cursor, self.rows(state).count - 1)
        found = self.table(state, (cursor,)) if cursor >= 0 else None
        if found is None:
            return ""
        from fusetui.tables.files import tsv_lines  # rarely needed

        return clip("".join(tsv_lines(found))[:-1], MOST_COPIED)

    def moved(self, state: State) -> State:
        return state

    def show(self, state: State, size: Size) -> Sequence[Pane]:
        above, below = self.above(state, size), self.below(state, size)
        height = max(0, size.height - sum(pane.height for pane in (*above, *below)))
        now = state.list_of(self.name)
        picture = ListPicture(self.rows(state), now.cursor, now.top)

        def pointed(state: State, x: int, y: int) -> State:
            index = picture.index_at(y)
            return state if index < 0 else self.at_row(state, index)

        def wheeled(state: State, turn: Turn) -> State:
            return self.at_row(state, state.list_of(self.name).cursor + turn.lines)

        return (*above, Pane(height, picture, pointed, wheeled), *below)

    def at_row(self, state: State, index: int) -> State:
        """The cursor on a row, or on the nearest existing one."""
        now = state.list_of(self.name)
        index = max(0, min(index, self.rows(state).count - 1))
        if index == now.cursor:
            return state
        return self.moved(state.with_list(self.name, replace(now, cursor=index)))

    def scroll(self, before: State, state: State, size: Size) -> State:
        now = state.list_of(self.name)
        cursor = max(0, min(now.cursor, self.rows(state).count - 1))
        top = scrolled(cursor, now.top, self.room(state, size))
        if (cursor, top) == (now.cursor, now.top):
            return state
        return state.with_list(self.name, replace(now, cursor=cursor, top=top))

    def room(self, state: State, size: Size) -> int:
        others = (*self.above(state, size), *self.below(state, size))
        return max(1, size.height - sum(pane.height for pane in others) - 1)


LISTS = "In the lists"
ENDLESS = 1 << 60  # rows


def list_actions(find: Callable[[State], ListPage | None]) -> tuple[Action, ...]:
    """The actions of lists; the argument finds the list that receives the keys."""

    def move(state: State, rows: int = 0, pages: int = 0) -> State:
        if (listing := find(state)) is None:
            return state
        room = max(1, listing.room(state, size_of(state)) - 1) if pages else 0
        return listing.at_row(
            state, state.list_of(listing.name).cursor + rows + pages * room
        )

    def choose(state: State) -> Outcome:
        if (listing := find(state)) is None or not listing.rows(state).count:
            return state
        return listing.chosen(state, state.list_of(listing.name).cursor)

    def instances(state: State) -> Outcome:
        """The slices that Enter would lead to, as a list; else what was searched
        for."""
        found = choose(state)
        hits = found.session.hits if isinstance(found, State) else None
        same = hits is None or hits is state.session.hits or not find(state)
        return (
            search.list_hits(state)
            if same or hits is None
            else search.listed(state, hits)
        )

    listed = partial(
        action, section=LISTS, where=lambda s: find(s) is not None, needs=nothing
    )
    down, up = (partial(move, pages=by) for by in (1, -1))
    first, last = (partial(move, rows=by) for by in (-ENDLESS, ENDLESS))
    return (
        listed("row-down", "Row down", "j down", "the next row", partial(move, rows=1)),
        listed("row-up", "Row up", "k up", "the row before", partial(move, rows=-1)),
        listed(
            "rows-down", "Page of rows down", "pagedown", "a screen of rows down", down
        ),
        listed("rows-up", "Page of rows up", "pageup", "a screen of rows up", up),
        listed("first", "First row", "g home", "of the list", first),
        listed("last", "Last row", "G end", "of the list", last),
        listed(
            "show", "Show", "enter", "the row in the timeline; open a trace", choose
        ),
        listed(
            "instances", "Instances", "T", "what the row leads to, as a list", instances
        ),
    )


def sort_actions(
    make: Callable[..., Action],
    prefix: str,
    sort: Callable[[State, int], Outcome],
    keys: str = ">",
    said: str = "marked *",
) -> tuple[Action, Action]:
    """Sorted by the next column of a table, or the one before; `make` makes actions of
    its page."""
    right, left = (lambda state: sort(state, 1)), (lambda state: sort(state, -1))
    return (
        make(f"{prefix}sort-right", "Sort by the next column", keys, said, right),
        make(f"{prefix}sort-left", "Sort by the one before", "<", "marked *", left),
    )


def next_of(names: Sequence[str], now: str, by: int = 1) -> str:
    """The name after one of them, or before it; the first after the last."""
    return names[(names.index(now) + by) % len(names)]


MOST_COPIED = 50_000  # characters; terminals drop much longer clipboard texts
WORTH_SAYING = 1000  # characters of the text; no hint shows more


def slice_text(side: Side, row: int) -> str:
    """The full name of a slice, its start as on the ruler, and its duration; exact."""
    trace = side.trace
    start, dur = int(trace.start[row]) - side.origin, int(trace.dur[row])
    rest = f"   start {start} ns   duration {dur} ns"
    return clip(printable(trace.name_of(row)), MOST_COPIED - len(rest)) + rest


def page_table(
    name: str,
    texts: Mapping[str, Sequence[Any]],
    **figures: NDArray[Any] | Sequence[int | None],
) -> Table:
    """What names the rows of a page, then their figures, shape [rows]; None of a list
    is none."""
    from fusetui.tables.public import Table  # rarely needed
    from fusetui.tables.table import ColumnSpec, TableColumn, column_of

    named = [
        column_of(ColumnSpec(column, "text", ""), values)
        for column, values in texts.items()
    ]
    counted = (
        TableColumn(column, values)
        if isinstance(values, np.ndarray)
        else column_of(ColumnSpec(column, "int", "", True), values)
        for column, values in figures.items()
    )
    return Table(name, (*named, *counted))


def what_was_copied(text: str, noun: str = "name") -> str:
    """One sentence about a copied text, on one line; `noun`: what each of its lines
    is."""
    if not text:
        return "nothing is selected, so nothing was copied"
    lines = text.split("\n")
    if noun == ROW:  # below the names of its columns
        lines = [lines[-1].replace("\t", "  ")]
    cut = (
        f" (the first {count(MOST_COPIED)} characters)"
        if len(text) >= MOST_COPIED
        else ""
    )
    counted = f" {plural(len(lines), noun)}" if len(lines) > 1 else ""
    return f"{COPIED}{counted}{cut}: {narrow(lines[0][:WORTH_SAYING])}"
