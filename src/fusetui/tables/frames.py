"""Tables as dataframes of packages that fusetui does not need itself, and by the Arrow PyCapsule
interface (arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html).

There integers and numbers are handed over where they lie, without a copy; texts are written once,
in batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

import numpy as np

from fusetui import Error
from fusetui.tables.table import ColumnTable, Kind, TableColumn

BATCH = 1 << 16  # rows whose texts are written at once


class MissingPackage(Error, ImportError):  # noqa: N818
    """One plain sentence: which package to install."""


def needed(package: str, what: str, extra: str = "") -> Any:
    """An optional package. Raises MissingPackage."""
    try:
        return import_module(package)
    except ImportError:
        install = f"fusetui[{extra}]" if extra else package.split(".")[0]
        raise MissingPackage(
            f"{what} needs {package.split('.')[0]}: pip install '{install}'."
        ) from None


def to_polars(table: ColumnTable) -> Any:
    """A polars.DataFrame, by Arrow. Raises MissingPackage."""
    return needed("polars", "to_polars()").DataFrame(table)


def to_pandas(table: ColumnTable) -> Any:
    """A pandas.DataFrame. Columns of numbers are those of the table, without a copy; integers and
    truths of which some may be missing are Int64 and boolean. Raises MissingPackage."""
    pandas = needed("pandas", "to_pandas()")
    text = "str" if int(pandas.__version__.split(".")[0]) >= 3 else object  # never its "None"

    def values(column: TableColumn) -> Any:
        if column.kind == "text":
            texts = pandas.Series([*(column.texts or ()), None], dtype=text).array
            return texts.take(np.where(column.there, column.values, len(texts) - 1))
        if column.known is None:
            return column.values
        if column.kind == "float":
            return np.where(column.known, column.values, np.nan)
        kinds = {"int": pandas.arrays.IntegerArray, "bool": pandas.arrays.BooleanArray}
        return kinds[column.kind](column.values, ~column.known)

    named = {column.name: values(column) for column in table.columns}
    return pandas.DataFrame(named, copy=False)


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
            nanoarrow.c_array_from_buffers(schema, length, [None], null_count=0, children=arrays)
        )
    stream = CArrayStream.from_c_arrays(batches, nanoarrow.c_schema(schema), move=True)
    return stream.__arrow_c_stream__()


def schema_of(columns: Iterable[tuple[str, Kind]]) -> Any:
    """The schema of columns, by their names and kinds; it is known before there are any rows."""
    import nanoarrow

    return nanoarrow.struct({name: _type(kind) for name, kind in columns})


def _type(kind: Kind) -> Any:
    import nanoarrow

    kinds = {"int": "int64", "float": "float64", "bool": "bool_", "text": "large_string"}
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
