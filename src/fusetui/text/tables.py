"""Plain tables for a terminal: aligned columns that fit the width, without borders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from textwrap import wrap
from typing import Any, TypeVar

import msgspec

from fusetui.text.cutting import clip, pad, width
from fusetui.text.figures import count, duration, plural

T = TypeVar("T")

GAP = "  "
TOP_ALL, JSON_ALL = "--top 0 shows all", "--json has all"
LEAST = 34  # minimum width of the last column, before other columns are dropped
CUT = "..."
READ = 96  # cells of a line of sentences, at most


class Unseen(int):
    """The width of a text that goes into a pipe or a file: lines are laid out for so
    many cells, but no name is cut to fit."""


class Column(msgspec.Struct, frozen=True):
    """`spare`: dropped where space is short; the highest number goes first. `cell`: its
    text for a record of `table_of`."""

    title: str
    left: bool = False
    spare: int = 0
    cell: Callable[[Any], str] = str


def times(**spares: int) -> list[Column]:
    """Columns of times, from the fields of their names with `_ns`, and when each is
    dropped."""

    def cell(name: str) -> Callable[[Any], str]:
        return lambda record: duration(getattr(record, f"{name}_ns"))

    return [Column(name, False, spare, cell(name)) for name, spare in spares.items()]


def table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    most: int | None = None,
    least: int = LEAST,
) -> str:
    """Lines of at most `most` cells: the last column is cut to fit if anybody sees it,
    the others never are.

    With None there is no limit. Spare columns are dropped if the last column would get
    fewer than `least` cells.
    """
    lines = [[column.title for column in columns], *rows]
    natural = [max(width(line[n]) for line in lines) for n in range(len(columns))]
    shown = list(range(len(columns)))
    if most is not None:
        for number in sorted(shown, key=lambda n: -columns[n].spare):
            needed = sum(natural[n] + len(GAP) for n in shown[:-1]) + min(
                natural[shown[-1]], least
            )
            if not columns[number].spare or needed <= most:
                break
            shown.remove(number)
        if not isinstance(most, Unseen):
            rest = most - sum(natural[n] + len(GAP) for n in shown[:-1])
            natural[shown[-1]] = max(1, min(natural[shown[-1]], rest))
    cells = (
        [
            pad(clip(line[n], natural[n], CUT), natural[n], columns[n].left)
            for n in shown
        ]
        for line in lines
    )
    return "\n".join(GAP.join(line).rstrip() for line in cells)


def table_of(
    columns: Sequence[Column],
    records: Iterable[object],
    most: int | None = None,
    least: int = LEAST,
    blank: str | None = None,
) -> str:
    """A table with a row for each record, without columns that are `blank` in every
    row."""
    rows = [[column.cell(record) for column in columns] for record in records]
    kept = [
        n
        for n in range(len(columns))
        if blank is None or any(row[n] != blank for row in rows)
    ]
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
    """The table of the first `top` records (0: all), and how many are left out, with
    what share."""
    shown = records[:top] if top else records
    more = left_out(len(records) - len(shown), noun, hint, share)
    return "\n".join([table_of(columns, shown, most, least, blank), *more])


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
    """A line of at most `most` cells, if anybody sees it."""
    return line if isinstance(most, Unseen) else clip(line, most, CUT)


def left_out(number: int, noun: str, hint: str, share: str = "") -> list[str]:
    """The line after a table: `... and 3 more names with 20 % (--top 0 shows all)`;
    none for 0."""
    more = plural(number, f"more {noun}") + (f" with {share}" if share else "")
    return [f"... and {more} ({hint})"] if number > 0 else []
