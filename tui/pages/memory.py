"""The memory page: what was allocated over time, by a snapshot or a trace, and who held
it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

from msgspec.structs import replace

from fusetui.text.cutting import joined
from fusetui.text.figures import count, percent, plural, signed_size, size
from fusetui.tui.drawing.picture import Rows, Said, no_rows, row_parts, ruled, text
from fusetui.tui.drawing.schemes import Styled, glyphs_for, share_bar
from fusetui.tui.layout.frame import divided
from fusetui.tui.layout.kinds import narrow
from fusetui.tui.layout.memory import (
    MEMORY,
    MemoryRow,
    MemorySide,
    OverlayLines,
    rows_of,
)
from fusetui.tui.layout.text_layout import ListColumn, titles
from fusetui.tui.pages.page import ListPage, Pane, page_table
from fusetui.tui.state import memory
from fusetui.tui.state.action import action, nothing, on
from fusetui.tui.state.memory import here, memory_of, window, with_view
from fusetui.tui.state.replays import WHOLE
from fusetui.tui.state.screen import overlay_size
from fusetui.tui.state.state import Outcome, Overlay, ReadMemory, Size, State, told

if TYPE_CHECKING:
    from fusetui.analysis.memory.moments import Moments, PlacedBlocks
    from fusetui.tables.public import Table

BYS = "code, module, category; op, annotation"
BAR = 10  # cells
# of the lines above the details that areas take, by their number
SHARE = {1: (9, 20), 2: (13, 20)}
NAME = ListColumn("", 0, left=True)
COLUMNS = (
    *(ListColumn("bytes", 10), ListColumn("share", 6)),
    *(
        ListColumn("", BAR, left=True, from_width=70),
        ListColumn("blocks", 7, from_width=60),
        NAME,
    ),
)
SEGMENTS = (
    *(ListColumn("size", 10), ListColumn("in use", 6), ListColumn("holes", 10)),
    ListColumn("each from its first to its last address", 0, left=True),
)
BESIDE = (ListColumn("A", 10), ListColumn("B", 10), ListColumn("B - A", 11), NAME)


def pictures() -> ModuleType:
    """Imported once a snapshot is open."""
    from fusetui.tui.drawing import memory as drawing

    return drawing


def memory_head(side: MemorySide, width: int) -> str:
    """As many parts as fit."""
    parts = [narrow(side.label)]
    for one in side.moments:
        allocated, reserved = one.history.allocated.max(), one.history.reserved.max()
        peak = f"peak {size(int(allocated))} allocated, {size(int(reserved))} reserved"
        parts += [f"{one.title}: {peak}", _events(one)]
    return joined(parts, width)


def _events(moments: Moments) -> str:
    """How many there are, and how far they are from what the file says of their end."""
    number = plural(len(moments.history.events), "event")
    if unrecorded := moments.history.unrecorded:
        return f"{number}, without events {' and '.join(one.name.lower() for one in unrecorded)}"
    difference = abs(moments.history.difference_end_bytes)
    what = "their last total" if moments.is_of_trace else "its blocks"
    return (
        f"{number}, which differ from {what} by {size(difference)}"
        if difference
        else number
    )


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
        shown = state.memory
        of_open = (side.trace is shown.trace for side in state.sides) if shown else ()
        return shown is not None and (shown.trace is None or any(of_open))

    def why_not(self, state: State) -> str:
        return "" if self.has(state) or state.sides else memory.NO_SNAPSHOT

    def ask(self, state: State) -> Outcome | None:
        """Has the memory events of the active trace read, unless they or a snapshot are
        there."""
        shown = state.memory
        if shown is not None and (
            shown.trace is None or shown.trace is state.side.trace
        ):
            return None
        if state.side.trace.report.prefix:
            return told(state, WHOLE)
        path = state.paths[state.active] if state.active < len(state.paths) else ""
        asked = ReadMemory((path,), False, state.side.trace, state.page)
        return told(state, "the memory events of the trace are being read"), asked

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
        *figured, name = COLUMNS if len(shown.sides) == 1 else BESIDE
        columns = *figured, replace(name, title=shown.by)
        whole, zero = int(moments.history.allocated[view.at + 1]), window(state).zero

        def formatted(index: int, width: int) -> list[Styled]:
            row = found[index]
            mark = glyphs.unfolded if row.key in shown.opened else glyphs.folded
            mark = mark if row.level < 2 and row.allocations else glyphs.leaf
            bar = share_bar(row.bytes, whole, BAR, glyphs)
            blocks = count(row.allocations) if row.allocations else ""
            figures = [size(row.bytes), percent(row.bytes, whole), bar, blocks]
            figures = figures if len(shown.sides) == 1 else self._both(state, row)
            name = f"{'  ' * row.level}{mark} {pictures().row_text(moments, row, zero)}"
            return row_parts(columns, [*figures, name], width)

        return Rows(
            (found, columns, zero), len(found), partial(titles, columns), formatted
        )

    def _segments(self, state: State) -> Rows:
        """A line for each segment, by address."""
        found, glyphs = placed(state), glyphs_for(state.ascii_only, state.colorless)
        if not found.segments:
            return no_rows("segments were not recorded")

        def formatted(index: int, width: int) -> list[Styled]:
            one, used = found.segments[index], int(found.used[index])
            figures = (
                size(one.size),
                percent(used, one.size),
                size(int(found.holes[index])),
            )
            *parts, (last, _) = row_parts(SEGMENTS, [*figures, ""], width)
            return [*parts, *pictures().segment_cells(found, index, len(last), glyphs)]

        return Rows(
            (found, glyphs), len(found.segments), partial(titles, SEGMENTS), formatted
        )

    def _both(self, state: State, row: MemoryRow) -> list[str]:
        """Of A and of B, and the difference; of what lies below a holder only its own
        side."""
        other = "" if row.level else size(row.other)
        both = [size(row.bytes), other][:: -1 if memory_of(state).active else 1]
        change = (
            row.bytes - row.other if memory_of(state).active else row.other - row.bytes
        )
        return [*both, "" if row.level else signed_size(change)]

    def found(self, state: State) -> tuple[MemoryRow, ...]:
        shown, (moments, view), other = (
            memory_of(state),
            here(state),
            1 - memory_of(state).active,
        )
        is_alone = len(shown.sides) == 1
        beside = None if is_alone else (shown.moments(other), shown.views[other].at)
        found: tuple[MemoryRow, ...] = rows_of(
            moments, shown.by, view.at, shown.opened, beside
        )
        return found

    def row(self, state: State) -> MemoryRow | None:
        return self.under_cursor(state, self.found(state))

    def above(self, state: State, size: Size) -> Sequence[Pane]:
        sides, (moments, view) = len(memory_of(state).sides), here(state)
        part, of = SHARE[sides]
        lines = max(
            3, (size.height - self._below(size)) * part // of // sides - (sides > 1)
        )
        panes = [
            pane for n in range(sides) for pane in self._side(state, n, lines, size)
        ]
        glyphs = glyphs_for(state.ascii_only, state.colorless)
        panes.append(
            Pane(1, text([pictures().legend(moments, view.at, glyphs, size.width)]))
        )
        why = memory.why_apart(state) if state.sides else ""
        said = [f" its axis of time is its own: {why}"] if why else []
        if moments.is_of_trace and moments.history.difference_end_bytes:
            said.append(f" {_events(moments)}")
        return [*panes, *(Pane(1, text([Said(line)])) for line in said)]

    def _side(self, state: State, index: int, lines: int, size: Size) -> Sequence[Pane]:
        shown, found = memory_of(state), window(state, index)
        moments, at, of = (
            shown.moments(index),
            shown.views[index].at,
            shown.sides[index],
        )
        most = max(
            int(shown.moments(n).history.allocated.max())
            for n in range(len(shown.sides))
        )
        glyphs = glyphs_for(state.ascii_only, state.colorless)
        label = (
            "timeline"
            if found.is_shared
            else "time"
            if len(moments.times)
            else "events"
        )
        picture = pictures().AreaPicture(moments, found, at, most, glyphs, label)
        name = f"{'AB'[index]} {of.label}" if len(shown.sides) == 2 else of.label
        if len(of.moments) > 1 or moments.is_of_trace:
            name += f"   {narrow(moments.title)}"
            name += (
                f" (one of {len(of.moments)} devices)" if len(of.moments) > 1 else ""
            )
        said = pictures().cursor_line(moments, at, found.zero, name, size.width)
        token = "title" if index == shown.active else "faint"

        def pointed(state: State, x: int, y: int) -> State:
            division = divided(size.width, size.height)
            now = replace(state, memory=replace(memory_of(state), active=index))
            column = max(0, min(x - division.gutter, division.width - 1))
            return with_view(now, at=int(memory.drawn(now, index).events[column]))

        return Pane(1, text([Said(said, token)])), Pane(lines, picture, pointed)

    def below(self, state: State, size: Size) -> Sequence[Pane]:
        moments, view = here(state)
        row = None if memory_of(state).is_map else self.row(state)
        identity = (
            moments,
            view.at,
            row,
            state.list_of(MEMORY).cursor,
            window(state).zero,
        )
        rule, height = glyphs_for(state.ascii_only).rule, self._below(size)
        about = ruled(
            identity, "", rule, lambda width, lines: self._about(state, width)[:lines]
        )
        return (Pane(height, about),)

    def _about(self, state: State, width: int, every: bool = False) -> list[Said]:
        """What is said of the segment under the cursor, or of the row and its stack."""
        (moments, _), lines = here(state), list[Said]()
        if memory_of(state).is_map:
            found = placed(state)
            if (
                segment := self.under_cursor(state, range(len(found.segments)))
            ) is not None:
                lines = pictures().about_segment(moments, found, segment, width)
        elif (row := self.row(state)) and row.bytes:
            stack, zero = self._stack(state, row), window(state).zero
            lines = pictures().about(moments, row, stack, zero, width, every)
        return lines

    @staticmethod
    def _below(size: Size) -> int:
        return max(5, min(12, size.height // 4))

    def _stack(self, state: State, row: MemoryRow) -> int:
        """Of a row; of a holder the one that holds most."""
        if row.level:
            return row.stack
        (moments, view), by = here(state), memory_of(state).by
        return int(moments.stacks(by, moments.names.index(row.name), view.at).number[0])

    def chosen(self, state: State, index: int) -> Outcome:
        found = self.described(state)
        return (
            told(state, found)
            if isinstance(found, str)
            else replace(state, overlay=found)
        )

    def described(self, state: State) -> Overlay | str:
        """The stack of the row and the life of an allocation, or what lies in the
        segment."""
        is_map = memory_of(state).is_map
        width = state.size.width if is_map else overlay_size(state).width - 6
        said = tuple(line.text for line in self._about(state, width, every=True))
        if is_map:
            return OverlayLines("what lies in this segment", said)
        nothing = "nothing of it is allocated at this moment"
        return OverlayLines("where this was allocated", said) if said else nothing

    def table(self, state: State, rows: Sequence[int] | None = None) -> Table:
        """Who holds what at the moment, of each snapshot; or the segments."""
        moments, _ = here(state)
        if memory_of(state).is_map:
            there = placed(state)
            segments = range(len(there.segments)) if rows is None else rows
            texts = {"address": [f"{there.segments[n].address:#x}" for n in segments]}
            sizes = [there.segments[n].size for n in segments]
            used, holes = (
                [int(of[n]) for n in segments] for of in (there.used, there.holes)
            )
            return page_table(
                MEMORY, texts, size_bytes=sizes, used_bytes=used, hole_bytes=holes
            )
        found = self.found(state)
        chosen = found if rows is None else [found[row] for row in rows]
        said = partial(pictures().row_text, moments, zero=window(state).zero)
        figures: dict[str, Sequence[int | None]] = {
            "level": [row.level for row in chosen],
            "bytes": [row.bytes for row in chosen],
            "blocks": [row.allocations for row in chosen],
        }
        if len(memory_of(state).sides) == 2:
            figures["other_bytes"] = [
                None if row.level else row.other for row in chosen
            ]
        names = [said(row) if row.level else row.name for row in chosen]
        return page_table(MEMORY, {"holder": names}, **figures)


def placed(state: State) -> PlacedBlocks:
    """The segments of the moment under the cursor."""
    from fusetui.analysis.memory.moments import placed as laid_out

    moments, view = here(state)
    return laid_out(moments, view.at)


_action = partial(action, section="In the memory page", where=on(MEMORY), needs=nothing)
_left, _right = partial(memory.pan, percent=-10), partial(memory.pan, percent=10)
_far_left, _far_right = (
    partial(memory.pan, percent=-90),
    partial(memory.pan, percent=90),
)
_before, _after = partial(memory.beside, by=-1), partial(memory.beside, by=1)


def turn(state: State) -> State:
    row, shown = PAGE.row(state), memory_of(state)
    if shown.is_map or row is None or row.level > 1 or not row.allocations:
        return told(state, "there is nothing to open below this row")
    return replace(
        state, memory=replace(shown, opened=shown.opened ^ {row.key}), hint=""
    )


PAGE = MemoryPage()
MemoryPage.actions = (
    _action(
        "memory-in",
        "Zoom in",
        "w + =",
        "about the cursor",
        lambda s: memory.zoom(s, 1, 2),
    ),
    _action(
        "memory-out",
        "Zoom out",
        "s -",
        "about the cursor",
        lambda s: memory.zoom(s, 2, 1),
    ),
    _action("memory-left", "Pan left", "a h", "a tenth of the window", _left),
    _action("memory-right", "Pan right", "d l", "a tenth of the window", _right),
    _action(
        "memory-screen-left",
        "Screen left",
        "A H shift+left",
        "most of a window",
        _far_left,
    ),
    _action(
        "memory-screen-right",
        "Screen right",
        "D L shift+right",
        "most of one",
        _far_right,
    ),
    _action("memory-whole", "Whole recording", "0", "show everything", memory.whole),
    _action("memory-before", "Cursor left", "left", "to the cell before", _before),
    _action("memory-after", "Cursor right", "right", "to the next cell", _after),
    _action(
        "memory-earlier",
        "Event before",
        ",",
        "exactly one",
        lambda s: memory.step(s, -1),
    ),
    _action(
        "memory-later", "Next event", ".", "exactly one", lambda s: memory.step(s, 1)
    ),
    _action(
        "memory-peak",
        "Highest",
        "p",
        "where most is allocated in sight",
        memory.highest,
    ),
    _action("memory-turn", "Open or close", "space", "stacks, then allocations", turn),
    _action("memory-by", "By another", ">", BYS, lambda s: memory.next_by(s, 1)),
    _action(
        "memory-by-last", "By the one before", "<", BYS, lambda s: memory.next_by(s, -1)
    ),
    _action("memory-map", "Segments", "t", "or who holds it", memory.turn_map),
    _action("memory-device", "Other device", "tab", "or snapshot", memory.next_device),
)
