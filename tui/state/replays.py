"""The critical path on the timeline, and what changes would be worth: asked for here,
worked out by replaying.py, and shown when it arrives."""

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

CALLED = "the critical path"
MOST_NAMES = 500  # that are completed
DOUBTFUL = 0.05  # more of the path that is not understood is told
WHOLE = "this needs the whole trace, which is being read"
NO_CHANGE = (
    "whatif takes a change: whatif x0.5 of what is selected, or whatif kind:gemm x0.8"
)
NOT_KNOWN = "No replay: too little of the trace is understood"
A_RANGE = "No replay: the change gives a range of times, not one time"
REPLAYED = "Below: the replay (predicted, not recorded)"
KEYS = "path-next next", "path-previous previous", "undo undo"


def _asked(state: State, asked: str, said: str) -> Outcome:
    if state.side.trace.report.prefix:
        return told(state, WHOLE)
    wanted = state if asked == MARKS else replace(state, replayed=asked)
    return told(wanted, said), Replay(wanted, asked)


def mark(state: State) -> Outcome:
    if state.side.critical is None:
        return _asked(replace(state, on_path=True), MARKS, f"looking for {CALLED}")
    now = replace(state, on_path=not state.on_path)
    marked = _said(state.side.critical), *KEYS[:2]
    return (
        told(now, *marked)
        if now.on_path
        else told(now, f"{CALLED} is no longer marked")
    )


def _said(marks: Marks) -> str:
    share = marks.residual_share
    doubt = f", {percent(share, 1)} of it not understood" if share > DOUBTFUL else ""
    return f"{CALLED}: {duration(marks.span_ns)}, {plural(len(marks.stops), 'slice')}{doubt}"


def step(state: State, by: int) -> Outcome:
    marks, row = state.side.critical, state.view.selected
    if marks is None or not state.on_path:
        return mark(state)
    if not len(marks.stops):
        return told(state, f"{CALLED} goes through no slice")
    here = np.flatnonzero(marks.stops == row)
    if row >= 0 and len(here):
        at = int(here[0]) + by
    else:
        window = state.view.begin + state.side.origin
        begin = int(state.side.trace.start[row]) if row >= 0 else window
        at = int(np.searchsorted(marks.begin, begin)) - (by < 0)
    return search.shown(
        state, Hits(CALLED, state.active, marks.stops, at % len(marks.stops))
    )


def rows(state: State, rest: str = "") -> Outcome:
    if rest:
        return told(state, "path takes no argument")
    return _asked(state, ROWS, f"looking for {CALLED}") if state.sides else state


def whatif(state: State, rest: str) -> Outcome:
    return _asked(state, rest, "replaying") if rest else told(state, NO_CHANGE)


@memo()
def changes_of(trace: Trace) -> list[str]:
    """What `whatif` is completed to: kinds of kernels, kernels and ops that can be
    typed, those with the most time first."""
    found = dict[str, list[str]](kind=[])
    for what, role in (("kernel", Role.KERNEL), ("op", Role.OP)):
        rows = trace.rows_of(role)
        ns = np.bincount(trace.name[rows], trace.dur[rows], len(trace.names))
        names = [
            trace.names[n] for n in np.argsort(-ns, kind="stable")[:MOST_NAMES] if ns[n]
        ]
        found[what] = [name for name in names if printable(name) == name]
    found["kind"] += dict.fromkeys(map(legend_kind, found["kernel"]))
    return [
        f"whatif {what}:{name} x0.5" for what, names in found.items() for name in names
    ]


def is_worth(state: State) -> bool:
    found = state.overlay.found if isinstance(state.overlay, Replayed) else None
    return getattr(found, "changes", None) is not None


def beside(state: State) -> Outcome:
    found: Any = state.overlay.found if isinstance(state.overlay, Replayed) else None
    if found.after_ns is None:
        return told(state, A_RANGE if found.between_ns else NOT_KNOWN)
    asked = replace(state, replayed=BESIDE + found.changes[0])
    return told(replace(asked, overlay=None), "replaying"), Replay(
        asked, asked.replayed
    )


def seen(state: State, found: Second) -> State:
    now = brought(replace(state, replay=found), state.session, state.active)
    return told(now, REPLAYED, "recorded back")


def arrived(state: State, trace: Trace, asked: str, found: Any) -> State:
    """Marks, a Path, a WhatIf, a Second or a sentence; dropped if another trace is open
    by now, or something else was asked for."""
    if not any(side.trace is trace for side in state.sides):
        return state
    if isinstance(found, str):
        return told(
            replace(state, on_path=state.on_path and asked != MARKS), printable(found)
        )
    if asked == MARKS:
        now = replace(state, session=state.session.known(trace, critical=found))
        return told(now, _said(found), *KEYS[:2])
    if asked != state.replayed:
        return state
    answer = found if isinstance(found, Second) else Replayed(found)
    return replace(state, replayed="", hint="", arrived=answer)


_recorded = partial(replace, replay=None)
SECOND = (
    action(
        "second",
        "Replay beside",
        "b",
        "as a second timeline",
        beside,
        SECTION,
        is_worth,
    ),
    action(
        *(
            "recorded",
            "Only the recording",
            "escape",
            "without the replay",
            _recorded,
            SECTION,
        ),
        where=lambda state: state.overlay is None and state.second is not None,
    ),
)
_here = partial(action, section=SECTION, where=on_timeline)
_MARK, _ROWS = (
    "marked on the lanes, or not",
    "what is on it, and the slack of the rest",
)
_next, _ORDER = partial(step, by=1), "slice by slice, in order of time"
ACTIONS = (
    _here("path", "Critical path", "P", _MARK, mark),
    _here("path-next", "Next on the path", ">", _ORDER, _next),
    _here("path-previous", "Previous on the path", "<", "back", partial(step, by=-1)),
    action("path-rows", "Critical path in rows", "", _ROWS, rows),
)
