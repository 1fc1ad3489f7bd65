"""The collectives of a group by rank and number: how far each call of each rank came."""

from __future__ import annotations

from functools import cached_property

import msgspec
import numpy as np

from fusetui.analysis.hang.answer import answer_of
from fusetui.analysis.hang.groups import Recorded
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
from fusetui.trace.model.arrays import Int64s, Rows

NO_ENTRY = -1


class NumberRange(msgspec.Struct, frozen=True):
    """The numbers of the collectives of a group: from the lowest that a ring still has
    to the highest that was issued or is waited for; both included."""

    first: int
    last: int

    def nearest(self, number: int) -> int:
        """The number itself, or the end of the range that is nearest to it."""
        return max(self.first, min(self.last, number))


class _Window(msgspec.Struct, frozen=True, eq=False):
    """The entries of one rank in one group, in order of their numbers."""

    rows: Rows  # of FlightEntries
    numbers: Int64s


class CollectiveGrid:
    """What the dumps say of every rank and number, looked up where it is asked for: a
    large job has millions of them."""

    def __init__(self, recorded: Recorded, answer: HangAnswer) -> None:
        self.recorded = recorded
        self.answer = answer

    @property
    def groups(self) -> tuple[GroupProgress, ...]:
        return self.answer.groups

    def index_of(self, group: GroupName) -> int:
        """Its index in `groups`."""
        return self._index_of[group]

    def numbers(self, group: int) -> NumberRange:
        """Of a group, by its index in `groups`; 1 to 1 where it has no collective."""
        return self._numbers.get(group, NumberRange(first=1, last=1))

    def calls(self, group: int, rank: int, numbers: range) -> list[Call]:
        """The calls of one rank, in the order of these numbers."""
        entries = self._entries_of(group, rank)
        newest = self._newest.get((group, rank), UNKNOWN)
        calls = []
        for number in numbers:
            row = self._row_among(entries, number)
            if row != NO_ENTRY:
                state = self._state_of_entry(row)
            elif rank in self._awaited.get((group, number), frozenset()):
                state = CallState.MISSING
            elif newest == UNKNOWN or number <= newest:
                state = CallState.UNKNOWN
            else:
                state = CallState.NOT_ISSUED
            calls.append(Call(state, self._side_of(group, number, rank)))
        return calls

    def issued(self, group: int, rank: int, number: int) -> Issued | None:
        """What a rank issued under this number; None where no entry says it."""
        row = self._row_among(self._entries_of(group, rank), number)
        return None if row == NO_ENTRY else self.recorded.issued(row)

    def stack(self, group: int, rank: int, number: int) -> tuple[Frame, ...]:
        """Where it did, the innermost frame first; () where that was not recorded."""
        row = self._row_among(self._entries_of(group, rank), number)
        if row == NO_ENTRY:
            return ()
        stack = int(self.recorded.entries.stack[row])
        return self.recorded.dumps.stacks[stack] if stack != UNKNOWN else ()

    def is_known(self, group: int, rank: int, number: int) -> bool:
        """Whether the dumps say if a rank issued this collective."""
        (call,) = self.calls(group, rank, range(number, number + 1))
        return call.state is not CallState.UNKNOWN

    def wait(self, group: int, number: int) -> Wait | None:
        """The wait in this collective, if ranks wait in it for others."""
        return self._waits.get((group, number))

    def last_of(self, rank: int) -> Issued | None:
        """The newest of all that a rank issued, in any group."""
        return self.recorded.last_of(rank)

    @cached_property
    def _sorted(self) -> _SortedEntries:
        """The entries of collectives by group, dump and number."""
        entries = self.recorded.entries
        rows = np.flatnonzero(~entries.is_p2p)
        group = entries.group[rows].astype(np.int64)
        dump = entries.dump[rows].astype(np.int64)
        number = entries.sequence[rows]
        order = np.lexsort((number, dump, group))
        return _SortedEntries(
            row=rows[order],
            group=group[order],
            number=number[order],
            group_and_dump=(group * self._dump_count + dump)[order],
        )

    @property
    def _dump_count(self) -> int:
        """How many dumps there are, at least 1."""
        return max(1, len(self.recorded.dumps.ranks))

    def _entries_of(self, group: int, rank: int) -> _Window:
        """The entries of a rank in a group; none if it wrote no dump."""
        dump = self.recorded.dump_of_rank.get(rank)
        if dump is None:
            no_entries = np.zeros(0, np.int64)
            return _Window(rows=no_entries, numbers=no_entries)
        group_and_dump = group * self._dump_count + dump
        begin = int(np.searchsorted(self._sorted.group_and_dump, group_and_dump))
        end = int(np.searchsorted(self._sorted.group_and_dump, group_and_dump, "right"))
        return _Window(
            rows=self._sorted.row[begin:end], numbers=self._sorted.number[begin:end]
        )

    def _row_among(self, entries: _Window, number: int) -> int:
        """The row of the first of these entries with this number, NO_ENTRY for none: a
        coalesced operation has several."""
        place = int(np.searchsorted(entries.numbers, number))
        if place < len(entries.numbers) and entries.numbers[place] == number:
            return int(entries.rows[place])
        return NO_ENTRY

    def _state_of_entry(self, row: int) -> CallState:
        """The state of an entry."""
        if self.recorded.is_over[row]:
            return CallState.OVER
        state = int(self.recorded.entries.state[row])
        if state == EntryState.SCHEDULED:
            return CallState.SCHEDULED
        if state == EntryState.STARTED:
            return CallState.STARTED
        return CallState.OTHER

    @cached_property
    def _numbers(self) -> dict[int, NumberRange]:
        """The range of each group that has a collective."""
        lowest: dict[int, int] = {}
        highest: dict[int, int] = {}
        by_group = self._sorted.group
        for group in np.unique(by_group).tolist():
            begin, end = np.searchsorted(by_group, [group, group + 1]).tolist()
            numbers = self._sorted.number[begin:end]
            lowest[group] = int(numbers.min())
            highest[group] = int(numbers.max())
        for (group, _), newest in self._newest.items():
            if newest != UNKNOWN:
                highest[group] = max(highest.get(group, 1), newest)
        for group, number in self._waits:
            highest[group] = max(highest.get(group, 1), number)
        ranges = {}
        for group, last in highest.items():
            if last:
                first = lowest.get(group, last)
                ranges[group] = NumberRange(first=first, last=last)
        return ranges

    @cached_property
    def _index_of(self) -> dict[GroupName, int]:
        """The index of each group by its name."""
        return {progress.group: index for index, progress in enumerate(self.groups)}

    @cached_property
    def _newest(self) -> dict[tuple[int, int], int]:
        """The newest number of each group and rank, UNKNOWN where it is not known."""
        newest = {}
        for group, progress in enumerate(self.groups):
            for rank, number in zip(progress.members, progress.newest, strict=True):
                newest[group, rank] = number
        return newest

    @cached_property
    def _waits(self) -> dict[tuple[int, int], Wait]:
        """The waits in collectives, by the index of the group and the number."""
        waits = {}
        for wait in self.answer.waits:
            if not wait.is_p2p:
                waits[self.index_of(wait.group), wait.sequence] = wait
        return waits

    @cached_property
    def _awaited(self) -> dict[tuple[int, int], frozenset[int]]:
        """The ranks that others wait for, by group and number."""
        awaited = {}
        for place, wait in self._waits.items():
            awaited[place] = frozenset((*wait.lacking, *wait.without_dump))
        return awaited

    @cached_property
    def _sides(self) -> dict[tuple[int, int, int], int]:
        """On which side of a mismatch a rank is, by group, number and rank."""
        sides = {}
        for mismatch in self.answer.mismatches:
            group = self.index_of(mismatch.group)
            for number_of_side, side in enumerate(mismatch.sides):
                for rank in side.ranks:
                    sides[group, mismatch.sequence, rank] = number_of_side
        return sides

    def _side_of(self, group: int, number: int, rank: int) -> int:
        """On which side of a mismatch a rank is, UNKNOWN for none."""
        return self._sides.get((group, number, rank), UNKNOWN)


class _SortedEntries(msgspec.Struct, frozen=True, eq=False):
    """Arrays of shape [entries of collectives]."""

    row: Rows  # of FlightEntries
    group: Int64s  # index into FlightDumps.groups
    number: Int64s
    group_and_dump: Int64s  # one number for both, in ascending order


def grid_of(dumps: FlightDumps) -> CollectiveGrid:
    """The grid of a job, with the answer why it hangs."""
    recorded = Recorded(dumps)
    return CollectiveGrid(recorded, answer_of(recorded))
