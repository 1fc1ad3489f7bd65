"""The content of the memory page as data: the snapshots, the cells of the chart over
time, and the rows for a moment. Times are ns from the first event, beside a trace from
its origin; where a file has no times, events are counted instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
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
NO_LIFE = -1  # the row of a holder or a stack
ANY_STACK = -2  # the row of a holder: of all its stacks
LETTERS = "pogatwbGu"  # of the categories, in their order, where there are no colors
# categories in the area: what lives long lies below
FROM_BELOW = (0, 7, 1, 2, 6, 5, 3, 8, 4)
Key = tuple[str | int, ...]
"""What identifies a row: the name of its holder, then its stack, then its life."""


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
            peaks = [int(of.history.allocated.max()) for of in self.moments]
            device = peaks.index(max(peaks))
        moments = self.moments[device]
        first = moments.position(0)
        last = moments.position(len(moments.positions) - 1)
        return MemoryView(
            begin=0,
            end=last - first + 1,
            at=moments.history.peak_index,
            device=device,
        )


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
    """What is drawn in each of `width` cells over the window [begin, end) of
    positions."""
    positions = moments.positions
    borders = edges(begin, end, width)
    event_before = np.searchsorted(positions, borders, side="left") - 1
    # of each cell, from the event before it to its last one
    events = moments.highest(event_before[:-1], event_before[1:])
    if len(positions):
        starts_before_end = borders[:-1] <= int(positions[-1])
        inside = (borders[1:] > int(positions[0])) & starts_before_end
    else:
        inside = np.zeros(len(borders) - 1, np.bool_)
    amounts = np.where(inside, moments.by_category(events), 0)
    return MemoryCells(events=events, amounts=amounts, inside=inside)


class Area(NamedTuple):
    """Cells of the area over time, [lines, cells], the highest line first."""

    levels: list[list[int]]  # how full each cell is, from 0 (empty)
    categories: list[list[int]]  # of which category each cell holds most


@memo(8)
def heights(
    moments: Moments, begin: int, end: int, width: int, lines: int, most: int, top: int
) -> Area:
    """The area over the window [begin, end) of positions, in `width` cells and `lines`
    lines. `most` bytes are as high as all lines; a full cell has the level `top`."""
    amounts = cells(moments, begin, end, width).amounts[[*FROM_BELOW]]
    most = max(most, 1)
    total = amounts.sum(axis=0)
    all_levels = lines * top
    total_levels = np.ceil(total / most * all_levels).astype(np.int64)
    lines_below = np.arange(lines)[::-1, None]
    levels = np.clip(total_levels - lines_below * top, 0, top)
    categories = _largest_on_lines(amounts, lines_below, most / lines)
    return Area(levels=levels.tolist(), categories=categories.tolist())


def _largest_on_lines(
    amounts: Int64s, lines_below: Int64s, line_bytes: float
) -> Int64s:
    """The category of which each cell of each line holds most, [lines, cells].
    `amounts`: bytes, [categories in the order of FROM_BELOW, cells]; `lines_below`: how
    many lines are below each line, [lines, 1]."""
    upper_bytes = np.cumsum(amounts, axis=0)
    lower_bytes = upper_bytes - amounts
    line_lower = lines_below * line_bytes
    line_upper = line_lower + line_bytes
    inside_upper = np.minimum(upper_bytes[:, None], line_upper)
    inside_lower = np.maximum(lower_bytes[:, None], line_lower)
    # [categories, lines, cells]: the bytes of each category on each line
    inside_bytes = inside_upper - inside_lower
    largest: Int64s = np.array(FROM_BELOW)[inside_bytes.argmax(axis=0)]
    return largest


@memo(4)
def rows_of(
    moments: Moments,
    by: str,
    at: int,
    opened: frozenset[Key],
    beside: tuple[Moments, int] | None,
) -> tuple[MemoryRow, ...]:
    """Who holds what at a moment, the largest first; beside another snapshot at a
    moment of it, the largest difference first. A holder is followed by its stacks, and
    a stack by its allocations, if it is among the `opened`."""
    rows = tuple(_rows(moments, by, at, opened))
    if beside is None:
        return rows
    other_moments, other_at = beside
    other_bytes = _bytes_by_holder(other_moments, by, other_at)
    groups = _groups_of_both(rows, other_bytes)
    groups.sort(key=_difference, reverse=True)
    return tuple(chain.from_iterable(groups))


def _difference(group: Sequence[MemoryRow]) -> int:
    """By how many bytes two snapshots differ in a holder, which is the first row of the
    group."""
    holder = group[0]
    return abs(holder.bytes - holder.other)


def _groups_of_both(
    rows: Sequence[MemoryRow], other_bytes: Mapping[str, int]
) -> list[list[MemoryRow]]:
    """Each holder of two snapshots with the rows that are open below it: those that
    only the other one has, then the rows of this one. `other_bytes`: what a holder has
    in the other snapshot, by its name."""
    names_here = {row.name for row in rows if row.level == 0}
    groups: list[list[MemoryRow]] = []
    for name in other_bytes:
        if name not in names_here:
            groups.append([MemoryRow(0, (name,), name, bytes=0, allocations=0)])
    for row in rows:
        if row.level == 0:
            groups.append([])
        groups[-1].append(row)
    for group in groups:
        holder = group[0]
        group[0] = holder._replace(other=other_bytes.get(holder.name, 0))
    return groups


def _bytes_by_holder(moments: Moments, by: str, event: int) -> dict[str, int]:
    """The bytes of each holder after an event, by its name."""
    held = moments.held(by, event)
    names = [moments.names[number] for number in held.number.tolist()]
    return dict(zip(names, held.bytes.tolist(), strict=True))


def _rows(
    moments: Moments, by: str, event: int, opened: frozenset[Key]
) -> Iterator[MemoryRow]:
    """The holders after an event, the largest first, each with what is open below it."""
    from fusetui.analysis.memory.evidence import BEFORE_RECORDING  # imported by now

    for holder in _each(moments.held(by, event)):
        name = moments.names[holder.number]
        is_counted = not (moments.is_of_trace and name == BEFORE_RECORDING)
        yield MemoryRow(
            level=0,
            key=(name,),
            name=name,
            bytes=holder.bytes,
            allocations=holder.allocations if is_counted else 0,
        )
        if (name,) in opened:
            yield from _stack_rows(moments, by, event, holder.number, opened)


def _stack_rows(
    moments: Moments, by: str, event: int, holder: int, opened: frozenset[Key]
) -> Iterator[MemoryRow]:
    """The stacks of a holder, each with its allocations if it is open. An op of a trace
    has one stack, which is left out: its allocations are directly below it."""
    name = moments.names[holder]
    skips_stacks = moments.is_of_trace and by == "op"
    for stack in _each(moments.stacks(by, holder, event)):
        if not skips_stacks:
            yield MemoryRow(
                level=1,
                key=(name, stack.number),
                name=name,
                bytes=stack.bytes,
                allocations=stack.allocations,
                stack=stack.number,
            )
        if skips_stacks or (name, stack.number) in opened:
            lives = moments.allocations(by, holder, stack.number, event).tolist()
            yield from _life_rows(moments, name, stack.number, lives)


def _life_rows(
    moments: Moments, holder: str, stack: int, lives: Sequence[int]
) -> Iterator[MemoryRow]:
    """The allocations of a stack."""
    for life in lives:
        yield MemoryRow(
            level=2,
            key=(holder, stack, life),
            name=holder,
            bytes=int(moments.history.lives.size[life]),
            allocations=1,
            stack=stack,
            life=life,
        )


class _Held(NamedTuple):
    """One holder, or one stack of it: its number, bytes and allocations."""

    number: int
    bytes: int
    allocations: int


def _each(held: HeldGroups) -> Iterator[_Held]:
    """The groups one by one."""
    columns = (column.tolist() for column in held)
    for number, bytes_, allocations in zip(*columns, strict=True):
        yield _Held(number=number, bytes=bytes_, allocations=allocations)
