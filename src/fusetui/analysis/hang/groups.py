"""Who belongs to a group, and how far each member came."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fusetui.analysis.hang.model import GroupProgress, Issued, State
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.flight.columns import (
    UNKNOWN,
    EntryState,
    FlightDumps,
    Frame,
    GroupName,
)
from fusetui.trace.flight.entries import ALL_RANKS
from fusetui.trace.model.arrays import Flags, Int64s, begins_runs

OF_TORCH = lazy_pattern(r"(?:site-packages|dist-packages)/torch/|/torch/distributed/")
"""In the path of a file of torch itself."""
ALL_GATHERS = ("all_gather", "_allgather_base", "all_gather_into_tensor")
STATE_NAMES: dict[int, State] = {
    EntryState.OTHER: "other",
    EntryState.SCHEDULED: "scheduled",
    EntryState.STARTED: "started",
    EntryState.COMPLETED: "completed",
}


class _Gather(NamedTuple):
    """An all_gather: the numbers of its group and of its tensors."""

    group: int
    inputs: int
    outputs: int


class Recorded:
    """The dumps of a job with what every question asks of them."""

    def __init__(self, dumps: FlightDumps) -> None:
        """`dumps`: those of all ranks."""
        self.dumps = dumps
        self.entries = dumps.entries
        ranks = [dump.rank for dump in dumps.ranks]
        self.rank_of_dump: Int64s = np.array(ranks, np.int64)
        self.dump_of_rank = {rank: dump for dump, rank in enumerate(ranks)}

    @cached_property
    def is_over(self) -> Flags:
        """Of each entry, whether it is no longer waited for: NCCL says `completed`, gloo
        only takes it off its list."""
        is_completed = self.entries.state == EntryState.COMPLETED
        is_over: Flags = self.entries.is_retired | is_completed
        return is_over

    @cached_property
    def world(self) -> tuple[int, ...]:
        """All ranks of the job, as far as the dumps show: those that dumps list, else
        all up to the highest that a file, or the size of an all_gather, shows."""
        listed: set[int] = set()
        for dump in self.dumps.ranks:
            for group, ranks in dump.members.items():
                if group.description == ALL_RANKS.description:
                    listed.update(ranks)
        if listed:
            return tuple(sorted(listed.union(self.dump_of_rank)))
        named = [*self.dump_of_rank, *(file.rank for file in self.dumps.unread)]
        count = max(named, default=UNKNOWN) + 1
        for number, group in enumerate(self.dumps.groups):
            if group.description == ALL_RANKS.description:
                count = max(count, self._gathered_size(number))
        return tuple(range(count))

    @cached_property
    def groups(self) -> tuple[GroupProgress, ...]:
        """In the order in which the dumps name them."""
        return tuple(map(self._progress, range(len(self.dumps.groups))))

    @cached_property
    def newest(self) -> dict[tuple[int, int], int]:
        """The highest number of a collective by group and rank."""
        entries = self.entries
        rows = np.flatnonzero(~entries.is_p2p)
        if not len(rows):
            return {}
        ranks = self.rank_of_dump[entries.dump[rows]]
        groups = entries.group[rows].astype(np.int64)
        order = np.lexsort((ranks, groups))
        ranks = ranks[order]
        groups = groups[order]
        starts = np.flatnonzero(begins_runs(groups, ranks))
        highest = np.maximum.reduceat(entries.sequence[rows][order], starts)
        keys = zip(groups[starts].tolist(), ranks[starts].tolist(), strict=True)
        return dict(zip(keys, highest.tolist(), strict=True))

    def lost_beginning(self, *ranks: int) -> bool:
        """Whether the ring of one of these ranks has lost its first entries; that of a
        rank without a dump has not."""
        for rank in ranks:
            dump = self.dump_of_rank.get(rank)
            if dump is not None and self.dumps.ranks[dump].lost_beginning:
                return True
        return False

    def members_known(self, number: int) -> bool:
        """Whether no all_gather of a group shows more members than are known."""
        return self._gathered_size(number) <= len(self.groups[number].members)

    def issued(self, row: int) -> Issued:
        """What an entry says."""
        dumps = self.dumps
        entries = self.entries
        return Issued(
            rank=int(self.rank_of_dump[entries.dump[row]]),
            group=dumps.groups[entries.group[row]],
            sequence=int(entries.sequence[row]),
            operation=dumps.operations[entries.operation[row]],
            place=self._place_of(int(entries.stack[row])),
            inputs=dumps.tensors[entries.inputs[row]],
            outputs=dumps.tensors[entries.outputs[row]],
            state=STATE_NAMES[int(entries.state[row])],
            is_over=bool(self.is_over[row]),
            created_ns=int(entries.created_ns[row]),
        )

    def last_of(self, rank: int) -> Issued | None:
        """The newest of all that a rank issued."""
        dump = self.dump_of_rank.get(rank)
        if dump is None:
            return None
        after = int(np.searchsorted(self.entries.dump, dump, "right"))
        if not after or self.entries.dump[after - 1] != dump:
            return None
        return self.issued(after - 1)

    def place_now(self, rank: int) -> Frame | None:
        """Where the main thread of a rank was when its dump was taken; None where the
        dump has no stack of it."""
        dump = self.dump_of_rank.get(rank)
        return None if dump is None else _outside_torch(self.dumps.ranks[dump].now)

    def _place_of(self, stack: int) -> Frame | None:
        """Where an entry was issued; None where no stack was recorded."""
        frames = self.dumps.stacks[stack] if stack != UNKNOWN else ()
        return _outside_torch(frames)

    def _progress(self, number: int) -> GroupProgress:
        """How far the members of the group with this number came: those that a dump
        lists, or all ranks, or those whose entries name the group."""
        group = self.dumps.groups[number]
        listed = self._listed.get(group, ())
        if listed:
            members = listed
        elif group.description == ALL_RANKS.description:
            members = self.world
        else:
            members = self._named_by.get(number, ())
        newest = tuple(self._newest_of(number, rank) for rank in members)
        return GroupProgress(group, members, bool(listed), newest)

    @cached_property
    def _named_by(self) -> dict[int, tuple[int, ...]]:
        """The ranks whose entries name each group, in ascending order."""
        ranks: dict[int, list[int]] = defaultdict(list)
        for group, rank in self.newest:  # by group, then by rank
            ranks[group].append(rank)
        return {group: tuple(members) for group, members in ranks.items()}

    @cached_property
    def _listed(self) -> dict[GroupName, tuple[int, ...]]:
        """The members of each group that some dump lists, in ascending order."""
        ranks: dict[GroupName, set[int]] = defaultdict(set)
        for dump in self.dumps.ranks:
            for group, members in dump.members.items():
                ranks[group].update(members)
        return {group: tuple(sorted(members)) for group, members in ranks.items()}

    def _newest_of(self, number: int, rank: int) -> int:
        """The highest number of a collective that a rank issued in a group: 0 for none,
        UNKNOWN where the rank wrote no dump, or where its ring may have lost it and its
        status does not say it."""
        recorded = self.newest.get((number, rank))
        if recorded is not None:
            return recorded
        place = self.dump_of_rank.get(rank)
        if place is None:
            return UNKNOWN
        dump = self.dumps.ranks[place]
        status = dump.status.get(self.dumps.groups[number])
        if status is not None and status.last_enqueued != UNKNOWN:
            return status.last_enqueued
        return UNKNOWN if dump.lost_beginning else 0

    def _gathered_size(self, number: int) -> int:
        """How many members a group has by the sizes of its all_gathers: output by
        input; 0 without one."""
        return self._gathered_sizes.get(number, 0)

    @cached_property
    def _gathered_sizes(self) -> dict[int, int]:
        """How many members each group has by its all_gathers, the most of several; none
        for a group without any whose sizes are known."""
        sizes: dict[int, int] = {}
        for gather in self._gathers():
            taken = self.dumps.tensors[gather.inputs].element_count
            given = self.dumps.tensors[gather.outputs].element_count
            if taken and given % taken == 0:
                members = given // taken
                sizes[gather.group] = max(sizes.get(gather.group, 0), members)
        return sizes

    def _gathers(self) -> set[_Gather]:
        """The distinct all_gathers of all entries."""
        entries = self.entries
        if not len(entries):
            return set()
        is_gather = []
        for name in self.dumps.operations:
            is_gather.append(name.partition(":")[2] in ALL_GATHERS)
        rows = np.flatnonzero(np.array(is_gather, np.bool_)[entries.operation])
        gathers = set()
        for row in rows.tolist():
            gather = _Gather(
                group=int(entries.group[row]),
                inputs=int(entries.inputs[row]),
                outputs=int(entries.outputs[row]),
            )
            gathers.add(gather)
        return gathers


def _outside_torch(frames: Sequence[Frame]) -> Frame | None:
    """The innermost frame outside of torch; the innermost of all if there is none. The
    frames come innermost first."""
    for frame in frames:
        if not OF_TORCH.search(frame.file.replace("\\", "/")):
            return frame
    return frames[0] if frames else None
