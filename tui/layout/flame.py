"""A flame graph: a tree whose nodes are as wide as their time, the largest of each first."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.tui.layout.call_tree import CallTree
from fusetui.tui.layout.kinds import SliceKind, kind_of, label_of, narrow
from fusetui.tui.layout.modules import ModuleTree

Int64s = NDArray[np.int64]
Nodes = NDArray[np.intp]
TREES: Final = ("ops", "modules", "frames")
TIMES: Final = ("GPU", "CPU")
"""GPU time launched by a node, or time on the CPU."""
WHOLE = -1  # instead of a node


class FlameView(msgspec.Struct, frozen=True):
    """Of which tree and which time; `root` is as wide as the screen, the cursor is on `at`."""

    tree: str = "ops"
    time: str = ""  # one of TIMES; "": of the GPU, of the CPU in a trace without GPU events
    root: int = WHOLE
    at: int = WHOLE  # the largest of the first level


class Flame(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Arrays of shape [nodes]; a node comes after the one around it, and lies within it."""

    parent: Int64s  # WHOLE: none
    level: Int64s
    begin: Int64s  # ns from the left
    amount: Int64s  # ns, of what is inside too
    count: Int64s
    row: Int64s  # of the longest, -1: none
    text: Callable[[int], str]
    kind: Callable[[int], SliceKind]

    @cached_property
    def whole_ns(self) -> int:
        return int(self.amount[self.parent == WHOLE].sum())

    @cached_property
    def levels(self) -> tuple[Nodes, ...]:
        """The nodes of each level that have any width, from left to right."""
        order = np.lexsort((self.begin, self.level))
        order = order[self.amount[order] > 0]
        cuts = np.searchsorted(self.level[order], np.arange(1, int(self.level.max(initial=0)) + 1))
        return tuple(np.split(order, cuts))

    def interval(self, node: int) -> tuple[int, int]:
        """Begin and width (ns) of a node, or of everything."""
        if node == WHOLE:
            return 0, max(1, self.whole_ns)
        return int(self.begin[node]), max(1, int(self.amount[node]))

    def first_level(self, root: int) -> int:
        """The level that is drawn first: that of the node that is as wide as the screen."""
        return 0 if root == WHOLE else int(self.level[root])

    def depth(self, root: int) -> int:
        """How many levels lie within a node, its own included."""
        begin, width = self.interval(root)
        first = self.first_level(root)
        inside = (self.begin >= begin) & (self.begin < begin + width) & (self.amount > 0)
        inside &= self.level >= first
        return int(self.level[inside].max(initial=first - 1)) - first + 1

    def in_sight(self, root: int, level: int, width: int) -> tuple[Nodes, Int64s, Int64s]:
        """The nodes of a level that take a cell at least, their first cells and those behind."""
        begin, span = self.interval(root)
        nodes = self.levels[level] if level < len(self.levels) else np.empty(0, dtype=np.intp)
        first = (self.begin[nodes] - begin) * width // span
        last = (self.begin[nodes] + self.amount[nodes] - begin) * width // span
        seen = np.flatnonzero((first >= 0) & (last <= width) & (last > first))
        return nodes[seen], first[seen], last[seen]

    def largest(self, root: int) -> int:
        """The largest node within, or the root itself; WHOLE in an empty tree."""
        return next((n for n in self.children(root)), root)

    def fork(self, root: int) -> int:
        """Where the time begins to divide: the innermost node that has all of it, else the largest
        of the first level."""
        node = self.largest(root)
        while (inner := self.largest(node)) != node and self.amount[inner] == self.amount[node]:
            node = inner
        return node

    def children(self, node: int) -> list[int]:
        """Those with any width, the largest first."""
        found = np.flatnonzero((self.parent == node) & (self.amount > 0))
        return [int(n) for n in found[np.argsort(self.begin[found], kind="stable")]]

    def beside(self, node: int, by: int, root: int, width: int) -> int:
        """The next block of the same level that can be seen, or the node itself."""
        nodes = self.in_sight(root, int(self.level[node]), width)[0].tolist()
        at = nodes.index(node) + by if node in nodes else -1
        return int(nodes[at]) if 0 <= at < len(nodes) else node

    def path(self, node: int) -> list[int]:
        """From the outermost node to this one."""
        found: list[int] = []
        while node != WHOLE:
            found.append(node)
            node = int(self.parent[node])
        return found[::-1]


def flame_of_calls(tree: CallTree, time: str) -> Flame:
    """Of merged ops or frames, in GPU time or in time on the CPU."""
    amount = tree.figures["GPU" if time == "GPU" else "total"].copy()
    roots = np.flatnonzero(tree.level == 0)
    role = tree.trace.source_role

    def text(node: int) -> str:
        name = int(tree.name[node])
        if name < 0:
            return narrow(tree.trace.tracks[-1 - name].label)
        return label_of(int(role[tree.row[node]]), tree.trace.names[name])

    def kind(node: int) -> SliceKind:
        name = int(tree.name[node])
        return (
            SliceKind.OTHER
            if name < 0
            else kind_of(int(role[tree.row[node]]), tree.trace.names[name])
        )

    if time != "GPU":  # a thread is as wide as what it holds
        inner = np.flatnonzero(tree.level == 1)
        amount[roots] = 0
        np.add.at(amount, tree.parent[inner], amount[inner])
    return _flame(tree.parent, tree.level, amount, tree.count, tree.row, text, kind)


def flame_of_modules(tree: ModuleTree, time: str) -> Flame:
    """Of modules and annotations."""
    times = tree.times
    level = np.array([one.level for one in times], dtype=np.int64)
    parent = tree.parents[: len(times)]
    amount = np.array([one.gpu_ns if time == "GPU" else one.cpu_ns for one in times], np.int64)
    return _flame(
        parent,
        level,
        amount,
        np.array([one.count for one in times], dtype=np.int64),
        tree.row,
        lambda node: narrow(times[node].module),
        lambda node: SliceKind.ANNOTATION if times[node].kind == "annotation" else SliceKind.PYTHON,
    )


def _flame(
    parent: Int64s,
    level: Int64s,
    amount: Int64s,
    count: Int64s,
    row: Int64s,
    text: Callable[[int], str],
    kind: Callable[[int], SliceKind],
) -> Flame:
    """Places each node after its larger siblings, within the one around it."""
    order = np.lexsort((np.arange(len(parent)), -amount, parent))
    before = np.cumsum(amount[order]) - amount[order]
    siblings = parent[order]
    first = np.searchsorted(siblings, siblings, side="left")
    within = np.empty(len(parent), dtype=np.int64)
    within[order] = before - before[first]
    begin = within.copy()
    for number in range(1, int(level.max(initial=0)) + 1):
        nodes = np.flatnonzero(level == number)
        begin[nodes] = begin[parent[nodes]] + within[nodes]
    return Flame(parent, level, begin, amount, count, row, text, kind)
