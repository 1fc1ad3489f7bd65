"""The pictures of the memory page, and the details of its rows."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from fusetui.analysis.memory.categories import CATEGORIES
from fusetui.analysis.memory.evidence import NO_STACK
from fusetui.analysis.memory.history import BEFORE
from fusetui.analysis.memory.layout import COMMON_POOL
from fusetui.report.memory_words import MORE, short_place
from fusetui.text.cutting import joined
from fusetui.text.figures import count, duration, plural, size
from fusetui.timeline.cells import edges
from fusetui.trace.model.arrays import Int64s, summed
from fusetui.trace.model.memo import memo
from fusetui.trace.snapshot.columns import Frame, MemoryAction
from fusetui.tui.drawing.lane_lines import labeled
from fusetui.tui.drawing.picture import Said
from fusetui.tui.drawing.schemes import BAR, Glyphs, Styled
from fusetui.tui.drawing.timeline import LegendEntry, draw_legend_entries
from fusetui.tui.layout.frame import Tick, choose_tick_step, divide_timeline, make_ticks
from fusetui.tui.layout.kinds import narrow
from fusetui.tui.layout.memory import (
    ANY_STACK,
    LETTERS,
    NO_LIFE,
    MemoryRow,
    compute_area,
)
from fusetui.tui.layout.text_layout import wrap_marked_text

if TYPE_CHECKING:
    from fusetui.analysis.memory.layout import Segment
    from fusetui.analysis.memory.moments import Moments, PlacedBlocks
    from fusetui.tui.state.memory import Window

TICK_CELLS = 11
MAX_LISTED = 200  # allocations of a segment
SEGMENT = "A segment is memory that the allocator reserved on the device in one piece."
OF_CPU = "CPU memory: torch counts only what it allocates while recording."


MEANING_OF_HOLDER = {
    "parameters": "the weights of the model",
    "optimizer_state": "what the optimizer keeps from step to step",
    "gradients": "kept until zero_grad or the end of the next step",
    "activations": "kept by the forward pass for the backward pass",
    "temporary": "freed in the same pass or step",
    "workspace": "scratch memory of cuBLAS, cuDNN, NCCL or Triton",
    "graph_pool": "the memory pool of a CUDA graph",
    "before_recording": "allocated before the recording began, so its origin is unknown",
    NO_STACK: "allocated while no stacks were recorded",
    "unknown": "nothing in the file shows what it is for",
}
"""What the categories of memory are, and what has no stack."""


class AreaPicture(msgspec.Struct, frozen=True, eq=False):
    """Categories on top of one another over a ruler; `most` bytes are as high as all
    lines."""

    moments: Moments
    window: Window
    at: int
    most: int
    glyphs: Glyphs
    label: str

    def key(self, y: int, width: int, height: int) -> Hashable:
        """Return everything that line `y` of the chart depends on; it is drawn again
        only if this changes. The cursor is part of it only for the ruler, which is the
        last line."""
        area_key = self.moments, self.window, self.most, self.glyphs, width, height, y
        if y == height - 1:
            return *area_key, self.at, self.label
        return area_key

    def line(self, y: int, width: int, height: int) -> Sequence[Styled]:
        """Return line `y` of the chart of allocated memory over time, as texts with
        their styles.

        Categories of memory are stacked, in the color of the one that fills most of a
        cell. The last line is the ruler; the first has the size that the full height
        stands for.
        """
        division = divide_timeline(width, height)
        area_height = height - 1
        if y == area_height:
            return labeled(self.label, self._ruler(division.width), division.gutter)
        origin = self.window.zero
        area = compute_area(
            self.moments,
            origin + self.window.begin,
            origin + self.window.end,
            division.width,
            area_height,
            self.most,
            self.glyphs.top,
        )
        label = size(self.most) if y == 0 else ""
        cells = draw_cells(area.levels[y], area.categories[y], self.glyphs)
        return labeled(label.rjust(division.gutter - 1), cells, division.gutter)

    def _ruler(self, width: int) -> list[Styled]:
        """Draw the ruler below the chart: times (or numbers of events), the cursor, and
        a mark where an allocation failed."""
        window_length = self.window.end - self.window.begin
        mark_at_column: dict[int, Styled] = {}
        for position, mark in self._list_ruler_marks():
            column = (position - self.window.begin) * width // window_length
            column_in_sight = max(0, min(column, width - 1))
            mark_at_column[column_in_sight] = mark

        cells: list[Styled] = [(" ", "faint")] * width
        for tick in self._make_ticks(width):
            text_cells = range(tick.column, tick.column + len(tick.text))
            meets_mark = any(column in text_cells for column in mark_at_column)
            if meets_mark or text_cells.stop >= width:
                continue  # half a label would be misread
            for column, char in zip(text_cells, tick.text, strict=True):
                cells[column] = (char, "faint")
        for column, mark in mark_at_column.items():
            cells[column] = mark
        return cells

    def _make_ticks(self, width: int) -> list[Tick]:
        """Return the labels of the ruler with their columns. They are times, or numbers
        of events in a snapshot without times."""
        begin = self.window.begin
        end = self.window.end
        if len(self.moments.times):
            return make_ticks(begin, end, width, TICK_CELLS)
        step = choose_tick_step(end - begin, width // TICK_CELLS)
        steps_before_window = -(-begin // step)  # rounded up
        first_number = steps_before_window * step
        ticks = []
        for number in range(first_number, end, step):
            column = (number - begin) * width // (end - begin)
            ticks.append(Tick(column, f"#{count(number)}"))
        return ticks

    def _list_ruler_marks(self) -> Iterator[tuple[int, Styled]]:
        """Generate the marks on the ruler, as pairs of a position and a character with
        its style.

        First come the failed allocations (out of memory) in the window. The cursor is
        last, so that it is drawn over them; it is left out if it is outside of the
        window.
        """
        window = self.window
        in_window = range(window.begin, window.end)
        for failure in _find_failures(self.moments):
            if failure - window.zero in in_window:
                yield failure - window.zero, ("!", "bad")
        cursor = self.moments.find_position(self.at) - window.zero
        next_event = self.moments.find_position(self.at + 1) - window.zero
        # no event lies between this cursor and the window, which begins with its memory
        is_before_first_event = cursor < window.begin <= next_event
        if cursor in in_window or is_before_first_event:
            yield cursor, (self.glyphs.selected_cell, "selection")


@memo()
def _find_failures(moments: Moments) -> list[int]:
    """Return the positions on the time axis of all allocations that failed because
    memory ran out."""
    return [*moments.positions[moments.history.failures].tolist()]


def draw_cells(
    levels: Sequence[int], categories: Sequence[int], glyphs: Glyphs
) -> list[Styled]:
    """Draw a line of cells, as texts with their styles.

    Each cell is filled up to its level, from 0 (empty) to `glyphs.top`, in the color of
    its category. In colorless terminals, cells that are more than half full show the
    letter of the category. `categories` are indices into CATEGORIES, one for each cell.
    """
    parts: list[Styled] = []
    for (level, category), group in groupby(zip(levels, categories, strict=True)):
        cell = glyphs.levels[level]
        if glyphs.letters and 2 * level > glyphs.top:
            cell = LETTERS[category]
        token = _name_category_style(category) if level else "plain"
        parts.append((cell * len([*group]), token))
    return parts


def _name_category_style(category: int) -> str:
    """Return the name of the style for a category of memory, given its index in
    CATEGORIES."""
    return f"memory.{CATEGORIES[category]}{BAR}"


def when(moments: Moments, event: int, zero: int) -> str:
    """Return when an event of the memory allocator happened, such as `12.5 ms` after
    the time `zero`.

    In a snapshot without times it is the number of the event, such as `event 12`.
    BEFORE stands for the state before the first event. In a snapshot without events
    that is also its end.
    """
    if event == BEFORE:
        return "before the first event" if len(moments.history.events) else "at the end"
    if not len(moments.times):
        return f"event {count(event)}"
    return duration(int(moments.times[event]) - zero)


def cursor_line(moments: Moments, event: int, zero: int, name: str, width: int) -> str:
    """Return what is allocated after an event, and what the event did, in one line of
    `width` cells.

    Args:
        moments: The state of memory after each event of a snapshot or trace.
        event: The index of the event under the cursor, or BEFORE.
        zero: The time from which times are counted, in ns.
        name: The name of the snapshot, which comes first.
        width: The cells of the line; parts that do not fit are left out.
    """
    history = moments.history
    allocated = int(history.allocated[event + 1])
    reserved = int(history.reserved[event + 1])
    parts = [narrow(name), f"{plural(allocated, 'byte')} allocated"]
    if len(moments.times) or event == BEFORE:
        parts.append(when(moments, event, zero))
    if reserved > 0:
        parts.append(f"{size(reserved)} reserved")
    if event != BEFORE:
        bytes_text = size(int(history.events.size[event]))
        action = _name_action(moments, event)
        parts.append(f"event {count(event)}: {action} {bytes_text}")
    return f" {joined(parts, width - 2)}"


def _name_action(moments: Moments, event: int) -> str:
    """Return the name of what an allocator event did. Traces only distinguish `alloc`
    and `free`, so only the first word of the name is used for them."""
    name = MemoryAction(int(moments.history.events.action[event])).name.lower()
    return name.partition("_")[0] if moments.is_of_trace else name


def legend(
    moments: Moments, window: Window, event: int, glyphs: Glyphs, width: int
) -> list[Styled]:
    """Draw the legend of the chart: each category of memory with its color and its size
    after an event.

    Categories are ordered by their peak within the window, so that the order does not
    change while the cursor moves. Those that are never used there are left out.
    """
    begin = window.zero + window.begin
    most_in_picture = moments.find_most_of_categories(begin, window.zero + window.end)
    amounts = moments.sum_by_category(np.array([event]))[:, 0].tolist()
    entries = []
    for category in _sort_categories(most_in_picture):
        amount = amounts[category]
        swatch = LETTERS[category] if glyphs.letters else glyphs.swatch
        entries.append(
            LegendEntry(
                mark=(swatch, _name_category_style(category)),
                name=f"{short_place(CATEGORIES[category])} {size(amount)}",
                amount=amount,
            )
        )
    return draw_legend_entries(entries, width - 2, " ")


def _sort_categories(amounts: Sequence[int]) -> list[int]:
    """Return the indices of the categories that are not empty, the largest first.
    `amounts` are the bytes of each category."""
    used_categories = [number for number, amount in enumerate(amounts) if amount]
    return sorted(used_categories, key=lambda number: -amounts[number])


def row_text(moments: Moments, row: MemoryRow, zero: int) -> str:
    """Return the text of a row in the list of memory: the name of a holder, the Python
    frames of a stack, or the lifetime of an allocation.

    A holder is what memory is grouped by, such as a line of code or a category. `zero`
    is the time from which times are counted, in ns.
    """
    if row.level == 0:
        return short_place(row.name)
    if row.life != NO_LIFE:
        return describe_lifetime(moments, row.life, zero)
    if moments.is_of_trace:
        return short_place(moments.describe_stack(row.stack) or row.name)
    frames = moments.list_frames(row.stack)
    shown_frames = _filter_python_frames(frames) or frames
    frame_places = [_format_frame(frame).rpartition("/")[2] for frame in shown_frames]
    return " < ".join(frame_places) or NO_STACK


def describe_lifetime(moments: Moments, life: int, zero: int) -> str:
    """Return when an allocation was made and freed, and how long it lasted.

    The duration is left out if one of both ends is not recorded. `life` is the index of
    the allocation. Times are counted from `zero`, in ns.
    """
    lives = moments.history.allocations
    allocated_at = int(lives.allocated_at[life])
    freed_at = int(lives.freed_at[life])
    if allocated_at == BEFORE:
        begin = "allocated before the recording"
    else:
        begin = f"from {when(moments, allocated_at, zero)}"
    if freed_at >= lives.events:
        return f"{begin}, still there at the end"
    text = f"{begin} to {when(moments, freed_at, zero)}"
    if len(moments.times) and allocated_at != BEFORE:
        lasted_ns = int(moments.times[freed_at] - moments.times[allocated_at])
        text += f", for {duration(lasted_ns)}"
    return text


def segment_cells(
    placed: PlacedBlocks, segment: int, width: int, glyphs: Glyphs
) -> list[Styled]:
    """Draw a segment of device memory over `width` cells, from its first address to its
    last.

    A segment is a range that the allocator got from the device. Each cell is filled by
    the part of its addresses that is in use, in the color of the category with the most
    bytes there.
    """
    segment_range = placed.segments[segment]
    borders = edges(
        segment_range.address, segment_range.address + segment_range.size, width
    )
    bytes_of_category = placed.sum_by_category(segment, borders)  # [categories, cells]
    used_bytes = bytes_of_category.sum(axis=0)
    cell_bytes = np.maximum(np.diff(borders), 1)
    fill_levels = np.ceil(used_bytes / cell_bytes * glyphs.top)
    fill_levels = np.minimum(fill_levels, glyphs.top).astype(np.int64)
    main_category = bytes_of_category.argmax(axis=0)
    return draw_cells(fill_levels.tolist(), main_category.tolist(), glyphs)


def about_segment(
    moments: Moments, placed: PlacedBlocks, segment: int, width: int
) -> list[Said]:
    """Return lines that describe a segment of device memory: its use by category, its
    holes, and the allocations in it.

    A segment is a range that the allocator got from the device. The largest allocations
    come first, at most MAX_LISTED of them.
    """
    rows, kinds = placed.list_blocks(segment)
    bytes_of_row = moments.history.occupied.size[rows]
    heading = wrap_marked_text(_describe_segment_use(placed, segment), width - 2)
    lines = [Said(f" {line}", "plain") for line in heading]
    lines.append(Said(f" {joined(_sum_by_category(kinds, bytes_of_row), width - 2)}"))
    lines += [Said(f" {line}") for line in wrap_marked_text(SEGMENT, width - 2)]
    by_size = np.argsort(-bytes_of_row, kind="stable")
    address = placed.segments[segment].address
    for row in rows[by_size][:MAX_LISTED].tolist():
        lines.append(Said(_describe_placed_allocation(moments, row, address)))
    return lines


def _describe_segment_use(placed: PlacedBlocks, segment: int) -> str:
    """Return one line about a segment: what it is, how many bytes and allocations are
    in use, and its holes."""
    rows = placed.list_blocks(segment).rows
    used_bytes = size(int(placed.used_bytes[segment]))
    use_text = f"{used_bytes} in {plural(len(rows), 'allocation')}"
    segment_text = _format_segment(placed.segments[segment])
    return f"{segment_text}: {use_text}, {_describe_holes(placed, segment)}"


def _sum_by_category(kinds: Int64s, bytes_of_row: Int64s) -> list[str]:
    """Return the bytes that allocations take in each category as texts, the largest
    first. `kinds` is the index of the category of each allocation, and `bytes_of_row`
    its size."""
    amounts = summed(kinds, bytes_of_row, len(CATEGORIES)).tolist()
    texts = []
    for number in _sort_categories(amounts):
        category = short_place(CATEGORIES[number])
        texts.append(f"{category} {size(amounts[number])}")
    return texts


def _describe_placed_allocation(moments: Moments, row: int, base: int) -> str:
    """Return the size of an allocation, its offset from the address `base` of its
    segment, and the code that allocated it. `row` is its index among the occupied
    addresses."""
    occupied = moments.history.occupied
    offset = int(occupied.address[row]) - base
    place = short_place(moments.describe_stack(int(occupied.stack[row])) or NO_STACK)
    bytes_text = size(int(occupied.size[row]))
    return f"   {bytes_text} at +{size(offset)}: {place}"


def _format_segment(segment: Segment) -> str:
    """Return the size, address, kind, stream and memory pool of a segment."""
    if segment.is_expandable:
        kind = "expandable"
    elif segment.is_large:
        kind = "large"
    else:
        kind = "small"
    pool = "" if segment.pool == COMMON_POOL else ", in a pool of its own"
    place = f"{size(segment.size)} at {segment.address:#x}"
    return f"{place}, {kind}, stream {segment.stream}{pool}"


def _describe_holes(placed: PlacedBlocks, segment: int) -> str:
    """Return the number of unused ranges in a segment, their total size, and the size
    of the largest."""
    sizes = placed.placement.size[placed.placement.segment == segment]
    if not len(sizes):
        return "no holes"
    total = size(int(sizes.sum()))
    text = f"{plural(len(sizes), 'hole')} of {total}"
    if len(sizes) > 1:
        text += f", the largest {size(int(sizes.max()))}"
    return text


def about(
    moments: Moments,
    row: MemoryRow,
    stack: int,
    zero: int,
    width: int,
    every: bool = False,
) -> list[Said]:
    """Return lines that describe a row of the list of memory, with the frames of its
    stack, the innermost first.

    Memory events of a trace have no stacks. For them the lines explain what a snapshot
    would add.

    Args:
        moments: The state of memory after each event of a snapshot or trace.
        row: A holder of memory (such as a line of code), one of its stacks, or an
            allocation.
        stack: The stack whose frames are shown; ANY_STACK for none.
        zero: The time from which times are counted, in ns.
        width: The cells of a line.
        every: Whether to add the frames of C++, and to show paths in full.
    """
    frames = moments.list_frames(stack) if stack != ANY_STACK else ()
    is_allocation = row.life != NO_LIFE
    if is_allocation:
        texts = _describe_allocation(moments, row.life, zero)
        lines = [Said(f" {line}", "plain") for line in texts]
    else:
        lines = _describe_holder(moments, row, has_frames=bool(frames), width=width)
    if not moments.is_of_trace:
        return [*lines, *_list_frames(frames, every)]
    # the short text about an allocation has no room for it
    if every or not is_allocation:
        lines += _explain_snapshots(moments, width)
    return lines


def _list_frames(frames: Sequence[Frame], every: bool) -> list[Said]:
    """Return a line for each Python frame of a stack, or for each frame of a stack of
    C++ alone. `every` shows paths in full, and adds the whole stack below if it has
    frames of both."""
    python_frames = _filter_python_frames(frames)
    shorten = narrow if every else short_place
    lines = []
    for frame in python_frames or frames:
        lines.append(Said(f"   {shorten(_format_frame(frame))}"))
    has_both = 0 < len(python_frames) < len(frames)
    if every and has_both:
        lines += [Said(""), Said(" with the frames of C++:", "plain")]
        lines += [Said(f"   {_format_frame(frame)}") for frame in frames]
    return lines


def _describe_holder(
    moments: Moments, row: MemoryRow, has_frames: bool, width: int
) -> list[Said]:
    """Return the bytes and blocks of a holder of memory (such as a line of code) or of
    one of its stacks, what it is if its name does not say so, and a title for its
    frames, if any."""
    is_stack = row.level > 0
    blocks = f" in {plural(row.allocations, 'block')}" if row.allocations else ""
    name = narrow(_format_holder_name(moments, row))
    heading = f" {size(row.bytes)}{blocks}: {name}"
    meaning = "" if is_stack else MEANING_OF_HOLDER.get(row.name, "")
    with_meaning = f"{heading} ({meaning})"
    if not meaning:
        lines = [Said(heading, "plain")]
    elif len(with_meaning) < width:
        lines = [Said(with_meaning, "plain")]
    else:
        lines = [Said(heading, "plain"), Said(f" ({meaning})")]
    if has_frames:
        which = "its stack" if is_stack else "its largest stack"
        lines.append(Said(f" {which}, innermost first:"))
    return lines


def _explain_snapshots(moments: Moments, width: int) -> list[Said]:
    """Return lines that tell which facts a memory snapshot has and the memory events of
    a trace lack."""
    text = OF_CPU if moments.title.startswith("CPU") else MORE
    return [Said(f" {line}") for line in wrap_marked_text(text, width - 2)]


def _is_python(frame: Frame) -> bool:
    return frame.file.endswith(".py")


def _filter_python_frames(frames: Sequence[Frame]) -> list[Frame]:
    """Return the frames of a stack that are Python code."""
    return [frame for frame in frames if _is_python(frame)]


def _format_holder_name(moments: Moments, row: MemoryRow) -> str:
    """Return the name of a holder or stack of memory. For a stack in a trace it is the
    op, and the holder it belongs to. It may contain characters that must not be
    printed."""
    if moments.is_of_trace and row.level:
        return f"{moments.describe_stack(row.stack)} in {row.name}"
    return short_place(row.name) if row.name in CATEGORIES else row.name


def _format_frame(frame: Frame) -> str:
    """Return the file, line and function of a Python frame. For a frame of C++, which
    has no useful file, it is the function alone."""
    if _is_python(frame):
        return narrow(f"{frame.file}:{frame.line} {frame.name}")
    return narrow(frame.name)


def _describe_allocation(moments: Moments, life: int, zero: int) -> Iterator[str]:
    """Generate lines about an allocation: its size and address, its lifetime, and the
    code that freed it. The last line is missing if it was never freed."""
    history = moments.history
    lives = history.allocations
    if moments.is_of_trace:
        kind = moments.describe_stack(int(lives.stack[life]))
    else:
        kind = CATEGORIES[int(moments.category_numbers[life])]
    bytes_ = int(lives.size[life])
    bytes_text = f"{size(bytes_)} ({plural(bytes_, 'byte')})"
    address = f"at {int(lives.address[life]):#x}"
    yield f"{bytes_text} {address}, {short_place(kind)}"
    yield describe_lifetime(moments, life, zero)
    freed_at = int(lives.freed_at[life])
    if freed_at >= lives.events:  # it was never freed
        return
    place = moments.describe_stack(int(history.events.stack[freed_at]))
    if place:
        yield f"freed in {short_place(place)}"
    else:
        yield "freed where no stack was recorded"
