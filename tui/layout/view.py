"""What a timeline shows, as data: a side, a view of it, and the lines that result.

Times are ns from the origin of the side: the start of the trace, or the step at which two traces
are aligned.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property
from itertools import groupby
from threading import Lock
from typing import Any, TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.trace.cells.counters import Curve
from fusetui.trace.cells.raster import Line
from fusetui.trace.insights.stretches import IdleTime
from fusetui.trace.model.categories import Layer
from fusetui.trace.model.columns import Trace
from fusetui.trace.text.figures import percent
from fusetui.tui.layout.arrangement import Arrangement, arranged, hidden_names, quiet
from fusetui.tui.layout.insight import NOTHING_YET, Insight
from fusetui.tui.layout.kinds import KINDS, narrow
from fusetui.tui.layout.lanes import LAYER_LABELS, Lane

MIN_SPAN_NS = 20
IDLE_LABEL = "idle because"
HIDDEN, HIDDEN_LABEL = -1000, "folded"
WHERE = -2  # instead of a depth
MOST_FAMILIES = 6  # lines below a stream
KEPT = 4  # views of which the lines are kept
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


_KEEPING = Lock()
"""More than one thread asks for lines."""


def places(side: Side, view: View) -> tuple[Place, ...]:
    """All lines of the timeline, from top to bottom, whether they fit on the screen or not."""
    found = side.places.get(view)
    if found is None:
        found = tuple(_places(side, view))
        with _KEEPING:
            if len(side.places) >= KEPT:
                del side.places[next(iter(side.places))]
            side.places[view] = found
    return found


def _places(side: Side, view: View) -> list[Place]:
    found: list[Place] = []
    for index in view.arranged.pinned:
        found.extend(_lane_places(side, view, index, side.lanes[index].title))
    for group, indices in arranged(side.lanes, view.arranged, _lane_of(side, view.selected)):
        nested = len(indices) > 1
        if nested:
            found.append(Place(indices[0], -1, group, None))
        for index in indices:
            lane = side.lanes[index]
            label = f" {lane.label}" if nested else lane.title
            found.extend(_lane_places(side, view, index, label))
        found.extend(_idle_places(side, indices, nested=nested))
    return [*found, *side.counter_places, *_hidden_places(side, view)]


def _hidden_places(side: Side, view: View) -> list[Place]:
    """One line that names what is hidden."""
    hidden = view.arranged.hidden - {_lane_of(side, view.selected)}
    if not hidden:
        return []
    names = "   ".join(hidden_names(side.lanes, hidden))
    return [Place(-1, HIDDEN, f"{HIDDEN_LABEL}: {names}", None)]


def _lane_of(side: Side, row: int) -> int:
    """The lane of a row; -1 for none."""
    return side.lane_of_track.get(int(side.trace.track[row]), -1) if row >= 0 else -1


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
    own = {p.depth: n for n, p in enumerate(shown) if p.line and p.lane == lane}
    return own.get(depth, own.get(WHERE, -1))


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
    """The lines of a lane; that of the selection is there however deep it lies, unless the line of
    where the program was shows it."""
    lane = side.lanes[index]
    own = _lane_of(side, view.selected) == index
    count = lane.shown(view.folds[index]) if own or _lane_in_sight(side, view, lane) else 1
    depths = list(range(count - lane.has_where))
    if own and not lane.has_where and depth_in_lane(side, view.selected) >= count:
        depths.append(depth_in_lane(side, view.selected))
    found = [Place(index, WHERE, where_label(label), lane.lines[0], where=True)] * lane.has_where
    found += [Place(index, n, "" if n else label, lane.lines[n]) for n in depths]
    last = replace(found[-1], more=lane.height - len(found))
    return [*found[:-1], last, *(_families(lane) if view.arranged.families else ())]


def _families(lane: Lane) -> Iterator[Place]:
    """The kinds of slices on the outermost line of a stream, those with the most time first."""
    line = lane.lines[0]
    if lane.layer is not Layer.STREAM:
        return
    largest = sorted(line.kinds, key=lambda one: -int(one.before[-1]))[:MOST_FAMILIES]
    for one in largest:
        share = percent(int(one.before[-1]), int(line.before[-1]))
        label = f"  {KINDS[one.kind].removeprefix('gpu-')} {share}"
        yield Place(-1, -1, label, None, family=Family(line, one.kind))


def where_label(label: str) -> str:
    """That of the lane, which may be the name of a thread."""
    return label.replace(LAYER_LABELS[Layer.PYTHON], "where")


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
