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
        """Return the view of a whole snapshot, with the cursor at the peak of allocated
        memory.

        `device` is the index of the device to show. By default it is the one with the
        highest peak.
        """
        if device is None:
            peaks = [
                int(device_moments.history.allocated.max())
                for device_moments in self.moments
            ]
            device = peaks.index(max(peaks))
        moments = self.moments[device]
        first = moments.find_position(0)
        last = moments.find_position(len(moments.positions) - 1)
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
        """Return the memory states of the device that is shown of a snapshot, given its
        index."""
        return self.sides[index].moments[self.views[index].device]

    @property
    def view(self) -> MemoryView:
        """The view of the snapshot that keys act on."""
        return self.views[self.active]

    @property
    def trace(self) -> Trace | None:
        """The trace whose memory events are shown, or None for a snapshot."""
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
    """Return what to draw in each of `width` cells of the chart of memory over time.

    The window [begin, end) has positions: ns from the first event, or numbers of events
    without times. Each cell shows the moment of it with the most allocated memory, so
    that no peak is lost. Cells before or after the recording have amounts of 0.
    """
    positions = moments.positions
    borders = edges(begin, end, width)
    # the last event before each edge of a cell, -1 before all events
    event_before = np.searchsorted(positions, borders, side="left") - 1
    # of each cell, from the event before it to its last one
    events = moments.find_highest_events(event_before[:-1], event_before[1:])
    if len(positions):
        begins_before_last = borders[:-1] <= int(positions[-1])
        is_recorded = (borders[1:] > int(positions[0])) & begins_before_last
    else:
        is_recorded = np.zeros(len(borders) - 1, np.bool_)
    amounts = np.where(is_recorded, moments.sum_by_category(events), 0)
    return MemoryCells(events=events, amounts=amounts, inside=is_recorded)


class Area(NamedTuple):
    """Cells of the area over time, [lines, cells], the highest line first."""

    levels: list[list[int]]  # how full each cell is, from 0 (empty)
    categories: list[list[int]]  # of which category each cell holds most


@memo(8)
def compute_area(
    moments: Moments, begin: int, end: int, width: int, lines: int, most: int, top: int
) -> Area:
    """Return the chart of allocated memory, with categories stacked, as levels and
    colors of cells.

    Args:
        moments: The memory state after each event.
        begin: The first position of the window, in ns or events.
        end: The position behind the window.
        width: The cells of the window.
        lines: The height of the chart.
        most: The bytes that the full height stands for.
        top: The level of a full cell.
    """
    # in the order in which categories are stacked
    amounts = cells(moments, begin, end, width).amounts[[*FROM_BELOW]]
    most = max(most, 1)
    total_bytes = amounts.sum(axis=0)
    all_levels = lines * top
    total_levels = np.ceil(total_bytes / most * all_levels).astype(np.int64)
    lines_below = np.arange(lines)[::-1, None]
    levels = np.clip(total_levels - lines_below * top, 0, top)
    categories = _find_largest_categories(amounts, lines_below, most / lines)
    return Area(levels=levels.tolist(), categories=categories.tolist())


def _find_largest_categories(
    amounts: Int64s, lines_below: Int64s, line_bytes: float
) -> Int64s:
    """Return the category with the most bytes in each cell of each line of the chart;
    shape [lines, cells].

    Categories are stacked, so each one fills an interval of the height of its column.
    On each line the one with the largest part of its interval wins.

    Args:
        amounts: Bytes, of shape [categories in the order of FROM_BELOW, cells].
        lines_below: The number of lines below each line, of shape [lines, 1].
        line_bytes: The bytes that the height of a line stands for.
    """
    upper_bytes = np.cumsum(amounts, axis=0)
    lower_bytes = upper_bytes - amounts
    line_lower = lines_below * line_bytes
    line_upper = line_lower + line_bytes
    # the part of the interval of each category that lies on the line
    inside_upper = np.minimum(upper_bytes[:, None], line_upper)
    inside_lower = np.maximum(lower_bytes[:, None], line_lower)
    # [categories, lines, cells]: the bytes of each category on each line
    inside_bytes = inside_upper - inside_lower
    largest: Int64s = np.array(FROM_BELOW)[inside_bytes.argmax(axis=0)]
    return largest


@memo(4)
def list_memory_rows(
    moments: Moments,
    by: str,
    at: int,
    opened: frozenset[Key],
    beside: tuple[Moments, int] | None,
) -> tuple[MemoryRow, ...]:
    """Return the rows of the list of memory at a moment, the largest holder first.

    A holder is what memory is grouped by, such as a line of code. It is followed by its
    stacks if it is open, and a stack by its allocations. In a comparison the holder
    with the largest difference comes first.

    Args:
        moments: The memory state after each event.
        by: The grouping, such as "code" or "op".
        at: The index of the event after which memory is shown.
        opened: The keys of the holders and stacks that are open.
        beside: Another snapshot and its event, to compare with; None for no comparison.
    """
    rows = tuple(_generate_rows(moments, by, at, opened))
    if beside is None:
        return rows
    other_moments, other_at = beside
    other_bytes = _measure_holders(other_moments, by, other_at)
    groups = _compare_holders(rows, other_bytes)
    groups.sort(key=_measure_difference, reverse=True)
    return tuple(chain.from_iterable(groups))


def _measure_difference(group: Sequence[MemoryRow]) -> int:
    """Return by how many bytes a holder differs between two snapshots. The holder is
    the first row of its group."""
    holder = group[0]
    return abs(holder.bytes - holder.other)


def _compare_holders(
    rows: Sequence[MemoryRow], other_bytes: Mapping[str, int]
) -> list[list[MemoryRow]]:
    """Return a group of rows for each holder of memory in two snapshots: the holder,
    then the open rows below it.

    Holders that only the other snapshot has come first, with 0 bytes here.
    `other_bytes` has the bytes of each holder in the other snapshot, by its name.
    """
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


def _measure_holders(moments: Moments, by: str, event: int) -> dict[str, int]:
    """Return the bytes that each holder of memory has after an event, by its name. `by`
    is the grouping, such as "code"."""
    held = moments.group_by_holder(by, event)
    names = [moments.names[number] for number in held.number.tolist()]
    return dict(zip(names, held.bytes.tolist(), strict=True))


def _generate_rows(
    moments: Moments, by: str, event: int, opened: frozenset[Key]
) -> Iterator[MemoryRow]:
    """Generate the rows of the list of memory after an event: the holders, the largest
    first, each followed by its open rows.

    A holder is what memory is grouped by, such as a line of code or a category. In a
    trace, the number of allocations from before the recording is not known, and is
    given as 0.

    Args:
        moments: The memory state after each event.
        by: The grouping, such as "code" or "op".
        event: The index of the event after which memory is shown.
        opened: The keys of the holders and stacks that are open.
    """
    from fusetui.analysis.memory.evidence import BEFORE_RECORDING  # imported by now

    for holder in _iterate_groups(moments.group_by_holder(by, event)):
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
            yield from _generate_stack_rows(moments, by, event, holder.number, opened)


def _generate_stack_rows(
    moments: Moments, by: str, event: int, holder: int, opened: frozenset[Key]
) -> Iterator[MemoryRow]:
    """Generate the rows of the stacks of one holder, each followed by its allocations
    if it is open.

    A holder is what memory is grouped by, such as a line of code or an op. An op of a
    trace has only one stack, so its row is left out, and its allocations come directly
    below the op.

    Args:
        moments: The memory state after each event.
        by: The grouping, such as "code" or "op".
        event: The index of the event after which memory is shown.
        holder: The number of the holder in `moments.names`.
        opened: The keys of the holders and stacks that are open.
    """
    name = moments.names[holder]
    skips_stacks = moments.is_of_trace and by == "op"
    for stack in _iterate_groups(moments.group_by_stack(by, holder, event)):
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
            lives = moments.list_allocations(by, holder, stack.number, event).tolist()
            yield from _generate_allocation_rows(moments, name, stack.number, lives)


def _generate_allocation_rows(
    moments: Moments, holder: str, stack: int, lives: Sequence[int]
) -> Iterator[MemoryRow]:
    """Generate a row for each allocation made from a stack. `lives` are the indices of
    the allocations."""
    for life in lives:
        yield MemoryRow(
            level=2,
            key=(holder, stack, life),
            name=holder,
            bytes=int(moments.history.allocations.size[life]),
            allocations=1,
            stack=stack,
            life=life,
        )


class _Held(NamedTuple):
    """One holder, or one stack of it: its number, bytes and allocations."""

    number: int
    bytes: int
    allocations: int


def _iterate_groups(held: HeldGroups) -> Iterator[_Held]:
    """Generate the groups of held memory one by one, from their columns."""
    columns = (column.tolist() for column in held)
    for number, bytes_, allocations in zip(*columns, strict=True):
        yield _Held(number=number, bytes=bytes_, allocations=allocations)
