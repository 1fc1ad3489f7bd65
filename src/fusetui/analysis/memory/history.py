"""What a device's memory held after each event, to the byte: which allocations lived
from when to when, by their addresses, and the sums of them.

The trace is a ring, so its start is worked out backwards: what the blocks of the
segments hold at the end and no event names was there before; so was what is freed
without having been allocated.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from fusetui.trace.model.arrays import (
    Flags,
    Int32s,
    Int64s,
    Rows,
    begins_runs,
    distinct,
    ends_runs,
    first_with,
)
from fusetui.trace.snapshot.columns import (
    Blocks,
    BlockState,
    MemoryAction,
    MemoryEvents,
    Snapshot,
)

UNSPLIT_BYTES = 1 << 20
"""At most so much is left on a block of a large pool; more is split off."""

BEFORE = -1
"""In place of the number of an event: before the first one."""

SEGMENT_GIVEN = (MemoryAction.SEGMENT_ALLOC, MemoryAction.SEGMENT_MAP)
"""Events in which the device gives memory."""

SEGMENT_TAKEN = (MemoryAction.SEGMENT_FREE, MemoryAction.SEGMENT_UNMAP)
"""Events in which the device takes memory back."""

FREED = (MemoryAction.FREE_REQUESTED, MemoryAction.FREE_COMPLETED)
"""The two events that end the life of an allocation."""

T = TypeVar("T", bound=msgspec.Struct)


class Allocations(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Allocations, of shape [lives]: those from before the first event, then in order
    of address. Each is a life, from the event that allocates it to the one that frees
    it.

    `born` and `died` are numbers of events: BEFORE, and `events` where it lived at the
    end. Sizes are in bytes.
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
        """Bytes that live before the first event, then after each; shape [events +
        1]."""
        change = np.zeros(self.events + 1, np.int64)
        np.add.at(change, self.born + 1, self.size)
        has_died = self.died < self.events
        np.subtract.at(change, self.died[has_died] + 1, self.size[has_died])
        return np.cumsum(change)

    @cached_property
    def _by_address(self) -> _ByAddress:
        """See _ByAddress."""
        order: Rows = np.lexsort((self.born, self.address))
        addresses, address_row = np.unique(self.address[order], return_inverse=True)
        births = address_row.astype(np.int64) * self._births_per_address
        births += self.born[order] + 1
        return _ByAddress(addresses=addresses, births=births, died=self.died[order])

    @property
    def _births_per_address(self) -> int:
        """How many births there can be at an address: from BEFORE to `events`."""
        return self.events + 2

    def next_in_use(self, since: Int64s, born: Int64s, limit: Int64s) -> Int64s:
        """The first address after `since` that was in use after the event `born`, else
        `limit`; all of the same shape.

        A free block reaches up to the next one that is in use, or to the end of its
        segment, since free neighbors become one. So what followed an allocation when it
        was made tells how large its block is: with what was not worth splitting off.
        """
        index = self._by_address
        # beyond the last address nothing is in use
        addresses = np.append(index.addresses, np.iinfo(np.int64).max)
        next_address = limit.copy()
        address_row = np.searchsorted(index.addresses, since, side="right")
        # the queries without an answer, each of which looks at one address at a time
        queries = np.flatnonzero(addresses[address_row] < limit)
        while len(queries):
            looked_at = address_row[queries]
            in_use = self._in_use_at(looked_at, born[queries])
            next_address[queries[in_use]] = addresses[looked_at[in_use]]
            queries = queries[~in_use]
            address_row[queries] += 1
            is_below_limit = addresses[address_row[queries]] < limit[queries]
            queries = queries[is_below_limit]
        return next_address

    def _in_use_at(self, address_row: Rows, event: Int64s) -> Flags:
        """Whether each address, a row of `_by_address.addresses`, was in use after an
        event."""
        index = self._by_address
        first_birth = address_row * self._births_per_address  # BEFORE, at this address
        last_birth = first_birth + event + 1
        # the last life at this address that had begun by then
        life = np.searchsorted(index.births, last_birth, side="right") - 1
        is_of_address = (life >= 0) & (index.births[life] >= first_birth)
        return np.asarray(is_of_address & (index.died[life] > event))


class _ByAddress(NamedTuple):
    """The lives by address and, of one address, by birth."""

    addresses: Int64s  # distinct, ascending
    births: Int64s  # the row in `addresses` and the birth, in one ascending number
    died: Int64s


class History(msgspec.Struct, frozen=True, eq=False, dict=True):
    """What the memory of one device held from event to event. Sums are in bytes, of
    shape [events + 1]: before the first event, then after each, so that the sum after
    the event n is at n + 1."""

    snapshot: Snapshot
    device: int
    events: MemoryEvents
    segments: Rows  # those of the device
    lives: Allocations  # until they are to be freed
    occupied: Allocations  # until they are free, which may be later
    allocated: Int64s
    active: Int64s
    reserved: Int64s
    # what events add up to at the end, less what the blocks hold
    difference_end_bytes: int
    # actions of which there must have been events
    unrecorded: tuple[MemoryAction, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether events tell when each allocation began and ended."""
        if MemoryAction.ALLOC in self.unrecorded:
            return False
        return not all(action in self.unrecorded for action in FREED)

    @property
    def peak_index(self) -> int:
        """The event after which the peak is reached first."""
        return int(self.allocated.argmax()) - 1

    def allocated_after(self, event: int) -> int:
        """Bytes that are allocated after an event; BEFORE: before the first."""
        return int(self.allocated[event + 1])

    def active_after(self, event: int) -> int:
        """Bytes that are not free after an event; BEFORE: before the first."""
        return int(self.active[event + 1])

    def reserved_after(self, event: int) -> int:
        """Bytes that the device has given after an event; BEFORE: before the first."""
        return int(self.reserved[event + 1])

    @property
    def failures(self) -> Rows:
        """The events of memory that ran out."""
        return np.flatnonzero(self.events.action == MemoryAction.OOM)

    def time_us(self, event: int) -> int | None:
        """When an event happened, in us since 1970; for BEFORE the time of the first
        event. None without events, or if the file has no times."""
        times = self.events.time_us
        if not len(times):
            return None
        time_us = int(times[max(event, 0)])
        return time_us if time_us >= 0 else None


def histories(snapshot: Snapshot) -> tuple[History, ...]:
    """One for each device that has events or segments, in the order of their
    numbers."""
    events_of = {events.device: events for events in snapshot.events}
    with_segments = [int(device) for device in distinct(snapshot.segments.device)]
    devices = sorted({*events_of, *with_segments})
    return tuple(
        _history(snapshot, device, events_of.get(device)) for device in devices
    )


def held(blocks: Blocks, rows: Rows) -> Int64s:
    """The bytes that were asked for of these rows of `blocks`; their sizes where that
    is -1, as in files from before torch 2.1."""
    asked = blocks.requested_size[rows]
    return np.where(asked < 0, blocks.size[rows], asked)


def private(history: History) -> Flags:
    """Which lives are in a private pool, as that of a CUDA graph is; shape [lives].
    Where events do not name pools, that is known only of what lived at the end."""
    snapshot = history.snapshot
    lives = history.lives
    no_pool = False  # at place -1
    is_private_pool = np.array([any(pool) for pool in snapshot.pools], np.bool_)
    is_private = np.append(is_private_pool, no_pool)
    of_events = np.append(is_private[history.events.pool], no_pool)
    of_segments = is_private[snapshot.segments.pool]
    of_blocks = np.append(of_segments[snapshot.blocks.segment], no_pool)
    lived_at_end = lives.block >= 0
    by_event = of_events[lives.born]  # BEFORE is place -1
    return np.where(lived_at_end, of_blocks[lives.block], by_event)


def _history(snapshot: Snapshot, device: int, traced: MemoryEvents | None) -> History:
    """The history of a device, with the actions that must have happened but were not
    recorded. `traced`: the events of the device; None if it has none."""
    events = blank(MemoryEvents, 0, device=device) if traced is None else traced
    segments = np.flatnonzero(snapshot.segments.device == device)
    lives = _lives(snapshot, device, events)
    allocated = lives.until_requested.sums()
    active = lives.until_free.sums()
    reserved = _reserved(snapshot, segments, events)
    held_at_end = held(snapshot.blocks, lives.kept).sum()
    difference = int(allocated[-1] - held_at_end)
    unrecorded = lives.unrecorded
    if difference:
        unrecorded += _missing_of_lives(events, unrecorded)
    if _is_taken_twice(snapshot, segments, events):
        unrecorded += _missing(events, SEGMENT_GIVEN)[:1]
    if (active > reserved).any():
        unrecorded += _missing(events, SEGMENT_TAKEN)[:1]
    return History(
        snapshot=snapshot,
        device=device,
        events=events,
        segments=segments,
        lives=lives.until_requested,
        occupied=lives.until_free,
        allocated=allocated,
        active=active,
        reserved=reserved,
        difference_end_bytes=difference,
        unrecorded=unrecorded,
    )


class _Lives(NamedTuple):
    """The allocations of a device, each with one of two ends."""

    until_requested: Allocations  # until they are to be freed
    until_free: Allocations  # until they are free, which may be later
    kept: Rows  # the blocks that are in `until_requested` at the end
    unrecorded: tuple[
        MemoryAction, ...
    ]  # the end that was not recorded, if one was not


def _lives(snapshot: Snapshot, device: int, events: MemoryEvents) -> _Lives:
    """The allocations of a device. Where only one of the two ends was recorded, that
    one counts for both."""
    blocks = snapshot.blocks
    is_of_device = snapshot.segments.device[blocks.segment] == device
    is_allocated = blocks.state == BlockState.ACTIVE_ALLOCATED
    is_in_use = blocks.state != BlockState.INACTIVE
    kept = np.flatnonzero(is_of_device & is_allocated)
    in_use = np.flatnonzero(is_of_device & is_in_use)
    until_requested = allocations_of(events, blocks, kept, MemoryAction.FREE_REQUESTED)
    until_free = allocations_of(events, blocks, in_use, MemoryAction.FREE_COMPLETED)
    unrecorded = _unrecorded_end(events, until_free, blocks.address[in_use])
    if unrecorded == (MemoryAction.FREE_REQUESTED,):
        until_requested = until_free
        kept = in_use
    elif unrecorded == (MemoryAction.FREE_COMPLETED,):
        until_free = until_requested
    return _Lives(
        until_requested=until_requested,
        until_free=until_free,
        kept=kept,
        unrecorded=unrecorded,
    )


def _missing_of_lives(
    events: MemoryEvents, unrecorded: tuple[MemoryAction, ...]
) -> tuple[MemoryAction, ...]:
    """The actions, beside those that are known to be `unrecorded`, for want of which
    the events do not add up to what the blocks hold at the end: ALLOC if there is none;
    else both ends of a life if there is none of these and none is in `unrecorded`."""
    no_allocations = _missing(events, (MemoryAction.ALLOC,))
    if no_allocations or unrecorded:
        return no_allocations
    return _missing(events, FREED)


def _reserved(snapshot: Snapshot, segments: Rows, events: MemoryEvents) -> Int64s:
    """What the device had given before the first event and after each, in bytes, of
    shape [events + 1]: worked out backwards from the segments at the end."""
    is_given = np.isin(events.action, SEGMENT_GIVEN)
    is_taken = np.isin(events.action, SEGMENT_TAKEN)
    given = np.where(is_given, events.size, 0)
    taken = np.where(is_taken, events.size, 0)
    change = given - taken
    at_end = snapshot.segments.total_size[segments].sum()
    before_first = np.array([at_end - change.sum()], np.int64)
    return np.cumsum(np.concatenate((before_first, change)))


def _is_taken_twice(snapshot: Snapshot, segments: Rows, events: MemoryEvents) -> bool:
    """Whether the device took an address back twice, or one that is there at the end:
    it must have given it again."""
    taken = events.addr[np.isin(events.action, SEGMENT_TAKEN)]
    left = snapshot.segments.address[segments]
    return len(distinct(taken)) < len(taken) or bool(np.isin(taken, left).any())


def _missing(
    events: MemoryEvents, actions: tuple[MemoryAction, ...]
) -> tuple[MemoryAction, ...]:
    """`actions`, if there are events but none of these actions; else ()."""
    if not len(events) or np.isin(events.action, actions).any():
        return ()
    return actions


def _unrecorded_end(
    events: MemoryEvents, occupied: Allocations, in_use: Int64s
) -> tuple[MemoryAction, ...]:
    """The event that torch was told not to record (`skip_actions` of
    _record_memory_history).

    FREE_REQUESTED, if only completions were recorded and one ends a life whose beginning
    was; FREE_COMPLETED, if only requests were and a block is gone at the end. `in_use`:
    addresses of blocks at the end."""
    requested = np.flatnonzero(events.action == MemoryAction.FREE_REQUESTED)
    completed = np.flatnonzero(events.action == MemoryAction.FREE_COMPLETED)
    if len(completed) and not len(requested):
        ends_of_recorded = occupied.died[occupied.born != BEFORE]
        if np.isin(ends_of_recorded, completed).any():
            return (MemoryAction.FREE_REQUESTED,)
    elif len(requested) and not len(completed):
        is_gone = ~np.isin(events.addr[requested], in_use)
        if is_gone.any():
            return (MemoryAction.FREE_COMPLETED,)
    return ()


def allocations_of(
    events: MemoryEvents, blocks: Blocks, kept: Rows, end: MemoryAction
) -> Allocations:
    """The allocations of a device: first those from before the first event, which are
    what is freed without having been allocated and the blocks that no event names, then
    those that events make, in the order of their addresses. `kept`: rows of the blocks
    that live at the end; `end`: the action that ends a life."""
    count = len(events)
    lives = _lives_of_events(events, end)
    unnamed = kept[~np.isin(blocks.address[kept], lives.addresses)]
    before = len(lives.ended_only) + len(unnamed)
    address = np.concatenate(
        [
            events.addr[lives.ended_only],
            blocks.address[unnamed],
            events.addr[lives.born],
        ]
    )
    size = np.concatenate(
        [events.size[lives.ended_only], held(blocks, unnamed), events.size[lives.born]]
    )
    never = np.full(len(unnamed), count)
    died = np.concatenate([lives.ended_only, never, lives.died])
    lives_at_end = died == count
    block = np.where(lives_at_end, _rows_at(blocks, kept, address), -1)
    stack_of_blocks = np.append(blocks.stack, -1)  # the last: of no block
    stack = np.concatenate([stack_of_blocks[block[:before]], events.stack[lives.born]])
    return Allocations(
        address=address,
        size=size,
        born=np.concatenate([np.full(before, BEFORE), lives.born]),
        died=died,
        stack=stack.astype(np.int32),
        block=block.astype(np.int32),
        events=count,
    )


class _LivesOfEvents(NamedTuple):
    """What events tell of lives; numbers of events, in the order of their addresses."""

    ended_only: Rows  # the ends of what was not allocated by an event
    born: Rows  # what allocates; shape [lives]
    died: Rows  # what frees each of these, or the number of events; shape [lives]
    addresses: Int64s  # of all events that allocate or free


def _lives_of_events(events: MemoryEvents, end: MemoryAction) -> _LivesOfEvents:
    """The lives that events begin or end. `end`: the action that ends a life."""
    is_birth_or_end = (events.action == MemoryAction.ALLOC) | (events.action == end)
    rows = np.flatnonzero(is_birth_or_end)
    order = rows[np.argsort(events.addr[rows], kind="stable")]
    addresses = events.addr[order]
    is_birth = events.action[order] == MemoryAction.ALLOC
    is_first = begins_runs(addresses)  # event of its address
    never = len(events)
    # the next event of an address, whatever it is, ends the life there
    next_event = np.append(order[1:], never)
    next_event[ends_runs(addresses)] = never
    return _LivesOfEvents(
        ended_only=order[is_first & ~is_birth],
        born=order[is_birth],
        died=next_event[is_birth],
        addresses=addresses,
    )


def _rows_at(blocks: Blocks, kept: Rows, address: Int64s) -> Rows:
    """The row of the one of the `kept` blocks that is at each address, -1 for none."""
    return first_with(blocks.address[kept], kept, address).astype(np.intp)


def blank(kind: type[T], rows: int, **given: Any) -> T:
    """A table of this kind with so many rows, in which nothing is known but the columns
    that are given: the others are -1."""
    columns: dict[str, Any] = {
        name: np.full(rows, -1) for name in kind.__struct_fields__
    }
    return kind(**columns | given)
