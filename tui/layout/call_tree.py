"""The ops of a trace merged by call path, or from the ops up to what calls them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar, Final

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
from fusetui.trace.model.categories import Layer, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.program.origin import Origins, frame_of
from fusetui.tui.layout.figure_trees import MEASURES, FigureTree, by_level, by_name
from fusetui.tui.layout.op_tree import layer_of

MODES: Final = ("path", "callers", "each")
SORTS: Final = (*MEASURES, "name")
FRAMES: Final = "frames"
"""The tree of Python frames among what is made of a trace, see memo.kept_on."""
DEEPEST_FRAMES = 1000
OWN = 2  # the place of self time among the amounts
DEEPEST = 64  # levels; what lies deeper is part of the level above


class TreeView(msgspec.Struct, frozen=True):
    """What the page shows: ops by call path, from the ops up, or each of them; how it is sorted."""

    mode: str = "path"
    sort: str = ""  # of merged ops; "": by the measure that says most
    each: str = "start"  # of those that are not merged

    def sort_of(self, tree: FigureTree) -> str:
        """What a tree is sorted by."""
        if self.mode == "each":
            return self.each
        return self.sort or tree.measure()

    def sorted_by(self, sort: str) -> TreeView:
        return replace(self, **{"each" if self.mode == "each" else "sort": sort})


class CallTree(FigureTree, frozen=True, eq=False, dict=True):
    """Nodes in order of their levels, so that each comes after the node around it; shape [nodes].

    Those of the first level are threads, or in a tree from the ops up, the ops.
    """

    SORTS: ClassVar[tuple[str, ...]] = SORTS

    bottom_up: bool
    parent: Int64s  # -1: none
    name: Int64s  # a number of trace.names; of a thread, -1 - the number of its track
    level: Int64s
    count: Int64s
    total_ns: Int64s
    own_ns: Int64s
    gpu_ns: Int64s
    kernels: Int64s
    of_row: NDArray[np.int32]  # the node of each row of the trace, -1 for none

    def __len__(self) -> int:
        return len(self.parent)

    @property
    def nodes(self) -> tuple[Int64s, Int64s, Int64s]:
        return self.parent, self.level, self._sizes

    @property
    def figures(self) -> Mapping[str, Int64s]:
        columns = self.gpu_ns, self.total_ns, self.own_ns, self.kernels, self.count
        return dict(zip(MEASURES, columns, strict=True))

    @property
    def is_thread(self) -> Flags:
        return self.name < 0

    def name_of(self, node: int) -> str:
        name = int(self.name[node])
        return self.trace.names[name] if name >= 0 else self.trace.tracks[-1 - name].label

    def _whole(self, measure: str) -> int:
        """From the ops up each op counts once on the first level, and their self times add up to
        all their time; by call path, what is inside has a count and a self time of its own."""
        if self.bottom_up:
            found = self.figures["self" if measure == "total" else measure][self.level == 0]
        elif measure in ("self", "count"):
            found = self.figures[measure][self.level > 0]
        else:
            found = self.figures[measure][self.level == 1]
        return int(found.sum())

    def _key(self, sort: str) -> Int64s:
        if sort != "name":
            return -self.figures[sort]
        return np.append(by_name(self.trace.names), -1)[np.maximum(self.name, -1)]

    @cached_property
    def _sizes(self) -> Int64s:
        """The nodes of each subtree."""
        size = np.ones(len(self), dtype=np.int64)
        for nodes in by_level(self.level)[:0:-1]:
            np.add.at(size, self.parent[nodes], size[nodes])
        return size


def call_tree(trace: Trace) -> CallTree:
    """Ops and calls of each thread merged with those of the same call path."""
    return _by_path(trace, _rows_on(trace, Layer.OPS), gpu_under(trace), DEEPEST)


def frame_tree(trace: Trace, found: Origins) -> CallTree:
    """Python frames and modules of each thread merged with those of the same call path; GPU time
    counts in the innermost frame that its work belongs to, see Origins."""
    frame = frame_of(found, trace.gpu_rows)
    rows, frame = trace.gpu_rows[frame >= 0], frame[frame >= 0]
    kernels = (trace.role[rows] == Role.KERNEL).astype(np.int64)
    under = subtree_sums(trace, frame, trace.dur[rows]), subtree_sums(trace, frame, kernels)
    return _by_path(trace, _rows_on(trace, Layer.PYTHON), under, DEEPEST_FRAMES)


def _by_path(trace: Trace, rows: Rows, under: tuple[Int64s, Int64s], deepest: int) -> CallTree:
    """`under`: GPU time and kernels of each row of the trace, with what is inside."""
    groups = -1 - trace.track[rows].astype(np.int64)
    roots, inverse = np.unique(groups, return_inverse=True)
    node = np.full(len(trace), -1, dtype=np.int64)
    node[rows] = inverse  # the thread, until the level of a row comes
    depth = np.minimum(trace.depth[rows], deepest)
    levels = [(np.full(len(roots), -1), roots, inverse, rows, True)]
    nodes = len(roots)
    for level in range(int(depth.max(initial=-1)) + 1):
        own = rows[depth == level]
        above = node[trace.parent[own]] if level else node[own]
        keys = above * (len(trace.names) + 1) + trace.name[own]
        distinct, place = np.unique(keys, return_inverse=True)
        parents, names = np.divmod(distinct, len(trace.names) + 1)
        levels.append((parents, names, place, own, False))
        node[own] = nodes + place
        nodes += len(distinct)
    outer = rows[trace.depth[rows] == 0]
    return _tree(trace, levels, node, False, outer, under)


def callers_tree(trace: Trace) -> CallTree:
    """Ops and calls of one name, then what calls them, and what calls that: self time of the op."""
    rows = _rows_on(trace, Layer.OPS)
    levels = []
    names, place = np.unique(trace.name[rows].astype(np.int64), return_inverse=True)
    levels.append((np.full(len(names), -1), names, place, rows, False))
    of_row = np.full(len(trace), -1, dtype=np.int64)
    of_row[rows] = place
    base, nodes, asked, above = 0, len(names), rows, trace.parent[rows].astype(np.int64)
    node = place
    for _ in range(DEEPEST):
        kept = above >= 0
        if not kept.any():
            break
        asked, above, node = asked[kept], above[kept], node[kept]
        keys = (base + node) * (len(trace.names) + 1) + trace.name[above]
        distinct, place = np.unique(keys, return_inverse=True)
        parents, names = np.divmod(distinct, len(trace.names) + 1)
        levels.append((parents, names, place, asked, False))
        base, nodes, node = nodes, nodes + len(distinct), place
        above = trace.parent[above].astype(np.int64)
    gpu, kernels = gpu_under(trace)
    under = _own_gpu(trace, gpu), _own_gpu(trace, kernels)
    return _tree(trace, levels, of_row, True, rows, under)


Level = tuple[Int64s, Int64s, Rows, Rows, bool]
"""Of its nodes the parents and the names; of its rows the node; the rows; are they threads."""


def _tree(
    trace: Trace,
    levels: list[Level],
    of_row: Int64s,
    bottom_up: bool,
    outer: Rows,
    under: tuple[Int64s, Int64s],
) -> CallTree:
    amounts = (*_times(trace, outer, bottom_up), *under)
    found = [_figures(trace, *one, amounts, outer) for one in levels]
    columns = (
        np.concatenate(parts).astype(np.int64, copy=False) for parts in zip(*found, strict=True)
    )
    parent, name, count, total, own_ns, gpu_ns, launched, row = columns
    level = np.repeat(np.arange(len(levels)), [len(one[0]) for one in levels])
    figures = parent, name, level, count, total, own_ns, gpu_ns, launched
    return CallTree(trace, row, bottom_up, *figures, of_row.astype(np.int32))


def _times(trace: Trace, outer: Rows, bottom_up: bool) -> tuple[Int64s, Int64s, Int64s]:
    """Calls, time and self time that each row of the trace adds to its node. From the ops up, a
    capture has no thread of its own: only its GPU time counts. And an op inside another one of its
    name adds nothing to their total."""
    calls, total, own = np.ones(len(trace), dtype=np.int64), trace.dur, self_ns(trace)
    if not bottom_up:
        return calls, total, own
    recorded = trace.role != Role.CAPTURED
    once = recorded.copy()
    once[outer[inside_same_name(trace, outer)]] = False
    return np.where(recorded, calls, 0), np.where(once, total, 0), np.where(recorded, own, 0)


def _figures(
    trace: Trace,
    parents: Int64s,
    names: Int64s,
    place: Rows,
    rows: Rows,
    threads: bool,
    amounts: Sequence[Int64s],
    outer: Rows,
) -> tuple[Int64s, ...]:
    """The columns of the nodes of one level: parents, names, the sum of each of the amounts (of
    threads, without self time), and the longest row."""
    counted = np.isin(rows, outer) if threads else np.ones(len(rows), dtype=np.bool_)
    sums = [np.zeros(len(parents), dtype=np.int64) for _ in amounts]
    for n, (found, values) in enumerate(zip(sums, amounts, strict=True)):
        if not threads or n != OWN:
            np.add.at(found, place[counted], values[rows[counted]])
    longest = np.full(len(parents), -1, dtype=np.int64)
    by_length = np.argsort(trace.dur[rows], kind="stable")
    longest[place[by_length]] = -1 if threads else rows[by_length]
    return (parents, names, *sums, longest)


def _own_gpu(trace: Trace, amount: Int64s) -> Int64s:
    """What was launched under a row, less what was launched under the rows in it."""
    inner = np.flatnonzero(trace.parent >= 0)
    found = amount.copy()
    np.subtract.at(found, trace.parent[inner], amount[inner])
    return found


def _rows_on(trace: Trace, layer: Layer) -> Rows:
    """Of such layers of all threads, and of those of a capture."""
    tracks = [layer_of(trace, track) is layer for track in trace.tracks]
    return np.flatnonzero(np.array([*tracks, False])[trace.track])
