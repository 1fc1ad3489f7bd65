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
from fusetui.trace.model.memo import once
from fusetui.trace.snapshot.columns import MemoryAction, Snapshot

ROUND = 512
PAGE = 2 << 20  # that an expandable segment maps, and the size of a small segment
COMMON = (0, 0)  # the pool that all share
TORN = 1 / 3  # of what is reserved, in pieces
PIECE = 1 / 4  # of them, at most the largest


class Segment(msgspec.Struct, frozen=True):
    """What the device gave, contiguous."""

    address: int
    size: int
    stream: int
    pool: tuple[int, int]
    is_large: bool
    is_expandable: bool


class SegmentLayout(msgspec.Struct, frozen=True, eq=False):
    """Holes are of shape [holes], `segment` a row of `segments`; from `start` to `end`,
    addresses. `lives` of shape [lives of History.occupied]: the segment that each is
    in, else -1."""

    segments: tuple[Segment, ...]
    segment: Int64s
    start: Int64s
    end: Int64s
    slack: Int64s
    lives: Int64s

    @property
    def size(self) -> Int64s:
        return self.end - self.start

    def returnable(self, least: bool = False) -> Int64s:
        """The bytes of whole pages in each hole; `least`: without what may belong to a
        block."""
        base = np.array([one.address for one in self.segments], np.int64)[self.segment]
        first = self.start - base + (np.minimum(self.slack, self.size) if least else 0)
        whole = (self.end - base) // PAGE - -(-first // PAGE)
        return np.maximum(whole, 0) * PAGE

    def usable(self, like: Segment) -> Flags:
        """Which holes are in the pool and on the stream of a segment."""
        key = (like.stream, like.pool, like.is_large)
        found = [(one.stream, one.pool, one.is_large) == key for one in self.segments]
        return np.array([*found, False], np.bool_)[self.segment]


def layout(
    history: History, event: int, segments: tuple[Segment, ...] | None = None
) -> SegmentLayout:
    """What lies where after an event; `segments`: those of that moment, where they are
    known."""
    segments = segments_at(history, event) if segments is None else segments
    lives, blocks = history.occupied, history.snapshot.blocks
    living = np.flatnonzero(lives.at(event))
    living = living[np.argsort(lives.address[living], kind="stable")]
    known = lives.block[living]
    rounded = -(-np.maximum(lives.size[living], 1) // ROUND) * ROUND
    sizes = np.where(known >= 0, np.append(blocks.size, 0)[known], rounded)
    begins = np.array([one.address for one in segments], np.int64)
    ends = begins + np.array([one.size for one in segments], np.int64)
    place = np.searchsorted(begins, lives.address[living], side="right") - 1
    inside = (place >= 0) & (lives.address[living] < np.append(ends, 0)[place])
    own = np.full(len(lives), -1)
    own[living[inside]] = place[inside]
    place, starts, sizes = place[inside], lives.address[living[inside]], sizes[inside]
    growing = np.array(
        [one.is_large and not one.is_expandable for one in segments], np.bool_
    )
    gone = np.flatnonzero((known[inside] < 0) & growing[place])
    kept, may_be_more = _rests(
        history, living[inside][gone], sizes[gone], ends[place[gone]], event
    )
    sizes[gone] += kept
    unsure = np.zeros(len(place), np.bool_)
    unsure[gone] = may_be_more
    # A hole begins where a segment or a block ends, and ends at the next block or the
    # segment.
    order = np.argsort(np.concatenate([begins, starts]), kind="stable")
    hole_start = np.concatenate([begins, starts + sizes])[order]
    of = np.concatenate([np.arange(len(segments)), place])[order]
    slack = (
        np.concatenate([np.zeros(len(segments), np.bool_), unsure])[order]
        * UNSPLIT_BYTES
    )
    following = np.append(np.concatenate([begins, starts])[order][1:], 0)
    last = np.append(of[1:] != of[:-1], True)[: len(of)]
    hole_end = np.where(last, ends[of], following)
    real = hole_end > hole_start
    return SegmentLayout(
        segments, of[real], hole_start[real], hole_end[real], slack[real], own
    )


def _rests(
    history: History, rows: Rows, sizes: Int64s, limit: Int64s, event: int
) -> tuple[Int64s, Flags]:
    """What was not worth splitting off of blocks of a large pool, and where it may be
    more: free blocks there are larger than that, so what is not is of the block
    before."""
    lives = history.occupied
    start, born = lives.address[rows], lives.born[rows]
    first = lives.next_in_use(start, born, limit) - start - sizes
    last = lives.next_in_use(start, np.full(len(rows), event), limit) - start - sizes
    gap = np.where(born == BEFORE, np.minimum(first, last), first)
    unsplit = gap <= UNSPLIT_BYTES
    return np.where(unsplit, np.maximum(gap, 0), 0), ~unsplit & (born == BEFORE)


def segments_at(history: History, event: int) -> tuple[Segment, ...]:
    """Those of the end, with what events did to them undone, by address; or those of a
    later moment that was looked at before."""
    changes, known = once(history, segment_log)
    number = int(np.searchsorted(changes, event, side="right"))
    last = min(one for one in [*known] if one >= number)
    found = Stretches(known[last])
    for at in range(last - 1, number - 1, -1):
        _undo(history, int(changes[at]), found)
        if at % EVERY == 0:
            known[at] = found.segments
    return found.segments


EVERY = 1000  # events that change segments; what there was before one of them is kept


def segment_log(history: History) -> tuple[Rows, dict[int, tuple[Segment, ...]]]:
    """The events that change segments, and the segments by how many of these were
    before."""
    segments, changes = (
        history.snapshot.segments,
        np.isin(history.events.action, (*SEGMENT_GIVEN, *SEGMENT_TAKEN)),
    )
    columns = (segments.address, segments.total_size, segments.stream, segments.pool)
    flags = (segments.is_large, segments.is_expandable)
    each = zip(
        *(of[history.segments].tolist() for of in (*columns, *flags)), strict=True
    )
    found = Stretches()
    for address, size, stream, pool, is_large, is_expandable in each:
        kind = pool_of(history.snapshot, pool), bool(is_large), bool(is_expandable)
        found.add(Segment(address, size, stream, *kind))
    return np.flatnonzero(changes), {int(changes.sum()): found.segments}


def _undo(history: History, row: int, found: Stretches) -> None:
    events = history.events
    action, address, size = (
        int(of[row]) for of in (events.action, events.addr, events.size)
    )
    if action in SEGMENT_GIVEN:
        found.cut(address, size)
        return
    is_page = action == MemoryAction.SEGMENT_UNMAP
    pool = pool_of(history.snapshot, int(events.pool[row]))
    one = Segment(address, size, int(events.stream[row]), pool, size > PAGE, is_page)
    found.join(one) if is_page else found.add(one)


def is_expandable(history: History) -> bool:
    """Whether a segment is expandable, or the settings ask for it."""
    snapshot = history.snapshot
    settings = snapshot.settings
    asked = str(settings.get("PYTORCH_CUDA_ALLOC_CONF", "")).replace(" ", "").lower()
    on = (
        settings.get("expandable_segments") is True
        or "expandable_segments:true" in asked
    )
    maps = MemoryAction.SEGMENT_MAP, MemoryAction.SEGMENT_UNMAP
    mapped = np.isin(history.events.action, maps).any()
    return bool(on or mapped or snapshot.segments.is_expandable[history.segments].any())


def rounds_up(history: History) -> bool:
    """Whether the allocator rounds to parts of powers of 2, so that only its own sizes
    count."""
    divisions = history.snapshot.settings.get("roundup_power2_divisions")
    values = divisions.values() if isinstance(divisions, dict) else ()
    return any(isinstance(one, int) and one > 0 for one in values)


def pool_of(snapshot: Snapshot, pool: int) -> tuple[int, int]:
    return snapshot.pools[pool] if pool >= 0 else COMMON


class Stretches:
    """Segments by address, in order."""

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        self.at = {one.address: one for one in segments}
        self.order = sorted(self.at)

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(map(self.at.__getitem__, self.order))

    def add(self, one: Segment) -> None:
        if one.address not in self.at:
            insort(self.order, one.address)
        self.at[one.address] = one

    def join(self, pages: Segment) -> None:
        """Adds pages to the expandable segments of the stream that they touch."""
        place = bisect_right(self.order, pages.address)
        beside = [
            self.at[address] for address in self.order[max(place - 1, 0) : place + 1]
        ]
        for one in beside:
            is_like = one.is_expandable and one.stream == pages.stream
            ends = one.address + one.size, pages.address + pages.size
            if is_like and (pages.address == ends[0] or one.address == ends[1]):
                del self.at[one.address]
                self.order.remove(one.address)
                first, size = min(one.address, pages.address), one.size + pages.size
                pages = replace(one, address=first, size=size)
        self.add(pages)

    def cut(self, address: int, size: int) -> None:
        """Takes a stretch out; the rest of its segment stays, on both sides."""
        place = bisect_right(self.order, address) - 1
        if place < 0:
            return
        whole = self.at[self.order[place]]
        before, after = (
            address - whole.address,
            whole.address + whole.size - (address + size),
        )
        if after < 0:
            return
        del self.at[self.order.pop(place)]
        if before:
            self.add(replace(whole, size=before))
        if after:
            self.add(replace(whole, address=address + size, size=after))


class Waste(msgspec.Struct, frozen=True):
    """After an event; the four add up to `reserved_bytes`. None where blocks and
    segments do not fit together."""

    reserved_bytes: int
    active_bytes: int  # what was asked for
    rounding_bytes: int | None  # with what was not worth splitting off
    split_bytes: int | None  # inactive, in segments in which something lives
    cached_bytes: int | None  # of segments in which nothing lives
    largest_bytes: int | None  # the largest hole of split_bytes
    is_exact: bool  # else rounding is at least so much, and split_bytes at most


def waste(history: History, event: int, there: SegmentLayout) -> Waste:
    """Of all segments of the device; `there`: what lies in them then."""
    lives_in = np.zeros(len(there.segments) + 1, np.bool_)
    lives_in[there.lives[there.lives >= 0]] = True
    split = np.where(lives_in[there.segment], there.size, 0)
    reserved = sum(one.size for one in there.segments)
    held, active = int(there.size.sum()), int(history.active[event + 1])
    rounding, inside = reserved - held - active, int(split.sum())
    most = history.snapshot.settings.get("max_split_size")
    # otherwise than by the rule
    is_split = isinstance(most, int) and 0 < most < 1 << 62
    is_exact = not there.slack.any() and not rounds_up(history) and not is_split
    if rounding < 0 or (there.lives[history.occupied.at(event)] < 0).any():
        return Waste(reserved, active, None, None, None, None, False)
    largest = int(split.max(initial=0))
    return Waste(reserved, active, rounding, inside, held - inside, largest, is_exact)


def torn(history: History, event: int) -> Waste | None:
    """Where much of what is reserved is in pieces before blocks that live, none of them
    large; `split_bytes` and `largest_bytes` are of those pieces."""
    there = layout(history, event)
    ends = np.array([one.address + one.size for one in there.segments], np.int64)
    growing = np.array([one.is_expandable for one in there.segments], np.bool_)
    # of expandable segments, whole pages can be given back
    kept = there.size - np.where(growing[there.segment], there.returnable(), 0)
    pieces = np.where(there.end < ends[there.segment], kept, 0)
    inside, largest = int(pieces.sum()), int(pieces.max(initial=0))
    found = replace(
        waste(history, event, there), split_bytes=inside, largest_bytes=largest
    )
    is_torn = (
        found.rounding_bytes is not None
        and inside >= TORN * found.reserved_bytes > 0
        and largest <= PIECE * inside
    )
    return found if is_torn else None


def private_pools(history: History) -> list[int]:
    """What each pool of its own reserves at the end, as that of a CUDA graph; the
    largest first."""
    segments, rows, pools = (
        history.snapshot.segments,
        history.segments,
        history.snapshot.pools,
    )
    reserved = summed(
        segments.pool[rows], segments.total_size[rows], len(pools) + 1
    ).tolist()
    each = zip(pools, reserved, strict=False)
    return sorted(
        (size for pool, size in each if pool != COMMON and size), reverse=True
    )
