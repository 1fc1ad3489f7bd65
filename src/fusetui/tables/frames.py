"""Tables as dataframes of packages that fusetui does not need itself."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from fusetui import Error
from fusetui.tables.table import ColumnTable, TableColumn


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
