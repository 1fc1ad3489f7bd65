"""Named columns of equal length, with integers, numbers, booleans or text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, Literal, Self

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui import Error
from fusetui.trace.model.arrays import Flags, Rows

Values = NDArray[np.integer] | NDArray[np.float64] | NDArray[np.bool_]
Kind = Literal["int", "float", "bool", "text"]
DTYPES: dict[Kind, type[np.generic]] = {
    "int": np.int64,
    "float": np.float64,
    "bool": np.bool_,
}
MAX_INT = 2**63
"""A column holds integers below it, from its negative on."""

MAX_FLOAT = 1e308
ROWS_AT_ONCE = 10_000
"""So many rows become objects of Python at once."""


class NoColumnError(Error, KeyError):
    """One plain sentence: which column a table does not have, and those that it has."""

    def __str__(self) -> str:
        """Return the sentence without the quotes that KeyError puts around it."""
        return str(self.args[0])


class ColumnSpec(msgspec.Struct, frozen=True):
    """What a column is, for every trace: its declaration in columns.txt. `optional`:
    some rows may have no value; `first`: a person sees it without asking for
    columns."""

    name: str
    kind: Kind
    meaning: str
    optional: bool = False
    first: bool = False


class TableColumn(msgspec.Struct, frozen=True, eq=False):
    """The values of a column: `values` of shape [rows]; of texts their numbers in
    `texts`. A row that `known` excludes has no value; None: all have one, in this trace
    and any other. How people see them is decided in drawn.py."""

    name: str
    values: Values
    texts: tuple[str, ...] | None = None
    known: Flags | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def kind(self) -> Kind:
        """The kind of the values. Raises TypeError for other types of numpy."""
        if self.texts is not None:
            return "text"
        for kind, dtype in DTYPES.items():
            if self.values.dtype == dtype:
                return kind
        raise TypeError(f"{self.name} has values of the type {self.values.dtype}.")

    @property
    def has_value(self) -> Flags:
        """A flag for each row: whether it has a value."""
        if self.known is None:
            return np.ones(len(self), dtype=np.bool_)
        return self.known

    def take(self, rows: Rows | slice) -> TableColumn:
        """Return some rows of the column, in the order of `rows`."""
        known = None if self.known is None else self.known[rows]
        return TableColumn(self.name, self.values[rows], self.texts, known)

    def to_list(self) -> list[Any]:
        """Return the values as Python has them: [3, None], ["gemm", None].

        None stands for a row without a value.
        """
        values: list[Any] = self.values.tolist()
        if self.texts is not None:
            values = [self.texts[number] for number in values]
        for row in np.flatnonzero(~self.has_value).tolist():
            values[row] = None
        return values

    def to_numpy(self) -> NDArray[Any]:
        """Return the values as numpy has them.

        Numbers are an array; a masked array if the column may have rows without a
        value. Texts are an array of objects, with None for a row without one.
        """
        if self.texts is not None:
            texts_and_none = np.array([*self.texts, None], dtype=object)
            index_of_none = len(self.texts)
            indices = np.where(self.has_value, self.values, index_of_none)
            return np.asarray(texts_and_none[indices])
        if self.known is None:
            return self.values
        return np.ma.MaskedArray(self.values, mask=~self.known)


class ColumnTable(msgspec.Struct, frozen=True, eq=False):
    """Columns of equal length."""

    name: str
    columns: tuple[TableColumn, ...]
    first: frozenset[str] = frozenset()
    """The columns that a person sees without asking for any."""
    left_out: tuple[str, ...] = ()
    """Sentences about what of the trace is in none of the rows of the whole table."""

    def __len__(self) -> int:
        return len(self.columns[0]) if self.columns else 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield each row as a dict, by the names of the columns."""
        for begin in range(0, len(self), ROWS_AT_ONCE):
            some_rows = slice(begin, begin + ROWS_AT_ONCE)
            values_of_columns = []
            for column in self.columns:
                values_of_columns.append(column.take(some_rows).to_list())
            for values_of_row in zip(*values_of_columns, strict=True):
                yield dict(zip(self.names, values_of_row, strict=True))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in their order."""
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> TableColumn:
        """Return the column with this name, with or without its unit: `dur` is
        `dur_ns`. Raises NoColumnError."""
        column_by_name = {column.name: column for column in self.columns}
        for full_name in (name, f"{name}_ns"):
            if full_name in column_by_name:
                return column_by_name[full_name]
        if name == "file":
            raise NoColumnError(
                f"{self.name} has no column file: only rows of several traces have one."
            )
        hint = f", only {', '.join(self.names)}."
        for similar in get_close_matches(name, self.names, n=1):
            hint = f": did you mean {similar}?"
        raise NoColumnError(f"{self.name} has no column {name}{hint}")

    def select(self, names: str | Iterable[str], *more: str) -> Self:
        """Return a table with only these columns, in this order, each once.

        Names are given as `select("name", "count")` or `select(["name", "count"])`.
        Raises NoColumnError.
        """
        first_names = [names] if isinstance(names, str) else list(names)
        distinct_names = dict.fromkeys([*first_names, *more])  # in their order
        columns = tuple(self.column(name) for name in distinct_names)
        return replace(
            self,
            columns=columns,
            first=frozenset(column.name for column in columns),
        )

    def take(self, rows: Rows | slice) -> Self:
        """Return a table with some of the rows, in the order of `rows`."""
        columns = tuple(column.take(rows) for column in self.columns)
        return replace(self, columns=columns)

    def top(self, number: int) -> Self:
        """Return a table with the first rows. Raises ValueError for a negative number."""
        if number < 0:
            raise ValueError(f"top takes the number of rows, not {number}.")
        return self.take(slice(0, number))

    def sort(self, name: str, *, descending: bool | None = None) -> Self:
        """Sort the table by one column; rows without a value come last.

        Texts are sorted from a to z, other values from the largest on, unless
        `descending` says otherwise. Raises NoColumnError.
        """
        column = self.column(name)
        sort_keys = column.values
        if column.texts is not None:
            sort_keys = _rank_texts(column.texts)[column.values]
        if descending is None:
            descending = column.texts is None

        if descending:
            order = _stable_descending(sort_keys)
        else:
            order = np.argsort(sort_keys, kind="stable")
        with_value = order[column.has_value[order]]
        without_value = np.flatnonzero(~column.has_value)
        return self.take(np.concatenate([with_value, without_value]))


def _stable_descending(values: Values) -> Rows:
    """Return the indices that sort values from the largest on; equal values stay in
    their order: [5, 9, 5] gives [1, 0, 2]."""
    # Sorting backwards what is then reversed keeps the order of equal values.
    ascending_backwards = np.argsort(values[::-1], kind="stable")[::-1]
    return len(values) - 1 - ascending_backwards


def _rank_texts(texts: Sequence[str]) -> Rows:
    """Return the rank of each text in alphabetical order: ["b", "c", "a"] gives
    [1, 2, 0]."""
    sorted_numbers = sorted(range(len(texts)), key=texts.__getitem__)
    return np.argsort(sorted_numbers)


def column_of(spec: ColumnSpec, values: Sequence[Any]) -> TableColumn:
    """Make a column of values of Python.

    Args:
        spec: What the column is. In a column of texts, a value that is no text is
            written as JSON.
        values: A value for each row. None means that the row has none; so does a number
            that the type of the column cannot hold.
    """
    if spec.kind == "text":
        return _text_column(spec, values)

    storable_values: list[Any] = list(values)
    if spec.kind == "int":
        storable_values = [_int_or_none(value) for value in values]
    elif spec.kind == "float":
        storable_values = [_float_or_none(value) for value in values]
    zeros_for_none = [0 if value is None else value for value in storable_values]
    return TableColumn(
        name=spec.name,
        values=np.array(zeros_for_none, dtype=DTYPES[spec.kind]),
        known=_mark_values(spec, storable_values),
    )


def _text_column(spec: ColumnSpec, values: Sequence[Any]) -> TableColumn:
    """Make a column of texts, of which each distinct one is stored once.

    ["a", "b", "a"] has the texts ("a", "b") and the values [0, 1, 0].
    """
    number_of_text: dict[str, int] = {}
    numbers_of_rows = []
    for value in values:
        text = _value_as_text(value)
        numbers_of_rows.append(number_of_text.setdefault(text, len(number_of_text)))
    return TableColumn(
        name=spec.name,
        values=np.array(numbers_of_rows, dtype=np.int32),
        texts=tuple(number_of_text),
        known=_mark_values(spec, values),
    )


def _mark_values(spec: ColumnSpec, values: Sequence[Any]) -> Flags | None:
    """Return which rows have a value: all that are not None.

    It is None if all have one, and the declaration says that this is so in every trace.
    """
    known = np.array([value is not None for value in values], dtype=np.bool_)
    if not spec.optional and known.all():
        return None
    return known


def _value_as_text(value: object) -> str:
    """Return a value as a text: "" for None, "gemm" for "gemm", "[2,3]" for [2, 3]."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _int_or_none(value: float | None) -> int | None:
    """Convert a number to an integer; None if it is None or does not fit into 64 bits."""
    if value is None or not -MAX_INT <= value < MAX_INT:
        return None
    return int(value)


def _float_or_none(value: float | None) -> float | None:
    """Convert a number to a float; None if it is None, infinite, NaN or too large."""
    if value is None or not abs(value) < MAX_FLOAT:
        return None
    return float(value)
