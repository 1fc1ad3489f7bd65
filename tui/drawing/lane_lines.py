"""The text of each line of a timeline: slices as runs, the minimap, the ruler."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache, partial
from itertools import groupby
from typing import Literal

import msgspec
import numpy as np
from rich.segment import Segment
from textual.strip import Strip

from fusetui.text.cutting import middle_clip, word_clip
from fusetui.trace.cells.raster import MANY, NONE, Cells, cells, edges
from fusetui.trace.model.columns import Int32s, Trace
from fusetui.tui.drawing import palette
from fusetui.tui.drawing.glyphs import Glyphs
from fusetui.tui.drawing.segments import narrow_line, segment
from fusetui.tui.layout.frame import Busy, cells_of, columns, ticks
from fusetui.tui.layout.kinds import KINDS, LETTERS, Kind, label_of
from fusetui.tui.layout.places import marks_selection, where_rows
from fusetui.tui.layout.view import Interval, Place, Side, View

Look = Literal["empty", "block", "bar", "selected", "marked"]
PREFIXES = ("autograd::engine::evaluate_function: ", "torch::autograd::", "aten::")
"""What is dropped first from a label."""
VENDOR = re.compile(r"\A(?:cuda|cu|hip)(?=[A-Z])")
"""The prefix of all runtime and driver calls, which is dropped next."""
LEAST_LABEL = 4
"""A label cut to fewer characters than this would say nothing and is left out."""


class Run(msgspec.Struct, frozen=True):
    """Neighboring cells with one look."""

    text: str
    look: Look
    kind: Kind


Label = Callable[[int], str]
"""What a row is called."""


def runs_of(
    cells: Cells,
    cell_ns: int,
    label: Label,
    glyphs: Glyphs,
    selected: int = -1,
    selected_cells: range = range(0),
    marked: Collection[int] = (),
) -> list[Run]:
    """One line. `selected_cells` are where the selected row lies, even if others hide it.

    A slice of two or more cells is a block with its label; a single cell is a bar as high as the
    share of the cell that is covered. Where there may be no color, letters tell the kind.
    """
    runs: list[Run] = []
    shown = _with_selected(cells.row, selected, selected_cells)
    rows, kinds = shown.tolist(), cells.kind.tolist()
    levels: list[int] = []  # worked out where there is a bar
    x, bars, of = 0, "", -1  # neighboring bars of one kind
    for end in _ends(shown):
        row, number = rows[x], kinds[x]
        is_alone = end - x == 1 and row != NONE and row != selected
        if is_alone and not levels:
            levels = _levels(cells, cell_ns, glyphs)
        if is_alone and not glyphs.letters and row not in marked:
            if number != of:
                _end(runs, bars, of)
                bars, of = "", number
            bars += glyphs.levels[levels[x]]
            x = end
            continue
        _end(runs, bars, of)
        bars, of, kind = "", -1, KINDS[number]
        if row == NONE:
            runs.append(Run(" " * (end - x), "empty", Kind.OTHER))
        elif not is_alone:
            look: Look = "selected" if row == selected else "marked" if row in marked else "block"
            beside = bool(runs) and runs[-1].look == "block"
            runs.append(Run(bar_text(label(row), end - x, look, kind, beside, glyphs), look, kind))
        else:
            text = _cell(levels[x], kind, glyphs)
            look = "marked" if row in marked else "block" if text.isalpha() else "bar"
            _append(runs, Run(text, look, kind))
        x = end
    _end(runs, bars, of)
    return runs


def _with_selected(rows: Int32s, selected: int, cells: range) -> Int32s:
    """The rows of the cells, the selected one over all others."""
    if not cells:
        return rows
    found = rows.copy()
    found[cells.start : cells.stop] = selected
    return found


def _ends(rows: Int32s) -> list[int]:
    """Where each stretch of cells of one row ends; cells that no slice stands for are alone."""
    if not len(rows):
        return []
    new = (rows[1:] != rows[:-1]) | (rows[1:] == MANY)
    return [*(np.flatnonzero(new) + 1).tolist(), len(rows)]


def _append(runs: list[Run], run: Run) -> None:
    """Joins neighboring runs of one look: fewer runs mean fewer bytes over the wire."""
    last = runs[-1] if runs else None
    if last and last.look == run.look == "bar" and last.kind == run.kind:
        runs[-1] = Run(last.text + run.text, "bar", run.kind)
    else:
        runs.append(run)


def bar_text(label: str, width: int, look: Look, kind: Kind, beside: bool, glyphs: Glyphs) -> str:
    """A slice of two cells or more, or one that is selected."""
    if look == "block":
        return _filled(label, width, kind, beside, glyphs)
    if width == 1:
        return glyphs.selected_cell
    return glyphs.selected + _fitted(label, width - 1, glyphs.ellipsis).ljust(width - 1)


def _filled(label: str, width: int, kind: Kind, beside: bool, glyphs: Glyphs) -> str:
    """A block; its first cell shows where it begins when it lies beside another one."""
    edge, text = glyphs.edge if beside else " ", _fitted(label, width - 1, glyphs.ellipsis)
    if not glyphs.letters:
        return (edge + text).ljust(width)
    begin = f"{edge}{text} " if text else edge.strip()
    return begin[:width].ljust(width, LETTERS[kind])


@lru_cache(maxsize=1 << 15)
def _fitted(label: str, width: int, ellipsis: str) -> str:
    """The label, or its first words, or its ends; nothing if that would be meaningless. A frame
    asks for the same few hundred."""
    if len(label) <= width:
        return label
    bare = label
    for prefix in PREFIXES:
        bare = bare.removeprefix(prefix)
    bare = VENDOR.sub("", bare)
    words = bare if len(bare) <= width else bare[: width + 1].rpartition(" ")[0]
    if words:
        return words
    first = bare.partition(" ")[0]
    return middle_clip(first, width, ellipsis) if width >= LEAST_LABEL else ""


def _cell(level: int, kind: Kind, glyphs: Glyphs) -> str:
    """A bar; where letters stand for colors, the letter from half of the height on."""
    if glyphs.letters and 2 * level >= glyphs.top:
        return LETTERS[kind]
    return glyphs.levels[level]


def _levels(cells: Cells, cell_ns: int, glyphs: Glyphs) -> list[int]:
    """How high a bar in each cell is: the share that is covered, but at least the least."""
    level = np.rint(cells.covered * glyphs.top / max(cell_ns, 1))
    found: list[int] = np.clip(level, 1, glyphs.top).astype(np.int64).tolist()
    return found


def _end(runs: list[Run], bars: str, kind: int) -> None:
    """The bars so far as one run."""
    if bars:
        runs.append(Run(bars, "bar", KINDS[kind]))


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


def labeled(
    label: str, segments: Sequence[Segment], gutter: int, width: int, bar: str = " "
) -> Strip:
    """A line with a label at its left; `bar` stands between both."""
    shown = label if len(label) < gutter else word_clip(label, gutter - 1)
    text = segment(shown.ljust(gutter - 1) + bar, palette.DIM)
    return narrow_line([text, *segments], width)
