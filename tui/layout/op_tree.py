"""The op tree of a trace as preorder arrays; which nodes are shown takes one pass of numpy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

import numpy as np

from fusetui.analysis.questions.totals import gpu_under, self_ns
from fusetui.trace.model.arrays import Flags, Int64s
from fusetui.trace.model.categories import LAYERS, Layer, Role
from fusetui.trace.model.columns import Trace, Track
from fusetui.trace.model.memo import memo
from fusetui.tui.layout.figure_trees import MEASURES, FigureTree, Preorder, by_name, preorder

SORTS: Final = ("GPU", "total", "self", "kernels", "start", "name")


class OpTree(FigureTree, frozen=True, eq=False, dict=True):
    """Nodes in preorder, shape [nodes]: one per thread (row -1), then its ops and calls.

    `end` is one past the last node of the subtree.
    """

    SORTS: ClassVar[tuple[str, ...]] = SORTS

    depth: Int64s
    end: Int64s
    track: Int64s
    total_ns: Int64s
    own_ns: Int64s
    gpu_ns: Int64s
    kernels: Int64s

    def __len__(self) -> int:
        return len(self.row)

    @property
    def nodes(self) -> tuple[Int64s, Int64s, Int64s]:
        first = np.flatnonzero(self.row < 0)  # of each thread
        thread = first[np.cumsum(self.row < 0) - 1]
        above = np.where(self.row >= 0, self.trace.parent[self.row].astype(np.int64), -1)
        offset = np.where(self.row >= 0, np.arange(len(self)) - self.row, 0)
        parent = np.where(above >= 0, above + offset, thread)
        parent[first] = -1
        return parent, self.depth, self.end - np.arange(len(self))

    @property
    def figures(self) -> Mapping[str, Int64s]:
        return dict(
            zip(MEASURES, (self.gpu_ns, self.total_ns, self.own_ns, self.kernels), strict=False)
        )

    @property
    def is_thread(self) -> Flags:
        return self.row < 0

    def name_of(self, node: int) -> str:
        row = int(self.row[node])
        if row >= 0:
            return self.trace.name_of(row)
        return self.trace.tracks[int(self.track[node])].label

    def _whole(self, measure: str) -> int:
        level = self.depth > 0 if measure == "self" else self.depth == 1
        return int(self.figures[measure][level].sum())

    @memo(len(SORTS))
    def preorder(self, sort: str) -> Preorder:
        if sort != "start":
            return preorder(*self.nodes, self._key(sort))
        nodes = np.arange(len(self))
        return Preorder(nodes, self.end, nodes)

    def _key(self, sort: str) -> Int64s:
        if sort != "name":
            return -self.figures[sort]
        names = np.where(self.row >= 0, self.trace.name[self.row], -1)
        return np.append(by_name(self.trace.names), -1)[names]


def op_tree(trace: Trace) -> OpTree:
    """All ops layers of a trace, one thread after the other."""
    tracks = [n for n, one in enumerate(trace.tracks) if layer_of(trace, one) is Layer.OPS]
    columns: list[list[Int64s]] = [[np.empty(0, dtype=np.int64)] for _ in range(4)]
    before = 0
    for number in tracks:
        lane = trace.tracks[number]
        size = len(lane) + 1
        inner = trace.end_row[lane.rows].astype(np.int64) - lane.first_row + 1
        parts = (
            np.concatenate(([-1], np.arange(lane.first_row, lane.end_row))),
            np.concatenate(([0], trace.depth[lane.rows].astype(np.int64) + 1)),
            np.concatenate(([size], inner)) + before,
            np.full(size, number),
        )
        for column, part in zip(columns, parts, strict=True):
            column.append(part)
        before += size
    row, level, end, track = map(np.concatenate, columns)
    gpu_ns, kernels = gpu_under(trace)
    total, on_gpu, launched = (_of_nodes(one, row, level) for one in (trace.dur, gpu_ns, kernels))
    own = np.where(row >= 0, self_ns(trace)[row], 0) if len(row) else row
    return OpTree(trace, row, level, end, track, total, own, on_gpu, launched)


def _of_nodes(amount: Int64s, row: Int64s, level: Int64s) -> Int64s:
    """The amounts of the rows of nodes; of a thread, those of its outer ops together."""
    if not len(row):
        return row
    found = np.where(row >= 0, amount[row], 0)
    threads, outer = np.flatnonzero(row < 0), np.flatnonzero(level == 1)
    np.add.at(found, threads[np.searchsorted(threads, outer) - 1], found[outer])
    return found


def layer_of(trace: Trace, track: Track) -> Layer:
    """Its layer; of a track of a capture, the layer that it has there."""
    if track.layer is not Layer.CAPTURED or not len(track):
        return track.layer
    return LAYERS[Role(int(trace.source_role[track.first_row]))]


def places_of(tree: OpTree, threads: dict[object, int]) -> Int64s:
    """What identifies each node in any part of the trace: its place in traceEvents.

    For a thread, a negative number from `threads`, which grows.
    """
    places = np.where(tree.row >= 0, tree.trace.order[tree.row], -1)
    for node in np.flatnonzero(tree.row < 0).tolist():
        lane = tree.trace.tracks[int(tree.track[node])]
        places[node] = -1 - threads.setdefault((lane.pid, lane.tid, lane.subrow), len(threads))
    return places


def same_open(old: OpTree, opened: Flags, node: int, new: OpTree) -> tuple[Flags, int]:
    """For a tree of more of the same trace: which nodes are open, and where `node` is (or -1)."""
    threads: dict[object, int] = {}
    before, now = places_of(old, threads), places_of(new, threads)
    is_new_thread = (new.row < 0) & ~np.isin(now, before)
    here = np.flatnonzero(now == before[node]).tolist() if node >= 0 else []
    return np.isin(now, before[opened]) | is_new_thread, here[0] if here else -1


def node_of(tree: OpTree, row: int) -> int:
    """The node of a row of the trace, or -1."""
    found = np.flatnonzero(tree.row == row)
    return int(found[0]) if len(found) else -1
