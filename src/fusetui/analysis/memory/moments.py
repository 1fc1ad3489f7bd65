"""What lives at any moment of a recording, found without a look at all of it: what the
app shows.

A moment is an event, after which the state is meant, or BEFORE.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    layout,
    segment_log,
    segments_at,
)
from fusetui.trace.model.arrays import (
    Flags,
    Int32s,
    Int64s,
    Rows,
    at,
    distinct,
    first_with,
    summed,
)
from fusetui.trace.model.intervals import covered_until
from fusetui.trace.model.memo import memo
from fusetui.trace.snapshot.columns import Frame

Naming = Callable[[int], str]
Keys = Mapping[str, tuple[Int64s | Int32s, Naming]]
"""By what lives are grouped: a number for each of them, negative for none, and its
name."""

MIN_EVENTS_BETWEEN_KEPT = 4096
"""At least so many events lie between two moments of which all that lives is kept."""


class HeldGroups(NamedTuple):
    """Groups of what lives, the largest first; arrays of shape [groups]."""

    number: Int64s  # by which they are grouped: of a holder, or of a stack
    bytes: Int64s
    blocks: Int64s


class KeptMoments(NamedTuple):
    """Some moments, ascending, and what lives at each of them."""

    events: Int64s
    lives: tuple[Rows, ...]


class CategoryChanges(NamedTuple):
    """When the bytes of a category change: `events`, ascending, shape [changes], and
    `bytes` before the first and after each, shape [changes + 1]."""

    events: Int64s
    bytes: Int64s


class AllocatedBetween(NamedTuple):
    """What some events allocated: how often, how many bytes, and of these the bytes
    that lived after the events."""

    allocations: int
    bytes: int
    kept_bytes: int


class Moments(msgspec.Struct, frozen=True, eq=False, dict=True):
    """What one device holds at any moment. Lives are those of History.lives."""

    history: History
    kinds: Int64s  # of each life, the number of its category
    title: str  # of the device
    # of each event, ns since 1970 (as in the file if it has no epoch), ascending; empty
    # where the file has none
    times: Int64s
    named: Naming  # the name of a stack
    names: tuple[str, ...]  # of all holders
    # by what is grouped (`Keys`), for each life the row of `names` of who holds it
    holders: Mapping[str, Int64s]
    born: Rows  # the lives in the order of their births
    kept: KeptMoments
    changes: tuple[CategoryChanges, ...]  # of each category
    is_of_trace: bool  # from memory events: stacks are the numbers of ops, no frames

    @cached_property
    def positions(self) -> Int64s:
        """For each event its time, or in a file without times its number."""
        return self.times if len(self.times) else np.arange(len(self.history.events))

    def position(self, event: int) -> int:
        """The position of a moment; that of the first event for BEFORE, that of the
        last one for any later number, 0 without events."""
        if not len(self.positions):
            return 0
        last = len(self.positions) - 1
        return int(self.positions[max(0, min(event, last))])

    def place_of(self, stack: int) -> str:
        """The code of a stack; "" where none was recorded."""
        return self.named(stack) if stack >= 0 else ""

    def frames(self, stack: int) -> tuple[Frame, ...]:
        """The frames of a stack, innermost first; () for what is of a trace."""
        return () if self.is_of_trace else self.history.snapshot.stacks[stack]

    def living(self, event: int) -> Rows:
        """The rows of History.lives that live at a moment, in no order: what lived at
        the last kept moment and what was born since, without what has died."""
        lives = self.history.lives
        place = int(np.searchsorted(self.kept.events, event, side="right")) - 1
        since = np.array([self.kept.events[place], event])
        bounds = np.searchsorted(lives.born, since, side="right", sorter=self.born)
        first, last = bounds.tolist()
        candidates = np.concatenate([self.kept.lives[place], self.born[first:last]])
        living: Rows = candidates[lives.died[candidates] > event]
        return living

    def allocated_in(self, first: int, last: int) -> AllocatedBetween:
        """What the events [first, last) allocated, and what of it lived behind them."""
        lives = self.history.lives
        begin, end = np.searchsorted(lives.born, [first, last], sorter=self.born)
        rows = self.born[begin:end]
        kept = rows[lives.died[rows] >= last]
        return AllocatedBetween(
            allocations=len(rows),
            bytes=int(lives.size[rows].sum()),
            kept_bytes=int(lives.size[kept].sum()),
        )

    def by_category(self, events: Int64s) -> Int64s:
        """The bytes of each category after each of these events, of shape [CATEGORIES,
        events]."""
        rows = []
        for changes in self.changes:
            happened = np.searchsorted(changes.events, events, side="right")
            rows.append(changes.bytes[happened])
        return np.stack(rows)

    def most_of_categories(self, begin: int, end: int) -> list[int]:
        """The most bytes that each category has at any moment from `begin` to `end`,
        which are positions."""
        first_event, after_last = np.searchsorted(self.positions, (begin, end + 1))
        most = []
        for changes in self.changes:
            # with the bytes before the first change
            first = int(np.searchsorted(changes.events, first_event))
            last = int(np.searchsorted(changes.events, after_last))
            most.append(int(changes.bytes[first : last + 1].max()))
        return most

    def highest(self, first: Int64s, last: Int64s) -> Int64s:
        """For each range of events [first, last] the event after which most is
        allocated, of several the first one."""
        allocated = self.history.allocated  # before the first event, then after each
        moments = []
        for first_event, last_event in zip(first.tolist(), last.tolist(), strict=True):
            after = allocated[first_event + 1 : last_event + 2]
            moments.append(first_event + int(after.argmax()))
        return np.array(moments)

    def held(self, by: str, event: int) -> HeldGroups:
        """Who holds what lives at a moment, by a key of `holders`; `number` is a row of
        `names`."""
        rows = self.living(event)
        return self._grouped(self.holders[by][rows], rows)

    def stacks(self, by: str, holder: int, event: int) -> HeldGroups:
        """The stacks in which what a holder (a row of `names`) holds at a moment was
        allocated; `number` is a stack, -1 where none was recorded."""
        rows = self._held_by(by, holder, event)
        return self._grouped(self.history.lives.stack[rows].astype(np.int64), rows)

    def allocations(self, by: str, holder: int, stack: int, event: int) -> Rows:
        """The lives that a holder has of one stack at a moment: rows of History.lives,
        the largest first, of equal ones the oldest."""
        lives = self.history.lives
        rows = self._held_by(by, holder, event)
        rows = rows[lives.stack[rows] == stack]
        ordered: Rows = rows[np.lexsort((lives.born[rows], -lives.size[rows]))]
        return ordered

    def _held_by(self, by: str, holder: int, event: int) -> Rows:
        """The lives that a holder (a row of `names`) has at a moment."""
        rows = self.living(event)
        held: Rows = rows[self.holders[by][rows] == holder]
        return held

    def _grouped(self, numbers: Int64s, rows: Rows) -> HeldGroups:
        """The lives `rows` in groups of equal `numbers`; both of shape [rows]."""
        groups = distinct(numbers)
        place = np.searchsorted(groups, numbers)
        sizes = summed(place, self.history.lives.size[rows], len(groups))
        blocks = np.bincount(place, minlength=len(groups))
        order = np.argsort(-sizes, kind="stable")
        return HeldGroups(
            number=groups[order], bytes=sizes[order], blocks=blocks[order]
        )


def moments(facts: MemoryFacts) -> Moments:
    """The moments of a device of a snapshot, by code, module and category."""
    history = facts.history
    stack = history.lives.stack
    times_us = history.events.time_us
    times = np.empty(0, np.int64)
    if len(times_us) and int(times_us.min()) >= 0:
        times = np.maximum.accumulate(times_us) * 1000
    keys: Keys = {
        "code": (stack, facts.evidence.code),
        "module": (stack, facts.evidence.module),
        "category": (facts.kinds, CATEGORIES.__getitem__),
    }
    return prepared_moments(
        history,
        kinds=facts.kinds,
        title=f"device {history.device}",
        times=times,
        keys=keys,
        is_of_trace=False,
    )


def prepared_moments(
    history: History,
    *,
    kinds: Int64s,
    title: str,
    times: Int64s,
    keys: Keys,
    is_of_trace: bool,
) -> Moments:
    """The moments of a device, with all that is worked out once for them. `keys`: by
    what lives are grouped; the first of them must be their stacks."""
    lives = history.lives
    holders = _holders(lives, keys)
    _, name_of_stack = next(iter(keys.values()))
    born: Rows = np.argsort(lives.born, kind="stable")
    changes = [_changes(lives, kinds == kind) for kind in range(len(CATEGORIES))]
    return Moments(
        history=history,
        kinds=kinds,
        title=title,
        times=times,
        named=name_of_stack,
        names=holders.names,
        holders=holders.numbers,
        born=born,
        kept=_kept(lives, born),
        changes=tuple(changes),
        is_of_trace=is_of_trace,
    )


class _Holders(NamedTuple):
    """Who holds each life, by what is grouped."""

    numbers: dict[str, Int64s]  # by the name of a key: for each life a row of `names`
    names: tuple[str, ...]


def _holders(lives: Allocations, keys: Keys) -> _Holders:
    """By each of `keys`, for each life the number of who holds it; and the names of
    these numbers, those of the categories first. Each distinct key is named once. A
    life without a key is held by BEFORE_RECORDING or NO_STACK."""
    number_of: dict[str, int] = {str(name): n for name, n in CATEGORY_NUMBER.items()}

    def number(name: str) -> int:
        """The number of a name; the next one for a name that is new."""
        return number_of.setdefault(name, len(number_of))

    no_stack = number(NO_STACK)
    before_recording = number(BEFORE_RECORDING)
    nameless = np.where(lives.born == BEFORE, before_recording, no_stack)
    numbers: dict[str, Int64s] = {}
    for by, (key_of_life, name_of) in keys.items():
        has_key = key_of_life >= 0
        distinct_keys = distinct(key_of_life[has_key])
        numbers_of_keys = [number(name_of(key)) for key in distinct_keys.tolist()]
        number_of_key = np.array(numbers_of_keys, dtype=np.int64)
        place = np.searchsorted(distinct_keys, key_of_life)
        number_of_life = at(number_of_key, place, missing=no_stack)
        numbers[by] = np.where(has_key, number_of_life, nameless)
    return _Holders(numbers=numbers, names=tuple(number_of))


def _kept(lives: Allocations, born: Rows) -> KeptMoments:
    """What lives at some moments, between which at least as many events lie as there
    are lives: together they are no more than all events. `born`: the lives in the order
    of their births."""
    births = lives.born[born]
    event = BEFORE
    living = born[: np.searchsorted(births, BEFORE, side="right")]
    events = [event]
    kept = [living]
    while True:
        next_event = event + max(MIN_EVENTS_BETWEEN_KEPT, len(living))
        if next_event >= lives.events:
            return KeptMoments(events=np.array(events), lives=tuple(kept))
        first, last = np.searchsorted(births, [event, next_event], side="right")
        candidates = np.concatenate([living, born[first:last]])
        event = next_event
        living = candidates[lives.died[candidates] > event]
        events.append(event)
        kept.append(living)


def _changes(lives: Allocations, chosen: Flags) -> CategoryChanges:
    """When the bytes of the lives that are `chosen` (flags, shape [lives]) change."""
    has_died = chosen & (lives.died < lives.events)
    events = np.concatenate([lives.born[chosen], lives.died[has_died]])
    change = np.concatenate([lives.size[chosen], -lives.size[has_died]])
    order = np.argsort(events, kind="stable")
    return CategoryChanges(
        events=events[order], bytes=np.append(0, np.cumsum(change[order]))
    )


class PlacedBlocks(msgspec.Struct, frozen=True, eq=False, dict=True):
    """What lies where at a moment."""

    history: History
    placement: SegmentLayout
    rows: Rows  # of History.occupied, by address
    segment: Int64s  # of each of `rows`, its place in `segments`
    kinds: Int64s  # of each of `rows`, the number of its category
    used: Int64s  # of each segment, bytes asked for
    holes: Int64s  # of each segment, bytes in holes

    @property
    def segments(self) -> tuple[Segment, ...]:
        """By address."""
        return self.placement.segments

    def inside(self, segment: int) -> tuple[Rows, Int64s]:
        """What lies in a segment: rows of History.occupied by address, and the number
        of the category of each."""
        first, last = np.searchsorted(self.segment, [segment, segment + 1])
        return self.rows[first:last], self.kinds[first:last]

    def by_category(self, segment: int, borders: Int64s) -> Int64s:
        """The bytes asked for of a segment between each two neighbors of `borders`,
        ascending addresses; shape [CATEGORIES, borders - 1]."""
        lives = self.history.occupied
        rows, kinds = self.inside(segment)
        bytes_asked = np.zeros((len(CATEGORIES), len(borders) - 1), np.int64)
        for kind in set(kinds.tolist()):
            of_kind = rows[kinds == kind]
            start = lives.address[of_kind]
            end = start + lives.size[of_kind]
            bytes_asked[kind] = np.diff(covered_until(start, end, borders))
        return bytes_asked


@memo(2)
def placed(moments: Moments, event: int) -> PlacedBlocks:
    """What lies where after an event."""
    history = moments.history
    changes = segment_log(history).events
    happened = int(np.searchsorted(changes, event, side="right"))
    last_change = int(changes[happened - 1]) if happened else BEFORE
    placement = layout(history, event, _segments(moments, last_change))
    occupied = history.occupied
    count = len(placement.segments)
    rows = np.flatnonzero(placement.lives >= 0)
    rows = rows[np.argsort(occupied.address[rows], kind="stable")]
    segment = placement.lives[rows]
    kinds = np.append(moments.kinds, UNKNOWN)  # the last is that of row -1
    return PlacedBlocks(
        history=history,
        placement=placement,
        rows=rows,
        segment=segment,
        kinds=kinds[_lives_of_occupied(history, rows)],
        used=summed(segment, occupied.size[rows], count),
        holes=summed(placement.segment, placement.size, count),
    )


@memo(2)
def _segments(moments: Moments, event: int) -> tuple[Segment, ...]:
    """See segments_at; remembered, as neighboring moments have the same segments."""
    return segments_at(moments.history, event)


def _lives_of_occupied(history: History, rows: Rows) -> Rows:
    """For each of `rows` of History.occupied the row of History.lives that is the same
    allocation, -1 for none. Both have the same birth; of what is from before the first
    event, the same address."""
    lives = history.lives
    born = history.occupied.born[rows]
    life_born_at = np.full(lives.events + 1, -1)  # BEFORE is the last place
    life_born_at[lives.born] = np.arange(len(lives))
    early_life = _early_lives_at(lives, history.occupied.address[rows])
    return np.where(born == BEFORE, early_life, life_born_at[born])


def _early_lives_at(lives: Allocations, address: Int64s) -> Rows:
    """For each address the life there from before the first event, -1 for none."""
    early = np.flatnonzero(lives.born == BEFORE)
    return first_with(lives.address[early], early, address).astype(np.intp)
