"""Tables as text and as files: CSV, TSV, Markdown, JSON, Parquet. No name is shortened, and each
row is one line. A file is there once it is complete, or not at all.

What a terminal would interpret is escaped as everywhere else, so a row is the same bytes in a file,
a pipe and a terminal; JSON escapes it without loss.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from fusetui import Error
from fusetui.tables.frames import needed
from fusetui.tables.table import AT_ONCE, ColumnTable, TableColumn
from fusetui.text.printable import markdown, printable
from fusetui.trace.new_file import new_file

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


TEXTS: dict[str, Callable[[ColumnTable], Iterator[str]]] = {
    "csv": csv_lines,
    "tsv": tsv_lines,
    "markdown": markdown_lines,
    "json": json_lines,
}
"""The formats that are text."""

ENDINGS = {".csv": "csv", ".tsv": "tsv", ".md": "markdown", ".json": "json", ".parquet": "parquet"}
"""Formats by how names of files end."""
FORMATS = tuple(ENDINGS.values())


class UnknownFormat(Error, ValueError):  # noqa: N818
    """One plain sentence: a file whose name does not say what to write."""


def format_of(path: str) -> str:
    """The format of a file by its name. Raises UnknownFormat."""
    form = ENDINGS.get(Path(path).suffix.lower())
    if form is None:
        raise UnknownFormat(f"{path} tells no format: its name must end in {', '.join(ENDINGS)}.")
    return form


def save(table: ColumnTable, path: str, form: str | None = None, *, replace: bool = False) -> None:
    """Writes a new file in a format, or in that of its name. Raises CannotWrite, MissingPackage
    or UnknownFormat, leaving nothing behind."""
    chosen = form or format_of(path)
    if chosen == "parquet":
        names = ("pyarrow", "pyarrow.parquet")
        arrow, parquet = (needed(name, "Parquet", "parquet") for name in names)
        with new_file(path, replace=replace) as part, part.open("wb") as file:
            parquet.write_table(arrow.table(table), file)
        return
    with new_file(path, replace=replace) as part, part.open("w", encoding="utf-8", newline="") as f:
        f.writelines(TEXTS[chosen](table))
