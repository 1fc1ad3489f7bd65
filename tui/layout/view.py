"""What a timeline shows, as data: a side, a view of it, and the lines that result.

Times are ns from the origin of the side: the start of the trace, or the step at which two traces
are aligned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any, TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.trace.cells.counters import Curve
from fusetui.trace.cells.raster import Line
from fusetui.trace.insights.stretches import IdleTime
from fusetui.trace.model.categories import Layer
from fusetui.trace.model.columns import Trace
from fusetui.tui.layout.insight import NOTHING_YET, Insight
from fusetui.tui.layout.kinds import narrow
from fusetui.tui.layout.lanes import Fold, Lane, groups

MIN_SPAN_NS = 20
IDLE_LABEL = "idle because"
KEPT = 4  # views whose lines are kept
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
    made: dict[Callable[[Trace], Any], Any] = msgspec.field(default_factory=dict)

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
    the folds of lanes."""

    begin: int
    end: int
    selected: int = -1
    folds: tuple[Fold, ...] = ()
    gap: GapAt | None = None

    @property
    def span(self) -> int:
        return self.end - self.begin


class Place(msgspec.Struct, frozen=True, eq=False):
    """One line of the screen: one line of a lane, else the idle time of a device, else a counter,
    else the name of a group.

    Only the lines of lanes belong to a lane; for others, `lane` is -1.
    """

    lane: int
    depth: int
    label: str
    line: Line | None
    curve: Curve | None = None
    idle_of: Lane | None = None  # a stream of the device

    def holds(self, row: int) -> bool:
        """Whether a row of the trace lies on this line."""
        if self.line is None:
            return False
        at = int(np.searchsorted(self.line.rows, row))
        return at < len(self.line) and int(self.line.rows[at]) == row


def first_view(side: Side, begin: int | None = None, end: int | None = None) -> View:
    """The whole of a side, or a given window, nothing selected."""
    folds = tuple(lane.first_fold for lane in side.lanes)
    lower = side.begin if begin is None else begin
    upper = side.end if end is None else end
    return View(lower, max(upper, lower + MIN_SPAN_NS), -1, folds)


def places(side: Side, view: View) -> tuple[Place, ...]:
    """All lines of the timeline, from top to bottom, whether they fit on the screen or not."""
    found = side.places.get(view)
    if found is None:
        if len(side.places) >= KEPT:
            del side.places[next(iter(side.places))]
        found = side.places[view] = tuple(_places(side, view))
    return found


def _places(side: Side, view: View) -> list[Place]:
    found: list[Place] = []
    for group, indices in groups(side.lanes):
        if len(indices) > 1:
            found.append(Place(indices[0], -1, group, None))
        for index in indices:
            lane = side.lanes[index]
            label = f" {lane.label}" if len(indices) > 1 else lane.title
            found.extend(_lane_places(side, view, index, label))
        found.extend(_idle_places(side, indices, nested=len(indices) > 1))
    return [*found, *side.counter_places]


def fitted(side: Side, view: View, lines: int) -> View:
    """The view for a screen with this many lines for lanes; see `_with_stream` and `_opened`."""
    return _opened(side, _with_stream(side, view, lines), lines)


def _with_stream(side: Side, view: View, lines: int) -> View:
    """Folds as many lanes of CPU threads, the tallest first, as needed to show the first GPU stream
    and why it was idle, or else the stream; folds none if that is not enough."""
    shown = places(side, view)
    streams = [p.lane for p in shown if p.line and side.lanes[p.lane].layer is Layer.STREAM]
    if not streams:
        return view
    last = max(n for n, p in enumerate(shown) if p.lane == streams[0])
    idle = max(
        (n for n, p in enumerate(shown) if p.idle_of is side.lanes[streams[0]]), default=last
    )
    tall = Counter(p.lane for p in shown if p.line and p.lane < streams[0])
    for wanted in (idle, last):
        folds, excess = list(view.folds), wanted + 1 - lines
        for lane, height in tall.most_common():
            if excess > 0:
                folds[lane] = Fold.FOLDED
                excess -= height - 1
        if excess <= 0:
            return replace(view, folds=tuple(folds))
    return view


def _opened(side: Side, view: View, lines: int) -> View:
    """Opens the lanes of programs other than torch as far as there is room."""
    spare, folds = lines - len(places(side, view)), list(view.folds)
    for n, lane in enumerate(side.lanes):
        for fold in (Fold.OPEN, Fold.NORMAL):
            more = lane.shown(fold) - 1
            if lane.layer is Layer.OTHER and folds[n] is Fold.FOLDED and more <= spare:
                folds[n] = fold
                spare -= more
    return replace(view, folds=tuple(folds))


def times(side: Side, row: int) -> tuple[int, int]:
    """Start and end of a row, in ns from the origin."""
    start = int(side.trace.start[row]) - side.origin
    return start, start + max(1, int(side.trace.dur[row]))


def line_of(side: Side, row: int) -> Line:
    """The line on which a row lies."""
    lane = side.lanes[side.lane_of_track[int(side.trace.track[row])]]
    return lane.lines[depth_in_lane(side, row)]


def depth_in_lane(side: Side, row: int) -> int:
    """The line of a row within its lane: its depth, below the lines of earlier sub-rows."""
    lane = side.lanes[side.lane_of_track[int(side.trace.track[row])]]
    return lane.lines.index_of(row)


def index_of(side: Side, shown: Sequence[Place], row: int) -> int:
    """The index of a row's line among the places, -1 if it is not there."""
    lane = side.lane_of_track.get(int(side.trace.track[row]), -1)
    depth = depth_in_lane(side, row) if lane >= 0 else -1
    wanted = (lane, depth)
    return next((n for n, p in enumerate(shown) if p.line and (p.lane, p.depth) == wanted), -1)


def same_line(old: Side, place: Place, new: Side, shown: Sequence[Place]) -> int:
    """The index of a line of one side among the places of another that shows more; 0 if it is not
    there."""
    key = _key(old, place)
    return next((n for n, p in enumerate(shown) if _key(new, p) == key), 0)


def _key(side: Side, place: Place) -> tuple[object, int, str]:
    """What identifies a line, whatever part of the trace is shown."""
    if place.lane < 0:
        return None, place.depth, place.label
    return side.lanes[place.lane].key, place.depth, ""


def _lane_places(side: Side, view: View, index: int, label: str) -> list[Place]:
    lane = side.lanes[index]
    count = lane.shown(view.folds[index])
    if view.selected >= 0 and side.lane_of_track.get(int(side.trace.track[view.selected])) == index:
        count = max(count, depth_in_lane(side, view.selected) + 1)
    elif not _lane_in_sight(side, view, lane):
        count = 1
    return [
        Place(index, depth, label if depth == 0 else "", line)
        for depth, line in enumerate(lane.lines[:count])
    ]


def _idle_places(side: Side, indices: Sequence[int], nested: bool) -> list[Place]:
    """One line below the lanes of a device; it is there before it is known why the device was
    idle."""
    streams = [n for n in indices if side.lanes[n].layer is Layer.STREAM]
    label = f" {IDLE_LABEL}" if nested else IDLE_LABEL
    return [Place(-1, -2 - n, label, None, idle_of=side.lanes[n]) for n in streams[:1]]


def gap_times(side: Side, at: GapAt) -> Interval | None:
    """Begin and end of a gap, in ns from the origin; None where it is not known."""
    found = idle_of(side, at)
    if found is None:
        return None
    return int(found.begin[at.gap]) - side.origin, int(found.end[at.gap]) - side.origin


def idle_of(side: Side, at: GapAt) -> IdleTime | None:
    """The idle time that a gap belongs to."""
    known = side.insight.idle or ()
    inside = 0 <= at.device < len(known) and 0 <= at.gap < len(known[at.device].begin)
    return known[at.device] if inside else None


def held(side: Side, view: View) -> Interval | None:
    """The times of the selected slice or gap; None if nothing is selected."""
    if view.selected >= 0:
        return times(side, view.selected)
    return gap_times(side, view.gap) if view.gap else None


def index_of_gap(side: Side, shown: Sequence[Place], at: GapAt) -> int:
    """The index of the line of a gap's device among the places, -1 if it is not there."""
    found = idle_of(side, at)
    pid = found.device if found else None
    lanes = (p.idle_of.key[1] if p.idle_of else None for p in shown)
    return next((n for n, own in enumerate(lanes) if own is not None and own == pid), -1)


def _lane_in_sight(side: Side, view: View, lane: Lane) -> bool:
    return any(in_sight(side, view, line) for line in lane.lines.tops)


def in_sight(side: Side, view: View, line: Line) -> bool:
    first = int(np.searchsorted(line.end, view.begin + side.origin, side="right"))
    return first < len(line) and int(line.start[first]) < view.end + side.origin
