"""Follows who waits for whom to its origin."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property

import msgspec
import numpy as np

from fusetui.analysis.hang.groups import Recorded
from fusetui.analysis.hang.messages import Message, Messages, unmatched_messages
from fusetui.analysis.hang.mismatches import mismatches
from fusetui.analysis.hang.model import (
    Culprit,
    Doubt,
    HangAnswer,
    Mismatch,
    UnmatchedMessage,
    UnreadDump,
    Verdict,
    Wait,
)
from fusetui.trace.flight.columns import UNKNOWN, FlightDumps, GroupName


def why_it_hangs(dumps: FlightDumps) -> HangAnswer:
    """Which rank is missing where, and who waits for it."""
    return answer_of(Recorded(dumps))


def answer_of(recorded: Recorded) -> HangAnswer:
    """The same, of dumps about which other questions are asked too."""
    search = _Search(recorded)
    dumps = recorded.dumps
    return HangAnswer(
        verdict=search.verdict,
        ranks=tuple(dump.rank for dump in dumps.ranks),
        ranks_from_order=dumps.ranks_from_order,
        versions=tuple(sorted({dump.version for dump in dumps.ranks})),
        culprits=search.culprits,
        cycle=search.cycle,
        waits=search.waits,
        mismatches=search.mismatches,
        unmatched=search.unmatched,
        groups=recorded.groups,
        doubts=search.doubts,
        unread=tuple(
            UnreadDump(file.path, file.rank, file.reason) for file in dumps.unread
        ),
    )


class Blocked(msgspec.Struct, frozen=True):
    """Ranks that cannot go on before others come: `ranks` wait for each of `others`."""

    ranks: tuple[int, ...]
    others: tuple[int, ...]


class _Search:
    """The parts of the answer, each worked out once."""

    def __init__(self, recorded: Recorded) -> None:
        """`recorded`: the dumps of a job."""
        self.recorded = recorded

    @cached_property
    def mismatches(self) -> tuple[Mismatch, ...]:
        return mismatches(self.recorded)

    @cached_property
    def open_collectives(self) -> dict[tuple[int, int], list[int]]:
        """The rows of entries that are not over, by group and number: one for each
        rank."""
        entries = self.recorded.entries
        rows = np.flatnonzero(~self.recorded.is_over & ~entries.is_p2p)
        row_of_dump: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        for row in rows.tolist():
            group = int(entries.group[row])
            sequence = int(entries.sequence[row])
            dump = int(entries.dump[row])
            row_of_dump[group, sequence].setdefault(dump, row)
        by_number = {}
        for group_and_sequence in sorted(row_of_dump):
            by_number[group_and_sequence] = [*row_of_dump[group_and_sequence].values()]
        return by_number

    @cached_property
    def waits(self) -> tuple[Wait, ...]:
        """Open collectives that some member did not issue, or may not have; then
        messages without a counterpart, then those of which that is not known."""
        waits = []
        for (group, sequence), rows in self.open_collectives.items():
            wait = self._wait(group, sequence, rows)
            if wait.lacking or wait.without_dump or wait.unknown:
                waits.append(wait)
        waits += map(self._message_wait, self._messages.unmatched)
        waits += map(self._undecided_wait, self._messages.undecided)
        return tuple(waits)

    @cached_property
    def unmatched(self) -> tuple[UnmatchedMessage, ...]:
        """The sends and receives whose counterpart was not issued."""
        messages = []
        for message in self._messages.unmatched:
            unmatched = UnmatchedMessage(
                issued=self.recorded.issued(message.row),
                peer=message.peer,
                peer_last=self.recorded.last_of(message.peer),
            )
            messages.append(unmatched)
        return tuple(messages)

    @cached_property
    def verdict(self) -> Verdict:
        """What the whole answer comes to, in one word: of what was found the first in
        the order in which one can be the cause of another."""
        if any(not mismatch.is_over for mismatch in self.mismatches):
            return "mismatch"
        if any(culprit.has_dump for culprit in self.culprits):
            return "unmatched" if self._only_messages_wait else "missing"
        if self.cycle:
            return "deadlock"
        if self.unmatched:
            return "unmatched"
        if self.waits or any(doubt.kind == "stuck" for doubt in self.doubts):
            return "undecided"
        return "mismatch" if self.mismatches else "none"

    @cached_property
    def culprits(self) -> tuple[Culprit, ...]:
        """Ranks that are waited for, and wait for nobody."""
        first_wait: dict[int, Wait] = {}
        for wait in self.waits:
            for rank in (*wait.without_dump, *wait.lacking):
                if rank not in self._held_up:
                    first_wait.setdefault(rank, wait)
        culprits = []
        for rank, wait in first_wait.items():
            culprit = Culprit(
                rank=rank,
                has_dump=rank in self.recorded.dump_of_rank,
                last=self.recorded.last_of(rank),
                group=wait.group,
                sequence=self._first_lacking(rank, wait),
                waiting=len(self._behind({rank})) - 1,
                now=self.recorded.place_now(rank),
            )
            culprits.append(culprit)
        culprits.sort(key=_by_importance)
        return tuple(culprits)

    @cached_property
    def cycle(self) -> tuple[int, ...]:
        """Ranks that wait for each other, if a rank waits for no culprit; () for
        none."""
        origins = {culprit.rank for culprit in self.culprits} | self._stuck_ranks
        explained = self._behind(origins)
        successor: dict[int, int] = {}  # for whom each rank waits
        for blocked in self._blocked:
            others = [rank for rank in blocked.others if rank not in explained]
            for rank in blocked.ranks:
                if rank not in explained and others:
                    successor.setdefault(rank, others[0])
        path: list[int] = []
        rank = min(successor, default=UNKNOWN)
        while rank in successor and rank not in path:
            path.append(rank)
            rank = successor[rank]
        return tuple(path[path.index(rank) :]) if rank in path else ()

    @cached_property
    def doubts(self) -> tuple[Doubt, ...]:
        """What the dumps leave open, the ranks without a dump first."""
        recorded = self.recorded
        doubts = []
        absent = self._everybody.difference(recorded.dump_of_rank)
        if absent:
            doubts.append(Doubt("no_dump", tuple(sorted(absent))))
        doubts += self._stuck
        for wait in self.waits:
            if wait.unknown:
                lost = Doubt("lost", wait.unknown, wait.group, wait.sequence)
                doubts.append(lost)
        for number, progress in enumerate(recorded.groups):
            if not recorded.members_known(number):
                unknown = Doubt("members_unknown", progress.members, progress.group)
                doubts.append(unknown)
        versions = {dump.version for dump in recorded.dumps.ranks}
        if len(versions) > 1:
            ranks = tuple(dump.rank for dump in recorded.dumps.ranks)
            doubts.append(Doubt("versions", ranks))
        if self._has_gloo:
            doubts.append(Doubt("sends_not_recorded", ()))
        return tuple(doubts)

    @cached_property
    def _messages(self) -> Messages:
        return unmatched_messages(self.recorded)

    @cached_property
    def _everybody(self) -> set[int]:
        """All ranks that the dumps name in any way."""
        everybody = set(self.recorded.world)
        for group in self.recorded.groups:
            everybody.update(group.members)
        return everybody

    @cached_property
    def _has_gloo(self) -> bool:
        names = self.recorded.dumps.operations
        return any(name.startswith("gloo:") for name in names)

    @cached_property
    def _only_messages_wait(self) -> bool:
        return all(wait.is_p2p for wait in self.waits)

    @cached_property
    def _mismatched(self) -> set[tuple[GroupName, int]]:
        return {(mismatch.group, mismatch.sequence) for mismatch in self.mismatches}

    @cached_property
    def _stuck(self) -> tuple[Doubt, ...]:
        """Collectives that all members issued in the same way, and that are over on
        some of them only: a root that differs would do this, and dumps do not hold
        it."""
        recorded = self.recorded
        stuck = []
        for (number, sequence), rows in self.open_collectives.items():
            progress = recorded.groups[number]
            wait = self._wait(number, sequence, rows)
            is_issued_by_all = not (wait.lacking or wait.without_dump or wait.unknown)
            is_over_somewhere = len(wait.waiting) < len(progress.members)
            is_mismatch = (progress.group, sequence) in self._mismatched
            others_went_on = max(progress.newest) > sequence
            if is_mismatch or not is_issued_by_all:
                continue
            if is_over_somewhere and others_went_on:
                doubt = Doubt(
                    kind="stuck",
                    ranks=wait.waiting,
                    group=progress.group,
                    sequence=sequence,
                    issued=wait.example,
                )
                stuck.append(doubt)
        return tuple(stuck)

    @cached_property
    def _stuck_ranks(self) -> set[int]:
        return {rank for doubt in self._stuck for rank in doubt.ranks}

    @cached_property
    def _in_mismatch(self) -> set[int]:
        """Ranks that have not left a collective which others issued differently."""
        ranks: set[int] = set()
        for mismatch in self.mismatches:
            if not mismatch.is_over:
                for side in mismatch.sides:
                    ranks.update(side.ranks)
        return ranks

    @cached_property
    def _blocked(self) -> tuple[Blocked, ...]:
        """Who cannot go on before others come, of each wait."""
        every_blocked = []
        for wait in self.waits:
            others = (*wait.lacking, *wait.without_dump)
            every_blocked.append(Blocked(ranks=wait.waiting, others=others))
        return tuple(every_blocked)

    @cached_property
    def _held_up(self) -> set[int]:
        """Ranks that something keeps from going on, as far as the dumps show."""
        held_up = self._stuck_ranks | self._in_mismatch
        for blocked in self._blocked:
            if blocked.others:
                held_up.update(blocked.ranks)
        return held_up

    def _behind(self, origins: set[int]) -> set[int]:
        """The origins and all who wait for them, directly or through others."""
        reached = set(origins)
        grows = True
        while grows:
            before = len(reached)
            for blocked in self._blocked:
                if not reached.isdisjoint(blocked.others):
                    reached.update(blocked.ranks)
            grows = len(reached) > before
        return reached

    def _wait(self, number: int, sequence: int, rows: Sequence[int]) -> Wait:
        """Who waits in an open collective, and for whom. `number`: of its group;
        `rows`: its entries that are not over."""
        recorded = self.recorded
        progress = recorded.groups[number]
        lacking = []
        without_dump = []
        unknown = []
        for rank, newest in zip(progress.members, progress.newest, strict=True):
            if rank not in recorded.dump_of_rank:
                without_dump.append(rank)
            elif newest == UNKNOWN:
                unknown.append(rank)
            elif newest < sequence:
                lacking.append(rank)
        dumps = recorded.entries.dump[list(rows)]
        example = recorded.issued(rows[0])
        return Wait(
            group=progress.group,
            sequence=sequence,
            is_p2p=False,
            waiting=_ranks(recorded.rank_of_dump[dumps].tolist()),
            lacking=tuple(lacking),
            without_dump=tuple(without_dump),
            unknown=tuple(unknown),
            example=example,
            now=recorded.place_now(example.rank),
        )

    def _message_wait(self, message: Message) -> Wait:
        """Who waits in a send or receive, and for whom."""
        issued = self.recorded.issued(message.row)
        has_dump = message.peer in self.recorded.dump_of_rank
        peer = () if message.peer == UNKNOWN else (message.peer,)
        return Wait(
            group=issued.group,
            sequence=issued.sequence,
            is_p2p=True,
            waiting=(message.rank,),
            lacking=peer if has_dump else (),
            without_dump=() if has_dump else peer,
            unknown=(),
            example=issued,
            now=self.recorded.place_now(issued.rank),
        )

    def _undecided_wait(self, message: Message) -> Wait:
        """As `_message_wait`, where the ring may have lost what the peer issued."""
        wait = self._message_wait(message)
        peer = (*wait.lacking, *wait.without_dump)
        return msgspec.structs.replace(wait, lacking=(), without_dump=(), unknown=peer)

    def _first_lacking(self, rank: int, wait: Wait) -> int:
        """The number of the first collective that a rank did not issue in the group of
        a wait, behind the newest one that it issued there. It is the number of the wait
        itself if the newest one is not known, and for a send or receive."""
        if wait.is_p2p:
            return wait.sequence
        number_of_group = self.recorded.dumps.groups.index(wait.group)
        progress = self.recorded.groups[number_of_group]
        place_of_rank = progress.members.index(rank)
        newest = progress.newest[place_of_rank]
        if newest == UNKNOWN:
            return wait.sequence
        return newest + 1


def _by_importance(culprit: Culprit) -> tuple[bool, int, int]:
    """A key that sorts culprits: those without a dump first, then those for whom most
    ranks wait."""
    return culprit.has_dump, -culprit.waiting, culprit.rank


def _ranks(numbers: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(numbers))
