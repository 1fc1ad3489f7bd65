"""The actions that set a mark and go to it, and the one that selects a range of time."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from fusetui.tui.state.action import action, on_timeline
from fusetui.tui.state.moving import SECTION, brought
from fusetui.tui.state.session import Bookmarks
from fusetui.tui.state.state import TIMELINE, Prompt, State, told

STARTED = "the range starts here: move, then", "range end it", "deselect drop it"
ENDED = "a range", "details all figures of the range", "range another range", "deselect clear it"


def ask_mark(state: State) -> State:
    return replace(state, prompt=Prompt.SET_MARK)


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

ACTIONS = (
    action("range", "Range of time", "v", "from here; v again: to there", choose_range, SECTION),
    _here(
        "mark",
        "Set a mark",
        "m",
        "then a letter: this window and selection; :mark a NOTE",
        ask_mark,
    ),
    _here("to-mark", "Go to a mark", "'", "then its letter", ask_to_mark),
)
