"""How many lines of each lane there is room for."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from fusetui.trace.model.categories import Layer
from fusetui.tui.layout.lanes import FOLDED, main_lane
from fusetui.tui.layout.places import places
from fusetui.tui.layout.view import Side, View

WORTH = (
    Layer.STREAM,
    Layer.DEVICE,
    Layer.OPS,
    Layer.ANNOTATIONS,
    Layer.OTHER,
    Layer.PYTHON,
    Layer.GPU_ANNOTATIONS,
    Layer.SYNC,
)
"""Which lanes unfold first."""


def fitted(side: Side, view: View, lines: int) -> View:
    """The view for a screen with so many lines for lanes: folded until the main GPU stream is
    seen, then unfolded as far as there is room."""
    return _unfolded(side, _with_stream(side, view, lines), lines)


def _with_stream(side: Side, view: View, lines: int) -> View:
    """As many lanes above the main stream folded, the tallest first, as it takes for it and why the
    GPU was idle to be seen, else for the stream; where that is not enough, all of them."""
    shown, main = places(side, view), main_lane(side.lanes)
    own = [n for n, p in enumerate(shown) if p.line and p.lane == main]
    if not own:
        return view
    device = side.lanes[main].key[1]
    idle = (n for n, p in enumerate(shown) if p.idle_of and p.idle_of.key[1] == device)
    last = own[-1]
    tall = Counter(p.lane for p in shown[: own[0]] if p.line)
    folds = list(view.folds)
    for wanted in (next(idle, last), last):
        folds, excess = list(view.folds), wanted + 1 - lines
        for lane, height in tall.most_common():
            if excess > 0:
                folds[lane] = FOLDED
                excess -= height - 1
        if excess <= 0:
            break
    return replace(view, folds=tuple(folds))


def _unfolded(side: Side, view: View, lines: int) -> View:
    """Lanes unfolded as far as there is room, one after the other."""
    shown = places(side, view)
    spare, folds = lines - len(shown), list(view.folds)
    heights = Counter(place.lane for place in shown if place.line)
    for n in sorted(heights, key=lambda n: WORTH.index(side.lanes[n].layer)):
        more = min(spare, side.lanes[n].height - heights[n])
        if more > 0:
            folds[n] = heights[n] + more
            spare -= more
    return replace(view, folds=tuple(folds))
