"""The line that says why a device was idle: in each cell, the reason with the most time."""

from __future__ import annotations

from itertools import groupby

import numpy as np
from rich.segment import Segment
from rich.style import Style

from fusetui.analysis.why.idle_reasons import IDLE
from fusetui.analysis.why.stretches import IdleTime
from fusetui.trace.cells.raster import edges
from fusetui.tui.drawing import palette
from fusetui.tui.drawing.glyphs import Glyphs
from fusetui.tui.drawing.segments import segment
from fusetui.tui.layout.frame import cells_of
from fusetui.tui.layout.gaps import gap_times
from fusetui.tui.layout.view import Side, View

NOWHERE = -1
Cell = tuple[int, int, bool]
"""The reason (NOWHERE: none), the height of its bar (0: a block with its letter), and whether it is
selected."""


def idle_segments(
    side: Side, view: View, found: IdleTime, width: int, glyphs: Glyphs
) -> list[Segment]:
    """A cell that is idle for at least half of its time is a block with the letter of the reason,
    or its name if there is room; any other cell has a bar as high as the idle share."""
    cells = _cells(side, view, found, width, glyphs)
    segments: list[Segment] = []
    for (reason, level, chosen), group in groupby(cells):
        size = len(list(group))
        if reason == NOWHERE:
            segments.append(segment(" " * size, palette.PLAIN))
            continue
        name = found.reasons[reason].name
        text = glyphs.levels[level] * size if level else _bar_text(name, size)
        segments.append(segment(text, _style(name, level, chosen)))
    return segments


def _cells(side: Side, view: View, found: IdleTime, width: int, glyphs: Glyphs) -> list[Cell]:
    borders = edges(view.begin + side.origin, view.end + side.origin, width)
    ns = found.within(borders)
    if not len(ns):
        return [(NOWHERE, 0, False)] * width
    top, idle = len(glyphs.levels) - 1, ns.sum(axis=0)
    size = np.maximum(np.diff(borders), 1)
    level = np.clip((idle * top + size - 1) // size, 1, top // 2)
    level[2 * idle >= size] = 0
    reason = np.where(idle > 0, ns.argmax(axis=0), NOWHERE)
    chosen = [False] * width
    times = gap_times(side, view.gap) if view.gap else None
    if times and view.gap and side.insight.device(found.device) == view.gap.device:
        for x in cells_of(view, *times, width):
            chosen[x] = True
    return list(zip(reason.tolist(), level.tolist(), chosen, strict=True))


def _bar_text(name: str, width: int) -> str:
    if width >= len(IDLE[name].short) + 2:
        return f" {IDLE[name].short}".ljust(width)
    return IDLE[name].letter * width


def _style(name: str, level: int, chosen: bool) -> Style:
    if chosen and not level:
        return palette.SELECTED
    return palette.idle_bar(name) if level else palette.idle_fill(name)
