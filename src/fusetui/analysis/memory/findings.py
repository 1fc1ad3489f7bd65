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
from fusetui.analysis.memory.layout import (
    is_expandable,
    list_private_pools,
    measure_fragmentation,
)
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
"""In at least so many of these steps a leak must have grown."""

MIN_NOT_NEEDED_SHARE = 0.05
"""Gradients that are no longer needed are reported if without them the peak would be
lower by at least this share of it."""

MIN_OPTIMIZER_STATE_SHARE = 0.4
"""The state of the optimizer is reported from this share of the peak on."""

MIN_ACTIVATIONS_SHARE = 0.5
"""Activations are reported from this share of the peak on."""


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


def list_memory_findings(
    facts: MemoryFacts, failed: tuple[OutOfMemory, ...]
) -> tuple[MemoryFinding, ...]:
    """Return all that stands out in the memory of a device, the largest first.

    Args:
        facts: What follows from the history of the device.
        failed: The events at which memory ran out.
    """
    large_optimizer_state = _find_large_category(
        facts,
        category="optimizer_state",
        rule="optimizer-state-large",
        min_share=MIN_OPTIMIZER_STATE_SHARE,
    )
    large_activations = _find_large_category(
        facts,
        category="activations",
        rule="activations-large",
        min_share=MIN_ACTIVATIONS_SHARE,
    )
    unsorted = [
        *_find_leaks(facts),
        *_find_fragmentation(facts.history, failed),
        *_find_unneeded_gradients(facts),
        *large_optimizer_state,
        *large_activations,
        *_find_several_pools(facts.history),
    ]
    return tuple(sorted(unsorted, key=lambda finding: -finding.bytes))


def _find_leaks(facts: MemoryFacts) -> Iterator[MemoryFinding]:
    """Report call stacks of which more and more memory is live after each step.

    A finding is made for each stack whose memory grew in at least MIN_GROWN_STEPS of
    the last LEAK_STEPS steps, and in the end. Nothing is reported if too few steps
    ended. What was there before the first event does not grow.
    """
    # The ends of LEAK_STEPS steps, and before them that of another one.
    step_ends = facts.phases.program_step_end[-(LEAK_STEPS + 1) :]
    if len(step_ends) < LEAK_STEPS:
        return

    # Rows are ends of steps, columns are stacks.
    history = facts.history
    live_bytes = _measure_live_bytes_by_stack(history, step_ends)
    change_by_step = np.diff(live_bytes, axis=0)
    steps = len(change_by_step)

    grown_steps = (change_by_step > 0).sum(axis=0)
    grown_bytes = change_by_step.sum(axis=0)
    is_leak = (grown_steps >= MIN_GROWN_STEPS) & (grown_bytes > 0)

    no_stack = live_bytes.shape[1] - 1  # the last column
    for stack in np.flatnonzero(is_leak).tolist():
        place = NO_STACK if stack == no_stack else facts.evidence.describe_code(stack)
        bytes_at_end = int(live_bytes[-1, stack])
        yield MemoryFinding(
            rule="memory-leak",
            bytes=bytes_at_end,
            of_bytes=int(history.allocated.max()),
            at_stake_bytes=bytes_at_end,
            index=int(step_ends[-1]) - 1,
            places=(place,),
            count=int(grown_steps[stack]),
            of_count=steps,
            each_bytes=int(grown_bytes[stack]) // steps,
        )


def _measure_live_bytes_by_stack(history: History, events: Int64s) -> Int64s:
    """Measure how many bytes each call stack holds just before some events.

    Only allocations since the first event count. A stack holds what was allocated with
    it and is still live.

    Args:
        history: The history of the device.
        events: The numbers of the events.

    Returns:
        Bytes of shape [events, stacks + 1]; the last column is that of no stack.
    """
    allocations = history.allocations
    is_recorded = ~allocations.is_early
    stack_count = int(allocations.stack.max(initial=-1)) + 1
    columns = stack_count + 1  # no stack is -1, which is the last column

    live_bytes = []
    for event in events.tolist():
        is_live = is_recorded & allocations.mark_live_after(event - 1)
        stack = allocations.stack[is_live]
        live_bytes.append(summed(stack, allocations.size[is_live], columns))
    return np.stack(live_bytes)


def _find_fragmentation(
    history: History, failed: tuple[OutOfMemory, ...]
) -> Iterator[MemoryFinding]:
    """Report that memory is fragmented: much of it is free, but in holes between live
    blocks.

    If memory ran out, the last failure that this explains is reported. Otherwise it is
    the moment at which most was reserved, or the end, if memory is fragmented then.
    There is at most one finding.

    Args:
        history: The history of the device.
        failed: Explanations of the failures; there may be none.
    """
    if failed:
        fragmented = [oom for oom in failed if oom.reason == "fragmented"]
        if fragmented:
            yield _make_failure_finding(fragmented[-1])
        return

    # `reserved` begins with what there was before the first event (BEFORE, -1).
    most_reserved = int(history.reserved.argmax()) - 1
    end = len(history.events) - 1
    moments = [end]
    if most_reserved not in (BEFORE, end):
        moments = [most_reserved, end]

    for event in moments:
        waste = measure_fragmentation(history, event)
        if waste:
            yield MemoryFinding(
                rule="fragmentation",
                bytes=waste.split_bytes or 0,
                of_bytes=waste.reserved_bytes,
                at_stake_bytes=None,
                index=event,
                each_bytes=waste.largest_bytes,
                helps="order" if is_expandable(history) else "expandable",
            )
            return


def _make_failure_finding(oom: OutOfMemory) -> MemoryFinding:
    """Make the finding that fragmentation explains why a request for memory failed.
    `oom` is the explanation of that failure."""
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
        helps=_choose_remedy(oom),
    )


def _choose_remedy(oom: OutOfMemory) -> Helps:
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


def _find_unneeded_gradients(facts: MemoryFacts) -> Iterator[MemoryFinding]:
    """Report gradients that take memory at the peak although their step is over.

    Gradients that a later backward pass frees do not count. The saving is how much
    lower the peak would be without them.
    """
    history = facts.history
    allocations = history.allocations

    step_end = facts.phases.find_next_step_end(allocations.allocated_at)
    is_late = _mark_gradients_kept_too_long(facts, step_end)

    is_step_over = step_end <= history.peak_index
    is_live = allocations.mark_live_after(history.peak_index)
    at_peak = is_late & is_step_over & is_live
    if not at_peak.any():
        return

    peak_bytes = int(history.allocated.max())
    saved_bytes = _compute_saving_at_peak(history, is_late, step_end)
    min_bytes = MIN_NOT_NEEDED_SHARE * peak_bytes
    if min_bytes > 0 and saved_bytes >= min_bytes:
        held_bytes = int(allocations.size[at_peak].sum())
        finding = _make_finding_at_peak(
            history, "peak-not-needed", held_bytes, saved_bytes
        )
        yield replace(finding, count=int(at_peak.sum()))


def _mark_gradients_kept_too_long(facts: MemoryFacts, step_end: Int64s) -> Flags:
    """Mark the gradients that are freed only after the step that used them.

    Gradients that a backward pass frees do not count.

    Args:
        facts: What follows from the history of the device.
        step_end: For each allocation the end of the step that uses it.

    Returns:
        A flag for each allocation.
    """
    history = facts.history
    allocations = history.allocations
    is_gradient = facts.category_numbers == CATEGORY_NUMBER["gradients"]
    outlives_step = allocations.freed_at > step_end
    is_freed = allocations.is_freed

    no_stack = -1  # what lives at the end has no stack that frees it
    freeing_stack = at(history.events.stack, allocations.freed_at, missing=no_stack)
    in_backward = facts.evidence.mark_stacks_with(FrameRole.BACKWARD)[freeing_stack]
    return np.asarray(is_gradient & outlives_step & is_freed & ~in_backward)


def _find_large_category(
    facts: MemoryFacts, category: Category, rule: Rule, min_share: float
) -> Iterator[MemoryFinding]:
    """Report a category, such as optimizer states, that takes a large share of the peak
    memory.

    The saving is how much lower the peak would be without it.

    Args:
        facts: What follows from the history of the device.
        category: The category.
        rule: The name of the finding.
        min_share: The least share of the peak that is reported.
    """
    history = facts.history
    allocations = history.allocations
    is_of_category = facts.category_numbers == CATEGORY_NUMBER[category]
    at_peak = is_of_category & allocations.mark_live_after(history.peak_index)

    held_bytes = int(allocations.size[at_peak].sum())
    min_bytes = min_share * int(history.allocated.max())
    if min_bytes > 0 and held_bytes >= min_bytes:
        saved_bytes = _compute_saving_at_peak(
            history, is_of_category, allocations.allocated_at
        )
        yield _make_finding_at_peak(history, rule, held_bytes, saved_bytes)


def _make_finding_at_peak(
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


def _find_several_pools(history: History) -> Iterator[MemoryFinding]:
    """Report that several private memory pools, as of CUDA graphs, reserve memory at
    the end.

    The bytes at stake are those of all pools but the largest: at best a single pool of
    that size would do. Nothing is reported for fewer than two pools.
    """
    pool_bytes = list_private_pools(history)
    if len(pool_bytes) > 1:
        yield MemoryFinding(
            rule="pool-per-graph",
            bytes=sum(pool_bytes),
            of_bytes=int(history.reserved[-1]),
            at_stake_bytes=sum(pool_bytes) - pool_bytes[0],
            index=len(history.events) - 1,
            count=len(pool_bytes),
        )


def _compute_saving_at_peak(history: History, is_left_out: Flags, since: Int64s) -> int:
    """Return how many bytes lower the peak would be without some allocations.

    E.g. if the peak is 10 GB, and most would be 9 GB without them, maybe later: 1 GB.

    Args:
        history: The history of the device.
        is_left_out: Which of `history.allocations` to leave out.
        since: For each allocation the event from which on it is left out.
    """
    allocations = history.allocations
    events = len(history.events)
    sizes = allocations.size[is_left_out]

    # Moment 0 is before the first event, moment n + 1 is after event n. One more moment
    # takes what is not freed, or not left out, before the end.
    moments = events + 2
    left_out_from = np.minimum(since[is_left_out], events) + 1
    left_out_until = allocations.freed_at[is_left_out] + 1
    begin_bytes = summed(left_out_from, sizes, moments)
    end_bytes = summed(left_out_until, sizes, moments)
    left_out_bytes = np.cumsum(begin_bytes - end_bytes)[:-1]

    allocated_without = history.allocated - left_out_bytes
    return int(history.allocated.max() - allocated_without.max())
