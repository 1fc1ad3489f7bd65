"""The dumps of a job as columns and tables."""

from __future__ import annotations

from enum import IntEnum

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.arrays import Flags, Int32s, Int64s

UNKNOWN = -1
"""In a column of numbers: the dump does not say it."""


class EntryState(IntEnum):
    """How far an entry had come when the rank was dumped; gloo says no more than
    `scheduled`."""

    OTHER = 0  # of a later torch
    SCHEDULED = 1
    STARTED = 2
    COMPLETED = 3


class GroupName(msgspec.Struct, frozen=True, order=True):
    """A process group by the name that all ranks share; `pg_id` differs between
    ranks."""

    name: str
    description: str

    def __hash__(self) -> int:
        return hash((self.name, self.description))


class Frame(msgspec.Struct, frozen=True):
    """A line of Python that was on the stack."""

    function: str
    file: str
    line: int

    def __hash__(self) -> int:
        return hash((self.function, self.file, self.line))


class Tensors(msgspec.Struct, frozen=True):
    """The inputs or outputs of a collective."""

    sizes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]

    def __hash__(self) -> int:
        return hash((self.sizes, self.dtypes))

    @property
    def element_count(self) -> int:
        """The number of elements of all tensors together."""
        total = 0
        for dimensions in self.sizes:
            elements = 1
            for dimension in dimensions:
                elements *= dimension
            total += elements
        return total


class GroupStatus(msgspec.Struct, frozen=True):
    """What a rank says of its own place in a group; UNKNOWN where it does not."""

    last_enqueued: int
    last_started: int
    last_completed: int


class RankDump(msgspec.Struct, frozen=True):
    """One rank that wrote a dump.

    `first_record` is the number of its oldest entry: above 0, the ring lost the entries
    before. `members` are the ranks of each group whose ranks it lists (NCCL does, gloo
    does not). `status` is by group, of groups that the entries name. `now` is the stack
    of its main thread when the dump was taken, innermost frame first; torch's own dumps
    do not have it, those that fusetui takes from a debug server do.
    """

    rank: int
    path: str
    version: str
    first_record: int
    members: dict[GroupName, tuple[int, ...]]
    status: dict[GroupName, GroupStatus]
    now: tuple[Frame, ...] = ()

    @property
    def lost_beginning(self) -> bool:
        """Whether the recorder has lost the oldest entries of this rank."""
        return self.first_record > 0


class Unread(msgspec.Struct, frozen=True):
    """A file that is no readable dump; `rank` is that of its name, UNKNOWN without
    one."""

    path: str
    rank: int
    reason: str  # a sentence


class FlightEntries(msgspec.Struct, frozen=True, eq=False):
    """The entries of all ranks: arrays of shape [entries], ordered by rank, then by
    `record`.

    Times are ns of the clock of the rank's own machine: compare them within a rank
    only.
    """

    dump: Int32s  # index into FlightDumps.ranks
    record: Int64s
    group: Int32s  # index into FlightDumps.groups
    # of the group: among its collectives, or among its sends and receives
    sequence: Int64s
    op: Int64s  # entries of one coalesced operation have the same number
    operation: Int32s  # index into FlightDumps.operations
    inputs: Int32s  # index into FlightDumps.tensors
    outputs: Int32s  # index into FlightDumps.tensors
    stack: Int32s  # index into FlightDumps.stacks, UNKNOWN: none was recorded
    state: NDArray[np.uint8]  # of EntryState
    is_p2p: Flags
    is_retired: Flags  # the recorder has taken it off its list of work
    created_ns: Int64s
    started_ns: Int64s  # when this was noticed, UNKNOWN with gloo
    completed_ns: Int64s  # when this was noticed, UNKNOWN with gloo
    timeout_ms: Int64s

    def __len__(self) -> int:
        return len(self.dump)


class FlightDumps(msgspec.Struct, frozen=True, eq=False):
    """All dumps of a job, by rank.

    `ranks_from_order`: no file names its rank, so that these are the places in the order
    of the paths.
    """

    ranks: tuple[RankDump, ...]
    ranks_from_order: bool
    unread: tuple[Unread, ...]
    entries: FlightEntries
    groups: tuple[GroupName, ...]
    operations: tuple[str, ...]  # nccl:all_reduce, gloo:barrier, nccl:recv 0<-1
    tensors: tuple[Tensors, ...]
    stacks: tuple[tuple[Frame, ...], ...]  # innermost frame first
