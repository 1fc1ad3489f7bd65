"""Jumps from one slice to others with the same name or of the other pass, to steps, and
to idle time."""

from __future__ import annotations

from functools import partial

import numpy as np

from fusetui.analysis.why.model import Gap
from fusetui.text.figures import count
from fusetui.trace.layout.steps import step_wall, steps_of
from fusetui.trace.model.ids import exact_id
from fusetui.trace.program.origin import Origins, launching_calls, ops_of
from fusetui.tui.layout.answer import working
from fusetui.tui.layout.moves import to_gap
from fusetui.tui.layout.view import GapAt, Side
from fusetui.tui.state import search
from fusetui.tui.state.action import action, on_timeline
from fusetui.tui.state.commands import NO_STEPS, shown_step
from fusetui.tui.state.moving import NOTHING_SELECTED, SECTION, brought, shown
from fusetui.tui.state.session import Hits
from fusetui.tui.state.state import State, told


def same_name(state: State, by: int) -> State:
    """The next slice of the name of the selected one, or for -1 the one before."""
    row = state.view.selected
    if row < 0:
        return told(state, *NOTHING_SELECTED)
    return search.shown(state, alike(state, row).step(by))


def alike(state: State, row: int) -> Hits:
    """All slices of the name and role of a row in order of time, at that row. Those of
    the session, if they are the same."""
    trace = state.side.trace
    hits = state.session.hits
    if hits is not None and hits.is_of_name and hits.side == state.active:
        is_at_row = hits.at >= 0 and hits.row == row
        if is_at_row:
            return hits
    has_name = trace.name == trace.name[row]
    has_role = trace.role == trace.role[row]
    rows = np.flatnonzero(has_name & has_role)
    rows = rows[np.argsort(trace.start[rows], kind="stable")]
    at = int(np.flatnonzero(rows == row)[0])
    return Hits(trace.name_of(row), state.active, rows, at, is_of_name=True)


def step_by(state: State, by: int) -> State:
    """The step after the one in the middle of the window, or for -1 the one before it.
    From a window with several steps, the first one, or for -1 the last."""
    steps = steps_of(state.side.trace)
    if not len(steps):
        return told(state, NO_STEPS)
    view = state.view
    last = len(steps) - 1
    starts = steps.start - state.side.origin
    middles = starts + step_wall(steps.start, steps.end) // 2
    in_window = (view.begin <= middles) & (middles < view.end)
    if np.count_nonzero(in_window) > 1:
        return shown_step(state, 0 if by > 0 else last)
    middle_of_window = (view.begin + view.end) // 2
    here = int(np.searchsorted(starts, middle_of_window, side="right")) - 1
    return shown_step(state, max(0, min(here + by, last)))


def list_steps(state: State) -> State:
    """The steps as a list over the page, the cursor on the first one that begins at or
    after the middle of the window."""
    trace = state.side.trace
    steps = steps_of(trace)
    if not len(steps):
        return told(state, NO_STEPS)
    view = state.view
    middle = (view.begin + view.end) // 2 + state.side.origin
    hits = Hits("steps", state.active, steps.rows).nearest(trace, middle)
    return search.listed(state, hits, steps)


def other_pass(state: State) -> State:
    """From the selected slice to the work of the other pass: from a forward op to its
    backward op, or back."""
    row = state.view.selected
    if row < 0:
        return told(state, *NOTHING_SELECTED)
    side = state.side
    if side.insight.origins is None:
        return told(
            state, working(side.trace, "links between forward and backward ops")
        )
    op = _other_pass(side.insight.origins, row)
    if op < 0:
        return told(state, "No op of the other pass is linked to this slice")
    return brought(state, state.session.selected(state.active, op), state.active)


def _other_pass(origins: Origins, row: int) -> int:
    """Of backward work its forward op, else the first op of the backward pass of the op
    around a row; -1 for none. Forward work that the backward pass does once more counts
    as forward work."""
    backward = origins.backward
    calls = launching_calls(origins.trace, np.array([row]))
    op = ops_of(origins.trace, calls)
    if int(op[0]) < 0:
        return -1
    is_in_backward = int(backward.around(op)[0]) >= 0
    if is_in_backward and not origins.recomputes(calls)[0]:
        return int(backward.forward_of(op)[0])
    forward_op = int(op[0])
    around = int(backward.forward_ops.around(op)[0])
    if around >= 0:
        forward_op = int(backward.forward_ops.rows[around])
    return _first_backward_of(origins, forward_op)


def _first_backward_of(origins: Origins, op: int) -> int:
    """The first backward op of a forward op or of those inside it; -1 for none."""
    trace = origins.trace
    backward = origins.backward
    end = trace.end_row[op]
    is_inside = (backward.forward >= op) & (backward.forward < end)
    rows = backward.rows[is_inside]
    if not len(rows):
        return -1
    first = np.argmin(trace.start[rows])
    return int(rows[first])


def at_gap(state: State, at: GapAt) -> State:
    """A gap selected in the timeline, which comes to the front."""
    return shown(state, to_gap(state.side, state.view, at))


def place_of_gap(side: Side, gap: Gap) -> GapAt | None:
    """The gap of the timeline that a gap of the answer is; None where the idle time of
    its device is not known."""
    for device, idle in enumerate(side.insight.idle or ()):
        if exact_id(idle.device) == gap.device:
            index = idle.gap_at(side.trace.begin_ns + gap.start_ns)
            return GapAt(device, index) if index >= 0 else None
    return None


def step(state: State, by: int) -> State:
    """To the next gap by length, or for -1 the one before; from none to the first or
    the last."""
    idle = state.side.insight.idle
    if idle is None:
        return told(state, working(state.side.trace, "GPU idle time"))
    device = _device(state)
    if device < 0:
        return told(state, "No GPU in this trace")
    longest: list[int] = idle[device].longest.tolist()
    gap = state.view.gap
    rank = 0 if by > 0 else len(longest) - 1
    if gap is not None and gap.device == device and gap.gap in longest:
        rank = (longest.index(gap.gap) + by) % len(longest)
    return told(
        at_gap(state, GapAt(device, longest[rank])),
        f"gap {count(rank + 1)} of the {count(len(longest))} longest",
        "next-gap the next longest",
        "previous-gap back",
        "undo undo",
    )


def _device(state: State) -> int:
    """The index, among the devices with idle time, of that of the selected gap or GPU
    event, else of that with the longest gap; -1 for none."""
    view = state.view
    if view.gap:
        return view.gap.device
    insight = state.side.insight
    idle = insight.idle or ()
    if view.selected >= 0:
        pid = state.side.trace.track_of(view.selected).pid
        device = insight.device(pid)
        if device >= 0 and len(idle[device].longest):
            return device
    # the gaps of a device are in order, the longest first
    longest = [of.longest_gaps[0].dur_ns if of.longest_gaps else 0 for of in idle]
    return longest.index(max(longest)) if any(longest) else -1


_here = partial(action, section=SECTION, where=on_timeline)


ACTIONS = (
    action(
        name="next-gap",
        title="Next gap",
        written="e",
        help="of the GPU: the longest, then the next",
        run=partial(step, by=1),
        section=SECTION,
    ),
    action(
        name="previous-gap",
        title="Previous gap",
        written="E",
        help="back to the longer one",
        run=partial(step, by=-1),
        section=SECTION,
    ),
    _here(
        name="next-alike",
        title="Next of this name",
        written="*",
        help="in order of time, on any line",
        run=partial(same_name, by=1),
    ),
    _here(
        name="previous-alike",
        title="Previous of this name",
        written="#",
        help="on any line",
        run=partial(same_name, by=-1),
    ),
    _here(
        name="next-step",
        title="Next step",
        written="}",
        help="of the profile fills the window",
        run=partial(step_by, by=1),
    ),
    _here(
        name="previous-step",
        title="Previous step",
        written="{",
        help="of the profile",
        run=partial(step_by, by=-1),
    ),
    action(
        name="steps",
        title="Steps",
        written="C",
        help="of the profile as a list, with their durations",
        run=list_steps,
    ),
    _here(
        name="other-pass",
        title="Forward or backward",
        written="B",
        help="to the work of the other pass",
        run=other_pass,
    ),
)
