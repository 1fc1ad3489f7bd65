"""Pages of the app as pictures: its states are made here without a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from fusetui import Error
from fusetui.analysis.diff.compare import diff
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.report import never
from fusetui.tui import registry, screen_layout
from fusetui.tui.background_results import pieces
from fusetui.tui.drawing.schemes import DARK, LIGHT
from fusetui.tui.drawing.svg import svg_of
from fusetui.tui.layout.moves import over
from fusetui.tui.layout.view import make_sides
from fusetui.tui.loading import told_of
from fusetui.tui.state import moving
from fusetui.tui.state.reading import compared
from fusetui.tui.state.screen import tabs_height
from fusetui.tui.state.state import Compare, Outcome, Size, State

Window = tuple[int, int]  # begin and end in ns of the file


class NoPage(Error):  # noqa: N818
    """One plain sentence: what a page lacks."""


def shown(
    traces: Sequence[Trace],
    labels: Sequence[str],
    page: str,
    size: Size,
    window: Window | None = None,
) -> State:
    """A page of the app with these traces read and explained, in so many cells and lines; `window`:
    what the timeline of the first shows. Raises NoPage where the app would not show it."""
    screen = Size(size.width, size.height + 2)  # with the bar of pages and the keys
    state = State(
        size=replace(screen, height=screen.height - 1 + tabs_height(screen)),
        keymap=dict.fromkeys(registry.BY_ACTION, ()),  # nobody can press any
    )
    outcome = registry.arrived(state, make_sides(traces, labels))
    state = _settled(state, outcome)
    for side in state.sides:
        for piece in pieces(side.trace, never):
            state = _settled(state, told_of(side.trace, piece)(state))
    state = _settled(state, registry.turned_to(registry.BY_NAME[page], state))
    if state.page != page:
        raise NoPage(f"{state.hint[:1].upper()}{state.hint[1:]}.")
    if window:
        begin, end = (time - state.side.origin for time in window)
        state = _settled(state, moving.viewed(state, over(state.side, state.view, begin, end)))
    return state


def drawn(state: State, light: bool, title: str, *, whole: bool = False, pixels: int = 0) -> str:
    """The page as an SVG, so many pixels wide; without the bar of pages and the keys, unless the
    `whole` screen."""
    found = screen_layout.panes(state)
    found = found if whole else found[1:-1]
    height = sum(pane.height for pane in found)
    picture, scheme = screen_layout.stack(found), LIGHT if light else DARK
    return svg_of(picture, state.size.width, height, scheme, title, pixels)


def _settled(before: State, outcome: Outcome) -> State:
    """The next state; of what it asks for, two traces are compared."""
    state, effect = outcome if isinstance(outcome, tuple) else (outcome, None)
    if isinstance(effect, Compare):
        a, b = (side.trace for side in state.sides)
        state = compared(state, a, b, diff(a, b))
    return registry.settled(before, state)
