"""From a part of a trace to more of it: what the user looks at stays.

A slice is the same when its place in traceEvents is, a lane when its thread (or stream) and layer
are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui.analysis.questions.query import WrongQuery, parse
from fusetui.analysis.questions.search import search, texts_of
from fusetui.trace.model.columns import Trace
from fusetui.tui.layout.lanes import Arrangement
from fusetui.tui.layout.view import Side, View, Views, first_view
from fusetui.tui.state.session import NOTHING, Hits, ViewSession

Rows = Mapping[int, int]
"""The new row of a row of the earlier trace. -1 stays -1."""


def carried(session: ViewSession, sides: Sequence[Side]) -> ViewSession:
    """The session on other sides, which have all slices of its own sides."""
    pairs = list(zip(session.sides, sides, strict=True))
    rows = [same_rows(a.trace, b.trace, _used(session, n)) for n, (a, b) in enumerate(pairs)]

    def now(views: Views) -> Views:
        found = zip(pairs, views, rows, strict=True)
        return tuple(_view(old, new, view, known) for (old, new), view, known in found)

    return replace(
        session,
        sides=tuple(sides),
        views=now(session.views),
        past=tuple(map(now, session.past)),
        future=tuple(map(now, session.future)),
        marked=tuple(
            frozenset(known.get(row, -1) for row in marks) - {-1}
            for marks, known in zip(session.marked, rows, strict=True)
        ),
        hits=_hits(session.hits, sides, rows),
        bookmarks={
            letter: replace(mark, row=rows[mark.side].get(mark.row, -1))
            for letter, mark in session.bookmarks.items()
        },
    )


def same_rows(old: Trace, new: Trace, rows: Iterable[int]) -> Rows:
    """The rows of the other trace for these rows; those not found are left out."""
    wanted = {int(old.order[row]): row for row in set(rows) if row >= 0}
    orders = np.array(sorted(wanted), dtype=np.int64)
    found = np.flatnonzero(np.isin(new.order, orders)) if len(orders) else ()
    return {-1: -1, **{wanted[int(new.order[row])]: int(row) for row in found}}


def still_there(old: Trace, new: Trace, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """The rows of the other trace for these, in order of time, without those not found."""
    found = np.flatnonzero(np.isin(new.order, old.order[rows]))
    return found[np.argsort(new.start[found], kind="stable")]


def _used(session: ViewSession, index: int) -> Iterable[int]:
    """All rows of one side that a session refers to."""
    for views in (session.views, *session.past, *session.future):
        yield views[index].selected
    yield from session.marked[index]
    yield from (mark.row for mark in session.bookmarks.values() if mark.side == index)
    hits = session.hits
    if hits is not None and hits.side == index and hits.at >= 0:
        yield hits.row


def _view(old: Side, new: Side, view: View, rows: Rows) -> View:
    """The same times, except that a window over the whole trace still shows all of it."""
    folds = {lane.key: fold for lane, fold in zip(old.lanes, view.folds, strict=True)}
    shift = old.origin - new.origin
    window = (view.begin + shift, view.end + shift)
    begin, end = (None, None) if (view.begin, view.end) == (old.begin, old.end) else window
    return replace(
        first_view(new, begin, end),
        selected=rows.get(view.selected, -1),
        folds=tuple(folds.get(lane.key, lane.first_fold) for lane in new.lanes),
        arranged=_arranged(old, new, view.arranged),
    )


def _arranged(old: Side, new: Side, before: Arrangement) -> Arrangement:
    """What a person hid or pinned is that still; the lanes that say little are others now."""
    numbers = {lane.key: n for n, lane in enumerate(new.lanes)}
    now = {n: numbers[lane.key] for n, lane in enumerate(old.lanes) if lane.key in numbers}
    by_hand = {now[n] for n in before.hidden - old.quiet if n in now}
    shown = {now[n] for n in old.quiet - before.hidden if n in now}
    hidden = frozenset((new.quiet | by_hand) - shown)
    pinned = tuple(now[n] for n in before.pinned if n in now)
    return replace(before, hidden=hidden, pinned=pinned)


def _hits(hits: Hits | None, sides: Sequence[Side], rows: Sequence[Rows]) -> Hits | None:
    """Repeats a search that is answered at once, because there may be more to find."""
    if hits is None or not hits.searched:
        return None
    side = sides[hits.side]
    try:
        if not (query := parse(hits.what)).is_quick:
            return None
        found = search(side.trace, side.once(texts_of), query)
    except WrongQuery:
        return None
    now = rows[hits.side].get(hits.row, -1) if hits.at >= 0 else -1
    at = np.flatnonzero(found == now)
    return replace(hits, rows=found, at=int(at[0]) if len(at) else -1, by_args=NOTHING)
