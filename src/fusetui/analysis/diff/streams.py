"""Merges streams that share one sequence of work.

Work may alternate between streams from kernel to kernel or from step to step. Which of
them runs what is no change of the program, so such streams are compared as one lane.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import msgspec
import numpy as np

from fusetui.analysis.diff.items import WorkItems
from fusetui.analysis.diff.work import Work
from fusetui.trace.model.grouping import grouped

MIN_SHARE_OF_PARTNERS_WORK = 0.5
"""A lane shares the work of a lane that has a partner already if this share of the
smaller of the two is in common."""

MIN_COMMON_KERNELS = 4
"""Lanes with fewer kernels in common in a step are no partners: a kernel or two
may have moved to another stream."""

MAX_COMPARED_LANES = 8
"""Only this many lanes of each side, the largest, are compared."""


def merge_alternating_streams(items: WorkItems) -> Work | None:
    """Merge the streams of a trace that run more kernels in one step than in another.

    A program that takes streams from a pool uses them in turn, so they are compared as
    one.

    Returns:
        The work with all of these streams as one lane. None if there are fewer than
        two, or if all steps do the same work.
    """
    work = items.work
    if len(items.same_work_steps) == len(work.steps):
        return None

    steps = len(work.steps)
    kernels_by_lane = grouped(work.lane)
    lanes = kernels_by_lane.keys.tolist()
    uneven_lanes = []
    for lane, kernels in zip(lanes, kernels_by_lane.members_of_each(), strict=True):
        kernels_in_step = np.bincount(work.step_of_piece[kernels], minlength=steps)
        if kernels_in_step.min() < kernels_in_step.max():
            uneven_lanes.append(lane)
    return _merge_lanes(work, [uneven_lanes]) if len(uneven_lanes) > 1 else None


class _Lane(msgspec.Struct, frozen=True, order=True):
    """A lane of one of the sides."""

    side: int  # 0 for A, 1 for B
    number: int


def merge_shared_streams(a: WorkItems, b: WorkItems) -> tuple[Work, Work]:
    """Merge streams of a trace whose work the other trace does on one stream.

    Streams of A and of B with the most kernels in common become partners first, and
    these kernels are then matched. The unmatched kernels decide about further partners,
    until no two streams have enough in common. Enough is MIN_COMMON_KERNELS. If one of
    them has a partner already, it is also MIN_SHARE_OF_PARTNERS_WORK of the smaller
    stream.

    Returns:
        The work of A and of B. If no streams of a trace are merged, it is the very same
        record as before.
    """
    kernels_by_lane = _count_kernels_by_lane(0, a) | _count_kernels_by_lane(1, b)
    partners = _LanePartners(kernels_by_lane)
    candidates = partners.list_lane_pairs()
    while candidates:
        # Of equals, the first pair. The count changes as kernels are matched.
        pair = max(candidates, key=partners.count_common_kernels)
        candidates.remove(pair)
        if partners.count_common_kernels(pair) >= partners.compute_min_common_kernels(
            pair
        ):
            partners.join(pair)

    # Partners have the same set, so it occurs once for each of them. Merging streams a
    # second time changes nothing.
    merged_a = [
        _select_lanes_of_side(0, lanes) for lanes in partners.partners_of_lane.values()
    ]
    merged_b = [
        _select_lanes_of_side(1, lanes) for lanes in partners.partners_of_lane.values()
    ]
    return _merge_lanes(a.work, merged_a), _merge_lanes(b.work, merged_b)


class _LanePair(msgspec.Struct, frozen=True):
    """A lane of A and a lane of B."""

    a: _Lane
    b: _Lane


class _LanePartners:
    """Which lanes of both sides do the same work; see `merge_shared_streams`."""

    def __init__(self, kernels: dict[_Lane, Counter[int]]) -> None:
        """Start with each lane as its only partner.

        Args:
            kernels: How often each lane runs each kernel. It is changed.
        """
        self.partners_of_lane = {lane: {lane} for lane in kernels}
        """The partners of each lane, itself among them. Partners have the same set."""
        self._unmatched = kernels
        self._sizes = {lane: counts.total() for lane, counts in kernels.items()}

    def list_lane_pairs(self) -> list[_LanePair]:
        """List all pairs of a lane of A and a lane of B, in their order."""
        lanes_of_a = sorted(lane for lane in self.partners_of_lane if lane.side == 0)
        lanes_of_b = sorted(lane for lane in self.partners_of_lane if lane.side == 1)
        pairs = []
        for lane_a in lanes_of_a:
            for lane_b in lanes_of_b:
                pairs.append(_LanePair(a=lane_a, b=lane_b))
        return pairs

    def count_common_kernels(self, pair: _LanePair) -> int:
        """Count the unmatched kernels that two lanes (streams) have in common."""
        return (self._unmatched[pair.a] & self._unmatched[pair.b]).total()

    def compute_min_common_kernels(self, pair: _LanePair) -> float:
        """Return how many kernels two lanes must have in common to be partners.

        It is MIN_COMMON_KERNELS. If one of them has a partner already, it is at least a
        share of the smaller lane.
        """
        if (
            len(self.partners_of_lane[pair.a]) == 1
            and len(self.partners_of_lane[pair.b]) == 1
        ):
            return MIN_COMMON_KERNELS
        size_of_smaller = min(self._sizes[pair.a], self._sizes[pair.b])
        return max(MIN_COMMON_KERNELS, MIN_SHARE_OF_PARTNERS_WORK * size_of_smaller)

    def join(self, pair: _LanePair) -> None:
        """Make two lanes (streams) and all their partners partners of each other.

        The kernels that the two have in common are matched, so they no longer count for
        further partners.
        """
        common = self._unmatched[pair.a] & self._unmatched[pair.b]
        self._unmatched[pair.a] -= common
        self._unmatched[pair.b] -= common
        partners = self.partners_of_lane[pair.a] | self.partners_of_lane[pair.b]
        for lane in partners:
            self.partners_of_lane[lane] = partners


def find_merged_lanes(before: Work, after: Work) -> list[list[int]]:
    """Return the groups of streams that are compared as one, by their numbers.

    Args:
        before: The work of a trace.
        after: The same work, with some streams merged.
    """
    lane_of_row = dict(zip(before.row.tolist(), before.lane.tolist(), strict=True))
    parts_of_lane: defaultdict[int, set[int]] = defaultdict(set)
    for row, merged_lane in zip(after.row.tolist(), after.lane.tolist(), strict=True):
        parts_of_lane[merged_lane].add(lane_of_row[row])
    return [sorted(lanes) for lanes in parts_of_lane.values() if len(lanes) > 1]


def _count_kernels_by_lane(side: int, items: WorkItems) -> dict[_Lane, Counter[int]]:
    """Count how often each stream runs each kernel in the representative step.

    Args:
        side: 0 for A, 1 for B.
        items: The items (kernels and copies) of the representative step of that side.

    Returns:
        {lane: {exact key: times}}, where an exact key stands for a kernel under an op.
        Only the MAX_COMPARED_LANES lanes (streams) with the most kernels are in it.
    """
    keys_by_lane: defaultdict[int, list[int]] = defaultdict(list)
    for lane, key in zip(items.lane.tolist(), items.exact_keys.tolist(), strict=True):
        keys_by_lane[lane].append(key)

    def largest_first(lane: int) -> tuple[int, int]:
        return -len(keys_by_lane[lane]), lane

    kernels = {}
    for number in sorted(keys_by_lane, key=largest_first)[:MAX_COMPARED_LANES]:
        kernels[_Lane(side=side, number=number)] = Counter(keys_by_lane[number])
    return kernels


def _select_lanes_of_side(side: int, lanes: Iterable[_Lane]) -> list[int]:
    """Return the numbers of the lanes that are of A (side 0) or of B (1), ascending."""
    return sorted(lane.number for lane in lanes if lane.side == side)


def _merge_lanes(work: Work, groups: Iterable[list[int]]) -> Work:
    """Move the kernels of each group of streams to the first stream of the group.

    Returns:
        The work; the very same record if no group has two streams.
    """
    lane = work.lane
    for lanes in groups:
        if len(lanes) > 1:
            lane = np.where(np.isin(lane, lanes), lanes[0], lane)
    return work if lane is work.lane else work.with_lanes(lane)
