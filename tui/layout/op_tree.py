"""The ops of a trace as trees: merged by call path, from the ops up to what calls them,
or each."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui.analysis.questions.totals import (
    gpu_under,
    inside_same_name,
    self_ns,
    subtree_sums,
)
from fusetui.trace.model.arrays import Flags, Int64s, Rows
from fusetui.trace.model.categories import LAYERS, Layer, Role
from fusetui.trace.model.columns import Trace, Track
from fusetui.trace.model.memo import memo
from fusetui.trace.program.origin import Origins, frame_of
from fusetui.tui.layout.figure_trees import FigureTree, by_name, sizes
from fusetui.tui.layout.kinds import SliceKind, kind_of, label_of, narrow

MODES: Final = ("path", "callers", "each")
MEASURES: Final = ("GPU", "total", "self", "kernels", "count")
"""The figures that are shares of a whole: GPU time launched by a node, its time with
what is inside, its time without that, kernels launched, calls."""
FRAMES: Final = "frames"  # the tree of Python frames among what is kept on a trace
DEEPEST_FRAMES = 1000
DEEPEST = 64  # levels; what lies deeper is part of the level above


class TreeView(msgspec.Struct, frozen=True):
    """What the page shows: ops by call path, from the ops up, or each of them; how it
    is sorted."""

    mode: str = "path"
    sort: str = ""  # of merged ops; "": by the measure that says most
    each: str = "start"  # of those that are not merged

    def sort_of(self, tree: FigureTree) -> str:
        return self.each if self.mode == "each" else self.sort or tree.measure()

    def sorted_by(self, sort: str) -> TreeView:
        return replace(self, **{"each" if self.mode == "each" else "sort": sort})


class OpTree(FigureTree, frozen=True, eq=False, dict=True):
    """Nodes of level 0 are threads, or in a tree from the ops up, the ops. The figures
    of a thread are those of its ops together, self time excepted."""

    trace: Trace
    mode: str
    name: Int64s  # a number of trace.names; of a thread, -1 - the number of its track
    of_row: NDArray[np.int32]  # the node of each row of the trace, -1 for none

    @property
    def names(self) -> Int64s:
        return np.append(by_name(self.trace.names), -1)[np.maximum(self.name, -1)]

    def name_of(self, node: int) -> str:
        """As the trace has it, or the label of a thread."""
        name = int(self.name[node])
        return (
            self.trace.names[name] if name >= 0 else self.trace.tracks[-1 - name].label
        )

    def role(self, node: int) -> int:
        """That of the slice, -1 for a thread."""
        row = int(self.row[node])
        return int(self.trace.source_role[row]) if row >= 0 else -1

    def label(self, node: int) -> str:
        role, name = self.role(node), self.name_of(node)
        return label_of(role, name) if role >= 0 else narrow(name)

    def kind(self, node: int) -> SliceKind:
        role = self.role(node)
        return kind_of(role, self.name_of(node)) if role >= 0 else SliceKind.OTHER

    def counted(self, measure: str) -> Flags:
        """By call path, what is inside has a count and a self time of its own."""
        if self.mode == "callers":
            return self.parent < 0
        inner: Flags = self.parent >= 0
        return inner if measure in ("self", "count") else inner & (self.level == 1)

    def whole(self, measure: str) -> int:
        """From the ops up the self times of the first level add up to all their
        time."""
        is_total = self.mode == "callers" and measure == "total"
        return super().whole("self" if is_total else measure)

    @cached_property
    def all_gpu_ns(self) -> int:
        """Of all GPU events, also of those whose launch was not recorded."""
        return int(self.trace.dur[self.trace.gpu_rows].sum())


Part = tuple[Rows, Rows]  # nodes, and as many rows that add to their figures
Nodes = tuple[Int64s, Int64s, Int64s, Int64s]  # parent, level, size and name of each
Amounts = tuple[Int64s, Int64s]  # GPU time and kernels of each row of the trace


class _Levels:
    """A tree that grows level by level; nodes are merged by the one above and a
    name."""

    def __init__(self, trace: Trace, roots: Int64s, part: Part) -> None:
        self._trace, self._parents, self._names = (
            trace,
            [np.full(len(roots), -1)],
            [roots],
        )
        self.parts, self._count = [part], len(roots)

    def add(self, above: Int64s, named: Rows, rows: Rows) -> Rows:
        """The node in the next level of each of the rows, below one and called as
        another row."""
        keys = above * (len(self._trace.names) + 1) + self._trace.name[named]
        found, place = np.unique(keys, return_inverse=True)
        parents, names = np.divmod(found, len(self._trace.names) + 1)
        nodes: Rows = self._count + place
        self._parents.append(parents)
        self._names.append(names)
        self.parts.append((nodes, rows))
        self._count += len(found)
        return nodes

    def tree(self, mode: str, of_row: Int64s, under: Amounts) -> OpTree:
        level = np.repeat(
            np.arange(len(self._names)), [len(one) for one in self._names]
        )
        parent, name = (
            np.concatenate(one).astype(np.int64) for one in (self._parents, self._names)
        )
        nodes = parent, level, sizes(parent, level), name
        return _tree(self._trace, mode, nodes, self.parts, of_row, under)


@memo()
def call_tree(trace: Trace) -> OpTree:
    """Ops and calls of each thread merged with those of the same call path."""
    return _by_path(trace, _rows_on(trace, Layer.OPS), gpu_under(trace), DEEPEST)


def frame_tree(trace: Trace, found: Origins) -> OpTree:
    """Python frames and modules of each thread merged with those of the same call path;
    GPU time counts in the innermost frame that its work belongs to, see Origins."""
    frame = frame_of(found, trace.gpu_rows)
    rows, frame = trace.gpu_rows[frame >= 0], frame[frame >= 0]
    kernels = (trace.role[rows] == Role.KERNEL).astype(np.int64)
    under = (
        subtree_sums(trace, frame, trace.dur[rows]),
        subtree_sums(trace, frame, kernels),
    )
    return _by_path(trace, _rows_on(trace, Layer.PYTHON), under, DEEPEST_FRAMES)


def _by_path(trace: Trace, rows: Rows, under: Amounts, deepest: int) -> OpTree:
    """`under`: with what is inside."""
    roots, thread = np.unique(
        -1 - trace.track[rows].astype(np.int64), return_inverse=True
    )
    of_row = np.full(len(trace), -1, dtype=np.int64)
    of_row[rows] = thread  # until the level of a row comes
    depth = np.minimum(trace.depth[rows], deepest)
    outer = trace.depth[rows] == 0
    levels = _Levels(trace, roots, (thread[outer], rows[outer]))
    for level in range(int(depth.max(initial=-1)) + 1):
        own = rows[depth == level]
        of_row[own] = levels.add(of_row[trace.parent[own] if level else own], own, own)
    return levels.tree("path", of_row, under)


@memo()
def callers_tree(trace: Trace) -> OpTree:
    """Ops and calls of one name, then what calls them, and what calls that: self time
    of the op, and GPU time of the innermost op around a launch; that of a call outside
    of ops is its own."""
    rows = _rows_on(trace, Layer.OPS)
    ops, node = np.unique(trace.name[rows].astype(np.int64), return_inverse=True)
    of_row = np.full(len(trace), -1, dtype=np.int64)
    of_row[rows] = node
    levels, asked, above = _Levels(trace, ops, (node, rows)), rows, trace.parent[rows]
    for _ in range(DEEPEST):
        kept = above >= 0
        if not kept.any():
            break
        asked, callers = asked[kept], above[kept].astype(np.intp)
        node = levels.add(node[kept], callers, asked)
        above = trace.parent[callers]
    under, inner = gpu_under(trace), np.flatnonzero(trace.parent >= 0)
    # without what was launched under the rows in it
    own = under[0].copy(), under[1].copy()
    calls = trace.rows_of(Role.CALL)
    calls = calls[trace.op[calls] >= 0]
    for found, amount in zip(own, under, strict=True):
        np.subtract.at(found, trace.parent[inner], amount[inner])
        np.add.at(found, trace.op[calls], found[calls])
        found[calls] = 0
    return levels.tree("callers", of_row, own)


@memo()
def op_tree(trace: Trace) -> OpTree:
    """All ops and calls in order of time, those of one thread after the other."""
    rows = _rows_on(trace, Layer.OPS)
    tracks, first, thread = np.unique(
        trace.track[rows], return_index=True, return_inverse=True
    )
    threads, node = first + np.arange(len(tracks)), np.arange(len(rows)) + thread + 1
    of_row = np.full(len(trace) + 1, -1, dtype=np.int64)  # the last: of no row
    of_row[rows] = node
    parent, name = (np.empty(len(tracks) + len(rows), dtype=np.int64) for _ in range(2))
    level = np.zeros(len(parent), dtype=np.int64)
    parent[threads], name[threads] = -1, -1 - tracks.astype(np.int64)
    above = of_row[trace.parent[rows]]
    parent[node], name[node] = (
        np.where(above >= 0, above, threads[thread]),
        trace.name[rows],
    )
    level[node] = trace.depth[rows].astype(np.int64) + 1
    size = np.empty(len(parent), dtype=np.int64)
    size[threads] = np.diff(np.append(threads, len(parent)))
    size[node] = trace.end_row[rows].astype(np.int64) - rows
    outer = trace.depth[rows] == 0
    parts = [(threads[thread[outer]], rows[outer]), (node, rows)]
    return _tree(
        trace, "each", (parent, level, size, name), parts, of_row[:-1], gpu_under(trace)
    )


def _tree(
    trace: Trace,
    mode: str,
    nodes: Nodes,
    parts: list[Part],
    of_row: Int64s,
    under: Amounts,
) -> OpTree:
    """The figures of nodes: the sums of what their rows add. From the ops up, a capture
    has no thread of its own: only its GPU time counts. And an op inside another one of
    its name adds nothing to their total."""
    parent, level, size, name = nodes
    calls, total, own = np.ones(len(trace), dtype=np.int64), trace.dur, self_ns(trace)
    if mode == "callers":
        recorded = trace.role != Role.CAPTURED
        once, outer = recorded.copy(), parts[0][1]
        once[outer[inside_same_name(trace, outer)]] = False
        calls, own = np.where(recorded, calls, 0), np.where(recorded, own, 0)
        total = np.where(once, total, 0)
    amounts = dict(zip(MEASURES, (under[0], total, own, under[1], calls), strict=True))
    if mode == "each":
        del amounts["count"]
    figures = {measure: np.zeros(len(parent), dtype=np.int64) for measure in amounts}
    row = np.full(len(parent), -1, dtype=np.int64)
    for node, rows in parts:
        for measure, amount in amounts.items():
            np.add.at(figures[measure], node, amount[rows])
        by_length = np.argsort(trace.dur[rows], kind="stable")
        row[node[by_length]] = rows[by_length]  # the last one assigned is kept
    row[name < 0], figures["self"][name < 0] = -1, 0
    threads, sorts = (
        name < 0,
        (*MEASURES[:-1], "start" if mode == "each" else "count", "name"),
    )
    shape, more = (
        (parent, level, size, row),
        (trace, mode, name, of_row.astype(np.int32)),
    )
    return OpTree(*shape, figures, sorts, "total", threads, threads, *more)


def _rows_on(trace: Trace, layer: Layer) -> Rows:
    """Of such layers of all threads, and of those of a capture."""

    def layer_of(track: Track) -> Layer:
        if track.layer is not Layer.CAPTURED or not len(track):
            return track.layer
        return LAYERS[Role(int(trace.source_role[track.first_row]))]

    tracks = [layer_of(track) is layer for track in trace.tracks]
    return np.flatnonzero(np.array([*tracks, False])[trace.track])


def places_of(tree: OpTree, threads: dict[object, int]) -> Int64s:
    """What identifies each node in any part of the trace: its place in traceEvents. For
    a thread, a negative number from `threads`, which grows."""
    places = np.where(tree.row >= 0, tree.trace.order[tree.row], -1)
    for node in np.flatnonzero(tree.is_thread).tolist():
        track = tree.trace.tracks[-1 - int(tree.name[node])]
        places[node] = -1 - threads.setdefault(
            (track.pid, track.tid, track.subrow), len(threads)
        )
    return places


def same_open(old: OpTree, opened: Flags, node: int, new: OpTree) -> tuple[Flags, int]:
    """For a tree of more of the same trace: which nodes are open, and where `node` is
    (or -1)."""
    threads: dict[object, int] = {}
    before, now = places_of(old, threads), places_of(new, threads)
    is_new_thread = new.is_thread & ~np.isin(now, before)
    here = np.flatnonzero(now == before[node]).tolist() if node >= 0 else []
    return np.isin(now, before[opened]) | is_new_thread, here[0] if here else -1
