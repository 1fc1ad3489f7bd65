"""From cells to runs of text with a kind: what one line of a lane looks like, without a
terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Literal

import msgspec
import numpy as np

from fusetui.text.cutting import middle_clip
from fusetui.trace.cells.raster import MANY, NONE, Cells, Rows
from fusetui.tui.drawing.glyphs import Glyphs
from fusetui.tui.layout.kinds import KINDS, LETTERS, Kind

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


def _with_selected(rows: Rows, selected: int, cells: range) -> Rows:
    """The rows of the cells, the selected one over all others."""
    if not cells:
        return rows
    found = rows.copy()
    found[cells.start : cells.stop] = selected
    return found


def _ends(rows: Rows) -> list[int]:
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
