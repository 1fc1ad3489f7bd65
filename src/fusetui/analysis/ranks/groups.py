"""Of which process group a collective is, and with which rank a send or a receive,
where its own args do not say it.

Collectives of gloo, and those of NCCL in old files, name no group; the file lists those
that its rank belongs to. Every rank runs the same program, so the n-th collective of a
step is of the same kind of group on all of them. A collective ends on all its ranks at
nearly the same time, and on none before it has started on all: of the kinds that fit in
all steps, the one with the largest groups is taken. Where several are as large, or
clocks cannot be compared, it cannot be told.

The peer that is recorded is a number in the process group, by some writers in the job:
the reading in which sends and receives pair up is taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.analysis.questions.collectives import POINT_TO_POINT
from fusetui.analysis.questions.process_groups import UNKNOWN_GROUP, ProcessGroup
from fusetui.analysis.ranks.clocks import SLACK_NS
from fusetui.analysis.ranks.matching import step_keys
from fusetui.analysis.ranks.model import RankSummary
from fusetui.trace.model.arrays import Int64s, Rows

BY_ENDS = (
    "process groups of collectives, from when they end on the ranks that the files list"
)
ALIKE = 2.0  # ends lie as close together as in the best kind, up to this factor
LEAST_NS = 100_000.0  # and ends that lie closer than this are as good as the best


class _KindOfGroup(msgspec.Struct, frozen=True):
    """Groups that each rank is in one of, as of tensor parallelism: the n-th of each
    rank."""

    of_rank: tuple[ProcessGroup, ...]
    members: tuple[list[int], ...]  # indices of the ranks of each group

    @property
    def size(self) -> int:
        return max(group.size for group in self.of_rank)

    def spread(self, start: Int64s, end: Int64s) -> float:
        """How far the ends of a group lie apart, the mean of all; inf if one ends
        before another one has started. `start` and `end`: [ranks, collectives]."""
        found = []
        for own in self.members:
            first = end[own].min(axis=0)
            if (start[own].max(axis=0) - first > SLACK_NS).any():
                return float("inf")
            found.append(float((end[own].max(axis=0) - first).mean()))
        return float(np.mean(found)) if found else float("inf")


def with_groups(ranks: Sequence[RankSummary]) -> tuple[RankSummary, ...]:
    """The ranks, with the groups of their collectives where these can be told."""
    unknown = [_unknown(one) for one in ranks]
    hosts = {one.host for one in ranks}
    one_clock = len(ranks) > 1 and len(hosts) == 1 and "" not in hosts
    if not (any(map(len, unknown)) and one_clock and (kinds := _kinds(ranks))):
        return tuple(ranks)
    chosen = [np.full(len(one.collectives), -1, dtype=np.intp) for one in ranks]
    for places in _alike(ranks, unknown):
        kind = _fitting(ranks, kinds, _whole(ranks, places))
        for own, rows in zip(chosen, places, strict=True):
            own[rows] = kind
    return tuple(_named(one, kinds, n, chosen[n]) for n, one in enumerate(ranks))


def _unknown(one: RankSummary) -> Rows:
    """Numbers of collectives; sends and receives have a peer instead."""
    found = one.collectives
    which = np.array([group == UNKNOWN_GROUP for group in one.groups] or [False])
    sends = np.array([name in POINT_TO_POINT for name in one.names] or [False])
    return np.flatnonzero(which[found.group] & ~sends[found.name])


def _kinds(ranks: Sequence[RankSummary]) -> list[_KindOfGroup]:
    """The kinds of groups in the order in which all ranks list them; none if they
    disagree."""
    listed = [
        [group for group in one.groups if group.size > 1 and one.rank in group.ranks]
        for one in ranks
    ]
    if len({len(groups) for groups in listed}) != 1:
        return []
    index = {one.rank: n for n, one in enumerate(ranks)}
    found = []
    for of_rank in zip(*listed, strict=True):
        given = {
            group.ranks: [index[r] for r in group.ranks if r in index]
            for group in of_rank
        }
        if any(
            of_rank[n].ranks != own for own, members in given.items() for n in members
        ):
            return []
        found.append(
            _KindOfGroup(of_rank, tuple(own for own in given.values() if len(own) > 1))
        )
    return found


def _alike(
    ranks: Sequence[RankSummary], unknown: Sequence[Rows]
) -> Iterator[list[Rows]]:
    """The rows of each rank that are the same place of the program: of all steps with
    the same collectives, those that are the n-th there."""
    alike: dict[object, list[list[list[int]]]] = {}
    steps: dict[object, dict[int, list[int]]] = {}
    for rank, (one, rows) in enumerate(zip(ranks, unknown, strict=True)):
        keys = [*step_keys(one), None]
        at = (
            np.searchsorted(one.step_start, one.collectives.issued[rows], side="right")
            - 1
        )
        for row, step in zip(rows.tolist(), at.tolist(), strict=True):
            steps.setdefault(keys[step], {}).setdefault(rank, []).append(row)
    for by_rank in steps.values():
        programs = {
            rank: tuple(
                (ranks[rank].name_of(n), ranks[rank].collectives.size[n]) for n in rows
            )
            for rank, rows in by_rank.items()
        }
        if len(by_rank) == len(ranks) and len({*programs.values()}) == 1:
            alike.setdefault(programs[0], []).append(
                [by_rank[n] for n in range(len(ranks))]
            )
    for found in alike.values():  # [steps, ranks, collectives], by place
        yield from map(list, np.array(found, dtype=np.intp).T)


def _whole(ranks: Sequence[RankSummary], places: list[Rows]) -> list[Rows]:
    """These places without the steps in which a recording cuts the collective on some
    rank."""
    cut = [np.isin(rows, one.cut) for one, rows in zip(ranks, places, strict=True)]
    kept = ~np.any(cut, axis=0)
    return [rows[kept] for rows in places]


def _fitting(
    ranks: Sequence[RankSummary], kinds: list[_KindOfGroup], places: list[Rows]
) -> int:
    """The kind of groups in which these ends lie together; -1 if that cannot be
    told."""
    if not len(places[0]):
        return -1
    rows = list(zip((one.collectives for one in ranks), places, strict=True))
    start = np.stack([found.start[own] for found, own in rows])
    end = np.stack([found.end[own] for found, own in rows])
    spreads = np.array([kind.spread(start, end) for kind in kinds])
    near = np.isfinite(spreads) & (spreads <= max(ALIKE * spreads.min(), LEAST_NS))
    fits = np.flatnonzero(near).tolist()
    most = max((kinds[n].size for n in fits), default=0)
    largest = [n for n in fits if kinds[n].size == most]
    return largest[0] if len(largest) == 1 else -1


def _named(
    one: RankSummary, kinds: Sequence[_KindOfGroup], rank: int, chosen: Rows
) -> RankSummary:
    """The rank with the groups of these kinds, where one was chosen."""
    told = chosen >= 0
    if not told.any():
        return one
    own = [kind.of_rank[rank] for kind in kinds]
    groups = tuple(dict.fromkeys((*one.groups, *own)))
    numbers = np.array(list(map(groups.index, own)))
    group = np.where(told, numbers[np.maximum(chosen, 0)], one.collectives.group)
    collectives = replace(one.collectives, group=group)
    return replace(
        one, groups=groups, collectives=collectives, inferred=(*one.inferred, BY_ENDS)
    )


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
    given, strange = {one.rank for one in ranks}, 0
    for one, peer in zip(ranks, peers, strict=True):
        strange += int(
            ((peer == one.rank) | ((peer < 0) & (one.collectives.peer >= 0))).sum()
        )
        for number in np.flatnonzero(peer >= 0).tolist():
            name, other = one.name_of(number), int(peer[number])
            if name in POINT_TO_POINT and other in given:
                sends = name == "send" or (name == "send_recv" and one.rank < other)
                pair = (one.rank, other) if sends else (other, one.rank)
                balance["both" if name == "send_recv" else "one", *pair] += (
                    1 if sends else -1
                )
    return sum(map(abs, balance.values())) + strange
