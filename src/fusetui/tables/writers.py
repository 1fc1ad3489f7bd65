"""A table as text: CSV, TSV, Markdown, JSON. No name is shortened, and each row is one line.

What a terminal would interpret is escaped as everywhere else, so a row is the same bytes in a file,
a pipe and a terminal; JSON escapes it without loss.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from fusetui.tables.table import AT_ONCE, ColumnTable, TableColumn
from fusetui.text.printable import markdown, printable

Line = Callable[[tuple[str, ...]], str]


def csv_lines(table: ColumnTable) -> Iterator[str]:
    """RFC 4180 with a line of names. A missing value is blank, an empty text is quoted."""
    yield ",".join(map(_csv, table.names)) + "\n"
    yield from _rows(table, _csv, lambda row: ",".join(row) + "\n")


def tsv_lines(table: ColumnTable) -> Iterator[str]:
    """With a line of names; backslashes and what is no plain character are escaped: \\\\, \\t."""
    yield "\t".join(map(_tsv, table.names)) + "\n"
    yield from _rows(table, _tsv, lambda row: "\t".join(row) + "\n")


def markdown_lines(table: ColumnTable) -> Iterator[str]:
    """A table of GitHub's Markdown, numbers on the right."""
    ruler = ["---" if column.kind == "text" else "---:" for column in table.columns]
    for head in ([*map(markdown, table.names)], ruler):
        yield f"| {' | '.join(head)} |\n"
    yield from _rows(table, markdown, lambda row: f"| {' | '.join(row)} |\n")


def json_lines(table: ColumnTable) -> Iterator[str]:
    """A JSON list with an object a row, each on a line of its own."""
    row_of = ", ".join(f"{_json(name).replace('%', '%%')}: %s" for name in table.names)
    before = "["
    for some in _rows(table, _json, lambda row: f",\n{{{row_of % row}}}", "null"):
        yield before + some.removeprefix(",\n") if before else some
        before = ""
    yield f"{before}]\n"


def _rows(
    table: ColumnTable, quote: Callable[[str], str], line: Line, missing: str = ""
) -> Iterator[str]:
    """The lines of many rows at once; each distinct text is quoted once."""
    quoted = [[*map(quote, column.texts or ())] for column in table.columns]
    for begin in range(0, len(table), AT_ONCE):
        part = slice(begin, begin + AT_ONCE)
        values = [
            _values(column.take(part), texts, missing)
            for column, texts in zip(table.columns, quoted, strict=True)
        ]
        yield "".join(map(line, zip(*values, strict=True)))


def _values(column: TableColumn, quoted: list[str], missing: str) -> list[str]:
    """Its values as texts; `quoted` are its distinct texts."""
    values = column.values.tolist()
    if column.kind == "text":
        found = [quoted[number] for number in values]
    elif column.kind == "bool":
        found = ["true" if value else "false" for value in values]
    else:
        found = [*map(str, values)]
    if column.known is None:
        return found
    is_known = column.known.tolist()
    return [text if there else missing for text, there in zip(found, is_known, strict=True)]


def _tsv(text: str) -> str:
    return printable(text.replace("\\", "\\\\"))


def _json(text: str) -> str:
    return json.dumps(text).replace("\x7f", "\\u007f")


def _csv(text: str) -> str:
    shown = printable(text)
    if shown and not any(letter in shown for letter in ',"') and shown == shown.strip():
        return shown
    return '"' + shown.replace('"', '""') + '"'


Lines = Callable[[ColumnTable], Iterator[str]]
TEXTS: dict[str, Lines] = {
    "csv": csv_lines,
    "tsv": tsv_lines,
    "markdown": markdown_lines,
    "json": json_lines,
}
"""The formats that are text."""
