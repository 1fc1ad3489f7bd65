"""Finds the critical path of a replay, and the time that nodes have to spare."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fusetui.analysis.replay.build import LATE_NS
from fusetui.analysis.replay.graph import ACROSS, IN_CHAIN, Graph, Node, Times
from fusetui.analysis.replay.replay import BLOCK_NODES, last_of
from fusetui.trace.model.arrays import Flags, Int64s, Rows
from fusetui.trace.model.ids import Id

PARTS = LAG, RESIDUAL, OWN, LATE = range(4)
"""The four parts of a node on the critical path: the lag before it, the delay before it
that is not understood, what it does, and the part of that which is not understood."""


class Route(NamedTuple):
    """The critical path up to a node, as stretches without gaps between them.

    Each stretch reaches from its begin to the begin of the next one.
    """

    node: Rows  # of each stretch
    part: Rows  # of each stretch: one of PARTS
    begin: Int64s  # ns after the origin; one more than stretches, the last is the end

    @property
    def ns(self) -> Int64s:
        """The length of each stretch."""
        return np.diff(self.begin)

    @property
    def span_ns(self) -> int:
        """The length of the path."""
        return int(self.ns.sum())

    @property
    def unknown_share(self) -> float:
        """The share of the path that is not understood."""
        return self.share_of(np.isin(self.part, (RESIDUAL, LATE)))

    def share_of(self, stretches: Flags) -> float:
        """Return the share of the path that the flagged stretches take."""
        return float(self.ns[stretches].sum() / max(self.span_ns, 1))

    def since(self, begin: int) -> Route:
        """Return the part of the path that lies after a time."""
        return self._replace(begin=np.maximum(self.begin, begin))


def route_to(graph: Graph, times: Times, last: int | None = None) -> Route:
    """Find the critical path from the origin to the end of a node.

    It leads back from the node: at each node it follows the edge that ends last.

    Args:
        graph: The graph.
        times: When its nodes begin and end.
        last: The node; by default the one that ends last.
    """
    if last is None:
        last = last_of(graph, times)
    edges_end = times.end[graph.source] + graph.lag + graph.residual
    last_edge = np.argmax(edges_end, axis=0)
    nodes = _nodes_to(graph, last_edge, last)

    begins = _begins_of_parts(graph, times, nodes, last_edge[nodes])
    begin = np.append(begins.reshape(-1), times.end[last])
    # A part may begin before the one before it has ended. It then cuts that one short.
    begin = np.minimum.accumulate(begin[::-1])[::-1]
    begin[0] = 0
    return Route(
        node=np.repeat(nodes, len(PARTS)),
        part=np.tile(PARTS, len(nodes)),
        begin=np.maximum(begin, 0),
    )


def _begins_of_parts(graph: Graph, times: Times, nodes: Rows, edge: Rows) -> Int64s:
    """Return when each part of each node begins.

    Args:
        graph: The graph.
        times: When its nodes begin and end.
        nodes: The nodes.
        edge: The edge by which each of them waits, IN_CHAIN or ACROSS.

    Returns:
        ns after the origin, of shape [nodes, PARTS].
    """
    source_ended = times.end[graph.source[edge, nodes]]
    lag_is_over = source_ended + graph.lag[edge, nodes]
    # A thread that waits for a batch waits for the loader.
    is_batch = np.isin(nodes, graph.batches.node)
    lag_is_over[is_batch] = times.begin[nodes[is_batch]]

    unexplained = np.minimum(graph.unexplained, graph.dur)[nodes]
    begins = {
        LAG: source_ended,
        RESIDUAL: lag_is_over,
        OWN: times.begin[nodes],
        LATE: times.end[nodes] - unexplained,
    }
    return np.stack([begins[part] for part in PARTS], axis=1)


def _nodes_to(graph: Graph, last_edge: Rows, last: int) -> Rows:
    """Return the nodes of the critical path, without the origin.

    Args:
        graph: The graph.
        last_edge: The edge of each node that ends last.
        last: The node at which the path ends.
    """
    node_before = graph.source[last_edge, np.arange(len(graph))].tolist()
    backward: list[int] = []
    node = last
    while node:
        backward.append(node)
        node = node_before[node]
    return np.array(backward[::-1], dtype=np.intp)


def residual_share(graph: Graph, times: Times, device: Id) -> float:
    """Return the share of a device's critical path that is not understood.

    The path reaches from the first launch for the device to its last end.
    """
    is_of_device = []
    for chain in graph.chains:
        is_of_device.append(chain.is_stream and chain.device == device)
    is_of_device.append(False)  # of the chain -1: none
    on_device = np.array(is_of_device)[graph.chain]
    items = np.flatnonzero(on_device & ~graph.gone)
    if not len(items):
        return 0.0

    launch = graph.source[ACROSS, items]
    has_launch = launch > 0
    launched = np.where(has_launch, times.end[launch], times.begin[items])
    last = int(items[np.argmax(times.end[items])])
    return route_to(graph, times, last).since(int(launched.min())).unknown_share


def late_share(graph: Graph, route: Route) -> float:
    """Return the share of a path in which items are late for no recorded reason.

    Such an item may wait for something that was not recorded. The first item of a
    stream does not count.
    """
    is_late = (route.part == RESIDUAL) & (route.ns > LATE_NS)
    is_item = graph.kind[route.node] == Node.ITEM
    follows_another = graph.source[IN_CHAIN, route.node] > 0
    return route.share_of(is_late & is_item & follows_another)


def slack_of(graph: Graph, times: Times) -> Int64s:
    """Compute how much longer each node could take without delaying the end.

    It is one pass from the end of the replay to its beginning.

    Returns:
        ns per node.
    """
    latest_end = [int(times.end.max())] * len(graph)
    lag = graph.lag + graph.residual
    lag[IN_CHAIN, graph.batches.node] += graph.batches.unsure
    for last in range(len(graph) - 1, 0, -BLOCK_NODES):
        first = max(1, last - BLOCK_NODES + 1)
        _limit_sources(graph, lag, first, last + 1, latest_end)
    return np.array(latest_end, dtype=np.int64) - times.end


def _limit_sources(
    graph: Graph, lag: Int64s, first: int, stop: int, latest_end: list[int]
) -> None:
    """Lower the latest ends of the sources of some nodes, the last node first.

    A source must end early enough for the node not to be delayed.

    Args:
        graph: The graph.
        lag: The lag plus the residual of each edge.
        first: The first of the nodes.
        stop: The node behind the last one.
        latest_end: The latest end of each node, which is changed in place.
    """
    block = slice(first, stop)
    source_a, source_b = graph.source[:, block].tolist()
    lag_a, lag_b = lag[:, block].tolist()
    durations = graph.dur[block].tolist()
    nodes = range(first, stop)
    in_order = zip(nodes, source_a, source_b, lag_a, lag_b, durations, strict=True)
    for node, a, b, after_a, after_b, dur in reversed(list(in_order)):
        latest_begin = latest_end[node] - dur
        if latest_begin - after_a < latest_end[a]:
            latest_end[a] = latest_begin - after_a
        if latest_begin - after_b < latest_end[b]:
            latest_end[b] = latest_begin - after_b
