"""Computes the W cells of a lane for a time window in O(W log n), where n is the number
of slices.

All times are int64: float edges against an int64 column would copy the column on every
search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.layout.nesting import rows_by_depth
from fusetui.trace.model.arrays import Floats, Int32s, Int64s, Kinds, Rows
from fusetui.trace.model.columns import Trace, Track

NO_SLICE = -1
"""Instead of a row or a kind: no slice touches the cell."""
SEVERAL = -2
"""Instead of a row: the longest slice of the cell is not of the kind that most of its
time is."""
MIN_SLICE_NS = 1
"""Length of slices that took no time, so that they are visible."""


class DepthRow(msgspec.Struct, frozen=True, eq=False):
    """The n > 0 slices of one track at one depth, in time order; they do not overlap.
    Arrays have shape [n], times are ns of the file."""

    rows: Int32s
    start: Int64s
    end: Int64s  # at least MIN_SLICE_NS after the start
    kind: Kinds
    ns_before: Int64s  # of the slices before each, and of all; shape [n + 1]
    kinds: tuple[KindSlices, ...]  # empty if all slices are of one kind
    rank: Int32s  # position of each by duration, and -1 at the end; shape [n + 1]
    by_rank: Int32s  # index of the slice with each rank

    def __len__(self) -> int:
        return self.rows.size


class KindSlices(msgspec.Struct, frozen=True, eq=False):
    """The n slices of a depth row that are of one kind; shape [n]."""

    kind: int
    place: Int32s  # index of each in the depth row
    ns_before: Int64s  # of the slices before each, and of all; shape [n + 1]

    def ns_until(self, places: Int32s) -> Int64s:
        """ns of those before some places of the depth row. `places` is int32, because
        numpy would copy `place` to search it for int64."""
        return self.ns_before[self.place.searchsorted(places)]


class Cells(msgspec.Struct, frozen=True, eq=False):
    """Arrays of shape [W]."""

    # the longest slice that touches the cell, if it is of the cell's kind; NO_SLICE,
    # SEVERAL
    row: Int32s
    # the kind of slices with the most time in the cell, or NO_SLICE
    kind: NDArray[np.int16]
    count: Rows  # slices that touch the cell
    covered: Int64s  # nanoseconds of the cell that slices cover


class DepthRows:
    """The depth rows of some tracks from top to bottom. Each is built on first access,
    because a deep track has thousands."""

    def __init__(
        self, trace: Trace, tracks: Sequence[Track], kinds: Kinds | None = None
    ) -> None:
        """`kinds`: that of each row of the trace; without it all are of one kind."""
        self._trace = trace
        self._kinds = np.zeros(len(trace), dtype=np.uint8) if kinds is None else kinds
        self._rows: list[Int32s] = []  # rows of the trace, of each depth row
        self._built: list[DepthRow | None] = []
        self._outermost: dict[int, int] = {}  # by the first row of each track
        for track in tracks:
            self._outermost[track.first_row] = len(self._rows)
            by_depth, bounds = rows_by_depth(trace.depth[track.rows])
            rows = (by_depth + track.first_row).astype(np.int32)
            for first, end in pairwise(bounds):
                self._rows.append(rows[first:end])
                self._built.append(None)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[DepthRow]:
        for number in range(len(self)):
            yield self[number]

    def __getitem__(self, number: int) -> DepthRow:
        """One of them, which is built now unless it was before."""
        built = self._built[number]
        if built is None:
            built = _depth_row(self._trace, self._rows[number], self._kinds)
            self._built[number] = built
        return built

    @property
    def tops(self) -> Iterator[DepthRow]:
        """The outermost depth row of each track."""
        for number in self._outermost.values():
            yield self[number]

    def index_of(self, row: int) -> int:
        """The index of the depth row that a row of these tracks lies on."""
        track = self._trace.track_of(row)
        return self._outermost[track.first_row] + int(self._trace.depth[row])


@lru_cache(maxsize=8)
def edges(begin: int, end: int, width: int) -> Int64s:
    """The W + 1 borders of the cells of [begin, end), in ns; the products stay below
    2**63.

    All lines of a frame share them: they cannot be written to.
    """
    cells = max(width, 1)
    ns_per_cell, rest_ns = divmod(end - begin, cells)
    number = np.arange(width + 1, dtype=np.int64)
    rest_before_ns = rest_ns * number // cells
    borders = begin + ns_per_cell * number + rest_before_ns
    borders.flags.writeable = False
    return borders


def seen_in(line: DepthRow, begin: int, end: int) -> int:
    """The row that covers all of a window (ns of the file), NO_SLICE where no slice
    touches it, else SEVERAL. Of a window without borders of slices, every division into
    cells shows the same."""
    first = int(line.end.searchsorted(begin, side="right"))
    if first == len(line):
        return NO_SLICE
    slice_begin = line.start[first]
    if slice_begin >= end:
        return NO_SLICE
    covers_all = slice_begin < begin and line.end[first] >= end
    return int(line.rows[first]) if covers_all else SEVERAL


def cells(line: DepthRow, borders: Int64s) -> Cells:
    """What each cell shows."""
    at = _at_borders(line, borders)
    # the last slice begun before a cell touches it too if it has not ended
    first = at.started[:-1] - (at.over_ns[:-1] > 0)
    end = at.started[1:]
    count = end - first
    several = np.flatnonzero(count > 1)
    longest = _longest_in_cells(line, first, end, several)
    row = line.rows[longest]
    kind = line.kind[longest].astype(np.int16)
    if several.size and line.kinds:
        kind_with_most = _kind_with_most(line.kinds, at)[several]
        is_of_kind = kind_with_most == kind[several]
        row[several] = np.where(is_of_kind, row[several], SEVERAL)
        kind[several] = kind_with_most
    is_empty = count == 0
    row[is_empty] = NO_SLICE
    kind[is_empty] = NO_SLICE
    covered_ns_before = line.ns_before[at.started] - at.over_ns
    covered_ns = covered_ns_before[1:] - covered_ns_before[:-1]
    return Cells(row=row, kind=kind, count=count, covered=covered_ns)


def _longest_in_cells(line: DepthRow, first: Rows, end: Rows, several: Rows) -> Rows:
    """The index of the longest of the slices [first, end) of each cell; any index for a
    cell without slices. `several`: the cells with more than one."""
    longest = np.minimum(first, len(line) - 1)  # the only one, where there is one
    if several.size:
        # reduceat gives what is in [first, end), and in [end, next first)
        cuts = np.stack((first[several], end[several]), axis=1).ravel()
        highest_rank = np.maximum.reduceat(line.rank, cuts)[::2]
        longest[several] = line.by_rank[highest_rank]
    return longest


def amounts(line: DepthRow, borders: Int64s, kind: int) -> Int64s:
    """Nanoseconds of each cell that slices of a kind cover; shape [W]. All slices count
    where the line has only one kind."""
    at = _at_borders(line, borders)
    for slices in line.kinds:
        if slices.kind == kind:
            over_ns = np.where(at.kind == kind, at.over_ns, 0)
            return np.diff(slices.ns_until(at.started.astype(np.int32)) - over_ns)
    return np.diff(line.ns_before[at.started] - at.over_ns)


def spread(line: DepthRow, borders: Int64s, before: Int64s) -> Floats:
    """How much of a measure lies in each cell, evenly spread over each slice; shape
    [W]. `before`: the measure of the slices before each of the line, and of all; shape
    [n + 1]."""
    at = _at_borders(line, borders)
    last = at.started - 1
    length_ns = line.ns_before[at.started] - line.ns_before[last]
    share_beyond = at.over_ns / np.maximum(length_ns, 1)
    of_last = before[at.started] - before[last]
    beyond_border = np.where(at.started > 0, share_beyond * of_last, 0.0)
    return np.diff(before[at.started] - beyond_border)


def row_in(line: DepthRow, begin: int, end: int) -> int:
    """The row that a cell stands for: of the kind with the most time in it, the slice
    with the most time in it; NO_SLICE where there is none."""
    borders = np.array([begin, end])
    kind = int(cells(line, borders).kind[0])
    if kind == NO_SLICE:
        return NO_SLICE
    at = _at_borders(line, borders)
    first = int(at.started[0]) - int(at.over_ns[0] > 0)
    touching = slice(first, int(at.started[1]))
    ends_inside = np.minimum(line.end[touching], end)
    starts_inside = np.maximum(line.start[touching], begin)
    inside_ns = ends_inside - starts_inside
    inside_ns[line.kind[touching] != kind] = -1
    return int(line.rows[first + int(inside_ns.argmax())])


def slice_near(line: DepthRow, time: int) -> int:
    """The index of the slice at, or nearest to, a time (ns of the file); the earlier
    one of two as near."""
    started = int(np.searchsorted(line.start, time, side="right"))
    last_started = max(started - 1, 0)
    next_to_start = min(started, len(line) - 1)
    if _distance_ns(line, next_to_start, time) < _distance_ns(line, last_started, time):
        return next_to_start
    return last_started


def _distance_ns(line: DepthRow, index: int, time: int) -> int:
    """How far a time is from a slice; 0 during it."""
    ns_until_start = int(line.start[index]) - time
    ns_since_end = time - int(line.end[index]) + 1
    return max(ns_until_start, ns_since_end, 0)


def _depth_row(trace: Trace, rows: Int32s, kinds: Kinds) -> DepthRow:
    """The depth row of rows of one track and depth, which are in time order."""
    start = trace.start[rows]
    length_ns = np.maximum(trace.dur[rows], MIN_SLICE_NS)
    kind = kinds[rows]
    by_rank = np.argsort(trace.dur[rows], kind="stable").astype(np.int32)
    rank = np.full(len(rows) + 1, -1, dtype=np.int32)
    rank[by_rank] = np.arange(len(rows), dtype=np.int32)
    return DepthRow(
        rows=rows,
        start=start,
        end=start + length_ns,
        kind=kind,
        ns_before=_sum_before(length_ns),
        kinds=_slices_of_kinds(kind, length_ns),
        rank=rank,
        by_rank=by_rank,
    )


def _slices_of_kinds(kind: Kinds, length_ns: Int64s) -> tuple[KindSlices, ...]:
    """The slices of each kind, from the kind and the length of each slice; () where all
    are of one kind."""
    numbers = np.flatnonzero(np.bincount(kind)).tolist()
    if len(numbers) == 1:
        return ()
    slices = []
    for number in numbers:
        places = np.flatnonzero(kind == number)
        slices.append(
            KindSlices(
                kind=number,
                place=places.astype(np.int32),
                ns_before=_sum_before(length_ns[places]),
            )
        )
    return tuple(slices)


def _sum_before(length_ns: Int64s) -> Int64s:
    """The sum of the lengths before each, and of all; shape [n + 1]."""
    return np.concatenate(([0], np.cumsum(length_ns)))


class _AtBorders(NamedTuple):
    """The slices of a depth row at each border; shape [W + 1]. Slices of a depth row do
    not overlap, so that only the last one that started can reach beyond a border."""

    started: Rows  # how many slices start before the border
    over_ns: Int64s  # how far the last of them reaches beyond it; 0 if it has ended
    kind: Kinds  # of that last one; anything where none started


def _at_borders(line: DepthRow, borders: Int64s) -> _AtBorders:
    """What of a depth row has started at each border, and what reaches beyond it."""
    started = line.start.searchsorted(borders)
    last = started - 1  # -1, the last of all, where none started
    over_ns = line.end[last] - borders
    np.maximum(over_ns, 0, out=over_ns)
    if not started[0]:
        over_ns[started == 0] = 0
    return _AtBorders(started=started, over_ns=over_ns, kind=line.kind[last])


def _kind_with_most(kinds: tuple[KindSlices, ...], at: _AtBorders) -> NDArray[np.int16]:
    """The kind with the most time in each cell; shape [W]."""
    numbers = np.array([slices.kind for slices in kinds], dtype=np.int16)
    places = at.started.astype(np.int32)
    # of each kind before each border; shape [kinds, W + 1]
    ns_before = np.array([slices.ns_until(places) for slices in kinds])
    is_kind_of_last = numbers[:, None] == at.kind
    ns_before -= is_kind_of_last * at.over_ns
    ns_in_cell = ns_before[:, 1:] - ns_before[:, :-1]
    largest = ns_in_cell.argmax(axis=0)
    kind_with_most: NDArray[np.int16] = numbers[largest]
    return kind_with_most


MAX_CLIMBED_LEVELS = 1000  # from the innermost slice outwards


def deepest(trace: Trace, track: Track, borders: Int64s, least_ns: int = 0) -> Int32s:
    """The innermost row that covers half of each cell or more, or -1; shape [W] for the
    W + 1 borders in ns of the file.

    Slices shorter than `least_ns` are passed over for those around them, if there are
    any. Slices of a track nest, so at most one of each depth covers half of a cell, and
    it is open in the middle of the cell: from the innermost one there, this climbs to
    its parents.
    """
    middle = (borders[:-1] + borders[1:]) // 2
    last_begun = np.searchsorted(trace.start[track.rows], middle, side="right") - 1
    row = np.where(last_begun >= 0, last_begun + track.first_row, -1).astype(np.int32)
    undecided = np.flatnonzero(row >= 0)  # cells whose row may not be the answer
    for _ in range(MAX_CLIMBED_LEVELS):
        tried = row[undecided]
        around = trace.parent[tried]
        is_short = (trace.dur[tried] < least_ns) & (around >= 0)
        climbs = is_short | ~_covers_half(trace, tried, borders, undecided)
        row[undecided[climbs]] = around[climbs]
        undecided = undecided[climbs & (around >= 0)]
        if not len(undecided):
            return row
    row[undecided] = -1
    return row


def _covers_half(
    trace: Trace, rows: Int32s, borders: Int64s, cells: Rows
) -> NDArray[np.bool_]:
    """Whether each of some rows covers half of its cell or more; `cells`: the index of
    the cell of each row."""
    begin = borders[cells]
    end = borders[cells + 1]
    ends_inside = np.minimum(trace.end[rows], end)
    starts_inside = np.maximum(trace.start[rows], begin)
    cell_ns = np.maximum(end - begin, 1)
    covers: NDArray[np.bool_] = 2 * (ends_inside - starts_inside) >= cell_ns
    return covers
