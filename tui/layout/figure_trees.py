"""The common part of op trees and module trees: figures of each node, in any order, as
shares of a whole; and which nodes are visible. And the tree of modules, with a call of
each that can be shown."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import msgspec
import numpy as np

from fusetui.text.figures import Unit, common_unit
from fusetui.trace.model.arrays import Flags, Int64s, Rows
from fusetui.trace.model.memo import memo
from fusetui.trace.program.modules import Modules, ModuleTime, Unclaimed, longest_calls
from fusetui.trace.program.origin import NOWHERE_IN_WORDS, Origins
from fusetui.tui.layout.kinds import SliceKind, narrow

PASSES: Final = ("forward", "backward")  # GPU time by pass
TIMES: Final = ("GPU", *PASSES, "total", "self", "CPU")  # figures in ns
MAX_TIME_CELLS = 9


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
        """By what the nodes around one are ordered: ascending, [nodes]."""
        return self.names if sort == "name" else -self.figures[sort]

    @memo(6)
    def preorder(self, sort: str) -> Preorder:
        """The nodes as they are shown, the largest of each first."""
        numbers = np.arange(len(self))
        if sort == "start":  # as they are here
            return Preorder(nodes=numbers, end=numbers + self.size, place=numbers)
        place = placed(self.parent, self.level, self.key(sort), self.size, 1)
        nodes = np.argsort(place, kind="stable")
        return Preorder(nodes=nodes, end=numbers + self.size[nodes], place=place)

    def visible(self, sort: str, opened: Flags) -> Rows:
        """The nodes whose ancestors are all open, as they are shown; `opened`: bool
        [nodes]."""
        order = self.preorder(sort)
        closed_nodes = np.flatnonzero(~opened & (self.size > 1))
        closed_places = order.place[closed_nodes]
        # how many more closed ancestors the node at a place has than the one before it
        change = np.zeros(len(self) + 1, dtype=np.int64)
        change[closed_places + 1] = 1
        np.add.at(change, order.end[closed_places], -1)
        closed_ancestors = np.cumsum(change[:-1])
        return order.nodes[np.flatnonzero(closed_ancestors == 0)]

    @memo(6)
    def whole(self, measure: str) -> int:
        """What the shares of a measure are shares of: its sum."""
        return int(self.figures[measure][self.counted(measure)].sum())

    def measure(self, sort: str = "") -> str:
        """The measure to sort by where a person has chosen none, or whose shares are
        shown."""
        if sort in self.figures:
            return sort
        return "GPU" if self.whole("GPU") else self.on_cpu

    @cached_property
    def units(self) -> Mapping[str, Unit]:
        """By column of times: one for all of them, so that they can be compared; but
        its own for a column of which half would round to nothing in that."""
        columns = {
            name: _typical_and_longest(self.figures[name])
            for name in TIMES
            if name in self.figures
        }
        common = common_unit(columns.values(), MAX_TIME_CELLS)
        units = {}
        for name, (typical_ns, longest_ns) in columns.items():
            own = common_unit([(typical_ns, longest_ns)], MAX_TIME_CELLS)
            units[name] = own if common.hides(typical_ns) else common
        return units


def _typical_and_longest(times_ns: Int64s) -> tuple[int, int]:
    """The median of the times that are not 0, and the longest; (0, 0) for none."""
    times_ns = times_ns[times_ns > 0]
    if not len(times_ns):
        return 0, 0
    middle = len(times_ns) // 2
    return int(np.partition(times_ns, middle)[middle]), int(times_ns.max())


def placed(
    parent: Int64s, level: Int64s, key: Int64s, size: Int64s, inset: int = 0
) -> Int64s:
    """Where each node begins, if it takes `size`: after its earlier siblings, which are
    in order of their keys, within the node around it, `inset` from its begin. All of
    shape [nodes]; a parent of -1 is none, and a node comes after the one around it."""
    order = np.lexsort((np.arange(len(parent)), key, parent))
    # sizes of all nodes before, of which those of earlier siblings are wanted
    size_before = np.cumsum(size[order]) - size[order]
    parents = parent[order]
    first_sibling = np.searchsorted(parents, parents, side="left")
    begin = np.empty(len(parent), dtype=np.int64)
    begin[order] = size_before - size_before[first_sibling]
    for nodes in by_level(level)[1:]:
        begin[nodes] += begin[parent[nodes]] + inset
    return begin


def sizes(parent: Int64s, level: Int64s) -> Int64s:
    """The number of nodes of each subtree, with its own node, [nodes]."""
    size = np.ones(len(parent), dtype=np.int64)
    without_outermost = by_level(level)[1:]
    for nodes in reversed(without_outermost):
        np.add.at(size, parent[nodes], size[nodes])
    return size


def by_name(names: Sequence[str]) -> Int64s:
    """For each name, how many come before it; shape [names]. No array of texts is made:
    each would take as much memory as the longest."""
    in_order = sorted(range(len(names)), key=names.__getitem__)
    return np.argsort(np.array(in_order, dtype=np.int64))


def by_level(level: Int64s) -> list[Rows]:
    """The nodes of each level, the outermost first."""
    order = np.argsort(level, kind="stable")
    deepest = int(level.max(initial=0))
    cuts = np.searchsorted(level[order], np.arange(1, deepest + 1))
    return np.split(order, cuts)


MAX_NAMES = 20  # that a list of the answer shows
MAX_OPEN_AT_FIRST = 20  # modules


class ModuleTree(FigureTree, frozen=True, eq=False, dict=True):
    """The modules in preorder, the largest of each first, then a node for each reason
    why work belongs to none of them. Self time is that of the GPU, if there is any."""

    times: tuple[ModuleTime, ...]
    none: tuple[Unclaimed, ...]
    gpu_ns: int  # of all GPU events

    @property
    def names(self) -> Int64s:
        """The place of each node in the order of names, in which case does not count;
        what belongs to no module has no name."""
        names = [time.module.lower() for time in self.times]
        return by_name([*names, *([""] * len(self.none))])

    def label(self, node: int) -> str:
        """The name of a module, or why work belongs to none."""
        if node < len(self.times):
            return narrow(self.times[node].module)
        return f"({NOWHERE_IN_WORDS[self.none[node - len(self.times)].why]})"

    def kind(self, node: int) -> SliceKind:
        """Whether a module is an annotation or a Python module. Only for modules."""
        if self.times[node].kind == "annotation":
            return SliceKind.ANNOTATION
        return SliceKind.PYTHON

    def key(self, sort: str) -> Int64s:
        """What belongs to no module comes last, whatever its figure."""
        key = super().key(sort)
        modules = len(self.times)
        largest = int(key[:modules].max(initial=0))
        key[modules:] = largest + 1
        return key

    def counted(self, measure: str) -> Flags | slice:
        """What is inside has a self time and calls of its own; the other figures of a
        module contain those of what is inside."""
        return slice(None) if measure in ("self", "calls") else self.level == 0


def module_tree(modules: Modules, origins: Origins) -> ModuleTree:
    """The tree of the modules of a trace, with the longest call of each."""
    times = modules.modules
    none = modules.none
    calls = longest_calls(origins)
    levels = [time.level for time in times]
    levels += [0] * len(none)
    rows = [calls[time.path] for time in times]
    rows += [-1] * len(none)
    level = np.array(levels, dtype=np.int64)
    parent = _parents(level)
    figures = _module_figures(modules)
    has_passes = bool(figures["backward"].any())
    sorts = [name for name in figures if has_passes or name not in PASSES]
    return ModuleTree(
        parent=parent,
        level=level,
        size=sizes(parent, level),
        row=np.array(rows, dtype=np.int64),
        figures=figures,
        sorts=(*sorts, "name"),
        on_cpu="CPU",
        is_thread=np.zeros(len(level), dtype=np.bool_),
        open_at_first=_open_at_first(level, len(times)),
        times=times,
        none=none,
        gpu_ns=modules.gpu_ns,
    )


def forward_ns(time: ModuleTime) -> int:
    """The GPU time of the forward pass of a module, without what the backward pass did
    once more."""
    return time.gpu_ns - time.gpu_backward_ns - time.gpu_recompute_ns


def _module_figures(modules: Modules) -> dict[str, Int64s]:
    """The figures of each module, then of what belongs to none, [nodes]: times in ns,
    and counts."""
    figures: dict[str, list[int]] = {
        "GPU": [],
        "forward": [],
        "backward": [],
        "self": [],
        "kernels": [],
        "calls": [],
        "CPU": [],
    }
    for time in modules.modules:
        figures["GPU"].append(time.gpu_ns)
        figures["forward"].append(forward_ns(time))
        figures["backward"].append(time.gpu_backward_ns)
        figures["self"].append(time.gpu_self_ns if modules.gpu_ns else time.cpu_self_ns)
        figures["kernels"].append(time.kernels)
        figures["calls"].append(time.count)
        figures["CPU"].append(time.cpu_ns)
    for unclaimed in modules.none:
        figures["GPU"].append(unclaimed.gpu_ns)
        figures["forward"].append(0)  # not known
        figures["backward"].append(0)
        figures["self"].append(unclaimed.gpu_ns)
        figures["kernels"].append(unclaimed.kernels)
        figures["calls"].append(0)  # not known
        figures["CPU"].append(0)
    return {name: np.array(of, dtype=np.int64) for name, of in figures.items()}


def _open_at_first(level: Int64s, modules: int) -> Flags:
    """Which nodes are open at first, bool [nodes]: the outermost levels of modules, as
    many as have at most MAX_OPEN_AT_FIRST nodes together, without the last of these
    levels. `modules`: how many of the nodes are modules."""
    nodes_to_level = np.cumsum(np.bincount(level[:modules]))
    levels = np.searchsorted(nodes_to_level, MAX_OPEN_AT_FIRST, side="right")
    is_module = np.arange(len(level)) < modules
    return (level < levels - 1) & is_module


def _parents(level: Int64s) -> Int64s:
    """The node around each node of a preorder, -1 for none; from its levels, [nodes]."""
    parents: list[int] = []
    around: list[int] = []  # the nodes around the present one, the outermost first
    for node, depth in enumerate(level.tolist()):
        del around[depth:]
        parents.append(around[-1] if around else -1)
        around.append(node)
    return np.array(parents, dtype=np.int64)


class SelfTime(NamedTuple):
    """All modules of one name together."""

    name: str
    ns: int  # their GPU time, without that of the modules in them
    node: int  # of the one that has most of it


def self_times(tree: ModuleTree) -> list[SelfTime]:
    """The GPU time of the modules by name, the largest first; at most MAX_NAMES of
    them, and none without any time."""
    ns_by_name: Counter[str] = Counter()
    largest: dict[str, int] = {}  # the node of a name with the most time
    for node, time in enumerate(tree.times):
        name = time.module.removesuffix("_*")
        ns_by_name[name] += time.gpu_self_ns
        largest_so_far = tree.times[largest.setdefault(name, node)]
        if time.gpu_self_ns > largest_so_far.gpu_self_ns:
            largest[name] = node
    return [
        SelfTime(name=name, ns=ns, node=largest[name])
        for name, ns in ns_by_name.most_common(MAX_NAMES)
        if ns
    ]
