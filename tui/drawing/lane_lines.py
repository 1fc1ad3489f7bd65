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
    spread_over_cells,
)
from fusetui.trace.model.arrays import NO_ROW, Int32s, Int64s
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import memo
from fusetui.tui.drawing.schemes import BAR, Glyphs, Styled
from fusetui.tui.layout.frame import columns, compute_cell_edges
from fusetui.tui.layout.kinds import KINDS, LETTERS, SliceKind, find_note, label_of
from fusetui.tui.layout.places import find_program_location, marks_selection
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
    """Return the parts of a line with its label at the left end.

    A part is a text with the name of its style. The label takes `gutter` cells: it is
    cut to `gutter - 1` of them, and `bar` (a scroll bar or a blank) fills the last one.
    `parts` follow unchanged.
    """
    gutter_label = label if len(label) < gutter else word_clip(label, gutter - 1)
    return [(gutter_label.ljust(gutter - 1) + bar, "faint"), *parts]


@memo()
def make_row_labeler(trace: Trace) -> Label:
    """Return a function that maps a row of the trace to its label on the timeline.

    A row is the index of a slice in the trace. A note from the compile log (a
    compilation or a graph break) takes precedence over the name of the slice. There is
    one function per trace, which caches up to MAX_LABELS_KEPT labels.
    """

    @lru_cache(maxsize=MAX_LABELS_KEPT)
    def label(row: int) -> str:
        note = find_note(trace, row)
        if note is not None:
            return note.label
        return label_of(int(trace.role[row]), trace.name_of(row))

    return label


def draw_lane_line(
    side: Side,
    view: View,
    place: Place,
    width: int,
    glyphs: Glyphs,
    marked: Collection[int] = (),
    path: Marks | None = None,
) -> list[Styled]:
    """Draw one line of a lane over `width` cells, as texts with their styles.

    A lane shows the slices of one thread or stream. The selected slice is highlighted
    if it lies on this line. The list is empty if the line has no slices but only a
    text.

    Args:
        side: The trace and its lanes.
        view: The visible window and the selection.
        place: The line of the lane.
        width: The cells of the window.
        glyphs: The drawing characters of the terminal.
        marked: Other rows to highlight, such as search hits.
        path: What is on the critical path; None if it is not shown.
    """
    if place.line is None:
        return []
    borders = compute_cell_edges(side, view, width)
    line_cells = cells(place.line, borders)
    selected_cells = range(0)
    if view.has_selection and place.holds(view.selected):
        selected_cells = columns(side, view, view.selected, width)
    return slices(
        line_cells,
        cell_ns=max(1, view.span // max(width, 1)),
        label=_choose_labeler(side, place, width),
        glyphs=glyphs,
        selected=view.selected,
        selected_cells=selected_cells,
        marked=marked,
        on_path=_find_cells_on_path(place.line, borders, line_cells, path),
    )


def _choose_labeler(side: Side, place: Place, width: int) -> Label:
    """Return the function that names the rows on a line of a lane.

    Some lines of Python frames also stand for the `place.around` lines above them,
    which are hidden. There a label is the chain of these frames, cut to the width. On
    any other line it is the label of the row alone.
    """
    label = make_row_labeler(side.trace)
    if not place.around:
        return label
    return partial(
        join_frame_names, side.trace, label, around=place.around, width=width - 1
    )


def _find_cells_on_path(
    line: DepthRow, borders: Int64s, shown: Cells, path: Marks | None
) -> list[bool]:
    """Tell for each cell of a line whether it is drawn as part of the critical path.

    A cell is, if at least half of the time that slices cover in it is on the path.
    `borders` are the width + 1 boundaries of the cells, in ns of the file. The list is
    empty if no path is shown.
    """
    if path is None:
        return []
    on_path_ns = spread_over_cells(line, borders, path.before(line))
    is_half = 2 * on_path_ns >= shown.covered
    is_on_path = (on_path_ns > 0) & is_half
    return list(is_on_path.tolist())


def join_frame_names(
    trace: Trace, label: Label, row: int, around: int, width: int
) -> str:
    """Return the names of a Python frame and of the frames around it, such as `<module>
    > main > ... > run_action`.

    `row` is the frame itself, and comes last; at most `around` frames precede it, the
    outermost first. If the chain is longer than `width` cells, `...` replaces frames in
    the middle: the outermost frame and as many inner ones as fit are kept. The result
    may still be too long if two names alone do not fit.
    """
    frames = [row]  # the outermost first
    caller = int(trace.parent[row])
    while caller != NO_ROW and len(frames) <= around:
        frames.insert(0, caller)
        caller = int(trace.parent[caller])
    names = [FILE_AND_LINE.sub("", label(frame)) for frame in frames]
    all_names = BETWEEN_FRAMES.join(names)
    if len(all_names) <= width:
        return all_names
    outermost = names[0]
    inner_names = [names[-1]]
    shortened = BETWEEN_FRAMES.join([outermost, "...", *inner_names])
    # inner frames tell more than outer ones: they are added from the inside out
    for name in reversed(names[1:-1]):
        inner_names.insert(0, name)
        longer = BETWEEN_FRAMES.join([outermost, "...", *inner_names])
        if len(longer) > width:
            break
        shortened = longer
    return shortened


def draw_program_location_line(
    side: Side,
    view: View,
    place: Place,
    width: int,
    glyphs: Glyphs,
    path: Marks | None = None,
) -> list[Styled]:
    """Draw the line that shows which Python frame or module the program was in, as
    texts with their styles.

    Neighboring cells with the same name become one block. A block is highlighted if it
    is on the critical path or selected. Cells without a frame are blank.

    Args:
        side: The trace and its lanes.
        view: The visible window and the selection.
        place: The line of the thread.
        width: The cells of the window.
        glyphs: The drawing characters of the terminal.
        path: What is on the critical path; None if it is not shown.
    """
    pieces: list[Styled] = []
    frame_of_cell = _locate_program_in_cells(side, view, place, width, path)
    for (name, highlight), equal_cells in groupby(frame_of_cell):
        size = len(list(equal_cells))
        if not name:
            block = (" " * size, "plain")
        elif highlight:
            block = draw_highlighted_slice(name, size, glyphs, highlight)
        else:
            touches_block = ends_with_slice(pieces)
            block = draw_filled_slice(
                name, size, SliceKind.PYTHON, touches_block, glyphs
            )
        pieces.append(block)
    return pieces


def _locate_program_in_cells(
    side: Side, view: View, place: Place, width: int, path: Marks | None
) -> list[tuple[str, str]]:
    """Return for each cell the name of the frame the program was in, and the style of a
    highlight.

    The name is "" where no frame was recorded. The highlight is "path" for a frame on
    the critical path, "selection" for the selected one, and "" for any other. The
    selection has precedence.
    """
    borders = compute_cell_edges(side, view, width)
    label = make_row_labeler(side.trace)
    names_and_highlights = []
    for row in find_program_location(side, place, borders):
        name = label(row) if row != NO_ROW else ""
        names_and_highlights.append((name, find_path_style(path, row)))
    if marks_selection(side, view, place):
        for x in columns(side, view, view.selected, width):
            names_and_highlights[x] = (label(view.selected), "selection")
    return names_and_highlights


def find_path_style(path: Marks | None, row: int) -> str:
    """Return the style of a slice on the critical path, or "" for any other slice.

    `path` is None where no critical path is shown; `row` is -1 where there is no slice.
    """
    is_on_path = path is not None and row != NO_ROW and path.is_on[row]
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
    """Draw the slices of one line of the timeline, as texts with their styles.

    A slice of two or more cells is a block with its label. A single cell is a bar, as
    high as the share of its time that slices cover. In colorless terminals a letter
    shows the kind of a slice instead.

    Args:
        cells: The slice in each cell, its kind, and how much of the cell is covered.
        cell_ns: The time that a cell stands for.
        label: Returns the name of a row.
        glyphs: The drawing characters of the terminal.
        selected: The selected row, or -1.
        selected_cells: Its cells, which are highlighted even if other slices hide it.
        marked: Other rows to highlight, such as search hits.
        on_path: Whether each cell is on the critical path; empty if no path is shown.
    """
    parts: list[Styled] = []
    rows = _show_selection_on_top(cells, selected, selected_cells)
    highlights = _highlight_cells(rows, marked, on_path)
    row_of_cell = rows.tolist()
    kind_of_cell = cells.kind.tolist()
    bar_heights: list[int] = []
    begin = 0
    for end in _find_slice_ends(rows):
        row = row_of_cell[begin]
        size = end - begin
        middle = (begin + end) // 2
        kind = kind_of_cell[begin]
        # a wide slice may be on the path in part: its middle decides
        highlight = highlights[middle] if highlights else ""
        if row == NO_SLICE:
            parts.append((" " * size, "plain"))
        elif row == selected:
            parts.append(draw_highlighted_slice(label(row), size, glyphs))
        elif size > 1:
            touches_block = ends_with_slice(parts)
            block = _draw_wide_slice(
                label(row), size, KINDS[kind], highlight, touches_block, glyphs
            )
            parts.append(block)
        else:
            if not bar_heights:
                # for the whole line at once, and only if it has a bar
                bar_heights = _compute_bar_heights(cells, cell_ns, glyphs)
            bar = _draw_narrow_slice(bar_heights[begin], kind, highlight, glyphs)
            _append_cell(parts, bar)
        begin = end
    return parts


def _highlight_cells(
    rows: Int32s, marked: Collection[int], on_path: Sequence[bool]
) -> list[str]:
    """Return the highlight of each cell: "marked", "path" (on the critical path) or "".

    `rows` holds the row of the slice in each cell. `marked` are rows to highlight,
    which takes precedence over the critical path. `on_path` tells for each cell whether
    it is on the path; it may be empty. Without any highlight the result is an empty
    list, so that callers skip the lookup.
    """
    if not marked and not on_path:
        return []
    if on_path:
        highlights = [PATH if is_on else "" for is_on in on_path]
    else:
        highlights = [""] * len(rows)
    if marked:
        for x, row in enumerate(rows.tolist()):
            if row in marked:
                highlights[x] = "marked"
    return highlights


def _show_selection_on_top(
    cells: Cells, selected: int, selected_cells: range
) -> Int32s:
    """Return the row of the slice in each cell, with the selected row in all of its
    cells.

    The selection hides other slices there, so that it can be seen in any zoom. Without
    selected cells the array of `cells` is returned as it is; it is never changed.
    """
    if not selected_cells:
        return cells.row
    rows = cells.row.copy()
    rows[selected_cells.start : selected_cells.stop] = selected
    return rows


def _draw_wide_slice(
    label: str, size: int, kind: SliceKind, look: str, is_beside: bool, glyphs: Glyphs
) -> Styled:
    """Draw a slice that is at least two cells wide, as a text with its style.

    Args:
        label: The name of the slice; cut if it does not fit.
        size: Its cells.
        kind: What it does, which decides its color.
        look: Its highlight: "path" on the critical path, "marked", or "" for none.
        is_beside: Whether another block touches its left end.
        glyphs: The drawing characters of the terminal.
    """
    if not look:
        return draw_filled_slice(label, size, kind, is_beside, glyphs)
    letter = LETTERS[kind] if look == PATH else " "
    return draw_highlighted_slice(label, size, glyphs, look, letter)


def _append_cell(parts: list[Styled], cell: Styled) -> None:
    """Append a cell to the parts of a line, in place.

    A bar in the style of the part before it is merged into that part, because fewer
    parts are painted faster.
    """
    text, token = cell
    if parts and token.endswith(BAR):
        text_before, token_before = parts[-1]
        if token_before == token:
            parts[-1] = (text_before + text, token)
            return
    parts.append((text, token))


def _draw_narrow_slice(level: int, number: int, look: str, glyphs: Glyphs) -> Styled:
    """Draw slices in a single cell, as a text with its style.

    The cell is a bar of height `level`. In colorless terminals it is the letter of the
    kind if the bar fills at least half of the cell. `number` is the index of the kind
    in KINDS. `look` is the highlight: "path" on the critical path, "marked", or "".
    """
    if look == PATH and glyphs.letters:
        return glyphs.path, PATH
    if look == PATH:
        return glyphs.levels[level], PATH + BAR
    is_half_full = 2 * level >= glyphs.top
    if glyphs.letters and is_half_full:
        return LETTERS[KINDS[number]], look or FILLED[number]
    return glyphs.levels[level], look or BARS[number]


def _find_slice_ends(rows: Int32s) -> list[int]:
    """Return the end (exclusive) of each block of cells that belong to one row.

    `rows` holds the row of each cell; it may be empty, as is the result then. A cell
    with SEVERAL slices is a block of its own, because its neighbors may hold other
    slices.
    """
    if not len(rows):
        return []
    is_other_row = rows[1:] != rows[:-1]
    is_alone = rows[1:] == SEVERAL
    begins = np.flatnonzero(is_other_row | is_alone) + 1
    return [*begins.tolist(), len(rows)]


def _compute_bar_heights(cells: Cells, cell_ns: int, glyphs: Glyphs) -> list[int]:
    """Return the height of a bar in each cell, from 1 to `glyphs.top`.

    It is proportional to the part of the cell's `cell_ns` that slices cover. Even the
    shortest slice gets a bar of height 1.
    """
    level = np.rint(cells.covered * glyphs.top / max(cell_ns, 1))
    return [*np.clip(level, 1, glyphs.top).astype(np.int64).tolist()]


def ends_with_slice(parts: Sequence[Styled]) -> bool:
    """Tell whether a line drawn so far ends with a filled block. The next block then
    draws its left edge, so that the two can be told apart. Empty lines end with none.
    """
    return bool(parts) and parts[-1][1] in FILLED


def draw_filled_slice(
    label: str, width: int, kind: SliceKind, beside: bool, glyphs: Glyphs
) -> Styled:
    """Draw a slice as a filled block of `width` cells with its label.

    Args:
        label: The name of the slice; cut if it does not fit.
        width: The cells of the block.
        kind: What the slice does, which decides its color.
        beside: Whether it touches a block at its left; an edge then separates them.
        glyphs: The drawing characters; in colorless terminals letters fill the block.
    """
    edge = glyphs.edge if beside else " "
    text = _shorten_label(label, width - 1, glyphs.ellipsis)
    if not glyphs.letters:
        return (edge + text).ljust(width), kind.token
    begin = f"{edge}{text} " if text else edge.strip()
    return begin[:width].ljust(width, LETTERS[kind]), kind.token


def draw_highlighted_slice(
    label: str, width: int, glyphs: Glyphs, token: str = "selection", letter: str = " "
) -> Styled:
    """Draw a selected or marked slice, or one on the critical path, as a block of
    `width` cells.

    The block begins with a sign for the selection or the path, then the label as far as
    it fits. `token` is the style. In colorless terminals `letter` fills the rest of the
    block, if at least two cells are free.
    """
    is_on_path = token == PATH
    if width == 1:
        return glyphs.path if is_on_path else glyphs.selected_cell, token
    text = _shorten_label(label, width - 1, glyphs.ellipsis)
    begin = (glyphs.path if is_on_path else glyphs.selected) + text
    if text:
        begin += " "
    # a single letter behind the label would look like part of it
    has_room_for_letters = len(text) < width - 2
    fill = letter if glyphs.letters and has_room_for_letters else " "
    return begin[:width].ljust(width, fill), token


@lru_cache(maxsize=1 << 15)
def _shorten_label(label: str, width: int, ellipsis: str) -> str:
    """Shorten a label to `width` cells.

    These are tried in turn: the label, the label without its library prefix (such as
    `aten::`), its first words, and the two ends of its first word. The result is "" if
    fewer than MIN_LABEL_CHARS cells are left, because so short a text says nothing.
    """
    if len(label) <= width:
        return label
    without_prefix = label
    for prefix in PREFIXES:
        without_prefix = without_prefix.removeprefix(prefix)
    without_prefix = VENDOR.sub("", without_prefix)
    if len(without_prefix) <= width:
        whole_words = without_prefix
    else:
        # one character more, because a word may end exactly at the width
        whole_words = without_prefix[: width + 1].rpartition(" ")[0]
    if whole_words:
        return whole_words
    if width < MIN_LABEL_CHARS:
        return ""
    first_word = without_prefix.partition(" ")[0]
    return middle_clip(first_word, width, ellipsis)
