"""The timeline page: one timeline per trace, and the details of the selected slice."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from textual.app import ComposeResult
from textual.containers import Vertical

from fusetui.tui.details import Said, details, details_height
from fusetui.tui.glyphs import Glyphs
from fusetui.tui.pane import Pane
from fusetui.tui.timeline import Timeline
from fusetui.tui.view import Side, View

NOTHING = "nothing selected: j or k selects a slice, w and s zoom, a and d move, ? shows all keys"


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

    def compose(self) -> ComposeResult:
        yield from self.timelines
        yield self._details

    @property
    def active(self) -> int:
        """The timeline that has the focus, else the first."""
        focused = [n for n, timeline in enumerate(self.timelines) if timeline.has_focus]
        return focused[0] if focused else 0

    def show(self, views: Sequence[View], active: int, marked: Sequence[Collection[int]]) -> None:
        for timeline, view, marks in zip(self.timelines, views, marked, strict=True):
            timeline.show(view, marks)
        self.describe(active)

    def open(self, views: Sequence[View], active: int, marked: Sequence[Collection[int]]) -> None:
        """The page comes to the front."""
        self.show(views, active, marked)
        self.focus_timeline(active)

    def show_sides(self, sides: Sequence[Side], views: Sequence[View]) -> None:
        for timeline, side, view in zip(self.timelines, sides, views, strict=True):
            timeline.show_side(side, view)
        self.describe(self.active)

    def follow(
        self, sides: Sequence[Side], views: Sequence[View], marked: Sequence[Collection[int]]
    ) -> None:
        """More of the same traces: the lines in sight stay."""
        for timeline, side, view, marks in zip(self.timelines, sides, views, marked, strict=True):
            timeline.follow(side, view, marks)
        self.describe(self.active)

    def describe(self, active: int) -> None:
        """The details of the row selected on one side."""
        timeline = self.timelines[active]
        width, height = self._details.size.width, details_height(self.size.height)
        if not width:  # not laid out yet; a resize follows
            return
        rule = Said(self._glyphs.rule * width, "rule")
        row = timeline.view.selected
        if row < 0:
            self._details.say([rule, Said(NOTHING)])
            return
        said = details(timeline.side.trace, row, width, height - 1, self._glyphs)
        self._details.say([rule, *said])

    def on_resize(self) -> None:
        self._details.styles.height = details_height(self.size.height)
        self.call_after_refresh(self.describe, self.active)

    def focus_timeline(self, index: int) -> None:
        self.timelines[index].focus()
