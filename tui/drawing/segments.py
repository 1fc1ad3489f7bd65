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
        """Make a line from its segments. `cell_length` is its width in cells, if that
        is known."""
        super().__init__(segments, cell_length)
        self._sent: str | None = None

    def render(self, console: Console) -> str:
        """Return the text of the line with the escape sequences for its colors. The
        result is cached, because an app has only one console."""
        if self._sent is None:
            color_system = COLOR_SYSTEMS.get(console.color_system or "")
            if color_system is None:
                self._sent = super().render(console)
            else:
                self._sent = write_sequences(self, color_system)
        return self._sent


def painted(
    parts: Sequence[Styled], width: int, styles: Mapping[str, Style]
) -> ShortStrip:
    """Return a line of the screen, made of texts with their styles.

    It is cut or padded on the right to `width` cells. Characters that are not printable
    are replaced, so that no text can control the terminal. `styles` maps the name of
    each style to its colors.
    """
    line_text = "".join([text for text, _ in parts])
    if not is_printable(line_text):
        parts = [(printable(text), token) for text, token in parts]
        line_text = "".join([text for text, _ in parts])
    text_cells = len(line_text) if IN_CELLS(line_text) else cell_len(line_text)
    if text_cells < width:
        parts = (*parts, (" " * (width - text_cells), "plain"))
    segments = _merge_segments(parts, styles)
    if text_cells > width:
        return ShortStrip(Strip(segments, text_cells).crop(0, width), width)
    return ShortStrip(segments, width)


def _merge_segments(
    parts: Sequence[Styled], styles: Mapping[str, Style]
) -> list[Segment]:
    """Return the segments of a line, with neighbors of one style merged.

    Blanks look the same in any text color, so blanks are merged into the segment before
    them if both have the same background. Fewer changes of style make the output
    shorter.
    """
    segments: list[Segment] = []
    texts: list[str] = []  # of the present style
    style: Style | None = None
    for text, token in parts:
        part_style = styles[token]
        if part_style is not style and text:
            if style is None:
                style = part_style
            elif not text.isspace() or part_style.bgcolor != style.bgcolor:
                # the style changes: what came before it is complete
                segments.append(_new(Segment, ("".join(texts), style, None)))
                style = part_style
                texts = []
        texts.append(text)
    last_style = style or styles["plain"]
    segments.append(_new(Segment, ("".join(texts), last_style, None)))
    return segments


def apply_filters(
    strip: ShortStrip, filters: Iterable[LineFilter], background: Color
) -> ShortStrip:
    """Return a line after applying the filters of Textual.

    ANSIToTruecolor is skipped: the lines of this app have true colors only. If nothing
    remains to be done, the line itself is returned, so that its cached output is used.
    """
    original = list(strip)
    segments = original
    for line_filter in filters:
        if not isinstance(line_filter, ANSIToTruecolor):
            segments = line_filter.apply(segments, background)
    return strip if segments is original else ShortStrip(segments, strip.cell_length)


def write_sequences(strip: Iterable[Segment], system: ColorSystem) -> str:
    """Return the text of a line with the escape sequences (SGR, ECMA-48) that set its
    colors.

    Only changes from one style to the next are written, and all is reset at the end.
    `system` tells how many colors the terminal supports.
    """
    parts: list[str] = []
    active_codes = OFF
    for text, style, _ in strip:
        codes = _look_up_codes(style, system) if style is not None else OFF
        if codes is not active_codes:
            change, active_codes = _change(active_codes, codes, not text.isspace())
            parts.append(change)
        parts.append(text)
    if active_codes != OFF:
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
    """Return the escape sequence that leads from one style to another, and the codes in
    force after it.

    `now` are the codes in force before. `has_glyphs` is False for a text of blanks: its
    color cannot be seen, so the change of color is left to a later text.
    """
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


def _look_up_codes(style: Style, system: ColorSystem) -> Codes:
    """Return the escape codes of a style for a terminal with a given number of colors.

    They are cached by the id of the style. Each segment needs a look-up, and the hash
    of a Rich style is slow to compute. The cache holds the style too, so that its id is
    not reused. It is emptied when it has MAX_STYLES entries.
    """
    cached = _CODES.get((id(style), system))
    if cached is None:
        if len(_CODES) >= MAX_STYLES:
            _CODES.clear()
        codes = Codes(
            attributes=Strip.render_ansi(style.without_color, system),
            color=_format_color(style.color, system, is_front=True),
            background=_format_color(style.bgcolor, system, is_front=False),
        )
        cached = _CODES[id(style), system] = style, codes
    return cached[1]


def _format_color(color: RichColor | None, system: ColorSystem, is_front: bool) -> str:
    """Return the escape codes of a text color (`is_front`) or a background color. None
    stands for the default color of the terminal."""
    if color is None:
        return OFF.color if is_front else OFF.background
    return ";".join(color.downgrade(system).get_ansi_codes(is_front))


class TextFilter(LineFilter):
    """Replaces texts that are not as they should be; others pass as they are."""

    def __init__(
        self, is_sound: Callable[[str], bool], change: Callable[[str], str]
    ) -> None:
        """Make a filter for the texts of Textual's widgets.

        `is_sound` tells whether a text may be shown as it is; `change` replaces any
        other text.
        """
        super().__init__()
        self._is_sound = is_sound
        self._change = change

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments of a line with unsuitable texts replaced. All segments
        are returned unchanged if their texts are suitable, which is the common case."""
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


def _replace_unprintable(text: str) -> str:
    """Replace each character that is not printable by dots, one for each of its cells,
    so that the width of the text stays the same."""
    characters = []
    for character in text:
        if is_printable(character):
            characters.append(character)
        else:
            characters.append(INSTEAD * cell_len(character))
    return "".join(characters)


DOOR = TextFilter(is_printable, _replace_unprintable)
"""Dots for what a terminal would obey or hide, as many as its cells."""
ASCII_DOOR = TextFilter(str.isascii, in_ascii)
"""ASCII instead of all else, also in what Textual draws."""
