"""Explains why memory ran out.

It compares what was requested with what was free, and says whether all holes together
would have sufficed.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.memory.evidence import BEFORE_RECORDING, NO_STACK, Evidence
from fusetui.analysis.memory.history import BEFORE, History
from fusetui.analysis.memory.layout import (
    PAGE_BYTES,
    Segment,
    SegmentLayout,
    compute_layout,
    is_expandable,
    name_pool,
    rounds_up_requests,
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
    """A segment that cannot be given back, and the code whose allocations keep it."""

    address: int
    total_size: int
    inactive_bytes: int  # in its holes
    holders: tuple[str, ...]  # the largest first


class Inactive(msgspec.Struct, frozen=True):
    """Where inactive bytes are, seen from a request that failed.

    Each byte counts in the first group that fits.
    """

    other_pools_bytes: int
    # segments for large blocks, if a small one was asked for, or vice versa
    other_size_bytes: int
    other_streams_bytes: int
    own_bytes: int  # where the request could have gone


class OutOfMemory(msgspec.Struct, frozen=True):
    """An event at which memory ran out, and why.

    `inactive_bytes` is in the holes of all segments. `usable_bytes` is in whole pages
    of those holes that are in the same pool and stream, and `largest_bytes` is the
    largest of these holes.
    """

    index: int
    time_us: int | None
    place: str | None  # the code that requested memory; None if not recorded
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
    # whether the request would have fitted in expandable segments; None: not known
    expandable_would_fit: bool | None
    pinned: tuple[Pinned, ...]  # the first ones of `pinned_count`
    pinned_count: int


def explain_failures(history: History, evidence: Evidence) -> tuple[OutOfMemory, ...]:
    """Explain the last MAX_EXPLAINED failures of a device, in the order of time."""
    events = history.failures[-MAX_EXPLAINED:].tolist()
    return tuple(_explain_failure(history, evidence, event) for event in events)


def _explain_failure(history: History, evidence: Evidence, event: int) -> OutOfMemory:
    """Explain why one request for memory failed.

    Args:
        history: The history of the device.
        evidence: What the call stacks say.
        event: One of `history.failures`.
    """
    events = history.events
    asked_bytes = int(events.size[event])
    stack = int(events.stack[event])
    has_stack = stack >= 0
    reserved_bytes = history.reserved_after(event)

    recorded_free = int(events.device_free[event])
    is_free_recorded = recorded_free >= 0
    free_bytes = recorded_free if is_free_recorded else None

    placement = compute_layout(history, event)
    suitable_segment = _make_suitable_segment(history, event)
    holes = _measure_holes(placement, suitable_segment)
    would_fit = _would_fit_expandable(history, asked_bytes, free_bytes, holes)
    reason = _determine_reason(
        holes,
        requested_bytes=asked_bytes,
        free_bytes=free_bytes,
        reserved_bytes=reserved_bytes,
        would_fit=would_fit,
    )
    pinned = _list_pinned_segments(history, evidence, placement)

    return OutOfMemory(
        index=event,
        time_us=history.time_us(event),
        place=evidence.describe_code(stack) if has_stack else None,
        asked_bytes=asked_bytes,
        device_free_bytes=free_bytes,
        allocated_bytes=history.allocated_after(event),
        reserved_bytes=reserved_bytes,
        inactive_bytes=holes.most_inactive_bytes,
        largest_bytes=holes.largest_bytes,
        usable_bytes=holes.most_returnable_bytes,
        inactive=_divide_inactive_bytes(placement, suitable_segment),
        is_expandable=is_expandable(history),
        reason=reason,
        expandable_would_fit=would_fit,
        pinned=pinned.largest,
        pinned_count=pinned.total,
    )


def _make_suitable_segment(history: History, event: int) -> Segment:
    """Describe the kind of segment that could hold the request of a failed allocation.

    The result has the pool, the stream and the size class (large or small) of the
    request. Address and size are 0, because no such segment exists.
    """
    events = history.events
    return Segment(
        address=0,
        size=0,
        stream=int(events.stream[event]),
        pool=name_pool(history.snapshot, int(events.pool[event])),
        is_large=int(events.size[event]) > MAX_SMALL_BYTES,
        is_expandable=False,
    )


class _Holes(msgspec.Struct, frozen=True):
    """The holes at a moment, in bytes.

    It is not always known whether a hole is one or belongs to a block. Hence there is a
    least and a largest amount.
    """

    largest_bytes: int  # the largest hole where the request may go
    least_returnable_bytes: int  # in whole pages of the holes where the request may go
    most_returnable_bytes: int
    least_inactive_bytes: int  # in all holes
    most_inactive_bytes: int


def _measure_holes(placement: SegmentLayout, suitable_segment: Segment) -> _Holes:
    """Measure the free ranges (holes) in the segments of a device when a request for
    memory failed.

    Args:
        placement: The segments at that moment, with their holes.
        suitable_segment: The kind of segment that could hold the request.
    """
    is_usable = placement.mark_usable_holes(suitable_segment)
    most_returnable = placement.measure_returnable_bytes()
    least_returnable = placement.measure_returnable_bytes(least=True)
    most_inactive = int(placement.size.sum())
    uncertain = int(np.minimum(placement.slack, placement.size).sum())

    return _Holes(
        largest_bytes=int(placement.size[is_usable].max(initial=0)),
        least_returnable_bytes=int(least_returnable[is_usable].sum()),
        most_returnable_bytes=int(most_returnable[is_usable].sum()),
        least_inactive_bytes=most_inactive - uncertain,
        most_inactive_bytes=most_inactive,
    )


def _would_fit_expandable(
    history: History, asked_bytes: int, free_bytes: int | None, holes: _Holes
) -> bool | None:
    """Return whether a request would have fitted with expandable segments.

    Args:
        history: The history of the device.
        asked_bytes: The size of the request.
        free_bytes: The bytes that the device has left; None if that was not recorded.
        holes: The holes at that moment.

    Returns:
        None if expandable segments are on already, or if the answer depends on what is
        not known.
    """
    if free_bytes is None or is_expandable(history) or rounds_up_requests(history):
        return None

    needed_bytes = _round_up_to_pages(asked_bytes)
    if needed_bytes <= free_bytes + holes.least_returnable_bytes:
        return True
    if needed_bytes > free_bytes + holes.most_returnable_bytes:
        return False
    return None


def _round_up_to_pages(size: int) -> int:
    """Round a number of bytes up to whole pages of the device, each of 2 MB
    (PAGE_BYTES)."""
    pages = -(-size // PAGE_BYTES)  # rounded up
    return pages * PAGE_BYTES


def _determine_reason(
    holes: _Holes,
    *,
    requested_bytes: int,
    free_bytes: int | None,
    reserved_bytes: int,
    would_fit: bool | None,
) -> Reason:
    """Say why a request did not fit.

    What other processes hold would need the size of the device, which a snapshot does
    not have. If even all memory that this process holds would not suffice, then what
    lives in it is not the reason.

    Args:
        holes: The holes at that moment.
        requested_bytes: The size of the request.
        free_bytes: The bytes that the device has left; None if that was not recorded.
        reserved_bytes: The bytes that the process holds.
        would_fit: Whether it would have fitted with expandable segments.

    Returns:
        `fragmented` if expandable segments, or all holes together with what is free,
        would have sufficed. `live` if not even these would, but all reserved memory
        would. Else `unknown`.
    """
    if free_bytes is None:
        return "unknown"

    fits_in_hole = holes.largest_bytes >= requested_bytes
    fits_in_new_segment = free_bytes >= _compute_segment_bytes(requested_bytes)
    if fits_in_hole or fits_in_new_segment:
        return "unknown"

    fits_in_all_holes = free_bytes + holes.least_inactive_bytes >= requested_bytes
    if would_fit or fits_in_all_holes:
        return "fragmented"

    exceeds_all_holes = free_bytes + holes.most_inactive_bytes < requested_bytes
    fits_without_live_blocks = requested_bytes <= free_bytes + reserved_bytes
    if exceeds_all_holes and fits_without_live_blocks:
        return "live"

    return "unknown"


def _compute_segment_bytes(requested: int) -> int:
    """Return how many bytes the allocator requests from the device for a new
    allocation.

    That is the size of a segment, which may be larger than the allocation. `requested`
    is the size of the allocation in bytes.
    """
    if requested <= MAX_SMALL_BYTES:
        return PAGE_BYTES

    if requested < FITTED_BYTES:
        return MIN_LARGE_SEGMENT_BYTES

    return _round_up_to_pages(requested)


def _divide_inactive_bytes(
    placement: SegmentLayout, suitable_segment: Segment
) -> Inactive:
    """Divide the bytes of all holes by the reason why a request did not go there.

    A *hole* is free memory inside a segment. The first of these reasons that holds
    counts: another pool, another kind of segment (large or small), another stream. The
    rest is of segments that could hold the request.

    Args:
        placement: The layout at the moment of the failure.
        suitable_segment: A segment that could hold the request.
    """
    other_pools = 0
    other_size = 0
    other_streams = 0
    suitable = 0

    sizes = placement.size.tolist()
    for row, size in zip(placement.segment.tolist(), sizes, strict=True):
        segment = placement.segments[row]
        if segment.pool != suitable_segment.pool:
            other_pools += size
        elif segment.is_large != suitable_segment.is_large:
            other_size += size
        elif segment.stream != suitable_segment.stream:
            other_streams += size
        else:
            suitable += size

    return Inactive(
        other_pools_bytes=other_pools,
        other_size_bytes=other_size,
        other_streams_bytes=other_streams,
        own_bytes=suitable,
    )


class _PinnedSegments(NamedTuple):
    """Segments that cannot be given back."""

    largest: tuple[Pinned, ...]  # at most MAX_NAMED, the most bytes in holes first
    total: int  # how many such segments there are


def _list_pinned_segments(
    history: History, evidence: Evidence, placement: SegmentLayout
) -> _PinnedSegments:
    """List the segments whose holes cannot be given back, the most bytes first.

    A live allocation in a segment keeps the allocator from giving the whole segment
    back to the device; so the free memory around it, its holes, stays reserved.

    Args:
        history: The history of the device.
        evidence: What the call stacks of allocations say.
        placement: The segments at the moment, with their holes and allocations.
    """
    segments = placement.segments
    hole_bytes = summed(placement.segment, placement.size, len(segments))

    # A segment without allocations could be given back.
    is_pinned = placement.mark_segments_in_use() & (hole_bytes > 0)
    pinned_rows = np.flatnonzero(is_pinned)
    largest_first = np.argsort(-hole_bytes[pinned_rows], kind="stable")

    pinned = []
    for row in pinned_rows[largest_first[:MAX_NAMED]].tolist():
        in_segment = placement.segment_of_allocation == row
        holders = _list_holders(history, evidence, np.flatnonzero(in_segment).tolist())
        pinned_segment = Pinned(
            address=segments[row].address,
            total_size=segments[row].size,
            inactive_bytes=int(hole_bytes[row]),
            holders=holders,
        )
        pinned.append(pinned_segment)

    return _PinnedSegments(largest=tuple(pinned), total=len(pinned_rows))


def _list_holders(
    history: History, evidence: Evidence, rows: list[int]
) -> tuple[str, ...]:
    """Return the lines of code that allocated the most bytes of some live memory.

    Args:
        history: The history of the device.
        evidence: What the call stacks say.
        rows: The allocations, as rows of `history.occupied`.

    Returns:
        At most MAX_NAMED lines of code, the one with the most bytes first.
    """
    allocations = history.occupied
    bytes_by_holder: Counter[str] = Counter()
    for row in rows:
        stack = int(allocations.stack[row])
        if stack >= 0:
            holder = evidence.describe_code(stack)
        elif allocations.allocated_at[row] == BEFORE:
            holder = BEFORE_RECORDING
        else:
            holder = NO_STACK
        bytes_by_holder[holder] += int(allocations.size[row])

    largest_first = sorted(bytes_by_holder, key=lambda holder: -bytes_by_holder[holder])
    return tuple(largest_first[:MAX_NAMED])
