"""The work of a trace as a graph: nodes that last, and edges that make them wait.

A node begins once both of its sources have ended, each with its lag:

    begin = max(end[source[0]] + lag[0] + residual[0], end[source[1]] + lag[1] +
    residual[1]) end = begin + dur

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

from fusetui.trace.model.arrays import Flags, Floats, Int32s, Int64s, Rows, distinct
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id
from fusetui.trace.model.intervals import Cover


class TimeScale(NamedTuple):
    """From each of some times to the next one, how long a recorded ns takes; 1 before
    the first. Arrays of shape [n]; times as in Graph."""

    times: Int64s
    rate: Floats

    def until(self, times: Int64s) -> Int64s:
        """How long it works until each time, if it begins at 0. Differences add up
        exactly."""
        if not len(self.times):
            return times
        lasted = np.diff(self.times) * self.rate[:-1]
        before = np.concatenate(([0.0], np.cumsum(lasted))) + self.times[0]
        place = np.searchsorted(self.times, times, side="right") - 1
        at = np.maximum(place, 0)
        inside = before[at] + (times - self.times[at]) * self.rate[at]
        return np.where(place < 0, times, np.rint(inside)).astype(np.int64)

    def changed(self, cover: Cover, factor: float) -> TimeScale:
        """As much slower or faster during a cover."""
        times = distinct(np.concatenate((self.times, cover.start, cover.end)))
        rate = np.append(self.rate, 1.0)[
            np.searchsorted(self.times, times, side="right") - 1
        ]
        return TimeScale(
            times, np.where(cover.place_of(times) >= 0, rate * factor, rate)
        )


AS_RECORDED = TimeScale(np.empty(0, dtype=np.int64), np.empty(0))

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
    time_scales: tuple[
        TimeScale, ...
    ]  # of the threads, which come first among the chains
    inferred_waits: int  # of calls and streams for what the trace does not say
    batches: Batches = NO_BATCHES

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def ended(self) -> Int64s:
        return self.began + self.lasted

    @property
    def recorded(self) -> Times:
        return Times(self.began, self.ended)

    def nodes(self, *kinds: Node, rows: Rows | None = None) -> Rows:
        """Of these kinds, and if so asked with these rows of the trace."""
        found = np.flatnonzero(np.isin(self.kind, kinds))
        return found if rows is None else found[np.isin(self.row[found], rows)]

    def node_of(self, trace: Trace, kind: Node) -> Rows:
        """By row of the trace, and then of none: the node of this kind, 0 for none."""
        found, nodes = np.zeros(len(trace) + 1, dtype=np.intp), self.nodes(kind)
        found[self.row[nodes]] = nodes
        return found


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
    # how many that begin at the same time come first
    level = np.zeros(len(began), dtype=np.int64)
    slot, target = np.nonzero((source > 0) & (began[source] == began))
    before = source[slot, target]
    for _ in range(MAX_TIED_NODES):
        behind = level[before] >= level[target]
        if not behind.any():
            break
        np.maximum.at(level, target[behind], level[before[behind]] + 1)
    order = np.lexsort((place, ended, level, began))
    rank = np.empty(len(order), dtype=np.intp)
    rank[order] = np.arange(len(order))
    wrong = (rank[source] >= rank) & (source > 0)
    return _sorted_topologically(rank, source) if wrong.any() else order


def _sorted_topologically(rank: Rows, source: Int32s) -> Rows:
    """Kahn's algorithm, the lowest rank first; a circle is broken at its lowest
    rank."""
    from heapq import heappop, heappush  # only for clocks that differ, and for circles

    sources = source.reshape(-1)
    by_source = np.argsort(sources, kind="stable")
    firsts = np.searchsorted(sources[by_source], np.arange(len(rank) + 1)).tolist()
    targets, ranks = (by_source % len(rank)).tolist(), rank.tolist()
    missing = [0, *[2] * (len(rank) - 1)]
    ready, found, rest = [(ranks[0], 0)], list[int](), np.argsort(rank).tolist()[::-1]
    is_found = bytearray(len(rank))
    while len(found) < len(rank):
        while not ready:
            node = rest.pop()
            if not is_found[node]:
                ready.append((ranks[node], node))
        node = heappop(ready)[1]
        if is_found[node]:
            continue
        is_found[node] = 1
        found.append(node)
        for other in targets[firsts[node] : firsts[node + 1]]:
            missing[other] -= 1
            if not missing[other]:
                heappush(ready, (ranks[other], other))
    return np.array(found, dtype=np.intp)
