"""Who holds what lives at a moment: every byte in one row."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from fusetui.analysis.memory.evidence import NODE, Evidence, Mark
from fusetui.analysis.memory.history import BEFORE, History
from fusetui.trace.model.arrays import distinct, summed
from fusetui.trace.snapshot.columns import Frame, Snapshot

BEFORE_RECORDING, NO_STACK = "before_recording", "no stack"
NO_PYTHON = "no Python frame"


class Holder(msgspec.Struct, frozen=True):
    """What was allocated at one place, and lives."""

    place: str
    bytes: int
    blocks: int


def code_of(snapshot: Snapshot, found: Evidence, stack: int) -> str:
    """The innermost line of the person's own code, else the part of the backward pass, else what
    library."""
    if found.own[stack] >= 0:
        return _line(snapshot.stacks.frames[found.own[stack]])
    return _backward(snapshot, found, stack) or _library(snapshot, found, stack)


def module_of(snapshot: Snapshot, found: Evidence, stack: int) -> str:
    """The innermost line of a module's own forward, outside modules of torch.nn; what no module was
    called for is where the code is."""
    if found.called[stack] >= 0:
        return _line(snapshot.stacks.frames[found.called[stack]])
    return code_of(snapshot, found, stack)


def held_at(history: History, event: int, place_of: Callable[[int], str]) -> tuple[Holder, ...]:
    """By what a stack means, the largest first."""
    lives = history.lives
    rows = np.flatnonzero(lives.at(event))
    keys = np.where((lives.stack[rows] < 0) & (lives.born[rows] == BEFORE), -2, lives.stack[rows])
    stacks = distinct(keys)
    number = np.searchsorted(stacks, keys)
    sizes, blocks = summed(number, lives.size[rows], len(stacks)), np.bincount(number)
    found: dict[str, Holder] = {}
    for stack, size, count in zip(stacks.tolist(), sizes.tolist(), blocks.tolist(), strict=True):
        place = {-2: BEFORE_RECORDING, -1: NO_STACK}.get(stack) or place_of(stack)
        old = found.get(place, Holder(place, 0, 0))
        found[place] = Holder(place, old.bytes + size, old.blocks + count)
    return tuple(sorted(found.values(), key=lambda one: (-one.bytes, one.place)))


def _line(frame: Frame) -> str:
    return f"{frame.file}:{frame.line} {frame.name}"


def _backward(snapshot: Snapshot, found: Evidence, stack: int) -> str | None:
    """`backward of BmmBackward0`."""
    if not found.marks[stack] & Mark.BACKWARD:
        return None
    nodes = (NODE.search(frame.name) for frame in snapshot.stacks[stack])
    node = next((one[1] for one in nodes if one and one[1] != "Node"), None)
    return f"backward of {node}" if node else "backward"


def _library(snapshot: Snapshot, found: Evidence, stack: int) -> str:
    frame = int(found.python[stack])
    return _line(snapshot.stacks.frames[frame]) if frame >= 0 else NO_PYTHON
