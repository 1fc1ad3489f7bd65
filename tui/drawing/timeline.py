"""The picture of a timeline: minimap, ruler, the lanes of one side, the lines of a
device (idle reasons, kernel kinds, counters), and the color legend."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import cached_property, lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.why.idle_time import IdleTime
from fusetui.analysis.why.model import IDLE
from fusetui.text.cutting import clip, word_clip
from fusetui.text.figures import percent, quantity
from fusetui.timeline.cells import (
    SEVERAL,
    DepthRow,
    edges,
    row_covering_window,
    sum_kind_in_cells,
)
from fusetui.trace.layout.counters import Curve, values
from fusetui.trace.model.arrays import Int64s
from fusetui.trace.model.ids import Id
from fusetui.trace.model.memo import memo
from fusetui.tui.drawing.lane_lines import (
    draw_lane_line,
    draw_program_location_line,
    labeled,
)
from fusetui.tui.drawing.schemes import BAR, Glyphs, Styled
from fusetui.tui.layout.frame import (
    Division,
    compute_cell_edges,
    divide_timeline,
    find_busy_times,
    find_cells,
    make_ticks,
    thumb,
)
from fusetui.tui.layout.kinds import KINDS, LETTERS, KindShare, compute_kind_shares
from fusetui.tui.layout.places import marks_selection, places
from fusetui.tui.layout.view import HIDDEN, Interval, Place, Side, View, find_gap_times

if TYPE_CHECKING:
    from fusetui.analysis.replay.marks import Marks


ACTIVE = ">"  # before the letter of the side that the keys act on


class TimelinePicture(msgspec.Struct, frozen=True, eq=False, dict=True):
    """One side through a view; `top` is the first of its lines beneath the ruler."""

    side: Side
    view: View
    glyphs: Glyphs
    top: int = 0
    marked: frozenset[int] = frozenset()
    chosen: Interval | None = None
    path: Marks | None = None  # of what is marked as the critical path
    letter: str = ""  # of the side, where there are two
    is_active: bool = False  # whether the keys act on this one of two sides

    @cached_property
    def places(self) -> Sequence[Place]:
        """The lines of the side beneath the ruler, from top to bottom."""
        return places(self.side, self.view)

    def key(self, y: int, width: int, height: int) -> Hashable:
        """Return everything that the content of line `y` depends on. The line is drawn
        again only if its key has changed."""
        division = divide_timeline(width, height)
        side = self.side
        if y < division.axis:
            window = self.view.begin, self.view.end, side.origin, side.begin, side.end
            scroll = self._count_lines_in_view(division)
            side_mark = self.letter, self.is_active
            return side.trace, window, y, division, self.chosen, scroll, side_mark
        if y >= division.axis + division.lanes:
            return side.trace, self.glyphs, width, "legend"
        index = y - division.axis + self.top
        if index >= len(self.places):
            return None, width
        bar = self._draw_scroll_bar(y - division.axis, division)
        return (
            side.trace,
            width,
            bar,
            self._make_place_key(self.places[index], division),
        )

    def _make_place_key(self, place: Place, division: Division) -> Hashable:
        """Return everything that the content of one line of a lane depends on, and
        nothing else.

        The line is drawn again whenever its key changes, so anything else in the key
        would cost time. If a single slice, or none, covers the whole window, the key
        does not contain the window: such a line looks the same after any movement.
        """
        window = self.view.begin, self.view.end, self.side.origin
        if place.idle_of is not None:
            idle = self.side.insight.idle
            return window, place.idle_of.key, place.label, self.view.gap, idle
        if place.family is not None or place.curve is not None:
            return window, place.family, place.curve, place.label
        if place.line is None:
            return place.label, place.depth
        label = format_gutter_label(place, division.gutter, self.glyphs)
        selected = self._find_selected_on(place)
        if place.where:
            return window, place.lane, label, selected, self.path
        covering_row = self._find_covering_row(place.line)
        window_key = window if covering_row == SEVERAL else covering_row
        lane_key = place.lane, place.depth, place.around, label
        return window_key, lane_key, selected, self.marked, self.path

    def _find_selected_on(self, place: Place) -> int:
        """Return the selected slice if it is visible on a line, else -1."""
        if place.where:
            is_shown = marks_selection(self.side, self.view, place)
        else:
            is_shown = place.holds(self.view.selected)
        return self.view.selected if is_shown else -1

    def _find_covering_row(self, line: DepthRow) -> int:
        """Return the row that covers the whole window on a line. NO_SLICE means that no
        slice is in the window, SEVERAL that it has boundaries of slices."""
        origin = self.side.origin
        return row_covering_window(
            line, self.view.begin + origin, self.view.end + origin
        )

    def line(self, y: int, width: int, height: int) -> Sequence[Styled]:
        """Return the content of line `y` of the timeline as texts with their styles.
        From top to bottom it has the minimap, a bar for the window (if there is room),
        the ruler, the lanes, and the legend."""
        division = divide_timeline(width, height)
        if y >= division.axis + division.lanes:
            kinds = compute_kind_shares(self.side.trace)
            return draw_legend_line(kinds, self.glyphs, division.gutter, width)
        if y >= division.axis:
            return self._lane(y - division.axis, division)
        if y == 0:
            return self._draw_minimap(division)
        if y == division.axis - 1:
            return self._ruler(division)
        return self._draw_window_bar(division)

    def _draw_minimap(self, division: Division) -> list[Styled]:
        """Draw how busy the GPUs were over the whole trace, with the visible window
        brighter. In a comparison of two traces the letter of this one (A or B) precedes
        it, highlighted if keys act on it."""
        side = self.side
        busy = find_busy_times(side.trace)
        levels = busy.levels(
            side.begin + side.origin,
            side.end + side.origin,
            division.width,
            self.glyphs.top,
        )
        window = find_window_columns(side, self.view, division.width)
        parts = _highlight_range(self.glyphs.bars(levels), window, "busy")
        if not self.letter:
            return labeled(busy.label, parts, division.gutter)
        side_mark = f"{ACTIVE if self.is_active else ' '}{self.letter} "
        token = "front" if self.is_active else "title"
        label = labeled(busy.label, parts, division.gutter - len(side_mark))
        return [(side_mark, token), *label]

    def _draw_window_bar(self, division: Division) -> list[Styled]:
        """Draw a bar under the part of the minimap that the window shows."""
        window = find_window_columns(self.side, self.view, division.width)
        bar = draw_window_bar(len(window), self.glyphs)
        parts = _highlight_range(" " * window.start + bar, range(0), "faint")
        return labeled("", parts, division.gutter)

    def _ruler(self, division: Division) -> list[Styled]:
        """The ruler, at its left which of the lines are on the screen."""
        text, bar = draw_ruler(self.view, division.width, self.chosen, self.glyphs)
        parts = _highlight_range(text, bar, "faint")
        return labeled(self._count_lines_in_view(division), parts, division.gutter)

    def _count_lines_in_view(self, division: Division) -> str:
        """Return which lines of the timeline are on the screen, such as `lines 1-15 of
        41`, cut to fit in the gutter; "" if all are."""
        room = division.gutter - 1
        return count_lines_in_view(len(self.places), self.top, division.lanes, room)

    def _draw_scroll_bar(self, y: int, division: Division) -> str:
        """Return the character of the scroll bar at line `y` below the ruler, or a
        blank outside of the bar."""
        bar_lines = thumb(self.places, self.top, division.lanes)
        return self.glyphs.thumb if y in bar_lines else " "

    def _lane(self, y: int, division: Division) -> Sequence[Styled]:
        """Draw line `y` below the ruler: its label, the scroll bar, and its cells.

        The line shows slices, the idle time of a device, one kind of kernels, or a
        counter. It may also be only a text, such as the name of a thread. Below the
        last line it is empty.
        """
        index = y + self.top
        if index >= len(self.places):
            return ()
        place = self.places[index]
        scroll_bar = self._draw_scroll_bar(y, division)
        if place.depth == HIDDEN:
            names = clip(place.label, division.whole, self.glyphs.ellipsis)
            return _draw_heading(names, "faint", division, scroll_bar)
        label = place.label
        if place.idle_of is not None:
            parts = self._draw_idle_time(place.idle_of.pid, division)
        elif place.family is not None:
            label, parts = self._family(place.label, place.family, division)
        elif place.curve is not None:
            label, parts = self._draw_counter(place.label, place.curve, division)
        elif place.line is not None:
            label = format_gutter_label(place, division.gutter, self.glyphs)
            parts = self._slices(place, division)
        else:
            return _draw_heading(label, "title", division, scroll_bar)
        return labeled(label, parts, division.gutter, scroll_bar)

    def _draw_idle_time(self, pid: Id, division: Division) -> list[Styled]:
        """Draw why a device was idle, over the cells of its line. The list is empty
        until the reasons have been computed. `pid` is the id of the device."""
        idle = self.side.insight.idle
        device = self.side.insight.device(pid)
        if idle is None or device < 0:
            return []
        return draw_idle_line(
            self.side, self.view, idle[device], division.width, self.glyphs
        )

    def _family(
        self, label: str, family: tuple[DepthRow, int], division: Division
    ) -> LabeledCells:
        """Draw the line for one kind of kernels on a stream, as a label and cells. If
        the label is too long for the gutter, the percentage at its end is left out,
        because a cut number would mislead. `family` is the line of slices, and the
        number of the kind."""
        if len(label) >= division.gutter:
            # the share at its end, such as `12.3 %` or `<0.1 %`
            label = label.rstrip(" %0123456789.<>")
        line, kind = family
        cells = draw_kind_line(
            self.side, self.view, line, kind, division.width, self.glyphs
        )
        return LabeledCells(label, [cells])

    def _draw_counter(
        self, label: str, curve: Curve, division: Division
    ) -> LabeledCells:
        """Draw the line of a counter, such as memory or power, as a label and cells."""
        return draw_counter_line(
            self.side,
            self.view,
            label,
            curve,
            division.gutter,
            division.width,
            self.glyphs,
        )

    def _slices(self, place: Place, division: Division) -> list[Styled]:
        """Draw the slices of a line of a lane, or for its first line the current
        module."""
        if place.where:
            return draw_program_location_line(
                self.side, self.view, place, division.width, self.glyphs, self.path
            )
        return draw_lane_line(
            self.side,
            self.view,
            place,
            division.width,
            self.glyphs,
            self.marked,
            self.path,
        )


def count_lines_in_view(lines: int, top: int, room: int, cells: int) -> str:
    """Which of `lines` lines are on a screen with `room` for them, whose first one is
    line `top` (from 0), in `cells` cells: `lines 1-15 of 41`, shorter where that does
    not fit. "" when all of them are."""
    if room <= 0 or lines <= room:
        return ""
    last = min(top + room, lines)
    shown = f"{top + 1}-{last}"
    for text in (f"lines {shown} of {lines}", f"lines {shown}/{lines}"):
        if len(text) <= cells:
            return text
    return f"{shown}/{lines}"


def _highlight_range(text: str, bright: range, token: str) -> list[Styled]:
    """Return a text in the style `token`, with the cells in `bright` in the style of
    the window. The range may be empty."""
    return [
        (text[: bright.start], token),
        (text[bright.start : bright.stop], "window"),
        (text[bright.stop :], token),
    ]


def find_window_columns(side: Side, view: View, width: int) -> range:
    """Return the cells of the minimap that the visible window covers.

    The minimap shows the whole trace in `width` cells. A very short window still covers
    one cell, so that it can be seen.
    """
    whole_ns = side.end - side.begin
    begin = max(view.begin, side.begin) - side.begin
    end = min(view.end, side.end) - side.begin
    first_cell = begin * width // whole_ns
    first_cell = min(first_cell, width - 1)
    end_cell = -(-end * width // whole_ns)  # rounded up
    end_cell = min(end_cell, width)
    return range(first_cell, max(first_cell + 1, end_cell))


def _draw_heading(text: str, token: str, division: Division, bar: str) -> list[Styled]:
    """Draw a text over the whole width of a line. The scroll bar is added in its column
    if the text ends before it."""
    has_room_for_bar = bar != " " and len(text) < division.gutter
    padded_bar = bar.rjust(division.gutter - len(text)) if has_room_for_bar else ""
    return [(text[: division.whole], token), (padded_bar, "faint")]


def format_gutter_label(place: Place, gutter: int, glyphs: Glyphs) -> str:
    """Return the label of a line, cut to `gutter - 1` cells.

    The last line of a lane with hidden lines ends with their number, such as `+3`.
    """
    if not place.more:
        return word_clip(place.label, gutter - 1, glyphs.ellipsis)
    hidden_lines = f"{glyphs.folded}{place.more}"
    label_cells = gutter - 2 - len(hidden_lines)
    label = word_clip(place.label, label_cells, glyphs.ellipsis)
    return f"{label.ljust(label_cells)} {hidden_lines}"


def draw_ruler(
    view: View, width: int, chosen: Interval | None, glyphs: Glyphs
) -> tuple[str, range]:
    """Return the text of the time ruler, and the cells of the bar for the selected
    range.

    Times stand at round positions; those that would be cut off are left out. If a range
    of time is selected (`chosen`), a bar `├───┤` marks it, whose ends no time covers.
    Without one the cells are empty.
    """
    ruler_chars = [" "] * width
    bar = range(0)
    if chosen:
        begin, end = chosen
        bar = find_cells(view, begin, end, width)
        if bar:
            shows_begin = begin >= view.begin
            shows_end = end <= view.end
            bar_text = draw_window_bar(len(bar), glyphs, shows_begin, shows_end)
            ruler_chars[bar.start : bar.stop] = bar_text
    for tick in make_ticks(view.begin, view.end, width):
        tick_end = tick.column + len(tick.text)
        with_blank = range(tick.column, tick_end + 1)
        if tick_end < width and not _contains_bar_end(bar, with_blank):
            ruler_chars[tick.column : tick_end] = tick.text
    return "".join(ruler_chars), bar


def _contains_bar_end(bar: range, cells: range) -> bool:
    """Tell whether the first or the last cell of a bar is among some cells; False for
    an empty bar."""
    if not bar:
        return False
    return bar[0] in cells or bar[-1] in cells


def draw_window_bar(
    width: int, glyphs: Glyphs, begins: bool = True, ends: bool = True
) -> str:
    """Return a bar such as `├───┤` of `width` cells. An end that is off the screen
    (`begins` or `ends` is False) is drawn as a plain line. So is a bar of one cell."""
    left, middle, right = glyphs.window
    if width == 1:
        return middle
    first = left if begins else middle
    last = right if ends else middle
    return first + middle * (width - 2) + last


UNITS = {"bytes": "B"}
# cells that the largest value may take in the gutter, including the space before it
LARGEST_VALUE_CELLS = 10
NO_REASON = -1
MAX_DEVICES_WITH_KEPT_CELLS = 16  # for one window
BETWEEN = "  "  # two families of the legend
_quantity = lru_cache(maxsize=1024)(quantity)
"""Few values are the largest of any window, and to write one exactly takes long."""


class LabeledCells(NamedTuple):
    """What stands in the gutter of a line, and what is drawn over its cells."""

    label: str
    parts: list[Styled]


def draw_counter_line(
    side: Side,
    view: View,
    label: str,
    curve: Curve,
    gutter: int,
    width: int,
    glyphs: Glyphs,
) -> LabeledCells:
    """Draw the line of a counter: its label, and a bar in each of `width` cells.

    A full bar is the largest value of the whole trace, so that heights are comparable
    while scrolling. The largest value in the window is written behind the label, or
    over the last cells if the gutter is too narrow. Cells before the first value are
    blank.

    Args:
        side: The trace with the counter.
        view: The visible window.
        label: The name of the counter.
        curve: Its values.
        gutter: The cells left of the time axis, for the label.
        width: The cells of the time axis.
        glyphs: The drawing characters of the terminal.
    """
    borders = compute_cell_edges(side, view, width)
    values_in_cells = values(curve, borders)
    bars = levels(values_in_cells, curve.largest, glyphs)
    largest_in_sight = float(np.fmax.reduce(values_in_cells))
    has_value_in_sight = not math.isnan(largest_in_sight)
    if not has_value_in_sight:
        return LabeledCells(label, [(bars, "busy")])
    largest_text = _quantity(largest_in_sight, UNITS.get(curve.counter.unit, ""))
    free_cells = gutter - 1 - len(label)
    if free_cells >= LARGEST_VALUE_CELLS:
        label_with_value = label + largest_text.rjust(free_cells)
        return LabeledCells(label_with_value, [(bars, "busy")])
    value_text = f" {largest_text}"[-width:]  # its end, on a line that is too short
    bars_before_value = bars[: width - len(value_text)]
    return LabeledCells(label, [(bars_before_value, "busy"), (value_text, "plain")])


def levels(
    values: np.ndarray[tuple[int], np.dtype[np.float64]],
    largest: float,
    glyphs: Glyphs,
) -> str:
    """Return one bar character for each value; the value `largest` gets a full bar.

    Values below zero and tiny ones get the lowest bar. NaN, which stands for no value,
    becomes a space.
    """
    shares_of_largest = np.maximum(values, 0.0) / (largest if largest > 0 else 1.0)
    bar_heights = np.maximum(np.ceil(shares_of_largest * glyphs.top), 1.0)
    bar_heights[np.isnan(values)] = 0.0
    return glyphs.bars(bar_heights.astype(np.int8).tolist())


def draw_kind_line(
    side: Side, view: View, line: DepthRow, kind: int, width: int, glyphs: Glyphs
) -> Styled:
    """Draw the share of time that slices of one kind take in each cell, as a text of
    bars and its style.

    A bar is full if these slices run for the whole cell. Any time above 0 gets at least
    the lowest bar, and cells without any are blank.

    Args:
        side: The trace with the slices.
        view: The visible window.
        line: The slices of all kinds on one line of a stream.
        kind: The index of the kind in KINDS.
        width: The cells of the window.
        glyphs: The drawing characters of the terminal.
    """
    borders = compute_cell_edges(side, view, width)
    cell_ns = np.maximum(np.diff(borders), 1)
    kind_ns = sum_kind_in_cells(line, borders, kind)
    bar_heights = kind_ns * glyphs.top // cell_ns
    bar_heights = np.clip(bar_heights, 1, glyphs.top)
    bar_heights[kind_ns <= 0] = 0
    return glyphs.bars(bar_heights.tolist()), KINDS[kind].token + BAR


class IdleCell(NamedTuple):
    """What a cell of the line of idle time shows."""

    reason: int  # its index among the reasons of the device; NO_REASON: not idle
    level: int  # the height of its bar; 0: a block
    is_selected: bool


def draw_idle_line(
    side: Side, view: View, idle: IdleTime, width: int, glyphs: Glyphs
) -> list[Styled]:
    """Draw why a device was idle, by the reason with the most idle time in each cell.

    A cell that is idle for at least half of its time is part of a block. A block has
    the name of its reason, or its letter if the name does not fit. Any other idle cell
    has a bar, as high as its idle share. Busy cells are blank, and the selected gap is
    highlighted.

    Args:
        side: The trace and its lanes.
        view: The visible window and the selection.
        idle: The idle time of the device, with the reasons.
        width: The cells of the window.
        glyphs: The drawing characters of the terminal.
    """
    parts: list[Styled] = []
    for cell, group in groupby(_compute_idle_cells(side, view, idle, width, glyphs)):
        size = len(list(group))
        if cell.reason == NO_REASON:
            parts.append((" " * size, "plain"))
            continue
        name = idle.reasons[cell.reason].name
        style = f"idle.{name}"
        if cell.level:
            bar = glyphs.levels[cell.level]
            parts.append((bar * size, style + BAR))
        else:
            style = "selection" if cell.is_selected else style
            parts.append((_label_idle_cells(name, size), style))
    return parts


class VisibleReasons(NamedTuple):
    """The idle reasons that the lines of idle time show in a window, as keys of IDLE."""

    in_cells: set[str]  # in letters or names
    in_bars: set[str]  # in the colors of bars


def find_visible_idle_reasons(
    side: Side, view: View, width: int, glyphs: Glyphs
) -> VisibleReasons:
    """Return the reasons that the lines of idle time show in the window. `width` is
    that of the time axis, in cells."""
    visible = VisibleReasons(in_cells=set(), in_bars=set())
    for idle in side.insight.idle or ():
        main = _find_main_reasons(side, idle, view.begin, view.end, width, glyphs.top)
        for reason, level in set(zip(main.reasons, main.bar_heights, strict=True)):
            if reason == NO_REASON:
                continue
            names = visible.in_bars if level else visible.in_cells
            names.add(idle.reasons[reason].name)
    return visible


def _label_idle_cells(name: str, width: int) -> str:
    """Return the text of a block of idle time: the short name of the reason if it fits
    in `width` cells, else its letter in each cell. `name` is the key of the reason in
    IDLE."""
    reason = IDLE[name]
    if width >= len(reason.short) + 2:
        return f" {reason.short}".ljust(width)
    return reason.letter * width


def _compute_idle_cells(
    side: Side, view: View, idle: IdleTime, width: int, glyphs: Glyphs
) -> list[IdleCell]:
    """Return for each of `width` cells the main idle reason, the height of its bar, and
    whether it is in the selected gap.

    The main reason is the one with the most time in the cell. `idle` is the idle time
    of one device.
    """
    main = _find_main_reasons(side, idle, view.begin, view.end, width, glyphs.top)
    selected_cells = _find_selected_gap_cells(side, view, idle, width)
    cells = []
    for x, (reason, level) in enumerate(
        zip(main.reasons, main.bar_heights, strict=True)
    ):
        cells.append(IdleCell(reason, level, is_selected=x in selected_cells))
    return cells


class MainReasons(NamedTuple):
    """What a line of idle time shows in each cell of the window."""

    reasons: list[int]  # the index of the reason with the most time, or NO_REASON
    bar_heights: list[int]  # 0 for a filled block


@memo(MAX_DEVICES_WITH_KEPT_CELLS)
def _find_main_reasons(
    side: Side, idle: IdleTime, begin: int, end: int, width: int, top: int
) -> MainReasons:
    """Find the main idle reason of each of `width` cells, and the height of its bar.

    Results are kept, because the line of a device and the legend both need them.

    Args:
        side: The trace.
        idle: The idle time of one device.
        begin: The begin of the window, in ns from the begin of the trace.
        end: Its end.
        width: The number of cells.
        top: The height of a full cell.
    """
    borders = edges(begin + side.origin, end + side.origin, width)
    ns_by_reason = idle.measure_between_edges(borders)  # [reasons, cells]
    # a device that was never idle has no reasons
    if not len(ns_by_reason):
        return MainReasons(reasons=[NO_REASON] * width, bar_heights=[0] * width)
    idle_ns = ns_by_reason.sum(axis=0)
    longest_reason = ns_by_reason.argmax(axis=0)
    reasons = np.where(idle_ns > 0, longest_reason, NO_REASON)
    return MainReasons(
        reasons=reasons.tolist(),
        bar_heights=_compute_idle_heights(idle_ns, np.diff(borders), top),
    )


def _compute_idle_heights(idle_ns: Int64s, cell_ns: Int64s, top: int) -> list[int]:
    """Return the height of the bar in each cell, proportional to its idle share and
    rounded up.

    A cell that is idle for at least half of its time gets 0, which means a filled
    block. `top` is the height of a full cell.
    """
    cell_ns = np.maximum(cell_ns, 1)
    bar_heights = (idle_ns * top + cell_ns - 1) // cell_ns  # rounded up
    # a higher bar would look like a block
    bar_heights = np.clip(bar_heights, 1, top // 2)
    bar_heights[2 * idle_ns >= cell_ns] = 0
    return [*bar_heights.tolist()]


def _find_selected_gap_cells(
    side: Side, view: View, idle: IdleTime, width: int
) -> range:
    """Return the cells of the selected gap in the work of a device. The range is empty
    if no gap is selected, or if it is one of another device."""
    gap = view.gap
    if gap is None or side.insight.device(idle.device) != gap.device:
        return range(0)
    interval = find_gap_times(side, gap)
    if interval is None:
        return range(0)
    begin, end = interval
    return find_cells(view, begin, end, width)


class LegendEntry(NamedTuple):
    """A color of a picture: its mark, its name, and its amount of the whole (in ns or
    bytes)."""

    mark: Styled
    name: str
    amount: int


def draw_legend_line(
    kinds: Sequence[KindShare], glyphs: Glyphs, gutter: int, width: int
) -> list[Styled]:
    """Draw the legend of the GPU lanes: each kind of kernels with its color and its
    share of the GPU time. In colorless terminals a letter stands in place of the color.
    `kinds` may be empty, in a trace without GPU work."""
    entries = []
    for share in kinds:
        sign = LETTERS[share.kind] if glyphs.letters else glyphs.swatch
        entry = LegendEntry(
            mark=(sign, share.kind.token + BAR),
            name=share.kind.removeprefix("gpu-"),
            amount=share.ns,
        )
        entries.append(entry)
    label = f"{kinds[0].of} time" if kinds else ""
    parts = draw_legend_entries(entries, width - gutter, fine=True)
    return labeled(label, parts, gutter)


def draw_legend_entries(
    entries: Sequence[LegendEntry],
    room: int,
    lead: str = "",
    fine: bool = False,
) -> list[Styled]:
    """Draw as many entries of a legend as fit in `room` cells, then the number and
    share of the others.

        ■ gemm 45.2 %  ■ reduction 46.1 %  2 more 8.7 %

    Args:
        entries: The colors with their names and amounts, in the order of the legend.
        room: The cells of the line.
        lead: A text before the first entry.
        fine: Whether small shares are written with more digits.
    """
    whole = sum(entry.amount for entry in entries)
    parts: list[Styled] = []
    free_cells = room
    before_entry = lead
    for index, entry in enumerate(entries):
        text = f" {entry.name} {percent(entry.amount, whole, fine=fine)}"
        mark_cells = 1
        entry_cells = len(before_entry) + mark_cells + len(text)
        # an entry is shown only if room remains for the number of the others
        others_after = _summarize_entries(entries[index + 1 :], whole, fine)
        if entry_cells + len(others_after) > free_cells:
            others = _summarize_entries(entries[index:], whole, fine)
            # nothing stands before it that it has to be separated from
            if not before_entry:
                others = others.strip()
            parts.append((others[: max(0, free_cells)], "faint"))
            break
        parts += [(before_entry, "faint"), entry.mark, (text, "faint")]
        free_cells -= entry_cells
        before_entry = BETWEEN
    return parts


def _summarize_entries(entries: Sequence[LegendEntry], whole: int, fine: bool) -> str:
    """Return how many entries there are and their share of the whole, such as `2 more
    8.7 %`; "" if there are none."""
    if not entries:
        return ""
    amount = sum(entry.amount for entry in entries)
    return f"{BETWEEN}{len(entries)} more {percent(amount, whole, fine=fine)}"
