"""How the lines and cells of a timeline are divided, and which of its lines are on the screen."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fusetui.tui.layout.gaps import index_of_gap
from fusetui.tui.layout.lanes import main_lane
from fusetui.tui.layout.places import index_of
from fusetui.tui.layout.view import Place, Side, View

SMALL = 14  # with fewer lines the bar below the minimap is left out
TALL = 12  # with fewer lines the legend is left out


class Division(msgspec.Struct, frozen=True):
    """Lines above and below the lanes, and cells left of them."""

    whole: int  # cells in all
    axis: int  # lines of the minimap and the ruler
    gutter: int  # cells of the labels
    width: int  # cells of the time axis
    lanes: int  # lines for lanes
    legend: int  # lines of the legend, below the lanes

    def time(self, view: View, x: int) -> int:
        """The time (ns from the origin) at the left edge of a cell of the screen."""
        column = max(0, min(x - self.gutter, self.width))
        return view.begin + view.span * column // self.width


def divided(width: int, height: int) -> Division:
    """Divides a timeline of this many cells and lines."""
    gutter = 15 if width < 100 else 18 if width < 160 else 24
    axis, legend = axis_height(height), legend_height(height)
    lanes = max(0, height - axis - legend)
    return Division(width, axis, gutter, max(1, width - gutter), lanes, legend)


def legend_height(lines: int) -> int:
    """How many lines of a timeline of so many are below the lanes."""
    return 0 if lines < TALL else 1


def lanes_in(lines: int) -> int:
    """How many lines of a timeline of so many are for lanes."""
    return lines - axis_height(lines) - legend_height(lines)


def axis_height(lines: int) -> int:
    """How many lines of a timeline of this height are above the lanes."""
    return 2 if lines < SMALL else 3


def top_for(side: Side, view: View, shown: Sequence[Place], top: int, room: int) -> int:
    """The first line on the screen, such that the selected line, if any, is on the screen."""
    index = -1
    if view.selected >= 0:
        index = index_of(side, shown, view.selected)
    elif view.gap:
        index = index_of_gap(side, shown, view.gap)
    if index >= 0 and room > 0:
        top = max(min(top, index), index - room + 1)
    return within(shown, top, room)


def first_top(side: Side, view: View, shown: Sequence[Place], top: int, room: int) -> int:
    """The first line on the screen such that the main stream is on it while nothing is selected."""
    if view.selected >= 0 or view.gap:
        return top_for(side, view, shown, top, room)
    main = main_lane(side.lanes)
    lines = (n for n, p in enumerate(shown) if p.line is not None and p.lane == main >= 0)
    first = next(lines, 0)
    return within(shown, max(top, first - room + 1), room)


def in_view(shown: Sequence[Place], top: int, room: int) -> str:
    """`1-15 of 41`; "" when all lines are on the screen."""
    if len(shown) <= room or room <= 0:
        return ""
    return f"{top + 1}-{min(top + room, len(shown))} of {len(shown)}"


def thumb(shown: Sequence[Place], top: int, room: int) -> range:
    """The lines on the screen beside which the bar of a scroll bar stands; empty when all lines are
    on the screen."""
    if len(shown) <= room or room <= 0:
        return range(0)
    size = max(1, room * room // len(shown))
    first = -(-top * (room - size) // (len(shown) - room))
    return range(first, first + size)


def within(shown: Sequence[Place], top: int, room: int) -> int:
    """The first line on the screen, such that no room below the last line is left empty."""
    return max(0, min(top, len(shown) - room))
