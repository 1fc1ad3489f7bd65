"""What trees of ops have in common: figures of each node, in any order, as shares of a whole."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar, Final

import msgspec
import numpy as np

from fusetui.text.figures import Unit, unit_of
from fusetui.trace.model.arrays import Flags, Int64s, Rows
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import memo


class Preorder(msgspec.Struct, frozen=True, eq=False):
    """`end[n]`: one past the subtree of the node that is shown n-th; `place` of each node."""

    nodes: Rows
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


def by_level(level: Int64s) -> list[Rows]:
    """The nodes of each level, the outermost first."""
    order = np.argsort(level, kind="stable")
    cuts = np.searchsorted(level[order], np.arange(1, int(level.max(initial=0)) + 1))
    return np.split(order, cuts)


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
    def is_thread(self) -> Flags:
        """Whether a node stands for a thread."""

    @abstractmethod
    def name_of(self, node: int) -> str:
        """As the trace has it, or the label of a thread."""

    @abstractmethod
    def _whole(self, measure: str) -> int: ...

    @abstractmethod
    def _key(self, sort: str) -> Int64s:
        """Siblings are in the order of these."""

    @memo(len(MEASURES) + 1)
    def preorder(self, sort: str) -> Preorder:
        """The nodes as they are shown, the largest of each first."""
        return preorder(*self.nodes, self._key(sort))

    @memo(len(MEASURES))
    def whole(self, measure: str) -> int:
        """What the figures of a measure are shares of."""
        return self._whole(measure)

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


def visible(end: Int64s, opened: Flags) -> Rows:
    """The nodes whose ancestors are all open. Both arrays of shape [nodes], in preorder; `end` is
    one past the last node of a subtree."""
    nodes = len(end)
    hiding = np.flatnonzero(~opened & (end > np.arange(nodes) + 1))
    delta = np.zeros(nodes + 1, dtype=np.int64)
    np.add.at(delta, hiding + 1, 1)
    np.add.at(delta, end[hiding], -1)
    return np.flatnonzero(np.cumsum(delta[:-1]) == 0)


def open_to(end: Int64s, opened: Flags, node: int) -> Flags:
    """The open nodes, with all ancestors of a node opened too; `end` as for `visible`."""
    around = np.flatnonzero(end[:node] > node)
    changed = opened.copy()
    changed[around] = True
    return changed
