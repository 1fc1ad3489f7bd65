"""Lanes pinned, hidden, isolated, sorted and unfolded, as changes of the state."""

from __future__ import annotations

from functools import partial
from typing import Any

from msgspec.structs import replace

from fusetui.analysis.questions.query import Pattern, WrongQuery, parse
from fusetui.text.figures import plural
from fusetui.text.printable import printable
from fusetui.tui.layout.lanes import ALL, Arrangement, matching
from fusetui.tui.layout.lanes import groups as groups_of
from fusetui.tui.layout.view import Side
from fusetui.tui.state.action import action, on_timeline
from fusetui.tui.state.moving import SECTION, viewed
from fusetui.tui.state.state import MatchLanes, Outcome, State, told

NOTHING = "nothing is selected", "down/up select a slice, and with it a lane"


def pin(state: State) -> State:
    """The lane of the selection above all others, or back in its place."""
    lane = _lane(state)
    if lane < 0:
        return told(state, *NOTHING)
    now = _now(state)
    kept = tuple(n for n in now.pinned if n != lane)
    pinned = kept if lane in now.pinned else (*kept, lane)
    return _arranged(state, pinned=pinned, hidden=now.hidden - {lane})


def hide(state: State) -> State:
    """The lane of the selection into the last line; nothing is selected any more."""
    lane = _lane(state)
    if lane < 0:
        return told(state, *NOTHING)
    now = _now(state)
    pinned = tuple(n for n in now.pinned if n != lane)
    arranged = replace(now, hidden=now.hidden | {lane}, pinned=pinned)
    hidden = viewed(state, replace(state.view, selected=-1, arranged=arranged))
    title = state.side.lanes[lane].title
    return told(hidden, f"hidden: {title}", "unfold-all show all lanes", "undo undo")


def isolate(state: State) -> State:
    """Only the thread or device of the selection; again: as it was first."""
    lanes, lane = state.side.lanes, _lane(state)
    if lane < 0:
        return told(state, *NOTHING)
    own = next(indices for _, indices in groups_of(lanes) if lane in indices)
    hidden = frozenset(range(len(lanes))) - set(own)
    return _arranged(state, hidden=state.side.quiet if _now(state).hidden == hidden else hidden)


def only(state: State, pattern: str) -> Outcome:
    """Only the lanes whose names contain one of some texts, `|` between, or that a regular
    expression matches, written as in a search; all without a pattern."""
    if not pattern.strip():
        return _arranged(state, hidden=state.side.quiet)
    try:
        terms = parse(pattern).terms if pattern.startswith(("/", "-/")) else ()
    except WrongQuery as wrong:
        return told(state, printable(str(wrong)))
    if len(terms) == 1 and isinstance(terms[0], Pattern):
        return told(state, "searching"), MatchLanes(state.side, terms[0])
    return _only(state, pattern, matching(state.side.lanes, pattern))


def matched(state: State, side: Side, text: str, lanes: frozenset[int], wrong: str) -> State:
    """The lanes that a regular expression matches; dropped if others are in front by now."""
    if not state.sides or state.side.lanes is not side.lanes:
        return state
    return told(state, printable(wrong)) if wrong else _only(state, text, lanes)


def _only(state: State, text: str, found: frozenset[int]) -> State:
    if not found:
        return told(state, f"no lane is called {printable(text)}")
    hidden = frozenset(range(len(state.side.lanes))) - found
    now = _arranged(state, hidden=hidden)
    return told(now, f"{plural(len(found), 'lane')} shown, :only shows all", "undo undo")


def sort(state: State) -> State:
    """The busiest first, or as in the trace."""
    by_busy = not _now(state).by_busy
    said = "the busiest first" if by_busy else "as in the trace"
    return told(_arranged(state, by_busy=by_busy), f"lanes: {said}")


def families(state: State) -> State:
    """Below each stream a line for each kind of kernels, or not."""
    return _arranged(state, families=not _now(state).families)


def unfold(state: State) -> State:
    """All lanes with all their lines; again: as the screen has room for."""
    view, side = state.view, state.side
    every = (ALL,) * len(side.lanes)
    if view.folds != every:
        nothing = replace(view.arranged, hidden=frozenset())
        return viewed(state, replace(view, folds=every, arranged=nothing))
    fits = state.fits[state.active]
    return viewed(state, replace(view, folds=fits, arranged=Arrangement(side.quiet)))


def _lane(state: State) -> int:
    """The lane of the selected slice; -1 for none."""
    return state.side.lane_of(state.view.selected)


def _now(state: State) -> Arrangement:
    return state.view.arranged


def _arranged(state: State, **fields: Any) -> State:
    """Other fields of the arrangement."""
    return viewed(state, replace(state.view, arranged=replace(_now(state), **fields)))


_here = partial(action, section=SECTION, where=on_timeline)
_FAMILIES = "how much of the time each kind of kernels takes"

ACTIONS = (
    _here("pin", "Pin the lane", "p", "above all others, or back", pin),
    _here("hide", "Hide the lane", "X", "into the last line", hide),
    _here("isolate", "Only this thread", "O", "or device; again: all", isolate),
    _here("sort", "Sort the lanes", "S", "by busy time, or not", sort),
    _here("families", "Streams by family", "F", _FAMILIES, families),
    _here("unfold-all", "Unfold all lanes", "U", "and show what is hidden; again: back", unfold),
)
