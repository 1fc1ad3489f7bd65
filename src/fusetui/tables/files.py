"""Tables as text and as files: CSV, TSV, Markdown, JSON, Parquet. No name is shortened,
and each row is one line. A file is there once it is complete, or not at all. And as
dataframes of packages that fusetui does not need itself, and by the Arrow PyCapsule
interface (arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html).

What a terminal would interpret is escaped as everywhere else, so a row is the same
bytes in a file, a pipe and a terminal; JSON escapes it without loss. For dataframes,
integers and numbers are handed over where they lie, without a copy; texts are written
once, in batches.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from fusetui import Error
from fusetui.tables.table import ROWS_AT_ONCE, ColumnTable, Kind, TableColumn
from fusetui.text.printable import markdown, markdown_table, printable
from fusetui.trace.new_file import new_file

Line = Callable[[tuple[str, ...]], str]


def csv_lines(table: ColumnTable) -> Iterator[str]:
    """RFC 4180 with a line of names. A missing value is blank, an empty text is
    quoted."""
    yield ",".join(map(_csv, table.names)) + "\n"
    yield from _rows(table, _csv, lambda row: ",".join(row) + "\n")


def tsv_lines(table: ColumnTable) -> Iterator[str]:
    """With a line of names; backslashes and what is no plain character are escaped:
    \\\\, \\t."""
    yield "\t".join(map(_tsv, table.names)) + "\n"
    yield from _rows(table, _tsv, lambda row: "\t".join(row) + "\n")


def markdown_lines(table: ColumnTable) -> Iterator[str]:
    """A table of GitHub's Markdown, numbers on the right."""
    left = [
        number for number, column in enumerate(table.columns) if column.kind == "text"
    ]
    yield "\n".join([*markdown_table([*map(markdown, table.names)], (), left), ""])
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
    for begin in range(0, len(table), ROWS_AT_ONCE):
        values = [
            _values(column.take(slice(begin, begin + ROWS_AT_ONCE)), texts, missing)
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
    return [
        text if there else missing for text, there in zip(found, is_known, strict=True)
    ]


def _tsv(text: str) -> str:
    return printable(text.replace("\\", "\\\\"))


def _json(text: str) -> str:
    return json.dumps(text).replace("\x7f", "\\u007f")


def _csv(text: str) -> str:
    shown = printable(text)
    if shown and not any(letter in shown for letter in ',"') and shown == shown.strip():
        return shown
    return '"' + shown.replace('"', '""') + '"'


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
            f"{path} tells no format: its name must end in {', '.join(ENDINGS)}."
        )
    return form


def save(
    table: ColumnTable, path: str, form: str | None = None, *, replace: bool = False
) -> None:
    """Writes a new file in a format, or in that of its name. Raises CannotWriteError,
    MissingPackageError or UnknownFormatError, leaving nothing behind."""
    chosen = form or format_of(path)
    if chosen == "parquet":
        names = ("pyarrow", "pyarrow.parquet")
        arrow, parquet = (needed(name, "Parquet", "parquet") for name in names)
        with new_file(path, replace=replace) as file:
            parquet.write_table(arrow.table(table), file)
        return
    with new_file(path, replace=replace) as file:
        file.writelines(text.encode() for text in TEXTS[chosen](table))


BATCH = 1 << 16  # rows whose texts are written at once


class MissingPackageError(Error, ImportError):
    """One plain sentence: which package to install."""


def needed(package: str, what: str, extra: str = "") -> Any:
    """An optional package. Raises MissingPackageError."""
    try:
        return import_module(package)
    except ImportError:
        install = f"fusetui[{extra}]" if extra else package.split(".")[0]
        raise MissingPackageError(
            f"{what} needs {package.split('.')[0]}: pip install '{install}'."
        ) from None


def to_pandas(table: ColumnTable) -> Any:
    """A pandas.DataFrame. Columns of numbers are those of the table, without a copy;
    integers and truths of which some may be missing are Int64 and boolean. Raises
    MissingPackageError."""
    pandas = needed("pandas", "to_pandas()")
    # never its "None"
    text = "str" if int(pandas.__version__.split(".")[0]) >= 3 else object

    def values(column: TableColumn) -> Any:
        if column.kind == "text":
            texts = pandas.Series([*(column.texts or ()), None], dtype=text).array
            return texts.take(np.where(column.has_value, column.values, len(texts) - 1))
        if column.known is None:
            return column.values
        if column.kind == "float":
            return np.where(column.known, column.values, np.nan)
        kinds = {"int": pandas.arrays.IntegerArray, "bool": pandas.arrays.BooleanArray}
        return kinds[column.kind](column.values, ~column.known)

    return pandas.DataFrame(
        {column.name: values(column) for column in table.columns}, copy=False
    )


def stream_of(table: ColumnTable) -> Any:
    """A PyCapsule with an ArrowArrayStream."""
    import nanoarrow
    from nanoarrow.c_array_stream import CArrayStream

    schema = schema_of((column.name, column.kind) for column in table.columns)
    makers = [_maker(column) for column in table.columns]
    batches = []
    for begin in range(0, max(len(table), 1), BATCH):
        part = slice(begin, min(begin + BATCH, len(table)))
        arrays = [make(part) for make in makers]
        length = part.stop - begin
        batches.append(
            nanoarrow.c_array_from_buffers(
                schema, length, [None], null_count=0, children=arrays
            )
        )
    stream = CArrayStream.from_c_arrays(batches, nanoarrow.c_schema(schema), move=True)
    return stream.__arrow_c_stream__()


def schema_of(columns: Iterable[tuple[str, Kind]]) -> Any:
    """The schema of columns, by their names and kinds; it is known before there are any
    rows."""
    import nanoarrow

    return nanoarrow.struct({name: _type(kind) for name, kind in columns})


def _type(kind: Kind) -> Any:
    import nanoarrow

    kinds = {
        "int": "int64",
        "float": "float64",
        "bool": "bool_",
        "text": "large_string",
    }
    return getattr(nanoarrow, kinds[kind])()


def _maker(column: TableColumn) -> Callable[[slice], Any]:
    import nanoarrow

    schema = _type(column.kind)
    texts = [text.encode(errors="replace") for text in column.texts or ()]
    lengths = np.array([len(text) for text in texts], dtype=np.int64)

    def made(part: slice) -> Any:
        values = np.ascontiguousarray(column.values[part])
        known = None if column.known is None else column.known[part]
        bits = None if known is None else np.packbits(known, bitorder="little")
        nulls = 0 if known is None else int((~known).sum())
        buffers: list[Any] = [bits, values]
        if column.kind == "text":
            ends = np.concatenate([[0], np.cumsum(lengths[values])])
            written = b"".join([texts[number] for number in values.tolist()])
            buffers = [bits, ends.astype(np.int64), written]
        elif column.kind == "bool":
            buffers = [bits, np.packbits(values.astype(np.bool_), bitorder="little")]
        return nanoarrow.c_array_from_buffers(schema, len(values), buffers, nulls)

    return made
