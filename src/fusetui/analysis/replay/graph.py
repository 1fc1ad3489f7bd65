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

A HANDOFF at which workers hand over a batch also waits for that: see Batches.

A lag is what is understood: latency of a launch, the usual switch from item to item, or
less, even less than nothing, where the recording shows it. A residual is what was
recorded beyond that.
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
    """From each of some times to the next one, how long a recorded ns takes; 1 before
    the first. Arrays of shape [n]; times as in Graph."""

    times: Int64s
    rate: Floats

    def until(self, times: Int64s) -> Int64s:
        """How long it takes from 0 to each of these times as recorded (ns). The time
        from one to another is the difference of both, so that parts add up exactly."""
        if not len(self.times):
            return times
        lasted = np.diff(self.times) * self.rate[:-1]
        since_first = np.concatenate(([0.0], np.cumsum(lasted)))
        until_times = self.times[0] + since_first
        last_before = np.searchsorted(self.times, times, side="right") - 1
        place = np.maximum(last_before, 0)
        since_ns = (times - self.times[place]) * self.rate[place]
        until = np.rint(until_times[place] + since_ns)
        is_before_first = last_before < 0
        return np.where(is_before_first, times, until).astype(np.int64)

    def changed(self, cover: Cover, factor: float) -> TimeScale:
        """During a cover each ns takes `factor` times as long as by this one."""
        times = distinct(np.concatenate((self.times, cover.start, cover.end)))
        last_before = np.searchsorted(self.times, times, side="right") - 1
        rate = at(self.rate, last_before, missing=1.0)
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
    """The HANDOFFs at which workers of a data loader hand over batches, in the order of
    their nodes. Arrays of shape [batches], times in ns as recorded."""

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
    """In ns after the origin; shape [nodes]. What was taken out of a graph has no
    times."""

    begin: Int64s
    end: Int64s


class Graph(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Arrays of shape [nodes], or [2, nodes] for the two edges of each; times in ns."""

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
        return self.began + self.lasted

    @property
    def recorded(self) -> Times:
        return Times(begin=self.began, end=self.ended)

    def nodes(self, *kinds: Node, rows: Rows | None = None) -> Rows:
        """The nodes of these kinds, in order; if `rows` are given, those of them that
        are one of these rows of the trace."""
        nodes = np.flatnonzero(np.isin(self.kind, kinds))
        if rows is None:
            return nodes
        return nodes[np.isin(self.row[nodes], rows)]

    def has_edge(self, slot: int, nodes: Rows) -> Flags:
        """Whether each of these nodes waits for a source by its edge `slot`, IN_CHAIN or
        ACROSS."""
        return np.asarray(self.lag[slot, nodes] != NEVER)

    def node_of(self, trace: Trace, kind: Node) -> Rows:
        """For each row of the trace, and for -1, which is none: its node of this kind,
        0 if it has none. Shape [slices + 1]."""
        nodes = self.nodes(kind)
        node_of_row = np.zeros(len(trace) + 1, dtype=np.intp)
        node_of_row[self.row[nodes]] = nodes
        return node_of_row


def reordered(batches: Batches, rank: NDArray[np.integer]) -> Batches:
    """The same with nodes that have other places. `rank`: the new place of each
    node."""
    node = rank[batches.node]
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
    """The nodes so that their sources come first: by their times as recorded if
    possible, where those of one chain that tie are in the order of `place`."""
    level = _tie_levels(began, source)
    order = np.lexsort((place, ended, level, began))
    rank = np.empty(len(order), dtype=np.intp)
    rank[order] = np.arange(len(order))
    comes_before_source = (rank[source] >= rank) & (source > 0)
    if comes_before_source.any():
        return _sorted_topologically(rank, source)
    return order


def _tie_levels(began: Int64s, source: Int32s) -> Int64s:
    """How many nodes that begin at the same time have to come before each, because it
    waits for them, one after the other; at most MAX_TIED_NODES. Shape [nodes]."""
    level = np.zeros(len(began), dtype=np.int64)
    slot, target = np.nonzero((source > 0) & (began[source] == began))
    tied_source = source[slot, target]
    for _ in range(MAX_TIED_NODES):
        is_behind = level[tied_source] >= level[target]
        if not is_behind.any():
            break
        level_after_source = level[tied_source[is_behind]] + 1
        np.maximum.at(level, target[is_behind], level_after_source)
    return level


def _sorted_topologically(rank: Rows, source: Int32s) -> Rows:
    """The nodes so that their sources come first, of those that might come next the one
    with the lowest rank (Kahn's algorithm); a circle is broken at its lowest rank."""
    from heapq import heappop, heappush  # only for clocks that differ, and for circles

    size = len(rank)
    ranks = rank.tolist()
    targets = _Targets(source)
    missing_sources = [0, *[2] * (size - 1)]
    is_ordered = bytearray(size)
    order: list[int] = []
    ready = [(ranks[0], 0)]
    by_rank = np.argsort(rank).tolist()[::-1]  # the lowest rank is the last
    while len(order) < size:
        while not ready:  # what is left is behind a circle
            node = by_rank.pop()
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
    """The nodes that wait for each node, once for each of their two sources that it
    is."""

    def __init__(self, source: Int32s) -> None:
        """`source`: the two sources of each node, shape [2, nodes]."""
        size = source.shape[1]
        sources = source.reshape(-1)  # two rows, one behind the other
        by_source = np.argsort(sources, kind="stable")
        targets = by_source % size
        self._targets: list[int] = targets.tolist()
        nodes = np.arange(size + 1)
        bounds = np.searchsorted(sources[by_source], nodes)
        self._bounds: list[int] = bounds.tolist()

    def of_node(self, node: int) -> list[int]:
        """The targets of a node, in order."""
        return self._targets[self._bounds[node] : self._bounds[node + 1]]
