"""Determines from dumps which ranks belong to a group, and the progress of each of
them."""

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
from fusetui.trace.model.arrays import (
    Flags,
    Int64s,
    distinct_rows,
    ends_runs,
)
from fusetui.trace.model.sorted_arrays import slice_between

OF_TORCH = lazy_pattern(r"(?:site-packages|dist-packages)/torch/|/torch/distributed/")
"""Matches the path of a file of torch itself."""
ALL_GATHERS = ("all_gather", "_allgather_base", "all_gather_into_tensor")
STATE_NAMES: dict[int, State] = {
    EntryState.OTHER: "other",
    EntryState.SCHEDULED: "scheduled",
    EntryState.STARTED: "started",
    EntryState.COMPLETED: "completed",
}


class CollectiveKey(NamedTuple):
    """A collective of a group, on all ranks."""

    group: int  # index into FlightDumps.groups
    sequence: int  # its number in the group


class GroupMember(NamedTuple):
    """A rank in a group."""

    group: int  # index into FlightDumps.groups
    rank: int


class _Gather(NamedTuple):
    """What an all_gather tells about the size of its group."""

    group: int  # index into FlightDumps.groups
    inputs: int  # indices into FlightDumps.tensors
    outputs: int


class JobDumps:
    """The dumps of all ranks of a job, with what every question needs of them.

    Groups are given by their indices into `dumps.groups`, entries by their rows.

    Args:
        dumps: The dumps.
    """

    def __init__(self, dumps: FlightDumps) -> None:
        self.dumps = dumps
        self.entries = dumps.entries
        ranks = [dump.rank for dump in dumps.ranks]
        self.rank_of_dump: Int64s = np.array(ranks, np.int64)
        self.dump_of_rank = {rank: dump for dump, rank in enumerate(ranks)}

    @cached_property
    def is_over(self) -> Flags:
        """One flag per entry: whether nobody waits for it any longer.

        NCCL marks such an entry as completed. Gloo only takes it off its list.
        """
        is_completed = self.entries.state == EntryState.COMPLETED
        is_over: Flags = self.entries.is_retired | is_completed
        return is_over

    @cached_property
    def ranks_of_job(self) -> tuple[int, ...]:
        """All ranks of the job, as far as the dumps show.

        They are those that dumps list. If none does, they are all ranks up to the
        highest one that the name of a file, or the size of an all_gather, shows.
        """
        listed_ranks: set[int] = set()
        for dump in self.dumps.ranks:
            for group, ranks in dump.members.items():
                if group.description == ALL_RANKS.description:
                    listed_ranks.update(ranks)
        if listed_ranks:
            return tuple(sorted(listed_ranks.union(self.dump_of_rank)))

        ranks_of_unread = [file.rank for file in self.dumps.unread]
        highest_rank = max([*self.dump_of_rank, *ranks_of_unread], default=-1)
        count = highest_rank + 1
        for group_index, group in enumerate(self.dumps.groups):
            if group.description == ALL_RANKS.description:
                count = max(count, self._count_members_by_gathers(group_index))
        return tuple(range(count))

    @cached_property
    def groups(self) -> tuple[GroupProgress, ...]:
        """How far the members of each group came, in the order of `dumps.groups`."""
        group_indices = range(len(self.dumps.groups))
        return tuple(
            self._describe_progress(group_index) for group_index in group_indices
        )

    @cached_property
    def newest_numbers(self) -> dict[GroupMember, int]:
        """The highest number of a collective in the entries of each member of a group.

        E.g. {(0, 3): 17}: the newest collective of rank 3 in group 0 is number 17.
        Groups and ranks without an entry are not in it. It is sorted by its keys.
        """
        entries = self.entries
        rows = np.flatnonzero(~entries.is_p2p)
        rank = self.rank_of_dump[entries.dump[rows]]
        group = entries.group[rows].astype(np.int64)
        sequence = entries.sequence[rows]

        # Sorted by group, rank and number, the last entry of each pair is the newest.
        order = np.lexsort((sequence, rank, group))
        is_newest = ends_runs(group[order], rank[order])
        newest_entries = order[is_newest]

        newest_numbers: dict[GroupMember, int] = {}
        for group_index, member_rank, number in zip(
            group[newest_entries].tolist(),
            rank[newest_entries].tolist(),
            sequence[newest_entries].tolist(),
            strict=True,
        ):
            newest_numbers[GroupMember(group_index, member_rank)] = number
        return newest_numbers

    def lost_beginning(self, *ranks: int) -> bool:
        """Decide whether the dump of one of these ranks lacks its first entries.

        torch keeps the entries in a ring buffer, whose oldest entries are overwritten.
        A rank without a dump lost nothing.

        Args:
            ranks: The numbers of the ranks.
        """
        for rank in ranks:
            dump = self.dump_of_rank.get(rank)
            if dump is not None and self.dumps.ranks[dump].lost_beginning:
                return True
        return False

    def are_members_known(self, group_index: int) -> bool:
        """Decide whether all members of a group are known.

        They are not if an all_gather of the group, whose output is as many times larger
        than its input as the group has members, shows that it has more.
        """
        known_members = len(self.groups[group_index].members)
        return self._count_members_by_gathers(group_index) <= known_members

    def describe_issued(self, row: int) -> Issued:
        """Return what an entry of a dump says about the operation that a rank issued.

        Args:
            row: The row of the entry in the table of all entries.
        """
        dumps = self.dumps
        entries = self.entries
        return Issued(
            rank=int(self.rank_of_dump[entries.dump[row]]),
            group=dumps.groups[entries.group[row]],
            sequence=int(entries.sequence[row]),
            operation=dumps.operations[entries.operation[row]],
            place=self._find_user_frame(int(entries.stack[row])),
            inputs=dumps.tensors[entries.inputs[row]],
            outputs=dumps.tensors[entries.outputs[row]],
            state=STATE_NAMES[int(entries.state[row])],
            is_over=bool(self.is_over[row]),
            created_ns=int(entries.created_ns[row]),
        )

    def find_last_issued(self, rank: int) -> Issued | None:
        """Return the newest of all that a rank issued, in any group.

        Returns None if the rank wrote no dump or issued nothing.
        """
        dump = self.dump_of_rank.get(rank)
        if dump is None:
            return None

        # Entries are sorted by dump: the last one of a dump is its newest.
        rows_of_dump = slice_between(self.entries.dump, dump, dump + 1)
        if rows_of_dump.start == rows_of_dump.stop:
            return None
        return self.describe_issued(rows_of_dump.stop - 1)

    def find_frame_at_dump(self, rank: int) -> Frame | None:
        """Return where the main thread of a rank was when its dump was taken.

        It is the innermost frame that is not of torch. Returns None if the rank wrote
        no dump, or if its dump has no stack of that thread.
        """
        dump = self.dump_of_rank.get(rank)
        if dump is None:
            return None
        return _find_innermost_user_frame(self.dumps.ranks[dump].now)

    def _find_user_frame(self, stack: int) -> Frame | None:
        """Return the innermost frame of a stack outside of torch.

        Returns None if no stack was recorded: its number is then UNKNOWN.
        """
        if stack == UNKNOWN:
            return None
        return _find_innermost_user_frame(self.dumps.stacks[stack])

    def _describe_progress(self, group_index: int) -> GroupProgress:
        """Describe how far the members of a process group came: the newest collective
        of each.

        The members are those that a dump lists. If none does, they are all ranks for
        the group of all ranks, and else the ranks whose entries name the group.
        """
        group = self.dumps.groups[group_index]
        listed_members = self._listed_members.get(group, ())
        if listed_members:
            members = listed_members
        elif group.description == ALL_RANKS.description:
            members = self.ranks_of_job
        else:
            members = self._ranks_with_entries.get(group_index, ())

        newest = tuple(self._find_newest_number(group_index, rank) for rank in members)
        return GroupProgress(
            group=group,
            members=members,
            members_are_listed=bool(listed_members),
            newest=newest,
        )

    @cached_property
    def _ranks_with_entries(self) -> dict[int, tuple[int, ...]]:
        """The ranks whose entries name each group, ascending, by group index."""
        ranks: dict[int, list[int]] = defaultdict(list)
        for member in self.newest_numbers:  # sorted by group, then by rank
            ranks[member.group].append(member.rank)
        return {group_index: tuple(members) for group_index, members in ranks.items()}

    @cached_property
    def _listed_members(self) -> dict[GroupName, tuple[int, ...]]:
        """The members of each group that some dump lists, in ascending order."""
        ranks: dict[GroupName, set[int]] = defaultdict(set)
        for dump in self.dumps.ranks:
            for group, members in dump.members.items():
                ranks[group].update(members)
        return {group: tuple(sorted(members)) for group, members in ranks.items()}

    def _find_newest_number(self, group_index: int, rank: int) -> int:
        """Find the highest number of a collective that a rank issued in a group.

        A rank writes its last operations into a ring, a buffer that forgets the oldest
        ones.

        Returns:
            0 if it issued none. UNKNOWN if the rank wrote no dump, or if its ring may
            have lost the number and its status does not tell it.
        """
        recorded = self.newest_numbers.get(GroupMember(group_index, rank))
        if recorded is not None:
            return recorded

        dump_index = self.dump_of_rank.get(rank)
        if dump_index is None:
            return UNKNOWN

        # The rank may have told the group's status besides the entries of its ring.
        dump = self.dumps.ranks[dump_index]
        status = dump.status.get(self.dumps.groups[group_index])
        if status is not None and status.last_enqueued != UNKNOWN:
            return status.last_enqueued
        return UNKNOWN if dump.lost_beginning else 0

    def _count_members_by_gathers(self, group_index: int) -> int:
        """Return how many members a group has by its all_gathers; 0 if it has none."""
        return self._member_count_by_gathers.get(group_index, 0)

    @cached_property
    def _member_count_by_gathers(self) -> dict[int, int]:
        """How many members each group has by the sizes of its all_gathers.

        The output of an all_gather is as many times larger than its input as the group
        has members. If several differ, the most counts. Groups without an all_gather of
        known size are not in it.
        """
        member_counts: dict[int, int] = {}
        for gather in self._find_gathers():
            input_elements = self.dumps.tensors[gather.inputs].element_count
            output_elements = self.dumps.tensors[gather.outputs].element_count
            if input_elements and output_elements % input_elements == 0:
                member_count = output_elements // input_elements
                most_so_far = member_counts.get(gather.group, 0)
                member_counts[gather.group] = max(most_so_far, member_count)
        return member_counts

    def _find_gathers(self) -> list[_Gather]:
        """Find the distinct all_gathers among all entries.

        Their inputs and outputs tell how many members a group has.
        """
        entries = self.entries
        if not len(entries):
            return []

        # A full name is such as nccl:all_gather.
        is_gather_name = []
        for full_name in self.dumps.operations:
            _, _, operation = full_name.partition(":")
            is_gather_name.append(operation in ALL_GATHERS)
        is_gather = np.array(is_gather_name, np.bool_)[entries.operation]

        rows = np.flatnonzero(is_gather)
        columns = (entries.group[rows], entries.inputs[rows], entries.outputs[rows])
        first_of_each, _ = distinct_rows(columns)
        return [
            _Gather(
                group=int(entries.group[row]),
                inputs=int(entries.inputs[row]),
                outputs=int(entries.outputs[row]),
            )
            for row in rows[first_of_each].tolist()
        ]


def _find_innermost_user_frame(frames: Sequence[Frame]) -> Frame | None:
    """Return the innermost frame outside of torch, which is a line that the user knows.

    If all frames are in torch, the innermost of all is returned; None if there are no
    frames.

    Args:
        frames: A stack, the innermost frame first.
    """
    for frame in frames:
        if not OF_TORCH.search(frame.file.replace("\\", "/")):
            return frame
    return frames[0] if frames else None
