"""From cells to runs of text with a kind: what one line of a lane looks like, without a
terminal."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Literal

import msgspec

from fusetui.trace.cells.raster import Cells
from fusetui.trace.text.cutting import clip
from fusetui.tui.drawing.glyphs import Glyphs
from fusetui.tui.layout.kinds import Kind

Look = Literal["empty", "block", "bar", "selected", "marked"]
PREFIXES = ("autograd::engine::evaluate_function: ", "torch::autograd::", "aten::")
"""What is dropped first from a label."""
LEAST_LABEL = 4
"""A label cut to fewer characters than this would say nothing and is left out."""


class Run(msgspec.Struct, frozen=True):
    """Neighboring cells with one look."""

    text: str
    look: Look
    kind: Kind


class Names(msgspec.Struct, frozen=True):
    """The labels and kinds of the slices of a trace."""

    kind: Callable[[int], Kind]
    label: Callable[[int], str]


def runs_of(
    cells: Cells,
    cell_ns: int,
    names: Names,
    glyphs: Glyphs,
    selected: int = -1,
    selected_cells: range = range(0),
    marked: Collection[int] = (),
) -> list[Run]:
    """One line. `selected_cells` are where the selected row lies, even if others hide it.

    A slice of two or more cells is a block with its label; a single cell is a bar as high as the
    share of the cell that is covered.
    """
    runs: list[Run] = []
    rows = cells.row.tolist()
    counts, covered = cells.count.tolist(), cells.covered.tolist()
    for x in selected_cells:
        rows[x] = selected
    x = 0
    while x < len(rows):
        end = _end_of(rows, x)
        row = rows[x]
        if row < 0:
            runs.append(Run(" " * (end - x), "empty", Kind.OTHER))
        elif end - x > 1 or row == selected:
            label = names.label(row)
            look: Look = "selected" if row == selected else "marked" if row in marked else "block"
            runs.append(Run(_bar(label, end - x, look, glyphs), look, names.kind(row)))
        else:
            look = "marked" if row in marked else "bar"
            text = _level(covered[x], cell_ns, counts[x], glyphs)
            _append(runs, Run(text, look, names.kind(row)))
        x = end
    return runs


def _end_of(rows: list[int], x: int) -> int:
    end = x + 1
    while end < len(rows) and rows[end] == rows[x]:
        end += 1
    return end


def _append(runs: list[Run], run: Run) -> None:
    """Joins neighboring runs of one look: fewer runs mean fewer bytes over the wire."""
    last = runs[-1] if runs else None
    if last and last.look == run.look == "bar" and last.kind == run.kind:
        runs[-1] = Run(last.text + run.text, "bar", run.kind)
    else:
        runs.append(run)


def _bar(label: str, width: int, look: Look, glyphs: Glyphs) -> str:
    if look == "selected" or look == "marked":
        if width == 1:
            return glyphs.selected_cell
        return glyphs.selected + _fitted(label, width - 1, glyphs).ljust(width - 1)
    return (" " + _fitted(label, width - 2, glyphs)).ljust(width)


def _fitted(label: str, width: int, glyphs: Glyphs) -> str:
    """The label, or its first words, or its beginning; nothing if that would be meaningless."""
    if len(label) <= width:
        return label
    bare = label
    for prefix in PREFIXES:
        bare = bare.removeprefix(prefix)
    words = bare if len(bare) <= width else bare[: width + 1].rpartition(" ")[0]
    if words:
        return words
    return clip(bare, width, glyphs.ellipsis) if width >= LEAST_LABEL else ""


def _level(covered: int, cell_ns: int, count: int, glyphs: Glyphs) -> str:
    top = len(glyphs.levels) - 1
    level = round(top * covered / max(cell_ns, 1)) if count else 0
    return glyphs.levels[max(1, min(level, top))]
