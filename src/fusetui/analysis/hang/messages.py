"""Finds the sends and receives that have no counterpart."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.hang.groups import JobDumps
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.flight.columns import UNKNOWN

MESSAGE_NAME = lazy_pattern(
    r"(?:^|:)(?P<operation>send|recv) [0-9]{1,7}(?:->|<-)(?P<peer>[0-9]{1,7})$"
)
"""Matches nccl:send 0->1 and nccl:recv 1<-0. The first number is the rank that issued
it, the second its peer. Both are indices of members of the group
(ProcessGroupNCCL.cpp, `pointToPoint`)."""


class Channel(NamedTuple):
    """All sends, or all receives, from one rank to another in a group."""

    group: int  # index into FlightDumps.groups
    source: int  # rank
    target: int  # rank
    is_send: bool

    def counterpart(self) -> Channel:
        """Return the receives of these sends, or the sends of these receives."""
        return self._replace(is_send=not self.is_send)


class Message(msgspec.Struct, frozen=True):
    """A send or a receive."""

    row: int  # of its entry
    rank: int  # that issued it
    peer: int  # the other rank; UNKNOWN if the members of the group are not known
    channel: Channel


class Messages(msgspec.Struct, frozen=True):
    """The sends and receives that are not over and lack a counterpart."""

    unmatched: tuple[Message, ...]  # whose counterpart was not issued
    undecided: tuple[Message, ...]  # whose counterpart a ring may have lost


def find_unmatched_messages(job: JobDumps) -> Messages:
    """Find the sends and receives that are not over and whose counterpart is missing.

    The k-th send from one rank to another in a group belongs to the k-th receive there.
    That can be counted only where neither ring has lost its beginning.
    """
    messages_in_channel: Counter[Channel] = Counter()
    waiting: list[Message] = []
    for row in np.flatnonzero(job.entries.is_p2p).tolist():
        message = _read_message(job, row)
        if message is None:
            continue
        messages_in_channel[message.channel] += 1
        if not job.is_over[row]:
            waiting.append(message)

    # Of 5 sends and 3 receives, the 2 newest sends have no counterpart.
    unmatched = []
    undecided = []
    remaining = Counter(messages_in_channel)
    for message in reversed(waiting):
        channel = message.channel
        counterparts = messages_in_channel[channel.counterpart()]
        if remaining[channel] <= counterparts:
            continue
        remaining[channel] -= 1
        if job.lost_beginning(message.rank, message.peer):
            undecided.append(message)
        else:
            unmatched.append(message)

    return Messages(
        unmatched=tuple(reversed(unmatched)), undecided=tuple(reversed(undecided))
    )


def _read_message(job: JobDumps, row: int) -> Message | None:
    """Read the send or receive of an entry of a dump.

    The name of the operation has the index of the peer in the group. The peer is
    UNKNOWN if the group has no such member. Returns None if the name is not that of a
    send or receive.
    """
    entries = job.entries
    name = job.dumps.operations[entries.operation[row]]
    match = MESSAGE_NAME.search(name)
    if match is None:
        return None

    group = int(entries.group[row])
    rank = int(job.rank_of_dump[entries.dump[row]])
    members = job.groups[group].members
    peer_index = int(match["peer"])
    peer = members[peer_index] if peer_index < len(members) else UNKNOWN
    if match["operation"] == "send":
        channel = Channel(group, source=rank, target=peer, is_send=True)
    else:
        channel = Channel(group, source=peer, target=rank, is_send=False)
    return Message(row=row, rank=rank, peer=peer, channel=channel)
