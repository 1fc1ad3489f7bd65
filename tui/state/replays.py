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
from fusetui.tui.state.moving import SECTION, bring_to_timeline
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


def _request_replay(state: State, asked: str, hint: str) -> Outcome:
    """Return the state and the effect that works out a replay in the background, with a
    message meanwhile. A trace that is not read to its end gets a message instead."""
    if state.side.trace.report.prefix:
        return told(state, NEEDS_WHOLE_TRACE)
    waiting_state = state if asked == MARKS else replace(state, replayed=asked)
    return told(waiting_state, hint), Replay(waiting_state, asked)


def mark(state: State) -> Outcome:
    """Mark the critical path on the lanes, or remove its marks.

    The critical path is the chain of slices that decides how long the trace takes. If
    it is not known yet, it is worked out first.
    """
    marks = state.side.critical
    if marks is None:
        hint = f"looking for {CRITICAL_PATH}"
        return _request_replay(replace(state, on_path=True), MARKS, hint)
    if state.on_path:
        unmarked_state = replace(state, on_path=False)
        return told(unmarked_state, f"{CRITICAL_PATH} is no longer marked")
    return told(replace(state, on_path=True), _describe_path(marks), *PATH_KEYS)


def _describe_path(marks: Marks) -> str:
    """Return the length of the critical path and the number of its slices. The part
    that is not understood is added if it is more than MIN_DOUBT_SHARE."""
    slices = plural(len(marks.stops), "slice")
    text = f"{CRITICAL_PATH}: {duration(marks.span_ns)}, {slices}"
    if marks.residual_share > MIN_DOUBT_SHARE:
        text += f", {percent(marks.residual_share, 1)} of it not understood"
    return text


def step(state: State, by: int) -> Outcome:
    """Select the next slice on the critical path (`by` 1) or the one before (-1). It
    starts at the selection, else at the begin of the window. A path that is not marked
    yet is marked instead."""
    marks = state.side.critical
    if marks is None or not state.on_path:
        return mark(state)
    if not len(marks.stops):
        return told(state, f"{CRITICAL_PATH} goes through no slice")
    index = _find_next_stop(state, marks, by) % len(marks.stops)  # from end to begin
    return search.shown(state, Hits(CRITICAL_PATH, state.active, marks.stops, index))


def _find_next_stop(state: State, marks: Marks, by: int) -> int:
    """Return the index of the slice on the critical path (`marks.stops`) that follows
    the selection (`by` 1), or comes before it (-1). It may lie beyond either end."""
    view = state.view
    if view.has_selection:
        index_of_selected = np.flatnonzero(marks.stops == view.selected)
        if len(index_of_selected):
            return int(index_of_selected[0]) + by
        from_ns = int(state.side.trace.start[view.selected])
    else:
        from_ns = view.begin + state.side.origin
    next_index = int(np.searchsorted(marks.begin, from_ns))
    return next_index if by > 0 else next_index - 1


def rows(state: State, rest: str = "") -> Outcome:
    """Ask for the rows that say what takes the time of the critical path. They are
    shown over the page once they are known."""
    if rest:
        return told(state, "path takes no argument")
    if not state.sides:
        return state
    return _request_replay(state, ROWS, f"looking for {CRITICAL_PATH}")


def functions(state: State) -> Outcome:
    """Ask for the time of the user's own Python functions. It is shown over the page
    once it is known."""
    return _request_replay(state, FUNCTIONS, "adding up the time of your functions")


def whatif(state: State, rest: str) -> Outcome:
    """Ask for the gain of a change, such as `kind:gemm x0.8`. It is shown over the page
    once it is known."""
    if not rest:
        return told(state, NO_CHANGE)
    return _request_replay(state, rest, "replaying")


@memo()
def list_changes(trace: Trace) -> list[str]:
    """Return commands to which a typed `whatif` is completed: about kinds of kernels,
    kernels, and ops, those with the most time first."""
    kernels = _names_by_time(trace, Role.KERNEL)
    ops = _names_by_time(trace, Role.OP)
    kinds = dict.fromkeys(map(legend_kind, kernels))  # each once
    return [
        *(f"whatif kind:{kind} x0.5" for kind in kinds),
        *(f"whatif kernel:{name} x0.5" for name in kernels),
        *(f"whatif op:{name} x0.5" for name in ops),
    ]


def _names_by_time(trace: Trace, role: Role) -> list[str]:
    """Return the names of slices of one role that a person can type, those with the
    most time first. At most MAX_NAMES names are considered."""
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
    """Return whether the overlay says what a change would gain."""
    answer = state.overlay.found if isinstance(state.overlay, Replayed) else None
    return getattr(answer, "changes", None) is not None


def beside(state: State) -> Outcome:
    """Ask for a replay of the trace with the change of the overlay, to be shown as a
    second timeline. A message says why where it gives no single time."""
    answer: Any = state.overlay.found if isinstance(state.overlay, Replayed) else None
    if answer.after_ns is None:
        return told(state, A_RANGE if answer.between_ns else NOT_KNOWN)
    waiting_state = replace(state, replayed=BESIDE + answer.changes[0])
    effect = Replay(waiting_state, waiting_state.replayed)
    return told(replace(waiting_state, overlay=None), "replaying"), effect


def seen(state: State, replayed: Second) -> State:
    """Return the state with a replay as a second timeline, and the timeline in front."""
    shown_state = bring_to_timeline(
        replace(state, replay=replayed), state.session, state.active
    )
    return told(shown_state, REPLAYED, "recorded back")


def arrived(state: State, trace: Trace, asked: str, found: Any) -> State:
    """Return the state with the answer of a replay: marks or rows of the critical path,
    a gain, functions, a second timeline, or a sentence.

    The state is unchanged if another trace is open by now, or something else was asked
    for.
    """
    is_open = any(side.trace is trace for side in state.sides)
    if not is_open:
        return state
    if isinstance(found, str):  # why there is no answer
        if asked == MARKS:
            state = replace(state, on_path=False)
        return told(state, printable(found))
    if asked == MARKS:
        session = state.session.known(trace, critical=found)
        return told(replace(state, session=session), _describe_path(found), *PATH_KEYS)
    if asked != state.replayed:
        return state
    if isinstance(found, Second):
        return replace(state, replayed="", hint="", arrived=found)
    answer = Replayed(found, trace.report.format)
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
        help="show or hide it on the lanes",
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
        help="the critical path, and the slack of other work",
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
