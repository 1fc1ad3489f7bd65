"""Reconstructs the positions of allocations in the segments at a moment, and the holes.

The file has the blocks of the end. For earlier moments, segments are put back as the
events say. A block that is gone by the end is as large as the allocator rounds: up to a
multiple of 512 bytes. In a large pool it also has what was not worth splitting off, up
to 1 MB. How much that was follows from what was allocated behind it at that time. If
that was before the first event, it is not known exactly: `slack` of a hole is how much
of it may belong to the block.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.analysis.memory.history import (
    SEGMENT_GIVEN,
    SEGMENT_TAKEN,
    UNSPLIT_BYTES,
    Allocations,
    History,
)
from fusetui.trace.model.arrays import (
    Flags,
    Int64s,
    Rows,
    at,
    ends_runs,
    last_at_or_before,
)
from fusetui.trace.model.memo import memo
from fusetui.trace.snapshot.columns import MemoryAction, Snapshot

ALLOCATION_UNIT_BYTES = 512
"""The allocator rounds sizes up to multiples of it."""

PAGE_BYTES = 2 << 20
"""What an expandable segment maps at once, and the size of a small segment."""

COMMON_POOL = (0, 0)
"""The name of the pool that all share."""

MIN_FRAGMENTED_SHARE = 1 / 3
"""Memory is fragmented if at least this share is holes in front of live blocks."""

MAX_HOLE_SHARE = 1 / 4
"""Memory is fragmented only if the largest of these holes is at most this share of all
of them."""


class Segment(msgspec.Struct, frozen=True):
    """A contiguous range of memory that the device gave to the allocator."""

    address: int
    size: int  # in bytes
    stream: int
    pool: tuple[int, int]
    is_large: bool  # for blocks above 1 MB
    is_expandable: bool


NO_SPLIT_LIMIT_BYTES = 1 << 62
"""A setting of max_split_size from which on it bounds nothing."""


class SegmentLayout(msgspec.Struct, frozen=True, eq=False):
    """The segments of a device at one moment, and the holes in them.

    A *hole* is memory of a segment that no allocation uses. Arrays have one entry per
    hole, sorted by address, except for `segment_of_allocation`.
    """

    segments: tuple[Segment, ...]
    segment: Int64s  # the index in `segments` of the segment that has the hole
    start: Int64s  # the first address of the hole
    end: Int64s  # the address behind the hole
    slack: Int64s  # how many bytes of the hole may belong to the block before it
    # For each of `History.occupied` the index in `segments` of the segment that it is
    # in; -1 if it is in none or is not live at the moment.
    segment_of_allocation: Int64s

    @property
    def size(self) -> Int64s:
        """The bytes of each hole."""
        return self.end - self.start

    def measure_returnable_bytes(self, least: bool = False) -> Int64s:
        """Return how many bytes of each hole the allocator could give back.

        These are its whole pages of 2 MB (PAGE_BYTES): of a hole from 1 to 7 MB, the
        pages from 2 to 6 MB, which are 4 MB.

        Args:
            least: Leave out what may belong to the block before the hole.
        """
        segment_begin = _segment_begins(self.segments)[self.segment]
        start_in_segment = self.start - segment_begin
        end_in_segment = self.end - segment_begin
        if least:
            start_in_segment = start_in_segment + np.minimum(self.slack, self.size)

        # Only pages that lie in the hole entirely can be given back.
        first_page = -(-start_in_segment // PAGE_BYTES)  # rounded up
        page_behind = end_in_segment // PAGE_BYTES  # rounded down
        return np.maximum(page_behind - first_page, 0) * PAGE_BYTES

    def mark_usable_holes(self, like: Segment) -> Flags:
        """Return which holes are where an allocation for a given segment could go.

        That is in segments of the same pool, stream and kind (large or small).

        Args:
            like: The segment to compare with.
        """
        suitable_kind = (like.pool, like.stream, like.is_large)
        is_suitable = [
            (segment.pool, segment.stream, segment.is_large) == suitable_kind
            for segment in self.segments
        ]
        is_suitable_segment = np.array(is_suitable, np.bool_)
        return is_suitable_segment[self.segment]

    def mark_segments_in_use(self) -> Flags:
        """Return for each segment whether a live allocation is in it."""
        segments = np.arange(len(self.segments))
        return np.isin(segments, self.segment_of_allocation)


def _segment_begins(segments: tuple[Segment, ...]) -> Int64s:
    """Return the first address of each segment."""
    return np.array([segment.address for segment in segments], np.int64)


def _segment_ends(segments: tuple[Segment, ...]) -> Int64s:
    """Return the address behind each segment."""
    return np.array([segment.address + segment.size for segment in segments], np.int64)


def compute_layout(
    history: History, event: int, segments: tuple[Segment, ...] | None = None
) -> SegmentLayout:
    """Work out which segments a device has at a moment, and the free ranges (holes) in
    them.

    A *segment* is a range of addresses that the allocator got from the device.

    Args:
        history: The history of the device.
        event: The event after which the moment is, or BEFORE for the one before
            the first event.
        segments: The segments of that moment by address. Without them they are
            worked out.
    """
    if segments is None:
        segments = restore_segments(history, event)

    allocations = history.occupied
    placed_allocations = _find_allocations_in_segments(allocations, event, segments)
    placed_blocks = _place_blocks(history, event, placed_allocations, segments)
    gaps = _find_free_ranges(placed_blocks, segments)
    is_hole = gaps.end > gaps.start

    segment_of_allocation = np.full(len(allocations), -1)
    segment_of_allocation[placed_allocations.row] = placed_allocations.segment

    return SegmentLayout(
        segments=segments,
        segment=gaps.segment[is_hole],
        start=gaps.start[is_hole],
        end=gaps.end[is_hole],
        slack=gaps.is_behind_unsure[is_hole] * UNSPLIT_BYTES,
        segment_of_allocation=segment_of_allocation,
    )


class _PlacedAllocations(NamedTuple):
    """The allocations that lie in segments at a moment, sorted by address."""

    row: Rows  # the row in `History.occupied`
    segment: Rows  # the index of the segment


def _find_allocations_in_segments(
    allocations: Allocations, event: int, segments: tuple[Segment, ...]
) -> _PlacedAllocations:
    """Find the allocations that are live after an event and lie in segments.

    Args:
        allocations: `History.occupied`: each lasts until its memory is free again.
        event: The event, or BEFORE.
        segments: The segments at that moment, by address.
    """
    live_rows = np.flatnonzero(allocations.mark_live_after(event))
    live_rows = live_rows[np.argsort(allocations.address[live_rows], kind="stable")]

    # Only the last segment that begins at or before an address can have it. An address
    # below all segments has none; there, an end of 0 makes the comparison false.
    address = allocations.address[live_rows]
    segment = last_at_or_before(_segment_begins(segments), address)
    end_of_segment = at(_segment_ends(segments), segment, missing=0)

    is_inside = address < end_of_segment
    return _PlacedAllocations(row=live_rows[is_inside], segment=segment[is_inside])


class _Gaps(NamedTuple):
    """The ranges that follow the begin of a segment or a block, sorted by address.

    There is one entry per segment and per block. A gap may be empty.
    """

    segment: Rows  # the index of the segment
    start: Int64s
    end: Int64s  # the address behind the gap
    is_behind_unsure: Flags  # whether the block before it may reach into it


def _find_free_ranges(blocks: _PlacedBlocks, segments: tuple[Segment, ...]) -> _Gaps:
    """List the free ranges behind the begin of each segment and behind each block.

    E.g. a segment from 0 to 100 with a block from 20 to 50 has two: from 0 to 20, and
    from 50 to 100.

    Args:
        blocks: The blocks, sorted by address.
        segments: The segments, sorted by address.
    """
    segment_begins = _segment_begins(segments)
    block_ends = blocks.start + blocks.size
    segments_are_unsure = np.zeros(len(segments), np.bool_)

    # One entry per segment, then one per block; each may have free memory behind it.
    address = np.concatenate([segment_begins, blocks.start])
    free_from = np.concatenate([segment_begins, block_ends])
    segment = np.concatenate([np.arange(len(segments)), blocks.segment])
    is_unsure = np.concatenate([segments_are_unsure, blocks.may_be_larger])

    # The sort is stable: a segment precedes a block at its begin.
    by_address = np.argsort(address, kind="stable")
    segment = segment[by_address]

    # Free memory ends with its segment or, earlier, at the next block.
    end_of_segment = _segment_ends(segments)[segment]
    next_address = np.roll(address[by_address], -1)
    is_last_of_segment = ends_runs(segment)

    return _Gaps(
        segment=segment,
        start=free_from[by_address],
        end=np.where(is_last_of_segment, end_of_segment, next_address),
        is_behind_unsure=is_unsure[by_address],
    )


class _PlacedBlocks(NamedTuple):
    """The blocks of the allocations that lie in segments, sorted by address."""

    segment: Rows  # the index of the segment
    start: Int64s
    size: Int64s  # in bytes
    may_be_larger: Flags  # whether the size is only the least one


def _place_blocks(
    history: History,
    event: int,
    placed: _PlacedAllocations,
    segments: tuple[Segment, ...],
) -> _PlacedBlocks:
    """Work out the address range of the block of each live allocation in a segment.

    The file has the sizes of blocks that are there at the end. A block that is gone had
    at least what was requested, rounded up as the allocator does.

    Args:
        history: The history of the device.
        event: The event after which the moment is, or BEFORE.
        placed: The allocations, and the segment in which each lies.
        segments: The segments at that moment, by address.
    """
    allocations = history.occupied
    block_at_end = allocations.block[placed.row]
    is_gone = block_at_end < 0
    recorded_size = at(history.snapshot.blocks.size, block_at_end, missing=0)
    least_size = _round_up_request(allocations.size[placed.row])
    size = np.where(is_gone, least_size, recorded_size)

    # Segments for small blocks and expandable segments split off every rest. In others,
    # a rest may belong to the block.
    keeps_rests = [
        segment.is_large and not segment.is_expandable for segment in segments
    ]
    may_have_rest = is_gone & np.array(keeps_rests, np.bool_)[placed.segment]
    rests = _find_unsplit_rests(
        history,
        rows=placed.row[may_have_rest],
        sizes=size[may_have_rest],
        limit=_segment_ends(segments)[placed.segment[may_have_rest]],
        event=event,
    )

    size[may_have_rest] += rests.bytes
    may_be_larger = np.zeros(len(size), np.bool_)
    may_be_larger[may_have_rest] = rests.may_be_more

    return _PlacedBlocks(
        segment=placed.segment,
        start=allocations.address[placed.row],
        size=size,
        may_be_larger=may_be_larger,
    )


def _round_up_request(requested: Int64s) -> Int64s:
    """Return the least size of the blocks for some requests, in bytes.

    That is the next multiple of ALLOCATION_UNIT_BYTES (512), at least one: 512 for 0
    bytes and for 512, 1024 for 513.
    """
    units = -(-np.maximum(requested, 1) // ALLOCATION_UNIT_BYTES)  # rounded up
    return np.asarray(units * ALLOCATION_UNIT_BYTES)


class _Rests(NamedTuple):
    """What belongs to blocks behind the requested bytes; one entry per block."""

    bytes: Int64s
    may_be_more: Flags  # whether `bytes` is only the least amount


def _find_unsplit_rests(
    history: History, rows: Rows, sizes: Int64s, limit: Int64s, event: int
) -> _Rests:
    """Find the bytes that belong to blocks because they were not worth splitting off.

    The allocator splits what is left of a large block only if it is larger than
    UNSPLIT_BYTES (1 MB). So what was free behind an allocation when it was made, and is
    no larger, belongs to its block: of 3 MB in a free block of 3.5 MB, the block keeps
    0.5 MB more; of 3 MB in one of 20 MB, nothing.

    Args:
        history: The history of the device.
        rows: Rows of `History.occupied`, all in segments for large blocks.
        sizes: For each of them the bytes that its block has at least.
        limit: For each of them the end of its segment.
        event: The moment of the layout.
    """
    allocations = history.occupied
    start = allocations.address[rows]
    allocated_at = allocations.allocated_at[rows]

    now = np.full(len(rows), event)
    end = start + sizes
    free_then = allocations.find_next_in_use(start, allocated_at, limit) - end
    free_now = allocations.find_next_in_use(start, now, limit) - end

    # It is not known what was free when a block from before the first event was made.
    # What was free at the first event, and what is free now, both bound it.
    is_early = allocations.is_early[rows]
    free = np.where(is_early, np.minimum(free_then, free_now), free_then)

    is_split_off = free > UNSPLIT_BYTES
    kept_bytes = np.where(is_split_off, 0, np.maximum(free, 0))
    return _Rests(bytes=kept_bytes, may_be_more=is_split_off & is_early)


def restore_segments(history: History, event: int) -> tuple[Segment, ...]:
    """Return the segments of a device after an event, in the order of their addresses.

    A *segment* is a range of addresses that the allocator got from the device. Only
    those of the end are recorded. Others are worked out by undoing events, from the end
    or from the nearest later moment that is known already: before an event that adds a
    segment, it was not there.

    Args:
        history: The history of the device.
        event: The event, or BEFORE for the moment before the first one.
    """
    log = prepare_segment_log(history)
    changes_then = int(np.searchsorted(log.events, event, side="right"))
    nearest = min(count for count in log.segments_after if count >= changes_then)

    segments = SegmentMap(log.segments_after[nearest])
    for change in reversed(range(changes_then, nearest)):
        _undo_segment_event(history, int(log.events[change]), segments)

        # Change n is undone, so n changes are left. Keep some of these states: the next
        # moment is then found in few steps.
        if change % CHANGES_BETWEEN_KEPT == 0:
            log.segments_after[change] = segments.segments

    return segments.segments


CHANGES_BETWEEN_KEPT = 1000
"""Events that change segments, between two of which the segments before them are
kept."""


class SegmentLog(NamedTuple):
    """The events that change segments, and the segments at some moments."""

    events: Rows
    # by how many of `events` have happened; at least those of the end
    segments_after: dict[int, tuple[Segment, ...]]


@memo()
def prepare_segment_log(history: History) -> SegmentLog:
    """Return what is known about the segments of a device at each moment.

    A *segment* is a range of addresses that the allocator got from the device. At first
    only the segments of the end are known; `restore_segments` adds others.
    """
    segments = SegmentMap()
    for row in history.segments.tolist():
        segments.add(_read_segment(history.snapshot, row))

    is_change = np.isin(history.events.action, (*SEGMENT_GIVEN, *SEGMENT_TAKEN))
    changes = np.flatnonzero(is_change)
    return SegmentLog(events=changes, segments_after={len(changes): segments.segments})


def _read_segment(snapshot: Snapshot, row: int) -> Segment:
    """Read one segment from the tables of a snapshot. A *segment* is a range of
    addresses that the allocator got from the device. `row` is its row in the table of
    segments."""
    columns = snapshot.segments
    return Segment(
        address=int(columns.address[row]),
        size=int(columns.total_size[row]),
        stream=int(columns.stream[row]),
        pool=name_pool(snapshot, int(columns.pool[row])),
        is_large=bool(columns.is_large[row]),
        is_expandable=bool(columns.is_expandable[row]),
    )


def _undo_segment_event(history: History, event: int, segments: SegmentMap) -> None:
    """Undo what an event did to the segments of a device, in place.

    E.g. if the event adds a segment, this is removed again.

    Args:
        history: The history of the device.
        event: The event, which changes segments.
        segments: The segments after the event; they become those before it.
    """
    events = history.events
    action = int(events.action[event])
    address = int(events.addr[event])
    size = int(events.size[event])
    if action in SEGMENT_GIVEN:
        segments.cut_out(address, size)
        return

    # Only expandable segments are unmapped page by page.
    is_of_expandable = action == MemoryAction.SEGMENT_UNMAP
    taken = Segment(
        address=address,
        size=size,
        stream=int(events.stream[event]),
        pool=name_pool(history.snapshot, int(events.pool[event])),
        is_large=size > PAGE_BYTES,  # a segment for small blocks has one page
        is_expandable=is_of_expandable,
    )
    if is_of_expandable:
        segments.add_pages(taken)
    else:
        segments.add(taken)


def is_expandable(history: History) -> bool:
    """Return whether a device has expandable segments, which grow page by page.

    That is so if the settings ask for them, if a segment is marked as such, or if an
    event maps or unmaps pages.
    """
    snapshot = history.snapshot
    settings = snapshot.settings

    # The settings of the program come as a value or as an environment variable.
    variable = str(settings.get("PYTORCH_CUDA_ALLOC_CONF", ""))
    is_in_variable = "expandable_segments:true" in variable.replace(" ", "").lower()
    is_set = settings.get("expandable_segments") is True or is_in_variable

    # Only expandable segments are mapped page by page.
    page_actions = (MemoryAction.SEGMENT_MAP, MemoryAction.SEGMENT_UNMAP)
    was_mapped = np.isin(history.events.action, page_actions).any()
    is_any_expandable = snapshot.segments.is_expandable[history.segments].any()
    return bool(is_set or was_mapped or is_any_expandable)


def rounds_up_requests(history: History) -> bool:
    """Return whether the allocator rounds requests up to parts of powers of 2.

    Then the requested sizes say little about the sizes of blocks.
    """
    divisions = history.snapshot.settings.get("roundup_power2_divisions")
    if not isinstance(divisions, dict):
        return False
    return any(isinstance(parts, int) and parts > 0 for parts in divisions.values())


def name_pool(snapshot: Snapshot, pool: int) -> tuple[int, int]:
    """Return the name of a memory pool by its row in the snapshot. The row -1 stands
    for the common pool, whose name is COMMON_POOL."""
    return snapshot.pools[pool] if pool >= 0 else COMMON_POOL


class SegmentMap:
    """A set of segments that is sorted by address and can be changed."""

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        """Begin with these segments."""
        self._by_address = {segment.address: segment for segment in segments}
        self._addresses = sorted(self._by_address)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments in the order of their addresses."""
        return tuple(self._by_address[address] for address in self._addresses)

    def add(self, segment: Segment) -> None:
        """Add a segment; it replaces one at the same address."""
        if segment.address not in self._by_address:
            insort(self._addresses, segment.address)
        self._by_address[segment.address] = segment

    def add_pages(self, pages: Segment) -> None:
        """Add pages, and merge them with the expandable segments that they touch.

        Only segments of the same stream are merged.

        Args:
            pages: The pages, as a segment of their own.
        """
        merged = pages
        next_position = bisect_right(self._addresses, pages.address)
        before_and_behind = slice(max(next_position - 1, 0), next_position + 1)
        for address in self._addresses[before_and_behind]:
            neighbor = self._by_address[address]
            if not neighbor.is_expandable or neighbor.stream != pages.stream:
                continue

            ends_before = neighbor.address + neighbor.size == merged.address
            begins_behind = neighbor.address == merged.address + merged.size
            if ends_before or begins_behind:
                del self._by_address[address]
                self._addresses.remove(address)
                merged = replace(
                    merged,
                    address=min(neighbor.address, merged.address),
                    size=neighbor.size + merged.size,
                )

        self.add(merged)

    def cut_out(self, address: int, size: int) -> None:
        """Take a range of addresses out of the segment that holds it.

        What is left of the segment on either side stays. Nothing happens if no segment
        holds the whole range.
        """
        position = bisect_right(self._addresses, address) - 1
        if position < 0:
            return

        segment = self._by_address[self._addresses[position]]
        end = address + size
        bytes_before = address - segment.address
        bytes_after = segment.address + segment.size - end
        if bytes_after < 0:
            return

        self._addresses.pop(position)
        del self._by_address[segment.address]
        if bytes_before:
            self.add(replace(segment, size=bytes_before))

        if bytes_after:
            self.add(replace(segment, address=end, size=bytes_after))


class Waste(msgspec.Struct, frozen=True):
    """The reserved memory after an event, and how it is divided.

    Active, rounding, split and cached bytes add up to `reserved_bytes`. The last three
    are None if blocks and segments contradict each other.
    """

    reserved_bytes: int
    active_bytes: int  # what the program requested
    rounding_bytes: int | None  # of blocks, beyond what was requested
    split_bytes: int | None  # holes in segments that have a live allocation
    cached_bytes: int | None  # of segments without a live allocation
    largest_bytes: int | None  # the largest hole of `split_bytes`
    # False: `rounding_bytes` is the least amount, and `split_bytes` the largest
    is_exact: bool


def measure_waste(history: History, event: int, placement: SegmentLayout) -> Waste:
    """Divide the memory that a device reserves after an event by what it is used for.

    E.g. live allocations, rounding, and free ranges of different kinds.

    Args:
        history: The history of the device.
        event: The event, or BEFORE for the moment before the first one.
        placement: The segments at that moment, with their free ranges.
    """
    reserved_bytes = sum(segment.size for segment in placement.segments)
    active_bytes = history.active_after(event)
    hole_bytes = int(placement.size.sum())
    rounding_bytes = reserved_bytes - hole_bytes - active_bytes

    # A live allocation outside of all segments contradicts them.
    is_live = history.occupied.mark_live_after(event)
    is_outside = placement.segment_of_allocation[is_live] < 0
    if rounding_bytes < 0 or is_outside.any():
        return Waste(
            reserved_bytes=reserved_bytes,
            active_bytes=active_bytes,
            rounding_bytes=None,
            split_bytes=None,
            cached_bytes=None,
            largest_bytes=None,
            is_exact=False,
        )

    # Holes in segments without any allocation are cached, all others are split.
    is_split = placement.mark_segments_in_use()[placement.segment]
    split_holes = placement.size[is_split]
    split_bytes = int(split_holes.sum())

    is_sure = not placement.slack.any() and not rounds_up_requests(history)
    return Waste(
        reserved_bytes=reserved_bytes,
        active_bytes=active_bytes,
        rounding_bytes=rounding_bytes,
        split_bytes=split_bytes,
        cached_bytes=hole_bytes - split_bytes,
        largest_bytes=int(split_holes.max(initial=0)),
        is_exact=is_sure and not _has_split_limit(history),
    )


def _has_split_limit(history: History) -> bool:
    """Return whether a setting bounds the blocks that are split.

    Then rests are split off otherwise than `_find_unsplit_rests` expects.
    """
    limit = history.snapshot.settings.get("max_split_size")
    return isinstance(limit, int) and 0 < limit < NO_SPLIT_LIMIT_BYTES


def measure_fragmentation(history: History, event: int) -> Waste | None:
    """Return the waste after an event if memory is fragmented then, else None.

    Memory is *fragmented* if at least a third (MIN_FRAGMENTED_SHARE) of what is
    reserved lies in holes in front of live blocks, and the largest hole is at most a
    quarter (MAX_HOLE_SHARE) of them. E.g. of 9 GB reserved, six holes of 0.5 GB each.

    Args:
        history: The history of the device.
        event: The event, or BEFORE.

    Returns:
        The waste, whose `split_bytes` and `largest_bytes` are those of these holes.
        None too if blocks and segments contradict each other.
    """
    placement = compute_layout(history, event)
    total_waste = measure_waste(history, event, placement)
    if total_waste.rounding_bytes is None:
        return None

    hole_bytes = _measure_holes_before_blocks(placement)
    split_bytes = int(hole_bytes.sum())
    largest_bytes = int(hole_bytes.max(initial=0))

    min_bytes = MIN_FRAGMENTED_SHARE * total_waste.reserved_bytes
    is_large_share = min_bytes > 0 and split_bytes >= min_bytes
    is_scattered = largest_bytes <= MAX_HOLE_SHARE * split_bytes
    if not (is_large_share and is_scattered):
        return None

    return replace(total_waste, split_bytes=split_bytes, largest_bytes=largest_bytes)


def _measure_holes_before_blocks(placement: SegmentLayout) -> Int64s:
    """Return the bytes of each hole in front of a live block; 0 for other holes.

    Whole pages of expandable segments do not count: they can be given back.
    """
    segments = placement.segments
    are_expandable = np.array([segment.is_expandable for segment in segments], np.bool_)
    is_in_expandable = are_expandable[placement.segment]
    given_back = np.where(is_in_expandable, placement.measure_returnable_bytes(), 0)

    # A hole that does not end with its segment ends at a block.
    end_of_segment = _segment_ends(segments)[placement.segment]
    is_before_block = placement.end < end_of_segment
    return np.where(is_before_block, placement.size - given_back, 0)


def list_private_pools(history: History) -> list[int]:
    """Return how many bytes each private memory pool reserves at the end, the largest
    first.

    A CUDA graph has a private pool. Pools that reserve nothing are left out.
    """
    snapshot = history.snapshot
    reserved: Counter[tuple[int, int]] = Counter()
    for row in history.segments.tolist():
        pool = name_pool(snapshot, int(snapshot.segments.pool[row]))
        reserved[pool] += int(snapshot.segments.total_size[row])

    del reserved[COMMON_POOL]
    return sorted((size for size in reserved.values() if size), reverse=True)
