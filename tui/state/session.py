"""The state of the app apart from any widget, and every change of it as a pure
function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.analysis.diff.model import Diff
from fusetui.analysis.questions.query import parse
from fusetui.analysis.questions.query_text import WrongQueryError
from fusetui.analysis.questions.search import search, texts_of
from fusetui.trace.model.arrays import Rows
from fusetui.trace.model.columns import Trace
from fusetui.tui.layout.lanes import Arrangement
from fusetui.tui.layout.moves import select
from fusetui.tui.layout.places import fitted
from fusetui.tui.layout.search_hits import NOTHING
from fusetui.tui.layout.view import (
    Side,
    View,
    Views,
    aligned,
    first_view,
    first_views,
    held,
)

DEEPEST = 200  # views that undo keeps
Marks = tuple[frozenset[int], ...]
NO_MARKS: Marks = (frozenset(),)  # of each side


class Bookmark(msgspec.Struct, frozen=True):
    """A window of one side and what was selected in it. Times are ns of the file, so
    that a mark stays valid when the sides are realigned."""

    begin: int
    end: int
    order: int = -1  # of the selected slice in traceEvents; -1: nothing was selected
    note: str = ""  # what a person wrote about it
    side: int = 0


class Range(msgspec.Struct, frozen=True):
    """[begin, end) on one side, in ns of the file; `ended` after the second press."""

    side: int
    begin: int
    end: int
    ended: bool = False


def pressed(before: Range | None, index: int, side: Side, view: View) -> Range:
    """The first press starts a range, the second ends it; a third, or one on another
    side, starts a new one. A press refers to the selected slice or gap, or else to the
    window."""
    begin, end = (
        time + side.origin for time in held(side, view) or (view.begin, view.end)
    )
    if before is None or before.ended or before.side != index:
        return Range(index, begin, end)
    return Range(index, min(before.begin, begin), max(before.end, end), ended=True)


class Hits(msgspec.Struct, frozen=True, eq=False):
    """NewRows found by a search or a table, in order of time, and which of them is
    shown."""

    what: str
    side: int
    rows: Rows
    at: int = -1
    searched: bool = False  # else chosen in a table
    by_args: Rows = NOTHING  # those of which only the args say it, in order of rows
    is_of_name: bool = False  # all slices of one name

    @property
    def row(self) -> int:
        return int(self.rows[self.at])

    def step(self, by: int) -> Hits:
        return (
            replace(self, at=(self.at + by) % len(self.rows))
            if len(self.rows)
            else self
        )

    def nearest(self, trace: Trace, time: int) -> Hits:
        """The first hit at or after a time (ns of the file), else the first."""
        at = int(np.searchsorted(trace.start[self.rows], time, side="left"))
        return replace(self, at=at % len(self.rows))

    def among(self, rows: Rows, by_args: Rows) -> Hits:
        """The same hit among more of them; see Found."""
        here = np.flatnonzero(rows == self.row).tolist() if self.at >= 0 else []
        return replace(self, rows=rows, at=next(iter(here), -1), by_args=by_args)

    def is_by_args(self, row: int) -> bool:
        """Whether no name says it, but the args of this hit do."""
        at = int(np.searchsorted(self.by_args, row))
        return at < len(self.by_args) and int(self.by_args[at]) == row


class ViewSession(msgspec.Struct, frozen=True, eq=False):
    """One or two sides with their views and marked rows; the undo history; the hits of
    a search."""

    sides: tuple[Side, ...] = ()
    views: Views = ()
    marked: Marks = ()
    past: tuple[Views, ...] = ()
    future: tuple[Views, ...] = ()
    hits: Hits | None = None
    together: bool = True  # two windows move at once
    bookmarks: Mapping[str, Bookmark] = {}  # by their letters
    time_range: Range | None = None

    def go(self, views: Views) -> ViewSession:
        """Other views; the movement can be undone."""
        if views == self.views:
            return self
        return replace(
            self, views=views, past=(*self.past, self.views)[-DEEPEST:], future=()
        )

    def moved(self, index: int, view: View) -> ViewSession:
        """One view changed; if the sides move together, the other moves and zooms by as
        much."""
        before = self.views[index]
        if (before.begin, before.end) == (view.begin, view.end) or not self.together:
            return self.go((*self.views[:index], view, *self.views[index + 1 :]))
        begins = [view.begin + other.begin - before.begin for other in self.views]
        pairs = zip(self.views, begins, strict=True)
        views = [
            replace(other, begin=begin, end=begin + view.span) for other, begin in pairs
        ]
        views[index] = view
        return self.go(tuple(views))

    def windowed(self, index: int, begin: int, end: int, **fields: Any) -> ViewSession:
        return self.moved(
            index, replace(self.views[index], begin=begin, end=end, **fields)
        )

    def selected(self, index: int, row: int) -> ViewSession:
        return self.moved(index, select(self.sides[index], self.views[index], row))

    def undo(self) -> ViewSession:
        if not self.past:
            return self
        *past, views = self.past
        return replace(
            self, views=views, past=tuple(past), future=(self.views, *self.future)
        )

    def redo(self) -> ViewSession:
        if not self.future:
            return self
        views, *future = self.future
        return replace(
            self, views=views, past=(*self.past, self.views), future=tuple(future)
        )

    def cleared(self) -> ViewSession:
        """Without the range; if there is none, without any selection and marked
        rows."""
        if self.time_range:
            return replace(self, time_range=None)
        views = tuple(replace(view, selected=-1, gap=None) for view in self.views)
        return replace(self.go(views), marked=NO_MARKS * len(self.sides))

    def paired(self, pair: Sequence[Sequence[int]]) -> ViewSession:
        now = replace(self, marked=tuple(frozenset(rows) for rows in pair))
        for index, rows in enumerate(pair):
            if rows:
                now = now.selected(index, rows[0])
        return now

    def with_bookmark(self, letter: str, index: int, note: str = "") -> ViewSession:
        """A mark, by its letter, of what one side shows now."""
        side, view = self.sides[index], self.views[index]
        order = int(side.trace.order[view.selected]) if view.selected >= 0 else -1
        mark = Bookmark(
            view.begin + side.origin, view.end + side.origin, order, note, index
        )
        return replace(self, bookmarks={**self.bookmarks, letter: mark})

    def at_bookmark(self, letter: str) -> ViewSession:
        """The window and the selection of a mark; folds are kept."""
        mark = self.bookmarks[letter]
        side = self.sides[mark.side]
        begin, end = mark.begin - side.origin, mark.end - side.origin
        row = next(iter(np.flatnonzero(side.trace.order == mark.order).tolist()), -1)
        return self.windowed(mark.side, begin, end, selected=row)

    def ranged(self, index: int) -> ViewSession:
        found = pressed(self.time_range, index, self.sides[index], self.views[index])
        return replace(self, time_range=found)

    def interval(self, index: int) -> tuple[int, int] | None:
        """The range as one side shows it; until it ends, it extends to the current
        position."""
        found, side, view = self.time_range, self.sides[index], self.views[index]
        if found is None or found.side != index:
            return None
        if not found.ended and held(side, view):
            found = pressed(found, index, side, view)
        return found.begin - side.origin, found.end - side.origin

    def known(self, trace: Trace, **fields: Any) -> Self:
        """More is known about a trace: fields of its side; itself where it is not
        shown."""
        if not any(side.trace is trace for side in self.sides):
            return self
        own = (replace(s, **fields) if s.trace is trace else s for s in self.sides)
        return replace(self, sides=tuple(own))

    def refitted(self, index: int, lines: int) -> ViewSession:
        """The lanes of one side unfolded as far as there is room now; no movement to
        undo."""
        side, view = self.sides[index], self.views[index]
        whole = replace(first_view(side), arranged=view.arranged)
        now = replace(view, folds=fitted(side, whole, lines).folds)
        return replace(self, views=(*self.views[:index], now, *self.views[index + 1 :]))

    def swapped(self) -> ViewSession:
        found = self.time_range and replace(
            self.time_range, side=1 - self.time_range.side
        )
        marks = {
            name: replace(mark, side=1 - mark.side)
            for name, mark in self.bookmarks.items()
        }
        sides, views, marked = self.sides[::-1], self.views[::-1], self.marked[::-1]
        now = ViewSession(sides, views, marked, together=self.together)
        return replace(now, bookmarks=marks, time_range=found)

    def realigned(self, diff: Diff) -> ViewSession:
        """Makes both sides count from the steps that the diff compares."""
        sides = aligned(self.sides, diff)
        pairs = zip(first_views(sides), self.views, strict=True)
        views = tuple(
            replace(one, folds=own.folds, arranged=own.arranged) for one, own in pairs
        )
        now = replace(self, sides=sides, views=views, marked=NO_MARKS * len(sides))
        return replace(now, past=(), future=(), hits=None)


def start(sides: tuple[Side, ...], lines: int) -> ViewSession:
    """The first views, nothing selected; `lines`: for the lanes of each side."""
    views = tuple(
        fitted(s, v, lines) for s, v in zip(sides, first_views(sides), strict=True)
    )
    return ViewSession(sides, views, NO_MARKS * len(sides))


NewRows = Mapping[int, int]  # the new row of a row of the earlier trace; -1 stays -1


def carried(session: ViewSession, sides: Sequence[Side]) -> ViewSession:
    """The session on other sides, which have all slices of its own sides."""
    olds = session.sides
    pairs = enumerate(zip(olds, sides, strict=True))
    rows = [same_rows(a.trace, b.trace, _used(session, n)) for n, (a, b) in pairs]

    def now(views: Views) -> Views:
        return tuple(map(viewed_as, olds, sides, views, rows))

    marked = zip(session.marked, rows, strict=True)
    return replace(
        session,
        sides=tuple(sides),
        views=now(session.views),
        past=tuple(map(now, session.past)),
        future=tuple(map(now, session.future)),
        marked=tuple(
            frozenset(map(known.get, marks)) - {None} for marks, known in marked
        ),
        hits=_hits(session.hits, sides, rows),
    )


def same_rows(old: Trace, new: Trace, rows: Iterable[int]) -> NewRows:
    """The rows of the other trace for these rows; those not found are left out."""
    wanted = {int(old.order[row]): row for row in set(rows) if row >= 0}
    orders = np.array(sorted(wanted), dtype=np.int64)
    found = np.flatnonzero(np.isin(new.order, orders)) if len(orders) else ()
    return {-1: -1, **{wanted[int(new.order[row])]: int(row) for row in found}}


def still_there(old: Trace, new: Trace, rows: Rows) -> Rows:
    """The rows of the other trace for these, in order of time, without those not
    found."""
    found = np.flatnonzero(np.isin(new.order, old.order[rows]))
    return found[np.argsort(new.start[found], kind="stable")]


def _used(session: ViewSession, index: int) -> Iterable[int]:
    """All rows of one side that a session refers to."""
    for views in (session.views, *session.past, *session.future):
        yield views[index].selected
    yield from session.marked[index]
    hits = session.hits
    if hits is not None and hits.side == index and hits.at >= 0:
        yield hits.row


def viewed_as(old: Side, new: Side, view: View, rows: NewRows) -> View:
    """A view of one side on another one: the same times, except that a window over the
    whole trace still shows all of it. `rows`: of the selected slice."""
    folds = {lane.key: fold for lane, fold in zip(old.lanes, view.folds, strict=True)}
    shift = old.origin - new.origin
    window = (view.begin + shift, view.end + shift)
    begin, end = (
        (None, None) if (view.begin, view.end) == (old.begin, old.end) else window
    )
    return replace(
        first_view(new, begin, end),
        selected=rows.get(view.selected, -1),
        folds=tuple(folds.get(lane.key, lane.first_fold) for lane in new.lanes),
        arranged=_arranged(old, new, view.arranged),
    )


def _arranged(old: Side, new: Side, before: Arrangement) -> Arrangement:
    """What a person hid or pinned is that still; the lanes that say little are others
    now."""
    numbers = {lane.key: n for n, lane in enumerate(new.lanes)}
    now = {
        n: numbers[lane.key] for n, lane in enumerate(old.lanes) if lane.key in numbers
    }
    by_hand = {now[n] for n in before.hidden - old.quiet if n in now}
    shown = {now[n] for n in old.quiet - before.hidden if n in now}
    pinned = tuple(now[n] for n in before.pinned if n in now)
    return replace(
        before, hidden=frozenset((new.quiet | by_hand) - shown), pinned=pinned
    )


def _hits(
    hits: Hits | None, sides: Sequence[Side], rows: Sequence[NewRows]
) -> Hits | None:
    """Repeats a search that is answered at once, because there may be more to find."""
    if hits is None or not hits.searched:
        return None
    side = sides[hits.side]
    try:
        if not (query := parse(hits.what)).is_quick:
            return None
        found = search(side.trace, texts_of(side.trace), query)
    except WrongQueryError:
        return None
    now = rows[hits.side].get(hits.row, -1) if hits.at >= 0 else -1
    at = next(iter(np.flatnonzero(found == now).tolist()), -1)
    return replace(hits, rows=found, at=at, by_args=NOTHING)
