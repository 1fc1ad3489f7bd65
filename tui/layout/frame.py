"""Positions in one frame of a timeline: which cells a stretch of time touches."""

from __future__ import annotations

from functools import cached_property

import msgspec
import numpy as np

from fusetui.trace.cells.raster import edges, row_in
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import covered_until, union
from fusetui.tui.layout.view import Place, Side, View, times
from fusetui.tui.layout.where import where_rows

WIDTHS = 8  # of which the minimap is kept


class Busy(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The union of what the minimap shows: GPU events, else those of other devices, else the ops of
    the CPU."""

    starts: np.ndarray[tuple[int], np.dtype[np.int64]]
    ends: np.ndarray[tuple[int], np.dtype[np.int64]]
    label: str

    def levels(self, begin: int, end: int, width: int, top: int) -> list[int]:
        """The height of a bar in each cell, 0 where nothing ran, else 1 to `top`; as it is the
        same in every frame, that of the last few widths is kept."""
        wanted = begin, end, width, top
        if wanted not in self._levels:
            if len(self._levels) >= WIDTHS:
                self._levels.clear()
            self._levels[wanted] = self._leveled(*wanted)
        return self._levels[wanted]

    @cached_property
    def _levels(self) -> dict[tuple[int, int, int, int], list[int]]:
        return {}

    def _leveled(self, begin: int, end: int, width: int, top: int) -> list[int]:
        borders = edges(begin, end, width)
        covered = np.diff(covered_until(self.starts, self.ends, borders))
        size = np.maximum(np.diff(borders), 1)
        level = np.where(covered > 0, np.clip((covered * top + size - 1) // size, 1, top), 0)
        found: list[int] = level.tolist()
        return found


def busy_of(trace: Trace) -> Busy:
    """Computed once per trace: `side.once(busy_of)`."""
    rows, label = trace.gpu_rows, "GPU busy"
    if not len(rows):
        rows, label = trace.rows_of(Role.DEVICE), "device busy"
    if not len(rows):
        rows = np.flatnonzero((trace.op >= 0) & (trace.depth == 0))
        label = "CPU ops"
    starts, ends = union(trace.start[rows], trace.end[rows])
    return Busy(starts, ends, label)


def row_at(side: Side, view: View, place: Place, width: int, x: int) -> int:
    """The row that is drawn at column `x` of a line, or -1."""
    if place.line is None:
        return -1
    borders = edges(view.begin + side.origin, view.end + side.origin, width)
    if place.where:
        return where_rows(side, place, borders[x : x + 2])[0]
    return row_in(place.line, int(borders[x]), int(borders[x + 1]))


def columns(side: Side, view: View, row: int, width: int) -> range:
    """The cells that a row touches, empty when it is out of sight."""
    return cells_of(view, *times(side, row), width)


def cells_of(view: View, begin: int, end: int, width: int) -> range:
    """The cells that an interval of time (ns from the origin) touches."""
    if end <= view.begin or begin >= view.end:
        return range(0)
    first = max(0, (begin - view.begin) * width // view.span)
    last = min(width - 1, max(first, -(-(end - view.begin) * width // view.span) - 1))
    return range(first, last + 1)


def window_columns(side: Side, view: View, width: int) -> range:
    """The cells of the minimap that the window covers, at least one."""
    whole = side.end - side.begin
    first = (max(view.begin, side.begin) - side.begin) * width // whole
    last = -(-(min(view.end, side.end) - side.begin) * width // whole)
    first = min(first, width - 1)
    return range(first, max(first + 1, min(last, width)))
