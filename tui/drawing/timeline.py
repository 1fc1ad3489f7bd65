"""The picture of a timeline: minimap, ruler and the lanes of one side."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property

import msgspec

from fusetui.text.cutting import clip, word_clip
from fusetui.trace.cells.raster import MANY, seen_in
from fusetui.tui.drawing import device_lines
from fusetui.tui.drawing.glyphs import Glyphs
from fusetui.tui.drawing.lane_lines import labeled, lane_line, where_line
from fusetui.tui.drawing.schemes import Styled
from fusetui.tui.layout.frame import (
    Division,
    busy_of,
    cells_of,
    divided,
    in_view,
    thumb,
    ticks,
    window_columns,
)
from fusetui.tui.layout.kinds import shares
from fusetui.tui.layout.places import marks_selection, places
from fusetui.tui.layout.view import HIDDEN, Interval, Place, Side, View


class TimelinePicture(msgspec.Struct, frozen=True, eq=False, dict=True):
    """One side through a view; `top` is the first of its lines beneath the ruler."""

    side: Side
    view: View
    glyphs: Glyphs
    top: int = 0
    marked: frozenset[int] = frozenset()
    chosen: Interval | None = None

    @cached_property
    def places(self) -> Sequence[Place]:
        return places(self.side, self.view)

    def key(self, y: int, width: int, height: int) -> Hashable:
        division, trace = divided(width, height), self.side.trace
        if y < division.axis:
            window = self._window, self.side.begin, self.side.end
            return trace, window, y, division, self.chosen, self._count(division)
        if y >= division.axis + division.lanes:
            return trace, self.glyphs, width, "legend"
        index = y - division.axis + self.top
        if index >= len(self.places):
            return None, width
        place, bar = self.places[index], self._bar(y - division.axis, division)
        return trace, width, bar, self._place_key(place, division)

    @property
    def _window(self) -> tuple[int, int, int]:
        return self.view.begin, self.view.end, self.side.origin

    def _place_key(self, place: Place, division: Division) -> Hashable:
        """What a line depends on, and nothing else: it is made again once this changes. Where the
        picture of a lane is the same in many windows, these have one key."""
        side, view = self.side, self.view
        if place.idle_of is not None:
            idle = side.insight.idle
            return self._window, place.idle_of.key, place.label, view.gap, idle
        if place.family is not None:
            return self._window, place.family, place.label
        if place.curve is not None:
            return self._window, place.curve, place.label
        if place.line is None:
            return place.label, place.depth
        label = gutter_text(place, division.gutter, self.glyphs)
        if place.where:
            selected = view.selected if marks_selection(side, view, place) else -1
            return self._window, place.lane, label, selected
        selected = view.selected if place.holds(view.selected) else -1
        seen = seen_in(place.line, view.begin + side.origin, view.end + side.origin)
        shown = self._window if seen == MANY else seen
        return shown, place.lane, place.depth, place.around, label, selected, self.marked

    def line(self, y: int, width: int, height: int) -> Sequence[Styled]:
        division = divided(width, height)
        if y >= division.axis + division.lanes:
            return device_lines.legend_line(
                self.side.once(shares), self.glyphs, division.gutter, width
            )
        if y >= division.axis:
            return self._lane(y - division.axis, division)
        window = window_columns(self.side, self.view, division.width)
        label, text = (
            "",
            " " * window.start + window_bar(len(window), self.glyphs),
        )  # below the minimap
        lit, look, bright = range(0), "faint", "window"
        if y == 0:
            busy, look, lit = self.side.once(busy_of), "busy", window
            whole = self.side.begin + self.side.origin, self.side.end + self.side.origin
            label = busy.label
            text = self.glyphs.bars(busy.levels(*whole, division.width, self.glyphs.top))
        elif y == division.axis - 1:
            label = self._count(division)
            text, lit = ruler(self.view, division.width, self.chosen, self.glyphs)
        parts = [(text[: lit.start], look), (text[lit.start : lit.stop], bright)]
        parts.append((text[lit.stop :], look))
        return labeled(label, parts, division.gutter)

    def _count(self, division: Division) -> str:
        """Which lines are on the screen, when not all are."""
        return in_view(self.places, self.top, division.lanes)

    def _bar(self, y: int, division: Division) -> str:
        """The bar beside a line, y counted from the first lane."""
        here = y in thumb(self.places, self.top, division.lanes)
        return self.glyphs.thumb if here else " "

    def _lane(self, y: int, division: Division) -> Sequence[Styled]:
        index, bar = y + self.top, self._bar(y, division)
        if index >= len(self.places):
            return ()
        place, gutter, width = self.places[index], division.gutter, division.width
        side, view, glyphs = self.side, self.view, self.glyphs
        label, parts = place.label, list[Styled]()
        if place.depth == HIDDEN:
            text = clip(label, division.whole, glyphs.ellipsis)
            return _across(text, "faint", division, bar)
        if place.idle_of is not None:  # blank until it is known why the device was idle
            device = side.insight.device(place.idle_of.key[1])
            if side.insight.idle is not None and device >= 0:
                parts = device_lines.idle_line(side, view, side.insight.idle[device], width, glyphs)
        elif place.family is not None:
            label = device_lines.family_label(label, gutter)
            parts = [device_lines.family_line(side, view, *place.family, width, glyphs)]
        elif place.curve is not None:
            found = side, view, label, place.curve, gutter, width, glyphs
            label, parts = device_lines.counter_line(*found)
        elif place.line is None:
            return _across(label, "title", division, bar)
        else:
            label = gutter_text(place, gutter, glyphs)
            if place.where:
                parts = where_line(side, view, place, width, glyphs)
            else:
                parts = lane_line(side, view, place, width, glyphs, self.marked)
        return labeled(label, parts, gutter, bar)


def _across(text: str, token: str, division: Division, bar: str) -> list[Styled]:
    """A text over the whole width; the bar where it leaves room."""
    is_free = bar != " " and len(text) < division.gutter
    beside = bar.rjust(division.gutter - len(text)) if is_free else ""
    return [(text[: division.whole], token), (beside, "faint")]


def gutter_text(place: Place, gutter: int, glyphs: Glyphs) -> str:
    """The label of a line; the last line of a lane that hides some says how many."""
    if not place.more:
        return word_clip(place.label, gutter - 1, glyphs.ellipsis)
    more = f"{glyphs.folded}{place.more}"
    room = gutter - 2 - len(more)
    return f"{word_clip(place.label, room, glyphs.ellipsis).ljust(room)} {more}"


def ruler(view: View, width: int, chosen: Interval | None, glyphs: Glyphs) -> tuple[str, range]:
    """Times at round positions, none cut off, over a bar `├───┤` where a range of time is selected.

    Also returns the cells of that bar.
    """
    text = [" "] * width
    cells = cells_of(view, *chosen, width) if chosen else range(0)
    if chosen and cells:
        whole = (chosen[0] >= view.begin, chosen[1] <= view.end)
        text[cells.start : cells.stop] = window_bar(len(cells), glyphs, *whole)
    for column, label in ticks(view.begin, view.end, width):
        taken = range(column, column + len(label) + 1)
        if taken[-1] < width and not (cells and (cells[0] in taken or cells[-1] in taken)):
            text[column : taken[-1]] = label
    return "".join(text), cells


def window_bar(width: int, glyphs: Glyphs, begins: bool = True, ends: bool = True) -> str:
    """`├───┤`, without an end that is out of sight."""
    left, middle, right = glyphs.window
    if width == 1:
        return middle
    return (left if begins else middle) + middle * (width - 2) + (right if ends else middle)
