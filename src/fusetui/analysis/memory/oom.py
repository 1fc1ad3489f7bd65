"""Why memory ran out: what was asked for, what was free, and whether holes would have
sufficed."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from fusetui.analysis.memory.evidence import BEFORE_RECORDING, NO_STACK, Evidence
from fusetui.analysis.memory.history import BEFORE, History
from fusetui.analysis.memory.layout import (
    PAGE,
    Segment,
    SegmentLayout,
    is_expandable,
    layout,
    pool_of,
    rounds_up,
)
from fusetui.trace.model.arrays import summed

Reason = Literal["live", "fragmented", "unknown"]
SMALL = 1 << 20  # at most, that goes into small segments
# a large segment, unless at least FITTED is asked for
LEAST_LARGE, FITTED = 20 << 20, 10 << 20
EXPLAINED = 100  # of a program that tries again and again, the last ones
MOST = 5  # segments that are named, and holders of each


class Pinned(msgspec.Struct, frozen=True):
    """A segment with holes, and the code whose allocations keep it."""

    address: int
    total_size: int
    inactive_bytes: int
    holders: tuple[str, ...]  # the largest first


class Inactive(msgspec.Struct, frozen=True):
    """Where holes are, as seen from what was asked for; each in the first that it
    fits."""

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


def out_of_memory(history: History, found: Evidence) -> tuple[OutOfMemory, ...]:
    """The last ones, in their order."""
    return tuple(
        _explained(history, found, row)
        for row in history.failures[-EXPLAINED:].tolist()
    )


def _explained(history: History, found: Evidence, event: int) -> OutOfMemory:
    events, snapshot = history.events, history.snapshot
    asked, free = int(events.size[event]), int(events.device_free[event])
    there, pool = layout(history, event), pool_of(snapshot, int(events.pool[event]))
    like = Segment(0, 0, int(events.stream[event]), pool, asked > SMALL, False)
    usable = there.usable(like)
    most, least = (int(there.returnable(one)[usable].sum()) for one in (False, True))
    largest = int(there.size[usable].max(initial=0))
    inactive = int(there.size.sum())
    surely = inactive - int(np.minimum(there.slack, there.size).sum())
    need, is_on = -(-asked // PAGE) * PAGE, is_expandable(history)
    fits = {need <= free + most, need <= free + least}
    told = free >= 0 and len(fits) == 1 and not is_on and not rounds_up(history)
    would_fit = fits.pop() if told else None
    reserved, stack = int(history.reserved[event + 1]), int(events.stack[event])
    place = found.code(stack) if stack >= 0 else None
    about = event, history.time_us(event), place, asked, free if free >= 0 else None
    held = int(history.allocated[event + 1]), reserved, inactive, largest, most
    why = (
        _reason(asked, free, (inactive, surely), largest, reserved, would_fit),
        would_fit,
    )
    pinned = _pinned(history, found, there)
    return OutOfMemory(*about, *held, _inactive(there, like), is_on, *why, *pinned)


def _reason(
    asked: int,
    free: int,
    inactive: tuple[int, int],
    hole: int,
    reserved: int,
    fits: bool | None,
) -> Reason:
    """What other processes hold would need the size of the device, which a snapshot
    does not have. Where even all that this process holds would not suffice, what lives
    in it is not why. `inactive`: at most, and at least; `hole`: the largest."""
    large = LEAST_LARGE if asked < FITTED else -(-asked // PAGE) * PAGE
    segment = PAGE if asked <= SMALL else large  # that the allocator takes for it
    if free < 0 or hole >= asked or free >= segment:
        return "unknown"
    if fits or free + inactive[1] >= asked:
        return "fragmented"
    return "live" if free + inactive[0] < asked <= free + reserved else "unknown"


def _inactive(there: SegmentLayout, like: Segment) -> Inactive:
    """Each hole in one of them."""
    found = [0, 0, 0, 0]
    for segment, size in zip(there.segment.tolist(), there.size.tolist(), strict=True):
        one = there.segments[segment]
        differs = (
            one.pool != like.pool,
            one.is_large != like.is_large,
            one.stream != like.stream,
        )
        found[[*differs, True].index(True)] += size
    return Inactive(*found)


def _pinned(
    history: History, found: Evidence, there: SegmentLayout
) -> tuple[tuple[Pinned, ...], int]:
    """The segments with most bytes in holes, of those in which something lives, and how
    many."""
    holes = summed(there.segment, there.size, len(there.segments))
    rows = np.flatnonzero(there.lives >= 0)
    holes[~np.isin(np.arange(len(holes)), there.lives[rows])] = 0
    order = np.argsort(-holes, kind="stable")[:MOST]
    named = tuple(
        Pinned(
            there.segments[one].address,
            there.segments[one].size,
            int(holes[one]),
            _holders(history, found, np.flatnonzero(there.lives == one).tolist()),
        )
        for one in order.tolist()
        if holes[one]
    )
    return named, int((holes > 0).sum())


def _holders(history: History, found: Evidence, rows: list[int]) -> tuple[str, ...]:
    lives, bytes_of = history.occupied, dict[str, int]()
    for row in rows:
        stack = int(lives.stack[row])
        before = BEFORE_RECORDING if lives.born[row] == BEFORE else NO_STACK
        place = found.code(stack) if stack >= 0 else before
        bytes_of[place] = bytes_of.get(place, 0) + int(lives.size[row])
    return tuple(sorted(bytes_of, key=lambda place: -bytes_of[place])[:MOST])
