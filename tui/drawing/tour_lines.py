"""The lines of the guided tour: what a person is asked to do, with the keys set apart."""

from __future__ import annotations

from collections.abc import Hashable

import msgspec
from textual.strip import Strip

from fusetui.tui.drawing import palette
from fusetui.tui.drawing.segments import blank, line, segment
from fusetui.tui.layout.wrapping import wrapped
from fusetui.tui.state.tour import MARGIN


class TourPicture(msgspec.Struct, frozen=True):
    """A rule with the number and the title of a step, and its text, keys between backticks."""

    title: str
    text: str
    keys: str  # what else can be done
    rule: str

    def key(self, y: int, width: int, height: int) -> Hashable:
        return self, y, width

    def line(self, y: int, width: int, height: int) -> Strip:
        if y == 0:
            title, keys = f" {self.title} ", f"  {self.keys} "
            rest = max(0, width - len(title) - len(keys) - 3)
            return line(
                [
                    segment(self.rule * 3, palette.DIM),
                    segment(title, palette.TITLE),
                    segment(self.rule * rest + keys, palette.DIM),
                ],
                width,
            )
        lines = wrapped(self.text, width - MARGIN)
        if y > len(lines):
            return blank(width)
        parts = enumerate(f" {lines[y - 1]}".split("`"))
        styles = palette.PLAIN, palette.BOLD
        return line([segment(text, styles[at % 2]) for at, text in parts], width)
