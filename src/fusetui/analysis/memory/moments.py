"""What lives at any moment of a recording, found without a look at all of it: what the app shows.

A moment is an event, after which the state is meant, or BEFORE.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.memory.answer import Known
from fusetui.analysis.memory.categories import CATEGORIES
from fusetui.analysis.memory.history import BEFORE, History, Lives
from fusetui.analysis.memory.holders import BEFORE_RECORDING, NO_STACK, code_of, module_of
from fusetui.analysis.memory.versus import By
from fusetui.trace.model.arrays import Flags, Int64s, Rows, distinct, summed

EVERY = 4096  # events between two moments of which all that lives is kept, at least


class Held(NamedTuple):
    """Groups of what lives, the largest first; arrays of shape [groups]."""

    number: Int64s
    bytes: Int64s
    blocks: Int64s


class Moments(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Of one device. `times`: of each event, ns since 1970, ascending; empty where the file has
    none. `holders`: of each life, the row of `names` of who holds it."""

    known: Known
    times: Int64s
    names: tuple[str, ...]
    holders: Mapping[By, Int64s]
    born: Rows  # the lives in the order of their births
    kept_at: Int64s  # some moments
    kept: tuple[Rows, ...]  # what lives at each of them
    changes: tuple[tuple[Int64s, Int64s], ...]  # of each category: events, and bytes after them

    @property
    def history(self) -> History:
        return self.known.history

    def place_of(self, stack: int) -> str:
        """The code of a stack; "" where none was recorded."""
        return code_of(self.history.snapshot, self.known.evidence, stack) if stack >= 0 else ""

    def living(self, event: int) -> Rows:
        """The lives at a moment: those of the last kept one, and those born since."""
        lives = self.history.lives
        place = int(np.searchsorted(self.kept_at, event, side="right")) - 1
        since = np.array([self.kept_at[place], event])
        first, last = np.searchsorted(lives.born, since, side="right", sorter=self.born).tolist()
        found = np.concatenate([self.kept[place], self.born[first:last]])
        there: Rows = found[lives.died[found] > event]
        return there

    def allocated_in(self, first: int, last: int) -> tuple[int, int, int]:
        """Allocations by the events [first, last), their bytes, and those that lived after them."""
        lives = self.history.lives
        cuts = np.searchsorted(lives.born, [first, last], sorter=self.born)
        rows = self.born[cuts[0] : cuts[1]]
        kept = lives.size[rows[lives.died[rows] >= last]]
        return len(rows), int(lives.size[rows].sum()), int(kept.sum())

    def by_category(self, events: Int64s) -> Int64s:
        """Bytes, of shape [CATEGORIES, events]."""
        each = (then[np.searchsorted(when, events, side="right")] for when, then in self.changes)
        return np.stack([*each])

    def highest(self, first: Int64s, last: Int64s) -> Int64s:
        """The moment of each range [first, last] at which most is allocated, the first of them."""
        most = self.history.allocated
        pairs = zip((first + 1).tolist(), (last + 2).tolist(), strict=True)
        found: Int64s = np.array(
            [begin + int(most[begin:end].argmax()) - 1 for begin, end in pairs]
        )
        return found

    def held(self, by: By, event: int) -> Held:
        """Who holds what lives; `number` is a row of `names`."""
        rows = self.living(event)
        return self._grouped(self.holders[by][rows], rows)

    def stacks(self, by: By, holder: int, event: int) -> Held:
        """The stacks in which what one of them holds was allocated; -1: none was recorded."""
        rows = self._of(by, holder, event)
        return self._grouped(self.history.lives.stack[rows].astype(np.int64), rows)

    def allocations(self, by: By, holder: int, stack: int, event: int) -> Rows:
        """The lives of one of these stacks, the largest first, then the oldest."""
        lives, rows = self.history.lives, self._of(by, holder, event)
        rows = rows[lives.stack[rows] == stack]
        ordered: Rows = rows[np.lexsort((lives.born[rows], -lives.size[rows]))]
        return ordered

    def _of(self, by: By, holder: int, event: int) -> Rows:
        rows = self.living(event)
        own: Rows = rows[self.holders[by][rows] == holder]
        return own

    def _grouped(self, numbers: Int64s, rows: Rows) -> Held:
        found = distinct(numbers)
        place = np.searchsorted(found, numbers)
        size = summed(place, self.history.lives.size[rows], len(found))
        order = np.argsort(-size, kind="stable")
        return Held(found[order], size[order], np.bincount(place, minlength=len(found))[order])


def moments(known: Known) -> Moments:
    """All that is worked out once."""
    history, lives = known.history, known.history.lives
    times, names = history.events.time_us, dict[str, int]()
    dated = bool(len(times)) and int(times.min()) >= 0
    born: Rows = np.argsort(lives.born, kind="stable")
    holders = _holders(known, names)
    at, kept = _kept(lives, born)
    return Moments(
        known,
        np.maximum.accumulate(times) * 1000 if dated else np.empty(0, np.int64),
        tuple(names),
        holders,
        born,
        at,
        kept,
        tuple(_changes(lives, known.kinds == kind) for kind in range(len(CATEGORIES))),
    )


def _holders(known: Known, names: dict[str, int]) -> dict[By, Int64s]:
    """Numbers the names as they are found; each stack is looked at once."""
    history, found = known.history, known.evidence
    lives, snapshot = history.lives, history.snapshot

    def number(name: str) -> int:
        return names.setdefault(name, len(names))

    categories = np.array([number(name) for name in CATEGORIES])
    nameless = number(NO_STACK), number(BEFORE_RECORDING)
    stacks, numbers = distinct(lives.stack[lives.stack >= 0]), dict[By, Int64s]()
    numbers["category"] = categories[known.kinds]
    place = np.searchsorted(stacks, lives.stack)
    without = np.where(lives.born == BEFORE, nameless[1], nameless[0])
    for by, place_of in (("code", code_of), ("module", module_of)):
        own = [number(place_of(snapshot, found, stack)) for stack in stacks.tolist()]
        numbers[by] = np.where(lives.stack < 0, without, np.array([*own, 0])[place])  # type: ignore[index]
    return numbers


def _kept(lives: Lives, born: Rows) -> tuple[Int64s, tuple[Rows, ...]]:
    """What lives at some moments, between which at least as many events lie as there are lives:
    together they are no more than all events."""
    births = lives.born[born]
    at, kept = [BEFORE], [born[: np.searchsorted(births, BEFORE, side="right")]]
    while (event := at[-1] + max(EVERY, len(kept[-1]))) < lives.events:
        first, last = np.searchsorted(births, [at[-1], event], side="right").tolist()
        rows = np.concatenate([kept[-1], born[first:last]])
        kept.append(rows[lives.died[rows] > event])
        at.append(event)
    return np.array(at), tuple(kept)


def _changes(lives: Lives, chosen: Flags) -> tuple[Int64s, Int64s]:
    """At which events the bytes of some lives change, and what they are before and after each."""
    gone = chosen & (lives.died < lives.events)
    when = np.concatenate([lives.born[chosen], lives.died[gone]])
    change = np.concatenate([lives.size[chosen], -lives.size[gone]])
    order = np.argsort(when, kind="stable")
    return when[order], np.append(0, np.cumsum(change[order]))
