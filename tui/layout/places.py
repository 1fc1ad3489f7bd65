"""The lines of a timeline that result from a side and a view of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import Lock

import numpy as np
from msgspec.structs import replace

from fusetui.text.figures import percent
from fusetui.trace.cells.raster import Line
from fusetui.trace.model.categories import Layer
from fusetui.tui.layout.arrangement import arranged, hidden_names
from fusetui.tui.layout.kinds import KINDS
from fusetui.tui.layout.lanes import LAYER_LABELS, Lane
from fusetui.tui.layout.view import HIDDEN, Family, Place, Side, View

IDLE_LABEL = "idle because"
HIDDEN_LABEL = "folded"
WHERE = -2  # instead of a depth
MOST_FAMILIES = 6  # lines below a stream
SPANS = 200  # part of the window that a slice which spans it may leave out at either end
KEPT = 4  # views of which the lines are kept
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
    first = spanning(side, view, index) if lane.has_where else 0
    depths = list(range(first, len(lane.lines)))[: count - lane.has_where]
    if own and not lane.has_where and depth_in_lane(side, view.selected) >= count:
        depths.append(depth_in_lane(side, view.selected))
    found = [Place(index, WHERE, where_label(label), lane.lines[0], where=True)] * lane.has_where
    found += [
        Place(index, n, "" if n > first else label, lane.lines[n], around=0 if n > first else first)
        for n in depths
    ]
    named = len(found) + (first if depths else 0)
    last = replace(found[-1], more=lane.height - named)
    return [*found[:-1], last, *(_families(lane) if view.arranged.families else ())]


def spanning(side: Side, view: View, index: int) -> int:
    """How many lines of a lane of Python frames, from its outermost one on, are named on the line
    below them: where one slice spans the whole window, nothing of it changes there. The line of the
    selected slice is none of them."""
    lines = side.lanes[index].lines
    begin, end = view.begin + side.origin, view.end + side.origin
    edge = view.span // SPANS
    most = len(lines)
    if _lane_of(side, view.selected) == index:
        most = depth_in_lane(side, view.selected)
    first = np.int64(begin + edge)  # of the type of the columns: none is converted
    for depth in range(most):
        line = lines[depth]
        at = line.start.searchsorted(first, side="right") - 1
        if at < 0 or line.end[at] < end - edge:
            return max(0, depth - 1)
    return max(0, most - 1)


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


def _lane_in_sight(side: Side, view: View, lane: Lane) -> bool:
    return any(in_sight(side, view, line) for line in lane.lines.tops)


def in_sight(side: Side, view: View, line: Line) -> bool:
    first = int(line.end.searchsorted(view.begin + side.origin, side="right"))
    return first < len(line) and int(line.start[first]) < view.end + side.origin
