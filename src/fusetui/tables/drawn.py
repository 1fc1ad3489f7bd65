"""Draws a table as aligned text or HTML: times with units, and names cut to fit the
terminal."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from fusetui.tables.table import ColumnTable, TableColumn
from fusetui.text import tables as text_tables
from fusetui.text.cutting import middle_clip
from fusetui.text.figures import count, duration, percent, plural, significant
from fusetui.text.printable import printable
from fusetui.text.tables import TOP_ALL, UncutWidth, omitted_line

REPR_ROWS = 10
REPR_WIDTH = 100

DIGITS = 4
FIRST_TEXTS = ("file", "short")
"""Texts that stand before others."""

MAX_TEXT_CELLS = 40
"""Of a text that is not in the last column."""


def table_repr(table: ColumnTable) -> str:
    """Return the text of a table at the Python prompt: its size, and the first rows of
    its main columns."""
    shown = first_columns(table.top(REPR_ROWS))
    texts = [_describe_size(table), aligned_rows(shown, REPR_WIDTH)]
    omitted_rows = len(table) - len(shown)
    if omitted_rows > 0:
        texts.append(f"... and {plural(omitted_rows, 'more row')}")
    for sentence in table.left_out:
        texts.append(printable(sentence))
    return "\n".join(texts)


def _describe_size(table: ColumnTable) -> str:
    """Return the name of a table with its number of rows and columns: `kernels: 3 rows,
    12 columns`."""
    rows = plural(len(table), "row")
    columns = plural(len(table.columns), "column")
    return f"{table.name}: {rows}, {columns}"


def table_text(table: ColumnTable, most: int, width: int) -> str:
    """Lay out a table for a terminal.

    Args:
        table: The table.
        most: How many rows are shown; 0 shows all. A line at the end counts the others.
        width: How many cells a line of the terminal has.
    """
    if len(table) == 0:
        return f"no {table.name}"
    shows_all = most == 0
    shown = table if shows_all else table.top(most)
    omitted_rows = len(table) - len(shown)
    lines = [aligned_rows(shown, width), *omitted_line(omitted_rows, "row", TOP_ALL)]
    return "\n".join(lines)


def first_columns(table: ColumnTable) -> ColumnTable:
    """Return a table with only those columns that a person sees without asking: figures
    first, then texts."""
    chosen = [column for column in table.columns if column.name in table.first]
    chosen.sort(key=_column_sort_key)
    return table.select(column.name for column in chosen)


def _column_sort_key(column: TableColumn) -> tuple[bool, int]:
    """Return the sort key of a column: figures come before texts; among texts `file`
    and `short` come first."""
    is_text = column.kind == "text"
    if column.name in FIRST_TEXTS:
        return is_text, FIRST_TEXTS.index(column.name)
    return is_text, len(FIRST_TEXTS)


def aligned_rows(table: ColumnTable, width: int) -> str:
    """Lay out all rows of a table, below the names of its columns.

    If they do not fit, columns are dropped from the right, except those of
    `_kept_columns`, and the last column is cut.

    Args:
        table: The table.
        width: How many cells a line may have. If it is an UncutWidth (a pipe or a
            file), nothing is dropped or cut.
    """
    is_cut = not isinstance(width, UncutWidth)
    kept_numbers = _kept_columns(table)
    last_number = len(table.columns) - 1
    drawn_columns = []
    texts_of_columns = []
    for number, column in enumerate(table.columns):
        drawn_column = text_tables.Column(
            title=without_unit(column.name),
            left=column.kind == "text",
            # the farther to the right, the sooner it is dropped
            spare=0 if number in kept_numbers else number,
        )
        max_cells = MAX_TEXT_CELLS if is_cut and number != last_number else None
        drawn_columns.append(drawn_column)
        texts_of_columns.append(value_texts(column, max_cells))
    rows = list(zip(*texts_of_columns, strict=True))
    return text_tables.table(drawn_columns, rows, width if is_cut else None)


def _kept_columns(table: ColumnTable) -> set[int]:
    """Return the numbers of the columns that are never dropped.

    They are the first column and the first text; if that is the file, also the second
    text.
    """
    text_columns = [
        number for number, column in enumerate(table.columns) if column.kind == "text"
    ]
    starts_with_file = bool(text_columns) and table.names[text_columns[0]] == "file"
    kept_texts = 2 if starts_with_file else 1
    return {0, *text_columns[:kept_texts]}


def without_unit(name: str) -> str:
    """Return the title of a column whose values are shown with their unit: `total` for
    `total_ns`."""
    return name.removesuffix("_ns")


def value_texts(column: TableColumn, most: int | None = None) -> list[str]:
    """Return the values of a column as people read them; "" for a row without one.

    1_204_000 in the column `total_ns` is "1.204 ms", in `count` it is "1,204,000".

    Args:
        column: The column.
        most: How many cells a text may take; None for any number.
    """
    return [_format_value(column, value, most) for value in column.to_list()]


def _format_value(column: TableColumn, value: object, most: int | None) -> str:
    """Write one value as people read it: "" for None, yes or no, a time with its unit,
    a share in percent. Texts are cut to `most` cells, if that is not None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        is_time = column.name.endswith("_ns")
        return duration(value) if is_time else count(value)
    if isinstance(value, float):
        is_share = column.name.startswith("share")
        return percent(value, 1) if is_share else significant(value, DIGITS)
    text = printable(str(value))
    return text if most is None else middle_clip(text, most)


def table_html(table: ColumnTable, most: int = REPR_ROWS) -> str:
    """Lay out a table as HTML, for notebooks.

    It has the first rows of the columns that a person sees without asking. There are no
    scripts, and whatever a name holds is text.

    Args:
        table: The table.
        most: How many rows are shown.
    """
    shown = first_columns(table.top(most))
    sides = ["left" if column.kind == "text" else "right" for column in shown.columns]
    titles = [without_unit(name) for name in shown.names]
    texts_of_columns = [value_texts(column) for column in shown.columns]
    caption = _escape_html(_describe_size(table))
    head = _html_row("th", titles, sides)
    body = ""
    for row in zip(*texts_of_columns, strict=True):
        body += _html_row("td", row, sides)
    below = ""
    for sentence in table.left_out:
        below += f"<p>{_escape_html(sentence)}</p>"
    return (
        f"<table><caption>{caption}</caption>"
        f"<thead>{head}</thead>"
        f"<tbody>{body}</tbody></table>{below}"
    )


def _html_row(tag: str, values: Sequence[str], sides: Sequence[str]) -> str:
    """Return a row of an HTML table. `tag` is `th` or `td`; `sides` has the alignment
    of each cell, left or right."""
    cells = ""
    for side, value in zip(sides, values, strict=True):
        text = _escape_html(value)
        cells += f'<{tag} style="text-align: {side}">{text}</{tag}>'
    return f"<tr>{cells}</tr>"


def _escape_html(text: str) -> str:
    """Escape everything in a text that a terminal or HTML would interpret."""
    return escape(printable(text))
