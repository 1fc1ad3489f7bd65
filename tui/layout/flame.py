"""A flame graph: a tree whose nodes have a width proportional to their time, with the
largest child first."""

from __future__ import annotations

from functools import cached_property
from typing import Final, NamedTuple

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Flags, Int64s, Rows
from fusetui.tui.layout.figure_trees import FigureTree, ModuleTree, by_level, placed

TREES: Final = ("ops", "modules", "frames")
TIMES: Final = ("GPU", "CPU")  # GPU time launched by a node, or time on the CPU
WHOLE = -1  # instead of a node


class FlameView(msgspec.Struct, frozen=True):
    """Of which tree and which time; `root` is as wide as the screen, the cursor is on
    `at`."""

    tree: str = "ops"
    # one of TIMES; "": of the GPU, of the CPU in a trace without GPU events
    time: str = ""
    root: int = WHOLE
    at: int = WHOLE  # the largest of the first level


class NodeCells(NamedTuple):
    """A node that is drawn, and its cells: the first, and the one behind."""

    node: int
    first: int
    stop: int


class Flame(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Where the nodes of a tree lie, each within the one around it; arrays of shape
    [nodes]."""

    tree: FigureTree
    amount: Int64s  # ns, of what is inside too
    begin: Int64s  # ns from the left

    @cached_property
    def whole_ns(self) -> int:
        """The time of all outermost nodes."""
        return int(self.amount[self.tree.level == 0].sum())

    @cached_property
    def levels(self) -> tuple[Rows, ...]:
        """The nodes of each level that have any width, from left to right."""
        levels = []
        for nodes in by_level(self.tree.level):
            wide = nodes[self.amount[nodes] > 0]
            levels.append(wide[np.argsort(self.begin[wide], kind="stable")])
        return tuple(levels)

    def interval(self, node: int) -> tuple[int, int]:
        """Begin and width (ns) of a node, or of everything."""
        if node == WHOLE:
            return 0, max(1, self.whole_ns)
        return int(self.begin[node]), max(1, int(self.amount[node]))

    def first_level(self, root: int) -> int:
        """The level that is drawn first where `root` is as wide as the screen."""
        return 0 if root == WHOLE else int(self.tree.level[root])

    def depth(self, root: int) -> int:
        """How many levels lie within a node, its own included."""
        first_level = self.first_level(root)
        levels = self.tree.level[self._is_inside(root)]
        return int(levels.max(initial=first_level - 1)) - first_level + 1

    def inside(self, root: int) -> Rows:
        """The nodes of any width within one, itself included, each behind the one
        around it."""
        nodes = np.flatnonzero(self._is_inside(root))
        return nodes[np.lexsort((self.tree.level[nodes], self.begin[nodes]))]

    def _is_inside(self, root: int) -> Flags:
        """Which nodes of any width lie within one, itself included, bool [nodes]."""
        begin, width = self.interval(root)
        is_inside = (self.begin >= begin) & (self.begin < begin + width)
        is_deep = self.tree.level >= self.first_level(root)
        return is_inside & is_deep & (self.amount > 0)

    def in_sight(self, root: int, level: int, width: int) -> list[NodeCells]:
        """The nodes of a level within `root`, which is `width` cells wide, that take a
        cell at least, from left to right."""
        if level >= len(self.levels):
            return []
        begin, span = self.interval(root)
        nodes = self.levels[level]
        node_begin = self.begin[nodes] - begin
        node_end = node_begin + self.amount[nodes]
        first = node_begin * width // span
        stop = node_end * width // span
        is_inside = (first >= 0) & (stop <= width)
        is_seen = is_inside & (stop > first)
        cells = []
        for n in np.flatnonzero(is_seen):
            cells.append(
                NodeCells(node=int(nodes[n]), first=int(first[n]), stop=int(stop[n]))
            )
        return cells

    def largest(self, root: int) -> int:
        """The largest node within, or the root itself; WHOLE in an empty tree."""
        return next(iter(self.children(root)), root)

    def fork(self, root: int) -> int:
        """The innermost node that has all of the time, else the largest of the first
        level."""
        node = self.largest(root)
        while True:
            inner = self.largest(node)
            if inner == node or self.amount[inner] != self.amount[node]:
                return node
            node = inner

    def children(self, node: int) -> list[int]:
        """The nodes directly inside one, or the outermost for WHOLE, that have any
        width, the largest first."""
        inside = np.flatnonzero((self.tree.parent == node) & (self.amount > 0))
        return [*inside[np.argsort(self.begin[inside], kind="stable")].tolist()]

    def beside(self, node: int, by: int, root: int, width: int) -> int:
        """The next node of the same level that can be seen, or the node itself."""
        level = int(self.tree.level[node])
        nodes = [cells.node for cells in self.in_sight(root, level, width)]
        if node not in nodes:
            return node
        index = nodes.index(node) + by
        return nodes[index] if 0 <= index < len(nodes) else node

    def path(self, node: int) -> list[int]:
        """From the outermost node to this one."""
        inside_out: list[int] = []
        while node != WHOLE:
            inside_out.append(node)
            node = int(self.tree.parent[node])
        return inside_out[::-1]


def flame_of(tree: FigureTree, time: str) -> Flame:
    """The flame graph of merged ops or frames, or of modules and annotations, by one of
    TIMES."""
    amount = tree.figures["GPU" if time == "GPU" else tree.on_cpu]
    if isinstance(tree, ModuleTree):  # without what belongs to none
        is_module = np.arange(len(tree)) < len(tree.times)
        amount = np.where(is_module, amount, 0)
    begin = placed(tree.parent, tree.level, -amount, amount)
    return Flame(tree=tree, amount=amount, begin=begin)
