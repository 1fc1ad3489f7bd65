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
from fusetui.trace.model.arrays import (
    NO_ROW,
    Floats,
    Int32s,
    Int64s,
    Kinds,
    Ranges,
    Rows,
    last_at_or_before,
    prefix_sums,
    used_ids,
)
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
        """Return how many ns the slices of this kind before some indices take together.

        The indices are those of slices in the depth row, which has the slices of all
        kinds. They must be int32, because numpy would copy `place` to search it for
        int64.
        """
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
        """Divide the slices of each track by depth; a *depth row* has those of one
        track and depth.

        Args:
            trace: The trace.
            tracks: The tracks, from top to bottom.
            kinds: The kind of each row of the trace, which decides its color. Without
                it all slices are of one kind.
        """
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
        """Return the depth row at an index. It is built on the first access and kept."""
        built = self._built[number]
        if built is None:
            built = _depth_row(self._trace, self._rows[number], self._kinds)
            self._built[number] = built
        return built

    @property
    def tops(self) -> Iterator[DepthRow]:
        """The outermost depth row of each track, in the order of the tracks."""
        for number in self._outermost.values():
            yield self[number]

    def index_of(self, row: int) -> int:
        """Return the index of the depth row on which a row of the trace lies. The row
        must be on one of the tracks."""
        track = self._trace.track_of(row)
        return self._outermost[track.first_row] + int(self._trace.depth[row])


@lru_cache(maxsize=8)
def edges(begin: int, end: int, width: int) -> Int64s:
    """Divide the window of time [begin, end) into cells, and return their borders.

    The borders are ns of the file; W cells have W + 1 of them. Cells differ in length
    by 1 ns at most, and all of them are exact integers. The result is shared by all
    lanes of a frame, so it is read-only.

    Args:
        begin: The begin of the window, in ns of the file.
        end: Its end.
        width: The number of cells W.
    """
    cells = max(width, 1)
    ns_per_cell, rest_ns = divmod(end - begin, cells)
    border_index = np.arange(width + 1, dtype=np.int64)
    # Some cells are 1 ns longer, so that all together are as long as the window.
    longer_cells_before = rest_ns * border_index // cells
    borders = begin + ns_per_cell * border_index + longer_cells_before
    # the cache returns the same array to all callers
    borders.flags.writeable = False
    return borders


def row_covering_window(depth_row: DepthRow, begin: int, end: int) -> int:
    """Return the row of the slice that covers all of a window of time.

    Returns NO_SLICE if no slice touches the window, else SEVERAL. In the first two
    cases the window looks the same however it is divided into cells.

    Args:
        depth_row: The slices of one track and depth.
        begin: The begin of the window, in ns of the file.
        end: Its end.
    """
    first_not_ended = int(depth_row.end.searchsorted(begin, side="right"))
    if first_not_ended == len(depth_row):
        return NO_SLICE
    slice_start = depth_row.start[first_not_ended]
    slice_end = depth_row.end[first_not_ended]
    if slice_start >= end:
        return NO_SLICE
    covers_all = slice_start < begin and slice_end >= end
    return int(depth_row.rows[first_not_ended]) if covers_all else SEVERAL


def cells(depth_row: DepthRow, borders: Int64s) -> Cells:
    """Compute what each cell of a depth row shows.

    A depth row has the slices of one track at one depth. A cell shows the kind with the
    most time in it. It names the longest slice that touches it if that is of the same
    kind, else SEVERAL. A cell without slices has NO_SLICE.

    Args:
        depth_row: The depth row.
        borders: The W + 1 borders of the cells, in ns of the file.
    """
    at_borders = _locate_borders(depth_row, borders)
    touching = _slices_touching_cells(at_borders)
    slices_per_cell = touching.end - touching.begin
    longest = _find_longest_in_cells(depth_row, touching)
    row_of_cell = depth_row.rows[longest]
    kind_of_cell = depth_row.kind[longest].astype(np.int16)

    has_several = slices_per_cell > 1
    if depth_row.kinds and has_several.any():
        kind_with_most = _dominant_kinds(depth_row.kinds, at_borders)
        is_of_other_kind = has_several & (kind_of_cell != kind_with_most)
        row_of_cell[is_of_other_kind] = SEVERAL
        kind_of_cell[has_several] = kind_with_most[has_several]

    is_empty = slices_per_cell == 0
    row_of_cell[is_empty] = NO_SLICE
    kind_of_cell[is_empty] = NO_SLICE
    covered_ns_before = depth_row.ns_before[at_borders.started] - at_borders.over_ns
    return Cells(
        row=row_of_cell,
        kind=kind_of_cell,
        count=slices_per_cell,
        covered=covered_ns_before[1:] - covered_ns_before[:-1],
    )


def _slices_touching_cells(at_borders: _AtBorders) -> Ranges:
    """Return the indices [begin, end) of the slices that touch each cell.

    The last slice that started before a cell touches it too, if it has not ended.
    """
    reaches_into_cell = at_borders.over_ns[:-1] > 0
    return Ranges(
        begin=at_borders.started[:-1] - reaches_into_cell,
        end=at_borders.started[1:],
    )


def _find_longest_in_cells(depth_row: DepthRow, touching: Ranges) -> Rows:
    """Find the longest slice that touches each cell.

    Args:
        depth_row: The slices of one track and depth.
        touching: The slices that touch each cell, as indices in `depth_row`.

    Returns:
        An index in `depth_row` for each cell; any index for a cell without slices.
    """
    # This is the only one, in a cell with one slice.
    longest = np.minimum(touching.begin, len(depth_row) - 1)
    cells_with_several = np.flatnonzero(touching.end - touching.begin > 1)
    if len(cells_with_several):
        # reduceat also combines what lies between the end of one cell and the begin of
        # the next, so every other result is skipped.
        begin = touching.begin[cells_with_several]
        end = touching.end[cells_with_several]
        edges_of_cells = np.stack((begin, end), axis=1).reshape(-1)
        highest_rank = np.maximum.reduceat(depth_row.rank, edges_of_cells)[::2]
        longest[cells_with_several] = depth_row.by_rank[highest_rank]
    return longest


def sum_kind_in_cells(depth_row: DepthRow, borders: Int64s, kind: int) -> Int64s:
    """Add up how many ns of each cell are covered by slices of one kind.

    If the depth row has slices of one kind only, all of them count.

    Args:
        depth_row: The slices of one track and depth.
        borders: The W + 1 borders of the cells, in ns of the file.
        kind: The kind of the slices that count.
    """
    at_borders = _locate_borders(depth_row, borders)
    for slices in depth_row.kinds:
        if slices.kind == kind:
            started_ns = slices.ns_until(at_borders.started.astype(np.int32))
            over_ns = np.where(at_borders.kind == kind, at_borders.over_ns, 0)
            return np.diff(started_ns - over_ns)
    started_ns = depth_row.ns_before[at_borders.started]
    return np.diff(started_ns - at_borders.over_ns)


def spread_over_cells(depth_row: DepthRow, borders: Int64s, before: Int64s) -> Floats:
    """Distribute a measure of slices, such as bytes, over the cells that the slices
    touch.

    The measure of a slice is spread evenly over its time. E.g. of 90 bytes from 0 to 30
    ns, a cell from 10 to 20 ns gets 30.

    Args:
        depth_row: The slices of one track and depth, n of them.
        borders: The W + 1 borders of the cells, in ns of the file.
        before: The running total: the measure of all slices before each one, and
            at the end that of all; shape [n + 1].

    Returns:
        The measure in each cell; shape [W].
    """
    at_borders = _locate_borders(depth_row, borders)
    started = at_borders.started
    has_started = started > 0
    # What the last slice that started has behind the border does not count before it.
    last = started - 1
    last_ns = depth_row.ns_before[started] - depth_row.ns_before[last]
    last_measure = before[started] - before[last]
    share_beyond = at_borders.over_ns / np.maximum(last_ns, 1)
    beyond_border = np.where(has_started, share_beyond * last_measure, 0.0)
    return np.diff(before[started] - beyond_border)


def row_shown_by_cell(depth_row: DepthRow, begin: int, end: int) -> int:
    """Return the row of the slice that a cell from `begin` to `end` stands for.

    Of the kind with the most time in the cell, it is the slice with the most time in
    it. Returns NO_SLICE if no slice touches the cell.
    """
    borders = np.array([begin, end])
    kind = int(cells(depth_row, borders).kind[0])
    if kind == NO_SLICE:
        return NO_SLICE
    touching = _slices_touching_cells(_locate_borders(depth_row, borders))
    slices = np.arange(touching.begin[0], touching.end[0])
    slices_of_kind = slices[depth_row.kind[slices] == kind]
    start_inside = np.maximum(depth_row.start[slices_of_kind], begin)
    end_inside = np.minimum(depth_row.end[slices_of_kind], end)
    longest_inside = np.argmax(end_inside - start_inside)
    return int(depth_row.rows[slices_of_kind[longest_inside]])


def find_nearest_slice(depth_row: DepthRow, time: int) -> int:
    """Return the index of the slice at a time, or else of the one nearest to it.

    Of two slices at the same distance the earlier one is returned. The time is in ns of
    the file.
    """
    started_count = int(np.searchsorted(depth_row.start, time, side="right"))
    last_started = max(started_count - 1, 0)
    next_to_start = min(started_count, len(depth_row) - 1)
    ns_to_next = _distance_ns(depth_row, next_to_start, time)
    ns_to_last = _distance_ns(depth_row, last_started, time)
    return next_to_start if ns_to_next < ns_to_last else last_started


def _distance_ns(depth_row: DepthRow, index: int, time: int) -> int:
    """Return how far a time is before the start or behind the end of a slice, in ns.
    The result is 0 while the slice runs."""
    ns_until_start = int(depth_row.start[index]) - time
    ns_since_end = time - int(depth_row.end[index]) + 1
    return max(ns_until_start, ns_since_end, 0)


def _depth_row(trace: Trace, rows: Int32s, kinds: Kinds) -> DepthRow:
    """Build the depth row of some slices, with what is needed to look up cells fast.

    Args:
        trace: The trace.
        rows: The slices of one track at one depth, in the order of time.
        kinds: The kind of each row of the trace.
    """
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
        ns_before=prefix_sums(length_ns),
        kinds=_split_by_kind(kind, length_ns),
        rank=rank,
        by_rank=by_rank,
    )


def _split_by_kind(kind: Kinds, length_ns: Int64s) -> tuple[KindSlices, ...]:
    """Divide slices by their kind, and add up their lengths.

    Args:
        kind: The kind of each slice.
        length_ns: The length of each slice.

    Returns:
        The slices of each kind; () if all slices are of one kind.
    """
    distinct_kinds = used_ids(kind)
    if len(distinct_kinds) == 1:
        return ()
    slices_of_kinds = []
    for one_kind in distinct_kinds:
        indices = np.flatnonzero(kind == one_kind)
        slices_of_kinds.append(
            KindSlices(
                kind=one_kind,
                place=indices.astype(np.int32),
                ns_before=prefix_sums(length_ns[indices]),
            )
        )
    return tuple(slices_of_kinds)


class _AtBorders(NamedTuple):
    """The slices of a depth row at each border; shape [W + 1]. Slices of a depth row do
    not overlap, so that only the last one that started can reach beyond a border."""

    started: Rows  # how many slices start before the border
    over_ns: Int64s  # how far the last of them reaches beyond it; 0 if it has ended
    kind: Kinds  # of that last one; anything where none started


def _locate_borders(depth_row: DepthRow, borders: Int64s) -> _AtBorders:
    """Find how many slices have started at each border, and how far the last one
    reaches beyond it.

    Slices of a depth row do not overlap, so only the last one that started can reach
    beyond.
    """
    started = depth_row.start.searchsorted(borders)
    last = started - 1
    over_ns = np.maximum(depth_row.end[last] - borders, 0)
    some_have_no_last = started[0] == 0  # borders ascend
    if some_have_no_last:
        over_ns[started == 0] = 0  # there, `last` is -1 and finds the last slice of all
    return _AtBorders(started=started, over_ns=over_ns, kind=depth_row.kind[last])


def _dominant_kinds(kinds: tuple[KindSlices, ...], at: _AtBorders) -> NDArray[np.int16]:
    """Find the kind that takes the most time in each cell.

    Args:
        kinds: The slices of each kind.
        at: What has started at each border of the cells.

    Returns:
        A kind per cell; shape [W].
    """
    kind_numbers = np.array([slices.kind for slices in kinds], dtype=np.int16)
    started = at.started.astype(np.int32)
    # The ns of each kind before each border; shape [kinds, W + 1].
    ns_before = np.array([slices.ns_until(started) for slices in kinds])
    is_kind_of_last = kind_numbers[:, None] == at.kind
    ns_before -= is_kind_of_last * at.over_ns

    ns_in_cell = ns_before[:, 1:] - ns_before[:, :-1]  # np.diff takes twice as long
    kind_with_most: NDArray[np.int16] = kind_numbers[ns_in_cell.argmax(axis=0)]
    return kind_with_most


MAX_CLIMBED_LEVELS = 1000  # from the innermost slice outwards


def deepest_rows(
    trace: Trace, track: Track, borders: Int64s, least_ns: int = 0
) -> Int32s:
    """Find the innermost slice that covers at least half of each cell.

    Slices of a track nest, so at most one of each depth covers half of a cell. It is
    then open in the middle of the cell. So the search begins with the innermost slice
    there, and climbs to its parents.

    Args:
        trace: The trace.
        track: The track.
        borders: The W + 1 borders of the cells, in ns of the file.
        least_ns: Slices shorter than this are replaced by those around them, if
            there are any.

    Returns:
        A row of the trace for each cell; -1 if no slice covers half of it.
    """
    middle = (borders[:-1] + borders[1:]) // 2
    last_begun = last_at_or_before(trace.start[track.rows], middle)
    has_begun = last_begun >= 0
    row_of_cell = np.where(has_begun, last_begun + track.first_row, NO_ROW)
    row_of_cell = row_of_cell.astype(np.int32)

    undecided_cells = np.flatnonzero(has_begun)
    for _ in range(MAX_CLIMBED_LEVELS):
        tried_rows = row_of_cell[undecided_cells]
        parents = trace.parent[tried_rows]
        has_parent = parents != NO_ROW
        is_too_short = (trace.dur[tried_rows] < least_ns) & has_parent
        covers_half = _covers_half(trace, tried_rows, borders, undecided_cells)
        climbs = is_too_short | ~covers_half
        row_of_cell[undecided_cells[climbs]] = parents[climbs]
        undecided_cells = undecided_cells[climbs & has_parent]
        if not len(undecided_cells):
            return row_of_cell

    row_of_cell[undecided_cells] = NO_ROW
    return row_of_cell


def _covers_half(
    trace: Trace, rows: Int32s, borders: Int64s, cells: Rows
) -> NDArray[np.bool_]:
    """Mark the rows that cover at least half of their cell.

    Args:
        trace: The trace.
        rows: One row for each of `cells`.
        borders: The borders of all cells, in ns of the file.
        cells: The index of the cell of each row.
    """
    begin = borders[cells]
    end = borders[cells + 1]
    ends_inside = np.minimum(trace.end[rows], end)
    starts_inside = np.maximum(trace.start[rows], begin)
    cell_ns = np.maximum(end - begin, 1)
    covers: NDArray[np.bool_] = 2 * (ends_inside - starts_inside) >= cell_ns
    return covers
