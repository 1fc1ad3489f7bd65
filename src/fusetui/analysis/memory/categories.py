"""Determines the category of each allocation, such as gradients or activations.

Only evidence counts: the call stack that made it, the one that freed it, and when both
happened. Without evidence the category is unknown.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Literal, NamedTuple, get_args

import msgspec
import numpy as np

from fusetui.analysis.memory.evidence import Evidence, FrameRole
from fusetui.analysis.memory.history import (
    BEFORE,
    Allocations,
    History,
    mark_private_pool_allocations,
)
from fusetui.trace.model.arrays import (
    Flags,
    Int64s,
    at,
    begins_runs,
    ends_runs,
    group_numbers,
    inside_ranges,
    last_at_or_before,
    summed,
)

OPTIMIZER_PREFIX = "Optimizer.step#"
PROFILER_PREFIX = "ProfilerStep#"
"""Beginnings of the annotations that torch and its profiler write."""


class TrainingPhase(IntEnum):
    """What the training program was doing at an event."""

    UNKNOWN = 0
    OTHER = 1  # the forward pass, and all that is none of the others
    BACKWARD = 2
    STEP = 3


class Phases(msgspec.Struct, frozen=True, eq=False):
    """What the program was doing at each event, and where its steps begin and end.

    A *run* is a sequence of events of the same phase.
    """

    phase: Int64s  # of each event a TrainingPhase
    run: Int64s  # of each event the number of its run
    step_begin: Int64s  # the first event of each step of an optimizer
    # The first event after each of these steps. One more than the number of events for
    # a step that did not end.
    step_end: Int64s
    # The first event after each step of the program that ended. Steps are those of its
    # optimizer, else those of a profiler.
    program_step_end: Int64s

    def find_next_step_end(self, events: Int64s) -> Int64s:
        """Return for each event the end of the next optimizer step that begins after.

        The result is above the number of any event if no step follows.
        """
        step = np.searchsorted(self.step_begin, events, side="right")
        never = len(self.phase) + 1
        return at(self.step_end, step, missing=never)


class MemoryFacts(msgspec.Struct, frozen=True, eq=False):
    """What is worked out once from the history of a device, for many answers."""

    history: History
    evidence: Evidence
    phases: Phases
    # Of each of `history.allocations`, the number of its category.
    category_numbers: Int64s


class _Step(NamedTuple):
    """A step of a program, as numbers of events."""

    begin: int  # its first event
    end: int  # the first event after it


def determine_phases(history: History, evidence: Evidence) -> Phases:
    """Find out what the program was doing at each event: forward, backward or optimizer
    step.

    Annotations of steps decide if there are any, else call stacks do. Where an
    optimizer runs the model itself (a closure), that is not part of its step.

    Args:
        history: The history of the device.
        evidence: What the call stacks say.
    """
    count = len(history.events)
    annotated_steps = _find_annotated_steps(history, OPTIMIZER_PREFIX)
    in_annotated_step = _mark_events_in_steps(annotated_steps, count)

    # What the stack of each event shows.
    stack = history.events.stack
    in_step_code = evidence.in_step[stack]
    in_model_call = evidence.mark_stacks_with(FrameRole.CALL)[stack] & ~in_step_code
    in_backward = evidence.mark_stacks_with(FrameRole.BACKWARD)[stack]

    # Later assignments win: the backward pass over a step, a step over the rest.
    phase = np.full(count, TrainingPhase.UNKNOWN, np.int64)
    phase[stack >= 0] = TrainingPhase.OTHER
    phase[in_annotated_step & ~in_model_call] = TrainingPhase.STEP
    phase[in_step_code] = TrainingPhase.STEP
    phase[in_backward] = TrainingPhase.BACKWARD

    steps = annotated_steps or _find_steps_by_stacks(history, phase, in_model_call)
    program_steps = steps or _find_annotated_steps(history, PROFILER_PREFIX)
    # A step that did not end has an end beyond the number of events.
    program_ends = [step.end for step in program_steps if step.end <= count]

    return Phases(
        phase=phase,
        run=group_numbers(begins_runs(phase)),
        step_begin=np.array([step.begin for step in steps], np.int64),
        step_end=np.array([step.end for step in steps], np.int64),
        program_step_end=np.array(program_ends, np.int64),
    )


def _mark_events_in_steps(steps: list[_Step], event_count: int) -> Flags:
    """Return for each event whether it is in one of the steps.

    Args:
        steps: The steps; they may overlap.
        event_count: How many events there are.
    """
    begins = np.array([step.begin for step in steps], np.int64)
    ends = np.array([min(step.end, event_count) for step in steps], np.int64)
    return inside_ranges(begins, ends, event_count)


def _find_annotated_steps(history: History, prefix: str) -> list[_Step]:
    """Return the steps whose annotations begin with a prefix, in the order of time.

    Steps without any event are left out. A step whose begin was not recorded begins
    with the first event, and one whose end was not recorded ends after the last.
    Returns nothing if events have no times, or if their times go back.

    Args:
        history: The history of the device.
        prefix: What the names of the annotations begin with.
    """
    event_times = history.events.time_us
    count = len(event_times)
    has_times = count > 0 and event_times[0] >= 0
    if not has_times or bool((np.diff(event_times) < 0).any()):
        return []

    annotations = history.snapshot.annotations
    is_step_annotation = _mark_annotations_with_prefix(history, prefix)
    starts = annotations.is_start[is_step_annotation].tolist()
    times_us = annotations.time_us[is_step_annotation].tolist()

    # Steps may nest: an end belongs to the last begin that is still open.
    steps = []
    open_begins: list[int] = []
    for is_start, time_us in zip(starts, times_us, strict=True):
        if is_start:
            begin = int(np.searchsorted(event_times, time_us, side="left"))
            open_begins.append(begin)
        else:
            begin = open_begins.pop() if open_begins else 0
            end = int(np.searchsorted(event_times, time_us, side="right"))
            steps.append(_Step(begin, end))

    for begin in open_begins:
        steps.append(_Step(begin, count + 1))

    return sorted(step for step in steps if step.begin < min(step.end, count))


def _mark_annotations_with_prefix(history: History, prefix: str) -> Flags:
    """Mark the annotations of a memory snapshot whose names begin with a prefix.

    Only annotations of the device count, unless it has none: torch may note another
    device than that of the memory.

    Args:
        history: The history of the device.
        prefix: The prefix.
    """
    annotations = history.snapshot.annotations
    string_has_prefix = np.array(
        [text.startswith(prefix) for text in history.snapshot.strings], np.bool_
    )
    has_prefix: Flags = at(string_has_prefix, annotations.name, missing=False)

    is_of_device: Flags = has_prefix & (annotations.device == history.device)
    return is_of_device if is_of_device.any() else has_prefix


def _find_steps_by_stacks(
    history: History, phase: Int64s, in_model_call: Flags
) -> list[_Step]:
    """Find the steps of an optimizer from what the program was doing at each event.

    Events of the phase STEP belong to the same step if neither a forward nor a backward
    pass is between them.

    Args:
        history: The history of the device.
        phase: What the program was doing at each event.
        in_model_call: Whether each event is in a call of the model.
    """
    step_events = np.flatnonzero(phase == TrainingPhase.STEP)
    if not len(step_events):
        return []

    # Events of one step have the same number of events of passes before them.
    is_of_pass = (phase == TrainingPhase.BACKWARD) | in_model_call
    passes_so_far = np.cumsum(is_of_pass)[step_events]
    begins = step_events[begins_runs(passes_so_far)]
    ends = step_events[ends_runs(passes_so_far)] + 1

    # A file that was written because memory ran out may end within the last step. Such
    # a step has an end beyond the number of events.
    event_count = len(phase)
    last_failure = history.failures.max(initial=BEFORE)
    if ends[-1] == event_count and last_failure >= begins[-1]:
        ends[-1] = event_count + 1

    return [
        _Step(begin, end)
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
    ]


Category = Literal[
    "parameters",
    "optimizer_state",
    "gradients",
    "activations",
    "temporary",
    "workspace",
    "graph_pool",
    "before_recording",
    "unknown",
]
CATEGORIES: tuple[Category, ...] = get_args(Category)
CATEGORY_NUMBER = {name: number for number, name in enumerate(CATEGORIES)}
"""The number of each category: its index in CATEGORIES."""

UNKNOWN = CATEGORY_NUMBER["unknown"]


class CategoryShare(msgspec.Struct, frozen=True):
    """The live memory of one category at a moment."""

    category: Category
    bytes: int
    blocks: int


def sum_bytes_by_category(
    history: History, category_numbers: Int64s, event: int
) -> tuple[CategoryShare, ...]:
    """Return how many bytes of each category, such as gradients, are live after an
    event.

    The largest comes first. Categories without live memory are left out.

    Args:
        history: The history of the device.
        category_numbers: The number of the category of each allocation.
        event: The event, or BEFORE for the moment before the first one.
    """
    allocations = history.allocations
    is_live = allocations.mark_live_after(event)
    live_sizes = allocations.size[is_live]
    live_categories = category_numbers[is_live]

    sizes = summed(live_categories, live_sizes, len(CATEGORIES)).tolist()
    blocks = np.bincount(live_categories, minlength=len(CATEGORIES)).tolist()

    shares = []
    for category, size, count in zip(CATEGORIES, sizes, blocks, strict=True):
        if count:
            shares.append(CategoryShare(category=category, bytes=size, blocks=count))

    return tuple(sorted(shares, key=lambda share: -share.bytes))


def categorize_allocations(
    history: History, evidence: Evidence, phases: Phases
) -> Int64s:
    """Decide for each allocation what it is for, such as parameters, gradients or
    activations.

    Its call stack, its end and the phase of training decide, by the rules of `_list_rules`.
    The first rule that holds counts: memory of a private pool is `graph_pool` even if
    it is a gradient.

    Args:
        history: The history of the device.
        evidence: What the call stacks say.
        phases: What the program was doing at each event.

    Returns:
        For each of `history.allocations` the number of its category.
    """
    allocations = history.allocations
    category_numbers = np.full(len(allocations), UNKNOWN)

    # The rules are applied backwards, so that the first one overwrites the others.
    for category, holds in reversed(_list_rules(history, evidence, phases)):
        category_numbers[holds] = CATEGORY_NUMBER[category]
    return _infer_gradients_by_stack(allocations, category_numbers, phases)


class _CategoryRule(NamedTuple):
    """A category, and the allocations for which the evidence of it holds."""

    category: Category
    holds: Flags  # one flag per allocation


def _list_rules(
    history: History, evidence: Evidence, phases: Phases
) -> list[_CategoryRule]:
    """List the rules that give allocations a category, the preferred ones first.

    A rule has a flag for each allocation: whether it holds. Rules look at the code that
    allocated, at how long the memory lasted, and at the phase of training.

    Args:
        history: The history of the device.
        evidence: What the call stacks say.
        phases: What the program was doing at each event.
    """
    allocations = history.allocations
    stack = allocations.stack
    is_recorded = stack >= 0
    is_live_at_end = ~allocations.is_freed

    # Where the allocation was made.
    in_backward = evidence.mark_stacks_with(FrameRole.BACKWARD)[stack]
    in_step_phase = _find_phase_of_each(allocations, phases) == TrainingPhase.STEP
    in_step = in_step_phase | evidence.in_step[stack]
    is_of_optimizer = in_step & ~in_backward
    is_of_model = ~in_step & ~in_backward

    # How long it lasted.
    is_of_one_run = _mark_freed_in_same_run(allocations, phases)
    outlives_step = allocations.freed_at >= _find_end_of_own_step(allocations, phases)
    accumulated = (
        evidence.mark_stacks_with(FrameRole.ACCUMULATES)[stack] & ~is_of_one_run
    )
    is_gradient = _mark_lasting_as_gradients(history, evidence, phases) | accumulated

    in_workspace = (
        evidence.mark_stacks_with(FrameRole.WORKSPACE)[stack]
        | evidence.in_triton[stack]
    )
    is_of_weights = evidence.mark_stacks_with(FrameRole.WEIGHTS)[stack]
    is_freed_in_backward = _mark_freed_by_role(history, evidence, FrameRole.BACKWARD)

    return [
        _CategoryRule("graph_pool", mark_private_pool_allocations(history)),
        _CategoryRule("before_recording", ~is_recorded & allocations.is_early),
        _CategoryRule("workspace", in_workspace),
        _CategoryRule("optimizer_state", is_of_optimizer & outlives_step),
        _CategoryRule("temporary", is_of_optimizer & ~is_live_at_end),
        _CategoryRule("gradients", in_backward & is_gradient),
        _CategoryRule("temporary", in_backward & is_of_one_run),
        _CategoryRule("parameters", is_of_model & is_of_weights & is_live_at_end),
        _CategoryRule("activations", is_of_model & is_recorded & is_freed_in_backward),
        _CategoryRule("temporary", is_of_one_run),
    ]


def _find_phase_of_each(allocations: Allocations, phases: Phases) -> Int64s:
    """Return the phase in which each allocation was allocated; UNKNOWN for BEFORE."""
    return at(phases.phase, allocations.allocated_at, missing=TrainingPhase.UNKNOWN)


def _mark_freed_in_same_run(allocations: Allocations, phases: Phases) -> Flags:
    """Mark the allocations that were made and freed within one run of the same phase.

    A *phase* is e.g. the forward or the backward pass, and a run is one stretch of
    events of it. Allocations without a call stack, and those of an unknown phase, do
    not count.
    """
    has_both_events = ~allocations.is_early & allocations.is_freed
    has_stack = allocations.stack >= 0
    has_phase = _find_phase_of_each(allocations, phases) != TrainingPhase.UNKNOWN

    no_run = -1
    run_of_begin = at(phases.run, allocations.allocated_at, missing=no_run)
    run_of_end = at(phases.run, allocations.freed_at, missing=no_run)
    is_same_run = run_of_begin == run_of_end
    return np.asarray(is_same_run & has_both_events & has_stack & has_phase)


def _mark_freed_by_role(history: History, evidence: Evidence, role: FrameRole) -> Flags:
    """Return which allocations were freed by code with a frame of one role."""
    no_stack = -1  # of what lives at the end
    freed_at = history.allocations.freed_at
    freeing_stack = at(history.events.stack, freed_at, missing=no_stack)
    is_freed_by: Flags = evidence.mark_stacks_with(role)[freeing_stack]
    return is_freed_by


def _find_end_of_own_step(allocations: Allocations, phases: Phases) -> Int64s:
    """Return for each allocation the end of the last optimizer step begun before it.

    It is 0 for what was allocated before the first event or the first step.
    """
    # BEFORE (-1) is less than the begin of any step: no step has begun by then.
    step = last_at_or_before(phases.step_begin, allocations.allocated_at)
    return at(phases.step_end, step, missing=0)


def _mark_lasting_as_gradients(
    history: History, evidence: Evidence, phases: Phases
) -> Flags:
    """Mark the allocations that last as long as a gradient does.

    A gradient lasts until zero_grad frees it, or at least until the end of the next
    optimizer step. One that lives at the end of the file counts if the backward pass
    that made it has ended.

    Args:
        history: The history of the device.
        evidence: What the call stacks say.
        phases: What the program was doing at each event.
    """
    allocations = history.allocations

    # A later forward pass or step shows that the backward pass has ended.
    in_model_call = evidence.mark_stacks_with(FrameRole.CALL)[history.events.stack]
    is_forward = (phases.phase == TrainingPhase.OTHER) & in_model_call
    is_step = phases.phase == TrainingPhase.STEP
    last_forward_or_step = np.flatnonzero(is_forward | is_step).max(initial=BEFORE)
    has_later_phase = allocations.allocated_at < last_forward_or_step

    # Only a file that was written because memory ran out ends within a pass.
    last_failure = history.failures.max(initial=BEFORE)
    no_later_failure = allocations.allocated_at > last_failure
    backward_ended = has_later_phase | no_later_failure

    is_cleared = _mark_freed_by_role(history, evidence, FrameRole.ZERO_GRAD)
    outlives_step = allocations.freed_at >= phases.find_next_step_end(
        allocations.allocated_at
    )

    is_live_at_end = ~allocations.is_freed
    return np.where(is_live_at_end, backward_ended, is_cleared | outlives_step)


def _infer_gradients_by_stack(
    allocations: Allocations, category_numbers: Int64s, phases: Phases
) -> Int64s:
    """Turn live memory of unknown category into gradients, where its stack suggests it.

    That is what was allocated after the last complete step, if all allocations of the
    same stack that have ended were gradients.

    Args:
        allocations: The allocations.
        category_numbers: Of each of them the number of its category.
        phases: The phases of the history.

    Returns:
        The new numbers of categories.
    """
    complete_ends = phases.step_end[phases.step_end <= allocations.events]
    last_step_end = complete_ends.max(initial=0)

    is_unknown = category_numbers == UNKNOWN
    is_live_at_end = ~allocations.is_freed
    is_of_last_step = allocations.allocated_at >= last_step_end
    stack_makes_gradients = _find_gradient_only_stacks(allocations, category_numbers)
    has_such_stack = stack_makes_gradients[allocations.stack]

    is_gradient = is_unknown & is_live_at_end & is_of_last_step & has_such_stack
    return np.where(is_gradient, CATEGORY_NUMBER["gradients"], category_numbers)


def _find_gradient_only_stacks(
    allocations: Allocations, category_numbers: Int64s
) -> Flags:
    """Mark the call stacks of which all ended allocations were gradients.

    Of an unmarked stack, some allocation was something else, or none has ended. A last
    entry, so that -1 reads it, is that of no stack: not marked.

    Args:
        allocations: The allocations.
        category_numbers: The number of the category of each.
    """
    has_stack = allocations.stack >= 0
    has_ended = has_stack & allocations.is_freed
    is_ended_gradient = has_ended & (category_numbers == CATEGORY_NUMBER["gradients"])

    stack_count = int(allocations.stack.max(initial=-1)) + 1
    entries = stack_count + 1  # the last one is that of no stack
    ended = np.bincount(allocations.stack[has_ended], minlength=entries)
    gradients = np.bincount(allocations.stack[is_ended_gradient], minlength=entries)
    return np.asarray((ended > 0) & (gradients == ended))
