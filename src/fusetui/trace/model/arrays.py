"""Names for the arrays that columns and answers are made of; work on large ones in
several threads, as numpy releases the GIL while it works."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]  # times in ns, counts, keys
Int32s = NDArray[np.int32]
Rows = NDArray[np.intp]  # numbers of rows, of steps, of items
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Integers = NDArray[np.integer]  # rows, as numbers of any size
Kinds = NDArray[np.uint8]  # roles, or kinds of slices
Number = TypeVar("Number", bound=np.generic)


def at(values: NDArray[Any], places: Any, missing: Any) -> NDArray[Any]:
    """The value at each place, `missing` at the places -1 and len(values), where there
    is none: what a search finds where nothing comes before, or after.

    >>> at(np.array([5, 6]), np.array([-1, 0, 1, 2]), missing=0).tolist()
    [0, 5, 6, 0]
    """
    found: NDArray[Any] = np.append(values, missing)[places]
    return found


def begins_runs(*columns: NDArray[Any]) -> Flags:
    """Which rows begin a run of equal ones: the first row, and each that differs from
    the one before in one of the columns.

    >>> begins_runs(np.array([7, 7, 5, 7])).tolist()
    [True, False, True, True]
    """
    begins = np.zeros(len(columns[0]), dtype=np.bool_)
    begins[:1] = True
    for column in columns:
        begins[1:] |= column[1:] != column[:-1]
    return begins


def ends_runs(*columns: NDArray[Any]) -> Flags:
    """Which rows end a run of equal ones (`begins_runs`)."""
    ends = np.ones(len(columns[0]), dtype=np.bool_)
    ends[:-1] = begins_runs(*columns)[1:]
    return ends


def distinct(values: NDArray[Number]) -> NDArray[Number]:
    """The different values of an array of one dimension, sorted. np.unique does the
    same, but its first call imports numpy.ma, which takes longer than a small trace."""
    ordered = np.sort(values)
    return ordered[begins_runs(ordered)]


def ordinals(keys: NDArray[np.integer]) -> Int64s:
    """How many equal keys come before each.

    >>> ordinals(np.array([7, 5, 7, 7])).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(keys, kind="stable")
    ascending = keys[order]
    first_equal = np.searchsorted(ascending, ascending)
    equal_before = np.empty(len(keys), dtype=np.int64)
    equal_before[order] = np.arange(len(keys)) - first_equal
    return equal_before


def distinct_rows(columns: Sequence[NDArray[np.integer]]) -> tuple[Rows, Rows]:
    """Numbers the distinct rows of some columns of one length, in lexical order.

    Returns the index of the first row with each number, shape [distinct], and the
    number of each row, shape [rows]. Much faster than np.unique along an axis.
    """
    order = np.lexsort(columns[::-1])
    is_first = begins_runs(*[column[order] for column in columns])
    number_of_row = np.empty(len(order), dtype=np.intp)
    number_of_row[order] = np.cumsum(is_first) - 1
    return order[is_first], number_of_row


def summed(places: Any, amounts: Int64s, shape: int | tuple[int, ...]) -> Int64s:
    """The exact sum of the amounts of each place: np.bincount would go through floats.
    `places` are indices of an array of that shape."""
    sums = np.zeros(shape, dtype=np.int64)
    np.add.at(sums, places, amounts)
    return sums


def first_with(keys: Int64s, rows: Rows, wanted: Int64s) -> Int32s:
    """The first row with each wanted key, else -1; `keys` are those of the rows. Shape
    of `wanted`."""
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    rows = rows[order]
    first_rows = np.full(len(wanted), -1, dtype=np.int32)
    place = np.searchsorted(keys, wanted)
    not_beyond = np.flatnonzero(place < len(keys))
    has_key = keys[place[not_beyond]] == wanted[not_beyond]
    first_rows[not_beyond[has_key]] = rows[place[not_beyond[has_key]]]
    return first_rows


Result = TypeVar("Result")

MIN_ROWS_FOR_THREAD = 1 << 18
MAX_THREADS = 4


def in_threads(work: Callable[[int], Result], sizes: Sequence[int]) -> list[Result]:
    """The results of `work` for each index of `sizes`, in order. `sizes` (in rows)
    estimate the effort: the largest are begun first, and there are no threads unless
    two are large."""
    numbers = range(len(sizes))
    large = [size for size in sizes if size > MIN_ROWS_FOR_THREAD]
    if len(large) < 2:
        return [work(number) for number in numbers]
    from concurrent.futures import ThreadPoolExecutor  # only for large traces

    largest_first = sorted(numbers, key=lambda number: -sizes[number])
    with ThreadPoolExecutor(MAX_THREADS) as pool:
        results = pool.map(work, largest_first)
        result_of = dict(zip(largest_first, results, strict=True))
    return [result_of[number] for number in numbers]


def each(
    work: Mapping[str, Callable[[], NDArray[Any]]], rows: int
) -> dict[str, NDArray[Any]]:
    """Several columns of `rows` rows, each computed by its function; in threads if they
    are long."""
    functions = list(work.values())
    columns = in_threads(lambda number: functions[number](), [rows] * len(functions))
    return dict(zip(work, columns, strict=True))
