"""Tables for dataframes, by the Arrow PyCapsule interface
(arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html).

Integers and numbers are handed over where they lie, without a copy; texts are written once, in
batches.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

from fusetui.tables.table import Column, Table

BATCH = 1 << 16  # rows whose texts are written at once


def stream_of(table: Table) -> Any:
    """A PyCapsule with an ArrowArrayStream. Raises ImportError, which names what to install."""
    import nanoarrow
    from nanoarrow.c_array_stream import CArrayStream

    types = {"int64": nanoarrow.int64(), "float64": nanoarrow.float64(), "bool": nanoarrow.bool_()}
    schema = nanoarrow.struct(
        {
            one.name: nanoarrow.large_string()
            if one.texts is not None
            else types[one.values.dtype.name]
            for one in table.columns
        }
    )
    batches = []
    for first in range(0, max(len(table), 1), BATCH):
        part = [_part(column, first) for column in table.columns]
        length = len(part[0]) if part else 0
        arrays = [_array(column) for column in part]
        batches.append(
            nanoarrow.c_array_from_buffers(schema, length, [None], null_count=0, children=arrays)
        )
    stream = CArrayStream.from_c_arrays(batches, nanoarrow.c_schema(schema), move=True)
    return stream.__arrow_c_stream__()


def _part(column: Column, first: int) -> Column:
    known = None if column.known is None else column.known[first : first + BATCH]
    return Column(column.name, column.values[first : first + BATCH], column.texts, known)


def _array(column: Column) -> Any:
    import nanoarrow

    bits = None if column.known is None else np.packbits(column.known, bitorder="little")
    nulls = 0 if column.known is None else int((~column.known).sum())
    length, values = len(column), np.ascontiguousarray(column.values)
    buffers: list[Any]
    if column.texts is not None:
        texts = [column.texts[number].encode(errors="replace") for number in values.tolist()]
        ends = np.fromiter(accumulate(map(len, texts), initial=0), np.int64, length + 1)
        buffers = [bits, ends, b"".join(texts)]
    elif values.dtype == np.bool_:
        buffers = [bits, np.packbits(values.astype(np.uint8), bitorder="little")]
    else:
        buffers = [bits, values]
    return nanoarrow.c_array_from_buffers(_type(column), length, buffers, nulls)


def _type(column: Column) -> Any:
    import nanoarrow

    if column.texts is not None:
        return nanoarrow.large_string()
    kinds = {"int64": nanoarrow.int64, "float64": nanoarrow.float64, "bool": nanoarrow.bool_}
    return kinds[column.values.dtype.name]()
