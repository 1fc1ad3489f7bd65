"""One line of a counter: the height of its values over time, and the largest in sight."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fusetui.text.figures import quantity
from fusetui.trace.cells.counters import Curve, values
from fusetui.trace.cells.raster import edges
from fusetui.tui.drawing.glyphs import Glyphs
from fusetui.tui.layout.view import Side, View

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
