"""HTML: documents whose policy forbids the browser all but the style and the script
written here (Content Security Policy, level 3), in which whatever comes from a trace is
escaped; and tables, with a caption, heads with a scope, and of each figure the exact
value too."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import NamedTuple

from fusetui.tables.drawn import first_columns, value_texts, without_unit
from fusetui.tables.sources import columns_of
from fusetui.tables.table import ColumnTable
from fusetui.text.figures import plural
from fusetui.text.printable import printable

LONGEST = 160  # cells of a name


def asset(name: str) -> str:
    """A file of this package."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8").strip()


def text(value: str) -> str:
    """What a name is in HTML."""
    return escape(printable(value))


def document(
    title: str, body: str, style: str, script: str = "", light: bool | None = None
) -> str:
    """A whole document around HTML; `light`: always so, or never; None: as the browser
    has it."""
    scheme = {None: "light dark", True: "light", False: "dark"}[light]
    scripts = f"<script>{script}</script>\n" if script else ""
    policy = "default-src 'none'; base-uri 'none'; form-action 'none'; "
    policy += f"style-src {_hash(style)}" + (
        f"; script-src {_hash(script)}" if script else ""
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="{scheme}">\n'
        f"<title>{text(title)}</title>\n<style>{style}</style>\n</head>\n"
        f"<body>\n{body}\n{scripts}</body>\n</html>\n"
    )


def _hash(content: str) -> str:
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"


class Figure(NamedTuple):
    """A figure as people read it, and exactly; a figure that is not known has
    neither."""

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
    """A place of the document that its contents link to; `level` is 2 for a section."""

    level: int
    title: str
    anchor: str


def heading(place: Heading) -> str:
    """The heading itself."""
    tag = f"h{place.level}"
    return f'<{tag} id="{text(place.anchor)}">{text(place.title)}</{tag}>'


def contents(places: Sequence[Heading]) -> str:
    """Links to all headings: a list for each section, which its own heading begins."""
    sections: list[list[str]] = []
    for place in places:
        if place.level == 2:
            sections.append([])
        link = f'<a href="#{text(place.anchor)}">{text(place.title)}</a>'
        sections[-1].append(f"<li>{link}</li>")
    lists = "\n".join(f"<ul>{''.join(links)}</ul>" for links in sections)
    return f'<nav aria-label="Contents">{lists}</nav>'


def scrolling(content: str, label: str = "") -> str:
    """A box that scrolls sideways by itself where its content is too wide for the page.
    `label` names a box in which nothing else takes the focus, so that keys can scroll
    it."""
    region = f' tabindex="0" role="region" aria-label="{text(label)}"' if label else ""
    return f'<div class="scrolls"{region}>{content}</div>'


def table(
    caption: str, heads: Sequence[ColumnHead], rows: Rows, last: Rows = ()
) -> str:
    """The first column of texts is the head of its rows; the `last` stay below all
    others."""
    first = next((n for n, head in enumerate(heads) if not head.figures), -1)

    def lines(some: Rows) -> str:
        cells = (
            "".join(_field(value, n == first) for n, value in enumerate(row))
            for row in some
        )
        return "\n".join(f"<tr>{row}</tr>" for row in cells)

    return scrolling(
        f"<table><caption>{text(caption)}</caption>\n"
        f"<thead><tr>{''.join(map(_head, heads))}</tr></thead>\n<tbody>{lines(rows)}</tbody>"
        f"<tfoot>{lines(last)}</tfoot></table>"
    )


def column_table(found: ColumnTable, most: int) -> str:
    """The first rows of an answer as a table, with the columns that people see
    first."""
    shown = first_columns(found.top(most))
    means = {spec.name: spec.meaning for spec in columns_of(found.name)}
    heads = [
        ColumnHead(
            without_unit(column.name), means.get(column.name, ""), column.kind != "text"
        )
        for column in shown.columns
    ]
    columns: list[Sequence[Cell]] = []
    for column in shown.columns:
        told = value_texts(column, LONGEST)
        columns.append(
            told if column.kind == "text" else [*map(Figure, told, column.to_list())]
        )
    size = plural(len(found), "row")
    of = f"the first {len(shown)} of {size}" if len(shown) < len(found) else size
    said = "".join(
        f'<p class="faint">{text(sentence)}</p>' for sentence in found.left_out
    )
    return table(f"{found.name}: {of}", heads, zip(*columns, strict=True)) + said


def _head(head: ColumnHead) -> str:
    title = f' title="{text(head.meaning)}"' if head.meaning else ""
    kind = ' class="figure"' if head.figures else ""
    return f'<th scope="col"{kind}{title}><button type="button">{text(head.title)}</button></th>'


def _field(value: Cell, is_head: bool) -> str:
    if isinstance(value, str):
        tag = 'th scope="row"' if is_head else "td"
        return f"<{tag}>{text(value)}</{tag[:2]}>"
    exact = f'<data value="{value.exact!r}">{text(value.text)}</data>'
    return f'<td class="figure">{"" if value.exact is None else exact}</td>'
