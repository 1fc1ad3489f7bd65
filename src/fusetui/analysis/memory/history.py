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
    at,
    begins_runs,
    distinct,
    ends_runs,
    first_with,
    last_at_or_before,
    prefix_sums,
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
    allocated_at: Int64s  # the event that allocated it; BEFORE: before the first event
    freed_at: Int64s  # the event that freed it; `events` if it lives at the end
    stack: Int32s  # the call stack that allocated it; -1 if none was recorded
    block: Int32s  # its row in Blocks if it lives at the end, else -1
    events: int  # how many events the device has

    def __len__(self) -> int:
        return len(self.address)

    @property
    def is_early(self) -> Flags:
        """Which allocations are from before the first event."""
        is_early: Flags = self.allocated_at == BEFORE
        return is_early

    @property
    def is_freed(self) -> Flags:
        """Which allocations an event frees. All others live at the end."""
        is_freed: Flags = self.freed_at < self.events
        return is_freed

    def mark_live_after(self, event: int) -> Flags:
        """Return which allocations are live after an event, or BEFORE."""
        return (self.allocated_at <= event) & (self.freed_at > event)

    def sum_live_bytes(self) -> Int64s:
        """Return the live bytes before the first event, then after each.

        E.g. if event 0 allocates 100 bytes and event 1 frees them: 0, 100, 0.
        """
        moments = self.events + 1  # event n makes moment n + 1, and BEFORE is moment 0
        allocated = summed(self.allocated_at + 1, self.size, moments)

        is_freed = self.is_freed
        freed = summed(self.freed_at[is_freed] + 1, self.size[is_freed], moments)
        return np.cumsum(allocated - freed)

    @cached_property
    def _by_address(self) -> _ByAddress:
        """The allocations sorted by address and event, for lookups by address."""
        order: Rows = np.lexsort((self.allocated_at, self.address))
        addresses, address_row = np.unique(self.address[order], return_inverse=True)
        return _ByAddress(
            addresses=addresses,
            address_row=address_row,
            sort_key=self._make_sort_key(address_row, self.allocated_at[order]),
            freed_at=self.freed_at[order],
        )

    def _make_sort_key(self, address_row: Rows, event: Int64s) -> Int64s:
        """Combine addresses and events to numbers that sort by address, then by event.

        So a single search finds both. With 8 events, address 2 and event 3 become 24.

        Args:
            address_row: The addresses, as rows of `_by_address.addresses`.
            event: The event that belongs to each of them, or BEFORE.
        """
        keys_per_address = self.events + 2  # the events, `events` itself, and BEFORE
        return address_row.astype(np.int64) * keys_per_address + (event + 1)

    def find_next_in_use(self, since: Int64s, event: Int64s, limit: Int64s) -> Int64s:
        """Find the next address that was in use behind each of several addresses.

        E.g. if allocations begin at 100 and 300, and the one at 300 was freed before the
        event in question, a search behind 100 passes 300 and ends at its limit.

        Args:
            since: The addresses behind which to search.
            event: For each of them the event after which the state counts.
            limit: For each of them the address at which the search ends.

        Returns:
            For each address the next one in use, else its `limit`.
        """
        known_addresses = self._by_address.addresses
        # An address above every limit ends the search of those that find nothing.
        addresses = np.append(known_addresses, np.iinfo(np.int64).max)
        address_row = np.searchsorted(known_addresses, since, side="right")

        next_address = limit.copy()
        open_queries = np.flatnonzero(addresses[address_row] < limit)
        while len(open_queries):
            # Every open query looks at its next address, until one is in use.
            row = address_row[open_queries]
            is_in_use = self._mark_in_use(row, event[open_queries])
            next_address[open_queries[is_in_use]] = addresses[row[is_in_use]]

            open_queries = open_queries[~is_in_use]
            address_row[open_queries] += 1
            is_below_limit = addresses[address_row[open_queries]] < limit[open_queries]
            open_queries = open_queries[is_below_limit]

        return next_address

    def _mark_in_use(self, address_row: Rows, event: Int64s) -> Flags:
        """Return whether addresses were in use after an event.

        Args:
            address_row: The addresses, as rows of `_by_address.addresses`.
            event: For each of them the event after which the state counts.
        """
        index = self._by_address

        # The last allocation that had begun by then, at this address or a lower one.
        wanted = self._make_sort_key(address_row, event)
        allocation = last_at_or_before(index.sort_key, wanted)

        is_found = allocation >= 0
        is_at_address = is_found & (index.address_row[allocation] == address_row)
        return np.asarray(is_at_address & (index.freed_at[allocation] > event))


class _ByAddress(NamedTuple):
    """The allocations sorted by address, and at the same address by their events."""

    addresses: Int64s  # distinct, ascending
    # of each allocation:
    address_row: Rows  # its row in `addresses`
    sort_key: Int64s  # address and event as one number, ascending
    freed_at: Int64s  # the event that freed it, as in Allocations


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


def build_histories(snapshot: Snapshot) -> tuple[History, ...]:
    """Return the history of each device that has events or segments.

    They are sorted by the numbers of the devices.
    """
    events_by_device = {events.device: events for events in snapshot.events}
    devices_with_segments = distinct(snapshot.segments.device).tolist()

    built = []
    for device in sorted({*events_by_device, *devices_with_segments}):
        events = events_by_device.get(device)
        if events is None:
            events = make_table_with_unknowns(MemoryEvents, 0, device=device)
        built.append(_build_history(snapshot, device, events))

    return tuple(built)


def read_requested_bytes(blocks: Blocks, rows: Rows) -> Int64s:
    """Return the bytes that the program requested for some blocks.

    Files from before torch 2.1 do not record them; there the size of the block counts.

    Args:
        blocks: The blocks of the snapshot.
        rows: Rows of these blocks.
    """
    requested = blocks.requested_size[rows]
    is_recorded = requested >= 0
    return np.where(is_recorded, requested, blocks.size[rows])


def mark_private_pool_allocations(history: History) -> Flags:
    """Return which allocations are in a private pool, such as that of a CUDA graph.

    What lives at the end has a block, whose segment has a pool. Of all else, the event
    that allocated it may name the pool; where it does not, the flag is false.

    Returns:
        One flag for each entry of `history.allocations`.
    """
    snapshot = history.snapshot
    allocations = history.allocations

    # The name of the common pool is (0, 0).
    is_private = np.array([any(name) for name in snapshot.pools], np.bool_)
    event_is_private = at(is_private, history.events.pool, missing=False)
    segment_is_private = at(is_private, snapshot.segments.pool, missing=False)
    block_is_private = segment_is_private[snapshot.blocks.segment]

    private_by_event = at(event_is_private, allocations.allocated_at, missing=False)
    private_by_block = at(block_is_private, allocations.block, missing=False)
    has_block = allocations.block >= 0
    return np.where(has_block, private_by_block, private_by_event)


def _build_history(snapshot: Snapshot, device: int, events: MemoryEvents) -> History:
    """Work out what the memory of a device held, from its events and its last state.

    Args:
        snapshot: The snapshot that has the device.
        device: The number of the device.
        events: The events of the device; there may be none.
    """
    segments = np.flatnonzero(snapshot.segments.device == device)
    allocations = _collect_allocations(snapshot, device, events)
    allocated = allocations.until_requested.sum_live_bytes()
    active = allocations.until_free.sum_live_bytes()
    reserved = _compute_reserved_bytes(snapshot, segments, events)
    held_at_end = read_requested_bytes(snapshot.blocks, allocations.kept).sum()
    difference = int(allocated[-1] - held_at_end)

    # Contradictions show which actions happened without being recorded: events that do
    # not add up, memory that was taken back twice, and more in use than reserved.
    unrecorded = allocations.unrecorded
    if difference:
        unrecorded += _name_missing_events(events, unrecorded)
    if _is_taken_twice(snapshot, segments, events) and _lacks_actions(
        events, SEGMENT_GIVEN
    ):
        unrecorded += (MemoryAction.SEGMENT_ALLOC,)
    if (active > reserved).any() and _lacks_actions(events, SEGMENT_TAKEN):
        unrecorded += (MemoryAction.SEGMENT_FREE,)

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
    """Name the actions that explain why events do not add up to what the blocks hold.

    Args:
        events: The events of a device.
        unrecorded: The kind of end that is known to be missing; empty if neither is.

    Returns:
        ALLOC if no event allocates. Else both kinds of ends if no event frees, unless
        one of them is known to be missing.
    """
    if _lacks_actions(events, (MemoryAction.ALLOC,)):
        return (MemoryAction.ALLOC,)
    if not unrecorded and _lacks_actions(events, FREED):
        return FREED
    return ()


def _compute_reserved_bytes(
    snapshot: Snapshot, segments: Rows, events: MemoryEvents
) -> Int64s:
    """Compute how many bytes the device had given to the allocator, over time.

    The file has the segments of the end. E.g. if they have 30 MB, and the only event
    added 10 MB, the result is 20 and 30 MB.

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
    change_so_far = prefix_sums(given - taken)

    at_end = snapshot.segments.total_size[segments].sum()
    before_first_event = at_end - change_so_far[-1]
    return np.asarray(before_first_event + change_so_far)


def _is_taken_twice(snapshot: Snapshot, segments: Rows, events: MemoryEvents) -> bool:
    """Return whether the device took back an address that it must have given again.

    That is so if an address was taken back twice, or is there at the end.
    """
    taken = events.addr[np.isin(events.action, SEGMENT_TAKEN)]
    has_repeats = len(distinct(taken)) < len(taken)

    addresses_at_end = snapshot.segments.address[segments]
    return has_repeats or bool(np.isin(taken, addresses_at_end).any())


def _lacks_actions(events: MemoryEvents, actions: tuple[MemoryAction, ...]) -> bool:
    """Return whether there are events, but none of them has one of some actions."""
    if not len(events):
        return False
    return not np.isin(events.action, actions).any()


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
        ends_of_recorded = occupied.freed_at[~occupied.is_early]
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
    pairs = _pair_events(events, end)
    is_unnamed = ~np.isin(blocks.address[blocks_at_end], pairs.addresses)
    unnamed_blocks = blocks_at_end[is_unnamed]

    # Put three groups one after another: what events only free, blocks that no event
    # names, and what events allocate.
    address = np.concatenate(
        [
            events.addr[pairs.freed_only],
            blocks.address[unnamed_blocks],
            events.addr[pairs.allocated],
        ]
    )
    size = np.concatenate(
        [
            events.size[pairs.freed_only],
            read_requested_bytes(blocks, unnamed_blocks),
            events.size[pairs.allocated],
        ]
    )
    count_before = len(pairs.freed_only) + len(unnamed_blocks)
    allocated_at = np.concatenate([np.full(count_before, BEFORE), pairs.allocated])
    never = np.full(len(unnamed_blocks), len(events))
    freed_at = np.concatenate([pairs.freed_only, never, pairs.freed])

    is_live_at_end = freed_at == len(events)
    block_there = _find_blocks_at(blocks, blocks_at_end, address)
    block = np.where(is_live_at_end, block_there, -1)

    # What no event allocated has the stack that its block has, if there is one.
    stack_before = at(blocks.stack, block[:count_before], missing=-1)
    stack = np.concatenate([stack_before, events.stack[pairs.allocated]])
    return Allocations(
        address=address,
        size=size,
        allocated_at=allocated_at,
        freed_at=freed_at,
        stack=stack.astype(np.int32),
        block=block.astype(np.int32),
        events=len(events),
    )


class _AllocationsOfEvents(NamedTuple):
    """The events that allocate and free, by their numbers, sorted by address."""

    freed_only: Rows  # those that free what no event allocated
    allocated: Rows  # those that allocate
    # for each of `allocated` the event that frees it; the number of events if none does
    freed: Rows
    addresses: Int64s  # of all of them


def _pair_events(events: MemoryEvents, end: MemoryAction) -> _AllocationsOfEvents:
    """Pair the events that begin and end an allocation at the same address.

    Args:
        events: The events of a device.
        end: The action that ends an allocation.
    """
    is_begin_or_end = (events.action == MemoryAction.ALLOC) | (events.action == end)
    rows = np.flatnonzero(is_begin_or_end)

    # Sort by address; a stable sort keeps the order of time at each address.
    rows = rows[np.argsort(events.addr[rows], kind="stable")]
    addresses = events.addr[rows]
    is_begin = events.action[rows] == MemoryAction.ALLOC

    # The next event of an address, whatever it is, ends the allocation there.
    never = len(events)
    is_last_of_address = ends_runs(addresses)
    next_event = np.where(is_last_of_address, never, np.roll(rows, -1))

    # A free that comes first at its address ends what was there before all events.
    is_first_of_address = begins_runs(addresses)
    return _AllocationsOfEvents(
        freed_only=rows[is_first_of_address & ~is_begin],
        allocated=rows[is_begin],
        freed=next_event[is_begin],
        addresses=addresses,
    )


def _find_blocks_at(blocks: Blocks, candidates: Rows, address: Int64s) -> Rows:
    """Return which of the candidates, rows of `blocks`, is at each address; -1 where
    none is."""
    return first_with(blocks.address[candidates], candidates, address).astype(np.intp)


def make_table_with_unknowns(kind: type[T], rows: int, **known_columns: Any) -> T:
    """Build a table in which only the given columns are known; all others are -1.

    E.g. `make_table_with_unknowns(Blocks, 2, size=sizes)` has two blocks with a size only.

    Args:
        kind: The type of the table.
        rows: How many rows the table has.
        known_columns: The known columns, by their names.
    """
    columns: dict[str, Any] = {}
    for name in kind.__struct_fields__:
        is_known = name in known_columns
        columns[name] = known_columns[name] if is_known else np.full(rows, -1)
    return kind(**columns)
