"""How the lines of the screen are divided: pages, head, page, hints; and the box of an
overlay."""

from __future__ import annotations

from fusetui.tui.state.action import with_keys
from fusetui.tui.state.state import Size, State
from fusetui.tui.state.tour import STEPS, tour_height

LOW = 20  # lines of a screen; with fewer the bar of pages is left out
TENTHS = 9  # of the screen: what an overlay takes
BESIDE = 2  # cells of the box beside its lines
LEAST = 40, 10  # cells and lines of a screen; on a smaller one there is only a sentence


def too_small(size: Size) -> str:
    """What is missing on a screen of this size; "" when nothing is."""
    width, height = LEAST
    said = f"fusetui needs {width} columns and {height} lines; this terminal has"
    is_enough = size.width >= width and size.height >= height
    return "" if is_enough else f"{said} {size.width}x{size.height}."


def head_height(state: State) -> int:
    snapshots = len(state.memory.sides) if state.memory else 1
    lines = len(state.told_sides) + (state.second is not None)
    return 1 if state.reading else lines or snapshots


def tour_lines(state: State, width: int | None = None) -> int:
    """The lines of the guided tour, if there is one; `width`: cells, by default of the
    screen."""
    if state.tour is None:
        return 0
    texts = tuple(with_keys(step.text, state) for step in STEPS)
    return tour_height(texts, state.size.width if width is None else width)


def tabs_height(size: Size) -> int:
    return 1 if size.height >= LOW else 0


def body(state: State) -> Size:
    others = tabs_height(state.size) + head_height(state) + tour_lines(state) + 1
    return Size(state.size.width, max(0, state.size.height - others))


def overlay_size(state: State) -> Size:
    return Size(state.size.width * TENTHS // 10, state.size.height * TENTHS // 10)


def overlay_tour_lines(state: State) -> int:
    return tour_lines(state, overlay_size(state).width - BESIDE)


def overlay_body(state: State) -> Size:
    size = overlay_size(state)
    return Size(size.width, max(0, size.height - overlay_tour_lines(state)))


def size_of(state: State) -> Size:
    return overlay_body(state) if state.overlay else body(state)
