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
    Known,
)
from fusetui.analysis.memory.evidence import BEFORE_RECORDING, NO_STACK
from fusetui.analysis.memory.history import BEFORE, History, Lives
from fusetui.analysis.memory.layout import (
    Segment,
    SegmentLayout,
    layout,
    segment_log,
    segments_at,
)
from fusetui.trace.model.arrays import Flags, Int32s, Int64s, Rows, distinct, summed
from fusetui.trace.model.intervals import covered_until
from fusetui.trace.model.memo import memo, once
from fusetui.trace.snapshot.columns import Frame

Naming = Callable[[int], str]
Keys = Mapping[str, tuple[Int64s | Int32s, Naming]]
"""By what lives are grouped: a number for each of them, negative for none, and its
name."""
EVERY = 4096  # events between two moments of which all that lives is kept, at least


class HeldGroups(NamedTuple):
    """Groups of what lives, the largest first; arrays of shape [groups]."""

    number: Int64s
    bytes: Int64s
    blocks: Int64s


class Moments(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Of one device. `times`: of each event, ns since 1970, ascending; empty where the
    file has none. `holders`: of each life, the row of `names` of who holds it.
    `is_of_trace`: from memory events, whose stacks are but the numbers of ops; times
    are as in the file if it has no epoch."""

    history: History
    kinds: Int64s  # of each life, the number of its category
    title: str  # of the device
    times: Int64s
    named: Naming  # a stack
    names: tuple[str, ...]
    holders: Mapping[str, Int64s]
    born: Rows  # the lives in the order of their births
    # some moments, and what lives at each of them
    kept: tuple[Int64s, tuple[Rows, ...]]
    # of each category: events, and bytes after them
    changes: tuple[tuple[Int64s, Int64s], ...]
    is_of_trace: bool

    @cached_property
    def positions(self) -> Int64s:
        """Of each event: its time, else its number."""
        return self.times if len(self.times) else np.arange(len(self.history.events))

    def position(self, event: int) -> int:
        """That of a moment; of the first event for the time before it, 0 without any
        event."""
        at = max(0, min(event, len(self.positions) - 1))
        return int(self.positions[at]) if len(self.positions) else 0

    def place_of(self, stack: int) -> str:
        """The code of a stack; "" where none was recorded."""
        return self.named(stack) if stack >= 0 else ""

    def frames(self, stack: int) -> tuple[Frame, ...]:
        """Those of a stack, innermost first."""
        return () if self.is_of_trace else self.history.snapshot.stacks[stack]

    def living(self, event: int) -> Rows:
        """The lives at a moment: those of the last kept one, and those born since."""
        lives, (moments, kept) = self.history.lives, self.kept
        place = int(np.searchsorted(moments, event, side="right")) - 1
        since = np.array([moments[place], event])
        first, last = np.searchsorted(
            lives.born, since, side="right", sorter=self.born
        ).tolist()
        found = np.concatenate([kept[place], self.born[first:last]])
        there: Rows = found[lives.died[found] > event]
        return there

    def allocated_in(self, first: int, last: int) -> tuple[int, int, int]:
        """Allocations by the events [first, last), their bytes, and those that lived
        after them."""
        lives = self.history.lives
        cuts = np.searchsorted(lives.born, [first, last], sorter=self.born)
        rows = self.born[cuts[0] : cuts[1]]
        kept = lives.size[rows[lives.died[rows] >= last]]
        return len(rows), int(lives.size[rows].sum()), int(kept.sum())

    def by_category(self, events: Int64s) -> Int64s:
        """Bytes, of shape [CATEGORIES, events]."""
        each = (
            then[np.searchsorted(when, events, side="right")]
            for when, then in self.changes
        )
        return np.stack([*each])

    def highest(self, first: Int64s, last: Int64s) -> Int64s:
        """The moment of each range [first, last] at which most is allocated, the first
        of them."""
        most = self.history.allocated
        pairs = zip((first + 1).tolist(), (last + 2).tolist(), strict=True)
        return np.array(
            [begin + int(most[begin:end].argmax()) - 1 for begin, end in pairs]
        )

    def held(self, by: str, event: int) -> HeldGroups:
        """Who holds what lives; `number` is a row of `names`."""
        rows = self.living(event)
        return self._grouped(self.holders[by][rows], rows)

    def stacks(self, by: str, holder: int, event: int) -> HeldGroups:
        """The stacks in which what one of them holds was allocated; -1: none was
        recorded."""
        rows = self._of(by, holder, event)
        return self._grouped(self.history.lives.stack[rows].astype(np.int64), rows)

    def allocations(self, by: str, holder: int, stack: int, event: int) -> Rows:
        """The lives of one of these stacks, the largest first, then the oldest."""
        lives, rows = self.history.lives, self._of(by, holder, event)
        rows = rows[lives.stack[rows] == stack]
        ordered: Rows = rows[np.lexsort((lives.born[rows], -lives.size[rows]))]
        return ordered

    def _of(self, by: str, holder: int, event: int) -> Rows:
        rows = self.living(event)
        own: Rows = rows[self.holders[by][rows] == holder]
        return own

    def _grouped(self, numbers: Int64s, rows: Rows) -> HeldGroups:
        found = distinct(numbers)
        place = np.searchsorted(found, numbers)
        size = summed(place, self.history.lives.size[rows], len(found))
        order = np.argsort(-size, kind="stable")
        blocks = np.bincount(place, minlength=len(found))
        return HeldGroups(found[order], size[order], blocks[order])


def moments(known: Known) -> Moments:
    """Of a device of a snapshot."""
    history, stack = known.history, known.history.lives.stack
    times = history.events.time_us
    dated = bool(len(times)) and int(times.min()) >= 0
    times = np.maximum.accumulate(times) * 1000 if dated else np.empty(0, np.int64)
    code, module = (stack, known.evidence.code), (stack, known.evidence.module)
    kinds = known.kinds, CATEGORIES.__getitem__
    keys: Keys = {"code": code, "module": module, "category": kinds}
    return worked_out(
        history, known.kinds, f"device {history.device}", times, keys, False
    )


def worked_out(
    history: History,
    kinds: Int64s,
    title: str,
    times: Int64s,
    keys: Keys,
    is_of_trace: bool,
) -> Moments:
    """All that is worked out once; the first of `keys` are stacks."""
    lives, names = (
        history.lives,
        {str(name): number for name, number in CATEGORY_NUMBER.items()},
    )
    born: Rows = np.argsort(lives.born, kind="stable")
    holders, named = _holders(lives, keys, names), next(iter(keys.values()))[1]
    changes = tuple(_changes(lives, kinds == kind) for kind in range(len(CATEGORIES)))
    figures = tuple(names), holders, born, _kept(lives, born), changes
    return Moments(history, kinds, title, times, named, *figures, is_of_trace)


def _holders(lives: Lives, keys: Keys, names: dict[str, int]) -> dict[str, Int64s]:
    """Numbers the names as they are found; each key is looked at once."""

    def number(name: str) -> int:
        return names.setdefault(name, len(names))

    nameless = number(NO_STACK), number(BEFORE_RECORDING)
    without, numbers = (
        np.where(lives.born == BEFORE, *nameless[::-1]),
        dict[str, Int64s](),
    )
    for by, (each, named) in keys.items():
        found = distinct(each[each >= 0])
        own = [number(named(key)) for key in found.tolist()]
        numbers[by] = np.where(
            each < 0, without, np.array([*own, 0])[np.searchsorted(found, each)]
        )
    return numbers


def _kept(lives: Lives, born: Rows) -> tuple[Int64s, tuple[Rows, ...]]:
    """What lives at some moments, between which at least as many events lie as there
    are lives: together they are no more than all events."""
    births = lives.born[born]
    at, kept = [BEFORE], [born[: np.searchsorted(births, BEFORE, side="right")]]
    while (event := at[-1] + max(EVERY, len(kept[-1]))) < lives.events:
        first, last = np.searchsorted(births, [at[-1], event], side="right").tolist()
        rows = np.concatenate([kept[-1], born[first:last]])
        kept.append(rows[lives.died[rows] > event])
        at.append(event)
    return np.array(at), tuple(kept)


def _changes(lives: Lives, chosen: Flags) -> tuple[Int64s, Int64s]:
    """At which events the bytes of some lives change, and what they are before and
    after each."""
    gone = chosen & (lives.died < lives.events)
    when = np.concatenate([lives.born[chosen], lives.died[gone]])
    change = np.concatenate([lives.size[chosen], -lives.size[gone]])
    order = np.argsort(when, kind="stable")
    return when[order], np.append(0, np.cumsum(change[order]))


class PlacedBlocks(msgspec.Struct, frozen=True, eq=False, dict=True):
    """`rows` of History.occupied, by address, the segment and the category of each;
    `used` and `holes`: bytes asked for and bytes in holes, of each segment."""

    history: History
    there: SegmentLayout
    rows: Rows
    of: Int64s
    kinds: Int64s
    used: Int64s
    holes: Int64s

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self.there.segments

    def inside(self, segment: int) -> tuple[Rows, Int64s]:
        """What lies in a segment, by address, and the category of each."""
        first, last = np.searchsorted(self.of, [segment, segment + 1])
        return self.rows[first:last], self.kinds[first:last]

    def by_category(self, segment: int, borders: Int64s) -> Int64s:
        """Bytes asked for between each two addresses; shape [CATEGORIES, borders -
        1]."""
        (rows, kinds), lives = self.inside(segment), self.history.occupied
        found = np.zeros((len(CATEGORIES), len(borders) - 1), np.int64)
        for kind in set(kinds.tolist()):
            start = lives.address[rows[kinds == kind]]
            end = start + lives.size[rows[kinds == kind]]
            found[kind] = np.diff(covered_until(start, end, borders))
        return found


@memo(2)
def placed(moments: Moments, event: int) -> PlacedBlocks:
    """What lies where after an event."""
    history, (events, _) = moments.history, once(moments.history, segment_log)
    changed = int(np.searchsorted(events, event, side="right"))
    since = int(events[changed - 1]) if changed else BEFORE
    there = layout(history, event, _segments(moments, since))
    lives, count = history.occupied, len(there.segments)
    rows = np.flatnonzero(there.lives >= 0)
    rows = rows[np.argsort(lives.address[rows], kind="stable")]
    of = there.lives[rows]
    used, holes = (
        summed(of, lives.size[rows], count),
        summed(there.segment, there.size, count),
    )
    kinds = np.append(moments.kinds, UNKNOWN)[_same(history.lives, lives, rows)]
    return PlacedBlocks(history, there, rows, of, kinds, used, holes)


@memo(2)
def _segments(moments: Moments, event: int) -> tuple[Segment, ...]:
    return segments_at(moments.history, event)


def _same(lives: Lives, occupied: Lives, rows: Rows) -> Rows:
    """The lives that these are, by birth or, from before the first event, by address;
    -1: none."""
    of_event = np.full(lives.events + 1, -1)
    of_event[lives.born] = np.arange(len(lives))
    early = np.flatnonzero(lives.born == BEFORE)
    early = early[np.argsort(lives.address[early], kind="stable")]
    known, wanted = np.append(lives.address[early], -1), occupied.address[rows]
    place = np.searchsorted(known[:-1], wanted)
    before = np.where(known[place] == wanted, np.append(early, -1)[place], -1)
    return np.where(
        occupied.born[rows] == BEFORE, before, of_event[occupied.born[rows]]
    )
