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
from collections.abc import Iterator, Mapping, Sequence

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
MAX_SPREAD_RATIO = 2.0
"""Ends lie as close together as in the best kind, up to this factor."""
SMALL_SPREAD_NS = 100_000.0
"""Ends that lie closer than this are as good as the best."""
UNCHOSEN = -1
NO_PEER = -1


class _KindOfGroup(msgspec.Struct, frozen=True):
    """Groups that each rank is in one of, as of tensor parallelism: the n-th of each
    rank."""

    of_rank: tuple[ProcessGroup, ...]
    members: tuple[list[int], ...]  # indices of the ranks of each group

    @property
    def size(self) -> int:
        """How many ranks the largest of them has."""
        return max(group.size for group in self.of_rank)

    def spread_ns(self, start: Int64s, end: Int64s) -> float:
        """How far the ends of a group lie apart, the mean of all; inf if one ends
        before another one has started. `start` and `end`: [ranks, collectives]."""
        spreads: list[float] = []
        for ranks in self.members:
            first_end = end[ranks].min(axis=0)
            last_end = end[ranks].max(axis=0)
            last_start = start[ranks].max(axis=0)
            if (last_start - first_end > SLACK_NS).any():
                return float("inf")
            spreads.append(float((last_end - first_end).mean()))
        return float(np.mean(spreads)) if spreads else float("inf")


def with_groups(ranks: Sequence[RankSummary]) -> tuple[RankSummary, ...]:
    """The ranks, with the groups of their collectives where these can be told."""
    unknown = [_without_group(summary) for summary in ranks]
    hosts = {summary.host for summary in ranks}
    has_one_clock = len(ranks) > 1 and len(hosts) == 1 and "" not in hosts
    if not has_one_clock or not any(len(numbers) for numbers in unknown):
        return tuple(ranks)
    kinds = _kinds(ranks)
    if not kinds:
        return tuple(ranks)
    chosen = _chosen_kinds(ranks, kinds, unknown)
    with_chosen = []
    for index, summary in enumerate(ranks):
        group_of_kind = [kind.of_rank[index] for kind in kinds]
        with_chosen.append(_with_chosen(summary, group_of_kind, chosen[index]))
    return tuple(with_chosen)


def _chosen_kinds(
    ranks: Sequence[RankSummary],
    kinds: Sequence[_KindOfGroup],
    unknown: Sequence[Rows],
) -> list[Rows]:
    """Of each rank the kind of group of each of its collectives, an index in `kinds`;
    UNCHOSEN where it cannot be told, and where the group is known. `unknown`: of each
    rank the collectives whose group is not known."""
    chosen = []
    for summary in ranks:
        size = len(summary.collectives)
        chosen.append(np.full(size, UNCHOSEN, dtype=np.intp))
    for numbers_of_ranks in _same_places(ranks, unknown):
        whole = _without_cut_ones(ranks, numbers_of_ranks)
        kind = _fitting_kind(ranks, kinds, whole)
        for kind_of_collective, numbers in zip(chosen, numbers_of_ranks, strict=True):
            kind_of_collective[numbers] = kind
    return chosen


def _without_group(summary: RankSummary) -> Rows:
    """The numbers of the collectives whose group is not known, without sends and
    receives, which have a peer instead."""
    collectives = summary.collectives
    is_unknown_group = [group == UNKNOWN_GROUP for group in summary.groups]
    is_send_name = [name in POINT_TO_POINT for name in summary.names]
    # one entry at least each, so that they can be indexed where there is none
    is_unknown = np.array(is_unknown_group or [False])[collectives.group]
    is_send = np.array(is_send_name or [False])[collectives.name]
    return np.flatnonzero(is_unknown & ~is_send)


def _kinds(ranks: Sequence[RankSummary]) -> list[_KindOfGroup]:
    """The kinds of groups in the order in which all ranks list them; none if they
    disagree."""
    listed = [_groups_with_others(summary) for summary in ranks]
    if len({len(groups) for groups in listed}) != 1:
        return []
    index_of = {summary.rank: index for index, summary in enumerate(ranks)}
    kinds: list[_KindOfGroup] = []
    for groups_of_ranks in zip(*listed, strict=True):
        kind = _kind(groups_of_ranks, index_of)
        if kind is None:
            return []
        kinds.append(kind)
    return kinds


def _groups_with_others(summary: RankSummary) -> list[ProcessGroup]:
    """The groups that a rank lists and is in, without those of one rank."""
    groups = []
    for group in summary.groups:
        if group.size > 1 and summary.rank in group.ranks:
            groups.append(group)
    return groups


def _kind(
    groups_of_ranks: tuple[ProcessGroup, ...], index_of: Mapping[int, int]
) -> _KindOfGroup | None:
    """The kind of groups of which each rank is in the given one; None if the ranks of
    one group do not all list it. `index_of`: by the number of a rank, its index."""
    members: dict[tuple[int, ...], list[int]] = {}
    for group in groups_of_ranks:
        given = [index_of[rank] for rank in group.ranks if rank in index_of]
        members[group.ranks] = given
    for group_ranks, indices in members.items():
        if any(groups_of_ranks[index].ranks != group_ranks for index in indices):
            return None
    several = tuple(indices for indices in members.values() if len(indices) > 1)
    return _KindOfGroup(of_rank=groups_of_ranks, members=several)


def _same_places(
    ranks: Sequence[RankSummary], unknown: Sequence[Rows]
) -> Iterator[list[Rows]]:
    """The collectives of each rank that are the same place of the program: of all steps
    with the same collectives, those that are the n-th there."""
    steps_of_program: dict[_Program, list[list[list[int]]]] = {}
    for numbers_of_ranks in _numbers_by_step(ranks, unknown).values():
        if len(numbers_of_ranks) < len(ranks):
            continue
        step = [numbers_of_ranks[index] for index in range(len(ranks))]
        programs = [
            _program(summary, numbers)
            for summary, numbers in zip(ranks, step, strict=True)
        ]
        if len(set(programs)) == 1:
            steps_of_program.setdefault(programs[0], []).append(step)
    for steps in steps_of_program.values():
        places = np.array(steps, dtype=np.intp).T  # [places, ranks, steps]
        for numbers_at_place in places:
            yield list(numbers_at_place)


_Program = tuple[tuple[str, int], ...]
"""Names and sizes of the collectives of a step."""


def _program(summary: RankSummary, numbers: Sequence[int]) -> _Program:
    """The names and sizes of these collectives of a rank."""
    size = summary.collectives.size
    return tuple((summary.name_of(number), int(size[number])) for number in numbers)


def _numbers_by_step(
    ranks: Sequence[RankSummary], unknown: Sequence[Rows]
) -> dict[object, dict[int, list[int]]]:
    """By the key of a step, None before the first, and the index of a rank: the numbers
    of its collectives."""
    by_step: dict[object, dict[int, list[int]]] = {}
    for index, (summary, numbers) in enumerate(zip(ranks, unknown, strict=True)):
        before_first = None
        keys = [*step_keys(summary), before_first]
        issued = summary.collectives.issued[numbers]
        step = np.searchsorted(summary.step_start, issued, side="right") - 1
        for number, place in zip(numbers.tolist(), step.tolist(), strict=True):
            by_rank = by_step.setdefault(keys[place], {})
            by_rank.setdefault(index, []).append(number)
    return by_step


def _without_cut_ones(
    ranks: Sequence[RankSummary], numbers_of_ranks: Sequence[Rows]
) -> list[Rows]:
    """These collectives without the steps in which a recording cuts the one of some
    rank."""
    is_cut = [
        np.isin(numbers, summary.cut)
        for summary, numbers in zip(ranks, numbers_of_ranks, strict=True)
    ]
    is_kept = ~np.any(is_cut, axis=0)
    return [numbers[is_kept] for numbers in numbers_of_ranks]


def _fitting_kind(
    ranks: Sequence[RankSummary],
    kinds: Sequence[_KindOfGroup],
    numbers_of_ranks: Sequence[Rows],
) -> int:
    """The kind of groups, an index in `kinds`, in which the ends of these collectives
    lie together: the one with the largest groups of those that fit. UNCHOSEN if none
    fits, or if several are as large."""
    if not len(numbers_of_ranks[0]):
        return UNCHOSEN
    starts: list[Int64s] = []
    ends: list[Int64s] = []
    for summary, numbers in zip(ranks, numbers_of_ranks, strict=True):
        starts.append(summary.collectives.start[numbers])
        ends.append(summary.collectives.end[numbers])
    start = np.stack(starts)
    end = np.stack(ends)
    spreads_ns = [kind.spread_ns(start, end) for kind in kinds]
    max_spread_ns = max(MAX_SPREAD_RATIO * min(spreads_ns), SMALL_SPREAD_NS)
    fitting = []
    for number, spread_ns in enumerate(spreads_ns):
        if np.isfinite(spread_ns) and spread_ns <= max_spread_ns:
            fitting.append(number)
    largest_size = max((kinds[number].size for number in fitting), default=0)
    largest = [number for number in fitting if kinds[number].size == largest_size]
    return largest[0] if len(largest) == 1 else UNCHOSEN


def _with_chosen(
    summary: RankSummary, group_of_kind: Sequence[ProcessGroup], kind_of: Rows
) -> RankSummary:
    """The rank with its groups of these kinds; `kind_of` each collective, or
    UNCHOSEN."""
    is_chosen = kind_of != UNCHOSEN
    if not is_chosen.any():
        return summary
    groups = tuple(dict.fromkeys((*summary.groups, *group_of_kind)))
    number_of_kind = np.array([groups.index(group) for group in group_of_kind])
    chosen = number_of_kind[np.maximum(kind_of, 0)]
    group = np.where(is_chosen, chosen, summary.collectives.group)
    return replace(
        summary,
        groups=groups,
        collectives=replace(summary.collectives, group=group),
        inferred=(*summary.inferred, BY_ENDS),
    )


def with_peers(ranks: Sequence[RankSummary]) -> tuple[RankSummary, ...]:
    """The ranks with the peers of their sends and receives as numbers in the job: peers
    are read as numbers in process groups or in the job, whichever pairs up more."""
    in_group = [_translated(summary) for summary in ranks]
    as_recorded = [summary.collectives.peer for summary in ranks]
    if all(map(np.array_equal, in_group, as_recorded)):
        return tuple(ranks)
    chosen = min((in_group, as_recorded), key=lambda peers: _unpaired(ranks, peers))
    return tuple(
        replace(summary, collectives=replace(summary.collectives, peer=peer))
        for summary, peer in zip(ranks, chosen, strict=True)
    )


def _translated(summary: RankSummary) -> Int64s:
    """The peers of the collectives of a rank, where the recorded ones are numbers in
    groups, as numbers in the job; NO_PEER where a group has no such number."""
    recorded = summary.collectives.peer
    translated = recorded.copy()
    for number, group in enumerate(summary.groups):
        is_in_group = summary.collectives.group == number
        of_group = np.flatnonzero(is_in_group & (recorded >= 0))
        if len(of_group) and group.ranks:
            peer = recorded[of_group]
            is_listed = peer < len(group.ranks)
            rank_of_peer = np.array(group.ranks)[np.where(is_listed, peer, 0)]
            translated[of_group] = np.where(is_listed, rank_of_peer, NO_PEER)
    return translated


def _unpaired(ranks: Sequence[RankSummary], peers: Sequence[Int64s]) -> int:
    """How many sends and receives would have no counterpart if `peers` were those of
    the collectives of each rank: sends without a receive and receives without a send,
    and those whose peer is impossible, which is the rank itself, or none (NO_PEER)
    where one was recorded. Peers that are not among `ranks` count for nothing."""
    given = {summary.rank for summary in ranks}
    sends_less_receives: Counter[_Link] = Counter()
    impossible = 0
    for summary, peer in zip(ranks, peers, strict=True):
        is_itself = peer == summary.rank
        is_lost = (peer < 0) & (summary.collectives.peer >= 0)
        impossible += int((is_itself | is_lost).sum())
        for number in np.flatnonzero(peer >= 0).tolist():
            name = summary.name_of(number)
            other = int(peer[number])
            if name in POINT_TO_POINT and other in given:
                _count(sends_less_receives, name, summary.rank, other)
    return sum(map(abs, sends_less_receives.values())) + impossible


class _Link(msgspec.Struct, frozen=True):
    """From which rank to which one data is sent."""

    sender: int
    receiver: int
    is_both: bool  # one kernel sends and receives; the lower rank counts as the sender


def _count(
    sends_less_receives: Counter[_Link], name: str, rank: int, peer: int
) -> None:
    """Counts a send of `rank` to `peer` as 1 at its link, a receive as -1; of kernels
    that do both, that of the lower rank as the send."""
    is_both = name == "send_recv"
    is_send = rank < peer if is_both else name == "send"
    if is_send:
        link = _Link(sender=rank, receiver=peer, is_both=is_both)
        sends_less_receives[link] += 1
    else:
        link = _Link(sender=peer, receiver=rank, is_both=is_both)
        sends_less_receives[link] -= 1
