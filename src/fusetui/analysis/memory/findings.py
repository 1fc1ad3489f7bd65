"""What stands out and is settled by the snapshot, as figures; report/memory_words.py
says them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.analysis.memory.categories import CATEGORY_NUMBER, Category, Known
from fusetui.analysis.memory.evidence import NO_STACK, FrameRole
from fusetui.analysis.memory.history import BEFORE, History
from fusetui.analysis.memory.layout import is_expandable, private_pools, torn
from fusetui.analysis.memory.oom import Inactive, OutOfMemory
from fusetui.trace.model.arrays import Flags, Int64s, summed

Rule = Literal[
    "memory-leak",
    "fragmentation",
    "peak-not-needed",
    "optimizer-state-large",
    "activations-large",
    "pool-per-graph",
]
Helps = Literal["expandable", "order", "whole_segments"]
STEPS, GREW = 4, 3  # of the last steps, in how many what leaks has grown
NOT_NEEDED = 0.05  # of the peak
STATE = 0.4
ACTIVATIONS = 0.5


class MemoryFinding(msgspec.Struct, frozen=True, kw_only=True):
    """`at_stake_bytes`: at most so much less would be needed; None where that is not
    known."""

    rule: Rule
    bytes: int  # what it is about
    of_bytes: int  # the peak, or what is reserved
    at_stake_bytes: int | None
    index: int  # the event after which that is so
    places: tuple[str, ...] = ()  # of the code, the largest first
    count: int | None = None  # steps in which it grew, pools, or gradients
    of_count: int | None = None  # the steps looked at
    each_bytes: int | None = None  # by step; of holes the largest
    expandable_would_fit: bool | None = None
    inactive: Inactive | None = None  # where it ran out
    helps: Helps | None = None  # against fragmentation


def findings(
    known: Known, failed: tuple[OutOfMemory, ...]
) -> tuple[MemoryFinding, ...]:
    """The largest first."""
    every = (
        *_leaks(known),
        *_fragmentation(known.history, failed),
        *_not_needed(known),
        *_large(known, "optimizer_state", "optimizer-state-large", STATE),
        *_large(known, "activations", "activations-large", ACTIVATIONS),
        *_pools(known.history),
    )
    return tuple(sorted(every, key=lambda one: -one.bytes))


def _leaks(known: Known) -> Iterator[MemoryFinding]:
    """Stacks of which more lives after each step; none where fewer than four steps
    ended. What was there before the first event does not grow."""
    ends, history, lives = (
        known.phases.ends[-(STEPS + 1) :],
        known.history,
        known.history.lives,
    )
    if len(ends) < STEPS:
        return
    rows = np.flatnonzero(lives.born != BEFORE)
    groups = int(lives.stack.max(initial=-1)) + 2  # the last is that of no stack
    held = np.zeros((len(ends), groups), np.int64)
    for number, end in enumerate(ends.tolist()):
        living = rows[lives.at(end - 1)[rows]]
        held[number] = summed(lives.stack[living], lives.size[living], groups)
    grew = (np.diff(held, axis=0) > 0).sum(axis=0)
    for stack in np.flatnonzero((grew >= GREW) & (held[-1] > held[0])).tolist():
        place = known.evidence.code(stack) if stack < groups - 1 else NO_STACK
        yield MemoryFinding(
            rule="memory-leak",
            bytes=int(held[-1, stack]),
            of_bytes=int(history.allocated.max()),
            at_stake_bytes=int(held[-1, stack]),
            index=int(ends[-1]) - 1,
            places=(place,),
            count=int(grew[stack]),
            of_count=len(ends) - 1,
            each_bytes=int(held[-1, stack] - held[0, stack]) // (len(ends) - 1),
        )


def _fragmentation(
    history: History, failed: tuple[OutOfMemory, ...]
) -> Iterator[MemoryFinding]:
    """Where memory ran out for it; or holes, when the most was taken or at the end."""
    if failed:
        for one in [one for one in failed if one.reason == "fragmented"][-1:]:
            yield MemoryFinding(
                rule="fragmentation",
                bytes=one.inactive_bytes,
                of_bytes=one.reserved_bytes,
                at_stake_bytes=None,
                index=one.index,
                places=one.pinned[0].holders if one.pinned else (),
                each_bytes=one.largest_bytes,
                expandable_would_fit=one.expandable_would_fit,
                inactive=one.inactive,
                helps=_helps(one),
            )
        return
    taken, end = int(history.reserved.argmax()) - 1, len(history.events) - 1
    for event in dict.fromkeys((end if taken == BEFORE else taken, end)):
        if there := torn(history, event):
            yield MemoryFinding(
                rule="fragmentation",
                bytes=there.split_bytes or 0,
                of_bytes=there.reserved_bytes,
                at_stake_bytes=None,
                index=event,
                each_bytes=there.largest_bytes,
                helps="order" if is_expandable(history) else "expandable",
            )
            return


def _helps(one: OutOfMemory) -> Helps:
    """Another order makes room of the pieces of this pool and stream only."""
    if one.expandable_would_fit is not False and not one.is_expandable:
        return "expandable"
    room = one.inactive.own_bytes + (one.device_free_bytes or 0)
    return "order" if room >= one.asked_bytes else "whole_segments"


def _not_needed(known: Known) -> Iterator[MemoryFinding]:
    """Gradients of a step that is over, and that something else than a backward pass
    frees later: without them the next highest moment is the peak."""
    history, lives, peak = known.history, known.history.lives, known.history.peak_index
    over = known.phases.next_end(lives.born)
    freed = np.append(history.events.stack, -1)[lives.died]
    used = known.evidence.has(FrameRole.BACKWARD)[freed] | (lives.died >= lives.events)
    late = (known.kinds == CATEGORY_NUMBER["gradients"]) & (over < lives.died) & ~used
    held = late & (over <= peak) & lives.at(peak)
    saved = _saved(history, late, over)
    if held.any() and saved >= NOT_NEEDED * history.allocated.max() > 0:
        size = int(lives.size[held].sum())
        yield replace(
            _of_peak(history, "peak-not-needed", size, saved), count=int(held.sum())
        )


def _large(
    known: Known, category: Category, rule: Rule, least: float
) -> Iterator[MemoryFinding]:
    """A category that is much of the peak; without it the next highest moment is the
    peak."""
    history, lives = known.history, known.history.lives
    peak, of_it = int(history.allocated.max()), known.kinds == CATEGORY_NUMBER[category]
    size = int(lives.size[of_it & lives.at(history.peak_index)].sum())
    if size >= least * peak > 0:
        yield _of_peak(history, rule, size, _saved(history, of_it, lives.born))


def _of_peak(history: History, rule: Rule, size: int, saved: int) -> MemoryFinding:
    return MemoryFinding(
        rule=rule,
        bytes=size,
        of_bytes=int(history.allocated.max()),
        at_stake_bytes=saved,
        index=history.peak_index,
    )


def _pools(history: History) -> Iterator[MemoryFinding]:
    """Several private pools: at best, one as large as the largest would do."""
    pools = private_pools(history)
    reserved = sum(pools)
    if len(pools) > 1:
        yield MemoryFinding(
            rule="pool-per-graph",
            bytes=reserved,
            of_bytes=int(history.reserved[-1]),
            at_stake_bytes=reserved - pools[0],
            index=len(history.events) - 1,
            count=len(pools),
        )


def _saved(history: History, lives: Flags, since: Int64s) -> int:
    """How much lower the peak would be without these, each from an event on."""
    change = np.zeros(len(history.events) + 2, np.int64)
    sizes = history.lives.size[lives]
    np.add.at(change, np.minimum(since[lives], len(history.events)) + 1, sizes)
    np.subtract.at(change, history.lives.died[lives] + 1, sizes)
    without = history.allocated - np.cumsum(change)[:-1]
    return int(history.allocated.max() - without.max())
