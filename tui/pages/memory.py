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
    cut_lines_to_width,
    make_empty_list,
    make_ruled_picture,
    style_row,
    text,
)
from fusetui.tui.drawing.schemes import Glyphs, Styled, choose_glyphs, draw_share_bar
from fusetui.tui.layout.frame import divide_timeline
from fusetui.tui.layout.kinds import narrow
from fusetui.tui.layout.memory import (
    MEMORY,
    MemoryRow,
    MemoryShown,
    MemorySide,
    OverlayLines,
    list_memory_rows,
)
from fusetui.tui.layout.text_layout import ListColumn, titles
from fusetui.tui.pages.page import ListPage, Pane, make_page_table
from fusetui.tui.state import memory
from fusetui.tui.state.action import action, nothing, on
from fusetui.tui.state.memory import Window, change_view, here, memory_of, window
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
    """Return the module that draws memory pictures. It is imported on the first call,
    so that an app without a snapshot starts faster."""
    from fusetui.tui.drawing import memory as drawing

    return drawing


def format_memory_head(side: MemorySide, width: int) -> str:
    """Return the line above a memory snapshot: its label, then for each device the peak
    of bytes and the number of events. It has as many parts as fit in `width` cells."""
    parts = [narrow(side.label)]
    for moments in side.moments:
        allocated = size(int(moments.history.allocated.max()))
        reserved = size(int(moments.history.reserved.max()))
        peak = f"peak {allocated} allocated, {reserved} reserved"
        parts.append(f"{moments.title}: {peak}")
        parts.append(_describe_events(moments))
    return joined(parts, width)


def _describe_events(moments: Moments) -> str:
    """Return the number of recorded events, and how they disagree with the file.

    Their sum can differ from the total that the file gives at the end, in bytes. Kinds
    of events that were not recorded are named instead.
    """
    number = plural(len(moments.history.events), "event")
    unrecorded = moments.history.unrecorded
    if unrecorded:
        kinds = " and ".join(action.name.lower() for action in unrecorded)
        return f"{number}, without events {kinds}"
    difference = abs(moments.history.difference_end_bytes)
    if not difference:
        return number
    compared_total = "their last total" if moments.is_of_trace else "its blocks"
    return f"{number}, which differ from {compared_total} by {size(difference)}"


NO_EVENTS = " No events in this file: it contains only what was allocated at the end."


class MemoryPage(ListPage):
    """Space opens a holder into its stacks, and a stack into its allocations."""

    name, title, key = MEMORY, "Memory", "9"
    short = "Mem"
    help = "what holds GPU memory, from a snapshot or a trace"
    hints = (
        "help help; memory-in/memory-out zoom; memory-left/memory-right pan; "
        "memory-before/memory-after cursor; memory-peak highest; memory-turn open; show stack; "
        "memory-by group by; memory-map segments; copy copy"
    )

    def has(self, state: State) -> bool:
        """Return whether there is memory to show: a snapshot, or the memory events of a
        trace that is still open."""
        shown = state.memory
        if shown is None:
            return False
        if shown.trace is None:
            return True
        return any(side.trace is shown.trace for side in state.sides)

    def why_not(self, state: State) -> str:
        """Return why the page cannot be shown, or "" if it can: neither a snapshot nor
        a trace is open."""
        return "" if self.has(state) or state.sides else memory.NO_SNAPSHOT

    def ask(self, state: State) -> Outcome | None:
        """Ask for the memory events of the active trace, and return the state with that
        effect.

        The result is None where a snapshot or these events are there already. A trace
        of which only a part was read gets a message instead.
        """
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
        """Return the state with the memory cursor inside the window of the timeline,
        which may have moved since the page was last shown."""
        return memory.move_cursor_into_window(state)

    def rows(self, state: State) -> Rows:
        """Return the rows of the list: who holds memory at the moment under the cursor,
        or the segments of the allocator. A moment is the time right after one memory
        event."""
        shown = memory_of(state)
        if shown.is_map:
            return self._segments(state)
        holders = self.found(state)
        if not holders:
            return make_empty_list("nothing is allocated at this moment")
        columns = self._columns(shown)
        moments, view = here(state)
        # the first amount is that before all events
        allocated_bytes = int(moments.history.allocated[view.at + 1])
        time_zero = window(state).zero

        def format_row(index: int, width: int) -> list[Styled]:
            """The row of one holder, stack or allocation."""
            row = holders[index]
            name = pictures().row_text(moments, row, time_zero)
            indent = "  " * row.level
            label = f"{indent}{self._mark(state, row)} {name}"
            texts = [*self._figures(state, row, allocated_bytes), label]
            return style_row(columns, texts, width)

        return Rows(
            identity=(holders, columns, time_zero),
            count=len(holders),
            titles=partial(titles, columns),
            format=format_row,
        )

    @staticmethod
    def _columns(shown: MemoryShown) -> tuple[ListColumn, ...]:
        """Return the columns of the list of holders: figures of one snapshot, or of
        both in a comparison, then the holder's name."""
        is_compared = len(shown.sides) > 1
        figures = COMPARED_COLUMNS if is_compared else HOLDER_COLUMNS
        return *figures, ListColumn(shown.by, 0, left=True)

    @staticmethod
    def _mark(state: State, row: MemoryRow) -> str:
        """Return the sign before a row that shows whether it is open, closed, or cannot
        be opened."""
        glyphs = choose_glyphs(state.ascii_only)
        if not _can_open(row):
            return glyphs.leaf
        is_open = row.key in memory_of(state).opened
        return glyphs.unfolded if is_open else glyphs.folded

    def _figures(self, state: State, row: MemoryRow, total: int) -> list[str]:
        """Return the texts in the figure columns of a row: bytes, share of `total`, bar
        and number of blocks. For two snapshots they are the bytes in each, and the
        difference."""
        if len(memory_of(state).sides) > 1:
            return self._format_compared_figures(state, row)
        glyphs = choose_glyphs(state.ascii_only)
        return [
            size(row.bytes),
            percent(row.bytes, total),
            draw_share_bar(row.bytes, total, BAR_CELLS, glyphs),
            count(row.allocations) if row.allocations else "",
        ]

    def _segments(self, state: State) -> Rows:
        """Return a row for each segment of the allocator, by address. A segment is a
        stretch of device memory that is reserved as one."""
        placed = place_rectangles(state)
        glyphs = choose_glyphs(state.ascii_only, state.colorless)
        if not placed.segments:
            return make_empty_list("segments were not recorded")
        return Rows(
            identity=(placed, glyphs),
            count=len(placed.segments),
            titles=partial(titles, SEGMENT_COLUMNS),
            format=partial(_draw_segment_row, placed, glyphs),
        )

    def _format_compared_figures(self, state: State, row: MemoryRow) -> list[str]:
        """Return the bytes of a row in snapshot A, in B, and B minus A.

        Rows below a holder (stacks and allocations) only have bytes on the active side.
        Their other two texts are empty.
        """
        is_b_active = memory_of(state).active == 1
        if row.level:
            bytes_text = size(row.bytes)
            return ["", bytes_text, ""] if is_b_active else [bytes_text, "", ""]
        a_bytes, b_bytes = (
            (row.other, row.bytes) if is_b_active else (row.bytes, row.other)
        )
        return [size(a_bytes), size(b_bytes), signed_size(b_bytes - a_bytes)]

    def found(self, state: State) -> tuple[MemoryRow, ...]:
        """Return the rows of the list of holders at the moment under the cursor, with
        the rows of opened holders. With two snapshots each row also has its bytes in
        the other one."""
        shown = memory_of(state)
        moments, view = here(state)
        compared_moment = None
        if len(shown.sides) > 1:
            other = 1 - shown.active
            compared_moment = (shown.moments(other), shown.views[other].at)
        rows: tuple[MemoryRow, ...] = list_memory_rows(
            moments, shown.by, view.at, shown.opened, compared_moment
        )
        return rows

    def row(self, state: State) -> MemoryRow | None:
        """Return the holder, stack or allocation under the cursor; None for an empty
        list."""
        return self.under_cursor(state, self.found(state))

    def above(self, state: State, size: Size) -> Sequence[Pane]:
        """Return the panes above the list: a curve of allocated bytes for each
        snapshot, the legend, and remarks about them."""
        moments, view = here(state)
        panes: list[Pane] = []
        area_lines = self._area_height(len(memory_of(state).sides), size)
        for index in range(len(memory_of(state).sides)):
            panes += self._side(state, index, area_lines, size)
        glyphs = choose_glyphs(state.ascii_only, state.colorless)
        legend = pictures().legend(moments, window(state), view.at, glyphs, size.width)
        panes.append(Pane(1, text([legend])))
        for remark in self._remarks(state):
            panes.append(Pane(1, text([Said(remark)])))
        return panes

    def _area_height(self, snapshots: int, size: Size) -> int:
        """Return how many lines the curve of each of `snapshots` snapshots gets, at
        least 3."""
        above_details: int = size.height - self._below(size)
        lines_each = above_details * AREA_TWENTIETHS[snapshots] // 20 // snapshots
        if snapshots > 1:
            # the line above the second curve
            lines_each -= 1
        least_lines = 3
        return max(least_lines, lines_each)

    @staticmethod
    def _remarks(state: State) -> list[str]:
        """Return sentences about the active snapshot.

        They say why its time axis is not that of the trace, and that it has no events.
        They also say how far its events are from the last total.
        """
        remarks = []
        why_apart = memory.why_apart(state) if state.sides else ""
        if why_apart:
            remarks.append(f" it has its own time axis: {why_apart}")
        moments = here(state).moments
        if not len(moments.history.events):
            remarks.append(NO_EVENTS)
        if moments.is_of_trace and moments.history.difference_end_bytes:
            remarks.append(f" {_describe_events(moments)}")
        return remarks

    def _side(self, state: State, index: int, lines: int, size: Size) -> Sequence[Pane]:
        """Return the panes for one snapshot: a line about the moment under the cursor,
        and the curve of allocated bytes, `lines` high.

        The line of the active snapshot stands out. A snapshot without events is a
        single moment and has no curve.
        """
        shown = memory_of(state)
        shown_window = window(state, index)
        moments = shown.moments(index)
        event_index = shown.views[index].at
        name = self._name_side(shown, index)
        heading = pictures().cursor_line(
            moments, event_index, shown_window.zero, name, size.width
        )
        token = "title" if index == shown.active else "faint"
        line_above = Pane(1, text([Said(heading, token)]))
        if not len(moments.history.events):
            return (line_above,)  # one moment has no curve
        picture = pictures().AreaPicture(
            moments=moments,
            window=shown_window,
            at=event_index,
            most=self._find_highest_peak(shown),
            glyphs=choose_glyphs(state.ascii_only, state.colorless),
            label=self._name_axis(shown_window, moments),
        )
        area = Pane(lines, picture, partial(_click_in_area, index=index, size=size))
        return line_above, area

    @staticmethod
    def _find_highest_peak(shown: MemoryShown) -> int:
        """Return the most bytes that any of the shown snapshots ever had allocated. All
        curves share this scale."""
        peaks = []
        for index in range(len(shown.sides)):
            allocated = shown.moments(index).history.allocated
            peaks.append(int(allocated.max()))
        return max(peaks)

    @staticmethod
    def _name_axis(over: Window, moments: Moments) -> str:
        """Return what the horizontal axis of a curve counts: the timeline of the trace,
        time, or events where no times were recorded."""
        if over.is_shared:
            return "timeline"
        return "time" if len(moments.times) else "events"

    @staticmethod
    def _name_side(shown: MemoryShown, index: int) -> str:
        """Return the name of a snapshot: its label, a letter if there are two, and
        which device is shown if it has several."""
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
        """Return the pane below the list, with a few lines about the row under the
        cursor."""
        moments, view = here(state)
        identity = (
            moments,
            view.at,
            None if memory_of(state).is_map else self.row(state),
            state.list_of(MEMORY).cursor,
            window(state).zero,
        )

        def lines(width: int, height: int) -> Sequence[Said]:
            return cut_lines_to_width(
                self._about(state, width), width, height, glyphs.ellipsis
            )

        glyphs = choose_glyphs(state.ascii_only)
        details_picture = make_ruled_picture(identity, "", glyphs.rule, lines)
        return (Pane(self._below(size), details_picture),)

    def _about(self, state: State, width: int, every: bool = False) -> list[Said]:
        """Return lines about the row under the cursor: a segment, or a holder with its
        call stack. `every` also lists frames of C++. The result is empty where the
        cursor is on nothing."""
        moments = here(state).moments
        if memory_of(state).is_map:
            placed = place_rectangles(state)
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
        """Return how many lines the details below the list get: a quarter of the page,
        from 5 to 12."""
        return max(5, min(12, size.height // 4))

    def _stack(self, state: State, row: MemoryRow) -> int:
        """Return the number of the call stack that a row is about. For a holder it is
        the stack that holds most of its bytes."""
        if row.level:
            return row.stack
        moments, view = here(state)
        holder = moments.names.index(row.name)
        stacks = moments.group_by_stack(memory_of(state).by, holder, view.at)
        return int(stacks.number[0])

    def chosen(self, state: State, index: int) -> Outcome:
        """Carry out Enter: show everything about the row over the page, or a message
        where there is nothing."""
        overlay_or_reason = self.described(state)
        if isinstance(overlay_or_reason, str):
            return told(state, overlay_or_reason)
        return replace(state, overlay=overlay_or_reason)

    def described(self, state: State) -> Overlay | str:
        """Return the overlay about the row under the cursor: what lies in the segment,
        or the stack that allocated it and its life. Where nothing of it is allocated, a
        sentence says so."""
        if memory_of(state).is_map:
            detail_lines = self._about(state, state.size.width, every=True)
            return OverlayLines(
                "the blocks in this segment", _plain_texts(detail_lines)
            )
        # 6: the borders and the indent of the overlay
        detail_lines = self._about(state, overlay_size(state).width - 6, every=True)
        if not detail_lines:
            return "none of it is allocated at this moment"
        return OverlayLines("where this was allocated", _plain_texts(detail_lines))

    def table(self, state: State, rows: Sequence[int] | None = None) -> Table:
        """Return the list as a table to save: who holds how many bytes at this moment
        (of both snapshots if there are two), or the segments. `rows` selects rows of
        the list; None takes all."""
        if memory_of(state).is_map:
            return self._make_segment_table(place_rectangles(state), rows)
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
        names = [self._name_in_table(state, row) for row in chosen]
        return make_page_table(MEMORY, {"holder": names}, **figures)

    @staticmethod
    def _make_segment_table(placed: PlacedBlocks, rows: Sequence[int] | None) -> Table:
        """Return the segments as a table to save: address, size, used bytes and bytes
        in holes. `rows` selects segments; None takes all."""
        numbers = range(len(placed.segments)) if rows is None else rows
        segments = [placed.segments[number] for number in numbers]
        return make_page_table(
            MEMORY,
            {"address": [f"{segment.address:#x}" for segment in segments]},
            size_bytes=[segment.size for segment in segments],
            used_bytes=[int(placed.used_bytes[number]) for number in numbers],
            hole_bytes=[int(placed.hole_bytes[number]) for number in numbers],
        )

    @staticmethod
    def _name_in_table(state: State, row: MemoryRow) -> str:
        """Return the name of a row in a saved table: of a holder its full name, of a
        stack or allocation its text on the screen."""
        if row.level == 0:
            return row.name
        name: str = pictures().row_text(
            here(state).moments, row, zero=window(state).zero
        )
        return name


def _click_in_area(state: State, x: int, y: int, index: int, size: Size) -> State:
    """Return the state after a click in the curve of snapshot `index`: the cursor is on
    the moment of that cell, and this snapshot is the active one."""
    division = divide_timeline(size.width, size.height)
    column = max(0, min(x - division.gutter, division.width - 1))
    activated_state = replace(state, memory=replace(memory_of(state), active=index))
    return change_view(
        activated_state, at=int(memory.drawn(activated_state, index).events[column])
    )


def _plain_texts(lines: Sequence[Said]) -> tuple[str, ...]:
    """Return the texts of lines, without their styles."""
    return tuple(line.text for line in lines)


def _draw_segment_row(
    placed: PlacedBlocks, glyphs: Glyphs, index: int, width: int
) -> list[Styled]:
    """Return the row of one segment: its size, the share in use, the bytes in holes,
    and a map of its addresses."""
    segment_bytes = placed.segments[index].size
    texts = [
        size(segment_bytes),
        percent(int(placed.used_bytes[index]), segment_bytes),
        size(int(placed.hole_bytes[index])),
        "",
    ]
    *figures, (blank, _) = style_row(SEGMENT_COLUMNS, texts, width)
    cells = pictures().segment_cells(placed, index, len(blank), glyphs)
    return [*figures, *cells]


def _can_open(row: MemoryRow) -> bool:
    """Return whether a row can be opened: a holder into its stacks, a stack into its
    allocations. It cannot where the number of its blocks is unknown."""
    # level 0: a holder, 1: a stack, 2: an allocation
    return row.level < 2 and row.allocations > 0


def place_rectangles(state: State) -> PlacedBlocks:
    """Return the segments of the allocator and the blocks in them, at the moment under
    the cursor."""
    from fusetui.analysis.memory.moments import locate_blocks

    moments, view = here(state)
    return locate_blocks(moments, view.at)


_action = partial(action, section="In the memory page", where=on(MEMORY), needs=nothing)


def turn(state: State) -> State:
    """Open the row under the cursor, or close it. A message says where there is nothing
    below it."""
    row = PAGE.row(state)
    shown = memory_of(state)
    if shown.is_map or row is None or not _can_open(row):
        return told(state, "there is nothing to open below this row")
    open_keys = shown.opened ^ {row.key}
    return replace(state, memory=replace(shown, opened=open_keys), hint="")


PAGE = MemoryPage()
MemoryPage.actions = (
    _action(
        name="memory-in",
        title="Zoom in",
        written="w + =",
        help="around the cursor",
        run=partial(memory.zoom, part=1, of=2),
    ),
    _action(
        name="memory-out",
        title="Zoom out",
        written="s -",
        help="around the cursor",
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
        help="to the previous cell",
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
        help="to the highest visible moment",
        run=memory.go_to_highest,
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
        run=partial(memory.group_by_next_kind, by=1),
    ),
    _action(
        name="memory-by-last",
        title="By the one before",
        written="<",
        help=HOLDER_KINDS,
        run=partial(memory.group_by_next_kind, by=-1),
    ),
    _action(
        name="memory-map",
        title="Segments",
        written="t",
        help="or who holds it",
        run=memory.toggle_map,
    ),
    _action(
        name="memory-device",
        title="Other device",
        written="tab",
        help="or snapshot",
        run=memory.show_next_device,
    ),
)
