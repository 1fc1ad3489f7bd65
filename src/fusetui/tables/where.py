"""Which rows of a table a query holds for, in the grammar of the search of the app.

A field is a column; `dur` and others stand for what a table has of them. A word is
looked for in all texts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from fusetui.analysis.questions.query import (
    COMPARED,
    Word,
    bound_of,
    matching,
    pattern_of,
    word_of,
)
from fusetui.analysis.questions.query_text import Written, WrongQueryError, written_ways
from fusetui.gpu.kinds import LEGEND_ONLY_KINDS, searched_kinds
from fusetui.tables.table import ColumnTable, TableColumn
from fusetui.text.figures import parse_time
from fusetui.trace.model.arrays import Flags, Rows

FIRST_OF = {"dur": ("dur_ns", "total_ns"), "at": ("start_ns",)}
"""What a field stands for where no column is called so: the first of these that there
is."""
ANY_OF = {
    "library": ("family",),
    "family": ("family", "kernel_op", "collective"),
    "dtype": ("dtype", "dtype_a", "dtype_b", "dtype_acc", "dtype_out"),
    "arch": ("arch", "arch_name"),
}
"""As in the search of the app, a field of a kernel's name may be any of these."""
HAS_KERNEL_NAMES = frozenset({"name", "short", "kernel_op"})
"""The columns of a table whose rows are kernels, or slices that may be kernels."""
SLICES_WITH_WORK = ("kernel", "memcpy", "memset", "device")
"""The kinds of slices whose names say what a device did."""
IDS = ("process", "thread", "device", "stream")
"""A value is all of these: stream:7 is not 17."""


def rows_where(table: ColumnTable, query: str) -> Rows:
    """In the order of the table. Raises WrongQueryError, and NoColumnError for a field
    that it has not."""
    ways = written_ways(query, lambda *_: True)
    known = {part: _holds(table, part) for way in ways for part in way}
    holds = np.full(len(table), not ways)
    for way in ways:
        holds |= np.logical_and.reduce([known[part] for part in way])
    return np.flatnonzero(holds)


def _holds(table: ColumnTable, part: Written) -> Flags:
    pattern = pattern_of(part)
    if pattern:
        matches = partial(matching, pattern.text)
        flags = _any(table, partial(_of_texts, test=matches))
    elif not part.field:
        word = Word("", part.text.strip('"') or part.text)
        flags = _any(table, partial(_contains, word=word))
    else:
        first_column, *more_columns = _columns(table, part.field)
        if part.sign in COMPARED:
            return _compared(first_column, part)
        flags = _is(first_column, part)
        for column in more_columns:
            flags = flags | _is(column, part)
        is_kind = part.field == "family" and part.value in LEGEND_ONLY_KINDS
        if is_kind or part.field == "kind":
            flags = flags | _is_of_kind(table, part)
    is_negated = part.excluded ^ (part.sign == "!=")
    return flags ^ is_negated


def _is_of_kind(table: ColumnTable, part: Written) -> Flags:
    """The rows of kernels, copies and sets that do work of this kind; none where the
    table does not name them."""
    if not HAS_KERNEL_NAMES.issubset(table.names):
        return np.zeros(len(table), dtype=np.bool_)

    def are_of_kind(names: tuple[str, ...]) -> Flags:
        return np.array(
            [part.value in searched_kinds(name) for name in names], np.bool_
        )

    is_of_kind = _of_texts(table.column("name"), are_of_kind)
    if "kind" in table.names:  # of all slices, not of kernels alone
        is_of_kind &= _of_texts(
            table.column("kind"), lambda kinds: np.isin(kinds, SLICES_WITH_WORK)
        )
        if part.value == "copy":
            is_of_kind |= _of_texts(
                table.column("kind"), lambda kinds: np.isin(kinds, ("memcpy", "memset"))
            )
    return is_of_kind


def _columns(table: ColumnTable, field: str) -> list[TableColumn]:
    """Those that a field stands for, at least one."""
    any_of = [name for name in ANY_OF.get(field, (field,)) if name in table.names]
    if not any_of and field == "kind" and HAS_KERNEL_NAMES.issubset(table.names):
        any_of = ["kernel_op"]
    if any_of:
        return [table.column(name) for name in any_of]
    for name in FIRST_OF.get(field, ()):
        if name in table.names:
            return [table.column(name)]
    return [table.column(field)]  # without its unit, or there is none


def _compared(column: TableColumn, part: Written) -> Flags:
    """A row without a value is neither above nor below; `-` finds it, as all for which
    the rest does not hold."""
    if column.kind not in ("int", "float"):
        raise WrongQueryError(
            f"{part.field} is a text: {part.field}:{part.value or '...'} looks for it"
        )
    bound = bound_of(part, _number(column, part))
    flags = column.values > bound.value if bound.above else column.values < bound.value
    return ((flags ^ bound.excluded ^ part.excluded) & column.has_value) ^ part.excluded


def _is(column: TableColumn, part: Written) -> Flags:
    if column.kind == "text":
        sign = "=" if column.name in IDS or part.sign == "!=" else part.sign
        return _contains(
            column, word_of(Written(part.text, False, sign=sign), part.value)
        )
    if column.kind == "bool":
        if part.value not in ("true", "false"):
            raise WrongQueryError(f"{part.field} is true or false: {part.field} = true")
        return np.equal(column.values, part.value == "true") & column.has_value
    return np.equal(column.values, _number(column, part)) & column.has_value


def _number(column: TableColumn, part: Written) -> float:
    """A number; of a column in ns also a time with its unit. Raises WrongQueryError."""
    is_time = column.name.endswith("_ns")
    ns = parse_time(part.value) if is_time else None
    try:
        value = float(part.value) if ns is None else ns
    except ValueError:
        value = math.nan
    if math.isfinite(value):
        return int(value) if value == int(value) else value
    if is_time:
        example = "50us"
    else:
        example = "0.5" if column.kind == "float" else "10"
    raise WrongQueryError(
        f"{part.field} is followed by a number: {part.field} > {example}"
    )


def _contains(column: TableColumn, word: Word) -> Flags:
    return _of_texts(
        column, lambda texts: np.array([*map(word.holds, texts)], dtype=np.bool_)
    )


def _of_texts(column: TableColumn, test: Callable[[tuple[str, ...]], Flags]) -> Flags:
    """The rows whose text passes; each text is tested once."""
    if not len(column):
        return np.zeros(0, dtype=np.bool_)
    flags: Flags = test(column.texts or ())[column.values] & column.has_value
    return flags


def _any(table: ColumnTable, test: Callable[[TableColumn], Flags]) -> Flags:
    """The rows of which some text passes."""
    passes = np.zeros(len(table), dtype=np.bool_)
    for column in table.columns:
        if column.kind == "text":
            passes |= test(column)
    return passes
