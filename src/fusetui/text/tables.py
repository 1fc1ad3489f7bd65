"""Plain tables for a terminal: aligned columns that fit the width, without borders.

A width is a number of cells; None is no limit. See also `UncutWidth`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from textwrap import wrap
from typing import Any, TypeVar

import msgspec

from fusetui.text.cutting import clip, pad, width
from fusetui.text.figures import count, duration, plural

T = TypeVar("T")

GAP = "  "
TOP_ALL = "--top 0 shows all"
JSON_ALL = "--json has all"
MIN_LAST_COLUMN_CELLS = 34
"""Where it would get fewer, other columns are dropped."""
CUT = "..."
MAX_SENTENCE_CELLS = 96  # of a line


class UncutWidth(int):
    """The width of a text that goes into a pipe or a file: lines are laid out for so
    many cells, but no name is cut to fit."""


class Column(msgspec.Struct, frozen=True):
    """`spare`: 0 if the column is never dropped; else it is dropped where space is
    short, the highest number first. `cell`: its text for a record of `record_table`."""

    title: str
    left: bool = False
    spare: int = 0
    cell: Callable[[Any], str] = str


def times(**spares: int) -> list[Column]:
    """A column of times for each name: that of the field `{name}_ns`, titled with the
    name; the value is its `spare`."""

    def duration_of(name: str) -> Callable[[Any], str]:
        return lambda record: duration(getattr(record, f"{name}_ns"))

    return [
        Column(title=name, spare=spare, cell=duration_of(name))
        for name, spare in spares.items()
    ]


def table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    max_cells: int | None = None,
    min_last_cells: int = MIN_LAST_COLUMN_CELLS,
) -> str:
    """The titles and the rows as lines of at most `max_cells` cells. The last column is
    cut to fit, unless `max_cells` is an UncutWidth; the others never are.

    Spare columns are dropped if the last column would get fewer than `min_last_cells`
    cells.
    """
    titles = [column.title for column in columns]
    lines = [titles, *rows]
    widths = [
        max(width(line[number]) for line in lines) for number in range(len(columns))
    ]
    shown = list(range(len(columns)))
    if max_cells is not None:
        shown = _fitting_columns(columns, widths, max_cells, min_last_cells)
        if not isinstance(max_cells, UncutWidth):
            last = shown[-1]
            cells_left = max_cells - _cells_before_last(shown, widths)
            widths[last] = max(1, min(widths[last], cells_left))
    texts = []
    for line in lines:
        cells = []
        for number in shown:
            cell = clip(line[number], widths[number], CUT)
            cells.append(pad(cell, widths[number], columns[number].left))
        texts.append(GAP.join(cells).rstrip())
    return "\n".join(texts)


def _fitting_columns(
    columns: Sequence[Column],
    widths: Sequence[int],
    max_cells: int,
    min_last_cells: int,
) -> list[int]:
    """The numbers of the columns that are shown: all but as many spare ones as have to
    be dropped until the last column gets `min_last_cells` cells, or all that it needs."""
    shown = list(range(len(columns)))
    # sorted() keeps the order of columns that are equally spare
    for number in sorted(shown, key=lambda n: -columns[n].spare):
        last_cells = min(widths[shown[-1]], min_last_cells)
        fits = _cells_before_last(shown, widths) + last_cells <= max_cells
        if fits or columns[number].spare == 0:
            break
        shown.remove(number)
    return shown


def _cells_before_last(shown: Sequence[int], widths: Sequence[int]) -> int:
    return sum(widths[number] + len(GAP) for number in shown[:-1])


def record_table(
    columns: Sequence[Column],
    records: Iterable[object],
    max_cells: int | None = None,
    min_last_cells: int = MIN_LAST_COLUMN_CELLS,
    blank: str | None = None,
) -> str:
    """A `table` with a row for each record, without columns whose cells are `blank` in
    every row."""
    rows = [[column.cell(record) for column in columns] for record in records]
    kept = list(range(len(columns)))
    if blank is not None:
        kept = [n for n in kept if any(row[n] != blank for row in rows)]
    return table(
        [columns[n] for n in kept],
        [[row[n] for n in kept] for row in rows],
        max_cells,
        min_last_cells,
    )


def top_table(
    columns: Sequence[Column],
    records: Sequence[object],
    top: int,
    max_cells: int,
    noun: str,
    hint: str = TOP_ALL,
    min_last_cells: int = MIN_LAST_COLUMN_CELLS,
    blank: str | None = None,
    share: str = "",
) -> str:
    """The `record_table` of the first `top` records (0: all), and the `omitted_line`
    for the others, which have this `share`."""
    shown = records[:top] if top else records
    lines = [record_table(columns, shown, max_cells, min_last_cells, blank)]
    lines += omitted_line(len(records) - len(shown), noun, hint, share)
    return "\n".join(lines)


def wrapped_lines(text: str, max_cells: int, indent: str = "") -> list[str]:
    """A paragraph in lines that are read well, of at most `max_cells` cells."""
    return wrap(text, min(max_cells, MAX_SENTENCE_CELLS), subsequent_indent=indent)


def time_or_blank(ns: int) -> str:
    """A cell that is blank for no time at all."""
    return duration(ns) if ns else ""


def count_or_blank(number: int) -> str:
    """A cell that is blank for none."""
    return count(number) if number else ""


def text_or_dash(
    value: T | None, text: Callable[[T], str], otherwise: str = "-"
) -> str:
    """The text of a value, or what stands for None."""
    return otherwise if value is None else text(value)


def cut_line(line: str, max_cells: int) -> str:
    """A line of at most `max_cells` cells, unless `max_cells` is an UncutWidth."""
    return line if isinstance(max_cells, UncutWidth) else clip(line, max_cells, CUT)


def omitted_line(number: int, noun: str, hint: str, share: str = "") -> list[str]:
    """The line after a table: `... and 3 more names with 20 % (--top 0 shows all)`;
    none for 0. Without a hint nothing stands in parentheses."""
    if number <= 0:
        return []
    more = plural(number, f"more {noun}")
    if share:
        more += f" with {share}"
    return [f"... and {more} ({hint})" if hint else f"... and {more}"]
