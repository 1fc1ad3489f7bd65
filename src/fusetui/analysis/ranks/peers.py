"""With which rank a send or a receive is: recorded is its number in the process group, by some
writers that in the job. The reading in which sends and receives pair up is taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui.analysis.questions.collective_kinds import POINT_TO_POINT
from fusetui.analysis.ranks.model import RankSummary

Int64s = NDArray[np.int64]


def with_peers(ranks: Sequence[RankSummary]) -> tuple[RankSummary, ...]:
    """The ranks, whose peers are numbers in the job."""
    in_group = [_translated(one) for one in ranks]
    as_recorded = [one.collectives.peer for one in ranks]
    if all(np.array_equal(a, b) for a, b in zip(in_group, as_recorded, strict=True)):
        return tuple(ranks)
    chosen = min((in_group, as_recorded), key=lambda peers: _unpaired(ranks, peers))
    return tuple(
        replace(one, collectives=replace(one.collectives, peer=peer))
        for one, peer in zip(ranks, chosen, strict=True)
    )


def _translated(one: RankSummary) -> Int64s:
    """Numbers in groups as numbers in the job; -1 where there is none."""
    found = one.collectives.peer.copy()
    for number, group in enumerate(one.groups):
        own = np.flatnonzero((one.collectives.group == number) & (found >= 0))
        if len(own) and group.ranks:
            listed = np.array([*group.ranks, -1])
            peer = one.collectives.peer[own]
            found[own] = listed[np.where(peer < len(group.ranks), peer, -1)]
    return found


def _unpaired(ranks: Sequence[RankSummary], peers: Sequence[Int64s]) -> int:
    """How many sends have no receive, and the other way round."""
    balance: Counter[tuple[str, int, int]] = Counter()
    given = {one.rank for one in ranks}
    for one, peer in zip(ranks, peers, strict=True):
        for number in np.flatnonzero(peer >= 0).tolist():
            name, other = one.name_of(number), int(peer[number])
            if name in POINT_TO_POINT and other in given:
                pair = (one.rank, other) if name == "send" else (other, one.rank)
                sign = 1 if name == "send" or (name == "send_recv" and one.rank < other) else -1
                both = (min(pair), max(pair)) if name == "send_recv" else pair
                balance["both" if name == "send_recv" else "one", *both] += sign
    return sum(map(abs, balance.values())) + sum(
        int(((peer == one.rank) | ((peer < 0) & (one.collectives.peer >= 0))).sum())
        for one, peer in zip(ranks, peers, strict=True)
    )
