"""The range of time that the user selects: from where `v` is pressed to where it is pressed again.

A press refers to the selected slice or gap, or to the window if nothing is selected.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from fusetui.tui.layout.view import Interval, Side, View, held


class Range(msgspec.Struct, frozen=True):
    """[begin, end) on one side, in ns of the file; `ended` after the second press."""

    side: int
    begin: int
    end: int
    ended: bool = False


def pressed(before: Range | None, index: int, side: Side, view: View) -> Range:
    """The first press starts a range, the second ends it; a third, or one on another side, starts a
    new one."""
    begin, end = _here(side, view)
    here = Range(index, begin + side.origin, end + side.origin)
    if before is None or before.ended or before.side != index:
        return here
    return _around(before, here)


def interval_of(found: Range | None, index: int, side: Side, view: View) -> Interval | None:
    """The range as one side shows it; until its end is set, it extends to the current position."""
    if found is None or found.side != index:
        return None
    if not found.ended and held(side, view):
        found = pressed(found, index, side, view)
    return found.begin - side.origin, found.end - side.origin


def swapped(found: Range | None) -> Range | None:
    """Moves the range to the other side."""
    return replace(found, side=1 - found.side) if found else None


def _here(side: Side, view: View) -> Interval:
    return held(side, view) or (view.begin, view.end)


def _around(a: Range, b: Range) -> Range:
    return Range(a.side, min(a.begin, b.begin), max(a.end, b.end), ended=True)
