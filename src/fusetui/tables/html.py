"""A table as HTML, for notebooks: no scripts, and whatever a name holds is text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from fusetui.tables.drawn import seen_first, texts, without_unit
from fusetui.tables.table import ColumnTable
from fusetui.text.figures import plural
from fusetui.text.printable import printable

ROWS = 10


def table_html(table: ColumnTable, most: int = ROWS) -> str:
    """Its name and size, and the first rows of the columns that a person sees first."""
    shown = seen_first(table.top(most))
    right = [column.kind != "text" for column in shown.columns]
    rows = zip(*(texts(column) for column in shown.columns), strict=True)
    size = f"{plural(len(table), 'row')}, {plural(len(table.columns), 'column')}"
    return html_of(f"{table.name}: {size}", [*map(without_unit, shown.names)], rows, right)


def html_of(
    title: str, names: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[bool]
) -> str:
    """A table of texts; `right`: the columns whose texts stand on the right."""

    def line(tag: str, texts: Sequence[str]) -> str:
        sides = ("right" if at_end else "left" for at_end in right)
        return "".join(
            f'<{tag} style="text-align: {side}">{escape(printable(text))}</{tag}>'
            for side, text in zip(sides, texts, strict=True)
        )

    body = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    return (
        f"<table><caption>{escape(printable(title))}</caption>"
        f"<thead><tr>{line('th', names)}</tr></thead><tbody>{body}</tbody></table>"
    )
