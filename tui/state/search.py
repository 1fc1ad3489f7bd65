"""Searches, and navigation through the results."""

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
from fusetui.trace.model.columns import Trace
from fusetui.tui.layout.search_hits import NO_ROWS, SearchHits
from fusetui.tui.layout.view import Side
from fusetui.tui.state.action import action
from fusetui.tui.state.moving import brought
from fusetui.tui.state.session import Hits, still_there
from fusetui.tui.state.state import (
    OVERLAY,
    Help,
    HitList,
    Outcome,
    Prompt,
    Search,
    State,
    overlaid,
    told,
)

MAX_SLICES_AT_ONCE = 200_000  # more are searched in a thread, so that no key waits


def typed(state: State, text: str) -> Outcome:
    """The text of the search has changed; what it finds is looked for in a thread."""
    if not state.is_searching:
        return state
    if not text.strip():
        return replace(state, found=None)
    return state, _searching(state, text)


def arrived(state: State, side: Side, found: SearchHits) -> State:
    """More was found; a person who pressed Enter before that is led to the first hit,
    or has more of them. What is known of the trace may have grown since, but it is the
    same trace."""
    if not any(open_side.trace is side.trace for open_side in state.sides):
        return state
    if state.is_searching:
        return replace(state, found=found)
    if found.text == state.wanted_hit:
        if not found.leads:
            return state
        return _to_first(replace(state, wanted_hit=""), found)
    hits = state.session.hits
    if hits is None or not hits.searched or hits.what != found.text:
        return state
    if state.sides[hits.side].trace is not side.trace:
        return state
    return _with_args(state, hits, found)


def again(before: State, state: State) -> Outcome:
    """More of a trace is read: what is typed is searched for in it, and in the whole of
    it also the args, for what a person goes through."""
    state = _followed(before, state)
    if state.is_searching:
        text = state.found.text if state.found else ""
        if not text:
            return state
        return replace(state, found=None), _searching(state, text)
    if state.wanted_hit:
        return state, _searching(state, state.wanted_hit)
    hits = state.session.hits
    if hits is None or not hits.searched:
        return state
    hits_before = before.session.hits
    if hits_before and state.hint == _hit_hint(hits_before):
        state = replace(state, hint=_hit_hint(hits))
    if state.sides[hits.side].trace.report.prefix:
        return state
    return state, _searching(state, hits.what, hits.side)


def _followed(before: State, state: State) -> State:
    """The list over the page after more was read: of a search with the hits of now,
    else with the slices it had."""
    overlay = state.overlay
    if isinstance(overlay, Help) and isinstance(overlay.before, HitList):
        # its rows are of what was read before
        return replace(state, overlay=replace(overlay, before=None))
    if not isinstance(overlay, HitList):
        return state
    hits = state.session.hits
    if hits is None or overlay.hits is not before.session.hits:
        trace = state.sides[overlay.hits.side].trace
        rows = still_there(overlay.side.trace, trace, overlay.hits.rows)
        hits = replace(overlay.hits, rows=rows, at=-1, by_args=NO_ROWS)
    if not len(hits.rows):
        return replace(state, overlay=None)
    return _listed(state, hits)


def searched(state: State, text: str) -> Outcome:
    """Enter in a search: the first hit at or after the window, or the longest, on the
    active side. What takes long is searched in a thread."""
    found = state.found
    state = replace(state, prompt=None, found=None)
    if not text.strip():
        return state
    if found and found.text == text and found.leads:
        return _to_first(state, found)
    try:
        found_now = _searched_at_once(state.side.trace, text)
    except WrongQueryError as wrong:
        return told(state, printable(str(wrong)))
    if found_now is not None:
        return _to_first(state, found_now)
    return told(replace(state, wanted_hit=text), "searching"), _searching(state, text)


def _searched_at_once(trace: Trace, text: str) -> SearchHits | None:
    """What a search finds, or None where that takes too long: in a large trace, for
    queries that need args, and for words that no name contains. Raises WrongQueryError
    for what is no query."""
    query = parse(text)
    if not query.is_quick or len(trace) > MAX_SLICES_AT_ONCE:
        return None
    rows = search(trace, texts_of(trace), query)
    if len(rows):
        return SearchHits(text, rows)
    if query.words:  # args may contain them
        return None
    return SearchHits(text, rows, missing=why_nothing(trace, query))


def _searching(state: State, text: str, index: int | None = None) -> Search:
    """The effect that searches one side in a thread, by default the active one."""
    index = state.active if index is None else index
    path = state.paths[index] if index < len(state.paths) else ""
    return Search(state.sides[index], text, path)


def _to_first(state: State, found: SearchHits) -> State:
    """The first hit by name; where no name says it, the first by args; of a search for
    what takes longer than a time, the longest."""
    if found.wrong:
        return told(state, printable(found.wrong))
    trace = state.side.trace
    rows = found.rows if len(found.rows) else found.extra
    if not len(rows):
        reason = f": {found.missing}" if found.missing else ""
        return told(state, printable(f"nothing found for {found.text}{reason}"))
    hits = Hits(found.text, state.active, rows, searched=True)
    if parse(found.text).is_of_longest:
        hits = replace(hits, at=int(trace.dur[rows].argmax()))
    else:
        hits = hits.nearest(trace, state.view.begin + state.side.origin)
    return shown(state, hits.among(found.together, found.by_args))


def _with_args(state: State, hits: Hits, found: SearchHits) -> State:
    """The hits that are gone through, also in their list, with those that were found
    since."""
    if len(found.by_args) <= len(hits.by_args):
        return state
    more_hits = hits.among(found.together, found.by_args)
    now = replace(state, session=replace(state.session, hits=more_hits))
    if state.hint == _hit_hint(hits):
        now = replace(now, hint=_hit_hint(more_hits))
    is_listed = isinstance(state.overlay, HitList) and state.overlay.hits is hits
    return _listed(now, more_hits) if is_listed else now


def _listed(state: State, hits: Hits) -> State:
    """Other hits in the list that lies over the page, the cursor on the slice that it
    was on, or on the first hit if that is not among them."""
    overlay = state.overlay
    if not isinstance(overlay, HitList):
        return state
    list_state = state.list_of(OVERLAY)
    cursor = min(list_state.cursor, len(overlay.hits.rows) - 1)
    order = overlay.side.trace.order[int(overlay.hits.rows[cursor])]
    side = state.sides[hits.side]
    same_slice = np.flatnonzero(side.trace.order[hits.rows] == order)
    new_cursor = int(same_slice[0]) if len(same_slice) else 0
    now = replace(state, overlay=HitList(side, hits))
    return now.with_list(OVERLAY, replace(list_state, cursor=new_cursor))


def _hit_hint(hits: Hits) -> str:
    """Which of the hits is shown, and what was searched for: `3 of 120: gemm`."""
    number = count(hits.at + 1)
    total = count(len(hits.rows))
    return f"{number} of {total}: {printable(hits.what)}"


def shown(state: State, hits: Hits) -> State:
    """Selects one hit in the timeline; of what was captured, the kernels that replay
    it."""
    if not len(hits.rows):
        return state
    trace = state.sides[hits.side].trace
    if trace.role[hits.row] == Role.CAPTURED:
        replaying = replayed(trace, hits.row)
        if not len(replaying):
            return told(
                state, "it was captured, and no kernel of this trace replays it"
            )
        hits = replace(hits, rows=replaying, at=0)
    session = replace(state.session.selected(hits.side, hits.row), hits=hits)
    return told(
        brought(state, session, hits.side),
        _hit_hint(hits),
        "next-hit next",
        "previous-hit previous",
        "hits list",
    )


def shown_row(state: State, row: int, what: str = "") -> State:
    """Selects one slice of the active side, as the only hit; `what`: else its name."""
    what = what or state.side.trace.name_of(row)
    only = Hits(what, state.active, np.array([row]), at=0)
    now = shown(state, only)
    return told(now, printable(what)) if now.session.hits is only else now


def step(state: State, by: int) -> State:
    """The next hit, or for -1 the one before."""
    hits = state.session.hits
    if not hits:
        return told(state, "no search yet", "search search")
    return shown(state, hits.step(by))


def list_hits(state: State) -> State:
    """The hits of the last search as a list over the page."""
    hits = state.session.hits
    if hits is None or not len(hits.rows):
        return told(state, "nothing was searched for", "search search")
    return listed(state, hits)


def listed(state: State, hits: Hits, steps: Steps | None = None) -> State:
    """A list of hits over the page, or of `steps`, of which these are the rows."""
    overlay = HitList(state.sides[hits.side], hits, steps)
    return overlaid(state, overlay, cursor=max(0, hits.at))


_ask = partial(replace, prompt=Prompt.SEARCH, overlay=None, found=None, wanted_hit="")
ACTIONS = (
    action(
        name="search",
        title="Search",
        written="/",
        help="names, kinds, shapes: kind:gemm dur>50us",
        run=_ask,
        where=lambda state: not isinstance(state.overlay, Help),
    ),
    action(
        name="next-hit",
        title="Next hit",
        written="n",
        help="of the search, in order of time",
        run=partial(step, by=1),
    ),
    action(
        name="previous-hit",
        title="Previous hit",
        written="N",
        help="of the search",
        run=partial(step, by=-1),
    ),
    action(
        name="hits",
        title="List of hits",
        written="T",
        help="of the search",
        run=list_hits,
    ),
)
