"""The work of a trace as a graph: nodes are work, and edges are waits.

A *node* is a stretch of work: a call, the time of a thread between two calls, or a
*GPU task*, which is a kernel, copy or set. A *lane* is a thread or a stream; its nodes
follow each other.

Each node has up to two *sources*, which are nodes that must end before it begins. The
edge from a source has a delay, which consists of a *lag* and a *residual*:

    begin = max(
        end[source[0]] + lag[0] + residual[0],
        end[source[1]] + lag[1] + residual[1],
    )
    end = begin + dur

The lag is the part of the recorded delay that is understood: the latency of a launch,
or the usual switch from task to task. It may be shorter than usual, and even negative,
where the recording shows it. The residual is the rest of the recorded delay, whose
reason is not known.

Nodes are in an order in which sources come first. Node 0 is the *origin*, the begin of
the recording. A node that has only one source has the origin as the other, with the lag
NEVER. A node with more than two sources waits for JOINs, which take no time.

    what waits   source[SAME_LANE]               source[OTHER_LANE]
    CPU_WORK     the node before on the thread   -
    MARK         likewise                        - (a batch that workers load)
    LAUNCH       likewise                        the task that makes room in a queue
    WAIT         likewise                        the tasks that it waits for
    HANDOFF      likewise                        the end of another thread's work
    GPU_TASK     the task before on the stream,  the CPU_WORK before its launch call
                 and events (JOINs)

A HANDOFF at which workers hand over a batch also waits for that batch: see Batches.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.arrays import (
    Flags,
    Floats,
    Int32s,
    Int64s,
    Rows,
    at,
    distinct,
    last_at_or_before,
    prefix_sums,
)
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id
from fusetui.trace.model.intervals import NO_INTERVAL, Cover


class TimeScale(NamedTuple):
    """How much faster or slower a thread runs in a replay, as a function of time.

    From each of `times` up to the next one, a recorded ns takes `rate` ns in the
    replay. E.g. times (10, 30) with rates (0.5, 1) let the thread run twice as fast
    from 10 to 30 ns. Before the first time, a ns takes 1 ns.
    """

    times: Int64s  # recorded, in ns after the origin, ascending
    rate: Floats  # ns of the replay per recorded ns

    def elapsed_until(self, times: Int64s) -> Int64s:
        """Measure how long the thread takes in the replay to get from time 0 to
        recorded times.

        Differences of two results are how long the thread takes between two times. They
        are rounded such that parts add up exactly.

        Args:
            times: Recorded times, in ns after the origin.

        Returns:
            ns for each of `times`.
        """
        if not len(self.times):
            return times

        # How long it takes until each of the times at which the rate changes.
        elapsed_between = np.diff(self.times) * self.rate[:-1]
        since_first_change = prefix_sums(elapsed_between)
        until_change = self.times[0] + since_first_change

        # Add how long it takes from the last change on.
        last_change = last_at_or_before(self.times, times)
        change = np.maximum(last_change, 0)
        since_change_ns = (times - self.times[change]) * self.rate[change]
        elapsed = np.rint(until_change[change] + since_change_ns)

        is_before_first_change = last_change < 0
        return np.where(is_before_first_change, times, elapsed).astype(np.int64)

    def scaled_within(self, cover: Cover, factor: float) -> TimeScale:
        """Return a scale in which each ns within some intervals takes longer or less.

        Args:
            cover: The intervals, in recorded ns after the origin.
            factor: How many times as long each ns in them takes; 0 for no time at all.
        """
        times = distinct(np.concatenate((self.times, cover.start, cover.end)))
        last_change = last_at_or_before(self.times, times)
        rate = at(self.rate, last_change, missing=1.0)
        is_covered = cover.place_of(times) != NO_INTERVAL
        return TimeScale(times=times, rate=np.where(is_covered, rate * factor, rate))


AS_RECORDED = TimeScale(times=np.empty(0, dtype=np.int64), rate=np.empty(0))
"""Every recorded ns takes 1 ns."""

NEVER = -(1 << 61)
"""As the lag of an edge: there is no such edge. The number is so small that the other
edge of the node always ends later."""
MAX_TIED_NODES = 100
"""How many nodes that begin at the same time and wait for each other in a row are put
in order by `_count_tie_levels`; longer rows are left to `_sort_topologically`."""
ORIGIN_NODE = 0
"""The node of the begin of the recording. As a source it stands for none."""
SAME_LANE, OTHER_LANE = 0, 1
"""The two edges of a node: from the node before it on its thread or stream, and from a
node of another thread or stream."""


class Node(IntEnum):
    """What a node is. If calls overlap on one thread, the largest kind counts."""

    ORIGIN = 0  # the begin of the recording
    CPU_WORK = 1  # what a thread does itself between two of the following
    MARK = 2  # where a step, or the loading of a batch, begins or ends; takes no time
    # A call that launches work, from the moment on at which its queue has room.
    LAUNCH = 3
    # The moment at which a thread goes on that waited for another thread; takes no time.
    HANDOFF = 4
    # The rest of a call that waits for the device, once what it waits for has ended.
    WAIT = 5
    JOIN = 6  # ends when both of its sources have ended; takes no time
    GPU_TASK = 7  # a kernel, copy or set


class Batches(msgspec.Struct, frozen=True, eq=False):
    """The HANDOFFs at which workers of a data loader hand over batches to a thread.

    There is one entry per batch, in the order of the nodes. Times are recorded ns.
    """

    node: Rows  # the HANDOFF
    waited: Int64s  # from the begin of the call for the batch until the HANDOFF
    # How much of `waited` the thread may have worked instead, taking over a batch that
    # was ready. If it is all of it, the thread may not have waited at all.
    unsure: Int64s
    loader: Int32s  # batches with the same number are loaded by the same workers

    def take(self, selection: NDArray[Any]) -> Batches:
        """Return some of the batches.

        Args:
            selection: Their indices in the wanted order, or a flag per batch.
        """
        return Batches(
            node=self.node[selection],
            waited=self.waited[selection],
            unsure=self.unsure[selection],
            loader=self.loader[selection],
        )


NO_BATCHES = Batches(
    node=np.empty(0, dtype=np.intp),
    waited=np.empty(0, dtype=np.int64),
    unsure=np.empty(0, dtype=np.int64),
    loader=np.empty(0, dtype=np.int32),
)


class Lane(msgspec.Struct, frozen=True):
    """A thread or a stream, whose nodes follow each other."""

    thread: int  # its number, as in Trace.thread_of_track
    is_stream: bool = False
    device: Id = None  # of a stream: the device it belongs to


class Times(NamedTuple):
    """When each node begins and ends in a replay, in ns after the origin.

    The times of nodes that a change removed (Graph.is_removed) mean nothing.
    """

    begin: Int64s
    end: Int64s


class Graph(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The work of a trace: nodes, and two edges for each node.

    Arrays have the shape [nodes], or [2, nodes] for the edges SAME_LANE and OTHER_LANE.
    Times are ns after the origin. Recorded times stay as they are in a graph that has
    been changed.
    """

    origin_ns: int  # in ns of the file
    lanes: tuple[Lane, ...]  # threads first, then streams
    kind: NDArray[np.uint8]  # see Node
    # The index in `lanes`; of a JOIN that of what waits for it; -1 for the origin.
    lane: Int32s
    row: Int32s  # the row of the call or GPU event in the trace, -1: none
    began: Int64s  # recorded; of a call that waits: when the waiting was over
    lasted: Int64s  # recorded
    dur: Int64s  # how long the node takes, with the changes made so far
    unexplained: Int64s  # the part of `dur` by which a wait returns later than usual
    source: Int32s  # the node that each edge comes from
    lag: Int64s  # the delay of each edge that is understood; NEVER: no edge
    # The rest of the recorded delay; 0 for all edges that do not decide.
    residual: Int64s
    is_removed: Flags  # whether a change removed the node
    time_scales: tuple[TimeScale, ...]  # per thread, in the order of `lanes`
    inferred_waits: int  # how many waits were not recorded but inferred
    batches: Batches = NO_BATCHES

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def ended(self) -> Int64s:
        """When each node ended as recorded, in ns after the origin."""
        return self.began + self.lasted

    @property
    def recorded(self) -> Times:
        """When each node began and ended as recorded."""
        return Times(begin=self.began, end=self.ended)

    @property
    def delay(self) -> Int64s:
        """How long after its source each edge lets a node begin, in ns."""
        return self.lag + self.residual

    @property
    def gpu_tasks(self) -> Rows:
        """The nodes of all kernels, copies and sets, in ascending order."""
        return self.nodes(Node.GPU_TASK)

    def nodes(self, *kinds: Node, rows: Rows | None = None) -> Rows:
        """Return the nodes of some kinds, such as launch calls or kernels, in ascending
        order.

        Args:
            kinds: The kinds.
            rows: If given, only nodes of these rows of the trace are returned.
        """
        nodes = np.flatnonzero(np.isin(self.kind, kinds))
        if rows is None:
            return nodes
        is_of_rows = np.isin(self.row[nodes], rows)
        return nodes[is_of_rows]

    def has_edge(self, edge: int, nodes: Rows) -> Flags:
        """Return which nodes wait for a source by one of their two edges.

        One edge leads to the node before it on its thread or stream, the other to a
        node of another one.

        Args:
            edge: The edge, SAME_LANE or OTHER_LANE.
            nodes: The nodes.

        Returns:
            A flag for each of `nodes`.
        """
        return np.asarray(self.lag[edge, nodes] != NEVER)

    def node_of(self, trace: Trace, kind: Node) -> Rows:
        """Return for each row of the trace (each slice) the node of one kind that
        stands for it.

        Returns:
            One entry per row, and a last one, which the row -1 ("none") finds. It is 0,
            the origin, where there is no such node.
        """
        nodes = self.nodes(kind)
        rows = self.row[nodes]
        node_of_row = np.zeros(len(trace) + 1, dtype=np.intp)
        node_of_row[rows] = nodes
        return node_of_row


def renumber_batches(batches: Batches, new_node: NDArray[np.integer]) -> Batches:
    """Return the batches of a graph after its nodes got other numbers.

    They stay in the order of their nodes: batches at the nodes 3 and 5, which become 8
    and 2, are then at 2 and 8.

    Args:
        batches: The batches, with nodes as before.
        new_node: For each node as before, which node it is now.
    """
    node = new_node[batches.node].astype(np.intp)
    renumbered = msgspec.structs.replace(batches, node=node)
    return renumbered.take(np.argsort(node, kind="stable"))


def sort_nodes(
    began: Int64s, ended: Int64s, tie_order: NDArray[np.floating[Any]], source: Int32s
) -> Rows:
    """Sort nodes so that their sources come first, as a replay in one pass needs.

    Nodes are sorted by their recorded times. That is enough unless a node begins before
    its source, as with clocks that differ; then they are sorted along the edges.

    Args:
        began: When each node began.
        ended: When each node ended.
        tie_order: A number for each node. Of nodes with equal times, the one with the
            smaller number comes first.
        source: The two sources of each node, of shape [2, nodes].

    Returns:
        The nodes in order.
    """
    level = _count_tie_levels(began, source)
    order = np.lexsort((tie_order, ended, level, began))

    rank = np.empty(len(order), dtype=np.intp)
    rank[order] = np.arange(len(order))
    # The origin always comes first.
    comes_before_source = (rank[source] >= rank) & (source != ORIGIN_NODE)
    if comes_before_source.any():
        return _sort_topologically(rank, source)
    return order


def _count_tie_levels(began: Int64s, source: Int32s) -> Int64s:
    """Count for each node the sources that begin at the same time and must come first.

    E.g. of three nodes that begin at the same time and wait for each other in a row,
    the first has level 0, the second 1 and the third 2. Rows that are longer than
    MAX_TIED_NODES are not counted to the end.

    Args:
        began: When each node began.
        source: The two sources of each node, of shape [2, nodes].
    """
    level = np.zeros(len(began), dtype=np.int64)
    is_tied = (source != ORIGIN_NODE) & (began[source] == began)
    edge, target = np.nonzero(is_tied)
    tied_source = source[edge, target]

    # Raise the level of each node above that of its source, until nothing changes.
    for _ in range(MAX_TIED_NODES):
        is_too_low = level[tied_source] >= level[target]
        if not is_too_low.any():
            break
        level_above_source = level[tied_source[is_too_low]] + 1
        np.maximum.at(level, target[is_too_low], level_above_source)
    return level


def _sort_topologically(rank: Rows, source: Int32s) -> Rows:
    """Sort nodes so that their sources come first, by Kahn's algorithm.

    Of the nodes whose sources are all in order already, the one with the lowest rank
    comes next. Nodes that wait for each other in a circle cannot all come behind their
    sources; there, the one with the lowest rank comes first.

    Args:
        rank: The rank of each node by its recorded times.
        source: The two sources of each node, of shape [2, nodes].
    """
    from heapq import heappop, heappush  # only for clocks that differ, and for circles

    size = len(rank)
    ranks = rank.tolist()
    targets = _Targets(source)
    missing_sources = [0, *[2] * (size - 1)]  # the origin has no source
    is_ordered = bytearray(size)
    order: list[int] = []
    ready = [(ranks[0], 0)]
    highest_rank_first = np.argsort(rank).tolist()[::-1]
    while len(order) < size:
        # If nothing is ready, the rest is behind a circle: take its lowest rank.
        while not ready:
            node = highest_rank_first.pop()
            if not is_ordered[node]:
                ready.append((ranks[node], node))

        _, node = heappop(ready)
        # A node that was taken to break a circle becomes ready a second time.
        if is_ordered[node]:
            continue
        is_ordered[node] = 1
        order.append(node)
        for target in targets.of_node(node):
            missing_sources[target] -= 1
            if not missing_sources[target]:
                heappush(ready, (ranks[target], target))
    return np.array(order, dtype=np.intp)


class _Targets:
    """Looks up the nodes that wait for a node.

    A node whose two sources are the same waits for it twice, and is listed twice.
    """

    def __init__(self, source: Int32s) -> None:
        """Sort all edges by their sources.

        Args:
            source: The two sources of each node, of shape [2, nodes].
        """
        edges, size = source.shape
        source_of_edge = source.reshape(-1)
        target_of_edge = np.tile(np.arange(size), edges)
        by_source = np.argsort(source_of_edge, kind="stable")
        self._targets: list[int] = target_of_edge[by_source].tolist()

        # The edges from node n are those from bounds[n] on, up to bounds[n + 1].
        nodes = np.arange(size + 1)
        bounds = np.searchsorted(source_of_edge[by_source], nodes)
        self._bounds: list[int] = bounds.tolist()

    def of_node(self, node: int) -> list[int]:
        """Return the nodes that wait for this one, in order."""
        first = self._bounds[node]
        stop = self._bounds[node + 1]
        return self._targets[first:stop]
