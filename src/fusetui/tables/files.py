"""Tables as text and as files: CSV, TSV, Markdown, JSON, Parquet. No name is shortened,
and each row is one line. A file is there once it is complete, or not at all.

What a terminal would interpret is escaped as everywhere else, so a row is the same
bytes in a file, a pipe and a terminal; JSON escapes it without loss.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fusetui import Error
from fusetui.tables.table import ROWS_AT_ONCE, ColumnTable, TableColumn
from fusetui.text.printable import markdown, markdown_table, printable
from fusetui.trace.new_file import new_file


class RowForm(NamedTuple):
    """How a format writes a row."""

    quoted: Callable[[str], str]
    """A text as it stands in the row."""

    line: Callable[[tuple[str, ...]], str]
    """The row, of its values as texts."""

    missing: str = ""
    """What stands for no value."""


def csv_lines(table: ColumnTable) -> Iterator[str]:
    """Yield a table as CSV (RFC 4180), first a line with the names of the columns. A
    missing value is blank, an empty text is in quotes."""

    def line(values: tuple[str, ...]) -> str:
        return ",".join(values) + "\n"

    yield line(tuple(map(_quote_csv, table.names)))
    yield from _format_rows(table, RowForm(quoted=_quote_csv, line=line))


def tsv_lines(table: ColumnTable) -> Iterator[str]:
    """Yield a table as tab-separated lines, first a line with the names of the columns.
    Tabs, backslashes and control characters in texts are escaped."""

    def line(values: tuple[str, ...]) -> str:
        return "\t".join(values) + "\n"

    yield line(tuple(map(_escape_tsv, table.names)))
    yield from _format_rows(table, RowForm(quoted=_escape_tsv, line=line))


def markdown_lines(table: ColumnTable) -> Iterator[str]:
    """Yield a table as Markdown of GitHub, with numbers aligned right."""

    def line(values: tuple[str, ...]) -> str:
        return f"| {' | '.join(values)} |\n"

    names = [markdown(name) for name in table.names]
    of_texts = [
        number for number, column in enumerate(table.columns) if column.kind == "text"
    ]
    head = markdown_table(names, rows=(), left=of_texts)
    yield "\n".join([*head, ""])
    yield from _format_rows(table, RowForm(quoted=markdown, line=line))


def json_lines(table: ColumnTable) -> Iterator[str]:
    """Yield a JSON list with an object for each row, each on a line of its own."""
    fields = []
    for name in table.names:
        # the template is filled by the operator %
        key = _quote_json(name).replace("%", "%%")
        fields.append(f"{key}: %s")
    row_template = f"{{{', '.join(fields)}}}"

    def line(values: tuple[str, ...]) -> str:
        return f",\n{row_template % values}"

    form = RowForm(quoted=_quote_json, line=line, missing="null")
    opening = "["
    for lines in _format_rows(table, form):
        if opening:  # no row stands before the first one
            lines = lines.removeprefix(",\n")
        yield f"{opening}{lines}"
        opening = ""
    yield f"{opening}]\n"


def _format_rows(table: ColumnTable, form: RowForm) -> Iterator[str]:
    """Yield the lines of a table, those of ROWS_AT_ONCE rows at a time.

    Args:
        table: The table. Each of its distinct texts is quoted once.
        form: How a row is written.
    """
    quoted_texts = []
    for column in table.columns:
        quoted_texts.append([form.quoted(text) for text in column.texts or ()])
    for begin in range(0, len(table), ROWS_AT_ONCE):
        some_rows = slice(begin, begin + ROWS_AT_ONCE)
        values_of_columns = []
        for column, quoted in zip(table.columns, quoted_texts, strict=True):
            values = _format_values(column.take(some_rows), quoted, form.missing)
            values_of_columns.append(values)
        rows = zip(*values_of_columns, strict=True)
        yield "".join(map(form.line, rows))


def _format_values(column: TableColumn, quoted: list[str], missing: str) -> list[str]:
    """Return the values of a column as they stand in a file: "3", "true", a text.

    Args:
        column: The column.
        quoted: Its distinct texts, as they stand in the file.
        missing: What stands there for a row without a value.
    """
    values = column.values.tolist()
    if column.kind == "text":
        texts = [quoted[number] for number in values]
    elif column.kind == "bool":
        texts = ["true" if value else "false" for value in values]
    else:
        texts = [str(value) for value in values]
    if column.known is not None:
        for row in np.flatnonzero(~column.known).tolist():
            texts[row] = missing
    return texts


def _escape_tsv(text: str) -> str:
    """Escape backslashes and control characters in a text, for a value of TSV."""
    return printable(text.replace("\\", "\\\\"))


def _quote_json(text: str) -> str:
    """Write a text as a JSON string in ASCII, without any character that a terminal
    would interpret."""
    # Python's json, which escapes all that is not ASCII; it leaves DEL alone, which a
    # terminal interprets.
    return json.dumps(text).replace("\x7f", "\\u007f")


def _quote_csv(text: str) -> str:
    """Return a text as a value of CSV: gemm is gemm, and `a, b` is in quotes.

    It is in quotes where a reader would not take it as it is; an empty text is too,
    since nothing at all stands for no value. Quotes in it are doubled.
    """
    shown = printable(text)
    needs_quotes = not shown or "," in shown or '"' in shown or shown != shown.strip()
    if not needs_quotes:
        return shown
    doubled = shown.replace('"', '""')
    return f'"{doubled}"'


TEXTS = {
    "csv": csv_lines,
    "tsv": tsv_lines,
    "markdown": markdown_lines,
    "json": json_lines,
}
"""The formats that are text."""

ENDINGS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".md": "markdown",
    ".json": "json",
    ".parquet": "parquet",
}
"""Formats by how names of files end."""
FORMATS = tuple(ENDINGS.values())


class UnknownFormatError(Error, ValueError):
    """One plain sentence: a file whose name does not say what to write."""


def format_from_name(path: str) -> str:
    """Return the format in which a file is written, by the ending of its name. Raises
    UnknownFormatError for any other ending."""
    form = ENDINGS.get(Path(path).suffix.lower())
    if form is None:
        raise UnknownFormatError(
            f"Unknown format of {path}: its name must end in {', '.join(ENDINGS)}."
        )
    return form


def save(
    table: ColumnTable, path: str, form: str | None = None, *, replace: bool = False
) -> None:
    """Write a table to a new file in the format `form`, one of "parquet" and the keys
    of TEXTS, or in that of its name.

    Raises CannotWriteError, MissingPackageError, or UnknownFormatError for a name
    without a known format, leaving nothing behind. With `replace`, an existing file may
    be replaced.
    """
    form = form or format_from_name(path)
    if form != "parquet":
        with new_file(path, replace=replace) as file:
            for lines in TEXTS[form](table):
                file.write(lines.encode())
        return

    pyarrow = import_optional("pyarrow", "Parquet", "parquet")
    parquet = import_optional("pyarrow.parquet", "Parquet", "parquet")
    with new_file(path, replace=replace) as file:
        parquet.write_table(pyarrow.table(table), file)


class MissingPackageError(Error, ImportError):
    """One plain sentence: which package to install."""


def import_optional(package: str, what: str, extra: str = "") -> Any:
    """Import an optional package, or a module of it.

    Raises MissingPackageError, with the command that installs it. `what` is the feature
    that needs it; `extra` is the extra of fusetui that has it, if there is one.
    """
    try:
        return import_module(package)
    except ImportError:
        name = package.split(".")[0]
        install = f"fusetui[{extra}]" if extra else name
        raise MissingPackageError(
            f"{what} needs {name}: pip install '{install}'."
        ) from None
