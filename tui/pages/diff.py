"""The diff page: the verdict, both timelines on one scale, and the aligned rows."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from fusetui.analysis.diff.model import Answer, Diff, RowKind
from fusetui.report.diff import judgment, side_lines
from fusetui.report.diff_lines import APART, REGION, DiffLine, differing, fitted
from fusetui.text.figures import microseconds
from fusetui.tui.drawing.details import flow
from fusetui.tui.drawing.picture import (
    Rows,
    Said,
    TextPicture,
    cut,
    folded,
    ruled,
    text,
)
from fusetui.tui.drawing.schemes import Styled, glyphs_for
from fusetui.tui.drawing.timeline import TimelinePicture
from fusetui.tui.layout import moves
from fusetui.tui.layout.kinds import narrow
from fusetui.tui.layout.text_layout import ListColumn, fit, room, titles
from fusetui.tui.layout.view import View
from fusetui.tui.pages.page import NO_MORE, ListPage, Pane, page_table
from fusetui.tui.pages.timeline import LETTERS, clicked
from fusetui.tui.state.action import Run, action, hint_text, on
from fusetui.tui.state.comparison import Comparison, DiffLines, pair_of
from fusetui.tui.state.moving import Move, P, brought
from fusetui.tui.state.reading import compared_anew
from fusetui.tui.state.state import DIFF, Details, Outcome, Overlay, Size, State

if TYPE_CHECKING:
    from fusetui.tables.public import Table

STYLE_OF_MARK = {"+": "bad", "-": "good", "~": "plain"}
MIN_NUMBER_CELLS = 8  # of a column of numbers
ROOMY_LINES = 25  # of a page: with more, there is room for a line about each side
MIN_LINES_WITH_TIMELINES = 22  # with fewer, the list of changes has their room
# with more, the timelines are larger, and both names of a replaced kernel are shown
TALL_LINES = 40
STYLE_OF_ANSWER = {Answer.FASTER: "good", Answer.SLOWER: "bad"}
MIN_LINES_WITH_TWO_REASONS = 17
WHY_LINES = 2
MAX_STORY_LINES = 3
NAME_LINES = 4
WORKING = "Comparing A and B..."


@lru_cache(maxsize=4)
def columns_of(found: DiffLines | None) -> tuple[ListColumn, ...]:
    """The columns of the lines. Those of numbers are as wide as the widest one, so that
    none is cut."""
    texts = [_texts(line) for line in _all_lines(found)]
    kind_cells = max([len("step"), *(len(text.kind) for text in texts)])
    return (
        ListColumn("", 1),
        _number_column("change us", [text.change for text in texts]),
        _number_column("A us", [text.a for text in texts]),
        _number_column("B us", [text.b for text in texts]),
        ListColumn("what", kind_cells, left=True),
        ListColumn("of", 0, left=True),
    )


def _all_lines(found: DiffLines | None) -> list[DiffLine]:
    """All lines of a comparison, also those that are not shown; none until it is
    known."""
    if found is None:
        return []
    lines = [*found.lines, *found.pinned, *found.closing]
    for inner in found.inner.values():
        lines += inner
    return lines


def _number_column(title: str, numbers: Sequence[str]) -> ListColumn:
    """A column in which all these numbers have room."""
    widest = max(map(len, numbers), default=0)
    return ListColumn(title, max(MIN_NUMBER_CELLS, len(title), widest))


class _LineTexts(NamedTuple):
    """What stands in the columns of a line, but for the last one."""

    mark: str
    change: str
    a: str
    b: str
    kind: str


def _texts(line: DiffLine) -> _LineTexts:
    """The texts of a line; a change that does not count in the sum is in parentheses,
    and a time that one side does not have is blank."""
    change = microseconds(line.change_ns, signed=True)
    return _LineTexts(
        mark=line.mark,
        change=change if line.counts else f"({change})",
        a="" if line.a_ns is None else microseconds(line.a_ns),
        b="" if line.b_ns is None else microseconds(line.b_ns),
        kind=line.kind,
    )


def fitting(columns: Sequence[ListColumn], line: DiffLine, width: int) -> list[str]:
    """The texts of a line in the width of their columns, all of it in characters of one
    cell."""
    what = narrow(line.what)
    parts = tuple(narrow(part) for part in line.parts)
    narrowed = replace(line, what=what, parts=parts)
    shown, _ = fitted(narrowed, room(columns, width))
    return fit(columns, [*_texts(line), shown], width)


def formatted(
    columns: Sequence[ListColumn], lines: Sequence[DiffLine], index: int, width: int
) -> list[Styled]:
    """The texts of one of the lines, in the style of its mark."""
    style = STYLE_OF_MARK.get(lines[index].mark, "faint")
    return [(text, style) for text in fitting(columns, lines[index], width)]


def both_names(line: DiffLine) -> list[Said]:
    """The kernels of a line whose kernel was replaced, with the differences marked
    below; nothing for other lines."""
    if line.kind == REGION or not line.rows:
        return []
    row = line.rows[0]
    if row.kind is not RowKind.REPLACED or not row.a or not row.b:
        return []
    names = narrow(row.a[0]), narrow(row.b[0])
    lines = []
    for side, name, marks in zip("AB", names, differing(*names), strict=True):
        lines.append(Said(f"{side} {name}", "plain"))
        lines.append(Said(f"  {marks}", "warning"))
    return lines


class DiffPage(ListPage):
    """What changed from A to B; the largest change first."""

    name, title, key = DIFF, "Diff", "4"
    help = "what changed from A to B"
    hints = (
        "help keys; row-down/row-up move; show show in both timelines; "
        "diff-open open a region; swap swap; copy copy"
    )

    def missing(self, state: State) -> str:
        """That a diff needs two whole traces; "" where there are two."""
        if state.has_diff:
            return ""
        return "Diff needs two fully loaded traces: fusetui open A B"

    def open(self, state: State) -> Outcome:
        """The windows of the timeline; the traces are compared if they were not yet."""
        if state.comparison is None:
            return compared_anew(state) if state.has_diff else state
        comparison = state.comparison.beside(state.session.views)
        return replace(state, comparison=comparison)

    def rows(self, state: State) -> Rows:
        """The lines of the comparison; none until it is known."""
        columns = columns_of(_found(state))
        lines = state.comparison.lines if state.comparison else ()
        return Rows(
            identity=_identity(state),
            count=len(lines),
            titles=partial(titles, columns),
            format=partial(formatted, columns, lines),
        )

    def chosen(self, state: State, index: int) -> State:
        """Enter: the work of the line in the timelines of both traces."""
        line = self.line(state)
        if line is None:
            return state
        return brought(state, state.session.paired(pair_of(line)), 0)

    def line(self, state: State) -> DiffLine | None:
        """The line under the cursor."""
        lines = state.comparison.lines if state.comparison else ()
        return self.under_cursor(state, lines)

    def described(self, state: State) -> Overlay | str:
        """The first slice of the line on the active side, else on the other one."""
        line = self.line(state)
        if line is None:
            return NO_MORE
        pair = pair_of(line)
        for index in (state.active, 1 - state.active):
            if pair[index]:
                return Details(state.sides[index], pair[index][0])
        return NO_MORE

    def moved(self, state: State) -> State:
        """The work of the line under the cursor is marked in the timelines."""
        if state.comparison is None:
            return state
        cursor = state.list_of(DIFF).cursor
        return replace(state, comparison=state.comparison.at(cursor))

    def above(self, state: State, size: Size) -> Sequence[Pane]:
        """The verdict, and below it both timelines where there is room."""
        comparison = state.comparison
        if comparison is None:
            return ()
        if size.height > TALL_LINES:
            timeline_lines, verdict_lines = 6, 9
        elif size.height > ROOMY_LINES:
            timeline_lines, verdict_lines = 4, 7
        else:
            timeline_lines, verdict_lines = 3, 3
        panes = [_verdict(comparison.found, size.width, verdict_lines)]
        if size.height >= MIN_LINES_WITH_TIMELINES:
            for index in range(len(comparison.sides)):
                panes.append(
                    _timeline(state, comparison, index, size.width, timeline_lines)
                )
        return panes

    def below(self, state: State, size: Size) -> Sequence[Pane]:
        """The lines that close the sum, and why the line under the cursor is
        believed."""
        found = _found(state)
        is_tall = size.height > TALL_LINES
        height = 1 + _why_height(size)
        if is_tall:
            height += NAME_LINES
        closing: Sequence[DiffLine] = ()
        if found is not None:
            closing = found.pinned if is_tall else found.closing
        return (
            Pane(len(closing), _pinned(found, closing)),
            Pane(height, self._why(state)),
        )

    def table(self, state: State, rows: Sequence[int] | None = None) -> Table | None:
        """With the full names of the kernels of both sides, as JSON lists."""
        if state.comparison is None:
            return None
        listed = state.comparison.lines
        lines = listed if rows is None else [listed[row] for row in rows]
        texts: dict[str, list[Any]] = {
            "what": [line.kind for line in lines],
            "of": [line.what for line in lines],
            "names_a": [_names(row.a for row in line.rows) for line in lines],
            "names_b": [_names(row.b for row in line.rows) for line in lines],
        }
        return page_table(
            DIFF,
            texts,
            change_ns=np.array([line.change_ns for line in lines], dtype=np.int64),
            a_ns=[line.a_ns for line in lines],
            b_ns=[line.b_ns for line in lines],
            counts=np.array([line.counts for line in lines], dtype=np.bool_),
        )

    def _why(self, state: State) -> TextPicture:
        """Why the line under the cursor is believed, and of a replaced kernel both
        names; nothing without a line."""
        line = self.line(state)
        if line is None:
            return text([])
        opens = hint_text("diff-open opens and closes it", state)
        reason = opens if line.kind == REGION else _reason(line)
        cursor = state.list_of(DIFF).cursor
        return ruled(
            (_identity(state), cursor, opens),
            "",
            glyphs_for(state.ascii_only).rule,
            partial(_why_lines, line, reason, columns_of(_found(state))),
        )


def _why_lines(
    line: DiffLine,
    reason: str,
    columns: Sequence[ListColumn],
    width: int,
    height: int,
) -> list[Said]:
    """Why a line is believed, and of a replaced kernel both names, on so many lines.
    Where that does not fit, it begins with what the row of the line, which has these
    columns, has no room for."""
    names = both_names(line)
    reason_lines = max(1, height - len(names))
    lines = _reason_lines(line.what, reason, width)
    if reason and len(lines) > reason_lines:
        _, left_out = fitted(line, room(columns, width - 1))
        lines = _reason_lines(APART.join(left_out) or line.what, reason, width)
    return [*cut(lines, reason_lines), *names]


def _reason_lines(what: str, reason: str, width: int) -> list[Said]:
    """What a line is about and why it is believed, on lines of `width` cells."""
    return folded([narrow(f"{what}: {reason}" if reason else what)], width)


def _why_height(size: Size) -> int:
    """How many lines of a page of this size say why a line is believed."""
    if size.height > ROOMY_LINES:
        return WHY_LINES
    return 2 if size.height >= MIN_LINES_WITH_TWO_REASONS else 1


def _reason(line: DiffLine) -> str:
    """Why a line is believed; else why its rows are, each reason once."""
    if line.why:
        return line.why
    return "; ".join(dict.fromkeys(row.why for row in line.rows))


def _names(names_of_rows: Iterable[Iterable[str]]) -> list[str]:
    """The names of all rows, each once, in their order."""
    return list(dict.fromkeys(chain.from_iterable(names_of_rows)))


def _found(state: State) -> DiffLines | None:
    return state.comparison.found if state.comparison else None


def _identity(state: State) -> Hashable:
    """Equal where the lines are."""
    shown = state.comparison
    return (shown.found, shown.opened) if shown else None


def _timeline(
    state: State, comparison: Comparison, index: int, width: int, most: int
) -> Pane:
    """The timeline of one side, as high as it needs and at most `most` lines."""
    picture = TimelinePicture(
        side=comparison.sides[index],
        view=comparison.views[index],
        glyphs=glyphs_for(state.ascii_only, state.colorless),
        marked=comparison.marked[index],
        letter=LETTERS[index],
        is_active=index == state.active and not state.session.together,
    )
    height = min(2 + len(picture.places), most)

    def pointed(state: State, x: int, y: int) -> State:
        view = clicked(picture, width, height, x, y)
        return state if view is None else windowed(state, index, view)

    return Pane(height, picture, pointed)


def windowed(state: State, index: int, view: View) -> State:
    """One side through another window; only the window is used, because its lanes
    differ."""
    if state.comparison is None:
        return state
    session = state.session.windowed(index, view.begin, view.end)
    comparison = state.comparison.beside(session.views)
    return replace(state, session=session, comparison=comparison)


def _window(step: Move[P], *numbers: P.args, **named: P.kwargs) -> Run:
    """What a key does that moves the window of the active side."""

    def run(state: State) -> State:
        """The state with the moved window."""
        comparison = state.comparison
        if comparison is None:
            return state
        side = comparison.sides[state.active]
        view = comparison.views[state.active]
        return windowed(state, state.active, step(side, view, *numbers, **named))

    return run


def _pinned(found: DiffLines | None, pinned: Sequence[DiffLine]) -> TextPicture:
    """The lines that close the sum."""
    columns = columns_of(found)

    def lines(width: int, height: int) -> list[Said]:
        """One line for each."""
        shown = []
        for line in pinned:
            texts = fitting(columns, line, width - 1)
            shown.append(Said(f" {''.join(texts)}", "title"))
        return shown

    return TextPicture((found, len(pinned)), lines)


def verdict(diff: Diff, width: int) -> list[Said]:
    """The answer, the story, a line for each side, then what else to know."""
    return [*_answer_and_story(diff, width), *_beside_the_answer(diff, width)]


def _answer_and_story(diff: Diff, width: int) -> list[Said]:
    """The answer on as many lines as it needs, and the story on at most
    MAX_STORY_LINES."""
    style = STYLE_OF_ANSWER.get(diff.verdict.answer, "title")
    answer = folded([narrow(judgment(diff))], width, style)
    story = folded([narrow(diff.story)], width, "plain", most=MAX_STORY_LINES)
    return [*answer, *story]


def _beside_the_answer(diff: Diff, width: int) -> list[Said]:
    """A line about each side, then the notes."""
    sides = [Said(narrow(line)) for line in side_lines(diff)]
    notes = folded(map(narrow, flow(diff.notes, width)), width)
    return [*sides, *notes]


@lru_cache(maxsize=4)
def _verdict(found: DiffLines | None, width: int, most: int) -> Pane:
    """On as many lines as it needs, `most` of them. Answer and story are always there:
    where these need more, all else is left out."""
    if found is None:
        return Pane(most, text([Said(WORKING)]))
    lines = _answer_and_story(found.diff, width)
    room = most - len(lines)
    if room > 0:
        lines += cut(_beside_the_answer(found.diff, width), room)
    return Pane(len(lines), text(lines))


def turned(state: State) -> State:
    """Opens the line under the cursor, or closes it or the one that it is inside of."""
    if state.comparison is None:
        return state
    list_state = state.list_of(DIFF)
    comparison, cursor = state.comparison.turned(list_state.cursor)
    now = replace(state, comparison=comparison)
    return now.with_list(DIFF, replace(list_state, cursor=cursor))


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
        run=_window(moves.zoom, 1, 2),
    ),
    _action(
        name="diff-zoom-out",
        title="Zoom out",
        written="s -",
        help="both timelines",
        run=_window(moves.zoom, 2, 1),
    ),
    _action(
        name="diff-left",
        title="Pan left",
        written="a h left",
        help="a tenth of the window",
        run=_window(moves.pan, -10),
    ),
    _action(
        name="diff-right",
        title="Pan right",
        written="d l right",
        help="a tenth of the window",
        run=_window(moves.pan, 10),
    ),
    _action(
        name="diff-whole",
        title="Whole trace",
        written="0",
        help="show everything",
        run=_window(moves.fit),
    ),
)
