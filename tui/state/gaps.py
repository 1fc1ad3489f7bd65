"""Moves from one stretch of idle time of a device to the next, the longest first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.why.model import Gap
from fusetui.text.figures import count
from fusetui.trace.model.ids import exact_id
from fusetui.tui.layout.answer import working
from fusetui.tui.layout.moves import to_gap
from fusetui.tui.layout.view import GapAt, Side
from fusetui.tui.state.action import Run, action
from fusetui.tui.state.moving import SECTION, brought
from fusetui.tui.state.state import State, told


def at_gap(state: State, at: GapAt) -> State:
    """A gap of the active side, selected in the timeline."""
    view = to_gap(state.side, state.view, at)
    return brought(state, state.session.moved(state.active, view), state.active)


def place_of_gap(side: Side, gap: Gap) -> GapAt | None:
    """The gap of the session that a gap of the answer is."""
    for device, idle in enumerate(side.insight.idle or ()):
        if exact_id(idle.device) == gap.device:
            place = idle.gap_at(gap.start_ns)
            return GapAt(device, place) if place >= 0 else None
    return None


def step(by: int) -> Run:
    """An action to the next gap by length, or to the one before."""

    def run(state: State) -> State:
        idle = state.side.insight.idle
        if idle is None:
            return told(state, working(state.side.trace, "the idle time of the GPU"))
        device = _device(state)
        if device < 0:
            return told(state, "this trace has no idle time of a GPU")
        longest = idle[device].longest
        gap = state.view.gap
        rank = _rank(longest, gap.gap if gap and gap.device == device else -1, by)
        there = at_gap(state, GapAt(device, int(longest[rank])))
        place = f"gap {count(rank + 1)} of the {count(len(longest))} longest"
        return told(there, place, "next-gap the next longest", "previous-gap back", "undo undo")

    return run


def _rank(longest: NDArray[np.intp], gap: int, by: int) -> int:
    """The rank after or before that of a gap; for a gap without a rank, the first or the last."""
    here = np.flatnonzero(longest == gap).tolist()
    if here:
        return int(here[0] + by) % len(longest)
    return 0 if by > 0 else len(longest) - 1


def _device(state: State) -> int:
    """The device of the selected gap or GPU event, else the one with the longest gap; -1 for
    none."""
    insight, view, trace = state.side.insight, state.view, state.side.trace
    idle = insight.idle or ()
    if view.gap:
        return view.gap.device
    if view.selected >= 0:
        own = insight.device(trace.track_of(view.selected).pid)
        if own >= 0 and len(idle[own].longest):
            return own
    lengths = [max((gap.dur_ns for gap in one.told[:1]), default=0) for one in idle]
    return lengths.index(max(lengths)) if any(lengths) else -1


ACTIONS = (
    action("next-gap", "Next gap", "e", "of the GPU: the longest, then the next", step(1), SECTION),
    action("previous-gap", "Previous gap", "E", "back to the longer one", step(-1), SECTION),
)
