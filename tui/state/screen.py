"""How the lines of the screen are divided: the head, the page, the tour, the hints; and an
overlay's box."""

from __future__ import annotations

from fusetui.tui.state.state import Size, State
from fusetui.tui.state.tour_steps import tour_height

SHARE = 9, 10  # of the screen: what an overlay takes
BESIDE = 2  # cells of the box beside its lines


def head_height(state: State) -> int:
    """The lines of the head: one for each side; one while something is read."""
    return 1 if state.reading else max(1, len(state.sides))


def tour_lines(state: State) -> int:
    """The lines of the guided tour, if there is one."""
    return 0 if state.tour is None else tour_height(state.size.width)


def body(state: State) -> Size:
    """The part of the screen that the page has."""
    others = head_height(state) + tour_lines(state) + 1
    return Size(state.size.width, max(0, state.size.height - others))


def overlay_size(state: State) -> Size:
    """The box of an overlay."""
    part, whole = SHARE
    return Size(state.size.width * part // whole, state.size.height * part // whole)


def overlay_tour_lines(state: State) -> int:
    """The lines of the guided tour in the box, below the overlay, which covers the page."""
    return 0 if state.tour is None else tour_height(overlay_size(state).width - BESIDE)


def overlay_body(state: State) -> Size:
    """What the overlay itself has of its box."""
    size = overlay_size(state)
    return Size(size.width, max(0, size.height - overlay_tour_lines(state)))


def size_of(state: State) -> Size:
    """What receives the keys: an overlay, else the page."""
    return overlay_body(state) if state.overlay else body(state)
