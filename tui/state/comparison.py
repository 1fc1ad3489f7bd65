"""Two timelines side by side: the rows of a diff, with the same work in both windows,
or the replay of a change below the recording."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from fusetui.analysis.diff.model import Diff
from fusetui.analysis.why.idle_time import IdleTime
from fusetui.report.diff_lines import PINNED, DiffLine, closing, regions, sort_by_effect
from fusetui.text.figures import duration, microseconds
from fusetui.trace.model.arrays import NO_ROW, Int32s
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import keep_result, memo
from fusetui.tui.layout.answer import Insight
from fusetui.tui.layout.frame import find_busy_times
from fusetui.tui.layout.kinds import compute_kind_shares
from fusetui.tui.layout.lanes import select_key_lanes
from fusetui.tui.layout.moves import select
from fusetui.tui.layout.view import (
    Interval,
    Side,
    View,
    Views,
    make_first_view,
    make_sides,
)
from fusetui.tui.state.session import NO_MARKS, ViewSession, carry_view

if TYPE_CHECKING:
    from fusetui.analysis.replay.predicted import Predicted


class DiffLines(msgspec.Struct, frozen=True, eq=False):
    """What the comparison of two traces found, and the lines that say it; those
    `pinned` close the sum and are always in sight: each, or where there is little room,
    the few `closing`."""

    diff: Diff
    lines: tuple[DiffLine, ...]
    pinned: tuple[DiffLine, ...]
    closing: tuple[DiffLine, ...]
    inner: Mapping[int, tuple[DiffLine, ...]]  # of lines that open, by their place


def make_diff_lines(diff: Diff) -> DiffLines:
    """Return the lines of the diff page, the largest change first.

    A compiled region of the program with many rows becomes one line that can be opened.
    Lines that close the sum are pinned: they stay in sight.
    """
    compiled, other_lines = regions(diff)
    region_lines = [region.line for region in compiled]
    listed = tuple(sort_by_effect([*other_lines, *region_lines]))
    inner_lines = {}
    for region in compiled:
        inner_lines[listed.index(region.line)] = _indent_lines(
            sort_by_effect(region.inner)
        )
    closing_lines = closing(diff)
    return DiffLines(
        diff=diff,
        lines=listed,
        pinned=tuple(closing_lines),
        closing=tuple(_join_boundary_lines(closing_lines)),
        inner=inner_lines,
    )


def _indent_lines(lines: Iterable[DiffLine]) -> tuple[DiffLine, ...]:
    """Return lines as they stand inside an opened line: with an indent."""
    return tuple(replace(line, what=f"  {line.what}") for line in lines)


def _join_boundary_lines(closing_lines: Sequence[DiffLine]) -> Iterator[DiffLine]:
    """Yield the lines that close the sum of a diff. Those about work that crosses the
    boundaries of a step are joined into one if there are several."""
    boundary_lines = [line for line in closing_lines if line.kind not in PINNED]
    for line in closing_lines:
        if line.kind in PINNED or len(boundary_lines) == 1:
            yield line
        elif line is boundary_lines[0]:
            yield _sum_boundary_lines(boundary_lines)


def _sum_boundary_lines(lines: Sequence[DiffLine]) -> DiffLine:
    """Return one line that names the changes of several lines and has their sum."""
    changes = []
    for line in lines:
        changes.append(f"{line.kind} {microseconds(line.change_ns, signed=True)}")
    total_ns = sum(line.change_ns for line in lines)
    return DiffLine("", "boundary", None, None, total_ns, "   ".join(changes))


class Comparison(ViewSession, frozen=True, eq=False, dict=True):
    """`sides` have the lanes that a comparison needs, and `views` the windows of the
    page."""

    found: DiffLines | None = None  # None: still being computed
    opened: frozenset[int] = frozenset()  # lines of `found` whose inner lines are shown

    @cached_property
    def lines(self) -> tuple[DiffLine, ...]:
        """Lines of the list, including those inside opened lines."""
        return tuple(shown.line for shown in self._shown)

    @cached_property
    def _shown(self) -> list[ShownLine]:
        """Lines of the list, each with the place of its outer line in `found`."""
        if self.found is None:
            return []
        shown = []
        for place, outer in enumerate(self.found.lines):
            shown.append(ShownLine(outer, place))
            if place in self.opened:
                for line in self.found.inner[place]:
                    shown.append(ShownLine(line, place))
        return shown

    def turned(self, index: int) -> tuple[Comparison, int]:
        """Return the comparison with the line at `index` opened or closed, and the
        index of that line afterwards. On an inner line, the outer one is closed."""
        if self.found is None or not 0 <= index < len(self._shown):
            return self, index
        place = self._shown[index].place
        if place not in self.found.inner:
            return self, index
        turned_comparison = replace(self, opened=self.opened ^ {place})
        places = [shown.place for shown in turned_comparison._shown]
        return turned_comparison, places.index(place)

    def inner_of(self, index: int) -> tuple[DiffLine, ...]:
        """Return the lines inside the line at `index`, whether it is open or not. There
        are none for a line that cannot be opened."""
        if self.found is None or not 0 <= index < len(self._shown):
            return ()
        shown = self._shown[index]
        is_outer = shown.line is self.found.lines[shown.place]
        return self.found.inner.get(shown.place, ()) if is_outer else ()

    def beside(self, views: Sequence[View]) -> Comparison:
        """Return the comparison with the windows of these views. Selections stay."""
        windows = [(view.begin, view.end) for view in views]
        return replace(self, views=_replace_windows(self.views, windows))

    def at(self, index: int) -> Comparison:
        """Return the comparison with the work of line `index` marked in both timelines.
        Both windows move together, so that its first row is in sight."""
        if not self.lines:
            return self
        a_rows, b_rows = find_rows_of_line(self.lines[index])
        side_a, side_b = self.sides
        view_a, view_b = self.views
        drawn_a = _keep_rows_with_lane(side_a, a_rows)
        drawn_b = _keep_rows_with_lane(side_b, b_rows)
        selected_a = _select_first(side_a, view_a, drawn_a)
        selected_b = _select_first(side_b, view_b, drawn_b)
        if drawn_a:
            shift_ns = selected_a.begin - view_a.begin
        else:
            shift_ns = selected_b.begin - view_b.begin
        windows = [(view.begin + shift_ns, view.end + shift_ns) for view in self.views]
        return replace(
            self,
            views=_replace_windows((selected_a, selected_b), windows),
            marked=(frozenset(drawn_a), frozenset(drawn_b)),
        )


def _keep_rows_with_lane(side: Side, rows: Sequence[int]) -> list[int]:
    """Return those of the rows that a lane of the side shows."""
    return [row for row in rows if side.lane_of(row) >= 0]


def _select_first(side: Side, view: View, rows: Sequence[int]) -> View:
    """Return the view with the first of these rows selected and in sight. Without rows
    nothing is selected."""
    return select(side, view, rows[0] if rows else NO_ROW)


class ShownLine(NamedTuple):
    """A line of the list, and the place among all lines of the comparison that it has,
    or that the line has that it is inside of."""

    line: DiffLine
    place: int


def _replace_windows(views: Sequence[View], windows: Sequence[Interval]) -> Views:
    """Return the views with other windows, one [begin, end) for each view."""
    moved = []
    for view, (begin, end) in zip(views, windows, strict=True):
        moved.append(replace(view, begin=begin, end=end))
    return tuple(moved)


def start_comparison(sides: Sequence[Side], views: Sequence[View]) -> Comparison:
    """Return a comparison of both sides, with only the lanes that matter in it. Its
    diff is not known yet."""
    compared_sides = []
    compared_views = []
    for side, view in zip(sides, views, strict=True):
        of_key_lanes = replace(side, lanes=select_key_lanes(side.lanes), counters=())
        compared_sides.append(of_key_lanes)
        compared_views.append(make_first_view(of_key_lanes, view.begin, view.end))
    return Comparison(
        sides=tuple(compared_sides),
        views=tuple(compared_views),
        marked=NO_MARKS * len(sides),
    )


def find_rows_of_line(line: DiffLine) -> tuple[Sequence[int], Sequence[int]]:
    """Return the rows of trace A and of trace B that a line of the diff is about."""
    a_rows: list[int] = []
    b_rows: list[int] = []
    for diff_row in line.rows:
        a_rows += diff_row.a_rows
        b_rows += diff_row.b_rows
    return a_rows, b_rows


REPLAYED = "replayed"


class Second(msgspec.Struct, frozen=True, eq=False, dict=True):
    """`side` shows what a replay predicts of `recorded`; `said` is the prediction in a
    sentence."""

    recorded: Trace
    side: Side
    found: Predicted
    place: Int32s  # the row of the replay of each recorded row: Predicted.find_predicted_rows
    said: str

    @memo(4)
    def seen(self, side: Side, view: View) -> tuple[Side, View]:
        """Return the replayed side and its view as the timeline shows them beside the
        recorded side.

        Lanes, folds and selection are the same. The step that begins in the first half
        of the window begins at the same place in both.
        """
        begin = view.begin + side.origin
        middle = begin + view.span // 2
        earlier_ns = self.found.measure_step_shift_ns(begin, middle)
        replayed = replace(self.side, origin=side.origin - earlier_ns)
        selected = int(self.place[view.selected])
        moved = carry_view(side, replayed, view, {view.selected: selected})
        return replayed, replace(moved, begin=view.begin, end=view.end)

    def figure(self, row: int) -> str:
        """Return how long a recorded slice takes in the replay, such as `replayed: 12
        us`. A slice that the replay lacks gives `not replayed`."""
        replayed_row = int(self.place[row])
        if replayed_row == NO_ROW:
            return f"not {REPLAYED}"
        return f"{REPLAYED}: {duration(int(self.side.trace.dur[replayed_row]))}"


def make_second_timeline(
    recorded: Trace, made: tuple[Predicted, tuple[IdleTime, ...]], said: str
) -> Second:
    """Return the timeline of a replay with the idle time of each device.

    All that drawing needs is computed here, because this runs beside the thread that
    draws.
    """
    predicted, idle_of_devices = made
    trace = predicted.make_trace(recorded)
    (side,) = make_sides([trace], [REPLAYED])
    for lane in side.lanes:
        lane.prepare()
    compute_kind_shares(trace)
    keep_result(trace, find_busy_times, replace(find_busy_times(trace), label=REPLAYED))
    return Second(
        recorded=recorded,
        side=replace(side, insight=Insight(idle_of_devices)),
        found=predicted,
        place=predicted.find_predicted_rows(recorded),
        said=said,
    )
