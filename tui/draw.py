"""Cells -> spans of text with a kind: what one line of a lane looks like, without a terminal."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

from fusetui.trace.cells.raster import Cells
from fusetui.trace.text.cutting import clip
from fusetui.tui.glyphs import Glyphs
from fusetui.tui.kinds import Kind

Look = Literal["empty", "block", "bar", "selected", "marked"]
PREFIXES = ("autograd::engine::evaluate_function: ", "torch::autograd::", "aten::")
"""What a label gives up first."""
LEAST_LABEL = 4
"""A label cut to fewer characters than this says nothing and is left out."""


@dataclass(frozen=True, slots=True)
class Span:
    """Neighbouring cells of one look."""

    text: str
    look: Look
    kind: Kind


@dataclass(frozen=True, slots=True)
class Names:
    """How the slices of a trace are called and coloured."""

    kind: Callable[[int], Kind]
    label: Callable[[int], str]


def draw(
    cells: Cells,
    cell_ns: int,
    names: Names,
    glyphs: Glyphs,
    selected: int = -1,
    selected_cells: range = range(0),
    marked: Collection[int] = (),
) -> list[Span]:
    """One line. `selected_cells` are where the selected row lies, even when it is hidden by others.

    A slice of two cells or more is a block with its label; a single cell is a bar as high as the
    share of the cell that is covered.
    """
    spans: list[Span] = []
    rows = cells.row.tolist()
    counts, covered = cells.count.tolist(), cells.covered.tolist()
    for x in selected_cells:
        rows[x] = selected
    x = 0
    while x < len(rows):
        end = _run(rows, x)
        row = rows[x]
        if row < 0:
            spans.append(Span(" " * (end - x), "empty", Kind.OTHER))
        elif end - x > 1 or row == selected:
            label = names.label(row)
            look: Look = "selected" if row == selected else "marked" if row in marked else "block"
            spans.append(Span(_block(label, end - x, look, glyphs), look, names.kind(row)))
        else:
            look = "marked" if row in marked else "bar"
            text = _level(covered[x], cell_ns, counts[x], glyphs)
            _append(spans, Span(text, look, names.kind(row)))
        x = end
    return spans


def _run(rows: list[int], x: int) -> int:
    end = x + 1
    while end < len(rows) and rows[end] == rows[x]:
        end += 1
    return end


def _append(spans: list[Span], span: Span) -> None:
    """Fewer styled runs are fewer bytes over the wire."""
    last = spans[-1] if spans else None
    if last and last.look == span.look == "bar" and last.kind == span.kind:
        spans[-1] = Span(last.text + span.text, "bar", span.kind)
    else:
        spans.append(span)


def _block(label: str, width: int, look: Look, glyphs: Glyphs) -> str:
    if look == "selected" or look == "marked":
        if width == 1:
            return glyphs.selected_cell
        return glyphs.selected + _fitted(label, width - 1, glyphs).ljust(width - 1)
    return (" " + _fitted(label, width - 2, glyphs)).ljust(width)


def _fitted(label: str, width: int, glyphs: Glyphs) -> str:
    """The label, or its first words, or its beginning; nothing when that would be nonsense."""
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
