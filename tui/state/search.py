"""Searching, and going through what was found."""

from __future__ import annotations

from functools import partial

import numpy as np
from msgspec.structs import replace

from fusetui.analysis.questions.chain import replayed
from fusetui.analysis.questions.query import parse
from fusetui.analysis.questions.query_text import WrongQueryError
from fusetui.analysis.questions.search import search, texts_of, why_nothing
from fusetui.text.figures import count
from fusetui.text.printable import printable
from fusetui.trace.layout.steps import Steps
from fusetui.trace.model.categories import Role
from fusetui.tui.layout.search_hits import NOTHING, SearchHits
from fusetui.tui.layout.view import Side
from fusetui.tui.state.action import action
from fusetui.tui.state.moving import brought
from fusetui.tui.state.session import Hits, still_there
from fusetui.tui.state.state import (
    OVERLAY,
    HitList,
    Outcome,
    Prompt,
    Search,
    State,
    overlaid,
    told,
)

LARGE = 200_000  # slices: more are searched in a thread, so that no key waits


def typed(state: State, text: str) -> Outcome:
    """The text has changed; what it finds is looked for in a thread."""
    if not state.is_searching:
        return state
    return (
        (state, _searching(state, text)) if text.strip() else replace(state, found=None)
    )


def arrived(state: State, side: Side, found: SearchHits) -> State:
    """More was found; a person who pressed Enter before that is led to the first hit,
    or has more of them. What is known of the trace may have grown since, but it is the
    same trace."""
    if not any(side.trace is one.trace for one in state.sides):
        return state
    if state.is_searching:
        return replace(state, found=found)
    if found.text == state.wanted_hit:
        return _to_first(replace(state, wanted_hit=""), found) if found.leads else state
    hits = state.session.hits
    if hits is None or not hits.searched or hits.what != found.text:
        return state
    return (
        _with_args(state, hits, found)
        if state.sides[hits.side].trace is side.trace
        else state
    )


def again(before: State, state: State) -> Outcome:
    """More of a trace is read: what is typed is searched for in it, and in the whole of
    it also the args, for what a person goes through."""
    state = _followed(before, state)
    if state.is_searching:
        text = state.found.text if state.found else ""
        return (replace(state, found=None), _searching(state, text)) if text else state
    if state.wanted_hit:
        return state, _searching(state, state.wanted_hit)
    hits, old = state.session.hits, before.session.hits
    if hits is None or not hits.searched:
        return state
    if old and state.hint == _place(old):
        state = replace(state, hint=_place(hits))
    if state.sides[hits.side].trace.report.prefix:
        return state
    return state, _searching(state, hits.what, hits.side)


def _followed(before: State, state: State) -> State:
    """The list over the page: of a search with the hits of today, else with the slices
    it had."""
    hits, was = state.session.hits, state.overlay
    if not isinstance(was, HitList):
        return state
    if hits is None or was.hits is not before.session.hits:
        trace = state.sides[was.hits.side].trace
        rows = still_there(was.side.trace, trace, was.hits.rows)
        hits = replace(was.hits, rows=rows, at=-1, by_args=NOTHING)
    return _listed(state, hits) if len(hits.rows) else replace(state, overlay=None)


def searched(state: State, text: str) -> Outcome:
    """The first hit at or after the window, or the longest, on the active side."""
    found, state = state.found, replace(state, prompt=None, found=None)
    if not text.strip():
        return state
    if found and found.text == text and found.leads:
        return _to_first(state, found)
    try:
        query = parse(text)
        if query.is_quick and len(state.side.trace) <= LARGE:
            rows = search(state.side.trace, texts_of(state.side.trace), query)
            if len(rows) or not query.words:
                missing = "" if len(rows) else why_nothing(state.side.trace, query)
                return _to_first(state, SearchHits(text, rows, missing=missing))
    except WrongQueryError as wrong:
        return told(state, printable(str(wrong)))
    return told(replace(state, wanted_hit=text), "searching"), _searching(state, text)


def _searching(state: State, text: str, index: int | None = None) -> Search:
    """In a thread; on the active side if no other one is named."""
    index = state.active if index is None else index
    path = state.paths[index] if index < len(state.paths) else ""
    return Search(state.sides[index], text, path)


def _to_first(state: State, found: SearchHits) -> State:
    """The first hit by name; where no name says it, the first by args; of a search for
    what takes longer than a time, the longest."""
    if found.wrong:
        return told(state, printable(found.wrong))
    trace, first = state.side.trace, found.rows if len(found.rows) else found.extra
    if not len(first):
        missing = f": {found.missing}" if found.missing else ""
        return told(state, printable(f"nothing found for {found.text}{missing}"))
    hits = Hits(found.text, state.active, first, searched=True)
    if parse(found.text).is_of_longest:
        hits = replace(hits, at=int(trace.dur[first].argmax()))
    else:
        hits = hits.nearest(trace, state.view.begin + state.side.origin)
    return shown(state, hits.among(found.together, found.by_args))


def _with_args(state: State, hits: Hits, found: SearchHits) -> State:
    """The hits that are gone through, also in their list, with those that were found
    since."""
    if len(found.by_args) <= len(hits.by_args):
        return state
    now = hits.among(found.together, found.by_args)
    told_place = state.hint == _place(hits)
    state = replace(state, session=replace(state.session, hits=now))
    state = replace(state, hint=_place(now)) if told_place else state
    is_listed = isinstance(state.overlay, HitList) and state.overlay.hits is hits
    return _listed(state, now) if is_listed else state


def _listed(state: State, hits: Hits) -> State:
    """Other hits in the list that lies over the page, the cursor on the one that it was
    on."""
    if not isinstance(state.overlay, HitList):
        return state
    trace = state.sides[hits.side].trace
    was, list_ = state.overlay, state.list_of(OVERLAY)
    row = int(was.hits.rows[min(list_.cursor, len(was.hits.rows) - 1)])
    now = np.flatnonzero(trace.order[hits.rows] == was.side.trace.order[row]).tolist()
    state = replace(state, overlay=HitList(state.sides[hits.side], hits))
    return state.with_list(OVERLAY, replace(list_, cursor=next(iter(now), 0)))


def _place(hits: Hits) -> str:
    return f"{count(hits.at + 1)} of {count(len(hits.rows))}: {printable(hits.what)}"


def shown(state: State, hits: Hits) -> State:
    """Selects one hit in the timeline; of what was captured, the kernels that replay
    it."""
    if not len(hits.rows):
        return state
    trace = state.sides[hits.side].trace
    if trace.role[hits.row] == Role.CAPTURED:
        if not len(rows := replayed(trace, hits.row)):
            return told(
                state, "it was captured, and no kernel of this trace replays it"
            )
        hits = replace(hits, rows=rows, at=0)
    session = replace(state.session.selected(hits.side, hits.row), hits=hits)
    found = brought(state, session, hits.side)
    return told(
        found, _place(hits), "next-hit next", "previous-hit previous", "hits list"
    )


def shown_row(state: State, row: int, what: str = "") -> State:
    """Selects one slice of the active side, as the only hit; `what`: else its name."""
    what = what or state.side.trace.name_of(row)
    only = Hits(what, state.active, np.array([row]), 0)
    now = shown(state, only)
    return told(now, printable(what)) if now.session.hits is only else now


def step(state: State, by: int) -> State:
    hits = state.session.hits
    return (
        shown(state, hits.step(by))
        if hits
        else told(state, "no search yet", "search search")
    )


def list_hits(state: State) -> State:
    hits = state.session.hits
    if hits is None or not len(hits.rows):
        return told(state, "nothing was searched for", "search search")
    return listed(state, hits)


def listed(state: State, hits: Hits, steps: Steps | None = None) -> State:
    return overlaid(
        state, HitList(state.sides[hits.side], hits, steps), max(0, hits.at)
    )


_ask = partial(replace, prompt=Prompt.SEARCH, found=None, wanted_hit="")
ACTIONS = (
    action("search", "Search", "/", "names, kinds, shapes: kind:gemm dur>50us", _ask),
    action(
        "next-hit",
        "Next hit",
        "n",
        "of the search, in order of time",
        partial(step, by=1),
    ),
    action("previous-hit", "Previous hit", "N", "of the search", partial(step, by=-1)),
    action("hits", "List of hits", "T", "of the search", list_hits),
)
