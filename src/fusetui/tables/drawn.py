"""A table for people: aligned or as HTML, times with their units, names cut to fit
where anybody sees it."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from fusetui.tables.table import ColumnTable, TableColumn
from fusetui.text.cutting import middle_clip
from fusetui.text.figures import count, duration, percent, plural, significant
from fusetui.text.printable import printable
from fusetui.text.tables import TOP_ALL, Unseen, left_out
from fusetui.text.tables import Column as Drawn
from fusetui.text.tables import table as aligned

ROWS, WIDTH = 10, 100  # of a repr
DIGITS = 4
ORDER = {"file": 0, "short": 1}  # of texts
LONGEST = 40  # cells of a text in the middle of a line


def drawn(table: ColumnTable) -> str:
    """Its size, and the first rows of the columns that a person sees first."""
    more = left_out(len(table) - ROWS, "row", "")
    shown = lines(seen_first(table.top(ROWS)), WIDTH)
    said = [printable(sentence) for sentence in table.left_out]
    return "\n".join([_head(table), shown, *(m[:-3] for m in more), *said])


def _head(table: ColumnTable) -> str:
    return f"{table.name}: {plural(len(table), 'row')}, {plural(len(table.columns), 'column')}"


def listed(table: ColumnTable, most: int, width: int) -> str:
    """The first `most` rows (0: all) for a terminal of a width, and how many are left
    out."""
    if not len(table):
        return f"no {table.name}"
    shown = table.top(most) if most else table
    return "\n".join(
        [lines(shown, width), *left_out(len(table) - len(shown), "row", TOP_ALL)]
    )


def seen_first(table: ColumnTable) -> ColumnTable:
    """The columns that a person sees without asking: figures, then texts."""
    chosen = [column for column in table.columns if column.name in table.first]
    chosen.sort(key=lambda column: (column.kind == "text", ORDER.get(column.name, 2)))
    return table.select(column.name for column in chosen)


def lines(table: ColumnTable, width: int) -> str:
    """All rows, below the names of the columns without units. Where space is short and
    somebody looks, the last column is cut, and columns are left out from the right, but
    for the first text."""
    is_unseen = isinstance(width, Unseen)
    longest = None if is_unseen else LONGEST
    cells = [texts(column, longest) for column in table.columns[:-1]]
    cells += [texts(column, None) for column in table.columns[-1:]]
    texts_at = [n for n, column in enumerate(table.columns) if column.kind == "text"]
    kept = (
        {0, *texts_at[: 2 if table.names[texts_at[0]] == "file" else 1]}
        if texts_at
        else {0}
    )
    columns = [
        Drawn(
            without_unit(column.name),
            column.kind == "text",
            0 if number in kept else number,
        )
        for number, column in enumerate(table.columns)
    ]
    return aligned(columns, [*zip(*cells, strict=True)], None if is_unseen else width)


def without_unit(name: str) -> str:
    """The name of a column whose values are shown with their unit."""
    return name.removesuffix("_ns")


def texts(column: TableColumn, longest: int | None = None) -> list[str]:
    """Its values for people; "" for none."""
    return [_text(column, value, longest) for value in column.to_list()]


def _text(column: TableColumn, value: object, longest: int | None) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return duration(value) if column.name.endswith("_ns") else count(value)
    if isinstance(value, float):
        return (
            percent(value, 1)
            if column.name.startswith("share")
            else significant(value, DIGITS)
        )
    shown = printable(str(value))
    return shown if longest is None else middle_clip(shown, longest)


def table_html(table: ColumnTable, most: int = ROWS) -> str:
    """The same as HTML, for notebooks: no scripts, and whatever a name holds is
    text."""
    shown = seen_first(table.top(most))
    sides = ["left" if column.kind == "text" else "right" for column in shown.columns]

    def line(tag: str, values: Iterable[str]) -> str:
        row = "".join(
            f'<{tag} style="text-align: {side}">{escape(printable(value))}</{tag}>'
            for side, value in zip(sides, values, strict=True)
        )
        return f"<tr>{row}</tr>"

    rows = zip(*(texts(column) for column in shown.columns), strict=True)
    said = "".join(
        f"<p>{escape(printable(sentence))}</p>" for sentence in table.left_out
    )
    return (
        f"<table><caption>{escape(printable(_head(table)))}</caption>"
        f"<thead>{line('th', map(without_unit, shown.names))}</thead>"
        f"<tbody>{''.join(line('td', row) for row in rows)}</tbody></table>{said}"
    )
