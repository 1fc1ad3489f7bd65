"""The user's actions in the timeline as changes of the state: movements, marks, time
ranges, and lanes that are pinned, hidden, isolated, sorted or unfolded."""

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
# hints: a sentence, and what keys do then (see `told`)
RANGE_STARTED = (
    "the range starts here: move, then",
    "range end it",
    "deselect drop it",
)
NOTHING_SELECTED = "nothing is selected", "down/up select a slice"
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
    """Another view of the active side, with the timeline in front."""
    return brought(state, state.session.moved(state.active, view), state.active)


def move(step: Move[P], *numbers: P.args, **named: P.kwargs) -> Run:
    """What a key does that moves the view of the active side."""

    def run(state: State) -> State:
        return viewed(state, step(state.side, state.view, *numbers, **named))

    return run


def led(step: Move[[]], nowhere: str) -> Run:
    """From the selected slice to another one, or a sentence where there is none."""

    def run(state: State) -> State:
        if state.view.selected < 0:
            return told(state, *NOTHING_SELECTED)
        view = step(state.side, state.view)
        return told(state, nowhere) if view is state.view else viewed(state, view)

    return run


def looked_at(state: State, index: int, view: View) -> State:
    """Another view of one side, which becomes the active one."""
    moved = changed(state, state.session.moved(index, view))
    return replace(moved, active=index)


def brought(state: State, session: ViewSession, index: int) -> State:
    """Another session, one side of it active, with the timeline in front."""
    return replace(state, session=session, active=index, page=TIMELINE, hint="")


def undo(state: State) -> State:
    """The views before the last movement."""
    if not state.session.past:
        return told(state, "nothing to undo")
    return changed(state, state.session.undo())


def redo(state: State) -> State:
    """The movement that was undone last."""
    if not state.session.future:
        return told(state, "nothing to redo")
    return changed(state, state.session.redo())


def clear(state: State) -> State:
    """Without the range; if there is none, without any selection."""
    return replace(changed(state, state.session.cleared()), hint="")


def other_side(state: State) -> State:
    """The keys act on the other side."""
    return replace(state, active=(state.active + 1) % len(state.sides))


def link(state: State) -> State:
    """Both traces move at once, or each on its own."""
    together = not state.session.together
    how = "together" if together else "each on its own"
    now = replace(state, session=replace(state.session, together=together))
    return told(now, f"the traces move {how}")


def ask_to_mark(state: State) -> State:
    """Asks for the letter of a mark to go to."""
    if not state.session.bookmarks:
        return told(state, "no mark is set", "mark set one")
    return replace(state, prompt=Prompt.GO_TO_MARK)


def answered(state: State, character: str) -> State:
    """A key was pressed where a letter was asked for: it sets the mark of this letter,
    or goes to it."""
    prompt = state.prompt
    state = replace(state, prompt=None)
    if not (character.isascii() and character.isalpha()):
        return told(state, "cancelled: a mark is a letter from a to z or A to Z")
    if prompt is Prompt.SET_MARK:
        return set_mark(state, character)
    return go_to(state, character)


def set_mark(state: State, letter: str, note: str = "") -> State:
    """Marks what the active side shows with a letter."""
    session = state.session.with_bookmark(letter, state.active, note)
    sentence = f"mark {letter} is set"
    if note:
        sentence += f": {note}"
    now = replace(state, session=session)
    return told(now, sentence, f"to-mark and {letter} go back to it")


def go_to(state: State, letter: str) -> State:
    """What was marked with a letter."""
    mark = state.session.bookmarks.get(letter)
    if mark is None:
        return told(state, f"there is no mark {letter}")
    now = brought(state, state.session.at_bookmark(letter), mark.side)
    sentence = f"at mark {letter}"
    if mark.note:
        sentence += f": {mark.note}"
    return told(now, sentence, "undo back")


def choose_range(state: State) -> State:
    """A range of time starts or ends at what is selected on the active side."""
    if state.page != TIMELINE:
        return told(state, "a range of time is selected in the timeline: 1")
    session = state.session.ranged(state.active)
    is_ended = session.time_range is not None and session.time_range.ended
    now = replace(state, session=session)
    return told(now, *(ENDED if is_ended else RANGE_STARTED))


_here = partial(action, section=SECTION, where=on_timeline)

ACTIONS = (
    _here(
        name="zoom-in",
        title="Zoom in",
        written="w + =",
        help="about the selection",
        run=move(moves.zoom, 1, 2),
    ),
    _here(
        name="zoom-out",
        title="Zoom out",
        written="s -",
        help="about the selection",
        run=move(moves.zoom, 2, 1),
    ),
    _here(
        name="pan-left",
        title="Pan left",
        written="a h left",
        help="a tenth of the window",
        run=move(moves.pan, -10),
    ),
    _here(
        name="pan-right",
        title="Pan right",
        written="d l right",
        help="a tenth of the window",
        run=move(moves.pan, 10),
    ),
    _here(
        name="screen-left",
        title="Screen left",
        written="A H shift+left",
        help="most of a window",
        run=move(moves.pan, -90),
    ),
    _here(
        name="screen-right",
        title="Screen right",
        written="D L shift+right",
        help="most of a window",
        run=move(moves.pan, 90),
    ),
    _here(
        name="down",
        title="Line down",
        written="j down",
        help="the slice below, at the same time",
        run=move(moves.next_line, 1),
    ),
    _here(
        name="up",
        title="Line up",
        written="k up",
        help="the slice above, at the same time",
        run=move(moves.next_line, -1),
    ),
    _here(
        name="lane-down",
        title="Next lane",
        written="J",
        help="the first line of the next lane",
        run=move(moves.next_lane, 1),
    ),
    _here(
        name="lane-up",
        title="Previous lane",
        written="K",
        help="the first line of the one before",
        run=move(moves.next_lane, -1),
    ),
    _here(
        name="next",
        title="Next slice",
        written=".",
        help="on the same line",
        run=move(moves.next_slice, 1),
    ),
    _here(
        name="previous",
        title="Previous slice",
        written=",",
        help="on the same line",
        run=move(moves.next_slice, -1),
    ),
    _here(
        name="to-kernel",
        title="To the kernel",
        written="]",
        help="from a launch or op",
        run=led(moves.to_kernel, "No GPU event was launched from here"),
    ),
    _here(
        name="to-launch",
        title="To the launch",
        written="[",
        help="then the ops around",
        run=led(moves.to_launch, "No launch and nothing around this was recorded"),
    ),
    _here(
        name="zoom-to",
        title="Zoom to the slice",
        written="enter z",
        help="half of the width",
        run=move(moves.zoom_to),
    ),
    _here(
        name="center",
        title="Center the slice",
        written="f",
        help="without changing the zoom",
        run=move(moves.center),
    ),
    _here(
        name="whole",
        title="Whole trace",
        written="0",
        help="show everything",
        run=move(moves.fit),
    ),
    _here(
        name="start",
        title="Start of the trace",
        written="g home",
        help="keep the zoom",
        run=move(moves.edge, -1),
    ),
    _here(
        name="end",
        title="End of the trace",
        written="G end",
        help="keep the zoom",
        run=move(moves.edge, 1),
    ),
    _here(
        name="fold",
        title="Fold the lane",
        written="space",
        help="one line, some lines, all lines",
        run=move(moves.fold),
    ),
    _here(
        name="undo",
        title="Undo the movement",
        written="u",
        help="back to the view before",
        run=undo,
    ),
    _here(
        name="redo",
        title="Redo the movement",
        written="ctrl+r",
        help="forward again",
        run=redo,
    ),
    _here(
        name="deselect",
        title="Clear the selection",
        written="escape",
        help="the range first",
        run=clear,
    ),
    _here(
        name="other-side",
        title="Other side",
        written="tab shift+tab",
        help="of two traces: what the keys act on",
        run=other_side,
        needs=two_traces,
    ),
)
MARKING = (
    action(
        name="range",
        title="Range of time",
        written="v",
        help="from here; v again: to there",
        run=choose_range,
        section=SECTION,
    ),
    _here(
        name="mark",
        title="Set a mark",
        written="m",
        help="then a letter: this window and selection; :mark a NOTE",
        run=partial(replace, prompt=Prompt.SET_MARK),
    ),
    _here(
        name="to-mark",
        title="Go to a mark",
        written="'",
        help="then its letter",
        run=ask_to_mark,
    ),
)
LINK = action(
    name="link",
    title="Together or apart",
    written="b",
    help="whether both traces move at once",
    run=link,
    needs=two_traces,
)


NO_LANE = "nothing is selected", "down/up select a slice, and with it a lane"


def pin(state: State) -> State:
    """The lane of the selection above all others, or back among them."""
    lane = _lane(state)
    if lane < 0:
        return told(state, *NO_LANE)
    arranged = state.view.arranged
    pinned = tuple(other for other in arranged.pinned if other != lane)
    if lane not in arranged.pinned:
        pinned = (*pinned, lane)
    return _arranged(state, pinned=pinned, hidden=arranged.hidden - {lane})


def hide(state: State) -> State:
    """Without the lane of the selection; nothing is selected any more."""
    lane = _lane(state)
    if lane < 0:
        return told(state, *NO_LANE)
    before = state.view.arranged
    arranged = replace(
        before,
        hidden=before.hidden | {lane},
        pinned=tuple(other for other in before.pinned if other != lane),
    )
    now = viewed(state, replace(state.view, selected=-1, arranged=arranged))
    sentence = f"hidden: {state.side.lanes[lane].title}"
    return told(now, sentence, "unfold-all show all lanes", "undo undo")


def isolate(state: State) -> State:
    """Only the lanes of the thread or device of the selection; again: all."""
    lane = _lane(state)
    if lane < 0:
        return told(state, *NO_LANE)
    lanes = state.side.lanes
    group: list[int] = []
    for _, indices in groups_of(lanes):
        if lane in indices:
            group = indices
    hidden = frozenset(range(len(lanes))) - set(group)
    is_isolated = state.view.arranged.hidden == hidden
    return _arranged(state, hidden=state.side.quiet if is_isolated else hidden)


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
    """Only the lanes that a regular expression matches, or what is `wrong` with it. The
    state as it was, if another side is in front by now."""
    if not state.sides or state.side.lanes is not side.lanes:
        return state
    if wrong:
        return told(state, printable(wrong))
    return _only(state, text, lanes)


def _only(state: State, text: str, lanes: frozenset[int]) -> State:
    """Only these lanes, which match a text; all stay where there are none."""
    if not lanes:
        return told(state, f"no lane is called {printable(text)}")
    every_lane = frozenset(range(len(state.side.lanes)))
    now = _arranged(state, hidden=every_lane - lanes)
    sentence = f"{plural(len(lanes), 'lane')} shown, :only shows all"
    return told(now, sentence, "undo undo")


def sort(state: State) -> State:
    """The busiest threads and devices first, or all as in the trace."""
    by_busy = not state.view.arranged.by_busy
    order = "the busiest first" if by_busy else "as in the trace"
    return told(_arranged(state, by_busy=by_busy), f"lanes: {order}")


def families(state: State) -> State:
    """A line for each kind of slices below each stream, or none."""
    return _arranged(state, families=not state.view.arranged.families)


def unfold(state: State) -> State:
    """All lines of all lanes, none of them hidden; again: as they were when the trace
    was opened."""
    view = state.view
    side = state.side
    all_unfolded = (ALL,) * len(side.lanes)
    if view.folds == all_unfolded:
        first_folds = state.fits[state.active]
        first_arranged = Arrangement(side.quiet)
        return viewed(state, replace(view, folds=first_folds, arranged=first_arranged))
    nothing_hidden = replace(view.arranged, hidden=frozenset())
    unfolded = replace(view, folds=all_unfolded, arranged=nothing_hidden)
    return told(viewed(state, unfolded), "")


def _lane(state: State) -> int:
    """The lane of the selected slice; -1 for none."""
    return state.side.lane_of(state.view.selected)


def _arranged(state: State, **fields: Any) -> State:
    """Other fields of the arrangement of the lanes of the active side."""
    arranged = replace(state.view.arranged, **fields)
    return viewed(state, replace(state.view, arranged=arranged))


ARRANGING = (
    _here(
        name="pin",
        title="Pin the lane",
        written="p",
        help="above all others, or back",
        run=pin,
    ),
    _here(
        name="hide",
        title="Hide the lane",
        written="X",
        help="into the last line",
        run=hide,
    ),
    _here(
        name="isolate",
        title="Only this thread",
        written="O",
        help="or device; again: all",
        run=isolate,
    ),
    _here(
        name="sort",
        title="Sort the lanes",
        written="S",
        help="by busy time, or not",
        run=sort,
    ),
    _here(
        name="families",
        title="Streams by kind",
        written="F",
        help="how much of the time each kind of kernels takes",
        run=families,
    ),
    _here(
        name="unfold-all",
        title="Unfold all lanes",
        written="U",
        help="and show what is hidden; again: back",
        run=unfold,
    ),
)
