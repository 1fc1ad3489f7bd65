"""A table as text or as a file: CSV, TSV, Markdown, JSON, Parquet. No name is shortened."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from itertools import islice

from fusetui.tables.table import Table
from fusetui.text.printable import printable

TAB = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
"""The escapes of TSV (iana.org/assignments/media-types/text/tab-separated-values)."""
CELL = str.maketrans(
    {"|": "\\|", "<": "&lt;", "&": "&amp;", "`": "\\`", "*": "\\*", "_": "\\_", "[": "\\["}
)
"""What would be markup in Markdown."""
AT_ONCE = 10_000  # rows


def csv_lines(table: Table) -> Iterator[bytes]:
    """RFC 4180, in UTF-8, with a line of names; a value that is missing is blank."""
    rows = table.rows()
    yield _csv([[*table.names]])
    while some := [list(row.values()) for row in islice(rows, AT_ONCE)]:
        yield _csv(some)


def _csv(rows: list[list[object]]) -> bytes:
    out = io.StringIO()
    csv.writer(out).writerows([[_cell(value) for value in row] for row in rows])
    return out.getvalue().encode(errors="replace")


def tsv_lines(table: Table) -> Iterator[bytes]:
    """One line a row; tabs, line ends and backslashes in texts are written as \\t, \\n, \\\\."""
    yield ("\t".join(name.translate(TAB) for name in table.names) + "\n").encode(errors="replace")
    for row in table.rows():
        cells = (_cell(value).translate(TAB) for value in row.values())
        yield ("\t".join(cells) + "\n").encode(errors="replace")


def markdown_lines(table: Table) -> Iterator[bytes]:
    """A table of GitHub's Markdown, numbers on the right."""

    def line(cells: Iterator[str]) -> bytes:
        return f"| {' | '.join(cells)} |\n".encode(errors="replace")

    yield line(_marked(name) for name in table.names)
    yield line("---" if column.texts is not None else "---:" for column in table.columns)
    for row in table.rows():
        yield line(_marked(_cell(value)) for value in row.values())


def json_lines(table: Table) -> Iterator[bytes]:
    """One JSON list, with an object a row."""
    before = b"["
    for row in table.rows():
        yield before + json.dumps(row, ensure_ascii=False).encode(errors="replace")
        before = b",\n"
    yield b"]\n" if before != b"[" else b"[]\n"


def _cell(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _marked(text: str) -> str:
    return printable(text).translate(CELL)


TEXTS: dict[str, Callable[[Table], Iterator[bytes]]] = {
    "csv": csv_lines,
    "tsv": tsv_lines,
    "markdown": markdown_lines,
    "json": json_lines,
}
"""The formats that are text."""
