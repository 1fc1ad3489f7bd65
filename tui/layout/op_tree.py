"""The ops of a trace as trees: top-down, bottom-up or flat."""

from __future__ import annotations

from functools import cached_property
from typing import Final, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui.analysis.questions.totals import (
    mark_nested_in_same_name,
    measure_self_ns,
    sum_gpu_work_under_rows,
    sum_over_subtrees,
)
from fusetui.trace.model.arrays import NO_ROW, Flags, Int64s, Integers, Rows
from fusetui.trace.model.categories import LAYERS, Layer, Role
from fusetui.trace.model.columns import Trace, Track
from fusetui.trace.model.memo import memo
from fusetui.trace.program.origin import Origins, frame_of
from fusetui.tui.layout.figure_trees import FigureTree, by_name, sizes
from fusetui.tui.layout.kinds import SliceKind, classify_slice, label_of, narrow

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
        """Return what the nodes of a tree are sorted by in the current mode. If a
        person has not chosen a column, merged ops are sorted by the measure with the
        most time."""
        if self.mode == "each":
            return self.each
        return self.sort or tree.measure()

    def sorted_by(self, sort: str) -> TreeView:
        """Return the view with another order of the nodes. The modes with merged ops
        share one order; the mode that lists each op has its own."""
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
        """The alphabetical rank of each node, shape [nodes]; -1 for threads, which come
        before all ops."""
        place_of_name = by_name(self.trace.names)
        is_thread = self.name < 0
        place = np.full(len(self.name), -1)
        place[~is_thread] = place_of_name[self.name[~is_thread]]
        return place

    def name_of(self, node: int) -> str:
        """Return the name of a node's op or call as it is in the trace. For a thread,
        return its label."""
        name = int(self.name[node])
        if name >= 0:
            return self.trace.names[name]
        return self.trace.tracks[-1 - name].label

    def role(self, node: int) -> int:
        """Return the role (op, call, frame, ...) of the slice that a node stands for,
        or -1 for a thread."""
        row = int(self.row[node])
        return int(self.trace.source_role[row]) if row != NO_ROW else -1

    def label(self, node: int) -> str:
        """Return the short name of a node, in printable characters of one cell each."""
        role = self.role(node)
        name = self.name_of(node)
        return label_of(role, name) if role >= 0 else narrow(name)

    def kind(self, node: int) -> SliceKind:
        """Return the kind of a node's slice, which decides its color; OTHER for a
        thread."""
        role = self.role(node)
        return (
            classify_slice(role, self.name_of(node)) if role >= 0 else SliceKind.OTHER
        )

    def counted(self, measure: str) -> Flags:
        """Tell which nodes add up to the total of a measure; bool, shape [nodes].

        In a tree of callers these are the ops themselves, at the outermost level. In a
        tree by call path they are all ops for self time and count, which exclude inner
        ops. Other measures include inner ops there, so only the ops directly below a
        thread count.
        """
        if self.mode == "callers":
            return self.parent < 0
        inner: Flags = self.parent >= 0
        return inner if measure in ("self", "count") else inner & (self.level == 1)

    def whole(self, measure: str) -> int:
        """Return the total of a measure, which is 100 % for its shares. In a tree of
        callers the total times of ops overlap, so the sum of their self times is taken
        instead."""
        is_total = self.mode == "callers" and measure == "total"
        return super().whole("self" if is_total else measure)

    @cached_property
    def all_gpu_ns(self) -> int:
        """The time of all GPU events in ns, including those whose launch is not in the
        trace."""
        return int(self.trace.dur[self.trace.gpu_rows].sum())


NO_NODE = -1


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
        """Begin with the outermost level.

        `roots` are the names of its nodes, as numbers. `part` assigns rows of the trace
        to these nodes.
        """
        self._trace = trace
        self._parents = [np.full(len(roots), -1)]
        self._names = [roots]
        self._count = len(roots)
        self.parts = [part]

    def add(self, above: Int64s, named: Rows, rows: Rows) -> Rows:
        """Add a level of nodes and return the node of each row; shape [rows].

        Rows with the same node `above` them and the same name share a node. The name is
        that of the row `named`, which may be another than the row whose figures count,
        such as its caller. All arguments have the shape [rows].
        """
        name_count = len(self._trace.names) + 1
        # parent and name packed into one integer, which np.unique sorts faster than
        # pairs
        parent_and_name = above * name_count + self._trace.name[named]
        unique_keys, key_of_row = np.unique(parent_and_name, return_inverse=True)
        parents, new_names = np.divmod(unique_keys, name_count)
        nodes: Rows = self._count + key_of_row
        self._parents.append(parents)
        self._names.append(new_names)
        self.parts.append(NodeRows(nodes, rows))
        self._count += len(unique_keys)
        return nodes

    def tree(self, mode: str, of_row: Int64s, under: Amounts) -> OpTree:
        """Build the finished tree with all its figures.

        `of_row` is the node of each row of the trace, or -1. `under` holds the GPU time
        and kernels launched under each row.
        """
        sizes_of_levels = [len(names) for names in self._names]
        level = np.repeat(np.arange(len(self._names)), sizes_of_levels)
        parent = np.concatenate(self._parents).astype(np.int64)
        nodes = Nodes(
            parent=parent,
            level=level,
            size=sizes(parent, level),
            name=np.concatenate(self._names).astype(np.int64),
        )
        return _build_tree(self._trace, mode, nodes, self.parts, of_row, under)


@memo()
def build_call_tree(trace: Trace) -> OpTree:
    """Build the tree of ops and calls by thread and call path: rows with equal paths
    share a node."""
    rows = _find_rows_on_layer(trace, Layer.OPS)
    return _merge_by_path(trace, rows, _sum_launched_work(trace), MAX_LEVELS)


def _sum_launched_work(trace: Trace) -> Amounts:
    """Return the GPU time and the number of kernels launched under each row, including
    what is launched by the rows inside it."""
    gpu_ns, kernels = sum_gpu_work_under_rows(trace)
    return Amounts(gpu_ns=gpu_ns, kernels=kernels)


def build_frame_tree(trace: Trace, origins: Origins) -> OpTree:
    """Build the tree of Python frames and modules by thread and call path: frames with
    equal paths share a node.

    The time of a GPU event counts for the innermost frame that launched it, and for all
    frames around that one. `origins` tells which frame that is.
    """
    frame_of_event = frame_of(origins, trace.gpu_rows)
    has_frame = frame_of_event != NO_ROW
    gpu_rows = trace.gpu_rows[has_frame]
    frame_of_event = frame_of_event[has_frame]
    is_kernel = (trace.role[gpu_rows] == Role.KERNEL).astype(np.int64)
    under = Amounts(
        gpu_ns=sum_over_subtrees(trace, frame_of_event, trace.dur[gpu_rows]),
        kernels=sum_over_subtrees(trace, frame_of_event, is_kernel),
    )
    rows = _find_rows_on_layer(trace, Layer.PYTHON)
    return _merge_by_path(trace, rows, under, MAX_FRAME_LEVELS)


def _merge_by_path(
    trace: Trace, rows: Rows, under: Amounts, most_levels: int
) -> OpTree:
    """Build a tree in which rows with the same call path share a node, below a node for
    each thread.

    Args:
        trace: The trace with the rows.
        rows: The rows to merge, such as all ops.
        under: The GPU time and kernels launched under each row of the trace.
        most_levels: The depth below which rows are no longer nested: they become
            children of the last level.
    """
    thread_names, thread_node = np.unique(
        _name_threads(trace.track[rows]), return_inverse=True
    )
    is_outermost = trace.depth[rows] == 0
    outermost = NodeRows(nodes=thread_node[is_outermost], rows=rows[is_outermost])
    levels = _Levels(trace, thread_names, outermost)
    node_of_row = np.full(len(trace), NO_NODE, dtype=np.int64)  # of all trace rows
    node_of_row[rows] = thread_node  # until the level of a row comes
    # what lies deeper counts for the last level
    level_of_row = np.minimum(trace.depth[rows], most_levels)
    deepest_level = int(level_of_row.max(initial=-1))
    for level in range(deepest_level + 1):
        is_on_level = level_of_row == level
        rows_on_level = rows[is_on_level]
        if level == 0:
            parent_node = thread_node[is_on_level]
        else:
            parent_node = node_of_row[trace.parent[rows_on_level]]
        node_of_row[rows_on_level] = levels.add(
            parent_node, rows_on_level, rows_on_level
        )
    return levels.tree("path", node_of_row, under)


@memo()
def build_callers_tree(trace: Trace) -> OpTree:
    """Build a tree with the ops at the outermost level, and below each the slices that
    call it, their callers, and so on.

    Rows with the same name share a node of the outermost level. A node has the self
    time of the op, and the GPU work launched from it directly. A launch counts for the
    innermost op around it; a call outside of all ops counts for itself.
    """
    rows = _find_rows_on_layer(trace, Layer.OPS)
    name_of_row = trace.name[rows].astype(np.int64)
    op_names, op_node = np.unique(name_of_row, return_inverse=True)
    of_row = np.full(len(trace), -1, dtype=np.int64)
    of_row[rows] = op_node
    levels = _Levels(trace, op_names, NodeRows(nodes=op_node, rows=rows))
    _add_callers(levels, trace, op_node, rows)
    under = _sum_launched_work(trace)
    launched_by = Amounts(
        gpu_ns=_subtract_inner_launches(trace, under.gpu_ns),
        kernels=_subtract_inner_launches(trace, under.kernels),
    )
    return levels.tree("callers", of_row, launched_by)


def _add_callers(levels: _Levels, trace: Trace, node: Rows, rows: Rows) -> None:
    """Add one level of callers after another to the tree, up to MAX_LEVELS.

    Below each op come the slices that call it, below these their callers, and so on.
    Nodes of all levels have the figures of the called rows, not of the callers.

    Args:
        levels: The tree, to which levels are added in place.
        trace: The trace with the rows.
        node: The node of each row in the outermost level.
        rows: The rows of all ops and calls.
    """
    caller_rows = trace.parent[rows]  # the slice that called the last one, or -1
    for _ in range(MAX_LEVELS):
        has_caller = caller_rows != NO_ROW
        if not has_caller.any():
            return
        rows = rows[has_caller]
        known_callers = caller_rows[has_caller].astype(np.intp)
        node = levels.add(node[has_caller], known_callers, rows)
        caller_rows = trace.parent[known_callers]


def _subtract_inner_launches(trace: Trace, under: Int64s) -> Int64s:
    """Return the amount of work launched by each row directly, given the amount
    launched under it; shape [rows].

    What the rows directly inside a row launched is subtracted from it. The work of
    calls inside an op is then moved to that op.
    """
    amount = under.copy()
    inner_rows = np.flatnonzero(trace.parent != NO_ROW)
    # what remains are the launches of the row itself
    np.subtract.at(amount, trace.parent[inner_rows], under[inner_rows])
    calls = trace.rows_of(Role.CALL)
    calls_in_ops = calls[trace.op[calls] != NO_ROW]
    # a launch call counts for the innermost op around it
    np.add.at(amount, trace.op[calls_in_ops], amount[calls_in_ops])
    amount[calls_in_ops] = 0
    return amount


@memo()
def build_op_tree(trace: Trace) -> OpTree:
    """Build the tree of all ops and calls without merging any, thread by thread and in
    order of time.

    The first level are the threads; below each, its rows are nested as in the trace.
    """
    rows = _find_rows_on_layer(trace, Layer.OPS)
    tracks, first_index, thread_of_row = np.unique(
        trace.track[rows], return_index=True, return_inverse=True
    )
    # each thread has a node just before those of its rows: before the rows of a thread
    # lie the nodes of all threads up to this one
    thread_nodes = first_index + np.arange(len(tracks))
    row_nodes = np.arange(len(rows)) + thread_of_row + 1
    thread_node_of_row = thread_nodes[thread_of_row]
    parent_nodes = _find_parent_nodes(trace, rows, row_nodes)
    has_parent = parent_nodes != NO_NODE
    nodes = _allocate_nodes(len(tracks) + len(rows))
    nodes.parent[row_nodes] = np.where(has_parent, parent_nodes, thread_node_of_row)
    nodes.level[row_nodes] = trace.depth[rows].astype(np.int64) + 1
    nodes.size[thread_nodes] = np.diff(np.append(thread_nodes, len(nodes.size)))
    nodes.size[row_nodes] = trace.end_row[rows].astype(np.int64) - rows
    nodes.name[thread_nodes] = _name_threads(tracks)
    nodes.name[row_nodes] = trace.name[rows]
    # a thread has the figures of its outermost rows, which include the others
    is_outermost = trace.depth[rows] == 0
    rows_of_nodes = [
        NodeRows(nodes=thread_node_of_row[is_outermost], rows=rows[is_outermost]),
        NodeRows(nodes=row_nodes, rows=rows),
    ]
    node_of_row = np.full(len(trace), NO_NODE, dtype=np.int64)  # of all trace rows
    node_of_row[rows] = row_nodes
    launched = _sum_launched_work(trace)
    return _build_tree(trace, "each", nodes, rows_of_nodes, node_of_row, launched)


def _name_threads(tracks: Integers) -> Int64s:
    """Return the names of the nodes of threads, given the numbers of their tracks.

    They are negative (-1, -2, ...), because names from 0 on are those of ops: see
    OpTree.name.
    """
    return -1 - tracks.astype(np.int64)


def _find_parent_nodes(trace: Trace, rows: Rows, nodes: Int64s) -> Int64s:
    """Return the node of each row's parent in the trace, or -1 if the parent has no
    node; shape [rows]. `nodes` are the nodes of the rows themselves."""
    node_of_row = np.full(len(trace), NO_NODE, dtype=np.int64)  # of all trace rows
    node_of_row[rows] = nodes
    parent_rows = trace.parent[rows]
    has_parent = parent_rows != NO_ROW
    parent_nodes = np.full(len(rows), NO_NODE, dtype=np.int64)
    parent_nodes[has_parent] = node_of_row[parent_rows[has_parent]]
    return parent_nodes


def _allocate_nodes(count: int) -> Nodes:
    """Return `count` nodes of level 0 without parents, whose size and name the caller
    fills in."""
    return Nodes(
        parent=np.full(count, NO_NODE, dtype=np.int64),
        level=np.zeros(count, dtype=np.int64),
        size=np.empty(count, dtype=np.int64),
        name=np.empty(count, dtype=np.int64),
    )


def _build_tree(
    trace: Trace,
    mode: str,
    nodes: Nodes,
    parts: list[NodeRows],
    of_row: Int64s,
    under: Amounts,
) -> OpTree:
    """Build a tree from its nodes and the rows that count for each of them.

    The figures of a node are sums over its rows. The node stands for the longest of its
    rows, to which the cursor jumps; threads stand for none.

    Args:
        trace: The trace with the rows.
        mode: How rows were merged: "path", "callers", or "each" for not at all.
        nodes: The parent, level, subtree size and name of each node.
        parts: Pairs of a node and a row that counts for it.
        of_row: The node of each row of the trace, or -1.
        under: The GPU time and kernels launched under each row.
    """
    is_thread = nodes.name < 0
    longest_row = _find_longest_rows(trace, len(nodes.parent), parts)
    longest_row[is_thread] = -1
    amounts = _collect_amounts(trace, mode, parts, under)
    figures = _sum_by_node(amounts, len(nodes.parent), parts)
    figures["self"][is_thread] = 0
    # ops that are not merged have no count, but a start
    last_sort = "start" if mode == "each" else "count"
    return OpTree(
        parent=nodes.parent,
        level=nodes.level,
        size=nodes.size,
        row=longest_row,
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


def _find_longest_rows(trace: Trace, count: int, parts: list[NodeRows]) -> Int64s:
    """Return the longest row of each of `count` nodes, or -1 for a node without rows.
    Of several rows with equal durations it is the last."""
    longest_row = np.full(count, -1, dtype=np.int64)
    for part in parts:
        by_length = np.argsort(trace.dur[part.rows], kind="stable")
        # the last one assigned is kept
        longest_row[part.nodes[by_length]] = part.rows[by_length]
    return longest_row


def _sum_by_node(
    amounts: dict[str, Int64s], count: int, parts: list[NodeRows]
) -> dict[str, Int64s]:
    """Return the sum of each measure over the rows of each node; arrays of shape
    [nodes]. `amounts` has the figure of each row of the trace, by measure."""
    sums = {}
    for measure, amount in amounts.items():
        sums[measure] = np.zeros(count, dtype=np.int64)
        for part in parts:
            np.add.at(sums[measure], part.nodes, amount[part.rows])
    return sums


def _collect_amounts(
    trace: Trace, mode: str, parts: list[NodeRows], under: Amounts
) -> dict[str, Int64s]:
    """Return what each row of the trace adds to the figures of its nodes, by measure;
    arrays of shape [rows].

    Two kinds of rows are excluded from some measures in a tree of callers. Rows of a
    graph capture ran in another trace, so only their GPU time counts. An op inside
    another op of the same name is already part of its total time.

    Args:
        trace: The trace with the rows.
        mode: How rows are merged: "path", "callers", or "each" for not at all.
        parts: The rows of each node; the first part has those of the outermost nodes.
        under: The GPU time and kernels launched under each row.
    """
    amounts = {
        "GPU": under.gpu_ns,
        "total": trace.dur,
        "self": measure_self_ns(trace),
        "kernels": under.kernels,
    }
    if mode == "each":
        return amounts
    amounts["count"] = np.ones(len(trace), dtype=np.int64)
    if mode == "callers":
        is_recorded = trace.role != Role.CAPTURED
        adds_total = is_recorded.copy()
        ops = parts[0].rows
        adds_total[ops[mark_nested_in_same_name(trace, ops)]] = False
        amounts["total"] = np.where(adds_total, amounts["total"], 0)
        amounts["self"] = np.where(is_recorded, amounts["self"], 0)
        amounts["count"] = np.where(is_recorded, amounts["count"], 0)
    return amounts


def _find_rows_on_layer(trace: Trace, layer: Layer) -> Rows:
    """Return the rows on one layer (such as ops, or Python frames) of all threads. Rows
    of a graph capture count for the layer that they had when they were captured."""
    is_on_layer = [_find_layer(trace, track) is layer for track in trace.tracks]
    # the last entry is that of rows without a track (-1)
    return np.flatnonzero(np.array([*is_on_layer, False])[trace.track])


def _find_layer(trace: Trace, track: Track) -> Layer:
    """Return the layer of a track. A track of a graph capture has the layer that its
    slices had in their own trace."""
    if track.layer is not Layer.CAPTURED or not len(track):
        return track.layer
    return LAYERS[Role(int(trace.source_role[track.first_row]))]


def identify_nodes(tree: OpTree, threads: dict[object, int]) -> Int64s:
    """Return a number for each node that stays the same while more of the trace is
    read; shape [nodes].

    For an op it is the position of its event in the file. For a thread it is a negative
    number from `threads`. Threads that are not yet in that dict are added to it.
    """
    identities = np.where(tree.row != NO_ROW, tree.trace.order[tree.row], -1)
    for node in np.flatnonzero(tree.is_thread).tolist():
        track = tree.trace.tracks[-1 - int(tree.name[node])]
        thread = (track.pid, track.tid, track.subrow)
        number = threads.setdefault(thread, len(threads))
        identities[node] = -1 - number
    return identities


def carry_open_nodes(
    old: OpTree, opened: Flags, node: int, new: OpTree
) -> tuple[Flags, int]:
    """Return which nodes of a tree are open, and the cursor, after more of the same
    trace has been read.

    Nodes keep their state from the `old` tree; new threads are open. The cursor is the
    node of `new` that is the same as `node` of `old`, or -1 if there is none.
    """
    threads: dict[object, int] = {}
    old_identities = identify_nodes(old, threads)
    new_identities = identify_nodes(new, threads)
    is_new_thread = new.is_thread & ~np.isin(new_identities, old_identities)
    new_opened = np.isin(new_identities, old_identities[opened]) | is_new_thread
    if node < 0:
        return new_opened, -1
    matching_nodes = np.flatnonzero(new_identities == old_identities[node])
    return new_opened, int(matching_nodes[0]) if len(matching_nodes) else -1
