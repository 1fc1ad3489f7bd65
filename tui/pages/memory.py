"""The memory page: allocated memory over time, from a snapshot or a trace, and what
holds it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

from msgspec.structs import replace

from fusetui.text.cutting import joined
from fusetui.text.figures import count, percent, plural, signed_size, size
from fusetui.tui.drawing.picture import (
    Rows,
    Said,
    cut_in,
    no_rows,
    row_parts,
    ruled,
    text,
)
from fusetui.tui.drawing.schemes import Glyphs, Styled, glyphs_for, share_bar
from fusetui.tui.layout.frame import divided
from fusetui.tui.layout.kinds import narrow
from fusetui.tui.layout.memory import (
    MEMORY,
    MemoryRow,
    MemoryShown,
    MemorySide,
    OverlayLines,
    rows_of,
)
from fusetui.tui.layout.text_layout import ListColumn, titles
from fusetui.tui.pages.page import ListPage, Pane, page_table
from fusetui.tui.state import memory
from fusetui.tui.state.action import action, nothing, on
from fusetui.tui.state.memory import Window, here, memory_of, window, with_view
from fusetui.tui.state.replays import NEEDS_WHOLE_TRACE
from fusetui.tui.state.screen import overlay_size
from fusetui.tui.state.state import Outcome, Overlay, ReadMemory, Size, State, told

if TYPE_CHECKING:
    from fusetui.analysis.memory.moments import Moments, PlacedBlocks
    from fusetui.tables.public import Table

HOLDER_KINDS = "code, module, category; op, annotation"
BAR_CELLS = 10
AREA_TWENTIETHS = {1: 9, 2: 13}
"""Of the lines above the details, how many twentieths the areas of so many snapshots
take."""
HOLDER_COLUMNS = (
    ListColumn("bytes", 10),
    ListColumn("share", 6),
    ListColumn("", BAR_CELLS, left=True, from_width=70),
    ListColumn("blocks", 7, from_width=60),
)
COMPARED_COLUMNS = (
    ListColumn("A", 10),
    ListColumn("B", 10),
    ListColumn("B - A", 11),
)
"""The figures of a holder, of one snapshot and of two. Its name follows."""
SEGMENT_COLUMNS = (
    ListColumn("size", 10),
    ListColumn("in use", 6),
    ListColumn("holes", 10),
    ListColumn("segment, from its first to its last address", 0, left=True),
)


def pictures() -> ModuleType:
    """Imported once a snapshot is open."""
    from fusetui.tui.drawing import memory as drawing

    return drawing


def memory_head(side: MemorySide, width: int) -> str:
    """The line above a snapshot: its label, and of each device the peak and the number
    of its events; as many parts as fit."""
    parts = [narrow(side.label)]
    for moments in side.moments:
        allocated = size(int(moments.history.allocated.max()))
        reserved = size(int(moments.history.reserved.max()))
        peak = f"peak {allocated} allocated, {reserved} reserved"
        parts.append(f"{moments.title}: {peak}")
        parts.append(_events(moments))
    return joined(parts, width)


def _events(moments: Moments) -> str:
    """How many events there are, and by how many bytes their sum differs from what the
    file says of the end."""
    number = plural(len(moments.history.events), "event")
    unrecorded = moments.history.unrecorded
    if unrecorded:
        kinds = " and ".join(action.name.lower() for action in unrecorded)
        return f"{number}, without events {kinds}"
    difference = abs(moments.history.difference_end_bytes)
    if not difference:
        return number
    what = "their last total" if moments.is_of_trace else "its blocks"
    return f"{number}, which differ from {what} by {size(difference)}"


NO_EVENTS = " No events in this file: it has what was allocated at its end alone."


class MemoryPage(ListPage):
    """Space opens a holder into its stacks, and a stack into its allocations."""

    name, title, key = MEMORY, "Memory", "9"
    short = "Mem"
    help = "who holds the memory of a GPU, by a snapshot or a trace"
    hints = (
        "help keys; memory-in/memory-out zoom; memory-left/memory-right pan; "
        "memory-before/memory-after cursor; memory-peak highest; memory-turn open; show stack; "
        "memory-by group by; memory-map segments; copy copy"
    )

    def has(self, state: State) -> bool:
        """Whether a snapshot is open, or the memory events of a trace that is open."""
        shown = state.memory
        if shown is None:
            return False
        if shown.trace is None:
            return True
        return any(side.trace is shown.trace for side in state.sides)

    def why_not(self, state: State) -> str:
        return "" if self.has(state) or state.sides else memory.NO_SNAPSHOT

    def ask(self, state: State) -> Outcome | None:
        """Has the memory events of the active trace read, unless they or a snapshot are
        there."""
        shown = state.memory
        if shown is not None and shown.trace is None:  # a snapshot needs no trace
            return None
        trace = state.side.trace
        if shown is not None and shown.trace is trace:
            return None
        if trace.report.prefix:
            return told(state, NEEDS_WHOLE_TRACE)
        path = state.paths[state.active] if state.active < len(state.paths) else ""
        effect = ReadMemory((path,), alone=False, trace=trace, page=state.page)
        return told(state, "the memory events of the trace are being read"), effect

    def open(self, state: State) -> State:
        """The timeline may show another window by now."""
        return memory.in_sight(state)

    def rows(self, state: State) -> Rows:
        """Who holds what at the moment under the cursor; or the segments."""
        if memory_of(state).is_map:
            return self._segments(state)
        holders = self.found(state)
        if not holders:
            return no_rows("nothing is allocated at this moment")
        columns = self._columns(memory_of(state))
        moments, view = here(state)
        total = int(moments.history.allocated[view.at + 1])
        zero = window(state).zero

        def formatted(index: int, width: int) -> list[Styled]:
            """The row of one holder, stack or allocation."""
            row = holders[index]
            name = pictures().row_text(moments, row, zero)
            indent = "  " * row.level
            label = f"{indent}{self._mark(state, row)} {name}"
            texts = [*self._figures(state, row, total), label]
            return row_parts(columns, texts, width)

        return Rows(
            identity=(holders, columns, zero),
            count=len(holders),
            titles=partial(titles, columns),
            format=formatted,
        )

    @staticmethod
    def _columns(shown: MemoryShown) -> tuple[ListColumn, ...]:
        """The columns of the holders; the last one is called by what they are."""
        is_compared = len(shown.sides) > 1
        figures = COMPARED_COLUMNS if is_compared else HOLDER_COLUMNS
        return *figures, ListColumn(shown.by, 0, left=True)

    @staticmethod
    def _mark(state: State, row: MemoryRow) -> str:
        """The character before a row: whether it is open, or cannot be opened."""
        glyphs = glyphs_for(state.ascii_only)
        if not _can_open(row):
            return glyphs.leaf
        is_open = row.key in memory_of(state).opened
        return glyphs.unfolded if is_open else glyphs.folded

    def _figures(self, state: State, row: MemoryRow, total: int) -> list[str]:
        """The bytes of a row, their share of all, its bar, and its blocks where their
        number is known; of two snapshots, its bytes in both."""
        if len(memory_of(state).sides) > 1:
            return self._both(state, row)
        return [
            size(row.bytes),
            percent(row.bytes, total),
            share_bar(row.bytes, total, BAR_CELLS, glyphs_for(state.ascii_only)),
            count(row.allocations) if row.allocations else "",
        ]

    def _segments(self, state: State) -> Rows:
        """A line for each segment, by address."""
        placed = placed_at(state)
        glyphs = glyphs_for(state.ascii_only, state.colorless)
        if not placed.segments:
            return no_rows("segments were not recorded")
        return Rows(
            identity=(placed, glyphs),
            count=len(placed.segments),
            titles=partial(titles, SEGMENT_COLUMNS),
            format=partial(_segment_row, placed, glyphs),
        )

    def _both(self, state: State, row: MemoryRow) -> list[str]:
        """The bytes of a row in A and in B, and the difference. Of what lies below a
        holder, only the bytes of the active side are known."""
        is_b_active = memory_of(state).active == 1
        if row.level:
            bytes_text = size(row.bytes)
            return ["", bytes_text, ""] if is_b_active else [bytes_text, "", ""]
        a, b = (row.other, row.bytes) if is_b_active else (row.bytes, row.other)
        return [size(a), size(b), signed_size(b - a)]

    def found(self, state: State) -> tuple[MemoryRow, ...]:
        """The rows of the list while it shows holders."""
        shown = memory_of(state)
        moments, view = here(state)
        beside = None
        if len(shown.sides) > 1:
            other = 1 - shown.active
            beside = (shown.moments(other), shown.views[other].at)
        rows: tuple[MemoryRow, ...] = rows_of(
            moments, shown.by, view.at, shown.opened, beside
        )
        return rows

    def row(self, state: State) -> MemoryRow | None:
        return self.under_cursor(state, self.found(state))

    def above(self, state: State, size: Size) -> Sequence[Pane]:
        """The area of each snapshot, the legend, and what to know about them."""
        moments, view = here(state)
        panes: list[Pane] = []
        lines = self._area_lines(len(memory_of(state).sides), size)
        for index in range(len(memory_of(state).sides)):
            panes += self._side(state, index, lines, size)
        glyphs = glyphs_for(state.ascii_only, state.colorless)
        legend = pictures().legend(moments, window(state), view.at, glyphs, size.width)
        panes.append(Pane(1, text([legend])))
        for remark in self._remarks(state):
            panes.append(Pane(1, text([Said(remark)])))
        return panes

    def _area_lines(self, snapshots: int, size: Size) -> int:
        """How many lines the area of each snapshot has."""
        above_details: int = size.height - self._below(size)
        lines = above_details * AREA_TWENTIETHS[snapshots] // 20 // snapshots
        if snapshots > 1:
            lines -= 1
        least_lines = 3
        return max(least_lines, lines)

    @staticmethod
    def _remarks(state: State) -> list[str]:
        """Sentences about the active snapshot: why its axis of time is its own, and how
        far its events are from the last total."""
        remarks = []
        why_apart = memory.why_apart(state) if state.sides else ""
        if why_apart:
            remarks.append(f" its axis of time is its own: {why_apart}")
        moments = here(state).moments
        if not len(moments.history.events):
            remarks.append(NO_EVENTS)
        if moments.is_of_trace and moments.history.difference_end_bytes:
            remarks.append(f" {_events(moments)}")
        return remarks

    def _side(self, state: State, index: int, lines: int, size: Size) -> Sequence[Pane]:
        """The line above the area of one snapshot, and the area, `lines` high."""
        shown = memory_of(state)
        over = window(state, index)
        moments = shown.moments(index)
        at = shown.views[index].at
        name = self._side_name(shown, index)
        heading = pictures().cursor_line(moments, at, over.zero, name, size.width)
        token = "title" if index == shown.active else "faint"
        line_above = Pane(1, text([Said(heading, token)]))
        if not len(moments.history.events):
            return (line_above,)  # one moment has no curve
        picture = pictures().AreaPicture(
            moments=moments,
            window=over,
            at=at,
            most=self._highest_peak(shown),
            glyphs=glyphs_for(state.ascii_only, state.colorless),
            label=self._axis_label(over, moments),
        )
        area = Pane(lines, picture, partial(_pointed_in_area, index=index, size=size))
        return line_above, area

    @staticmethod
    def _highest_peak(shown: MemoryShown) -> int:
        """The most bytes that any of the snapshots ever had allocated."""
        peaks = []
        for index in range(len(shown.sides)):
            allocated = shown.moments(index).history.allocated
            peaks.append(int(allocated.max()))
        return max(peaks)

    @staticmethod
    def _axis_label(over: Window, moments: Moments) -> str:
        """What the ruler of an area counts."""
        if over.is_shared:
            return "timeline"
        return "time" if len(moments.times) else "events"

    @staticmethod
    def _side_name(shown: MemoryShown, index: int) -> str:
        """The label of a snapshot, of two with its letter, and the device that is
        shown of it."""
        side = shown.sides[index]
        moments = shown.moments(index)
        name = side.label
        if len(shown.sides) == 2:
            name = f"{'AB'[index]} {name}"
        devices = len(side.moments)
        if devices > 1 or moments.is_of_trace:
            name += f"   {narrow(moments.title)}"
        if devices > 1:
            name += f" (one of {devices} devices)"
        return name

    def below(self, state: State, size: Size) -> Sequence[Pane]:
        """A few lines about the row under the cursor."""
        moments, view = here(state)
        identity = (
            moments,
            view.at,
            None if memory_of(state).is_map else self.row(state),
            state.list_of(MEMORY).cursor,
            window(state).zero,
        )

        def lines(width: int, height: int) -> Sequence[Said]:
            return cut_in(self._about(state, width), width, height, glyphs.ellipsis)

        glyphs = glyphs_for(state.ascii_only)
        about = ruled(identity, "", glyphs.rule, lines)
        return (Pane(self._below(size), about),)

    def _about(self, state: State, width: int, every: bool = False) -> list[Said]:
        """Lines about the segment under the cursor, or about the row and its stack;
        `every`: also its frames of C++. Empty where the cursor is on nothing."""
        moments = here(state).moments
        if memory_of(state).is_map:
            placed = placed_at(state)
            segment = self.under_cursor(state, range(len(placed.segments)))
            if segment is None:
                return []
            segment_lines: list[Said] = pictures().about_segment(
                moments, placed, segment, width
            )
            return segment_lines
        row = self.row(state)
        if row is None or not row.bytes:
            return []
        stack = self._stack(state, row)
        zero = window(state).zero
        lines: list[Said] = pictures().about(moments, row, stack, zero, width, every)
        return lines

    @staticmethod
    def _below(size: Size) -> int:
        """How many lines of the page are for the details."""
        return max(5, min(12, size.height // 4))

    def _stack(self, state: State, row: MemoryRow) -> int:
        """The stack of a row; of a holder the one that holds most."""
        if row.level:
            return row.stack
        moments, view = here(state)
        holder = moments.names.index(row.name)
        stacks = moments.stacks(memory_of(state).by, holder, view.at)
        return int(stacks.number[0])

    def chosen(self, state: State, index: int) -> Outcome:
        """Enter: everything about the row, over the page."""
        about = self.described(state)
        if isinstance(about, str):
            return told(state, about)
        return replace(state, overlay=about)

    def described(self, state: State) -> Overlay | str:
        """The stack of the row and the life of an allocation, or what lies in the
        segment."""
        if memory_of(state).is_map:
            said = self._about(state, state.size.width, every=True)
            return OverlayLines("what lies in this segment", _texts(said))
        said = self._about(state, overlay_size(state).width - 6, every=True)
        if not said:
            return "nothing of it is allocated at this moment"
        return OverlayLines("where this was allocated", _texts(said))

    def table(self, state: State, rows: Sequence[int] | None = None) -> Table:
        """Who holds what at the moment, of each snapshot; or the segments."""
        if memory_of(state).is_map:
            return self._segment_table(placed_at(state), rows)
        holders = self.found(state)
        chosen = holders if rows is None else [holders[row] for row in rows]
        figures: dict[str, Sequence[int | None]] = {
            "level": [row.level for row in chosen],
            "bytes": [row.bytes for row in chosen],
            "blocks": [row.allocations for row in chosen],
        }
        if len(memory_of(state).sides) == 2:
            figures["other_bytes"] = [
                None if row.level else row.other for row in chosen
            ]
        names = [self._table_name(state, row) for row in chosen]
        return page_table(MEMORY, {"holder": names}, **figures)

    @staticmethod
    def _segment_table(placed: PlacedBlocks, rows: Sequence[int] | None) -> Table:
        """The segments by address, or those of these rows alone."""
        numbers = range(len(placed.segments)) if rows is None else rows
        segments = [placed.segments[number] for number in numbers]
        return page_table(
            MEMORY,
            {"address": [f"{segment.address:#x}" for segment in segments]},
            size_bytes=[segment.size for segment in segments],
            used_bytes=[int(placed.used[number]) for number in numbers],
            hole_bytes=[int(placed.holes[number]) for number in numbers],
        )

    @staticmethod
    def _table_name(state: State, row: MemoryRow) -> str:
        """The name of a row in a saved table: of a holder in full."""
        if row.level == 0:
            return row.name
        name: str = pictures().row_text(
            here(state).moments, row, zero=window(state).zero
        )
        return name


def _pointed_in_area(state: State, x: int, y: int, index: int, size: Size) -> State:
    """The cursor on the moment of the cell of one area that was clicked; its side
    becomes the active one."""
    division = divided(size.width, size.height)
    column = max(0, min(x - division.gutter, division.width - 1))
    now = replace(state, memory=replace(memory_of(state), active=index))
    return with_view(now, at=int(memory.drawn(now, index).events[column]))


def _texts(lines: Sequence[Said]) -> tuple[str, ...]:
    """The lines without their styles."""
    return tuple(line.text for line in lines)


def _segment_row(
    placed: PlacedBlocks, glyphs: Glyphs, index: int, width: int
) -> list[Styled]:
    """The size of a segment, how much of it is in use, its holes, and what lies in it
    from its first to its last address."""
    segment_bytes = placed.segments[index].size
    texts = [
        size(segment_bytes),
        percent(int(placed.used[index]), segment_bytes),
        size(int(placed.holes[index])),
        "",
    ]
    *figures, (blank, _) = row_parts(SEGMENT_COLUMNS, texts, width)
    cells = pictures().segment_cells(placed, index, len(blank), glyphs)
    return [*figures, *cells]


def _can_open(row: MemoryRow) -> bool:
    """Whether there is anything below a row: stacks of a holder, allocations of a
    stack. Where the number of its blocks is not known, there is not."""
    return row.level < 2 and row.allocations > 0


def placed_at(state: State) -> PlacedBlocks:
    """The segments of the moment under the cursor."""
    from fusetui.analysis.memory.moments import placed

    moments, view = here(state)
    return placed(moments, view.at)


_action = partial(action, section="In the memory page", where=on(MEMORY), needs=nothing)


def turn(state: State) -> State:
    """Opens the row under the cursor, or closes it."""
    row = PAGE.row(state)
    shown = memory_of(state)
    if shown.is_map or row is None or not _can_open(row):
        return told(state, "there is nothing to open below this row")
    opened = shown.opened ^ {row.key}
    return replace(state, memory=replace(shown, opened=opened), hint="")


PAGE = MemoryPage()
MemoryPage.actions = (
    _action(
        name="memory-in",
        title="Zoom in",
        written="w + =",
        help="about the cursor",
        run=partial(memory.zoom, part=1, of=2),
    ),
    _action(
        name="memory-out",
        title="Zoom out",
        written="s -",
        help="about the cursor",
        run=partial(memory.zoom, part=2, of=1),
    ),
    _action(
        name="memory-left",
        title="Pan left",
        written="a h",
        help="a tenth of the window",
        run=partial(memory.pan, percent=-10),
    ),
    _action(
        name="memory-right",
        title="Pan right",
        written="d l",
        help="a tenth of the window",
        run=partial(memory.pan, percent=10),
    ),
    _action(
        name="memory-screen-left",
        title="Screen left",
        written="A H shift+left",
        help="most of a window",
        run=partial(memory.pan, percent=-90),
    ),
    _action(
        name="memory-screen-right",
        title="Screen right",
        written="D L shift+right",
        help="most of one",
        run=partial(memory.pan, percent=90),
    ),
    _action(
        name="memory-whole",
        title="Whole recording",
        written="0",
        help="show everything",
        run=memory.whole,
    ),
    _action(
        name="memory-before",
        title="Cursor left",
        written="left",
        help="to the cell before",
        run=partial(memory.beside, by=-1),
    ),
    _action(
        name="memory-after",
        title="Cursor right",
        written="right",
        help="to the next cell",
        run=partial(memory.beside, by=1),
    ),
    _action(
        name="memory-earlier",
        title="Event before",
        written=",",
        help="exactly one",
        run=partial(memory.step, by=-1),
    ),
    _action(
        name="memory-later",
        title="Next event",
        written=".",
        help="exactly one",
        run=partial(memory.step, by=1),
    ),
    _action(
        name="memory-peak",
        title="Highest",
        written="p",
        help="where most is allocated in sight",
        run=memory.highest,
    ),
    _action(
        name="memory-turn",
        title="Open or close",
        written="space",
        help="stacks, then allocations",
        run=turn,
    ),
    _action(
        name="memory-by",
        title="By another",
        written=">",
        help=HOLDER_KINDS,
        run=partial(memory.next_by, by=1),
    ),
    _action(
        name="memory-by-last",
        title="By the one before",
        written="<",
        help=HOLDER_KINDS,
        run=partial(memory.next_by, by=-1),
    ),
    _action(
        name="memory-map",
        title="Segments",
        written="t",
        help="or who holds it",
        run=memory.turn_map,
    ),
    _action(
        name="memory-device",
        title="Other device",
        written="tab",
        help="or snapshot",
        run=memory.next_device,
    ),
)
