"""The nodes of a tree in the order in which they are shown: each before those inside it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]


class Preorder(msgspec.Struct, frozen=True, eq=False):
    """`end[n]`: one past the subtree of the node that is shown n-th; `place` of each node."""

    nodes: NDArray[np.intp]
    end: Int64s
    place: Int64s


def preorder(parent: Int64s, level: Int64s, size: Int64s, key: Int64s) -> Preorder:
    """Siblings in order of their keys. Arrays of shape [nodes], in which a node comes after its
    parent (-1: none); `size`: the nodes of each subtree.

    Each node begins after its parent and after its earlier siblings with all within them.
    """
    count = len(parent)
    order = np.lexsort((np.arange(count), key, parent))
    before = np.cumsum(size[order]) - size[order]
    siblings = parent[order]
    first = np.searchsorted(siblings, siblings, side="left")
    within = np.empty(count, dtype=np.int64)
    within[order] = before - before[first]
    place = within.copy()
    for nodes in by_level(level)[1:]:
        place[nodes] += place[parent[nodes]] + 1
    nodes = np.argsort(place, kind="stable")
    return Preorder(nodes, np.arange(count) + size[nodes], place)


def by_name(names: Sequence[str]) -> Int64s:
    """For each name, how many come before it; shape [names]. No array of texts is made: each would
    take as much memory as the longest."""
    order = sorted(range(len(names)), key=names.__getitem__)
    found = np.empty(len(names), dtype=np.int64)
    found[order] = np.arange(len(names))
    return found


def by_level(level: Int64s) -> list[NDArray[np.intp]]:
    """The nodes of each level, the outermost first."""
    order = np.argsort(level, kind="stable")
    cuts = np.searchsorted(level[order], np.arange(1, int(level.max(initial=0)) + 1))
    return np.split(order, cuts)
