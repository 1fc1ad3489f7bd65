"""The timeline page: one timeline per trace, and the details of the selected slice."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical

from fusetui.tui.copying import slice_text
from fusetui.tui.details import Said, details, details_height
from fusetui.tui.glyphs import Glyphs
from fusetui.tui.pane import Pane
from fusetui.tui.range_lines import range_lines
from fusetui.tui.ranges import Range
from fusetui.tui.session import Session
from fusetui.tui.timeline import Timeline, head_height
from fusetui.tui.view import Side, View

NOTHING = "nothing selected: j or k selects a slice, w and s zoom, a and d move, ? shows all keys"


def lanes_height(lines: int, sides: int) -> int:
    """How many lines of a page of so many are there for the lanes of each side."""
    each = (lines - details_height(lines)) // sides
    return each - head_height(each)


class TimelinePage(Vertical):
    """Draws what it is told; movements go to the app as Timeline.Moved."""

    def __init__(self, sides: Sequence[Side], views: Sequence[View], glyphs: Glyphs) -> None:
        super().__init__(id="timeline")
        self._glyphs = glyphs
        self.timelines = [
            Timeline(side, view, glyphs, name=f"timeline-{n}")
            for n, (side, view) in enumerate(zip(sides, views, strict=True))
        ]
        self._details = Pane(name="details")
        self._active = 0
        self._range: Range | None = None

    def compose(self) -> ComposeResult:
        yield from self.timelines
        yield self._details

    @property
    def active(self) -> int:
        """The timeline that had the focus last."""
        return self._active

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        if event.widget in self.timelines:
            self._active = self.timelines.index(event.widget)

    def show(self, session: Session, active: int) -> None:
        """Another state; `active`: the side whose details are shown."""
        self._range = session.time_range
        for index, timeline in enumerate(self.timelines):
            timeline.show(session.views[index], session.marked[index], session.span(index))
        self.describe(active)

    def open(self, session: Session, active: int) -> None:
        """The page comes to the front."""
        self.show(session, active)
        self.focus_timeline(active)

    def show_sides(self, sides: Sequence[Side], views: Sequence[View]) -> None:
        for timeline, side, view in zip(self.timelines, sides, views, strict=True):
            timeline.show_side(side, view)
        self.describe(self.active)

    def copied(self) -> str:
        """The selected slice of the active timeline: name, start, duration."""
        timeline = self.timelines[self.active]
        row = timeline.view.selected
        return slice_text(timeline.side, row) if row >= 0 else ""

    def follow(self, session: Session) -> None:
        """More of the same traces: the lines in sight stay."""
        self._range = session.time_range
        for index, timeline in enumerate(self.timelines):
            side, view = session.sides[index], session.views[index]
            timeline.follow(side, view, session.marked[index], session.span(index))
        self.describe(self.active)

    def show_counters(self, sides: Sequence[Side]) -> None:
        """Counters are known by now; nothing else changed."""
        for timeline, side in zip(self.timelines, sides, strict=True):
            if timeline.side is not side:
                timeline.show_counters(side)

    def describe(self, active: int) -> None:
        """The figures of the range of one side, else the details of its selected row."""
        timeline = self.timelines[active]
        width, height = self._details.size.width, details_height(self.size.height)
        if not width:  # not laid out yet; a resize follows
            return
        rule = Said(self._glyphs.rule * width, "rule")
        found = self._range
        if found and found.ended and found.side == active:
            lines = range_lines(timeline.side, found, width, height - 1, self._glyphs)
            self._details.say([rule, *lines])
            return
        row = timeline.view.selected
        if row < 0:
            self._details.say([rule, Said(NOTHING)])
            return
        said = details(timeline.side.trace, row, width, height - 1, self._glyphs)
        self._details.say([rule, *said])

    def describe_again(self) -> None:
        """More is known of what is selected."""
        self.describe(self.active)

    def on_resize(self) -> None:
        self._details.styles.height = details_height(self.size.height)
        self.call_after_refresh(self.describe, self.active)

    def focus_timeline(self, index: int) -> None:
        self._active = index
        self.timelines[index].focus()
