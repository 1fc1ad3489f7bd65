"""Finds problems in the memory of a device that the snapshot proves.

Findings are figures; report/memory_words.py has the words.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.analysis.memory.categories import CATEGORY_NUMBER, Category, MemoryFacts
from fusetui.analysis.memory.evidence import NO_STACK, FrameRole
from fusetui.analysis.memory.history import BEFORE, History
from fusetui.analysis.memory.layout import is_expandable, private_pools, torn
from fusetui.analysis.memory.oom import Inactive, OutOfMemory
from fusetui.trace.model.arrays import Flags, Int64s, at, summed

Rule = Literal[
    "memory-leak",
    "fragmentation",
    "peak-not-needed",
    "optimizer-state-large",
    "activations-large",
    "pool-per-graph",
]
Helps = Literal["expandable", "order", "whole_segments"]
LEAK_STEPS = 4
"""A leak is looked for in so many steps, the last ones."""

MIN_GROWN_STEPS = 3
"""Of these, in how many what leaks has grown."""

MIN_NOT_NEEDED_SHARE = 0.05
"""Of the peak, as the two below."""

MIN_OPTIMIZER_STATE_SHARE = 0.4
MIN_ACTIVATIONS_SHARE = 0.5


class MemoryFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that stands out in the memory of a device."""

    rule: Rule
    bytes: int  # the memory that it is about
    of_bytes: int  # the peak, or what is reserved
    at_stake_bytes: int | None  # at most so much less would be needed; None: not known
    index: int  # the event after which that is so
    places: tuple[str, ...] = ()  # of the code, the largest first
    count: int | None = None  # steps in which it grew, pools, or gradients
    of_count: int | None = None  # the steps looked at
    each_bytes: int | None = None  # by step; of holes the largest
    expandable_would_fit: bool | None = None
    inactive: Inactive | None = None  # where it ran out
    helps: Helps | None = None  # against fragmentation


def findings(
    facts: MemoryFacts, failed: tuple[OutOfMemory, ...]
) -> tuple[MemoryFinding, ...]:
    """Return all that stands out in the memory of a device, the largest first.

    Args:
        facts: What follows from the history of the device.
        failed: The events at which memory ran out.
    """
    unsorted = [
        *_leaks(facts),
        *_fragmentation(facts.history, failed),
        *_gradients_not_needed(facts),
        *_large_category(
            facts,
            "optimizer_state",
            "optimizer-state-large",
            MIN_OPTIMIZER_STATE_SHARE,
        ),
        *_large_category(
            facts, "activations", "activations-large", MIN_ACTIVATIONS_SHARE
        ),
        *_several_pools(facts.history),
    ]
    return tuple(sorted(unsorted, key=lambda finding: -finding.bytes))


def _leaks(facts: MemoryFacts) -> Iterator[MemoryFinding]:
    """Report call stacks of which more and more memory is live after each step.

    A finding is made for each stack whose memory grew in at least MIN_GROWN_STEPS of
    the last LEAK_STEPS steps, and in the end. Nothing is reported if too few steps
    ended. What was there before the first event does not grow.
    """
    step_ends = facts.phases.ends[-(LEAK_STEPS + 1) :]
    if len(step_ends) < LEAK_STEPS:
        return

    history = facts.history
    live_bytes = _live_bytes_by_stack(history, step_ends)
    steps = len(step_ends) - 1

    # Columns are stacks, rows are the ends of steps.
    grown_steps = (np.diff(live_bytes, axis=0) > 0).sum(axis=0)
    grown_bytes = live_bytes[-1] - live_bytes[0]
    is_leak = (grown_steps >= MIN_GROWN_STEPS) & (grown_bytes > 0)

    # The last column is that of no stack.
    no_stack = live_bytes.shape[1] - 1
    for stack in np.flatnonzero(is_leak).tolist():
        place = NO_STACK if stack == no_stack else facts.evidence.code(stack)
        yield MemoryFinding(
            rule="memory-leak",
            bytes=int(live_bytes[-1, stack]),
            of_bytes=int(history.allocated.max()),
            at_stake_bytes=int(live_bytes[-1, stack]),
            index=int(step_ends[-1]) - 1,
            places=(place,),
            count=int(grown_steps[stack]),
            of_count=steps,
            each_bytes=int(grown_bytes[stack]) // steps,
        )


def _live_bytes_by_stack(history: History, events: Int64s) -> Int64s:
    """Measure the live memory of each call stack before some events.

    What was there before the first event is left out.

    Args:
        history: The history of the device.
        events: Numbers of events.

    Returns:
        Bytes. Rows are the events, columns are the stacks; the last column is that
        of no stack.
    """
    lives = history.lives
    rows = np.flatnonzero(lives.born != BEFORE)
    stack_count = int(lives.stack.max(initial=-1)) + 2
    live_bytes = np.zeros((len(events), stack_count), np.int64)
    for row, end in enumerate(events.tolist()):
        living = rows[lives.live_after(end - 1)[rows]]
        live_bytes[row] = summed(lives.stack[living], lives.size[living], stack_count)

    return live_bytes


def _fragmentation(
    history: History, failed: tuple[OutOfMemory, ...]
) -> Iterator[MemoryFinding]:
    """Report fragmented memory, with at most one finding.

    If memory ran out, it is the last failure for which holes are the reason.
    Otherwise it is the moment at which most was reserved, or the end, if memory is
    torn then.
    """
    if failed:
        fragmented = [oom for oom in failed if oom.reason == "fragmented"]
        if fragmented:
            yield _fragmented_failure(fragmented[-1])
        return

    most_reserved = int(history.reserved.argmax()) - 1
    end = len(history.events) - 1
    moments = (end,) if most_reserved in (BEFORE, end) else (most_reserved, end)

    for event in moments:
        pieces = torn(history, event)
        if pieces:
            yield MemoryFinding(
                rule="fragmentation",
                bytes=pieces.split_bytes or 0,
                of_bytes=pieces.reserved_bytes,
                at_stake_bytes=None,
                index=event,
                each_bytes=pieces.largest_bytes,
                helps="order" if is_expandable(history) else "expandable",
            )
            return


def _fragmented_failure(oom: OutOfMemory) -> MemoryFinding:
    """Build the finding about a failure that fragmentation explains."""
    return MemoryFinding(
        rule="fragmentation",
        bytes=oom.inactive_bytes,
        of_bytes=oom.reserved_bytes,
        at_stake_bytes=None,
        index=oom.index,
        places=oom.pinned[0].holders if oom.pinned else (),
        each_bytes=oom.largest_bytes,
        expandable_would_fit=oom.expandable_would_fit,
        inactive=oom.inactive,
        helps=_helpful_remedy(oom),
    )


def _helpful_remedy(oom: OutOfMemory) -> Helps:
    """Say what helps against a failure that fragmentation explains.

    Returns:
        `expandable` segments, unless they are on or would not do. `order`, another
        order of allocations, if the holes of this pool and stream and what the device
        has left would do. Else `whole_segments`: only segments that are given back
        help.
    """
    if oom.expandable_would_fit is not False and not oom.is_expandable:
        return "expandable"

    available_bytes = oom.inactive.own_bytes + (oom.device_free_bytes or 0)
    return "order" if available_bytes >= oom.asked_bytes else "whole_segments"


def _gradients_not_needed(facts: MemoryFacts) -> Iterator[MemoryFinding]:
    """Report gradients that are live at the peak although their step is over.

    Only gradients that something else than a backward pass frees later are reported.
    Without them the next highest moment is the peak.
    """
    history = facts.history
    lives = history.lives

    step_end = facts.phases.next_end(lives.born)
    is_late = _outlive_their_use(facts, step_end)

    at_peak = (
        is_late
        & (step_end <= history.peak_index)
        & lives.live_after(history.peak_index)
    )
    if not at_peak.any():
        return

    peak_bytes = int(history.allocated.max())
    saved_bytes = _saved_at_peak(history, is_late, step_end)
    min_bytes = MIN_NOT_NEEDED_SHARE * peak_bytes
    if min_bytes > 0 and saved_bytes >= min_bytes:
        held_bytes = int(lives.size[at_peak].sum())
        finding = _finding_at_peak(history, "peak-not-needed", held_bytes, saved_bytes)
        yield replace(finding, count=int(at_peak.sum()))


def _outlive_their_use(facts: MemoryFacts, step_end: Int64s) -> Flags:
    """Return which lives are gradients that are freed only after the end of their step.

    Those that a backward pass frees do not count.

    Args:
        facts: What follows from the history of the device.
        step_end: For each life the end of the step that uses it.
    """
    lives = facts.history.lives
    no_stack = -1  # of what lives at the end
    freeing_stack = at(facts.history.events.stack, lives.died, missing=no_stack)
    freed_in_backward = facts.evidence.has(FrameRole.BACKWARD)[freeing_stack]
    is_used = freed_in_backward | (lives.died >= lives.events)

    is_gradient = facts.kinds == CATEGORY_NUMBER["gradients"]
    return np.asarray(is_gradient & (step_end < lives.died) & ~is_used)


def _large_category(
    facts: MemoryFacts, category: Category, rule: Rule, min_share: float
) -> Iterator[MemoryFinding]:
    """Report a category that takes a large share of the peak.

    Without it the next highest moment is the peak.

    Args:
        facts: What follows from the history of the device.
        category: The category.
        rule: The name of the finding.
        min_share: The least share of the peak that is reported.
    """
    history = facts.history
    lives = history.lives
    is_of_category = facts.kinds == CATEGORY_NUMBER[category]
    at_peak = is_of_category & lives.live_after(history.peak_index)

    held_bytes = int(lives.size[at_peak].sum())
    min_bytes = min_share * int(history.allocated.max())
    if min_bytes > 0 and held_bytes >= min_bytes:
        saved_bytes = _saved_at_peak(history, is_of_category, lives.born)
        yield _finding_at_peak(history, rule, held_bytes, saved_bytes)


def _finding_at_peak(
    history: History, rule: Rule, held_bytes: int, saved_bytes: int
) -> MemoryFinding:
    """Build a finding about memory that is live at the peak.

    Args:
        history: The history of the device.
        rule: The name of the finding.
        held_bytes: The bytes that it is about.
        saved_bytes: How many bytes lower the peak would be without them.
    """
    return MemoryFinding(
        rule=rule,
        bytes=held_bytes,
        of_bytes=int(history.allocated.max()),
        at_stake_bytes=saved_bytes,
        index=history.peak_index,
    )


def _several_pools(history: History) -> Iterator[MemoryFinding]:
    """Report several private pools.

    At best, a single pool as large as the largest one would do.
    """
    pool_bytes = private_pools(history)
    if len(pool_bytes) > 1:
        yield MemoryFinding(
            rule="pool-per-graph",
            bytes=sum(pool_bytes),
            of_bytes=int(history.reserved[-1]),
            at_stake_bytes=sum(pool_bytes) - pool_bytes[0],
            index=len(history.events) - 1,
            count=len(pool_bytes),
        )


def _saved_at_peak(history: History, is_left_out: Flags, since: Int64s) -> int:
    """Return how many bytes lower the peak would be without some allocations.

    Args:
        history: The history of the device.
        is_left_out: Which of `history.lives` to leave out.
        since: For each of them the event from which on it is left out.
    """
    events = len(history.events)
    lives = history.lives
    sizes = lives.size[is_left_out]
    # Add up what they hold after each event; event n is at n + 1.
    change = np.zeros(events + 2, np.int64)
    np.add.at(change, np.minimum(since[is_left_out], events) + 1, sizes)
    np.subtract.at(change, lives.died[is_left_out] + 1, sizes)

    allocated_without = history.allocated - np.cumsum(change)[:-1]
    return int(history.allocated.max() - allocated_without.max())
