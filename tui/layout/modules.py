"""The tree of the modules of a program as preorder arrays, with a call of each that can be
shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.memo import memo
from fusetui.trace.program.modules import Modules, ModuleTime, Unclaimed, longest_calls
from fusetui.trace.program.origin import Origins
from fusetui.tui.layout.figure_trees import Preorder, by_name, preorder

MOST = 20  # names listed
FEW = 20
"""At most this many modules are open at first."""


SORTS: Final = ("GPU", "self", "kernels", "calls", "CPU", "name")
"""What modules can be sorted by; self time is that of the GPU, if there is any."""


class ModuleTree(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Nodes in preorder, the largest of each first: the modules, then one for each reason why work
    belongs to none of them. `end` is one past the last node of a subtree."""

    times: tuple[ModuleTime, ...]
    none: tuple[Unclaimed, ...]
    end: NDArray[np.int64]  # shape [times + none]
    row: NDArray[np.int64]  # of the longest call; shape [times]
    gpu_ns: int  # of all GPU events

    def measure(self, sort: str = "") -> str:
        """The figure to sort by where a person has chosen none, or whose shares are shown."""
        usual = "GPU" if self.gpu_ns else "CPU"
        return sort if sort and sort != "name" else usual

    @memo(len(SORTS))
    def preorder(self, sort: str) -> Preorder:
        """The nodes as they are shown; siblings of the same figure as they are here."""
        sizes = self.end - np.arange(len(self.end))
        return preorder(self.parents, self._levels, sizes, self._key(sort))

    def whole(self, measure: str) -> int:
        """What the shares of a measure are of. What is inside has a self time and calls of its
        own; the other figures of a module contain those of what is inside."""
        outermost = self._levels == 0
        if measure == "GPU":
            return self.gpu_ns
        is_own = measure in ("self", "calls")
        return int(self.figures[measure][slice(None) if is_own else outermost].sum())

    @cached_property
    def figures(self) -> Mapping[str, NDArray[np.int64]]:
        """Of each node, by what it can be sorted by."""
        times, none = self.times, self.none
        own = (t.gpu_self_ns if self.gpu_ns else t.cpu_self_ns for t in times)
        columns = {
            "GPU": [*(t.gpu_ns for t in times), *(n.gpu_ns for n in none)],
            "self": [*own, *(n.gpu_ns for n in none)],
            "kernels": [*(t.kernels for t in times), *(n.kernels for n in none)],
            "calls": [*(t.count for t in times), *(0 for _ in none)],
            "CPU": [*(t.cpu_ns for t in times), *(0 for _ in none)],
        }
        return {name: np.array(values, dtype=np.int64) for name, values in columns.items()}

    @cached_property
    def parents(self) -> NDArray[np.int64]:
        """Of each node, -1 for none."""
        found: list[int] = []
        above: list[int] = []
        for node, level in enumerate(self._levels.tolist()):
            del above[level:]
            found.append(above[-1] if above else -1)
            above.append(node)
        return np.array(found, dtype=np.int64)

    @cached_property
    def _levels(self) -> NDArray[np.int64]:
        levels = [time.level for time in self.times]
        return np.array([*levels, *(0 for _ in self.none)], dtype=np.int64)

    def _key(self, sort: str) -> NDArray[np.int64]:
        """What belongs to no module comes last, whatever its figure."""
        count = len(self.times)
        if sort == "name":
            found = by_name([time.module.lower() for time in self.times])
        else:
            found = -self.figures[sort][:count]
        last = int(found.max(initial=0)) + 1
        return np.concatenate((found, np.full(len(self.none), last, dtype=np.int64)))


class SelfTime(msgspec.Struct, frozen=True):
    """The GPU time (ns) of all modules of one name, less that of the modules in them."""

    name: str
    ns: int
    node: int  # the one of them that has most of it


def module_tree(modules: Modules, found: Origins) -> ModuleTree:
    calls = longest_calls(found)
    levels = np.array([time.level for time in modules.modules], dtype=np.int64)
    rows = np.array([calls[time.path] for time in modules.modules], dtype=np.int64)
    ends = _ends(np.append(levels, np.zeros(len(modules.none), dtype=np.int64)))
    return ModuleTree(modules.modules, modules.none, ends, rows, modules.gpu_ns)


def self_times(tree: ModuleTree) -> tuple[SelfTime, ...]:
    """All modules of one name as one; the largest first."""
    sums: Counter[str] = Counter()
    largest: dict[str, int] = {}
    for node, time in enumerate(tree.times):
        name = time.module.removesuffix("_*")
        sums[name] += time.gpu_self_ns
        if time.gpu_self_ns > tree.times[largest.setdefault(name, node)].gpu_self_ns:
            largest[name] = node
    return tuple(SelfTime(name, ns, largest[name]) for name, ns in sums.most_common(MOST) if ns)


def first_open(tree: ModuleTree) -> NDArray[np.bool_]:
    """The outermost levels, as many as have few nodes together."""
    levels = np.array([time.level for time in tree.times], dtype=np.int64)
    sizes = np.cumsum(np.bincount(levels)) if len(levels) else levels
    shown = int(np.searchsorted(sizes, FEW, side="right"))
    opened = np.zeros(len(tree.end), dtype=np.bool_)
    opened[: len(levels)] = levels < shown - 1
    return opened


def _ends(levels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of each node of a preorder, the index of the next node that is not deeper."""
    ends = np.full(len(levels), len(levels), dtype=np.int64)
    open_nodes: list[int] = []
    for node, level in enumerate(levels.tolist()):
        while open_nodes and levels[open_nodes[-1]] >= level:
            ends[open_nodes.pop()] = node
        open_nodes.append(node)
    return ends
