"""The ops of a trace as trees: top-down, bottom-up or flat."""

from __future__ import annotations

from functools import cached_property
from typing import Final, NamedTuple

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
MAX_FRAME_LEVELS = 1000
MAX_LEVELS = 64  # what lies deeper is part of the level above


class TreeView(msgspec.Struct, frozen=True):
    """What the page shows: ops by call path, from the ops up, or each of them; how it
    is sorted."""

    mode: str = "path"
    sort: str = ""  # of merged ops; "": by the measure that says most
    each: str = "start"  # of those that are not merged

    def sort_of(self, tree: FigureTree) -> str:
        """What the nodes of a tree in this mode are sorted by."""
        if self.mode == "each":
            return self.each
        return self.sort or tree.measure()

    def sorted_by(self, sort: str) -> TreeView:
        """Another order of the trees in this mode."""
        if self.mode == "each":
            return replace(self, each=sort)
        return replace(self, sort=sort)


class OpTree(FigureTree, frozen=True, eq=False, dict=True):
    """Nodes of level 0 are threads, or in a tree from the ops up, the ops. The figures
    of a thread are those of its ops together, self time excepted."""

    trace: Trace
    mode: str
    name: Int64s  # a number of trace.names; of a thread, -1 - the number of its track
    of_row: NDArray[np.int32]  # the node of each row of the trace, -1 for none

    @property
    def names(self) -> Int64s:
        """The place of each node in the order of names; threads come before all ops."""
        place_of_name = by_name(self.trace.names)
        is_thread = self.name < 0
        place = np.full(len(self.name), -1)
        place[~is_thread] = place_of_name[self.name[~is_thread]]
        return place

    def name_of(self, node: int) -> str:
        """As the trace has it, or the label of a thread."""
        name = int(self.name[node])
        if name >= 0:
            return self.trace.names[name]
        return self.trace.tracks[-1 - name].label

    def role(self, node: int) -> int:
        """That of the slice, -1 for a thread."""
        row = int(self.row[node])
        return int(self.trace.source_role[row]) if row >= 0 else -1

    def label(self, node: int) -> str:
        """The name in short, printable, a cell a character."""
        role = self.role(node)
        name = self.name_of(node)
        return label_of(role, name) if role >= 0 else narrow(name)

    def kind(self, node: int) -> SliceKind:
        """The kind of the op; OTHER for a thread."""
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


class NodeRows(NamedTuple):
    """Rows that add to the figures of nodes: as many nodes as rows."""

    nodes: Rows
    rows: Rows


class Nodes(NamedTuple):
    """The nodes of a tree; arrays of shape [nodes]."""

    parent: Int64s  # -1: none
    level: Int64s
    size: Int64s  # of the subtree
    name: Int64s  # see OpTree.name


class Amounts(NamedTuple):
    """What was launched under each row of the trace; arrays of shape [rows]."""

    gpu_ns: Int64s
    kernels: Int64s


class _Levels:
    """A tree that grows level by level; nodes are merged by the one above and a
    name."""

    def __init__(self, trace: Trace, roots: Int64s, part: NodeRows) -> None:
        """`roots`: the names of the nodes of the first level."""
        self._trace = trace
        self._parents = [np.full(len(roots), -1)]
        self._names = [roots]
        self._count = len(roots)
        self.parts = [part]

    def add(self, above: Int64s, named: Rows, rows: Rows) -> Rows:
        """The node in the next level of each of the rows, below one and called as
        another row."""
        names = len(self._trace.names) + 1
        keys = above * names + self._trace.name[named]
        new_keys, index = np.unique(keys, return_inverse=True)
        parents, new_names = np.divmod(new_keys, names)
        nodes: Rows = self._count + index
        self._parents.append(parents)
        self._names.append(new_names)
        self.parts.append(NodeRows(nodes, rows))
        self._count += len(new_keys)
        return nodes

    def tree(self, mode: str, of_row: Int64s, under: Amounts) -> OpTree:
        """The tree with all its figures; `of_row`: the node of each row of the trace."""
        sizes_of_levels = [len(names) for names in self._names]
        level = np.repeat(np.arange(len(self._names)), sizes_of_levels)
        parent = np.concatenate(self._parents).astype(np.int64)
        nodes = Nodes(
            parent=parent,
            level=level,
            size=sizes(parent, level),
            name=np.concatenate(self._names).astype(np.int64),
        )
        return _tree(self._trace, mode, nodes, self.parts, of_row, under)


@memo()
def call_tree(trace: Trace) -> OpTree:
    """Ops and calls of each thread merged with those of the same call path."""
    rows = _rows_on(trace, Layer.OPS)
    return _by_path(trace, rows, _launched_under(trace), MAX_LEVELS)


def _launched_under(trace: Trace) -> Amounts:
    """What was launched under each row, what is inside it included."""
    gpu_ns, kernels = gpu_under(trace)
    return Amounts(gpu_ns=gpu_ns, kernels=kernels)


def frame_tree(trace: Trace, origins: Origins) -> OpTree:
    """Python frames and modules of each thread merged with those of the same call path;
    GPU time counts in the innermost frame that its work belongs to, see Origins."""
    frame = frame_of(origins, trace.gpu_rows)
    has_frame = frame >= 0
    gpu_rows = trace.gpu_rows[has_frame]
    frame = frame[has_frame]
    is_kernel = (trace.role[gpu_rows] == Role.KERNEL).astype(np.int64)
    under = Amounts(
        gpu_ns=subtree_sums(trace, frame, trace.dur[gpu_rows]),
        kernels=subtree_sums(trace, frame, is_kernel),
    )
    rows = _rows_on(trace, Layer.PYTHON)
    return _by_path(trace, rows, under, MAX_FRAME_LEVELS)


def _by_path(trace: Trace, rows: Rows, under: Amounts, most_levels: int) -> OpTree:
    """The rows merged by their call paths, the threads around them; what lies deeper
    than `most_levels` is part of the level above."""
    names_of_threads = -1 - trace.track[rows].astype(np.int64)
    threads, thread = np.unique(names_of_threads, return_inverse=True)
    is_outer = trace.depth[rows] == 0
    outer = NodeRows(nodes=thread[is_outer], rows=rows[is_outer])
    levels = _Levels(trace, threads, outer)
    node = np.full(len(trace), -1, dtype=np.int64)  # of each row of the trace
    node[rows] = thread  # until the level of a row comes
    depth = np.minimum(trace.depth[rows], most_levels)
    levels_of_rows = int(depth.max(initial=-1)) + 1
    for level in range(levels_of_rows):
        of_level = rows[depth == level]
        # the node of a thread is that of its outermost rows until they have their own
        around = node[trace.parent[of_level]] if level else node[of_level]
        node[of_level] = levels.add(around, of_level, of_level)
    return levels.tree("path", node, under)


@memo()
def callers_tree(trace: Trace) -> OpTree:
    """Ops and calls of one name, then what calls them, and what calls that: self time
    of the op, and GPU time of the innermost op around a launch; that of a call outside
    of ops is its own."""
    rows = _rows_on(trace, Layer.OPS)
    names = trace.name[rows].astype(np.int64)
    ops, node = np.unique(names, return_inverse=True)
    of_row = np.full(len(trace), -1, dtype=np.int64)
    of_row[rows] = node
    levels = _Levels(trace, ops, NodeRows(nodes=node, rows=rows))
    _add_callers(levels, trace, node, rows)
    under = _launched_under(trace)
    launched_by = Amounts(
        gpu_ns=_launched_by(trace, under.gpu_ns),
        kernels=_launched_by(trace, under.kernels),
    )
    return levels.tree("callers", of_row, launched_by)


def _add_callers(levels: _Levels, trace: Trace, node: Rows, rows: Rows) -> None:
    """Adds a level of callers after the other, up to MAX_LEVELS. `node`: of each of the
    rows, the op, in the first level."""
    around = trace.parent[rows]  # the slice that called the last one, or -1
    for _ in range(MAX_LEVELS):
        has_caller = around >= 0
        if not has_caller.any():
            return
        rows = rows[has_caller]
        callers = around[has_caller].astype(np.intp)
        node = levels.add(node[has_caller], callers, rows)
        around = trace.parent[callers]


def _launched_by(trace: Trace, under: Int64s) -> Int64s:
    """An amount that was launched by each row itself, from that launched under it: an
    op has that of the calls directly inside it, and these have nothing."""
    amount = under.copy()
    inner = np.flatnonzero(trace.parent >= 0)
    np.subtract.at(amount, trace.parent[inner], under[inner])
    calls = trace.rows_of(Role.CALL)
    calls_in_ops = calls[trace.op[calls] >= 0]
    np.add.at(amount, trace.op[calls_in_ops], amount[calls_in_ops])
    amount[calls_in_ops] = 0
    return amount


@memo()
def op_tree(trace: Trace) -> OpTree:
    """All ops and calls in order of time, those of one thread after the other."""
    rows = _rows_on(trace, Layer.OPS)
    tracks, first, thread = np.unique(
        trace.track[rows], return_index=True, return_inverse=True
    )
    # a thread comes before its rows
    thread_nodes = first + np.arange(len(tracks))
    row_nodes = np.arange(len(rows)) + thread + 1
    around = _nodes_around(trace, rows, row_nodes)
    nodes = _empty_nodes(len(tracks) + len(rows))
    nodes.parent[row_nodes] = np.where(around >= 0, around, thread_nodes[thread])
    nodes.level[row_nodes] = trace.depth[rows].astype(np.int64) + 1
    nodes.size[thread_nodes] = np.diff(np.append(thread_nodes, len(nodes.size)))
    nodes.size[row_nodes] = trace.end_row[rows].astype(np.int64) - rows
    nodes.name[thread_nodes] = -1 - tracks.astype(np.int64)
    nodes.name[row_nodes] = trace.name[rows]
    is_outer = trace.depth[rows] == 0
    parts = [
        NodeRows(nodes=thread_nodes[thread[is_outer]], rows=rows[is_outer]),
        NodeRows(nodes=row_nodes, rows=rows),
    ]
    of_row = np.full(len(trace), -1, dtype=np.int64)
    of_row[rows] = row_nodes
    return _tree(trace, "each", nodes, parts, of_row, _launched_under(trace))


def _nodes_around(trace: Trace, rows: Rows, nodes: Int64s) -> Int64s:
    """The node of the row around each of some rows; -1 for none. `nodes`: of each of
    the rows."""
    of_row = np.full(len(trace) + 1, -1, dtype=np.int64)  # the last: of no row (-1)
    of_row[rows] = nodes
    around: Int64s = of_row[trace.parent[rows]]
    return around


def _empty_nodes(count: int) -> Nodes:
    """So many nodes of level 0 without anything around them, to be filled."""
    return Nodes(
        parent=np.full(count, -1, dtype=np.int64),
        level=np.zeros(count, dtype=np.int64),
        size=np.empty(count, dtype=np.int64),
        name=np.empty(count, dtype=np.int64),
    )


def _tree(
    trace: Trace,
    mode: str,
    nodes: Nodes,
    parts: list[NodeRows],
    of_row: Int64s,
    under: Amounts,
) -> OpTree:
    """The tree of these nodes. Their figures are the sums of what their rows add; the
    row of a node is the longest of its rows."""
    is_thread = nodes.name < 0
    row = _longest_rows(trace, len(nodes.parent), parts)
    row[is_thread] = -1
    amounts = _amounts(trace, mode, parts, under)
    figures = _sums(amounts, len(nodes.parent), parts)
    figures["self"][is_thread] = 0
    last_sort = "start" if mode == "each" else "count"
    return OpTree(
        parent=nodes.parent,
        level=nodes.level,
        size=nodes.size,
        row=row,
        figures=figures,
        sorts=(*MEASURES[:-1], last_sort, "name"),
        on_cpu="total",
        is_thread=is_thread,
        open_at_first=is_thread,
        trace=trace,
        mode=mode,
        name=nodes.name,
        of_row=of_row.astype(np.int32),
    )


def _longest_rows(trace: Trace, count: int, parts: list[NodeRows]) -> Int64s:
    """The longest row of each of `count` nodes, of equal ones the last; -1 for nodes
    without rows."""
    longest = np.full(count, -1, dtype=np.int64)
    for part in parts:
        by_length = np.argsort(trace.dur[part.rows], kind="stable")
        # the last one assigned is kept
        longest[part.nodes[by_length]] = part.rows[by_length]
    return longest


def _sums(
    amounts: dict[str, Int64s], count: int, parts: list[NodeRows]
) -> dict[str, Int64s]:
    """What the rows of each of `count` nodes add up to, by measure."""
    sums = {}
    for measure, amount in amounts.items():
        sums[measure] = np.zeros(count, dtype=np.int64)
        for part in parts:
            np.add.at(sums[measure], part.nodes, amount[part.rows])
    return sums


def _amounts(
    trace: Trace, mode: str, parts: list[NodeRows], under: Amounts
) -> dict[str, Int64s]:
    """What each row of the trace adds to the figures of its nodes, by measure. From the
    ops up, a capture has no thread of its own: only its GPU time counts. And an op
    inside another one of its name adds nothing to their total."""
    amounts = {
        "GPU": under.gpu_ns,
        "total": trace.dur,
        "self": self_ns(trace),
        "kernels": under.kernels,
    }
    if mode == "each":
        return amounts
    amounts["count"] = np.ones(len(trace), dtype=np.int64)
    if mode == "callers":
        is_recorded = trace.role != Role.CAPTURED
        adds_total = is_recorded.copy()
        ops = parts[0].rows
        adds_total[ops[inside_same_name(trace, ops)]] = False
        amounts["total"] = np.where(adds_total, amounts["total"], 0)
        amounts["self"] = np.where(is_recorded, amounts["self"], 0)
        amounts["count"] = np.where(is_recorded, amounts["count"], 0)
    return amounts


def _rows_on(trace: Trace, layer: Layer) -> Rows:
    """The rows of such layers of all threads, and of those of a capture."""
    is_on_layer = [_layer_of(trace, track) is layer for track in trace.tracks]
    # the last entry is that of rows without a track (-1)
    return np.flatnonzero(np.array([*is_on_layer, False])[trace.track])


def _layer_of(trace: Trace, track: Track) -> Layer:
    """The layer of a track; of one of a capture that which it had in its trace."""
    if track.layer is not Layer.CAPTURED or not len(track):
        return track.layer
    return LAYERS[Role(int(trace.source_role[track.first_row]))]


def places_of(tree: OpTree, threads: dict[object, int]) -> Int64s:
    """What identifies each node in any part of the trace: its place in traceEvents. For
    a thread, a negative number from `threads`, which grows."""
    places = np.where(tree.row >= 0, tree.trace.order[tree.row], -1)
    for node in np.flatnonzero(tree.is_thread).tolist():
        track = tree.trace.tracks[-1 - int(tree.name[node])]
        thread = (track.pid, track.tid, track.subrow)
        number = threads.setdefault(thread, len(threads))
        places[node] = -1 - number
    return places


def same_open(old: OpTree, opened: Flags, node: int, new: OpTree) -> tuple[Flags, int]:
    """For a tree of more of the same trace: which nodes are open, and where `node` is
    (or -1). Threads that were not there before are open."""
    threads: dict[object, int] = {}
    old_places = places_of(old, threads)
    new_places = places_of(new, threads)
    is_new_thread = new.is_thread & ~np.isin(new_places, old_places)
    new_opened = np.isin(new_places, old_places[opened]) | is_new_thread
    if node < 0:
        return new_opened, -1
    same = np.flatnonzero(new_places == old_places[node])
    return new_opened, int(same[0]) if len(same) else -1
