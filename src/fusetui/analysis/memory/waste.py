"""What is reserved and holds nothing that was asked for."""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.analysis.memory.history import History
from fusetui.analysis.memory.layout import COMMON, Layout, layout, rounds_by_rule
from fusetui.trace.model.arrays import Int64s, summed

TORN = 1 / 3  # of what is reserved, in pieces
PIECE = 1 / 4  # of them, at most the largest


class Waste(msgspec.Struct, frozen=True):
    """After an event; the four add up to `reserved_bytes`. None where blocks and segments do not
    fit together."""

    reserved_bytes: int
    active_bytes: int  # what was asked for
    rounding_bytes: int | None  # with what was not worth splitting off
    split_bytes: int | None  # inactive, in segments in which something lives
    cached_bytes: int | None  # of segments in which nothing lives
    largest_bytes: int | None  # the largest hole of split_bytes
    is_exact: bool  # else rounding is at least so much, and split_bytes at most


class PrivatePool(msgspec.Struct, frozen=True):
    """A pool of its own at the end, as that of a CUDA graph."""

    pool: tuple[int, int]
    reserved_bytes: int
    active_bytes: int


def waste(history: History, event: int) -> Waste:
    """Of all segments of the device."""
    return _waste(history, event, layout(history, event))


def _waste(history: History, event: int, there: Layout) -> Waste:
    lives_in = np.zeros(len(there.segments) + 1, np.bool_)
    lives_in[there.lives[there.lives >= 0]] = True
    split = np.where(lives_in[there.segment], there.size, 0)
    reserved = sum(one.size for one in there.segments)
    held, active = int(there.size.sum()), int(history.active[event + 1])
    rounding, inside = reserved - held - active, int(split.sum())
    is_exact = not there.slack.any() and rounds_by_rule(history)
    if rounding < 0 or (there.lives[history.occupied.at(event)] < 0).any():
        return Waste(reserved, active, None, None, None, None, False)
    largest = int(split.max(initial=0))
    return Waste(reserved, active, rounding, inside, held - inside, largest, is_exact)


def torn(history: History, event: int) -> Waste | None:
    """Where much of what is reserved is in pieces before blocks that live, none of them large;
    `split_bytes` and `largest_bytes` are of those pieces."""
    there = layout(history, event)
    ends = np.array([one.address + one.size for one in there.segments], np.int64)
    pieces = np.where(there.end < ends[there.segment], _kept(there), 0)
    inside, largest = int(pieces.sum()), int(pieces.max(initial=0))
    found = replace(_waste(history, event, there), split_bytes=inside, largest_bytes=largest)
    is_torn = (
        found.rounding_bytes is not None
        and inside >= TORN * found.reserved_bytes > 0
        and largest <= PIECE * inside
    )
    return found if is_torn else None


def _kept(there: Layout) -> Int64s:
    """The bytes of each hole that cannot be given back: of expandable segments, whole pages can."""
    growing = np.array([one.is_expandable for one in there.segments], np.bool_)
    return there.size - np.where(growing[there.segment], there.returnable(), 0)


def private_pools(history: History) -> tuple[PrivatePool, ...]:
    """The largest first."""
    snapshot, rows = history.snapshot, history.segments
    pools = snapshot.segments.pool[rows]
    reserved = summed(pools, snapshot.segments.total_size[rows], len(snapshot.pools) + 1)
    active = summed(pools, snapshot.segments.active_size[rows], len(snapshot.pools) + 1)
    each = zip(snapshot.pools, reserved.tolist(), active.tolist(), strict=False)
    found = (PrivatePool(*one) for one in each if one[0] != COMMON and one[1])
    return tuple(sorted(found, key=lambda one: -one.reserved_bytes))
