"""A widget that shows a few lines of text: the details of a slice, the head of a page."""

from __future__ import annotations

from collections.abc import Sequence

from textual.strip import Strip
from textual.widget import Widget

from fusetui.tui import palette
from fusetui.tui.details import Said
from fusetui.tui.segments import blank, line, segment

LOOKS = {
    "title": palette.HEADING,
    "name": palette.PLAIN,
    "marks": palette.WARN,
    "plain": palette.DIM,
    "good": palette.GOOD,
    "bad": palette.BAD,
    "warn": palette.WARN,
    "rule": palette.DIM,
}


class Pane(Widget):
    """Lines of text; what does not fit is cut at the right."""

    ALLOW_SELECT = False

    def __init__(self, *, name: str) -> None:
        super().__init__(id=name)
        self._lines: Sequence[Said] = ()

    def say(self, lines: Sequence[Said]) -> None:
        """Show other lines; only those that differ are drawn again."""
        if lines != self._lines:
            self._lines = lines
            self.refresh()

    def render_line(self, y: int) -> Strip:
        if y >= len(self._lines):
            return blank(self.size.width)
        said = self._lines[y]
        return line([segment(said.text, LOOKS[said.look])], self.size.width)
