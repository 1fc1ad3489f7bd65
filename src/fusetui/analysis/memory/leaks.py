"""What each step leaves behind: stacks whose live bytes grow from step to step."""

from __future__ import annotations

import msgspec
import numpy as np

from fusetui.analysis.memory.evidence import Evidence
from fusetui.analysis.memory.history import BEFORE, History
from fusetui.analysis.memory.holders import NO_STACK, code_of, sums
from fusetui.analysis.memory.phases import Phases

LAST, FEWEST = 4, 3  # of the last steps, in how many it grows


class Leak(msgspec.Struct, frozen=True):
    """The allocations of one stack. `grew` in so many of the last `steps`, by `bytes_per_step` on
    average; `bytes` and `blocks` live after the last of them."""

    place: str
    bytes_per_step: int
    grew: int
    steps: int
    bytes: int
    blocks: int


def leaks(history: History, found: Evidence, phases: Phases) -> tuple[Leak, ...]:
    """The largest first; none where fewer than four steps ended. What was there before the first
    event does not grow."""
    ends = phases.ends[-(LAST + 1) :]
    if len(ends) < LAST:
        return ()
    lives = history.lives
    rows = np.flatnonzero(lives.born != BEFORE)
    groups = int(lives.stack.max(initial=-1)) + 2
    held = np.zeros((len(ends), groups), np.int64)
    blocks = np.zeros(groups, np.int64)
    for number, end in enumerate(ends.tolist()):
        living = rows[lives.at(end - 1)[rows]]
        held[number] = sums(lives.stack[living], lives.size[living], groups)
        blocks = np.bincount(lives.stack[living] % groups, minlength=groups)
    grew = (np.diff(held, axis=0) > 0).sum(axis=0)
    growing = np.flatnonzero((grew >= FEWEST) & (held[-1] > held[0]))
    steps = len(ends) - 1
    leaking = (
        Leak(
            code_of(history.snapshot, found, stack) if stack < groups - 1 else NO_STACK,
            int(held[-1, stack] - held[0, stack]) // steps,
            int(grew[stack]),
            steps,
            int(held[-1, stack]),
            int(blocks[stack]),
        )
        for stack in growing.tolist()
    )
    return tuple(sorted(leaking, key=lambda one: (-one.bytes_per_step, one.place)))
