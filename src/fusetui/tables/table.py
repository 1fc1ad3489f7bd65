"""A table: named columns of equal length, of integers, numbers, truths or texts.

The names of the columns are the keys of `--json`; those of a record inside a row follow its own
after a dot (`decoded.family`), and a list is its JSON. Times are int64 with `_ns` in the name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.arrays import Rows

Values = NDArray[np.int64] | NDArray[np.float64] | NDArray[np.bool_] | NDArray[np.int32]
LARGEST = 2**63


class Column(msgspec.Struct, frozen=True, eq=False):
    """`values` of shape [rows]; of texts their numbers in `texts`. A row that `known` excludes has
    no value; None: all have one."""

    name: str
    values: Values
    texts: tuple[str, ...] | None = None
    known: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: Rows) -> Column:
        """Some rows, in this order."""
        known = None if self.known is None else self.known[rows]
        return Column(self.name, self.values[rows], self.texts, known)

    def to_list(self) -> list[Any]:
        """Each value as Python has it, None for none."""
        found: list[Any] = self.values.tolist()
        if self.texts is not None:
            found = [self.texts[number] for number in found]
        if self.known is not None:
            is_known = self.known.tolist()
            found = [value if there else None for value, there in zip(found, is_known, strict=True)]
        return found

    @property
    def ranks(self) -> NDArray[Any]:
        """Numbers in the order of the values: of texts, their places in the alphabet."""
        if self.texts is None:
            return self.values
        order = np.argsort(np.array(self.texts, dtype=object), kind="stable")
        places = np.empty(len(order), dtype=np.int64)
        places[order] = np.arange(len(order))
        return places[self.values]


class Table(msgspec.Struct, frozen=True, eq=False):
    """Columns of equal length."""

    name: str
    columns: tuple[Column, ...]

    def __len__(self) -> int:
        return len(self.columns[0]) if self.columns else 0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> Column:
        """Raises KeyError, with the names that there are."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(f"{self.name} has no column {name}: there are {', '.join(self.names)}")

    def select(self, names: Iterable[str]) -> Table:
        """These columns, in this order. Raises KeyError."""
        return Table(self.name, tuple(map(self.column, names)))

    def take(self, rows: Rows) -> Table:
        """Some rows, in this order."""
        return Table(self.name, tuple(column.take(rows) for column in self.columns))

    def sort(self, name: str, *, largest_first: bool = True) -> Table:
        """By one column; rows without a value last. Raises KeyError."""
        column = self.column(name)
        ranks = column.ranks.astype(np.float64) if column.values.dtype == bool else column.ranks
        order = np.argsort(-ranks if largest_first else ranks, kind="stable")
        if column.known is not None:
            order = np.concatenate([order[column.known[order]], order[~column.known[order]]])
        return self.take(order)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each row by the names of the columns."""
        lists = [column.to_list() for column in self.columns]
        return (dict(zip(self.names, row, strict=True)) for row in zip(*lists, strict=True))


def table_of(name: str, records: Sequence[Mapping[str, Any]], names: Sequence[str] = ()) -> Table:
    """The table of some records, in whose order columns appear; `names` are those that it has even
    if no record has them."""
    rows = [dict(_flat(record)) for record in records]
    every = dict.fromkeys(names)
    for row in rows:
        every.update(dict.fromkeys(row))
    return Table(name, tuple(column_of(key, [row.get(key) for row in rows]) for key in every))


def column_of(name: str, values: Sequence[Any]) -> Column:
    """The column of some values, None for none: of one type, else of their texts."""
    known = np.array([value is not None for value in values], dtype=np.bool_)
    there = [value for value in values if value is not None]
    missing = None if known.all() else known
    if all(type(value) is bool for value in there) and there:
        return Column(name, _filled(values, False, np.bool_), None, missing)
    if all(type(value) is int and -LARGEST <= value < LARGEST for value in there) and there:
        return Column(name, _filled(values, 0, np.int64), None, missing)
    if all(type(value) in (int, float) for value in there) and there:
        return Column(name, _filled(values, np.nan, np.float64), None, missing)
    numbers: dict[str, int] = {}
    texts = [numbers.setdefault(_text(value), len(numbers)) for value in values]
    return Column(name, np.array(texts, dtype=np.int32), tuple(numbers), missing)


def _filled(values: Sequence[Any], blank: float, dtype: type) -> NDArray[Any]:
    return np.array([blank if value is None else value for value in values], dtype=dtype)


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _flat(record: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Its values, and those of the records in it."""
    for key, value in record.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield before + key, value
