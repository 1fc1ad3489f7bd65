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
from fusetui.tui.layout.text_layout import ListColumn, fit, shown, wrap_sentence


class Said(NamedTuple):
    """A line of text in one style."""

    text: str
    token: str = "faint"


MAX_LINES = 1000  # of sentences
# (width, height) -> lines
Make = Callable[[int, int], Sequence[Said | Sequence[Styled]]]


def cut(lines: Sequence[Said], height: int, ellipsis: str = ELLIPSIS) -> Sequence[Said]:
    """Return at most `height` lines. If some are left out, the last one ends with the
    ellipsis, in place of its last characters."""
    if len(lines) <= height or not height:
        return lines
    last_line = lines[height - 1]
    last_text = last_line.text
    if len(last_text) > len(ellipsis):
        last_text = last_text[: -len(ellipsis)]
    cut_line = Said(f"{last_text.rstrip()}{ellipsis}", last_line.token)
    return [*lines[: height - 1], cut_line]


def cut_lines_to_width(
    lines: Sequence[Said], width: int, height: int, ellipsis: str
) -> Sequence[Said]:
    """Return at most `height` lines. If some are left out, the last one ends with the
    ellipsis.

    The ellipsis is appended if the line then still fits in `width` cells. Otherwise it
    takes the place of the last characters.
    """
    if len(lines) <= height or not height:
        return lines
    last_line = lines[height - 1]
    last_text = last_line.text.rstrip()
    with_ellipsis = f"{last_text} {ellipsis}" if last_text else ellipsis
    return [
        *lines[: height - 1],
        Said(clip(with_ellipsis, width, ellipsis), last_line.token),
    ]


class Picture(Protocol):
    """A few lines of the screen, made from frozen data alone."""

    def key(self, y: int, width: int, height: int) -> Hashable:
        """Return a key that is equal for equal lines, so that unchanged lines are not
        drawn again. It is called for every line of every frame, so it must be fast."""

    def line(self, y: int, width: int, height: int) -> Sequence[Styled]:
        """Return the texts of line `y` from left to right, with their styles. The
        caller cuts or pads them to `width` cells. It is called when the key of the line
        has changed."""


class TextPicture:
    """Lines of one text or of several, made when they are first drawn; what does not
    fit is cut."""

    def __init__(self, identity: Hashable, make: Make) -> None:
        """Make a picture of text.

        `make(width, height)` returns its lines; it is called once for each size.
        Pictures with equal `identity` must have equal texts.
        """
        self._identity = identity
        self._make = cache(make)

    def key(self, y: int, width: int, height: int) -> Hashable:
        """Return a key for line `y`, which stays the same as long as the text and the
        size do."""
        return self._identity, y, width, height

    def line(self, y: int, width: int, height: int) -> Sequence[Styled]:
        """Return line `y` of the text with its style; nothing below the last line."""
        lines = self._make(width, height)
        if y >= len(lines):
            return ()
        line = lines[y]
        return [line] if isinstance(line, Said) else line


def text(lines: Sequence[Said | Sequence[Styled]]) -> TextPicture:
    """Make a picture of lines that are the same for any size of the screen."""
    return TextPicture(tuple(map(tuple, lines)), lambda width, height: lines)


def folded(
    texts: Iterable[str],
    width: int,
    token: str = "faint",
    before: str = "",
    most: int = MAX_LINES,
) -> list[Said]:
    """Wrap sentences into lines of `width` cells, each sentence on lines of its own.

    Args:
        texts: The sentences.
        width: The cells of a line, without `before`.
        token: The style of all lines.
        before: A text before each line, such as an indentation.
        most: The maximum number of lines; the last one shows if more were left out.
    """
    lines = []
    for text in texts:
        for line in wrap_sentence(text, width):
            lines.append(Said(f"{before}{line}", token))
    return [*cut(lines, most)]


def clip_lines(
    lines: Iterable[Said], width: int, height: int, ellipsis: str
) -> list[Said]:
    """Return at most `height` lines, each cut to `width` cells."""
    kept_lines = islice(lines, height)
    return [Said(clip(line.text, width, ellipsis), line.token) for line in kept_lines]


def make_ruled_picture(
    identity: Hashable, title: str, rule: str, make: Make
) -> TextPicture:
    """Make a picture with a horizontal rule above its lines.

    The rule contains the title, if that is not "". `make` returns the lines below it,
    for a given width and height.
    """

    def lines(width: int, height: int) -> Sequence[Said | Sequence[Styled]]:
        start = f"{rule * 3} {title} " if title else ""
        return [Said(start.ljust(width, rule)), *make(width, height - 1)]

    return TextPicture((identity, title, rule), lines)


class Stack:
    """A picture made of pictures, one below the other, each of its own height."""

    def __init__(self, pictures: Sequence[tuple[int, Picture]]) -> None:
        """Make a picture of pictures from top to bottom, given as (height, picture)."""
        self._lines: list[_LineOfStack] = []
        for picture_index, (height, picture) in enumerate(pictures):
            for y in range(height):
                self._lines.append(_LineOfStack(picture_index, picture, y, height))

    def key(self, y: int, width: int, height: int) -> Hashable:
        """Return the key of line `y`: that of the line of the picture drawn there, and
        the index of the picture."""
        if y >= len(self._lines):
            return None, width
        line = self._lines[y]
        return line.number, line.picture.key(line.y, width, line.height)

    def line(self, y: int, width: int, height: int) -> Sequence[Styled]:
        """Return line `y` from the picture drawn there; nothing below the last picture."""
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
    equal identity and index are equal. `are_counted`: the line of titles says which
    rows are in sight, unless all are."""

    identity: Hashable
    count: int
    titles: Callable[[int], str]  # of the columns, on a screen this many cells wide
    # (row, width) -> its texts, left to right
    format: Callable[[int, int], Sequence[Styled]]
    are_counted: bool = True


def style_row(
    columns: Sequence[ListColumn],
    texts: Sequence[str],
    width: int,
    token: str = "plain",
    last: str = "",
) -> list[Styled]:
    """Return the texts of a table row, fitted to their columns, with their styles.

    All have the style `token`. Columns without a title contain bars, and have the style
    of bars. If `last` is not "", it is the style of the last text.
    """
    parts: list[Styled] = []
    column_texts = fit(columns, texts, width)
    for index, text in zip(shown(columns, width), column_texts, strict=True):
        parts.append((text, token if columns[index].title else "busy"))
    if last:
        text, _ = parts[-1]
        parts[-1] = (text, last)
    return parts


def make_empty_list(sentence: str) -> Rows:
    """Return an empty list, which shows a sentence in place of its rows."""
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
        """Return everything that line `y` depends on, including whether the cursor is
        on it. Line 0 with the titles has the index -1."""
        if y == 0:
            return self.rows.identity, self._format_place(height), width
        index = y - 1 + self.top
        if self.rows.count and index >= self.rows.count:
            return None, width
        return self.rows.identity, index, index == self.cursor, width

    def line(self, y: int, width: int, height: int) -> Sequence[Styled]:
        """Return line `y` of a list: the titles on line 0, and rows below. A list
        without rows shows a sentence instead."""
        if not self.rows.count:
            return self._sentence(width)[y : y + 1]
        if y == 0:
            return self._titles(width, height)
        index = y - 1 + self.top
        if index >= self.rows.count:
            return ()
        texts = self.rows.format(index, width - 1)
        if index != self.cursor:
            return [(" ", "plain"), *texts]
        blanks = " " * width  # cut at the end of the line
        row = ((">", "strong"), *texts, (blanks, "plain"))
        return [(text, token + CURSOR) for text, token in row]

    def _titles(self, width: int, height: int) -> Sequence[Styled]:
        """Return the line of titles. Where rows are out of sight, it ends with the
        numbers of those that are in sight, for which the titles are cut."""
        place = self._format_place(height)
        titles_width = width - len(place) - 2 if place else width
        titles = self.rows.titles(width).rstrip()
        titles = clip(titles, max(0, titles_width), self.ellipsis)
        if not place:
            return [Said(titles, "title")]
        room = width - 1 - len(titles)
        return [Said(titles, "title"), (place.rjust(room), "faint")]

    def _format_place(self, height: int) -> str:
        """Return which rows are in sight in a list of `height` lines, such as `1-12 of
        54`; "" where all are, or where the list does not say so here."""
        visible_rows = height - 1
        count = self.rows.count
        if not self.rows.are_counted or visible_rows <= 0 or count <= visible_rows:
            return ""
        last = min(self.top + visible_rows, count)
        return f"{self.top + 1}-{last} of {count}"

    def _sentence(self, width: int) -> list[Said]:
        """Return the sentence that an empty list shows, on as many lines as it needs."""
        line = Said(self.rows.titles(width), "title")
        if cells(line.text) <= width:
            return [line]
        return folded([line.text.strip()], width - 2, "title", " ")

    def index_at(self, y: int) -> int:
        """Return the index of the row on line `y`, or -1 if there is none."""
        index = y - 1 + self.top
        return index if y > 0 and index < self.rows.count else -1


def scroll_to_cursor(cursor: int, top: int, room: int) -> int:
    """Return the first visible row of a list, so that the cursor is visible among
    `room` rows. It is as close to `top` as possible, so that the list moves little."""
    # with a larger first row the cursor is above the screen, with a smaller one below
    largest = cursor
    smallest = max(0, cursor - max(1, room) + 1)
    return max(smallest, min(top, largest))
