"""The keys of every list, whether it is a page or an overlay."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fusetui.tui.pages.lists import ListPage, at_row
from fusetui.tui.state.action import Action, Run, action, nothing
from fusetui.tui.state.screen import size_of
from fusetui.tui.state.state import Outcome, State

SECTION = "In the lists"
Find = Callable[[State], ListPage | None]
"""The list that receives the keys now."""


def list_actions(find: Find) -> tuple[Action, ...]:
    """The actions of lists; the argument finds the list that receives the keys."""

    def is_list(state: State) -> bool:
        return find(state) is not None

    def at(place: Callable[[ListPage, State], int]) -> Run:
        def run(state: State) -> State:
            listing = find(state)
            return at_row(listing, state, place(listing, state)) if listing else state

        return run

    def choose(state: State) -> Outcome:
        listing = find(state)
        if listing is None or not listing.rows(state).count:
            return state
        return listing.chosen(state, state.list_of(listing.name).cursor)

    of_list = partial(action, section=SECTION, where=is_list, needs=nothing)
    return (
        of_list("row-down", "Row down", "j down", "the next row", at(_by(1))),
        of_list("row-up", "Row up", "k up", "the row before", at(_by(-1))),
        of_list(
            "rows-down", "Page of rows down", "pagedown", "a screen of rows down", at(_page(1))
        ),
        of_list("rows-up", "Page of rows up", "pageup", "a screen of rows up", at(_page(-1))),
        of_list("first", "First row", "g home", "of the list", at(lambda listing, state: 0)),
        of_list("last", "Last row", "G end", "of the list", at(_last)),
        of_list("show", "Show", "enter", "the row in the timeline; open a trace", choose),
    )


def _by(rows: int) -> Callable[[ListPage, State], int]:
    return lambda listing, state: state.list_of(listing.name).cursor + rows


def _page(pages: int) -> Callable[[ListPage, State], int]:
    def place(listing: ListPage, state: State) -> int:
        room = listing.room(state, size_of(state))
        return state.list_of(listing.name).cursor + pages * max(1, room - 1)

    return place


def _last(listing: ListPage, state: State) -> int:
    return listing.rows(state).count - 1
