"""What trees of ops have in common: figures of each node, in any order, as shares of a whole."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.text.figures import Unit, unit_of
from fusetui.trace.model.columns import Trace


class Preorder(msgspec.Struct, frozen=True, eq=False):
    """`end[n]`: one past the subtree of the node that is shown n-th; `place` of each node."""

    nodes: NDArray[np.intp]
    end: Int64s
    place: Int64s


def preorder(parent: Int64s, level: Int64s, size: Int64s, key: Int64s) -> Preorder:
    """Siblings in order of their keys. Arrays of shape [nodes], in which a node comes after its
    parent (-1: none); `size`: the nodes of each subtree.

    Each node begins after its parent and after its earlier siblings with all within them.
    """
    count = len(parent)
    order = np.lexsort((np.arange(count), key, parent))
    before = np.cumsum(size[order]) - size[order]
    siblings = parent[order]
    first = np.searchsorted(siblings, siblings, side="left")
    within = np.empty(count, dtype=np.int64)
    within[order] = before - before[first]
    place = within.copy()
    for nodes in by_level(level)[1:]:
        place[nodes] += place[parent[nodes]] + 1
    nodes = np.argsort(place, kind="stable")
    return Preorder(nodes, np.arange(count) + size[nodes], place)


def by_name(names: Sequence[str]) -> Int64s:
    """For each name, how many come before it; shape [names]. No array of texts is made: each would
    take as much memory as the longest."""
    order = sorted(range(len(names)), key=names.__getitem__)
    found = np.empty(len(names), dtype=np.int64)
    found[order] = np.arange(len(names))
    return found


def by_level(level: Int64s) -> list[NDArray[np.intp]]:
    """The nodes of each level, the outermost first."""
    order = np.argsort(level, kind="stable")
    cuts = np.searchsorted(level[order], np.arange(1, int(level.max(initial=0)) + 1))
    return np.split(order, cuts)


Int64s = NDArray[np.int64]
MEASURES: Final = ("GPU", "total", "self", "kernels", "count")
"""The figures that are shares of a whole: GPU time launched by a node, its time with what is
inside, its time without that, kernels launched, calls."""
TIMES: Final = ("GPU", "total", "self")
WIDEST = 9  # cells of a time


class FigureTree(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Nodes, of which some stand for threads. What is worked out of them is kept."""

    SORTS: ClassVar[tuple[str, ...]]
    """What the nodes can be sorted by, in the order of the columns."""

    trace: Trace
    row: Int64s
    """Of the slice that a node stands for, or of the longest; -1 for a thread."""

    @property
    @abstractmethod
    def nodes(self) -> tuple[Int64s, Int64s, Int64s]:
        """Parent (-1: none), level and size of the subtree of each node; a node comes after its
        parent."""

    @property
    @abstractmethod
    def figures(self) -> Mapping[str, Int64s]:
        """Of each node, by measures; of a thread those of its ops together, self time excepted."""

    @property
    @abstractmethod
    def is_thread(self) -> NDArray[np.bool_]:
        """Whether a node stands for a thread."""

    @abstractmethod
    def name_of(self, node: int) -> str:
        """As the trace has it, or the label of a thread."""

    @abstractmethod
    def _whole(self, measure: str) -> int: ...

    @abstractmethod
    def _key(self, sort: str) -> Int64s:
        """Siblings are in the order of these."""

    def preorder(self, sort: str) -> Preorder:
        """The nodes as they are shown, the largest of each first."""
        if sort not in self._preorders:
            self._preorders[sort] = self._ordered(sort)
        return self._preorders[sort]

    def whole(self, measure: str) -> int:
        """What the figures of a measure are shares of."""
        if measure not in self._wholes:
            self._wholes[measure] = self._whole(measure)
        return self._wholes[measure]

    def measure(self, sort: str = "") -> str:
        """The measure to sort by where a person has chosen none, or whose shares are shown."""
        if sort in MEASURES:
            return sort
        return "GPU" if self.whole("GPU") else "total"

    @cached_property
    def units(self) -> Mapping[str, Unit]:
        """One for each column of times: that of the longest op, if that of a thread fits too."""
        return {time: self._unit(self.figures[time]) for time in TIMES}

    def _unit(self, times: Int64s) -> Unit:
        of_op = unit_of([int(times[~self.is_thread].max(initial=0))])
        longest = int(times.max(initial=0))
        return of_op if len(of_op.text(longest)) <= WIDEST else unit_of([longest])

    @cached_property
    def all_gpu_ns(self) -> int:
        """Of all GPU events, also of those whose launch was not recorded."""
        return int(self.trace.dur[self.trace.gpu_rows].sum())

    @cached_property
    def _preorders(self) -> dict[str, Preorder]:
        return {}

    @cached_property
    def _wholes(self) -> dict[str, int]:
        return {}

    def _ordered(self, sort: str) -> Preorder:
        return preorder(*self.nodes, self._key(sort))
