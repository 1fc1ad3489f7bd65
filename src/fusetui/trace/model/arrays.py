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


def distinct(values: NDArray[Number]) -> NDArray[Number]:
    """The different values of an array of one dimension, sorted. np.unique does the
    same, but its first call imports numpy.ma, which takes longer than a small trace."""
    ordered = np.sort(values)
    keep = np.ones(len(ordered), dtype=np.bool_)
    keep[1:] = ordered[1:] != ordered[:-1]
    return ordered[keep]


def ordinals(keys: NDArray[np.integer]) -> Int64s:
    """How many equal keys come before each."""
    order, found = np.argsort(keys, kind="stable"), np.empty(len(keys), dtype=np.int64)
    found[order] = np.arange(len(keys)) - np.searchsorted(keys[order], keys[order])
    return found


def distinct_rows(columns: Sequence[NDArray[np.integer]]) -> tuple[Rows, Rows]:
    """Columns of one length -> the first index of each distinct row, and the number of
    each row's. Numbered in lexical order; much faster than np.unique along an axis."""
    order = np.lexsort(columns[::-1])
    new = np.zeros(len(order), dtype=np.bool_)
    for column in columns:
        new[1:] |= np.diff(column[order]) != 0
    same = np.empty(len(order), dtype=np.intp)
    same[order] = np.cumsum(new)
    new[:1] = True
    return order[new], same


def summed(places: Any, amounts: Int64s, shape: int | tuple[int, ...]) -> Int64s:
    """The exact sum of the amounts of each place: np.bincount would go through
    floats."""
    found = np.zeros(shape, dtype=np.int64)
    np.add.at(found, places, amounts)
    return found


def first_with(keys: Int64s, rows: Rows, wanted: Int64s) -> Int32s:
    """The first row with each wanted key, else -1; `keys` are those of the rows."""
    order = np.argsort(keys, kind="stable")
    keys, rows = keys[order], np.append(rows[order], -1)
    place = np.searchsorted(keys, wanted)
    place[np.append(keys, 0)[place] != wanted] = -1
    return rows[np.where(place < len(keys), place, -1)].astype(np.int32)


Result = TypeVar("Result")

LARGE = 1 << 18  # rows that are worth a thread
THREADS = 4


def in_threads(work: Callable[[int], Result], sizes: Sequence[int]) -> list[Result]:
    """The results of `work` for each number, in order; `sizes` (in rows) estimate the
    effort."""
    if sum(size > LARGE for size in sizes) < 2:
        return [work(number) for number in range(len(sizes))]
    from concurrent.futures import ThreadPoolExecutor  # only for large traces

    by_size = sorted(range(len(sizes)), key=lambda number: -sizes[number])
    with ThreadPoolExecutor(THREADS) as pool:
        done = dict(zip(by_size, pool.map(work, by_size), strict=True))
    return [done[number] for number in range(len(sizes))]


def each(
    work: Mapping[str, Callable[[], NDArray[Any]]], rows: int
) -> dict[str, NDArray[Any]]:
    """Several columns of `rows` rows, each computed by its function."""
    makers = list(work.values())
    made = in_threads(lambda number: makers[number](), [rows] * len(makers))
    return dict(zip(work, made, strict=True))
