"""The critical path on the timeline, and the estimated gains of changes: requested
here, computed by replaying.py, and shown when they arrive."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from fusetui.gpu.kinds import legend_kind
from fusetui.text.figures import duration, percent, plural
from fusetui.text.printable import printable
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import memo
from fusetui.tui.state import search
from fusetui.tui.state.action import action, on_timeline
from fusetui.tui.state.comparison import Second
from fusetui.tui.state.moving import SECTION, brought
from fusetui.tui.state.session import Hits
from fusetui.tui.state.state import (
    BESIDE,
    FUNCTIONS,
    MARKS,
    ROWS,
    Outcome,
    Replay,
    Replayed,
    State,
    told,
)

if TYPE_CHECKING:
    from fusetui.analysis.replay.marks import Marks

CRITICAL_PATH = "the critical path"
MAX_NAMES = 500  # of each role that are completed
MIN_DOUBT_SHARE = 0.05  # if more of the path is not understood, the hint says so
NEEDS_WHOLE_TRACE = "this needs the whole trace, which is being read"
NO_CHANGE = (
    "whatif takes a change: whatif x0.5 of what is selected, or whatif kind:gemm x0.8"
)
NOT_KNOWN = "No replay: too little of the trace is understood"
A_RANGE = "No replay: the change gives a range of times, not one time"
REPLAYED = "Below: the replay (predicted, not recorded)"
PATH_KEYS = "path-next next", "path-previous previous"  # see `told`


def _asked(state: State, asked: str, hint: str) -> Outcome:
    """Has a replay worked out, see Replay; a hint says so meanwhile."""
    if state.side.trace.report.prefix:
        return told(state, NEEDS_WHOLE_TRACE)
    waiting = state if asked == MARKS else replace(state, replayed=asked)
    return told(waiting, hint), Replay(waiting, asked)


def mark(state: State) -> Outcome:
    """Marks the critical path on the lanes, or no longer; it is worked out first where
    it is not known."""
    marks = state.side.critical
    if marks is None:
        hint = f"looking for {CRITICAL_PATH}"
        return _asked(replace(state, on_path=True), MARKS, hint)
    if state.on_path:
        now = replace(state, on_path=False)
        return told(now, f"{CRITICAL_PATH} is no longer marked")
    return told(replace(state, on_path=True), _path_text(marks), *PATH_KEYS)


def _path_text(marks: Marks) -> str:
    """How long the critical path is, how many slices are on it, and how much of it is
    not understood if that is much."""
    slices = plural(len(marks.stops), "slice")
    text = f"{CRITICAL_PATH}: {duration(marks.span_ns)}, {slices}"
    if marks.residual_share > MIN_DOUBT_SHARE:
        text += f", {percent(marks.residual_share, 1)} of it not understood"
    return text


def step(state: State, by: int) -> Outcome:
    """The next slice on the critical path, or for -1 the one before: from the selected
    slice, else from the begin of the window. Marks the path first."""
    marks = state.side.critical
    if marks is None or not state.on_path:
        return mark(state)
    if not len(marks.stops):
        return told(state, f"{CRITICAL_PATH} goes through no slice")
    row = state.view.selected
    index_of_row = np.flatnonzero(marks.stops == row)
    if row >= 0 and len(index_of_row):
        index = int(index_of_row[0]) + by
    else:
        begin = state.view.begin + state.side.origin
        if row >= 0:
            begin = int(state.side.trace.start[row])
        index = int(np.searchsorted(marks.begin, begin))
        if by < 0:
            index -= 1
    index %= len(marks.stops)
    return search.shown(state, Hits(CRITICAL_PATH, state.active, marks.stops, index))


def rows(state: State, rest: str = "") -> Outcome:
    """What takes the time of the critical path, over the page."""
    if rest:
        return told(state, "path takes no argument")
    if not state.sides:
        return state
    return _asked(state, ROWS, f"looking for {CRITICAL_PATH}")


def functions(state: State) -> Outcome:
    """The time of the user's own Python functions, over the page."""
    return _asked(state, FUNCTIONS, "adding up the time of your functions")


def whatif(state: State, rest: str) -> Outcome:
    """What a change is worth, over the page."""
    if not rest:
        return told(state, NO_CHANGE)
    return _asked(state, rest, "replaying")


@memo()
def changes_of(trace: Trace) -> list[str]:
    """What `whatif` is completed to: kinds of kernels, kernels and ops that can be
    typed, those with the most time first."""
    kernels = _names_by_time(trace, Role.KERNEL)
    ops = _names_by_time(trace, Role.OP)
    kinds = dict.fromkeys(map(legend_kind, kernels))  # each once
    return [
        *(f"whatif kind:{kind} x0.5" for kind in kinds),
        *(f"whatif kernel:{name} x0.5" for name in kernels),
        *(f"whatif op:{name} x0.5" for name in ops),
    ]


def _names_by_time(trace: Trace, role: Role) -> list[str]:
    """The names of the slices of a role that can be typed, those with the most time
    first, of the MAX_NAMES with the most time."""
    rows = trace.rows_of(role)
    ns_of_name = np.bincount(trace.name[rows], trace.dur[rows], len(trace.names))
    by_time = np.argsort(-ns_of_name, kind="stable")
    names = []
    for number in by_time[:MAX_NAMES].tolist():
        name = trace.names[number]
        if ns_of_name[number] and printable(name) == name:
            names.append(name)
    return names


def is_worth(state: State) -> bool:
    """Whether the overlay says what a change is worth."""
    answer = state.overlay.found if isinstance(state.overlay, Replayed) else None
    return getattr(answer, "changes", None) is not None


def beside(state: State) -> Outcome:
    """Has the trace with the change of the overlay replayed, which is then shown as a
    second timeline."""
    answer: Any = state.overlay.found if isinstance(state.overlay, Replayed) else None
    if answer.after_ns is None:
        return told(state, A_RANGE if answer.between_ns else NOT_KNOWN)
    waiting = replace(state, replayed=BESIDE + answer.changes[0])
    effect = Replay(waiting, waiting.replayed)
    return told(replace(waiting, overlay=None), "replaying"), effect


def seen(state: State, replayed: Second) -> State:
    """A replay as a second timeline, with the timeline in front."""
    now = brought(replace(state, replay=replayed), state.session, state.active)
    return told(now, REPLAYED, "recorded back")


def arrived(state: State, trace: Trace, asked: str, found: Any) -> State:
    """The state with the answer of a replay: Marks, a Path, a WhatIf, Functions, a
    Second or a sentence. The state as it was, if another trace is open by now, or something else
    was asked for."""
    if not any(side.trace is trace for side in state.sides):
        return state
    if isinstance(found, str):
        on_path = state.on_path and asked != MARKS
        return told(replace(state, on_path=on_path), printable(found))
    if asked == MARKS:
        now = replace(state, session=state.session.known(trace, critical=found))
        return told(now, _path_text(found), *PATH_KEYS)
    if asked != state.replayed:
        return state
    is_second = isinstance(found, Second)
    answer = found if is_second else Replayed(found, trace.report.format)
    return replace(state, replayed="", hint="", arrived=answer)


SECOND = (
    action(
        name="second",
        title="Replay beside",
        written="b",
        help="as a second timeline",
        run=beside,
        section=SECTION,
        where=is_worth,
    ),
    action(
        name="recorded",
        title="Only the recording",
        written="escape",
        help="without the replay",
        run=partial(replace, replay=None),
        section=SECTION,
        where=lambda state: state.overlay is None and state.second is not None,
    ),
)
_here = partial(action, section=SECTION, where=on_timeline)
ACTIONS = (
    _here(
        name="path",
        title="Critical path",
        written="P",
        help="marked on the lanes, or not",
        run=mark,
    ),
    _here(
        name="path-next",
        title="Next on the path",
        written=">",
        help="slice by slice, in order of time",
        run=partial(step, by=1),
    ),
    _here(
        name="path-previous",
        title="Previous on the path",
        written="<",
        help="back",
        run=partial(step, by=-1),
    ),
    action(
        name="path-rows",
        title="Critical path in rows",
        written="",
        help="what is on it, and the slack of the rest",
        run=rows,
    ),
    action(
        name="my-functions",
        title="My functions",
        written="M",
        help="the time of your own Python functions",
        run=functions,
    ),
)
