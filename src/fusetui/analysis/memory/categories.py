"""What kind each allocation is, by evidence alone: its stack, where it was freed, and
when."""

from __future__ import annotations

from enum import IntEnum
from typing import Literal, get_args

import msgspec
import numpy as np

from fusetui.analysis.memory.evidence import Evidence, FrameRole
from fusetui.analysis.memory.history import BEFORE, History, Lives, private
from fusetui.trace.model.arrays import Flags, Int64s, summed

OPTIMIZER, PROFILER = "Optimizer.step#", "ProfilerStep#"


class TrainingPhase(IntEnum):
    """What the program was doing at an event."""

    UNKNOWN = 0
    OTHER = 1  # the forward pass, and all that is none of the others
    BACKWARD = 2
    STEP = 3


class Phases(msgspec.Struct, frozen=True, eq=False):
    """`phase` and `run` of shape [events]: events of one run have the same phase and
    follow one another. `begin` and `end` of shape [steps]: the first event of an
    optimizer's step, and the first one after it; one more than there are events where
    it did not end. `ends`: where steps of the program end, those of its optimizer, else
    those of a profiler."""

    phase: Int64s
    run: Int64s
    begin: Int64s
    end: Int64s
    ends: Int64s

    def next_end(self, events: Int64s) -> Int64s:
        """The end of the first step that begins after each event; never: more than any
        event."""
        place = np.searchsorted(self.begin, events, side="right")
        return np.append(self.end, len(self.phase) + 1)[place]


class Known(msgspec.Struct, frozen=True, eq=False):
    """What follows from a history, once."""

    history: History
    evidence: Evidence
    phases: Phases
    kinds: Int64s  # of each life, the number of its category


def phases(history: History, found: Evidence) -> Phases:
    """Where an optimizer runs the model itself (a closure), that is no part of its
    step."""
    stack, count = history.events.stack, len(history.events)
    annotated = _annotated(history, OPTIMIZER)
    phase = np.where(stack >= 0, TrainingPhase.OTHER, TrainingPhase.UNKNOWN).astype(
        np.int64
    )
    inside = np.zeros(count + 1, np.int64)
    for begin, end in annotated:
        inside[begin] += 1
        inside[min(end, count)] -= 1
    model = found.has(FrameRole.CALL) & ~found.in_step
    phase[(np.cumsum(inside[:-1]) > 0) & ~model[stack]] = TrainingPhase.STEP
    phase[found.in_step[stack]] = TrainingPhase.STEP
    phase[found.has(FrameRole.BACKWARD)[stack]] = TrainingPhase.BACKWARD
    change = np.append(True, phase[1:] != phase[:-1])[:count]
    steps = annotated or _by_stacks(history, phase, model[stack])
    begins, ends = np.array(steps, np.int64).reshape(-1, 2).T
    profiled = [] if steps else _annotated(history, PROFILER)
    of_program = ends if steps else np.array([end for _, end in profiled], np.int64)
    return Phases(
        phase, np.cumsum(change), begins, ends, of_program[of_program <= count]
    )


def _annotated(history: History, prefix: str) -> list[tuple[int, int]]:
    """The steps that annotations name, in the order of time. None where events have no
    times."""
    snapshot, times, count = (
        history.snapshot,
        history.events.time_us,
        len(history.events),
    )
    if not count or times[0] < 0 or bool((np.diff(times) < 0).any()):
        return []
    names = [name.startswith(prefix) for name in snapshot.strings]
    rows = snapshot.annotations
    steps = np.array([*names, False], np.bool_)[rows.name]
    if (own := steps & (rows.device == history.device)).any():
        steps = own  # torch may note another device than that of the memory
    found, open_ = list[tuple[int, int]](), list[int]()
    each = zip(rows.is_start[steps].tolist(), rows.time_us[steps].tolist(), strict=True)
    for is_start, time in each:
        if is_start:
            open_.append(int(np.searchsorted(times, time, side="left")))
        else:
            end = int(np.searchsorted(times, time, side="right"))
            found.append((open_.pop() if open_ else 0, end))
    found += [(begin, count + 1) for begin in open_]
    return sorted(one for one in found if one[0] < min(one[1], count))


def _by_stacks(history: History, phase: Int64s, model: Flags) -> list[tuple[int, int]]:
    """Events of steps with no forward and no backward between them are of one."""
    count = len(phase)
    rows = np.flatnonzero(phase == TrainingPhase.STEP)
    if not len(rows):
        return []
    others = np.cumsum((phase == TrainingPhase.BACKWARD) | model)[rows]
    first = np.append(True, others[1:] != others[:-1])
    begins = rows[first]
    ends = rows[np.append(first[1:], True)] + 1
    failed = history.failures.max(initial=BEFORE)
    # the file was written from within it
    if ends[-1] == count and failed >= begins[-1]:
        ends[-1] = count + 1
    return list(zip(begins.tolist(), ends.tolist(), strict=True))


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
NUMBER = {name: number for number, name in enumerate(CATEGORIES)}
UNKNOWN = NUMBER["unknown"]


class CategoryShare(msgspec.Struct, frozen=True):
    """What of a category lives at a moment."""

    category: Category
    bytes: int
    blocks: int


def shares(history: History, kinds: Int64s, event: int) -> tuple[CategoryShare, ...]:
    """The largest first, without those of which nothing lives."""
    living = history.lives.at(event)
    sizes = summed(kinds[living], history.lives.size[living], len(CATEGORIES)).tolist()
    blocks = np.bincount(kinds[living], minlength=len(CATEGORIES)).tolist()
    found = (
        CategoryShare(*one)
        for one in zip(CATEGORIES, sizes, blocks, strict=True)
        if one[2]
    )
    return tuple(sorted(found, key=lambda one: -one.bytes))


def categories(history: History, found: Evidence, phases: Phases) -> Int64s:
    """The number of the category of each life; the first rule that holds decides."""
    lives = history.lives
    stack, born, died, count = lives.stack, lives.born, lives.died, lives.events
    lasts, recorded = died >= count, stack >= 0
    freed = np.append(history.events.stack, -1)[died]
    backward = found.has(FrameRole.BACKWARD)
    in_step = (
        np.append(phases.phase == TrainingPhase.STEP, False)[born]
        | found.in_step[stack]
    )
    run = np.append(phases.run, -1)
    same_run = (run[born] == run[died]) & recorded & (born != BEFORE) & ~lasts
    same_run &= np.append(phases.phase, 0)[born] != TrainingPhase.UNKNOWN
    # in which it was allocated
    own_step = np.searchsorted(phases.begin, born, side="right") - 1
    step_end = np.where(born == BEFORE, 0, np.append(phases.end, 0)[own_step])
    accumulated = found.has(FrameRole.ACCUMULATES)[stack] & ~same_run
    is_gradient = _outlives_backward(history, found, phases) | accumulated
    rules: list[tuple[Category, Flags]] = [
        ("graph_pool", private(history)),
        ("before_recording", ~recorded & (born == BEFORE)),
        ("workspace", found.has(FrameRole.WORKSPACE)[stack] | found.in_triton[stack]),
        ("optimizer_state", in_step & ~backward[stack] & (died >= step_end)),
        ("temporary", in_step & ~backward[stack] & ~lasts),
        ("gradients", backward[stack] & is_gradient),
        ("temporary", backward[stack] & same_run),
        (
            "parameters",
            found.has(FrameRole.WEIGHTS)[stack] & lasts & ~backward[stack] & ~in_step,
        ),
        ("activations", recorded & ~backward[stack] & ~in_step & backward[freed]),
        ("temporary", same_run),
    ]
    kinds = np.full(len(lives), UNKNOWN)
    for name, rule in reversed(rules):
        kinds[rule] = NUMBER[name]
    return _as_before(lives, kinds, phases)


def _outlives_backward(history: History, found: Evidence, phases: Phases) -> Flags:
    """Which live until zero_grad, the end of the next step of an optimizer, or the end
    of the file if the backward pass ended before."""
    lives, events = history.lives, history.events
    freed = np.append(events.stack, -1)[lives.died]
    forward = (phases.phase == TrainingPhase.OTHER) & found.has(FrameRole.CALL)[
        events.stack
    ]
    rows = np.flatnonzero(forward | (phases.phase == TrainingPhase.STEP))
    place = np.searchsorted(rows, lives.born, side="right")
    # something else came later
    after = np.append(rows, lives.events)[place] < lives.events
    ended: Flags = after | (lives.born > history.failures.max(initial=BEFORE))
    lasts = lives.died >= lives.events
    stepped = lives.died >= phases.next_end(lives.born)
    cleared = stepped | found.has(FrameRole.ZERO_GRAD)[freed]
    return np.where(lasts, ended, cleared)


def _as_before(lives: Lives, kinds: Int64s, phases: Phases) -> Int64s:
    """What still lives, allocated after the last complete step, is a gradient if all
    others of its stack were."""
    complete = phases.end[phases.end <= lives.events]
    since = complete.max(initial=0)
    ended = (lives.died < lives.events) & (lives.stack >= 0)
    groups = int(lives.stack.max(initial=-1)) + 2
    low, high = np.full(groups, len(CATEGORIES)), np.full(groups, -1)
    np.minimum.at(low, lives.stack[ended], kinds[ended])
    np.maximum.at(high, lives.stack[ended], kinds[ended])
    known = (low == high) & (low == NUMBER["gradients"])
    open_ = (kinds == UNKNOWN) & (lives.died >= lives.events) & (lives.born >= since)
    open_ &= (lives.stack >= 0) & known[lives.stack]
    return np.where(open_, low[lives.stack], kinds)
