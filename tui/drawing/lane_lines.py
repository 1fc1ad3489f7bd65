"""The lanes of a timeline: slices as blocks with their names, single cells as bars."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache, partial
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from fusetui.text.cutting import middle_clip, word_clip
from fusetui.text.patterns import lazy_pattern
from fusetui.timeline.cells import (
    NO_SLICE,
    SEVERAL,
    Cells,
    DepthRow,
    cells,
    spread,
)
from fusetui.trace.model.arrays import Int32s, Int64s
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import memo
from fusetui.tui.drawing.schemes import BAR, Glyphs, Styled
from fusetui.tui.layout.frame import cell_borders, columns
from fusetui.tui.layout.kinds import KINDS, LETTERS, SliceKind, label_of, note_of
from fusetui.tui.layout.places import marks_selection, where_rows
from fusetui.tui.layout.view import Place, Side, View

if TYPE_CHECKING:
    from fusetui.analysis.replay.marks import Marks

PATH = "path"  # the token of what lies on the critical path
PREFIXES = ("autograd::engine::evaluate_function: ", "torch::autograd::", "aten::")
VENDOR = lazy_pattern(r"\A(?:cuda|cu|hip)(?=[A-Z])")
MIN_LABEL_CHARS = 4  # fewer of a label would say nothing
MAX_LABELS_KEPT = 1 << 16  # of a trace
BETWEEN_FRAMES = " > "
FILE_AND_LINE = lazy_pattern(r" \S+:\d+$")  # after the name of a Python function
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
    """A function that returns what a row is called, and keeps the last answers."""

    @lru_cache(maxsize=MAX_LABELS_KEPT)
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
    borders = cell_borders(side, view, width)
    shown = cells(place.line, borders)
    selected_cells = range(0)
    if view.selected >= 0 and place.holds(view.selected):
        selected_cells = columns(side, view, view.selected, width)
    return slices(
        shown,
        cell_ns=max(1, view.span // max(width, 1)),
        label=_label_on(side, place, width),
        glyphs=glyphs,
        selected=view.selected,
        selected_cells=selected_cells,
        marked=marked,
        on_path=_cells_on_path(place.line, borders, shown, path),
    )


def _label_on(side: Side, place: Place, width: int) -> Label:
    """What rows are called on a line: with the frames around them on one that names
    those too."""
    label = labels_of(side.trace)
    if not place.around:
        return label
    return partial(chain_of, side.trace, label, around=place.around, width=width - 1)


def _cells_on_path(
    line: DepthRow, borders: Int64s, shown: Cells, path: Marks | None
) -> list[bool]:
    """Whether at least half of what slices cover of a cell is on the critical path, of
    each cell; [] where no path is marked."""
    if path is None:
        return []
    on_path_ns = spread(line, borders, path.before(line))
    is_half = 2 * on_path_ns >= shown.covered
    return [*((on_path_ns > 0) & is_half).tolist()]


def chain_of(trace: Trace, label: Label, row: int, around: int, width: int) -> str:
    """`<module> > main > ... > run_action`: the frame of a row and at most `around`
    frames around it. Where they do not fit in `width` cells, the outermost frame, and
    innermost ones."""
    rows = [row]
    outer = int(trace.parent[row])
    while outer >= 0 and len(rows) <= around:
        rows.insert(0, outer)
        outer = int(trace.parent[outer])
    names = [FILE_AND_LINE.sub("", label(frame)) for frame in rows]
    chain = BETWEEN_FRAMES.join(names)
    if len(chain) <= width:
        return chain
    innermost = names[-1:]
    for name in reversed(names[1:-1]):
        longer = BETWEEN_FRAMES.join([names[0], "...", name, *innermost])
        if len(longer) > width:
            break
        innermost.insert(0, name)
    return BETWEEN_FRAMES.join([names[0], "...", *innermost])


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
    parts: list[Styled] = []
    for (name, look), group in groupby(_where_cells(side, view, place, width, path)):
        size = len(list(group))
        if not name:
            part = (" " * size, "plain")
        elif look:
            part = chosen_slice(name, size, glyphs, look)
        else:
            is_beside = is_filled(parts)
            part = filled_slice(name, size, SliceKind.PYTHON, is_beside, glyphs)
        parts.append(part)
    return parts


def _where_cells(
    side: Side, view: View, place: Place, width: int, path: Marks | None
) -> list[tuple[str, str]]:
    """The name of the frame in which the program was in each cell, "" for none, and the
    token of one that is on the critical path or selected, "" for others."""
    borders = cell_borders(side, view, width)
    label = labels_of(side.trace)
    names_and_looks = []
    for row in where_rows(side, place, borders):
        name = label(row) if row >= 0 else ""
        names_and_looks.append((name, look_of(path, row)))
    if marks_selection(side, view, place):
        for x in columns(side, view, view.selected, width):
            names_and_looks[x] = (label(view.selected), "selection")
    return names_and_looks


def look_of(path: Marks | None, row: int) -> str:
    """The token of a slice on the critical path, "" for any other."""
    is_on_path = path is not None and row >= 0 and path.is_on[row]
    return PATH if is_on_path else ""


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
    parts: list[Styled] = []
    levels: list[int] = []  # worked out where there is a bar
    rows = _rows_with_selection(cells, selected, selected_cells)
    looks = _looks(rows, marked, on_path)
    row_of_cell = rows.tolist()
    kind_of_cell = cells.kind.tolist()
    begin = 0
    for end in _ends(rows):
        row = row_of_cell[begin]
        size = end - begin
        if row == NO_SLICE:
            parts.append((" " * size, "plain"))
        elif row == selected:
            parts.append(chosen_slice(label(row), size, glyphs))
        elif size > 1:
            kind = KINDS[kind_of_cell[begin]]
            look = looks[(begin + end) // 2] if looks else ""
            is_beside = is_filled(parts)
            parts.append(_wide_slice(label(row), size, kind, look, is_beside, glyphs))
        else:
            levels = levels or _levels(cells, cell_ns, glyphs)
            look = looks[begin] if looks else ""
            cell = _cell(levels[begin], kind_of_cell[begin], look, glyphs)
            _append_cell(parts, cell)
        begin = end
    return parts


def _looks(rows: Int32s, marked: Collection[int], on_path: Sequence[bool]) -> list[str]:
    """The token of each cell that is marked or on the critical path, "" for others; []
    where nothing is. `rows`: of each cell."""
    if not marked and not on_path:
        return []
    looks = [PATH if is_on else "" for is_on in on_path] or [""] * len(rows)
    if marked:
        for x, row in enumerate(rows.tolist()):
            if row in marked:
                looks[x] = "marked"
    return looks


def _rows_with_selection(cells: Cells, selected: int, selected_cells: range) -> Int32s:
    """The row of each cell; that of the selection hides all others."""
    if not selected_cells:
        return cells.row
    rows = cells.row.copy()
    rows[selected_cells.start : selected_cells.stop] = selected
    return rows


def _wide_slice(
    label: str, size: int, kind: SliceKind, look: str, is_beside: bool, glyphs: Glyphs
) -> Styled:
    """A slice of several cells. `look`: the token of one that is marked or on the
    critical path, which keeps the letter of its kind."""
    if not look:
        return filled_slice(label, size, kind, is_beside, glyphs)
    letter = LETTERS[kind] if look == PATH else " "
    return chosen_slice(label, size, glyphs, look, letter)


def _append_cell(parts: list[Styled], cell: Styled) -> None:
    """Adds a single cell to the parts of a line. Bars of one color are one part, which
    is painted faster."""
    text, token = cell
    if parts and token.endswith(BAR):
        text_before, token_before = parts[-1]
        if token_before == token:
            parts[-1] = (text_before + text, token)
            return
    parts.append((text, token))


def _cell(level: int, number: int, look: str, glyphs: Glyphs) -> Styled:
    """A single cell of a kind of slices, by its number: a bar, or the letter of the kind
    where there may be no color."""
    if look == PATH and glyphs.letters:
        return glyphs.path, PATH
    if look == PATH:
        return glyphs.levels[level], PATH + BAR
    if glyphs.letters and 2 * level >= glyphs.top:
        return LETTERS[KINDS[number]], look or FILLED[number]
    return glyphs.levels[level], look or BARS[number]


def _ends(rows: Int32s) -> list[int]:
    """Where each stretch of cells of one row ends; cells that no slice stands for are
    alone."""
    if not len(rows):
        return []
    is_other_row = rows[1:] != rows[:-1]
    is_alone = rows[1:] == SEVERAL
    begins = np.flatnonzero(is_other_row | is_alone) + 1
    return [*begins.tolist(), len(rows)]


def _levels(cells: Cells, cell_ns: int, glyphs: Glyphs) -> list[int]:
    """How high a bar in each cell is: the share that is covered, but at least the
    lowest."""
    level = np.rint(cells.covered * glyphs.top / max(cell_ns, 1))
    return [*np.clip(level, 1, glyphs.top).astype(np.int64).tolist()]


def is_filled(parts: Sequence[Styled]) -> bool:
    """Whether the last of these is a block, so that one beside it shows where it
    begins."""
    return bool(parts) and parts[-1][1] in FILLED


def filled_slice(
    label: str, width: int, kind: SliceKind, beside: bool, glyphs: Glyphs
) -> Styled:
    """A slice of some cells; its first cell shows where it begins beside another one.
    Where there may be no color, it is filled with the letter of its kind."""
    edge = glyphs.edge if beside else " "
    text = _fitted(label, width - 1, glyphs.ellipsis)
    if not glyphs.letters:
        return (edge + text).ljust(width), kind.token
    begin = f"{edge}{text} " if text else edge.strip()
    return begin[:width].ljust(width, LETTERS[kind]), kind.token


def chosen_slice(
    label: str, width: int, glyphs: Glyphs, token: str = "selection", letter: str = " "
) -> Styled:
    """A slice that is selected or marked; filled with a letter where there may be no
    color."""
    is_on_path = token == PATH
    if width == 1:
        return glyphs.path if is_on_path else glyphs.selected_cell, token
    text = _fitted(label, width - 1, glyphs.ellipsis)
    begin = (glyphs.path if is_on_path else glyphs.selected) + text
    if text:
        begin += " "
    has_room_for_letters = len(text) < width - 2
    fill = letter if glyphs.letters and has_room_for_letters else " "
    return begin[:width].ljust(width, fill), token


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
    if len(bare) <= width:
        whole_words = bare
    else:
        whole_words = bare[: width + 1].rpartition(" ")[0]
    if whole_words:
        return whole_words
    if width < MIN_LABEL_CHARS:
        return ""
    first_word = bare.partition(" ")[0]
    return middle_clip(first_word, width, ellipsis)
