"""Where the program was: the deepest Python frame or module that covers enough of each cell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.cells.deepest import deepest
from fusetui.trace.model.columns import Trace, Track
from fusetui.trace.program.regions import is_module
from fusetui.tui.layout.places import depth_in_lane, places
from fusetui.tui.layout.view import Place, Side, View

LEAST = 4  # cells of a frame that is named
AROUND = (": forward", ": _call_impl", ": _wrapped_call_impl")
"""Frames that every module has; the module around them says more."""


def where_rows(side: Side, place: Place, borders: NDArray[np.int64]) -> list[int]:
    """The row of each cell, or -1."""
    track = _track(side.lanes[place.lane].tracks)
    least = LEAST * int(borders[1] - borders[0])
    rows = deepest(side.trace, track, borders, least).tolist()
    known = {row: _module(side.trace, row) for row in set(rows)}
    return [known[row] for row in rows]


def marks_selection(side: Side, view: View, place: Place) -> bool:
    """Is the selected slice a frame of this thread that has no line of its own."""
    if view.selected < 0 or side.lane_of_track[int(side.trace.track[view.selected])] != place.lane:
        return False
    frames = side.lanes[place.lane].shown(view.folds[place.lane]) - 1
    shown = (p for p in places(side, view) if p.lane == place.lane and not p.where)
    first = next((p.around for p in shown), 0)
    return depth_in_lane(side, view.selected) >= first + frames


def where_at(side: Side, place: Place, time: int) -> int:
    """The row at a time (ns of the file), or -1."""
    return where_rows(side, place, np.array([time, time + 1]))[0]


def _track(tracks: Sequence[Track]) -> Track:
    """The one with the most frames; sub-rows hold what does not nest."""
    return max(tracks, key=len)


def _module(trace: Trace, row: int) -> int:
    """The module whose forward a frame is, else the frame."""
    over = row
    while over >= 0 and trace.name_of(over).endswith(AROUND):
        over = int(trace.parent[over])
    return over if over >= 0 and is_module(trace.name_of(over)) else row
