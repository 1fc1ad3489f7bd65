"""The text of each line of a timeline: slices as runs, the minimap, the ruler."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import partial
from itertools import groupby

from fusetui.trace.cells.raster import cells, edges
from fusetui.trace.model.columns import Trace
from fusetui.tui.drawing.glyphs import Glyphs
from fusetui.tui.drawing.runs import Label, Look, Run, bar_text, runs_of
from fusetui.tui.layout.frame import Busy, cells_of, columns
from fusetui.tui.layout.kinds import Kind, label_of
from fusetui.tui.layout.ruler import ticks
from fusetui.tui.layout.view import Interval, Place, Side, View
from fusetui.tui.layout.where import marks_selection, where_rows

MOST_LABELS = 1 << 16  # that are kept of a trace
APART = " > "
PLACE = re.compile(r" \S+:\d+$")
"""File and line after the name of a Python function."""


def labels_of(trace: Trace) -> Label:
    """What the rows are called; made once per trace: `side.once(labels_of)`."""
    known: dict[int, str] = {}

    def label(row: int) -> str:
        found = known.get(row)
        if found is None:
            if len(known) >= MOST_LABELS:
                known.clear()
            found = known[row] = label_of(int(trace.role[row]), trace.name_of(row))
        return found

    return label


def lane_line(
    side: Side,
    view: View,
    place: Place,
    width: int,
    glyphs: Glyphs,
    marked: Collection[int] = (),
) -> list[Run]:
    """The runs of one line of a lane over `width` cells."""
    if place.line is None:
        return []
    borders = edges(view.begin + side.origin, view.end + side.origin, width)
    shown = cells(place.line, borders)
    chosen = range(0)
    if view.selected >= 0 and place.holds(view.selected):
        chosen = columns(side, view, view.selected, width)
    cell_ns = max(1, view.span // max(width, 1))
    label = side.once(labels_of)
    if place.around:
        label = partial(chain_of, side.trace, label, around=place.around, width=width - 1)
    return runs_of(shown, cell_ns, label, glyphs, view.selected, chosen, marked)


def chain_of(trace: Trace, label: Label, row: int, around: int, width: int) -> str:
    """`<module> > main > ... > run_action`: a frame after so many around it, the outermost and as
    many of the innermost as fit into `width` cells."""
    rows = [row]
    while len(rows) <= around and int(trace.parent[rows[0]]) >= 0:
        rows.insert(0, int(trace.parent[rows[0]]))
    names = [PLACE.sub("", label(one)) for one in rows]
    if len(text := APART.join(names)) <= width:
        return text
    kept = names[-1:]
    for name in names[-2:0:-1]:
        if len(APART.join([names[0], "...", name, *kept])) > width:
            break
        kept.insert(0, name)
    return APART.join([names[0], "...", *kept])


def where_runs(side: Side, view: View, place: Place, width: int, glyphs: Glyphs) -> list[Run]:
    """Where the program was, over `width` cells: neighboring cells of one name are one block."""
    rows = where_rows(side, place, edges(view.begin + side.origin, view.end + side.origin, width))
    label = side.once(labels_of)
    names = [(label(row) if row >= 0 else "", False) for row in rows]
    if marks_selection(side, view, place):
        for x in columns(side, view, view.selected, width):
            names[x] = label(view.selected), True
    runs: list[Run] = []
    for (name, selected), group in groupby(names):
        size = len(list(group))
        beside = bool(runs) and runs[-1].look == "block"
        look: Look = "selected" if selected else "block" if name else "empty"
        text = bar_text(name, size, look, Kind.PYTHON, beside, glyphs) if name else " " * size
        runs.append(Run(text, look, Kind.PYTHON))
    return runs


def minimap(side: Side, busy: Busy, width: int, glyphs: Glyphs) -> str:
    """How busy the whole trace is, one level per cell."""
    begin, end = side.begin + side.origin, side.end + side.origin
    return "".join(map(glyphs.levels.__getitem__, busy.levels(begin, end, width, glyphs.top)))


def window_bar(shown: range, width: int, glyphs: Glyphs) -> str:
    """`├──────┤` below the minimap."""
    return (" " * shown.start + _bar(len(shown), glyphs)).ljust(width)


def ruler(view: View, width: int, chosen: Interval | None, glyphs: Glyphs) -> tuple[str, range]:
    """Times at round positions, none cut off, over a bar `├───┤` where a range of time is selected.

    Also returns the cells of that bar.
    """
    text = [" "] * width
    cells = cells_of(view, *chosen, width) if chosen else range(0)
    if chosen and cells:
        whole = (chosen[0] >= view.begin, chosen[1] <= view.end)
        text[cells.start : cells.stop] = _bar(len(cells), glyphs, *whole)
    for column, label in ticks(view.begin, view.end, width):
        taken = range(column, column + len(label) + 1)
        if taken[-1] < width and not (cells and (cells[0] in taken or cells[-1] in taken)):
            text[column : taken[-1]] = label
    return "".join(text), cells


def _bar(width: int, glyphs: Glyphs, begins: bool = True, ends: bool = True) -> str:
    """`├───┤`, without an end that is out of sight."""
    left, middle, right = glyphs.window
    if width == 1:
        return middle
    return (left if begins else middle) + middle * (width - 2) + (right if ends else middle)
