"""The lanes of a timeline: slices as blocks with their names, single cells as bars."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache, partial
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from fusetui.text.cutting import middle_clip, word_clip
from fusetui.text.patterns import lazy_pattern
from fusetui.timeline.cells import NO_SLICE, SEVERAL, Cells, cells, edges, spread
from fusetui.trace.model.arrays import Int32s
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import memo
from fusetui.tui.drawing.schemes import BAR, Glyphs, Styled
from fusetui.tui.layout.frame import columns
from fusetui.tui.layout.kinds import KINDS, LETTERS, SliceKind, label_of, note_of
from fusetui.tui.layout.places import marks_selection, where_rows
from fusetui.tui.layout.view import Place, Side, View

if TYPE_CHECKING:
    from fusetui.analysis.replay.marks import Marks

PATH = "path"  # the token of what lies on the critical path
PREFIXES = ("autograd::engine::evaluate_function: ", "torch::autograd::", "aten::")
VENDOR = lazy_pattern(r"\A(?:cuda|cu|hip)(?=[A-Z])")
LEAST_LABEL = 4  # characters; fewer of a label would say nothing
MOST_LABELS = 1 << 16  # that are kept of a trace
APART = " > "
PLACE = lazy_pattern(r" \S+:\d+$")  # file and line after the name of a Python function
FILLED = tuple(kind.token for kind in KINDS)
BARS = tuple(token + BAR for token in FILLED)
Label = Callable[[int], str]  # what a row is called


def labeled(
    label: str, parts: Sequence[Styled], gutter: int, bar: str = " "
) -> list[Styled]:
    """A line with a label at its left; `bar` stands between both."""
    shown = label if len(label) < gutter else word_clip(label, gutter - 1)
    return [(shown.ljust(gutter - 1) + bar, "faint"), *parts]


@memo()
def labels_of(trace: Trace) -> Label:
    """What the rows are called."""

    @lru_cache(maxsize=MOST_LABELS)
    def label(row: int) -> str:
        note = note_of(trace, row)
        if note is not None:
            return note.label
        return label_of(int(trace.role[row]), trace.name_of(row))

    return label


def lane_line(
    side: Side,
    view: View,
    place: Place,
    width: int,
    glyphs: Glyphs,
    marked: Collection[int] = (),
    path: Marks | None = None,
) -> list[Styled]:
    """One line of a lane over `width` cells; `path`: what is marked as the critical
    path."""
    if place.line is None:
        return []
    borders = edges(view.begin + side.origin, view.end + side.origin, width)
    shown = cells(place.line, borders)
    chosen, on = range(0), list[bool]()
    if path is not None:
        part = spread(place.line, borders, path.before(place.line))
        on = ((part > 0) & (2 * part >= shown.covered)).tolist()
    if view.selected >= 0 and place.holds(view.selected):
        chosen = columns(side, view, view.selected, width)
    label = labels_of(side.trace)
    if place.around:
        label = partial(
            chain_of, side.trace, label, around=place.around, width=width - 1
        )
    cell_ns = max(1, view.span // max(width, 1))
    return slices(shown, cell_ns, label, glyphs, view.selected, chosen, marked, on)


def chain_of(trace: Trace, label: Label, row: int, around: int, width: int) -> str:
    """`<module> > main > ... > run_action`: the outermost frame, and innermost ones."""
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


def where_line(
    side: Side,
    view: View,
    place: Place,
    width: int,
    glyphs: Glyphs,
    path: Marks | None = None,
) -> list[Styled]:
    """Where the program was, over `width` cells: neighboring cells of one name are one
    block."""
    rows = where_rows(
        side, place, edges(view.begin + side.origin, view.end + side.origin, width)
    )
    label = labels_of(side.trace)
    names = [(label(row) if row >= 0 else "", look_of(path, row)) for row in rows]
    if marks_selection(side, view, place):
        for x in columns(side, view, view.selected, width):
            names[x] = label(view.selected), "selection"
    found: list[Styled] = []
    for (name, look), group in groupby(names):
        size, part = len(list(group)), ("", "plain")
        if look:
            part = chosen_slice(name, size, glyphs, look)
        elif name:
            part = filled_slice(name, size, SliceKind.PYTHON, is_filled(found), glyphs)
        found.append(part if name else (" " * size, "plain"))
    return found


def look_of(path: Marks | None, row: int) -> str:
    """The token of a slice on the critical path, "" for any other."""
    return PATH if path is not None and row >= 0 and path.is_on[row] else ""


def slices(
    cells: Cells,
    cell_ns: int,
    label: Label,
    glyphs: Glyphs,
    selected: int = -1,
    selected_cells: range = range(0),
    marked: Collection[int] = (),
    on_path: Sequence[bool] = (),
) -> list[Styled]:
    """One line. A slice of two or more cells is a block with its label; a single cell
    is a bar as high as the share of it that is covered. Where there may be no color,
    letters tell the kind. `selected_cells` are where the selected row lies, even if
    others hide it."""
    found: list[Styled] = []
    shown = cells.row
    if selected_cells:  # over all others
        shown = shown.copy()
        shown[selected_cells.start : selected_cells.stop] = selected
    rows, kinds = shown.tolist(), cells.kind.tolist()
    levels: list[int] = []  # worked out where there is a bar
    x = 0
    for end in _ends(shown):
        row, number, size = rows[x], kinds[x], end - x
        look = (
            "marked"
            if row in marked
            else PATH
            if on_path and on_path[(x + end) // 2]
            else ""
        )
        if row == NO_SLICE:
            found.append((" " * size, "plain"))
        elif row == selected:
            found.append(chosen_slice(label(row), size, glyphs))
        elif size > 1 and look:
            letter = LETTERS[KINDS[number]] if look == PATH else " "
            found.append(chosen_slice(label(row), size, glyphs, look, letter))
        elif size > 1:
            found.append(
                filled_slice(label(row), size, KINDS[number], is_filled(found), glyphs)
            )
        else:
            levels = levels or _levels(cells, cell_ns, glyphs)
            text, token = _cell(levels[x], number, look, glyphs)
            # painted faster
            if found and found[-1][1] == token and token.endswith(BAR):
                text = found.pop()[0] + text
            found.append((text, token))
        x = end
    return found


def _cell(level: int, number: int, look: str, glyphs: Glyphs) -> Styled:
    """A single cell: a bar, or the letter of its kind where there may be no color."""
    if look == PATH:
        return (
            (glyphs.path, PATH)
            if glyphs.letters
            else (glyphs.levels[level], PATH + BAR)
        )
    if glyphs.letters and 2 * level >= glyphs.top:
        return LETTERS[KINDS[number]], look or FILLED[number]
    return glyphs.levels[level], look or BARS[number]


def _ends(rows: Int32s) -> list[int]:
    """Where each stretch of cells of one row ends; cells that no slice stands for are
    alone."""
    if not len(rows):
        return []
    new = np.flatnonzero((rows[1:] != rows[:-1]) | (rows[1:] == SEVERAL))
    return [*(new + 1).tolist(), len(rows)]


def _levels(cells: Cells, cell_ns: int, glyphs: Glyphs) -> list[int]:
    """How high a bar in each cell is: the share that is covered, but at least the
    least."""
    level = np.rint(cells.covered * glyphs.top / max(cell_ns, 1))
    return [*np.clip(level, 1, glyphs.top).astype(np.int64).tolist()]


def is_filled(parts: Sequence[Styled]) -> bool:
    """Whether the last of these is a block, so that one beside it shows where it
    begins."""
    return bool(parts) and parts[-1][1] in FILLED


def filled_slice(
    label: str, width: int, kind: SliceKind, beside: bool, glyphs: Glyphs
) -> Styled:
    """A slice of some cells; its first cell shows where it begins beside another
    one."""
    edge, text = (
        glyphs.edge if beside else " ",
        _fitted(label, width - 1, glyphs.ellipsis),
    )
    if not glyphs.letters:
        return (edge + text).ljust(width), kind.token
    begin = f"{edge}{text} " if text else edge.strip()
    return begin[:width].ljust(width, LETTERS[kind]), kind.token


def chosen_slice(
    label: str, width: int, glyphs: Glyphs, token: str = "selection", letter: str = " "
) -> Styled:
    """A slice that is selected or marked; filled with a letter where there may be no
    color."""
    if width == 1:
        return glyphs.path if token == PATH else glyphs.selected_cell, token
    text = _fitted(label, width - 1, glyphs.ellipsis)
    fill = letter if glyphs.letters and len(text) < width - 2 else " "
    begin = glyphs.path if token == PATH else glyphs.selected
    return f"{begin}{text}{' ' if text else ''}"[:width].ljust(width, fill), token


@lru_cache(maxsize=1 << 15)
def _fitted(label: str, width: int, ellipsis: str) -> str:
    """The label, or its first words, or its ends; nothing if that would be
    meaningless."""
    if len(label) <= width:
        return label
    bare = label
    for prefix in PREFIXES:
        bare = bare.removeprefix(prefix)
    bare = VENDOR.sub("", bare)
    if words := bare if len(bare) <= width else bare[: width + 1].rpartition(" ")[0]:
        return words
    return (
        middle_clip(bare.partition(" ")[0], width, ellipsis)
        if width >= LEAST_LABEL
        else ""
    )
