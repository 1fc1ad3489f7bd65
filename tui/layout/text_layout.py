"""Columns of a table: texts of fixed width, and one column that takes the remaining
width. And the lines of a source, with the places that a key jumps to."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import Literal

import msgspec

from fusetui.text.cutting import clip
from fusetui.text.figures import Unit
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.model.columns import Trace

LONG_NS = 100_000_000_000  # starts in traces of this length have no room in ms
NEVER = 1_000_000  # cells that no screen has; for `from_width`


class ListColumn(msgspec.Struct, frozen=True):
    """`width` 0 takes the remaining width; `from_width` hides the column on narrower
    screens."""

    title: str
    width: int
    left: bool = False
    from_width: int = 0


def start_unit(trace: Trace) -> Unit:
    """The unit of the times at which slices begin, to the microsecond."""
    is_long = trace.end_ns - trace.begin_ns >= LONG_NS
    return Unit(1_000_000_000, "s", 6) if is_long else Unit(1_000_000, "ms", 3)


def shown(columns: Sequence[ListColumn], width: int) -> list[int]:
    """The indices of the columns that a screen of `width` cells shows."""
    return [n for n, column in enumerate(columns) if width >= column.from_width]


def titles(columns: Sequence[ListColumn], width: int) -> str:
    """The line of titles, `width` cells wide, after a blank."""
    texts = [column.title for column in columns]
    return " " + "".join(fit(columns, texts, width - 1))


def room(columns: Sequence[ListColumn], width: int) -> int:
    """The cells that are left for the column that takes the remaining width; at least
    8."""
    rest = width
    for index in shown(columns, width):
        if columns[index].width:
            rest -= columns[index].width + 1
    return max(8, rest)


def fit(columns: Sequence[ListColumn], texts: Sequence[str], width: int) -> list[str]:
    """The texts of the columns shown, padded or clipped, with a space between."""
    rest = room(columns, width)
    fitted = []
    for index in shown(columns, width):
        column = columns[index]
        if not column.width:
            fitted.append(clip(texts[index], rest).ljust(rest))
            continue
        text = clip(texts[index], column.width)
        is_left = column.left
        padded = text.ljust(column.width) if is_left else text.rjust(column.width)
        fitted.append(f"{padded} ")
    return fitted


FIGURE = lazy_pattern(r"(?<=\d) (?=(?:%|ns|us|ms|s|B|kB|MB|GB|TB)(?!\w))")
UNBROKEN_BLANK = "\u00a0"  # at which wrap breaks no line


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` cells, not counting backticks; words of ASCII are not
    broken."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and len(longer.replace("`", "")) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def sentence_lines(text: str, width: int) -> list[str]:
    """Lines of at most `width` characters; a figure and its unit stay together."""
    unbroken = FIGURE.sub(UNBROKEN_BLANK, text)
    lines = wrap(unbroken, max(1, width))
    return [line.replace(UNBROKEN_BLANK, " ") for line in lines]


Language = Literal["", "python", "cpp"]
Look = Literal["heading", "plain", "faint", "code"]


class ShownLine(msgspec.Struct, frozen=True):
    """A line of the overlay; `number` is that of a line of code, 0 for none."""

    text: str
    look: Look = "plain"
    language: Language = ""
    number: int = 0
    is_marked: bool = False


class SourceShown(msgspec.Struct, frozen=True, eq=False):
    """An overlay: the lines, and which of them begin a section."""

    title: str
    lines: tuple[ShownLine, ...]
    sections: tuple[int, ...]

    def next_section(self, line: int) -> int:
        """The line of the section after this line; the first after the last."""
        for section in self.sections:
            if section > line:
                return section
        return self.sections[0] if self.sections else 0
