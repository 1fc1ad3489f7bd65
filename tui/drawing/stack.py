"""Pictures, one below the other."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from textual.strip import Strip

from fusetui.tui.drawing.picture import Picture
from fusetui.tui.drawing.segments import blank


class Stack:
    """A picture made of pictures, each of its own height."""

    def __init__(self, pictures: Sequence[tuple[int, Picture]]) -> None:
        """(height, picture) from top to bottom."""
        self._lines = [
            (number, picture, y, height)
            for number, (height, picture) in enumerate(pictures)
            for y in range(height)
        ]

    def key(self, y: int, width: int, height: int) -> Hashable:
        if y >= len(self._lines):
            return None, width
        number, picture, inner, own = self._lines[y]
        return number, picture.key(inner, width, own)

    def line(self, y: int, width: int, height: int) -> Strip:
        if y >= len(self._lines):
            return blank(width)
        _, picture, inner, own = self._lines[y]
        return picture.line(inner, width, own)
