"""What a lane shows in W cells for a window of time: O(W log n), whatever the number of slices.

All times are int64: float edges against an int64 column would copy the column on every search.
"""

from __future__ import annotations

from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.columns import Trace, Track
from fusetui.trace.intervals import covered_until

Int64s = NDArray[np.int64]
Rows = NDArray[np.int32]


class Line(msgspec.Struct, frozen=True, eq=False):
    """The slices of one track at one depth, in order of time; they do not overlap. Shape [n]."""

    rows: Rows
    start: Int64s
    end: Int64s  # at least 1 ns after the start, so that an empty slice can be seen
    rank: Rows  # place of each by duration
    by_rank: Rows  # index of the slice with each rank

    def __len__(self) -> int:
        return len(self.rows)


class Cells(msgspec.Struct, frozen=True, eq=False):
    """Arrays of shape [W]."""

    row: Rows  # the longest slice that touches the cell, or -1
    count: Rows  # slices that touch the cell
    covered: Int64s  # nanoseconds of the cell that slices cover


def lines_of(trace: Trace, track: Track) -> tuple[Line, ...]:
    """One line per depth of the track."""
    depth = trace.depth[track.rows]
    order = np.argsort(depth, kind="stable")
    bounds = np.searchsorted(depth[order], np.arange(int(depth.max(initial=-1)) + 2))
    rows = (order + track.first_row).astype(np.int32)
    return tuple(_line(trace, rows[a:b]) for a, b in pairwise(bounds.tolist()))


def edges(begin: int, end: int, width: int) -> Int64s:
    """The W + 1 borders of the cells of [begin, end), in ns; (end - begin) * W is below 2**63."""
    return begin + (end - begin) * np.arange(width + 1, dtype=np.int64) // max(width, 1)


def cells(line: Line, borders: Int64s) -> Cells:
    """Which slice each cell shows."""
    first = np.searchsorted(line.end, borders[:-1], side="right")
    last = np.maximum(np.searchsorted(line.start, borders[1:], side="left"), first)
    row = np.full(len(first), -1, dtype=np.int32)
    filled = np.flatnonzero(last > first)
    if len(filled):
        row[filled] = line.rows[line.by_rank[_highest(line.rank, first[filled], last[filled])]]
    covered = np.diff(covered_until(line.start, line.end, borders))
    return Cells(row, (last - first).astype(np.int32), covered)


def slice_near(line: Line, time: int) -> int:
    """The index of the slice at, or nearest to, a time; -1 on an empty line."""
    if not len(line):
        return -1
    after = int(np.searchsorted(line.start, time, side="right"))
    candidates = [n for n in (after - 1, after) if 0 <= n < len(line)]
    return min(candidates, key=lambda n: _distance(line, n, time))


def _distance(line: Line, index: int, time: int) -> int:
    return max(int(line.start[index]) - time, time - int(line.end[index]) + 1, 0)


def _line(trace: Trace, rows: Rows) -> Line:
    start, dur = trace.start[rows], trace.dur[rows]
    by_rank = np.argsort(dur, kind="stable").astype(np.int32)
    rank = np.empty_like(by_rank)
    rank[by_rank] = np.arange(len(rows), dtype=np.int32)
    return Line(rows, start, start + np.maximum(dur, 1), rank, by_rank)


def _highest(rank: Rows, first: Int64s, last: Int64s) -> Rows:
    """The largest rank in each [first, last); stretches are in order and not empty."""
    cuts = np.stack([first, last], axis=1).ravel()
    padded = np.append(rank, np.int32(-1))
    highest: Rows = np.maximum.reduceat(padded, cuts)[::2]
    return highest
