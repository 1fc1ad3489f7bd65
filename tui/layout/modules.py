"""The tree of the modules of a program as preorder arrays, with a call of each that can be
shown."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.program.calls import longest_calls
from fusetui.trace.program.modules import Modules, ModuleTime, Unclaimed
from fusetui.trace.program.origin import Origins

MOST = 20  # names listed
FEW = 20
"""At most this many modules are open at first."""


class ModuleTree(msgspec.Struct, frozen=True, eq=False):
    """Nodes in preorder: the modules, then one for each reason why work belongs to none of them.
    `end` is one past the last node of a subtree."""

    times: tuple[ModuleTime, ...]
    none: tuple[Unclaimed, ...]
    end: NDArray[np.int64]  # shape [times + none]
    row: NDArray[np.int64]  # of the longest call; shape [times]
    gpu_ns: int  # of all GPU events


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
