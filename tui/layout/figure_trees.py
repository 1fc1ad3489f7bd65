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
        """Return the sort key of each node among its siblings, ascending; shape
        [nodes]. Names sort alphabetically, figures with the largest first."""
        return self.names if sort == "name" else -self.figures[sort]

    @memo(6)
    def preorder(self, sort: str) -> Preorder:
        """Return the nodes in the order of the rows on the screen: each node, then all
        nodes below it. `sort` is a figure (the largest sibling first), "name", or
        "start" for the order of the tree itself."""
        numbers = np.arange(len(self))
        if sort == "start":  # as they are here
            return Preorder(nodes=numbers, end=numbers + self.size, place=numbers)
        # each subtree takes as many places as it has nodes; 1 is for the parent itself
        place = place_nodes(self.parent, self.level, self.key(sort), self.size, 1)
        nodes = np.argsort(place, kind="stable")
        return Preorder(nodes=nodes, end=numbers + self.size[nodes], place=place)

    def visible(self, sort: str, opened: Flags) -> Rows:
        """Return the nodes whose ancestors are all open, in the order of the rows on
        the screen.

        `opened` tells for each node whether it is open; shape [nodes]. The number of
        closed ancestors at each place comes from a running sum. It grows by 1 behind
        each closed node and falls again at the end of its subtree.
        """
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
        """Return the total of a measure, which is 100 % for the shares of its nodes. It
        counts only nodes that do not contain each other."""
        return int(self.figures[measure][self.counted(measure)].sum())

    def measure(self, sort: str = "") -> str:
        """Return the figure whose shares are shown: `sort` if it is a figure, else the
        GPU time. In a trace without GPU time it is the time on the CPU."""
        if sort in self.figures:
            return sort
        return "GPU" if self.whole("GPU") else self.on_cpu

    @cached_property
    def units(self) -> Mapping[str, Unit]:
        """The unit of each column of times, by its name.

        All columns share one unit, so that their times can be compared. A column gets a
        unit of its own if the typical time in it would round to nothing in the common
        unit.
        """
        columns = {
            name: _find_median_and_longest(self.figures[name])
            for name in TIMES
            if name in self.figures
        }
        common = common_unit(columns.values(), MAX_TIME_CELLS)
        units = {}
        for name, (typical_ns, longest_ns) in columns.items():
            own = common_unit([(typical_ns, longest_ns)], MAX_TIME_CELLS)
            units[name] = own if common.hides(typical_ns) else common
        return units


def _find_median_and_longest(times_ns: Int64s) -> tuple[int, int]:
    """Return the median and the maximum of some times in ns, leaving out zeros; (0, 0)
    if no time is above zero."""
    times_ns = times_ns[times_ns > 0]
    if not len(times_ns):
        return 0, 0
    middle_index = len(times_ns) // 2
    return int(np.partition(times_ns, middle_index)[middle_index]), int(times_ns.max())


def place_nodes(
    parent: Int64s, level: Int64s, key: Int64s, size: Int64s, inset: int = 0
) -> Int64s:
    """Return the position at which each node of a tree begins; shape [nodes].

    A node takes `size` units, and lies within its parent. Siblings follow each other in
    the order of their keys.

    Args:
        parent: The parent of each node, which precedes it; -1 for outermost nodes.
        level: The depth of each node, from 0.
        key: What siblings are sorted by, ascending; equal keys keep their order.
        size: The units that each node takes, its children included.
        inset: The units between the begin of a node and that of its first child.
    """
    sibling_order = np.lexsort((np.arange(len(parent)), key, parent))
    # sizes of all nodes before, of which those of earlier siblings are wanted
    size_before = np.cumsum(size[sibling_order]) - size[sibling_order]
    sorted_parents = parent[sibling_order]
    first_sibling = np.searchsorted(sorted_parents, sorted_parents, side="left")
    begin = np.empty(len(parent), dtype=np.int64)
    begin[sibling_order] = size_before - size_before[first_sibling]
    # level by level: the position of a parent is final before that of its children
    for nodes in group_by_level(level)[1:]:
        begin[nodes] += begin[parent[nodes]] + inset
    return begin


def sizes(parent: Int64s, level: Int64s) -> Int64s:
    """Return the number of nodes in the subtree of each node, the node itself included;
    shape [nodes].

    `parent` is -1 for outermost nodes, and `level` is the depth of a node, from 0.
    """
    size = np.ones(len(parent), dtype=np.int64)
    without_outermost = group_by_level(level)[1:]
    # from the deepest level up, so that each size is complete before it is added
    for nodes in reversed(without_outermost):
        np.add.at(size, parent[nodes], size[nodes])
    return size


def by_name(names: Sequence[str]) -> Int64s:
    """Return the alphabetical rank of each name, from 0; shape [names].

    The texts are sorted in Python, because a numpy array of texts would take as much
    memory for each as for the longest.
    """
    sorted_indices = sorted(range(len(names)), key=names.__getitem__)
    return np.argsort(np.array(sorted_indices, dtype=np.int64))


def group_by_level(level: Int64s) -> list[Rows]:
    """Return the nodes of each level as a list of arrays, the outermost level first.
    Within a level they keep their order. An empty tree gives one empty array."""
    order = np.argsort(level, kind="stable")
    deepest = int(level.max(initial=0))
    level_starts = np.searchsorted(level[order], np.arange(1, deepest + 1))
    return np.split(order, level_starts)


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
        """The alphabetical rank of each node, ignoring case. Nodes for work outside of
        all modules have the name "", and come first."""
        names = [time.module.lower() for time in self.times]
        return by_name([*names, *([""] * len(self.none))])

    def label(self, node: int) -> str:
        """Return the name of a module in printable characters of one cell. A node for
        work outside of all modules gets its reason, in parentheses."""
        if node < len(self.times):
            return narrow(self.times[node].module)
        return f"({NOWHERE_IN_WORDS[self.none[node - len(self.times)].why]})"

    def kind(self, node: int) -> SliceKind:
        """Whether a module is an annotation or a Python module. Only for modules."""
        if self.times[node].kind == "annotation":
            return SliceKind.ANNOTATION
        return SliceKind.PYTHON

    def key(self, sort: str) -> Int64s:
        """Return the sort key of each node, ascending; shape [nodes]. Work outside of
        all modules comes last, whatever its figure."""
        key = super().key(sort)
        module_count = len(self.times)
        largest = int(key[:module_count].max(initial=0))
        key[module_count:] = largest + 1
        return key

    def counted(self, measure: str) -> Flags | slice:
        """Return a mask or slice of the nodes whose figures add up to the total of a
        measure.

        Self times and calls exclude the inner modules, so all nodes count. Any other
        figure of a module includes its inner modules, so only outermost nodes count.
        """
        return slice(None) if measure in ("self", "calls") else self.level == 0


def build_module_tree(modules: Modules, origins: Origins) -> ModuleTree:
    """Build the tree of the modules of a trace, each with its figures and its longest
    call.

    Nodes for the GPU work that belongs to no module follow the modules, one for each
    reason. `origins` tells which modules and Python frames launched which work. The
    figures of the forward and backward pass are offered for sorting only if the trace
    has backward work.
    """
    times = modules.modules
    unclaimed = modules.none
    calls = longest_calls(origins)
    levels = [time.level for time in times]
    levels += [0] * len(unclaimed)
    rows = [calls[time.path] for time in times]
    rows += [-1] * len(unclaimed)
    level = np.array(levels, dtype=np.int64)
    parent = _find_parents(level)
    figures = _collect_module_figures(modules)
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
        open_at_first=_choose_initially_open(level, len(times)),
        times=times,
        none=unclaimed,
        gpu_ns=modules.gpu_ns,
    )


def forward_ns(time: ModuleTime) -> int:
    """Return the GPU time of a module's forward pass in ns, without activations that
    the backward pass recomputed."""
    return time.gpu_ns - time.gpu_backward_ns - time.gpu_recompute_ns


def _collect_module_figures(modules: Modules) -> dict[str, Int64s]:
    """Return the figures of all nodes of the module tree, by name; arrays of shape
    [nodes].

    Times are in ns; "kernels" and "calls" are counts. Nodes for work outside of all
    modules follow the modules; what is unknown of them is 0. Self time is GPU time if
    the trace has any, else CPU time.
    """
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
    return {
        name: np.array(amounts, dtype=np.int64) for name, amounts in figures.items()
    }


def _choose_initially_open(level: Int64s, modules: int) -> Flags:
    """Tell which nodes of the module tree are open when it is first shown; bool, shape
    [nodes].

    As many outer levels are shown as have at most MAX_OPEN_AT_FIRST modules together.
    Nodes of the last of these levels are visible but closed. `modules` is the number of
    modules, which come before the other nodes.
    """
    # the number of modules on each level and all levels above it
    nodes_to_level = np.cumsum(np.bincount(level[:modules]))
    shown_levels = np.searchsorted(nodes_to_level, MAX_OPEN_AT_FIRST, side="right")
    is_module = np.arange(len(level)) < modules
    return (level < shown_levels - 1) & is_module


def _find_parents(level: Int64s) -> Int64s:
    """Return the parent of each node, or -1 for none, from the levels of the nodes in
    preorder; shape [nodes].

        >>> _find_parents(np.array([0, 1, 2, 1]))
        array([-1,  0,  1,  0])
    """
    parents: list[int] = []
    ancestors: list[int] = []  # the nodes around the present one, the outermost first
    for node, depth in enumerate(level.tolist()):
        # what is left are the ancestors of this node
        del ancestors[depth:]
        parents.append(ancestors[-1] if ancestors else -1)
        ancestors.append(node)
    return np.array(parents, dtype=np.int64)


class SelfTime(NamedTuple):
    """All modules of one name together."""

    name: str
    ns: int  # their GPU time, without that of the modules in them
    node: int  # of the one that has most of it


def sum_self_times_by_name(tree: ModuleTree) -> list[SelfTime]:
    """Return the GPU time of the modules of each name, the longest first.

    The time of inner modules does not count. Names without any time are left out, and
    at most MAX_NAMES are returned. Each entry has the node of the module with the most
    time, to which its row leads.
    """
    ns_by_name: Counter[str] = Counter()
    largest_node: dict[str, int] = {}  # the node of a name with the most time
    for node, time in enumerate(tree.times):
        name = time.module.removesuffix("_*")
        ns_by_name[name] += time.gpu_self_ns
        largest_so_far = tree.times[largest_node.setdefault(name, node)]
        if time.gpu_self_ns > largest_so_far.gpu_self_ns:
            largest_node[name] = node
    return [
        SelfTime(name=name, ns=ns, node=largest_node[name])
        for name, ns in ns_by_name.most_common(MAX_NAMES)
        if ns
    ]
