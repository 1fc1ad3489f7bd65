"""Finds the live allocations at any moment of a recording without scanning all of it.

The app's memory page shows it. A *moment* is the state after an event, or BEFORE the
first event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.memory.categories import (
    CATEGORIES,
    CATEGORY_NUMBER,
    UNKNOWN,
    MemoryFacts,
)
from fusetui.analysis.memory.evidence import BEFORE_RECORDING, NO_STACK
from fusetui.analysis.memory.history import BEFORE, Allocations, History
from fusetui.analysis.memory.layout import (
    Segment,
    SegmentLayout,
    compute_layout,
    prepare_segment_log,
    restore_segments,
)
from fusetui.trace.model.arrays import (
    Flags,
    Int32s,
    Int64s,
    Rows,
    at,
    first_with,
    last_at_or_before,
    prefix_sums,
    summed,
)
from fusetui.trace.model.grouping import grouped
from fusetui.trace.model.intervals import covered_until
from fusetui.trace.model.memo import memo
from fusetui.trace.model.sorted_arrays import slice_between
from fusetui.trace.snapshot.columns import Frame

Naming = Callable[[int], str]
"""Returns the name that belongs to a number."""


class GroupingKey(NamedTuple):
    """By what allocations are grouped, such as by the code that made them."""

    of_allocation: Int64s | Int32s  # a number for each allocation, negative for none
    name_of: Naming  # returns the name of such a number


Keys = Mapping[str, GroupingKey]
"""The ways in which allocations can be grouped, by their names."""

MIN_EVENTS_BETWEEN_KEPT = 4096
"""At least so many events lie between two moments of which all that lives is kept."""


class HeldGroups(NamedTuple):
    """Groups of live allocations, the largest first; one entry per group."""

    number: Int64s  # what they are grouped by: a row of `names`, or a stack
    bytes: Int64s
    blocks: Int64s


class KeptMoments(NamedTuple):
    """Some moments, ascending, with the allocations that are live at each of them."""

    events: Int64s
    # per moment: the live allocations, as rows of History.allocations
    live: tuple[Rows, ...]


class CategoryChanges(NamedTuple):
    """When the bytes of one category change, and how many there are."""

    events: Int64s  # ascending
    bytes: Int64s  # before the first change, then after each


class AllocatedBetween(NamedTuple):
    """What a range of events allocated."""

    allocations: int
    bytes: int
    kept_bytes: int  # of these, the bytes that were live behind the range


class Moments(msgspec.Struct, frozen=True, eq=False, dict=True):
    """What one device holds at any moment.

    Allocations are rows of History.allocations.
    """

    history: History
    category_numbers: Int64s  # of each allocation, the number of its category
    title: str  # of the device
    # of each event, ns since 1970 (as in the file if it has no epoch), ascending; empty
    # where the file has none
    times: Int64s
    name_of_stack: Naming  # the name of a stack
    names: tuple[str, ...]  # of all holders
    # By the name of a way of grouping (`Keys`): for each allocation who holds it, as an
    # index in `names`.
    holders: Mapping[str, Int64s]
    oldest_first: Rows  # the allocations in the order of their events
    kept_moments: KeptMoments  # some moments with what is live then
    changes: tuple[CategoryChanges, ...]  # of each category
    is_of_trace: bool  # from memory events: stacks are the numbers of ops, no frames

    @cached_property
    def positions(self) -> Int64s:
        """The time of each event, or its index in a file without times."""
        if len(self.times):
            return self.times
        return np.arange(len(self.history.events))

    def find_position(self, event: int) -> int:
        """Return the position of a moment: an entry of `positions`.

        BEFORE has that of the first event, and any later number that of the last one.
        Without events it is 0.
        """
        if not len(self.positions):
            return 0
        last_event = len(self.positions) - 1
        nearest_event = max(0, min(event, last_event))
        return int(self.positions[nearest_event])

    def describe_stack(self, stack: int) -> str:
        """Return the line of code of a stack; "" where none was recorded."""
        return self.name_of_stack(stack) if stack >= 0 else ""

    def list_frames(self, stack: int) -> tuple[Frame, ...]:
        """Return the frames of a stack, innermost first.

        There are none for the memory events of a trace, whose stacks are ops.
        """
        if self.is_of_trace:
            return ()
        return self.history.snapshot.stacks[stack]

    def find_live(self, event: int) -> Rows:
        """Return the allocations that are live after an event, in no order.

        For some moments this is kept. So these are the allocations that were live at
        the last kept moment, and those made since, without those that were freed.

        Args:
            event: The event, or BEFORE.

        Returns:
            Rows of History.allocations.
        """
        allocations = self.history.allocations
        last_kept = int(last_at_or_before(self.kept_moments.events, event))
        kept_event = int(self.kept_moments.events[last_kept])
        live_then = self.kept_moments.live[last_kept]

        made_since = self._find_allocated_between(kept_event + 1, event + 1)
        candidates = np.concatenate([live_then, made_since])
        live_rows: Rows = candidates[allocations.freed_at[candidates] > event]
        return live_rows

    def _find_allocated_between(self, first: int, last: int) -> Rows:
        """Return the allocations that the events from `first` to before `last` made."""
        allocated_at = self.history.allocations.allocated_at
        begin, end = np.searchsorted(
            allocated_at, [first, last], sorter=self.oldest_first
        )
        return self.oldest_first[begin:end]

    def sum_allocated_between(self, first: int, last: int) -> AllocatedBetween:
        """Add up what the events from `first` to before `last` allocated.

        Of these allocations, the result also has the bytes that are still live before
        `last`.
        """
        allocations = self.history.allocations
        rows = self._find_allocated_between(first, last)
        still_live = rows[allocations.freed_at[rows] >= last]
        return AllocatedBetween(
            allocations=len(rows),
            bytes=int(allocations.size[rows].sum()),
            kept_bytes=int(allocations.size[still_live].sum()),
        )

    def sum_by_category(self, events: Int64s) -> Int64s:
        """Return the bytes of each category after each of some events.

        Returns:
            Bytes of shape [CATEGORIES, events].
        """
        bytes_by_category = []
        for changes in self.changes:
            changes_so_far = np.searchsorted(changes.events, events, side="right")
            bytes_by_category.append(changes.bytes[changes_so_far])
        return np.stack(bytes_by_category)

    def find_most_of_categories(self, begin: int, end: int) -> list[int]:
        """Return the most bytes that each category has at any moment of a range.

        Args:
            begin: The position of the first moment: a time, or the index of an event
                in a file without times.
            end: The position of the last one.
        """
        first_event = int(np.searchsorted(self.positions, begin))
        event_behind = int(np.searchsorted(self.positions, end + 1))
        most_bytes = []
        for changes in self.changes:
            # A category has `bytes[n]` after n changes, until the next one.
            changes_before = int(np.searchsorted(changes.events, first_event))
            changes_by_end = int(np.searchsorted(changes.events, event_behind))
            bytes_in_range = changes.bytes[changes_before : changes_by_end + 1]
            most_bytes.append(int(bytes_in_range.max()))
        return most_bytes

    def find_highest_events(self, first: Int64s, last: Int64s) -> Int64s:
        """Find the event of each range after which most memory is allocated.

        Args:
            first: The first event of each range, or BEFORE.
            last: The last event of each range.

        Returns:
            An event per range; of several the first one.
        """
        allocated = self.history.allocated  # after event n at n + 1, BEFORE (-1) at 0
        highest_events = []
        for first_event, last_event in zip(first.tolist(), last.tolist(), strict=True):
            bytes_in_range = allocated[first_event + 1 : last_event + 2]
            highest_events.append(first_event + int(bytes_in_range.argmax()))
        return np.array(highest_events)

    def group_by_holder(self, by: str, event: int) -> HeldGroups:
        """Group the live allocations at a moment by who holds them.

        Args:
            by: What a holder is: a key of `holders`.
            event: The moment.

        Returns:
            The groups; their numbers are rows of `names`.
        """
        rows = self.find_live(event)
        return self._sum_groups(self.holders[by][rows], rows)

    def group_by_stack(self, by: str, holder: int, event: int) -> HeldGroups:
        """Group the live allocations of one holder by the stack that made them.

        Args:
            by: What a holder is: a key of `holders`.
            holder: A row of `names`.
            event: The moment.

        Returns:
            The groups; their numbers are stacks, -1 where none was recorded.
        """
        rows = self._find_rows_of_holder(by, holder, event)
        stacks = self.history.allocations.stack[rows].astype(np.int64)
        return self._sum_groups(stacks, rows)

    def list_allocations(self, by: str, holder: int, stack: int, event: int) -> Rows:
        """List the live allocations of one holder that were made by one stack.

        Args:
            by: What a holder is: a key of `holders`.
            holder: A row of `names`.
            stack: The stack, -1 for allocations without one.
            event: The moment.

        Returns:
            Rows of History.allocations, the largest first; equal sizes oldest first.
        """
        allocations = self.history.allocations
        rows = self._find_rows_of_holder(by, holder, event)
        rows = rows[allocations.stack[rows] == stack]

        # np.lexsort sorts by its last key first.
        order = np.lexsort((allocations.allocated_at[rows], -allocations.size[rows]))
        ordered: Rows = rows[order]
        return ordered

    def _find_rows_of_holder(self, by: str, holder: int, event: int) -> Rows:
        """Return the live allocations of one holder at a moment."""
        rows = self.find_live(event)
        is_of_holder = self.holders[by][rows] == holder
        rows_of_holder: Rows = rows[is_of_holder]
        return rows_of_holder

    def _sum_groups(self, numbers: Int64s, rows: Rows) -> HeldGroups:
        """Add up allocations that have the same number, such as that of their holder.

        Args:
            numbers: A number for each of `rows`.
            rows: Rows of History.allocations.
        """
        groups = grouped(numbers)
        group_bytes = groups.sums(self.history.allocations.size[rows])
        largest_first = np.argsort(-group_bytes, kind="stable")
        return HeldGroups(
            number=groups.keys[largest_first],
            bytes=group_bytes[largest_first],
            blocks=groups.counts[largest_first],
        )


def prepare_moments(facts: MemoryFacts) -> Moments:
    """Prepare what is needed to show what a device of a snapshot holds at any moment.

    Allocations can be grouped by code, by module and by category.
    """
    history = facts.history
    stack = history.allocations.stack

    times_us = history.events.time_us
    has_times = len(times_us) > 0 and int(times_us.min()) >= 0  # -1 is no time
    if has_times:
        # The clock of the file may go back; moments of the app must not.
        times_ns = np.maximum.accumulate(times_us) * 1000
    else:
        times_ns = np.empty(0, np.int64)

    keys: Keys = {
        "code": GroupingKey(stack, facts.evidence.describe_code),
        "module": GroupingKey(stack, facts.evidence.describe_module),
        "category": GroupingKey(facts.category_numbers, CATEGORIES.__getitem__),
    }
    return compute_moments(
        history,
        category_numbers=facts.category_numbers,
        title=f"device {history.device}",
        times=times_ns,
        name_of_stack=facts.evidence.describe_code,
        keys=keys,
        is_of_trace=False,
    )


def compute_moments(
    history: History,
    *,
    category_numbers: Int64s,
    title: str,
    times: Int64s,
    name_of_stack: Naming,
    keys: Keys,
    is_of_trace: bool,
) -> Moments:
    """Compute once what all moments of a device need.

    Args:
        history: The history of the device.
        category_numbers: The number of the category of each allocation.
        title: What the device is called.
        times: The time of each event, in ns; empty if the file has none.
        name_of_stack: Returns the name of a stack of `history.allocations`.
        keys: What allocations are grouped by.
        is_of_trace: Whether it comes from the memory events of a trace.
    """
    allocations = history.allocations
    holders = _find_holders(allocations, keys)
    oldest_first: Rows = np.argsort(allocations.allocated_at, kind="stable")

    changes_of_categories = []
    for category_number in range(len(CATEGORIES)):
        is_of_category = category_numbers == category_number
        changes = _find_byte_changes(allocations, is_of_category)
        changes_of_categories.append(changes)

    return Moments(
        history=history,
        category_numbers=category_numbers,
        title=title,
        times=times,
        name_of_stack=name_of_stack,
        names=holders.names,
        holders=holders.numbers,
        oldest_first=oldest_first,
        kept_moments=_keep_live_allocations(allocations, oldest_first),
        changes=tuple(changes_of_categories),
        is_of_trace=is_of_trace,
    )


class _Holders(NamedTuple):
    """Who holds each allocation, for each way of grouping."""

    # by the name of a way of grouping: for each allocation a row of `names`
    numbers: dict[str, Int64s]
    names: tuple[str, ...]


def _find_holders(allocations: Allocations, keys: Keys) -> _Holders:
    """Find out who holds each allocation, for each way of grouping.

    A *holder* is a name, such as a line of code or a module. Holders are numbered over
    all ways, so that equal names have one number; categories come first. E.g. keys
    (4, -1, 4) whose key 4 is named "a.py:3" are held by "a.py:3", nobody, "a.py:3".

    Args:
        allocations: The allocations.
        keys: The ways of grouping, by their names. An allocation without a key is held
            by BEFORE_RECORDING, if it was there before the first event, else by
            NO_STACK.
    """
    number_of_name: dict[str, int] = {
        str(name): category for name, category in CATEGORY_NUMBER.items()
    }
    no_stack = _number_name(NO_STACK, number_of_name)
    before_recording = _number_name(BEFORE_RECORDING, number_of_name)
    without_key = np.where(allocations.is_early, before_recording, no_stack)

    holders: dict[str, Int64s] = {}
    for by, grouping_key in keys.items():
        holder = without_key.copy()
        for key, rows in _group_by_key(grouping_key.of_allocation):
            name = grouping_key.name_of(key)
            holder[rows] = _number_name(name, number_of_name)
        holders[by] = holder

    return _Holders(numbers=holders, names=tuple(number_of_name))


def _number_name(name: str, number_of_name: dict[str, int]) -> int:
    """Return the number of a name. A new name is added, with the next number."""
    return number_of_name.setdefault(name, len(number_of_name))


def _group_by_key(keys: Int64s | Int32s) -> Iterator[tuple[int, Rows]]:
    """Yield each distinct key with the rows that have it, ascending. Keys below 0 stand
    for none, and are left out."""
    groups = grouped(keys)
    for key, rows in zip(groups.keys.tolist(), groups.members_of_each(), strict=True):
        if key >= 0:
            yield key, rows


def _keep_live_allocations(allocations: Allocations, oldest_first: Rows) -> KeptMoments:
    """Keep what is live at some moments, so that others can be found from these.

    The first one is BEFORE. From one to the next there are at least as many events as
    live allocations, so that all lists together are no longer than all events.

    Args:
        allocations: The allocations.
        oldest_first: The same in the order of their events.
    """
    allocated_at = allocations.allocated_at[oldest_first]
    living = oldest_first[allocated_at == BEFORE]
    kept_events = [BEFORE]
    kept_living = [living]
    next_event = BEFORE + max(MIN_EVENTS_BETWEEN_KEPT, len(living))

    while next_event < allocations.events:
        moments = [kept_events[-1], next_event]
        first, end = np.searchsorted(allocated_at, moments, side="right")
        candidates = np.concatenate([living, oldest_first[first:end]])
        living = candidates[allocations.freed_at[candidates] > next_event]

        kept_events.append(next_event)
        kept_living.append(living)
        next_event += max(MIN_EVENTS_BETWEEN_KEPT, len(living))

    return KeptMoments(events=np.array(kept_events), live=tuple(kept_living))


def _find_byte_changes(allocations: Allocations, is_chosen: Flags) -> CategoryChanges:
    """Find when the live bytes of the flagged allocations change, and to how much.

    E.g. 100 bytes that event 3 allocates and event 8 frees: the events are 3 and 8, the
    bytes 0, 100 and 0. What was there before the first event is allocated at BEFORE.
    """
    is_freed = is_chosen & allocations.is_freed
    events = np.concatenate(
        [allocations.allocated_at[is_chosen], allocations.freed_at[is_freed]]
    )
    change = np.concatenate([allocations.size[is_chosen], -allocations.size[is_freed]])
    by_event = np.argsort(events, kind="stable")
    return CategoryChanges(events=events[by_event], bytes=prefix_sums(change[by_event]))


class BlocksOfSegment(NamedTuple):
    """The blocks in a segment, by address; one entry per block."""

    rows: Rows  # of History.occupied
    category_numbers: Int64s


class PlacedBlocks(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The layout of memory at a moment: which block lies where."""

    history: History
    placement: SegmentLayout
    rows: Rows  # of History.occupied, by address
    segment: Int64s  # of each of `rows`, its index in `segments`
    category_numbers: Int64s  # of each of `rows`, the number of its category
    used_bytes: Int64s  # of each segment, what the program requested in it
    hole_bytes: Int64s  # of each segment, what is in holes

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, by address."""
        return self.placement.segments

    def list_blocks(self, segment: int) -> BlocksOfSegment:
        """List the blocks in a segment, given by its index in `segments`."""
        of_segment = slice_between(self.segment, segment, segment + 1)
        return BlocksOfSegment(
            rows=self.rows[of_segment],
            category_numbers=self.category_numbers[of_segment],
        )

    def sum_by_category(self, segment: int, borders: Int64s) -> Int64s:
        """Add up the bytes of each category between neighboring addresses.

        Args:
            segment: The index of the segment.
            borders: Ascending addresses.

        Returns:
            Bytes of shape [CATEGORIES, borders - 1].
        """
        allocations = self.history.occupied
        blocks = self.list_blocks(segment)
        bytes_between = np.zeros((len(CATEGORIES), len(borders) - 1), np.int64)
        for category in set(blocks.category_numbers.tolist()):
            rows_of_category = blocks.rows[blocks.category_numbers == category]
            start = allocations.address[rows_of_category]
            end = start + allocations.size[rows_of_category]
            bytes_between[category] = np.diff(covered_until(start, end, borders))
        return bytes_between


@memo(2)
def locate_blocks(moments: Moments, event: int) -> PlacedBlocks:
    """Return at which address each block of memory lies after an event.

    The result also has the segments at that moment, and how many bytes of each are used
    and free.

    Args:
        moments: The moments of the device.
        event: The event, or BEFORE for the moment before the first one.
    """
    history = moments.history

    # All moments since the last change of segments share one result of the memo.
    changes = prepare_segment_log(history).events
    changes_so_far = int(np.searchsorted(changes, event, side="right"))
    last_change = int(changes[changes_so_far - 1]) if changes_so_far else BEFORE
    segments = _look_up_segments(moments, last_change)
    placement = compute_layout(history, event, segments)

    occupied = history.occupied
    segment_count = len(segments)
    is_placed = placement.segment_of_allocation >= 0
    rows = np.flatnonzero(is_placed)
    rows = rows[np.argsort(occupied.address[rows], kind="stable")]
    segment = placement.segment_of_allocation[rows]
    allocation_of_row = _match_occupied_allocations(history, rows)
    return PlacedBlocks(
        history=history,
        placement=placement,
        rows=rows,
        segment=segment,
        category_numbers=at(
            moments.category_numbers, allocation_of_row, missing=UNKNOWN
        ),
        used_bytes=summed(segment, occupied.size[rows], segment_count),
        hole_bytes=summed(placement.segment, placement.size, segment_count),
    )


@memo(2)
def _look_up_segments(moments: Moments, event: int) -> tuple[Segment, ...]:
    """Return `restore_segments`; neighboring moments have the same segments."""
    return restore_segments(moments.history, event)


def _match_occupied_allocations(history: History, rows: Rows) -> Rows:
    """Find the rows of History.allocations that are the allocations of some blocks.

    An event makes at most one allocation, so that it tells which one it is.
    Allocations from before the first event are found by their addresses.

    Args:
        history: The history.
        rows: Rows of History.occupied.

    Returns:
        A row of History.allocations for each of them, -1 for none.
    """
    allocations = history.allocations
    is_early = allocations.is_early
    early_rows = np.flatnonzero(is_early)
    later_rows = np.flatnonzero(~is_early)

    row_of_event = np.full(allocations.events, -1)
    row_of_event[allocations.allocated_at[later_rows]] = later_rows
    allocated_at = history.occupied.allocated_at[rows]
    row_by_event = at(row_of_event, allocated_at, missing=-1)

    address = history.occupied.address[rows]
    row_by_address = first_with(allocations.address[early_rows], early_rows, address)
    is_found_by_address = history.occupied.is_early[rows]
    return np.where(is_found_by_address, row_by_address, row_by_event).astype(np.intp)
