"""A list of any length of which only the rows in sight are formatted."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import msgspec
from rich.style import Style
from textual.strip import Strip

from fusetui.text.cutting import width as cells
from fusetui.tui.drawing import palette
from fusetui.tui.drawing.segments import blank, line, segment
from fusetui.tui.layout.wrapping import sentence_lines

Styled = tuple[str, Style]
Format = Callable[[int, int], Sequence[Styled]]
"""(row, width) -> the texts of the row, left to right."""


class Rows(msgspec.Struct, frozen=True, eq=False):
    """What a list shows. Rows with equal identity and index are equal."""

    identity: Hashable
    count: int
    titles: Callable[[int], str]  # of the columns, on a screen this many cells wide
    format: Format


class ListPicture(msgspec.Struct, frozen=True, eq=False):
    """A line of titles, and rows from `top` on, one of which may have the cursor."""

    rows: Rows
    cursor: int
    top: int

    def key(self, y: int, width: int, height: int) -> Hashable:
        index = y - 1 + self.top if y else -1
        if not self.rows.count:
            return self.rows.identity, y, width
        if index >= self.rows.count:
            return None, width
        return self.rows.identity, index, index == self.cursor, width

    def line(self, y: int, width: int, height: int) -> Strip:
        if not self.rows.count:
            return _sentence(self.rows.titles(width), y, width)
        if y == 0:
            return line([segment(self.rows.titles(width), palette.TITLE)], width)
        index = y - 1 + self.top
        if index >= self.rows.count:
            return blank(width)
        here = index == self.cursor
        texts = [(">" if here else " ", palette.BOLD), *self.rows.format(index, width - 1)]
        strip = line([segment(*text) for text in texts], width)
        return strip.apply_style(palette.CURSOR) if here else strip

    def index_at(self, y: int) -> int:
        """The row on a line of the screen, or -1."""
        index = y - 1 + self.top
        return index if y > 0 and index < self.rows.count else -1


def _sentence(text: str, y: int, width: int) -> Strip:
    """A line of what an empty list says, on as many lines as it takes."""
    if cells(text) <= width:
        lines = [text]
    else:
        lines = [f" {said}" for said in sentence_lines(text.strip(), max(1, width - 2))]
    return line([segment(lines[y], palette.TITLE)], width) if y < len(lines) else blank(width)


def scrolled(cursor: int, top: int, room: int) -> int:
    """The first row on the screen, as near to `top` as possible, such that the cursor is on the
    screen."""
    return max(min(top, cursor), cursor - max(1, room) + 1, 0)
