"""Movements in the timeline as changes of the state, and their actions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Concatenate, ParamSpec

from msgspec.structs import replace

from fusetui.tui.layout import moves
from fusetui.tui.layout.view import Side, View
from fusetui.tui.state.action import Run, action, on_timeline, two_traces
from fusetui.tui.state.session import ViewSession
from fusetui.tui.state.state import TIMELINE, State, told

P = ParamSpec("P")
Move = Callable[Concatenate[Side, View, P], View]
SECTION = "In the timeline"


def changed(state: State, session: ViewSession) -> State:
    """The state with another session; the state itself if the session is the same."""
    return state if session is state.session else replace(state, session=session)


def viewed(state: State, view: View) -> State:
    """Another view of the active side; a movement that can be undone."""
    return changed(state, state.session.moved(state.active, view))


def shown(state: State, view: View) -> State:
    """Another view of the active side, with the timeline in front."""
    return brought(state, state.session.moved(state.active, view), state.active)


def move(step: Move[P], *numbers: P.args, **named: P.kwargs) -> Run:
    """An action that moves the active side."""

    def run(state: State) -> State:
        return viewed(state, step(state.side, state.view, *numbers, **named))

    return run


def looked_at(state: State, index: int, view: View) -> State:
    """Shows another view on one side, and makes that side active."""
    return replace(changed(state, state.session.moved(index, view)), active=index)


def brought(state: State, session: ViewSession, index: int) -> State:
    """The state with another session, the timeline in front and this side active."""
    return replace(state, session=session, active=index, page=TIMELINE, hint="")


def undo(state: State) -> State:
    return changed(state, state.session.undo())


def redo(state: State) -> State:
    return changed(state, state.session.redo())


def clear(state: State) -> State:
    """Clears the range first; without one, the selection and the marked rows."""
    return replace(changed(state, state.session.cleared()), hint="")


def other_side(state: State) -> State:
    """Makes the other side active."""
    return replace(state, active=(state.active + 1) % len(state.sides))


def link(state: State) -> State:
    """Couples the movement of two traces, or decouples it."""
    together = not state.session.together
    how = "together" if together else "each on its own"
    linked = replace(state, session=replace(state.session, together=together))
    return told(linked, f"the traces move {how}")


_here = partial(action, section=SECTION, where=on_timeline)

ACTIONS = (
    _here("zoom-in", "Zoom in", "w + =", "about the selection", move(moves.zoom, 1, 2)),
    _here("zoom-out", "Zoom out", "s -", "about the selection", move(moves.zoom, 2, 1)),
    _here("pan-left", "Pan left", "a h left", "a tenth of the window", move(moves.pan, -10)),
    _here("pan-right", "Pan right", "d l right", "a tenth of the window", move(moves.pan, 10)),
    _here("screen-left", "Screen left", "A H shift+left", "most of a window", move(moves.pan, -90)),
    _here(
        "screen-right", "Screen right", "D L shift+right", "most of a window", move(moves.pan, 90)
    ),
    _here(
        "down", "Line down", "j down", "the slice below, at the same time", move(moves.next_line, 1)
    ),
    _here("up", "Line up", "k up", "the slice above, at the same time", move(moves.next_line, -1)),
    _here(
        "lane-down", "Next lane", "J", "the first line of the next lane", move(moves.next_lane, 1)
    ),
    _here(
        "lane-up",
        "Previous lane",
        "K",
        "the first line of the one before",
        move(moves.next_lane, -1),
    ),
    _here("next", "Next slice", ".", "on the same line", move(moves.next_slice, 1)),
    _here("previous", "Previous slice", ",", "on the same line", move(moves.next_slice, -1)),
    _here("to-kernel", "To the kernel", "]", "from a launch or op", move(moves.to_kernel)),
    _here("to-launch", "To the launch", "[", "then the ops around", move(moves.to_launch)),
    _here("zoom-to", "Zoom to the slice", "enter z", "half of the width", move(moves.zoom_to)),
    _here("center", "Center the slice", "f", "without changing the zoom", move(moves.center)),
    _here("whole", "Whole trace", "0", "show everything", move(moves.fit)),
    _here("start", "Start of the trace", "g home", "keep the zoom", move(moves.edge, -1)),
    _here("end", "End of the trace", "G end", "keep the zoom", move(moves.edge, 1)),
    _here("fold", "Fold the lane", "space", "one line, some lines, all lines", move(moves.fold)),
    _here("undo", "Undo the movement", "u", "back to the view before", undo),
    _here("redo", "Redo the movement", "ctrl+r", "forward again", redo),
    _here("deselect", "Clear the selection", "escape", "the range first", clear),
    _here(
        "other-side",
        "Other side",
        "tab shift+tab",
        "of two traces: what the keys act on",
        other_side,
        needs=two_traces,
    ),
)
LINK = action(
    "link", "Together or apart", "b", "whether both traces move at once", link, needs=two_traces
)
