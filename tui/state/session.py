"""The state of the app without any widget, and every transition as a pure function."""

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
from fusetui.tui.layout.search_hits import NO_ROWS
from fusetui.tui.layout.view import (
    Side,
    View,
    Views,
    aligned,
    first_view,
    first_views,
    held,
)

MAX_UNDO = 200  # views that undo keeps
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

    def selected_in(self, trace: Trace) -> int:
        """The row of the slice that was selected in the trace of the side; -1 for
        none."""
        return _index_of(trace.order, self.order)


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
    interval = held(side, view) or (view.begin, view.end)
    begin = interval[0] + side.origin
    end = interval[1] + side.origin
    if before is None or before.ended or before.side != index:
        return Range(index, begin, end)
    return Range(
        side=index,
        begin=min(before.begin, begin),
        end=max(before.end, end),
        ended=True,
    )


class Hits(msgspec.Struct, frozen=True, eq=False):
    """Rows found by a search or a table, in order of time, and which of them is
    shown."""

    what: str
    side: int
    rows: Rows
    at: int = -1
    searched: bool = False  # else chosen in a table
    by_args: Rows = NO_ROWS  # those of which only the args say it, in order of rows
    is_of_name: bool = False  # all slices of one name

    @property
    def row(self) -> int:
        """The row that is shown. Only where `at` is not -1."""
        return int(self.rows[self.at])

    def step(self, by: int) -> Hits:
        """So many hits further; the first follows the last."""
        if not len(self.rows):
            return self
        return replace(self, at=(self.at + by) % len(self.rows))

    def nearest(self, trace: Trace, time: int) -> Hits:
        """The first hit at or after a time (ns of the file), else the first."""
        at = int(np.searchsorted(trace.start[self.rows], time, side="left"))
        return replace(self, at=at % len(self.rows))

    def among(self, rows: Rows, by_args: Rows) -> Hits:
        """The same hit among more of them; see SearchHits."""
        at = _index_of(rows, self.row) if self.at >= 0 else -1
        return replace(self, rows=rows, at=at, by_args=by_args)

    def is_by_args(self, row: int) -> bool:
        """Whether no name says it, but the args of this hit do."""
        at = int(np.searchsorted(self.by_args, row))
        if at == len(self.by_args):
            return False
        return int(self.by_args[at]) == row


def _index_of(rows: Rows, row: int) -> int:
    """The index of a row among some; -1 for none."""
    same = np.flatnonzero(rows == row)
    return int(same[0]) if len(same) else -1


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
    removed: Mapping[str, Bookmark] = {}  # marks that a reset took away
    removed_at: Views = ()  # the views since then: undo from there brings them back

    def go(self, views: Views) -> ViewSession:
        """Other views; the movement can be undone."""
        if views == self.views:
            return self
        past = (*self.past, self.views)
        return replace(self, views=views, past=past[-MAX_UNDO:], future=())

    def moved(self, index: int, view: View) -> ViewSession:
        """One view changed; if the sides move together, the other moves and zooms by as
        much."""
        before = self.views[index]
        is_same_window = before.begin == view.begin and before.end == view.end
        views = list(self.views)
        if self.together and not is_same_window:
            shift = view.begin - before.begin
            for other, other_view in enumerate(self.views):
                begin = other_view.begin + shift
                views[other] = replace(other_view, begin=begin, end=begin + view.span)
        views[index] = view
        return self.go(tuple(views))

    def windowed(self, index: int, begin: int, end: int, **fields: Any) -> ViewSession:
        """One side through another window, with other fields of its view."""
        view = replace(self.views[index], begin=begin, end=end, **fields)
        return self.moved(index, view)

    def selected(self, index: int, row: int) -> ViewSession:
        """A row of one side selected."""
        return self.moved(index, select(self.sides[index], self.views[index], row))

    def undo(self) -> ViewSession:
        """The views before the last movement, and the marks if that was a reset."""
        if not self.past:
            return self
        *past, views = self.past
        future = (self.views, *self.future)
        now = replace(self, views=views, past=tuple(past), future=future)
        if self.removed and self.views == self.removed_at:
            bookmarks = {**self.removed, **self.bookmarks}
            return replace(now, bookmarks=bookmarks, removed={}, removed_at=())
        return now

    def reset(self, views: Views) -> ViewSession:
        """Other views, no marks, no range and no marked rows: one movement, which undo
        takes back with the marks."""
        past = (*self.past, self.views)
        now = replace(
            self,
            views=views,
            past=past[-MAX_UNDO:],
            future=(),
            marked=NO_MARKS * len(self.sides),
            time_range=None,
            bookmarks={},
        )
        if not self.bookmarks:
            return now
        return replace(now, removed=self.bookmarks, removed_at=views)

    def redo(self) -> ViewSession:
        """The views that were undone last."""
        if not self.future:
            return self
        views, *future = self.future
        past = (*self.past, self.views)
        return replace(self, views=views, past=past, future=tuple(future))

    def cleared(self) -> ViewSession:
        """Without the range; if there is none, without any selection and marked
        rows."""
        if self.time_range:
            return replace(self, time_range=None)
        views = tuple(replace(view, selected=-1, gap=None) for view in self.views)
        return replace(self.go(views), marked=NO_MARKS * len(self.sides))

    def paired(self, pair: Sequence[Sequence[int]]) -> ViewSession:
        """Rows of both sides marked, and the first of each selected."""
        now = replace(self, marked=tuple(frozenset(rows) for rows in pair))
        for index, rows in enumerate(pair):
            if rows:
                now = now.selected(index, rows[0])
        return now

    def with_bookmark(self, letter: str, index: int, note: str = "") -> ViewSession:
        """A mark, by its letter, of what one side shows now."""
        side = self.sides[index]
        view = self.views[index]
        order = -1
        if view.selected >= 0:
            order = int(side.trace.order[view.selected])
        mark = Bookmark(
            begin=view.begin + side.origin,
            end=view.end + side.origin,
            order=order,
            note=note,
            side=index,
        )
        return replace(self, bookmarks={**self.bookmarks, letter: mark})

    def at_bookmark(self, letter: str) -> ViewSession:
        """The window and the selection of a mark; folds are kept."""
        mark = self.bookmarks[letter]
        side = self.sides[mark.side]
        return self.windowed(
            mark.side,
            begin=mark.begin - side.origin,
            end=mark.end - side.origin,
            selected=mark.selected_in(side.trace),
        )

    def ranged(self, index: int) -> ViewSession:
        """A range of time started or ended on one side, see `pressed`."""
        side = self.sides[index]
        view = self.views[index]
        return replace(self, time_range=pressed(self.time_range, index, side, view))

    def interval(self, index: int) -> tuple[int, int] | None:
        """The range as one side shows it; until it ends, it extends to the current
        position. None for a range of the other side."""
        time_range = self.time_range
        if time_range is None or time_range.side != index:
            return None
        side = self.sides[index]
        view = self.views[index]
        if not time_range.ended and held(side, view):
            time_range = pressed(time_range, index, side, view)
        return time_range.begin - side.origin, time_range.end - side.origin

    def known(self, trace: Trace, **fields: Any) -> Self:
        """More is known about a trace: fields of its side; itself where it is not
        shown."""
        if not any(side.trace is trace for side in self.sides):
            return self
        sides = []
        for side in self.sides:
            is_known = side.trace is trace
            sides.append(replace(side, **fields) if is_known else side)
        return replace(self, sides=tuple(sides))

    def refitted(self, index: int, lines: int) -> ViewSession:
        """The lanes of one side folded as a new view of the whole side would be on
        `lines` lines: unfolded as far as there is room. The window and the selection
        stay. This is no movement that can be undone."""
        side = self.sides[index]
        view = self.views[index]
        whole = replace(first_view(side), arranged=view.arranged)
        folds = fitted(side, whole, lines).folds
        views = list(self.views)
        views[index] = replace(view, folds=folds)
        return replace(self, views=tuple(views))

    def swapped(self) -> ViewSession:
        """A becomes B: a session of both sides without a past and without hits."""
        time_range = self.time_range
        if time_range is not None:
            time_range = replace(time_range, side=1 - time_range.side)
        bookmarks = {}
        for letter, mark in self.bookmarks.items():
            bookmarks[letter] = replace(mark, side=1 - mark.side)
        return ViewSession(
            sides=self.sides[::-1],
            views=self.views[::-1],
            marked=self.marked[::-1],
            together=self.together,
            bookmarks=bookmarks,
            time_range=time_range,
        )

    def realigned(self, diff: Diff) -> ViewSession:
        """Makes both sides count from the steps that the diff compares, with their first
        views; the folds and the arrangement of lanes stay."""
        sides = aligned(self.sides, diff)
        views = []
        for first, before in zip(first_views(sides), self.views, strict=True):
            view = replace(first, folds=before.folds, arranged=before.arranged)
            views.append(view)
        return replace(
            self,
            sides=sides,
            views=tuple(views),
            marked=NO_MARKS * len(sides),
            past=(),
            future=(),
            hits=None,
        )


def start(sides: tuple[Side, ...], lines: int) -> ViewSession:
    """The first views, nothing selected; `lines`: for the lanes of each side."""
    views = []
    for side, view in zip(sides, first_views(sides), strict=True):
        views.append(fitted(side, view, lines))
    return ViewSession(sides, tuple(views), NO_MARKS * len(sides))


NewRows = Mapping[int, int]  # the new row of a row of the earlier trace; -1 stays -1


def carried(session: ViewSession, sides: Sequence[Side]) -> ViewSession:
    """The session on other sides, which have all slices of its own sides."""
    new_rows: list[NewRows] = []  # of each side
    for index, (old, new) in enumerate(zip(session.sides, sides, strict=True)):
        rows = _used(session, index)
        new_rows.append(same_rows(old.trace, new.trace, rows))

    def carried_views(views: Views) -> Views:
        """The views of both sides on the other sides."""
        return tuple(map(viewed_as, session.sides, sides, views, new_rows))

    return replace(
        session,
        sides=tuple(sides),
        views=carried_views(session.views),
        past=tuple(map(carried_views, session.past)),
        future=tuple(map(carried_views, session.future)),
        removed_at=carried_views(session.removed_at) if session.removed_at else (),
        marked=tuple(map(_carried_marks, session.marked, new_rows)),
        hits=_carried_hits(session.hits, sides, new_rows),
    )


def _carried_marks(marks: frozenset[int], rows: NewRows) -> frozenset[int]:
    """The marked rows of a side on another side, without those not found."""
    return frozenset(rows[row] for row in marks if row in rows)


def same_rows(old: Trace, new: Trace, rows: Iterable[int]) -> NewRows:
    """The rows of the other trace for these rows; those not found are left out."""
    row_of_order = {int(old.order[row]): row for row in set(rows) if row >= 0}
    new_rows = {-1: -1}
    if not row_of_order:
        return new_rows
    orders = np.array(sorted(row_of_order), dtype=np.int64)
    for row in np.flatnonzero(np.isin(new.order, orders)).tolist():
        new_rows[row_of_order[int(new.order[row])]] = row
    return new_rows


def still_there(old: Trace, new: Trace, rows: Rows) -> Rows:
    """The rows of the other trace for these, in order of time, without those not
    found."""
    new_rows = np.flatnonzero(np.isin(new.order, old.order[rows]))
    return new_rows[np.argsort(new.start[new_rows], kind="stable")]


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
    if view.begin == old.begin and view.end == old.end:
        first = first_view(new)
    else:
        shift = old.origin - new.origin
        first = first_view(new, view.begin + shift, view.end + shift)
    fold_of_lane = {}
    for lane, fold in zip(old.lanes, view.folds, strict=True):
        fold_of_lane[lane.key] = fold
    folds = [fold_of_lane.get(lane.key, lane.first_fold) for lane in new.lanes]
    return replace(
        first,
        selected=rows.get(view.selected, -1),
        folds=tuple(folds),
        arranged=_arranged(old, new, view.arranged),
    )


def _arranged(old: Side, new: Side, before: Arrangement) -> Arrangement:
    """What a person hid or pinned is that still; the lanes that say little are others
    now."""
    index_of_key = {lane.key: index for index, lane in enumerate(new.lanes)}

    def carried_lanes(lanes: Iterable[int]) -> list[int]:
        """The same lanes of the other side, without those that it does not have."""
        keys = [old.lanes[lane].key for lane in lanes]
        return [index_of_key[key] for key in keys if key in index_of_key]

    hidden_by_hand = carried_lanes(before.hidden - old.quiet)
    shown_by_hand = carried_lanes(old.quiet - before.hidden)
    hidden = new.quiet.union(hidden_by_hand).difference(shown_by_hand)
    return replace(before, hidden=hidden, pinned=tuple(carried_lanes(before.pinned)))


def _carried_hits(
    hits: Hits | None, sides: Sequence[Side], rows: Sequence[NewRows]
) -> Hits | None:
    """Repeats a search that is answered at once, because there may be more to find."""
    if hits is None or not hits.searched:
        return None
    trace = sides[hits.side].trace
    try:
        query = parse(hits.what)
        if not query.is_quick:
            return None
        found = search(trace, texts_of(trace), query)
    except WrongQueryError:
        return None
    at = -1
    if hits.at >= 0:
        new_row = rows[hits.side].get(hits.row, -1)
        at = _index_of(found, new_row)
    return replace(hits, rows=found, at=at, by_args=NO_ROWS)
