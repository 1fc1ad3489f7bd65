"""Finds the rows of a table that match a query, in the grammar of the app's search.

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
    match_names,
    parse_pattern,
    parse_word,
)
from fusetui.analysis.questions.query_text import (
    WrittenTerm,
    WrongQueryError,
    parse_alternatives,
)
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
COMPARISONS = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
IDS = ("process", "thread", "device", "stream")
"""A value is all of these: stream:7 is not 17."""


def rows_where(table: ColumnTable, query: str) -> Rows:
    """Return the rows of a table for which a query holds, ascending.

    "family = gemm and total_ns > 50us or name:nccl" has two alternatives, of which the
    first has two parts: a row needs all parts of some alternative. An empty query holds
    for all rows.

    Raises WrongQueryError for what is no query, and NoColumnError for a field that the
    table has not.
    """
    alternatives = parse_alternatives(query, lambda *_: True)
    if not alternatives:
        return np.arange(len(table))

    holds_of_part: dict[
        WrittenTerm, Flags
    ] = {}  # a part may be in several alternatives
    query_holds = np.zeros(len(table), dtype=np.bool_)
    for parts in alternatives:
        alternative_holds = np.ones(len(table), dtype=np.bool_)
        for part in parts:
            if part not in holds_of_part:
                holds_of_part[part] = _part_holds(table, part)
            alternative_holds &= holds_of_part[part]
        query_holds |= alternative_holds
    return np.flatnonzero(query_holds)


def _part_holds(table: ColumnTable, part: WrittenTerm) -> Flags:
    """Tell of each row whether one part of a query holds for it.

    Args:
        table: The table.
        part: A pattern (/gemm.*/) or a word, which are looked for in all texts; a
            comparison (total_ns > 50us); or a field with a value (family:gemm). Each may
            be negated.
    """
    pattern = parse_pattern(part)
    if pattern:
        matches = partial(match_names, pattern.text)
        holds = _any_text(table, partial(_test_texts, test=matches))
    elif not part.field:
        word = Word("", part.text.strip('"') or part.text)
        holds = _any_text(table, partial(_contains_word, word=word))
    elif part.sign in COMPARED:
        first_column, *_ = _columns_of_field(table, part.field)
        holds = _comparison_holds(first_column, part)
    else:
        holds = _field_has_value(table, part)

    # `-a!=b` is negated twice.
    is_negated = part.excluded != (part.sign == "!=")
    return ~holds if is_negated else holds


def _field_has_value(table: ColumnTable, part: WrittenTerm) -> Flags:
    """Tell of each row whether a field has the value of a part, such as family:gemm.

    Whether the part is negated does not matter here.
    """
    has_value = np.zeros(len(table), dtype=np.bool_)
    for column in _columns_of_field(table, part.field):
        has_value |= _equals_or_contains(column, part)
    is_kind = part.field == "family" and part.value in LEGEND_ONLY_KINDS
    if is_kind or part.field == "kind":
        has_value |= _is_of_kind(table, part)
    return has_value


def _is_of_kind(table: ColumnTable, part: WrittenTerm) -> Flags:
    """Tell of each row whether its kernel, copy or set does work of a kind: `gemm`.

    The name of the row decides. A table without names of kernels gives False.

    Args:
        table: The table.
        part: The part of the query whose value is the kind.
    """
    if not HAS_KERNEL_NAMES.issubset(table.names):
        return np.zeros(len(table), dtype=np.bool_)

    def are_of_kind(names: tuple[str, ...]) -> Flags:
        flags = [part.value in searched_kinds(name) for name in names]
        return np.array(flags, dtype=np.bool_)

    def are_with_work(slice_kinds: tuple[str, ...]) -> Flags:
        return np.isin(slice_kinds, SLICES_WITH_WORK)

    def are_copies(slice_kinds: tuple[str, ...]) -> Flags:
        return np.isin(slice_kinds, ("memcpy", "memset"))

    is_of_kind = _test_texts(table.column("name"), are_of_kind)
    has_all_slices = "kind" in table.names  # otherwise the rows are kernels
    if has_all_slices:
        is_of_kind &= _test_texts(table.column("kind"), are_with_work)
    if has_all_slices and part.value == "copy":
        is_of_kind |= _test_texts(table.column("kind"), are_copies)
    return is_of_kind


def _columns_of_field(table: ColumnTable, field: str) -> list[TableColumn]:
    """Return the columns that a field of a query stands for, at least one.

    `total_ns` is that column, `dtype` all columns with dtypes, `dur` the first of
    `dur_ns` and `total_ns` that the table has. Raises NoColumnError.
    """
    possible_names = ANY_OF.get(field, (field,))
    present_names = [name for name in possible_names if name in table.names]
    if present_names:
        return [table.column(name) for name in present_names]

    has_kernel_names = HAS_KERNEL_NAMES.issubset(table.names)
    if field == "kind" and has_kernel_names:
        return [table.column("kernel_op")]
    for name in FIRST_OF.get(field, ()):
        if name in table.names:
            return [table.column(name)]
    return [table.column(field)]  # without its unit, or there is none


def _comparison_holds(column: TableColumn, part: WrittenTerm) -> Flags:
    """Tell of each row whether a comparison such as `total_ns > 50us` holds for it.

    It does not for a row without a value. Whether the part is negated does not matter
    here.

    Raises WrongQueryError for a column of texts, and for a value that is no number.
    """
    if column.kind not in ("int", "float"):
        raise WrongQueryError(
            f"{part.field} is text: search it with {part.field}:{part.value or '...'}"
        )
    number = _parse_number(column, part)
    compare = COMPARISONS[part.sign]
    return np.asarray(compare(column.values, number)) & column.has_value


def _equals_or_contains(column: TableColumn, part: WrittenTerm) -> Flags:
    """Tell of each row whether its value is, or contains, the value of a part.

    A text contains it (name:gemm); an id (stream:7) and what is compared by `!=` has to
    be all of it. A number or a truth has to equal it. A row without a value gives
    False.

    Raises WrongQueryError for a value that a column of numbers or truths cannot have.
    """
    if column.kind == "text":
        is_whole = column.name in IDS or part.sign == "!="
        sign = "=" if is_whole else part.sign
        word = parse_word(WrittenTerm(part.text, excluded=False, sign=sign), part.value)
        return _contains_word(column, word)

    wanted: float
    if column.kind == "bool":
        if part.value not in ("true", "false"):
            raise WrongQueryError(f"{part.field} is true or false: {part.field} = true")
        wanted = part.value == "true"
    else:
        wanted = _parse_number(column, part)
    return np.equal(column.values, wanted) & column.has_value


def _parse_number(column: TableColumn, part: WrittenTerm) -> float:
    """Return the value of a part of a query as a number.

    "50us" is 50_000 for a column in ns, "0.5" is 0.5, "10" is 10 as an int. Raises
    WrongQueryError with an example for everything else.
    """
    is_time = column.name.endswith("_ns")
    ns = parse_time(part.value) if is_time else None
    if ns is not None:
        return ns
    try:
        value = float(part.value)
    except ValueError:
        value = math.nan
    if math.isfinite(value):
        return int(value) if value.is_integer() else value

    if is_time:
        example = "50us"
    elif column.kind == "float":
        example = "0.5"
    else:
        example = "10"
    raise WrongQueryError(f"{part.field} needs a number: {part.field} > {example}")


def _contains_word(column: TableColumn, word: Word) -> Flags:
    """Tell of each row whether its text contains a word of the query. A row without a
    text gives False."""

    def holds(texts: tuple[str, ...]) -> Flags:
        return np.array([word.holds(text) for text in texts], dtype=np.bool_)

    return _test_texts(column, holds)


def _test_texts(column: TableColumn, test: Callable[[tuple[str, ...]], Flags]) -> Flags:
    """Tell of each row of a column of texts whether its text passes a test.

    The test sees each distinct text once. A row without a text gives False.
    """
    if not len(column):
        return np.zeros(0, dtype=np.bool_)
    passes = test(column.texts or ())
    flags: Flags = passes[column.values] & column.has_value
    return flags


def _any_text(table: ColumnTable, test: Callable[[TableColumn], Flags]) -> Flags:
    """Tell of each row whether its text in at least one column passes a test."""
    passes = np.zeros(len(table), dtype=np.bool_)
    for column in table.columns:
        if column.kind == "text":
            passes |= test(column)
    return passes
