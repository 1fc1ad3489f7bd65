"""Pages that are lists."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from msgspec.structs import replace

from fusetui.tui.drawing.rows import ListPicture, Rows, scrolled
from fusetui.tui.pages.page import Page, Pane, Turn
from fusetui.tui.state.state import Outcome, Size, State


class ListPage(Page):
    """A list with a cursor, between panes of fixed heights."""

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

    def moved(self, state: State) -> State:
        """Called when the cursor has moved to another row."""
        return state

    def show(self, state: State, size: Size) -> Sequence[Pane]:
        above, below = self.above(state, size), self.below(state, size)
        height = max(0, size.height - sum(pane.height for pane in (*above, *below)))
        return (*above, list_pane(self, state, height), *below)

    def scroll(self, before: State, state: State, size: Size) -> State:
        """Moves the cursor to an existing row, and that row onto the screen."""
        now = state.list_of(self.name)
        cursor = max(0, min(now.cursor, self.rows(state).count - 1))
        top = scrolled(cursor, now.top, self.room(state, size))
        if (cursor, top) == (now.cursor, now.top):
            return state
        return state.with_list(self.name, replace(now, cursor=cursor, top=top))

    def room(self, state: State, size: Size) -> int:
        """How many rows fit on the screen."""
        others = (*self.above(state, size), *self.below(state, size))
        return max(1, size.height - sum(pane.height for pane in others) - 1)


def list_pane(listing: ListPage, state: State, height: int) -> Pane:
    """The list itself: a click moves the cursor to a row, the wheel moves it by rows."""
    now = state.list_of(listing.name)
    picture = ListPicture(listing.rows(state), now.cursor, now.top)

    def pointed(state: State, x: int, y: int) -> State:
        index = picture.index_at(y)
        return state if index < 0 else at_row(listing, state, index)

    def wheeled(state: State, turn: Turn) -> State:
        return at_row(listing, state, state.list_of(listing.name).cursor + turn.lines)

    return Pane(height, picture, pointed, wheeled)


def at_row(listing: ListPage, state: State, index: int) -> State:
    """Moves the cursor to a row, or to the nearest existing one."""
    now = state.list_of(listing.name)
    index = max(0, min(index, listing.rows(state).count - 1))
    if index == now.cursor:
        return state
    return listing.moved(state.with_list(listing.name, replace(now, cursor=index)))
