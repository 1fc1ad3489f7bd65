"""Pictures: the content of each line, and a key that shows whether a line has
changed."""

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


MAX_LINES = 1000  # of sentences
# (width, height) -> lines
Make = Callable[[int, int], Sequence[Said | Sequence[Styled]]]


def cut(lines: Sequence[Said], height: int, ellipsis: str = ELLIPSIS) -> Sequence[Said]:
    """As many as there is room for; the last one shows that there are more."""
    if len(lines) <= height or not height:
        return lines
    last = lines[height - 1]
    text = last.text
    if len(text) > len(ellipsis):
        text = text[: -len(ellipsis)]
    cut_line = Said(f"{text.rstrip()}{ellipsis}", last.token)
    return [*lines[: height - 1], cut_line]


def cut_in(
    lines: Sequence[Said], width: int, height: int, ellipsis: str
) -> Sequence[Said]:
    """The same in so many cells: of the last line nothing is left out to show that
    there are more, if it has room for the ellipsis."""
    if len(lines) <= height or not height:
        return lines
    last = lines[height - 1]
    text = last.text.rstrip()
    longer = f"{text} {ellipsis}" if text else ellipsis
    return [*lines[: height - 1], Said(clip(longer, width, ellipsis), last.token)]


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
        self._identity = identity
        self._make = cache(make)

    def key(self, y: int, width: int, height: int) -> Hashable:
        return self._identity, y, width, height

    def line(self, y: int, width: int, height: int) -> Sequence[Styled]:
        """Line `y` of the text; empty below its end."""
        lines = self._make(width, height)
        if y >= len(lines):
            return ()
        line = lines[y]
        return [line] if isinstance(line, Said) else line


def text(lines: Sequence[Said | Sequence[Styled]]) -> TextPicture:
    """Lines that are the same whatever the size."""
    return TextPicture(tuple(map(tuple, lines)), lambda width, height: lines)


def folded(
    texts: Iterable[str],
    width: int,
    token: str = "faint",
    before: str = "",
    most: int = MAX_LINES,
) -> list[Said]:
    """Sentences, each on as many lines of `width` cells as it needs, after the text
    `before`; at most `most` lines in all."""
    lines = []
    for text in texts:
        for line in sentence_lines(text, width):
            lines.append(Said(f"{before}{line}", token))
    return [*cut(lines, most)]


def clipped(
    lines: Iterable[Said], width: int, height: int, ellipsis: str
) -> list[Said]:
    """At most `height` lines, each in so many cells."""
    shown = islice(lines, height)
    return [Said(clip(line.text, width, ellipsis), line.token) for line in shown]


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
        self._lines: list[_LineOfStack] = []
        for number, (height, picture) in enumerate(pictures):
            for y in range(height):
                self._lines.append(_LineOfStack(number, picture, y, height))

    def key(self, y: int, width: int, height: int) -> Hashable:
        """That of the line of the picture there, and the number of the picture."""
        if y >= len(self._lines):
            return None, width
        line = self._lines[y]
        return line.number, line.picture.key(line.y, width, line.height)

    def line(self, y: int, width: int, height: int) -> Sequence[Styled]:
        """The line of the picture there."""
        if y >= len(self._lines):
            return ()
        line = self._lines[y]
        return line.picture.line(line.y, width, line.height)


class _LineOfStack(NamedTuple):
    """A line of a stack: which of the pictures it is of, and where it is in it."""

    number: int
    picture: Picture
    y: int
    height: int  # of that picture


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
    """The texts of a row in their columns, in the style `token`; those of columns
    without a title are bars. `last`: the style of the last text, if it is another."""
    parts: list[Styled] = []
    fitted = fit(columns, texts, width)
    for index, text in zip(shown(columns, width), fitted, strict=True):
        parts.append((text, token if columns[index].title else "busy"))
    if last:
        text, _ = parts[-1]
        parts[-1] = (text, last)
    return parts


def no_rows(sentence: str) -> Rows:
    """A sentence instead of a list."""
    return Rows(
        identity=sentence,
        count=0,
        titles=lambda width: f" {sentence}",
        format=lambda index, width: (),
    )


class ListPicture(msgspec.Struct, frozen=True, eq=False):
    """A line of titles, and rows from `top` on, one of which may have the cursor."""

    rows: Rows
    cursor: int
    top: int
    ellipsis: str  # where the titles are cut

    def key(self, y: int, width: int, height: int) -> Hashable:
        """What a line depends on; index -1 is that of the titles."""
        index = y - 1 + self.top if y else -1
        if self.rows.count and index >= self.rows.count:
            return None, width
        return self.rows.identity, index, index == self.cursor, width

    def line(self, y: int, width: int, height: int) -> Sequence[Styled]:
        """The titles on line 0, the rows below; without rows a sentence."""
        if not self.rows.count:
            return self._sentence(width)[y : y + 1]
        if y == 0:
            titles = clip(self.rows.titles(width).rstrip(), width, self.ellipsis)
            return [Said(titles, "title")]
        index = y - 1 + self.top
        if index >= self.rows.count:
            return ()
        texts = self.rows.format(index, width - 1)
        if index != self.cursor:
            return [(" ", "plain"), *texts]
        blanks = " " * width  # cut at the end of the line
        row = ((">", "strong"), *texts, (blanks, "plain"))
        return [(text, token + CURSOR) for text, token in row]

    def _sentence(self, width: int) -> list[Said]:
        """What stands instead of rows, on as many lines as it needs."""
        line = Said(self.rows.titles(width), "title")
        if cells(line.text) <= width:
            return [line]
        return folded([line.text.strip()], width - 2, "title", " ")

    def index_at(self, y: int) -> int:
        """The row on a line; -1 for none."""
        index = y - 1 + self.top
        return index if y > 0 and index < self.rows.count else -1


def scrolled(cursor: int, top: int, room: int) -> int:
    """The first row on the screen, as near to `top` as possible, with the cursor in
    sight among `room` rows."""
    # with a larger first row the cursor is above the screen, with a smaller one below
    largest = cursor
    smallest = max(0, cursor - max(1, room) + 1)
    return max(smallest, min(top, largest))
