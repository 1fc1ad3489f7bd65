"""The diff page: the verdict, both timelines on one scale, and the aligned rows."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message

from fusetui.trace.diff.model import CPU, Diff, Row, by_effect
from fusetui.trace.format import duration, plural
from fusetui.trace.kernel_names import short_name
from fusetui.tui import palette
from fusetui.tui.cells import Column, fit, heading
from fusetui.tui.details import Said, flow
from fusetui.tui.glyphs import Glyphs
from fusetui.tui.kinds import narrow
from fusetui.tui.lanes import key_lanes
from fusetui.tui.pane import Pane
from fusetui.tui.rowlist import Cell, RowList
from fusetui.tui.timeline import Timeline
from fusetui.tui.view import Side, View, first_view, select

MARKS = {
    "same": "~",
    "replaced": "~",
    "faster": "-",
    "fused": "-",
    "removed": "-",
    "slower": "+",
    "added": "+",
    "split": "+",
}
STYLES: dict[str, Style] = {"+": palette.BAD, "-": palette.GOOD, "~": palette.PLAIN}
COLUMNS = (
    Column("", 1),
    Column("A", 9),
    Column("B", 9),
    Column("change", 10),
    Column("what", 8, left=True),
    Column("of", 0, left=True),
)


LONGEST = 70  # a name of more characters is shown short


class ShowPair(Message):
    """Show the work of one row in the timelines of both sides."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        self.row = row


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
        self._rows: Sequence[Row] = ()

    def compose(self) -> ComposeResult:
        yield self._verdict
        yield from self.timelines
        yield self._list
        yield self._why

    def show_sides(self, sides: Sequence[Side], views: Sequence[View]) -> None:
        for timeline, side, view in zip(self.timelines, sides, views, strict=True):
            key = _key_side(side)
            timeline.show_side(key, first_view(key, view.begin, view.end))
        self._rows = ()
        self._verdict.say([Said("comparing")])

    def show_window(self, view: View) -> None:
        """Both timelines over the same window."""
        for timeline in self.timelines:
            shown = timeline.view
            timeline.show(View(view.begin, view.end, shown.selected, shown.folds))

    def fill(self, diff: Diff) -> None:
        self._rows = by_effect(diff.rows)
        self._verdict.say(verdict(diff, self.size.width))
        self._list.cursor = 0
        self._list.fill(len(self._rows), lambda w: heading(COLUMNS, w), self._format)
        self._describe()

    def open(self, view: View) -> None:
        """The page comes to the front, over the window of the timelines."""
        self.show_window(view)
        self._list.focus()

    def on_row_list_highlighted(self) -> None:
        self._describe()

    def on_resize(self) -> None:
        self.call_after_refresh(self._describe)

    def on_row_list_chosen(self, message: RowList.Chosen) -> None:
        self.post_message(ShowPair(self._rows[message.index]))

    def _describe(self) -> None:
        """Why, in words, and the row's work marked in both timelines."""
        if not self._rows:
            return
        row = self._rows[self._list.cursor]
        text = f"{row.where}  {row.why}".strip()
        width = self._why.size.width
        if not width:  # not laid out yet; a resize follows
            return
        lines = [narrow(text[at : at + width]) for at in range(0, len(text), width)] or [""]
        self._why.say([Said(self._glyphs.rule * width, "rule"), *(Said(line) for line in lines)])
        self._mark((row.a_rows, row.b_rows))

    def _mark(self, pair: Sequence[Sequence[int]]) -> None:
        """Mark the work of both sides; the window moves only to keep the first in sight."""
        window: View | None = None
        for timeline, rows in zip(self.timelines, pair, strict=True):
            side = timeline.side
            drawn = [row for row in rows if int(side.trace.track[row]) in side.lane_of_track]
            view = select(side, timeline.view, drawn[0] if drawn else -1)
            window = window or (view if drawn else None)
            timeline.show(view, frozenset(drawn))
        if window:
            self.show_window(window)

    def _format(self, index: int, width: int) -> list[Cell]:
        row = self._rows[index]
        mark = MARKS[str(row.kind)]
        change = f"{row.change_ns / 1000:+,.1f} us" if row.change_ns else "0"
        texts = (
            mark,
            duration(row.a_ns) if row.a_count else "",
            duration(row.b_ns) if row.b_count else "",
            change,
            str(row.kind),
            described(row),
        )
        style = STYLES[mark]
        return [(text, style) for text in fit(COLUMNS, texts, width)]


def described(row: Row) -> str:
    """`aten::gelu + aten::mul -> triton_poi_fused_gelu_mul_0`, or the op and its kernel."""
    names_a, names_b = (" + ".join(map(_short, side)) for side in (row.a, row.b))
    one = not names_a or not names_b or names_a == names_b
    names = (names_a or names_b) if one else f"{names_a} -> {names_b}"
    bare = row.op.removeprefix(CPU)
    if bare in (names_a, names_b, ""):
        return narrow(f"{CPU if row.on_cpu else ''}{names}")
    return narrow(f"{row.op}  {names}")


def verdict(diff: Diff, width: int) -> list[Said]:
    """The answer first: both steps, the ratio with its uncertainty; then what else to know."""
    step = diff.step
    first = f"A {diff.a}   {_time(step.a_ns)}      B {diff.b}   {_time(step.b_ns)}      "
    if step.ratio is None:
        answer, look = "no steps to compare", "title"
    elif not step.shown:
        interval = f" ({step.low:.3f} to {step.high:.3f})" if step.low and step.high else ""
        answer, look = f"no difference shown: B takes {step.ratio:.3f} of A{interval}", "title"
    else:
        word = "faster" if step.ratio < 1 else "slower"
        answer = f"B is {abs(1 - step.ratio):.1%} {word} ({step.low:.3f} to {step.high:.3f} of A)"
        look = "good" if step.ratio < 1 else "bad"
    a, b, sums = diff.side_a, diff.side_b, diff.accounting
    unit = "GPU event" if a.gpu else "op"
    second = (
        f"{plural(a.items, unit)} -> {b.items}   rows {_signed(sums.rows_ns)}"
        f"   idle {_signed(sums.idle_ns)}   not explained {_signed(sums.not_explained_ns)}"
        f"   = step {_signed(sums.step_ns)}"
    )
    notes = [Said(narrow(line)) for line in flow(diff.notes, width)]
    return [Said(narrow(first + answer), look), Said(second), *notes]


def _key_side(side: Side) -> Side:
    return Side(side.trace, key_lanes(side.lanes), side.origin, side.label)


def _short(name: str) -> str:
    """A name that is no C++ template stands for itself."""
    return name if len(name) <= LONGEST and "<" not in name else short_name(name)


def _time(ns: int | None) -> str:
    return duration(ns) if ns is not None else "no steps"


def _signed(ns: int) -> str:
    return ("+" if ns > 0 else "") + duration(ns)
