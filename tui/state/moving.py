"""What a person does in the timeline, as changes of the state: movements, marks, ranges
of time, and lanes pinned, hidden, isolated, sorted and unfolded."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Concatenate, ParamSpec

from msgspec.structs import replace

from fusetui.analysis.questions.query import Pattern, parse
from fusetui.analysis.questions.query_text import WrongQueryError
from fusetui.text.figures import plural
from fusetui.text.printable import printable
from fusetui.tui.layout import moves
from fusetui.tui.layout.lanes import ALL, Arrangement, matching
from fusetui.tui.layout.lanes import groups as groups_of
from fusetui.tui.layout.view import Side, View
from fusetui.tui.state.action import Run, action, on_timeline, two_traces
from fusetui.tui.state.session import ViewSession
from fusetui.tui.state.state import TIMELINE, MatchLanes, Outcome, Prompt, State, told

P = ParamSpec("P")
Move = Callable[Concatenate[Side, View, P], View]
SECTION = "In the timeline"
STARTED = "the range starts here: move, then", "range end it", "deselect drop it"
NOTHING = "nothing is selected", "down/up select a slice"
ENDED = (
    "a range",
    "details all figures of the range",
    "range another range",
    "deselect clear it",
)


def changed(state: State, session: ViewSession) -> State:
    """The state with another session; the state itself if the session is the same."""
    return state if session is state.session else replace(state, session=session)


def viewed(state: State, view: View) -> State:
    """Another view of the active side; a movement that can be undone."""
    return changed(state, state.session.moved(state.active, view))


def shown(state: State, view: View) -> State:
    return brought(state, state.session.moved(state.active, view), state.active)


def move(step: Move[P], *numbers: P.args, **named: P.kwargs) -> Run:
    def run(state: State) -> State:
        return viewed(state, step(state.side, state.view, *numbers, **named))

    return run


def led(step: Move[[]], nowhere: str) -> Run:
    """From the selected slice to another one, or a sentence where there is none."""

    def run(state: State) -> State:
        if state.view.selected < 0:
            return told(state, *NOTHING)
        view = step(state.side, state.view)
        return told(state, nowhere) if view is state.view else viewed(state, view)

    return run


def looked_at(state: State, index: int, view: View) -> State:
    return replace(changed(state, state.session.moved(index, view)), active=index)


def brought(state: State, session: ViewSession, index: int) -> State:
    return replace(state, session=session, active=index, page=TIMELINE, hint="")


def undo(state: State) -> State:
    return changed(state, state.session.undo())


def redo(state: State) -> State:
    return changed(state, state.session.redo())


def clear(state: State) -> State:
    return replace(changed(state, state.session.cleared()), hint="")


def other_side(state: State) -> State:
    return replace(state, active=(state.active + 1) % len(state.sides))


def link(state: State) -> State:
    now = replace(state.session, together=not state.session.together)
    how = "together" if now.together else "each on its own"
    return told(replace(state, session=now), f"the traces move {how}")


def ask_to_mark(state: State) -> State:
    if not state.session.bookmarks:
        return told(state, "no mark is set", "mark set one")
    return replace(state, prompt=Prompt.GO_TO_MARK)


def answered(state: State, character: str) -> State:
    prompt, state = state.prompt, replace(state, prompt=None)
    if not (character.isascii() and character.isalpha()):
        return told(state, "cancelled: a mark is a letter from a to z or A to Z")
    return (
        set_mark(state, character)
        if prompt is Prompt.SET_MARK
        else go_to(state, character)
    )


def set_mark(state: State, letter: str, note: str = "") -> State:
    session = state.session.with_bookmark(letter, state.active, note)
    sentence = f"mark {letter} is set{': ' * bool(note)}{note}"
    return told(
        replace(state, session=session), sentence, f"to-mark and {letter} go back to it"
    )


def go_to(state: State, letter: str) -> State:
    if (mark := state.session.bookmarks.get(letter)) is None:
        return told(state, f"there is no mark {letter}")
    there = brought(state, state.session.at_bookmark(letter), mark.side)
    return told(
        there, f"at mark {letter}{': ' * bool(mark.note)}{mark.note}", "undo back"
    )


def choose_range(state: State) -> State:
    if state.page != TIMELINE:
        return told(state, "a range of time is selected in the timeline: 1")
    session = state.session.ranged(state.active)
    found = session.time_range
    return told(
        replace(state, session=session), *(ENDED if found and found.ended else STARTED)
    )


_here = partial(action, section=SECTION, where=on_timeline)
_up, _down = (move(moves.next_line, by) for by in (-1, 1))
_lane_up, _lane_down = (move(moves.next_lane, by) for by in (-1, 1))
_right = move(moves.pan, 90)
_to_kernel = led(moves.to_kernel, "No GPU event was launched from here")
_to_launch = led(moves.to_launch, "No launch and nothing around this was recorded")
_MARK = "then a letter: this window and selection; :mark a NOTE"
_SIDE = "of two traces: what the keys act on"
_LINK = "whether both traces move at once"

ACTIONS = (
    _here("zoom-in", "Zoom in", "w + =", "about the selection", move(moves.zoom, 1, 2)),
    _here("zoom-out", "Zoom out", "s -", "about the selection", move(moves.zoom, 2, 1)),
    _here(
        "pan-left",
        "Pan left",
        "a h left",
        "a tenth of the window",
        move(moves.pan, -10),
    ),
    _here(
        "pan-right",
        "Pan right",
        "d l right",
        "a tenth of the window",
        move(moves.pan, 10),
    ),
    _here(
        "screen-left",
        "Screen left",
        "A H shift+left",
        "most of a window",
        move(moves.pan, -90),
    ),
    _here(
        "screen-right", "Screen right", "D L shift+right", "most of a window", _right
    ),
    _here("down", "Line down", "j down", "the slice below, at the same time", _down),
    _here("up", "Line up", "k up", "the slice above, at the same time", _up),
    _here("lane-down", "Next lane", "J", "the first line of the next lane", _lane_down),
    _here(
        "lane-up", "Previous lane", "K", "the first line of the one before", _lane_up
    ),
    _here("next", "Next slice", ".", "on the same line", move(moves.next_slice, 1)),
    _here(
        "previous",
        "Previous slice",
        ",",
        "on the same line",
        move(moves.next_slice, -1),
    ),
    _here("to-kernel", "To the kernel", "]", "from a launch or op", _to_kernel),
    _here("to-launch", "To the launch", "[", "then the ops around", _to_launch),
    _here(
        "zoom-to",
        "Zoom to the slice",
        "enter z",
        "half of the width",
        move(moves.zoom_to),
    ),
    _here(
        "center",
        "Center the slice",
        "f",
        "without changing the zoom",
        move(moves.center),
    ),
    _here("whole", "Whole trace", "0", "show everything", move(moves.fit)),
    _here(
        "start", "Start of the trace", "g home", "keep the zoom", move(moves.edge, -1)
    ),
    _here("end", "End of the trace", "G end", "keep the zoom", move(moves.edge, 1)),
    _here(
        "fold",
        "Fold the lane",
        "space",
        "one line, some lines, all lines",
        move(moves.fold),
    ),
    _here("undo", "Undo the movement", "u", "back to the view before", undo),
    _here("redo", "Redo the movement", "ctrl+r", "forward again", redo),
    _here("deselect", "Clear the selection", "escape", "the range first", clear),
    _here(
        "other-side", "Other side", "tab shift+tab", _SIDE, other_side, needs=two_traces
    ),
)
MARKING = (
    action(
        "range",
        "Range of time",
        "v",
        "from here; v again: to there",
        choose_range,
        SECTION,
    ),
    _here("mark", "Set a mark", "m", _MARK, partial(replace, prompt=Prompt.SET_MARK)),
    _here("to-mark", "Go to a mark", "'", "then its letter", ask_to_mark),
)
LINK = action("link", "Together or apart", "b", _LINK, link, needs=two_traces)


NO_LANE = "nothing is selected", "down/up select a slice, and with it a lane"


def pin(state: State) -> State:
    if (lane := _lane(state)) < 0:
        return told(state, *NO_LANE)
    now = state.view.arranged
    others = tuple(n for n in now.pinned if n != lane)
    pinned = others if lane in now.pinned else (*others, lane)
    return _arranged(state, pinned=pinned, hidden=now.hidden - {lane})


def hide(state: State) -> State:
    """Nothing is selected any more."""
    if (lane := _lane(state)) < 0:
        return told(state, *NO_LANE)
    now = state.view.arranged
    others = tuple(n for n in now.pinned if n != lane)
    arranged = replace(now, hidden=now.hidden | {lane}, pinned=others)
    hidden = viewed(state, replace(state.view, selected=-1, arranged=arranged))
    said = f"hidden: {state.side.lanes[lane].title}"
    return told(hidden, said, "unfold-all show all lanes", "undo undo")


def isolate(state: State) -> State:
    lanes = state.side.lanes
    if (lane := _lane(state)) < 0:
        return told(state, *NO_LANE)
    own = next(indices for _, indices in groups_of(lanes) if lane in indices)
    hidden = frozenset(range(len(lanes))) - set(own)
    is_on = state.view.arranged.hidden == hidden
    return _arranged(state, hidden=state.side.quiet if is_on else hidden)


def only(state: State, pattern: str) -> Outcome:
    """Only the lanes whose names contain one of some texts, `|` between, or that a
    regular expression matches, written as in a search; all without a pattern."""
    if not pattern.strip():
        return _arranged(state, hidden=state.side.quiet)
    try:
        terms = parse(pattern).terms if pattern.startswith(("/", "-/")) else ()
    except WrongQueryError as wrong:
        return told(state, printable(str(wrong)))
    if len(terms) == 1 and isinstance(terms[0], Pattern):
        return told(state, "searching"), MatchLanes(state.side, terms[0])
    return _only(state, pattern, matching(state.side.lanes, pattern))


def matched(
    state: State, side: Side, text: str, lanes: frozenset[int], wrong: str
) -> State:
    """The lanes that a regular expression matches; dropped if others are in front by
    now."""
    if not state.sides or state.side.lanes is not side.lanes:
        return state
    return told(state, printable(wrong)) if wrong else _only(state, text, lanes)


def _only(state: State, text: str, found: frozenset[int]) -> State:
    if not found:
        return told(state, f"no lane is called {printable(text)}")
    now = _arranged(state, hidden=frozenset(range(len(state.side.lanes))) - found)
    return told(
        now, f"{plural(len(found), 'lane')} shown, :only shows all", "undo undo"
    )


def sort(state: State) -> State:
    by_busy = not state.view.arranged.by_busy
    said = "the busiest first" if by_busy else "as in the trace"
    return told(_arranged(state, by_busy=by_busy), f"lanes: {said}")


def families(state: State) -> State:
    return _arranged(state, families=not state.view.arranged.families)


def unfold(state: State) -> State:
    view, side = state.view, state.side
    every, fits = (ALL,) * len(side.lanes), state.fits[state.active]
    if view.folds != every:
        nothing = replace(view.arranged, hidden=frozenset())
        return told(viewed(state, replace(view, folds=every, arranged=nothing)), "")
    return viewed(state, replace(view, folds=fits, arranged=Arrangement(side.quiet)))


def _lane(state: State) -> int:
    return state.side.lane_of(state.view.selected)


def _arranged(state: State, **fields: Any) -> State:
    arranged = replace(state.view.arranged, **fields)
    return viewed(state, replace(state.view, arranged=arranged))


_FAMILIES = "how much of the time each kind of kernels takes"

ARRANGING = (
    _here("pin", "Pin the lane", "p", "above all others, or back", pin),
    _here("hide", "Hide the lane", "X", "into the last line", hide),
    _here("isolate", "Only this thread", "O", "or device; again: all", isolate),
    _here("sort", "Sort the lanes", "S", "by busy time, or not", sort),
    _here("families", "Streams by kind", "F", _FAMILIES, families),
    _here(
        "unfold-all",
        "Unfold all lanes",
        "U",
        "and show what is hidden; again: back",
        unfold,
    ),
)
