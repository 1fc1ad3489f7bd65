"""Every movement in a timeline, as a pure function from one view to the next."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from msgspec.structs import replace

from fusetui.analysis.questions.chain import (
    find_issuer,
    find_launched_gpu_rows,
    is_gpu_event,
)
from fusetui.timeline.cells import find_nearest_slice
from fusetui.trace.model.arrays import NO_ROW
from fusetui.trace.model.categories import GPU_LAYERS
from fusetui.trace.model.ids import Id
from fusetui.tui.layout.lanes import ALL, FOLDED, Lane
from fusetui.tui.layout.places import (
    WHERE,
    count_spanning_lines,
    find_line_of_row,
    find_program_location,
    is_in_sight,
    places,
)
from fusetui.tui.layout.view import (
    MIN_SPAN_NS,
    GapAt,
    Place,
    Side,
    View,
    find_gap_times,
    find_selected_times,
    times,
)

VISIBLE_PART = 10  # a gap is well visible if it takes at least this part of the window
TOP_DEPTHS = (WHERE, 0)  # of the first line of a lane


def zoom(side: Side, view: View, numerator: int, denominator: int) -> View:
    """Scale the visible window by `numerator / denominator`. The middle of the
    selection stays in place, or without one that of the window."""
    return zoom_at(side, view, find_anchor(side, view), numerator, denominator)


def zoom_at(
    side: Side, view: View, time: int, numerator: int, denominator: int
) -> View:
    """Scale the visible window by `numerator / denominator`. `time` stays at the same
    column of the screen."""
    span = _limit_span(side, view.span * numerator // denominator)
    before_time = (time - view.begin) * span // view.span
    return _limit_window(side, view, time - before_time, span)


def pan(side: Side, view: View, percent: int) -> View:
    """Move the window by a percentage of its length: to the left if it is negative, and
    by at least 1 ns.

    The length stays the same. At most half of the window can lie outside of the trace.
    """
    distance = max(1, view.span * abs(percent) // 100)
    begin = view.begin + (distance if percent > 0 else -distance)
    return _limit_window(side, view, begin, view.span)


def fit(side: Side, view: View) -> View:
    """Return the view with a window over the whole trace."""
    return replace(view, begin=side.begin, end=side.end)


def go(side: Side, view: View, time: int) -> View:
    """Move the window so that `time` (in ns from the origin) is in its middle, at the
    same zoom."""
    return _limit_window(side, view, time - view.span // 2, view.span)


def show_time(side: Side, view: View, time: int) -> View:
    """Move the window so that `time` is in its middle. If the window shows the whole
    trace, zoom to a tenth of it first, because it could not move otherwise."""
    is_zoomed_in = view.span < side.end - side.begin
    return go(side, view if is_zoomed_in else zoom(side, view, 1, 10), time)


def over(side: Side, view: View, begin: int, end: int) -> View:
    """Show the interval from `begin` to `end`, with a margin of 5 % on both sides."""
    length = end - begin
    margin = length // 20
    span = _limit_span(side, length + 2 * margin)
    return _limit_window(side, view, begin - margin, span)


def select(side: Side, view: View, row: int) -> View:
    """Select a slice. The window moves only if the slice is outside of it. Row -1
    clears the selection."""
    if row == NO_ROW:
        return replace(view, selected=-1, gap=None)
    begin, end = times(side, row)
    with_selection = replace(view, selected=row, gap=None)
    if end <= view.begin or begin >= view.end:
        return go(side, with_selection, (begin + end) // 2)
    return with_selection


def zoom_to_selection(side: Side, view: View) -> View:
    """Zoom so that the selected slice or gap takes half of the window. If nothing is
    selected, select a slice first."""
    selection = find_selected_times(side, view)
    if selection is None:
        return select_first(side, view)
    begin, end = selection
    return _center_interval(side, view, begin, end, times=2)


def center(side: Side, view: View) -> View:
    """Move the window so that the selection is in its middle, at the same zoom. Without
    a selection the view stays as it is."""
    selection = find_selected_times(side, view)
    if selection is None:
        return view
    begin, end = selection
    return go(side, view, (begin + end) // 2)


def select_gap(side: Side, view: View, at: GapAt) -> View:
    """Select a gap, an interval without work on a device.

    If the gap is not well visible, the window becomes three times as long as the gap,
    with the gap in its middle. It is well visible if it lies in the window and takes at
    least 1/VISIBLE_PART of it.
    """
    begin, end = find_gap_times(side, at) or (view.begin, view.end)
    with_selection = replace(view, selected=-1, gap=at)
    is_inside = begin >= view.begin and end <= view.end
    if is_inside and VISIBLE_PART * (end - begin) >= view.span:
        return with_selection
    return _center_interval(side, with_selection, begin, end, 3)


def find_gap_at(side: Side, pid: Id, time: int) -> GapAt | None:
    """Return the gap of a device at a time in ns from the origin. None means that the
    device is busy then, or that its idle time is not known."""
    device = side.insight.device(pid)
    if device < 0 or side.insight.idle is None:
        return None
    gap = side.insight.idle[device].find_gap_at(time + side.origin)
    return GapAt(device, gap) if gap >= 0 else None


def go_to_end(side: Side, view: View, which: int) -> View:
    """Move the window to the start (`which` is -1) or the end (+1) of the trace, at the
    same zoom."""
    begin = side.begin if which < 0 else side.end - view.span
    return _limit_window(side, view, begin, view.span)


def select_next_slice(side: Side, view: View, step: int) -> View:
    """Select the next (`step` is +1) or previous (-1) slice on the line of the selected
    slice. At the last slice the view stays as it is. If nothing is selected, select a
    slice in the window."""
    if not view.has_selection:
        return select_first(side, view)
    lines = side.lanes[side.lane_of(view.selected)].lines
    line = lines[side.depth_of(view.selected)]
    # of the type of the column, which is not converted then
    selected = line.rows.dtype.type(view.selected)
    index = int(line.rows.searchsorted(selected)) + step
    if not 0 <= index < len(line):
        return view
    return select(side, view, int(line.rows[index]))


def select_on_next_line(side: Side, view: View, step: int) -> View:
    """Select the slice nearest in time to the selected one, on the next line down
    (`step` is +1) or up (-1). Lines without slices in the window are skipped."""
    if not view.has_selection:
        return select_first(side, view)
    all_lines = places(side, view)
    line_index = find_line_of_row(side, all_lines, view.selected)
    if step > 0:
        return _select_nearest(side, view, all_lines[line_index + 1 :])
    # `at` is -1 for a slice without a line
    lines_above = all_lines[: max(line_index, 0)]
    return _select_nearest(side, view, reversed(lines_above))


def select_in_next_lane(side: Side, view: View, step: int) -> View:
    """Select the slice nearest in time to the selected one, on the first line of the
    next lane down (`step` is +1) or up (-1).

    A lane holds the slices of one thread or stream. Lanes without slices in the window
    are skipped.
    """
    if not view.has_selection:
        return select_first(side, view)
    lane = side.lane_of(view.selected)
    top_lines = []
    for place in places(side, view):
        is_further = (place.lane - lane) * step > 0
        if is_further and place.depth in TOP_DEPTHS:
            top_lines.append(place)
    if step < 0:
        top_lines.reverse()
    return _select_nearest(side, view, top_lines)


def select_first(side: Side, view: View) -> View:
    """Select the slice nearest to the middle of the window, on the first line with
    slices there."""
    return _select_nearest(side, view, places(side, view))


def select_launched_kernel(side: Side, view: View) -> View:
    """Select the first GPU event that was launched under the selected CPU slice. If
    there is none, or a GPU event is selected, the view stays as it is."""
    row = view.selected
    if row == NO_ROW or is_gpu_event(side.trace, row):
        return view
    launched = find_launched_gpu_rows(side.trace, row)
    if not len(launched):
        return view
    return select(side, view, int(launched[0]))


def select_launch(side: Side, view: View) -> View:
    """Select the call that launched the selected GPU event, or the slice around the
    selected CPU slice. If there is none, the view stays as it is."""
    row = view.selected
    if row == NO_ROW:
        return view
    if side.trace.track_of(row).layer in GPU_LAYERS:
        target = find_issuer(side.trace, row)
    else:
        target = int(side.trace.parent[row])
    return select(side, view, target) if target >= 0 else view


def fold(side: Side, view: View) -> View:
    """Change how many lines the lane of the selected slice shows: one, some, or all, in
    turn.

    A lane holds the slices of one thread or stream, a line for each nesting depth. If
    nothing is selected, the first lane with slices in the window changes. If the
    selected slice would be hidden, one on the last visible line is selected instead.
    """
    if not view.has_selection:
        with_selection = select_first(side, view)
        return fold(side, with_selection) if with_selection.has_selection else view
    lane_index = side.lane_of(view.selected)
    folds = list(view.folds)
    folds[lane_index] = _choose_next_fold(
        side.lanes[lane_index], view.folds[lane_index]
    )
    return _keep_selection_visible(side, replace(view, folds=tuple(folds)), lane_index)


def _choose_next_fold(lane: Lane, now: int) -> int:
    """Return the maximum number of lines of a lane after it is folded or unfolded once
    more. `now` is the present maximum."""
    height = lane.shown(now)
    if height == lane.height:
        return FOLDED
    if height < lane.shown(lane.some):
        return lane.some
    return ALL


def _keep_selection_visible(side: Side, view: View, index: int) -> View:
    """Return the view with the selection on a visible line of a lane, after the lane
    was folded.

    If the selected slice lies too deep, the slice nearest in time on the deepest
    visible line is selected. Outer lines that are left out do not count.
    """
    lane = side.lanes[index]
    last_depth = lane.shown(view.folds[index]) - 1
    if lane.has_where:
        last_depth -= 1  # the line of where the program was
        if last_depth >= 0:
            last_depth += count_spanning_lines(side, view, index)
            last_depth = min(last_depth, len(lane.lines) - 1)
    if last_depth < 0 or side.depth_of(view.selected) <= last_depth:
        return view
    time = find_anchor(side, view) + side.origin
    line = lane.lines[last_depth]
    return replace(view, selected=int(line.rows[find_nearest_slice(line, time)]))


def find_anchor(side: Side, view: View) -> int:
    """Return the time that stays in place while zooming, in ns from the origin.

    It is the middle of the visible part of the selection. If no part of it is visible,
    it is the middle of the window.
    """
    selection = find_selected_times(side, view)
    if selection:
        begin, end = selection
        if end > view.begin and begin < view.end:
            return (max(begin, view.begin) + min(end, view.end)) // 2
    return (view.begin + view.end) // 2


def _select_nearest(side: Side, view: View, candidates: Iterable[Place]) -> View:
    """Select the slice nearest in time to the middle of the selection or window, on the
    first line with slices in the window.

    `candidates` are the lines to try, in this order. If none has slices there, the view
    stays as it is.
    """
    time = find_anchor(side, view) + side.origin
    for place in candidates:
        if place.line is None or not is_in_sight(side, view, place.line):
            continue
        if place.where:
            borders = np.array([time, time + 1])
            frame = find_program_location(side, place, borders)[0]
            if frame >= 0:
                return select(side, view, frame)
        nearest_index = find_nearest_slice(place.line, time)
        return select(side, view, int(place.line.rows[nearest_index]))
    return view


def _center_interval(side: Side, view: View, begin: int, end: int, times: int) -> View:
    """Show an interval in the middle of a window that is `times` as long.

    The interval is in ns from the origin. The window is limited to the length of the
    trace.
    """
    span = _limit_span(side, times * (end - begin))
    return _limit_window(side, view, (begin + end - span) // 2, span)


def _limit_span(side: Side, ns: int) -> int:
    """Limit the length of a window: not shorter than MIN_SPAN_NS, and not longer than
    the trace."""
    return max(MIN_SPAN_NS, min(ns, side.end - side.begin))


def _limit_window(side: Side, view: View, begin: int, span: int) -> View:
    """Return the view with a window from `begin` of length `span`, moved so that at
    most half of it lies outside of the trace.

    A window at least as long as the trace is aligned with it.
    """
    # the window shows the whole trace: there is nothing to scroll
    if span >= side.end - side.begin:
        earliest = side.begin
        latest = max(side.begin, side.end - span)
    else:
        earliest = side.begin - span // 2
        latest = side.end - span // 2
    begin = max(earliest, min(begin, latest))
    return replace(view, begin=begin, end=begin + span)
