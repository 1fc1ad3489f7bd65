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
"""AlignedLanes with fewer pieces of work in common in a step are no partners: a kernel or two
may have moved to another stream."""

MAX_COMPARED_LANES = 8  # of each side, the largest


def alternating(items: WorkItems) -> Work | None:
    """The work of a side in which all streams that run more pieces in one step than in
    another are one lane; None if there are no two such, or if all steps are alike."""
    work = items.work
    if len(items.alike_steps) == len(work.windows):
        return None
    lanes, lane_of_piece = np.unique(work.lane, return_inverse=True)
    pieces_in_step = np.zeros((len(lanes), len(work.windows)), dtype=np.int64)
    np.add.at(pieces_in_step, (lane_of_piece, work.window_of_piece), 1)
    uneven = lanes[np.ptp(pieces_in_step, axis=1) > 0].tolist()
    return _with_merged_lanes(work, [uneven]) if len(uneven) > 1 else None


class _Lane(msgspec.Struct, frozen=True, order=True):
    """A lane of side 0, A, or 1, B."""

    side: int
    number: int


def shared(a: WorkItems, b: WorkItems) -> tuple[Work, Work]:
    """The work of A and of B, in which lanes of a side are one where the other side does
    their work on one lane. Each is the very record that it was if no lanes became one.

    AlignedLanes with the most pieces in common are partners, and these pieces are matched.
    What is unmatched decides on the others, until no two lanes have enough in common:
    MIN_COMMON_PIECES or, where one of them has a partner already, also
    MIN_SHARE_OF_PARTNERS_WORK of the smaller lane.
    """
    partners = _Partners(_kernels_by_lane(0, a) | _kernels_by_lane(1, b))
    pairs = partners.lanes_of_both_sides()
    while pairs:
        closest = max(pairs, key=partners.common_pieces)  # the first of equals
        pairs.remove(closest)
        if partners.common_pieces(closest) >= partners.min_pieces(closest):
            partners.join(closest)
    merged_a = [_lanes_of(0, lanes) for lanes in partners.of_lane.values()]
    merged_b = [_lanes_of(1, lanes) for lanes in partners.of_lane.values()]
    return _with_merged_lanes(a.work, merged_a), _with_merged_lanes(b.work, merged_b)


class _LanePair(msgspec.Struct, frozen=True, order=True):
    """A lane of A and a lane of B."""

    a: _Lane
    b: _Lane


class _Partners:
    """Which lanes of both sides do the same work; see `shared`."""

    def __init__(self, kernels: dict[_Lane, Counter[int]]) -> None:
        """`kernels`: how often each lane runs each kernel; it is changed."""
        self.of_lane = {lane: {lane} for lane in kernels}
        """The lanes that are partners of each lane, itself among them; those that are
        partners have the same set."""
        self._unmatched = kernels
        self._sizes = {lane: counts.total() for lane, counts in kernels.items()}

    def lanes_of_both_sides(self) -> list[_LanePair]:
        """All pairs of a lane of A and one of B, in their order."""
        pairs = []
        for lane_a in self.of_lane:
            for lane_b in self.of_lane:
                if lane_a.side == 0 and lane_b.side == 1:
                    pairs.append(_LanePair(a=lane_a, b=lane_b))
        return sorted(pairs)

    def common_pieces(self, pair: _LanePair) -> int:
        """How many pieces that are unmatched both lanes have."""
        return (self._unmatched[pair.a] & self._unmatched[pair.b]).total()

    def min_pieces(self, pair: _LanePair) -> float:
        """How many pieces two lanes must have in common to become partners."""
        if len(self.of_lane[pair.a]) == 1 and len(self.of_lane[pair.b]) == 1:
            return MIN_COMMON_PIECES
        smaller = min(self._sizes[pair.a], self._sizes[pair.b])
        return max(MIN_COMMON_PIECES, MIN_SHARE_OF_PARTNERS_WORK * smaller)

    def join(self, pair: _LanePair) -> None:
        """Makes two lanes, and all their partners, partners; what they have in common
        is matched."""
        common = self._unmatched[pair.a] & self._unmatched[pair.b]
        self._unmatched[pair.a] -= common
        self._unmatched[pair.b] -= common
        partners = self.of_lane[pair.a] | self.of_lane[pair.b]
        for lane in partners:
            self.of_lane[lane] = partners


def as_one(before: Work, after: Work) -> list[list[int]]:
    """The lanes that became one, a list of their numbers for each such lane. `after` is
    the same work as `before`, with some of its lanes as one."""
    lane_before = dict(zip(before.row.tolist(), before.lane.tolist(), strict=True))
    lanes_of_merged: defaultdict[int, set[int]] = defaultdict(set)
    for row, lane in zip(after.row.tolist(), after.lane.tolist(), strict=True):
        lanes_of_merged[lane].add(lane_before[row])
    merged = []
    for lanes in lanes_of_merged.values():
        if len(lanes) > 1:
            merged.append(sorted(lanes))
    return merged


def _kernels_by_lane(side: int, items: WorkItems) -> dict[_Lane, Counter[int]]:
    """How often each of the MAX_COMPARED_LANES largest lanes of a side runs each kernel
    under one op in the representative step: {lane: {exact key: times}}."""
    lane_of_item = items.lane.tolist()
    items_of_lane = by_key(range(len(items)), lane_of_item.__getitem__)

    def largest_first(lane: int) -> tuple[int, int]:
        return -len(items_of_lane[lane]), lane

    kernels = {}
    for number in sorted(items_of_lane, key=largest_first)[:MAX_COMPARED_LANES]:
        keys = items.exact_keys[items_of_lane[number]].tolist()
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
