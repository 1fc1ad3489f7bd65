"""From what was read of a trace to more of it: what the person was looking at stays.

A slice is the same when its place in traceEvents is, a lane when its thread (or stream) and layer
are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from fusetui.trace.model.columns import Trace
from fusetui.trace.questions.search import find
from fusetui.tui.layout.arrangement import Arrangement
from fusetui.tui.layout.sides import Views
from fusetui.tui.layout.view import Side, View, first_view
from fusetui.tui.state.session import Hits, Session

Rows = Mapping[int, int]
"""Of a row of the trace before: the row now. -1 stays -1."""


def carried(session: Session, sides: Sequence[Side]) -> Session:
    """The session on other sides, which hold all slices that its own do."""
    pairs = list(zip(session.sides, sides, strict=True))
    rows = [same_rows(a.trace, b.trace, _used(session, n)) for n, (a, b) in enumerate(pairs)]

    def now(views: Views) -> Views:
        return tuple(
            _view(old, new, view, known)
            for (old, new), view, known in zip(pairs, views, rows, strict=True)
        )

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
    """Where these rows of one trace are in the other; those that are nowhere are left out."""
    wanted = {int(old.order[row]): row for row in set(rows) if row >= 0}
    orders = np.array(sorted(wanted), dtype=np.int64)
    found = np.flatnonzero(np.isin(new.order, orders)) if len(orders) else ()
    return {-1: -1, **{wanted[int(new.order[row])]: int(row) for row in found}}


def _used(session: Session, index: int) -> Iterable[int]:
    """All rows of one side that a session names."""
    for views in (session.views, *session.past, *session.future):
        yield views[index].selected
    yield from session.marked[index]
    yield from (mark.row for mark in session.bookmarks.values() if mark.side == index)
    hits = session.hits
    if hits is not None and hits.side == index and hits.at >= 0:
        yield hits.row


def _view(old: Side, new: Side, view: View, rows: Rows) -> View:
    """The same times; but a window over the whole trace goes on showing all of it."""
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
    """A search is made again, for there is more to find; rows out of a table are not."""
    if hits is None or not hits.searched:
        return None
    found = find(sides[hits.side].trace, hits.what)
    now = rows[hits.side].get(hits.row, -1) if hits.at >= 0 else -1
    at = np.flatnonzero(found == now)
    return replace(hits, rows=found, at=int(at[0]) if len(at) else -1)
