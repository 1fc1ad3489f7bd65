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
from fusetui.tui.drawing.timeline import LegendEntry, legend_parts
from fusetui.tui.layout.frame import Tick, divided, tick_step, ticks
from fusetui.tui.layout.kinds import narrow
from fusetui.tui.layout.memory import ANY_STACK, LETTERS, NO_LIFE, MemoryRow, heights
from fusetui.tui.layout.text_layout import wrapped

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
        """What a line depends on; only the ruler, the last line, shows the cursor."""
        area = self.moments, self.window, self.most, self.glyphs, width, height, y
        if y == height - 1:
            return *area, self.at, self.label
        return area

    def line(self, y: int, width: int, height: int) -> Sequence[Styled]:
        """Line `y` of the area; the last line is the ruler."""
        division = divided(width, height)
        area_height = height - 1
        if y == area_height:
            return labeled(self.label, self._ruler(division.width), division.gutter)
        zero = self.window.zero
        area = heights(
            self.moments,
            zero + self.window.begin,
            zero + self.window.end,
            division.width,
            area_height,
            self.most,
            self.glyphs.top,
        )
        label = size(self.most) if y == 0 else ""
        cells = cell_parts(area.levels[y], area.categories[y], self.glyphs)
        return labeled(label.rjust(division.gutter - 1), cells, division.gutter)

    def _ruler(self, width: int) -> list[Styled]:
        """Times, or numbers of events, under the cursor and where memory ran out."""
        span = self.window.end - self.window.begin
        marks: dict[int, Styled] = {}  # by column
        for position, mark in self._ruler_marks():
            column = (position - self.window.begin) * width // span
            # one out of sight is at the edge
            marks[max(0, min(column, width - 1))] = mark

        cells: list[Styled] = [(" ", "faint")] * width
        for tick in self._ticks(width):
            text_cells = range(tick.column, tick.column + len(tick.text))
            is_hidden = any(column in text_cells for column in marks)
            if text_cells.stop < width and not is_hidden:
                cells[text_cells.start : text_cells.stop] = [
                    (char, "faint") for char in tick.text
                ]
        for column, mark in marks.items():
            cells[column] = mark
        return cells

    def _ticks(self, width: int) -> list[Tick]:
        """The ticks of the ruler: times, or numbers of events where the file has no
        times."""
        begin = self.window.begin
        end = self.window.end
        if len(self.moments.times):
            return ticks(begin, end, width, TICK_CELLS)
        step = tick_step(end - begin, width // TICK_CELLS)
        first = -(-begin // step) * step  # the first multiple of the step in the window
        return [
            Tick((number - begin) * width // (end - begin), f"#{count(number)}")
            for number in range(first, end, step)
        ]

    def _ruler_marks(self) -> Iterator[tuple[int, Styled]]:
        """(position from zero, mark) of the moments in the window at which memory ran
        out, then of the cursor, which hides others."""
        window = self.window
        in_window = range(window.begin, window.end)
        for failure in _failures(self.moments):
            if failure - window.zero in in_window:
                yield failure - window.zero, ("!", "bad")
        cursor = self.moments.position(self.at) - window.zero
        next_event = self.moments.position(self.at + 1) - window.zero
        is_before_first_event = cursor < window.begin <= next_event
        if cursor in in_window or is_before_first_event:
            yield cursor, (self.glyphs.selected_cell, "selection")


@memo()
def _failures(moments: Moments) -> list[int]:
    """The positions of the events at which memory ran out."""
    return [*moments.positions[moments.history.failures].tolist()]


def cell_parts(
    levels: Sequence[int], categories: Sequence[int], glyphs: Glyphs
) -> list[Styled]:
    """A line of cells: each as full as its level, from 0 to `glyphs.top`, in the color
    of its category (by number)."""
    parts: list[Styled] = []
    for (level, category), group in groupby(zip(levels, categories, strict=True)):
        cell = glyphs.levels[level]
        if glyphs.letters and 2 * level > glyphs.top:
            cell = LETTERS[category]
        token = _category_token(category) if level else "plain"
        parts.append((cell * len([*group]), token))
    return parts


def _category_token(category: int) -> str:
    """The token of the color of a category, by its number."""
    return f"memory.{CATEGORIES[category]}{BAR}"


def when(moments: Moments, event: int, zero: int) -> str:
    """`12.5 ms`, counted as on the ruler; `event 12` where the file has no times."""
    if event == BEFORE:
        return "before the first event" if len(moments.history.events) else "at the end"
    if not len(moments.times):
        return f"event {count(event)}"
    return duration(int(moments.times[event]) - zero)


def cursor_line(moments: Moments, event: int, zero: int, name: str, width: int) -> str:
    """What is allocated after an event, to the byte, and what the event is, in `width`
    cells. `name` stands first; times count from `zero`."""
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
        action = _action(moments, event)
        parts.append(f"event {count(event)}: {action} {bytes_text}")
    return f" {joined(parts, width - 2)}"


def _action(moments: Moments, event: int) -> str:
    """What an event did; of a trace only the first word, `alloc` or `free`."""
    name = MemoryAction(int(moments.history.events.action[event])).name.lower()
    return name.partition("_")[0] if moments.is_of_trace else name


def legend(
    moments: Moments, window: Window, event: int, glyphs: Glyphs, width: int
) -> list[Styled]:
    """The categories of the picture, those that are largest anywhere in it first, each
    with what is allocated after an event."""
    begin = window.zero + window.begin
    most_in_picture = moments.most_of_categories(begin, window.zero + window.end)
    amounts = moments.by_category(np.array([event]))[:, 0].tolist()
    entries = []
    for category in _by_amount(most_in_picture):
        amount = amounts[category]
        mark = LETTERS[category] if glyphs.letters else glyphs.swatch
        entries.append(
            LegendEntry(
                mark=(mark, _category_token(category)),
                name=f"{short_place(CATEGORIES[category])} {size(amount)}",
                amount=amount,
            )
        )
    return legend_parts(entries, width - 2, " ")


def _by_amount(amounts: Sequence[int]) -> list[int]:
    """The numbers of the categories of which there is any, the largest first;
    `amounts`: bytes of each category."""
    present = [number for number, amount in enumerate(amounts) if amount]
    return sorted(present, key=lambda number: -amounts[number])


def row_text(moments: Moments, row: MemoryRow, zero: int) -> str:
    """What a row of the list is called: a holder by its name, a stack by its Python
    frames, an allocation by when it was made and freed (times count from `zero`)."""
    if row.level == 0:
        return short_place(row.name)
    if row.life != NO_LIFE:
        return life_text(moments, row.life, zero)
    if moments.is_of_trace:
        return short_place(moments.place_of(row.stack) or row.name)
    frames = moments.frames(row.stack)
    shown = _python(frames) or frames
    places = [_place(frame).rpartition("/")[2] for frame in shown]
    return " < ".join(places) or NO_STACK


def life_text(moments: Moments, life: int, zero: int) -> str:
    """When an allocation was made and freed, and how long it lasted where both are
    recorded; times count from `zero`."""
    lives = moments.history.allocations
    born = int(lives.born[life])
    died = int(lives.died[life])
    if born == BEFORE:
        begin = "allocated before the recording"
    else:
        begin = f"from {when(moments, born, zero)}"
    if died >= lives.events:
        return f"{begin}, still there at the end"
    text = f"{begin} to {when(moments, died, zero)}"
    if len(moments.times) and born != BEFORE:
        lasted_ns = int(moments.times[died] - moments.times[born])
        text += f", for {duration(lasted_ns)}"
    return text


def segment_cells(
    placed: PlacedBlocks, segment: int, width: int, glyphs: Glyphs
) -> list[Styled]:
    """A segment from its first to its last address over `width` cells. Each cell is as
    high as its used part, in the color of the category that has most of it."""
    memory = placed.segments[segment]
    borders = edges(memory.address, memory.address + memory.size, width)
    bytes_of_category = placed.by_category(segment, borders)  # [categories, cells]
    used_bytes = bytes_of_category.sum(axis=0)
    cell_bytes = np.maximum(np.diff(borders), 1)
    level = np.ceil(used_bytes / cell_bytes * glyphs.top)
    level = np.minimum(level, glyphs.top).astype(np.int64)
    category = bytes_of_category.argmax(axis=0)
    return cell_parts(level.tolist(), category.tolist(), glyphs)


def about_segment(
    moments: Moments, placed: PlacedBlocks, segment: int, width: int
) -> list[Said]:
    """What is in a segment by category, its holes, and what lies in it, the largest
    first."""
    rows, kinds = placed.inside(segment)
    bytes_of_row = moments.history.occupied.size[rows]
    heading = wrapped(_segment_heading(placed, segment), width - 2)
    lines = [Said(f" {line}", "plain") for line in heading]
    lines.append(Said(f" {joined(_category_texts(kinds, bytes_of_row), width - 2)}"))
    lines += [Said(f" {line}") for line in wrapped(SEGMENT, width - 2)]
    by_size = np.argsort(-bytes_of_row, kind="stable")
    address = placed.segments[segment].address
    for row in rows[by_size][:MAX_LISTED].tolist():
        lines.append(Said(_placed_text(moments, row, address)))
    return lines


def _segment_heading(placed: PlacedBlocks, segment: int) -> str:
    """A segment, how much of it is used by how many allocations, and its holes."""
    rows, _ = placed.inside(segment)
    used_bytes = size(int(placed.used[segment]))
    used = f"{used_bytes} in {plural(len(rows), 'allocation')}"
    segment_text = _segment_text(placed.segments[segment])
    return f"{segment_text}: {used}, {_holes_text(placed, segment)}"


def _category_texts(kinds: Int64s, bytes_of_row: Int64s) -> list[str]:
    """How much some allocations take by category, the largest first; `kinds`: the
    number of the category of each."""
    amounts = summed(kinds, bytes_of_row, len(CATEGORIES)).tolist()
    texts = []
    for number in _by_amount(amounts):
        category = short_place(CATEGORIES[number])
        texts.append(f"{category} {size(amounts[number])}")
    return texts


def _placed_text(moments: Moments, row: int, base: int) -> str:
    """The size of a life that occupies memory, where it lies after the address `base`,
    and where it was allocated."""
    occupied = moments.history.occupied
    offset = int(occupied.address[row]) - base
    place = short_place(moments.place_of(int(occupied.stack[row])) or NO_STACK)
    bytes_text = size(int(occupied.size[row]))
    return f"   {bytes_text} at +{size(offset)}: {place}"


def _segment_text(segment: Segment) -> str:
    """The size, address, kind, stream and pool of a segment."""
    if segment.is_expandable:
        kind = "expandable"
    elif segment.is_large:
        kind = "large"
    else:
        kind = "small"
    pool = "" if segment.pool == COMMON_POOL else ", in a pool of its own"
    place = f"{size(segment.size)} at {segment.address:#x}"
    return f"{place}, {kind}, stream {segment.stream}{pool}"


def _holes_text(placed: PlacedBlocks, segment: int) -> str:
    """How many holes a segment has, and their sizes."""
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
    """Lines about a row of the list and the frames of its stack, innermost first; those
    of C++ too if `every`. Of a trace, which has no stacks, what a snapshot would
    add."""
    frames = moments.frames(stack) if stack != ANY_STACK else ()
    is_life = row.life != NO_LIFE
    if is_life:
        lines = [Said(f" {line}", "plain") for line in _life(moments, row.life, zero)]
    else:
        lines = _holder_lines(moments, row, has_frames=bool(frames), width=width)
    if moments.is_of_trace:
        if every or not is_life:
            lines += _what_a_snapshot_adds(moments, width)
        return lines
    python = _python(frames)
    shorten = narrow if every else short_place
    for frame in python or frames:
        lines.append(Said(f"   {shorten(_place(frame))}"))
    if every and python and len(python) < len(frames):
        lines += [Said(""), Said(" with the frames of C++:", "plain")]
        lines += [Said(f"   {_place(frame)}") for frame in frames]
    return lines


def _holder_lines(
    moments: Moments, row: MemoryRow, has_frames: bool, width: int
) -> list[Said]:
    """The bytes and blocks of a holder or a stack, what it is if its name does not say
    so, and a title for its frames, if any."""
    blocks = f" in {plural(row.allocations, 'block')}" if row.allocations else ""
    name = narrow(_name(moments, row))
    heading = f" {size(row.bytes)}{blocks}: {name}"
    lines = [Said(heading, "plain")]
    meaning = MEANING_OF_HOLDER.get(row.name, "") if row.level == 0 else ""
    if meaning and len(f"{heading} ({meaning})") < width:
        lines = [Said(f"{heading} ({meaning})", "plain")]
    elif meaning:
        lines.append(Said(f" ({meaning})"))
    if has_frames:
        which = "its stack" if row.level else "its largest stack"
        lines.append(Said(f" {which}, innermost first:"))
    return lines


def _what_a_snapshot_adds(moments: Moments, width: int) -> list[Said]:
    """What the memory events of a trace do not say, on lines of `width` cells."""
    text = OF_CPU if moments.title.startswith("CPU") else MORE
    return [Said(f" {line}") for line in wrapped(text, width - 2)]


def _is_python(frame: Frame) -> bool:
    return frame.file.endswith(".py")


def _python(frames: Sequence[Frame]) -> list[Frame]:
    return [frame for frame in frames if frame.file.endswith(".py")]


def _name(moments: Moments, row: MemoryRow) -> str:
    """The name of a holder or a stack, which may need characters replaced."""
    if moments.is_of_trace and row.level:
        return f"{moments.place_of(row.stack)} in {row.name}"
    return short_place(row.name) if row.name in CATEGORIES else row.name


def _place(frame: Frame) -> str:
    """The file, line and function of a frame of Python; of others the function alone."""
    if _is_python(frame):
        return narrow(f"{frame.file}:{frame.line} {frame.name}")
    return narrow(frame.name)


def _life(moments: Moments, life: int, zero: int) -> Iterator[str]:
    """Lines about an allocation: its size and address, how long it lived, and where it
    was freed."""
    history = moments.history
    lives = history.allocations
    if moments.is_of_trace:
        kind = moments.place_of(int(lives.stack[life]))
    else:
        kind = CATEGORIES[int(moments.kinds[life])]
    bytes_ = int(lives.size[life])
    bytes_text = f"{size(bytes_)} ({plural(bytes_, 'byte')})"
    address = f"at {int(lives.address[life]):#x}"
    yield f"{bytes_text} {address}, {short_place(kind)}"
    yield life_text(moments, life, zero)
    died = int(lives.died[life])
    if died >= lives.events:  # it was never freed
        return
    place = moments.place_of(int(history.events.stack[died]))
    if place:
        yield f"freed in {short_place(place)}"
    else:
        yield "freed where no stack was recorded"
