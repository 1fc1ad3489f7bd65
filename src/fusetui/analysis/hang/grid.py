"""Computes the progress of each rank in each collective of a group, by rank and
number."""

from __future__ import annotations

from functools import cached_property

import msgspec
import numpy as np

from fusetui.analysis.hang.answer import explain_hang
from fusetui.analysis.hang.groups import CollectiveKey, GroupMember, JobDumps
from fusetui.analysis.hang.model import (
    Call,
    CallState,
    GroupProgress,
    HangAnswer,
    Issued,
    Wait,
)
from fusetui.trace.flight.columns import (
    UNKNOWN,
    EntryState,
    FlightDumps,
    Frame,
    GroupName,
)
from fusetui.trace.model.arrays import Int64s, Integers, Rows, distinct
from fusetui.trace.model.sorted_arrays import slice_between


class NumberRange(msgspec.Struct, frozen=True):
    """The numbers of the collectives of a group that are shown; both ends included.

    They go from the lowest that a ring still has to the highest that was issued or is
    waited for.
    """

    first: int
    last: int

    def nearest(self, number: int) -> int:
        """Return the number itself, or the end of the range that is nearest to it."""
        return max(self.first, min(self.last, number))


class _EntriesOfRank(msgspec.Struct, frozen=True, eq=False):
    """The entries of one rank in one group, in order of their numbers."""

    rows: Rows  # of FlightEntries
    numbers: Int64s  # one per row

    def find_row(self, number: int) -> int | None:
        """Find the row of the first entry with a number; None if there is none.

        A coalesced operation has several entries.
        """
        index = int(np.searchsorted(self.numbers, number))
        if index < len(self.numbers) and self.numbers[index] == number:
            return int(self.rows[index])
        return None


class CollectiveGrid:
    """What the dumps say of every rank and every number of a group.

    A large job has millions of such pairs. They are looked up only when asked for.

    Args:
        job: The dumps of all ranks.
        answer: The answer why the job hangs.
    """

    def __init__(self, job: JobDumps, answer: HangAnswer) -> None:
        self.job = job
        self.answer = answer

    @property
    def groups(self) -> tuple[GroupProgress, ...]:
        """The groups of the job; all methods take an index into these."""
        return self.answer.groups

    def index_of(self, group: GroupName) -> int:
        """Return the index of a group in `groups`."""
        return self._index_of_group[group]

    def number_range(self, group: int) -> NumberRange:
        """Return the range of the numbers of collectives in a group, given by its
        index.

        The range is from 1 to 1 if the group has no collective.
        """
        return self._number_ranges.get(group, NumberRange(first=1, last=1))

    def list_calls(self, group: int, rank: int, numbers: range) -> list[Call]:
        """List how far the calls of one rank to collectives of a group came.

        Args:
            group: The index of the group.
            rank: The number of the rank.
            numbers: The numbers of the collectives in the group.

        Returns:
            One call per number, in their order: as its entry says, else MISSING if
            others wait for it, UNKNOWN if its entry may be lost, or NOT_ISSUED.
        """
        entries = self._find_entries(group, rank)
        newest = self._newest_numbers.get(GroupMember(group, rank), UNKNOWN)
        calls = []
        for number in numbers:
            row = entries.find_row(number)
            collective = CollectiveKey(group, number)
            awaited_ranks = self._awaited_ranks.get(collective, frozenset())
            may_be_lost = newest == UNKNOWN or number <= newest
            if row is not None:
                state = self._read_state(row)
            elif rank in awaited_ranks:
                state = CallState.MISSING
            elif may_be_lost:
                state = CallState.UNKNOWN
            else:
                state = CallState.NOT_ISSUED
            side = self._sides_of_ranks.get(collective, {}).get(rank, UNKNOWN)
            calls.append(Call(state=state, side=side))
        return calls

    def find_issued(self, group: int, rank: int, number: int) -> Issued | None:
        """Return the operation that a rank issued under a number of a group; None if no
        dump has an entry of it."""
        row = self._find_entries(group, rank).find_row(number)
        return None if row is None else self.job.describe_issued(row)

    def find_stack(self, group: int, rank: int, number: int) -> tuple[Frame, ...]:
        """Return the stack at which a rank issued a collective.

        The innermost frame comes first. Returns () if the stack was not recorded, or if
        no dump has an entry of the collective.
        """
        row = self._find_entries(group, rank).find_row(number)
        if row is None:
            return ()
        stack = int(self.job.entries.stack[row])
        if stack == UNKNOWN:
            return ()
        return self.job.dumps.stacks[stack]

    def is_known(self, group: int, rank: int, number: int) -> bool:
        """Decide whether the dumps tell if a rank issued this collective."""
        (call,) = self.list_calls(group, rank, range(number, number + 1))
        return call.state is not CallState.UNKNOWN

    def find_wait(self, group: int, number: int) -> Wait | None:
        """Find out which ranks wait for which in a collective; None if nobody waits in
        it.

        Args:
            group: The index of the process group.
            number: The number of the collective in the group.
        """
        return self._waits.get(CollectiveKey(group, number))

    def find_last_issued(self, rank: int) -> Issued | None:
        """Return the newest of all that a rank issued, in any group."""
        return self.job.find_last_issued(rank)

    @cached_property
    def _sorted_entries(self) -> _SortedEntries:
        """The entries of collectives, sorted by group, dump and number."""
        entries = self.job.entries
        rows = np.flatnonzero(~entries.is_p2p)

        # np.lexsort sorts by its last key first.
        keys = (entries.sequence[rows], entries.dump[rows], entries.group[rows])
        rows = rows[np.lexsort(keys)]
        return _SortedEntries(
            row=rows,
            group=entries.group[rows],
            dump=entries.dump[rows],
            number=entries.sequence[rows],
        )

    def _find_entries(self, group: int, rank: int) -> _EntriesOfRank:
        """Find the entries of collectives that a rank wrote for a group; none if the
        rank wrote no dump."""
        dump = self.job.dump_of_rank.get(rank)
        if dump is None:
            no_entries = np.zeros(0, np.int64)
            return _EntriesOfRank(rows=no_entries, numbers=no_entries)

        # Entries of a group are neighbors, and among these those of a dump.
        entries = self._sorted_entries
        of_group = slice_between(entries.group, group, group + 1)
        of_dump = slice_between(entries.dump[of_group], dump, dump + 1)
        return _EntriesOfRank(
            rows=entries.row[of_group][of_dump],
            numbers=entries.number[of_group][of_dump],
        )

    def _read_state(self, row: int) -> CallState:
        """Read from an entry how far the call of a collective came: scheduled, started
        or over."""
        if self.job.is_over[row]:
            return CallState.OVER
        state = int(self.job.entries.state[row])
        if state == EntryState.SCHEDULED:
            return CallState.SCHEDULED
        if state == EntryState.STARTED:
            return CallState.STARTED
        return CallState.OTHER

    @cached_property
    def _number_ranges(self) -> dict[int, NumberRange]:
        """The range of the numbers of collectives of each group, by the index of the
        group.

        Groups without a collective are left out.
        """
        lowest: dict[int, int] = {}
        highest: dict[int, int] = {}

        # Numbers that rings still have.
        entries = self._sorted_entries
        for group in distinct(entries.group).tolist():
            of_group = slice_between(entries.group, group, group + 1)
            lowest[group] = int(entries.number[of_group].min())
            highest[group] = int(entries.number[of_group].max())

        # Numbers that were issued, or are waited for, without an entry in a ring.
        for member, newest in self._newest_numbers.items():
            if newest != UNKNOWN:
                highest[member.group] = max(highest.get(member.group, 1), newest)
        for awaited in self._waits:
            highest[awaited.group] = max(
                highest.get(awaited.group, 1), awaited.sequence
            )

        ranges = {}
        for group, last in highest.items():
            if last > 0:  # 0: there is none
                first = lowest.get(group, last)
                ranges[group] = NumberRange(first=first, last=last)
        return ranges

    @cached_property
    def _index_of_group(self) -> dict[GroupName, int]:
        """The index of each group in `groups`, by its name."""
        return {progress.group: index for index, progress in enumerate(self.groups)}

    @cached_property
    def _newest_numbers(self) -> dict[GroupMember, int]:
        """The number of the newest collective that each member of a group issued.

        It is UNKNOWN where it is not known.
        """
        newest = {}
        for group, progress in enumerate(self.groups):
            for rank, number in zip(progress.members, progress.newest, strict=True):
                newest[GroupMember(group, rank)] = number
        return newest

    @cached_property
    def _waits(self) -> dict[CollectiveKey, Wait]:
        """The wait in each collective in which ranks wait."""
        waits = {}
        for wait in self.answer.waits:
            if not wait.is_p2p:
                group = self.index_of(wait.group)
                waits[CollectiveKey(group, wait.sequence)] = wait
        return waits

    @cached_property
    def _awaited_ranks(self) -> dict[CollectiveKey, frozenset[int]]:
        """The ranks that others wait for in each collective in which ranks wait."""
        awaited = {}
        for collective, wait in self._waits.items():
            awaited[collective] = frozenset((*wait.lacking, *wait.without_dump))
        return awaited

    @cached_property
    def _sides_of_ranks(self) -> dict[CollectiveKey, dict[int, int]]:
        """For each collective with a mismatch, on which side each rank is.

        A side is the ranks that issued the same under one number; sides are counted
        from 0.
        """
        sides_of_ranks: dict[CollectiveKey, dict[int, int]] = {}
        for mismatch in self.answer.mismatches:
            group = self.index_of(mismatch.group)
            side_of_rank: dict[int, int] = {}
            for side_index, side in enumerate(mismatch.sides):
                side_of_rank.update(dict.fromkeys(side.ranks, side_index))
            sides_of_ranks[CollectiveKey(group, mismatch.sequence)] = side_of_rank
        return sides_of_ranks


class _SortedEntries(msgspec.Struct, frozen=True, eq=False):
    """The entries of collectives, sorted by group, dump and number.

    All arrays have one element per entry.
    """

    row: Rows  # of FlightEntries
    group: Integers  # index into FlightDumps.groups
    dump: Integers  # index into FlightDumps.ranks
    number: Int64s


def make_collective_grid(dumps: FlightDumps) -> CollectiveGrid:
    """Answer why a job hangs, and return the answer with the grid of collectives."""
    job = JobDumps(dumps)
    return CollectiveGrid(job, explain_hang(job))
