"""Bars of shares beside figures."""

from __future__ import annotations

from fusetui.tui.drawing.glyphs import Glyphs


def share_bar(part: int, whole: int, width: int, glyphs: Glyphs) -> str:
    """As many of `width` cells full as the share of the whole; a share above 0 is seen."""
    if part <= 0 or whole <= 0:
        return " " * width
    eighths = max(1, min(8 * width, round(8 * width * part / whole)))
    full, rest = divmod(eighths, 8)
    return (glyphs.full * full + glyphs.parts[rest]).ljust(width)[:width]
