"""Pictures: the content of each line, and a key that tells whether a line is still the
same."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cache
from itertools import islice
from typing import NamedTuple, Protocol

import msgspec

from fusetui.text.cutting import ELLIPSIS, clip
from fusetui.text.cutting import width as cells
from fusetui.tui.drawing.schemes import CURSOR, Styled
from fusetui.tui.layout.text_layout import ListColumn, fit, sentence_lines, shown


class Said(NamedTuple):
    """A line of text in one style."""

    text: str
    token: str = "faint"


MANY = 1000  # lines
# (width, height) -> lines
Make = Callable[[int, int], Sequence[Said | Sequence[Styled]]]


def cut(lines: Sequence[Said], height: int, ellipsis: str = ELLIPSIS) -> Sequence[Said]:
    """As many as there is room for; the last one shows that there are more."""
    if len(lines) <= height or not height:
        return lines
    text, token = lines[height - 1]
    text = text[: -len(ellipsis)] if len(text) > len(ellipsis) else text
    return [*lines[: height - 1], Said(f"{text.rstrip()}{ellipsis}", token)]


class Picture(Protocol):
    """A few lines of the screen, made from frozen data alone."""

    def key(self, y: int, width: int, height: int) -> Hashable:
        """Equal keys mean equal lines. Called for every line of every frame: it must be
        cheap."""

    def line(self, y: int, width: int, height: int) -> Sequence[Styled]:
        """The texts of a line from left to right, which is cut or filled with blanks to
        `width` cells; called when the key changed."""


class TextPicture:
    """Lines of one text or of several, made when they are first drawn; what does not
    fit is cut."""

    def __init__(self, identity: Hashable, make: Make) -> None:
        """`make(width, height)` returns the lines; equal identities mean equal
        texts."""
        self._identity, self._make = identity, cache(make)

    def key(self, y: int, width: int, height: int) -> Hashable:
        return self._identity, y, width, height

    def line(self, y: int, width: int, height: int) -> Sequence[Styled]:
        line = [*self._make(width, height)[y : y + 1], ()][0]
        return [line] if isinstance(line, Said) else line


def text(lines: Sequence[Said | Sequence[Styled]]) -> TextPicture:
    return TextPicture(tuple(map(tuple, lines)), lambda width, height: lines)


def folded(
    texts: Iterable[str],
    width: int,
    token: str = "faint",
    before: str = "",
    most: int = MANY,
) -> list[Said]:
    """Sentences, each on as many lines as it needs, `most` lines in all."""
    lines = (line for text in texts for line in sentence_lines(text, width))
    return [*cut([Said(f"{before}{line}", token) for line in lines], most)]


def clipped(
    lines: Iterable[Said], width: int, height: int, ellipsis: str
) -> list[Said]:
    """At most `height` lines, each in so many cells."""
    return [
        Said(clip(one.text, width, ellipsis), one.token)
        for one in islice(lines, height)
    ]


def ruled(identity: Hashable, title: str, rule: str, make: Make) -> TextPicture:
    """Lines below a rule, which may contain a title."""

    def lines(width: int, height: int) -> Sequence[Said | Sequence[Styled]]:
        start = f"{rule * 3} {title} " if title else ""
        return [Said(start.ljust(width, rule)), *make(width, height - 1)]

    return TextPicture((identity, title, rule), lines)


class Stack:
    """A picture made of pictures, one below the other, each of its own height."""

    def __init__(self, pictures: Sequence[tuple[int, Picture]]) -> None:
        """(height, picture) from top to bottom."""
        self._lines = [
            (number, picture, y, height)
            for number, (height, picture) in enumerate(pictures)
            for y in range(height)
        ]

    def key(self, y: int, width: int, height: int) -> Hashable:
        if y >= len(self._lines):
            return None, width
        number, picture, inner, own = self._lines[y]
        return number, picture.key(inner, width, own)

    def line(self, y: int, width: int, height: int) -> Sequence[Styled]:
        if y >= len(self._lines):
            return ()
        _, picture, inner, own = self._lines[y]
        return picture.line(inner, width, own)


class Rows(msgspec.Struct, frozen=True, eq=False):
    """A list of any length, of which only the rows in sight are formatted. Rows with
    equal identity and index are equal."""

    identity: Hashable
    count: int
    titles: Callable[[int], str]  # of the columns, on a screen this many cells wide
    # (row, width) -> its texts, left to right
    format: Callable[[int, int], Sequence[Styled]]


def row_parts(
    columns: Sequence[ListColumn],
    texts: Sequence[str],
    width: int,
    token: str = "plain",
    last: str = "",
) -> list[Styled]:
    """The texts of a row in their columns, bars where no title is; `last`: its last
    token."""
    found = zip(shown(columns, width), fit(columns, texts, width), strict=True)
    parts = [(text, token if columns[n].title else "busy") for n, text in found]
    return [*parts[:-1], (parts[-1][0], last)] if last else parts


def no_rows(sentence: str) -> Rows:
    return Rows(sentence, 0, lambda width: f" {sentence}", lambda index, width: ())


class ListPicture(msgspec.Struct, frozen=True, eq=False):
    """A line of titles, and rows from `top` on, one of which may have the cursor."""

    rows: Rows
    cursor: int
    top: int

    def key(self, y: int, width: int, height: int) -> Hashable:
        index = y - 1 + self.top if y else -1
        if self.rows.count and index >= self.rows.count:
            return None, width
        return self.rows.identity, index, index == self.cursor, width

    def line(self, y: int, width: int, height: int) -> Sequence[Styled]:
        index = y - 1 + self.top
        if not self.rows.count or y == 0:
            lines = [Said(self.rows.titles(width), "title")]
            if not self.rows.count and cells(lines[0].text) > width:  # a sentence
                lines = folded([lines[0].text.strip()], width - 2, "title", " ")
            return lines[y : y + 1]
        if index >= self.rows.count:
            return ()
        texts = self.rows.format(index, width - 1)
        if index != self.cursor:
            return [(" ", "plain"), *texts]
        row = ((">", "strong"), *texts, (" " * width, "plain"))
        return [(text, token + CURSOR) for text, token in row]

    def index_at(self, y: int) -> int:
        index = y - 1 + self.top
        return index if y > 0 and index < self.rows.count else -1


def scrolled(cursor: int, top: int, room: int) -> int:
    """The first row on the screen, as near to `top` as possible, with the cursor in
    sight."""
    return max(min(top, cursor), cursor - max(1, room) + 1, 0)
