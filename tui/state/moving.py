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
from fusetui.tui.layout.lanes import ALL, Arrangement, find_matching_lanes
from fusetui.tui.layout.lanes import groups as groups_of
from fusetui.tui.layout.view import Side, View
from fusetui.tui.state.action import Run, action, on_timeline, why_no_second_trace
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
    """Return the state with another session (views, marks, range). It is the same state
    if the session is the same, so that nothing is drawn again."""
    return state if session is state.session else replace(state, session=session)


def set_view(state: State, view: View) -> State:
    """Return the state with another view of the active side. This movement can be
    undone."""
    return changed(state, state.session.moved(state.active, view))


def shown(state: State, view: View) -> State:
    """Return the state with another view of the active side and the timeline in front."""
    return bring_to_timeline(
        state, state.session.moved(state.active, view), state.active
    )


def make_move(step: Move[P], *numbers: P.args, **named: P.kwargs) -> Run:
    """Return the function of a key that moves the view of the active side, by applying
    `step` to it."""

    def run(state: State) -> State:
        return set_view(state, step(state.side, state.view, *numbers, **named))

    return run


def make_jump(step: Move[[]], nowhere: str) -> Run:
    """Return the function of a key that goes from the selected slice to another one.
    Where `step` finds none, the message is `nowhere`."""

    def run(state: State) -> State:
        if not state.view.has_selection:
            return told(state, *NOTHING_SELECTED)
        view = step(state.side, state.view)
        return told(state, nowhere) if view is state.view else set_view(state, view)

    return run


def set_side_view(state: State, index: int, view: View) -> State:
    """Return the state with another view of side `index`, which becomes the active one."""
    moved_state = changed(state, state.session.moved(index, view))
    return replace(moved_state, active=index)


def bring_to_timeline(state: State, session: ViewSession, index: int) -> State:
    """Return the state with another session, side `index` active, and the timeline in
    front."""
    return replace(state, session=session, active=index, page=TIMELINE, hint="")


def undo(state: State) -> State:
    """Return to the views before the last movement. A message says where there is none."""
    if not state.session.past:
        return told(state, "nothing to undo")
    return changed(state, state.session.undo())


def redo(state: State) -> State:
    """Repeat the movement that was undone last. A message says where there is none."""
    if not state.session.future:
        return told(state, "nothing to redo")
    return changed(state, state.session.redo())


def clear(state: State) -> State:
    """Remove the range of time; if there is none, the selection."""
    return replace(changed(state, state.session.cleared()), hint="")


def other_side(state: State) -> State:
    """Make the other side the active one, which the keys act on."""
    return replace(state, active=(state.active + 1) % len(state.sides))


def link(state: State) -> State:
    """Make both traces move together, or each on its own."""
    together = not state.session.together
    manner = "together" if together else "each on its own"
    linked_state = replace(state, session=replace(state.session, together=together))
    return told(linked_state, f"the traces move {manner}")


def ask_for_mark(state: State) -> State:
    """Ask for the letter of a mark to go to. Without marks, a message says how to set
    one."""
    if not state.session.bookmarks:
        return told(state, "no mark is set", "mark set one")
    return replace(state, prompt=Prompt.GO_TO_MARK)


def answered(state: State, character: str) -> State:
    """Carry out the letter that was asked for: set the mark of this letter, or go to
    it. Any other character cancels."""
    prompt = state.prompt
    state = replace(state, prompt=None)
    if not (character.isascii() and character.isalpha()):
        return told(state, "cancelled: a mark is a letter from a to z or A to Z")
    if prompt is Prompt.SET_MARK:
        return set_mark(state, character)
    return go_to_mark(state, character)


def set_mark(state: State, letter: str, note: str = "") -> State:
    """Set a mark of this letter at what the active side shows, with a note."""
    session = state.session.with_bookmark(letter, state.active, note)
    sentence = f"mark {letter} is set"
    if note:
        sentence += f": {note}"
    marked_state = replace(state, session=session)
    return told(marked_state, sentence, f"to-mark and {letter} go back to it")


def go_to_mark(state: State, letter: str) -> State:
    """Show what was marked with a letter. A message says where there is no such mark."""
    mark = state.session.bookmarks.get(letter)
    if mark is None:
        return told(state, f"there is no mark {letter}")
    shown_state = bring_to_timeline(state, state.session.at_bookmark(letter), mark.side)
    sentence = f"at mark {letter}"
    if mark.note:
        sentence += f": {mark.note}"
    return told(shown_state, sentence, "undo back")


def choose_range(state: State) -> State:
    """Start or end a range of time at the selection of the active side."""
    if state.page != TIMELINE:
        return told(state, "a range of time is selected in the timeline: 1")
    session = state.session.ranged(state.active)
    is_ended = session.time_range is not None and session.time_range.ended
    ranged_state = replace(state, session=session)
    return told(ranged_state, *(ENDED if is_ended else RANGE_STARTED))


_here = partial(action, section=SECTION, where=on_timeline)

ACTIONS = (
    _here(
        name="zoom-in",
        title="Zoom in",
        written="w + =",
        help="around the selection",
        run=make_move(moves.zoom, 1, 2),
    ),
    _here(
        name="zoom-out",
        title="Zoom out",
        written="s -",
        help="around the selection",
        run=make_move(moves.zoom, 2, 1),
    ),
    _here(
        name="pan-left",
        title="Pan left",
        written="a h left",
        help="a tenth of the window",
        run=make_move(moves.pan, -10),
    ),
    _here(
        name="pan-right",
        title="Pan right",
        written="d l right",
        help="a tenth of the window",
        run=make_move(moves.pan, 10),
    ),
    _here(
        name="screen-left",
        title="Screen left",
        written="A H shift+left",
        help="most of a window",
        run=make_move(moves.pan, -90),
    ),
    _here(
        name="screen-right",
        title="Screen right",
        written="D L shift+right",
        help="most of a window",
        run=make_move(moves.pan, 90),
    ),
    _here(
        name="down",
        title="Line down",
        written="j down",
        help="the slice below, at the same time",
        run=make_move(moves.select_on_next_line, 1),
    ),
    _here(
        name="up",
        title="Line up",
        written="k up",
        help="the slice above, at the same time",
        run=make_move(moves.select_on_next_line, -1),
    ),
    _here(
        name="lane-down",
        title="Next lane",
        written="J",
        help="the first line of the next lane",
        run=make_move(moves.select_in_next_lane, 1),
    ),
    _here(
        name="lane-up",
        title="Previous lane",
        written="K",
        help="the first line of the previous lane",
        run=make_move(moves.select_in_next_lane, -1),
    ),
    _here(
        name="next",
        title="Next slice",
        written=".",
        help="on the same line",
        run=make_move(moves.select_next_slice, 1),
    ),
    _here(
        name="previous",
        title="Previous slice",
        written=",",
        help="on the same line",
        run=make_move(moves.select_next_slice, -1),
    ),
    _here(
        name="to-kernel",
        title="To the kernel",
        written="]",
        help="of the launch or op",
        run=make_jump(
            moves.select_launched_kernel, "No GPU event was launched from here"
        ),
    ),
    _here(
        name="to-launch",
        title="To the launch",
        written="[",
        help="then to the enclosing ops",
        run=make_jump(
            moves.select_launch, "No launch and nothing around this was recorded"
        ),
    ),
    _here(
        name="zoom-to",
        title="Zoom to the slice",
        written="enter z",
        help="to half of the width",
        run=make_move(moves.zoom_to_selection),
    ),
    _here(
        name="center",
        title="Center the slice",
        written="f",
        help="without changing the zoom",
        run=make_move(moves.center),
    ),
    _here(
        name="whole",
        title="Whole trace",
        written="0",
        help="show everything",
        run=make_move(moves.fit),
    ),
    _here(
        name="start",
        title="Start of the trace",
        written="g home",
        help="keep the zoom",
        run=make_move(moves.go_to_end, -1),
    ),
    _here(
        name="end",
        title="End of the trace",
        written="G end",
        help="keep the zoom",
        run=make_move(moves.go_to_end, 1),
    ),
    _here(
        name="fold",
        title="Fold the lane",
        written="space",
        help="one line, some lines, all lines",
        run=make_move(moves.fold),
    ),
    _here(
        name="undo",
        title="Undo the movement",
        written="u",
        help="back to the previous view",
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
        help="the trace that the keys act on",
        run=other_side,
        needs=why_no_second_trace,
    ),
)
MARKING = (
    action(
        name="range",
        title="Range of time",
        written="v",
        help="from here; press v again to end it",
        run=choose_range,
        section=SECTION,
    ),
    _here(
        name="mark",
        title="Set a mark",
        written="m",
        help="then a letter; saves the window and the selection; :mark a NOTE",
        run=partial(replace, prompt=Prompt.SET_MARK),
    ),
    _here(
        name="to-mark",
        title="Go to a mark",
        written="'",
        help="then its letter",
        run=ask_for_mark,
    ),
)
LINK = action(
    name="link",
    title="Together or apart",
    written="b",
    help="whether both traces move at once",
    run=link,
    needs=why_no_second_trace,
)


NO_LANE = "nothing is selected", "down/up select a slice, and with it a lane"


def pin(state: State) -> State:
    """Pin the lane of the selection above all others, or put it back among them."""
    lane = _selected_lane(state)
    if lane < 0:
        return told(state, *NO_LANE)
    arranged = state.view.arranged
    pinned = tuple(other for other in arranged.pinned if other != lane)
    if lane not in arranged.pinned:
        pinned = (*pinned, lane)
    return _arrange_lanes(state, pinned=pinned, hidden=arranged.hidden - {lane})


def hide(state: State) -> State:
    """Hide the lane of the selection. Nothing is selected afterwards."""
    lane = _selected_lane(state)
    if lane < 0:
        return told(state, *NO_LANE)
    arranged_before = state.view.arranged
    arranged = replace(
        arranged_before,
        hidden=arranged_before.hidden | {lane},
        pinned=tuple(other for other in arranged_before.pinned if other != lane),
    )
    hidden_state = set_view(state, replace(state.view, selected=-1, arranged=arranged))
    sentence = f"hidden: {state.side.lanes[lane].title}"
    return told(hidden_state, sentence, "unfold-all show all lanes", "undo undo")


def isolate(state: State) -> State:
    """Show only the lanes of the selected thread or device. Where only these are shown
    already, show all lanes as at first."""
    lane = _selected_lane(state)
    if lane < 0:
        return told(state, *NO_LANE)
    lanes = state.side.lanes
    group: list[int] = []
    for _, indices in groups_of(lanes):
        if lane in indices:
            group = indices
    hidden = frozenset(range(len(lanes))) - set(group)
    is_isolated = state.view.arranged.hidden == hidden
    return _arrange_lanes(state, hidden=state.side.quiet if is_isolated else hidden)


def only(state: State, pattern: str) -> Outcome:
    """Show only the lanes whose names match a pattern: texts divided by `|`, or a
    regular expression as in a search. An empty pattern shows all.

    Regular expressions are matched in a thread, because one may take long.
    """
    if not pattern.strip():
        return _arrange_lanes(state, hidden=state.side.quiet)
    try:
        terms = parse(pattern).terms if pattern.startswith(("/", "-/")) else ()
    except WrongQueryError as wrong:
        return told(state, printable(str(wrong)))
    if len(terms) == 1 and isinstance(terms[0], Pattern):
        return told(state, "searching"), MatchLanes(state.side, terms[0])
    return _show_only_lanes(
        state, pattern, find_matching_lanes(state.side.lanes, pattern)
    )


def accept_matching_lanes(
    state: State, side: Side, text: str, lanes: frozenset[int], wrong: str
) -> State:
    """Return the state with only the lanes that a regular expression matches, or with a
    message about what is `wrong` with it. It is unchanged if another side is active by
    now."""
    if not state.sides or state.side.lanes is not side.lanes:
        return state
    if wrong:
        return told(state, printable(wrong))
    return _show_only_lanes(state, text, lanes)


def _show_only_lanes(state: State, text: str, lanes: frozenset[int]) -> State:
    """Return the state with only these lanes, which match `text`. Without any lane, all
    stay and a message says so."""
    if not lanes:
        return told(state, f"no lane is called {printable(text)}")
    every_lane = frozenset(range(len(state.side.lanes)))
    filtered_state = _arrange_lanes(state, hidden=every_lane - lanes)
    sentence = f"{plural(len(lanes), 'lane')} shown, :only shows all"
    return told(filtered_state, sentence, "undo undo")


def sort(state: State) -> State:
    """Sort the lanes with the busiest threads and devices first, or as in the trace
    again."""
    by_busy = not state.view.arranged.by_busy
    order = "the busiest first" if by_busy else "as in the trace"
    return told(_arrange_lanes(state, by_busy=by_busy), f"lanes: {order}")


def families(state: State) -> State:
    """Show or hide lines below each stream that say how much of the time each kind of
    kernels takes."""
    return _arrange_lanes(state, families=not state.view.arranged.families)


def unfold(state: State) -> State:
    """Show all lines of all lanes, with none hidden. Where that is so already, show
    lanes as when the trace was opened."""
    view = state.view
    side = state.side
    all_unfolded = (ALL,) * len(side.lanes)
    if view.folds == all_unfolded:
        first_folds = state.fits[state.active]
        first_arranged = Arrangement(side.quiet)
        return set_view(
            state, replace(view, folds=first_folds, arranged=first_arranged)
        )
    nothing_hidden = replace(view.arranged, hidden=frozenset())
    unfolded = replace(view, folds=all_unfolded, arranged=nothing_hidden)
    return told(set_view(state, unfolded), "")


def _selected_lane(state: State) -> int:
    """Return the index of the lane with the selected slice; -1 for none."""
    return state.side.lane_of(state.view.selected)


def _arrange_lanes(state: State, **fields: Any) -> State:
    """Return the state with other fields of the arrangement of lanes on the active
    side."""
    arranged = replace(state.view.arranged, **fields)
    return set_view(state, replace(state.view, arranged=arranged))


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
        help="by busy time, or in the original order",
        run=sort,
    ),
    _here(
        name="families",
        title="Streams by kind",
        written="F",
        help="the share of each kernel kind over time",
        run=families,
    ),
    _here(
        name="unfold-all",
        title="Unfold all lanes",
        written="U",
        help="and show hidden lanes; press again to go back",
        run=unfold,
    ),
)
