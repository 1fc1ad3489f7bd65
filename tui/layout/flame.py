"""A flame graph: a tree whose nodes are as wide as their time, the largest of each
first."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Int64s, Rows
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


class Flame(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Where the nodes of a tree lie, each within the one around it; arrays of shape
    [nodes]."""

    tree: FigureTree
    amount: Int64s  # ns, of what is inside too
    begin: Int64s  # ns from the left

    @cached_property
    def whole_ns(self) -> int:
        return int(self.amount[self.tree.level == 0].sum())

    @cached_property
    def levels(self) -> tuple[Rows, ...]:
        """The nodes of each level that have any width, from left to right."""
        levels = (nodes[self.amount[nodes] > 0] for nodes in by_level(self.tree.level))
        return tuple(
            nodes[np.argsort(self.begin[nodes], kind="stable")] for nodes in levels
        )

    def interval(self, node: int) -> tuple[int, int]:
        """Begin and width (ns) of a node, or of everything."""
        if node == WHOLE:
            return 0, max(1, self.whole_ns)
        return int(self.begin[node]), max(1, int(self.amount[node]))

    def first_level(self, root: int) -> int:
        return 0 if root == WHOLE else int(self.tree.level[root])

    def depth(self, root: int) -> int:
        """How many levels lie within a node, its own included."""
        (begin, width), first, level = (
            self.interval(root),
            self.first_level(root),
            self.tree.level,
        )
        inside = (
            (self.begin >= begin) & (self.begin < begin + width) & (self.amount > 0)
        )
        return int(level[inside & (level >= first)].max(initial=first - 1)) - first + 1

    def in_sight(self, root: int, level: int, width: int) -> list[tuple[int, int, int]]:
        """The nodes of a level that take a cell at least, their first cells and those
        behind."""
        begin, span = self.interval(root)
        nodes = (
            self.levels[level]
            if level < len(self.levels)
            else np.empty(0, dtype=np.intp)
        )
        first = (self.begin[nodes] - begin) * width // span
        last = (self.begin[nodes] + self.amount[nodes] - begin) * width // span
        seen = np.flatnonzero((first >= 0) & (last <= width) & (last > first))
        columns = (nodes[seen].tolist(), first[seen].tolist(), last[seen].tolist())
        return list(zip(*columns, strict=True))

    def largest(self, root: int) -> int:
        """The largest node within, or the root itself; WHOLE in an empty tree."""
        return next(iter(self.children(root)), root)

    def fork(self, root: int) -> int:
        """The innermost node that has all of the time, else the largest of the first
        level."""
        node = self.largest(root)
        while (inner := self.largest(node)) != node and self.amount[
            inner
        ] == self.amount[node]:
            node = inner
        return node

    def children(self, node: int) -> list[int]:
        """Those with any width, the largest first."""
        found = np.flatnonzero((self.tree.parent == node) & (self.amount > 0))
        return [*found[np.argsort(self.begin[found], kind="stable")].tolist()]

    def beside(self, node: int, by: int, root: int, width: int) -> int:
        """The next block of the same level that can be seen, or the node itself."""
        nodes = [
            one for one, _, _ in self.in_sight(root, int(self.tree.level[node]), width)
        ]
        at = nodes.index(node) + by if node in nodes else -1
        return nodes[at] if 0 <= at < len(nodes) else node

    def path(self, node: int) -> list[int]:
        """From the outermost node to this one."""
        found: list[int] = []
        while node != WHOLE:
            found.append(node)
            node = int(self.tree.parent[node])
        return found[::-1]


def flame_of(tree: FigureTree, time: str) -> Flame:
    """Of merged ops or frames, or of modules and annotations."""
    amount = tree.figures["GPU" if time == "GPU" else tree.on_cpu]
    if isinstance(tree, ModuleTree):  # without what belongs to none
        amount = np.where(np.arange(len(tree)) < len(tree.times), amount, 0)
    return Flame(tree, amount, placed(tree.parent, tree.level, -amount, amount))
