"""Follows the allocations of a device and their pools, exact to the byte.

It reads the events of a snapshot, finds which allocations lived from when to when, by
their addresses, and adds them up. The recorder keeps only the last events, so what was
there before the first one is worked out backwards. It is what the blocks of the
segments hold at the end although no event names it, and what is freed without having
been allocated.
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
    last_at_or_before,
    summed,
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
"""The two events that end an allocation."""

T = TypeVar("T", bound=msgspec.Struct)


class Allocations(msgspec.Struct, frozen=True, eq=False, dict=True):
    """All allocations of a device, each from the event that makes it to its freeing.

    All arrays have one entry per allocation: first those from before the first event,
    then the others in the order of their addresses. Sizes are in bytes. Events are
    numbered from 0 on, in the order of time.
    """

    address: Int64s
    size: Int64s  # as the program requested it
    born: Int64s  # the event that allocated it; BEFORE: before the first event
    died: Int64s  # the event that freed it; `events` if it lives at the end
    stack: Int32s  # the call stack that allocated it; -1 if none was recorded
    block: Int32s  # its row in Blocks if it lives at the end, else -1
    events: int  # how many events the device has

    def __len__(self) -> int:
        return len(self.address)

    def live_after(self, event: int) -> Flags:
        """Return which allocations are live after an event, or BEFORE."""
        return (self.born <= event) & (self.died > event)

    def live_bytes(self) -> Int64s:
        """Return the live bytes before the first event, then after each.

        E.g. if event 0 allocates 100 bytes and event 1 frees them: 0, 100, 0.
        """
        # Entry n + 1 is the change by event n; entry 0 is what was there before.
        moments = self.events + 1
        allocated = summed(self.born + 1, self.size, moments)
        has_died = self.died < self.events
        freed = summed(self.died[has_died] + 1, self.size[has_died], moments)
        return np.cumsum(allocated - freed)

    @cached_property
    def _by_address(self) -> _ByAddress:
        """The allocations sorted by address and birth, for lookups by address."""
        order: Rows = np.lexsort((self.born, self.address))
        addresses, address_row = np.unique(self.address[order], return_inverse=True)

        # Address and birth become one number, so that a single search finds both: with
        # 10 births per address, address 2 and birth 3 become 24. The birth BEFORE (-1)
        # counts as 0.
        births = address_row.astype(np.int64) * self._births_per_address
        births += self.born[order] + 1
        return _ByAddress(addresses=addresses, births=births, died=self.died[order])

    @property
    def _births_per_address(self) -> int:
        """How many births there can be at an address, from BEFORE to `events`."""
        return self.events + 2

    def next_in_use(self, since: Int64s, born: Int64s, limit: Int64s) -> Int64s:
        """Find the next address that was in use behind each of several addresses.

        A free block reaches up to the next one that is in use, or to the end of its
        segment, since free neighbors become one. So what followed an allocation when
        it was made tells how large its block is: it includes what was not worth
        splitting off.

        Args:
            since: The addresses behind which to search.
            born: For each of them the event after which the state counts.
            limit: For each of them the address at which the search ends.

        Returns:
            For each address the next one in use, else its `limit`.
        """
        index = self._by_address
        # Nothing is in use beyond the last address.
        addresses = np.append(index.addresses, np.iinfo(np.int64).max)
        next_address = limit.copy()
        address_row = np.searchsorted(index.addresses, since, side="right")

        # Each query without an answer looks at one address at a time.
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
        """Return whether addresses were in use after an event.

        Args:
            address_row: The addresses, as rows of `_by_address.addresses`.
            event: For each of them the event after which the state counts.
        """
        index = self._by_address
        first_birth = address_row * self._births_per_address  # BEFORE, at this address
        last_birth = first_birth + event + 1

        # Find the last allocation at this address that had begun by then.
        allocation = last_at_or_before(index.births, last_birth)

        is_of_address = (allocation >= 0) & (index.births[allocation] >= first_birth)
        return np.asarray(is_of_address & (index.died[allocation] > event))


class _ByAddress(NamedTuple):
    """The allocations sorted by address, and at the same address by birth."""

    addresses: Int64s  # distinct, ascending
    births: Int64s  # the row in `addresses` and the birth, in one ascending number
    died: Int64s  # the event that freed it, as in Allocations


class History(msgspec.Struct, frozen=True, eq=False, dict=True):
    """What the memory of one device held from event to event.

    Sums are in bytes and have one entry more than there are events: before the first
    event, then after each. So the sum after event n is at n + 1.
    """

    snapshot: Snapshot
    device: int
    events: MemoryEvents
    segments: Rows  # rows of the snapshot's segments that are of this device
    allocations: Allocations  # each ends when the program frees it
    # Each ends when its memory can be used again. This is later if another stream
    # still works with it.
    occupied: Allocations
    allocated: Int64s  # the sum of `allocations`
    active: Int64s  # the sum of `occupied`
    reserved: Int64s  # what the device has given to the allocator
    # what events add up to at the end, less what the blocks hold
    difference_end_bytes: int
    # actions that must have happened although no event was recorded
    unrecorded: tuple[MemoryAction, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether the events tell when each allocation began and ended."""
        if MemoryAction.ALLOC in self.unrecorded:
            return False
        return not all(action in self.unrecorded for action in FREED)

    @property
    def peak_index(self) -> int:
        """The event after which the peak is reached first."""
        return int(self.allocated.argmax()) - 1

    def allocated_after(self, event: int) -> int:
        """Return the bytes that are allocated after an event, or BEFORE."""
        return int(self.allocated[event + 1])

    def active_after(self, event: int) -> int:
        """Return the bytes that are not free after an event, or BEFORE."""
        return int(self.active[event + 1])

    def reserved_after(self, event: int) -> int:
        """Return the bytes that the device has given after an event, or BEFORE."""
        return int(self.reserved[event + 1])

    @property
    def failures(self) -> Rows:
        """The events at which memory ran out."""
        return np.flatnonzero(self.events.action == MemoryAction.OOM)

    def time_us(self, event: int) -> int | None:
        """Return when an event happened, in microseconds since 1970.

        BEFORE has the time of the first event. Returns None if there are no events or
        the file has no times.
        """
        times = self.events.time_us
        if not len(times):
            return None

        time_us = int(times[max(event, 0)])
        return time_us if time_us >= 0 else None


def histories(snapshot: Snapshot) -> tuple[History, ...]:
    """Return the history of each device that has events or segments.

    They are sorted by the numbers of the devices.
    """
    events_by_device = {events.device: events for events in snapshot.events}
    with_segments = [int(device) for device in distinct(snapshot.segments.device)]
    devices = sorted(set(events_by_device) | set(with_segments))
    return tuple(
        _build_history(snapshot, device, events_by_device.get(device))
        for device in devices
    )


def requested_bytes(blocks: Blocks, rows: Rows) -> Int64s:
    """Return the requested bytes of some blocks.

    Files from before torch 2.1 do not have them (-1). There the size of the block
    stands in.

    Args:
        blocks: The blocks of the snapshot.
        rows: Rows of these blocks.
    """
    requested = blocks.requested_size[rows]
    return np.where(requested < 0, blocks.size[rows], requested)


def mark_private_pool_allocations(history: History) -> Flags:
    """Return which allocations are in a private pool, as that of a CUDA graph is.

    Where events do not name pools, this is only known of allocations that live at the
    end.

    Returns:
        One flag for each entry of `history.allocations`.
    """
    snapshot = history.snapshot
    allocations = history.allocations
    # A row of -1 means no pool, no event or no block. Each array of flags gets one
    # more entry at its end, so that -1 reads this entry.
    no_pool = False
    is_private_pool = np.array([any(pool) for pool in snapshot.pools], np.bool_)
    is_private = np.append(is_private_pool, no_pool)
    event_is_private = np.append(is_private[history.events.pool], no_pool)
    segment_is_private = is_private[snapshot.segments.pool]
    block_is_private = np.append(segment_is_private[snapshot.blocks.segment], no_pool)
    is_live_at_end = allocations.block >= 0
    born_in_private_pool = event_is_private[allocations.born]  # BEFORE is -1

    return np.where(
        is_live_at_end, block_is_private[allocations.block], born_in_private_pool
    )


def _build_history(
    snapshot: Snapshot, device: int, recorded_events: MemoryEvents | None
) -> History:
    """Work out what the memory of a device held, from its events and its last state.

    Args:
        snapshot: The snapshot that has the device.
        device: The number of the device.
        recorded_events: The events of the device; None if it has none.
    """
    events = recorded_events
    if events is None:
        events = make_table_with_unknowns(MemoryEvents, 0, device=device)
    segments = np.flatnonzero(snapshot.segments.device == device)
    allocations = _collect_allocations(snapshot, device, events)
    allocated = allocations.until_requested.live_bytes()
    active = allocations.until_free.live_bytes()
    reserved = _compute_reserved_bytes(snapshot, segments, events)
    held_at_end = requested_bytes(snapshot.blocks, allocations.kept).sum()
    difference = int(allocated[-1] - held_at_end)

    # Contradictions show which actions happened without being recorded: events that do
    # not add up, memory that was taken back twice, and more in use than reserved.
    unrecorded = allocations.unrecorded
    if difference:
        unrecorded += _name_missing_events(events, unrecorded)
    if _is_taken_twice(snapshot, segments, events):
        unrecorded += _return_if_absent(events, SEGMENT_GIVEN)[:1]
    if (active > reserved).any():
        unrecorded += _return_if_absent(events, SEGMENT_TAKEN)[:1]

    return History(
        snapshot=snapshot,
        device=device,
        events=events,
        segments=segments,
        allocations=allocations.until_requested,
        occupied=allocations.until_free,
        allocated=allocated,
        active=active,
        reserved=reserved,
        difference_end_bytes=difference,
        unrecorded=unrecorded,
    )


class _AllocationsByEnd(NamedTuple):
    """The allocations of a device, each with one of two ends."""

    until_requested: Allocations  # each ends when the program frees it
    until_free: Allocations  # each ends when its memory can be used again
    kept: Rows  # the blocks that are in `until_requested` at the end
    # the kind of end that was not recorded; empty if both were
    unrecorded: tuple[MemoryAction, ...]


def _collect_allocations(
    snapshot: Snapshot, device: int, events: MemoryEvents
) -> _AllocationsByEnd:
    """Collect the allocations of a device twice, for the two ways in which an
    allocation ends.

    It ends for the program when its memory is requested to be freed, and for the
    allocator when that is completed. If only one of these was recorded, it counts for
    both.

    Args:
        snapshot: The snapshot.
        device: The number of the device.
        events: The events of the device.
    """
    blocks = snapshot.blocks
    is_of_device = snapshot.segments.device[blocks.segment] == device
    is_allocated = blocks.state == BlockState.ACTIVE_ALLOCATED
    is_in_use = blocks.state != BlockState.INACTIVE
    allocated_blocks = np.flatnonzero(is_of_device & is_allocated)
    blocks_in_use = np.flatnonzero(is_of_device & is_in_use)

    until_requested = pair_allocations(
        events, blocks, allocated_blocks, MemoryAction.FREE_REQUESTED
    )
    until_free = pair_allocations(
        events, blocks, blocks_in_use, MemoryAction.FREE_COMPLETED
    )

    unrecorded = _find_unrecorded_end(events, until_free, blocks.address[blocks_in_use])
    if unrecorded == (MemoryAction.FREE_REQUESTED,):
        until_requested = until_free
        allocated_blocks = blocks_in_use
    elif unrecorded == (MemoryAction.FREE_COMPLETED,):
        until_free = until_requested

    return _AllocationsByEnd(
        until_requested=until_requested,
        until_free=until_free,
        kept=allocated_blocks,
        unrecorded=unrecorded,
    )


def _name_missing_events(
    events: MemoryEvents, unrecorded: tuple[MemoryAction, ...]
) -> tuple[MemoryAction, ...]:
    """Name the actions whose events are missing, so that sums do not fit at the end.

    It is called if the events do not add up to what the blocks hold.

    Args:
        events: The events of a device.
        unrecorded: The kind of end that is known to be missing.

    Returns:
        ALLOC if there is no such event. Else both kinds of ends if neither has an
        event and `unrecorded` is empty.
    """
    no_allocations = _return_if_absent(events, (MemoryAction.ALLOC,))
    if no_allocations or unrecorded:
        return no_allocations

    return _return_if_absent(events, FREED)


def _compute_reserved_bytes(
    snapshot: Snapshot, segments: Rows, events: MemoryEvents
) -> Int64s:
    """Compute how many bytes the device had given to the allocator, over time.

    They are worked out backwards from the segments at the end, by undoing each event
    that adds or returns memory.

    Args:
        snapshot: The snapshot.
        segments: The rows of the segments of the device.
        events: Its events.

    Returns:
        The bytes before the first event, then after each.
    """
    is_given = np.isin(events.action, SEGMENT_GIVEN)
    is_taken = np.isin(events.action, SEGMENT_TAKEN)
    given = np.where(is_given, events.size, 0)
    taken = np.where(is_taken, events.size, 0)
    change = given - taken

    # Subtract all changes from the end, then add them up again.
    at_end = snapshot.segments.total_size[segments].sum()
    before_first = np.array([at_end - change.sum()], np.int64)
    return np.cumsum(np.concatenate((before_first, change)))


def _is_taken_twice(snapshot: Snapshot, segments: Rows, events: MemoryEvents) -> bool:
    """Return whether the device took back an address that it must have given again.

    That is so if an address was taken back twice, or is there at the end.
    """
    taken = events.addr[np.isin(events.action, SEGMENT_TAKEN)]
    left = snapshot.segments.address[segments]
    return len(distinct(taken)) < len(taken) or bool(np.isin(taken, left).any())


def _return_if_absent(
    events: MemoryEvents, actions: tuple[MemoryAction, ...]
) -> tuple[MemoryAction, ...]:
    """Return `actions` if there are events, but none of them has one of these actions.
    Otherwise return ()."""
    if not len(events) or np.isin(events.action, actions).any():
        return ()
    return actions


def _find_unrecorded_end(
    events: MemoryEvents, occupied: Allocations, in_use: Int64s
) -> tuple[MemoryAction, ...]:
    """Find out which of the two kinds of ends of allocations torch did not record.

    Programs can leave one out with `skip_actions` of _record_memory_history.

    Args:
        events: The events of a device.
        occupied: Its allocations, which end with FREE_COMPLETED.
        in_use: The addresses of the blocks that are in use at the end.

    Returns:
        FREE_REQUESTED, if only completions were recorded and one ends an
        allocation whose begin was recorded. FREE_COMPLETED, if only requests were
        and one of their blocks is gone at the end. Else nothing.
    """
    requests = np.flatnonzero(events.action == MemoryAction.FREE_REQUESTED)
    completions = np.flatnonzero(events.action == MemoryAction.FREE_COMPLETED)

    if len(completions) and not len(requests):
        ends_of_recorded = occupied.died[occupied.born != BEFORE]
        if np.isin(ends_of_recorded, completions).any():
            return (MemoryAction.FREE_REQUESTED,)
    elif len(requests) and not len(completions):
        is_gone = ~np.isin(events.addr[requests], in_use)
        if is_gone.any():
            return (MemoryAction.FREE_COMPLETED,)

    return ()


def pair_allocations(
    events: MemoryEvents, blocks: Blocks, blocks_at_end: Rows, end: MemoryAction
) -> Allocations:
    """Pair the events that allocate and free memory of a device to allocations.

    E.g. an event that allocates at an address, and the next one there, which frees it.
    What is freed without having been allocated, and blocks that no event names, were
    there before the first event.

    Args:
        events: The events of the device.
        blocks: The blocks of the snapshot.
        blocks_at_end: Rows of the blocks that live at the end.
        end: The action that ends an allocation.

    Returns:
        The allocations from before the first event, then those that events make, in
        the order of their addresses.
    """
    by_events = _pair_events(events, end)
    is_unnamed = ~np.isin(blocks.address[blocks_at_end], by_events.addresses)
    unnamed = blocks_at_end[is_unnamed]

    # Put three groups one after another: what events only free, blocks that no event
    # names, and what events allocate.
    freed_only = by_events.freed_only
    allocated = by_events.allocated
    address = np.concatenate(
        [events.addr[freed_only], blocks.address[unnamed], events.addr[allocated]]
    )
    size = np.concatenate(
        [
            events.size[freed_only],
            requested_bytes(blocks, unnamed),
            events.size[allocated],
        ]
    )
    never = np.full(len(unnamed), len(events))
    died = np.concatenate([freed_only, never, by_events.freed])
    count_before = len(freed_only) + len(unnamed)
    born = np.concatenate([np.full(count_before, BEFORE), allocated])

    is_live_at_end = died == len(events)
    block = np.where(
        is_live_at_end, _find_blocks_at(blocks, blocks_at_end, address), -1
    )

    # The last entry is read for a block of -1: there is no stack.
    stack_of_blocks = np.append(blocks.stack, -1)
    stack = np.concatenate(
        [stack_of_blocks[block[:count_before]], events.stack[allocated]]
    )
    return Allocations(
        address=address,
        size=size,
        born=born,
        died=died,
        stack=stack.astype(np.int32),
        block=block.astype(np.int32),
        events=len(events),
    )


class _AllocationsOfEvents(NamedTuple):
    """The events that allocate and free, by their numbers, sorted by address."""

    freed_only: Rows  # those that free what no event allocated
    allocated: Rows  # those that allocate
    freed: (
        Rows  # for each of `allocated` the event that frees it; their number for none
    )
    addresses: Int64s  # of all of them


def _pair_events(events: MemoryEvents, end: MemoryAction) -> _AllocationsOfEvents:
    """Pair the events that begin and end an allocation at the same address.

    Args:
        events: The events of a device.
        end: The action that ends an allocation.
    """
    is_birth_or_end = (events.action == MemoryAction.ALLOC) | (events.action == end)
    rows = np.flatnonzero(is_birth_or_end)
    order = rows[np.argsort(events.addr[rows], kind="stable")]

    # Sorted by address; the stable sort keeps the order of time at each.
    addresses = events.addr[order]
    is_birth = events.action[order] == MemoryAction.ALLOC
    is_first = begins_runs(addresses)  # the first event of its address
    never = len(events)

    # The next event of an address, whatever it is, ends the allocation there.
    next_event = np.append(order[1:], never)
    next_event[ends_runs(addresses)] = never

    return _AllocationsOfEvents(
        freed_only=order[is_first & ~is_birth],
        allocated=order[is_birth],
        freed=next_event[is_birth],
        addresses=addresses,
    )


def _find_blocks_at(blocks: Blocks, candidates: Rows, address: Int64s) -> Rows:
    """Find the memory block at each of some addresses.

    Args:
        blocks: The blocks of the snapshot.
        candidates: The rows of the blocks among which to search.
        address: The addresses.

    Returns:
        A row of `blocks` for each address, -1 where there is none.
    """
    return first_with(blocks.address[candidates], candidates, address).astype(np.intp)


def make_table_with_unknowns(kind: type[T], rows: int, **known_columns: Any) -> T:
    """Build a table in which only the given columns are known; all others are -1.

    E.g. `make_table_with_unknowns(Blocks, 2, size=sizes)` has two blocks with a size only.

    Args:
        kind: The type of the table.
        rows: How many rows the table has.
        known_columns: The known columns, by their names.
    """
    columns: dict[str, Any] = {
        name: np.full(rows, -1) for name in kind.__struct_fields__
    }
    return kind(**columns | known_columns)
