"""Plain tables for a terminal: aligned columns that fit the width, without borders.

A width is a number of cells; None is no limit. See also `Unseen`.
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
LEAST = 34  # minimum width of the last column, before other columns are dropped
CUT = "..."
READ = 96  # cells of a line of sentences, at most


class Unseen(int):
    """The width of a text that goes into a pipe or a file: lines are laid out for so
    many cells, but no name is cut to fit."""


class Column(msgspec.Struct, frozen=True):
    """`spare`: 0 if the column is never dropped; else it is dropped where space is
    short, the highest number first. `cell`: its text for a record of `table_of`."""

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
    most: int | None = None,
    least: int = LEAST,
) -> str:
    """The titles and the rows as lines of at most `most` cells. The last column is cut
    to fit, unless `most` is Unseen; the others never are.

    Spare columns are dropped if the last column would get fewer than `least` cells.
    """
    lines = [[column.title for column in columns], *rows]
    widths = [
        max(width(line[number]) for line in lines) for number in range(len(columns))
    ]
    shown = list(range(len(columns)))
    if most is not None:
        shown = _fitting_columns(columns, widths, most, least)
        if not isinstance(most, Unseen):
            last = shown[-1]
            widths[last] = min(widths[last], most - _cells_before_last(shown, widths))
            widths[last] = max(widths[last], 1)
    texts = []
    for line in lines:
        cells = []
        for number in shown:
            cell = clip(line[number], widths[number], CUT)
            cells.append(pad(cell, widths[number], columns[number].left))
        texts.append(GAP.join(cells).rstrip())
    return "\n".join(texts)


def _fitting_columns(
    columns: Sequence[Column], widths: Sequence[int], most: int, least: int
) -> list[int]:
    """The numbers of the columns that are shown: all but as many spare ones as have to
    be dropped until the last column gets `least` cells, or all that it needs."""
    shown = list(range(len(columns)))
    # sorted() keeps the order of columns that are equally spare
    for number in sorted(shown, key=lambda n: -columns[n].spare):
        last_cells = min(widths[shown[-1]], least)
        fits = _cells_before_last(shown, widths) + last_cells <= most
        if fits or columns[number].spare == 0:
            break
        shown.remove(number)
    return shown


def _cells_before_last(shown: Sequence[int], widths: Sequence[int]) -> int:
    return sum(widths[number] + len(GAP) for number in shown[:-1])


def table_of(
    columns: Sequence[Column],
    records: Iterable[object],
    most: int | None = None,
    least: int = LEAST,
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
        most,
        least,
    )


def first_of(
    columns: Sequence[Column],
    records: Sequence[object],
    top: int,
    most: int,
    noun: str,
    hint: str = TOP_ALL,
    least: int = LEAST,
    blank: str | None = None,
    share: str = "",
) -> str:
    """The `table_of` the first `top` records (0: all), and the line of `left_out` for
    the others, which have this `share`."""
    shown = records[:top] if top else records
    lines = [table_of(columns, shown, most, least, blank)]
    lines += left_out(len(records) - len(shown), noun, hint, share)
    return "\n".join(lines)


def folded(text: str, most: int, indent: str = "") -> list[str]:
    """A paragraph in lines that are read well, of at most `most` cells."""
    return wrap(text, min(most, READ), subsequent_indent=indent)


def time_or_blank(ns: int) -> str:
    """A cell that is blank for no time at all."""
    return duration(ns) if ns else ""


def count_or_blank(number: int) -> str:
    """A cell that is blank for none."""
    return count(number) if number else ""


def known(value: T | None, text: Callable[[T], str], otherwise: str = "-") -> str:
    """The text of a value, or what stands for None."""
    return otherwise if value is None else text(value)


def cut(line: str, most: int) -> str:
    """A line of at most `most` cells, unless `most` is Unseen."""
    return line if isinstance(most, Unseen) else clip(line, most, CUT)


def left_out(number: int, noun: str, hint: str, share: str = "") -> list[str]:
    """The line after a table: `... and 3 more names with 20 % (--top 0 shows all)`;
    none for 0."""
    if number <= 0:
        return []
    more = plural(number, f"more {noun}")
    if share:
        more += f" with {share}"
    return [f"... and {more} ({hint})"]
