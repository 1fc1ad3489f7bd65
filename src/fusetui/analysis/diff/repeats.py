"""Finds the block of work that repeats in a row in one sequence, and more often than in another."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Rows = NDArray[np.intp]

DISTINCT = 4
"""A block has at least so many different pieces of work."""

TIMES = 3
"""A block repeats so often on the side that has it more often."""

PERIODS = 16
"""So many distances between equal pieces, the most frequent ones, are tried as sizes of a block."""

MOST = 0.75
"""So much of a block occurs as many times more often as the block itself."""


class Repeat(msgspec.Struct, frozen=True, eq=False):
    """A block of `size` pieces that one sequence has `more` times more often than another.

    `mark` occurs once in each block: `many` are its places in the one, `few` in the other.
    """

    size: int
    more: int
    many: Rows
    few: Rows


def repeat(a: Int64s, b: Int64s) -> Repeat | None:
    """What A has more often than B: of all blocks the one that explains the most of A, the smallest
    of equals."""
    found: Repeat | None = None
    for block in _blocks(a):
        one = _more(block, a, b)
        if one is not None and (found is None or one.size * one.more > found.size * found.more):
            found = one
    return found


def _blocks(keys: Int64s) -> Iterator[Int64s]:
    """One block of each stretch in which every piece is that `size` places later, the smallest
    first; each only once, whatever it begins with."""
    seen: set[bytes] = set()
    for size in sorted(_periods(keys)):
        same = np.concatenate([[False], keys[:-size] == keys[size:], [False]])
        first, last = np.flatnonzero(np.diff(same)).reshape(-1, 2).T
        for start in first[last - first >= (TIMES - 1) * size].tolist():
            block = keys[start : start + size]
            known = np.sort(block).tobytes()
            if known not in seen and len(np.unique(block)) >= DISTINCT:
                seen.add(known)
                yield block


def _periods(keys: Int64s) -> list[int]:
    order = np.argsort(keys, kind="stable")
    apart = np.diff(order)[np.diff(keys[order]) == 0]
    sizes, counts = np.unique(apart[apart >= DISTINCT], return_counts=True)
    frequent: list[int] = sizes[np.argsort(-counts, kind="stable")][:PERIODS].tolist()
    return frequent


def _more(block: Int64s, a: Int64s, b: Int64s) -> Repeat | None:
    """How much more often A has a block, if most of it says the same."""
    kinds, times = np.unique(block, return_counts=True)
    in_a, in_b = _counts(kinds, a), _counts(kinds, b)
    more, rest = np.divmod(in_a - in_b, times)
    sure = (rest == 0) & (more > 0)
    if times[sure].sum() < MOST * len(block):
        return None
    values, weight = np.unique(np.repeat(more[sure], times[sure]), return_counts=True)
    agreed = int(values[weight.argmax()])
    marks = np.flatnonzero(sure & (more == agreed) & (times == 1) & (in_b > 0))
    if weight.max() < MOST * len(block) or not len(marks):
        return None
    mark = kinds[marks[in_a[marks].argmin()]]
    return Repeat(len(block), agreed, np.flatnonzero(a == mark), np.flatnonzero(b == mark))


def _counts(kinds: Int64s, keys: Int64s) -> Int64s:
    ordered = np.sort(keys)
    found: Int64s = np.searchsorted(ordered, kinds, "right") - np.searchsorted(ordered, kinds)
    return found
