"""The tree of the modules of a program, with a call of each that can be shown."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar, Final

import numpy as np

from fusetui.trace.model.arrays import Flags, Int64s
from fusetui.trace.program.modules import Modules, ModuleTime, Unclaimed, longest_calls
from fusetui.trace.program.origin import Nowhere, Origins
from fusetui.tui.layout.figure_trees import FigureTree, by_name, sizes
from fusetui.tui.layout.kinds import SliceKind, narrow

MOST = 20  # names listed
FEW = 20  # at most this many modules are open at first
BELONGS_NOWHERE: Final = {
    Nowhere.NOT_LAUNCHED: "(launch not recorded)",
    Nowhere.NO_FORWARD: "(backward, of no recorded forward op)",
    Nowhere.OUTSIDE: "(in no module or annotation)",
}


class ModuleTree(FigureTree, frozen=True, eq=False, dict=True):
    """The modules in preorder, the largest of each first, then a node for each reason why work
    belongs to none of them. Self time is that of the GPU, if there is any."""

    ON_CPU: ClassVar[str] = "CPU"

    times: tuple[ModuleTime, ...]
    none: tuple[Unclaimed, ...]
    gpu_ns: int  # of all GPU events

    @property
    def sorts(self) -> tuple[str, ...]:
        return (*self.figures, "name")

    @property
    def names(self) -> Int64s:
        return by_name([*(time.module.lower() for time in self.times), *("" for _ in self.none)])

    def label(self, node: int) -> str:
        if node < len(self.times):
            return narrow(self.times[node].module)
        return BELONGS_NOWHERE[self.none[node - len(self.times)].why]

    def kind(self, node: int) -> SliceKind:
        is_annotation = self.times[node].kind == "annotation"
        return SliceKind.ANNOTATION if is_annotation else SliceKind.PYTHON

    def key(self, sort: str) -> Int64s:
        """What belongs to no module comes last, whatever its figure."""
        found, count = super().key(sort), len(self.times)
        found[count:] = int(found[:count].max(initial=0)) + 1
        return found

    def counted(self, measure: str) -> Flags | slice:
        """What is inside has a self time and calls of its own; the other figures of a module
        contain those of what is inside."""
        return slice(None) if measure in ("self", "calls") else self.level == 0


def module_tree(modules: Modules, found: Origins) -> ModuleTree:
    times, none, calls = modules.modules, modules.none, longest_calls(found)
    level = np.array([*(time.level for time in times), *(0 for _ in none)], dtype=np.int64)
    parent = _parents(level)
    row = np.array([*(calls[time.path] for time in times), *(-1 for _ in none)], dtype=np.int64)
    own = "gpu_self_ns" if modules.gpu_ns else "cpu_self_ns"
    columns = {"GPU": ("gpu_ns", "gpu_ns"), "self": (own, "gpu_ns"), "kernels": ("kernels",) * 2}
    columns |= {"calls": ("count", ""), "CPU": ("cpu_ns", "")}
    figures = {}
    for name, (of, of_none) in columns.items():
        amounts = [*(getattr(t, of) for t in times), *(getattr(n, of_none, 0) for n in none)]
        figures[name] = np.array(amounts, dtype=np.int64)
    size = sizes(parent, level)
    return ModuleTree(parent, level, size, row, figures, times, none, modules.gpu_ns)


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
    """All modules of one name as one, the largest first: the name, their GPU time (ns) without that
    of the modules in them, and the node of the one that has most of it."""
    sums: Counter[str] = Counter()
    largest: dict[str, int] = {}
    for node, time in enumerate(tree.times):
        name = time.module.removesuffix("_*")
        sums[name] += time.gpu_self_ns
        if time.gpu_self_ns > tree.times[largest.setdefault(name, node)].gpu_self_ns:
            largest[name] = node
    return [(name, ns, largest[name]) for name, ns in sums.most_common(MOST) if ns]


def first_open(tree: ModuleTree) -> Flags:
    """The outermost levels, as many as have few nodes together."""
    count = len(tree.times)
    shown = np.searchsorted(np.cumsum(np.bincount(tree.level[:count])), FEW, side="right")
    opened = tree.level < shown - 1
    opened[count:] = False
    return opened
