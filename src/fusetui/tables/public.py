"""The tables of the Python API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui.tables.table import ColumnSpec, ColumnTable, TableColumn, column_of
from fusetui.trace.model.arrays import numbers_of_sized_groups

if TYPE_CHECKING:
    import pandas
    import polars


class Table(ColumnTable, frozen=True, eq=False):
    """Named columns of equal length. Dataframes take it as it is, by the Arrow
    PyCapsule interface; iteration gives each row as a dict."""

    @overload
    def __getitem__(self, key: str) -> NDArray[Any]: ...
    @overload
    def __getitem__(self, key: SupportsIndex) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: slice) -> Table: ...

    def __getitem__(
        self, key: str | SupportsIndex | slice
    ) -> NDArray[Any] | dict[str, Any] | Table:
        """Return a column by its name, a row by its number, or some rows by a slice.

        A column is as numpy has it: numbers as an array, a masked one where some may be
        missing; texts as an array of objects, with None for none. A row is a dict, as
        iteration gives it; a negative number counts from the end. Raises NoColumnError,
        IndexError and TypeError.
        """
        if isinstance(key, str):
            return self.column(key).to_numpy()
        if isinstance(key, slice):
            return self.take(key)
        try:
            number = range(len(self))[key]  # counts from the end, too
        except TypeError:
            raise TypeError(
                f"{self.name} takes the name of a column, the number of a row or a slice, "
                f"not {type(key).__name__}."
            ) from None
        except IndexError:
            rows = "1 row" if len(self) == 1 else f"{len(self)} rows"
            raise IndexError(f"{self.name} has {rows}, and none at {key}.") from None
        only_row = self.take(slice(number, number + 1))
        return next(iter(only_row))

    def __repr__(self) -> str:
        """Return the size of the table and its first rows, for the Python prompt."""
        from fusetui.tables.drawn import table_repr

        return table_repr(self)

    def _repr_html_(self) -> str:
        """Return the first rows of the table as HTML, for notebooks."""
        from fusetui.tables.drawn import table_html

        return table_html(self)

    def where(self, query: str) -> Table:
        """Return the rows for which a query holds, such as `family = gemm and total_ns
        > 50us`. docs/tables.md has the grammar. Raises WrongQueryError, and
        NoColumnError for an unknown column."""
        from fusetui.tables.where import rows_where

        return self.take(rows_where(self, query))

    def to_pandas(self) -> pandas.DataFrame:
        """Convert the table to a dataframe of pandas; columns of numbers are not
        copied. Raises MissingPackageError without pandas."""
        from fusetui.tables.dataframes import to_pandas

        return to_pandas(self)

    def to_polars(self) -> polars.DataFrame:
        """Convert the table to a dataframe of polars. Raises MissingPackageError
        without polars."""
        from fusetui.tables.files import import_optional

        return import_optional("polars", "to_polars()").DataFrame(self)  # by Arrow

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the table as an ArrowArrayStream of int64, float64, bool and
        large_string columns, in a PyCapsule. A requested schema is ignored."""
        from fusetui.tables.dataframes import stream_of

        return stream_of(self)

    def save(self, path: str, *, replace: bool = False) -> None:
        """Write the table as CSV, TSV, Markdown, JSON or Parquet, as the ending of
        `path` says.

        The file must not exist unless `replace` is True. Raises CannotWriteError,
        MissingPackageError or UnknownFormatError, leaving nothing behind.
        """
        from fusetui.tables.files import save

        save(self, path, replace=replace)


def table_of(
    name: str, specs: Sequence[ColumnSpec], records: Sequence[Mapping[str, Any]]
) -> Table:
    """Make a table with a row for each record.

    Args:
        name: What the table is called.
        specs: Its columns. A record without the name of a column has no value there.
        records: Values by the names of columns. Other keys are ignored.
    """
    columns = []
    for spec in specs:
        values = [record.get(spec.name) for record in records]
        columns.append(column_of(spec, values))
    return Table(
        name=name,
        columns=tuple(columns),
        first=frozenset(spec.name for spec in specs if spec.first),
    )


def with_files(tables: Sequence[tuple[str, Table]], file: ColumnSpec) -> Table:
    """Put the tables of several traces one below the other.

    The first column says which trace a row is of. A column of the tables that has the
    same name is renamed: `file` of the table `lines` becomes `lines_file`.

    Args:
        tables: The name of each trace and its table, all with the same columns; at
            least one.
        file: The column with the names of the traces.
    """
    _, first_table = tables[0]
    columns = [_file_column(tables, file)]
    for number, column in enumerate(first_table.columns):
        name = name_beside_file(first_table.name, column.name, file)
        columns_of_tables = [table.columns[number] for _, table in tables]
        columns.append(_stack_columns(name, columns_of_tables))
    left_out = []
    for trace_name, table in tables:
        for sentence in table.left_out:
            left_out.append(f"{trace_name}: {sentence}")
    return replace(
        first_table,
        columns=tuple(columns),
        first=first_table.first | {file.name},
        left_out=tuple(left_out),
    )


def _file_column(tables: Sequence[tuple[str, Table]], file: ColumnSpec) -> TableColumn:
    """Return the column that says which trace a row is of: for tables of 2 and 1 rows,
    ["a.json", "a.json", "b.json"]."""
    rows_of_tables = np.array([len(table) for _, table in tables])
    return TableColumn(
        name=file.name,
        values=numbers_of_sized_groups(rows_of_tables).astype(np.int32),
        texts=tuple(trace_name for trace_name, _ in tables),
    )


def name_beside_file(table: str, column: str, file: ColumnSpec) -> str:
    """Return the name of a column in a table that also has a column for the file. A
    column with the same name is prefixed by the name of its table."""
    return f"{table}_{column}" if column == file.name else column


def _stack_columns(name: str, parts: Sequence[TableColumn]) -> TableColumn:
    """Concatenate columns of one kind.

    Args:
        name: The name of the result.
        parts: The columns; at least one.
    """
    known = None
    if any(part.known is not None for part in parts):
        known = np.concatenate([part.has_value for part in parts])
    if parts[0].texts is None:
        values = np.concatenate([part.values for part in parts])
        return TableColumn(name=name, values=values, known=known)
    # Each part numbers its texts from 0, the result those of all parts.
    all_texts: list[str] = []
    text_numbers = []
    for part in parts:
        texts_before = len(all_texts)
        text_numbers.append(part.values + texts_before)
        all_texts += part.texts or ()
    values = np.concatenate(text_numbers).astype(np.int32)
    return TableColumn(name=name, values=values, texts=tuple(all_texts), known=known)
