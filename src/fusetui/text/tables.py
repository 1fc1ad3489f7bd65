"""Plain tables for a terminal: aligned columns that fit the width, without borders.

A width is a number of cells; None is no limit. See also `UncutWidth`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
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
    """A column of a printed table."""

    title: str
    left: bool = False  # aligned left, as texts are; figures are aligned right
    spare: int = 0
    """If not 0, the column is dropped where space is short, the highest number first."""
    cell: Callable[[Any], str] = str
    """Makes its text of a record of `record_table`."""


def times(**spares: int) -> list[Column]:
    """Make columns of times.

    `times(total=0, median=2)` makes the columns `total` and `median`, which show the
    fields `total_ns` and `median_ns` of a record. The numbers are their `spare`.
    """

    columns = []
    for name, spare in spares.items():
        cell = partial(_duration_of_field, f"{name}_ns")
        columns.append(Column(title=name, spare=spare, cell=cell))
    return columns


def _duration_of_field(field: str, record: object) -> str:
    """Return the text of a time of a record; the field has it in ns."""
    return duration(getattr(record, field))


def table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    max_cells: int | None = None,
    min_last_cells: int = MIN_LAST_COLUMN_CELLS,
) -> str:
    """Lay out a table as text: a line of titles, and a line for each row.

        total     name
        1.204 ms  ampere_sgemm_128x64_tn
        812 us    vectorized_elementwi...

    Args:
        columns: The columns; at least one.
        rows: The cells of each row, as texts.
        max_cells: How wide a line may be; None for any width. Only the last column is
            cut to fit, and not even that if it is an UncutWidth.
        min_last_cells: Spare columns are dropped as long as the last column would get
            fewer cells than this, and fewer than it needs.
    """
    titles = [column.title for column in columns]
    lines: list[Sequence[str]] = [titles, *rows]
    width_of_column = [max(map(width, texts)) for texts in zip(*lines, strict=True)]
    shown_columns = list(range(len(columns)))
    if max_cells is not None:
        shown_columns = _fitting_columns(
            columns, width_of_column, max_cells, min_last_cells
        )
    if max_cells is not None and not isinstance(max_cells, UncutWidth):
        last = shown_columns[-1]
        cells_left = max_cells - _cells_before_last(shown_columns, width_of_column)
        width_of_column[last] = max(1, min(width_of_column[last], cells_left))

    aligned_lines = []
    for line in lines:
        cells = []
        for number in shown_columns:
            cell = clip(line[number], width_of_column[number], CUT)
            is_left = columns[number].left
            cells.append(pad(cell, width_of_column[number], is_left))
        aligned_lines.append(GAP.join(cells).rstrip())
    return "\n".join(aligned_lines)


def _fitting_columns(
    columns: Sequence[Column],
    widths: Sequence[int],
    max_cells: int,
    min_last_cells: int,
) -> list[int]:
    """Choose the columns of a table that are shown, by their numbers.

    Spare columns are dropped, the highest `spare` first, until the last column gets
    `min_last_cells` cells, or all that it needs.

    Args:
        columns: The columns.
        widths: How many cells each needs.
        max_cells: How wide a line may be.
        min_last_cells: How many cells the last column should get.
    """
    shown = list(range(len(columns)))
    spare_first = sorted(shown, key=lambda number: columns[number].spare, reverse=True)
    for number in spare_first:
        last_cells = min(widths[shown[-1]], min_last_cells)
        fits = _cells_before_last(shown, widths) + last_cells <= max_cells
        is_spare = columns[number].spare > 0
        if fits or not is_spare:
            break
        shown.remove(number)
    return shown


def _cells_before_last(shown: Sequence[int], widths: Sequence[int]) -> int:
    """Count how many cells of a line the shown columns take before the last one, gaps
    included."""
    return sum(widths[number] + len(GAP) for number in shown[:-1])


def record_table(
    columns: Sequence[Column],
    records: Iterable[object],
    max_cells: int | None = None,
    min_last_cells: int = MIN_LAST_COLUMN_CELLS,
    blank: str | None = None,
) -> str:
    """Lay out a `table` with a row for each record.

    Args:
        columns: The columns, whose `cell` makes a text of a record.
        records: The records.
        max_cells: As for `table`.
        min_last_cells: As for `table`.
        blank: A column is left out if all of its cells are this text.
    """
    all_records = list(records)
    shown_columns = []
    texts_of_columns = []
    for column in columns:
        texts = [column.cell(record) for record in all_records]
        is_blank = blank is not None and all(text == blank for text in texts)
        if not is_blank:
            shown_columns.append(column)
            texts_of_columns.append(texts)
    rows = list(zip(*texts_of_columns, strict=True))
    return table(shown_columns, rows, max_cells, min_last_cells)


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
    """Lay out the first records as a table, with a line that counts the others.

    Args:
        columns: As for `record_table`.
        records: All records.
        top: How many are shown; 0 shows all.
        max_cells: As for `table`.
        noun: What a record is, for `omitted_line`: "name".
        hint: How to see all, for `omitted_line`.
        min_last_cells: As for `table`.
        blank: As for `record_table`.
        share: How much the others are together, for `omitted_line`: "20 %".
    """
    shows_all = top == 0
    shown = records if shows_all else records[:top]
    omitted = len(records) - len(shown)
    lines = [record_table(columns, shown, max_cells, min_last_cells, blank)]
    lines += omitted_line(omitted, noun, hint, share)
    return "\n".join(lines)


def wrapped_lines(text: str, max_cells: int, indent: str = "") -> list[str]:
    """Break a paragraph into lines of at most `max_cells` cells, and of no more than
    MAX_SENTENCE_CELLS, as longer ones are hard to read.

    Args:
        text: The paragraph.
        max_cells: How wide a line may be.
        indent: Stands before each line but the first.
    """
    line_cells = min(max_cells, MAX_SENTENCE_CELLS)
    return wrap(text, line_cells, subsequent_indent=indent)


def time_or_blank(ns: int) -> str:
    """Return the text of a time in ns; "" for 0."""
    return duration(ns) if ns else ""


def count_or_blank(number: int) -> str:
    """Return the text of a number; "" for 0."""
    return count(number) if number else ""


def text_or_dash(
    value: T | None, text: Callable[[T], str], otherwise: str = "-"
) -> str:
    """Return the text of a value; what stands for nothing, if it is None.

    `text_or_dash(None, duration)` is "-", `text_or_dash(512, duration)` is "512 ns".
    """
    return otherwise if value is None else text(value)


def cut_line(line: str, max_cells: int) -> str:
    """Cut a line to `max_cells` cells; not if that is an UncutWidth."""
    return line if isinstance(max_cells, UncutWidth) else clip(line, max_cells, CUT)


def omitted_line(number: int, noun: str, hint: str, share: str = "") -> list[str]:
    """Return the line below a table that counts what it does not show; none for 0.

    >>> omitted_line(3, "name", "--top 0 shows all", share="20 %")
    ['... and 3 more names with 20 % (--top 0 shows all)']
    >>> omitted_line(1, "name", hint=""), omitted_line(0, "name", hint="")
    (['... and 1 more name'], [])
    """
    if number <= 0:
        return []
    line = f"... and {plural(number, f'more {noun}')}"
    if share:
        line += f" with {share}"
    if hint:
        line += f" ({hint})"
    return [line]
