"""The diff page: the verdict, both timelines on one scale, and the aligned rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from textwrap import wrap

from rich.style import Style
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message

from fusetui.trace.diff.lines import Line, by_effect, closing, lines
from fusetui.trace.diff.marks import differing
from fusetui.trace.diff.model import Answer, Diff, Kind
from fusetui.trace.diff.text import answer, totals
from fusetui.trace.text.figures import duration, microseconds
from fusetui.tui import palette
from fusetui.tui.cells import Column, fit, heading
from fusetui.tui.copying import names_text
from fusetui.tui.details import Said, flow
from fusetui.tui.glyphs import Glyphs
from fusetui.tui.kinds import narrow
from fusetui.tui.lanes import key_lanes
from fusetui.tui.moves import select
from fusetui.tui.pane import Pane
from fusetui.tui.rowlist import Cell, RowList
from fusetui.tui.timeline import Timeline
from fusetui.tui.view import Side, View, first_view, places

STYLES: dict[str, Style] = {"+": palette.BAD, "-": palette.GOOD, "~": palette.PLAIN}
COLUMNS = (
    Column("", 1),
    Column("A", 9),
    Column("B", 9),
    Column("change", 10),
    Column("what", 8, left=True),
    Column("of", 0, left=True),
)
ROOMY = 26  # lines of a page: with more, the timelines and the verdict are larger
WITH_NAMES = 30  # with more, both names of a replaced kernel are shown
LOOKS = {Answer.FASTER: "good", Answer.SLOWER: "bad"}
WHY_LINES = 2
NAME_LINES = 4
Pair = tuple[Sequence[int], Sequence[int]]


class ShowPair(Message):
    """Show the work of one line in the timelines of both sides: rows of A and of B."""

    def __init__(self, pair: Pair) -> None:
        super().__init__()
        self.pair = pair


class DiffPage(Vertical):
    """What changed from A to B; the largest change first."""

    def __init__(self, sides: Sequence[Side], views: Sequence[View], glyphs: Glyphs) -> None:
        super().__init__(id="diff")
        self._glyphs = glyphs
        self._verdict = Pane(name="verdict")
        self.timelines = [
            Timeline(key, first_view(key, view.begin, view.end), glyphs, name=f"diff-timeline-{n}")
            for n, (key, view) in enumerate(zip(map(_key_side, sides), views, strict=True))
        ]
        self._list = RowList(name="diff-list")
        self._why = Pane(name="why")
        self._verdict.say([Said("comparing")])
        self._diff: Diff | None = None
        self._lines: Sequence[Line] = ()

    def compose(self) -> ComposeResult:
        yield self._verdict
        yield from self.timelines
        yield self._list
        yield self._why

    def show_sides(self, sides: Sequence[Side], views: Sequence[View]) -> None:
        for timeline, side, view in zip(self.timelines, sides, views, strict=True):
            key = _key_side(side)
            timeline.show_side(key, first_view(key, view.begin, view.end))
        self._diff = None
        self._show([])
        self._why.say([])
        self._verdict.say([Said("comparing")])

    def show_windows(self, views: Sequence[View]) -> None:
        """The windows of the timelines, without their selections."""
        for timeline, view in zip(self.timelines, views, strict=True):
            timeline.show(replace(timeline.view, begin=view.begin, end=view.end))

    def fill(self, diff: Diff) -> None:
        self._diff = diff
        self._show([*by_effect(lines(diff)), *closing(diff)])
        self._describe()

    def open(self, views: Sequence[View]) -> None:
        """The page comes to the front, over the windows of the timelines."""
        self.show_windows(views)
        self._list.focus()

    def copied(self) -> str:
        """The full names behind the line under the cursor, those of A first."""
        return names_text(names_of(self._lines[self._list.cursor])) if self._lines else ""

    def on_row_list_highlighted(self) -> None:
        self._describe()

    def on_resize(self) -> None:
        """On a small screen the list gets what the others give."""
        height = self.size.height
        self._verdict.styles.height = 5 if height > ROOMY else 3
        names = NAME_LINES if height > WITH_NAMES else 0
        self._why.styles.height = 1 + (WHY_LINES if height > ROOMY else 1) + names
        for timeline in self.timelines:
            lines = 2 + len(places(timeline.side, timeline.view))
            timeline.styles.height = min(lines, 6 if height > ROOMY else 4)
        self.call_after_refresh(self._describe)

    def on_row_list_chosen(self, message: RowList.Chosen) -> None:
        if message.index < len(self._lines):  # it may be of lines that are gone by now
            self.post_message(ShowPair(pair_of(self._lines[message.index])))

    def _show(self, found: Sequence[Line]) -> None:
        """Other lines, from the first on."""
        self._lines, self._list.cursor = found, 0
        self._list.fill(len(found), lambda w: heading(COLUMNS, w), self._format)

    def _describe(self) -> None:
        """The verdict, and why, in words; the work of the line is marked in both timelines."""
        width = self.size.width
        if self._diff is None or not width:  # not laid out yet; a resize follows
            return
        self._verdict.say(verdict(self._diff, width))
        if not self._lines:
            return
        line = self._lines[self._list.cursor]
        why = line.why or "; ".join(dict.fromkeys(row.why for row in line.rows))
        texts = wrap(narrow(f"{line.what}:  {why}" if why else line.what), width)[:WHY_LINES]
        said = [*(Said(text) for text in texts), *both_names(line)]
        self._why.say([Said(self._glyphs.rule * width, "rule"), *said])
        self._mark(pair_of(line))

    def _mark(self, pair: Pair) -> None:
        """Mark the work of both sides; both windows move as one to keep the first in sight."""
        views: list[View] = []
        drawn: list[list[int]] = []
        for timeline, rows in zip(self.timelines, pair, strict=True):
            side = timeline.side
            drawn.append([row for row in rows if int(side.trace.track[row]) in side.lane_of_track])
            views.append(select(side, timeline.view, drawn[-1][0] if drawn[-1] else -1))
        first = 0 if drawn[0] else 1
        before = self.timelines[first].view.begin
        shift = views[first].begin - before
        for timeline, view, rows in zip(self.timelines, views, drawn, strict=True):
            window = timeline.view
            begin, end = window.begin + shift, window.end + shift
            timeline.show(replace(view, begin=begin, end=end), frozenset(rows))

    def _format(self, index: int, width: int) -> list[Cell]:
        line = self._lines[index]
        change = f"{microseconds(line.change_ns, signed=True)} us"
        texts = (
            line.mark,
            duration(line.a_ns) if line.a_ns is not None else "",
            duration(line.b_ns) if line.b_ns is not None else "",
            change if line.counts else f"({change})",
            line.kind,
            narrow(line.what),
        )
        style = STYLES.get(line.mark, palette.DIM)
        return [(text, style) for text in fit(COLUMNS, texts, width)]


def pair_of(line: Line) -> Pair:
    """The rows of both traces that a line stands for."""
    return (
        [row for found in line.rows for row in found.a_rows],
        [row for found in line.rows for row in found.b_rows],
    )


def names_of(line: Line) -> Sequence[str]:
    """The names of A, then of B; what the line says where there are none."""
    a = [name for found in line.rows for name in found.a]
    return [*a, *(name for found in line.rows for name in found.b)] or [line.what]


def both_names(line: Line) -> list[Said]:
    """The kernels of a line whose kernel was replaced, with what differs marked beneath."""
    first = line.rows[0] if line.rows else None
    if first is None or first.kind is not Kind.REPLACED or not (first.a and first.b):
        return []
    a, b = narrow(first.a[0]), narrow(first.b[0])
    marks_a, marks_b = differing(a, b)
    return [
        Said(f"A {a}", "name"),
        Said(f"  {marks_a}", "marks"),
        Said(f"B {b}", "name"),
        Said(f"  {marks_b}", "marks"),
    ]


def verdict(diff: Diff, width: int) -> list[Said]:
    """The answer first, then the totals, then what else to know."""
    look = LOOKS.get(diff.verdict.answer, "title")
    first = [Said(line, look) for line in wrap(narrow(answer(diff)), width)]
    notes = [Said(narrow(line)) for line in flow(diff.notes, width)]
    return [*first, Said(narrow(totals(diff))), *notes]


def _key_side(side: Side) -> Side:
    return Side(side.trace, key_lanes(side.lanes), side.origin, side.label)
