"""How the lines of the screen are divided: pages, head, page, hints; and the box of an overlay."""

from __future__ import annotations

from fusetui.tui.state.state import Size, State

TABS = 1  # lines of the bar of pages
SHARE = 9, 10  # of the screen: what an overlay takes


def head_height(state: State) -> int:
    """One line for each side; one while something is read."""
    return 1 if state.reading else max(1, len(state.sides))


def body(state: State) -> Size:
    """What the page has of the screen."""
    others = TABS + head_height(state) + 1
    return Size(state.size.width, max(0, state.size.height - others))


def overlay_size(state: State) -> Size:
    """The box of an overlay."""
    part, whole = SHARE
    return Size(state.size.width * part // whole, state.size.height * part // whole)


def size_of(state: State) -> Size:
    """What has the keys: an overlay, else the page."""
    return overlay_size(state) if state.overlay else body(state)
