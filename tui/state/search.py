"""Searches names, and steps through the hits."""

from __future__ import annotations

from msgspec.structs import replace

from fusetui.trace.questions.search import find
from fusetui.trace.text.figures import count
from fusetui.trace.text.printable import printable
from fusetui.tui.state.action import Run, action
from fusetui.tui.state.moving import brought
from fusetui.tui.state.prompts import Prompt
from fusetui.tui.state.session import Hits
from fusetui.tui.state.state import State, told


def ask(state: State) -> State:
    return replace(state, prompt=Prompt.SEARCH)


def searched(state: State, text: str) -> State:
    """Shows the first hit at or after the start of the window, on the active side."""
    state = replace(state, prompt=None)
    trace = state.side.trace
    hits = Hits(text, state.active, find(trace, text), searched=True)
    if not len(hits.rows):
        return told(state, f"no name contains {printable(text)}")
    return shown(state, hits.nearest(trace, state.view.begin + state.side.origin))


def shown(state: State, hits: Hits) -> State:
    """Selects one hit in the timeline."""
    if not len(hits.rows):
        return state
    place = f"{count(hits.at + 1)} of {count(len(hits.rows))}"
    found = brought(state, state.session.hit(hits), hits.side)
    return told(found, f"{place}: {printable(hits.what)}   n next  N previous")


def step(by: int) -> Run:
    """An action to the next or previous hit."""

    def run(state: State) -> State:
        hits = state.session.hits
        return (
            told(state, "no search yet: press / to search")
            if hits is None
            else shown(state, hits.step(by))
        )

    return run


ACTIONS = (
    action("search", "Search", "slash", "names that contain a text", ask),
    action("next-hit", "Next hit", "n", "of the search, in order of time", step(1)),
    action("previous-hit", "Previous hit", "N", "of the search", step(-1)),
)
