"""The one place that makes what is drawn: no text gets to the terminal but through here.

Segments of our own widgets are made by `segment`. Those of Textual's widgets, such as the line in
which a person types, go through the filter `DOOR` on their way to the terminal.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter
from textual.strip import Strip

from fusetui.trace.text.printable import is_printable, printable
from fusetui.tui.drawing import palette

INSTEAD = "·"


def segment(text: str, style: Style) -> Segment:
    """A styled text. It should be printable already, so that its width was known."""
    return Segment(text if is_printable(text) else printable(text), style)


def line(segments: Iterable[Segment], width: int) -> Strip:
    """A line of so many cells: cut, or filled with blanks, at the right."""
    return Strip(segments).adjust_cell_length(width, palette.PLAIN)


def blank(width: int) -> Strip:
    """An empty line. Every segment has a style: NO_COLOR changes the styles of all of them."""
    return Strip.blank(width, palette.PLAIN)


class Door(LineFilter):
    """Dots instead of what a terminal would obey or hide, as many as it takes cells."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        if all(is_printable(segment.text) for segment in segments):
            return segments
        return [Segment(_plain(text), style, control) for text, style, control in segments]


DOOR = Door()


def _plain(text: str) -> str:
    return "".join(c if is_printable(c) else INSTEAD * cell_len(c) for c in text)
