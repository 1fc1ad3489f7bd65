"""Sends and receives: which have no counterpart."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.hang.groups import Recorded
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.flight.columns import UNKNOWN

MESSAGE = lazy_pattern(r"(?:^|:)(send|recv) ([0-9]{1,7})(?:->|<-)([0-9]{1,7})$")
"""nccl:send 0->1, nccl:recv 1<-0: the first number is the rank that issued it. Both are
places in the group (ProcessGroupNCCL.cpp, `pointToPoint`)."""


class Channel(NamedTuple):
    """The sends, or the receives, from one rank to another in a group."""

    group: int
    source: int  # rank
    target: int  # rank
    is_send: bool

    def counterpart(self) -> Channel:
        """The receives of these sends, or the other way round."""
        return self._replace(is_send=not self.is_send)


class Message(msgspec.Struct, frozen=True):
    """A send or receive that is not over; `row` is that of its entry, `peer` the rank of
    the other side, UNKNOWN if the members of the group are not."""

    row: int
    rank: int
    peer: int
    channel: Channel


class Messages(msgspec.Struct, frozen=True):
    """Those without a counterpart, and those of which a ring may have lost it."""

    unmatched: tuple[Message, ...]
    undecided: tuple[Message, ...]


def unmatched_messages(recorded: Recorded) -> Messages:
    """Sends and receives that are not over and whose counterpart was not issued.

    The k-th send from one rank to another in a group belongs to the k-th receive there.
    That can be counted only where neither ring has lost its beginning.
    """
    issued: Counter[Channel] = Counter()
    waiting: list[Message] = []
    for row in np.flatnonzero(recorded.entries.is_p2p).tolist():
        message = _message(recorded, row)
        if message is None:
            continue
        issued[message.channel] += 1
        if not recorded.is_over[row]:
            waiting.append(message)
    unmatched = []
    undecided = []
    for message in reversed(waiting):
        channel = message.channel
        if issued[channel] <= issued[channel.counterpart()]:
            continue
        issued[channel] -= 1  # the newest has no counterpart
        if recorded.lost_beginning(message.rank, message.peer):
            undecided.append(message)
        else:
            unmatched.append(message)
    return Messages(tuple(reversed(unmatched)), tuple(reversed(undecided)))


def _message(recorded: Recorded, row: int) -> Message | None:
    """The send or receive of an entry; None if its name is not that of one."""
    entries = recorded.entries
    name = MESSAGE.search(recorded.dumps.operations[entries.operation[row]])
    if name is None:
        return None
    group = int(entries.group[row])
    rank = int(recorded.rank_of_dump[entries.dump[row]])
    members = recorded.groups[group].members
    place_of_peer = int(name[3])
    peer = members[place_of_peer] if place_of_peer < len(members) else UNKNOWN
    if name[1] == "send":
        channel = Channel(group, source=rank, target=peer, is_send=True)
    else:
        channel = Channel(group, source=peer, target=rank, is_send=False)
    return Message(row, rank, peer, channel)
