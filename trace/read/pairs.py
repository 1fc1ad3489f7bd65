"""Begin and end events (ph B and E, b and e, S and F) -> slices.

B and E are paired per thread like brackets; the others by category and id. They are taken in time
order, so the order in the file does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import msgspec

from fusetui.trace.read.gather import Mark, Thread

ENDS = {"E": "B", "e": "b", "F": "S"}


class Pair(msgspec.Struct, frozen=True):
    """A slice; its args are those of its begin event."""

    name: str
    category: str
    thread: Thread
    start: int  # ns
    dur: int  # ns
    order: int  # index of its begin event


class Pairs(msgspec.Struct, frozen=True):
    slices: tuple[Pair, ...]  # in file order
    unfinished: int  # how many of them have no end: shown up to the last mark
    ends: int  # ends without a begin


def pair(marks: Sequence[Mark]) -> Pairs:
    """Turns every begin into a slice."""
    stacks: dict[tuple[object, ...], list[Mark]] = {}
    found: list[Pair] = []
    unmatched = 0
    for mark in sorted(marks, key=lambda m: (m.time, m.order)):
        stack = stacks.setdefault(_key(mark), [])
        if mark.phase not in ENDS:
            stack.append(mark)
        elif stack:
            found.append(_slice(stack.pop(), mark.time))
        else:
            unmatched += 1
    last = max((mark.time for mark in marks), default=0)
    still_open = list(chain.from_iterable(stacks.values()))
    found += [_slice(mark, last) for mark in still_open]
    return Pairs(tuple(_in_order(found)), len(still_open), unmatched)


def _in_order(found: Iterable[Pair]) -> list[Pair]:
    return sorted(found, key=lambda slice_: slice_.order)


def _key(mark: Mark) -> tuple[object, ...]:
    kind = ENDS.get(mark.phase, mark.phase)
    if kind == "B":
        return kind, mark.thread
    return kind, mark.category, mark.key, mark.thread[0], mark.name if kind == "S" else ""


def _slice(begin: Mark, end: int) -> Pair:
    """Slices with an id may cross those of their thread, so they get a lane of their own."""
    pid, tid = begin.thread
    thread = (pid, tid) if begin.phase == "B" else (pid, f"{begin.category or begin.name} (async)")
    return Pair(begin.name, begin.category, thread, begin.time, end - begin.time, begin.order)
