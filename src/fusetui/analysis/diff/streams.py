"""Streams that share one sequence of work: work may alternate between them from kernel
to kernel or from step to step, and which of them runs what is no change of the
program."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import numpy as np

from fusetui.analysis.diff.items import WorkItems
from fusetui.analysis.diff.work import Work
from fusetui.trace.model.grouping import by_key

# so much of a lane in common with one that has a partner: the partner shares its work
SHARED = 0.5
LEAST = 4  # so many pieces are more than a kernel or two that moved to another stream
COMPARED = 8  # lanes of each side, the largest, that are looked at


def alternating(items: WorkItems) -> Work | None:
    """The work of a side, with those of its streams as one lane that run more in one
    step than in another; None if there are no two such, or if all steps are alike."""
    work = items.work
    if len(items.alike) == len(work.windows):
        return None
    lanes, place = np.unique(work.lane, return_inverse=True)
    counts = np.zeros((len(lanes), len(work.windows)), dtype=np.int64)
    np.add.at(counts, (place, work.window), 1)
    turning = lanes[np.ptp(counts, axis=1) > 0].tolist()
    return _as_one(work, [turning]) if len(turning) > 1 else None


def shared(a: WorkItems, b: WorkItems) -> tuple[Work, Work]:
    """The work of both sides; the lanes of a side that do what the other side does on
    one are one.

    Lanes with the most work in common are partners. What they leave open tells the
    rest: where half of a lane is in common with one that has a partner already, it
    shares the work of that partner.
    """
    left = _kernels_by_lane(a), _kernels_by_lane(b)
    sizes = [{lane: kernels.total() for lane, kernels in side.items()} for side in left]
    group = {(side, lane): {(side, lane)} for side in (0, 1) for lane in left[side]}
    pairs = {(i, j) for i in left[0] for j in left[1]}
    while pairs:
        common = {(i, j): (left[0][i] & left[1][j]).total() for i, j in pairs}
        i, j = max(sorted(common), key=common.__getitem__)
        pairs.remove((i, j))
        free = len(group[0, i]) == len(group[1, j]) == 1
        enough = LEAST if free else max(LEAST, SHARED * min(sizes[0][i], sizes[1][j]))
        if common[i, j] < enough:
            continue
        both = left[0][i] & left[1][j]
        left[0][i] -= both
        left[1][j] -= both
        joined = group[0, i] | group[1, j]
        for member in joined:
            group[member] = joined
    merged = [
        [sorted(lane for of, lane in lanes if of == side) for lanes in group.values()]
        for side in (0, 1)
    ]
    return _as_one(a.work, merged[0]), _as_one(b.work, merged[1])


def as_one(before: Work, after: Work) -> list[list[int]]:
    """The lanes that became one, in groups: `after` is the same work, with some of its
    lanes as one."""
    lane_of_row = dict(zip(before.row.tolist(), before.lane.tolist(), strict=True))
    members: defaultdict[int, set[int]] = defaultdict(set)
    for row, lane in zip(after.row.tolist(), after.lane.tolist(), strict=True):
        members[lane].add(lane_of_row[row])
    return [sorted(lanes) for lanes in members.values() if len(lanes) > 1]


def _kernels_by_lane(items: WorkItems) -> dict[int, Counter[int]]:
    """How often each lane, of the largest ones, runs each kernel under the same op."""
    found = by_key(range(len(items)), items.lane.tolist().__getitem__)
    largest = sorted(found, key=lambda lane: (-len(found[lane]), lane))[:COMPARED]
    return {lane: Counter(items.exact[found[lane]].tolist()) for lane in largest}


def _as_one(work: Work, groups: Iterable[list[int]]) -> Work:
    """With the lanes of each group as the first one of them."""
    lane = work.lane
    for lanes in groups:
        if len(lanes) > 1:
            lane = np.where(np.isin(lane, lanes), lanes[0], lane)
    return work if lane is work.lane else work.with_lanes(lane)
