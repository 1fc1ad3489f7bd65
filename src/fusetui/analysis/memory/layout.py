"""Where allocations lie in the segments at a moment, and the holes between them.

At the end the blocks say it. Before, segments are put back as events say, and a block
that is gone is as large as the allocator rounds: 512 bytes, and in a large pool what
was not worth splitting off, up to 1 MB, by what followed it when it was allocated.
Where that was before the first event, `slack` of a hole is how much of it may be of the
block.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.analysis.memory.history import (
    BEFORE,
    SEGMENT_GIVEN,
    SEGMENT_TAKEN,
    UNSPLIT_BYTES,
    Allocations,
    History,
)
from fusetui.trace.model.arrays import Flags, Int64s, Rows, at, ends_runs, summed
from fusetui.trace.model.memo import memo
from fusetui.trace.snapshot.columns import MemoryAction, Snapshot

ALLOCATION_UNIT_BYTES = 512
"""The allocator rounds sizes up to multiples of it."""

PAGE_BYTES = 2 << 20
"""What an expandable segment maps at once, and the size of a small segment."""

COMMON_POOL = (0, 0)
"""The name of the pool that all share."""

MIN_TORN_SHARE = 1 / 3
"""Memory is torn where at least this share of what is reserved is in pieces."""

MAX_PIECE_SHARE = 1 / 4
"""Memory is torn where the largest piece is at most this share of all pieces."""


class Segment(msgspec.Struct, frozen=True):
    """What the device gave, contiguous."""

    address: int
    size: int
    stream: int
    pool: tuple[int, int]
    is_large: bool
    is_expandable: bool


NO_SPLIT_LIMIT_BYTES = 1 << 62
"""A setting of max_split_size from which on it bounds nothing."""


class SegmentLayout(msgspec.Struct, frozen=True, eq=False):
    """The segments at a moment, the holes in them, and which lives are in which. Arrays
    are of shape [holes], by address, but for `lives`."""

    segments: tuple[Segment, ...]
    segment: Int64s  # of each hole, the row in `segments`
    start: Int64s  # of each hole, its first address
    end: Int64s  # the address behind it
    slack: Int64s  # how many of its bytes may belong to the block before it
    # shape [lives of History.occupied]: the row in `segments` that each is in, -1 if it
    # does not live at the moment or is in none
    lives: Int64s

    @property
    def size(self) -> Int64s:
        """Bytes of each hole."""
        return self.end - self.start

    def returnable(self, least: bool = False) -> Int64s:
        """The bytes of whole pages in each hole, which could be given back; `least`:
        without what may belong to a block."""
        base = _addresses(self.segments)[self.segment]
        start = self.start - base
        if least:
            start = start + np.minimum(self.slack, self.size)
        first_page = -(-start // PAGE_BYTES)  # rounded up
        end_page = (self.end - base) // PAGE_BYTES
        return np.maximum(end_page - first_page, 0) * PAGE_BYTES

    def usable(self, like: Segment) -> Flags:
        """Which holes are in segments of the same pool, stream and kind (large or
        small) as `like`; shape [holes]."""
        is_like: list[bool] = []
        for segment in self.segments:
            is_same_kind = segment.is_large == like.is_large
            is_same_stream = segment.stream == like.stream
            is_same_pool = segment.pool == like.pool
            is_like.append(is_same_kind and is_same_stream and is_same_pool)
        return np.array([*is_like, False], np.bool_)[self.segment]


def _addresses(segments: tuple[Segment, ...]) -> Int64s:
    """Where each segment begins."""
    return np.array([segment.address for segment in segments], np.int64)


def _ends(segments: tuple[Segment, ...]) -> Int64s:
    """The address behind each segment."""
    return np.array([segment.address + segment.size for segment in segments], np.int64)


def layout(
    history: History, event: int, segments: tuple[Segment, ...] | None = None
) -> SegmentLayout:
    """The segments after an event (or BEFORE) with their lives and holes. `segments`:
    those of that moment by address; None: they are worked out."""
    if segments is None:
        segments = segments_at(history, event)
    lives = history.occupied
    placed = _placed(lives, event, segments)
    blocks = _blocks(history, event, placed, segments)
    gaps = _gaps(blocks, segments)
    is_hole = gaps.end > gaps.start
    segment_of_life = np.full(len(lives), -1)
    segment_of_life[placed.row] = placed.segment
    return SegmentLayout(
        segments=segments,
        segment=gaps.segment[is_hole],
        start=gaps.start[is_hole],
        end=gaps.end[is_hole],
        slack=gaps.is_behind_unsure[is_hole] * UNSPLIT_BYTES,
        lives=segment_of_life,
    )


class _Placed(NamedTuple):
    """What lives in segments at a moment, by address; arrays of shape [placed]."""

    row: Rows  # of History.occupied
    segment: Rows  # the row in the segments


def _placed(lives: Allocations, event: int, segments: tuple[Segment, ...]) -> _Placed:
    """What lives after an event and lies in one of these segments."""
    living = np.flatnonzero(lives.at(event))
    living = living[np.argsort(lives.address[living], kind="stable")]
    address = lives.address[living]
    segment = np.searchsorted(_addresses(segments), address, side="right") - 1
    end = at(_ends(segments), segment, missing=0)
    is_inside = (segment >= 0) & (address < end)
    return _Placed(row=living[is_inside], segment=segment[is_inside])


class _Gaps(NamedTuple):
    """What is behind each begin of a segment and behind each block, by address; arrays
    of shape [segments + blocks]. A gap may be empty."""

    segment: Rows
    start: Int64s
    end: Int64s  # the address behind it
    is_behind_unsure: Flags  # the block before it may be larger


def _gaps(blocks: _PlacedBlocks, segments: tuple[Segment, ...]) -> _Gaps:
    """The gaps between blocks, up to the next block or the end of the segment."""
    begins = _addresses(segments)
    segment_ends = _ends(segments)
    boundaries = np.concatenate([begins, blocks.start])
    by_address = np.argsort(boundaries, kind="stable")
    start = np.concatenate([begins, blocks.start + blocks.size])[by_address]
    segment_rows = np.arange(len(segments))
    segment = np.concatenate([segment_rows, blocks.segment])[by_address]
    next_boundary = np.append(boundaries[by_address][1:], 0)
    is_sure = np.zeros(len(segments), np.bool_)
    is_behind_unsure = np.concatenate([is_sure, blocks.may_be_larger])[by_address]
    return _Gaps(
        segment=segment,
        start=start,
        end=np.where(ends_runs(segment), segment_ends[segment], next_boundary),
        is_behind_unsure=is_behind_unsure,
    )


class _PlacedBlocks(NamedTuple):
    """The blocks of what lives in segments, by address; arrays of shape [blocks]."""

    segment: Rows  # the row in the segments
    start: Int64s
    size: Int64s
    may_be_larger: Flags


def _blocks(
    history: History, event: int, placed: _Placed, segments: tuple[Segment, ...]
) -> _PlacedBlocks:
    """The block of each life that is placed. Of a block that lives at the end its size
    is recorded; of one that is gone it is worked out."""
    lives = history.occupied
    block = lives.block[placed.row]  # -1: it is gone at the end
    is_gone = block < 0
    asked = np.maximum(lives.size[placed.row], 1)
    units = -(-asked // ALLOCATION_UNIT_BYTES)  # rounded up
    sizes_at_end = np.append(history.snapshot.blocks.size, 0)
    size = np.where(is_gone, units * ALLOCATION_UNIT_BYTES, sizes_at_end[block])
    # in segments for small blocks and in expandable ones every rest is split off
    has_unsplit_rests = np.array(
        [segment.is_large and not segment.is_expandable for segment in segments],
        np.bool_,
    )
    unsure = np.flatnonzero(is_gone & has_unsplit_rests[placed.segment])
    end_of_segment = _ends(segments)[placed.segment[unsure]]
    rests = _unsplit_rests(
        history, placed.row[unsure], size[unsure], end_of_segment, event
    )
    size[unsure] += rests.bytes
    may_be_larger = np.zeros(len(size), np.bool_)
    may_be_larger[unsure] = rests.may_be_more
    return _PlacedBlocks(
        segment=placed.segment,
        start=lives.address[placed.row],
        size=size,
        may_be_larger=may_be_larger,
    )


class _Rests(NamedTuple):
    """What belongs to blocks behind what was asked for; arrays of shape [blocks]."""

    bytes: Int64s
    may_be_more: Flags


def _unsplit_rests(
    history: History, rows: Rows, sizes: Int64s, limit: Int64s, event: int
) -> _Rests:
    """For each of `rows` of History.occupied, all in segments for large blocks, the
    bytes behind its `sizes` that belong to its block because they were not worth
    splitting off; and whether it may be more. What is free behind an allocation and no
    larger than UNSPLIT_BYTES is such a rest: free blocks there are larger. `limit`: the
    end of the segment of each."""
    lives = history.occupied
    start = lives.address[rows]
    born = lives.born[rows]
    is_early = born == BEFORE
    now = np.full(len(rows), event)
    gap_at_birth = lives.next_in_use(start, born, limit) - start - sizes
    gap_now = lives.next_in_use(start, now, limit) - start - sizes
    gap = np.where(is_early, np.minimum(gap_at_birth, gap_now), gap_at_birth)
    is_rest = gap <= UNSPLIT_BYTES
    rest = np.where(is_rest, np.maximum(gap, 0), 0)
    return _Rests(bytes=rest, may_be_more=~is_rest & is_early)


def segments_at(history: History, event: int) -> tuple[Segment, ...]:
    """The segments after an event (or BEFORE), by address: those of the end, or of the
    nearest later moment that is known, with what events did since then undone."""
    log = segment_log(history)
    count = int(np.searchsorted(log.events, event, side="right"))
    later_counts = [kept for kept in log.segments_after if kept >= count]
    nearest = min(later_counts)
    segments = SegmentMap(log.segments_after[nearest])
    for change in range(nearest - 1, count - 1, -1):
        _undo(history, int(log.events[change]), segments)
        happened = change  # so many changes have happened now
        if happened % CHANGES_BETWEEN_KEPT == 0:
            log.segments_after[happened] = segments.segments
    return segments.segments


CHANGES_BETWEEN_KEPT = 1000
"""Events that change segments, between two of which the segments before them are
kept."""


class SegmentLog(NamedTuple):
    """The events that change segments; and, by how many of them have happened, the
    segments then, at least those of the end."""

    events: Rows
    segments_after: dict[int, tuple[Segment, ...]]


@memo()
def segment_log(history: History) -> SegmentLog:
    """The log of a device, with the segments of the end."""
    segments = SegmentMap()
    for row in history.segments.tolist():
        segments.add(_segment(history.snapshot, row))
    is_change = np.isin(history.events.action, (*SEGMENT_GIVEN, *SEGMENT_TAKEN))
    changes = np.flatnonzero(is_change)
    return SegmentLog(events=changes, segments_after={len(changes): segments.segments})


def _segment(snapshot: Snapshot, row: int) -> Segment:
    """The segment in this row of the snapshot."""
    columns = snapshot.segments
    return Segment(
        address=int(columns.address[row]),
        size=int(columns.total_size[row]),
        stream=int(columns.stream[row]),
        pool=pool_of(snapshot, int(columns.pool[row])),
        is_large=bool(columns.is_large[row]),
        is_expandable=bool(columns.is_expandable[row]),
    )


def _undo(history: History, event: int, segments: SegmentMap) -> None:
    """Takes back what an event did to the `segments`, in place."""
    events = history.events
    action = int(events.action[event])
    address = int(events.addr[event])
    size = int(events.size[event])
    if action in SEGMENT_GIVEN:
        segments.cut(address, size)
        return
    is_page = action == MemoryAction.SEGMENT_UNMAP
    taken = Segment(
        address=address,
        size=size,
        stream=int(events.stream[event]),
        pool=pool_of(history.snapshot, int(events.pool[event])),
        is_large=size > PAGE_BYTES,
        is_expandable=is_page,
    )
    if is_page:
        segments.join(taken)
    else:
        segments.add(taken)


def is_expandable(history: History) -> bool:
    """Whether a segment is expandable, or the settings ask for it."""
    snapshot = history.snapshot
    settings = snapshot.settings
    variable = str(settings.get("PYTORCH_CUDA_ALLOC_CONF", ""))
    is_in_variable = "expandable_segments:true" in variable.replace(" ", "").lower()
    is_set = settings.get("expandable_segments") is True or is_in_variable
    maps = (MemoryAction.SEGMENT_MAP, MemoryAction.SEGMENT_UNMAP)
    was_mapped = np.isin(history.events.action, maps).any()
    is_any_expandable = snapshot.segments.is_expandable[history.segments].any()
    return bool(is_set or was_mapped or is_any_expandable)


def rounds_up(history: History) -> bool:
    """Whether the allocator rounds to parts of powers of 2, so that only its own sizes
    count."""
    divisions = history.snapshot.settings.get("roundup_power2_divisions")
    if not isinstance(divisions, dict):
        return False
    return any(isinstance(parts, int) and parts > 0 for parts in divisions.values())


def pool_of(snapshot: Snapshot, pool: int) -> tuple[int, int]:
    """The name of a pool by its row, COMMON_POOL for -1."""
    return snapshot.pools[pool] if pool >= 0 else COMMON_POOL


class SegmentMap:
    """Segments by address, in order."""

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        """At first with these segments."""
        self._by_address = {segment.address: segment for segment in segments}
        self._addresses = sorted(self._by_address)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """In the order of their addresses."""
        return tuple(self._by_address[address] for address in self._addresses)

    def add(self, segment: Segment) -> None:
        """Adds a segment; it takes the place of one at the same address."""
        if segment.address not in self._by_address:
            insort(self._addresses, segment.address)
        self._by_address[segment.address] = segment

    def join(self, pages: Segment) -> None:
        """Adds pages, as one segment with the expandable segments of their stream that
        end where they begin or begin where they end."""
        place = bisect_right(self._addresses, pages.address)
        for address in self._addresses[max(place - 1, 0) : place + 1]:
            neighbor = self._by_address[address]
            if not neighbor.is_expandable or neighbor.stream != pages.stream:
                continue
            ends_before = pages.address == neighbor.address + neighbor.size
            begins_behind = neighbor.address == pages.address + pages.size
            if ends_before or begins_behind:
                del self._by_address[address]
                self._addresses.remove(address)
                pages = replace(
                    pages,
                    address=min(address, pages.address),
                    size=neighbor.size + pages.size,
                )
        self.add(pages)

    def cut(self, address: int, size: int) -> None:
        """Takes a range out; the rest of its segment stays, on both sides. Nothing
        happens if no segment holds all of it."""
        place = bisect_right(self._addresses, address) - 1
        if place < 0:
            return
        segment = self._by_address[self._addresses[place]]
        end = address + size
        bytes_before = address - segment.address
        bytes_after = segment.address + segment.size - end
        if bytes_after < 0:
            return
        del self._by_address[self._addresses.pop(place)]
        if bytes_before:
            self.add(replace(segment, size=bytes_before))
        if bytes_after:
            self.add(replace(segment, address=end, size=bytes_after))


class Waste(msgspec.Struct, frozen=True):
    """Reserved memory after an event, and its parts: active, rounding, split and
    cached add up to `reserved_bytes`. None if blocks and segments contradict each
    other."""

    reserved_bytes: int
    active_bytes: int  # what was asked for
    rounding_bytes: int | None  # with what was not worth splitting off
    split_bytes: int | None  # inactive, in segments in which something lives
    cached_bytes: int | None  # of segments in which nothing lives
    largest_bytes: int | None  # the largest hole of split_bytes
    is_exact: bool  # else rounding is at least so much, and split_bytes at most


def waste(history: History, event: int, placement: SegmentLayout) -> Waste:
    """The waste of all segments of the device after an event, or BEFORE. `placement`:
    what lies in them then."""
    reserved = sum(segment.size for segment in placement.segments)
    active = history.active_after(event)
    holes = int(placement.size.sum())
    rounding = reserved - holes - active
    is_outside = placement.lives[history.occupied.at(event)] < 0
    if rounding < 0 or is_outside.any():
        return Waste(
            reserved_bytes=reserved,
            active_bytes=active,
            rounding_bytes=None,
            split_bytes=None,
            cached_bytes=None,
            largest_bytes=None,
            is_exact=False,
        )
    holds_lives = np.zeros(len(placement.segments), np.bool_)
    holds_lives[placement.lives[placement.lives >= 0]] = True
    split_holes = placement.size[holds_lives[placement.segment]]
    split = int(split_holes.sum())
    is_sure = not placement.slack.any() and not rounds_up(history)
    return Waste(
        reserved_bytes=reserved,
        active_bytes=active,
        rounding_bytes=rounding,
        split_bytes=split,
        cached_bytes=holes - split,
        largest_bytes=int(split_holes.max(initial=0)),
        is_exact=is_sure and not _has_split_limit(history),
    )


def _has_split_limit(history: History) -> bool:
    """Whether a setting bounds the blocks that are split: then these are split
    otherwise than `_unsplit_rests` expects."""
    limit = history.snapshot.settings.get("max_split_size")
    return isinstance(limit, int) and 0 < limit < NO_SPLIT_LIMIT_BYTES


def torn(history: History, event: int) -> Waste | None:
    """The waste after an event if memory is torn then: at least MIN_TORN_SHARE of what
    is reserved lies in holes in front of blocks that live, and the largest of these
    holes is at most MAX_PIECE_SHARE of them. `split_bytes` and `largest_bytes` are
    those of these holes. None if it is not torn, or blocks and segments do not fit
    together."""
    placement = layout(history, event)
    of_all = waste(history, event, placement)
    if of_all.rounding_bytes is None:
        return None
    pieces = _pieces(placement)
    total = int(pieces.sum())
    largest = int(pieces.max(initial=0))
    min_bytes = MIN_TORN_SHARE * of_all.reserved_bytes
    is_much = min_bytes > 0 and total >= min_bytes
    if not is_much or largest > MAX_PIECE_SHARE * total:
        return None
    return replace(of_all, split_bytes=total, largest_bytes=largest)


def _pieces(placement: SegmentLayout) -> Int64s:
    """The bytes of each hole in front of a block, but for whole pages of expandable
    segments, which can be given back; 0 for other holes."""
    is_expandable_segment = np.array(
        [segment.is_expandable for segment in placement.segments], np.bool_
    )
    is_in_expandable = is_expandable_segment[placement.segment]
    given_back = np.where(is_in_expandable, placement.returnable(), 0)
    end_of_segment = _ends(placement.segments)[placement.segment]
    is_before_block = placement.end < end_of_segment
    return np.where(is_before_block, placement.size - given_back, 0)


def private_pools(history: History) -> list[int]:
    """The bytes that each private pool, as that of a CUDA graph, reserves at the end,
    without pools that reserve nothing; the largest first."""
    pools = history.snapshot.pools
    segments = history.snapshot.segments
    rows = history.segments
    # the last entry is that of row -1
    reserved = summed(segments.pool[rows], segments.total_size[rows], len(pools) + 1)
    sizes: list[int] = []
    for pool, size in zip(pools, reserved[: len(pools)].tolist(), strict=True):
        if pool != COMMON_POOL and size:
            sizes.append(size)
    return sorted(sizes, reverse=True)
