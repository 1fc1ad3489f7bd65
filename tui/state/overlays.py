"""The overlays over the page, as data; `pages/overlays.py` says what each of them shows."""

from __future__ import annotations

import msgspec

from fusetui.trace.layout.steps import Steps
from fusetui.tui.layout.view import GapAt, Side
from fusetui.tui.state.ranges import Range
from fusetui.tui.state.session import Hits

OVERLAY = "overlay"
"""The name of the overlay's list in `State.lists`."""


class Help(msgspec.Struct, frozen=True):
    """All keys: the title of each section, and of each action its keys, title and help."""

    sections: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...]


class SliceDetails(msgspec.Struct, frozen=True, eq=False):
    """Everything about one slice; `raw`: the event as the file has it."""

    side: Side
    row: int
    raw: bool = False


class GapDetails(msgspec.Struct, frozen=True, eq=False):
    """Everything about one stretch of idle time."""

    side: Side
    gap: GapAt


class RangeFigures(msgspec.Struct, frozen=True, eq=False):
    """Every figure of a range of time."""

    side: Side
    range: Range


class Chooser(msgspec.Struct, frozen=True):
    """The traces to choose from, with a line of summary for each that is known."""

    summaries: tuple[str, ...]


class HitList(msgspec.Struct, frozen=True, eq=False):
    """All hits of a search, or of the row of a table; the steps, where these are the hits."""

    side: Side
    hits: Hits
    steps: Steps | None = None


Overlay = HitList | Help | SliceDetails | GapDetails | RangeFigures | Chooser
