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
    """Return the state and the effect that reads flight-recorder dumps. `alone` says
    that nothing else is opened."""
    reading = Reading(paths[0], is_whole=True) if alone else state.reading
    return replace(state, reading=reading), ReadDumps(tuple(paths))


def progressed(state: State, paths: tuple[str, ...], done: int) -> State:
    """Return the state with the number of dumps read so far. It is unchanged where a
    trace is open or being read."""
    if state.sides or state.reading is None or not state.reading.is_whole:
        return state
    reading = replace(state.reading, path=paths[0], done=done, total=len(paths))
    return replace(state, reading=reading)


def arrived(state: State, paths: Sequence[str], grid: CollectiveGrid) -> State:
    """Return the state with flight-recorder dumps that were read. Their page comes to
    the front if nothing else is open or being read."""
    opened_state = _show_reason(state, paths, grid)
    if state.sides or (state.reading and not state.reading.is_whole):
        return told(opened_state, "the dumps are read", "hang why it hangs")
    return replace(opened_state, page=HANG, reading=None)


def failed(state: State, sentence: str) -> Outcome:
    """Return the state after dumps could not be read: a message, or the end of the app
    where nothing else is open."""
    if state.reading and state.reading.is_whole:
        return state, Refuse(sentence)
    return told(state, printable(sentence))


def shown_hang(state: State) -> HangShown:
    """Return what the hang page shows. Only valid while dumps are open."""
    assert state.hang is not None
    return state.hang


def moved(state: State, by: int) -> State:
    """Select the collective that is `by` further in the group."""
    shown = shown_hang(state)
    return replace(state, hang=shown.at(shown.number + by))


def show_next_group(state: State, by: int) -> State:
    """Show the next group of ranks, or the one before (`by` -1). The cursor stays on
    its rank if that is a member."""
    shown = shown_hang(state)
    groups = len(shown.grid.groups)
    if groups < 2:
        return told(state, "these dumps name one group only")
    rank = cursor_rank(state)
    group_view = shown.in_group((shown.group + by) % groups)
    return _move_cursor_to_rank(replace(state, hang=group_view, hint=""), rank)


def go_to_reason(state: State) -> State:
    """Go to the rank and the collective that the answer is about."""
    shown = shown_hang(state)
    return replace(_show_reason(state, shown.paths, shown.grid), hint="")


def _show_reason(state: State, paths: Sequence[str], grid: CollectiveGrid) -> State:
    """Return the state with these dumps as first shown, at the rank and collective of
    the answer."""
    from fusetui.tui.layout.hang import (  # rarely needed
        find_reported_rank,
        make_first_view,
    )

    first_state = replace(state, hang=make_first_view(paths, grid))
    return _move_cursor_to_rank(first_state, find_reported_rank(grid))


def _move_cursor_to_rank(state: State, rank: int | None) -> State:
    """Return the state with the cursor on a rank, or on the first rank if it is no
    member of the group."""
    members = shown_members(state)
    cursor = members.index(rank) if rank in members else 0
    return state.with_list(HANG, ListState(cursor))


def shown_members(state: State) -> tuple[int, ...]:
    """Return the ranks of the shown group; () where the dumps name no group."""
    shown = shown_hang(state)
    return shown.progress.members if shown.grid.groups else ()


def cursor_rank(state: State) -> int | None:
    """Return the rank under the cursor, or None where there is none."""
    members = shown_members(state)
    cursor = state.list_of(HANG).cursor
    return members[cursor] if cursor < len(members) else None
