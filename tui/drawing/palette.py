"""The styles that pictures are drawn in: those of the dark scheme, made once.

What a terminal gets is the style of the scheme in use (schemes.py), so each style here must be one
that schemes have.
"""

from __future__ import annotations

from rich.style import Style

from fusetui.tui.drawing.schemes import DARK, NO_STYLE, STRONG, styles
from fusetui.tui.layout.kinds import Kind

_STYLES = styles(DARK)
PLAIN, BOLD = NO_STYLE, STRONG
DIM = _STYLES["text", "DIM"]
TITLE = _STYLES["text", "TITLE"]
GOOD = _STYLES["text", "GOOD"]
BAD = _STYLES["text", "BAD"]
WARN = _STYLES["text", "WARN"]
WINDOW = _STYLES["text", "WINDOW"]
BUSY = _STYLES["text", "BUSY"]
SELECTED = _STYLES["mark", "SELECTED"]
MARKED = _STYLES["mark", "MARKED"]
HERE = _STYLES["mark", "HERE"]
CURSOR = _STYLES["mark", "CURSOR"]


def fill(kind: Kind) -> Style:
    """A slice wide enough for a text."""
    return _STYLES["fill", kind]


def idle_fill(reason: str) -> Style:
    """Time in which a device was idle for a reason."""
    return _STYLES["idle", reason]


def idle_bar(reason: str) -> Style:
    """A cell that is idle for a small part of its time."""
    return _STYLES["idle bar", reason]


def bar(kind: Kind) -> Style:
    """A cell that slices fill only partly."""
    return _STYLES["bar", kind]


def swatch(kind: Kind) -> Style:
    """Text in a color like that of a kind, for tables."""
    return _STYLES["swatch", kind]
