"""The content of a timeline as data: a side, its view, and its lines. Times are ns from
the origin of the side: the start of the trace, or the step at which two traces are
aligned."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from fusetui.analysis.diff.model import Diff
from fusetui.analysis.questions.device_counters import (
    DeviceCounter,
    choose_device_counters,
)
from fusetui.analysis.why.idle_time import IdleTime
from fusetui.text.printable import without_credentials
from fusetui.timeline.cells import DepthRow
from fusetui.trace.layout.counters import Curve
from fusetui.trace.layout.steps import step_wall, steps_of
from fusetui.trace.model.arrays import NO_ROW
from fusetui.trace.model.columns import Trace
from fusetui.tui.layout.answer import Insight
from fusetui.tui.layout.kinds import narrow
from fusetui.tui.layout.lanes import Arrangement, Lane, build_lanes, quiet

if TYPE_CHECKING:
    from fusetui.analysis.replay.marks import Marks

MIN_SPAN_NS = 20
# instead of the depth of a line
HIDDEN = -1000  # of the names of what is hidden
TEXT_ONLY = -1  # of the name of a group, of a counter and of one kind of slices
NO_LANE = -1  # instead of the index of a lane
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
        """The counters of devices, such as clocks and power."""
        return choose_device_counters([curve.counter for curve in self.counters])

    @property
    def begin(self) -> int:
        """The time of the begin of the trace in ns from the origin."""
        return self.trace.begin_ns - self.origin

    @property
    def end(self) -> int:
        """The time of the end of the trace in ns from the origin. It is at least
        MIN_SPAN_NS after the begin, so that the window is never empty."""
        return max(self.trace.end_ns - self.origin, self.begin + MIN_SPAN_NS)

    @cached_property
    def lane_of_track(self) -> dict[int, int]:
        """The index of the lane that shows each track, by the index of the track.
        Tracks without a lane are left out."""
        number_of_track = {}  # by its first row
        for number, track in enumerate(self.trace.tracks):
            number_of_track[track.first_row] = number
        lane_of_track = {}
        for index, lane in enumerate(self.lanes):
            for track in lane.tracks:
                lane_of_track[number_of_track[track.first_row]] = index
        return lane_of_track

    def lane_of(self, row: int) -> int:
        """Return the index of the lane that shows a row, or -1 if none does. Row -1 has
        no lane."""
        if row == NO_ROW:
            return -1
        return self.lane_of_track.get(int(self.trace.track[row]), -1)

    def depth_of(self, row: int) -> int:
        """Return the line of a row within its lane. It is the nesting depth of the row,
        plus the lines of the tracks above its own."""
        return self.lanes[self.lane_of(row)].lines.index_of(row)

    @cached_property
    def quiet(self) -> frozenset[int]:
        """The lanes that are hidden at first, because they say little."""
        return quiet(self.lanes, self.end - self.begin)

    @cached_property
    def counter_places(self) -> tuple[Place, ...]:
        """The lines of the counters, each group of counters below a line with its name."""
        counter_lines: list[Place] = []
        for group, curves in groupby(self.counters, lambda curve: curve.counter.group):
            counter_lines.append(make_text_place(group))
            for curve in curves:
                label = f" {narrow(curve.counter.label)}"
                counter_lines.append(Place(NO_LANE, TEXT_ONLY, label, None, curve))
        return tuple(counter_lines)


class GapAt(msgspec.Struct, frozen=True):
    """A stretch of idle time: the index among the devices of the insight, and among its
    gaps."""

    device: int
    gap: int


class View(msgspec.Struct, frozen=True):
    """The window [begin, end), the selected row of the trace (or NO_ROW) or the selected
    gap, and how many lines of each lane are shown at most."""

    begin: int
    end: int
    selected: int = NO_ROW
    folds: tuple[int, ...] = ()
    gap: GapAt | None = None
    arranged: Arrangement = Arrangement()

    @property
    def has_selection(self) -> bool:
        """Whether a slice is selected. A selected gap does not count."""
        return self.selected != NO_ROW

    @property
    def span(self) -> int:
        """The length of the window in ns."""
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
        """Tell whether a row of the trace lies on this line. Lines that show something
        else than slices hold no rows."""
        if row == NO_ROW or self.line is None or self.where:
            return False
        rows = self.line.rows
        if not rows[0] <= row <= rows[-1]:
            return False
        # of the type of the column, which is not converted then
        candidate = rows.searchsorted(rows.dtype.type(row))
        return bool(rows[candidate] == row)


def make_text_place(label: str, depth: int = TEXT_ONLY) -> Place:
    """Return a line of the timeline that is only a text and belongs to no lane."""
    return Place(lane=NO_LANE, depth=depth, label=label, line=None)


def make_first_view(
    side: Side, begin: int | None = None, end: int | None = None
) -> View:
    """Return the view of a trace as it is shown first, with nothing selected.

    The window is the whole trace, unless `begin` or `end` (in ns from the origin) are
    given.
    """
    lower = side.begin if begin is None else begin
    upper = side.end if end is None else end
    return View(
        begin=lower,
        end=max(upper, lower + MIN_SPAN_NS),
        folds=tuple(lane.first_fold for lane in side.lanes),
        arranged=Arrangement(side.quiet),
    )


def times(side: Side, row: int) -> tuple[int, int]:
    """Return the start and end of a row in ns from the origin. The end is at least 1 ns
    after the start."""
    start = int(side.trace.start[row]) - side.origin
    return start, start + max(1, int(side.trace.dur[row]))


def find_gap_times(side: Side, at: GapAt) -> Interval | None:
    """Return the begin and end of a gap in ns from the origin, or None if the gap is
    not known."""
    idle = idle_of(side, at)
    if idle is None:
        return None
    begin = int(idle.begin[at.gap]) - side.origin
    end = int(idle.end[at.gap]) - side.origin
    return begin, end


def idle_of(side: Side, at: GapAt) -> IdleTime | None:
    """Return the idle time of the device of a gap, or None if the gap is not known. A
    gap is unknown until the idle time of its trace has been computed."""
    devices = side.insight.idle or ()
    if not 0 <= at.device < len(devices):
        return None
    idle = devices[at.device]
    return idle if 0 <= at.gap < len(idle.begin) else None


def find_selected_times(side: Side, view: View) -> Interval | None:
    """Return the begin and end of the selected slice or gap in ns from the origin, or
    None if nothing is selected."""
    if view.has_selection:
        return times(side, view.selected)
    return find_gap_times(side, view.gap) if view.gap else None


def find_line_of_gap(side: Side, shown: Sequence[Place], at: GapAt) -> int:
    """Return the index of the line that shows the idle time of a gap's device, or -1 if
    there is none."""
    idle = idle_of(side, at)
    if idle is None:
        return -1
    for index, place in enumerate(shown):
        if place.idle_of and place.idle_of.pid == idle.device:
            return index
    return -1


Views = tuple[View, ...]


def make_sides(traces: Sequence[Trace], labels: Sequence[str]) -> tuple[Side, ...]:
    """Return a side for each trace: the trace with its lanes and the time that counts
    as zero.

    Zero is the begin of a single trace. Several traces are aligned at the begin of
    their first steps.
    """
    sides = []
    for trace, label in zip(traces, labels, strict=False):
        is_alone = len(traces) == 1
        origin = trace.begin_ns if is_alone else _find_first_step(trace).begin
        sides.append(Side(trace, build_lanes(trace), origin, label))
    return tuple(sides)


def align_sides(sides: Sequence[Side], diff: Diff) -> tuple[Side, ...]:
    """Return both sides of a comparison with zero at the begin of the compared steps,
    so that these begin at the same column."""
    side_a, side_b = sides
    a_rows: list[int] = []
    b_rows: list[int] = []
    for diff_row in diff.rows:
        a_rows += diff_row.a_rows
        b_rows += diff_row.b_rows
    return _align_side(side_a, a_rows), _align_side(side_b, b_rows)


def make_first_views(sides: Sequence[Side]) -> Views:
    """Return the view of each trace as it is shown first.

    A single trace is shown as a whole. Several traces show the time of the longest
    first step, with a margin of 5 % on both sides.
    """
    if len(sides) == 1:
        return (make_first_view(sides[0]),)
    longest = max(_find_first_step(side.trace).length for side in sides)
    margin = longest // 20
    begin = -longest // 20  # rounded down
    return tuple(make_first_view(side, begin, longest + margin) for side in sides)


def _align_side(side: Side, rows: Sequence[int]) -> Side:
    """Return a side with zero at the begin of the step that contains the first of some
    rows.

    GPU work counts for the step in which it was launched. If there is no such step,
    zero is the time of the row or its launch. Without rows the side stays as it is.
    """
    if not rows:
        return side
    trace = side.trace
    first_row = min(rows, key=lambda row: int(trace.start[row]))
    launch = int(trace.launch[first_row])
    begin_ns = int(trace.start[launch if launch != NO_ROW else first_row])
    steps = steps_of(trace)
    contains_time = (steps.start <= begin_ns) & (begin_ns <= steps.end)
    begins = steps.start[contains_time].tolist()
    return replace(side, origin=begins[0] if begins else begin_ns)


class FirstStep(NamedTuple):
    """The first step of a trace, else all of it; ns of the file."""

    begin: int
    length: int


def _find_first_step(trace: Trace) -> FirstStep:
    """Return the begin and length of the first step of a trace, in ns of the file.
    Without steps it is the whole trace."""
    steps = steps_of(trace)
    if not len(steps):
        length = max(trace.end_ns - trace.begin_ns, MIN_SPAN_NS)
        return FirstStep(trace.begin_ns, length)
    wall_ns = step_wall(steps.start[:1], steps.end[:1])
    return FirstStep(int(steps.start[0]), int(wall_ns[0]))


def short_label(path: str) -> str:
    """Return a short name for a trace file: its name without the folder and endings
    such as `.json.gz`.

        runs/mlp/eager.json.gz -> eager
    """
    name = Path(without_credentials(path)).name
    for suffix in (".gz", ".zst", ".json", ".trace", ".pt", ".pickle", ".pkl"):
        name = name.removesuffix(suffix)
    return name
