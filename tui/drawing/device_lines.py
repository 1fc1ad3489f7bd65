"""The line that says why a device was idle: in each cell, the reason with the most time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import numpy as np
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from fusetui.analysis.why.idle_reasons import IDLE
from fusetui.analysis.why.idle_time import IdleTime
from fusetui.text.figures import percent, quantity
from fusetui.trace.cells.counters import Curve, values
from fusetui.trace.cells.raster import amounts, edges
from fusetui.tui.drawing import palette
from fusetui.tui.drawing.glyphs import Glyphs
from fusetui.tui.drawing.lane_lines import labeled
from fusetui.tui.drawing.segments import segment
from fusetui.tui.layout.frame import cells_of
from fusetui.tui.layout.kinds import KINDS, LETTERS, Share
from fusetui.tui.layout.view import Family, Side, View, gap_times

UNITS = {"bytes": "B"}
ROOM = 10  # cells that the largest value may take in the gutter, including the space before it


class CounterLine(NamedTuple):
    """The texts in the gutter, over the cells, and at their right end."""

    gutter: str
    levels: str
    end: str


def counter_line(
    side: Side, view: View, label: str, curve: Curve, gutter: int, width: int, glyphs: Glyphs
) -> CounterLine:
    """The line over `width` cells; the largest value follows the label if there is room.

    The highest level is the largest value of the whole trace.
    """
    found = values(curve, edges(view.begin + side.origin, view.end + side.origin, width))
    text = levels(found, curve.largest, glyphs)
    largest = float(np.fmax.reduce(found))
    if math.isnan(largest):
        return CounterLine(label, text, "")
    most = _told(largest, UNITS.get(curve.counter.unit, ""))
    room = gutter - 1 - len(label)
    if room >= ROOM:
        return CounterLine(f"{label}{most.rjust(room)}", text, "")
    end = f" {most}"[-width:]
    return CounterLine(label, text[: width - len(end)], end)


_told = lru_cache(maxsize=1024)(quantity)
"""Few values are the largest of any window, and to write one exactly takes long."""


def levels(found: np.ndarray[tuple[int], np.dtype[np.float64]], most: float, glyphs: Glyphs) -> str:
    """One character per value: a space where there is none, else at least the lowest level."""
    top = len(glyphs.levels) - 1
    share = np.maximum(found, 0.0) / (most if most > 0 else 1.0)
    level = np.maximum(np.ceil(share * top), 1.0)
    level[np.isnan(found)] = 0.0
    return "".join(map(glyphs.levels.__getitem__, level.astype(np.int8).tolist()))


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


BETWEEN = "  "  # two families


def legend_line(found: Sequence[Share], glyphs: Glyphs, gutter: int, width: int) -> Strip:
    """`■ gemm 45.2 %  ■ reduction 46.1 %  2 more 8.7 %`: the largest shares, and what is left."""
    segments: list[Segment] = []
    room = width - gutter
    for n, share in enumerate(found):
        between = BETWEEN if n else ""
        text = f" {share.kind.removeprefix('gpu-')} {_share(share, share.ns)}"
        cells = len(between) + 1 + len(text)
        if cells + len(_rest(found, n + 1)) > room:
            segments.append(segment(_rest(found, n)[: max(0, room)], palette.DIM))
            break
        mark = LETTERS[share.kind] if glyphs.letters else glyphs.swatch
        parts = (between, palette.DIM), (mark, palette.bar(share.kind)), (text, palette.DIM)
        segments += [segment(*part) for part in parts if part[0]]
        room -= cells
    return labeled(f"{found[0].of} time" if found else "", segments, gutter, width)


def _rest(found: Sequence[Share], n: int) -> str:
    """What the families from one on take together; "" for none."""
    left = sum(one.ns for one in found[n:])
    between = BETWEEN if n else ""
    return f"{between}{len(found) - n} more {_share(found[0], left)}" if n < len(found) else ""


def _share(one: Share, ns: int) -> str:
    """All with one decimal, so that they can be added up."""
    return percent(ns, one.whole_ns, fine=True)
