"""How the lines and cells of a timeline are divided, and which of its lines are on the screen."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fusetui.tui.layout.view import Place, Side, View, index_of, index_of_gap

SMALL = 14  # with fewer lines the bar below the minimap is left out


class Division(msgspec.Struct, frozen=True):
    """The lines above the lanes, and the cells left of them."""

    whole: int  # cells in all
    axis: int  # lines of the minimap and the ruler
    gutter: int  # cells of the labels
    width: int  # cells of the time axis
    lanes: int  # lines for lanes

    def time(self, view: View, x: int) -> int:
        """The time (ns from the origin) at the left edge of a cell of the screen."""
        column = max(0, min(x - self.gutter, self.width))
        return view.begin + view.span * column // self.width


def divided(width: int, height: int) -> Division:
    """Divides a timeline of this many cells and lines."""
    gutter = 14 if width < 100 else 18 if width < 160 else 24
    axis = axis_height(height)
    return Division(width, axis, gutter, max(1, width - gutter), max(0, height - axis))


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


def within(shown: Sequence[Place], top: int, room: int) -> int:
    """The first line on the screen, such that no room below the last line is left empty."""
    return max(0, min(top, len(shown) - room))
