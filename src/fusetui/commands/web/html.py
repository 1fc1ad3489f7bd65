"""HTML tables with a caption, scoped headings, and the exact value of each figure.
Whatever comes from a trace is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from fusetui.report.html_document import text
from fusetui.tables.drawn import first_columns, value_texts, without_unit
from fusetui.tables.sources import columns_of
from fusetui.tables.table import ColumnTable
from fusetui.text.figures import plural

MAX_TEXT_CELLS = 160
"""The widest text of a table."""

SECTION_LEVEL = 2
"""The level of the heading of a section; h1 is the title of the document."""


def read_asset(name: str) -> str:
    """Return the text of a file of this package, without white space at its ends."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8").strip()


class Figure(NamedTuple):
    """A figure as people read it, and exactly; one that is not known has neither: its
    text is "" and its exact value None."""

    text: str
    exact: float | None


class ColumnHead(NamedTuple):
    """Of a column: its title, what it means, and whether it holds figures."""

    title: str
    meaning: str = ""
    figures: bool = True


Cell = Figure | str
Rows = Iterable[Sequence[Cell]]


class Heading(NamedTuple):
    """A place of the document that its contents link to. `level` is SECTION_LEVEL for a
    section, and larger for what is inside one."""

    level: int
    title: str
    anchor: str


def heading(place: Heading) -> str:
    """Return the HTML of a heading, with the anchor that links lead to."""
    tag = f"h{place.level}"
    return f'<{tag} id="{text(place.anchor)}">{text(place.title)}</{tag}>'


def contents(places: Sequence[Heading]) -> str:
    """Return HTML with links to all headings, in a list for each section. The first
    heading must be that of a section."""
    sections: list[list[str]] = []
    for section_heading in places:
        if section_heading.level == SECTION_LEVEL:
            sections.append([])
        link = f'<a href="#{text(section_heading.anchor)}">{text(section_heading.title)}</a>'
        sections[-1].append(f"<li>{link}</li>")
    lists = "\n".join(f"<ul>{''.join(links)}</ul>" for links in sections)
    return f'<nav aria-label="Contents">{lists}</nav>'


def scrolling(content: str, label: str = "") -> str:
    """Return HTML of a box that scrolls sideways if its content is too wide for the
    page. With a `label`, the box itself takes the focus, so that keys can scroll it."""
    region = f' tabindex="0" role="region" aria-label="{text(label)}"' if label else ""
    return f'<div class="scrolls"{region}>{content}</div>'


def table(
    caption: str, heads: Sequence[ColumnHead], rows: Rows, last: Rows = ()
) -> str:
    """Return HTML of a table in a box that scrolls. The first column of texts is the
    header of its rows. The `last` rows stay at the bottom, however a reader sorts the
    table."""
    head_column = _find_text_column(heads)
    titles = "".join(_format_column_head(head) for head in heads)
    body = "\n".join(_format_table_row(row, head_column) for row in rows)
    foot = "\n".join(_format_table_row(row, head_column) for row in last)
    return scrolling(
        f"<table><caption>{text(caption)}</caption>\n"
        f"<thead><tr>{titles}</tr></thead>\n"
        f"<tbody>{body}</tbody>"
        f"<tfoot>{foot}</tfoot></table>"
    )


def format_column_table(answer: ColumnTable, max_rows: int) -> str:
    """Return HTML of the first `max_rows` rows of a table, with the columns that people
    see first. What the answer leaves out is said below it."""
    shown = first_columns(answer.top(max_rows))
    meanings = {spec.name: spec.meaning for spec in columns_of(answer.name)}
    heads = []
    columns: list[Sequence[Cell]] = []
    for column in shown.columns:
        is_text = column.kind == "text"
        heads.append(
            ColumnHead(
                title=without_unit(column.name),
                meaning=meanings.get(column.name, ""),
                figures=not is_text,
            )
        )
        readable = value_texts(column, MAX_TEXT_CELLS)
        if is_text:
            columns.append(readable)
        else:
            columns.append([*map(Figure, readable, column.to_list())])
    rows_text = plural(len(answer), "row")
    if len(shown) < len(answer):
        rows_text = f"the first {len(shown)} of {rows_text}"
    left_out = [
        f'<p class="faint">{text(left_out_sentence)}</p>'
        for left_out_sentence in answer.left_out
    ]
    rows = zip(*columns, strict=True)
    return table(f"{answer.name}: {rows_text}", heads, rows) + "".join(left_out)


def _find_text_column(heads: Sequence[ColumnHead]) -> int:
    """Return the index of the first column of texts, or -1 if all columns have figures."""
    for number, head in enumerate(heads):
        if not head.figures:
            return number
    return -1


def _format_column_head(head: ColumnHead) -> str:
    """Return HTML of the header of a column. It is a button, with which a script sorts
    the rows."""
    title = f' title="{text(head.meaning)}"' if head.meaning else ""
    kind = ' class="figure"' if head.figures else ""
    return f'<th scope="col"{kind}{title}><button type="button">{text(head.title)}</button></th>'


def _format_table_row(row: Sequence[Cell], head_column: int) -> str:
    """Return HTML of a row of a table. `head_column` is the index of the value that
    names the row; -1 for none."""
    values = [
        _format_table_value(value, is_head=number == head_column)
        for number, value in enumerate(row)
    ]
    return f"<tr>{''.join(values)}</tr>"


def _format_table_value(value: Cell, is_head: bool) -> str:
    """Return HTML of a value of a table. A figure keeps its exact value beside its
    text, and is empty if it is unknown."""
    if isinstance(value, str):
        if is_head:
            return f'<th scope="row">{text(value)}</th>'
        return f"<td>{text(value)}</td>"
    if value.exact is None:
        return '<td class="figure"></td>'
    return f'<td class="figure"><data value="{value.exact!r}">{text(value.text)}</data></td>'
