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
    """RFC 4180 with a line of names. A missing value is blank, an empty text is
    quoted."""

    def line(values: tuple[str, ...]) -> str:
        return ",".join(values) + "\n"

    yield line(tuple(map(_csv, table.names)))
    yield from _lines_of_rows(table, RowForm(quoted=_csv, line=line))


def tsv_lines(table: ColumnTable) -> Iterator[str]:
    """With a line of names; backslashes and what is no plain character are escaped:
    \\\\, \\t."""

    def line(values: tuple[str, ...]) -> str:
        return "\t".join(values) + "\n"

    yield line(tuple(map(_tsv, table.names)))
    yield from _lines_of_rows(table, RowForm(quoted=_tsv, line=line))


def markdown_lines(table: ColumnTable) -> Iterator[str]:
    """A table of GitHub's Markdown, numbers on the right."""

    def line(values: tuple[str, ...]) -> str:
        return f"| {' | '.join(values)} |\n"

    names = [markdown(name) for name in table.names]
    of_texts = [
        number for number, column in enumerate(table.columns) if column.kind == "text"
    ]
    head = markdown_table(names, rows=(), left=of_texts)
    yield "\n".join([*head, ""])
    yield from _lines_of_rows(table, RowForm(quoted=markdown, line=line))


def json_lines(table: ColumnTable) -> Iterator[str]:
    """A JSON list with an object a row, each on a line of its own."""
    fields = []
    for name in table.names:
        key = _json(name).replace("%", "%%")
        fields.append(f"{key}: %s")
    row_template = f"{{{', '.join(fields)}}}"

    def line(values: tuple[str, ...]) -> str:
        return f",\n{row_template % values}"

    form = RowForm(quoted=_json, line=line, missing="null")
    is_first = True
    for lines in _lines_of_rows(table, form):
        yield "[" + lines.removeprefix(",\n") if is_first else lines
        is_first = False
    yield "[]\n" if is_first else "]\n"


def _lines_of_rows(table: ColumnTable, form: RowForm) -> Iterator[str]:
    """The lines of many rows at once; each distinct text is quoted once."""
    quoted_texts = []
    for column in table.columns:
        quoted_texts.append([form.quoted(text) for text in column.texts or ()])
    for begin in range(0, len(table), ROWS_AT_ONCE):
        some_rows = slice(begin, begin + ROWS_AT_ONCE)
        values = [
            _values(column.take(some_rows), quoted, form.missing)
            for column, quoted in zip(table.columns, quoted_texts, strict=True)
        ]
        yield "".join(map(form.line, zip(*values, strict=True)))


def _values(column: TableColumn, quoted: list[str], missing: str) -> list[str]:
    """Its values as texts; `quoted` are its distinct texts."""
    values = column.values.tolist()
    if column.kind == "text":
        texts = [quoted[number] for number in values]
    elif column.kind == "bool":
        texts = ["true" if value else "false" for value in values]
    else:
        texts = [str(value) for value in values]
    if column.known is None:
        return texts
    return [
        text if is_known else missing
        for text, is_known in zip(texts, column.known.tolist(), strict=True)
    ]


def _tsv(text: str) -> str:
    return printable(text.replace("\\", "\\\\"))


def _json(text: str) -> str:
    # Python's json, which escapes all that is not ASCII; it leaves DEL alone, which a
    # terminal interprets.
    return json.dumps(text).replace("\x7f", "\\u007f")


def _csv(text: str) -> str:
    """A text as a value of CSV: in quotes where a reader would not take it as it is."""
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


def format_of(path: str) -> str:
    """The format of a file by its name. Raises UnknownFormatError."""
    form = ENDINGS.get(Path(path).suffix.lower())
    if form is None:
        raise UnknownFormatError(
            f"Unknown format of {path}: its name must end in {', '.join(ENDINGS)}."
        )
    return form


def save(
    table: ColumnTable, path: str, form: str | None = None, *, replace: bool = False
) -> None:
    """Writes a new file in a format, or in that of its name. Raises CannotWriteError,
    MissingPackageError or UnknownFormatError, leaving nothing behind."""
    form = form or format_of(path)
    if form == "parquet":
        pyarrow = needed("pyarrow", "Parquet", "parquet")
        parquet = needed("pyarrow.parquet", "Parquet", "parquet")
        with new_file(path, replace=replace) as file:
            parquet.write_table(pyarrow.table(table), file)
    else:
        with new_file(path, replace=replace) as file:
            for lines in TEXTS[form](table):
                file.write(lines.encode())


class MissingPackageError(Error, ImportError):
    """One plain sentence: which package to install."""


def needed(package: str, what: str, extra: str = "") -> Any:
    """An optional package, or a module of it, which `what` needs. Raises
    MissingPackageError, with the command that installs the `extra` of fusetui or, without
    one, the package."""
    try:
        return import_module(package)
    except ImportError:
        name = package.split(".")[0]
        install = f"fusetui[{extra}]" if extra else name
        raise MissingPackageError(
            f"{what} needs {name}: pip install '{install}'."
        ) from None
