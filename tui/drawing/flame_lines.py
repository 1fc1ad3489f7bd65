"""The picture of a flame graph: the outermost level first, each block as wide as its time."""

from __future__ import annotations

from collections.abc import Hashable

import msgspec
from textual.strip import Strip

from fusetui.tui.drawing.glyphs import Glyphs
from fusetui.tui.drawing.runs import Look, Run, bar_text
from fusetui.tui.drawing.segments import blank, line
from fusetui.tui.drawing.strips import lane_segments
from fusetui.tui.layout.flame import WHOLE, Flame
from fusetui.tui.layout.kinds import Kind

ABOVE = 2  # lines above that of the cursor, where there are more levels than lines


class FlamePicture(msgspec.Struct, frozen=True, eq=False):
    """The levels within `root`; the cursor is on `at`, and the levels below it are in sight."""

    flame: Flame
    root: int
    at: int
    glyphs: Glyphs

    def key(self, y: int, width: int, height: int) -> Hashable:
        level = self._level(y, height)
        here = self.at if self.at != WHOLE and self.flame.level[self.at] == level else WHOLE
        return self.flame, self.root, level, here, width

    def line(self, y: int, width: int, height: int) -> Strip:
        nodes, first, last = self.flame.in_sight(self.root, self._level(y, height), width)
        runs: list[Run] = []
        x = 0
        for node, begin, end in zip(nodes.tolist(), first.tolist(), last.tolist(), strict=True):
            if begin > x:
                runs.append(Run(" " * (begin - x), "empty", Kind.OTHER))
            look: Look = "selected" if node == self.at else "block"
            beside = begin == x and bool(runs)
            kind, text = self.flame.kind(node), self.flame.text(node)
            runs.append(
                Run(bar_text(text, end - begin, look, kind, beside, self.glyphs), look, kind)
            )
            x = end
        return line(lane_segments(runs), width) if runs else blank(width)

    def node_at(self, x: int, y: int, width: int, height: int) -> int:
        """The node at a cell; WHOLE beside them."""
        nodes, first, last = self.flame.in_sight(self.root, self._level(y, height), width)
        columns = zip(nodes.tolist(), first.tolist(), last.tolist(), strict=True)
        return next((node for node, begin, end in columns if begin <= x < end), WHOLE)

    def _level(self, y: int, height: int) -> int:
        """The level on a line."""
        first = self.flame.first_level(self.root)
        if self.at == WHOLE:
            return first + y
        above = int(self.flame.level[self.at]) - first - ABOVE
        return first + y + max(0, min(above, self.flame.depth(self.root) - height))
