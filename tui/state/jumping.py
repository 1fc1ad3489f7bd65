"""From one slice to others of its name or of the other pass, to steps, and to idle
time."""

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
from fusetui.tui.state.moving import NOTHING, SECTION, brought, shown
from fusetui.tui.state.session import Hits
from fusetui.tui.state.state import State, told


def same_name(state: State, by: int) -> State:
    row = state.view.selected
    return (
        told(state, *NOTHING)
        if row < 0
        else search.shown(state, alike(state, row).step(by))
    )


def alike(state: State, row: int) -> Hits:
    """All slices of that name and role in order of time; those found before, if the
    same."""
    hits, trace = state.session.hits, state.side.trace
    if (
        hits
        and hits.side == state.active
        and hits.is_of_name
        and hits.at >= 0
        and hits.row == row
    ):
        return hits
    rows = np.flatnonzero(
        (trace.name == trace.name[row]) & (trace.role == trace.role[row])
    )
    rows = rows[np.argsort(trace.start[rows], kind="stable")]
    at = int(np.flatnonzero(rows == row)[0])
    return Hits(trace.name_of(row), state.active, rows, at, is_of_name=True)


def step_by(state: State, by: int) -> State:
    steps, view = steps_of(state.side.trace), state.view
    if not len(steps):
        return told(state, NO_STEPS)
    starts = steps.start - state.side.origin
    middles = starts + step_wall(steps.start, steps.end) // 2
    here = int(np.searchsorted(starts, (view.begin + view.end) // 2, side="right")) - 1
    last = len(steps) - 1
    if np.count_nonzero((view.begin <= middles) & (middles < view.end)) > 1:
        return shown_step(state, 0 if by > 0 else last)
    return shown_step(state, max(0, min(here + by, last)))


def list_steps(state: State) -> State:
    if not len(steps := steps_of(state.side.trace)):
        return told(state, NO_STEPS)
    middle = (state.view.begin + state.view.end) // 2 + state.side.origin
    hits = Hits("steps", state.active, steps.rows).nearest(state.side.trace, middle)
    return search.listed(state, hits, steps)


def other_pass(state: State) -> State:
    row, side = state.view.selected, state.side
    if row < 0:
        return told(state, *NOTHING)
    if side.insight.origins is None:
        return told(
            state, working(side.trace, "links between forward and backward ops")
        )
    if (there := _other_pass(side.insight.origins, row)) < 0:
        return told(state, "No op of the other pass is linked to this slice")
    return brought(state, state.session.selected(state.active, there), state.active)


def _other_pass(origins: Origins, row: int) -> int:
    """The first op of the other pass, -1 for none."""
    trace, backward = origins.trace, origins.backward
    hosts = launching_calls(trace, np.array([row]))
    op = ops_of(trace, hosts)
    if int(op[0]) < 0:
        return -1
    if int(backward.around(op)[0]) >= 0 and not origins.recomputes(hosts)[0]:
        return int(backward.forward_of(op)[0])
    around = int(backward.forward_ops.around(op)[0])
    first = int(backward.forward_ops.rows[around]) if around >= 0 else int(op[0])
    inside = (backward.forward >= first) & (backward.forward < trace.end_row[first])
    found = backward.rows[inside]
    return int(found[np.argmin(trace.start[found])]) if len(found) else -1


def at_gap(state: State, at: GapAt) -> State:
    return shown(state, to_gap(state.side, state.view, at))


def place_of_gap(side: Side, gap: Gap) -> GapAt | None:
    """The gap of the session that a gap of the answer is."""
    known = side.insight.idle or ()
    device = next(
        (n for n, idle in enumerate(known) if exact_id(idle.device) == gap.device), -1
    )
    place = (
        known[device].gap_at(side.trace.begin_ns + gap.start_ns) if device >= 0 else -1
    )
    return GapAt(device, place) if place >= 0 else None


def step(state: State, by: int) -> State:
    """To the next gap by length, or the one before; from none to the first or the
    last."""
    idle, gap = state.side.insight.idle, state.view.gap
    if idle is None:
        return told(state, working(state.side.trace, "GPU idle time"))
    if (device := _device(state)) < 0:
        return told(state, "No GPU in this trace")
    longest: list[int] = idle[device].longest.tolist()
    at = gap.gap if gap and gap.device == device else -1
    rank = longest.index(at) + by if at in longest else 0 if by > 0 else -1
    rank %= len(longest)
    there = at_gap(state, GapAt(device, longest[rank]))
    place = f"gap {count(rank + 1)} of the {count(len(longest))} longest"
    return told(
        there, place, "next-gap the next longest", "previous-gap back", "undo undo"
    )


def _device(state: State) -> int:
    """The device of the selected gap or GPU event, else that of the longest gap; -1 for
    none."""
    insight, view, trace = state.side.insight, state.view, state.side.trace
    idle = insight.idle or ()
    if view.gap:
        return view.gap.device
    own = (
        insight.device(trace.track_of(view.selected).pid) if view.selected >= 0 else -1
    )
    if own >= 0 and len(idle[own].longest):
        return own
    lengths = [max((gap.dur_ns for gap in one.told[:1]), default=0) for one in idle]
    return lengths.index(max(lengths)) if any(lengths) else -1


_here = partial(action, section=SECTION, where=on_timeline)

_alike, _alike_before = (partial(same_name, by=by) for by in (1, -1))
_gap, _back = (partial(step, by=by) for by in (1, -1))
_step, _before = (partial(step_by, by=by) for by in (1, -1))
ACTIONS = (
    action(
        "next-gap",
        "Next gap",
        "e",
        "of the GPU: the longest, then the next",
        _gap,
        SECTION,
    ),
    action(
        "previous-gap", "Previous gap", "E", "back to the longer one", _back, SECTION
    ),
    _here(
        "next-alike", "Next of this name", "*", "in order of time, on any line", _alike
    ),
    _here("previous-alike", "Previous of this name", "#", "on any line", _alike_before),
    _here("next-step", "Next step", "}", "of the profile fills the window", _step),
    _here("previous-step", "Previous step", "{", "of the profile", _before),
    action(
        "steps",
        "Steps",
        "C",
        "of the profile as a list, with their durations",
        list_steps,
    ),
    _here(
        "other-pass",
        "Forward or backward",
        "B",
        "to the work of the other pass",
        other_pass,
    ),
)
