"""Pictures: the content of each line, and a key that tells whether a line is still the same."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

from textual.strip import Strip

from fusetui.tui.drawing import palette
from fusetui.tui.drawing.said import Said
from fusetui.tui.drawing.segments import blank, line, segment

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
