"""Has replays made beside the keys, and names what they are about."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from fusetui.analysis.replay.changes import AMOUNT
from fusetui.trace.model.categories import GPU_ROLES, Role
from fusetui.trace.model.report import Stop
from fusetui.tui import registry
from fusetui.tui.helper_client import Start, beside
from fusetui.tui.loading import Post
from fusetui.tui.pages.modules import PAGE as MODULES
from fusetui.tui.state import replays
from fusetui.tui.state.second import second_of
from fusetui.tui.state.state import TIMELINE, Replay, State

SELECTED = "what is selected tells no change: whatif family:gemm x0.8 names one"
WHAT = {
    **dict.fromkeys(GPU_ROLES, "kernel"),
    **{Role.OP: "op", Role.CALL: "op", Role.PYTHON: "python", Role.ANNOTATION: "module"},
}


def replay(asked: Replay, post: Post, cancelled: Stop, start: Start | None = None) -> None:
    """Posts the answer, unless nobody wants it any more."""
    state, trace = asked.state, asked.state.side.trace
    tell = partial(replays.arrived, trace=trace, asked=asked.asked)
    change = named(state, asked.asked)
    if not change:
        post(partial(tell, found=SELECTED))
        return
    with beside(start, trace) as helper:
        of_file = state.paths[state.active], trace
        for found in helper.answers(of_file, cancelled, replayed=change):
            answer = second_of(trace, found, _said(state)) if isinstance(found, tuple) else found
            if not cancelled():
                post(partial(tell, found=answer))


def _said(state: State) -> str:
    from fusetui.report.whatif import replayed_sentence

    found: Any = state.overlay
    return replayed_sentence(found.found)


def named(state: State, asked: str) -> str:
    """The whole change where only an amount was given: that of what is selected, or of a
    finding, whatever the amount; "" for nothing."""
    if not re.fullmatch(AMOUNT, asked):
        return asked
    page = registry.page_of(state)
    if change := page.change(state):
        return change
    row = state.view.selected if state.page == TIMELINE else page.subject(state)
    trace = state.side.trace
    what = WHAT.get(Role(int(trace.role[row]))) if row >= 0 else None
    if what == "python" and state.page == MODULES.name:
        what = "module"
    return f"{what}:{trace.name_of(row)} {asked}" if what else ""
