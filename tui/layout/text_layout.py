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


def choose_start_unit(trace: Trace) -> Unit:
    """Return the unit for the times at which slices begin. It is ms to the microsecond,
    or s in a trace so long that ms would not fit in their column."""
    is_long = trace.end_ns - trace.begin_ns >= LONG_NS
    return Unit(1_000_000_000, "s", 6) if is_long else Unit(1_000_000, "ms", 3)


def shown(columns: Sequence[ListColumn], width: int) -> list[int]:
    """Return the indices of the columns that fit on a screen of `width` cells."""
    return [index for index, column in enumerate(columns) if width >= column.from_width]


def titles(columns: Sequence[ListColumn], width: int) -> str:
    """Return the line with the titles of the columns, `width` cells wide."""
    texts = [column.title for column in columns]
    return " " + "".join(fit(columns, texts, width - 1))


def room(columns: Sequence[ListColumn], width: int) -> int:
    """Return the cells left for the column without a fixed width; at least 8."""
    free_cells = width
    for index in shown(columns, width):
        if columns[index].width:
            free_cells -= columns[index].width + 1
    return max(8, free_cells)


def fit(columns: Sequence[ListColumn], texts: Sequence[str], width: int) -> list[str]:
    """Return the texts of the visible columns, each padded or cut to the width of its
    column.

    A column of width 0 takes the remaining cells. Other columns are followed by a
    blank.
    """
    free_cells = room(columns, width)
    fitted_texts = []
    for index in shown(columns, width):
        column = columns[index]
        if not column.width:
            fitted_texts.append(clip(texts[index], free_cells).ljust(free_cells))
            continue
        text = clip(texts[index], column.width)
        is_left = column.left
        padded = text.ljust(column.width) if is_left else text.rjust(column.width)
        fitted_texts.append(f"{padded} ")
    return fitted_texts


FIGURE = lazy_pattern(r"(?<=\d) (?=(?:%|ns|us|ms|s|B|kB|MB|GB|TB)(?!\w))")
UNBROKEN_BLANK = "\u00a0"  # at which wrap breaks no line


def wrap_marked_text(text: str, width: int) -> list[str]:
    """Wrap a text into lines of at most `width` cells.

    Backticks are not counted, because they only mark words to emphasize. A word that is
    longer than a line is not broken.
    """
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and len(longer.replace("`", "")) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def wrap_sentence(text: str, width: int) -> list[str]:
    """Wrap a sentence into lines of at most `width` characters. A number and its unit,
    such as `12 ms`, stay on one line."""
    # wrap breaks lines at ordinary blanks only
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
        """Return the line where the next section after `line` begins. After the last
        section it is the first one; without sections it is line 0."""
        for section in self.sections:
            if section > line:
                return section
        return self.sections[0] if self.sections else 0
