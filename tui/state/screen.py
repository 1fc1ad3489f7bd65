"""How the lines of the screen are divided: the head, the page, the hints; and an overlay's box."""

from __future__ import annotations

from fusetui.tui.state.state import Size, State

SHARE = 9, 10  # of the screen: what an overlay takes
LEAST = 40, 10
"""Cells and lines of a screen; on a smaller one there is only a sentence."""


def too_small(size: Size) -> str:
    """What is missing on a screen of this size; "" when nothing is."""
    width, height = LEAST
    if size.width >= width and size.height >= height:
        return ""
    have = f"{size.width}x{size.height}"
    return f"fusetui needs {width} columns and {height} lines; this terminal has {have}."


def head_height(state: State) -> int:
    """One line for each side; one while something is read."""
    return 1 if state.reading else max(1, len(state.sides))


def body(state: State) -> Size:
    """What the page has of the screen."""
    return Size(state.size.width, max(0, state.size.height - head_height(state) - 1))


def overlay_size(state: State) -> Size:
    """The box of an overlay."""
    part, whole = SHARE
    return Size(state.size.width * part // whole, state.size.height * part // whole)


def size_of(state: State) -> Size:
    """What has the keys: an overlay, else the page."""
    return overlay_size(state) if state.overlay else body(state)
