"""One frame of a timeline: every line as spans, computed once per view."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from fusetui.trace.cells.raster import cells, edges
from fusetui.trace.model.categories import GPU_ROLES, Role
from fusetui.trace.model.intervals import covered_until, union
from fusetui.tui.draw import Names, Span, draw
from fusetui.tui.glyphs import Glyphs
from fusetui.tui.kinds import kind_of, label_of
from fusetui.tui.ranges import Span as TimeSpan
from fusetui.tui.ruler import ticks
from fusetui.tui.view import Place, Side, View, times


@dataclass(frozen=True, eq=False)
class Busy:
    """The union of what the minimap shows: GPU events, else the ops of the CPU."""

    starts: np.ndarray[tuple[int], np.dtype[np.int64]]
    ends: np.ndarray[tuple[int], np.dtype[np.int64]]
    label: str


def busy_of(side: Side) -> Busy:
    trace = side.trace
    rows = np.flatnonzero(np.isin(trace.role, (*GPU_ROLES, Role.DEVICE)))
    label = "GPU busy"
    if not len(rows):
        rows = np.flatnonzero((trace.op >= 0) & (trace.depth == 0))
        label = "CPU ops"
    starts, ends = union(trace.start[rows], trace.end[rows])
    return Busy(starts, ends, label)


def names_of(side: Side) -> Names:
    trace = side.trace
    return Names(
        kind=lambda row: kind_of(int(trace.role[row]), trace.name_of(row)),
        label=lambda row: label_of(int(trace.role[row]), trace.name_of(row)),
    )


def lane_line(
    side: Side,
    view: View,
    place: Place,
    width: int,
    names: Names,
    glyphs: Glyphs,
    marked: Collection[int] = (),
) -> list[Span]:
    """The spans of one line of a lane over `width` cells."""
    if place.line is None:
        return []
    borders = edges(view.begin + side.origin, view.end + side.origin, width)
    shown = cells(place.line, borders)
    chosen = range(0)
    if view.selected >= 0 and _on_line(place, view.selected):
        chosen = columns(side, view, view.selected, width)
    cell_ns = max(1, view.span // max(width, 1))
    return draw(shown, cell_ns, names, glyphs, view.selected, chosen, marked)


def row_at(side: Side, view: View, place: Place, width: int, x: int) -> int:
    """The row that is drawn at column `x` of a line, or -1."""
    if place.line is None:
        return -1
    borders = edges(view.begin + side.origin, view.end + side.origin, width)
    return int(cells(place.line, borders[x : x + 2]).row[0])


def columns(side: Side, view: View, row: int, width: int) -> range:
    """The cells that a row touches, empty when it is out of sight."""
    return cells_of(view, *times(side, row), width)


def cells_of(view: View, begin: int, end: int, width: int) -> range:
    """The cells that a stretch of time (ns from the origin) touches."""
    if end <= view.begin or begin >= view.end:
        return range(0)
    first = max(0, (begin - view.begin) * width // view.span)
    last = min(width - 1, max(first, -(-(end - view.begin) * width // view.span) - 1))
    return range(first, last + 1)


def minimap(side: Side, busy: Busy, width: int, glyphs: Glyphs) -> str:
    """How busy the whole trace is, one level per cell."""
    borders = edges(side.begin + side.origin, side.end + side.origin, width)
    covered = np.diff(covered_until(busy.starts, busy.ends, borders))
    size = np.maximum(np.diff(borders), 1)
    top = len(glyphs.levels) - 1
    level = np.where(covered > 0, np.clip((covered * top + size - 1) // size, 1, top), 0)
    return "".join(glyphs.levels[n] for n in level.tolist())


def window_columns(side: Side, view: View, width: int) -> range:
    """The cells of the minimap that the window covers, at least one."""
    whole = side.end - side.begin
    first = (max(view.begin, side.begin) - side.begin) * width // whole
    last = -(-(min(view.end, side.end) - side.begin) * width // whole)
    first = min(first, width - 1)
    return range(first, max(first + 1, min(last, width)))


def window_bar(shown: range, width: int, glyphs: Glyphs) -> str:
    """`├──────┤` beneath the minimap."""
    return (" " * shown.start + _bar(len(shown), glyphs)).ljust(width)


def ruler(view: View, width: int, chosen: TimeSpan | None, glyphs: Glyphs) -> tuple[str, range]:
    """Times at round places, none cut off, over a bar `├───┤` where a range of time is chosen.

    Also the cells of that bar.
    """
    text = [" "] * width
    cells = cells_of(view, *chosen, width) if chosen else range(0)
    if chosen and cells:
        whole = (chosen[0] >= view.begin, chosen[1] <= view.end)
        text[cells.start : cells.stop] = _bar(len(cells), glyphs, *whole)
    for column, label in ticks(view.begin, view.end, width):
        taken = range(column, column + len(label) + 1)
        if taken[-1] < width and not (cells and (cells[0] in taken or cells[-1] in taken)):
            text[column : taken[-1]] = label
    return "".join(text), cells


def _bar(width: int, glyphs: Glyphs, begins: bool = True, ends: bool = True) -> str:
    """`├───┤`, without the ends that it has elsewhere."""
    left, middle, right = glyphs.window
    if width == 1:
        return middle
    return (left if begins else middle) + middle * (width - 2) + (right if ends else middle)


def _on_line(place: Place, row: int) -> bool:
    assert place.line is not None
    at = int(np.searchsorted(place.line.rows, row))
    return at < len(place.line) and int(place.line.rows[at]) == row
