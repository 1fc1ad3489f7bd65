"""The only place that creates segments and strips, so that all text reaches the
terminal through it: our own lines by `painted`, and those of Textual's widgets by the
filter `DOOR`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from rich.cells import cell_len
from rich.color import Color as RichColor
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
MAX_STYLES = 4096  # whose codes are kept
IN_CELLS = lazy_pattern("[ -~\\xa0-\\u02ff…‹\\u2500-\\u25f7]*").fullmatch
"""Whether a text consists of characters known to take one cell each: the most of what
is drawn."""
_new: Callable[[type[Segment], tuple[str, Style | None, None]], Segment] = tuple.__new__
"""Makes a segment without the function of Python behind Segment(...): a frame has a
thousand."""
SIMILAR = {
    **dict(zip(UNICODE.levels[1:], ASCII.levels[1:], strict=True)),
    **dict.fromkeys("─━▔", "-"),
    **dict.fromkeys("│┃▏▎▊", "|"),
    **dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╰╯", "+"),
    "←": "<",
    "→": ">",
    "↑": "^",
    "↓": "v",
    "‹": "<",
    "›": ">",
    "▸": "+",
    "▾": "-",
    "·": ".",
    "…": "~",
    "×": "x",
    "■": "#",
    "◆": "*",
    "•": "*",
}
"""ASCII characters of one cell for others of one cell."""


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
    cells = len(whole) if IN_CELLS(whole) else cell_len(whole)
    if cells < width:
        parts = (*parts, (" " * (width - cells), "plain"))
    segments = _segments(parts, styles)
    if cells > width:
        return ShortStrip(Strip(segments, cells).crop(0, width), width)
    return ShortStrip(segments, width)


def _segments(parts: Sequence[Styled], styles: Mapping[str, Style]) -> list[Segment]:
    """The texts of a line, neighbors of one style together. A blank takes the style
    before it where it looks the same: where both have one background."""
    segments: list[Segment] = []
    texts: list[str] = []  # of the present style
    style: Style | None = None
    for text, token in parts:
        own = styles[token]
        if own is not style and text:
            if style is None:
                style = own
            elif not text.isspace() or own.bgcolor != style.bgcolor:
                segments.append(_new(Segment, ("".join(texts), style, None)))
                style = own
                texts = []
        texts.append(text)
    last_style = style or styles["plain"]
    segments.append(_new(Segment, ("".join(texts), last_style, None)))
    return segments


def filtered(
    strip: ShortStrip, filters: Iterable[LineFilter], background: Color
) -> ShortStrip:
    """A line that passed filters; one has nothing to do, as all our colors are true
    colors."""
    drawn = list(strip)
    segments = drawn
    for line_filter in filters:
        if not isinstance(line_filter, ANSIToTruecolor):
            segments = line_filter.apply(segments, background)
    return strip if segments is drawn else ShortStrip(segments, strip.cell_length)


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


class Change(NamedTuple):
    """What leads from one style to another, and what is in force then."""

    sequence: str
    codes: Codes


@lru_cache(maxsize=4096)
def _change(now: Codes, codes: Codes, has_glyphs: bool) -> Change:
    """The change from one style to another, for a text with or without glyphs: the
    color of a text may wait until there is something to see of it."""
    changes: list[str] = []
    if codes.attributes != now.attributes:
        changes.append("0")  # turns off everything
        if codes.attributes:
            changes.append(codes.attributes)
        now = Codes(codes.attributes, OFF.color, OFF.background)
    if codes.background != now.background:
        changes.append(codes.background)
    is_color_seen = codes.attributes or has_glyphs
    if is_color_seen and codes.color != now.color:
        changes.append(codes.color)
    sequence = f"\x1b[{';'.join(changes)}m" if changes else ""
    if is_color_seen:
        return Change(sequence, codes)
    return Change(sequence, Codes(codes.attributes, now.color, codes.background))


_CODES: dict[tuple[int, ColorSystem], tuple[Style, Codes]] = {}
"""The codes of the styles that were sent, by the id of a style. The styles are held
here too, so that an id stays that of one style."""


def _codes(style: Style, system: ColorSystem) -> Codes:
    """The codes of a style. Kept by the id of the style: Rich hashes it in Python, and
    it is asked for each segment."""
    known = _CODES.get((id(style), system))
    if known is None:
        if len(_CODES) >= MAX_STYLES:
            _CODES.clear()
        codes = Codes(
            attributes=Strip.render_ansi(style.without_color, system),
            color=_color_codes(style.color, system, is_front=True),
            background=_color_codes(style.bgcolor, system, is_front=False),
        )
        known = _CODES[id(style), system] = style, codes
    return known[1]


def _color_codes(color: RichColor | None, system: ColorSystem, is_front: bool) -> str:
    """The parameters of SGR for a color of texts, or of what is behind them."""
    if color is None:
        return OFF.color if is_front else OFF.background
    return ";".join(color.downgrade(system).get_ansi_codes(is_front))


class TextFilter(LineFilter):
    """Replaces texts that are not as they should be; others pass as they are."""

    def __init__(
        self, is_sound: Callable[[str], bool], change: Callable[[str], str]
    ) -> None:
        """`is_sound`: whether a text is as it should be; `change` makes it so."""
        super().__init__()
        self._is_sound = is_sound
        self._change = change

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The segments of a line, changed if any of its texts needs it."""
        if self._is_sound("".join([segment.text for segment in segments])):
            return segments
        changed = []
        for text, style, control in segments:
            changed.append(Segment(self._change(text), style, control))
        return changed


def in_ascii(text: str) -> str:
    """Similar characters where there are any, else question marks.

    >>> in_ascii("Shift+← 日…")
    'Shift+< ??~'
    """
    characters = []
    for character in text:
        if character.isascii():
            characters.append(character)
        elif character in SIMILAR:
            characters.append(SIMILAR[character])
        else:
            characters.append("?" * cell_len(character))
    return "".join(characters)


def _plain(text: str) -> str:
    """Dots for characters that are not printable, as many as their cells."""
    characters = []
    for character in text:
        if is_printable(character):
            characters.append(character)
        else:
            characters.append(INSTEAD * cell_len(character))
    return "".join(characters)


DOOR = TextFilter(is_printable, _plain)
"""Dots for what a terminal would obey or hide, as many as its cells."""
ASCII_DOOR = TextFilter(str.isascii, in_ascii)
"""ASCII instead of all else, also in what Textual draws."""
