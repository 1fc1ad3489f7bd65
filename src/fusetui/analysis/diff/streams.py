"""Streams that share one sequence of work: work may alternate between them from kernel
to kernel or from step to step, and which of them runs what is no change of the
program."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import msgspec
import numpy as np

from fusetui.analysis.diff.items import WorkItems
from fusetui.analysis.diff.work import Work
from fusetui.trace.model.grouping import by_key

MIN_SHARE_OF_PARTNERS_WORK = 0.5
"""A lane shares the work of a lane that has a partner already if so much of the smaller
of the two is in common."""

MIN_COMMON_PIECES = 4
"""Lanes with fewer pieces of work in common in a step are no partners: a kernel or two
may have moved to another stream."""

MAX_COMPARED_LANES = 8  # of each side, the largest


def alternating(items: WorkItems) -> Work | None:
    """The work of a side in which all streams that run more pieces in one step than in
    another are one lane; None if there are no two such, or if all steps are alike."""
    work = items.work
    if len(items.alike) == len(work.windows):
        return None
    lanes, lane_of_piece = np.unique(work.lane, return_inverse=True)
    pieces_in_step = np.zeros((len(lanes), len(work.windows)), dtype=np.int64)
    np.add.at(pieces_in_step, (lane_of_piece, work.window), 1)
    uneven = lanes[np.ptp(pieces_in_step, axis=1) > 0].tolist()
    return _with_merged_lanes(work, [uneven]) if len(uneven) > 1 else None


class _Lane(msgspec.Struct, frozen=True, order=True):
    """A lane of side 0, A, or 1, B."""

    side: int
    number: int


def shared(a: WorkItems, b: WorkItems) -> tuple[Work, Work]:
    """The work of A and of B, in which lanes of a side are one where the other side does
    their work on one lane. Each is the very record that it was if no lanes became one.

    Lanes with the most pieces in common are partners, and these pieces are matched.
    What is unmatched decides on the others, until no two lanes have enough in common:
    MIN_COMMON_PIECES or, where one of them has a partner already, also
    MIN_SHARE_OF_PARTNERS_WORK of the smaller lane.
    """
    unmatched = _kernels_by_lane(0, a) | _kernels_by_lane(1, b)
    sizes = {lane: kernels.total() for lane, kernels in unmatched.items()}
    lanes_a = [lane for lane in unmatched if lane.side == 0]
    lanes_b = [lane for lane in unmatched if lane.side == 1]
    partners = {lane: {lane} for lane in unmatched}  # one set for all that are partners
    pairs = [(lane_a, lane_b) for lane_a in lanes_a for lane_b in lanes_b]
    pairs.sort()
    while pairs:
        common_pieces = [
            (unmatched[lane_a] & unmatched[lane_b]).total() for lane_a, lane_b in pairs
        ]
        best = max(range(len(pairs)), key=common_pieces.__getitem__)
        lane_a, lane_b = pairs.pop(best)
        min_pieces: float = MIN_COMMON_PIECES
        if len(partners[lane_a]) > 1 or len(partners[lane_b]) > 1:
            smaller = min(sizes[lane_a], sizes[lane_b])
            min_pieces = max(min_pieces, MIN_SHARE_OF_PARTNERS_WORK * smaller)
        if common_pieces[best] < min_pieces:
            continue
        common = unmatched[lane_a] & unmatched[lane_b]
        unmatched[lane_a] -= common
        unmatched[lane_b] -= common
        merged = partners[lane_a] | partners[lane_b]
        for lane in merged:
            partners[lane] = merged
    merged_a = [_lanes_of(0, group) for group in partners.values()]
    merged_b = [_lanes_of(1, group) for group in partners.values()]
    return _with_merged_lanes(a.work, merged_a), _with_merged_lanes(b.work, merged_b)


def as_one(before: Work, after: Work) -> list[list[int]]:
    """The lanes that became one, a list of their numbers for each such lane. `after` is
    the same work as `before`, with some of its lanes as one."""
    lane_before = dict(zip(before.row.tolist(), before.lane.tolist(), strict=True))
    lanes_of_merged: defaultdict[int, set[int]] = defaultdict(set)
    for row, lane in zip(after.row.tolist(), after.lane.tolist(), strict=True):
        lanes_of_merged[lane].add(lane_before[row])
    return [sorted(lanes) for lanes in lanes_of_merged.values() if len(lanes) > 1]


def _kernels_by_lane(side: int, items: WorkItems) -> dict[_Lane, Counter[int]]:
    """How often each of the MAX_COMPARED_LANES largest lanes of a side runs each kernel
    under one op in the representative step: {lane: {exact key: times}}."""
    items_of_lane = by_key(range(len(items)), items.lane.tolist().__getitem__)
    largest_first = sorted(
        items_of_lane, key=lambda lane: (-len(items_of_lane[lane]), lane)
    )
    kernels = {}
    for number in largest_first[:MAX_COMPARED_LANES]:
        keys = items.exact[items_of_lane[number]].tolist()
        kernels[_Lane(side=side, number=number)] = Counter(keys)
    return kernels


def _lanes_of(side: int, lanes: Iterable[_Lane]) -> list[int]:
    """The numbers of the lanes of a side among these, ascending."""
    return sorted(lane.number for lane in lanes if lane.side == side)


def _with_merged_lanes(work: Work, groups: Iterable[list[int]]) -> Work:
    """The same work with the lanes of each group as the first one of them; the very
    same record if no group has two."""
    lane = work.lane
    for lanes in groups:
        if len(lanes) > 1:
            lane = np.where(np.isin(lane, lanes), lanes[0], lane)
    return work if lane is work.lane else work.with_lanes(lane)
