"""Bars that show shares beside figures."""

from __future__ import annotations

from fusetui.tui.drawing.glyphs import Glyphs


def share_bar(part: int, whole: int, width: int, glyphs: Glyphs) -> str:
    """Fills the share of `width` cells that `part` is of the whole; a share above 0 is visible."""
    if part <= 0 or whole <= 0:
        return " " * width
    eighths = max(1, min(8 * width, round(8 * width * part / whole)))
    full, rest = divmod(eighths, 8)
    return (glyphs.full * full + glyphs.parts[rest]).ljust(width)[:width]
