"""The layers of a model, found by the repetition of its kernels where nothing names them.

A pass of a model is a sequence of kernels that repeats for each layer, between a beginning and an
end of its own. The period is the shortest one that explains at least half of the sequence; of equal
kernels in every layer no other claim is made. Layers that differ in turn (a window and full
attention) count as one. The sequence is that of the starts, or if nothing repeats in it, that of
the file: on AMD devices some times are wrong.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace

Rows = NDArray[np.intp]
Int64s = NDArray[np.int64]

FEWEST = 3  # repetitions
HALF = 0.5  # of the kernels
MOST_PERIODS = 64  # that are tried
SLOWER = 0.05  # than the median: a layer that is worth a word


class Layer(msgspec.Struct, frozen=True):
    """One layer; its number counts from 1."""

    number: int
    dur_ns: int  # of all its kernels
    start_ns: int  # of its first kernel, from the beginning of the trace


class Layers(msgspec.Struct, frozen=True):
    """`count` repetitions of `kernels` kernels; `others` kernels come before and after them."""

    count: int
    kernels: int
    others: int
    total_ns: int  # of all layers
    others_ns: int
    median_ns: int  # of a layer; of an even count the lower one
    slow: tuple[Layer, ...]  # more than SLOWER above the median, the slowest first


def layers_of(trace: Trace, rows: Rows) -> Layers | None:
    """The layers of a pass with these GPU events; None if nothing repeats."""
    kernels = rows[trace.role[rows] == Role.KERNEL]
    for order in (trace.start[kernels], trace.order[kernels]):
        rows = kernels[np.lexsort((kernels, order))]
        if (found := repetition(trace.name[rows])) is not None:
            break
    else:
        return None
    first, period, count = found
    inside = rows[first : first + period * count].reshape(count, period)
    each = trace.dur[inside].sum(axis=1)
    median = int(np.sort(each)[(count - 1) // 2])
    slow = [
        Layer(
            number=number + 1,
            dur_ns=int(each[number]),
            start_ns=int(trace.start[inside[number, 0]]) - trace.begin_ns,
        )
        for number in np.argsort(-each, kind="stable").tolist()
        if each[number] > (1 + SLOWER) * median
    ]
    total = int(trace.dur[rows].sum())
    return Layers(
        count=count,
        kernels=period,
        others=len(rows) - inside.size,
        total_ns=int(each.sum()),
        others_ns=total - int(each.sum()),
        median_ns=median,
        slow=tuple(slow),
    )


def repetition(names: NDArray[np.integer]) -> tuple[int, int, int] | None:
    """Where the longest repetition begins, its period, and how often it repeats."""
    best: tuple[int, int, int] | None = None
    for period in _periods(names):
        first, length = _longest_run(names[period:] == names[:-period])
        count = (length + period) // period
        if count < FEWEST or count * period <= HALF * len(names):
            continue
        if best is None or count * period > best[1] * best[2] + period:
            best = (first, period, count)
    return best


def _periods(names: NDArray[np.integer]) -> list[int]:
    """Distances between neighboring kernels of one name, for the name that recurs least often but
    often enough: every period is the sum of such distances."""
    numbers, counts = np.unique(names, return_counts=True)
    often = counts >= FEWEST
    found: set[int] = set()
    for number in numbers[often][np.argsort(counts[often], kind="stable")].tolist():
        found |= set(np.diff(np.flatnonzero(names == number)).tolist())
        if len(found) >= MOST_PERIODS:
            break
    return sorted(found)[:MOST_PERIODS]


def _longest_run(same: NDArray[np.bool_]) -> tuple[int, int]:
    """Where the longest run of True begins, and its length."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], same, [False]))))
    begins, ends = edges[::2], edges[1::2]
    if not len(begins):
        return 0, 0
    longest = int(np.argmax(ends - begins))
    return int(begins[longest]), int(ends[longest] - begins[longest])
