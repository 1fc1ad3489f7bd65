"""What the parts of the app have in common: the session, and the ways to show another state."""

from __future__ import annotations

from fusetui.tui.ending import Ending
from fusetui.tui.session import Session
from fusetui.tui.timeline_page import TimelinePage


class Part(Ending):
    """A group of commands in a file of its own; FusetuiApp is made of all parts."""

    _session: Session
    _mode: str

    @property
    def _active(self) -> int:
        return self.query_one(TimelinePage).active

    def _change(self, session: Session, index: int | None = None) -> None:
        """Another state; `index`: the side whose details are shown (default: the active one)."""
        raise NotImplementedError

    def action_show(self, mode: str) -> None:
        """Bring a page to the front, at the slice that is selected."""
        raise NotImplementedError

    def _say(self, pane: str, text: str) -> None:
        """One line in the head or in the hints."""
        raise NotImplementedError

    def _bring(self, session: Session, index: int) -> None:
        """Another state, and the timeline of this side in front."""
        self._change(session, index)
        self.query_one(TimelinePage).focus_timeline(index)
        self.action_show("timeline")
