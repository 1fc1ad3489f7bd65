"""The tables of the Python API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui.tables.table import ColumnSpec, ColumnTable, TableColumn, column_of

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
        """A column by its name, a row by its number, or some rows by a slice.

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
            number = range(len(self))[key]
        except TypeError:
            raise TypeError(
                f"{self.name} takes the name of a column, the number of a row or a slice, "
                f"not {type(key).__name__}."
            ) from None
        except IndexError:
            rows = "1 row" if len(self) == 1 else f"{len(self)} rows"
            raise IndexError(f"{self.name} has {rows}, and none at {key}.") from None
        (row,) = self.take(slice(number, number + 1))
        return row

    def __repr__(self) -> str:
        from fusetui.tables.drawn import table_repr

        return table_repr(self)

    def _repr_html_(self) -> str:
        from fusetui.tables.drawn import table_html

        return table_html(self)

    def where(self, query: str) -> Table:
        """The rows for which a query holds, as in `family = gemm and total_ns > 50us`;
        docs/tables.md has the grammar. Raises WrongQueryError."""
        from fusetui.tables.where import rows_where

        return self.take(rows_where(self, query))

    def to_pandas(self) -> pandas.DataFrame:
        """A dataframe of pandas; its columns of numbers are not copied. Raises
        MissingPackageError."""
        from fusetui.tables.dataframes import to_pandas

        return to_pandas(self)

    def to_polars(self) -> polars.DataFrame:
        """A dataframe of polars. Raises MissingPackageError."""
        from fusetui.tables.files import needed

        return needed("polars", "to_polars()").DataFrame(self)  # by Arrow

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """An ArrowArrayStream of int64, float64, bool and large_string, as a PyCapsule;
        another schema that is requested is not regarded."""
        from fusetui.tables.dataframes import stream_of

        return stream_of(self)

    def save(self, path: str, *, replace: bool = False) -> None:
        """Writes CSV, TSV, Markdown, JSON or Parquet, as the path ends, to a file that
        must not exist unless it is to be replaced. Raises CannotWriteError, MissingPackageError
        or UnknownFormatError, leaving nothing behind."""
        from fusetui.tables.files import save

        save(self, path, replace=replace)


def table_of(
    name: str, specs: Sequence[ColumnSpec], records: Sequence[Mapping[str, Any]]
) -> Table:
    """The table of some records; keys that are no columns are left out."""
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
    """Tables with the same columns one below the other, the name of its trace before
    each row. A column that is called so is renamed to `lines_file`."""
    first_table = tables[0][1]
    columns = [_file_column(tables, file)]
    for number, column in enumerate(first_table.columns):
        name = renamed(first_table.name, column.name, file)
        columns.append(_below(name, [table.columns[number] for _, table in tables]))
    left_out = []
    for trace_name, table in tables:
        left_out += [f"{trace_name}: {sentence}" for sentence in table.left_out]
    return replace(
        first_table,
        columns=tuple(columns),
        first=first_table.first | {file.name},
        left_out=tuple(left_out),
    )


def _file_column(tables: Sequence[tuple[str, Table]], file: ColumnSpec) -> TableColumn:
    """The name of its trace for each row of each table."""
    rows_of_tables = [len(table) for _, table in tables]
    numbers = np.arange(len(tables), dtype=np.int32)
    return TableColumn(
        name=file.name,
        values=np.repeat(numbers, rows_of_tables),
        texts=tuple(trace_name for trace_name, _ in tables),
    )


def renamed(table: str, column: str, file: ColumnSpec) -> str:
    """The name of a column behind the one of the file."""
    return f"{table}_{column}" if column == file.name else column


def _below(name: str, parts: Sequence[TableColumn]) -> TableColumn:
    """Columns of one kind, one below the other."""
    known = None
    if any(part.known is not None for part in parts):
        known = np.concatenate([part.has_value for part in parts])
    if parts[0].texts is None:
        values = np.concatenate([part.values for part in parts])
        return TableColumn(name=name, values=values, known=known)
    texts: list[str] = []
    numbers = []  # of the texts of all parts
    for part in parts:
        numbers.append(part.values + len(texts))
        texts += part.texts or ()
    values = np.concatenate(numbers).astype(np.int32)
    return TableColumn(name=name, values=values, texts=tuple(texts), known=known)
