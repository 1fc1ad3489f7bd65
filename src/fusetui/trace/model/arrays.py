"""Names for the types of arrays, and small operations on arrays that numpy lacks.

numpy releases Python's global lock while it works, so `in_threads` and `each` compute
long columns in several threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]  # times in ns, counts, keys
Int32s = NDArray[np.int32]
Rows = NDArray[np.intp]  # indices: of rows of a trace, of steps, of items
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]  # masks
Integers = NDArray[np.integer]  # indices of any integer type
Kinds = NDArray[np.uint8]  # roles, or kinds of slices
Number = TypeVar("Number", bound=np.generic)

NO_ROW = -1
"""Stands for no row in columns of rows."""


def at(values: NDArray[Any], places: Any, missing: Any) -> NDArray[Any]:
    """Look up values by index, with a default outside of the array.

    np.searchsorted gives -1 or the length of the array where nothing comes before or
    after; this function takes such indices as they are.

    >>> at(np.array([5, 6]), np.array([-1, 0, 1, 2]), missing=0).tolist()
    [0, 5, 6, 0]

    Args:
        values: The values, of shape [n].
        places: Indices from -1 to n.
        missing: What the indices -1 and n stand for.
    """
    # The default is appended, so that both n and -1 (from the end) find it.
    looked_up: NDArray[Any] = np.append(values, missing)[places]
    return looked_up


def begins_runs(*columns: NDArray[Any]) -> Flags:
    """Mark the rows that differ from the row before them, and the first row.

    >>> begins_runs(np.array([7, 7, 5, 7])).tolist()
    [True, False, True, True]

    Args:
        columns: Columns of one length. A row differs if one of them does.
    """
    begins = np.zeros(len(columns[0]), dtype=np.bool_)
    begins[:1] = True
    for column in columns:
        begins[1:] |= column[1:] != column[:-1]
    return begins


def ends_runs(*columns: NDArray[Any]) -> Flags:
    """Mark the rows that differ from the row after them, and the last row."""
    ends = np.ones(len(columns[0]), dtype=np.bool_)
    ends[:-1] = begins_runs(*columns)[1:]
    return ends


def distinct(values: NDArray[Number]) -> NDArray[Number]:
    """Return the distinct values, sorted.

    np.unique does the same, but its first call imports numpy.ma, which takes longer
    than reading a small trace.
    """
    ordered = np.sort(values)
    return ordered[begins_runs(ordered)]


def ordinals(keys: NDArray[np.integer]) -> Int64s:
    """Count for each key how many equal keys come before it.

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
    """Number the distinct rows of a table in lexical order.

    It is much faster than np.unique along an axis.

    Args:
        columns: The columns of the table, all of one length.

    Returns:
        The index of the first row with each number, of shape [distinct rows]; and the
        number of each row, of shape [rows].
    """
    order = np.lexsort(columns[::-1])
    is_first = begins_runs(*[column[order] for column in columns])

    number_of_row = np.empty(len(order), dtype=np.intp)
    number_of_row[order] = np.cumsum(is_first) - 1
    return order[is_first], number_of_row


def summed(places: Any, amounts: Int64s, shape: int | tuple[int, ...]) -> Int64s:
    """Add each amount to the element of a new array that its index names.

    The sums are exact; np.bincount would go through floats.

    Args:
        places: For each amount an index into the new array.
        amounts: The amounts.
        shape: The shape of the new array.
    """
    sums = np.zeros(shape, dtype=np.int64)
    np.add.at(sums, places, amounts)
    return sums


def used_ids(ids: NDArray[np.integer]) -> list[int]:
    """List the distinct ids, ascending: as `distinct`, but without sorting.

    >>> used_ids(np.array([4, 1, 4]))
    [1, 4]

    Args:
        ids: Indices, none of which is negative. Memory grows with the largest one.
    """
    return [*np.flatnonzero(np.bincount(ids)).tolist()]


def heaviest_id(ids: NDArray[np.integer], amounts: NDArray[Any]) -> int:
    """Find the id with the largest sum of amounts; of equal ones, the least id.

    >>> heaviest_id(np.array([2, 0, 2]), np.array([30, 50, 30]))
    2

    Args:
        ids: The id of each amount. There is at least one, and none is negative.
        amounts: The amounts, none of which is negative.
    """
    return int(np.bincount(ids, amounts).argmax())


def sums_before(amounts: NDArray[Any]) -> Int64s:
    """Add up the amounts before each index, along the last axis.

    >>> sums_before(np.array([5, 1, 2])).tolist()
    [0, 5, 6, 8]

    Args:
        amounts: Integers or flags, of shape [..., n].

    Returns:
        Sums of shape [..., n + 1]: the last one is the total.
    """
    *other_axes, count = amounts.shape
    sums = np.zeros((*other_axes, count + 1), dtype=np.int64)
    np.cumsum(amounts, axis=-1, out=sums[..., 1:])
    return sums


def sums_of_ranges(amounts: NDArray[Any], begin: Rows, end: Rows) -> Int64s:
    """Add up the amounts of each range [begin, end) of indices.

    >>> begin, end = np.array([0, 1]), np.array([2, 3])
    >>> sums_of_ranges(np.array([5, 1, 2]), begin, end).tolist()
    [6, 3]

    Args:
        amounts: Integers or flags, of shape [..., n].
        begin: The begins of the ranges, which may overlap.
        end: Their ends.

    Returns:
        The sums, of shape [..., ranges].
    """
    before = sums_before(amounts)
    sums: Int64s = before[..., end] - before[..., begin]
    return sums


def inside_ranges(begin: Integers, end: Integers, count: int) -> Flags:
    """Mark the indices that lie in at least one of some ranges [begin, end).

    >>> inside_ranges(np.array([1, 2]), np.array([3, 4]), count=6).tolist()
    [False, True, True, True, False, False]

    Args:
        begin: The begins of the ranges, in any order.
        end: Their ends, none of which is greater than `count`.
        count: How many indices there are: 0 to `count` - 1.
    """
    opened = np.bincount(begin, minlength=count + 1)
    closed = np.bincount(end, minlength=count + 1)
    open_ranges = np.cumsum(opened - closed)[:-1]
    return open_ranges > 0


def count_leading(flags: Flags) -> int:
    """Count the flags before the first one that is not true.

    >>> count_leading(np.array([True, True, False, True]))
    2
    """
    return int(np.argmin(np.append(flags, False)))


class Ranges(NamedTuple):
    """Ranges [begin, end) of indices, in order; arrays of shape [ranges]."""

    begin: Rows
    end: Rows


def runs_of_true(flags: Flags) -> Ranges:
    """Find the longest ranges of indices in which all flags are true.

    >>> begin, end = runs_of_true(np.array([True, True, False, True]))
    >>> begin.tolist(), end.tolist()
    ([0, 3], [2, 4])
    """
    return Ranges(
        begin=np.flatnonzero(flags & begins_runs(flags)),
        end=np.flatnonzero(flags & ends_runs(flags)) + 1,
    )


def rank_of_each(order: Rows) -> Rows:
    """Turn the order of some elements into the rank of each.

    >>> rank_of_each(np.array([2, 0, 1])).tolist()  # element 2 comes first
    [1, 2, 0]

    Args:
        order: The indices of the elements, each once, such as np.argsort returns.

    Returns:
        For each element its position in `order`.
    """
    rank = np.empty(len(order), dtype=np.intp)
    rank[order] = np.arange(len(order))
    return rank


def group_size_of_each(group: NDArray[np.integer]) -> Int64s:
    """Return for each element how many elements its group has.

    >>> group_size_of_each(np.array([0, 1, 0])).tolist()
    [2, 1, 2]

    Args:
        group: The number of the group of each element: 0 or more, and small.
    """
    size: Int64s = np.bincount(group)[group]
    return size


def last_marked(is_marked: Flags) -> Rows:
    """Find for each index the last mark up to it, itself included; -1 for none.

    >>> last_marked(np.array([False, True, False, True])).tolist()
    [-1, 1, 1, 3]
    """
    index_of_mark = np.where(is_marked, np.arange(len(is_marked)), -1)
    return np.maximum.accumulate(index_of_mark)


def next_marked(is_marked: Flags) -> Rows:
    """Find for each index the next mark from it on, itself included.

    It is the number of indices where no mark follows.

    >>> next_marked(np.array([False, True, False, False])).tolist()
    [1, 1, 4, 4]
    """
    index_of_mark = np.where(is_marked, np.arange(len(is_marked)), len(is_marked))
    return np.minimum.accumulate(index_of_mark[::-1])[::-1]


def group_of_each(counts: NDArray[np.integer]) -> Rows:
    """Number the elements of groups that lie one after the other.

    >>> group_of_each(np.array([2, 0, 1])).tolist()
    [0, 0, 2]

    Args:
        counts: How many elements each group has.
    """
    return np.repeat(np.arange(len(counts)), counts)


def least_of_runs(values: NDArray[Number], begins: Rows) -> NDArray[Number]:
    """Find the least value of each run.

    >>> least_of_runs(np.array([7, 5, 6]), begins=np.array([0, 2])).tolist()
    [5, 6]

    Args:
        values: The values of all runs.
        begins: The index of the first value of each run, ascending without repeats. A
            run ends where the next one begins; the last run ends with the values.
    """
    return np.minimum.reduceat(values, begins) if len(begins) else values[:0]


def greatest_of_runs(values: NDArray[Number], begins: Rows) -> NDArray[Number]:
    """Find the greatest value of each run; see `least_of_runs`."""
    return np.maximum.reduceat(values, begins) if len(begins) else values[:0]


def sum_of_runs(values: NDArray[Number], begins: Rows) -> NDArray[Number]:
    """Add up the values of each run; see `least_of_runs`."""
    return np.add.reduceat(values, begins) if len(begins) else values[:0]


def greatest_of_ranges(
    values: NDArray[Number], begin: Rows, end: Rows
) -> NDArray[Number]:
    """Find the greatest value of each range [begin, end) of indices.

    >>> begin, end = np.array([0, 3]), np.array([2, 4])
    >>> greatest_of_ranges(np.array([7, 5, 9, 6]), begin, end).tolist()
    [7, 6]

    Args:
        values: The values.
        begin: The begins of the ranges, which are disjoint, in order and not empty.
        end: Their ends.
    """
    # The edges of the ranges divide the values into runs. Every second one is a range,
    # and the others lie between ranges. One more value is needed, because the last
    # range may end with the values, where a run of its own begins.
    edges = np.stack((begin, end), axis=1).reshape(-1)
    return greatest_of_runs(np.append(values, values[:1]), edges)[::2]


def first_with(keys: Int64s, rows: Rows, wanted: Int64s) -> Int32s:
    """Find the first row that has each of the wanted keys.

    Args:
        keys: The key of each row.
        rows: The rows, ascending.
        wanted: The keys to look for.

    Returns:
        One of `rows` for each wanted key, -1 where no row has it.
    """
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    rows = rows[order]

    first_rows = np.full(len(wanted), -1, dtype=np.int32)
    index = np.searchsorted(keys, wanted)
    is_in_range = np.flatnonzero(index < len(keys))
    has_key = keys[index[is_in_range]] == wanted[is_in_range]
    matches = is_in_range[has_key]
    first_rows[matches] = rows[index[matches]]
    return first_rows


Result = TypeVar("Result")

MIN_ROWS_FOR_THREAD = 1 << 18
MAX_THREADS = 4


def in_threads(work: Callable[[int], Result], sizes: Sequence[int]) -> list[Result]:
    """Call a function for each index, in several threads if that is worth it.

    Args:
        work: The function. Its argument is an index of `sizes`.
        sizes: How much work each index is, in rows. The largest begin first. Unless two
            are larger than MIN_ROWS_FOR_THREAD, everything runs in this thread.

    Returns:
        The results in the order of `sizes`.
    """
    indices = range(len(sizes))
    large = [size for size in sizes if size > MIN_ROWS_FOR_THREAD]
    if len(large) < 2:
        return [work(index) for index in indices]

    from concurrent.futures import ThreadPoolExecutor  # only for large traces

    largest_first = sorted(indices, key=lambda index: -sizes[index])
    with ThreadPoolExecutor(MAX_THREADS) as pool:
        results = pool.map(work, largest_first)
        result_of_index = dict(zip(largest_first, results, strict=True))
    return [result_of_index[index] for index in indices]


def each(
    work: Mapping[str, Callable[[], NDArray[Any]]], rows: int
) -> dict[str, NDArray[Any]]:
    """Compute several columns, in threads if they are long.

    Args:
        work: The function that computes each column, by the name of the column.
        rows: How long the columns are.

    Returns:
        The columns by their names, in the order of `work`.
    """
    functions = list(work.values())
    columns = in_threads(lambda index: functions[index](), [rows] * len(functions))
    return dict(zip(work, columns, strict=True))
