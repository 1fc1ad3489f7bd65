"""Jumps from one slice to others with the same name or of the other pass, to steps, and
to idle time."""

from __future__ import annotations

from functools import partial

import numpy as np

from fusetui.analysis.why.model import Gap
from fusetui.text.figures import count
from fusetui.trace.layout.steps import step_wall, steps_of
from fusetui.trace.model.arrays import NO_ROW
from fusetui.trace.model.ids import exact_id
from fusetui.trace.program.origin import Origins, launching_calls, ops_of
from fusetui.tui.layout.answer import explain_missing_result
from fusetui.tui.layout.moves import select_gap
from fusetui.tui.layout.view import GapAt, Side
from fusetui.tui.state import search
from fusetui.tui.state.action import action, on_timeline
from fusetui.tui.state.commands import NO_STEPS, shown_step
from fusetui.tui.state.moving import NOTHING_SELECTED, SECTION, bring_to_timeline, shown
from fusetui.tui.state.session import Hits
from fusetui.tui.state.state import State, told


def go_to_same_name(state: State, by: int) -> State:
    """Select the next slice with the name of the selected one (`by` 1), or the one
    before (-1)."""
    row = state.view.selected
    if row == NO_ROW:
        return told(state, *NOTHING_SELECTED)
    return search.shown(state, alike(state, row).step(by))


def alike(state: State, row: int) -> Hits:
    """Return all slices with the name and role of `row`, in order of time, at that row.
    Hits of the session are reused where they are the same."""
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
    index_of_row = int(np.flatnonzero(rows == row)[0])
    return Hits(trace.name_of(row), state.active, rows, index_of_row, is_of_name=True)


def step_by(state: State, by: int) -> State:
    """Show the next step of the profile (`by` 1), or the one before (-1), counted from
    the middle of the window. From a window with several steps, go to the first one, or
    for -1 the last."""
    steps = steps_of(state.side.trace)
    if not len(steps):
        return told(state, NO_STEPS)
    view = state.view
    last_step = len(steps) - 1
    starts = steps.start - state.side.origin
    middles = starts + step_wall(steps.start, steps.end) // 2
    in_window = (view.begin <= middles) & (middles < view.end)
    if np.count_nonzero(in_window) > 1:
        return shown_step(state, 0 if by > 0 else last_step)
    middle_of_window = (view.begin + view.end) // 2
    current_step = int(np.searchsorted(starts, middle_of_window, side="right")) - 1
    return shown_step(state, max(0, min(current_step + by, last_step)))


def list_steps(state: State) -> State:
    """Open a list of the profile's steps, the cursor on the first one that begins at or
    after the middle of the window."""
    trace = state.side.trace
    steps = steps_of(trace)
    if not len(steps):
        return told(state, NO_STEPS)
    view = state.view
    middle = (view.begin + view.end) // 2 + state.side.origin
    hits = Hits("steps", state.active, steps.rows).nearest(trace, middle)
    return search.listed(state, hits, steps)


def go_to_other_pass(state: State) -> State:
    """Select the work of the other pass: from a forward op its backward op, from
    backward work its forward op. Messages say where there is none, or it is not known
    yet."""
    row = state.view.selected
    if row == NO_ROW:
        return told(state, *NOTHING_SELECTED)
    trace = state.side.trace
    origins = state.side.insight.origins
    if origins is None:
        links = "links between forward and backward ops"
        return told(state, explain_missing_result(trace, links))
    op = _find_other_pass(origins, row)
    if op == NO_ROW:
        return told(state, "No op of the other pass is linked to this slice")
    session = state.session.selected(state.active, op)
    return bring_to_timeline(state, session, state.active)


def _find_other_pass(origins: Origins, row: int) -> int:
    """Return the op of the other pass for a slice; -1 for none.

    For backward work it is the forward op, else the first backward op of the op around
    the slice. Forward work that is recomputed in the backward pass counts as forward
    work.
    """
    backward = origins.backward
    calls = launching_calls(origins.trace, np.array([row]))
    op = ops_of(origins.trace, calls)
    if int(op[0]) == NO_ROW:
        return -1
    is_in_backward = int(backward.around(op)[0]) >= 0
    if is_in_backward and not origins.recomputes(calls)[0]:
        return int(backward.forward_of(op)[0])
    forward_op = int(op[0])
    forward_place = int(backward.forward_ops.around(op)[0])
    if forward_place >= 0:
        forward_op = int(backward.forward_ops.rows[forward_place])
    return _find_first_backward(origins, forward_op)


def _find_first_backward(origins: Origins, op: int) -> int:
    """Return the first backward op of a forward op or of the ops inside it; -1 for
    none."""
    trace = origins.trace
    backward = origins.backward
    end = trace.end_row[op]
    is_inside = (backward.forward >= op) & (backward.forward < end)
    rows = backward.rows[is_inside]
    if not len(rows):
        return -1
    index_of_first = np.argmin(trace.start[rows])
    return int(rows[index_of_first])


def show_gap(state: State, at: GapAt) -> State:
    """Return the state with a gap (a stretch of time in which a device is idle)
    selected in the timeline, and the timeline in front."""
    return shown(state, select_gap(state.side, state.view, at))


def find_gap(side: Side, gap: Gap) -> GapAt | None:
    """Return which gap of the timeline a gap of the answer is. None where the idle time
    of its device is not known."""
    for device, idle_of_device in enumerate(side.insight.idle or ()):
        if exact_id(idle_of_device.device) == gap.device:
            index = idle_of_device.find_gap_at(side.trace.begin_ns + gap.start_ns)
            return GapAt(device, index) if index >= 0 else None
    return None


def step(state: State, by: int) -> State:
    """Select the next gap by length (`by` 1), or the one before (-1). Without a
    selected gap, start at the longest, or for -1 at the last."""
    idle_of_devices = state.side.insight.idle
    if idle_of_devices is None:
        return told(state, explain_missing_result(state.side.trace, "GPU idle time"))
    device = _choose_device(state)
    if device < 0:
        return told(state, "No GPU in this trace")
    longest: list[int] = idle_of_devices[device].longest.tolist()
    gap = state.view.gap
    if gap is not None and gap.device == device and gap.gap in longest:
        rank_by_length = (longest.index(gap.gap) + by) % len(longest)
    elif by > 0:
        rank_by_length = 0
    else:
        rank_by_length = len(longest) - 1
    next_gap = GapAt(device, longest[rank_by_length])
    return told(
        show_gap(state, next_gap),
        f"gap {count(rank_by_length + 1)} of the {count(len(longest))} longest",
        "next-gap the next longest",
        "previous-gap back",
        "undo undo",
    )


def _choose_device(state: State) -> int:
    """Return the index of the device whose gaps are stepped through; -1 for none.

    It is the device of the selected gap or GPU event, else the one with the longest
    gap.
    """
    view = state.view
    if view.gap:
        return view.gap.device
    insight = state.side.insight
    idle_of_devices = insight.idle or ()
    if view.has_selection:
        pid = state.side.trace.track_of(view.selected).pid
        device = insight.device(pid)
        if device >= 0 and len(idle_of_devices[device].longest):
            return device
    # the gaps of a device are in order, the longest first
    longest = [
        of.longest_gaps[0].dur_ns if of.longest_gaps else 0 for of in idle_of_devices
    ]
    return longest.index(max(longest)) if any(longest) else -1


_here = partial(action, section=SECTION, where=on_timeline)


ACTIONS = (
    action(
        name="next-gap",
        title="Next gap",
        written="e",
        help="of the GPU: the longest first",
        run=partial(step, by=1),
        section=SECTION,
    ),
    action(
        name="previous-gap",
        title="Previous gap",
        written="E",
        help="the next longer one",
        run=partial(step, by=-1),
        section=SECTION,
    ),
    _here(
        name="next-alike",
        title="Next of this name",
        written="*",
        help="in order of time, on any line",
        run=partial(go_to_same_name, by=1),
    ),
    _here(
        name="previous-alike",
        title="Previous of this name",
        written="#",
        help="on any line",
        run=partial(go_to_same_name, by=-1),
    ),
    _here(
        name="next-step",
        title="Next step",
        written="}",
        help="zoom to the next profiled step",
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
        run=go_to_other_pass,
    ),
)
