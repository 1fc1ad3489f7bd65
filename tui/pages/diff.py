"""The diff page: the verdict, both timelines on one scale, and the aligned rows."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache, partial

from msgspec.structs import replace

from fusetui.analysis.diff.model import Answer, Diff, RowKind
from fusetui.report.diff import judgment, side_lines
from fusetui.report.diff_lines import APART, REGION, DiffLine, differing, fitted
from fusetui.text.figures import microseconds
from fusetui.tui.drawing.details import flow
from fusetui.tui.drawing.glyphs import glyphs_for
from fusetui.tui.drawing.picture import Rows, Said, TextPicture, cut, ruled, text
from fusetui.tui.drawing.schemes import Styled
from fusetui.tui.drawing.timeline import TimelinePicture
from fusetui.tui.layout import moves
from fusetui.tui.layout.kinds import narrow
from fusetui.tui.layout.places import places
from fusetui.tui.layout.text_layout import ListColumn, fit, room, sentence_lines, titles
from fusetui.tui.layout.view import View
from fusetui.tui.pages.page import NO_MORE, ListPage, Pane
from fusetui.tui.pages.timeline import clicked
from fusetui.tui.state.action import Run, action, hint_text, on
from fusetui.tui.state.comparison import Comparison, Found, names_of, pair_of
from fusetui.tui.state.copying import names_text
from fusetui.tui.state.moving import Move, P, brought
from fusetui.tui.state.reading import compared_anew
from fusetui.tui.state.state import DIFF, Outcome, Overlay, Size, SliceDetails, State

STYLES = {"+": "bad", "-": "good", "~": "plain"}
LEAST = 8  # cells of a column of numbers


@lru_cache(maxsize=4)
def columns_of(found: Found | None) -> tuple[ListColumn, ...]:
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
    return (
        line.mark,
        change if line.counts else f"({change})",
        microseconds(line.a_ns) if line.a_ns is not None else "",
        microseconds(line.b_ns) if line.b_ns is not None else "",
        line.kind,
        "",
    )


def fitting(columns: Sequence[ListColumn], line: DiffLine, width: int) -> list[str]:
    """The texts of a line, in the width of their columns."""
    *texts, _ = _texts(line)
    return fit(columns, [*texts, fitted(narrowed(line), room(columns, width)).text], width)


def beside(line: DiffLine, columns: Sequence[ListColumn], width: int) -> str:
    """What the row of a line has no room for; all of it where it has."""
    return APART.join(fitted(line, room(columns, width)).left_out) or line.what


def narrowed(line: DiffLine) -> DiffLine:
    """All that it is about in characters of one cell."""
    return replace(line, what=narrow(line.what), parts=tuple(map(narrow, line.parts)))


def formatted(
    columns: Sequence[ListColumn], lines: Sequence[DiffLine], index: int, width: int
) -> list[Styled]:
    """A line of the list."""
    style = STYLES.get(lines[index].mark, "faint")
    return [(text, style) for text in fitting(columns, lines[index], width)]


def both_names(line: DiffLine) -> list[Said]:
    """The kernels of a line whose kernel was replaced, with the differences marked below."""
    first = line.rows[0] if line.rows else None
    pair = first is not None and first.a and first.b and line.kind != REGION
    if first is None or not pair or first.kind is not RowKind.REPLACED:
        return []
    a, b = narrow(first.a[0]), narrow(first.b[0])
    marks_a, marks_b = differing(a, b)
    return [
        Said(f"A {a}", "plain"),
        Said(f"  {marks_a}", "warning"),
        Said(f"B {b}", "plain"),
        Said(f"  {marks_b}", "warning"),
    ]


ROOMY = 25  # lines of a page: with more, there is room for a line about each side
LOW = 17  # with fewer there is no room for timelines
WIDE = 40  # with more, the timelines are larger, and both names of a replaced kernel are shown
LOOKS = {Answer.FASTER: "good", Answer.SLOWER: "bad"}
WHY_LINES = 2
STORY_LINES = 3
NAME_LINES = 4
WORKING = "working: what changed from A to B will follow"
NAME = DIFF
SECTION = "In the diff"


class DiffPage(ListPage):
    """What changed from A to B; the largest change first."""

    name = NAME
    title = "Diff"
    key = "4"
    help = "what changed from A to B"
    hints = (
        "help keys",
        "row-down/row-up move",
        "show show in the timelines",
        "diff-open open a region",
        "swap swap",
        "copy copy",
    )

    def missing(self, state: State) -> str:
        if state.has_diff:
            return ""
        return "a diff needs two traces that are read to the end: fusetui open A B"

    def open(self, state: State) -> Outcome:
        """The comparison, over the windows of the timelines."""
        shown = state.comparison
        if shown is None:
            return compared_anew(state) if state.has_diff else state
        return replace(state, comparison=shown.windowed(state.session.views))

    def rows(self, state: State) -> Rows:
        found = state.comparison.found if state.comparison else None
        lines = state.comparison.lines if state.comparison else ()
        columns = columns_of(found)
        shown = partial(formatted, columns, lines)
        return Rows(_identity(state), len(lines), lambda w: titles(columns, w), shown)

    def chosen(self, state: State, index: int) -> State:
        """Marks the work of both sides in both timelines."""
        if state.comparison is None:
            return state
        pair = pair_of(state.comparison.lines[index])
        return brought(state, state.session.paired(pair), 0)

    def described(self, state: State) -> Overlay | str:
        """The first slice of the line on the active side, else on the other one."""
        if state.comparison is None or not state.comparison.lines:
            return NO_MORE
        cursor = min(state.list_of(NAME).cursor, len(state.comparison.lines) - 1)
        pair = pair_of(state.comparison.lines[cursor])
        for index in (state.active, 1 - state.active):
            if pair[index]:
                return SliceDetails(state.sides[index], pair[index][0])
        return NO_MORE

    def moved(self, state: State) -> State:
        if state.comparison is None:
            return state
        return replace(state, comparison=state.comparison.at(state.list_of(NAME).cursor))

    def above(self, state: State, size: Size) -> Sequence[Pane]:
        """The verdict, and the timelines."""
        shown = state.comparison
        if shown is None:
            return ()
        roomy, wide = size.height > ROOMY, size.height > WIDE
        most = 9 if wide else 7 if roomy else 3
        panes = [Pane(_verdict_height(shown.found, size.width, most), _verdict(shown.found))]
        if size.height < LOW:
            return panes
        for n, (side, view) in enumerate(zip(shown.sides, shown.views, strict=True)):
            height = min(2 + len(places(side, view)), 6 if wide else 4 if roomy else 3)
            panes.append(_timeline(state, shown, n, size.width, height))
        return panes

    def below(self, state: State, size: Size) -> Sequence[Pane]:
        """The lines that close the sum, and why the line under the cursor is believed."""
        names = NAME_LINES if size.height > WIDE else 0
        height = 1 + (WHY_LINES if size.height > ROOMY else 1) + names
        found = state.comparison.found if state.comparison else None
        pinned = () if found is None else found.pinned if size.height > WIDE else found.closing
        return (
            Pane(len(pinned), _pinned(found, pinned)),
            Pane(height, self._why(state)),
        )

    def copied(self, state: State) -> str:
        """The full names of the line under the cursor, those of A first."""
        lines = state.comparison.lines if state.comparison else ()
        return names_text(names_of(lines[state.list_of(NAME).cursor])) if lines else ""

    def _why(self, state: State) -> TextPicture:
        lines = state.comparison.lines if state.comparison else ()
        if not lines:
            return text([])
        cursor = min(state.list_of(NAME).cursor, len(lines) - 1)
        line = lines[cursor]
        columns = columns_of(state.comparison.found if state.comparison else None)
        opens = hint_text("diff-open opens and closes it", state)

        def said(width: int, height: int) -> list[Said]:
            why = line.why or "; ".join(dict.fromkeys(row.why for row in line.rows))
            why = opens if line.kind == REGION else why
            names = both_names(line)
            most = max(1, height - len(names))
            what = beside(line, columns, width - 1) if why and most == 1 else line.what
            texts = sentence_lines(narrow(f"{what}: {why}" if why else what), width)
            return [*cut([*map(Said, texts)], most), *names]

        return ruled(
            (_identity(state), cursor, opens),
            "",
            glyphs_for(state.ascii_only).rule,
            said,
        )


def _identity(state: State) -> Hashable:
    """Equal where the lines are."""
    shown = state.comparison
    return (shown.found, shown.opened) if shown else None


def _timeline(state: State, shown: Comparison, index: int, width: int, height: int) -> Pane:
    picture = TimelinePicture(
        shown.sides[index],
        shown.views[index],
        glyphs_for(state.ascii_only, state.colorless),
        0,
        shown.marked[index],
    )

    def pointed(state: State, x: int, y: int) -> State:
        view = clicked(picture, width, height, x, y)
        return state if view is None else windowed(state, index, view)

    return Pane(height, picture, pointed)


def windowed(state: State, index: int, view: View) -> State:
    """One side through another window; only the window is used, because its lanes differ."""
    if state.comparison is None:
        return state
    session = state.session.windowed(index, view)
    comparison = state.comparison.windowed(session.views)
    return replace(state, session=session, comparison=comparison)


def _window(step: Move[P], *numbers: P.args, **named: P.kwargs) -> Run:
    """An action that moves both windows."""

    def run(state: State) -> State:
        shown, index = state.comparison, state.active
        if shown is None:
            return state
        return windowed(
            state, index, step(shown.sides[index], shown.views[index], *numbers, **named)
        )

    return run


def _pinned(found: Found | None, pinned: Sequence[DiffLine]) -> TextPicture:
    columns = columns_of(found)
    return TextPicture(
        (found, len(pinned)),
        lambda width, height: [
            Said(" " + "".join(fitting(columns, line, width - 1)), "title") for line in pinned
        ],
    )


def verdict(diff: Diff, width: int) -> list[Said]:
    """The answer, the story, a line for each side, then what else to know."""
    look = LOOKS.get(diff.verdict.answer, "title")
    first = [Said(line, look) for line in sentence_lines(narrow(judgment(diff)), width)]
    story = [
        Said(line, "plain") for line in sentence_lines(narrow(diff.story), width)[:STORY_LINES]
    ]
    sides = [Said(narrow(line)) for line in side_lines(diff)]
    flowed = (narrow(line) for line in flow(diff.notes, width))
    notes = [Said(text) for line in flowed for text in sentence_lines(line, width)]
    return [*first, *story, *sides, *notes]


def _verdict(found: Found | None) -> TextPicture:
    if found is None:
        return text([Said(WORKING)])
    return TextPicture(found, lambda width, height: cut(verdict(found.diff, width), height))


@lru_cache(maxsize=4)
def _verdict_height(found: Found | None, width: int, most: int) -> int:
    return most if found is None else min(most, len(verdict(found.diff, width)))


def turned(state: State) -> State:
    """Opens or closes the compiled part of the program under the cursor."""
    if state.comparison is None:
        return state
    now = state.list_of(NAME)
    comparison, cursor = state.comparison.turned(now.cursor)
    state = replace(state, comparison=comparison)
    return state.with_list(NAME, replace(now, cursor=cursor))


_action = partial(action, section=SECTION, where=on(NAME))


_in, _out = _window(moves.zoom, 1, 2), _window(moves.zoom, 2, 1)
_left, _right = _window(moves.pan, -10), _window(moves.pan, 10)
DiffPage.actions = (
    _action("diff-open", "Open or close", "space", "a compiled part of the program", turned),
    _action("diff-zoom-in", "Zoom in", "w plus equals_sign", "both timelines", _in),
    _action("diff-zoom-out", "Zoom out", "s minus", "both timelines", _out),
    _action("diff-left", "Pan left", "a h left", "a tenth of the window", _left),
    _action("diff-right", "Pan right", "d l right", "a tenth of the window", _right),
    _action("diff-whole", "Whole trace", "0", "show everything", _window(moves.fit)),
)
