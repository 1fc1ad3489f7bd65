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
        """Which rows have a value."""
        if self.known is None:
            return np.ones(len(self), dtype=np.bool_)
        return self.known

    def take(self, rows: Rows | slice) -> TableColumn:
        """Some rows, in this order."""
        known = None if self.known is None else self.known[rows]
        return TableColumn(self.name, self.values[rows], self.texts, known)

    def to_list(self) -> list[Any]:
        """Each value as Python has it, None for none."""
        values: list[Any] = self.values.tolist()
        if self.texts is not None:
            values = [self.texts[number] for number in values]
        if self.known is None:
            return values
        return [
            value if is_known else None
            for value, is_known in zip(values, self.known.tolist(), strict=True)
        ]

    def to_numpy(self) -> NDArray[Any]:
        """Numbers as they are, a masked array where some may be missing; of texts an
        array of objects, with None for none."""
        if self.texts is None and self.known is None:
            return self.values
        if self.texts is None:
            return np.ma.MaskedArray(self.values, ~self.has_value)
        texts = np.array([*self.texts, None], dtype=object)
        no_text = len(self.texts)
        numbers = np.where(self.has_value, self.values, no_text)
        return np.asarray(texts[numbers])


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
        """Each row, by the names of the columns."""
        names = self.names
        for begin in range(0, len(self), ROWS_AT_ONCE):
            part = slice(begin, begin + ROWS_AT_ONCE)
            columns = [column.take(part).to_list() for column in self.columns]
            for row in zip(*columns, strict=True):
                yield dict(zip(names, row, strict=True))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in their order."""
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> TableColumn:
        """The column of this name, which may be without its unit (`dur`). Raises
        NoColumnError."""
        for full_name in (name, f"{name}_ns"):
            for column in self.columns:
                if column.name == full_name:
                    return column
        if name == "file":
            raise NoColumnError(
                f"{self.name} has no column file: only rows of several traces have one."
            )
        hint = f", only {', '.join(self.names)}."
        for similar in get_close_matches(name, self.names, n=1):
            hint = f": did you mean {similar}?"
        raise NoColumnError(f"{self.name} has no column {name}{hint}")

    def select(self, names: str | Iterable[str], *more: str) -> Self:
        """These columns, in this order, each once: `select("name")`, `select("name",
        "count")` or `select(["name", "count"])`. Raises NoColumnError."""
        chosen = (names, *more) if isinstance(names, str) else (*names, *more)
        columns = tuple(self.column(name) for name in dict.fromkeys(chosen))
        return replace(
            self,
            columns=columns,
            first=frozenset(column.name for column in columns),
        )

    def take(self, rows: Rows | slice) -> Self:
        """Some rows, in this order."""
        columns = tuple(column.take(rows) for column in self.columns)
        return replace(self, columns=columns)

    def top(self, number: int) -> Self:
        """The first rows. Raises ValueError for a negative number."""
        if number < 0:
            raise ValueError(f"top takes the number of rows, not {number}.")
        return self.take(slice(0, number))

    def sort(self, name: str, *, descending: bool | None = None) -> Self:
        """By one column, texts from a to z and others from the largest on, unless
        `descending` says otherwise; rows without a value last. Raises NoColumnError."""
        column = self.column(name)
        is_down = column.kind != "text" if descending is None else descending
        values = column.values
        if column.texts is not None:
            values = _places_in_alphabet(column.texts)[values]
        if is_down:  # equal ones stay in their order
            ascending_backwards = np.argsort(values[::-1], kind="stable")[::-1]
            order = len(values) - 1 - ascending_backwards
        else:
            order = np.argsort(values, kind="stable")
        with_value = order[column.has_value[order]]
        without_value = np.flatnonzero(~column.has_value)
        return self.take(np.concatenate([with_value, without_value]))


def _places_in_alphabet(texts: Sequence[str]) -> Rows:
    """At which place each text stands; shape [texts]."""
    sorted_numbers = sorted(range(len(texts)), key=texts.__getitem__)
    return np.argsort(sorted_numbers)


def column_of(spec: ColumnSpec, values: Sequence[Any]) -> TableColumn:
    """The column of these values of Python. None stands for none, as does a number that
    the type cannot hold. A text that is none yet is written as JSON."""
    if spec.kind == "text":
        return _text_column(spec, values)
    if spec.kind == "int":
        values = [_int_or_none(value) for value in values]
    elif spec.kind == "float":
        values = [_float_or_none(value) for value in values]
    with_zeros = [value or 0 for value in values]
    array = np.array(with_zeros, dtype=DTYPES[spec.kind])
    return TableColumn(name=spec.name, values=array, known=_known(spec, values))


def _text_column(spec: ColumnSpec, values: Sequence[Any]) -> TableColumn:
    """A column of texts, each distinct one once."""
    numbers: dict[str, int] = {}  # of each distinct text, in the order of the first
    numbers_of_rows = []
    for value in values:
        text = _text(value)
        numbers_of_rows.append(numbers.setdefault(text, len(numbers)))
    return TableColumn(
        name=spec.name,
        values=np.array(numbers_of_rows, dtype=np.int32),
        texts=tuple(numbers),
        known=_known(spec, values),
    )


def _known(spec: ColumnSpec, values: Sequence[Any]) -> Flags | None:
    """Which rows have a value; None where every row of every trace has one."""
    known = np.array([value is not None for value in values], dtype=np.bool_)
    if not spec.optional and known.all():
        return None
    return known


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _int_or_none(value: float | None) -> int | None:
    """None for what a column of integers cannot hold."""
    if value is None or not -MAX_INT <= value < MAX_INT:
        return None
    return int(value)


def _float_or_none(value: float | None) -> float | None:
    """None for what a column of numbers cannot hold, as infinity."""
    if value is None or not abs(value) < MAX_FLOAT:
        return None
    return float(value)
