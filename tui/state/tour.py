"""The guided tour: where a person is in it, when it goes on. `tour_steps.py` lists its steps."""

from __future__ import annotations

from msgspec.structs import replace

from fusetui.tui.state.action import action, nothing
from fusetui.tui.state.state import State
from fusetui.tui.state.tour_steps import STEPS, Step

SECTION = "In the tour"


def followed(before: State, after: State) -> State:
    """After every change: the next step, once a person has done what the step asks."""
    if after.tour is None or not STEPS[after.tour].is_done(before, after):
        return after
    return _at(after, after.tour + 1)


def is_on(state: State) -> bool:
    return state.tour is not None and state.overlay is None


def skip(state: State) -> State:
    """To the next step that can be done here."""
    if state.tour is None:
        return state
    later = (n for n in range(state.tour + 1, len(STEPS)) if _can_be_done(state, STEPS[n]))
    return _at(state, next(later, state.tour))


def _can_be_done(state: State, step: Step) -> bool:
    return len(state.sides) == 2 or not step.of_two


def back(state: State) -> State:
    return state if state.tour is None else _at(state, state.tour - 1)


def _at(state: State, step: int) -> State:
    return replace(state, tour=max(0, min(step, len(STEPS) - 1)))


ACTIONS = (
    action("skip", "Skip", "greater_than_sign", "this step", skip, SECTION, is_on, nothing),
    action("back", "Back", "less_than_sign", "to the step before", back, SECTION, is_on, nothing),
)
