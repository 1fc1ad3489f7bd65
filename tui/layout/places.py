"""The lines of a timeline for a side and its view."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui.text.figures import percent
from fusetui.timeline.cells import DepthRow, KindSlices, deepest
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
    hidden_names,
    main_lane,
)
from fusetui.tui.layout.view import (
    HIDDEN,
    NO_LANE,
    TEXT_ONLY,
    Place,
    Side,
    View,
    text_place,
)

IDLE_LABEL = "idle reason"
WHERE = -2  # instead of the depth of the line of where the program was
FIRST_IDLE = -2  # less the index of a stream: instead of the depth of its idle time
MAX_FAMILIES = 6  # lines below a stream
SPANNING_PART = 200
"""A slice spans the window if it leaves out less than this part at either end."""


@memo(4)
def places(side: Side, view: View) -> tuple[Place, ...]:
    """All lines of the timeline, from top to bottom, whether they fit on the screen or
    not: pinned lanes, the groups, the counters, and the names of what is hidden."""
    lines: list[Place] = []
    for index in view.arranged.pinned:
        lines += _lane_places(side, view, index, side.lanes[index].title)
    lane_of_selection = side.lane_of(view.selected)
    for group, indices in arranged(side.lanes, view.arranged, lane_of_selection):
        lines += _group_places(side, view, group, indices)
    lines += side.counter_places
    hidden = view.arranged.hidden - {lane_of_selection}
    if hidden:
        names = "   ".join(hidden_names(side.lanes, hidden))
        lines.append(text_place(f"folded: {names}", HIDDEN))
    return tuple(lines)


def _group_places(
    side: Side, view: View, group: str, indices: Sequence[int]
) -> Iterator[Place]:
    """The lines of the lanes of one thread or device, below its name if there are
    several; below those of a GPU one line for why it was idle, also before that is
    known."""
    is_nested = len(indices) > 1
    if is_nested:
        yield Place(lane=indices[0], depth=TEXT_ONLY, label=group, line=None)
    for index in indices:
        lane = side.lanes[index]
        label = f" {lane.label}" if is_nested else lane.title
        yield from _lane_places(side, view, index, label)
    for index in indices:
        lane = side.lanes[index]
        if lane.layer is Layer.STREAM:  # the first stream stands for its device
            label = f" {IDLE_LABEL}" if is_nested else IDLE_LABEL
            depth = FIRST_IDLE - index
            yield Place(NO_LANE, depth, label, line=None, idle_of=lane)
            return


def index_of(side: Side, shown: Sequence[Place], row: int) -> int:
    """The index of a row's line among the places, else that of the line of where the
    program was; -1 if neither is there."""
    lane = side.lane_of(row)
    depth = side.depth_of(row) if lane >= 0 else -1
    index_of_depth = {}
    for index, place in enumerate(shown):
        if place.line and place.lane == lane:
            index_of_depth[place.depth] = index
    return index_of_depth.get(depth, index_of_depth.get(WHERE, -1))


def same_line(old: Side, place: Place, new: Side, shown: Sequence[Place]) -> int:
    """The index of a line among the places of a side that shows more; 0 if it is not
    there."""
    identity = _identity(old, place)
    for index, candidate in enumerate(shown):
        if _identity(new, candidate) == identity:
            return index
    return 0


def _identity(side: Side, place: Place) -> tuple[object, int]:
    """What identifies a line on any side with its lane: the lane, or a label where it
    belongs to none, and the depth."""
    of = place.label if place.lane < 0 else side.lanes[place.lane].key
    return of, place.depth


def _lane_places(side: Side, view: View, index: int, label: str) -> list[Place]:
    """The lines of a lane; that of the selection is there however deep it lies, unless
    the line of where the program was shows it."""
    lane = side.lanes[index]
    first = spanning(side, view, index) if lane.has_where else 0
    depths = _shown_depths(side, view, index, first)
    lines = [_depth_place(lane, index, depth, first, label) for depth in depths]
    if lane.has_where:
        # the label may be the name of a thread
        where = label.replace(LAYER_LABELS[Layer.PYTHON], "modules")
        lines.insert(0, Place(index, WHERE, where, lane.lines[0], where=True))
    named = len(lines)
    if depths:
        named += first  # those above the first depth are named on its line
    lines[-1] = replace(lines[-1], more=lane.height - named)
    if view.arranged.families:
        lines += _families(lane)
    return lines


def _depth_place(lane: Lane, index: int, depth: int, first: int, label: str) -> Place:
    """The line of one depth of a lane; the line of the `first` depth that is shown has
    the label, and names those around it."""
    line = lane.lines[depth]
    if depth > first:
        return Place(index, depth, "", line)
    return Place(index, depth, label, line, around=first)


def _shown_depths(side: Side, view: View, index: int, first: int) -> list[int]:
    """The depths of a lane that have a line, from `first` on: as many as its fold says,
    a single one for a lane without slices in the window."""
    lane = side.lanes[index]
    has_selection = side.lane_of(view.selected) == index
    is_seen = has_selection or any(
        in_sight(side, view, line) for line in lane.lines.tops
    )
    height = lane.shown(view.folds[index]) if is_seen else 1
    lines_of_depths = height - 1 if lane.has_where else height
    depths = list(range(first, len(lane.lines)))[:lines_of_depths]
    if has_selection and not lane.has_where:
        selected_depth = side.depth_of(view.selected)
        if selected_depth >= height:
            depths.append(selected_depth)
    return depths


def spanning(side: Side, view: View, index: int) -> int:
    """How many lines of a lane of Python frames, from its outermost one on, are named
    on the line below them: where one slice spans the whole window, nothing of it
    changes there. The line of the selected slice is none of them."""
    lines = side.lanes[index].lines
    has_selection = side.lane_of(view.selected) == index
    depths = side.depth_of(view.selected) if has_selection else len(lines)
    for depth in range(depths):
        if not _has_spanning_slice(side, view, lines[depth]):
            return max(0, depth - 1)
    return max(0, depths - 1)


def _has_spanning_slice(side: Side, view: View, line: DepthRow) -> bool:
    """Whether one slice of a line spans the window, but for a margin at either end."""
    begin = view.begin + side.origin
    end = view.end + side.origin
    margin = view.span // SPANNING_PART
    # of the type of the columns: none is converted
    latest_start = np.int64(begin + margin)
    last_started = int(line.start.searchsorted(latest_start, side="right")) - 1
    if last_started < 0:
        return False
    return bool(line.end[last_started] >= end - margin)


def _families(lane: Lane) -> Iterator[Place]:
    """A line for each kind of slices on the outermost line of a GPU stream, at most
    MAX_FAMILIES, the kinds with the most time first, each with its share of the time of
    all slices there. Nothing for other lanes."""
    if lane.layer is not Layer.STREAM:
        return
    line = lane.lines[0]
    whole_ns = int(line.ns_before[-1])
    by_time = sorted(line.kinds, key=_time_of_kind, reverse=True)
    for kind in by_time[:MAX_FAMILIES]:
        name = KINDS[kind.kind].removeprefix("gpu-")
        share = percent(_time_of_kind(kind), whole_ns)
        label = f"  {name} {share}"
        family = (line, kind.kind)
        yield Place(NO_LANE, TEXT_ONLY, label, line=None, family=family)


def _time_of_kind(slices: KindSlices) -> int:
    """The durations of the slices of one kind added up, in ns."""
    return int(slices.ns_before[-1])


def in_sight(side: Side, view: View, line: DepthRow) -> bool:
    """Whether any slice of a line lies in the window, if only in part."""
    begin = view.begin + side.origin
    end = view.end + side.origin
    first_that_ends_later = int(line.end.searchsorted(begin, side="right"))
    if first_that_ends_later == len(line):
        return False
    return int(line.start[first_that_ends_later]) < end


MIN_FRAME_CELLS = 4  # of a frame that is named
INSIDE_EVERY_MODULE = (": forward", ": _call_impl", ": _wrapped_call_impl")
"""Frames that every module has; the module around them says more."""


def where_rows(side: Side, place: Place, borders: NDArray[np.int64]) -> list[int]:
    """The frame in which the program was in each cell between two neighbors of
    `borders` (ns of the file): the deepest that is long enough to be named, or the
    module around it. -1 for none."""
    tracks = side.lanes[place.lane].tracks
    main_track = max(tracks, key=len)  # sub-rows hold what does not nest
    cell_ns = int(borders[1] - borders[0])
    least_ns = MIN_FRAME_CELLS * cell_ns
    rows = deepest(side.trace, main_track, borders, least_ns).tolist()
    module_of = {row: _module(side.trace, row) for row in set(rows)}
    return [module_of[row] for row in rows]


def marks_selection(side: Side, view: View, place: Place) -> bool:
    """Whether the selected slice is a frame of the thread of this line, which shows
    where the program was, and has no line of its own."""
    if view.selected < 0 or side.lane_of(view.selected) != place.lane:
        return False
    lane = side.lanes[place.lane]
    lines_of_frames = lane.shown(view.folds[place.lane]) - 1
    first_depth = 0
    for shown in places(side, view):
        if shown.lane == place.lane and not shown.where:
            first_depth = shown.around
            break
    return side.depth_of(view.selected) >= first_depth + lines_of_frames


def _module(trace: Trace, row: int) -> int:
    """The module of which a frame is the `forward` or the call; else the frame itself,
    also for -1."""
    around = row
    while around >= 0 and trace.name_of(around).endswith(INSIDE_EVERY_MODULE):
        around = int(trace.parent[around])
    if around >= 0 and is_module(trace.name_of(around)):
        return around
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


def fitted(side: Side, view: View, lines: int) -> View:
    """The view for a screen with so many lines for lanes: folded until the main GPU
    stream is seen, then unfolded as far as there is room."""
    view = _with_stream(side, view, lines)
    shown = places(side, view)
    heights = Counter(place.lane for place in shown if place.line)
    folds = list(view.folds)
    spare = lines - len(shown)
    for lane in _in_unfolding_order(side, heights):
        more = min(spare, side.lanes[lane].height - heights[lane])
        if more > 0:
            folds[lane] = heights[lane] + more
            spare -= more
    return replace(view, folds=tuple(folds))


def _in_unfolding_order(side: Side, lanes: Iterable[int]) -> list[int]:
    """Lanes in the order in which they unfold."""
    return sorted(lanes, key=lambda n: UNFOLDED_FIRST.index(side.lanes[n].layer))


def _with_stream(side: Side, view: View, lines: int) -> View:
    """As many lanes above the main stream folded, the tallest first, as it takes for it
    and why the GPU was idle to be seen, else for the stream; where that is not enough,
    all of them."""
    shown = places(side, view)
    main = main_lane(side.lanes)
    stream_lines = [
        index for index, place in enumerate(shown) if place.line and place.lane == main
    ]
    if not stream_lines:
        return view
    above = shown[: stream_lines[0]]
    heights = Counter(place.lane for place in above if place.line)
    last_of_stream = stream_lines[-1]
    idle_line = _idle_line_of(shown, side.lanes[main].pid)
    last_wanted = idle_line if idle_line >= 0 else last_of_stream
    folded = _folded_above(view, heights, last_wanted + 1 - lines)
    if not folded.is_enough:
        folded = _folded_above(view, heights, last_of_stream + 1 - lines)
    return replace(view, folds=folded.folds)


def _idle_line_of(shown: Sequence[Place], pid: Id) -> int:
    """The index of the line of why a device was idle; -1 for none."""
    for index, place in enumerate(shown):
        if place.idle_of and place.idle_of.pid == pid:
            return index
    return -1


class _Folded(NamedTuple):
    """Folds of all lanes, and whether they save as many lines as they should."""

    folds: tuple[int, ...]
    is_enough: bool


def _folded_above(view: View, heights: Counter[int], excess: int) -> _Folded:
    """The folds of the view with as many of these lanes folded, the tallest first, as
    save `excess` lines. `heights`: lines, by lane."""
    folds = list(view.folds)
    for lane, height in heights.most_common():
        if excess > 0:
            folds[lane] = FOLDED
            excess -= height - 1
    return _Folded(tuple(folds), excess <= 0)
