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


def explain_small_screen(size: Size) -> str:
    """Return a sentence that says how large the screen must be, or "" if it is large
    enough."""
    if size.width >= MIN_WIDTH and size.height >= MIN_HEIGHT:
        return ""
    needed = f"fusetui needs {MIN_WIDTH} columns and {MIN_HEIGHT} lines"
    return f"{needed}; this terminal has {size.width}x{size.height}."


def head_height(state: State) -> int:
    """Return how many lines the head has: one while something is read, else one for
    each trace and replay on the page. Without these it has one for each memory
    snapshot."""
    if state.reading:
        return 1
    line_count = len(state.told_sides)
    if state.second is not None:
        line_count += 1
    if line_count:
        return line_count
    return len(state.memory.sides) if state.memory else 1


def tour_lines(state: State, width: int | None = None) -> int:
    """Return how many lines the guided tour takes in `width` cells, by default of the
    screen; 0 outside of the tour."""
    if state.tour is None:
        return 0
    texts = tuple(with_keys(step.text, state) for step in STEPS)
    return tour_height(texts, state.size.width if width is None else width)


def tabs_height(size: Size) -> int:
    """Return how many lines the bar of pages takes: 1, or 0 on a low screen."""
    return 1 if size.height >= MIN_LINES_WITH_TABS else 0


def page_size(state: State) -> Size:
    """Return the size of the page, without the lines above and below it."""
    line_of_hints = 1
    lines_above = tabs_height(state.size) + head_height(state)
    lines_below = tour_lines(state) + line_of_hints
    lines = state.size.height - lines_above - lines_below
    return Size(state.size.width, max(0, lines))


def overlay_size(state: State) -> Size:
    """Return the size of an overlay, with the tour in it."""
    return Size(
        width=state.size.width * OVERLAY_TENTHS // 10,
        height=state.size.height * OVERLAY_TENTHS // 10,
    )


def overlay_tour_lines(state: State) -> int:
    """Return how many lines the guided tour takes in an overlay."""
    return tour_lines(state, overlay_size(state).width - BOX_CELLS)


def overlay_text_size(state: State) -> Size:
    """Return the size of an overlay without the tour in it."""
    size = overlay_size(state)
    lines = size.height - overlay_tour_lines(state)
    return Size(size.width, max(0, lines))


def active_size(state: State) -> Size:
    """Return the size of what receives the keys: the overlay, else the page."""
    return overlay_text_size(state) if state.overlay else page_size(state)
