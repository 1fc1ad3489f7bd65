"""Why memory ran out: what was asked for, what was free, and whether holes would have
sufficed."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from fusetui.analysis.memory.evidence import BEFORE_RECORDING, NO_STACK, Evidence
from fusetui.analysis.memory.history import BEFORE, History
from fusetui.analysis.memory.layout import (
    PAGE_BYTES,
    Segment,
    SegmentLayout,
    is_expandable,
    layout,
    pool_of,
    rounds_up,
)
from fusetui.trace.model.arrays import summed

Reason = Literal["live", "fragmented", "unknown"]
MAX_SMALL_BYTES = 1 << 20
"""Allocations of at most so much go into small segments."""

MIN_LARGE_SEGMENT_BYTES = 20 << 20
"""Of a large segment, unless at least FITTED_BYTES are asked for."""

FITTED_BYTES = 10 << 20
"""Of at least so much a segment is only rounded up to whole pages."""

MAX_EXPLAINED = 100
"""Of a program that tries again and again, the last events are explained."""

MAX_NAMED = 5
"""Segments that are named, and holders of each."""


class Pinned(msgspec.Struct, frozen=True):
    """A segment with inactive blocks, and the code whose allocations keep it."""

    address: int
    total_size: int
    inactive_bytes: int
    holders: tuple[str, ...]  # the largest first


class Inactive(msgspec.Struct, frozen=True):
    """Where inactive bytes are, relative to the request; each in the first group
    that fits."""

    other_pools_bytes: int
    # segments for large blocks, if a small one was asked for, or vice versa
    other_size_bytes: int
    other_streams_bytes: int
    own_bytes: int


class OutOfMemory(msgspec.Struct, frozen=True):
    """An event `oom`. `inactive` is in holes of all segments, `usable` of those of this
    pool and stream in whole pages, and `largest` is the largest hole there."""

    index: int
    time_us: int | None
    place: str | None
    asked_bytes: int
    device_free_bytes: int | None
    allocated_bytes: int
    reserved_bytes: int
    inactive_bytes: int
    largest_bytes: int
    usable_bytes: int
    inactive: Inactive
    is_expandable: bool  # some segments were so already, or the settings say so
    reason: Reason
    expandable_would_fit: bool | None
    pinned: tuple[Pinned, ...]  # the first ones of `pinned_count`
    pinned_count: int


def out_of_memory(history: History, evidence: Evidence) -> tuple[OutOfMemory, ...]:
    """The last MAX_EXPLAINED failures of a device, explained, in their order."""
    events = history.failures[-MAX_EXPLAINED:].tolist()
    return tuple(_explained(history, evidence, event) for event in events)


def _explained(history: History, evidence: Evidence, event: int) -> OutOfMemory:
    """Why the event `event`, which is one of `history.failures`, failed."""
    events = history.events
    asked_bytes = int(events.size[event])
    free = int(events.device_free[event])  # negative: not recorded
    placement = layout(history, event)
    like = _segment_for(history, event)
    holes = _holes(placement, like)
    would_fit = _would_fit(history, asked_bytes, free, holes)
    stack = int(events.stack[event])
    pinned, pinned_count = _pinned(history, evidence, placement)
    return OutOfMemory(
        index=event,
        time_us=history.time_us(event),
        place=evidence.code(stack) if stack >= 0 else None,
        asked_bytes=asked_bytes,
        device_free_bytes=free if free >= 0 else None,
        allocated_bytes=history.allocated_after(event),
        reserved_bytes=history.reserved_after(event),
        inactive_bytes=holes.most_inactive,
        largest_bytes=holes.largest,
        usable_bytes=holes.most_returnable,
        inactive=_inactive(placement, like),
        is_expandable=is_expandable(history),
        reason=_reason(
            holes,
            asked=asked_bytes,
            free=free,
            reserved=history.reserved_after(event),
            would_fit=would_fit,
        ),
        expandable_would_fit=would_fit,
        pinned=pinned,
        pinned_count=pinned_count,
    )


def _segment_for(history: History, event: int) -> Segment:
    """A segment that could hold what was asked for in an event: its pool, stream and
    kind; address and size are 0."""
    events = history.events
    return Segment(
        address=0,
        size=0,
        stream=int(events.stream[event]),
        pool=pool_of(history.snapshot, int(events.pool[event])),
        is_large=int(events.size[event]) > MAX_SMALL_BYTES,
        is_expandable=False,
    )


class _Holes(msgspec.Struct, frozen=True):
    """The holes at a moment, in bytes. Of some it is not known whether they are holes
    or belong to blocks: hence the least and the most. The first three are of those
    where what was asked for may go."""

    largest: int
    least_returnable: int  # in whole pages
    most_returnable: int
    least_inactive: int  # of all holes
    most_inactive: int


def _holes(placement: SegmentLayout, like: Segment) -> _Holes:
    """The holes of a moment. `like`: a segment that could hold what was asked for."""
    usable = placement.usable(like)
    most_inactive = int(placement.size.sum())
    unsure = int(np.minimum(placement.slack, placement.size).sum())
    return _Holes(
        largest=int(placement.size[usable].max(initial=0)),
        least_returnable=int(placement.returnable(least=True)[usable].sum()),
        most_returnable=int(placement.returnable()[usable].sum()),
        least_inactive=most_inactive - unsure,
        most_inactive=most_inactive,
    )


def _would_fit(
    history: History, asked_bytes: int, free: int, holes: _Holes
) -> bool | None:
    """Whether what was asked for would have fitted with expandable segments. None where
    they are on already, or nothing tells: `free`, what the device has left, is negative
    where it was not recorded, and slack may be of blocks or of holes."""
    if free < 0 or is_expandable(history) or rounds_up(history):
        return None
    needed = _whole_pages(asked_bytes)
    fits_at_most = needed <= free + holes.most_returnable
    fits_at_least = needed <= free + holes.least_returnable
    return fits_at_most if fits_at_most == fits_at_least else None


def _whole_pages(size: int) -> int:
    """Bytes rounded up to whole pages."""
    return -(-size // PAGE_BYTES) * PAGE_BYTES


def _reason(
    holes: _Holes, *, asked: int, free: int, reserved: int, would_fit: bool | None
) -> Reason:
    """Why what was asked for did not fit: `fragmented` if expandable segments or all
    holes together with what is free would have sufficed; `live` if not even these would
    have, but all that is reserved would; else `unknown`. All in bytes; `free`, what the
    device has left, is negative where it was not recorded.

    What other processes hold would need the size of the device, which a snapshot
    does not have. Where even all that this process holds would not suffice, what lives
    in it is not why."""
    has_room = holes.largest >= asked or free >= _segment_bytes(asked)
    if free < 0 or has_room:
        return "unknown"
    if would_fit or free + holes.least_inactive >= asked:
        return "fragmented"
    if free + holes.most_inactive < asked <= free + reserved:
        return "live"
    return "unknown"


def _segment_bytes(asked: int) -> int:
    """The size of the segment that the allocator takes from the device for so many
    bytes."""
    if asked <= MAX_SMALL_BYTES:
        return PAGE_BYTES
    if asked < FITTED_BYTES:
        return MIN_LARGE_SEGMENT_BYTES
    return _whole_pages(asked)


def _inactive(placement: SegmentLayout, like: Segment) -> Inactive:
    """The bytes of all holes by the first reason for which what was asked for does not
    go there. `like`: a segment that could hold it."""
    other_pools = 0
    other_size = 0
    other_streams = 0
    own = 0
    sizes = placement.size.tolist()
    for row, size in zip(placement.segment.tolist(), sizes, strict=True):
        segment = placement.segments[row]
        if segment.pool != like.pool:
            other_pools += size
        elif segment.is_large != like.is_large:
            other_size += size
        elif segment.stream != like.stream:
            other_streams += size
        else:
            own += size
    return Inactive(
        other_pools_bytes=other_pools,
        other_size_bytes=other_size,
        other_streams_bytes=other_streams,
        own_bytes=own,
    )


def _pinned(
    history: History, evidence: Evidence, placement: SegmentLayout
) -> tuple[tuple[Pinned, ...], int]:
    """The at most MAX_NAMED segments with most bytes in holes, of those in which
    something lives; and how many segments have both."""
    count = len(placement.segments)
    hole_bytes = summed(placement.segment, placement.size, count)
    with_lives = placement.lives[placement.lives >= 0]
    is_empty = ~np.isin(np.arange(count), with_lives)
    hole_bytes[is_empty] = 0
    by_size = np.argsort(-hole_bytes, kind="stable")
    pinned = []
    for row in by_size[:MAX_NAMED].tolist():
        if not hole_bytes[row]:
            continue
        segment = placement.segments[row]
        lives = np.flatnonzero(placement.lives == row).tolist()
        named = Pinned(
            address=segment.address,
            total_size=segment.size,
            inactive_bytes=int(hole_bytes[row]),
            holders=_holders(history, evidence, lives),
        )
        pinned.append(named)
    return tuple(pinned), int((hole_bytes > 0).sum())


def _holders(history: History, evidence: Evidence, rows: list[int]) -> tuple[str, ...]:
    """The at most MAX_NAMED places of code that allocated these rows of
    History.occupied, that with most bytes first."""
    lives = history.occupied
    bytes_of: dict[str, int] = {}
    for row in rows:
        stack = int(lives.stack[row])
        if stack >= 0:
            place = evidence.code(stack)
        elif lives.born[row] == BEFORE:
            place = BEFORE_RECORDING
        else:
            place = NO_STACK
        bytes_of[place] = bytes_of.get(place, 0) + int(lives.size[row])
    by_size = sorted(bytes_of, key=lambda place: -bytes_of[place])
    return tuple(by_size[:MAX_NAMED])
