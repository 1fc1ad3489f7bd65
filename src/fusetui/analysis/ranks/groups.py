"""Infers the process group of collectives, and the peer of sends and receives, if their
args lack them.

Collectives of gloo, and those of NCCL in old files, name no process group. The file
only lists the groups to which its rank belongs. Every rank runs the same program, so
the n-th collective of a step belongs to the same *kind of group* on all ranks, such as
the groups of tensor parallelism. A collective ends at nearly the same time on all its
ranks, and on none before it has started on all. Of the kinds that fit this in all
steps, the one with the largest groups is taken. If several are as large, or if clocks
cannot be compared, the group stays unknown.

A recorded peer is a rank within the process group, or by some writers a rank of the
job. The reading is taken in which more sends and receives pair up.
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
from fusetui.analysis.ranks.matching import StepKey, make_step_keys
from fusetui.analysis.ranks.model import NO_PEER, RankSummary
from fusetui.trace.model.arrays import Int64s, Rows

BY_ENDS = (
    "process groups of collectives (from their end times on the ranks that the files "
    "list)"
)
MAX_SPREAD_RATIO = 2.0
"""Ends lie as close together as in the best kind, up to this factor."""
SMALL_SPREAD_NS = 100_000.0
"""Ends that lie closer than this are as good as the best."""
UNCHOSEN = -1


class _KindOfGroup(msgspec.Struct, frozen=True):
    """Groups of one kind, such as those of tensor parallelism: each rank is in one.

    In the files it is the n-th group that each rank lists.
    """

    group_of_rank: tuple[ProcessGroup, ...]  # by the index of the rank
    # the indices of the given ranks of each group, without groups of one given rank
    members: tuple[list[int], ...]

    @property
    def size(self) -> int:
        """How many ranks the largest of the groups has."""
        return max(group.size for group in self.group_of_rank)

    def measure_spread_ns(self, start: Int64s, end: Int64s) -> float:
        """Measure how far the ends of collectives lie apart within these groups.

        If collectives are of this kind of group, they end at nearly the same time on
        the ranks of a group.

        Args:
            start: The starts of the collectives, of shape [ranks, collectives].
            end: Their ends, in the same shape.

        Returns:
            The mean ns over all groups; inf if a collective ends on one rank before it
            has started on another one of its group, which cannot be. Also inf if no
            group has two given ranks.
        """
        mean_spreads_ns: list[float] = []
        for ranks in self.members:
            first_end = end[ranks].min(axis=0)
            last_end = end[ranks].max(axis=0)
            last_start = start[ranks].max(axis=0)
            starts_after_end = last_start - first_end > SLACK_NS
            if starts_after_end.any():
                return float("inf")
            mean_spreads_ns.append(float((last_end - first_end).mean()))
        if not mean_spreads_ns:
            return float("inf")
        return float(np.mean(mean_spreads_ns))


def infer_groups(ranks: Sequence[RankSummary]) -> tuple[RankSummary, ...]:
    """Return the ranks with the process groups of their collectives, if inferable.

    The groups are inferred from the times at which collectives end, so the ranks must
    share a clock: all of them have to be of one named host. Otherwise, and if nothing
    has to be inferred, the ranks are returned as they are.

    Args:
        ranks: The summaries of the ranks.
    """
    without_group = [_find_collectives_without_group(summary) for summary in ranks]
    some_have_no_group = any(len(collectives) for collectives in without_group)
    hosts = {summary.host for summary in ranks}
    has_unknown_host = "" in hosts
    have_one_clock = len(ranks) > 1 and len(hosts) == 1 and not has_unknown_host
    if not some_have_no_group or not have_one_clock:
        return tuple(ranks)

    kinds = _list_kinds(ranks)
    if not kinds:
        return tuple(ranks)

    kinds_of_ranks = _choose_kinds(ranks, kinds, without_group)
    with_groups = []
    for index, summary in enumerate(ranks):
        group_of_kind = [kind.group_of_rank[index] for kind in kinds]
        with_groups.append(_set_groups(summary, group_of_kind, kinds_of_ranks[index]))
    return tuple(with_groups)


def _choose_kinds(
    ranks: Sequence[RankSummary],
    kinds: Sequence[_KindOfGroup],
    without_group: Sequence[Rows],
) -> list[Rows]:
    """Choose the kind of group of each collective of each rank.

    A kind of group is, e.g., the groups of tensor parallelism. Every rank runs the same
    program, so the kind is the same for the n-th collective of a step on all ranks and
    in all steps of the same program.

    Args:
        ranks: The ranks.
        kinds: The kinds to choose from.
        without_group: For each rank the collectives whose group is unknown.

    Returns:
        For each rank an index into `kinds` per collective; UNCHOSEN where the group is
        known, and where it cannot be inferred.
    """
    kinds_of_ranks = []
    for summary in ranks:
        unchosen = np.full(len(summary.collectives), UNCHOSEN, dtype=np.intp)
        kinds_of_ranks.append(unchosen)

    for same_position in _iterate_program_positions(ranks, without_group):
        uncut = _drop_cut_steps(ranks, same_position)
        kind = _choose_fitting_kind(ranks, kinds, uncut)
        for kind_of_collective, collectives in zip(
            kinds_of_ranks, same_position, strict=True
        ):
            kind_of_collective[collectives] = kind
    return kinds_of_ranks


def _find_collectives_without_group(summary: RankSummary) -> Rows:
    """Find the collectives of a rank whose process group is unknown, and return their
    indices.

    Sends and receives are left out; they name the other rank instead of a group.
    """
    collectives = summary.collectives
    unknown_groups = []
    for index, group in enumerate(summary.groups):
        if group == UNKNOWN_GROUP:
            unknown_groups.append(index)
    send_names = []
    for index, name in enumerate(summary.names):
        if name in POINT_TO_POINT:
            send_names.append(index)

    has_unknown_group = np.isin(collectives.group, unknown_groups)
    is_send = np.isin(collectives.name, send_names)
    return np.flatnonzero(has_unknown_group & ~is_send)


def _list_kinds(ranks: Sequence[RankSummary]) -> list[_KindOfGroup]:
    """List the kinds of groups that the files of all ranks list, in their order.

    A kind is, e.g., all groups of tensor parallelism. The n-th groups that the ranks
    list are of one kind. Returns none if the ranks list different numbers of groups, or
    if a group is not listed by all of its ranks.
    """
    groups_of_ranks = [_list_groups_with_others(summary) for summary in ranks]
    group_counts = {len(groups) for groups in groups_of_ranks}
    if len(group_counts) != 1:
        return []

    index_of_rank = {summary.rank: index for index, summary in enumerate(ranks)}
    kinds: list[_KindOfGroup] = []
    for nth_group_of_ranks in zip(*groups_of_ranks, strict=True):
        kind = _make_kind(nth_group_of_ranks, index_of_rank)
        if kind is None:
            return []
        kinds.append(kind)
    return kinds


def _list_groups_with_others(summary: RankSummary) -> list[ProcessGroup]:
    """List the process groups of several ranks to which a rank belongs, as its file
    lists them."""
    groups = []
    for group in summary.groups:
        if group.size > 1 and summary.rank in group.ranks:
            groups.append(group)
    return groups


def _make_kind(
    group_of_rank: tuple[ProcessGroup, ...], index_of_rank: Mapping[int, int]
) -> _KindOfGroup | None:
    """Make a kind of group from the groups that ranks list at the same position.

    E.g. if ranks 0 and 1 list the group (0, 1), and ranks 2 and 3 the group (2, 3),
    these two groups are one kind.

    Args:
        group_of_rank: The group of each rank.
        index_of_rank: The index of each given rank, by its number.

    Returns:
        The kind; None if the ranks of one group do not all list it.
    """
    members_of_group: dict[tuple[int, ...], list[int]] = {}
    for group in group_of_rank:
        members = [index_of_rank[rank] for rank in group.ranks if rank in index_of_rank]
        members_of_group[group.ranks] = members

    for group_ranks, members in members_of_group.items():
        for member in members:
            if group_of_rank[member].ranks != group_ranks:
                return None

    with_several = [
        members for members in members_of_group.values() if len(members) > 1
    ]
    return _KindOfGroup(group_of_rank=group_of_rank, members=tuple(with_several))


def _iterate_program_positions(
    ranks: Sequence[RankSummary], without_group: Sequence[Rows]
) -> Iterator[list[Rows]]:
    """Yield the collectives that are at the same position of the program.

    Steps with the same sequence of collectives run the same program. The n-th
    collective is at the same position in all of them, on all ranks.

    Args:
        ranks: The ranks.
        without_group: For each rank the collectives whose group is unknown.

    Yields:
        For each rank the indices of such collectives, one per step.
    """
    # For each program its steps; for each step the collectives of each rank.
    steps_of_program: dict[_Program, list[list[list[int]]]] = {}
    for collectives_by_rank in _sort_collectives_by_step(ranks, without_group):
        collectives_of_step: list[list[int]] = []
        programs: set[_Program] = set()
        for index, summary in enumerate(ranks):
            collectives = collectives_by_rank.get(index, [])
            collectives_of_step.append(collectives)
            programs.add(_describe_program(summary, collectives))

        # A step in which ranks ran different programs is left out.
        is_same_on_all_ranks = len(programs) == 1
        if is_same_on_all_ranks:
            program = programs.pop()
            steps_of_program.setdefault(program, []).append(collectives_of_step)

    for steps in steps_of_program.values():
        table = np.array(steps, dtype=np.intp)  # [steps, ranks, positions]
        position_count = table.shape[2]
        for position in range(position_count):
            yield [table[:, rank, position] for rank in range(len(ranks))]


_Program = tuple[tuple[str, int], ...]
"""Names and sizes of the collectives of a step."""


def _describe_program(summary: RankSummary, collectives: Sequence[int]) -> _Program:
    """Describe some collectives of a rank by their names and sizes, to compare ranks
    and steps.

    Steps whose collectives have the same names and sizes count as runs of the same
    program.

    Args:
        summary: The rank.
        collectives: The indices of its collectives, in the order of issue.
    """
    size = summary.collectives.size
    return tuple((summary.name_of(index), int(size[index])) for index in collectives)


def _sort_collectives_by_step(
    ranks: Sequence[RankSummary], without_group: Sequence[Rows]
) -> list[dict[int, list[int]]]:
    """Sort collectives by the step in which they were issued, and by rank.

    Args:
        ranks: The ranks.
        without_group: For each rank the collectives whose group is unknown.

    Returns:
        For each step, and for the time before the first one: the indices of the
        collectives of each rank, by the index of the rank.
    """
    before_first_step: StepKey = ()
    collectives_of_step: dict[StepKey, dict[int, list[int]]] = {}
    for rank, (summary, collectives) in enumerate(
        zip(ranks, without_group, strict=True)
    ):
        keys = make_step_keys(summary)
        issued = summary.collectives.issued[collectives]

        # For each collective, how many steps had begun when it was issued.
        steps_begun = np.searchsorted(summary.step_start, issued, side="right")
        for collective, begun_count in zip(
            collectives.tolist(), steps_begun.tolist(), strict=True
        ):
            key = before_first_step
            if begun_count:
                key = keys[begun_count - 1]
            collectives_by_rank = collectives_of_step.setdefault(key, {})
            collectives_by_rank.setdefault(rank, []).append(collective)
    return list(collectives_of_step.values())


def _drop_cut_steps(
    ranks: Sequence[RankSummary], collectives_of_ranks: Sequence[Rows]
) -> list[Rows]:
    """Leave out the steps in which a recording cuts the collective of some rank.

    The start or the end of a cut collective is not known.

    Args:
        ranks: The ranks.
        collectives_of_ranks: For each rank its collectives at one position of the
            program, one per step.

    Returns:
        For each rank the collectives of the other steps.
    """
    step_count = len(collectives_of_ranks[0])
    is_cut_step = np.zeros(step_count, dtype=np.bool_)
    for summary, collectives in zip(ranks, collectives_of_ranks, strict=True):
        is_cut_collective = np.isin(collectives, summary.cut)
        is_cut_step |= is_cut_collective
    return [collectives[~is_cut_step] for collectives in collectives_of_ranks]


def _choose_fitting_kind(
    ranks: Sequence[RankSummary],
    kinds: Sequence[_KindOfGroup],
    collectives_of_ranks: Sequence[Rows],
) -> int:
    """Choose the kind of group in which the ends of collectives lie together.

    Args:
        ranks: The ranks.
        kinds: The kinds to choose from.
        collectives_of_ranks: For each rank its collectives at one position of the
            program, one per step.

    Returns:
        The index of the kind with the largest groups of those that fit. UNCHOSEN if
        none fits, or if several are as large.
    """
    if not len(collectives_of_ranks[0]):
        return UNCHOSEN

    starts: list[Int64s] = []
    ends: list[Int64s] = []
    for summary, collectives in zip(ranks, collectives_of_ranks, strict=True):
        starts.append(summary.collectives.start[collectives])
        ends.append(summary.collectives.end[collectives])

    # Tables of shape [ranks, steps].
    start_table = np.stack(starts)
    end_table = np.stack(ends)
    spreads_ns = [kind.measure_spread_ns(start_table, end_table) for kind in kinds]
    max_spread_ns = max(MAX_SPREAD_RATIO * min(spreads_ns), SMALL_SPREAD_NS)
    size_of_fitting: dict[int, int] = {}
    for index, (kind, spread_ns) in enumerate(zip(kinds, spreads_ns, strict=True)):
        if np.isfinite(spread_ns) and spread_ns <= max_spread_ns:
            size_of_fitting[index] = kind.size

    largest_size = max(size_of_fitting.values(), default=0)
    largest_kinds = []
    for index, size in size_of_fitting.items():
        if size == largest_size:
            largest_kinds.append(index)
    is_decided = len(largest_kinds) == 1
    return largest_kinds[0] if is_decided else UNCHOSEN


def _set_groups(
    summary: RankSummary, group_of_kind: Sequence[ProcessGroup], kind: Rows
) -> RankSummary:
    """Return a rank with the groups that were chosen for its collectives.

    Args:
        summary: The rank.
        group_of_kind: Its group of each kind.
        kind: The kind of each collective; UNCHOSEN for one that keeps its group.
    """
    is_chosen = kind != UNCHOSEN
    if not is_chosen.any():
        return summary

    # Collectives refer to groups by their indices, so the groups have to be listed.
    groups = list(dict.fromkeys((*summary.groups, *group_of_kind)))  # each once
    index_of_kind = np.array([groups.index(group) for group in group_of_kind])
    chosen_kind = kind[is_chosen]
    group_index = summary.collectives.group.copy()
    group_index[is_chosen] = index_of_kind[chosen_kind]
    return replace(
        summary,
        groups=tuple(groups),
        collectives=replace(summary.collectives, group=group_index),
        inferred=(*summary.inferred, BY_ENDS),
    )


def resolve_peers(ranks: Sequence[RankSummary]) -> tuple[RankSummary, ...]:
    """Return the ranks with the peers of sends and receives as ranks of the job.

    A peer is the other rank of a send or receive. Some writers record it as a rank
    within the process group, others as a rank of the job. The reading is taken in which
    more sends and receives pair up.

    Args:
        ranks: The summaries of the ranks.
    """
    as_in_group = [_translate_peers(summary) for summary in ranks]
    as_in_job = [summary.collectives.peer for summary in ranks]
    both_are_equal = all(map(np.array_equal, as_in_group, as_in_job))
    if both_are_equal:
        return tuple(ranks)

    peers_of_ranks = as_in_group
    if _count_unpaired(ranks, as_in_job) < _count_unpaired(ranks, as_in_group):
        peers_of_ranks = as_in_job
    with_peers = []
    for summary, peer in zip(ranks, peers_of_ranks, strict=True):
        collectives = replace(summary.collectives, peer=peer)
        with_peers.append(replace(summary, collectives=collectives))
    return tuple(with_peers)


def _translate_peers(summary: RankSummary) -> Int64s:
    """Translate the peers of a rank from ranks within groups to ranks of the job.

    E.g. rank 1 of a group of the ranks 4 and 6 is rank 6 of the job.

    Returns:
        The peer of each collective; NO_PEER where a group has no such rank. Peers of
        groups whose ranks are not known stay as they are.
    """
    collectives = summary.collectives
    peer_in_job = collectives.peer.copy()
    for group_index, group in enumerate(summary.groups):
        if not group.ranks:
            continue
        is_of_group = (collectives.group == group_index) & collectives.has_peer
        peer_in_group = collectives.peer[is_of_group]

        # A number that is too large for the group finds NO_PEER, behind its ranks.
        job_ranks = np.array([*group.ranks, NO_PEER])
        beyond_group = len(group.ranks)
        index_in_group = np.minimum(peer_in_group, beyond_group)
        peer_in_job[is_of_group] = job_ranks[index_in_group]
    return peer_in_job


def _count_unpaired(ranks: Sequence[RankSummary], peers: Sequence[Int64s]) -> int:
    """Count the sends and receives that would have no counterpart.

    These are sends without a receive, receives without a send, and those whose peer is
    impossible: the rank itself, or none although one was recorded. Sends to ranks whose
    traces are not given are not counted.

    Args:
        ranks: The ranks.
        peers: For each rank the assumed peer of each collective, a rank of the job.
    """
    given_ranks = {summary.rank for summary in ranks}
    sends_less_receives: Counter[_Link] = Counter()
    impossible = 0
    for summary, peer in zip(ranks, peers, strict=True):
        is_itself = peer == summary.rank
        is_lost = (peer == NO_PEER) & summary.collectives.has_peer
        impossible += int(np.count_nonzero(is_itself | is_lost))
        for collective in np.flatnonzero(peer != NO_PEER).tolist():
            name = summary.name_of(collective)
            other_rank = int(peer[collective])
            if name in POINT_TO_POINT and other_rank in given_ranks:
                _count_on_link(sends_less_receives, name, summary.rank, other_rank)

    unpaired = sum(abs(surplus) for surplus in sends_less_receives.values())
    return unpaired + impossible


class _Link(msgspec.Struct, frozen=True):
    """A pair of ranks between which data is sent."""

    sender: int
    receiver: int
    is_both: bool  # one kernel sends and receives; the lower rank counts as the sender


def _count_on_link(
    sends_less_receives: Counter[_Link], name: str, rank: int, peer: int
) -> None:
    """Count a send as 1 and a receive as -1, so that a send and its receive cancel.

    A kernel that does both counts as a send on the lower rank, and as a receive on the
    other one.

    Args:
        sends_less_receives: The count of each link, which is changed in place.
        name: The name of the collective: send, recv or send_recv.
        rank: The rank that runs it.
        peer: The other rank.
    """
    does_both = name == "send_recv"
    if does_both:
        is_sender = rank < peer
    else:
        is_sender = name == "send"

    if is_sender:
        link = _Link(sender=rank, receiver=peer, is_both=does_both)
        sends_less_receives[link] += 1
    else:
        link = _Link(sender=peer, receiver=rank, is_both=does_both)
        sends_less_receives[link] -= 1
