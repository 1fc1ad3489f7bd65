"""Flight-recorder dumps in the state: opening them, and the actions on their page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from fusetui.text.printable import printable
from fusetui.tui.state.state import (
    HANG,
    ListState,
    Outcome,
    ReadDumps,
    Reading,
    Refuse,
    State,
    told,
)

if TYPE_CHECKING:
    from fusetui.analysis.hang.grid import CollectiveGrid
    from fusetui.tui.layout.hang import HangShown

NO_DUMPS = "no flight-recorder dumps are open: fusetui open DUMPS opens some"


def read(state: State, paths: Sequence[str], alone: bool) -> Outcome:
    """Opens dumps; `alone`: nothing else is opened."""
    reading = Reading(paths[0], is_whole=True) if alone else state.reading
    return replace(state, reading=reading), ReadDumps(tuple(paths))


def progressed(state: State, paths: tuple[str, ...], done: int) -> State:
    """So many of the files have been read."""
    if state.sides or state.reading is None or not state.reading.is_whole:
        return state
    reading = replace(state.reading, path=paths[0], done=done, total=len(paths))
    return replace(state, reading=reading)


def arrived(state: State, paths: Sequence[str], grid: CollectiveGrid) -> State:
    """They were read: their page comes to the front if nothing else is open."""
    now = _at_reason(state, paths, grid)
    if state.sides or (state.reading and not state.reading.is_whole):
        return told(now, "the dumps are read", "hang why it hangs")
    return replace(now, page=HANG, reading=None)


def failed(state: State, sentence: str) -> Outcome:
    """They cannot be read; what is open stays open."""
    if state.reading and state.reading.is_whole:
        return state, Refuse(sentence)
    return told(state, printable(sentence))


def hang_of(state: State) -> HangShown:
    """What is open. Only for where the page is in front."""
    assert state.hang is not None
    return state.hang


def moved(state: State, by: int) -> State:
    """Another collective of the group is selected."""
    shown = hang_of(state)
    return replace(state, hang=shown.at(shown.number + by))


def turned(state: State, by: int) -> State:
    """The next group, or the one before; the cursor stays on its rank if that is a
    member."""
    shown = hang_of(state)
    groups = len(shown.grid.groups)
    if groups < 2:
        return told(state, "these dumps name one group only")
    rank = rank_here(state)
    now = shown.in_group((shown.group + by) % groups)
    return _with_cursor_on(replace(state, hang=now, hint=""), rank)


def at_reason(state: State) -> State:
    """The rank and the collective that the answer is about."""
    shown = hang_of(state)
    return replace(_at_reason(state, shown.paths, shown.grid), hint="")


def _at_reason(state: State, paths: Sequence[str], grid: CollectiveGrid) -> State:
    """The dumps as shown first: the rank and the collective of the answer."""
    from fusetui.tui.layout.hang import first_view, rank_of_reason  # rarely needed

    now = replace(state, hang=first_view(paths, grid))
    return _with_cursor_on(now, rank_of_reason(grid))


def _with_cursor_on(state: State, rank: int | None) -> State:
    """On the first rank where this one is no member of the group."""
    members = members_of(state)
    cursor = members.index(rank) if rank in members else 0
    return state.with_list(HANG, ListState(cursor))


def members_of(state: State) -> tuple[int, ...]:
    """The ranks of the group that is shown; () where the dumps name no group."""
    shown = hang_of(state)
    return shown.progress.members if shown.grid.groups else ()


def rank_here(state: State) -> int | None:
    """The rank under the cursor."""
    members = members_of(state)
    cursor = state.list_of(HANG).cursor
    return members[cursor] if cursor < len(members) else None
