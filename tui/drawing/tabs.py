"""The bar of pages: the first line of the screen, with the present page marked."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import msgspec
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
    """One line; what does not fit is cut."""

    tabs: tuple[Tab, ...]

    def key(self, y: int, width: int, height: int) -> Hashable:
        return self, y, width

    def line(self, y: int, width: int, height: int) -> Strip:
        if y:
            return blank(width)
        gap = segment(" " * BETWEEN, palette.PLAIN)
        parts = (part for tab in self.tabs for part in (segment(_text(tab), _style(tab)), gap))
        return line(parts, width)

    def at(self, x: int) -> str:
        """The name of the page at a cell; "" beside them."""
        return next((tab.name for tab, cells in self._places() if x in cells), "")

    def _places(self) -> Iterator[tuple[Tab, range]]:
        begin = 0
        for tab in self.tabs:
            end = begin + len(_text(tab))
            yield tab, range(begin, end)
            begin = end + BETWEEN


def _text(tab: Tab) -> str:
    return f" {tab.text} "


def _style(tab: Tab) -> Style:
    if tab.is_here:
        return palette.HERE
    return palette.DIM if tab.is_missing else palette.PLAIN
