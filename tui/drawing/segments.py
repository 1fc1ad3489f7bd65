"""The one place that makes segments and strips: all text reaches the terminal through here.

Segments of our own widgets are made by `segment`. Those of Textual's widgets, such as the input
line, pass the filter `DOOR` on their way to the terminal.
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
    """A styled text. It should already be printable, so that its width is known."""
    return Segment(text if is_printable(text) else printable(text), style)


def line(segments: Iterable[Segment], width: int) -> Strip:
    """A line of this many cells: cut, or padded with spaces, at the right."""
    return Strip(segments).adjust_cell_length(width, palette.PLAIN)


def blank(width: int) -> Strip:
    """An empty line. Every segment has a style, because NO_COLOR changes the styles of all of
    them."""
    return Strip.blank(width, palette.PLAIN)


class Door(LineFilter):
    """Replaces what a terminal would obey or hide by dots, as many as its cells."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        if all(is_printable(segment.text) for segment in segments):
            return segments
        return [Segment(_plain(text), style, control) for text, style, control in segments]


DOOR = Door()


def _plain(text: str) -> str:
    return "".join(c if is_printable(c) else INSTEAD * cell_len(c) for c in text)
