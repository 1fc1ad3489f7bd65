"""Tables as dataframes of optional packages, and through the Arrow PyCapsule interface
(arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html).

Integers and numbers are handed over where they lie, without a copy; texts are written
once, in batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusetui.tables.files import needed
from fusetui.tables.table import ColumnTable, Kind, TableColumn

BATCH_ROWS = 1 << 16
"""So many texts are written at once."""

ARROW_TYPES: dict[Kind, str] = {
    "int": "int64",
    "float": "float64",
    "bool": "bool_",
    "text": "large_string",
}
"""The names of the functions of nanoarrow that make them."""


def to_pandas(table: ColumnTable) -> Any:
    """A pandas.DataFrame. Columns of numbers are those of the table, without a copy;
    integers and truths of which some may be missing are Int64 and boolean. Raises
    MissingPackageError."""
    pandas = needed("pandas", "to_pandas()")
    columns = {column.name: _pandas_column(pandas, column) for column in table.columns}
    return pandas.DataFrame(columns, copy=False)


def _pandas_column(pandas: Any, column: TableColumn) -> Any:
    """Its values as pandas takes them without a copy. `pandas`: the package."""
    if column.kind == "text":
        is_pandas_3 = int(pandas.__version__.split(".")[0]) >= 3
        dtype = "str" if is_pandas_3 else object  # "str" of pandas 2 makes None "None"
        texts = pandas.Series([*(column.texts or ()), None], dtype=dtype).array
        no_text = len(texts) - 1
        return texts.take(np.where(column.has_value, column.values, no_text))
    if column.known is None:
        return column.values
    if column.kind == "float":
        return np.where(column.known, column.values, np.nan)
    if column.kind == "int":
        return pandas.arrays.IntegerArray(column.values, ~column.known)
    return pandas.arrays.BooleanArray(column.values, ~column.known)


def stream_of(table: ColumnTable) -> Any:
    """A PyCapsule with an ArrowArrayStream, of at least one batch."""
    import nanoarrow
    from nanoarrow.c_array_stream import CArrayStream

    schema = schema_of((column.name, column.kind) for column in table.columns)
    array_makers = [_array_maker(column) for column in table.columns]
    batches = []
    for begin in range(0, max(len(table), 1), BATCH_ROWS):
        end = min(begin + BATCH_ROWS, len(table))
        batch = nanoarrow.c_array_from_buffers(
            schema,
            length=end - begin,
            buffers=[None],
            null_count=0,
            children=[array_of(slice(begin, end)) for array_of in array_makers],
        )
        batches.append(batch)
    stream = CArrayStream.from_c_arrays(batches, nanoarrow.c_schema(schema), move=True)
    return stream.__arrow_c_stream__()


def schema_of(columns: Iterable[tuple[str, Kind]]) -> Any:
    """The schema of columns, by their names and kinds; it is known before there are any
    rows."""
    import nanoarrow

    return nanoarrow.struct({name: _arrow_type(kind) for name, kind in columns})


def _arrow_type(kind: Kind) -> Any:
    import nanoarrow

    return getattr(nanoarrow, ARROW_TYPES[kind])()


def _array_maker(column: TableColumn) -> Callable[[slice], Any]:
    """What makes an Arrow array of some rows; each distinct text is encoded once."""
    import nanoarrow

    arrow_type = _arrow_type(column.kind)
    texts = [text.encode(errors="replace") for text in column.texts or ()]
    text_bytes = np.array([len(text) for text in texts], dtype=np.int64)

    def text_buffers(values: NDArray[Any]) -> list[Any]:
        """The end of each text, behind a zero, and all texts in one."""
        ends = np.concatenate([[0], np.cumsum(text_bytes[values])])
        joined = b"".join([texts[number] for number in values.tolist()])
        return [ends.astype(np.int64), joined]

    def array_of(rows: slice) -> Any:
        """The array of these rows, in the layout of Arrow
        (arrow.apache.org/docs/format/Columnar.html)."""
        values = np.ascontiguousarray(column.values[rows])
        is_valid, null_count = _validity(column, rows)
        if column.kind == "text":
            buffers = text_buffers(values)
        elif column.kind == "bool":
            buffers = [np.packbits(values.astype(np.bool_), bitorder="little")]
        else:
            buffers = [values]
        return nanoarrow.c_array_from_buffers(
            arrow_type, len(values), [is_valid, *buffers], null_count
        )

    return array_of


def _validity(column: TableColumn, rows: slice) -> tuple[NDArray[np.uint8] | None, int]:
    """A bit for each row, which is set where it has a value, None if all have; and how
    many have none."""
    if column.known is None:
        return None, 0
    known = column.known[rows]
    return np.packbits(known, bitorder="little"), int((~known).sum())
