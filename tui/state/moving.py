"""Movements in the timeline, marks of places and ranges of time, as changes of the state."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Concatenate, ParamSpec

from msgspec.structs import replace

from fusetui.tui.layout import moves
from fusetui.tui.layout.view import Side, View
from fusetui.tui.state.action import Run, action, on_timeline, two_traces
from fusetui.tui.state.session import Bookmarks, ViewSession
from fusetui.tui.state.state import TIMELINE, Prompt, State, told

P = ParamSpec("P")
Move = Callable[Concatenate[Side, View, P], View]
SECTION = "In the timeline"
STARTED = "the range starts here: move, then", "range end it", "deselect drop it"
ENDED = "a range", "details all figures of the range", "range another range", "deselect clear it"


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


def recalled(state: State, undone: bool) -> State:
    """The view before, or after."""
    return changed(state, state.session.undo() if undone else state.session.redo())


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


def ask_to_mark(state: State) -> State:
    if not state.session.bookmarks:
        return told(state, "no mark is set", "mark set one")
    return replace(state, prompt=Prompt.GO_TO_MARK)


def answered(state: State, character: str) -> State:
    """Handles a key pressed when a letter was asked for."""
    prompt, state = state.prompt, replace(state, prompt=None)
    if not (character.isascii() and character.isalpha()):
        return told(state, "cancelled: a mark is a letter from a to z or A to Z")
    return set_mark(state, character) if prompt is Prompt.SET_MARK else go_to(state, character)


def set_mark(state: State, letter: str, note: str = "") -> State:
    session = state.session.with_bookmark(letter, state.active, note)
    keys = f"to-mark and {letter} go back to it"
    sentence = f"mark {letter} is set{': ' * bool(note)}{note}"
    return told(replace(state, session=session), sentence, keys)


def go_to(state: State, letter: str) -> State:
    mark = state.session.bookmarks.get(letter)
    if mark is None:
        return told(state, f"there is no mark {letter}")
    there = brought(state, state.session.at_bookmark(letter), mark.side)
    return told(there, f"at mark {letter}{': ' * bool(mark.note)}{mark.note}", "undo back")


def choose_range(state: State) -> State:
    """Starts a range of time; the second press ends it."""
    if state.page != TIMELINE:
        return told(state, "a range of time is selected in the timeline: 1")
    session = state.session.ranged(state.active)
    found = session.time_range
    return told(replace(state, session=session), *(ENDED if found and found.ended else STARTED))


def marks_text(marks: Bookmarks) -> str:
    """The letters of all marks, with their notes: `a slow step   b`."""
    return "   ".join(f"{letter} {mark.note}".strip() for letter, mark in sorted(marks.items()))


_here = partial(action, section=SECTION, where=on_timeline)
_up, _down = (move(moves.next_line, by) for by in (-1, 1))
_lane_up, _lane_down = (move(moves.next_lane, by) for by in (-1, 1))
_undo, _redo = partial(recalled, undone=True), partial(recalled, undone=False)
_right = move(moves.pan, 90)
_MARK = "then a letter: this window and selection; :mark a NOTE"
_SIDE = "of two traces: what the keys act on"
_LINK = "whether both traces move at once"

ACTIONS = (
    _here("zoom-in", "Zoom in", "w + =", "about the selection", move(moves.zoom, 1, 2)),
    _here("zoom-out", "Zoom out", "s -", "about the selection", move(moves.zoom, 2, 1)),
    _here("pan-left", "Pan left", "a h left", "a tenth of the window", move(moves.pan, -10)),
    _here("pan-right", "Pan right", "d l right", "a tenth of the window", move(moves.pan, 10)),
    _here("screen-left", "Screen left", "A H shift+left", "most of a window", move(moves.pan, -90)),
    _here("screen-right", "Screen right", "D L shift+right", "most of a window", _right),
    _here("down", "Line down", "j down", "the slice below, at the same time", _down),
    _here("up", "Line up", "k up", "the slice above, at the same time", _up),
    _here("lane-down", "Next lane", "J", "the first line of the next lane", _lane_down),
    _here("lane-up", "Previous lane", "K", "the first line of the one before", _lane_up),
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
    _here("undo", "Undo the movement", "u", "back to the view before", _undo),
    _here("redo", "Redo the movement", "ctrl+r", "forward again", _redo),
    _here("deselect", "Clear the selection", "escape", "the range first", clear),
    _here("other-side", "Other side", "tab shift+tab", _SIDE, other_side, needs=two_traces),
)
MARKING = (
    action("range", "Range of time", "v", "from here; v again: to there", choose_range, SECTION),
    _here("mark", "Set a mark", "m", _MARK, partial(replace, prompt=Prompt.SET_MARK)),
    _here("to-mark", "Go to a mark", "'", "then its letter", ask_to_mark),
)
LINK = action("link", "Together or apart", "b", _LINK, link, needs=two_traces)
