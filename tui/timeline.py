"""The timeline widget: minimap, ruler and lanes of one trace, drawn line by line."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from fusetui.trace.cells.counters import Curve
from fusetui.tui.commands import commands_of
from fusetui.tui.counter_line import counter_line
from fusetui.tui.frame import (
    busy_of,
    lane_line,
    minimap,
    names_of,
    row_at,
    ruler,
    window_bar,
    window_columns,
)
from fusetui.tui.glyphs import Glyphs
from fusetui.tui.moves import MOVES, go, select
from fusetui.tui.ranges import Span
from fusetui.tui.segments import blank
from fusetui.tui.strips import (
    counter_segments,
    gutter_text,
    heading,
    labelled,
    lane_segments,
    minimap_segments,
    plain,
    ruler_segments,
)
from fusetui.tui.view import Place, Side, View, index_of, places, same_line
from fusetui.tui.writer import writer_is_behind

SMALL = 14  # with fewer lines the bar beneath the minimap is left out
LATER = 0.05  # seconds until a skipped repaint is tried again


@dataclass(frozen=True, slots=True)
class Division:
    """How the widget is divided: lines above the lanes, cells left of them."""

    head: int
    gutter: int
    width: int  # cells of the time axis
    lanes: int  # lines for lanes


def head_height(lines: int) -> int:
    """How many lines of a timeline of so many are above the lanes."""
    return 2 if lines < SMALL else 3


class Timeline(Widget, can_focus=True, inherit_bindings=False):
    """Shows one Side through a View. Movements are pure functions; this draws and listens."""

    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(",".join(c.keys), c.action, c.title, show=False, id=c.id)
        for c in commands_of("timeline")
    ]

    class Moved(Message):
        """The person asks for another view of this timeline."""

        def __init__(self, timeline: Timeline, view: View) -> None:
            super().__init__()
            self.timeline = timeline
            self.view = view

    def __init__(self, side: Side, view: View, glyphs: Glyphs, *, name: str) -> None:
        super().__init__(id=name)
        self.side = side
        self.view = view
        self.marked: Collection[int] = ()
        self.chosen: Span | None = None
        self._glyphs = glyphs
        self._names = names_of(side)
        self._busy = busy_of(side)
        self._top = 0
        self._places = places(side, view)
        self._strips: dict[int, Strip] = {}
        self._late = False

    @property
    def division(self) -> Division:
        width, height = self.size
        gutter = 14 if width < 100 else 18 if width < 160 else 24
        head = head_height(height)
        return Division(head, gutter, max(1, width - gutter), max(0, height - head))

    def show(
        self, view: View, marked: Collection[int] | None = None, chosen: Span | None = None
    ) -> None:
        """Draw another view; only two lines when nothing but the selection moved.

        `marked`: rows that stand out (default: the same as before). `chosen`: the range of time
        that the ruler shows.
        """
        if chosen != self.chosen:
            self.chosen = chosen
            self._redraw_line(self.division.head - 1)
        before, self.view = self.view, view
        shown, self._places = self._places, places(self.side, view)
        if marked is not None and marked != self.marked:
            self.marked = marked
        elif _only_selection(before, view) and self._stays(shown):
            self._redraw_line_of(before.selected)
            self._redraw_line_of(view.selected)
            return
        self._redraw()

    def show_side(self, side: Side, view: View) -> None:
        """Draw another trace."""
        self.side, self.view, self.marked, self._top = side, view, (), 0
        self._names, self._busy = names_of(side), busy_of(side)
        self._places = places(side, view)
        self._redraw()

    def show_counters(self, side: Side) -> None:
        """The same side, its counters known by now: they stand below all that is shown."""
        self.side, self._places = side, places(side, self.view)
        self._strips.clear()
        self.refresh()

    def follow(self, side: Side, view: View, marked: Collection[int], chosen: Span | None) -> None:
        """Draw more of the same trace; the first line stays the first."""
        old, shown, top = self.side, self._places, self._top
        self.show_side(side, view)
        self.marked, self.chosen = marked, chosen
        if top < len(shown):
            self._top = same_line(old, shown[top], side, self._places)
        self._redraw()

    def render_line(self, y: int) -> Strip:
        strip = self._strips.get(y)
        if strip is None:
            strip = self._strips[y] = self._line(y)
        return strip

    def scroll_lanes(self, lines: int) -> None:
        """Scroll the lanes by lines; negative is up."""
        most = max(0, len(self._places) - self.division.lanes)
        self._top = max(0, min(self._top + lines, most))
        self._strips.clear()
        self.refresh()

    def action_move(self, name: str, numbers: tuple[int, ...] = ()) -> None:
        """Apply one of the movements of view.py."""
        self.post_message(self.Moved(self, MOVES[name](self.side, self.view, *numbers)))

    def action_scroll_lanes(self, pages: int) -> None:
        self.scroll_lanes(pages * max(1, self.division.lanes - 2))

    def on_resize(self) -> None:
        self._redraw()

    def on_click(self, event: events.Click) -> None:
        """Select the slice under the pointer; on the minimap: go there."""
        x = event.x - self.division.gutter
        index = event.y - self.division.head + self._top
        if x < 0:
            return
        if event.y < self.division.head:
            time = self.side.begin + (self.side.end - self.side.begin) * x // self.division.width
            self.post_message(self.Moved(self, go(self.side, self.view, time)))
        elif index < len(self._places):
            row = row_at(self.side, self.view, self._places[index], self.division.width, x)
            self.post_message(self.Moved(self, select(self.side, self.view, row)))

    def on_mouse_scroll_down(self) -> None:
        self.scroll_lanes(3)

    def on_mouse_scroll_up(self) -> None:
        self.scroll_lanes(-3)

    def _stays(self, shown: list[Place]) -> bool:
        """Is every line where it was, and the selected one in sight."""
        if [(p.lane, p.depth) for p in shown] != [(p.lane, p.depth) for p in self._places]:
            return False
        index = self._selected_index()
        return index < 0 or self._top <= index < self._top + self.division.lanes

    def _selected_index(self) -> int:
        row = self.view.selected
        return index_of(self.side, self._places, row) if row >= 0 else -1

    def _redraw(self) -> None:
        """Draw all lines anew, or a little later when the terminal cannot keep up."""
        self._strips.clear()
        self._follow_selection()
        if not writer_is_behind(self.app):
            self.refresh()
        elif not self._late:
            self._late = True
            self.set_timer(LATER, self._redraw_late)

    def _redraw_late(self) -> None:
        self._late = False
        self._redraw()

    def _follow_selection(self) -> None:
        room, index = self.division.lanes, self._selected_index()
        if index >= 0 and room > 0:
            self._top = max(min(self._top, index), index - room + 1)
        self._top = max(0, min(self._top, len(self._places) - room))

    def _redraw_line_of(self, row: int) -> None:
        index = index_of(self.side, self._places, row) if row >= 0 else -1
        y = index - self._top + self.division.head
        if index >= 0 and self.division.head <= y < self.size.height:
            self._redraw_line(y)

    def _redraw_line(self, y: int) -> None:
        self._strips.pop(y, None)
        self.refresh(Region(0, y, self.size.width, 1))

    def _line(self, y: int) -> Strip:
        division = self.division
        if y >= division.head:
            return self._lane_strip(y - division.head + self._top)
        window = window_columns(self.side, self.view, division.width)
        if y == 0:
            text = minimap(self.side, self._busy, division.width, self._glyphs)
            return self._labelled(self._busy.label, minimap_segments(text, window))
        if y == division.head - 1:
            text, cells = ruler(self.view, division.width, self.chosen, self._glyphs)
            return self._labelled("", ruler_segments(text, cells))
        return self._labelled("", [plain(window_bar(window, division.width, self._glyphs))])

    def _lane_strip(self, index: int) -> Strip:
        if index >= len(self._places):
            return blank(self.size.width)
        place = self._places[index]
        if place.curve is not None:
            return self._counter_strip(place.label, place.curve)
        if place.line is None:
            return heading(place.label, self.size.width)
        width = self.division.width
        spans = lane_line(
            self.side, self.view, place, width, self._names, self._glyphs, self.marked
        )
        label = gutter_text(self.side, self._places, index, self.division.gutter, self._glyphs)
        return self._labelled(label, lane_segments(spans))

    def _counter_strip(self, label: str, curve: Curve) -> Strip:
        division = self.division
        line = counter_line(
            self.side, self.view, label, curve, division.gutter, division.width, self._glyphs
        )
        return self._labelled(line.gutter, counter_segments(line.levels, line.end))

    def _labelled(self, label: str, segments: list[Segment]) -> Strip:
        return labelled(label, segments, self.division.gutter, self.size.width)


def _only_selection(before: View, after: View) -> bool:
    same = (before.begin, before.end, before.folds) == (after.begin, after.end, after.folds)
    return same and before.selected != after.selected
