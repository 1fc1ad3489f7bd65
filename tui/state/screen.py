"""The division of the screen: pages, heading, page, hints; and the box of an
overlay."""

from __future__ import annotations

from fusetui.tui.state.action import with_keys
from fusetui.tui.state.state import Size, State
from fusetui.tui.state.tour import STEPS, tour_height

MIN_LINES_WITH_TABS = 16  # of a screen; with fewer the bar of pages is left out
OVERLAY_TENTHS = 9  # of the screen: what an overlay takes
BOX_CELLS = 2  # of an overlay, beside its lines
MIN_WIDTH = 40  # cells
MIN_HEIGHT = 10  # lines
"""On a smaller screen there is only a sentence."""


def too_small(size: Size) -> str:
    """What is missing on a screen of this size; "" when nothing is."""
    if size.width >= MIN_WIDTH and size.height >= MIN_HEIGHT:
        return ""
    needed = f"fusetui needs {MIN_WIDTH} columns and {MIN_HEIGHT} lines"
    return f"{needed}; this terminal has {size.width}x{size.height}."


def head_height(state: State) -> int:
    """The lines of the head: the progress of reading, else one for each side that the
    page is about and for a replay, else one for each snapshot."""
    if state.reading:
        return 1
    lines = len(state.told_sides)
    if state.second is not None:
        lines += 1
    if lines:
        return lines
    return len(state.memory.sides) if state.memory else 1


def tour_lines(state: State, width: int | None = None) -> int:
    """The lines of the guided tour, if there is one; `width`: cells, by default of the
    screen."""
    if state.tour is None:
        return 0
    texts = tuple(with_keys(step.text, state) for step in STEPS)
    return tour_height(texts, state.size.width if width is None else width)


def tabs_height(size: Size) -> int:
    """The lines of the bar of pages."""
    return 1 if size.height >= MIN_LINES_WITH_TABS else 0


def body(state: State) -> Size:
    """What the page has, without the lines above and below it."""
    line_of_hints = 1
    above = tabs_height(state.size) + head_height(state)
    below = tour_lines(state) + line_of_hints
    lines = state.size.height - above - below
    return Size(state.size.width, max(0, lines))


def overlay_size(state: State) -> Size:
    """What lies over the page, with its tour."""
    return Size(
        width=state.size.width * OVERLAY_TENTHS // 10,
        height=state.size.height * OVERLAY_TENTHS // 10,
    )


def overlay_tour_lines(state: State) -> int:
    """The lines of the guided tour in an overlay."""
    return tour_lines(state, overlay_size(state).width - BOX_CELLS)


def overlay_body(state: State) -> Size:
    """What lies over the page, without the tour."""
    size = overlay_size(state)
    lines = size.height - overlay_tour_lines(state)
    return Size(size.width, max(0, lines))


def size_of(state: State) -> Size:
    """What the list or page that receives the keys has."""
    return overlay_body(state) if state.overlay else body(state)
