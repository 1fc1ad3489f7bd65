"""Two timelines beside each other: the lines of a diff, with the work of one line in
both windows, and the replay of a change below the recorded one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

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
    compiled, rest = regions(diff)
    last = closing(diff)
    listed = tuple(by_effect([*rest, *(region.line for region in compiled)]))
    inner = {}
    for region in compiled:
        own = [replace(line, what=f"  {line.what}") for line in by_effect(region.inner)]
        inner[listed.index(region.line)] = tuple(own)
    return DiffLines(diff, listed, tuple(last), tuple(_joined(last)), inner)


def _joined(last: Sequence[DiffLine]) -> Iterator[DiffLine]:
    """The lines that close the sum, as one those that say how work crosses borders."""
    others = [line for line in last if line.kind not in PINNED]
    for line in last:
        if line.kind in PINNED or len(others) == 1:
            yield line
        elif line is others[0]:
            parts = (
                f"{one.kind} {microseconds(one.change_ns, signed=True)}"
                for one in others
            )
            change = sum(one.change_ns for one in others)
            yield DiffLine("", "borders", None, None, change, "   ".join(parts))


class Comparison(ViewSession, frozen=True, eq=False, dict=True):
    """`sides` have the lanes that a comparison needs, and `views` the windows of the
    page."""

    found: DiffLines | None = None  # None: still being computed
    opened: frozenset[int] = frozenset()  # lines of `found` whose inner lines are shown

    @cached_property
    def lines(self) -> tuple[DiffLine, ...]:
        return tuple(line for line, _ in self._shown)

    @cached_property
    def _shown(self) -> list[tuple[DiffLine, int]]:
        """Lines, and the place in `found` of each, or of the line that it is inside
        of."""
        found = self.found
        if found is None:
            return []
        inner = [
            found.inner[n] if n in self.opened else () for n in range(len(found.lines))
        ]
        return [
            (line, n)
            for n, outer in enumerate(found.lines)
            for line in (outer, *inner[n])
        ]

    def turned(self, index: int) -> tuple[Comparison, int]:
        """The line here opened, or closed, and where it is; an inner line closes the
        outer one."""
        place = dict(enumerate(n for _, n in self._shown)).get(index)
        if self.found is None or place is None or place not in self.found.inner:
            return self, index
        now = replace(self, opened=self.opened ^ {place})
        return now, [n for _, n in now._shown].index(place)

    def beside(self, views: Sequence[View]) -> Comparison:
        """The windows of the session; the selections are kept."""
        windows = [(view.begin, view.end) for view in views]
        return replace(self, views=_windowed(self.views, windows))

    def at(self, index: int) -> Comparison:
        """Marks the work of one line; both windows move together to keep the first row
        in sight."""
        if not self.lines:
            return self
        pair = zip(self.sides, pair_of(self.lines[index]), strict=True)
        drawn = [[row for row in rows if side.lane_of(row) >= 0] for side, rows in pair]
        views = [
            *map(
                select, self.sides, self.views, (next(iter(rows), -1) for rows in drawn)
            )
        ]
        first = 0 if drawn[0] else 1
        shift = views[first].begin - self.views[first].begin
        windows = [(before.begin + shift, before.end + shift) for before in self.views]
        return replace(
            self, views=_windowed(views, windows), marked=tuple(map(frozenset, drawn))
        )


def _windowed(views: Sequence[View], windows: Sequence[Interval]) -> Views:
    pairs = zip(views, windows, strict=True)
    return tuple(replace(view, begin=begin, end=end) for view, (begin, end) in pairs)


def comparing(sides: Sequence[Side], views: Sequence[View]) -> Comparison:
    """Both sides with the lanes that matter; the diff is not known yet."""
    own = tuple(
        replace(side, lanes=key_lanes(side.lanes), counters=()) for side in sides
    )
    shown = tuple(
        first_view(s, v.begin, v.end) for s, v in zip(own, views, strict=True)
    )
    return Comparison(own, shown, NO_MARKS * len(own))


def pair_of(line: DiffLine) -> tuple[Sequence[int], Sequence[int]]:
    b = [row for found in line.rows for row in found.b_rows]
    return [row for found in line.rows for row in found.a_rows], b


LABEL = "replayed"


class Second(msgspec.Struct, frozen=True, eq=False, dict=True):
    """`side` shows what a replay predicts of `recorded`; `said` is the prediction in a
    sentence."""

    recorded: Trace
    side: Side
    found: Predicted
    place: Int32s  # see Predicted.place_in
    said: str

    @memo(4)
    def seen(self, side: Side, view: View) -> tuple[Side, View]:
        """The same lanes, folded alike, and the same slice selected; and the step that
        begins in the first half of the window begins where the recorded one does."""
        begin = view.begin + side.origin
        earlier = self.found.earlier_at(begin, begin + view.span // 2)
        own = replace(self.side, origin=side.origin - earlier)
        there = {view.selected: int(self.place[view.selected])}
        return own, replace(
            viewed_as(side, own, view, there), begin=view.begin, end=view.end
        )

    def figure(self, row: int) -> str:
        there, dur = int(self.place[row]), self.side.trace.dur
        return f"{LABEL}: {duration(int(dur[there]))}" if there >= 0 else f"not {LABEL}"


def second_of(
    recorded: Trace, made: tuple[Predicted, tuple[IdleTime, ...]], said: str
) -> Second:
    """All that drawing needs is made here, not in the thread that draws."""
    found, idle = made
    trace = found.trace_of(recorded)
    (side,) = make_sides([trace], [LABEL])
    for lane in side.lanes:
        lane.prepare()
    shares(trace)
    keep_result(trace, busy_of, replace(busy_of(trace), label=LABEL))
    told = replace(side, insight=Insight(idle))
    return Second(recorded, told, found, found.place_in(recorded), said)
