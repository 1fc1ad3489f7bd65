"""What a lane shows in W cells for a window of time: O(W log n), whatever the number of slices.

All times are int64: float edges against an int64 column would copy the column on every search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import overload

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.layout.nesting import rows_by_depth
from fusetui.trace.model.columns import Trace, Track
from fusetui.trace.model.intervals import covered_until

Int64s = NDArray[np.int64]
Rows = NDArray[np.int32]


class Line(msgspec.Struct, frozen=True, eq=False):
    """The slices of one track at one depth, in time order; they do not overlap. Shape [n]."""

    rows: Rows
    start: Int64s
    end: Int64s  # at least 1 ns after the start, so that empty slices are visible
    rank: Rows  # position of each by duration
    by_rank: Rows  # index of the slice with each rank

    def __len__(self) -> int:
        return len(self.rows)


class Cells(msgspec.Struct, frozen=True, eq=False):
    """Arrays of shape [W]."""

    row: Rows  # the longest slice that touches the cell, or -1
    count: Rows  # slices that touch the cell
    covered: Int64s  # nanoseconds of the cell that slices cover


class Lines(Sequence[Line]):
    """The lines of some tracks from top to bottom, one per depth; each is built on first access,
    because a deep track has thousands."""

    def __init__(self, trace: Trace, tracks: Sequence[Track]) -> None:
        self._trace = trace
        self._rows: list[Rows] = []
        self._made: dict[int, Line] = {}
        self._first: dict[int, int] = {}
        for track in tracks:
            order, bounds = rows_by_depth(trace.depth[track.rows])
            rows = (order + track.first_row).astype(np.int32)
            self._first[track.first_row] = len(self._rows)
            self._rows += [rows[a:b] for a, b in pairwise(bounds)]

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Line: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Line]: ...
    def __getitem__(self, index: int | slice) -> Line | Sequence[Line]:
        if isinstance(index, slice):
            return [self[n] for n in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        if number not in self._made:
            self._made[number] = _line(self._trace, self._rows[number])
        return self._made[number]

    @property
    def tops(self) -> Iterator[Line]:
        """The outermost line of each track."""
        return (self[first] for first in self._first.values())

    def index_of(self, row: int) -> int:
        """The line that a row of these tracks lies on."""
        return self._first[self._trace.track_of(row).first_row] + int(self._trace.depth[row])


def edges(begin: int, end: int, width: int) -> Int64s:
    """The W + 1 borders of the cells of [begin, end), in ns; the products stay below 2**63."""
    number = np.arange(width + 1, dtype=np.int64)
    whole, rest = divmod(end - begin, max(width, 1))
    return begin + whole * number + rest * number // max(width, 1)


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
    """The largest rank in each [first, last); ranges are ascending and not empty."""
    cuts = np.stack([first, last], axis=1).ravel()
    padded = np.append(rank, np.int32(-1))
    highest: Rows = np.maximum.reduceat(padded, cuts)[::2]
    return highest
