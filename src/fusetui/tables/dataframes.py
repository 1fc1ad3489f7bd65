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

from fusetui.tables.files import import_optional
from fusetui.tables.table import ColumnTable, Kind, TableColumn
from fusetui.trace.model.arrays import prefix_sums

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
    """The table as a pandas.DataFrame.

    Columns of numbers are not copied. Integers and booleans that may be missing have
    the types Int64 and boolean. Raises MissingPackageError without pandas.
    """
    pandas = import_optional("pandas", "to_pandas()")
    columns = {column.name: _pandas_column(pandas, column) for column in table.columns}
    return pandas.DataFrame(columns, copy=False)


def _pandas_column(pandas: Any, column: TableColumn) -> Any:
    """Return the values of a column in the form that pandas takes without a copy.

    Texts are an array of strings. Of a column that may lack values, integers and truths
    are masked arrays, and floats have nan.

    Args:
        pandas: The package.
        column: The column.
    """
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
    """The table as a PyCapsule with an ArrowArrayStream. It has at least one batch,
    even without rows."""
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
    """The Arrow schema of columns, given by their names and kinds. It needs no rows."""
    import nanoarrow

    return nanoarrow.struct({name: _arrow_type(kind) for name, kind in columns})


def _arrow_type(kind: Kind) -> Any:
    """The Arrow type of the values of a kind of column."""
    import nanoarrow

    return getattr(nanoarrow, ARROW_TYPES[kind])()


def _array_maker(column: TableColumn) -> Callable[[slice], Any]:
    """Return a function that makes an Arrow array of some rows of a column.

    The layout is that of arrow.apache.org/docs/format/Columnar.html. Each distinct text
    is encoded once, whatever rows are asked for.
    """
    import nanoarrow

    arrow_type = _arrow_type(column.kind)
    texts = [text.encode(errors="replace") for text in column.texts or ()]
    bytes_of_text = np.array([len(text) for text in texts], dtype=np.int64)

    def text_buffers(values: NDArray[Any]) -> list[Any]:
        """The offset of each text and the end of the last, and all texts in one."""
        offsets = prefix_sums(bytes_of_text[values])
        joined = b"".join([texts[number] for number in values.tolist()])
        return [offsets, joined]

    def array_of(rows: slice) -> Any:
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
    """Return which rows have a value, in the form of Arrow.

    Returns:
        A bit for each row, the lowest bit of a byte first: three rows with a value are
        the byte 7. None if all rows of the column have one. And how many rows have
        none.
    """
    if column.known is None:
        return None, 0
    known = column.known[rows]
    return np.packbits(known, bitorder="little"), int((~known).sum())
