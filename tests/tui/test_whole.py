"""The whole screen: whatever is done, every line can be drawn and is as wide as the screen."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.tui.conftest import mlp_events
from tests.tui.prepared import after, opened

from fusetui.trace import Trace
from fusetui.tui import whole
from fusetui.tui.pages.page import Drag, Turn
from fusetui.tui.registry import ACTIONS
from fusetui.tui.state.action import Run, applies, perform
from fusetui.tui.state.state import Size, State

SIZES = st.builds(Size, st.integers(1, 130), st.integers(1, 50))


def pressed(action: int) -> Run:
    """An action, where it applies."""
    chosen = ACTIONS[action]
    return lambda state: perform(chosen, state) if applies(chosen, state) else state


def clicked(x: int, y: int) -> Run:
    return partial(whole.pointed, x=x, y=y)


def wheeled(x: int, y: int, lines: int, shifted: bool) -> Run:
    return partial(whole.wheeled, y=y, turn=Turn(x, lines, shifted))


def dragged(x: int, y: int, to: int) -> Run:
    return partial(whole.dragged, y=y, drag=Drag(x, to, ended=True))


def resized(size: Size) -> Run:
    return lambda state: replace(state, size=size)


RUNS = st.lists(
    st.integers(0, len(ACTIONS) - 1).map(pressed)
    | st.builds(clicked, st.integers(0, 129), st.integers(0, 49))
    | st.builds(
        wheeled, st.integers(0, 129), st.integers(0, 49), st.sampled_from([-3, 3]), st.booleans()
    )
    | st.builds(dragged, st.integers(0, 129), st.integers(0, 49), st.integers(0, 129))
    | SIZES.map(resized),
    max_size=40,
)


def drawn(state: State) -> None:
    """Draw every line."""
    heights = [pane.height for pane in whole.panes(state)]
    assert sum(heights) == state.size.height
    for panes in (whole.panes(state), whole.overlay_panes(state)):
        picture = whole.stack(panes)
        for y in range(state.size.height):
            picture.key(y, state.size.width, state.size.height)
            line = picture.line(y, state.size.width, state.size.height)
            assert line.cell_length == state.size.width


@pytest.mark.parametrize("sides", [1, 2])
def test_any_walk(mlp: Trace, trace_of: Callable[..., Trace], sides: int) -> None:
    traces = (mlp, trace_of(mlp_events(3)))[:sides]
    first = opened(*traces, paths=("a", "b"))

    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(RUNS)
    def walk(runs: list[Run]) -> None:
        state = first
        for run in runs:
            state = after(state, run)
        drawn(state)

    walk()
