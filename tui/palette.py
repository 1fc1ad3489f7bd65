"""Rich styles for the parts of the screen, made once."""

from __future__ import annotations

from functools import cache

from rich.style import Style

from fusetui.tui.kinds import COLORS, Kind

PLAIN = Style()
DIM = Style(color="#949494")
BOLD = Style(bold=True)
HEADING = Style(color="#d7d7af", bold=True)
GOOD = Style(color="#87d787")
BAD = Style(color="#ff8787")
WARN = Style(color="#ffd787")
WINDOW = Style(color="#ffffaf", bold=True)
BUSY = Style(color="#5f87af")
SELECTED = Style(color="#000000", bgcolor="#ffffaf", bold=True)
MARKED = Style(color="#000000", bgcolor="#ffd75f")
CURSOR = Style(bgcolor="#3a3a3a", bold=True)


@cache
def block(kind: Kind, second: bool = False) -> Style:
    """A slice wide enough for a text; the second tint for every other of two neighbours."""
    first, neighbour, text = COLORS[kind]
    return Style(color=text, bgcolor=neighbour if second else first)


@cache
def bar(kind: Kind) -> Style:
    """A cell that slices fill only in part."""
    return Style(color=COLORS[kind][0])


@cache
def swatch(kind: Kind) -> Style:
    """Text in the colour of a kind, for tables; the darker ones half way to white."""
    color, _, text = COLORS[kind]
    if text == "#ffffff":
        channels = ((int(color[n : n + 2], 16) + 255) // 2 for n in (1, 3, 5))
        color = "#" + "".join(f"{c:02x}" for c in channels)
    return Style(color=color)
