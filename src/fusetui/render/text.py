"""Text by its width on the screen. Figures are in `trace.format`."""

from __future__ import annotations

import unicodedata


def cells(text: str) -> int:
    """Columns that printable text takes in a terminal."""
    return len(text) if text.isascii() else sum(map(_char_cells, text))


def fit(text: str, width: int) -> str:
    """The text, or its beginning and `...` where it is wider than `width` columns."""
    if cells(text) <= width:
        return text
    kept, used = [], 0
    for char in text:
        used += _char_cells(char)
        if used > width - 3:
            break
        kept.append(char)
    return f"{''.join(kept)}..."[:width]


def _char_cells(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
