"""The columns of a memory snapshot; snapshot/__init__.py explains how they relate."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.arrays import Flags, Int32s, Int64s


class MemoryAction(IntEnum):
    """What an event is; `size` is what was asked for, of SEGMENT_* what the device
    gave."""

    OTHER = 0  # of a later torch
    ALLOC = 1
    FREE_REQUESTED = 2
    FREE_COMPLETED = 3
    SEGMENT_ALLOC = 4
    SEGMENT_FREE = 5
    SEGMENT_MAP = 6
    SEGMENT_UNMAP = 7
    SNAPSHOT = 8
    OOM = 9


class BlockState(IntEnum):
    """What a block is used for."""

    INACTIVE = 0
    ACTIVE_ALLOCATED = 1
    ACTIVE_AWAITING_FREE = 2
    ACTIVE_PENDING_FREE = 3


class RecordTable(msgspec.Struct, frozen=True, eq=False):
    """Columns of equal length, the last of them for sure."""

    def __len__(self) -> int:
        return len(getattr(self, self.__struct_fields__[-1]))


class Segments(RecordTable, frozen=True, eq=False):
    """Arrays of shape [segments]."""

    device: Int32s
    address: Int64s
    total_size: Int64s
    allocated_size: Int64s
    active_size: Int64s
    requested_size: Int64s  # -1 in files before torch 2.1
    stream: Int64s
    is_large: Flags  # segment_type is `large`, not `small`
    pool: Int32s
    is_expandable: Flags
    stack: Int32s


class Blocks(RecordTable, frozen=True, eq=False):
    """Arrays of shape [blocks], in the order of the segments and in each of
    addresses."""

    segment: Int32s  # its row in Segments
    address: Int64s
    size: Int64s
    requested_size: Int64s  # that of an inactive block is of what it held last
    state: NDArray[np.uint8]  # a BlockState
    stack: Int32s


class MemoryEvents(RecordTable, frozen=True, eq=False):
    """Arrays of shape [events], in the order of the file."""

    device: int
    action: NDArray[np.uint8]  # an Action
    addr: Int64s  # -1 of OOM
    size: Int64s
    stream: Int64s
    time_us: Int64s
    stack: Int32s
    device_free: Int64s  # of OOM
    compile_context: Int32s
    user_metadata: Int32s
    pool: Int32s


class Annotations(RecordTable, frozen=True, eq=False):
    """Arrays of shape [annotations], in the order of the file."""

    name: Int32s
    is_start: Flags  # else its end
    device: Int32s
    time_us: Int64s


class Frame(NamedTuple):
    """A line of code that was running. `file` is `??`, empty or no .py where it is of
    C++; `line` is 0 where it is not known."""

    name: str
    file: str
    line: int


class Stacks(msgspec.Struct, frozen=True, eq=False):
    """Stack i is `frame[start[i] : start[i + 1]]`, innermost first."""

    frames: tuple[Frame, ...]  # distinct
    frame: Int32s  # indices of `frames`
    start: Int64s

    def __len__(self) -> int:
        return len(self.start) - 1

    def __getitem__(self, stack: int) -> tuple[Frame, ...]:
        """The frames of a stack, innermost first; none for -1."""
        if stack < 0:
            return ()
        rows = self.frame[self.start[stack] : self.start[stack + 1]]
        return tuple(self.frames[row] for row in rows.tolist())


class Snapshot(msgspec.Struct, frozen=True, eq=False):
    """A memory snapshot: what the allocator held at the end, and what happened
    before."""

    path: str
    bytes: int  # of the file as stored
    segments: Segments
    blocks: Blocks
    events: tuple[MemoryEvents, ...]  # by device; those without any event are left out
    annotations: Annotations
    stacks: Stacks
    strings: tuple[str, ...]
    pools: tuple[tuple[int, int], ...]
    settings: dict[str, Any]
