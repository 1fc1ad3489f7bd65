"""The answer below the lanes, while nothing is selected: each of its rows leads somewhere."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from fusetui.tui.drawing.answer_lines import AnswerPicture
from fusetui.tui.drawing.canvas import Turn
from fusetui.tui.drawing.schemes import glyphs_for
from fusetui.tui.layout.answer import AnswerAt, AnswerPage, moved, way_of
from fusetui.tui.pages import kernels, modules
from fusetui.tui.pages.page import Pane
from fusetui.tui.pages.why import WhyPage
from fusetui.tui.state.action import action, hints_text
from fusetui.tui.state.jumping import alike, at_gap, place_of_gap
from fusetui.tui.state.moving import other_side
from fusetui.tui.state.search import shown
from fusetui.tui.state.state import TIMELINE, State, told

SECTION = "In the answer"
INSIDE = (
    "answer-down/answer-up row",
    "answer-left/answer-right list",
    "answer-show goes there",
    "answer-leave back to the lanes",
)


def answer_of(state: State) -> AnswerPage | None:
    """The answer that stands below the lanes; None where something else does."""
    if state.page != TIMELINE or state.overlay is not None or not state.sides:
        return None
    is_other = state.view.selected >= 0 or state.view.gap or state.time_range
    return None if is_other else state.side.insight.answer


def is_inside(state: State, inside: bool = True) -> bool:
    """Whether the keys act on the answer, or else on the lanes above it."""
    return answer_of(state) is not None and (state.answer_at is not None) is inside


is_outside = partial(is_inside, inside=False)
enter = partial(replace, answer_at=AnswerAt(0, 0), hint="")
leave = partial(replace, answer_at=None, hint="")


def takes_tab(state: State) -> bool:
    """Of two traces Tab leads to the other one instead."""
    return is_inside(state) or (is_outside(state) and len(state.sides) == 1)


def next_pane(state: State) -> State:
    """From the lanes into the answer, from the answer to the lanes, those of the other trace."""
    return other_side(leave(state)) if state.answer_at else enter(state)


def move(state: State, columns: int, rows: int) -> State:
    """The cursor on another row."""
    found, at = answer_of(state), state.answer_at
    if found is None or at is None:
        return state
    return replace(state, answer_at=moved(found.lists, at, columns, rows))


def follow(state: State) -> State:
    """To what the row under the cursor is about."""
    found, at = answer_of(state), state.answer_at
    return went(state, found, at) if found and at else state


def went(state: State, found: AnswerPage, at: AnswerAt) -> State:
    """To what a row is about; the cursor is on that row when the person comes back."""
    state = replace(state, answer_at=at)
    to, place = way_of(found.lists, at)
    if to == "slice":
        return shown(state, alike(state, place))
    if to == "why":
        return replace(state, page=WhyPage.name, hint="")
    if to in ("module", "kernel"):
        page = modules.PAGE if to == "module" else kernels.PAGE
        return page.led_to(replace(state, page=page.name, hint=""), place)
    gap = place_of_gap(state.side, found.why.gaps[place])
    keys = ("deselect back to the answer", "next-gap the next longest")
    return told(at_gap(state, gap), "a gap of the answer", *keys) if gap else state


def answer_pane(state: State, height: int) -> Pane | None:
    """The answer on so many lines; None where something else stands."""
    found = answer_of(state)
    if found is None:
        return None
    answer, width = found, state.size.width
    glyphs, title = glyphs_for(state.ascii_only), _title(state)
    picture = AnswerPicture(state.side, answer, glyphs, state.answer_at, title)

    def pointed(state: State, x: int, y: int) -> State:
        at = picture.place(x, y, width, height)
        return went(state, answer, at) if at else state

    def wheeled(state: State, turn: Turn) -> State:
        return move(enter(state) if state.answer_at is None else state, 0, turn.lines)

    return Pane(height, picture, pointed, wheeled)


def _title(state: State) -> str:
    """What keys do here."""
    into = "into-answer/next-pane" if takes_tab(state) else "into-answer"
    outside = f"{into} goes into it", "down/up selects a slice"
    return f"answer: {hints_text(INSIDE if state.answer_at else outside, state)}"


_inside = partial(action, section=SECTION, where=is_inside)
_by = partial(partial, move)
_TOP = "the first line is the verdict"
_INTO = "its rows lead to modules, kernels, gaps"
_NEXT = "the answer, the lanes; of two traces, the other one"

ACTIONS = (
    action("into-answer", "Into the answer", "enter", _INTO, enter, SECTION, is_outside),
    _inside("answer-down", "Row down", "j down", "of the list", _by(columns=0, rows=1)),
    _inside("answer-up", "Row up", "k up", _TOP, _by(columns=0, rows=-1)),
    _inside("answer-right", "Next list", "l right", "to the right", _by(columns=1, rows=0)),
    _inside("answer-left", "Previous list", "h left", "to the left", _by(columns=-1, rows=0)),
    _inside("answer-show", "Go there", "enter", "module, kernel, gap or verdict", follow),
    _inside("answer-leave", "Back to the lanes", "escape", "the keys act on them again", leave),
    action("next-pane", "Next pane", "tab", _NEXT, next_pane, SECTION, takes_tab),
)
