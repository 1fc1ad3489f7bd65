"""The bar of pages: the first line of the screen, with the present page marked."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import msgspec
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from fusetui.tui.drawing import palette
from fusetui.tui.drawing.segments import blank, line, segment

BETWEEN = 1  # cells


class Tab(msgspec.Struct, frozen=True):
    """A page; `is_missing`: it cannot be shown now."""

    name: str
    text: str
    is_here: bool
    is_missing: bool


class TabsPicture(msgspec.Struct, frozen=True):
    """One line; where the names of all pages do not fit, those that are not in front have their
    keys alone."""

    tabs: tuple[Tab, ...]

    def key(self, y: int, width: int, height: int) -> Hashable:
        return self, y, width

    def line(self, y: int, width: int, height: int) -> Strip:
        if y:
            return blank(width)
        parts: list[Segment] = []
        used = 0
        for tab, text, cells in self._places(width):
            parts.append(segment(" " * (cells.start - used), palette.PLAIN))
            parts.append(segment(text, _style(tab)))
            used = cells.stop
        return line(parts, width)

    def at(self, x: int, width: int) -> str:
        """The name of the page at a cell; "" beside them."""
        return next((tab.name for tab, _, cells in self._places(width) if x in cells), "")

    def _places(self, width: int) -> Iterator[tuple[Tab, str, range]]:
        """Without room between them where they would not fit."""
        texts = [f" {tab.text} " for tab in self.tabs]
        if len("".join(texts)) > width:
            texts = [f" {tab.text if tab.is_here else tab.text.split()[0]} " for tab in self.tabs]
        begin, between = 0, BETWEEN * (len("".join(texts)) + len(texts) - 1 <= width)
        for tab, text in zip(self.tabs, texts, strict=True):
            yield tab, text, range(begin, begin + len(text))
            begin += len(text) + between


def _style(tab: Tab) -> Style:
    if tab.is_here:
        return palette.HERE
    return palette.DIM if tab.is_missing else palette.PLAIN
