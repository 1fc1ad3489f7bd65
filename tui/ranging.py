"""The commands that select a range of time and show its figures."""

from __future__ import annotations

from fusetui.tui.part import Part
from fusetui.tui.range_lines import all_range_lines
from fusetui.tui.screens import Page

STARTED = "the range starts here: move, then v again ends it   Esc drops it"
ENDED = "i all figures of the range   v another range   Esc clears it"


class Ranging(Part):
    """`v` starts a range of time, `v` again ends it; `i` shows all of its figures."""

    def action_range(self) -> None:
        if not self._session.sides:
            return
        if self._mode != "timeline":
            self._say("hints", "a range of time is selected in the timeline: 1")
            return
        self._change(self._session.ranged(self._active))
        found = self._session.time_range
        self._say("hints", ENDED if found and found.ended else STARTED)

    def _range_page(self) -> Page | None:
        """All figures of the range, when the active side has one."""
        found, side = self._session.time_range, self._active
        if self._mode != "timeline" or not found or not found.ended or found.side != side:
            return None
        width = self.size.width * 9 // 10 - 4
        lines = all_range_lines(self._session.sides[side], found, width)
        return Page("everything about this range; Esc closes", lines)
