"""Forward, backward and optimizer steps, by what the stacks of events say, else annotations."""

from __future__ import annotations

from enum import IntEnum

import msgspec
import numpy as np

from fusetui.analysis.memory.evidence import Evidence, Mark
from fusetui.analysis.memory.history import History
from fusetui.trace.model.arrays import Flags, Int64s
from fusetui.trace.snapshot import Action

OPTIMIZER, PROFILER = "Optimizer.step#", "ProfilerStep#"


class Phase(IntEnum):
    """What the program was doing at an event."""

    UNKNOWN = 0
    OTHER = 1  # the forward pass, and all that is none of the others
    BACKWARD = 2
    STEP = 3


class Phases(msgspec.Struct, frozen=True, eq=False):
    """`phase` and `run` of shape [events]: events of one run have the same phase and follow one
    another. `begin` and `end` of shape [steps]: the first event of an optimizer's step, and the
    first one after it; one more than there are events where it did not end. `ends`: where steps of
    the program end, those of its optimizer, else those of a profiler."""

    phase: Int64s
    run: Int64s
    begin: Int64s
    end: Int64s
    ends: Int64s

    def next_end(self, events: Int64s) -> Int64s:
        """The end of the first step that begins after each event; never: more than any event."""
        place = np.searchsorted(self.begin, events, side="right")
        return np.append(self.end, len(self.phase) + 1)[place]


def phases(history: History, found: Evidence) -> Phases:
    """Where an optimizer runs the model itself (a closure), that is no part of its step."""
    events = history.events
    stack, count = events.stack, len(events)
    annotated = _annotated(history, OPTIMIZER)
    phase = np.where(stack >= 0, Phase.OTHER, Phase.UNKNOWN).astype(np.int64)
    inside = np.zeros(count + 1, np.int64)
    for begin, end in annotated:
        inside[begin] += 1
        inside[min(end, count)] -= 1
    model = found.has(Mark.CALL) & ~found.in_step
    phase[(np.cumsum(inside[:-1]) > 0) & ~model[stack]] = Phase.STEP
    phase[found.in_step[stack]] = Phase.STEP
    phase[found.has(Mark.BACKWARD)[stack]] = Phase.BACKWARD
    change = np.append(True, phase[1:] != phase[:-1])[:count]
    steps = annotated or _by_stacks(history, phase, model[stack])
    begins, ends = _columns(steps)
    of_program = ends if steps else _columns(_annotated(history, PROFILER))[1]
    return Phases(phase, np.cumsum(change), begins, ends, of_program[of_program <= count])


def _columns(steps: list[tuple[int, int]]) -> tuple[Int64s, Int64s]:
    found = np.array(steps, np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _annotated(history: History, prefix: str) -> list[tuple[int, int]]:
    """The steps that annotations name, in the order of time. None where events have no times."""
    snapshot, times, count = history.snapshot, history.events.time_us, len(history.events)
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
    rows = np.flatnonzero(phase == Phase.STEP)
    if not len(rows):
        return []
    others = np.cumsum((phase == Phase.BACKWARD) | model)[rows]
    first = np.append(True, others[1:] != others[:-1])
    begins = rows[first]
    ends = rows[np.append(first[1:], True)] + 1
    failed = history.events.action[begins[-1] :] == Action.OOM
    if ends[-1] == count and failed.any():  # the file was written from within it
        ends[-1] = count + 1
    return list(zip(begins.tolist(), ends.tolist(), strict=True))
