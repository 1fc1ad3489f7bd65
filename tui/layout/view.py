"""What a timeline shows, as data: a side, a view of it, and what a line of it is.

Times are ns from the origin of the side: the start of the trace, or the step at which two traces
are aligned.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property
from itertools import groupby
from typing import Any, TypeVar

import msgspec

from fusetui.trace.cells.counters import Curve
from fusetui.trace.cells.raster import Line
from fusetui.trace.model.columns import Trace
from fusetui.tui.layout.arrangement import Arrangement, quiet
from fusetui.tui.layout.insight import NOTHING_YET, Insight
from fusetui.tui.layout.kinds import narrow
from fusetui.tui.layout.lanes import Lane

MIN_SPAN_NS = 20
HIDDEN = -1000  # instead of a depth
Interval = tuple[int, int]
"""Begin and end, in ns from the origin of a side."""
T = TypeVar("T")


class Side(msgspec.Struct, frozen=True, eq=False, dict=True):
    """One trace and its lanes; `origin` is the time (ns of the file) that counts as zero.

    The counters and the insight are known a little later than the rest.
    """

    trace: Trace
    lanes: tuple[Lane, ...]
    origin: int
    label: str
    counters: tuple[Curve, ...] = ()
    insight: Insight = NOTHING_YET
    made: dict[Hashable, Any] = msgspec.field(default_factory=dict)

    def once(self, make: Callable[[Trace], T]) -> T:
        """A value computed from the trace when it is first asked for."""
        if make not in self.made:
            self.made[make] = make(self.trace)
        found: T = self.made[make]
        return found

    @cached_property
    def places(self) -> dict[View, tuple[Place, ...]]:
        """The lines of the views that were shown last."""
        return {}

    @cached_property
    def tables(self) -> dict[object, Any]:
        """The tables of pages that were shown last."""
        return {}

    @property
    def begin(self) -> int:
        return self.trace.begin_ns - self.origin

    @property
    def end(self) -> int:
        return max(self.trace.end_ns - self.origin, self.begin + MIN_SPAN_NS)

    @cached_property
    def lane_of_track(self) -> dict[int, int]:
        """The lane of each track number."""
        numbers = {track.first_row: n for n, track in enumerate(self.trace.tracks)}
        return {
            numbers[track.first_row]: index
            for index, lane in enumerate(self.lanes)
            for track in lane.tracks
        }

    @cached_property
    def quiet(self) -> frozenset[int]:
        """Lanes that say little."""
        return quiet(self.lanes, self.end - self.begin)

    @cached_property
    def counter_places(self) -> tuple[Place, ...]:
        """The lines of the counters, each group below its name."""
        found: list[Place] = []
        for group, curves in groupby(self.counters, lambda curve: curve.counter.group):
            found.append(Place(-1, -1, group, None))
            found.extend(Place(-1, -1, f" {narrow(c.counter.label)}", None, c) for c in curves)
        return tuple(found)


class GapAt(msgspec.Struct, frozen=True):
    """A stretch of idle time: the index among the devices of the insight, and among its gaps."""

    device: int
    gap: int


class View(msgspec.Struct, frozen=True):
    """The window [begin, end), the selected row of the trace (-1: none) or the selected gap, and
    how many lines of each lane are shown at most."""

    begin: int
    end: int
    selected: int = -1
    folds: tuple[int, ...] = ()
    gap: GapAt | None = None
    arranged: Arrangement = Arrangement()

    @property
    def span(self) -> int:
        return self.end - self.begin


class Family(msgspec.Struct, frozen=True, eq=False):
    """The slices of one kind on a line."""

    line: Line
    kind: int  # its number


class Place(msgspec.Struct, frozen=True, eq=False):
    """One line of the screen: one line of a lane, else the idle time of a device, else a counter,
    else one kind of slices of a line, else the name of a group, else the names of what is hidden.

    Only the lines of lanes belong to a lane; for others, `lane` is -1.
    """

    lane: int
    depth: int
    label: str
    line: Line | None
    curve: Curve | None = None
    idle_of: Lane | None = None  # a stream of the device
    where: bool = False  # where the program was, not the line itself
    family: Family | None = None  # how much of a line the slices of one kind cover
    more: int = 0  # lines of the lane that are not shown; on the last one that is
    around: int = (
        0  # lines above it that are named on it, because one slice of each spans the window
    )

    def holds(self, row: int) -> bool:
        """Whether a row of the trace lies on this line."""
        if row < 0 or self.line is None or self.where:
            return False
        rows = self.line.rows
        if not rows[0] <= row <= rows[-1]:
            return False
        return int(rows[rows.searchsorted(rows.dtype.type(row))]) == row


def first_view(side: Side, begin: int | None = None, end: int | None = None) -> View:
    """The whole of a side, or a given window, nothing selected."""
    folds = tuple(lane.first_fold for lane in side.lanes)
    lower = side.begin if begin is None else begin
    upper = side.end if end is None else end
    arrangement = Arrangement(side.quiet)
    return View(lower, max(upper, lower + MIN_SPAN_NS), -1, folds, arranged=arrangement)


def times(side: Side, row: int) -> tuple[int, int]:
    """Start and end of a row, in ns from the origin."""
    start = int(side.trace.start[row]) - side.origin
    return start, start + max(1, int(side.trace.dur[row]))
