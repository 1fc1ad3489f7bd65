"""Every movement in a timeline, as a pure function from one view to the next."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from msgspec.structs import replace

from fusetui.analysis.questions.chain import is_gpu, issuer_of, launched_under
from fusetui.timeline.cells import slice_near
from fusetui.trace.model.categories import GPU_LAYERS
from fusetui.trace.model.ids import Id
from fusetui.tui.layout.lanes import ALL, FOLDED, Lane
from fusetui.tui.layout.places import (
    WHERE,
    in_sight,
    index_of,
    places,
    spanning,
    where_rows,
)
from fusetui.tui.layout.view import (
    MIN_SPAN_NS,
    GapAt,
    Place,
    Side,
    View,
    gap_times,
    held,
    times,
)

VISIBLE_PART = 10  # a gap is well visible if it takes at least this part of the window
TOP_DEPTHS = (WHERE, 0)  # of the first line of a lane


def zoom(side: Side, view: View, numerator: int, denominator: int) -> View:
    """Scales the window by numerator / denominator around the anchor."""
    return zoom_at(side, view, anchor(side, view), numerator, denominator)


def zoom_at(
    side: Side, view: View, time: int, numerator: int, denominator: int
) -> View:
    """Scales the window by numerator / denominator about a time, which stays where it
    is on the screen."""
    span = _span(side, view.span * numerator // denominator)
    before_time = (time - view.begin) * span // view.span
    return _within(side, view, time - before_time, span)


def pan(side: Side, view: View, percent: int) -> View:
    """Moves the window by this percentage of its span, to the left if negative; by at
    least 1 ns. Its span stays the same, and at most half of it lies outside the
    trace."""
    distance = max(1, view.span * abs(percent) // 100)
    begin = view.begin + (distance if percent > 0 else -distance)
    return _within(side, view, begin, view.span)


def fit(side: Side, view: View) -> View:
    """A window over the whole trace."""
    return replace(view, begin=side.begin, end=side.end)


def go(side: Side, view: View, time: int) -> View:
    """A window of the same span with a time in its middle."""
    return _within(side, view, time - view.span // 2, view.span)


def at_time(side: Side, view: View, time: int) -> View:
    """`time` in the middle; from a window over the whole trace, in one of a tenth of
    it."""
    is_part = view.span < side.end - side.begin
    return go(side, view if is_part else zoom(side, view, 1, 10), time)


def over(side: Side, view: View, begin: int, end: int) -> View:
    """A window over this stretch of time, with a little around it."""
    length = end - begin
    margin = length // 20
    span = _span(side, length + 2 * margin)
    return _within(side, view, begin - margin, span)


def select(side: Side, view: View, row: int) -> View:
    """Selects a row; the window moves only if the row would be out of sight."""
    if row < 0:
        return replace(view, selected=-1, gap=None)
    begin, end = times(side, row)
    chosen = replace(view, selected=row, gap=None)
    if end <= view.begin or begin >= view.end:
        return go(side, chosen, (begin + end) // 2)
    return chosen


def zoom_to(side: Side, view: View) -> View:
    """A window in which the selection takes half of the width."""
    selection = held(side, view)
    if selection is None:
        return select_first(side, view)
    begin, end = selection
    return _about(side, view, begin, end, times=2)


def center(side: Side, view: View) -> View:
    """The selection in the middle of the window, at the same zoom."""
    selection = held(side, view)
    if selection is None:
        return view
    begin, end = selection
    return go(side, view, (begin + end) // 2)


def to_gap(side: Side, view: View, at: GapAt) -> View:
    """Selects a gap; the window becomes three times as long, unless it shows it well
    already."""
    begin, end = gap_times(side, at) or (view.begin, view.end)
    chosen = replace(view, selected=-1, gap=at)
    is_inside = begin >= view.begin and end <= view.end
    if is_inside and VISIBLE_PART * (end - begin) >= view.span:
        return chosen
    return _about(side, chosen, begin, end, 3)


def gap_of_time(side: Side, pid: Id, time: int) -> GapAt | None:
    """The gap of a device at a time (ns from the origin), if that is known."""
    device = side.insight.device(pid)
    if device < 0 or side.insight.idle is None:
        return None
    gap = side.insight.idle[device].gap_at(time + side.origin)
    return GapAt(device, gap) if gap >= 0 else None


def edge(side: Side, view: View, which: int) -> View:
    """The start (-1) or the end (+1) of the trace, at the same zoom."""
    begin = side.begin if which < 0 else side.end - view.span
    return _within(side, view, begin, view.span)


def next_slice(side: Side, view: View, step: int) -> View:
    """The next (+1) or previous (-1) slice on the line of the selected one."""
    if view.selected < 0:
        return select_first(side, view)
    lines = side.lanes[side.lane_of(view.selected)].lines
    line = lines[side.depth_of(view.selected)]
    # of the type of the column, which is not converted then
    selected = line.rows.dtype.type(view.selected)
    index = int(line.rows.searchsorted(selected)) + step
    if not 0 <= index < len(line):
        return view
    return select(side, view, int(line.rows[index]))


def next_line(side: Side, view: View, step: int) -> View:
    """The slice nearest to the selected one on the next line (+1 is down) with slices
    in sight."""
    if view.selected < 0:
        return select_first(side, view)
    shown = places(side, view)
    at = index_of(side, shown, view.selected)
    if step > 0:
        return _nearest_on(side, view, shown[at + 1 :])
    above = shown[: max(at, 0)]
    return _nearest_on(side, view, reversed(above))


def next_lane(side: Side, view: View, step: int) -> View:
    """The slice nearest to the selected one on the top line of the next lane (+1 is
    down) with slices in sight."""
    if view.selected < 0:
        return select_first(side, view)
    lane = side.lane_of(view.selected)
    top_lines = []
    for place in places(side, view):
        is_further = (place.lane - lane) * step > 0
        if is_further and place.depth in TOP_DEPTHS:
            top_lines.append(place)
    if step < 0:
        top_lines.reverse()
    return _nearest_on(side, view, top_lines)


def select_first(side: Side, view: View) -> View:
    """The slice nearest to the middle of the window, on the first line with slices in
    sight."""
    return _nearest_on(side, view, places(side, view))


def to_kernel(side: Side, view: View) -> View:
    """From a CPU slice to the first GPU event launched under it; the view itself where
    there is none."""
    row = view.selected
    if row < 0 or is_gpu(side.trace, row):
        return view
    launched = launched_under(side.trace, row)
    if not len(launched):
        return view
    return select(side, view, int(launched[0]))


def to_launch(side: Side, view: View) -> View:
    """From a GPU slice to its launch; from a CPU slice to the one around it. The view
    itself where there is none."""
    row = view.selected
    if row < 0:
        return view
    if side.trace.track_of(row).layer in GPU_LAYERS:
        target = issuer_of(side.trace, row)
    else:
        target = int(side.trace.parent[row])
    return select(side, view, target) if target >= 0 else view


def fold(side: Side, view: View) -> View:
    """Folds the lane of the selected row to the next of one line, some lines, all
    lines. If nothing is selected, folds the first lane with slices in sight. A
    selection that would be hidden moves to the last line that is shown."""
    if view.selected < 0:
        chosen = select_first(side, view)
        return fold(side, chosen) if chosen.selected >= 0 else view
    index = side.lane_of(view.selected)
    folds = list(view.folds)
    folds[index] = _next_fold(side.lanes[index], view.folds[index])
    return _seen(side, replace(view, folds=tuple(folds)), index)


def _next_fold(lane: Lane, now: int) -> int:
    """How many lines a lane shows at most after it was folded once more."""
    height = lane.shown(now)
    if height == lane.height:
        return FOLDED
    if height < lane.shown(lane.some):
        return lane.some
    return ALL


def _seen(side: Side, view: View, index: int) -> View:
    """The selection on one of the lines that its lane shows."""
    lane = side.lanes[index]
    last_depth = lane.shown(view.folds[index]) - 1
    if lane.has_where:
        last_depth -= 1  # the line of where the program was
        if last_depth >= 0:
            last_depth += spanning(side, view, index)
            last_depth = min(last_depth, len(lane.lines) - 1)
    if last_depth < 0 or side.depth_of(view.selected) <= last_depth:
        return view
    time = anchor(side, view) + side.origin
    line = lane.lines[last_depth]
    return replace(view, selected=int(line.rows[slice_near(line, time)]))


def anchor(side: Side, view: View) -> int:
    """What zooming keeps in place: the middle of the part of the selection that is in
    the window, else of the window; in ns from the origin."""
    selection = held(side, view)
    if selection:
        begin, end = selection
        if end > view.begin and begin < view.end:
            return (max(begin, view.begin) + min(end, view.end)) // 2
    return (view.begin + view.end) // 2


def _nearest_on(side: Side, view: View, candidates: Iterable[Place]) -> View:
    """Selects on the first place that has slices in the window; the view itself if none
    has."""
    time = anchor(side, view) + side.origin
    for place in candidates:
        if place.line is None or not in_sight(side, view, place.line):
            continue
        if place.where:
            borders = np.array([time, time + 1])
            frame = where_rows(side, place, borders)[0]
            if frame >= 0:
                return select(side, view, frame)
        nearest = slice_near(place.line, time)
        return select(side, view, int(place.line.rows[nearest]))
    return view


def _about(side: Side, view: View, begin: int, end: int, times: int) -> View:
    """A window `times` as long as an interval, which is in its middle."""
    span = _span(side, times * (end - begin))
    return _within(side, view, (begin + end - span) // 2, span)


def _span(side: Side, ns: int) -> int:
    """The nearest length that a window may have: not longer than the trace."""
    return max(MIN_SPAN_NS, min(ns, side.end - side.begin))


def _within(side: Side, view: View, begin: int, span: int) -> View:
    """A window of this span that overlaps the trace; at most half of it lies
    outside."""
    if span >= side.end - side.begin:
        earliest = side.begin
        latest = max(side.begin, side.end - span)
    else:
        earliest = side.begin - span // 2
        latest = side.end - span // 2
    begin = max(earliest, min(begin, latest))
    return replace(view, begin=begin, end=begin + span)
