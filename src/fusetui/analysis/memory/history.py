"""What a device's memory held after each event, to the byte: which allocations lived
from when to when, by their addresses, and the sums of them.

The trace is a ring, so its start is worked out backwards: what the blocks of the
segments hold at the end and no event names was there before; so was what is freed
without having been allocated.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, TypeVar

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Flags, Int32s, Int64s, Rows, distinct
from fusetui.trace.snapshot.columns import (
    Blocks,
    BlockState,
    MemoryAction,
    MemoryEvents,
    Snapshot,
)

UNSPLIT = 1 << 20  # at most, that is left on a block of a large pool
BEFORE = -1  # the number of an event: before the first
GIVEN = (MemoryAction.SEGMENT_ALLOC, MemoryAction.SEGMENT_MAP)
TAKEN = (MemoryAction.SEGMENT_FREE, MemoryAction.SEGMENT_UNMAP)
FREED = (MemoryAction.FREE_REQUESTED, MemoryAction.FREE_COMPLETED)
T = TypeVar("T", bound=msgspec.Struct)


class Lives(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Allocations, of shape [lives]: those from before the first event, then in order
    of address.

    `born` and `died` are numbers of events: BEFORE, and `events` where it lived at the
    end.
    """

    address: Int64s
    size: Int64s  # what was asked for
    born: Int64s
    died: Int64s
    stack: Int32s  # where it was allocated
    block: Int32s  # its row in Blocks, if it lived at the end, else -1
    events: int

    def __len__(self) -> int:
        return len(self.address)

    def at(self, event: int) -> Flags:
        """Which live after an event, or BEFORE."""
        return (self.born <= event) & (self.died > event)

    def sums(self) -> Int64s:
        """What lives before the first event, then after each; shape [events + 1]."""
        change = np.zeros(self.events + 1, np.int64)
        np.add.at(change, self.born + 1, self.size)
        gone = self.died < self.events
        np.subtract.at(change, self.died[gone] + 1, self.size[gone])
        return np.cumsum(change)

    @cached_property
    def _by_address(self) -> tuple[Int64s, Int64s, Int64s]:
        """The distinct addresses; and by address and, of one address, by birth, the row
        of the address and the birth of each life in one ascending number, and its
        death."""
        order: Rows = np.lexsort((self.born, self.address))
        addresses, row = np.unique(self.address[order], return_inverse=True)
        key = row.astype(np.int64) * (self.events + 2) + self.born[order] + 1
        return addresses, key, self.died[order]

    def next_in_use(self, since: Int64s, born: Int64s, limit: Int64s) -> Int64s:
        """The first address after `since` that was in use after the event `born`, else
        `limit`.

        A free block reaches up to the next one that is in use, or to the end of its
        segment, since free neighbors become one. So what followed an allocation when it
        was made tells how large its block is: with what was not worth splitting off.
        """
        (addresses, key, died), span = self._by_address, self.events + 2
        found, place = limit.copy(), np.searchsorted(addresses, since, side="right")
        addresses = np.append(addresses, np.iinfo(np.int64).max)
        looking = np.flatnonzero(addresses[place] < limit)
        while len(looking):
            at = place[looking]
            row = np.searchsorted(key, at * span + born[looking] + 1, side="right") - 1
            lives = (row >= 0) & (key[row] >= at * span) & (died[row] > born[looking])
            found[looking[lives]] = addresses[at[lives]]
            looking = looking[~lives]
            place[looking] += 1
            looking = looking[addresses[place[looking]] < limit[looking]]
        return found


class History(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Of one device. Sums are of shape [events + 1]: before the first event, then after
    each."""

    snapshot: Snapshot
    device: int
    events: MemoryEvents
    segments: Rows  # those of the device
    lives: Lives  # until they are to be freed
    occupied: Lives  # until they are free, which may be later
    allocated: Int64s
    active: Int64s
    reserved: Int64s
    difference_end_bytes: int
    # actions of which there must have been events
    unrecorded: tuple[MemoryAction, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether events tell when each allocation began and ended."""
        return MemoryAction.ALLOC not in self.unrecorded and not {*FREED} <= {
            *self.unrecorded
        }

    @property
    def peak_index(self) -> int:
        """The event after which the peak is reached first."""
        return int(self.allocated.argmax()) - 1

    @property
    def failures(self) -> Rows:
        """The events of memory that ran out."""
        return np.flatnonzero(self.events.action == MemoryAction.OOM)

    def time_us(self, event: int) -> int | None:
        """When it happened; that of the first for BEFORE. None if the file does not
        say."""
        times = self.events.time_us
        found = int(times[max(event, 0)]) if len(times) else -1
        return found if found >= 0 else None


def histories(snapshot: Snapshot) -> tuple[History, ...]:
    """One for each device that has events or segments."""
    traced = {one.device: one for one in snapshot.events}
    devices = sorted({*traced, *map(int, distinct(snapshot.segments.device))})
    return tuple(_history(snapshot, device, traced.get(device)) for device in devices)


def held(blocks: Blocks, rows: Rows) -> Int64s:
    """What was asked for of blocks; files before torch 2.1 say only how large they
    are."""
    asked = blocks.requested_size[rows]
    return np.where(asked < 0, blocks.size[rows], asked)


def private(history: History) -> Flags:
    """Which lives are in a pool of their own, as that of a CUDA graph is. Without pools
    in events, that is known of what lived at the end."""
    lives, snapshot = history.lives, history.snapshot
    is_private = np.array([*(any(pair) for pair in snapshot.pools), False], np.bool_)
    # BEFORE: the last
    of_events = np.append(is_private[history.events.pool], False)[lives.born]
    of_blocks = np.append(
        is_private[snapshot.segments.pool][snapshot.blocks.segment], False
    )
    return np.where(lives.block >= 0, of_blocks[lives.block], of_events)


def _history(snapshot: Snapshot, device: int, traced: MemoryEvents | None) -> History:
    events = blank(MemoryEvents, 0, device=device) if traced is None else traced
    of, blocks = snapshot.segments.device, snapshot.blocks
    segments = np.flatnonzero(of == device)
    rows = np.flatnonzero((of == device)[blocks.segment])
    kept = rows[blocks.state[rows] == BlockState.ACTIVE_ALLOCATED]
    in_use = rows[blocks.state[rows] != BlockState.INACTIVE]
    lives = lives_of(events, blocks, kept, MemoryAction.FREE_REQUESTED)
    occupied = lives_of(events, blocks, in_use, MemoryAction.FREE_COMPLETED)
    unrecorded = _unrecorded_end(events, occupied, blocks.address[in_use])
    if unrecorded == (MemoryAction.FREE_REQUESTED,):  # each counts until it is free
        lives, kept = occupied, in_use
    elif unrecorded == (MemoryAction.FREE_COMPLETED,):
        occupied = lives
    allocated, active = lives.sums(), occupied.sums()
    difference = int(allocated[-1] - held(blocks, kept).sum())
    given, taken = (np.isin(events.action, actions) for actions in (GIVEN, TAKEN))
    change = np.append(
        0, np.where(given, events.size, 0) - np.where(taken, events.size, 0)
    )
    change[0] = snapshot.segments.total_size[segments].sum() - change.sum()
    reserved = np.cumsum(change)
    if difference:
        unrecorded += _missing(events, MemoryAction.ALLOC)
        unrecorded += _missing(events, *FREED) if not unrecorded else ()
    # the same of what the device gave and took
    gone, left = events.addr[taken], snapshot.segments.address[segments]
    again = len(distinct(gone)) < len(gone) or np.isin(gone, left).any()
    unrecorded += _missing(events, *GIVEN)[:1] if again else ()
    unrecorded += _missing(events, *TAKEN)[:1] if (active > reserved).any() else ()
    known = lives, occupied, allocated, active, reserved, difference, unrecorded
    return History(snapshot, device, events, segments, *known)


def _missing(events: MemoryEvents, *actions: MemoryAction) -> tuple[MemoryAction, ...]:
    """These, if there are events but none of them."""
    return actions if len(events) and not np.isin(events.action, actions).any() else ()


def _unrecorded_end(
    events: MemoryEvents, occupied: Lives, in_use: Int64s
) -> tuple[MemoryAction, ...]:
    """Which one of the two events that end a life torch was told to skip
    (`skip_actions` of _record_memory_history): of each there is none, although the
    other one says that it happened."""
    requested, completed = (np.flatnonzero(events.action == action) for action in FREED)
    if len(completed) and not len(requested):
        whole = np.isin(occupied.died[occupied.born != BEFORE], completed)
        return (MemoryAction.FREE_REQUESTED,) if whole.any() else ()
    over = ~np.isin(events.addr[requested], in_use)
    return (MemoryAction.FREE_COMPLETED,) if over.any() and not len(completed) else ()


def lives_of(
    events: MemoryEvents, blocks: Blocks, kept: Rows, end: MemoryAction
) -> Lives:
    """`kept`: the blocks that live at the end; `end`: the events that end a life."""
    count = len(events)
    rows = np.flatnonzero(
        (events.action == MemoryAction.ALLOC) | (events.action == end)
    )
    order = rows[np.argsort(events.addr[rows], kind="stable")]
    address, begins = events.addr[order], events.action[order] == MemoryAction.ALLOC
    first, last = np.ones((2, len(order)), np.bool_)
    first[1:] = address[1:] != address[:-1]
    last[:-1] = first[1:]
    ends = np.append(order[1:], count)  # the next event of the address, whatever it is
    ends[last] = count
    early = order[first & ~begins]
    unnamed = kept[~np.isin(blocks.address[kept], address)]
    before = len(early) + len(unnamed)
    born = order[begins]
    found = np.concatenate(
        [events.addr[early], blocks.address[unnamed], events.addr[born]]
    )
    died = np.concatenate([early, np.full(len(unnamed), count), ends[begins]])
    kept = kept[np.argsort(blocks.address[kept], kind="stable")]
    known = np.append(blocks.address[kept], -1)
    place = np.searchsorted(known[:-1], found)
    is_there = (known[place] == found) & (died == count)
    block = np.where(is_there, np.append(kept, -1)[place], -1).astype(np.int32)
    stack = np.full(len(found), -1, np.int32)
    stack[before:] = events.stack[born]
    stack[:before] = np.where(
        block[:before] < 0, -1, np.append(blocks.stack, -1)[block[:before]]
    )
    size = np.concatenate(
        [events.size[early], held(blocks, unnamed), events.size[born]]
    )
    begun = np.concatenate([np.full(before, BEFORE), born])
    return Lives(found, size, begun, died, stack, block, count)


def blank(kind: type[T], rows: int, **given: Any) -> T:
    """Columns in which nothing is known but what is given."""
    columns: dict[str, Any] = {
        name: np.full(rows, -1) for name in kind.__struct_fields__
    }
    return kind(**columns | given)
