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
from fusetui.tui.drawing.glyphs import ASCII, UNICODE
from fusetui.tui.drawing.schemes import Scheme, translation

INSTEAD = "·"
SIMILAR = {
    **dict(zip(UNICODE.levels[1:], ASCII.levels[1:], strict=True)),
    **dict.fromkeys("─━▔", "-"),
    **dict.fromkeys("│┃▏▎▊", "|"),
    **dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╰╯", "+"),
    **dict(zip("←→↑↓‹›▸▾·…×■◆•", "<>^v<>+-.~x#**", strict=True)),
}
"""ASCII characters of one cell for others of one cell."""


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


def in_scheme(strip: Strip, scheme: Scheme, background: str) -> Strip:
    """A line in the colors of a scheme, with as few changes of color as there are."""
    known = translation(scheme, background)
    found: list[Segment] = []
    texts: list[str] = []
    before: Style | None = None
    for text, style, _ in strip:
        now = known.get(style, style)
        if texts and now is not before and not (text.isspace() and _looks_blank(now, before)):
            found.append(Segment("".join(texts), before))
            texts = []
        if not texts:
            before = now
        texts.append(text)
    if texts:
        found.append(Segment("".join(texts), before))
    return Strip(found, strip.cell_length)


def _looks_blank(style: Style | None, before: Style | None) -> bool:
    """Does a blank look the same in both: only the background of a blank is seen."""
    return style is not None and before is not None and style.bgcolor == before.bgcolor


class Door(LineFilter):
    """Replaces what a terminal would obey or hide by dots, as many as its cells."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        if all(is_printable(segment.text) for segment in segments):
            return segments
        return [Segment(_plain(text), style, control) for text, style, control in segments]


class AsciiDoor(LineFilter):
    """ASCII instead of all else, also in what Textual draws; as many characters as cells."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        if all(segment.text.isascii() for segment in segments):
            return segments
        return [Segment(in_ascii(text), style, control) for text, style, control in segments]


DOOR, ASCII_DOOR = Door(), AsciiDoor()


def in_ascii(text: str) -> str:
    """Similar characters where there are any, else question marks.

    >>> in_ascii("Shift+← 日…")
    'Shift+< ??~'
    """
    return "".join(c if c.isascii() else SIMILAR.get(c) or "?" * cell_len(c) for c in text)


def _plain(text: str) -> str:
    return "".join(c if is_printable(c) else INSTEAD * cell_len(c) for c in text)
