"""The pictures of the memory page, and what is said of its rows."""

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
from fusetui.trace.model.arrays import summed
from fusetui.trace.model.memo import memo
from fusetui.trace.snapshot.columns import Frame, MemoryAction
from fusetui.tui.drawing.lane_lines import labeled
from fusetui.tui.drawing.picture import Said
from fusetui.tui.drawing.schemes import BAR, Glyphs, Styled
from fusetui.tui.drawing.timeline import legend_parts
from fusetui.tui.layout.frame import divided, tick_step, ticks
from fusetui.tui.layout.kinds import narrow
from fusetui.tui.layout.memory import ANY_STACK, LETTERS, NO_LIFE, MemoryRow, heights
from fusetui.tui.layout.text_layout import wrapped

if TYPE_CHECKING:
    from fusetui.analysis.memory.moments import Moments, PlacedBlocks
    from fusetui.tui.state.memory import Window

LABEL = 11  # cells that a tick takes
MOST_LISTED = 200  # allocations of a segment
OF_CPU = "CPU memory: torch counts only what it allocates while recording."


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
        fixed = self.moments, self.window, self.most, self.glyphs, width, height, y
        return (*fixed, self.at, self.label) if y == height - 1 else fixed

    def line(self, y: int, width: int, height: int) -> Sequence[Styled]:
        division, lines, glyphs = divided(width, height), height - 1, self.glyphs
        if y == lines:
            return labeled(self.label, self._ruler(division.width), division.gutter)
        zero, begin, end, _ = self.window
        cells = division.width, lines, self.most, glyphs.top
        level, kind = heights(self.moments, zero + begin, zero + end, *cells)
        label = (size(self.most) if y == 0 else "").rjust(division.gutter - 1)
        return labeled(label, cell_parts(level[y], kind[y], glyphs), division.gutter)

    def _ruler(self, width: int) -> list[Styled]:
        """Times, or numbers of events, under the cursor and where memory ran out."""
        zero, begin, end, _ = self.window
        cells: list[Styled] = [(" ", "faint")] * width
        if len(self.moments.times):
            marked = ticks(begin, end, width, LABEL)
        else:
            step = tick_step(end - begin, width // LABEL)
            numbers = range(-(-begin // step) * step, end, step)
            marked = [
                ((n - begin) * width // (end - begin), f"#{count(n)}") for n in numbers
            ]
        for column, label in marked:
            if column + len(label) < width:
                cells[column : column + len(label)] = (
                    (char, "faint") for char in label
                )
        here, after = (
            self.moments.position(event) - zero for event in (self.at, self.at + 1)
        )
        failed = [place - zero for place in _failures(self.moments)]
        marks = [(place, ("!", "bad")) for place in failed if begin <= place < end]
        # what it was when the window began
        if begin <= here < end or here < begin <= after:
            marks.append((here, (self.glyphs.selected_cell, "selection")))
        for place, mark in marks:  # one out of sight is at the edge
            cells[max(0, min((place - begin) * width // (end - begin), width - 1))] = (
                mark
            )
        return cells


@memo()
def _failures(moments: Moments) -> list[int]:
    return [*moments.positions[moments.history.failures].tolist()]


def cell_parts(
    levels: Sequence[int], kinds: Sequence[int], glyphs: Glyphs
) -> list[Styled]:
    """Cells of which each is so full, in the colors of these categories."""
    parts: list[Styled] = []
    for (level, kind), group in groupby(zip(levels, kinds, strict=True)):
        cell = glyphs.levels[level]
        if glyphs.letters and 2 * level > glyphs.top:
            cell = LETTERS[kind]
        token = f"memory.{CATEGORIES[kind]}{BAR}" if level else "plain"
        parts.append((cell * len([*group]), token))
    return parts


def when(moments: Moments, event: int, zero: int) -> str:
    """`12.5 ms`, counted as on the ruler; `event 12` where the file has no times."""
    if event == BEFORE:
        return "before the first event" if len(moments.history.events) else "at the end"
    if not len(moments.times):
        return f"event {count(event)}"
    return duration(int(moments.times[event]) - zero)


def cursor_line(moments: Moments, event: int, zero: int, name: str, width: int) -> str:
    """What is allocated at the cursor, to the byte."""
    history = moments.history
    parts = [
        narrow(name),
        f"{plural(int(history.allocated[event + 1]), 'byte')} allocated",
    ]
    parts += (
        [when(moments, event, zero)] if len(moments.times) or event == BEFORE else []
    )
    reserved = int(history.reserved[event + 1])
    parts += [f"{size(reserved)} reserved"] if reserved > 0 else []
    if event != BEFORE:
        action = MemoryAction(int(history.events.action[event])).name.lower()
        action = action.partition("_")[0] if moments.is_of_trace else action
        parts.append(
            f"event {count(event)}: {action} {size(int(history.events.size[event]))}"
        )
    return f" {joined(parts, width - 2)}"


def legend(moments: Moments, event: int, glyphs: Glyphs, width: int) -> list[Styled]:
    """The categories of what lives at the cursor, the largest first."""
    amounts = enumerate(moments.by_category(np.array([event]))[:, 0].tolist())
    entries = [
        (
            (
                LETTERS[kind] if glyphs.letters else glyphs.swatch,
                f"memory.{CATEGORIES[kind]}{BAR}",
            ),
            f"{short_place(CATEGORIES[kind])} {size(amount)}",
            amount,
        )
        for kind, amount in sorted(amounts, key=lambda one: -one[1])
        if amount
    ]
    return legend_parts(entries, width - 2, " ")


def row_text(moments: Moments, row: MemoryRow, zero: int) -> str:
    if row.level == 0:
        return short_place(row.name)
    if row.life != NO_LIFE:
        return life_text(moments, row.life, zero)
    if moments.is_of_trace:
        return short_place(moments.place_of(row.stack) or row.name)
    frames = moments.frames(row.stack)
    shown = (_place(frame).rpartition("/")[2] for frame in _python(frames) or frames)
    return " < ".join(shown) or NO_STACK


def life_text(moments: Moments, life: int, zero: int) -> str:
    lives, times = moments.history.lives, moments.times
    born, died = int(lives.born[life]), int(lives.died[life])
    is_old = born == BEFORE
    begin = (
        "allocated before the recording"
        if is_old
        else f"from {when(moments, born, zero)}"
    )
    if died >= lives.events:
        return f"{begin}, still there at the end"
    is_timed = len(times) and not is_old
    lasted = f", for {duration(int(times[died] - times[born]))}" if is_timed else ""
    return f"{begin} to {when(moments, died, zero)}{lasted}"


def segment_cells(
    found: PlacedBlocks, segment: int, width: int, glyphs: Glyphs
) -> list[Styled]:
    """Each cell is as high as its used part, in the color of the category that has most
    of it."""
    one = found.segments[segment]
    borders = edges(one.address, one.address + one.size, width)
    amounts, span = found.by_category(segment, borders), np.maximum(np.diff(borders), 1)
    level = np.minimum(np.ceil(amounts.sum(axis=0) / span * glyphs.top), glyphs.top)
    return cell_parts(
        level.astype(np.int64).tolist(), amounts.argmax(axis=0).tolist(), glyphs
    )


def about_segment(
    moments: Moments, found: PlacedBlocks, segment: int, width: int
) -> list[Said]:
    """What is in a segment by category, its holes, and what lies in it, the largest
    first."""
    one, lives = found.segments[segment], moments.history.occupied
    rows, kinds = found.inside(segment)
    sizes = found.placement.size[found.placement.segment == segment]
    pool = "" if one.pool == COMMON_POOL else ", in a pool of its own"
    kind = "expandable" if one.is_expandable else "large" if one.is_large else "small"
    holes = (
        f"{plural(len(sizes), 'hole')} of {size(int(sizes.sum()))}"
        if len(sizes)
        else "no holes"
    )
    largest = f", the largest {size(int(sizes.max()))}" if len(sizes) > 1 else ""
    amounts = summed(kinds, lives.size[rows], len(CATEGORIES)).tolist()
    order = sorted(range(len(amounts)), key=lambda kind: -amounts[kind])
    parts = [
        f"{short_place(CATEGORIES[n])} {size(amounts[n])}" for n in order if amounts[n]
    ]
    lines = [
        f" {size(one.size)} at {one.address:#x}, {kind}, stream {one.stream}{pool}: "
        f"{size(int(found.used[segment]))} in {plural(len(rows), 'allocation')}, {holes}{largest}",
        f" {joined(parts, width - 2)}",
    ]
    for row in rows[np.argsort(-lives.size[rows], kind="stable")][
        :MOST_LISTED
    ].tolist():
        place = short_place(moments.place_of(int(lives.stack[row])) or NO_STACK)
        offset = int(lives.address[row]) - one.address
        lines.append(f"   {size(int(lives.size[row]))} at +{size(offset)}: {place}")
    return [Said(lines[0], "plain"), *map(Said, lines[1:])]


def about(
    moments: Moments,
    row: MemoryRow,
    stack: int,
    zero: int,
    width: int,
    every: bool = False,
) -> list[Said]:
    """A row, and the frames of its stack, innermost first; `every`: those of C++ too.
    Of a trace, what a snapshot would add."""
    frames = moments.frames(stack) if stack != ANY_STACK else ()
    python, is_life = _python(frames), row.life != NO_LIFE
    if is_life:
        found = [Said(f" {line}", "plain") for line in _life(moments, row.life, zero)]
    else:
        blocks = f" in {plural(row.allocations, 'block')}" if row.allocations else ""
        found = [
            Said(f" {size(row.bytes)}{blocks}: {narrow(_name(moments, row))}", "plain")
        ]
        stacks = "its stack" if row.level else "its largest stack"
        found += [Said(f" {stacks}, innermost first:")] if frames else []
    if moments.is_of_trace:
        more = OF_CPU if moments.title.startswith("CPU") else MORE
        lines = [] if is_life and not every else wrapped(more, width - 2)
        return [*found, *(Said(f" {line}") for line in lines)]
    shorten = narrow if every else short_place
    found += [Said(f"   {shorten(_place(frame))}") for frame in python or frames]
    if every and python and len(python) < len(frames):
        found += [Said(""), Said(" with the frames of C++:", "plain")]
        found += [Said(f"   {_place(frame)}") for frame in frames]
    return found


def _python(frames: Sequence[Frame]) -> list[Frame]:
    return [frame for frame in frames if frame.file.endswith(".py")]


def _name(moments: Moments, row: MemoryRow) -> str:
    if moments.is_of_trace and row.level:
        return f"{moments.place_of(row.stack)} in {row.name}"
    return short_place(row.name) if row.name in CATEGORIES else row.name


def _place(frame: Frame) -> str:
    is_python = frame.file.endswith(".py")
    return narrow(
        f"{frame.file}:{frame.line} {frame.name}" if is_python else frame.name
    )


def _life(moments: Moments, life: int, zero: int) -> Iterator[str]:
    """Where it was born and freed, its size, and how long it lived."""
    history, lives = moments.history, moments.history.lives
    place = moments.place_of(int(lives.stack[life]))
    kind = place if moments.is_of_trace else CATEGORIES[int(moments.kinds[life])]
    wanted, died = int(lives.size[life]), int(lives.died[life])
    address = f"at {int(lives.address[life]):#x}"
    yield f"{size(wanted)} ({plural(wanted, 'byte')}) {address}, {short_place(kind)}"
    yield life_text(moments, life, zero)
    if died < lives.events:
        place = moments.place_of(int(history.events.stack[died]))
        yield (
            f"freed in {short_place(place)}"
            if place
            else "freed where no stack was recorded"
        )
