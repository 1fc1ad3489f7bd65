"""Regions whose labels are equal from the outermost on form one path: `Decoder_* > MLP_*`."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.columns import Trace
from fusetui.trace.program.regions import label_of
from fusetui.trace.program.spans import Spans

Int64s = NDArray[np.int64]
Places = NDArray[np.intp]

MOST_LEVELS = 64
"""Regions nested more deeply than this count for the innermost region of these levels."""
BETWEEN = " > "


class Paths(msgspec.Struct, frozen=True, eq=False):
    """The tree of paths; arrays of shape [paths], each after its parent."""

    labels: tuple[str, ...]
    label: NDArray[np.int64]  # index into labels
    parent: Places  # -1: none
    level: Places  # 0: outermost
    of_place: Places  # for each region its path; shape [regions]
    counted: NDArray[np.bool_]  # for each region, whether it is within the tree's levels

    def __len__(self) -> int:
        return len(self.label)

    def name(self, number: int) -> str:
        return self.labels[int(self.label[number])]

    def text(self, number: int) -> str:
        """The labels, outermost first."""
        parts = []
        while number >= 0:
            parts.append(self.name(number))
            number = int(self.parent[number])
        return BETWEEN.join(reversed(parts))

    def sums(self, places: Places, amounts: Int64s) -> Int64s:
        """Amounts by the path of the region that each belongs to; -1 belongs to none."""
        known = places >= 0
        found = np.zeros(len(self), dtype=np.int64)
        np.add.at(found, self.of_place[places[known]], amounts[known])
        return found

    def with_inner(self, own: Int64s) -> Int64s:
        """For each path the amounts of it and of all paths inside it."""
        total = own.copy()
        for level in range(int(self.level.max(initial=0)), 0, -1):
            here = np.flatnonzero(self.level == level)
            np.add.at(total, self.parent[here], total[here])
        return total


def paths_of(trace: Trace, regions: Spans, expanded: bool = False) -> Paths:
    """The paths of regions; with `expanded`, their indices distinguish them."""
    labels, label = _labels(trace, regions, expanded)
    of_place = np.full(len(regions), -1, dtype=np.intp)
    label_of_path, parent, level = [], [], []
    size = 0
    for depth in range(min(int(regions.depth.max(initial=-1)) + 1, MOST_LEVELS)):
        here = np.flatnonzero(regions.depth == depth)
        over = of_place[regions.parent[here]] if depth else np.full(len(here), -1)
        keys, path = np.unique(over * len(labels) + label[here], return_inverse=True)
        of_place[here] = size + path
        size += len(keys)
        label_of_path.append(keys % len(labels))
        parent.append(keys // len(labels))
        level.append(np.full(len(keys), depth))
    _adopt_deepest(regions, of_place)
    whole = [np.concatenate((np.zeros(0, np.intp), *p)) for p in (label_of_path, parent, level)]
    counted = regions.depth < MOST_LEVELS
    return Paths(labels, whole[0], whole[1], whole[2], of_place, counted)


def _adopt_deepest(regions: Spans, of_place: Places) -> None:
    """Regions beyond the last level are assigned to the region of that level around them."""
    over = np.where(regions.depth < MOST_LEVELS, np.arange(len(regions)), regions.parent)
    while (regions.depth[over] >= MOST_LEVELS).any():
        over = over[over]
    of_place[:] = of_place[over]


def _labels(trace: Trace, regions: Spans, expanded: bool) -> tuple[tuple[str, ...], Places]:
    """The distinct labels, and the number of each region's label."""
    numbers: dict[str, int] = {}
    names = trace.name[regions.rows]
    of_name = np.zeros(len(trace.names) + 1, dtype=np.intp)
    for name in np.flatnonzero(np.bincount(names)).tolist():
        label = label_of(trace.names[name], expanded)
        of_name[name] = numbers.setdefault(label, len(numbers))
    return tuple(numbers), of_name[names]
