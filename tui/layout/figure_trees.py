"""What trees of ops and of modules have in common: figures of each node, in any order,
as shares of a whole; which nodes are shown. And the tree of modules, with a call of
each that can be shown."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final

import msgspec
import numpy as np

from fusetui.text.figures import Unit, common_unit
from fusetui.trace.model.arrays import Flags, Int64s, Rows
from fusetui.trace.model.memo import memo
from fusetui.trace.program.modules import Modules, ModuleTime, Unclaimed, longest_calls
from fusetui.trace.program.origin import NOWHERE_IN_WORDS, Origins
from fusetui.tui.layout.kinds import SliceKind, narrow

TIMES: Final = ("GPU", "total", "self", "CPU")  # figures in ns
WIDEST = 9  # cells of a time


class Preorder(msgspec.Struct, frozen=True, eq=False):
    """`end[n]`: one past the subtree of the node that is shown n-th; `place` of each
    node."""

    nodes: Rows
    end: Int64s
    place: Int64s


class FigureTree(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Nodes, each after the one around it, in columns of shape [nodes]."""

    parent: Int64s  # -1: none
    level: Int64s
    size: Int64s  # nodes of the subtree
    row: Int64s  # of the slice that a node stands for, or of the longest; -1: none
    figures: Mapping[str, Int64s]
    # what the nodes can be sorted by, in the order of the columns
    sorts: tuple[str, ...]
    on_cpu: str  # the figure of the time on the CPU, with what is inside
    is_thread: Flags
    open_at_first: Flags

    def __len__(self) -> int:
        return len(self.parent)

    @property
    @abstractmethod
    def names(self) -> Int64s:
        """The place of each node in the order of names."""

    @abstractmethod
    def label(self, node: int) -> str:
        """Printable, a cell a character."""

    @abstractmethod
    def kind(self, node: int) -> SliceKind: ...

    @abstractmethod
    def counted(self, measure: str) -> Flags | slice:
        """The nodes whose figures add up to the whole of a measure."""

    def key(self, sort: str) -> Int64s:
        return self.names if sort == "name" else -self.figures[sort]

    @memo(6)
    def preorder(self, sort: str) -> Preorder:
        """The nodes as they are shown, the largest of each first."""
        count = np.arange(len(self))
        if sort == "start":  # as they are here
            return Preorder(count, count + self.size, count)
        place = placed(self.parent, self.level, self.key(sort), self.size, 1)
        nodes = np.argsort(place, kind="stable")
        return Preorder(nodes, count + self.size[nodes], place)

    def visible(self, sort: str, opened: Flags) -> Rows:
        """The nodes whose ancestors are all open, as they are shown."""
        order, delta = self.preorder(sort), np.zeros(len(self) + 1, dtype=np.int64)
        closed = order.place[np.flatnonzero(~opened & (self.size > 1))]
        delta[closed + 1] = 1
        np.add.at(delta, order.end[closed], -1)
        return order.nodes[np.flatnonzero(np.cumsum(delta[:-1]) == 0)]

    @memo(6)
    def whole(self, measure: str) -> int:
        return int(self.figures[measure][self.counted(measure)].sum())

    def measure(self, sort: str = "") -> str:
        """The measure to sort by where a person has chosen none, or whose shares are
        shown."""
        if sort in self.figures:
            return sort
        return "GPU" if self.whole("GPU") else self.on_cpu

    @cached_property
    def units(self) -> Mapping[str, Unit]:
        """By column of times: one for all of them, so that they can be compared."""
        columns = [name for name in TIMES if name in self.figures]
        longest = [[int(self.figures[name].max(initial=0))] for name in columns]
        return dict.fromkeys(columns, common_unit(longest, WIDEST))


def placed(
    parent: Int64s, level: Int64s, key: Int64s, size: Int64s, inset: int = 0
) -> Int64s:
    """Where each node begins, if it takes `size`: after its earlier siblings, which are
    in order of their keys, within the node around it, `inset` from its begin."""
    order = np.lexsort((np.arange(len(parent)), key, parent))
    before = np.cumsum(size[order]) - size[order]
    siblings = parent[order]
    begin = np.empty(len(parent), dtype=np.int64)
    begin[order] = before - before[np.searchsorted(siblings, siblings, side="left")]
    for nodes in by_level(level)[1:]:
        begin[nodes] += begin[parent[nodes]] + inset
    return begin


def sizes(parent: Int64s, level: Int64s) -> Int64s:
    """The nodes of each subtree."""
    size = np.ones(len(parent), dtype=np.int64)
    for nodes in by_level(level)[:0:-1]:
        np.add.at(size, parent[nodes], size[nodes])
    return size


def by_name(names: Sequence[str]) -> Int64s:
    """For each name, how many come before it; shape [names]. No array of texts is made:
    each would take as much memory as the longest."""
    return np.argsort(
        np.array(sorted(range(len(names)), key=names.__getitem__), dtype=np.int64)
    )


def by_level(level: Int64s) -> list[Rows]:
    """The nodes of each level, the outermost first."""
    order = np.argsort(level, kind="stable")
    cuts = np.searchsorted(level[order], np.arange(1, int(level.max(initial=0)) + 1))
    return np.split(order, cuts)


MOST = 20  # names listed
FEW = 20  # at most this many modules are open at first


class ModuleTree(FigureTree, frozen=True, eq=False, dict=True):
    """The modules in preorder, the largest of each first, then a node for each reason
    why work belongs to none of them. Self time is that of the GPU, if there is any."""

    times: tuple[ModuleTime, ...]
    none: tuple[Unclaimed, ...]
    gpu_ns: int  # of all GPU events

    @property
    def names(self) -> Int64s:
        return by_name(
            [*(time.module.lower() for time in self.times), *("" for _ in self.none)]
        )

    def label(self, node: int) -> str:
        if node < len(self.times):
            return narrow(self.times[node].module)
        return f"({NOWHERE_IN_WORDS[self.none[node - len(self.times)].why]})"

    def kind(self, node: int) -> SliceKind:
        return (
            SliceKind.ANNOTATION
            if self.times[node].kind == "annotation"
            else SliceKind.PYTHON
        )

    def key(self, sort: str) -> Int64s:
        """What belongs to no module comes last, whatever its figure."""
        found, count = super().key(sort), len(self.times)
        found[count:] = int(found[:count].max(initial=0)) + 1
        return found

    def counted(self, measure: str) -> Flags | slice:
        """What is inside has a self time and calls of its own; the other figures of a
        module contain those of what is inside."""
        return slice(None) if measure in ("self", "calls") else self.level == 0


def module_tree(modules: Modules, found: Origins) -> ModuleTree:
    times, none, calls = modules.modules, modules.none, longest_calls(found)
    level = np.array(
        [*(time.level for time in times), *(0 for _ in none)], dtype=np.int64
    )
    parent = _parents(level)
    row = np.array(
        [*(calls[time.path] for time in times), *(-1 for _ in none)], dtype=np.int64
    )
    own = "gpu_self_ns" if modules.gpu_ns else "cpu_self_ns"
    columns = {
        "GPU": ("gpu_ns", "gpu_ns"),
        "self": (own, "gpu_ns"),
        "kernels": ("kernels",) * 2,
    }
    columns |= {"calls": ("count", ""), "CPU": ("cpu_ns", "")}
    figures = {}
    for name, (of, of_none) in columns.items():
        amounts = [
            *(getattr(t, of) for t in times),
            *(getattr(n, of_none, 0) for n in none),
        ]
        figures[name] = np.array(amounts, dtype=np.int64)
    # Open are the outermost levels, as many as have few nodes together.
    levels = np.searchsorted(
        np.cumsum(np.bincount(level[: len(times)])), FEW, side="right"
    )
    opened = (level < levels - 1) & (np.arange(len(level)) < len(times))
    shape = parent, level, sizes(parent, level), row
    threads, sorts = np.zeros(len(level), dtype=np.bool_), (*figures, "name")
    return ModuleTree(
        *shape, figures, sorts, "CPU", threads, opened, times, none, modules.gpu_ns
    )


def _parents(level: Int64s) -> Int64s:
    """Of each node of a preorder, -1 for none."""
    found: list[int] = []
    above: list[int] = []
    for node, depth in enumerate(level.tolist()):
        del above[depth:]
        found.append(above[-1] if above else -1)
        above.append(node)
    return np.array(found, dtype=np.int64)


def self_times(tree: ModuleTree) -> list[tuple[str, int, int]]:
    """All modules of one name as one, the largest first: the name, their GPU time (ns)
    without that of the modules in them, and the node of the one that has most of it."""
    sums: Counter[str] = Counter()
    largest: dict[str, int] = {}
    for node, time in enumerate(tree.times):
        name = time.module.removesuffix("_*")
        sums[name] += time.gpu_self_ns
        if time.gpu_self_ns > tree.times[largest.setdefault(name, node)].gpu_self_ns:
            largest[name] = node
    return [(name, ns, largest[name]) for name, ns in sums.most_common(MOST) if ns]
