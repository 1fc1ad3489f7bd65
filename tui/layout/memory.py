"""What the memory page shows, as data: the snapshots, the cells of the area over time,
and the rows of a moment. Times are ns from the first event, beside a trace from its
origin; where a file has no times, events are counted instead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from fusetui.timeline.cells import edges
from fusetui.trace.model.arrays import Flags, Int64s
from fusetui.trace.model.memo import memo

if TYPE_CHECKING:
    from fusetui.analysis.memory.moments import HeldGroups, Moments
    from fusetui.trace.model.columns import Trace

MEMORY = "memory"
NO_LIFE, ANY_STACK = -1, -2
LETTERS = "pogatwbGu"  # of the categories, in their order, where there are no colors
# categories in the area: what lives long lies below
FROM_BELOW = (0, 7, 1, 2, 6, 5, 3, 8, 4)
Key = tuple[str | int, ...]


class OverlayLines(msgspec.Struct, frozen=True):
    """An overlay: lines to read."""

    title: str
    lines: tuple[str, ...]


class MemorySide(msgspec.Struct, frozen=True, eq=False):
    """A snapshot that is open; `moments` of each of its devices, at least of one.
    `trace`: that whose memory events it is instead."""

    path: str
    label: str
    moments: tuple[Moments, ...]
    trace: Trace | None = None

    def first_view(self, device: int | None = None) -> MemoryView:
        """All of a device, by default of that with the highest peak; the cursor at the
        peak."""
        if device is None:
            peaks = [int(one.history.allocated.max()) for one in self.moments]
            device = peaks.index(max(peaks))
        found = self.moments[device]
        whole = found.position(len(found.positions) - 1) - found.position(0) + 1
        return MemoryView(0, whole, found.history.peak_index, device)


class MemoryView(msgspec.Struct, frozen=True):
    """The window [begin, end), the moment under the cursor, and which of the
    devices."""

    begin: int
    end: int
    at: int
    device: int = 0


class MemoryShown(msgspec.Struct, frozen=True, eq=False):
    """One or two snapshots; `opened`: the keys of the rows that are open."""

    sides: tuple[MemorySide, ...]
    views: tuple[MemoryView, ...]
    active: int = 0
    by: str = "code"
    is_map: bool = False
    opened: frozenset[Key] = frozenset()

    def moments(self, index: int) -> Moments:
        return self.sides[index].moments[self.views[index].device]

    @property
    def view(self) -> MemoryView:
        return self.views[self.active]

    @property
    def trace(self) -> Trace | None:
        """That whose memory events are shown."""
        return self.sides[0].trace


class MemoryCells(msgspec.Struct, frozen=True, eq=False):
    """What is drawn in each cell of a window: the moment of it at which most was
    allocated. `amounts` of shape [categories, cells], 0 outside of the recording."""

    events: Int64s
    amounts: Int64s
    inside: Flags


class MemoryRow(NamedTuple):
    """A holder (level 0), a stack of it (1) or an allocation (2). `allocations`: 0
    where their number is not known. `other`: the bytes of the same holder in the other
    snapshot."""

    level: int
    key: Key
    name: str
    bytes: int
    allocations: int
    stack: int = ANY_STACK
    life: int = NO_LIFE
    other: int = 0


@memo(8)
def cells(moments: Moments, begin: int, end: int, width: int) -> MemoryCells:
    """Of a window of positions."""
    borders, places = edges(begin, end, width), moments.positions
    at = np.searchsorted(places, borders, side="left")
    events = moments.highest(at[:-1] - 1, at[1:] - 1)
    first, last = (int(places[0]), int(places[-1])) if len(places) else (0, -1)
    inside = (borders[1:] > first) & (borders[:-1] <= last)
    return MemoryCells(events, np.where(inside, moments.by_category(events), 0), inside)


@memo(8)
def heights(
    moments: Moments, begin: int, end: int, width: int, lines: int, most: int, top: int
) -> tuple[list[list[int]], list[list[int]]]:
    """Of each line from top to bottom: how full each cell is, from 0 to `top`, and the
    category of which it holds most; `most` bytes are as high as all lines."""
    ends = np.cumsum(cells(moments, begin, end, width).amounts[[*FROM_BELOW]], axis=0)
    most = max(most, 1)
    full = np.ceil(ends[-1] / most * (lines * top)).astype(np.int64)
    floors = np.arange(lines)[::-1, None]
    level = np.clip(full - floors * top, 0, top)
    low = floors * (most / lines)
    upper = np.minimum(ends[:, None], low + most / lines)
    lower = np.maximum(
        np.concatenate([np.zeros_like(ends[:1]), ends[:-1]])[:, None], low
    )
    kinds = np.array(FROM_BELOW)[(upper - lower).argmax(axis=0)]
    return level.tolist(), kinds.tolist()


@memo(4)
def rows_of(
    moments: Moments,
    by: str,
    at: int,
    opened: frozenset[Key],
    beside: tuple[Moments, int] | None,
) -> tuple[MemoryRow, ...]:
    """Who holds what at a moment, the largest first; beside another snapshot at a
    moment of it, the largest difference first."""
    found = tuple(_rows(moments, by, at, opened))
    if beside is None:
        return found
    theirs, held = beside[0], beside[0].held(by, beside[1])
    names = map(theirs.names.__getitem__, held.number.tolist())
    other = dict(zip(names, held.bytes.tolist(), strict=True))
    own = {row.name for row in found if not row.level}
    groups = [[MemoryRow(0, (name,), name, 0, 0)] for name in other if name not in own]
    for row in found:
        if not row.level:
            groups.append([])
        groups[-1].append(row)
    said = [
        [group[0]._replace(other=other.get(group[0].name, 0)), *group[1:]]
        for group in groups
    ]
    said.sort(key=lambda group: -abs(group[0].bytes - group[0].other))
    return tuple(row for group in said for row in group)


def _rows(
    moments: Moments, by: str, event: int, opened: frozenset[Key]
) -> Iterator[MemoryRow]:
    from fusetui.analysis.memory.evidence import BEFORE_RECORDING  # imported by now

    own_stack = moments.is_of_trace and by == "op"  # which is its only one
    for holder, size, number in _each(moments.held(by, event)):
        name = moments.names[holder]
        is_counted = not (moments.is_of_trace and name == BEFORE_RECORDING)
        yield MemoryRow(0, (name,), name, size, number if is_counted else 0)
        if (name,) not in opened:
            continue
        for stack, inside, count in _each(moments.stacks(by, holder, event)):
            if not own_stack:
                yield MemoryRow(1, (name, stack), name, inside, count, stack)
            if own_stack or (name, stack) in opened:
                for life in moments.allocations(by, holder, stack, event).tolist():
                    own = int(moments.history.lives.size[life])
                    yield MemoryRow(2, (name, stack, life), name, own, 1, stack, life)


def _each(held: HeldGroups) -> Iterator[tuple[int, int, int]]:
    return zip(*(column.tolist() for column in held), strict=True)
