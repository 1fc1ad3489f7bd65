"""Answers why a job hangs, by following the waits of ranks to their origin."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property

import msgspec
import numpy as np

from fusetui.analysis.hang.groups import CollectiveKey, JobDumps
from fusetui.analysis.hang.messages import Message, Messages, find_unmatched_messages
from fusetui.analysis.hang.mismatches import find_mismatches
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
    """Find out which ranks of a job are missing where, and who waits for them."""
    return explain_hang(JobDumps(dumps))


def explain_hang(job: JobDumps) -> HangAnswer:
    """Answer why a job hangs, from dumps about which other questions are asked too."""
    explanation = _HangExplanation(job)
    dumps = job.dumps
    unread = [
        UnreadDump(path=file.path, rank=file.rank, reason=file.reason)
        for file in dumps.unread
    ]
    return HangAnswer(
        verdict=explanation.verdict,
        ranks=tuple(dump.rank for dump in dumps.ranks),
        ranks_from_order=dumps.ranks_from_order,
        versions=tuple(sorted({dump.version for dump in dumps.ranks})),
        culprits=explanation.culprits,
        cycle=explanation.cycle,
        waits=explanation.waits,
        mismatches=explanation.mismatches,
        unmatched=explanation.unmatched,
        groups=job.groups,
        doubts=explanation.doubts,
        unread=tuple(unread),
    )


class Blocked(msgspec.Struct, frozen=True):
    """Ranks that cannot go on before certain other ranks come.

    Each of `ranks` waits for each of `awaited`.
    """

    ranks: tuple[int, ...]
    awaited: tuple[int, ...]


class _HangExplanation:
    """Works out the parts of the answer, each of them once.

    Args:
        job: The dumps of all ranks.
    """

    def __init__(self, job: JobDumps) -> None:
        self.job = job

    @cached_property
    def mismatches(self) -> tuple[Mismatch, ...]:
        """The collectives that ranks issued in different ways, e.g. with different
        sizes."""
        return find_mismatches(self.job)

    @cached_property
    def unfinished_collectives(self) -> dict[CollectiveKey, list[int]]:
        """The collectives that have not ended on some rank, with the rows of their
        entries.

        E.g. {(0, 17): [3, 9]}: number 17 of group 0 has not ended on two ranks, whose
        entries are the rows 3 and 9. They are sorted by group, then by number.
        """
        entries = self.job.entries
        is_unfinished_collective = ~self.job.is_over & ~entries.is_p2p

        # A coalesced operation has several entries on one rank: the first one counts.
        row_by_dump: dict[CollectiveKey, dict[int, int]] = defaultdict(dict)
        for row in np.flatnonzero(is_unfinished_collective).tolist():
            collective = CollectiveKey(
                group=int(entries.group[row]), sequence=int(entries.sequence[row])
            )
            dump = int(entries.dump[row])
            row_by_dump[collective].setdefault(dump, row)

        return {
            collective: list(row_by_dump[collective].values())
            for collective in sorted(row_by_dump)
        }

    @cached_property
    def waits(self) -> tuple[Wait, ...]:
        """All waits of ranks for other ranks.

        First come the open collectives that some member did not issue, or may not have
        issued; then messages without a counterpart; then messages of which it is not
        known whether they have one.
        """
        waits = []
        for collective, rows in self.unfinished_collectives.items():
            wait = self._describe_collective_wait(collective, rows)
            if not wait.is_issued_by_all:
                waits.append(wait)
        for message in self._messages.unmatched:
            waits.append(self._describe_message_wait(message))
        for message in self._messages.undecided:
            waits.append(self._describe_undecided_wait(message))
        return tuple(waits)

    @cached_property
    def unmatched(self) -> tuple[UnmatchedMessage, ...]:
        """The sends and receives whose counterpart was not issued."""
        messages = []
        for message in self._messages.unmatched:
            unmatched = UnmatchedMessage(
                issued=self.job.describe_issued(message.row),
                peer=message.peer,
                peer_last=self.job.find_last_issued(message.peer),
            )
            messages.append(unmatched)
        return tuple(messages)

    @cached_property
    def verdict(self) -> Verdict:
        """The whole answer in one word.

        If several things are wrong, the one is named that can be the cause of the
        others: ranks that issued different operations (mismatch) before a rank that
        issued nothing (missing), that before ranks that wait in a circle (deadlock),
        and that before a send or receive without its other half (unmatched).
        """
        has_open_mismatch = any(not mismatch.is_over for mismatch in self.mismatches)
        has_known_culprit = any(culprit.has_dump for culprit in self.culprits)
        if has_open_mismatch:
            return "mismatch"
        if has_known_culprit:
            return "unmatched" if self._only_messages_wait else "missing"
        if self.cycle:
            return "deadlock"
        if self.unmatched:
            return "unmatched"
        if self.waits or self._stuck_collectives:
            return "undecided"
        return "mismatch" if self.mismatches else "none"

    @cached_property
    def culprits(self) -> tuple[Culprit, ...]:
        """The ranks that others wait for and that wait for nobody themselves."""
        first_wait_for_rank: dict[int, Wait] = {}
        for wait in self.waits:
            for rank in (*wait.without_dump, *wait.lacking):
                if rank not in self._ranks_kept_waiting:
                    first_wait_for_rank.setdefault(rank, wait)

        culprits = []
        for rank, wait in first_wait_for_rank.items():
            waiting_ranks = self._collect_ranks_waiting_for({rank}) - {rank}
            culprit = Culprit(
                rank=rank,
                has_dump=rank in self.job.dump_of_rank,
                last=self.job.find_last_issued(rank),
                group=wait.group,
                sequence=self._find_first_lacking(rank, wait),
                waiting=len(waiting_ranks),
                now=self.job.find_frame_at_dump(rank),
            )
            culprits.append(culprit)
        culprits.sort(key=_sort_key_of_culprit)
        return tuple(culprits)

    @cached_property
    def cycle(self) -> tuple[int, ...]:
        """Ranks that wait for each other in a circle; () if there is no circle.

        E.g. 1 and 2, if 0 waits for 1, 1 for 2, and 2 for 1. Only ranks are considered
        that wait for no culprit, directly or through others.
        """
        origins = {culprit.rank for culprit in self.culprits} | self._stuck_ranks
        explained_ranks = self._collect_ranks_waiting_for(origins)

        # For each other rank the first one that it waits for.
        next_of_rank: dict[int, int] = {}
        for blocked in self._blocked_ranks:
            awaited = [rank for rank in blocked.awaited if rank not in explained_ranks]
            if not awaited:
                continue
            for rank in blocked.ranks:
                if rank not in explained_ranks:
                    next_of_rank.setdefault(rank, awaited[0])
        if not next_of_rank:
            return ()

        # Follow who waits for whom. The circle closes where a rank comes up again.
        path: list[int] = []
        rank = min(next_of_rank)
        while rank in next_of_rank and rank not in path:
            path.append(rank)
            rank = next_of_rank[rank]
        if rank not in path:
            return ()
        begin_of_circle = path.index(rank)
        return tuple(path[begin_of_circle:])

    @cached_property
    def doubts(self) -> tuple[Doubt, ...]:
        """What the dumps leave open, beginning with the ranks without a dump."""
        job = self.job
        doubts = []

        ranks_without_dump = self._known_ranks.difference(job.dump_of_rank)
        if ranks_without_dump:
            ranks = tuple(sorted(ranks_without_dump))
            doubts.append(Doubt(kind="no_dump", ranks=ranks))

        doubts += self._stuck_collectives
        for wait in self.waits:
            if wait.unknown:
                lost = Doubt(
                    kind="lost",
                    ranks=wait.unknown,
                    group=wait.group,
                    sequence=wait.sequence,
                )
                doubts.append(lost)

        for group_index, progress in enumerate(job.groups):
            if not job.are_members_known(group_index):
                unknown = Doubt(
                    kind="members_unknown",
                    ranks=progress.members,
                    group=progress.group,
                )
                doubts.append(unknown)

        versions = {dump.version for dump in job.dumps.ranks}
        if len(versions) > 1:
            ranks = tuple(dump.rank for dump in job.dumps.ranks)
            doubts.append(Doubt(kind="versions", ranks=ranks))
        if self._has_gloo:
            doubts.append(Doubt(kind="sends_not_recorded", ranks=()))
        return tuple(doubts)

    @cached_property
    def _messages(self) -> Messages:
        """The sends and receives that are not over and have no counterpart on the other
        rank.

        Those whose counterpart may have been lost from the dump are kept apart as
        undecided.
        """
        return find_unmatched_messages(self.job)

    @cached_property
    def _known_ranks(self) -> set[int]:
        """All ranks that the dumps name in any way."""
        known_ranks = set(self.job.ranks_of_job)
        for group in self.job.groups:
            known_ranks.update(group.members)
        return known_ranks

    @cached_property
    def _has_gloo(self) -> bool:
        """Whether any operation is one of gloo."""
        names = self.job.dumps.operations
        return any(name.startswith("gloo:") for name in names)

    @cached_property
    def _only_messages_wait(self) -> bool:
        """Whether ranks wait in sends and receives only, not in collectives."""
        return all(wait.is_p2p for wait in self.waits)

    @cached_property
    def _mismatched_collectives(self) -> set[tuple[GroupName, int]]:
        """The group and the number of each collective that ranks issued in different
        ways."""
        return {(mismatch.group, mismatch.sequence) for mismatch in self.mismatches}

    @cached_property
    def _stuck_collectives(self) -> tuple[Doubt, ...]:
        """The collectives that are stuck though all members issued them alike.

        They are over on some members, which went on, and not on others. A root that
        differs between ranks would do this, and dumps do not hold the root.
        """
        stuck = []
        for collective, rows in self.unfinished_collectives.items():
            progress = self.job.groups[collective.group]
            wait = self._describe_collective_wait(collective, rows)
            is_mismatch = (wait.group, wait.sequence) in self._mismatched_collectives
            is_issued_alike = wait.is_issued_by_all and not is_mismatch

            is_over_somewhere = len(wait.waiting) < len(progress.members)
            others_went_on = max(progress.newest) > wait.sequence
            if is_issued_alike and is_over_somewhere and others_went_on:
                doubt = Doubt(
                    kind="stuck",
                    ranks=wait.waiting,
                    group=wait.group,
                    sequence=wait.sequence,
                    issued=wait.example,
                )
                stuck.append(doubt)
        return tuple(stuck)

    @cached_property
    def _stuck_ranks(self) -> set[int]:
        """The ranks that still wait in a collective that all members issued alike."""
        stuck_ranks: set[int] = set()
        for doubt in self._stuck_collectives:
            stuck_ranks.update(doubt.ranks)
        return stuck_ranks

    @cached_property
    def _ranks_in_mismatch(self) -> set[int]:
        """The ranks that have not left a collective which others issued differently."""
        ranks: set[int] = set()
        for mismatch in self.mismatches:
            if not mismatch.is_over:
                for side in mismatch.sides:
                    ranks.update(side.ranks)
        return ranks

    @cached_property
    def _blocked_ranks(self) -> tuple[Blocked, ...]:
        """The ranks that cannot go on and the ranks that they wait for, one entry for
        each wait.

        The awaited ranks are those that did not issue the operation, and those without
        a dump.
        """
        blocked_ranks = []
        for wait in self.waits:
            awaited = (*wait.lacking, *wait.without_dump)
            blocked_ranks.append(Blocked(ranks=wait.waiting, awaited=awaited))
        return tuple(blocked_ranks)

    @cached_property
    def _ranks_kept_waiting(self) -> set[int]:
        """The ranks that something keeps from going on, as far as the dumps show."""
        kept_waiting = self._stuck_ranks | self._ranks_in_mismatch
        for blocked in self._blocked_ranks:
            if blocked.awaited:
                kept_waiting.update(blocked.ranks)
        return kept_waiting

    def _collect_ranks_waiting_for(self, origins: set[int]) -> set[int]:
        """Return some ranks with all that wait for them, directly or through others.

        E.g. if 1 waits for 0, and 2 for 1, the rank 0 becomes the ranks 0, 1 and 2.
        """
        collected = set(origins)
        has_grown = True
        while has_grown:
            ranks_before = len(collected)
            for blocked in self._blocked_ranks:
                waits_for_collected = not collected.isdisjoint(blocked.awaited)
                if waits_for_collected:
                    collected.update(blocked.ranks)
            has_grown = len(collected) > ranks_before
        return collected

    def _describe_collective_wait(
        self, collective: CollectiveKey, rows: Sequence[int]
    ) -> Wait:
        """Describe which ranks wait in a collective that is not over, and for which
        ranks.

        A member is lacking if it has not issued the collective, and unknown if its dump
        does not tell.

        Args:
            collective: The collective.
            rows: The rows of its entries that are not over.
        """
        job = self.job
        progress = job.groups[collective.group]
        lacking = []
        without_dump = []
        unknown = []
        for rank, newest in zip(progress.members, progress.newest, strict=True):
            if rank not in job.dump_of_rank:
                without_dump.append(rank)
            elif newest == UNKNOWN:
                unknown.append(rank)
            elif newest < collective.sequence:
                lacking.append(rank)

        dumps = job.entries.dump[list(rows)]
        waiting_ranks = sorted(job.rank_of_dump[dumps].tolist())
        example = job.describe_issued(rows[0])
        return Wait(
            group=progress.group,
            sequence=collective.sequence,
            is_p2p=False,
            waiting=tuple(waiting_ranks),
            lacking=tuple(lacking),
            without_dump=tuple(without_dump),
            unknown=tuple(unknown),
            example=example,
            now=job.find_frame_at_dump(example.rank),
        )

    def _describe_message_wait(self, message: Message) -> Wait:
        """Describe which rank waits in a send or receive without counterpart, and for
        whom.

        The peer counts as lacking if there is a dump of it. If its number is unknown,
        nobody is awaited.
        """
        issued = self.job.describe_issued(message.row)
        lacking: tuple[int, ...] = ()
        without_dump: tuple[int, ...] = ()
        if message.peer in self.job.dump_of_rank:
            lacking = (message.peer,)
        elif message.peer != UNKNOWN:
            without_dump = (message.peer,)

        return Wait(
            group=issued.group,
            sequence=issued.sequence,
            is_p2p=True,
            waiting=(message.rank,),
            lacking=lacking,
            without_dump=without_dump,
            unknown=(),
            example=issued,
            now=self.job.find_frame_at_dump(issued.rank),
        )

    def _describe_undecided_wait(self, message: Message) -> Wait:
        """Describe who waits in a send or receive whose counterpart may have been lost.

        Unlike in `_describe_message_wait`, it is not known whether the peer issued it.
        """
        wait = self._describe_message_wait(message)
        peer = (*wait.lacking, *wait.without_dump)
        return msgspec.structs.replace(wait, lacking=(), without_dump=(), unknown=peer)

    def _find_first_lacking(self, rank: int, wait: Wait) -> int:
        """Find the number of the first collective that a rank did not issue.

        It is the one after the newest that the rank issued in the group of the wait. If
        that is not known, and for a send or receive, it is the number of the wait.
        """
        if wait.is_p2p:
            return wait.sequence

        group_index = self.job.dumps.groups.index(wait.group)
        progress = self.job.groups[group_index]
        newest_issued = progress.newest[progress.members.index(rank)]
        return wait.sequence if newest_issued == UNKNOWN else newest_issued + 1


def _sort_key_of_culprit(culprit: Culprit) -> tuple[bool, int, int]:
    """Make the key by which culprits are sorted: the ranks that others wait for.

    Those without a dump come first, then those for whom most ranks wait.
    """
    return culprit.has_dump, -culprit.waiting, culprit.rank
