"""Sends and receives: which have no counterpart."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np

from fusetui.analysis.hang.groups import Recorded
from fusetui.text.patterns import late
from fusetui.trace.flight.columns import UNKNOWN

MESSAGE = late(r"(?:^|:)(send|recv) ([0-9]{1,7})(?:->|<-)([0-9]{1,7})$")
"""nccl:send 0->1, nccl:recv 1<-0: the first number is the rank that issued it. Both are
places in the group (ProcessGroupNCCL.cpp, `pointToPoint`)."""


class Message(msgspec.Struct, frozen=True):
    """A send or receive that is not over; `row` is that of its entry, `peer` the rank of
    the other side, UNKNOWN if the members of the group are not."""

    row: int
    rank: int
    peer: int


def unmatched_messages(recorded: Recorded) -> tuple[Message, ...]:
    """Sends and receives that are not over and whose counterpart was not issued.

    The k-th send from one rank to another in a group belongs to the k-th receive there.
    Where a ring lost its beginning, they are counted from the end, which only tells how
    many are too many.
    """
    entries, dumps = recorded.entries, recorded.dumps
    issued: Counter[tuple[int, int, int, bool]] = Counter()
    waiting: list[tuple[tuple[int, int, int, bool], Message]] = []
    for row in np.flatnonzero(entries.is_p2p).tolist():
        found = MESSAGE.search(dumps.operations[entries.operation[row]])
        if found is None:
            continue
        is_send = found[1] == "send"
        group = int(entries.group[row])
        rank = int(recorded.rank_of_dump[entries.dump[row]])
        members = recorded.groups[group].members
        place = int(found[3])
        peer = members[place] if place < len(members) else UNKNOWN
        source, target = (rank, peer) if is_send else (peer, rank)
        key = (group, source, target, is_send)
        issued[key] += 1
        if not recorded.is_over[row]:
            waiting.append((key, Message(row, rank, peer)))
    unmatched = []
    for key, message in reversed(waiting):
        group, source, target, is_send = key
        counterpart = (group, source, target, not is_send)
        if issued[key] > issued[counterpart]:
            issued[key] -= 1  # the newest has no counterpart
            unmatched.append(message)
    return tuple(reversed(unmatched))
