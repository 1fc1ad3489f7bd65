"""What a lane shows in W cells for a window of time: O(W log n), whatever the number of
slices.

All times are int64: float edges against an int64 column would copy the column on every
search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.layout.nesting import rows_by_depth
from fusetui.trace.model.arrays import Floats, Int32s, Int64s, Kinds, Rows
from fusetui.trace.model.columns import Trace, Track

NONE, MANY = -1, -2
"""Instead of a row: no slice touches the cell; or the slices of the kind with the most
time in it are others than the longest one."""


class Line(msgspec.Struct, frozen=True, eq=False):
    """The n > 0 slices of one track at one depth, in time order; they do not overlap.
    Shape [n]."""

    rows: Int32s
    start: Int64s
    end: Int64s  # at least 1 ns after the start, so that empty slices are visible
    kind: Kinds
    before: Int64s  # ns of the slices before each, and of all; shape [n + 1]
    kinds: tuple[OfKind, ...]  # none when all slices are of one kind
    rank: Int32s  # position of each by duration, and -1 at the end; shape [n + 1]
    by_rank: Int32s  # index of the slice with each rank

    def __len__(self) -> int:
        return self.rows.size


class Cells(msgspec.Struct, frozen=True, eq=False):
    """Arrays of shape [W]."""

    # the longest slice that touches the cell, if it is of the cell's kind; NONE, MANY
    row: Int32s
    # the kind of slices with the most time in the cell, or NONE
    kind: NDArray[np.int16]
    count: Rows  # slices that touch the cell
    covered: Int64s  # nanoseconds of the cell that slices cover


class Lines:
    """The lines of some tracks from top to bottom, one per depth; each is built on
    first access, because a deep track has thousands."""

    def __init__(
        self, trace: Trace, tracks: Sequence[Track], kinds: Kinds | None = None
    ) -> None:
        """`kinds`: that of each row of the trace; without it all are of one kind."""
        self._trace = trace
        self._kinds = np.zeros(len(trace), dtype=np.uint8) if kinds is None else kinds
        self._rows: list[Int32s] = []
        self._made: dict[int, Line] = {}
        self._first: dict[int, int] = {}
        for track in tracks:
            order, bounds = rows_by_depth(trace.depth[track.rows])
            rows = (order + track.first_row).astype(np.int32)
            self._first[track.first_row] = len(self._rows)
            self._rows += [rows[a:b] for a, b in pairwise(bounds)]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Line]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, number: int) -> Line:
        if number not in self._made:
            self._made[number] = _line(self._trace, self._rows[number], self._kinds)
        return self._made[number]

    @property
    def tops(self) -> Iterator[Line]:
        """The outermost line of each track."""
        return (self[first] for first in self._first.values())

    def index_of(self, row: int) -> int:
        """The line that a row of these tracks lies on."""
        return self._first[self._trace.track_of(row).first_row] + int(
            self._trace.depth[row]
        )


@lru_cache(maxsize=8)
def edges(begin: int, end: int, width: int) -> Int64s:
    """The W + 1 borders of the cells of [begin, end), in ns; the products stay below
    2**63.

    All lines of a frame share them: they cannot be written to.
    """
    number = np.arange(width + 1, dtype=np.int64)
    whole, rest = divmod(end - begin, max(width, 1))
    found = begin + whole * number + rest * number // max(width, 1)
    found.flags.writeable = False
    return found


def seen_in(line: Line, begin: int, end: int) -> int:
    """The row that covers all of a window (ns of the file), NONE where no slice touches
    it, else MANY: of a window without borders of slices, every division into cells
    shows the same."""
    first = int(line.end.searchsorted(begin, side="right"))
    if first == len(line) or line.start[first] >= end:
        return NONE
    covers = line.start[first] < begin and line.end[first] >= end
    return int(line.rows[first]) if covers else MANY


def cells(line: Line, borders: Int64s) -> Cells:
    """What each cell shows."""
    after, over, last_kind = _until(line, borders)
    first = after[:-1] - (over[:-1] > 0)
    count = after[1:] - first
    # the only slice of a cell, else the longest
    shown = np.minimum(first, line.rows.size - 1)
    (several,) = (count > 1).nonzero()
    if several.size:
        cuts = np.stack((first[several], after[1:][several]), axis=1).ravel()
        shown[several] = line.by_rank[np.maximum.reduceat(line.rank, cuts)[::2]]
    row, kind = line.rows[shown], line.kind[shown].astype(np.int16)
    if several.size and line.kinds:
        most = _most(line.kinds, after, over, last_kind)[several]
        row[several] = np.where(most == kind[several], row[several], MANY)
        kind[several] = most
    empty = count == 0
    row[empty] = kind[empty] = NONE
    before = line.before[after] - over
    return Cells(row, kind, count, before[1:] - before[:-1])


def amounts(line: Line, borders: Int64s, kind: int) -> Int64s:
    """Nanoseconds of each cell that slices of a kind cover; shape [W]."""
    after, over, last = _until(line, borders)
    of_kind = next((one for one in line.kinds if one.kind == kind), None)
    if of_kind is None:  # all slices are of one kind
        before = line.before[after] - over
    else:
        before = of_kind.until(after.astype(np.int32)) - np.where(last == kind, over, 0)
    return np.diff(before)


def spread(line: Line, borders: Int64s, before: Int64s) -> Floats:
    """How much of a measure lies in each cell, evenly spread over each slice; shape
    [W]. `before`: the measure of the slices before each of the line, and of all; shape
    [n + 1]."""
    after, over, _ = _until(line, borders)
    last = after - 1
    length = np.maximum(line.before[after] - line.before[last], 1)
    part = np.where(after > 0, over / length * (before[after] - before[last]), 0.0)
    return np.diff(before[after] - part)


def row_in(line: Line, begin: int, end: int) -> int:
    """The row that a cell stands for: of the kind with the most time in it, the slice
    with the most time in it; NONE where there is none."""
    borders = np.array([begin, end])
    kind = int(cells(line, borders).kind[0])
    if kind == NONE:
        return NONE
    after, over, _ = _until(line, borders)
    first, last = int(after[0]) - int(over[0] > 0), int(after[1])
    inside = np.minimum(line.end[first:last], end) - np.maximum(
        line.start[first:last], begin
    )
    inside[line.kind[first:last] != kind] = -1
    return int(line.rows[first + int(inside.argmax())])


def slice_near(line: Line, time: int) -> int:
    """The index of the slice at, or nearest to, a time."""
    after = int(np.searchsorted(line.start, time, side="right"))
    near = range(max(after - 1, 0), min(after + 1, len(line)))
    return min(near, key=lambda n: max(line.start[n] - time, time - line.end[n] + 1, 0))


def _line(trace: Trace, rows: Int32s, kinds: Kinds) -> Line:
    start, length = trace.start[rows], np.maximum(trace.dur[rows], 1)
    kind = kinds[rows]
    by_rank = np.argsort(trace.dur[rows], kind="stable").astype(np.int32)
    rank = np.full(len(rows) + 1, -1, dtype=np.int32)
    rank[by_rank] = np.arange(len(rows), dtype=np.int32)
    of_kinds = []
    for number in np.flatnonzero(np.bincount(kind)).tolist():
        places = np.flatnonzero(kind == number)
        of_kinds.append(
            OfKind(number, places.astype(np.int32), _before(length[places]))
        )
    kinds_ = tuple(of_kinds) if len(of_kinds) > 1 else ()
    return Line(
        rows, start, start + length, kind, _before(length), kinds_, rank, by_rank
    )


def _before(length: Int64s) -> Int64s:
    return np.concatenate(([0], np.cumsum(length)))


def _until(line: Line, borders: Int64s) -> tuple[Rows, Int64s, Kinds]:
    """Of each border: how many slices start before it, how far the last of them reaches
    beyond it, and the kind of that one. Slices of a line do not overlap, so no other
    reaches beyond it."""
    after = line.start.searchsorted(borders)
    last = after - 1  # -1, the last of all, where there is none
    over = line.end[last] - borders
    np.maximum(over, 0, out=over)
    if not after[0]:
        over[after == 0] = 0
    return after, over, line.kind[last]


def _most(
    kinds: tuple[OfKind, ...], after: Rows, over: Int64s, last: Kinds
) -> NDArray[np.int16]:
    """The kind with the most time in each cell; the rest is as `_until` gives it."""
    places = after.astype(np.int32)
    before = np.array([one.until(places) for one in kinds])  # ns before each border
    numbers = np.array([one.kind for one in kinds], dtype=np.int16)
    before -= (numbers[:, None] == last) * over
    found: NDArray[np.int16] = numbers[(before[:, 1:] - before[:, :-1]).argmax(axis=0)]
    return found


class OfKind(msgspec.Struct, frozen=True, eq=False):
    """The slices of a line that are of one kind, shape [n]."""

    kind: int
    place: Int32s  # of each on the line
    before: Int64s  # ns of those before each, and of all; shape [n + 1]

    def until(self, places: Int32s) -> Int64s:
        """ns of those before some places on the line; were they int64, numpy would copy
        ours."""
        return self.before[self.place.searchsorted(places)]


ENOUGH = 2
"""A slice covers enough of a cell with 1 / ENOUGH of it. Slices of a track nest, so at
most one of each depth does, and it is open in the middle of the cell."""
MOST = 1000  # levels that are looked at, from the innermost slice on


def deepest(trace: Trace, track: Track, borders: Int64s, least_ns: int = 0) -> Int32s:
    """The row of each cell, or -1; shape [cells] for the cells + 1 borders in ns of the
    file.

    Slices shorter than `least_ns` are passed over for those around them, if there are
    any.
    """
    begin, end = borders[:-1], borders[1:]
    middle, size = (begin + end) // 2, np.maximum(end - begin, 1)
    at = np.searchsorted(trace.start[track.rows], middle, side="right") - 1
    row = np.where(at >= 0, at + track.first_row, -1).astype(np.int32)
    cells = np.flatnonzero(row >= 0)  # those whose slice is not found yet
    for _ in range(MOST):
        found = row[cells]
        inside = np.minimum(trace.end[found], end[cells])
        inside -= np.maximum(trace.start[found], begin[cells])
        over = trace.parent[found]
        little = (trace.dur[found] < least_ns) & (over >= 0)
        little |= ENOUGH * inside < size[cells]
        cells, over = cells[little], over[little]
        row[cells] = over
        cells = cells[over >= 0]
        if not len(cells):
            return row
    row[cells] = -1
    return row
