"""Named columns of equal length, of integers, numbers, truths or texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
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
LARGEST = 2**63
AT_ONCE = 10_000  # rows that are taken apart at once


class NoColumn(Error, KeyError):  # noqa: N818
    """One plain sentence: which column a table does not have, and those that it has."""

    def __str__(self) -> str:
        return str(self.args[0])


class Spec(msgspec.Struct, frozen=True):
    """What a column is. `optional`: some rows may have no value; `first`: a person sees
    it without asking for columns."""

    name: str
    kind: Kind
    meaning: str
    optional: bool = False
    first: bool = False


class TableColumn(msgspec.Struct, frozen=True, eq=False):
    """`values` of shape [rows]; of texts their numbers in `texts`. A row that `known`
    excludes has no value; None: all have one, in this trace and any other."""

    name: str
    values: Values
    texts: tuple[str, ...] | None = None
    known: Flags | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def kind(self) -> Kind:
        if self.texts is not None:
            return "text"
        return next(
            kind for kind, dtype in DTYPES.items() if self.values.dtype == dtype
        )

    @property
    def there(self) -> Flags:
        """Which rows have a value."""
        return np.ones(len(self), dtype=np.bool_) if self.known is None else self.known

    def take(self, rows: Rows | slice) -> TableColumn:
        """Some rows, in this order."""
        known = None if self.known is None else self.known[rows]
        return TableColumn(self.name, self.values[rows], self.texts, known)

    def to_list(self) -> list[Any]:
        """Each value as Python has it, None for none."""
        found: list[Any] = self.values.tolist()
        if self.texts is not None:
            found = [self.texts[number] for number in found]
        if self.known is not None:
            is_known = self.known.tolist()
            found = [
                value if there else None
                for value, there in zip(found, is_known, strict=True)
            ]
        return found

    def to_numpy(self) -> NDArray[Any]:
        """Numbers as they are, a masked array where some may be missing; of texts an
        array of objects, with None for none."""
        if self.texts is None and self.known is None:
            return self.values
        if self.texts is None:
            return np.ma.MaskedArray(self.values, ~self.there)
        found = np.array([*self.texts, None], dtype=object)[
            np.where(self.there, self.values, -1)
        ]
        return np.asarray(found)


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
        for begin in range(0, len(self), AT_ONCE):
            part = slice(begin, begin + AT_ONCE)
            lists = [column.take(part).to_list() for column in self.columns]
            yield from (
                dict(zip(self.names, row, strict=True))
                for row in zip(*lists, strict=True)
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in their order."""
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> TableColumn:
        """The column of this name, which may be without its unit (`dur`). Raises
        NoColumn."""
        for called in (name, f"{name}_ns"):
            for column in self.columns:
                if column.name == called:
                    return column
        if name == "file":
            raise NoColumn(
                f"{self.name} has no column file: only rows of several traces have one."
            )
        near = get_close_matches(name, self.names, 1)
        known = (
            f": did you mean {near[0]}?" if near else f", only {', '.join(self.names)}."
        )
        raise NoColumn(f"{self.name} has no column {name}{known}")

    def select(self, names: str | Iterable[str], *more: str) -> Self:
        """These columns, in this order, each once: `select("name")`, `select("name",
        "count")` or `select(["name", "count"])`. Raises NoColumn."""
        asked = (names, *more) if isinstance(names, str) else (*names, *more)
        columns = tuple(map(self.column, dict.fromkeys(asked)))
        return replace(self, columns=columns, first=frozenset(c.name for c in columns))

    def take(self, rows: Rows | slice) -> Self:
        """Some rows, in this order."""
        return replace(
            self, columns=tuple(column.take(rows) for column in self.columns)
        )

    def top(self, number: int) -> Self:
        """The first rows. Raises ValueError for a negative number."""
        if number < 0:
            raise ValueError(f"top takes the number of rows, not {number}.")
        return self.take(slice(0, number))

    def sort(self, name: str, *, descending: bool | None = None) -> Self:
        """By one column, texts from a to z and others from the largest on, unless
        `descending` says otherwise; rows without a value last. Raises NoColumn."""
        column = self.column(name)
        down = column.kind != "text" if descending is None else descending
        rows, ranks = np.arange(len(column)), column.values
        if (texts := column.texts) is not None:  # their places in the alphabet
            places = np.argsort(sorted(range(len(texts)), key=texts.__getitem__))
            ranks = places[column.values]
        order = np.argsort(ranks, kind="stable")
        if down:  # equal ones stay in their order
            order = rows[::-1][np.argsort(ranks[::-1], kind="stable")][::-1]
        there = column.there[order]
        return self.take(np.concatenate([order[there], rows[~column.there]]))


def column_of(spec: Spec, values: Sequence[Any]) -> TableColumn:
    """None stands for none, as does a number that the type cannot hold."""
    numbers: dict[str, int] = {}
    if spec.kind == "text":
        of_text = [numbers.setdefault(_text(value), len(numbers)) for value in values]
        array: Values = np.array(of_text, dtype=np.int32)
    else:
        fit = FIT[spec.kind]
        values = [None if value is None else fit(value) for value in values]
        array = np.array([value or 0 for value in values], dtype=DTYPES[spec.kind])
    known = np.array([value is not None for value in values], dtype=np.bool_)
    is_always_there = not spec.optional and known.all()
    texts = tuple(numbers) if spec.kind == "text" else None
    return TableColumn(spec.name, array, texts, None if is_always_there else known)


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


FIT: dict[Kind, Callable[[Any], float | None]] = {
    "int": lambda value: int(value) if -LARGEST <= value < LARGEST else None,
    "float": lambda value: float(value) if abs(value) < 1e308 else None,
    "bool": bool,
}
