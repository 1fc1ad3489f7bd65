"""The work of a trace as a graph: nodes that last, and edges that make them wait.

A node begins once both of its sources have ended, each with its lag:

    begin = max(
        end[source[0]] + lag[0] + residual[0],
        end[source[1]] + lag[1] + residual[1],
    )
    end = begin + dur

Nodes are in an order in which sources come first. Node 0 is the beginning of time; an
edge from it with the lag NEVER is none. What has more than two sources begins after
JOINs, which take no time.

    what waits            source[0]                       source[1]
    HOST                  the node before on the thread   -
    MARK                  likewise                        - (a batch that others load)
    LAUNCH                likewise                        the item that frees a slot of a full queue
    WAIT                  likewise                        the items that it waits for
    HANDOFF               likewise                        the end of what another thread does
    ITEM                  the item before on the stream,  the HOST before its launch call
                          and events (JOINs)

A HANDOFF at which workers hand over a batch also waits for that batch: see Batches.

A *lag* is a delay that is understood: the latency of a launch, or the usual switch from
item to item. It may be shorter than usual, and even negative, where the recording shows
it. A *residual* is the recorded delay beyond the lag.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.arrays import Flags, Floats, Int32s, Int64s, Rows, at, distinct
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id
from fusetui.trace.model.intervals import Cover


class TimeScale(NamedTuple):
    """How the time of a thread is stretched or compressed.

    From each of `times` to the next one, a recorded ns takes `rate` ns. Before the
    first it takes 1 ns.
    """

    times: Int64s  # ns after the origin, ascending
    rate: Floats

    def until(self, times: Int64s) -> Int64s:
        """Return how long it takes from 0 to each of some recorded times.

        The time between two of them is the difference of both, so parts add up exactly.

        Args:
            times: Recorded times, in ns after the origin.
        """
        if not len(self.times):
            return times

        # How long it takes until each of the times at which the rate changes.
        lasted = np.diff(self.times) * self.rate[:-1]
        since_first_change = np.concatenate(([0.0], np.cumsum(lasted)))
        until_change = self.times[0] + since_first_change

        last_change = np.searchsorted(self.times, times, side="right") - 1
        change = np.maximum(last_change, 0)
        since_change_ns = (times - self.times[change]) * self.rate[change]
        until = np.rint(until_change[change] + since_change_ns)
        is_before_first = last_change < 0
        return np.where(is_before_first, times, until).astype(np.int64)

    def changed(self, cover: Cover, factor: float) -> TimeScale:
        """Return a scale in which each ns within `cover` takes `factor` times as long."""
        times = distinct(np.concatenate((self.times, cover.start, cover.end)))
        last_change = np.searchsorted(self.times, times, side="right") - 1
        rate = at(self.rate, last_change, missing=1.0)
        is_covered = cover.place_of(times) >= 0
        return TimeScale(times=times, rate=np.where(is_covered, rate * factor, rate))


AS_RECORDED = TimeScale(times=np.empty(0, dtype=np.int64), rate=np.empty(0))

NEVER = -(1 << 61)  # the lag of an edge that is none
MAX_TIED_NODES = 100
"""That wait for each other and begin at the same time."""
IN_CHAIN, ACROSS = 0, 1
"""The two edges of a node: from the node before on its thread or stream, and from a node
of another one; see above."""


class Node(IntEnum):
    """What a node is; of calls that overlap on one thread the largest counts."""

    ORIGIN = 0
    HOST = 1  # a thread's own time between two of the following
    MARK = 2  # where a step, or the loading of a batch, begins or ends; takes no time
    # a call that launches work, from when it need not wait for room in a queue
    LAUNCH = 3
    HANDOFF = 4  # the end of waiting for another thread; takes no time
    # the rest of a call that waits for the device, once what it waits for is done
    WAIT = 5
    JOIN = 6
    ITEM = 7  # a kernel, copy or set


class Batches(msgspec.Struct, frozen=True, eq=False):
    """The HANDOFFs at which workers of a data loader hand over batches.

    There is one entry per batch, in the order of the nodes. Times are ns as recorded.
    """

    node: Rows
    waited: Int64s  # from the begin of the call until the HANDOFF
    unsure: Int64s  # how much of that may have been the thread's own work, not waiting
    loader: Int32s  # those of one number wait for the same workers


NO_BATCHES = Batches(
    node=np.empty(0, dtype=np.intp),
    waited=np.empty(0, dtype=np.int64),
    unsure=np.empty(0, dtype=np.int64),
    loader=np.empty(0, dtype=np.int32),
)


class Chain(msgspec.Struct, frozen=True):
    """Nodes that follow each other: those of a thread or of a stream."""

    thread: int  # as in Trace.thread_of_track
    is_stream: bool = False
    device: Id = None  # of a stream


class Times(NamedTuple):
    """When each node begins and ends, in ns after the origin.

    Nodes that a change took out have no meaningful times.
    """

    begin: Int64s
    end: Int64s


class Graph(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The work of a trace: nodes, and two edges for each node.

    Arrays have the shape [nodes], or [2, nodes] for the edges. Times are ns.
    """

    origin_ns: int  # in the time of the file
    chains: tuple[Chain, ...]
    kind: NDArray[np.uint8]
    chain: Int32s  # -1: none; of a JOIN that of what begins after it
    row: Int32s  # the call or GPU event, -1: none
    began: Int64s  # as recorded, after the origin; of what waits, when that is over
    lasted: Int64s  # as recorded
    dur: Int64s
    unexplained: Int64s  # how much of it is longer than such waits take
    source: Int32s
    lag: Int64s
    residual: Int64s
    gone: Flags  # taken out by a change
    # of the threads, which come first among the chains
    time_scales: tuple[TimeScale, ...]
    inferred_waits: int  # of calls and streams for what the trace does not say
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

    def nodes(self, *kinds: Node, rows: Rows | None = None) -> Rows:
        """Return the nodes of some kinds, in order.

        Args:
            kinds: The kinds.
            rows: If given, only the nodes of these rows of the trace are returned.
        """
        nodes = np.flatnonzero(np.isin(self.kind, kinds))
        if rows is None:
            return nodes
        return nodes[np.isin(self.row[nodes], rows)]

    def has_edge(self, slot: int, nodes: Rows) -> Flags:
        """Mark the nodes that wait for a source by one of their two edges.

        Args:
            slot: Which edge, IN_CHAIN or ACROSS.
            nodes: The nodes.
        """
        return np.asarray(self.lag[slot, nodes] != NEVER)

    def node_of(self, trace: Trace, kind: Node) -> Rows:
        """Return the node of one kind for each row of the trace.

        Returns:
            One entry for each row and one for the row -1; 0 where there is no such
            node.
        """
        nodes = self.nodes(kind)
        node_of_row = np.zeros(len(trace) + 1, dtype=np.intp)
        node_of_row[self.row[nodes]] = nodes
        return node_of_row


def reordered(batches: Batches, new_node: NDArray[np.integer]) -> Batches:
    """Return the batches after the nodes of a graph were reordered.

    Args:
        batches: The batches.
        new_node: The new node of each old one.
    """
    node = new_node[batches.node]
    order = np.argsort(node, kind="stable")
    return Batches(
        node=node[order].astype(np.intp),
        waited=batches.waited[order],
        unsure=batches.unsure[order],
        loader=batches.loader[order],
    )


def in_order(
    began: Int64s, ended: Int64s, place: NDArray[np.floating[Any]], source: Int32s
) -> Rows:
    """Sort nodes so that their sources come first.

    They are sorted by their recorded times if that is possible.

    Args:
        began: When each node began.
        ended: When each node ended.
        place: A number for each node that decides between nodes of one chain with equal
            times.
        source: The two sources of each node, of shape [2, nodes].

    Returns:
        The nodes in order.
    """
    level = _tie_levels(began, source)
    order = np.lexsort((place, ended, level, began))

    rank = np.empty(len(order), dtype=np.intp)
    rank[order] = np.arange(len(order))
    comes_before_source = (rank[source] >= rank) & (source > 0)
    if comes_before_source.any():
        return _sorted_topologically(rank, source)
    return order


def _tie_levels(began: Int64s, source: Int32s) -> Int64s:
    """Count for each node the sources that begin at the same time and must come first.

    Sources of sources count too, one after the other, up to MAX_TIED_NODES.

    Args:
        began: When each node began.
        source: The two sources of each node, of shape [2, nodes].
    """
    level = np.zeros(len(began), dtype=np.int64)
    is_tied = (source > 0) & (began[source] == began)
    slot, target = np.nonzero(is_tied)
    tied_source = source[slot, target]

    # Raise the level of each node above that of its source, until nothing changes.
    for _ in range(MAX_TIED_NODES):
        is_too_low = level[tied_source] >= level[target]
        if not is_too_low.any():
            break
        level_above_source = level[tied_source[is_too_low]] + 1
        np.maximum.at(level, target[is_too_low], level_above_source)
    return level


def _sorted_topologically(rank: Rows, source: Int32s) -> Rows:
    """Sort nodes so that their sources come first, by Kahn's algorithm.

    Of the nodes that may come next, the one with the lowest rank does. A circle is
    broken at its lowest rank.

    Args:
        rank: The rank of each node.
        source: The two sources of each node, of shape [2, nodes].
    """
    from heapq import heappop, heappush  # only for clocks that differ, and for circles

    size = len(rank)
    ranks = rank.tolist()
    targets = _Targets(source)
    missing_sources = [0, *[2] * (size - 1)]
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
    """Finds the nodes that wait for a node.

    A node whose two sources are the same is found twice.
    """

    def __init__(self, source: Int32s) -> None:
        """Sort the nodes by their sources.

        Args:
            source: The two sources of each node, of shape [2, nodes].
        """
        size = source.shape[1]
        both_sources = source.reshape(-1)  # one row behind the other
        by_source = np.argsort(both_sources, kind="stable")
        targets = by_source % size
        self._targets: list[int] = targets.tolist()
        nodes = np.arange(size + 1)
        bounds = np.searchsorted(both_sources[by_source], nodes)
        self._bounds: list[int] = bounds.tolist()

    def of_node(self, node: int) -> list[int]:
        """Return the nodes that wait for this one, in order."""
        return self._targets[self._bounds[node] : self._bounds[node + 1]]
