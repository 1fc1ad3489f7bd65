"""Positions in one frame of a timeline: which cells a time interval touches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.text.figures import tick
from fusetui.timeline.cells import edges, row_shown_by_cell
from fusetui.trace.model.arrays import NO_ROW, Int64s
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import covered_until, union
from fusetui.trace.model.memo import memo
from fusetui.tui.layout.lanes import find_main_lane
from fusetui.tui.layout.places import find_line_of_row, find_program_location
from fusetui.tui.layout.view import Place, Side, View, find_line_of_gap, times

MIN_LINES_WITH_BAR = 14  # with fewer lines the bar below the minimap is left out
MIN_LINES_WITH_LEGEND = 12


class Busy(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The union of GPU events, else those of other devices, else the ops of the CPU."""

    starts: np.ndarray[tuple[int], np.dtype[np.int64]]
    ends: np.ndarray[tuple[int], np.dtype[np.int64]]
    label: str

    @memo(8)
    def levels(self, begin: int, end: int, width: int, top: int) -> list[int]:
        """Return the height of a bar in each of `width` cells, for the busy share of
        the time [begin, end).

        The height is 0 if nothing ran, else from 1 to `top`, rounded up. The result is
        cached for the last few arguments, because it is the same in every frame.
        """
        borders = edges(begin, end, width)
        busy_ns = np.diff(covered_until(self.starts, self.ends, borders))
        cell_ns = np.maximum(np.diff(borders), 1)
        bar_heights = (busy_ns * top + cell_ns - 1) // cell_ns  # rounded up
        bar_heights = np.clip(bar_heights, 1, top)
        bar_heights[busy_ns <= 0] = 0
        return [*bar_heights.tolist()]


@memo()
def find_busy_times(trace: Trace) -> Busy:
    """Return the intervals in which any GPU was busy. Without a GPU they are those of
    another device, or else those in which any CPU op ran."""
    device_rows = trace.rows_of(Role.DEVICE)
    if len(trace.gpu_rows):
        label = "GPU busy"
        rows = trace.gpu_rows
    elif len(device_rows):
        label = "device busy"
        rows = device_rows
    else:
        label = "CPU ops"
        is_outermost_op = (trace.op != NO_ROW) & (trace.depth == 0)
        rows = np.flatnonzero(is_outermost_op)
    starts, ends, _ = union(trace.start[rows], trace.end[rows])
    return Busy(starts, ends, label)


def compute_cell_edges(side: Side, view: View, width: int) -> Int64s:
    """Return the width + 1 edges of the cells of the window, in ns of the file."""
    return edges(view.begin + side.origin, view.end + side.origin, width)


def find_row_at(side: Side, view: View, place: Place, width: int, x: int) -> int:
    """Return the slice that is drawn at column `x` of a line of the timeline, or -1 if
    there is none. On the line of the current module it is that module or frame."""
    if place.line is None:
        return -1
    borders = compute_cell_edges(side, view, width)
    if place.where:
        return find_program_location(side, place, borders[x : x + 2])[0]
    begin = int(borders[x])
    end = int(borders[x + 1])
    return row_shown_by_cell(place.line, begin, end)


def columns(side: Side, view: View, row: int, width: int) -> range:
    """Return the cells that a slice covers in the window; an empty range if it is out
    of sight."""
    begin, end = times(side, row)
    return find_cells(view, begin, end, width)


def find_cells(view: View, begin: int, end: int, width: int) -> range:
    """Return the cells that a time interval covers, of `width` cells over the window.

    The interval [begin, end) is in ns from the origin of the view. It covers at least
    one cell if any of it is in the window, else none.
    """
    if end <= view.begin or begin >= view.end:
        return range(0)
    first_cell = (begin - view.begin) * width // view.span
    first_cell = max(0, first_cell)
    cells_to_end = (end - view.begin) * width
    end_cell = -(-cells_to_end // view.span)  # rounded up
    end_cell = min(width, max(first_cell + 1, end_cell))
    return range(first_cell, end_cell)


class Division(msgspec.Struct, frozen=True):
    """Lines above and below the lanes, and cells left of them."""

    whole: int  # cells in all
    axis: int  # lines of the minimap and the ruler
    gutter: int  # cells of the labels
    width: int  # cells of the time axis
    lanes: int  # lines for lanes

    def time(self, view: View, x: int) -> int:
        """Return the time at the left edge of column `x` of the screen, in ns from the
        origin. Columns left of the time axis count as its first."""
        column = max(0, min(x - self.gutter, self.width))
        return view.begin + view.span * column // self.width


def divide_timeline(width: int, height: int) -> Division:
    """Divide the screen of a timeline into the gutter for labels, the time axis, the
    lines above the lanes, and the lanes.

    The gutter is wider on wider screens. Lines and cells never become negative on tiny
    ones.
    """
    # labels get more cells on screens where the time axis has enough
    if width < 100:
        gutter = 15
    elif width < 160:
        gutter = 18
    else:
        gutter = 24
    return Division(
        whole=width,
        axis=_count_axis_lines(height),
        gutter=gutter,
        width=max(1, width - gutter),
        lanes=max(0, count_lane_lines(height)),
    )


def _count_axis_lines(height: int) -> int:
    """Return the number of lines above the lanes: the minimap and the ruler, and
    between them a bar if the screen is high enough."""
    return 3 if height >= MIN_LINES_WITH_BAR else 2


def count_lane_lines(lines: int) -> int:
    """Return how many of the lines of a timeline are for lanes. The minimap, the ruler
    and the legend take the others. The result is negative if the timeline is too low.
    """
    legend_lines = 1 if lines >= MIN_LINES_WITH_LEGEND else 0
    return lines - _count_axis_lines(lines) - legend_lines


def scroll_to_selection(
    side: Side, view: View, shown: Sequence[Place], top: int, room: int
) -> int:
    """Return the first visible line of the timeline, so that the line of the selection
    is visible.

    It is as close to `top` as possible, so that the lines move little. `shown` are all
    lines, and `room` is the height of the screen.
    """
    selected_line = -1
    if view.has_selection:
        selected_line = find_line_of_row(side, shown, view.selected)
    if selected_line < 0 and view.gap:
        selected_line = find_line_of_gap(side, shown, view.gap)
    if selected_line >= 0 and room > 0:
        top = max(min(top, selected_line), selected_line - room + 1)
    return limit_top(shown, top, room)


def scroll_to_main_stream(
    side: Side, view: View, shown: Sequence[Place], top: int, room: int
) -> int:
    """Return the first visible line of a timeline that has just been opened, so that
    the busiest GPU stream is visible. If something is selected, its line is visible
    instead."""
    if view.has_selection or view.gap:
        return scroll_to_selection(side, view, shown, top, room)
    stream_lane = find_main_lane(side.lanes)
    has_stream = stream_lane >= 0
    stream_line = 0
    for index, place in enumerate(shown):
        if has_stream and place.line is not None and place.lane == stream_lane:
            stream_line = index
            break
    lowest_top = stream_line - room + 1  # with the stream on the last line
    return limit_top(shown, max(top, lowest_top), room)


def thumb(shown: Sequence[Place], top: int, room: int) -> range:
    """Return the lines that the thumb of the scroll bar covers; an empty range if all
    lines are visible. `top` is the first visible line of `shown`, and `room` the height
    of the screen."""
    if len(shown) <= room or room <= 0:
        return range(0)
    thumb_lines = max(1, room * room // len(shown))
    hidden_lines = len(shown) - room
    first_line = -(-top * (room - thumb_lines) // hidden_lines)  # rounded up
    return range(first_line, first_line + thumb_lines)


def limit_top(shown: Sequence[Place], top: int, room: int) -> int:
    """Return the first visible line, limited so that no space below the last line stays
    empty while there are lines above."""
    return max(0, min(top, len(shown) - room))


def choose_tick_step(span_ns: int, most: int) -> int:
    """Return the step between the ticks of a ruler: the smallest round one that gives
    at most `most` ticks.

    Round steps are 1, 2 or 5 times a power of ten ns.
    """
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


def make_ticks(begin: int, end: int, width: int, room: int = 11) -> list[Tick]:
    """Return the ticks of a ruler over the window [begin, end), with their columns and
    texts.

    Ticks stand at round times, in the unit of their step. `room` columns are reserved
    for each text.
    """
    span = end - begin
    step = choose_tick_step(span, width // room)
    steps_before_window = -(-begin // step)  # rounded up
    first_time = steps_before_window * step
    ticks = []
    for time in range(first_time, end, step):
        column = (time - begin) * width // span
        ticks.append(Tick(column, tick(time, step)))
    return ticks
