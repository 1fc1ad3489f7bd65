"""A flame graph: a tree whose nodes have a width proportional to their time, with the
largest child first."""

from __future__ import annotations

from functools import cached_property
from typing import Final, NamedTuple

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Flags, Int64s, Rows
from fusetui.tui.layout.figure_trees import (
    FigureTree,
    ModuleTree,
    group_by_level,
    place_nodes,
)

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
        """The time of all outermost nodes together in ns, which the full width of the
        flame graph stands for."""
        return int(self.amount[self.tree.level == 0].sum())

    @cached_property
    def levels(self) -> tuple[Rows, ...]:
        """The nodes of each level from left to right, without those that have no time."""
        levels = []
        for nodes in group_by_level(self.tree.level):
            visible_nodes = nodes[self.amount[nodes] > 0]
            levels.append(
                visible_nodes[np.argsort(self.begin[visible_nodes], kind="stable")]
            )
        return tuple(levels)

    def interval(self, node: int) -> tuple[int, int]:
        """Return the left edge and the width of a node in ns. WHOLE stands for the
        whole graph, whose width is at least 1."""
        if node == WHOLE:
            # never 0, because callers divide by the width
            return 0, max(1, self.whole_ns)
        return int(self.begin[node]), max(1, int(self.amount[node]))

    def first_level(self, root: int) -> int:
        """Return the level drawn on the first line when `root` fills the screen; 0 for
        the whole graph."""
        return 0 if root == WHOLE else int(self.tree.level[root])

    def depth(self, root: int) -> int:
        """Return the number of levels in the subtree of `root`, its own level included."""
        first_level = self.first_level(root)
        levels = self.tree.level[self._is_inside(root)]
        return int(levels.max(initial=first_level - 1)) - first_level + 1

    def inside(self, root: int) -> Rows:
        """Return the nodes in the subtree of `root` that have any time, each after its
        parent. The root itself is included."""
        nodes = np.flatnonzero(self._is_inside(root))
        return nodes[np.lexsort((self.tree.level[nodes], self.begin[nodes]))]

    def _is_inside(self, root: int) -> Flags:
        """Return which nodes with any time lie in the subtree of `root`, the root
        included; bool, shape [nodes]."""
        begin, width = self.interval(root)
        is_inside = (self.begin >= begin) & (self.begin < begin + width)
        is_deep = self.tree.level >= self.first_level(root)
        return is_inside & is_deep & (self.amount > 0)

    def in_sight(self, root: int, level: int, width: int) -> list[NodeCells]:
        """Return the nodes of one level that are drawn when `root` is `width` cells
        wide, from left to right.

        Nodes narrower than a cell are left out, because there would be no room to draw
        them.
        """
        if level >= len(self.levels):
            return []
        root_begin, root_ns = self.interval(root)
        nodes = self.levels[level]
        node_begin = self.begin[nodes] - root_begin
        node_end = node_begin + self.amount[nodes]
        first_cell = node_begin * width // root_ns
        end_cell = node_end * width // root_ns
        is_inside = (first_cell >= 0) & (end_cell <= width)
        is_seen = is_inside & (end_cell > first_cell)
        cells = []
        for n in np.flatnonzero(is_seen):
            cells.append(
                NodeCells(
                    node=int(nodes[n]), first=int(first_cell[n]), stop=int(end_cell[n])
                )
            )
        return cells

    def largest(self, root: int) -> int:
        """Return the child of a node with the most time, or the node itself if it has
        no children. In an empty tree the result is WHOLE."""
        children = self.children(root)
        return children[0] if children else root

    def fork(self, root: int) -> int:
        """Return the node at which the time first splits, seen from `root`.

        That is the innermost node that has all the time of the nodes around it. If the
        time is split at once, it is the largest node of the first level.
        """
        node = self.largest(root)
        while True:
            inner = self.largest(node)
            if inner == node or self.amount[inner] != self.amount[node]:
                return node
            node = inner

    def children(self, node: int) -> list[int]:
        """Return the children of a node that have any time, the largest first. WHOLE
        stands for the outermost nodes."""
        is_child = self.tree.parent == node
        has_time = self.amount > 0
        child_nodes = np.flatnonzero(is_child & has_time)
        # the larger ones begin further left
        from_the_left = np.argsort(self.begin[child_nodes], kind="stable")
        return list(child_nodes[from_the_left].tolist())

    def beside(self, node: int, by: int, root: int, width: int) -> int:
        """Return the visible node `by` places to the right of a node on its level
        (negative: to the left). The node itself is returned if there is none, or if it
        is not visible."""
        level = int(self.tree.level[node])
        nodes = [cells.node for cells in self.in_sight(root, level, width)]
        if node not in nodes:
            return node
        index = nodes.index(node) + by
        return nodes[index] if 0 <= index < len(nodes) else node

    def path(self, node: int) -> list[int]:
        """Return a node and all its ancestors, the outermost first; an empty list for
        WHOLE."""
        inside_out: list[int] = []
        while node != WHOLE:
            inside_out.append(node)
            node = int(self.tree.parent[node])
        return inside_out[::-1]


def build_flame(tree: FigureTree, time: str) -> Flame:
    """Build the flame graph of a tree of ops, Python frames or modules.

    `time` is "GPU" or "CPU": the width of a node is the GPU time it launched, or its
    time on the CPU. Nodes for work outside of all modules are left out.
    """
    amount = tree.figures["GPU" if time == "GPU" else tree.on_cpu]
    if isinstance(tree, ModuleTree):  # without what belongs to none
        is_module = np.arange(len(tree)) < len(tree.times)
        amount = np.where(is_module, amount, 0)
    begin = place_nodes(tree.parent, tree.level, -amount, amount)
    return Flame(tree=tree, amount=amount, begin=begin)
