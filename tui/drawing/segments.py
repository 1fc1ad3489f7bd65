"""The one place that makes segments and strips: all text reaches the terminal through
here, lines of our own by `painted`, those of widgets of Textual, as the input line, by
the filter `DOOR`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import COLOR_SYSTEMS, Console
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import ANSIToTruecolor, LineFilter
from textual.strip import Strip

from fusetui.text.patterns import lazy_pattern
from fusetui.text.printable import is_printable, printable
from fusetui.tui.drawing.schemes import ASCII, UNICODE, Styled

INSTEAD = "·"
MOST_STYLES = 4096  # whose codes are kept
IN_CELLS = lazy_pattern("[ -~\\xa0-\\u02ff…‹\\u2500-\\u25f7]*").fullmatch
"""Whether a text consists of characters known to take one cell each: the most of what
is drawn."""
_new: Callable[[type[Segment], tuple[str, Style | None, None]], Segment] = tuple.__new__
"""Makes a segment without the function of Python behind Segment(...): a frame has a
thousand."""
SIMILAR = {  # ASCII characters of one cell for others of one cell
    **dict(zip(UNICODE.levels[1:], ASCII.levels[1:], strict=True)),
    **dict.fromkeys("─━▔", "-"),
    **dict.fromkeys("│┃▏▎▊", "|"),
    **dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╰╯", "+"),
    **dict(zip("←→↑↓‹›▸▾·…×■◆•", "<>^v<>+-.~x#**", strict=True)),
}


class ShortStrip(Strip):
    """A line that sends only the changes from one style to the next, instead of each
    style as a whole: a frame of many colors takes half of the bytes."""

    __slots__ = ("_sent",)

    def __init__(
        self, segments: Iterable[Segment], cell_length: int | None = None
    ) -> None:
        super().__init__(segments, cell_length)
        self._sent: str | None = None

    def render(self, console: Console) -> str:
        """The text with its SGR sequences; made once, as an app has one console."""
        if self._sent is None:
            system = COLOR_SYSTEMS.get(console.color_system or "")
            if system is None:
                self._sent = super().render(console)
            else:
                self._sent = sequences(self, system)
        return self._sent


def painted(
    parts: Sequence[Styled], width: int, styles: Mapping[str, Style]
) -> ShortStrip:
    """A line of this many cells, cut or padded at its right, with as few changes of
    color as there are; texts that are not printable are made so."""
    whole = "".join([text for text, _ in parts])
    if not is_printable(whole):
        parts = [(printable(text), token) for text, token in parts]
        whole = "".join([text for text, _ in parts])
    missing = width - (len(whole) if IN_CELLS(whole) else cell_len(whole))
    found: list[Segment] = []
    texts: list[str] = []
    before: Style | None = None
    for text, token in (*parts, (" " * missing, "plain")) if missing > 0 else parts:
        now = styles[token]
        if now is not before and text:
            if before is None:
                before = now
            elif not (
                text.isspace() and now.bgcolor == before.bgcolor
            ):  # a blank looks the same
                found.append(_new(Segment, ("".join(texts), before, None)))
                before, texts = now, []
        texts.append(text)
    found.append(_new(Segment, ("".join(texts), before or styles["plain"], None)))
    if missing < 0:
        return ShortStrip(Strip(found, width - missing).crop(0, width), width)
    return ShortStrip(found, width)


def filtered(
    strip: ShortStrip, filters: Iterable[LineFilter], background: Color
) -> ShortStrip:
    """A line that passed filters; one has nothing to do, as all our colors are true
    colors."""
    before = found = list(strip)
    for one in filters:
        if not isinstance(one, ANSIToTruecolor):
            found = one.apply(found, background)
    return strip if found is before else ShortStrip(found, strip.cell_length)


def sequences(strip: Iterable[Segment], system: ColorSystem) -> str:
    """The text of a line with SGR sequences (ECMA-48, section 8.3.117), all off at its
    end."""
    parts: list[str] = []
    now = OFF
    for text, style, _ in strip:
        codes = _codes(style, system) if style is not None else OFF
        if codes is not now:
            change, now = _change(now, codes, not text.isspace())
            parts.append(change)
        parts.append(text)
    if now != OFF:
        parts.append("\x1b[0m")
    return "".join(parts)


class Codes(NamedTuple):
    """The parameters of SGR for a style."""

    attributes: str
    color: str
    background: str


OFF = Codes("", "39", "49")


@lru_cache(maxsize=4096)
def _change(now: Codes, codes: Codes, has_glyphs: bool) -> tuple[str, Codes]:
    """What leads from one style to another, and what is in force then: the color of a
    text may wait until there is something to see of it."""
    changes: list[str] = []
    if codes.attributes != now.attributes:
        changes = ["0", codes.attributes] if codes.attributes else ["0"]
        now = Codes(codes.attributes, *OFF[1:])
    if codes.background != now.background:
        changes.append(codes.background)
    seen = codes.attributes or has_glyphs
    if seen and codes.color != now.color:
        changes.append(codes.color)
    change = f"\x1b[{';'.join(changes)}m" if changes else ""
    return change, codes if seen else Codes(
        codes.attributes, now.color, codes.background
    )


_KNOWN: dict[tuple[int, ColorSystem], tuple[Style, Codes]] = {}
"""Of the styles that were sent, which are held here: an id is that of one style."""


def _codes(style: Style, system: ColorSystem) -> Codes:
    """By the id of the style: Rich hashes it in Python, and it is asked for each
    segment."""
    known = _KNOWN.get((id(style), system))
    if known is None:
        if len(_KNOWN) >= MOST_STYLES:
            _KNOWN.clear()
        colors = (style.color, True, OFF.color), (style.bgcolor, False, OFF.background)
        front, back = (
            ";".join(color.downgrade(system).get_ansi_codes(is_front)) if color else off
            for color, is_front, off in colors
        )
        attributes = Strip.render_ansi(style.without_color, system)
        known = _KNOWN[id(style), system] = style, Codes(attributes, front, back)
    return known[1]


class TextFilter(LineFilter):
    """Replaces texts that are not as they should be; others pass as they are."""

    def __init__(
        self, is_sound: Callable[[str], bool], change: Callable[[str], str]
    ) -> None:
        super().__init__()
        self._is_sound, self._change = is_sound, change

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        if self._is_sound("".join([segment.text for segment in segments])):
            return segments
        return [
            Segment(self._change(text), style, code) for text, style, code in segments
        ]


def in_ascii(text: str) -> str:
    """Similar characters where there are any, else question marks.

    >>> in_ascii("Shift+← 日…")
    'Shift+< ??~'
    """
    return "".join(
        c if c.isascii() else SIMILAR.get(c) or "?" * cell_len(c) for c in text
    )


def _plain(text: str) -> str:
    return "".join(c if is_printable(c) else INSTEAD * cell_len(c) for c in text)


DOOR, ASCII_DOOR = TextFilter(is_printable, _plain), TextFilter(str.isascii, in_ascii)
"""Dots for what a terminal would obey or hide, as many as its cells; and ASCII instead
of all else, also in what Textual draws."""
