"""Pictures: the content of each line, and a key that tells whether a line is still the same."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

import msgspec
from rich.style import Style
from textual.strip import Strip

from fusetui.text.cutting import ELLIPSIS
from fusetui.text.cutting import width as cells
from fusetui.tui.drawing import palette
from fusetui.tui.drawing.segments import blank, line, segment
from fusetui.tui.layout.text_layout import sentence_lines


class Said(msgspec.Struct, frozen=True):
    """`look`: title, name, marks (below a name), good, bad, warn, rule or plain."""

    text: str
    look: str = "plain"


def cut(lines: Sequence[Said], height: int, ellipsis: str = ELLIPSIS) -> Sequence[Said]:
    """As many as there is room for; the last one shows that there are more."""
    if len(lines) <= height or not height:
        return lines
    last = lines[height - 1]
    text = last.text[: -len(ellipsis)] if len(last.text) > len(ellipsis) else last.text
    return [*lines[: height - 1], Said(f"{text.rstrip()}{ellipsis}", last.look)]


LOOKS = {
    "title": palette.TITLE,
    "name": palette.PLAIN,
    "marks": palette.WARN,
    "plain": palette.DIM,
    "good": palette.GOOD,
    "bad": palette.BAD,
    "warn": palette.WARN,
    "rule": palette.DIM,
}


Make = Callable[[int, int], Sequence[Said]]
"""(width, height) -> at most `height` lines."""


class Picture(Protocol):
    """A few lines of the screen, made from frozen data alone."""

    def key(self, y: int, width: int, height: int) -> Hashable:
        """Equal keys mean equal lines. Called for every line of every frame, so it must be
        cheap."""

    def line(self, y: int, width: int, height: int) -> Strip:
        """The line, exactly `width` cells; called when the key changed."""


class TextPicture:
    """Lines of text, made when they are first drawn; what does not fit is cut."""

    def __init__(self, identity: Hashable, make: Make) -> None:
        """`make(width, height)` returns the lines; equal identities mean equal texts."""
        self._identity = identity
        self._make = make
        self._made: dict[tuple[int, int], Sequence[Said]] = {}

    def key(self, y: int, width: int, height: int) -> Hashable:
        return self._identity, y, width, height

    def line(self, y: int, width: int, height: int) -> Strip:
        lines = self._made.get((width, height))
        if lines is None:
            lines = self._made[width, height] = self._make(width, height)
        if y >= len(lines):
            return blank(width)
        return line([segment(lines[y].text, LOOKS[lines[y].look])], width)


def text(lines: Sequence[Said]) -> TextPicture:
    """Lines that are already known."""
    found = tuple(lines)
    return TextPicture(found, lambda width, height: found)


def ruled(identity: Hashable, title: str, rule: str, make: Make) -> TextPicture:
    """Lines below a rule, which may contain a title."""

    def lines(width: int, height: int) -> Sequence[Said]:
        start = f"{rule * 3} {title} " if title else ""
        return [Said(start.ljust(width, rule), "rule"), *make(width, height - 1)]

    return TextPicture((identity, title, rule), lines)


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
