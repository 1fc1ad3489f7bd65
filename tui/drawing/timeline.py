"""The picture of a timeline: minimap, ruler and the lanes of one side."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import get_args

import msgspec
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from fusetui.text.cutting import clip, word_clip
from fusetui.trace.cells.counters import Curve
from fusetui.trace.cells.raster import MANY, seen_in
from fusetui.trace.model.ids import Id
from fusetui.tui.drawing import palette
from fusetui.tui.drawing.device_lines import (
    counter_line,
    family_label,
    family_segments,
    idle_segments,
    legend_line,
)
from fusetui.tui.drawing.glyphs import Glyphs
from fusetui.tui.drawing.lane_lines import (
    Look,
    Run,
    labeled,
    lane_line,
    minimap,
    ruler,
    where_runs,
    window_bar,
)
from fusetui.tui.drawing.segments import blank, line, segment, segments_of
from fusetui.tui.layout.frame import Division, busy_of, divided, in_view, thumb, window_columns
from fusetui.tui.layout.kinds import Kind, shares
from fusetui.tui.layout.places import marks_selection, places
from fusetui.tui.layout.view import HIDDEN, Interval, Place, Side, View


def group_line(text: str, gutter: int, width: int, bar: str = " ") -> Strip:
    """A line that names a thread or a device."""
    return _across(text, palette.TITLE, gutter, width, bar)


def hidden_line(text: str, gutter: int, width: int, glyphs: Glyphs, bar: str = " ") -> Strip:
    """A line that names what is hidden."""
    return _across(clip(text, width, glyphs.ellipsis), palette.DIM, gutter, width, bar)


def _across(text: str, style: Style, gutter: int, width: int, bar: str) -> Strip:
    """A text over the whole width; the bar where it leaves room."""
    segments = [segment(text[:width], style)]
    if bar != " " and len(text) < gutter:
        segments.append(segment(bar.rjust(gutter - len(text)), palette.DIM))
    return line(segments, width)


def plain(text: str) -> Segment:
    return segment(text, palette.DIM)


def minimap_segments(text: str, window: range) -> list[Segment]:
    """The busy levels, brighter inside the window."""
    return [
        segment(text[: window.start], palette.BUSY),
        segment(text[window.start : window.stop], palette.WINDOW),
        segment(text[window.stop :], palette.BUSY),
    ]


def ruler_segments(text: str, chosen: range) -> list[Segment]:
    """The ticks, brighter in the selected range of time."""
    return [
        segment(text[: chosen.start], palette.DIM),
        segment(text[chosen.start : chosen.stop], palette.WINDOW),
        segment(text[chosen.stop :], palette.DIM),
    ]


def counter_segments(levels: str, largest: str) -> list[Segment]:
    """The levels of a counter, and a value at their right end."""
    return [segment(levels, palette.BUSY), segment(largest, palette.PLAIN)]


def lane_segments(runs: Sequence[Run]) -> list[Segment]:
    """The slices of one line."""
    return segments_of([(run.text, STYLES[run.look, run.kind]) for run in runs])


def gutter_text(place: Place, gutter: int, glyphs: Glyphs) -> str:
    """The label of a line; the last line of a lane that hides some says how many."""
    more = f"{glyphs.folded}{place.more}" if place.more else ""
    if not more:
        return word_clip(place.label, gutter - 1, glyphs.ellipsis)
    room = gutter - 2 - len(more)
    return f"{word_clip(place.label, room, glyphs.ellipsis).ljust(room)} {more}"


def _style(look: Look, kind: Kind) -> Style:
    if look == "selected":
        return palette.SELECTED
    if look == "marked":
        return palette.MARKED
    if look == "block":
        return palette.fill(kind)
    return palette.bar(kind) if look == "bar" else palette.PLAIN


STYLES = {(look, kind): _style(look, kind) for look in get_args(Look) for kind in Kind}


LEGEND = "legend"


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
            return trace, self.glyphs, width, LEGEND
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
        label = self._label(place, division)
        if place.where:
            selected = view.selected if marks_selection(side, view, place) else -1
            return self._window, place.lane, label, selected
        selected = view.selected if place.holds(view.selected) else -1
        seen = seen_in(place.line, view.begin + side.origin, view.end + side.origin)
        shown = self._window if seen == MANY else seen
        return shown, place.lane, place.depth, place.around, label, selected, self.marked

    def line(self, y: int, width: int, height: int) -> Strip:
        division = divided(width, height)
        if y >= division.axis + division.lanes:
            return legend_line(self.side.once(shares), self.glyphs, division.gutter, width)
        if y >= division.axis:
            return self._lane_strip(y - division.axis, division)
        window = window_columns(self.side, self.view, division.width)
        if y == 0:
            busy = self.side.once(busy_of)
            text = minimap(self.side, busy, division.width, self.glyphs)
            return _labeled(busy.label, minimap_segments(text, window), division)
        if y == division.axis - 1:
            text, cells = ruler(self.view, division.width, self.chosen, self.glyphs)
            return _labeled(self._count(division), ruler_segments(text, cells), division)
        return _labeled("", [plain(window_bar(window, division.width, self.glyphs))], division)

    def _count(self, division: Division) -> str:
        """Which lines are on the screen, when not all are."""
        return in_view(self.places, self.top, division.lanes)

    def _bar(self, y: int, division: Division) -> str:
        """The bar beside a line, y counted from the first lane."""
        here = y in thumb(self.places, self.top, division.lanes)
        return self.glyphs.thumb if here else " "

    def _label(self, place: Place, division: Division) -> str:
        """What stands left of a line."""
        if place.line is None:
            return place.label
        return gutter_text(place, division.gutter, self.glyphs)

    def _lane_strip(self, y: int, division: Division) -> Strip:
        index, bar = y + self.top, self._bar(y, division)
        if index >= len(self.places):
            return blank(division.whole)
        place = self.places[index]
        if place.depth == HIDDEN:
            whole, gutter = division.whole, division.gutter
            return hidden_line(place.label, gutter, whole, self.glyphs, bar)
        if place.idle_of is not None:
            return self._idle_strip(place.label, place.idle_of.key[1], division, bar)
        if place.family is not None:
            shown = family_segments(self.side, self.view, place.family, division.width, self.glyphs)
            return _labeled(family_label(place.label, division.gutter), shown, division, bar)
        if place.curve is not None:
            return self._counter_strip(place.label, place.curve, division, bar)
        if place.line is None:
            return group_line(place.label, division.gutter, division.whole, bar)
        if place.where:
            runs = where_runs(self.side, self.view, place, division.width, self.glyphs)
        else:
            runs = lane_line(self.side, self.view, place, division.width, self.glyphs, self.marked)
        return _labeled(self._label(place, division), lane_segments(runs), division, bar)

    def _idle_strip(self, label: str, pid: Id, division: Division, bar: str) -> Strip:
        """Blank until it is known why the device was idle."""
        insight = self.side.insight
        device = insight.device(pid)
        if insight.idle is None or device < 0:
            return _labeled(label, [], division, bar)
        idle = insight.idle[device]
        segments = idle_segments(self.side, self.view, idle, division.width, self.glyphs)
        return _labeled(label, segments, division, bar)

    def _counter_strip(self, label: str, curve: Curve, division: Division, bar: str) -> Strip:
        line = counter_line(
            self.side, self.view, label, curve, division.gutter, division.width, self.glyphs
        )
        return _labeled(line.gutter, counter_segments(line.levels, line.end), division, bar)


def _labeled(label: str, segments: list[Segment], division: Division, bar: str = " ") -> Strip:
    return labeled(label, segments, division.gutter, division.whole, bar)
