"""What the end of a replay waits for, and what has time to spare."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fusetui.analysis.replay.build import LATE_NS
from fusetui.analysis.replay.graph import Graph, Node, Times
from fusetui.analysis.replay.replay import BLOCK, last_of
from fusetui.trace.model.arrays import Int64s, Rows
from fusetui.trace.model.ids import Id

PARTS = LAG, RESIDUAL, OWN, LATE = range(4)
"""What a stretch of the critical path is: the lag before a node, what is not understood of that,
what the node does, and what is not understood of that."""


class Route(NamedTuple):
    """The critical path up to a node, as stretches from each begin to the next one, without a gap;
    arrays of shape [stretches], the last begin is the end."""

    node: Rows
    part: Rows
    begin: Int64s  # ns after the origin; shape [stretches + 1]

    @property
    def ns(self) -> Int64s:
        return np.diff(self.begin)

    @property
    def unknown_share(self) -> float:
        """How much of it is not understood."""
        unknown = self.ns[np.isin(self.part, (RESIDUAL, LATE))].sum()
        return float(unknown / max(int(self.ns.sum()), 1))

    def since(self, begin: int) -> Route:
        """The part after a time."""
        return Route(self.node, self.part, np.maximum(self.begin, begin))


def route_to(graph: Graph, times: Times, last: int) -> Route:
    """From the origin to the end of a node, by the edge that ends last of each."""
    ends = times.end[graph.source] + graph.lag + graph.residual
    slot = np.argmax(ends, axis=0)
    every = np.arange(len(graph))
    before = graph.source[slot, every].tolist()
    found, node = list[int](), last
    while node:
        found.append(node)
        node = before[node]
    nodes = np.array(found[::-1], dtype=np.intp)
    own = slot[nodes]
    since = times.end[graph.source[own, nodes]]
    late = times.end[nodes] - np.minimum(graph.unexplained, graph.dur)[nodes]
    begins = (since, since + graph.lag[own, nodes], times.begin[nodes], late)
    begin = np.append(np.stack(begins, axis=1).reshape(-1), times.end[last])
    begin = np.minimum.accumulate(begin[::-1])[::-1]  # the next may begin before one has ended
    begin[0] = 0
    return Route(np.repeat(nodes, len(PARTS)), np.tile(PARTS, len(nodes)), np.maximum(begin, 0))


def last_route(graph: Graph, times: Times) -> Route:
    """To the last end."""
    return route_to(graph, times, last_of(graph, times))


def residual_share(graph: Graph, times: Times, device: Id) -> float:
    """How much of the time from the first launch for a device to its last end is not understood,
    on the critical path to that."""
    chains = [
        n for n, chain in enumerate(graph.chains) if chain.is_stream and chain.device == device
    ]
    items = np.flatnonzero(np.isin(graph.chain, chains) & ~graph.gone)
    if not len(items):
        return 0.0
    source = graph.source[1, items]
    launched = np.where(source > 0, times.end[source], times.begin[items])
    begin = int(launched.min())
    last = int(items[np.argmax(times.end[items])])
    return route_to(graph, times, last).since(begin).unknown_share


def late_share(graph: Graph, route: Route) -> float:
    """How much of a route is lateness of items, but the first of their streams, that nothing
    recorded explains: what they wait for may be missing."""
    late = (route.part == RESIDUAL) & (route.ns > LATE_NS) & (graph.source[0, route.node] > 0)
    late &= graph.kind[route.node] == Node.ITEM
    return float(route.ns[late].sum() / max(int(route.ns.sum()), 1))


def slack_of(graph: Graph, times: Times) -> Int64s:
    """How much longer each node could take without moving the last end of the replay (ns); shape
    [nodes]. A pass from the end to the beginning."""
    end = int(times.end.max())
    latest = [end] * len(graph)
    lag = graph.lag + graph.residual
    for at in range(len(graph) - 1, 0, -BLOCK):
        own = slice(max(1, at - BLOCK + 1), at + 1)
        columns = (*graph.source[:, own], *lag[:, own], graph.dur[own])
        nodes = range(own.start, own.stop)
        each = zip(nodes, *(column.tolist() for column in columns), strict=True)
        for node, a, b, after_a, after_b, dur in reversed(list(each)):
            begin = latest[node] - dur
            if begin - after_a < latest[a]:
                latest[a] = begin - after_a
            if begin - after_b < latest[b]:
                latest[b] = begin - after_b
    return np.array(latest, dtype=np.int64) - times.end
