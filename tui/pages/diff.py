"""The diff page: the verdict, both timelines on one scale, and the aligned rows."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from fusetui.analysis.diff.model import Answer, Diff, RowKind
from fusetui.report.diff import format_sides, judgment
from fusetui.report.diff_lines import APART, REGION, DiffLine, differing, fitted
from fusetui.text.figures import microseconds
from fusetui.tui.drawing.details import flow_texts
from fusetui.tui.drawing.picture import (
    Rows,
    Said,
    TextPicture,
    cut,
    folded,
    make_ruled_picture,
    text,
)
from fusetui.tui.drawing.schemes import Styled, choose_glyphs
from fusetui.tui.drawing.timeline import TimelinePicture
from fusetui.tui.layout import moves
from fusetui.tui.layout.kinds import narrow
from fusetui.tui.layout.memory import OverlayLines
from fusetui.tui.layout.text_layout import ListColumn, fit, room, titles
from fusetui.tui.layout.view import View
from fusetui.tui.pages.page import NO_MORE, ListPage, Pane, make_page_table
from fusetui.tui.pages.timeline import LETTERS, view_after_click
from fusetui.tui.state.action import Run, action, format_hints, on
from fusetui.tui.state.comparison import Comparison, DiffLines, find_rows_of_line
from fusetui.tui.state.moving import Move, P, bring_to_timeline
from fusetui.tui.state.reading import compare_again
from fusetui.tui.state.state import DIFF, Details, Outcome, Overlay, Size, State, told

if TYPE_CHECKING:
    from fusetui.tables.public import Table

STYLE_OF_MARK = {"+": "bad", "-": "good", "~": "plain"}
MAX_ROW_CELLS = 1000  # of a row of an overlay, before it is wrapped
MIN_NUMBER_CELLS = 8  # of a column of numbers
ROOMY_LINES = 25  # of a page: with more, there is room for a line about each side
MIN_LINES_WITH_TIMELINES = 22  # with fewer, the list of changes has their room
# with more, the timelines are larger, and both names of a replaced kernel are shown
TALL_LINES = 40
STYLE_OF_ANSWER = {Answer.FASTER: "good", Answer.SLOWER: "bad"}
MIN_LINES_WITH_TWO_REASONS = 17
WHY_LINES = 2
MAX_STORY_LINES = 3
LOW_STORY_LINES = 1  # on a low page, whose room the rows need; its end is an ellipsis
NAME_LINES = 4
WORKING = "Comparing A and B..."
REGION_HINTS = (
    "diff-open opens and closes the region",
    "show shows all of it",
    "details lists its rows",
)
NO_WORK = "this row has no work of its own to show"


@lru_cache(maxsize=4)
def columns_of(found: DiffLines | None) -> tuple[ListColumn, ...]:
    """Return the columns of the diff, in which no number is cut."""
    return _make_columns(_collect_all_lines(found))


def _make_columns(lines: Sequence[DiffLine]) -> tuple[ListColumn, ...]:
    """Return the columns for some lines. Columns of numbers are as wide as their widest
    number."""
    texts = [_format_line(line) for line in lines]
    kind_cells = max([len("step"), *(len(text.kind) for text in texts)])
    return (
        ListColumn("", 1),
        _make_number_column("change us", [text.change for text in texts]),
        _make_number_column("A us", [text.a for text in texts]),
        _make_number_column("B us", [text.b for text in texts]),
        ListColumn("what", kind_cells, left=True),
        ListColumn("of", 0, left=True),
    )


def _collect_all_lines(found: DiffLines | None) -> list[DiffLine]:
    """Return all lines of a comparison, also those inside closed ones. There are none
    until it is known."""
    if found is None:
        return []
    lines = [*found.lines, *found.pinned, *found.closing]
    for inner in found.inner.values():
        lines += inner
    return lines


def _make_number_column(title: str, numbers: Sequence[str]) -> ListColumn:
    """Return a column that is wide enough for its title and all these numbers."""
    widest = max(map(len, numbers), default=0)
    return ListColumn(title, max(MIN_NUMBER_CELLS, len(title), widest))


class _LineTexts(NamedTuple):
    """What stands in the columns of a line, but for the last one."""

    mark: str
    change: str
    a: str
    b: str
    kind: str


def _format_line(line: DiffLine) -> _LineTexts:
    """Return the texts of a line's columns.

    A change that does not count in the sum stands in parentheses. A time that one side
    does not have is blank.
    """
    change = microseconds(line.change_ns, signed=True)
    return _LineTexts(
        mark=line.mark,
        change=change if line.counts else f"({change})",
        a="" if line.a_ns is None else microseconds(line.a_ns),
        b="" if line.b_ns is None else microseconds(line.b_ns),
        kind=line.kind,
    )


def fit_line(columns: Sequence[ListColumn], line: DiffLine, width: int) -> list[str]:
    """Return the texts of a line, each in the width of its column. Characters that are
    wider than a cell are replaced."""
    narrow_text = narrow(line.what)
    parts = tuple(narrow(part) for part in line.parts)
    narrowed = replace(line, what=narrow_text, parts=parts)
    fitted_text, _ = fitted(narrowed, room(columns, width))
    return fit(columns, [*_format_line(line), fitted_text], width)


def draw_line(
    columns: Sequence[ListColumn], lines: Sequence[DiffLine], index: int, width: int
) -> list[Styled]:
    """Return the texts of line `index` in the style of its mark: worse, better or
    changed."""
    style = STYLE_OF_MARK.get(lines[index].mark, "faint")
    return [(text, style) for text in fit_line(columns, lines[index], width)]


def compare_names(line: DiffLine) -> list[Said]:
    """Return the names of both kernels where one replaced the other, with their
    differences marked below each. Other lines give nothing."""
    if line.kind == REGION or not line.rows:
        return []
    row = line.rows[0]
    if row.kind is not RowKind.REPLACED or not row.a or not row.b:
        return []
    name_a = narrow(row.a[0])
    name_b = narrow(row.b[0])
    marks_a, marks_b = differing(name_a, name_b)
    return [
        Said(f"A {name_a}", "plain"),
        Said(f"  {marks_a}", "warning"),
        Said(f"B {name_b}", "plain"),
        Said(f"  {marks_b}", "warning"),
    ]


class DiffPage(ListPage):
    """What changed from A to B; the largest change first."""

    name, title, key = DIFF, "Diff", "4"
    help = "what changed from A to B"
    hints = (
        "help help; row-down/row-up move; show show in both timelines; "
        "diff-open open a region; swap swap; copy copy"
    )

    def missing(self, state: State) -> str:
        """Return a sentence that says the diff needs two whole traces, or "" where they
        are open."""
        if state.has_diff:
            return ""
        return "Diff needs two fully loaded traces: fusetui open A B"

    def awaits(self, state: State) -> bool:
        """Return whether the traces are being compared."""
        return state.comparison is not None and state.comparison.found is None

    def open(self, state: State) -> Outcome:
        """Return the state with the diff at the windows of the timeline. The traces are
        compared if they were not yet."""
        if state.comparison is None:
            return compare_again(state) if state.has_diff else state
        comparison = state.comparison.beside(state.session.views)
        return replace(state, comparison=comparison)

    def rows(self, state: State) -> Rows:
        """Return the lines of the comparison as rows; none until it is known."""
        columns = columns_of(_known_diff(state))
        lines = state.comparison.lines if state.comparison else ()
        return Rows(
            identity=_list_identity(state),
            count=len(lines),
            titles=partial(titles, columns),
            format=partial(draw_line, columns, lines),
        )

    def chosen(self, state: State, index: int) -> State:
        """Carry out Enter: show the work of the line in the timelines of both traces. Of
        a region all of its work is in sight."""
        line = self.line(state)
        if line is None:
            return state
        rows_of_sides = find_rows_of_line(line)
        a_rows, b_rows = rows_of_sides
        if not a_rows and not b_rows:
            return told(state, NO_WORK)
        if line.kind == REGION:
            session = state.session.paired_regions(rows_of_sides)
        else:
            session = state.session.paired(rows_of_sides)
        first_side = 0 if a_rows else 1
        return bring_to_timeline(state, session, first_side)

    def line(self, state: State) -> DiffLine | None:
        """Return the line of the diff under the cursor; None for an empty list."""
        lines = state.comparison.lines if state.comparison else ()
        return self.under_cursor(state, lines)

    def described(self, state: State) -> Overlay | str:
        """Return all that the page says about the line, which it may cut, then the
        verdict in full, then the details of the first slice of the line, on the active
        side if it has one there. A region gives its own lines instead of a slice."""
        line = self.line(state)
        comparison = state.comparison
        if line is None or comparison is None or comparison.found is None:
            return NO_MORE
        verdict_lines = _list_verdict(comparison.found.diff)
        if line.kind == REGION:
            inner = comparison.inner_of(state.list_of(DIFF).cursor)
            return _make_region_overlay(line, inner, verdict_lines)
        lines = (*_list_line(line), "", *verdict_lines)
        first_slice = self.slice_with_source(state)
        if first_slice is None:
            return OverlayLines("this row, then the verdict", lines)
        title = "this row, the verdict, then the first slice"
        return replace(first_slice, before=lines, title=title)

    def slice_with_source(self, state: State) -> Details | None:
        """Return the first slice of the line under the cursor, on the active side if it
        has one there. None if the line has no work, or if there is no line."""
        line = self.line(state)
        if line is None:
            return None
        rows_of_sides = find_rows_of_line(line)
        for index in (state.active, 1 - state.active):
            if rows_of_sides[index]:
                return Details(state.sides[index], rows_of_sides[index][0])
        return None

    def moved(self, state: State) -> State:
        """Return the state with the work of the line under the cursor marked in both
        timelines."""
        if state.comparison is None:
            return state
        cursor = state.list_of(DIFF).cursor
        return replace(state, comparison=state.comparison.at(cursor))

    def above(self, state: State, size: Size) -> Sequence[Pane]:
        """Return the panes above the list: the verdict, and both timelines where the
        page is high enough."""
        comparison = state.comparison
        if comparison is None:
            return ()
        if size.height > TALL_LINES:
            timeline_lines = 6
            verdict_lines = 9
        elif size.height > ROOMY_LINES:
            timeline_lines = 4
            verdict_lines = 7
        else:
            timeline_lines = 3
            verdict_lines = 3
        story_lines = MAX_STORY_LINES
        if size.height < MIN_LINES_WITH_TWO_REASONS:
            story_lines = LOW_STORY_LINES
        verdict = _make_verdict_pane(
            comparison.found, size.width, verdict_lines, story_lines
        )
        if size.height < MIN_LINES_WITH_TIMELINES:
            return [verdict]
        panes = [verdict]
        for index in range(len(comparison.sides)):
            timeline = _make_timeline_pane(
                state, comparison, index, size.width, timeline_lines
            )
            panes.append(timeline)
        return panes

    def below(self, state: State, size: Size) -> Sequence[Pane]:
        """Return the panes below the list: the lines that close the sum, and the reason
        for the line under the cursor. A high page also has room for both names of a
        replaced kernel."""
        found = _known_diff(state)
        is_tall = size.height > TALL_LINES
        height = 1 + _reason_height(size)
        if is_tall:
            height += NAME_LINES
        closing: Sequence[DiffLine] = ()
        if found is not None:
            closing = found.pinned if is_tall else found.closing
        return (
            Pane(len(closing), _make_pinned_picture(found, closing)),
            Pane(height, self._why(state)),
        )

    def table(self, state: State, rows: Sequence[int] | None = None) -> Table | None:
        """Return the lines of the diff as a table to save, with the full kernel names
        of both sides as lists. `rows` selects rows of the list; None takes all. None
        until the diff is known."""
        if state.comparison is None:
            return None
        listed_lines = state.comparison.lines
        lines = listed_lines if rows is None else [listed_lines[row] for row in rows]
        texts: dict[str, list[Any]] = {
            "what": [line.kind for line in lines],
            "of": [line.what for line in lines],
            "names_a": [_list_names(row.a for row in line.rows) for line in lines],
            "names_b": [_list_names(row.b for row in line.rows) for line in lines],
        }
        return make_page_table(
            DIFF,
            texts,
            change_ns=np.array([line.change_ns for line in lines], dtype=np.int64),
            a_ns=[line.a_ns for line in lines],
            b_ns=[line.b_ns for line in lines],
            counts=np.array([line.counts for line in lines], dtype=np.bool_),
        )

    def _why(self, state: State) -> TextPicture:
        """Return a picture with the reason for the line under the cursor, and both
        names where a kernel was replaced. It is empty without a line."""
        line = self.line(state)
        if line is None:
            return text([])
        keys_of_region = format_hints(REGION_HINTS, state)
        reason = keys_of_region if line.kind == REGION else _find_reason(line)
        cursor = state.list_of(DIFF).cursor
        identity = (_list_identity(state), cursor, keys_of_region)
        rule = choose_glyphs(state.ascii_only).rule
        columns = columns_of(_known_diff(state))
        draw_lines = partial(_draw_reason, line, reason, columns)
        return make_ruled_picture(identity, "", rule, draw_lines)


def _list_verdict(diff: Diff) -> list[str]:
    """Return the verdict of a diff in full: the answer, the story, a line for each
    side, and the notes. None of them is cut."""
    texts = [judgment(diff), diff.story, *format_sides(diff), *diff.notes]
    return [narrow(text) for text in texts if text]


def _list_line(line: DiffLine) -> list[str]:
    """Return a line of the diff in full: what it is about, its times, and the reason
    for it."""
    texts = [f"{line.kind}: {line.what}", _format_times(line), _find_reason(line)]
    return [narrow(text) for text in texts if text]


def _format_times(line: DiffLine) -> str:
    """Return the times of a line on both sides and their change. A side that has none
    of the work takes 0."""
    a, b = (0 if ns is None else ns for ns in (line.a_ns, line.b_ns))
    change = microseconds(line.change_ns, signed=True)
    sides = f"A {microseconds(a)} us   B {microseconds(b)} us"
    return f"{sides}   change {change} us"


def _make_region_overlay(
    line: DiffLine, inner: Sequence[DiffLine], verdict_lines: Sequence[str]
) -> OverlayLines:
    """Return an overlay with all lines of a region: its sums, then what changed in it,
    the largest change first, and below them the verdict."""
    columns = _make_columns(inner)
    lines = [narrow(line.what), _format_times(line), ""]
    lines.append(titles(columns, MAX_ROW_CELLS).rstrip())
    for inner_line in inner:
        unindented = replace(inner_line, what=inner_line.what.strip())
        cells = fit_line(columns, unindented, MAX_ROW_CELLS)
        lines.append("".join(cells).rstrip())
    lines += ["", *verdict_lines]
    return OverlayLines("region, then the verdict", tuple(lines))


def _draw_reason(
    line: DiffLine,
    reason: str,
    columns: Sequence[ListColumn],
    width: int,
    height: int,
) -> list[Said]:
    """Return the lines about the reason for a line of the diff, and both names where a
    kernel was replaced.

    Where the reason does not fit, it begins with the texts that the row in the list had
    to leave out. Of a region the keys come first. `columns` are those of the list.
    """
    if line.kind == REGION:
        return [*cut(folded([reason, narrow(line.what)], width), height)]
    name_lines = compare_names(line)
    reason_lines = max(1, height - len(name_lines))
    lines = _wrap_reason(line.what, reason, width)
    if reason and len(lines) > reason_lines:
        _, left_out = fitted(line, room(columns, width - 1))
        lines = _wrap_reason(APART.join(left_out) or line.what, reason, width)
    return [*cut(lines, reason_lines), *name_lines]


def _wrap_reason(what: str, reason: str, width: int) -> list[Said]:
    """Return what a line of the diff is about and why it is believed, wrapped to
    `width` cells."""
    return folded([narrow(f"{what}: {reason}" if reason else what)], width)


def _reason_height(size: Size) -> int:
    """Return how many lines say why a line of the diff is believed, on a page of this
    size."""
    if size.height > ROOMY_LINES:
        return WHY_LINES
    return 2 if size.height >= MIN_LINES_WITH_TWO_REASONS else 1


def _find_reason(line: DiffLine) -> str:
    """Return why a line of the diff is believed. A line without a reason of its own
    gives those of its rows, each once."""
    if line.why:
        return line.why
    return "; ".join(dict.fromkeys(row.why for row in line.rows))


def _list_names(names_of_rows: Iterable[Iterable[str]]) -> list[str]:
    """Return the names of all rows, each once, in their order."""
    return list(dict.fromkeys(chain.from_iterable(names_of_rows)))


def _known_diff(state: State) -> DiffLines | None:
    """Return the lines of the diff, or None until it is known."""
    return state.comparison.found if state.comparison else None


def _list_identity(state: State) -> Hashable:
    """Return a value that is equal as long as the list shows the same lines."""
    shown = state.comparison
    return (shown.found, shown.opened) if shown else None


def _make_timeline_pane(
    state: State, comparison: Comparison, index: int, width: int, most: int
) -> Pane:
    """Return the pane with the timeline of side `index`, as high as it needs and at
    most `most` lines."""
    picture = TimelinePicture(
        side=comparison.sides[index],
        view=comparison.views[index],
        glyphs=choose_glyphs(state.ascii_only, state.colorless),
        marked=comparison.marked[index],
        letter=LETTERS[index],
        is_active=index == state.active and not state.session.together,
    )
    height = min(2 + len(picture.places), most)

    def pointed(state: State, x: int, y: int) -> State:
        view = view_after_click(picture, width, height, x, y)
        return state if view is None else windowed(state, index, view)

    return Pane(height, picture, pointed)


def windowed(state: State, index: int, view: View) -> State:
    """Return the state with side `index` showing another window. Only the window of
    `view` is used, because the diff has other lanes than the timeline."""
    if state.comparison is None:
        return state
    session = state.session.windowed(index, view.begin, view.end)
    comparison = state.comparison.beside(session.views)
    return replace(state, session=session, comparison=comparison)


def _make_window_action(step: Move[P], *numbers: P.args, **named: P.kwargs) -> Run:
    """Return the function of a key that moves the window of the active side, by
    applying `step` to its view."""

    def run(state: State) -> State:
        """The state with the moved window."""
        comparison = state.comparison
        if comparison is None:
            return state
        side = comparison.sides[state.active]
        view = comparison.views[state.active]
        return windowed(state, state.active, step(side, view, *numbers, **named))

    return run


def _make_pinned_picture(
    found: DiffLines | None, pinned: Sequence[DiffLine]
) -> TextPicture:
    """Return a picture of the lines that close the sum of the diff."""
    columns = columns_of(found)

    def lines(width: int, height: int) -> list[Said]:
        """One line for each."""
        shown = []
        for line in pinned:
            texts = fit_line(columns, line, width - 1)
            shown.append(Said(f" {''.join(texts)}", "title"))
        return shown

    return TextPicture((found, len(pinned)), lines)


def verdict(diff: Diff, width: int) -> list[Said]:
    """Return the lines that answer which trace is faster: the answer, the story, a line
    for each side, and notes."""
    return [*_draw_answer(diff, width), *_draw_sides_and_notes(diff, width)]


def _draw_answer(
    diff: Diff, width: int, story_lines: int = MAX_STORY_LINES
) -> list[Said]:
    """Return the answer of the diff on as many lines as it needs, and the story of the
    change on at most `story_lines`."""
    style = STYLE_OF_ANSWER.get(diff.verdict.answer, "title")
    answer = folded([narrow(judgment(diff))], width, style)
    story = folded([narrow(diff.story)], width, "plain", most=story_lines)
    return [*answer, *story]


def _draw_sides_and_notes(diff: Diff, width: int) -> list[Said]:
    """Return a line about each side of the diff, then the notes."""
    sides = [Said(narrow(line)) for line in format_sides(diff)]
    notes = folded(map(narrow, flow_texts(diff.notes, width)), width)
    return [*sides, *notes]


@lru_cache(maxsize=4)
def _make_verdict_pane(
    found: DiffLines | None, width: int, most: int, story_lines: int = MAX_STORY_LINES
) -> Pane:
    """Return the pane with the verdict, at most `most` lines high unless the answer and
    the story need more. Sides and notes get what room is left."""
    if found is None:
        return Pane(most, text([Said(WORKING)]))
    lines = _draw_answer(found.diff, width, story_lines)
    free_lines = most - len(lines)
    if free_lines > 0:
        lines += cut(_draw_sides_and_notes(found.diff, width), free_lines)
    return Pane(len(lines), text(lines))


def turned(state: State) -> State:
    """Open the line under the cursor or close it. On a line inside another, the outer
    one is closed."""
    if state.comparison is None:
        return state
    list_state = state.list_of(DIFF)
    comparison, cursor = state.comparison.turned(list_state.cursor)
    turned_state = replace(state, comparison=comparison)
    return turned_state.with_list(DIFF, replace(list_state, cursor=cursor))


_action = partial(action, section="In the diff", where=on(DIFF))
DiffPage.actions = (
    _action(
        name="diff-open",
        title="Open or close",
        written="space",
        help="a compiled part of the program",
        run=turned,
    ),
    _action(
        name="diff-zoom-in",
        title="Zoom in",
        written="w + =",
        help="both timelines",
        run=_make_window_action(moves.zoom, 1, 2),
    ),
    _action(
        name="diff-zoom-out",
        title="Zoom out",
        written="s -",
        help="both timelines",
        run=_make_window_action(moves.zoom, 2, 1),
    ),
    _action(
        name="diff-left",
        title="Pan left",
        written="a h left",
        help="a tenth of the window",
        run=_make_window_action(moves.pan, -10),
    ),
    _action(
        name="diff-right",
        title="Pan right",
        written="d l right",
        help="a tenth of the window",
        run=_make_window_action(moves.pan, 10),
    ),
    _action(
        name="diff-whole",
        title="Whole trace",
        written="0",
        help="show everything",
        run=_make_window_action(moves.fit),
    ),
)
