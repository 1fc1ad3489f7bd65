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
from fusetui.report.diff_lines import PINNED, DiffLine, by_effect, closing, regions
from fusetui.text.figures import duration, microseconds
from fusetui.trace.model.arrays import Int32s
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import keep_result, memo
from fusetui.tui.layout.answer import Insight
from fusetui.tui.layout.frame import busy_of
from fusetui.tui.layout.kinds import shares
from fusetui.tui.layout.lanes import key_lanes
from fusetui.tui.layout.moves import select
from fusetui.tui.layout.view import Interval, Side, View, Views, first_view, make_sides
from fusetui.tui.state.session import NO_MARKS, ViewSession, viewed_as

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


def lines_of(diff: Diff) -> DiffLines:
    """The rows, the largest change first; what else the sum has is pinned. A compiled
    part of the program with many rows is one line, which can be opened."""
    compiled, others = regions(diff)
    region_lines = [region.line for region in compiled]
    listed = tuple(by_effect([*others, *region_lines]))
    inner = {}
    for region in compiled:
        inner[listed.index(region.line)] = _indented(by_effect(region.inner))
    closing_lines = closing(diff)
    return DiffLines(
        diff=diff,
        lines=listed,
        pinned=tuple(closing_lines),
        closing=tuple(_joined(closing_lines)),
        inner=inner,
    )


def _indented(lines: Iterable[DiffLine]) -> tuple[DiffLine, ...]:
    """Lines that are inside another one."""
    return tuple(replace(line, what=f"  {line.what}") for line in lines)


def _joined(closing_lines: Sequence[DiffLine]) -> Iterator[DiffLine]:
    """The lines that close the sum; those that say how work crosses the boundaries of a
    step as one."""
    of_borders = [line for line in closing_lines if line.kind not in PINNED]
    for line in closing_lines:
        if line.kind in PINNED or len(of_borders) == 1:
            yield line
        elif line is of_borders[0]:
            yield _boundary_line(of_borders)


def _boundary_line(lines: Sequence[DiffLine]) -> DiffLine:
    """One line with the changes of several, and their sum."""
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
        """The lines of the list, those inside open ones included."""
        return tuple(shown.line for shown in self._shown)

    @cached_property
    def _shown(self) -> list[ShownLine]:
        """The lines of the list, each with its place in `found`."""
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
        """The line at `index` opened, or closed, and where it is then; an inner line
        closes the outer one."""
        if self.found is None or not 0 <= index < len(self._shown):
            return self, index
        place = self._shown[index].place
        if place not in self.found.inner:
            return self, index
        now = replace(self, opened=self.opened ^ {place})
        places = [shown.place for shown in now._shown]
        return now, places.index(place)

    def beside(self, views: Sequence[View]) -> Comparison:
        """The windows of the session; the selections are kept."""
        windows = [(view.begin, view.end) for view in views]
        return replace(self, views=_windowed(self.views, windows))

    def at(self, index: int) -> Comparison:
        """Marks the work of one line; both windows move together to keep the first row
        in sight."""
        if not self.lines:
            return self
        drawn: list[list[int]] = []  # of each side, the rows of the line in its lanes
        pair = pair_of(self.lines[index])
        for side, rows in zip(self.sides, pair, strict=True):
            drawn.append([row for row in rows if side.lane_of(row) >= 0])
        views = [
            select(side, view, rows[0] if rows else -1)
            for side, view, rows in zip(self.sides, self.views, drawn, strict=True)
        ]
        moved_side = 0 if drawn[0] else 1
        shift = views[moved_side].begin - self.views[moved_side].begin
        windows = [(view.begin + shift, view.end + shift) for view in self.views]
        marked = tuple(frozenset(rows) for rows in drawn)
        return replace(self, views=_windowed(views, windows), marked=marked)


class ShownLine(NamedTuple):
    """A line of the list, and the place among all lines of the comparison that it has,
    or that the line has that it is inside of."""

    line: DiffLine
    place: int


def _windowed(views: Sequence[View], windows: Sequence[Interval]) -> Views:
    """The views with other windows."""
    moved = []
    for view, (begin, end) in zip(views, windows, strict=True):
        moved.append(replace(view, begin=begin, end=end))
    return tuple(moved)


def comparing(sides: Sequence[Side], views: Sequence[View]) -> Comparison:
    """Both sides with the lanes that matter; the diff is not known yet."""
    compared_sides = []
    compared_views = []
    for side, view in zip(sides, views, strict=True):
        of_key_lanes = replace(side, lanes=key_lanes(side.lanes), counters=())
        compared_sides.append(of_key_lanes)
        compared_views.append(first_view(of_key_lanes, view.begin, view.end))
    return Comparison(
        sides=tuple(compared_sides),
        views=tuple(compared_views),
        marked=NO_MARKS * len(sides),
    )


def pair_of(line: DiffLine) -> tuple[Sequence[int], Sequence[int]]:
    """The rows of both traces that a line is about."""
    a_rows = [row for diff_row in line.rows for row in diff_row.a_rows]
    b_rows = [row for diff_row in line.rows for row in diff_row.b_rows]
    return a_rows, b_rows


REPLAYED = "replayed"


class Second(msgspec.Struct, frozen=True, eq=False, dict=True):
    """`side` shows what a replay predicts of `recorded`; `said` is the prediction in a
    sentence."""

    recorded: Trace
    side: Side
    found: Predicted
    place: (
        Int32s  # the row of the replay of each recorded row: Predicted.predicted_rows
    )
    said: str

    @memo(4)
    def seen(self, side: Side, view: View) -> tuple[Side, View]:
        """The same lanes, folded alike, and the same slice selected; and the step that
        begins in the first half of the window begins where the recorded one does."""
        begin = view.begin + side.origin
        middle = begin + view.span // 2
        earlier_ns = self.found.step_earlier_ns(begin, middle)
        replayed = replace(self.side, origin=side.origin - earlier_ns)
        selected = int(self.place[view.selected])
        moved = viewed_as(side, replayed, view, {view.selected: selected})
        return replayed, replace(moved, begin=view.begin, end=view.end)

    def figure(self, row: int) -> str:
        """How long a recorded row takes in the replay: `replayed: 12 us`; `not
        replayed` for a row that is not there."""
        replayed_row = int(self.place[row])
        if replayed_row < 0:
            return f"not {REPLAYED}"
        return f"{REPLAYED}: {duration(int(self.side.trace.dur[replayed_row]))}"


def second_of(
    recorded: Trace, made: tuple[Predicted, tuple[IdleTime, ...]], said: str
) -> Second:
    """The timeline of a replay, with the idle time of each device. All that drawing
    needs is made here, not in the thread that draws."""
    predicted, idle = made
    trace = predicted.trace_of(recorded)
    (side,) = make_sides([trace], [REPLAYED])
    for lane in side.lanes:
        lane.prepare()
    shares(trace)
    keep_result(trace, busy_of, replace(busy_of(trace), label=REPLAYED))
    return Second(
        recorded=recorded,
        side=replace(side, insight=Insight(idle)),
        found=predicted,
        place=predicted.predicted_rows(recorded),
        said=said,
    )
