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
    entries = recorded.entries
    dumps = recorded.dumps
    issued: Counter[Channel] = Counter()
    waiting: list[Message] = []
    for row in np.flatnonzero(entries.is_p2p).tolist():
        name = MESSAGE.search(dumps.operations[entries.operation[row]])
        if name is None:
            continue
        group = int(entries.group[row])
        rank = int(recorded.rank_of_dump[entries.dump[row]])
        members = recorded.groups[group].members
        place = int(name[3])
        peer = members[place] if place < len(members) else UNKNOWN
        is_send = name[1] == "send"
        source, target = (rank, peer) if is_send else (peer, rank)
        channel = Channel(group, source, target, is_send)
        issued[channel] += 1
        if not recorded.is_over[row]:
            waiting.append(Message(row, rank, peer, channel))
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
