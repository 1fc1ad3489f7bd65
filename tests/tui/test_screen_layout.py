"""The whole screen: whatever is done, every line can be drawn and is as wide as the
screen."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.tui.conftest import mlp_events
from tests.tui.explainable import training
from tests.tui.prepared import after, do, explained, opened, strip

from fusetui.trace import Trace
from fusetui.tui import screen_layout
from fusetui.tui.drawing.canvas import Click, Drag, Turn
from fusetui.tui.drawing.details import details_height
from fusetui.tui.drawing.schemes import Styled
from fusetui.tui.registry import ACTIONS
from fusetui.tui.state.action import Run, action_applies, perform
from fusetui.tui.state.state import Size, State

SIZES = st.builds(Size, st.integers(1, 130), st.integers(1, 50))


def pressed(action: int) -> Run:
    """An action, where it applies."""
    chosen = ACTIONS[action]
    return lambda state: (
        perform(chosen, state) if action_applies(chosen, state) else state
    )


def clicked(x: int, y: int) -> Run:
    return partial(screen_layout.moused, y=y, done=Click(x))


def wheeled(x: int, y: int, lines: int, shifted: bool) -> Run:
    return partial(screen_layout.moused, y=y, done=Turn(x, lines, shifted))


def dragged(x: int, y: int, to: int) -> Run:
    return partial(screen_layout.moused, y=y, done=Drag(x, to, ended=True))


def resized(size: Size) -> Run:
    return lambda state: replace(state, size=size)


RUNS = st.lists(
    st.integers(0, len(ACTIONS) - 1).map(pressed)
    | st.builds(clicked, st.integers(0, 129), st.integers(0, 49))
    | st.builds(
        wheeled,
        st.integers(0, 129),
        st.integers(0, 49),
        st.sampled_from([-3, 3]),
        st.booleans(),
    )
    | st.builds(dragged, st.integers(0, 129), st.integers(0, 49), st.integers(0, 129))
    | SIZES.map(resized),
    max_size=40,
)


def drawn(state: State) -> None:
    """Draw every line."""
    heights = [pane.height for pane in screen_layout.panes(state)]
    assert sum(heights) == state.size.height
    for panes in (screen_layout.panes(state), screen_layout.overlay_panes(state)):
        picture = screen_layout.stack(panes)
        for y in range(state.size.height):
            picture.key(y, state.size.width, state.size.height)
            line = picture.line(y, state.size.width, state.size.height)
            assert strip(line, state.size.width).cell_length == state.size.width


@pytest.mark.parametrize("sides", [1, 2])
def test_every_line_can_be_drawn_after_any_keys(
    mlp: Trace, trace_of: Callable[..., Trace], sides: int
) -> None:
    traces = (mlp, trace_of(mlp_events(3)))[:sides]
    first = opened(*traces, paths=("a", "b"))

    @settings(
        max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    @given(RUNS)
    def walk(runs: list[Run]) -> None:
        state = first
        for run in runs:
            state = after(state, run)
        drawn(state)

    walk()


MOVES = (
    "zoom-in",
    "zoom-out",
    "pan-right",
    "pan-left",
    "screen-right",
    "down",
    "next",
    "fold",
)


def test_lines_with_equal_keys_are_equal(mlp: Trace) -> None:
    """Else a line of an earlier frame would stay on the screen."""
    first = opened(mlp)

    @settings(max_examples=15, deadline=None)
    @given(st.lists(st.sampled_from(MOVES), max_size=20))
    def walk(names: list[str]) -> None:
        known: dict[Hashable, Sequence[Styled]] = {}
        state = first
        for run in do(*names):
            state = after(state, run)
            picture, size = screen_layout.stack(screen_layout.panes(state)), state.size
            for y in range(size.height):
                place = y, size.width, size.height
                key, line = picture.key(*place), picture.line(*place)
                assert known.setdefault((y, key), line) == line

    walk()


def keys(state: State) -> list[Hashable]:
    """Of all lines of the screen."""
    picture, size = screen_layout.stack(screen_layout.panes(state)), state.size
    return [picture.key(y, size.width, size.height) for y in range(size.height)]


def remade(before: State, now: State) -> int:
    """How many lines of the screen are laid out again."""
    return sum(a != b for a, b in zip(keys(before), keys(now), strict=True))


def test_a_lane_that_looks_the_same_is_not_laid_out_again(
    trace_of: Callable[..., Trace],
) -> None:
    """Another thread was busy at the end only: a window before that shows nothing of
    it."""
    events = mlp_events(3)
    late = [
        {**event, "tid": 9, "ts": event["ts"] + 9000}
        for event in events
        if event["pid"] == 1
    ]
    one, both = (
        after(opened(trace_of(found)), *do("start", *["zoom-in"] * 5))
        for found in (events, [*events, *late])
    )
    moved = [remade(state, after(state, *do("pan-right"))) for state in (one, both)]
    assert len(both.side.lanes) > len(one.side.lanes)
    assert moved[1] <= moved[0]


def test_an_answer_that_arrives_later_redraws_no_lane(
    trace_of: Callable[..., Trace],
) -> None:
    """Only the line of idle time, and what stands below the lanes, change."""
    state = opened(trace_of(training()), size=Size(100, 40))
    now = explained(state)
    below = details_height(40) + 3  # and the bar of pages, the head, the hints
    assert remade(state, now) <= below + 1
