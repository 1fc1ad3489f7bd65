"""Of which process group a collective is, and with which rank a send or a receive, where its own
args do not say it.

Collectives of gloo, and those of NCCL in old files, name no group; the file lists those that its
rank belongs to. Every rank runs the same program, so the n-th collective of a step is of the same
kind of group on all of them. A collective ends on all its ranks at nearly the same time, and on
none before it has started on all: of the kinds that fit in all steps, the one with the largest
groups is taken. Where several are as large, or clocks cannot be compared, it cannot be told.

The peer that is recorded is a number in the process group, by some writers in the job: the reading
in which sends and receives pair up is taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.analysis.questions.collectives import POINT_TO_POINT
from fusetui.analysis.questions.process_groups import UNKNOWN_GROUP, Group
from fusetui.analysis.ranks.clocks import SLACK_NS
from fusetui.analysis.ranks.matching import step_keys
from fusetui.analysis.ranks.model import RankSummary
from fusetui.trace.model.columns import Int64s, Rows

BY_ENDS = "process groups of collectives, from when they end on the ranks that the files list"
ALIKE = 2.0  # ends lie as close together as in the best kind, up to this factor
LEAST_NS = 100_000.0  # and ends that lie closer than this are as good as the best


class _Kind(msgspec.Struct, frozen=True):
    """Groups that each rank is in one of, as of tensor parallelism: the n-th of each rank."""

    of_rank: tuple[Group, ...]
    members: tuple[tuple[int, ...], ...]  # indices of the ranks of each group
    size: int


def with_groups(ranks: Sequence[RankSummary]) -> tuple[RankSummary, ...]:
    """The ranks, with the groups of their collectives where these can be told."""
    unknown = [_unknown(one) for one in ranks]
    if not any(len(rows) for rows in unknown):
        return tuple(ranks)
    kinds = _kinds(ranks)
    hosts = {one.host for one in ranks}
    if not kinds or len(ranks) < 2 or len(hosts) > 1 or "" in hosts:
        return tuple(ranks)
    chosen = [np.full(len(one.collectives), -1, dtype=np.intp) for one in ranks]
    for places in _alike(ranks, unknown):
        kind = _fitting(ranks, kinds, places)
        for own, rows in zip(chosen, places, strict=True):
            own[rows] = kind
    return tuple(_named(one, kinds, n, chosen[n]) for n, one in enumerate(ranks))


def _unknown(one: RankSummary) -> Rows:
    """Numbers of collectives; sends and receives have a peer instead."""
    found = one.collectives
    which = np.array([group == UNKNOWN_GROUP for group in one.groups] or [False])
    sends = np.array([name in POINT_TO_POINT for name in one.names] or [False])
    return np.flatnonzero(which[found.group] & ~sends[found.name])


def _kinds(ranks: Sequence[RankSummary]) -> list[_Kind]:
    """The kinds of groups in the order in which all ranks list them; none if they disagree."""
    listed = [
        [group for group in one.groups if group.size > 1 and one.rank in group.ranks]
        for one in ranks
    ]
    if len({len(groups) for groups in listed}) != 1:
        return []
    index = {one.rank: n for n, one in enumerate(ranks)}
    found = []
    for of_rank in zip(*listed, strict=True):
        own = {group.ranks: group for group in of_rank}
        closed = all(
            of_rank[index[rank]].ranks == group.ranks
            for group in of_rank
            for rank in group.ranks
            if rank in index
        )
        if not closed:
            return []
        members = [tuple(index[rank] for rank in ranks if rank in index) for ranks in own]
        size = max(group.size for group in of_rank)
        found.append(_Kind(of_rank, tuple(one for one in members if len(one) > 1), size))
    return found


def _alike(ranks: Sequence[RankSummary], unknown: Sequence[Rows]) -> Iterator[list[Rows]]:
    """The rows of each rank that are the same place of the program: of all steps with the same
    collectives, those that are the n-th there."""
    places: dict[tuple[object, ...], list[list[int]]] = {}
    steps: dict[object, dict[int, list[int]]] = {}
    for rank, (one, rows) in enumerate(zip(ranks, unknown, strict=True)):
        for row, key in zip(rows.tolist(), _steps_of(one, rows), strict=True):
            steps.setdefault(key, {}).setdefault(rank, []).append(row)
    for by_rank in steps.values():
        programs = {rank: _program(ranks[rank], rows) for rank, rows in by_rank.items()}
        first = programs.get(0)
        if len(by_rank) < len(ranks) or any(own != first for own in programs.values()):
            continue
        for n in range(len(by_rank[0])):
            own = places.setdefault((first, n), [[] for _ in ranks])
            for rank, listed in by_rank.items():
                own[rank].append(listed[n])
    for found in places.values():
        yield [np.array(numbers, dtype=np.intp) for numbers in found]


def _steps_of(one: RankSummary, rows: Rows) -> list[object]:
    keys: list[object] = [*step_keys(one), None]
    at = np.searchsorted(one.step_start, one.collectives.issued[rows], side="right") - 1
    return [keys[n] for n in at.tolist()]


def _program(one: RankSummary, rows: Sequence[int]) -> tuple[tuple[str, int], ...]:
    sizes = one.collectives.size
    return tuple((one.name_of(row), int(sizes[row])) for row in rows)


def _fitting(ranks: Sequence[RankSummary], kinds: Sequence[_Kind], places: list[Rows]) -> int:
    """The kind of groups in which these ends lie together; -1 if that cannot be told."""
    rows = zip(ranks, places, strict=True)
    columns = [(one.collectives.start[own], one.collectives.end[own]) for one, own in rows]
    start, end = (np.stack(column) for column in zip(*columns, strict=True))
    spreads = np.array([_spread(kind, start, end) for kind in kinds])
    best = float(spreads.min())
    if not np.isfinite(best):
        return -1
    fits = np.flatnonzero(spreads <= max(ALIKE * best, LEAST_NS))
    sizes = np.array([kinds[n].size for n in fits.tolist()])
    largest = fits[sizes == sizes.max()]
    return int(largest[0]) if len(largest) == 1 else -1


def _spread(kind: _Kind, start: Int64s, end: Int64s) -> float:
    """How far the ends of a group lie apart, the mean of all; inf if one ends before another one
    has started."""
    found = []
    for members in kind.members:
        own = list(members)
        if (start[own].max(axis=0) - end[own].min(axis=0) > SLACK_NS).any():
            return float("inf")
        found.append(float((end[own].max(axis=0) - end[own].min(axis=0)).mean()))
    return float(np.mean(found)) if found else float("inf")


def _named(one: RankSummary, kinds: Sequence[_Kind], rank: int, chosen: Rows) -> RankSummary:
    """The rank with the groups of these kinds, where one was chosen."""
    groups = list(dict.fromkeys((*one.groups, *(kind.of_rank[rank] for kind in kinds))))
    numbers = np.array([groups.index(kind.of_rank[rank]) for kind in kinds])
    told = chosen >= 0
    if not told.any():
        return one
    group = np.where(told, numbers[np.maximum(chosen, 0)], one.collectives.group)
    return replace(
        one,
        groups=tuple(groups),
        collectives=replace(one.collectives, group=group),
        inferred=(*one.inferred, BY_ENDS),
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
