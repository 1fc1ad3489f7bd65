"""Tables as dataframes of optional packages, and through the Arrow PyCapsule interface
(arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html).

Integers and numbers are handed over where they lie, without a copy; texts are written
once, in batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
    """Convert a table to a pandas.DataFrame.

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
    if column.texts is not None:
        return _pandas_texts(pandas, column, column.texts)
    if column.known is None:
        return column.values
    if column.kind == "float":
        return np.where(column.known, column.values, np.nan)
    is_missing = ~column.known
    if column.kind == "int":
        return pandas.arrays.IntegerArray(column.values, is_missing)
    return pandas.arrays.BooleanArray(column.values, is_missing)


def _pandas_texts(pandas: Any, column: TableColumn, texts: Sequence[str]) -> Any:
    """Return a column of texts as an array of pandas, with None for no text.

    Args:
        pandas: The package.
        column: The column; its values are indices in `texts`.
        texts: Its distinct texts.
    """
    major_version = int(pandas.__version__.split(".")[0])
    # The type "str" of pandas 2 would turn None into "None".
    dtype = "str" if major_version >= 3 else object
    texts_and_none = pandas.Series([*texts, None], dtype=dtype).array
    index_of_none = len(texts)
    return texts_and_none.take(np.where(column.has_value, column.values, index_of_none))


def stream_of(table: ColumnTable) -> Any:
    """Return a table as a PyCapsule with an ArrowArrayStream. It has at least one
    batch, even without rows."""
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
    """Return the Arrow schema of columns, given by their names and kinds. It needs no
    rows."""
    import nanoarrow

    return nanoarrow.struct({name: _arrow_type(kind) for name, kind in columns})


def _arrow_type(kind: Kind) -> Any:
    """Return the Arrow type of the values of a kind of column."""
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

    def array_of(rows: slice) -> Any:
        values = np.ascontiguousarray(column.values[rows])
        if column.kind == "text":
            joined_texts = b"".join([texts[number] for number in values.tolist()])
            buffers = [prefix_sums(bytes_of_text[values]), joined_texts]
        elif column.kind == "bool":
            buffers = [_pack_bits(values)]
        else:
            buffers = [values]

        validity = None  # all rows have a value
        null_count = 0
        if column.known is not None:
            has_value = column.known[rows]
            validity = _pack_bits(has_value)
            null_count = len(has_value) - int(has_value.sum())
        return nanoarrow.c_array_from_buffers(
            arrow_type, len(values), [validity, *buffers], null_count
        )

    return array_of


def _pack_bits(flags: NDArray[Any]) -> NDArray[np.uint8]:
    """Return flags as Arrow has them: a bit for each, the lowest bit of a byte first.

    Three flags that are true are the byte 7.
    """
    return np.packbits(flags.astype(np.bool_), bitorder="little")
