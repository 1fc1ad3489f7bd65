"""From one slice to others that have to do with it: of the same name, of the other pass, steps."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from fusetui.trace.layout.steps import steps_of
from fusetui.trace.program.origin import Origins, hosts_of, ops_of
from fusetui.tui.layout.insight import working
from fusetui.tui.state import search
from fusetui.tui.state.action import Run, action, on_timeline
from fusetui.tui.state.commands import NO_STEPS, shown_step
from fusetui.tui.state.moving import SECTION, brought
from fusetui.tui.state.overlays import OVERLAY, HitList
from fusetui.tui.state.session import Hits
from fusetui.tui.state.state import ListState, State, told

NOTHING = "nothing is selected", "down/up select a slice"


def same_name(by: int) -> Run:
    """The next or previous slice of the name that the selected one has, as an action runs it."""

    def run(state: State) -> State:
        row = state.view.selected
        return told(state, *NOTHING) if row < 0 else search.shown(state, alike(state, row).step(by))

    return run


def alike(state: State, row: int) -> Hits:
    """All slices of that name and role in order of time; those found before, as long as they are
    the same."""
    hits, trace = state.session.hits, state.side.trace
    if hits and hits.side == state.active and hits.is_of_name and hits.at >= 0 and hits.row == row:
        return hits
    rows = np.flatnonzero((trace.name == trace.name[row]) & (trace.role == trace.role[row]))
    rows = rows[np.argsort(trace.start[rows], kind="stable")]
    at = int(np.flatnonzero(rows == row)[0])
    return Hits(trace.name_of(row), state.active, rows, at, is_of_name=True)


def step_by(by: int) -> Run:
    """The next or previous step in the window, as an action runs it."""

    def run(state: State) -> State:
        steps, view = steps_of(state.side.trace), state.view
        if not len(steps):
            return told(state, NO_STEPS)
        starts = steps.start - state.side.origin
        middles = starts + steps.dur // 2
        here = int(np.searchsorted(starts, (view.begin + view.end) // 2, side="right")) - 1
        last = len(steps) - 1
        if np.count_nonzero((view.begin <= middles) & (middles < view.end)) > 1:
            return shown_step(state, 0 if by > 0 else last)
        return shown_step(state, max(0, min(here + by, last)))

    return run


def list_steps(state: State) -> State:
    """All steps, over the page."""
    steps = steps_of(state.side.trace)
    if not len(steps):
        return told(state, NO_STEPS)
    middle = (state.view.begin + state.view.end) // 2 + state.side.origin
    hits = Hits("steps", state.active, steps.rows).nearest(state.side.trace, middle)
    over = replace(state, overlay=HitList(state.side, hits, steps))
    return over.with_list(OVERLAY, ListState(cursor=max(0, hits.at)))


def other_pass(state: State) -> State:
    """From forward work to the backward work that belongs to it, and back."""
    row, side = state.view.selected, state.side
    if row < 0:
        return told(state, *NOTHING)
    if side.insight.origins is None:
        return told(state, working(side.trace, "which backward op belongs to which forward op"))
    there = _other_pass(side.insight.origins, row)
    if there < 0:
        return told(state, "no op of the other pass is known for this slice")
    return brought(state, state.session.selected(state.active, there), state.active)


def _other_pass(origins: Origins, row: int) -> int:
    """The first op of the other pass, -1 for none."""
    trace, backward = origins.trace, origins.backward
    hosts = hosts_of(trace, np.array([row]))
    op = ops_of(trace, hosts)
    if int(op[0]) < 0:
        return -1
    if int(backward.over(op)[0]) >= 0 and not origins.recomputes(hosts)[0]:
        return int(backward.forward_of(op)[0])
    around = int(backward.made.over(op)[0])
    first = int(backward.made.rows[around]) if around >= 0 else int(op[0])
    last = int(trace.end_row[first])
    inside = np.flatnonzero((backward.forward >= first) & (backward.forward < last))
    found = backward.rows[inside]
    return int(found[np.argmin(trace.start[found])]) if len(found) else -1


ACTIONS = (
    action(
        "next-alike",
        "Next of this name",
        "asterisk",
        "in order of time, on any line",
        same_name(1),
        SECTION,
        on_timeline,
    ),
    action(
        "previous-alike",
        "Previous of this name",
        "number_sign",
        "on any line",
        same_name(-1),
        SECTION,
        on_timeline,
    ),
    action(
        "next-step",
        "Next step",
        "right_curly_bracket",
        "of the profile fills the window",
        step_by(1),
        SECTION,
        on_timeline,
    ),
    action(
        "previous-step",
        "Previous step",
        "left_curly_bracket",
        "of the profile",
        step_by(-1),
        SECTION,
        on_timeline,
    ),
    action("steps", "Steps", "C", "of the profile as a list, with their durations", list_steps),
    action(
        "other-pass",
        "Forward or backward",
        "B",
        "to the work of the other pass",
        other_pass,
        SECTION,
        on_timeline,
    ),
)
