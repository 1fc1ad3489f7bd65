"""How much of each cell the kernels of one family take, below the lane of a stream."""

from __future__ import annotations

import numpy as np
from rich.segment import Segment

from fusetui.trace.cells.raster import amounts, edges
from fusetui.tui.drawing import palette
from fusetui.tui.drawing.glyphs import Glyphs
from fusetui.tui.drawing.segments import segment
from fusetui.tui.layout.kinds import KINDS
from fusetui.tui.layout.view import Family, Side, View


def family_segments(
    side: Side, view: View, family: Family, width: int, glyphs: Glyphs
) -> list[Segment]:
    """A bar in each cell, as high as the share of its time; the least height for any time."""
    borders = edges(view.begin + side.origin, view.end + side.origin, width)
    ns = amounts(family.line, borders, family.kind)
    top, size = len(glyphs.levels) - 1, np.maximum(np.diff(borders), 1)
    level = np.where(ns > 0, np.clip(ns * top // size, 1, top), 0)
    text = "".join(map(glyphs.levels.__getitem__, level.tolist()))
    return [segment(text, palette.bar(KINDS[family.kind]))]


def family_label(label: str, cells: int) -> str:
    """Without its share where that does not fit: no digit of it is cut."""
    return label if len(label) < cells else label.rstrip(" %0123456789.<>")
