"""What a timeline shows, as data: a side, a view of it, and what a line of it is. Times
are ns from the origin of the side: the start of the trace, or the step at which two
traces are aligned."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from fusetui.analysis.diff.model import Diff
from fusetui.analysis.questions.device_counters import DeviceCounter, of_devices
from fusetui.analysis.why.idle_time import IdleTime
from fusetui.text.printable import without_credentials
from fusetui.timeline.cells import DepthRow
from fusetui.trace.layout.counters import Curve
from fusetui.trace.layout.steps import step_wall, steps_of
from fusetui.trace.model.columns import Trace
from fusetui.tui.layout.answer import Insight
from fusetui.tui.layout.kinds import narrow
from fusetui.tui.layout.lanes import Arrangement, Lane, lanes_of, quiet

if TYPE_CHECKING:
    from fusetui.analysis.replay.marks import Marks

MIN_SPAN_NS = 20
HIDDEN = -1000  # instead of a depth
Interval = tuple[int, int]  # begin and end, in ns from the origin of a side


class Side(msgspec.Struct, frozen=True, eq=False, dict=True):
    """One trace and its lanes; `origin` is the time (ns of the file) that counts as
    zero. The counters and the insight are known a little later than the rest."""

    trace: Trace
    lanes: tuple[Lane, ...]
    origin: int
    label: str
    counters: tuple[Curve, ...] = ()
    insight: Insight = Insight()
    critical: Marks | None = None  # the critical path, once a person asked for it

    @cached_property
    def device_counters(self) -> tuple[DeviceCounter, ...]:
        return of_devices([curve.counter for curve in self.counters])

    @property
    def begin(self) -> int:
        return self.trace.begin_ns - self.origin

    @property
    def end(self) -> int:
        return max(self.trace.end_ns - self.origin, self.begin + MIN_SPAN_NS)

    @cached_property
    def lane_of_track(self) -> dict[int, int]:
        numbers = {track.first_row: n for n, track in enumerate(self.trace.tracks)}
        lanes = enumerate(self.lanes)
        return {
            numbers[track.first_row]: n for n, lane in lanes for track in lane.tracks
        }

    def lane_of(self, row: int) -> int:
        """The lane of a row; -1 for none."""
        return (
            self.lane_of_track.get(int(self.trace.track[row]), -1) if row >= 0 else -1
        )

    def depth_of(self, row: int) -> int:
        """The line of a row within its lane: its depth, below the lines of earlier
        sub-rows."""
        return self.lanes[self.lane_of(row)].lines.index_of(row)

    @cached_property
    def quiet(self) -> frozenset[int]:
        return quiet(self.lanes, self.end - self.begin)

    @cached_property
    def counter_places(self) -> tuple[Place, ...]:
        """The lines of the counters, each group below its name."""
        found: list[Place] = []
        for group, curves in groupby(self.counters, lambda curve: curve.counter.group):
            found.append(Place(-1, -1, group, None))
            found.extend(
                Place(-1, -1, f" {narrow(c.counter.label)}", None, c) for c in curves
            )
        return tuple(found)


class GapAt(msgspec.Struct, frozen=True):
    """A stretch of idle time: the index among the devices of the insight, and among its
    gaps."""

    device: int
    gap: int


class View(msgspec.Struct, frozen=True):
    """The window [begin, end), the selected row of the trace (-1: none) or the selected
    gap, and how many lines of each lane are shown at most."""

    begin: int
    end: int
    selected: int = -1
    folds: tuple[int, ...] = ()
    gap: GapAt | None = None
    arranged: Arrangement = Arrangement()

    @property
    def span(self) -> int:
        return self.end - self.begin


class Place(msgspec.Struct, frozen=True, eq=False):
    """One line of the screen: one line of a lane, else the idle time of a device, else
    a counter, else one kind of slices of a line, else the name of a group, else the
    names of what is hidden. Only the lines of lanes belong to a lane; for others,
    `lane` is -1."""

    lane: int
    depth: int
    label: str
    line: DepthRow | None
    curve: Curve | None = None
    idle_of: Lane | None = None  # a stream of the device
    where: bool = False  # where the program was, not the line itself
    # a line, of which only slices of this kind are shown
    family: tuple[DepthRow, int] | None = None
    more: int = 0  # lines of the lane that are not shown; on the last one that is
    # lines above it, named on it because one slice of each spans the window
    around: int = 0

    def holds(self, row: int) -> bool:
        """Whether a row of the trace lies on this line."""
        if row < 0 or self.line is None or self.where:
            return False
        rows = self.line.rows
        is_near = rows[0] <= row <= rows[-1]
        return bool(is_near and rows[rows.searchsorted(rows.dtype.type(row))] == row)


def first_view(side: Side, begin: int | None = None, end: int | None = None) -> View:
    """The whole of a side, or a given window, nothing selected."""
    folds = tuple(lane.first_fold for lane in side.lanes)
    lower, upper = (
        side.begin if begin is None else begin,
        side.end if end is None else end,
    )
    upper = max(upper, lower + MIN_SPAN_NS)
    return View(lower, upper, folds=folds, arranged=Arrangement(side.quiet))


def times(side: Side, row: int) -> tuple[int, int]:
    """Start and end of a row, in ns from the origin."""
    start = int(side.trace.start[row]) - side.origin
    return start, start + max(1, int(side.trace.dur[row]))


def gap_times(side: Side, at: GapAt) -> Interval | None:
    """Begin and end of a gap, in ns from the origin; None where it is not known."""
    if (found := idle_of(side, at)) is None:
        return None
    return int(found.begin[at.gap]) - side.origin, int(found.end[at.gap]) - side.origin


def idle_of(side: Side, at: GapAt) -> IdleTime | None:
    known = side.insight.idle or ()
    inside = 0 <= at.device < len(known) and 0 <= at.gap < len(known[at.device].begin)
    return known[at.device] if inside else None


def held(side: Side, view: View) -> Interval | None:
    """The times of the selected slice or gap; None if nothing is selected."""
    if view.selected >= 0:
        return times(side, view.selected)
    return gap_times(side, view.gap) if view.gap else None


def index_of_gap(side: Side, shown: Sequence[Place], at: GapAt) -> int:
    """The index of the line of a gap's device among the places, -1 if it is not
    there."""
    if (found := idle_of(side, at)) is None:
        return -1
    own = (
        n for n, p in enumerate(shown) if p.idle_of and p.idle_of.key[1] == found.device
    )
    return next(own, -1)


Views = tuple[View, ...]


def make_sides(traces: Sequence[Trace], labels: Sequence[str]) -> tuple[Side, ...]:
    """One side counts from the start of its trace; several are aligned at their first
    steps."""
    together = len(traces) > 1
    origins = [_first_step(one)[0] if together else one.begin_ns for one in traces]
    return tuple(map(Side, traces, map(lanes_of, traces), origins, labels))


def aligned(sides: Sequence[Side], diff: Diff) -> tuple[Side, ...]:
    """The sides with zero at the start of the steps that the diff compares."""
    a, b = sides
    of_b = [row for one in diff.rows for row in one.b_rows]
    return _aligned(a, [row for one in diff.rows for row in one.a_rows]), _aligned(
        b, of_b
    )


def first_views(sides: Sequence[Side]) -> Views:
    """The whole trace; for several, the longest first step, from a little before it."""
    if len(sides) == 1:
        return (first_view(sides[0]),)
    longest = max(_first_step(side.trace)[1] for side in sides)
    return tuple(
        first_view(side, -longest // 20, longest + longest // 20) for side in sides
    )


def _aligned(side: Side, rows: Sequence[int]) -> Side:
    """Zero at the step during which the first of these rows was launched or ran."""
    if not rows:
        return side
    first = min(rows, key=lambda row: int(side.trace.start[row]))
    launch = int(side.trace.launch[first])
    time = int(side.trace.start[launch if launch >= 0 else first])
    steps = steps_of(side.trace)
    begins = steps.start[(steps.start <= time) & (time <= steps.end)].tolist()
    return replace(side, origin=begins[0] if begins else time)


def _first_step(trace: Trace) -> tuple[int, int]:
    """Start and length (ns) of the first step, else of the trace."""
    steps = steps_of(trace)
    if not len(steps):
        return trace.begin_ns, max(trace.end_ns - trace.begin_ns, MIN_SPAN_NS)
    wall_ns = step_wall(steps.start[:1], steps.end[:1])
    return int(steps.start[0]), int(wall_ns[0])


def short_label(path: str) -> str:
    """`runs/mlp/eager.json.gz` -> `mlp/eager`."""
    name = Path(without_credentials(path)).name
    for suffix in (".gz", ".zst", ".json", ".trace", ".pt", ".pickle", ".pkl"):
        name = name.removesuffix(suffix)
    return name
