"""The records of the answer; their field names are the keys of --json."""

from __future__ import annotations

from enum import IntEnum
from typing import Literal

import msgspec

from fusetui.trace.flight.columns import UNKNOWN, Frame, GroupName, Tensors

Verdict = Literal[
    "missing",  # a rank did not issue a collective in which others wait
    "mismatch",  # ranks issued different operations under one number
    "deadlock",  # ranks wait for each other
    "unmatched",  # a send without its receive, or the other way round
    "undecided",  # somebody waits, and the dumps do not say for whom
    "none",  # nobody waits for a rank
]
MismatchKind = Literal["operation", "sizes", "dtypes", "coalesced"]
DoubtKind = Literal[
    "no_dump",  # ranks that belong to the job wrote no readable dump
    "stuck",  # issued by all members, over on some of them only
    "lost",  # the ring lost what would decide about a rank
    "members_unknown",  # the group has more members than the dumps show
    "versions",  # the dumps are of different versions
    "sends_not_recorded",  # gloo records no sends and receives
]
State = Literal["other", "scheduled", "started", "completed"]


class Issued(msgspec.Struct, frozen=True):
    """A collective, send or receive that a rank issued.

    `place` is the innermost line outside of torch; None if no stack was recorded.
    `created_ns` is Unix time by the clock of the rank's host.
    """

    rank: int
    group: GroupName
    sequence: int  # its number in the group
    operation: str  # nccl:all_reduce
    place: Frame | None
    inputs: Tensors
    outputs: Tensors
    state: State
    is_over: bool
    created_ns: int


class Culprit(msgspec.Struct, frozen=True):
    """A rank that others wait for and that does not wait itself.

    `last` is the last operation that it issued, in any group; None if it wrote no dump
    or issued nothing. `group` and `sequence` are those of the first collective that it
    lacks. `waiting` counts the ranks that wait for it, directly or through others.
    `now` is where its main thread was outside of torch at the time of the dump; None if
    the dump has no stack, as in torch's own dumps.
    """

    rank: int
    has_dump: bool
    last: Issued | None
    group: GroupName
    sequence: int
    waiting: int
    now: Frame | None = None


class Wait(msgspec.Struct, frozen=True):
    """An unfinished collective or message that some ranks issued and others did not.

    `now` is where the first of `waiting` was at the time of its dump; None if the dump
    has no stack.
    """

    group: GroupName
    sequence: int
    is_p2p: bool
    waiting: tuple[int, ...]  # ranks
    lacking: tuple[int, ...]  # ranks whose dump shows that they did not issue it
    without_dump: tuple[int, ...]  # members that wrote no readable dump
    unknown: tuple[int, ...]  # members of which the ring lost it
    example: Issued  # as the first of `waiting` issued it
    now: Frame | None = None

    @property
    def is_issued_by_all(self) -> bool:
        """Whether the dumps show that every member issued it."""
        return not (self.lacking or self.without_dump or self.unknown)


class Side(msgspec.Struct, frozen=True):
    """The ranks that issued the same under one number, and what they issued."""

    ranks: tuple[int, ...]
    issued: tuple[Issued, ...]  # by the first rank; several, if they are coalesced


class Mismatch(msgspec.Struct, frozen=True):
    """A collective that the members of a group issued in different ways.

    The larger side comes first; it may be the wrong one.
    """

    group: GroupName
    sequence: int
    kind: MismatchKind
    is_over: bool  # on all ranks: then it is no reason to wait
    sides: tuple[Side, ...]


class UnmatchedMessage(msgspec.Struct, frozen=True):
    """A send whose receive was not issued, or a receive whose send was not."""

    issued: Issued
    peer: int  # rank; UNKNOWN where the members of the group are not known
    peer_last: Issued | None  # the last operation that the peer issued


class GroupProgress(msgspec.Struct, frozen=True):
    """How far the members of a group came.

    `newest[i]` is the number of the last collective that `members[i]` issued: 0 if it
    issued none, -1 if that is not known.
    """

    group: GroupName
    members: tuple[int, ...]
    members_are_listed: bool  # by a dump; else they are the ranks whose entries name it
    newest: tuple[int, ...]


class Doubt(msgspec.Struct, frozen=True):
    """A question that the dumps leave open."""

    kind: DoubtKind
    ranks: tuple[int, ...]
    group: GroupName | None = None
    sequence: int = -1
    issued: Issued | None = None


class UnreadDump(msgspec.Struct, frozen=True):
    """A file of a dump that could not be read."""

    path: str
    rank: int  # by its name, -1 without one
    reason: str  # a sentence


class HangAnswer(msgspec.Struct, frozen=True):
    """The answer why a job hangs.

    `culprits` come in the order of how many ranks wait for them, those without a dump
    first. `cycle` are ranks each of which waits for the next, and the last one for the
    first.
    """

    verdict: Verdict
    ranks: tuple[int, ...]  # that wrote a readable dump
    ranks_from_order: bool  # no file names its rank: they are numbered by their order
    versions: tuple[str, ...]
    culprits: tuple[Culprit, ...]
    cycle: tuple[int, ...]
    waits: tuple[Wait, ...]
    mismatches: tuple[Mismatch, ...]
    unmatched: tuple[UnmatchedMessage, ...]
    groups: tuple[GroupProgress, ...]
    doubts: tuple[Doubt, ...]
    unread: tuple[UnreadDump, ...]

    @property
    def open_mismatches_first(self) -> tuple[Mismatch, ...]:
        """The mismatches in which a rank still waits, then those that are over."""
        return tuple(sorted(self.mismatches, key=lambda mismatch: mismatch.is_over))


class CallState(IntEnum):
    """How far the call of one rank to one collective had come."""

    NOT_ISSUED = 0  # and no other rank waits for it
    MISSING = 1  # not issued, and other ranks wait in it
    UNKNOWN = 2  # the rank wrote no dump, or its ring lost the entry
    SCHEDULED = 3
    STARTED = 4
    OVER = 5
    OTHER = 6  # a state of a later torch, not over


class Call(msgspec.Struct, frozen=True):
    """The call of one rank to one collective."""

    state: CallState
    # which of `Mismatch.sides` the rank is on, where ranks issued different operations
    # under one number; else UNKNOWN
    side: int = UNKNOWN
