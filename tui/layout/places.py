"""The lines of a timeline for a side and its view."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui.text.figures import percent
from fusetui.timeline.cells import DepthRow, KindSlices, deepest_rows
from fusetui.trace.model.arrays import NO_ROW
from fusetui.trace.model.categories import Layer
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id
from fusetui.trace.model.memo import memo
from fusetui.trace.program.regions import is_module
from fusetui.tui.layout.kinds import KINDS
from fusetui.tui.layout.lanes import (
    FOLDED,
    LAYER_LABELS,
    Lane,
    arranged,
    find_main_lane,
    name_hidden_lanes,
)
from fusetui.tui.layout.view import (
    HIDDEN,
    NO_LANE,
    TEXT_ONLY,
    Place,
    Side,
    View,
    make_text_place,
)

IDLE_LABEL = "idle reason"
WHERE = -2  # instead of the depth of the line of where the program was
FIRST_IDLE = -2  # less the index of a stream: instead of the depth of its idle time
MAX_FAMILIES = 6  # lines below a stream
SPANNING_PART = 200
"""A slice spans the window if it leaves out less than this part at either end."""


@memo(4)
def places(side: Side, view: View) -> tuple[Place, ...]:
    """Return all lines of the timeline from top to bottom, whether they fit on the
    screen or not.

    First come pinned lanes, then the lanes of each thread or device, then counters. The
    last line names the hidden lanes, if there are any. The lane of the selected slice
    is shown even if it is hidden.
    """
    lines: list[Place] = []
    for index in view.arranged.pinned:
        lines += _list_lane_places(side, view, index, side.lanes[index].title)
    lane_of_selection = side.lane_of(view.selected)
    for group, indices in arranged(side.lanes, view.arranged, lane_of_selection):
        lines += _list_group_places(side, view, group, indices)
    lines += side.counter_places
    hidden = view.arranged.hidden - {lane_of_selection}
    if hidden:
        names = "   ".join(name_hidden_lanes(side.lanes, hidden))
        lines.append(make_text_place(f"folded: {names}", HIDDEN))
    return tuple(lines)


def _list_group_places(
    side: Side, view: View, group: str, indices: Sequence[int]
) -> Iterator[Place]:
    """Generate the lines of the lanes that belong to one thread or device.

    Several lanes are indented below the name of the group. Below the streams of a GPU
    comes one line for the reasons why it was idle. It is there before these reasons are
    known, so that no line moves then.
    """
    has_heading = len(indices) > 1
    if has_heading:
        yield Place(lane=indices[0], depth=TEXT_ONLY, label=group, line=None)
    for index in indices:
        lane = side.lanes[index]
        label = f" {lane.label}" if has_heading else lane.title
        yield from _list_lane_places(side, view, index, label)
    for index in indices:
        lane = side.lanes[index]
        if lane.layer is Layer.STREAM:  # the first stream stands for its device
            label = f" {IDLE_LABEL}" if has_heading else IDLE_LABEL
            depth = FIRST_IDLE - index
            yield Place(NO_LANE, depth, label, line=None, idle_of=lane)
            return


def find_line_of_row(side: Side, shown: Sequence[Place], row: int) -> int:
    """Return the index of the line that shows a slice, or -1 if none does.

    A Python frame without a line of its own counts as shown by the line of the current
    module. `shown` are all lines of the timeline.
    """
    lane = side.lane_of(row)
    depth = side.depth_of(row) if lane >= 0 else -1
    line_of_depth = {}
    for index, place in enumerate(shown):
        if place.line and place.lane == lane:
            line_of_depth[place.depth] = index
    return line_of_depth.get(depth, line_of_depth.get(WHERE, -1))


def find_same_line(old: Side, place: Place, new: Side, shown: Sequence[Place]) -> int:
    """Return the index of the same line after more of a trace has been read, or 0 if it
    is gone.

    `place` is a line of the side `old`, and `shown` are the lines of the side `new`. A
    side is one trace with its lanes.
    """
    identity = _identify_place(old, place)
    for index, candidate in enumerate(shown):
        if _identify_place(new, candidate) == identity:
            return index
    return 0


def _identify_place(side: Side, place: Place) -> tuple[object, int]:
    """Return what identifies a line in any part of a trace: its lane (or its label, if
    it belongs to no lane) and its depth."""
    owner = place.label if place.lane < 0 else side.lanes[place.lane].key
    return owner, place.depth


def _list_lane_places(side: Side, view: View, index: int, label: str) -> list[Place]:
    """Return the lines of one lane from top to bottom.

    They are as many depths as the lane shows at present, and that of the selected
    slice. A lane of Python frames begins with a line for the current module, and leaves
    out outer frames that span the whole window. The last line has the number of hidden
    lines.
    """
    lane = side.lanes[index]
    first_depth = count_spanning_lines(side, view, index) if lane.has_where else 0
    depths = _choose_depths(side, view, index, first_depth)
    lane_lines = []
    if lane.has_where:
        # the label may be the name of a thread
        module_label = label.replace(LAYER_LABELS[Layer.PYTHON], "modules")
        lane_lines.append(Place(index, WHERE, module_label, lane.lines[0], where=True))
    for depth in depths:
        lane_lines.append(_make_depth_place(lane, index, depth, first_depth, label))
    named_lines = len(lane_lines)
    if depths:
        named_lines += first_depth  # those above the first depth are named on its line
    hidden_lines = lane.height - named_lines
    lane_lines[-1] = replace(lane_lines[-1], more=hidden_lines)
    if view.arranged.families:
        lane_lines += _list_kind_lines(lane)
    return lane_lines


def _make_depth_place(
    lane: Lane, index: int, depth: int, first: int, label: str
) -> Place:
    """Make the line for one nesting depth of a lane. The line of the first visible
    depth (`first`) has the label of the lane; it also stands for the outer depths,
    which are hidden."""
    line = lane.lines[depth]
    if depth > first:
        return Place(index, depth, "", line)
    return Place(index, depth, label, line, around=first)


def _choose_depths(side: Side, view: View, index: int, first: int) -> list[int]:
    """Return the nesting depths of a lane that get a line, beginning with `first`.

    There are as many as the lane is unfolded to, but only one if no slice of it is in
    the window. The depth of the selected slice is added if it lies deeper, unless a
    line for the current module shows it.
    """
    lane = side.lanes[index]
    has_selection = side.lane_of(view.selected) == index
    is_visible = has_selection or any(
        is_in_sight(side, view, line) for line in lane.lines.tops
    )
    line_count = lane.shown(view.folds[index]) if is_visible else 1
    # the line of the current module takes one of them
    lines_of_depths = line_count - 1 if lane.has_where else line_count
    depths = list(range(first, len(lane.lines)))[:lines_of_depths]
    if has_selection and not lane.has_where:
        selected_depth = side.depth_of(view.selected)
        if selected_depth >= line_count:
            depths.append(selected_depth)
    return depths


def count_spanning_lines(side: Side, view: View, index: int) -> int:
    """Return how many outer lines of a lane of Python frames are left out, because one
    slice of each spans the whole window.

    Such lines look the same everywhere, and the line below them names their frames
    instead. The line of the selected slice, and those below it, are never left out.
    """
    lines = side.lanes[index].lines
    has_selection = side.lane_of(view.selected) == index
    candidate_depths = side.depth_of(view.selected) if has_selection else len(lines)
    for depth in range(candidate_depths):
        if not _has_spanning_slice(side, view, lines[depth]):
            return max(0, depth - 1)
    return max(0, candidate_depths - 1)


def _has_spanning_slice(side: Side, view: View, line: DepthRow) -> bool:
    """Tell whether a slice of a line spans the window, except for a margin of
    1/SPANNING_PART at both ends."""
    begin = view.begin + side.origin
    end = view.end + side.origin
    margin = view.span // SPANNING_PART
    # of the type of the columns: none is converted
    latest_start = np.int64(begin + margin)
    last_started = int(line.start.searchsorted(latest_start, side="right")) - 1
    if last_started < 0:
        return False
    return bool(line.end[last_started] >= end - margin)


def _list_kind_lines(lane: Lane) -> Iterator[Place]:
    """Generate a line for each kind of kernels on a GPU stream, with its share of their
    time.

    The kinds with the most time come first, at most MAX_FAMILIES. Nothing is generated
    for other lanes.
    """
    if lane.layer is not Layer.STREAM:
        return
    line = lane.lines[0]
    whole_ns = int(line.ns_before[-1])
    by_time = sorted(line.kinds, key=_sum_kind_ns, reverse=True)
    for kind in by_time[:MAX_FAMILIES]:
        name = KINDS[kind.kind].removeprefix("gpu-")
        share = percent(_sum_kind_ns(kind), whole_ns)
        label = f"  {name} {share}"
        family = (line, kind.kind)
        yield Place(NO_LANE, TEXT_ONLY, label, line=None, family=family)


def _sum_kind_ns(slices: KindSlices) -> int:
    """Return the total duration of the slices of one kind in ns."""
    return int(slices.ns_before[-1])


def is_in_sight(side: Side, view: View, line: DepthRow) -> bool:
    """Tell whether a line has a slice in the window, even if only part of it."""
    begin = view.begin + side.origin
    end = view.end + side.origin
    first_that_ends_later = int(line.end.searchsorted(begin, side="right"))
    if first_that_ends_later == len(line):
        return False
    return int(line.start[first_that_ends_later]) < end


MIN_FRAME_CELLS = 4  # of a frame that is named
INSIDE_EVERY_MODULE = (": forward", ": _call_impl", ": _wrapped_call_impl")
"""Frames that every module has; the module around them says more."""


def find_program_location(
    side: Side, place: Place, borders: NDArray[np.int64]
) -> list[int]:
    """Return the Python frame or module that the program was in, for each cell of the
    time axis.

    It is the deepest frame that is at least MIN_FRAME_CELLS wide, so that there is room
    for its name. If that frame only implements a module (`forward`), it is the module.
    -1 means that no frame was recorded.

    Args:
        side: The trace and its lanes.
        place: The line of a thread.
        borders: The edges of the cells in ns of the file, one more than there are
            cells.
    """
    tracks = side.lanes[place.lane].tracks
    main_track = max(tracks, key=len)  # sub-rows hold what does not nest
    cell_ns = int(borders[1] - borders[0])
    min_frame_ns = MIN_FRAME_CELLS * cell_ns
    rows = deepest_rows(side.trace, main_track, borders, min_frame_ns).tolist()
    module_of = {row: _find_module(side.trace, row) for row in set(rows)}
    return [module_of[row] for row in rows]


def marks_selection(side: Side, view: View, place: Place) -> bool:
    """Tell whether the selected slice is shown only by the line of the current module,
    because the line of its own depth is hidden."""
    if not view.has_selection or side.lane_of(view.selected) != place.lane:
        return False
    lane = side.lanes[place.lane]
    visible_depths = lane.shown(view.folds[place.lane]) - 1
    first_depth = 0
    for shown in places(side, view):
        if shown.lane == place.lane and not shown.where:
            first_depth = shown.around
            break
    return side.depth_of(view.selected) >= first_depth + visible_depths


def _find_module(trace: Trace, row: int) -> int:
    """Return the module that a Python frame implements (as its `forward` or call), or
    the frame itself if it is another function. -1 is returned as it is."""
    outer_row = row
    while outer_row != NO_ROW and trace.name_of(outer_row).endswith(
        INSIDE_EVERY_MODULE
    ):
        outer_row = int(trace.parent[outer_row])
    if outer_row != NO_ROW and is_module(trace.name_of(outer_row)):
        return outer_row
    return row


UNFOLDED_FIRST = (
    Layer.STREAM,
    Layer.DEVICE,
    Layer.OPS,
    Layer.ANNOTATIONS,
    Layer.OTHER,
    Layer.PYTHON,
    Layer.GPU_ANNOTATIONS,
    Layer.SYNC,
)
"""The order in which lanes unfold while there is room."""


def fit_folds(side: Side, view: View, lines: int) -> View:
    """Return the view with lanes folded and unfolded for a screen with `lines` lines.

    Lanes above the busiest GPU stream are folded until it is visible. Then lanes are
    unfolded while there is room, in the order of UNFOLDED_FIRST.
    """
    view = _fold_above_stream(side, view, lines)
    shown = places(side, view)
    heights = Counter(place.lane for place in shown if place.line)
    folds = list(view.folds)
    free_lines = lines - len(shown)
    for lane in _sort_for_unfolding(side, heights):
        added_lines = min(free_lines, side.lanes[lane].height - heights[lane])
        if added_lines > 0:
            folds[lane] = heights[lane] + added_lines
            free_lines -= added_lines
    return replace(view, folds=tuple(folds))


def _sort_for_unfolding(side: Side, lanes: Iterable[int]) -> list[int]:
    """Return lanes in the order in which they are unfolded while there is room; see
    UNFOLDED_FIRST."""
    return sorted(lanes, key=lambda n: UNFOLDED_FIRST.index(side.lanes[n].layer))


def _fold_above_stream(side: Side, view: View, lines: int) -> View:
    """Return the view with lanes folded so that the busiest GPU stream is visible.

    The tallest lanes above it are folded first, and no more than needed. The line of
    the reasons why that GPU was idle should be visible too. If that is impossible,
    lanes are folded for the stream alone.
    """
    shown = places(side, view)
    stream_lane = find_main_lane(side.lanes)
    stream_lines = []
    for index, place in enumerate(shown):
        if place.line and place.lane == stream_lane:
            stream_lines.append(index)
    if not stream_lines:
        return view
    first_of_stream = stream_lines[0]
    last_of_stream = stream_lines[-1]
    lanes_above = [place.lane for place in shown[:first_of_stream] if place.line]
    height_of_lane = Counter(lanes_above)
    idle_line = _find_idle_line(shown, side.lanes[stream_lane].pid)
    if idle_line is not None:
        folded = _fold_tallest(view, height_of_lane, idle_line + 1 - lines)
        if folded.is_enough:
            return replace(view, folds=folded.folds)
    folded = _fold_tallest(view, height_of_lane, last_of_stream + 1 - lines)
    return replace(view, folds=folded.folds)


def _find_idle_line(shown: Sequence[Place], pid: Id) -> int | None:
    """Return the index of the line that shows why a device was idle, or None if there
    is none. `pid` is the id of the device."""
    for index, place in enumerate(shown):
        if place.idle_of and place.idle_of.pid == pid:
            return index
    return None


class _Folded(NamedTuple):
    """Folds of all lanes, and whether they save as many lines as they should."""

    folds: tuple[int, ...]
    is_enough: bool


def _fold_tallest(view: View, heights: Counter[int], excess: int) -> _Folded:
    """Return the folds of all lanes after folding some to one line, the tallest first,
    to save `excess` lines.

    `heights` has the number of lines of each lane that may be folded. The result also
    tells whether that saves enough.
    """
    folds = list(view.folds)
    for lane, height in heights.most_common():
        if excess > 0:
            folds[lane] = FOLDED
            excess -= height - 1
    return _Folded(tuple(folds), excess <= 0)
