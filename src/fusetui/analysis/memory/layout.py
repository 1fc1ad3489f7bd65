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
    History,
)
from fusetui.trace.model.arrays import Flags, Int64s, Rows, summed
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
    living = np.flatnonzero(lives.at(event))
    living = living[np.argsort(lives.address[living], kind="stable")]
    begins = _addresses(segments)
    ends = _ends(segments)
    segment = np.searchsorted(begins, lives.address[living], side="right") - 1
    # the last entry is that of segment -1
    inside = (segment >= 0) & (lives.address[living] < np.append(ends, 0)[segment])
    living = living[inside]
    segment = segment[inside]
    segment_of_life = np.full(len(lives), -1)
    segment_of_life[living] = segment

    starts = lives.address[living]
    sizes, may_be_larger = _block_sizes(history, event, living, segments, segment)

    # A gap begins at the begin of a segment or the end of a block, and ends at the next
    # block or the end of the segment. Each has its place among the begins of segments
    # and blocks; those that are not empty are holes.
    boundaries = np.concatenate([begins, starts])
    by_address = np.argsort(boundaries, kind="stable")
    gap_start = np.concatenate([begins, starts + sizes])[by_address]
    gap_segment = np.concatenate([np.arange(len(segments)), segment])[by_address]
    next_boundary = np.append(boundaries[by_address][1:], 0)
    is_last_of_segment = np.append(gap_segment[1:] != gap_segment[:-1], True)
    is_last_of_segment = is_last_of_segment[: len(by_address)]  # none without segments
    gap_end = np.where(is_last_of_segment, ends[gap_segment], next_boundary)
    is_behind_unsure = np.concatenate(
        [np.zeros(len(segments), np.bool_), may_be_larger]
    )[by_address]
    is_hole = gap_end > gap_start
    return SegmentLayout(
        segments=segments,
        segment=gap_segment[is_hole],
        start=gap_start[is_hole],
        end=gap_end[is_hole],
        slack=is_behind_unsure[is_hole] * UNSPLIT_BYTES,
        lives=segment_of_life,
    )


def _block_sizes(
    history: History,
    event: int,
    living: Rows,
    segments: tuple[Segment, ...],
    segment_row: Rows,
) -> tuple[Int64s, Flags]:
    """The bytes of the block of each of `living` (rows of History.occupied), and
    whether it may be larger. Of a block that lives at the end its size is recorded; of
    one that is gone it is worked out. `segment_row`: the row in `segments` that each is
    in."""
    lives = history.occupied
    block = lives.block[living]  # -1: it is gone at the end
    units = -(-np.maximum(lives.size[living], 1) // ALLOCATION_UNIT_BYTES)  # rounded up
    sizes_at_end = np.append(history.snapshot.blocks.size, 0)
    sizes = np.where(block >= 0, sizes_at_end[block], units * ALLOCATION_UNIT_BYTES)
    # in segments for small blocks and in expandable ones every rest is split off
    has_unsplit_rests = np.array(
        [segment.is_large and not segment.is_expandable for segment in segments],
        np.bool_,
    )
    is_gone = block < 0
    gone = np.flatnonzero(is_gone & has_unsplit_rests[segment_row])
    rests, may_be_more = _unsplit_rests(
        history, living[gone], sizes[gone], _ends(segments)[segment_row[gone]], event
    )
    sizes[gone] += rests
    may_be_larger = np.zeros(len(living), np.bool_)
    may_be_larger[gone] = may_be_more
    return sizes, may_be_larger


def _unsplit_rests(
    history: History, rows: Rows, sizes: Int64s, limit: Int64s, event: int
) -> tuple[Int64s, Flags]:
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
    return np.where(is_rest, np.maximum(gap, 0), 0), ~is_rest & is_early


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
    columns = history.snapshot.segments
    segments = SegmentMap()
    for row in history.segments.tolist():
        segments.add(
            Segment(
                address=int(columns.address[row]),
                size=int(columns.total_size[row]),
                stream=int(columns.stream[row]),
                pool=pool_of(history.snapshot, int(columns.pool[row])),
                is_large=bool(columns.is_large[row]),
                is_expandable=bool(columns.is_expandable[row]),
            )
        )
    is_change = np.isin(history.events.action, (*SEGMENT_GIVEN, *SEGMENT_TAKEN))
    changes = np.flatnonzero(is_change)
    return SegmentLog(events=changes, segments_after={len(changes): segments.segments})


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
            touches = (
                pages.address == neighbor.address + neighbor.size
                or neighbor.address == pages.address + pages.size
            )
            if touches:
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
    max_split = history.snapshot.settings.get("max_split_size")
    # with such a limit, blocks are split otherwise than `_unsplit_rests` expects
    has_split_limit = (
        isinstance(max_split, int) and 0 < max_split < NO_SPLIT_LIMIT_BYTES
    )
    is_sure = not placement.slack.any() and not rounds_up(history)
    return Waste(
        reserved_bytes=reserved,
        active_bytes=active,
        rounding_bytes=rounding,
        split_bytes=split,
        cached_bytes=holes - split,
        largest_bytes=int(split_holes.max(initial=0)),
        is_exact=is_sure and not has_split_limit,
    )


def torn(history: History, event: int) -> Waste | None:
    """The waste after an event if memory is torn then: at least MIN_TORN_SHARE of what
    is reserved lies in holes in front of blocks that live, and the largest of these
    holes is at most MAX_PIECE_SHARE of them. `split_bytes` and `largest_bytes` are
    those of these holes. None if it is not torn, or blocks and segments do not fit
    together."""
    placement = layout(history, event)
    is_expandable_segment = np.array(
        [segment.is_expandable for segment in placement.segments], np.bool_
    )
    is_in_expandable = is_expandable_segment[placement.segment]
    # of expandable segments, whole pages can be given back
    given_back = np.where(is_in_expandable, placement.returnable(), 0)
    is_before_block = placement.end < _ends(placement.segments)[placement.segment]
    pieces = np.where(is_before_block, placement.size - given_back, 0)
    total = int(pieces.sum())
    largest = int(pieces.max(initial=0))
    of_all = waste(history, event, placement)
    if of_all.rounding_bytes is None:
        return None
    min_bytes = MIN_TORN_SHARE * of_all.reserved_bytes
    is_much = min_bytes > 0 and total >= min_bytes
    if not is_much or largest > MAX_PIECE_SHARE * total:
        return None
    return replace(of_all, split_bytes=total, largest_bytes=largest)


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
