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
from fusetui.analysis.questions.search import collect_name_texts, search
from fusetui.trace.model.arrays import NO_ROW, Rows
from fusetui.trace.model.columns import Trace
from fusetui.tui.layout.lanes import Arrangement
from fusetui.tui.layout.moves import over, select
from fusetui.tui.layout.places import fit_folds
from fusetui.tui.layout.search_hits import NO_ROWS
from fusetui.tui.layout.view import (
    Side,
    View,
    Views,
    align_sides,
    find_selected_times,
    make_first_view,
    make_first_views,
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
        """Return the row of the slice that was selected when the mark was set, in this
        trace; -1 for none."""
        return _find_index(trace.order, self.order)


class Range(msgspec.Struct, frozen=True):
    """[begin, end) on one side, in ns of the file; `ended` after the second press."""

    side: int
    begin: int
    end: int
    ended: bool = False


def extend_range(before: Range | None, index: int, side: Side, view: View) -> Range:
    """Return the range of time after one press of its key.

    The first press starts a range at the selection (or the window), the second ends it
    there. A third press, or one on another side, starts a new range.
    """
    interval = find_selected_times(side, view) or (view.begin, view.end)
    begin_ns = interval[0] + side.origin
    end_ns = interval[1] + side.origin
    if before is None or before.ended or before.side != index:
        return Range(index, begin_ns, end_ns)
    return Range(
        side=index,
        begin=min(before.begin, begin_ns),
        end=max(before.end, end_ns),
        ended=True,
    )


def _find_region(index: int, side: Side, rows: Sequence[int]) -> Range | None:
    """Return the time from the first start to the last end of some rows of side
    `index`; None without rows."""
    if not rows:
        return None
    trace = side.trace
    row_array = np.array(rows)
    begin_ns = int(trace.start[row_array].min())
    end_ns = int(trace.end[row_array].max())
    return Range(index, begin_ns, end_ns, ended=True)


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
        """Row of the hit that is shown. Only valid where `at` is not -1."""
        return int(self.rows[self.at])

    def step(self, by: int) -> Hits:
        """Return the hits with the one shown that is `by` further; the first follows
        the last."""
        if not len(self.rows):
            return self
        return replace(self, at=(self.at + by) % len(self.rows))

    def nearest(self, trace: Trace, time: int) -> Hits:
        """Return the hits with the one shown that begins at or after `time` (ns of the
        file), else the first."""
        at = int(np.searchsorted(trace.start[self.rows], time, side="left"))
        return replace(self, at=at % len(self.rows))

    def among(self, rows: Rows, by_args: Rows) -> Hits:
        """Return a longer list of hits with the same hit shown. `by_args` are the rows
        in it that match by their args alone."""
        at = _find_index(rows, self.row) if self.at >= 0 else -1
        return replace(self, rows=rows, at=at, by_args=by_args)

    def is_by_args(self, row: int) -> bool:
        """Return whether the hit in `row` matches by its args alone, not by its name."""
        place = int(np.searchsorted(self.by_args, row))
        if place == len(self.by_args):
            return False
        return int(self.by_args[place]) == row


def _find_index(rows: Rows, row: int) -> int:
    """Return the index of `row` in `rows`; -1 if it is not there."""
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
        """Return the session with other views. This can be undone."""
        if views == self.views:
            return self
        past = (*self.past, self.views)
        return replace(self, views=views, past=past[-MAX_UNDO:], future=())

    def moved(self, index: int, view: View) -> ViewSession:
        """Return the session with another view of side `index`. If the sides move
        together, the other side moves and zooms by as much."""
        view_before = self.views[index]
        is_same_window = view_before.begin == view.begin and view_before.end == view.end
        views = list(self.views)
        if self.together and not is_same_window:
            shift_ns = view.begin - view_before.begin
            for other, other_view in enumerate(self.views):
                begin = other_view.begin + shift_ns
                views[other] = replace(other_view, begin=begin, end=begin + view.span)
        views[index] = view
        return self.go(tuple(views))

    def windowed(self, index: int, begin: int, end: int, **fields: Any) -> ViewSession:
        """Return the session with side `index` showing the window [begin, end) in ns of
        the side, and other fields of its view."""
        view = replace(self.views[index], begin=begin, end=end, **fields)
        return self.moved(index, view)

    def selected(self, index: int, row: int) -> ViewSession:
        """Return the session with a row of side `index` selected."""
        return self.moved(index, select(self.sides[index], self.views[index], row))

    def undo(self) -> ViewSession:
        """Return the session before the last movement. If that was a reset, its marks
        come back too."""
        if not self.past:
            return self
        *past, views = self.past
        future = (self.views, *self.future)
        undone_session = replace(self, views=views, past=tuple(past), future=future)
        if self.removed and self.views == self.removed_at:
            bookmarks = {**self.removed, **self.bookmarks}
            return replace(
                undone_session, bookmarks=bookmarks, removed={}, removed_at=()
            )
        return undone_session

    def reset(self, views: Views) -> ViewSession:
        """Return the session with these views and no marks, range or marked rows. It is
        one movement, which undo takes back with the marks."""
        past = (*self.past, self.views)
        reset_session = replace(
            self,
            views=views,
            past=past[-MAX_UNDO:],
            future=(),
            marked=NO_MARKS * len(self.sides),
            time_range=None,
            bookmarks={},
        )
        if not self.bookmarks:
            return reset_session
        return replace(reset_session, removed=self.bookmarks, removed_at=views)

    def redo(self) -> ViewSession:
        """Return the session with the views that were undone last."""
        if not self.future:
            return self
        views, *future = self.future
        past = (*self.past, self.views)
        return replace(self, views=views, past=past, future=tuple(future))

    def cleared(self) -> ViewSession:
        """Return the session without its range of time. If it has none, nothing is
        selected or marked in it."""
        if self.time_range:
            return replace(self, time_range=None)
        views = tuple(replace(view, selected=-1, gap=None) for view in self.views)
        return replace(self.go(views), marked=NO_MARKS * len(self.sides))

    def paired(self, pair: Sequence[Sequence[int]]) -> ViewSession:
        """Return the session with these rows of both sides marked, and the first row of
        each side selected and in sight. This is one movement.

        If the sides move together, the second side moves as far as the first. It moves
        alone only where its row would else be out of sight.
        """
        views: list[View] = []
        shift_ns = 0  # how far the first side moved
        for side, view, rows in zip(self.sides, self.views, pair, strict=True):
            begin = view.begin + shift_ns
            shifted = replace(view, begin=begin, end=begin + view.span)
            shown = select(side, shifted, rows[0]) if rows else shifted
            if not views and self.together:
                shift_ns = shown.begin - view.begin
            views.append(shown)
        marked = tuple(frozenset(rows) for rows in pair)
        return replace(self.go(tuple(views)), marked=marked)

    def paired_regions(self, pair: Sequence[Sequence[int]]) -> ViewSession:
        """Return the session with these rows of both sides marked, and windows that
        show all of them. Nothing is selected.

        Both windows have the same length, because the sides have one scale. On the
        first side with any of the rows, the time from the first of them to the last is
        the range.
        """
        regions: list[Range] = []  # of the sides that have any of the rows
        for index, (side, rows) in enumerate(zip(self.sides, pair, strict=True)):
            region = _find_region(index, side, rows)
            if region is not None:
                regions.append(region)
        if not regions:
            return self
        longest_ns = max(region.end - region.begin for region in regions)
        views = [replace(view, selected=-1, gap=None) for view in self.views]
        for region in regions:
            side = self.sides[region.side]
            begin = region.begin - side.origin
            end = begin + longest_ns
            views[region.side] = over(side, views[region.side], begin, end)
        # a short trace limits the length of its window: see moves.over
        span = max(view.span for view in views)
        on_one_scale = [replace(view, end=view.begin + span) for view in views]
        marked = tuple(frozenset(rows) for rows in pair)
        session = self.go(tuple(on_one_scale))
        return replace(session, marked=marked, time_range=regions[0])

    def with_bookmark(self, letter: str, index: int, note: str = "") -> ViewSession:
        """Return the session with a mark, under this letter, of the window and
        selection of side `index`."""
        side = self.sides[index]
        view = self.views[index]
        order = -1
        if view.has_selection:
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
        """Return the session with the window and selection of a mark. Folds of lanes
        stay."""
        mark = self.bookmarks[letter]
        side = self.sides[mark.side]
        return self.windowed(
            mark.side,
            begin=mark.begin - side.origin,
            end=mark.end - side.origin,
            selected=mark.selected_in(side.trace),
        )

    def ranged(self, index: int) -> ViewSession:
        """Return the session with a range of time started or ended at the selection of
        side `index`."""
        side = self.sides[index]
        view = self.views[index]
        return replace(
            self, time_range=extend_range(self.time_range, index, side, view)
        )

    def interval(self, index: int) -> tuple[int, int] | None:
        """Return the range as [begin, end) in ns of side `index`; None where this side
        has no range. A range that has not ended reaches to the selection."""
        time_range = self.time_range
        if time_range is None or time_range.side != index:
            return None
        side = self.sides[index]
        view = self.views[index]
        if not time_range.ended and find_selected_times(side, view):
            time_range = extend_range(time_range, index, side, view)
        return time_range.begin - side.origin, time_range.end - side.origin

    def known(self, trace: Trace, **fields: Any) -> Self:
        """Return the session with new fields on the side that shows `trace`, such as
        its counters. It is unchanged where no side shows it."""
        if not any(side.trace is trace for side in self.sides):
            return self
        sides = []
        for side in self.sides:
            is_known = side.trace is trace
            sides.append(replace(side, **fields) if is_known else side)
        return replace(self, sides=tuple(sides))

    def refitted(self, index: int, lines: int) -> ViewSession:
        """Return the session with the lanes of side `index` folded to fit on `lines`
        lines.

        The folds are those of a new view of the whole side. The window and selection
        stay, and this cannot be undone.
        """
        side = self.sides[index]
        view = self.views[index]
        whole_view = replace(make_first_view(side), arranged=view.arranged)
        folds = fit_folds(side, whole_view, lines).folds
        views = list(self.views)
        views[index] = replace(view, folds=folds)
        return replace(self, views=tuple(views))

    def swapped(self) -> ViewSession:
        """Return the session with sides A and B exchanged, also in marks and range. It
        has nothing to undo and no hits."""
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
        """Return the session with both sides counting time from the steps that a diff
        compares. Both show their first views; folds and order of lanes stay."""
        sides = align_sides(self.sides, diff)
        views = []
        for first, before in zip(make_first_views(sides), self.views, strict=True):
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
    """Return a new session with the first view of each side. Lanes are folded to fit on
    `lines` lines."""
    views = []
    for side, view in zip(sides, make_first_views(sides), strict=True):
        views.append(fit_folds(side, view, lines))
    return ViewSession(sides, tuple(views), NO_MARKS * len(sides))


NewRows = Mapping[int, int]  # the new row of a row of the earlier trace; -1 stays -1


def carry_session(session: ViewSession, sides: Sequence[Side]) -> ViewSession:
    """Return the session on other sides, which show the same traces and more of them.

    Views, undo history, marks and hits are carried over. Rows are found again by their
    order in the file.
    """
    new_rows: list[NewRows] = []  # of each side
    for index, (old, new) in enumerate(zip(session.sides, sides, strict=True)):
        rows = _list_used_rows(session, index)
        new_rows.append(find_same_rows(old.trace, new.trace, rows))

    def carried(views: Views) -> Views:
        """The views of both sides on the other sides; () for none."""
        carried_views = []
        for index, view in enumerate(views):
            old_side = session.sides[index]
            new_side = sides[index]
            carried_views.append(carry_view(old_side, new_side, view, new_rows[index]))
        return tuple(carried_views)

    return replace(
        session,
        sides=tuple(sides),
        views=carried(session.views),
        past=tuple(carried(views) for views in session.past),
        future=tuple(carried(views) for views in session.future),
        removed_at=carried(session.removed_at),
        marked=tuple(map(_carry_marks, session.marked, new_rows)),
        hits=_repeat_search(session.hits, sides, new_rows),
    )


def _carry_marks(marks: frozenset[int], rows: NewRows) -> frozenset[int]:
    """Return the marked rows of one side as rows of another. Rows that were not found
    are left out."""
    return frozenset(rows[row] for row in marks if row in rows)


def find_same_rows(old: Trace, new: Trace, rows: Iterable[int]) -> NewRows:
    """Return a mapping from rows of one trace to rows of another with the same events.
    Rows that are not found are left out; -1 maps to -1."""
    row_of_order = {int(old.order[row]): row for row in set(rows) if row != NO_ROW}
    new_rows = {-1: -1}
    if not row_of_order:
        return new_rows
    orders = np.array(sorted(row_of_order), dtype=np.int64)
    for row in np.flatnonzero(np.isin(new.order, orders)).tolist():
        new_rows[row_of_order[int(new.order[row])]] = row
    return new_rows


def keep_found_rows(old: Trace, new: Trace, rows: Rows) -> Rows:
    """Return the rows of the new trace that have the same events as `rows` of the old
    one, in order of time."""
    new_rows = np.flatnonzero(np.isin(new.order, old.order[rows]))
    return new_rows[np.argsort(new.start[new_rows], kind="stable")]


def _list_used_rows(session: ViewSession, index: int) -> Iterable[int]:
    """Yield all rows of side `index` that a session refers to: selections of all views,
    marked rows, and the hit that is shown."""
    for views in (session.views, *session.past, *session.future):
        yield views[index].selected
    yield from session.marked[index]
    hits = session.hits
    if hits is not None and hits.side == index and hits.at >= 0:
        yield hits.row


def carry_view(old: Side, new: Side, view: View, rows: NewRows) -> View:
    """Return a view of one side as a view of another, with the same times, folds and
    selection.

    A view of the whole trace shows the whole of the other one. `rows` maps the selected
    row to its new one.
    """
    if view.begin == old.begin and view.end == old.end:
        new_view = make_first_view(new)
    else:
        shift_ns = old.origin - new.origin
        new_view = make_first_view(new, view.begin + shift_ns, view.end + shift_ns)
    fold_of_lane = {}
    for lane, fold in zip(old.lanes, view.folds, strict=True):
        fold_of_lane[lane.key] = fold
    folds = [fold_of_lane.get(lane.key, lane.first_fold) for lane in new.lanes]
    return replace(
        new_view,
        selected=rows.get(view.selected, -1),
        folds=tuple(folds),
        arranged=_carry_arrangement(old, new, view.arranged),
    )


def _carry_arrangement(old: Side, new: Side, before: Arrangement) -> Arrangement:
    """Return the arrangement of lanes on another side. What the user hid, showed or
    pinned stays so; lanes hidden because they say little are found anew."""
    index_of_key = {lane.key: index for index, lane in enumerate(new.lanes)}

    def carried_lanes(lanes: Iterable[int]) -> list[int]:
        """The same lanes of the other side, without those that it does not have."""
        keys = [old.lanes[lane].key for lane in lanes]
        return [index_of_key[key] for key in keys if key in index_of_key]

    hidden_by_hand = carried_lanes(before.hidden - old.quiet)
    shown_by_hand = carried_lanes(old.quiet - before.hidden)
    hidden = new.quiet.union(hidden_by_hand).difference(shown_by_hand)
    return replace(before, hidden=hidden, pinned=tuple(carried_lanes(before.pinned)))


def _repeat_search(
    hits: Hits | None, sides: Sequence[Side], rows: Sequence[NewRows]
) -> Hits | None:
    """Return the hits of the same search on longer traces, because there may be more to
    find.

    It is None for hits that were chosen in a table, and for a search that has to run in
    a thread. `rows` maps old rows of each side to new ones.
    """
    if hits is None or not hits.searched:
        return None
    trace = sides[hits.side].trace
    try:
        query = parse(hits.what)
        if not query.needs_only_names:
            return None
        found_rows = search(trace, collect_name_texts(trace), query)
    except WrongQueryError:
        return None
    index_of_shown = -1
    is_any_shown = hits.at >= 0
    if is_any_shown:
        row_of_shown = rows[hits.side].get(hits.row, NO_ROW)
        index_of_shown = _find_index(found_rows, row_of_shown)
    return replace(hits, rows=found_rows, at=index_of_shown, by_args=NO_ROWS)
