"""The diff page: the verdict, both timelines on one scale, and the aligned rows."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any

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
from fusetui.tui.layout.places import places
from fusetui.tui.layout.text_layout import ListColumn, fit, room, titles
from fusetui.tui.layout.view import View
from fusetui.tui.pages.page import NO_MORE, ListPage, Pane, page_table
from fusetui.tui.pages.timeline import clicked
from fusetui.tui.state.action import Run, action, hint_text, on
from fusetui.tui.state.comparison import Comparison, DiffLines, pair_of
from fusetui.tui.state.moving import Move, P, brought
from fusetui.tui.state.reading import compared_anew
from fusetui.tui.state.state import DIFF, Details, Outcome, Overlay, Size, State

if TYPE_CHECKING:
    from fusetui.tables.public import Table

STYLES = {"+": "bad", "-": "good", "~": "plain"}
LEAST = 8  # cells of a column of numbers
ROOMY = 25  # lines of a page: with more, there is room for a line about each side
LOW = 17  # with fewer there is no room for timelines
# with more, the timelines are larger, and both names of a replaced kernel are shown
WIDE = 40
LOOKS = {Answer.FASTER: "good", Answer.SLOWER: "bad"}
WHY_LINES, STORY_LINES, NAME_LINES = 2, 3, 4
WORKING = "Comparing A and B..."


@lru_cache(maxsize=4)
def columns_of(found: DiffLines | None) -> tuple[ListColumn, ...]:
    """As wide as the widest number: none is cut."""
    inner = [line for lines in found.inner.values() for line in lines] if found else []
    listed = (*found.lines, *inner, *found.pinned, *found.closing) if found else ()
    texts = [_texts(line) for line in listed]
    widths = [max([LEAST, *(len(text[n]) for text in texts)]) for n in (1, 2, 3)]
    kinds = max([len("step"), *(len(line.kind) for line in listed)])
    numbers = zip(("change us", "A us", "B us"), widths, strict=True)
    return (
        ListColumn("", 1),
        *(ListColumn(title, max(len(title), width)) for title, width in numbers),
        ListColumn("what", kinds, left=True),
        ListColumn("of", 0, left=True),
    )


def _texts(line: DiffLine) -> tuple[str, ...]:
    change = microseconds(line.change_ns, signed=True)
    sides = ("" if ns is None else microseconds(ns) for ns in (line.a_ns, line.b_ns))
    return line.mark, change if line.counts else f"({change})", *sides, line.kind


def fitting(columns: Sequence[ListColumn], line: DiffLine, width: int) -> list[str]:
    """The texts of a line in the width of their columns, all of it in characters of one
    cell."""
    narrowed = replace(
        line, what=narrow(line.what), parts=tuple(map(narrow, line.parts))
    )
    return fit(
        columns, [*_texts(line), fitted(narrowed, room(columns, width))[0]], width
    )


def formatted(
    columns: Sequence[ListColumn], lines: Sequence[DiffLine], index: int, width: int
) -> list[Styled]:
    style = STYLES.get(lines[index].mark, "faint")
    return [(text, style) for text in fitting(columns, lines[index], width)]


def both_names(line: DiffLine) -> list[Said]:
    """The kernels of a line whose kernel was replaced, with the differences marked
    below."""
    first = line.rows[0] if line.rows and line.kind != REGION else None
    if first is None or first.kind is not RowKind.REPLACED or not (first.a and first.b):
        return []
    names = narrow(first.a[0]), narrow(first.b[0])
    said = []
    for side, name, marks in zip("AB", names, differing(*names), strict=True):
        said += [Said(f"{side} {name}", "plain"), Said(f"  {marks}", "warning")]
    return said


class DiffPage(ListPage):
    """What changed from A to B; the largest change first."""

    name, title, key = DIFF, "Diff", "4"
    is_table = True
    help = "what changed from A to B"
    hints = (
        "help keys; row-down/row-up move; show show in the timelines; "
        "diff-open open a region; swap swap; copy copy"
    )

    def missing(self, state: State) -> str:
        if state.has_diff:
            return ""
        return "Diff needs two fully loaded traces: fusetui open A B"

    def open(self, state: State) -> Outcome:
        if (shown := state.comparison) is None:
            return compared_anew(state) if state.has_diff else state
        return replace(state, comparison=shown.beside(state.session.views))

    def rows(self, state: State) -> Rows:
        shown, columns = state.comparison, columns_of(_found(state))
        lines = shown.lines if shown else ()
        row = partial(formatted, columns, lines)
        return Rows(_identity(state), len(lines), partial(titles, columns), row)

    def chosen(self, state: State, index: int) -> State:
        line = self.line(state)
        return brought(state, state.session.paired(pair_of(line)), 0) if line else state

    def line(self, state: State) -> DiffLine | None:
        return self.under_cursor(
            state, state.comparison.lines if state.comparison else ()
        )

    def described(self, state: State) -> Overlay | str:
        """The first slice of the line on the active side, else on the other one."""
        line = self.line(state)
        for index in (state.active, 1 - state.active):
            if line and (rows := pair_of(line)[index]):
                return Details(state.sides[index], rows[0])
        return NO_MORE

    def moved(self, state: State) -> State:
        shown, cursor = state.comparison, state.list_of(DIFF).cursor
        return replace(state, comparison=shown.at(cursor)) if shown else state

    def above(self, state: State, size: Size) -> Sequence[Pane]:
        if (shown := state.comparison) is None:
            return ()
        lines, most, width = 3, 3, size.width
        if size.height > ROOMY:
            lines, most = (6, 9) if size.height > WIDE else (4, 7)
        panes = [_verdict(shown.found, width, most)]
        for n, (side, view) in enumerate(zip(shown.sides, shown.views, strict=True)):
            if size.height >= LOW:
                height = min(2 + len(places(side, view)), lines)
                panes.append(_timeline(state, shown, n, width, height))
        return panes

    def below(self, state: State, size: Size) -> Sequence[Pane]:
        """The lines that close the sum, and why the line under the cursor is
        believed."""
        found, wide = _found(state), size.height > WIDE
        height = 1 + (WHY_LINES if size.height > ROOMY else 1) + NAME_LINES * wide
        pinned = () if found is None else found.pinned if wide else found.closing
        return Pane(len(pinned), _pinned(found, pinned)), Pane(height, self._why(state))

    def table(self, state: State, rows: Sequence[int] | None = None) -> Table | None:
        """With the full names of the kernels of both sides, as JSON lists."""
        if state.comparison is None:
            return None
        listed = state.comparison.lines
        lines = listed if rows is None else [listed[row] for row in rows]
        changes = np.array([line.change_ns for line in lines], dtype=np.int64)
        counts = np.array([line.counts for line in lines], dtype=np.bool_)
        texts: dict[str, list[Any]] = {
            "what": [line.kind for line in lines],
            "of": [line.what for line in lines],
            "names_a": [_names(row.a for row in line.rows) for line in lines],
            "names_b": [_names(row.b for row in line.rows) for line in lines],
        }
        a, b = [line.a_ns for line in lines], [line.b_ns for line in lines]
        return page_table(DIFF, texts, change_ns=changes, a_ns=a, b_ns=b, counts=counts)

    def _why(self, state: State) -> TextPicture:
        columns = columns_of(_found(state))
        opens = hint_text("diff-open opens and closes it", state)
        if (shown := self.line(state)) is None:
            return text([])

        def said(width: int, height: int) -> list[Said]:
            why = shown.why or "; ".join(dict.fromkeys(row.why for row in shown.rows))
            why = opens if shown.kind == REGION else why
            names, what = both_names(shown), shown.what
            most = max(1, height - len(names))
            if why and most == 1:  # only what the row of the line has no room for
                what = APART.join(fitted(shown, room(columns, width - 1))[1]) or what
            texts = folded([narrow(f"{what}: {why}" if why else what)], width)
            return [*cut(texts, most), *names]

        rule, cursor = glyphs_for(state.ascii_only).rule, state.list_of(DIFF).cursor
        return ruled((_identity(state), cursor, opens), "", rule, said)


def _names(each: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(chain.from_iterable(each)))


def _found(state: State) -> DiffLines | None:
    return state.comparison.found if state.comparison else None


def _identity(state: State) -> Hashable:
    """Equal where the lines are."""
    shown = state.comparison
    return (shown.found, shown.opened) if shown else None


def _timeline(
    state: State, shown: Comparison, index: int, width: int, height: int
) -> Pane:
    side, view, marked = shown.sides[index], shown.views[index], shown.marked[index]
    picture = TimelinePicture(
        side, view, glyphs_for(state.ascii_only, state.colorless), 0, marked
    )

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
    return replace(
        state, session=session, comparison=state.comparison.beside(session.views)
    )


def _window(step: Move[P], *numbers: P.args, **named: P.kwargs) -> Run:
    def run(state: State) -> State:
        shown, n = state.comparison, state.active
        if shown is None:
            return state
        return windowed(
            state, n, step(shown.sides[n], shown.views[n], *numbers, **named)
        )

    return run


def _pinned(found: DiffLines | None, pinned: Sequence[DiffLine]) -> TextPicture:
    columns = columns_of(found)

    def lines(width: int, height: int) -> list[Said]:
        texts = ("".join(fitting(columns, line, width - 1)) for line in pinned)
        return [Said(f" {text}", "title") for text in texts]

    return TextPicture((found, len(pinned)), lines)


def verdict(diff: Diff, width: int) -> list[Said]:
    """The answer, the story, a line for each side, then what else to know."""
    return [*_answer_and_story(diff, width), *_beside_the_answer(diff, width)]


def _answer_and_story(diff: Diff, width: int) -> list[Said]:
    """On as many lines as they need; of the story at most STORY_LINES."""
    look = LOOKS.get(diff.verdict.answer, "title")
    return [
        *folded([narrow(judgment(diff))], width, look),
        *folded([narrow(diff.story)], width, "plain", most=STORY_LINES),
    ]


def _beside_the_answer(diff: Diff, width: int) -> list[Said]:
    return [
        *(Said(narrow(line)) for line in side_lines(diff)),
        *folded(map(narrow, flow(diff.notes, width)), width),
    ]


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
    if state.comparison is None:
        return state
    now = state.list_of(DIFF)
    comparison, cursor = state.comparison.turned(now.cursor)
    return replace(state, comparison=comparison).with_list(
        DIFF, replace(now, cursor=cursor)
    )


_action = partial(action, section="In the diff", where=on(DIFF))
_in, _out = _window(moves.zoom, 1, 2), _window(moves.zoom, 2, 1)
_left, _right = _window(moves.pan, -10), _window(moves.pan, 10)
DiffPage.actions = (
    _action(
        "diff-open", "Open or close", "space", "a compiled part of the program", turned
    ),
    _action("diff-zoom-in", "Zoom in", "w + =", "both timelines", _in),
    _action("diff-zoom-out", "Zoom out", "s -", "both timelines", _out),
    _action("diff-left", "Pan left", "a h left", "a tenth of the window", _left),
    _action("diff-right", "Pan right", "d l right", "a tenth of the window", _right),
    _action("diff-whole", "Whole trace", "0", "show everything", _window(moves.fit)),
)
