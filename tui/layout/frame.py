"""Positions in one frame of a timeline: which cells a time interval touches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.text.figures import tick
from fusetui.timeline.cells import edges, row_in
from fusetui.trace.model.arrays import Int64s
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import covered_until, union
from fusetui.trace.model.memo import memo
from fusetui.tui.layout.lanes import main_lane
from fusetui.tui.layout.places import index_of, where_rows
from fusetui.tui.layout.view import Place, Side, View, index_of_gap, times

MIN_LINES_WITH_BAR = 14  # with fewer lines the bar below the minimap is left out
MIN_LINES_WITH_LEGEND = 12


class Busy(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The union of GPU events, else those of other devices, else the ops of the CPU."""

    starts: np.ndarray[tuple[int], np.dtype[np.int64]]
    ends: np.ndarray[tuple[int], np.dtype[np.int64]]
    label: str

    @memo(8)
    def levels(self, begin: int, end: int, width: int, top: int) -> list[int]:
        """The height of a bar in each cell, 0 where nothing ran, else 1 to `top`; as it
        is the same in every frame, that of the last few widths is kept."""
        borders = edges(begin, end, width)
        busy_ns = np.diff(covered_until(self.starts, self.ends, borders))
        cell_ns = np.maximum(np.diff(borders), 1)
        level = (busy_ns * top + cell_ns - 1) // cell_ns  # rounded up
        level = np.clip(level, 1, top)
        level[busy_ns <= 0] = 0
        return [*level.tolist()]


@memo()
def busy_of(trace: Trace) -> Busy:
    """When any GPU was busy, or any other device; without a device, when any op ran."""
    device_rows = trace.rows_of(Role.DEVICE)
    if len(trace.gpu_rows):
        rows, label = trace.gpu_rows, "GPU busy"
    elif len(device_rows):
        rows, label = device_rows, "device busy"
    else:
        is_outermost_op = (trace.op >= 0) & (trace.depth == 0)
        rows, label = np.flatnonzero(is_outermost_op), "CPU ops"
    starts, ends, _ = union(trace.start[rows], trace.end[rows])
    return Busy(starts, ends, label)


def cell_borders(side: Side, view: View, width: int) -> Int64s:
    """The width + 1 borders of the cells of the window, in ns of the file."""
    return edges(view.begin + side.origin, view.end + side.origin, width)


def row_at(side: Side, view: View, place: Place, width: int, x: int) -> int:
    """The row that is drawn at column `x` of a line, or -1."""
    if place.line is None:
        return -1
    borders = cell_borders(side, view, width)
    if place.where:
        return where_rows(side, place, borders[x : x + 2])[0]
    begin = int(borders[x])
    end = int(borders[x + 1])
    return row_in(place.line, begin, end)


def columns(side: Side, view: View, row: int, width: int) -> range:
    """The cells that a row touches, empty when it is out of sight."""
    begin, end = times(side, row)
    return cells_of(view, begin, end, width)


def cells_of(view: View, begin: int, end: int, width: int) -> range:
    """The cells that the interval [begin, end) of time (ns from the origin) touches, of
    `width` cells over the window: at least one if any of it is in the window, else
    none."""
    if end <= view.begin or begin >= view.end:
        return range(0)
    first = (begin - view.begin) * width // view.span
    first = max(0, first)
    cells_to_end = (end - view.begin) * width
    stop = -(-cells_to_end // view.span)  # rounded up
    stop = min(width, max(first + 1, stop))
    return range(first, stop)


class Division(msgspec.Struct, frozen=True):
    """Lines above and below the lanes, and cells left of them."""

    whole: int  # cells in all
    axis: int  # lines of the minimap and the ruler
    gutter: int  # cells of the labels
    width: int  # cells of the time axis
    lanes: int  # lines for lanes

    def time(self, view: View, x: int) -> int:
        """The time (ns from the origin) at the left edge of a cell of the screen."""
        column = max(0, min(x - self.gutter, self.width))
        return view.begin + view.span * column // self.width


def divided(width: int, height: int) -> Division:
    """Divides a timeline of this many cells and lines."""
    if width < 100:
        gutter = 15
    elif width < 160:
        gutter = 18
    else:
        gutter = 24
    return Division(
        whole=width,
        axis=_axis_lines(height),
        gutter=gutter,
        width=max(1, width - gutter),
        lanes=max(0, lanes_in(height)),
    )


def _axis_lines(height: int) -> int:
    """The minimap and the ruler, and between them the bar if there is room."""
    return 3 if height >= MIN_LINES_WITH_BAR else 2


def lanes_in(lines: int) -> int:
    """How many lines of a timeline are for lanes: not those above them, nor the legend
    below. Negative for a timeline that is too low for any."""
    legend_lines = 1 if lines >= MIN_LINES_WITH_LEGEND else 0
    return lines - _axis_lines(lines) - legend_lines


def top_for(side: Side, view: View, shown: Sequence[Place], top: int, room: int) -> int:
    """The first line on the screen, as near to `top` as possible, such that the selected
    line, if any, is on the screen, which has `room` lines."""
    index = -1
    if view.selected >= 0:
        index = index_of(side, shown, view.selected)
    if index < 0 and view.gap:
        index = index_of_gap(side, shown, view.gap)
    if index >= 0 and room > 0:
        top = max(min(top, index), index - room + 1)
    return within(shown, top, room)


def first_top(
    side: Side, view: View, shown: Sequence[Place], top: int, room: int
) -> int:
    """The first line on the screen such that the main stream is on it while nothing is
    selected."""
    if view.selected >= 0 or view.gap:
        return top_for(side, view, shown, top, room)
    first_of_main = 0
    main = main_lane(side.lanes)
    for index, place in enumerate(shown):
        if main >= 0 and place.line is not None and place.lane == main:
            first_of_main = index
            break
    return within(shown, max(top, first_of_main - room + 1), room)


def thumb(shown: Sequence[Place], top: int, room: int) -> range:
    """The lines beside which the bar of a scroll bar stands; empty when all lines are
    in sight."""
    if len(shown) <= room or room <= 0:
        return range(0)
    size = max(1, room * room // len(shown))
    hidden = len(shown) - room
    first = -(-top * (room - size) // hidden)  # rounded up
    return range(first, first + size)


def within(shown: Sequence[Place], top: int, room: int) -> int:
    """The first line on the screen, such that no room below the last line is left
    empty."""
    return max(0, min(top, len(shown) - room))


def tick_step(span_ns: int, most: int) -> int:
    """The smallest round step (1, 2 or 5 times a power of ten, in ns) with at most
    `most` ticks."""
    power_of_ten = 1
    while True:
        for digit in (1, 2, 5):
            step = digit * power_of_ten
            if span_ns <= step * max(1, most):
                return step
        power_of_ten *= 10


class Tick(NamedTuple):
    """A time that is written on a ruler, and the column where its text begins."""

    column: int
    text: str


def ticks(begin: int, end: int, width: int, room: int = 11) -> list[Tick]:
    """The ticks of the window [begin, end) in ns over `width` columns. Texts are times
    from zero in the unit of the step; `room` columns are kept for each."""
    span = end - begin
    step = tick_step(span, width // room)
    first = -(-begin // step) * step  # the first multiple of the step in the window
    shown = []
    for time in range(first, end, step):
        column = (time - begin) * width // span
        shown.append(Tick(column, tick(time, step)))
    return shown
