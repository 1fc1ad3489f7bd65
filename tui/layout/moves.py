"""Every movement in a timeline, as a pure function from one view to the next."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from msgspec.structs import replace

from fusetui.analysis.questions.chain import is_gpu, issuer_of, launched_under
from fusetui.timeline.cells import slice_near
from fusetui.trace.model.categories import GPU_LAYERS
from fusetui.trace.model.ids import Id
from fusetui.tui.layout.lanes import ALL, FOLDED
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

SEEN = 10  # a gap is well visible if it takes at least 1 / SEEN of the window
TOP = (WHERE, 0)  # depths of the first line of a lane


def zoom(side: Side, view: View, numerator: int, denominator: int) -> View:
    """Scales the window by numerator / denominator around the anchor."""
    return zoom_at(side, view, anchor(side, view), numerator, denominator)


def zoom_at(
    side: Side, view: View, time: int, numerator: int, denominator: int
) -> View:
    """The same about a time, which stays where it is."""
    span = _span(side, view.span * numerator // denominator)
    return _within(side, view, time - (time - view.begin) * span // view.span, span)


def pan(side: Side, view: View, percent: int) -> View:
    """Moves the window by a share of itself; negative to the left."""
    shift = max(1, view.span * abs(percent) // 100) * (1 if percent > 0 else -1)
    return _within(side, view, view.begin + shift, view.span)


def fit(side: Side, view: View) -> View:
    return replace(view, begin=side.begin, end=side.end)


def go(side: Side, view: View, time: int) -> View:
    return _within(side, view, time - view.span // 2, view.span)


def at_time(side: Side, view: View, time: int) -> View:
    """`time` in the middle; from a window over the whole trace, in one of a tenth of
    it."""
    is_part = view.span < side.end - side.begin
    return go(side, view if is_part else zoom(side, view, 1, 10), time)


def over(side: Side, view: View, begin: int, end: int) -> View:
    """A window over this stretch of time, with a little around it."""
    margin = (end - begin) // 20
    return _within(side, view, begin - margin, _span(side, end - begin + 2 * margin))


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
    found = held(side, view)
    return _about(side, view, *found, 2) if found else select_first(side, view)


def center(side: Side, view: View) -> View:
    found = held(side, view)
    return go(side, view, sum(found) // 2) if found else view


def to_gap(side: Side, view: View, at: GapAt) -> View:
    """Selects a gap; the window becomes three times as long, unless it shows it well
    already."""
    begin, end = gap_times(side, at) or (view.begin, view.end)
    chosen = replace(view, selected=-1, gap=at)
    if begin >= view.begin and end <= view.end and SEEN * (end - begin) >= view.span:
        return chosen
    return _about(side, chosen, begin, end, 3)


def gap_of_time(side: Side, pid: Id, time: int) -> GapAt | None:
    """The gap of a device at a time (ns from the origin), if that is known."""
    device, idle = side.insight.device(pid), side.insight.idle or ()
    gap = idle[device].gap_at(time + side.origin) if device >= 0 else -1
    return GapAt(device, gap) if gap >= 0 else None


def edge(side: Side, view: View, which: int) -> View:
    """The start (-1) or the end (+1) of the trace, at the same zoom."""
    return _within(
        side, view, side.begin if which < 0 else side.end - view.span, view.span
    )


def next_slice(side: Side, view: View, step: int) -> View:
    """The next (+1) or previous (-1) slice on the line of the selected one."""
    if view.selected < 0:
        return select_first(side, view)
    line = side.lanes[side.lane_of(view.selected)].lines[side.depth_of(view.selected)]
    index = int(line.rows.searchsorted(line.rows.dtype.type(view.selected))) + step
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
    return _nearest_on(
        side, view, shown[at + 1 :] if step > 0 else reversed(shown[: max(at, 0)])
    )


def next_lane(side: Side, view: View, step: int) -> View:
    """The same, to the top line of the next lane."""
    if view.selected < 0:
        return select_first(side, view)
    lane = side.lane_of(view.selected)
    later = [
        p for p in places(side, view) if (p.lane - lane) * step > 0 and p.depth in TOP
    ]
    return _nearest_on(side, view, later if step > 0 else reversed(later))


def select_first(side: Side, view: View) -> View:
    """The slice nearest to the middle of the window, on the first line with slices in
    sight."""
    return _nearest_on(side, view, places(side, view))


def to_kernel(side: Side, view: View) -> View:
    """From a CPU slice to the first GPU event launched under it; repeated, to the next
    one."""
    row, trace = view.selected, side.trace
    if row < 0 or is_gpu(trace, row) or not len(launched := launched_under(trace, row)):
        return view
    return select(side, view, int(launched[0]))


def to_launch(side: Side, view: View) -> View:
    """From a GPU slice to its launch; from a CPU slice to the one around it."""
    row = view.selected
    if row < 0:
        return view
    below = side.trace.track_of(row).layer in GPU_LAYERS
    host = issuer_of(side.trace, row) if below else int(side.trace.parent[row])
    return select(side, view, host) if host >= 0 else view


def fold(side: Side, view: View) -> View:
    """Folds the lane of the selected row to the next of one line, some lines, all
    lines. If nothing is selected, folds the first lane with slices in sight. A
    selection that would be hidden moves to the last line that is shown."""
    if view.selected < 0:
        chosen = select_first(side, view)
        return fold(side, chosen) if chosen.selected >= 0 else view
    index = side.lane_of(view.selected)
    lane = side.lanes[index]
    now = lane.shown(view.folds[index])
    more = lane.some if now < lane.shown(lane.some) else ALL
    following = FOLDED if now == lane.height else more
    folds = (*view.folds[:index], following, *view.folds[index + 1 :])
    return _seen(side, replace(view, folds=folds), index)


def _seen(side: Side, view: View, lane: int) -> View:
    """The selection on one of the lines that a lane shows."""
    own = side.lanes[lane]
    last = own.shown(view.folds[lane]) - own.has_where - 1
    if own.has_where and last >= 0:
        last = min(last + spanning(side, view, lane), len(own.lines) - 1)
    if last < 0 or side.depth_of(view.selected) <= last:
        return view
    time = anchor(side, view) + side.origin
    line = side.lanes[lane].lines[last]
    return replace(view, selected=int(line.rows[slice_near(line, time)]))


def anchor(side: Side, view: View) -> int:
    """What zooming keeps in place: the visible middle of the selection, else of the
    window."""
    found = held(side, view)
    if found and found[1] > view.begin and found[0] < view.end:
        return (max(found[0], view.begin) + min(found[1], view.end)) // 2
    return (view.begin + view.end) // 2


def _nearest_on(side: Side, view: View, candidates: Iterable[Place]) -> View:
    """Selects on the first place that has slices in the window; the view itself if none
    has."""
    time = anchor(side, view) + side.origin
    for place in candidates:
        if place.line is None or not in_sight(side, view, place.line):
            continue
        row = (
            where_rows(side, place, np.array([time, time + 1]))[0]
            if place.where
            else -1
        )
        near = int(place.line.rows[slice_near(place.line, time)])
        return select(side, view, row if row >= 0 else near)
    return view


def _about(side: Side, view: View, begin: int, end: int, times: int) -> View:
    span = _span(side, times * (end - begin))
    return _within(side, view, (begin + end - span) // 2, span)


def _span(side: Side, ns: int) -> int:
    return max(MIN_SPAN_NS, min(ns, side.end - side.begin))


def _within(side: Side, view: View, begin: int, span: int) -> View:
    """A window of this span that overlaps the trace; at most half of it lies
    outside."""
    lowest, highest = side.begin - span // 2, side.end - span // 2
    if span >= side.end - side.begin:
        lowest, highest = side.begin, max(side.begin, side.end - span)
    begin = max(lowest, min(begin, highest))
    return replace(view, begin=begin, end=begin + span)
