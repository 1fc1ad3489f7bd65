"""Gaps of a view: stretches of time in which a device was idle."""

from __future__ import annotations

from collections.abc import Sequence

from fusetui.analysis.why.stretches import IdleTime
from fusetui.tui.layout.view import GapAt, Interval, Place, Side, View, times


def gap_times(side: Side, at: GapAt) -> Interval | None:
    """Begin and end of a gap, in ns from the origin; None where it is not known."""
    found = idle_of(side, at)
    if found is None:
        return None
    return int(found.begin[at.gap]) - side.origin, int(found.end[at.gap]) - side.origin


def idle_of(side: Side, at: GapAt) -> IdleTime | None:
    """The idle time that a gap belongs to."""
    known = side.insight.idle or ()
    inside = 0 <= at.device < len(known) and 0 <= at.gap < len(known[at.device].begin)
    return known[at.device] if inside else None


def held(side: Side, view: View) -> Interval | None:
    """The times of the selected slice or gap; None if nothing is selected."""
    if view.selected >= 0:
        return times(side, view.selected)
    return gap_times(side, view.gap) if view.gap else None


def index_of_gap(side: Side, shown: Sequence[Place], at: GapAt) -> int:
    """The index of the line of a gap's device among the places, -1 if it is not there."""
    found = idle_of(side, at)
    pid = found.device if found else None
    lanes = (p.idle_of.key[1] if p.idle_of else None for p in shown)
    return next((n for n, own in enumerate(lanes) if own is not None and own == pid), -1)
