"""Positions in one frame of a timeline: which cells a stretch of time touches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

import msgspec
import numpy as np

from fusetui.text.figures import tick
from fusetui.timeline.cells import edges, row_in
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import covered_until, union
from fusetui.trace.model.memo import memo
from fusetui.tui.layout.lanes import main_lane
from fusetui.tui.layout.places import index_of, where_rows
from fusetui.tui.layout.view import Place, Side, View, index_of_gap, times

SMALL = 14  # with fewer lines the bar below the minimap is left out
TALL = 12  # with fewer lines the legend is left out


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
        covered = np.diff(covered_until(self.starts, self.ends, borders))
        size = np.maximum(np.diff(borders), 1)
        level = np.where(
            covered > 0, np.clip((covered * top + size - 1) // size, 1, top), 0
        )
        return [*level.tolist()]


@memo()
def busy_of(trace: Trace) -> Busy:
    rows, label = trace.gpu_rows, "GPU busy"
    if not len(rows):
        rows, label = trace.rows_of(Role.DEVICE), "device busy"
    if not len(rows):
        rows, label = np.flatnonzero((trace.op >= 0) & (trace.depth == 0)), "CPU ops"
    starts, ends, _ = union(trace.start[rows], trace.end[rows])
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


class Division(msgspec.Struct, frozen=True):
    """DepthRows above and below the lanes, and cells left of them."""

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
    gutter = 15 if width < 100 else 18 if width < 160 else 24
    axis = 2 if height < SMALL else 3
    return Division(
        width, axis, gutter, max(1, width - gutter), max(0, lanes_in(height))
    )


def lanes_in(lines: int) -> int:
    """How many lines of a timeline are for lanes: not those above them, nor the legend
    below."""
    return lines - (2 if lines < SMALL else 3) - (lines >= TALL)


def top_for(side: Side, view: View, shown: Sequence[Place], top: int, room: int) -> int:
    """The first line on the screen, such that the selected line, if any, is on the
    screen."""
    index = index_of(side, shown, view.selected) if view.selected >= 0 else -1
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
    main = main_lane(side.lanes)
    lines = (
        n for n, p in enumerate(shown) if p.line is not None and p.lane == main >= 0
    )
    first = next(lines, 0)
    return within(shown, max(top, first - room + 1), room)


def thumb(shown: Sequence[Place], top: int, room: int) -> range:
    """The lines beside which the bar of a scroll bar stands; empty when all lines are
    in sight."""
    if len(shown) <= room or room <= 0:
        return range(0)
    size = max(1, room * room // len(shown))
    first = -(-top * (room - size) // (len(shown) - room))
    return range(first, first + size)


def within(shown: Sequence[Place], top: int, room: int) -> int:
    """The first line on the screen, such that no room below the last line is left
    empty."""
    return max(0, min(top, len(shown) - room))


def tick_step(span_ns: int, most: int) -> int:
    """The smallest round step (1, 2 or 5 times a power of ten, in ns) with at most
    `most` ticks."""
    steps: Iterator[int] = (n * 10**power for power in count() for n in (1, 2, 5))
    return next(step for step in steps if span_ns <= step * max(1, most))


def ticks(begin: int, end: int, width: int, room: int = 11) -> list[tuple[int, str]]:
    """(column, text) of each tick of the window [begin, end) in ns over `width`
    columns. Texts are times from zero in the unit of the step; `room` columns are kept
    for each."""
    step = tick_step(end - begin, width // room)
    times = range(-(-begin // step) * step, end, step)
    return [
        ((time - begin) * width // (end - begin), tick(time, step)) for time in times
    ]
