"""The memory page: what a snapshot of torch.cuda, or a trace with memory events, says was allocated
over time, and who held it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

from msgspec.structs import replace

from fusetui.text.figures import count, percent, plural, signed_size, size
from fusetui.tui.drawing.picture import Rows, Said, TextPicture, no_rows, row_parts, ruled, text
from fusetui.tui.drawing.schemes import Styled, glyphs_for, share_bar
from fusetui.tui.layout.frame import divided
from fusetui.tui.layout.kinds import narrow
from fusetui.tui.layout.memory import MEMORY, Lines, MemoryRow, MemorySide, rows_of
from fusetui.tui.layout.text_layout import ListColumn, titles
from fusetui.tui.pages.page import ListPage, Pane, table_of_page
from fusetui.tui.state import memory
from fusetui.tui.state.action import action, nothing, on
from fusetui.tui.state.memory import here, memory_of, window, with_view
from fusetui.tui.state.screen import overlay_size
from fusetui.tui.state.state import Outcome, Overlay, Size, State, told

if TYPE_CHECKING:
    from fusetui.analysis.memory.moments import Moments
    from fusetui.tables.public import Table

BYS = "code, module, category; op, annotation"
BAR = 10  # cells
SHARE = {1: (9, 20), 2: (13, 20)}  # of the lines above the details that areas take, by their number
NAME = ListColumn("", 0, left=True)
COLUMNS = (
    *(
        ListColumn("bytes", 10),
        ListColumn("share", 6),
        ListColumn("", BAR, left=True, from_width=70),
    ),
    *(ListColumn("blocks", 7, from_width=60), NAME),
)
SEGMENTS = (
    *(ListColumn("size", 10), ListColumn("in use", 6), ListColumn("holes", 10)),
    ListColumn("", 0, left=True),
)
BESIDE = (ListColumn("A", 10), ListColumn("B", 10), ListColumn("B - A", 11), NAME)


def pictures() -> ModuleType:
    """Imported once a snapshot is open."""
    from fusetui.tui.drawing import memory as drawing

    return drawing


def memory_head(side: MemorySide) -> str:
    """One line that says what is open."""
    of_devices = [
        f"{one.title}: peak {size(int(one.history.allocated.max()))} allocated, "
        f"{size(int(one.history.reserved.max()))} reserved, "
        f"{plural(len(one.history.events), 'event')}{_contradiction(one)}"
        for one in side.moments
    ]
    return "   ".join([narrow(side.label), *of_devices])


def _contradiction(moments: Moments) -> str:
    if unrecorded := moments.history.unrecorded:
        return f", without events {' and '.join(one.name.lower() for one in unrecorded)}"
    difference = abs(moments.history.difference_end_bytes)
    what = "their last total" if moments.is_of_trace else "its blocks"
    return f", which differ from {what} by {size(difference)}" if difference else ""


class MemoryPage(ListPage):
    """Space opens a holder into its stacks, and a stack into its allocations."""

    name, title, key = MEMORY, "Memory", "9"
    help = "who holds the memory of a GPU, by a snapshot or a trace"
    is_table = True
    hints = (
        "help keys; memory-in/memory-out zoom; memory-left/memory-right pan; "
        "memory-before/memory-after cursor; memory-peak highest; memory-turn open; show stack; "
        "memory-by group by; memory-map segments; copy copy"
    )

    def has(self, state: State) -> bool:
        return memory.is_there(state)

    def why_not(self, state: State) -> str:
        return "" if self.has(state) or state.sides else memory.NO_SNAPSHOT

    def ask(self, state: State) -> Outcome | None:
        """A trace may tell some of it."""
        return memory.ask(state)

    def open(self, state: State) -> State:
        """The timeline may show another window by now."""
        return memory.in_sight(state)

    def rows(self, state: State) -> Rows:
        shown, (moments, view) = memory_of(state), here(state)
        if shown.is_map:
            return self._segments(state)
        found, glyphs = self.found(state), glyphs_for(state.ascii_only)
        if not found:
            return no_rows("nothing is allocated at this moment")
        columns = COLUMNS if len(shown.sides) == 1 else BESIDE
        columns = (*columns[:-1], replace(NAME, title=shown.by))
        whole, zero = int(moments.history.allocated[view.at + 1]), self._zero(state)

        def formatted(index: int, width: int) -> list[Styled]:
            row = found[index]
            mark = glyphs.unfolded if row.key in shown.opened else glyphs.folded
            mark = mark if row.level < 2 and row.allocations else glyphs.leaf
            name = f"{'  ' * row.level}{mark} {pictures().row_text(moments, row, zero)}"
            if len(shown.sides) == 2:
                return row_parts(columns, [*self._both(state, row), name], width)
            bar = share_bar(row.bytes, whole, BAR, glyphs)
            blocks = count(row.allocations) if row.allocations else ""
            figures = size(row.bytes), percent(row.bytes, whole), bar, blocks
            return row_parts(columns, [*figures, name], width)

        return Rows(
            (found, columns, zero), len(found), lambda width: titles(columns, width), formatted
        )

    def _segments(self, state: State) -> Rows:
        """A line for each segment, by address."""
        moments, view = here(state)
        found = pictures().map_of(moments, view.at)
        if not found.segments:
            return no_rows("nothing tells which segments there were")
        glyphs = glyphs_for(state.ascii_only, state.colorless)

        def formatted(index: int, width: int) -> list[Styled]:
            one, used = found.segments[index], int(found.used[index])
            figures = size(one.size), percent(used, one.size), size(int(found.holes[index]))
            parts = row_parts(SEGMENTS, [*figures, ""], width)[:-1]
            room = width - sum(len(part) for part, _ in parts)
            return [*parts, *pictures().segment_cells(found, index, max(1, room), glyphs)]

        heading = replace(SEGMENTS[-1], title="each from its first to its last address")
        columns = (*SEGMENTS[:-1], heading)
        count = len(found.segments)
        return Rows((found, glyphs), count, lambda width: titles(columns, width), formatted)

    def _both(self, state: State, row: MemoryRow) -> list[str]:
        """Of A and of B, and the difference; of what lies below a holder only its own side."""
        active = memory_of(state).active
        if row.level:
            own = size(row.bytes)
            return [own, "", ""] if active == 0 else ["", own, ""]
        a, b = (row.bytes, row.other) if active == 0 else (row.other, row.bytes)
        return [size(a), size(b), signed_size(b - a)]

    def found(self, state: State) -> tuple[MemoryRow, ...]:
        """The rows of the moment under the cursor."""
        shown, (moments, view) = memory_of(state), here(state)
        beside = None
        if len(shown.sides) == 2:
            other = 1 - shown.active
            beside = shown.moments(other), shown.views[other].at
        found: tuple[MemoryRow, ...] = rows_of(moments, shown.by, view.at, shown.opened, beside)
        return found

    def row(self, state: State) -> MemoryRow | None:
        """That under the cursor of the list."""
        found = self.found(state)
        return found[min(state.list_of(MEMORY).cursor, len(found) - 1)] if found else None

    def above(self, state: State, size: Size) -> Sequence[Pane]:
        sides = len(memory_of(state).sides)
        part, of = SHARE[sides]
        lines = max(3, (size.height - self._below(size)) * part // of // sides - (sides > 1))
        panes = [pane for n in range(sides) for pane in self._side(state, n, lines, size)]
        moments, view = here(state)
        glyphs = glyphs_for(state.ascii_only, state.colorless)
        legend = pictures().legend(moments, view.at, glyphs, size.width)
        return (
            *panes,
            Pane(1, TextPicture(tuple(legend), lambda *_: [legend])),
            *self._apart(state),
        )

    def _side(self, state: State, index: int, lines: int, size: Size) -> Sequence[Pane]:
        """A line about the cursor, and the area."""
        shown, found, view = memory_of(state), window(state, index), memory_of(state).views[index]
        moments = shown.moments(index)
        most = max(int(shown.moments(n).history.allocated.max()) for n in range(len(shown.sides)))
        glyphs = glyphs_for(state.ascii_only, state.colorless)
        label = "timeline" if found.is_shared else "time" if len(moments.times) else "events"
        picture = pictures().AreaPicture(moments, found, view.at, most, glyphs, label)
        mark = ("A ", "B ")[index] if len(shown.sides) == 2 else ""
        of = shown.sides[index]
        name = f"{mark}{of.label}"
        if len(of.moments) > 1 or moments.is_of_trace:
            name += f"   {narrow(moments.title)}"
            name += f", one of {len(of.moments)}" if len(of.moments) > 1 else ""
        said = pictures().cursor_line(moments, view.at, found.zero, name, size.width)
        token = "title" if index == shown.active else "faint"

        def pointed(state: State, x: int, y: int) -> State:
            division = divided(size.width, size.height)
            now = memory.with_active(state, index)
            events = memory.drawn(now, index).events
            column = max(0, min(x - division.gutter, division.width - 1))
            return with_view(now, at=int(events[column]))

        return Pane(1, text([Said(said, token)])), Pane(lines, picture, pointed)

    def _apart(self, state: State) -> Sequence[Pane]:
        """Beside a trace whose axis of time is another one."""
        why = memory.why_apart(state) if state.sides else ""
        said = [f" its axis of time is its own: {why}"] if why else []
        moments, _ = here(state)
        if moments.is_of_trace and (difference := _contradiction(moments)):
            said.append(f" {plural(len(moments.history.events), 'event')}{difference}")
        return [Pane(1, text([Said(line)])) for line in said]

    def below(self, state: State, size: Size) -> Sequence[Pane]:
        row, (moments, view) = self.row(state), here(state)
        rule, height = glyphs_for(state.ascii_only).rule, self._below(size)
        if memory_of(state).is_map:
            cursor = state.list_of(MEMORY).cursor
            identity = moments, view.at, cursor, "segment"
            of_segment = self._of_segment(state, size.width)[: height - 1]
            return (Pane(height, ruled(identity, "", rule, lambda *_: of_segment)),)
        if row is None or not row.bytes:
            return (Pane(height, ruled(None, "", rule, lambda width, height: [])),)
        stack, zero = self._stack(state, row), self._zero(state)
        lines = partial(pictures().about, moments, row, stack, zero, size.width)
        picture = ruled(
            (moments, row, stack, zero), "", rule, lambda width, height: lines()[:height]
        )
        return (Pane(height, picture),)

    def _of_segment(self, state: State, width: int) -> list[Said]:
        """About the segment under the cursor."""
        moments, view = here(state)
        found = pictures().map_of(moments, view.at)
        if not found.segments:
            return []
        segment = min(state.list_of(MEMORY).cursor, len(found.segments) - 1)
        lines: list[Said] = pictures().about_segment(moments, found, segment, width)
        return lines

    @staticmethod
    def _below(size: Size) -> int:
        return max(5, min(12, size.height // 4))

    @staticmethod
    def _zero(state: State) -> int:
        """What times are counted from."""
        return window(state, memory_of(state).active).zero

    def _stack(self, state: State, row: MemoryRow) -> int:
        """Of a row; of a holder the one that holds most."""
        if row.level:
            return row.stack
        (moments, view), by = here(state), memory_of(state).by
        return int(moments.stacks(by, moments.names.index(row.name), view.at).number[0])

    def chosen(self, state: State, index: int) -> Outcome:
        found = self.described(state)
        return told(state, found) if isinstance(found, str) else replace(state, overlay=found)

    def described(self, state: State) -> Overlay | str:
        """The stack of the row, with the lines of code, and the life of an allocation; of a segment
        what lies in it."""
        if memory_of(state).is_map:
            said = self._of_segment(state, state.size.width)
            return Lines("what lies in this segment", tuple(line.text for line in said))
        row = self.row(state)
        if row is None or not row.bytes:
            return "nothing of it is allocated at this moment"
        moments, _ = here(state)
        stack, zero = self._stack(state, row), self._zero(state)
        width = overlay_size(state).width - 6
        lines = pictures().about(moments, row, stack, zero, width, every=True)
        return Lines("where this was allocated", tuple(line.text for line in lines))

    def table(self, state: State, rows: Sequence[int] | None = None) -> Table:
        """Who holds what at the moment, of each snapshot; or the segments."""
        if memory_of(state).is_map:
            return self._table_of_segments(state, rows)
        found, (moments, _) = self.found(state), here(state)
        chosen = found if rows is None else [found[row] for row in rows]
        said = partial(pictures().row_text, moments, zero=self._zero(state))
        names = [said(row) if row.level else row.name for row in chosen]
        figures: dict[str, list[int | None]] = {
            "level": [row.level for row in chosen],
            "bytes": [row.bytes for row in chosen],
            "blocks": [row.allocations for row in chosen],
        }
        if len(memory_of(state).sides) == 2:
            figures["other_bytes"] = [None if row.level else row.other for row in chosen]
        return table_of_page(MEMORY, {"holder": names}, **figures)

    def _table_of_segments(self, state: State, rows: Sequence[int] | None) -> Table:
        moments, view = here(state)
        placed = pictures().map_of(moments, view.at)
        chosen = range(len(placed.segments)) if rows is None else rows
        figures: dict[str, list[int | None]] = {
            "size_bytes": [placed.segments[n].size for n in chosen],
            "used_bytes": [int(placed.used[n]) for n in chosen],
            "hole_bytes": [int(placed.holes[n]) for n in chosen],
        }
        texts = {"address": [f"{placed.segments[n].address:#x}" for n in chosen]}
        return table_of_page(MEMORY, texts, **figures)


_action = partial(action, section="In the memory page", where=on(MEMORY), needs=nothing)
_in, _out = partial(memory.zoom, part=1, of=2), partial(memory.zoom, part=2, of=1)
_left, _right = partial(memory.pan, percent=-10), partial(memory.pan, percent=10)
_far_left, _far_right = partial(memory.pan, percent=-90), partial(memory.pan, percent=90)
_before, _after = partial(memory.beside, by=-1), partial(memory.beside, by=1)
_earlier, _later = partial(memory.step, by=-1), partial(memory.step, by=1)
_next, _last = partial(memory.next_by, by=1), partial(memory.next_by, by=-1)


def turn(state: State) -> State:
    """Opens or closes the row under the cursor."""
    row, shown = PAGE.row(state), memory_of(state)
    if shown.is_map or row is None or row.level > 1 or not row.allocations:
        return told(state, "there is nothing to open below this row")
    return replace(state, memory=replace(shown, opened=shown.opened ^ {row.key}), hint="")


PAGE = MemoryPage()
MemoryPage.actions = (
    _action("memory-in", "Zoom in", "w + =", "about the cursor", _in),
    _action("memory-out", "Zoom out", "s -", "about the cursor", _out),
    _action("memory-left", "Pan left", "a h", "a tenth of the window", _left),
    _action("memory-right", "Pan right", "d l", "a tenth of the window", _right),
    _action("memory-screen-left", "Screen left", "A H shift+left", "most of a window", _far_left),
    _action("memory-screen-right", "Screen right", "D L shift+right", "most of one", _far_right),
    _action("memory-whole", "Whole recording", "0", "show everything", memory.whole),
    _action("memory-before", "Cursor left", "left", "to the cell before", _before),
    _action("memory-after", "Cursor right", "right", "to the next cell", _after),
    _action("memory-earlier", "Event before", ",", "exactly one", _earlier),
    _action("memory-later", "Next event", ".", "exactly one", _later),
    _action("memory-peak", "Highest", "p", "where most is allocated in sight", memory.highest),
    _action("memory-turn", "Open or close", "space", "stacks, then allocations", turn),
    _action("memory-by", "By another", ">", BYS, _next),
    _action("memory-by-last", "By the one before", "<", BYS, _last),
    _action("memory-map", "Segments", "t", "or who holds it", memory.turn_map),
    _action("memory-device", "Other device", "tab", "or snapshot", memory.next_device),
)
