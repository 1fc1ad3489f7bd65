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

MAX_INT64 = (1 << 63) - 1
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
    """Mark the rows that differ from the row after them, and the last row.

    >>> ends_runs(np.array([7, 7, 5, 7])).tolist()
    [False, True, True, True]
    """
    ends = np.ones(len(columns[0]), dtype=np.bool_)
    ends[:-1] = begins_runs(*columns)[1:]
    return ends


def group_numbers(begins_group: Flags) -> Rows:
    """Number groups of neighboring rows from 0 on, by where each group begins.

    >>> group_numbers(np.array([True, False, True, True])).tolist()
    [0, 0, 1, 2]

    Args:
        begins_group: Whether a group begins at each row; the first row always does.
    """
    return np.cumsum(begins_group) - 1


def run_bounds(*columns: NDArray[Any]) -> Rows:
    """Return where each run of equal rows begins, and behind the last run the length.

    Run n then has the rows from bounds[n] to before bounds[n + 1].

    >>> run_bounds(np.array([7, 7, 5, 7])).tolist()
    [0, 2, 3, 4]

    Args:
        columns: Columns of one length. A run ends where one of them changes.
    """
    return np.append(np.flatnonzero(begins_runs(*columns)), len(columns[0]))


def numbers_of_sized_groups(sizes: Integers) -> Rows:
    """Number the rows of groups that follow each other, by the size of each group.

    >>> numbers_of_sized_groups(np.array([2, 0, 3])).tolist()
    [0, 0, 2, 2, 2]
    """
    return np.repeat(np.arange(len(sizes)), sizes)


def reduce_groups(
    operation: np.ufunc, values: NDArray[Any], first: Integers
) -> NDArray[Any]:
    """Combine the values of each group, e.g. to their maximum.

    >>> reduce_groups(np.maximum, np.array([5, 9, 2, 3]), first=np.array([0, 2]))
    array([9, 3])

    Args:
        operation: np.maximum, np.minimum, np.add, np.logical_or or the like.
        values: The values; those of a group are neighbors.
        first: The index at which each group begins, ascending and without repeats. A
            group ends where the next one begins, and the last one with the values.

    Returns:
        One value per group; none if there are no groups.
    """
    if not len(first):  # reduceat takes no empty array
        return values[:0]
    combined: NDArray[Any] = operation.reduceat(values, first)
    return combined


def reduce_ranges(
    operation: np.ufunc, values: NDArray[Any], begin: Rows, end: Rows
) -> NDArray[Any]:
    """Combine the values of each range [begin, end) of indices, e.g. to their minimum.

    >>> begin, end = np.array([0, 1]), np.array([2, 4])
    >>> reduce_ranges(np.minimum, np.array([5, 9, 3, 7]), begin, end).tolist()
    [5, 3]

    Args:
        operation: As in `reduce_groups`.
        values: The values.
        begin: The begin of each range. Ranges may overlap, in any order.
        end: Their ends. No range is empty.

    Returns:
        One value per range.
    """
    if not len(begin):
        return values[:0]
    # Of the edges a, b, c, d of two ranges, reduceat also combines the values from b to
    # c. So every other result is skipped. It takes no index behind the last value, so
    # a value is added.
    edges = np.stack((begin, end), axis=1).reshape(-1)
    combined: NDArray[Any] = operation.reduceat(np.append(values, values[:1]), edges)
    return combined[::2]


def running_max(values: Int64s, group: Integers) -> Int64s:
    """Return the largest value so far, starting anew in each group.

    >>> values = np.array([5, 3, 9, 2, 4])
    >>> running_max(values, group=np.array([0, 0, 0, 1, 1])).tolist()
    [5, 5, 9, 2, 4]

    Args:
        values: The values; those of a group are neighbors.
        group: The number of the group of each value, from 0 on and ascending.
    """
    if not len(values):
        return values
    lowest = int(values.min())
    span = int(values.max()) - lowest + 1
    if span * (int(group[-1]) + 1) > MAX_INT64:
        # The positions of values among the distinct ones have a far smaller span.
        distinct_values, position = np.unique(values, return_inverse=True)
        return distinct_values[running_max(position, group)]

    # Lift each group above the one before it, so that one pass serves all of them.
    lifted_by = group.astype(np.int64) * span
    lifted_max = np.maximum.accumulate(values - lowest + lifted_by)
    return lifted_max - lifted_by + lowest


def value_before(
    values: NDArray[Number], begins_group: Flags, missing: Any
) -> NDArray[Number]:
    """Return for each row the value of the row before it in the same group.

    >>> begins_group = np.array([True, False, True])
    >>> value_before(np.array([5, 6, 7]), begins_group, missing=0).tolist()
    [0, 5, 0]

    Args:
        values: The values; those of a group are neighbors.
        begins_group: Whether a group begins at each row; the first row always does.
        missing: The result for the first row of each group: one value, or one per row.
    """
    return np.asarray(np.where(begins_group, missing, np.roll(values, 1)))


def last_marked(flags: Flags) -> Rows:
    """Find for each entry the last marked one up to it.

    >>> last_marked(np.array([False, True, False, True])).tolist()
    [-1, 1, 1, 3]

    Args:
        flags: Which entries are marked.

    Returns:
        An index for each entry; -1 if neither it nor any before it is marked.
    """
    indices = np.where(flags, np.arange(len(flags)), -1)
    return np.maximum.accumulate(indices)


def last_marked_of_group(flags: Flags, bounds: Rows) -> Rows:
    """Find for each row the last marked row up to it, within its own group.

    >>> flags = np.array([False, True, False, False, True])
    >>> last_marked_of_group(flags, bounds=np.array([0, 3, 5])).tolist()
    [-1, 1, 1, -1, 4]

    Args:
        flags: Which rows are marked; rows of a group are neighbors.
        bounds: Where groups begin: group n has the rows [bounds[n], bounds[n + 1]).

    Returns:
        A row for each row, which may be itself; -1 for none.
    """
    last_of_any_group = last_marked(flags)
    first_of_group = np.repeat(bounds[:-1], np.diff(bounds))
    is_of_own_group = last_of_any_group >= first_of_group
    return np.asarray(np.where(is_of_own_group, last_of_any_group, -1))


def prefix_sums(values: NDArray[Any]) -> NDArray[Any]:
    """Return the sum of the first n values, for each n from 0 to all of them.

    The sum of the values from i to before j is then `sums[j] - sums[i]`.

    >>> prefix_sums(np.array([5, 2, 10])).tolist()
    [0, 5, 7, 17]

    Args:
        values: Numbers or flags, of shape [..., n]. They are added along the last axis.

    Returns:
        Sums of shape [..., n + 1].
    """
    zeros = np.zeros((*values.shape[:-1], 1), values.dtype)
    sums: NDArray[Any] = np.concatenate((zeros, values), axis=-1).cumsum(axis=-1)
    return sums


def last_at_or_before(ascending: NDArray[Any], values: Any) -> Rows:
    """Find the last entry of a sorted column that is not greater than each value.

    With the begins of steps and some times, it is the step that has begun last:

    >>> begins = np.array([10, 20, 20, 30])
    >>> last_at_or_before(begins, np.array([5, 10, 25, 99])).tolist()
    [-1, 0, 2, 3]

    Args:
        ascending: The column, sorted; equal entries are allowed.
        values: Any values, of any shape.

    Returns:
        An index per value. It is -1 where all entries are greater, which `at` accepts.
    """
    return np.asarray(np.searchsorted(ascending, values, side="right") - 1)


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

    >>> first, number = distinct_rows([np.array([7, 5, 7]), np.array([1, 2, 1])])
    >>> first.tolist(), number.tolist()
    ([1, 0], [1, 0, 1])

    Args:
        columns: The columns of the table, all of one length.

    Returns:
        The index of the first row with each number, of shape [distinct rows]; and the
        number of each row, of shape [rows].
    """
    order = np.lexsort(columns[::-1])
    is_first = begins_runs(*[column[order] for column in columns])

    number_of_row = np.empty(len(order), dtype=np.intp)
    number_of_row[order] = group_numbers(is_first)
    return order[is_first], number_of_row


def summed(places: Any, amounts: Int64s, shape: int | tuple[int, ...]) -> Int64s:
    """Add each amount to the element of a new array that its index names.

    The sums are exact; np.bincount would go through floats.

    >>> summed(np.array([2, 0, 2]), np.array([5, 1, 7]), shape=3).tolist()
    [1, 0, 12]

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
    before = prefix_sums(amounts)
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


def next_marked(is_marked: Flags) -> Rows:
    """Find for each index the next mark from it on, itself included.

    It is the number of indices where no mark follows.

    >>> next_marked(np.array([False, True, False, False])).tolist()
    [1, 1, 4, 4]
    """
    index_of_mark = np.where(is_marked, np.arange(len(is_marked)), len(is_marked))
    return np.minimum.accumulate(index_of_mark[::-1])[::-1]


def first_with(keys: Int64s, rows: Rows, wanted: Int64s) -> Int32s:
    """Find the first row that has each of the wanted keys.

    >>> first_with(np.array([7, 5, 7]), np.array([10, 20, 30]), np.array([7, 6])).tolist()
    [10, -1]

    Args:
        keys: The key of each row.
        rows: The rows, ascending.
        wanted: The keys to look for.

    Returns:
        One of `rows` for each wanted key, -1 where no row has it.
    """
    order = np.argsort(keys, kind="stable")
    ascending = keys[order]
    index = np.searchsorted(ascending, wanted)
    has_key = index < len(keys)
    has_key[has_key] = ascending[index[has_key]] == wanted[has_key]

    first_rows = np.full(len(wanted), -1, dtype=np.int32)
    first_rows[has_key] = rows[order[index[has_key]]]
    return first_rows


class EqualRanges(NamedTuple):
    """For each of some values the entries [first, end) of a sorted column that equal
    it. Both arrays have the shape of the values; first == end where none does."""

    first: Rows
    end: Rows


def equal_ranges(ascending: NDArray[Any], values: NDArray[Any]) -> EqualRanges:
    """Find the entries of a sorted column that equal each value.

    >>> found = equal_ranges(np.array([3, 7, 7, 9]), np.array([7, 8]))
    >>> found.first.tolist(), found.end.tolist()
    ([1, 3], [3, 3])

    Args:
        ascending: The column, sorted.
        values: The values to look for, in any order.
    """
    return EqualRanges(
        first=np.searchsorted(ascending, values, side="left"),
        end=np.searchsorted(ascending, values, side="right"),
    )


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
