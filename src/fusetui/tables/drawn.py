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
    """Its size, and the first rows of the columns that a person sees first."""
    shown = first_columns(table.top(REPR_ROWS))
    texts = [_head(table), aligned_rows(shown, REPR_WIDTH)]
    rest = len(table) - REPR_ROWS
    if rest > 0:
        texts.append(f"... and {plural(rest, 'more row')}")
    texts += [printable(sentence) for sentence in table.left_out]
    return "\n".join(texts)


def _head(table: ColumnTable) -> str:
    rows = plural(len(table), "row")
    columns = plural(len(table.columns), "column")
    return f"{table.name}: {rows}, {columns}"


def table_text(table: ColumnTable, most: int, width: int) -> str:
    """The first `most` rows (0: all) for a terminal of a width, and how many are left
    out."""
    if not len(table):
        return f"no {table.name}"
    shown = table.top(most) if most else table
    rest = omitted_line(len(table) - len(shown), "row", TOP_ALL)
    return "\n".join([aligned_rows(shown, width), *rest])


def first_columns(table: ColumnTable) -> ColumnTable:
    """The columns that a person sees without asking: figures, then texts."""
    chosen = [column for column in table.columns if column.name in table.first]
    chosen.sort(key=_order)
    return table.select(column.name for column in chosen)


def _order(column: TableColumn) -> tuple[bool, int]:
    """What columns are sorted by: numbers before texts, and FIRST_TEXTS before
    others."""
    if column.name in FIRST_TEXTS:
        place = FIRST_TEXTS.index(column.name)
    else:
        place = len(FIRST_TEXTS)
    return column.kind == "text", place


def aligned_rows(table: ColumnTable, width: int) -> str:
    """All rows, below the names of the columns without units. Where space is short and
    somebody looks, the last column is cut, and columns are left out from the right, but
    for the first one and the first text (and the one after it, if that is the file)."""
    is_unseen = isinstance(width, UncutWidth)
    kept = _kept_columns(table)
    text_columns = []
    texts_of_columns = []
    for number, column in enumerate(table.columns):
        text_columns.append(
            text_tables.Column(
                title=without_unit(column.name),
                left=column.kind == "text",
                spare=0 if number in kept else number,
            )
        )
        is_last = number == len(table.columns) - 1
        most = None if is_unseen or is_last else MAX_TEXT_CELLS
        texts_of_columns.append(value_texts(column, most))
    rows = list(zip(*texts_of_columns, strict=True))
    return text_tables.table(text_columns, rows, None if is_unseen else width)


def _kept_columns(table: ColumnTable) -> set[int]:
    """The numbers of those that are never left out."""
    of_texts = [
        number for number, column in enumerate(table.columns) if column.kind == "text"
    ]
    starts_with_file = bool(of_texts) and table.names[of_texts[0]] == "file"
    texts_kept = 2 if starts_with_file else 1
    return {0, *of_texts[:texts_kept]}


def without_unit(name: str) -> str:
    """The name of a column whose values are shown with their unit."""
    return name.removesuffix("_ns")


def value_texts(column: TableColumn, most: int | None = None) -> list[str]:
    """Its values for people, each text in at most so many cells; "" for none."""
    return [_text(column, value, most) for value in column.to_list()]


def _text(column: TableColumn, value: object, most: int | None) -> str:
    """A value as people read it, "" for none; `most`: characters of a text, None for
    all."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return duration(value) if column.name.endswith("_ns") else count(value)
    if isinstance(value, float):
        if column.name.startswith("share"):
            return percent(value, 1)
        return significant(value, DIGITS)
    text = printable(str(value))
    return text if most is None else middle_clip(text, most)


def table_html(table: ColumnTable, most: int = REPR_ROWS) -> str:
    """The same as HTML, for notebooks: no scripts, and whatever a name holds is
    text."""
    shown = first_columns(table.top(most))
    sides = ["left" if column.kind == "text" else "right" for column in shown.columns]
    titles = [without_unit(name) for name in shown.names]
    texts_of_columns = [value_texts(column) for column in shown.columns]
    rows = zip(*texts_of_columns, strict=True)
    caption = _as_html(_head(table))
    head = _html_row("th", titles, sides)
    body = "".join(_html_row("td", row, sides) for row in rows)
    below = "".join(f"<p>{_as_html(sentence)}</p>" for sentence in table.left_out)
    return (
        f"<table><caption>{caption}</caption>"
        f"<thead>{head}</thead>"
        f"<tbody>{body}</tbody></table>{below}"
    )


def _html_row(tag: str, values: Sequence[str], sides: Sequence[str]) -> str:
    """`sides`: to which side each cell is aligned."""
    cells = [
        f'<{tag} style="text-align: {side}">{_as_html(value)}</{tag}>'
        for side, value in zip(sides, values, strict=True)
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _as_html(text: str) -> str:
    return escape(printable(text))
