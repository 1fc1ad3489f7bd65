"""Pairs the shorter of two sequences, in order, with those of the longer one that are nearest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]

CELLS = 1 << 22
"""Sequences whose comparison would take more steps than this are not paired one by one."""


LIKE = 4
"""Two times are alike if they differ by at most one LIKE-th of the longer one."""


def is_like(a: float, b: float) -> bool:
    """Whether two times may be of the same work at another place or in another step."""
    return LIKE * abs(a - b) <= max(a, b)


def is_feasible(few: int, many: int) -> bool:
    """Whether `closest` is worth its time, which grows with the one and with the difference."""
    return few * (many - few + 1) <= CELLS


def closest(few: Sequence[int], many: Sequence[int]) -> list[int]:
    """For each of the few, in order, one of the many, such that the sum of the differences is
    minimal."""
    numbers, spare = np.array(many, dtype=np.int64), len(many) - len(few)
    rows = (np.abs(numbers[n : n + spare + 1] - value) for n, value in enumerate(few))
    return in_order(rows, spare)


def in_order(costs: Iterable[Int64s], spare: int) -> list[int]:
    """The same by cost: `costs` has for each of the few what it costs to pair it with each of the
    `spare` + 1 of the many that may be its partner."""
    best = [np.zeros(spare + 1, dtype=np.int64)]
    for row in costs:
        best.append(np.minimum.accumulate(best[-1]) + row)
    chosen: list[int] = []
    skip = spare
    for n in range(len(best) - 1, 0, -1):
        skip = int(best[n][: skip + 1].argmin())
        chosen.append(n - 1 + skip)
    return chosen[::-1]
