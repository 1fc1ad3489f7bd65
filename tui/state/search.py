"""Searches, and navigation through the results."""

from __future__ import annotations

from functools import partial

import numpy as np
from msgspec.structs import replace

from fusetui.analysis.questions.chain import find_replayed_gpu_rows
from fusetui.analysis.questions.query import parse
from fusetui.analysis.questions.query_text import WrongQueryError
from fusetui.analysis.questions.search import (
    collect_name_texts,
    explain_missing_parts,
    search,
)
from fusetui.text.figures import count
from fusetui.text.printable import printable
from fusetui.trace.layout.steps import Steps
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.tui.layout.search_hits import NO_ROWS, SearchHits
from fusetui.tui.layout.view import Side
from fusetui.tui.state.action import action
from fusetui.tui.state.moving import bring_to_timeline
from fusetui.tui.state.session import Hits, keep_found_rows
from fusetui.tui.state.state import (
    OVERLAY,
    Help,
    HitList,
    Outcome,
    Prompt,
    Search,
    State,
    open_overlay,
    told,
)

MAX_SLICES_AT_ONCE = 200_000  # more are searched in a thread, so that no key waits


def typed(state: State, text: str) -> Outcome:
    """Return the state and the effect that searches for the text typed so far. An empty
    text clears what was found."""
    if not state.is_searching:
        return state
    if not text.strip():
        return replace(state, found=None)
    return state, _make_search_effect(state, text)


def arrived(state: State, side: Side, found: SearchHits) -> State:
    """Return the state after a search found more.

    While the user types, the hits are shown below. If Enter was pressed before they
    came, it leads to the first one. Hits that are stepped through get the new ones.
    Results for traces that are closed are dropped.
    """
    if not any(open_side.trace is side.trace for open_side in state.sides):
        return state
    if state.is_searching:
        return replace(state, found=found)
    if found.text == state.wanted_hit:
        if not found.leads:
            return state
        return _show_first_hit(replace(state, wanted_hit=""), found)
    hits = state.session.hits
    if hits is None or not hits.searched or hits.what != found.text:
        return state
    if state.sides[hits.side].trace is not side.trace:
        return state
    return _add_hits_by_args(state, hits, found)


def again(before: State, state: State) -> Outcome:
    """Return the state after more of a trace was read, with its searches repeated on
    it.

    This concerns the text being typed, a hit that is awaited, and the hits that are
    stepped through. Args are searched only once the whole trace is there.
    """
    state = _update_hit_list(before, state)
    if state.is_searching:
        text = state.found.text if state.found else ""
        if not text:
            return state
        return replace(state, found=None), _make_search_effect(state, text)
    if state.wanted_hit:
        return state, _make_search_effect(state, state.wanted_hit)
    hits = state.session.hits
    if hits is None or not hits.searched:
        return state
    hits_before = before.session.hits
    if hits_before and state.hint == _format_hit_hint(hits_before):
        state = replace(state, hint=_format_hit_hint(hits))
    if state.sides[hits.side].trace.report.prefix:
        return state
    return state, _make_search_effect(state, hits.what, hits.side)


def _update_hit_list(before: State, state: State) -> State:
    """Return the state with an open list of hits brought up to date after more of the
    trace was read. A list without any hit left is closed."""
    overlay = state.overlay
    if isinstance(overlay, Help) and isinstance(overlay.before, HitList):
        # its rows are of what was read before
        return replace(state, overlay=replace(overlay, before=None))
    if not isinstance(overlay, HitList):
        return state
    hits = state.session.hits
    lists_hits_of_session = overlay.hits is before.session.hits
    if hits is None or not lists_hits_of_session:
        trace = state.sides[overlay.hits.side].trace
        rows = keep_found_rows(overlay.side.trace, trace, overlay.hits.rows)
        hits = replace(overlay.hits, rows=rows, at=-1, by_args=NO_ROWS)
    if not len(hits.rows):
        return replace(state, overlay=None)
    return _replace_listed_hits(state, hits)


def searched(state: State, text: str) -> Outcome:
    """Carry out Enter in a search: show the first hit at or after the window, or the
    longest one where the query asks for that. A long search goes on in a thread."""
    found = state.found
    state = replace(state, prompt=None, found=None)
    if not text.strip():
        return state
    if found and found.text == text and found.leads:
        return _show_first_hit(state, found)
    try:
        found_now = _search_at_once(state.side.trace, text)
    except WrongQueryError as wrong:
        return told(state, printable(str(wrong)))
    if found_now is not None:
        return _show_first_hit(state, found_now)
    searching_state = told(replace(state, wanted_hit=text), "searching")
    return searching_state, _make_search_effect(state, text)


def _search_at_once(trace: Trace, text: str) -> SearchHits | None:
    """Return the hits of a query, or None where finding them takes too long for a key
    press.

    That is the case in a large trace, for queries about args, and for words that no
    name contains. Raise WrongQueryError for a wrong query.
    """
    query = parse(text)
    if not query.needs_only_names or len(trace) > MAX_SLICES_AT_ONCE:
        return None
    rows = search(trace, collect_name_texts(trace), query)
    if len(rows):
        return SearchHits(text, rows)
    if query.words:  # args may contain them
        return None
    return SearchHits(text, rows, missing=explain_missing_parts(trace, query))


def _make_search_effect(state: State, text: str, index: int | None = None) -> Search:
    """Return the effect that searches one side in a thread: side `index`, by default
    the active one."""
    index = state.active if index is None else index
    path = state.paths[index] if index < len(state.paths) else ""
    return Search(state.sides[index], text, path)


def _show_first_hit(state: State, found: SearchHits) -> State:
    """Return the state that shows the first hit at or after the window, the first by
    name if there is any.

    A query for the longest slices shows the longest. Where nothing was found, a message
    says why.
    """
    if found.wrong:
        return told(state, printable(found.wrong))
    trace = state.side.trace
    rows = found.rows if len(found.rows) else found.extra
    if not len(rows):
        reason = f": {found.missing}" if found.missing else ""
        return told(state, printable(f"nothing found for {found.text}{reason}"))
    hits = Hits(found.text, state.active, rows, searched=True)
    if parse(found.text).asks_for_longest:
        hits = replace(hits, at=int(trace.dur[rows].argmax()))
    else:
        hits = hits.nearest(trace, state.view.begin + state.side.origin)
    return shown(state, hits.among(found.together, found.by_args))


def _add_hits_by_args(state: State, hits: Hits, found: SearchHits) -> State:
    """Return the state with hits by args added to the hits that are stepped through,
    also in their list. The hit that is shown stays."""
    if len(found.by_args) <= len(hits.by_args):
        return state
    more_hits = hits.among(found.together, found.by_args)
    updated_state = replace(state, session=replace(state.session, hits=more_hits))
    if state.hint == _format_hit_hint(hits):
        updated_state = replace(updated_state, hint=_format_hit_hint(more_hits))
    is_listed = isinstance(state.overlay, HitList) and state.overlay.hits is hits
    if is_listed:
        return _replace_listed_hits(updated_state, more_hits)
    return updated_state


def _replace_listed_hits(state: State, hits: Hits) -> State:
    """Return the state with other hits in the open list of hits. The cursor stays on
    its slice, or goes to the first row if that is no hit."""
    overlay = state.overlay
    if not isinstance(overlay, HitList):
        return state
    list_state = state.list_of(OVERLAY)
    cursor = min(list_state.cursor, len(overlay.hits.rows) - 1)
    order = overlay.side.trace.order[int(overlay.hits.rows[cursor])]
    side = state.sides[hits.side]
    same_slice = np.flatnonzero(side.trace.order[hits.rows] == order)
    new_cursor = int(same_slice[0]) if len(same_slice) else 0
    relisted_state = replace(state, overlay=HitList(side, hits))
    return relisted_state.with_list(OVERLAY, replace(list_state, cursor=new_cursor))


def _format_hit_hint(hits: Hits) -> str:
    """Return which of the hits is shown, and of which search.

    3 of 120: gemm
    """
    number = count(hits.at + 1)
    total = count(len(hits.rows))
    return f"{number} of {total}: {printable(hits.what)}"


def shown(state: State, hits: Hits) -> State:
    """Return the state with the current hit selected in the timeline. For an event
    recorded while a CUDA graph was captured, it selects the kernel that replays it."""
    if not len(hits.rows):
        return state
    trace = state.sides[hits.side].trace
    if trace.role[hits.row] == Role.CAPTURED:
        replaying = find_replayed_gpu_rows(trace, hits.row)
        if not len(replaying):
            return told(
                state, "it was captured, and no kernel of this trace replays it"
            )
        hits = replace(hits, rows=replaying, at=0)
    session = replace(state.session.selected(hits.side, hits.row), hits=hits)
    return told(
        bring_to_timeline(state, session, hits.side),
        _format_hit_hint(hits),
        "next-hit next",
        "previous-hit previous",
        "hits list",
    )


def show_row(state: State, row: int, what: str = "") -> State:
    """Return the state with one slice of the active side selected in the timeline, as
    the only hit. `what` names it in the message, else its own name does."""
    what = what or state.side.trace.name_of(row)
    single_hit = Hits(what, state.active, np.array([row]), at=0)
    shown_state = shown(state, single_hit)
    return (
        told(shown_state, printable(what))
        if shown_state.session.hits is single_hit
        else shown_state
    )


def step(state: State, by: int) -> State:
    """Show the next hit of the last search (`by` 1), or the one before (-1)."""
    hits = state.session.hits
    if not hits:
        return told(state, "no search yet", "search search")
    return shown(state, hits.step(by))


def list_hits(state: State) -> State:
    """Open the list of the hits of the last search."""
    hits = state.session.hits
    if hits is None or not len(hits.rows):
        return told(state, "nothing was searched for", "search search")
    return listed(state, hits)


def listed(state: State, hits: Hits, steps: Steps | None = None) -> State:
    """Return the state with a list of hits over the page, the cursor on the current
    one. With `steps`, the list shows these steps, whose rows the hits are."""
    overlay = HitList(state.sides[hits.side], hits, steps)
    return open_overlay(state, overlay, cursor=max(0, hits.at))


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
