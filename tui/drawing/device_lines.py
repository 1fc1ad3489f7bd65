"""The lines of a device below its lanes: why it was idle, the families of its kernels, counters;
and the legend of its colors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby

import numpy as np

from fusetui.analysis.why.idle_time import IdleTime
from fusetui.analysis.why.model import IDLE
from fusetui.text.figures import percent, quantity
from fusetui.trace.cells.counters import Curve, values
from fusetui.trace.cells.raster import Line, amounts, edges
from fusetui.tui.drawing.glyphs import Glyphs
from fusetui.tui.drawing.lane_lines import labeled
from fusetui.tui.drawing.schemes import BAR, Styled
from fusetui.tui.layout.frame import cells_of
from fusetui.tui.layout.kinds import KINDS, LETTERS, KindShare
from fusetui.tui.layout.view import Side, View, gap_times

UNITS = {"bytes": "B"}
ROOM = 10  # cells that the largest value may take in the gutter, including the space before it
NOWHERE = -1
BETWEEN = "  "  # two families of the legend
_quantity = lru_cache(maxsize=1024)(quantity)
"""Few values are the largest of any window, and to write one exactly takes long."""


def counter_line(
    side: Side, view: View, label: str, curve: Curve, gutter: int, width: int, glyphs: Glyphs
) -> tuple[str, list[Styled]]:
    """What stands in the gutter and over `width` cells: the height of the values, of which the
    highest level is the largest of the whole trace; and the largest in sight, after the label if
    there is room."""
    found = values(curve, edges(view.begin + side.origin, view.end + side.origin, width))
    text = levels(found, curve.largest, glyphs)
    largest = float(np.fmax.reduce(found))
    if math.isnan(largest):
        return label, [(text, "busy")]
    most = _quantity(largest, UNITS.get(curve.counter.unit, ""))
    room = gutter - 1 - len(label)
    if room >= ROOM:
        return f"{label}{most.rjust(room)}", [(text, "busy")]
    end = f" {most}"[-width:]
    return label, [(text[: width - len(end)], "busy"), (end, "plain")]


def levels(found: np.ndarray[tuple[int], np.dtype[np.float64]], most: float, glyphs: Glyphs) -> str:
    """One character per value: a space where there is none, else at least the lowest level."""
    share = np.maximum(found, 0.0) / (most if most > 0 else 1.0)
    level = np.maximum(np.ceil(share * glyphs.top), 1.0)
    level[np.isnan(found)] = 0.0
    return glyphs.bars(level.astype(np.int8).tolist())


def family_line(
    side: Side, view: View, line: Line, kind: int, width: int, glyphs: Glyphs
) -> Styled:
    """A bar in each cell, as high as the share of its time; the least height for any time."""
    borders = edges(view.begin + side.origin, view.end + side.origin, width)
    ns, size = amounts(line, borders, kind), np.maximum(np.diff(borders), 1)
    level = np.where(ns > 0, np.clip(ns * glyphs.top // size, 1, glyphs.top), 0)
    return glyphs.bars(level.tolist()), KINDS[kind].token + BAR


def family_label(label: str, cells: int) -> str:
    """Without its share where that does not fit: no digit of it is cut."""
    return label if len(label) < cells else label.rstrip(" %0123456789.<>")


def idle_line(side: Side, view: View, found: IdleTime, width: int, glyphs: Glyphs) -> list[Styled]:
    """The reason with the most time in each cell. A cell that is idle for at least half of its time
    is a block with the letter of the reason, or its name if there is room; any other cell has a bar
    as high as the idle share."""
    parts: list[Styled] = []
    for (reason, level, chosen), group in groupby(_idle_cells(side, view, found, width, glyphs)):
        size = len(list(group))
        if reason == NOWHERE:
            parts.append((" " * size, "plain"))
            continue
        name = found.reasons[reason].name
        token = f"idle.{name}"
        if level:
            parts.append((glyphs.levels[level] * size, token + BAR))
        else:
            short, letter = IDLE[name].short, IDLE[name].letter
            text = letter * size if size < len(short) + 2 else f" {short}".ljust(size)
            parts.append((text, "selection" if chosen else token))
    return parts


def _idle_cells(
    side: Side, view: View, found: IdleTime, width: int, glyphs: Glyphs
) -> list[tuple[int, int, bool]]:
    """The reason (NOWHERE: none), the height of its bar (0: a block), and is it selected."""
    borders = edges(view.begin + side.origin, view.end + side.origin, width)
    ns = found.within(borders)
    if not len(ns):
        return [(NOWHERE, 0, False)] * width
    top, idle = glyphs.top, ns.sum(axis=0)
    size = np.maximum(np.diff(borders), 1)
    level = np.clip((idle * top + size - 1) // size, 1, top // 2)
    level[2 * idle >= size] = 0
    reason = np.where(idle > 0, ns.argmax(axis=0), NOWHERE).tolist()
    times = gap_times(side, view.gap) if view.gap else None
    chosen = range(0)
    if times and view.gap and side.insight.device(found.device) == view.gap.device:
        chosen = cells_of(view, *times, width)
    return [(*cell, x in chosen) for x, cell in enumerate(zip(reason, level.tolist(), strict=True))]


def legend_line(
    found: Sequence[KindShare], glyphs: Glyphs, gutter: int, width: int
) -> list[Styled]:
    """`■ gemm 45.2 %  ■ reduction 46.1 %  2 more 8.7 %`: what the colors of the GPU lanes mean, the
    largest shares of the time, and what is left."""
    parts: list[Styled] = []
    room = width - gutter
    for n, share in enumerate(found):
        between = BETWEEN if n else ""
        text = f" {share.kind.removeprefix('gpu-')} {_share(share, share.ns)}"
        cells = len(between) + 1 + len(text)
        if cells + len(_rest(found, n + 1)) > room:
            parts.append((_rest(found, n)[: max(0, room)], "faint"))
            break
        mark = LETTERS[share.kind] if glyphs.letters else glyphs.swatch
        parts += [(between, "faint"), (mark, share.kind.token + BAR), (text, "faint")]
        room -= cells
    return labeled(f"{found[0].of} time" if found else "", parts, gutter)


def _rest(found: Sequence[KindShare], n: int) -> str:
    """What the families from one on take together; "" for none."""
    left = sum(one.ns for one in found[n:])
    between = BETWEEN if n else ""
    return f"{between}{len(found) - n} more {_share(found[0], left)}" if n < len(found) else ""


def _share(one: KindShare, ns: int) -> str:
    """All with one decimal, so that they can be added up."""
    return percent(ns, one.whole_ns, fine=True)
