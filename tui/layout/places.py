"""The lines of a timeline that result from a side and a view of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui.text.figures import percent
from fusetui.timeline.cells import DepthRow, deepest
from fusetui.trace.model.categories import Layer
from fusetui.trace.model.columns import Trace
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
from fusetui.tui.layout.view import HIDDEN, Place, Side, View

IDLE_LABEL = "idle reason"
WHERE = -2  # instead of a depth
MOST_FAMILIES = 6  # lines below a stream
# part of the window that a slice which spans it may leave out at either end
SPANS = 200


@memo(4)
def places(side: Side, view: View) -> tuple[Place, ...]:
    """All lines of the timeline, from top to bottom, whether they fit on the screen or
    not."""
    found: list[Place] = []
    for index in view.arranged.pinned:
        found += _lane_places(side, view, index, side.lanes[index].title)
    for group, indices in arranged(
        side.lanes, view.arranged, side.lane_of(view.selected)
    ):
        if nested := len(indices) > 1:
            found.append(Place(indices[0], -1, group, None))
        for index in indices:
            label = f" {side.lanes[index].label}" if nested else side.lanes[index].title
            found += _lane_places(side, view, index, label)
        # One line below the lanes of a device, before it is known why the device was
        # idle.
        stream = next((n for n in indices if side.lanes[n].layer is Layer.STREAM), -1)
        if stream >= 0:
            label = f" {IDLE_LABEL}" if nested else IDLE_LABEL
            found.append(
                Place(-1, -2 - stream, label, None, idle_of=side.lanes[stream])
            )
    found += side.counter_places
    if hidden := view.arranged.hidden - {side.lane_of(view.selected)}:
        names = "   ".join(hidden_names(side.lanes, hidden))
        found.append(Place(-1, HIDDEN, f"folded: {names}", None))
    return tuple(found)


def index_of(side: Side, shown: Sequence[Place], row: int) -> int:
    """The index of a row's line among the places, -1 if it is not there."""
    lane = side.lane_of(row)
    depth = side.depth_of(row) if lane >= 0 else -1
    own = {p.depth: n for n, p in enumerate(shown) if p.line and p.lane == lane}
    return own.get(depth, own.get(WHERE, -1))


def same_line(old: Side, place: Place, new: Side, shown: Sequence[Place]) -> int:
    """The index of a line among the places of a side that shows more; 0 if it is not
    there."""

    def key(side: Side, place: Place) -> tuple[object, int]:
        return place.label if place.lane < 0 else side.lanes[
            place.lane
        ].key, place.depth

    wanted = key(old, place)
    return next((n for n, p in enumerate(shown) if key(new, p) == wanted), 0)


def _lane_places(side: Side, view: View, index: int, label: str) -> list[Place]:
    """The lines of a lane; that of the selection is there however deep it lies, unless
    the line of where the program was shows it."""
    lane = side.lanes[index]
    own = side.lane_of(view.selected) == index
    is_seen = own or any(in_sight(side, view, line) for line in lane.lines.tops)
    count = lane.shown(view.folds[index]) if is_seen else 1
    first = spanning(side, view, index) if lane.has_where else 0
    depths = list(range(first, len(lane.lines)))[: count - lane.has_where]
    if own and not lane.has_where and side.depth_of(view.selected) >= count:
        depths.append(side.depth_of(view.selected))
    # it may be the name of a thread
    where = label.replace(LAYER_LABELS[Layer.PYTHON], "modules")
    found = [Place(index, WHERE, where, lane.lines[0], where=True)] * lane.has_where
    for n in depths:
        said, around = ("", 0) if n > first else (label, first)
        found.append(Place(index, n, said, lane.lines[n], around=around))
    named = len(found) + (first if depths else 0)
    last = replace(found[-1], more=lane.height - named)
    return [*found[:-1], last, *(_families(lane) if view.arranged.families else ())]


def spanning(side: Side, view: View, index: int) -> int:
    """How many lines of a lane of Python frames, from its outermost one on, are named
    on the line below them: where one slice spans the whole window, nothing of it
    changes there. The line of the selected slice is none of them."""
    lines = side.lanes[index].lines
    begin, end = view.begin + side.origin, view.end + side.origin
    edge = view.span // SPANS
    is_own = side.lane_of(view.selected) == index
    most = side.depth_of(view.selected) if is_own else len(lines)
    first = np.int64(begin + edge)  # of the type of the columns: none is converted
    for depth in range(most):
        line = lines[depth]
        at = line.start.searchsorted(first, side="right") - 1
        if at < 0 or line.end[at] < end - edge:
            return max(0, depth - 1)
    return max(0, most - 1)


def _families(lane: Lane) -> Iterator[Place]:
    """The kinds of slices on the outermost line of a stream, those with the most time
    first."""
    line = lane.lines[0]
    kinds = line.kinds if lane.layer is Layer.STREAM else ()
    for one in sorted(kinds, key=lambda one: -int(one.ns_before[-1]))[:MOST_FAMILIES]:
        share = percent(int(one.ns_before[-1]), int(line.ns_before[-1]))
        label = f"  {KINDS[one.kind].removeprefix('gpu-')} {share}"
        yield Place(-1, -1, label, None, family=(line, one.kind))


def in_sight(side: Side, view: View, line: DepthRow) -> bool:
    first = int(line.end.searchsorted(view.begin + side.origin, side="right"))
    return first < len(line) and int(line.start[first]) < view.end + side.origin


LEAST = 4  # cells of a frame that is named
AROUND = (": forward", ": _call_impl", ": _wrapped_call_impl")
"""Frames that every module has; the module around them says more."""


def where_rows(side: Side, place: Place, borders: NDArray[np.int64]) -> list[int]:
    """The row of each cell, or -1."""
    # sub-rows hold what does not nest
    track = max(side.lanes[place.lane].tracks, key=len)
    least = LEAST * int(borders[1] - borders[0])
    rows = deepest(side.trace, track, borders, least).tolist()
    known = {row: _module(side.trace, row) for row in set(rows)}
    return [known[row] for row in rows]


def marks_selection(side: Side, view: View, place: Place) -> bool:
    """Is the selected slice a frame of this thread that has no line of its own."""
    if view.selected < 0 or side.lane_of(view.selected) != place.lane:
        return False
    frames = side.lanes[place.lane].shown(view.folds[place.lane]) - 1
    shown = (p for p in places(side, view) if p.lane == place.lane and not p.where)
    first = next((p.around for p in shown), 0)
    return side.depth_of(view.selected) >= first + frames


def _module(trace: Trace, row: int) -> int:
    over = row
    while over >= 0 and trace.name_of(over).endswith(AROUND):
        over = int(trace.parent[over])
    return over if over >= 0 and is_module(trace.name_of(over)) else row


WORTH = (
    *(
        Layer.STREAM,
        Layer.DEVICE,
        Layer.OPS,
        Layer.ANNOTATIONS,
        Layer.OTHER,
        Layer.PYTHON,
    ),
    *(Layer.GPU_ANNOTATIONS, Layer.SYNC),
)
"""Which lanes unfold first."""


def fitted(side: Side, view: View, lines: int) -> View:
    """The view for a screen with so many lines for lanes: folded until the main GPU
    stream is seen, then unfolded as far as there is room."""
    view = _with_stream(side, view, lines)
    shown = places(side, view)
    spare, folds = lines - len(shown), list(view.folds)
    heights = Counter(place.lane for place in shown if place.line)
    for n in sorted(heights, key=lambda n: WORTH.index(side.lanes[n].layer)):
        more = min(spare, side.lanes[n].height - heights[n])
        if more > 0:
            folds[n] = heights[n] + more
            spare -= more
    return replace(view, folds=tuple(folds))


def _with_stream(side: Side, view: View, lines: int) -> View:
    """As many lanes above the main stream folded, the tallest first, as it takes for it
    and why the GPU was idle to be seen, else for the stream; where that is not enough,
    all of them."""
    shown, main = places(side, view), main_lane(side.lanes)
    own = [n for n, p in enumerate(shown) if p.line and p.lane == main]
    if not own:
        return view
    device = side.lanes[main].key[1]
    idle = (n for n, p in enumerate(shown) if p.idle_of and p.idle_of.key[1] == device)
    last = own[-1]
    tall = Counter(p.lane for p in shown[: own[0]] if p.line)
    for wanted in (next(idle, last), last):
        folds, excess = list(view.folds), wanted + 1 - lines
        for lane, height in tall.most_common():
            if excess > 0:
                folds[lane] = FOLDED
                excess -= height - 1
        if excess <= 0:
            break
    return replace(view, folds=tuple(folds))
