"""Tables in HTML: a caption, heads with a scope, and of each figure the exact value too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fusetui.commands.web.document import text
from fusetui.tables.drawn import seen_first, texts, without_unit
from fusetui.tables.sources import columns_of
from fusetui.tables.table import ColumnTable
from fusetui.text.figures import plural

LONGEST = 160  # cells of a name


class Figure(NamedTuple):
    """A figure as people read it, and exactly; a figure that is not known has neither."""

    text: str
    exact: float | None


class Head(NamedTuple):
    """Of a column: its title, what it means, and whether it holds figures."""

    title: str
    meaning: str = ""
    figures: bool = True


Cell = Figure | str


Rows = Iterable[Sequence[Cell]]


def table(caption: str, heads: Sequence[Head], rows: Rows, last: Rows = ()) -> str:
    """The first column of texts is the head of its rows; the `last` stay below all others."""
    first = next((n for n, head in enumerate(heads) if not head.figures), -1)

    def lines(some: Rows) -> str:
        cells = ("".join(_field(value, n == first) for n, value in enumerate(row)) for row in some)
        return "\n".join(f"<tr>{row}</tr>" for row in cells)

    return (
        f'<div class="scrolls"><table><caption>{text(caption)}</caption>\n'
        f"<thead><tr>{''.join(map(_head, heads))}</tr></thead>\n<tbody>{lines(rows)}</tbody>"
        f"<tfoot>{lines(last)}</tfoot></table></div>"
    )


def column_table(found: ColumnTable, by: str, most: int) -> str:
    """The first rows of an answer as a table, with the columns that people see first."""
    shown = seen_first(found.top(most))
    means = {spec.name: spec.meaning for spec in columns_of(found.name, by)}
    heads = [
        Head(without_unit(column.name), means.get(column.name, ""), column.kind != "text")
        for column in shown.columns
    ]
    columns = [
        told if column.kind == "text" else [*map(Figure, told, column.to_list())]
        for column in shown.columns
        for told in [texts(column, LONGEST)]
    ]
    size = plural(len(found), "row")
    of = f"the first {len(shown)} of {size}" if len(shown) < len(found) else size
    return table(f"{found.name}: {of}", heads, zip(*columns, strict=True))


def _head(head: Head) -> str:
    title = f' title="{text(head.meaning)}"' if head.meaning else ""
    kind = ' class="figure"' if head.figures else ""
    return f'<th scope="col"{kind}{title}><button type="button">{text(head.title)}</button></th>'


def _field(value: Cell, is_head: bool) -> str:
    if isinstance(value, str):
        tag = 'th scope="row"' if is_head else "td"
        return f"<{tag}>{text(value)}</{tag[:2]}>"
    exact = (
        "" if value.exact is None else f'<data value="{value.exact!r}">{text(value.text)}</data>'
    )
    return f'<td class="figure">{exact}</td>'
